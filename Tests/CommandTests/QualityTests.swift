import Glibc
import Imaging
import JobSyntax
import TestSupport
import Testing

/// Photos for searches, where the collection is at hand.
private let photos: [String] = {
  let root = getenv("PIPELINE_TEST_DATA").map { String(cString: $0) } ?? "../shared/data"
  guard let path = realpath(root + "/matte", nil) else { return [] }
  defer { free(path) }
  let folder = String(cString: path)
  return ["/*/*.jpg", "/*/*/*.jpg"].flatMap { pattern -> [String] in
    var found = glob_t()
    defer { globfree(&found) }
    guard glob(folder + pattern, 0, nil, &found) == 0, let paths = found.gl_pathv else { return [] }
    return (0..<Int(found.gl_pathc)).compactMap { paths[$0].map { String(cString: $0) } }
  }
}()

/// Searches for a quality, from outside, on real photos: 50 of them in `make soak`, five otherwise.
@Suite(.enabled(if: photos.count >= 50, "the photos are not here (PIPELINE_TEST_DATA)"), .serialized)
struct QualityTests {
  static let count = getenv("PIPELINE_SOAK") == nil ? 5 : 50

  /// Runs an encoder on the photos; the report's items in their order.
  private func encode(_ encode: String, in scene: Scene) throws -> [(photo: String, item: JSONNode)] {
    // Spread over the collection, whose folders are of different kinds.
    let chosen = (0..<Self.count).map { photos[$0 * photos.count / Self.count] }
    scene.folder.write(chosen.joined(separator: "\n"), to: "list.txt")
    scene.job(encode: encode, to: "out/${item.index}.${ext}", input: #"{ "list": "list.txt" }"#)
    let run = scene.run("run", "job.json", "--report", "report.json", "--quiet")
    #expect(run.exitCode == 0, "\(run.error)")
    let items = try #require(try scene.report()["items"]?.arrayValue)
    try #require(items.count == chosen.count)
    return Array(zip(chosen, items))
  }

  private func quality(_ item: JSONNode) throws -> Int {
    try #require(item["facts"]?["encode"]?["quality"]?.integer)
  }

  private func photo(_ path: String) throws -> Image { try EncodedPicture(path: Array(path.utf8)).pixels() }

  @Test("maxBytes: the file at the quality found fits, and one step higher it does not", arguments: ["jpeg", "webp"])
  func maxBytes(_ format: String) throws {
    let scene = try Scene()
    let limit = 24_000
    let pairs = try encode(
      #"{ "stage": "encode", "format": "\#(format)", "chroma": "420", "maxBytes": \#(limit), "metadata": "none" }"#
        .replacing(format == "webp" ? #" "chroma": "420","# : "-", with: ""), in: scene)
    for (path, item) in pairs {
      let quality = try quality(item)
      let output = try #require(item["outputs"]?.arrayValue?.first)
      let bytes = try #require(output["bytes"]?.integer)
      #expect(bytes <= limit, "\(path)")
      let image = try photo(path)
      func size(_ quality: Int) throws -> Int {
        let options: EncodeOptions =
          format == "jpeg" ? .jpeg(.init(quality: quality, chroma: .quarter)) : .webp(.init(quality: quality))
        return try image.encoded(options, metadata: .none).count
      }
      #expect(try size(quality) == bytes, "\(path): quality \(quality)")
      if quality < 100 { #expect(try size(quality + 1) > limit, "\(path): quality \(quality)") }
    }
  }

  @Test("quality auto: as like as asked for, and no finer than it takes")
  func similarity() throws {
    let scene = try Scene()
    let target = 0.95
    let pairs = try encode(
      #"{ "stage": "encode", "format": "jpeg", "quality": "auto", "similarity": \#(target), "minQuality": 5 }"#,
      in: scene)
    var qualities: [Int] = []
    var worst = 0.0
    for (path, item) in pairs {
      qualities.append(try quality(item))
      let output = try #require(item["outputs"]?.arrayValue?.first?["path"]?.stringValue)
      let found = try StructuralSimilarity.mean(photo(path), photo(output))
      worst = max(worst, abs(found - target))
      #expect(abs(found - target) <= 0.005, "\(path): quality \(qualities.last ?? 0) gives \(found)")
    }
    let spread = (qualities.max() ?? 0) - (qualities.min() ?? 0)
    if getenv("PIPELINE_TEST_FIGURES") != nil {
      print("similarity: worst distance \(worst), qualities \(qualities.min() ?? 0) to \(qualities.max() ?? 0)")
    }
    if Self.count >= 50 { #expect(spread >= 20, "\(qualities)") }
  }

  @Test("what cannot be made small enough fails and writes nothing, or is taken where that is accepted")
  func tooLarge() throws {
    let scene = try Scene(pictures: 1, side: 256)
    let encode = #"{ "stage": "encode", "format": "jpeg", "maxBytes": 1000, "minQuality": 10"#
    scene.job(encode: encode + " }")
    let run = scene.run("run", "job.json", "--report", "report.json")
    #expect(run.exitCode == 1)
    #expect(try scene.report()["items"]?.arrayValue?[0]["error"]?["code"]?.stringValue == "too-large")
    #expect(scene.folder.read("out/p00.jpg") == nil)
    scene.job(encode: encode + #", "onTooLarge": "accept" }"#)
    let accepted = scene.run("run", "job.json", "--report", "report.json")
    #expect(accepted.exitCode == 0)
    let warnings = try scene.report()["items"]?.arrayValue?[0]["warnings"]?.arrayValue ?? []
    #expect(warnings.contains { $0["code"]?.stringValue == "too-large" })
    #expect((scene.folder.read("out/p00.jpg")?.count ?? 0) > 1000)
  }
}
