/// One name of a pattern: what stands between two slashes, without `**`.
///
/// `?` and `[…]` stand for one character where the name is UTF-8, and for one byte where it is not.
struct GlobComponent: Sendable, Hashable {
  enum Token: Sendable, Hashable {
    case byte(UInt8)
    case anyCharacter
    case anyRun
    case set(GlobSet)
  }

  let tokens: [Token]
  /// From this token on ASCII letters match in either case; `tokens.count` where nothing does.
  let foldsFrom: Int

  /// Compiles one name; in the last one of a pattern (`isLast`) what follows the last dot matches in either case.
  init(tokens: [Token], isLast: Bool) {
    self.tokens = tokens
    // A leading dot marks a hidden file; no ending follows it.
    if isLast, let dot = tokens.lastIndex(of: .byte(UInt8(ascii: "."))), dot > 0 {
      foldsFrom = dot + 1
    } else {
      foldsFrom = tokens.count
    }
  }

  /// The one name it matches; nil where it may match several.
  var literal: [UInt8]? {
    var result: [UInt8] = []
    for (index, token) in tokens.enumerated() {
      guard case .byte(let byte) = token else { return nil }
      if index >= foldsFrom, Self.isLetter(byte) { return nil }
      result.append(byte)
    }
    return result
  }

  /// Whether the pattern itself names the dot that hides a file.
  var namesHiddenFiles: Bool { tokens.first == .byte(UInt8(ascii: ".")) }

  /// Whether the whole of `name` matches; hidden names are no special case here.
  ///
  /// Keeps one place to return to, the last `*`, which is enough: time is at most tokens × bytes.
  func matches(_ name: UnsafeBufferPointer<UInt8>) -> Bool {
    var token = 0
    var index = 0
    var starToken = -1
    var starIndex = 0
    while true {
      if token < tokens.count {
        if tokens[token] == .anyRun {
          starToken = token
          starIndex = index
          token += 1
          continue
        }
        if index < name.count, let length = match(token, in: name, at: index) {
          token += 1
          index += length
          continue
        }
      } else if index == name.count {
        return true
      }
      guard starToken >= 0, starIndex < name.count else { return false }
      starIndex += Self.character(in: name, at: starIndex).length
      index = starIndex
      token = starToken + 1
    }
  }

  private func match(_ token: Int, in name: UnsafeBufferPointer<UInt8>, at index: Int) -> Int? {
    let folds = token >= foldsFrom
    switch tokens[token] {
    case .byte(let byte):
      let found = name[index]
      return found == byte || (folds && Self.lowercased(found) == Self.lowercased(byte)) ? 1 : nil
    case .anyCharacter:
      return Self.character(in: name, at: index).length
    case .set(let set):
      let (value, length) = Self.character(in: name, at: index)
      return set.contains(value, foldingCase: folds) ? length : nil
    case .anyRun:
      return nil
    }
  }

  static func isLetter(_ byte: UInt8) -> Bool {
    (0x41...0x5a).contains(byte) || (0x61...0x7a).contains(byte)
  }

  static func lowercased(_ byte: UInt8) -> UInt8 { (0x41...0x5a).contains(byte) ? byte | 0x20 : byte }

  /// The character at `index` and its length in bytes. A byte that is not UTF-8 has a value above Unicode's.
  static func character(in name: UnsafeBufferPointer<UInt8>, at index: Int) -> (value: UInt32, length: Int) {
    let first = name[index]
    if first < 0x80 { return (UInt32(first), 1) }
    let length: Int
    var value: UInt32
    switch first {
    case 0xc2...0xdf: (length, value) = (2, UInt32(first & 0x1f))
    case 0xe0...0xef: (length, value) = (3, UInt32(first & 0x0f))
    case 0xf0...0xf4: (length, value) = (4, UInt32(first & 0x07))
    default: (length, value) = (0, 0)
    }
    if length > 0, index + length <= name.count {
      for next in name[(index + 1)..<(index + length)] where value != .max {
        value = next & 0xc0 == 0x80 ? value << 6 | UInt32(next & 0x3f) : .max
      }
      // Overlong forms, surrogates and values past Unicode are not UTF-8.
      let smallest: UInt32 = [0, 0, 0x80, 0x800, 0x10000][length]
      if value >= smallest, Unicode.Scalar(value) != nil { return (value, length) }
    }
    return (GlobSet.byteBase + UInt32(first), 1)
  }
}

/// The characters of a `[…]`.
struct GlobSet: Sendable, Hashable {
  /// Bytes that are not UTF-8 count from here, past the last character of Unicode.
  static let byteBase: UInt32 = 0x110000

  var isNegated: Bool
  var ranges: [ClosedRange<UInt32>]

  func contains(_ value: UInt32, foldingCase: Bool) -> Bool {
    var found = ranges.contains { $0.contains(value) }
    if !found, foldingCase, let byte = UInt8(exactly: value), GlobComponent.isLetter(byte) {
      found = ranges.contains { $0.contains(value ^ 0x20) }
    }
    return found != isNegated
  }
}
