/// Reads JSON as RFC 8259 has it, keeping the place of every value.
///
/// Beyond the RFC a byte order mark at the beginning and `//` comments are allowed, nothing else. Less than the RFC:
/// an object must not hold a key twice, and a number must be one that a double can hold.
public enum StrictJSON {
  /// The codes of the findings, each stable.
  public enum Code: String, CaseIterable, Sendable {
    // These leave a value behind and reading goes on.
    case duplicateKey = "duplicate-key"
    case numberNotRepresentable = "number-not-representable"
    case numberNotExact = "number-not-exact"
    case numberNegativeZero = "number-negative-zero"
    /// A note in place of the rest, once there are too many findings.
    case moreFindings = "more-findings"
    // These end the reading.
    case fileTooLarge = "file-too-large"
    case invalidUTF8 = "invalid-utf8"
    case notText = "not-text"
    case emptyDocument = "empty-document"
    case tooDeep = "too-deep"
    case missingComma = "missing-comma"
    case missingColon = "missing-colon"
    case missingValue = "missing-value"
    case trailingComma = "trailing-comma"
    case trailingContent = "trailing-content"
    case unclosedObject = "unclosed-object"
    case unclosedArray = "unclosed-array"
    case mismatchedBracket = "mismatched-bracket"
    case unclosedString = "unclosed-string"
    case controlCharacter = "control-character"
    case invalidEscape = "invalid-escape"
    case loneSurrogate = "lone-surrogate"
    case singleQuotes = "single-quotes"
    case unquotedKey = "unquoted-key"
    case unknownLiteral = "unknown-literal"
    case invalidNumber = "invalid-number"
    case blockComment = "block-comment"
    case hashComment = "hash-comment"
    case unexpectedCharacter = "unexpected-character"
  }

  /// Findings kept of one text; more are counted, not kept.
  public static let maxDiagnostics = 1_000

  /// Reads one document.
  ///
  /// Broken syntax ends the reading: `root` is nil and the last error says where and why. Duplicate keys and numbers
  /// that a double cannot hold are reported and read on, so `root` may be there beside errors. Time and memory grow
  /// in line with the text, whatever it holds.
  ///
  /// - Parameters:
  ///   - maxDepth: arrays and objects that may lie in one another, at most 512.
  ///   - maxBytes: the longest text that is read, at most 1 GiB.
  public static func parse(
    _ file: SourceFile, maxDepth: Int = 64, maxBytes: Int = 64 << 20
  ) -> (root: JSONNode?, diagnostics: [Diagnostic]) {
    var parser = JSONParser(file, maxDepth: min(max(maxDepth, 1), 512), maxBytes: min(max(maxBytes, 1), 1 << 30))
    let root = parser.parse()
    return (root, parser.diagnostics)
  }
}

/// One pass over one text. The stack of open containers is an array of ours, so depth costs no call stack.
struct JSONParser {
  private typealias Code = StrictJSON.Code

  private struct Stop: Error { let diagnostic: Diagnostic }

  private struct Container {
    let isObject: Bool
    let opened: SourcePosition
    let location: JSONPath
    /// Shared by the paths of all children.
    let ancestor: JSONPath.Ancestor
    var elements: [JSONNode] = []
    var members: [JSONMember] = []
    var firstOfKey: [String: Int] = [:]
    var key = ""
    var keyRange: SourceRange

    var open: String { isObject ? "'{'" : "'['" }
    var close: String { isObject ? "'}'" : "']'" }
  }

  private let file: SourceFile
  private let text: [UInt8]
  private let maxDepth: Int
  private let maxBytes: Int
  private var index = 0
  private var stack: [Container] = []
  /// After the last byte of the last token.
  private var lastTokenEnd: SourcePosition
  private var lastTokenWasString = false
  private(set) var cursor: PositionCursor
  private(set) var diagnostics: [Diagnostic] = []
  private var dropped = 0

  init(_ file: SourceFile, maxDepth: Int, maxBytes: Int) {
    self.file = file
    self.text = file.text
    self.maxDepth = maxDepth
    self.maxBytes = maxBytes
    cursor = PositionCursor(of: file)
    lastTokenEnd = SourcePosition(offset: file.contentStart, line: file.firstLine, column: 1)
  }

  mutating func parse() -> JSONNode? {
    var root: JSONNode?
    var stop: Diagnostic?
    do throws(Stop) {
      try checkText()
      index = file.contentStart
      root = try document()
    } catch {
      stop = error.diagnostic
    }
    if dropped > 0 {
      diagnostics.append(
        Diagnostic(
          severity: .note, code: Code.moreFindings.rawValue,
          message: "\(dropped) more \(dropped == 1 ? "finding is" : "findings are") not shown", file: file.name))
    }
    if let stop { diagnostics.append(stop) }
    return root
  }

