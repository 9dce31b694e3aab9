import Engine
import JobSyntax
import PipelineKit

/// `--prune`: outputs whose input is gone.
enum PruneOption {
  enum Extent: Sendable { case gone, all }

  static let prune = Option<Extent>(
    "prune", "all", isValueOptional: true,
    help:
      "outputs of earlier runs whose input is gone and that are still what was written: run removes them at its end, "
      + "plan lists them; refused where all inputs are gone, except with =all",
    expected: "nothing or all"
  ) { text in
    switch text {
    case "": .gone
    case "all": .all
    default: nil
    }
  }

  static func check(_ arguments: ParsedArguments) throws(UsageError) {
    guard arguments[prune] != nil, !arguments.all(JobOptions.input).isEmpty else { return }
    throw UsageError("--prune needs the job's own input: with --input, what is gone cannot be told")
  }

  /// What keeps this job from being pruned: an input that is another from run to run.
  static func refusal(_ loaded: LoadedJob) -> StageError? {
    let reason: String
    switch loaded.job?.input {
    case .list("-", _), .manifest("-", _, _, _): reason = "comes from standard input"
    case .imgur: reason = "is a search, which finds others every day"
    default:
      guard let source = loaded.sources.first, let input = StrictJSON.parse(source).root?["input"],
        JSONText(input.value).rendered().replacing("${secret.", with: "").contains("${")
      else { return nil }
      reason = "depends on a variable"
    }
    return StageError(
      "prune-unsure", "nothing is pruned: the job's input \(reason), so what is gone cannot be told",
      kind: .usage, hint: "write the input out")
  }

  /// What is to be removed, in the order in which it was booked.
  static func list(
    _ arguments: ParsedArguments, _ run: JobRun, _ plan: RunPlan, _ history: RunHistory, checksAll: Bool = true
  ) throws(StageError) -> Prune? {
    guard let extent = arguments[prune] else { return nil }
    return try Prune(run, plan, history, takesAll: extent == .all || !checksAll)
  }

  static func name(_ path: PathBytes, _ run: JobRun) -> String {
    let base = run.job.baseFolder
    return (path.isInside(base) ? path.relative(to: base) : path).printable
  }

  static func json(_ prune: Prune) -> JSONText {
    .array(
      prune.entries.compactMap { entry in
        var members: [(String, JSONText)] = [
          ("path", .string(entry.path.display)), ("input", .string(entry.input.display)),
        ]
        switch entry.action {
        case .missing: return nil
        case .remove: members.append(("action", "remove"))
        case .keep(let reason): members += [("action", "keep"), ("reason", .string(reason))]
        }
        return .object(members)
      })
  }
}
