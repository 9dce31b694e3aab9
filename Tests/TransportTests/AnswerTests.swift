import Glibc
import Testing
import Transport

@Suite struct Base64Tests {
  /// RFC 4648, section 10.
  @Test(arguments: [
    ("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE="),
    ("foobar", "Zm9vYmFy"),
  ])
  func `the published vectors hold`(plain: String, encoded: String) {
    #expect(Base64.encode(Array(plain.utf8)) == Array(encoded.utf8))
    #expect(Base64.decode(encoded) == Array(plain.utf8))
    let bare = String(encoded.prefix { $0 != "=" })
    #expect(Base64.encode(Array(plain.utf8), urlSafe: true) == Array(bare.utf8))
    #expect(Base64.decode(bare, urlSafe: true) == Array(plain.utf8))
  }

  @Test func `all bytes come back, in both alphabets`() {
    for count in 0..<70 {
      let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 91 &+ count &* 17 &+ 3) }
      for urlSafe in [false, true] {
        #expect(Base64.decode(Base64.encode(bytes, urlSafe: urlSafe), urlSafe: urlSafe) == bytes)
      }
    }
    #expect(Base64.encode([0xFB, 0xFF]) == Array("+/8=".utf8))
    #expect(Base64.encode([0xFB, 0xFF], urlSafe: true) == Array("-_8".utf8))
  }

  @Test(arguments: [
    "Z", "Zg", "Zg=", "Zg===", "=", "==", "Zh==", "Zm9=", "Zm9v\n", "Zm 9v", "Zm-_", "Z===", "Zg==Zg==", "ä",
  ])
  func `what is not strictly base64 is refused`(text: String) {
    #expect(Base64.decode(text) == nil)
  }
}

