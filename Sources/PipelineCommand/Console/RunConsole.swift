import Digest
// Dispatch sources may be used from any thread; on Linux their types do not say so.
@preconcurrency import Dispatch
import Engine
import JobSyntax
import PipelineKit
import Synchronization

/// Shows a run to people, or to a log: start, progress, items, summary.
final class RunConsole: RunObserver {
  private struct State {
    var progress = Progress()
    /// Items worked on: what the rate is made from. Items decided before the run take no time.
    var worked = 0
    var workLeft = 0
    var tally = RunTally()
    var rate = RateEstimate()
    var remaining = RemainingTime()
    var run: JobRun?
    /// Looks at the load, half a second apart, over the last few seconds.
    var loads: [RunLoad] = []
    /// What held the whole run up.
    var bottleneck: RunLoad.Bottleneck?
    var decided: Set<Int> = []
    var lastLine = 0.0
    var lastTenth = 0
    var libraryCount = 0
    var libraryLast: [String] = []
    var isOver = false
  }

  private let log: RunLog
  private let isVerbose: Bool
  private let showsProgress: Bool
  private let showsBar: Bool
  private let library: LibraryOutput?
  private let state = Mutex(State())
  private let begin: ContinuousClock.Instant
  private let queue = DispatchQueue(label: "pipeline.progress")
  private let timer: any DispatchSourceTimer

  /// Seconds between two progress lines in a log.
  private static let lineInterval = 10.0
  /// Lines at steps of a tenth come no faster than this.
  private static let leastInterval = 2.0
  private static let mostLibraryLines = 5
  /// Seconds between two looks at the load that are kept, and how many are.
  private static let loadInterval = 0.5
  private static let mostLoads = 11
  private static let mostSuspectsNamed = 8

  /// - Parameter elapsed: seconds since the run began, where the program has crashed in it.
  init(log: RunLog, isVerbose: Bool, showsProgress: Bool, library: LibraryOutput?, elapsed: Double = 0) {
    begin = .now - .seconds(elapsed)
    self.log = log
    self.isVerbose = isVerbose
    self.showsProgress = showsProgress && !log.isQuiet
    showsBar = self.showsProgress && log.format == .text && log.screen.terminal.isInteractive
    self.library = library
    timer = DispatchSource.makeTimerSource(queue: queue)
    timer.schedule(deadline: .distantFuture)
    // A source must have been activated before it may go.
    timer.activate()
  }

  // MARK: Events

  func start(_ run: JobRun, _ plan: RunPlan, report: String?) {
    var text = "\(Wording.oneLine(run.job.name)): \(Wording.count(plan.inputs.count, "picture"))"
    let shard = run.options.shard
    if let shard { text += " of \(plan.list.count), shard \(shard.index) of \(shard.count)" }
    if plan.workCount < plan.inputs.count { text += ", \(plan.workCount) to do" }
    text += ", \(Wording.count(run.workers, "worker"))"
    if let report { text += ", report \(Wording.oneLine(report))" }
    log.write(
      .info, "start", text,
      [
        ("job", .string(run.job.name)), ("run", .string(run.values.runID)), ("items", .integer(plan.inputs.count)),
        ("toDo", .integer(plan.workCount)), ("workers", .integer(run.workers)),
        ("shard", shard.map { .string("\($0.index)/\($0.count)") } ?? nil),
      ])
    let passed = plan.skippedInputs
    if passed.total > 0, isVerbose || passed.problems > 0 {
      let examples = SkippedInput.Reason.allCases.filter { isVerbose || $0.isProblem }
        .flatMap { passed.examples[$0] ?? [] }.map { "  " + Wording.oneLine($0.text) }
      log.write(
        passed.problems > 0 ? .warning : .info, "passedOver",
        (["passed over: \(passed.summary)"] + examples).joined(separator: "\n"),
        [
          ("message", .string(passed.summary)),
          (
            "counts",
            .object(
              SkippedInput.Reason.allCases.compactMap { reason in
                passed.counts[reason].map { (reason.rawValue, .integer($0)) }
              })
          ),
        ])
    }
    state.withLock { state in
      state.progress.total = plan.inputs.count
      state.workLeft = plan.workCount
      state.decided = Set(plan.decisions.keys)
      state.remaining = RemainingTime(count: plan.inputs.count, toDo: plan.workCount)
      state.run = run
    }
    startTimer()
    if showsProgress { lookAtSizes(plan) { _ in false } }
  }

