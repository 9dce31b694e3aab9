import Imaging
import PipelineKit

/// Turns pictures by any angle.
public struct Rotate: Stage {
  static let angle = Field<Double>.number(
    "angle", in: -360...360, default: nil, unit: "degrees", help: "how far to turn, clockwise")
  static let crop = Field<Bool>.boolean(
    "crop", default: false,
    help: "whether the result is cut to the largest upright rectangle that the turned picture fills, as for a horizon "
      + "put straight, instead of enlarged to hold its corners")
  static let background = Field<RGBA?>.color(
    "background", when: FieldCondition("crop", in: ["false"]),
    help: "what fills the corners; left out, they are transparent where the picture has an alpha channel, else white")
  static let interpolator = Field<Interpolator>.choice(
    "interpolator", default: .bicubic, help: "how pixels between pixels are made, for angles that are not right")

  public static let spec = StageSpec(
    name: "rotate",
    summary: "Turns the picture clockwise by any angle.",
    notes: [
      "Multiples of 90 degrees move pixels and change none. Any other angle makes new pixels, with colours weighed by "
        + "transparency, and enlarges the canvas to width·|cos| + height·|sin| by width·|sin| + height·|cos|, rounded up; "
        + "the middle stays the middle.",
      "The orientation that a camera notes is applied by decode; this stage is for turning beyond that. After segment, "
        + "the mask and the photo it was cut from are turned with the picture.",
    ],
    fields: [angle, crop, background, interpolator],
    examples: [
      #"{ "stage": "rotate", "angle": 90 }"#,
      #"{ "stage": "rotate", "angle": -1.5, "crop": true }"#,
      ##"{ "stage": "rotate", "angle": 15, "background": "transparent", "interpolator": "nohalo" }"##,
    ])

  private static func rotation(_ settings: Settings) -> Rotation {
    Rotation(degrees: settings[angle], crop: settings[crop], interpolator: settings[interpolator])
  }

  public static func plan(_ settings: Settings) -> StagePlan {
    let rotation = rotation(settings)
    var plan = StagePlan(accepts: .picture, produces: .picture, removes: .encoded)
    plan.movesPixels = true
    let isMade = rotation.quarters == nil
    if isMade, !rotation.crop, let colour = settings[background], !colour.isOpaque { plan.produces.insert(.alpha) }
    plan.resultSize = { width, height in rotation.size(for: width, height) }
    // Rows in floating point on the way, and the result twice where it is laid on its background.
    plan.workingBytes = { width, height in width * height * (isMade ? 8 : 4) }
    return plan
  }

  private let rotation: Rotation
  private let background: RGBA?

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    rotation = Self.rotation(settings)
    background = settings[Self.background]
  }

  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    guard rotation.angle != 0 else { return .next(item) }
    let result = try item.changingFrames(in: context) { _ throws(StageError) in
      { (frame) throws(ImagingError) in
        try frame.changed(
          picture: { (image) throws(ImagingError) in try turned(image) },
          matte: { (image) throws(ImagingError) in try image.rotated(rotation) },
          original: { (image) throws(ImagingError) in try image.rotated(rotation, extending: true) })
      }
    }
    return .next(result)
  }

  private func turned(_ image: Image) throws(ImagingError) -> Image {
    let turned = try image.rotated(rotation)
    let colour = background ?? (image.hasAlpha ? .transparent : .white)
    // A mask is dark where it does not reach: there is no subject.
    guard rotation.quarters == nil, !rotation.crop, image.bands >= 3, colour.a > 0 else { return turned }
    return try turned.composited(over: .solid(width: turned.width, height: turned.height, colour))
  }
}

extension Interpolator: FieldChoice {
  public var help: String {
    switch self {
    case .bicubic: "sharp, the usual choice for photos"
    case .nohalo: "no halos at hard edges; about ten times slower"
    case .nearest: "the nearest pixel: pixel art and masks"
    }
  }
}
