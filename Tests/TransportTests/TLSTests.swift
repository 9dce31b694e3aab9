import Glibc
import TestSupport
import Testing
import Transport

/// Against openssl's own server with a certificate authority made for the test.
@Suite struct TLSTests {
  /// The listener of openssl; ends with the value.
  private final class Listener {
    let program: RunProgram
    let port: Int

    init?(_ folder: TemporaryFolder, certificate: String) {
      let command =
        "exec openssl s_server -quiet -www -accept 127.0.0.1:0 -cert \(folder[certificate]).crt"
        + " -key \(folder[certificate]).key -naccept 20 1>&2"
      program = RunProgram(["-c", command.replacing("-quiet ", with: "")], program: "/bin/sh")
      guard program.waitForError("ACCEPT 127.0.0.1:", limit: 20), program.waitForError("\n", limit: 20) else {
        return nil
      }
      let text = String(decoding: program.errorBytes, as: UTF8.self)
      guard let mark = text.firstRange(of: "ACCEPT 127.0.0.1:"),
        let port = Int(text[mark.upperBound...].prefix { $0.isNumber })
      else { return nil }
      self.port = port
    }
  }

  private func makeCertificates(_ folder: TemporaryFolder) -> Bool {
    func run(_ arguments: [String]) -> Bool { RunProgram.run(arguments, program: "/usr/bin/openssl").exitCode == 0 }
    func certificate(_ name: String, _ alternative: String) -> Bool {
      folder.write("subjectAltName=\(alternative)\n", to: name + ".ext")
      return run([
        "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=\(name)", "-keyout",
        folder[name + ".key"], "-out", folder[name + ".csr"],
      ])
        && run([
          "x509", "-req", "-in", folder[name + ".csr"], "-CA", folder["ca.crt"], "-CAkey", folder["ca.key"],
          "-CAcreateserial", "-days", "2", "-extfile", folder[name + ".ext"], "-out", folder[name + ".crt"],
        ])
    }
    return run([
      "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=test", "-days",
      "2",
      "-keyout", folder["ca.key"], "-out", folder["ca.crt"],
    ]) && certificate("right", "IP:127.0.0.1") && certificate("wrong", "DNS:other.example")
  }

  @Test func `a certificate is trusted by the bundle alone, and for its own name`() throws {
    guard access("/usr/bin/openssl", X_OK) == 0 else {
      print("not tested: there is no /usr/bin/openssl")
      return
    }
    let folder = TemporaryFolder()
    try #require(makeCertificates(folder))
    let right = try #require(Listener(folder, certificate: "right"))
    let wrong = try #require(Listener(folder, certificate: "wrong"))
    func send(_ port: Int, bundle: String?) throws(TransportError) -> Response {
      let client = Client(ClientOptions(caBundle: bundle, proxy: ""))
      return try client.send(Request(.get, try RequestURL("https://127.0.0.1:\(port)/")))
    }
    func failure(_ port: Int, bundle: String?) -> TransportError? {
      transportFailure { () throws(TransportError) in _ = try send(port, bundle: bundle) }
    }
    #expect(try send(right.port, bundle: folder["ca.crt"]).status == 200)
    let untrusted = failure(right.port, bundle: nil)
    #expect(untrusted?.code == .tls && untrusted?.bodyMayHaveArrived == false)
    #expect(untrusted?.message.hasPrefix("the server is not trusted: ") == true)
    #expect(failure(wrong.port, bundle: folder["ca.crt"])?.code == .tls)
    #expect(failure(right.port, bundle: folder["none.crt"])?.code == .tls)
    // Speaking http to it is no answer that means anything.
    let plain = transportFailure { () throws(TransportError) in
      let url = try RequestURL("http://127.0.0.1:\(right.port)/")
      _ = try Client(ClientOptions(proxy: "")).send(Request(.post, url, body: .raw(Payload("x"), type: "a/b")))
    }
    #expect(plain != nil)
  }

