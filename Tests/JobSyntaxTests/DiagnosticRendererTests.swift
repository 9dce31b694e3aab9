import JobSyntax
import TestSupport
import Testing

@Suite struct DiagnosticRendererTests {
  private func render(_ marked: String, width: Int = 100, hint: String? = nil) -> String {
    let source = MarkedSource(marked)
    let diagnostics = source.ranges.map {
      Diagnostic(code: "some-code", message: "expected x, found y", file: "job.json", range: $0, hint: hint)
    }
    return DiagnosticRenderer(width: width).text(diagnostics, sources: [source.file], color: false)
  }

  @Test func showsPlaceLineMarksAndHint() {
    #expect(
      render("{\n  ⟦\"widht\"⟧: 800\n}", hint: "did you mean \"width\"?") == """
        job.json:2:3: error: expected x, found y [some-code]
          2 |   "widht": 800
            |   ^~~~~~~
          hint: did you mean "width"?

        """)
  }

  @Test func emptyRangesAndEndsOfLinesHaveACaret() {
    #expect(render("[1‸ 2]").hasSuffix("  1 | [1 2]\n    |   ^\n"))
    #expect(render("[1, 2‸\n]").hasSuffix("  1 | [1, 2\n    |      ^\n"))
    #expect(render("[⟦{\n  1⟧\n]").hasSuffix("  1 | [{\n    |  ^\n"))
  }

  @Test func tabsAndWideCharactersStayAligned() {
    #expect(render("\t[⟦1⟧]").hasSuffix("  1 |     [1]\n    |      ^\n"))
    #expect(render("a\tb⟦c\td⟧").hasSuffix("  1 | a   bc  d\n    |      ^~~~\n"))
    #expect(render("\"日本\": ⟦x⟧").hasSuffix("  1 | \"日本\": x\n    |         ^\n"))
    #expect(render("\"👩‍👩‍👧🇩🇪\": ⟦日⟧").hasSuffix("  1 | \"👩‍👩‍👧🇩🇪\": 日\n    |         ^~\n"))
    #expect(render("\"e\u{301}x\": ⟦y⟧").hasSuffix("  1 | \"e\u{301}x\": y\n    |       ^\n"))
  }

  @Test func byteOrderMarkIsNotPartOfTheLine() {
    #expect(render("\u{FEFF}⟦x⟧") == "job.json:1:1: error: expected x, found y [some-code]\n  1 | x\n    | ^\n")
  }

  @Test func nothingCanDriveTheTerminal() {
    let text = render("\"\u{1B}[31m\u{202E}\u{7F}\u{85}\" ⟦\u{0}⟧")
    #expect(text.hasSuffix("  1 | \"␛[31m<U+202E>␡<U+0085>\" ␀\n    |                          ^\n"))
    let message = Diagnostic(code: "c", message: "a\u{1B}]0;x\u{7}\nb", file: "x\ry", hint: "\u{9B}")
    let heading = DiagnosticRenderer().text([message], sources: [], color: false)
    #expect(heading == "x␍y: error: a␛]0;x␇␊b [c]\n  hint: <U+009B>\n")
  }

  @Test func bytesThatAreNotUTF8AreShown() {
    let file = SourceFile(name: "job.json", text: [0x22, 0xC3, 0xA9, 0xE9, 0x22, 0x78])
    let found = StrictJSON.parse(file).diagnostics
    let text = DiagnosticRenderer().text(found, sources: [file], color: false)
    #expect(text.contains("  1 | \"é<E9>\"x\n    |   ^~~~\n"), "\(text)")
  }

  @Test func longLinesAreCutAroundThePlace() throws {
    for before in [0, 5, 60, 5_000, 100_000] {
      for after in [0, 5, 60, 100_000] {
        let marked = String(repeating: "é", count: before) + "⟦X⟧" + String(repeating: "b", count: after)
        let lines = render(marked, width: 40).split(separator: "\n")
        let shown = try #require(lines.dropFirst().first).dropFirst("  1 | ".count)
        let marks = try #require(lines.dropFirst(2).first).dropFirst("    | ".count)
        #expect(shown.count <= 40)
        #expect(shown.hasPrefix("…") == (before + 1 + after > 40 && before > 15))
        let caret = try #require(marks.firstIndex(of: "^"))
        #expect(Array(shown)[marks.distance(from: marks.startIndex, to: caret)] == "X")
      }
    }
  }

  @Test func aLineThatJustFitsIsShownWhole() {
    let line = String(repeating: "a", count: 39)
    #expect(render("⟦x⟧" + line, width: 40).contains("| x\(line)\n"))
    #expect(render("⟦x⟧a" + line, width: 40).contains("…\n"))
  }

  @Test func placesThatDoNotExistDoNotCrash() {
    let far = SourcePosition(offset: 999, line: 40, column: 7)
    let start = SourcePosition(offset: 0, line: 1, column: 1)
    let file = SourceFile(name: "a", text: [0x31])
    let wild = [
      Diagnostic(code: "c", message: "m", file: "a", range: SourceRange(start: far, end: far)),
      Diagnostic(code: "c", message: "m", file: "a", range: SourceRange(start: start, end: far)),
      Diagnostic(severity: .warning, code: "c", message: "m", file: "b", range: SourceRange(start: start, end: start)),
      Diagnostic(severity: .note, code: "c", message: "m"),
    ]
    #expect(
      DiagnosticRenderer().text(wild, sources: [file], color: false) == """
        a:40:7: error: m [c]
        a:1:1: error: m [c]
          1 | 1
            | ^
        b:1:1: warning: m [c]
        note: m [c]

        """)
  }

  @Test func colourIsWrittenOnlyWhenAsked() {
    let source = MarkedSource("⟦x⟧")
    let found = [Diagnostic(code: "c", message: "m", file: "job.json", range: source.ranges[0], hint: "h")]
    let plain = DiagnosticRenderer().text(found, sources: [source.file], color: false)
    let colored = DiagnosticRenderer().text(found, sources: [source.file], color: true)
    #expect(!plain.contains("\u{1B}"))
    #expect(colored.contains("\u{1B}[1;31merror:\u{1B}[0m"))
    #expect(colored.replacing(#/\u{1B}\[[0-9;]*m/#, with: "") == plain)
  }

  @Test func jsonHasEveryKeyAlways() throws {
    let found = parse("{ \"a\": 1,\n \"a\": 2 }").diagnostics + [Diagnostic(severity: .note, code: "n", message: "m")]
    #expect(
      DiagnosticRenderer().json(found) == #"""
        [
          {
            "severity": "error",
            "code": "duplicate-key",
            "message": "expected each key once in the document, found \"a\" again",
            "file": "job.json",
            "line": 2,
            "column": 2,
            "endLine": 2,
            "endColumn": 5,
            "path": "$.a",
            "expected": "each key once",
            "found": "\"a\" again",
            "hint": "the first \"a\" is at line 1, column 3; keep one of them"
          },
          {
            "severity": "note",
            "code": "n",
            "message": "m",
            "file": null,
            "line": null,
            "column": null,
            "endLine": null,
            "endColumn": null,
            "path": null,
            "expected": null,
            "found": null,
            "hint": null
          }
        ]

        """#)
    #expect(DiagnosticRenderer().json([]) == "[]\n")
  }

  @Test func sortsByPlace() {
    let ranges = MarkedSource("⟦a⟧⟦b⟧\n⟦c⟧").ranges
    let found = [2, 0, 1].map { Diagnostic(code: "\($0)", message: "", file: "f", range: ranges[$0]) }
    let all = found + [Diagnostic(code: "none", message: "", file: "f"), found[1]]
    #expect(all.sortedByPlace().map(\.code) == ["none", "0", "0", "1", "2"])
    #expect(all.hasErrors)
    #expect(![Diagnostic(severity: .warning, code: "", message: "")].hasErrors)
  }
}

@Suite struct SourceFileTests {
  @Test func linesEndThreeWays() {
    let file = SourceFile(name: "f", text: Array("\u{FEFF}a\r\nb\rc\n\nlast".utf8))
    #expect((0...7).map(file.line) == ["", "a", "b", "c", "", "last", "", ""])
    #expect(SourceFile(name: "f", text: []).line(1) == "")
    #expect(SourceFile(name: "f", text: Array("x\ny".utf8), firstLine: 10).line(11) == "y")
  }

  @Test(arguments: [
    (#""ab⟦${x}⟧c""#, "${x}"), (#""é😀⟦${x}⟧""#, "${x}"), (#""\u00e9\ud83d\ude00\n\"⟦${x}⟧""#, "${x}"),
    (#""\u20ac⟦\u0024{x}⟧""#, "${x}"), (#""⟦all⟧""#, "all"), (#""a‸b""#, ""),
  ])
  func partsOfStringsHaveTheirPlace(_ literal: String, _ part: String) throws {
    let source = MarkedSource("[\n  " + literal + "]")
    let node = try #require(StrictJSON.parse(source.file).root?.arrayValue?.first)
    let string = try #require(node.stringValue)
    let prefix = part.isEmpty ? 1 : String(string.prefix { $0 != part.first }).utf8.count
    let range = prefix..<prefix + part.utf8.count
    #expect(source.file.range(ofUTF8: range, inString: node.range) == source.ranges[0])
  }

  @Test func partsBeyondTheStringHaveNone() throws {
    let file = SourceFile(name: "f", text: Array(#"["ab", 1]"#.utf8))
    let root = try #require(StrictJSON.parse(file).root?.arrayValue)
    #expect(file.range(ofUTF8: 0..<3, inString: root[0].range) == nil)
    #expect(file.range(ofUTF8: 0..<1, inString: root[1].range) == nil)
    #expect(file.range(ofUTF8: 2..<2, inString: root[0].range) != nil)
  }
}
