import Glibc
import PipelineKit
import Testing

@testable import Engine

@Suite struct ListTests {
  @Test(arguments: [
    ("a.jpg\nb.jpg\n", ["a.jpg", "b.jpg"], [1, 2]),
    ("a.jpg\nb.jpg", ["a.jpg", "b.jpg"], [1, 2]),
    ("a.jpg\r\n\r\nb.jpg\r\n", ["a.jpg", "b.jpg"], [1, 3]),
    ("\u{feff}a.jpg\n", ["a.jpg"], [1]),
    ("a\nb.jpg\0c.jpg\0", ["a\nb.jpg", "c.jpg"], [1, 2]),
    ("a.jpg\0b.jpg\r", ["a.jpg", "b.jpg\r"], [1, 2]),
    (" # a.jpg \n", [" # a.jpg "], [1]),
    ("sub/../a.jpg\n./b.jpg", ["a.jpg", "b.jpg"], [1, 2]),
    ("a.jpg\na.jpg\n", ["a.jpg", "a.jpg"], [1, 2]),
    ("z.jpg\n*.jpg\n", ["z.jpg", "*.jpg"], [1, 2]),
  ])
  func lines(text: String, names: [String], lines: [Int]) throws {
    let tree = try TemporaryTree()
    try tree.file("lists/of.txt", text)
    let walk = try tree.walk([.list("lists/of.txt")])
    // None of them exists: each is an item all the same.
    #expect(walk.items.map(\.path) == names.map { tree["lists"].joining($0) })
    #expect(walk.items.map(\.line) == lines)
  }

  @Test func pathsAreBytes() throws {
    let tree = try TemporaryTree()
    try tree.file("list", [0xff, 0x2f, 0xfe, 0x0a])
    let walk = try tree.walk([.list("list")])
    #expect(walk.items.map(\.path) == [tree[PathBytes(bytes: [0xff, 0x2f, 0xfe])]])
    #expect(walk.items.map(\.relativeDirectory) == [PathBytes(bytes: [0xff])])
  }

  @Test func relativeFolders() throws {
    let tree = try TemporaryTree()
    try tree.file("l/list", "x/y/a.jpg\nb.jpg\n../c.jpg\n/d/e.jpg\nx/../f.jpg\n")
    #expect(try tree.walk([.list("l/list")]).folders == ["x/y", "", "", "", ""])
  }

  @Test func pipesAndDevicesArePassedOver() throws {
    let tree = try TemporaryTree()
    try tree.node("pipe", S_IFIFO)
    try tree.file("list", "pipe\n/dev/null\na.jpg\n")
    let walk = try tree.walk([.list("list")])
    #expect(walk.names == ["a.jpg"])
    #expect(walk.skipped.first == "pipe: pipe")
    #expect(walk.skipped.last?.hasSuffix("dev/null: device") == true)
  }

  @Test func standardInputIsReadOnceAndKept() throws {
    var ends: [Int32] = [0, 0]
    #expect(pipe(&ends) == 0)
    let text = Array("/x/a.jpg\nb.jpg\n".utf8)
    #expect(write(ends[1], text, text.count) == text.count)
    close(ends[1])
    defer { close(ends[0]) }
    let walker = InputWalker([.list("-")], base: "/somewhere", standardInput: ends[0])
    let here = try #require(PathBytes.currentFolder)
    for _ in 0..<2 {
      var paths: [PathBytes] = []
      try walker.forEach { paths.append($0.path) }
      #expect(paths == ["/x/a.jpg", here.joining("b.jpg")])
    }
  }

  @Test func badLinesAreReportedTogether() throws {
    let tree = try TemporaryTree()
    let long = String(repeating: "a", count: 5_000)
    // The NUL stands behind the first 64 KiB, so that lines end in line feeds.
    let filler = String(repeating: "0123456789abcdef\n", count: 4_096)
    try tree.file("list", filler + "ok\n" + long + "\nx\0y\nok\n")
    let walker = InputWalker([.list("list")], base: tree.root)
    let cursor = walker.cursor()
    var count = 0
    let found = try problems { while try cursor.next() != nil { count += 1 } }
    #expect(count == 4_097)
    #expect(found.map(\.code) == [.list, .list])
    #expect(found.map(\.line) == [4_098, 4_099])
    #expect(found.map(\.file) == ["list", "list"])
    #expect(try cursor.next() == nil)
  }

  @Test func errors() throws {
    let tree = try TemporaryTree()
    try tree.folder("folder")
    try tree.node("pipe", S_IFIFO)
    try tree.file("empty", "\n\n")
    try tree.file("utf16", [0xff, 0xfe, 0x61, 0x00, 0x0a, 0x00])
    func found(_ path: String, allowEmpty: Bool = false) throws -> [InputProblem] {
      try problems { try tree.walk([.list(path, allowEmpty: allowEmpty)]) }
    }
    #expect(try found("none").map(\.code) == [.missing])
    #expect(try found("folder").map(\.code) == [.wrongKind])
    // A pipe without a writer would never end.
    #expect(try found("pipe").map(\.code) == [.wrongKind])
    #expect(try found("empty").map(\.code) == [.empty])
    #expect(try found("empty", allowEmpty: true) == [])
    #expect(try found("utf16").map(\.message) == ["the list is in UTF-16"])
  }
}
