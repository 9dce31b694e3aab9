import Imaging
import JobSyntax
import PipelineKit

/// Encodes pictures to the bytes of a file.
public struct Encode: Stage {
  static let format = Field<EncodedFormat>.choice("format", default: nil, help: "the file format")
  static let formats = Field<[EncodedFormat]>(
    "formats", type: .array(.choice(EncodedFormat.named.map { Choice($0.rawValue, $0.help) }), count: 1...7),
    absent: [.jpeg, .webp, .png], defaultText: .array(["jpeg", "webp", "png"]),
    when: FieldCondition("format", in: ["auto"]),
    help: "what `auto` may choose, best liked first: a picture with transparency gets the first that has it, one of at "
      + "most 256 colours, or of 64 where all are grey, PNG, an animation WebP or GIF, and any other the first that is "
      + "made for photos"
  ) { node, _ in node.arrayValue?.compactMap { $0.stringValue.flatMap { EncodedFormat(rawValue: $0) } } }

  static let quality = Field<Quality?>(
    "quality",
    type: .oneOf([.integer(1...100), .choice([Choice("auto", "the lowest at which the picture still looks the same")])]
    ),
    absent: .some(nil), when: FieldCondition("format", in: ["jpeg", "webp", "avif", "jxl", "tiff", "auto"]),
    help:
      "1 (small) to 100 (fine), or `auto`; left out, 85, and for AVIF, whose scale is another, 60. With `maxBytes` it "
      + "is the most that is tried, and left out there, up to 100 is"
  ) { node, _ in
    switch node.value {
    case .number(let number): number.integer.map { .fixed($0) }
    case .string("auto"): .some(.auto)
    default: nil
    }
  }
  static let similarity = Field<Double>.number(
    "similarity", in: 0.5...0.9999, default: 0.97, when: FieldCondition("quality", in: ["auto"]),
    help:
      "how like the original the file must be, as structural similarity (SSIM) of lightness: 0.95 is good, 0.97 hard "
      + "to tell apart, 0.99 nearly exact")
  static let minQuality = Field<Int?>.integer(
    "minQuality", in: 1...100, help: "the least quality that a search tries; 30 with `auto`, 1 with `maxBytes`")
  static let maxQuality = Field<Int?>.integer(
    "maxQuality", in: 1...100, when: FieldCondition("quality", in: ["auto"]),
    help: "the most quality that `auto` tries; 95 when left out")
  static let maxBytes = Field<Int?>.integer(
    "maxBytes", in: 1...1_000_000_000_000, unit: "bytes",
    help: "the most that the file may have: the highest quality that fits is searched for; in PNG, GIF and what is "
      + "lossless there is none, and a larger file is too large")
  static let onTooLarge = Field<TooLarge>.choice(
    "onTooLarge", default: .fail, help: "what happens when no quality fits into `maxBytes`")

