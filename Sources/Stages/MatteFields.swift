import Imaging
import JobSyntax
import PipelineKit

/// The fields that change a mask, and how they are read.
enum MatteFields {
  static let level = Field<Double>.number(
    "level", in: 0.001...1, default: 0.5, help: "the opacity from which a pixel belongs to the subject")
  static let softness = Field<Double>.number(
    "softness", in: 0...1, default: 0,
    help: "the width of the smooth ramp about the level; 0 makes edges hard, 1 keeps nearly all softness")
  private static let thresholdShape = ObjectShape([level, softness])
  static let threshold = Field<MatteAdjustment.Threshold?>(
    "threshold", type: .oneOf([.number(0.001...1), .object(thresholdShape)]), absent: .some(nil),
    help: "makes soft edges hard at this opacity, 0 to 1; or an object with a level and a softness; costs next to "
      + "nothing"
  ) { node, file in
    if let level = node.numberValue?.double { return .some(.init(level: level)) }
    guard node.objectValue != nil else { return nil }
    let settings = Settings(reading: node, shape: thresholdShape, file: file)
    return .some(.init(level: settings[level], softness: settings[softness]))
  }

  static let holes = Field<Double?>.number(
    "holes", in: 0...1,
    help: "fills gaps in the subject below this share of the picture's area, such as 0.01; costs 4 ms a megapixel")
  static let islands = Field<MatteAdjustment.Islands?>(
    "islands",
    type: .oneOf([.number(0...1), .choice([Choice("largest", "the largest part stays alone")])]), absent: .some(nil),
    help: "drops parts of the subject below this share of the picture's area, such as 0.01, with their soft skirts, or "
      + "all but the `largest`; costs 4 ms a megapixel"
  ) { node, _ in
    if node.stringValue == "largest" { return .some(.largest) }
    return node.numberValue?.double.map { .some(.below($0)) }
  }

  static let grow = radius(
    "grow", most: 1000,
    help: "makes the subject larger on all sides, in pixels, fractions too, or percent of the picture's shorter side; "
      + "soft edges stay as soft; costs 1 to 7 ms a megapixel, more for wide soft edges")
  static let shrink = radius(
    "shrink", most: 1000,
    help: "makes the subject smaller on all sides, as `grow` makes it larger; together they close narrow gaps")
  static let feather = radius(
    "feather", most: 2000,
    help: "softens edges: the sigma of a Gaussian in pixels, or percent of the picture's shorter side; costs 2 to 8 ms "
      + "a megapixel")
  static let invert = Field<Bool>.boolean(
    "invert", default: false, help: "makes the background the subject; costs next to nothing")

  static let x = measure(
    "x", from: -1_000_000, default: .integer(0), .pixels(0), help: "its left side, in pixels or percent of the width")
  static let y = measure(
    "y", from: -1_000_000, default: .integer(0), .pixels(0), help: "its upper side, in pixels or percent of the height")
  static let width = measure(
    "width", from: 0, default: .string("100%"), .share(1), help: "its width, in pixels or percent of the picture's")
  static let height = measure(
    "height", from: 0, default: .string("100%"), .share(1), help: "its height, in pixels or percent of the picture's")
  static let rectangle = Field<Settings?>.optionalObject(
    "rectangle", ObjectShape([x, y, width, height]),
    help: "an upright rectangle; what reaches beyond the picture is cut")
  static let polygon = Field<[MatteRegion.Point]>(
    "polygon", type: .array(.array(measureType, count: 2...2), count: 3...1000), absent: [],
    help: "corners as [x, y], each in pixels or percent of width and height"
  ) { node, _ in
    node.arrayValue?.compactMap { corner in
      guard let pair = corner.arrayValue, pair.count == 2, let x = readMeasure(pair[0]), let y = readMeasure(pair[1])
      else { return nil }
      return MatteRegion.Point(x, y)
    }
  }
  static let keep = Field<Keep>.choice(
    "keep", default: .outside, help: "which side of the region's edge the mask leaves alone")
  static let region = Field<Settings?>.optionalObject(
    "region", ObjectShape([rectangle, polygon, keep], exactlyOne: ["rectangle", "polygon"]),
    help:
      "where the mask acts; elsewhere the picture stays as it is, so that only a part of the background goes; costs "
      + "2 ms a megapixel")

