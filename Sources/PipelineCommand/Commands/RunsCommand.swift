import Engine
import Glibc
import JobSyntax
import PipelineKit

/// `pipeline runs`.
enum RunsCommand {
  private static let limit = Option<Int>.integer(
    "limit", "N", in: 1...1_000_000, help: "shows the newest N (default 20)")

  static let command = Command(
    name: "runs", summary: "lists past runs, or shows one with what failed in it",
    notes: [
      "`runs` lists the runs of a state folder, the newest first, those of its shards included. `runs show ID` shows "
        + "one; the pictures listed are those that it failed on and no later run has touched. The beginning of an "
        + "ID will do.",
      "The state folder is that of JOB, or of --state, or .pipeline in the current folder. A run without an end that "
        + "nobody holds the lock for was cut short: killed, or the machine went down.",
      "Exit codes: 0 fine, 2 wrong command line, 4 there is no such run, or the ledger cannot be read.",
    ],
    operand: Operand(name: "JOB | show ID [JOB]", help: "whose runs, or which run", count: 0...3),
    options: [StatePlace.option, limit, JobOptions.format],
    examples: ["pipeline runs job.json", "pipeline runs show 20260501-020304-a1b2c3 job.json --format json"],
    run: run)

  @Sendable private static func run(_ arguments: ParsedArguments, _ invocation: Invocation) throws(UsageError) -> Int32
  {
    var operands = arguments.operands[...]
    var wanted: String?
    // A job file may be called "show".
    if operands.first == "show", operands.count > 1 || arguments[StatePlace.option] != nil || access("show", F_OK) != 0
    {
      operands = operands.dropFirst()
      guard let id = operands.popFirst() else { throw UsageError("show needs the ID of a run: pipeline runs show ID") }
      wanted = id
    }
    guard operands.count <= 1 else { throw UsageError("unexpected argument \"\(operands[operands.endIndex - 1])\"") }
    guard operands.isEmpty || arguments[StatePlace.option] == nil else {
      throw UsageError("JOB and --state both name a state folder")
    }
    do throws(StageError) {
      let path = try StatePlace.locate(arguments[StatePlace.option], job: operands.first)
      if let wanted { return try show(wanted, path, arguments, invocation) }
      return try list(path, arguments, invocation)
    } catch {
      invocation.output.flush()
      StandardStreams.complain(error.description)
      return ExitCode.cannotStart.rawValue
    }
  }

  /// A run with the ledger it is in and what it is doing.
  private struct Entry {
    var folder: StateFolder
    var run: LedgerRun
    var isUnderWay: Bool

    init(_ folder: StateFolder, _ run: LedgerRun, holder: StateLock.Holder?) {
      self.folder = folder
      self.run = run
      isUnderWay = run.ended == nil && holder?.run == run.id
    }

    /// Ended without writing so. The next run closes its entry, at its own time and without an exit code.
    var isCutShort: Bool { !isUnderWay && (run.ended == nil || run.exitCode == nil) }

    /// When it ended, where that is known.
    var ended: Double? { isCutShort ? nil : run.ended }

    /// How it ended, in a word or two.
    var end: String {
      if isUnderWay { return "running" }
      if isCutShort { return "cut short" }
      let code = run.exitCode.map { "exit \($0)" } ?? "ended"
      return run.stop.map { "\(code), \(Wording.oneLine($0))" } ?? code
    }

    var seconds: Double? { ended.map { max(0, $0 - run.started) } }

    var counts: [(status: String, count: Int)] {
      let members = StrictJSON.parse(SourceFile(name: "counts", text: Array(run.counts.utf8))).root?.objectValue ?? []
      return members.compactMap { member in
        guard case .number(let number) = member.value.value, let count = number.integer, count > 0 else { return nil }
        return (member.key, count)
      }
    }

    var countsText: String {
      counts.isEmpty ? "-" : counts.map { "\($0.count) \($0.status)" }.joined(separator: ", ")
    }

    var json: [(String, JSONText)] {
      [
        ("id", .string(run.id)), ("job", .string(run.jobName)),
        ("started", .string(RunClock.timestamp(of: run.started))),
        ("ended", ended.map { .string(RunClock.timestamp(of: $0)) } ?? nil),
        (
          "state",
          .string(isUnderWay ? "running" : isCutShort ? "cutShort" : "ended")
        ),
        ("exitCode", run.exitCode.map { .integer(Int($0)) } ?? nil), ("stop", run.stop.map { .string($0) } ?? nil),
        ("seconds", seconds.map { .number($0) } ?? nil),
        ("counts", .object(counts.map { ($0.status, .integer($0.count)) })),
        ("shard", run.shard.map { .string($0) } ?? nil), ("host", .string(run.host)), ("pid", .integer(Int(run.pid))),
        ("version", .string(run.version)), ("report", run.reportPath.map { .string($0.display) } ?? nil),
        ("ledger", .string(folder.ledgerFile.display)),
      ]
    }
  }

