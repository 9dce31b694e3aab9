import Glibc
import JobSyntax
import TestSupport
import Testing

@Suite(.serialized) struct SignalTests {
  /// A run of slow pictures, started and under way: one picture is done.
  private func underWay(_ scene: Scene, grace: Double, _ more: String...) -> RunProgram {
    scene.job(encode: Scene.slowEncode, run: "{ \"graceTime\": \(grace) }")
    let program = RunProgram(
      ["run", "job.json", "--report", "report.json", "--verbose", "--no-progress"] + more, scene.settings())
    #expect(program.waitForError(": done"))
    return program
  }

  @Test(arguments: [(SIGHUP, 129), (SIGINT, 130), (SIGTERM, 143)] as [(Int32, Int32)])
  func anInterruptLeavesWholeFilesAndAReport(_ signal: Int32, _ code: Int32) throws {
    let scene = try Scene(pictures: 30, side: 250)
    let program = underWay(scene, grace: 60)
    program.send(signal)
    let result = program.finish()
    #expect(result.exitCode == code, "\(result.error)")
    #expect(result.error.contains("stopping"))
    let report = try scene.report()
    try check(report, exitCode: code, in: scene)
    let counts = try #require(report["run"]?["counts"])
    #expect(counts["done"]?.integer ?? 0 > 0)
    #expect(counts["notAttempted"]?.integer ?? 0 > 0)
    #expect(report["items"]?.arrayValue?.count == 30)
    #expect(scene.temporaries.isEmpty)
  }

  @Test func aSecondSignalEndsItAtOnce() throws {
    let scene = try Scene(pictures: 6, side: 1600)
    scene.job(encode: #"{ "stage": "encode", "format": "avif", "effort": 9 }"#, run: #"{ "graceTime": 600 }"#)
    let program = scene.start("run", "job.json", "--report", "report.json", "--no-progress")
    #expect(program.waitForError("scene: 6 pictures"))
    program.send(SIGTERM)
    #expect(program.waitForError("stopping"))
    let begin = ContinuousClock.now
    program.send(SIGTERM)
    let result = program.finish()
    #expect(result.exitCode == 143)
    #expect(ContinuousClock.now - begin < .seconds(20))
    try check(try scene.report(), exitCode: 143, in: scene)
    #expect(scene.temporaries.isEmpty)
  }

  @Test func whatNohupIgnoresStaysIgnored() throws {
    let scene = try Scene(pictures: 6, side: 300)
    scene.job(encode: Scene.slowEncode)
    let program = RunProgram(
      ["-c", "trap '' HUP; exec \"$0\" run job.json --verbose", RunProgram.builtProgram], scene.settings(),
      program: "/bin/sh")
    #expect(program.waitForError(": done"))
    program.send(SIGHUP)
    #expect(program.finish().exitCode == 0)
  }

  @Test func whatLibrariesWriteBecomesLogLines() throws {
    let scene = try Scene(pictures: 8, side: 300)
    let program = underWay(scene, grace: 60)
    writeToStandardError(of: program, "a codec \u{1B}[2Jcomplains\n")
    #expect(program.waitForError("library: a codec"))
    let result = program.finish()
    #expect(result.exitCode == 0)
    #expect(!result.errorBytes.contains(0x1B))
  }

  @Test func theWordsOfACrashArrive() throws {
    let scene = try Scene(pictures: 8, side: 300)
    scene.job(encode: Scene.slowEncode)
    let program = scene.start("run", "job.json", "--no-progress") { settings in
      settings.environment = ["SWIFT_BACKTRACE": "enable=no", "PATH": "/usr/bin:/bin"]
    }
    #expect(program.waitForError("scene: 8 pictures"))
    #expect(program.wait { writeToStandardError(of: program, "Fatal error: the reason\n") })
    program.send(SIGABRT)
    let result = program.finish()
    #expect(result.signal == SIGABRT)
    #expect(result.error.contains("Fatal error: the reason\n"))
    #expect(result.error.hasSuffix("pipeline: crashed with signal 06\n"))
  }

  /// As a library in the process would, once it is being captured.
  @discardableResult
  private func writeToStandardError(of program: RunProgram, _ text: String) -> Bool {
    let path = "/proc/\(program.process)/fd/2"
    var buffer = [CChar](repeating: 0, count: 256)
    let length = readlink(path, &buffer, buffer.count)
    guard length > 0, buffer.prefix(length).map({ UInt8(bitPattern: $0) }).contains(Array("memfd".utf8)) else {
      return false
    }
    let descriptor = open(path, O_WRONLY | O_APPEND)
    guard descriptor >= 0 else { return false }
    defer { close(descriptor) }
    return text.utf8CString.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count - 1) } > 0
  }
}

@Suite(.serialized) struct ProgressTests {
  private static let environment = ["TERM": "xterm", "PATH": "/usr/bin:/bin"]

