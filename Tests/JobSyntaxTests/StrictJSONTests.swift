import Foundation
import JobSyntax
import TestSupport
import Testing

@Suite struct StrictJSONTests {
  // MARK: What is accepted

  @Test func readsEveryKindOfValue() throws {
    let (root, diagnostics) = parse(
      #"{ "a": [1, -2.5e+3, true, false, null], "b": {}, "c": [], "é\n\u00e9\ud83d\ude00\/": "x" }"#)
    #expect(diagnostics.isEmpty)
    let document = try #require(root)
    #expect(
      JSONText(document.value) == [
        "a": [1, -2500, true, false, nil], "b": [:], "c": [], "é\né😀/": "x",
      ])
    #expect(document["a"]?.arrayValue?.count == 5)
    #expect(document["a"]?.arrayValue?[2].boolValue == true)
    #expect(document["nothing"] == nil)
    #expect(document.stringValue == nil)
  }

  @Test(arguments: ["7", "\"\"", "null", " [] ", "\u{FEFF}{}", "// first\n{} // last", "{}\r// x\r", "[1,// one\r\n2]"])
  func accepts(_ text: String) {
    let (root, diagnostics) = parse(text)
    #expect(root != nil)
    #expect(diagnostics.isEmpty)
  }

  @Test func slashesInStringsAreNoComments() {
    #expect(parse(#""https://example.org/*x*/""#).root?.stringValue == "https://example.org/*x*/")
  }

  @Test func keepsScalarsAsTheyAre() {
    #expect(parse("\"a\u{2028}\u{FFFD}\u{10FFFF}\u{7F}e\u{301}\"").root?.stringValue?.unicodeScalars.count == 7)
    #expect(parse(#""\u0000\u001f""#).root?.stringValue == "\u{0}\u{1F}")
  }

  // MARK: Places

  @Test func pathsNameTheWay() throws {
    let root = try #require(parse(#"{"stages": [0, {"to-do": 1, "a b": [[2]], "": 3, "ключ": 4}]}"#).root)
    let stage = try #require(root["stages"]?.arrayValue?[1])
    #expect(root.path == "$")
    #expect(stage.path == "$.stages[1]")
    #expect(stage["to-do"]?.path == "$.stages[1].to-do")
    #expect(stage["a b"]?.arrayValue?[0].arrayValue?[0].path == #"$.stages[1]["a b"][0][0]"#)
    #expect(stage[""]?.path == #"$.stages[1][""]"#)
    #expect(stage["ключ"]?.path == "$.stages[1].ключ")
    var moved = stage
    moved.path = "$.vars.x"
    #expect(moved.path == "$.vars.x")
  }

  @Test func columnsCountScalarsAndLinesEndThreeWays() throws {
    let text = "\u{FEFF}{\r\n\t\"é😀\": 1,\r \"b\": 2,\n\"c\": [\r\r3]}"
    let root = try #require(parse(text).root)
    let members = try #require(root.objectValue)
    #expect(root.range.start == SourcePosition(offset: 3, line: 1, column: 1))
    #expect(members[0].keyRange.start == SourcePosition(offset: 7, line: 2, column: 2))
    // Quote, é (2 bytes), the face (4 bytes), quote, colon, blank.
    #expect(members[0].value.range.start == SourcePosition(offset: 17, line: 2, column: 8))
    #expect(members[1].keyRange.start == SourcePosition(offset: 21, line: 3, column: 2))
    #expect(members[2].keyRange.start == SourcePosition(offset: 29, line: 4, column: 1))
    #expect(members[2].value.arrayValue?[0].range.start == SourcePosition(offset: 37, line: 6, column: 1))
    #expect(root.range.end == SourcePosition(offset: 40, line: 6, column: 4))
  }

