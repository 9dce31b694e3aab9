import Imaging
import JobSyntax
import PipelineKit

/// What a segment stage has found in a picture, as it is kept between runs: its mattes, packed, and what it had to say.
///
/// One JSON object on the first line, with the length of each matte, and the mattes after it. Everything the stage then
/// does with them (joining them with the picture, cleaning colours) follows from them and is done again.
struct KeptMattes {
  /// One band of 8 bits, as large as the picture.
  var whole: Image
  var named: [String: Image]
  var records: [MatteRecord]
  var warnings: [ItemWarning]
  /// See `Segmenter.maker`.
  var maker: String

  /// For keeping; nil for mattes of another kind than these.
  ///
  /// - Throws: `memory`.
  func packed() throws(ImagingError) -> [UInt8]? {
    var planes: [UInt8] = []
    var lengths: [(String, JSONText)] = []
    for (name, matte) in [("", whole)] + named.sorted(by: { $0.key < $1.key }) {
      guard matte.bands == 1, matte.depth == 8 else { return nil }
      let result: Result<[UInt8], ImagingError> = try matte.withPixels { pixels in
        do throws(ImagingError) { return .success(try PackedBytes.pack(pixels)) } catch { return .failure(error) }
      }
      let plane = try result.get()
      planes += plane
      lengths.append((name, .integer(plane.count)))
    }
    let head: JSONText = .object([
      ("maker", .string(maker)), ("width", .integer(whole.width)), ("height", .integer(whole.height)),
      ("planes", .object(lengths)),
      ("mattes", .array(records.map(\.exactJSON))), ("warnings", .array(warnings.map(\.json))),
    ])
    return Array(head.rendered().utf8) + [UInt8(ascii: "\n")] + planes
  }

  init(whole: Image, named: [String: Image], records: [MatteRecord], warnings: [ItemWarning], maker: String) {
    self.whole = whole
    self.named = named
    self.records = records
    self.warnings = warnings
    self.maker = maker
  }

  /// Nil where the bytes are not what `packed` makes for a picture of this size and by this maker.
  init?(_ bytes: [UInt8], width: Int, height: Int, maker: String) {
    guard let end = bytes.firstIndex(of: UInt8(ascii: "\n")),
      let head = StrictJSON.parse(SourceFile(name: "mattes", text: Array(bytes[..<end]))).root,
      head["maker"]?.stringValue == maker, head["width"]?.numberValue?.integer == width,
      head["height"]?.numberValue?.integer == height
    else { return nil }
    var offset = end + 1
    var mattes: [String: Image] = [:]
    for member in head["planes"]?.objectValue ?? [] {
      guard let length = member.value.numberValue?.integer, length > 0, length <= bytes.count - offset,
        let pixels = PackedBytes.unpack(bytes[offset..<offset + length], most: width * height),
        pixels.count == width * height,
        let matte = try? Image(width: width, height: height, bands: 1, bytes: pixels)
      else { return nil }
      mattes[member.key] = matte
      offset += length
    }
    guard let whole = mattes.removeValue(forKey: ""), offset == bytes.count else { return nil }
    self.init(
      whole: whole, named: mattes, records: (head["mattes"]?.arrayValue ?? []).compactMap { MatteRecord($0) },
      warnings: (head["warnings"]?.arrayValue ?? []).compactMap { ItemWarning($0) }, maker: maker)
  }
}
