import PipelineKit

/// Drops items that are not wanted.
public struct Filter: Stage {
  static let condition = Field<Condition>.condition("if", help: "a condition; pictures for which it holds stay")
  static let reason = Field<String?>.text(
    "reason", help: "why the others are dropped, for the report; made from the condition when absent")

  public static let spec = StageSpec(
    name: "filter",
    summary: "Drops pictures for which a condition does not hold.",
    notes: [
      "A dropped picture has not failed: it ends with the status `dropped` and the reason, and no stage after works on it.",
      "Where the condition looks only at `item.…` and nothing was written before, it is decided when the run is "
        + "planned: `pipeline plan` shows it, and the picture is not even opened.",
    ],
    fields: [condition, reason],
    examples: [
      #"{ "stage": "filter", "if": { "image.width": { "gte": 800 } }, "reason": "too small for the shop" }"#,
      #"{ "stage": "filter", "if": { "any": [{ "item.ext": { "in": ["jpg", "jpeg"] } }, { "item.stem": { "matches": "*-final" } }] } }"#,
      #"{ "stage": "filter", "if": { "image.format": { "ne": "gif" }, "not": { "image.frames": { "gt": 1 } } } }"#,
    ])

  private let filter: ItemFilter

  public static func plan(_ settings: Settings) -> StagePlan {
    let filter = filter(settings)
    var plan = StagePlan(accepts: .source)
    plan.frames = .together
    plan.filter = filter
    return plan
  }

  private static func filter(_ settings: Settings) -> ItemFilter {
    ItemFilter(settings[condition], reason: settings[reason])
  }

  public init(_ settings: Settings, resources: StageResources) throws(StageError) { filter = Self.filter(settings) }

  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    try filter.condition.holds(for: item, in: context) ? .next(item) : .dropped(reason: filter.text)
  }
}
