import Dispatch
import Imaging
import PipelineKit
import Synchronization
import Transport

/// Why a run stops before its last item.
public enum StopReason: Sendable, Hashable {
  /// A signal, by number.
  case interrupted(Int32)
  /// The run's deadline.
  case deadline
  /// A failure, with `onError: "stop"`.
  case failure

  /// For the report: `signal 15`, `deadline` or `failure`.
  var text: String {
    switch self {
    case .interrupted(let signal): "signal \(signal)"
    case .deadline: "deadline"
    case .failure: "failure"
    }
  }

  fileprivate var isSignal: Bool { if case .interrupted = self { true } else { false } }

  fileprivate var rank: Int {
    switch self {
    case .interrupted: 3
    case .deadline: 2
    case .failure: 1
    }
  }
}

/// One stage, ready to work.
struct ExecutableStage: Sendable {
  var label: String
  var plan: StagePlan
  var stage: any ReadyStage
  /// The stage whose result this one takes; nil for the one before it.
  var predecessor: Int?
  /// Where it does not hold, the stage is passed over.
  var condition: Condition?
  /// Whether the stages after it are its tails, and there is no way on without it.
  var isBranch = false
}

/// One item as the planner leaves it: to be worked on, or decided already.
public enum PlannedItem: Sendable {
  case run(ItemIdentity)
  case decided(ItemRecord)
}

/// Sees items end, in the order they end, from any thread; calls do not overlap.
public protocol RunObserver: Sendable {
  /// - Parameters:
  ///   - finished: how many items have ended so far.
  ///   - record: how the item ended.
  func itemEnded(_ record: ItemRecord, finished: Int)
}

/// Takes items through the chain on its lanes: compute, storage, network.
///
/// The number of items in flight and their estimated bytes are bounded at admission, so lanes need no bound of their
/// own and cannot deadlock. No lock is held while a stage works.
final class Executor: Sendable {
  struct Configuration: Sendable {
    var computeWorkers: Int
    var storageWorkers = 4
    /// Exchanges that a stage has at once where its plan does not say.
    var exchanges = 8
    var memoryLimit: Int
    /// What no picture can have, not even alone, and what sets it; nil where there is swap, or the machine, to give way.
    var memoryBound: MachineLimits.Memory?
    var itemDeadline: Duration
    var deadline: Duration?
    var graceTime: Duration
    var stopsOnFailure: Bool
    /// After so many calls that did not return, items are worked on in children.
    var mostHungCalls = 3
  }

  /// How far an earlier life of this run has come, which a crash has ended.
  struct Past: Sendable {
    /// How long it took.
    var elapsed: Duration
    /// The items that have ended.
    var counts: ItemCounts
    /// Those that were in flight in the crash, in input order.
    var suspects: [Int]
    var usesChildren: Bool
  }

  /// A queue with workers of its own.
  private enum LaneKey: Hashable {
    case compute, storage
    /// Of one stage: what waits for a slow service holds up no other.
    case network(stage: Int)

    var name: String {
      switch self {
      case .compute: "compute"
      case .storage: "storage"
      case .network(let stage): "network.\(stage)"
      }
    }
  }

  private struct State {
    var nextItem = 0
    var inFlight: [Int: ItemRun] = [:]
    var finished = 0
    var counts = ItemCounts()
    var stop: StopReason?
    var forcedAt: ContinuousClock.Instant?
    var isForced = false
    var hungWorkers = 0
    var isOver = false
    /// Items are worked on in children from now on.
    var usesChildren = false
    /// A child could not be started; no other is tried.
    var lacksChildren = false
    /// Items still to be tried alone, before all others, and the one that is.
    var suspects: [Int] = []
    var suspect: Int?
  }

  let stages: [ExecutableStage]
  let tree: ChainTree
  let configuration: Configuration
  private let items: @Sendable (Int) -> PlannedItem
  private let itemCount: Int
  let run: RunValues
  private let observer: any RunObserver
  let budget: MemoryBudget
  private let state: Mutex<State>
  private let observing = Mutex(())
  private let over = DispatchSemaphore(value: 0)
  private let reached = Atomic<Bool>(false)
  private let admission = DispatchQueue(label: "pipeline.admission")
  private let started: ContinuousClock.Instant
  let temporaries: TemporaryFiles
  let claims: OutputClaims
  let protected: ProtectedPaths
  private let laneWidths: [LaneKey: Int]
  /// How many items may be in flight: enough for every worker, and as many again for those that hold a core.
  private let admissionLimit: Int
  private let lanes: Mutex<[LaneKey: WorkLane]> = Mutex([:])
  let journal: RunJournal?
  private let past: Past?
  let launcher: ChildLauncher?
  private let history: RunHistory?
  let services: ServiceDesk?
  private let children: Mutex<ChildLane?> = Mutex(nil)
  /// What each stage has done so far.
  private let works: Mutex<[RunLoad.StageWork]>

