import Glibc
import Imaging
import Testing

/// Real files that break decoders, where the collection is at hand; what each must do is in its MANIFEST.tsv.
private let tortureFolder: String? = {
  let root = getenv("PIPELINE_TEST_DATA").map { String(cString: $0) } ?? "../shared/data"
  let folder = root + "/torture"
  return access(folder + "/MANIFEST.tsv", R_OK) == 0 ? folder : nil
}()

@Suite struct TortureTests {
  @Test(
    "every file decodes or fails as the manifest says",
    .enabled(if: tortureFolder != nil, "the torture collection is not here (PIPELINE_TEST_DATA)"))
  func manifest() throws {
    let folder = try #require(tortureFolder)
    let manifest = try EncodedPicture.read(path: Array((folder + "/MANIFEST.tsv").utf8)).array
    let lines = String(decoding: manifest, as: UTF8.self).split(separator: "\n").dropFirst()
    #expect(lines.count > 50)
    for line in lines {
      let fields = line.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
      // The big ones would only make this slow; SVG is not read.
      guard fields.count >= 11, !fields[0].hasPrefix("big/"), !fields[0].hasPrefix("svg") else { continue }
      let (name, expect, size, colour) = (fields[0], fields[8], fields[9], fields[10])
      var image: Image?
      var source: EncodedPicture?
      var error: ImagingError?
      do throws(ImagingError) {
        source = try EncodedPicture(bytes: EncodedPicture.read(path: Array((folder + "/" + name).utf8)))
        image = try source?.decode().materialised()
      } catch { failed(error) }
      func failed(_ thrown: ImagingError) { error = thrown }
      switch expect {
      case "OK", "OK_FIRST":
        #expect(error == nil, "\(name): \(error.map(String.init(describing:)) ?? "")")
        if expect == "OK_FIRST" { #expect(source?.warnings.isEmpty == false, "\(name)") }
      case "ERROR", "PARTIAL":
        #expect([.damaged, .unsupported, .limit, .empty].contains(error?.code), "\(name) decoded")
      case "LIMIT": #expect(error?.code == .limit, "\(name)")
      default:
        if let error { #expect([.damaged, .unsupported, .limit].contains(error.code), "\(name): \(error)") }
      }
      if let image, !size.isEmpty { #expect("\(image.width)x\(image.height)" == size, "\(name)") }
      // "sRGB mean 133,113,104 (raw …)" or "sRGB 227,6,19"
      if let image, colour.hasPrefix("sRGB ") {
        let numbers = colour.split { !$0.isNumber }.prefix(3).compactMap { Double($0) }
        let bytes = try image.bytes()
        for (band, expected) in numbers.enumerated() where numbers.count == 3 {
          let values = stride(from: band, to: bytes.count, by: image.bands).map { Double(bytes[$0]) }
          let mean = values.reduce(0, +) / Double(values.count)
          #expect(abs(mean - expected) <= 2, "\(name) band \(band): \(mean), not \(expected)")
        }
      }
    }
  }
}
