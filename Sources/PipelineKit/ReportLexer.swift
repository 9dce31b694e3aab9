import JobSyntax

/// Cuts the JSON text of a report into values without reading them, from pieces as they come: the little of JSON's grammar
/// that a report of any length takes to be read one picture at a time.
package struct ReportLexer: ~Copyable {
  /// For messages.
  package let name: String
  private let fill: (inout [UInt8]) throws(StageError) -> Int
  private var buffer = [UInt8](repeating: 0, count: 1 << 16)
  private var position = 0
  private var end = 0
  private var isBehindFirst = false
  /// No value is longer: what is, is none of ours.
  private static let mostBytes = 64 << 20

  /// - Parameter fill: puts the next bytes at the front of a buffer, and answers how many; 0 at the end. Errors are as
  ///   `unreadable` makes them.
  package init(name: String, fill: @escaping (inout [UInt8]) throws(StageError) -> Int) {
    self.name = name
    self.fill = fill
  }

  package static func unreadable(_ name: String, cause: String?, hint: String? = nil) -> StageError {
    StageError(
      "report-unreadable", "the report \(name) cannot be read", kind: .environment, cause: cause, hint: hint)
  }

  package func failure(_ why: String) -> StageError {
    StageError("report-format", "\(name) is not a whole report of this program: \(why)", kind: .environment)
  }

  // MARK: Reports

  /// What the report says of the run; nil where it is no JSON. To be called first.
  package mutating func run() throws(StageError) -> JSONNode? {
    try expect("{")
    try expectKey("run")
    return node(try value())
  }

  /// A value as a tree; nil where it is no JSON, or holds a number that this program would not write.
  package func node(_ text: [UInt8]) -> JSONNode? {
    let (root, found) = StrictJSON.parse(SourceFile(name: name, text: text))
    return found.hasErrors ? nil : root
  }

  /// Goes on from the run to the pictures.
  package mutating func enterItems() throws(StageError) {
    try expect(",")
    try expectKey("items")
    try expect("[")
  }

  /// The text of the next picture; nil after the last, when the report has been found whole.
  package mutating func nextItem() throws(StageError) -> [UInt8]? {
    if try isNext("]") {
      try expect("]")
      try expect("}")
      try skipBlank()
      guard try peek() == nil else { throw failure("something follows its end") }
      return nil
    }
    if isBehindFirst { try expect(",") }
    isBehindFirst = true
    return try value()
  }

  // MARK: Signs and values

  private mutating func peek() throws(StageError) -> UInt8? {
    if position == end {
      position = 0
      end = try fill(&buffer)
    }
    return position < end ? buffer[position] : nil
  }

  private mutating func skipBlank() throws(StageError) {
    while let next = try peek(), Self.isBlank(next) { position += 1 }
  }

  private static func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 }

  private mutating func isNext(_ sign: Unicode.Scalar) throws(StageError) -> Bool {
    try skipBlank()
    return try peek() == UInt8(ascii: sign)
  }

  private mutating func expect(_ sign: Unicode.Scalar) throws(StageError) {
    try skipBlank()
    guard let next = try peek() else { throw failure("it breaks off") }
    guard next == UInt8(ascii: sign) else { throw failure("there is no \"\(sign)\" where one belongs") }
    position += 1
  }

  private mutating func expectKey(_ key: String) throws(StageError) {
    guard try value() == Array("\"\(key)\"".utf8) else { throw failure("\"\(key)\" is not where it belongs") }
    try expect(":")
  }

  /// The bytes of the next value.
  private mutating func value() throws(StageError) -> [UInt8] {
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