  /// Tells the forecast how large the files are, beside the run: a slow file system must not hold it up.
  private func lookAtSizes(_ plan: RunPlan, except hasEnded: @escaping @Sendable (Int) -> Bool) {
    DispatchQueue(label: "pipeline.sizes", qos: .utility).async { [weak self] in
      for start in stride(from: 0, to: plan.inputs.count, by: 256) {
        var found: [(index: Int, kind: String, bytes: Double?)] = []
        for index in start..<min(start + 256, plan.inputs.count) where plan.decisions[index] == nil && !hasEnded(index)
        {
          let input = plan.inputs[index]
          let stamp = input.remote.map(\.version) ?? FileStamp.of(input.path)
          let kind = input.name.fileExtension.string?.lowercased() ?? ""
          found.append((index, kind, stamp.map { Double($0.size) }))
        }
        guard let self, !state.withLock({ $0.isOver }) else { return }
        state.withLock { state in
          for item in found { state.remaining.expect(item.index, kind: item.kind, bytes: item.bytes) }
        }
      }
    }
  }

  /// Goes on showing a run after the program has crashed in it.
  func takeUp(_ run: JobRun, _ plan: RunPlan, _ past: PastRun) {
    var tally = RunTally()
    run.recall { tally.add($0) }
    state.withLock { state in
      state.tally = tally
      state.progress.total = plan.inputs.count
      state.progress.finished = past.counts.total - past.counts[.notAttempted]
      state.progress.failed = past.counts[.failed]
      state.progress.isStopping = past.stopSignal != nil
      state.decided = Set(plan.decisions.keys)
      state.worked = state.progress.finished - state.decided.count { past.hasEnded($0) }
      state.workLeft = plan.workCount - state.worked
      state.remaining = RemainingTime(count: plan.inputs.count, toDo: state.workLeft)
      state.run = run
    }
    let signal = past.crashCause
    let names = past.suspectNames.map(\.printable)
    var items = names.prefix(Self.mostSuspectsNamed).joined(separator: ", ")
    if names.count > Self.mostSuspectsNamed { items += " and \(names.count - Self.mostSuspectsNamed) more" }
    let when =
      past.isAtEnd ? "after the last picture" : names.isEmpty ? "between pictures" : "while working on \(items)"
    let next =
      past.stopSignal != nil
      ? "the run was being stopped"
      : names.isEmpty
        ? "the run goes on"
        : names.count == 1 ? "it is tried again by itself" : "they are tried again one at a time"
    log.write(
      .warning, "crash", "the program crashed (\(signal)) \(when); \(next)",
      [
        ("signal", .string(signal)), ("crashes", .integer(past.crashes)),
        ("items", .array(past.suspectNames.map { .string($0.display) })),
      ])
    startTimer()
    if showsProgress { lookAtSizes(plan) { past.hasEnded($0) } }
  }

  private func startTimer() {
    let interval = showsBar ? 100 : 250
    timer.setEventHandler { [weak self] in self?.tick() }
    timer.schedule(deadline: .now(), repeating: .milliseconds(interval), leeway: .milliseconds(20))
  }

