import Imaging
import JobSyntax
import PipelineKit

/// Changes the mask that an earlier stage made, or takes up another.
public struct Matte: Stage {
  static let use = Field<String?>.text(
    "use",
    help: "the name of a mask that an earlier `segment` stage kept, by `name` or `separate`; left out, the mask made "
      + "last, else the transparency")
  static let existingAlpha = Field<Bool>.boolean(
    "existingAlpha", default: false,
    help:
      "works on the transparency that pictures bring along, without a segment stage; a picture without any passes "
      + "unchanged, with a warning")
  static let output = Field<Segment.Output>.choice("output", default: .cutout, help: "what the picture becomes")

  public static let spec = StageSpec(
    name: "matte", summary: "Changes the mask that a picture was cut out with, or takes up another.",
    notes: [
      MatteFields.note,
      "The picture is cut out anew, from the photo as it was before: where the mask grew, the photo's own colours come "
        + "back. Of a picture that brought its transparency along, the colours stored under it show.",
    ],
    fields: [use, existingAlpha] + MatteFields.all + [output, Segment.decontaminate],
    examples: [
      #"{ "stage": "matte", "islands": "largest", "holes": 0.01 }"#,
      #"{ "stage": "matte", "shrink": 1, "feather": 0.8 }"#,
      #"{ "stage": "matte", "region": { "rectangle": { "y": "60%", "height": "40%" } } }"#,
      #"{ "stage": "matte", "threshold": { "level": 0.5, "softness": 0.4 }, "output": "mask" }"#,
    ])

  public static func plan(_ settings: Settings) -> StagePlan {
    let isMask = settings[output] == .mask
    var plan = StagePlan(
      accepts: .picture, produces: isMask ? .matte : [.alpha, .matte], removes: isMask ? [.alpha, .encoded] : .encoded)
    plan.uses = [.alpha, .matte]
    if !settings[existingAlpha] { plan.acceptsAny = [.alpha, .matte] }
    if let name = settings[use] { plan.usedMatte = (use.name, name) }
    // The mask, its copies while it changes, and the picture with its new alpha; changing colours takes a copy of the
    // photo, and what is worked out on small ones.
    let changesColours = !isMask && settings[Segment.decontaminate]
    plan.workingBytes = { width, height in width * height * (changesColours ? 12 : 9) + (changesColours ? 32 << 20 : 0)
    }
    return plan
  }

  public static func check(_ settings: Settings) -> [Diagnostic] {
    guard !settings.isSet(use), !settings.isSet(output), MatteFields.all.allSatisfy({ !settings.isSet($0) }) else {
      guard settings.isSet(use), settings[existingAlpha] else { return [] }
      return [
        settings.diagnostic(
          .error, "conflicting-keys", at: existingAlpha, "\"use\" names a mask, so transparency is not looked at",
          hint: "use one of them")
      ]
    }
    return [
      settings.diagnostic(
        .error, "missing-key", "stage \"matte\" changes nothing",
        hint: "give it \"use\", \"output\", or one of: " + MatteFields.all.map(\.name).joined(separator: ", "))
    ]
  }

  private let name: String?
  private let adjustment: MatteAdjustment
  private let output: Segment.Output
  private let decontaminates: Bool

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    name = settings[Self.use]
    adjustment = MatteAdjustment(settings)
    output = settings[Self.output]
    decontaminates = settings[Segment.decontaminate]
  }

  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    let picture = try item.image(in: context)
    guard let before = try matte(of: item, picture) else {
      context.warn("no-alpha", "the picture has no mask and no transparency: it passes unchanged")
      return .next(item.with(image: picture, matte: nil, original: item.original, mattes: item.mattes))
    }
    let matte = try adjustment.applied(to: before, in: context)
    return try StageError.imaging { () throws(ImagingError) in
      switch output {
      case .cutout:
        let cutout = try cutOut(item, picture, matte)
        return .next(item.with(image: cutout, matte: matte, original: item.original, mattes: item.mattes))
      case .mask:
        // The colours under a transparency that was brought along are all there is of a photo.
        var original = item.original
        if original == nil, picture.bands >= 3 { original = try picture.withoutAlpha() }
        return .next(item.with(image: matte, matte: matte, original: original, mattes: item.mattes))
      }
    }
  }

  /// What the changes begin with; nil where everything is opaque.
  private func matte(of item: Item, _ picture: Image) throws(StageError) -> Image? {
    if let name {
      guard let matte = item.mattes[name] else {
        throw StageError(
          "matte-missing", "the picture has no mask named \"\(name)\"",
          hint: item.mattes.isEmpty
            ? "no stage before gave any" : "there are: " + item.mattes.keys.sorted().joined(separator: ", "))
      }
      return matte
    }
    if let matte = item.matte { return matte }
    guard picture.hasAlpha else { return nil }
    return try StageError.imaging { () throws(ImagingError) in try picture.alphaBand() }
  }

  private func cutOut(_ item: Item, _ picture: Image, _ matte: Image) throws(ImagingError) -> Image {
    // Transparency that the photo itself brought along stays.
    if let original = item.original { return try original.cutOut(by: matte, cleaningColours: decontaminates) }
    guard picture.bands >= 3 else {
      throw ImagingError(
        .geometry, "the picture is a mask, and the photo it was made from is not at hand",
        hint: "use \"output\": \"mask\", or \"cutout\" in the segment stage")
    }
    return try picture.withAlpha(matte)
  }
}
