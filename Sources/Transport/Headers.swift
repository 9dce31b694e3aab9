/// The header fields of an answer, in their order.
public struct Headers: Sendable, Hashable {
  public struct Field: Sendable, Hashable {
    /// As the server wrote it.
    public var name: String
    /// Without white space around it.
    public var value: String
  }

  public var fields: [Field]

  public init(_ fields: [(String, String)] = []) {
    self.fields = fields.map { Field(name: $0.0, value: $0.1) }
  }

  /// Of the lines `Name: value`; others are left out.
  init(lines: [String]) {
    fields = lines.compactMap { line in
      guard let colon = line.firstIndex(of: ":"), colon > line.startIndex else { return nil }
      return Field(name: String(line[..<colon]), value: trimmed(line[line.index(after: colon)...]))
    }
  }

  /// The first field of that name, in any case; nil where there is none.
  public subscript(_ name: String) -> String? { fields.first { isSameName($0.name, name) }?.value }

  /// All fields of that name, in any case.
  public func all(_ name: String) -> [String] {
    fields.lazy.filter { isSameName($0.name, name) }.map(\.value)
  }
}

/// Whether two names of header fields are the same: ASCII letters count in any case.
func isSameName(_ a: String, _ b: String) -> Bool {
  a.utf8.count == b.utf8.count && zip(a.utf8, b.utf8).allSatisfy { lowercase($0) == lowercase($1) }
}

func lowercase(_ byte: UInt8) -> UInt8 { 0x41...0x5A ~= byte ? byte | 0x20 : byte }

/// `text` without white space at either end.
func trimmed(_ text: some StringProtocol) -> String {
  var rest = Substring(text)
  while let first = rest.first, first.isWhitespace { rest.removeFirst() }
  while let last = rest.last, last.isWhitespace { rest.removeLast() }
  return String(rest)
}
