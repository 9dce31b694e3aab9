import Glibc
import JobSyntax
import PipelineKit
import Synchronization

/// One run of a job with its state folder, from locking it to booking how the run ended: what a program needs that runs
/// jobs itself.
///
///     let session = try JobSession(job)
///     let plan = try session.plan()
///     let outcome = try session.run(plan, observer: observer)
///
/// What is up to date is skipped, what is made is booked, and nothing is paid for twice, as with the command line
/// program. The lock is held as long as the session lives. Crashes of a decoder end the whole process here: only a
/// program that is started again by its own arguments outlives them.
public final class JobSession: Sendable {
  public let job: Job
  /// For outputs, the report, and stopping from another thread, while the session lives: lock and ledger are its own.
  public let jobRun: JobRun
  private let history: RunHistory
  private let lock: StateLock
  private let hasRun = Atomic<Bool>(false)

  /// Opens and locks the job's state folder, which is made where it is missing.
  ///
  /// - Parameters:
  ///   - state: the folder, instead of the job's own or `.pipeline` beside the job file.
  ///   - waiting: seconds to wait for another run to end; nil does not wait.
  ///   - job: the job, without errors.
  ///   - options: what the caller adds to the job.
  ///   - historyOptions: how what earlier runs have done is treated.
  /// - Throws: `locked` of class temporary where another run holds the lock; errors of class environment where the
  ///   folder or its ledger cannot be used.
  public init(
    _ job: Job, options: RunOptions = RunOptions(), history historyOptions: HistoryOptions = HistoryOptions(),
    state: PathBytes? = nil, waiting: Double? = nil
  ) throws(StageError) {
    self.job = job
    let identity = RunIdentity.new()
    let folder = StateFolder.locate(
      state ?? job.stateFolder ?? job.baseFolder.joining(".pipeline"),
      shard: options.shard.map { ($0.index, $0.count) })
    try folder.make()
    switch try StateLock.acquire(folder, run: identity.runID, job: job.name, waiting: waiting) {
    case .acquired(let lock): self.lock = lock
    case .held(let holder):
      throw StageError(
        "locked", "\(holder?.description ?? "another run") holds the lock of \(folder.ledgerFolder.printable)",
        kind: .temporary)
    }
    do throws(StageError) {
      guard let ledger = try Ledger.open(folder, .readWrite) else {
        throw StageError("state-missing", "there is no ledger in \(folder.path.printable)", kind: .environment)
      }
      history = try RunHistory(job, ledger: ledger, folder: folder, options: historyOptions)
    } catch {
      lock.release()
      throw error
    }
    jobRun = JobRun(job: job, options: options, identity: identity, history: history)
  }

  deinit {
    history.ledger.close()
    lock.release()
  }

  /// Works out what there is to do. Reads folders, lists and manifests, but no picture.
  ///
  /// Findings of the plan, such as outputs that collide, are for the caller to look at: `run` refuses errors among them.
  public func plan() throws(PlanError) -> RunPlan { try jobRun.plan() }

  /// Does the work and books it; once. Blocks until all has ended; `jobRun.stop` ends it early from another thread.
  ///
  /// - Parameters:
  ///   - report: where the JSON report goes; needs `RunOptions.keepsReport`.
  ///   - observer: told of each item as it ends, from any thread.
  ///   - plan: what `plan` answered.
  /// - Throws: `plan-findings` of class job where the plan has errors; where a stage cannot be made ready; where the
  ///   ledger or the report cannot be written; `session-over` of class job the second time. Failures of items are in the
  ///   outcome.
  public func run(
    _ plan: RunPlan, report: PathBytes? = nil, observer: any RunObserver
  ) throws(StageError) -> RunOutcome {
    guard hasRun.compareExchange(expected: false, desired: true, ordering: .relaxed).exchanged else {
      throw StageError("session-over", "a session runs its job once", kind: .job, hint: "make another session")
    }
    if let error = plan.findings.first(where: { $0.severity == .error }) {
      throw StageError("plan-findings", error.message, kind: .job, hint: error.hint)
    }
    var entry = LedgerRun(
      id: jobRun.values.runID, job: history.job, jobName: job.name, started: jobRun.started, ended: nil, exitCode: nil,
      stop: nil, counts: "", shard: jobRun.options.shard?.label, host: Machine.hostName, pid: getpid(),
      version: jobRun.options.programVersion, reportPath: report)
    try jobRun.begin(entry, plan)
    let outcome: RunOutcome
    var startError: StageError?
    do throws(StageError) {
      outcome = try jobRun.execute(plan, observer: observer)
    } catch {
      outcome = jobRun.outcome(of: plan, failedToStart: error)
      startError = error
    }
    var reportError: StageError?
    if let report {
      do throws(StageError) { try jobRun.writeReport(to: report, outcome: outcome) } catch { reportError = error }
    }
    let problem = history.end(&entry, outcome, exitCode: outcome.exitCode)
    if let error = startError ?? reportError ?? problem { throw error }
    return outcome
  }
}
