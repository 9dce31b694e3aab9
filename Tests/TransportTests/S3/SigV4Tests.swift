import Digest
import Testing
import Transport

/// Signatures against Amazon's published examples, and against those that botocore 1.44.8 makes of the same requests
/// (`botocore.auth.S3SigV4Auth` and `S3SigV4QueryAuth`, its clock set to 2026-03-04 05:06:07).
@Suite struct SigV4Tests {
  private let example = SigV4(
    accessKeyID: "AKIAIOSFODNN7EXAMPLE", secretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    region: "us-east-1")
  private let host = "examplebucket.s3.amazonaws.com"
  /// 2013-05-24, midnight.
  private let midnight = 1_369_353_600

  private func signature(_ fields: [SigV4.Field]) -> String? {
    fields.last.flatMap { $0.name == "Authorization" ? $0.value : nil }
  }

  private func expected(_ signature: String, _ names: String) -> String {
    "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=\(names),"
      + "Signature=\(signature)"
  }

  @Test func `HMAC gives the codes of RFC 4231, for keys of any length`() {
    func code(_ key: [UInt8], _ text: String) -> String { Hex.text(HMAC.sha256(key: key, text)) }
    #expect(
      code([UInt8](repeating: 0x0B, count: 20), "Hi There")
        == "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7")
    #expect(
      code(Array("Jefe".utf8), "what do ya want for nothing?")
        == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
    #expect(
      code([UInt8](repeating: 0xAA, count: 131), "Test Using Larger Than Block-Size Key - Hash Key First")
        == "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54")
    // Python's hmac.new(b"", b"", "sha256").
    #expect(code([], "") == "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad")
  }

  @Test func `a GET with a range is signed as published`() {
    let fields = example.headers(
      for: .init(method: "GET", host: host, path: "/test.txt", headers: [("range", "bytes=0-9")]),
      payload: SigV4.emptyPayload, time: midnight)
    #expect(fields.map(\.name) == ["x-amz-date", "x-amz-content-sha256", "Authorization"])
    #expect(fields[0].value == "20130524T000000Z" && fields[1].value == SigV4.emptyPayload)
    #expect(
      signature(fields)
        == expected(
          "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
          "host;range;x-amz-content-sha256;x-amz-date"))
  }

  @Test(arguments: ["/test%24file.text", "/test$file.text", "/%74est%24file.text"])
  func `a PUT is signed as published, however its path is encoded`(path: String) {
    let fields = example.headers(
      for: .init(
        method: "PUT", host: host, path: path,
        headers: [("Date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")]),
      payload: Hex.text(SHA256.digest(of: Array("Welcome to Amazon S3.".utf8))), time: midnight)
    #expect(
      signature(fields)
        == expected(
          "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
          "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class"))
  }

  @Test(arguments: [
    ("lifecycle", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
    ("lifecycle=", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
    ("max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ("prefix=J&max-keys=2", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
  ])
  func `queries are signed as published, in any order`(query: String, value: String) {
    let fields = example.headers(
      for: .init(method: "GET", host: host, path: "/", query: query), payload: SigV4.emptyPayload, time: midnight)
    #expect(signature(fields) == expected(value, "host;x-amz-content-sha256;x-amz-date"))
  }

  @Test func `an address that holds its signature is made as published`() {
    let query = example.presignedQuery(
      for: .init(method: "GET", host: host, path: "/test.txt"), expiresIn: 86_400, time: midnight)
    #expect(
      query
        == "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2F"
        + "aws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
        + "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404")
  }

  // MARK: - Against botocore

  /// 2026-03-04 05:06:07.
  private let later = 1_772_600_767

  private func signer(token: String? = nil, region: String = "eu-central-1") -> SigV4 {
    SigV4(
      accessKeyID: "AKIDEXAMPLE", secretAccessKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", sessionToken: token,
      region: region)
  }

  @Test(arguments: [
    ("a b+c%d&e\"f'g=h@i,j;k!l*m(n).png", "0696889ec044827f51e623f86f5a80142dfde29096af5930588b2609ef24094a"),
    ("Gr\u{F6}\u{DF}e/\u{FC}.jpg", "24f9ad5304d4d0747d050ee5afb02e88dd79a92ab9a99ec53fcd1444b9864e62"),
    ("Gro\u{308}\u{DF}e/u\u{308}.jpg", "8ed743d11658ff130cfac3a1139c95740bd1735bf919b3c5362b9e621943dd15"),
    ("//a//../b/./c", "8c11fcd18d998d8bc0d8ba2021a9f3d0db1415784a077b2a99349a38de196ae6"),
    ("~._-/日本/🙂", "70343468977767d795a17ac5248bbdfb473ecd3e9d36b5060ca142b657ac23b4"),
  ])
  func `odd keys at an endpoint with a port are signed as botocore does`(key: String, value: String) throws {
    let bucket = try S3Bucket(
      "bucket", region: "eu-central-1", endpoint: try RequestURL("https://minio.example:9000"))
    let fields = signer().headers(
      for: .init(method: "GET", url: try bucket.url(key: key)), payload: SigV4.emptyPayload, time: later)
    #expect(signature(fields)?.hasSuffix("Signature=\(value)") == true)
  }

  @Test func `headers of which one begins with another, white space and a session token are signed as botocore does`() {
    let fields = signer(token: "FwoGZXIvYXdzE//+==").headers(
      for: .init(
        method: "PUT", host: "bucket.s3.eu-central-1.amazonaws.com", path: "/k.webp",
        headers: [
          ("x-amz-meta-a1", " x   y "), ("Content-Type", "image/webp"), ("x-amz-meta-a-b", "2"),
          ("x-amz-meta-a", "1"), ("Cache-Control", "max-age=60,   public"), ("If-None-Match", "*"),
          ("x-amz-server-side-encryption-aws-kms-key-id", "arn:aws:kms:eu-central-1:1:key/2"),
          ("x-amz-server-side-encryption", "aws:kms"),
        ]), payload: SigV4.unsignedPayload, time: later)
    #expect(
      fields.map(\.name) == ["x-amz-date", "x-amz-content-sha256", "x-amz-security-token", "Authorization"])
    #expect(
      signature(fields)?.hasSuffix(
        "SignedHeaders=cache-control;content-type;host;if-none-match;x-amz-content-sha256;x-amz-date;x-amz-meta-a;"
          + "x-amz-meta-a-b;x-amz-meta-a1;x-amz-security-token;x-amz-server-side-encryption;"
          + "x-amz-server-side-encryption-aws-kms-key-id,"
          + "Signature=76e0c1ff4506ce9e68f7b8450121afebb52469ba515eb2753330e88fea873714") == true)
  }

  @Test func `the query of a listing, and one without value, are signed as botocore does`() throws {
    let bucket = try S3Bucket("bucket", region: "eu-central-1")
    let listing = try bucket.url(query: [
      ("list-type", "2"), ("prefix", "a/b c+"), ("delimiter", "/"), ("continuation-token", "1/+="),
      ("encoding-type", "url"), ("max-keys", "1000"),
    ])
    #expect(
      signature(signer().headers(for: .init(method: "GET", url: listing), payload: SigV4.emptyPayload, time: later))?
        .hasSuffix("Signature=c1b8fac0797ab02b7dac6dea8c9fe16cdd697a079e642352c16af6518e38a5f5") == true)
    let local = try S3Bucket("bucket", region: nil, endpoint: try RequestURL("http://127.0.0.1:9000/"))
    let start = try local.url(key: "k", query: [("uploads", "")])
    let fields = signer(region: local.region).headers(
      for: .init(method: "POST", url: start, headers: [("content-type", "image/png")]), payload: SigV4.emptyPayload,
      time: later)
    #expect(
      signature(fields)?.hasSuffix("Signature=202bea667d4b3d226497051252e106c334a26ce70d70a7b95f512a64c9fe1263")
        == true)
  }

  @Test func `addresses with a header, a token and a query of their own are signed as botocore does`() {
    let host = "bucket.s3.eu-central-1.amazonaws.com"
    let put = signer(token: "FwoGZXIvYXdzE//+==").presignedQuery(
      for: .init(method: "PUT", host: host, path: "/a%20b/%C3%BC.png", headers: [("content-type", "image/png")]),
      expiresIn: 900, time: later)
    #expect(put.contains("&X-Amz-Security-Token=FwoGZXIvYXdzE%2F%2F%2B%3D%3D&"))
    #expect(put.contains("&X-Amz-SignedHeaders=content-type%3Bhost&"))
    #expect(put.hasSuffix("&X-Amz-Signature=2fbd3c04393caec024981424720a78e6a3775a14f7ce2b8c85aa3e9ef401d55b"))
    let get = signer().presignedQuery(
      for: .init(method: "GET", host: host, path: "/k", query: "versionId=a%2Fb"), expiresIn: 604_800, time: later)
    #expect(
      get.hasSuffix("&versionId=a%2Fb&X-Amz-Signature=1a0f56affdc6e1054ac975d087d8e89af6503690c8c5cfe4a8159089627f0788")
    )
  }

  @Test func `the same header twice is signed as one, in the order given`() {
    func signed(_ headers: [SigV4.Field]) -> String? {
      signature(
        signer().headers(
          for: .init(method: "GET", host: "h", path: "", headers: headers), payload: SigV4.emptyPayload, time: later))
    }
    #expect(signed([("X-Amz-Meta-A", "1"), ("x-amz-meta-a", " 2 ")]) == signed([("x-amz-meta-a", "1,2")]))
    #expect(signed([("x-amz-meta-a", "2,1")]) != signed([("x-amz-meta-a", "1,2")]))
  }
}
