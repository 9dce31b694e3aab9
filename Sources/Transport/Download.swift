import CCurl

/// Fetches a file, or the rest of it, handing over its bytes as they come.
///
/// Connecting may take 30 seconds, and 60 seconds without a byte end it; a large file may take as long as it needs.
/// Redirects are followed, up to ten, to https only. Certificates are checked. Proxies are those of the environment, as
/// curl reads it.
public struct Download: Sendable {
  public var address: Address
  /// The first byte wanted; above 0 the request carries `Range`.
  public var offset: Int
  /// What goes into `If-Range` beside it, so that a part of another version does not come.
  public var validator: String?
  /// Seconds for connecting.
  public var connectTimeout: Int
  /// Seconds without a byte.
  public var stallTimeout: Int

  public init(
    _ address: Address, offset: Int = 0, validator: String? = nil, connectTimeout: Int = 30, stallTimeout: Int = 60
  ) {
    self.address = address
    self.offset = offset
    self.validator = validator
    self.connectTimeout = connectTimeout
    self.stallTimeout = stallTimeout
  }

  /// The head of an answer.
  public struct Head: Sendable, Hashable {
    public var status: Int
    /// Bytes that follow, where the server says so.
    public var length: Int?
    /// The first byte and the size of the whole file, of `Content-Range`.
    public var rangeStart: Int?
    public var rangeTotal: Int?
    /// A strong entity tag, else the date of the last change: what `If-Range` takes.
    public var validator: String?

    init(status: Int, _ headers: Headers) {
      self.status = status
      length = headers["Content-Length"].flatMap { Int($0) }
      if let range = headers["Content-Range"] { (rangeStart, rangeTotal) = Self.range(range) }
      let tag = headers["ETag"].flatMap { $0.hasPrefix("W/") || $0.isEmpty ? nil : $0 }
      validator = tag ?? headers["Last-Modified"].flatMap { $0.isEmpty ? nil : $0 }
    }

    /// `bytes 100-199/200` and `bytes */200` (RFC 9110, section 14.4).
    private static func range(_ value: String) -> (start: Int?, total: Int?) {
      guard value.lowercased().hasPrefix("bytes ") else { return (nil, nil) }
      let parts = value.dropFirst(6).split(separator: "/", maxSplits: 1)
      guard parts.count == 2 else { return (nil, nil) }
      let start = parts[0].split(separator: "-", maxSplits: 1).first.flatMap { Int(trimmed($0)) }
      return (start, Int(trimmed(parts[1])))
    }
  }

  /// Sends the request; blocks until everything is handed over.
  ///
  /// `head` is called once, for the answer after all redirects, when its status is 200, 206 or 416; `body` for each piece
  /// of a 200 or 206. Either ends the download, without an error, by answering false.
  ///
  /// Throws `status` for any other status, `unreachable` and `interrupted` as they say, `address` for a redirect that is
  /// not https.
  public func run(head: (Head) -> Bool, body: (UnsafeRawBufferPointer) -> Bool) throws(TransportError) {
    guard Libcurl.isReady else { throw TransportError(.failed, "libcurl does not start") }
    guard let handle = curl_easy_init() else { throw TransportError(.failed, "no memory for a request") }
    defer { curl_easy_cleanup(handle) }
    let result = withoutActuallyEscaping(head) { head in
      withoutActuallyEscaping(body) { body in perform(handle, Reception(head: head, body: body, handle: handle)) }
    }
    if let error = result { throw error }
  }

