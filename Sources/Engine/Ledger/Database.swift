import CSQLite
import Glibc
import PipelineKit

/// What SQLite answered.
struct DatabaseError: Error, Sendable, Hashable {
  /// The extended result code.
  var code: Int32
  var message: String

  private var primary: Int32 { code & 0xff }
  var isDamage: Bool { primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB }
  var isFull: Bool { primary == SQLITE_FULL }
  var isBusy: Bool { primary == SQLITE_BUSY || primary == SQLITE_LOCKED }
  /// The file, or one of those beside it, cannot be opened, or not for writing.
  var isDenied: Bool { [SQLITE_CANTOPEN, SQLITE_READONLY, SQLITE_PERM, SQLITE_AUTH].contains(primary) }

  static func damage(_ message: String) -> DatabaseError { DatabaseError(code: SQLITE_CORRUPT, message: message) }
}

/// A value that goes into a statement.
enum SQLValue: Sendable {
  case null
  case integer(Int64)
  case real(Double)
  case text(String)
  case blob([UInt8])

  static func integer(_ value: Int) -> SQLValue { .integer(Int64(value)) }
}

/// One connection to an SQLite database.
///
/// `@unchecked Sendable`: used by one thread at a time, since whoever opens it puts it into a mutex.
final class Database: @unchecked Sendable {
  enum Mode {
    /// Makes the file where it is missing.
    case create
    case write
    /// May tidy up what a dead writer left, and changes nothing else.
    case read
    /// Changes no file at all.
    case readOnly
    /// As `readOnly`, on files that nobody writes: no lock is taken, and no log is read.
    case immutable
  }

  private let handle: OpaquePointer
  private var statements: [String: Statement] = [:]

  /// - Parameter path: absolute; empty for a database without a name that is gone when closed.
  init(_ path: PathBytes, _ mode: Mode) throws(DatabaseError) {
    var name = path
    var flags = SQLITE_OPEN_NOMUTEX
    switch mode {
    case .create: flags |= SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
    case .write, .read: flags |= SQLITE_OPEN_READWRITE
    case .readOnly: flags |= SQLITE_OPEN_READONLY
    case .immutable:
      flags |= SQLITE_OPEN_READONLY | SQLITE_OPEN_URI
      name = Self.immutableAddress(of: path)
    }
    var opened: OpaquePointer?
    let code = name.withCString { sqlite3_open_v2($0, &opened, flags, nil) }
    guard code == SQLITE_OK, let opened else {
      let error = DatabaseError(
        code: opened.map { sqlite3_extended_errcode($0) } ?? code,
        message: String(cString: opened.map { sqlite3_errmsg($0) } ?? sqlite3_errstr(code)))
      if let opened { sqlite3_close_v2(opened) }
      throw error
    }
    handle = opened
    sqlite3_extended_result_codes(opened, 1)
    sqlite3_busy_timeout(opened, 10_000)
    csqlite_distrust(opened)
    try execute("PRAGMA cell_size_check = ON")
    // Without a writable folder for temporary files nothing may fail.
    try execute("PRAGMA temp_store = MEMORY")
    // KiB. The system keeps the file's pages too; a larger one would look like a run that takes more and more memory.
    try execute("PRAGMA cache_size = -400")
    if mode == .read { try execute("PRAGMA query_only = ON") }
  }

  deinit {
    statements.removeAll()
    sqlite3_close_v2(handle)
  }

