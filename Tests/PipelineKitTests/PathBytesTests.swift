import PipelineKit
import Testing

@Suite struct PathBytesTests {
  @Test(arguments: [
    ("a/b.jpg", "a", "b.jpg", "b", "jpg"),
    ("/a", "/", "a", "a", ""),
    ("a", ".", "a", "a", ""),
    ("/", "/", "", "", ""),
    ("", ".", "", "", ""),
    ("a//b/", "a", "b", "b", ""),
    ("a/b.tar.GZ", "a", "b.tar.GZ", "b.tar", "GZ"),
    (".profile", ".", ".profile", ".profile", ""),
    ("..jpg", ".", "..jpg", "..jpg", ""),
    (".a.jpg", ".", ".a.jpg", ".a", "jpg"),
    ("name.", ".", "name.", "name.", ""),
    ("//x", "/", "x", "x", ""),
  ])
  func parts(path: String, parent: String, last: String, stem: String, ending: String) {
    let path = PathBytes(path)
    #expect(path.parent == PathBytes(parent))
    #expect(path.lastComponent == PathBytes(last))
    #expect(path.stem == PathBytes(stem))
    #expect(path.fileExtension == PathBytes(ending))
  }

  @Test(arguments: [
    ("a/./b//c/", "a/b/c"), ("/../a", "/a"), ("a/../..", ".."), ("../../a", "../../a"), ("a/..", "."), ("", "."),
    ("/", "/"), ("/a/../..", "/"), ("./a", "a"), ("..a/...", "..a/..."),
  ])
  func normalised(path: String, expected: String) {
    #expect(PathBytes(path).normalised == PathBytes(expected))
  }

  @Test(arguments: [
    ("/a/b", "/a/c", "../b"), ("/a/b/c", "/a", "b/c"), ("/a", "/a", "."), ("/a", "/a/b/c", "../.."),
    ("/ab", "/a", "../ab"), ("a/b", "a", "b"), ("a", "b", "../a"), ("a", ".", "a"), ("a", "/b", "a"),
    ("a", "../b", "a"), ("../a", "..", "a"), ("/", "/a", ".."),
  ])
  func relative(path: String, folder: String, expected: String) {
    #expect(PathBytes(path).relative(to: PathBytes(folder)) == PathBytes(expected))
  }

  @Test(arguments: [
    ("a", "b", "a/b"), ("a/", "b", "a/b"), ("a", "/b", "/b"), ("", "b", "b"), ("a", "", "a"), ("/", "b", "/b"),
  ])
  func joining(folder: String, name: String, expected: String) {
    #expect(PathBytes(folder).joining(name) == PathBytes(expected))
  }

  @Test(arguments: [
    ("/a/b", "/a", true), ("/a", "/a", true), ("/ab", "/a", false), ("a/b", "/a", false), ("/a", "/", true),
  ])
  func inside(path: String, folder: String, expected: Bool) {
    #expect(PathBytes(path).isInside(PathBytes(folder)) == expected)
  }

  @Test(arguments: [
    (Array("plain.jpg".utf8), "plain.jpg"),
    (Array("100%.jpg".utf8), "100%.jpg"),
    (Array("größe.jpg".utf8), "größe.jpg"),
    ([0x61, 0xff, 0x62], "a%FFb"),
    // Would read as the name above, so its % is escaped.
    (Array("a%FFb".utf8), "a%25FFb"),
    (Array("a%ffb".utf8), "a%25ffb"),
    ([0xff, 0x25], "%FF%25"),
    ([0xc3, 0xa9, 0xc3], "é%C3"),
    // An overlong slash and a surrogate are not UTF-8.
    ([0xc0, 0xaf], "%C0%AF"),
    ([0xed, 0xa0, 0x80], "%ED%A0%80"),
    ([0x0a], "\n"),
  ])
  func display(bytes: [UInt8], expected: String) {
    #expect(PathBytes(bytes: bytes).display == expected)
    #expect(PathBytes(display: expected).bytes == bytes)
  }

  @Test func displayIsReversibleForEveryShortName() {
    // Every name of up to four of these bytes: plain, %, digits of an escape, parts of UTF-8.
    let alphabet: [UInt8] = [0x61, 0x25, 0x32, 0x35, 0x46, 0x0a, 0xc3, 0xa9, 0xff]
    var names: [[UInt8]] = [[]]
    for _ in 0..<4 { names = [[]] + names.flatMap { name in alphabet.map { name + [$0] } } }
    var displayed: Set<String> = []
    var printed: Set<String> = []
    let distinct = Set(names)
    for name in distinct {
      let path = PathBytes(bytes: name)
      // As code points, not as Swift compares strings: the report is read by others.
      displayed.insert(path.display)
      printed.insert(path.printable)
      #expect(PathBytes(display: path.display) == path)
      #expect(PathBytes(display: path.printable) == path)
    }
    #expect(displayed.count == distinct.count)
    #expect(printed.count == distinct.count)
  }

  @Test func printableHasNoControlCharacters() {
    #expect(PathBytes("a\nb\u{1b}[31m%").printable == "a%0Ab%1B[31m%25")
    #expect(PathBytes("a\u{85}").printable == "a%C2%85")
  }

  @Test func orderIsBytewise() {
    let names: [PathBytes] = ["b", "a/b", "a.b", "Z", "ä"]
    #expect(names.sorted() == ["Z", "a.b", "a/b", "b", "ä"])
  }
}