  private func perform(_ handle: Handle, _ reception: Reception) -> TransportError? {
    var words = [CChar](repeating: 0, count: Int(CURL_ERROR_SIZE))
    // Bytes as they are: a compressed answer could not be resumed.
    var headers = ["Accept-Encoding: identity"]
    if offset > 0 {
      headers.append("Range: bytes=\(offset)-")
      if let validator, !validator.contains(where: \.isNewline) { headers.append("If-Range: \(validator)") }
    }
    var lines = TextList()
    do throws(TransportError) {
      for header in headers { try lines.append(header) }
    } catch { return error }
    let list = lines.pointer
    let code = words.withUnsafeMutableBufferPointer { words in
      withExtendedLifetime(reception) {
        // Ending a handle may put words there too, when the buffer is gone.
        defer { _ = ccurl_set_error_text(handle, nil) }
        let context = Unmanaged.passUnretained(reception).toOpaque()
        for code in [
          ccurl_set_error_text(handle, words.baseAddress),
          ccurl_set_text(handle, CURLOPT_URL, address.text),
          ccurl_set_text(handle, CURLOPT_PROTOCOLS_STR, address.isEncrypted ? "https" : "http"),
          ccurl_set_text(handle, CURLOPT_REDIR_PROTOCOLS_STR, "https"),
          ccurl_set_number(handle, CURLOPT_FOLLOWLOCATION, 1),
          ccurl_set_number(handle, CURLOPT_MAXREDIRS, 10),
          ccurl_set_number(handle, CURLOPT_CONNECTTIMEOUT, connectTimeout),
          ccurl_set_number(handle, CURLOPT_LOW_SPEED_LIMIT, 1),
          ccurl_set_number(handle, CURLOPT_LOW_SPEED_TIME, stallTimeout),
          // Signals belong to the program.
          ccurl_set_number(handle, CURLOPT_NOSIGNAL, 1),
          ccurl_set_text(handle, CURLOPT_USERAGENT, "pipeline"),
          ccurl_set_list(handle, CURLOPT_HTTPHEADER, list),
          ccurl_set_header(handle, Reception.headerCallback, context),
          ccurl_set_body(handle, Reception.bodyCallback, context),
          // A server on this machine is reached directly, whatever the environment says.
          ccurl_set_text(handle, CURLOPT_NOPROXY, address.isEncrypted ? nil : "*"),
        ] where code != CURLE_OK { return code }
        return curl_easy_perform(handle)
      }
    }
    // The handle outlives the list, and must not keep it.
    _ = ccurl_set_list(handle, CURLOPT_HTTPHEADER, nil)
    _ = consume lines
    if reception.isEnded { return nil }
    let status = Int(ccurl_status(handle))
    if let refused = reception.refusedStatus ?? (code == CURLE_OK && !reception.hasHead ? status : nil) {
      return TransportError(.status, Self.words(forStatus: refused), status: refused)
    }
    guard code != CURLE_OK else { return nil }
    let reason = words.withUnsafeBytes { Libcurl.words(code, $0) }
    let kind = Libcurl.errorCode(code)
    return TransportError(
      kind, kind == .address ? "it leads to an address that is not https (\(reason))" : reason)
  }

  private static func words(forStatus status: Int) -> String {
    let meaning: String? =
      switch status {
      case 401, 403: "access is refused"
      case 404, 410: "there is no such file"
      case 429: "too many requests; try again later"
      case 500...599: "the server has trouble; try again later"
      default: nil
      }
    return "the server answered \(status)" + (meaning.map { ": \($0)" } ?? "")
  }

  private typealias Handle = Libcurl.Handle

  /// What libcurl's callbacks work on; used by the thread that runs the download.
  private final class Reception {
    private let head: (Head) -> Bool
    private let body: (UnsafeRawBufferPointer) -> Bool
    private let handle: Handle
    private var lines: [String] = []
    private(set) var hasHead = false
    /// A caller has had enough.
    private(set) var isEnded = false
    private(set) var refusedStatus: Int?

    init(head: @escaping (Head) -> Bool, body: @escaping (UnsafeRawBufferPointer) -> Bool, handle: Handle) {
      self.head = head
      self.body = body
      self.handle = handle
    }

    static let headerCallback: ccurl_callback = { bytes, size, count, context in
      guard let bytes, let context else { return 0 }
      let reception = Unmanaged<Reception>.fromOpaque(context).takeUnretainedValue()
      return reception.takeHeader(UnsafeRawBufferPointer(start: bytes, count: size * count)) ? size * count : 0
    }

    static let bodyCallback: ccurl_callback = { bytes, size, count, context in
      guard let bytes, let context else { return 0 }
      let reception = Unmanaged<Reception>.fromOpaque(context).takeUnretainedValue()
      return reception.takeBody(UnsafeRawBufferPointer(start: bytes, count: size * count)) ? size * count : 0
    }

    private func takeHeader(_ bytes: UnsafeRawBufferPointer) -> Bool {
      let line = String(decoding: bytes, as: UTF8.self)
      if line.hasPrefix("HTTP/") {
        // Of an interim answer, a redirect, or the last one: only what follows it counts.
        lines = []
        return true
      }
      guard line.allSatisfy(\.isNewline) else {
        lines.append(line)
        return lines.count < 1_000
      }
      let status = Int(ccurl_status(handle))
      let isRedirect = (300...399).contains(status) && lines.contains { $0.lowercased().hasPrefix("location:") }
      guard status >= 200, !isRedirect, !hasHead else { return true }
      guard [200, 206, 416].contains(status) else {
        refusedStatus = status
        return false
      }
      hasHead = true
      if !head(Head(status: status, Headers(lines: lines))) { isEnded = true }
      // The page that comes with a refusal is no part of the file.
      if status == 416 { isEnded = true }
      return !isEnded
    }

    private func takeBody(_ bytes: UnsafeRawBufferPointer) -> Bool {
      // The page of a redirect.
      guard hasHead else { return true }
      if !body(bytes) { isEnded = true }
      return !isEnded
    }
  }
}