  static let progressive = Field<Bool>.boolean(
    "progressive", default: false, when: FieldCondition("format", in: ["jpeg", "auto"]),
    help: "whether the picture appears whole and gets sharper while it loads; often smaller, slower to write")
  static let chroma = Field<EncodeOptions.Chroma>.choice(
    "chroma", default: .auto, when: FieldCondition("format", in: ["jpeg", "avif", "auto"]),
    help: "how finely colour is stored; a search for a quality takes `auto` as 420")
  static let compression = Field<Compression?>(
    "compression",
    type: .oneOf([
      .integer(0...9), .choice(EncodeOptions.TIFF.Compression.allCases.map { Choice($0.rawValue, $0.help) }),
    ]), absent: .some(nil), when: FieldCondition("format", in: ["png", "tiff"]),
    help:
      "PNG: 0 (fast) to 9 (small, slow), 2 when left out: within a few per cent of 9 on photos at a tenth of the "
      + "time. TIFF: the method, `lzw` when left out"
  ) { node, _ in
    switch node.value {
    case .number(let number): number.integer.map { .level($0) }
    case .string(let text): EncodeOptions.TIFF.Compression(rawValue: text).map { .method($0) }
    default: nil
    }
  }
  static let palette = Field<Bool>.boolean(
    "palette", default: false, when: FieldCondition("format", in: ["png"]),
    help: "whether to reduce the picture to a palette: much smaller, lossy")
  static let colors = Field<Int>.integer(
    "colors", in: 2...256, default: 256, when: FieldCondition("format", in: ["png", "gif"]),
    help: "colours in the palette, of a PNG with `palette` or a GIF; rounded up as the file format counts")
  static let dither = Field<Double>.number(
    "dither", in: 0...1, default: 1, when: FieldCondition("format", in: ["gif"]),
    help: "how much of the rounding to the palette is spread over neighbours; 0 gives flat areas and small files")
  static let lossless = Field<Bool>.boolean(
    "lossless", default: false, when: FieldCondition("format", in: ["webp", "jxl"]), help: "whether nothing is lost")
  static let effort = Field<Int?>.integer(
    "effort", in: 0...10, when: FieldCondition("format", in: ["webp", "avif", "jxl", "gif", "auto"]),
    help: "fast to small: 0 to 6 for WebP (4 when left out), 0 to 9 for AVIF (4), 3 to 9 for JPEG XL (7), 1 to 10 for "
      + "GIF (7)")
  static let colorSpace = Field<OutputSpace>.choice(
    "colorSpace", default: .srgb, help: "what the file's colours are numbers of")
  static let bitDepth = Field<OutputDepth>(
    "bitDepth",
    type: .oneOf([
      .integer(8...16),
      .choice([Choice("keep", "as deep as the source: 16 bits for PNG, TIFF and JPEG XL, 12 for AVIF")]),
    ]), absent: .bits(8), defaultText: .integer(8),
    when: FieldCondition("format", in: ["png", "tiff", "avif", "jxl"]),
    help: "bits a sample: 8; 16 for PNG, TIFF and JPEG XL; 12 for AVIF; or `keep`"
  ) { node, _ in
    switch node.value {
    case .number(let number): number.integer.map { .bits($0) }
    case .string("keep"): .keep
    default: nil
    }
  }
  static let background = Field<RGBA>.color(
    "background", default: "white", when: FieldCondition("format", in: ["jpeg", "auto"]),
    help: "what transparent pictures are laid on, as JPEG has no transparency")
  static let options = Field<JSONNode?>(
    "options", type: .any, absent: .some(nil),
    help:
      "an object of further arguments for libvips' encoder, by libvips' names, such as `{ \"trellis-quant\": true }`; "
      + "`vips jpegsave` and so on list them"
  ) { node, _ in .some(node) }

  public static let spec = StageSpec(
    name: "encode",
    summary: "Encodes the picture as JPEG, PNG, WebP, AVIF, JPEG XL, TIFF or GIF.",
    notes: [
      "A picture with transparency becomes a JPEG on a background colour, and the report says so; the other formats "
        + "keep transparency, GIF with hard edges. Where a picture is fully transparent its colour is black; lossy WebP and "
        + "JPEG XL store there what takes the least room.",
      "Orientation is baked in, and the colours are those of `colorSpace` with the profile that says so, whatever "
        + "metadata is kept. Pictures without colour stay grey in JPEG, PNG, TIFF and JPEG XL.",
      "Animations keep all frames, their times and the number of rounds in GIF and WebP; other formats get the first.",
      "A search for a quality takes some five encodes, `auto` as many decodes. The file of the quality found by "
        + "`maxBytes` fits, and that of the next higher one does not.",
      "Lossy formats may undo the fine dither of a gradient and show bands.",
      "An AVIF takes about a hundred times as long as a JPEG.",
    ],
    fields: [
      format, formats, quality, similarity, minQuality, maxQuality, maxBytes, onTooLarge, progressive, chroma,
      compression, palette, colors, dither, lossless, effort, colorSpace, bitDepth, MetadataField.keep,
      MetadataField.set, background, options,
    ],
    examples: [
      #"{ "stage": "encode", "format": "jpeg", "quality": 82, "progressive": true }"#,
      #"{ "stage": "encode", "format": "webp", "quality": "auto", "similarity": 0.98 }"#,
      #"{ "stage": "encode", "format": "jpeg", "maxBytes": 200000, "minQuality": 40 }"#,
      #"{ "stage": "encode", "format": "auto", "formats": ["jpeg", "webp"] }"#,
      #"{ "stage": "encode", "format": "png", "bitDepth": "keep", "colorSpace": "keep", "metadata": "all" }"#,
      ##"{ "stage": "encode", "format": "jpeg", "set": { "copyright": "© Example Ltd" }, "options": { "trellis-quant": true } }"##,
    ])

