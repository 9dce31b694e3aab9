import Glibc
import JobSyntax
import TestSupport
import Testing

/// Pictures that crash the program, from outside: it takes up again as the same process, and nothing is lost but them.
@Suite(.serialized) struct CrashTests {
  private static func crashLines(_ result: ProgramResult) -> [String] {
    result.errorLines.filter { $0.contains("the program crashed (") }
  }

  @Test(arguments: ["segv", "abort", "trap", "overflow", "overflowElsewhere", "exit"])
  func aCrashFailsItsPictureAndNoOther(_ fault: String) throws {
    let faulty = try FaultyScene(40, faults: [7: fault, 23: fault])
    let program = faulty.start("--jobs", "2")
    let result = program.finish()
    #expect(result.exitCode == 1, "\(result.error)")
    try faulty.checkReport([fault: "crash"], of: 40, exitCode: 1)
    let run = try #require(try faulty.scene.report()["run"])
    #expect(run["counts"]?["done"]?.integer == 38)
    // Both may be in flight in the first crash.
    let crashes = try #require(run["crashes"]?.integer)
    #expect((1...2).contains(crashes))
    #expect(result.errorLines.count { $0.contains("one at a time") || $0.contains("by itself") } == crashes)
    #expect(result.error.contains("scene: 38 done, 2 failed of 40 in "))
    #expect(result.errorLines.count { $0.hasPrefix("scene: 40 pictures") } == 1)
    #expect(faulty.processes(besides: program).isEmpty)
  }

  @Test(arguments: 0..<4, [1, 2]) func aPictureMayCrashTheProgramInAnyPlace(_ place: Int, _ jobs: Int) throws {
    let faulty = try FaultyScene(4, faults: [place: "segv"])
    let result = faulty.start("--jobs", "\(jobs)").finish()
    #expect(result.exitCode == 1, "\(result.error)")
    try faulty.checkReport(["segv": "crash"], of: 4, exitCode: 1)
  }

  /// Every picture crashes the program: from some point on they do so in children.
  @Test func theProgramDoesNotCrashWithoutEnd() throws {
    var faults: [Int: String] = [:]
    for index in 0..<30 where index % 3 != 1 { faults[index] = index.isMultiple(of: 2) ? "abort" : "segv" }
    let faulty = try FaultyScene(30, faults: faults)
    let result = faulty.start("--jobs", "2").finish()
    #expect(result.exitCode == 1, "\(result.error)")
    try faulty.checkReport(["segv": "crash", "abort": "crash"], of: 30, exitCode: 1)
    #expect(try faulty.scene.report()["run"]?["crashes"]?.integer ?? 9 <= 3)
  }

  /// A crash that does not come again is nobody's fault, and the run is whole.
  @Test func suspectsThatGoThroughAreDone() throws {
    let faulty = try FaultyScene(12, faults: [5: "once"])
    let result = faulty.start("--jobs", "2").finish()
    #expect(result.exitCode == 0, "\(result.error)")
    try faulty.checkReport([:], of: 12, exitCode: 0)
    #expect(try faulty.scene.report()["run"]?["crashes"]?.integer == 1)
    #expect(result.error.contains("the program crashed and took up again"))
  }

  @Test(arguments: ["atStart", "atSecondStart"]) func aCrashWhileStartingEndsTheProgram(_ when: String) throws {
    let faulty = try FaultyScene(
      12, faults: [5: "segv"], stage: "{ \"stage\": \"test.fault\", \"\(when)\": true }")
    let result = faulty.start("--jobs", "2").finish(limit: 60)
    #expect(result.signal == SIGSEGV, "\(result.error)")
    #expect(!result.timedOut)
    #expect(result.error.hasSuffix("pipeline: crashed with signal 11\n"))
    #expect(Self.crashLines(result).count == (when == "atStart" ? 0 : 1))
  }

  /// While the program is replaced, the kernel refuses it new threads; what comes of that is no result.
  @Test func noPictureFailsBecauseOfAnothersCrash() throws {
    let faulty = try FaultyScene(12, faults: [0: "threads", 1: "late", 2: "segv"])
    let result = faulty.start("--jobs", "2").finish()
    #expect(result.exitCode == 1, "\(result.error)")
    try faulty.checkReport(["segv": "crash"], of: 12, exitCode: 1)
  }

