import Glibc

/// How a program ended and what it wrote.
public struct ProgramResult: Sendable {
  /// nil where a signal ended it.
  public var exitCode: Int32?
  /// The signal that ended it.
  public var signal: Int32?
  public var outputBytes: [UInt8]
  public var errorBytes: [UInt8]
  /// It did not end in time and was killed.
  public var timedOut = false

  public var output: String { String(decoding: outputBytes, as: UTF8.self) }
  public var error: String { String(decoding: errorBytes, as: UTF8.self) }
  public var errorLines: [String] { error.split(separator: "\n").map(String.init) }
}

/// A program under test while it runs, started from outside as a shell would.
///
/// Used by one thread. What it writes is read while waiting, so that full pipes do not stop it.
public final class RunProgram {
  public struct Settings: Sendable {
    /// nil for the test's own.
    public var environment: [String: String]?
    /// nil for the test's own.
    public var folder: String?
    public var input: [UInt8] = []
    /// Descriptors of 0, 1 and 2 that the program starts without.
    public var closed: Set<Int32> = []
    /// Standard error is a terminal of this many columns.
    public var columns: Int?
    /// A file that standard output or standard error is, instead of a pipe.
    public var outputFile: String?
    public var errorFile: String?
    /// The program leads a process group of its own, to which `send(_:toGroup:)` sends.
    public var isGroupLeader = false

    public init() {}
  }

