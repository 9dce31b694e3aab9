import Glibc
import JobSyntax
import TestSupport
import Testing

@Suite struct RunTests {
  @Test func tenPicturesAndTheirReport() throws {
    let scene = try Scene(pictures: 10)
    scene.job()
    let result = scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(result.output.isEmpty)
    #expect(result.error.contains("scene: 10 done of 10 in "))
    let report = try scene.report()
    try check(report, exitCode: 0, in: scene)
    #expect(report["items"]?.arrayValue?.count == 10)
    #expect(report["run"]?["versions"]?["pipeline"]?.stringValue == "0.1.0")
    #expect(scene.temporaries.isEmpty)
  }

  @Test func failuresAreListedLastAndTheRestIsDone() throws {
    let scene = try Scene(pictures: 4)
    for index in 0..<12 { scene.folder.write("no picture", to: "in/bad\(index).jpg") }
    scene.folder.write("odd name", to: "in/\u{1B}[31mred\n.jpg")
    scene.job()
    let result = scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == 1)
    try check(try scene.report(), exitCode: 1, in: scene)
    let lines = result.errorLines
    let head = try #require(lines.firstIndex { $0.hasPrefix("failed:") })
    let totals = try #require(lines.firstIndex { $0.hasPrefix("scene: 4 done, 13 failed of 17") })
    #expect(totals < head)
    #expect(lines[head].contains("unsupported in stage \"decode\", 13 pictures"))
    #expect(lines.count { $0.hasPrefix("  in/") } == 10)
    #expect(lines.contains("  and 3 more; see report.json"))
    #expect(lines[head...].allSatisfy { $0.hasPrefix("failed:") || $0.hasPrefix("  ") })
    // No name can move the cursor or forge a line.
    #expect(!result.errorBytes.contains(0x1B))
  }

  @Test func quietIsSilentOnSuccessAndNotOnFailure() throws {
    let scene = try Scene(pictures: 2)
    scene.job()
    let fine = scene.run("run", "job.json", "--quiet")
    #expect(fine.exitCode == 0)
    #expect(fine.error.isEmpty)
    scene.folder.write("no picture", to: "in/bad.jpg")
    let failed = scene.run("run", "job.json", "--quiet")
    #expect(failed.exitCode == 1)
    #expect(failed.error.contains("in/bad.jpg"))
  }

  @Test func verboseHasALineForEachPictureWithItsTimes() throws {
    let scene = try Scene(pictures: 2)
    scene.job()
    let result = scene.run("run", "job.json", "--verbose")
    for name in ["p00", "p01"] {
      let line = try #require(result.errorLines.first { $0.hasPrefix("in/\(name).jpg: done") })
      for part in ["decode ", "encode ", "write ", " ms", "out/\(name).png"] { #expect(line.contains(part)) }
    }
  }

  @Test func jsonLogsAreOneObjectALine() throws {
    let scene = try Scene(pictures: 3)
    scene.folder.write("no picture", to: "in/bad.jpg")
    scene.job()
    let result = scene.run("run", "job.json", "--log-format", "json", "--verbose")
    let events = try result.errorLines.map { try json($0) }
    for event in events {
      #expect(event["time"]?.stringValue?.hasSuffix("Z") == true)
      #expect(event["level"] != nil)
    }
    let names = events.compactMap { $0["event"]?.stringValue }
    #expect(names.first == "start")
    #expect(names.last == "summary")
    #expect(names.count { $0 == "item" } == 4)
    #expect(events.last?["exitCode"]?.integer == 1)
    #expect(events.last?["counts"]?["failed"]?.integer == 1)
    // Without --verbose only what failed has a line of its own.
    let short = scene.run("run", "job.json", "--log-format", "json")
    let items = try short.errorLines.map { try json($0) }.filter { $0["event"]?.stringValue == "item" }
    #expect(items.map { $0["status"]?.stringValue } == ["failed"])
    // What keeps a run from starting is an event too.
    scene.folder.write("{}", to: "wrong.json")
    let wrong = scene.run("run", "wrong.json", "--log-format", "json")
    #expect(wrong.exitCode == 3)
    for line in wrong.errorLines { #expect(try json(line)["event"]?.stringValue == "diagnostic") }
  }

  @Test func onErrorStopAndFailFastStop() throws {
    let scene = try Scene(pictures: 40)
    scene.folder.write("no picture", to: "in/a.jpg")
    scene.job(run: #"{ "onError": "stop" }"#)
    let stopped = scene.run("run", "job.json", "--report", "report.json")
    #expect(stopped.exitCode == 1)
    try check(try scene.report(), exitCode: 1, in: scene)
    #expect(try scene.report()["run"]?["counts"]?["notAttempted"]?.integer ?? 0 > 0)
    scene.job()
    #expect(scene.run("run", "job.json", "--fail-fast").error.contains("stopped after the first failure"))
  }

  @Test func theDeadlineIsExit5() throws {
    let scene = try Scene(pictures: 12, side: 1200)
    scene.job(encode: Scene.slowEncode, run: #"{ "deadline": 0.3, "graceTime": 0.1 }"#)
    let result = scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == 5)
    #expect(result.error.contains("deadline"))
    try check(try scene.report(), exitCode: 5, in: scene)
    #expect(scene.temporaries.isEmpty)
  }

  @Test func nothingToDoIsExit0WithAReport() throws {
    let scene = try Scene()
    scene.job(input: #"{ "files": ["in/*"], "allowEmpty": true }"#)
    let result = scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(result.error.contains("nothing to do"))
    try check(try scene.report(), exitCode: 0, in: scene)
  }

  @Test func aReportThatCannotBeWrittenIsExit4BeforeAnyWork() throws {
    let scene = try Scene(pictures: 1)
    scene.job()
    scene.folder.makeFolder("folder")
    for place in [
      "nowhere/report.json", "folder", "folder/", "/dev/null", "/proc/report.json", "job.json", "in/p00.jpg",
    ] {
      let result = scene.run("run", "job.json", "--report", place)
      #expect(result.exitCode == 4, "\(place)")
      #expect(result.error.contains("the report \(place) cannot be written"))
      #expect(!scene.folder.tree().contains("out/"))
    }
    #expect(scene.run("lint", "job.json").exitCode == 0)
  }

  @Test func inputsFromTheCommandLineReplaceTheJobs() throws {
    let scene = try Scene(pictures: 3)
    scene.job(to: "out/${item.stem}-${vars.size}.${ext}", vars: #"{ "size": 1 }"#)
    let result = scene.run("run", "job.json", "--input", "in/p01.jpg", "--set", "size=7", "--jobs", "1")
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(scene.folder.tree().filter { $0.hasPrefix("out/p") } == ["out/p01-7.png"])
  }
}

/// Odd surroundings that cron, containers and scripts give.
@Suite struct SurroundingsTests {
  @Test func anEmptyEnvironmentIsEnough() throws {
    let scene = try Scene(pictures: 2)
    scene.job()
    let result = scene.run("run", "job.json", "--report", "report.json") { $0.environment = [:] }
    #expect(result.exitCode == 0, "\(result.error)")
    try check(try scene.report(), exitCode: 0, in: scene)
  }

  @Test func theCurrentFolderDoesNotMatter() throws {
    let scene = try Scene(pictures: 2)
    let job = scene.job()
    var settings = RunProgram.Settings()
    settings.folder = "/"
    let result = RunProgram.run(["run", job, "--report", scene.folder["report.json"]], settings)
    #expect(result.exitCode == 0, "\(result.error)")
    try check(try scene.report(), exitCode: 0, in: scene)
  }

  @Test func aCurrentFolderThatIsGoneIsNoHindrance() throws {
    let scene = try Scene(pictures: 1)
    let job = scene.job()
    let script = "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" run \"$1\" --report \"$2\""
    let fine = RunProgram.run(
      ["-c", script, RunProgram.builtProgram, job, scene.folder["report.json"]], scene.settings(), program: "/bin/sh")
    #expect(fine.exitCode == 0, "\(fine.error)")
    let relative = RunProgram.run(
      ["-c", script, RunProgram.builtProgram, job, "report.json"], scene.settings(), program: "/bin/sh")
    #expect(relative.exitCode == 4)
    #expect(relative.error.contains("current folder"))
  }

  @Test(arguments: [[0], [1], [2], [0, 1, 2]] as [Set<Int32>])
  func closedDescriptorsHarmNothing(_ closed: Set<Int32>) throws {
    let scene = try Scene(pictures: 3)
    scene.job()
    let result = scene.run("run", "job.json", "--report", "report.json") { $0.closed = closed }
    #expect(result.exitCode == 0)
    try check(try scene.report(), exitCode: 0, in: scene)
  }

  @Test func aFullStandardErrorHarmsNothing() throws {
    let scene = try Scene(pictures: 2)
    scene.job()
    let result = scene.run("run", "job.json", "--verbose") { $0.errorFile = "/dev/full" }
    #expect(result.exitCode == 0)
  }

  @Test func aFullStandardOutputIsNoSuccess() {
    var settings = RunProgram.Settings()
    settings.outputFile = "/dev/full"
    let result = RunProgram.run(["schema"], settings)
    #expect(result.exitCode == 1)
    #expect(result.error.contains("No space left"))
  }

  @Test func theCLocaleKeepsNames() throws {
    let scene = try Scene(pictures: 1)
    scene.folder.write(scene.folder.read("in/p00.jpg") ?? [], to: "in/grün 猫.jpg")
    scene.job()
    let result = scene.run("run", "job.json") { $0.environment = ["LC_ALL": "C"] }
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(scene.folder.tree().contains("out/grün 猫.png"))
  }

  @Test func theMemoryOfWhoeverStartedARunIsNotItsOwn() throws {
    let scene = try Scene(pictures: 1)
    scene.job(encode: #"{ "stage": "exec", "command": ["cat"] }, { "stage": "encode", "format": "png" }"#)
    // Every page is written to, so that this process holds a gigabyte while it starts the program.
    let large = [UInt8](repeating: 1, count: 1 << 30)
    let result = scene.run("run", "job.json", "--report", "report.json")
    #expect(large.last == 1 && result.exitCode == 0, "\(result.error)")
    let report = try scene.report()
    let peak = try #require(report["run"]?["peakBytes"]?.integer)
    #expect((1 << 20..<1 << 29).contains(peak), "\(peak)")
    // Nor is the run's that of a program which it starts: `cat` holds less, and how much is not known.
    let facts = try #require(report["items"]?.arrayValue?.first?["facts"]?["exec"])
    #expect(facts["exitCode"]?.integer == 0 && facts["peakBytes"] == nil)
  }
}
