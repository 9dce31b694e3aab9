import Imaging
import JobSyntax
import PipelineKit

/// Lays cut-out pictures on a background.
public struct Composite: Stage {
  static let background = Field<Settings>.object(
    "background", BackgroundKinds.shape, help: "what shows where the subject is not")
  static let canvas = Field<CompositeCanvas>.choice(
    "canvas", default: .picture, help: "which sides the result has")
  static let existingAlpha = Field<Bool>.boolean(
    "existingAlpha", default: false,
    help:
      "composes by the transparency that pictures bring along, without a segment stage; a picture without any passes "
      + "unchanged, with a warning, where nothing of the background would show")

  public static let spec = StageSpec(
    name: "composite",
    summary: "Lays the cut-out subject on a new background: a colour, a gradient, a pattern, a picture, its own photo "
      + "blurred, greyed or dimmed, or layers of these.",
    notes: [
      "Where the subject is opaque its pixels come through exactly, and where it is transparent the background does.",
      "The end colours of a gradient are exact, and what lies between is dithered by a fixed pattern. Lossy encoders "
        + "(JPEG, WebP and AVIF at low quality) may undo the dither and show bands; PNG and lossless WebP keep it.",
      "Colours are blended as sRGB values, as browsers and image editors do. The picture's metadata stays.",
      "`subject` places the whole picture, with what is transparent around the subject. To place the subject by its own "
        + "outline, `trim` before. The mask moves along, and so does the photo the subject was cut from, whose edge "
        + "goes on where the canvas is larger.",
      "Blend modes have the names of libvips and the formulas of the W3C's Compositing and Blending, so that soft edges "
        + "blend as browsers do it.",
    ],
    fields: [background, canvas, SubjectLook.subject, existingAlpha],
    examples: [
      ##"{ "stage": "composite", "background": { "color": "#ffffff" } }"##,
      ##"{ "stage": "composite", "background": { "gradient": { "from": "#dfe9f3", "to": "#ffffff", "angle": 90 } } }"##,
      ##"{ "stage": "composite", "background": { "original": { "blur": 12, "desaturate": 1, "dim": 0.3 } } }"##,
      ##"{ "stage": "composite", "background": { "pattern": { "colors": ["#ffffff", "#e6e6e6"], "size": "2%" } } }"##,
      ##"""
      { "stage": "composite", "canvas": "background", "subject": { "position": "bottom", "scale": 0.8 },
        "background": { "layers": [
          { "image": { "path": "shelf.jpg" } },
          { "gradient": { "from": "#ffffff", "to": "#d0d0d0" }, "blend": "multiply", "opacity": 0.6 } ] } }
      """##,
    ])

  public static func plan(_ settings: Settings) -> StagePlan {
    let background = settings[background]
    let look = SubjectLook(settings[SubjectLook.subject])
    let traits = BackgroundKinds.of(background)?.traits(background) ?? BackgroundTraits()
    var plan = StagePlan(accepts: .picture, produces: .picture, removes: [.alpha, .encoded])
    plan.uses = [.alpha, .matte]
    if !settings[existingAlpha] { plan.acceptsAny = [.alpha, .matte] }
    if !look.blend.isOpaque(above: false, below: traits.isOpaque) { plan.produces.insert(.alpha) }
    plan.helperFiles = traits.helperFiles
    // The result and the background; a blend mode makes a copy of the subject and of the result.
    let perPixel = 4 + traits.bytesPerPixel + (look.blend == .over ? 0 : 8)
    plan.workingBytes = { width, height in width * height * perPixel }
    if settings[canvas] == .background {
      // No file is read while planning, so memory is set aside for a large scene: 4,096 × 3,072 pixels.
      plan.resultSize = { width, height in (max(width, 4_096), max(height, 3_072)) }
    }
    return plan
  }

  public static func check(_ settings: Settings) -> [Diagnostic] {
    let background = settings[background]
    guard let kind = BackgroundKinds.of(background) else { return [] }
    var findings = kind.check(background)
    findings += SubjectLook.check(settings[SubjectLook.subject], canvas: settings[canvas])
    let layers =
      background.hasValue(for: LayeredBackground.layers) ? background[LayeredBackground.layers] : [background]
    let original = layers.first { $0.hasValue(for: OriginalBackground.original) }
    if original != nil, settings[existingAlpha] {
      findings.append(
        settings.diagnostic(
          .error, "not-applicable", at: existingAlpha,
          "a picture that brings its own transparency has no photo behind its subject",
          hint: "use another background, or a \"segment\" stage without \"existingAlpha\""))
    }
    guard settings[canvas] == .background else { return findings }
    guard let scene = layers.lazy.compactMap({ $0[ImageBackground.image] }).first else {
      findings.append(
        settings.diagnostic(
          .error, "not-applicable", at: canvas, "only an \"image\" has sides of its own that the canvas could take",
          hint: "use an \"image\" as background or layer; or \"pad\" or \"resize\" before, to give pictures their sides"
        ))
      return findings
    }
    if let original {
      findings.append(
        original.diagnostic(
          .error, "not-applicable", at: OriginalBackground.original,
          "the photo has the picture's sides, and the canvas those of \"image\"",
          hint: "leave out \"canvas\": \"background\""))
    }
    for field in [ImageBackground.imageFit, ImageBackground.imagePosition] as [any FieldDeclaration]
    where scene.isSet(field) {
      findings.append(
        scene.diagnostic(
          .error, "not-applicable", at: field, "\"\(field.name)\" has no meaning: this picture gives the canvas",
          hint: "leave it out"))
    }
    return findings
  }

  private let background: any Background
  private let look: SubjectLook
  private let canvas: CompositeCanvas

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    look = SubjectLook(settings[SubjectLook.subject])
    canvas = settings[Self.canvas]
    do throws(ImagingError) {
      let made = try BackgroundKinds.make(settings[Self.background], resources)
      // One colour is drawn faster than it is looked up.
      background =
        made.isFixed && !(made is ColorBackground)
        ? KeptBackground(base: made, layer: 0, kept: KeptBackground.memory()) : made
    } catch {
      throw StageError(
        error.code.rawValue, error.message, kind: .environment, cause: error.detail.isEmpty ? nil : error.detail,
        hint: error.hint)
    }
  }

  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    if case .encoded(let source) = item.picture, !source.header.hasAlpha, item.matte == nil,
      try isCovered(by: (source.header.orientedWidth, source.header.orientedHeight))
    {
      return .next(unchanged(item, context))
    }
    let picture = try item.image(in: context)
    let found = try StageError.imaging { () throws(ImagingError) in try Self.subject(of: item, picture) }
    if found == nil, try isCovered(by: (picture.width, picture.height)) {
      return .next(unchanged(item.with(image: picture), context))
    }
    return .next(
      try StageError.imaging { () throws(ImagingError) in
        let subject = if let found { found } else { try picture.fadedAlpha(1) }
        return try laid(subject, item)
      })
  }

  /// Whether an opaque picture of these sides leaves nothing to see of the background.
  private func isCovered(by sides: (width: Int, height: Int)) throws(StageError) -> Bool {
    guard look.isPlain else { return false }
    return try StageError.imaging { () throws(ImagingError) in
      try placement(of: sides).isIdentity(for: sides.width, sides.height)
    }
  }

  private func placement(of sides: (width: Int, height: Int)) throws(ImagingError) -> Placement {
    let canvas = canvas == .background ? background.ownSize ?? sides : sides
    return try look.placement(of: sides.width, sides.height, onCanvas: canvas.width, canvas.height)
  }

  /// The item with its subject, which has alpha, on the background.
  private func laid(_ subject: Image, _ item: Item) throws(ImagingError) -> Item {
    let placement = try placement(of: (subject.width, subject.height))
    let isMoved = !placement.isIdentity(for: subject.width, subject.height)
    var front = isMoved ? try subject.placed(placement, .color(.transparent)) : subject
    front = try front.fadedAlpha(look.opacity)
    let image: Image
    if let color = background as? ColorBackground, color.color.a == 0, look.blend == .over {
      image = isMoved || look.opacity < 1 ? try front.materialised() : front
    } else {
      let scene = Scene(
        width: placement.canvasWidth, height: placement.canvasHeight,
        space: subject.space.holdsColour ? subject.space : .srgb, depth: subject.depth, original: item.original,
        matte: { () throws(ImagingError) in if let matte = item.matte { matte } else { try subject.alphaBand() } })
      guard let behind = try background.drawn(for: scene) else {
        throw ImagingError(
          .geometry, "the photo this picture was cut from is not at hand, so it cannot be its background",
          hint: "put \"composite\" after \"segment\", or use another background")
      }
      // Computed here and not while encoding, so that two renditions do not compute it twice.
      image = try front.blended(onto: behind, look.blend).materialised()
    }
    guard isMoved else { return item.with(image: image) }
    let matte: Image? = if let matte = item.matte { try matte.placed(placement, .color(.transparent)) } else { nil }
    let original: Image? = if let photo = item.original { try photo.placed(placement, .edge) } else { nil }
    return item.with(image: image, matte: matte, original: original)
  }

  private func unchanged(_ item: Item, _ context: StageContext) -> Item {
    context.warn("no-alpha", "the picture has no transparency: no background shows, and it passes unchanged")
    return item
  }

  /// What stands in front, with alpha; nil where everything is opaque.
  private static func subject(of item: Item, _ picture: Image) throws(ImagingError) -> Image? {
    // A mask as picture says where the subject is, not what it looks like.
    let colours = picture.bands < 3 ? item.original ?? picture : picture
    if colours.bands >= 3, colours === picture, picture.hasAlpha { return picture }
    guard let matte = item.matte else { return nil }
    guard colours.bands >= 3 else {
      throw ImagingError(
        .geometry, "the picture is a mask, and the photo it was made from is not at hand",
        hint: "use \"output\": \"cutout\" in the segment stage")
    }
    return try colours.multipliedAlpha(by: matte)
  }
}
