import Glibc
import Imaging
import JobSyntax
import PipelineKit

/// Lays cut-out pictures on a background.
public struct Composite: Stage {
  static let color = Field<RGBA?>.color(
    "color", help: "one colour; `transparent` keeps the cut-out as it is, a partly transparent colour tints what shows"
  )

  static let kind = Field<GradientKind>.choice("kind", default: .linear, help: "how the colours run")
  static let from = Field<RGBA?>.color("from", help: "the first colour")
  static let to = Field<RGBA?>.color("to", help: "the last colour")
  static let stops = Field<[Gradient.Stop]>(
    "stops", type: .array(.object(ObjectShape([stopColor, stopPlace])), count: 2...64), absent: [],
    help: "two or more colours in order, instead of `from` and `to`"
  ) { node, file in
    node.arrayValue?.map { stop in
      let stop = Settings(reading: stop, shape: ObjectShape([stopColor, stopPlace]), file: file)
      let color = stop.isSet(stopColor) ? stop[stopColor] : nil
      return Gradient.Stop(color ?? .transparent, at: stop[stopPlace])
    }
  }
  // Required; read before lint has its say, so a value that is no colour reads as none.
  static let stopColor = Field<RGBA?>(
    "color", type: .text(.color), absent: nil, help: "the colour at this place"
  ) { node, _ in .some(node.stringValue.flatMap { RGBA(css: $0) }) }
  static let stopPlace = Field<Double?>.number(
    "at", in: 0...1, help: "the place along the gradient, 0 to 1; left out, it lies evenly between its neighbours")
  static let angle = Field<Double>.number(
    "angle", in: -360...360, default: 180, unit: "degrees", when: FieldCondition("kind", in: ["linear"]),
    help: "direction as in CSS, clockwise: 0 runs to the top, 90 to the right, 180 to the bottom")
  static let centerX = Field<Double>.number(
    "centerX", in: 0...1, default: 0.5, when: FieldCondition("kind", in: ["radial"]),
    help: "where the circle's centre lies, as a part of the width")
  static let centerY = Field<Double>.number(
    "centerY", in: 0...1, default: 0.5, when: FieldCondition("kind", in: ["radial"]),
    help: "where the circle's centre lies, as a part of the height")
  static let gradient = Field<Settings?>.optionalObject(
    "gradient", ObjectShape([kind, from, to, stops, angle, centerX, centerY], exactlyOne: ["from", "stops"]),
    help: "colours that run into each other, dithered so that they do not band")

  static let path = Field<String>.text(
    "path", .path, default: nil, help: "the picture file, not SVG, seen from the job file")
  static let imageFit = Field<BackgroundFit>.choice("fit", default: .cover, help: "how it fills the picture's sides")
  static let imagePosition = Field<Position>.choice(
    "position", default: .centre, when: FieldCondition("fit", in: ["cover", "contain"]),
    help: "which part stays when `cover` crops, or where it stands when `contain` pads")
  static let imageBehind = Field<RGBA>.color(
    "color", default: "white", when: FieldCondition("fit", in: ["contain"]), help: "what `contain` fills the rest with"
  )
  static let image = Field<Settings?>.optionalObject(
    "image", ObjectShape([path, imageFit, imagePosition, imageBehind]),
    help: "a picture, scaled to each picture's sides; it is enlarged where it has to be")

  static let blur = Field<Double>.number(
    "blur", in: 0.3...1000, default: nil, unit: "pixels", help: "the radius of the blur (sigma of the Gaussian)")
  static let original = Field<Settings?>.optionalObject(
    "original", ObjectShape([blur]),
    help: "the photo the subject was cut from, blurred; the subject does not glow into it")

  static let background = Field<Settings>.object(
    "background",
    ObjectShape([color, gradient, image, original], exactlyOne: ["color", "gradient", "image", "original"]),
    help: "what shows where the subject is not")
  static let existingAlpha = Field<Bool>.boolean(
    "existingAlpha", default: false,
    help:
      "composes by the transparency that pictures bring along, without a segment stage; a picture without any passes "
      + "unchanged, with a warning")

  public static let spec = StageSpec(
    name: "composite",
    summary: "Lays the cut-out subject on a new background: a colour, a gradient, a picture, or its own photo blurred.",
    notes: [
      "Where the subject is opaque its pixels come through exactly, and where it is transparent the background does.",
      "The end colours of a gradient are exact, and what lies between is dithered by a fixed pattern. Lossy encoders "
        + "(JPEG, WebP and AVIF at low quality) may undo the dither and show bands; PNG and lossless WebP keep it.",
      "Colours are blended as sRGB values, as browsers and image editors do. The picture's metadata stays.",
    ],
    fields: [background, existingAlpha],
    examples: [
      ##"{ "stage": "composite", "background": { "color": "#ffffff" } }"##,
      ##"{ "stage": "composite", "background": { "gradient": { "from": "#dfe9f3", "to": "#ffffff", "angle": 90 } } }"##,
      ##"{ "stage": "composite", "background": { "original": { "blur": 12 } } }"##,
    ])