  enum Quality: Sendable, Hashable {
    case fixed(Int)
    case auto
  }

  /// `compression` is a level for PNG and a method for TIFF.
  enum Compression: Sendable, Hashable {
    case level(Int)
    case method(EncodeOptions.TIFF.Compression)
  }

  public static func plan(_ settings: Settings) -> StagePlan {
    var plan = StagePlan(accepts: .picture, produces: .encoded)
    plan.frames = .together
    plan.encodedExtension = settings[format].picture?.fileExtension
    plan.mostSide = settings[format].picture?.maxSide
    if settings[format] == .tiff, settings[compression] == .method(.jpeg) {
      plan.refuses = Refusal(
        .alpha, at: "compression", "TIFF with JPEG compression cannot hold transparency, and the picture was cut out",
        hint: "use \"lzw\" or \"deflate\", or lay it on a background with \"composite\" before")
    }
    let choices = settings[format] == .auto ? settings[formats] : [settings[format]]
    // Where the source's depth is kept it may be 16 bits.
    let isDeep = settings[bitDepth] != .bits(8)
    var perPixel = choices.map { bytesPerPixel(of: options($0, settings), isDeep: isDeep) }.max() ?? 0
    // A search decodes what it encoded and compares both in floating point.
    if settings[quality] == .auto { perPixel += 16 }
    plan.workingBytes = { [perPixel] width, height in width * height * perPixel }
    plan.workingSpace = WorkingSpace(
      gamut: settings[colorSpace].gamut, depth: settings[bitDepth] == .bits(8) ? .eight : .source)
    return plan
  }

  /// Measured as the peak memory that an encoder adds for 24 megapixels, result included.
  private static func bytesPerPixel(of options: EncodeOptions, isDeep: Bool) -> Int {
    switch options {
    case .jpeg: 2
    // The rows before and after compression, which photographs hardly shrink by half.
    case .png(let png): png.palette ? 10 : isDeep ? 16 : 8
    case .webp(let webp): webp.lossless ? 32 : 16
    case .avif: 26
    case .jxl: 88
    case .tiff: 6
    case .gif: 12
    }
  }

  // MARK: Lint