  /// - Parameters:
  ///   - past: what became of items before a crash; needs a journal and a launcher.
  ///   - launcher: starts children; without one, all work is done in this process.
  ///   - items: answers the item at an index below `itemCount`.
  init(
    stages: [ExecutableStage], configuration: Configuration, itemCount: Int, run: RunValues,
    protected: ProtectedPaths = ProtectedPaths(), claims: OutputClaims = OutputClaims(), journal: RunJournal? = nil,
    past: Past? = nil, launcher: ChildLauncher? = nil, observer: any RunObserver, history: RunHistory? = nil,
    services: ServiceDesk? = nil, items: @escaping @Sendable (Int) -> PlannedItem
  ) {
    self.claims = claims
    self.history = history
    self.services = services
    self.journal = journal
    self.past = past
    self.launcher = launcher
    temporaries = journal?.makeTemporaries() ?? TemporaryFiles()
    started = .now - (past?.elapsed ?? .zero)
    var state = State()
    if let past {
      state.counts = past.counts
      state.finished = past.counts.total
      state.suspects = past.suspects
      state.usesChildren = past.usesChildren
    }
    self.state = Mutex(state)
    self.stages = stages
    self.configuration = configuration
    self.items = items
    self.itemCount = itemCount
    self.run = run
    self.protected = protected
    self.observer = observer
    budget = MemoryBudget(limit: configuration.memoryLimit)
    laneWidths = Self.widths(of: stages, configuration)
    admissionLimit = laneWidths.values.reduce(configuration.computeWorkers, +)
    tree = ChainTree(stages)
    works = Mutex(
      stages.map { RunLoad.StageWork(label: $0.label, lane: $0.plan.lane, opensInputs: $0.plan.opensInputs) })
  }

  /// How busy the run has been so far.
  var load: RunLoad {
    let open = lanes.withLock { $0 }
    var queues: [RunLoad.Queue] = []
    var inFlight = state.withLock { Array($0.inFlight.values) }.reduce(Duration.zero) { sum, run in
      sum + run.progress.withLock { $0.spent }
    }
    for (key, _) in laneWidths.sorted(by: { $0.key.name < $1.key.name }) {
      guard let lane = open[key] else { continue }
      let load = lane.load
      var (kind, stage): (Lane, String?) = (.compute, nil)
      switch key {
      case .compute: break
      case .storage: kind = .storage
      case .network(let index): (kind, stage) = (.network, stages[index].label)
      }
      queues.append(
        RunLoad.Queue(
          lane: kind, stage: stage, workers: load.workers, busySeconds: load.busySeconds, waiting: load.waiting))
      for (_, claim) in lane.claims { inFlight += claim.untold }
    }
    return RunLoad(
      elapsed: (ContinuousClock.now - started) / .seconds(1), cpuSeconds: Machine.cpuSeconds, queues: queues,
      stages: works.withLock { $0 }, secondsInFlight: inFlight / .seconds(1), waitingForMemory: budget.waitingCount)
  }

  /// Works through all items; returns when the last has ended or the run was stopped.
  ///
  /// - Returns: the counts, why it stopped early, how many workers did not come back in an item's time, and what went
  ///   wrong when children finished.
  func execute() -> (counts: ItemCounts, stop: StopReason?, hungWorkers: Int, finishErrors: [StageError]) {
    lanes.withLock { lanes in
      for (key, width) in laneWidths {
        lanes[key] = WorkLane(name: key.name, workers: width) { [weak self] item, worker in
          self?.work(item, worker, key)
        }
      }
    }
    let watchdog = DispatchSource.makeTimerSource(queue: DispatchQueue(label: "pipeline.watchdog"))
    watchdog.schedule(deadline: .now() + .milliseconds(20), repeating: .milliseconds(20), leeway: .milliseconds(5))
    watchdog.setEventHandler { [weak self] in self?.watch() }
    watchdog.activate()
    defer { watchdog.cancel() }
    admit()
    over.wait()
    let isForced = state.withLock { $0.isForced }
    let finishErrors = children.withLock { $0 }?.close(isForced: isForced) ?? []
    return state.withLock { ($0.counts, $0.stop, $0.hungWorkers, finishErrors) }
  }

