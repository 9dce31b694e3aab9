import Glibc
import PipelineKit

extension JobRun {
  /// Writes the run as JUnit XML, one test case for each picture, atomically. Needs `keepsReport`.
  ///
  /// - Parameters:
  ///   - host: the machine's name.
  ///   - outcome: how the run ended.
  ///   - path: where it goes.
  /// - Throws: `report-failed` of class environment.
  public func writeJUnit(to path: PathBytes, outcome: RunOutcome, host: String) throws(StageError) {
    try AtomicFile.makeFolders(path.parent)
    var problem: StageError?
    try ReportSpool.replace(path, tag: "\(values.runID)-junit") { output in
      var writer = JUnitWriter(run: self, outcome: outcome, host: host, descriptor: output)
      do throws(StageError) {
        try forEachRecord { writer.write($0) }
      } catch {
        problem = error
        return EIO
      }
      return writer.finish()
    }
    if let problem { throw problem }
  }
}

/// Writes one test case after the other, so that a million of them take no memory.
///
/// The format has no standard; this is the part of it that Jenkins, GitLab, GitHub's and Azure's readers share.
struct JUnitWriter {
  private let job: String
  private let descriptor: Int32
  private var buffer: [UInt8] = []
  private var failure: Int32?
  /// Hashes of the names there were: readers drop the second of two with one name.
  private var names: Set<Int> = []

  init(run: JobRun, outcome: RunOutcome, host: String, descriptor: Int32) {
    job = run.job.name
    self.descriptor = descriptor
    let problems = Self.problems(of: outcome)
    let counts = outcome.counts
    let totals: [(String, String?)] = [
      ("tests", "\(counts.total + problems.count)"),
      ("failures", "\(counts[.failed] + counts[.unknown] + counts[.deferred])"), ("errors", "\(problems.count)"),
      ("skipped", "\(counts[.skipped] + counts[.dropped] + counts[.notAttempted])"),
      ("time", Self.seconds(outcome.wallSeconds)),
    ]
    put("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n")
    put("<testsuites\(XMLText.attributes([("name", "pipeline")] + totals))>\n")
    let suite: [(String, String?)] =
      [("name", job)] + totals + [
        // The format's times have no zone; this one is UTC.
        ("timestamp", String(RunClock.timestamp(of: run.started).dropLast())), ("hostname", host),
      ]
    put("<testsuite\(XMLText.attributes(suite))>\n<properties>\n")
    let properties: [(String, String?)] = [
      ("run", run.values.runID), ("job.file", run.job.file), ("version", run.options.programVersion),
      ("workers", "\(outcome.workers)"), ("exitCode", "\(outcome.exitCode)"), ("stop", outcome.stop?.text),
      ("shard", run.options.shard.map { "\($0.index)/\($0.count)" }),
    ]
    for case (let name, let value?) in properties {
      put("<property\(XMLText.attributes([("name", name), ("value", value)]))/>\n")
    }
    put("</properties>\n")
    for problem in problems {
      put("<testcase\(XMLText.attributes([("classname", job), ("name", "(run)"), ("time", "0")]))>\n")
      put("<error\(XMLText.attributes([("message", problem.message), ("type", problem.code)]))>")
      put("\(XMLText.content(problem.text))</error>\n</testcase>\n")
    }
  }

  /// What went wrong with the whole run: pictures that were skipped for it must not make it look well.
  private static func problems(of outcome: RunOutcome) -> [(code: String, message: String, text: String)] {
    var problems = ([outcome.startError].compactMap(\.self) + outcome.finishErrors)
      .map { ($0.code, $0.message, $0.description) }
    let left = "\(outcome.counts[.notAttempted]) pictures were left for the next run"
    switch outcome.stop {
    case .interrupted(let signal):
      problems.append(("interrupted", "the run was interrupted by \(SignalName.text(signal))", left))
    case .deadline where outcome.exitCode == 5: problems.append(("deadline", "the run's deadline was reached", left))
    case .deadline, .failure, nil:
      if outcome.isLimited { problems.append(("limit", "a limit was reached", left)) }
    }
    return problems
  }

  mutating func write(_ record: ItemRecord) {
    var name = PathBytes(display: record.input).printable
    if !names.insert(name.hashValue).inserted { name += " [\(record.inputIndex)]" }
    let time = record.timings.reduce(0) { $0 + $1.milliseconds } / 1000
    put(
      "<testcase"
        + XMLText.attributes([
          ("classname", job), ("name", name), ("file", record.input), ("time", Self.seconds(time)),
        ]) + ">\n")
    switch record.status {
    case .failed, .unknown, .deferred:
      let reason = record.error?.message ?? record.reason ?? record.status.rawValue
      let type = record.error?.code ?? record.status.rawValue
      put("<failure\(XMLText.attributes([("message", reason), ("type", type)]))>")
      var lines = ["\(record.input): \(reason)"]
      if let stage = record.failedStage { lines.append("stage: \(stage)") }
      if let cause = record.error?.cause, !cause.isEmpty { lines.append("cause: \(cause)") }
      if let hint = record.error?.hint { lines.append("try: \(hint)") }
      put("\(XMLText.content(lines.joined(separator: "\n")))</failure>\n")
    case .skipped, .dropped, .notAttempted:
      let reason = record.reason ?? record.status.rawValue
      put("<skipped\(XMLText.attributes([("message", reason), ("type", record.status.rawValue)]))>")
      put("\(XMLText.content(reason))</skipped>\n")
    case .done, .review: break
    }
    var lines: [String] = []
    if record.status == .review { lines.append("for review: \(record.reason ?? "")") }
    lines += record.warnings.map { "warning \($0.code) in \($0.stage): \($0.message)" }
    for output in record.outputs {
      let place =
        switch output.place {
        case .path(let path): path.display
        case .link(let link): link
        }
      lines.append("output: \(place) (\(output.format), \(output.width) x \(output.height), \(output.bytes) bytes)")
    }
    if !lines.isEmpty { put("<system-out>\(XMLText.content(lines.joined(separator: "\n")))</system-out>\n") }
    put("</testcase>\n")
  }

  /// Writes the rest.
  ///
  /// - Returns: the error number of what could not be written, or nil.
  mutating func finish() -> Int32? {
    put("</testsuite>\n</testsuites>\n")
    flush()
    return failure
  }

  private mutating func put(_ text: String) {
    buffer += text.utf8
    if buffer.count > 1 << 20 { flush() }
  }

  private mutating func flush() {
    if failure == nil { failure = ReportSpool.writeAll(descriptor, buffer) }
    buffer.removeAll(keepingCapacity: true)
  }

  /// To the millisecond, without an exponent.
  private static func seconds(_ seconds: Double) -> String {
    let millis = Int((min(max(0, seconds), 1e12) * 1000).rounded())
    let rest = String(millis % 1000)
    return "\(millis / 1000)." + String(repeating: "0", count: 3 - rest.count) + rest
  }
}
