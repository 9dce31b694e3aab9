import PipelineKit
import TestSupport
import Testing

@testable import Engine

/// What is packed comes out as it went in.
@Suite struct InputListTests {
  private func item(
    _ path: String, _ name: String, _ index: Int, directory: String = "", columns: [String: String] = [:],
    declaration: Int = 0, line: Int? = nil
  ) -> InputItem {
    InputItem(
      path: PathBytes(path), name: PathBytes(name), relativeDirectory: PathBytes(directory), index: index,
      columns: columns, declaration: declaration, line: line)
  }

  private func check(_ items: [InputItem]) {
    let list = InputList(items)
    #expect(list.count == items.count)
    #expect(Array(list) == items)
    for index in items.indices { #expect(list.path(at: index) == items[index].path) }
  }

  @Test func names() {
    check([])
    check([
      item("/a/in/x.jpg", "in/x.jpg", 0), item("/a/in/y.jpg", "in/y.jpg", 1),
      item("/a/in/deep/y.jpg", "in/deep/y.jpg", 2, directory: "deep"), item("/a/in/z.jpg", "in/z.jpg", 3),
      item("/elsewhere/z.jpg", "/elsewhere/z.jpg", 4),
      // The same folder, seen from elsewhere and by another declaration.
      item("/a/in/q.jpg", "in/q.jpg", 5, directory: "in"), item("/a/in/q.jpg", "in/q.jpg", 6, directory: "in", declaration: 1),
      item("/x", "x", 7), item("x", "x", 8), item("/", "/", 9), item("", "", 10), item("/a/b/", "b/", 11),
      // A name that ends otherwise than its path.
      item("/a/in/q.jpg", "other", 12), item("/a/in/long.jpg", "g.jpg", 13),
    ])
    var bytes = item("/a/in/x.jpg", "in/x.jpg", 0)
    bytes.path.bytes[6] = 0xff
    bytes.name.bytes[3] = 0xff
    check([bytes])
  }

  @Test func columnsLinesAndNumbersThatComeLate() {
    check([
      item("/a/1.jpg", "1.jpg", 0), item("/a/2.jpg", "2.jpg", 1, line: 7),
      item("/a/3.jpg", "3.jpg", 2, columns: ["title": "Öl", "sku": ""]), item("/a/4.jpg", "4.jpg", 3),
      item("/a/5.jpg", "5.jpg", 4, columns: ["sku": "12", "title": String(repeating: "x", count: 70_000)], line: 9),
      item("/a/6.jpg", "6.jpg", 5, columns: ["other": "1"]),
    ])
    // Inputs of one shard keep the numbers they have in the whole.
    check([item("/a/1.jpg", "1.jpg", 0), item("/a/4.jpg", "4.jpg", 3), item("/a/9.jpg", "9.jpg", 8)])
  }

  @Test func random() {
    var random = SeededGenerator(state: 11)
    let alphabet = Array("ab/.é\u{0}".utf8)
    func bytes() -> PathBytes {
      PathBytes(bytes: (0..<Int.random(in: 0...6, using: &random)).map { _ in alphabet.randomElement(using: &random)! })
    }
    for _ in 0..<200 {
      check(
        (0..<20).map { index in
          InputItem(
            path: bytes(), name: bytes(), relativeDirectory: bytes(),
            index: Bool.random(using: &random) ? index : Int.random(in: 0..<99, using: &random),
            columns: Bool.random(using: &random) ? [:] : ["a": "\(index)", "b": "é"],
            declaration: Int.random(in: 0..<2, using: &random), line: Bool.random(using: &random) ? nil : index + 1)
        })
    }
  }
}
