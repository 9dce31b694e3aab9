import Glibc
import Imaging
import JobSyntax
import PipelineKit
import Stages
import TestSupport
import Testing

@testable import Engine

/// Whole runs whose output names only the run knows.
@Suite struct ProtectedInputsTests {
  private let folder = TemporaryFolder()

  /// Changes the input's file while the picture is on its way.
  private struct Swap: Stage {
    static let spec = StageSpec(name: "test.swap", summary: "Cuts the input's file short.", fields: [], examples: [])
    static func plan(_ settings: Settings) -> StagePlan { StagePlan(accepts: .picture, produces: .picture) }
    init(_ settings: Settings, resources: StageResources) throws(StageError) {}
    func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
      let image = try StageError.imaging { () throws(ImagingError) in try item.image() }
      #expect(item.identity.path.withCString { truncate($0, 7) } == 0)
      return .next(item.with(image: image))
    }
  }

  private func run(input: String, to: String, more: String = "", stage: String = "") throws -> [ItemRecord] {
    var registry = LintTests.registry()
    try registry.register(Swap.self)
    let text = """
      { "version": 1, "input": \(input),
        "stages": [ { "stage": "decode" }, \(stage) { "stage": "encode", "format": "png" },
          { "stage": "write", "to": "\(to)"\(more) } ] }
      """
    let loaded = JobLoader(registry: registry).load(
      Array(text.utf8), name: "job.json", folder: PathBytes(folder.path))
    let run = JobRun(job: try #require(loaded.job, "\(loaded.diagnostics)"), options: RunOptions())
    let plan = try run.plan()
    #expect(plan.findings.isEmpty)
    let observer = RecordingObserver()
    _ = try run.execute(plan, observer: observer)
    return observer.records
  }

  @discardableResult
  private func picture(_ width: Int, _ name: String) throws -> [UInt8] {
    let bytes = try Image(width: width, height: 1, bands: 3, bytes: Array(repeating: 9, count: width * 3))
      .encoded(.png(.init())).array
    folder.write(bytes, to: name)
    return bytes
  }

  /// `a.png` is 5 pixels wide, so its output is called like the other input.
  @Test func aNameMadeFromTheSizeIsAnotherInput() throws {
    try picture(5, "in/a.png")
    let other = try picture(7, "in/5.png")
    let records = try run(
      input: #"{ "files": ["in/a.png", "in/5.png"] }"#, to: "in/${image.width}.png")
    #expect(records.map(\.status) == [.done, .failed])
    let failed = try #require(records.first { $0.status == .failed })
    #expect(failed.input == "in/a.png")
    #expect(failed.error?.code == "output-overwrites-input")
    #expect(failed.failedStage == "write")
    #expect(folder.read("in/5.png") == other)
    #expect(folder.read("in/7.png") != nil)
  }

  @Test func aNameMadeFromTheSizeIsTheFileBehindAListedLink() throws {
    let kept = try picture(5, "store/5.png")
    folder.makeFolder("in")
    #expect(symlink("../store/5.png", folder["in/link.png"]) == 0)
    folder.write("in/link.png\n", to: "list.txt")
    let records = try run(input: #"{ "list": "list.txt" }"#, to: "store/${image.width}.png")
    #expect(records.map { $0.error?.code } == ["output-overwrites-input"])
    #expect(folder.read("store/5.png") == kept)
  }

  @Test func inPlaceFreesThem() throws {
    let old = try picture(5, "in/5.png")
    let records = try run(
      input: #"{ "files": ["in/5.png"] }"#, to: "in/${image.width}.png", more: #", "inPlace": true"#,
      stage: #"{ "stage": "resize", "width": 5, "height": 3, "fit": "fill", "enlarge": true },"#)
    #expect(records.map(\.status) == [.done])
    #expect(folder.read("in/5.png") != old)
  }

  /// The name tells what the picture was made from, though the file is another by the time it is written.
  @Test func theHashIsOfTheBytesThatWereRead() throws {
    let hash = EncodedBytes(try picture(5, "in/a.png")).sha256
    let records = try run(
      input: #"{ "files": ["in/a.png"] }"#, to: "out/${item.hash}.png", stage: #"{ "stage": "test.swap" },"#)
    #expect(records.map(\.status) == [.done])
    #expect(folder.read("in/a.png")?.count == 7)
    #expect(folder.tree().filter { $0.hasPrefix("out/") } == ["out/", "out/\(hash).png"])
  }

  /// What the help of `overwrite` says about names that only the run knows.
  @Test func skippingWhatOnlyTheRunCanName() throws {
    try picture(5, "in/a.png")
    folder.write("old", to: "out/5.png")
    let records = try run(
      input: #"{ "files": ["in/a.png"] }"#, to: "out/${image.width}.png", more: #", "overwrite": "skip""#)
    #expect(records.map(\.status) == [.done])
    #expect(records.first?.warnings.map(\.code) == ["output-kept"])
    #expect(folder.read("out/5.png") == Array("old".utf8))
  }
}
