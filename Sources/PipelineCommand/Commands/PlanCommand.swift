import Engine
import JobSyntax
import PipelineKit

/// `pipeline plan JOB`.
enum PlanCommand {
  static let command = Command(
    name: "plan", summary: "shows what run would do, and does nothing",
    notes: [
      "One line for each picture: its outputs, or why it would be skipped or dropped. A name that is known only during "
        + "the run is shown as ?. Collisions are proven here as run does before it starts.",
      "Exit codes: 0 run can start, 2 wrong command line, 3 wrong job file or outputs that collide, 4 input missing or plugin refused.",
    ],
    operand: JobOptions.job,
    options: [
      JobOptions.set, JobOptions.input, JobOptions.plugin, JobOptions.shard, PruneOption.prune, JobOptions.format,
    ]
      + StateOptions.deciding,
    examples: ["pipeline plan job.json", "pipeline plan job.json --format json"],
    run: run)

  @Sendable private static func run(_ arguments: ParsedArguments, _ invocation: Invocation) throws(UsageError) -> Int32
  {
    let loader = try JobOptions.loader(arguments, invocation.registry)
    let historyOptions = try StateOptions.history(arguments)
    let shard = try JobOptions.shard(arguments)
    try PruneOption.check(arguments)
    let terminal = Terminal(2)
    let renderer = DiagnosticRenderer(width: terminal.diagnosticWidth)
    func show(_ diagnostics: [Diagnostic], _ sources: [SourceFile]) {
      invocation.output.flush()
      StandardStreams.writeError(renderer.text(diagnostics, sources: sources, color: terminal.usesColor))
    }
    let loaded: LoadedJob
    do throws(StageError) {
      loaded = try loader.load(path: arguments.operands[0])
    } catch {
      show([Diagnostic(unreadable: error, file: arguments.operands[0])], [])
      return ExitCode.wrongJob.rawValue
    }
    show(loaded.diagnostics, loaded.sources)
    guard let job = loaded.job else {
      return ExitCode(unusable: loaded).rawValue
    }
    func fail(_ error: StageError) -> Int32 {
      show([Diagnostic(unreadable: error, file: arguments.operands[0])], loaded.sources)
      return ExitCode(of: error).rawValue
    }
    var history: RunHistory?
    // The last to leave a database takes its log along.
    defer { history?.ledger.close() }
    do throws(StageError) {
      // Nothing is made by looking: where no run was, there is none to remember.
      if let ledger = try Ledger.open(StateOptions.folder(arguments, job, shard: shard), .readOnly) {
        history = try RunHistory(job, ledger: ledger, folder: nil, options: historyOptions)
      }
    } catch {
      return fail(error)
    }
    var options = RunOptions()
    options.shard = shard
    let run = JobRun(job: job, options: options, history: history)
    let plan: RunPlan
    do throws(PlanError) {
      plan = try run.plan()
    } catch {
      switch error {
      case .state(let error): return fail(error)
      case .input(let error):
        let (diagnostics, code) = JobOptions.diagnostics(error, loaded, usesOwnInput: loader.inputGlobs.isEmpty)
        show(diagnostics, loaded.sources)
        return code
      }
    }
    var prune: Prune?
    if arguments[PruneOption.prune] != nil, let history {
      if let refusal = PruneOption.refusal(loaded) {
        _ = fail(refusal)
        return ExitCode.wrongCommandLine.rawValue
      }
      do throws(StageError) { prune = try PruneOption.list(arguments, run, plan, history) } catch { return fail(error) }
    }
    if arguments[JobOptions.format] == .json {
      var result = json(plan, run, renderer)
      if let prune, case .object(let members) = result {
        result = .object(members + [("prune", PruneOption.json(prune))])
      }
      invocation.output.print(result.rendered(pretty: true))
    } else {
      writeText(plan, run, invocation.output)
      for entry in prune?.entries ?? [] {
        let (name, input) = (PruneOption.name(entry.path, run), entry.input.printable)
        switch entry.action {
        case .remove: invocation.output.print("\(name): remove: its input \(input) is gone")
        case .keep(let reason):
          invocation.output.print("\(name): keep, though its input \(input) is gone: \(Wording.oneLine(reason))")
        case .missing: break
        }
      }
    }
    show(plan.findings, loaded.sources)
    return (plan.findings.hasErrors ? ExitCode.wrongJob : .done).rawValue
  }

