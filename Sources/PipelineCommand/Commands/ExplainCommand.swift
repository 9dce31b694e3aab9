import Engine
import Glibc
import Imaging
import JobSyntax
import PipelineKit

/// `pipeline explain JOB PICTURE`.
enum ExplainCommand {
  private static let to = Option<String>.text(
    "to", "DIR", help: "the folder for the pictures and the page (default PICTURE.explained in the current folder)")

  static let command = Command(
    name: "explain", summary: "shows one picture after each stage of a job",
    notes: [
      "Takes the picture through the job's stages by the steps of a run, and writes into a folder what it is after each: "
        + "pictures and masks as PNG, with 16 bits where they have them, and encoded results as they are. index.html shows "
        + "all of it, explain.json holds the numbers: time, size, bands, bits, colours, memory, and the settings with their "
        + "defaults.",
      "Nothing is written to the job's outputs, and nothing is remembered. Stages that write or upload say what they would "
        + "have done; services that are paid are not called, and the chain ends there. A service that costs nothing is sent "
        + "the picture, as in a run.",
      "Of a picture that is one of the job's inputs the columns of a manifest are known too; any other is taken as it is.",
      "Exit codes: 0 explained, 1 the picture failed in a stage, which is shown, 2 wrong command line, 3 wrong job file, "
        + "4 cannot start, or the folder cannot be written to.",
    ],
    operand: Operand(name: "JOB PICTURE", help: "the job file and the picture", count: 2...2),
    options: [to, JobOptions.set, JobOptions.plugin, JobOptions.format],
    examples: ["pipeline explain job.json photos/bag.jpg", "pipeline explain job.json photos/bag.jpg --to look"],
    run: run)

  @Sendable private static func run(_ arguments: ParsedArguments, _ invocation: Invocation) throws(UsageError) -> Int32
  {
    let loader = try JobOptions.loader(arguments, invocation.registry)
    let terminal = Terminal(2)
    let renderer = DiagnosticRenderer(width: terminal.diagnosticWidth)
    func show(_ diagnostics: [Diagnostic], _ sources: [SourceFile]) {
      StandardStreams.writeError(renderer.text(diagnostics, sources: sources, color: terminal.usesColor))
    }
    func fail(_ error: StageError) -> Int32 {
      StandardStreams.complain(error.description)
      return ExitCode(of: error).rawValue
    }
    let loaded: LoadedJob
    do throws(StageError) {
      loaded = try loader.load(path: arguments.operands[0])
    } catch {
      return fail(error)
    }
    var unset = loaded.unsetEnvironment
    if let job = loaded.job { unset = job.withoutWithheld(unset) }
    show(
      loaded.diagnostics.filter { !loaded.unsetEnvironment.contains($0) }
        + unset.map { finding in
          var finding = finding
          finding.severity = .error
          return finding
        }, loaded.sources)
    guard let job = loaded.job, unset.isEmpty else {
      return (loaded.diagnostics.hasErrors ? ExitCode.wrongJob : .cannotStart).rawValue
    }
    var options = RunOptions()
    options.jobs = 1
    options.programVersion = ProgramVersion.text
    let run = JobRun(job: job, options: options)
    do throws(StageError) {
      let identity = try identity(of: arguments.operands[1], run)
      let folder = try ExplainedFolder(arguments[to] ?? identity.name.lastComponent.printable + ".explained")
      let explanation = try run.explain(identity) { (name, bytes) throws(StageError) in
        try folder.write(name, bytes)
      }
      try folder.finish(explanation)
      if arguments[JobOptions.format] == .json {
        invocation.output.print(explanation.json.rendered(pretty: true))
      } else {
        for line in TextTable.rows(rows(explanation)) { invocation.output.print(line) }
      }
      invocation.output.flush()
      for stage in explanation.stages {
        for warning in stage.warnings {
          StandardStreams.complain("warning \(warning.code) in \(stage.label): \(warning.message)")
        }
      }
      let page = folder.path.joining("index.html")
      if !explanation.isFine {
        StandardStreams.complain("\(explanation.input): \(explanation.status.rawValue): \(explanation.reason ?? "")")
      }
      StandardStreams.complain("the picture after each stage is in \(page.printable)")
      return (explanation.isFine ? ExitCode.done : .someFailed).rawValue
    } catch {
      return fail(error)
    }
  }

