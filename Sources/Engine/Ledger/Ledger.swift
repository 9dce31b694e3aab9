import Digest
import Glibc
import PipelineKit
import Synchronization

/// What a job's runs have done so far, in an SQLite database in the state folder.
///
/// Reading shows what is durable. Changes are queued and written in groups, each in one transaction that is flushed to
/// the disk before it is told to be done. On a local disk the database has a write-ahead log; where other machines may
/// have it open it has a rollback journal, since the log needs memory that processes share. Whoever writes holds the
/// folder's `StateLock`; readers need no lock and hold up no writer for longer than a look-up takes.
///
/// Errors are of class environment: `state-damaged`, `state-newer` and `state-foreign` for a file that is not used, and
/// left as it is; `state-busy` where another program holds it up for too long; `state-write` where it cannot be written
/// to: the disk is full or broken; `state-read` where it cannot be read for another reason.
public final class Ledger: Sendable {
  public enum Access: Sendable {
    case readWrite
    /// Makes and changes nothing; works on a read-only file system and beside a writer.
    case readOnly
  }

  /// Runs that began so many days ago are forgotten at the end of a run.
  public static let daysKept = 90
  /// Of newer runs, so many are kept.
  public static let runsKept = 1_000

  public let folder: StateFolder
  private let reader: Mutex<LedgerTables?>
  /// Nil where the ledger is only read.
  private let writer: LedgerWriter?

  private init(_ folder: StateFolder, reader: LedgerTables, writer: LedgerWriter?) {
    self.folder = folder
    self.reader = Mutex(reader)
    self.writer = writer
  }

  // The last reference may go in a call back of the writer, which must not wait for itself.
  deinit { writer?.closeLater() }

  // MARK: Opening

  /// Opens the ledger of a folder, and makes it where it is missing and to be written to.
  ///
  /// - Parameters:
  ///   - isOnNetwork: whether other machines may have it open; nil for what its file system says.
  ///   - access: whether it is written to.
  ///   - folder: the state folder.
  /// - Returns: nil where it is only to be read and there is none.
  public static func open(
    _ folder: StateFolder, _ access: Access, isOnNetwork: Bool? = nil
  ) throws(StageError) -> Ledger? {
    try open(folder, access, isOnNetwork: isOnNetwork ?? folder.isOnNetwork, steps: LedgerSchema.steps)
  }

  /// - Parameter steps: the schema's, or a test's.
  static func open(
    _ folder: StateFolder, _ access: Access, isOnNetwork: Bool, steps: [String]
  ) throws(StageError) -> Ledger? {
    let file = folder.ledgerFile
    var status = stat()
    let isThere = file.withCString { stat($0, &status) } == 0
    if isThere, status.st_mode & S_IFMT != S_IFREG {
      throw StageError(
        "state-foreign", "the ledger \(file.printable) is not a file", kind: .environment,
        hint: "choose another folder with --state DIR")
    }
    if isThere, (1..<512).contains(status.st_size) {
      // SQLite would take it for a new one.
      throw translate(.damage("the file is cut short"), folder, writing: false)
    }
    if access == .readOnly {
      guard isThere, status.st_size > 0 else { return nil }
      guard let database = try openToRead(folder, steps) else { return nil }
      return Ledger(folder, reader: LedgerTables(database, home: folder.path.parent), writer: nil)
    }
    if !isThere { try makeFile(folder) }
    let state = try attempt(folder, writing: true) { () throws(DatabaseError) in
      try LedgerSchema.state(of: Database(file, .read), steps: steps)
    }
    if let refusal = refusal(state, folder, steps) { throw refusal }
    let database = try attempt(folder, writing: true) { () throws(DatabaseError) in
      let database = try Database(file, .write)
      try setJournal(of: database, isOnNetwork: isOnNetwork)
      try LedgerSchema.bring(database, to: steps)
      return database
    }
    let reading = try attempt(folder, writing: true) { () throws(DatabaseError) in try Database(file, .read) }
    let writer = LedgerWriter(LedgerTables(database, home: folder.path.parent)) { translate($0, folder, writing: true) }
    return Ledger(folder, reader: LedgerTables(reading, home: folder.path.parent), writer: writer)
  }

