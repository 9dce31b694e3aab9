import CSystem
import Glibc
import Synchronization

/// Another program, found on this machine.
public struct ExternalProgram: Sendable, Hashable {
  /// As the job calls it.
  public let name: String
  /// Absolute.
  public let path: PathBytes

  public init(name: String, path: PathBytes) {
    self.name = name
    self.path = path
  }

  /// Looks a program up: a name without a slash on `PATH`, any other from a folder.
  ///
  /// - Throws: `program-missing` of class environment.
  public static func find(
    _ name: PathBytes, from folder: PathBytes, searching path: String? = processPath
  ) throws(StageError) -> ExternalProgram {
    let text = name.printable
    if name.bytes.contains(UInt8(ascii: "/")) {
      let whole = folder.joining(name).normalised
      guard isProgram(whole) else {
        throw StageError(
          "program-missing", "there is no program that can be run at \(whole.printable)", kind: .environment,
          hint: isFile(whole) ? "make it executable: chmod +x" : nil)
      }
      return ExternalProgram(name: name.lastComponent.printable, path: whole)
    }
    for part in (path ?? "").split(separator: ":") where part.hasPrefix("/") {
      let whole = PathBytes(String(part)).joining(name)
      if isProgram(whole) { return ExternalProgram(name: text, path: whole) }
    }
    throw StageError(
      "program-missing", "the program \(text) is not on PATH (\(path ?? "which is not set"))", kind: .environment,
      hint: "install it, or name it by its path")
  }

  public static var processPath: String? { getenv("PATH").map { String(cString: $0) } }

  private static func isFile(_ path: PathBytes) -> Bool {
    var status = stat()
    return path.withCString { stat($0, &status) } == 0 && status.st_mode & S_IFMT == S_IFREG
  }

  private static func isProgram(_ path: PathBytes) -> Bool {
    isFile(path) && path.withCString { access($0, X_OK) } == 0
  }

  /// What a program is run with.
  public struct Call: Sendable {
    /// Without the program itself.
    public var arguments: [[UInt8]]
    /// `NAME=value`; all of it.
    public var environment: [[UInt8]]
    /// The folder it works in.
    public var folder: PathBytes
    /// Descriptors that it has as 0, 1 and 2. Files, not pipes: nobody then waits for anybody.
    public var input: Int32
    public var output: Int32
    public var errors: Int32
    public var seconds: Double
    /// Bytes of data for each of its processes; nil for no limit.
    public var memoryLimit: Int?
    /// Bytes of each file that it writes.
    public var outputLimit: Int

    public init(
      arguments: [[UInt8]], environment: [[UInt8]], folder: PathBytes, input: Int32, output: Int32, errors: Int32,
      seconds: Double, memoryLimit: Int?, outputLimit: Int
    ) {
      self.arguments = arguments
      self.environment = environment
      self.folder = folder
      self.input = input
      self.output = output
      self.errors = errors
      self.seconds = seconds
      self.memoryLimit = memoryLimit
      self.outputLimit = outputLimit
    }
  }

  /// How a program has ended.
  public struct End: Sendable, Hashable {
    public enum Reason: Sendable, Hashable {
      case exit(Int)
      /// By a signal, by number.
      case signal(Int32)
      /// It was ended since its time was over.
      case timeLimit
      /// It was ended since nobody waits for it any more.
      case cancelled
    }
    public var reason: Reason
    /// From its start to its end.
    public var seconds: Double
    public var cpuSeconds: Double
    /// The most memory it held at once, in bytes; nil where that is less than this process has held, which is all that the
    /// kernel then tells.
    public var peakBytes: Int?
  }
}

/// The programs that a stage runs, so that none outlives it.
///
/// A program gets a process group of its own, and a mark in its environment, which those it starts inherit. Whatever of
/// the group is left when it ends is ended too. Where it had to be ended, and when the run is over, what has left the
/// group is looked for by the mark: that takes a look at every process of the machine, too much for every picture.
public final class ProgramRunner: Sendable {
  private struct State {
    var running: Set<Int32> = []
    var isClosed = false
  }
  private let state = Mutex(State())
  private let counter = Atomic<Int>(0)
  private let mark: String
  /// That of whatever this process has started for the run: before a crash too, after which it goes on under its number.
  /// And, but for children, that of what its children have started, who may have crashed.
  private let marks: String

  private static let instances = Atomic<Int>(0)
  /// Seconds between the signal that asks and the one that does not.
  public static let patience = 2.0
  private static let variable = "PIPELINE_EXEC"

