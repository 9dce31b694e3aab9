import Digest
import Dispatch
import Glibc
import Imaging
import JobSyntax
import PipelineKit
import Synchronization

/// How a run treats what earlier runs have done.
public struct HistoryOptions: Sendable {
  /// Everything is done again, except what was paid for.
  public var force = false
  /// A stage by its label: it and what comes after it is done again, also where it was paid for.
  public var forcedStage: String?
  /// Only items whose last run did not end well.
  public var retryFailed = false
  /// Items that other versions of libvips or of a stage have made are made again.
  public var rebuild = false
  /// The content of inputs and outputs is looked at even where size and times are as they were.
  public var checksContent = false
  /// Reasons are kept for every item.
  public var explains = false

  public init() {}
}

/// What earlier runs of a job have done: decides what is up to date, books what this run does, keeps results of costly
/// stages.
///
/// An item is up to date when it was done (or dropped, or put aside for review), and since then its input's content, the
/// effective settings of the chain, the helper files and the item's own values have not changed, and its outputs are
/// still what was written. Size and times that are as they were stand for content that is as it was.
public final class RunHistory: Sendable {
  /// Whether an item has to be worked on.
  enum Verdict: Sendable, Hashable {
    case work(String)
    case upToDate(String)
    /// With `retryFailed`: nothing failed.
    case notFailed
  }

  public let ledger: Ledger
  public let job: String
  let options: HistoryOptions
  let fingerprint: ChainFingerprint
  private let results: ResultStore?
  /// Whether files of an earlier run may be there that were never booked.
  public let followsCutRun: Bool
  private let forcedFrom: Set<Int>
  /// Where the content of inputs is looked at that are fetched.
  private let fetcher: RemoteFetcher?
  private struct Tally {
    var otherVersions = 0
    var exampleVersions: String?
  }
  private let tally = Mutex(Tally())

  /// - Parameters:
  ///   - ledger: opened for reading is enough for a plan.
  ///   - folder: where results are kept; nil for a plan, which makes none.
  ///   - options: how what earlier runs have done is treated.
  ///   - job: the job.
  /// - Throws: `state-*` errors where the ledger cannot be read, `unknown-stage` for a forced stage the chain lacks.
  public init(_ job: Job, ledger: Ledger, folder: StateFolder?, options: HistoryOptions) throws(StageError) {
    self.ledger = ledger
    self.options = options
    self.job = Self.key(of: job, stateFolder: ledger.folder.path)
    results = folder.map { ResultStore($0, mostBytes: job.resultBytes) }
    if options.checksContent, job.input.mayBeRemote {
      fetcher = try RemoteFetcher(job.remote, services: ServiceResources(job.network))
    } else {
      fetcher = nil
    }
    followsCutRun = try ledger.mayHoldUnbooked(job: self.job)
    var problem: StageError?
    fingerprint = ChainFingerprint(job) { path in
      do throws(StageError) { return try Self.digest(of: path, ledger) } catch {
        problem = error
        return nil
      }
    }
    if let problem { throw problem }
    var forced: Set<Int> = []
    if let name = options.forcedStage {
      for (index, stage) in job.stages.enumerated() {
        let isNamed = stage.label == name || stage.descriptor.spec.name == name
        if isNamed || stage.predecessor.map({ forced.contains($0) }) ?? false { forced.insert(index) }
      }
      guard !forced.isEmpty else {
        throw StageError(
          "unknown-stage", "--force=\(name): the job has no such stage", kind: .usage,
          hint: "it has: " + job.stages.map(\.label).joined(separator: ", "))
      }
    } else if options.force {
      forced = Set(job.stages.indices)
    }
    forcedFrom = forced
  }

  /// What a job is called in the ledger: its file, seen from the folder that holds the state where it lies below, so
  /// that both can be moved together.
  public static func key(of job: Job, stateFolder: PathBytes) -> String {
    let file = job.baseFolder.joining(PathBytes(job.file).lastComponent).normalised
    let home = stateFolder.parent
    return (file.isInside(home) ? file.relative(to: home) : file).display
  }

