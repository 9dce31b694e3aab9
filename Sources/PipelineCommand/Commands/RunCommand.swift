import Dispatch
import Engine
import Glibc
import JobSyntax
import Pages
import PipelineKit
import Synchronization

/// `pipeline run JOB`.
enum RunCommand {
  static let jobs = Option<Int>.integer(
    "jobs", "N", in: 1...1024, help: "compute workers (default: one for each processor)")
  static let failFast = Flag("fail-fast", help: "stops after the first failure, whatever the job says")
  static let report = Option<String>.text("report", "FILE", help: "writes a JSON report of every item")
  static let html = Option<String>.text(
    "html", "FILE", help: "writes a report for people: a web page with every picture before and after")
  static let logFormat = Option<LogFormat>.choice(
    "log-format", help: "how standard error is written: for people, or one JSON object a line (default text)")
  static let quiet = Flag("quiet", help: "says nothing unless something failed")
  static let verbose = Flag("verbose", help: "a line for every picture, with the time of each stage")
  static let budgetLedger = Option<String>.text(
    "budget-ledger", "FILE",
    help:
      "a file that all shards and machines book in what they pay: needed for budget.perDay and perMonth with --shard")
  static let noProgress = Flag("no-progress", help: "no progress bar and no progress lines")

  static let command = Command(
    name: "run", summary: "runs a job: takes its pictures through its stages",
    notes: [
      "Results are the files that the job writes. Progress and the summary go to standard error: a bar on a terminal, "
        + "a line now and then elsewhere. NO_COLOR and CI are respected.",
      "SIGINT, SIGTERM and SIGHUP stop a run: pictures in flight are finished within the job's run.graceTime, the report "
        + "is written. A second signal ends it at once.",
      "A picture that is up to date is skipped: it was done by an earlier run, and neither its content nor the job's "
        + "stages, the files they use and its outputs have changed since. What a run must remember for that is in the "
        + "state folder: .pipeline beside the job file, unless the job's \"state\" or --state names another.",
      "Two runs with one state folder exclude each other: the second exits with 75 and says who holds the lock, unless "
        + "--wait or --if-locked says otherwise.",
      "Exit codes: 0 everything done, or nothing to do; 1 some pictures failed; 2 wrong command line; 3 wrong job file; "
        + "4 cannot start (library, model, variable or input missing, plugin refused, state folder not writable); 5 stopped at a limit "
        + "(the run's deadline, the budget, a service's quota or wait); 75 another run holds the lock; 129, 130, 143 interrupted by SIGHUP, SIGINT, SIGTERM.",
    ],
    operand: JobOptions.job,
    options: [
      JobOptions.set, JobOptions.input, JobOptions.plugin, JobOptions.shard, jobs, failFast, PruneOption.prune,
      budgetLedger,
    ]
      + StateOptions.deciding
      + StateOptions.locking + [report, html] + RunOutputs.options + [logFormat, quiet, verbose, noProgress],
    examples: [
      "pipeline run job.json", "pipeline run job.json --set size=800 --report report.json",
      "pipeline run job.json --html report.html", "pipeline run job.json --input 'photos/*.jpg' --jobs 2",
      "pipeline run job.json --shard 2/4 --report report-2.json",
    ],
    run: run)

  /// Seconds that stages get to be ready after a crash, in a run that is being stopped.
  private static let reportPatience = 15.0

  /// How far a run has come, for the handler of signals.
  private enum Phase: Sendable {
    /// With the signals that came and are still to be acted upon: after a crash.
    case preparing(early: [Int32])
    case running(JobRun, RunConsole)
    /// The page of the run is being written; the exit code is settled.
    case paging(Int32, PageStop)
    /// The report is written; the exit code is settled.
    case ending(Int32)
  }

  @Sendable private static func run(_ arguments: ParsedArguments, _ invocation: Invocation) throws(UsageError) -> Int32
  {
    let outputs = try RunOutputs(arguments)
    return outputs.end(try run(arguments, invocation, outputs))
  }

