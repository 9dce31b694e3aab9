import Dispatch
import Glibc
import Imaging
import JobSyntax
import PipelineKit
import Synchronization

/// How a run ended.
public struct RunOutcome: Sendable {
  public var counts: ItemCounts
  public var stop: StopReason?
  /// Seconds from the start of the first item to the end of the last.
  public var wallSeconds: Double
  public var cpuSeconds: Double
  public var peakBytes: Int
  public var workers: Int
  /// Workers whose call had not come back when an item's time was over. Some may still be busy.
  public var abandonedWorkers: Int
  /// Problems of stages while finishing.
  public var finishErrors: [StageError]
  /// Why no item could be started at all.
  public var startError: StageError?

  /// Interrupted, then a limit, then failures: the first that applies.
  public var exitCode: Int32 {
    if let startError { return startError.kind == .job ? 3 : 4 }
    return switch stop {
    case .interrupted(let signal): 128 + signal
    // A deadline that passed while the last items ended has stopped nothing.
    case .deadline where counts[.notAttempted] > 0: 5
    case .deadline, .failure, nil: counts.hasFailures || !finishErrors.isEmpty ? 1 : 0
    }
  }
}

/// What a run is known by, in all processes that work for it.
public struct RunIdentity: Sendable {
  public var runID: String
  /// Seconds since 1970.
  public var started: Double
  /// Goes into the names of temporary files, where another process of the run uses the others.
  public var part: String?

  public init(runID: String, started: Double, part: String? = nil) {
    self.runID = runID
    self.started = started
    self.part = part
  }

  /// A run that starts now.
  static func new() -> RunIdentity {
    let now = RunClock.now()
    return RunIdentity(runID: RunClock.identifier(of: now), started: now)
  }
}

/// One run of one job: plan it, execute it, report it.
public final class JobRun: Sendable {
  public let job: Job
  public let options: RunOptions
  public let values: RunValues
  public let workers: Int
  /// Seconds since 1970.
  public let started: Double
  private let names: OutputNames
  private let facts = RunFacts()
  private let spool: ReportSpool?

  private struct State {
    var executor: Executor?
    var pendingStop: StopReason?
    var journal: RunJournal?
    var launcher: ChildLauncher?
  }
  private let state = Mutex(State())

  /// - Parameter identity: of a run that another process has begun; nil for one that starts now.
  public init(job: Job, options: RunOptions, identity: RunIdentity? = nil) {
    let identity = identity ?? .new()
    self.job = job
    self.options = options
    workers = max(1, options.jobs ?? Machine.processors)
    started = identity.started
    values = RunValues(
      baseFolder: job.baseFolder, runID: identity.runID, runDate: RunClock.day(of: started, zone: job.timeZone),
      shard: identity.part)
    names = OutputNames(job: job, run: values)
    spool = options.keepsReport ? ReportSpool(folder: "/var/tmp") : nil
  }

  /// Works out what there is to do. Reads folders, lists and manifests, but no picture.
  public func plan() throws(InputError) -> RunPlan { try Planner.plan(job, run: values) }

  /// Where an item's outputs go, in the order of the chain; nil for names that are only known during the run.
  public func outputs(of plan: RunPlan, at index: Int) -> [PathBytes?] {
    names.all(for: plan.identity(of: plan.inputs[index]))
  }

  /// Lets items be worked on in other processes of this program, where calls that do not return have cost too many
  /// threads of this one. For the one run of a command line program that `PipelineCommand` has started: the program is
  /// started again with its own arguments.
  ///
  /// - Parameter jobText: the job file as it was read.
  public func keepJournal(of plan: RunPlan, jobText: [UInt8]) {
    guard let journal = RunJournal.make(items: plan.inputs.count) else { return }
    let launcher = ChildLauncher(
      journal: journal,
      begin: Message.make(
        "begin",
        [
          ("job", .string(String(decoding: jobText, as: UTF8.self))), ("file", .string(job.file)),
          ("folder", .string(job.baseFolder.display)), ("run", .string(values.runID)), ("started", .number(started)),
        ]))
    state.withLock { state in
      state.journal = journal
      state.launcher = launcher
    }
  }

