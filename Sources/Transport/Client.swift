import CCurl
import Synchronization

/// Sends requests over connections that it keeps, HTTP/2 where a server speaks it over TLS and there is no
/// body; for any number of threads.
///
/// Certificates are checked. There are no cookies, no .netrc, no signals, and no waiting for `100 Continue`; addresses go
/// out as they are written.
public final class Client: Sendable {
  private let options: ClientOptions
  private let proxies: Proxies
  /// Those that send nothing now; the one used last comes last.
  private let idle = Mutex<[Line]>([])
  private let opened = Atomic<Int>(0)

  public init(_ options: ClientOptions = ClientOptions()) {
    self.options = options
    proxies = Proxies(options)
  }

  /// How many connections were opened so far.
  public var connectionsOpened: Int { opened.load(ordering: .relaxed) }

  /// Sends a request and waits for the whole answer, whatever its status.
  ///
  /// `isCancelled` is asked at least every tenth of a second, on the calling thread. Throws as `TransportError.Code` says;
  /// `bodyMayHaveArrived` tells whether the server may have acted on it.
  public func send(
    _ request: Request, isCancelled: () -> Bool = { false }
  ) throws(TransportError) -> Response {
    guard Libcurl.isReady else { throw TransportError(.failed, "libcurl does not start") }
    let body = try request.body.encoded()
    var url = request.url
    var carriesCredentials = true
    var redirects = 0
    let deadline = request.timeouts.total.map { ContinuousClock.now + .seconds($0) }
    while true {
      let response = try sendOnce(
        request, to: url, body, carriesCredentials: carriesCredentials, deadline: deadline, isCancelled)
      guard case .follow(let most, let check) = request.redirects, [.get, .head].contains(request.method),
        [301, 302, 303, 307, 308].contains(response.status), let location = response.headers["Location"]
      else { return response }
      let next: RequestURL
      do throws(TransportError) {
        next = try url.resolving(location)
      } catch {
        throw TransportError(.refused, "it is redirected to what is no address: \(error.message)")
      }
      guard redirects < most else {
        throw TransportError(.refused, "it is redirected more than \(most) times, last to \(next.display)")
      }
      guard next.isEncrypted || !url.isEncrypted else {
        throw TransportError(.refused, "it is redirected from https to http, to \(next.display)")
      }
      try check?(next)
      if !next.isSameOrigin(as: url) { carriesCredentials = false }
      redirects += 1
      url = next
    }
  }

  private func sendOnce(
    _ request: Request, to url: RequestURL, _ body: (payload: Payload, type: String)?, carriesCredentials: Bool,
    deadline: ContinuousClock.Instant?, _ isCancelled: () -> Bool
  ) throws(TransportError) -> Response {
    let proxy = proxies.proxy(for: url)
    if !request.allowsPrivateAddresses {
      // All that can be known through a proxy, which finds the host by itself; and a clearer word without one.
      guard !url.isPrivate else { throw Self.privateAddress(url, NetworkAddress(url.host)) }
    }
    let exchange = Exchange(
      payload: body?.payload, isIdempotent: request.method.isIdempotent, maxAnswerBytes: request.maxAnswerBytes,
      refusesPrivateAddresses: !request.allowsPrivateAddresses && proxy == nil)
    let line = try take(for: url)
    defer { giveBack(line) }
    let context = Unmanaged.passUnretained(exchange).toOpaque()
    let fields = try Self.fields(of: request, bodyType: body?.type, carriesCredentials: carriesCredentials)
    let outcome: Result<CURLcode, TransportError> = withExtendedLifetime(exchange) {
      // The handle must not keep what ends here.
      defer { curl_easy_reset(line.easy) }
      do throws(TransportError) {
        try setUp(line, request, url, proxy: proxy, exchange, context, fields, carriesCredentials: carriesCredentials)
        let code = try run(line, exchange, request.timeouts, deadline: deadline, isCancelled)
        opened.add(max(0, ccurl_connects(line.easy)), ordering: .relaxed)
        return .success(code)
      } catch {
        opened.add(max(0, ccurl_connects(line.easy)), ordering: .relaxed)
        return .failure(error)
      }
    }
    _ = consume fields
    let code = try outcome.get()
    if code == CURLE_OK, let status = exchange.status {
      return Response(status: status, headers: exchange.headers, body: exchange.body, url: url)
    }
    if let address = exchange.refusedAddress, !exchange.isStarted { throw Self.privateAddress(url, address) }
    if exchange.isUnreadable { throw Payload.unreadable }
    func failure(_ code: TransportError.Code, _ message: String) -> TransportError {
      TransportError(code, message, status: exchange.status, bodyMayHaveArrived: exchange.mayHaveArrived)
    }
    if exchange.isTooLarge, exchange.status ?? 0 < 400 {
      throw failure(.tooLarge, "the answer is longer than \(request.maxAnswerBytes) bytes")
    }
    if exchange.isHeadTooLarge { throw failure(.tooLarge, "the head of the answer is longer than 256 KiB") }
    // The server's refusal stands even where it hung up before it had all of the body, or we the rest of its page.
    if let status = exchange.status, status >= 400, exchange.isTooLarge || Libcurl.errorCode(code) == .interrupted {
      return Response(status: status, headers: exchange.headers, body: exchange.body, url: url)
    }
    let words = code == CURLE_OK ? "the answer has no status" : Libcurl.words(code, UnsafeRawBufferPointer(line.words))
    let kind = code == CURLE_OK ? .interrupted : Libcurl.errorCode(code)
    if kind == .tls { throw failure(.tls, "the server is not trusted: \(words)") }
    throw failure(!exchange.isStarted && kind == .interrupted ? .unreachable : kind, words)
  }