  private static func run(
    _ arguments: ParsedArguments, _ invocation: Invocation, _ outputs: RunOutputs
  ) throws(UsageError) -> Int32 {
    let jobPath = arguments.operands[0]
    let loader = try JobOptions.loader(arguments, invocation.registry)
    let historyOptions = try StateOptions.history(arguments)
    guard !(arguments[quiet] && arguments[verbose]) else {
      throw UsageError("--quiet and --verbose exclude each other")
    }
    let shard = try JobOptions.shard(arguments)
    try PruneOption.check(arguments)
    if let link = ParentLink.inherited() { serve(link, loader) }
    // The program may have crashed in this very run.
    let past = PastRun.inherited()

    // Before any other thread is started.
    let phase = Held<Phase>(.preparing(early: []))
    // One that came before the crash was the first.
    let signals = Held(past?.stopSignal == nil ? 0 : 1)
    let watch = SignalWatch { signal in
      let count = signals.value.withLock { count in
        count += 1
        return count
      }
      let now = phase.value.withLock { phase in
        if past != nil, case .preparing(let early) = phase { phase = .preparing(early: early + [signal]) }
        return phase
      }
      switch now {
      // Items have been worked on before the crash, and a report is owed.
      case .preparing where past != nil: break
      case .preparing: _exit(128 + signal)
      case .ending(let code): _exit(code)
      case .paging(let code, let stop):
        // The page is worth a moment; a further signal no longer waits for it.
        if stop.why != nil { _exit(code) }
        stop.stop("the run was interrupted")
      case .running(let run, let console):
        // A third one no longer waits for anything.
        if count > 2 { _exit(128 + signal) }
        if count == 1 { console.stopping(signal: signal, graceTime: run.job.graceTime) }
        run.stop(signal: signal)
        if !run.isWorking {
          // A model that will not load must not hold up the end; no picture was touched. After a crash there were some,
          // and the report of them is worth a wait; a third signal cuts it short.
          let grace = run.job.graceTime
          let patience = past != nil ? max(Self.reportPatience, grace) : count == 1 ? grace : min(1, grace)
          DispatchQueue(label: "pipeline.start.patience").asyncAfter(deadline: .now() + patience) {
            guard !run.isWorking, case .running = phase.value.withLock({ $0 }) else { return }
            console.end()
            _exit(128 + signal)
          }
        }
      }
    }
    defer { withExtendedLifetime(watch) {} }

    let terminal = Terminal(2)
    let format = arguments[logFormat] ?? .text
    let log = RunLog(format: format, isQuiet: arguments[quiet], screen: Screen(terminal))
    func fail(_ error: StageError) -> Int32 {
      outputs.note(error)
      log.write(error)
      log.screen.flush()
      return ExitCode(of: error).rawValue
    }

    let loaded: LoadedJob
    if let past {
      loaded = loader.load(past.jobText, name: past.jobFile, folder: past.baseFolder)
    } else {
      do throws(StageError) { loaded = try loader.load(path: jobPath) } catch { return fail(error) }
    }
    // Unset variables are a warning to lint and an error here.
    let unset = loaded.unsetEnvironment
    // Once is enough: after a crash only what kept the run from going on would be new.
    log.write(
      loaded.diagnostics.filter { past == nil || $0.severity == .error || unset.contains($0) }.map { diagnostic in
        var diagnostic = diagnostic
        if unset.contains(diagnostic) {
          diagnostic.severity = .error
          diagnostic.hint = nil
        }
        return diagnostic
      }, sources: loaded.sources)
    if past == nil { outputs.note(loaded) }
    guard let job = loaded.job, unset.isEmpty else {
      log.screen.flush()
      return ExitCode(unusable: loaded).rawValue
    }

    let book: SpendingBook?
    do throws(StageError) {
      book = try Self.spendingBook(arguments[budgetLedger], job, shard)
    } catch {
      return fail(error)
    }
    var options = RunOptions()
    options.jobs = arguments[jobs]
    options.shard = shard
    options.failFast = arguments[failFast]
    options.keepsReport = arguments[report] != nil || arguments[html] != nil || outputs.needsRecords
    options.isJournaled = true
    options.programVersion = ProgramVersion.text
    let identity = RunIdentity.new()
    let folder = StateOptions.folder(arguments, job, shard: shard)
    let lock: StateLock
    let history: RunHistory
    do throws(StageError) {
      try folder.make()
      let runID = past?.runID ?? identity.runID
      let attempt = try StateLock.acquire(
        folder, run: runID, job: job.name, waiting: arguments[StateOptions.wait],
        onWait: { holder in
          log.write(.info, "waiting", "waiting for \(text(holder)) to end")
          log.screen.flush()
        })
      switch attempt {
      case .acquired(let held): lock = held
      case .held(let holder):
        outputs.noteLocked()
        if arguments[StateOptions.ifLocked] == .skip {
          log.write(.info, "locked", "nothing done: \(text(holder)) holds the lock of \(folder.ledgerFolder.printable)")
          log.screen.flush()
          return ExitCode.done.rawValue
        }
        log.write(Self.lockError(folder, holder))
        log.screen.flush()
        return ExitCode.locked.rawValue
      }
      history = try Self.history(job, folder, historyOptions)
    } catch {
      return fail(error)
    }
    defer {
      history.ledger.close()
      lock.release()
    }
    let run = JobRun(job: job, options: options, identity: identity, past: past, history: history, spendingBook: book)

    let plan: RunPlan
    do throws(PlanError) {
      plan = if let past { past.plan(job) } else { try run.plan() }
    } catch {
      switch error {
      case .state(let error): return fail(error)
      case .input(let error):
        let (diagnostics, code) = JobOptions.diagnostics(error, loaded, usesOwnInput: loader.inputGlobs.isEmpty)
        log.write(diagnostics, sources: loaded.sources)
        log.screen.flush()
        return code
      }
    }
    log.write(plan.findings, sources: loaded.sources)
    guard !plan.findings.hasErrors else {
      log.screen.flush()
      return ExitCode.wrongJob.rawValue
    }
    var reportPlace = past?.reportPath
    if past == nil, let text = arguments[report] {
      do throws(StageError) {
        reportPlace = try ReportPlace.check(
          text, jobFile: jobPath, job: job, plan: plan, tag: run.values.runID)
      } catch {
        return fail(error)
      }
    }
    var pagePlace: PathBytes?
    if let text = arguments[html] {
      do throws(StageError) {
        pagePlace =
          past == nil
          ? try ReportPlace.check(text, jobFile: jobPath, job: job, plan: plan, tag: run.values.runID, kind: .page)
          : try ReportPlace.absolute(text)
      } catch {
        return fail(error)
      }
    }
    if past == nil {
      do throws(StageError) { try outputs.check(job, plan, tag: run.values.runID) } catch { return fail(error) }
    }
    if arguments[PruneOption.prune] != nil {
      if let refusal = PruneOption.refusal(loaded) {
        _ = fail(refusal)
        return ExitCode.wrongCommandLine.rawValue
      }
      // Before the run books pictures that have come: whether all others are gone shows now.
      if past == nil {
        do throws(StageError) { _ = try PruneOption.list(arguments, run, plan, history) } catch { return fail(error) }
      }
    }
    if arguments[StateOptions.explainSkips], past == nil { log.explain(plan) }
    log.screen.flush()
    var entry = LedgerRun(
      id: run.values.runID, job: history.job, jobName: job.name, started: run.started, ended: nil, exitCode: nil,
      stop: nil, counts: "", shard: shard?.label, host: Machine.hostName, pid: getpid(),
      version: ProgramVersion.text, reportPath: reportPlace)
    if past == nil {
      do throws(StageError) { try run.begin(entry, plan) } catch { return fail(error) }
    } else {
      history.resume(entry.id)
    }
    run.keepJournal(of: plan, jobText: loaded.sources.first?.text ?? [], reportPath: reportPlace)

    let (library, descriptor) = LibraryOutput.begin()
    let screen = Screen(terminal.moved(to: descriptor), isJournaled: true)
    let runLog = RunLog(format: format, isQuiet: arguments[quiet], screen: screen)
    let console = RunConsole(
      log: runLog, isVerbose: arguments[verbose], showsProgress: !arguments[noProgress], library: library,
      elapsed: past?.elapsed ?? 0)
    // Before the first line: whoever has seen it may end the run in order.
    let early = phase.value.withLock { phase in
      defer { phase = .running(run, console) }
      return if case .preparing(let early) = phase { early } else { [] as [Int32] }
    }
    if let past {
      console.takeUp(run, plan, past)
      if let signal = past.stopSignal { run.stop(signal: signal) }
    } else {
      console.start(run, plan, report: arguments[report])
    }
    for signal in early {
      console.stopping(signal: signal, graceTime: job.graceTime)
      run.stop(signal: signal)
    }
    var code: Int32
    let outcome: RunOutcome
    do throws(StageError) {
      outcome = try run.execute(plan, observer: console)
      console.end()
      code = outcome.exitCode
      var reportError: StageError?
      if let reportPlace {
        do throws(StageError) {
          try ResultKind.report.check(reportPlace, named: arguments[report] ?? reportPlace.display)
          try run.writeReport(to: reportPlace, outcome: outcome)
        } catch {
          reportError = error
        }
      }
      do throws(StageError) { try outputs.take(run, plan, outcome) } catch { reportError = reportError ?? error }
      if reportError != nil, code == 0 { code = ExitCode.someFailed.rawValue }
      phase.value.withLock { [code] in $0 = .ending(code) }
      console.summarise(outcome, jobName: job.name, reportPath: reportError == nil ? arguments[report] : nil)
      if let reportError { runLog.write(reportError) }
    } catch {
      console.end()
      outcome = run.outcome(of: plan, failedToStart: error)
      code = outcome.exitCode
      phase.value.withLock { [code] in $0 = .ending(code) }
      runLog.write(error)
      if let reportPlace {
        do throws(StageError) { try run.writeReport(to: reportPlace, outcome: outcome) } catch { runLog.write(error) }
      }
      do throws(StageError) { try outputs.take(run, plan, outcome) } catch { runLog.write(error) }
    }
    if let pagePlace {
      let stop = PageStop()
      // What the crash came from may be one of the pictures, and is not met again.
      if past?.isAtEnd == true { stop.stop("the program crashed when the last picture had ended") }
      phase.value.withLock { [code] in $0 = .paging(code, stop) }
      do throws(StageError) {
        // This run may have written there itself.
        try ResultKind.page.check(pagePlace, named: arguments[html] ?? "")
        try RunPage.write(run, outcome, to: pagePlace, named: arguments[html] ?? "", stop: stop, log: runLog)
      } catch {
        runLog.write(error)
        if code == 0 { code = ExitCode.someFailed.rawValue }
      }
      phase.value.withLock { [code] in $0 = .ending(code) }
    }
    if outcome.stop == nil, outcome.startError == nil {
      do throws(StageError) {
        if var prune = try PruneOption.list(arguments, run, plan, history, checksAll: false) {
          try prune.carryOut(history)
          tell(prune, run, runLog)
        }
      } catch {
        runLog.write(error)
        if code == 0 { code = ExitCode.someFailed.rawValue }
      }
    }
    if let problem = history.end(&entry, outcome, exitCode: code) {
      runLog.write(problem)
      if code == 0 { code = ExitCode.someFailed.rawValue }
    }
    library?.end()
    screen.flush()
    return code
  }

