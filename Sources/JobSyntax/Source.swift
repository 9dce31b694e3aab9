/// A place in a text, as editors count it.
///
/// `offset` counts UTF-8 bytes from 0 (a byte order mark included), `line` from 1, `column` Unicode scalars
/// from 1 (a tab is one column; a byte order mark none). LF, CRLF and a lone CR each end a line.
public struct SourcePosition: Hashable, Comparable, Sendable {
  // 32 bits each, because a document holds two positions per value and member; no text over 4 GiB is read.
  private var storedOffset: UInt32
  private var storedLine: UInt32
  private var storedColumn: UInt32

  public init(offset: Int, line: Int, column: Int) {
    storedOffset = UInt32(clamping: offset)
    storedLine = UInt32(clamping: line)
    storedColumn = UInt32(clamping: column)
  }

  /// UTF-8 bytes from the beginning of the file, from 0.
  public var offset: Int {
    get { Int(storedOffset) }
    set { storedOffset = UInt32(clamping: newValue) }
  }

  /// Line number, from 1.
  public var line: Int {
    get { Int(storedLine) }
    set { storedLine = UInt32(clamping: newValue) }
  }

  /// Column in Unicode scalars, from 1.
  public var column: Int {
    get { Int(storedColumn) }
    set { storedColumn = UInt32(clamping: newValue) }
  }

  public static func < (a: SourcePosition, b: SourcePosition) -> Bool {
    (a.storedOffset, a.storedLine, a.storedColumn) < (b.storedOffset, b.storedLine, b.storedColumn)
  }
}

/// A stretch of text from `start` up to, not including, `end`; empty where both are the same.
public struct SourceRange: Hashable, Sendable {
  public var start: SourcePosition
  public var end: SourcePosition

  public init(start: SourcePosition, end: SourcePosition) {
    self.start = start
    self.end = end
  }
}

/// A text with the name under which messages refer to it.
public struct SourceFile: Sendable, Hashable {
  /// The name shown in messages, as a rule the path that the user gave.
  public let name: String
  /// The bytes as read, byte order mark included; need not be valid UTF-8.
  public let text: [UInt8]
  /// The line number of the first line: other than 1 where `text` is a part of a file, as a line of JSON lines.
  public let firstLine: Int

  public init(name: String, text: [UInt8], firstLine: Int = 1) {
    self.name = name
    self.text = text
    self.firstLine = firstLine
  }

  /// The text of line `n` (counted from `firstLine`) without its line break; empty where there is no such line.
  ///
  /// Bytes that are not UTF-8 come as U+FFFD. Takes time linear in the offset of the line.
  public func line(_ n: Int) -> String {
    var current = firstLine
    var start = contentStart
    while current < n {
      guard let end = text[start...].firstIndex(where: isLineBreak) else { return "" }
      start = end + 1
      if text[end] == Byte.carriageReturn, start < text.count, text[start] == Byte.lineFeed { start += 1 }
      current += 1
    }
    guard current == n else { return "" }
    let end = text[start...].firstIndex(where: isLineBreak) ?? text.count
    return String(decoding: text[start..<end], as: UTF8.self)
  }

  /// The line and column of a byte offset, which is clamped to the text. Takes time linear in the offset.
  public func position(at offset: Int) -> SourcePosition {
    var cursor = PositionCursor(of: self)
    return cursor.position(at: min(max(offset, 0), text.count), in: text)
  }

  /// The place of a part of a decoded string inside its quoted literal, escapes accounted for.
  ///
  /// `part` counts UTF-8 bytes of the decoded string; `literal` is the range of the string's node, quotes
  /// included. Nil where `literal` is not a string literal of this file or `part` does not lie in it.
  public func range(ofUTF8 part: Range<Int>, inString literal: SourceRange) -> SourceRange? {
    let bounds = literal.start.offset..<max(literal.start.offset, literal.end.offset)
    guard part.lowerBound >= 0, bounds.count >= 2, bounds.upperBound <= text.count,
      text[bounds.lowerBound] == Byte.quote, text[bounds.upperBound - 1] == Byte.quote
    else { return nil }
    var decoded = 0
    var position = literal.start
    position.offset += 1
    position.column += 1
    var start: SourcePosition?
    let close = bounds.upperBound - 1
    while true {
      if start == nil, decoded >= part.lowerBound { start = position }
      if let start, decoded >= part.upperBound { return SourceRange(start: start, end: position) }
      guard position.offset < close else { return nil }
      let (length, yields) = element(at: position.offset, before: close)
      // An escape is as many columns as bytes; anything else here is one scalar.
      position.column += text[position.offset] == Byte.backslash ? length : 1
      position.offset += length
      decoded += yields
    }
  }

