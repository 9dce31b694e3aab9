import Glibc
import TestSupport
import Testing
import Transport

/// A client that no proxy of the machine gets in the way of.
func directClient() -> Client { Client(ClientOptions(proxy: "", userAgent: "pipeline/test")) }

func transportFailure(_ body: () throws(TransportError) -> Void) -> TransportError? {
  do throws(TransportError) {
    try body()
    return nil
  } catch { return error }
}

/// Requests against a server of our own on this machine, that keeps what it got.
@Suite struct ClientTests {
  private let picture = (0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }

  private func get(_ address: String) throws(TransportError) -> Request { Request(.get, try RequestURL(address)) }

  // MARK: What is sent

  @Test func `every method and body goes out with its length, and without an Expect`() throws {
    let server = ScriptedServer { _ in .answer(200) }
    let client = directClient()
    let url = try RequestURL(server.address + "/a")
    let body = RequestBody.raw(Payload(picture), type: "image/webp")
    for method: HTTPMethod in [.post, .put, .propfind, .delete] {
      _ = try client.send(Request(method, url, body: body))
      let request = try #require(server.requests.last)
      #expect(request.method == method.rawValue && request.body == picture)
      #expect(request["content-length"] == "300000" && request["content-type"] == "image/webp")
      #expect(request["expect"] == nil && request["transfer-encoding"] == nil)
      #expect(request["user-agent"] == "pipeline/test" && request["cookie"] == nil)
    }
    for method: HTTPMethod in [.get, .head, .delete, .mkcol] {
      _ = try client.send(Request(method, url))
      let request = try #require(server.requests.last)
      #expect(request.method == method.rawValue && request["content-length"] == nil && request["content-type"] == nil)
    }
    for method: HTTPMethod in [.post, .put] {
      _ = try client.send(Request(method, url))
      let request = try #require(server.requests.last)
      #expect(request.method == method.rawValue && request["content-length"] == "0" && request["content-type"] == nil)
    }
  }

  @Test(arguments: [
    "/a%2Fb/../c/./d//e?x=%2b+%20&y=a=b&sig=a%2Bb%3D", "/?", "/%C3%BC%75?ü", "/a;b=c,d'(x)!*~", "/..;/x?#",
  ])
  func `a path goes out as it is written`(target: String) throws {
    let server = ScriptedServer { _ in .answer(200) }
    _ = try directClient().send(get(server.address + target))
    #expect(server.requests.first?.target == String(target.prefix { $0 != "#" }))
    #expect(server.requests.first?["host"] == "127.0.0.1:\(server.port)")
  }

  @Test func `headers go out as given, empty ones too, and line breaks in them do not`() throws {
    let server = ScriptedServer { _ in .answer(200) }
    let client = directClient()
    var request = try get(server.address)
    request.headers = [
      HeaderField("X-Meta", "a: b; c=\"d\" ü"), HeaderField("X-Empty", ""), HeaderField("X-Twice", "1"),
      HeaderField("X-Twice", "2"),
    ]
    request.accept = "image/*"
    _ = try client.send(request)
    let got = try #require(server.requests.first)
    #expect(got["x-meta"] == "a: b; c=\"d\" ü" && got["x-empty"] == "" && got["accept"] == "image/*")
    #expect(got.fields.filter { $0.name == "x-twice" }.map(\.value) == ["1", "2"])
    for field in [
      HeaderField("X-A", "b\r\nX-C: d"), HeaderField("X-A", "b\u{0}"), HeaderField("X A", "b"), HeaderField("", "b"),
      HeaderField("X-A\r\nB", "c"), HeaderField("X:A", "c"),
    ] {
      request.headers = [field]
      #expect(transportFailure { () throws(TransportError) in _ = try client.send(request) }?.code == .failed)
    }
    #expect(server.requests.count == 1)
  }

