import Glibc
import Imaging
import JobSyntax
import TestSupport
import Testing

/// A folder with pictures and a job, and the program run on it from outside.
struct Scene {
  let folder = TemporaryFolder()
  /// Whether a run knows of those before it. Most tests are about one run, and start each as if it were the first.
  let remembers: Bool

  /// Pictures of `side` pixels with noise in them, `in/p00.jpg` and so on.
  init(pictures: Int = 0, side: Int = 64, remembers: Bool = false) throws {
    self.remembers = remembers
    guard pictures > 0 else { return }
    var random = SeededGenerator(state: 7)
    let bytes = (0..<side * side * 3).map { _ in UInt8.random(in: 0...255, using: &random) }
    let picture = try Image(width: side, height: side, bands: 3, bytes: bytes).encoded(.jpeg(.init(quality: 90))).array
    for index in 0..<pictures { folder.write(picture, to: "in/p\(index / 10)\(index % 10).jpg") }
  }

  /// A job that turns `in/*` into `out/`.
  @discardableResult
  func job(
    encode: String = #"{ "stage": "encode", "format": "png" }"#, run: String = "{}",
    to: String = "out/${item.stem}.${ext}",
    vars: String = "{}", write: String = "", input: String = #"{ "files": ["in/*"] }"#
  ) -> String {
    folder.write(
      """
      {
        "version": 1, "name": "scene",
        "vars": \(vars),
        "input": \(input),
        "stages": [
          { "stage": "decode" },
          \(encode),
          { "stage": "write", "to": "\(to)"\(write) }
        ],
        "run": \(run)
      }
      """, to: "job.json")
  }

  /// An encoder that takes a second or so for a picture of 1,200 pixels, in C.
  static let slowEncode = #"{ "stage": "encode", "format": "avif", "effort": 6 }"#

  func settings(_ change: (inout RunProgram.Settings) -> Void = { _ in }) -> RunProgram.Settings {
    var settings = RunProgram.Settings()
    settings.folder = folder.path
    change(&settings)
    return settings
  }

  func run(_ arguments: String..., change: (inout RunProgram.Settings) -> Void = { _ in }) -> ProgramResult {
    forgetUnlessRemembering(arguments)
    return RunProgram.run(arguments, settings(change))
  }

  func start(_ arguments: String..., change: (inout RunProgram.Settings) -> Void = { _ in }) -> RunProgram {
    forgetUnlessRemembering(arguments)
    return RunProgram(arguments, settings(change))
  }

  private func forgetUnlessRemembering(_ arguments: [String]) {
    if !remembers, arguments.first == "run" { folder.remove(".pipeline") }
  }

  func report(_ name: String = "report.json") throws -> JSONNode { try json(folder.read(name) ?? []) }

  /// Leftovers of files that were not finished.
  var temporaries: [String] { folder.tree().filter { $0.contains(".pipeline-") || $0.hasSuffix(".tmp") } }
}

func json(_ bytes: [UInt8]) throws -> JSONNode {
  let (root, findings) = StrictJSON.parse(SourceFile(name: "json", text: bytes))
  #expect(findings.isEmpty, "\(String(decoding: bytes, as: UTF8.self))")
  return try #require(root)
}

func json(_ text: some StringProtocol) throws -> JSONNode { try json(Array(text.utf8)) }

extension JSONNode {
  var integer: Int? { if case .number(let number) = value { number.integer } else { nil } }
  var isNull: Bool { if case .null = value { true } else { false } }
}

/// Holds a report against the exit code, against itself and against the files on the disk.
func check(_ report: JSONNode, exitCode: Int32?, in scene: Scene) throws {
  let run = try #require(report["run"])
  let items = try #require(report["items"]?.arrayValue)
  #expect(run["exitCode"]?.integer == exitCode.map(Int.init))
  for member in try #require(run["counts"]?.objectValue) {
    let count = items.count { $0["status"]?.stringValue == member.key }
    #expect(member.value.integer == count, "\(member.key)")
  }
  var written: Set<String> = []
  for item in items {
    let outputs = try #require(item["outputs"]?.arrayValue)
    #expect((item["status"]?.stringValue == "failed") == (item["error"] != nil))
    for output in outputs {
      let path = try #require(output["path"]?.stringValue)
      written.insert(path)
      let bytes = try #require(TemporaryFolder.read(path))
      #expect(bytes.count == output["bytes"]?.integer)
      #expect(EncodedBytes(bytes).sha256 == output["sha256"]?.stringValue)
    }
  }
  let onDisk = scene.folder.tree().filter { $0.hasPrefix("out/") && !$0.hasSuffix("/") }.map { scene.folder[$0] }
  #expect(written == Set(onDisk))
}