  /// The built program: beside the tests.
  public static let builtProgram: String = {
    if let chosen = getenv("PIPELINE_PROGRAM") { return String(cString: chosen) }
    var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
    let count = readlink("/proc/self/exe", &buffer, buffer.count)
    let path = String(decoding: buffer.prefix(max(0, count)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
    return (path.lastIndex(of: "/").map { String(path[..<$0]) } ?? ".") + "/pipeline"
  }()

  public let process: pid_t
  private var output: Int32
  private var error: Int32
  private var outputBytes: [UInt8] = []
  public private(set) var errorBytes: [UInt8] = []
  private var status: Int32?

  /// Runs the program to its end.
  ///
  /// - Parameter limit: seconds after which it is killed.
  public static func run(
    _ arguments: [String], _ settings: Settings = Settings(), program: String? = nil, limit: Double = 120
  ) -> ProgramResult {
    let run = RunProgram(arguments, settings, program: program)
    return run.finish(limit: limit)
  }

  /// Starts the program.
  public init(_ arguments: [String], _ settings: Settings = Settings(), program: String? = nil) {
    var path = program ?? Self.builtProgram
    var arguments = arguments
    if let folder = settings.folder {
      // env becomes the program, in that folder.
      arguments = ["-C", folder, path] + arguments
      path = "/usr/bin/env"
    }
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    var ours: [Int32] = []
    func check(_ isFine: Bool, _ what: String) {
      precondition(isFine, "\(what): \(String(cString: strerror(errno)))")
    }
    func pipe() -> (read: Int32, write: Int32) {
      var ends: [Int32] = [0, 0]
      check(Glibc.pipe(&ends) == 0, "no pipe")
      for end in ends { check(fcntl(end, F_SETFD, FD_CLOEXEC) == 0, "no pipe") }
      return (ends[0], ends[1])
    }

    // A file without a name holds all of the input: nothing has to be written while the program runs.
    let input = open("/tmp", O_RDWR | Self.unnamed | O_CLOEXEC, 0o600)
    check(input >= 0, "no input file")
    var rest = settings.input[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { write(input, $0.baseAddress, $0.count) }
      check(count > 0, "no input")
      rest = rest.dropFirst(count)
    }
    lseek(input, 0, SEEK_SET)
    ours.append(input)
    posix_spawn_file_actions_adddup2(&actions, input, 0)

    output = -1
    if let file = settings.outputFile {
      posix_spawn_file_actions_addopen(&actions, 1, file, O_WRONLY, 0)
    } else {
      let ends = pipe()
      output = ends.read
      ours.append(ends.write)
      posix_spawn_file_actions_adddup2(&actions, ends.write, 1)
    }
    error = -1
    if let columns = settings.columns {
      error = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
      var locked: Int32 = 0
      var number: UInt32 = 0
      check(error >= 0 && ioctl(error, Self.lockTerminal, &locked) == 0, "no terminal")
      check(ioctl(error, Self.numberOfTerminal, &number) == 0, "no terminal")
      var size = winsize(ws_row: 24, ws_col: UInt16(columns), ws_xpixel: 0, ws_ypixel: 0)
      check(ioctl(error, UInt(TIOCSWINSZ), &size) == 0, "no terminal size")
      // Open here too until the program has it: a terminal nobody has open reads as ended.
      let other = open("/dev/pts/\(number)", O_RDWR | O_NOCTTY | O_CLOEXEC)
      check(other >= 0, "no terminal")
      ours.append(other)
      posix_spawn_file_actions_adddup2(&actions, other, 2)
    } else if let file = settings.errorFile {
      posix_spawn_file_actions_addopen(&actions, 2, file, O_WRONLY, 0)
    } else {
      let ends = pipe()
      error = ends.read
      ours.append(ends.write)
      posix_spawn_file_actions_adddup2(&actions, ends.write, 2)
    }
    for descriptor in settings.closed { posix_spawn_file_actions_addclose(&actions, descriptor) }

    // The program starts with no signal blocked or ignored, whatever the tests' own threads do.
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    var none = sigset_t()
    sigemptyset(&none)
    var all = sigset_t()
    sigfillset(&all)
    posix_spawnattr_setsigmask(&attributes, &none)
    posix_spawnattr_setsigdefault(&attributes, &all)
    var flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF
    if settings.isGroupLeader {
      posix_spawnattr_setpgroup(&attributes, 0)
      flags |= POSIX_SPAWN_SETPGROUP
    }
    posix_spawnattr_setflags(&attributes, Int16(flags))

    var words: [UnsafeMutablePointer<CChar>?] = ([path] + arguments).map { strdup($0) } + [nil]
    var variables: [UnsafeMutablePointer<CChar>?] =
      settings.environment.map { $0.map { strdup("\($0.key)=\($0.value)") } + [nil] } ?? []
    defer { for pointer in words + variables { free(pointer) } }
    var identifier: pid_t = 0
    let failure =
      settings.environment == nil
      ? posix_spawn(&identifier, path, &actions, &attributes, &words, environ)
      : posix_spawn(&identifier, path, &actions, &attributes, &words, &variables)
    process = identifier
    for descriptor in ours { close(descriptor) }
    precondition(failure == 0, "\(path) does not start: \(String(cString: strerror(failure)))")
  }

  deinit {
    if status == nil {
      kill(process, SIGKILL)
      waitpid(process, nil, 0)
    }
    for descriptor in [output, error] where descriptor >= 0 { close(descriptor) }
  }

  // Linux's O_TMPFILE, TIOCSPTLCK and TIOCGPTN, which the Glibc module does not import.
  private static let unnamed: Int32 = 0o20_200_000
  private static let lockTerminal: UInt = 0x4004_5431
  private static let numberOfTerminal: UInt = 0x8004_5430

  public func send(_ signal: Int32) { kill(process, signal) }

  /// Sends a signal to the program, and with `toGroup` to the processes it has started: it must lead a group.
  public func send(_ signal: Int32, toGroup: Bool) { kill(toGroup ? -process : process, signal) }

  /// Waits until standard error holds a text; false when the program ended or the time was over before.
  public func waitForError(_ text: String, limit: Double = 60) -> Bool {
    let wanted = Array(text.utf8)
    return pump(limit: limit) { self.errorBytes.contains(wanted) }
  }

  /// Waits until something is so; false when the program ended or the time was over before.
  public func wait(limit: Double = 60, until condition: () -> Bool) -> Bool { pump(limit: limit, condition) }

  /// Lets time pass; true when the program ended within it.
  public func ends(within seconds: Double) -> Bool { !pump(limit: seconds) { false } && status != nil }

  /// Waits for the end; kills the program when the time is over.
  public func finish(limit: Double = 120) -> ProgramResult {
    let ended = !pump(limit: limit) { false } && status != nil
    if !ended {
      kill(process, SIGKILL)
      _ = pump(limit: 10) { false }
    }
    let status = self.status ?? 0
    let signal = status & 0x7f
    return ProgramResult(
      exitCode: signal == 0 ? (status >> 8) & 0xff : nil, signal: signal == 0 ? nil : signal, outputBytes: outputBytes,
      errorBytes: errorBytes, timedOut: !ended)
  }

  private func pump(limit: Double, _ condition: () -> Bool) -> Bool {
    let end = ContinuousClock.now + .seconds(limit)
    while true {
      if condition() { return true }
      var polled = [output, error].filter { $0 >= 0 }.map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
      // Also wakes to look whether the program has ended with its pipes held open by someone else.
      let left = (end - ContinuousClock.now) / .milliseconds(1)
      _ = poll(&polled, nfds_t(polled.count), Int32(max(0, min(20, left.rounded(.up)))))
      for entry in polled where entry.revents != 0 { read(entry.fd) }
      if status == nil {
        var value: Int32 = 0
        if waitpid(process, &value, WNOHANG) == process { status = value }
      }
      if status != nil {
        // What it wrote last may still be in the pipes.
        for descriptor in [output, error] where descriptor >= 0 { drain(descriptor) }
        return condition()
      }
      if ContinuousClock.now >= end { return false }
    }
  }

  private func drain(_ descriptor: Int32) {
    while descriptor == output || descriptor == error {
      var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
      guard poll(&entry, 1, 0) > 0 else { return }
      read(descriptor)
    }
  }

  private func read(_ descriptor: Int32) {
    var piece = [UInt8](repeating: 0, count: 1 << 16)
    let count = Glibc.read(descriptor, &piece, piece.count)
    if count > 0 {
      if descriptor == output { outputBytes += piece[..<count] } else { errorBytes += piece[..<count] }
    } else if count == 0 || errno != EINTR {
      // A terminal ends with an error instead of nothing.
      close(descriptor)
      if descriptor == output { output = -1 } else { error = -1 }
    }
  }
}

extension [UInt8] {
  /// Whether the bytes stand somewhere in these.
  public func contains(_ wanted: [UInt8]) -> Bool {
    guard let first = wanted.first else { return true }
    var start = startIndex
    while let found = self[start...].firstIndex(of: first) {
      if self[found...].starts(with: wanted) { return true }
      start = found + 1
    }
    return false
  }
}

/// A terminal as far as a program that redraws its last lines needs it: what stands on its lines in the end, and every
/// state that its last lines were left in.
public struct TerminalScreen: Sendable {
  public private(set) var lines: [String] = []
  /// The lines from the cursor to the bottom, each time it went back to the beginning of one.
  public private(set) var drawn: [String] = []
  /// The most columns that a line which was redrawn has had.
  public private(set) var widestDrawn = 0

  public init(_ bytes: [UInt8]) {
    var rows: [[Character]] = [[]]
    var (row, column) = (0, 0)
    var characters = Array(String(decoding: bytes, as: UTF8.self).replacing("\r\n", with: "\n"))[...]
    while let character = characters.popFirst() {
      switch character {
      case "\n", "\r\n":
        row += 1
        if row == rows.count { rows.append([]) }
        column = 0
      case "\r":
        for line in rows[row...] where !line.isEmpty {
          drawn.append(String(line))
          widestDrawn = max(widestDrawn, line.count)
        }
        column = 0
      case "\u{1B}":
        let sequence = characters.prefix { !$0.isLetter }
        characters = characters.dropFirst(sequence.count)
        switch characters.popFirst() {
        case "A": row = max(0, row - (Int(String(sequence.dropFirst())) ?? 1))
        case "J":
          rows.removeLast(rows.count - row - 1)
          rows[row].removeLast(max(0, rows[row].count - column))
        case "K": rows[row].removeLast(max(0, rows[row].count - column))
        default: break
        }
      default:
        while rows[row].count < column { rows[row].append(" ") }
        if column < rows[row].count { rows[row][column] = character } else { rows[row].append(character) }
        column += 1
      }
    }
    if rows.last?.isEmpty ?? false { rows.removeLast() }
    lines = rows.map { String($0) }
  }
}
