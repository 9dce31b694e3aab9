import Digest
import Engine
import Glibc
import JobSyntax
import PipelineKit
import Transport

/// What a CI system shows beside a log: for GitHub commands in the log and a page for the step, for GitLab a part of the
/// log that folds. What else GitLab shows it reads from files: `--junit` of a run, `--code-quality` of lint.
///
/// All of it goes to standard error, which both systems read too: standard output is for results.
struct Annotations: Sendable {
  enum Choice: String, CaseIterable, Sendable { case auto, none, github, gitlab }
  enum System: Sendable { case github, gitlab }

  static let option = Option<Choice>.choice(
    "annotations",
    help:
      "marks failures for a CI system to show; auto (the default) finds GitHub and GitLab in the environment, and marks "
      + "nothing where standard error is JSON")

  /// Whose marks are written into the log; nil for none.
  let system: System?
  /// The file that GitHub shows as the page of a step; nil for none.
  let summary: PathBytes?

  /// GitHub shows so many of each kind for a step.
  private static let mostOfAKind = 10
  /// Larger pages are not shown at all.
  private static let mostSummaryBytes = 1 << 20
  private static let mostListed = 1000

  init(_ choice: Choice?, logIsJSON: Bool) {
    let choice = choice ?? .auto
    system =
      switch choice {
      case .none: nil
      case .github: .github
      case .gitlab: .gitlab
      case .auto: logIsJSON ? nil : Self.isGitHub ? .github : Self.variable("GITLAB_CI") == "true" ? .gitlab : nil
      }
    let mayHavePage = choice == .github || choice == .auto && Self.isGitHub
    summary = mayHavePage ? Self.variable("GITHUB_STEP_SUMMARY").map { PathBytes($0) } : nil
  }

  /// Whether GitHub's runner reads what is written.
  static let isGitHub = variable("GITHUB_ACTIONS") == "true"

  var isEmpty: Bool { system == nil && summary == nil }

  private static func variable(_ name: String) -> String? {
    getenv(name).map { String(cString: $0) }.flatMap { $0.isEmpty ? nil : $0 }
  }

  // MARK: Marks

  /// One mark of GitHub's.
  struct Mark: Sendable, Hashable {
    enum Kind: String, Sendable { case error, warning, notice }
    var kind: Kind
    /// Seen from the repository's folder; nil for what is not in it.
    var file: String?
    var line: Int?
    var column: Int?
    var endColumn: Int?
    var title: String?
    var message: String

    /// The command, on one line.
    var command: String {
      var properties: [String] = []
      func add(_ name: String, _ value: String?) {
        if let value { properties.append("\(name)=\(Self.property(value))") }
      }
      add("file", file)
      add("line", line.map { "\($0)" })
      add("col", column.map { "\($0)" })
      add("endColumn", endColumn.map { "\($0)" })
      add("title", title)
      return
        "::\(kind.rawValue)\(properties.isEmpty ? "" : " ")\(properties.joined(separator: ","))::\(Self.data(message))"
    }

    private static func data(_ text: String) -> String { escaped(text, isProperty: false) }
    private static func property(_ text: String) -> String { escaped(text, isProperty: true) }

    private static func escaped(_ text: String, isProperty: Bool) -> String {
      var result = ""
      for scalar in text.unicodeScalars {
        switch scalar {
        case "%": result += "%25"
        case "\r": result += "%0D"
        case "\n": result += "%0A"
        case ":" where isProperty: result += "%3A"
        case "," where isProperty: result += "%2C"
        // A log is read on terminals too.
        case _ where scalar.value < 0x20 && scalar != "\t" || (0x7F...0x9F).contains(scalar.value): break
        default: result.unicodeScalars.append(scalar)
        }
      }
      return result
    }
  }

  /// As many marks as are shown; where there are more, the last says how many.
  static func capped(_ marks: [Mark], more: (Int) -> String) -> [Mark] {
    var result: [Mark] = []
    for kind in [Mark.Kind.error, .warning, .notice] {
      let all = marks.filter { $0.kind == kind }
      guard all.count > mostOfAKind else {
        result += all
        continue
      }
      result += all.prefix(mostOfAKind - 1)
      result.append(Mark(kind: kind, message: more(all.count - mostOfAKind + 1)))
    }
    return result
  }

