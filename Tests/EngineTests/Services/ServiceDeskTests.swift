import Digest
import Dispatch
import PipelineKit
import Synchronization
import TestSupport
import Testing

@testable import Engine

/// What a run may pay for, and what it knows of what others have paid.
@Suite struct ServiceDeskTests {
  private let scene: LedgerScene
  private let ledger: Ledger
  private let store: ResultStore

  init() throws {
    scene = try LedgerScene()
    ledger = try scene.open()
    store = ResultStore(scene.folder, mostBytes: 1 << 20)
  }

  private func desk(
    run: String = "run-1", budget: Budget? = Budget(credits: 10), book: SpendingBook? = nil, day: Double = 0,
    month: Double = 0, isForced: Bool = false
  ) -> ServiceDesk {
    ServiceDesk(
      ledger: ledger, job: "job.json", run: run, budget: budget, book: book, dayBegan: day, monthBegan: month,
      isForced: { _ in isForced })
  }

  private func identity(_ name: String) -> ItemIdentity {
    ItemIdentity(index: 0, path: PathBytes("/" + name), name: PathBytes(name), directory: "")
  }

  private func services(_ desk: ServiceDesk, _ name: String = "a.jpg", label: String = "segment") -> any ItemServices {
    desk.forItem(identity(name), stage: 0, label: label)
  }

  private func call(_ request: UInt8, _ amount: Double = 1, account: String = "a") -> ServiceCall {
    ServiceCall(
      provider: "removebg", account: account, request: [UInt8](repeating: request, count: 32), amount: amount)
  }

  private func number(_ permission: CallPermission) throws -> Int64 {
    guard case .granted(let number) = permission else { throw StageError("test", "not granted: \(permission)") }
    return number
  }

  private func refusal(_ permission: CallPermission) -> String? {
    if case .refused(let reason) = permission { reason } else { nil }
  }

  private func receipt(_ permission: CallPermission) -> String? {
    if case .unknown(let receipt) = permission { receipt } else { nil }
  }

  private func context(_ services: (any ItemServices)?, cancelled: Bool = false) -> StageContext {
    StageContext(
      stage: "segment", run: RunValues(baseFolder: "/", runID: "run-1", runDate: ""), journal: ItemJournal(),
      temporaries: TemporaryFiles(), services: services, cancelled: { cancelled })
  }

  private func kept(_ request: UInt8, isForced: Bool = false) -> KeptResults {
    let key = [UInt8](repeating: request, count: 32)
    return KeptResults(
      key: key, paidKey: key, keeper: store, isRefreshed: isForced, isPaidRefreshed: isForced)
  }

  // MARK: Budget

  @Test func nothingIsPaidWithoutABudget() throws {
    let refused = refusal(try services(desk(budget: nil)).begin(call(1)))
    #expect(refused?.contains("no \"budget\"") == true)
    #expect(try ledger.openCalls().isEmpty)
  }

  /// What is under way counts: two workers never share the last credit.
  @Test func aRunSpendsNoMoreThanItsBudget() throws {
    let desk = desk(budget: Budget(credits: 1))
    let first = try number(services(desk).begin(call(1, 0.75)))
    #expect(refusal(try services(desk).begin(call(2, 0.5)))?.contains("budget.credits of this run is 1") == true)
    try services(desk).finish(first, .charged(0.25))
    let second = try number(services(desk).begin(call(2, 0.75)))
    try services(desk).finish(second, .free)
    let third = try number(services(desk).begin(call(3, 0.75)))
    try services(desk).finish(third, .charged(0.75))
    #expect(refusal(try services(desk).begin(call(4, 0.01))) != nil)
    #expect(try ledger.creditsSpent(since: 0, run: "run-1") == 1)
    // Another run has a budget of its own.
    _ = try number(services(self.desk(run: "run-2", budget: Budget(credits: 1))).begin(call(5, 1)))
  }

