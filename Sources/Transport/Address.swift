import CCurl

/// An address that may be fetched from: https, or http on this machine alone.
public struct Address: Sendable, Hashable {
  public let text: String
  /// Lower case, without the brackets of an IPv6 address.
  public let host: String
  let isEncrypted: Bool

  /// Throws `address` for what is no URL, another scheme, plain http to another machine, or a user and password in it.
  public init(_ text: String) throws(TransportError) {
    guard let url = curl_url() else { throw TransportError(.failed, "no memory for an address") }
    defer { curl_url_cleanup(url) }
    // Whoever catches these names the address, and knows how to leave out what is secret in it.
    guard curl_url_set(url, CURLUPART_URL, text, 0) == CURLUE_OK else {
      throw TransportError(.address, "it is no address")
    }
    func part(_ what: CURLUPart) -> String? {
      var value: UnsafeMutablePointer<CChar>?
      guard curl_url_get(url, what, &value, 0) == CURLUE_OK, let value else { return nil }
      defer { curl_free(value) }
      return String(cString: value)
    }
    guard let scheme = part(CURLUPART_SCHEME)?.lowercased(), var host = part(CURLUPART_HOST)?.lowercased() else {
      throw TransportError(.address, "it is no address")
    }
    if host.hasPrefix("["), host.hasSuffix("]") { host = String(host.dropFirst().dropLast()) }
    guard part(CURLUPART_USER) == nil, part(CURLUPART_PASSWORD) == nil else {
      // It would stand in logs and reports.
      throw TransportError(.address, "the address of \(host) holds a user name or password, which is not allowed")
    }
    switch scheme {
    case "https": isEncrypted = true
    case "http" where Self.isLoopback(host): isEncrypted = false
    case "http":
      throw TransportError(.address, "it is not encrypted; http is for this machine alone, use https")
    default:
      throw TransportError(.address, "it is not https")
    }
    self.text = text
    self.host = host
  }

  private static func isLoopback(_ host: String) -> Bool {
    if host == "localhost" || host == "::1" { return true }
    let parts = host.split(separator: ".", omittingEmptySubsequences: false)
    return parts.count == 4 && parts[0] == "127" && parts.allSatisfy { UInt8($0) != nil }
  }
}
