import JobSyntax
import PipelineKit
import Testing

@Suite struct SettingsTests {
  private static let inner = ObjectShape([
    Field<Int>.integer("size", in: 1...9, default: nil, help: "a size"),
    Field<Int?>.integer("extra", in: 1...9, help: "an extra"),
  ])
  private static let shape = ObjectShape([
    Field<Settings?>.optionalObject("one", inner, help: "an object"),
    Field<[Int]>(
      "many", type: .array(.object(inner), count: 0...9), absent: [], help: "objects"
    ) { node, _ in node.arrayValue.map { $0.map { _ in 0 } } },
  ])

  @Test(
    "settings with a required field that has no value, at any depth, are not complete",
    arguments: [
      ("{}", true), (#"{ "one": { "size": 1 } }"#, true), (#"{ "one": { "size": 1, "extra": "${env.X}" } }"#, true),
      (#"{ "one": { "size": "${env.X}" } }"#, false), (#"{ "one": {} }"#, false), (#"{ "one": "${env.X}" }"#, false),
      (#"{ "many": [{ "size": 1 }] }"#, true), (#"{ "many": [{ "size": 1 }, { "size": "${env.X}" }] }"#, false),
      (#"{ "many": ["${env.X}"] }"#, false),
    ] as [(String, Bool)])
  func complete(_ text: String, _ isComplete: Bool) throws {
    let node = try #require(StrictJSON.parse(SourceFile(name: "test", text: Array(text.utf8))).root)
    #expect(Settings(reading: node, shape: Self.shape, file: "test").isComplete == isComplete)
  }
}