  private static func privateAddress(_ url: RequestURL, _ address: NetworkAddress?) -> TransportError {
    let number = address.map(\.description)
    let lies = number.map { $0 == url.host ? "" : " (\($0))" } ?? ""
    return TransportError(
      .refused, "\(url.host)\(lies) is an address of a private or reserved network, which is not allowed here")
  }

  // MARK: Setting up

  private static func fields(
    of request: Request, bodyType: String?, carriesCredentials: Bool
  ) throws(TransportError) -> TextList {
    var fields = TextList()
    for field in request.headers {
      guard field.isSendable else {
        throw TransportError(.failed, "the header \(printable(field.name)) holds a character that must not be sent")
      }
      if field.isCredential, !carriesCredentials { continue }
      // libcurl takes `Name:` for "leave it out".
      let value = trimmed(field.value)
      try fields.append(value.isEmpty ? "\(field.name);" : "\(field.name): \(value)")
    }
    func has(_ name: String) -> Bool { request.headers.contains { isSameName($0.name, name) } }
    if !has("Content-Type") { try fields.append(bodyType.map { "Content-Type: \($0)" } ?? "Content-Type:") }
    if let accept = request.accept, !has("Accept") {
      guard isFieldValue(accept) else { throw TransportError(.failed, "Accept holds a control character") }
      try fields.append("Accept: \(accept)")
    }
    if carriesCredentials {
      switch request.authentication {
      case .bearer(let token):
        guard isFieldValue(token) else { throw TransportError(.failed, "the token holds a control character") }
        try fields.append("Authorization: Bearer \(token)")
      case .basic(let user, let password):
        guard !user.contains(":") else { throw TransportError(.failed, "a user name must not hold a colon") }
        let both = String(decoding: Base64.encode(Array("\(user):\(password)".utf8)), as: UTF8.self)
        try fields.append("Authorization: Basic \(both)")
      case .basicOrDigest, nil: break
      }
    }
    // Or libcurl would wait a second for each upload that a server does not say "100 Continue" to.
    try fields.append("Expect:")
    return fields
  }

  private static func printable(_ name: String) -> String {
    String(String.UnicodeScalarView(name.unicodeScalars.prefix(60).filter { $0.value >= 0x20 && $0.value != 0x7F }))
  }

