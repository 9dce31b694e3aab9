import Imaging
import JobSyntax
import PipelineKit

/// Scales pictures, and crops or pads them where the fit asks for it.
public struct Resize: Stage {
  static let width = Field<Int?>.integer("width", in: 1...65_500, unit: "pixels", help: "width of the result")
  static let height = Field<Int?>.integer("height", in: 1...65_500, unit: "pixels", help: "height of the result")
  static let fit = Field<Fit>.choice(
    "fit", default: .inside, help: "how the picture fills the sides; with one side given, the other follows the ratio")
  static let position = Field<Position>.choice(
    "position", default: .centre, when: FieldCondition("fit", in: ["cover", "contain"]),
    help: "which part stays when `cover` crops, or where the picture stands when `contain` pads")
  static let background = Field<RGBA>.color(
    "background", default: "white", when: FieldCondition("fit", in: ["contain"]),
    help: "what `contain` fills the rest with; `transparent` adds transparency")
  static let enlarge = Field<Bool>.boolean(
    "enlarge", default: false,
    help:
      "whether small pictures are scaled up; where they are not, a result may be smaller than asked")
  static let kernel = Field<Kernel>.choice("kernel", default: .lanczos3, help: "the filter that weighs pixels")
  static let sharpen = Field<Double?>.number(
    "sharpen", in: 0.01...10, unit: "pixels",
    help: "sharpens lightness after scaling, by an unsharp mask of this radius (sigma); 0.5 suits web sizes")
  static let linear = Field<Bool>.boolean(
    "linear", default: false,
    help:
      "whether light is added up instead of the numbers that stand for it: fine bright detail keeps its brightness; "
      + "slower, since nothing shrinks while it loads")

  public static let spec = StageSpec(
    name: "resize",
    summary: "Scales a picture to the sides you ask for, and crops or pads it where the fit says so.",
    notes: [
      "The sides asked for are met to the pixel; a free side is rounded and never 0. Colours are weighed by "
        + "transparency, so soft edges get no dark fringe.",
      "Straight after decode the picture shrinks while it loads, which is several times faster than decoding it whole.",
      "After segment, the mask and the photo it was cut from are scaled and cropped together with the picture.",
    ],
    fields: [width, height, fit, position, background, enlarge, kernel, sharpen, linear],
    examples: [
      #"{ "stage": "resize", "width": 1600, "height": 1600 }"#,
      #"{ "stage": "resize", "width": 400, "height": 400, "fit": "cover", "position": "attention" }"#,
      ##"{ "stage": "resize", "width": 1080, "height": 1350, "fit": "contain", "background": "#f4f4f4" }"##,
    ])

  private let request: ResizeRequest

  public static func plan(_ settings: Settings) -> StagePlan {
    let request = Self.request(settings)
    var plan = StagePlan(accepts: .picture, produces: .picture, removes: .encoded)
    plan.movesPixels = true
    plan.resultSize = { width, height in
      // What cannot be planned fails when the item comes; its size does not matter then.
      guard let plan = try? request.plan(for: width, height) else { return (width, height) }
      return (plan.width, plan.height)
    }
    plan.leastSide = Self.leastSide(request)
    plan.shrinksOnLoad = true
    // Rows in floating point on the way, and with sharpen a copy in Lab.
    let perPixel = request.sharpen == nil ? request.linear ? 16 : 4 : 16
    plan.workingBytes = { width, height in width * height * perPixel }
    // What is chosen by content is chosen once: a crop that jumps from frame to frame is none.
    if request.position == .entropy || request.position == .attention { plan.frames = .together }
    return plan
  }

  public static func check(_ settings: Settings) -> [Diagnostic] {
    var findings: [Diagnostic] = []
    let fit = settings[Self.fit]
    if !settings.isSet(width), !settings.isSet(height) {
      findings.append(
        settings.diagnostic(
          .error, "missing-key", "stage \"resize\" needs \"width\", \"height\", or both",
          hint: "with one of them the other follows the ratio"))
    } else if fit == .cover || fit == .contain || fit == .fill {
      for (side, name) in [(width, "width"), (height, "height")] where !settings.isSet(side) {
        findings.append(
          settings.diagnostic(
            .error, "missing-key", at: Self.fit, "fit \"\(fit.rawValue)\" needs both sides: \"\(name)\" is missing",
            hint: "add \"\(name)\", or use fit \"inside\""))
      }
    }
    let position = settings[Self.position]
    if fit == .contain, position == .entropy || position == .attention {
      findings.append(
        settings.diagnostic(
          .error, "not-applicable", at: Self.position,
          "position \"\(position.rawValue)\" chooses a crop; fit \"contain\" does not crop",
          hint: "use fit \"cover\", or a side or corner as position"))
    }
    return findings
  }

  private static func request(_ settings: Settings) -> ResizeRequest {
    ResizeRequest(
      width: settings[width], height: settings[height], fit: settings[fit], position: settings[position],
      background: settings[background], enlarge: settings[enlarge], kernel: settings[kernel],
      sharpen: settings[sharpen],
      linear: settings[linear])
  }

