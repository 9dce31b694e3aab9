import PipelineKit
import Synchronization

/// What several ledgers spend together: a small database that all shards of a run, and all machines, have open at once.
///
/// Every reservation is one transaction of its own, so that no two runs spend the same credit. It stays until it is
/// settled: what a killed run has reserved counts as spent.
public final class SpendingBook: Sendable {
  enum Reservation: Sendable {
    case reserved(Int64)
    case refused(String)
  }

  private let path: PathBytes
  private let database: Mutex<Database>

  private static let application: Int64 = 0x5049_5042

  /// Opens the book, and makes it where it is missing.
  ///
  /// - Throws: `budget-ledger` of class environment where it cannot be used.
  public init(_ path: PathBytes) throws(StageError) {
    self.path = path
    do throws(DatabaseError) {
      let database = try Database(path, .create)
      // Other machines may have it open: a log would need memory that processes share.
      _ = try database.text("PRAGMA journal_mode = DELETE")
      try database.execute("PRAGMA synchronous = FULL")
      let application = try database.integer("PRAGMA application_id") ?? 0
      let tables = try database.integer("SELECT count(*) FROM sqlite_master") ?? 0
      guard application == Self.application || (application == 0 && tables == 0) else {
        throw DatabaseError.damage("it is a database of another application, or a ledger")
      }
      try database.execute(
        """
        CREATE TABLE IF NOT EXISTS spending (
          number INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, provider TEXT NOT NULL, account TEXT NOT NULL,
          run TEXT NOT NULL, amount REAL NOT NULL, settled REAL
        );
        CREATE INDEX IF NOT EXISTS spendingByTime ON spending (time);
        PRAGMA application_id = \(Self.application);
        """)
      self.database = Mutex(database)
    } catch {
      throw Self.failure(path, error)
    }
  }

  private static func failure(_ path: PathBytes, _ error: DatabaseError) -> StageError {
    StageError(
      "budget-ledger", "the budget ledger \(path.printable) cannot be used", kind: .environment, cause: error.message,
      hint: "--budget-ledger names a file that all shards can write to")
  }

  /// Sets credits aside for a call, unless a limit would be passed.
  ///
  /// - Parameter limits: what may be spent since a time (seconds since 1970), and what that is called.
  func reserve(
    _ amount: Double, provider: String, account: String, run: String,
    limits: [(limit: Double?, name: String, since: Double)]
  ) throws(StageError) -> Reservation {
    try attempt { database throws(DatabaseError) in
      var answer = Reservation.refused("")
      try database.transaction { () throws(DatabaseError) in
        for limit in limits {
          guard let most = limit.limit else { continue }
          var spent = 0.0
          try database.run(
            "SELECT total(coalesce(settled, amount)) FROM spending WHERE time >= ?", [.real(limit.since)]
          ) { spent = $0.real(0) }
          guard spent + amount <= most + 1e-9 else {
            answer = .refused(
              "\(limit.name) is \(ServiceDesk.text(most)): \(ServiceDesk.text(spent)) are spent by all runs, and a call of "
                + "\(provider) costs \(ServiceDesk.text(amount))")
            return
          }
        }
        try database.run(
          "INSERT INTO spending (time, provider, account, run, amount) VALUES (?, ?, ?, ?, ?)",
          [.real(RunClock.now()), .text(provider), .text(account), .text(run), .real(amount)])
        answer = .reserved(database.lastRow)
      }
      return answer
    }
  }

  /// Notes what a call has cost in the end.
  func settle(_ number: Int64, _ credits: Double) throws(StageError) {
    try attempt { database throws(DatabaseError) in
      try database.run("UPDATE spending SET settled = ? WHERE number = ?", [.real(credits), .integer(number)])
    }
  }

  private func attempt<Result: Sendable>(
    _ body: (Database) throws(DatabaseError) -> Result
  ) throws(StageError) -> Result {
    let answer: Swift.Result<Result, DatabaseError> = database.withLock { database in
      do throws(DatabaseError) { return .success(try body(database)) } catch { return .failure(error) }
    }
    switch answer {
    case .success(let result): return result
    case .failure(let error): throw Self.failure(path, error)
    }
  }
}