  private static func entries(_ path: PathBytes, limit: Int) throws(StageError) -> [Entry] {
    var entries: [Entry] = []
    for folder in StateFolder.ledgers(in: path) {
      guard let ledger = try Ledger.open(folder, .readOnly) else { continue }
      defer { ledger.close() }
      let holder = StateLock.holder(of: folder)
      entries += try ledger.runs(limit: limit).map { Entry(folder, $0, holder: holder) }
    }
    return Array(entries.sorted { $0.run.started > $1.run.started }.prefix(limit))
  }

  private static func list(
    _ path: PathBytes, _ arguments: ParsedArguments, _ invocation: Invocation
  ) throws(StageError) -> Int32 {
    let entries = try entries(path, limit: arguments[limit] ?? 20)
    if arguments[JobOptions.format] == .json {
      invocation.output.print(JSONText.array(entries.map { .object($0.json) }).rendered(pretty: true))
      return ExitCode.done.rawValue
    }
    guard !entries.isEmpty else {
      let isGuessed = arguments.operands.isEmpty && arguments[StatePlace.option] == nil
      StandardStreams.complain(
        "no run is known in \(path.normalised.printable)" + (isGuessed ? "; name the job: pipeline runs JOB" : ""))
      return ExitCode.done.rawValue
    }
    let hasShards = entries.contains { $0.run.shard != nil }
    let rows = entries.map { entry in
      [
        entry.run.id, RunClock.timestamp(of: entry.run.started), entry.seconds.map(Wording.duration) ?? "-", entry.end,
      ] + (hasShards ? [Wording.oneLine(entry.run.shard ?? "-")] : [])
        + [Wording.oneLine(entry.run.jobName), entry.countsText]
    }
    let head = ["run", "started", "took", "end"] + (hasShards ? ["shard"] : []) + ["job", "pictures"]
    for line in TextTable.rows([head] + rows) { invocation.output.print(line) }
    return ExitCode.done.rawValue
  }

  private static func show(
    _ wanted: String, _ path: PathBytes, _ arguments: ParsedArguments, _ invocation: Invocation
  ) throws(StageError) -> Int32 {
    let known = try entries(path, limit: .max)
    // The shards of one array may share an identifier.
    let exact = known.filter { $0.run.id == wanted }
    let found = exact.isEmpty ? known.filter { $0.run.id.hasPrefix(wanted) } : exact
    guard let first = found.first else {
      throw StageError(
        "state-run", "no run \(PathBytes(wanted).printable) is known in \(path.normalised.printable)",
        kind: .environment, hint: "`pipeline runs` lists those that are")
    }
    guard found.allSatisfy({ $0.run.id == first.run.id }) else {
      throw StageError(
        "state-run",
        "\(PathBytes(wanted).printable) is the beginning of several runs: "
          + found.prefix(5).map(\.run.id).joined(separator: ", "), kind: .environment)
    }
    var objects: [JSONText] = []
    for entry in found {
      var failed: [LedgerItem] = []
      if let ledger = try Ledger.open(entry.folder, .readOnly) {
        defer { ledger.close() }
        failed = try ledger.items(run: entry.run.id, statuses: [.failed, .unknown, .deferred, .review])
      }
      if arguments[JobOptions.format] == .json {
        objects.append(.object(entry.json + [("items", .array(failed.map(json)))]))
      } else {
        write(entry, failed, invocation.output)
      }
    }
    if arguments[JobOptions.format] == .json {
      let result: JSONText = objects.count == 1 ? objects[0] : .array(objects)
      invocation.output.print(result.rendered(pretty: true))
    }
    return ExitCode.done.rawValue
  }

  private static func json(_ item: LedgerItem) -> JSONText {
    .object([
      ("input", .string(item.inputPath.display)), ("status", .string(item.status.rawValue)),
      ("detail", item.detail.map { .string($0) } ?? nil),
    ])
  }

  private static func write(_ entry: Entry, _ failed: [LedgerItem], _ output: ResultOutput) {
    let run = entry.run
    var rows = [
      ["run", run.id], ["job", run.jobName + (run.shard.map { ", shard \($0)" } ?? "")],
      ["started", RunClock.timestamp(of: run.started)],
    ]
    if let ended = entry.ended {
      rows.append([
        "ended", RunClock.timestamp(of: ended) + (entry.seconds.map { ", after \(Wording.duration($0))" } ?? ""),
      ])
    }
    rows += [
      ["end", entry.end], ["pictures", entry.countsText], ["process", "\(run.pid) on \(run.host)"],
      ["version", run.version],
    ]
    if let report = run.reportPath { rows.append(["report", report.printable]) }
    for line in TextTable.rows(rows.map { $0.map(Wording.oneLine) }) { output.print(line) }
    for item in failed {
      output.print(
        "\(item.status.rawValue): \(item.inputPath.printable)" + (item.detail.map { ": \(Wording.oneLine($0))" } ?? ""))
    }
  }
}