  private static func tell(_ prune: Prune, _ run: JobRun, _ log: RunLog) {
    for entry in prune.entries {
      let (name, input) = (PruneOption.name(entry.path, run), entry.input.printable)
      let fields: [(String, JSONText)] = [
        ("path", .string(entry.path.display)), ("input", .string(entry.input.display)),
      ]
      switch entry.action {
      case .remove: log.write(.info, "pruned", "removed \(name): its input \(input) is gone", fields)
      case .keep(let reason):
        log.write(
          .warning, "kept", "kept \(name), though its input \(input) is gone: \(Wording.oneLine(reason))", fields)
      case .missing: break
      }
    }
  }

  /// What several runs spend together.
  private static func spendingBook(
    _ path: String?, _ job: Job, _ shard: Shard?
  ) throws(StageError) -> SpendingBook? {
    if let path {
      return try SpendingBook((PathBytes.currentFolder ?? "/").joining(PathBytes(path)).normalised)
    }
    guard shard != nil, let budget = job.budget, budget.spansRuns, !job.prices.isEmpty else { return nil }
    throw StageError(
      "budget-shards",
      "budget.perDay and budget.perMonth count what all shards spend, and each shard knows only its own ledger",
      kind: .job, hint: "--budget-ledger FILE names a file that all of them share")
  }

