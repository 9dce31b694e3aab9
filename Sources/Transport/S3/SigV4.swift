import Digest
import Glibc

/// Signs requests with AWS Signature Version 4, in the form of S3: the path is encoded once and never normalised.
///
/// A pure function of what it is given, the time included. Source: AWS S3 API, "Authenticating requests: using the
/// Authorization header" and "using query parameters".
public struct SigV4: Sendable {
  public var accessKeyID: String
  public var secretAccessKey: String
  /// Of temporary credentials.
  public var sessionToken: String?
  public var region: String
  public var service: String

  public init(
    accessKeyID: String, secretAccessKey: String, sessionToken: String? = nil, region: String, service: String = "s3"
  ) {
    self.accessKeyID = accessKeyID
    self.secretAccessKey = secretAccessKey
    self.sessionToken = sessionToken
    self.region = region
    self.service = service
  }

  /// A header's name and value.
  public typealias Field = (name: String, value: String)

  /// What stands for the digest of a body that is not covered by the signature.
  public static let unsignedPayload = "UNSIGNED-PAYLOAD"
  /// The digest of no bytes.
  public static let emptyPayload = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

  /// What is signed, part for part.
  public struct Parts: Sendable {
    public var method: String
    /// As sent: with the port where it is not the scheme's own.
    public var host: String
    /// As sent, percent-encoded in any way; empty for `/`.
    public var path: String
    /// As sent, without the `?`.
    public var query: String
    /// Headers that are sent and signed besides `host`; the same name twice is one header with both values.
    public var headers: [Field]

    public init(method: String, host: String, path: String, query: String = "", headers: [Field] = []) {
      self.method = method
      self.host = host
      self.path = path
      self.query = query
      self.headers = headers
    }
  }

  /// The headers that make a request a signed one: `x-amz-date`, `x-amz-content-sha256`, with temporary credentials
  /// `x-amz-security-token`, and `Authorization`. Signed are these, `host` and all of `parts.headers`.
  ///
  /// - Parameters:
  ///   - payload: the body's SHA-256 in lower-case hex, or `unsignedPayload`.
  ///   - time: seconds since 1970.
  public func headers(for parts: Parts, payload: String, time: Int) -> [Field] {
    let stamp = Self.stamp(time)
    var added: [Field] = [("x-amz-date", stamp), ("x-amz-content-sha256", payload)]
    if let sessionToken { added.append(("x-amz-security-token", sessionToken)) }
    let (lines, names) = Self.canonicalHeaders(parts.headers + added + [("host", parts.host)])
    let request = Self.canonicalRequest(
      parts, query: Self.canonicalQuery(parts.query), headers: lines, names: names, payload: payload)
    let scope = scope(stamp)
    added.append(
      (
        "Authorization",
        "AWS4-HMAC-SHA256 Credential=\(accessKeyID)/\(scope.joined(separator: "/")),SignedHeaders=\(names),"
          + "Signature=\(signature(of: request, stamp: stamp, scope: scope))"
      ))
    return added
  }

  /// The query that makes a request a signed one without any header, for whoever gets the address: to be sent as it is.
  ///
  /// - Parameters:
  ///   - parts: its headers must be sent by whoever uses the address.
  ///   - seconds: how long the address holds, 1 to 604,800.
  ///   - time: seconds since 1970.
  public func presignedQuery(for parts: Parts, expiresIn seconds: Int, time: Int) -> String {
    let stamp = Self.stamp(time)
    let scope = scope(stamp)
    let (lines, names) = Self.canonicalHeaders(parts.headers + [("host", parts.host)])
    var fields: [Field] = [
      ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"), ("X-Amz-Credential", "\(accessKeyID)/\(scope.joined(separator: "/"))"),
      ("X-Amz-Date", stamp), ("X-Amz-Expires", String(seconds)), ("X-Amz-SignedHeaders", names),
    ]
    if let sessionToken { fields.append(("X-Amz-Security-Token", sessionToken)) }
    let given = parts.query.isEmpty ? [] : [parts.query]
    let query = Self.canonicalQuery((given + [Self.query(fields)]).joined(separator: "&"))
    let request = Self.canonicalRequest(
      parts, query: query, headers: lines, names: names, payload: Self.unsignedPayload)
    return query + "&X-Amz-Signature=" + signature(of: request, stamp: stamp, scope: scope)
  }