  @Test func daysAndMonthsCountEveryRun() throws {
    let old = desk(run: "old")
    try services(old).finish(try number(services(old).begin(call(1, 3))), .charged(3))
    let now = RunClock.now()
    #expect(
      refusal(try services(desk(budget: Budget(perDay: 3), day: now - 60)).begin(call(2, 0.5)))?.contains("perDay")
        == true)
    #expect(
      refusal(try services(desk(budget: Budget(perMonth: 3), month: now - 60)).begin(call(2, 0.5)))?.contains(
        "perMonth") == true)
    // Since midnight nothing was spent.
    _ = try number(services(desk(budget: Budget(perDay: 3), day: now + 60)).begin(call(2, 0.5)))
  }

  @Test func dayAndMonthBeginAtMidnightInTheZone() {
    let time = 1_777_604_400.0  // 2026-05-01 03:00 UTC
    #expect(RunClock.day(of: time, zone: "UTC") == "2026-05-01")
    let utc = RunClock.beginnings(of: time)
    #expect(utc.day == 1_777_593_600 && utc.month == 1_777_593_600)
    #expect(RunClock.beginnings(of: time + 86_400 * 3).month == 1_777_593_600)
  }

  @Test func anAccountThatIsClosedStaysSoForTheRun() throws {
    let desk = desk()
    services(desk).close(account: "a", reason: "no credits left")
    #expect(refusal(try services(desk, "b.jpg").begin(call(1))) == "no credits left")
    #expect(services(desk).closure(of: "a") == "no credits left")
    _ = try number(services(desk).begin(call(1, account: "b")))
  }

  @Test func severalLedgersShareABook() throws {
    let path = PathBytes(scene.temporary["budget.db"])
    let limits: [(limit: Double?, name: String, since: Double)] = [(2, "budget.perDay", 0)]
    let books = try (0..<4).map { _ in try SpendingBook(path) }
    let granted = Mutex(0)
    DispatchQueue.concurrentPerform(iterations: 16) { index in
      if case .reserved? = try? books[index % 4].reserve(
        0.25, provider: "removebg", account: "a", run: "r", limits: limits)
      {
        granted.withLock { $0 += 1 }
      }
    }
    #expect(granted.withLock { $0 } == 8)
    let desk = desk(budget: Budget(perDay: 2), book: books[0])
    #expect(refusal(try services(desk).begin(call(1, 0.25)))?.contains("by all runs") == true)
    try books[1].settle(1, 0)
    let number = try number(services(desk).begin(call(1, 0.25)))
    try services(desk).finish(number, .charged(0.1))
    #expect(refusal(try services(desk).begin(call(2, 0.25))) != nil)
    _ = try self.number(services(desk).begin(call(2, 0.15)))
  }

  @Test func aBookThatIsNoneIsRefused() throws {
    scene.temporary.write("not a database at all, but long enough to be looked at", to: "no.db")
    let error = scene.error { _ = try SpendingBook(PathBytes(scene.temporary["no.db"])) }
    #expect(error?.code == "budget-ledger")
    // A ledger is another database.
    #expect(scene.error { _ = try SpendingBook(scene.folder.ledgerFile) }?.code == "budget-ledger")
  }

  // MARK: Calls of which nobody knows

  /// The call of a run that was killed is never repeated by itself, and is once a person says so.
  @Test func aCallWithoutAnEndIsUnknownToTheNextRun() throws {
    let dead = desk()
    let number = try number(services(dead).begin(call(1)))
    let next = desk(run: "run-2")
    #expect(receipt(try services(next).begin(call(1))) == "call-\(number)")
    // Another picture's call, and that of the same picture under another name.
    _ = try self.number(services(next).begin(call(2)))
    #expect(receipt(try services(next, "copy.jpg").begin(call(1))) == "call-\(number)")
    #expect(UnsettledCall.number(in: "call-\(number)") == number)
    try ledger.retry(call: number)
    _ = try self.number(services(desk(run: "run-3")).begin(call(1)))
    // What it may have cost stays booked.
    #expect(try ledger.creditsSpent(since: 0, run: "run-1") == 1)
  }

  /// A child that pays for an item may crash: the item's next try must not wait for an answer that never comes.
  @Test func theCallOfAWorkerThatIsNoMoreIsUnknownAtOnce() throws {
    let desk = desk()
    let number = try number(services(desk).begin(call(1)))
    let other = try self.number(services(desk, "b.jpg").begin(call(2)))
    guard case .underWay = try services(desk, "copy.jpg").begin(call(1)) else {
      Issue.record("not under way")
      return
    }
    desk.abandonCalls(of: identity("a.jpg"))
    #expect(receipt(try services(desk, "copy.jpg").begin(call(1))) == "call-\(number)")
    #expect(receipt(try services(desk).begin(call(1))) == "call-\(number)")
    // Those of others go on.
    guard case .underWay = try services(desk).begin(call(2)) else {
      Issue.record("not under way any more")
      return
    }
    try services(desk, "b.jpg").finish(other, .charged(1))
    #expect(try ledger.creditsSpent(since: 0, run: "run-1") == 2)
  }

  @Test func anAnswerThatNeverCameIsUnknownToo() throws {
    let desk = desk()
    let number = try number(services(desk).begin(call(1)))
    try services(desk).finish(number, .unknown)
    #expect(receipt(try services(desk).begin(call(1))) == "call-\(number)")
    #expect(try ledger.unsettledCalls().map(\.number) == [number])
  }

  /// A run that was killed after its result was on the disk has paid, and nothing about it is unknown.
  @Test func whatReachedTheDiskIsSettled() throws {
    let dead = desk()
    let first = try number(services(dead).begin(call(1)))
    let second = try number(services(dead).begin(call(2)))
    try kept(1).keep([1, 2, 3], paid: true)
    try desk(run: "run-2").takeStock { [store] in store.holds($0, paid: true) }
    #expect(try ledger.unsettledCalls().map(\.number) == [second])
    #expect(try ledger.creditsSpent(since: 0, run: "run-1") == 2)
    #expect(first != second)
  }

  // MARK: Paying once

  @Test func theSameIsPaidForOnce() throws {
    let desk = desk()
    let calls = Mutex(0)
    func pay(_ name: String, isForced: Bool = false) throws -> CallAnswer {
      try context(services(desk, name)).payOnce(
        provider: "removebg", account: "a", amount: 1, kept: kept(1, isForced: isForced)
      ) { () throws(StageError) in
        calls.withLock { $0 += 1 }
        return .answered([7, 8, 9], charged: 1)
      }
    }
    for (name, isForced) in [("a.jpg", false), ("b.jpg", false), ("c.jpg", true)] {
      guard case .result([7, 8, 9], let isNew) = try pay(name, isForced: isForced) else {
        Issue.record("no result for \(name)")
        continue
      }
      #expect(isNew == (name == "a.jpg"))
    }
    #expect(calls.withLock { $0 } == 1)
    #expect(try ledger.creditsSpent(since: 0) == 1)
  }

  /// Two workers with the same picture: one pays, the other waits for the result.
  @Test func twoWorkersPayOnceForOnePicture() {
    let desk = desk()
    let calls = Mutex(0)
    let results = Mutex<[[UInt8]]>([])
    DispatchQueue.concurrentPerform(iterations: 8) { index in
      let answer = try? context(services(desk, "p\(index).jpg")).payOnce(
        provider: "removebg", account: "a", amount: 1, kept: kept(1)
      ) { () throws(StageError) in
        calls.withLock { $0 += 1 }
        return .answered([1], charged: 1)
      }
      if case .result(let bytes, _)? = answer { results.withLock { $0.append(bytes) } }
    }
    #expect(calls.withLock { $0 } == 1)
    #expect(results.withLock { $0 } == [[UInt8]](repeating: [1], count: 8))
  }

  @Test func aRefusalCostsNothingAndALostAnswerIsUnknown() throws {
    let desk = desk()
    func pay(_ request: UInt8, _ result: @escaping () throws(StageError) -> CallResult) throws -> CallAnswer {
      try context(services(desk)).payOnce(
        provider: "removebg", account: "a", amount: 1, kept: kept(request), perform: result)
    }
    let refusal = StageError("service-picture", "no subject")
    #expect(throws: refusal) { try pay(1) { () throws(StageError) in .failed(refusal) } }
    #expect(throws: refusal) { try pay(1) { () throws(StageError) in throw refusal } }
    #expect(try ledger.creditsSpent(since: 0) == 0)
    guard case .unknown(let receipt) = try pay(1, { () throws(StageError) in .unknown("the connection broke") }) else {
      Issue.record("not unknown")
      return
    }
    // Nor is it asked again by the same run.
    guard case .unknown(receipt) = try pay(1, { () throws(StageError) in .answered([1], charged: 1) }) else {
      Issue.record("asked again")
      return
    }
    #expect(try ledger.creditsSpent(since: 0) == 1)
    let limited = scene.error {
      _ = try context(services(self.desk(budget: Budget(credits: 0)))).payOnce(
        provider: "removebg", account: "a", amount: 1, kept: kept(9)
      ) { () throws(StageError) in .answered([], charged: nil) }
    }
    #expect(limited?.kind == .budget)
  }

  /// A store that takes nothing: what was paid for is lost, which nobody pays for again and again.
  @Test func aResultThatCannotBeKeptIsUnknownAndEndsThePaying() throws {
    struct Full: ResultKeeper {
      func result(for key: [UInt8], paid: Bool) -> [UInt8]? { nil }
      func keep(_ bytes: [UInt8], for key: [UInt8], paid: Bool) throws(StageError) {
        throw StageError("state-write", "the disk is full", kind: .environment)
      }
    }
    let desk = desk()
    let calls = Mutex(0)
    func pay(_ desk: ServiceDesk, _ request: UInt8) throws -> CallAnswer {
      let key = [UInt8](repeating: request, count: 32)
      return try context(services(desk)).payOnce(
        provider: "removebg", account: "a", amount: 1,
        kept: KeptResults(key: key, paidKey: key, keeper: Full(), isRefreshed: false, isPaidRefreshed: false)
      ) { () throws(StageError) in
        calls.withLock { $0 += 1 }
        return .answered([1], charged: 1)
      }
    }
    guard case .unknown = try pay(desk, 1) else {
      Issue.record("not unknown")
      return
    }
    #expect(scene.error { _ = try pay(desk, 2) }?.kind == .budget)
    guard case .unknown = try pay(self.desk(run: "run-2"), 1) else {
      Issue.record("paid for again")
      return
    }
    #expect(calls.withLock { $0 } == 1)
    #expect(try ledger.creditsSpent(since: 0) == 1)
  }

  // MARK: Uploads

  private func upload(
    _ services: any ItemServices, repeatable: Bool = false, _ result: () throws(StageError) -> UploadResult
  ) throws -> UploadAnswer {
    try context(services).uploadOnce(
      provider: "imgur", options: [UInt8](repeating: 1, count: 32), sha256: [UInt8](repeating: 2, count: 32),
      isRepeatable: repeatable, perform: result)
  }

  @Test func anUploadThatWasBookedIsNotSentAgain() throws {
    let calls = Mutex(0)
    func send(_ desk: ServiceDesk) throws -> UploadAnswer {
      try upload(services(desk, label: "upload")) { () throws(StageError) in
        calls.withLock { $0 += 1 }
        return .sent(UploadReceipt(provider: "imgur", link: "https://i.imgur.com/x.png", deleteLink: "hash"))
      }
    }
    _ = try send(desk())
    guard case .sent(let receipt, false) = try send(desk(run: "run-2")) else {
      Issue.record("sent twice")
      return
    }
    #expect(receipt.link == "https://i.imgur.com/x.png" && receipt.deleteLink == "hash")
    #expect(calls.withLock { $0 } == 1)
    _ = try send(desk(run: "run-3", isForced: true))
    #expect(calls.withLock { $0 } == 2)
  }

  @Test func anUploadThatMayHaveArrivedIsNotRepeated() throws {
    // Killed while it was under way: the note was on the disk before.
    struct Killed: Error {}
    let services = services(desk(), label: "upload")
    var seen: [Receipt.State] = []
    _ = try upload(services) { () throws(StageError) in
      seen = (try ledger.receipts()).map(\.state)
      return .unknown("the connection broke")
    }
    #expect(seen == [.unknown])
    guard
      case .unknown(let id) = try upload(services, { () throws(StageError) in .sent(UploadReceipt(provider: "imgur")) })
    else {
      Issue.record("repeated")
      return
    }
    try ledger.remove(receipt: id)
    guard
      case .sent(_, true) = try upload(services, { () throws(StageError) in .sent(UploadReceipt(provider: "imgur")) })
    else {
      Issue.record("not repeated")
      return
    }
    // A definite failure leaves no receipt.
    let other = self.services(desk(), "b.jpg", label: "upload")
    #expect(throws: StageError.self) {
      try upload(other) { () throws(StageError) in throw StageError("service-picture", "no") }
    }
    #expect(try ledger.receipts().count == 1)
  }
}