  func itemEnded(_ record: ItemRecord, finished: Int) {
    state.withLock { state in
      // What was not attempted is no progress.
      if record.status != .notAttempted { state.progress.finished += 1 }
      state.tally.add(record)
      if record.status == .failed { state.progress.failed += 1 }
      if !state.decided.contains(record.index) {
        state.workLeft -= 1
        let isTried = record.status != .notAttempted
        if isTried { state.worked += 1 }
        let spent = record.timings.reduce(0) { $0 + $1.milliseconds } / 1000
        state.remaining.ended(record.index, seconds: isTried ? spent : nil)
      }
    }
    switch record.status {
    case .failed, .unknown, .deferred: write(record, .error)
    case .done where !record.warnings.isEmpty && log.format == .json: write(record, .warning)
    // Hundreds of thousands may not be attempted after an interrupt; their number is in the summary.
    case .notAttempted, .skipped: if isVerbose { write(record, .info) }
    case .done, .dropped, .review: if isVerbose { write(record, .info) }
    }
  }

  func stopping(signal: Int32, graceTime: Double) {
    state.withLock { $0.progress.isStopping = true }
    log.write(
      .warning, "stopping",
      "\(SignalName.text(signal)): stopping; items in flight get \(Wording.duration(graceTime)), again to stop at once",
      [("signal", .string(SignalName.text(signal))), ("graceSeconds", .number(graceTime))])
  }

  /// Ends the progress display; afterwards only the summary is written.
  func end() {
    timer.cancel()
    // A tick that is under way must not draw the bar again.
    let run = queue.sync {
      state.withLock { state in
        state.isOver = true
        return state.run
      }
    }
    if let load = run?.load {
      state.withLock { state in
        state.run = nil
        if load.elapsed >= Self.leastInterval { state.bottleneck = load.bottleneck(since: load.beginning) }
      }
    }
    takeLibraryLines(all: true)
    log.screen.show(bar: nil)
  }

  func summarise(_ outcome: RunOutcome, jobName: String, reportPath: String?) {
    let (tally, worked, count, last, bottleneck) = state.withLock {
      ($0.tally, $0.worked, $0.libraryCount, $0.libraryLast, $0.bottleneck)
    }
    let summary = RunSummary(
      jobName: jobName, outcome: outcome, tally: tally, worked: worked, libraryLines: (count, last),
      reportPath: reportPath, isQuiet: log.isQuiet, bottleneck: bottleneck)
    let fields: [(String, JSONText)] = [
      ("exitCode", .integer(Int(outcome.exitCode))), ("counts", outcome.counts.json),
      ("wallSeconds", .number(outcome.wallSeconds)), ("cpuSeconds", .number(outcome.cpuSeconds)),
      ("peakBytes", .integer(outcome.peakBytes)), ("crashes", .integer(outcome.crashes)),
      ("libraryLines", .integer(count)), ("bottleneck", bottleneck.map { .string($0.kind.rawValue) } ?? nil),
      ("bottleneckStage", bottleneck?.stage.map { .string($0) } ?? nil),
      (
        "finishErrors",
        .array(outcome.finishErrors.map { .object([("code", .string($0.code)), ("message", .string($0.message))]) })
      ),
    ]
    let level: RunLog.Level = outcome.exitCode == 0 ? .info : .error
    switch log.format {
    case .text:
      let lines = summary.lines(color: log.screen.terminal.usesColor)
      log.write(level, "summary", lines.joined(separator: "\n"))
    case .json: log.write(level, "summary", nil, fields + tally.json)
    }
  }

  // MARK: Lines

  private func write(_ record: ItemRecord, _ level: RunLog.Level) {
    switch log.format {
    case .json:
      var fields: [(String, JSONText)] = []
      if case .object(let members) = record.json { fields = members }
      log.write(level, "item", nil, fields)
    case .text:
      // In text, failures stand together in the summary; --verbose shows each item as it ends.
      guard isVerbose else { return }
      log.write(.info, "item", Self.line(record))
    }
  }

