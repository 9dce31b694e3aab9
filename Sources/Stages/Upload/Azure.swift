import Imaging
import JobSyntax
import PipelineKit
import Transport

/// `upload` to a container of Azure Blob Storage, by a shared access signature (SAS).
struct AzureUpload: UploadProvider {
  static let name = "azure"
  /// As people call it.
  static let service = "Azure Blob Storage"
  static let help = "a container of Azure Blob Storage, by a shared access signature"

  static let address = Field<Credential>.requiredCredential(
    "sasURL", when: ours,
    help: "the address with its signature, of a container or of one blob; of a container, `path` names the blob")
  static let accessTier = Field<AccessTier?>.choice(
    "accessTier", when: ours, help: "how soon it is at hand; the account's own when left out")
  static let tags = Field<[NamedTemplate]>.templates(
    "tags", when: ours, help: "index tags; the signature must allow them (t)")

  private static let ours = FieldCondition("provider", in: [name])

  static let fields: [any FieldDeclaration] = [address, accessTier, tags]

  // MARK: - Rules

  static func check(_ settings: Settings) -> [Diagnostic] {
    var findings = UploadAddress.check(settings, holdsCredential: true)
    func report(_ field: any FieldDeclaration, _ code: String, _ message: String, hint: String? = nil) {
      findings.append(settings.diagnostic(.error, code, at: field, message, hint: hint))
    }
    let names = settings[UploadFields.metadata].map(\.name)
    for name in names where !isIdentifier(name) {
      report(
        UploadFields.metadata, "wrong-value",
        "\"metadata\" expects names of letters, digits and \"_\", not beginning with a digit, got \"\(name)\"")
    }
    if Set(names.map { $0.lowercased() }).count < names.count {
      report(UploadFields.metadata, "duplicate-name", "\"metadata\" names the same entry twice: capitals do not count")
    }
    if settings[tags].count > 10 { report(tags, "out-of-range", "\"tags\" takes 10 at most") }
    for entry in settings[tags] where entry.name.isEmpty || entry.name.utf8.count > 128 {
      report(tags, "wrong-value", "\"tags\" expects names of 1 to 128 characters, got \"\(entry.name)\"")
    }
    return findings
  }

  /// Of C#, as names of metadata must be.
  private static func isIdentifier(_ name: String) -> Bool {
    guard let first = name.utf8.first, !(0x30...0x39).contains(first) else { return false }
    return name.utf8.allSatisfy { byte in
      switch byte {
      case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, UInt8(ascii: "_"): true
      default: false
      }
    }
  }

  // MARK: - Sending

  private let signed: SignedAddress
  private let path: Template
  private let type: String?
  private let headers: [HeaderField]
  private let metadata: [NamedTemplate]
  private let tags: [NamedTemplate]
  private let existing: ExistingUpload
  private let publicBase: String?
  private let caller: Caller

  init(_ settings: Settings, resources: StageResources) throws(StageError) {
    let text = try settings[Self.address].reveal()
    var url: RequestURL
    do throws(TransportError) {
      url = try RequestURL(text)
      if let endpoint = settings[UploadFields.endpoint] {
        let base = endpoint.hasSuffix("/") ? String(endpoint.dropLast()) : endpoint
        url = try RequestURL(base + url.target)
      }
    } catch {
      throw StageError("upload-address", "\"sasURL\" is no address: \(error.message)", kind: .environment)
    }
    try UploadAddress.requireSecure(url, settings)
    signed = try SignedAddress(url)
    path = settings[UploadFields.path]
    if signed.isBlob, settings.isSet(UploadFields.path) {
      throw StageError(
        "upload-address", "\"sasURL\" is of one blob, and \"path\" names another", kind: .job,
        hint: "leave \"path\" out, or use the signature of a container")
    }
    type = settings[UploadFields.contentType]
    var headers: [HeaderField] = []
    if let text = settings[UploadFields.cacheControl] { headers.append(HeaderField("x-ms-blob-cache-control", text)) }
    if let text = settings[UploadFields.contentDisposition] {
      headers.append(HeaderField("x-ms-blob-content-disposition", text))
    }
    if let tier = settings[Self.accessTier] { headers.append(HeaderField("x-ms-access-tier", tier.rawValue)) }
    if settings[UploadFields.overwrite] != .replace { headers.append(HeaderField("If-None-Match", "*")) }
    self.headers = headers
    metadata = settings[UploadFields.metadata]
    tags = settings[Self.tags]
    existing = settings[UploadFields.overwrite]
    publicBase = settings[UploadFields.publicURL].flatMap { UploadFields.publicBase($0) }
    let services = resources.services
    caller = services.caller(
      services.pacer("azure \(url.authority)", perMinute: settings[UploadFields.perMinute]))
  }

