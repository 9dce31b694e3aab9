import Testing

@testable import Transport

/// Which addresses go through the proxies of an environment.
@Suite struct ProxyRulesTests {
  private func proxy(_ address: String, _ variables: [String: String]) throws -> String? {
    Proxies(ClientOptions()) { variables[$0] }.proxy(for: try RequestURL(address))
  }

  @Test func `each scheme has its variable, and http only the one in lower case`() throws {
    let lower = ["http_proxy": "http://h:1", "https_proxy": "http://s:1", "all_proxy": "http://a:1"]
    #expect(try proxy("http://a.example/", lower) == "http://h:1")
    #expect(try proxy("https://a.example/", lower) == "http://s:1")
    let upper = ["HTTP_PROXY": "http://h:1", "HTTPS_PROXY": "http://s:1"]
    #expect(try proxy("http://a.example/", upper) == nil && proxy("https://a.example/", upper) == "http://s:1")
    #expect(try proxy("http://a.example/", ["ALL_PROXY": "http://a:1"]) == "http://a:1")
    #expect(try proxy("http://a.example/", [:]) == nil)
  }

  @Test(arguments: [
    ("https://a.example/", "*", true), ("https://a.example/", "a.example", true),
    ("https://b.a.example/", "a.example", true),
    ("https://b.a.example/", ".a.example", true), ("https://a.example/", ".a.example", true),
    ("https://ba.example/", "a.example", false), ("https://A.Example./", "x, a.EXAMPLE ,y", true),
    ("https://10.1.2.3/", "10.0.0.0/8", true), ("https://11.1.2.3/", "10.0.0.0/8", false),
    ("https://10.1.2.3/", "10.1.2.3", true), ("https://10.1.2.3/", "1.2.3", false),
    ("https://10.1.2.3/", "10.0.0.0/33", false),
    ("https://[2001:db8::1]/", "2001:db8::/32", true), ("https://[2001:db8::1]/", "[2001:db8::1]", true),
    ("https://a.example/", "", false), ("https://a.example/", ".", false), ("https://127.0.0.1/", "localhost", false),
    ("https://127.0.0.1/", "127.0.0.1", true),
  ])
  func `exceptions are hosts, domains and networks`(address: String, exceptions: String, isDirect: Bool) throws {
    for name in ["no_proxy", "NO_PROXY"] {
      #expect(try (proxy(address, ["https_proxy": "http://s:1", name: exceptions]) == nil) == isDirect)
    }
  }

  @Test func `plain http to this machine goes directly, and a proxy's password is a secret`() throws {
    let variables = ["all_proxy": "http://user:proxy-canary@p:1"]
    for host in ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"] {
      #expect(try proxy("http://\(host):8/", variables) == nil)
    }
    #expect(try proxy("https://localhost/", variables) != nil && proxy("http://10.0.0.1/", variables) != nil)
    #expect(Secrets.redacted("x proxy-canary") == "x ***")
  }
}