  public static func check(_ settings: Settings) -> [Diagnostic] {
    var findings: [Diagnostic] = []
    func refuse(_ code: String, _ field: any FieldDeclaration, _ message: String, hint: String? = nil) {
      findings.append(settings.diagnostic(.error, code, at: field, message, hint: hint))
    }
    let chosen = settings[format]
    switch (chosen, settings[compression]) {
    case (.png, .method(let method)):
      refuse(
        "wrong-type", compression, "\"compression\" expects an integer from 0 to 9 with PNG, got \"\(method.rawValue)\""
      )
    case (.tiff, .level(let level)):
      let names = EncodeOptions.TIFF.Compression.allCases.map(\.rawValue).joined(separator: ", ")
      refuse("wrong-type", compression, "\"compression\" expects one of \(names) with TIFF, got \(level)")
    default: break
    }
    if let value = settings[effort], let range = chosen.efforts, !range.contains(value) {
      refuse(
        "out-of-range", effort,
        "\"effort\" expects an integer from \(range.lowerBound) to \(range.upperBound) with \(chosen.name), got \(value)"
      )
    }
    if case .bits(let bits) = settings[bitDepth], settings.isSet(bitDepth), let depths = chosen.depths,
      !depths.contains(bits)
    {
      let words = depths.map(String.init).joined(separator: ", ")
      refuse(
        "wrong-value", bitDepth, "\"bitDepth\" of \(chosen.name) is one of \(words), or \"keep\"; got \(bits)",
        hint: chosen == .avif
          ? bits == 10
            ? "the encoder of libheif 1.15 ends the whole program when it is asked for 10 bits"
            : "AVIF has at most 12 bits"
          : nil)
    }
    if settings[palette], settings[bitDepth] != .bits(8) {
      refuse("conflicting-keys", bitDepth, "a palette holds colours of 8 bits; \"bitDepth\" does not go with it")
    }
    if chosen == .png, settings.isSet(colors), !settings[palette] {
      refuse("not-applicable", colors, "\"colors\" has a meaning for PNG only with \"palette\": true")
    }
    if chosen == .tiff, settings[compression] == .method(.jpeg), settings[bitDepth] != .bits(8) {
      refuse(
        "conflicting-keys", bitDepth, "TIFF with JPEG compression holds 8 bits; \"bitDepth\" does not go with it",
        hint: "use \"lzw\", \"deflate\" or \"zstd\"")
    }
    if settings[colorSpace] != .srgb, chosen == .gif || chosen == .auto && settings[formats].contains(.gif) {
      refuse(
        "wrong-value", colorSpace, "GIF has no room for a colour profile: its colours are sRGB",
        hint: chosen == .auto ? "take \"gif\" out of \"formats\"" : nil)
    }
    findings += checkQuality(settings)
    if [.jpeg, .auto].contains(chosen), !settings[background].isOpaque {
      refuse(
        "wrong-value", background, "\"background\" must be opaque: JPEG has no transparency",
        hint: "use PNG, WebP or AVIF to keep it")
    }
    findings += checkOptions(settings)
    return findings
  }

  private static func checkQuality(_ settings: Settings) -> [Diagnostic] {
    var findings: [Diagnostic] = []
    func refuse(_ code: String, _ field: any FieldDeclaration, _ message: String, hint: String? = nil) {
      findings.append(settings.diagnostic(.error, code, at: field, message, hint: hint))
    }
    let chosen = settings[format]
    let isAuto = settings[quality] == .auto
    let hasQuality = chosen == .auto || Self.options(chosen, settings).quality != nil
    if settings.isSet(quality), !hasQuality {
      if settings[lossless] {
        refuse("not-applicable", quality, "\"quality\" has no meaning with \"lossless\": true")
      } else if chosen == .tiff {
        refuse(
          "not-applicable", quality, "\"quality\" has a meaning for TIFF only with \"compression\": \"jpeg\"",
          hint: "leave it out, or set \"compression\": \"jpeg\"")
      }
    }
    if settings.isSet(minQuality), !hasQuality {
      refuse(
        "not-applicable", minQuality, "\"minQuality\" has no meaning here: \(chosen.name) so set has no quality")
    } else if settings.isSet(minQuality) {
      if !isAuto, !settings.isSet(maxBytes) {
        refuse(
          "not-applicable", minQuality, "\"minQuality\" has a meaning only for a search",
          hint: "set \"quality\": \"auto\" or \"maxBytes\"")
      }
      let most: Int? =
        if case .fixed(let value) = settings[quality] { value } else { isAuto ? settings[maxQuality] ?? 95 : nil }
      if let least = settings[minQuality], let most, least > most {
        refuse("out-of-range", minQuality, "\"minQuality\" is \(least), more than the \(most) that are the most tried")
      }
    }
    // Another quality is found by the fields' own condition.
    for field in [similarity, maxQuality] as [any FieldDeclaration]
    where settings.isSet(field) && !settings.isSet(quality) {
      refuse(
        "not-applicable", field, "\"\(field.name)\" has a meaning only with \"quality\": \"auto\"")
    }
    if settings.isSet(onTooLarge), !settings.isSet(maxBytes) {
      refuse("not-applicable", onTooLarge, "\"onTooLarge\" has a meaning only with \"maxBytes\"")
    }
    if chosen == .auto, settings[formats].contains(.tiff), settings.isSet(maxBytes) {
      refuse("wrong-value", formats, "TIFF has no quality to search for with \"maxBytes\"")
    }
    return findings
  }