  @Test(arguments: [100, 60, 20, 8]) func theBarNeverWrapsAndIsGoneAtTheEnd(_ columns: Int) throws {
    let scene = try Scene(pictures: 8, side: 200)
    scene.folder.write("no picture", to: "in/bad.jpg")
    scene.job(encode: Scene.slowEncode)
    let result = scene.run("run", "job.json", "--verbose") { settings in
      settings.columns = columns
      settings.environment = Self.environment
    }
    #expect(result.exitCode == 1)
    let screen = TerminalScreen(result.errorBytes)
    #expect(screen.drawn.count > 3)
    // Lines that were logged end in a line feed; only bars are drawn over.
    #expect(screen.widestDrawn < columns)
    #expect(screen.drawn.contains { $0.contains("/9") || columns < 10 })
    #expect(!screen.lines.contains { $0.contains("[=") || $0.contains("%") })
    // Every picture's line is whole, and the summary stands alone.
    for index in 0..<8 { #expect(screen.lines.contains { $0.hasPrefix("in/p0\(index).jpg: done") }) }
    #expect(screen.lines.contains { $0.hasPrefix("scene: 8 done, 1 failed of 9") })
  }

  @Test func stagesStandAboveTheBarWithTheBottleneckMarked() throws {
    let scene = try Scene(pictures: 8, side: 1200)
    scene.job(encode: Scene.slowEncode)
    let result = scene.run("run", "job.json", "--jobs", "1") {
      $0.columns = 80
      $0.environment = Self.environment
    }
    #expect(result.exitCode == 0)
    let screen = TerminalScreen(result.errorBytes)
    #expect(screen.drawn.contains { $0.hasPrefix("> encode ") && $0.hasSuffix("  compute") })
    #expect(screen.drawn.contains { $0.hasPrefix("  decode ") })
    #expect(screen.drawn.contains { $0.contains("/8") && $0.contains("compute (encode)") })
    #expect(screen.widestDrawn < 80)
    // Nothing of it is left.
    #expect(screen.lines.count == 2, "\(screen.lines)")
    #expect(screen.lines.last?.hasSuffix(", bottleneck compute (encode)") ?? false)
  }

  @Test func quietSaysNothingUnlessItExplainsAnExitCode() throws {
    let scene = try Scene(pictures: 3)
    scene.folder.write(try #require(scene.folder.read("in/p00.jpg")), to: "in/odd.png")
    scene.job()
    for columns in [nil, 80] {
      let result = scene.run("run", "job.json", "--quiet") {
        $0.columns = columns
        $0.environment = Self.environment
      }
      #expect(result.exitCode == 0)
      #expect(result.errorBytes.isEmpty, "\(result.error)")
    }
    scene.folder.write("no picture", to: "in/bad.jpg")
    let failed = scene.run("run", "job.json", "--quiet")
    #expect(failed.exitCode == 1)
    #expect(failed.error.contains("in/bad.jpg"))
    #expect(!failed.error.contains("odd.png"))
  }

  @Test func theMostFrequentFailureComesFirstWithWhatToTry() throws {
    let scene = try Scene(pictures: 1)
    scene.folder.write(Array(try #require(scene.folder.read("in/p00.jpg")).prefix(900)), to: "in/a.jpg")
    for index in 0..<3 { scene.folder.write("no picture", to: "in/x\(index).jpg") }
    scene.job()
    let lines = scene.run("run", "job.json").error.split(separator: "\n").map(String.init)
    let first = lines.firstIndex { $0.hasPrefix("failed: unsupported in stage \"decode\", 3 pictures") }
    let second = lines.firstIndex { $0.hasPrefix("failed: damaged") }
    #expect(try #require(first) < (try #require(second)), "\(lines)")
    #expect(lines.count { $0.hasPrefix("  try: ") } == 2)
  }

  @Test func colorCanBeForcedAndForbidden() throws {
    let scene = try Scene(pictures: 1)
    scene.folder.write("no picture", to: "in/bad.jpg")
    scene.job()
    func isColored(_ more: [String: String]) -> Bool {
      scene.run("run", "job.json") { $0.environment = Self.environment.merging(more) { $1 } }
        .error.contains("\u{1B}[1;31m")
    }
    #expect(!isColored([:]))
    #expect(isColored(["CLICOLOR_FORCE": "1"]))
    #expect(!isColored(["CLICOLOR_FORCE": "0"]))
    #expect(!isColored(["CLICOLOR_FORCE": "1", "NO_COLOR": "1"]))
  }

  @Test func noColorAndCIAreRespected() throws {
    let scene = try Scene(pictures: 3)
    scene.folder.write("no picture", to: "in/bad.jpg")
    scene.job()
    func run(_ more: [String: String], _ arguments: String...) -> ProgramResult {
      RunProgram.run(
        ["run", "job.json"] + arguments,
        scene.settings {
          $0.columns = 80
          $0.environment = Self.environment.merging(more) { $1 }
        })
    }
    #expect(run([:]).error.contains("\u{1B}[1;31mfailed"))
    let plain = run(["NO_COLOR": "1"])
    #expect(!plain.error.contains("\u{1B}[1;31m"))
    #expect(plain.error.contains("\r\u{1B}[J"))
    for other in [run(["CI": "true"]), run(["TERM": "dumb"]), run([:], "--no-progress"), run([:], "--log-format=json")]
    {
      #expect(!other.error.contains("\u{1B}[K"))
    }
  }
}
