/// Markup that is safe to put into a page: what was written in the source as it stands, and text escaped.
///
/// A literal is markup; a `String` interpolated into one is text, and is escaped for elements and for attributes in
/// quotes: `"<p title=\"\(name)\">\(name)</p>"`. No text becomes markup, since only literals can. Control
/// characters and those that change the direction of what follows are shown by their code, as `⟨U+202E⟩`.
public struct HTML: Sendable {
  public private(set) var bytes: [UInt8]

  /// Nothing.
  public init() { bytes = [] }

  /// Markup that stands in the source.
  public init(_ markup: StaticString) { bytes = markup.withUTF8Buffer { Array($0) } }

  /// Markup made by this module, such as JSON in which nothing can end an element.
  init(safe bytes: [UInt8]) { self.bytes = bytes }

  /// Text, escaped.
  public init(text: String) {
    bytes = []
    Self.escape(text, to: &bytes)
  }

  public static func += (left: inout HTML, right: HTML) { left.bytes += right.bytes }

  public static func + (left: HTML, right: HTML) -> HTML {
    var sum = left
    sum += right
    return sum
  }

  /// Text as it is shown: without characters that hide or turn round what stands beside them.
  public static func visible(_ text: String) -> String {
    guard text.unicodeScalars.contains(where: isHidden) else { return text }
    var result = ""
    for scalar in text.unicodeScalars {
      if isHidden(scalar) {
        result += code(of: scalar)
      } else {
        result.unicodeScalars.append(scalar)
      }
    }
    return result
  }

  private static func code(of scalar: Unicode.Scalar) -> String {
    let digits = String(scalar.value, radix: 16, uppercase: true)
    return "⟨U+" + String(repeating: "0", count: max(0, 4 - digits.count)) + digits + "⟩"
  }

  /// Control characters besides tab and line feed, and those that set the direction of text (Unicode UAX 9).
  private static func isHidden(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.value {
    case 0x09, 0x0A: false
    case 0..<0x20, 0x7F..<0xA0, 0x061C, 0x200E, 0x200F, 0x2028...0x202E, 0x2066...0x2069, 0xFEFF: true
    default: false
    }
  }

  private static func escape(_ text: String, to bytes: inout [UInt8]) {
    for byte in visible(text).utf8 {
      switch byte {
      case UInt8(ascii: "&"): bytes += "&amp;".utf8
      case UInt8(ascii: "<"): bytes += "&lt;".utf8
      case UInt8(ascii: ">"): bytes += "&gt;".utf8
      case UInt8(ascii: "\""): bytes += "&quot;".utf8
      case UInt8(ascii: "'"): bytes += "&#39;".utf8
      default: bytes.append(byte)
      }
    }
  }
}

extension HTML: ExpressibleByStringInterpolation {
  /// Pieces of a literal, which the compiler knows, and values between them.
  public struct StringInterpolation: StringInterpolationProtocol {
    fileprivate var html = HTML()

    public init(literalCapacity: Int, interpolationCount: Int) { html.bytes.reserveCapacity(literalCapacity) }

    public mutating func appendLiteral(_ literal: StaticString) { html += HTML(literal) }

    public mutating func appendInterpolation(_ text: String) { html += HTML(text: text) }

    public mutating func appendInterpolation(_ number: Int) { html += HTML(text: String(number)) }

    public mutating func appendInterpolation(_ markup: HTML) { html += markup }

    public mutating func appendInterpolation(_ link: PageLink) { html += HTML(text: link.address) }
  }

  public init(stringLiteral markup: StaticString) { self.init(markup) }

  public init(stringInterpolation: StringInterpolation) { self = stringInterpolation.html }
}

extension Sequence<HTML> {
  /// All of them, one after the other.
  public func joined(separator: HTML = "") -> HTML {
    var result = HTML()
    for (index, part) in enumerated() {
      if index > 0 { result += separator }
      result += part
    }
    return result
  }
}