  private func write(_ marks: [Mark]) {
    guard system == .github else { return }
    for mark in marks { StandardStreams.writeError(mark.command + "\n") }
  }

  /// The path of a file as GitHub wants it; nil for one outside of the repository.
  static func path(_ path: PathBytes) -> String? {
    guard let current = PathBytes.currentFolder else { return nil }
    let whole = current.joining(path).normalised
    let root = (variable("GITHUB_WORKSPACE") ?? variable("CI_PROJECT_DIR")).map { PathBytes($0).normalised } ?? current
    return whole.isInside(root) && whole != root ? whole.relative(to: root).display : nil
  }

  // MARK: Findings

  /// Marks findings in job files.
  func show(_ diagnostics: [Diagnostic]) {
    let marks = diagnostics.sorted { $0.severity < $1.severity }.map { finding in
      let place = finding.range?.start
      let end = finding.range?.end
      return Mark(
        kind: finding.severity == .error ? .error : finding.severity == .warning ? .warning : .notice,
        file: finding.file.flatMap { Self.path(PathBytes($0)) }, line: place?.line, column: place?.column,
        endColumn: place?.line == end?.line ? end?.column : nil, title: finding.code,
        message: finding.message + (finding.hint.map { "\n\($0)" } ?? ""))
    }
    write(Self.capped(marks) { "and \(Wording.count($0, "more finding")); the log has all" })
  }

  /// Marks what kept a run from starting.
  func show(_ error: StageError) {
    write([Mark(kind: .error, title: error.code, message: error.description)])
  }

  // MARK: Runs

  /// Marks what became of a run's pictures.
  ///
  /// - Throws: `summary-failed` where GitHub's page cannot be written.
  func show(
    _ run: JobRun, _ plan: RunPlan, _ outcome: RunOutcome, exitCode: Int32, isQuiet: Bool
  ) throws(StageError) {
    guard !isEmpty else { return }
    var tally = FailureTally()
    try run.forEachRecord { tally.add($0) }
    switch system {
    case .github: write(marks(tally, plan, outcome, withWarnings: !isQuiet))
    case .gitlab: section(tally, outcome)
    case nil: break
    }
    if let summary { try append(page(tally, run, outcome, exitCode: exitCode), to: summary) }
  }

  private func marks(
    _ tally: FailureTally, _ plan: RunPlan, _ outcome: RunOutcome, withWarnings: Bool
  ) -> [Mark] {
    var marks = ([outcome.startError].compactMap(\.self) + outcome.finishErrors).map {
      Mark(kind: .error, title: $0.code, message: $0.description)
    }
    func mark(_ kind: Mark.Kind, _ group: FailureTally.Group, _ example: FailureTally.Example) -> Mark {
      var message = "\(example.input): \(example.message)"
      if let hint = group.hint { message += "\ntry: \(hint)" }
      if group.count > 1 { message += "\n\(Wording.count(group.count, "picture")) in all" }
      let file = plan.inputs.file(at: example.index).flatMap { Self.path($0) }
      return Mark(kind: kind, file: file, title: group.title, message: message)
    }
    // Of each cause one, before any has a second: the first are shown.
    func spread(_ groups: [FailureTally.Group], _ kind: Mark.Kind) -> [Mark] {
      let groups = groups.sorted { $0.count > $1.count }
      let most = groups.map(\.examples.count).max() ?? 0
      return (0..<most).flatMap { round in
        groups.compactMap { round < $0.examples.count ? mark(kind, $0, $0.examples[round]) : nil }
      }
    }
    let errors = marks.count
    marks += spread(tally.failures, .error)
    let shown = marks.count
    let failed = tally.failures.reduce(0) { $0 + $1.count } + tally.otherFailures
    if failed + errors > Self.mostOfAKind {
      marks = Array(marks.prefix(Self.mostOfAKind - 1))
      let rest = failed + errors - marks.count
      marks.append(
        Mark(kind: .error, message: "and \(Wording.count(rest, "more failure")); the log and the report have all"))
    } else {
      marks = Array(marks.prefix(shown))
    }
    guard withWarnings else { return marks }
    return marks
      + Self.capped(tally.warnings.map { mark(.warning, $0, $0.examples[0]) }) {
        "and \(Wording.count($0, "more kind")) of warnings"
      }
  }