  /// Stops admitting items. Those in flight may end within the grace time; a second signal ends them at once.
  ///
  /// A signal outranks the deadline, and the deadline a failure: the run ends with the highest reason it met.
  func stop(_ reason: StopReason) {
    let force = state.withLock { state -> Bool in
      guard !state.isOver else { return false }
      let isSecondSignal = reason.isSignal && (state.stop?.isSignal ?? false)
      guard isSecondSignal || reason.rank > (state.stop?.rank ?? 0) else { return false }
      if !isSecondSignal { state.stop = reason }
      if reason != .failure, state.forcedAt == nil { state.forcedAt = .now + configuration.graceTime }
      return isSecondSignal
    }
    // Not here: the caller may be an observer in the middle of a record.
    admission.async { [self] in
      if force { forceEnd() } else { admit() }
    }
  }

  // MARK: Admission

  /// The lanes that the chain needs, and how many workers each has.
  private static func widths(
    of stages: [ExecutableStage], _ configuration: Configuration
  ) -> [LaneKey: Int] {
    var widths: [LaneKey: Int] = [.compute: configuration.computeWorkers]
    for (index, stage) in stages.enumerated() {
      if stage.plan.lane == .storage { widths[.storage] = configuration.storageWorkers }
      if stage.plan.lane == .network || stage.plan.exchanges != nil {
        widths[.network(stage: index)] = stage.plan.exchanges ?? configuration.exchanges
      }
    }
    return widths
  }

  /// An item that has not begun.
  private static let untouched = ItemProgress(
    item: Item(identity: ItemIdentity(index: 0, path: PathBytes(""), name: PathBytes(""), directory: PathBytes(""))))

  /// Where an item goes on.
  private func lane(of progress: ItemProgress) -> LaneKey? {
    guard let stage = progress.stage else { return nil }
    switch progress.continuation {
    case .compute: return .compute
    case .exchange: return .network(stage: stage)
    case .outcome, nil: break
    }
    switch stages[stage].plan.lane {
    case .compute: return .compute
    case .storage: return .storage
    case .network: return .network(stage: stage)
    }
  }

  /// Lets items in while there is room, and ends the run after the last.
  private func admit() {
    while true {
      enum Step {
        case run(ItemRun)
        case runInChild(ItemRun)
        case decided(ItemRecord)
        case wait
        case over
      }
      let step: Step = state.withLock { state in
        if state.isOver { return .wait }
        // Those that may have crashed the program come first, one at a time.
        let isSuspect = state.suspect != nil || !state.suspects.isEmpty
        if !isSuspect, past != nil {
          while state.nextItem < itemCount, journal?[state.nextItem] != .untouched { state.nextItem += 1 }
        }
        guard isSuspect || state.nextItem < itemCount else {
          // Not before the last record was seen by the observer.
          guard state.finished == itemCount else { return .wait }
          state.isOver = true
          return .over
        }
        let index: Int
        if isSuspect {
          guard state.suspect == nil else { return .wait }
          index = state.suspects.removeFirst()
        } else {
          guard state.stop != nil || state.inFlight.count < admissionLimit else { return .wait }
          index = state.nextItem
          state.nextItem += 1
        }
        switch items(index) {
        case .decided(let record): return .decided(record)
        case .run(let identity):
          if let stop = state.stop {
            var record = ItemRecord(
              index: identity.index, inputIndex: identity.inputIndex, input: identity.name.display,
              status: .notAttempted)
            record.reason = Self.reason(stop)
            return .decided(record)
          }
          let item = ItemRun(Item(identity: identity))
          state.inFlight[item.index] = item
          if isSuspect { state.suspect = index }
          return isSuspect || state.usesChildren ? .runInChild(item) : .run(item)
        }
      }
      switch step {
      case .run(let item): submit(item, item.progress.withLock { $0 })
      case .runInChild(let item): submitToChild(item)
      case .decided(let record): end(record)
      case .wait: return
      case .over:
        over.signal()
        return
      }
    }
  }

