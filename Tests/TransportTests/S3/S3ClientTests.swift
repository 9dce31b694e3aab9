import Digest
import Synchronization
import Testing
import Transport

/// What the client does about answers that no store gives when asked to: against answers written here.
@Suite struct S3ClientTests {
  /// Answers requests in their order, and keeps them.
  private final class Script: Sendable {
    enum Step: Sendable {
      case answer(Int, String = "", headers: [(String, String)] = [])
      case lost
    }

    struct Sent: Sendable {
      var line: String
      var headers: [String: String]
      var body: [UInt8]
    }

    private let state: Mutex<(steps: [Step], sent: [Sent])>

    init(_ steps: [Step]) { state = Mutex((steps, [])) }

    var sent: [Sent] { state.withLock { $0.sent } }
    var lines: [String] { sent.map(\.line) }

    func send(_ request: Request) throws(TransportError) -> Response {
      let body: [UInt8]
      if case .raw(let payload, _) = request.body { body = try payload.bytes() } else { body = [] }
      var headers: [String: String] = [:]
      for field in request.headers { headers[field.name.lowercased()] = field.value }
      let step = state.withLock { state in
        state.sent.append(
          Sent(line: "\(request.method.rawValue) \(request.url.target)", headers: headers, body: body))
        return state.steps.isEmpty ? nil : state.steps.removeFirst()
      }
      switch step {
      case nil: throw TransportError(.failed, "nothing more is expected")
      case .lost: throw TransportError(.interrupted, "the connection broke", bodyMayHaveArrived: true)
      case .answer(let status, let body, let headers):
        return Response(status: status, headers: Headers(headers), body: Array(body.utf8), url: request.url)
      }
    }
  }

  private func client(
    _ script: Script, isCancelled: @escaping @Sendable () -> Bool = { false }
  ) throws -> S3Client {
    let clock = Clock()
    return S3Client(
      try S3Bucket("b", region: "eu-west-1", endpoint: try RequestURL("https://s3.example")),
      caller: Caller(
        send: { (request, _) throws(TransportError) in try script.send(request) }, pacer: Pacer(perMinute: nil),
        random: { 0 }),
      credentials: AWSCredentials(accessKeyID: "AK", secretAccessKey: "not a secret", sessionToken: nil, origin: "x"),
      isCancelled: isCancelled, pause: { _ in }, now: { clock.next() })
  }

  /// Goes on by a second each time it is looked at.
  private final class Clock: Sendable {
    private let time = Atomic(1_772_600_767)
    func next() -> Double { Double(time.add(1, ordering: .relaxed).oldValue) }
  }

  private func failure<T>(_ body: () throws(ServiceFailure) -> T) -> ServiceFailure? {
    do throws(ServiceFailure) {
      _ = try body()
      return nil
    } catch { return error }
  }

  private let content = Payload("content")
  private let digest = Hex.text(SHA256.digest(of: Array("content".utf8)))
  private let stored = Script.Step.answer(200, headers: [("ETag", "\"e\"")])

  private func error(_ code: String) -> String { "<Error><Code>\(code)</Code><Message>M</Message></Error>" }

  private func head(_ digest: String?, size: Int = 7) -> Script.Step {
    .answer(
      200,
      headers: [("Content-Length", String(size)), ("ETag", "\"h\"")]
        + (digest.map { [("X-Amz-Meta-Sha256", $0)] } ?? []))
  }

  @Test func `each attempt is signed when it is sent`() throws {
    let script = Script([.lost, .answer(503, error("SlowDown")), stored])
    _ = try client(script).put("k", content)
    #expect(script.lines == ["PUT /b/k", "PUT /b/k", "PUT /b/k"])
    #expect(Set(script.sent.map { $0.headers["x-amz-date"] }).count == 3)
    #expect(Set(script.sent.map { $0.headers["authorization"] }).count == 3)
    #expect(script.sent.allSatisfy { $0.headers["x-amz-content-sha256"] == digest && $0.body == Array("content".utf8) })
  }

