import Engine
import JobSyntax
import PipelineKit

/// `pipeline stages [STAGE]`: the reference pages, from the stages' specs.
enum StagesCommand {
  enum PageFormat: String, CaseIterable, Sendable { case text, markdown, json }

  static let format = Option<PageFormat>.choice("format", help: "how the pages are written (default text)")

  static let command = Command(
    name: "stages", summary: "lists the stages, or prints the reference page of one",
    operand: Operand(name: "STAGE", help: "a stage, or a field that every stage has", count: 0...1),
    options: [JobOptions.plugin, format],
    examples: ["pipeline stages", "pipeline stages resize", "pipeline stages when"],
    run: run)

  @Sendable private static func run(_ arguments: ParsedArguments, _ invocation: Invocation) throws(UsageError) -> Int32
  {
    let registry = invocation.registry
    let output = invocation.output
    var chosen = registry.all
    if let name = arguments.operands.first {
      if registry[name] == nil, CommonFields.all.contains(where: { $0.name == name }) {
        output.print(trimmed(arguments[format] == .markdown ? CommonFields.markdown : CommonFields.page))
        return ExitCode.done.rawValue
      }
      guard let descriptor = registry[name] else {
        let near = NearestName.suggestion(for: name, among: registry.names)
        throw UsageError(
          "unknown stage \"\(name)\"", hint: near.map { "did you mean \"\($0)\"?" } ?? "`pipeline stages` lists them")
      }
      chosen = [descriptor]
    }
    switch arguments[format] ?? .text {
    case .text where arguments.operands.isEmpty:
      for line in TextTable.rows(chosen.map { [$0.spec.name, $0.spec.summary] }) { output.print(line) }
    case .text: for descriptor in chosen { output.print(trimmed(descriptor.spec.page)) }
    case .markdown:
      let common = arguments.operands.isEmpty ? [CommonFields.markdown] : []
      output.print(trimmed((common + chosen.map(\.spec.markdown)).joined(separator: "\n")))
    case .json:
      output.print(
        JSONText.array(
          chosen.map {
            .object([
              ("name", .string($0.spec.name)), ("version", .integer($0.spec.version)),
              ("summary", .string($0.spec.summary)), ("notes", .array($0.spec.notes.map { .string($0) })),
              ("schema", $0.spec.schema), ("examples", .array($0.spec.examples.map { .string($0) })),
            ])
          }
        ).rendered(pretty: true))
    }
    return ExitCode.done.rawValue
  }

  private static func trimmed(_ text: String) -> String {
    var text = text[...]
    while text.last == "\n" { text.removeLast() }
    return String(text)
  }
}

/// `pipeline schema`.
enum SchemaCommand {
  static let command = Command(
    name: "schema", summary: "prints the JSON Schema of job files or of reports, for editors and other programs",
    operand: Operand(name: "report", help: "the schema of reports instead of the one of job files", count: 0...1),
    options: [JobOptions.plugin],
    examples: ["pipeline schema > job.schema.json", "pipeline schema report > report.schema.json"]
  ) { (arguments, invocation) throws(UsageError) in
    switch arguments.operands.first {
    case nil, "job": invocation.output.print(JobSpec.schema(invocation.registry).rendered(pretty: true))
    case "report": invocation.output.print(ReportSchema.schema.rendered(pretty: true))
    case let name?:
      let near = NearestName.suggestion(for: name, among: ["job", "report"])
      throw UsageError("there is no schema of \"\(name)\"", hint: near.map { "did you mean \"\($0)\"?" })
    }
    return ExitCode.done.rawValue
  }
}
