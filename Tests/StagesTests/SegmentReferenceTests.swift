import Glibc
import Imaging
import Inference
import PipelineKit
import Stages
import TestSupport
import Testing

/// The photos that the reference masks were made of.
private let photos = (getenv("PIPELINE_TEST_DATA").map { String(cString: $0) } ?? "../shared/data") + "/matte"
private let everyPhoto = getenv("PIPELINE_SOAK").map { String(cString: $0) == "1" } ?? false

/// Agreement with rembg on real photos, block by block. `Tests/Benchmarks/agreement.sh` compares every pixel.
@Suite struct SegmentReferenceTests {
  /// A photo and rembg's mask of it.
  struct Reference {
    static let grid = 16
    var name: String
    var width: Int
    var height: Int
    /// The means of 16 × 16 blocks, row by row.
    var blocks: [UInt8]

    static func all() throws -> [Reference] {
      var result: [Reference] = []
      for line in SegmentReference.table.split(separator: "\n") {
        let words = line.split(separator: " ")
        if words.count == 3 {
          result.append(
            Reference(
              name: String(words[0]), width: try #require(Int(words[1])), height: try #require(Int(words[2])),
              blocks: []))
        } else {
          let digits = try line.map { digit in UInt8(try #require(digit.hexDigitValue)) }
          let bytes = stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
          try #require(!result.isEmpty)
          result[result.count - 1].blocks += bytes
        }
      }
      return result
    }

    /// The means of the same blocks of another mask of that size.
    func blockMeans(of mask: [UInt8]) -> [Double] {
      let grid = Self.grid
      return (0..<grid * grid).map { block in
        let (row, column) = (block / grid, block % grid)
        let rows = height * row / grid..<height * (row + 1) / grid
        let columns = width * column / grid..<width * (column + 1) / grid
        var sum = 0
        for y in rows { for x in columns { sum += Int(mask[y * width + x]) } }
        return Double(sum) / Double(rows.count * columns.count)
      }
    }
  }

  @Test("the table holds every photo once, with a whole grid")
  func table() throws {
    let references = try Reference.all()
    #expect(references.count == 75)
    #expect(Set(references.map(\.name)).count == references.count)
    for reference in references {
      #expect(reference.blocks.count == Reference.grid * Reference.grid, "\(reference.name)")
      // A mask is spread over 0…255, so some block is bright unless the subject is tiny.
      #expect((reference.blocks.max() ?? 0) > 60, "\(reference.name)")
      #expect(min(reference.width, reference.height) >= Reference.grid)
    }
  }

  @Test(
    "masks of photos are those of rembg",
    .enabled(
      if: segmentModelIsInstalled && access(photos, R_OK) == 0,
      "needs the OpenVINO runtime, u2netp (make provision) and the test data (PIPELINE_TEST_DATA)"))
  func agreement() throws {
    let bench = StageBench()
    let segment = try bench.make(
      Segment.self, #"{ "stage": "segment", "output": "mask", "refine": false, "precision": "f32" }"#)
    var references = try Reference.all()
    if !everyPhoto {
      // A tenth, the same on every machine.
      var random = SeededGenerator(state: 2)
      references = Array(references.shuffled(using: &random).prefix((references.count + 9) / 10))
    }
    for reference in references {
      let name = reference.name
      let file = try #require(TemporaryFolder.read(photos + "/" + name), "\(name) is missing")
      let photo = try EncodedPicture(bytes: EncodedBytes(withoutProfile(file))).decode().materialised()
      try #require(photo.width == reference.width && photo.height == reference.height, "\(name)")
      guard case .next(let item) = try segment.process(bench.item(photo, name: name), in: bench.context("segment"))
      else {
        Issue.record("\(name) was not passed on")
        continue
      }
      let differences = zip(reference.blockMeans(of: try item.pixels()), reference.blocks)
        .map { abs($0 - Double($1)) }
      let mean = differences.reduce(0, +) / Double(differences.count)
      let (worst, block) = zip(differences, 0...).max { $0.0 < $1.0 } ?? (0, 0)
      #expect(worst <= 2, "\(name): \(worst) in row \(block / Reference.grid), column \(block % Reference.grid)")
      #expect(mean <= 1, "\(name): \(mean) on average")
    }
  }

  /// The JPEG without its colour profile (APP2 segments that open with ICC_PROFILE).
  ///
  /// rembg gives the model a photo's samples as they are stored; decode applies the profile first, as it should. Two of
  /// the photos are not in sRGB, and here the mask alone is compared.
  private func withoutProfile(_ jpeg: [UInt8]) -> [UInt8] {
    var result = Array(jpeg.prefix(2))
    var position = 2
    while position + 4 <= jpeg.count, jpeg[position] == 0xff, jpeg[position + 1] != 0xda {
      let end = position + 2 + Int(jpeg[position + 2]) << 8 + Int(jpeg[position + 3])
      guard end <= jpeg.count else { break }
      let segment = jpeg[position..<end]
      let isProfile = segment[position + 1] == 0xe2 && segment.dropFirst(4).starts(with: "ICC_PROFILE\0".utf8)
      if !isProfile { result += segment }
      position = end
    }
    return result + jpeg[position...]
  }
}
