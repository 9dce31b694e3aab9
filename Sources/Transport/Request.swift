/// A field of a request's head.
public struct HeaderField: Sendable, Hashable, CustomStringConvertible {
  public let name: String
  public let value: String
  /// Not to be shown, nor sent to another server than the one it is for.
  public let isCredential: Bool

  /// A name that is no token, and line breaks or other control characters in the value, are refused when it is sent.
  /// `Authorization`, `Cookie`, and the like are credentials in any case.
  public init(_ name: String, _ value: String, isCredential: Bool = false) {
    self.name = name
    self.value = value
    self.isCredential = isCredential || Self.credentials.contains { isSameName($0, name) }
  }

  private static let credentials = [
    "Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "X-Amz-Security-Token", "X-Auth-Token",
    "X-Amz-Server-Side-Encryption-Customer-Key",
  ]

  /// The value of a credential is left out.
  public var description: String { isCredential ? "\(name): ***" : Secrets.redacted("\(name): \(value)") }

  var isSendable: Bool { Self.isToken(name) && isFieldValue(value) }

  /// RFC 9110, section 5.6.2.
  static func isToken(_ name: String) -> Bool {
    !name.isEmpty
      && name.utf8.allSatisfy { byte in
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
        default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
        }
      }
  }
}

public struct HTTPMethod: RawRepresentable, Sendable, Hashable {
  public let rawValue: String
  public init(rawValue: String) { self.rawValue = rawValue }

  public static let get = HTTPMethod(rawValue: "GET")
  public static let head = HTTPMethod(rawValue: "HEAD")
  public static let put = HTTPMethod(rawValue: "PUT")
  public static let post = HTTPMethod(rawValue: "POST")
  public static let delete = HTTPMethod(rawValue: "DELETE")
  public static let mkcol = HTTPMethod(rawValue: "MKCOL")
  public static let propfind = HTTPMethod(rawValue: "PROPFIND")
  public static let options = HTTPMethod(rawValue: "OPTIONS")

  /// Whether twice is the same as once (RFC 9110, section 9.2.2; RFC 4918 for WebDAV's).
  public var isIdempotent: Bool { Self.idempotent.contains(self) }

  private static let idempotent: Set<HTTPMethod> = [.get, .head, .put, .delete, .mkcol, .propfind, .options]
}

/// What is done with an answer that sends on to another address.
public enum RedirectPolicy: Sendable {
  /// It is the answer.
  case refuse
  /// GET and HEAD go on, at most so many times; never from https to http. On change of scheme, host or port everything
  /// that is a credential stays behind, for good. `check` sees each address first, and may throw.
  case follow(most: Int, check: (@Sendable (RequestURL) throws(TransportError) -> Void)? = nil)
}

public enum Authentication: Sendable {
  /// Sent at once.
  case basic(user: String, password: String)
  /// Sent when the server has said which it wants, the better one if both.
  case basicOrDigest(user: String, password: String)
  /// Sent at once.
  case bearer(String)
}

/// Seconds.
public struct Timeouts: Sendable, Hashable {
  /// For finding the host, connecting, and the handshake.
  public var connect = 30.0
  /// Without a byte in either direction, once connected.
  public var stall = 60.0
  /// For all of it, redirects included; nil for no bound.
  public var total: Double? = 600

  public init(connect: Double = 30, stall: Double = 60, total: Double? = 600) {
    self.connect = connect
    self.stall = stall
    self.total = total
  }
}

/// A request to be sent by a `Client`.
public struct Request: Sendable {
  public var method: HTTPMethod
  public var url: RequestURL
  public var headers: [HeaderField]
  public var body: RequestBody
  public var authentication: Authentication?
  /// Methods other than GET and HEAD are never sent on.
  public var redirects = RedirectPolicy.refuse
  public var timeouts = Timeouts()
  /// The longest answer, decoded, that is taken; beyond it the request fails with `tooLarge`.
  public var maxAnswerBytes = 256 << 20
  /// Whether addresses of private, loopback, link-local, multicast and reserved networks may be connected to. Looked at
  /// after name resolution, when connecting, on each redirect; through a proxy only the host's name or number is.
  public var allowsPrivateAddresses = true
  /// The field `Accept`; nil for `*/*`.
  public var accept: String?
  /// Whether a compressed answer is handed over as it is; else gzip is asked for and decoded.
  public var keepsContentEncoding = false

  public init(_ method: HTTPMethod, _ url: RequestURL, headers: [HeaderField] = [], body: RequestBody = .none) {
    self.method = method
    self.url = url
    self.headers = headers
    self.body = body
  }
}

/// The answer to a request.
public struct Response: Sendable {
  public let status: Int
  /// Of the last answer, where there were several.
  public let headers: Headers
  public let body: [UInt8]
  /// The address that answered, after redirects.
  public let url: RequestURL

  public init(status: Int, headers: Headers, body: [UInt8], url: RequestURL) {
    self.status = status
    self.headers = headers
    self.body = body
    self.url = url
  }

  /// The type of the body in lower case, without parameters.
  public var mediaType: String? {
    guard let type = headers["Content-Type"] else { return nil }
    let name = trimmed(type.prefix { $0 != ";" }).lowercased()
    return name.isEmpty ? nil : name
  }

  public var isSuccess: Bool { 200...299 ~= status }
}