  /// Does the work. Nothing is thrown once the first item has started: from then on the outcome tells.
  ///
  /// - Throws: where a stage cannot be made ready: a library, a model or a background is missing.
  public func execute(_ plan: RunPlan, observer: any RunObserver) throws(StageError) -> RunOutcome {
    let stages = plan.workCount > 0 ? try makeStages(workCount: plan.workCount) : []
    let (journal, launcher) = state.withLock { ($0.journal, $0.launcher) }
    let executor = Executor(
      stages: stages,
      configuration: .init(
        computeWorkers: workers, memoryLimit: job.memoryLimit ?? Machine.memory / 2,
        itemDeadline: .seconds(job.itemDeadline), deadline: job.deadline.map { .seconds($0) },
        graceTime: .seconds(job.graceTime), stopsOnFailure: options.failFast || job.onError == .stop),
      itemCount: plan.inputs.count, run: values, protected: plan.protected,
      journal: journal, launcher: launcher, observer: Recorder(spool: spool, journal: journal, next: observer),
      items: { plan.item(at: $0) })
    let pending = state.withLock { state in
      state.executor = executor
      return state.pendingStop
    }
    if let pending { executor.stop(pending) }
    let begin = ContinuousClock.now
    let result = executor.execute()
    let wall = ContinuousClock.now - begin
    let finishErrors = result.finishErrors + Self.finish(stages)
    // Only a run that was cut short leaves any: their writers are gone or will be with the process.
    executor.temporaries.sealAndRemove()
    let usage = Machine.usage
    return RunOutcome(
      counts: result.counts, stop: result.stop, wallSeconds: wall / .seconds(1),
      cpuSeconds: usage.cpuSeconds, peakBytes: usage.peakBytes, workers: workers,
      abandonedWorkers: result.hungWorkers, finishErrors: finishErrors)
  }

  /// The outcome of a run whose stages could not be made ready: every item that had work to do was not attempted.
  public func outcome(of plan: RunPlan, failedToStart error: StageError) -> RunOutcome {
    var counts = ItemCounts()
    for index in plan.inputs.indices {
      let record: ItemRecord
      switch plan.item(at: index) {
      case .decided(let decided): record = decided
      case .run(let identity):
        var untried = ItemRecord(index: index, input: identity.name.display, status: .notAttempted)
        untried.reason = "the run could not start"
        record = untried
      }
      counts[record.status] += 1
      spool?.append(record)
    }
    let usage = Machine.usage
    return RunOutcome(
      counts: counts, stop: nil, wallSeconds: 0, cpuSeconds: usage.cpuSeconds, peakBytes: usage.peakBytes,
      workers: workers, abandonedWorkers: 0, finishErrors: [], startError: error)
  }

  /// Ends the run early, from any thread: items in flight get the grace time; the second call ends them at once.
  public func stop(signal: Int32) {
    let executor = state.withLock { state in
      if state.executor == nil { state.pendingStop = .interrupted(signal) }
      return state.executor
    }
    executor?.stop(.interrupted(signal))
  }

  /// Whether the stages are ready and items are being worked on. Until then `stop` waits for what a library is doing,
  /// such as loading a model.
  public var isWorking: Bool { state.withLock { $0.executor != nil } }

  /// Writes the JSON report, atomically. Needs `keepsReport`.
  public func writeReport(to path: PathBytes, outcome: RunOutcome) throws(StageError) {
    try spool?.write(to: path, run: runObject(outcome), tag: values.runID)
  }

