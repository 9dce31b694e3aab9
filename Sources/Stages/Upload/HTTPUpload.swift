import Imaging
import JobSyntax
import PipelineKit
import Transport

/// `upload` to any address, in one of the usual forms.
struct HTTPUpload: UploadProvider {
  static let name = "http"
  static let help = "any address, as a form, as it is, or in JSON"

  static let method = Field<Method>.choice("method", default: .post, when: ours, help: "how it is sent")
  static let body = Field<Form?>.choice(
    "body", when: ours, help: "what the request carries; with POST `multipart` when left out, else `raw`")
  static let fileField = Field<String>.text(
    "fileField", default: "file", when: ours, help: "what the picture's field is called")
  static let formFields = Field<[NamedTemplate]>.templates(
    "fields", when: ours, allowsSecrets: true, help: "further fields, which come before the picture in this order")
  static let headers = Field<[NamedTemplate]>.templates(
    "headers", when: ours, allowsSecrets: true, help: "headers to send, such as Authorization")
  static let linkPointer = Field<String?>.text(
    "linkPointer", when: ours,
    help: "where the answer, in JSON, has the picture's link, as a JSON pointer such as /data/link; left out, the link "
      + "is the answer's Location, with PUT the address itself")
  static let deletePointer = Field<String?>.text(
    "deletePointer", when: ours, help: "where the answer has the link that deletes the picture")
  static let deleteMethod = Field<DeleteMethod?>.choice(
    "deleteMethod", when: ours,
    help:
      "how `pipeline receipts delete` uses that link; left out, it asks you to. What was PUT is taken away by DELETE")
  static let success = Field<[Int]>(
    "successStatuses", type: .array(.integer(100...599), count: 1...50), absent: usualSuccess,
    defaultText: .array(usualSuccess.map { .integer($0) }), when: ours, help: "the statuses that mean success"
  ) { node, _ in node.arrayValue?.compactMap { $0.numberValue?.integer } }
  static let repeatable = Field<Bool?>(
    "repeatable", type: .boolean, absent: .some(nil), when: ours,
    help: "whether sending twice is the same as sending once; left out, so it is with PUT. What is not repeatable is "
      + "never sent again by itself once it may have arrived"
  ) { node, _ in node.boolValue.map { .some($0) } }

  private static let ours = FieldCondition("provider", in: [name])
  private static let usualSuccess = [200, 201, 202, 204]

  static let fields: [any FieldDeclaration] = [
    method, body, fileField, formFields, headers, linkPointer, deletePointer, deleteMethod, success, repeatable,
  ]

  // MARK: - Rules

  /// What the client writes itself.
  private static let taken = [
    "content-length", "host", "transfer-encoding", "connection", "expect", "content-encoding",
  ]

  static func check(_ settings: Settings) -> [Diagnostic] {
    var findings: [Diagnostic] = []
    func report(
      _ field: any FieldDeclaration, _ code: String, _ message: String, hint: String? = nil,
      severity: Diagnostic.Severity = .error
    ) {
      findings.append(settings.diagnostic(severity, code, at: field, message, hint: hint))
    }
    let form = form(settings)
    for field in [fileField, formFields, UploadFields.fileName] as [any FieldDeclaration] where settings.isSet(field) {
      let isMeant = field.name == UploadFields.fileName.name ? form == .multipart : form != .raw
      if !isMeant {
        report(field, "not-applicable", "\"\(field.name)\" has no meaning with \"body\": \"\(form.rawValue)\"")
      }
    }
    if settings.isSet(UploadFields.contentType), form == .urlencoded || form == .json {
      report(
        UploadFields.contentType, "not-applicable",
        "\"contentType\" has no meaning with \"body\": \"\(form.rawValue)\", which has a type of its own")
    }
    let names = settings[headers].map { $0.name.lowercased() }
    for entry in settings[headers] where !UploadFields.isToken(entry.name) {
      report(headers, "wrong-value", "\"headers\" expects names of headers, got \"\(entry.name)\"")
    }
    for name in names where taken.contains(name) {
      report(headers, "wrong-value", "\"headers\": \(name) is written by the program itself")
    }
    if names.contains("content-type") {
      report(
        headers, "wrong-value", "\"headers\": Content-Type is written by the program itself",
        hint: "use \"contentType\"")
    }
    if Set(names).count < names.count { report(headers, "duplicate-name", "\"headers\" names the same header twice") }
    if names.contains("authorization"), settings.isSet(UploadFields.user) {
      report(headers, "conflicting-keys", "\"headers\" has Authorization, and \"user\" makes another")
    }
    for field in [linkPointer, deletePointer] {
      guard let text = settings[field], text.isEmpty || JSONAnswer.steps(of: text) == nil else { continue }
      report(field, "wrong-value", "\"\(field.name)\" expects a JSON pointer such as /data/link, got \"\(text)\"")
    }
    if settings.isSet(deleteMethod), !settings.isSet(deletePointer) {
      report(deleteMethod, "not-applicable", "\"deleteMethod\" is for the link that \"deletePointer\" finds")
    }
    findings += UploadAddress.check(settings, holdsCredential: holdsCredential(settings))
    if settings.hasValue(for: UploadFields.url) { findings += checkAddress(settings) }
    return findings
  }

