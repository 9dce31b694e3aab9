import Glibc
import Imaging
import JobSyntax
import TestSupport
import Testing

private let torture: String? = {
  let root = getenv("PIPELINE_TEST_DATA").map { String(cString: $0) } ?? "../shared/data"
  let folder = root + "/torture"
  guard access(folder + "/MANIFEST.tsv", R_OK) == 0 else { return nil }
  guard let path = realpath(folder, nil) else { return nil }
  defer { free(path) }
  return String(cString: path)
}()

/// Real files that break decoders, all in one job with two workers; what each must do is in the collection's manifest.
@Suite(.enabled(if: torture != nil, "the torture collection is not here (PIPELINE_TEST_DATA)"), .serialized)
struct TortureTests {
  struct Line {
    var name: String
    var expect: String
    var size: String
    var colour: String
    var observed: String
  }

  private func manifest() throws -> [Line] {
    let folder = try #require(torture)
    let bytes = try #require(TemporaryFolder.read(folder + "/MANIFEST.tsv"))
    let rows = String(decoding: bytes, as: UTF8.self).split(separator: "\n")
    let names = rows[0].split(separator: "\t", omittingEmptySubsequences: false)
    func column(_ name: String) throws -> Int { try #require(names.firstIndex { $0.hasPrefix(name) }) }
    let (file, expect) = (try column("file"), try column("expect"))
    let (size, colour, observed) = (try column("size_after"), try column("expected_colour"), try column("observed"))
    return rows.dropFirst().map { row in
      let fields = row.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
      return Line(
        name: fields[file], expect: fields[expect], size: fields[size], colour: fields[colour],
        observed: fields[observed])
    }
  }

  /// Runs files of the collection in one job and gives the report's items by name.
  private func run(
    _ lines: [Line], onDamage: String, in scene: Scene
  ) throws -> (run: JSONNode, items: [String: JSONNode]) {
    let folder = try #require(torture)
    scene.folder.write(lines.map { folder + "/" + $0.name }.joined(separator: "\n"), to: "list.txt")
    scene.folder.write(
      """
      {
        "version": 1,
        "input": { "list": "list.txt" },
        "stages": [
          { "stage": "decode", "allow": ["svg"], "onDamage": "\(onDamage)" },
          { "stage": "encode", "format": "png", "compression": 0 },
          { "stage": "write", "to": "out/${item.index}.${ext}" }
        ],
        "run": { "itemDeadline": 30 }
      }
      """, to: "job.json")
    let result = scene.run("run", "job.json", "--jobs", "2", "--report", "report.json", "--quiet")
    #expect(result.exitCode == (onDamage == "fail" ? 1 : 0), "\(result.error)")
    let report = try scene.report()
    let items = try #require(report["items"]?.arrayValue)
    try #require(items.count == lines.count)
    return (try #require(report["run"]), Dictionary(uniqueKeysWithValues: zip(lines.map(\.name), items)))
  }

  /// Codes that say something about the file, and not about this program.
  private static let clear = ["damaged", "unsupported", "limit", "empty"]

  private func isDone(_ item: JSONNode) -> Bool { item["status"]?.stringValue == "done" }
  private func code(_ item: JSONNode) -> String { item["error"]?["code"]?.stringValue ?? "" }
  private func warnings(_ item: JSONNode) -> [String] {
    item["warnings"]?.arrayValue?.compactMap { $0["message"]?.stringValue } ?? []
  }

  @Test("every file ends as the manifest says, in one run")
  func manifestByDefault() throws {
    let scene = try Scene()
    let lines = try manifest()
    let (run, items) = try run(lines, onDamage: "fail", in: scene)
    for line in lines {
      let item = try #require(items[line.name])
      let what = "\(line.name) (\(line.expect)): \(item["status"]?.stringValue ?? "") \(code(item))"
      let isDone = isDone(item)
      switch line.expect {
      case "OK": #expect(isDone, "\(what)")
      case "OK_FIRST":
        #expect(isDone, "\(what)")
        #expect(warnings(item).contains { $0.contains("only the first is used") }, "\(what)")
      case "OPTIONAL", "OPTIONAL_OR_LIMIT":
        // Where libvips of Debian 12 loads it, so do we.
        let loads = line.observed.contains("ok") && !line.observed.contains("load fails")
        if loads && line.expect == "OPTIONAL" {
          #expect(isDone, "\(what)")
        } else {
          #expect(isDone || Self.clear.contains(code(item)), "\(what)")
        }
      case "PARTIAL": #expect(code(item) == "damaged", "\(what)")
      case "ERROR", "ERROR_NO_HANG": #expect(["damaged", "unsupported", "empty"].contains(code(item)), "\(what)")
      case "ERROR_OR_PARTIAL": #expect(["damaged", "unsupported", "limit"].contains(code(item)), "\(what)")
      case "LIMIT": #expect(code(item) == "limit", "\(what)")
      case "OK_OR_LIMIT": #expect(isDone || code(item) == "limit", "\(what)")
      case "ERROR_OR_OK": #expect(isDone || Self.clear.contains(code(item)), "\(what)")
      default: Issue.record("the manifest expects \(line.expect), which this test does not know")
      }
      if isDone {
        let output = try #require(item["outputs"]?.arrayValue?.first)
        try check(output, line)
      } else {
        // Nothing is written for a failure, and the message says more than the code.
        #expect(item["outputs"]?.arrayValue?.isEmpty == true, "\(what)")
        #expect((item["error"]?["message"]?.stringValue?.count ?? 0) > line.name.count + 10, "\(what)")
      }
    }
    #expect(scene.temporaries.isEmpty)
    let seconds = try #require(run["wallSeconds"]?.numberValue?.double)
    let peak = try #require(run["peakBytes"]?.integer)
    if getenv("PIPELINE_TEST_FIGURES") != nil { print("torture: \(seconds) s, \(peak >> 20) MiB") }
    #expect(seconds < 60)
    #expect(peak < 1 << 30)
  }

  /// The mean of each band; written for builds without optimisation, where anything finer takes minutes here.
  private static func means(of image: Image) throws -> [Double] {
    let (bands, count) = (image.bands, image.width * image.height)
    return try image.withPixels { raw in
      (0..<bands).map { band in
        var sum = 0
        var at = band
        while at < raw.count {
          sum &+= Int(raw[at])
          at &+= bands
        }
        return Double(sum) / Double(count)
      }
    }
  }

  private func check(_ output: JSONNode, _ line: Line) throws {
    let size = "\(output["width"]?.integer ?? 0)x\(output["height"]?.integer ?? 0)"
    if !line.size.isEmpty { #expect(size == line.size, "\(line.name)") }
    // "sRGB mean 133,113,104 (raw …)", "sRGB 227,6,19", "…, centre 136,0,255 …"
    guard line.colour.hasPrefix("sRGB ") else { return }
    let path = try #require(output["path"]?.stringValue)
    let bytes = try #require(TemporaryFolder.read(path))
    let image = try EncodedPicture(bytes: EncodedBytes(bytes)).pixels()
    let expected = line.colour.split { !$0.isNumber }.prefix(3).compactMap { Double($0) }
    let means = try Self.means(of: image)
    for (band, wanted) in expected.enumerated() {
      #expect(abs(means[band] - wanted) <= 2, "\(line.name) band \(band): \(means[band]), not \(wanted)")
    }
    if let centre = line.colour.firstRange(of: "centre ") {
      let pixels = try image.bytes()
      let wanted = line.colour[centre.upperBound...].split { !$0.isNumber }.prefix(3).compactMap { Int($0) }
      let at = (image.height / 2 * image.width + image.width / 2) * image.bands
      for band in 0..<3 { #expect(abs(Int(pixels[at + band]) - wanted[band]) <= 4, "\(line.name) centre") }
    }
  }

  @Test("damaged pictures give what is left of them with a warning, where that is asked for")
  func manifestWithWarning() throws {
    let scene = try Scene()
    let lines = try manifest().filter { $0.expect == "PARTIAL" }
    try #require(!lines.isEmpty)
    let (_, items) = try run(lines, onDamage: "warn", in: scene)
    for line in lines {
      let item = try #require(items[line.name])
      let (isDone, isTold) = (isDone(item), warnings(item).contains { $0.contains("damaged or cut short") })
      #expect(isDone, "\(line.name): \(code(item))")
      #expect(isTold, "\(line.name)")
      if !line.size.isEmpty, let output = item["outputs"]?.arrayValue?.first { try check(output, line) }
    }
  }
}