  /// What was in place when the program crashed, and is not made again since the run is being stopped, goes again.
  @Test func whatIsNotReportedIsNotThere() throws {
    let faulty = try FaultyScene(
      30, faults: [0: "segv", 1: "late", 2: "late", 20: "segv"], run: #", "graceTime": 0"#)
    let result = faulty.start("--jobs", "8", "--fail-fast").finish()
    #expect(result.exitCode == 1, "\(result.error)")
    // Holds the folder against the report.
    try check(try faulty.scene.report(), exitCode: 1, in: faulty.scene)
    #expect(try faulty.scene.report()["run"]?["counts"]?["failed"]?.integer == 1)
  }

  /// Nor does a signal in the moment after a crash cost the report, however short the grace time.
  @Test func anInterruptWhileTakingUpLeavesAReport() throws {
    let faulty = try FaultyScene(30, faults: [6: "segv", 7: "late"], run: #", "graceTime": 0"#)
    let program = faulty.start("--jobs", "2")
    #expect(program.waitForError("the program crashed (SIGSEGV)"))
    program.send(SIGTERM)
    let result = program.finish()
    let code = try #require(result.exitCode)
    #expect(code == 143 || code == 1, "\(result.error)")
    try check(try faulty.scene.report(), exitCode: code, in: faulty.scene)
    #expect(faulty.scene.temporaries.isEmpty)
  }

  /// Two threads may call exit at once.
  @Test func callsOfExitDoNotMeet() throws {
    for _ in 0..<3 {
      let faulty = try FaultyScene(12, faults: [0: "exit", 1: "exit", 2: "exit", 3: "exit", 4: "exit"])
      let result = faulty.start("--jobs", "8").finish()
      #expect(result.exitCode == 1, "\(result.error)")
      try faulty.checkReport(["exit": "crash"], of: 12, exitCode: 1)
    }
  }

  /// The report is owed when every picture has ended, whatever stages do then.
  @Test func aCrashAtTheEndLeavesAReport() throws {
    let faulty = try FaultyScene(12, faults: [5: "segv"], stage: #"{ "stage": "test.fault", "atEnd": true }"#)
    let result = faulty.start("--jobs", "2").finish(limit: 60)
    #expect(result.exitCode == 1, "\(result.error)")
    try faulty.checkReport(["segv": "crash"], of: 12, exitCode: 1)
    let run = try #require(try faulty.scene.report()["run"])
    #expect(run["crashes"]?.integer == 2)
    // One of the child that tried the suspects, which is no loss, is not told here.
    #expect(run["errors"]?.arrayValue?.map { $0["code"]?.stringValue } == ["crash"])
    #expect(result.error.contains("the program crashed (SIGSEGV) after the last picture; the run goes on"))
    #expect(result.error.contains("scene: 11 done, 1 failed of 12 in "))
  }

  /// What was in flight may have been written already, by the program that crashed.
  @Test(arguments: ["error", "skip"]) func outputsThatMustBeNewAreMadeOnce(_ policy: String) throws {
    for attempt in 0..<3 {
      let faulty = try FaultyScene(
        30, faults: [6 + attempt: "segv", 14: "abort", 22: "segv"], write: ", \"overwrite\": \"\(policy)\"")
      let result = faulty.start("--jobs", "2").finish()
      #expect(result.exitCode == 1, "\(result.error)")
      try faulty.checkReport(["segv": "crash", "abort": "crash"], of: 30, exitCode: 1)
      #expect(!result.error.contains("output-kept"))
    }
  }

  /// Outputs whose names only the run knows stay taken after a crash.
  @Test func outputsOfBeforeStayTaken() throws {
    let faulty = try FaultyScene(14, faults: [8: "segv"])
    faulty.scene.job(
      encode: #"{ "stage": "test.fault" }, { "stage": "encode", "format": "png" }"#, to: "out/${image.width}.${ext}")
    let result = faulty.start("--jobs", "1").finish()
    #expect(result.exitCode == 1)
    let report = try faulty.scene.report()
    try check(report, exitCode: 1, in: faulty.scene)
    let codes = report["items"]?.arrayValue?.map { $0["error"]?["code"]?.stringValue ?? "done" } ?? []
    #expect(codes.count { $0 == "done" } == 1)
    #expect(codes[8] == "crash")
    #expect(codes.count { $0 == "output-collision" } == 12)
  }

  /// A list from standard input can be read once.
  @Test func theListFromStandardInputIsKept() throws {
    let faulty = try FaultyScene(20, faults: [9: "segv"])
    faulty.scene.job(
      encode: #"{ "stage": "test.fault" }, { "stage": "encode", "format": "png" }"#, input: #"{ "list": "-" }"#)
    var settings = faulty.settings
    // In an order that no folder would give.
    let order = (0..<20).map { $0 * 7 % 20 }
    settings.input = Array(
      order.map { "in/\(FaultyScene.name($0, $0 == 9 ? "segv" : nil)).jpg\n" }.joined().utf8)
    let result = RunProgram.run(
      ["run", "job.json", "--report", "report.json"], settings, program: FaultyScene.program)
    #expect(result.exitCode == 1, "\(result.error)")
    let report = try faulty.scene.report()
    try check(report, exitCode: 1, in: faulty.scene)
    let inputs = report["items"]?.arrayValue?.compactMap { $0["input"]?.stringValue } ?? []
    #expect(inputs == order.map { "in/\(FaultyScene.name($0, $0 == 9 ? "segv" : nil)).jpg" })
    #expect(report["run"]?["counts"]?["done"]?.integer == 19)
  }

  /// Without a report the summary knows what there was before all the same.
  @Test func theSummaryNamesFailuresOfBefore() throws {
    let faulty = try FaultyScene(20, faults: [15: "segv"])
    faulty.scene.folder.write("no picture", to: "in/p000a.jpg")
    let result = RunProgram.run(["run", "job.json", "--jobs", "1"], faulty.settings, program: FaultyScene.program)
    #expect(result.exitCode == 1)
    #expect(result.error.contains("scene: 19 done, 2 failed of 21"))
    #expect(result.error.contains("in/p000a.jpg"))
    #expect(result.error.contains("in/p015-segv.jpg"))
  }

  @Test func jsonLogsStayJSON() throws {
    let faulty = try FaultyScene(12, faults: [5: "trap"])
    let result = faulty.start("--log-format", "json", "--verbose").finish()
    #expect(result.exitCode == 1)
    let events = try result.errorLines.map { try json($0) }
    let crash = try #require(events.first { $0["event"]?.stringValue == "crash" })
    #expect(crash["level"]?.stringValue == "warning")
    #expect(crash["items"]?.arrayValue?.contains { $0.stringValue == "in/p005-trap.jpg" } == true)
    // The words of the crash are not lost.
    #expect(events.contains { $0["message"]?.stringValue?.contains("the picture's name says so") == true })
    var told = 0
    for index in 0..<12 {
      let name = "in/\(FaultyScene.name(index, index == 5 ? "trap" : nil)).jpg"
      let count = events.count { $0["event"]?.stringValue == "item" && $0["input"]?.stringValue == name }
      // What was being written when the program crashed may come once more.
      #expect(count <= 2, "\(name)")
      if index == 5 { #expect(count == 1) }
      told += min(count, 1)
    }
    // All but one that had ended and was not yet put into words.
    #expect(told >= 11)
  }

  @Test func theBarIsGoneAfterACrash() throws {
    let faulty = try FaultyScene(40, faults: [3: "segv", 4: "late", 20: "late", 21: "segv"])
    var settings = faulty.settings
    settings.columns = 100
    settings.environment?["TERM"] = "xterm"
    let result = RunProgram.run(["run", "job.json"], settings, program: FaultyScene.program)
    #expect(result.exitCode == 1)
    let screen = TerminalScreen(result.errorBytes)
    #expect(!screen.lines.contains { $0.contains("[=") || $0.contains("%") })
    #expect(screen.lines.contains { $0.hasPrefix("the program crashed (SIGSEGV) while working on in/") })
    #expect(screen.lines.contains { $0.hasPrefix("scene: 38 done, 2 failed of 40") })
  }

  /// A signal while suspects are tried ends the run and its child.
  @Test func anInterruptAfterACrashLeavesAReport() throws {
    let faulty = try FaultyScene(30, faults: [2: "hang", 3: "segv"], run: #", "graceTime": 0.1"#)
    let program = faulty.start("--jobs", "2")
    #expect(program.waitForError("the program crashed (SIGSEGV)"))
    #expect(program.wait { !faulty.processes(besides: program).isEmpty })
    program.send(SIGINT)
    let result = program.finish()
    #expect(result.exitCode == 130, "\(result.error)")
    let report = try faulty.scene.report()
    try check(report, exitCode: 130, in: faulty.scene)
    #expect(report["items"]?.arrayValue?.count == 30)
    #expect(report["run"]?["counts"]?["notAttempted"]?.integer ?? 0 > 0)
    #expect(faulty.processes(besides: program).isEmpty)
    #expect(faulty.scene.temporaries.isEmpty)
  }

  /// A picture that its result has replaced is not worked on a second time.
  @Test func inPlaceResultsAreNotWorkedOnAgain() throws {
    let faulty = try FaultyScene(16, faults: [9: "segv"])
    faulty.scene.job(
      encode:
        #"{ "stage": "test.fault" }, { "stage": "resize", "width": 32 }, { "stage": "encode", "format": "jpeg" }"#,
      to: "in/${item.name}", write: #", "inPlace": true"#)
    let result = faulty.start("--jobs", "2").finish()
    #expect(result.exitCode == 1, "\(result.error)")
    let items = try #require(try faulty.scene.report()["items"]?.arrayValue)
    for item in items {
      let name = item["input"]?.stringValue ?? ""
      let isDone = item["status"]?.stringValue == "done"
      // Once scaled, a second time would be written again and say so.
      if isDone { #expect(item["outputs"]?.arrayValue?.first?["width"]?.integer == 32, "\(name)") }
      if !isDone { #expect(item["error"]?["code"]?.stringValue == "crash", "\(name)") }
    }
    #expect(faulty.scene.temporaries.isEmpty)
  }
}
