import JobSyntax
import PipelineKit

/// Reads the report of one shard piece by piece: what it says of the run, then one item after the other. Holds one item
/// at a time, so a report of any length takes no memory. Blanks and line breaks may be anywhere; the order of the two
/// members may not.
final class MergeReader {
  /// What the merge needs to know of an item, and the whole of it.
  struct Entry {
    /// Among all inputs.
    var index: Int
    var status: ItemStatus
    /// JSON on one line.
    var text: [UInt8]
  }

  /// For messages.
  let name: String
  let run: JSONNode
  let shard: Shard
  let job: String
  /// What the shard saw of all inputs.
  let inputCount: Int
  let inputsDigest: String
  let exitCode: Int32
  /// How many of its items ended how, by what it says of the run.
  let announced: [ItemStatus: Int]
  private var met: [ItemStatus: Int] = [:]

  private var lexer: ReportLexer

  /// Opens a report and reads what it says of the run.
  ///
  /// - Throws: `report-unreadable`, `report-format` and `report-not-a-shard` of class environment.
  init(_ path: PathBytes) throws(StageError) {
    name = path.printable
    let file = try OpenFile.report(path, missingHint: "a run that was killed leaves none: run its shard again")
    if case .success(let status) = file.status, status.kind == .folder {
      throw StageError("report-unreadable", "\(name) is a folder, not a report", kind: .environment)
    }
    var lexer = ReportLexer(reading: file, name: name)
    guard let run = try lexer.run(), let job = run["job"]?.stringValue,
      let code = run["exitCode"]?.numberValue?.integer, let exitCode = Int32(exactly: code),
      let counts = run["counts"]
    else { throw lexer.failure("it does not say what a run of this program says") }
    guard let shard = run["shard"], let index = shard["index"]?.numberValue?.integer,
      let count = shard["count"]?.numberValue?.integer, let shard = Shard(index: index, count: count),
      let inputs = run["shard"]?["inputs"]?.numberValue?.integer, inputs >= 0,
      let digest = run["shard"]?["inputsDigest"]?.stringValue
    else {
      throw StageError(
        "report-not-a-shard",
        "the report \(name) is not of a shard"
          + (run["shards"] == nil ? "" : ": it was merged from \(run["shards"]?.numberValue?.integer ?? 0) already"),
        kind: .environment, hint: "`pipeline run --shard I/N --report FILE` writes those that can be merged")
    }
    try lexer.enterItems()
    self.run = run
    self.shard = shard
    self.job = job
    self.exitCode = exitCode
    inputCount = inputs
    inputsDigest = digest
    var announced: [ItemStatus: Int] = [:]
    for status in ItemStatus.allCases {
      let count = counts[status.rawValue]?.numberValue?.integer ?? 0
      guard (0...inputs).contains(count) else {
        throw lexer.failure("it says \(count) of \(inputs) pictures are \(status.rawValue)")
      }
      announced[status] = count
    }
    self.announced = announced
    self.lexer = lexer
  }

  /// The next item; nil after the last, when the report has been found whole.
  ///
  /// - Throws: `report-format` where the report breaks off or is not as this program writes it.
  func next() throws(StageError) -> Entry? {
    guard var text = try lexer.nextItem() else {
      for status in ItemStatus.allCases where met[status, default: 0] != announced[status] {
        throw lexer.failure(
          "it says \(announced[status] ?? 0) of its pictures are \(status.rawValue) and holds \(met[status] ?? 0)")
      }
      return nil
    }
    guard let node = lexer.node(text),
      let index = node["index"]?.numberValue?.integer,
      let status = node["status"]?.stringValue.flatMap({ ItemStatus(rawValue: $0) })
    else { throw lexer.failure("one of its pictures has no index or status") }
    if text.contains(UInt8(ascii: "\n")) { text = Array(JSONText(node.value).rendered().utf8) }
    met[status, default: 0] += 1
    return Entry(index: index, status: status, text: text)
  }
}
