import Imaging
import JobSyntax
import PipelineKit

/// Lays a text or a picture on pictures.
public struct Watermark: Stage {
  static let path = Field<String>.text(
    "path", .path, default: nil, help: "the picture file, not SVG, seen from the job file")
  static let scale = Field<Double?>.number(
    "scale", in: 0.001...1,
    help: "its width as a part of each picture's width, 0 to 1; left out, it keeps its own size")
  static let image = Field<Settings?>.optionalObject(
    "image", ObjectShape([path, scale]), help: "a picture as watermark, best with transparency; or use `text`")

  static let string = Field<Template>.template(
    "text", default: nil,
    help: "what is written; `\\n` begins a new line, and `${…}` is filled in for each item, as in `© ${item.author}`")
  static let font = Field<String>.text(
    "font", default: "sans-serif",
    help:
      "a family that is installed, such as `DejaVu Sans`; `sans-serif`, `serif` and `monospace` are what the machine "
      + "takes for them, so name a family, or a file, where all machines must agree")
  static let fontFile = Field<String?>.text(
    "fontFile", .path, help: "a TrueType or OpenType file, seen from the job file, instead of `font`")
  static let bold = Field<Bool>.boolean("bold", default: false, help: "whether the family's bold face is used")
  static let italic = Field<Bool>.boolean("italic", default: false, help: "whether the family's slanted face is used")
  static let size = Field<Length>.length(
    "size", pixels: 1...5_000, default: "5%",
    help: "the height of the font, in pixels or percent of the picture's shorter side")
  static let color = Field<RGBA>.color("color", default: "white", help: "the colour of the text")
  static let maxWidth = Field<Length?>.length(
    "maxWidth", pixels: 1...65_500,
    help: "where lines are broken at words, in pixels or percent of the picture's width; left out, only at `\\n`")
  static let align = Field<Typeface.Setting.Alignment>.choice(
    "align", default: .left, help: "how several lines stand to each other")
  static let fallback = Field<Bool>.boolean(
    "fallback", default: false, help: "whether other installed fonts stand in for characters that the font lacks")
  static let text = Field<Settings?>.optionalObject(
    "text", ObjectShape([string, font, fontFile, bold, italic, size, color, maxWidth, align, fallback]),
    help: "a text as watermark; or use `image`")

  static let gravity = Field<Position>.gravity(
    default: .bottomRight, when: FieldCondition("tile", in: ["false"]), help: "where the watermark stands")
  static let margin = Field<Length>.length(
    "margin", pixels: 0...65_500, default: "3%", when: FieldCondition("tile", in: ["false"]),
    help: "how far it stays from the picture's edges, in pixels or percent of the picture's shorter side")
  static let opacity = Field<Double>.number(
    "opacity", in: 0.01...1, default: 1,
    help: "how much of the picture it covers: 1 is all, 0.3 shows most of the picture")
  static let rotate = Field<Double>.number(
    "rotate", in: -360...360, default: 0, unit: "degrees", help: "how far the watermark is turned, clockwise")
  static let tile = Field<Bool>.boolean(
    "tile", default: false, help: "whether it is repeated all over the picture, from the middle")
  static let spacing = Field<Length>.length(
    "spacing", pixels: 0...65_500, default: "5%", when: FieldCondition("tile", in: ["true"]),
    help: "how far repeated watermarks are apart, in pixels or percent of the picture's shorter side")

  public static let spec = StageSpec(
    name: "watermark",
    summary: "Lays a text or a picture on each picture: once in a corner, or repeated all over.",
    notes: [
      "The margin is measured from what is seen of a text, its ink, and from the edge of a watermark picture. A "
        + "watermark that does not fit between the margins is made smaller, with the warning `watermark-shrunk`. Pixels "
        + "beside it come through exactly.",
      "A font that is not installed, or lacks a sign of the text, ends the run before it starts; where the sign comes "
        + "from `${…}`, the item fails with `glyph-missing`. Nothing is left blank or shown as a box. Colour emoji are not "
        + "drawn. Text that is empty for an item leaves its picture as it is, with the warning `watermark-empty`.",
      "The watermark takes on each picture's colour space and depth. On a cut-out it shows on the transparent part too: "
        + "put it after `composite` to have it over the background.",
    ],
    fields: [image, text, gravity, margin, opacity, rotate, tile, spacing],
    examples: [
      #"{ "stage": "watermark", "text": { "text": "© Example Ltd", "size": "3%" }, "opacity": 0.7 }"#,
      #"{ "stage": "watermark", "image": { "path": "logo.png", "scale": 0.2 }, "gravity": "top-left", "margin": 24 }"#,
      ##"{ "stage": "watermark", "text": { "text": "PROOF ${item.stem}", "color": "#00000080" }, "rotate": -30, "tile": true }"##,
    ])

  public static func plan(_ settings: Settings) -> StagePlan {
    var plan = StagePlan(accepts: .picture, produces: .picture, removes: .encoded)
    if let image = settings[image] { plan.helperFiles = [image[path]] }
    if let file = settings[text]?[fontFile] { plan.helperFiles = [file] }
    // The result, and with tile the pattern laid on it.
    let perPixel = settings[tile] ? 12 : 5
    plan.workingBytes = { width, height in width * height * perPixel }
    return plan
  }