  // MARK: Structure

  private mutating func document() throws(Stop) -> JSONNode {
    try skipBlank()
    if index == text.count {
      throw stop(
        .emptyDocument, index..<index, expected: "a JSON document", found: text.isEmpty ? "an empty file" : "no value",
        hint: JSONParser.documentHint)
    }
    while true {
      guard var node = try valueOrOpening() else { continue }
      // The value is complete: hand it to its container, and that one, if it ends here, to the next.
      while true {
        guard !stack.isEmpty else {
          try skipBlank()
          if index < text.count { throw trailingContent() }
          return node
        }
        attach(node)
        guard let closed = try separatorOrClosing() else { break }
        node = closed
      }
    }
  }

  /// Reads a value, or opens a container and answers nil with the place of its first value next.
  private mutating func valueOrOpening() throws(Stop) -> JSONNode? {
    guard index < text.count else { throw missingValue() }
    let start = mark()
    switch text[index] {
    case Byte.openBrace, Byte.openBracket: return try openContainer(at: start)
    case Byte.quote:
      let string = try string()
      return node(.string(string), from: start)
    case Byte.minus, Byte.zero...UInt8(ascii: "9"), Byte.plus, Byte.dot: return try number(from: start)
    case let byte where JSONParser.isWordStart(byte) && !wordRange(at: index).isEmpty: return try literal(from: start)
    case Byte.closeBrace, Byte.closeBracket, Byte.comma, Byte.colon: throw missingValue()
    default: throw strayCharacter(expected: valueName, forChild)
    }
  }

  private mutating func openContainer(at start: SourcePosition) throws(Stop) -> JSONNode? {
    if stack.count >= maxDepth {
      throw stop(
        .tooDeep, index..<index + 1, expected: "at most \(maxDepth) levels of arrays and objects",
        found: "one more", hint: "is this the right file?")
    }
    let isObject = text[index] == Byte.openBrace
    let location = childLocation
    index += 1
    endToken()
    stack.append(
      Container(
        isObject: isObject, opened: start, location: location, ancestor: JSONPath.Ancestor(location),
        keyRange: SourceRange(start: start, end: start)))
    try skipBlank()
    if index < text.count, text[index] == (isObject ? Byte.closeBrace : Byte.closeBracket) {
      return closeContainer()
    }
    if index == text.count {
      throw unclosed(expected: isObject ? "a key or '}'" : "a value or ']'")
    }
    if isObject { try key(orClosing: true) }
    return nil
  }

  private mutating func closeContainer() -> JSONNode? {
    guard let container = stack.popLast() else { return nil }
    index += 1
    endToken()
    return JSONNode(
      value: container.isObject ? .object(container.members) : .array(container.elements),
      range: SourceRange(start: container.opened, end: lastTokenEnd), location: container.location)
  }

  private mutating func attach(_ node: JSONNode) {
    let top = stack.count - 1
    guard stack[top].isObject else {
      stack[top].elements.append(node)
      return
    }
    let key = stack[top].key
    let keyRange = stack[top].keyRange
    if let first = stack[top].firstOfKey[key] {
      stack[top].members.append(JSONMember(key: key, keyRange: keyRange, value: node))
      guard hasRoomForFinding() else { return }
      let place = stack[top].members[first].keyRange.start
      report(
        .duplicateKey, range: keyRange, location: node.location,
        message: "expected each key once in \(placeName(stack[top].location)), found \(quoted(key)) again",
        expected: "each key once", found: "\(quoted(key)) again",
        hint: "the first \(quoted(key)) is at line \(place.line), column \(place.column); keep one of them")
    } else {
      stack[top].firstOfKey[key] = stack[top].members.count
      stack[top].members.append(JSONMember(key: key, keyRange: keyRange, value: node))
    }
  }

  /// After a value: a comma (nil: the next value's place follows) or the end of the container (its node).
  private mutating func separatorOrClosing() throws(Stop) -> JSONNode? {
    guard let top = stack.last else { return nil }
    let closing = top.isObject ? Byte.closeBrace : Byte.closeBracket
    try skipBlank()
    guard index < text.count else { throw unclosed(expected: "',' or \(top.close)", after: true) }
    if text[index] == closing { return closeContainer() }
    guard text[index] == Byte.comma else { throw missingSeparator(in: top) }
    let comma = index
    index += 1
    endToken()
    try skipBlank()
    guard index < text.count else { throw unclosed(expected: top.isObject ? "a key" : "a value") }
    if text[index] == closing {
      throw stop(
        .trailingComma, comma..<comma + 1, expected: top.isObject ? "another key after ','" : "another value after ','",
        found: top.close, hint: "remove this comma: JSON has none after the last \(top.isObject ? "member" : "value")")
    }
    if top.isObject { try key(orClosing: false) }
    return nil
  }

