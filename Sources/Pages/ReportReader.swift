import Glibc
import JobSyntax
import PipelineKit

/// Reads a JSON report of this program from a file piece by piece: what it says of the run, then one picture after the
/// other, so that a report of any length takes little memory.
public struct ReportReader: ~Copyable {
  /// For messages.
  public let name: String
  /// What the report says of the run.
  public let run: JSONNode
  private var text: ReportLexer

  /// Opens a report at a path.
  ///
  /// - Throws: `report-unreadable` and `report-format` of class environment.
  public init(_ path: PathBytes) throws(StageError) {
    // O_NONBLOCK: a pipe without a writer must not hold up anyone.
    let descriptor = path.withCString { open($0, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) }
    guard descriptor >= 0 else { throw Self.unreadable(path.printable, errno) }
    var status = stat()
    if fstat(descriptor, &status) == 0, status.st_mode & S_IFMT != S_IFREG {
      close(descriptor)
      throw StageError("report-unreadable", "\(path.printable) is not a regular file", kind: .environment)
    }
    try self.init(adopting: descriptor, name: path.printable)
  }

  /// Reads a report from an open file, from its beginning, and closes it in the end.
  ///
  /// - Throws: as above.
  public init(adopting descriptor: Int32, name: String) throws(StageError) {
    let file = OwnedDescriptor(descriptor)
    var offset = 0
    var text = ReportLexer(name: name) { (buffer) throws(StageError) in
      while true {
        let count = buffer.withUnsafeMutableBytes { pread(file.number, $0.baseAddress, $0.count, off_t(offset)) }
        if count < 0, errno == EINTR { continue }
        guard count >= 0 else { throw Self.unreadable(name, errno) }
        offset += count
        return count
      }
    }
    guard let run = try text.run(), run["job"] != nil, run["counts"] != nil else {
      throw text.failure("it does not say what a run of this program says")
    }
    try text.enterItems()
    self.name = name
    self.run = run
    self.text = text
  }

  /// The next picture; nil after the last, when the report has been found whole.
  ///
  /// - Throws: `report-format` where the report breaks off or is not as this program writes it.
  public mutating func next() throws(StageError) -> JSONNode? {
    guard let item = try text.nextItem() else { return nil }
    guard let node = text.node(item), node["input"]?.stringValue != nil,
      node["status"]?.stringValue != nil
    else { throw text.failure("one of its pictures has no input or status") }
    return node
  }

  private static func unreadable(_ name: String, _ number: Int32) -> StageError {
    ReportLexer.unreadable(name, cause: String(cString: strerror(number)))
  }
}

/// Closes a file when nobody reads it any more.
private final class OwnedDescriptor {
  let number: Int32
  init(_ number: Int32) { self.number = number }
  deinit { close(number) }
}
