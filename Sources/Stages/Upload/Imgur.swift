import Digest
import Imaging
import JobSyntax
import PipelineKit
import Transport

/// `upload` to Imgur (API version 3).
struct ImgurUpload: UploadProvider {
  static let name = "imgur"
  /// As people call it.
  static let service = "Imgur"
  static let help = "Imgur, anonymously or for an account"

  static let clientID = Field<Credential?>.credential(
    "clientId", when: ours, help: "the application's Client-ID: for uploads without an account, and to renew a token")
  static let accessToken = Field<Credential?>.credential(
    "accessToken", when: ours, help: "an account's token, which is sent as Bearer; it lives about a month")
  static let refreshToken = Field<Credential?>.credential(
    "refreshToken", when: ours, help: "what a new token is had for once, when the old one is refused")
  static let clientSecret = Field<Credential?>.credential(
    "clientSecret", when: ours, help: "the application's secret, beside clientId and refreshToken")
  static let album = Field<Template?>.template(
    "album", when: ours, allowsSecrets: true,
    help: "the album: its id with an account, the deletehash of an anonymous one")
  static let title = Field<Template?>.template("title", when: ours, help: "the picture's title")
  static let description = Field<Template?>.template("description", when: ours, help: "the picture's description")
  static let convert = Field<Conversion>.choice(
    "convert", default: .auto, when: ours,
    help: "what a picture becomes whose format Imgur does not take: it takes JPEG, PNG, GIF and TIFF")
  static let mostBytes = Field<Int>.integer(
    "maxUploadBytes", in: 1...1_000_000_000, default: 10_000_000, unit: "bytes", when: ours,
    help: "larger pictures are refused before they are sent; Imgur names 10 MB, and has been seen to take more")

  private static let ours = FieldCondition("provider", in: [name])

  static let fields: [any FieldDeclaration] = [
    clientID, accessToken, refreshToken, clientSecret, album, title, description, convert, mostBytes,
  ]

  /// Every upload counts against the limits of the account and the address it comes from.
  static let concurrency: Int? = 2

  // MARK: - Rules

  static func check(_ settings: Settings) -> [Diagnostic] {
    var findings = UploadAddress.check(settings, holdsCredential: true)
    func report(_ field: (any FieldDeclaration)?, _ code: String, _ message: String, hint: String? = nil) {
      findings.append(settings.diagnostic(.error, code, at: field, message, hint: hint))
    }
    if !settings.isSet(clientID), !settings.isSet(accessToken) {
      report(nil, "missing-key", "\"imgur\" needs \"clientId\", or an account's \"accessToken\"")
    }
    if settings.isSet(refreshToken) {
      for field in [accessToken, clientID, clientSecret] where !settings.isSet(field) {
        report(refreshToken, "missing-key", "\"refreshToken\" needs \"\(field.name)\" beside it")
      }
    } else if settings.isSet(clientSecret) {
      report(clientSecret, "not-applicable", "\"clientSecret\" is for \"refreshToken\"")
    }
    return findings
  }

  // MARK: - Sending

  private let base: RequestURL
  private let access: ImgurAccess
  private let form: PictureForm
  private let sourceURL: Template?
  private let fileName: Template
  private let album: Template?
  private let texts: [(name: String, template: Template)]
  private let conversion: Conversion
  private let mostBytes: Int
  private let limits: DecodeLimits
  private let caller: Caller