  /// The digest of a helper file, from the ledger where the file is as it was; nil where it cannot be read.
  private static func digest(of path: PathBytes, _ ledger: Ledger) throws(StageError) -> [UInt8]? {
    guard let stamp = FileStamp.of(path) else { return nil }
    if let known = try ledger.digest(of: path, stamp: stamp) { return known }
    guard let digest = content(of: path) else { return nil }
    // Of a file that was just written the next look reads the content again.
    if FileStamp.of(path) == stamp, stamp.isSettled(at: RunClock.now()) {
      ledger.keep(digest: digest, of: path, stamp: stamp)
    }
    return digest
  }

  /// SHA-256 of a regular file.
  static func content(of path: PathBytes) -> [UInt8]? {
    guard case .success(let file) = OpenFile.open(path), case .success(let status) = file.status,
      status.kind == .regular, case .success(let digest) = SHA256.digest(ofFile: file.descriptor)
    else { return nil }
    return digest
  }

  /// What the ledger knows an input by: its name as found, and which of several of that name it is. Of an address it never
  /// holds the query, only a hash.
  static func key(of identity: ItemIdentity) -> [UInt8] {
    var key = identity.name.bytes
    if let mark = identity.remote?.mark(beside: identity.name) { key += [0] + mark }
    if identity.occurrence > 0 { key += [0] + Array(String(identity.occurrence).utf8) }
    return key
  }

  // MARK: Before the run

  /// Whether an item has to be worked on. May be asked from several threads.
  func verdict(on identity: ItemIdentity) throws(StageError) -> Verdict {
    let key = Self.key(of: identity)
    let known = try ledger.item(job: job, key: key)
    if options.retryFailed {
      switch known?.status {
      case .failed, .deferred, .unknown, .notAttempted: return .work("did not end well before")
      case nil, .done, .skipped, .dropped, .review: return .notFailed
      }
    }
    guard let known else { return .work("not done before") }
    switch known.status {
    case .done, .dropped, .review: break
    case .failed: return .work("failed before")
    case .skipped, .deferred, .notAttempted, .unknown: return .work("not done before")
    }
    if !forcedFrom.isEmpty { return .work(options.forcedStage.map { "forced from stage \"\($0)\" on" } ?? "forced") }
    guard known.chain == fingerprint.digest else { return .work(try settingsChange(since: known)) }
    guard known.values == fingerprint.values(of: identity) else {
      return .work("the item's own values that the job names have changed")
    }
    var inputStamp = known.inputStamp
    var went: SourceFate?
    switch comparison(of: identity, known) {
    case .same: break
    case .touched(let stamp): inputStamp = stamp
    // A picture that was replaced by its own result: whether it still is that is asked of the outputs.
    case .changed where known.outputs.contains { $0.record.place == .path(identity.path) }: break
    case .changed: return .work("the input has changed")
    case .missing:
      guard known.status == .done, let fate = try ledger.fate(job: job, source: identity.name) else {
        return .work("the input cannot be read")
      }
      went = fate
    }
    var stamps: [FileStamp?] = []
    for output in known.outputs {
      // Nothing was written of what was dropped: what is known of outputs is from a run before.
      guard case .path(let path) = output.record.place, known.status != .dropped else {
        stamps.append(output.stamp)
        continue
      }
      switch Self.compare(path, output.stamp, Hex.bytes(output.record.sha256), options.checksContent) {
      case .same: stamps.append(output.stamp)
      case .touched(let stamp): stamps.append(stamp)
      case .changed: return .work("the output \(path.printable) is not what was written")
      case .missing: return .work("the output \(path.printable) is gone")
      }
    }
    if inputStamp != known.inputStamp || stamps != known.outputs.map(\.stamp) {
      ledger.refresh(job: job, key: key, input: inputStamp, outputs: stamps)
    }
    if known.versions != fingerprint.versions {
      if options.rebuild { return .work("made by other versions: \(known.versions)") }
      tally.withLock {
        $0.otherVersions += 1
        $0.exampleVersions = known.versions
      }
    }
    switch known.status {
    case .dropped: return .upToDate(Self.upToDate + ": dropped before" + (known.detail.map { " (\($0))" } ?? ""))
    case .review: return .upToDate(Self.upToDate + ": put aside for review before")
    default:
      let after = went.map {
        $0.target.map { "; its source was moved to \($0.printable)" } ?? "; its source was deleted"
      }
      return .upToDate(Self.upToDate + (after ?? ""))
    }
  }

