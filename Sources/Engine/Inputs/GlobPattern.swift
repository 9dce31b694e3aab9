import PipelineKit

/// Why a pattern cannot be understood.
struct GlobSyntaxError: Error, Sendable, Hashable {
  var message: String
  var hint: String?
}

/// A pattern of `files`, split into its fixed folder and what is left to match.
///
/// - `*` any run of characters, `?` one character, `[a-z]` one of a set (`[!…]` and `[^…]` one not in it); none of
///   them crosses a slash.
/// - `{a,b}` one of several texts, which may hold slashes and further braces.
/// - `**`, alone between slashes, any number of folders, also none; at the end, every file below.
/// - `\` takes the next character for itself.
/// - A name that starts with a dot is matched only by a pattern that starts with that dot.
/// - After the last dot of the last name ASCII letters match in either case.
struct GlobPattern: Sendable, Hashable {
  enum Part: Sendable, Hashable {
    case name(GlobComponent)
    /// `**`
    case folders
  }

  /// The folder in front of the first wildcard, as written; the whole path where there is none.
  let fixed: PathBytes
  /// What follows `fixed`, one list for each combination of the braces; empty for a plain path.
  let alternatives: [[Part]]

  var isPlain: Bool { alternatives.isEmpty }

  /// More combinations of braces than this are refused: they are a mistake, and each is matched on its own.
  static let maximumAlternatives = 1_024
  static let maximumLength = 16_384
  /// Braces nested deeper than this are refused.
  static let maximumNesting = 32

  /// A path taken for itself, whatever characters it has.
  init(plain path: PathBytes) {
    fixed = path
    alternatives = []
  }

  init(_ text: String) throws(GlobSyntaxError) { try self.init(Array(text.utf8)) }

  init(_ source: [UInt8]) throws(GlobSyntaxError) {
    if source.isEmpty { throw GlobSyntaxError(message: "an empty pattern") }
    if source.count > Self.maximumLength {
      throw GlobSyntaxError(message: "a pattern longer than \(Self.maximumLength) bytes")
    }
    if source.contains(0) { throw GlobSyntaxError(message: "a pattern cannot contain a NUL character") }
    var index = 0
    var wildcard = source.count
    var slash: Int?
    while index < source.count {
      if Self.special.contains(source[index]) {
        wildcard = index
        break
      }
      if source[index] == Byte.slash { slash = index }
      index += source[index] == Byte.backslash ? 2 : 1
    }
    guard wildcard < source.count else {
      fixed = PathBytes(bytes: try Self.unescaped(source[...]))
      alternatives = []
      return
    }
    let cut = slash.map { $0 + 1 } ?? 0
    fixed = PathBytes(bytes: try Self.unescaped(source[..<cut]))
    var parser = BraceParser(source: source, index: cut)
    let sequence = try parser.sequence(depth: 0)
    guard sequence.count <= Self.maximumAlternatives else {
      throw GlobSyntaxError(
        message: "the braces stand for more than \(Self.maximumAlternatives) patterns",
        hint: "use * or several patterns")
    }
    var lists: [[Part]] = []
    for text in sequence.expanded() {
      if cut == 0, text.first == Byte.slash {
        throw GlobSyntaxError(
          message: "braces that choose between a path from / and others", hint: "write them as two patterns")
      }
      let parts = try Self.parts(of: text)
      if !lists.contains(parts) { lists.append(parts) }
    }
    alternatives = lists
  }

  /// A text that is the name of a file, which is that file whatever characters it has; nil where there is no such file.
  static func existing(_ text: String, base: PathBytes) -> GlobPattern? {
    guard !text.isEmpty, !text.utf8.contains(0), text.utf8.last != Byte.slash else { return nil }
    let path = PathBytes(text)
    guard case .success(let status) = FileStatus.of(base.joining(path).bytes, followingLinks: true),
      status.kind != .folder
    else { return nil }
    return GlobPattern(plain: path)
  }

  private static let special: Set<UInt8> = Set("*?[{}".utf8)

  private static func unescaped(_ source: ArraySlice<UInt8>) throws(GlobSyntaxError) -> [UInt8] {
    var result: [UInt8] = []
    var index = source.startIndex
    while index < source.endIndex {
      if source[index] == Byte.backslash {
        index += 1
        guard index < source.endIndex else { throw danglingBackslash }
      }
      result.append(source[index])
      index += 1
    }
    return result
  }

