import Imaging
import PipelineKit

/// Blurs pictures.
struct Soften: Stage {
  static let sigma = Field<Double>.number(
    "sigma", in: 0.3...100, default: 2, unit: "pixels", help: "radius of the blur")
  static let spec = StageSpec(
    name: "example.soften", summary: "Blurs the picture.", fields: [sigma],
    examples: [#"{ "stage": "example.soften", "sigma": 4 }"#])

  static func plan(_ settings: Settings) -> StagePlan {
    StagePlan(accepts: .picture, produces: .picture, removes: .encoded)
  }

  private let sigma: Double

  init(_ settings: Settings, resources: StageResources) throws(StageError) { sigma = settings[Self.sigma] }

  func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    let picture = try item.image(in: context)
    let soft = try StageError.imaging { () throws(ImagingError) in
      try picture.blurred(sigma: sigma).materialised()
    }
    return .next(item.with(image: soft))
  }
}
