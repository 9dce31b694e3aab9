import Synchronization

/// Values that must never be shown, for the whole process. All text that leaves the program passes `redacted`.
public enum Secrets {
  private struct State {
    var known: Set<String> = []
    var patterns = SecretPatterns()
  }

  private static let state = Mutex(State())

  /// Keeps a value out of everything that passes `redacted` from now on. Values of less than 4 bytes, which would
  /// riddle any text, are ignored.
  public static func register(_ value: String) {
    // A key read from a file has a line break that it is not sent with.
    let bare = trimmed(value)
    state.withLock { state in
      for value in [value, bare] where value.utf8.count >= 4 && state.known.insert(value).inserted {
        state.patterns.add(value)
      }
    }
  }

  /// Replaces every registered value by `***`, in all forms it may take: raw, percent-encoded (once or twice, `+` for a
  /// space), JSON- and XML-escaped, all of them mixed, and in base64 of either alphabet, also as a part of something
  /// longer. What holds none is handed back without a copy.
  public static func redacted(_ text: String) -> String {
    let patterns = state.withLock { $0.patterns }
    guard !patterns.isEmpty else { return text }
    var text = text
    let replaced = text.withUTF8 { patterns.replaced(UnsafeRawBufferPointer($0)) }
    return replaced.map { String(decoding: $0, as: UTF8.self) } ?? text
  }

  public static func redacted(_ bytes: [UInt8]) -> [UInt8] {
    let patterns = state.withLock { $0.patterns }
    guard !patterns.isEmpty else { return bytes }
    return bytes.withUnsafeBytes { patterns.replaced($0) } ?? bytes
  }
}

/// The forms of the values, one unit after the other: a scalar of a value, or a digit of its base64, each of which may
/// stand as any of several spellings. So whatever an encoder chooses to escape is found.
struct SecretPatterns: Sendable {
  private struct Spelling: Sendable, Hashable {
    var bytes: [UInt8]
    /// Hexadecimal digits may be of either case; `bytes` are in lower case.
    var ignoresCase: Bool
  }

  private struct Pattern: Sendable {
    var units: [[Spelling]]
    /// Digits of base64 beside the pattern that hold the rest of its bits.
    var before = 0
    var after = 0
  }

  private var patterns: [Pattern] = []
  /// By the first byte of a spelling of the first unit.
  private var beginning = [[Int]](repeating: [], count: 256)

  var isEmpty: Bool { patterns.isEmpty }

  mutating func add(_ value: String) {
    add(Pattern(units: value.unicodeScalars.map(Self.spellings)))
    let bytes = Array(value.utf8)
    // What comes before the value shifts it by 0, 1 or 2 bytes against the groups of base64.
    for shift in 0..<3 {
      let digits = Base64.encode([UInt8](repeating: 0, count: shift) + bytes)
      // Only digits all of whose bits are the value's; those at the ends share some with their neighbours.
      let first = (8 * shift + 5) / 6
      let end = 8 * (shift + bytes.count) / 6
      add(
        Pattern(
          units: digits[first..<end].map { Self.spellings(base64: $0) }, before: shift == 0 ? 0 : 1,
          after: 8 * (shift + bytes.count) % 6 == 0 ? 0 : 1))
    }
  }

  private mutating func add(_ pattern: Pattern) {
    guard let first = pattern.units.first else { return }
    var starts: Set<UInt8> = []
    for spelling in first {
      guard let byte = spelling.bytes.first else { continue }
      starts.insert(byte)
      if spelling.ignoresCase { starts.insert(uppercase(byte)) }
    }
    for byte in starts { beginning[Int(byte)].append(patterns.count) }
    patterns.append(pattern)
  }

  private static func spellings(_ scalar: Unicode.Scalar) -> [Spelling] {
    let raw = Array(String(scalar).utf8)
    var all = [Spelling(bytes: raw, ignoresCase: false)]
    for percent in ["%", "%25"] {
      all.append(Spelling(bytes: raw.flatMap { Array((percent + hex($0, 2)).utf8) }, ignoresCase: true))
    }
    let escaped = String(scalar).utf16.map { "\\u" + hex($0, 4) }.joined()
    // Inside JSON that is itself a string in JSON, too.
    for text in [escaped, "\\" + escaped] { all.append(Spelling(bytes: Array(text.utf8), ignoresCase: true)) }
    all.append(Spelling(bytes: Array("&#\(scalar.value);".utf8), ignoresCase: false))
    for zeros in ["", "0", "00"] {
      all.append(Spelling(bytes: Array("&#x\(zeros)\(hex(scalar.value, 1));".utf8), ignoresCase: true))
    }
    for text in named[scalar] ?? [] { all.append(Spelling(bytes: Array(text.utf8), ignoresCase: false)) }
    return all
  }

