import Testing
import Transport

@Suite struct S3BucketTests {
  private func url(
    _ name: String, region: String? = "eu-west-1", endpoint: String? = nil, addressing: S3Bucket.Addressing = .auto,
    key: String = "k"
  ) -> String {
    do {
      let endpoint = try endpoint.map { try RequestURL($0) }
      return try S3Bucket(name, region: region, endpoint: endpoint, addressing: addressing).url(key: key).text
    } catch { return "\(error)" }
  }

  @Test func `Amazon's buckets stand in the host where their name allows it`() {
    #expect(url("photos") == "https://photos.s3.eu-west-1.amazonaws.com/k")
    #expect(url("photos", addressing: .path) == "https://s3.eu-west-1.amazonaws.com/photos/k")
    #expect(url("my.photos") == "https://s3.eu-west-1.amazonaws.com/my.photos/k")
    #expect(url("Old_Photos") == "https://s3.eu-west-1.amazonaws.com/Old_Photos/k")
    #expect(url("photos", region: "cn-north-1") == "https://photos.s3.cn-north-1.amazonaws.com.cn/k")
    #expect(
      url("photos", endpoint: "https://s3.dualstack.eu-west-1.amazonaws.com")
        == "https://photos.s3.dualstack.eu-west-1.amazonaws.com/k")
  }

  @Test func `elsewhere they stand in the path, unless told otherwise`() {
    #expect(url("photos", endpoint: "https://minio.example") == "https://minio.example/photos/k")
    #expect(url("photos", endpoint: "http://127.0.0.1:9000/") == "http://127.0.0.1:9000/photos/k")
    #expect(url("photos", endpoint: "http://[::1]:9000") == "http://[::1]:9000/photos/k")
    #expect(url("photos", endpoint: "https://minio.example:443") == "https://minio.example/photos/k")
    #expect(url("photos", endpoint: "http://minio.example:443") == "http://minio.example:443/photos/k")
    #expect(url("photos", endpoint: "https://gate.example/store//") == "https://gate.example/store/photos/k")
    #expect(
      url("photos", endpoint: "https://minio.example:9000", addressing: .virtual)
        == "https://photos.minio.example:9000/k")
    #expect(
      url("my.photos", endpoint: "http://minio.example", addressing: .virtual) == "http://my.photos.minio.example/k")
  }

  @Test func `virtual addressing that cannot work is refused`() {
    #expect(url("my.photos", addressing: .virtual).contains("no certificate"))
    #expect(url("photos", endpoint: "http://127.0.0.1:9000", addressing: .virtual).contains("a number and no name"))
    #expect(url("Photos", addressing: .virtual).contains("cannot be part of a host name"))
    #expect(url("photos-", addressing: .virtual).contains("cannot be part of a host name"))
  }

  @Test func `the region is the service's own where none is given`() throws {
    #expect(url("photos", region: nil).contains("region of the bucket photos is not given"))
    #expect(url("photos", region: "").contains("is not given"))
    func region(_ endpoint: String) throws -> String {
      try S3Bucket("b", region: nil, endpoint: try RequestURL(endpoint)).region
    }
    #expect(try region("http://localhost:9000") == "us-east-1")
    #expect(try region("https://0123.r2.cloudflarestorage.com") == "auto")
    #expect(url("photos", region: "eu/west").contains("is no region"))
  }

  @Test(arguments: ["", ".", "..", ".a", "a.", "a/b", "a b", "ü", "a?b", "a%41", String(repeating: "a", count: 256)])
  func `what no bucket is called is refused`(name: String) {
    #expect(url(name).contains("is no name of a bucket"))
  }

  @Test func `an ARN is named as such`() {
    #expect(url("arn:aws:s3:eu-west-1:1:accesspoint/x").contains("ARN"))
  }

  @Test(arguments: [
    ("a b", "a%20b"), ("a+b", "a%2Bb"), ("100%", "100%25"), ("a%20b", "a%2520b"), ("a&b=c", "a%26b%3Dc"),
    ("\"'", "%22%27"), ("\u{FC}", "%C3%BC"), ("u\u{308}", "u%CC%88"), ("a?b#c", "a%3Fb%23c"),
    ("/a//b/", "/a//b/"), ("a/../b/./c", "a/../b/./c"), ("..", ".."), ("a\\b", "a%5Cb"), ("a\nb\u{0}", "a%0Ab%00"),
    ("🙂~_-.", "%F0%9F%99%82~_-."),
  ])
  func `keys are encoded byte for byte`(key: String, encoded: String) {
    #expect(url("b", endpoint: "http://h", key: key) == "http://h/b/" + encoded)
  }

  @Test func `a key has 1 to 1,024 bytes`() {
    #expect(url("b", key: "").contains("a key is empty"))
    let longest = String(repeating: "ü", count: 512)
    #expect(url("b", key: longest).hasSuffix("/" + String(repeating: "%C3%BC", count: 512)))
    #expect(url("b", key: longest + "x").contains("has 1025 bytes"))
  }
}
