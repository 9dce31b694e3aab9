/// What can be told of an SVG drawing without a parser of XML: whether its first element is `svg`, and its own size.
///
/// Reads the prolog (XML 1.0, 2.8) byte by byte: declaration, comments, processing instructions, a document type with
/// or without an internal subset. UTF-8, or UTF-16 with a byte order mark.
struct SVGProlog {
  /// How much of a file is looked at.
  static let length = 64 << 10

  /// The attributes of the root element, as written.
  private(set) var attributes: [String: String] = [:]

  /// nil where the first element is not `svg`, with any prefix, or does not come within `length`.
  init?(_ bytes: some Collection<UInt8>) {
    var scanner = Scanner(bytes: Self.ascii(bytes.prefix(Self.length)))
    guard scanner.skipProlog(), scanner.skip("<") else { return nil }
    let name = scanner.name()
    guard name.split(separator: ":", maxSplits: 1).last == "svg", !name.hasPrefix(":") else { return nil }
    attributes = scanner.attributes()
  }

  /// Whether the first bytes could begin a text in XML at all; cheap.
  static func mayBegin(_ bytes: some Collection<UInt8>) -> Bool {
    let start = bytes.prefix(4)
    if start.starts(with: [0xFE, 0xFF]) || start.starts(with: [0xFF, 0xFE]) { return true }
    if start.starts(with: [0xEF, 0xBB, 0xBF]) { return true }
    guard let first = start.first else { return false }
    return first == UInt8(ascii: "<") || first == 0x20 || (0x09...0x0D).contains(first)
  }

  /// Sides in pixels at `dpi`, from `width` and `height`, or from `viewBox` where these are missing; nil where they
  /// hang on what surrounds the drawing.
  ///
  /// Units as in SVG 1.1, 7.10; a pixel is a user unit, as librsvg has it.
  func size(dpi: Double) -> (width: Double, height: Double)? {
    let box = (attributes["viewBox"] ?? "").split { $0 == " " || $0 == "," || $0 == "\n" || $0 == "\t" || $0 == "\r" }
      .compactMap { Double($0) }
    let hasBox = box.count == 4 && box[2] > 0 && box[3] > 0
    func side(_ text: String?) -> Double?? {
      guard let text else { return .some(nil) }
      return Self.pixels(text, dpi: dpi).map { .some($0) } ?? .none
    }
    guard let width = side(attributes["width"]), let height = side(attributes["height"]) else { return nil }
    switch (width, height) {
    case (let width?, let height?): return (width, height)
    case (nil, nil): return hasBox ? (box[2], box[3]) : nil
    case (let width?, nil): return hasBox ? (width, width * box[3] / box[2]) : nil
    case (nil, let height?): return hasBox ? (height * box[2] / box[3], height) : nil
    }
  }

  private static func pixels(_ text: String, dpi: Double) -> Double? {
    let trimmed = text.drop { $0 == " " }
    let number = trimmed.prefix { $0.isNumber || "+-.eE".contains($0) }
    // The e of "em" and "ex" is no exponent.
    let digits = number.last == "e" || number.last == "E" ? number.dropLast() : number
    guard let value = Double(digits), value.isFinite else { return nil }
    switch trimmed.dropFirst(digits.count).prefix(while: { $0 != " " }) {
    case "", "px": return value
    case "in": return value * dpi
    case "cm": return value * dpi / 2.54
    case "mm": return value * dpi / 25.4
    case "pt": return value * dpi / 72
    case "pc": return value * dpi / 6
    default: return nil
    }
  }

  /// The text as bytes of ASCII, without its byte order mark; of UTF-16, what is not ASCII becomes 0x7F, which no markup
  /// uses.
  static func ascii(_ bytes: some Collection<UInt8>) -> [UInt8] {
    let head = Array(bytes)
    let isBig = head.starts(with: [0xFE, 0xFF])
    guard isBig || head.starts(with: [0xFF, 0xFE]) else {
      return head.starts(with: [0xEF, 0xBB, 0xBF]) ? Array(head.dropFirst(3)) : head
    }
    return stride(from: 2, to: head.count - 1, by: 2).map { i in
      let (high, low) = isBig ? (head[i], head[i + 1]) : (head[i + 1], head[i])
      return high == 0 && low < 0x80 ? low : 0x7F
    }
  }

  private struct Scanner {
    let bytes: [UInt8]
    var at = 0

    init(bytes: [UInt8]) { self.bytes = bytes }

    func sees(_ text: StaticString) -> Bool {
      let length = text.utf8CodeUnitCount
      guard at + length <= bytes.count else { return false }
      return (0..<length).allSatisfy { bytes[at + $0] == text.utf8Start[$0] }
    }

    mutating func skip(_ text: StaticString) -> Bool {
      guard sees(text) else { return false }
      at += text.utf8CodeUnitCount
      return true
    }

    mutating func skip(past text: StaticString) -> Bool {
      while at < bytes.count {
        if skip(text) { return true }
        at += 1
      }
      return false
    }

    static func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 || byte == 0x0A || byte == 0x0D }

    mutating func skipSpace() { while at < bytes.count, Self.isSpace(bytes[at]) { at += 1 } }

    /// Stops before the first element; false where there is none.
    mutating func skipProlog() -> Bool {
      while true {
        skipSpace()
        if skip("<!--") {
          guard skip(past: "-->") else { return false }
        } else if skip("<?") {
          guard skip(past: "?>") else { return false }
        } else if skip("<!DOCTYPE") {
          guard skipDoctype() else { return false }
        } else {
          return sees("<")
        }
      }
    }

    /// A document type can hold declarations in brackets, and these quotes and comments with any character.
    private mutating func skipDoctype() -> Bool {
      var isInside = false
      while at < bytes.count {
        if skip("<!--") {
          guard skip(past: "-->") else { return false }
          continue
        }
        let byte = bytes[at]
        at += 1
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "'"):
          while at < bytes.count, bytes[at] != byte { at += 1 }
          at += 1
        case UInt8(ascii: "["): isInside = true
        case UInt8(ascii: "]"): isInside = false
        case UInt8(ascii: ">"): if !isInside { return true }
        default: break
        }
      }
      return false
    }

    mutating func name() -> String {
      let start = at
      while at < bytes.count, !Self.isSpace(bytes[at]), !"/>=<\"'".utf8.contains(bytes[at]) { at += 1 }
      return String(decoding: bytes[start..<at], as: UTF8.self)
    }

    /// The attributes up to the end of the tag, or up to where it is not well formed.
    mutating func attributes() -> [String: String] {
      var found: [String: String] = [:]
      while true {
        skipSpace()
        let name = name()
        skipSpace()
        guard !name.isEmpty, skip("=") else { return found }
        skipSpace()
        guard at < bytes.count, bytes[at] == UInt8(ascii: "\"") || bytes[at] == UInt8(ascii: "'") else { return found }
        let quote = bytes[at]
        at += 1
        let start = at
        while at < bytes.count, bytes[at] != quote { at += 1 }
        guard at < bytes.count else { return found }
        found[name] = String(decoding: bytes[start..<at], as: UTF8.self)
        at += 1
      }
    }
  }
}