  private static func checkAddress(_ settings: Settings) -> [Diagnostic] {
    var findings: [Diagnostic] = []
    func report(
      _ code: String, _ message: String, hint: String? = nil, severity: Diagnostic.Severity = .error
    ) {
      findings.append(settings.diagnostic(severity, code, at: UploadFields.url, message, hint: hint))
    }
    let base = settings[UploadFields.endpoint].flatMap { try? RequestURL($0) }
    let address = AddressTemplate(settings[UploadFields.url], below: base)
    guard address.isRelative == settings.isSet(UploadFields.endpoint) else {
      report(
        "wrong-value",
        address.isRelative
          ? "\"url\" begins with /, and there is no \"endpoint\" that it lies below"
          : "\"url\" must begin with / where there is an \"endpoint\"")
      return findings
    }
    do throws(TransportError) {
      if let origin = try address.fixedOrigin(), base == nil, holdsCredential(settings),
        let words = UploadAddress.insecure(origin, settings)
      {
        report("wrong-value", words, hint: UploadAddress.insecureHint)
      }
    } catch { report("wrong-value", "\"url\" is no address: \(error.message)") }
    if address.letsItemsChooseHost, holdsCredential(settings) {
      report(
        "conflicting-keys", "\"url\" lets each item choose the host, and a credential would go to whatever it is",
        hint: "write the host into \"url\" itself, or send no credential")
    }
    if settings[method] == .put, !address.variesByItem {
      report(
        "one-name", "all pictures would be put to one address, and the second is refused",
        hint: "name them apart with ${item.stem}", severity: .warning)
    }
    return findings
  }

  private static func form(_ settings: Settings) -> Form {
    settings[body] ?? (settings[method] == .post ? .multipart : .raw)
  }

  private static func secretTemplates(_ settings: Settings) -> [Template] {
    ([settings[UploadFields.url]] + (settings[headers] + settings[formFields]).map(\.template))
      .filter { $0.variables.contains(where: \.isSecret) }
  }

  private static func holdsCredential(_ settings: Settings) -> Bool {
    guard settings.hasValue(for: UploadFields.url) else { return false }
    return settings.isSet(UploadFields.user) || !secretTemplates(settings).isEmpty
  }

  // MARK: - Sending

  private let settings: Settings
  private let address: AddressTemplate
  private let services: ServiceResources
  private let authentication: Authentication?
  private let form: Form
  private let holdsCredential: Bool
  private let repeats: Repetition

  init(_ settings: Settings, resources: StageResources) throws(StageError) {
    self.settings = settings
    services = resources.services
    let base: RequestURL? =
      settings.isSet(UploadFields.endpoint) ? try UploadAddress.endpoint(settings, usual: "") : nil
    address = AddressTemplate(settings[UploadFields.url], below: base)
    form = Self.form(settings)
    holdsCredential = Self.holdsCredential(settings)
    // A run begins with everything that it needs.
    for template in Self.secretTemplates(settings) {
      for case .secret(let name) in template.variables {
        if let secret = Template.parse("${secret.\(name)}").template { _ = try Credential(secret).reveal() }
      }
    }
    if let user = settings[UploadFields.user], let password = settings[UploadFields.password] {
      authentication = .basicOrDigest(user: try user.reveal(), password: try password.reveal())
    } else {
      authentication = nil
    }
    repeats = settings[Self.repeatable] ?? (settings[Self.method] == .put) ? .always : .unlessArrived
  }

