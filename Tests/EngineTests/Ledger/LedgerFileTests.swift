import Dispatch
import Glibc
import PipelineKit
import Synchronization
import TestSupport
import Testing

@testable import Engine

/// The ledger's file in states that a program does not wish for.
@Suite struct LedgerFileTests {
  private func database(_ scene: LedgerScene, _ sql: String) throws {
    try Database(scene.folder.ledgerFile, .create).execute(sql)
  }

  private func mode(_ path: String) -> mode_t {
    var status = stat()
    return stat(path, &status) == 0 ? status.st_mode & 0o777 : 0
  }

  @Test func onlyItsOwnerReadsIt() throws {
    let scene = try LedgerScene()
    let ledger = try scene.open()
    ledger.book(job: "a", LedgerScene.item(0))
    try ledger.flush()
    #expect(mode(scene.temporary["state"]) == 0o700)
    let files = scene.temporary.tree().filter { $0.hasPrefix("state/ledger") }
    #expect(files.count == 3)
    for file in files { #expect(mode(scene.temporary[file]) == 0o600, "\(file)") }
  }

  @Test func itsJournalIsThatOfItsPlace() throws {
    let scene = try LedgerScene()
    for isOnNetwork in [false, true, false] {
      let ledger = try scene.open(isOnNetwork: isOnNetwork)
      ledger.book(job: "a", LedgerScene.item(0))
      try ledger.flush()
      let database = try Database(scene.folder.ledgerFile, .read)
      #expect(try database.text("PRAGMA journal_mode") == (isOnNetwork ? "delete" : "wal"))
      #expect(scene.temporary.tree().contains("state/ledger.db-shm") == !isOnNetwork)
      ledger.close()
    }
  }

  @Test func whereThereIsNoneNoneIsMadeToRead() throws {
    let scene = try LedgerScene()
    let before = scene.temporary.tree()
    #expect(try Ledger.open(scene.folder, .readOnly) == nil)
    scene.temporary.write("", to: "state/ledger.db")
    #expect(try Ledger.open(scene.folder, .readOnly) == nil)
    #expect(scene.temporary.tree() == (before + ["state/ledger.db"]).sorted())
    // What a program killed at the first moment leaves.
    let ledger = try scene.open()
    ledger.book(job: "a", LedgerScene.item(0))
    try ledger.flush()
  }

  @Test func aNewerOneIsLeftAlone() throws {
    let scene = try LedgerScene()
    try scene.open().close()
    try database(scene, "PRAGMA user_version = 7")
    let bytes = scene.temporary.read("state/ledger.db")
    for access in [Ledger.Access.readWrite, .readOnly] {
      let error = try #require(scene.error { _ = try Ledger.open(scene.folder, access) })
      #expect(error.code == "state-newer")
      #expect(error.kind == .environment)
      #expect(error.description.contains("form 7"))
      #expect(error.hint?.contains("--state") == true)
    }
    #expect(scene.temporary.read("state/ledger.db") == bytes)
  }

  @Test(arguments: [
    "CREATE TABLE t (a)", "PRAGMA application_id = 7; CREATE TABLE t (a)",
    "PRAGMA user_version = 1; CREATE TABLE t (a)",
  ])
  func anotherApplicationsIsLeftAlone(_ sql: String) throws {
    let scene = try LedgerScene()
    try database(scene, sql)
    let bytes = scene.temporary.read("state/ledger.db")
    for access in [Ledger.Access.readWrite, .readOnly] {
      #expect(scene.error { _ = try Ledger.open(scene.folder, access) }?.code == "state-foreign")
    }
    #expect(scene.temporary.read("state/ledger.db") == bytes)
  }

  @Test func whatIsNoDatabaseIsDamage() throws {
    let scene = try LedgerScene()
    scene.temporary.write(String(repeating: "no database\n", count: 1_000), to: "state/ledger.db")
    for access in [Ledger.Access.readWrite, .readOnly] {
      let error = try #require(scene.error { _ = try Ledger.open(scene.folder, access) })
      #expect(error.code == "state-damaged")
      #expect(error.hint?.contains("set-aside") == true)
    }
    let other = try LedgerScene()
    other.temporary.makeFolder("state/ledger.db")
    #expect(other.error { _ = try Ledger.open(other.folder, .readWrite) }?.code == "state-foreign")
  }

  /// Each page in turn filled with chance: the answers are right, or an error says that the ledger is damaged.
  @Test func noDamagedPageIsTakenForData() throws {
    let scene = try LedgerScene()
    let count = 200
    let ledger = try scene.open()
    for index in 0..<count { ledger.book(job: "a", LedgerScene.item(index)) }
    ledger.keep(chain: LedgerScene.item(0).chain, text: String(repeating: "text", count: 5_000))
    try ledger.begin(LedgerRun(id: "r", job: "a", jobName: "a", started: 1, version: "1"))
    ledger.close()
    let good = try #require(scene.temporary.read("state/ledger.db"))
    let pages = good.count / 4096
    try #require(pages > 20)
    var random = SeededGenerator(state: 11)
    var damaged = 0
    for page in 0..<pages {
      var bytes = good
      for index in page * 4096..<(page + 1) * 4096 { bytes[index] = UInt8.random(in: 0...255, using: &random) }
      scene.temporary.write(bytes, to: "state/ledger.db")
      var codes: Set<String> = []
      func attempt(_ body: () throws -> Void) { if let code = scene.error(body)?.code { codes.insert(code) } }
      attempt {
        guard let ledger = try Ledger.open(scene.folder, .readWrite) else { return }
        defer { ledger.close() }
        for index in 0..<count {
          attempt {
            let item = try ledger.item(job: "a", key: LedgerScene.key(index))
            #expect(item == nil || item == LedgerScene.item(index), "page \(page)")
          }
        }
        attempt {
          try ledger.forEachItem(job: "a") { #expect($0 == LedgerScene.item(Int($0.updated - 1_700_000_000))) }
        }
        attempt { _ = try ledger.run("r") }
        attempt { _ = try ledger.chain(LedgerScene.item(0).chain) }
        ledger.book(job: "a", LedgerScene.item(page))
        attempt { try ledger.flush() }
        attempt { if try !ledger.integrityCheck().isEmpty { codes.insert("state-damaged") } }
      }
      #expect(codes.isSubset(of: ["state-damaged", "state-foreign", "state-newer"]), "page \(page): \(codes)")
      if !codes.isEmpty { damaged += 1 }
      for name in ["-wal", "-shm", "-journal"] { unlink(scene.temporary["state/ledger.db" + name]) }
    }
    // Free pages have nothing to lose.
    #expect(damaged > pages * 8 / 10, "\(damaged) of \(pages)")
  }

  /// A value changed in its place, where SQLite itself has nothing to hold it against.
  @Test func aChangedByteIsFound() throws {
    let scene = try LedgerScene()
    let ledger = try scene.open()
    for index in 0..<20 { ledger.book(job: "a", LedgerScene.item(index)) }
    ledger.close()
    var bytes = try #require(scene.temporary.read("state/ledger.db"))
    let needle = Array("/out/folder-6/IMG_100006".utf8)
    let place = try #require(bytes.indices.first { bytes[$0...].starts(with: needle) })
    bytes[place + 6] ^= 1
    scene.temporary.write(bytes, to: "state/ledger.db")
    let reading = try scene.open(.readOnly)
    #expect(scene.error { _ = try reading.item(job: "a", key: LedgerScene.key(6)) }?.code == "state-damaged")
    #expect(try reading.item(job: "a", key: LedgerScene.key(5)) == LedgerScene.item(5))
    #expect(try reading.integrityCheck() == ["item 7 is not what was written"])
  }

  @Test(arguments: 0..<6) func aCutFileIsNoCrash(_ part: Int) throws {
    let scene = try LedgerScene()
    let ledger = try scene.open()
    for index in 0..<200 { ledger.book(job: "a", LedgerScene.item(index)) }
    ledger.close()
    let good = try #require(scene.temporary.read("state/ledger.db"))
    scene.temporary.write(
      good.prefix([1, 100, 4096, 5000, good.count / 2, good.count - 100][part]), to: "state/ledger.db")
    var codes: Set<String> = []
    func attempt(_ body: () throws -> Void) { if let code = scene.error(body)?.code { codes.insert(code) } }
    attempt {
      let ledger = try #require(try Ledger.open(scene.folder, .readWrite))
      for index in 0..<200 {
        attempt {
          let item = try ledger.item(job: "a", key: LedgerScene.key(index))
          #expect(item == nil || item == LedgerScene.item(index))
        }
      }
      attempt { if try !ledger.integrityCheck().isEmpty { codes.insert("state-damaged") } }
    }
    #expect(codes == ["state-damaged"])
  }

  // MARK: Forms

  private static let steps =
    LedgerSchema.steps + [
      "CREATE TABLE second (a); INSERT INTO second VALUES (1)", "ALTER TABLE second ADD COLUMN b",
    ]

  @Test func anOlderOneIsBroughtForward() throws {
    let scene = try LedgerScene()
    let old = try scene.open()
    for index in 0..<10 { old.book(job: "a", LedgerScene.item(index)) }
    old.close()
    let bytes = scene.temporary.read("state/ledger.db")
    // To read, in a copy.
    let reading = try #require(try Ledger.open(scene.folder, .readOnly, isOnNetwork: false, steps: Self.steps))
    #expect(try reading.item(job: "a", key: LedgerScene.key(9)) == LedgerScene.item(9))
    reading.close()
    #expect(scene.temporary.read("state/ledger.db") == bytes)

    let ledger = try #require(try Ledger.open(scene.folder, .readWrite, isOnNetwork: false, steps: Self.steps))
    #expect(try ledger.item(job: "a", key: LedgerScene.key(9)) == LedgerScene.item(9))
    ledger.close()
    let database = try Database(scene.folder.ledgerFile, .read)
    #expect(try database.integer("PRAGMA user_version") == Int64(Self.steps.count))
    #expect(try database.integer("SELECT count(*) FROM second WHERE b IS NULL") == 1)
    #expect(scene.error { _ = try Ledger.open(scene.folder, .readWrite) }?.code == "state-newer")
  }

  /// A step that fails leaves what the steps before it made, and nothing of its own.
  @Test func aStepIsTakenWholeOrNotAtAll() throws {
    let scene = try LedgerScene()
    var steps = Self.steps
    steps[steps.count - 1] = "CREATE TABLE third (a); CREATE TABLE second (a)"
    let error = scene.error { _ = try Ledger.open(scene.folder, .readWrite, isOnNetwork: false, steps: steps) }
    #expect(error?.code == "state-write")
    let database = try Database(scene.folder.ledgerFile, .read)
    #expect(try database.integer("PRAGMA user_version") == Int64(steps.count - 1))
    #expect(try database.integer("SELECT count(*) FROM sqlite_master WHERE name = 'third'") == 0)
    let ledger = try #require(try Ledger.open(scene.folder, .readWrite, isOnNetwork: false, steps: Self.steps))
    #expect(try ledger.integrityCheck() == [])
  }

  @Test func severalProgramsMayOpenANewOneAtOnce() throws {
    let scene = try LedgerScene()
    let folder = scene.folder
    DispatchQueue.concurrentPerform(iterations: 8) { index in
      do {
        let ledger = try Ledger.open(folder, .readWrite, isOnNetwork: false, steps: Self.steps)
        ledger?.book(job: "a", LedgerScene.item(index))
        try ledger?.flush()
        ledger?.close()
      } catch {
        Issue.record("\(error)")
      }
    }
    let ledger = try #require(try Ledger.open(folder, .readOnly, isOnNetwork: false, steps: Self.steps))
    for index in 0..<8 { #expect(try ledger.item(job: "a", key: LedgerScene.key(index)) == LedgerScene.item(index)) }
  }

  // MARK: Disks

  private static let isRoot = geteuid() == 0

  /// Mounts something at a folder of the test's; nil where this process may not.
  private final class Mount {
    private let path: String
    init?(_ arguments: [String], at path: String) {
      self.path = path
      guard RunProgram.run(arguments + [path], program: "/bin/mount").exitCode == 0 else { return nil }
    }
    func remount(_ options: String) -> Bool {
      RunProgram.run(["-o", "remount," + options, path], program: "/bin/mount").exitCode == 0
    }
    deinit { umount2(path, 2) }
  }

  @Test(.enabled(if: isRoot, "only root may mount a small disk"), arguments: [false, true])
  func aFullDiskLosesOnlyWhatItRefuses(_ isOnNetwork: Bool) throws {
    let temporary = TemporaryFolder()
    temporary.makeFolder("disk")
    guard let mount = Mount(["-t", "tmpfs", "-o", "size=2m", "tmpfs"], at: temporary["disk"]) else {
      try Test.cancel("this process may not mount a small disk")
    }
    defer { withExtendedLifetime(mount) {} }
    let folder = StateFolder.locate(PathBytes(temporary["disk/state"]))
    try folder.make()
    let ledger = try #require(try Ledger.open(folder, .readWrite, isOnNetwork: isOnNetwork))
    let outcome = Outcomes()
    var index = 0
    while outcome.failed.isEmpty, index < 100_000 {
      for _ in 0..<50 {
        let number = index
        ledger.book(job: "a", LedgerScene.item(number)) { outcome.add(number, $0) }
        index += 1
      }
      try? ledger.flush()
    }
    try #require(!outcome.failed.isEmpty)
    #expect(outcome.code == "state-write")
    #expect(outcome.hint?.contains("free some space") == true)
    let durable = outcome.durable
    for number in durable {
      #expect(try ledger.item(job: "a", key: LedgerScene.key(number)) == LedgerScene.item(number))
    }
    for number in outcome.failed { #expect(try ledger.item(job: "a", key: LedgerScene.key(number)) == nil) }
    ledger.book(job: "a", LedgerScene.item(0))
    // Told once.
    ledger.book(job: "a", LedgerScene.item(index))
    let refused = LedgerScene(temporary: temporary, folder: folder).error { try ledger.flush() }
    if refused != nil { #expect(refused?.code == "state-write") }
    try ledger.flush()

    // With room it goes on.
    try #require(mount.remount("size=16m"))
    for number in outcome.failed { ledger.book(job: "a", LedgerScene.item(number)) }
    try ledger.flush()
    for number in outcome.failed {
      #expect(try ledger.item(job: "a", key: LedgerScene.key(number)) == LedgerScene.item(number))
    }
    #expect(try ledger.integrityCheck() == [])
    ledger.close()
  }

  @Test(.enabled(if: isRoot, "only root may mount a disk that is read-only"))
  func aReadOnlyDiskIsRead() throws {
    let temporary = TemporaryFolder()
    temporary.makeFolder("disk")
    guard let mount = Mount(["-t", "tmpfs", "-o", "size=8m", "tmpfs"], at: temporary["disk"]) else {
      try Test.cancel("this process may not mount a disk")
    }
    let folder = StateFolder.locate(PathBytes(temporary["disk/state"]))
    try folder.make()
    let ledger = try #require(try Ledger.open(folder, .readWrite, isOnNetwork: false))
    for index in 0..<100 { ledger.book(job: "a", LedgerScene.item(index)) }
    try ledger.flush()
    // What a writer that was killed leaves: a log that holds everything.
    var left: [String: [UInt8]] = [:]
    for name in ["ledger.db", "ledger.db-wal"] { left[name] = temporary.read("disk/state/" + name) }
    try #require((left["ledger.db-wal"]?.count ?? 0) > 10_000)
    ledger.close()
    for afterKill in [false, true] {
      try #require(mount.remount("rw"))
      if afterKill { for (name, bytes) in left { temporary.write(bytes, to: "disk/state/" + name) } }
      try #require(mount.remount("ro"))
      let reading = try #require(try Ledger.open(folder, .readOnly))
      for index in 0..<100 {
        #expect(try reading.item(job: "a", key: LedgerScene.key(index)) == LedgerScene.item(index))
      }
      reading.close()
      let scene = LedgerScene(temporary: temporary, folder: folder)
      #expect(scene.error { try folder.make() }?.code == "state-folder")
      #expect(["state-write", "state-damaged"].contains(scene.error { _ = try Ledger.open(folder, .readWrite) }?.code))
    }
    #expect(mount.remount("rw"))
  }

  private final class Outcomes: Sendable {
    private let state = Mutex((durable: [Int](), failed: [Int](), error: StageError?.none))
    func add(_ number: Int, _ error: StageError?) {
      state.withLock {
        if error == nil { $0.durable.append(number) } else { $0.failed.append(number) }
        if $0.error == nil { $0.error = error }
      }
    }
    var durable: [Int] { state.withLock { $0.durable } }
    var failed: [Int] { state.withLock { $0.failed } }
    var code: String? { state.withLock { $0.error?.code } }
    var hint: String? { state.withLock { $0.error?.hint } }
  }
}
