import Digest
import Transport

/// A call that costs, before it is made.
public struct ServiceCall: Sendable, Hashable {
  /// The service, as jobs call it.
  public var provider: String
  /// Whose credits are spent, as far as calls can be told apart without naming a credential.
  public var account: String
  /// 32 bytes: what is asked for, picture and options. The same is never paid for twice.
  public var request: [UInt8]
  /// Credits that it is expected to cost, the most where it is not certain.
  public var amount: Double

  public init(provider: String, account: String, request: [UInt8], amount: Double) {
    self.provider = provider
    self.account = account
    self.request = request
    self.amount = amount
  }
}

/// What a run says to a call that costs.
public enum CallPermission: Sendable {
  /// It is noted on the disk, under this number, and may be made.
  case granted(Int64)
  /// The same has been paid for in this run: its result is kept.
  case paidAlready
  /// The same is under way for another item.
  case underWay
  /// The same was begun before, and nobody knows what became of it; the identifier of the receipt that settles it.
  case unknown(String)
  /// A limit was reached.
  case refused(String)
}

/// How a call that costs has ended.
public enum CallEnd: Sendable, Hashable {
  case charged(Double)
  /// The service took nothing, or was never reached.
  case free
  /// No answer came.
  case unknown
}

/// What became of a call that costs, as its provider tells it.
public enum CallResult: Sendable {
  /// The result, and the credits that the service says it took; nil for what was expected.
  case answered([UInt8], charged: Double?)
  /// It refused, or failed, and took nothing.
  case failed(StageError)
  /// It may have been carried out; why that is not known.
  case unknown(String)
}

/// What a stage gets for a call that costs.
public enum CallAnswer: Sendable {
  /// - Parameter isNew: whether it was paid for just now.
  case result([UInt8], isNew: Bool)
  /// The identifier of the receipt that settles whether the call was carried out.
  case unknown(String)
}

/// What an upload has left behind, and how to take it back.
public struct UploadReceipt: Sendable, Hashable {
  public var id: String
  public var provider: String
  /// Where it can be seen; without credentials.
  public var link: String?
  /// Whoever has it may delete what was sent: a link, or what the provider takes for one.
  public var deleteLink: String?
  public var etag: String?
  /// 32 bytes, of what was sent.
  public var sha256: [UInt8]
  /// Seconds since 1970.
  public var expires: Double?
  /// 32 bytes: where it was sent and how.
  public var options: [UInt8]
  /// Whether nobody knows if it has arrived.
  public var isUnknown: Bool

  public init(
    provider: String, link: String? = nil, deleteLink: String? = nil, etag: String? = nil, sha256: [UInt8] = [],
    expires: Double? = nil
  ) {
    id = ""
    self.provider = provider
    self.link = link
    self.deleteLink = deleteLink
    self.etag = etag
    self.sha256 = sha256
    self.expires = expires
    options = []
    isUnknown = false
  }
}

/// What became of an upload, as its provider tells it.
public enum UploadResult: Sendable {
  case sent(UploadReceipt)
  /// Nothing was sent, since what is there already is the same, or else is to stay; where it can be seen. It is not ours
  /// to take back, so there is no receipt of it.
  case alreadyThere(link: String?, isSame: Bool)
  /// It may have arrived; why that is not known.
  case unknown(String)
}

/// What a stage gets for an upload.
public enum UploadAnswer: Sendable {
  /// - Parameter isNew: whether it was sent just now, and not by an earlier run.
  case sent(UploadReceipt, isNew: Bool)
  /// Nothing was sent, and what is there stays; where it can be seen.
  case alreadyThere(link: String?, isSame: Bool)
  /// The identifier of the receipt that settles whether it has arrived.
  case unknown(String)
}

/// What a run remembers of services for one stage and one item: what was paid for, and what was sent.
public protocol ItemServices: Sendable {
  /// Whether the job is to do this stage's work again, whatever was kept.
  var isForced: Bool { get }

  /// Asks whether a call that costs may be made. When it is granted, it is noted on the disk.
  ///
  /// - Throws: `state-*` where the ledger cannot be read or written.
  func begin(_ call: ServiceCall) throws(StageError) -> CallPermission

  /// Notes on the disk how a call has ended.
  func finish(_ number: Int64, _ end: CallEnd) throws(StageError)

  /// Makes no more calls on an account in this run, for a reason that people are told.
  func close(account: String, reason: String)

  /// Why no more calls are made on an account; nil where they are.
  func closure(of account: String) -> String?

  /// The last upload of this item by this stage with these options.
  func receipt(options: [UInt8]) throws(StageError) -> UploadReceipt?

  /// Keeps a receipt, or changes the one of its identifier. It is on the disk when this returns.
  func book(_ receipt: UploadReceipt) throws(StageError)

  /// Forgets a receipt of an upload that has certainly not arrived.
  func withdraw(_ receipt: UploadReceipt) throws(StageError)
}

