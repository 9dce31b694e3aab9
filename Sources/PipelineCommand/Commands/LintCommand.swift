import Engine
import JobSyntax
import PipelineKit

/// `pipeline lint JOB…`.
enum LintCommand {
  static let codeQuality = Option<String>.text(
    "code-quality", "FILE", help: "writes the findings as a GitLab Code Quality report too")

  static let command = Command(
    name: "lint", summary: "checks job files; needs no model, credential or network",
    notes: ["All problems of all files are shown. Exit codes: 0 no errors, 2 wrong command line, 3 errors found."],
    operand: Operand(name: "JOB", help: "job files", count: 1...100_000),
    options: [JobOptions.set, JobOptions.plugin, JobOptions.format, Annotations.option, codeQuality],
    examples: ["pipeline lint job.json", "pipeline lint pipelines/*.json --format json"],
    run: run)

  @Sendable private static func run(_ arguments: ParsedArguments, _ invocation: Invocation) throws(UsageError) -> Int32
  {
    let loader = try JobOptions.loader(arguments, invocation.registry)
    let terminal = Terminal(StandardStreams.output)
    let renderer = DiagnosticRenderer(width: terminal.diagnosticWidth)
    var all: [Diagnostic] = []
    for path in arguments.operands {
      do throws(StageError) {
        let loaded = try loader.load(path: path)
        all += loaded.diagnostics
        if arguments[JobOptions.format] != .json {
          write(renderer.text(loaded.diagnostics, sources: loaded.sources, color: terminal.usesColor), invocation)
        }
      } catch {
        let finding = Diagnostic(unreadable: error, file: path)
        all.append(finding)
        if arguments[JobOptions.format] != .json {
          write(renderer.text([finding], sources: [], color: terminal.usesColor), invocation)
        }
      }
    }
    if arguments[JobOptions.format] == .json { write(renderer.json(all), invocation) }
    invocation.output.flush()
    StandardStreams.writeError(verdict(all, files: arguments.operands) + "\n")
    Annotations(arguments[Annotations.option], logIsJSON: false).show(all)
    if let file = arguments[codeQuality] {
      do throws(StageError) {
        try ResultKind.codeQuality.check((PathBytes.currentFolder ?? "/").joining(PathBytes(file)), named: file)
        try ResultFile.write(CodeQuality.json(all).rendered(pretty: true) + "\n", to: file)
      } catch {
        StandardStreams.complain(error.description)
        return (all.hasErrors ? ExitCode.wrongJob : .cannotStart).rawValue
      }
    }
    return (all.hasErrors ? ExitCode.wrongJob : .done).rawValue
  }

  private static func write(_ text: String, _ invocation: Invocation) {
    if !text.isEmpty { invocation.output.print(text.hasSuffix("\n") ? String(text.dropLast()) : text) }
  }

  private static func verdict(_ diagnostics: [Diagnostic], files: [String]) -> String {
    let name = files.count == 1 ? PathBytes(files[0]).printable : Wording.count(files.count, "file")
    var parts: [String] = []
    for (severity, noun) in [(Diagnostic.Severity.error, "error"), (.warning, "warning")] {
      let count = diagnostics.count { $0.severity == severity }
      if count > 0 { parts.append(Wording.count(count, noun)) }
    }
    return "\(name): " + (parts.isEmpty ? "no problems" : parts.joined(separator: ", "))
  }
}
