/// A JSON value with the place it was read from.
public struct JSONNode: Sendable {
  public var value: JSONValue
  /// From the first byte of the value to after its last, quotes and brackets included.
  public var range: SourceRange
  var location: JSONPath

  public init(value: JSONValue, range: SourceRange, path: String) {
    self.init(value: value, range: range, location: .text(path))
  }

  init(value: JSONValue, range: SourceRange, location: JSONPath) {
    self.value = value
    self.range = range
    self.location = location
  }

  /// Where the value stands in its document, as `$.stages[2].width`; keys that are no plain names stand as
  /// `$["a b"]`, and a key of more than 80 scalars is shortened in its middle.
  public var path: String {
    get { location.description }
    set { location = .text(newValue) }
  }

  /// The value of the first member named `key`, or nil where there is none or the value is not an object.
  public subscript(_ key: String) -> JSONNode? {
    objectValue?.first { $0.key == key }?.value
  }

  public var stringValue: String? { if case .string(let string) = value { string } else { nil } }
  public var boolValue: Bool? { if case .bool(let bool) = value { bool } else { nil } }
  public var numberValue: JSONNumber? { if case .number(let number) = value { number } else { nil } }
  public var arrayValue: [JSONNode]? { if case .array(let elements) = value { elements } else { nil } }
  public var objectValue: [JSONMember]? { if case .object(let members) = value { members } else { nil } }
  public var isNull: Bool { if case .null = value { true } else { false } }
}

/// What a JSON document holds in one place. Arrays and objects keep the order of the text.
public enum JSONValue: Sendable {
  case null
  case bool(Bool)
  case number(JSONNumber)
  case string(String)
  case array([JSONNode])
  case object([JSONMember])

  /// The type with its article, for messages: "a string", "an object".
  public var typeName: String {
    switch self {
    case .null: "null"
    case .bool: "a boolean"
    case .number: "a number"
    case .string: "a string"
    case .array: "an array"
    case .object: "an object"
    }
  }

  /// The value in a few words, for the end of "expected …, found …": `the string "abc"`, `the number 2.5`,
  /// `an array of 3`. Long text is shortened.
  public var summary: String {
    switch self {
    case .null: "null"
    case .bool(let bool): bool ? "true" : "false"
    case .number(let number): "the number \(shortened(number.text))"
    case .string(let string): "the string \(JSONText.string(shortened(string)).rendered())"
    case .array(let elements): elements.isEmpty ? "an empty array" : "an array of \(elements.count)"
    case .object(let members):
      members.isEmpty ? "an empty object" : "an object of \(members.count) \(members.count == 1 ? "key" : "keys")"
    }
  }
}

/// A key of an object with its value. An object may hold a key twice: the reader reports it and keeps both.
public struct JSONMember: Sendable {
  public var key: String
  /// The key with its quotes.
  public var keyRange: SourceRange
  public var value: JSONNode

  public init(key: String, keyRange: SourceRange, value: JSONNode) {
    self.key = key
    self.keyRange = keyRange
    self.value = value
  }
}

/// A JSON number as written; nothing is rounded until it is asked for.
public struct JSONNumber: Sendable, Hashable {
  /// The literal, which follows the grammar of RFC 8259.
  public let text: String

  /// Nil where `text` is not a number by the grammar of RFC 8259, section 6.
  public init?(text: String) {
    guard JSONNumber.isNumber(Array(text.utf8)) else { return nil }
    self.text = text
  }

  init(checked text: String) { self.text = text }

  /// The nearest double; nil where the number lies beyond all doubles (`1e400`) or is not 0 and rounds to it
  /// (`1e-400`).
  public var double: Double? {
    guard let double = Double(text), double.isFinite, double != 0 || isZero else { return nil }
    return double
  }

  /// The number as an integer, where it is exactly one and fits: 2, 2.0 and 2e3, not 2.5.
  public var integer: Int? {
    let parts = decimalParts
    guard !parts.digits.isEmpty else { return 0 }
    guard parts.exponent >= 0, parts.digits.count + parts.exponent <= 19 else { return nil }
    var value = 0
    // Built on the negative side, which reaches one further.
    for digit in parts.digits + repeatElement(Byte.zero, count: parts.exponent) {
      let (tenfold, tooLarge) = value.multipliedReportingOverflow(by: 10)
      let (next, overflow) = tenfold.subtractingReportingOverflow(Int(digit - Byte.zero))
      if tooLarge || overflow { return nil }
      value = next
    }
    if parts.isNegative { return value }
    return value == .min ? nil : -value
  }

