import CSystem
import Glibc
import JobSyntax
import PipelineKit

/// A run that this same process has begun, and in which the program then crashed: what is known of it.
///
/// The fault handler has replaced the program by itself (`csystem_take_up`). The process is the same to everyone who
/// watches it; all memory is new. What the run has kept outside of it is the journal, its plan, and the records of the
/// items that have ended.
public struct PastRun: Sendable {
  let journal: RunJournal
  private let file: PlanFile

  /// The text of the job that is being run, what it is called and where its paths start.
  public var jobText: [UInt8] { file.jobText }
  public var jobFile: String { file.jobFile }
  public var baseFolder: PathBytes { file.baseFolder }
  public var runID: String { file.identity.runID }
  /// Where the report goes; absolute.
  public var reportPath: PathBytes? { file.reportPath }
  /// The signal of the crash; 0 where a library ended the program.
  public let crashSignal: Int32
  /// How often the program has crashed in this run.
  public let crashes: Int
  /// The signal that was asked to end the run before.
  public let stopSignal: Int32?
  /// How many items have ended, by status.
  public let counts: ItemCounts
  /// The items that were in flight, in input order.
  let suspects: [Int]
  /// Seconds since the first item was started.
  public let elapsed: Double

  /// `SIGSEGV`, or what else ended the program.
  public var crashCause: String { crashSignal == 0 ? "a library called exit" : SignalName.text(crashSignal) }

  /// Whether all items had ended.
  public var isAtEnd: Bool { counts.total == journal.itemCount }

  /// What a crash after the last item leaves to say: whether stages could finish is not known.
  var errorOfTheEnd: StageError {
    StageError(
      "crash", "the program crashed (\(crashCause)) after the last picture had ended",
      hint: "every picture is as reported; what stages do when a run is over may not have been done")
  }

  /// What was in flight, as found.
  public var suspectNames: [PathBytes] { suspects.map { file.inputs[$0].name } }

  /// The run that was being worked on, where this program has crashed and taken up.
  ///
  /// What libraries wrote and was not yet shown comes back with the next start of `csystem_capture_begin`.
  public static func inherited() -> PastRun? {
    let parts = String(cString: csystem_program_word()).split(separator: ":")
    guard parts.first == "run" else { return nil }
    guard parts.count == 2, let descriptor = Int32(parts[1]),
      let journal = RunJournal.open(descriptor, owner: getpid())
    else { abort() }
    guard let file = PlanFile(journal.planDescriptor), file.inputs.count == journal.itemCount else {
      // Nothing can be taken up: the process ends as it would have.
      let number = journal.crashSignal
      signal(number, SIG_DFL)
      raise(number)
      abort()
    }
    return PastRun(journal: journal, file: file)
  }

  private init(journal: RunJournal, file: PlanFile) {
    self.journal = journal
    self.file = file
    crashSignal = journal.crashSignal
    crashes = journal.crashes
    stopSignal = journal.stopSignal == 0 ? nil : journal.stopSignal
    elapsed = journal.elapsed
    var counts = ItemCounts()
    var suspects: [Int] = []
    for index in 0..<journal.itemCount {
      switch journal[index] {
      case .untouched: break
      case .inStage: suspects.append(index)
      case .ended(let status): counts[status] += 1
      }
    }
    self.counts = counts
    self.suspects = suspects
    journal.continueCapture()
    journal.endChildren()
    journal.removeTemporaries(of: nil)
  }

  /// Whether an item has ended before the crash.
  public func hasEnded(_ index: Int) -> Bool { if case .ended = journal[index] { true } else { false } }

  func input(at index: Int) -> PathBytes { file.inputs.path(at: index) }

  var identity: RunIdentity {
    var identity = file.identity
    identity.part = "again-\(crashes)"
    return identity
  }

  /// The plan as it was made when the run began.
  public func plan(_ job: Job) -> RunPlan {
    var plan = RunPlan()
    plan.inputs = file.inputs
    plan.decisions = file.decisions
    plan.countOccurrences()
    var resolver = FolderResolver()
    plan.list = file.list
    plan.protected = ProtectedPaths(
      inputHashes: file.protectedInputs, others: Planner.otherFiles(of: job), resolver: &resolver)
    return plan
  }
}
