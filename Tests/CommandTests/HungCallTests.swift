import Glibc
import TestSupport
import Testing

/// Pictures that hang or crash the program, from outside: the program with a stage that does so where a picture's name
/// asks for it.
struct FaultyScene {
  static let program =
    RunProgram.builtProgram.lastIndex(of: "/").map { String(RunProgram.builtProgram[...$0]) + "pipeline-faulty" }
    ?? "pipeline-faulty"

  let scene: Scene

  /// - Parameter faults: by index, what a picture of `count` does; the others are fine.
  init(
    _ count: Int, faults: [Int: String], itemDeadline: Double = 60, write: String = "", run: String = "",
    stage: String = #"{ "stage": "test.fault" }"#
  ) throws {
    scene = try Scene(pictures: 1)
    let picture = scene.folder.read("in/p00.jpg") ?? []
    unlink(scene.folder["in/p00.jpg"])
    for index in 0..<count { scene.folder.write(picture, to: "in/\(Self.name(index, faults[index])).jpg") }
    scene.job(
      encode: stage + #", { "stage": "encode", "format": "png" }"#,
      run: #"{ "itemDeadline": \#(itemDeadline)\#(run) }"#, write: write)
  }

  static func name(_ index: Int, _ fault: String?) -> String {
    let digits = String(index)
    return "p" + String(repeating: "0", count: 3 - digits.count) + digits + (fault.map { "-" + $0 } ?? "")
  }

  var settings: RunProgram.Settings {
    scene.settings { settings in
      // A backtrace of every thread takes longer than the rest.
      settings.environment = ["SWIFT_BACKTRACE": "enable=no", "PATH": "/usr/bin:/bin"]
    }
  }

  func start(_ arguments: String...) -> RunProgram {
    RunProgram(["run", "job.json", "--report", "report.json"] + arguments, settings, program: Self.program)
  }

  /// Processes that work in this scene's folder, besides the one given: its children, wherever they belong now.
  func processes(besides program: RunProgram) -> [pid_t] {
    var found: [pid_t] = []
    guard let listing = opendir("/proc") else { return [] }
    defer { closedir(listing) }
    while let entry = readdir(listing) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      guard let identifier = pid_t(name), identifier != program.process else { continue }
      var buffer = [CChar](repeating: 0, count: 4096)
      let length = readlink("/proc/\(name)/cwd", &buffer, buffer.count)
      guard length > 0 else { continue }
      let path = String(decoding: buffer.prefix(length).map { UInt8(bitPattern: $0) }, as: UTF8.self)
      if path == scene.folder.path { found.append(identifier) }
    }
    return found
  }

  static func threads(of process: pid_t) -> Int {
    let text = String(decoding: TemporaryFolder.read("/proc/\(process)/status") ?? [], as: UTF8.self)
    let line = text.split(separator: "\n").first { $0.hasPrefix("Threads:") }
    return line.flatMap { Int($0.split(separator: "\t").last ?? "") } ?? 0
  }

  /// Holds the report against the faults: who failed with which code, everyone else done.
  func checkReport(_ codes: [String: String], of count: Int, exitCode: Int32) throws {
    let report = try scene.report()
    try check(report, exitCode: exitCode, in: scene)
    let items = try #require(report["items"]?.arrayValue)
    #expect(items.count == count)
    let names = items.compactMap { $0["input"]?.stringValue }
    #expect(names == names.sorted())
    for item in items {
      let name = item["input"]?.stringValue ?? ""
      let fault = name.split(separator: "-").dropFirst().first.map { String($0.prefix { $0 != "." }) }
      let code = fault.flatMap { codes[$0] }
      #expect(item["error"]?["code"]?.stringValue == code, "\(name)")
      #expect(item["status"]?.stringValue == (code == nil ? "done" : "failed"), "\(name)")
      if code != nil { #expect(item["error"]?["stage"]?.stringValue == "test.fault", "\(name)") }
    }
    #expect(scene.temporaries.isEmpty)
  }
}

@Suite(.serialized) struct HungCallTests {
  /// Many calls hang: the first ones cost threads of the program, the others children, which are killed.
  @Test func hungCallsCostAFewThreadsAndNoMore() throws {
    var faults: [Int: String] = [:]
    for index in 4..<16 { faults[index] = "hang" }
    let faulty = try FaultyScene(24, faults: faults, itemDeadline: 0.5)
    let program = faulty.start("--jobs", "2")
    var threads = 0
    var children = 0
    #expect(
      !program.wait(limit: 100) {
        threads = max(threads, FaultyScene.threads(of: program.process))
        children = max(children, faulty.processes(besides: program).count)
        return false
      })
    let result = program.finish()
    #expect(result.exitCode == 1, "\(result.error)")
    #expect(!result.timedOut)
    try faulty.checkReport(["hang": "deadline"], of: 24, exitCode: 1)
    #expect(children > 0)
    #expect(children <= 2)
    // Three that hung, those that had begun by then, and what is always there.
    #expect(threads < 40, "\(threads)")
    let left = result.errorLines.first { $0.contains("left behind") }.flatMap { Int($0.prefix { $0.isNumber }) }
    #expect(left.map { (3...6).contains($0) } == true, "\(result.error)")
    #expect(faulty.processes(besides: program).isEmpty)
  }

