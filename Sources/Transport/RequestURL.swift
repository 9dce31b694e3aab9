/// The address of a request: http or https, any host. Kept byte for byte as given, never encoded anew.
public struct RequestURL: Sendable, Hashable {
  public let text: String
  /// `http` or `https`.
  public let scheme: String
  /// Lower case, without the brackets of an IPv6 address.
  public let host: String
  /// The one given, else 80 or 443.
  public let port: Int
  /// As written, encoded; `/` where there is none.
  public let path: String
  /// As written, encoded, without `?`; nil where there is none.
  public let query: String?

  /// Throws `address` for another scheme, no host, a user name or password in it, spaces and control characters, and
  /// hosts that need a guess (letters outside ASCII, zones, empty ports).
  public init(_ text: String) throws(TransportError) {
    // Whoever catches these names the address, and knows how to leave out what is secret in it.
    guard text.utf8.count <= 1 << 16 else { throw TransportError(.address, "it is longer than 64 KiB") }
    guard !text.utf8.contains(where: { $0 <= 0x20 || $0 == 0x7F }) else {
      throw TransportError(.address, "it holds a space or a control character, which must be percent-encoded")
    }
    guard let mark = text.utf8.firstIndex(of: UInt8(ascii: ":")), text[mark...].hasPrefix("://") else {
      throw TransportError(.address, "it is no address with http:// or https://")
    }
    scheme = text[..<mark].lowercased()
    guard scheme == "http" || scheme == "https" else {
      throw TransportError(.address, "it is neither http nor https")
    }
    let rest = text.utf8[mark...].dropFirst(3)
    let authority = rest.prefix { !"/?#".utf8.contains($0) }
    guard !authority.contains(UInt8(ascii: "@")) else {
      // It would stand in logs and reports.
      throw TransportError(.address, "it holds a user name or password, which is not allowed")
    }
    (host, port) = try Self.hostAndPort(String(Substring(authority)), isEncrypted: scheme == "https")
    let target = rest[authority.endIndex...].prefix { $0 != UInt8(ascii: "#") }
    let path = target.prefix { $0 != UInt8(ascii: "?") }
    self.path = path.isEmpty ? "/" : String(Substring(path))
    query = path.endIndex == target.endIndex ? nil : String(Substring(target[path.endIndex...].dropFirst()))
    self.text = text
  }

  private static func hostAndPort(
    _ authority: String, isEncrypted: Bool
  ) throws(TransportError) -> (String, Int) {
    var host = authority.lowercased()
    var port: Substring?
    if host.hasPrefix("[") {
      guard let end = host.lastIndex(of: "]") else { throw TransportError(.address, "its host has no end") }
      let after = host[host.index(after: end)...]
      if after.hasPrefix(":") {
        port = after.dropFirst()
      } else if !after.isEmpty {
        throw TransportError(.address, "its host is no IPv6 address")
      }
      host = String(host[host.index(after: host.startIndex)..<end])
      guard NetworkAddress(host)?.isVersion6 == true else {
        throw TransportError(.address, "its host is no IPv6 address")
      }
    } else {
      if let colon = host.firstIndex(of: ":") {
        port = host[host.index(after: colon)...]
        host = String(host[..<colon])
      }
      guard !host.isEmpty else { throw TransportError(.address, "it has no host") }
      // No more than these, so that libcurl and we cannot read two different hosts from it.
      let isPlain = host.utf8.allSatisfy { byte in
        switch byte {
        case 0x61...0x7A, 0x30...0x39, UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"): true
        default: false
        }
      }
      guard isPlain, !host.hasPrefix("."), !host.contains("..") else {
        throw TransportError(
          .address, "its host holds a character that no host has; names in other letters are written as xn--…")
      }
    }
    guard let port else { return (host, isEncrypted ? 443 : 80) }
    guard port.utf8.count <= 5, port.utf8.allSatisfy({ 0x30...0x39 ~= $0 }), let number = Int(port),
      1...65_535 ~= number
    else { throw TransportError(.address, "its port is no number from 1 to 65535") }
    return (host, number)
  }

  public var isEncrypted: Bool { scheme == "https" }

  /// Whether the host is this machine, by its name or number alone.
  public var isLoopback: Bool {
    if host == "localhost" || host.hasSuffix(".localhost") { return true }
    return NetworkAddress(host)?.isLoopback == true
  }

  /// Whether the host is an address of a private, loopback, link-local, multicast, documentation or otherwise reserved
  /// network, by its name or number alone: what a name is found to be is looked at when connecting.
  public var isPrivate: Bool { isLoopback || NetworkAddress(host)?.isPublic == false }

