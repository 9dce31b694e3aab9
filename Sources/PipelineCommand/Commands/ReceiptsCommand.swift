import Digest
import Engine
import Glibc
import JobSyntax
import PipelineKit
import Transport

/// `pipeline receipts list|verify|delete|resolve`.
enum ReceiptsCommand {
  private static let unknownOnly = Flag("unknown", help: "with `list`: only what nobody knows the outcome of")
  private static let all = Flag("all", help: "with `delete`: everything that the job has sent, instead of IDs")
  private static let retry = Flag(
    "retry", help: "with `resolve`: it is done again by the next run, even if that sends or pays twice")
  private static let done = Flag("done", help: "with `resolve`: it has arrived, and is not sent again")
  private static let link = Option<String>.text("link", "URL", help: "with `resolve --done`: where it can be seen")

  private static let actions = ["list", "verify", "delete", "resolve"]

  static let command = Command(
    name: "receipts", summary: "lists, verifies, deletes or settles what runs have sent and paid for",
    notes: [
      "Every upload leaves a receipt: its link, what it can be deleted by, its hash. `list` shows them, `verify` asks "
        + "the services whether what was sent is still there, `delete` takes it back. Both need JOB, whose upload stages "
        + "say where and with which credentials.",
      "A request that creates something, or costs, and whose answer was lost is `unknown`: nothing repeats it by itself. "
        + "`resolve ID --retry` has the next run do it again; `resolve ID --done` says that it has arrived. A call that "
        + "was paid for and whose result is lost can only be made again.",
      "Exit codes: 0 fine, 1 something is gone, changed or could not be deleted, 2 wrong command line, 4 the ledger or a "
        + "credential is missing, 75 a run is at work in the state folder.",
    ],
    operand: Operand(
      name: "list|verify|delete|resolve [JOB] [ID…]", help: "what to do, the job file, and which receipts",
      count: 1...100_000),
    options: [StatePlace.option, unknownOnly, all, retry, done, link, JobOptions.set, JobOptions.format],
    examples: [
      "pipeline receipts list job.json", "pipeline receipts list job.json --unknown",
      "pipeline receipts resolve job.json 20260501-020304-a1b2c3-0011223344 --retry",
      "pipeline receipts verify job.json", "pipeline receipts delete job.json --all",
    ],
    run: run)

  /// A receipt, or a call without an end, with the ledger it is in.
  private struct Entry {
    enum Kind {
      case receipt(Receipt)
      case call(UnsettledCall)
    }
    var folder: StateFolder
    var kind: Kind

    var id: String {
      switch kind {
      case .receipt(let receipt): receipt.id
      case .call(let call): call.identifier
      }
    }

    var isUnknown: Bool { if case .receipt(let receipt) = kind { receipt.state == .unknown } else { true } }

    private var facts:
      (run: String, job: String, key: [UInt8], stage: String, provider: String, time: Double, state: String)
    {
      switch kind {
      case .receipt(let receipt):
        (
          receipt.run, receipt.job, receipt.key, receipt.stage, receipt.provider, receipt.sentAt,
          receipt.state.rawValue
        )
      case .call(let call):
        (
          call.call.run, call.call.job, call.call.key, call.call.stage, call.call.provider, call.call.began, "unknown"
        )
      }
    }

    var input: PathBytes { PathBytes(bytes: Array(facts.key.prefix { $0 != 0 })) }

    var receipt: Receipt? { if case .receipt(let receipt) = kind { receipt } else { nil } }

    var row: [String] {
      let facts = facts
      let what =
        switch kind {
        case .receipt(let receipt): receipt.link ?? "-"
        case .call(let call): "a call that costs \(Wording.credits(call.call.amount))"
        }
      return [
        id, facts.state, RunClock.timestamp(of: facts.time), facts.provider, Wording.oneLine(input.printable),
        Wording.oneLine(what),
      ]
    }

    var json: JSONText {
      let facts = facts
      var members: [(String, JSONText)] = [
        ("id", .string(id)), ("state", .string(facts.state)), ("time", .string(RunClock.timestamp(of: facts.time))),
        ("provider", .string(facts.provider)), ("input", .string(input.display)), ("stage", .string(facts.stage)),
        ("job", .string(facts.job)), ("run", .string(facts.run)),
      ]
      switch kind {
      case .receipt(let receipt):
        func text(_ value: String?) -> JSONText { value.map { .string($0) } ?? nil }
        members += [
          ("kind", "upload"), ("link", text(receipt.link)), ("deleteLink", text(receipt.deleteLink)),
          ("etag", text(receipt.etag)), ("sha256", .string(Hex.text(receipt.sha256))),
          ("expires", receipt.expires.map { .string(RunClock.timestamp(of: $0)) } ?? nil),
        ]
      case .call(let call): members += [("kind", "call"), ("credits", .number(call.call.amount))]
      }
      return .object(members)
    }
  }

