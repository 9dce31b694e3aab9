import Engine
import Glibc
import JobSyntax
import PipelineKit
import PluginHost

/// Options that several commands share, and reading a job with them.
enum JobOptions {
  static let job = Operand(name: "JOB", help: "the job file", count: 1...1)

  static let set = Option<(name: String, value: String)>(
    "set", "NAME=VALUE", repeats: true,
    help: "sets one of the job's vars; the value is read as JSON, else taken as text",
    expected: "NAME=VALUE"
  ) { text in
    guard let cut = text.firstIndex(of: "="), cut != text.startIndex else { return nil }
    return (String(text[..<cut]), String(text[text.index(after: cut)...]))
  }
  static let input = Option<String>.text(
    "input", "GLOB", repeats: true, help: "takes these files instead of the job's input; relative to the current folder"
  )
  static let format = Option<LogFormat>.choice("format", help: "how the result is written (default text)")
  static let shard = Option<ShardChoice>(
    "shard", "I/N|auto[/N]",
    help: "works on one of N equal parts of the inputs, counted from 1; auto finds which in the environment of a Slurm "
      + "array, a Kubernetes indexed Job (auto/N), an AWS Batch array, or a GitLab, Buildkite or CircleCI parallel job",
    expected: "I/N with I from 1 to N, auto, or auto/N", convert: { ShardChoice(parsing: $0) })

  static let plugin = Option<String>.text(
    "plugin", "FILE", repeats: true,
    help: "opens a shared library with a stage, as the job's \"plugins\" do; relative to the current folder")

  /// The registry with the stages of `--plugin`.
  ///
  /// - Throws: where one is refused; it names the file.
  static func withPlugins(
    _ arguments: ParsedArguments, _ registry: StageRegistry
  ) throws(StageError) -> StageRegistry {
    var registry = registry
    for path in arguments.all(plugin) {
      try registry.load(plugin: path, from: PathBytes.currentFolder ?? PathBytes("/"))
    }
    return registry
  }

  /// The shard that `--shard` means; nil without one.
  static func shard(_ arguments: ParsedArguments) throws(UsageError) -> Shard? {
    guard let choice = arguments[shard] else { return nil }
    do throws(ShardError) {
      return try choice.shard { name in getenv(name).map { String(cString: $0) } }
    } catch {
      throw UsageError(error.message, hint: error.hint)
    }
  }

  /// A loader with `--set` and `--input` filled in.
  static func loader(_ arguments: ParsedArguments, _ registry: StageRegistry) throws(UsageError) -> JobLoader {
    var loader = JobLoader(registry: registry)
    loader.overrides = arguments.all(set)
    var seen: Set<String> = []
    for override in loader.overrides where !seen.insert(override.name).inserted {
      throw UsageError("--set \(override.name) was given twice")
    }
    loader.inputGlobs = arguments.all(input)
    loader.loadPlugin = { (path, folder, registry) throws(StageError) in
      try registry.load(plugin: path, from: folder)
    }
    return loader
  }

  /// The same where a wrong command line is an error like others.
  static func usageLoader(_ arguments: ParsedArguments, _ registry: StageRegistry) throws(StageError) -> JobLoader {
    do throws(UsageError) { return try loader(arguments, registry) } catch {
      throw StageError("command-line", error.message, kind: .usage, hint: error.hint)
    }
  }

  /// The place of a problem with inputs in the job file, and its exit code.
  static func diagnostics(
    _ error: InputError, _ loaded: LoadedJob, usesOwnInput: Bool
  ) -> (diagnostics: [Diagnostic], exitCode: Int32) {
    let source = loaded.sources.first
    let input = usesOwnInput ? source.flatMap { StrictJSON.parse($0).root }?["input"] : nil
    var exitCode = ExitCode.cannotStart
    let diagnostics = error.problems.map { problem in
      if problem.isInJob { exitCode = .wrongJob }
      var node = input
      if let element = problem.element, let elements = (input?["files"] ?? input?["urls"])?.arrayValue,
        element < elements.count
      {
        node = elements[element]
      }
      return problem.diagnostic(
        path: node?.path, source: source.flatMap { source in node.map { (source.name, $0.range) } })
    }
    return (diagnostics, exitCode.rawValue)
  }
}

extension InputProblem {
  /// Whether what is written is wrong, rather than what is there.
  fileprivate var isInJob: Bool {
    switch code {
    case .empty, .missing, .wrongKind, .unreadable, .service: false
    case .address, .globSyntax, .list, .manifestFormat, .manifestColumn, .manifestRow: true
    }
  }
}

extension Diagnostic {
  /// A job file that cannot be read, as a finding.
  init(unreadable error: StageError, file: String) {
    self.init(
      code: error.code, message: error.message + (error.cause.map { " (\($0))" } ?? ""), file: file, hint: error.hint)
  }
}

/// What the program's exit codes mean. A promise.
public enum ExitCode: Int32, Sendable {
  case done = 0
  case someFailed = 1
  case wrongCommandLine = 2
  case wrongJob = 3
  case cannotStart = 4
  case limitReached = 5
  /// Another run holds the lock; EX_TEMPFAIL of sysexits.h, so that mail systems and schedulers try again.
  case locked = 75

  /// All of them with those of signals, for the manual page.
  static let meanings: [(code: String, meaning: String)] = [
    ("0", "everything done, or nothing to do"),
    ("1", "some pictures failed, or their files changed while they were read"), ("2", "wrong command line"),
    ("3", "wrong job file"),
    ("4", "cannot start: library, model, variable or input missing, state folder not writable"),
    ("5", "stopped at a limit: the run's deadline, the budget, a service's credits or the wait it asks for"),
    ("75", "another run holds the lock of the state folder"),
    ("129, 130, 143", "interrupted by SIGHUP, SIGINT, SIGTERM; the report is written"),
  ]

  /// What a job that cannot be run means.
  init(unusable loaded: LoadedJob) {
    self = loaded.diagnostics.hasErrors && !loaded.isOnlyLackingPlugins ? .wrongJob : .cannotStart
  }

  /// What keeps a run from starting.
  init(of error: StageError) {
    self =
      switch error.kind {
      case .usage: .wrongCommandLine
      case .job: .wrongJob
      case .environment, .item, .temporary, .budget: .cannotStart
      }
  }
}
