import JobSyntax
import PipelineKit

/// Reads a report piece by piece: what it says of the run, then one picture after the other. Of shards or not, merged or
/// not. Holds one picture at a time.
public final class ReportReader {
  /// What it says of the run.
  public let run: JSONNode
  private var lexer: ReportLexer
  private var count = 0

  /// Opens a report and reads what it says of the run.
  ///
  /// - Throws: `report-unreadable` and `report-format` of class environment.
  public init(_ path: PathBytes) throws(StageError) {
    var lexer = try ReportLexer(reading: OpenFile.report(path), name: path.printable)
    guard let run = try lexer.run(), run["job"] != nil, run["counts"] != nil else {
      throw lexer.failure("it does not say what a run of this program says")
    }
    try lexer.enterItems()
    self.run = run
    self.lexer = lexer
  }

  /// The next picture; nil after the last, when the report has been found whole.
  ///
  /// - Throws: `report-format` where the report breaks off or is not as this program writes it.
  public func next() throws(StageError) -> ItemRecord? {
    guard let text = try lexer.nextItem() else { return nil }
    guard let node = lexer.node(text),
      let record = ItemRecord(index: count, report: node)
    else { throw lexer.failure("one of its pictures has no input or status") }
    count += 1
    return record
  }
}

extension OpenFile {
  /// Opens a report.
  ///
  /// - Parameter missingHint: what to say where there is none.
  /// - Throws: `report-unreadable` of class environment.
  static func report(_ path: PathBytes, missingHint: String? = nil) throws(StageError) -> OpenFile {
    switch open(path) {
    case .success(let file): return file
    case .failure(let error):
      throw ReportLexer.unreadable(
        path.printable, cause: error.text, hint: error.isMissing ? missingHint : nil)
    }
  }
}

extension ReportLexer {
  /// Reads an open file, which may be a pipe.
  init(reading file: OpenFile, name: String) {
    self.init(name: name) { (buffer) throws(StageError) in
      switch file.read(into: &buffer) {
      case .success(let count): return count
      case .failure(let error): throw Self.unreadable(name, cause: error.text)
      }
    }
  }
}