  private func caller(_ url: RequestURL) -> Caller {
    services.caller(services.pacer("http \(url.authority)", perMinute: settings[UploadFields.perMinute]))
  }

  func prepare(_ encoded: Item.Encoded, for item: Item, in context: StageContext) throws(StageError) -> PreparedUpload {
    let (endpoint, target) = try endpoint(encoded, for: item, in: context)
    if settings[Self.method] == .put { try UploadAddress.claim(endpoint.url, in: context) }
    return PreparedUpload(encoded, target: target, caller(endpoint.url), endpoint)
  }

  /// The call for a picture, and what makes it another upload, credentials left out.
  func endpoint(
    _ encoded: Item.Encoded, for item: Item, in context: StageContext
  ) throws(StageError) -> (Endpoint<UploadReceipt>, String) {
    let (url, shown) = try address.address(for: item, in: context)
    if holdsCredential { try UploadAddress.requireSecure(url, settings) }
    var headers: [HeaderField] = []
    for entry in settings[Self.headers] {
      headers.append(
        HeaderField(
          entry.name, try UploadFields.headerValue(entry.template, for: item, in: context),
          isCredential: entry.template.variables.contains(where: \.isSecret)))
    }
    let (body, shownBody) = try body(encoded, for: item, in: context)
    let isNamed = settings[Self.method] == .put
    let (link, deleteLink) = (settings[Self.linkPointer], settings[Self.deletePointer])
    let endpoint = try Endpoint<UploadReceipt>(
      url.authority, HTTPMethod(rawValue: settings[Self.method].rawValue), at: url, headers: headers, body: body,
      authentication: authentication, repeats: repeats, classify: Self.classifier(settings[Self.success])
    ) { response throws(TransportError) in
      try Self.receipt(response, from: url, isNamed: isNamed, link: link, deleteLink: deleteLink)
    }
    return (endpoint, "\(settings[Self.method].rawValue) \(shown)\n\(shownBody)")
  }

  /// What the request carries, and what of it makes it another upload: the values of fields, credentials left out.
  private func body(
    _ encoded: Item.Encoded, for item: Item, in context: StageContext
  ) throws(StageError) -> (RequestBody, String) {
    let payload = Payload(encoded.bytes)
    let type = settings[UploadFields.contentType] ?? encoded.format.mediaType
    var fields: [(name: String, value: String)] = []
    var shown = form.rawValue
    for entry in settings[Self.formFields] {
      let value = try UploadFields.text(entry.template, for: item, in: context)
      fields.append((entry.name, value))
      let isSecret = entry.template.variables.contains(where: \.isSecret)
      shown += "\n\(entry.name)=\(isSecret ? entry.template.text : value)"
    }
    let name = settings[Self.fileField]
    switch form {
    case .raw: return (.raw(payload, type: type), shown)
    case .multipart:
      let fileName = try UploadFields.text(settings[UploadFields.fileName], for: item, in: context)
      let parts = fields.map { Part.text($0.name, $0.value) }
      return (
        .multipart(parts + [.file(name, payload, filename: fileName, type: type)]), "\(shown)\n\(name)=\(fileName)"
      )
    case .urlencoded:
      let texts = fields.map { (name: $0.name, value: Payload($0.value)) }
      return (.form(texts + [(name, .base64(of: payload))]), shown)
    case .json:
      func quoted(_ text: String) -> String { JSONText.string(text).rendered() }
      let texts = fields.map { "\(quoted($0.name)):\(quoted($0.value))," }.joined()
      let body = Payload.joined([
        Payload("{\(texts)\(quoted(name)):\""), .base64(of: payload), Payload("\"}"),
      ])
      return (.raw(body, type: "application/json"), shown)
    }
  }

  /// What answers mean where these statuses are success.
  static func classifier(_ success: [Int]) -> Classifier {
    { response in
      if success.contains(response.status) { return nil }
      if let failure = StandardClassifier.classify(response) { return failure }
      return ServiceFailure(
        .request,
        StandardClassifier.message(
          status: response.status, response.excerpt.isEmpty ? "none of \"successStatuses\"" : response.excerpt),
        status: response.status)
    }
  }