  /// `a.jpg: done, decode 12 ms, write 3 ms → out/a.webp (41.3 kB)`.
  private static func line(_ record: ItemRecord) -> String {
    var text = "\(Wording.name(record.input)): \(record.status.rawValue)"
    if record.error != nil || record.reason != nil {
      if let stage = record.failedStage { text += " in stage \"\(stage)\"" }
      text += ": " + RunTally.message(of: record)
    }
    let times = record.timings.map { "\($0.stage) \(Int($0.milliseconds.rounded())) ms" }
    if !times.isEmpty { text += ", " + times.joined(separator: ", ") }
    let outputs = record.outputs.map { output in
      let place =
        switch output.place {
        case .path(let path): path.printable
        case .link(let link): link
        }
      return "\(place) (\(Wording.bytes(output.bytes)))"
    }
    if !outputs.isEmpty { text += " -> " + outputs.joined(separator: ", ") }
    for warning in record.warnings { text += "; warning \(warning.code): \(warning.message)" }
    return Wording.oneLine(text)
  }

  // MARK: Progress

  private var seconds: Double { (ContinuousClock.now - begin) / .seconds(1) }

  private func tick() {
    takeLibraryLines(all: false)
    guard showsProgress else { return }
    let now = seconds
    let load = state.withLock { $0.run }?.load
    let (progress, isDue, isOver) = state.withLock { state in
      state.rate.update(at: now, count: state.worked)
      state.remaining.update(at: now, inFlight: load?.secondsInFlight ?? 0)
      state.progress.elapsed = now
      state.progress.perSecond = state.rate.perSecond
      state.progress.secondsLeft = state.workLeft > 0 ? state.remaining.secondsLeft : nil
      if let load { Self.look(load, &state) }
      let tenth = state.progress.finished * 10 / max(1, state.progress.total)
      let since = now - state.lastLine
      let isDue =
        state.progress.finished < state.progress.total && !state.progress.isStopping
        && (since >= Self.lineInterval || (tenth > state.lastTenth && since >= Self.leastInterval))
      if isDue {
        state.lastLine = now
        state.lastTenth = tenth
      }
      return (state.progress, isDue, state.isOver)
    }
    guard !isOver else { return }
    let screen = log.screen
    if showsBar {
      let terminal = screen.terminal
      screen.show(bar: progress.block(width: terminal.width, height: terminal.height, color: terminal.usesColor))
    } else if isDue {
      log.write(
        .info, "progress", progress.sentence,
        [
          ("finished", .integer(progress.finished)), ("total", .integer(progress.total)),
          ("failed", .integer(progress.failed)), ("perSecond", progress.perSecond.map { .number($0) } ?? nil),
          ("secondsLeft", progress.secondsLeft.map { .number($0) } ?? nil),
          ("bottleneck", progress.bottleneck.map { .string($0.kind.rawValue) } ?? nil),
          ("bottleneckStage", progress.bottleneck?.stage.map { .string($0) } ?? nil),
        ])
    }
  }

  /// What the last few seconds say about the stages.
  private static func look(_ load: RunLoad, _ state: inout State) {
    if let last = state.loads.last, load.elapsed - last.elapsed < loadInterval { return }
    state.loads.append(load)
    if state.loads.count > mostLoads { state.loads.removeFirst() }
    guard let first = state.loads.first, load.elapsed - first.elapsed >= 2 * loadInterval else { return }
    state.progress.bottleneck = load.bottleneck(since: first)
    state.progress.stages = StageLine.lines(load, since: first, state.progress.bottleneck)
  }

  private func takeLibraryLines(all: Bool) {
    guard let lines = library?.takeLines(all: all), !lines.isEmpty else { return }
    state.withLock { state in
      state.libraryCount += lines.count
      state.libraryLast = Array((state.libraryLast + lines).suffix(Self.mostLibraryLines))
    }
    guard isVerbose else { return }
    for line in lines {
      log.write(.info, "library", "library: " + Wording.oneLine(line), [("message", .string(line))])
    }
  }
}
