/// The ledger's tables, as a list of steps: a database that has had `n` of them gets the rest when it is opened. A step
/// that was released is never changed.
enum LedgerSchema {
  /// "PIPE", in the file's header.
  static let application: Int64 = 0x5049_5045

  static let steps = [
    """
    -- Texts that many rows share. Numbers are not given twice, so that whoever remembers one is never wrong.
    CREATE TABLE words (id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL UNIQUE);
    CREATE TABLE chains (id INTEGER PRIMARY KEY AUTOINCREMENT, fingerprint BLOB NOT NULL UNIQUE, text TEXT);
    -- Times of files are in nanoseconds, all others in seconds since 1970. No inputPath: it is the key.
    CREATE TABLE items (
      id INTEGER PRIMARY KEY, job INTEGER NOT NULL, key BLOB NOT NULL, status INTEGER NOT NULL,
      chain INTEGER NOT NULL, vals BLOB NOT NULL, versions INTEGER NOT NULL,
      inputSize INTEGER, inputModified INTEGER, inputChanged INTEGER, inputHash BLOB, inputPath BLOB,
      run INTEGER NOT NULL, updated REAL NOT NULL, detail TEXT, checksum INTEGER NOT NULL,
      UNIQUE (job, key)
    );
    CREATE TABLE outputs (
      item INTEGER NOT NULL, number INTEGER NOT NULL, stage INTEGER NOT NULL, path BLOB, link TEXT,
      format INTEGER NOT NULL, width INTEGER NOT NULL, height INTEGER NOT NULL, bytes INTEGER NOT NULL,
      sha256 BLOB NOT NULL, size INTEGER, modified INTEGER, changed INTEGER,
      PRIMARY KEY (item, number)
    ) WITHOUT ROWID;
    CREATE TABLE digests (
      path BLOB PRIMARY KEY, size INTEGER NOT NULL, modified INTEGER NOT NULL, changed INTEGER NOT NULL,
      digest BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE runs (
      number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, job TEXT NOT NULL, jobName TEXT NOT NULL,
      started REAL NOT NULL, ended REAL, exitCode INTEGER, stop TEXT, counts TEXT NOT NULL, shard TEXT,
      host TEXT NOT NULL, pid INTEGER NOT NULL, version TEXT NOT NULL, reportPath BLOB
    );
    CREATE INDEX runsOfJob ON runs (job, started);
    CREATE TABLE receipts (
      number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, run TEXT NOT NULL, job TEXT NOT NULL,
      key BLOB NOT NULL, stage TEXT NOT NULL, provider TEXT NOT NULL, link TEXT, deleteLink TEXT, etag TEXT,
      sha256 BLOB NOT NULL, sentAt REAL NOT NULL, expires REAL, state TEXT NOT NULL, options BLOB NOT NULL
    );
    CREATE INDEX receiptsOfItem ON receipts (job, key);
    CREATE TABLE paidCalls (
      number INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL, job TEXT NOT NULL, key BLOB NOT NULL,
      stage TEXT NOT NULL, provider TEXT NOT NULL, account TEXT NOT NULL, request BLOB NOT NULL, amount REAL NOT NULL,
      began REAL NOT NULL, ended REAL, outcome TEXT
    );
    CREATE INDEX openCalls ON paidCalls (began) WHERE ended IS NULL;
    CREATE TABLE credits (
      number INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, provider TEXT NOT NULL, account TEXT NOT NULL,
      amount REAL NOT NULL, run TEXT NOT NULL, call INTEGER
    );
    CREATE INDEX creditsOfProvider ON credits (provider, time);
    """,
    """
    -- Inputs that a job has moved (target) or deleted (no target), noted before it did.
    CREATE TABLE sources (
      job TEXT NOT NULL, name BLOB NOT NULL, target BLOB, time REAL NOT NULL, PRIMARY KEY (job, name)
    ) WITHOUT ROWID;
    """,
    """
    CREATE INDEX callsOfRequest ON paidCalls (request);
    CREATE INDEX creditsOfRun ON credits (run);
    CREATE INDEX creditsByTime ON credits (time);
    """,
  ]

  /// What a file is, by its header and whether it has tables.
  enum State: Equatable {
    case empty
    case ours(steps: Int)
    case newer(steps: Int)
    case foreign
  }

  static func state(of database: Database, steps: [String]) throws(DatabaseError) -> State {
    let application = try database.integer("PRAGMA application_id") ?? 0
    let version = Int(try database.integer("PRAGMA user_version") ?? 0)
    let tables = try database.integer("SELECT count(*) FROM sqlite_master") ?? 0
    if application == 0, version == 0, tables == 0 { return .empty }
    guard application == Self.application, version > 0 else { return .foreign }
    return version > steps.count ? .newer(steps: version) : .ours(steps: version)
  }

  /// Takes the steps that are missing, each in a transaction of its own: after a crash the next program goes on.
  static func bring(_ database: Database, to steps: [String]) throws(DatabaseError) {
    while true {
      var isDone = false
      try database.transaction { () throws(DatabaseError) in
        // Another process may have been first.
        let version = Int(try database.integer("PRAGMA user_version") ?? 0)
        guard version < steps.count else {
          isDone = true
          return
        }
        try database.execute(steps[version])
        if version == 0 { try database.execute("PRAGMA application_id = \(application)") }
        try database.execute("PRAGMA user_version = \(version + 1)")
      }
      if isDone { return }
    }
  }
}
