import Imaging
import JobSyntax
import PipelineKit

/// Stands a cut-out subject on a canvas.
public struct Frame: Stage {
  static let canvasWidth = Field<Int>.integer(
    "width", in: 1...65_500, default: nil, unit: "pixels", help: "width of the canvas")
  static let canvasHeight = Field<Int>.integer(
    "height", in: 1...65_500, default: nil, unit: "pixels", help: "height of the canvas")
  static let canvas = Field<FrameCanvas>(
    "canvas",
    type: .oneOf([.integer(1...65_500), .text(.ratio), .object(ObjectShape([canvasWidth, canvasHeight]))]),
    absent: AspectRatio("1:1").map { .ratio($0) }, defaultText: "1:1",
    help: "what the subject stands on: both sides in pixels as one number, a `width` and a `height`, or a ratio of "
      + "width to height, whose canvas is as large as the subject needs it, which is not scaled then"
  ) { node, file in
    if let text = node.stringValue { return AspectRatio(text).map { .ratio($0) } }
    if let side = node.numberValue?.integer {
      return (1...65_500).contains(side) ? .sides(width: side, height: side) : nil
    }
    let sides = Settings(reading: node, shape: ObjectShape([canvasWidth, canvasHeight]), file: file)
    guard sides.hasValue(for: canvasWidth), sides.hasValue(for: canvasHeight) else { return nil }
    return .sides(width: sides[canvasWidth], height: sides[canvasHeight])
  }
  static let fill = Field<Double>.number(
    "fill", in: 0.01...1, default: 0.85,
    help: "the share of the canvas that the subject takes: of the width or of the height, whichever it fills more")
  static let margin = Field<Length>.length(
    "margin", pixels: 0...20_000, default: 0,
    help: "what stays free between the subject and each edge at least, in pixels or percent of the canvas's shorter "
      + "side")

  static let alignX = Field<AlignX>.choice("x", default: .centre, help: "where it stands from left to right")
  static let alignY = Field<AlignY>.choice("y", default: .centre, help: "where it stands from top to bottom")
  static let align = Field<Alignment>(
    "align",
    type: .oneOf([
      .choice(Alignment.names.map { Choice($0, $0 == "optical" ? "its centre of mass is in the middle" : "") }),
      .object(ObjectShape([alignX, alignY])),
    ]), absent: Alignment(), defaultText: "centre",
    help:
      "where the subject stands: on a side, up to the margin, in a corner, or in the middle; `x` and `y` say it for "
      + "each axis"
  ) { node, file in
    if let text = node.stringValue { return Alignment(text) }
    guard node.objectValue != nil else { return nil }
    let axes = Settings(reading: node, shape: ObjectShape([alignX, alignY]), file: file)
    return Alignment(across: axes[alignX].alignment, down: axes[alignY].alignment)
  }

  static let enlarge = Field<Bool>.boolean(
    "enlarge", default: false,
    help: "whether a small subject is scaled up; where it is not, it stands smaller than `fill` on a canvas of fixed "
      + "sides, with the warning `subject-small`")
  static let threshold = Field<Int>.integer(
    "threshold", in: 0...254, default: 64, unit: "levels",
    help: "how opaque a pixel may be and still not count as subject when its box is looked for; masks are often faint, "
      + "not empty, where the background is busy")
  static let specks = Field<Double>.number(
    "specks", in: 0...1, default: 0.02,
    help: "parts of the mask that are smaller than this share of its largest part do not count either")
  static let linear = Field<Bool>.boolean(
    "linear", default: false,
    help: "whether light is added up when the subject is scaled, instead of the numbers that stand for it: fine bright "
      + "detail keeps its brightness; slower")

