import Engine
import Glibc
import JobSyntax
import PipelineKit

/// `pipeline state show|check|prune|set-aside`.
enum StateCommand {
  private static let keepRuns = Option<Int>.integer(
    "keep-runs", "N", in: 0...1_000_000,
    help: "with `prune`: keeps the newest N runs (default \(Ledger.runsKept)); the last of each job stays")
  private static let olderThan = Option<Int>.integer(
    "older-than", "DAYS", in: 0...36_500,
    help: "with `prune`: removes runs that began, or results that were last used, so many days ago (default "
      + "\(Ledger.daysKept) for runs; results whenever they were used)")
  private static let results = Flag(
    "results", help: "with `prune`: removes results of costly stages, which are then worked out again")
  private static let paid = Flag(
    "paid", help: "with `prune`: removes results that were paid for, which are then paid for again")
  private static let missing = Flag(
    "missing", help: "with `prune`: forgets pictures whose file does not exist any more; their outputs stay")

  private static let actions = ["show", "check", "prune", "set-aside"]

  static let command = Command(
    name: "state", summary: "shows, checks or prunes what runs have kept",
    notes: [
      "`show` says where the state folder is, how large, and who is at work in it. `check` reads the whole ledger and "
        + "says what is wrong with it. `prune` forgets runs that are old or many, or with --results, --paid or "
        + "--missing what these name, and gives the space back. `set-aside` moves a damaged ledger, or another "
        + "application's, into a folder beside it; the next run starts with an empty one, and nothing is deleted.",
      "The state folder is that of JOB, or of --state, or .pipeline in the current folder; the ledgers of its shards "
        + "belong to it. Every run ends by forgetting runs that are over \(Ledger.daysKept) days old or not among "
        + "the newest \(Ledger.runsKept). What is known about a picture stays until --missing removes it.",
      "Exit codes: 0 fine, 2 wrong command line, 4 the ledger is damaged or cannot be used, 75 a run is at work in it.",
    ],
    operand: Operand(name: "show|check|prune|set-aside [JOB]", help: "what to do, and the job file", count: 0...2),
    options: [StatePlace.option, keepRuns, olderThan, results, paid, missing, JobOptions.format],
    examples: [
      "pipeline state show job.json", "pipeline state prune job.json --older-than 30",
      "pipeline state prune --state /var/lib/pipeline --results",
    ],
    run: run)

  @Sendable private static func run(_ arguments: ParsedArguments, _ invocation: Invocation) throws(UsageError) -> Int32
  {
    var operands = arguments.operands[...]
    let action = operands.popFirst() ?? "show"
    guard actions.contains(action) else {
      let near = NearestName.suggestion(for: action, among: actions)
      throw UsageError(
        "unknown argument \"\(action)\"",
        hint: near.map { "did you mean \"\($0)\"?" } ?? "show, check, prune or set-aside, then the job")
    }
    guard operands.isEmpty || arguments[StatePlace.option] == nil else {
      throw UsageError("JOB and --state both name a state folder")
    }
    if action != "prune" {
      let given =
        [keepRuns, olderThan].filter { arguments[$0] != nil }.map(\.name)
        + [results, paid, missing].filter { arguments[$0] }.map(\.name)
      if let first = given.first { throw UsageError("--\(first) goes with `pipeline state prune`") }
    }
    do throws(StageError) {
      let path = try StatePlace.locate(arguments[StatePlace.option], job: operands.first).normalised
      switch action {
      case "check": return try check(path, arguments, invocation)
      case "prune": return try prune(path, arguments, invocation)
      case "set-aside": return try setAside(path, invocation)
      default: return try show(path, arguments, invocation)
      }
    } catch {
      invocation.output.flush()
      StandardStreams.complain(error.description)
      return ExitCode.cannotStart.rawValue
    }
  }

  // MARK: show

