import Glibc
import JobSyntax
import PipelineKit

/// The reports of a job's shards, joined to one as a single run would have written it.
public struct MergedReport: Sendable {
  public let job: String
  public let shardCount: Int
  public let counts: ItemCounts
  /// Of all shards, as if they were one run.
  public let exitCode: Int32
  /// What is worth knowing about single shards: that one was interrupted, could not start, or ran another version.
  public let notes: [String]
  /// A file without a name that holds the report.
  private let file: OpenFile

  /// Joins reports. Items are taken over as they are, back in the order of the job's inputs.
  ///
  /// Reads each report once, from beginning to end, and holds one item of each: memory grows with the number of shards,
  /// not of pictures.
  ///
  /// - Throws: `report-…` errors of class environment, where a file is no report of a shard, where they are not of one
  ///   job, where a shard is missing or given twice, and where they do not hold each input exactly once.
  public init(merging paths: [PathBytes]) throws(StageError) {
    var readers: [MergeReader] = []
    for path in paths { readers.append(try MergeReader(path)) }
    guard let first = readers.first else {
      throw StageError("report-merge", "there is no report to merge", kind: .environment)
    }
    try Self.check(readers, first)
    readers.sort { $0.shard.index < $1.shard.index }

    var counts = ItemCounts()
    for reader in readers {
      for status in ItemStatus.allCases { counts[status] += reader.announced[status] ?? 0 }
    }
    let exitCode = Self.exitCode(readers.map(\.exitCode))
    job = first.job
    shardCount = readers.count
    self.counts = counts
    self.exitCode = exitCode
    notes = Self.notes(readers)

    let descriptor = ReportSpool.unnamedFile()
    guard descriptor >= 0 else {
      throw StageError(
        "report-failed", "the merged report could not be written: no folder takes a temporary file", kind: .environment,
        cause: String(cString: strerror(errno)))
    }
    file = OpenFile(descriptor: descriptor)
    let run = Self.run(readers, first, counts: counts, exitCode: exitCode)
    try Self.write(readers, run, inputCount: first.inputCount, to: descriptor)
  }

  // MARK: What belongs together

  private static func check(_ readers: [MergeReader], _ first: MergeReader) throws(StageError) {
    func refusal(_ message: String, hint: String? = nil) -> StageError {
      StageError("report-merge", message, kind: .environment, hint: hint)
    }
    var byIndex: [Int: MergeReader] = [:]
    for reader in readers {
      guard reader.job == first.job else {
        throw refusal("\(first.name) is of the job \"\(first.job)\" and \(reader.name) of \"\(reader.job)\"")
      }
      guard reader.shard.count == first.shard.count else {
        throw refusal(
          "\(first.name) is one of \(first.shard.count) shards and \(reader.name) one of \(reader.shard.count)")
      }
      if let other = byIndex.updateValue(reader, forKey: reader.shard.index) {
        throw refusal(
          "\(other.name) and \(reader.name) are both of shard \(reader.shard.index) of \(reader.shard.count)",
          hint: "give the last report of each shard")
      }
    }
    let missing = (1...first.shard.count).filter { byIndex[$0] == nil }
    if !missing.isEmpty {
      let listed = missing.prefix(20).map(String.init).joined(separator: ", ") + (missing.count > 20 ? ", …" : "")
      throw refusal(
        "\(missing.count == 1 ? "the report of shard" : "the reports of shards") \(listed) of \(first.shard.count) "
          + "\(missing.count == 1 ? "is" : "are") missing",
        hint: "a run that was killed leaves none: run its shard again")
    }
    for reader in readers
    where reader.inputCount != first.inputCount || reader.inputsDigest != first.inputsDigest {
      throw refusal(
        "\(first.name) and \(reader.name) saw different inputs (\(first.inputCount) and \(reader.inputCount) pictures)",
        hint: "inputs came or went between the starts: run the shards again; what is done already is quick")
    }
  }

  /// Interrupted, stopped at a limit, not started, failures: the first that applies, as within one run.
  static func exitCode(_ codes: [Int32]) -> Int32 {
    if let interrupted = codes.filter({ $0 > 128 }).max() { return interrupted }
    if codes.contains(5) { return 5 }
    return codes.filter { $0 == 3 || $0 == 4 }.max() ?? codes.max() ?? 0
  }

  private static func notes(_ readers: [MergeReader]) -> [String] {
    var notes: [String] = []
    for reader in readers {
      let shard = "shard \(reader.shard.index) of \(reader.shard.count)"
      if reader.exitCode > 128 {
        notes.append("\(shard) was interrupted by \(SignalName.text(reader.exitCode - 128))")
      } else if reader.exitCode == 5 {
        notes.append("\(shard) was stopped at a limit")
      } else if let message = reader.run["error"]?["message"]?.stringValue {
        notes.append("\(shard) could not start: \(message)")
      }
    }
    let versions = Set(readers.compactMap { $0.run["versions"]?["pipeline"]?.stringValue }).sorted()
    if versions.count > 1 {
      notes.append("the shards were run by different versions: " + versions.joined(separator: ", "))
    }
    return notes
  }

