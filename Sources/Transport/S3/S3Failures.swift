/// What the answers of S3 services mean: the code in the answer decides, and the status only where there is none.
///
/// Codes: AWS S3 API, "Error responses"; those of MinIO and Ceph where they have their own.
public enum S3Failures {
  /// What is done about a code; nil for one that is not known.
  public static func kind(ofCode code: String) -> FailureKind? {
    if code.hasPrefix("Throttling") { return .rate }
    return kinds[code]
  }

  private static let kinds: [String: FailureKind] = [
    "SlowDown": .rate, "SlowDownRead": .rate, "SlowDownWrite": .rate, "RequestThrottled": .rate,
    "RequestThrottledException": .rate, "RequestLimitExceeded": .rate, "BandwidthLimitExceeded": .rate,
    "TooManyRequestsException": .rate, "LimitExceededException": .rate,

    "InternalError": .temporary, "InternalFailure": .temporary, "ServiceUnavailable": .temporary, "Busy": .temporary,
    "ServerBusy": .temporary, "RequestTimeout": .temporary, "RequestTimeoutException": .temporary,
    "BadDigest": .temporary, "OperationAborted": .temporary, "ConditionalRequestConflict": .temporary,
    "PriorRequestNotComplete": .temporary, "IncompleteBody": .temporary, "ServerNotInitialized": .temporary,
    "XMinioServerNotInitialized": .temporary,

    "AccessDenied": .credentials, "AccountProblem": .credentials, "AllAccessDisabled": .credentials,
    "ExpiredToken": .credentials, "InvalidAccessKeyId": .credentials, "InvalidToken": .credentials,
    "InvalidSecurity": .credentials, "MissingSecurityHeader": .credentials, "NotSignedUp": .credentials,
    "RequestExpired": .credentials, "RequestTimeTooSkewed": .credentials, "SignatureDoesNotMatch": .credentials,
    "TokenRefreshRequired": .credentials, "UnauthorizedAccess": .credentials, "InvalidObjectState": .request,

    "QuotaExceeded": .quota, "XMinioAdminBucketQuotaExceeded": .quota, "XMinioStorageFull": .quota,
    "StorageFull": .quota, "InsufficientStorage": .quota,

    "EntityTooLarge": .tooLarge, "MaxMessageLengthExceeded": .tooLarge,

    "NoSuchKey": .notFound, "NoSuchUpload": .notFound, "NoSuchVersion": .notFound,
    "NoSuchBucket": .request, "PermanentRedirect": .request, "TemporaryRedirect": .request, "Redirect": .request,
    "AuthorizationHeaderMalformed": .request, "AuthorizationQueryParametersError": .request,
    "PreconditionFailed": .request, "NotImplemented": .request, "MissingContentLength": .request,
  ]

  static func kind(ofStatus status: Int) -> FailureKind {
    switch status {
    case 401, 403: .credentials
    case 404, 410: .notFound
    case 413: .tooLarge
    case 507: .quota
    case 429: .rate
    case 501, 505: .request
    case 408, 425, 500...599: .temporary
    default: .request
    }
  }

  /// The failure that an answer is; nil for success. Without a body, as to HEAD, the status alone tells.
  ///
  /// - Parameters:
  ///   - region: the one that the request was signed for, where that is known.
  ///   - readsBody: whether a success is looked into for the error that it may hold, as that of a completed upload may.
  ///   - now: seconds since 1970.
  public static func failure(
    of response: Response, region: String?, readsBody: Bool = false, now: Double
  ) -> ServiceFailure? {
    let isSuccess = (200...299).contains(response.status)
    if isSuccess, !readsBody { return nil }
    let error = errorElement(response.body)
    if isSuccess, error == nil { return nil }
    let code = text(error, "Code")
    let kind = code.flatMap { Self.kind(ofCode: $0) } ?? Self.kind(ofStatus: isSuccess ? 500 : response.status)
    var message = "\(response.status): "
    if let said = text(error, "Message") ?? (error == nil ? nonEmpty(response.excerpt) : nil) {
      message += cleaned(said)
    } else {
      message += code == nil ? words(ofStatus: response.status) : "no reason is given"
    }
    if let code { message += " (\(code))" }
    if let hint = hint(response, error: error, code: code, region: region) { message += "; \(hint)" }
    return ServiceFailure(
      kind, message, status: response.status, code: code,
      wait: kind == .rate || kind == .temporary
        ? RetryAfter.seconds(of: response.headers, now: now, resets: kind == .rate) : nil)
  }

  /// The `<Error>` that a body is, without reading a body that is none.
  private static func errorElement(_ body: [UInt8]) -> XMLElement? {
    guard body.count <= largestError, let root = document(body) else { return nil }
    return root.name == "Error" ? root : root.name == "ErrorResponse" ? root["Error"] : nil
  }

  private static let largestError = 1 << 20

  /// The XML that a body is; nil where it is none.
  static func document(_ body: [UInt8]) -> XMLElement? {
    // Services send white space while they work, and some a byte order mark.
    let start = body.firstIndex { ![0x20, 0x09, 0x0A, 0x0D, 0xEF, 0xBB, 0xBF].contains($0) }
    guard let start, body[start] == UInt8(ascii: "<") else { return nil }
    return try? XMLAnswer.read(start == 0 ? body : Array(body[start...]))
  }

  private static func text(_ error: XMLElement?, _ name: String) -> String? {
    error?[name].flatMap { nonEmpty($0.text) }
  }

  private static func nonEmpty(_ text: String) -> String? { text.isEmpty ? nil : text }

  /// On one line, of at most 300 characters.
  private static func cleaned(_ text: String) -> String {
    let words = text.split {
      $0.isWhitespace || $0.unicodeScalars.contains { $0.properties.generalCategory == .control }
    }
    let line = words.joined(separator: " ")
    return line.count > 300 ? line.prefix(299) + "…" : line
  }

  private static func words(ofStatus status: Int) -> String {
    switch status {
    case 301, 307: "the bucket is elsewhere"
    case 403: "access is refused"
    case 404: "there is no such object"
    case 412: "a condition does not hold"
    default: "no reason is given"
    }
  }

  private static func hint(_ response: Response, error: XMLElement?, code: String?, region: String?) -> String? {
    let told = text(error, "Region") ?? response.headers["x-amz-bucket-region"].flatMap { nonEmpty($0) }
    if let told, let region, told != region { return "the bucket is in the region \(cleaned(told)), not \(region)" }
    switch code {
    case "PermanentRedirect", "TemporaryRedirect", "Redirect":
      return text(error, "Endpoint").map { "its endpoint is \(cleaned($0))" }
    case "RequestTimeTooSkewed":
      let date = response.headers["Date"].map { "; the server's says \(cleaned($0))" } ?? ""
      return "the clock of this machine is wrong" + date
    case "AccessControlListNotSupported": return "leave \"acl\" out"
    case "SignatureDoesNotMatch": return "the secret key is not that of the key id, or a proxy changes the request"
    default: break
    }
    guard code == nil, (300...399).contains(response.status), let place = response.headers["Location"] else {
      return nil
    }
    return "it leads to \(cleaned(String(place.prefix { $0 != "?" })))"
  }
}
