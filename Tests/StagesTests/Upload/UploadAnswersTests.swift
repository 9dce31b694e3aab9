import JobSyntax
import PipelineKit
import Testing

@testable import Stages
@testable import Transport

/// What answers of each service mean: one row for each that its contract names.
@Suite struct UploadAnswersTests {
  struct Row: Sendable, CustomTestStringConvertible {
    var words: String
    var status: Int
    var headers: [(String, String)] = []
    var json: String?
    var html: String?
    var xml: String?
    /// Nil for success.
    var kind: FailureKind?
    var wait: Double?
    var says: String?
    var testDescription: String { words }

    func response() throws -> Response { try answer(status, headers, json: json, html: html, xml: xml) }

    func check(_ failure: ServiceFailure?) {
      #expect(failure?.kind == kind, "\(words): \(failure?.message ?? "success")")
      #expect(failure?.wait == wait, "\(words)")
      if let says { #expect(failure?.message.contains(says) == true, "\(failure?.message ?? "")") }
    }
  }

  // MARK: Imgur

  /// 2026-05-01.
  private static let now = 1_777_593_600.0

  private static func imgurError(_ text: String, _ status: Int) -> String {
    #"{"data":{"error":"\#(text)","request":"/3/image","method":"POST"},"success":false,"status":\#(status)}"#
  }

  private static func exception(_ code: Int, _ text: String) -> String {
    #"{"data":{"error":{"code":\#(code),"message":"\#(text)","type":"ImgurException","exception":[]},"request":"/3/image","method":"POST"},"success":false,"status":400}"#
  }

  static let imgur: [Row] = [
    Row(
      words: "success", status: 200, json: #"{"data":{"link":"https://i.imgur.com/a.png"},"success":true,"status":200}"#
    ),
    Row(
      words: "a: daily limit, reset as epoch", status: 429,
      headers: [("X-RateLimit-ClientRemaining", "0"), ("X-RateLimit-ClientReset", "\(Int(now) + 600)")],
      json: imgurError("Daily client requests exceeded", 429), kind: .putOff, wait: 600,
      says: "429: Daily client requests exceeded"),
    Row(
      words: "a: limit of the user, reset in seconds", status: 429,
      headers: [("X-RateLimit-UserRemaining", "0"), ("X-RateLimit-UserReset", "3600")],
      json: imgurError("User requests exceeded", 429), kind: .rate, wait: 3600),
    Row(
      words: "limit of POST", status: 429,
      headers: [("X-Post-Rate-Limit-Remaining", "0"), ("X-Post-Rate-Limit-Reset", "42")],
      json: imgurError("Rate limited", 429), kind: .rate, wait: 42),
    Row(
      words: "Retry-After comes first", status: 429,
      headers: [
        ("Retry-After", "7"), ("X-RateLimit-UserRemaining", "0"), ("X-RateLimit-UserReset", "3600"),
      ], json: imgurError("Rate limited", 429), kind: .rate, wait: 7),
    Row(
      words: "daily limit without a wait", status: 429, json: imgurError("Daily user requests exceeded", 429),
      kind: .putOff),
    Row(
      words: "b: bad type", status: 400, json: exception(1003, "File type invalid (1)"), kind: .badPicture,
      says: "(1003)"),
    Row(words: "b: too large", status: 400, json: exception(1002, "Too big"), kind: .tooLarge),
    Row(
      words: "a: too large in words", status: 400, json: imgurError("File is over the size limit", 400), kind: .tooLarge
    ),
    Row(
      words: "invalid URL", status: 400, json: imgurError("Invalid URL", 400), kind: .request, says: "400: Invalid URL"),
    Row(
      words: "c: list of errors", status: 429,
      json: #"{"errors":[{"id":"1","code":"429","status":"Too Many Requests","detail":"Slow down"}]}"#, kind: .rate,
      says: "Slow down"),
    Row(
      words: "c: with 200", status: 200, json: #"{"errors":[{"code":"429","status":"Too Many Requests"}]}"#, kind: .rate
    ),
    Row(
      words: "d: over capacity is no matter of credentials", status: 403,
      json: imgurError("Imgur is temporarily over capacity. Please try again later.", 403), kind: .rate),
    Row(
      words: "d: credits that are left say nothing about it", status: 403,
      headers: [("X-RateLimit-UserRemaining", "400"), ("X-RateLimit-UserReset", "3600")],
      json: imgurError("Imgur is temporarily over capacity.", 403), kind: .rate),
    Row(
      words: "e: too fast", status: 400,
      json: exception(429, "You are uploading too fast. Please wait 13 more minutes."),
      kind: .rate, wait: 780),
    Row(
      words: "e: as text", status: 400, json: imgurError("You are uploading too fast. Please wait 1 more minute", 400),
      kind: .rate, wait: 60),
    Row(words: "f: page with 200", status: 200, html: "<h1>Maintenance</h1>", kind: .unknown, says: "Maintenance"),
    Row(words: "f: page with 403", status: 403, html: "<h1>Blocked</h1>", kind: .temporary),
    Row(
      words: "f: page with 429", status: 429, headers: [("Retry-After", "9")], html: "<h1>Slow</h1>", kind: .rate,
      wait: 9),
    Row(words: "f: page with 502", status: 502, html: "<h1>Bad gateway</h1>", kind: .temporary),
    Row(words: "f: page with 413", status: 413, html: "<h1>Too large</h1>", kind: .tooLarge),
    Row(words: "401", status: 401, json: imgurError("Authentication required", 401), kind: .credentials),
    Row(words: "403", status: 403, json: imgurError("The client is not authorized", 403), kind: .credentials),
    Row(words: "404", status: 404, json: imgurError("Unable to find an image", 404), kind: .notFound),
    Row(words: "500", status: 500, json: imgurError("Internal error", 500), kind: .temporary),
    Row(
      words: "200 that is a refusal, with the status meant", status: 200, json: imgurError("Invalid client_id", 403),
      kind: .credentials, says: "200: Invalid client_id"),
    Row(
      words: "200 that is a refusal", status: 200, json: imgurError("Internal processing error", 200), kind: .temporary),
    Row(
      words: "200 that is a refusal of the picture", status: 200, json: imgurError("File type invalid (2)", 200),
      kind: .badPicture),
    Row(words: "nothing in 200", status: 200, kind: .unknown),
  ]

