import Glibc
import Imaging
import JobSyntax
import TestSupport
import Testing

private let torture: String? = {
  let root = getenv("PIPELINE_TEST_DATA").map { String(cString: $0) } ?? "../shared/data"
  let folder = root + "/torture"
  return access(folder + "/MANIFEST.tsv", R_OK) == 0 ? folder : nil
}()

private let limiter: String? = ["/usr/bin/prlimit", "/bin/prlimit"].first { access($0, X_OK) == 0 }

/// Real files with bits flipped, ends cut and heads exchanged, under a hard limit of memory.
@Suite(
  .enabled(if: torture != nil, "the torture collection is not here (PIPELINE_TEST_DATA)"),
  .enabled(if: limiter != nil, "prlimit is not installed (util-linux)"))
struct MutationTests {
  /// All of them in `make soak`, a tenth otherwise.
  static let count = getenv("PIPELINE_SOAK") == nil ? 200 : 2_000
  static let seed: UInt64 = getenv("PIPELINE_SEED").flatMap { UInt64(String(cString: $0)) } ?? 20_260_501

  /// Seconds after which a file counts as one that hangs.
  static let deadline = 20

  @Test("no crash, no hang, no part of a file", arguments: ["fail", "accept"])
  func mutations(_ onDamage: String) throws {
    let scene = try Scene()
    let folder = try #require(torture)
    var random = SeededGenerator(state: Self.seed &+ (onDamage == "fail" ? 0 : 1))
    let sources = try Self.sources(folder)
    try #require(sources.count > 40)
    let count = Self.count / 2
    for index in 0..<count {
      scene.folder.write(Self.mutated(sources, &random), to: "in/\(index)")
    }
    scene.folder.write(
      """
      {
        "version": 1,
        "input": { "directory": "in", "all": true },
        "stages": [
          { "stage": "decode", "onDamage": "\(onDamage)" },
          { "stage": "resize", "width": 320, "height": 320 },
          { "stage": "encode", "format": "png" },
          { "stage": "write", "to": "out/${item.name}.${ext}" }
        ],
        "limits": { "maxPixels": 60000000 },
        "run": { "itemDeadline": \(Self.deadline) }
      }
      """, to: "job.json")
    let settings = scene.settings()
    let result = RunProgram.run(
      [
        "--as=\(2 << 30)", RunProgram.builtProgram, "run", "job.json", "--jobs", "2", "--report", "report.json",
        "--quiet",
      ],
      settings, program: limiter, limit: 1_200)
    #expect(!result.timedOut)
    #expect(result.signal == nil, "\(result.error.suffix(2_000))")
    #expect([0, 1].contains(result.exitCode ?? -1), "\(result.error.suffix(2_000))")
    let report = try scene.report()
    let items = try #require(report["items"]?.arrayValue)
    #expect(items.count == count)
    var codes: [String: Int] = [:]
    for item in items {
      let code = item["error"]?["code"]?.stringValue ?? item["status"]?.stringValue ?? ""
      codes[code, default: 0] += 1
      let input = item["input"]?.stringValue ?? ""
      #expect(
        ["done", "damaged", "unsupported", "limit", "empty", "memory"].contains(code),
        "seed \(Self.seed), \(input): \(code) \(item["error"]?["message"]?.stringValue ?? "")")
    }
    if getenv("PIPELINE_TEST_FIGURES") != nil {
      print(
        "mutations (\(onDamage)): \(codes.sorted { $0.key < $1.key }), \(report["run"]?["wallSeconds"]?.numberValue?.double ?? 0) s,",
        "\((report["run"]?["peakBytes"]?.integer ?? 0) >> 20) MiB")
    }
    // What was written is whole, and nothing else was.
    try check(report, exitCode: result.exitCode, in: scene)
    for name in scene.folder.tree() where name.hasPrefix("out/") && !name.hasSuffix("/") {
      let bytes = try #require(scene.folder.read(name))
      _ = try EncodedPicture(bytes: EncodedBytes(bytes)).pixels()
    }
    #expect(scene.temporaries.isEmpty)
  }

  private static func sources(_ folder: String) throws -> [[UInt8]] {
    let manifest = try #require(TemporaryFolder.read(folder + "/MANIFEST.tsv"))
    return String(decoding: manifest, as: UTF8.self).split(separator: "\n").dropFirst().compactMap { row in
      let name = String(row.split(separator: "\t")[0])
      // Mutations of the largest would only take longer.
      guard let bytes = TemporaryFolder.read(folder + "/" + name), bytes.count < 600_000 else { return nil }
      return bytes
    }
  }

  private static func mutated(_ sources: [[UInt8]], _ random: inout SeededGenerator) -> [UInt8] {
    func pick() -> [UInt8] { sources[Int.random(in: 0..<sources.count, using: &random)] }
    var bytes = pick()
    switch Int.random(in: 0..<6, using: &random) {
    case 0:
      // A few bits, anywhere.
      for _ in 0..<Int.random(in: 1...16, using: &random) { flip(&bytes, 0..<bytes.count, &random) }
    case 1:
      // Bits of the header, where sides, counts and offsets stand.
      for _ in 0..<Int.random(in: 1...8, using: &random) { flip(&bytes, 0..<min(bytes.count, 200), &random) }
    case 2: bytes.removeLast(Int.random(in: 0..<bytes.count, using: &random))
    case 3:
      // The head of one on the body of another.
      let other = pick()
      let at = Int.random(in: 1...max(1, min(bytes.count, other.count, 400)), using: &random)
      bytes = Array(bytes.prefix(at)) + other.dropFirst(at)
    case 4:
      // A piece overwritten by zeros or ones.
      let start = Int.random(in: 0..<bytes.count, using: &random)
      let length = min(bytes.count - start, Int.random(in: 1...256, using: &random))
      let value: UInt8 = Bool.random(using: &random) ? 0 : 255
      bytes.replaceSubrange(start..<start + length, with: repeatElement(value, count: length))
    default:
      // A piece twice, or missing.
      let start = Int.random(in: 0..<bytes.count, using: &random)
      let end = min(bytes.count, start + Int.random(in: 1...2_000, using: &random))
      if Bool.random(using: &random) {
        bytes.insert(contentsOf: bytes[start..<end], at: end)
      } else {
        bytes.removeSubrange(start..<end)
      }
    }
    return bytes
  }

  private static func flip(_ bytes: inout [UInt8], _ range: Range<Int>, _ random: inout SeededGenerator) {
    guard !range.isEmpty else { return }
    bytes[Int.random(in: range, using: &random)] ^= 1 << UInt8.random(in: 0...7, using: &random)
  }
}
