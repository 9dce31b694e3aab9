import Digest
import PipelineKit

/// The ledger's rows by way of one connection.
///
/// Remembers the numbers of words; those that a transaction which failed has made must be forgotten.
///
/// `@unchecked Sendable`: used by one thread at a time, since `Ledger` and `LedgerWriter` keep theirs in a mutex.
final class LedgerTables: @unchecked Sendable {
  let database: Database
  private var numbers: [String: Int64] = [:]
  private var words: [Int64: String] = [:]
  private var chainNumbers: [[UInt8]: Int64] = [:]
  private var chains: [Int64: [UInt8]] = [:]

  /// The folder that holds the state. Paths below it are written as seen from it, so that both can be moved or copied
  /// together, and a copy does not take the files of the first for its own.
  private let home: PathBytes

  init(_ database: Database, home: PathBytes) {
    self.database = database
    self.home = home
  }

  private func portable(_ path: PathBytes) -> PathBytes {
    path.isAbsolute && path != home && path.isInside(home) ? path.relative(to: home) : path
  }

  /// The item as it is written. Its checksum is that of this form.
  private func portable(_ item: LedgerItem) -> LedgerItem {
    var item = item
    item.inputPath = portable(item.inputPath)
    for index in item.outputs.indices {
      if case .path(let path) = item.outputs[index].record.place {
        item.outputs[index].record.place = .path(portable(path))
      }
    }
    return item
  }

  /// The item as others know it.
  private func placed(_ item: LedgerItem) -> LedgerItem {
    var item = item
    if !item.inputPath.isRemoteName { item.inputPath = home.joining(item.inputPath) }
    for index in item.outputs.indices {
      if case .path(let path) = item.outputs[index].record.place {
        item.outputs[index].record.place = .path(home.joining(path))
      }
    }
    return item
  }

  func forget() {
    numbers = [:]
    words = [:]
    chainNumbers = [:]
    chains = [:]
  }

  // MARK: Words and chains

  private func knownNumber(of word: String) throws(DatabaseError) -> Int64? {
    if let known = numbers[word] { return known }
    let number = try database.integer("SELECT id FROM words WHERE text = ?", [.text(word)])
    if let number { numbers[word] = number }
    return number
  }

  private func number(of word: String) throws(DatabaseError) -> Int64 {
    if let known = try knownNumber(of: word) { return known }
    try database.run("INSERT INTO words (text) VALUES (?)", [.text(word)])
    numbers[word] = database.lastRow
    return database.lastRow
  }

  private func word(_ number: Int64) throws(DatabaseError) -> String {
    if let known = words[number] { return known }
    guard let text = try database.text("SELECT text FROM words WHERE id = ?", [.integer(number)]) else {
      throw .damage("word \(number) is missing")
    }
    words[number] = text
    return text
  }

  private func number(ofChain fingerprint: [UInt8]) throws(DatabaseError) -> Int64 {
    if let known = chainNumbers[fingerprint] { return known }
    var number = try database.integer("SELECT id FROM chains WHERE fingerprint = ?", [.blob(fingerprint)])
    if number == nil {
      try database.run("INSERT INTO chains (fingerprint) VALUES (?)", [.blob(fingerprint)])
      number = database.lastRow
    }
    chainNumbers[fingerprint] = number
    return number ?? 0
  }

  private func chain(_ number: Int64) throws(DatabaseError) -> [UInt8] {
    if let known = chains[number] { return known }
    var fingerprint: [UInt8]?
    try database.run("SELECT fingerprint FROM chains WHERE id = ?", [.integer(number)]) { fingerprint = $0.blob(0) }
    guard let fingerprint else { throw .damage("chain \(number) is missing") }
    chains[number] = fingerprint
    return fingerprint
  }

  func keep(chain fingerprint: [UInt8], text: String) throws(DatabaseError) {
    try database.run(
      """
      INSERT INTO chains (fingerprint, text) VALUES (?1, ?2)
      ON CONFLICT (fingerprint) DO UPDATE SET text = ?2 WHERE text IS NOT ?2
      """, [.blob(fingerprint), .text(text)])
  }

