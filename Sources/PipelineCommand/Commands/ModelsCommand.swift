import Glibc
import Inference
import JobSyntax
import PipelineKit

/// `pipeline models list|pull|verify|add`.
enum ModelsCommand {
  private static let nameOption = Option<String>.text("name", "NAME", help: "with `add`: what jobs call the model")
  private static let recipeOption = Option<String>.text(
    "recipe", "FILE",
    help:
      "with `add`: what the model takes and gives: a JSON file that holds what stands under \"recipe\" in a job; what "
      + "is left out is read from the model, as far as it says so")

  static let command = Command(
    name: "models", summary: "lists the models, fetches them, checks their files, or adds one of yours",
    notes: [
      "`list` shows every model that jobs can name and whether its file is here. `pull NAME…` fetches models; what was "
        + "cut off is resumed, and a file gets its name once its checksum is right. `verify` reads each file and "
        + "compares its checksum with the published one. `add FILE --name NAME` copies a model of yours (ONNX, TFLite, "
        + "or OpenVINO IR) to the others.",
      "Of a model that is published without a checksum, the file that is used first is pinned; it shows as "
        + "`unverified`, and another file under its name is refused. `untested` means that its recipe was not run with its file.",
      "Models are looked for in PIPELINE_HOME/models; PIPELINE_HOME defaults to `pipeline` in XDG_DATA_HOME, which is "
        + "~/.local/share. With PIPELINE_MODEL_MIRROR, `pull` fetches MIRROR/FILE instead of the catalogue's "
        + "addresses.",
      "Exit codes: 0 fine, 2 wrong command line, 3 wrong recipe, 4 a file is not what it should be, or a model that "
        + "was named is missing or could not be fetched.",
    ],
    operand: Operand(
      name: "list|pull|verify|add [MODEL|FILE…]",
      help: "what to do, then the names of models (all when none is named), or the file",
      count: 1...100),
    options: [nameOption, recipeOption, JobOptions.format],
    examples: [
      "pipeline models list", "pipeline models pull isnet-general-use", "pipeline models verify u2netp",
      "pipeline models add own.onnx --name own --recipe own.json",
    ],
    run: run)

  @Sendable private static func run(_ arguments: ParsedArguments, _ invocation: Invocation) throws(UsageError) -> Int32
  {
    let action = arguments.operands[0]
    let names = Array(arguments.operands.dropFirst())
    if action != "add" {
      for name in [nameOption.name, recipeOption.name]
      where arguments[name == nameOption.name ? nameOption : recipeOption] != nil {
        throw UsageError("--\(name) goes with `pipeline models add`")
      }
    }
    switch action {
    case "list", "verify": return try show(names, verifies: action == "verify", arguments, invocation)
    case "pull": return try pull(names, invocation)
    case "add": return try add(names, arguments, invocation)
    default:
      let near = NearestName.suggestion(for: action, among: ["list", "pull", "verify", "add"])
      throw UsageError(
        "unknown argument \"\(action)\"", hint: near.map { "did you mean \"\($0)\"?" } ?? "list, pull, verify or add")
    }
  }

  private static func refuseUnknown(_ names: [String], _ home: PipelineHome) throws(UsageError) {
    let known = ModelCatalogue.names(home: home)
    for name in names where !known.contains(name) {
      let near = NearestName.suggestion(for: name, among: known)
      throw UsageError(
        "unknown model \"\(name)\"",
        hint: near.map { "did you mean \"\($0)\"?" } ?? "known: " + known.joined(separator: ", "))
    }
  }

  // MARK: list and verify