  /// Lists every failure in a part of GitLab's log that is folded.
  private func section(_ tally: FailureTally, _ outcome: RunOutcome) {
    let failed = tally.failures.reduce(0) { $0 + $1.count } + tally.otherFailures
    guard failed > 0 else { return }
    let now = Int(RunClock.now())
    var text = "\u{1B}[0Ksection_start:\(now):pipeline_failures[collapsed=true]\r\u{1B}[0K"
    text += "\(Wording.count(failed, "picture")) failed\n"
    var listed = 0
    for group in tally.failures {
      for example in group.examples {
        text += "\(Wording.oneLine(group.title)): \(Wording.name(example.input)): \(Wording.oneLine(example.message))\n"
        listed += 1
      }
      if let hint = group.hint { text += "  try: \(Wording.oneLine(hint))\n" }
    }
    if failed > listed { text += "and \(failed - listed) more; --junit FILE gives GitLab all\n" }
    text += "\u{1B}[0Ksection_end:\(now):pipeline_failures\r\u{1B}[0K\n"
    StandardStreams.writeError(text)
  }

  // MARK: The step's page

  private func page(_ tally: FailureTally, _ run: JobRun, _ outcome: RunOutcome, exitCode: Int32) -> String {
    let counts = outcome.counts
    let failed = counts[.failed] + counts[.unknown] + counts[.deferred]
    var text = "### \(exitCode == 0 ? "✅" : "❌") \(Self.markdown(run.job.name)): "
    text += failed > 0 ? "\(failed) of \(counts.total) failed" : "\(counts[.done]) of \(counts.total) done"
    text += "\n\n\(Wording.duration(outcome.wallSeconds)), exit code \(exitCode)"
    if let shard = run.options.shard { text += ", shard \(shard.index) of \(shard.count)" }
    text += "\n\n| status | pictures |\n| --- | ---: |\n"
    for status in ItemStatus.allCases where counts[status] > 0 {
      text += "| \(status.rawValue) | \(counts[status]) |\n"
    }
    for error in [outcome.startError].compactMap(\.self) + outcome.finishErrors {
      text += "\n**\(Self.markdown(error.code))**: \(Self.markdown(error.description))\n"
    }
    func table(_ groups: [FailureTally.Group], _ title: String) {
      guard !groups.isEmpty else { return }
      text += "\n#### \(title)\n\n| pictures | cause | example | what to try |\n| ---: | --- | --- | --- |\n"
      for group in groups.sorted(by: { $0.count > $1.count }).prefix(50) {
        let example = group.examples.first.map { "\($0.input): \($0.message)" } ?? ""
        text += "| \(group.count) | \(Self.markdown(group.title)) | \(Self.markdown(example)) "
        text += "| \(Self.markdown(group.hint ?? "")) |\n"
      }
      if groups.count > 50 { text += "\nand \(groups.count - 50) more causes\n" }
    }
    table(tally.failures, "Failures")
    table(tally.warnings, "Warnings")
    return text + "\n"
  }