  /// - Parameter run: the run's identifier.
  public init(run: String) {
    let word = String(cString: csystem_program_word())
    mark = "\(Self.variable)=\(run).\(getpid()).\(Self.instances.add(1, ordering: .relaxed).newValue)."
    marks = "\(Self.variable)=\(run)." + (word.hasPrefix("child:") ? "\(getpid())." : "")
    // A program that was started anew in the middle of a run.
    if !word.isEmpty, !word.hasPrefix("child:") { Self.endStrays(marks) }
  }

  /// Runs a program and waits for its end.
  ///
  /// - Parameters:
  ///   - isCancelled: asked some twenty times a second; true ends the program.
  ///   - call: the arguments, and what the program reads and may take.
  ///   - program: its path.
  /// - Throws: `program-start` where it cannot be started.
  public func run(
    _ program: ExternalProgram, _ call: ExternalProgram.Call, isCancelled: () -> Bool
  ) throws(StageError) -> ExternalProgram.End {
    let number = counter.add(1, ordering: .relaxed).newValue
    let own = "\(mark)\(number)."
    let begin = ContinuousClock.now
    let (child, watch) = try start(program, call, own)
    var reason: ExternalProgram.End.Reason?
    let deadline = begin + .seconds(call.seconds)
    while csystem_exec_has_ended(child, watch, 50) == 0 {
      let isLate = ContinuousClock.now >= deadline
      guard isLate || isCancelled() else { continue }
      reason = isLate ? .timeLimit : .cancelled
      stop(child, watch)
      break
    }
    // Under the lock, so that `close` never signals a number that has become another's.
    state.withLock { _ = $0.running.remove(child) }
    var status = csystem_exec_end()
    csystem_exec_reap(child, watch, &status)
    if reason != nil { Self.endStrays(own) }
    return ExternalProgram.End(
      reason: reason ?? (status.code >= 0 ? .exit(Int(status.code)) : .signal(status.signal)),
      seconds: (ContinuousClock.now - begin) / .seconds(1), cpuSeconds: status.cpu_seconds,
      peakBytes: status.peak_bytes > 0 ? Int(status.peak_bytes) : nil)
  }

  /// Ends everything that still runs; nothing can be started afterwards.
  public func close() {
    state.withLock { state in
      state.isClosed = true
      for child in state.running { kill(-child, SIGKILL) }
    }
    let isInRun = counter.load(ordering: .relaxed) > 0 || !String(cString: csystem_program_word()).isEmpty
    if isInRun { Self.endStrays(marks) }
  }

  private func start(
    _ program: ExternalProgram, _ call: ExternalProgram.Call, _ own: String
  ) throws(StageError) -> (child: Int32, watch: Int32) {
    let arguments = CStrings([program.path.bytes] + call.arguments)
    let environment = CStrings(call.environment + [Array(own.utf8)])
    var (child, watch): (Int32, Int32) = (0, -1)
    guard !state.withLock({ $0.isClosed }) else { throw Self.startError(program, ECANCELED) }
    // Not under the lock: a program on a share that hangs must not keep others from starting, nor the run from its end.
    let failure = program.path.withCString { path in
      call.folder.withCString { folder in
        var what = csystem_exec(
          path: path, arguments: arguments.pointer, environment: environment.pointer, folder: folder,
          input: call.input, output: call.output, errors: call.errors, memory: Int64(call.memoryLimit ?? 0),
          file_size: Int64(min(call.outputLimit, .max - 1)) + 1)
        return csystem_exec_start(&what, &child, &watch)
      }
    }
    withExtendedLifetime((arguments, environment)) {}
    guard failure == 0 else { throw Self.startError(program, failure) }
    let isLate = state.withLock { state in
      if !state.isClosed { state.running.insert(child) }
      return state.isClosed
    }
    if isLate { kill(-child, SIGKILL) }
    return (child, watch)
  }

  private static func startError(_ program: ExternalProgram, _ number: Int32) -> StageError {
    let hint: String? =
      switch number {
      case ENOEXEC: "a script must begin with #! and its interpreter"
      case ENOENT: "the interpreter that its first line names may be missing"
      case E2BIG: "its arguments and its environment are too long together"
      case EAGAIN, ENOMEM: "the machine has no room for another process"
      default: nil
      }
    return StageError(
      "program-start", "\(program.path.printable) could not be started",
      kind: number == EAGAIN || number == ENOMEM ? .temporary : .item, cause: String(cString: strerror(number)),
      hint: hint)
  }

  /// Asks a program to end, and ends it where it does not.
  private func stop(_ child: Int32, _ watch: Int32) {
    kill(-child, SIGTERM)
    let patience = ContinuousClock.now + .seconds(Self.patience)
    while csystem_exec_has_ended(child, watch, 20) == 0 {
      guard ContinuousClock.now < patience, !state.withLock({ $0.isClosed }) else {
        kill(-child, SIGKILL)
        // One that left the group it was the leader of.
        kill(child, SIGKILL)
        return
      }
    }
  }