  private static func show(
    _ names: [String], verifies: Bool, _ arguments: ParsedArguments, _ invocation: Invocation
  ) throws(UsageError) -> Int32 {
    let home = PipelineHome.current
    try refuseUnknown(names, home)
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
          status.recipe.name, word(status), status.recipe.tested ? "tested" : "untested",
          size(status.recipe), status.recipe.licence, status.path.map { PathBytes($0).printable } ?? "-",
        ]
      }
      for line in TextTable.rows([["model", "state", "recipe", "input", "licence", "file"]] + rows) {
        invocation.output.print(line)
      }
      invocation.output.flush()
      for status in states {
        if case .wrong(let error) = status.state { StandardStreams.complain(error.description) }
        // What is good to know before choosing one; a list of all stays short.
        if let note = status.recipe.note, !names.isEmpty {
          StandardStreams.complain("\(status.recipe.name): \(note)")
        }
      }
      if states.contains(where: { $0.state == .missing && (verifies || $0.recipe.name == ModelCatalogue.defaultName) })
      {
        StandardStreams.complain("what is missing is looked for in \(home.modelFolders.joined(separator: ", "))")
      }
    }
    return code.rawValue
  }

  private static func size(_ recipe: ModelRecipe) -> String {
    if let rule = recipe.sizeRule { return "\(rule.reference)+" }
    return recipe.width == 0 ? "-" : "\(recipe.width)x\(recipe.height)"
  }

  private static func word(_ status: ModelCatalogue.Status) -> String {
    // What has no published checksum is never more than unverified, whether its pin was looked at or not.
    if status.state == .present, !status.recipe.hasChecksum { return word(.unverified) }
    return word(status.state)
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
    let recipe = status.recipe
    return .object([
      ("name", .string(recipe.name)), ("state", .string(word(status))),
      ("file", status.path.map { .string(PathBytes($0).display) } ?? nil),
      ("sha256", status.digest.map { .string($0.sha256) } ?? nil), ("width", .integer(recipe.width)),
      ("height", .integer(recipe.height)), ("classes", .array(recipe.output.labels.map { .string($0) })),
      ("source", .string(recipe.source)), ("url", recipe.url.map { .string($0) } ?? nil),
      ("licence", .string(recipe.licence)), ("tested", .bool(recipe.tested)),
      ("note", recipe.note.map { .string($0) } ?? nil), ("problem", problem),
    ])
  }

  // MARK: pull

  private static func pull(_ names: [String], _ invocation: Invocation) throws(UsageError) -> Int32 {
    guard !names.isEmpty else {
      throw UsageError("pull needs the names of models", hint: "`pipeline models list` shows them")
    }
    let home = PipelineHome.current
    try refuseUnknown(names, home)
    let store = ModelPull.store(
      home: home, mirror: getenv(ModelPull.mirrorVariable).map { String(cString: $0) })
    let terminal = Terminal(2)
    var code = ExitCode.done
    for name in names {
      // What is drawn on a terminal: at most one line for each hundredth.
      var drawn = -1
      do throws(InferenceError) {
        guard let recipe = try ModelCatalogue.named(name, home: home) else { continue }
        let outcome: ModelStore.Outcome
        do throws(InferenceError) {
          outcome = try store.pull(
            recipe,
            waiting: { StandardStreams.complain("\(name) is being fetched by another process; waiting for it") },
            progress: { progress in
              guard terminal.isInteractive else { return }
              let (step, line) = Self.line(name, progress)
              guard step != drawn else { return }
              drawn = step
              StandardStreams.writeError("\r\(line.prefix(max(0, terminal.width - 1)))\u{1B}[K")
            })
        } catch {
          if drawn >= 0 { StandardStreams.writeError("\r\u{1B}[K") }
          throw error
        }
        if drawn >= 0 { StandardStreams.writeError("\r\u{1B}[K") }
        let path = (try? ModelCatalogue.locate(recipe, home: home)).map { PathBytes($0).printable } ?? home.models
        let kind = recipe.hasChecksum ? "verified" : "unverified, pinned"
        invocation.output.print("\(name): \(outcome == .fetched ? "fetched" : "already here"), \(kind), \(path)")
        invocation.output.flush()
      } catch {
        StandardStreams.complain(error.description)
        code = .cannotStart
      }
    }
    return code.rawValue
  }

  private static func line(_ name: String, _ progress: ModelStore.Progress) -> (step: Int, line: String) {
    let received = Wording.bytes(progress.received)
    guard let total = progress.total, total > 0 else { return (progress.received >> 20, "\(name): \(received)") }
    let percent = min(100, Int(Double(progress.received) / Double(total) * 100))
    return (percent, "\(name): \(percent)%, \(received) of \(Wording.bytes(total))")
  }

  // MARK: add

  private static func add(
    _ files: [String], _ arguments: ParsedArguments, _ invocation: Invocation
  ) throws(UsageError) -> Int32 {
    guard files.count == 1 else { throw UsageError("add takes one file: pipeline models add FILE --name NAME") }
    guard let name = arguments[nameOption] else {
      throw UsageError("add needs --name NAME: what jobs call the model")
    }
    guard AddedModels.isName(name) else {
      throw UsageError(
        "--name expects letters, digits, '-', '_' and '.', and not the ending of a model's file, got \"\(name)\"")
    }
    var draft = RecipeDraft()
    if let path = arguments[recipeOption] {
      let bytes: [UInt8]
      do throws(StageError) { bytes = try read(path) } catch {
        StandardStreams.complain(error.description)
        return ExitCode.cannotStart.rawValue
      }
      let source = SourceFile(name: path, text: bytes)
      let (root, problems) = StrictJSON.parse(source)
      var findings = problems
      if let root {
        let read = RecipeDraft.read(root, file: path, isEntry: true)
        draft = read.draft
        findings += read.diagnostics
      }
      if findings.hasErrors {
        for finding in findings {
          let place = finding.range.map { ":\($0.start.line):\($0.start.column)" } ?? ""
          StandardStreams.complain(
            "\(path)\(place): \(finding.message)" + (finding.hint.map { "; \($0)" } ?? ""))
        }
        return ExitCode.wrongJob.rawValue
      }
    }
    do throws(InferenceError) {
      let recipe = try AddedModels.add(files[0], name: name, draft: draft)
      invocation.output.print("\(name): added, unverified, pinned, \(PipelineHome.current.models)/\(recipe.fileName)")
      return ExitCode.done.rawValue
    } catch {
      StandardStreams.complain(error.description)
      return (error.code == .modelInvalid ? ExitCode.wrongJob : .cannotStart).rawValue
    }
  }

  private static func read(_ path: String) throws(StageError) -> [UInt8] {
    // A pipe without a writer would hold up the open itself.
    let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
    guard descriptor >= 0 else {
      throw StageError("recipe", "cannot read \(path): \(String(cString: strerror(errno)))", kind: .environment)
    }
    defer { close(descriptor) }
    var result: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 1 << 16)
    while true {
      let count = Glibc.read(descriptor, &piece, piece.count)
      guard count >= 0 else {
        throw StageError("recipe", "cannot read \(path): \(String(cString: strerror(errno)))", kind: .environment)
      }
      if count == 0 { return result }
      result += piece[..<count]
      guard result.count <= 1 << 20 else {
        throw StageError("recipe", "\(path) is too large to be a recipe", kind: .environment)
      }
    }
  }
}
