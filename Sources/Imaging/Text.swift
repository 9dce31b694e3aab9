import CPango
import CVips
import Glibc

/// A face of a font that text can be drawn with, in any size.
///
/// Only this face is used: where it has no sign for a character, drawing fails instead of showing a box or another
/// font's sign, unless fallback was asked for.
public final class Typeface: @unchecked Sendable {
  // Unchecked: both pointers are only read once made. Fontconfig's configurations may be read from several threads, the
  // description is copied before use, and everything else is made anew for each text.
  private let font: CPangoFont

  /// What messages call it.
  public let name: String
  /// The file that the face is in.
  public let path: String

  /// The first face of a file: TrueType, OpenType, or what else FreeType reads with outlines.
  ///
  /// - Parameter fallback: whether other installed fonts stand in for characters that this one lacks.
  /// - Throws: `fontMissing`.
  public convenience init(file: String, fallback: Bool = false) throws(ImagingError) {
    guard access(file, R_OK) == 0 else {
      throw ImagingError(
        .fontMissing, "the font file \(file) cannot be read", detail: String(cString: strerror(errno)))
    }
    try self.init(path: file, index: -1, name: file, fallback: fallback)
  }

  /// An installed family, in any case of letters.
  ///
  /// `sans-serif`, `serif` and `monospace` stand for what this machine takes for them. Any other family must be
  /// installed under that name: what is used elsewhere in its place is not taken.
  /// - Throws: `fontMissing`, also where the family has no bold or slanted face and one is asked for.
  public convenience init(
    family: String, bold: Bool = false, italic: Bool = false, fallback: Bool = false
  ) throws(ImagingError) {
    var match = CPangoMatch()
    guard cpango_font_match(family, bold ? 1 : 0, italic ? 1 : 0, &match) == 0 else {
      throw ImagingError(
        .fontMissing, "no font is installed", hint: "install one, such as: apt install fonts-dejavu-core")
    }
    defer { cpango_match_free(match) }
    guard match.is_asked != 0 || Self.generic.contains(family.lowercased()) else {
      throw ImagingError(
        .fontMissing, "the font family \"\(family)\" is not installed",
        hint: "install it, name its file, or use a family that is installed: \(Self.shortList(Self.families))")
    }
    let found = String(cString: match.family)
    let lacks = [
      bold && match.weight < FC_WEIGHT_DEMIBOLD ? "bold" : nil,
      italic && match.slant == FC_SLANT_ROMAN ? "italic" : nil,
    ].compactMap(\.self)
    guard lacks.isEmpty else {
      throw ImagingError(
        .fontMissing, "the font family \"\(found)\" has no \(lacks.joined(separator: " ")) face on this machine",
        hint: "install it, or name a font file")
    }
    try self.init(path: String(cString: match.path), index: Int(match.index), name: found, fallback: fallback)
  }

  private init(path: String, index: Int, name: String, fallback: Bool) throws(ImagingError) {
    try Libvips.start()
    var font = CPangoFont()
    guard cpango_font_open(path, Int32(truncatingIfNeeded: index), fallback ? 1 : 0, &font) == 0 else {
      throw ImagingError(
        .fontMissing, "\(path) is no font that text can be drawn with",
        hint: "TrueType and OpenType fonts can be used")
    }
    (self.font, self.name, self.path) = (font, name, path)
  }

  deinit { cpango_font_free(font) }

  private static let generic: Set<String> = ["sans", "sans-serif", "serif", "monospace"]

  /// The installed families, each once, in alphabetical order.
  public static var families: [String] {
    guard let text = cpango_families() else { return [] }
    defer { free(text) }
    return Set(String(cString: text).split(separator: "\n").map(String.init)).sorted()
  }

  private static func shortList(_ names: [String]) -> String {
    names.prefix(12).joined(separator: ", ") + (names.count > 12 ? ", …" : "")
  }

  /// How text is set.
  public struct Setting: Sendable, Hashable {
    public enum Alignment: String, CaseIterable, Sendable {
      case left, centre, right
    }
    /// The height of the em square, in pixels.
    public var size: Double
    /// Lines longer than this are broken at words, in pixels; nil for breaks only where the text has them.
    public var maxWidth: Double?
    /// How lines of several stand to each other.
    public var alignment: Alignment
    /// Degrees clockwise.
    public var angle: Double

    public init(size: Double, maxWidth: Double? = nil, alignment: Alignment = .left, angle: Double = 0) {
      (self.size, self.maxWidth, self.alignment, self.angle) = (size, maxWidth, alignment, angle)
    }
  }

