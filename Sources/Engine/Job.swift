import Imaging
import JobSyntax
import PipelineKit

/// One stage of a job, read and checked.
public struct JobStage: Sendable {
  public let descriptor: StageDescriptor
  public let settings: Settings
  public let plan: StagePlan
  /// From 0, through the tree of chains depth first: a stage comes before those that go on with its result.
  public let index: Int
  /// The stage's name, with its tail and its place where a chain has it more than once: `write`, `write 2`,
  /// `thumb/write`.
  public let label: String
  /// The stage whose result this one takes; nil for the first.
  public let predecessor: Int?
  /// The names of the tails that lead here from the first chain.
  public let tail: [String]
  /// The stage as it stands in the job.
  let node: JSONNode

  /// Where it does not hold, the stage is passed over.
  public var condition: Condition? { settings[CommonFields.when] }
}

/// A job file, read, filled in and found without errors.
public struct Job: Sendable {
  public var name: String
  /// The file as given, for messages.
  public var file: String
  /// Absolute folder of the job file.
  public var baseFolder: PathBytes
  public var input: InputDeclaration
  /// What relative input paths start from: the job's folder, or the current folder for `--input`.
  public var inputFolder: PathBytes
  /// The tree of chains, flat and depth first; see `JobStage.predecessor`.
  public var stages: [JobStage]
  public var onError: OnError
  /// Seconds.
  public var deadline: Double?
  /// Seconds.
  public var itemDeadline: Double
  /// Seconds.
  public var graceTime: Double
  public var timeZone: String
  public var decodeLimits: DecodeLimits
  /// Bytes; nil for the machine's default.
  public var memoryLimit: Int?
  /// The folder that the job names for what runs must remember; absolute.
  public var stateFolder: PathBytes?
  /// Bytes of results of costly stages that are kept between runs.
  public var resultBytes: Int
  public var portable: Bool
  public var onSuccess: OnSuccess = .keep
  public var network = NetworkOptions()
  /// How pictures that are no files here are fetched.
  public var remote = RemoteOptions()
  /// Nil where nothing may be paid.
  public var budget: Budget?

  /// What one item may cost at most, by service; empty where nothing is paid.
  public var prices: [Price] { stages.compactMap(\.plan.price) }
}

extension [JobStage] {
  /// The stages that lead to one, from the first, and that one.
  func path(to stage: JobStage) -> [JobStage] {
    var path = [stage]
    while let predecessor = path.last?.predecessor { path.append(self[predecessor]) }
    return path.reversed()
  }
}

/// What reading a job file gave: a job, unless there are errors, and everything found.
public struct LoadedJob: Sendable {
  public var job: Job?
  public var diagnostics: [Diagnostic]
  public var sources: [SourceFile]

  /// Whether nothing is wrong with the job but that plugins of it were refused here.
  public var isOnlyLackingPlugins: Bool {
    diagnostics.hasErrors && diagnostics.allSatisfy { $0.severity != .error || $0.code.hasPrefix("plugin-") }
  }

  /// Names of environment variables that the job needs and that are not set.
  public var unsetEnvironment: [Diagnostic] { diagnostics.filter { $0.code == JobLoader.unsetEnvironmentCode } }
}