  @Test func `headers are those of the options, all of them signed`() throws {
    var options = S3PutOptions()
    options.type = "image/webp"
    options.cacheControl = "max-age=60"
    options.metadata = [("Source", "a b"), ("x", "1")]
    options.storageClass = "STANDARD_IA"
    options.encryption = .kms(key: "key")
    options.acl = "bucket-owner-full-control"
    let script = Script([stored])
    _ = try client(script).put("k", content, options: options)
    let headers = try #require(script.sent.first?.headers)
    let expected = [
      "cache-control": "max-age=60", "x-amz-acl": "bucket-owner-full-control", "x-amz-storage-class": "STANDARD_IA",
      "x-amz-server-side-encryption": "aws:kms", "x-amz-server-side-encryption-aws-kms-key-id": "key",
      "x-amz-meta-source": "a b", "x-amz-meta-x": "1", "x-amz-meta-sha256": digest,
    ]
    for (name, value) in expected { #expect(headers[name] == value) }
    let names = (Array(expected.keys) + ["content-type", "host", "x-amz-content-sha256", "x-amz-date"]).sorted()
    #expect(headers["authorization"]?.contains("SignedHeaders=\(names.joined(separator: ";")),") == true)
  }

  @Test func `what must not be replaced is asked for first, and sent with a condition`() throws {
    var options = S3PutOptions()
    options.onlyIfAbsent = true
    let absent = Script([.answer(404), stored])
    guard case .stored("\"e\"", nil) = try client(absent).put("k", content, options: options) else {
      Issue.record("not stored")
      return
    }
    #expect(absent.lines == ["HEAD /b/k", "PUT /b/k"] && absent.sent[1].headers["if-none-match"] == "*")

    let there = Script([head("0")])
    guard case .existed(let object?) = try client(there).put("k", content, options: options) else {
      Issue.record("not seen")
      return
    }
    #expect(object.etag == "\"h\"" && object.size == 7 && object.sha256 == "0")

    // Somebody else comes between.
    let race = Script([.answer(404), .answer(412, error("PreconditionFailed")), head(digest)])
    guard case .existed(_?) = try client(race).put("k", content, options: options) else {
      Issue.record("the other's object is taken for ours")
      return
    }
    // Our own first attempt comes between: its answer was lost.
    let own = Script([.answer(404), .lost, .answer(412, error("PreconditionFailed")), head(digest)])
    guard case .stored("\"h\"", nil) = try client(own).put("k", content, options: options) else {
      Issue.record("our own object is taken for another's")
      return
    }
    let other = Script([.answer(404), .lost, .answer(412, error("PreconditionFailed")), head("0")])
    guard case .existed(_?) = try client(other).put("k", content, options: options) else {
      Issue.record("the other's object is taken for ours")
      return
    }
  }

  @Test func `a service without conditions gets none`() throws {
    var options = S3PutOptions()
    options.onlyIfAbsent = true
    let script = Script([.answer(404), .answer(501, error("NotImplemented")), stored])
    _ = try client(script).put("k", content, options: options)
    #expect(script.sent.map { $0.headers["if-none-match"] } == [nil, "*", nil])
  }

  @Test func `what may not be looked at is not replaced, but stored again`() throws {
    var options = S3PutOptions()
    options.onlyIfAbsent = true
    let refused = failure { () throws(ServiceFailure) in
      try client(forcing: Script([.answer(403)])).put("k", content, options: options)
    }
    #expect(refused?.kind == .credentials && refused?.message.contains("s3:ListBucket") == true)
    options.onlyIfAbsent = false
    options.skipsIdentical = true
    let script = Script([.answer(403), stored])
    _ = try client(script).put("k", content, options: options)
    #expect(script.lines == ["HEAD /b/k", "PUT /b/k"])
  }

  /// For bodies that throw nothing but failures.
  private func client(forcing script: Script) -> S3Client {
    guard let client = try? client(script) else { preconditionFailure("the bucket of the tests is no bucket") }
    return client
  }

  @Test(arguments: [true, false])
  func `what is the same already is not sent`(isSame: Bool) throws {
    var options = S3PutOptions()
    options.skipsIdentical = true
    for (digest, size) in [(digest, isSame ? 7 : 8), (isSame ? digest : "0", 7)] {
      let script = Script([head(digest, size: size), stored])
      switch try client(script).put("k", content, options: options) {
      case .identical(let object): #expect(isSame && object.etag == "\"h\"" && script.sent.count == 1)
      case .stored: #expect(!isSame && script.sent.count == 2)
      case .existed: Issue.record("not asked for")
      }
    }
  }

  @Test func `a page in place of an answer is no success`() throws {
    let script = Script([.answer(200, "<html>Sign in</html>", headers: [("Content-Type", "text/html")])])
    let failure = failure { () throws(ServiceFailure) in try client(forcing: script).put("k", content) }
    #expect(failure?.message.contains("Sign in") == true)
  }

  @Test func `bytes that cannot be read send nothing`() {
    let broken = Payload(count: 10) { offset, _ in offset < 5 ? 0 : -1 }
    let script = Script([stored])
    #expect(failure { () throws(ServiceFailure) in try client(forcing: script).put("k", broken) }?.kind == .request)
    #expect(script.sent.isEmpty)
  }

  // MARK: - Parts

  private static let mebibyte = 1 << 20
  private let large = Payload(count: 12 << 20) { _, buffer in
    buffer.initializeMemory(as: UInt8.self, repeating: 7)
    return buffer.count
  }
  private var inParts: S3PutOptions {
    var options = S3PutOptions()
    options.multipartThreshold = 10 << 20
    options.partSize = 5 << 20
    options.type = "image/tiff"
    return options
  }
  private let begun = Script.Step.answer(
    200, "<InitiateMultipartUploadResult xmlns=\"x\"><UploadId>u/1+</UploadId></InitiateMultipartUploadResult>")
  private func part(_ tag: String) -> Script.Step { .answer(200, headers: [("ETag", tag)]) }
  private let completed = Script.Step.answer(
    200, "\n  <CompleteMultipartUploadResult xmlns=\"x\"><ETag>\"t-3\"</ETag></CompleteMultipartUploadResult>",
    headers: [("x-amz-version-id", "v")])

  @Test func `a large object goes in parts of one size, described at the start and completed in order`() throws {
    let script = Script([begun, part("\"1\""), part("\"<2>\""), part("\"3\""), completed])
    guard case .stored("\"t-3\"", "v") = try client(script).put("k", large, options: inParts) else {
      Issue.record("not stored")
      return
    }
    #expect(
      script.lines == [
        "POST /b/k?uploads=", "PUT /b/k?partNumber=1&uploadId=u%2F1%2B", "PUT /b/k?partNumber=2&uploadId=u%2F1%2B",
        "PUT /b/k?partNumber=3&uploadId=u%2F1%2B", "POST /b/k?uploadId=u%2F1%2B",
      ])
    #expect(script.sent.map(\.body.count).prefix(4) == [0, 5 << 20, 5 << 20, 2 << 20])
    #expect(script.sent.map { $0.headers["x-amz-meta-sha256"] != nil } == [true, false, false, false, false])
    #expect(
      script.sent[3].headers["x-amz-content-sha256"]
        == Hex.text(SHA256.digest(of: [UInt8](repeating: 7, count: 2 << 20))))
    #expect(
      String(decoding: script.sent[4].body, as: UTF8.self)
        == "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
        + "<Part><PartNumber>1</PartNumber><ETag>\"1\"</ETag></Part>"
        + "<Part><PartNumber>2</PartNumber><ETag>\"&lt;2&gt;\"</ETag></Part>"
        + "<Part><PartNumber>3</PartNumber><ETag>\"3\"</ETag></Part></CompleteMultipartUpload>")
  }

  @Test func `an upload in parts that fails is ended`() throws {
    let cases: [(steps: [Script.Step], message: String)] = [
      ([begun, part("\"1\""), .answer(403, error("AccessDenied"))], "AccessDenied"),
      ([begun, part("\"1\""), .answer(200)], "no ETag"),
      ([begun, part("\"1\""), part("\"2\""), part("\"3\""), .answer(400, error("InvalidPart"))], "InvalidPart"),
      ([begun, part("\"1\""), part("\"2\""), part("\"3\""), .answer(200, error("AccessDenied"))], "AccessDenied"),
      ([begun, part("\"1\""), part("\"2\""), part("\"3\""), .answer(200, "<html/>")], "no CompleteMultipartUpload"),
    ]
    for (steps, message) in cases {
      let script = Script(steps + [.answer(204)])
      let failure = failure { () throws(ServiceFailure) in
        try client(forcing: script).put("k", large, options: inParts)
      }
      #expect(failure?.message.contains(message) == true)
      #expect(script.lines.last == "DELETE /b/k?uploadId=u%2F1%2B")
      #expect(script.sent.count == steps.count + 1)
    }
    // Nothing was begun.
    let script = Script([.answer(403, error("AccessDenied"))])
    _ = failure { () throws(ServiceFailure) in try client(forcing: script).put("k", large, options: inParts) }
    #expect(script.lines == ["POST /b/k?uploads="])
  }

  @Test func `one that is cancelled is ended too`() throws {
    let script = Script([begun, part("\"1\""), .answer(204)])
    let client = try client(script, isCancelled: { script.sent.count >= 2 })
    let failure = failure { () throws(ServiceFailure) in try client.put("k", large, options: inParts) }
    #expect(failure?.kind == .cancelled)
    #expect(script.lines.last == "DELETE /b/k?uploadId=u%2F1%2B" && script.sent.count == 3)
  }

  @Test func `a success that holds an error is tried again`() throws {
    let parts = [begun, part("\"1\""), part("\"2\""), part("\"3\"")]
    let script = Script(parts + [.answer(200, " \n" + error("InternalError")), completed])
    guard case .stored("\"t-3\"", "v") = try client(script).put("k", large, options: inParts) else {
      Issue.record("not stored")
      return
    }
  }

  @Test func `a completion whose answer was lost is found out by its object`() throws {
    let parts = [begun, part("\"1\""), part("\"2\""), part("\"3\""), .lost, .answer(404, error("NoSuchUpload"))]
    let ours = Hex.text(SHA256.digest(of: [UInt8](repeating: 7, count: 12 << 20)))
    let script = Script(parts + [head(ours, size: 12 << 20)])
    guard case .stored("\"h\"", nil) = try client(script).put("k", large, options: inParts) else {
      Issue.record("not found")
      return
    }
    let other = Script(parts + [head("0", size: 12 << 20), .answer(204)])
    let failure = failure { () throws(ServiceFailure) in
      try client(forcing: other).put("k", large, options: inParts)
    }
    #expect(failure?.code == "NoSuchUpload")
  }

  // MARK: - Listing

  private func listing(_ inside: String) -> Script.Step {
    .answer(200, "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\(inside)</ListBucketResult>")
  }

  private func entry(_ key: String) -> String {
    "<Contents><Key>\(key)</Key><Size>3</Size><ETag>\"e\"</ETag><LastModified>2026-01-02T03:04:05.000Z</LastModified></Contents>"
  }

  @Test func `pages are asked for as they are needed`() throws {
    let script = Script([
      listing("<IsTruncated>true</IsTruncated><NextContinuationToken>1/+=</NextContinuationToken>" + entry("a")),
      listing("<IsTruncated>false</IsTruncated>" + entry("b") + entry("c")),
    ])
    var keys: [String] = []
    try client(script).eachObject(prefix: "p /", startAfter: "p /0") {
      keys.append($0.key)
      return true
    }
    #expect(keys == ["a", "b", "c"])
    let common = "GET /b/?encoding-type=url&list-type=2&max-keys=1000&prefix=p%20%2F"
    #expect(script.lines == [common + "&start-after=p%20%2F0", common + "&continuation-token=1%2F%2B%3D"])

    let first = Script([
      listing("<IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>" + entry("a"))
    ])
    try client(first).eachObject { _ in false }
    #expect(first.sent.count == 1)
  }

  @Test func `keys are decoded where the service has encoded them`() throws {
    let keys = ["a+b%2Bc%2525", "%C3%BC%01", "a%26b", "x%2Fy"]
    let script = Script([
      listing("<EncodingType>url</EncodingType>" + keys.map { entry($0) }.joined()),
      listing(entry("a+b%20 &amp;") + "<CommonPrefixes><Prefix>q/</Prefix></CommonPrefixes>"),
    ])
    let client = try client(script)
    #expect(try client.page().objects.map(\.key) == ["a b+c%25", "ü\u{1}", "a&b", "x/y"])
    let page = try client.page(delimiter: "/")
    #expect(page.objects.map(\.key) == ["a+b%20 &"] && page.prefixes == ["q/"] && page.next == nil)
    #expect(page.objects.first?.modified == "2026-01-02T03:04:05.000Z" && page.objects.first?.size == 3)
  }

  @Test(arguments: [
    "<IsTruncated>true</IsTruncated>",
    "<IsTruncated>true</IsTruncated><NextContinuationToken/>",
    "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>",
    "<Contents><Key>a</Key></Contents>",
    "<EncodingType>url</EncodingType><Contents><Key>%FF</Key><Size>1</Size></Contents>",
  ])
  func `a listing that would not be whole is a failure`(inside: String) {
    let client = client(forcing: Script([listing(inside)]))
    #expect(failure { () throws(ServiceFailure) in try client.page(token: "t") }?.kind == .request)
  }

  @Test func `something else in place of a listing is a failure`() {
    for text in ["", "<html></html>", "{}", "<ListAllMyBucketsResult/>"] {
      let client = client(forcing: Script([.answer(200, text)]))
      #expect(failure { () throws(ServiceFailure) in try client.page() }?.kind == .request)
    }
  }

  @Test func `what is not there is nil, deleted or not`() throws {
    #expect(try client(Script([.answer(404)])).head("k") == nil)
    #expect(try client(Script([.answer(404, error("NoSuchKey"))])).get("k") == nil)
    #expect(
      failure { () throws(ServiceFailure) in try client(forcing: Script([.answer(404, error("NoSuchBucket"))])).get("k")
      }?.kind == .request)
    try client(Script([.answer(204)])).delete("k")
    try client(Script([.answer(404, error("NoSuchKey"))])).delete("k")
  }
}
