import PipelineKit
import Synchronization

/// What a run does about money and receipts: whether a call that costs may be made, what was spent, what was sent.
///
/// Everything is noted in the ledger before it happens. A call whose end the ledger does not know, and which is not under
/// way, belongs to a run that was killed: its outcome is unknown until somebody settles it.
final class ServiceDesk: Sendable {
  private struct State {
    var closed: [String: String] = [:]
    /// Calls that are being made now, by their numbers.
    var underWay: [Int64: UnderWay] = [:]
  }

  private struct UnderWay {
    var request: [UInt8]
    /// Whose it is.
    var key: [UInt8]
    /// The reservation in the book that several ledgers share.
    var shared: Int64?
  }

  private let ledger: Ledger
  private let job: String
  private let run: String
  private let budget: Budget?
  private let book: SpendingBook?
  /// Seconds since 1970.
  private let dayBegan: Double
  private let monthBegan: Double
  private let isForced: @Sendable (Int) -> Bool
  private let state = Mutex(State())

  /// - Parameters:
  ///   - book: what several ledgers spend together.
  ///   - isForced: whether a stage is to do its work again.
  init(
    ledger: Ledger, job: String, run: String, budget: Budget?, book: SpendingBook?, dayBegan: Double,
    monthBegan: Double, isForced: @escaping @Sendable (Int) -> Bool
  ) {
    self.ledger = ledger
    self.job = job
    self.run = run
    self.budget = budget
    self.book = book
    self.dayBegan = dayBegan
    self.monthBegan = monthBegan
    self.isForced = isForced
  }

  /// Settles calls of runs that were killed after the result had reached the disk: these were charged, and nothing is
  /// unknown about them.
  ///
  /// - Parameter isKept: whether the result of a request is in the store.
  func takeStock(isKept: ([UInt8]) -> Bool) throws(StageError) {
    for (number, call) in try ledger.openCalls() where isKept(call.request) {
      try ledger.finish(call: number, .charged(call.amount))
    }
  }

  func forItem(_ identity: ItemIdentity, stage: Int, label: String) -> any ItemServices {
    ItemDesk(desk: self, key: RunHistory.key(of: identity), label: label, isForced: isForced(stage))
  }

  // MARK: Calls that cost

  fileprivate func begin(_ call: ServiceCall, key: [UInt8], label: String) throws(StageError) -> CallPermission {
    // The whole decision under one lock: two workers must not both spend the last credit.
    let result: Result<CallPermission, StageError> = state.withLock { state in
      do throws(StageError) { return .success(try decide(call, key: key, label: label, &state)) } catch {
        return .failure(error)
      }
    }
    return try result.get()
  }

  private func decide(
    _ call: ServiceCall, key: [UInt8], label: String, _ state: inout State
  ) throws(StageError) -> CallPermission {
    guard !state.underWay.values.contains(where: { $0.request == call.request }) else { return .underWay }
    for past in try ledger.calls(request: call.request) {
      switch past.outcome {
      case .open, .unknown: return .unknown(UnsettledCall.identifier(of: past.number))
      case .charged where past.run == run: return .paidAlready
      case .charged, .free, .retried: break
      }
    }
    if let reason = state.closed[call.account] { return .refused(reason) }
    guard let budget else {
      return .refused("the job has no \"budget\", and \(call.provider) costs \(Self.text(call.amount)) credits a call")
    }
    let windows: [(limit: Double?, name: String, since: Double, run: String?)] = [
      (budget.credits, "budget.credits of this run", 0, run),
      (book == nil ? budget.perDay : nil, "budget.perDay", dayBegan, nil),
      (book == nil ? budget.perMonth : nil, "budget.perMonth", monthBegan, nil),
    ]
    for window in windows {
      guard let limit = window.limit else { continue }
      let spent = try ledger.creditsSpent(since: window.since, run: window.run)
      guard spent + call.amount <= limit + 1e-9 else {
        return .refused(
          "\(window.name) is \(Self.text(limit)): \(Self.text(spent)) are spent, and a call of \(call.provider) costs "
            + "\(Self.text(call.amount))")
      }
    }
    var shared: Int64?
    if let book {
      switch try book.reserve(
        call.amount, provider: call.provider, account: call.account, run: run,
        limits: [
          (budget.perDay, "budget.perDay", dayBegan), (budget.perMonth, "budget.perMonth", monthBegan),
        ])
      {
      case .reserved(let number): shared = number
      case .refused(let reason): return .refused(reason)
      }
    }
    let number = try ledger.begin(
      PaidCall(
        run: run, job: job, key: key, stage: label, provider: call.provider, account: call.account,
        request: call.request, amount: call.amount, began: RunClock.now()))
    state.underWay[number] = UnderWay(request: call.request, key: key, shared: shared)
    return .granted(number)
  }

