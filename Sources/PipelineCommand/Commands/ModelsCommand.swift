import Inference
import JobSyntax
import PipelineKit

/// `pipeline models list|verify`.
enum ModelsCommand {
  static let command = Command(
    name: "models", summary: "lists the models, or checks the files of those installed",
    notes: [
      "`list` shows every model that jobs can name and whether its file is here. `verify` also reads each file and "
        + "compares its checksum with the published one.",
      "Models are looked for in PIPELINE_HOME/models; PIPELINE_HOME defaults to `pipeline` in XDG_DATA_HOME, which is "
        + "~/.local/share.",
      "Exit codes: 0 fine, 2 wrong command line, 4 a file is not what it should be, or a model that was named is missing.",
    ],
    operand: Operand(
      name: "list|verify", help: "what to do, then the names of models (all when none is named)", count: 1...100),
    options: [JobOptions.format],
    examples: ["pipeline models list", "pipeline models verify u2netp"],
    run: run)

  @Sendable private static func run(_ arguments: ParsedArguments, _ invocation: Invocation) throws(UsageError) -> Int32
  {
    let action = arguments.operands[0]
    guard ["list", "verify"].contains(action) else {
      let near = NearestName.suggestion(for: action, among: ["list", "verify"])
      throw UsageError(
        "unknown argument \"\(action)\"", hint: near.map { "did you mean \"\($0)\"?" } ?? "list or verify")
    }
    let names = arguments.operands.dropFirst()
    for name in names where ModelCatalogue.named(name) == nil {
      let known = ModelCatalogue.all.map(\.name)
      let near = NearestName.suggestion(for: name, among: known)
      throw UsageError(
        "unknown model \"\(name)\"",
        hint: near.map { "did you mean \"\($0)\"?" } ?? "known: " + known.joined(separator: ", "))
    }
    let verifies = action == "verify"
    let home = PipelineHome.current
    var code = ExitCode.done
    let states = ModelCatalogue.status(verify: verifies, home: home).filter {
      names.isEmpty || names.contains($0.recipe.name)
    }
    for status in states {
      switch status.state {
      case .wrong: code = .cannotStart
      case .missing: if verifies, !names.isEmpty { code = .cannotStart }
      case .present, .verified, .unverified: break
      }
    }
    if arguments[JobOptions.format] == .json {
      invocation.output.print(JSONText.array(states.map(json)).rendered(pretty: true))
    } else {
      let rows = states.map { status in
        [
          status.recipe.name, word(status.state), "\(status.recipe.width)x\(status.recipe.height)",
          status.recipe.licence, status.path.map { PathBytes($0).printable } ?? "-",
        ]
      }
      for line in TextTable.rows([["model", "state", "input", "licence", "file"]] + rows) {
        invocation.output.print(line)
      }
      invocation.output.flush()
      for status in states {
        if case .wrong(let error) = status.state { StandardStreams.complain(error.description) }
      }
      if states.contains(where: { $0.state == .missing && (verifies || $0.recipe.tested) }) {
        StandardStreams.complain("what is missing is looked for in \(home.modelFolders.joined(separator: ", "))")
      }
    }
    return code.rawValue
  }

  static func word(_ state: ModelCatalogue.Status.State) -> String {
    switch state {
    case .missing: "missing"
    case .present: "present"
    case .verified: "verified"
    case .unverified: "unverified"
    case .wrong: "wrong"
    }
  }

  private static func json(_ status: ModelCatalogue.Status) -> JSONText {
    var problem: JSONText = nil
    if case .wrong(let error) = status.state { problem = .string(error.description) }
    return .object([
      ("name", .string(status.recipe.name)), ("state", .string(word(status.state))),
      ("file", status.path.map { .string(PathBytes($0).display) } ?? nil),
      ("sha256", status.digest.map { .string($0.sha256) } ?? nil), ("width", .integer(status.recipe.width)),
      ("height", .integer(status.recipe.height)), ("source", .string(status.recipe.source)),
      ("licence", .string(status.recipe.licence)), ("tested", .bool(status.recipe.tested)), ("problem", problem),
    ])
  }
}
