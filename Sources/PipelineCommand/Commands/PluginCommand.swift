import CSystem
import Conformance
import Engine
import Glibc
import JobSyntax
import PipelineKit
import PluginHost

/// `pipeline plugin test PATH|STAGE`.
enum PluginCommand {
  private static let settings = Option<String>.text(
    "settings", "JSON",
    help: "the stage's settings, as in a job (default: none, or those of its first example where it needs some)")

  private static let line = Option<ConformanceLine>.choice(
    "line", "NAME", repeats: true, help: "judges this line of the card alone; repeatable")

  static let command = Command(
    name: "plugin", summary: "holds a stage, of a plugin or built in, to what every stage must do",
    notes: [
      "`test` feeds the stage pictures of every orientation, with transparency, without colour, from CMYK, with 16 bits, "
        + "very small and very long ones, mattes, frames; calls it from several threads, cancels it, calls it often; "
        + "and prints a card with a line for each. What is demanded follows from what the stage says about itself. Each "
        + "line is tried in a process of its own, so that a crash or a hang is a line of the card.",
      "PATH is a plugin's file, with a slash in it or ending in .so; STAGE is the name of a stage. A stage that calls a "
        + "service is not tested.",
      "Exit codes: 0 every line that applies passes, 1 one fails, 2 wrong command line or settings, 4 the stage cannot "
        + "be tested here.",
    ],
    operand: Operand(name: "test PATH|STAGE", help: "the plugin's file, or the stage's name", count: 2...2),
    options: [settings, line, JobOptions.plugin, JobOptions.format],
    examples: ["pipeline plugin test ./libgrain.so", "pipeline plugin test resize --settings '{\"width\": 100}'"],
    run: run)

  @Sendable private static func run(_ arguments: ParsedArguments, _ invocation: Invocation) throws(UsageError) -> Int32
  {
    guard arguments.operands[0] == "test" else {
      throw UsageError("unknown argument \"\(arguments.operands[0])\"", hint: "`pipeline plugin test` is what there is")
    }
    let target = arguments.operands[1]
    var registry = invocation.registry
    var name = target
    var refusal: StageError?
    if target.contains("/") || target.hasSuffix(".so") {
      do throws(StageError) {
        name = try registry.load(plugin: target, from: PathBytes.currentFolder ?? PathBytes("/"))
      } catch {
        refusal = error
      }
    } else if registry[name] == nil {
      let near = NearestName.suggestion(for: name, among: registry.names)
      throw UsageError(
        "unknown stage \"\(name)\"",
        hint: near.map { "did you mean \"\($0)\"?" } ?? "a plugin's file is named ./\(name)")
    }
    let chosen = arguments.all(line)
    let lines = chosen.isEmpty ? nil : Set(chosen)
    guard let descriptor = registry[name] else {
      let card = ConformanceCard(lines: lines) { line, _ in
        line == .loads ? .fail(refusal?.description ?? "it is not there") : .notApplicable("it does not load")
      }
      return show(card, name, arguments, invocation)
    }
    let (read, findings) = ConformanceTest.settings(descriptor, arguments[settings])
    guard let wanted = read else {
      let renderer = DiagnosticRenderer(width: Terminal(2).diagnosticWidth)
      let sources = arguments[settings].map { [SourceFile(name: "--settings", text: Array($0.utf8))] } ?? []
      StandardStreams.writeError(renderer.text(findings, sources: sources, color: Terminal(2).usesColor))
      throw UsageError("stage \"\(name)\" does not take these settings", hint: "--settings gives it others")
    }
    // Where it is a child, this does not return.
    Probe.answer(descriptor, wanted)
    let folder = try ProbeFolder()
    defer { folder.remove() }
    let test = ConformanceTest(descriptor, wanted, folder: folder.path)
    if let obstacle = test.obstacle {
      StandardStreams.complain("stage \"\(name)\" is not tested: \(obstacle)")
      return ExitCode.cannotStart.rawValue
    }
    guard csystem_program_is_known() != 0 else {
      StandardStreams.complain("no probe can be started: there is no /proc")
      return ExitCode.cannotStart.rawValue
    }
    let card = ConformanceCard(lines: lines) { line, avoidsAlpha in
      line == .loads ? .pass : Probe.verdict(line, in: folder, avoidsAlpha: avoidsAlpha)
    }
    return show(card, name, arguments, invocation)
  }

  // MARK: The card

  private static func show(
    _ card: ConformanceCard, _ name: String, _ arguments: ParsedArguments, _ invocation: Invocation
  ) -> Int32 {
    let code = card.failures.isEmpty ? ExitCode.done : .someFailed
    if arguments[JobOptions.format] == .json {
      invocation.output.print(
        JSONText.object([
          ("stage", .string(name)), ("passed", .integer(card.count(.pass))), ("failed", .integer(card.count(.fail))),
          ("notApplicable", .integer(card.count(.notApplicable))),
          (
            "lines",
            .array(
              card.verdicts.map { line, verdict in
                .object([
                  ("line", .string(line.rawValue)), ("state", .string(verdict.state.rawValue)),
                  ("expected", .string(line.demand)), ("found", .string(verdict.found)),
                ])
              })
          ),
        ]).rendered(pretty: true))
      return code.rawValue
    }
    invocation.output.print(PathBytes(name).printable)
    let width = (ConformanceLine.allCases.map(\.rawValue.count).max() ?? 0) + 2
    let indent = String(repeating: " ", count: 6 + width)
    for (line, verdict) in card.verdicts {
      let word =
        switch verdict.state {
        case .pass: "pass"
        case .fail: "FAIL"
        case .notApplicable: "n.a."
        }
      let found = Wording.oneLine(verdict.found)
      let text =
        switch verdict.state {
        case .pass: found.isEmpty ? line.demand : line.demand + " (\(found))"
        case .fail: "expected: " + line.demand
        case .notApplicable: found
        }
      var lines = FieldPages.wrap(text, width: 96 - indent.count)
      if verdict.state == .fail { lines += FieldPages.wrap("came: " + found, width: 96 - indent.count) }
      let label = line.rawValue + String(repeating: " ", count: width - line.rawValue.count)
      invocation.output.print("\(word)  \(label)\(lines.removeFirst())")
      for line in lines { invocation.output.print(indent + line) }
    }
    invocation.output.print(
      "\(card.count(.pass)) pass, \(card.count(.fail)) fail, \(card.count(.notApplicable)) do not apply")
    return code.rawValue
  }
}