extension StageContext {
  /// Makes a call that costs, unless its result is kept; at most once ever for the same request, whatever is killed
  /// when. The result is on the disk before anything else is done with it.
  ///
  /// - Parameters:
  ///   - kept: where the result is kept: of the request, so that `kept.paidKey` names it.
  ///   - perform: makes the call, with all repetitions that cost nothing.
  ///   - amount: credits, the most where it is not certain.
  ///   - account: whose credits are spent.
  ///   - provider: the service, as jobs call it.
  /// - Throws: what `perform` fails with; an error of class `budget` where a limit was reached; `state-*` errors.
  public func payOnce(
    provider: String, account: String, amount: Double, kept: KeptResults?,
    perform: () throws(StageError) -> CallResult
  ) throws(StageError) -> CallAnswer {
    guard let services, let kept else {
      throw StageError(
        "no-ledger", "a call of \(provider) costs, and there is nowhere to note what was paid for", kind: .environment)
    }
    if let known = kept.find(paid: true) { return .result(known, isNew: false) }
    let call = ServiceCall(provider: provider, account: account, request: kept.paidKey, amount: amount)
    var number: Int64?
    while number == nil {
      guard !isCancelled else { throw StageError("cancelled", "the picture was given up before \(provider) was asked") }
      switch try services.begin(call) {
      case .granted(let granted): number = granted
      case .unknown(let receipt): return .unknown(receipt)
      case .refused(let reason): throw Self.limit(reason)
      case .paidAlready:
        if let known = kept.findWhateverIsForced(paid: true) { return .result(known, isNew: false) }
        throw StageError(
          "paid-result-lost", "the result of \(provider) was paid for in this run and is not there any more",
          kind: .environment)
      case .underWay:
        pause(seconds: 0.05)
        if let known = kept.findWhateverIsForced(paid: true) { return .result(known, isNew: false) }
      }
    }
    guard let number else { throw StageError("internal-fault", "a call without a number", kind: .job) }
    let result: CallResult
    do throws(StageError) {
      result = try perform()
    } catch {
      // Thrown is only what has cost nothing.
      try services.finish(number, .free)
      throw error
    }
    switch result {
    case .answered(let bytes, let charged):
      do throws(StageError) {
        try kept.keep(bytes, paid: true)
      } catch {
        // The credits are gone all the same, and what cannot be kept is not to be paid for again and again.
        services.close(
          account: account, reason: "a result of \(provider) was paid for and could not be kept: \(error.message)")
        warn("outcome-unknown", "\(provider) was paid and its result could not be kept: \(error.description)")
        try services.finish(number, .unknown)
        return .unknown("call-\(number)")
      }
      try services.finish(number, .charged(charged ?? amount))
      return .result(bytes, isNew: true)
    case .failed(let error):
      try services.finish(number, .free)
      throw error
    case .unknown(let reason):
      try services.finish(number, .unknown)
      warn("outcome-unknown", "\(provider) may have been paid and its answer is lost: \(reason)")
      return .unknown("call-\(number)")
    }
  }

  /// The error for a limit that was reached: the item is not attempted, and the run ends with exit code 5.
  static func limit(_ reason: String) -> StageError { StageError("limit-reached", reason, kind: .budget) }

  /// Sends something that the ledger then has a receipt of.
  ///
  /// - Parameters:
  ///   - options: 32 bytes: where it is sent and how.
  ///   - sha256: 32 bytes, of what is sent.
  ///   - isRepeatable: whether sending it again changes nothing. What is not repeatable is noted before it is sent, and
  ///     never sent again by itself once it may have arrived.
  ///   - perform: sends it. What it throws means that nothing has arrived.
  ///   - provider: the service, as jobs call it.
  public func uploadOnce(
    provider: String, options: [UInt8], sha256: [UInt8], isRepeatable: Bool,
    perform: () throws(StageError) -> UploadResult
  ) throws(StageError) -> UploadAnswer {
    var note = UploadReceipt(provider: provider, sha256: sha256)
    note.id = UploadReceipt.newIdentifier(run: run.runID)
    note.options = options
    note.isUnknown = true
    if !isRepeatable, let services, let known = try services.receipt(options: options) {
      if known.isUnknown { return .unknown(known.id) }
      // Sent before, by a run that did not come to book the picture as done.
      if known.sha256 == sha256, !services.isForced { return .sent(known, isNew: false) }
    }
    guard !isCancelled else {
      throw StageError("cancelled", "the picture was given up before it was sent to \(provider)")
    }
    if !isRepeatable { try services?.book(note) }
    let result: UploadResult
    do throws(StageError) {
      result = try perform()
    } catch {
      if !isRepeatable { try services?.withdraw(note) }
      throw error
    }
    switch result {
    case .sent(var receipt):
      // A service may put into its links what it was sent.
      receipt.link = receipt.link.map(Secrets.redacted)
      receipt.deleteLink = receipt.deleteLink.map(Secrets.redacted)
      receipt.id = note.id
      receipt.options = options
      receipt.sha256 = sha256
      try services?.book(receipt)
      return .sent(receipt, isNew: true)
    case .alreadyThere(let link, let isSame):
      if !isRepeatable { try services?.withdraw(note) }
      return .alreadyThere(link: link, isSame: isSame)
    case .unknown(let reason):
      if isRepeatable { try services?.book(note) }
      warn("outcome-unknown", "what was sent to \(provider) may have arrived: \(reason)")
      return .unknown(note.id)
    }
  }
}

extension UploadReceipt {
  /// `RUN-` and ten random hex digits.
  static func newIdentifier(run: String) -> String {
    run + "-" + Hex.text((0..<5).map { _ in UInt8.random(in: .min ... .max) })
  }
}
