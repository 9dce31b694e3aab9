import Imaging
import JobSyntax
import PipelineKit

/// A checker, or a picture side by side.
struct PatternBackground: BackgroundKind {
  static let kind = Field<PatternKind>.choice("kind", default: .checker, help: "what is repeated")
  static let colors = Field<[RGBA]>(
    "colors", type: .array(.text(.color), count: 2...2), absent: [.white, RGBA(204, 204, 204)],
    defaultText: ["#ffffff", "#cccccc"], when: FieldCondition("kind", in: ["checker"]),
    help: "the two colours of a checker; the square in the corner has the first"
  ) { node, _ in
    // Read before lint has its say, so a value that is no colour reads as none.
    node.arrayValue.map { $0.map { $0.stringValue.flatMap { RGBA(css: $0) } ?? .transparent } }
  }
  static let size = Field<Length>.length(
    "size", pixels: 1...5_000, default: 16, when: FieldCondition("kind", in: ["checker"]),
    help: "the side of a square, in pixels or percent of the canvas' shorter side")
  static let path = Field<String>.text(
    "path", .path, default: nil, when: FieldCondition("kind", in: ["tile"]),
    help: "the picture file to repeat, not SVG, seen from the job file")
  static let scale = Field<Double>.number(
    "scale", in: 0.01...20, default: 1, when: FieldCondition("kind", in: ["tile"]),
    help: "how large each copy is drawn: 1 is as it is, 0.5 half as wide and high")
  static let offsetX = Field<Int>.integer(
    "offsetX", in: -65_500...65_500, default: 0, unit: "pixels",
    help: "how far the pattern is moved to the right; below 0, to the left. Unmoved, it begins in the upper left corner"
  )
  static let offsetY = Field<Int>.integer(
    "offsetY", in: -65_500...65_500, default: 0, unit: "pixels",
    help: "how far the pattern is moved down; below 0, up")
  static let pattern = Field<Settings?>.optionalObject(
    "pattern", ObjectShape([kind, colors, size, path, scale, offsetX, offsetY]),
    help: "a checker of two colours, or a picture repeated side by side")
  static var field: any FieldDeclaration { pattern }

  static func traits(_ background: Settings) -> BackgroundTraits {
    guard let pattern = background[pattern] else { return BackgroundTraits() }
    switch pattern[kind] {
    case .checker: return BackgroundTraits(isOpaque: pattern[colors].allSatisfy(\.isOpaque))
    case .tile: return BackgroundTraits(helperFiles: [pattern[path]])
    }
  }

  static func check(_ background: Settings) -> [Diagnostic] {
    guard let pattern = background[pattern], pattern[kind] == .checker, pattern[colors].first == pattern[colors].last
    else { return [] }
    return [
      pattern.diagnostic(
        .error, "wrong-value", at: colors, "the two colours of \"colors\" are the same: nothing shows of a checker",
        hint: "use \"color\" for one colour")
    ]
  }

  private enum Drawing {
    case checker(Checker, size: Length)
    case tile(Image)
  }

  private let drawing: Drawing
  private let x: Int
  private let y: Int
  let isFixed = true

  init(_ background: Settings, _ resources: StageResources) throws(ImagingError) {
    guard let settings = background[Self.pattern] else {
      throw ImagingError(.internalFault, "a pattern without settings; the job was not checked")
    }
    (x, y) = (settings[Self.offsetX], settings[Self.offsetY])
    switch settings[Self.kind] {
    case .checker:
      let colors = settings[Self.colors]
      drawing = .checker(Checker(colors[0], colors[1], size: 1), size: settings[Self.size])
    case .tile:
      let file = try BackgroundFile.picture(settings[Self.path], resources)
      let scale = settings[Self.scale]
      func scaled(_ side: Int) -> Int { max(1, Int((Double(side) * scale).rounded())) }
      // Of a tile larger than any canvas only a part would ever show.
      guard scaled(file.width) <= 65_500, scaled(file.height) <= 65_500 else {
        throw ImagingError(
          .geometry, "a tile of \(scaled(file.width))×\(scaled(file.height)) pixels is too large",
          hint: "lower \"scale\"")
      }
      drawing = .tile(try file.stretched(width: scaled(file.width), height: scaled(file.height)).materialised())
    }
  }

  func drawn(for scene: Scene) throws(ImagingError) -> Image? {
    switch drawing {
    case .checker(var checker, let size):
      (checker.size, checker.x, checker.y) = (max(1, size.pixels(of: min(scene.width, scene.height))), x, y)
      return try .checker(checker, width: scene.width, height: scene.height)
    case .tile(let tile):
      return try tile.repeated(width: scene.width, height: scene.height, x: x, y: y)
    }
  }
}

/// What a pattern repeats.
enum PatternKind: String, FieldChoice {
  case checker, tile

  var help: String {
    switch self {
    case .checker: "squares of two colours by turns"
    case .tile: "a picture, side by side"
    }
  }
}