  private func setUp(
    _ line: Line, _ request: Request, _ url: RequestURL, proxy: String?, _ exchange: Exchange,
    _ context: UnsafeMutableRawPointer, _ fields: borrowing TextList, carriesCredentials: Bool
  ) throws(TransportError) {
    let easy = line.easy
    func set(_ code: CURLcode) throws(TransportError) {
      guard code == CURLE_OK else {
        throw TransportError(.failed, "a request cannot be set up: \(String(cString: curl_easy_strerror(code)))")
      }
    }
    line.words.initializeMemory(as: UInt8.self, repeating: 0)
    try set(ccurl_set_error_text(easy, line.words.baseAddress?.assumingMemoryBound(to: CChar.self)))
    try set(ccurl_set_text(easy, CURLOPT_URL, url.origin + url.target))
    try set(ccurl_set_text(easy, CURLOPT_PROTOCOLS_STR, "http,https"))
    try set(ccurl_set_number(easy, CURLOPT_PATH_AS_IS, 1))
    try set(ccurl_set_number(easy, CURLOPT_NOSIGNAL, 1))
    // A thread that still looks for a host must not hold up whoever has changed their mind.
    try set(ccurl_set_number(easy, CURLOPT_QUICK_EXIT, 1))
    // libcurl 7.88 loses an answer that comes before all of a body has gone out over HTTP/2, such as 401, 402, 413: it
    // tells of a stream error instead.
    let version = (exchange.payload?.count ?? 0) > 0 ? CURL_HTTP_VERSION_1_1 : CURL_HTTP_VERSION_2TLS
    try set(ccurl_set_number(easy, CURLOPT_HTTP_VERSION, Int(version)))
    try set(ccurl_set_text(easy, CURLOPT_USERAGENT, options.userAgent))
    try set(ccurl_set_text(easy, CURLOPT_PROXY, proxy ?? ""))
    // A proxy's word is not the server's.
    try set(ccurl_set_number(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1))
    // Decided above.
    try set(ccurl_set_text(easy, CURLOPT_NOPROXY, ""))
    if let bundle = options.caBundle {
      try set(ccurl_set_text(easy, CURLOPT_CAINFO, bundle))
      try set(ccurl_set_text(easy, CURLOPT_CAPATH, nil))
    }
    try set(ccurl_set_number(easy, CURLOPT_CONNECTTIMEOUT_MS, Int(max(0.001, request.timeouts.connect) * 1000)))
    try set(ccurl_set_number(easy, CURLOPT_UPLOAD_BUFFERSIZE, 128 << 10))
    try set(ccurl_set_list(easy, CURLOPT_HTTPHEADER, fields.pointer))
    try set(ccurl_set_header(easy, Exchange.headerCallback, context))
    try set(ccurl_set_body(easy, Exchange.bodyCallback, context))
    try set(ccurl_set_opener(easy, Exchange.openerCallback, context))
    try set(ccurl_set_before_request(easy, Exchange.startCallback, context))
    if !request.keepsContentEncoding { try set(ccurl_set_text(easy, CURLOPT_ACCEPT_ENCODING, "gzip")) }
    if carriesCredentials, case .basicOrDigest(let user, let password) = request.authentication {
      try set(ccurl_set_number(easy, CURLOPT_HTTPAUTH, Self.basicAndDigest))
      try set(ccurl_set_text(easy, CURLOPT_USERNAME, user))
      try set(ccurl_set_text(easy, CURLOPT_PASSWORD, password))
    }
    let count = exchange.payload?.count
    switch request.method {
    case .get where count == nil: try set(ccurl_set_number(easy, CURLOPT_HTTPGET, 1))
    case .head where count == nil: try set(ccurl_set_number(easy, CURLOPT_NOBODY, 1))
    case .post:
      try set(ccurl_set_number(easy, CURLOPT_POST, 1))
      try set(ccurl_set_size(easy, CURLOPT_POSTFIELDSIZE_LARGE, Int64(count ?? 0)))
      try set(ccurl_set_source(easy, Exchange.readCallback, Exchange.seekCallback, context))
    default:
      guard HeaderField.isToken(request.method.rawValue) else {
        throw TransportError(.failed, "the method \(Self.printable(request.method.rawValue)) is none")
      }
      if count != nil || request.method == .put {
        // The size keeps it from going out in chunks, which S3 and Azure refuse.
        try set(ccurl_set_number(easy, CURLOPT_UPLOAD, 1))
        try set(ccurl_set_size(easy, CURLOPT_INFILESIZE_LARGE, Int64(count ?? 0)))
        try set(ccurl_set_source(easy, Exchange.readCallback, Exchange.seekCallback, context))
      }
      if request.method != .put { try set(ccurl_set_text(easy, CURLOPT_CUSTOMREQUEST, request.method.rawValue)) }
    }
    if !request.method.isIdempotent {
      // A kept connection may be dead. libcurl would begin again by itself: with a body `Exchange` sees to that, without
      // one only a new connection does. Servers close idle ones after 5 seconds and more.
      if (count ?? 0) == 0 { try set(ccurl_set_number(easy, CURLOPT_FRESH_CONNECT, 1)) }
      try set(ccurl_set_number(easy, CURLOPT_MAXAGE_CONN, 4))
    }
  }

