import PipelineKit
import TestSupport
import Testing

@testable import Engine

@Suite struct GlobTests {
  /// Whether a name alone is matched by a pattern of one name.
  private func matches(_ pattern: String, _ name: [UInt8]) throws -> Bool {
    let pattern = try GlobPattern(pattern)
    return pattern.alternatives.contains { parts in
      guard parts.count == 1, case .name(let component) = parts[0] else { return false }
      return name.withUnsafeBufferPointer { component.matches($0) }
    }
  }

  @Test(arguments: [
    ("*", "a", true), ("*.jpg", "a.jpg", true), ("*.jpg", "a.JPG", true), ("*.JPG", "a.jpg", true),
    ("*.jpg", "jpg", false), ("*.jpg", "a.jpgx", false), ("A*.jpg", "a.jpg", false), ("*.j?g", "a.JXG", true),
    ("*.{jpg,png}", "a.Png", true), ("*.{jpg,png}", "a.gif", false), ("*.[jJ]pg", "a.JPG", true),
    ("*.[a-j]pg", "a.Jpg", true), ("*.[!j]pg", "a.jpg", false), ("*.[!j]pg", "a.Jpg", false),
    ("[!a]*", "b", true), ("[!a]*", "a", false), ("[^a]*", "a", false), ("[a-c]", "b", true), ("[a-c]", "d", false),
    ("[]x]", "]", true), ("[!]]", "]", false), ("[!]]", "a", true), ("[a-]", "-", true), ("[\\]]", "]", true),
    ("[a\\-z]", "-", true), ("[a\\-z]", "b", false), ("[[]", "[", true), ("?", "é", true), ("??", "é", false),
    ("[é]", "é", true), ("[à-ü]x", "éx", true), ("caf?.jpg", "café.jpg", true), ("*é*", "xéy", true),
    ("\\*", "*", false), ("a\\**", "a*b", true), ("a\\**", "ab", false), ("*\\{", "x{", true),
    ("{a,b}{c,d}", "bc", true),
    ("{a,{b,c}x}", "cx", true), ("{a,{b,c}x}", "c", false), ("{,a}b*", "b", true), ("{[,],x}*", ",", true),
    ("{a}*", "a", true), ("a,b*", "a,b", true), ("*.tar.gz", "A.tar.GZ", true), ("*.tar.gz", "a.TAR.gz", false),
    ("*a*b*c*", "xxaxxbxxcxx", true), ("*a*b*c*", "xxaxxcxxbxx", false), ("a*", "a", true), ("*a", "ba", true),
    (".a*", ".A", false), ("?*", "", false), ("*.*", "a.b", true), ("*.*", "ab", false),
  ])
  func oneName(pattern: String, name: String, expected: Bool) throws {
    #expect(try matches(pattern, Array(name.utf8)) == expected)
  }

  @Test func bytesThatAreNotUTF8AreOneCharacterEach() throws {
    #expect(try matches("?.jpg", [0xff] + Array(".jpg".utf8)))
    #expect(try matches("*", [0xff, 0xc3]))
    #expect(try matches("??", [0xc3, 0x41]))
    #expect(try matches("[!a]", [0xff]))
    #expect(try !matches("?", [0xff, 0xfe]))
  }

  @Test(arguments: [
    "", "[", "a[", "[!", "[]", "[z-a]", "[a/b]", "[[:alpha:]]", "{", "{a", "{a,b", "a}", "{a}}", "a\\", "[\\", "**.jpg",
    "a**", "a/***", "photos/", "*/", "*/../a.jpg", "{a,b}/../c", "{/a,b}/*.jpg", "{,}", "a\0*", "{a,[}",
    String(repeating: "{", count: 40) + "a" + String(repeating: "}", count: 40),
    String(repeating: "{a,b}", count: 11), String(repeating: "{a,b}", count: 500), String(repeating: "*a", count: 9000),
  ])
  func syntaxErrors(pattern: String) throws {
    // A plain path may end in a slash; what it leads to is looked at later.
    if pattern == "photos/" {
      #expect(try GlobPattern(pattern).isPlain)
      return
    }
    #expect(throws: GlobSyntaxError.self) { try GlobPattern(pattern) }
    let found = InputWalker.check([.directory("x"), .files(["ok.jpg", pattern])])
    #expect(found.map(\.code) == [.globSyntax])
    #expect(found.first?.declaration == 1)
    #expect(found.first?.element == 1)
  }

