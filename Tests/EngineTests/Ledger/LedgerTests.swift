import Digest
import Dispatch
import Glibc
import PipelineKit
import Synchronization
import TestSupport
import Testing

@testable import Engine

@Suite struct LedgerTests {
  @Test(arguments: [false, true]) func whatIsBookedIsFound(_ isOnNetwork: Bool) throws {
    let scene = try LedgerScene()
    let ledger = try scene.open(isOnNetwork: isOnNetwork)
    for index in 0..<50 { ledger.book(job: "a", LedgerScene.item(index)) }
    ledger.book(job: "b", LedgerScene.item(3, run: "other"))
    try ledger.flush()
    for index in 0..<50 {
      #expect(try ledger.item(job: "a", key: LedgerScene.key(index)) == LedgerScene.item(index))
    }
    #expect(try ledger.item(job: "b", key: LedgerScene.key(3))?.run == "other")
    #expect(try ledger.item(job: "b", key: LedgerScene.key(4)) == nil)
    #expect(try ledger.item(job: "c", key: LedgerScene.key(3)) == nil)
    ledger.close()

    let again = try scene.open(.readOnly)
    var found: [LedgerItem] = []
    try again.forEachItem(job: "a") { found.append($0) }
    #expect(found == (0..<50).map { LedgerScene.item($0) })
    let counts = try again.jobs()
    #expect(counts.map(\.job) == ["a", "b"])
    #expect(counts.first?.counts[.failed] == 10)
    #expect(counts.first?.counts[.done] == 40)
    #expect(
      try again.items(run: "20260501-020304-a1b2c3", statuses: [.failed]).map(\.key)
        == (0..<50).filter { $0 % 5 == 4 }.map(LedgerScene.key))
    #expect(try again.integrityCheck() == [])
  }

  @Test func anItemTakesThePlaceOfTheOneBefore() throws {
    let scene = try LedgerScene()
    let ledger = try scene.open()
    for index in 0..<10 { ledger.book(job: "a", LedgerScene.item(index)) }
    var item = LedgerScene.item(3)
    item.outputs = []
    item.status = .failed
    item.detail = "gone"
    ledger.book(job: "a", item)
    try ledger.flush()
    #expect(try ledger.item(job: "a", key: item.key) == item)
    ledger.refresh(
      job: "a", key: LedgerScene.key(2), input: nil, outputs: [nil, FileStamp(size: 1, modified: 2, changed: 3)])
    // Another number of outputs: somebody else's.
    ledger.refresh(job: "a", key: LedgerScene.key(1), input: nil, outputs: [])
    ledger.refresh(job: "a", key: [1], input: nil, outputs: [])
    try ledger.flush()
    var refreshed = LedgerScene.item(2)
    refreshed.inputStamp = nil
    refreshed.outputs[0].stamp = nil
    refreshed.outputs[1].stamp = FileStamp(size: 1, modified: 2, changed: 3)
    #expect(try ledger.item(job: "a", key: LedgerScene.key(2)) == refreshed)
    #expect(try ledger.item(job: "a", key: LedgerScene.key(1)) == LedgerScene.item(1))
    try ledger.remove(job: "a", keys: [LedgerScene.key(0), LedgerScene.key(5), [9]])
    var left: [[UInt8]] = []
    try ledger.forEachItem(job: "a") { left.append($0.key) }
    #expect(left == [1, 2, 3, 4, 6, 7, 8, 9].map(LedgerScene.key))
    try ledger.compact()
    #expect(try ledger.item(job: "a", key: LedgerScene.key(9)) == LedgerScene.item(9))
    ledger.book(job: "a", LedgerScene.item(0))
    try ledger.flush()
    #expect(try ledger.item(job: "a", key: LedgerScene.key(0)) == LedgerScene.item(0))
    #expect(try ledger.integrityCheck() == [])
  }

  /// Thousands of bookings from several threads while others read: everybody is told, in transactions that hold many.
  @Test func manyThreadsBookAndRead() throws {
    let scene = try LedgerScene()
    let ledger = try scene.open()
    let told = Atomic<Int>(0)
    let wrong = Mutex<[String]>([])
    let count = 4_000
    DispatchQueue.concurrentPerform(iterations: 8) { worker in
      for step in 0..<count / 8 {
        let index = step * 8 + worker
        ledger.book(job: "a", LedgerScene.item(index)) { error in
          if let error { wrong.withLock { $0.append(error.description) } }
          told.add(1, ordering: .relaxed)
        }
        if step % 16 == 0 {
          do {
            let other = (index * 7) % count
            if let item = try ledger.item(job: "a", key: LedgerScene.key(other)), item != LedgerScene.item(other) {
              wrong.withLock { $0.append("\(other) is another") }
            }
          } catch {
            wrong.withLock { $0.append("\(error)") }
          }
        }
      }
    }
    try ledger.flush()
    #expect(told.load(ordering: .relaxed) == count)
    #expect(wrong.withLock { $0 } == [])
    var items = 0
    try ledger.forEachItem(job: "a") { _ in items += 1 }
    #expect(items == count)
    #expect(try ledger.integrityCheck() == [])
  }

  /// What is told to be durable is seen by another connection at that moment.
  @Test func durableIsSeenByOthers() throws {
    let scene = try LedgerScene()
    let ledger = try scene.open()
    ledger.book(job: "a", LedgerScene.item(0))
    try ledger.flush()
    let other = try scene.open(.readOnly)
    let seen = Mutex<LedgerItem?>(nil)
    ledger.book(job: "a", LedgerScene.item(1)) { _ in
      let item = (try? other.item(job: "a", key: LedgerScene.key(1))) ?? nil
      seen.withLock { $0 = item }
    }
    try ledger.flush()
    #expect(seen.withLock { $0 } == LedgerScene.item(1))
  }

  @Test func whatComesAfterTheEndIsRefused() throws {
    let scene = try LedgerScene()
    let ledger = try scene.open()
    ledger.book(job: "a", LedgerScene.item(0))
    ledger.close()
    let refusal = Mutex<StageError?>(nil)
    ledger.book(job: "a", LedgerScene.item(1)) { error in refusal.withLock { $0 = error } }
    #expect(refusal.withLock { $0 }?.code == "state-write")
    #expect(scene.error { try ledger.flush() }?.code == "state-write")
    #expect(scene.error { _ = try ledger.item(job: "a", key: []) }?.code == "state-read")
    let reading = try scene.open(.readOnly)
    #expect(try reading.item(job: "a", key: LedgerScene.key(0)) == LedgerScene.item(0))
    #expect(scene.error { try reading.remove(job: "a", keys: []) }?.code == "state-write")
    // Without a writer nothing is left beside the database.
    reading.close()
    #expect(scene.temporary.tree().filter { $0.contains("ledger") } == ["state/ledger.db"])
  }

  @Test func runsAreKeptAndPruned() throws {
    let scene = try LedgerScene()
    let ledger = try scene.open()
    func run(_ index: Int, job: String, ended: Bool = true) -> LedgerRun {
      LedgerRun(
        id: "run-\(index)", job: job, jobName: "name", started: Double(index * 100),
        ended: ended ? Double(index * 100 + 50) : nil, exitCode: ended ? 1 : nil, stop: ended ? "deadline" : nil,
        counts: #"{"done":3}"#, shard: "1/4", host: "h", pid: 12, version: "1.0", reportPath: PathBytes(bytes: [0xff]))
    }
    for index in 0..<20 {
      try ledger.begin(run(index, job: index % 2 == 0 ? "even" : "odd", ended: false))
      if index != 19 { ledger.end(run(index, job: index % 2 == 0 ? "even" : "odd")) }
    }
    try ledger.begin(run(1, job: "rare"))
    try ledger.flush()
    #expect(try ledger.run("run-4") == run(4, job: "even"))
    #expect(try ledger.run("run-19") == run(19, job: "odd", ended: false))
    #expect(try ledger.run("none") == nil)
    #expect(try ledger.runs(limit: 3).map(\.id) == ["run-19", "run-18", "run-17"])
    #expect(try ledger.runs(job: "even", limit: 2).map(\.id) == ["run-18", "run-16"])
    #expect(try ledger.mayHoldUnbooked(job: "odd"))
    #expect(try !ledger.mayHoldUnbooked(job: "even"))
    #expect(try ledger.prune(runsBefore: 500, keeping: 100) == 5)
    #expect(try ledger.runs(limit: 100).map(\.id).last == "run-5")
    #expect(try ledger.prune(runsBefore: 0, keeping: 3) == 12)
    // Only the newest of each job outlives everything.
    #expect(try ledger.prune(runsBefore: 1e9, keeping: 0) == 1)
    #expect(try ledger.runs(limit: 100).map(\.id) == ["run-19", "run-18"])
  }

  /// What a killed run has made and not booked is to be reckoned with until a run has gone through everything.
  @Test func unbookedUntilARunIsWhole() throws {
    let scene = try LedgerScene()
    let ledger = try scene.open()
    var number = 0
    func run(ended: Bool = true, exitCode: Int32? = 0, stop: String? = nil, job: String = "a") throws -> Bool {
      number += 1
      ledger.end(
        LedgerRun(
          id: "run-\(number)", job: job, jobName: "name", started: 1, ended: ended ? 2 : nil, exitCode: exitCode,
          stop: stop, version: "1.0"))
      try ledger.flush()
      return try ledger.mayHoldUnbooked(job: "a")
    }
    #expect(try !ledger.mayHoldUnbooked(job: "a"))
    #expect(try !run())
    for stop in [nil, LedgerRun.killed, LedgerRun.crashed, LedgerRun.unbooked] {
      #expect(try run(ended: stop != nil, exitCode: stop == LedgerRun.crashed ? 1 : nil, stop: stop))
      #expect(try run(exitCode: 143, stop: "signal 15"))
      #expect(try run(exitCode: 4))
      #expect(try run(job: "b"))
      #expect(try !run(exitCode: 1))
      #expect(try !run(exitCode: 5, stop: "deadline"))
    }
  }

  @Test func chainsAndDigestsAreKept() throws {
    let scene = try LedgerScene()
    let ledger = try scene.open()
    let chain = LedgerScene.item(0).chain
    let stamp = FileStamp(size: 1, modified: 2, changed: 3)
    ledger.book(job: "a", LedgerScene.item(0))
    ledger.keep(chain: chain, text: "{}")
    ledger.keep(digest: [1, 2], of: "/a", stamp: stamp)
    try ledger.flush()
    #expect(try ledger.chain(chain) == "{}")
    #expect(try ledger.chain([0]) == nil)
    #expect(try ledger.digest(of: "/a", stamp: stamp) == [1, 2])
    #expect(try ledger.digest(of: "/a", stamp: FileStamp(size: 1, modified: 2, changed: 4)) == nil)
    #expect(try ledger.digest(of: "/b", stamp: stamp) == nil)
    ledger.keep(digest: [3], of: "/a", stamp: FileStamp(size: 1, modified: 2, changed: 4))
    try ledger.flush()
    #expect(try ledger.digest(of: "/a", stamp: stamp) == nil)
  }

  @Test func paidCallsCountFromBeforeTheyAreMade() throws {
    let scene = try LedgerScene()
    let ledger = try scene.open()
    func call(_ key: UInt8, _ account: String = "main") -> PaidCall {
      PaidCall(
        run: "r", job: "j", key: [key], stage: "segment", provider: "p", account: account, request: [key, key],
        amount: 1.5, began: 100 + Double(key))
    }
    let first = try ledger.begin(call(1))
    let second = try ledger.begin(call(2))
    let third = try ledger.begin(call(3, "other"))
    let fourth = try ledger.begin(call(4))
    // A reader of its own sees it at once: it is in the file.
    let other = try scene.open(.readOnly)
    #expect(try other.openCalls().map(\.number) == [first, second, third, fourth])
    #expect(try other.openCalls().first?.call == call(1))
    #expect(try other.creditsSpent(provider: "p", since: 0) == 6)
    try ledger.finish(call: first, .charged(0.25), at: 110)
    try ledger.finish(call: second, .free, at: 111)
    try ledger.finish(call: third, .unknown, at: 112)
    // Twice is once.
    try ledger.finish(call: first, .charged(9), at: 113)
    #expect(try other.openCalls().map(\.number) == [fourth])
    #expect(try other.creditsSpent(provider: "p", since: 0) == 0.25 + 1.5 + 1.5)
    #expect(try other.creditsSpent(provider: "p", account: "main", since: 0) == 0.25 + 1.5)
    #expect(try other.creditsSpent(provider: "p", since: 111) == 1.5)
    #expect(try other.creditsSpent(provider: "q", since: 0) == 0)
  }

  @Test func receiptsChangeTheirState() throws {
    let scene = try LedgerScene()
    let ledger = try scene.open()
    var receipt = Receipt(
      id: "1", run: "r", job: "j", key: [1], stage: "upload", provider: "s3", link: "l", deleteLink: "d", etag: "e",
      sha256: [5], sentAt: 10, expires: 20, state: .unknown, options: [7])
    let bare = Receipt(
      id: "2", run: "r", job: "j", key: [1], stage: "upload", provider: "s3", sha256: [], sentAt: 11, state: .sent)
    ledger.book(receipt)
    ledger.book(bare)
    try ledger.flush()
    #expect(try ledger.receipts(job: "j", key: [1]) == [receipt, bare])
    receipt.state = .deleted
    receipt.expires = nil
    ledger.book(receipt)
    try ledger.flush()
    #expect(try ledger.receipts(job: "j", key: [1]) == [receipt, bare])
    #expect(try ledger.receipts(.deleted) == [receipt])
    #expect(try ledger.receipts(.unknown) == [])
    #expect(try ledger.receipts() == [receipt, bare])
  }
}