  /// Whether an input is still what was read. What lies elsewhere is looked at only where that is asked for, but for what
  /// a listing says.
  private func comparison(of identity: ItemIdentity, _ known: LedgerItem) -> Comparison {
    guard let remote = identity.remote else {
      return Self.compare(identity.path, known.inputStamp, known.inputHash, options.checksContent)
    }
    guard let fetcher else {
      return remote.version == nil || remote.version == known.inputStamp ? .same : .changed
    }
    let fetched = try? fetcher.fetch(
      remote, named: identity.name, isCancelled: { false }, pause: { waitForService($0) })
    guard case .content(let bytes, _) = fetched else { return .missing }
    guard bytes.withUnsafeBytes({ SHA256.digest(of: $0) }) == known.inputHash else { return .changed }
    return remote.version == known.inputStamp ? .same : .touched(remote.version)
  }

  /// How the reason begins that an item which is up to date is skipped for, in reports and after a crash too.
  static let upToDate = "up to date"

  private func settingsChange(since known: LedgerItem) throws(StageError) -> String {
    guard let text = try ledger.chain(known.chain), let labels = fingerprint.changes(since: text), !labels.isEmpty
    else {
      return "the job's stages have changed"
    }
    return "settings or files changed of stage " + labels.map { "\"\($0)\"" }.joined(separator: ", ")
  }

  /// Whether a file is still what was seen.
  enum Comparison {
    case same
    /// With a stamp that stands for the content from now on; nil where it was changed only a moment ago.
    case touched(FileStamp?)
    case changed, missing
  }

  static func compare(
    _ path: PathBytes, _ stamp: FileStamp?, _ digest: @autoclosure () -> [UInt8]?, _ checksContent: Bool
  ) -> Comparison {
    guard let now = FileStamp.of(path) else { return .missing }
    if now == stamp, !checksContent { return .same }
    if let stamp, stamp.size != now.size { return .changed }
    guard let digest = digest() else { return .changed }
    let time = RunClock.now()
    guard content(of: path) == digest else { return .changed }
    return now == stamp ? .same : .touched(now.isSettled(at: time) ? now : nil)
  }

  /// What to say once about items that other versions have made.
  var versionNotice: String? {
    tally.withLock { tally in
      guard tally.otherVersions > 0, let example = tally.exampleVersions else { return nil }
      return
        "\(tally.otherVersions) pictures were made by other versions (\(example); now \(fingerprint.versions)) and "
        + "stay as they are"
    }
  }

  /// What an item was made into by the run that did it last; for the report of one that is skipped.
  func outputs(of identity: ItemIdentity) -> [OutputRecord] {
    guard let known = (try? ledger.item(job: job, key: Self.key(of: identity))) ?? nil, known.status == .done else {
      return []
    }
    return known.outputs.map(\.record)
  }

  // MARK: During the run

  /// Why an item cannot be relied on as done, with outputs that are what was written; nil where it can.
  func doubtAboutOutputs(of identity: ItemIdentity) -> String? {
    guard let known = (try? ledger.item(job: job, key: Self.key(of: identity))) ?? nil, known.status == .done else {
      return "the ledger does not have it as done"
    }
    for output in known.outputs {
      guard case .path(let path) = output.record.place else { continue }
      switch Self.compare(path, output.stamp, Hex.bytes(output.record.sha256), false) {
      case .same, .touched: break
      case .changed, .missing: return "the output \(path.printable) is not there any more as it was written"
      }
    }
    return nil
  }

