import Testing
import Transport

@Suite struct SecretsTests {
  private func base64(_ text: String, urlSafe: Bool = false) -> String {
    String(decoding: Base64.encode(Array(text.utf8), urlSafe: urlSafe), as: UTF8.self)
  }

  private func percent(_ text: String, all: Bool = false, lower: Bool = false) -> String {
    text.utf8.map { byte in
      let isPlain = UInt8(ascii: "a")...UInt8(ascii: "z") ~= byte || UInt8(ascii: "A")...UInt8(ascii: "Z") ~= byte
      if isPlain, !all { return String(UnicodeScalar(byte)) }
      let digits = String(byte, radix: 16, uppercase: !lower)
      return "%" + (digits.count < 2 ? "0" : "") + digits
    }.joined()
  }

  @Test(arguments: [
    "s3cr3t-canary", "pa ss/wo+rd==&x", "quo\"te\\back'<tag>&amp", "ümläut-größe", "percent%41%2F~!*()", "a/b/c/d/e/f",
    "emoji😀secret", "tab\tand\nline-break", "abcd",
  ])
  func `a value is found in every form it may take`(secret: String) {
    Secrets.register(secret)
    let json = secret.unicodeScalars.map { scalar -> String in
      switch scalar {
      case "\"": #"\""#
      case "\\": #"\\"#
      case "/": #"\/"#
      case "\n": #"\n"#
      case "\t": #"\t"#
      default:
        scalar.isASCII
          ? String(scalar)
          : String(scalar).utf16.map {
            #"\u"# + String(repeating: "0", count: max(0, 4 - String($0, radix: 16).count)) + String($0, radix: 16)
          }
          .joined()
      }
    }.joined()
    let xml = secret.replacing("&", with: "&amp;").replacing("<", with: "&lt;").replacing(">", with: "&gt;")
      .replacing("\"", with: "&quot;").replacing("'", with: "&#39;")
    var forms = [
      "raw": secret, "percent": percent(secret), "lower": percent(secret, lower: true),
      "all": percent(secret, all: true), "twice": percent(secret).replacing("%", with: "%25"),
      "form": percent(secret).replacing("%20", with: "+"), "json": json, "xml": xml,
      "numbers": secret.unicodeScalars.map { "&#\($0.value);" }.joined(),
      "encoded": RequestURL.encoded(queryValue: secret), "path": RequestURL.encoded(path: secret),
    ]
    // The user name before it shifts the value by 0, 1 and 2 bytes.
    for user in ["", "u", "us", "use", "user:", "user1:"] {
      for more in ["", "x", "xy"] {
        forms["base64 of \(user)…\(more)"] = base64(user + secret + more)
        forms["base64url of \(user)…\(more)"] = base64(user + secret + more, urlSafe: true)
        forms["percent base64 \(user)…\(more)"] = percent(base64(user + secret + more))
      }
    }
    for (name, form) in forms {
      let redacted = Secrets.redacted("before [\(form)] after")
      #expect(redacted.hasPrefix("before [") && redacted.hasSuffix("] after"), "\(name)")
      #expect(redacted.contains("***") && !redacted.contains(form), "\(name): \(redacted)")
      // Of a base64 text with something around it the digits around stay; nothing of 4 bytes of the value does.
      let bytes = Secrets.redacted(Array("[\(form)]".utf8))
      #expect(String(decoding: bytes, as: UTF8.self) == Secrets.redacted("[\(form)]"), "\(name)")
    }
    for name in ["raw", "percent", "lower", "all", "twice", "json", "xml", "numbers", "encoded"] {
      #expect(Secrets.redacted("[\(forms[name] ?? "")]") == "[***]", "\(name)")
    }
    #expect(Secrets.redacted("[\(base64("user:" + secret))]").count <= 2 + 3 + 8)
  }

  @Test func `values side by side and over each other leave nothing behind`() {
    Secrets.register("first-canary-xyz")
    Secrets.register("xyz-second-canary")
    Secrets.register("first-canary")
    #expect(Secrets.redacted("a first-canary-xyz-second-canary b") == "a *** b")
    #expect(Secrets.redacted("first-canary first-canary-xyz") == "*** ***")
    #expect(Secrets.redacted("first-canar") == "first-canar")
  }

  @Test func `short values are left alone, line breaks around a value do not matter`() {
    Secrets.register("xq7")
    #expect(Secrets.redacted("xq7") == "xq7")
    Secrets.register("key-from-a-file\n")
    #expect(Secrets.redacted("Bearer key-from-a-file, ok") == "Bearer ***, ok")
  }

  @Test func `errors and failures carry no secret`() {
    Secrets.register("canary-in-an-error")
    #expect(TransportError(.failed, "x canary-in-an-error").message == "x ***")
    var failure = ServiceFailure(.request, "x canary-in-an-error")
    #expect(failure.message == "x ***")
    failure.message = "y canary%2Din-an-error"
    #expect(failure.message == "y ***")
    #expect(HeaderField("Authorization", "anything").description == "Authorization: ***")
    #expect(HeaderField("X-A", "canary-in-an-error").description == "X-A: ***")
  }
}
