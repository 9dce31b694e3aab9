import Imaging
import JobSyntax
import PipelineKit
import Synchronization
import Transport

/// `upload` to a folder of a WebDAV server (RFC 4918): PUT, and MKCOL where a folder is missing.
struct WebDAVUpload: UploadProvider {
  static let name = "webdav"
  static let help = "a folder of a WebDAV server, such as Nextcloud's; folders below it are made as needed"

  static let login = Field<Login>.choice("login", default: .auto, when: ours, help: "how user and password are sent")

  private static let ours = FieldCondition("provider", in: [name])

  static let fields: [any FieldDeclaration] = [login]

  static func check(_ settings: Settings) -> [Diagnostic] {
    var findings = UploadAddress.check(settings, holdsCredential: settings.isSet(UploadFields.user))
    if !settings.isSet(UploadFields.endpoint) {
      findings.append(
        settings.diagnostic(
          .error, "missing-key", "\"webdav\" needs \"endpoint\": the folder that pictures are put below"))
    }
    if settings.isSet(login), !settings.isSet(UploadFields.user) {
      findings.append(
        settings.diagnostic(.error, "not-applicable", at: login, "\"login\" is for \"user\" and \"password\""))
    }
    return findings
  }

  private let folder: RequestURL
  private let path: Template
  private let type: String?
  private let publicBase: String?
  private let existing: ExistingUpload
  private let authentication: Authentication?
  private let caller: Caller
  /// Folders of the server that are there.
  private let collections = Collections()

  init(_ settings: Settings, resources: StageResources) throws(StageError) {
    folder = try UploadAddress.endpoint(settings, usual: "")
    path = settings[UploadFields.path]
    type = settings[UploadFields.contentType]
    publicBase = settings[UploadFields.publicURL].flatMap { UploadFields.publicBase($0) }
    existing = settings[UploadFields.overwrite]
    if let user = settings[UploadFields.user], let password = settings[UploadFields.password] {
      try UploadAddress.requireSecure(folder, settings)
      let (name, word) = (try user.reveal(), try password.reveal())
      authentication =
        settings[Self.login] == .basic
        ? .basic(user: name, password: word) : .basicOrDigest(user: name, password: word)
    } else {
      authentication = nil
    }
    let services = resources.services
    caller = services.caller(
      services.pacer("webdav \(folder.authority)", perMinute: settings[UploadFields.perMinute]))
  }

  func prepare(_ encoded: Item.Encoded, for item: Item, in context: StageContext) throws(StageError) -> PreparedUpload {
    let name = try UploadAddress.encoded(try ObjectName.text([path], for: item, in: context))
    let url: RequestURL
    do throws(TransportError) {
      url = try folder.appending(path: name)
    } catch { throw StageError("output-name", "\(name) makes no address: \(error.message)") }
    try UploadAddress.claim(url, in: context)
    let receipt = UploadReceipt(
      provider: Self.name, link: publicBase.map { $0 + name } ?? url.text, deleteLink: url.text)
    let type = type ?? encoded.format.mediaType
    // Also where nothing is replaced: after a lost answer what is there is looked at.
    return PreparedUpload(encoded: encoded, target: url.text, isRepeatable: true) { context throws(StageError) in
      do throws(ServiceFailure) {
        return .sent(try put(encoded, type, at: url, receipt, Waiter(context)))
      } catch {
        guard error.code == WebDAVAnswers.exists, existing != .replace else {
          throw StageError(error, of: folder.authority)
        }
        return try place(url).found(encoded, attempts: error.attempts, existing, receipt, in: context)
      }
    }
  }

  private func place(_ url: RequestURL) -> NamedPlace {
    NamedPlace(host: folder.authority, url: url, caller: caller, authentication: authentication)
  }

  private func put(
    _ encoded: Item.Encoded, _ type: String, at url: RequestURL, _ receipt: UploadReceipt, _ waiter: Waiter
  ) throws(ServiceFailure) -> UploadReceipt {
    func send() throws(ServiceFailure) -> UploadReceipt {
      if existing != .replace {
        // Not every server heeds If-None-Match.
        let isThere = try request(.head, url, waiter, classify: WebDAVAnswers.head)
        if isThere.status != 404 { throw ServiceFailure(.request, "it exists", code: WebDAVAnswers.exists) }
      }
      let response = try request(
        .put, url, waiter, headers: existing == .replace ? [] : [HeaderField("If-None-Match", "*")],
        body: .raw(Payload(encoded.bytes), type: type), classify: WebDAVAnswers.put)
      var receipt = receipt
      receipt.etag = response.headers["ETag"]
      return receipt
    }
    // What was forbidden in making the folders, which counts only where they are not there afterwards.
    var refusal: ServiceFailure?
    // Whoever makes the folders may be another, who has not come to the last one yet.
    for _ in 0..<2 {
      do throws(ServiceFailure) { return try send() } catch {
        guard error.code == WebDAVAnswers.noFolder else { throw error }
        try collections.make(parentOf: url, below: folder) { collection throws(ServiceFailure) in
          let response = try request(.mkcol, collection, waiter, classify: WebDAVAnswers.mkcol)
          if response.status == 403 { refusal = StandardClassifier.classify(response) }
          return response.status
        }
      }
    }
    do throws(ServiceFailure) { return try send() } catch {
      throw error.code == WebDAVAnswers.noFolder ? refusal ?? error : error
    }
  }