  func prepare(_ encoded: Item.Encoded, for item: Item, in context: StageContext) throws(StageError) -> PreparedUpload {
    if let most = signed.mostBytes, encoded.bytes.count > most {
      throw StageError(
        "service-too-large",
        "it has \(encoded.bytes.count) bytes; \(Self.service) takes \(most) at once by this signature's version"
      )
    }
    let name = signed.isBlob ? "" : try UploadAddress.encoded(try ObjectName.text([path], for: item, in: context))
    let url = try signed.url(blob: name)
    let place = url.origin + url.path
    try UploadAddress.claim(url, in: context)
    var headers = headers
    for entry in metadata {
      headers.append(
        HeaderField("x-ms-meta-\(entry.name)", try UploadFields.headerValue(entry.template, for: item, in: context)))
    }
    if !tags.isEmpty {
      var pairs: [String] = []
      for entry in tags {
        let value = try UploadFields.text(entry.template, for: item, in: context)
        pairs.append("\(RequestURL.encoded(queryValue: entry.name))=\(RequestURL.encoded(queryValue: value))")
      }
      headers.append(HeaderField("x-ms-tags", pairs.joined(separator: "&")))
    }
    let type = type ?? encoded.format.mediaType
    headers += [HeaderField("x-ms-blob-type", "BlockBlob"), HeaderField("x-ms-blob-content-type", type)]
    let receipt = UploadReceipt(
      provider: Self.name, link: publicBase.map { $0 + name } ?? place, deleteLink: place)
    let endpoint = try Endpoint<UploadReceipt>(
      Self.service, .put, at: url, headers: headers, body: .raw(Payload(encoded.bytes), type: type),
      classify: AzureAnswers.failure
    ) { response throws(TransportError) in
      var receipt = receipt
      receipt.etag = response.headers["ETag"]
      return receipt
    }
    return PreparedUpload(encoded: encoded, target: place, isRepeatable: true) { context throws(StageError) in
      do throws(ServiceFailure) {
        return .sent(try endpoint.call(caller, Waiter(context)))
      } catch {
        guard error.code == AzureAnswers.exists, existing != .replace else {
          throw StageError(error, of: Self.service)
        }
        return try named(url).found(encoded, attempts: error.attempts, existing, receipt, in: context)
      }
    }
  }

  private func named(_ url: RequestURL) -> NamedPlace {
    NamedPlace(host: Self.service, url: url, caller: caller, classify: AzureAnswers.failure)
  }

  /// The signature must allow reading (r) and deleting (d).
  var receiptKeeper: (any ReceiptKeeper)? {
    NamedKeeper { receipt throws(StageError) in named(try NamedKeeper.url(of: receipt, below: signed.url)) }
  }

  enum AccessTier: String, FieldChoice {
    case hot = "Hot"
    case cool = "Cool"
    case cold = "Cold"
    case archive = "Archive"

    var help: String {
      switch self {
      case .hot: "at once, for what is read often"
      case .cool: "at once, for what is kept 30 days and more"
      case .cold: "at once, for what is kept 90 days and more"
      case .archive: "after hours, for what is kept 180 days and more"
      }
    }
  }
}

/// An address with a shared access signature.
struct SignedAddress: Sendable {
  let url: RequestURL
  /// Whether it is that of one blob, and not of a container or folder.
  let isBlob: Bool
  /// What one request may store, by the version of the signature; nil where that is not known.
  let mostBytes: Int?

  /// The signature is kept out of all text from now on.
  ///
  /// - Throws: `upload-address` for an address without a signature.
  init(_ url: RequestURL) throws(StageError) {
    self.url = url
    var values: [String: String] = [:]
    for pair in (url.query ?? "").split(separator: "&") {
      let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
      values[String(parts[0])] = parts.count > 1 ? String(parts[1]) : ""
    }
    guard let signature = values["sig"], !signature.isEmpty else {
      throw StageError(
        "upload-address", "\"sasURL\" holds no signature (sig=…)", kind: .environment,
        hint: "give the whole address that the portal shows, with its query")
    }
    Secrets.register(signature)
    // What it is before it was percent-encoded, by which its other spellings are found.
    Secrets.register(String(decoding: PercentCoding.decoded(signature), as: UTF8.self))
    isBlob = values["sr"] == "b"
    mostBytes = values["sv"].map { version in
      switch version {
      case "2019-12-12"...: 5000 << 20
      case "2016-05-31"...: 256 << 20
      default: 64 << 20
      }
    }
  }

  /// - Parameter blob: percent-encoded; empty for the address itself.
  func url(blob: String) throws(StageError) -> RequestURL {
    guard !blob.isEmpty else { return url }
    do throws(TransportError) {
      return try url.appending(path: blob)
    } catch { throw StageError("output-name", "\(blob) makes no address: \(error.message)") }
  }
}

/// What Azure's answers mean, by `x-ms-error-code`.
enum AzureAnswers {
  static let exists = "BlobAlreadyExists"

  static let failure: Classifier = { response in
    guard var failure = StandardClassifier.classify(response) else { return nil }
    let code = response.headers["x-ms-error-code"] ?? element("Code", of: response)
    failure.code = code
    // Beyond the first line stand numbers for the service's own people.
    let words = element("Message", of: response)?.prefix { $0 != "\n" && $0 != "\r\n" }
    let detail = element("AuthenticationErrorDetail", of: response).map { ": \($0)" } ?? ""
    if let words, !words.isEmpty {
      failure.message = StandardClassifier.message(status: response.status, words + detail, code: code)
    } else if let code {
      failure.message = StandardClassifier.message(status: response.status, code)
    }
    switch code {
    case "ServerBusy", "OperationTimedOut", "InternalError": failure.kind = .temporary
    case "RequestBodyTooLarge": failure.kind = .tooLarge
    // 403, and one more that is wrong in the same way.
    case let code? where code.hasPrefix("Authorization") || code == "AuthenticationFailed": failure.kind = .credentials
    default: break
    }
    return failure
  }

  private static func element(_ name: String, of response: Response) -> String? {
    guard response.body.count < 64 << 10 else { return nil }
    let text = String(decoding: response.body, as: UTF8.self)
    guard let start = text.firstRange(of: "<\(name)>"),
      let end = text[start.upperBound...].firstRange(of: "</\(name)>")
    else { return nil }
    return String(text[start.upperBound..<end.lowerBound])
  }
}
