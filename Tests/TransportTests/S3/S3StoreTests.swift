import TestSupport
import Testing
import Transport

/// Against a store that checks the signatures of headers. (It knows none in addresses; for those see `SigV4Tests`.)
@Suite(.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"))
struct S3StoreTests {
  private let store: Moto
  private let http = Client()

  init() throws { store = try Peers.moto() }

  private func client(
    _ name: String, id: String? = nil, secret: String? = nil, token: String? = nil
  ) throws -> S3Client {
    S3Client(
      try S3Bucket(name, region: nil, endpoint: try RequestURL(store.address)),
      caller: Caller(client: http, pacer: Pacer(perMinute: nil)),
      credentials: AWSCredentials(
        accessKeyID: id ?? store.keys.accessKey, secretAccessKey: secret ?? store.keys.secretKey, sessionToken: token,
        origin: "the store"),
      pause: { _ in })
  }

  /// A client for a bucket of the test's own.
  private func clientOfBucket() throws -> S3Client { try client(try store.makeBucket()) }

  private static let keys = [
    "plain.png", "with space.png", "a+b", "100%", "a%20b", "a&b=c;d", "\"quoted\" 'single'.png",
    // In both normal forms.
    "\u{FC}ber/\u{E4}.png", "u\u{308}ber/a\u{308}.png",
    "a//b", "//c//", "/leading", "d/../e", "./f", "g/.", "h/..", "日本/🙂.webp", "back\\slash", "q?m#h", "~tilde",
    "!*'()@:,$",
    "<xml>&amp;", "tab\there", String(repeating: "x", count: 1_024), String(repeating: "ü", count: 512),
  ]

  private func bytes(of key: String) -> [UInt8] { Array("content of \(key)".utf8) + [0, 255, 10] }

  @Test func `odd keys are stored, read back equal, listed as they are, and deleted`() throws {
    let client = try clientOfBucket()
    for key in Self.keys {
      guard case .stored(let etag?, _) = try client.put(key, Payload(bytes(of: key))) else {
        Issue.record("\(key) is not stored")
        continue
      }
      #expect(etag.hasPrefix("\""))
      let head = try #require(try client.head(key), "\(key) has no head")
      #expect(head.size == bytes(of: key).count && head.etag == etag && head.sha256?.utf8.count == 64)
      #expect(try client.get(key)?.bytes == bytes(of: key), "\(key) reads back otherwise")
    }
    var listed: [[UInt8]] = []
    try client.eachObject {
      listed.append(Array($0.key.utf8))
      return true
    }
    // As bytes: two normal forms of a text are the same String.
    let expected = Self.keys.map { Array($0.utf8) }
    #expect(Set(listed) == Set(expected) && listed.count == expected.count)
    for key in Self.keys { try client.delete(key) }
    #expect(try client.page().objects.isEmpty)
    #expect(try client.head("plain.png") == nil && client.get("plain.png") == nil)
  }

  @Test func `a wrong key is refused, which shows that signatures are checked`() throws {
    let name = try store.makeBucket()
    for (client, code) in [
      (try client(name, secret: store.keys.secretKey + "x"), "SignatureDoesNotMatch"),
      (try client(name, id: "AKIAIOSFODNN7EXAMPLE"), "InvalidAccessKeyId"),
    ] {
      do throws(ServiceFailure) {
        _ = try client.put("k", Payload("x"))
        Issue.record("a request with a wrong key is taken")
      } catch {
        #expect(error.kind == .credentials && error.code == code && error.status == 403 && error.attempts == 1)
        #expect(!error.message.contains(store.keys.secretKey))
      }
    }
  }

  @Test func `temporary keys work with their token alone`() throws {
    let (name, keys) = (try store.makeBucket(), store.temporaryKeys)
    let client = try client(name, id: keys.accessKey, secret: keys.secretKey, token: keys.token)
    _ = try client.put("k", Payload("x"))
    #expect(try client.get("k")?.bytes == Array("x".utf8))
    let without = try self.client(name, id: keys.accessKey, secret: keys.secretKey)
    #expect(throws: ServiceFailure.self) { _ = try without.put("k", Payload("x")) }
  }

  @Test func `a missing bucket is named`() throws {
    let client = try client("none-such")
    do throws(ServiceFailure) {
      _ = try client.put("k", Payload("x"))
      Issue.record("an object is stored nowhere")
    } catch { #expect(error.kind == .request && error.code == "NoSuchBucket") }
  }

  @Test func `an object keeps what it is described with`() throws {
    let client = try clientOfBucket()
    var options = S3PutOptions()
    options.type = "image/webp"
    options.cacheControl = "public, max-age=60"
    options.contentDisposition = "inline"
    options.metadata = [("Source", "a  b; c=\"d\""), ("a", "1"), ("a-b", "2")]
    options.storageClass = "STANDARD_IA"
    options.encryption = .kms(key: "arn:aws:kms:us-east-1:1:key/2")
    _ = try client.put("k", Payload("x"), options: options)
    let head = try #require(try client.head("k"))
    #expect(head.type == "image/webp" && head.size == 1)
    #expect(
      head.metadata["a"] == "1" && head.metadata["a-b"] == "2" && head.metadata["source"]?.hasPrefix("a ") == true)
    #expect(head.sha256 == "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881")
  }

  @Test func `what is there is left, and what is the same is not sent`() throws {
    let client = try clientOfBucket()
    var options = S3PutOptions()
    options.onlyIfAbsent = true
    guard case .stored = try client.put("k", Payload("one"), options: options) else {
      Issue.record("not stored")
      return
    }
    guard case .existed(let object?) = try client.put("k", Payload("two"), options: options) else {
      Issue.record("stored over")
      return
    }
    #expect(object.size == 3)
    #expect(try client.get("k")?.bytes == Array("one".utf8))
    options.onlyIfAbsent = false
    options.skipsIdentical = true
    guard case .identical = try client.put("k", Payload("one"), options: options) else {
      Issue.record("sent again")
      return
    }
    guard case .stored = try client.put("k", Payload("two"), options: options) else {
      Issue.record("not replaced")
      return
    }
    #expect(try client.get("k")?.bytes == Array("two".utf8))
  }

  @Test func `listings come in pages, with prefixes, and from a key on`() throws {
    let client = try clientOfBucket()
    let keys = (10..<35).map { "p +/\($0).png" } + ["other/1", "top"]
    for key in keys { _ = try client.put(key, Payload("x")) }
    var pages: [[String]] = []
    var token: String?
    repeat {
      let page = try client.page(prefix: "p +/", token: token, limit: 10)
      pages.append(page.objects.map(\.key))
      token = page.next
    } while token != nil
    #expect(pages.map(\.count) == [10, 10, 5] && pages.flatMap { $0 } == Array(keys.prefix(25)))
    let top = try client.page(delimiter: "/")
    #expect(top.objects.map(\.key) == ["top"] && top.prefixes == ["other/", "p +/"])
    var rest: [String] = []
    try client.eachObject(prefix: "p +/", startAfter: "p +/31.png") {
      rest.append($0.key)
      return rest.count < 2
    }
    #expect(rest == ["p +/32.png", "p +/33.png"])
  }

  /// Bytes that differ everywhere, made as they are read.
  private func large(_ count: Int, failingAt end: Int = .max) -> Payload {
    Payload(count: count) { offset, buffer in
      guard offset < end else { return -1 }
      for index in buffer.indices {
        buffer[index] = UInt8(truncatingIfNeeded: (offset + index) &* 31 &+ (offset + index) >> 12)
      }
      return buffer.count
    }
  }

  @Test func `a large object goes in parts and reads back equal`() throws {
    let client = try clientOfBucket()
    var options = S3PutOptions()
    options.multipartThreshold = 6 << 20
    options.partSize = 5 << 20
    options.type = "image/tiff"
    let payload = large(11 << 20)
    guard case .stored(let etag?, _) = try client.put("large + ü", payload, options: options) else {
      Issue.record("not stored")
      return
    }
    #expect(etag.hasSuffix("-3\""))
    let object = try #require(try client.get("large + ü"))
    #expect(object.bytes == (try payload.bytes()))
    #expect(object.object.type == "image/tiff" && object.object.sha256?.utf8.count == 64)
    // Just below, at once.
    guard case .stored(let single?, _) = try client.put("small", large(6 << 20 - 1), options: options) else {
      Issue.record("not stored")
      return
    }
    #expect(!single.contains("-"))
  }

  @Test func `an upload in parts that fails leaves no parts`() throws {
    let client = try clientOfBucket()
    var options = S3PutOptions()
    options.multipartThreshold = 6 << 20
    options.partSize = 5 << 20
    let digest = [UInt8](repeating: 0, count: 32)
    #expect(throws: ServiceFailure.self) {
      _ = try client.put("k", large(11 << 20, failingAt: 5 << 20), digest: digest, options: options)
    }
    #expect(try client.head("k") == nil)
    let signer = SigV4(accessKeyID: store.keys.accessKey, secretAccessKey: store.keys.secretKey, region: "us-east-1")
    let url = try client.bucket.url(query: [("uploads", "")])
    let fields = signer.headers(
      for: .init(method: "GET", url: url), payload: SigV4.emptyPayload, time: Int(RetryAfter.wallClock()))
    let response = try http.send(Request(.get, url, headers: fields.map { HeaderField($0.name, $0.value) }))
    let uploads = try XMLAnswer.read(response.body)
    #expect(uploads.name == "ListMultipartUploadsResult" && uploads["Upload"] == nil)
  }
}
