import Engine
import PipelineKit

/// What a run says at its end: totals first, failures last.
struct RunSummary: Sendable {
  var jobName: String
  var outcome: RunOutcome
  var tally: RunTally
  /// Items that were worked on, for the rate.
  var worked: Int
  var libraryLines: (count: Int, last: [String])
  var reportPath: String?
  /// Only what explains an exit code other than 0.
  var isQuiet: Bool
  /// What held the run up.
  var bottleneck: RunLoad.Bottleneck?

  func lines(color: Bool) -> [String] {
    func paint(_ text: String, _ code: String) -> String { color ? "\u{1B}[\(code)m\(text)\u{1B}[0m" : text }
    var lines = [totals]
    if !isQuiet, !tally.warnings.isEmpty {
      lines.append(paint("warnings:", "33"))
      for group in tally.warnings {
        let who = group.count == 1 ? group.input : "\(Wording.count(group.count, "picture")), such as \(group.input)"
        lines.append("  \(group.code) in \(group.stage), \(who): \(Wording.oneLine(group.message))")
      }
    }
    if !isQuiet, tally.reviewCount > 0 {
      lines.append(paint("for review:", "33") + " \(Wording.count(tally.reviewCount, "picture"))")
      lines += tally.reviews.map { "  \($0.input): \(Wording.oneLine($0.reason))" }
      if tally.reviewCount > tally.reviews.count {
        lines.append("  and \(tally.reviewCount - tally.reviews.count) more\(seeReport)")
      }
    }
    if !isQuiet, hasFailures, libraryLines.count > 0 {
      lines.append(
        libraryLines.count > libraryLines.last.count
          ? "libraries wrote \(libraryLines.count) lines (--verbose shows all); the last:" : "libraries wrote:")
      lines += libraryLines.last.map { "  " + Wording.oneLine($0) }
    }
    if !isQuiet, outcome.crashes > 0 {
      lines.append(
        outcome.crashes == 1
          ? "the program crashed and took up again" : "the program crashed \(outcome.crashes) times and took up again")
    }
    if outcome.abandonedWorkers > 0 {
      lines.append(
        outcome.abandonedWorkers == 1
          ? "1 worker was left behind in a call that did not return"
          : "\(outcome.abandonedWorkers) workers were left behind in calls that did not return")
    }
    if outcome.isLimited {
      lines.append(
        paint(
          "a limit was reached: \(Wording.count(outcome.counts[.notAttempted], "picture")) left for the next run"
            + (tally.limit.map { " (\(Wording.oneLine($0)))" } ?? ""), "33"))
    }
    if let stop = stopText { lines.append(paint(stop, "33")) }
    for error in outcome.finishErrors {
      lines.append(paint("failed:", "1;31") + " " + Wording.oneLine(error.description))
    }
    for group in tally.failures { lines += failureLines(group, paint) }
    if tally.otherFailures > 0 {
      lines.append("and \(Wording.count(tally.otherFailures, "more failure")) of further kinds\(seeReport)")
    }
    return lines
  }

  private var hasFailures: Bool { outcome.counts.hasFailures || !outcome.finishErrors.isEmpty }

  private var totals: String {
    let counts = outcome.counts
    guard counts.total > 0 else { return "\(Wording.oneLine(jobName)): nothing to do" }
    var parts: [String] = []
    for status in ItemStatus.allCases where counts[status] > 0 || status == .done {
      parts.append("\(counts[status]) \(Self.name(status))")
    }
    var line = "\(Wording.oneLine(jobName)): \(parts.joined(separator: ", ")) of \(counts.total)"
    line += " in \(Wording.duration(outcome.wallSeconds))"
    if counts[.done] > 0, outcome.wallSeconds > 0 { line += ", \(Wording.rate(Double(worked) / outcome.wallSeconds))" }
    line += ", peak memory \(Wording.bytes(outcome.peakBytes))"
    return line + (bottleneck.map { ", bottleneck \($0.text)" } ?? "")
  }

  private static func name(_ status: ItemStatus) -> String {
    switch status {
    case .notAttempted: "not attempted"
    case .review: "for review"
    default: status.rawValue
    }
  }

  private var stopText: String? {
    switch outcome.stop {
    case .interrupted(let signal): "interrupted by \(SignalName.text(signal))"
    case .deadline: "stopped: the run's deadline was reached; run.deadline sets it"
    case .failure: "stopped after the first failure"
    case nil: nil
    }
  }

  private var seeReport: String { reportPath.map { "; see \(Wording.oneLine($0))" } ?? "; --report FILE lists all" }

  private func failureLines(_ group: RunTally.FailureGroup, _ paint: (String, String) -> String) -> [String] {
    var head = "\(Wording.oneLine(group.code))"
    if let stage = group.stage { head += " in stage \"\(Wording.oneLine(stage))\"" }
    head += ", \(Wording.count(group.count, "picture"))"
    var lines = [paint(group.status.rawValue + ":", "1;31") + " " + head]
    if group.hasOneMessage, group.examples.count > 1, let message = group.examples.first?.message {
      lines[0] += ": " + Wording.oneLine(message)
      lines += group.examples.map { "  " + $0.input }
    } else {
      lines += group.examples.map { example in
        let message = Wording.oneLine(example.message)
        return message.hasPrefix(example.input) ? "  " + message : "  \(example.input): \(message)"
      }
    }
    if group.count > group.examples.count {
      lines.append("  and \(group.count - group.examples.count) more\(seeReport)")
    }
    if let hint = group.hint { lines.append("  try: " + Wording.oneLine(hint)) }
    return lines
  }
}
