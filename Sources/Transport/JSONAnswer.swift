import JobSyntax

/// An answer in JSON, with long strings in it left where they are.
///
/// A picture in base64 is decoded straight from the body's bytes: strings of 16 KiB and more are put aside before the
/// text is read, and never become a `String` unless one asks for it.
public struct JSONAnswer: Sendable {
  public let root: JSONNode
  private let body: [UInt8]
  /// Where the inside of each long string stands in `body`, by the place of its quote in the text that was read.
  private let longStrings: [Int: Range<Int>]

  private static let longest = 16 << 10

  /// Reads the body. Throws `failed`, naming place and reason, where it is not JSON.
  public init(_ body: [UInt8]) throws(TransportError) {
    self.body = body
    let (short, longStrings) = Self.withoutLongStrings(body)
    self.longStrings = longStrings
    let (node, findings) = StrictJSON.parse(SourceFile(name: "answer", text: short ?? body), maxDepth: 256)
    guard let node else {
      let finding = findings.first
      let place = finding?.range.map { " (line \($0.start.line), column \($0.start.column))" } ?? ""
      throw TransportError(.failed, "the answer is no JSON: \(finding?.message ?? "it cannot be read")\(place)")
    }
    root = node
  }

  /// The text with long strings replaced by empty ones; nil where there are none.
  private static func withoutLongStrings(_ body: [UInt8]) -> ([UInt8]?, [Int: Range<Int>]) {
    guard body.count >= longest else { return (nil, [:]) }
    return body.withUnsafeBufferPointer { text in
      var short: [UInt8] = []
      var found: [Int: Range<Int>] = [:]
      var copied = 0
      var index = 0
      while index < text.count {
        guard text[index] == quote else {
          index += 1
          continue
        }
        let start = index + 1
        index = start
        while index < text.count, text[index] != quote { index += text[index] == backslash ? 2 : 1 }
        // One without an end is an error for the reader to tell of.
        guard index < text.count else { break }
        if index - start >= longest {
          short += text[copied..<start]
          found[short.count - 1] = start..<index
          copied = index
        }
        index += 1
      }
      guard !found.isEmpty else { return (nil, [:]) }
      short += text[copied...]
      return (short, found)
    }
  }

  private static let quote = UInt8(ascii: "\"")
  private static let backslash = UInt8(ascii: "\\")

  /// The value at a JSON pointer (RFC 6901), such as `/data/0/link`; nil where there is none. A long string reads as empty
  /// here: see `string(at:)` and `base64(at:)`.
  public func node(at pointer: String) -> JSONNode? {
    guard let steps = Self.steps(of: pointer) else { return nil }
    var node = root
    for step in steps {
      let next: JSONNode?
      if let elements = node.arrayValue {
        // No signs, no zeros in front (RFC 6901, section 4).
        let isIndex = step.utf8.allSatisfy { 0x30...0x39 ~= $0 } && (step == "0" || !step.hasPrefix("0"))
        next = isIndex ? Int(step).flatMap { elements.indices.contains($0) ? elements[$0] : nil } : nil
      } else {
        next = node[step]
      }
      guard let next else { return nil }
      node = next
    }
    return node
  }

  /// The steps of a pointer; nil where it is none: neither empty nor beginning with `/`, or with a `~` that is neither
  /// `~0` nor `~1`.
  public static func steps(of pointer: String) -> [String]? {
    guard !pointer.isEmpty else { return [] }
    guard pointer.hasPrefix("/") else { return nil }
    var steps: [String] = []
    for part in pointer.dropFirst().split(separator: "/", omittingEmptySubsequences: false) {
      var step = ""
      var scalars = part.unicodeScalars[...]
      while let scalar = scalars.popFirst() {
        guard scalar == "~" else {
          step.unicodeScalars.append(scalar)
          continue
        }
        switch scalars.popFirst() {
        case "0": step += "~"
        case "1": step += "/"
        default: return nil
        }
      }
      steps.append(step)
    }
    return steps
  }

  /// The string at a pointer; nil where there is none, or another type.
  public func string(at pointer: String) -> String? {
    guard let node = node(at: pointer), let string = node.stringValue else { return nil }
    guard let inside = longStrings[node.range.start.offset] else { return string }
    let literal = Array(body[inside.lowerBound - 1...inside.upperBound])
    return StrictJSON.parse(SourceFile(name: "answer", text: literal)).0?.stringValue
  }

  /// The integer at a pointer; nil where there is none, or another type.
  public func integer(at pointer: String) -> Int? { node(at: pointer)?.numberValue?.integer }

  /// The number at a pointer; nil where there is none, or another type.
  public func number(at pointer: String) -> Double? { node(at: pointer)?.numberValue?.double }

  public func bool(at pointer: String) -> Bool? { node(at: pointer)?.boolValue }

  /// The bytes that the string at a pointer stands for in base64 of either alphabet, also as a `data:` address; line breaks
  /// in it are skipped. Nil where there is no string; throws `failed` where it is not base64.
  public func base64(at pointer: String) throws(TransportError) -> [UInt8]? {
    guard let node = node(at: pointer), let short = node.stringValue else { return nil }
    let bytes: [UInt8]?
    if let inside = longStrings[node.range.start.offset] {
      bytes = body.withUnsafeBytes { Self.decoded(UnsafeRawBufferPointer(rebasing: $0[inside])) }
    } else {
      bytes = Array(short.utf8).withUnsafeBytes { Self.decoded($0) }
    }
    guard let bytes else {
      throw TransportError(.failed, "what the answer has at \(pointer.isEmpty ? "its root" : pointer) is not base64")
    }
    return bytes
  }

  private static func decoded(_ literal: UnsafeRawBufferPointer) -> [UInt8]? {
    var text = literal
    if text.starts(with: "data:".utf8) {
      guard let comma = text.prefix(256).firstIndex(of: UInt8(ascii: ",")),
        text[..<comma].suffix(7).elementsEqual(";base64".utf8)
      else { return nil }
      text = UnsafeRawBufferPointer(rebasing: text[(comma + 1)...])
    }
    // As a rule there is nothing to undo, and nothing to copy.
    let needsCopy = text.contains { $0 == backslash || $0 == 0x0A || $0 == 0x0D }
    if !needsCopy { return decodedPlain(text) }
    guard let plain = unescaped(text) else { return nil }
    return plain.withUnsafeBytes { decodedPlain($0) }
  }

  private static func decodedPlain(_ text: UnsafeRawBufferPointer) -> [UInt8]? {
    if let bytes = Base64.decode(text) { return bytes }
    return Base64.decode(text, urlSafe: true)
  }

  /// Some encoders write `\/` and `\u002B`, others break lines.
  private static func unescaped(_ text: UnsafeRawBufferPointer) -> [UInt8]? {
    var plain: [UInt8] = []
    plain.reserveCapacity(text.count)
    var index = 0
    while index < text.count {
      let byte = text[index]
      index += 1
      if byte == 0x0A || byte == 0x0D { continue }
      guard byte == backslash else {
        plain.append(byte)
        continue
      }
      guard index < text.count else { return nil }
      let kind = text[index]
      index += 1
      switch kind {
      case UInt8(ascii: "n"), UInt8(ascii: "r"): break
      case UInt8(ascii: "/"): plain.append(kind)
      case UInt8(ascii: "u"):
        guard index + 4 <= text.count,
          let value = UInt32(String(decoding: text[index..<index + 4], as: UTF8.self), radix: 16), value < 0x80
        else { return nil }
        plain.append(UInt8(value))
        index += 4
      default: return nil
      }
    }
    return plain
  }
}