  private static func show(
    _ path: PathBytes, _ arguments: ParsedArguments, _ invocation: Invocation
  ) throws(StageError) -> Int32 {
    let whole = StateFolder.locate(path)
    let isThere = path.withCString { access($0, F_OK) } == 0
    let (fileSystem, isOnNetwork) = whole.fileSystem
    let store = ResultStore(whole, mostBytes: 0)
    let (kept, paid) = (store.size(paid: false), store.size(paid: true))
    var ledgers: [JSONText] = []
    var rows = [
      ["folder", path.printable + (isThere ? "" : ", not made yet")],
      ["on", "\(fileSystem), " + (isOnNetwork ? "shared by machines: rollback journal" : "local: write-ahead log")],
    ]
    var problem: StageError?
    for folder in StateFolder.ledgers(in: path) {
      var members: [(String, JSONText)] = [
        ("file", .string(folder.ledgerFile.display)), ("bytes", .integer(folder.ledgerBytes)),
      ]
      rows.append(["ledger", "\(folder.ledgerFile.printable), \(Wording.bytes(folder.ledgerBytes))"])
      do throws(StageError) {
        if let ledger = try Ledger.open(folder, .readOnly) {
          defer { ledger.close() }
          let runs = try ledger.runs(limit: .max)
          let jobs = try ledger.jobs()
          for job in jobs {
            let name = runs.first { $0.job == job.job }?.jobName ?? job.job
            let counts = ItemStatus.allCases.filter { job.counts[$0] > 0 }
            rows.append([
              "",
              "\(Wording.oneLine(name)): "
                + counts.map { "\(job.counts[$0]) \($0.rawValue)" }.joined(separator: ", "),
            ])
          }
          rows.append(["", Wording.count(runs.count, "run")])
          let open = try ledger.openCalls().count
          if open > 0 { rows.append(["", "\(Wording.count(open, "paid call")) without an answer"]) }
          members += [
            ("runs", .integer(runs.count)), ("openCalls", .integer(open)),
            ("jobs", .array(jobs.map { .object([("job", .string($0.job)), ("counts", $0.counts.json)]) })),
          ]
        }
      } catch {
        members.append(("problem", .string(error.description)))
        rows.append(["", Wording.oneLine(error.message)])
        problem = error
      }
      let holder = StateLock.holder(of: folder)
      if let holder { rows.append(["", "in use by \(holder.description)"]) }
      members.append(
        (
          "holder",
          holder.map {
            .object([
              ("pid", .integer(Int($0.pid))), ("host", .string($0.host)), ("run", $0.run.map { .string($0) } ?? nil),
              ("job", $0.job.map { .string($0) } ?? nil),
              ("started", $0.started.map { .string(RunClock.timestamp(of: $0)) } ?? nil),
            ])
          } ?? nil
        ))
      ledgers.append(.object(members))
    }
    rows += [
      ["results", "\(kept.count), \(Wording.bytes(kept.bytes))"],
      ["paid", "\(paid.count), \(Wording.bytes(paid.bytes))"],
    ]
    if arguments[JobOptions.format] == .json {
      func size(_ size: (count: Int, bytes: Int)) -> JSONText {
        .object([("count", .integer(size.count)), ("bytes", .integer(size.bytes))])
      }
      invocation.output.print(
        JSONText.object([
          ("folder", .string(path.display)), ("exists", .bool(isThere)), ("fileSystem", .string(fileSystem)),
          ("network", .bool(isOnNetwork)), ("ledgers", .array(ledgers)), ("results", size(kept)), ("paid", size(paid)),
        ]).rendered(pretty: true))
    } else {
      for line in TextTable.rows(rows) { invocation.output.print(line) }
    }
    if let problem {
      invocation.output.flush()
      StandardStreams.complain(problem.description)
    }
    return (problem == nil ? ExitCode.done : .cannotStart).rawValue
  }

  // MARK: check

  private static func check(
    _ path: PathBytes, _ arguments: ParsedArguments, _ invocation: Invocation
  ) throws(StageError) -> Int32 {
    let folders = StateFolder.ledgers(in: path)
    if folders.isEmpty, arguments[JobOptions.format] != .json {
      StandardStreams.complain("there is no ledger in \(path.printable)")
    }
    var code = ExitCode.done
    var found: [JSONText] = []
    for folder in folders {
      var problems: [String] = []
      do throws(StageError) {
        if let ledger = try Ledger.open(folder, .readOnly) {
          defer { ledger.close() }
          problems = try ledger.integrityCheck()
        }
      } catch {
        problems = [error.description]
      }
      if !problems.isEmpty { code = .cannotStart }
      found.append(
        .object([("file", .string(folder.ledgerFile.display)), ("problems", .array(problems.map { .string($0) }))]))
      guard arguments[JobOptions.format] != .json else { continue }
      invocation.output.print("\(folder.ledgerFile.printable): \(problems.isEmpty ? "sound" : "damaged")")
      for problem in problems { invocation.output.print("  " + Wording.oneLine(problem)) }
    }
    if arguments[JobOptions.format] == .json {
      invocation.output.print(JSONText.array(found).rendered(pretty: true))
    }
    return code.rawValue
  }

  // MARK: prune

