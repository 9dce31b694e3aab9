import JobSyntax
import PipelineKit
import Testing

@Suite struct FieldConditionTests {
  private static let shape = ObjectShape([
    Field<Bool>.boolean("tile", default: false, help: "a switch"),
    Field<Int>.integer("count", in: 1...9, default: 3, help: "a number"),
    Field<String>.text("mode", default: "plain", help: "a text"),
    Field<Int?>(
      "quality", type: .oneOf([.integer(1...100), .choice([Choice("auto", "by itself")])]), absent: .some(nil),
      help: "a number or a word"
    ) { node, _ in node.arrayValue.map { _ in 0 } },
    Field<Int?>.integer("gap", in: 1...9, when: FieldCondition("tile", in: ["true"]), help: "with the switch"),
    Field<Int?>.integer("edge", in: 1...9, when: FieldCondition("count", in: ["1", "2"]), help: "with a number"),
    Field<Int?>.integer("tone", in: 1...9, when: FieldCondition("mode", in: ["fine"]), help: "with a text"),
    Field<Int?>.integer("likeness", in: 1...9, when: FieldCondition("quality", in: ["auto"]), help: "with a word"),
  ])

  private func findings(_ text: String) throws -> [Diagnostic] {
    let node = try #require(StrictJSON.parse(SourceFile(name: "test", text: Array(text.utf8))).root)
    var checker = FieldChecker(file: "test", columns: .none)
    checker.check(node, against: Self.shape, owner: "the test")
    return checker.diagnostics
  }

  @Test(
    "a field that does not go with another's value is told, with that value as JSON has it",
    arguments: [
      (#"{ "tile": false, "gap": 1 }"#, #""tile": false"#), (#"{ "gap": 1 }"#, #""tile": false"#),
      (#"{ "count": 4, "edge": 1 }"#, #""count": 4"#), (#"{ "edge": 1 }"#, #""count": 3"#),
      (#"{ "mode": "a\"b", "tone": 1 }"#, #""mode": "a\"b""#),
      (#"{ "quality": 80, "likeness": 1 }"#, #""quality": 80"#),
    ])
  func told(_ text: String, _ value: String) throws {
    let found = try findings(text)
    #expect(found.map(\.code) == ["not-applicable"])
    #expect(found.first?.message.hasSuffix("has no meaning with \(value)") == true, "\(found.first?.message ?? "")")
  }

  @Test(
    "what goes together is not told, nor twice what is wrong itself",
    arguments: [
      (#"{ "tile": true, "gap": 1 }"#, []), (#"{ "count": 2, "edge": 1 }"#, []), (#"{ "likeness": 1 }"#, []),
      (#"{ "quality": "auto", "likeness": 1 }"#, []), (#"{ "quality": 900, "likeness": 1 }"#, ["out-of-range"]),
      (#"{ "quality": "best", "likeness": 1 }"#, ["unknown-value"]), (#"{ "tile": 3, "gap": 1 }"#, ["wrong-type"]),
    ] as [(String, [String])])
  func notTold(_ text: String, _ codes: [String]) throws {
    #expect(try findings(text).map(\.code) == codes)
  }
}
