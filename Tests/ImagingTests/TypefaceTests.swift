import Glibc
import Imaging
import TestSupport
import Testing

/// What this machine has.
enum Fonts {
  static let hasDejaVu = Typeface.families.contains("DejaVu Sans")
}

@Suite(.enabled(if: Fonts.hasDejaVu, "DejaVu Sans is not installed (apt install fonts-dejavu-core)"))
struct TypefaceTests {
  @Test("coverage is cut to the ink, and as large as the font says")
  func ink() throws {
    let face = try Typeface(family: "DejaVu Sans")
    let bar = try #require(try face.coverage(of: "—", .init(size: 100)))
    // The outline of DejaVu Sans' em dash is 1848 units of 2048 wide and 144 high: 90.2 by 7.03 pixels, of which those
    // at the ends may be covered in part.
    #expect((91...92).contains(bar.width) && (8...9).contains(bar.height), "\(bar.width)×\(bar.height)")
    #expect(bar.bands == 1)
    let pixels = try bar.bytes()
    #expect(pixels.max() == 255)
    // Cut to the ink: no side is empty.
    #expect(pixels[..<bar.width].contains { $0 > 0 } && pixels.suffix(bar.width).contains { $0 > 0 })
    let large = try #require(try face.coverage(of: "—", .init(size: 200)))
    #expect(abs(large.width - 2 * bar.width) <= 2)
    let upright = try #require(try face.coverage(of: "—", .init(size: 100, angle: 90)))
    #expect((upright.width, upright.height) == (bar.height, bar.width))
    #expect(try face.coverage(of: "  \n ", .init(size: 20)) == nil)
  }

  @Test("markup characters are text")
  func markup() throws {
    let face = try Typeface(family: "DejaVu Sans")
    let tagged = try #require(try face.coverage(of: "<b>&amp;</b>", .init(size: 30)))
    let plain = try #require(try face.coverage(of: "&", .init(size: 30)))
    #expect(tagged.width > 4 * plain.width)
  }

  @Test("lines break at the width asked for")
  func wrapping() throws {
    let face = try Typeface(family: "DejaVu Sans")
    let line = try #require(try face.coverage(of: "one two three four", .init(size: 20)))
    let broken = try #require(try face.coverage(of: "one two three four", .init(size: 20, maxWidth: 90)))
    #expect(broken.width <= 90 && broken.height > 2 * line.height)
  }

  @Test("a family that is not installed is an error, also where fontconfig has a stand-in")
  func missingFamily() throws {
    for family in ["Nonesuch Grotesk", "Helvetica-Not-Here", ""] {
      let error = try #require(failure { _ = try Typeface(family: family) })
      #expect(error.code == .fontMissing)
      #expect(error.message.contains("\"\(family)\""))
    }
    #expect(try Typeface(family: "dejavu sans").name == "DejaVu Sans")
    _ = try Typeface(family: "sans-serif")
    #expect(failure { _ = try Typeface(file: "/nonesuch.ttf") }?.code == .fontMissing)
    let folder = TemporaryFolder()
    #expect(failure { _ = try Typeface(file: folder.write([1, 2, 3], to: "a.ttf")) }?.code == .fontMissing)
  }

  @Test("a character without a sign is an error that names it")
  func missingGlyphs() throws {
    let face = try Typeface(family: "DejaVu Sans")
    #expect(face.missing(in: "Äöß © Ω") == [])
    #expect(face.missing(in: "a漢b字漢") == ["漢", "字"])
    let error = try #require(failure { _ = try face.coverage(of: "a漢", .init(size: 20)) })
    #expect(error.code == .glyphMissing)
    #expect(error.message.contains("漢 (U+6F22)"))
  }

  @Test("a file's face is used, whatever is installed")
  func file() throws {
    let family = try Typeface(family: "DejaVu Sans", bold: true)
    #expect(family.path.hasSuffix("Bold.ttf"))
    let file = try Typeface(file: family.path)
    let setting = Typeface.Setting(size: 33)
    let (a, b) = (
      try #require(try family.coverage(of: "Bold", setting)), try #require(try file.coverage(of: "Bold", setting))
    )
    #expect(try a.bytes() == b.bytes())
    let regular = try #require(try Typeface(family: "DejaVu Sans").coverage(of: "Bold", setting))
    #expect(regular.width < a.width)
  }

  @Test("the same from many threads at once")
  func threads() async throws {
    let face = try Typeface(family: "DejaVu Sans")
    let wanted = try #require(try face.coverage(of: "Threads 0", .init(size: 40))).bytes()
    let all = try await withThrowingTaskGroup(of: [UInt8].self) { group in
      for _ in 0..<16 {
        group.addTask { try face.coverage(of: "Threads 0", .init(size: 40))?.bytes() ?? [] }
      }
      return try await group.reduce(into: [[UInt8]]()) { $0.append($1) }
    }
    #expect(all.allSatisfy { $0 == wanted })
  }
}