  /// The length in bytes of the scalar or escape at `offset`, and of the UTF-8 that it decodes to.
  private func element(at offset: Int, before close: Int) -> (length: Int, yields: Int) {
    guard text[offset] == Byte.backslash else {
      var end = offset + 1
      while end < close, isContinuation(text[end]) { end += 1 }
      return (end - offset, end - offset)
    }
    guard offset + 1 < close, text[offset + 1] == Byte.letterU else { return (min(2, close - offset), 1) }
    guard let unit = hexadecimal4(text, at: offset + 2) else { return (min(2, close - offset), 1) }
    switch unit {
    case 0..<0x80: return (min(6, close - offset), 1)
    case 0x80..<0x800: return (min(6, close - offset), 2)
    case 0xD800..<0xDC00: return (min(12, close - offset), 4)
    default: return (min(6, close - offset), 3)
    }
  }

  var contentStart: Int { text.starts(with: byteOrderMark) ? byteOrderMark.count : 0 }
}

let byteOrderMark: [UInt8] = [0xEF, 0xBB, 0xBF]

/// The ASCII bytes that the reader and the renderers name.
enum Byte {
  static let tab: UInt8 = 0x09
  static let lineFeed: UInt8 = 0x0A
  static let carriageReturn: UInt8 = 0x0D
  static let space: UInt8 = 0x20
  static let quote = UInt8(ascii: "\"")
  static let backslash = UInt8(ascii: "\\")
  static let slash = UInt8(ascii: "/")
  static let comma = UInt8(ascii: ",")
  static let colon = UInt8(ascii: ":")
  static let minus = UInt8(ascii: "-")
  static let plus = UInt8(ascii: "+")
  static let dot = UInt8(ascii: ".")
  static let zero = UInt8(ascii: "0")
  static let letterU = UInt8(ascii: "u")
  static let openBrace = UInt8(ascii: "{")
  static let closeBrace = UInt8(ascii: "}")
  static let openBracket = UInt8(ascii: "[")
  static let closeBracket = UInt8(ascii: "]")
}

@inline(__always) func isLineBreak(_ byte: UInt8) -> Bool { byte == Byte.lineFeed || byte == Byte.carriageReturn }
@inline(__always) func isContinuation(_ byte: UInt8) -> Bool { byte & 0xC0 == 0x80 }
@inline(__always) func isDigit(_ byte: UInt8) -> Bool { byte &- Byte.zero < 10 }

/// The value of the four hexadecimal digits at `offset`, or nil where there are not four.
func hexadecimal4(_ text: [UInt8], at offset: Int) -> UInt32? {
  guard offset + 4 <= text.count else { return nil }
  var value: UInt32 = 0
  for byte in text[offset..<offset + 4] {
    guard let digit = hexadecimalDigit(byte) else { return nil }
    value = value << 4 | digit
  }
  return value
}

private func hexadecimalDigit(_ byte: UInt8) -> UInt32? {
  switch byte {
  case UInt8(ascii: "0")...UInt8(ascii: "9"): UInt32(byte - UInt8(ascii: "0"))
  case UInt8(ascii: "a")...UInt8(ascii: "f"): UInt32(byte - UInt8(ascii: "a") + 10)
  case UInt8(ascii: "A")...UInt8(ascii: "F"): UInt32(byte - UInt8(ascii: "A") + 10)
  default: nil
  }
}

/// Turns rising byte offsets into lines and columns, looking at each byte once.
///
/// An offset before the last one asked for costs a walk from the beginning; the reader does that only for an
/// error that ends it.
struct PositionCursor {
  private let first: SourcePosition
  private var current: SourcePosition
  /// Bytes looked at so far; tests bound it.
  private(set) var bytesWalked = 0

  init(of file: SourceFile) {
    first = SourcePosition(offset: file.contentStart, line: file.firstLine, column: 1)
    current = first
  }

  mutating func position(at target: Int, in text: [UInt8]) -> SourcePosition {
    if target < current.offset { current = first }
    guard target > current.offset else { return current }
    bytesWalked += target - current.offset
    var line = current.line
    var column = current.column
    var index = current.offset
    while index < target {
      let byte = text[index]
      index += 1
      if byte == Byte.lineFeed || (byte == Byte.carriageReturn && !(index < text.count && text[index] == Byte.lineFeed))
      {
        line += 1
        column = 1
      } else if !isContinuation(byte) {
        column += 1
      }
    }
    current = SourcePosition(offset: target, line: line, column: column)
    return current
  }
}
