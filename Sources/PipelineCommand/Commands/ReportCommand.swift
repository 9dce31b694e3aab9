import Engine
import Glibc
import PipelineKit

/// `pipeline report merge A B…`.
enum ReportCommand {
  private static let output = Option<String>.text(
    "output", "FILE", help: "writes the merged report there instead of to standard output")

  static let command = Command(
    name: "report", summary: "joins the reports of a job's shards to one",
    notes: [
      "`merge` takes the report of every shard of one job, in any order, and gives one report: pictures in the order of "
        + "the job's inputs, counts added up, and under \"runs\" what each shard says of itself. wallSeconds is the "
        + "longest of all, cpuSeconds their sum; exitCode is what one run would have ended with. A run that was "
        + "interrupted still wrote a report, which is merged, and it is said. Reports are refused where one is missing "
        + "or given twice, where they are not of one job, or where the shards saw different inputs.",
      "Exit codes: 0 merged, whatever became of the pictures; 1 the merged report could not be written; 2 wrong command "
        + "line; 4 the reports cannot be merged.",
    ],
    operand: Operand(name: "merge FILE", help: "the reports to join", count: 1...Shard.mostShards),
    options: [output],
    examples: [
      "pipeline report merge report-1.json report-2.json --output report.json",
      "pipeline report merge reports/*.json > report.json",
    ],
    run: run)

  @Sendable private static func run(_ arguments: ParsedArguments, _ invocation: Invocation) throws(UsageError) -> Int32
  {
    guard arguments.operands[0] == "merge" else {
      throw UsageError("unknown argument \"\(arguments.operands[0])\"", hint: "pipeline report merge FILE…")
    }
    let paths = arguments.operands.dropFirst().map { PathBytes($0) }
    guard !paths.isEmpty else { throw UsageError("no report to merge was named", hint: "pipeline report merge FILE…") }
    allowFiles(paths.count)
    let target = arguments[output].map { PathBytes($0) }
    if let target, let same = paths.first(where: { isSame($0, target) }) {
      throw UsageError("--output \(target.printable) would replace the report \(same.printable), which is merged")
    }
    let merged: MergedReport
    do throws(StageError) {
      merged = try MergedReport(merging: paths)
    } catch {
      StandardStreams.complain(error.description)
      return ExitCode.cannotStart.rawValue
    }
    if let target {
      do throws(StageError) {
        try merged.write(to: target)
      } catch {
        StandardStreams.complain(error.description)
        return ExitCode.someFailed.rawValue
      }
    } else {
      let problem = merged.forEachPiece { StandardStreams.write($0, to: 1) }
      if let problem, problem != EPIPE, problem != EBADF {
        StandardStreams.complain(
          "the result could not be written to standard output: \(String(cString: strerror(problem)))")
        return ExitCode.someFailed.rawValue
      }
    }
    for note in merged.notes { StandardStreams.complain(note) }
    let said = ItemStatus.allCases.filter { merged.counts[$0] > 0 }.map { "\(merged.counts[$0]) \($0.rawValue)" }
    StandardStreams.complain(
      "\(merged.job): \(Wording.count(merged.shardCount, "shard")), \(said.joined(separator: ", ")) of "
        + "\(Wording.count(merged.counts.total, "picture")); exit code \(merged.exitCode)")
    return ExitCode.done.rawValue
  }

  private static func isSame(_ a: PathBytes, _ b: PathBytes) -> Bool {
    var first = stat()
    var second = stat()
    guard a.withCString({ stat($0, &first) }) == 0, b.withCString({ stat($0, &second) }) == 0 else { return false }
    return first.st_dev == second.st_dev && first.st_ino == second.st_ino
  }

  /// All reports are open at once.
  private static func allowFiles(_ count: Int) {
    var limit = rlimit()
    let kind = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    guard getrlimit(kind, &limit) == 0, limit.rlim_cur < UInt(count + 32) else { return }
    limit.rlim_cur = min(limit.rlim_max, UInt(count + 32))
    _ = setrlimit(kind, &limit)
  }
}