  init(_ settings: Settings, resources: StageResources) throws(StageError) {
    base = try UploadAddress.endpoint(settings, usual: "https://api.imgur.com/3")
    try UploadAddress.requireSecure(base, settings)
    let id = try settings[Self.clientID].map { credential throws(StageError) in try credential.reveal() }
    let services = resources.services
    var renewal: ImgurAccess.Renewal?
    if let id, let token = settings[Self.refreshToken], let secret = settings[Self.clientSecret] {
      renewal = .init(
        url: try Self.tokenAddress(base), clientID: id, clientSecret: try secret.reveal(),
        refreshToken: try token.reveal())
    }
    let account: String
    if let token = settings[Self.accessToken] {
      account = try token.reveal()
      access = ImgurAccess(bearer: account, renewal)
    } else if let id {
      account = id
      access = ImgurAccess(clientID: id)
    } else {
      throw StageError("internal-fault", "imgur without a credential", kind: .job)
    }
    form = settings[UploadFields.form]
    sourceURL = settings[UploadFields.sourceURL]
    fileName = settings[UploadFields.fileName]
    album = settings[Self.album]
    if let album {
      for case .secret(let name) in album.variables {
        if let secret = Template.parse("${secret.\(name)}").template { _ = try Credential(secret).reveal() }
      }
    }
    texts = [("title", settings[Self.title]), ("description", settings[Self.description])]
      .compactMap { name, template in template.map { (name, $0) } }
    conversion = settings[Self.convert]
    mostBytes = settings[Self.mostBytes]
    limits = resources.decodeLimits
    // One for each account, named without it.
    let mark = Hex.text(SHA256.digest(of: Array(account.utf8)).prefix(8))
    caller = services.caller(
      services.pacer("imgur \(base.authority) \(mark)", perMinute: settings[UploadFields.perMinute]))
  }

  /// Tokens are had beside the interface's versions, not below one.
  private static func tokenAddress(_ base: RequestURL) throws(StageError) -> RequestURL {
    do throws(TransportError) {
      return try RequestURL(base.origin + "/oauth2/token")
    } catch { throw StageError("upload-address", error.message, kind: .job) }
  }

  func prepare(_ encoded: Item.Encoded, for item: Item, in context: StageContext) throws(StageError) -> PreparedUpload {
    let sent = form == .url ? encoded : try taken(encoded, context)
    var shown = "\(base.origin)\(base.path)\n\(form.rawValue)\n\(access.isAnonymous ? "anonymous" : "account")"
    var fields: [(name: String, value: String)] = []
    func add(_ name: String, _ template: Template) throws(StageError) {
      let value = try UploadFields.text(template, for: item, in: context)
      fields.append((name, value))
      shown += "\n\(name)=\(template.variables.contains(where: \.isSecret) ? template.text : value)"
    }
    if let album { try add("album", album) }
    for (name, template) in texts { try add(name, template) }
    try add("name", fileName)
    var address: String?
    if form == .url, let sourceURL {
      let text = try UploadFields.text(sourceURL, for: item, in: context)
      address = try PictureRequest.checked(text)
      shown += "\n\(text)"
    }
    let body = PictureRequest(form: form, address: address).body(
      "image", sent, fileName: fields.last?.value ?? "", typeField: "type", before: [], after: fields)
    let prepared = (base: base, access: access, caller: caller)
    return PreparedUpload(encoded: sent, target: shown, isRepeatable: false) { context throws(StageError) in
      let (base, access, caller) = prepared
      do throws(ServiceFailure) {
        let receipt = try access.call(caller, Waiter(context)) { authorization throws(StageError) in
          try Endpoint<UploadReceipt>(
            Self.service, .post, at: base, "image", headers: [authorization], body: body,
            classify: ImgurAnswers.classifier(caller.pacer)
          ) { response throws(TransportError) in
            try ImgurAnswers.receipt(try response.json(), isAnonymous: access.isAnonymous)
          }
        }
        return .sent(receipt)
      } catch { return try UploadResult(error, of: Self.service, isRepeatable: false) }
    }
  }