  /// The longer side that every picture has at least after the resize; nil where small pictures stay small. From the
  /// rules of `ResizeRequest.plan`.
  private static func leastSide(_ request: ResizeRequest) -> Int? {
    guard let width = request.width, let height = request.height else {
      return request.enlarge ? request.width ?? request.height : nil
    }
    switch request.fit {
    case .contain: return max(width, height)
    case .cover, .fill, .outside: return request.enlarge ? max(width, height) : nil
    // One of the two is met, and which one depends on the picture.
    case .inside: return request.enlarge ? min(width, height) : nil
    }
  }

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    request = Self.request(settings)
  }

  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    guard let size = item.size else {
      throw StageError("internal-fault", "resize got an item without a picture", kind: .job)
    }
    if item.isAnimated { return .next(try resizeTogether(item, size, context)) }
    do throws(ImagingError) {
      let plan = try request.plan(for: size.width, size.height)
      if case .encoded(let source) = item.picture {
        let image = try source.pixels(resizedTo: plan)
        context.report(warningsOf: source)
        return .next(item.with(image: image, matte: nil, original: nil))
      }
      if plan.isIdentity { return .next(item) }
      return .next(try Self.resize(item, plan))
    } catch {
      throw StageError(error)
    }
  }

  /// All frames of an animation, cropped where its first is.
  private func resizeTogether(
    _ item: Item, _ size: (width: Int, height: Int), _ context: StageContext
  ) throws(StageError) -> Item {
    var animation = try item.animation(in: context)
    return try StageError.imaging { () throws(ImagingError) in
      var plan = try request.plan(for: size.width, size.height)
      if case .smartCrop(let width, let height, _) = plan.framing, let first = animation.frames.first {
        plan.framing = .crop(try Self.chosenCrop(of: first.image, plan, width: width, height: height))
      }
      for index in animation.frames.indices {
        let frame = animation.frames[index]
        let bare = Item(identity: item.identity).with(frame: frame)
        let done = try Self.resize(bare, plan)
        animation.frames[index] = .init(
          image: try done.image(), matte: done.matte, original: done.original, mattes: done.mattes)
      }
      return item.with(animation: animation)
    }
  }

  /// Resizes what is decoded already, with the mask and the original that lie over it pixel by pixel.
  private static func resize(_ item: Item, _ plan: ResizePlan) throws(ImagingError) -> Item {
    let image = try item.image()
    guard item.matte != nil || item.original != nil || !item.mattes.isEmpty else {
      return item.with(image: try image.resized(plan).materialised())
    }
    var plan = plan
    if case .smartCrop(let width, let height, _) = plan.framing {
      plan.framing = .crop(try chosenCrop(of: image, plan, width: width, height: height))
    }
    let resized = try image.resized(plan).materialised()
    let original = try item.original?.resized(plan).materialised()
    var plain = plan
    // A mask holds shares, not light: it is not sharpened, and there is no subject in what is padded.
    plain.sharpen = nil
    if case .pad(var pad) = plain.framing {
      pad.background = .black
      plain.framing = .pad(pad)
    }
    let matte = try item.matte?.resized(plain).materialised()
    var mattes = item.mattes
    for (name, matte) in mattes { mattes[name] = try matte.resized(plain).materialised() }
    return item.with(image: resized, matte: matte, original: original, mattes: mattes)
  }

  /// Where libvips crops when it chooses by content, so that mask and original can be cropped alike.
  private static func chosenCrop(
    of image: Image, _ plan: ResizePlan, width: Int, height: Int
  ) throws(ImagingError) -> ResizePlan.Crop {
    guard case .smartCrop(_, _, let position) = plan.framing else {
      return .init(x: 0, y: 0, width: width, height: height)
    }
    var scaling = plan
    scaling.framing = .none
    scaling.sharpen = nil
    return try image.resized(scaling).interestingPart(width: width, height: height, by: position)
  }
}

extension Fit: FieldChoice {
  public var help: String {
    switch self {
    case .inside: "as large as fits within the sides; the ratio stays"
    case .outside: "as small as covers the sides; the ratio stays, one side may be longer than asked"
    case .cover: "covers the sides, and what sticks out is cropped"
    case .contain: "fits within the sides, and the rest is filled with the background"
    case .fill: "both sides as asked; the ratio may change"
    }
  }
}

extension Position: FieldChoice {
  public var help: String {
    switch self {
    case .entropy: "the crop with the most detail; with cover only"
    case .attention: "the crop most likely to draw the eye; with cover only"
    default: ""
    }
  }
}

extension Kernel: FieldChoice {
  public var help: String {
    switch self {
    case .lanczos3: "sharp, the usual choice for photos"
    case .lanczos2: "a little softer, fewer halos at hard edges"
    case .mitchell: "soft, no halos"
    case .cubic: "between mitchell and lanczos2"
    case .linear: "soft and fast"
    case .nearest: "one source pixel for each: pixel art and masks"
    }
  }
}