  public static func plan(_ settings: Settings) -> StagePlan {
    let background = settings[background]
    var plan = StagePlan(accepts: .picture, produces: .picture, removes: [.alpha, .encoded])
    plan.uses = [.alpha, .matte]
    if !settings[existingAlpha] { plan.acceptsAny = [.alpha, .matte] }
    var perPixel = 4
    if let color = background[color], !color.isOpaque {
      plan.produces.insert(.alpha)
    } else if let gradient = background[gradient], !isOpaque(gradient) {
      plan.produces.insert(.alpha)
    } else if let image = background[image] {
      plan.helperFiles = [image[path]]
      perPixel = 8
    } else if background[original] != nil {
      // The weighed photo and its weights in floating point.
      perPixel = 32
    }
    plan.workingBytes = { [perPixel] width, height in width * height * perPixel }
    return plan
  }

  private static func isOpaque(_ gradient: Settings) -> Bool {
    ([gradient[from], gradient[to]].compactMap(\.self) + gradient[stops].map(\.color)).allSatisfy(\.isOpaque)
  }

  public static func check(_ settings: Settings) -> [Diagnostic] {
    let background = settings[background]
    var findings: [Diagnostic] = []
    if let gradient = background[gradient] {
      findings += check(gradient: gradient)
    }
    if let image = background[image] {
      let position = image[imagePosition]
      if image[imageFit] == .contain, position == .entropy || position == .attention {
        findings.append(
          image.diagnostic(
            .error, "not-applicable", at: imagePosition,
            "position \"\(position.rawValue)\" chooses a crop; fit \"contain\" does not crop",
            hint: "use fit \"cover\", or a side or corner as position"))
      }
    }
    if background[original] != nil, settings[existingAlpha] {
      findings.append(
        settings.diagnostic(
          .error, "not-applicable", at: existingAlpha,
          "a picture that brings its own transparency has no photo behind its subject to blur",
          hint: "use another background, or a \"segment\" stage without \"existingAlpha\""))
    }
    return findings
  }

  private static func check(gradient: Settings) -> [Diagnostic] {
    if gradient.isSet(stops) {
      guard !gradient.isSet(to) else {
        return [
          gradient.diagnostic(
            .error, "conflicting-keys", at: to, "\"to\" goes with \"from\"; \"stops\" names all colours")
        ]
      }
      // Places left out are spread evenly and can't fall.
      var last = 0.0
      for (index, stop) in gradient[stops].enumerated() {
        guard let place = stop.position else { continue }
        guard place >= last else {
          let node = gradient.nodes["stops"]?.arrayValue?[index]["at"]
          var finding = gradient.diagnostic(
            .error, "out-of-range", at: stops,
            "\"stops[\(index)].at\" is \(JSONText.number(place).rendered()), before the stop in front of it",
            hint: "list the stops in order")
          if let node { (finding.range, finding.path) = (node.range, node.path) }
          return [finding]
        }
        last = place
      }
    } else if gradient.isSet(from), !gradient.isSet(to) {
      return [
        gradient.diagnostic(
          .error, "missing-key", at: from, "\"from\" needs \"to\", the colour where the gradient ends")
      ]
    }
    return []
  }

  private enum Background: Sendable {
    case color(RGBA)
    case gradient(Gradient)
    case image(Image, ResizeRequest)
    case original(blur: Double)
  }

  private struct Sides: Hashable, Sendable {
    var width: Int
    var height: Int
  }