  fileprivate func finish(_ number: Int64, _ end: CallEnd) throws(StageError) {
    let call = state.withLock { $0.underWay[number] }
    defer { state.withLock { _ = $0.underWay.removeValue(forKey: number) } }
    let outcome: PaidCall.Outcome =
      switch end {
      case .charged(let credits): .charged(credits)
      case .free: .free
      case .unknown: .unknown
      }
    try ledger.finish(call: number, outcome)
    guard let shared = call?.shared, let book else { return }
    switch end {
    case .charged(let credits): try book.settle(shared, credits)
    case .free: try book.settle(shared, 0)
    // What it was expected to cost stays reserved.
    case .unknown: break
    }
  }

  /// Gives up the calls of an item whose worker is no more: what became of them is unknown, and nobody is to wait for it.
  func abandonCalls(of identity: ItemIdentity) {
    let key = RunHistory.key(of: identity)
    state.withLock { state in state.underWay = state.underWay.filter { $0.value.key != key } }
  }

  fileprivate func close(_ account: String, _ reason: String) {
    state.withLock { state in if state.closed[account] == nil { state.closed[account] = reason } }
  }

  fileprivate func closure(of account: String) -> String? { state.withLock { $0.closed[account] } }

  /// `20`, `0.25`.
  static func text(_ credits: Double) -> String {
    let hundredths = (credits * 100).rounded() / 100
    return Int(exactly: hundredths).map { "\($0)" } ?? "\(hundredths)"
  }

  // MARK: Receipts

  fileprivate func receipt(options: [UInt8], key: [UInt8], label: String) throws(StageError) -> UploadReceipt? {
    try ledger.receipts(job: job, key: key).last { $0.options == options && $0.stage == label && $0.state != .deleted }
      .map { UploadReceipt($0) }
  }

  fileprivate func book(_ receipt: UploadReceipt, key: [UInt8], label: String) throws(StageError) {
    try ledger.keep(
      Receipt(
        id: receipt.id, run: run, job: job, key: key, stage: label, provider: receipt.provider, link: receipt.link,
        deleteLink: receipt.deleteLink, etag: receipt.etag, sha256: receipt.sha256, sentAt: RunClock.now(),
        expires: receipt.expires, state: receipt.isUnknown ? .unknown : .sent, options: receipt.options))
  }

  fileprivate func withdraw(_ receipt: UploadReceipt) throws(StageError) { try ledger.remove(receipt: receipt.id) }
}

/// The desk, for one stage and one item.
private struct ItemDesk: ItemServices {
  let desk: ServiceDesk
  let key: [UInt8]
  let label: String
  let isForced: Bool

  func begin(_ call: ServiceCall) throws(StageError) -> CallPermission {
    try desk.begin(call, key: key, label: label)
  }

  func finish(_ number: Int64, _ end: CallEnd) throws(StageError) { try desk.finish(number, end) }

  func close(account: String, reason: String) { desk.close(account, reason) }

  func closure(of account: String) -> String? { desk.closure(of: account) }

  func receipt(options: [UInt8]) throws(StageError) -> UploadReceipt? {
    try desk.receipt(options: options, key: key, label: label)
  }

  func book(_ receipt: UploadReceipt) throws(StageError) { try desk.book(receipt, key: key, label: label) }

  func withdraw(_ receipt: UploadReceipt) throws(StageError) { try desk.withdraw(receipt) }
}