  @Test(arguments: imgur) func `Imgur's answers`(_ row: Row) throws {
    row.check(ImgurAnswers.failure(of: try row.response(), now: Self.now))
  }

  @Test func `Imgur's credits slow down whoever uses them up`() throws {
    func wait(_ headers: [(String, String)]) -> Double? { ImgurAnswers.exhausted(Headers(headers), now: Self.now) }
    #expect(wait([]) == nil)
    #expect(wait([("X-RateLimit-UserRemaining", "10"), ("X-RateLimit-UserReset", "60")]) == nil)
    #expect(wait([("X-RateLimit-UserRemaining", "9"), ("X-RateLimit-UserReset", "60")]) == 60)
    #expect(wait([("X-RateLimit-UserRemaining", "9"), ("X-RateLimit-UserReset", "\(Int(Self.now) + 60)")]) == 60)
    #expect(wait([("X-RateLimit-ClientRemaining", "0"), ("X-RateLimit-ClientReset", "86400")]) == 86_400)
    #expect(wait([("X-Post-Rate-Limit-Remaining", "1"), ("X-Post-Rate-Limit-Reset", "5")]) == nil)
    let pacer = Pacer(perMinute: nil)
    _ = ImgurAnswers.classifier(pacer)(
      try answer(
        200, [("X-Post-Rate-Limit-Remaining", "0"), ("X-Post-Rate-Limit-Reset", "300")],
        json: #"{"data":{"link":"https://i.imgur.com/a.png"},"success":true,"status":200}"#))
    #expect(pacer.pauseLeft > 290)
  }

  @Test func `a day's limit without a wait keeps everyone away`() throws {
    let pacer = Pacer(perMinute: nil)
    let failure = ImgurAnswers.classifier(pacer)(
      try answer(429, json: Self.imgurError("Daily client requests exceeded", 429)))
    #expect(failure?.kind == .putOff && pacer.pauseLeft > 3_500)
  }

  @Test func `Imgur's receipt`() throws {
    let json =
      #"{"data":{"id":"orunSTu","deletehash":"x70po4w7BVvSUzZ","link":"http://i.imgur.com/orunSTu.gif"},"success":true,"status":200}"#
    let answer = try JSONAnswer(Array(json.utf8))
    let anonymous = try ImgurAnswers.receipt(answer, isAnonymous: true)
    #expect(anonymous.link == "https://i.imgur.com/orunSTu.gif" && anonymous.deleteLink == "x70po4w7BVvSUzZ")
    #expect(try ImgurAnswers.receipt(answer, isAnonymous: false).deleteLink == "orunSTu")
    #expect(throws: TransportError.self) {
      try ImgurAnswers.receipt(try JSONAnswer(Array(#"{"data":{},"success":true}"#.utf8)), isAnonymous: true)
    }
  }

  // MARK: imgbb

  private static func imgbbError(_ code: Int, _ text: String, more: String = "") -> String {
    #"{"status_code":400,"error":{"message":"\#(text)","code":\#(code)\#(more)},"status_txt":"Bad Request"}"#
  }

  static let imgbb: [Row] = [
    Row(words: "success", status: 200, json: #"{"data":{"url":"https://i.ibb.co/a.gif"},"success":true,"status":200}"#),
    Row(
      words: "a bad key is a 400", status: 400, json: imgbbError(100, "Invalid API v1 key."), kind: .credentials,
      says: "400: Invalid API v1 key. (100)"),
    Row(words: "no picture", status: 400, json: imgbbError(310, "Invalid image source."), kind: .badPicture),
    Row(words: "not its type", status: 400, json: imgbbError(311, "Unsupported content type."), kind: .badPicture),
    Row(
      words: "too large", status: 400,
      json: imgbbError(313, "File too big (max 32 MB).", more: #","context":"CHV\\UploadException""#), kind: .tooLarge),
    Row(words: "duplicate", status: 400, json: imgbbError(101, "Duplicated upload"), kind: .request),
    Row(
      words: "403 in a 400 is the picture's", status: 400, json: imgbbError(403, "Suspected inappropriate content"),
      kind: .badPicture),
    Row(words: "another code", status: 400, json: imgbbError(120, "Empty"), kind: .request),
    Row(
      words: "429", status: 429, headers: [("Retry-After", "3")], json: imgbbError(429, "Slow"), kind: .rate, wait: 3),
    Row(words: "500", status: 500, html: "<h1>Oops</h1>", kind: .temporary),
    Row(words: "200 with an error", status: 200, json: imgbbError(310, "Invalid image source."), kind: .badPicture),
  ]

  @Test(arguments: imgbb) func `imgbb's answers`(_ row: Row) throws {
    var row = row
    // What says 429 in the body without its own status is read by the status of the answer.
    if row.words == "429" { row.json = row.json?.replacing("\"status_code\":400", with: "\"status_code\":429") }
    row.check(ImgbbAnswers.failure(try row.response()))
  }

  @Test(arguments: [("1552042565", "600"), ("\"1552042565\"", "\"600\"")])
  func `imgbb's receipt has numbers in both forms`(time: String, life: String) throws {
    let json =
      #"{"data":{"url":"http://i.ibb.co/a.gif","time":\#(time),"expiration":\#(life),"delete_url":"https://ibb.co/a/b"},"success":true,"status":200}"#
    let receipt = try ImgbbAnswers.receipt(try JSONAnswer(Array(json.utf8)))
    #expect(receipt.link == "https://i.ibb.co/a.gif" && receipt.deleteLink == "https://ibb.co/a/b")
    #expect(receipt.expires == 1_552_043_165)
    let lasting = json.replacing(life, with: "\"0\"")
    #expect(try ImgbbAnswers.receipt(try JSONAnswer(Array(lasting.utf8))).expires == nil)
  }

  // MARK: Azure

  private static func azure(_ code: String, _ message: String, detail: String = "") -> String {
    "\u{FEFF}<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>\(code)</Code><Message>\(message)\n"
      + "RequestId:1\nTime:2026-05-01</Message>\(detail)</Error>"
  }

  static let azure: [Row] = [
    Row(words: "created", status: 201),
    Row(
      words: "400 by its header", status: 400, headers: [("x-ms-error-code", "MissingRequiredHeader")],
      xml: azure("MissingRequiredHeader", "A header is missing."), kind: .request,
      says: "400: A header is missing. (MissingRequiredHeader)"),
    Row(
      words: "400 by its body", status: 400, xml: azure("InvalidMd5", "The MD5 is invalid."), kind: .request,
      says: "InvalidMd5"),
    Row(words: "400 Md5Mismatch", status: 400, xml: azure("Md5Mismatch", "No match."), kind: .request),
    Row(
      words: "403 with its detail", status: 403,
      xml: azure(
        "AuthenticationFailed", "Server failed to authenticate the request.",
        detail: "<AuthenticationErrorDetail>Signature not valid in the specified time frame</AuthenticationErrorDetail>"
      ),
      kind: .credentials, says: "time frame"),
    Row(
      words: "403 without the permission", status: 403,
      headers: [("x-ms-error-code", "AuthorizationPermissionMismatch")],
      kind: .credentials, says: "AuthorizationPermissionMismatch"),
    Row(
      words: "403 by protocol", status: 403, headers: [("x-ms-error-code", "AuthorizationProtocolMismatch")],
      kind: .credentials),
    Row(words: "404", status: 404, headers: [("x-ms-error-code", "ContainerNotFound")], kind: .notFound),
    Row(
      words: "409", status: 409, headers: [("x-ms-error-code", "BlobAlreadyExists")], kind: .request,
      says: "BlobAlreadyExists"),
    Row(words: "412", status: 412, headers: [("x-ms-error-code", "LeaseIdMissing")], kind: .request),
    Row(words: "413", status: 413, headers: [("x-ms-error-code", "RequestBodyTooLarge")], kind: .tooLarge),
    Row(words: "500", status: 500, headers: [("x-ms-error-code", "OperationTimedOut")], kind: .temporary),
    Row(
      words: "503", status: 503, headers: [("x-ms-error-code", "ServerBusy"), ("Retry-After", "5")], kind: .temporary,
      wait: 5),
  ]

  @Test(arguments: azure) func `Azure's answers`(_ row: Row) throws {
    let failure = AzureAnswers.failure(try row.response())
    row.check(failure)
    #expect(failure?.message.contains("RequestId") != true)
    if row.words == "409" { #expect(failure?.code == AzureAnswers.exists) }
  }

  // MARK: WebDAV

  @Test(
    arguments: [
      (201, nil, nil), (204, nil, nil), (200, nil, nil), (409, FailureKind.request, WebDAVAnswers.noFolder),
      (404, .notFound, WebDAVAnswers.noFolder), (405, .request, nil), (412, .request, WebDAVAnswers.exists),
      (423, .temporary, nil), (507, .quota, nil), (401, .credentials, nil), (403, .credentials, nil),
      (503, .temporary, nil),
    ] as [(Int, FailureKind?, String?)])
  func `answers to a PUT of WebDAV`(status: Int, kind: FailureKind?, code: String?) throws {
    let failure = WebDAVAnswers.put(try answer(status))
    #expect(failure?.kind == kind && failure?.code == code)
  }

  @Test(
    arguments: [
      (201, "", nil), (405, "", nil), (409, "", nil), (301, "https://host.example/a/", nil), (301, "/a/", nil),
      (301, "https://other.example/b/", FailureKind.request), (403, "", nil), (415, "", .badPicture),
      (507, "", .quota), (423, "", .temporary),
    ] as [(Int, String, FailureKind?)])
  func `answers to MKCOL`(status: Int, location: String, kind: FailureKind?) throws {
    let headers = location.isEmpty ? [] : [("Location", location)]
    #expect(WebDAVAnswers.mkcol(try answer(status, headers))?.kind == kind)
  }

  // MARK: Any address

  @Test(
    arguments: [
      (200, nil), (201, nil), (202, nil), (204, nil), (206, FailureKind.request), (301, .request), (400, .request),
      (401, .credentials), (402, .quota), (404, .notFound), (408, .temporary), (413, .tooLarge), (425, .temporary),
      (429, .rate), (500, .temporary), (501, .request), (503, .temporary), (507, .quota),
    ] as [(Int, FailureKind?)])
  func `answers of any host, by status`(status: Int, kind: FailureKind?) throws {
    #expect(HTTPUpload.classifier([200, 201, 202, 204])(try answer(status))?.kind == kind)
  }

  @Test func `statuses that a job takes for success are it, and no other`() throws {
    let classify = HTTPUpload.classifier([303, 409])
    for status in [303, 409] { #expect(classify(try answer(status)) == nil) }
    #expect(classify(try answer(200, json: #"{"message":"no"}"#))?.message == "200: no")
  }

  @Test func `links come from the answer, from Location, or from the address itself`() throws {
    let url = try RequestURL("https://host.example/a/b?key=1")
    func receipt(
      _ response: Response, isNamed: Bool = false, link: String? = nil, delete: String? = nil
    ) throws -> UploadReceipt {
      try HTTPUpload.receipt(response, from: url, isNamed: isNamed, link: link, deleteLink: delete)
    }
    let body = try answer(200, [("ETag", "\"1\"")], json: #"{"data":[{"link":"/f/1","delete":"https://d.example/1"}]}"#)
    let found = try receipt(body, link: "/data/0/link", delete: "/data/0/delete")
    #expect(found.link == "https://host.example/f/1" && found.deleteLink == "https://d.example/1")
    #expect(found.etag == "\"1\"")
    #expect(try receipt(try answer(201, [("Location", "/f/2")])).link == "https://host.example/f/2")
    #expect(try receipt(try answer(201)).link == nil)
    let named = try receipt(try answer(201), isNamed: true)
    #expect(named.link == "https://host.example/a/b" && named.deleteLink == named.link)
    for wrong in [
      try answer(200, json: "{}"), try answer(200, json: "{"), try answer(200, html: "<p>hello</p>"), try answer(200),
    ] {
      #expect(throws: TransportError.self) { try receipt(wrong, link: "/data/link") }
    }
  }
}