  private static func writeText(_ plan: RunPlan, _ run: JobRun, _ output: ResultOutput) {
    let base = run.job.baseFolder
    for index in plan.inputs.indices {
      let name = plan.inputs[index].name.printable
      switch plan.decisions[index] {
      case nil:
        let outputs = run.outputs(of: plan, at: index).map { path in
          path.map { ($0.isInside(base) ? $0.relative(to: base) : $0).printable } ?? "?"
        }
        let reason = plan.reasons[index].map { " (\(Wording.oneLine($0)))" } ?? ""
        output.print("\(name) -> \(outputs.isEmpty ? "no file" : outputs.joined(separator: ", "))\(reason)")
      case .skip(let reason): output.print("\(name): skip: \(Wording.oneLine(reason))")
      case .drop(let reason): output.print("\(name): drop: \(Wording.oneLine(reason))")
      case .fail(let error, _): output.print("\(name): fail: \(Wording.oneLine(error.message))")
      }
    }
    let (skip, drop, fail) = counts(plan)
    var total = "\(Wording.count(plan.inputs.count, "picture")): \(plan.workCount) to do"
    if skip > 0 { total += ", \(skip) to skip" }
    if drop > 0 { total += ", \(drop) to drop" }
    if fail > 0 { total += ", \(fail) would fail" }
    if let shard = run.options.shard {
      total += "; shard \(shard.index) of \(shard.count), \(plan.list.count) in all"
    }
    output.print(total)
    for price in charges(plan, run.job) { output.print(price.text) }
    let passed = plan.skippedInputs
    guard passed.total > 0 else { return }
    output.print("passed over: \(passed.summary)")
    for reason in SkippedInput.Reason.allCases {
      let examples = passed.examples[reason] ?? []
      for example in examples { output.print("  " + Wording.oneLine(example.text)) }
      let more = (passed.counts[reason] ?? 0) - examples.count
      if more > 0 { output.print("  and \(more) more: \(reason.text)") }
    }
  }

  /// What may be paid for: every picture that has work to do may need every service of the chain; what was paid for
  /// before is not paid for again.
  private static func charges(
    _ plan: RunPlan, _ job: Job
  ) -> [(provider: String, credits: Double, text: String)] {
    job.prices.map { price in
      let credits = price.credits * Double(plan.workCount)
      var text =
        "\(price.provider): at most \(Wording.credits(credits)), \(Wording.credits(price.credits)) a picture"
      if let budget = job.budget?.credits { text += "; the budget of a run is \(Wording.credits(budget))" }
      return (price.provider, credits, text)
    }
  }

  private static func counts(_ plan: RunPlan) -> (skip: Int, drop: Int, fail: Int) {
    var (skip, drop) = (0, 0)
    for decision in plan.decisions.values {
      switch decision {
      case .skip: skip += 1
      case .drop: drop += 1
      case .fail: break
      }
    }
    return (skip, drop, plan.decisions.count - skip - drop)
  }

  private static func json(_ plan: RunPlan, _ run: JobRun, _ renderer: DiagnosticRenderer) -> JSONText {
    let items: [JSONText] = plan.inputs.indices.map { index in
      var decision: JSONText = "run"
      var reason: JSONText = nil
      switch plan.decisions[index] {
      case nil: reason = plan.reasons[index].map { .string($0) } ?? nil
      case .skip(let text): (decision, reason) = ("skip", .string(text))
      case .drop(let text): (decision, reason) = ("drop", .string(text))
      case .fail(let error, _): (decision, reason) = ("fail", .string(error.message))
      }
      return .object([
        ("index", .integer(plan.inputs[index].index)), ("input", .string(plan.inputs[index].name.display)),
        ("outputs", .array(run.outputs(of: plan, at: index).map { $0.map { .string($0.display) } ?? nil })),
        ("decision", decision), ("reason", reason),
      ])
    }
    let (skip, drop, fail) = counts(plan)
    let passed = plan.skippedInputs
    let shard: JSONText =
      run.options.shard.map { shard in
        .object([
          ("index", .integer(shard.index)), ("count", .integer(shard.count)), ("inputs", .integer(plan.list.count)),
          ("inputsDigest", .string(plan.list.digest)),
        ])
      } ?? nil
    return .object([
      ("job", .string(run.job.name)), ("shard", shard), ("items", .array(items)),
      (
        "counts",
        .object([
          ("total", .integer(plan.inputs.count)), ("run", .integer(plan.workCount)), ("skip", .integer(skip)),
          ("drop", .integer(drop)), ("fail", .integer(fail)),
        ])
      ),
      (
        "skippedInputs",
        .array(
          SkippedInput.Reason.allCases.compactMap { reason in
            passed.counts[reason].map { count in
              .object([
                ("reason", .string(reason.rawValue)), ("count", .integer(count)),
                ("examples", .array((passed.examples[reason] ?? []).map { .string($0.path.display) })),
              ])
            }
          })
      ),
      (
        "charges",
        .array(
          charges(plan, run.job).map {
            .object([("provider", .string($0.provider)), ("mostCredits", .number($0.credits))])
          })
      ),
      ("findings", .array(plan.findings.map { renderer.jsonValue($0) })),
    ])
  }
}