  /// Holds `options` against what libvips' encoder for the format takes.
  private static func checkOptions(_ settings: Settings) -> [Diagnostic] {
    guard let node = settings[options] else { return [] }
    func refuse(_ code: String, _ at: JSONNode, _ message: String, hint: String? = nil) -> Diagnostic {
      var finding = settings.diagnostic(.error, code, at: options, message, hint: hint)
      finding.range = at.range
      finding.path = at.path
      return finding
    }
    guard let members = node.objectValue else {
      return [refuse("wrong-type", node, "\"options\" expects an object of the encoder's arguments")]
    }
    guard let picture = settings[format].picture else {
      return [refuse("not-applicable", node, "\"options\" needs a format by name: each encoder has its own")]
    }
    return members.compactMap { member in
      let at = member.value
      guard let value = argument(at) else {
        return refuse("wrong-type", at, "\"\(member.key)\" expects a boolean, a number, a name, or a list of names")
      }
      switch EncoderArguments.problem(with: member.key, value, for: picture) {
      case nil: return nil
      case .unknown(let known):
        let near = NearestName.suggestion(for: member.key, among: known)
        return refuse(
          "unknown-option", at, "the encoder for \(picture.displayName) has no option \"\(member.key)\"",
          hint: near.map { "did you mean \"\($0)\"?" } ?? "known: " + known.joined(separator: ", "))
      case .taken(let field):
        let hint = field.map { "use \"\($0)\" of the stage" }
        return refuse("not-applicable", at, "\"\(member.key)\" is not set through \"options\"", hint: hint)
      case .wrongType(let expected): return refuse("wrong-type", at, "\"\(member.key)\" expects \(expected)")
      case .outOfRange(let expected): return refuse("out-of-range", at, "\"\(member.key)\" expects \(expected)")
      }
    }
  }

  private static func argument(_ node: JSONNode) -> EncoderArgument.Value? {
    if let flag = node.boolValue { return .boolean(flag) }
    if let number = node.numberValue {
      if let whole = number.integer { return .integer(whole) }
      return number.double.map { .number($0) }
    }
    if let name = node.stringValue { return .name(name) }
    guard let list = node.arrayValue else { return nil }
    let names = list.compactMap(\.stringValue)
    return names.count == list.count ? .names(names) : nil
  }

  /// The options for one format, from the fields that mean something for it.
  private static func options(_ format: EncodedFormat, _ settings: Settings) -> EncodeOptions {
    let fixed: Int? = if case .fixed(let value) = settings[quality] { value } else { nil }
    let effort = settings[effort]
    let depth: Int = if case .bits(let bits) = settings[bitDepth] { bits } else { 8 }
    switch format {
    case .jpeg, .auto:
      return .jpeg(.init(quality: fixed ?? 85, progressive: settings[progressive], chroma: settings[chroma]))
    case .png:
      var png = EncodeOptions.PNG(palette: settings[palette], colors: settings[colors])
      if case .level(let level) = settings[compression] { png.compression = level }
      return .png(png)
    case .webp:
      return .webp(.init(quality: fixed ?? 85, lossless: settings[lossless], effort: min(6, effort ?? 4)))
    case .avif:
      return .avif(
        .init(
          quality: fixed ?? 60, effort: min(9, effort ?? 4), bitDepth: depth, chroma: settings[chroma]))
    case .jxl:
      return .jxl(.init(quality: fixed ?? 85, lossless: settings[lossless], effort: min(9, max(3, effort ?? 7))))
    case .tiff:
      var tiff = EncodeOptions.TIFF(quality: fixed ?? 85)
      if case .method(let method) = settings[compression] { tiff.compression = method }
      return .tiff(tiff)
    case .gif:
      return .gif(.init(effort: max(1, effort ?? 7), dither: settings[dither], colors: settings[colors]))
    }
  }