  @Test func linesOfAPartOfAFileKeepTheirNumber() {
    let file = SourceFile(name: "list.jsonl", text: Array("{\"a\": tru}".utf8), firstLine: 41)
    let found = StrictJSON.parse(file).diagnostics
    #expect(found.map(\.range?.start) == [SourcePosition(offset: 6, line: 41, column: 7)])
    #expect(DiagnosticRenderer().text(found, sources: [file], color: false).contains("41 | {\"a\": tru}"))
  }

  // MARK: Findings that leave a value

  @Test func everyDuplicateIsReportedWithTheFirst() throws {
    let found = expectFindings(
      "{ \"a\": 1,\n  \"b\": { \"x\": 1, ⟦\"x\"⟧: 2 },\n  ⟦\"a\"⟧: 3, ⟦\"\\u0061\"⟧: 4 }", .duplicateKey, .duplicateKey,
      .duplicateKey)
    #expect(found.map(\.path) == ["$.b.x", "$.a", "$.a"])
    #expect(found[2].message == #"expected each key once in the document, found "a" again"#)
    #expect(found[2].hint == #"the first "a" is at line 1, column 3; keep one of them"#)
    let root = try #require(parse(#"{"a": 1, "a": 2}"#).root)
    #expect(root["a"]?.numberValue?.integer == 1)
    #expect(root.objectValue?.count == 2)
  }

  @Test func numbersThatDoNotFitAreAllReported() throws {
    expectFindings(
      """
      [⟦1e400⟧, ⟦-1E+400⟧, ⟦1e-400⟧, ⟦-0⟧, ⟦-0.0⟧, ⟦-0e7⟧, ⟦9007199254740993⟧, ⟦-123456789012345678901⟧,
      0, 0e400, 5e-324, 1.7976931348623157e308, 9007199254740992, -9007199254740992, 1e22, 0.1]
      """, .numberNotRepresentable, .numberNotRepresentable, .numberNotRepresentable, .numberNegativeZero,
      .numberNegativeZero, .numberNegativeZero, .numberNotExact, .numberNotExact)
  }

  @Test func findingsAreCountedWhenThereAreTooMany() {
    let text = "[" + Array(repeating: "-0", count: 1_500).joined(separator: ",") + "]"
    let (root, found) = parse(text)
    #expect(root != nil)
    #expect(found.count == 1_001)
    #expect(found.last?.code == StrictJSON.Code.moreFindings.rawValue)
    #expect(found.last?.message.contains("500") == true)
  }

