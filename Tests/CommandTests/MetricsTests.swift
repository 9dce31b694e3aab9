import Glibc
import JobSyntax
import TestSupport
import Testing

/// The metrics file, read by a strict parser of Prometheus' text format.
@Suite struct MetricsTests {
  struct Metrics {
    /// By name and labels as they are written.
    var values: [String: Double] = [:]
    var types: [String: String] = [:]

    /// Accepts what the exposition format allows and nothing else.
    init(_ text: String) throws {
      #expect(text.hasSuffix("\n"))
      var current: String?
      var ended: Set<String> = []
      let name = /[a-zA-Z_:][a-zA-Z0-9_:]*/
      for line in text.split(separator: "\n", omittingEmptySubsequences: false).dropLast() {
        if let match = line.wholeMatch(of: /# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)/) {
          let family = String(match.2)
          if current != family {
            #expect(!ended.contains(family), "\(family) is not in one place")
            if let current { ended.insert(current) }
            current = family
          }
          if match.1 == "TYPE" {
            #expect(types.updateValue(String(match.3), forKey: family) == nil)
          }
          continue
        }
        let head = try #require(line.prefixMatch(of: name), "\(line)")
        #expect(String(head.0) == current, "\(line)")
        var rest = line[head.range.upperBound...]
        let labels = try #require(
          rest.prefixMatch(of: /\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"(?:,(?!\})|(?=\})))*\}/), "\(line)")
        rest = rest[labels.range.upperBound...]
        #expect(rest.first == " ")
        let value = try #require(Double(rest.dropFirst()), "\(line)")
        #expect(values.updateValue(value, forKey: String(head.0 + labels.0)) == nil, "\(line)")
      }
    }

    func callAsFunction(_ name: String, _ labels: String = #"job="scene""#) -> Double? { values["\(name){\(labels)}"] }
  }

  private func metrics(_ scene: Scene, _ name: String = "run.prom") throws -> Metrics {
    try Metrics(String(decoding: try #require(scene.folder.read(name)), as: UTF8.self))
  }

  @Test func theNumbersAreTheReports() throws {
    let scene = try Scene(pictures: 3)
    scene.job()
    let old = umask(0o077)
    defer { umask(old) }
    let result = scene.run("run", "job.json", "--metrics", "run.prom", "--report", "report.json")
    #expect(result.exitCode == 0, "\(result.error)")
    var status = stat()
    #expect(stat(scene.folder["run.prom"], &status) == 0)
    #expect(status.st_mode & 0o7777 == 0o644)
    let found = try metrics(scene)
    let report = try scene.report()
    #expect(Set(found.types.values) == ["gauge"])
    for member in report["run"]?["counts"]?.objectValue ?? [] {
      let value = found("pipeline_run_items", "job=\"scene\",status=\"\(member.key)\"")
      #expect(value == member.value.integer.map(Double.init), "\(member.key)")
    }
    let items = report["items"]?.arrayValue ?? []
    let output = items.flatMap { $0["outputs"]?.arrayValue ?? [] }.compactMap { $0["bytes"]?.integer }.reduce(0, +)
    #expect(found("pipeline_run_output_bytes") == Double(output))
    #expect(found("pipeline_run_input_bytes") == Double(3 * (scene.folder.read("in/p00.jpg") ?? []).count))
    #expect(found("pipeline_run_exit_code") == 0)
    #expect(found("pipeline_run_credits") == 0)
    #expect(found("pipeline_run_crashes") == 0)
    #expect(found("pipeline_run_duration_seconds") == report["run"]?["wallSeconds"]?.numberValue?.double)
    #expect(found("pipeline_run_peak_memory_bytes") == report["run"]?["peakBytes"]?.numberValue?.double)
    for stage in ["decode", "encode", "write"] {
      let sum = items.flatMap { $0["stages"]?.arrayValue ?? [] }.filter { $0["name"]?.stringValue == stage }
        .compactMap { $0["milliseconds"]?.numberValue?.double }.reduce(0, +)
      let value = try #require(found("pipeline_run_stage_seconds", "job=\"scene\",stage=\"\(stage)\""))
      #expect(abs(value - sum / 1000) < 0.001)
    }
    let end = try #require(found("pipeline_run_end_timestamp_seconds"))
    #expect(found("pipeline_run_last_success_timestamp_seconds") == end)
    #expect(abs(end - Double(time(nil))) < 60)
    #expect(scene.temporaries.isEmpty)
  }

  @Test func theLastSuccessIsCarriedOver() throws {
    let scene = try Scene(pictures: 1)
    scene.job()
    #expect(scene.run("run", "job.json", "--metrics", "run.prom").exitCode == 0)
    let success = try #require(try metrics(scene)("pipeline_run_last_success_timestamp_seconds"))
    scene.folder.write("no picture", to: "in/bad.jpg")
    #expect(scene.run("run", "job.json", "--metrics", "run.prom").exitCode == 1)
    var found = try metrics(scene)
    #expect(found("pipeline_run_exit_code") == 1)
    #expect(found("pipeline_run_last_success_timestamp_seconds") == success)
    #expect(found("pipeline_run_items", #"job="scene",status="failed""#) == 1)

    // A job that has become wrong must not leave the numbers of the day before.
    scene.job(encode: #"{ "stage": "enocde" }"#)
    #expect(scene.run("run", "job.json", "--metrics", "run.prom").exitCode == 3)
    found = try metrics(scene)
    #expect(found("pipeline_run_exit_code") == 3)
    #expect(found("pipeline_run_last_success_timestamp_seconds") == success)
    #expect(found("pipeline_run_items", #"job="scene",status="failed""#) == nil)
    #expect(scene.run("run", "job.json", "--metrics", "fresh.prom").exitCode == 3)
    #expect(try metrics(scene, "fresh.prom")("pipeline_run_last_success_timestamp_seconds") == 0)
  }

  @Test func namesAreEscaped() throws {
    let scene = try Scene(pictures: 1)
    scene.job()
    let text = String(decoding: try #require(scene.folder.read("job.json")), as: UTF8.self)
    scene.folder.write(text.replacing(#""scene""#, with: #""a\"b\\c\nd""#), to: "job.json")
    let result = scene.run("run", "job.json", "--metrics", "run.prom", "--shard", "1/1")
    #expect(result.exitCode == 0, "\(result.error)")
    let found = try metrics(scene)
    #expect(found("pipeline_run_exit_code", #"job="a\"b\\c\nd",shard="1/1""#) == 0)
  }

  private static let promtool = access("/usr/bin/promtool", X_OK) == 0

  @Test(.enabled(if: promtool, "needs promtool, of Debian's package prometheus"))
  func promtoolAccepts() throws {
    let scene = try Scene(pictures: 1)
    scene.job()
    #expect(scene.run("run", "job.json", "--metrics", "run.prom").exitCode == 0)
    var settings = RunProgram.Settings()
    settings.input = scene.folder.read("run.prom") ?? []
    let result = RunProgram.run(["check", "metrics"], settings, program: "/usr/bin/promtool")
    #expect(result.exitCode == 0, "\(result.output)\(result.error)")
    #expect(result.output + result.error == "")
  }
}
