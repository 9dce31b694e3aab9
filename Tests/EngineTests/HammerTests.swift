import Imaging
import JobSyntax
import PipelineKit
import Stages
import TestSupport
import Testing

@testable import Engine

/// Real files through libvips, many at once.
@Suite struct HammerTests {
  private let folder = TemporaryFolder()

  private func picture(_ width: Int, _ height: Int) throws -> Image {
    var random = SeededGenerator(state: 3)
    return try Image(
      width: width, height: height, bands: 3,
      bytes: (0..<width * height * 3).map { _ in UInt8.random(in: 0...255, using: &random) })
  }

  private func run(_ stages: String, workers: Int) throws -> (RunOutcome, [ItemRecord], JSONNode) {
    let text = #"{ "version": 1, "input": { "files": ["in/*"] }, "stages": [\#(stages)] }"#
    let loaded = JobLoader(registry: LintTests.registry()).load(
      Array(text.utf8), name: "job.json", folder: PathBytes(folder.path))
    let job = try #require(loaded.job, "\(loaded.diagnostics)")
    var options = RunOptions()
    options.jobs = workers
    options.keepsReport = true
    let run = JobRun(job: job, options: options)
    let observer = RecordingObserver()
    let outcome = try run.execute(try run.plan(), observer: observer)
    try run.writeReport(to: PathBytes(folder["report.json"]), outcome: outcome)
    let (root, findings) = StrictJSON.parse(SourceFile(name: "report", text: folder.read("report.json") ?? []))
    #expect(findings.isEmpty)
    return (outcome, observer.records, try #require(root))
  }

  /// 200 damaged and 200 good files on eight workers: every message names its own file and its own damage, no good
  /// file is blamed, and nothing is left of a failed one.
  @Test func twoHundredBadAndTwoHundredGood() throws {
    let jpeg = try picture(64, 48).encoded(.jpeg(.init(quality: 90)), metadata: .none).array
    let png = try picture(64, 48).encoded(.png(.init()), metadata: .none).array
    var kinds: [String: String] = [:]
    for index in 0..<400 {
      let name = "in/f\(1000 + index)"
      switch index % 8 {
      case 0:
        folder.write(jpeg.prefix(jpeg.count / 2), to: name + ".jpg")
        kinds[name + ".jpg"] = "JPEG"
      case 2:
        folder.write(png.prefix(png.count / 2), to: name + ".png")
        kinds[name + ".png"] = "PNG"
      case 4:
        folder.write("%!PS-Adobe-3.0\nshowpage\n", to: name + ".jpg")
        kinds[name + ".jpg"] = "PostScript"
      case 6:
        folder.write("", to: name + ".jpg")
        kinds[name + ".jpg"] = "empty"
      default: folder.write(index % 3 == 0 ? png : jpeg, to: name + (index % 3 == 0 ? ".png" : ".jpg"))
      }
    }
    let (outcome, records, report) = try run(
      """
      { "stage": "decode" }, { "stage": "resize", "width": 32 }, { "stage": "encode", "format": "webp" },
      { "stage": "write", "to": "out/${item.stem}.${ext}" }
      """, workers: 8)
    #expect(outcome.counts[.failed] == 200)
    #expect(outcome.counts[.done] == 200)
    #expect(outcome.exitCode == 1)
    let items = try #require(report["items"]?.arrayValue)
    #expect(items.count == 400)
    for (record, item) in zip(records, items) {
      #expect(item["input"]?.stringValue == record.input)
      guard let kind = kinds[record.input] else {
        #expect(record.status == .done && record.error == nil)
        continue
      }
      let message = item["error"]?["message"]?.stringValue ?? ""
      #expect(message.hasPrefix(record.input + ": "), "\(message)")
      #expect(message.contains(kind), "\(message)")
      // What libvips said about files of another kind must not stand beside this one's message.
      let cause = record.error?.cause ?? ""
      for other in ["JPEG", "PNG"] where other != kind {
        #expect(!cause.uppercased().contains(other), "\(record.input): \(cause)")
      }
    }
    #expect(folder.tree().filter { $0.hasPrefix("out/f") }.count == 200)
    #expect(!folder.tree().contains { $0.contains(".pipeline-") })
  }

  /// A chain with one worker gives the same bytes as one with four.
  @Test func workersDoNotChangeResults() throws {
    for index in 0..<24 {
      folder.write(
        try picture(90 + index, 70).encoded(.jpeg(.init(quality: 95)), metadata: .none).array,
        to: "in/\(10 + index).jpg")
    }
    let chain = """
      { "stage": "decode" }, { "stage": "resize", "width": 50, "height": 40, "fit": "cover", "position": "attention" },
      { "stage": "encode", "format": "png" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }
      """
    let one = try run(chain, workers: 1).1.map { $0.outputs.map(\.sha256) }
    let four = try run(chain, workers: 4).1.map { $0.outputs.map(\.sha256) }
    #expect(one == four)
    #expect(Set(one.flatMap { $0 }).count == 24)
  }

  /// The memory budget holds items back, and every one of them still ends.
  @Test func aTightMemoryBudgetOnlySlowsTheRun() throws {
    for index in 0..<12 {
      folder.write(try picture(400, 300).encoded(.png(.init()), metadata: .none).array, to: "in/\(10 + index).png")
    }
    let text = """
      { "version": 1, "input": { "files": ["in/*"] }, "limits": { "memory": 16777216 },
        "stages": [ { "stage": "decode" }, { "stage": "encode", "format": "avif", "effort": 0 },
          { "stage": "write", "to": "out/${item.stem}.${ext}" } ] }
      """
    let job = try #require(
      JobLoader(registry: LintTests.registry()).load(Array(text.utf8), name: "j", folder: PathBytes(folder.path)).job)
    var options = RunOptions()
    options.jobs = 4
    let run = JobRun(job: job, options: options)
    let outcome = try run.execute(try run.plan(), observer: RecordingObserver())
    #expect(outcome.counts[.done] == 12)
  }
}
