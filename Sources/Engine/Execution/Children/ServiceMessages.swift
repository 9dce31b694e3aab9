import Digest
import JobSyntax
import PipelineKit

// What a child asks about money and receipts: all of it is decided, and noted, where the run is.

/// A child's side.
struct LinkedServices: ItemServices {
  let link: ParentLink
  /// The stage's place in the chain.
  let stage: Int
  let isForced: Bool

  private func ask(_ what: String, _ members: [(String, JSONText)] = []) throws(StageError) -> JSONNode {
    let answer = link.question(
      Message.make("service", [("what", .string(what)), ("stage", .integer(stage))] + members))
    if let error = answer["error"].flatMap({ StageError($0) }) { throw error }
    return answer
  }

  func begin(_ call: ServiceCall) throws(StageError) -> CallPermission {
    let answer = try ask(
      "begin",
      [
        ("provider", .string(call.provider)), ("account", .string(call.account)),
        ("request", .string(Hex.text(call.request))), ("amount", .number(call.amount)),
      ])
    let text = answer["text"]?.stringValue ?? ""
    switch answer["permission"]?.stringValue {
    case "granted": return .granted(Int64(text) ?? 0)
    case "paidAlready": return .paidAlready
    case "underWay": return .underWay
    case "unknown": return .unknown(text)
    default: return .refused(text)
    }
  }

  func finish(_ number: Int64, _ end: CallEnd) throws(StageError) {
    let credits: JSONText
    switch end {
    case .charged(let amount): credits = .number(amount)
    case .free: credits = .number(0)
    case .unknown: credits = nil
    }
    _ = try ask(
      "finish", [("number", .string(String(number))), ("isFree", .bool(end == .free)), ("credits", credits)])
  }

  func close(account: String, reason: String) {
    _ = try? ask("close", [("account", .string(account)), ("reason", .string(reason))])
  }

  func closure(of account: String) -> String? {
    (try? ask("closure", [("account", .string(account))]))?["text"]?.stringValue
  }

  func receipt(options: [UInt8]) throws(StageError) -> UploadReceipt? {
    try ask("receipt", [("options", .string(Hex.text(options)))])["receipt"].flatMap { UploadReceipt($0) }
  }

  func book(_ receipt: UploadReceipt) throws(StageError) { _ = try ask("book", [("receipt", receipt.json)]) }

  func withdraw(_ receipt: UploadReceipt) throws(StageError) {
    _ = try ask("withdraw", [("receipt", receipt.json)])
  }
}

extension Executor {
  /// The run's answer to a child's question.
  func answer(toService message: JSONNode, for run: ItemRun) -> JSONText {
    func reply(_ members: [(String, JSONText)] = []) -> JSONText { Message.make("answer", members) }
    func bytes(_ name: String) -> [UInt8] { Hex.bytes(message[name]?.stringValue ?? "") ?? [] }
    func text(_ name: String) -> String { message[name]?.stringValue ?? "" }
    guard let stage = message["stage"]?.numberValue?.integer, stages.indices.contains(stage),
      let desk = services?.forItem(
        run.progress.withLock { $0.item.identity }, stage: stage, label: stages[stage].label)
    else {
      return reply([("error", StageError("no-ledger", "the run keeps no ledger", kind: .environment).json)])
    }
    do throws(StageError) {
      switch text("what") {
      case "begin":
        let call = ServiceCall(
          provider: text("provider"), account: text("account"), request: bytes("request"),
          amount: message["amount"]?.numberValue?.double ?? 0)
        switch try desk.begin(call) {
        case .granted(let number): return reply([("permission", "granted"), ("text", .string(String(number)))])
        case .paidAlready: return reply([("permission", "paidAlready")])
        case .underWay: return reply([("permission", "underWay")])
        case .unknown(let receipt): return reply([("permission", "unknown"), ("text", .string(receipt))])
        case .refused(let reason): return reply([("permission", "refused"), ("text", .string(reason))])
        }
      case "finish":
        let credits = message["credits"]?.numberValue?.double
        let end: CallEnd =
          message["isFree"]?.boolValue == true ? .free : credits.map { .charged($0) } ?? .unknown
        try desk.finish(Int64(text("number")) ?? 0, end)
      case "close": desk.close(account: text("account"), reason: text("reason"))
      case "closure": return reply([("text", desk.closure(of: text("account")).map { .string($0) } ?? nil)])
      case "receipt":
        return reply([("receipt", try desk.receipt(options: bytes("options"))?.json ?? nil)])
      case "book":
        if let receipt = message["receipt"].flatMap({ UploadReceipt($0) }) { try desk.book(receipt) }
      case "withdraw":
        if let receipt = message["receipt"].flatMap({ UploadReceipt($0) }) { try desk.withdraw(receipt) }
      default: break
      }
      return reply()
    } catch {
      return reply([("error", error.json)])
    }
  }
}

extension UploadReceipt {
  var json: JSONText {
    .object([
      ("id", .string(id)), ("provider", .string(provider)), ("link", link.map { .string($0) } ?? nil),
      ("deleteLink", deleteLink.map { .string($0) } ?? nil), ("etag", etag.map { .string($0) } ?? nil),
      ("sha256", .string(Hex.text(sha256))), ("expires", expires.map { .number($0) } ?? nil),
      ("options", .string(Hex.text(options))), ("isUnknown", .bool(isUnknown)),
    ])
  }

  init?(_ node: JSONNode) {
    guard let provider = node["provider"]?.stringValue, let id = node["id"]?.stringValue else { return nil }
    self.init(
      provider: provider, link: node["link"]?.stringValue, deleteLink: node["deleteLink"]?.stringValue,
      etag: node["etag"]?.stringValue, sha256: node["sha256"]?.stringValue.flatMap { Hex.bytes($0) } ?? [],
      expires: node["expires"]?.numberValue?.double)
    self.id = id
    options = node["options"]?.stringValue.flatMap { Hex.bytes($0) } ?? []
    isUnknown = node["isUnknown"]?.boolValue ?? false
  }
}
