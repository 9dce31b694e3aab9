import Imaging
import JobSyntax
import PipelineKit

/// Cuts away the border around what the picture shows.
public struct Trim: Stage {
  /// What happens when everything is border.
  enum OnEmpty: String, FieldChoice {
    case fail, keep

    var help: String {
      switch self {
      case .fail: "the item fails with trim-empty"
      case .keep: "the picture stays as it is, with a warning"
      }
    }
  }

  static let by = Field<TrimBasis>.choice("by", default: .auto, help: "what tells the border")
  static let color = Field<RGBA?>.color(
    "color", when: FieldCondition("by", in: ["auto", "color"]),
    help: "the border's colour; left out, that of the corners: the one that most corners share")
  static let threshold = Field<Int>.integer(
    "threshold", in: 0...255, default: 10, unit: "levels",
    help: "how far a pixel may be from the border's colour in red, green or blue and still be border, or how opaque it "
      + "may be and still count as transparent")
  static let margin = Field<Length>.length(
    "margin", pixels: 0...20_000, default: 0,
    help: "what is left around the subject on all four sides, in pixels or percent of its longer side; where the "
      + "picture does not reach, transparent pixels or the border's colour are added")
  static let minSize = Field<Int>.integer(
    "minSize", in: 1...65_500, default: 1, unit: "pixels",
    help: "a subject whose longer side is shorter, such as a speck of dust, counts as none")
  static let onEmpty = Field<OnEmpty>.choice("onEmpty", default: .fail, help: "what happens when there is only border")

  public static let spec = StageSpec(
    name: "trim",
    summary: "Cuts away the border, transparent or of one colour, around what the picture shows.",
    notes: [
      "The result is the smallest box that holds every pixel which is not border, to the pixel, plus `margin`. A "
        + "percentage is rounded half up.",
      "After segment, this cuts to the subject, and the mask and the photo it was cut from are cut with the picture. "
        + "Masks are often faint, not empty, where the background is busy: a `threshold` of 64 passes over such wisps, "
        + "which are hardly seen but would count. For a product that fills a part of a square, trim with a margin, then "
        + "`pad` to an aspect of 1:1.",
      "Frames of an animation are cut alike, to the box that holds what any of them shows.",
    ],
    fields: [by, color, threshold, margin, minSize, onEmpty],
    examples: [
      #"{ "stage": "trim" }"#,
      #"{ "stage": "trim", "margin": "8%" }"#,
      ##"{ "stage": "trim", "by": "color", "color": "#ffffff", "threshold": 20, "margin": 12, "onEmpty": "keep" }"##,
    ])

  public static func plan(_ settings: Settings) -> StagePlan {
    var plan = StagePlan(accepts: .picture, produces: .picture, removes: .encoded)
    plan.movesPixels = true
    let margin = settings[margin]
    // At most: what is cut away depends on the picture.
    plan.resultSize = { width, height in
      let edge = margin.pixels(of: max(width, height))
      return (width + 2 * edge, height + 2 * edge)
    }
    plan.workingBytes = { width, height in width * height * 4 }
    plan.frames = .together
    return plan
  }

  public static func check(_ settings: Settings) -> [Diagnostic] {
    guard let color = settings[color], color.a == 0 else { return [] }
    return [
      settings.diagnostic(
        .error, "wrong-value", at: Self.color, "\"color\" names no colour: what is transparent is told by alpha",
        hint: "use \"by\": \"alpha\"")
    ]
  }

  private let request: TrimRequest
  private let onEmpty: OnEmpty

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    request = TrimRequest(
      basis: settings[Self.by], color: settings[Self.color], threshold: settings[Self.threshold],
      margin: settings[Self.margin], minSize: settings[Self.minSize])
    onEmpty = settings[Self.onEmpty]
  }

  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    let result = try item.changingFrames(in: context) { (animation) throws(StageError) in
      guard let first = animation.frames.first?.image else { return nil }
      let (border, content) = try StageError.imaging { () throws(ImagingError) in
        let border =
          try animation.frames.contains { $0.image.hasAlpha } ? alphaOrColor(animation) : request.border(of: first)
        return (border, try request.content(of: animation.frames.map(\.image), border))
      }
      guard let content else {
        try empty(border, context)
        return nil
      }
      let part = request.framed(content)
      guard part != Rectangle(x: 0, y: 0, width: first.width, height: first.height) else { return nil }
      return { (frame) throws(ImagingError) in
        try frame.changed(
          picture: { (image) throws(ImagingError) in try image.window(part, border) },
          matte: { (image) throws(ImagingError) in try image.window(part, TrimBorder.alpha) },
          original: { (image) throws(ImagingError) in try image.window(part, PadFill.edge) })
      }
    }
    return .next(result)
  }

  /// Of frames with alpha the first that is transparent somewhere decides: many animations begin with a full frame.
  private func alphaOrColor(_ animation: ItemFrames) throws(ImagingError) -> TrimBorder {
    var first: TrimBorder?
    for frame in animation.frames {
      let border = try request.border(of: frame.image)
      if border == .alpha { return border }
      first = first ?? border
    }
    return first ?? .alpha
  }

  private func empty(_ border: TrimBorder, _ context: StageContext) throws(StageError) {
    let what = border == .alpha ? "transparent" : "of the border's colour"
    let found = request.minSize > 1 ? ", or shorter than \"minSize\"" : ""
    switch onEmpty {
    case .fail:
      throw StageError(
        "trim-empty", "nothing is left to show: everything is \(what)\(found)",
        hint: "a smaller \"threshold\"" + (request.minSize > 1 ? " or \"minSize\"" : "")
          + " would keep more; \"onEmpty\": \"keep\" would go on")
    case .keep:
      context.warn("trim-empty", "nothing was trimmed: everything is \(what)\(found)")
    }
  }
}

extension TrimBasis: FieldChoice {
  public var help: String {
    switch self {
    case .auto: "its transparency where the picture has any, else its colour"
    case .alpha: "its transparency"
    case .color: "its colour"
    }
  }
}