  private static func makeFile(_ folder: StateFolder) throws(StageError) {
    let file = folder.ledgerFile.withCString { Glibc.open($0, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600) }
    guard file >= 0 else {
      if errno == EEXIST { return }
      throw StageError(
        "state-write", "the ledger \(folder.ledgerFile.printable) cannot be made", kind: .environment,
        cause: String(cString: strerror(errno)), hint: "choose another folder with --state DIR")
    }
    // The umask may have taken even the owner's permissions. SQLite gives its other files those of this one.
    fchmod(file, 0o600)
    Glibc.close(file)
    try? AtomicFile.flush(folder: folder.ledgerFolder)
  }

  private static func setJournal(of database: Database, isOnNetwork: Bool) throws(DatabaseError) {
    let deadline = ContinuousClock.now + .seconds(10)
    while true {
      // A change of mode needs the file alone for a moment, and does not wait for it.
      var mode: String?
      do throws(DatabaseError) {
        mode = try database.text("PRAGMA journal_mode = \(isOnNetwork ? "TRUNCATE" : "WAL")")
      } catch  where error.isBusy && ContinuousClock.now < deadline {
      }
      // A file system that cannot have a log has a journal, which is as safe.
      if let mode, mode != "wal" || !isOnNetwork { break }
      if ContinuousClock.now >= deadline { throw .busy }
      _ = poll(nil, 0, 20)
    }
    try database.execute("PRAGMA synchronous = \(isOnNetwork ? "EXTRA" : "FULL")")
    try database.execute("PRAGMA journal_size_limit = 16777216")
  }

  /// - Returns: nil where nothing was written into it yet.
  private static func openToRead(_ folder: StateFolder, _ steps: [String]) throws(StageError) -> Database? {
    let (database, state) = try attempt(folder, writing: false) { () throws(DatabaseError) in
      let database = try firstReadable(folder)
      return (database, try LedgerSchema.state(of: database, steps: steps))
    }
    if let refusal = refusal(state, folder, steps) { throw refusal }
    guard case .ours(let count) = state else { return nil }
    if count == steps.count { return database }
    // An older ledger is brought up to date in a copy.
    return try attempt(folder, writing: false) { () throws(DatabaseError) in
      let copy = try Database("", .create)
      try database.copy(into: copy)
      try LedgerSchema.bring(copy, to: steps)
      return copy
    }
  }

  /// A connection by the first way that works: each needs less of the file system than the one before.
  private static func firstReadable(_ folder: StateFolder) throws(DatabaseError) -> Database {
    for mode in [Database.Mode.read, .readOnly] {
      do throws(DatabaseError) {
        let database = try Database(folder.ledgerFile, mode)
        _ = try database.integer("SELECT count(*) FROM sqlite_master")
        return database
      } catch  where error.isDenied {
      }
    }
    // Nothing beside it can be made or written to. What a dead writer has left in its log belongs to the content; where
    // there is none, the file alone is all.
    let hasLog = folder.ledgerFiles.contains { path in
      var status = stat()
      return path != folder.ledgerFile && !path.bytes.suffix(4).elementsEqual("-shm".utf8)
        && path.withCString { stat($0, &status) } == 0 && status.st_size > 0
    }
    return hasLog ? try copied(folder) : try Database(folder.ledgerFile, .immutable)
  }

