import PipelineKit
import Testing

@testable import Engine

@Suite struct ManifestTests {
  private func rows(_ name: String, _ text: String, column: String? = nil) throws -> [InputItem] {
    try rows(name, Array(text.utf8), column: column)
  }

  private func rows(_ name: String, _ bytes: [UInt8], column: String? = nil) throws -> [InputItem] {
    let tree = try TemporaryTree()
    try tree.file(PathBytes(name), bytes)
    return try tree.walk([.manifest(name, column: column)]).items
  }

  private func found(_ name: String, _ text: String, column: String? = nil) throws -> [InputProblem] {
    try problems { try rows(name, text, column: column) }
  }

  // MARK: CSV

  @Test func csvRows() throws {
    let items = try rows(
      "m.csv",
      "\u{feff}path,title,sku\r\na.jpg,\"One, \"\"two\"\"\",1\r\n\r\n"
        + "sub/b.jpg,\"line\r\nbreak\",\r\n\"c,d.jpg\",\"\",\"3\""
    )
    #expect(items.map(\.path.lastComponent) == ["a.jpg", "b.jpg", "c,d.jpg"])
    #expect(items.map(\.relativeDirectory) == ["", "sub", ""])
    #expect(items.map(\.line) == [2, 4, 6])
    #expect(
      items.map(\.columns) == [
        ["title": "One, \"two\"", "sku": "1"], ["title": "line\r\nbreak", "sku": ""], ["title": "", "sku": "3"],
      ])
  }

  @Test(arguments: [
    ("path,file\nx,y\n", "x", ["file": "y"]),
    ("file,path\ny,x\n", "x", ["file": "y"]),
    ("input,file\ni,f\n", "f", ["input": "i", "file": "f"]),
    ("sku,input\n1,i\n", "i", ["sku": "1", "input": "i"]),
    ("Bild,sku\nb,1\n", "b", ["Bild": "b", "sku": "1"]),
    (" path , größe-1 \nx,1\n", "x", ["größe-1": "1"]),
    ("only\nx\n", "x", ["only": "x"]),
  ])
  func pathColumn(text: String, path: String, columns: [String: String]) throws {
    let items = try rows("m.CSV", text)
    #expect(items.map(\.path.lastComponent) == [PathBytes(path)])
    #expect(items.map(\.columns) == [columns])
  }

  @Test func chosenColumn() throws {
    #expect(try rows("m.csv", "path,photo\nx,y\n", column: "photo").map(\.path.lastComponent) == ["y"])
    let problems = try found("m.csv", "path,photo\nx,y\n", column: "phto")
    #expect(problems.map(\.code) == [.manifestColumn])
    #expect(problems.first?.message == "there is no column \"phto\"")
    #expect(problems.first?.hint == "did you mean \"photo\"?")
  }

  @Test func pathsNeedNotBeUTF8() throws {
    let items = try rows("m.csv", Array("path,sku\n".utf8) + [0xe9] + Array(".jpg,1\n".utf8))
    #expect(items.map(\.path.lastComponent.bytes) == [[0xe9] + Array(".jpg".utf8)])
  }

  @Test func headerProblemsAreReportedTogether() throws {
    let problems = try found("m.csv", "path,stem,sku,sku,,a b\nx,1,2,3,4,5\n")
    #expect(problems.allSatisfy { $0.code == .manifestColumn && $0.line == 1 && $0.file == "m.csv" })
    #expect(
      problems.map(\.message) == [
        "a column cannot be called \"stem\"", "the column \"sku\" is there twice", "column 5 has no name",
        "a column cannot be called \"a b\"",
      ])
    #expect(problems.first?.hint == "${item.stem} is the file's own; rename the column")
    for name in ["dir", "stem", "name", "ext", "index", "hash"] {
      #expect(try found("m.csv", "path,\(name)\nx,1\n").map(\.code) == [.manifestColumn])
    }
  }

  @Test func otherDelimitersAreRecognised() throws {
    let problems = try found("m.csv", "path;sku\na.jpg;1\n")
    #expect(problems.map(\.code) == [.manifestColumn])
    #expect(problems.first?.hint == "separate columns by commas")
  }

  @Test func badRowsAreReportedWithTheirLines() throws {
    let problems = try found(
      "m.csv", "path,sku\n\"a\nb\",1\nc\nd,1,2\n,1\n" + String(repeating: "e,1\n", count: 3) + "f\n")
    #expect(problems.map(\.code) == [.manifestRow, .manifestRow, .manifestRow, .manifestRow])
    #expect(problems.map(\.line) == [4, 5, 6, 10])
    #expect(problems[0].message == "1 field where the header has 2")
    #expect(problems[1].message == "3 fields where the header has 2")
    #expect(problems[2].message == "the column \"path\" is empty")
  }

  @Test(arguments: [
    ("path\n\"a", 2, "a quoted field without its closing quote"),
    ("path\na\"b\n", 2, "a quote inside a field"),
    ("path\n\"a\"b\n", 2, "text behind a field's closing quote"),
    ("path\n\"a\" \"b\"\n", 2, "text behind a field's closing quote"),
    ("path\na\rb\r", 2, "a carriage return outside quotes"),
  ])
  func quoting(text: String, line: Int, message: String) throws {
    let problems = try found("m.csv", text)
    #expect(problems.map(\.code) == [.manifestRow])
    #expect(problems.map(\.line) == [line])
    #expect(problems.map(\.message) == [message])
  }

  @Test func anOpenQuoteDoesNotReadTheWholeFile() throws {
    let problems = try found("m.csv", "path\n\"" + String(repeating: "a,b\n", count: 600_000))
    #expect(problems.map(\.line) == [2])
    #expect(problems.first?.message == "a row longer than 1048576 bytes")
  }

  @Test func manyProblemsAreCut() throws {
    #expect(try found("m.csv", "path,sku\n" + String(repeating: "x\n", count: 500)).count == 20)
  }

  // MARK: JSON lines

  @Test func jsonRows() throws {
    let items = try rows(
      "m.jsonl",
      #"{"path": "a.jpg", "sku": 12.50, "ok": true, "none": null, "tags": ["x"], "title": "é\n"}"# + "\r\n\n"
        + #"{"sku": 1e3, "path": "sub/b.jpg"}"#)
    #expect(items.map(\.path.lastComponent) == ["a.jpg", "b.jpg"])
    #expect(items.map(\.line) == [1, 3])
    #expect(items.map(\.relativeDirectory) == ["", "sub"])
    #expect(
      items.map(\.columns) == [["sku": "12.50", "ok": "true", "none": "", "title": "é\n"], ["sku": "1e3"]])
  }

  @Test func jsonProblemsHaveTheManifestsOwnLines() throws {
    let problems = try found(
      "m.ndjson",
      """
      {"file": "a.jpg"}
      {"file": "b.jpg", "file": "c.jpg"}
      [1]
      {"path": "d.jpg"}
      {"file": 7}
      {"file": "e.jpg"
      {"file": "f.jpg", "hash": "x"}
      {"file": ""}
      """)
    #expect(problems.map(\.code) == Array(repeating: .manifestRow, count: 7))
    #expect(problems.map(\.line) == [2, 3, 4, 5, 6, 7, 8])
    #expect(problems[1].message == "an array where an object belongs")
    #expect(problems[2].message == "there is no \"file\"")
    #expect(problems[3].message == "\"file\" is a number, not a string")
  }

  @Test func jsonFirstLineIsWrong() throws {
    #expect(try found("m.jsonl", "{\n}\n").map(\.line) == [1])
    #expect(try found("m.jsonl", #"{"path": "a", "stem": 1}"#).map(\.code) == [.manifestColumn])
    #expect(try found("m.jsonl", #"{}"#).map(\.code) == [.manifestColumn])
  }

  // MARK: Both

  @Test func columns() throws {
    let tree = try TemporaryTree()
    try tree.file("m.csv", "path,sku\nnone.jpg,1\n")
    try tree.file("n.jsonl", #"{"file": "a", "title": "x", "tags": []}"#)
    let walker = InputWalker([.manifest("m.csv"), .manifest("n.jsonl"), .files(["x"])], base: tree.root)
    #expect(try walker.columns() == ["sku", "file", "title"])
    #expect(try InputWalker([.files(["x"])], base: tree.root).columns() == nil)
  }

  @Test func emptyAndMissing() throws {
    #expect(try found("m.csv", "").map(\.code) == [.empty])
    #expect(try found("m.csv", "path,sku\n").map(\.code) == [.empty])
    #expect(try found("m.jsonl", "\n").map(\.code) == [.empty])
    let tree = try TemporaryTree()
    try tree.file("m.csv", "path\n")
    #expect(try tree.walk([.manifest("m.csv", allowEmpty: true)]).names == [])
    #expect(try problems { try tree.walk([.manifest("n.csv")]) }.map(\.code) == [.missing])
  }

  @Test func formatComesFromTheEndingOrTheJob() throws {
    let tree = try TemporaryTree()
    try tree.file("table.txt", "path\na.jpg\n")
    #expect(try problems { try tree.walk([.manifest("table.txt")]) }.map(\.code) == [.manifestFormat])
    #expect(InputWalker.check([.manifest("table.txt")]).map(\.code) == [.manifestFormat])
    #expect(try tree.walk([.manifest("table.txt", format: .csv)]).names == ["a.jpg"])
  }

  @Test func diagnosticPointsIntoTheManifest() throws {
    let problem = try #require(try found("m.csv", "path,sku\nx\n").first)
    let diagnostic = problem.diagnostic(path: "$.input.manifest")
    #expect(diagnostic.code == "manifest-row")
    #expect(diagnostic.file == "m.csv")
    #expect(diagnostic.range?.start.line == 2)
    #expect(diagnostic.path == "$.input.manifest")
  }
}

@Suite struct NameFoldingTests {
  @Test(arguments: [
    ("Photo.JPG", "photo.jpg", true), ("é.jpg", "e\u{301}.jpg", true), ("É.jpg", "e\u{301}.JPG", true),
    ("straße", "STRASSE", true), ("ΟΔΟΣ", "οδος", true), ("a", "b", false), ("e", "é", false),
    ("Å", "\u{212b}", true), ("가", "\u{1100}\u{1161}", true),
  ])
  func keys(left: String, right: String, expected: Bool) {
    #expect((NameFolding.folded(PathBytes(left)) == NameFolding.folded(PathBytes(right))) == expected)
    #expect(
      Set([NameFolding.folded(PathBytes(left)), NameFolding.folded(PathBytes(right))]).count == (expected ? 1 : 2))
  }

  @Test func namesThatAreNotUTF8AreComparedByteByByte() {
    #expect(NameFolding.folded([0x41, 0xff]) != NameFolding.folded([0x61, 0xff]))
    #expect(NameFolding.folded([0x41, 0xff]) == NameFolding.folded([0x41, 0xff]))
    #expect(NameFolding.folded([0xff]) != NameFolding.folded(PathBytes("\u{fffd}")))
  }
}