/// The folder for what probes need: the parent makes and removes it, children find it.
private struct ProbeFolder {
  let path: PathBytes
  private static let start = (getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp") + "/pipeline-probe-"

  /// The letters that tell it from others.
  var letters: String { String(path.display.suffix(6)) }

  init(letters: String) { path = PathBytes(Self.start + letters) }

  init() throws(UsageError) {
    var template = Array("\(Self.start)XXXXXX".utf8CString)
    let made = template.withUnsafeMutableBufferPointer { buffer in
      buffer.baseAddress.flatMap { mkdtemp($0) }.map { String(cString: $0) }
    }
    guard let made else {
      throw UsageError("no folder \(Self.start)… can be made: \(String(cString: strerror(errno)))")
    }
    path = PathBytes(made)
  }

  /// Removes what probes have left: files, in one level of folders or two.
  func remove() { Self.remove(path) }

  private static func remove(_ path: PathBytes) {
    guard let listing = path.withCString({ opendir($0) }) else { return }
    while let entry = readdir(listing) {
      let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
      guard name != Array(".".utf8), name != Array("..".utf8) else { continue }
      let below = path.joining(PathBytes(bytes: name))
      if below.withCString({ unlink($0) }) != 0 { remove(below) }
    }
    closedir(listing)
    _ = path.withCString { rmdir($0) }
  }
}

/// One line of a card, judged in a child: this program started again with the same arguments.
private enum Probe {
  private static let word = "probe"

  /// In a child: judges the line that was asked for, tells the parent, and ends the process.
  static func answer(_ descriptor: StageDescriptor, _ settings: Settings) {
    let parts = String(cString: csystem_program_word()).split(separator: ":").map(String.init)
    guard parts.first == word else { return }
    guard parts.count == 5, let line = ConformanceLine(rawValue: parts[1]), let end = Int32(parts[3]) else { _exit(0) }
    csystem_crash_quietly()
    let folder = ProbeFolder(letters: parts[4])
    let test = ConformanceTest(descriptor, settings, folder: folder.path, avoidsAlpha: parts[2] == "opaque")
    let bytes = Array(test.verdict(line).json.rendered().utf8)
    _ = bytes.withUnsafeBytes { StandardStreams.write($0, to: end) }
    _exit(0)
  }

  /// Has a child judge a line.
  static func verdict(
    _ line: ConformanceLine, in folder: ProbeFolder, avoidsAlpha: Bool
  ) -> ConformanceVerdict {
    var ends: [Int32] = [-1, -1]
    guard pipe(&ends) == 0 else { return .fail("no process could be started: \(String(cString: strerror(errno)))") }
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    let begin = ContinuousClock.now
    var identifier: Int32 = 0
    let asked = "\(word):\(line.rawValue):\(avoidsAlpha ? "opaque" : "any"):\(ends[1]):\(folder.letters)"
    let problem = csystem_program_spawn(asked, ends[1], ends[1], &identifier)
    close(ends[1])
    defer { close(ends[0]) }
    guard problem == 0 else { return .fail("no process could be started: \(String(cString: strerror(problem)))") }
    var bytes: [UInt8] = []
    var isOver = false
    while !isOver {
      let left = line.patience - (ContinuousClock.now - begin) / .seconds(1)
      guard left > 0 else { break }
      var entry = pollfd(fd: ends[0], events: Int16(POLLIN), revents: 0)
      guard poll(&entry, 1, Int32(left * 1000) + 1) > 0 else { continue }
      withUnsafeTemporaryAllocation(byteCount: 1 << 16, alignment: 1) { piece in
        let count = read(ends[0], piece.baseAddress, piece.count)
        if count > 0 { bytes += piece[..<count] } else if count == 0 || errno != EINTR { isOver = true }
      }
    }
    if !isOver { kill(identifier, SIGKILL) }
    var status: Int32 = 0
    while waitpid(identifier, &status, 0) < 0, errno == EINTR {}
    guard isOver else { return .fail("it had not ended after \(Int(line.patience)) s") }
    let (root, _) = StrictJSON.parse(SourceFile(name: "verdict", text: bytes))
    if let verdict = root.flatMap({ ConformanceVerdict($0) }) { return verdict }
    let signal = status & 0x7f
    guard signal == 0 else { return .fail("it crashed (\(SignalName.text(signal)))") }
    return .fail("it ended the process with \(status >> 8 & 0xff)")
  }
}