  /// What a successful answer says about the picture.
  static func receipt(
    _ response: Response, from url: RequestURL, isNamed: Bool, link: String?, deleteLink: String?
  ) throws(TransportError) -> UploadReceipt {
    var receipt = UploadReceipt(provider: Self.name, etag: response.headers["ETag"])
    let answer: JSONAnswer? = link != nil || deleteLink != nil ? try response.json() : nil
    if let link, let answer {
      // Some hosts answer with a path.
      receipt.link = try url.resolving(try answer.text(at: link)).text
    } else if isNamed {
      receipt.link = url.origin + url.path
    } else if let location = response.headers["Location"] {
      receipt.link = try? url.resolving(location).text
    }
    if let deleteLink, let answer {
      // Not every upload can be deleted.
      receipt.deleteLink = answer.string(at: deleteLink)
    } else if isNamed, link == nil {
      receipt.deleteLink = url.origin + url.path
    }
    return receipt
  }

  // MARK: - Receipts

  var receiptKeeper: (any ReceiptKeeper)? { Keeper(provider: self) }

  private struct Keeper: ReceiptKeeper {
    let provider: HTTPUpload

    /// What was put to its own name, where that can be told without its query, which receipts do not hold.
    private func place(_ receipt: UploadReceipt) throws(StageError) -> NamedPlace? {
      let settings = provider.settings
      guard settings[HTTPUpload.method] == .put, settings[HTTPUpload.deletePointer] == nil,
        let text = receipt.deleteLink, let url = try? RequestURL(text)
      else { return nil }
      var headers: [HeaderField] = []
      for entry in settings[HTTPUpload.headers] {
        // What is the picture's own has no meaning for another request.
        guard !entry.template.variables.contains(where: { !$0.isSecret }) else { continue }
        let value = try Credential(entry.template).reveal()
        headers.append(HeaderField(entry.name, value, isCredential: true))
      }
      if provider.holdsCredential {
        try UploadAddress.requireSecure(url, settings)
        guard try provider.isOurs(url) else {
          throw StageError(
            "receipt-elsewhere", "the receipt \(receipt.id) is of another host than the job's", kind: .job)
        }
      }
      return NamedPlace(
        host: url.authority, url: url, caller: provider.caller(url), headers: headers,
        authentication: provider.authentication)
    }

    func verify(_ receipt: UploadReceipt) throws(StageError) -> ReceiptFinding {
      if let place = try place(receipt) { return try place.finding(receipt, .command) }
      return try PublicLink.finding(receipt, caller: provider.caller)
    }

    func delete(_ receipt: UploadReceipt) throws(StageError) {
      if let place = try place(receipt) { return try place.delete(receipt, .command) }
      guard let text = receipt.deleteLink, let method = provider.settings[HTTPUpload.deleteMethod],
        let url = try? RequestURL(text)
      else { throw PublicLink.notDeletable(receipt, "the host") }
      // The link itself is what allows it: no credential goes along.
      let endpoint = try Endpoint<Void>(url.authority, HTTPMethod(rawValue: method.rawValue), at: url) { _ in }
      do throws(ServiceFailure) {
        try endpoint.call(provider.caller(url), .command)
      } catch {
        guard error.kind != .notFound else { return }
        throw StageError(error, of: url.authority)
      }
    }
  }

  /// Whether an address lies at the host that the job names itself.
  private func isOurs(_ url: RequestURL) throws(StageError) -> Bool {
    do throws(TransportError) {
      return try address.fixedOrigin()?.isSameOrigin(as: url) ?? false
    } catch { return false }
  }

  // MARK: - Vocabularies

  enum Method: String, FieldChoice {
    case post = "POST"
    case put = "PUT"
    case patch = "PATCH"

    var help: String {
      switch self {
      case .post: "makes something new each time"
      case .put: "stores under the address, and replaces what is there"
      case .patch: "changes what is there"
      }
    }
  }

  enum Form: String, FieldChoice {
    case multipart, raw, urlencoded, json

    var help: String {
      switch self {
      case .multipart: "multipart/form-data, with the picture as a file"
      case .raw: "the picture alone"
      case .urlencoded: "a form without files, with the picture in base64"
      case .json: "an object of texts, with the picture in base64"
      }
    }
  }

  enum DeleteMethod: String, FieldChoice {
    case delete = "DELETE"
    case post = "POST"
    case get = "GET"

    var help: String { "a \(rawValue) to it" }
  }
}