  /// Reads `"key" :` and goes on to its value.
  private mutating func key(orClosing: Bool) throws(Stop) {
    guard text[index] == Byte.quote else { throw badKey(orClosing: orClosing) }
    let start = mark()
    let key = try string()
    endToken(isString: true)
    stack[stack.count - 1].key = key
    stack[stack.count - 1].keyRange = SourceRange(start: start, end: lastTokenEnd)
    try skipBlank()
    guard index < text.count else { throw unclosed(expected: "':' after the key \(quoted(key))") }
    guard text[index] == Byte.colon else {
      let token = token(at: index)
      let hint =
        switch text[index] {
        case UInt8(ascii: "="): "write ':' between key and value, not '='"
        case Byte.comma, Byte.closeBrace: "a key needs a value: \(quoted(key)): …"
        default: "put ':' between key and value"
        }
      throw stop(
        .missingColon, token.range, expected: "':'", "after the key \(quoted(key))", found: token.name, hint: hint)
    }
    index += 1
    endToken()
    try skipBlank()
    guard index < text.count else { throw unclosed(expected: "a value for \(quoted(key))") }
  }

  // MARK: Scalars

  private mutating func literal(from start: SourcePosition) throws(Stop) -> JSONNode {
    let word = wordRange(at: index)
    let value: JSONValue
    switch text[word] {
    case JSONParser.trueWord: value = .bool(true)
    case JSONParser.falseWord: value = .bool(false)
    case JSONParser.nullWord: value = .null
    default: throw unknownLiteral(word)
    }
    index = word.upperBound
    return node(value, from: start)
  }

  private static let documentHint = "a JSON document begins with '{' or '['"
  private static let trueWord = Array("true".utf8)[...]
  private static let falseWord = Array("false".utf8)[...]
  private static let nullWord = Array("null".utf8)[...]

  private mutating func number(from start: SourcePosition) throws(Stop) -> JSONNode {
    var end = index
    while end < text.count, JSONParser.isNumberLike(text[end]) { end += 1 }
    let literal = text[index..<end]
    guard JSONNumber.isNumber(literal) else { throw invalidNumber(index..<end) }
    index = end
    let number = JSONNumber(checked: String(decoding: literal, as: UTF8.self))
    let node = node(.number(number), from: start)
    // Nearly all numbers are short; these are exact as they are.
    if literal.count > 15 || literal.first == Byte.minus || !literal.allSatisfy(isDigit) { check(number, node) }
    return node
  }

  private mutating func check(_ number: JSONNumber, _ node: JSONNode) {
    let code: Code
    let expected: String
    let hint: String
    if number.isNegativeZero {
      (code, expected) = (.numberNegativeZero, "a number other than minus zero")
      hint = "write 0"
    } else if number.double == nil {
      (code, expected) = (.numberNotRepresentable, "a number that a double can hold")
      hint =
        Double(number.text) == 0
        ? "other than 0 the smallest is about 4.9e-324; write 0 if that is meant" : "the largest is about 1.8e308"
    } else if number.text.utf8.allSatisfy({ isDigit($0) || $0 == Byte.minus }),
      number.integer.map({ $0.magnitude > 1 << 53 }) ?? true
    {
      (code, expected) = (.numberNotExact, "an integer within ±9007199254740992")
      hint = "beyond that, programs that read JSON round integers; write it as a string if it is a name or an id"
    } else {
      return
    }
    guard hasRoomForFinding() else { return }
    let written = shortened(number.text)
    report(
      code, range: node.range, location: node.location,
      message: "expected \(expected) for \(placeName(node.location)), found \(written)", expected: expected,
      found: written, hint: hint)
  }