  public static func check(_ settings: Settings) -> [Diagnostic] {
    guard settings.isSet(image) != settings.isSet(text) else {
      let both = settings.isSet(image)
      return [
        settings.diagnostic(
          .error, both ? "conflicting-keys" : "missing-key", at: both ? image : nil,
          "stage \"watermark\" needs \"image\" or \"text\"\(both ? ", not both" : "")",
          hint: both ? "use two \"watermark\" stages, one after the other" : nil)
      ]
    }
    guard let text = settings[text] else { return [] }
    var findings: [Diagnostic] = []
    for other in [font, bold, italic] as [any FieldDeclaration] where text.isSet(fontFile) && text.isSet(other) {
      findings.append(
        text.diagnostic(
          .error, "conflicting-keys", at: other,
          "\"\(other.name)\" chooses among installed fonts: it does not go with "
            + "\"fontFile\"", hint: "name the file of the face that is wanted"))
    }
    if text[color].a == 0 {
      findings.append(text.diagnostic(.error, "wrong-value", at: color, "a text in \"transparent\" shows nothing"))
    }
    guard text.hasValue(for: string) else { return findings }
    let template = text[string]
    if template.variables.isEmpty, template.text.allSatisfy(\.isWhitespace) {
      findings.append(text.diagnostic(.error, "wrong-value", at: string, "\"text\" shows nothing: it is blank"))
    }
    if template.variables.contains(.ext) {
      findings.append(
        text.diagnostic(
          .error, "variable-not-allowed", at: string, "${ext} is not known before the picture is encoded",
          hint: "${item.ext} is the ending of the input"))
    }
    return findings
  }

  private let mark: any Mark
  private let gravity: Position
  private let margin: Length
  /// nil for a single watermark.
  private let spacing: Length?

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    gravity = settings[Self.gravity]
    margin = settings[Self.margin]
    spacing = settings[Self.tile] ? settings[Self.spacing] : nil
    let look = MarkLook(opacity: settings[Self.opacity], angle: settings[Self.rotate])
    do throws(ImagingError) {
      if let image = settings[Self.image] {
        mark = try PictureMark(image, look, resources)
      } else if let text = settings[Self.text] {
        mark = try TextMark(text, look, resources)
      } else {
        throw ImagingError(.internalFault, "watermark has neither image nor text; the job was not checked")
      }
    } catch {
      throw StageError(
        error.code.rawValue, error.message, kind: .environment, cause: error.detail.isEmpty ? nil : error.detail,
        hint: error.hint)
    }
  }

  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    let picture = try item.image(in: context)
    guard picture.bands >= 3 else {
      throw StageError(
        "geometry", "the picture is a mask, and a watermark cannot be put on it",
        hint: "use \"output\": \"cutout\" in the segment stage")
    }
    let (width, height) = (picture.width, picture.height)
    let words = try mark.words(for: item.with(image: picture), in: context)
    let edge = margin.pixels(of: min(width, height))
    let room = (width: max(1, width - 2 * edge), height: max(1, height - 2 * edge))
    let result: Image? = try StageError.imaging { () throws(ImagingError) in
      if let spacing {
        guard let drawn = try mark.drawn(words, for: picture, within: nil) else { return nil }
        return try picture.tiled(with: drawn.image, spacing: spacing.pixels(of: min(width, height)))
      }
      guard let drawn = try mark.drawn(words, for: picture, within: room) else { return nil }
      if drawn.isShrunk {
        context.warn(
          "watermark-shrunk",
          "the watermark does not fit into \(room.width)×\(room.height) pixels, and was made smaller")
      }
      let offset = gravity.offset(across: room.width - drawn.image.width, down: room.height - drawn.image.height)
      let x = min(edge, width - 1) + offset.x
      let y = min(edge, height - 1) + offset.y
      return try picture.stamped(with: drawn.image, x: x, y: y)
    }
    guard let result else {
      context.warn("watermark-empty", "the watermark's text is empty for this picture, which passes unchanged")
      return .next(item.with(image: picture))
    }
    return .next(item.with(image: result))
  }
}

/// What is the same for all kinds of marks.
struct MarkLook: Sendable, Hashable {
  /// 0…1.
  var opacity: Double
  /// Degrees clockwise.
  var angle: Double
}

/// What is laid on pictures.
protocol Mark: Sendable {
  /// What is written for an item; empty for a mark without text.
  func words(for item: Item, in context: StageContext) throws(StageError) -> String

  /// The mark for a picture, with alpha, in memory; nil where there is nothing to see.
  ///
  /// - Parameter room: what it must fit into, in pixels; nil for no bound.
  func drawn(
    _ words: String, for picture: Image, within room: (width: Int, height: Int)?
  ) throws(ImagingError) -> (image: Image, isShrunk: Bool)?
}

extension Typeface.Setting.Alignment: FieldChoice {
  public var help: String { "" }
}