  // MARK: Writing

  private static func run(
    _ readers: [MergeReader], _ first: MergeReader, counts: ItemCounts, exitCode: Int32
  ) -> JSONText {
    func numbers(_ key: String) -> [Double] { readers.compactMap { $0.run[key]?.numberValue?.double } }
    func sum(_ key: String) -> Int {
      readers.reduce(0) { $0 + min(max(0, $1.run[key]?.numberValue?.integer ?? 0), 1 << 32) }
    }
    func copy(_ reader: MergeReader?, _ key: String) -> JSONText {
      reader?.run[key].map { JSONText($0.value) } ?? .null
    }
    let started = readers.compactMap { $0.run["started"]?.stringValue }.min()
    let cpu = (numbers("cpuSeconds").reduce(0, +) * 1000).rounded() / 1000
    let errors = readers.flatMap { $0.run["errors"]?.arrayValue ?? [] }.map { JSONText($0.value) }
    let decisive = readers.first { $0.exitCode == exitCode }
    let failed = readers.first { $0.run["error"]?["code"] != nil }
    return MergedRunRecord(
      job: first.job, file: copy(first, "file"), started: started, wallSeconds: numbers("wallSeconds").max() ?? 0,
      cpuSeconds: cpu, peakBytes: Int(exactly: numbers("peakBytes").max() ?? 0) ?? 0, workers: sum("workers"),
      crashes: sum("crashes"), versions: copy(first, "versions"), shards: readers.count, inputs: first.inputCount,
      stop: copy(decisive, "stop"), errors: errors, error: copy(failed, "error"), exitCode: exitCode, counts: counts,
      runs: readers.map { JSONText($0.run.value) }
    ).json
  }

  private static func write(
    _ readers: [MergeReader], _ run: JSONText, inputCount: Int, to descriptor: Int32
  ) throws(StageError) {
    var buffer = Array("{\n\"run\": \(run.rendered(pretty: true)),\n\"items\": [".utf8)
    func flush() throws(StageError) {
      if let number = ReportSpool.writeAll(descriptor, buffer) {
        throw StageError(
          "report-failed", "the merged report could not be written to a temporary file", kind: .environment,
          cause: String(cString: strerror(number)))
      }
      buffer.removeAll(keepingCapacity: true)
    }
    // Each reader waits with one item under that item's index: whose turn it is follows without a search.
    var waiting: [Int: (reader: MergeReader, entry: MergeReader.Entry)] = [:]
    func advance(_ reader: MergeReader, after index: Int) throws(StageError) {
      guard let entry = try reader.next() else { return }
      guard entry.index > index, entry.index < inputCount else {
        throw StageError(
          "report-merge",
          "\(reader.name) has picture \(entry.index) where one above \(index) and below \(inputCount) belongs",
          kind: .environment)
      }
      if let other = waiting.updateValue((reader, entry), forKey: entry.index) {
        throw StageError(
          "report-merge", "picture \(entry.index) is in both \(other.reader.name) and \(reader.name)",
          kind: .environment)
      }
    }
    for reader in readers { try advance(reader, after: -1) }
    for index in 0..<inputCount {
      guard let (reader, entry) = waiting.removeValue(forKey: index) else {
        throw StageError(
          "report-merge", "picture \(index) of \(inputCount) is in none of the reports", kind: .environment)
      }
      buffer += (index == 0 ? "\n" : ",\n").utf8
      buffer += entry.text
      if buffer.count > 1 << 20 { try flush() }
      try advance(reader, after: index)
    }
    buffer += "\n]\n}\n".utf8
    try flush()
  }

  /// Gives the report piece by piece.
  ///
  /// - Parameter body: answers an error number, which ends it.
  /// - Returns: that error number, or one of reading, or nil.
  public func forEachPiece(_ body: (UnsafeRawBufferPointer) -> Int32?) -> Int32? {
    var piece = [UInt8](repeating: 0, count: 1 << 20)
    var offset = 0
    while true {
      let count = piece.withUnsafeMutableBytes { pread(file.descriptor, $0.baseAddress, $0.count, off_t(offset)) }
      if count < 0, errno == EINTR { continue }
      guard count > 0 else { return count == 0 ? nil : errno }
      offset += count
      let problem = piece.withUnsafeBytes { body(UnsafeRawBufferPointer(rebasing: $0[..<count])) }
      if let problem { return problem }
    }
  }

  /// Writes the report to a path, atomically.
  ///
  /// - Throws: `report-failed` of class environment.
  public func write(to path: PathBytes) throws(StageError) {
    try ReportSpool.replace(path, tag: "merge-\(getpid())") { output in
      forEachPiece { ReportSpool.writeAll(output, $0) }
    }
  }
}