  static let offset = Field<Length>.length(
    "offset", pixels: 0...20_000, default: "3%",
    help: "how far it lies from the subject, in pixels or percent of the subject's longer side")
  static let angle = Field<Double>.number(
    "angle", in: -360...360, default: 180, unit: "degrees",
    help: "where it lies, clockwise: 0 above the subject, 90 at the right, 180 below")
  static let dropBlur = Field<Length>.length(
    "blur", pixels: 0...1000, default: "3%",
    help: "the radius of the blur (sigma of the Gaussian), in pixels or percent of the subject's longer side, at most "
      + "1000 pixels")
  static let dropOpacity = Field<Double>.number("opacity", in: 0.01...1, default: 0.3, help: "how much it covers")
  static let contactBlur = Field<Length>.length(
    "blur", pixels: 1...1000, default: "2%",
    help: "how far it spreads, in pixels or percent of the subject's longer side")
  static let contactOpacity = Field<Double>.number(
    "opacity", in: 0.01...1, default: 0.6, help: "how much it covers where it is darkest")
  static let color = Field<RGBA>.color("color", default: "black", help: "the colour of the shadow")
  static let drop = Field<Settings?>.optionalObject(
    "drop", ObjectShape([offset, angle, dropBlur, dropOpacity, color]),
    help: "as on a wall behind the subject: its outline, moved and blurred")
  static let contact = Field<Settings?>.optionalObject(
    "contact", ObjectShape([contactBlur, contactOpacity, color]),
    help: "as on the ground that the subject stands on: dark below its lowest parts, and soft around them")
  static let shadow = Field<Settings?>.optionalObject(
    "shadow", ObjectShape([drop, contact], atLeastOne: ["drop", "contact"]),
    help: "the shadow that the subject casts: one of these or both; `{ \"contact\": {} }` takes the defaults")
  static let existingAlpha = Field<Bool>.boolean(
    "existingAlpha", default: false,
    help: "frames pictures by the transparency that they bring along, without a segment stage; a picture without any "
      + "counts as subject as a whole, with a warning")