  @Test func fixedFolder() throws {
    #expect(try GlobPattern("a/b/*.jpg").fixed == "a/b/")
    #expect(try GlobPattern("a/b*/c/d").fixed == "a/")
    #expect(try GlobPattern("a\\*/{b,c}/d").fixed == "a*/")
    #expect(try GlobPattern("/*").fixed == "/")
    #expect(try GlobPattern("../x/**").fixed == "../x/")
    #expect(try GlobPattern("a\\[1].jpg").fixed == "a[1].jpg")
  }

  /// A pattern with many `*` on a name that almost matches: time must stay a product, not a power.
  @Test func manyStarsOnALongName() throws {
    let name = [UInt8](repeating: 0x61, count: 255)
    #expect(try !matches(String(repeating: "a*", count: 120) + "b", name))
    #expect(try matches(String(repeating: "a*", count: 120), name))
    #expect(try !matches(String(repeating: "*?", count: 255) + "b", name))
  }

  /// Random patterns against a matcher that is slow and plainly right.
  @Test func agreesWithAPlainMatcher() throws {
    var random = SeededGenerator(state: 20_240_501)
    let letters = Array("ab.é".unicodeScalars)
    var accepted = 0
    var matched = 0
    for _ in 0..<20_000 {
      var pattern: [PlainToken] = []
      var text = ""
      for _ in 0..<Int.random(in: 1...7, using: &random) {
        switch Int.random(in: 0..<6, using: &random) {
        case 0:
          // Two stars beside each other mean something else.
          if pattern.last == .star { continue }
          pattern.append(.star)
          text += "*"
        case 1:
          pattern.append(.one)
          text += "?"
        case 2:
          let isNegated = Bool.random(using: &random)
          let members = (0..<2).map { _ in letters.randomElement(using: &random) ?? "a" }
          pattern.append(.set(isNegated, members))
          text += "[" + (isNegated ? "!" : "") + members.map(String.init).joined() + "]"
        default:
          let letter = letters.randomElement(using: &random) ?? "a"
          pattern.append(.letter(letter))
          text.unicodeScalars.append(letter)
        }
      }
      // Wildcards in front make every text a pattern and not a plain path.
      let name = (0..<Int.random(in: 0...8, using: &random)).map { _ in letters.randomElement(using: &random) ?? "a" }
      let bytes = name.flatMap { Array(String($0).utf8) }
      guard pattern.contains(where: \.isWildcard), text != "." else { continue }
      accepted += 1
      let expected = PlainToken.matches(pattern[...], name[...])
      if expected { matched += 1 }
      #expect(try matches(text, bytes) == expected, "\(text) on \(name)")
    }
    #expect(accepted > 10_000)
    #expect(matched > 500)
  }

  /// Any text is a pattern or a syntax error, never a crash, and matching ends.
  @Test func anyTextIsAPatternOrAnError() {
    var random = SeededGenerator(state: 7)
    let pieces = [
      "*", "**", "?", "[", "]", "!", "^", "-", "{", "}", ",", "/", "\\", ".", "..", "a", "é", "[a-z]", "{a,b}",
    ]
    let name = Array("aé.b[x]{y},-z".utf8) + [0xff, 0xc3]
    var patterns = 0
    for _ in 0..<20_000 {
      let text = (0..<Int.random(in: 1...12, using: &random)).map { _ in pieces.randomElement(using: &random) ?? "" }
        .joined()
      guard let pattern = try? GlobPattern(text) else { continue }
      patterns += 1
      for parts in pattern.alternatives {
        for case .name(let component) in parts { _ = name.withUnsafeBufferPointer { component.matches($0) } }
      }
    }
    #expect(patterns > 1_000)
  }
}

private enum PlainToken: Equatable {
  case star, one
  case letter(Unicode.Scalar)
  case set(Bool, [Unicode.Scalar])

  var isWildcard: Bool { if case .letter = self { false } else { true } }

  static func matches(_ pattern: ArraySlice<PlainToken>, _ name: ArraySlice<Unicode.Scalar>) -> Bool {
    guard let token = pattern.first else { return name.isEmpty }
    if token == .star {
      return (name.startIndex...name.endIndex).contains { matches(pattern.dropFirst(), name[$0...]) }
    }
    guard let character = name.first else { return false }
    let fits =
      switch token {
      case .letter(let letter): letter == character
      case .set(let isNegated, let members): members.contains(character) != isNegated
      case .one, .star: true
      }
    return fits && matches(pattern.dropFirst(), name.dropFirst())
  }
}
