import Glibc
import PipelineKit

/// A run's numbers in Prometheus' text format, for the node exporter's textfile collector.
public struct RunMetrics: Sendable {
  /// What is told of a run whose pictures were planned.
  public struct Totals: Sendable {
    var outcome: RunOutcome
    var credits: Double
    var inputBytes = 0
    var outputBytes = 0
    var stageSeconds: [String: Double] = [:]
    var stages: [String]

    /// Adds up the records of a run. Needs `keepsReport`.
    ///
    /// - Parameters:
    ///   - credits: what was spent with services.
    ///   - outcome: how the run ended.
    ///   - run: the run.
    /// - Throws: `report-failed` of class environment.
    public init(_ run: JobRun, _ outcome: RunOutcome, credits: Double) throws(StageError) {
      self.outcome = outcome
      self.credits = credits
      stages = run.job.stages.map(\.label)
      var (inputBytes, outputBytes) = (0, 0)
      var seconds: [String: Double] = [:]
      try run.forEachRecord { record in
        inputBytes += record.inputBytes ?? 0
        // Those of pictures that are up to date were made by an earlier run.
        if record.status != .skipped { outputBytes += record.outputs.reduce(0) { $0 + $1.bytes } }
        for timing in record.timings { seconds[timing.stage, default: 0] += timing.milliseconds / 1000 }
      }
      (self.inputBytes, self.outputBytes, stageSeconds) = (inputBytes, outputBytes, seconds)
    }
  }

  /// The job's name, and the part of its inputs where a run was given one: the labels of all series.
  public var job: String
  public var shard: String?
  public var version: String
  public var exitCode: Int32
  /// Seconds since 1970.
  public var started: Double
  public var ended: Double
  /// Nil for a run that came to nothing before its pictures were known.
  public var totals: Totals?

  public init(
    job: String, shard: String?, version: String, exitCode: Int32, started: Double, ended: Double, totals: Totals?
  ) {
    self.job = job
    self.shard = shard
    self.version = version
    self.exitCode = exitCode
    self.started = started
    self.ended = ended
    self.totals = totals
  }

  private static let lastSuccess = "pipeline_run_last_success_timestamp_seconds"

  /// The text.
  ///
  /// - Parameter previous: what the run before has written, from which the time of the last success is taken over where
  ///   this one was none; the zero that stands where there never was one is older than any limit.
  public func text(previous: String = "") -> String {
    var text = ""
    func family(_ name: String, _ help: String, _ samples: [([(String, String)], String)]) {
      guard !samples.isEmpty else { return }
      text += "# HELP \(name) \(help)\n# TYPE \(name) gauge\n"
      for (labels, value) in samples { text += series(name, labels) + " \(value)\n" }
    }
    func family(_ name: String, _ help: String, _ value: String) { family(name, help, [([], value)]) }
    family("pipeline_run_info", "Always 1; the version of the program.", [([("version", version)], "1")])
    family("pipeline_run_exit_code", "What the last run ended with; 0 is success.", "\(exitCode)")
    family("pipeline_run_start_timestamp_seconds", "When the last run began.", Self.number(started))
    family("pipeline_run_end_timestamp_seconds", "When the last run ended.", Self.number(ended))
    family(
      Self.lastSuccess, "When a run last ended with 0; 0 where none has.",
      exitCode == 0 ? Self.number(ended) : value(of: series(Self.lastSuccess, []), in: previous) ?? "0")
    guard let totals else { return text }
    let outcome = totals.outcome
    family(
      "pipeline_run_items", "Pictures of the last run, by how they ended.",
      ItemStatus.allCases.map { ([("status", $0.rawValue)], "\(outcome.counts[$0])") })
    family(
      "pipeline_run_duration_seconds", "From the first picture's start to the last one's end.",
      Self.number(outcome.wallSeconds))
    family("pipeline_run_cpu_seconds", "Processor time of the last run.", Self.number(outcome.cpuSeconds))
    family("pipeline_run_input_bytes", "Bytes of the pictures that were read.", "\(totals.inputBytes)")
    family("pipeline_run_output_bytes", "Bytes that were written or uploaded.", "\(totals.outputBytes)")
    family(
      "pipeline_run_stage_seconds", "How long each stage worked, added up over pictures.",
      totals.stages.map { ([("stage", $0)], Self.number(totals.stageSeconds[$0] ?? 0)) })
    family("pipeline_run_credits", "Credits spent with services.", Self.number(totals.credits))
    family("pipeline_run_peak_memory_bytes", "The most memory that the process held.", "\(outcome.peakBytes)")
    family("pipeline_run_crashes", "How often the program crashed and took up again.", "\(outcome.crashes)")
    return text
  }

  /// Puts the numbers in the place of what is at a path, whole or not at all, for everybody to read.
  ///
  /// - Throws: `output-…` codes of class item.
  public func write(to path: PathBytes, tag: String) throws(StageError) {
    var previous = ""
    if case .success(let file) = OpenFile.open(path) {
      // Such a file is no longer.
      var bytes = [UInt8](repeating: 0, count: 1 << 20)
      if case .success(let count) = file.read(into: &bytes) {
        previous = String(decoding: bytes.prefix(count), as: UTF8.self)
      }
    }
    try AtomicFile.makeFolders(path.parent)
    let bytes = Array(text(previous: previous).utf8)
    let answer: Result<Void, StageError> = bytes.withUnsafeBytes { buffer in
      do throws(StageError) {
        _ = try AtomicFile.write(buffer, to: path, tag: "\(tag)-metrics", mode: 0o644)
        return .success(())
      } catch {
        return .failure(error)
      }
    }
    try answer.get()
  }

  private func series(_ name: String, _ labels: [(String, String)]) -> String {
    let own = [("job", job)] + (shard.map { [("shard", $0)] } ?? [])
    return name + "{" + (own + labels).map { "\($0.0)=\"\(Self.escaped($0.1))\"" }.joined(separator: ",") + "}"
  }

  private func value(of series: String, in text: String) -> String? {
    for line in text.split(separator: "\n") where line.hasPrefix(series + " ") {
      let value = line.dropFirst(series.count + 1)
      if let number = Double(value), number.isFinite { return Self.number(number) }
    }
    return nil
  }

  private static func escaped(_ text: String) -> String {
    var result = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\\": result += "\\\\"
      case "\"": result += "\\\""
      case "\n": result += "\\n"
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result
  }

  /// Milliseconds say all there is to say.
  private static func number(_ number: Double) -> String {
    let rounded = (number * 1000).rounded() / 1000
    return Int(exactly: rounded).map { "\($0)" } ?? "\(rounded)"
  }
}
