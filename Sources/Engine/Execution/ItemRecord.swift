import JobSyntax
import PipelineKit

/// What became of an item.
public enum ItemStatus: String, Sendable, CaseIterable {
  case done, skipped, dropped, failed, deferred, review, notAttempted, unknown
}

/// The literal nil would be the JSON value null.
private let absent: JSONText? = .none

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
  /// Bytes of the input as it was read.
  public var inputBytes: Int?
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
  public var json: JSONText { Self.shape.text(of: self) }

  /// What the report says of an item.
  public static let shape = RecordShape<ItemRecord>([
    .init("index", .integer, "The place among all inputs of the job, from 0.") { .integer($0.inputIndex) },
    .init(
      "input", .text,
      "The input as found; where its bytes are not UTF-8, those that are not and each % stand as %XX."
    ) { .string($0.input) },
    .init("status", .choice(ItemStatus.allCases.map(\.rawValue)), "What became of it.") { .string($0.status.rawValue) },
    .init(
      optional: "inputBytes", .integer, "Size of the input as it was read, in bytes; absent where nothing was read."
    ) { $0.inputBytes.map { .integer($0) } },
    .init(optional: "reason", .text, "Why it was skipped, dropped, put aside or not attempted.") {
      $0.reason.map { .string($0) }
    },
    .init(
      optional: "source", .choice(["moved", "deleted", "kept"]),
      "What became of the input after all was done; absent where nothing was to become of it."
    ) { record in
      switch record.fate {
      case .moved: "moved"
      case .deleted: "deleted"
      case .kept: "kept"
      case nil: absent
      }
    },
    .init(optional: "movedTo", .text, "Where the input was moved.") {
      if case .moved(let path) = $0.fate { .string(path.display) } else { absent }
    },
    .init(optional: "sourceReason", .text, "Why the input stays where it is.") {
      if case .kept(let reason) = $0.fate { .string(reason) } else { absent }
    },
    .init(
      "outputs", .list(.object(OutputRecord.shape.schema)), "What was written or uploaded, in the order of the chain."
    ) {
      .array($0.outputs.map(\.json))
    },
    .init("stages", .list(.object(timingShape.schema)), "The stages that worked on it, with their times.") {
      json(timings: $0.timings)
    },
    .init("warnings", .list(.object(ItemWarning.shape.schema)), "What is worth a look though it went well.") {
      .array($0.warnings.map(\.json))
    },
    .init(optional: "mattes", .list(.object(MatteRecord.shape.schema)), "What is known of its masks.") { record in
      record.mattes.isEmpty ? absent : .array(record.mattes.map(\.json))
    },
    .init(optional: "facts", .named(.any), "What stages noted about it, by name.") { record in
      record.facts.isEmpty ? absent : json(facts: record.facts)
    },
    .init(optional: "error", .object(errorShape.schema), "Why it failed; with status failed only.") { record in
      record.error.map { errorShape.text(of: ($0, record)) }
    },
  ])

  private static let errorShape = RecordShape<(error: StageError, record: ItemRecord)>([
    .init("code", .text, "A stable name for this kind of error.") { .string($0.error.code) },
    .init(optional: "stage", .text, "The stage that failed.") { $0.record.failedStage.map { .string($0) } },
    // Whole without its surroundings: messages are copied out of reports.
    .init("message", .text, "What went wrong, with the input's name.") {
      .string("\($0.record.input): \($0.error.message)")
    },
    .init(optional: "cause", .text, "What a library, the system or a service said.") {
      $0.error.cause.map { .string($0) }
    },
    .init(optional: "hint", .text, "What to try.") { $0.error.hint.map { .string($0) } },
  ])

  private static let timingShape = RecordShape<(stage: String, milliseconds: Double)>([
    .init("name", .text, "The stage's name, with its tail and its place where a chain has it more than once.") {
      .string($0.stage)
    },
    .init("milliseconds", .number, "How long it worked on this picture.") {
      .number(($0.milliseconds * 1000).rounded() / 1000)
    },
  ])

  static func json(timings: [(stage: String, milliseconds: Double)]) -> JSONText {
    .array(timings.map { timingShape.text(of: $0) })
  }

  static func json(facts: [String: JSONText]) -> JSONText {
    .object(facts.sorted { $0.key < $1.key }.map { ($0.key, $0.value) })
  }
}

extension OutputRecord {
  /// The output's object in the report.
  var json: JSONText { Self.shape.text(of: self) }

  /// What the report says of an output: it has either a path or a link.
  static let shape = RecordShape<OutputRecord>([
    .init(optional: "path", .text, "The file, absolute; written as the item's input is.") {
      if case .path(let path) = $0.place { .string(path.display) } else { absent }
    },
    .init(optional: "link", .text, "Where a service keeps it.") {
      if case .link(let link) = $0.place { .string(link) } else { absent }
    },
    .init("format", .text, "Such as jpeg, png or webp.") { .string($0.format) },
    .init("width", .integer, "Pixels.") { .integer($0.width) },
    .init("height", .integer, "Pixels.") { .integer($0.height) },
    .init("bytes", .integer, "Size of the file or of what was uploaded.") { .integer($0.bytes) },
    .init("sha256", .text, "SHA-256 of those bytes, 64 hex digits.") { .string($0.sha256) },
  ])
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

  public var json: JSONText { Self.shape.text(of: self) }

  /// What the report says of the counts.
  static let shape = RecordShape<ItemCounts>(
    ItemStatus.allCases.map { status in
      .init(status.rawValue, .integer, "Pictures that ended as \(status.rawValue).") { .integer($0[status]) }
    })
}