  // MARK: Work

  /// The formats that may be chosen, in order, each with its options.
  private let choices: [EncodeOptions]
  private let isAuto: Bool
  private let quality: Quality?
  private let similarity: Double
  private let searched: ClosedRange<Int>
  private let fitted: ClosedRange<Int>
  private let maxBytes: Int?
  private let onTooLarge: TooLarge
  private let keep: MetadataKeep
  private let texts: MetadataTemplates
  private let background: RGBA
  private let space: OutputSpace
  private let depth: OutputDepth
  private let arguments: [String: EncoderArgument.Value]

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    isAuto = settings[Self.format] == .auto
    choices = (isAuto ? settings[Self.formats] : [settings[Self.format]]).map { Self.options($0, settings) }
    quality = settings[Self.quality]
    similarity = settings[Self.similarity]
    let least = settings[Self.minQuality]
    let most = settings[Self.maxQuality] ?? 95
    searched = min(least ?? 30, most)...most
    let cap: Int = if case .fixed(let value) = settings[Self.quality] { value } else { 100 }
    fitted = min(least ?? 1, cap)...cap
    maxBytes = settings[Self.maxBytes]
    onTooLarge = settings[Self.onTooLarge]
    keep = settings[MetadataField.keep]
    texts = MetadataTemplates(settings[MetadataField.set])
    background = settings[Self.background]
    space = settings[Self.colorSpace]
    depth = settings[Self.bitDepth]
    arguments = Dictionary(
      (settings[Self.options]?.objectValue ?? []).compactMap { member in
        Self.argument(member.value).map { (member.key, $0) }
      }, uniquingKeysWith: { first, _ in first })
  }

  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    let animation = item.isAnimated ? try item.animation(in: context) : nil
    let frames = if let animation { animation.frames.map(\.image) } else { [try item.image(in: context)] }
    let request = MetadataRequest(keep: keep, set: try texts.rendered(for: item, in: context))
    do throws(ImagingError) {
      var ready: [Image] = []
      for frame in frames { ready.append(try prepared(frame)) }
      guard let first = ready.first else {
        throw ImagingError(.internalFault, "an animation came without frames")
      }
      let options = try choose(for: first, isAnimated: ready.count > 1)
      let format = options.format
      var picture = first
      if let animation, ready.count > 1 {
        if format.isAnimated {
          picture = try Animation(frames: ready, delays: animation.delays, loop: animation.loop).strip()
        } else {
          context.warn(
            "frames-dropped", "\(format.displayName) holds one picture: of \(ready.count) frames the first was written")
        }
      }
      if !format.hasAlpha, picture.hasAlpha {
        if try picture.isOpaque() {
          picture = try picture.withoutAlpha()
        } else {
          picture = try picture.flattened(background)
          context.warn(
            "flattened", "\(format.displayName) has no transparency: the picture was laid on \(Self.hex(background))")
        }
      }
      let encoding = try encode(picture, deepened(options, first), request, context)
      for name in encoding.unreadableMetadata {
        context.warn("metadata-dropped", "the \(name) of the input makes no sense and was left out")
      }
      for name in encoding.droppedMetadata {
        context.warn(
          "metadata-dropped",
          "\(name) was left out: what the input holds is damaged, or more than \(format.displayName) has room for")
      }
      // The decoded picture goes along, so that a second encoder does not decode it again.
      let held = animation.map { item.with(animation: $0) } ?? item.with(image: frames[0])
      return .next(
        held.with(
          encoded: .init(bytes: encoding.bytes, format: format, width: first.width, height: first.height)))
    } catch {
      throw StageError(error)
    }
  }

  /// In the colour space and depth that the file is to have.
  private func prepared(_ image: Image) throws(ImagingError) -> Image {
    let colours: Image =
      switch space {
      case .srgb: try image.converted(to: .srgb)
      case .p3: try image.converted(to: .displayP3)
      case .keep: image
      }
    switch depth {
    case .bits(8): return try colours.withDepth(8)
    case .bits: return try colours.withDepth(16)
    case .keep: return colours
    }
  }

  /// AVIF keeps what a deep source has in 12 bits.
  private func deepened(_ options: EncodeOptions, _ image: Image) -> EncodeOptions {
    guard case .avif(var avif) = options, depth == .keep, image.depth == 16 else { return options }
    avif.bitDepth = 12
    return .avif(avif)
  }

  private func choose(for image: Image, isAnimated: Bool) throws(ImagingError) -> EncodeOptions {
    guard isAuto else { return choices[0] }
    let fitting = choices.filter { max(image.width, image.height) <= $0.format.maxSide ?? .max }
    guard let first = fitting.first else {
      throw ImagingError(
        .encoder, "none of the formats allowed holds \(image.width)×\(image.height) pixels",
        hint: "resize the picture, or allow PNG")
    }
    if isAnimated, let moving = fitting.first(where: { $0.format.isAnimated }) { return moving }
    if try !image.isOpaque() { return fitting.first { $0.format.hasAlpha && $0.format != .gif } ?? first }
    let png = fitting.first { $0.format == .png }
    // A grey photo has at most 256 levels, and most of them.
    if let png, try image.hasFewColours(256, greys: 64) { return png }
    return fitting.first { $0.format != .png && $0.format != .gif } ?? first
  }

  private func encode(
    _ image: Image, _ options: EncodeOptions, _ request: MetadataRequest, _ context: StageContext
  ) throws(ImagingError) -> Encoding {
    let most = maxBytes ?? .max
    var ceiling = fitted.upperBound
    var first: Encoding?
    if quality == .auto, options.quality != nil {
      let found = try image.reaching(
        similarity: similarity, options, range: searched, metadata: request, arguments: arguments)
      note(context, options.format, found.quality, similarity: found.similarity)
      if !found.isReached {
        context.warn(
          "similarity-missed",
          "quality \(found.quality) gives a similarity of \(Self.rounded(found.similarity)), not \(similarity)")
      }
      first = found.output
      ceiling = found.quality
    } else if maxBytes == nil || quality != nil || options.quality == nil {
      first = try image.encoding(options, metadata: request, arguments: arguments)
      if maxBytes != nil, let fixed = options.quality { note(context, options.format, fixed) }
    }
    // Without one, every quality may do, and the search itself begins.
    if let first {
      if first.bytes.count <= most { return first }
      guard options.quality != nil else {
        return try tooLarge(first, first.bytes.count, options.format.displayName, hasQuality: false, context)
      }
    }
    let range = min(fitted.lowerBound, ceiling)...ceiling
    switch try image.fitting(maxBytes: most, options, range: range, metadata: request, arguments: arguments) {
    case .fits(let quality, let output, _):
      note(context, options.format, quality)
      return output
    case .doesNotFit(let smallest, let bytes, _):
      note(context, options.format, range.lowerBound)
      return try tooLarge(
        smallest, bytes, "\(options.format.displayName) at quality \(range.lowerBound), the lowest allowed,",
        hasQuality: true, context)
    }
  }

  private func tooLarge(
    _ encoding: Encoding, _ bytes: Int, _ what: String, hasQuality: Bool, _ context: StageContext
  ) throws(ImagingError) -> Encoding {
    let message = "\(what) has \(bytes) bytes, more than maxBytes \(maxBytes ?? 0)"
    guard onTooLarge == .accept else {
      throw ImagingError(
        .tooLarge, message,
        hint: "make the picture smaller with \"resize\", "
          + (hasQuality ? "lower \"minQuality\"" : "take a format with a quality to lower")
          + ", or set \"onTooLarge\": \"accept\"")
    }
    context.warn("too-large", message)
    return encoding
  }

  /// What a search found belongs into the report.
  private func note(_ context: StageContext, _ format: PictureFormat, _ quality: Int, similarity: Double? = nil) {
    context.note(
      context.stage,
      .object(
        [("format", .string(format.rawValue)), ("quality", .integer(quality))]
          + (similarity.map { [("similarity", .number(Self.rounded($0)))] } ?? [])))
  }

  private static func rounded(_ value: Double) -> Double { (value * 10_000).rounded() / 10_000 }

  private static func hex(_ color: RGBA) -> String {
    "#" + [color.r, color.g, color.b].map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
  }
}

