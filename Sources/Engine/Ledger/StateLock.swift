import Glibc
import JobSyntax
import PipelineKit
import Synchronization

/// The right to write to a folder's ledger: a lock of the kernel's, which no crash leaves behind.
///
/// It is an `fcntl` lock of the whole file `lock`: those work on NFS, tell who holds them, and stay with a process that
/// replaces itself. They are a process's: children do not inherit them, and closing any descriptor of the file gives
/// them up, so the file is opened once a process, and a second attempt of the same process is told who holds it.
public final class StateLock: Sendable {
  /// Who holds a lock, by what they have written into its file.
  public struct Holder: Sendable, Hashable {
    public var pid: Int32
    public var host: String
    /// Nil where they have not written it yet.
    public var run: String?
    public var job: String?
    /// Seconds since 1970.
    public var started: Double?

    /// For messages: `run 20260501-020304-a1b2c3 of job.json, process 4711 on host-a`.
    public var description: String {
      var text = run.map { "run \($0)" + (job.map { " of \(PathBytes($0).printable)" } ?? "") + ", " } ?? ""
      text += "process \(pid)"
      if !host.isEmpty { text += " on \(PathBytes(host).printable)" }
      return text
    }
  }

  public enum Attempt: Sendable {
    case acquired(StateLock)
    /// Nil where the kernel does not tell.
    case held(Holder?)
  }

  /// What this process holds: the kernel does not refuse it a second time.
  private static let own = Mutex<[FileIdentity: Holder]>([:])

  private let place: FileIdentity
  private let descriptor: Mutex<Int32>

  private init(_ descriptor: Int32, _ place: FileIdentity) {
    self.descriptor = Mutex(descriptor)
    self.place = place
  }

  deinit { release() }

  /// Takes the lock of a folder, which must be there.
  ///
  /// - Parameters:
  ///   - run: the run's identifier.
  ///   - waiting: seconds to wait for another holder; nil for not at all, infinity for ever.
  ///   - onWait: told once who is waited for.
  ///   - isCancelled: asked several times a second while waiting; true ends it.
  ///   - job: the name of the job, for whoever finds the lock held.
  ///   - folder: the state folder, which must be there.
  /// - Throws: `state-lock` of class environment: the file cannot be made, or its file system has no locks.
  public static func acquire(
    _ folder: StateFolder, run: String, job: String, waiting: Double? = nil,
    onWait: (Holder?) -> Void = { _ in }, isCancelled: () -> Bool = { false }
  ) throws(StageError) -> Attempt {
    let clock = ContinuousClock()
    let begin = clock.now
    var pause: Int32 = 20
    var isFirst = true
    while true {
      let attempt = try tryOnce(folder, run: run, job: job)
      guard case .held(let holder) = attempt, let waiting, !isCancelled() else { return attempt }
      let passed = begin.duration(to: clock.now)
      let seconds = Double(passed.components.seconds) + Double(passed.components.attoseconds) / 1e18
      guard seconds < waiting else { return attempt }
      if isFirst { onWait(holder) }
      isFirst = false
      _ = poll(nil, 0, min(pause, Int32(min(250, max(1, (waiting - seconds) * 1000)))))
      pause = min(250, pause * 2)
    }
  }

  private static func tryOnce(_ folder: StateFolder, run: String, job: String) throws(StageError) -> Attempt {
    let path = folder.lockFile
    // One thread at a time looks at what this process holds and opens the file.
    let answer: Result<Attempt, StageError> = own.withLock { own in
      var status = stat()
      if path.withCString({ stat($0, &status) }) == 0, let holder = own[FileStatus(status).identity] {
        return .success(.held(holder))
      }
      // Stays open when the program replaces itself, and the lock with it.
      let file = path.withCString { open($0, O_RDWR | O_CREAT | O_NOCTTY | O_NONBLOCK, 0o600) }
      guard file >= 0 else { return .failure(failure(path, errno)) }
      guard fstat(file, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
        close(file)
        return .failure(failure(path, EINVAL))
      }
      var request = whole(F_WRLCK)
      if fcntl(file, F_SETLK, &request) != 0 {
        let code = errno
        defer { close(file) }
        guard code == EAGAIN || code == EACCES else { return .failure(failure(path, code)) }
        return .success(.held(holder(file)))
      }
      let place = FileStatus(status).identity
      guard path.withCString({ stat($0, &status) }) == 0, FileStatus(status).identity == place else {
        // Somebody has removed the file meanwhile: others would lock another one.
        close(file)
        return .success(.held(nil))
      }
      fchmod(file, 0o600)
      let holder = Holder(
        pid: getpid(), host: Machine.hostName, run: run, job: job, started: RunClock.now())
      write(holder, to: file)
      own[place] = holder
      return .success(.acquired(StateLock(file, place)))
    }
    return try answer.get()
  }

