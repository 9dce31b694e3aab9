import Digest
import Imaging
import JobSyntax
import PipelineKit

/// The input file of an item as it was read.
public struct SourceFacts: Sendable, Hashable {
  /// SHA-256 of its bytes, 64 hex digits.
  public var sha256: String
  /// Size and times of the file that was read; nil where they do not stand for its content: it had been changed only a
  /// moment before, and a file system's clock is coarse.
  public var stamp: FileStamp?
  /// Its size; nil where it is not known.
  public var bytes: Int?

  init(sha256: String, stamp: FileStamp?, bytes: Int? = nil) {
    self.sha256 = sha256
    self.stamp = stamp
    self.bytes = bytes
  }

  /// Nil where nothing was read yet. To be made when it was: later, a stamp looks older than it was then.
  init?(_ item: Item) {
    guard let sha256 = item.sourceHash else { return nil }
    var bytes = item.sourceStamp.map { Int($0.size) }
    if case .encoded(let source) = item.picture { bytes = source.bytes.count }
    if let remote = item.identity.remote {
      self.init(sha256: sha256, stamp: remote.version, bytes: bytes)
      return
    }
    let now = RunClock.now()
    self.init(sha256: sha256, stamp: item.sourceStamp.flatMap { $0.isSettled(at: now) ? $0 : nil }, bytes: bytes)
  }

  var json: JSONText {
    // As texts: nanoseconds since 1970 are more than a number in JSON holds exactly, and such a number is refused.
    func text(_ number: Int64) -> JSONText { .string(String(number)) }
    return .object([
      ("sha256", .string(sha256)),
      ("stamp", stamp.map { .array([text($0.size), text($0.modified), text($0.changed)]) } ?? nil),
      ("bytes", bytes.map { .integer($0) } ?? nil),
    ])
  }

  init?(_ node: JSONNode) {
    guard let sha256 = node["sha256"]?.stringValue else { return nil }
    let numbers = node["stamp"]?.arrayValue?.compactMap { $0.stringValue.flatMap { Int64($0) } } ?? []
    self.init(
      sha256: sha256,
      stamp: numbers.count == 3 ? FileStamp(size: numbers[0], modified: numbers[1], changed: numbers[2]) : nil,
      bytes: node["bytes"]?.numberValue?.integer)
  }
}
