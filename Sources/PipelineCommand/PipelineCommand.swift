import CSystem
import Glibc
import JobSyntax
import PipelineKit

/// The command line program: subcommands, terminal, exit codes.
public enum PipelineCommand {
  static let commands: [Command] = [
    RunCommand.command, PlanCommand.command, LintCommand.command, StagesCommand.command, SchemaCommand.command,
    ModelsCommand.command, RunsCommand.command, StateCommand.command, ReceiptsCommand.command, ReportCommand.command,
    CompareCommand.command, ExplainCommand.command, PluginCommand.command, InitCommand.command, DoctorCommand.command,
    CompletionCommand.command, ManCommand.command,
  ]

  /// Runs the program and ends the process with its exit code.
  ///
  /// - Parameters:
  ///   - registry: the stages that jobs may name.
  ///   - arguments: the command line, the program's name first.
  public static func main(registry: StageRegistry, arguments: [String] = CommandLine.arguments) -> Never {
    StandardStreams.fillClosed()
    // Where it fails, a run just does not outlive what it would otherwise.
    _ = csystem_program_remember()
    signal(SIGPIPE, SIG_IGN)
    // A file over the limit of `ulimit -f` is a failure to write it, not the end.
    signal(SIGXFSZ, SIG_IGN)
    let output = ResultOutput()
    var code = execute(Array(arguments.dropFirst()), Invocation(registry: registry, output: output))
    if let problem = output.finish() {
      StandardStreams.complain("the result could not be written to standard output: \(problem)")
      if code == 0 { code = ExitCode.someFailed.rawValue }
    }
    // `exit` would run the destructors of libraries, which may wait for a call that never returns.
    _exit(code)
  }

  private static func execute(_ arguments: [String], _ invocation: Invocation) -> Int32 {
    guard let first = arguments.first else {
      StandardStreams.writeError(overview)
      return ExitCode.wrongCommandLine.rawValue
    }
    switch first {
    case "--version":
      invocation.output.print("pipeline \(ProgramVersion.text)")
      return ExitCode.done.rawValue
    case "--complete":
      // For the scripts that `pipeline completion` prints.
      let line = Array(arguments.dropFirst())
      for line in Completion(line, commands: commands, registry: invocation.registry).lines {
        invocation.output.print(line)
      }
      return ExitCode.done.rawValue
    case "help", "--help", "-h": return help(Array(arguments.dropFirst()), invocation)
    default: break
    }
    guard let command = commands.first(where: { $0.name == first }) else {
      let what = first.hasPrefix("-") ? "option" : "command"
      let names = first.hasPrefix("-") ? ["--version", "--help"] : commands.map(\.name) + ["help"]
      let near = NearestName.suggestion(for: first, among: names)
      return refuse(UsageError("unknown \(what) \"\(first)\"", hint: near.map { "did you mean \"\($0)\"?" }), nil)
    }
    // A run has no result there, and a program that takes it up after a crash could not give the descriptor back.
    if command.name != RunCommand.command.name { StandardStreams.keepOutput() }
    do throws(UsageError) {
      let parsed = try ParsedArguments(arguments.dropFirst(), options: command.options, operand: command.operand)
      if parsed.wantsHelp {
        invocation.output.print(String(command.page.dropLast()))
        return ExitCode.done.rawValue
      }
      var invocation = invocation
      do throws(StageError) {
        invocation.registry = try JobOptions.withPlugins(parsed, invocation.registry)
      } catch {
        let log = RunLog(format: parsed[RunCommand.logFormat] ?? .text, isQuiet: false, screen: Screen(Terminal(2)))
        log.write(error)
        log.screen.flush()
        return ExitCode(of: error).rawValue
      }
      return try command.run(parsed, invocation)
    } catch {
      return refuse(error, command)
    }
  }

  private static func help(_ arguments: [String], _ invocation: Invocation) -> Int32 {
    let names = arguments.filter { !$0.hasPrefix("-") }
    guard let name = names.first else {
      invocation.output.print(String(overview.dropLast()))
      return ExitCode.done.rawValue
    }
    guard let command = commands.first(where: { $0.name == name }) else {
      let near = NearestName.suggestion(for: name, among: commands.map(\.name))
      return refuse(UsageError("unknown command \"\(name)\"", hint: near.map { "did you mean \"\($0)\"?" }), nil)
    }
    invocation.output.print(String(command.page.dropLast()))
    return ExitCode.done.rawValue
  }

  private static func refuse(_ error: UsageError, _ command: Command?) -> Int32 {
    var line = error.message
    if let hint = error.hint { line += "; " + hint }
    StandardStreams.complain(line + " (see: pipeline help\(command.map { " " + $0.name } ?? ""))")
    return ExitCode.wrongCommandLine.rawValue
  }

  private static var overview: String {
    let lines =
      ["usage: pipeline COMMAND [arguments]", "", "Takes many pictures through a declared chain of stages.", ""]
      + TextTable.definitions(
        commands.map { ($0.name, $0.summary) } + [
          ("help [COMMAND]", "the options of a command"), ("--version", "the program's version"),
        ])
    return lines.joined(separator: "\n") + "\n"
  }
}
