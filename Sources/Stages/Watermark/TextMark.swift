import Imaging
import PipelineKit

/// A text as watermark.
struct TextMark: Mark {
  private struct Key: Hashable, Sendable {
    var text: String
    var setting: Typeface.Setting
  }

  private let typeface: Typeface
  private let template: Template
  private let size: Length
  private let maxWidth: Length?
  private let alignment: Typeface.Setting.Alignment
  private let colour: RGBA
  private let look: MarkLook
  private let coverages = RecentImages<Key>(most: 16, mostBytes: 64 << 20)

  /// - Throws: `fontMissing`, and where the text is the same for all items what drawing it would throw.
  init(_ settings: Settings, _ look: MarkLook, _ resources: StageResources) throws(ImagingError) {
    let fallback = settings[Watermark.fallback]
    if let file = settings[Watermark.fontFile] {
      let path = resources.run.baseFolder.joining(file).normalised
      guard let text = path.string else {
        throw ImagingError(.fontMissing, "the path of the font, \(path.printable), is not UTF-8")
      }
      typeface = try Typeface(file: text, fallback: fallback)
    } else {
      typeface = try Typeface(
        family: settings[Watermark.font], bold: settings[Watermark.bold], italic: settings[Watermark.italic],
        fallback: fallback)
    }
    template = settings[Watermark.string]
    size = settings[Watermark.size]
    maxWidth = settings[Watermark.maxWidth]
    alignment = settings[Watermark.align]
    colour = settings[Watermark.color]
    self.look = look
    try proveSigns(resources.run)
  }

  /// Finds at the start what can be found then: that every sign of the constant parts can be drawn.
  private func proveSigns(_ run: RunValues) throws(ImagingError) {
    let whole = template.render { variable in
      switch variable {
      case .runDate: Array(run.runDate.utf8)
      case .runID: Array(run.runID.utf8)
      default: nil
      }
    }
    if let whole {
      let text = Self.cleaned(whole)
      guard try typeface.coverage(of: text, .init(size: 16)) != nil else {
        throw ImagingError(.glyphMissing, "the font \(typeface.name) shows nothing for the watermark's text")
      }
      return
    }
    for case .literal(let bytes) in template.segments {
      let missing = typeface.missing(in: Self.cleaned(bytes))
      guard missing.isEmpty else { throw typeface.glyphError(missing) }
    }
  }

  /// The text as it is drawn; line ends of any kind are one kind.
  private static func cleaned(_ bytes: [UInt8]) -> String {
    String(decoding: bytes, as: UTF8.self).replacing("\r\n", with: "\n").replacing("\r", with: "\n")
  }

  func words(for item: Item, in context: StageContext) throws(StageError) -> String {
    Self.cleaned(try context.render(template, for: item))
  }

  func drawn(
    _ words: String, for picture: Image, within room: (width: Int, height: Int)?
  ) throws(ImagingError) -> (image: Image, isShrunk: Bool)? {
    let wanted = max(1, size.pixels(of: min(picture.width, picture.height)))
    var setting = Typeface.Setting(
      size: Double(wanted), maxWidth: maxWidth.map { Double(max(1, $0.pixels(of: picture.width))) },
      alignment: alignment, angle: look.angle)
    while true {
      guard let coverage = try coverage(words, setting) else { return nil }
      guard let room, coverage.width > room.width || coverage.height > room.height else {
        return (try Image.ink(colour, coverage: coverage, opacity: look.opacity), setting.size < Double(wanted))
      }
      let ratio = min(
        Double(room.width) / Double(coverage.width), Double(room.height) / Double(coverage.height))
      // Ink does not shrink quite in proportion; a little less each time ends it.
      setting.size *= min(0.98, ratio)
      guard setting.size >= 1 else {
        throw ImagingError(
          .geometry, "there is no room for the watermark's text in \(room.width)×\(room.height) pixels",
          hint: "shorten it, or make the margin smaller")
      }
    }
  }

  private func coverage(_ words: String, _ setting: Typeface.Setting) throws(ImagingError) -> Image? {
    guard !words.allSatisfy(\.isWhitespace) else { return nil }
    return try coverages.image(Key(text: words, setting: setting)) { () throws(ImagingError) in
      try typeface.coverage(of: words, setting)
    }
  }
}