  @Sendable private static func run(_ arguments: ParsedArguments, _ invocation: Invocation) throws(UsageError) -> Int32
  {
    let action = arguments.operands[0]
    guard actions.contains(action) else {
      let near = NearestName.suggestion(for: action, among: actions)
      throw UsageError(
        "unknown argument \"\(action)\"",
        hint: near.map { "did you mean \"\($0)\"?" } ?? "list, verify, delete or resolve, then the job")
    }
    var rest = arguments.operands.dropFirst()
    var job: String?
    // An identifier is no file's name.
    if let first = rest.first, first.hasSuffix(".json") || access(first, F_OK) == 0 { job = rest.popFirst() }
    guard job == nil || arguments[StatePlace.option] == nil || action == "verify" || action == "delete" else {
      throw UsageError("JOB and --state both name a state folder")
    }
    try check(action, arguments, ids: Array(rest), job: job)
    do throws(StageError) {
      let path = try StatePlace.locate(arguments[StatePlace.option], job: job).normalised
      switch action {
      case "list": return try list(path, Array(rest), arguments, invocation)
      case "resolve": return try resolve(path, Array(rest), arguments, invocation)
      default:
        let loader = try JobOptions.usageLoader(arguments, invocation.registry)
        return try settle(action, path, job ?? "", Array(rest), loader, arguments, invocation)
      }
    } catch {
      invocation.output.flush()
      StandardStreams.complain(error.description)
      return ExitCode(of: error).rawValue
    }
  }

  private static func check(
    _ action: String, _ arguments: ParsedArguments, ids: [String], job: String?
  ) throws(UsageError) {
    for (flag, owner) in [(unknownOnly, "list"), (all, "delete"), (retry, "resolve"), (done, "resolve")]
    where arguments[flag] && action != owner {
      throw UsageError("--\(flag.name) goes with `pipeline receipts \(owner)`")
    }
    if arguments[link] != nil, !arguments[done] {
      throw UsageError("--link goes with `pipeline receipts resolve --done`")
    }
    switch action {
    case "resolve":
      guard !ids.isEmpty else {
        throw UsageError("resolve needs the ID of a receipt: `pipeline receipts list` shows them")
      }
      guard arguments[retry] != arguments[done] else {
        throw UsageError("resolve needs --retry or --done", hint: "only you can know whether it has arrived")
      }
    case "delete":
      guard job != nil else { throw UsageError("delete needs the job file, which has the credentials") }
      guard ids.isEmpty == arguments[all] else { throw UsageError("delete needs IDs, or --all") }
    case "verify":
      guard job != nil else { throw UsageError("verify needs the job file, which has the credentials") }
    default: break
    }
  }

  private static func entries(_ path: PathBytes) throws(StageError) -> [Entry] {
    var found: [Entry] = []
    for folder in StateFolder.ledgers(in: path) {
      guard let ledger = try Ledger.open(folder, .readOnly) else { continue }
      defer { ledger.close() }
      let isUnderWay = StateLock.holder(of: folder) != nil
      found += try ledger.receipts().map { Entry(folder: folder, kind: .receipt($0)) }
      // While a run goes on, its calls are under way and no mystery.
      if !isUnderWay { found += try ledger.unsettledCalls().map { Entry(folder: folder, kind: .call($0)) } }
    }
    return found
  }

  private static func chosen(_ entries: [Entry], _ ids: [String], _ path: PathBytes) throws(StageError) -> [Entry] {
    guard !ids.isEmpty else { return entries }
    var chosen: [Entry] = []
    for id in ids {
      let found = entries.filter { $0.id == id }
      guard !found.isEmpty else {
        throw StageError(
          "receipt-unknown", "no receipt \(PathBytes(id).printable) is known in \(path.printable)", kind: .environment,
          hint: "`pipeline receipts list` shows those that are")
      }
      chosen += found
    }
    return chosen
  }

  private static func list(
    _ path: PathBytes, _ ids: [String], _ arguments: ParsedArguments, _ invocation: Invocation
  ) throws(StageError) -> Int32 {
    var found = try chosen(try entries(path), ids, path)
    if arguments[unknownOnly] { found.removeAll { !$0.isUnknown } }
    if arguments[JobOptions.format] == .json {
      invocation.output.print(JSONText.array(found.map(\.json)).rendered(pretty: true))
      return ExitCode.done.rawValue
    }
    guard !found.isEmpty else {
      StandardStreams.complain("no receipt\(arguments[unknownOnly] ? " without an outcome" : "") in \(path.printable)")
      return ExitCode.done.rawValue
    }
    for line in TextTable.rows([["receipt", "state", "time", "service", "picture", "link"]] + found.map(\.row)) {
      invocation.output.print(line)
    }
    return ExitCode.done.rawValue
  }

