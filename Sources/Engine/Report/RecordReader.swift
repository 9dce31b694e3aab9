import JobSyntax
import PipelineKit

// What `ItemRecord.json` writes, read back: from a child that worked on the item, or from the spool after a crash. Both
// were written by this same program, so anything that is not as expected is left out without a word.

extension OutputRecord {
  init?(_ node: JSONNode) {
    let place: Place
    if let path = node["path"]?.stringValue {
      place = .path(PathBytes(display: path))
    } else if let link = node["link"]?.stringValue {
      place = .link(link)
    } else {
      return nil
    }
    guard let format = node["format"]?.stringValue, let width = node["width"]?.numberValue?.integer,
      let height = node["height"]?.numberValue?.integer, let bytes = node["bytes"]?.numberValue?.integer,
      let sha256 = node["sha256"]?.stringValue
    else { return nil }
    self.init(place: place, format: format, width: width, height: height, bytes: bytes, sha256: sha256)
  }
}

extension StageError {
  /// All of the error; in the report some of it stands elsewhere.
  var json: JSONText {
    .object([
      ("code", .string(code)), ("message", .string(message)), ("kind", .string(kind.rawValue)),
      ("cause", cause.map { .string($0) } ?? nil), ("hint", hint.map { .string($0) } ?? nil),
    ])
  }

  init?(_ node: JSONNode) {
    guard let code = node["code"]?.stringValue, let message = node["message"]?.stringValue else { return nil }
    self.init(
      code, message, kind: node["kind"]?.stringValue.flatMap { ErrorClass(rawValue: $0) } ?? .item,
      cause: node["cause"]?.stringValue, hint: node["hint"]?.stringValue)
  }
}

extension TailEnd {
  var json: JSONText {
    var members: [(String, JSONText)] = [("status", .string(status.rawValue))]
    if let stage { members.append(("stage", .string(stage))) }
    if let error { members.append(("error", error.json)) }
    if let reason { members.append(("reason", .string(reason))) }
    return .object(members)
  }

  init?(_ node: JSONNode) {
    guard let status = node["status"]?.stringValue.flatMap({ ItemStatus(rawValue: $0) }) else { return nil }
    self.init(
      status, stage: node["stage"]?.stringValue, error: node["error"].flatMap { StageError($0) },
      reason: node["reason"]?.stringValue)
  }
}

extension ItemRecord {
  static func timings(_ node: JSONNode?) -> [(stage: String, milliseconds: Double)] {
    (node?.arrayValue ?? []).compactMap { entry in
      guard let name = entry["name"]?.stringValue, let time = entry["milliseconds"]?.numberValue?.double else {
        return nil
      }
      return (name, time)
    }
  }

  static func facts(_ node: JSONNode?) -> [String: JSONText] {
    var facts: [String: JSONText] = [:]
    for member in node?.objectValue ?? [] { facts[member.key] = JSONText(member.value.value) }
    return facts
  }

  static func warnings(_ node: JSONNode?) -> [ItemWarning] { (node?.arrayValue ?? []).compactMap { ItemWarning($0) } }

  static func mattes(_ node: JSONNode?) -> [MatteRecord] { (node?.arrayValue ?? []).compactMap { MatteRecord($0) } }

  /// The record of an item from its object in the report.
  init?(index: Int, report node: JSONNode) {
    guard let input = node["input"]?.stringValue,
      let status = node["status"]?.stringValue.flatMap({ ItemStatus(rawValue: $0) })
    else { return nil }
    self.init(index: index, inputIndex: node["index"]?.numberValue?.integer, input: input, status: status)
    outputs = (node["outputs"]?.arrayValue ?? []).compactMap { OutputRecord($0) }
    timings = Self.timings(node["stages"])
    warnings = Self.warnings(node["warnings"])
    mattes = Self.mattes(node["mattes"])
    facts = Self.facts(node["facts"])
    reason = node["reason"]?.stringValue
    inputBytes = node["inputBytes"]?.numberValue?.integer
    guard let problem = node["error"] else { return }
    error = StageError(problem)
    failedStage = problem["stage"]?.stringValue
    // The report's messages begin with the input's name.
    if let message = error?.message, message.hasPrefix(input + ": ") {
      error?.message = String(message.dropFirst(input.count + 2))
    }
  }
}