  func text(ofChain fingerprint: [UInt8]) throws(DatabaseError) -> String? {
    try database.text("SELECT text FROM chains WHERE fingerprint = ?", [.blob(fingerprint)])
  }

  // MARK: Items

  private static let columns = """
    id, key, status, chain, vals, versions, inputSize, inputModified, inputChanged, inputHash, inputPath, run, \
    updated, detail, checksum
    """
  /// Of an output.
  private static let outputColumns = """
    stage, path, link, format, width, height, bytes, sha256, size, modified, changed
    """
  /// An item with its outputs, in one look: of a long run most of the time before the first picture goes here.
  private static let lookUp = """
    SELECT \(columns), \(outputColumns) FROM items LEFT JOIN outputs ON outputs.item = items.id
    WHERE job = ? AND key = ? ORDER BY outputs.number
    """
  private var lookUp: Statement?

  func item(job: String, key: [UInt8]) throws(DatabaseError) -> LedgerItem? {
    guard let job = try knownNumber(of: job) else { return nil }
    let statement: Statement
    if let lookUp {
      statement = lookUp
    } else {
      statement = try database.statement(Self.lookUp)
      lookUp = statement
    }
    var found: (row: Int64, item: LedgerItem, checksum: Int64)?
    try database.run(statement, [.integer(job), .blob(key)]) { row throws(DatabaseError) in
      if found == nil { found = try read(row, key: key) }
      if !row.isNull(15) { found?.item.outputs.append(try output(row, 15)) }
    }
    guard let found else { return nil }
    return try checked(found).item
  }

  /// At most `count` items of a job after a row, in an order that stays.
  func items(
    job: String, after row: Int64, count: Int
  ) throws(DatabaseError) -> [(row: Int64, item: LedgerItem)] {
    guard let job = try knownNumber(of: job) else { return [] }
    // The plus keeps the index of keys, which has another order, from being used.
    return try items("+job = ? AND id > ? ORDER BY id LIMIT ?", [.integer(job), .integer(row), .integer(count)])
  }

  func items(run: String, statuses: [ItemStatus]) throws(DatabaseError) -> [LedgerItem] {
    guard let run = try knownNumber(of: run) else { return [] }
    var found: [LedgerItem] = []
    for status in statuses {
      guard let status = try knownNumber(of: status.rawValue) else { continue }
      found += try items("run = ? AND status = ? ORDER BY id", [.integer(run), .integer(status)]).map(\.item)
    }
    return found
  }

  private func items(
    _ condition: String, _ values: [SQLValue]
  ) throws(DatabaseError) -> [(row: Int64, item: LedgerItem)] {
    var found: [(row: Int64, item: LedgerItem)] = []
    try database.run("SELECT \(Self.columns) FROM items WHERE \(condition)", values) { row throws(DatabaseError) in
      var item = try read(row, key: row.blob(1))
      item.item.outputs = try outputs(of: item.row)
      found.append(try checked(item))
    }
    return found
  }

  /// The item of a row, without its outputs.
  private func read(
    _ row: Statement, key: [UInt8]
  ) throws(DatabaseError) -> (row: Int64, item: LedgerItem, checksum: Int64) {
    let number = row.integer(0)
    guard let status = ItemStatus(rawValue: try word(row.integer(2))) else {
      throw .damage("item \(number) has no status")
    }
    let item = LedgerItem(
      key: key, status: status, chain: try chain(row.integer(3)), values: row.blob(4),
      versions: try word(row.integer(5)), inputStamp: Self.stamp(row, 6),
      inputHash: row.isNull(9) ? nil : row.blob(9),
      inputPath: PathBytes(bytes: row.isNull(10) ? key : row.blob(10)), run: try word(row.integer(11)),
      updated: row.real(12), detail: row.isNull(13) ? nil : row.text(13))
    return (number, item, row.integer(14))
  }

