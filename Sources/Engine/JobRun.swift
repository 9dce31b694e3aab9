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
  /// How often the program crashed and took up again.
  public var crashes: Int
  /// Problems of stages while finishing.
  public var finishErrors: [StageError]
  /// Why no item could be started at all.
  public var startError: StageError?
  /// Whether items were not attempted since a limit was reached: a budget, a quota, a service that asks to wait.
  public var isLimited = false
  /// All inputs of the job, where the run was one shard of it.
  public var list = InputsDigest()

  /// Interrupted, then a limit, then failures: the first that applies.
  public var exitCode: Int32 {
    if let startError { return startError.kind == .job ? 3 : 4 }
    return switch stop {
    case .interrupted(let signal): 128 + signal
    // A deadline that passed while the last items ended has stopped nothing.
    case .deadline where counts[.notAttempted] > 0: 5
    case _ where isLimited: 5
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
  /// Whether the run keeps a ledger, so that the hash of every input is wanted.
  var keepsHistory = false
  /// See `RunValues.followsCutRun`.
  var followsCutRun = false

  public init(runID: String, started: Double, part: String? = nil) {
    self.runID = runID
    self.started = started
    self.part = part
  }

  /// A run that starts now.
  public static func new() -> RunIdentity {
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
  private let claims = OutputClaims()
  private let past: PastRun?
  private let history: RunHistory?
  private let spendingBook: SpendingBook?
  private let keepsSourceHash: Bool
  /// After so many crashes all items are worked on in children: each costs the time of a start, and pictures that were
  /// in flight for nothing.
  private static let mostCrashes = 3

  private struct State {
    var executor: Executor?
    var pendingStop: StopReason?
    var journal: RunJournal?
    var launcher: ChildLauncher?
    /// Whether the program could go on after a crash.
    var canTakeUp = false
    /// Items whose output had taken their input's place when the program crashed, before they had ended.
    var replacedInputs: Set<Int> = []
  }
  private let state = Mutex(State())

  /// - Parameters:
  ///   - identity: of a run that another process has begun; nil for one that starts now.
  ///   - past: the run, where the program has crashed in it.
  ///   - history: what earlier runs have done, and where this one books; nil for a run that remembers nothing.
  ///   - options: what the caller adds to the job.
  ///   - job: the job, without errors.
  ///   - spendingBook: what several runs spend together; nil where each counts for itself.
  public init(
    job: Job, options: RunOptions, identity: RunIdentity? = nil, past: PastRun? = nil, history: RunHistory? = nil,
    spendingBook: SpendingBook? = nil
  ) {
    self.history = history
    self.spendingBook = spendingBook
    let identity = past?.identity ?? identity ?? .new()
    self.past = past
    self.job = job
    self.options = options
    workers = max(1, options.jobs ?? Machine.processors)
    started = identity.started
    let parts = [options.shard?.label, identity.part].compactMap(\.self)
    values = RunValues(
      baseFolder: job.baseFolder, runID: identity.runID, runDate: RunClock.day(of: started, zone: job.timeZone),
      shard: parts.isEmpty ? nil : parts.joined(separator: "-"),
      followsCutRun: history?.followsCutRun ?? identity.followsCutRun)
    keepsSourceHash = job.namesSourceHash || history != nil || identity.keepsHistory
    names = OutputNames(job: job, run: values)
    if let past {
      spool = ReportSpool(continuing: past.journal, keepsAll: options.keepsReport)
    } else {
      spool = options.keepsReport || options.isJournaled ? ReportSpool(keepsAll: options.keepsReport) : nil
    }
  }

  /// Works out what there is to do. Reads folders, lists and manifests, but no picture.
  public func plan() throws(PlanError) -> RunPlan {
    try Planner.plan(job, run: values, shard: options.shard, history: history)
  }

  /// Where an item's outputs go, in the order of the chain; nil for names that are only known during the run.
  public func outputs(of plan: RunPlan, at index: Int) -> [PathBytes?] {
    names.all(for: plan.identity(of: plan.inputs[index], at: index))
  }

  var openEndedFolders: Set<PathBytes> { names.openEndedFolders }
  var fixedFolders: Set<PathBytes> { names.fixedFolders }

  /// Why it cannot be told whose an output is that an earlier run has written; nil where it can.
  var doubtAboutOutputs: String? {
    let unknown = names.hasUnknownNames
    if unknown.kept {
      return "with \"overwrite\": \"skip\" and names that only a run knows, such as ${item.hash}, several pictures may "
        + "share a file"
    }
    if unknown.any, options.shard != nil {
      return "names that only a run knows, such as ${item.hash}, may be another shard's too"
    }
    return nil
  }

  /// Notes in the ledger that the run begins, and clears what killed runs have left. Called under the ledger's lock,
  /// before `execute`.
  ///
  /// - Throws: `state-write` where the ledger cannot be written.
  public func begin(_ entry: LedgerRun, _ plan: RunPlan) throws(StageError) {
    guard let history else { return }
    try history.begin(entry)
    let dead = try history.ledger.unendedRuns().filter { $0.id != entry.id }
    clearLeftovers(of: dead, plan)
    for var run in dead {
      run.ended = RunClock.now()
      run.stop = LedgerRun.killed
      history.ledger.end(run)
    }
  }

  /// Takes in what a run has kept from before a crash: which outputs are written, which failures the summary has.
  /// Removes new outputs of items that had not ended, since these are made again.
  ///
  /// - Parameter body: given each record that a summary has something to say about.
  public func recall(_ body: (ItemRecord) -> Void) {
    guard let past else { return }
    var resolver = FolderResolver()
    var named = past.journal.takeNamed()
    spool?.replay { outputs, record in
      for path in outputs {
        _ = claims.claim(resolver.resolve(path))
        named[path] = nil
      }
      if let record { body(record) }
    }
    var replaced: Set<PathBytes> = []
    for (path, isNew) in named {
      if isNew { _ = path.withCString { unlink($0) } } else { replaced.insert(resolver.resolve(path)) }
    }
    guard !replaced.isEmpty else { return }
    let items = past.suspects.filter { !replaced.isDisjoint(with: resolver.places(of: past.input(at: $0))) }
    state.withLock { $0.replacedInputs = Set(items) }
  }

  /// Keeps what it takes to go on after a crash of the program, and to have items worked on in other processes, where
  /// calls that do not return have cost too many threads of this one. Needs `isJournaled`. Where this system lacks
  /// something for it, crashes and hung calls have the consequences they have anywhere.
  ///
  /// - Parameters:
  ///   - jobText: the job file as it was read.
  ///   - reportPath: where the report goes; absolute.
  ///   - plan: what there is to do.
  public func keepJournal(of plan: RunPlan, jobText: [UInt8], reportPath: PathBytes?) {
    guard options.isJournaled, let journal = past?.journal ?? .make(items: plan.inputs.count) else { return }
    let launcher = ChildLauncher(
      journal: journal,
      begin: Message.make(
        "begin",
        [
          ("job", .string(String(decoding: jobText, as: UTF8.self))), ("file", .string(job.file)),
          ("folder", .string(job.baseFolder.display)), ("run", .string(values.runID)), ("started", .number(started)),
          ("history", .bool(history != nil)), ("kept", history?.forChildren ?? nil),
          ("followsCutRun", .bool(values.followsCutRun)),
          ("shard", options.shard.map { .string($0.label) } ?? nil),
        ]))
    var canTakeUp = spool?.attach(journal) ?? false
    if past == nil, canTakeUp {
      let file = PlanFile(
        identity: RunIdentity(runID: values.runID, started: started), jobText: jobText, job: job,
        reportPath: reportPath, plan: plan)
      let descriptor = file.write()
      journal.planDescriptor = descriptor ?? -1
      canTakeUp = descriptor != nil
    }
    state.withLock { state in
      state.journal = journal
      state.launcher = launcher
      state.canTakeUp = canTakeUp
    }
  }

  /// Does the work. Nothing is thrown once the first item has started: from then on the outcome tells.
  ///
  /// - Throws: where a stage cannot be made ready: a library, a model or a background is missing.
  public func execute(_ plan: RunPlan, observer: any RunObserver) throws(StageError) -> RunOutcome {
    // After a crash at the end, or in a run that is being stopped, all that is left to do is to tell.
    let isAllDone = past?.isAtEnd ?? false
    let isStopped = past != nil && state.withLock { $0.pendingStop != nil }
    let preparing = ContinuousClock.now
    let made =
      plan.workCount > 0 && !isAllDone && !isStopped
      ? try makeStages(workCount: plan.workCount, within: job.deadline.map { .seconds($0) }) : []
    var stages = made ?? []
    // Where all are files, no more items are let in than compute workers can use.
    if plan.inputs.hasRemote {
      for index in stages.indices where stages[index].plan.opensInputs {
        stages[index].plan.exchanges = stages[index].plan.exchanges ?? job.network.requests
      }
    }
    let (journal, launcher, canTakeUp, replaced) = state.withLock {
      ($0.journal, $0.launcher, $0.canTakeUp, $0.replacedInputs)
    }
    let stopsOnFailure = options.failFast || job.onError == .stop
    var sources: DoneSources?
    if let history, job.onSuccess.changesSources {
      sources = DoneSources(
        job.onSuccess, plan: plan, run: values, history: history,
        outputCount: { [names] in names.certainCount(for: $0) }, onFate: { [spool] in spool?.append($0, isAgain: true) }
      )
    }
    if plan.workCount > 0 { claimEarlierOutputs(plan) }
    // Of libvips and of the lanes.
    let threads = workers * 4 + 16
    let limits = MachineLimits.read()
    let desk = try makeDesk()
    let executor = Executor(
      stages: stages,
      configuration: .init(
        computeWorkers: workers, exchanges: job.network.requests,
        memoryLimit: job.memoryLimit ?? limits.memoryForPictures(threads: threads),
        memoryBound: limits.bound(forThreads: threads),
        itemDeadline: .seconds(job.itemDeadline), deadline: job.deadline.map { .seconds($0) - (.now - preparing) },
        graceTime: .seconds(job.graceTime), stopsOnFailure: stopsOnFailure),
      itemCount: plan.inputs.count, run: values, protected: plan.protected,
      claims: claims, journal: journal, past: past.map { Self.past($0) }, launcher: launcher,
      observer: Recorder(
        spool: spool, journal: journal, history: history, sources: sources, plan: plan,
        keepsReport: options.keepsReport, next: observer),
      history: history, services: desk,
      items: { index in
        let item = plan.item(at: index)
        guard replaced.contains(index), case .run(let identity) = item else { return item }
        return .decided(Self.replacedRecord(of: identity))
      })
    let pending = state.withLock { state in
      state.executor = executor
      return state.pendingStop
    }
    if let pending { executor.stop(pending) }
    if made == nil { executor.stop(.deadline) }
    if stopsOnFailure, let past, past.counts[.failed] > 0 { executor.stop(.failure) }
    let begin = ContinuousClock.now
    journal?.begin()
    if canTakeUp { journal?.arm() }
    // Armed to the end of the process: a crash in what follows must not cost the report.
    let result = executor.execute()
    // Whoever waits for the run waits for models to load too.
    let wall = (journal?.elapsed ?? (ContinuousClock.now - begin) / .seconds(1)) + (begin - preparing) / .seconds(1)
    var finishErrors = result.finishErrors + Self.finish(stages)
    if let sources { finishErrors += sources.finish() }
    if let history {
      do throws(StageError) { try history.flush() } catch { finishErrors.append(error) }
    }
    if isAllDone, let past { finishErrors.append(past.errorOfTheEnd) }
    // Only a run that was cut short leaves any: their writers are gone or will be with the process.
    executor.temporaries.sealAndRemove()
    return RunOutcome(
      counts: result.counts, stop: result.stop, wallSeconds: wall,
      cpuSeconds: Machine.cpuSeconds, peakBytes: Machine.peakBytes(tookUp: past != nil), workers: workers,
      abandonedWorkers: result.hungWorkers, crashes: journal?.crashes ?? 0, finishErrors: finishErrors,
      isLimited: executor.isLimited, list: plan.list)
  }

  /// What is remembered of services; nil for a run that remembers nothing.
  private func makeDesk() throws(StageError) -> ServiceDesk? {
    guard let history else { return nil }
    let beginnings = RunClock.beginnings(of: started)
    let desk = ServiceDesk(
      ledger: history.ledger, job: history.job, run: values.runID, budget: job.budget, book: spendingBook,
      dayBegan: beginnings.day, monthBegan: beginnings.month, isForced: { history.isForced(stage: $0) })
    try desk.takeStock { history.holdsPaidResult($0) }
    return desk
  }

  /// Keeps this run from replacing what earlier ones have made of other pictures: of those that are up to date, where
  /// the plan could not prove the names, and of those whose sources are gone by the job's own doing, which nobody could
  /// make again.
  private func claimEarlierOutputs(_ plan: RunPlan) {
    guard let history else { return }
    var resolver = FolderResolver()
    func claim(_ outputs: [OutputRecord]) {
      for output in outputs {
        if case .path(let path) = output.place { _ = claims.claim(resolver.resolve(path)) }
      }
    }
    if names.hasUnknownNames.any {
      for (index, decision) in plan.decisions {
        guard case .skip = decision else { continue }
        claim(history.outputs(of: plan.identity(of: plan.inputs[index], at: index)))
      }
    }
    guard job.onSuccess.changesSources else { return }
    let keys = Set(plan.inputs.indices.map { RunHistory.key(of: plan.identity(of: plan.inputs[$0], at: $0)) })
    // What cannot be read here stops the run elsewhere.
    try? history.ledger.forEachItem(job: history.job) { item in
      let name = PathBytes(item.key.prefix { $0 != 0 })
      guard item.status == .done, !keys.contains(item.key),
        (try? history.ledger.fate(job: history.job, source: name)) != nil
      else { return }
      claim(item.outputs.map(\.record))
    }
  }

  /// The picture has been replaced by its result, which must not be taken for the picture and worked on again.
  private static func replacedRecord(of identity: ItemIdentity) -> ItemRecord {
    var record = ItemRecord(
      index: identity.index, inputIndex: identity.inputIndex, input: identity.name.display, status: .failed)
    record.error = StageError(
      "crash", "the program crashed when the picture had been replaced by its result and this was not yet checked",
      hint: "look at the picture; a run that does not replace its inputs could have tried again")
    return record
  }

  private static func past(_ past: PastRun) -> Executor.Past {
    Executor.Past(
      elapsed: .seconds(past.journal.elapsed), counts: past.counts, suspects: past.suspects,
      usesChildren: past.journal.usesChildren || past.crashes >= mostCrashes)
  }

  /// The outcome of a run whose stages could not be made ready: every item that had work to do was not attempted.
  public func outcome(of plan: RunPlan, failedToStart error: StageError) -> RunOutcome {
    var counts = past?.counts ?? ItemCounts()
    for index in plan.inputs.indices where past?.hasEnded(index) != true {
      let record: ItemRecord
      switch plan.item(at: index) {
      case .decided(let decided): record = decided
      case .run(let identity):
        var untried = ItemRecord(
          index: index, inputIndex: identity.inputIndex, input: identity.name.display, status: .notAttempted)
        untried.reason = "the run could not start"
        record = untried
      }
      counts[record.status] += 1
      spool?.append(record)
    }
    return RunOutcome(
      counts: counts, stop: nil, wallSeconds: 0, cpuSeconds: Machine.cpuSeconds,
      peakBytes: Machine.peakBytes(tookUp: past != nil),
      workers: workers, abandonedWorkers: 0, crashes: past?.crashes ?? 0, finishErrors: [], startError: error,
      list: plan.list)
  }

  /// Ends the run early, from any thread: items in flight get the grace time; the second call ends them at once.
  public func stop(signal: Int32) {
    let executor = state.withLock { state in
      if state.executor == nil { state.pendingStop = .interrupted(signal) }
      state.journal?.stopSignal = signal
      return state.executor
    }
    executor?.stop(.interrupted(signal))
  }

  /// Whether the stages are ready and items are being worked on. Until then `stop` waits for what a library is doing,
  /// such as loading a model.
  public var isWorking: Bool { state.withLock { $0.executor != nil } }

  /// How busy the run has been so far; nil before it works on pictures.
  public var load: RunLoad? { state.withLock { $0.executor }?.load }

  /// Writes the JSON report, atomically. Needs `keepsReport`.
  public func writeReport(to path: PathBytes, outcome: RunOutcome) throws(StageError) {
    try spool?.write(to: path, run: runObject(outcome), tag: values.runID)
  }

  /// The JSON report in a file without a name, for whoever makes something else of it; nil without `keepsReport`.
  ///
  /// - Returns: its descriptor, which the caller closes.
  /// - Throws: `report-failed` of class environment.
  public func unnamedReport(outcome: RunOutcome) throws(StageError) -> Int32? {
    try spool?.unnamedReport(run: runObject(outcome))
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
    return RunRecord(run: self, outcome: outcome, versions: versions).json(and: other)
  }

  /// Gives the records of the items that have ended, in input order, one at a time. Needs `keepsReport`.
  ///
  /// - Throws: `report-failed` of class environment where the spool cannot be read.
  public func forEachRecord(_ body: (ItemRecord) -> Void) throws(StageError) {
    try spool?.forEachRecord(body)
  }

  /// Credits that this run has spent with services, as its ledger has it.
  public func creditsSpent() throws(StageError) -> Double {
    guard let history else { return 0 }
    return try history.ledger.creditsSpent(since: 0, run: values.runID)
  }

  /// Makes the stages within the run's deadline, which a model that is fetched may use up.
  ///
  /// - Returns: nil when the time was over before they were ready. What is still busy with them is left behind.
  private func makeStages(workCount: Int, within limit: Duration?) throws(StageError) -> [ExecutableStage]? {
    guard let limit else { return try makeStages(workCount: workCount) }
    let result = Mutexed<Result<[ExecutableStage], StageError>?>(nil)
    let done = DispatchSemaphore(value: 0)
    DispatchQueue(label: "pipeline.start").async { [self] in
      let made: Result<[ExecutableStage], StageError>
      do throws(StageError) { made = .success(try makeStages(workCount: workCount)) } catch { made = .failure(error) }
      result.value.withLock { $0 = made }
      done.signal()
    }
    _ = done.wait(timeout: .now() + limit / .seconds(1))
    return try result.value.withLock { $0 }?.get()
  }

  /// - Parameters:
  ///   - withheld: the stages that are not made, by index.
  ///   - standIn: stands in their place.
  func makeStages(
    workCount: Int, leavingOut withheld: Set<Int> = [], _ standIn: (any Stage)? = nil
  ) throws(StageError) -> [ExecutableStage] {
    Machine.boundAllocator(workers: workers)
    do throws(ImagingError) {
      try Libvips.start()
    } catch {
      throw StageError(
        "libvips-missing", error.message, kind: .environment, cause: error.detail.isEmpty ? nil : error.detail,
        hint: error.hint)
    }
    if let bundle = job.network.caBundle {
      var status = stat()
      let isFile = bundle.withCString { stat($0, &status) } == 0 && status.st_mode & S_IFMT == S_IFREG
      guard isFile, bundle.withCString({ access($0, R_OK) }) == 0 else {
        throw StageError(
          "ca-bundle", "network.caBundle: \(bundle.printable) is not there, or no file that can be read",
          kind: .environment)
      }
    }
    // One libvips thread a picture while there are pictures enough for every worker; more only when there are not.
    Libvips.setConcurrency(max(1, workers / max(1, min(workers, workCount))))
    let services = ServiceResources(job.network)
    let fetcher: RemoteFetcher?
    if job.input.mayBeRemote { fetcher = try RemoteFetcher(job.remote, services: services) } else { fetcher = nil }
    let resources = StageResources(
      run: values, computeWorkers: workers, facts: facts, decodeLimits: job.decodeLimits,
      workingSpace: job.stages.reduce(WorkingSpace()) { $0.union($1.plan.workingSpace) },
      keepsSourceHash: keepsSourceHash, services: services, fetcher: fetcher,
      keepsFetchedBytes: job.stages.contains { !$0.plan.copies.isEmpty })
    var stages: [ExecutableStage] = []
    for stage in job.stages {
      do throws(StageError) {
        let made: any ReadyStage
        if let standIn, withheld.contains(stage.index) {
          made = standIn
        } else {
          made = try stage.descriptor.make(stage.settings, resources)
        }
        stages.append(
          ExecutableStage(
            label: stage.label, plan: stage.plan, stage: made,
            predecessor: stage.predecessor, condition: stage.condition,
            isBranch: stage.descriptor.spec.branchesField != nil))
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
    let history: RunHistory?
    let sources: DoneSources?
    let plan: RunPlan
    let keepsReport: Bool
    let next: any RunObserver

    func itemEnded(_ record: ItemRecord, finished: Int) {
      let identity = plan.identity(of: plan.inputs[record.index], at: record.index)
      var record = record
      // A report without the outputs of what is up to date would be of use to nobody who looks for them.
      if keepsReport, record.status == .skipped, let history { record.outputs = history.outputs(of: identity) }
      spool?.append(record)
      // The outputs are on disk by now; the ledger's commit is the last word.
      if let sources {
        // Of these nothing is booked.
        if record.status == .skipped || record.status == .notAttempted {
          sources.itemEnded(record, identity, problem: nil)
        } else {
          history?.book(record, identity) { [record] in sources.itemEnded(record, identity, problem: $0) }
        }
      } else {
        history?.book(record, identity)
      }
      journal?.end(record.index, record.status)
      next.itemEnded(record, finished: finished)
    }
  }
}
