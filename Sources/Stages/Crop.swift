import Imaging
import JobSyntax
import PipelineKit

/// Takes a part of the picture.
public struct Crop: Stage {
  static let left = Field<Length?>.length(
    "left", pixels: 0...65_500, help: "what is cut off at the left, in pixels or percent of the width")
  static let top = Field<Length?>.length(
    "top", pixels: 0...65_500, help: "what is cut off above, in pixels or percent of the height")
  static let right = Field<Length?>.length(
    "right", pixels: 0...65_500, help: "what is cut off at the right, in pixels or percent of the width")
  static let bottom = Field<Length?>.length(
    "bottom", pixels: 0...65_500, help: "what is cut off below, in pixels or percent of the height")
  static let width = Field<Length?>.length(
    "width", pixels: 1...65_500, help: "width of the part, in pixels or percent of the width")
  static let height = Field<Length?>.length(
    "height", pixels: 1...65_500, help: "height of the part, in pixels or percent of the height")
  static let aspect = Field<AspectRatio?>.ratio(
    "aspect", help: "takes the largest part with this ratio of width to height, instead of the other measures")
  static let gravity = Field<Position>.gravity(
    byContent: true, help: "where the part lies, on an axis where only its size or its ratio is given")
  static let clip = Field<Bool>.boolean(
    "clip", default: false, help: "whether a part that is larger than the picture is cut to what there is")

  private static let measures: [Field<Length?>] = [left, top, right, bottom, width, height]

  public static let spec = StageSpec(
    name: "crop",
    summary: "Takes a part of the picture: by pixels, by percent, by ratio, or where its content is.",
    notes: [
      "Along each axis give one or two of start, end and size: `left` and `width` say where and how wide, `left` and "
        + "`right` how much goes on both sides, `width` alone leaves the place to `gravity`, and nothing keeps the axis "
        + "whole.",
      "Percentages and ratios are rounded to whole pixels, half up; a size is at least 1, and percentages that make up "
        + "100 % together fit. What is left over around a "
        + "centred part is halved, and an odd pixel goes to the right or below. A part that does not lie within the "
        + "picture fails it with `geometry`, unless `clip` is set.",
      "Frames of an animation are cropped alike; with `attention` and `entropy` the first decides. After segment, the "
        + "mask and the photo it was cut from are cropped together with the picture.",
    ],
    fields: [left, top, right, bottom, width, height, aspect, gravity, clip],
    examples: [
      #"{ "stage": "crop", "left": 120, "top": 80, "width": 800, "height": 600 }"#,
      #"{ "stage": "crop", "left": "5%", "right": "5%" }"#,
      #"{ "stage": "crop", "aspect": "16:9", "gravity": "attention" }"#,
    ])

  public static func plan(_ settings: Settings) -> StagePlan {
    let request = request(settings)
    var plan = StagePlan(accepts: .picture, produces: .picture, removes: .encoded)
    plan.movesPixels = true
    // What cannot be cropped fails when the item comes; its size does not matter then.
    plan.resultSize = { width, height in (try? request.size(for: width, height)) ?? (width, height) }
    let isByContent = request.position == .attention || request.position == .entropy
    // What is chosen by content is chosen once: a crop that jumps from frame to frame is none.
    if isByContent { plan.frames = .together }
    plan.workingBytes = { width, height in width * height * (isByContent ? 8 : 4) }
    return plan
  }