  /// Text that Markdown shows as it is, in one cell of a table.
  private static func markdown(_ text: String) -> String {
    var result = ""
    for scalar in Wording.oneLine(text).unicodeScalars.prefix(1000) {
      switch scalar {
      case "&": result += "&amp;"
      case "<": result += "&lt;"
      case ">": result += "&gt;"
      // A mention would call somebody, and a number link somewhere.
      case "@": result += "&#64;"
      case "#": result += "&#35;"
      case "\\", "`", "*", "_", "{", "}", "[", "]", "(", ")", "!", "|", "~", "$":
        result += "\\"
        result.unicodeScalars.append(scalar)
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result
  }

  private func append(_ text: String, to path: PathBytes) throws(StageError) {
    func failure(_ number: Int32) -> StageError {
      StageError(
        "summary-failed", "the step's summary \(path.printable) could not be written", kind: .environment,
        cause: String(cString: strerror(number)))
    }
    let descriptor = path.withCString { open($0, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o666) }
    guard descriptor >= 0 else { throw failure(errno) }
    defer { close(descriptor) }
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { throw failure(errno) }
    let bytes = Array(Secrets.redacted(text).utf8)
    // What others have written stays readable.
    guard Int(status.st_size) + bytes.count <= Self.mostSummaryBytes else { return }
    if let number = bytes.withUnsafeBytes({ StandardStreams.write($0, to: descriptor) }) { throw failure(number) }
  }
}

/// Failures and warnings by cause, with some pictures of each.
private struct FailureTally {
  struct Example {
    /// In the run.
    var index: Int
    var input: String
    var message: String
  }
  struct Group {
    var title: String
    var hint: String?
    var count = 0
    var examples: [Example] = []
  }

  private static let mostGroups = 200
  private static let mostExamples = 100

  private(set) var failures: [Group] = []
  private(set) var warnings: [Group] = []
  private(set) var otherFailures = 0
  private var places: [String: Int] = [:]

  mutating func add(_ record: ItemRecord) {
    switch record.status {
    case .failed, .unknown, .deferred:
      let code = record.error?.code ?? record.status.rawValue
      let title = record.failedStage.map { "\(code) in stage \"\($0)\"" } ?? code
      let example = Example(index: record.index, input: record.input, message: RunTally.message(of: record))
      if !Self.add(example, title, record.error?.hint, "f", to: &failures, &places) { otherFailures += 1 }
    case .done, .skipped, .dropped, .review, .notAttempted: break
    }
    var seen: Set<String> = []
    for warning in record.warnings {
      let title = "\(warning.code) in stage \"\(warning.stage)\""
      guard seen.insert(title).inserted else { continue }
      let example = Example(index: record.index, input: record.input, message: warning.message)
      _ = Self.add(example, title, nil, "w", to: &warnings, &places)
    }
  }

  private static func add(
    _ example: Example, _ title: String, _ hint: String?, _ kind: String, to groups: inout [Group],
    _ places: inout [String: Int]
  ) -> Bool {
    let key = "\(kind)\u{0}\(title)\u{0}\(hint ?? "")"
    let place = places[key] ?? groups.count
    if place == groups.count {
      guard groups.count < mostGroups else { return false }
      groups.append(Group(title: title, hint: hint))
      places[key] = place
    }
    groups[place].count += 1
    if groups[place].examples.count < mostExamples { groups[place].examples.append(example) }
    return true
  }
}

/// Findings as GitLab's Code Quality report has them: a subset of Code Climate's format.
enum CodeQuality {
  static func json(_ diagnostics: [Diagnostic]) -> JSONText {
    var seen: [String: Int] = [:]
    return .array(
      diagnostics.map { finding in
        let file = finding.file.map { Annotations.path(PathBytes($0)) ?? $0 } ?? ""
        // What stays the same when lines are added above; GitLab compares branches by it.
        let identity = [finding.code, file, finding.path ?? "", finding.message].joined(separator: "\u{0}")
        let number = seen[identity, default: 0]
        seen[identity] = number + 1
        let print = Hex.text(SHA256.digest(of: Array("\(identity)\u{0}\(number)".utf8)))
        let severity =
          switch finding.severity {
          case .error: "major"
          case .warning: "minor"
          case .note: "info"
          }
        return .object([
          ("description", .string(finding.message + (finding.hint.map { " (\($0))" } ?? ""))),
          ("check_name", .string(finding.code)), ("fingerprint", .string(print)), ("severity", .string(severity)),
          (
            "location",
            .object([
              ("path", .string(file)),
              ("lines", .object([("begin", .integer(finding.range?.start.line ?? 1))])),
            ])
          ),
        ])
      })
  }
}