  /// Host and port as the `Host` field has them: brackets around IPv6, no port where it is the scheme's own.
  public var authority: String {
    let name = host.contains(":") ? "[\(host)]" : host
    return port == (isEncrypted ? 443 : 80) ? name : "\(name):\(port)"
  }

  /// `scheme://authority`.
  public var origin: String { "\(scheme)://\(authority)" }

  /// Path and query, as they stand in the request line.
  public var target: String { query.map { "\(path)?\($0)" } ?? path }

  /// For messages and reports: without the values of the query and the fragment, and without registered secrets.
  public var display: String { Secrets.redacted("\(origin)\(path)\(query == nil ? "" : "?…")") }

  public func isSameOrigin(as other: RequestURL) -> Bool {
    scheme == other.scheme && host == other.host && port == other.port
  }

  /// The address with `path` (encoded already, no `/` at its beginning) after its own path, before the query.
  public func appending(path more: String) throws(TransportError) -> RequestURL {
    let base = path.hasSuffix("/") ? path : path + "/"
    return try RequestURL(origin + base + more + (query.map { "?\($0)" } ?? ""))
  }

  /// The address with `name=value` (both encoded here) at the end of its query.
  public func appending(query name: String, _ value: String) throws(TransportError) -> RequestURL {
    let pair = "\(Self.encoded(queryValue: name))=\(Self.encoded(queryValue: value))"
    let before = query.map { $0.isEmpty ? "" : $0 + "&" } ?? ""
    return try RequestURL("\(origin)\(path)?\(before)\(pair)")
  }

  /// The address that a reference, as in `Location`, leads to from this one (RFC 3986, section 5.2). Spaces and bytes
  /// outside ASCII, which servers leave in it, are percent-encoded.
  public func resolving(_ reference: String) throws(TransportError) -> RequestURL {
    var clean = ""
    for byte in trimmed(reference).utf8 {
      if byte == 0x20 || byte >= 0x80 { clean += Self.percent(byte) } else { clean.unicodeScalars.append(.init(byte)) }
    }
    let fragment = clean.firstIndex(of: "#") ?? clean.endIndex
    let relative = clean[..<fragment]
    let head = relative.prefix { $0 != "/" && $0 != "?" }
    if head.contains(":") { return try RequestURL(String(relative)) }
    if relative.hasPrefix("//") { return try RequestURL("\(scheme):\(relative)") }
    if relative.isEmpty { return try RequestURL(origin + target) }
    if relative.hasPrefix("?") { return try RequestURL(origin + path + relative) }
    let mark = relative.firstIndex(of: "?") ?? relative.endIndex
    let folder = relative.hasPrefix("/") ? "" : path[...(path.lastIndex(of: "/") ?? path.startIndex)]
    return try RequestURL("\(origin)\(Self.withoutDots("\(folder)\(relative[..<mark])"))\(relative[mark...])")
  }

  /// RFC 3986, section 5.2.4.
  private static func withoutDots(_ path: String) -> String {
    var kept: [Substring] = []
    let parts = path.split(separator: "/", omittingEmptySubsequences: false).dropFirst()
    for (index, part) in zip(parts.indices, parts) {
      let isLast = index == parts.endIndex - 1
      switch part {
      case ".": if isLast { kept.append("") }
      case "..":
        if !kept.isEmpty { kept.removeLast() }
        if isLast { kept.append("") }
      default: kept.append(part)
      }
    }
    return "/" + kept.joined(separator: "/")
  }

  // MARK: Encoding

  /// Everything but unreserved characters percent-encoded, in upper-case hexadecimal. The segments `.` and `..` cannot be
  /// written so that a server would keep them.
  public static func encoded(pathSegment: String) -> String {
    PercentCoding.encoded(pathSegment.utf8, keepingSlashes: false)
  }

  /// The same, with `/` kept.
  public static func encoded(path: String) -> String { PercentCoding.encoded(path.utf8, keepingSlashes: true) }

  /// For names and values of a query: a space is `%20`.
  public static func encoded(queryValue: String) -> String {
    PercentCoding.encoded(queryValue.utf8, keepingSlashes: false)
  }

  /// Letters, digits, `-`, `.`, `_` and `~` (RFC 3986, section 2.3).
  static func isUnreserved(_ byte: UInt8) -> Bool {
    switch byte {
    case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F, 0x7E: true
    default: false
    }
  }

  static let hexDigits = Array("0123456789ABCDEF".utf8)

  private static func percent(_ byte: UInt8) -> String {
    String(decoding: [UInt8(ascii: "%"), hexDigits[Int(byte >> 4)], hexDigits[Int(byte & 15)]], as: UTF8.self)
  }
}
