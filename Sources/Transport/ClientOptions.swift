import Glibc

/// What all requests of a client have in common.
public struct ClientOptions: Sendable, Hashable {
  /// A file of certificates (PEM) that are trusted instead of the system's; nil for the system's.
  public var caBundle: String?
  /// The proxy for all addresses; empty for none, nil for those of the environment.
  public var proxy: String?
  /// Hosts that are reached without a proxy, separated by commas; nil for those of the environment.
  public var noProxy: String?
  public var userAgent: String

  public init(
    caBundle: String? = nil, proxy: String? = nil, noProxy: String? = nil, userAgent: String = "pipeline"
  ) {
    self.caBundle = caBundle
    self.proxy = proxy
    self.noProxy = noProxy
    self.userAgent = userAgent
  }

  /// As libcurl reads the environment for proxies (`http_proxy` in lower case alone, `https_proxy`, `all_proxy`,
  /// `no_proxy`), and a bundle of the user's of `CURL_CA_BUNDLE`, else `SSL_CERT_FILE`.
  ///
  /// - Parameter variable: what a variable holds; nil where it is not set or empty.
  public static func fromEnvironment(
    userAgent: String = "pipeline", variable: (String) -> String? = ClientOptions.variable
  ) -> ClientOptions {
    ClientOptions(caBundle: variable("CURL_CA_BUNDLE") ?? variable("SSL_CERT_FILE"), userAgent: userAgent)
  }

  /// What a variable of the process's environment holds; nil where it is not set or empty.
  public static func variable(_ name: String) -> String? {
    guard let value = getenv(name), value.pointee != 0 else { return nil }
    return String(cString: value)
  }
}

/// Which proxy an address is reached through, decided here, so that the rules for private addresses know.
struct Proxies: Sendable, Hashable {
  var http: String?
  var https: String?
  /// Patterns of hosts reached without one.
  var exceptions: [String]

  init(http: String?, https: String?, exceptions: String?) {
    self.http = http
    self.https = https
    self.exceptions = (exceptions ?? "").split { $0 == "," || $0.isWhitespace }.map { $0.lowercased() }
  }

  init(_ options: ClientOptions, variable: (String) -> String? = ClientOptions.variable) {
    let all = variable("all_proxy") ?? variable("ALL_PROXY")
    self.init(
      // The upper-case form of this one is what a server passes to programs for the field `Proxy` of a request.
      http: options.proxy ?? variable("http_proxy") ?? all,
      https: options.proxy ?? variable("https_proxy") ?? variable("HTTPS_PROXY") ?? all,
      exceptions: options.noProxy ?? variable("no_proxy") ?? variable("NO_PROXY"))
    for proxy in [http, https] {
      // What stands before the host is a user and a password.
      guard let proxy, let at = proxy.lastIndex(of: "@") else { continue }
      let start = proxy.firstRange(of: "://")?.upperBound ?? proxy.startIndex
      guard start < at, let colon = proxy[start..<at].firstIndex(of: ":") else { continue }
      Secrets.register(String(proxy[proxy.index(after: colon)..<at]))
    }
  }

  /// The proxy for an address; nil where it is reached directly. Plain http to this machine never goes through one.
  func proxy(for url: RequestURL) -> String? {
    guard let proxy = url.isEncrypted ? https : http, !proxy.isEmpty else { return nil }
    if !url.isEncrypted, url.isLoopback { return nil }
    return exceptions.contains { Self.matches(host: url.host, $0) } ? nil : proxy
  }

  /// `*`, a host, a domain with all below it (with or without a dot in front), an address, or a network as
  /// `10.0.0.0/8`.
  private static func matches(host: String, _ pattern: String) -> Bool {
    if pattern == "*" { return true }
    if let number = NetworkAddress(host) {
      let parts = pattern.split(separator: "/", maxSplits: 1)
      guard let first = parts.first else { return false }
      let bare = first.hasPrefix("[") && first.hasSuffix("]") ? first.dropFirst().dropLast() : first
      guard let network = NetworkAddress(String(bare)), network.isVersion6 == number.isVersion6 else { return false }
      guard parts.count == 2 else { return network == number }
      guard let bits = Int(parts[1]), 0...network.bytes.count * 8 ~= bits else { return false }
      return number.has(prefix: network.bytes, bits: bits)
    }
    var name = host[...]
    if name.hasSuffix(".") { name = name.dropLast() }
    var domain = pattern[...]
    if domain.hasPrefix(".") { domain = domain.dropFirst() }
    if domain.hasSuffix(".") { domain = domain.dropLast() }
    return !domain.isEmpty && (name == domain || name.hasSuffix("." + domain))
  }
}