  /// The picture in a format that Imgur takes.
  ///
  /// - Throws: `service-picture` where it is not to be converted, `service-too-large`.
  private func taken(_ encoded: Item.Encoded, _ context: StageContext) throws(StageError) -> Item.Encoded {
    var encoded = encoded
    if ![.jpeg, .png, .gif, .tiff].contains(encoded.format) {
      guard conversion != .never else {
        throw StageError(
          "service-picture", "\(Self.service) does not take \(encoded.format.displayName)",
          hint: "encode as JPEG or PNG, or leave \"convert\" out")
      }
      let from = encoded.format
      do throws(ImagingError) {
        encoded = try conversion.converted(encoded, limits) { code, words in context.warn(code, words) }
      } catch { throw StageError(error) }
      context.note(
        context.stage,
        .object([("sentAs", .string(encoded.format.rawValue)), ("encodedAs", .string(from.rawValue))]))
    }
    guard encoded.bytes.count <= mostBytes else {
      throw StageError(
        "service-too-large",
        "\(Self.service) takes pictures of \(mostBytes) bytes, and this \(encoded.format.displayName) has "
          + "\(encoded.bytes.count)", hint: "set \"maxBytes\" of \"encode\", or raise \"maxUploadBytes\"")
    }
    return encoded
  }

  // MARK: - Receipts

  var receiptKeeper: (any ReceiptKeeper)? { Keeper(base: base, access: access, caller: caller) }

  private struct Keeper: ReceiptKeeper {
    let base: RequestURL
    let access: ImgurAccess
    let caller: Caller

    func verify(_ receipt: UploadReceipt) throws(StageError) -> ReceiptFinding {
      try PublicLink.finding(receipt, caller: { _ in caller }) { response in
        // What was deleted leads to a picture that says so.
        response.url.path.hasSuffix("/removed.png")
      }
    }

    func delete(_ receipt: UploadReceipt) throws(StageError) {
      guard let name = receipt.deleteLink else { throw PublicLink.notDeletable(receipt, ImgurUpload.service) }
      do throws(ServiceFailure) {
        try access.call(caller, .command) { authorization throws(StageError) in
          try Endpoint<Void>(
            ImgurUpload.service, .delete, at: base, "image/{name}", ["name": name], headers: [authorization],
            classify: ImgurAnswers.classifier(caller.pacer)
          ) { _ in }
        }
      } catch {
        guard error.kind != .notFound else { return }
        throw StageError(error, of: ImgurUpload.service)
      }
    }
  }

  /// What pictures become that Imgur does not take.
  enum Conversion: String, FieldChoice {
    case auto, jpeg, png, never

    var help: String {
      switch self {
      case .auto: "PNG where it has transparency, GIF where it moves, else JPEG of quality 90"
      case .jpeg: "JPEG of quality 90, on white"
      case .png: "PNG"
      case .never: "nothing: the picture fails before it is sent"
      }
    }

    func converted(
      _ encoded: Item.Encoded, _ limits: DecodeLimits, warn: (_ code: String, _ words: String) -> Void
    ) throws(ImagingError) -> Item.Encoded {
      let source = try EncodedPicture(
        bytes: encoded.bytes, options: DecodeOptions(limits: limits, frames: self == .auto ? .all : .first))
      if source.isAnimation {
        let strip = try source.animation().strip()
        return .init(
          bytes: try strip.encoded(.gif(.init()), metadata: .copyright), format: .gif, width: encoded.width,
          height: encoded.height)
      }
      var image = try source.pixels().converted(to: .srgb).withDepth(8)
      let isOpaque = image.hasAlpha ? try image.isOpaque() : true
      guard self == .png || self == .auto && !isOpaque else {
        if image.hasAlpha {
          if isOpaque {
            image = try image.withoutAlpha()
          } else {
            image = try image.flattened(RGBA(255, 255, 255))
            warn("flattened", "JPEG has no transparency: the picture was laid on #ffffff")
          }
        }
        return .init(
          bytes: try image.encoded(.jpeg(.init(quality: 90)), metadata: .copyright), format: .jpeg,
          width: image.width, height: image.height)
      }
      return .init(
        bytes: try image.encoded(.png(.init()), metadata: .copyright), format: .png, width: image.width,
        height: image.height)
    }
  }
}