  fileprivate static let danglingBackslash = GlobSyntaxError(
    message: "a backslash at the end of a pattern",
    hint: "a backslash takes the next character for itself; folders are separated by /")

  /// Splits a pattern without braces at its slashes and compiles each name.
  private static func parts(of source: [UInt8]) throws(GlobSyntaxError) -> [Part] {
    var names: [[GlobComponent.Token]] = [[]]
    var index = 0
    while index < source.count {
      let byte = source[index]
      index += 1
      switch byte {
      case Byte.slash: names.append([])
      case Byte.star: names[names.count - 1].append(.anyRun)
      case UInt8(ascii: "?"): names[names.count - 1].append(.anyCharacter)
      case UInt8(ascii: "["):
        let (set, end) = try bracket(in: source, at: index)
        names[names.count - 1].append(.set(set))
        index = end
      case Byte.backslash:
        guard index < source.count else { throw danglingBackslash }
        if source[index] == Byte.slash {
          names.append([])
        } else {
          names[names.count - 1].append(.byte(source[index]))
        }
        index += 1
      default: names[names.count - 1].append(.byte(byte))
      }
    }
    if names.last?.isEmpty == true {
      throw GlobSyntaxError(
        message: "a pattern that ends in / names folders, and inputs are files",
        hint: "end it in /* for the files in a folder or in /** for all below")
    }
    let dot = GlobComponent.Token.byte(UInt8(ascii: "."))
    names.removeAll { $0.isEmpty || $0 == [dot] }
    var result: [Part] = []
    for (position, tokens) in names.enumerated() {
      let isLast = position == names.count - 1
      if tokens == [dot, dot] {
        throw GlobSyntaxError(
          message: ".. cannot follow a wildcard or braces", hint: "put .. in front of the first wildcard")
      }
      if tokens == [.anyRun, .anyRun] {
        if result.last != .folders { result.append(.folders) }
        // At the end, everything below.
        if isLast { result.append(.name(GlobComponent(tokens: [.anyRun], isLast: true))) }
        continue
      }
      if zip(tokens, tokens.dropFirst()).contains(where: { $0 == .anyRun && $1 == .anyRun }) {
        throw GlobSyntaxError(
          message: "** must stand alone between slashes", hint: "**/*.jpg finds files in any folder below")
      }
      result.append(.name(GlobComponent(tokens: tokens, isLast: isLast)))
    }
    guard !result.isEmpty else {
      throw GlobSyntaxError(message: "one of the braces' choices leaves no file name")
    }
    return result
  }

  /// Reads a set from behind its `[` and says where it ends.
  private static func bracket(in source: [UInt8], at start: Int) throws(GlobSyntaxError) -> (GlobSet, Int) {
    var set = GlobSet(isNegated: false, ranges: [])
    var index = start
    if index < source.count, source[index] == UInt8(ascii: "!") || source[index] == UInt8(ascii: "^") {
      set.isNegated = true
      index += 1
    }
    // One character, `]` too where it comes first; nil at the end of the set.
    func character(isFirst: Bool) throws(GlobSyntaxError) -> UInt32? {
      guard index < source.count else { throw unclosedBracket }
      if source[index] == UInt8(ascii: "]"), !isFirst { return nil }
      if source[index] == Byte.slash {
        throw GlobSyntaxError(message: "a / inside [ ]", hint: "a set matches one character of a name, never a slash")
      }
      if source[index] == UInt8(ascii: "["), index + 1 < source.count, ":=.".utf8.contains(source[index + 1]) {
        throw GlobSyntaxError(
          message: "named character classes such as [:alpha:] are not known", hint: "write the range: [a-z]")
      }
      if source[index] == Byte.backslash {
        index += 1
        guard index < source.count else { throw danglingBackslash }
      }
      let (value, length) = source.withUnsafeBufferPointer { GlobComponent.character(in: $0, at: index) }
      index += length
      return value
    }
    var isFirst = true
    while let low = try character(isFirst: isFirst) {
      isFirst = false
      guard index + 1 < source.count, source[index] == UInt8(ascii: "-"), source[index + 1] != UInt8(ascii: "]")
      else {
        set.ranges.append(low...low)
        continue
      }
      index += 1
      guard let high = try character(isFirst: true) else { throw unclosedBracket }
      guard low <= high else {
        throw GlobSyntaxError(
          message: "a range in [ ] that runs backwards", hint: "write the lower character first, as in [a-z]")
      }
      set.ranges.append(low...high)
    }
    return (set, index + 1)
  }

