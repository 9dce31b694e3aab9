/// What an answer or a lost connection means for the caller; one vocabulary for all services.
public enum FailureKind: String, Sendable, CaseIterable {
  /// The key, token or signature is not accepted, or does not allow this.
  case credentials
  /// The service cannot use the picture.
  case badPicture
  /// The picture, or what is sent, is too large.
  case tooLarge
  /// Credits or storage are used up.
  case quota
  /// Too many requests.
  case rate
  /// It may work later, as it is.
  case temporary
  /// The request is wrong, or the answer is none that the service gives.
  case request
  case notFound
  case cancelled
  /// The service asks to wait longer than a run does.
  case putOff
  /// The body may have arrived, and there is no telling what came of it.
  case unknown
}

/// Why a call to a service came to nothing.
public struct ServiceFailure: Error, Sendable, Hashable, CustomStringConvertible {
  public var kind: FailureKind
  /// As "403: Invalid key (auth_failed)": clean, without registered secrets.
  public var message: String {
    didSet { message = Secrets.redacted(message) }
  }
  /// Of the answer, where there was one.
  public var status: Int?
  /// The service's own word for it.
  public var code: String?
  /// How many requests were sent.
  public var attempts: Int
  /// Seconds that the service asked to wait.
  public var wait: Double?

  public init(
    _ kind: FailureKind, _ message: String, status: Int? = nil, code: String? = nil, attempts: Int = 1,
    wait: Double? = nil
  ) {
    self.kind = kind
    self.message = Secrets.redacted(message)
    self.status = status
    self.code = code
    self.attempts = attempts
    self.wait = wait
  }

  public var description: String { message }
}

/// What a service's answer is: nil for success.
public typealias Classifier = @Sendable (Response) -> ServiceFailure?

/// What answers mean where a service says nothing else: 2xx is success, a redirect names where it leads, the rest by
/// status (RFC 9110, section 15).
public enum StandardClassifier {
  public static func classify(_ response: Response) -> ServiceFailure? {
    guard let kind = kind(ofStatus: response.status) else { return nil }
    var words = response.excerpt
    if 300...399 ~= response.status {
      let target = response.headers["Location"].map { location in
        // Its query may hold anything.
        (try? response.url.resolving(location))?.display ?? "what is no address"
      }
      words = "it sends on to \(target ?? "nowhere"), which is not followed here"
    }
    let isWorthWaiting = [.rate, .temporary].contains(kind)
    return ServiceFailure(
      kind, message(status: response.status, words), status: response.status,
      wait: isWorthWaiting
        ? RetryAfter.seconds(of: response.headers, now: RetryAfter.wallClock(), resets: kind == .rate) : nil)
  }

  /// `403: words (code)`; where the service has no words, what the status means.
  public static func message(status: Int, _ words: String, code: String? = nil) -> String {
    let said = words.isEmpty ? meaning(ofStatus: status) : words
    let code = code.flatMap { $0.isEmpty || said.contains($0) ? nil : " (\($0))" } ?? ""
    return "\(status): \(said)\(code)"
  }

  /// Nil for success.
  public static func kind(ofStatus status: Int) -> FailureKind? {
    switch status {
    case 200...299: nil
    case 401, 403, 407: .credentials
    case 402, 507: .quota
    case 404, 410: .notFound
    case 413: .tooLarge
    case 415: .badPicture
    case 429: .rate
    case 408, 425, 500, 502, 503, 504: .temporary
    default: .request
    }
  }

  private static func meaning(ofStatus status: Int) -> String {
    switch status {
    case 400: "the request is not understood"
    case 401: "credentials are missing or wrong"
    case 402: "it must be paid for"
    case 403: "access is refused"
    case 404, 410: "there is no such thing"
    case 405: "this cannot be done there"
    case 407: "the proxy wants credentials"
    case 408: "the server waited too long"
    case 409: "it conflicts with what is there"
    case 412: "a condition is not met"
    case 413: "it is too large"
    case 415: "the type is not supported"
    case 422: "the request cannot be processed"
    case 423: "it is locked"
    case 429: "too many requests"
    case 500...599: "the server has trouble"
    default: "the server refuses"
    }
  }
}
