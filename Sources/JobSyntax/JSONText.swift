/// A JSON value to be written; keys keep the order they are given in.
public indirect enum JSONText: Sendable {
  case null
  case bool(Bool)
  case integer(Int)
  case number(Double)
  case string(String)
  case array([JSONText])
  case object([(String, JSONText)])

  /// The value with every text in it replaced; names of members stay.
  public func mapStrings(_ change: (String) -> String) -> JSONText {
    switch self {
    case .null, .bool, .integer, .number: self
    case .string(let text): .string(change(text))
    case .array(let elements): .array(elements.map { $0.mapStrings(change) })
    case .object(let members): .object(members.map { ($0.0, $0.1.mapStrings(change)) })
    }
  }

  /// The value as JSON text, on one line or, with `pretty`, over several with two spaces a level; no line break at
  /// the end.
  ///
  /// Doubles are written with the fewest digits that read back the same; infinity and NaN, which JSON lacks, as
  /// null. Only quotes, backslashes and control characters are escaped.
  public func rendered(pretty: Bool = false) -> String {
    var bytes: [UInt8] = []
    write(to: &bytes, indent: pretty ? 0 : nil)
    return String(decoding: bytes, as: UTF8.self)
  }

  private func write(to bytes: inout [UInt8], indent: Int?) {
    switch self {
    case .null: bytes += "null".utf8
    case .bool(let bool): bytes += (bool ? "true" : "false").utf8
    case .integer(let integer): bytes += String(integer).utf8
    case .number(let number): bytes += (number.isFinite ? number.description : "null").utf8
    case .string(let string): JSONText.quote(string, to: &bytes)
    case .array(let elements):
      JSONText.list(elements, in: ("[", "]"), to: &bytes, indent: indent) { element, bytes, indent in
        element.write(to: &bytes, indent: indent)
      }
    case .object(let members):
      JSONText.list(members, in: ("{", "}"), to: &bytes, indent: indent) { member, bytes, indent in
        JSONText.quote(member.0, to: &bytes)
        bytes += (indent == nil ? ":" : ": ").utf8
        member.1.write(to: &bytes, indent: indent)
      }
    }
  }

  private static func list<Element>(
    _ elements: [Element], in brackets: (open: String, close: String), to bytes: inout [UInt8], indent: Int?,
    write: (Element, inout [UInt8], Int?) -> Void
  ) {
    bytes += brackets.open.utf8
    let inner = indent.map { $0 + 1 }
    for (index, element) in elements.enumerated() {
      if index > 0 { bytes.append(Byte.comma) }
      breakLine(inner, to: &bytes)
      write(element, &bytes, inner)
    }
    if !elements.isEmpty { breakLine(indent, to: &bytes) }
    bytes += brackets.close.utf8
  }

  private static func breakLine(_ indent: Int?, to bytes: inout [UInt8]) {
    guard let indent else { return }
    bytes.append(Byte.lineFeed)
    bytes += repeatElement(Byte.space, count: indent * 2)
  }

  private static func quote(_ string: String, to bytes: inout [UInt8]) {
    bytes.append(Byte.quote)
    for byte in string.utf8 {
      switch byte {
      case Byte.quote, Byte.backslash: bytes += [Byte.backslash, byte]
      case 0x08: bytes += #"\b"#.utf8
      case Byte.tab: bytes += #"\t"#.utf8
      case Byte.lineFeed: bytes += #"\n"#.utf8
      case 0x0C: bytes += #"\f"#.utf8
      case Byte.carriageReturn: bytes += #"\r"#.utf8
      case 0..<0x20:
        bytes += (byte < 0x10 ? #"\u000"# : #"\u00"#).utf8
        bytes += String(byte, radix: 16).utf8
      default: bytes.append(byte)
      }
    }
    bytes.append(Byte.quote)
  }
}

extension JSONText {
  /// The same value as one that was read: a number becomes an integer where it is exactly one, else a double, else
  /// (as `1e400`) null.
  public init(_ value: JSONValue) {
    switch value {
    case .null: self = .null
    case .bool(let bool): self = .bool(bool)
    case .number(let number): self = number.integer.map(JSONText.integer) ?? number.double.map(JSONText.number) ?? .null
    case .string(let string): self = .string(string)
    case .array(let elements): self = .array(elements.map { JSONText($0.value) })
    case .object(let members): self = .object(members.map { ($0.key, JSONText($0.value.value)) })
    }
  }
}

extension JSONText: Equatable {
  public static func == (a: JSONText, b: JSONText) -> Bool {
    switch (a, b) {
    case (.null, .null): true
    case (.bool(let a), .bool(let b)): a == b
    case (.integer(let a), .integer(let b)): a == b
    case (.number(let a), .number(let b)): a == b
    case (.string(let a), .string(let b)): a == b
    case (.array(let a), .array(let b)): a == b
    case (.object(let a), .object(let b)): a.elementsEqual(b) { $0.0 == $1.0 && $0.1 == $1.1 }
    default: false
    }
  }
}

extension JSONText: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral, ExpressibleByFloatLiteral,
  ExpressibleByBooleanLiteral, ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral, ExpressibleByNilLiteral
{
  public init(stringLiteral value: String) { self = .string(value) }
  public init(integerLiteral value: Int) { self = .integer(value) }
  public init(floatLiteral value: Double) { self = .number(value) }
  public init(booleanLiteral value: Bool) { self = .bool(value) }
  public init(arrayLiteral elements: JSONText...) { self = .array(elements) }
  public init(dictionaryLiteral elements: (String, JSONText)...) { self = .object(elements) }
  public init(nilLiteral: ()) { self = .null }
}