  private static func immutableAddress(of path: PathBytes) -> PathBytes {
    var text = Array("file:".utf8)
    for byte in path.bytes {
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "/"), UInt8(ascii: "-"), UInt8(ascii: "."):
        text.append(byte)
      default: text += (byte < 16 ? "%0" : "%").utf8 + Array(String(byte, radix: 16).utf8)
      }
    }
    return PathBytes(bytes: text + Array("?immutable=1".utf8))
  }

  private func failure() -> DatabaseError {
    DatabaseError(code: sqlite3_extended_errcode(handle), message: String(cString: sqlite3_errmsg(handle)))
  }

  /// Runs statements that give nothing back and take no values.
  func execute(_ sql: String) throws(DatabaseError) {
    guard sqlite3_exec(handle, sql, nil, nil, nil) == SQLITE_OK else { throw failure() }
  }

  /// Runs one statement, which is prepared once, and hands each row to `row`.
  func run(
    _ sql: String, _ values: [SQLValue] = [], row: (Statement) throws(DatabaseError) -> Void = { _ in }
  ) throws(DatabaseError) {
    try run(try statement(sql), values, row: row)
  }

  /// The statement of a text. Whoever runs it very often keeps it: finding it here takes longer than running it.
  func statement(_ sql: String) throws(DatabaseError) -> Statement {
    if let known = statements[sql] { return known }
    var prepared: OpaquePointer?
    guard
      sqlite3_prepare_v3(handle, sql, -1, UInt32(SQLITE_PREPARE_PERSISTENT), &prepared, nil) == SQLITE_OK,
      let prepared
    else { throw failure() }
    let statement = Statement(prepared)
    statements[sql] = statement
    return statement
  }

  /// Runs a statement of this connection, and hands each row to `row`.
  func run(
    _ statement: Statement, _ values: [SQLValue] = [], row: (Statement) throws(DatabaseError) -> Void = { _ in }
  ) throws(DatabaseError) {
    // A statement that is not reset would hold its read lock.
    defer { statement.reset() }
    for (index, value) in values.enumerated() {
      guard statement.bind(value, at: Int32(index + 1)) == SQLITE_OK else { throw failure() }
    }
    while true {
      switch statement.step() {
      case SQLITE_ROW: try row(statement)
      case SQLITE_DONE: return
      default: throw failure()
      }
    }
  }

  /// The first column of the first row; nil where there is no row or it is NULL.
  func integer(_ sql: String, _ values: [SQLValue] = []) throws(DatabaseError) -> Int64? {
    var result: Int64?
    try run(sql, values) { row in if result == nil, !row.isNull(0) { result = row.integer(0) } }
    return result
  }

  func text(_ sql: String, _ values: [SQLValue] = []) throws(DatabaseError) -> String? {
    var result: String?
    try run(sql, values) { row in if result == nil, !row.isNull(0) { result = row.text(0) } }
    return result
  }

  /// Does all of `body` or nothing.
  func transaction(_ body: () throws(DatabaseError) -> Void) throws(DatabaseError) {
    try run("BEGIN IMMEDIATE")
    do throws(DatabaseError) {
      try body()
      try run("COMMIT")
    } catch {
      // After some errors SQLite has done so by itself.
      if sqlite3_get_autocommit(handle) == 0 { try? run("ROLLBACK") }
      throw error
    }
  }

  var changes: Int { Int(sqlite3_changes64(handle)) }
  var lastRow: Int64 { sqlite3_last_insert_rowid(handle) }

  /// Copies everything into another database, as it is at one moment.
  func copy(into other: Database) throws(DatabaseError) {
    guard let backup = sqlite3_backup_init(other.handle, "main", handle, "main") else { throw other.failure() }
    let code = sqlite3_backup_step(backup, -1)
    sqlite3_backup_finish(backup)
    guard code == SQLITE_DONE else {
      throw DatabaseError(code: code, message: String(cString: sqlite3_errstr(code)))
    }
  }
}

/// A prepared statement, and the row it stands on.
final class Statement {
  private let handle: OpaquePointer

  fileprivate init(_ handle: OpaquePointer) { self.handle = handle }

  deinit { sqlite3_finalize(handle) }

  fileprivate func reset() {
    sqlite3_reset(handle)
    sqlite3_clear_bindings(handle)
  }

  fileprivate func step() -> Int32 { sqlite3_step(handle) }

  fileprivate func bind(_ value: SQLValue, at index: Int32) -> Int32 {
    switch value {
    case .null: return sqlite3_bind_null(handle, index)
    case .integer(let value): return sqlite3_bind_int64(handle, index, value)
    case .real(let value): return sqlite3_bind_double(handle, index, value)
    case .text(var text):
      return text.withUTF8 { utf8 in
        utf8.withMemoryRebound(to: CChar.self) {
          csqlite_bind_text(handle, index, $0.baseAddress, sqlite3_uint64($0.count))
        }
      }
    case .blob(let bytes):
      return bytes.withUnsafeBytes { csqlite_bind_blob(handle, index, $0.baseAddress, sqlite3_uint64($0.count)) }
    }
  }

  func isNull(_ column: Int32) -> Bool { sqlite3_column_type(handle, column) == SQLITE_NULL }
  func isText(_ column: Int32) -> Bool { sqlite3_column_type(handle, column) == SQLITE_TEXT }
  func integer(_ column: Int32) -> Int64 { sqlite3_column_int64(handle, column) }
  func real(_ column: Int32) -> Double { sqlite3_column_double(handle, column) }

  func blob(_ column: Int32) -> [UInt8] {
    guard let bytes = sqlite3_column_blob(handle, column) else { return [] }
    return Array(UnsafeRawBufferPointer(start: bytes, count: Int(sqlite3_column_bytes(handle, column))))
  }

  func text(_ column: Int32) -> String {
    guard let bytes = sqlite3_column_text(handle, column) else { return "" }
    let count = Int(sqlite3_column_bytes(handle, column))
    return String(decoding: UnsafeBufferPointer(start: bytes, count: count), as: UTF8.self)
  }
}

extension DatabaseError {
  static let busy = DatabaseError(code: SQLITE_BUSY, message: "database is locked")

  /// A system call failed.
  static func system(_ what: String) -> DatabaseError {
    DatabaseError(code: SQLITE_IOERR, message: what + ": " + String(cString: strerror(errno)))
  }
}