  private static func resolve(
    _ path: PathBytes, _ ids: [String], _ arguments: ParsedArguments, _ invocation: Invocation
  ) throws(StageError) -> Int32 {
    let found = try chosen(try entries(path), ids, path)
    for entry in found {
      guard entry.isUnknown else {
        throw StageError(
          "receipt-settled", "\(entry.id) is settled: it is \(entry.receipt?.state.rawValue ?? "known")", kind: .usage)
      }
      if arguments[done], case .call = entry.kind {
        throw StageError(
          "receipt-no-result", "\(entry.id) is a call whose result is lost: there is nothing to go on with",
          kind: .usage,
          hint: "--retry has it made, and paid for, again")
      }
    }
    for entry in found {
      guard let lock = try StatePlace.lock(entry.folder, command: "receipts") else { return ExitCode.locked.rawValue }
      defer { lock.release() }
      guard let ledger = try Ledger.open(entry.folder, .readWrite) else { continue }
      defer { ledger.close() }
      switch entry.kind {
      case .call(let call): try ledger.retry(call: call.number)
      case .receipt(var receipt):
        if arguments[retry] {
          try ledger.remove(receipt: receipt.id)
        } else {
          receipt.state = .sent
          receipt.link = arguments[link] ?? receipt.link
          try ledger.keep(receipt)
        }
      }
      invocation.output.print(
        "\(entry.id): \(arguments[retry] ? "is done again by the next run" : "counts as arrived")")
    }
    return ExitCode.done.rawValue
  }

  /// Verifies or deletes.
  private static func settle(
    _ action: String, _ path: PathBytes, _ jobPath: String, _ ids: [String], _ loader: JobLoader,
    _ arguments: ParsedArguments, _ invocation: Invocation
  ) throws(StageError) -> Int32 {
    let loaded = try loader.load(path: jobPath)
    let terminal = Terminal(2)
    StandardStreams.writeError(
      DiagnosticRenderer(width: terminal.diagnosticWidth).text(
        loaded.diagnostics.filter { $0.severity == .error || loaded.unsetEnvironment.contains($0) },
        sources: loaded.sources, color: terminal.usesColor))
    guard let job = loaded.job else { return ExitCode.wrongJob.rawValue }
    guard loaded.unsetEnvironment.isEmpty else { return ExitCode.cannotStart.rawValue }
    let keepers = try JobRun.receiptKeepers(of: job)
    let found = try chosen(try entries(path), ids, path).filter { $0.receipt != nil }
    var (objects, rows): ([JSONText], [[String]]) = ([], [])
    var isFine = true
    for entry in found {
      guard var receipt = entry.receipt, receipt.job == RunHistory.key(of: job, stateFolder: entry.folder.path) else {
        continue
      }
      let word: String
      var detail: String?
      if receipt.state != .sent {
        word = receipt.state.rawValue
        if receipt.state == .unknown { isFine = false }
      } else if let keeper = keepers[receipt.stage] {
        do throws(StageError) {
          let upload = UploadReceipt(receipt)
          if action == "verify" {
            switch try keeper.verify(upload) {
            case .present(let isSame):
              word = isSame.map { $0 ? "present" : "changed" } ?? "present, content not compared"
              if isSame == false { isFine = false }
            case .gone:
              word = "gone"
              isFine = false
            }
          } else {
            try keeper.delete(upload)
            guard let lock = try StatePlace.lock(entry.folder, command: "receipts") else {
              return ExitCode.locked.rawValue
            }
            defer { lock.release() }
            if let ledger = try Ledger.open(entry.folder, .readWrite) {
              defer { ledger.close() }
              receipt.state = .deleted
              try ledger.keep(receipt)
            }
            word = "deleted"
          }
        } catch {
          (word, detail, isFine) = ("failed", error.description, false)
        }
      } else {
        (word, detail, isFine) = ("not possible", "its service has no call for it, or the job no such stage", false)
      }
      objects.append(
        .object([
          ("id", .string(receipt.id)), ("result", .string(word)), ("input", .string(entry.input.display)),
          ("link", receipt.link.map { .string($0) } ?? nil), ("detail", detail.map { .string($0) } ?? nil),
        ]))
      rows.append(
        [receipt.id, word, Wording.oneLine(entry.input.printable), Wording.oneLine(detail ?? receipt.link ?? "-")])
    }
    if arguments[JobOptions.format] == .json {
      invocation.output.print(JSONText.array(objects).rendered(pretty: true))
    } else if rows.isEmpty {
      StandardStreams.complain("the job has sent nothing that is known in \(path.printable)")
    } else {
      for line in TextTable.rows([["receipt", "result", "picture", "link"]] + rows) { invocation.output.print(line) }
    }
    return (isFine ? ExitCode.done : .someFailed).rawValue
  }
}
