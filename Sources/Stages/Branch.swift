import Imaging
import PipelineKit

/// Sends what was made so far down several tails.
public struct Branch: Stage {
  static let branches = Field<[StageBranch]>.branches(
    "branches", help: "the tails by name (letters, digits, `-` and `_`), each a chain that goes on from here")

  public static let spec = StageSpec(
    name: "branch",
    summary: "Sends the picture down several tails, each with stages of its own.",
    notes: [
      "What comes before is done once for all tails: one decode, one segmentation. A branch is the last stage of its "
        + "chain; tails may branch again. Their stages go by names such as `thumb/write` in messages and reports.",
      "A tail that fails fails the picture, and the error names it; the other tails are still gone down, and what they "
        + "write is kept. A picture whose time is over, or that crashes the program, gets no further. Of how the tails ended "
        + "the worst counts: failed, unknown, deferred, notAttempted, review, done. A picture is dropped only where "
        + "every tail drops it; else the tails that do are warned of.",
      "Straight after decode the picture is decoded whole, once, for all tails together. Where all of them are small, a "
        + "`resize` to the largest before the branch shrinks it while it loads. SVG and PDF are drawn for each tail at "
        + "its own size.",
    ],
    fields: [branches],
    examples: [
      #"{ "stage": "branch", "branches": { "thumb": [{ "stage": "resize", "width": 200 }, { "stage": "encode", "format": "webp" }, { "stage": "write", "to": "out/thumb/${item.stem}.${ext}" }], "large": [{ "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "out/large/${item.stem}.${ext}" }] } }"#
    ])

  private let isSeveral: Bool

  public static func plan(_ settings: Settings) -> StagePlan {
    var plan = StagePlan(accepts: .source)
    plan.frames = .together
    return plan
  }

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    isSeveral = settings[Self.branches].count > 1
  }

  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    guard isSeveral, case .encoded(let source) = item.picture, !source.header.format.needsPermission else {
      return .next(item)
    }
    // Each tail would decode it again.
    var decoded =
      source.isAnimation
      ? item.with(animation: try item.animation(in: context)) : item.with(image: try item.image(in: context))
    if let encoded = item.encoded { decoded = decoded.with(encoded: encoded) }
    return .next(decoded)
  }
}
