import JobSyntax
import PipelineKit
import Stages
import Testing

/// What holds for every stage of the program, whatever it does.
@Suite struct BuiltInStagesTests {
  static func all() throws -> [StageDescriptor] {
    var registry = StageRegistry()
    try BuiltInStages.register(in: &registry)
    return registry.all
  }

  @Test("the stages of the main chain are there, and none twice")
  func registered() throws {
    let names = try Self.all().map(\.spec.name)
    for name in ["composite", "decode", "encode", "resize", "write"] { #expect(names.contains(name)) }
    #expect(Set(names).count == names.count)
    var registry = StageRegistry()
    try BuiltInStages.register(in: &registry)
    #expect(throws: StageError.self) { try BuiltInStages.register(in: &registry) }
  }

  @Test("every example of every stage lints without a finding")
  func examples() throws {
    for stage in try Self.all() {
      #expect((1...12).contains(stage.spec.examples.count), "\(stage.spec.name)")
      for example in stage.spec.examples {
        let (root, problems) = StrictJSON.parse(SourceFile(name: stage.spec.name, text: Array(example.utf8)))
        let node = try #require(root, "\(example)")
        #expect(node["stage"]?.stringValue == stage.spec.name)
        var checker = FieldChecker(file: stage.spec.name, columns: .unknown)
        checker.append(problems)
        checker.check(node, against: stage.shape, owner: stage.spec.name, ignoring: ["stage"])
        #expect(checker.diagnostics.isEmpty, "\(example): \(checker.diagnostics)")
        let settings = Settings(reading: node, shape: stage.shape, file: stage.spec.name)
        #expect(stage.check(settings).isEmpty, "\(example)")
        let plan = stage.plan(settings)
        #expect(plan.workingBytes(6000, 4000) >= 0)
        #expect(!plan.accepts.isEmpty)
        #expect(!plan.produces.isEmpty || ["branch", "exec", "filter"].contains(stage.spec.name))
      }
    }
  }

  @Test("every field of every stage says what it is for")
  func help() throws {
    func check(_ fields: [any FieldDeclaration], _ owner: String) {
      #expect(Set(fields.map(\.name)).count == fields.count, "\(owner)")
      for field in fields {
        let name = "\(owner).\(field.name)"
        #expect(field.help.count >= 10 && !field.help.hasSuffix("."), "\(name): \(field.help)")
        check(field.type, name)
        if let condition = field.condition {
          #expect(fields.contains { $0.name == condition.field }, "\(name) depends on a field that is not there")
        }
      }
    }
    func check(_ type: FieldType, _ name: String) {
      switch type {
      case .object(let shape): check(shape.fields, name)
      case .array(let element, _): check(element, name)
      case .oneOf(let types): for type in types { check(type, name) }
      default: break
      }
    }
    for stage in try Self.all() {
      #expect(stage.spec.summary.hasSuffix("."), "\(stage.spec.name)")
      check(stage.spec.fields, stage.spec.name)
    }
  }

  @Test("page, table and schema name every field")
  func pages() throws {
    for stage in try Self.all() {
      let spec = stage.spec
      let schema = spec.schema.rendered()
      #expect(StrictJSON.parse(SourceFile(name: "schema", text: Array(schema.utf8))).diagnostics.isEmpty)
      for field in spec.fields {
        #expect(spec.page.contains("\(field.name): "), "\(spec.name).\(field.name)")
        #expect(spec.markdown.contains("| `\(field.name)` |"), "\(spec.name).\(field.name)")
        #expect(schema.contains("\"\(field.name)\":{"), "\(spec.name).\(field.name)")
      }
    }
  }
}
