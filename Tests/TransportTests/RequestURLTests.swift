import Testing
import Transport

@Suite struct RequestURLTests {
  @Test func `an address is taken apart and kept as it is`() throws {
    let text = "HTTPS://Bucket.Example.COM:8443/a%2fb/%C3%BC?x=%2B&y#part"
    let url = try RequestURL(text)
    #expect(url.text == text && url.scheme == "https" && url.host == "bucket.example.com" && url.port == 8443)
    #expect(url.path == "/a%2fb/%C3%BC" && url.query == "x=%2B&y" && url.target == "/a%2fb/%C3%BC?x=%2B&y")
    #expect(url.display == "https://bucket.example.com:8443/a%2fb/%C3%BC?…" && url.isEncrypted)
    let bare = try RequestURL("http://[2001:DB8::1]")
    #expect(bare.host == "2001:db8::1" && bare.port == 80 && bare.path == "/" && bare.query == nil)
    #expect(bare.authority == "[2001:db8::1]" && bare.display == "http://[2001:db8::1]/")
    #expect(try RequestURL("https://a.example:443/").authority == "a.example")
    #expect(try RequestURL("http://a.example:443/").authority == "a.example:443")
    #expect(try RequestURL("http://a.example?x").target == "/?x")
  }

  @Test(arguments: [
    "", "a", "ftp://a/", "http:/a", "http://", "http:///a", "http://u@a/", "http://u:p@a/", "http://a b/",
    "http://a/b c",
    "http://a/\n", "http://a/\u{0}", "http://a:/", "http://a:0/", "http://a:65536/", "http://a:x/", "http://[::1/",
    "http://[a]/", "http://[1.2.3.4]/", "http://[::1]x/", "http://ä.example/", "http://a\\b/", "http://a%41/",
    "http://a,b/", "//a/b", "http://a..b/", "http://.a/", "http://[fe80::1%25eth0]/", "file:///etc/passwd",
    "http://a.example@b.example/",
  ])
  func `what is no address, or holds a password, is refused`(text: String) {
    let error = transportFailure { () throws(TransportError) in _ = try RequestURL(text) }
    #expect(error?.code == .address)
  }

  /// RFC 3986, section 5.4, with http and without what leads out of a server.
  @Test(arguments: [
    ("g", "http://a/b/c/g"), ("./g", "http://a/b/c/g"), ("g/", "http://a/b/c/g/"), ("/g", "http://a/g"),
    ("//g", "http://g"), ("?y", "http://a/b/c/d;p?y"), ("g?y", "http://a/b/c/g?y"), ("", "http://a/b/c/d;p?q"),
    ("#s", "http://a/b/c/d;p?q"), ("g#s", "http://a/b/c/g"), (";x", "http://a/b/c/;x"), (".", "http://a/b/c/"),
    ("./", "http://a/b/c/"), ("..", "http://a/b/"), ("../", "http://a/b/"), ("../g", "http://a/b/g"),
    ("../..", "http://a/"), ("../../g", "http://a/g"), ("../../../g", "http://a/g"), ("/./g", "http://a/g"),
    ("/../g", "http://a/g"), ("g.", "http://a/b/c/g."), ("..g", "http://a/b/c/..g"), ("./../g", "http://a/b/g"),
    ("./g/.", "http://a/b/c/g/"), ("g/./h", "http://a/b/c/g/h"), ("g/../h", "http://a/b/c/h"),
    ("g?y/../x", "http://a/b/c/g?y/../x"), ("https://b.example/x", "https://b.example/x"),
    (" /ä b ", "http://a/%C3%A4%20b"),
  ])
  func `references lead where they should`(reference: String, expected: String) throws {
    #expect(try RequestURL("http://a/b/c/d;p?q").resolving(reference).text == expected)
  }

  @Test func `what is encoded can be read back, and nothing more is touched`() throws {
    #expect(RequestURL.encoded(pathSegment: "a b/ü+%&~._-'") == "a%20b%2F%C3%BC%2B%25%26~._-%27")
    #expect(RequestURL.encoded(path: "a b//ü") == "a%20b//%C3%BC")
    #expect(RequestURL.encoded(queryValue: "a b&c=d+e") == "a%20b%26c%3Dd%2Be")
    let url = try RequestURL("https://a.example/c?sv=1&sig=%2B%3D")
    #expect(try url.appending(path: "b%20c/d").text == "https://a.example/c/b%20c/d?sv=1&sig=%2B%3D")
    #expect(try url.appending(query: "k é", "v&").text == "https://a.example/c?sv=1&sig=%2B%3D&k%20%C3%A9=v%26")
    #expect(try RequestURL("https://a.example").appending(query: "a", "b").text == "https://a.example/?a=b")
  }

  @Test func `origins differ by scheme, host and port`() throws {
    let url = try RequestURL("https://a.example/x")
    #expect(url.isSameOrigin(as: try RequestURL("https://A.example:443/y")))
    for other in ["http://a.example:443/", "https://b.example/", "https://a.example:8443/", "https://a.example./"] {
      #expect(!url.isSameOrigin(as: try RequestURL(other)))
    }
  }
}
