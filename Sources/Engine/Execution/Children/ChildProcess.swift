import CSystem
import Glibc
import JobSyntax
import PipelineKit
import Synchronization

/// A process of this same program that works on items of this run, one after the other, and can be killed while it does.
final class ChildProcess: Sendable {
  /// How a child ended.
  enum End: Sendable {
    case signal(Int32)
    case exit(Int32)
    /// It was killed and is not gone yet: it hangs in the kernel.
    case stuck
  }

  let identifier: pid_t
  let conversation: Conversation
  private let journal: RunJournal
  /// Nil while it may run; a process that was waited for must not be sent signals, its number may be another's.
  private let end = Mutex<End?>(nil)

  private init(identifier: pid_t, conversation: Conversation, journal: RunJournal) {
    self.identifier = identifier
    self.conversation = conversation
    self.journal = journal
  }

  /// Starts a child; it has no work yet.
  ///
  /// - Throws: `child-start` of class temporary.
  static func start(journal: RunJournal) throws(StageError) -> ChildProcess {
    var ends: [Int32] = [-1, -1]
    guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else {
      throw failure(String(cString: strerror(errno)))
    }
    let conversation = Conversation(ends[0])
    defer { close(ends[1]) }
    var identifier: Int32 = 0
    let word = "child:\(ends[1]):\(journal.descriptor)"
    let problem = csystem_program_spawn(word, ends[1], journal.descriptor, &identifier)
    guard problem == 0 else { throw failure(String(cString: strerror(problem))) }
    journal.add(child: identifier)
    return ChildProcess(identifier: identifier, conversation: conversation, journal: journal)
  }

  static func failure(_ cause: String) -> StageError {
    StageError("child-start", "no process could be started for the picture", kind: .temporary, cause: cause)
  }

  /// Ends the child at once, wherever it is.
  func kill() {
    end.withLock { end in
      if end == nil { _ = Glibc.kill(identifier, SIGKILL) }
    }
  }

  /// Waits for the end of a child that was killed or has closed its side of the conversation, and removes what it left
  /// behind.
  func reap(waiting seconds: Double = 10) -> End {
    let deadline = ContinuousClock.now + .seconds(seconds)
    while true {
      let ended: End? = end.withLock { end in
        if let end { return end }
        var status: Int32 = 0
        let result = waitpid(identifier, &status, WNOHANG)
        if result == 0 || (result < 0 && errno == EINTR) { return nil }
        let signal = status & 0x7f
        end = result < 0 || signal == 0 ? .exit(status >> 8 & 0xff) : .signal(signal)
        journal.remove(child: identifier)
        return end
      }
      if let ended {
        journal.removeTemporaries(of: identifier)
        return ended
      }
      guard ContinuousClock.now < deadline else { return .stuck }
      _ = poll(nil, 0, 2)
    }
  }
}

/// What it takes to start children for a run.
struct ChildLauncher: Sendable {
  var journal: RunJournal
  /// The first message: which job and which run.
  var begin: JSONText

  /// Making a child's stages ready may mean loading a model.
  private static let startSeconds = 60.0

  /// Starts a child and waits until its stages are ready.
  ///
  /// - Parameter onSpawn: given the child before it is ready, so that it can be killed.
  /// - Throws: `child-start`, or what keeps the stages from being made.
  func start(onSpawn: (ChildProcess) -> Void) throws(StageError) -> ChildProcess {
    let child = try ChildProcess.start(journal: journal)
    onSpawn(child)
    let deadline = ContinuousClock.now + .seconds(Self.startSeconds)
    let answer = child.conversation.send(begin, until: deadline) ? child.conversation.receive(until: deadline) : .closed
    if case .message(let message) = answer, Message.kind(message) == "ready" { return child }
    child.kill()
    let end = child.reap()
    if case .message(let message) = answer, let error = message["error"].flatMap({ StageError($0) }) { throw error }
    if case .timeout = answer { throw ChildProcess.failure("it was not ready within \(Int(Self.startSeconds)) s") }
    switch end {
    case .signal(let number) where number != SIGKILL:
      throw ChildProcess.failure("it crashed while it started (\(SignalName.text(number)))")
    default: throw ChildProcess.failure("it ended while it started")
    }
  }
}
