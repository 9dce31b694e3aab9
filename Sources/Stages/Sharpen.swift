import Imaging
import PipelineKit

/// Sharpens pictures.
public struct Sharpen: Stage {
  static let sigma = Field<Double>.number(
    "sigma", in: 0.01...10, default: 0.5, unit: "pixels",
    help: "how fine the detail is that is strengthened: the radius of the blur that it is measured against")
  static let amount = Field<Double>.number(
    "amount", in: 0...100, default: 3, help: "how much of the detail is added at edges; 0 adds nothing")
  static let flatAmount = Field<Double>.number(
    "flatAmount", in: 0...100, default: 0, help: "how much of it is added in flat areas, where most of it is noise")
  static let threshold = Field<Double>.number(
    "threshold", in: 0...100, default: 2, help: "the change of lightness (0 to 100) that parts flat areas from edges")
  static let maxLighten = Field<Double>.number(
    "maxLighten", in: 0...100, default: 10, help: "by how much of lightness (0 to 100) a pixel becomes lighter at most")
  static let maxDarken = Field<Double>.number(
    "maxDarken", in: 0...100, default: 20, help: "by how much of lightness (0 to 100) a pixel becomes darker at most")

  public static let spec = StageSpec(
    name: "sharpen",
    summary: "Sharpens edges by an unsharp mask on lightness; colours and transparency stay.",
    notes: [
      "Put it after `resize`: sharpening belongs to the size that is looked at. The defaults are those of `sharpen` in "
        + "`resize`.",
      "The mask and the photo that a cut-out was made from are left as they are; a mask as picture passes unchanged, with "
        + "a warning.",
    ],
    fields: [sigma, amount, flatAmount, threshold, maxLighten, maxDarken],
    examples: [
      #"{ "stage": "sharpen" }"#,
      #"{ "stage": "sharpen", "sigma": 1, "amount": 1.5, "threshold": 4 }"#,
    ])

  public static func plan(_ settings: Settings) -> StagePlan {
    var plan = StagePlan(accepts: .picture, produces: .picture, removes: .encoded)
    // A copy in Lab and its blur, besides the result.
    plan.workingBytes = { width, height in width * height * 16 }
    return plan
  }

  private let sharpening: Sharpening

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    sharpening = Sharpening(
      sigma: settings[Self.sigma], amount: settings[Self.amount], flatAmount: settings[Self.flatAmount],
      threshold: settings[Self.threshold], maxLighten: settings[Self.maxLighten],
      maxDarken: settings[Self.maxDarken])
  }

  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    let image = try item.image(in: context)
    guard image.bands >= 3 else {
      context.warn("not-sharpened", "the picture is a mask, which holds no light to sharpen; it passes unchanged")
      return .next(item.with(image: image))
    }
    return .next(
      item.with(image: try StageError.imaging { () throws(ImagingError) in try image.sharpened(sharpening) }))
  }
}
