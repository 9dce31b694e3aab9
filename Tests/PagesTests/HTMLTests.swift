import Imaging
import JobSyntax
import Pages
import PipelineKit
import Testing

@Suite struct HTMLTests {
  private func text(_ html: HTML) -> String { String(decoding: html.bytes, as: UTF8.self) }

  @Test func `Text is escaped and literals are not`() {
    let name = #"<img src=x onerror='a()'> & "b""#
    #expect(
      text("<p title=\"\(name)\">\(name)</p>")
        == "<p title=\"&lt;img src=x onerror=&#39;a()&#39;&gt; &amp; &quot;b&quot;\">"
        + "&lt;img src=x onerror=&#39;a()&#39;&gt; &amp; &quot;b&quot;</p>")
    let inner: HTML = "<b>\(1)</b>"
    #expect(text("<i>\(inner)</i>") == "<i><b>1</b></i>")
    #expect(text(["a", "<br>", HTML(text: "<")].joined(separator: "|")) == "a|<br>|&lt;")
  }

  @Test func `Signs that turn text round are shown by their code`() {
    #expect(text(HTML(text: "a\u{202E}gpj.exe\u{0}\tb")) == "a⟨U+202E⟩gpj.exe⟨U+0000⟩\tb")
    #expect(HTML.visible("ordinary ä 漢") == "ordinary ä 漢")
  }

  @Test func `Only addresses of the web are links`() throws {
    #expect(PageLink(web: "javascript:alert(1)") == nil)
    #expect(PageLink(web: " https://a.example/") == nil)
    #expect(PageLink(web: "data:text/html,x") == nil)
    #expect(
      try #require(PageLink(web: "https://a.example/ä \"<b>?x=%20")).address
        == "https://a.example/%C3%A4%20%22%3Cb%3E?x=%20")
  }

  @Test func `Files are named from the folder of the page, byte by byte`() {
    #expect(PageLink(file: "/a/b/c d#1?.jpg", from: "/a/e").address == "./../b/c%20d%231%3F.jpg")
    #expect(PageLink(file: "/a/javascript:x", from: "/a").address == "./javascript%3Ax")
    #expect(PageLink(file: PathBytes(bytes: Array("/a/".utf8) + [0xFF, 0x25]), from: "/a").address == "./%FF%25")
  }

  @Test func `Nothing in JSON ends the element it stands in`() {
    var page = Page(title: "</title><script>", body: "<main id=\"main\"></main>")
    page.data = [("data", ["a": "</script><!--&"])]
    let all = String(decoding: page.rendered, as: UTF8.self)
    #expect(all.contains(#"{"a":"\u003c/script\u003e\u003c!--\u0026"}"#))
    #expect(all.contains("<title>&lt;/title&gt;&lt;script&gt;</title>"))
    #expect(all.hasSuffix("</body>\n</html>\n"))
  }

  @Test func `The policy names scripts by their hash and nothing from elsewhere`() throws {
    let page = Page(title: "t", body: "")
    let all = String(decoding: page.rendered, as: UTF8.self)
    let policy = try #require(all.split(separator: "\n").first { $0.contains("Content-Security-Policy") })
    #expect(policy.contains("default-src 'none'"))
    #expect(policy.contains("script-src 'sha256-"))
    #expect(!policy.contains("unsafe") && !policy.contains("http:") && !policy.contains("file:"))
    var other = page
    other.readsFiles = true
    #expect(String(decoding: other.rendered, as: UTF8.self).contains("img-src data: 'self' file:;"))
  }

  @Test(arguments: [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")])
  func `Pictures inside the page are in base64`(bytes: String, expected: String) {
    // RFC 4648, section 10.
    let picture = PagePicture(EncodedBytes(Array(bytes.utf8)), type: "image/webp", width: 1, height: 1)
    #expect(picture.source == "data:image/webp;base64," + expected)
  }

  @Test func `A pair has a handle where there are two pictures`() {
    let picture = PagePicture(EncodedBytes([1]), type: "image/webp", width: 4, height: 3)
    let both = text(BeforeAfter(before: picture, after: picture, label: "a\"b").html)
    #expect(both.contains(#"role="slider" tabindex="0" aria-label="Before and after: a&quot;b""#))
    #expect(!text(BeforeAfter(before: picture, after: nil, label: "x").html).contains("slider"))
    #expect(text(BeforeAfter(before: nil, after: nil, label: "x", placeholder: "<gone>").html).contains("&lt;gone&gt;"))
  }
}
