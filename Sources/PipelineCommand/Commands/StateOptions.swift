import Engine
import Glibc
import PipelineKit

/// Options about what runs remember, and opening it.
enum StateOptions {
  static let state = Option<String>.text(
    "state", "DIR", help: "keeps what runs must remember there, instead of where the job says or .pipeline beside it")
  static let force = Option<String>(
    "force", "STAGE", isValueOptional: true,
    help: "does everything again, except what was paid for; with a stage, that and what follows it", expected: "a stage"
  ) { $0 }
  static let retryFailed = Flag("retry-failed", help: "works only on pictures whose last run did not end well")
  static let rebuild = Flag("rebuild", help: "makes again what other versions of libvips or of a stage have made")
  static let checkContent = Flag(
    "check-content", help: "compares the content of inputs and outputs, also where size and times are as they were")
  static let explainSkips = Flag("explain-skips", help: "says of every picture why it is worked on or not")
  static let wait = Option<Double>(
    "wait", "SECONDS", isValueOptional: true,
    help: "waits for another run of the same state folder to end, for so long or as long as it takes",
    expected: "a number of seconds"
  ) { text in
    if text.isEmpty { return .infinity }
    guard let seconds = Double(text), seconds >= 0, seconds.isFinite else { return nil }
    return seconds
  }

  enum IfLocked: String, CaseIterable, Sendable { case fail, skip }
  static let ifLocked = Option<IfLocked>.choice(
    "if-locked",
    help: "what happens while another run holds the lock: exit 75, or exit 0 with nothing done (default fail)"
  )

  static let deciding: [any OptionDeclaration] = [
    state, force, retryFailed, rebuild, checkContent, explainSkips,
  ]
  static let locking: [any OptionDeclaration] = [wait, ifLocked]

  static func history(_ arguments: ParsedArguments) throws(UsageError) -> HistoryOptions {
    var options = HistoryOptions()
    if let stage = arguments[force] {
      options.force = stage.isEmpty
      options.forcedStage = stage.isEmpty ? nil : stage
    }
    options.retryFailed = arguments[retryFailed]
    options.rebuild = arguments[rebuild]
    options.checksContent = arguments[checkContent]
    options.explains = arguments[explainSkips]
    return options
  }

  /// Where the state of a job's runs is kept: as the command line says, or the job, or beside the job.
  static func folder(_ arguments: ParsedArguments, _ job: Job, shard: Shard? = nil) -> StateFolder {
    let path: PathBytes
    if let given = arguments[state] {
      path = (PathBytes.currentFolder ?? PathBytes("/")).joining(PathBytes(given)).normalised
    } else {
      path = job.stateFolder ?? job.baseFolder.joining(PathBytes(StatePlace.defaultName))
    }
    return StateFolder.locate(path, shard: shard.map { ($0.index, $0.count) })
  }
}