  /// Ends every process that carries a mark.
  static func endStrays(_ mark: String) {
    // One may start another while it is looked for.
    for _ in 0..<4 {
      let found = strays(mark)
      if found.isEmpty { return }
      for process in found { csystem_process_kill(process) }
      for process in found { csystem_process_close(process) }
    }
  }

  /// Processes, held so that none of their numbers becomes another's.
  private static func strays(_ mark: String) -> [csystem_process] {
    guard let listing = opendir("/proc") else { return [] }
    defer { closedir(listing) }
    let own = getpid()
    var found: [csystem_process] = []
    let wanted = Array(mark.utf8)
    while let entry = readdir(listing) {
      let name = withUnsafeBytes(of: &entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
      guard let number = Int32(name), number != own else { continue }
      let process = csystem_process_hold(number)
      var isFound = false
      defer { if !isFound { csystem_process_close(process) } }
      let descriptor = open("/proc/\(name)/environ", O_RDONLY | O_CLOEXEC)
      guard descriptor >= 0 else { continue }
      defer { _ = Glibc.close(descriptor) }
      var bytes = [UInt8](repeating: 0, count: 1 << 14)
      var text: [UInt8] = []
      while text.count < 1 << 20 {
        let count = read(descriptor, &bytes, bytes.count)
        guard count > 0 else { break }
        text += bytes[..<count]
      }
      if text.split(separator: 0).contains(where: { $0.starts(with: wanted) }) {
        found.append(process)
        isFound = true
      }
    }
    return found
  }
}

/// Texts as C takes a list of them.
private final class CStrings {
  let pointer: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
  private let count: Int

  init(_ texts: [[UInt8]]) {
    count = texts.count
    pointer = .allocate(capacity: texts.count + 1)
    for (index, text) in texts.enumerated() {
      let copy = UnsafeMutablePointer<CChar>.allocate(capacity: text.count + 1)
      for (place, byte) in text.enumerated() { copy[place] = CChar(bitPattern: byte) }
      copy[text.count] = 0
      pointer[index] = copy
    }
    pointer[texts.count] = nil
  }

  deinit {
    for index in 0..<count { pointer[index]?.deallocate() }
    pointer.deallocate()
  }
}

/// What a program has written, in a file without a name.
public final class ProgramOutput: Sendable {
  public let descriptor: Int32

  /// In memory.
  ///
  /// - Throws: `memory` of class temporary.
  public init() throws(StageError) {
    descriptor = csystem_memory_file()
    guard descriptor >= 0 else {
      throw StageError(
        "memory", "no file in memory could be made", kind: .temporary, cause: String(cString: strerror(errno)))
    }
  }

  /// In a file of a folder, which has no name there.
  ///
  /// - Throws: `temporary-folder` of class temporary.
  public init(in folder: PathBytes) throws(StageError) {
    let path = folder.joining(".output")
    descriptor = path.withCString { open($0, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0o600) }
    guard descriptor >= 0 else {
      throw StageError(
        "temporary-folder", "no file can be made in \(folder.printable)", kind: .temporary,
        cause: String(cString: strerror(errno)), hint: "free some space there, or set TMPDIR to another folder")
    }
    _ = path.withCString { unlink($0) }
  }

  deinit { close(descriptor) }

  /// Bytes.
  public var count: Int {
    var status = stat()
    return fstat(descriptor, &status) == 0 ? Int(status.st_size) : 0
  }

  /// Adds bytes at the end; false where there is no room.
  public func write(_ bytes: UnsafeRawBufferPointer) -> Bool { ProgramOutput.write(bytes, to: descriptor) }

  /// To the beginning.
  public func rewind() { lseek(descriptor, 0, SEEK_SET) }

  /// The last bytes.
  public func tail(_ most: Int) -> [UInt8] {
    let size = count
    var bytes = [UInt8](repeating: 0, count: min(most, size))
    let read = pread(descriptor, &bytes, bytes.count, size - bytes.count)
    return Array(bytes.prefix(max(0, read)))
  }

  /// Writes all of some bytes; false where that fails, with the reason in `errno`.
  public static func write(_ bytes: UnsafeRawBufferPointer, to descriptor: Int32) -> Bool {
    var rest = bytes
    while !rest.isEmpty {
      let written = Glibc.write(descriptor, rest.baseAddress, rest.count)
      if written < 0 {
        if errno == EINTR { continue }
        return false
      }
      rest = UnsafeRawBufferPointer(rebasing: rest[written...])
    }
    return true
  }
}