  @Test func findingsBeforeBrokenSyntaxAreKept() {
    expectFindings(#"{ "a": ⟦-0⟧, "b": ⟦nope⟧ }"#, .numberNegativeZero, .unknownLiteral)
  }

  // MARK: Findings that end the reading: the place, the code, and what message and hint must say

  struct Slip: Sendable, CustomTestStringConvertible {
    let source: String
    let code: StrictJSON.Code
    let message: String
    let hint: String
    init(_ source: String, _ code: StrictJSON.Code, _ message: String, _ hint: String = "") {
      self.source = source
      self.code = code
      self.message = message
      self.hint = hint
    }
    var testDescription: String { source }
  }

  static let slips: [Slip] = [
    // Commas.
    Slip("{ \"a\": 1⟦,⟧ }", .trailingComma, "expected another key after ',', found '}'", "remove this comma"),
    Slip("[1⟦,⟧\n // end\n]", .trailingComma, "expected another value after ',', found ']'", "remove this comma"),
    Slip("{ \"a\": 1‸\n \"b\": 2 }", .missingComma, #"',' or '}' after "a", found the string "b""#, "put a comma"),
    Slip("[1‸ 2]", .missingComma, "',' or ']' after $[0], found the number 2", "put a comma"),
    Slip("[[]‸ {}]", .missingComma, "found '{'", "put a comma"),
    Slip("{ \"a\": \"he said \"⟦hi⟧\" now\" }", .missingComma, "found the word hi", #"written \""#),
    Slip("{ \"a\": 1,⟦,⟧ \"b\": 2 }", .unexpectedCharacter, "a key in double quotes in the document", "extra comma"),
    Slip("[1,⟦,⟧2]", .missingValue, "expected a value for $[1], found ','", "extra comma"),
    Slip("{⟦,⟧}", .unexpectedCharacter, "a key in double quotes or '}'", "extra comma"),
    Slip("[1⟦;⟧ 2]", .unexpectedCharacter, "found ';'", "write ','"),
    // Keys and values.
    Slip("{ ⟦onError⟧: 1 }", .unquotedKey, "found the word onError", #"write "onError""#),
    Slip("{ ⟦größe⟧: 1 }", .unquotedKey, "found the word größe", #"write "größe""#),
    Slip("{ ⟦'a'⟧: 1 }", .singleQuotes, "a key in double quotes", #"write "a""#),
    Slip("{ \"a\": ⟦'x y'⟧ }", .singleQuotes, #"expected a value for "a", found 'x y'"#, #"write "x y""#),
    Slip("{ ⟦1⟧: 2 }", .unexpectedCharacter, "found the number 1"),
    Slip("{ \"a\" ⟦=⟧ 1 }", .missingColon, #"expected ':' after the key "a", found '='"#, "not '='"),
    Slip("{ \"a\" ⟦1⟧ }", .missingColon, "found the number 1"),
    Slip("{ \"a\"⟦}⟧", .missingColon, "found '}'", "needs a value"),
    Slip("{ \"a\": ⟦}⟧", .missingValue, #"expected a value for "a", found '}'"#, "null"),
    Slip("{ \"a\":⟦:⟧ 1 }", .missingValue, "found ':'", "extra ':'"),
    Slip("[\"a\"⟦:⟧ 1]", .unexpectedCharacter, "found ':'", "in an object"),
    Slip("{ \"a\": ⟦True⟧ }", .unknownLiteral, #"expected a value for "a", found the word True"#, "write true"),
    Slip("[⟦ture⟧]", .unknownLiteral, "found the word ture", "write true"),
    Slip("[⟦None⟧]", .unknownLiteral, "found the word None", "write null"),
    Slip("[⟦NaN⟧]", .unknownLiteral, "found the word NaN", "no such number"),
    Slip("[⟦-Infinity⟧]", .unknownLiteral, "found -Infinity", "no such number"),
    Slip("[⟦inside⟧]", .unknownLiteral, "found the word inside", #""inside""#),
    Slip("{ \"a\": ⟦$⟧{vars.x} }", .unexpectedCharacter, "found '$'", "inside a string"),
    Slip("{ \"a\": ⟦#dfe9f3⟧ }", .unexpectedCharacter, "found #dfe9f3", ##""#dfe9f3""##),
    Slip("{ \"a\": ⟦“⟧x” }", .unexpectedCharacter, "found '“' (U+201C)", "straight double quote"),
    Slip("{⟦\u{A0}⟧\"a\": 1 }", .unexpectedCharacter, "invisible character (U+00A0)", "ordinary space"),
    Slip("{ ⟦\u{FEFF}⟧\"a\": 1 }", .unexpectedCharacter, "invisible character (U+FEFF)", "byte order mark"),
    Slip("⟦version⟧: 1", .unknownLiteral, "expected a JSON document, found the word version", "begins with '{'"),
    // Numbers.
    Slip("[⟦012⟧]", .invalidNumber, "expected a number for $[0], found '012'", "write 12"),
    Slip("[⟦-01⟧]", .invalidNumber, "found '-01'", "write -1"),
    Slip("[⟦+1⟧]", .invalidNumber, "found '+1'", "write 1"),
    Slip("[⟦.5⟧]", .invalidNumber, "found '.5'", "write 0.5"),
    Slip("[⟦5.⟧]", .invalidNumber, "found '5.'", "write 5"),
    Slip("[⟦0x1F⟧]", .invalidNumber, "found '0x1F'", "31"),
    Slip("[⟦1_000⟧]", .invalidNumber, "found '1_000'", "write 1000"),
    Slip("[⟦1e⟧]", .invalidNumber, "found '1e'", "exponent"),
    Slip("[⟦-⟧]", .invalidNumber, "found '-'", "sign"),
    Slip("[⟦50%⟧]", .invalidNumber, "found '50%'", #""50%""#),
    Slip("[⟦2026-01-31⟧]", .invalidNumber, "found '2026-01-31'", #""2026-01-31""#),
    // Strings.
    Slip("{ \"a\": ⟦\"x⟧\n}", .unclosedString, "found the end of the line", "close the string"),
    Slip("[⟦\"x⟧", .unclosedString, "found the end of the file", "close the string"),
    Slip("[⟦\"x\\\"⟧", .unclosedString, "found the end of the file"),
    Slip("[⟦\"x\\⟧", .unclosedString, "found the end of the file"),
    Slip("[\"a⟦\t⟧b\"]", .controlCharacter, "found a tab", #"\t"#),
    Slip("[\"é⟦\u{1}⟧b\"]", .controlCharacter, "U+0001", #"\u0001"#),
    Slip("[\"C:⟦\\d⟧ir\"]", .invalidEscape, #"found '\d'"#, #"written \\"#),
    Slip("[\"⟦\\é⟧\"]", .invalidEscape, #"found '\é'"#),
    Slip("[\"⟦\\u12⟧G4\"]", .invalidEscape, #"four hexadecimal digits after \u, found '\u12'"#),
    Slip("[\"⟦\\ud83d⟧ x\"]", .loneSurrogate, #"'\ud83d' alone"#),
    Slip("[\"⟦\\ud83d⟧\\u0041\"]", .loneSurrogate, #"'\ud83d' alone"#),
    Slip("[\"⟦\\ude00⟧\"]", .loneSurrogate, #"'\ude00' alone"#),
    // Comments.
    Slip("{ ⟦/*⟧ x */ }", .blockComment, "found '/*'", "//"),
    Slip("⟦#⟧ x\n{}", .hashComment, "found '#'", "//"),
    Slip("[⟦/⟧]", .unexpectedCharacter, "found '/'"),
    // Brackets.
    Slip(
      "{\n  \"a\": {\n    \"b\": 1‸\n\n", .unclosedObject, #"',' or '}' after "b", found the end"#, "line 2, column 8"),
    Slip("{ \"a\": [1,‸", .unclosedArray, "expected a value, found the end of the file", "line 1, column 8"),
    Slip("{‸", .unclosedObject, "expected a key or '}', found the end of the file", "line 1, column 1"),
    Slip("{ \"a\"‸", .unclosedObject, #"expected ':' after the key "a""#, "line 1, column 1"),
    Slip("{ \"a\":‸ // x", .unclosedObject, #"expected a value for "a""#, "line 1, column 1"),
    Slip(
      "{ \"s\": [ { \"a\": 1 ⟦]⟧ }", .mismatchedBracket, #"',' or '}' after "a", found ']'"#, "'{' at line 1, column 10"
    ),
    Slip("[1⟦}⟧", .mismatchedBracket, "',' or ']' after $[0], found '}'", "'[' at line 1, column 1"),
    Slip("[⟦}⟧", .mismatchedBracket, "found '}'", "'[' at line 1, column 1"),
    Slip("{⟦]⟧", .mismatchedBracket, "found ']'", "'{' at line 1, column 1"),
    Slip("{}⟦}⟧", .trailingContent, "found '}'", "more brackets are closed"),
    Slip("{}\n⟦{⟧}", .trailingContent, "found '{'", "one JSON document"),
    Slip("⟦]⟧", .missingValue, "expected a JSON document, found ']'"),
    // No document.
    Slip("‸", .emptyDocument, "found an empty file"),
    Slip("\u{FEFF}‸", .emptyDocument, "found no value"),
    Slip("// nothing\n‸", .emptyDocument, "found no value"),
  ]

  @Test(arguments: slips) func slipIsFoundInItsPlace(_ slip: Slip) throws {
    let found = expectFindings(slip.source, slip.code)
    let diagnostic = try #require(found.last)
    #expect(diagnostic.message.contains(slip.message), "\(diagnostic.message)")
    #expect(diagnostic.message.hasPrefix("expected "))
    #expect(slip.hint.isEmpty || diagnostic.hint?.contains(slip.hint) == true, "\(diagnostic.hint ?? "no hint")")
  }

  @Test func everyCodeIsTested() {
    let elsewhere: Set<StrictJSON.Code> = [
      .duplicateKey, .numberNotRepresentable, .numberNotExact, .numberNegativeZero, .moreFindings, .fileTooLarge,
      .invalidUTF8, .notText, .tooDeep,
    ]
    #expect(Set(StrictJSONTests.slips.map(\.code)).union(elsewhere) == Set(StrictJSON.Code.allCases))
  }

  // MARK: Bytes that are no text

  @Test(
    arguments: [
      ([0xE9], 0), ([0x80], 0), ([0xC0, 0x80], 0), ([0xC3], 0), ([0xE0, 0x9F, 0x80], 0), ([0xED, 0xA0, 0x80], 0),
      ([0xF0, 0x8F, 0x80, 0x80], 0), ([0xF4, 0x90, 0x80, 0x80], 0), ([0xF5, 0x80, 0x80, 0x80], 0), ([0xE2, 0x82], 0),
      ([0xC3, 0xA9, 0xFF], 2), ([0xF0, 0x9F, 0x98, 0x80, 0xE2, 0x28], 4),
    ] as [([UInt8], Int)])
  func invalidUTF8IsRefusedWhereItBegins(_ bytes: [UInt8], _ good: Int) {
    let text = Array("{\r\n \"".utf8) + bytes + Array("\": 1}".utf8)
    let (root, found) = StrictJSON.parse(SourceFile(name: "job.json", text: text))
    #expect(root == nil)
    #expect(found.map(\.code) == [StrictJSON.Code.invalidUTF8.rawValue])
    let column = 3 + (good == 0 ? 0 : 1)
    #expect(found.first?.range?.start == SourcePosition(offset: 5 + good, line: 2, column: column))
  }

  @Test func otherEncodingsAndPicturesAreNamed() {
    func message(_ text: [UInt8]) -> String? {
      StrictJSON.parse(SourceFile(name: "job.json", text: text)).diagnostics.first?.message
    }
    #expect(message([0xFF, 0xFE, 0x7B, 0, 0x7D, 0])?.contains("UTF-16") == true)
    #expect(message([0x7B, 0, 0x7D, 0])?.contains("UTF-16") == true)
    #expect(message([0, 0x7B, 0, 0x7D])?.contains("UTF-16") == true)
    #expect(message([0xFF, 0xD8, 0xFF, 0xE0, 0, 16])?.contains("binary file") == true)
    #expect(message(Array("[1, \u{0}]".utf8))?.contains("control character (U+0000)") == true)
  }

  // MARK: Size and depth

  @Test func depthIsBoundedWithoutRecursion() throws {
    let deep = String(repeating: "[", count: 100_000) + String(repeating: "]", count: 100_000)
    let found = parse(deep).diagnostics
    #expect(found.map(\.code) == [StrictJSON.Code.tooDeep.rawValue])
    #expect(found.first?.range?.start.column == 65)
    let objects = String(repeating: "{\"a\":", count: 100_000)
    #expect(parse(objects).diagnostics.map(\.code) == [StrictJSON.Code.tooDeep.rawValue])
    let edge = String(repeating: "[", count: 64) + String(repeating: "]", count: 64)
    #expect(parse(edge).root != nil)
    #expect(parse(edge, maxDepth: 63).root == nil)
    let most = String(repeating: "[", count: 512) + String(repeating: "]", count: 512)
    #expect(parse(most, maxDepth: .max).root != nil)
    #expect(parse("[\(most)]", maxDepth: .max).root == nil)
  }

  @Test func tooLargeAFileIsNotRead() {
    let file = SourceFile(name: "job.json", text: Array(repeating: 0x20, count: 101))
    let found = StrictJSON.parse(file, maxBytes: 100).diagnostics
    #expect(found.map(\.code) == [StrictJSON.Code.fileTooLarge.rawValue])
    #expect(found.first?.message == "expected a file of at most 100 bytes, found 101 bytes")
  }

  // MARK: Properties

  static let seeds: [String] = [
    #"{"version":1,"vars":{"size":1600,"é😀":-2.5e-3},"stages":[{"stage":"r","width":"${vars.size}"},[],{}],"x":null}"#,
    "// c\r\n{ \"a\" : [ true , false , null ] ,\r\t\"b\\u00e9\\ud83d\\ude00\\n\" : \"\\\\\\\"/\" }\n",
    "[0, -1, 2.5, 1e5, 1E-7, 123456789012345, [[[\"deep\"]]], {\"k\":{\"k\":{\"k\":1}}}]",
  ]

  /// Any bytes give a value or an error, never both missing, and no crash; what is accepted, another reader accepts
  /// too; every place lies in the text, and every value reads the same when its own range is read alone.
  @Test(arguments: 0..<8) func mutatedTextNeverCrashes(_ seed: UInt64) throws {
    var random = SeededGenerator(state: seed)
    let alphabet = Array("{}[]\",:'/\\*#-+.0123456789eEtrufalsn \t\r\n\u{0}é😀".utf8) + [0xFF, 0x80, 0xC3]
    for _ in 0..<400 {
      var text = Array(StrictJSONTests.seeds.randomElement(using: &random)?.utf8 ?? "".utf8)
      for _ in 0..<Int.random(in: 1...4, using: &random) where !text.isEmpty {
        let at = Int.random(in: 0..<text.count, using: &random)
        switch Int.random(in: 0..<5, using: &random) {
        case 0: text[at] ^= 1 << UInt8.random(in: 0..<8, using: &random)
        case 1: text.remove(at: at)
        case 2: text.insert(alphabet.randomElement(using: &random) ?? 0, at: at)
        case 3: text.removeSubrange(at..<min(text.count, at + Int.random(in: 1...20, using: &random)))
        default:
          let other = Array(StrictJSONTests.seeds.randomElement(using: &random)?.utf8 ?? "".utf8)
          text.insert(contentsOf: other.prefix(Int.random(in: 0...other.count, using: &random)), at: at)
        }
      }
      let file = SourceFile(name: "mutant.json", text: text)
      let (root, found) = StrictJSON.parse(file)
      try #require(root != nil || found.hasErrors)
      for diagnostic in found {
        let range = try #require(diagnostic.range)
        try #require(range.start <= range.end && range.end.offset <= text.count)
        try #require(range.start == file.position(at: range.start.offset))
        try #require(range.end == file.position(at: range.end.offset))
      }
      _ = DiagnosticRenderer(width: 40).text(found, sources: [file], color: false)
      guard let root else { continue }
      try expectRangesHold(root, text)
      if found.isEmpty, !text.contains(UInt8(ascii: "/")) {
        _ = try JSONSerialization.jsonObject(with: Data(text), options: .fragmentsAllowed)
      }
    }
  }

  private func expectRangesHold(_ node: JSONNode, _ text: [UInt8]) throws {
    let own = Array(text[node.range.start.offset..<node.range.end.offset])
    let again = try #require(StrictJSON.parse(SourceFile(name: "part", text: own)).root)
    try #require(JSONText(again.value) == JSONText(node.value))
    for element in node.arrayValue ?? [] { try expectRangesHold(element, text) }
    for member in node.objectValue ?? [] { try expectRangesHold(member.value, text) }
  }
}
