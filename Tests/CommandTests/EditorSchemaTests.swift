import Engine
import JobSyntax
import PipelineKit
import Stages
import TestSupport
import Testing

/// The JSON Schema of job files, as editors and validators take it.
@Suite struct EditorSchemaTests {
  private static func schema() throws -> JSONNode { try json(RunProgram.run(["schema"]).outputBytes) }

  /// Every place where names of members are declared, with its path.
  private static func properties(_ node: JSONNode, _ path: String, _ visit: (String, JSONNode) -> Void) {
    for member in node.objectValue ?? [] {
      // `if` only tells stages apart.
      if member.key == "if" || member.key == "examples" { continue }
      if member.key == "properties" {
        for property in member.value.objectValue ?? [] {
          visit("\(path).\(property.key)", property.value)
          properties(property.value, "\(path).\(property.key)", visit)
        }
      } else {
        properties(member.value, path + "/" + member.key, visit)
      }
    }
    for element in node.arrayValue ?? [] { properties(element, path, visit) }
  }

  @Test func `every member explains itself, for plain editors and for those with Markdown`() throws {
    var count = 0
    Self.properties(try Self.schema(), "") { path, property in
      count += 1
      guard let description = property["description"]?.stringValue else {
        Issue.record("\(path) has no description")
        return
      }
      #expect(!description.isEmpty && !description.contains("`"), "\(path): \(description)")
      #expect(description.hasSuffix("."), "\(path): \(description)")
    }
    #expect(count > 300)
  }

  @Test func `words explain themselves one by one, and stages are offered whole`() throws {
    let schema = try Self.schema()
    var lists = 0
    func look(_ node: JSONNode) {
      if let words = node["enum"]?.arrayValue, let help = node["enumDescriptions"]?.arrayValue {
        lists += 1
        #expect(words.count == help.count)
      }
      node.objectValue?.map(\.value).forEach(look)
      node.arrayValue?.forEach(look)
    }
    look(schema)
    #expect(lists > 20)
    let stage = try #require(schema["$defs"]?["job:stage"])
    let words = try #require(stage["properties"]?["stage"]?["enum"]?.arrayValue)
    let names = words.compactMap(\.stringValue)
    #expect(stage["properties"]?["stage"]?["enumDescriptions"]?.arrayValue?.count == names.count)
    #expect(stage["examples"]?.arrayValue?.compactMap { $0["stage"]?.stringValue } == names)
    // An editor offers the fields of the one stage that is named.
    #expect(
      stage["allOf"]?.arrayValue?.compactMap { $0["if"]?["properties"]?["stage"]?["const"]?.stringValue } == names)
    for name in names { #expect(schema["$defs"]?[name]?["properties"]?["stage"]?["const"]?.stringValue == name) }
  }

  /// Without comments, which validators do not take.
  private static func plain(_ text: [UInt8]) throws -> String {
    JSONText(try json(text).value).rendered()
  }

  /// What a validator says of documents: true where they are valid, in order.
  private static func validate(_ documents: [String]) throws -> [Bool] {
    let folder = TemporaryFolder()
    folder.write(RunProgram.run(["schema"]).outputBytes, to: "schema.json")
    folder.write("[" + documents.joined(separator: ",") + "]", to: "documents.json")
    folder.write(
      """
      import json, jsonschema
      schema = json.load(open("schema.json"))
      jsonschema.Draft202012Validator.check_schema(schema)
      validator = jsonschema.Draft202012Validator(schema)
      for document in json.load(open("documents.json")):
          print("valid" if validator.is_valid(document) else "invalid")
      """, to: "validate.py")
    var settings = RunProgram.Settings()
    settings.folder = folder.path
    settings.environment = Peers.pythonVariables
    let result = RunProgram.run(["validate.py"], settings, program: try Peers.python("python"))
    #expect(result.exitCode == 0, "\(result.error)")
    return result.output.split(separator: "\n").map { $0 == "valid" }
  }

  @Test(.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"))
  func `a validator takes every job that lints, and refuses what lint refuses`() throws {
    let jobs = try DocumentationTests.jobs.map { name in
      try Self.plain(TemporaryFolder.read(DocumentationTests.package + "/pipelines/" + name) ?? [])
    }
    let templates = try InitTests.templates.map {
      try Self.plain(RunProgram.run(["init", $0, "--to", "-"]).outputBytes)
    }
    let good = jobs + templates
    #expect(try Self.validate(good) == Array(repeating: true, count: good.count))
    func job(_ stage: String, more: String = "") -> String {
      #"{ "version": 1, "input": { "files": ["*.jpg"] }, "stages": [{ "stage": "decode" }, \#(stage)]\#(more) }"#
    }
    let bad = [
      job(#"{ "stage": "resise", "width": 100 }"#), job(#"{ "stage": "resize", "widht": 100 }"#),
      job(#"{ "stage": "resize", "width": 0 }"#), job(#"{ "stage": "resize", "width": 100, "fit": "insid" }"#),
      job(#"{ "stage": "encode" }"#), job(#"{ "width": 100 }"#), job(#"{ "stage": "decode" }"#, more: #", "vers": 1"#),
      #"{ "version": 2, "input": { "files": ["*"] }, "stages": [{ "stage": "decode" }] }"#,
    ]
    #expect(try Self.validate(bad) == Array(repeating: false, count: bad.count))
  }
}
