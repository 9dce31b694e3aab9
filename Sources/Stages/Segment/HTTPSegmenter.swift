import Imaging
import JobSyntax
import PipelineKit
import Transport

/// Any service that takes a picture and answers with a cut-out or a mask.
struct HTTPSegmenter: Segmenter {
  static let provider = "http"

  private static let isChosen = FieldCondition("provider", in: ["http"])

  enum Method: String, FieldChoice {
    case post = "POST"
    case put = "PUT"

    var help: String { self == .post ? "as forms are sent" : "as a whole body may be sent" }
    var method: HTTPMethod { self == .post ? .post : .put }
  }

  enum AnswerKind: String, FieldChoice {
    case image, mask, json

    var help: String {
      switch self {
      case .image: "a picture with transparency"
      case .mask: "a grey picture, white where the subject is"
      case .json: "JSON; `pointer` says where the picture is, in base64 or by its address"
      }
    }
  }

  static let url = Field<Template?>.template(
    "url", when: isChosen, allowsSecrets: true, help: "where the picture is sent")
  static let method = Field<Method>.choice("method", default: .post, when: isChosen, help: "the request's method")
  static let fileField = Field<String>.text(
    "fileField", default: "file", when: isChosen,
    help: "the name of the form's field, or of the object's member, with the picture")
  static let fields = Field<[NamedTemplate]>.templates(
    "fields", when: isChosen, allowsSecrets: true, help: "further fields of the form, or members of the object")
  static let headers = Field<[NamedTemplate]>.templates(
    "headers", when: isChosen, allowsSecrets: true,
    help: "further fields of the request's head, such as { \"Authorization\": \"Bearer ${secret.TOKEN}\" }")
  static let sends = Field<ServicePicture.Format>.choice(
    "send", default: .jpeg, when: isChosen, help: "how the picture is packed")
  static let answer = Field<AnswerKind>.choice("answer", default: .image, when: isChosen, help: "what comes back")
  static let pointer = Field<String?>.text(
    "pointer", when: FieldCondition("answer", in: ["json"]),
    help: "a JSON pointer (RFC 6901) to the picture, such as /data/0/image")
  static let allowPrivate = Field<Bool>.boolean(
    "allowPrivate", default: false, when: FieldCondition("answer", in: ["json"]),
    help:
      "whether a picture that the answer names may lie in a private network, other than at the service's own address")
  static let price = Field<Double>.number(
    "price", in: 0...1000, default: 0, unit: "credits", when: isChosen,
    help: "what a picture costs at most; above 0 the job needs a `budget`, and no picture is paid for twice")

  static let all: [any FieldDeclaration] = [
    url, method, fileField, fields, headers, sends, answer, pointer, allowPrivate, price,
  ]

