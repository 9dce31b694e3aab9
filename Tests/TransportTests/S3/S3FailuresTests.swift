import Testing
import Transport

@Suite struct S3FailuresTests {
  private func failure(
    _ status: Int, _ body: String, headers: [(String, String)] = [], readsBody: Bool = false
  ) throws -> ServiceFailure? {
    let response = Response(
      status: status, headers: Headers(headers), body: Array(body.utf8), url: try RequestURL("https://h/b/k"))
    return S3Failures.failure(of: response, region: "us-east-1", readsBody: readsBody, now: 0)
  }

  private func error(_ code: String, _ message: String = "Words.", more: String = "") -> String {
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>\(code)</Code><Message>\(message)</Message>\(more)"
      + "<RequestId>1</RequestId><HostId>2</HostId></Error>"
  }

  @Test(arguments: [
    (500, "InternalError", FailureKind.temporary), (503, "SlowDown", .rate), (503, "ServiceUnavailable", .temporary),
    (400, "RequestTimeout", .temporary), (400, "BadDigest", .temporary), (400, "ThrottlingException", .rate),
    (400, "Throttling", .rate), (400, "RequestThrottled", .rate), (400, "RequestLimitExceeded", .rate),
    (509, "BandwidthLimitExceeded", .rate), (400, "TooManyRequestsException", .rate),
    (400, "PriorRequestNotComplete", .temporary), (409, "OperationAborted", .temporary),
    (409, "ConditionalRequestConflict", .temporary),
    (403, "AccessDenied", .credentials), (403, "SignatureDoesNotMatch", .credentials),
    (403, "InvalidAccessKeyId", .credentials), (403, "RequestTimeTooSkewed", .credentials),
    (400, "ExpiredToken", .credentials), (400, "AuthorizationHeaderMalformed", .request),
    (301, "PermanentRedirect", .request), (307, "TemporaryRedirect", .request), (404, "NoSuchBucket", .request),
    (400, "AccessControlListNotSupported", .request),
    (411, "MissingContentLength", .request), (501, "NotImplemented", .request),
    (400, "XAmzContentSHA256Mismatch", .request), (400, "EntityTooLarge", .tooLarge), (400, "EntityTooSmall", .request),
    (400, "InvalidPart", .request), (400, "InvalidPartOrder", .request), (400, "MetadataTooLarge", .request),
    (400, "InvalidArgument", .request), (404, "NoSuchUpload", .notFound), (404, "NoSuchKey", .notFound),
    (412, "PreconditionFailed", .request), (507, "XMinioStorageFull", .quota),
    // Not known: the status decides.
    (400, "Whatever", .request), (503, "Whatever", .temporary), (505, "Whatever", .request), (429, "Whatever", .rate),
    (403, "Whatever", .credentials),
  ])
  func `the code decides`(status: Int, code: String, kind: FailureKind) throws {
    let failure = try #require(try failure(status, error(code)))
    #expect(failure.kind == kind && failure.code == code && failure.status == status)
    #expect(failure.message.hasPrefix("\(status): Words. (\(code))"))
  }

  @Test(arguments: [
    (301, FailureKind.request, "301: the bucket is elsewhere"), (400, .request, "400: no reason is given"),
    (403, .credentials, "403: access is refused"), (404, .notFound, "404: there is no such object"),
    (412, .request, "412: a condition does not hold"), (413, .tooLarge, "413: no reason is given"),
    (429, .rate, "429: no reason is given"), (500, .temporary, "500: no reason is given"),
    (501, .request, "501: no reason is given"), (502, .temporary, "502: no reason is given"),
    (504, .temporary, "504: no reason is given"), (507, .quota, "507: no reason is given"),
  ])
  func `without a body, as to HEAD, the status decides`(status: Int, kind: FailureKind, message: String) throws {
    let failure = try #require(try failure(status, ""))
    #expect(failure.kind == kind && failure.message == message && failure.code == nil)
  }

  @Test func `a success is one, unless it holds an error where that may be`() throws {
    #expect(try failure(200, "") == nil)
    #expect(try failure(204, "") == nil)
    // The content of an object is not looked into.
    #expect(try failure(200, error("InternalError")) == nil)
    #expect(try failure(200, "<CompleteMultipartUploadResult/>", readsBody: true) == nil)
    let late = try #require(try failure(200, "  \n\n" + error("InternalError"), readsBody: true))
    #expect(late.kind == .temporary && late.code == "InternalError")
    #expect(try failure(200, error("Whatever"), readsBody: true)?.kind == .temporary)
    #expect(try failure(200, error("AccessDenied"), readsBody: true)?.kind == .credentials)
  }

  @Test func `the right region and endpoint are named`() throws {
    let malformed = try failure(400, error("AuthorizationHeaderMalformed", more: "<Region>eu-west-1</Region>"))
    #expect(malformed?.message.hasSuffix("; the bucket is in the region eu-west-1, not us-east-1") == true)
    let head = try failure(400, "", headers: [("X-Amz-Bucket-Region", "eu-west-1")])
    #expect(head?.message == "400: no reason is given; the bucket is in the region eu-west-1, not us-east-1")
    let same = try failure(403, error("AccessDenied"), headers: [("x-amz-bucket-region", "us-east-1")])
    #expect(same?.message == "403: Words. (AccessDenied)")
    let moved = try failure(301, error("PermanentRedirect", more: "<Endpoint>b.s3.amazonaws.com</Endpoint>"))
    #expect(moved?.message.hasSuffix("; its endpoint is b.s3.amazonaws.com") == true)
    let elsewhere = try failure(302, "", headers: [("Location", "https://login.example/x?token=1")])
    #expect(elsewhere?.message.hasSuffix("; it leads to https://login.example/x") == true)
  }

  @Test func `a wrong clock is named with the server's`() throws {
    let date = "Fri, 24 May 2013 00:00:00 GMT"
    let failure = try failure(403, error("RequestTimeTooSkewed"), headers: [("Date", date)])
    #expect(failure?.message.hasSuffix("; the clock of this machine is wrong; the server's says \(date)") == true)
  }

  @Test func `the server's wait is kept`() throws {
    #expect(try failure(503, error("SlowDown"), headers: [("Retry-After", "7")])?.wait == 7)
    #expect(try failure(503, error("SlowDown"))?.wait == nil)
  }

  @Test func `pages, broken XML and documents with entities are no reason to fail otherwise`() throws {
    let page = try #require(try failure(502, "<html><body><h1>Bad\n gateway</h1></body></html>"))
    #expect(page.kind == .temporary && page.code == nil && page.message.contains("Bad gateway"))
    #expect(try failure(403, "<Error><Code>SlowDown</Code>")?.kind == .credentials)
    #expect(
      try failure(403, "<!DOCTYPE Error [<!ENTITY a \"b\">]>" + "<Error><Code>SlowDown</Code></Error>")?.kind
        == .credentials)
    #expect(try failure(400, "\u{FEFF}" + error("ServerBusy"))?.kind == .temporary)
    let nested =
      "<ErrorResponse xmlns=\"x\"><Error><Code>AccessDenied</Code><Message>M</Message></Error></ErrorResponse>"
    #expect(try failure(403, nested)?.message == "403: M (AccessDenied)")
  }

  @Test func `messages are one short line`() throws {
    let long = try #require(
      try failure(400, error("InvalidArgument", "a\n\tb&#x85;" + String(repeating: "x", count: 400))))
    #expect(long.message.hasPrefix("400: a b xxx") && long.message.hasSuffix("… (InvalidArgument)"))
    #expect(long.message.count < 340)
  }
}
