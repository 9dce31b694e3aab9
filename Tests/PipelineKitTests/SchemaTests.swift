import JobSyntax
import PipelineKit
import TestSupport
import Testing

/// The JSON Schema takes what the linter takes, where variables stand for values.
@Suite struct SchemaTests {
  private enum Way: String, FieldChoice {
    case here, there
    var help: String { "somewhere" }
  }

  private static let shape = ObjectShape([
    Field<Bool>.boolean("flag", default: false, help: "a flag"),
    Field<Int>.integer("count", in: 1...9, default: 1, help: "a count"),
    Field<Double>.number("share", in: 0...1, default: 0, help: "a share"),
    Field<String?>.text("text", help: "a text"),
    Field<Way>.choice("way", default: .here, help: "a way"),
    Field<[String]>.texts("names", count: 1...3, default: [], help: "names"),
    Field<Settings?>.optionalObject(
      "inner", ObjectShape([Field<Int>.integer("depth", in: 0...5, default: 0, help: "a depth")]), help: "an object"),
    Field<Int?>(
      "either", type: .oneOf([.integer(0...9), .choice([Choice("none")])]), absent: .some(nil), help: "either"
    ) { _, _ in .some(nil) },
    Field<Int?>("steps", type: .stages, absent: .some(nil), help: "stages") { _, _ in .some(nil) },
    Field<Int?>("anything", type: .any, absent: .some(nil), help: "anything") { _, _ in .some(nil) },
  ])

  private static func parse(_ text: String) throws -> JSONNode {
    let (root, problems) = StrictJSON.parse(SourceFile(name: "test", text: Array(text.utf8)))
    #expect(problems.isEmpty)
    return try #require(root)
  }

  /// A validator of the few keywords that the schema is made of.
  private static func accepts(_ schema: JSONNode, _ value: JSONNode) -> Bool {
    for member in schema.objectValue ?? [] {
      let rule = member.value
      let holds: Bool
      switch member.key {
      case "anyOf": holds = rule.arrayValue?.contains { accepts($0, value) } ?? false
      case "oneOf": holds = rule.arrayValue?.count { accepts($0, value) } == 1
      case "type":
        holds =
          switch (rule.stringValue, value.value) {
          case ("boolean", .bool), ("number", .number), ("string", .string), ("array", .array), ("object", .object):
            true
          case ("integer", .number(let number)): number.integer != nil
          default: false
          }
      case "enum": holds = rule.arrayValue?.contains { $0.stringValue == value.stringValue } ?? false
      case "minimum": holds = (value.numberValue?.double ?? .infinity) >= (rule.numberValue?.double ?? .infinity)
      case "maximum": holds = (value.numberValue?.double ?? -.infinity) <= (rule.numberValue?.double ?? -.infinity)
      case "pattern":
        guard let pattern = rule.stringValue.flatMap({ try? Regex($0) }), let text = value.stringValue else {
          return false
        }
        holds = text.firstMatch(of: pattern) != nil
      case "minItems": holds = (value.arrayValue?.count ?? 0) >= (rule.numberValue?.integer ?? .max)
      case "maxItems": holds = (value.arrayValue?.count ?? .max) <= (rule.numberValue?.integer ?? -1)
      case "items": holds = value.arrayValue?.allSatisfy { accepts(rule, $0) } ?? false
      case "properties":
        holds =
          value.objectValue?.allSatisfy { member in rule[member.key].map { accepts($0, member.value) } ?? false }
          ?? false
      case "required": holds = rule.arrayValue?.allSatisfy { value[$0.stringValue ?? ""] != nil } ?? false
      case "additionalProperties", "description", "markdownDescription", "enumDescriptions", "default": holds = true
      default:
        Issue.record("the schema uses \"\(member.key)\", which this test does not know")
        holds = false
      }
      if !holds { return false }
    }
    return true
  }

  @Test(
    arguments: [
      ("flag", "true", true), ("flag", #""${vars.x}""#, true), ("flag", #""${env.X}""#, false),
      ("count", "3", true), ("count", "10", false), ("count", #""${vars.x}""#, true), ("count", #""${env.X}""#, false),
      ("count", #""1${vars.x}""#, false), ("share", #""${vars.x}""#, true), ("share", #""${env.X}""#, false),
      ("text", #""${env.X}-${vars.x}""#, true), ("text", "1", false),
      ("way", #""there""#, true), ("way", #""nowhere""#, false), ("way", #""${vars.x}""#, true),
      ("way", #""${env.X}""#, true),
      ("names", #"["a", "${env.X}"]"#, true), ("names", #""${vars.x}""#, true), ("names", #""${env.X}""#, false),
      ("names", "[]", false), ("names", #""a""#, false),
      ("inner", #"{ "depth": 2 }"#, true), ("inner", #"{ "depth": "${vars.x}" }"#, true),
      ("inner", #"{ "depth": "${env.X}" }"#, false), ("inner", #""${vars.x}""#, true), ("inner", #""${env.X}""#, false),
      ("inner", #""-${vars.x}""#, false),
      ("either", "4", true), ("either", #""none""#, true), ("either", #""${vars.x}""#, true),
      ("either", #""some""#, false),
      ("steps", #"[{}, "${vars.x}"]"#, true), ("steps", #""${vars.x}""#, true), ("steps", #"["x"]"#, false),
      ("anything", #"[1, { "a": null }]"#, true),
    ] as [(String, String, Bool)])
  func variablesInTheSchema(_ name: String, _ value: String, _ isAccepted: Bool) throws {
    let schema = try Self.parse(FieldPages.objectSchema(Self.shape).rendered())
    let object = try Self.parse("{ \"\(name)\": \(value) }")
    #expect(Self.accepts(schema, object) == isAccepted)
  }
}