  /// A query of names and values, encoded; in the order given.
  public static func query(_ fields: [Field]) -> String {
    fields.map { "\(RequestURL.encoded(queryValue: $0.name))=\(RequestURL.encoded(queryValue: $0.value))" }.joined(
      separator: "&")
  }

  // MARK: - Canonical forms

  /// The path as the service sees it: decoded once, and encoded in the one form it signs.
  static func canonicalPath(_ path: String) -> String {
    path.isEmpty ? "/" : PercentCoding.encoded(PercentCoding.decoded(path), keepingSlashes: true)
  }

  /// Sorted by encoded name, then value; a name without value gets an empty one.
  static func canonicalQuery(_ query: String) -> String {
    let fields = query.utf8.split(separator: UInt8(ascii: "&")).map { field -> (name: [UInt8], value: [UInt8]) in
      let parts = field.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
      func canonical(_ part: Substring.UTF8View) -> [UInt8] {
        Array(PercentCoding.encoded(PercentCoding.decoded(Substring(part)), keepingSlashes: false).utf8)
      }
      return (canonical(parts[0]), parts.count > 1 ? canonical(parts[1]) : [])
    }
    let sorted = fields.sorted { one, other in
      one.name == other.name
        ? one.value.lexicographicallyPrecedes(other.value) : one.name.lexicographicallyPrecedes(other.name)
    }
    return sorted.map { "\(String(decoding: $0.name, as: UTF8.self))=\(String(decoding: $0.value, as: UTF8.self))" }
      .joined(separator: "&")
  }

  /// The lines of the headers, sorted by name and each ended, and their names.
  static func canonicalHeaders(_ headers: [Field]) -> (lines: String, names: String) {
    var values: [String: [String]] = [:]
    for header in headers { values[header.name.lowercased(), default: []].append(collapsed(header.value)) }
    // By bytes: names are ASCII, and one that another begins with comes first.
    let names = values.keys.sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }
    let lines = names.map { "\($0):\(values[$0, default: []].joined(separator: ","))\n" }
    return (lines.joined(), names.joined(separator: ";"))
  }

  /// Without spaces at both ends, and with one space for several.
  private static func collapsed(_ value: String) -> String {
    let words = value.utf8.split { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }
    return words.map { String(Substring($0)) }.joined(separator: " ")
  }

  private static func canonicalRequest(
    _ parts: Parts, query: String, headers: String, names: String, payload: String
  ) -> String {
    // The lines of the headers end in a line feed of their own, so that an empty line follows.
    "\(parts.method)\n\(canonicalPath(parts.path))\n\(query)\n\(headers)\n\(names)\n\(payload)"
  }

  private func scope(_ stamp: String) -> [String] { [String(stamp.prefix(8)), region, service, "aws4_request"] }

  private func signature(of request: String, stamp: String, scope: [String]) -> String {
    let key = scope.reduce(Array("AWS4\(secretAccessKey)".utf8)) { HMAC.sha256(key: $0, $1) }
    let digest = Hex.text(SHA256.digest(of: Array(request.utf8)))
    let text = "AWS4-HMAC-SHA256\n\(stamp)\n\(scope.joined(separator: "/"))\n\(digest)"
    return Hex.text(HMAC.sha256(key: key, text))
  }

  /// `20130524T000000Z`.
  static func stamp(_ time: Int) -> String {
    var seconds = time_t(time)
    var parts = tm()
    gmtime_r(&seconds, &parts)
    func digits(_ value: Int32, _ count: Int) -> String {
      let text = String(value)
      return String(repeating: "0", count: max(0, count - text.utf8.count)) + text
    }
    return digits(parts.tm_year + 1900, 4) + digits(parts.tm_mon + 1, 2) + digits(parts.tm_mday, 2) + "T"
      + digits(parts.tm_hour, 2) + digits(parts.tm_min, 2) + digits(parts.tm_sec, 2) + "Z"
  }
}