  /// Books what became of an item.
  ///
  /// - Parameter onDurable: called once it is on disk, or with what kept it from getting there.
  func book(
    _ record: ItemRecord, _ identity: ItemIdentity, onDurable: (@Sendable (StageError?) -> Void)? = nil
  ) {
    switch record.status {
    // Nothing was done: what is known of the item stays.
    case .skipped, .notAttempted: return
    case .done, .dropped, .failed, .deferred, .review, .unknown: break
    }
    var outputs: [LedgerOutput] = []
    for output in record.outputs {
      var stamp: FileStamp?
      if case .path(let path) = output.place { stamp = FileStamp.of(path) }
      outputs.append(LedgerOutput(stage: output.stage, record: output, stamp: stamp))
    }
    // What was written before and is not replaced is still known by it.
    if outputs.isEmpty, record.status != .done, let old = try? ledger.item(job: job, key: Self.key(of: identity)) {
      outputs = old.outputs
    }
    let item = LedgerItem(
      key: Self.key(of: identity), status: record.status, chain: fingerprint.digest,
      values: fingerprint.values(of: identity), versions: fingerprint.versions,
      inputStamp: record.source?.stamp, inputHash: record.source.flatMap { Hex.bytes($0.sha256) },
      inputPath: identity.path, run: runID.withLock { $0 }, updated: RunClock.now(),
      detail: record.error?.message ?? record.reason, outputs: outputs)
    ledger.book(job: job, item, onDurable: onDurable)
  }

  private let runID = Mutex("")

  /// Notes that a run begins.
  ///
  /// - Throws: where the ledger cannot be written.
  public func begin(_ run: LedgerRun) throws(StageError) {
    runID.withLock { $0 = run.id }
    try ledger.begin(run)
    ledger.keep(chain: fingerprint.digest, text: fingerprint.text)
  }

  /// Goes on with a run after a crash of the program.
  public func resume(_ id: String) { runID.withLock { $0 = id } }

  private var lookup: KeptLookup? {
    results.map {
      KeptLookup(
        fingerprint: fingerprint, results: $0, forced: forcedFrom, forcesPaid: options.forcedStage != nil)
    }
  }

  /// What a child needs to find the same results.
  var forChildren: JSONText {
    .object([
      ("state", .string(ledger.folder.path.display)),
      ("forced", .array(forcedFrom.sorted().map { .integer($0) })), ("forcesPaid", .bool(options.forcedStage != nil)),
    ])
  }

  /// The child's side of `forChildren`; nil where there is nothing to find.
  static func lookup(_ node: JSONNode?, _ job: Job) -> KeptLookup? {
    guard let node, let state = node["state"]?.stringValue else { return nil }
    return KeptLookup(
      fingerprint: ChainFingerprint(job) { content(of: $0) },
      results: ResultStore(StateFolder.locate(PathBytes(display: state)), mostBytes: job.resultBytes),
      forced: Set((node["forced"]?.arrayValue ?? []).compactMap { $0.numberValue?.integer }),
      forcesPaid: node["forcesPaid"]?.boolValue ?? false)
  }

  func isForced(stage: Int) -> Bool { forcedFrom.contains(stage) }

  func holdsPaidResult(_ key: [UInt8]) -> Bool { results?.holds(key, paid: true) ?? false }

  /// Where a stage finds and leaves results for an item.
  func keptResults(of stage: Int, for item: Item) -> KeptResults? {
    lookup?.keptResults(of: stage, for: item)
  }

  /// Makes all that was booked durable.
  ///
  /// - Throws: `state-write` where some of it could not be booked: those items are done again next time.
  func flush() throws(StageError) {
    do throws(StageError) { try ledger.flush() } catch {
      isUnbooked.withLock { $0 = true }
      throw error
    }
  }

  private let isUnbooked = Mutex(false)

  /// Notes how a run ended, and lets go of results that are used least and of runs long past.
  ///
  /// - Returns: what kept it from being noted.
  public func end(_ run: inout LedgerRun, _ outcome: RunOutcome, exitCode: Int32) -> StageError? {
    run.ended = RunClock.now()
    run.exitCode = exitCode
    run.counts = outcome.counts.json.rendered()
    if isUnbooked.withLock({ $0 }) {
      run.stop = LedgerRun.unbooked
    } else if outcome.crashes > 0 {
      run.stop = LedgerRun.crashed
    } else {
      run.stop = outcome.stop?.text
    }
    ledger.end(run)
    results?.trim()
    do throws(StageError) {
      try ledger.flush()
      try ledger.prune()
      return nil
    } catch {
      return error
    }
  }
}

extension ResultStore: ResultKeeper {}