  /// Reads a string from its opening quote to after its closing one.
  private mutating func string() throws(Stop) -> String {
    let open = index
    index += 1
    var start = index
    var decoded: [UInt8] = []
    while index < text.count {
      let byte = text[index]
      if byte == Byte.quote {
        defer { index += 1 }
        if decoded.isEmpty { return String(decoding: text[start..<index], as: UTF8.self) }
        decoded += text[start..<index]
        return String(decoding: decoded, as: UTF8.self)
      } else if byte == Byte.backslash {
        decoded += text[start..<index]
        try escape(into: &decoded)
        start = index
      } else if byte < 0x20 {
        if isLineBreak(byte) { break }
        let name = JSONParser.scalarName(Unicode.Scalar(byte))
        throw stop(
          .controlCharacter, index..<index + 1, expected: "no control character in a string", found: name,
          hint: byte == Byte.tab ? #"write \t"# : "write \\u00\(byte < 16 ? "0" : "")\(String(byte, radix: 16))")
      } else {
        index += 1
      }
    }
    throw stop(
      .unclosedString, open..<index, expected: #"'"' at the end of the string"#,
      found: index < text.count ? "the end of the line" : "the end of the file",
      hint: index < text.count ? #"close the string; a line break inside one is written \n"# : "close the string")
  }

  private mutating func escape(into decoded: inout [UInt8]) throws(Stop) {
    let start = index
    index += 1
    guard index < text.count else { return }  // The string is unclosed; its own error says so.
    switch text[index] {
    case Byte.quote, Byte.backslash, Byte.slash: decoded.append(text[index])
    case UInt8(ascii: "b"): decoded.append(0x08)
    case UInt8(ascii: "f"): decoded.append(0x0C)
    case UInt8(ascii: "n"): decoded.append(Byte.lineFeed)
    case UInt8(ascii: "r"): decoded.append(Byte.carriageReturn)
    case UInt8(ascii: "t"): decoded.append(Byte.tab)
    case Byte.letterU:
      let scalar = try unicodeEscape(from: start)
      decoded += UTF8.encode(scalar) ?? UTF8.encodedReplacementCharacter
      return
    default:
      guard !isLineBreak(text[index]) else { return }
      let end = scalarEnd(at: index)
      throw stop(
        .invalidEscape, start..<end, expected: #"an escape such as \n, \", \\ or \u00e9"#,
        found: quoteSource(start..<end),
        hint: #"a backslash itself is written \\; in paths use /"#)
    }
    index += 1
  }

  /// Reads `\uXXXX`, or two of them for a surrogate pair; `index` is at the `u`.
  private mutating func unicodeEscape(from start: Int) throws(Stop) -> Unicode.Scalar {
    guard let unit = hexadecimal4(text, at: index + 1) else {
      var end = index + 1
      while end < text.count, end < index + 5, Unicode.Scalar(text[end]).properties.isASCIIHexDigit { end += 1 }
      throw stop(
        .invalidEscape, start..<end, expected: #"four hexadecimal digits after \u"#, found: quoteSource(start..<end),
        hint: #"a backslash itself is written \\; in paths use /"#)
    }
    index += 5
    if let scalar = Unicode.Scalar(unit) { return scalar }
    if unit < 0xDC00, index + 1 < text.count, text[index] == Byte.backslash, text[index + 1] == Byte.letterU,
      let low = hexadecimal4(text, at: index + 2), 0xDC00..<0xE000 ~= low,
      let scalar = Unicode.Scalar(0x10000 + ((unit - 0xD800) << 10 | (low - 0xDC00)))
    {
      index += 6
      return scalar
    }
    throw stop(
      .loneSurrogate, start..<index, expected: #"a surrogate pair such as \ud83d\ude00"#,
      found: "\(quoteSource(start..<index)) alone", hint: "write the character itself in UTF-8")
  }

  // MARK: Blanks and the text as a whole

  private mutating func skipBlank() throws(Stop) {
    while index < text.count {
      switch text[index] {
      case Byte.space, Byte.tab, Byte.lineFeed, Byte.carriageReturn: index += 1
      case Byte.slash where index + 1 < text.count && text[index + 1] == Byte.slash:
        while index < text.count, !isLineBreak(text[index]) { index += 1 }
      case Byte.slash where index + 1 < text.count && text[index + 1] == UInt8(ascii: "*"):
        throw stop(
          .blockComment, index..<index + 2, expected: "a comment that begins with '//'", found: "'/*'",
          hint: "begin each line of the comment with //")
      case UInt8(ascii: "#"):
        if colorEnd(at: index) != nil { return }
        throw stop(
          .hashComment, index..<index + 1, expected: "a comment that begins with '//'", found: "'#'",
          hint: "begin the comment with //")
      default: return
      }
    }
  }

  /// The end of an unquoted colour such as `#dfe9f3`, which is no comment.
  private func colorEnd(at offset: Int) -> Int? {
    var end = offset + 1
    while end < text.count, Unicode.Scalar(text[end]).properties.isASCIIHexDigit { end += 1 }
    guard [3, 4, 6, 8].contains(end - offset - 1) else { return nil }
    guard let next = text[end...].first(where: { $0 != Byte.space && $0 != Byte.tab }) else { return end }
    return isLineBreak(next) || [Byte.comma, Byte.closeBrace, Byte.closeBracket].contains(next) ? end : nil
  }

  /// Refuses what is not UTF-8 text, or too much of it.
  private mutating func checkText() throws(Stop) {
    if text.count > maxBytes {
      throw Stop(
        diagnostic: Diagnostic(
          code: Code.fileTooLarge.rawValue,
          message: "expected a file of at most \(maxBytes) bytes, found \(text.count) bytes", file: file.name,
          expected: "at most \(maxBytes) bytes", found: "\(text.count) bytes", hint: "is this the right file?"))
    }
    if looksLikeUTF16 {
      throw stop(
        .invalidUTF8, 0..<0, expected: "text in UTF-8", found: "what looks like UTF-16", hint: "save the file as UTF-8")
    }
    let bad = text.withUnsafeBufferPointer { firstInvalidUTF8(in: $0, from: file.contentStart) }
    if bad != nil, text.prefix(512).contains(0) {
      throw stop(
        .notText, 0..<0, expected: "a JSON document", found: "what looks like a binary file",
        hint: "is this the right file?")
    }
    guard let bad else { return }
    let byte = String(text[bad], radix: 16, uppercase: true)
    throw stop(
      .invalidUTF8, bad..<bad + 1, expected: "text in UTF-8", found: "the byte 0x\(byte)",
      hint: "save the file as UTF-8; it may be in Windows-1252 or Latin-1")
  }

  /// A byte order mark of UTF-16, or two ASCII characters in it.
  private var looksLikeUTF16: Bool {
    guard text.count >= 4 else { return text.starts(with: [0xFF, 0xFE]) || text.starts(with: [0xFE, 0xFF]) }
    let zeros = text[..<4].map { $0 == 0 }
    return text.starts(with: [0xFF, 0xFE]) || text.starts(with: [0xFE, 0xFF])
      || zeros == [false, true, false, true] || zeros == [true, false, true, false]
  }

  // MARK: Errors that end the reading

  private mutating func missingValue() -> Stop {
    if index == text.count { return unclosed(expected: valueName) }
    let token = token(at: index)
    let byte = text[index]
    if let top = stack.last, byte == (top.isObject ? Byte.closeBracket : Byte.closeBrace) {
      return mismatched(expected: top.isObject ? "a value" : "a value or ']'", forChild, in: top)
    }
    let hint =
      switch byte {
      case _ where stack.isEmpty: JSONParser.documentHint
      case Byte.colon: "remove the extra ':'"
      case Byte.comma where stack.last?.isObject == false: "remove the extra comma"
      default: "write null, or leave the key out"
      }
    return stop(.missingValue, token.range, expected: valueName, forChild, found: token.name, hint: hint)
  }

  private mutating func badKey(orClosing: Bool) -> Stop {
    let token = token(at: index)
    let place = "in \(placeName(stack.last?.location ?? .root))"
    let expected = orClosing ? "a key in double quotes or '}'" : "a key in double quotes"
    let byte = text[index]
    if byte == UInt8(ascii: "'") { return singleQuotes(expected: expected, place) }
    if JSONParser.isWordStart(byte), token.isWord {
      return stop(
        .unquotedKey, token.range, expected: expected, place, found: token.name,
        hint: "write \(quoted(decoded(token.range)))")
    }
    if byte == Byte.closeBracket, let top = stack.last { return mismatched(expected: expected, place, in: top) }
    if byte == Byte.comma {
      return stop(
        .unexpectedCharacter, token.range, expected: expected, place, found: token.name, hint: "remove the extra comma")
    }
    return strayCharacter(expected: expected, place)
  }

  private mutating func missingSeparator(in top: Container) -> Stop {
    let token = token(at: index)
    let byte = text[index]
    let expected = "',' or \(top.close)"
    let previous =
      top.isObject ? JSONPath.member(of: top.ancestor, top.key) : .element(of: top.ancestor, top.elements.count - 1)
    let place = "after \(placeName(previous))"
    if byte == (top.isObject ? Byte.closeBracket : Byte.closeBrace) {
      return mismatched(expected: expected, place, in: top)
    }
    let touches = lastTokenEnd.offset == index
    if lastTokenWasString, touches, token.isWord || token.isNumber || byte == Byte.backslash {
      return stop(
        .missingComma, token.range, expected: expected, place, found: token.name,
        hint: #"a double quote inside a string is written \""#)
    }
    if !top.isObject, byte == Byte.colon {
      return stop(
        .unexpectedCharacter, token.range, expected: expected, place, found: token.name,
        hint: "keys belong in an object, between '{' and '}'")
    }
    if byte == UInt8(ascii: ";") {
      return stop(
        .unexpectedCharacter, token.range, expected: expected, place, found: token.name, hint: "write ',', not ';'")
    }
    let beginsNext =
      token.isWord || token.isNumber || byte == Byte.quote || byte == UInt8(ascii: "'") || byte == Byte.openBrace
      || byte == Byte.openBracket
    guard beginsNext else { return strayCharacter(expected: expected, place) }
    // The comma belongs after the value before, which may stand some lines up; that is the place to point at.
    let end = lastTokenEnd
    return Stop(
      diagnostic: syntax(
        .missingComma, SourceRange(start: end, end: end), expected: expected, place, found: token.name,
        hint: top.isObject ? "put a comma between the two members" : "put a comma between the two values"))
  }

  private mutating func mismatched(expected: String, _ place: String?, in top: Container) -> Stop {
    stop(
      .mismatchedBracket, index..<index + 1, expected: expected, place, found: token(at: index).name,
      hint: "the \(top.open) at line \(top.opened.line), column \(top.opened.column) is still open")
  }

  private mutating func trailingContent() -> Stop {
    let token = token(at: index)
    let hint =
      switch text[index] {
      case Byte.closeBrace, Byte.closeBracket: "more brackets are closed than were opened; remove this one"
      case Byte.comma: "remove the comma"
      default: "a file holds one JSON document"
      }
    return stop(
      .trailingContent, token.range, expected: "the end of the file after the document", found: token.name, hint: hint)
  }

  /// The text ends inside a container; points behind the last token, for blank lines at the end say nothing.
  private func unclosed(expected: String, after: Bool = false) -> Stop {
    guard let top = stack.last else {
      return Stop(
        diagnostic: syntax(
          .missingValue, SourceRange(start: lastTokenEnd, end: lastTokenEnd), expected: expected,
          found: "the end of the file"))
    }
    let previous =
      top.isObject ? JSONPath.member(of: top.ancestor, top.key) : .element(of: top.ancestor, top.elements.count - 1)
    return Stop(
      diagnostic: syntax(
        top.isObject ? .unclosedObject : .unclosedArray, SourceRange(start: lastTokenEnd, end: lastTokenEnd),
        expected: expected, after ? "after \(placeName(previous))" : nil, found: "the end of the file",
        hint: "the \(top.open) at line \(top.opened.line), column \(top.opened.column) is not closed"))
  }

  private mutating func singleQuotes(expected: String, _ place: String?) -> Stop {
    let token = token(at: index)
    guard token.isSingleQuoted else {
      return stop(.singleQuotes, token.range, expected: expected, place, found: token.name)
    }
    let inner = decoded(token.range.lowerBound + 1..<token.range.upperBound - 1)
    return stop(
      .singleQuotes, token.range, expected: expected, place, found: token.name, hint: "write \(quoted(inner))")
  }

  private mutating func strayCharacter(expected: String, _ place: String?) -> Stop {
    let token = token(at: index)
    if text[index] == UInt8(ascii: "'") { return singleQuotes(expected: expected, place) }
    var hint: String?
    if let scalar = scalar(at: index) {
      switch scalar {
      case "\u{201C}", "\u{201D}", "\u{201E}", "\u{2018}", "\u{2019}", "\u{00AB}", "\u{00BB}", "`":
        hint = #"use the straight double quote, ""#
      case "#": hint = "text goes in double quotes: \(quoted(decoded(token.range)))"
      case "\u{FEFF}": hint = "remove this byte order mark; one is allowed at the very beginning only"
      case _ where scalar.properties.generalCategory == .spaceSeparator: hint = "replace it by an ordinary space"
      case _ where JSONParser.isInvisible(scalar): hint = "remove it"
      case "$": hint = "a ${…} goes inside a string, in double quotes"
      default: break
      }
    }
    return stop(.unexpectedCharacter, token.range, expected: expected, place, found: token.name, hint: hint)
  }

  private mutating func unknownLiteral(_ range: Range<Int>) -> Stop {
    let token = token(at: range.lowerBound)
    let word = String(decoding: text[range], as: UTF8.self)
    let hint =
      switch word.lowercased() {
      case "true", "yes", "on": "write true"
      case "false", "no", "off": "write false"
      case "null", "none", "nil", "undefined": "write null, or leave the key out"
      case "nan", "infinity", "inf": "JSON has no such number; leave the key out"
      default:
        if let near = NearestName.suggestion(for: word, among: ["true", "false", "null"]) {
          "write \(near)"
        } else if stack.isEmpty {
          JSONParser.documentHint
        } else {
          "text goes in double quotes: \(quoted(word))"
        }
      }
    return stop(
      .unknownLiteral, token.range, expected: valueName, forChild, found: token.name,
      hint: hint)
  }

  private mutating func invalidNumber(_ range: Range<Int>) -> Stop {
    let written = String(decoding: text[range], as: UTF8.self)
    let unsigned = written.hasPrefix("-") || written.hasPrefix("+") ? String(written.dropFirst()) : written
    let sign = written.hasPrefix("-") ? "-" : ""
    let lowered = unsigned.lowercased()
    if ["infinity", "inf", "nan"].contains(lowered) { return unknownLiteralNumber(range, written) }
    let hint: String
    if written.utf8.count > 64 {
      hint = "text goes in double quotes"
    } else if lowered.hasPrefix("0x"), let value = Int(lowered.dropFirst(2), radix: 16) {
      hint = "write it as a decimal number: \(sign)\(value)"
    } else if let number = JSONParser.repaired(unsigned).map({ sign + $0 }), JSONNumber(text: number) != nil {
      hint = "write \(number)"
    } else if lowered.hasSuffix("e") || lowered.hasSuffix("e+") || lowered.hasSuffix("e-") {
      hint = "the exponent has no digits"
    } else if unsigned.isEmpty {
      hint = "a sign needs a number behind it"
    } else {
      hint = "text goes in double quotes: \(quoted(written))"
    }
    return stop(
      .invalidNumber, range, expected: "a number", forChild, found: quoteSource(range),
      hint: hint)
  }

  private mutating func unknownLiteralNumber(_ range: Range<Int>, _ written: String) -> Stop {
    stop(
      .unknownLiteral, range, expected: "a number", forChild, found: written,
      hint: "JSON has no such number; leave the key out")
  }

  /// The number most likely meant by one with a leading zero or plus sign, digits missing beside its point, or
  /// underscores between its digits.
  private static func repaired(_ unsigned: String) -> String? {
    guard unsigned.utf8.allSatisfy({ isDigit($0) || $0 == Byte.dot || $0 == UInt8(ascii: "_") }) else { return nil }
    let parts = unsigned.utf8.filter { $0 != UInt8(ascii: "_") }.split(
      separator: Byte.dot, omittingEmptySubsequences: false)
    guard parts.count <= 2, parts.contains(where: { !$0.isEmpty }) else { return nil }
    let whole = String(decoding: parts[0].drop { $0 == Byte.zero }, as: UTF8.self)
    let fraction = parts.count == 2 ? String(decoding: parts[1], as: UTF8.self) : ""
    return (whole.isEmpty ? "0" : whole) + (fraction.isEmpty ? "" : ".\(fraction)")
  }

  private mutating func stop(
    _ code: Code, _ range: Range<Int>, expected: String, _ place: String? = nil, found: String, hint: String? = nil
  ) -> Stop {
    let start = cursor.position(at: range.lowerBound, in: text)
    let end = cursor.position(at: range.upperBound, in: text)
    return Stop(
      diagnostic: syntax(
        code, SourceRange(start: start, end: end), expected: expected, place, found: found, hint: hint))
  }

  private func syntax(
    _ code: Code, _ range: SourceRange, expected: String, _ place: String? = nil, found: String, hint: String? = nil
  ) -> Diagnostic {
    Diagnostic(
      code: code.rawValue, message: "expected \(expected)\(place.map { " \($0)" } ?? ""), found \(found)",
      file: file.name, range: range, path: stack.last.map { $0.location.description }, expected: expected, found: found,
      hint: hint)
  }

  /// Counts a finding that is one too many; asked before its text is put together.
  private mutating func hasRoomForFinding() -> Bool {
    if diagnostics.count < StrictJSON.maxDiagnostics { return true }
    dropped += 1
    return false
  }

  private mutating func report(
    _ code: Code, range: SourceRange, location: JSONPath, message: String, expected: String, found: String, hint: String
  ) {
    diagnostics.append(
      Diagnostic(
        code: code.rawValue, message: message, file: file.name, range: range, path: location.description,
        expected: expected, found: found, hint: hint))
  }

  // MARK: Places and tokens

  /// The path of the value that comes next.
  private var childLocation: JSONPath {
    guard let top = stack.last else { return .root }
    return top.isObject ? .member(of: top.ancestor, top.key) : .element(of: top.ancestor, top.elements.count)
  }

  private var forChild: String? { stack.isEmpty ? nil : "for \(placeName(childLocation))" }
  private var valueName: String { stack.isEmpty ? "a JSON document" : "a value" }

  private func placeName(_ location: JSONPath) -> String {
    switch location {
    case .root: "the document"
    case .member(_, let key): quoted(key)
    case .element, .text: location.description
    }
  }

  private mutating func mark() -> SourcePosition { cursor.position(at: index, in: text) }

  private mutating func endToken(isString: Bool = false) {
    lastTokenEnd = mark()
    lastTokenWasString = isString
  }

  private mutating func node(_ value: JSONValue, from start: SourcePosition) -> JSONNode {
    endToken(isString: text[start.offset] == Byte.quote)
    return JSONNode(value: value, range: SourceRange(start: start, end: lastTokenEnd), location: childLocation)
  }

  private func quoted(_ string: String) -> String { JSONText.string(shortened(string)).rendered() }

  private func decoded(_ range: Range<Int>) -> String { String(decoding: text[range], as: UTF8.self) }

  /// Source text as it stands, in the quotes of a message.
  private func quoteSource(_ range: Range<Int>) -> String { "'\(shortened(decoded(range)))'" }

  private struct Token {
    var range: Range<Int>
    var name: String
    var isWord = false
    var isNumber = false
    var isSingleQuoted = false
  }

  /// What stands at `offset`, named for a message. Used for the one error that ends the reading, so it may look
  /// ahead as far as it likes.
  private func token(at offset: Int) -> Token {
    guard offset < text.count else { return Token(range: offset..<offset, name: "the end of the file") }
    let byte = text[offset]
    if byte == Byte.quote || byte == UInt8(ascii: "'") {
      var end = offset + 1
      while end < text.count, text[end] != byte, !isLineBreak(text[end]) { end += text[end] == Byte.backslash ? 2 : 1 }
      end = min(end, text.count)
      let isClosed = end < text.count && text[end] == byte
      if isClosed { end += 1 }
      let what = isClosed && byte == Byte.quote ? "the string " : ""
      let shown = shortened(decoded(offset..<end))
      return Token(
        range: offset..<end, name: isClosed ? what + shown : byte == Byte.quote ? #"'"'"# : #""'""#,
        isSingleQuoted: isClosed && byte != Byte.quote)
    }
    if isDigit(byte) || byte == Byte.minus {
      var end = offset
      while end < text.count, JSONParser.isNumberLike(text[end]) { end += 1 }
      return Token(range: offset..<end, name: "the number \(shortened(decoded(offset..<end)))", isNumber: true)
    }
    if byte == UInt8(ascii: "#"), let end = colorEnd(at: offset) {
      return Token(range: offset..<end, name: decoded(offset..<end))
    }
    if JSONParser.isWordStart(byte) {
      let range = wordRange(at: offset)
      if !range.isEmpty {
        return Token(range: range, name: "the word \(shortened(decoded(range)))", isWord: true)
      }
    }
    let end = scalarEnd(at: offset)
    return Token(range: offset..<end, name: scalar(at: offset).map(JSONParser.scalarName) ?? "an unknown character")
  }

  /// The run of letters, digits, `_` and `-` at `offset`; where it begins with none of these, one scalar.
  private func wordRange(at offset: Int) -> Range<Int> {
    var end = offset
    while end < text.count {
      let byte = text[end]
      if byte < 0x80 {
        guard JSONParser.isWordStart(byte) || isDigit(byte) || byte == Byte.minus else { break }
        end += 1
      } else {
        guard let scalar = scalar(at: end), scalar.properties.isAlphabetic else { break }
        end = scalarEnd(at: end)
      }
    }
    return offset..<end
  }

  private func scalarEnd(at offset: Int) -> Int {
    var end = offset + 1
    while end < text.count, isContinuation(text[end]) { end += 1 }
    return min(end, text.count)
  }

  private func scalar(at offset: Int) -> Unicode.Scalar? {
    decoded(offset..<scalarEnd(at: offset)).unicodeScalars.first
  }

  private static func isWordStart(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "_"), 0x80...: true
    default: false
    }
  }

  /// What may belong to a number or a slip in one: `0x1F`, `1_000`, `100px`, `50%`.
  private static func isNumberLike(_ byte: UInt8) -> Bool {
    switch byte {
    case _ where isDigit(byte): true
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "_"),
      UInt8(ascii: "%"), Byte.dot, Byte.plus, Byte.minus:
      true
    default: false
    }
  }

  private static func isInvisible(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.properties.generalCategory {
    case .control, .format, .lineSeparator, .paragraphSeparator, .spaceSeparator, .unassigned, .privateUse: true
    default: false
    }
  }

  private static func scalarName(_ scalar: Unicode.Scalar) -> String {
    let hex = String(scalar.value, radix: 16, uppercase: true)
    let code = "U+" + String(repeating: "0", count: max(0, 4 - hex.count)) + hex
    if scalar == "\t" { return "a tab (U+0009)" }
    if scalar.properties.generalCategory == .control { return "a control character (\(code))" }
    if isInvisible(scalar) { return "an invisible character (\(code))" }
    return scalar.isASCII ? "'\(scalar)'" : "'\(scalar)' (\(code))"
  }
}

/// The offset of the first byte from `start` on that is not part of well-formed UTF-8 (Unicode 16, table 3-7).
func firstInvalidUTF8(in text: UnsafeBufferPointer<UInt8>, from start: Int) -> Int? {
  var index = start
  while index < text.count {
    let lead = text[index]
    if lead < 0x80 {
      index += 1
      continue
    }
    let length: Int
    var second: ClosedRange<UInt8> = 0x80...0xBF
    switch lead {
    case 0xC2...0xDF: length = 2
    case 0xE0: (length, second) = (3, 0xA0...0xBF)
    case 0xED: (length, second) = (3, 0x80...0x9F)
    case 0xE1...0xEF: length = 3
    case 0xF0: (length, second) = (4, 0x90...0xBF)
    case 0xF1...0xF3: length = 4
    case 0xF4: (length, second) = (4, 0x80...0x8F)
    default: return index
    }
    guard index + length <= text.count, second ~= text[index + 1] else { return index }
    for next in index + 2..<max(index + 2, index + length) where !isContinuation(text[next]) { return index }
    index += length
  }
  return nil
}