  /// Who holds the lock of a folder now; nil where nobody does, or where it cannot be told.
  public static func holder(of folder: StateFolder) -> Holder? {
    own.withLock { own in
      var status = stat()
      guard folder.lockFile.withCString({ stat($0, &status) }) == 0 else { return nil }
      if let holder = own[FileStatus(status).identity] { return holder }
      let file = folder.lockFile.withCString { open($0, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) }
      guard file >= 0 else { return nil }
      defer { close(file) }
      return holder(file)
    }
  }

  /// Gives the lock up; once, whoever calls how often.
  public func release() {
    descriptor.withLock { descriptor in
      guard descriptor >= 0 else { return }
      let file = descriptor
      descriptor = -1
      Self.own.withLock { own in
        own[place] = nil
        // What is left would name a holder that is none to whoever reads just the file.
        ftruncate(file, 0)
        close(file)
      }
    }
  }

  private static func whole(_ kind: Int32) -> flock {
    flock(l_type: Int16(kind), l_whence: Int16(SEEK_SET), l_start: 0, l_len: 0, l_pid: 0)
  }

  private static func holder(_ file: Int32) -> Holder? {
    var question = whole(F_WRLCK)
    guard fcntl(file, F_GETLK, &question) == 0, question.l_type != Int16(F_UNLCK) else { return nil }
    var buffer = [UInt8](repeating: 0, count: 16_384)
    let count = pread(file, &buffer, buffer.count, 0)
    let (root, _) = StrictJSON.parse(SourceFile(name: "lock", text: Array(buffer.prefix(max(0, count)))))
    guard let root, let pid = (root["pid"]?.numberValue?.double).flatMap({ Int32(exactly: $0) }),
      let host = root["host"]?.stringValue
    else {
      return question.l_pid > 0 ? Holder(pid: question.l_pid, host: "") : nil
    }
    // On this machine the kernel knows better, and the file may still be that of the holder before. Of a process on
    // another machine, or in another container, it knows no number.
    if host == Machine.hostName, question.l_pid > 0, question.l_pid != pid {
      return Holder(pid: question.l_pid, host: host)
    }
    return Holder(
      pid: pid, host: host, run: root["run"]?.stringValue, job: root["job"]?.stringValue,
      started: root["started"]?.numberValue?.double)
  }

  private static func write(_ holder: Holder, to file: Int32) {
    let text = JSONText.object([
      ("pid", .integer(Int(holder.pid))), ("host", .string(holder.host)), ("run", .string(holder.run ?? "")),
      ("job", .string(holder.job ?? "")), ("started", .number(holder.started ?? 0)),
    ])
    let bytes = Array((text.rendered() + "\n").utf8)
    // For people: where the disk is full, the kernel still knows who it is.
    ftruncate(file, 0)
    pwrite(file, bytes, bytes.count, 0)
  }

  private static func failure(_ path: PathBytes, _ code: Int32) -> StageError {
    let words = String(cString: strerror(code))
    if code == ENOLCK || code == ENOSYS || code == EOPNOTSUPP {
      return StageError(
        "state-lock", "the file system of \(path.printable) has no locks", kind: .environment, cause: words,
        hint: "choose a folder on another disk with --state DIR")
    }
    return StageError(
      "state-lock", "\(path.printable) cannot be locked", kind: .environment, cause: words,
      hint: "choose another folder with --state DIR")
  }
}