  static func check(_ settings: Settings) -> [Diagnostic] {
    var findings = ServiceFields.check(settings)
    func error(_ code: String, at field: (any FieldDeclaration)?, _ message: String, hint: String? = nil) {
      findings.append(settings.diagnostic(.error, code, at: field, message, hint: hint))
    }
    if !settings.isSet(url) {
      error(
        "missing-key", at: nil, "the provider \"http\" needs \"url\"",
        hint: #"such as "url": "https://cut.example.com/v1""#)
    } else if let template = settings[url], template.variables.isEmpty {
      let text = String(decoding: template.render { _ in nil } ?? [], as: UTF8.self)
      do throws(TransportError) { _ = try RequestURL(text) } catch { note(error, at: url, settings, &findings) }
    }
    let templates = settings[headers].map(\.template) + settings[fields].map(\.template)
    if let address = settings[url],
      ([address] + templates).contains(where: { $0.variables.contains(where: \.isSecret) })
    {
      findings += ServiceFields.checkCredentials(address, at: url, settings)
    }
    if settings[answer] == .json, !settings.isSet(pointer) {
      error("missing-key", at: answer, "\"answer\": \"json\" needs \"pointer\"", hint: #"such as "pointer": "/image""#)
    }
    if let text = settings[pointer], !text.isEmpty, !text.hasPrefix("/") {
      error(
        "wrong-value", at: pointer, "\"pointer\" is a JSON pointer, which begins with a slash", hint: "\"/\(text)\"")
    }
    if settings[ServiceFields.request] == .raw {
      for field in [fields as any FieldDeclaration, fileField] where settings.isSet(field) {
        error("not-applicable", at: field, "\"\(field.name)\" has no meaning where the picture is the whole body")
      }
    }
    if settings[answer] == .mask, settings.isSet(ServiceFields.channels), settings[ServiceFields.channels] == .rgba {
      error("not-applicable", at: ServiceFields.channels, "a mask has no colours: \"channels\" can only be \"alpha\"")
    }
    for header in settings[headers] {
      let name = header.name.lowercased()
      if ["content-type", "content-length", "host", "transfer-encoding", "connection", "expect"].contains(name) {
        error("not-applicable", at: headers, "\"\(header.name)\" is set by the request's form")
      }
    }
    return findings
  }

  private static func note(
    _ error: TransportError, at field: any FieldDeclaration, _ settings: Settings, _ findings: inout [Diagnostic]
  ) {
    findings.append(settings.diagnostic(.error, "wrong-value", at: field, "\"\(field.name)\": \(error.message)"))
  }

  let name: String
  let maker = "http"

  let request: String?
  private let settings: Settings
  private let url: Template
  private let resources: ServiceResources
  private let timeouts: Timeouts
  private let price: Double

  init(_ settings: Settings, resources: StageResources) throws(StageError) {
    self.settings = settings
    guard let url = settings[Self.url] else {
      throw StageError("internal-fault", "the provider http has no address", kind: .job)
    }
    self.url = url
    self.resources = resources.services
    price = settings[Self.price]
    let silence = Double(settings[ServiceFields.timeout] ?? 120)
    timeouts = Timeouts(connect: 30, stall: silence, total: silence + 600)
    let counting: [any FieldDeclaration] = [
      Self.url, Self.method, Self.fileField, Self.fields, Self.headers, Self.sends, Self.answer, ServiceFields.request,
      ServiceFields.imageURL, ServiceFields.maxSide,
    ]
    request = "\(Self.provider) \(ObjectShape(counting).effective(settings.nodes).rendered())"
    // Of the address no more than its beginning, up to what is filled in.
    name = Self.host(of: url)
    // Better now than on the first picture.
    let templates = [url] + settings[Self.headers].map(\.template) + settings[Self.fields].map(\.template)
    for template in templates {
      for case .secret(let name) in template.variables {
        guard let secret = Template.parse("${secret.\(name)}").template else { continue }
        _ = try Credential(secret).reveal()
      }
    }
  }

  private static func host(of url: Template) -> String {
    guard case .literal(let bytes) = url.segments.first,
      let address = try? RequestURL(String(decoding: bytes, as: UTF8.self))
    else { return "http" }
    return address.authority
  }

  func begin(
    _ picture: Image, of item: Item, kept: KeptResults?, in context: StageContext
  ) throws(StageError) -> SegmenterStep {
    let isPaid = price > 0
    if let known = kept?.find(paid: isPaid).flatMap({ ServiceAnswer($0) }) {
      return try picked(known, picture, kept, context)
    }
    let request = try call(for: picture, of: item, context)
    let account = request.url.authority
    if isPaid, let reason = context.services?.closure(of: account) {
      throw StageError("limit-reached", reason, kind: .budget)
    }
    let caller = resources.caller(resources.pacer("http \(account)"))
    return .exchange { context throws(StageError) in
      guard isPaid else {
        do throws(ServiceFailure) {
          let response = try context.call(caller, repeats: .always, classify: classify) { _ in request }
          let answer = ServiceAnswer(response, keeping: [])
          return .compute { context throws(StageError) in try picked(answer, picture, kept, context) }
        } catch {
          throw StageError(error, of: name)
        }
      }
      let answer = try context.payOnce(provider: Self.provider, account: account, amount: price, kept: kept) {
        () throws(StageError) in try pay(request, caller, account, context)
      }
      switch answer {
      case .unknown(let receipt): return .ended(.unknown(receipt: receipt))
      case .result(let bytes, _):
        guard let answer = ServiceAnswer(bytes) else {
          throw StageError("service-answer", "what was kept of the answer of \(name) cannot be read")
        }
        return .compute { context throws(StageError) in try picked(answer, picture, kept, context) }
      }
    }
  }

  private func pay(
    _ request: Request, _ caller: Caller, _ account: String, _ context: StageContext
  ) throws(StageError) -> CallResult {
    do throws(ServiceFailure) {
      let response = try context.call(caller, repeats: .unlessArrived, classify: classify) { _ in request }
      return .answered(ServiceAnswer(response, keeping: []).packed, charged: nil)
    } catch {
      if error.kind == .unknown { return .unknown(error.message) }
      let failure = StageError(error, of: name)
      if [.quota, .credentials].contains(error.kind) {
        context.services?.close(account: account, reason: failure.message)
      }
      return .failed(failure)
    }
  }

  private func call(for picture: Image, of item: Item, _ context: StageContext) throws(StageError) -> Request {
    func text(_ template: Template) throws(StageError) -> String {
      String(decoding: try context.render(template, for: item), as: UTF8.self)
    }
    let form = settings[ServiceFields.request]
    let source: ServiceForm.Picture
    if form.source == .url, let template = settings[ServiceFields.imageURL] {
      let address = try ServiceFields.address(template, of: item, context)
      source = .address(name: settings[Self.fileField], address.text)
    } else {
      var limits = ServicePicture.Limits()
      limits.usefulSide = settings[ServiceFields.maxSide] ?? .max
      source = .bytes(
        try ServicePicture(picture, as: settings[Self.sends], within: limits).file(settings[Self.fileField]))
    }
    var fields: [(name: String, value: ServiceForm.Value)] = []
    for field in settings[Self.fields] { fields.append((field.name, .text(try text(field.template)))) }
    var headers: [HeaderField] = []
    for header in settings[Self.headers] {
      headers.append(
        HeaderField(
          header.name, try text(header.template),
          isCredential: header.template.variables.contains(where: \.isSecret)))
    }
    let address = try ServiceFields.address(url, of: item, context)
    var request = Request(
      settings[Self.method].method, address, headers: headers,
      body: ServiceForm(picture: source, fields: fields).body(form.body, isBase64: form.source == .base64))
    request.timeouts = timeouts
    request.accept = settings[Self.answer] == .json ? "application/json" : "image/*"
    return request
  }

  private func classify(_ response: Response) -> ServiceFailure? {
    guard response.isSuccess else { return StandardClassifier.classify(response) }
    let isReadable =
      settings[Self.answer] == .json
      ? (try? JSONAnswer(response.body)) != nil : ServiceAnswer.looksLikePicture(response.body)
    guard !isReadable else { return nil }
    let what = settings[Self.answer] == .json ? "no JSON" : "no picture"
    let words = response.excerpt
    // Where it costs, it may have been charged.
    return ServiceFailure(
      price > 0 ? .unknown : .request,
      StandardClassifier.message(
        status: response.status, "the answer is \(what)" + (words.isEmpty ? "" : ": \(words)")), status: response.status
    )
  }

  // MARK: The answer

  /// Goes on with an answer: with the picture in it, or with the one that it names.
  private func picked(
    _ answer: ServiceAnswer, _ picture: Image, _ kept: KeptResults?, _ context: StageContext
  ) throws(StageError) -> SegmenterStep {
    guard settings[Self.answer] == .json else { return .found(try absorb(answer.body, picture)) }
    let pointer = settings[Self.pointer] ?? ""
    let bytes: [UInt8]
    do throws(TransportError) {
      let json = try JSONAnswer(answer.body)
      // A long text is base64, and reads as empty here.
      if let text = json.node(at: pointer)?.stringValue, text.hasPrefix("http://") || text.hasPrefix("https://") {
        return .exchange { context throws(StageError) in try fetched(text, picture, kept, context) }
      }
      guard let found = try json.base64(at: pointer) else {
        throw TransportError(.failed, "the answer has no text at \(pointer.isEmpty ? "its root" : pointer)")
      }
      bytes = found
    } catch {
      throw StageError("service-answer", "\(name): \(error.message)")
    }
    return .found(try absorb(bytes, picture))
  }

  /// Gets the picture that an answer names. No credential goes along; only the service's own address may be private.
  private func fetched(
    _ text: String, _ picture: Image, _ kept: KeptResults?, _ context: StageContext
  ) throws(StageError) -> SegmenterStep {
    let own = kept?.narrowed(by: Array("fetched".utf8))
    let isPaid = price > 0
    if let known = own?.find(paid: isPaid) {
      return .compute { _ throws(StageError) in .found(try absorb(known, picture)) }
    }
    let address: RequestURL
    do throws(TransportError) { address = try RequestURL(text) } catch {
      throw StageError("service-answer", "\(name) answered with an address that is none: \(error.message)")
    }
    var request = Request(.get, address)
    request.allowsPrivateAddresses = settings[Self.allowPrivate] || isOwn(address)
    request.redirects = .follow(most: 5)
    request.timeouts = timeouts
    request.accept = "image/*"
    let ready = request
    let caller = resources.caller(resources.pacer("http \(address.authority)"))
    let body: [UInt8]
    do throws(ServiceFailure) {
      body = try context.call(caller, repeats: .always, classify: Self.classifyFetched) { _ in ready }.body
    } catch {
      throw StageError(error, of: "the picture at \(address.display)")
    }
    // Such addresses do not last, and what they hold was paid for.
    if isPaid { try own?.keep(body, paid: true) }
    return .compute { _ throws(StageError) in .found(try absorb(body, picture)) }
  }

  private static let classifyFetched: Classifier = { response in
    guard response.isSuccess else { return StandardClassifier.classify(response) }
    return ServiceAnswer.looksLikePicture(response.body)
      ? nil
      : ServiceFailure(
        .request, StandardClassifier.message(status: response.status, "it is no picture"), status: response.status)
  }

  /// Whether an address lies at the service's own scheme, host and port, which the job has named.
  private func isOwn(_ address: RequestURL) -> Bool {
    guard case .literal(let bytes) = url.segments.first,
      let own = try? RequestURL(String(decoding: bytes, as: UTF8.self))
    else { return false }
    return own.isSameOrigin(as: address)
  }

  private func absorb(_ bytes: [UInt8], _ picture: Image) throws(StageError) -> FoundMatte? {
    let image = try FoundMatte.decoded(bytes, from: name)
    let meaning: ServiceMask.Meaning =
      switch settings[Self.answer] {
      case .image: .alpha
      case .mask: .either
      case .json: settings[ServiceFields.channels] == .rgba ? .alpha : .either
      }
    return try FoundMatte.answered(
      image, settings[ServiceFields.channels], meaning, for: picture, provider: Self.provider, model: nil)
  }
}