  private static func prune(
    _ path: PathBytes, _ arguments: ParsedArguments, _ invocation: Invocation
  ) throws(StageError) -> Int32 {
    let namesKinds = arguments[results] || arguments[paid] || arguments[missing]
    let prunesRuns = !namesKinds || arguments[keepRuns] != nil
    let now = RunClock.now()
    func before(_ days: Int) -> Double { now - Double(days) * 86_400 }
    let folders = StateFolder.ledgers(in: path)
    // All or nothing: what is removed from one ledger and not from the others is hard to explain.
    var locks: [StateLock] = []
    for folder in folders {
      guard let lock = try StatePlace.lock(folder, command: "pipeline state prune") else {
        return ExitCode.locked.rawValue
      }
      locks.append(lock)
    }
    defer { for lock in locks { lock.release() } }
    var (runs, pictures, bytes) = (0, 0, 0)
    for folder in folders where prunesRuns || arguments[missing] {
      guard let ledger = try Ledger.open(folder, .readWrite) else { continue }
      defer { ledger.close() }
      let size = folder.ledgerBytes
      if prunesRuns {
        runs += try ledger.prune(
          runsBefore: before(arguments[olderThan] ?? Ledger.daysKept), keeping: arguments[keepRuns] ?? Ledger.runsKept)
      }
      if arguments[missing] {
        for job in try ledger.jobs() {
          var keys: [[UInt8]] = []
          try ledger.forEachItem(job: job.job) {
            if !$0.inputPath.isRemoteName, isMissing($0.inputPath) { keys.append($0.key) }
          }
          try ledger.remove(job: job.job, keys: keys)
          pictures += keys.count
        }
      }
      try ledger.compact()
      ledger.close()
      bytes += size - folder.ledgerBytes
    }
    let store = ResultStore(StateFolder.locate(path), mostBytes: .max)
    _ = store.trim()
    var parts: [String] = []
    if prunesRuns { parts.append(Wording.count(runs, "run")) }
    if arguments[missing] { parts.append(Wording.count(pictures, "picture")) }
    for (isAsked, isPaid, noun) in [(arguments[results], false, "result"), (arguments[paid], true, "paid result")]
    where isAsked {
      let gone = store.prune(paid: isPaid, usedBefore: arguments[olderThan].map(before) ?? .infinity)
      parts.append(Wording.count(gone.count, noun))
      bytes += gone.bytes
    }
    if arguments[JobOptions.format] == .json {
      invocation.output.print(
        JSONText.object([
          ("runs", .integer(runs)), ("pictures", .integer(pictures)), ("bytes", .integer(max(0, bytes))),
        ]).rendered(pretty: true))
    } else {
      invocation.output.print("removed \(parts.joined(separator: ", ")); \(Wording.bytes(max(0, bytes))) less")
    }
    return ExitCode.done.rawValue
  }

  /// Whether nothing has that name; a folder that may not be looked into hides nothing for certain.
  private static func isMissing(_ path: PathBytes) -> Bool {
    guard path.isAbsolute else { return false }
    var status = stat()
    return path.withCString { stat($0, &status) } != 0 && (errno == ENOENT || errno == ENOTDIR)
  }

  // MARK: set-aside

  private static func setAside(_ path: PathBytes, _ invocation: Invocation) throws(StageError) -> Int32 {
    let folders = StateFolder.ledgers(in: path)
    if folders.isEmpty { StandardStreams.complain("there is no ledger in \(path.printable)") }
    for folder in folders {
      guard let lock = try StatePlace.lock(folder, command: "pipeline state set-aside") else {
        return ExitCode.locked.rawValue
      }
      defer { lock.release() }
      guard try isDamaged(folder) else {
        invocation.output.print("\(folder.ledgerFile.printable): sound, left where it is")
        continue
      }
      let place = try folder.setAside(at: RunClock.now())
      invocation.output.print("\(folder.ledgerFile.printable): moved to \(place.printable)")
      invocation.output.flush()
      StandardStreams.complain(
        "the next run does not know what was done before; receipts of uploads and paid calls stay in the file that was "
          + "moved, and results that were paid for stay in use")
    }
    return ExitCode.done.rawValue
  }

  private static func isDamaged(_ folder: StateFolder) throws(StageError) -> Bool {
    do throws(StageError) {
      guard let ledger = try Ledger.open(folder, .readOnly) else { return false }
      defer { ledger.close() }
      return try !ledger.integrityCheck().isEmpty
    } catch {
      if error.code == "state-damaged" || error.code == "state-foreign" { return true }
      // A newer program's is sound, and a disk that cannot be read is not mended by a new file.
      throw error
    }
  }
}