  /// A connection to a copy of the files that has no name any more.
  private static func copied(_ folder: StateFolder) throws(DatabaseError) -> Database {
    let place = getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp"
    var template = Array((place + "/pipeline-ledger-XXXXXX").utf8CString)
    guard mkdtemp(&template) != nil else { throw .system("no temporary folder for a copy in \(place)") }
    let temporary = PathBytes(template.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) })
    defer {
      for file in folder.ledgerFiles { _ = temporary.joining(file.lastComponent).withCString { unlink($0) } }
      _ = temporary.withCString { rmdir($0) }
    }
    for file in folder.ledgerFiles where !file.bytes.suffix(4).elementsEqual("-shm".utf8) {
      try copy(file, to: temporary.joining(file.lastComponent))
    }
    let database = try Database(temporary.joining(folder.ledgerFile.lastComponent), .write)
    // Needs no further files, now or later.
    try database.execute("PRAGMA locking_mode = EXCLUSIVE")
    _ = try database.integer("SELECT count(*) FROM sqlite_master")
    return database
  }

  private static func copy(_ from: PathBytes, to: PathBytes) throws(DatabaseError) {
    let source = from.withCString { Glibc.open($0, O_RDONLY | O_CLOEXEC) }
    if source < 0, errno == ENOENT { return }
    guard source >= 0 else { throw .system("cannot read \(from.printable)") }
    defer { Glibc.close(source) }
    let target = to.withCString { Glibc.open($0, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600) }
    guard target >= 0 else { throw .system("cannot make \(to.printable)") }
    defer { Glibc.close(target) }
    var piece = [UInt8](repeating: 0, count: 1 << 18)
    while true {
      let count = read(source, &piece, piece.count)
      if count == 0 { return }
      guard count > 0, write(target, piece, count) == count else { throw .system("cannot copy \(from.printable)") }
    }
  }

  // MARK: Errors

  private static func attempt<Result>(
    _ folder: StateFolder, writing: Bool, _ body: () throws(DatabaseError) -> Result
  ) throws(StageError) -> Result {
    do throws(DatabaseError) { return try body() } catch { throw translate(error, folder, writing: writing) }
  }

  private static func refusal(_ state: LedgerSchema.State, _ folder: StateFolder, _ steps: [String]) -> StageError? {
    let file = folder.ledgerFile.printable
    switch state {
    case .empty, .ours: return nil
    case .newer(let version):
      return StageError(
        "state-newer",
        "the ledger \(file) was written by a newer version of this program: it has form \(version), and this program "
          + "knows forms up to \(steps.count)",
        kind: .environment, hint: "use the newer program, or another folder with --state DIR")
    case .foreign:
      return StageError(
        "state-foreign", "\(file) is a database of another application", kind: .environment,
        hint: "choose another folder with --state DIR")
    }
  }

  private static func translate(_ error: DatabaseError, _ folder: StateFolder, writing: Bool) -> StageError {
    let file = folder.ledgerFile.printable
    if error.isDamage {
      let shell = folder.ledgerFolder.printable
      return StageError(
        "state-damaged", "the ledger \(file) is damaged", kind: .environment, cause: error.message,
        hint: "`pipeline state set-aside --state \(shell)` moves it out of the way and deletes nothing; the next run "
          + "then starts with an empty ledger")
    }
    if error.isBusy {
      return StageError(
        "state-busy", "the ledger \(file) is held up by another program", kind: .environment, cause: error.message,
        hint: "try again when it has ended")
    }
    if writing {
      return StageError(
        "state-write", "the ledger \(file) cannot be written to", kind: .environment, cause: error.message,
        hint: error.isFull ? "free some space and run again" : "choose another folder with --state DIR")
    }
    return StageError(
      "state-read", "the ledger \(file) cannot be read", kind: .environment, cause: error.message)
  }

  private func look<Result: Sendable>(
    _ body: (LedgerTables) throws(DatabaseError) -> Result
  ) throws(StageError) -> Result {
    let answer: Swift.Result<Result, StageError> = reader.withLock { tables in
      guard let tables else {
        return .failure(StageError("state-read", "the ledger was closed", kind: .environment))
      }
      do throws(DatabaseError) { return .success(try body(tables)) } catch {
        return .failure(Self.translate(error, folder, writing: false))
      }
    }
    return try answer.get()
  }

  private func writing() throws(StageError) -> LedgerWriter {
    guard let writer else { throw Self.readOnly }
    return writer
  }

  private static let readOnly = StageError(
    "state-write", "the ledger was opened only to be read", kind: .environment)

  private func enqueue(_ change: @escaping LedgerWriter.Change, _ done: LedgerWriter.Done? = nil) {
    guard let writer else {
      done?(Self.readOnly)
      return
    }
    writer.enqueue(change, done: done)
  }

  // MARK: Items

  /// What is known about one input; nil where nothing is.
  public func item(job: String, key: [UInt8]) throws(StageError) -> LedgerItem? {
    try look { tables throws(DatabaseError) in try tables.item(job: job, key: key) }
  }

  /// Hands every item of a job to `body`, in the order in which they first came. Items that are booked meanwhile are
  /// shown as they were or as they are.
  public func forEachItem(job: String, _ body: (LedgerItem) -> Void) throws(StageError) {
    var last: Int64 = -1
    while true {
      // Piece by piece, so that the database and this object are free in between.
      let start = last
      let rows = try look { tables throws(DatabaseError) in
        try tables.items(job: job, after: start, count: 1_000)
      }
      for row in rows { body(row.item) }
      guard let end = rows.last else { return }
      last = end.row
    }
  }

  /// Items that a run was the last to book, with one of some statuses.
  public func items(run: String, statuses: [ItemStatus]) throws(StageError) -> [LedgerItem] {
    try look { tables throws(DatabaseError) in try tables.items(run: run, statuses: statuses) }
  }

  /// Jobs that have items, and how many of them ended how.
  public func jobs() throws(StageError) -> [(job: String, counts: ItemCounts)] {
    try look { tables throws(DatabaseError) in try tables.jobs() }
  }

  /// Puts an item in the place of what was known about it. Returns at once.
  ///
  /// - Parameters:
  ///   - onDurable: told when it is on the disk, or why it is not. Called on the thread that writes: it must
  ///     not wait for the ledger.
  ///   - item: the item.
  ///   - job: the job, as the ledger knows it.
  public func book(job: String, _ item: LedgerItem, onDurable: (@Sendable (StageError?) -> Void)? = nil) {
    enqueue({ tables throws(DatabaseError) in try tables.book(job: job, item) }, onDurable)
  }

  /// Gives an item, whose content was found to be the same, the stamps its files have now. Returns at once.
  ///
  /// - Parameters:
  ///   - outputs: one for each output; for another number of them nothing is done.
  ///   - key: what the entry is found by.
  ///   - job: the job, as the ledger knows it.
  ///   - input: the input, as the ledger knows it.
  public func refresh(job: String, key: [UInt8], input: FileStamp?, outputs: [FileStamp?]) {
    enqueue { tables throws(DatabaseError) in
      try tables.refresh(job: job, key: key, input: input, outputs: outputs)
    }
  }

  // MARK: Sources

  /// Notes that a source is about to be moved or deleted. Returns at once.
  ///
  /// - Parameters:
  ///   - onDurable: as for items.
  ///   - job: the job, as the ledger knows it.
  ///   - fate: what became of the source.
  public func book(job: String, _ fate: SourceFate, onDurable: (@Sendable (StageError?) -> Void)? = nil) {
    enqueue({ tables throws(DatabaseError) in try tables.book(job: job, fate) }, onDurable)
  }

  /// Takes back that a source is about to be moved or deleted. Returns at once.
  public func forget(job: String, source name: PathBytes) {
    enqueue { tables throws(DatabaseError) in try tables.forget(job: job, source: name) }
  }

  /// What was noted about a source; nil where nothing was.
  public func fate(job: String, source name: PathBytes) throws(StageError) -> SourceFate? {
    try look { tables throws(DatabaseError) in try tables.fate(job: job, source: name) }
  }

  /// Forgets items.
  public func remove(job: String, keys: [[UInt8]]) throws(StageError) {
    try writing().perform { tables throws(DatabaseError) in try tables.remove(job: job, keys: keys) }
  }

  /// Waits until everything that was booked before is on the disk.
  ///
  /// - Throws: the first failure since the last flush.
  public func flush() throws(StageError) { try writer?.flush() }

  // MARK: Chains and helper files

  /// What the fingerprint of a chain was made of, as JSON.
  public func chain(_ fingerprint: [UInt8]) throws(StageError) -> String? {
    try look { tables throws(DatabaseError) in try tables.text(ofChain: fingerprint) }
  }

  public func keep(chain fingerprint: [UInt8], text: String) {
    enqueue { tables throws(DatabaseError) in try tables.keep(chain: fingerprint, text: text) }
  }

  /// The digest that a file had when it had this stamp.
  public func digest(of path: PathBytes, stamp: FileStamp) throws(StageError) -> [UInt8]? {
    try look { tables throws(DatabaseError) in try tables.digest(of: path, stamp: stamp) }
  }

  public func keep(digest: [UInt8], of path: PathBytes, stamp: FileStamp) {
    enqueue { tables throws(DatabaseError) in try tables.keep(digest: digest, of: path, stamp: stamp) }
  }

  // MARK: Runs

  /// Notes that a run has begun. One that begins again, after a crash of the program, keeps its place.
  public func begin(_ run: LedgerRun) throws(StageError) {
    try writing().perform { tables throws(DatabaseError) in try tables.book(run) }
  }

  /// Notes how a run has ended. Returns at once; a flush tells whether it could be written.
  public func end(_ run: LedgerRun) { enqueue { tables throws(DatabaseError) in try tables.book(run) } }

  public func run(_ id: String) throws(StageError) -> LedgerRun? {
    try look { tables throws(DatabaseError) in try tables.runs("id = ?", [.text(id)], limit: 1).first }
  }

  /// Runs, the newest first.
  public func runs(job: String? = nil, limit: Int) throws(StageError) -> [LedgerRun] {
    try look { tables throws(DatabaseError) in
      try tables.runs("?1 IS NULL OR job = ?1", [job.map { .text($0) } ?? .null], limit: limit)
    }
  }

  /// Runs without an end, of all jobs: where the lock is held, those that were killed, and the holder's own.
  public func unendedRuns() throws(StageError) -> [LedgerRun] {
    try look { tables throws(DatabaseError) in try tables.runs("ended IS NULL", [], limit: .max) }
  }

  /// Whether runs of a job may have made what was never booked, and none since then has gone through all of its items:
  /// they have no end, or one of `LedgerRun.stopsWithoutBooking`.
  public func mayHoldUnbooked(job: String) throws(StageError) -> Bool {
    try look { tables throws(DatabaseError) in try tables.mayHoldUnbooked(job: job) }
  }

  /// Forgets runs that are too old or too many; the newest of each job stays, and items stay.
  ///
  /// - Parameters:
  ///   - time: seconds since 1970.
  ///   - count: how many are kept of those that are not older.
  /// - Returns: how many went.
  @discardableResult
  public func prune(
    runsBefore time: Double = RunClock.now() - Double(daysKept) * 86_400, keeping count: Int = runsKept
  ) throws(StageError) -> Int {
    try writing().perform { tables throws(DatabaseError) in try tables.pruneRuns(before: time, keeping: count) }
  }

  // MARK: Uploads and paid calls

  /// Books what an upload left behind, or what became of it. Returns at once.
  public func book(_ receipt: Receipt, onDurable: (@Sendable (StageError?) -> Void)? = nil) {
    enqueue({ tables throws(DatabaseError) in try tables.book(receipt) }, onDurable)
  }

  /// Receipts of one item, in the order in which they came.
  public func receipts(job: String, key: [UInt8]) throws(StageError) -> [Receipt] {
    try look { tables throws(DatabaseError) in
      try tables.receipts("job = ? AND key = ?", [.text(job), .blob(key)])
    }
  }

  /// Receipts with a state, or all.
  public func receipts(_ state: Receipt.State? = nil) throws(StageError) -> [Receipt] {
    try look { tables throws(DatabaseError) in
      try tables.receipts("?1 IS NULL OR state = ?1", [state.map { .text($0.rawValue) } ?? .null])
    }
  }

  /// Notes a call that costs before it is made. When this returns, it is on the disk.
  ///
  /// - Returns: its number.
  public func begin(_ call: PaidCall) throws(StageError) -> Int64 {
    try writing().perform { tables throws(DatabaseError) in try tables.begin(call) }
  }

  /// Notes how a call has ended and books its credits; once. When this returns, it is on the disk.
  ///
  /// - Parameters:
  ///   - time: seconds since 1970.
  ///   - outcome: how the call ended.
  ///   - number: the number that the call was noted under.
  public func finish(
    call number: Int64, _ outcome: PaidCall.Outcome, at time: Double = RunClock.now()
  ) throws(StageError) {
    try writing().perform { tables throws(DatabaseError) in try tables.finish(call: number, outcome, at: time) }
  }

  /// Calls that were begun and of which nobody knows how they ended: those under way and those of dead runs.
  public func openCalls() throws(StageError) -> [(number: Int64, call: PaidCall)] {
    try look { tables throws(DatabaseError) in try tables.openCalls() }
  }

  /// Credits that a provider took since a time, with what open calls may have cost.
  ///
  /// - Parameters:
  ///   - provider: nil for all, as are account and run.
  ///   - time: seconds since 1970.
  ///   - run: the run that books it.
  ///   - account: whose credits are spent.
  public func creditsSpent(
    provider: String? = nil, account: String? = nil, since time: Double, run: String? = nil
  ) throws(StageError) -> Double {
    try look { tables throws(DatabaseError) in
      try tables.creditsSpent(provider: provider, account: account, run: run, since: time)
    }
  }

  /// All calls for one request.
  func calls(request: [UInt8]) throws(StageError) -> [PastCall] {
    try look { tables throws(DatabaseError) in try tables.calls(request: request) }
  }

  /// Calls that nobody knows the end of; while a run goes on, those under way too.
  public func unsettledCalls() throws(StageError) -> [UnsettledCall] {
    try look { tables throws(DatabaseError) in try tables.unsettledCalls() }
  }

  /// Has the next run make a call again of which nobody knows how it ended. What it may have cost stays booked.
  public func retry(call number: Int64) throws(StageError) {
    try writing().perform { tables throws(DatabaseError) in try tables.retry(call: number, at: RunClock.now()) }
  }

  /// Books a receipt. When this returns, it is on the disk.
  public func keep(_ receipt: Receipt) throws(StageError) {
    try writing().perform { tables throws(DatabaseError) in try tables.book(receipt) }
  }

  /// Forgets a receipt: what it was for has not arrived, or is to be sent again.
  public func remove(receipt id: String) throws(StageError) {
    try writing().perform { tables throws(DatabaseError) in try tables.remove(receipt: id) }
  }

  // MARK: The whole

  /// Reads everything; what is wrong with it, or nothing.
  public func integrityCheck() throws(StageError) -> [String] {
    try look { tables throws(DatabaseError) in
      do throws(DatabaseError) {
        return try tables.problems()
      } catch  where error.isDamage {
        return [error.message]
      }
    }
  }

  /// Forgets what no item names, and gives back the space that is free.
  public func compact() throws(StageError) {
    let writer = try writing()
    try writer.perform { tables throws(DatabaseError) in try tables.pruneNames() }
    try writer.alone { tables throws(DatabaseError) in
      // A copy of everything is made on the way.
      try tables.database.execute("PRAGMA temp_store = FILE")
      try tables.database.execute("VACUUM")
      try tables.database.execute("PRAGMA temp_store = MEMORY")
    }
    reader.withLock { $0?.forget() }
  }

  /// Writes what waits and closes the files. What is booked afterwards is refused.
  public func close() {
    writer?.close()
    reader.withLock { $0 = nil }
  }
}
