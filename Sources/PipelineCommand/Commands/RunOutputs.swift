import Engine
import Glibc
import JobSyntax
import PipelineKit

/// What a run leaves for other programs besides its report: JUnit XML, metrics, and marks for a CI system.
///
/// Used by the main thread only.
final class RunOutputs {
  static let junit = Option<String>.text(
    "junit", "FILE", help: "writes JUnit XML with a test case for each picture, for CI systems")
  static let metrics = Option<String>.text(
    "metrics", "FILE",
    help: "writes the run's numbers in Prometheus' text format, for the textfile collector of its node exporter")
  static let options: [any OptionDeclaration] = [junit, metrics, Annotations.option]

  private let junitText: String?
  private let metricsText: String?
  private let annotations: Annotations
  private let format: LogFormat
  private let isQuiet: Bool
  private let jobFile: String
  private let shard: String?
  private let started = RunClock.now()
  private var jobName: String?
  private var done: (run: JobRun, plan: RunPlan, outcome: RunOutcome, credits: Double)?
  private var problem: StageError?
  /// Whether another run, which writes the numbers itself, has kept this one from starting.
  private var isLocked = false

  init(_ arguments: ParsedArguments) throws(UsageError) {
    junitText = arguments[Self.junit]
    metricsText = arguments[Self.metrics]
    format = arguments[RunCommand.logFormat] ?? .text
    isQuiet = arguments[RunCommand.quiet]
    annotations = Annotations(arguments[Annotations.option], logIsJSON: format == .json)
    jobFile = arguments.operands[0]
    shard = try JobOptions.shard(arguments).map { "\($0.index)/\($0.count)" }
    var seen: [PathBytes: String] = [:]
    for option in [RunCommand.report, RunCommand.html, Self.junit, Self.metrics] {
      guard let text = arguments[option] else { continue }
      if let other = seen.updateValue(option.name, forKey: Self.absolute(text)) {
        throw UsageError("--\(other) and --\(option.name) name the same file")
      }
    }
  }

  /// Whether the records of all pictures are wanted at the end.
  var needsRecords: Bool { junitText != nil || metricsText != nil || !annotations.isEmpty }

  private static func absolute(_ text: String) -> PathBytes {
    (PathBytes.currentFolder ?? "/").joining(PathBytes(text)).normalised
  }

  /// Makes sure, before any work starts, that the files can be written where they are wanted.
  func check(_ job: Job, _ plan: RunPlan, tag: String) throws(StageError) {
    for (text, kind) in [(junitText, ResultKind.junit), (metricsText, .metrics)] {
      guard let text else { continue }
      _ = try ReportPlace.check(text, jobFile: jobFile, job: job, plan: plan, tag: tag, kind: kind)
    }
  }

  /// Notes what the job is, once it is known.
  func note(_ loaded: LoadedJob) {
    jobName =
      loaded.job?.name ?? loaded.sources.first.flatMap { StrictJSON.parse($0).root }?["name"]?.stringValue
    annotations.show(loaded.diagnostics)
  }

  /// Notes why the run could not start.
  func note(_ error: StageError) { problem = error }

  func noteLocked() { isLocked = true }

  /// Takes what is to be told of the run at its end; writes the JUnit file.
  func take(_ run: JobRun, _ plan: RunPlan, _ outcome: RunOutcome) throws(StageError) {
    // The ledger is closed by then.
    done = (run, plan, outcome, (try? run.creditsSpent()) ?? 0)
    guard let junitText else { return }
    try ResultKind.junit.check(Self.absolute(junitText), named: junitText)
    try run.writeJUnit(to: Self.absolute(junitText), outcome: outcome, host: Machine.hostName)
  }

  /// Tells of the run with the exit code that it has in the end.
  ///
  /// - Returns: the exit code, which is another where something could not be told.
  func end(_ exitCode: Int32) -> Int32 {
    var code = exitCode
    func attempt(_ body: () throws(StageError) -> Void) {
      do throws(StageError) {
        try body()
      } catch {
        let log = RunLog(format: format, isQuiet: isQuiet, screen: Screen(Terminal(2)))
        log.write(error)
        log.screen.flush()
        if code == 0 { code = ExitCode.someFailed.rawValue }
      }
    }
    attempt { () throws(StageError) in
      if let done {
        try annotations.show(done.run, done.plan, done.outcome, exitCode: exitCode, isQuiet: isQuiet)
      } else if let problem {
        annotations.show(problem)
      }
    }
    guard let metricsText, !isLocked else { return code }
    attempt { () throws(StageError) in
      let totals: RunMetrics.Totals?
      if let done {
        totals = try RunMetrics.Totals(done.run, done.outcome, credits: done.credits)
      } else {
        totals = nil
      }
      let name = jobName ?? PathBytes(jobFile).lastComponent.stem.display
      let metrics = RunMetrics(
        job: done?.run.job.name ?? name, shard: shard, version: ProgramVersion.text, exitCode: code,
        started: done?.run.started ?? started, ended: RunClock.now(), totals: totals)
      try ResultKind.metrics.check(Self.absolute(metricsText), named: metricsText)
      try metrics.write(to: Self.absolute(metricsText), tag: done?.run.values.runID ?? "\(getpid())")
    }
    return code
  }
}