  /// CURLAUTH_BASIC and CURLAUTH_DIGEST, whose macros Swift does not import.
  private static let basicAndDigest = 1 << 0 | 1 << 1

  // MARK: Running

  private func run(
    _ line: Line, _ exchange: Exchange, _ timeouts: Timeouts, deadline: ContinuousClock.Instant?,
    _ isCancelled: () -> Bool
  ) throws(TransportError) -> CURLcode {
    func failure(_ code: TransportError.Code, _ message: String) -> TransportError {
      TransportError(code, message, status: exchange.status, bodyMayHaveArrived: exchange.mayHaveArrived)
    }
    // Before anything is sent.
    if isCancelled() { throw failure(.cancelled, "cancelled") }
    guard curl_multi_add_handle(line.multi, line.easy) == CURLM_OK else {
      throw failure(.failed, "a request cannot be begun")
    }
    defer { curl_multi_remove_handle(line.multi, line.easy) }
    var marks = exchange.marks
    var lastSign = ContinuousClock.now
    while true {
      var running: Int32 = 0
      let code = curl_multi_perform(line.multi, &running)
      guard code == CURLM_OK else {
        throw failure(.failed, String(cString: curl_multi_strerror(code)))
      }
      var left: Int32 = 0
      while let message = curl_multi_info_read(line.multi, &left) {
        if message.pointee.msg == CURLMSG_DONE { return message.pointee.data.result }
      }
      if isCancelled() { throw failure(.cancelled, "cancelled") }
      let now = ContinuousClock.now
      if exchange.marks != marks {
        marks = exchange.marks
        lastSign = now
      }
      if exchange.isStarted, now - lastSign > .seconds(timeouts.stall) {
        throw failure(.stalled, "nothing has moved for \(Self.text(timeouts.stall)) seconds")
      }
      if let deadline, now > deadline {
        throw failure(
          exchange.isStarted ? .stalled : .unreachable, "it took longer than \(Self.text(timeouts.total ?? 0)) seconds")
      }
      curl_multi_poll(line.multi, nil, 0, 50, nil)
    }
  }

  private static func text(_ seconds: Double) -> String {
    seconds == seconds.rounded() && abs(seconds) < 1e9 ? String(Int(seconds)) : "\(seconds)"
  }

  // MARK: Handles

  /// One that has a connection to that server, if any.
  private func take(for url: RequestURL) throws(TransportError) -> Line {
    let kept: Line? = idle.withLock { idle in
      if let index = idle.lastIndex(where: { $0.origins.contains(url.origin) }) { return idle.remove(at: index) }
      return idle.popLast()
    }
    guard let line = kept ?? Line() else { throw TransportError(.failed, "no memory for a request") }
    line.note(url.origin)
    return line
  }

  private func giveBack(_ line: Line) { idle.withLock { $0.append(line) } }
}

/// Handles of libcurl that send one request at a time, and the connections that they keep.
///
/// Unchecked because its one user is the thread that has taken it out of its client's list, under that list's lock.
private final class Line: @unchecked Sendable {
  let multi: Libcurl.Handle
  let easy: Libcurl.Handle
  /// Where libcurl puts errors into words.
  let words = UnsafeMutableRawBufferPointer.allocate(byteCount: Int(CURL_ERROR_SIZE), alignment: 1)
  /// Where requests went, the last one last.
  private(set) var origins: [String] = []

  private static let maxConnections = 8

  init?() {
    guard let multi = curl_multi_init(), let easy = curl_easy_init() else { return nil }
    self.multi = multi
    self.easy = easy
    _ = ccurl_multi_set_number(multi, CURLMOPT_MAXCONNECTS, Self.maxConnections)
  }

  func note(_ origin: String) {
    if let index = origins.firstIndex(of: origin) { origins.remove(at: index) }
    origins.append(origin)
    if origins.count > Self.maxConnections { origins.removeFirst() }
  }

  deinit {
    curl_easy_cleanup(easy)
    curl_multi_cleanup(multi)
    words.deallocate()
  }
}