  /// What earlier runs have done.
  private static func history(
    _ job: Job, _ folder: StateFolder, _ options: HistoryOptions
  ) throws(StageError) -> RunHistory {
    guard let ledger = try Ledger.open(folder, .readWrite) else {
      throw StageError("state-missing", "there is no ledger in \(folder.path.printable)", kind: .environment)
    }
    return try RunHistory(job, ledger: ledger, folder: folder, options: options)
  }

  private static func text(_ holder: StateLock.Holder?) -> String { holder?.description ?? "another run" }

  private static func lockError(_ folder: StateFolder, _ holder: StateLock.Holder?) -> StageError {
    StageError(
      "locked", "\(text(holder)) holds the lock of \(folder.ledgerFolder.printable)", kind: .environment,
      hint: "--wait waits for its end, --if-locked skip ends without an error, --state keeps this job's state elsewhere"
    )
  }

  /// Works on items for the run that started this process.
  private static func serve(_ link: ParentLink, _ loader: JobLoader) -> Never {
    let beginning = link.begin()
    let loaded = loader.load(beginning.job, name: beginning.file, folder: beginning.folder)
    guard let job = loaded.job else {
      let found = loaded.diagnostics.first { $0.severity == .error }
      link.refuse(
        StageError(
          "child-start", "no process could be started for the picture", kind: .job,
          cause: found?.message ?? "the job cannot be read any more"))
    }
    var options = RunOptions()
    options.jobs = 1
    JobRun(job: job, options: options, identity: beginning.identity).serve(link, beginning)
  }

  /// A value shared with the handler of signals.
  private final class Held<Value: Sendable>: Sendable {
    let value: Mutex<Value>
    init(_ value: Value) { self.value = Mutex(value) }
  }
}
