/// Why an S3 setting cannot be used: a bucket, an endpoint, a key, credentials.
public struct S3Refusal: Error, Sendable, Hashable, CustomStringConvertible {
  public let message: String

  public init(_ message: String) { self.message = message }

  public var description: String { message }
}

/// A bucket of an S3 service, and the addresses of what is in it.
public struct S3Bucket: Sendable, Hashable {
  /// Where the bucket's name stands in an address.
  public enum Addressing: String, Sendable, CaseIterable {
    /// In the host at Amazon, where the name allows it, and in the path everywhere else.
    case auto
    /// `https://host/bucket/key`.
    case path
    /// `https://bucket.host/key`.
    case virtual
  }

  public let name: String
  public let region: String
  /// Whether requests are encrypted.
  public let isEncrypted: Bool
  /// Whether the service is on this machine, by its name or number alone.
  public let isLoopback: Bool
  /// Scheme, host and port that requests go to.
  public let origin: String
  /// Scheme, host and port, and with path addressing the bucket's name: all of an address but the `/` before the key.
  private let base: String

  /// The longest key, in bytes of UTF-8.
  public static let longestKey = 1_024

  /// - Parameters:
  ///   - region: nil for the service's usual one, where there is such.
  ///   - endpoint: nil for Amazon's; its path, if any, comes before the bucket.
  /// - Throws: for a name that no bucket has, a missing region, and addressing that does not go with either.
  public init(
    _ name: String, region: String?, endpoint: RequestURL? = nil, addressing: Addressing = .auto
  ) throws(S3Refusal) {
    try Self.check(name)
    let region = region.flatMap { $0.isEmpty ? nil : $0 }
    if let region, !region.utf8.allSatisfy({ Self.isLetterOrDigit($0) || Self.marks.contains($0) }) {
      throw S3Refusal("\"\(region)\" is no region: it is made of letters, digits and \"-\", such as eu-central-1")
    }
    self.name = name
    let authority: String
    var path = ""
    let isAmazon: Bool
    if let endpoint {
      guard endpoint.query == nil else {
        throw S3Refusal("the endpoint \(endpoint.display) has a query; give scheme, host and port")
      }
      isEncrypted = endpoint.isEncrypted
      authority = endpoint.authority
      path = endpoint.path
      while path.hasSuffix("/") { path.removeLast() }
      isAmazon = endpoint.host.hasSuffix(".amazonaws.com") || endpoint.host.hasSuffix(".amazonaws.com.cn")
      self.region = region ?? (endpoint.host.hasSuffix(".r2.cloudflarestorage.com") ? "auto" : "us-east-1")
    } else {
      guard let region else {
        throw S3Refusal("the region of the bucket \(name) is not given; set \"region\" or AWS_REGION")
      }
      isEncrypted = true
      isAmazon = true
      authority = "s3.\(region).\(Self.amazonDomain(of: region))"
      self.region = region
    }

    let whyPathOnly = Self.whyPathOnly(name, host: endpoint?.host, isEncrypted: isEncrypted)
    switch addressing {
    case .virtual:
      if let whyPathOnly { throw S3Refusal("addressing \"virtual\" cannot be used: \(whyPathOnly); use \"path\"") }
    case .auto, .path: break
    }
    let isVirtual = addressing == .virtual || addressing == .auto && isAmazon && whyPathOnly == nil
    let scheme = isEncrypted ? "https" : "http"
    isLoopback = endpoint?.isLoopback ?? false
    origin = isVirtual ? "\(scheme)://\(name).\(authority)" : "\(scheme)://\(authority)"
    base = isVirtual ? origin + path : "\(origin)\(path)/\(name)"
  }

  /// The address of a key, with a query.
  ///
  /// Each byte of the key but unreserved characters and `/` is encoded. Segments of dots and empty ones stay as they
  /// are; a request for them must be sent with its path as it is.
  ///
  /// - Parameter query: encoded here, in the order given.
  /// - Throws: for a key that is empty or longer than `longestKey`.
  public func url(key: String, query: [SigV4.Field] = []) throws(S3Refusal) -> RequestURL {
    guard !key.isEmpty else { throw S3Refusal("a key is empty") }
    let count = key.utf8.count
    guard count <= Self.longestKey else {
      throw S3Refusal("the key has \(count) bytes; \(Self.longestKey) are the most (\(key.prefix(60))…)")
    }
    return try url(encodedKey: RequestURL.encoded(path: key), query: query)
  }

  /// The address of the bucket itself, with a query.
  public func url(query: [SigV4.Field]) throws(S3Refusal) -> RequestURL { try url(encodedKey: "", query: query) }

  private func url(encodedKey: String, query: [SigV4.Field]) throws(S3Refusal) -> RequestURL {
    let text = "\(base)/\(encodedKey)" + (query.isEmpty ? "" : "?" + SigV4.query(query))
    do throws(TransportError) {
      return try RequestURL(text)
    } catch {
      throw S3Refusal("the bucket \(name) has no address: \(error.message)")
    }
  }

  // MARK: - Rules

  private static let marks = [UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: ".")]

  private static func isLetterOrDigit(_ byte: UInt8) -> Bool {
    RequestURL.isUnreserved(byte) && !marks.contains(byte) && byte != UInt8(ascii: "~")
  }

  /// What no service has. Amazon's own rules for new buckets are narrower, those of old ones and of others wider.
  private static func check(_ name: String) throws(S3Refusal) {
    if name.hasPrefix("arn:") {
      throw S3Refusal("\"\(name)\" is an ARN; give the bucket's name, or an access point's alias")
    }
    let bytes = Array(name.utf8)
    guard (1...255).contains(bytes.count), bytes.allSatisfy({ isLetterOrDigit($0) || marks.contains($0) }),
      let first = bytes.first, let last = bytes.last, first != UInt8(ascii: "."), last != UInt8(ascii: ".")
    else {
      throw S3Refusal(
        "\"\(name.prefix(80))\" is no name of a bucket: it is made of letters, digits, \"-\", \"_\" and \".\"")
    }
  }

  /// Why the name cannot be part of a host.
  private static func whyPathOnly(_ name: String, host: String?, isEncrypted: Bool) -> String? {
    if let host, host.contains(":") || host.utf8.allSatisfy({ $0 < 0x3A }) {
      return "the endpoint \(host) is a number and no name"
    }
    let labels = name.split(separator: ".", omittingEmptySubsequences: false)
    let isHost = labels.allSatisfy { label in
      (1...63).contains(label.utf8.count) && label.utf8.first != UInt8(ascii: "-")
        && label.utf8.last != UInt8(ascii: "-")
        && label.utf8.allSatisfy {
          isLetterOrDigit($0) && !(UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0) || $0 == UInt8(ascii: "-")
        }
    }
    if !isHost { return "\"\(name)\" cannot be part of a host name" }
    // A certificate for *.host holds for one label.
    if labels.count > 1, isEncrypted { return "\"\(name)\" has a dot, which no certificate of the service covers" }
    return nil
  }

  private static func amazonDomain(of region: String) -> String {
    region.hasPrefix("cn-") ? "amazonaws.com.cn" : "amazonaws.com"
  }
}

extension SigV4.Parts {
  /// The parts of a request to an address.
  public init(method: String, url: RequestURL, headers: [SigV4.Field] = []) {
    self.init(method: method, host: url.authority, path: url.path, query: url.query ?? "", headers: headers)
  }
}