  private func runObject(_ outcome: RunOutcome) -> JSONText {
    var versions: [(String, JSONText)] = [
      ("pipeline", .string(options.programVersion)), ("libvips", .string(Libvips.version)),
    ]
    var other: [(String, JSONText)] = []
    for (name, value) in facts.all {
      if name.hasPrefix("version.") {
        versions.append((String(name.dropFirst(8)), value))
      } else {
        other.append((name, value))
      }
    }
    let stop: JSONText =
      switch outcome.stop {
      case .interrupted(let signal): .string("signal \(signal)")
      case .deadline: "deadline"
      case .failure: "failure"
      case nil: nil
      }
    return .object(
      [
        ("id", .string(values.runID)), ("job", .string(job.name)), ("file", .string(job.file)),
        ("started", .string(RunClock.timestamp(of: started))),
        ("wallSeconds", .number(Self.rounded(outcome.wallSeconds))),
        ("cpuSeconds", .number(Self.rounded(outcome.cpuSeconds))), ("peakBytes", .integer(outcome.peakBytes)),
        ("workers", .integer(outcome.workers)), ("versions", .object(versions)),
      ] + other + [
        ("stop", stop),
        (
          "errors",
          .array(
            outcome.finishErrors.map { .object([("code", .string($0.code)), ("message", .string($0.description))]) })
        ),
        (
          "error",
          outcome.startError.map { .object([("code", .string($0.code)), ("message", .string($0.description))]) } ?? nil
        ),
        ("exitCode", .integer(Int(outcome.exitCode))), ("counts", outcome.counts.json),
      ])
  }

  private static func rounded(_ seconds: Double) -> Double { (seconds * 1000).rounded() / 1000 }

  func makeStages(workCount: Int) throws(StageError) -> [ExecutableStage] {
    Machine.boundAllocator(workers: workers)
    do throws(ImagingError) {
      try Libvips.start()
    } catch {
      throw StageError(
        "libvips-missing", error.message, kind: .environment, cause: error.detail.isEmpty ? nil : error.detail,
        hint: error.hint)
    }
    // One libvips thread a picture while there are pictures enough for every worker; more only when there are not.
    Libvips.setConcurrency(max(1, workers / max(1, min(workers, workCount))))
    let resources = StageResources(
      run: values, computeWorkers: workers, facts: facts, decodeLimits: job.decodeLimits,
      keepsSourceHash: job.namesSourceHash)
    var stages: [ExecutableStage] = []
    for stage in job.stages {
      do throws(StageError) {
        stages.append(
          ExecutableStage(
            label: stage.label, plan: stage.plan, stage: try stage.descriptor.make(stage.settings, resources)))
      } catch {
        _ = Self.finish(stages)
        var error = error
        error.message = "stage \"\(stage.label)\" cannot start: \(error.message)"
        throw error
      }
    }
    return stages
  }

  /// Lets every stage finish; one that does not return within ten seconds is left behind.
  static func finish(_ stages: [ExecutableStage]) -> [StageError] {
    let errors = Mutexed<[StageError]>([])
    for stage in stages {
      let done = DispatchSemaphore(value: 0)
      DispatchQueue(label: "pipeline.finish.\(stage.label)").async {
        do throws(StageError) {
          try stage.stage.finish()
        } catch {
          errors.value.withLock { $0.append(error) }
        }
        done.signal()
      }
      if done.wait(timeout: .now() + 10) == .timedOut {
        errors.value.withLock {
          $0.append(
            StageError("finish-timeout", "stage \"\(stage.label)\" did not finish within 10 s", kind: .temporary))
        }
      }
    }
    return errors.value.withLock { $0 }
  }

  private final class Mutexed<Value: Sendable>: Sendable {
    let value: Mutex<Value>
    init(_ value: Value) { self.value = Mutex(value) }
  }

  /// Keeps each record for the report before anyone else sees it.
  private struct Recorder: RunObserver {
    let spool: ReportSpool?
    let journal: RunJournal?
    let next: any RunObserver

    func itemEnded(_ record: ItemRecord, finished: Int) {
      spool?.append(record)
      journal?.end(record.index, record.status)
      next.itemEnded(record, finished: finished)
    }
  }
}
