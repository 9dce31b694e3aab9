import Engine
import JobSyntax
import PipelineKit
import Transport

/// How lines on standard error are written.
enum LogFormat: String, CaseIterable, Sendable {
  case text, json
}

/// Messages of `run`, as text or as one JSON object a line.
struct RunLog: Sendable {
  enum Level: String, Sendable { case info, warning, error }

  let format: LogFormat
  /// Only errors are written.
  let isQuiet: Bool
  let screen: Screen

  /// Writes an event.
  ///
  /// - Parameters:
  ///   - text: the line in text form; nil where an event is for machines only.
  ///   - fields: further members in JSON form.
  func write(_ level: Level, _ event: String, _ text: String?, _ fields: [(String, JSONText)] = []) {
    guard !isQuiet || level == .error else { return }
    switch format {
    case .text:
      if let text { screen.log(Secrets.redacted(text)) }
    case .json:
      var members: [(String, JSONText)] = [
        ("time", .string(Self.timestamp())), ("level", .string(level.rawValue)), ("event", .string(event)),
      ]
      if let text, !fields.contains(where: { $0.0 == "message" }) { members.append(("message", .string(text))) }
      screen.log(Self.visible(JSONText.object(members + fields).mapStrings(Secrets.redacted).rendered()))
    }
  }

  /// JSON escapes only the controls below 0x20. Those above change what a terminal shows, too, and some readers end a line
  /// at the two separators.
  private static func visible(_ json: String) -> String {
    func isControl(_ scalar: Unicode.Scalar) -> Bool {
      (0x7F...0x9F).contains(scalar.value) || (0x2028...0x2029).contains(scalar.value)
    }
    guard json.unicodeScalars.contains(where: isControl) else { return json }
    var result = ""
    for scalar in json.unicodeScalars {
      if isControl(scalar) {
        let digits = String(scalar.value, radix: 16)
        result += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
      } else {
        result.unicodeScalars.append(scalar)
      }
    }
    return result
  }

  /// Why a run cannot start or a report could not be written.
  func write(_ error: StageError) {
    write(
      .error, "error", "pipeline: " + Wording.oneLine(error.description),
      [
        ("code", .string(error.code)), ("message", .string(error.message)),
        ("cause", error.cause.map { .string($0) } ?? nil), ("hint", error.hint.map { .string($0) } ?? nil),
      ])
  }

  func write(_ diagnostics: [Diagnostic], sources: [SourceFile]) {
    let renderer = DiagnosticRenderer(width: screen.terminal.diagnosticWidth)
    for diagnostic in diagnostics {
      let level: Level =
        switch diagnostic.severity {
        case .error: .error
        case .warning: .warning
        case .note: .info
        }
      guard format == .json else {
        write(
          level, "diagnostic", renderer.text([diagnostic], sources: sources, color: screen.terminal.usesColor))
        continue
      }
      var fields: [(String, JSONText)] = []
      if case .object(let members) = renderer.jsonValue(diagnostic) { fields = members }
      write(level, "diagnostic", nil, fields)
    }
  }

  /// UTC, to the millisecond.
  private static func timestamp() -> String {
    let now = RunClock.now()
    let millis = Int((now - now.rounded(.down)) * 1000)
    let digits = String(millis)
    return RunClock.timestamp(of: now).dropLast() + "." + String(repeating: "0", count: 3 - digits.count) + digits + "Z"
  }
}

extension RunLog {
  /// Says of every picture why it is worked on or not.
  func explain(_ plan: RunPlan) {
    for index in plan.inputs.indices {
      let name = plan.inputs[index].name
      let (decision, reason): (String, String) =
        switch plan.decisions[index] {
        case nil: ("run", plan.reasons[index] ?? "")
        case .skip(let reason): ("skip", reason)
        case .drop(let reason): ("drop", reason)
        case .fail(let error, _): ("fail", error.message)
        }
      write(
        .info, "explain", "\(name.printable): \(decision): \(Wording.oneLine(reason))",
        [("input", .string(name.display)), ("decision", .string(decision)), ("reason", .string(reason))])
    }
  }
}