  /// True for 0 with a minus sign, however written: `-0`, `-0.0`, `-0e5`.
  public var isNegativeZero: Bool { text.utf8.first == Byte.minus && isZero }

  /// True where the mantissa has no digit but 0.
  var isZero: Bool {
    for byte in text.utf8 {
      if byte == UInt8(ascii: "e") || byte == UInt8(ascii: "E") { break }
      if isDigit(byte), byte != Byte.zero { return false }
    }
    return true
  }

  /// The number as `digits × 10^exponent`, digits without zeros at either end; no digits for 0.
  private var decimalParts: (isNegative: Bool, digits: [UInt8], exponent: Int) {
    let mantissa = text.utf8.prefix { $0 != UInt8(ascii: "e") && $0 != UInt8(ascii: "E") }
    var exponent = 0
    if mantissa.count < text.utf8.count {
      let written = String(text.utf8.dropFirst(mantissa.count + 1)) ?? ""
      // An exponent that does not fit is as good as a very large one: no integer has it.
      exponent = Int(written) ?? (written.hasPrefix("-") ? -1 << 40 : 1 << 40)
      exponent = min(max(exponent, -1 << 40), 1 << 40)
    }
    let digits = mantissa.filter(isDigit)
    if let dot = mantissa.firstIndex(of: Byte.dot) {
      exponent -= mantissa.distance(from: mantissa.index(after: dot), to: mantissa.endIndex)
    }
    var stripped = digits.drop { $0 == Byte.zero }
    while stripped.last == Byte.zero {
      stripped.removeLast()
      exponent += 1
    }
    return (mantissa.first == Byte.minus, Array(stripped), exponent)
  }

  /// Whether the bytes are one number by the grammar of RFC 8259, section 6.
  static func isNumber(_ bytes: some Collection<UInt8>) -> Bool {
    var rest = bytes[...]
    func digits() -> Int {
      let run = rest.prefix(while: isDigit).count
      rest = rest.dropFirst(run)
      return run
    }
    if rest.first == Byte.minus { rest = rest.dropFirst() }
    if rest.first == Byte.zero {
      rest = rest.dropFirst()
    } else if digits() == 0 {
      return false
    }
    if rest.first == Byte.dot {
      rest = rest.dropFirst()
      if digits() == 0 { return false }
    }
    if rest.first == UInt8(ascii: "e") || rest.first == UInt8(ascii: "E") {
      rest = rest.dropFirst()
      if rest.first == Byte.plus || rest.first == Byte.minus { rest = rest.dropFirst() }
      if digits() == 0 { return false }
    }
    return rest.isEmpty
  }
}

/// A path held as a link to the parent's, so that a long key above many values is stored once.
enum JSONPath: Sendable, CustomStringConvertible {
  case root
  case member(of: Ancestor, String)
  case element(of: Ancestor, Int)
  case text(String)

  final class Ancestor: Sendable {
    let path: JSONPath
    init(_ path: JSONPath) { self.path = path }
  }

  var description: String {
    var steps: [String] = []
    var current = self
    walk: while true {
      switch current {
      case .root:
        steps.append("$")
        break walk
      case .text(let text):
        steps.append(text)
        break walk
      case .member(let ancestor, let key):
        steps.append(JSONPath.step(key))
        current = ancestor.path
      case .element(let ancestor, let index):
        steps.append("[\(index)]")
        current = ancestor.path
      }
    }
    return steps.reversed().joined()
  }

  private static func step(_ key: String) -> String {
    let key = shortened(key, to: 80)
    let isName =
      key.unicodeScalars.first.map { $0.properties.isAlphabetic || $0 == "_" || $0 == "$" } == true
      && key.unicodeScalars.allSatisfy {
        $0.properties.isAlphabetic || "0"..."9" ~= $0 || $0 == "_" || $0 == "$" || $0 == "-"
      }
    return isName ? ".\(key)" : "[\(JSONText.string(key).rendered())]"
  }
}

/// `text` with its middle replaced by "…" where it has more than `limit` scalars.
func shortened(_ text: String, to limit: Int = 60) -> String {
  let scalars = text.unicodeScalars
  guard scalars.index(scalars.startIndex, offsetBy: limit + 1, limitedBy: scalars.endIndex) != nil else { return text }
  let head = limit * 2 / 3
  return String(scalars.prefix(head)) + "…" + String(scalars.suffix(limit - head - 1))
}
