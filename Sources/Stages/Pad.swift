import Imaging
import JobSyntax
import PipelineKit

/// Adds a frame around pictures.
public struct Pad: Stage {
  /// What the added area shows.
  enum Fill: String, FieldChoice {
    case color, edge, mirror

    var help: String {
      switch self {
      case .color: "the background colour"
      case .edge: "the picture's outermost pixels go on"
      case .mirror: "the picture is mirrored at its edges"
      }
    }
  }

  static let all = Field<Length?>.length(
    "all", pixels: 0...65_500, help: "what is added on each side, in pixels or percent of the picture's longer side")
  static let top = Field<Length?>.length(
    "top", pixels: 0...65_500, help: "what is added above, in pixels or percent of the height")
  static let right = Field<Length?>.length(
    "right", pixels: 0...65_500, help: "what is added at the right, in pixels or percent of the width")
  static let bottom = Field<Length?>.length(
    "bottom", pixels: 0...65_500, help: "what is added below, in pixels or percent of the height")
  static let left = Field<Length?>.length(
    "left", pixels: 0...65_500, help: "what is added at the left, in pixels or percent of the width")
  static let width = Field<Int?>.integer("width", in: 1...65_500, unit: "pixels", help: "width of the result")
  static let height = Field<Int?>.integer("height", in: 1...65_500, unit: "pixels", help: "height of the result")
  static let aspect = Field<AspectRatio?>.ratio(
    "aspect", help: "pads to the smallest canvas with this ratio of width to height")
  static let gravity = Field<Position>.gravity(
    help: "where the picture stands when it is padded to `width`, `height` or `aspect`")
  static let fill = Field<Fill>.choice("fill", default: .color, help: "what the added area shows")
  static let background = Field<RGBA?>.color(
    "background", when: FieldCondition("fill", in: ["color"]),
    help: "the colour of what is added; left out, it is transparent where the picture has an alpha channel, else white")

  private static let singleSides: [Field<Length?>] = [top, right, bottom, left]

  public static let spec = StageSpec(
    name: "pad",
    summary: "Adds a frame around the picture: on its sides, to a size, or to a ratio.",
    notes: [
      "Give `all`, or some of `top`, `right`, `bottom` and `left`; or `width`, `height` or both; or `aspect`. The picture "
        + "itself is not scaled, and one that is larger than `width` or `height` fails with `geometry`.",
      "Percentages and ratios are rounded to whole pixels, half up. What is left over around a centred picture is "
        + "halved, and an odd pixel goes to the right or below.",
      "After segment, the added area belongs to the background in the mask, and the photo that the picture was cut from "
        + "goes on there as its edge.",
    ],
    fields: [all, top, right, bottom, left, width, height, aspect, gravity, fill, background],
    examples: [
      #"{ "stage": "pad", "aspect": "1:1" }"#,
      ##"{ "stage": "pad", "all": 24, "background": "#f4f4f4" }"##,
      #"{ "stage": "pad", "width": 1200, "height": 800, "gravity": "bottom", "fill": "mirror" }"#,
    ])

  private static func request(_ settings: Settings) -> PadRequest {
    if let aspect = settings[aspect] { return .aspect(aspect, settings[gravity]) }
    if settings[width] != nil || settings[height] != nil {
      return .size(width: settings[width], height: settings[height], settings[gravity])
    }
    if let all = settings[all] { return .all(all) }
    return .sides(
      top: settings[top] ?? .pixels(0), right: settings[right] ?? .pixels(0), bottom: settings[bottom] ?? .pixels(0),
      left: settings[left] ?? .pixels(0))
  }

  public static func plan(_ settings: Settings) -> StagePlan {
    let request = request(settings)
    var plan = StagePlan(accepts: .picture, produces: .picture, removes: .encoded)
    plan.movesPixels = true
    if settings[fill] == .color, let colour = settings[background], !colour.isOpaque { plan.produces.insert(.alpha) }
    plan.resultSize = { width, height in
      guard let canvas = try? request.canvas(for: width, height) else { return (width, height) }
      return (canvas.width, canvas.height)
    }
    if case .size(let width, let height, _) = request { plan.leastSide = max(width ?? 1, height ?? 1) }
    plan.workingBytes = { width, height in width * height * 4 }
    return plan
  }

  public static func check(_ settings: Settings) -> [Diagnostic] {
    // Each way of saying how much, by the fields that belong to it.
    let ways: [[any FieldDeclaration]] = [[all], singleSides, [width, height], [aspect]]
    let given = ways.compactMap { way in way.first { settings.isSet($0) } }
    guard let first = given.first else {
      return [
        settings.diagnostic(
          .error, "missing-key", "stage \"pad\" needs to know how much to add",
          hint:
            "give \"all\", some of \"top\", \"right\", \"bottom\", \"left\", a \"width\" or \"height\", or \"aspect\"")
      ]
    }
    var findings: [Diagnostic] = []
    if given.count > 1 {
      findings.append(
        settings.diagnostic(
          .error, "conflicting-keys", at: given[1],
          "\"\(first.name)\" and \"\(given[1].name)\" are different ways of saying how much is added",
          hint: "use one of them, or two \"pad\" stages, one after the other"))
    } else if settings.isSet(gravity), settings.isSet(all) || singleSides.contains(where: { settings.isSet($0) }) {
      findings.append(
        settings.diagnostic(
          .error, "not-applicable", at: gravity, "\"gravity\" has no meaning with \"\(first.name)\"",
          hint: "it goes with \"width\", \"height\" and \"aspect\""))
    }
    return findings
  }

  private let request: PadRequest
  private let fill: Fill
  private let background: RGBA?

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    request = Self.request(settings)
    fill = settings[Self.fill]
    background = settings[Self.background]
  }

  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    let result = try item.changingFrames(in: context) { (animation) throws(StageError) in
      guard let first = animation.frames.first?.image else { return nil }
      let canvas = try StageError.imaging { () throws(ImagingError) in
        try request.canvas(for: first.width, first.height)
      }
      guard (canvas.width, canvas.height) != (first.width, first.height) else { return nil }
      return { (frame) throws(ImagingError) in
        let fill = fill(of: frame.image)
        // What goes on belongs to the subject where its edge does; a colour never does.
        let matteFill: PadFill = if case .color = fill { .color(.transparent) } else { fill }
        let originalFill: PadFill = if case .color = fill { .edge } else { fill }
        return try frame.changed(
          picture: { (image) throws(ImagingError) in try image.padded(to: canvas, fill) },
          matte: { (image) throws(ImagingError) in try image.padded(to: canvas, matteFill) },
          original: { (image) throws(ImagingError) in try image.padded(to: canvas, originalFill) })
      }
    }
    return .next(result)
  }

  private func fill(of image: Image) -> PadFill {
    switch fill {
    case .edge: .edge
    case .mirror: .mirror
    // A mask is dark where there is no subject.
    case .color: .color(background ?? (image.hasAlpha || image.bands < 3 ? .transparent : .white))
    }
  }
}