  fileprivate static let unclosedBracket = GlobSyntaxError(
    message: "a [ without its ]", hint: "write \\[ for the character itself")

  /// Where a set ends whose `[` stands at `start`, braces inside it being plain characters.
  fileprivate static func endOfBracket(in source: [UInt8], at start: Int) throws(GlobSyntaxError) -> Int {
    var index = start + 1
    if index < source.count, source[index] == UInt8(ascii: "!") || source[index] == UInt8(ascii: "^") { index += 1 }
    var isFirst = true
    while index < source.count {
      if source[index] == UInt8(ascii: "]"), !isFirst { return index + 1 }
      index += source[index] == Byte.backslash ? 2 : 1
      isFirst = false
    }
    throw unclosedBracket
  }
}

/// ASCII characters with a meaning in paths and patterns.
enum Byte {
  static let slash = UInt8(ascii: "/")
  static let backslash = UInt8(ascii: "\\")
  static let star = UInt8(ascii: "*")
  static let dot = UInt8(ascii: ".")
}

/// Text with choices in it.
private struct BraceSequence {
  enum Piece {
    case text([UInt8])
    case choice([BraceSequence])
  }

  var pieces: [Piece] = []

  /// How many texts this stands for; stays at a large number rather than overflow.
  var count: Int {
    var product = 1
    for case .choice(let choices) in pieces {
      let (value, overflow) = product.multipliedReportingOverflow(by: choices.reduce(0) { min($0 + $1.count, 1 << 30) })
      product = overflow ? 1 << 30 : min(value, 1 << 30)
    }
    return product
  }

  /// Every text, the first choices first.
  func expanded() -> [[UInt8]] {
    var result: [[UInt8]] = [[]]
    for piece in pieces {
      switch piece {
      case .text(let text):
        for index in result.indices { result[index] += text }
      case .choice(let choices):
        let tails = choices.flatMap { $0.expanded() }
        result = result.flatMap { head in tails.map { head + $0 } }
      }
    }
    return result
  }
}

/// Splits a pattern at its braces; escapes and sets stay as they are.
private struct BraceParser {
  let source: [UInt8]
  var index: Int

  mutating func sequence(depth: Int) throws(GlobSyntaxError) -> BraceSequence {
    if depth > GlobPattern.maximumNesting {
      throw GlobSyntaxError(message: "braces nested more than \(GlobPattern.maximumNesting) deep")
    }
    var result = BraceSequence()
    var text: [UInt8] = []
    while index < source.count {
      let byte = source[index]
      switch byte {
      case Byte.backslash:
        guard index + 1 < source.count else { throw GlobPattern.danglingBackslash }
        text += source[index...(index + 1)]
        index += 2
      case UInt8(ascii: "["):
        let end = try GlobPattern.endOfBracket(in: source, at: index)
        text += source[index..<end]
        index = end
      case UInt8(ascii: "{"):
        index += 1
        result.pieces.append(.text(text))
        text = []
        result.pieces.append(.choice(try choices(depth: depth + 1)))
      case UInt8(ascii: ","), UInt8(ascii: "}"):
        if depth > 0 {
          result.pieces.append(.text(text))
          return result
        }
        if byte == UInt8(ascii: "}") {
          throw GlobSyntaxError(message: "a } without its {", hint: "write \\} for the character itself")
        }
        text.append(byte)
        index += 1
      default:
        text.append(byte)
        index += 1
      }
    }
    if depth > 0 { throw GlobSyntaxError(message: "a { without its }", hint: "write \\{ for the character itself") }
    result.pieces.append(.text(text))
    return result
  }

  /// Reads from behind a `{` to behind its `}`.
  private mutating func choices(depth: Int) throws(GlobSyntaxError) -> [BraceSequence] {
    var result = [try sequence(depth: depth)]
    while source[index] == UInt8(ascii: ",") {
      index += 1
      result.append(try sequence(depth: depth))
    }
    index += 1
    return result
  }
}