  @Test func `credentials are sent as their scheme says`() throws {
    let server = ScriptedServer { request in
      guard let authorization = request["authorization"] else {
        return .answer(
          401, [#"WWW-Authenticate: Digest realm="r", nonce="n1", qop="auth", algorithm=MD5"#])
      }
      return .text(200, [], authorization)
    }
    let client = directClient()
    var request = try get(server.address)
    request.authentication = .bearer("token-1")
    #expect(try client.send(request).body == Array("Bearer token-1".utf8))
    request.authentication = .basic(user: "Aladdin", password: "open sesame")
    // The example of RFC 7617, section 2.
    #expect(try client.send(request).body == Array("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==".utf8))
    // A body that went out once already goes again after the challenge, also where it must not be repeated.
    for method: HTTPMethod in [.put, .post] {
      var upload = Request(method, request.url, body: .raw(Payload(picture), type: "image/png"))
      upload.authentication = .basicOrDigest(user: "u", password: "p")
      let answer = try client.send(upload)
      #expect(answer.status == 200 && String(decoding: answer.body, as: UTF8.self).hasPrefix("Digest username=\"u\""))
      #expect(server.requests.last?.body == picture)
    }
    request.authentication = .basic(user: "a:b", password: "c")
    #expect(transportFailure { () throws(TransportError) in _ = try client.send(request) }?.code == .failed)
  }

  @Test func `a file is sent from disk, and one that has become shorter is an error`() throws {
    let folder = TemporaryFolder()
    let path = folder.write(picture, to: "ü \"1\".bin")
    let server = ScriptedServer { _ in .answer(200) }
    let url = try RequestURL(server.address)
    let client = directClient()
    _ = try client.send(Request(.put, url, body: .raw(try .file(path), type: "image/png")))
    #expect(server.requests.last?.body == picture)
    let payload = try Payload.file(path)
    truncate(path, 200_000)
    let error = transportFailure { () throws(TransportError) in
      _ = try client.send(Request(.put, url, body: .raw(payload, type: "image/png")))
    }
    #expect(error?.code == .failed && error?.bodyMayHaveArrived == false)
    #expect(transportFailure { () throws(TransportError) in _ = try Payload.file(folder["none"]) }?.code == .failed)
    #expect(transportFailure { () throws(TransportError) in _ = try Payload.file(folder.path) }?.code == .failed)
  }

  // MARK: Answers

  @Test func `an answer of any status comes whole, with its fields`() throws {
    let picture = picture
    let server = ScriptedServer { request in
      request.target == "/chunked"
        ? .raw(
          Array(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX-Late: 1\r\n\r\n".utf8))
        : .answer(503, ["x-a: 1", "X-A:  2 ", "Content-Type: Image/PNG; q=1"], picture)
    }
    let client = directClient()
    let answer = try client.send(try get(server.address))
    #expect(answer.status == 503 && answer.body == picture && answer.mediaType == "image/png")
    #expect(answer.headers["X-a"] == "1" && answer.headers.all("X-A") == ["1", "2"] && answer.headers["b"] == nil)
    let chunked = try client.send(try get(server.address + "/chunked"))
    #expect(chunked.body == Array("abcde".utf8) && chunked.headers["x-late"] == nil)
  }

  @Test func `a compressed answer is decoded within its bound, or left alone`() throws {
    // gzip of 1,000,000 zeros, made here once with zlib's own tool.
    let folder = TemporaryFolder()
    folder.write([UInt8](repeating: 0, count: 1_000_000), to: "zeros")
    let packed = RunProgram.run(["-c", folder["zeros"]], program: "/usr/bin/gzip").outputBytes
    #expect(packed.count < 2000 && packed.count > 100)
    let server = ScriptedServer { _ in .answer(200, ["Content-Encoding: gzip"], packed) }
    let client = directClient()
    var request = try get(server.address)
    #expect(try client.send(request).body == [UInt8](repeating: 0, count: 1_000_000))
    #expect(server.requests.last?["accept-encoding"] == "gzip")
    request.maxAnswerBytes = 999_999
    #expect(transportFailure { () throws(TransportError) in _ = try client.send(request) }?.code == .tooLarge)
    request.keepsContentEncoding = true
    #expect(try client.send(request).body == packed)
    #expect(server.requests.last?["accept-encoding"] == nil)
  }

  @Test func `an answer beyond the bound is refused, announced or not, and heads have one too`() throws {
    let server = ScriptedServer { request in
      switch request.target {
      case "/announced": return .answer(200, [], [UInt8](repeating: 1, count: 1001))
      case "/head":
        return .raw(
          Array("HTTP/1.1 200 OK\r\n".utf8)
            + (0..<200).flatMap { Array("X-\($0): \(String(repeating: "a", count: 8000))\r\n".utf8) }
            + Array("\r\n".utf8))
      default: return .raw(Array("HTTP/1.1 200 OK\r\n\r\n".utf8) + [UInt8](repeating: 1, count: 1001))
      }
    }
    let client = directClient()
    for path in ["/announced", "/silent", "/head"] {
      var request = try get(server.address + path)
      request.maxAnswerBytes = 1000
      #expect(transportFailure { () throws(TransportError) in _ = try client.send(request) }?.code == .tooLarge)
    }
    // One more byte is allowed.
    var request = try get(server.address + "/silent")
    request.maxAnswerBytes = 1001
    #expect(try client.send(request).body.count == 1001)
  }

  // MARK: Failures

  @Test func `whether a lost request may have arrived is told from what was sent`() throws {
    let picture = [UInt8](repeating: 7, count: 8 << 20)
    let server = ScriptedServer(
      reading: { request in request.target == "/half" ? .closeAfter(100_000) : .all },
      { request in
        request.target == "/cut" ? .raw(Array("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".utf8)) : .close
      })
    let client = directClient()
    func lose(_ path: String, _ method: HTTPMethod = .post, body: Bool = true) throws -> TransportError {
      let url = try RequestURL(server.address + path)
      let request = Request(method, url, body: body ? .raw(Payload(picture), type: "image/png") : .none)
      return try #require(transportFailure { () throws(TransportError) in _ = try client.send(request) })
    }
    let half = try lose("/half")
    #expect(half.code == .interrupted && !half.bodyMayHaveArrived)
    let whole = try lose("/whole")
    #expect(whole.code == .interrupted && whole.bodyMayHaveArrived)
    let cut = try lose("/cut")
    #expect(cut.code == .interrupted && cut.bodyMayHaveArrived && cut.status == 200)
    let bare = try lose("/bare", .delete, body: false)
    #expect(bare.code == .interrupted && bare.bodyMayHaveArrived)
    let nobody = try #require(
      transportFailure { () throws(TransportError) in
        _ = try client.send(
          Request(.post, try RequestURL("http://127.0.0.1:1/"), body: .raw(Payload(picture), type: "a/b")))
      })
    #expect(nobody.code == .unreachable && !nobody.bodyMayHaveArrived)
  }

  @Test func `a kept connection that dies under a request does not send twice what must not be`() throws {
    // Answers the first request of each connection, and hangs up after reading the second.
    let server = ScriptedServer { request in request.target == "/first" ? .answer(200) : .close }
    let client = directClient()
    let url = try RequestURL(server.address + "/second")
    for body in [RequestBody.raw(Payload("x"), type: "a/b"), .raw(Payload(picture), type: "a/b"), .none] {
      _ = try client.send(try get(server.address + "/first"))
      let before = server.requests.count
      let error = try #require(
        transportFailure { () throws(TransportError) in _ = try client.send(Request(.post, url, body: body)) })
      #expect(error.code == .interrupted && error.bodyMayHaveArrived)
      #expect(server.requests.count == before + 1)
    }
    // A PUT may: libcurl tries a new connection by itself.
    _ = try client.send(try get(server.address + "/first"))
    let before = server.requests.count
    let error = transportFailure { () throws(TransportError) in
      _ = try client.send(Request(.put, url, body: .raw(Payload("x"), type: "a/b")))
    }
    #expect(error?.code == .interrupted && server.requests.count == before + 2)
  }

  @Test func `a refusal before the body is read is the answer`() throws {
    let server = ScriptedServer(
      reading: { _ in .answer(.raw(Array("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig".utf8))) },
      { _ in .close })
    let body = RequestBody.raw(Payload([UInt8](repeating: 7, count: 16 << 20)), type: "image/png")
    let answer = try directClient().send(Request(.post, try RequestURL(server.address), body: body))
    #expect(answer.status == 413)
  }

  @Test func `cancelling is felt at once, before sending and while waiting`() throws {
    let server = ScriptedServer { _ in .stall() }
    let client = directClient()
    let early = transportFailure { () throws(TransportError) in
      _ = try client.send(try get(server.address), isCancelled: { true })
    }
    #expect(early?.code == .cancelled && early?.bodyMayHaveArrived == false && server.requests.isEmpty)
    var since: ContinuousClock.Instant?
    let late = transportFailure { () throws(TransportError) in
      _ = try client.send(
        try get(server.address),
        isCancelled: {
          guard !server.requests.isEmpty else { return false }
          since = since ?? .now
          return true
        })
    }
    #expect(late?.code == .cancelled && late?.bodyMayHaveArrived == true)
    #expect(since.map { ContinuousClock.now - $0 < .milliseconds(200) } == true)
  }

  @Test func `silence ends in time, of the answer and of the whole`() throws {
    let server = ScriptedServer { _ in .stall(Array("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".utf8)) }
    let client = directClient()
    var request = try get(server.address)
    request.timeouts = Timeouts(stall: 0.2)
    let stalled = transportFailure { () throws(TransportError) in _ = try client.send(request) }
    #expect(stalled?.code == .stalled && stalled?.message == "nothing has moved for 0.2 seconds")
    request.timeouts = Timeouts(stall: 60, total: 0.2)
    let late = transportFailure { () throws(TransportError) in _ = try client.send(request) }
    #expect(late?.code == .stalled && late?.bodyMayHaveArrived == true)
  }

  // MARK: Redirects

  @Test func `a redirect is an answer unless it is to be followed, and only GET and HEAD are`() throws {
    let server = ScriptedServer { request in
      request.target == "/end" ? .text(200, [], "here") : .answer(302, ["Location: ../end"])
    }
    let client = directClient()
    var request = try get(server.address + "/a/b")
    #expect(try client.send(request).status == 302)
    request.redirects = .follow(most: 3)
    let answer = try client.send(request)
    #expect(answer.status == 200 && answer.body == Array("here".utf8) && answer.url.path == "/end")
    var post = Request(.post, request.url, body: .raw(Payload("x"), type: "a/b"))
    post.redirects = .follow(most: 3)
    #expect(try client.send(post).status == 302)
    #expect(server.requests.count(where: { $0.method == "POST" }) == 1)
  }

  @Test func `credentials of every kind stay with the server they are for`() throws {
    let other = ScriptedServer { _ in .text(200, [], "other") }
    let otherAddress = other.address
    let server = ScriptedServer { request in
      switch request.target {
      case "/same": .answer(307, ["Location: /end"])
      case "/other": .answer(302, ["Location: \(otherAddress)/x"])
      default: .answer(200)
      }
    }
    let client = directClient()
    for authentication: Authentication in [
      .bearer("tok-secret"), .basic(user: "u", password: "p"), .basicOrDigest(user: "u", password: "p"),
    ] {
      var request = try get(server.address + "/same")
      request.headers = [
        HeaderField("X-Api-Key", "k"), HeaderField("Cookie", "c=1"), HeaderField("X-Own", "o", isCredential: true),
        HeaderField("X-Plain", "p"),
      ]
      request.authentication = authentication
      request.redirects = .follow(most: 3)
      _ = try client.send(request)
      let same = try #require(server.requests.last)
      #expect(same.target == "/end" && same["x-api-key"] == "k" && same["cookie"] == "c=1" && same["x-own"] == "o")
      request.url = try RequestURL(server.address + "/other")
      _ = try client.send(request)
      let moved = try #require(other.requests.last)
      #expect(moved["x-plain"] == "p" && moved["referer"] == nil)
      for name in ["authorization", "cookie", "x-api-key", "x-own"] { #expect(moved[name] == nil) }
    }
  }

  @Test func `redirects end, pass the check, and never lead to another scheme`() throws {
    let server = ScriptedServer { request in
      switch request.target {
      case "/file": .answer(302, ["Location: file:///etc/passwd"])
      case "/none": .answer(302, ["Location: http://"])
      case "/last": .answer(200)
      default: .answer(302, ["Location: /\((Int(request.target.dropFirst()) ?? 0) + 1)"])
      }
    }
    let client = directClient()
    func refusal(_ path: String, _ policy: RedirectPolicy) -> TransportError? {
      transportFailure { () throws(TransportError) in
        var request = try get(server.address + path)
        request.redirects = policy
        _ = try client.send(request)
      }
    }
    #expect(refusal("/0", .follow(most: 3))?.code == .refused)
    #expect(server.requests.count == 4)
    #expect(refusal("/file", .follow(most: 3))?.code == .refused)
    #expect(refusal("/none", .follow(most: 3))?.code == .refused)
    let checked = refusal(
      "/7",
      .follow(most: 9) { (url) throws(TransportError) in
        if url.path == "/9" { throw TransportError(.refused, "not there") }
      })
    #expect(checked?.message == "not there" && server.requests.last?.target == "/8")
  }

  // MARK: Private addresses

  @Test(arguments: [
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "169.254.169.254",
    "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.19.255.255",
    "198.51.100.7", "203.0.113.9", "224.0.0.1", "240.0.0.1", "255.255.255.255", "[::1]", "[::]", "[fc00::1]",
    "[fdff::1]",
    "[fe80::1]", "[febf::1]", "[ff02::1]", "[2001:db8::1]", "[2001::1]", "[2002:7f00:1::1]", "[3fff::1]",
    "[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]", "[64:ff9b::10.0.0.1]", "[::127.0.0.1]", "[100::1]", "localhost",
    "LOCALHOST", "a.localhost", "127.0.0.1.",
  ])
  func `private and reserved addresses are refused`(host: String) throws {
    let url = try RequestURL("http://\(host):1/")
    #expect(url.isPrivate)
    var request = Request(.get, url)
    request.allowsPrivateAddresses = false
    let error = transportFailure { () throws(TransportError) in _ = try directClient().send(request) }
    #expect(error?.code == .refused && error?.bodyMayHaveArrived == false)
  }

  @Test(arguments: [
    "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1",
    "169.253.1.1", "172.15.0.1", "172.32.0.1", "192.0.1.1", "192.167.1.1", "198.17.255.255", "198.20.0.0",
    "223.255.255.255",
    "[2606:4700::1111]", "[::ffff:8.8.8.8]", "[64:ff9b::8.8.8.8]", "[2001:4860:4860::8888]", "example.com",
  ])
  func `addresses of the internet are not`(host: String) throws {
    #expect(try !RequestURL("https://\(host)/").isPrivate)
  }

  @Test func `a name is looked at after it is found`() throws {
    var name = [CChar](repeating: 0, count: 256)
    gethostname(&name, 255)
    let host = String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    guard let url = try? RequestURL("http://\(host):1/"), !url.isPrivate,
      transportFailure({ () throws(TransportError) in _ = try directClient().send(Request(.get, url)) })?.message
        .contains("resolve") == false
    else {
      print("not tested: this machine's name leads nowhere")
      return
    }
    var request = Request(.get, url)
    request.allowsPrivateAddresses = false
    let error = transportFailure { () throws(TransportError) in _ = try directClient().send(request) }
    #expect(error?.code == .refused && error?.message.contains(host) == true)
  }

  @Test func `a redirect to a private address is refused where those are`() throws {
    // The proxy plays the server of a public name, which sends on to this machine.
    let proxy = ScriptedServer { request in .answer(302, ["Location: http://127.0.0.1:9/"]) }
    let client = Client(ClientOptions(proxy: proxy.address, noProxy: ""))
    var request = try get("http://pictures.example/a")
    request.allowsPrivateAddresses = false
    request.redirects = .follow(most: 3)
    let error = transportFailure { () throws(TransportError) in _ = try client.send(request) }
    #expect(error?.code == .refused && error?.message.contains("127.0.0.1") == true)
    #expect(proxy.requests.map(\.target) == ["http://pictures.example/a"])
  }

  // MARK: Connections

  @Test func `fifty requests go over one connection`() throws {
    let server = ScriptedServer { _ in .text(200, [], "ok") }
    let client = directClient()
    let url = try RequestURL(server.address)
    for number in 0..<50 {
      let body = RequestBody.raw(Payload(Array(picture[..<1000])), type: "image/png")
      _ = try client.send(Request([.post, .put, .get][number % 3], url, body: number % 3 == 2 ? .none : body))
    }
    #expect(server.requests.count == 50 && server.connections == 1 && client.connectionsOpened == 1)
  }

  @Test func `many threads share a client, and it keeps no more connections than were needed at once`() async throws {
    let server = ScriptedServer { request in .answer(200, [], request.body) }
    let client = directClient()
    let url = try RequestURL(server.address)
    try await withThrowingTaskGroup(of: Void.self) { group in
      for thread in 0..<4 {
        group.addTask {
          for number in 0..<25 {
            let body = Array("\(thread)-\(number)".utf8)
            let answer = try client.send(Request(.post, url, body: .raw(Payload(body), type: "a/b")))
            #expect(answer.body == body)
          }
        }
      }
      try await group.waitForAll()
    }
    #expect(server.requests.count == 100 && server.connections <= 4 && client.connectionsOpened == server.connections)
  }

  // MARK: Proxies

  @Test func `a proxy gets the request, but for exceptions and this machine`() throws {
    let proxy = ScriptedServer { request in
      request.method == "CONNECT" ? .raw(Array("HTTP/1.1 403 No\r\n\r\n".utf8)) : .text(200, [], request.target)
    }
    let client = Client(
      ClientOptions(proxy: proxy.address, noProxy: "near.example, 127.0.0.0/8"))
    let through = try client.send(try get("http://pictures.example:8080/a?b"))
    #expect(through.body == Array("http://pictures.example:8080/a?b".utf8))
    // Through a proxy only name and number are looked at: it finds the host by itself.
    var request = try get("http://pictures.example/")
    request.allowsPrivateAddresses = false
    #expect(try client.send(request).status == 200)
    request.url = try RequestURL("http://192.168.0.1/")
    #expect(transportFailure { () throws(TransportError) in _ = try client.send(request) }?.code == .refused)
    let tunnel = transportFailure { () throws(TransportError) in
      _ = try client.send(try get("https://pictures.example/"))
    }
    #expect(tunnel?.code == .unreachable && tunnel?.bodyMayHaveArrived == false)
    #expect(proxy.requests.map(\.method) == ["GET", "GET", "CONNECT"])
    // An exception is reached directly: here nobody listens.
    let direct = transportFailure { () throws(TransportError) in _ = try client.send(try get("https://127.0.0.1:1/")) }
    #expect(direct?.code == .unreachable)
    let server = ScriptedServer { _ in .answer(200) }
    _ = try client.send(try get(server.address))
    #expect(server.requests.count == 1 && proxy.requests.count == 3)
    _ = try client.send(try get("http://notnear.example/"))
    #expect(proxy.requests.count == 4)
  }
}
