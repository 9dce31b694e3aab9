import Glibc
import TestSupport
import Testing

/// Each server that tests talk to comes up and does what it is there for.
@Suite struct PeersTests {
  private func form(_ parts: [(name: String, value: [UInt8], file: String?)]) -> (type: String, body: [UInt8]) {
    var body: [UInt8] = []
    for part in parts {
      let file = part.file.map { "; filename=\"\($0)\"\r\nContent-Type: image/png" } ?? ""
      body += Array("--B\r\nContent-Disposition: form-data; name=\"\(part.name)\"\(file)\r\n\r\n".utf8)
      body += part.value + Array("\r\n".utf8)
    }
    return ("multipart/form-data; boundary=B", body + Array("--B--\r\n".utf8))
  }

  @Test(.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"))
  func `httpbin echoes a form`() throws {
    let server = try Peers.httpbin()
    let (type, body) = form([("a", Array("1".utf8), nil), ("f", [0xff, 0], "x.png")])
    let answer = try PlainHTTP.send(
      "POST", "/post", port: server.port, headers: [("Content-Type", type)], body: body)
    #expect(answer.status == 200)
    #expect(answer.text.contains(#""a": "1""#) && answer.text.contains("data:image/png;base64,/wA="))
    // What a delayed answer needs: threads that do not wait for one another.
    #expect(try PlainHTTP.send("GET", "/status/503", port: server.port).status == 503)
  }

  @Test(.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"))
  func `moto refuses a wrong signature`() throws {
    let server = try Peers.moto()
    let bucket = try server.makeBucket()
    #expect(server.keys.accessKey.hasPrefix("AKIA") && server.temporaryKeys.accessKey.hasPrefix("ASIA"))
    let date = "20260101T000000Z"
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    let signed = "host;x-amz-content-sha256;x-amz-date"
    func statusAndText(_ key: String) throws -> (Int, String) {
      let scope = "\(key)/20260101/us-east-1/s3/aws4_request"
      let answer = try PlainHTTP.send(
        "GET", "/\(bucket)?list-type=2", port: server.port,
        headers: [
          ("x-amz-date", date), ("x-amz-content-sha256", empty),
          (
            "Authorization",
            "AWS4-HMAC-SHA256 Credential=\(scope), SignedHeaders=\(signed), Signature=\(String(repeating: "0", count: 64))"
          ),
        ])
      return (answer.status, answer.text)
    }
    let (status, text) = try statusAndText(server.keys.accessKey)
    #expect(status == 403 && text.contains("SignatureDoesNotMatch"))
    let (unknown, why) = try statusAndText("AKIAUNKNOWNUNKNOWN00")
    #expect(unknown == 403 && why.contains("InvalidAccessKeyId"))
  }

  @Test(.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"))
  func `moto's keys pass when an independent client signs`() throws {
    let server = try Peers.moto()
    let bucket = try server.makeBucket()
    for keys in [server.keys, server.temporaryKeys] {
      #expect(try server.check(keys, bucket: bucket) == "body")
    }
    var wrong = server.keys
    wrong.secretKey = String(wrong.secretKey.reversed())
    #expect(try server.check(wrong, bucket: bucket) == "SignatureDoesNotMatch")
  }

  @Test(.enabled(if: Peers.hasRembg, "make the servers of the tests with Scripts/peers"))
  func `rembg gives a mask with the model that is installed`() throws {
    let server = try Peers.rembg()
    let schema = try PlainHTTP.send("GET", "/openapi.json", port: server.port)
    #expect(schema.status == 200 && schema.text.contains(#""title":"Rembg""#))
    let picture = try PlainHTTP.send("GET", "/pictures/sample/96x64-1.png", port: Peers.standIn().port).body
    let (type, body) = form([
      ("file", picture, "a.png" as String?), ("model", Array("u2netp".utf8), nil), ("om", Array("true".utf8), nil),
    ])
    let answer = try PlainHTTP.send(
      "POST", "/api/remove", port: server.port, headers: [("Content-Type", type)], body: body)
    #expect(answer.status == 200 && answer.headers["content-type"] == "image/png")
    // A grey picture of 8 bits, of the same size (PNG, IHDR).
    #expect(answer.body.prefix(26).suffix(10) == [0, 0, 0, 96, 0, 0, 0, 64, 8, 0])
  }

  @Test(.enabled(if: Peers.hasApache, "install apache2-bin and openssl with Scripts/provision --tests"))
  func `WebDAV takes files and makes folders`() throws {
    let server = try Peers.webDAV()
    let folder = Peers.freshName()
    func status(_ method: String, _ path: String, _ body: String = "", isKnown: Bool = true) throws -> Int {
      let login = "Basic " + base64("\(server.user):\(server.password)")
      return try PlainHTTP.send(
        method, path, port: server.port, headers: isKnown ? [("Authorization", login)] : [], body: Array(body.utf8)
      ).status
    }
    #expect(try status("PUT", "/basic/\(folder)/a.txt", "text") == 409)
    #expect(try status("MKCOL", "/basic/\(folder)/") == 201)
    #expect(try status("MKCOL", "/basic/\(folder)/") == 405)
    #expect(try status("PUT", "/basic/\(folder)/a.txt", "text") == 201)
    #expect(try status("PUT", "/basic/\(folder)/a.txt", "more") == 204)
    #expect(server.file("basic/\(folder)/a.txt") == Array("more".utf8))
    #expect(try status("PUT", "/basic/\(folder)/a.txt", "x", isKnown: false) == 401)
    let digest = try PlainHTTP.send("PUT", "/digest/a", port: server.port, body: [1])
    #expect(digest.status == 401 && digest.headers["www-authenticate"]?.hasPrefix("Digest ") == true)
    #expect(try status("PUT", "/open/\(folder)", "x", isKnown: false) == 201)
  }

  @Test(.enabled(if: Peers.hasPython && Peers.hasOpenSSL, "make the servers of the tests with Scripts/peers"))
  func `certificates are good, of another host, and expired`() throws {
    let server = try Peers.tls()
    func verified(_ port: UInt16, host: String) -> String {
      let arguments = [
        "s_client", "-connect", "127.0.0.1:\(port)", "-verify_hostname", host, "-CAfile", server.authority, "-brief",
        "-verify_return_error",
      ]
      var settings = RunProgram.Settings()
      settings.input = Array("GET /echo/tls HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".utf8)
      let run = RunProgram.run(arguments, settings, program: "/usr/bin/openssl", limit: 30)
      return run.error + run.output
    }
    #expect(verified(server.port, host: "localhost").contains("Verification: OK"))
    #expect(verified(server.wrongHostPort, host: "localhost").contains("hostname mismatch"))
    #expect(verified(server.wrongHostPort, host: "elsewhere.example").contains("Verification: OK"))
    #expect(verified(server.expiredPort, host: "localhost").contains("certificate has expired"))
  }

  @Test(.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"))
  func `a server ends with its last reference, and tells why it did not start`() throws {
    let port: UInt16
    do {
      let server = try StandIn()
      port = server.port
      #expect(try PlainHTTP.send("GET", "/echo/x", port: port).status == 200)
    }
    #expect(throws: PeerFailure.self) { try PlainHTTP.send("GET", "/echo/x", port: port) }
    let failure = #expect(throws: PeerFailure.self) { try StandIn(arguments: ["--unknown"]) }
    #expect(failure?.description.contains("Usage: server.py") == true)
  }

  private func base64(_ text: String) -> String {
    let letters = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
    let bytes = Array(text.utf8)
    var result = ""
    for start in stride(from: 0, to: bytes.count, by: 3) {
      let group = bytes[start..<min(start + 3, bytes.count)]
      let value = (0..<3).reduce(0) { $0 << 8 | Int($1 < group.count ? group[start + $1] : 0) }
      for place in 0..<4 { result.append(place <= group.count ? letters[value >> (18 - 6 * place) & 63] : "=") }
    }
    return result
  }
}