  /// Apache with HTTP/2 and TLS alone, which writes the protocol of each request into its log.
  @Test func `HTTP/2 is spoken where a server offers it, over one connection, and early answers are not lost`() throws {
    let modules = "/usr/lib/apache2/modules"
    guard access("/usr/sbin/apache2", X_OK) == 0, access(modules + "/mod_http2.so", R_OK) == 0,
      access("/usr/bin/openssl", X_OK) == 0
    else {
      print("not tested: there is no Apache with HTTP/2")
      return
    }
    let folder = TemporaryFolder()
    try #require(makeCertificates(folder))
    let content = (0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }
    folder.write(content, to: "www/a.bin")
    chmod(folder.path, 0o755)
    let port = Self.freePort()
    let loaded = ["mpm_event", "unixd", "ssl", "http2", "authz_core", "socache_shmcb", "log_config"]
      .filter { access("\(modules)/mod_\($0).so", R_OK) == 0 }
      .map { "LoadModule \($0)_module \(modules)/mod_\($0).so\n" }.joined()
    folder.write(
      loaded + """
        ServerName 127.0.0.1
        User nobody
        Group nogroup
        Listen 127.0.0.1:\(port)
        PidFile \(folder["pid"])
        DefaultRuntimeDir \(folder.path)
        ErrorLog /dev/stderr
        LogFormat "%H %m %k %s"
        TransferLog \(folder["log"])
        DocumentRoot \(folder["www"])
        SSLEngine on
        SSLCertificateFile \(folder["right.crt"])
        SSLCertificateKeyFile \(folder["right.key"])
        Protocols h2 http/1.1

        """, to: "conf")
    let server = RunProgram(["-X", "-f", folder["conf"]], program: "/usr/sbin/apache2")
    // Written once the port is open.
    let isUp = server.wait(limit: 30) { folder.read("pid") != nil }
    try #require(isUp, "\(String(decoding: server.errorBytes, as: UTF8.self))")
    let client = Client(ClientOptions(caBundle: folder["ca.crt"], proxy: ""))
    let url = try RequestURL("https://127.0.0.1:\(port)/a.bin")
    for _ in 0..<5 { #expect(try client.send(Request(.get, url)).body == content) }
    #expect(try client.send(Request(.head, url)).headers["content-length"] == "300000")
    let small = RequestBody.raw(Payload(Array(content[..<10_000])), type: "a/b")
    #expect(client.connectionsOpened == 1)
    // Refused while some of it is still here: over HTTP/1.1, so that the refusal is heard.
    #expect(try client.send(Request(.put, url, body: small)).status == 405)
    for method: HTTPMethod in [.put, .put, .delete] {
      #expect(try client.send(Request(method, url, body: .raw(Payload(content), type: "a/b"))).status == 405)
    }
    #expect(try client.send(Request(.get, url)).body == content)
    server.send(SIGTERM)
    _ = server.finish(limit: 20)
    let log = String(decoding: folder.read("log") ?? [], as: UTF8.self)
    let lines = log.split(separator: "\n")
    #expect(lines.count { $0.hasPrefix("HTTP/2.0 ") } == 7 && lines.count { $0.hasPrefix("HTTP/1.1 ") } == 4, "\(log)")
  }

  /// One that nobody listens at now.
  private static func freePort() -> Int { Int(ScriptedServer { _ in .close }.port) }

  @Test func `a bundle of the user's is read from the environment`() {
    let variables = ["SSL_CERT_FILE": "/certificates/a.pem", "CURL_CA_BUNDLE": "/certificates/b.pem"]
    #expect(ClientOptions.fromEnvironment { variables[$0] }.caBundle == "/certificates/b.pem")
    #expect(
      ClientOptions.fromEnvironment { $0 == "SSL_CERT_FILE" ? variables[$0] : nil }.caBundle == "/certificates/a.pem")
    #expect(ClientOptions.fromEnvironment(userAgent: "x") { _ in nil } == ClientOptions(userAgent: "x"))
  }
}