  private func request(
    _ method: HTTPMethod, _ url: RequestURL, _ waiter: Waiter, headers: [HeaderField] = [], body: RequestBody = .none,
    classify: @escaping Classifier
  ) throws(ServiceFailure) -> Response {
    try caller.call(
      { _ in
        var request = Request(method, url, headers: headers, body: body)
        request.authentication = authentication
        request.timeouts.total = nil
        return request
      }, repeats: .always, classify: classify, isCancelled: waiter.isCancelled, pause: waiter.pause)
  }

  var receiptKeeper: (any ReceiptKeeper)? {
    NamedKeeper { receipt throws(StageError) in place(try NamedKeeper.url(of: receipt, below: folder)) }
  }

  enum Login: String, FieldChoice {
    case auto, basic

    var help: String {
      switch self {
      case .auto: "as the server asks for, Digest where it has it, which takes one request more"
      case .basic: "at once, as Basic"
      }
    }
  }
}

/// Makes folders at a server as they turn out to be missing.
private final class Collections: Sendable {
  /// Made or found by this run.
  private let known = Mutex<Set<String>>([])

  /// Makes the folder that an address lies in, and those above that are missing, `folder` and what is above it left out.
  ///
  /// - Parameter mkcol: makes one, and answers with the status: 409 where the one above is missing.
  func make(
    parentOf url: RequestURL, below folder: RequestURL,
    mkcol: (RequestURL) throws(ServiceFailure) -> Int
  ) throws(ServiceFailure) {
    let root = folder.path.hasSuffix("/") ? folder.path : folder.path + "/"
    let names = url.path.dropFirst(root.count).split(separator: "/").dropLast()
    func collection(_ depth: Int) throws(ServiceFailure) -> RequestURL {
      do throws(TransportError) {
        // An address of a folder ends in a slash, or servers send on to the one that does.
        return try RequestURL(folder.origin + root + names.prefix(depth).map { $0 + "/" }.joined())
      } catch { throw ServiceFailure(.request, error.message) }
    }
    // From below: as a rule only the last one is missing. When the one above is, one step up.
    var depth = names.count
    var isGoingUp = true
    while depth <= names.count {
      guard depth > 0 else {
        throw ServiceFailure(.notFound, "there is no folder \(folder.display)")
      }
      let address = try collection(depth)
      let isKnown = isGoingUp && depth < names.count && known.withLock { $0.contains(address.text) }
      if !isKnown, try mkcol(address) == 409 {
        // After its parent was made, it is another's business.
        guard isGoingUp else { throw ServiceFailure(.temporary, "the folder \(address.display) cannot be made") }
        depth -= 1
        continue
      }
      known.withLock { _ = $0.insert(address.text) }
      isGoingUp = false
      depth += 1
    }
  }
}

/// What answers of WebDAV servers mean (RFC 4918, and what servers are known to do).
enum WebDAVAnswers {
  /// Codes of failures that are not the end.
  static let exists = "exists"
  static let noFolder = "no-folder"

  static let put: Classifier = { response in
    var failure = StandardClassifier.classify(response)
    switch response.status {
    case 412: failure?.code = exists
    // 409 by the standard; some servers say 404.
    case 409, 404: failure?.code = noFolder
    case 405:
      failure?.message = StandardClassifier.message(
        status: 405, response.excerpt.isEmpty ? "a folder of that name is there" : response.excerpt)
    // Someone else is at it.
    case 423: failure?.kind = .temporary
    default: break
    }
    return failure
  }

  /// 405, and a redirect to the same with a slash, tell that it is there; 409 is for the caller, as is 403, which Apache
  /// also says where somebody else has made the folder between its look and its try.
  static let mkcol: Classifier = { response in
    switch response.status {
    case 403, 405, 409: return nil
    case 301, 302, 307, 308:
      let location = response.headers["Location"].flatMap { try? response.url.resolving($0) }
      func bare(_ path: String) -> Substring { path.hasSuffix("/") ? path.dropLast() : path[...] }
      if let location, bare(location.path) == bare(response.url.path) { return nil }
      return StandardClassifier.classify(response)
    case 423:
      var failure = StandardClassifier.classify(response)
      failure?.kind = .temporary
      return failure
    default: return StandardClassifier.classify(response)
    }
  }

  /// 404 is an answer.
  static let head: Classifier = { response in
    response.status == 404 ? nil : StandardClassifier.classify(response)
  }
}