/// The formats that are written.
public enum EncodedFormat: String, FieldChoice {
  case jpeg, png, webp, avif, jxl, tiff, gif, auto

  /// Those that are one.
  static let named = allCases.filter { $0 != .auto }

  public var help: String {
    switch self {
    case .jpeg: "photos, read everywhere; no transparency; .jpg"
    case .png: "exact, with transparency; large for photos; .png"
    case .webp: "smaller than JPEG, with transparency and animation, read by every browser of today; .webp"
    case .avif: "smaller still, slow to write; .avif"
    case .jxl: "smaller than JPEG and exact where wanted, not read by every browser; .jxl"
    case .tiff: "exact, for printing and archives; .tif"
    case .gif: "animations of at most 256 colours a frame, read everywhere; .gif"
    case .auto: "chosen for each picture among `formats`"
    }
  }

  /// nil for `auto`.
  var picture: PictureFormat? { self == .auto ? nil : PictureFormat(rawValue: rawValue) }

  var name: String { picture?.displayName ?? rawValue }

  /// What `effort` may be.
  var efforts: ClosedRange<Int>? {
    switch self {
    case .webp: 0...6
    case .avif: 0...9
    case .jxl: 3...9
    case .gif: 1...10
    case .jpeg, .png, .tiff, .auto: nil
    }
  }