  /// The picture as the job has it, where it is one of its inputs.
  private static func identity(of text: String, _ run: JobRun) throws(StageError) -> ItemIdentity {
    let path = (PathBytes.currentFolder ?? "/").joining(PathBytes(text)).normalised
    // Inputs that are missing are no reason not to look at one picture.
    if let plan = try? run.plan(), let identity = run.identity(named: text, at: path, in: plan) { return identity }
    var status = stat()
    guard path.withCString({ stat($0, &status) }) == 0 else {
      throw StageError(
        "picture-missing", "\(PathBytes(text).printable) is not there, and is none of the job's inputs",
        kind: .environment, cause: String(cString: strerror(errno)))
    }
    guard status.st_mode & S_IFMT == S_IFREG else {
      throw StageError("picture-missing", "\(PathBytes(text).printable) is no file", kind: .environment)
    }
    return ItemIdentity(index: 0, path: path, name: PathBytes(text), directory: PathBytes(""))
  }

  private static func rows(_ explanation: Explanation) -> [[String]] {
    var rows = [["stage", "time", "size", "pixels", "colours", "memory", "result"]]
    for stage in explanation.stages {
      let pixels = stage.bands.map { "\($0) × \(stage.depth ?? 8) bits" } ?? ""
      rows.append([
        stage.label, stage.milliseconds.map { "\(Wording.oneDecimal($0)) ms" } ?? "-",
        stage.size.map { "\($0.width) × \($0.height)" + (stage.frames > 1 ? " × \(stage.frames)" : "") } ?? "",
        pixels, stage.space ?? "", stage.heldBytes > 0 ? Wording.bytes(stage.heldBytes) : "",
        Wording.oneLine(words(stage)),
      ])
    }
    return rows.map { $0.map { $0.isEmpty ? " " : $0 } }
  }

  /// What became of the picture in a stage.
  static func words(_ stage: Explanation.Stage) -> String {
    switch stage.fate {
    case .passed:
      if let bytes = stage.encodedBytes { return "\(stage.format ?? ""), \(Wording.bytes(bytes))" }
      return stage.files.map(\.name).joined(separator: ", ")
    case .passedOver(let text): return "passed over: \(text)"
    case .withheld(let text): return text
    case .ended(let status, let text): return "\(status.rawValue): \(text)"
    case .failed(let error): return "failed: \(error.description)"
    }
  }
}

/// The folder that an explanation goes to.
private struct ExplainedFolder {
  let path: PathBytes

  /// Makes the folder. What an earlier explanation has left there goes; anything else keeps this one out.
  ///
  /// - Throws: `explain-place` of class environment.
  init(_ text: String) throws(StageError) {
    guard let current = PathBytes.currentFolder else {
      throw StageError("explain-place", "the current folder does not exist any more", kind: .environment)
    }
    path = current.joining(PathBytes(text)).normalised
    do throws(StageError) {
      try AtomicFile.makeFolders(path)
    } catch {
      throw StageError(
        "explain-place", "the folder \(path.printable) cannot be made", kind: .environment, cause: error.description)
    }
    var names: [PathBytes] = []
    guard let listing = path.withCString({ opendir($0) }) else {
      throw StageError(
        "explain-place", "the folder \(path.printable) cannot be read", kind: .environment,
        cause: String(cString: strerror(errno)))
    }
    while let entry = readdir(listing) {
      let bytes = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
      if bytes != Array(".".utf8), bytes != Array("..".utf8) { names.append(PathBytes(bytes: bytes)) }
    }
    closedir(listing)
    guard !names.isEmpty else {
      try begin()
      return
    }
    let earlier = (try? EncodedPicture.read(path: path.joining("explain.json").bytes, maxBytes: 64 << 20))
      .flatMap { StrictJSON.parse(SourceFile(name: "explain.json", text: $0.array)).root }
    guard let stages = earlier?["stages"]?.arrayValue else {
      throw StageError(
        "explain-place", "the folder \(path.printable) holds other things than an explanation", kind: .environment,
        hint: "--to DIR names another")
    }
    let old = Set(
      stages.flatMap { $0["files"]?.arrayValue ?? [] }.compactMap { $0["file"]?.stringValue }.map { PathBytes($0) })
    for name in names where old.contains(name) { _ = path.joining(name).withCString { unlink($0) } }
    try begin()
  }

  /// Marks the folder as one of an explanation, also for when a stage crashes.
  private func begin() throws(StageError) {
    try ResultFile.write(Array("{ \"stages\": [] }\n".utf8), to: path.joining("explain.json"))
  }

  func write(_ name: String, _ bytes: EncodedBytes) throws(StageError) {
    let target = path.joining(name)
    _ = try bytes.withUnsafeBytes { (buffer) throws(StageError) in
      try AtomicFile.write(buffer, to: target, tag: "\(getpid())", isDurable: false)
    }
  }

  func finish(_ explanation: Explanation) throws(StageError) {
    try ResultFile.write(Array((explanation.json.rendered(pretty: true) + "\n").utf8), to: path.joining("explain.json"))
    try ResultFile.write(ExplanationPage.page(explanation).rendered, to: path.joining("index.html"))
  }
}