  public static let spec = StageSpec(
    name: "frame",
    summary: "Stands the cut-out subject on a canvas: as large as you say, where you say, with a shadow if you like.",
    notes: [
      "The subject's box holds all pixels that are more opaque than `threshold`, without `specks`. It is scaled so that "
        + "it takes `fill` of the canvas on the axis where it takes more, to the pixel, or less where `margin` asks for "
        + "more room. What lies outside of the box, such as hair, comes along as far as the canvas reaches. A mask "
        + "without a subject fails the item with `nothing-found`.",
      "The result is transparent where neither the subject nor its shadow is: `composite` after it gives its background "
        + "there exactly, such as `#ffffff`. Shadows end at the canvas's edge, and may lie on the margin.",
      "The mask goes along, without the shadow, and so does the photo that the subject was cut from, whose edge goes on "
        + "where it does not reach. A picture that has a mask but no transparency is cut out by the mask; a mask as "
        + "picture is framed itself, and takes no shadow.",
      "Frames of an animation are framed alike, by the box that holds what any of them shows.",
    ],
    fields: [
      canvas, fill, margin, align, enlarge, threshold, specks, Resize.kernel, linear, shadow, existingAlpha,
    ],
    examples: [
      #"{ "stage": "frame", "canvas": 2000, "shadow": { "contact": {} } }"#,
      #"{ "stage": "frame", "canvas": "4:5", "fill": 0.8, "align": { "x": "optical", "y": "bottom" }, "margin": "8%" }"#,
      ##"""
      { "stage": "frame", "canvas": { "width": 1600, "height": 1200 }, "enlarge": true, "shadow": { "drop": { "angle": 135, "color": "#202840" } } }
      """##,
    ])

  private static func request(_ settings: Settings) -> FrameRequest {
    FrameRequest(
      canvas: settings[canvas], fill: settings[fill], margin: settings[margin], across: settings[align].across,
      down: settings[align].down, enlarge: settings[enlarge])
  }

  public static func plan(_ settings: Settings) -> StagePlan {
    let request = request(settings)
    var plan = StagePlan(accepts: .picture, produces: .picture, removes: .encoded)
    plan.movesPixels = true
    plan.uses = [.alpha, .matte]
    if settings[existingAlpha] { plan.produces.insert(.alpha) } else { plan.acceptsAny = [.alpha, .matte] }
    // A mask takes no shadow, so what has one is a cut-out.
    let shadow = settings[shadow]
    if shadow != nil { plan.produces.insert(.alpha) }
    // At most: how large a canvas is that follows its subject depends on the picture, and is greatest where all of it is
    // subject.
    plan.resultSize = { width, height in
      let all = Subject(
        box: Rectangle(x: 0, y: 0, width: width, height: height), mass: 1, centreX: 0, centreY: 0)
      guard let plan = try? request.plan(for: all, in: width, height) else { return (width, height) }
      return (plan.width, plan.height)
    }
    if case .sides(let width, let height) = request.canvas { plan.leastSide = max(width, height) }
    // The result with its mask and photo; a shadow, its light, and the two laid over each other. The search for the
    // subject looks at no more than a million cells.
    let perPixel = shadow == nil ? 8 : 24
    plan.workingBytes = { width, height in width * height * perPixel + 24 << 20 }
    plan.frames = .together
    return plan
  }

  public static func check(_ settings: Settings) -> [Diagnostic] {
    var findings: [Diagnostic] = []
    switch settings[canvas] {
    case .ratio:
      for field in [enlarge, Resize.kernel, linear] as [any FieldDeclaration] where settings.isSet(field) {
        findings.append(
          settings.diagnostic(
            .error, "not-applicable", at: field,
            "\"\(field.name)\" has no meaning here: a canvas of a ratio follows the subject, which is not scaled",
            hint: "give \"canvas\" in pixels"))
      }
      // Of a side of a million pixels a pixel is the last of four decimals of a percentage.
      if settings[margin].isShare, 2 * settings[margin].pixels(of: 1_000_000) >= 1_000_000 {
        findings.append(tooWide(settings))
      }
    case .sides(let width, let height):
      let side = min(width, height)
      if 2 * settings[margin].pixels(of: side) >= side { findings.append(tooWide(settings)) }
    }
    for shadow in [settings[shadow]?[drop], settings[shadow]?[contact]].compactMap(\.self) where shadow[color].a == 0 {
      findings.append(
        shadow.diagnostic(.error, "wrong-value", at: color, "a shadow in \"transparent\" shows nothing"))
    }
    return findings
  }

  private static func tooWide(_ settings: Settings) -> Diagnostic {
    settings.diagnostic(
      .error, "out-of-range", at: margin, "\"margin\" on both sides leaves nothing of the canvas",
      hint: "it is what stays free on each side: less than half of the canvas's shorter side")
  }

  private let request: FrameRequest
  private let threshold: Int
  private let specks: Double
  private let kernel: Kernel
  private let linear: Bool
  private let drop: DropShadow?
  private let contact: ContactShadow?

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    request = Self.request(settings)
    threshold = settings[Self.threshold]
    specks = settings[Self.specks]
    kernel = settings[Resize.kernel]
    linear = settings[Self.linear]
    let shadow = settings[Self.shadow]
    drop = shadow?[Self.drop].map { drop in
      DropShadow(
        offset: drop[Self.offset], angle: drop[Self.angle], blur: drop[Self.dropBlur],
        opacity: drop[Self.dropOpacity], color: drop[Self.color])
    }
    contact = shadow?[Self.contact].map { contact in
      ContactShadow(
        blur: contact[Self.contactBlur], opacity: contact[Self.contactOpacity], color: contact[Self.color])
    }
  }

  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    let result = try item.changingFrames(in: context) { (animation) throws(StageError) in
      guard let first = animation.frames.first else { return nil }
      if drop != nil || contact != nil, animation.frames.contains(where: { $0.image.bands < 3 }) {
        throw StageError(
          "geometry", "the picture is a mask, which casts no shadow", kind: .job,
          hint: "leave \"shadow\" out, or use \"output\": \"cutout\" in the segment stage")
      }
      if first.image.bands >= 3, !first.image.hasAlpha, first.matte == nil {
        context.warn("no-alpha", "the picture has no transparency: all of it counts as subject")
      }
      let plan = try StageError.imaging { () throws(ImagingError) in
        try subject(of: animation).map { (subject) throws(ImagingError) in
          try request.plan(for: subject, in: first.image.width, first.image.height)
        }
      }
      guard let plan else {
        throw StageError(
          "nothing-found", "there is no subject to frame: no pixel is more opaque than \(threshold) of 255",
          hint: "look at the mask, with \"output\": \"mask\" in the segment stage"
            + (threshold > 0 ? "; a smaller \"threshold\" would take fainter ones" : ""))
      }
      if plan.isTooSmall { warn(plan, context) }
      return { (frame) throws(ImagingError) in
        var frame = frame
        frame.image = try Self.cutout(frame)
        return try frame.changed(
          picture: { (image) throws(ImagingError) in
            try shadowed(image.framed(plan, kernel: kernel, linear: linear), plan.subject)
          },
          matte: { (image) throws(ImagingError) in try image.framed(plan, kernel: kernel) },
          original: { (image) throws(ImagingError) in try image.framed(plan, .edge, kernel: kernel, linear: linear) })
      }
    }
    return .next(result)
  }

  /// The subject of all frames together; nil where none has one.
  private func subject(of animation: ItemFrames) throws(ImagingError) -> Subject? {
    var whole: Subject?
    for frame in animation.frames {
      let isByMatte = frame.image.bands >= 3 && !frame.image.hasAlpha
      let seen = isByMatte ? frame.matte ?? frame.image : frame.image
      guard let subject = try seen.subject(threshold: threshold, speck: specks) else { continue }
      whole = whole?.union(subject) ?? subject
    }
    return whole
  }

  /// The picture with alpha, unless it is a mask.
  private static func cutout(_ frame: ItemFrames.Frame) throws(ImagingError) -> Image {
    guard frame.image.bands >= 3, !frame.image.hasAlpha else { return frame.image }
    guard let matte = frame.matte else { return try frame.image.fadedAlpha(1) }
    return try frame.image.multipliedAlpha(by: matte)
  }

  private func shadowed(_ picture: Image, _ box: Rectangle) throws(ImagingError) -> Image {
    guard drop != nil || contact != nil else { return picture }
    // Read for the shadow and again for what is laid over it.
    let picture = try picture.materialised()
    var result = picture
    if let layer = try contact.flatMap({ (contact) throws(ImagingError) in try picture.cast(contact, of: box) }) {
      result = try result.composited(over: layer)
    }
    if let layer = try drop.flatMap({ (drop) throws(ImagingError) in try picture.cast(drop, of: box) }) {
      result = try result.composited(over: layer)
    }
    return result
  }

  private func warn(_ plan: FramePlan, _ context: StageContext) {
    let across = Double(plan.subject.width) / Double(plan.width)
    let down = Double(plan.subject.height) / Double(plan.height)
    let percent = Int((100 * max(across, down)).rounded())
    context.warn(
      "subject-small",
      "the subject has only \(plan.subject.width)×\(plan.subject.height) pixels and takes \(percent) % of the canvas's "
        + "\(across >= down ? "width" : "height"); \"enlarge\": true would scale it up")
  }
}

extension Frame {
  /// Where the subject stands on both axes.
  struct Alignment: Sendable, Hashable {
    var across = FrameAlignment.centre
    var down = FrameAlignment.centre

    /// The sides and corners, the middle, and `optical`.
    static let names =
      Position.allCases.filter { $0 != .entropy && $0 != .attention }.map(\.rawValue) + ["optical"]

    init() {}
    init(across: FrameAlignment, down: FrameAlignment) { (self.across, self.down) = (across, down) }

    init?(_ name: String) {
      if name == "optical" {
        self.init(across: .optical, down: .optical)
        return
      }
      guard let position = Position(rawValue: name), Self.names.contains(name) else { return nil }
      // Of two empty pixels nothing is left before what stands at the start, one before what is centred.
      let (x, y) = position.offset(across: 2, down: 2)
      let places = [FrameAlignment.start, .centre, .end]
      self.init(across: places[x], down: places[y])
    }
  }

  enum AlignX: String, FieldChoice {
    case left, centre, right, optical

    var alignment: FrameAlignment {
      switch self {
      case .left: .start
      case .centre: .centre
      case .right: .end
      case .optical: .optical
      }
    }
    var help: String { self == .optical ? "its centre of mass is in the middle" : "" }
  }

  enum AlignY: String, FieldChoice {
    case top, centre, bottom, optical

    var alignment: FrameAlignment {
      switch self {
      case .top: .start
      case .centre: .centre
      case .bottom: .end
      case .optical: .optical
      }
    }
    var help: String { self == .optical ? "its centre of mass is in the middle" : "" }
  }
}