  /// What `bitDepth` may be.
  var depths: [Int]? {
    switch self {
    case .png, .tiff, .jxl: [8, 16]
    case .avif: [8, 12]
    case .jpeg, .webp, .gif, .auto: nil
    }
  }
}

/// What happens when a file comes out larger than it may be.
enum TooLarge: String, FieldChoice {
  case fail, accept

  var help: String {
    switch self {
    case .fail: "the item fails with too-large"
    case .accept: "the smallest file is taken, with a warning"
    }
  }
}

/// What the colours of an output are numbers of.
enum OutputSpace: String, FieldChoice {
  case srgb, p3, keep

  var help: String {
    switch self {
    case .srgb: "sRGB, as every viewer takes it without a word"
    case .p3: "Display P3, with its profile: colours that sRGB cuts stay"
    case .keep: "the profile that the picture came with, where that is one of colour or grey; else sRGB"
    }
  }

  var gamut: WorkingSpace.Gamut {
    switch self {
    case .srgb: .srgb
    case .p3: .displayP3
    case .keep: .source
    }
  }
}

/// Bits a sample of an output.
enum OutputDepth: Sendable, Hashable {
  case bits(Int)
  case keep
}

extension EncodeOptions.Chroma: FieldChoice {
  public var help: String {
    switch self {
    case .auto: "420 below quality 90, 444 from there on"
    case .quarter: "a quarter of the pixels: smaller, soft red edges"
    case .full: "every pixel"
    }
  }
}

extension EncodeOptions.TIFF.Compression: FieldChoice {
  public var help: String {
    switch self {
    case .none: "fast and large"
    case .lzw: "exact, read everywhere"
    case .deflate: "exact, smaller than lzw"
    case .zstd: "exact, smaller and faster than lzw; older programs cannot read it"
    case .jpeg: "lossy"
    }
  }
}

extension MetadataPolicy: FieldChoice {
  public var help: String {
    switch self {
    case .none: "nothing but a colour profile, and that only where the pixels are not sRGB"
    case .copyright: "copyright, author, credit line and colour profile; place, device and dates go"
    case .all: "everything but coordinates, maker notes and embedded thumbnails, with the orientation reset"
    }
  }
}
