import JobSyntax
import PipelineKit

/// What became of an item.
public enum ItemStatus: String, Sendable, CaseIterable {
  case done, skipped, dropped, failed, deferred, review, notAttempted, unknown
}

/// Everything that is reported about one item.
public struct ItemRecord: Sendable {
  public var index: Int
  /// The place among all inputs of the job, from 0: another than `index` in a shard.
  public var inputIndex: Int
  /// The input as found; bytes that are not UTF-8 percent-escaped.
  public var input: String
  public var status: ItemStatus
  public var outputs: [OutputRecord] = []
  public var timings: [(stage: String, milliseconds: Double)] = []
  public var warnings: [ItemWarning] = []
  public var mattes: [MatteRecord] = []
  public var facts: [String: JSONText] = [:]
  public var error: StageError?
  /// The stage that failed.
  public var failedStage: String?
  /// What was read, where anything was.
  public var source: SourceFacts?
  /// What became of the source after all was done; nil where nothing was to become of it.
  var fate: ItemSource.Fate?
  /// Why an item was skipped, dropped, put aside for review or not attempted.
  public var reason: String?

  /// - Parameters:
  ///   - inputIndex: `index`, where nil.
  ///   - input: the input as found; bytes that are not UTF-8 percent-escaped.
  ///   - status: how it ended.
  ///   - index: the place among the items of this run, from 0.
  public init(index: Int, inputIndex: Int? = nil, input: String, status: ItemStatus) {
    self.index = index
    self.inputIndex = inputIndex ?? index
    self.input = input
    self.status = status
  }

  /// The item's object in the report.
  public var json: JSONText {
    var members: [(String, JSONText)] = [
      ("index", .integer(inputIndex)), ("input", .string(input)), ("status", .string(status.rawValue)),
    ]
    if let reason { members.append(("reason", .string(reason))) }
    switch fate {
    case .moved(let path): members += [("source", "moved"), ("movedTo", .string(path.display))]
    case .deleted: members.append(("source", "deleted"))
    case .kept(let reason): members += [("source", "kept"), ("sourceReason", .string(reason))]
    case nil: break
    }
    members.append(("outputs", .array(outputs.map(\.json))))
    members.append(("stages", Self.json(timings: timings)))
    members.append(("warnings", .array(warnings.map(\.json))))
    if !mattes.isEmpty { members.append(("mattes", .array(mattes.map(\.json)))) }
    if !facts.isEmpty { members.append(("facts", Self.json(facts: facts))) }
    if let error {
      var object: [(String, JSONText)] = [("code", .string(error.code))]
      if let failedStage { object.append(("stage", .string(failedStage))) }
      // Whole without its surroundings: messages are copied out of reports.
      object.append(("message", .string("\(input): \(error.message)")))
      if let cause = error.cause { object.append(("cause", .string(cause))) }
      if let hint = error.hint { object.append(("hint", .string(hint))) }
      members.append(("error", .object(object)))
    }
    return .object(members)
  }

  static func json(timings: [(stage: String, milliseconds: Double)]) -> JSONText {
    .array(
      timings.map {
        .object([("name", .string($0.stage)), ("milliseconds", .number(($0.milliseconds * 1000).rounded() / 1000))])
      })
  }

  static func json(facts: [String: JSONText]) -> JSONText {
    .object(facts.sorted { $0.key < $1.key }.map { ($0.key, $0.value) })
  }
}

extension OutputRecord {
  /// The output's object in the report.
  var json: JSONText {
    let place: (String, JSONText) =
      switch place {
      case .path(let path): ("path", .string(path.display))
      case .link(let link): ("link", .string(link))
      }
    return .object([
      place, ("format", .string(format)), ("width", .integer(width)), ("height", .integer(height)),
      ("bytes", .integer(bytes)), ("sha256", .string(sha256)),
    ])
  }
}

/// How many items ended in which status; the report, the summary and the exit code all come from here.
public struct ItemCounts: Sendable, Hashable {
  private var counts: [ItemStatus: Int] = [:]

  public init() {}

  public subscript(status: ItemStatus) -> Int {
    get { counts[status, default: 0] }
    set { counts[status] = newValue }
  }

  public var total: Int { counts.values.reduce(0, +) }

  /// Whether some item ended badly enough for exit code 1.
  public var hasFailures: Bool { self[.failed] + self[.unknown] + self[.deferred] > 0 }

  public var json: JSONText { .object(ItemStatus.allCases.map { ($0.rawValue, .integer(self[$0])) }) }
}