  /// Once items are worked on in children, one that crashes fails by itself, whatever it does.
  @Test func aCrashInAChildFailsItsPictureOnly() throws {
    let faults = [
      0: "hang", 1: "hang", 2: "hang", 3: "hang", 20: "segv", 22: "abort", 25: "trap", 27: "overflow", 29: "exit",
      33: "overflowElsewhere",
    ]
    let faulty = try FaultyScene(40, faults: faults, itemDeadline: 0.5)
    let program = faulty.start("--jobs", "2")
    let result = program.finish()
    #expect(result.exitCode == 1, "\(result.error)")
    try faulty.checkReport(
      [
        "hang": "deadline", "segv": "crash", "abort": "crash", "trap": "crash", "overflow": "crash", "exit": "crash",
        "overflowElsewhere": "crash",
      ], of: 40, exitCode: 1)
    let messages = try faulty.scene.report()["items"]?.arrayValue?.compactMap { $0["error"]?["message"]?.stringValue }
    #expect(messages?.contains { $0.contains("crashed the program (SIGSEGV) in stage \"test.fault\"") } == true)
    #expect(messages?.contains { $0.contains("exit with code 3") } == true)
    #expect(faulty.processes(besides: program).isEmpty)
  }

  /// The names that only the run knows are kept apart across processes too.
  @Test func childrenAskWhichOutputsAreTaken() throws {
    var faults: [Int: String] = [:]
    for index in 0..<4 { faults[index] = "hang" }
    let faulty = try FaultyScene(14, faults: faults, itemDeadline: 0.5)
    faulty.scene.job(
      encode: #"{ "stage": "test.fault" }, { "stage": "encode", "format": "png" }"#,
      run: #"{ "itemDeadline": 0.5 }"#, to: "out/${image.width}.${ext}")
    let result = faulty.start("--jobs", "2").finish()
    #expect(result.exitCode == 1)
    let report = try faulty.scene.report()
    try check(report, exitCode: 1, in: faulty.scene)
    #expect(report["run"]?["counts"]?["done"]?.integer == 1)
    let codes = report["items"]?.arrayValue?.compactMap { $0["error"]?["code"]?.stringValue } ?? []
    #expect(codes.count { $0 == "output-collision" } == 9)
  }

  /// Without children the work is done here, whatever threads it costs; a suspect is not.
  @Test func childrenThatDoNotStartAreDoneWithout() throws {
    var faults: [Int: String] = [:]
    for index in 0..<5 { faults[index] = "hang" }
    let faulty = try FaultyScene(
      20, faults: faults, itemDeadline: 0.5, stage: #"{ "stage": "test.fault", "atChildStart": true }"#)
    let result = faulty.start("--jobs", "2").finish()
    #expect(result.exitCode == 1, "\(result.error)")
    try faulty.checkReport(["hang": "deadline"], of: 20, exitCode: 1)

    let crashing = try FaultyScene(
      20, faults: [10: "segv"], stage: #"{ "stage": "test.fault", "atChildStart": true }"#)
    let crashed = crashing.start("--jobs", "1").finish()
    #expect(crashed.exitCode == 1, "\(crashed.error)")
    let items = try #require(try crashing.scene.report()["items"]?.arrayValue)
    #expect(items[10]["error"]?["code"]?.stringValue == "child-start")
    #expect(items[10]["error"]?["cause"]?.stringValue?.contains("SIGSEGV") == true)
    #expect(items.count { $0["status"]?.stringValue == "done" } > 10)
    try check(try crashing.scene.report(), exitCode: 1, in: crashing.scene)
  }

  @Test(arguments: [SIGINT, SIGKILL]) func theEndOfTheRunIsTheEndOfItsChildren(_ signal: Int32) throws {
    var faults: [Int: String] = [:]
    for index in 0..<30 { faults[index] = "hang" }
    let faulty = try FaultyScene(40, faults: faults, itemDeadline: 0.5, run: #", "graceTime": 0.1"#)
    let program = faulty.start("--jobs", "2")
    #expect(program.wait { !faulty.processes(besides: program).isEmpty })
    program.send(signal)
    let result = program.finish()
    if signal == SIGINT {
      #expect(result.exitCode == 130, "\(result.error)")
      try check(try faulty.scene.report(), exitCode: 130, in: faulty.scene)
    } else {
      #expect(result.signal == SIGKILL)
    }
    // A killed process cannot wait for anyone; its children notice.
    let end = ContinuousClock.now + .seconds(10)
    while !faulty.processes(besides: program).isEmpty, ContinuousClock.now < end { sched_yield() }
    #expect(faulty.processes(besides: program).isEmpty)
    #expect(faulty.scene.temporaries.isEmpty)
  }
}