  private static func reason(_ stop: StopReason) -> String {
    switch stop {
    case .interrupted(let signal): "the run was interrupted by signal \(signal)"
    case .deadline: "the run's deadline was reached"
    case .failure: "an earlier item failed and onError is \"stop\""
    }
  }

  /// - Parameter progress: the item's.
  private func submit(_ item: ItemRun, _ progress: ItemProgress) {
    guard let stage = progress.stage, let key = lane(of: progress), let lane = lanes.withLock({ $0[key] }) else {
      return
    }
    // What a stage has begun comes before what it has not.
    lane.submit(item, atStage: stage * 2 + (progress.continuation == nil ? 0 : 1))
  }

  /// Whether items were not attempted since a limit was reached.
  var isLimited: Bool { reached.load(ordering: .relaxed) }

  /// Notes that a limit was reached in a child.
  func noteLimit() { reached.store(true, ordering: .relaxed) }

  private func submitToChild(_ item: ItemRun) {
    let lane = children.withLock { children in
      if let lane = children { return lane }
      let lane = ChildLane(workers: configuration.computeWorkers) { [weak self] item, worker in
        self?.workInChild(item, worker)
      }
      children = lane
      return lane
    }
    lane.submit(item)
  }

  /// From now on items are worked on in children: threads of this process have been lost in calls that do not return,
  /// with the memory they hold. What has begun here goes on here.
  private func moveToChildren() {
    guard launcher != nil, !stages.isEmpty else { return }
    let isNew = state.withLock { state in
      guard !state.usesChildren, !state.lacksChildren else { return false }
      state.usesChildren = true
      return true
    }
    guard isNew else { return }
    journal?.usesChildren = true
    guard let key = lane(of: Self.untouched) else { return }
    for item in lanes.withLock({ $0[key] })?.takeUnstarted() ?? [] { submitToChild(item) }
  }

  var mayStartChildren: Bool { state.withLock { !$0.lacksChildren } }

  /// Has an item worked on in this process for want of a child, and all others from now on; false for one that must not
  /// be.
  func resumeHere(_ run: ItemRun) -> Bool {
    let isAllowed = state.withLock { state in
      guard state.suspect != run.index else { return false }
      state.usesChildren = false
      state.lacksChildren = true
      return true
    }
    if isAllowed { submit(run, run.progress.withLock { $0 }) }
    return isAllowed
  }

  /// Whether an item's fate is still open.
  func isInFlight(_ run: ItemRun) -> Bool { state.withLock { $0.inFlight[run.index] === run } }

  // MARK: Working

  private func work(_ run: ItemRun, _ worker: WorkLane.Worker, _ key: LaneKey) {
    var progress = run.progress.withLock { $0 }
    let claim = Claim(item: run, expiry: .now + (configuration.itemDeadline - progress.spent))
    if let stage = progress.stage { claim.currentStage = stage }
    // Before the look at the run's state: whoever ends the run by force sees the claim, or is seen here.
    worker.claim.withLock { $0 = claim }
    defer { worker.claim.withLock { if $0 === claim { $0 = nil } } }
    guard state.withLock({ !$0.isForced && $0.inFlight[run.index] != nil }) else { return }

    while let index = progress.stage, lane(of: progress) == key {
      if !reserveMemory(run, &progress, claim) { return }
      claim.currentStage = index
      journal?.enter(run.index, stage: index)
      let context = StageContext(
        stage: stages[index].label, run: self.run, journal: run.journal, temporaries: temporaries, claims: claims,
        protected: protected, matte: progress.way.matte, kept: kept(of: index),
        services: services?.forItem(progress.item.identity, stage: index, label: stages[index].label),
        pauses: Pauses { claim.extend(by: $0) },
        cancelled: { [isTold = stages[index].plan.endsWithin > 0] in
          claim.isRevoked || isTold && claim.expiry <= .now
        })
      step(&progress, in: context)
      let snapshot = progress
      guard claim.commit({ run.progress.withLock { $0 = snapshot } }) else { return }
    }
    guard claim.settle() else { return }
    if progress.stage != nil { submit(run, progress) } else { conclude(run) }
  }

