import Imaging
import JobSyntax
import PipelineKit
import Transport

/// `upload` to imgbb (API version 1).
struct ImgbbUpload: UploadProvider {
  static let name = "imgbb"
  /// As people call it.
  static let service = "imgbb"
  static let help = "imgbb"

  static let apiKey = Field<Credential>.requiredCredential("apiKey", when: ours, help: "the account's API key")
  static let expiration = Field<Int?>.integer(
    "expiration", in: 60...15_552_000, unit: "seconds", when: ours,
    help: "when the host deletes the picture by itself; never when left out")

  private static let ours = FieldCondition("provider", in: [name])

  static let fields: [any FieldDeclaration] = [apiKey, expiration]

  static let concurrency: Int? = 4

  static func check(_ settings: Settings) -> [Diagnostic] { UploadAddress.check(settings, holdsCredential: true) }

  /// 32 MB are the limit; which ones is not said.
  private static let mostBytes = 32_000_000

  private let base: RequestURL
  private let key: String
  private let expiration: Int?
  private let form: PictureForm
  private let sourceURL: Template?
  private let fileName: Template
  private let caller: Caller

  init(_ settings: Settings, resources: StageResources) throws(StageError) {
    base = try UploadAddress.endpoint(settings, usual: "https://api.imgbb.com/1")
    try UploadAddress.requireSecure(base, settings)
    key = try settings[Self.apiKey].reveal()
    expiration = settings[Self.expiration]
    form = settings[UploadFields.form]
    sourceURL = settings[UploadFields.sourceURL]
    fileName = settings[UploadFields.fileName]
    let services = resources.services
    caller = services.caller(
      services.pacer("imgbb \(base.authority)", perMinute: settings[UploadFields.perMinute]))
  }

  func prepare(_ encoded: Item.Encoded, for item: Item, in context: StageContext) throws(StageError) -> PreparedUpload {
    guard form == .url || encoded.bytes.count <= Self.mostBytes else {
      throw StageError(
        "service-too-large",
        "\(Self.service) takes pictures of \(Self.mostBytes) bytes, and this one has \(encoded.bytes.count)",
        hint: "set \"maxBytes\" of \"encode\"")
    }
    let fileName = try UploadFields.text(fileName, for: item, in: context)
    var shown = "\(base.origin)\(base.path)\n\(form.rawValue)\nname=\(fileName)"
    var address: String?
    if form == .url, let sourceURL {
      let text = try UploadFields.text(sourceURL, for: item, in: context)
      address = try PictureRequest.checked(text)
      shown += "\n\(text)"
    }
    var fields = [(name: "name", value: fileName)]
    if let expiration {
      fields.append(("expiration", String(expiration)))
      shown += "\nexpiration=\(expiration)"
    }
    // In the form, not in the query, which servers and proxies write into their logs.
    let body = PictureRequest(form: form, address: address).body(
      "image", encoded, fileName: fileName, typeField: nil, before: [("key", key)], after: fields)
    let endpoint = try Endpoint<UploadReceipt>(
      Self.service, .post, at: base, "upload", body: body, classify: ImgbbAnswers.failure
    ) { response throws(TransportError) in try ImgbbAnswers.receipt(try response.json()) }
    return PreparedUpload(encoded, target: shown, caller, endpoint)
  }

  var receiptKeeper: (any ReceiptKeeper)? { Keeper(caller: caller) }

  private struct Keeper: ReceiptKeeper {
    let caller: Caller

    func verify(_ receipt: UploadReceipt) throws(StageError) -> ReceiptFinding {
      try PublicLink.finding(receipt, caller: { _ in caller })
    }

    func delete(_ receipt: UploadReceipt) throws(StageError) {
      throw PublicLink.notDeletable(receipt, ImgbbUpload.service)
    }
  }
}

/// What imgbb's answers mean. A bad key is a 400 like all that it refuses: its own code tells.
enum ImgbbAnswers {
  static let failure: Classifier = { response in
    guard let answer = try? response.json(), !(response.isSuccess && answer.bool(at: "/success") == true) else {
      // A page of maintenance is the caller's to see: it cannot be read.
      return StandardClassifier.classify(response)
    }
    let code = number(answer, "/error/code").map { Int($0) }
    guard let text = answer.string(at: "/error/message") ?? answer.string(at: "/status_txt") else {
      return StandardClassifier.classify(response)
    }
    let status = number(answer, "/status_code").map { Int($0) } ?? response.status
    var failure = ServiceFailure(
      StandardClassifier.kind(ofStatus: status) ?? .request,
      StandardClassifier.message(status: response.status, text, code: code.map(String.init)), status: response.status,
      code: code.map(String.init))
    // Where the status speaks for itself, the code is about something else.
    switch (response.status, code) {
    case (429, _), (500..., _): failure.wait = StandardClassifier.classify(response)?.wait
    case (_, 100): failure.kind = .credentials
    case (_, 310), (_, 311), (_, 403): failure.kind = .badPicture
    case (_, 313): failure.kind = .tooLarge
    default: if failure.kind == .credentials { failure.kind = .request }
    }
    return failure
  }

  /// What a success says. Throws `failed` for an answer without a link.
  static func receipt(_ answer: JSONAnswer) throws(TransportError) -> UploadReceipt {
    var receipt = UploadReceipt(provider: ImgbbUpload.name)
    receipt.link = try PublicLink.secured(try answer.text(at: "/data/url"))
    receipt.deleteLink = answer.string(at: "/data/delete_url").flatMap { try? PublicLink.secured($0) }
    if let life = number(answer, "/data/expiration"), life > 0 {
      receipt.expires = (number(answer, "/data/time") ?? RetryAfter.wallClock()) + life
    }
    return receipt
  }

  /// Numbers come as such and in quotes.
  private static func number(_ answer: JSONAnswer, _ pointer: String) -> Double? {
    answer.number(at: pointer) ?? answer.string(at: pointer).flatMap { Double($0) }
  }
}