  private func checked(
    _ found: (row: Int64, item: LedgerItem, checksum: Int64)
  ) throws(DatabaseError) -> (row: Int64, item: LedgerItem) {
    guard found.item.checksum == found.checksum else {
      throw .damage("item \(found.row) is not what was written")
    }
    return (found.row, placed(found.item))
  }

  private static func stamp(_ row: Statement, _ column: Int32) -> FileStamp? {
    guard !row.isNull(column) else { return nil }
    return FileStamp(
      size: row.integer(column), modified: row.integer(column + 1), changed: row.integer(column + 2))
  }

  private static func values(_ stamp: FileStamp?) -> [SQLValue] {
    guard let stamp else { return [.null, .null, .null] }
    return [.integer(stamp.size), .integer(stamp.modified), .integer(stamp.changed)]
  }

  private func outputs(of item: Int64) throws(DatabaseError) -> [LedgerOutput] {
    var found: [LedgerOutput] = []
    try database.run(
      "SELECT \(Self.outputColumns) FROM outputs WHERE item = ? ORDER BY number", [.integer(item)]
    ) { row throws(DatabaseError) in found.append(try output(row, 0)) }
    return found
  }

  /// The output whose columns begin at one.
  private func output(_ row: Statement, _ first: Int32) throws(DatabaseError) -> LedgerOutput {
    LedgerOutput(
      stage: try word(row.integer(first)),
      record: OutputRecord(
        place: row.isNull(first + 2) ? .path(PathBytes(bytes: row.blob(first + 1))) : .link(row.text(first + 2)),
        format: try word(row.integer(first + 3)), width: Int(row.integer(first + 4)),
        height: Int(row.integer(first + 5)), bytes: Int(row.integer(first + 6)),
        sha256: row.isText(first + 7) ? row.text(first + 7) : Hex.text(row.blob(first + 7))),
      stamp: Self.stamp(row, first + 8))
  }

  /// Half as long as bytes; other text than lower-case digits stays what it is.
  private static func value(ofDigits text: String) -> SQLValue {
    guard let bytes = Hex.bytes(text), Hex.text(bytes) == text else { return .text(text) }
    return .blob(bytes)
  }