  /// Takes an item through the stage that is next.
  ///
  /// - Parameter onEnd: told what became of it there, where the stage has come to an end.
  func step(
    _ progress: inout ItemProgress, in context: StageContext, onEnd: (ItemProgress.Step) -> Void = { _ in }
  ) {
    guard let index = progress.stage else { return }
    let stage = stages[index]
    let start = ContinuousClock.now
    let before = context.journal.snapshot.mattes.count
    let paused = context.pauses?.total ?? .zero
    let step: ItemProgress.Step?
    do throws(StageError) { step = try take(&progress, stage, in: context) } catch { step = self.step(for: error) }
    let duration = ContinuousClock.now - start
    progress.spent += duration - ((context.pauses?.total ?? .zero) - paused)
    // A stage that did not work has no time in the report.
    if case .passedOver = step {} else { progress.note(duration, of: stage.label) }
    guard let step else { return }
    if case .passedOver = step {
    } else {
      let seconds = (progress.timings.last?.milliseconds ?? 0) / 1000
      works.withLock { works in
        works[index].ended += 1
        works[index].seconds += seconds
      }
    }
    progress.isTimed = false
    let mattes = context.journal.snapshot.mattes
    if mattes.count > before { progress.way.matte = mattes.last }
    if case .outcome(.next(let next)) = step { progress.source = progress.source ?? SourceFacts(next) }
    onEnd(step)
    progress.advance(step, tree, stages)
  }

  /// Has a stage begin, or go on; nil where it goes on on another lane.
  private func take(
    _ progress: inout ItemProgress, _ stage: ExecutableStage, in context: StageContext
  ) throws(StageError) -> ItemProgress.Step? {
    let taken: StageStep
    if let continuation = progress.continuation {
      progress.continuation = nil
      taken = try stage.stage.goOn(continuation, progress.item, in: context)
    } else {
      if let condition = stage.condition, try !condition.holds(for: progress.item, in: context) {
        return .passedOver(condition)
      }
      taken = try stage.stage.beginFrames(progress.item, stage.plan.frames, in: context)
    }
    if case .outcome(let outcome) = taken { return .outcome(outcome) }
    progress.continuation = taken
    return nil
  }

  /// What an error means for the item: one that was stopped by a limit was not attempted.
  private func step(for error: StageError) -> ItemProgress.Step {
    var error = error
    error.message = Secrets.redacted(error.message)
    error.cause = error.cause.map(Secrets.redacted)
    error.hint = error.hint.map(Secrets.redacted)
    guard error.kind == .budget else { return .failure(error) }
    reached.store(true, ordering: .relaxed)
    return .outcome(.notAttempted(reason: error.description))
  }

  private func kept(of stage: Int) -> (@Sendable (Item) -> KeptResults?)? {
    guard let history else { return nil }
    return { item in history.keptResults(of: stage, for: item) }
  }

  /// Reserves memory once the header is known; false when the item has to wait its turn.
  private func reserveMemory(_ run: ItemRun, _ progress: inout ItemProgress, _ claim: Claim) -> Bool {
    guard let bytes = memoryToAsk(&progress) else { return true }
    let snapshot = progress
    // Settled before asking: once it waits, another thread may take the item up at any moment.
    guard claim.commit({ run.progress.withLock { $0 = snapshot } }), claim.settle() else { return false }
    if let bound = configuration.memoryBound, bytes > bound.bytes {
      let label = stages[min(progress.stage ?? 0, stages.count - 1)].label
      conclude(run, TailEnd(.failed, stage: label, error: Self.tooLarge(bytes, bound)))
      return false
    }
    guard budget.reserve(bytes, for: run) else { return false }
    resume([run])
    return false
  }

  private static func tooLarge(_ bytes: Int, _ bound: MachineLimits.Memory) -> StageError {
    func text(_ bytes: Int) -> String { "\((bytes + 1 << 19) >> 20) MiB" }
    return StageError(
      "memory",
      "the picture takes about \(text(bytes)) of memory in this chain, and this process can have \(text(bound.bytes)) "
        + "at most, by \(bound.source)",
      kind: .temporary, hint: "allow the process more memory, or take another format or a smaller size")
  }

  /// Puts items that were given memory back on their lanes; those that ended meanwhile give it back.
  func resume(_ runs: [ItemRun]) {
    var runs = runs
    while let run = runs.popLast() {
      if state.withLock({ $0.inFlight[run.index] != nil }) {
        if let waiting = run.grant.withLock({ $0 }) {
          waiting.signal()
        } else {
          submit(run, run.progress.withLock { $0 })
        }
      } else {
        runs += budget.release(run)
      }
    }
  }

