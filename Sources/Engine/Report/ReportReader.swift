import JobSyntax
import PipelineKit

/// Reads a report piece by piece: what it says of the run, then one picture after the other. Of shards or not, merged or
/// not. Holds one picture at a time.
public final class ReportReader {
  /// What it says of the run.
  public let run: JSONNode
  private let name: String
  private let lexer: ReportLexer
  private var count = 0

  /// No value is longer: what is, is no item of ours.
  static let mostBytes = 64 << 20

  /// Opens a report and reads what it says of the run.
  ///
  /// - Throws: `report-unreadable` and `report-format` of class environment.
  public init(_ path: PathBytes) throws(StageError) {
    name = path.printable
    let file: OpenFile
    switch OpenFile.open(path) {
    case .success(let opened): file = opened
    case .failure(let error):
      throw StageError(
        "report-unreadable", "the report \(name) cannot be read", kind: .environment, cause: error.text)
    }
    lexer = ReportLexer(ByteStream(file), name: name, mostBytes: Self.mostBytes)
    try lexer.expect("{")
    try lexer.expectKey("run")
    guard let run = StrictJSON.parse(SourceFile(name: name, text: try lexer.value())).root, run["job"] != nil,
      run["counts"] != nil
    else { throw lexer.failure("it does not say what a run of this program says") }
    self.run = run
    try lexer.expect(",")
    try lexer.expectKey("items")
    try lexer.expect("[")
  }

  /// The next picture; nil after the last, when the report has been found whole.
  ///
  /// - Throws: `report-format` where the report breaks off or is not as this program writes it.
  public func next() throws(StageError) -> ItemRecord? {
    if try lexer.isNext("]") {
      try lexer.expect("]")
      try lexer.expect("}")
      try lexer.expectEnd()
      return nil
    }
    if count > 0 { try lexer.expect(",") }
    guard let node = StrictJSON.parse(SourceFile(name: name, text: try lexer.value())).root,
      let record = ItemRecord(index: count, report: node)
    else { throw lexer.failure("one of its pictures has no input or status") }
    count += 1
    return record
  }
}