@Suite struct JSONAnswerTests {
  private let picture = (0..<60_000).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }

  @Test func `pointers lead where RFC 6901 has them lead`() throws {
    let text = #"{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"i\\j":5,"k\"l":6," ":7,"m~n":8,"t":true,"n":null}"#
    let answer = try JSONAnswer(Array(text.utf8))
    #expect(answer.string(at: "/foo/0") == "bar" && answer.node(at: "")?.objectValue?.count == 11)
    for (pointer, value) in [
      ("/", 0), ("/a~1b", 1), ("/c%d", 2), ("/e^f", 3), (#"/i\j"#, 5), ("/k\"l", 6), ("/ ", 7), ("/m~0n", 8),
    ] {
      #expect(answer.integer(at: pointer) == value)
    }
    #expect(answer.bool(at: "/t") == true && answer.number(at: "/a~1b") == 1)
    for pointer in ["/foo/2", "/foo/01", "/foo/-", "/foo/+1", "foo", "/none", "/m~n", "/foo/0/x", "/t/x"] {
      #expect(answer.node(at: pointer) == nil)
    }
    #expect(answer.string(at: "/n") == nil && answer.integer(at: "/foo") == nil)
  }

  @Test func `a picture in the answer is decoded, long and short, whatever is around it`() throws {
    let long = String(decoding: Base64.encode(picture), as: UTF8.self)
    let text = #"{"a":"x\"y","data":[{"result_b64":"\#(long)","top":3},"\#(long)"],"short":"Zm9v","z":{"w":1.5}}"#
    let answer = try JSONAnswer(Array(text.utf8))
    #expect(try answer.base64(at: "/data/0/result_b64") == picture)
    #expect(try answer.base64(at: "/data/1") == picture)
    #expect(try answer.base64(at: "/short") == Array("foo".utf8))
    #expect(try answer.base64(at: "/none") == nil && answer.base64(at: "/z") == nil)
    #expect(answer.string(at: "/a") == "x\"y" && answer.integer(at: "/data/0/top") == 3)
    #expect(answer.string(at: "/data/1") == long && answer.number(at: "/z/w") == 1.5)
    #expect(transportFailure { () throws(TransportError) in _ = try answer.base64(at: "/a") }?.code == .failed)
  }

  @Test func `escapes, line breaks, data addresses and the other alphabet are read too`() throws {
    let long = String(decoding: Base64.encode(picture), as: UTF8.self)
    let url = String(decoding: Base64.encode(picture, urlSafe: true), as: UTF8.self)
    for written in [
      long.replacing("/", with: #"\/"#), long.replacing("+", with: #"\u002B"#).replacing("=", with: #"\u003d"#),
      #"\n"# + long.replacing("AB", with: #"A\r\nB"#), url, "data:image/png;base64," + long,
    ] {
      let answer = try JSONAnswer(Array(#"{"x":"\#(written)"}"#.utf8))
      #expect(try answer.base64(at: "/x") == picture)
    }
    for written in [String(long.dropLast()) + "!", #"\t"# + long, #"\u12"#, "data:image/png," + long] {
      guard let answer = try? JSONAnswer(Array(#"{"x":"\#(written)"}"#.utf8)) else { continue }
      #expect(transportFailure { () throws(TransportError) in _ = try answer.base64(at: "/x") } != nil)
    }
  }

  @Test(arguments: ["", "<html>", "{", #"{"a":"#, "{} x", #"{"a":"\#(String(repeating: "A", count: 40_000))}"#])
  func `what is no JSON is an error that says where`(text: String) {
    let error = transportFailure { () throws(TransportError) in _ = try JSONAnswer(Array(text.utf8)) }
    #expect(error?.code == .failed && error?.message.hasPrefix("the answer is no JSON: ") == true)
  }
}

@Suite struct ExcerptTests {
  private func excerpt(_ body: [UInt8], _ type: String? = nil) throws -> String {
    Response(
      status: 400, headers: Headers(type.map { [("Content-Type", $0)] } ?? []), body: body,
      url: try RequestURL("http://a.example/")
    ).excerpt
  }

  @Test(arguments: [
    (
      #"{"errors":[{"title":"Invalid parameters","code":"invalid","detail":"size"}]}"#,
      "Invalid parameters: size (invalid)"
    ),
    (#"{"data":{"error":"Over capacity","request":"/3/image"},"success":false,"status":403}"#, "Over capacity"),
    (
      #"{"data":{"error":{"code":1003,"message":"File type invalid (1)","type":"ImgurException"}}}"#,
      "File type invalid (1) (ImgurException)"
    ),
    (
      #"{"status_code":400,"error":{"message":"Empty upload source.","code":130},"status_txt":"Bad Request"}"#,
      "Bad Request"
    ),
    (#"{"detail":[{"loc":["query"],"msg":"field required"}]}"#, "field required"),
    (#"{"error":"bad \u001b[31mred"}"#, "bad [31mred"),
    (
      "<?xml version=\"1.0\"?>\n<Error><Code>NoSuchKey</Code><Message>The key\ndoes not exist.</Message><Key>a</Key></Error>",
      "The key does not exist. (NoSuchKey)"
    ),
    ("\u{FEFF}<?xml version=\"1.0\"?><Error><Code>A</Code></Error>", "A"),
    (
      "<!DOCTYPE html><html><head><title>T</title><style>p{}</style></head><body><h1>502 Bad</h1><p>Gate&nbsp;way &amp; co</p><script>x()</script></body>",
      "502 Bad Gate way & co"
    ),
    ("plain  words\r\n\there", "plain words here"), ("", ""), ("expected 2 < 3 > 1", "expected 2 < 3 > 1"), ("{", "{"),
    ("&lt;b&gt;bold&lt;/b&gt;", "bold"), ("<<b>b>x", "< b>x"), ("cut off <a href=", "cut off"), ("null", "null"),
    ("a\u{202E}b\u{200B}c\u{2028}d", "abc d"),
  ])
  func `the words of an answer are found`(body: String, expected: String) throws {
    #expect(try excerpt(Array(body.utf8)) == expected)
  }

  @Test func `pages made to take long do not`() throws {
    // Of this thread's work: other tests take the processors meanwhile.
    func seconds() -> Double {
      var time = timespec()
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
      return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }
    let begin = seconds()
    for text in [
      String(repeating: "<script ", count: 8000),
      String(repeating: "<", count: 30_000) + String(repeating: "b>", count: 17_000),
      String(repeating: "&amp;", count: 13_000), String(repeating: "{\"a\":", count: 10_000),
      "<x>" + String(repeating: "<Message>", count: 7000),
    ] { #expect(try excerpt(Array(text.utf8)).unicodeScalars.count <= 300) }
    #expect(seconds() - begin < 60)
  }

  @Test func `pictures have no words, long texts an end`() throws {
    #expect(try excerpt([0x89, 0x50, 0x4E, 0x47, 0, 1, 2, 3, 0xFF, 0xFE]) == "")
    #expect(try excerpt(Array("words".utf8), "image/png") == "")
    let long = try excerpt(Array(String(repeating: "wörd ", count: 20_000).utf8))
    #expect(long.unicodeScalars.count == 300 && long.hasSuffix("…"))
  }

  /// For any answer: one line, no tag, no control character, at most 300 scalars, no secret.
  @Test func `an excerpt is clean whatever comes`() throws {
    let secret = "excerpt canary/42"
    Secrets.register(secret)
    var seed: UInt64 = 20_240_229
    func next(_ count: Int) -> Int {
      seed = seed &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return Int(seed >> 33) % count
    }
    let encoded = String(decoding: Base64.encode(Array("u:\(secret)".utf8)), as: UTF8.self)
    let pieces = [
      "<", ">", "<b>", "</b>", "<!--", "<script>", "</script>", "&lt;", "&gt;", "&amp;", "&#39;", "\"", "{", "}", "[",
      "]",
      ":", ",", "\\", "\\u0000", "\\n", "\u{0}", "\u{1B}[1m", "\r\n", "\t", "\u{200B}", "\u{202E}", "\u{2028}", "a",
      "ü",
      "word ", secret, "excerpt canary%2F42", "excerpt+canary%2f42", "excerpt <i>canary/42",
      "excerpt\u{200B} canary/42",
      encoded, "\"message\":\"", "<Message>", "</Message>", "<Code>", "</Code>", "{\"error\":{\"message\":\"",
      String(repeating: "x", count: 290),
    ]
    // All of them with PIPELINE_SOAK=1.
    for _ in 0..<(ClientOptions.variable("PIPELINE_SOAK") == "1" ? 5000 : 300) {
      var body = (0..<next(30)).map { _ in pieces[next(pieces.count)] }.joined()
      if next(8) == 0 {
        body = "{\"error\":{\"message\":\"" + body.replacing("\"", with: "").replacing("\\", with: "") + "\"}}"
      }
      var bytes = Array(body.utf8)
      if next(4) == 0, !bytes.isEmpty { bytes[next(bytes.count)] = UInt8(next(256)) }
      let text = try excerpt(bytes, next(2) == 0 ? "text/html" : nil)
      let scalars = Array(text.unicodeScalars)
      #expect(scalars.count <= 300)
      #expect(
        !scalars.contains { $0.value < 0x20 || (0x7F...0x9F).contains($0.value) || $0.value == 0x202E }, "\(body)")
      for (index, scalar) in scalars.enumerated() where scalar == "<" && index + 1 < scalars.count {
        let after = scalars[index + 1]
        #expect(
          !(after.properties.isAlphabetic && after.isASCII) && after != "/" && after != "!" && after != "?", "\(body)")
      }
      #expect(!text.contains(secret) && !text.contains("excerpt canary%2F42"), "\(body)")
      #expect(!text.contains(encoded) && text == Secrets.redacted(text), "\(body)")
    }
  }
}