  /// The bytes to reserve for an item; nil where its header is not known yet, or it has asked before.
  func memoryToAsk(_ progress: inout ItemProgress) -> Int? {
    guard !progress.hasAsked, let stage = progress.stage, case .encoded(let source) = progress.item.picture else {
      return nil
    }
    progress.hasAsked = true
    return tree.estimate(source, from: stage, pending: progress.pending.map(\.stage))
  }

  /// Ends an item.
  ///
  /// - Parameter last: how the tail it was in ended; nil where all had ended. Tails not yet begun share its fate.
  func conclude(_ run: ItemRun, _ last: TailEnd? = nil) {
    // Whoever removes the item from those in flight reports it; everyone else came too late.
    let isOurs = state.withLock { state in
      guard state.inFlight.removeValue(forKey: run.index) != nil else { return false }
      if state.suspect == run.index { state.suspect = nil }
      return true
    }
    guard isOurs else { return }
    run.journal.close()
    // Pixels go now, not when the last reference to the run does.
    let (identity, timings, ends, source) = run.progress.withLock { progress in
      let identity = progress.item.identity
      progress.item = Item(identity: identity)
      progress.pending = []
      progress.continuation = nil
      return (identity, progress.timings, progress.ends, progress.source)
    }
    let entries = run.journal.snapshot
    let end = ItemEnd(ends + (last.map { [$0] } ?? []))
    var record = ItemRecord(
      index: run.index, inputIndex: identity.inputIndex, input: identity.name.display, status: end.status)
    record.outputs = entries.outputs
    record.warnings = entries.warnings + end.warnings
    record.mattes = entries.mattes
    record.facts = entries.facts
    record.timings = timings
    record.source = source
    record.inputBytes = source?.bytes
    record.error = end.error
    record.failedStage = end.failedStage
    record.reason = end.reason
    resume(budget.release(run))
    self.end(record)
    admit()
  }

  private func end(_ record: ItemRecord) {
    // Calls to the observer do not overlap, and its count never runs backwards.
    observing.withLock { _ in
      observer.itemEnded(record, finished: state.withLock { $0.finished } + 1)
      state.withLock { state in
        state.counts[record.status] += 1
        state.finished += 1
      }
    }
    // Here, so that failures decided before the run count too.
    if record.status == .failed, configuration.stopsOnFailure { stop(.failure) }
  }

  // MARK: Time

  private func watch() {
    let now = ContinuousClock.now
    let workLanes = lanes.withLock { Array($0.values) }
    for lane in workLanes {
      for (worker, claim) in lane.claims where claim.expiry <= now {
        let stage = stages[min(claim.currentStage, stages.count - 1)]
        guard claim.expiry + .seconds(stage.plan.endsWithin) <= now else { continue }
        guard lane.abandon(worker, claim) else { continue }
        let hungCalls = state.withLock { state in
          state.hungWorkers += 1
          return state.hungWorkers
        }
        if hungCalls >= configuration.mostHungCalls { moveToChildren() }
        conclude(claim.item, TailEnd(.failed, stage: stage.label, error: deadlineError(inStage: stage.label)))
      }
    }
    if let deadline = configuration.deadline, now - started >= deadline { stop(.deadline) }
    if let forced = state.withLock({ $0.forcedAt }), now >= forced { forceEnd() }
  }

  func deadlineError(inStage label: String) -> StageError {
    StageError(
      "deadline",
      "the item was given up after \(Self.text(configuration.itemDeadline / .seconds(1))) s of work; "
        + "stage \"\(label)\" did not return",
      hint: "run.itemDeadline sets the limit")
  }

  private static func text(_ seconds: Double) -> String {
    seconds == seconds.rounded() ? "\(Int(seconds))" : "\(seconds)"
  }

  /// Ends everything in flight now. Workers that are busy are left behind.
  private func forceEnd() {
    let pending = state.withLock { state -> ([ItemRun], StopReason?) in
      guard !state.isForced, !state.isOver else { return ([], nil) }
      state.isForced = true
      return (Array(state.inFlight.values), state.stop)
    }
    guard let stop = pending.1 else { return }
    children.withLock { $0 }?.killAll()
    let workLanes = lanes.withLock { Array($0.values) }
    for lane in workLanes {
      _ = lane.drain()
      for (worker, claim) in lane.claims { _ = lane.abandon(worker, claim) }
    }
    for item in pending.0.sorted(by: { $0.index < $1.index }) {
      conclude(item, TailEnd(.notAttempted, reason: Self.reason(stop) + " before the item was done"))
    }
    admit()
  }
}
