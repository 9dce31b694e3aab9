/// Finds a process's shard in what schedulers and CI services put into its environment.
///
/// | where | index | counts from | number of shards |
/// |---|---|---|---|
/// | Slurm array | `SLURM_ARRAY_TASK_ID` | `SLURM_ARRAY_TASK_MIN`, in steps of `SLURM_ARRAY_TASK_STEP` | from `…_MIN`, `…_MAX` and `…_STEP`; must be `…_COUNT` |
/// | Kubernetes indexed Job | `JOB_COMPLETION_INDEX` | 0 | not told: `auto/N` |
/// | AWS Batch array | `AWS_BATCH_JOB_ARRAY_INDEX` | 0 | `AWS_BATCH_JOB_ARRAY_SIZE` |
/// | GitLab `parallel` | `CI_NODE_INDEX` | 1 | `CI_NODE_TOTAL` |
/// | Buildkite `parallelism` | `BUILDKITE_PARALLEL_JOB` | 0 | `BUILDKITE_PARALLEL_JOB_COUNT` |
/// | CircleCI `parallelism` | `CIRCLE_NODE_INDEX` | 0 | `CIRCLE_NODE_TOTAL` |
///
/// From their own documentation: Slurm's "Job Array Support", Kubernetes' "Indexed Job for Parallel Processing with
/// Static Work Assignment", AWS Batch's "Job environment variables", GitLab's "Predefined CI/CD variables", Buildkite's
/// "Environment variables", CircleCI's "Project values and variables".
enum ShardDetection {
  private struct Finding {
    var place: String
    /// The variable and its value, for messages.
    var text: String
    /// From 1.
    var index: Int
    var count: Int?
  }

  /// Those that count in steps of 1 from a fixed number.
  private static let plain: [(place: String, index: String, base: Int, count: String?)] = [
    ("Kubernetes", "JOB_COMPLETION_INDEX", 0, nil),
    ("AWS Batch", "AWS_BATCH_JOB_ARRAY_INDEX", 0, "AWS_BATCH_JOB_ARRAY_SIZE"),
    ("GitLab", "CI_NODE_INDEX", 1, "CI_NODE_TOTAL"),
    ("Buildkite", "BUILDKITE_PARALLEL_JOB", 0, "BUILDKITE_PARALLEL_JOB_COUNT"),
    ("CircleCI", "CIRCLE_NODE_INDEX", 0, "CIRCLE_NODE_TOTAL"),
  ]

  /// - Parameters:
  ///   - count: the number of shards as the command line has it.
  ///   - variable: an environment variable's value; an empty one counts as not set.
  static func shard(count: Int?, variable: (String) -> String?) throws(ShardError) -> Shard {
    func set(_ name: String) -> String? { variable(name).flatMap { $0.isEmpty ? nil : $0 } }
    func number(_ name: String) throws(ShardError) -> Int? {
      guard let text = set(name) else { return nil }
      // No scheduler counts so far, and sums of larger numbers might be none.
      guard let value = Shard.number(text), value <= Int(Int32.max) else {
        throw ShardError(message: "\(name) is \"\(text)\", which is no whole number below 2^31", hint: byHand)
      }
      return value
    }

    var findings: [Finding] = []
    if let task = try number("SLURM_ARRAY_TASK_ID") {
      findings.append(
        try slurm(
          task, first: try number("SLURM_ARRAY_TASK_MIN"), last: try number("SLURM_ARRAY_TASK_MAX"),
          step: try number("SLURM_ARRAY_TASK_STEP"), count: try number("SLURM_ARRAY_TASK_COUNT")))
    }
    for source in plain {
      guard let value = try number(source.index) else { continue }
      var told: Int?
      if let name = source.count { told = try number(name) }
      findings.append(
        Finding(
          place: source.place, text: "\(source.index)=\(value)", index: value - source.base + 1, count: told))
    }

    guard let first = findings.first else {
      let names = ["SLURM_ARRAY_TASK_ID (Slurm)"] + plain.map { "\($0.index) (\($0.place))" }
      throw ShardError(
        message: "--shard auto found no array task or parallel job: none of \(names.joined(separator: ", ")) is set",
        hint: byHand)
    }
    var total = count
    var teller = "--shard auto/\(count ?? 0)"
    for finding in findings {
      guard finding.index == first.index else {
        throw ShardError(
          message: "\(first.place) (\(first.text)) and \(finding.place) (\(finding.text)) tell different shards",
          hint: byHand)
      }
      guard let told = finding.count else { continue }
      if let total, total != told {
        throw ShardError(message: "\(teller) says \(total) shards, \(finding.place) says \(told)", hint: byHand)
      }
      if total == nil { (total, teller) = (told, finding.place) }
    }
    guard let total else {
      throw ShardError(
        message: "\(first.place) does not tell how many shards there are", hint: "say it: --shard auto/N")
    }
    guard let shard = Shard(index: first.index, count: total) else {
      throw ShardError(
        message: "\(first.place) tells shard \(first.index) (\(first.text)) of \(total), which is none", hint: byHand)
    }
    return shard
  }

  private static let byHand = "name the shard: --shard I/N, from 1"

  /// Arrays may start anywhere and have steps. One that was submitted as a list (`--array=1,2,7`) can have gaps that a
  /// task cannot see past: it knows the ends, the step and the number of tasks.
  private static func slurm(
    _ task: Int, first: Int?, last: Int?, step: Int?, count: Int?
  ) throws(ShardError) -> Finding {
    guard let first, let last else {
      throw ShardError(
        message: "SLURM_ARRAY_TASK_ID is set, but not SLURM_ARRAY_TASK_MIN and SLURM_ARRAY_TASK_MAX", hint: byHand)
    }
    let step = step ?? 1
    guard step > 0, (first...max(first, last)).contains(task), last >= first else {
      throw ShardError(
        message: "Slurm's task \(task) is not in its array from \(first) to \(last) in steps of \(step)", hint: byHand)
    }
    let tasks = (last - first) / step + 1
    guard (last - first) % step == 0, (task - first) % step == 0, count ?? tasks == tasks else {
      throw ShardError(
        message: "Slurm's array from \(first) to \(last) has gaps (\(count ?? tasks) tasks, step \(step)), so which "
          + "part task \(task) is does not follow",
        hint: "submit a range, as in --array=1-\(count ?? tasks), or " + byHand)
    }
    return Finding(
      place: "Slurm", text: "SLURM_ARRAY_TASK_ID=\(task)", index: (task - first) / step + 1, count: tasks)
  }
}
