import Testing

@testable import JobSyntax

/// The reader's work counted, not timed: places must not be found by walking from the beginning again.
@Suite struct ReaderCostTests {
  @Test(arguments: [
    "[" + String(repeating: "1,", count: 50_000) + "1]",
    "{" + (0..<10_000).map { "\"k\($0)\": \($0)" }.joined(separator: ",") + "}",
    "{\"a\":0" + String(repeating: ",\"a\":0", count: 10_000) + "}",
    "[" + String(repeating: "-0,\r\n", count: 20_000) + "1]",
    "[" + String(repeating: "\"é\\u00e9\" , ", count: 10_000) + "nope",
  ])
  func eachByteIsCountedOnceOrTwice(_ text: String) {
    var parser = JSONParser(SourceFile(name: "large", text: Array(text.utf8)), maxDepth: 64, maxBytes: 1 << 30)
    _ = parser.parse()
    #expect(parser.cursor.bytesWalked > 0)
    #expect(parser.cursor.bytesWalked <= 2 * text.utf8.count)
  }

  @Test func aLongKeyAboveManyValuesIsStoredOnce() throws {
    let key = String(repeating: "k", count: 100_000)
    let text = "{\"\(key)\":[" + String(repeating: "1,", count: 1_000) + "1]}"
    let root = try #require(StrictJSON.parse(SourceFile(name: "large", text: Array(text.utf8))).root)
    let last = try #require(root[key]?.arrayValue?.last)
    #expect(last.path.unicodeScalars.count < 100)
    #expect(last.path.hasSuffix("…kkkkkkkkkkkkkkkkkkkkkkkkkk\"][1000]"))
  }
}
