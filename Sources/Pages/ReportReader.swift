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
  private var text: Cutter
  private var isFirst = true

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
    var cutter = Cutter(descriptor: descriptor, name: name)
    try cutter.expect("{")
    try cutter.expectKey("run")
    guard let run = StrictJSON.parse(SourceFile(name: name, text: try cutter.value())).root, run["job"] != nil,
      run["counts"] != nil
    else { throw cutter.failure("it does not say what a run of this program says") }
    try cutter.expect(",")
    try cutter.expectKey("items")
    try cutter.expect("[")
    self.name = name
    self.run = run
    text = cutter
  }

  /// The next picture; nil after the last, when the report has been found whole.
  ///
  /// - Throws: `report-format` where the report breaks off or is not as this program writes it.
  public mutating func next() throws(StageError) -> JSONNode? {
    if try text.isNext("]") {
      try text.expect("]")
      try text.expect("}")
      guard try text.isAtEnd() else { throw text.failure("something follows its end") }
      return nil
    }
    if !isFirst { try text.expect(",") }
    isFirst = false
    guard let node = StrictJSON.parse(SourceFile(name: name, text: try text.value())).root,
      node["input"]?.stringValue != nil, node["status"]?.stringValue != nil
    else { throw text.failure("one of its pictures has no input or status") }
    return node
  }

  fileprivate static func unreadable(_ name: String, _ number: Int32) -> StageError {
    StageError(
      "report-unreadable", "the report \(name) cannot be read", kind: .environment,
      cause: String(cString: strerror(number)))
  }
}

/// Cuts a JSON text into values without reading them.
private struct Cutter: ~Copyable {
  let descriptor: Int32
  let name: String
  private var buffer: [UInt8] = []
  private var position = 0
  private var offset = 0
  /// No value is longer: what is, is none of ours.
  private static let mostBytes = 64 << 20

  init(descriptor: Int32, name: String) {
    self.descriptor = descriptor
    self.name = name
  }

  deinit { close(descriptor) }

  func failure(_ why: String) -> StageError {
    StageError("report-format", "\(name) is not a whole report of this program: \(why)", kind: .environment)
  }

  /// Whether there is a byte at `position`.
  private mutating func fill() throws(StageError) -> Bool {
    if position < buffer.count { return true }
    var piece = [UInt8](repeating: 0, count: 1 << 18)
    while true {
      let count = piece.withUnsafeMutableBytes { pread(descriptor, $0.baseAddress, $0.count, off_t(offset)) }
      if count < 0, errno == EINTR { continue }
      guard count >= 0 else { throw ReportReader.unreadable(name, errno) }
      buffer = Array(piece[..<count])
      position = 0
      offset += count
      return count > 0
    }
  }

  private mutating func peek() throws(StageError) -> UInt8? { try fill() ? buffer[position] : nil }

  private mutating func skipBlank() throws(StageError) {
    while let next = try peek(), Self.isBlank(next) { position += 1 }
  }

  private static func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 }

  mutating func isNext(_ sign: Unicode.Scalar) throws(StageError) -> Bool {
    try skipBlank()
    return try peek() == UInt8(ascii: sign)
  }

  mutating func isAtEnd() throws(StageError) -> Bool {
    try skipBlank()
    return try !fill()
  }

  mutating func expect(_ sign: Unicode.Scalar) throws(StageError) {
    try skipBlank()
    guard let next = try peek() else { throw failure("it breaks off") }
    guard next == UInt8(ascii: sign) else { throw failure("there is no \"\(sign)\" where one belongs") }
    position += 1
  }

  mutating func expectKey(_ key: String) throws(StageError) {
    guard try value() == Array("\"\(key)\"".utf8) else { throw failure("\"\(key)\" is not where it belongs") }
    try expect(":")
  }

  /// The bytes of the next value.
  mutating func value() throws(StageError) -> [UInt8] {
    try skipBlank()
    var text: [UInt8] = []
    var depth = 0
    var isInString = false
    var isEscaped = false
    while let next = try peek() {
      guard text.count < Self.mostBytes else {
        throw failure("a value in it is longer than \(Self.mostBytes >> 20) MiB")
      }
      if isInString {
        if isEscaped {
          isEscaped = false
        } else if next == UInt8(ascii: "\\") {
          isEscaped = true
        } else if next == UInt8(ascii: "\"") {
          isInString = false
        }
      } else {
        switch next {
        case UInt8(ascii: "\""): isInString = true
        case UInt8(ascii: "{"), UInt8(ascii: "["): depth += 1
        case UInt8(ascii: "}"), UInt8(ascii: "]"):
          // The end of what a number or word stands in.
          if depth == 0 { return text }
          depth -= 1
        default:
          if depth == 0, next == UInt8(ascii: ",") || next == UInt8(ascii: ":") || Self.isBlank(next) { return text }
        }
      }
      text.append(next)
      position += 1
      let closes = next == UInt8(ascii: "}") || next == UInt8(ascii: "]") || next == UInt8(ascii: "\"")
      if closes, !isInString, depth == 0 { return text }
    }
    throw failure("it breaks off")
  }
}
