import Engine
import Glibc
import Imaging
import Pages
import PipelineKit

/// `pipeline report merge A B…` and `pipeline report html REPORT`.
enum ReportCommand {
  private static let output = Option<String>.text(
    "output", "FILE", help: "writes there; `html` needs it, `merge` writes to standard output without it")
  private static let base = Option<String>.text(
    "base", "DIR", help: "`html`: the folder that relative paths in the report are of (default: the job's, or this one)"
  )

  static let command = Command(
    name: "report", summary: "joins the reports of a job's shards to one, or makes a web page of one",
    notes: [
      "`merge` takes the report of every shard of one job, in any order, and gives one report: pictures in the order of "
        + "the job's inputs, counts added up, and under \"runs\" what each shard says of itself. wallSeconds is the "
        + "longest of all, cpuSeconds their sum; exitCode is what one run would have ended with. A run that was "
        + "interrupted still wrote a report, which is merged, and it is said. Reports are refused where one is missing "
        + "or given twice, where they are not of one job, or where the shards saw different inputs.",
      "`html` takes one report, also a merged one, and writes the page that `pipeline run --html` writes: from the files "
        + "as they are now, so a picture that has gone since is not shown. Up to 1,000 pictures it is one file; above "
        + "that small pictures are in a folder beside it, which belongs to it.",
      "Exit codes: 0 done, whatever became of the pictures; 1 the result could not be written; 2 wrong command "
        + "line; 4 the reports cannot be read or merged.",
    ],
    operand: Operand(
      name: "merge|html FILE", help: "the reports to join, or the one to show", count: 1...Shard.mostShards),
    options: [output, base],
    examples: [
      "pipeline report merge report-1.json report-2.json --output report.json",
      "pipeline report merge reports/*.json > report.json",
      "pipeline report html report.json --output report.html",
    ],
    run: run)

  @Sendable private static func run(_ arguments: ParsedArguments, _ invocation: Invocation) throws(UsageError) -> Int32
  {
    switch arguments.operands[0] {
    case "html": return try page(arguments)
    case "merge": break
    default:
      throw UsageError(
        "unknown argument \"\(arguments.operands[0])\"",
        hint: "pipeline report merge FILE… or pipeline report html FILE")
    }
    guard arguments[base] == nil else { throw UsageError("--base is for `report html`") }
    let paths = arguments.operands.dropFirst().map { PathBytes($0) }
    guard !paths.isEmpty else { throw UsageError("no report to merge was named", hint: "pipeline report merge FILE…") }
    allowFiles(paths.count)
    let target = arguments[output].map { PathBytes($0) }
    if let target, let same = paths.first(where: { isSame($0, target) }) {
      throw UsageError("--output \(target.printable) would replace the report \(same.printable), which is merged")
    }
    let merged: MergedReport
    do throws(StageError) {
      if let target { try ResultKind.report.check(target, named: arguments[output] ?? "") }
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
      let problem = merged.forEachPiece { StandardStreams.write($0, to: StandardStreams.output) }
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

  /// `report html`.
  private static func page(_ arguments: ParsedArguments) throws(UsageError) -> Int32 {
    guard arguments.operands.count == 2 else {
      throw UsageError("`html` takes one report", hint: "pipeline report html FILE --output PAGE")
    }
    guard let name = arguments[output] else {
      throw UsageError("--output is missing", hint: "pipeline report html FILE --output PAGE")
    }
    let path = PathBytes(arguments.operands[1])
    if isSame(path, PathBytes(name)) { throw UsageError("--output \(name) would replace the report itself") }
    do throws(StageError) {
      let place = try ReportPlace.absolute(name).normalised
      guard let current = PathBytes.currentFolder else {
        throw StageError("report-place", "the current folder does not exist any more", kind: .environment)
      }
      let reader = try Pages.ReportReader(path)
      var bases = [current]
      if let folder = arguments[base] {
        bases = [current.joining(PathBytes(folder)).normalised]
      } else if let file = reader.run["file"]?.stringValue {
        bases.insert(current.joining(PathBytes(display: file)).parent.normalised, at: 0)
      }
      try check(place, named: name, against: path, bases)
      // One thread a picture: there are pictures enough for all workers.
      Libvips.setConcurrency(1)
      var options = ReportPage.Options(bases: bases, tag: "page-\(getpid())")
      options.workers = Machine.processors
      do throws(StageError) {
        let written = try ReportPage.write(reader, to: place, options: options)
        RunPage.tell(written, name) { StandardStreams.complain($0) }
      } catch  where !error.code.hasPrefix("report-") {
        StandardStreams.complain(error.description)
        return ExitCode.someFailed.rawValue
      }
    } catch {
      StandardStreams.complain(error.description)
      return ExitCode.cannotStart.rawValue
    }
    return ExitCode.done.rawValue
  }

  /// Refuses to replace what is no page: a folder, or a file that the report names.
  private static func check(
    _ place: PathBytes, named name: String, against report: PathBytes, _ bases: [PathBytes]
  ) throws(StageError) {
    var status = stat()
    guard place.withCString({ stat($0, &status) }) == 0 else { return }
    try ResultKind.page.check(place, named: name)
    var reader = try Pages.ReportReader(report)
    while let item = try reader.next() {
      let outputs = (item["outputs"]?.arrayValue ?? []).compactMap { $0["path"]?.stringValue }
      for text in [item["input"]?.stringValue, item["movedTo"]?.stringValue].compactMap({ $0 }) + outputs {
        let file = PathBytes(display: text)
        guard file.lastComponent == place.lastComponent else { continue }
        if bases.contains(where: { isSame($0.joining(file), place) }) {
          throw ResultKind.page.failure(name, "the report names it as a picture")
        }
      }
    }
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