  /// The characters of a text that cannot be drawn, each once, in their order.
  public func missing(in text: String) -> [Unicode.Scalar] {
    guard !text.isEmpty, lacksSigns(text) else { return [] }
    var seen: Set<Unicode.Scalar> = []
    // Some signs are made of several characters; where each alone can be drawn, the whole is named by its first.
    let alone = Array(text.unicodeScalars).filter { seen.insert($0).inserted && lacksSigns(String($0)) }
    return alone.isEmpty ? text.unicodeScalars.first.map { [$0] } ?? [] : alone
  }

  private func lacksSigns(_ text: String) -> Bool {
    laidOut(text, Setting(size: 16)) { cpango_text_missing($0) > 0 }
  }

  /// Coverage of the text, 0…255 in 1 band, cut to its ink; nil where there is none, as in blanks.
  ///
  /// - Throws: `glyphMissing` where a character cannot be drawn, `unsupported` where one comes in colours of its own
  ///   (emoji), `geometry` where the text would be too large.
  public func coverage(of text: String, _ setting: Setting) throws(ImagingError) -> Image? {
    guard setting.size > 0, setting.size <= 20_000 else {
      throw ImagingError(.geometry, "text cannot be drawn \(setting.size) pixels high")
    }
    let missing = missing(in: text)
    guard missing.isEmpty else { throw glyphError(missing) }
    let outcome: Result<(bytes: [UInt8], width: Int, height: Int)?, ImagingError> = laidOut(text, setting) { laid in
      guard cpango_text_is_coloured(laid) == 0 else {
        return .failure(
          ImagingError(
            .unsupported, "the text has characters that come in colours of their own, which are not drawn",
            hint: "leave out emoji, or put them into a watermark image"))
      }
      let angle = setting.angle * .pi / 180
      let box = cpango_text_box(laid, angle)
      guard box.right > box.left, box.bottom > box.top else { return .success(nil) }
      // The outline may reach a little beyond the box that the font claims.
      let edge = 2 + (setting.size / 16).rounded(.up)
      let (left, top) = (box.left.rounded(.down) - edge, box.top.rounded(.down) - edge)
      let (across, down) = (box.right.rounded(.up) + edge - left, box.bottom.rounded(.up) + edge - top)
      guard across <= 30_000, down <= 30_000, across * down <= 268_435_456 else {
        return .failure(
          ImagingError(
            .geometry, "the text would be \(Int(min(across, 1e9)))×\(Int(min(down, 1e9))) pixels large",
            hint: "make it smaller or shorter"))
      }
      let (width, height) = (Int(across), Int(down))
      var bytes = [UInt8](repeating: 0, count: width * height)
      let status = bytes.withUnsafeMutableBufferPointer {
        cpango_text_draw(laid, angle, -left, -top, Int32(width), Int32(height), $0.baseAddress)
      }
      guard status == 0 else { return .failure(ImagingError(.memory, "the text could not be drawn")) }
      return .success((bytes, width, height))
    }
    guard let drawn = try outcome.get() else { return nil }
    let image = try Image(width: drawn.width, height: drawn.height, bands: 1, bytes: drawn.bytes)
    guard let ink = try TrimRequest(threshold: 0).content(of: [image], .alpha) else { return nil }
    return try image.cropped(to: ink).materialised()
  }

  /// What to say about characters that cannot be drawn.
  public func glyphError(_ missing: [Unicode.Scalar]) -> ImagingError {
    let names = missing.prefix(5).map { scalar in
      let code = String(scalar.value, radix: 16, uppercase: true)
      let number = "U+" + String(repeating: "0", count: max(0, 4 - code.count)) + code
      return scalar.properties.isWhitespace || scalar.properties.generalCategory == .control
        ? number : "\(scalar) (\(number))"
    }
    return ImagingError(
      .glyphMissing,
      "the font \(name) has no sign for \(names.joined(separator: ", "))\(missing.count > 5 ? " and others" : "")",
      hint: "use a font that has it, or set \"fallback\": true where another installed font has it")
  }

  private func laidOut<R>(_ text: String, _ setting: Setting, _ use: (CPangoText) -> R) -> R {
    var copy = text
    let alignment =
      switch setting.alignment {
      case .left: PANGO_ALIGN_LEFT
      case .centre: PANGO_ALIGN_CENTER
      case .right: PANGO_ALIGN_RIGHT
      }
    let laid = copy.withUTF8 { utf8 in
      utf8.withMemoryRebound(to: CChar.self) {
        cpango_text(font, $0.baseAddress, Int32(clamping: $0.count), setting.size, setting.maxWidth ?? 0, alignment)
      }
    }
    defer { cpango_text_free(laid) }
    return use(laid)
  }
}