  func book(job: String, _ item: LedgerItem) throws(DatabaseError) {
    var item = portable(item)
    // SQLite has no such numbers.
    if !item.updated.isFinite { item.updated = 0 }
    let values: [SQLValue] =
      [
        .integer(try number(of: job)), .blob(item.key), .integer(try number(of: item.status.rawValue)),
        .integer(try number(ofChain: item.chain)), .blob(item.values), .integer(try number(of: item.versions)),
      ] + Self.values(item.inputStamp) + [
        item.inputHash.map { .blob($0) } ?? .null,
        item.inputPath.bytes == item.key ? .null : .blob(item.inputPath.bytes), .integer(try number(of: item.run)),
        .real(item.updated), item.detail.map { .text($0) } ?? .null, .integer(item.checksum),
      ]
    var row: Int64 = 0
    try database.run(
      """
      INSERT INTO items (job, key, status, chain, vals, versions, inputSize, inputModified, inputChanged, inputHash,
        inputPath, run, updated, detail, checksum)
      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
      ON CONFLICT (job, key) DO UPDATE SET status = excluded.status, chain = excluded.chain, vals = excluded.vals,
        versions = excluded.versions, inputSize = excluded.inputSize, inputModified = excluded.inputModified,
        inputChanged = excluded.inputChanged, inputHash = excluded.inputHash, inputPath = excluded.inputPath,
        run = excluded.run, updated = excluded.updated, detail = excluded.detail, checksum = excluded.checksum
      RETURNING id
      """, values
    ) { row = $0.integer(0) }
    try database.run("DELETE FROM outputs WHERE item = ?", [.integer(row)])
    for (number, output) in item.outputs.enumerated() {
      let record = output.record
      var place: [SQLValue]
      switch record.place {
      case .path(let path): place = [.blob(path.bytes), .null]
      case .link(let link): place = [.null, .text(link)]
      }
      try database.run(
        """
        INSERT INTO outputs (item, number, stage, path, link, format, width, height, bytes, sha256, size, modified,
          changed)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        [.integer(row), .integer(number), .integer(try self.number(of: output.stage))] + place + [
          .integer(try self.number(of: record.format)), .integer(record.width), .integer(record.height),
          .integer(record.bytes), Self.value(ofDigits: record.sha256),
        ] + Self.values(output.stamp))
    }
  }

  /// Gives an item other stamps; one that is not there, or has another number of outputs, is left.
  func refresh(job: String, key: [UInt8], input: FileStamp?, outputs: [FileStamp?]) throws(DatabaseError) {
    guard var item = try item(job: job, key: key), item.outputs.count == outputs.count else { return }
    item.inputStamp = input
    for (index, stamp) in outputs.enumerated() { item.outputs[index].stamp = stamp }
    try book(job: job, item)
  }

  func remove(job: String, keys: [[UInt8]]) throws(DatabaseError) {
    guard let job = try knownNumber(of: job) else { return }
    for key in keys {
      try database.run(
        "DELETE FROM outputs WHERE item = (SELECT id FROM items WHERE job = ? AND key = ?)",
        [.integer(job), .blob(key)])
      try database.run("DELETE FROM items WHERE job = ? AND key = ?", [.integer(job), .blob(key)])
    }
  }

  /// Jobs that have items, with how many ended how.
  func jobs() throws(DatabaseError) -> [(job: String, counts: ItemCounts)] {
    var found: [(job: String, counts: ItemCounts)] = []
    try database.run("SELECT job, status, count(*) FROM items GROUP BY job, status") { row throws(DatabaseError) in
      let job = try word(row.integer(0))
      if found.last?.job != job { found.append((job, ItemCounts())) }
      guard let status = ItemStatus(rawValue: try word(row.integer(1))) else { throw .damage("a status is unknown") }
      found[found.count - 1].counts[status] = Int(row.integer(2))
    }
    return found
  }

  // MARK: Digests of helper files

  func digest(of path: PathBytes, stamp: FileStamp) throws(DatabaseError) -> [UInt8]? {
    var digest: [UInt8]?
    try database.run(
      "SELECT digest FROM digests WHERE path = ? AND size = ? AND modified = ? AND changed = ?",
      [.blob(path.bytes)] + Self.values(stamp)
    ) { digest = $0.blob(0) }
    return digest
  }

  func keep(digest: [UInt8], of path: PathBytes, stamp: FileStamp) throws(DatabaseError) {
    try database.run(
      "INSERT OR REPLACE INTO digests (path, size, modified, changed, digest) VALUES (?, ?, ?, ?, ?)",
      [.blob(path.bytes)] + Self.values(stamp) + [.blob(digest)])
  }

  // MARK: Runs

  func book(job: String, _ fate: SourceFate) throws(DatabaseError) {
    try database.run(
      """
      INSERT INTO sources (job, name, target, time) VALUES (?, ?, ?, ?)
      ON CONFLICT (job, name) DO UPDATE SET target = excluded.target, time = excluded.time
      """,
      [
        .text(job), .blob(fate.name.bytes), fate.target.map { .blob(portable($0).bytes) } ?? .null, .real(fate.time),
      ])
  }

  func forget(job: String, source name: PathBytes) throws(DatabaseError) {
    try database.run("DELETE FROM sources WHERE job = ? AND name = ?", [.text(job), .blob(name.bytes)])
  }

  func fate(job: String, source name: PathBytes) throws(DatabaseError) -> SourceFate? {
    var found: SourceFate?
    try database.run(
      "SELECT target, time FROM sources WHERE job = ? AND name = ?", [.text(job), .blob(name.bytes)]
    ) { [home] row in
      found = SourceFate(
        name: name, target: row.isNull(0) ? nil : home.joining(PathBytes(bytes: row.blob(0))), time: row.real(1))
    }
    return found
  }

  func book(_ run: LedgerRun) throws(DatabaseError) {
    try database.run(
      """
      INSERT INTO runs (id, job, jobName, started, ended, exitCode, stop, counts, shard, host, pid, version, reportPath)
      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
      ON CONFLICT (id) DO UPDATE SET ended = excluded.ended, exitCode = excluded.exitCode, stop = excluded.stop,
        counts = excluded.counts, reportPath = excluded.reportPath, pid = excluded.pid
      """,
      [
        .text(run.id), .text(run.job), .text(run.jobName), .real(run.started), run.ended.map { .real($0) } ?? .null,
        run.exitCode.map { .integer(Int64($0)) } ?? .null, run.stop.map { .text($0) } ?? .null, .text(run.counts),
        run.shard.map { .text($0) } ?? .null, .text(run.host), .integer(Int64(run.pid)), .text(run.version),
        run.reportPath.map { .blob($0.bytes) } ?? .null,
      ])
  }

  /// Runs under a condition, the newest first.
  func runs(_ condition: String, _ values: [SQLValue], limit: Int) throws(DatabaseError) -> [LedgerRun] {
    var found: [LedgerRun] = []
    try database.run(
      """
      SELECT id, job, jobName, started, ended, exitCode, stop, counts, shard, host, pid, version, reportPath FROM runs
      WHERE \(condition) ORDER BY started DESC, number DESC LIMIT ?
      """, values + [.integer(limit)]
    ) { row in
      found.append(
        LedgerRun(
          id: row.text(0), job: row.text(1), jobName: row.text(2), started: row.real(3),
          ended: row.isNull(4) ? nil : row.real(4), exitCode: row.isNull(5) ? nil : Int32(clamping: row.integer(5)),
          stop: row.isNull(6) ? nil : row.text(6), counts: row.text(7), shard: row.isNull(8) ? nil : row.text(8),
          host: row.text(9), pid: Int32(clamping: row.integer(10)), version: row.text(11),
          reportPath: row.isNull(12) ? nil : PathBytes(bytes: row.blob(12))))
    }
    return found
  }

  func mayHoldUnbooked(job: String) throws(DatabaseError) -> Bool {
    let words = LedgerRun.stopsWithoutBooking.map { "'\($0)'" }.joined(separator: ", ")
    return try database.integer(
      """
      SELECT EXISTS (SELECT 1 FROM runs AS cut WHERE cut.job = ?1 AND (cut.ended IS NULL OR cut.stop IN (\(words)))
        AND NOT EXISTS (SELECT 1 FROM runs AS whole WHERE whole.job = ?1 AND whole.number > cut.number
          AND whole.ended IS NOT NULL AND whole.stop IS NULL AND whole.exitCode IN (0, 1)))
      """, [.text(job)]) == 1
  }

  /// Removes runs that began before a time, or are not among the newest; never the newest of a job, which tells whether
  /// it was cut short.
  ///
  /// - Returns: how many went.
  func pruneRuns(before time: Double, keeping count: Int) throws(DatabaseError) -> Int {
    try database.run(
      """
      DELETE FROM runs WHERE (started < ?1 OR number NOT IN (
        SELECT number FROM runs ORDER BY started DESC, number DESC LIMIT ?2))
      AND EXISTS (SELECT 1 FROM runs AS later WHERE later.job = runs.job
        AND (later.started > runs.started OR later.started = runs.started AND later.number > runs.number))
      """, [.real(time), .integer(count)])
    return database.changes
  }

  // MARK: Receipts

  func book(_ receipt: Receipt) throws(DatabaseError) {
    try database.run(
      """
      INSERT INTO receipts (id, run, job, key, stage, provider, link, deleteLink, etag, sha256, sentAt, expires, state,
        options)
      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
      ON CONFLICT (id) DO UPDATE SET link = excluded.link, deleteLink = excluded.deleteLink, etag = excluded.etag,
        sha256 = excluded.sha256, sentAt = excluded.sentAt, expires = excluded.expires, state = excluded.state,
        options = excluded.options
      """,
      [
        .text(receipt.id), .text(receipt.run), .text(receipt.job), .blob(receipt.key), .text(receipt.stage),
        .text(receipt.provider), receipt.link.map { .text($0) } ?? .null,
        receipt.deleteLink.map { .text($0) } ?? .null, receipt.etag.map { .text($0) } ?? .null,
        .blob(receipt.sha256), .real(receipt.sentAt), receipt.expires.map { .real($0) } ?? .null,
        .text(receipt.state.rawValue), .blob(receipt.options),
      ])
  }

  func receipts(_ condition: String, _ values: [SQLValue]) throws(DatabaseError) -> [Receipt] {
    var found: [Receipt] = []
    try database.run(
      """
      SELECT id, run, job, key, stage, provider, link, deleteLink, etag, sha256, sentAt, expires, state, options
      FROM receipts WHERE \(condition) ORDER BY number
      """, values
    ) { row throws(DatabaseError) in
      guard let state = Receipt.State(rawValue: row.text(12)) else {
        throw .damage("receipt \(row.text(0)) has no state")
      }
      func text(_ column: Int32) -> String? { row.isNull(column) ? nil : row.text(column) }
      found.append(
        Receipt(
          id: row.text(0), run: row.text(1), job: row.text(2), key: row.blob(3), stage: row.text(4),
          provider: row.text(5), link: text(6), deleteLink: text(7), etag: text(8), sha256: row.blob(9),
          sentAt: row.real(10), expires: row.isNull(11) ? nil : row.real(11), state: state, options: row.blob(13)))
    }
    return found
  }

  // MARK: Paid calls and credits

  func begin(_ call: PaidCall) throws(DatabaseError) -> Int64 {
    try database.run(
      """
      INSERT INTO paidCalls (run, job, key, stage, provider, account, request, amount, began)
      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
      """,
      [
        .text(call.run), .text(call.job), .blob(call.key), .text(call.stage), .text(call.provider),
        .text(call.account), .blob(call.request), .real(call.amount), .real(call.began),
      ])
    return database.lastRow
  }

  func finish(call number: Int64, _ outcome: PaidCall.Outcome, at time: Double) throws(DatabaseError) {
    let word: String
    var amount: SQLValue?
    switch outcome {
    case .charged(let credits): (word, amount) = ("charged", .real(credits))
    case .free: word = "free"
    case .unknown: (word, amount) = ("unknown", .null)
    }
    try database.run(
      "UPDATE paidCalls SET ended = ?, outcome = ? WHERE number = ? AND ended IS NULL",
      [.real(time), .text(word), .integer(number)])
    // Whoever ends a call twice pays once.
    guard database.changes > 0, let amount else { return }
    try database.run(
      """
      INSERT INTO credits (time, provider, account, amount, run, call)
      SELECT ?, provider, account, coalesce(?, amount), run, number FROM paidCalls WHERE number = ?
      """, [.real(time), amount, .integer(number)])
  }

  func openCalls() throws(DatabaseError) -> [(number: Int64, call: PaidCall)] {
    var found: [(number: Int64, call: PaidCall)] = []
    try database.run(
      """
      SELECT number, run, job, key, stage, provider, account, request, amount, began FROM paidCalls
      WHERE ended IS NULL ORDER BY number
      """
    ) { row in
      found.append(
        (
          row.integer(0),
          PaidCall(
            run: row.text(1), job: row.text(2), key: row.blob(3), stage: row.text(4), provider: row.text(5),
            account: row.text(6), request: row.blob(7), amount: row.real(8), began: row.real(9))
        ))
    }
    return found
  }

  func creditsSpent(
    provider: String?, account: String?, run: String?, since time: Double
  ) throws(DatabaseError) -> Double {
    // Only the conditions that are asked for, so that each has its index.
    var conditions: [String] = []
    var values: [SQLValue] = []
    for case (let column, let value?) in [("provider", provider), ("account", account), ("run", run)] {
      conditions.append("\(column) = ?")
      values.append(.text(value))
    }
    values.append(.real(time))
    func text(_ conditions: [String]) -> String { conditions.joined(separator: " AND ") }
    var sum = 0.0
    for query in [
      "SELECT total(amount) FROM credits WHERE " + text(conditions + ["time >= ?"]),
      "SELECT total(amount) FROM paidCalls WHERE " + text(conditions + ["began >= ?", "ended IS NULL"]),
    ] {
      try database.run(query, values) { sum += $0.real(0) }
    }
    return sum
  }

  /// All calls for one request, in the order in which they were begun.
  func calls(request: [UInt8]) throws(DatabaseError) -> [PastCall] {
    var found: [PastCall] = []
    try database.run(
      "SELECT number, run, ended, outcome FROM paidCalls WHERE request = ? ORDER BY number", [.blob(request)]
    ) { row throws(DatabaseError) in
      guard let outcome = row.isNull(2) ? .open : PastCall.Outcome(rawValue: row.text(3)) else {
        throw .damage("call \(row.integer(0)) has no outcome")
      }
      found.append(PastCall(number: row.integer(0), run: row.text(1), outcome: outcome))
    }
    return found
  }

  /// Calls that nobody knows the end of.
  func unsettledCalls() throws(DatabaseError) -> [UnsettledCall] {
    var found: [UnsettledCall] = []
    try database.run(
      """
      SELECT number, run, job, key, stage, provider, account, request, amount, began FROM paidCalls
      WHERE ended IS NULL OR outcome = 'unknown' ORDER BY number
      """
    ) { row in
      found.append(
        UnsettledCall(
          number: row.integer(0),
          call: PaidCall(
            run: row.text(1), job: row.text(2), key: row.blob(3), stage: row.text(4), provider: row.text(5),
            account: row.text(6), request: row.blob(7), amount: row.real(8), began: row.real(9))))
    }
    return found
  }

  /// Has an unknown call made again by the next run. What it may have cost stays booked.
  func retry(call number: Int64, at time: Double) throws(DatabaseError) {
    try finish(call: number, .unknown, at: time)
    try database.run(
      "UPDATE paidCalls SET outcome = 'retried' WHERE number = ? AND outcome = 'unknown'", [.integer(number)])
  }

  func remove(receipt id: String) throws(DatabaseError) {
    try database.run("DELETE FROM receipts WHERE id = ?", [.text(id)])
  }

  // MARK: The whole

  /// What is wrong with the file, in SQLite's words and in ours; empty where nothing is.
  func problems() throws(DatabaseError) -> [String] {
    var found: [String] = []
    try database.run("PRAGMA integrity_check(20)") { row in
      let text = row.text(0)
      if text != "ok" { found.append(text) }
    }
    guard found.isEmpty else { return found }
    func count(_ what: String, _ query: String) throws(DatabaseError) {
      let number = try database.integer(query) ?? 0
      if number > 0 { found.append("\(number) \(what)") }
    }
    try count("outputs without their item", "SELECT count(*) FROM outputs WHERE item NOT IN (SELECT id FROM items)")
    var last: Int64 = -1
    while true {
      let rows = try items("id > ? ORDER BY id LIMIT ?", [.integer(last), .integer(1000)])
      guard let end = rows.last else { return found }
      last = end.row
    }
  }

  /// Removes words and chains that no item names any more.
  func pruneNames() throws(DatabaseError) {
    try database.run(
      """
      DELETE FROM words WHERE id NOT IN (
        SELECT job FROM items UNION SELECT status FROM items UNION SELECT versions FROM items UNION
        SELECT run FROM items UNION SELECT stage FROM outputs UNION SELECT format FROM outputs)
      """)
    try database.run("DELETE FROM chains WHERE id NOT IN (SELECT chain FROM items)")
    forget()
  }
}
