import Imaging
import PipelineKit

/// Mirrors pictures.
public struct Flip: Stage {
  static let direction = Field<FlipDirection>.choice(
    "direction", default: nil, help: "which way the picture is mirrored")

  public static let spec = StageSpec(
    name: "flip",
    summary: "Mirrors the picture.",
    notes: ["Pixels are moved, and none is changed. After segment, mask and photo are mirrored with the picture."],
    fields: [direction],
    examples: [#"{ "stage": "flip", "direction": "horizontal" }"#])

  public static func plan(_ settings: Settings) -> StagePlan {
    var plan = StagePlan(accepts: .picture, produces: .picture, removes: .encoded)
    plan.movesPixels = true
    plan.workingBytes = { width, height in width * height * 4 }
    return plan
  }

  private let direction: FlipDirection

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    direction = settings[Self.direction]
  }

  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    let result = try item.changingFrames(in: context) { _ throws(StageError) in
      { (frame) throws(ImagingError) in
        try frame.changed { (image) throws(ImagingError) in try image.flipped(direction) }
      }
    }
    return .next(result)
  }
}

extension FlipDirection: FieldChoice {
  public var help: String {
    switch self {
    case .horizontal: "left becomes right"
    case .vertical: "top becomes bottom"
    case .both: "both, which is half a turn"
    }
  }
}
