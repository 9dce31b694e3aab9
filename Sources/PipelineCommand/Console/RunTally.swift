import Engine
import JobSyntax
import PipelineKit

/// Failures and warnings of a run, grouped for the summary. Holds a few examples of each, however many there are.
struct RunTally: Sendable {
  /// Failures of one kind in one stage.
  struct FailureGroup: Sendable {
    var status: ItemStatus
    var code: String
    var stage: String?
    var count = 0
    /// The first inputs with their messages.
    var examples: [(input: String, message: String)] = []
    /// What to try; the first that was offered.
    var hint: String?

    var hasOneMessage: Bool { examples.allSatisfy { $0.message == examples.first?.message } }
  }

  /// Warnings of one kind.
  struct WarningGroup: Sendable {
    var code: String
    var stage: String
    /// Pictures, not warnings.
    var count = 0
    var input: String
    var message: String
  }

  static let mostExamples = 10
  /// A run whose failures are all different is not listed without end.
  private static let mostGroups = 200

  private var groups: [FailureGroup] = []
  /// The most frequent first; of those as frequent, the one met first.
  var failures: [FailureGroup] {
    groups.enumerated().sorted { left, right in
      left.element.count != right.element.count
        ? left.element.count > right.element.count : left.offset < right.offset
    }.map(\.element)
  }
  private(set) var warnings: [WarningGroup] = []
  /// The first pictures that were put aside for a person, with the reasons.
  private(set) var reviews: [(input: String, reason: String)] = []
  private(set) var reviewCount = 0
  /// Why the first picture was not attempted.
  private(set) var limit: String?
  /// Failures beyond the groups kept.
  private(set) var otherFailures = 0
  private var failurePlaces: [String: Int] = [:]
  private var warningPlaces: [String: Int] = [:]

  mutating func add(_ record: ItemRecord) {
    let input = Wording.name(record.input)
    switch record.status {
    case .failed, .unknown, .deferred:
      let code = record.error?.code ?? record.status.rawValue
      let stage = record.failedStage
      // What to try belongs to the group: pictures over different limits need different words.
      let key = "\(record.status.rawValue)\u{0}\(code)\u{0}\(stage ?? "")\u{0}\(record.error?.hint ?? "")"
      guard failurePlaces[key] != nil || groups.count < Self.mostGroups else {
        otherFailures += 1
        break
      }
      let place = failurePlaces[key] ?? groups.count
      if place == groups.count {
        groups.append(FailureGroup(status: record.status, code: code, stage: stage))
        failurePlaces[key] = place
      }
      groups[place].count += 1
      if groups[place].examples.count < Self.mostExamples {
        groups[place].examples.append((input, Self.message(of: record)))
      }
      if groups[place].hint == nil { groups[place].hint = record.error?.hint ?? FailureHint.text(for: code) }
    case .review:
      reviewCount += 1
      if reviews.count < Self.mostExamples { reviews.append((input, record.reason ?? "")) }
    case .notAttempted: if limit == nil { limit = record.reason }
    case .done, .skipped, .dropped: break
    }
    var seen: Set<String> = []
    for warning in record.warnings where seen.insert(warning.code + warning.stage).inserted {
      let key = warning.code + "\u{0}" + warning.stage
      if let place = warningPlaces[key] {
        warnings[place].count += 1
      } else if warnings.count < Self.mostGroups {
        warningPlaces[key] = warnings.count
        warnings.append(
          WarningGroup(code: warning.code, stage: warning.stage, count: 1, input: input, message: warning.message))
      }
    }
  }

  /// Message and cause in one line.
  static func message(of record: ItemRecord) -> String {
    guard let error = record.error else { return record.reason ?? record.status.rawValue }
    return error.message + (error.cause.map { $0.isEmpty ? "" : " (\($0))" } ?? "")
  }

  /// The groups as log fields.
  var json: [(String, JSONText)] {
    [
      (
        "warnings",
        .array(
          warnings.map {
            .object([
              ("code", .string($0.code)), ("stage", .string($0.stage)), ("count", .integer($0.count)),
              ("input", .string($0.input)), ("message", .string($0.message)),
            ])
          })
      ),
      (
        "reviews",
        .array(reviews.map { .object([("input", .string($0.input)), ("reason", .string($0.reason))]) })
      ),
      (
        "failures",
        .array(
          failures.map { group in
            .object([
              ("status", .string(group.status.rawValue)), ("code", .string(group.code)),
              ("stage", group.stage.map { .string($0) } ?? nil), ("count", .integer(group.count)),
              (
                "examples",
                .array(
                  group.examples.map { .object([("input", .string($0.input)), ("message", .string($0.message))]) })
              ),
              ("hint", group.hint.map { .string($0) } ?? nil),
            ])
          })
      ),
    ]
  }
}
