import Engine
import Glibc
import JobSyntax
import PipelineKit
import TestSupport
import Testing

/// Runs of shards from outside, and their reports joined.
@Suite struct ShardCommandTests {
  private func files(_ scene: Scene) -> [String: [UInt8]] {
    var files: [String: [UInt8]] = [:]
    for name in scene.folder.tree() where name.hasPrefix("out/") && !name.hasSuffix("/") {
      files[name] = scene.folder.read(name)
    }
    return files
  }

  private func removeOutputs(_ scene: Scene) {
    for name in scene.folder.tree() where name.hasPrefix("out/") && !name.hasSuffix("/") { unlink(scene.folder[name]) }
  }

  /// Runs every shard and returns their reports' names.
  private func runShards(_ count: Int, _ scene: Scene, exitCodes: Set<Int32?> = [0]) -> [String] {
    (1...count).map { index in
      let result = scene.run("run", "job.json", "--shard", "\(index)/\(count)", "--report", "shard-\(index).json")
      #expect(exitCodes.contains(result.exitCode), "\(result.error)")
      return "shard-\(index).json"
    }
  }

  @Test func shardsMakeWhatOneRunMakes() throws {
    let scene = try Scene(pictures: 20)
    scene.folder.write("no picture", to: "in/bad.jpg")
    scene.job(to: "out/${item.index}-${item.stem}.${ext}")
    #expect(scene.run("run", "job.json", "--report", "whole.json").exitCode == 1)
    let whole = files(scene)
    #expect(whole.count == 20)
    removeOutputs(scene)
    var reports = runShards(3, scene, exitCodes: [0, 1])
    #expect(files(scene) == whole)
    reports.reverse()

    let merged = RunProgram.run(["report", "merge"] + reports + ["--output", "merged.json"], scene.settings())
    #expect(merged.exitCode == 0, "\(merged.error)")
    #expect(merged.output.isEmpty)
    #expect(merged.error.contains("scene: 3 shards, 20 done, 1 failed of 21 pictures; exit code 1"))
    let report = try scene.report("merged.json")
    try check(report, exitCode: 1, in: scene)
    let single = try scene.report("whole.json")
    func facts(_ report: JSONNode) -> [String] {
      (report["items"]?.arrayValue ?? []).map { item in
        "\(item["index"]?.integer ?? -1) \(item["input"]?.stringValue ?? "") \(item["status"]?.stringValue ?? "") "
          + (item["outputs"].map { JSONText($0.value).rendered() } ?? "")
      }
    }
    #expect(facts(report) == facts(single))
    #expect(report["run"]?["runs"]?.arrayValue?.compactMap { $0["shard"]?["index"]?.integer } == [1, 2, 3])
    #expect(report["run"]?["shards"]?.integer == 3)
    let runs = try (1...3).map { try #require(try scene.report("shard-\($0).json")["run"]) }
    let walls = runs.compactMap { $0["wallSeconds"]?.numberValue?.double }
    #expect(report["run"]?["wallSeconds"]?.numberValue?.double == walls.max())
    let cpu = try #require(report["run"]?["cpuSeconds"]?.numberValue?.double)
    #expect(abs(cpu - runs.compactMap { $0["cpuSeconds"]?.numberValue?.double }.reduce(0, +)) < 0.002)

    // To standard output the same.
    let shown = RunProgram.run(["report", "merge"] + reports, scene.settings())
    #expect(shown.outputBytes == scene.folder.read("merged.json"))
  }

  @Test func planShowsTheShard() throws {
    let scene = try Scene(pictures: 12)
    scene.job()
    let whole = try json(scene.run("plan", "job.json", "--format", "json").outputBytes)
    #expect(whole["shard"]?.isNull == true)
    var items: [Int: String] = [:]
    for index in 1...3 {
      let plan = try json(scene.run("plan", "job.json", "--format", "json", "--shard", "\(index)/3").outputBytes)
      #expect(plan["shard"]?["inputs"]?.integer == 12)
      for item in plan["items"]?.arrayValue ?? [] {
        items[try #require(item["index"]?.integer)] = JSONText(item.value).rendered()
      }
    }
    let expected = (whole["items"]?.arrayValue ?? []).map { JSONText($0.value).rendered() }
    #expect((0..<12).map { items[$0] } == expected)
    #expect(
      scene.run("plan", "job.json", "--shard", "1/3").output.hasSuffix("to do; shard 1 of 3, 12 in all\n"))
  }

  @Test func theEnvironmentTells() throws {
    let scene = try Scene(pictures: 4)
    scene.job()
    let result = scene.run("run", "job.json", "--shard", "auto", "--report", "report.json") {
      $0.environment = ["CI_NODE_INDEX": "2", "CI_NODE_TOTAL": "3", "PATH": "/usr/bin:/bin"]
    }
    #expect(result.exitCode == 0)
    #expect(result.error.contains("of 4, shard 2 of 3"))
    let shard = try scene.report()["run"]?["shard"]
    #expect(shard?["index"]?.integer == 2 && shard?["count"]?.integer == 3)
    let nowhere = scene.run("run", "job.json", "--shard", "auto") { $0.environment = ["PATH": "/usr/bin:/bin"] }
    #expect(nowhere.exitCode == 2)
    #expect(nowhere.error.contains("CI_NODE_INDEX (GitLab)"))
    let wrong = scene.run("run", "job.json", "--shard", "5/4")
    #expect(wrong.exitCode == 2)
    #expect(wrong.error.contains("--shard expects I/N with I from 1 to N, auto, or auto/N, got \"5/4\""))
  }

  /// More shards than pictures: some have nothing to do, and say so in a report.
  @Test func emptyShardsMerge() throws {
    let scene = try Scene(pictures: 2)
    scene.job()
    let merged = RunProgram.run(["report", "merge"] + runShards(5, scene), scene.settings())
    #expect(merged.exitCode == 0, "\(merged.error)")
    #expect(try json(merged.outputBytes)["items"]?.arrayValue?.count == 2)
  }

  @Test func aReportIsNotWrittenOverAnotherShardsPicture() throws {
    let scene = try Scene(pictures: 8)
    scene.job()
    for name in ["in/p00.jpg", "in/p05.jpg"] {
      for index in 1...2 {
        let result = scene.run("run", "job.json", "--shard", "\(index)/2", "--report", name)
        #expect(result.exitCode == 4)
        #expect(result.error.contains("it is one of the inputs"))
      }
    }
  }

  /// Reports that do not make up one job are refused, and nothing is written.
  @Test func whatDoesNotBelongTogetherIsRefused() throws {
    let scene = try Scene(pictures: 9)
    scene.job()
    _ = runShards(3, scene)
    func refuse(_ reports: [String], _ message: String, line: Int = #line) {
      let result = RunProgram.run(["report", "merge"] + reports + ["--output", "merged.json"], scene.settings())
      #expect(result.exitCode == 4, "line \(line)")
      #expect(result.error.contains(message), "line \(line): \(result.error)")
      #expect(scene.folder.read("merged.json") == nil, "line \(line)")
    }
    let all = ["shard-1.json", "shard-2.json", "shard-3.json"]
    refuse(["shard-1.json", "shard-3.json"], "the report of shard 2 of 3 is missing")
    refuse(["shard-2.json"], "the reports of shards 1, 3 of 3 are missing")
    refuse(all + ["shard-1.json"], "shard-1.json and shard-1.json are both of shard 1 of 3")
    refuse(["shard-1.json", "nowhere.json"], "nowhere.json cannot be read")
    refuse(["in", "shard-1.json"], "in is a folder, not a report")
    refuse(["job.json"], "job.json is not a whole report of this program")
    #expect(scene.run("run", "job.json", "--report", "one.json").exitCode == 0)
    refuse(["one.json"], "one.json is not of a shard")
    _ = scene.run("run", "job.json", "--shard", "4/4", "--report", "four.json")
    refuse(["shard-1.json", "four.json"], "shard-1.json is one of 3 shards and four.json one of 4")

    let text = String(decoding: try #require(scene.folder.read("shard-2.json")), as: UTF8.self)
    scene.folder.write(text.replacing(#""job": "scene""#, with: #""job": "other""#), to: "other.json")
    refuse(["shard-1.json", "other.json", "shard-3.json"], "of the job \"scene\" and other.json of \"other\"")
    // Cut off at every place where it hurts.
    for cut in [1, 10, text.utf8.count / 2, text.utf8.count - 4] {
      scene.folder.write(text.utf8.prefix(cut), to: "cut.json")
      refuse(["shard-1.json", "cut.json", "shard-3.json"], "cut.json is not a whole report")
    }
    scene.folder.write(text + "{}", to: "more.json")
    refuse(["shard-1.json", "more.json", "shard-3.json"], "something follows its end")
    // A picture that is gone, with its comma.
    var lines = text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
    let item = try #require(lines.firstIndex { $0.hasPrefix(#"{"index""#) && $0.hasSuffix(",") })
    let removed = lines.remove(at: item)
    scene.folder.write(lines.joined(separator: "\n"), to: "gap.json")
    refuse(["shard-1.json", "gap.json", "shard-3.json"], "of 9 is in none of the reports")
    // One that is there twice.
    lines.insert(removed, at: item)
    lines.insert(removed, at: item)
    scene.folder.write(lines.joined(separator: "\n"), to: "twice.json")
    refuse(["shard-1.json", "twice.json", "shard-3.json"], "belongs")
    // One that another report has too.
    let first = String(decoding: scene.folder.read("shard-1.json") ?? [], as: UTF8.self)
    let foreign = try #require(first.split(separator: "\n").first { $0.hasPrefix(#"{"index""#) })
    lines[item] = foreign.hasSuffix(",") ? String(foreign) : foreign + ","
    scene.folder.write(lines.joined(separator: "\n"), to: "foreign.json")
    refuse(["shard-1.json", "foreign.json", "shard-3.json"], "picture")
    // Counts that its pictures do not bear out.
    scene.folder.write(text.replacing(#""status":"done""#, with: #""status":"failed""#), to: "counts.json")
    refuse(["shard-1.json", "counts.json", "shard-3.json"], "of its pictures are")

    // Numbers that no run has.
    func changed(_ key: String, _ number: String) throws -> String {
      text.replacing(try Regex("\"\(key)\": [0-9]+"), with: "\"\(key)\": \(number)")
    }
    for (key, number, message) in [
      ("done", "9007199254740991", "pictures are done"), ("done", "-1", "pictures are done"),
      ("done", "9223372036854775807", "is not a whole report"),
      ("inputs", "-1", "is not of a shard"), ("inputs", "9007199254740991", "saw different inputs"),
    ] {
      scene.folder.write(try changed(key, number), to: "odd.json")
      refuse(["shard-1.json", "odd.json", "shard-3.json"], message)
    }
    for (key, number) in [("workers", "9007199254740991"), ("crashes", "-1"), ("peakBytes", "1e300")] {
      scene.folder.write(try changed(key, number), to: "odd.json")
      let merged = RunProgram.run(["report", "merge", "shard-1.json", "odd.json", "shard-3.json"], scene.settings())
      #expect(merged.exitCode == 0, "\(key): \(merged.error)")
    }

    // One shard saw a picture more.
    scene.folder.write(try #require(scene.folder.read("in/p00.jpg")), to: "in/new.jpg")
    _ = scene.run("run", "job.json", "--shard", "3/3", "--report", "late.json")
    refuse(["shard-1.json", "shard-2.json", "late.json"], "saw different inputs (9 and 10 pictures)")

    #expect(RunProgram.run(["report", "merge"] + all + ["--output", "merged.json"], scene.settings()).exitCode == 0)
    #expect(scene.report("merged.json", "shards") == 3)
    let again = RunProgram.run(["report", "merge", "merged.json"], scene.settings())
    #expect(again.exitCode == 4)
    #expect(again.error.contains("it was merged from 3 already"))
    let same = RunProgram.run(["report", "merge"] + all + ["--output", "./shard-1.json"], scene.settings())
    #expect(same.exitCode == 2)
    #expect(RunProgram.run(["report", "join"], scene.settings()).exitCode == 2)
    #expect(RunProgram.run(["report", "merge"], scene.settings()).exitCode == 2)
    #expect(scene.temporaries.isEmpty)
  }

  /// A report that a tool has laid out anew is still one.
  @Test func layoutDoesNotMatter() throws {
    let scene = try Scene(pictures: 4)
    scene.job()
    let reports = runShards(2, scene)
    let report = try scene.report(reports[0])
    scene.folder.write(JSONText(report.value).rendered(pretty: true), to: "pretty.json")
    let plain = RunProgram.run(["report", "merge"] + reports, scene.settings())
    let pretty = RunProgram.run(["report", "merge", "pretty.json", reports[1]], scene.settings())
    #expect(plain.exitCode == 0)
    #expect(pretty.outputBytes == plain.outputBytes, "\(pretty.error)")
  }

  /// The report of a shard that was interrupted is complete, and what it says decides.
  @Test func interruptedShardsMergeAndItIsSaid() throws {
    let scene = try Scene(pictures: 12, side: 240)
    scene.job(encode: Scene.slowEncode, run: #"{ "graceTime": 0 }"#)
    _ = scene.run("run", "job.json", "--shard", "1/2", "--report", "shard-1.json")
    let other = scene.start(
      "run", "job.json", "--shard", "2/2", "--jobs", "1", "--report", "shard-2.json", "--verbose")
    #expect(other.waitForError(".jpg: done"))
    other.send(SIGTERM)
    #expect(other.finish().exitCode == 143)
    let merged = RunProgram.run(["report", "merge", "shard-1.json", "shard-2.json"], scene.settings())
    #expect(merged.exitCode == 0, "\(merged.error)")
    #expect(merged.error.contains("shard 2 of 2 was interrupted by SIGTERM"))
    let run = try json(merged.outputBytes)["run"]
    #expect(run?["exitCode"]?.integer == 143)
    #expect(run?["stop"]?.stringValue == "signal 15")
    #expect((run?["counts"]?["notAttempted"]?.integer ?? 0) > 0)
  }
}

extension Scene {
  /// A number that a report's run holds.
  fileprivate func report(_ name: String, _ key: String) -> Int? {
    (try? report(name))?["run"]?[key]?.integer
  }
}
