import Testing
import Transport

@Suite struct XMLAnswerTests {
  private func read(_ text: String, _ limits: XMLAnswer.Limits = .init()) throws(XMLAnswer.Refusal) -> XMLElement {
    try XMLAnswer.read(Array(text.utf8), limits: limits)
  }

  private func refusal(_ text: String, _ limits: XMLAnswer.Limits = .init()) -> String? {
    do throws(XMLAnswer.Refusal) {
      _ = try read(text, limits)
      return nil
    } catch { return error.description }
  }

  @Test func `elements come with name, namespace, text and children`() throws {
    let root = try read(
      """
      <?xml version="1.0" encoding="UTF-8"?>
      <!-- a comment -->
      <D:multistatus xmlns:D="DAV:" xmlns="urn:x">
        <D:response><D:href>/a%20b/</D:href><plain a="1">x &amp; y &lt;z&gt; &#228;<![CDATA[ <&> ]]></plain></D:response>
        <D:response/>
      </D:multistatus>
      """)
    #expect(root.name == "multistatus" && root.namespace == "DAV:" && root.text.isEmpty)
    #expect(root.all("response").count == 2 && root.children.count == 2)
    let response = try #require(root["response"])
    #expect(response["href"]?.text == "/a%20b/" && response["href"]?.namespace == "DAV:")
    #expect(response["plain"]?.text == "x & y <z> ä <&> " && response["plain"]?.namespace == "urn:x")
    #expect(root["nothing"] == nil)
  }

  @Test func `text keeps its white space where it is all there is`() throws {
    let root = try read("<K><Key> a  b\n</Key><Key>   </Key><Key/><Key>\u{FEFF}e\u{301}</Key></K>")
    let keys = root.all("Key").map { Array($0.text.utf8) }
    #expect(keys == [" a  b\n", "   ", "", "\u{FEFF}e\u{301}"].map { Array($0.utf8) })
  }

  @Test func `other encodings and byte order marks are read`() throws {
    #expect(try XMLAnswer.read([0xEF, 0xBB, 0xBF] + Array("<a>ü</a>".utf8)).text == "ü")
    var wide: [UInt8] = [0xFF, 0xFE]
    for unit in "<a>ü🙂</a>".utf16 { wide += [UInt8(unit & 255), UInt8(unit >> 8)] }
    #expect(try XMLAnswer.read(wide).text == "ü🙂")
    let latin = Array("<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>".utf8) + [0xFC] + Array("</a>".utf8)
    #expect(try XMLAnswer.read(latin).text == "ü")
  }

  @Test(arguments: [
    ("", "no well-formed"), ("   ", "no well-formed"), ("{\"a\":1}", "no well-formed"), ("<a>", "no well-formed"),
    ("<a></b>", "no well-formed"), ("<a/><b/>", "no well-formed"), ("<a>&nothing;</a>", "no well-formed"),
    ("<html><br></html>", "no well-formed"), ("<a>\u{1}</a>", "no well-formed"),
    ("<!DOCTYPE a><a/>", "document type"), ("<!DOCTYPE a SYSTEM \"http://localhost/x\"><a/>", "document type"),
    ("<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>", "document type"),
  ])
  func `what is no XML, and a document type, is refused`(text: String, word: String) {
    #expect(refusal(text)?.contains(word) == true)
  }

  @Test func `a refusal names the line`() {
    #expect(refusal("<a>\n\n<b></a>")?.hasPrefix("line 3: ") == true)
  }

  @Test func `entities that grow are refused before they do`() {
    var text = "<!DOCTYPE a [<!ENTITY e0 \"lol\">"
    for level in 1...12 { text += "<!ENTITY e\(level) \"" + String(repeating: "&e\(level - 1);", count: 10) + "\">" }
    #expect(refusal(text + "]><a>&e12;</a>")?.contains("document type") == true)
  }

  @Test func `each limit holds, and what is just within it passes`() {
    var limits = XMLAnswer.Limits()
    limits.bytes = 20
    #expect(refusal("<a>" + String(repeating: "x", count: 13) + "</a>", limits) == nil)
    #expect(refusal("<a>" + String(repeating: "x", count: 14) + "</a>", limits)?.contains("20 bytes") == true)
    limits = .init()
    limits.depth = 3
    #expect(refusal("<a><b><c/></b><b><c/></b></a>", limits) == nil)
    #expect(refusal("<a><b><c><d/></c></b></a>", limits)?.contains("deeper than 3") == true)
    limits = .init()
    limits.elements = 3
    #expect(refusal("<a><b/><b/></a>", limits) == nil)
    #expect(refusal("<a><b/><b/><b/></a>", limits)?.contains("more than 3") == true)
  }
}