  public static func check(_ settings: Settings) -> [Diagnostic] {
    let given = measures.filter { settings.isSet($0) }
    guard !given.isEmpty || settings.isSet(aspect) else {
      return [
        settings.diagnostic(
          .error, "missing-key", "stage \"crop\" needs to know which part to take",
          hint: "give \"aspect\", or some of: \(measures.map(\.name).joined(separator: ", "))")
      ]
    }
    if settings.isSet(aspect), let other = given.first {
      return [
        settings.diagnostic(
          .error, "conflicting-keys", at: other,
          "\"aspect\" takes the largest part of its ratio: \"\(other.name)\" does "
            + "not go with it", hint: "use two \"crop\" stages, one after the other")
      ]
    }
    var findings: [Diagnostic] = []
    for axis in [[left, right, width], [top, bottom, height]] where axis.allSatisfy({ settings.isSet($0) }) {
      let names = axis.map { "\"\($0.name)\"" }.joined(separator: ", ")
      findings.append(
        settings.diagnostic(
          .error, "conflicting-keys", at: axis[2], "\(names) together say more than one thing",
          hint: "leave one of them out"))
    }
    for axis in [[left, right, width], [top, bottom, height]] {
      findings += checkShares(settings, axis[0], axis[1], axis[2])
    }
    let fixed = [left, top, right, bottom].filter { settings.isSet($0) }
    let isByContent = settings[gravity] == .attention || settings[gravity] == .entropy
    if isByContent, let first = fixed.first {
      findings.append(
        settings.diagnostic(
          .error, "not-applicable", at: gravity,
          "gravity \"\(settings[gravity].rawValue)\" chooses the place itself: \"\(first.name)\" does not go with it"))
    } else if settings.isSet(gravity), !settings.isSet(aspect),
      !isFree(settings, left, right, width), !isFree(settings, top, bottom, height)
    {
      findings.append(
        settings.diagnostic(
          .error, "not-applicable", at: gravity, "\"gravity\" has no meaning here: the place is given already",
          hint: "it goes with \"aspect\", or with \"width\" or \"height\" alone"))
    }
    return findings
  }

  /// Finds percentages that suit no picture, however large.
  private static func checkShares(
    _ settings: Settings, _ start: Field<Length?>, _ end: Field<Length?>, _ size: Field<Length?>
  ) -> [Diagnostic] {
    let given = [start, end, size].filter { settings.isSet($0) }
    // Of a side of a million pixels a pixel is the last of four decimals of a percentage.
    let side = 1_000_000
    let parts = given.map { settings[$0]?.pixels(of: side) ?? 0 }
    let areShares = given.allSatisfy { settings[$0]?.isShare == true }
    guard let last = given.last, given.count < 3, areShares else { return [] }
    let sum = parts.reduce(0, +)
    // The size comes last.
    let cut = settings.isSet(size) ? sum - (parts.last ?? 0) : sum
    let leavesNothing = cut >= side
    let isTooLarge = settings.isSet(size) && sum > side && !settings[clip]
    guard leavesNothing || isTooLarge else { return [] }
    let names = given.map { "\"\($0.name)\"" }.joined(separator: " and ")
    return [
      settings.diagnostic(
        .error, "out-of-range", at: last,
        leavesNothing
          ? "\(names) leave\(given.count == 1 ? "s" : "") nothing of any picture"
          : "\(names) reach\(given.count == 1 ? "es" : "") beyond any picture",
        hint: leavesNothing ? nil : "\"clip\": true takes what there is")
    ]
  }

  /// Whether only the size of an axis is given.
  private static func isFree(
    _ settings: Settings, _ start: Field<Length?>, _ end: Field<Length?>, _ size: Field<Length?>
  ) -> Bool { settings.isSet(size) && !settings.isSet(start) && !settings.isSet(end) }

  private static func request(_ settings: Settings) -> CropRequest {
    CropRequest(
      left: settings[left], top: settings[top], right: settings[right], bottom: settings[bottom],
      width: settings[width], height: settings[height], aspect: settings[aspect], position: settings[gravity],
      clip: settings[clip])
  }

  private let request: CropRequest

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    request = Self.request(settings)
  }

  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    let result = try item.changingFrames(in: context) { (animation) throws(StageError) in
      guard let first = animation.frames.first?.image else { return nil }
      let part = try StageError.imaging { () throws(ImagingError) in try request.rectangle(of: first) }
      guard (part.width, part.height) != (first.width, first.height) else { return nil }
      return { (frame) throws(ImagingError) in
        try frame.changed { (image) throws(ImagingError) in try image.cropped(to: part) }
      }
    }
    return .next(result)
  }
}