  private static let named: [Unicode.Scalar: [String]] = [
    " ": ["+"], "\"": [#"\""#, #"\\\""#, "&quot;"], "\\": [#"\\"#, #"\\\\"#], "/": [#"\/"#], "&": ["&amp;"],
    "<": ["&lt;"], ">": ["&gt;"], "'": ["&apos;", "&#39;", "&#039;"], "\n": [#"\n"#], "\r": [#"\r"#], "\t": [#"\t"#],
  ]

  private static func spellings(base64 digit: UInt8) -> [Spelling] {
    let other: Unicode.Scalar? =
      switch digit {
      case UInt8(ascii: "+"): "-"
      case UInt8(ascii: "/"): "_"
      default: nil
      }
    return spellings(Unicode.Scalar(digit)) + (other.map(spellings) ?? [])
  }

  private static func hex(_ value: some BinaryInteger, _ digits: Int) -> String {
    let text = String(value, radix: 16)
    return String(repeating: "0", count: max(0, digits - text.count)) + text
  }

  /// The text with every match replaced; nil where there is none.
  func replaced(_ text: UnsafeRawBufferPointer) -> [UInt8]? {
    var matches: [Range<Int>] = []
    for start in text.indices {
      let candidates = beginning[Int(text[start])]
      for index in candidates {
        let pattern = patterns[index]
        guard let end = Self.end(of: pattern.units, in: text, from: start) else { continue }
        let before = pattern.before > 0 && start > 0 && Self.isDigit(text[start - 1]) ? 1 : 0
        var last = end
        if pattern.after > 0, last < text.count, Self.isDigit(text[last]) {
          last += 1
          while last < min(end + 3, text.count), text[last] == UInt8(ascii: "=") { last += 1 }
        }
        matches.append(start - before..<last)
      }
    }
    guard !matches.isEmpty else { return nil }
    matches.sort { $0.lowerBound < $1.lowerBound }
    var result: [UInt8] = []
    result.reserveCapacity(text.count)
    var done = 0
    var stars: Int?
    for match in matches {
      // What overlaps becomes one.
      if match.lowerBound > done || stars == nil {
        result.append(contentsOf: text[done..<max(done, match.lowerBound)])
        result += "***".utf8
        stars = result.count
      }
      done = max(done, match.upperBound)
    }
    result.append(contentsOf: text[done...])
    return result
  }

  /// Where the longest match from `start` on ends.
  private static func end(of units: [[Spelling]], in text: UnsafeRawBufferPointer, from start: Int) -> Int? {
    // A unit may match in two lengths (`%` alone, or as `%25`): all places reached are followed.
    var places = [start]
    for unit in units {
      var next: [Int] = []
      for place in places {
        for spelling in unit where stands(spelling, in: text, at: place) {
          let end = place + spelling.bytes.count
          if !next.contains(end) { next.append(end) }
        }
      }
      if next.isEmpty { return nil }
      places = next
    }
    return places.max()
  }

  private static func stands(_ spelling: Spelling, in text: UnsafeRawBufferPointer, at place: Int) -> Bool {
    guard place + spelling.bytes.count <= text.count, let first = spelling.bytes.first else { return false }
    // Most are over here.
    guard text[place] == first || spelling.ignoresCase && lowercase(text[place]) == first else { return false }
    for (index, byte) in spelling.bytes.enumerated() {
      let found = text[place + index]
      if found != byte, !(spelling.ignoresCase && lowercase(found) == byte) { return false }
    }
    return true
  }

  private static func isDigit(_ byte: UInt8) -> Bool {
    switch byte {
    case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, UInt8(ascii: "+"), UInt8(ascii: "/"), UInt8(ascii: "-"),
      UInt8(ascii: "_"):
      true
    default: false
    }
  }
}

private func uppercase(_ byte: UInt8) -> UInt8 { 0x61...0x7A ~= byte ? byte & ~0x20 : byte }