  private let background: Background
  /// Backgrounds drawn for the sides that came last: the pictures of a batch are often alike.
  private let drawn = RecentImages<Sides>(most: 4, mostBytes: 128 << 20)

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    let choice = settings[Self.background]
    do throws(ImagingError) {
      if let color = choice[Self.color] {
        background = .color(color)
      } else if let gradient = choice[Self.gradient] {
        background = .gradient(try Self.gradient(gradient))
      } else if let image = choice[Self.image] {
        background = try Self.image(image, resources)
      } else if let original = choice[Self.original] {
        background = .original(blur: original[Self.blur])
      } else {
        throw ImagingError(.internalFault, "composite has no background; the job was not checked")
      }
    } catch {
      throw StageError(
        error.code.rawValue, error.message, kind: .environment, cause: error.detail.isEmpty ? nil : error.detail,
        hint: error.hint)
    }
  }

  private static func gradient(_ settings: Settings) throws(ImagingError) -> Gradient {
    var stops = settings[stops]
    if stops.isEmpty { stops = [settings[from], settings[to]].compactMap(\.self).map { Gradient.Stop($0) } }
    let shape: Gradient.Shape =
      switch settings[kind] {
      case .linear: .linear(angle: settings[angle])
      case .radial: .radial(centerX: settings[centerX], centerY: settings[centerY])
      }
    return try Gradient(shape, stops: stops)
  }

  private static func image(_ settings: Settings, _ resources: StageResources) throws(ImagingError) -> Background {
    let path = resources.run.baseFolder.joining(settings[path]).normalised
    let image: Image
    do throws(ImagingError) {
      let source = try EncodedPicture(
        bytes: EncodedPicture.read(path: path.bytes),
        options: DecodeOptions(limits: resources.decodeLimits, space: resources.workingSpace))
      image = try source.pixels()
    } catch {
      throw ImagingError(
        error.code, "the background \(path.printable) cannot be used: \(error.message)", detail: error.detail,
        hint: error.code == .unsupported ? "use a PNG, or another picture of pixels" : error.hint ?? nearName(path))
    }
    let fit: Fit =
      switch settings[imageFit] {
      case .cover: .cover
      case .contain: .contain
      case .fill: .fill
      }
    let request = ResizeRequest(
      fit: fit, position: settings[imagePosition], background: settings[imageBehind], enlarge: true)
    return .image(image, request)
  }

  /// A hint that names the file of the same folder which may have been meant by one that is not there.
  private static func nearName(_ path: PathBytes) -> String? {
    guard path.withCString({ access($0, F_OK) }) != 0, let name = path.lastComponent.string,
      let listing = path.parent.withCString({ opendir($0) }),
      let nameOffset = MemoryLayout<dirent>.offset(of: \.d_name)
    else { return nil }
    defer { closedir(listing) }
    var known: [String] = []
    // A folder with more names than this is not worth the wait.
    while known.count < 20_000, let entry = readdir(listing) {
      let start = (UnsafeRawPointer(entry) + nameOffset).assumingMemoryBound(to: CChar.self)
      if let other = String(validatingCString: start), other != ".", other != ".." { known.append(other) }
    }
    return NearestName.suggestion(for: name, among: known).map { "did you mean \(path.parent.joining($0).printable)?" }
  }

  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    if case .encoded(let source) = item.picture, !source.header.hasAlpha, item.matte == nil {
      return .next(unchanged(item, context))
    }
    let picture = try item.image(in: context)
    do throws(ImagingError) {
      guard let subject = try Self.subject(of: item, picture) else {
        return .next(unchanged(item.with(image: picture), context))
      }
      if case .color(let color) = background, color.a == 0 { return .next(item.with(image: subject)) }
      guard let behind = try self.behind(item, subject) else {
        throw ImagingError(
          .geometry, "the photo this picture was cut from is not at hand, so it cannot be its background",
          hint: "put \"composite\" after \"segment\", or use another background")
      }
      // Computed here and not while encoding, so that two renditions do not compute it twice.
      return .next(item.with(image: try subject.composited(over: behind).materialised()))
    } catch {
      throw StageError(error)
    }
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

  /// The background for a picture; nil where it has none.
  private func behind(_ item: Item, _ subject: Image) throws(ImagingError) -> Image? {
    let (width, height) = (subject.width, subject.height)
    switch background {
    case .color(let color):
      return try .solid(width: width, height: height, color)
    case .gradient(let gradient):
      return try drawn.image(Sides(width: width, height: height)) { () throws(ImagingError) in
        try .gradient(gradient, width: width, height: height)
      }
    case .image(let image, var request):
      return try drawn.image(Sides(width: width, height: height)) { () throws(ImagingError) in
        (request.width, request.height) = (width, height)
        return try image.resized(request.plan(for: image.width, image.height)).materialised()
      }
    case .original(let sigma):
      guard let original = item.original else { return nil }
      let matte = if let matte = item.matte { matte } else { try subject.alphaBand() }
      return try .backgroundBlur(original: original, matte: matte, sigma: sigma)
    }
  }
}

/// How a gradient's colours run.
public enum GradientKind: String, FieldChoice {
  case linear, radial

  public var help: String {
    switch self {
    case .linear: "along a line from corner to corner"
    case .radial: "in circles, from a centre to the farthest corner"
    }
  }
}

/// How a background picture fills the sides.
public enum BackgroundFit: String, FieldChoice {
  case cover, contain, fill

  public var help: String {
    switch self {
    case .cover: "covers the sides, and what sticks out is cropped"
    case .contain: "fits within the sides, and the rest is filled with a colour"
    case .fill: "stretched to the sides; the ratio may change"
    }
  }
}