  /// Where the picture stays as it is.
  enum Keep: String, FieldChoice {
    case outside, inside

    var help: String {
      switch self {
      case .outside: "beyond the region the picture stays"
      case .inside: "within the region the picture stays"
      }
    }
  }

  /// All of them, in the order in which they act.
  static let all: [any FieldDeclaration] = [threshold, holes, islands, grow, shrink, feather, invert, region]

  /// The paragraph about them for the reference page of a stage.
  static let note =
    "The mask is changed in this order: `threshold`, `holes`, `islands`, `grow`, `shrink`, `feather`, `invert`, "
    + "`region`. `holes` and `islands` take as subject what is at least half opaque; fainter parts as small go too. "
    + "Beyond the picture's border nothing is added or taken away: a subject that touches it stays opaque there."

  private static let measureType = FieldType.oneOf([.number(-1_000_000...1_000_000), .text(.percentage)])

  private static func measure(
    _ name: String, from least: Double, default text: JSONText, _ absent: MatteRegion.Measure, help: String
  ) -> Field<MatteRegion.Measure> {
    Field(
      name, type: .oneOf([.number(least...1_000_000), .text(.percentage)]), absent: absent, defaultText: text,
      help: help
    ) { node, _ in readMeasure(node) }
  }

  private static func readMeasure(_ node: JSONNode) -> MatteRegion.Measure? {
    if let text = node.stringValue { return share(text).map { .share($0) } }
    return node.numberValue?.double.map { .pixels($0) }
  }

  /// A percentage as a part of 1; nil for anything else.
  private static func share(_ text: String) -> Double? {
    // Four decimals are the most that a percentage has.
    Length(percentage: text).map { Double($0.pixels(of: 1_000_000)) / 1_000_000 }
  }

  private static func radius(_ name: String, most: Double, help: String) -> Field<MatteRadius?> {
    Field(name, type: .oneOf([.number(0...most), .text(.percentage)]), absent: .some(nil), help: help) { node, _ in
      if let text = node.stringValue { return share(text).map { .some(.share($0)) } }
      return node.numberValue?.double.map { .some(.pixels($0)) }
    }
  }
}

extension MatteAdjustment {
  /// What the fields of a stage ask for.
  init(_ settings: Settings) {
    self.init(
      threshold: settings[MatteFields.threshold], holes: settings[MatteFields.holes],
      islands: settings[MatteFields.islands], grow: settings[MatteFields.grow], shrink: settings[MatteFields.shrink],
      feather: settings[MatteFields.feather], invert: settings[MatteFields.invert],
      region: settings[MatteFields.region].map(MatteRegion.init))
  }

  /// The changed matte, with a warning where they leave nothing of the subject.
  func applied(to matte: Image, in context: StageContext) throws(StageError) -> Image {
    guard !isEmpty else { return matte }
    let changed = try StageError.imaging { () throws(ImagingError) in try applied(to: matte) }
    let isGone = try StageError.imaging { () throws(ImagingError) in
      guard try changed.withPixels({ $0.allSatisfy { $0 == 0 } }) else { return false }
      return try matte.withPixels { $0.contains { $0 > 127 } }
    }
    if isGone { context.warn("mask-empty", "the changes to the mask left nothing of the subject") }
    return changed
  }
}

extension MatteRegion {
  fileprivate init(_ settings: Settings) {
    let isReversed = settings[MatteFields.keep] == .inside
    guard let rectangle = settings[MatteFields.rectangle] else {
      self.init(corners: settings[MatteFields.polygon], isReversed: isReversed)
      return
    }
    self.init(
      x: rectangle[MatteFields.x], y: rectangle[MatteFields.y], width: rectangle[MatteFields.width],
      height: rectangle[MatteFields.height], isReversed: isReversed)
  }
}
