import Imaging
import JobSyntax
import PipelineKit

/// Encodes pictures to the bytes of a file.
public struct Encode: Stage {
  static let format = Field<EncodedFormat>.choice("format", default: nil, help: "the file format")
  static let quality = Field<Int?>.integer(
    "quality", in: 1...100, when: FieldCondition("format", in: ["jpeg", "webp", "avif", "tiff"]),
    help: "1 (small) to 100 (fine); left out, 85 for JPEG, WebP and TIFF, 60 for AVIF, whose scale is another")
  static let progressive = Field<Bool>.boolean(
    "progressive", default: false, when: FieldCondition("format", in: ["jpeg"]),
    help: "whether the picture appears whole and gets sharper while it loads; often smaller, slower to write")
  static let chroma = Field<EncodeOptions.JPEG.Chroma>.choice(
    "chroma", default: .auto, when: FieldCondition("format", in: ["jpeg"]), help: "how finely colour is stored")
  static let compression = Field<Compression?>(
    "compression",
    type: .oneOf([
      .integer(0...9), .choice(EncodeOptions.TIFF.Compression.allCases.map { Choice($0.rawValue, $0.help) }),
    ]), absent: .some(nil), when: FieldCondition("format", in: ["png", "tiff"]),
    help:
      "PNG: 0 (fast) to 9 (small, slow), 2 when left out: within a few per cent of 9 on photos at a quarter of the "
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
    "colors", in: 2...256, default: 256, when: FieldCondition("palette", in: ["true"]), help: "colours in the palette")
  static let lossless = Field<Bool>.boolean(
    "lossless", default: false, when: FieldCondition("format", in: ["webp"]),
    help: "whether every pixel is kept exactly")
  static let effort = Field<Int>.integer(
    "effort", in: 0...9, default: 4, when: FieldCondition("format", in: ["webp", "avif"]),
    help: "0 (fast) to 6 for WebP or 9 for AVIF (small)")
  static let metadata = Field<MetadataPolicy>.choice(
    "metadata", default: .copyright, help: "what the file tells besides pixels")
  static let background = Field<RGBA>.color(
    "background", default: "white", when: FieldCondition("format", in: ["jpeg"]),
    help: "what transparent pictures are laid on, as JPEG has no transparency")

  public static let spec = StageSpec(
    name: "encode",
    summary: "Encodes the picture as JPEG, PNG, WebP, AVIF or TIFF.",
    notes: [
      "A picture with transparency becomes a JPEG on a background colour, and the report says so; PNG, WebP, "
        + "AVIF and TIFF keep transparency.",
      "Orientation is baked in and colours are sRGB, whatever metadata is kept.",
      "Lossy formats may undo the fine dither of a gradient and show bands.",
      "An AVIF takes about a hundred times as long as a JPEG.",
    ],
    fields: [
      format, quality, progressive, chroma, compression, palette, colors, lossless, effort, metadata, background,
    ],
    examples: [
      #"{ "stage": "encode", "format": "jpeg", "quality": 82, "progressive": true }"#,
      #"{ "stage": "encode", "format": "webp", "quality": 90, "effort": 5 }"#,
      #"{ "stage": "encode", "format": "png", "compression": 9, "metadata": "none" }"#,
    ])

  /// `compression` is a level for PNG and a method for TIFF.
  enum Compression: Sendable, Hashable {
    case level(Int)
    case method(EncodeOptions.TIFF.Compression)
  }

  public static func plan(_ settings: Settings) -> StagePlan {
    var plan = StagePlan(accepts: .picture, produces: .encoded)
    plan.encodedExtension = settings[format].picture.fileExtension
    plan.mostSide = settings[format].picture.maxSide
    if settings[format] == .tiff, settings[compression] == .method(.jpeg) {
      plan.refuses = Refusal(
        .alpha, at: "compression", "TIFF with JPEG compression cannot hold transparency, and the picture was cut out",
        hint: "use \"lzw\" or \"deflate\", or lay it on a background with \"composite\" before")
    }
    // Measured as the peak memory that an encoder adds for 24 megapixels, result included.
    let perPixel =
      switch options(settings) {
      case .jpeg: 2
      case .png(let png): png.palette ? 10 : 4
      case .webp(let webp): webp.lossless ? 32 : 16
      case .avif: 26
      case .jxl: 32
      case .tiff: 6
      case .gif: 10
      }
    plan.workingBytes = { width, height in width * height * perPixel }
    return plan
  }

  public static func check(_ settings: Settings) -> [Diagnostic] {
    var findings: [Diagnostic] = []
    func refuse(_ code: String, _ field: any FieldDeclaration, _ message: String, hint: String? = nil) {
      findings.append(settings.diagnostic(.error, code, at: field, message, hint: hint))
    }
    switch (settings[format], settings[compression]) {
    case (.png, .method(let method)):
      refuse(
        "wrong-type", compression, "\"compression\" expects an integer from 0 to 9 with PNG, got \"\(method.rawValue)\""
      )
    case (.tiff, .level(let level)):
      let names = EncodeOptions.TIFF.Compression.allCases.map(\.rawValue).joined(separator: ", ")
      refuse("wrong-type", compression, "\"compression\" expects one of \(names) with TIFF, got \(level)")
    default: break
    }
    if settings[format] == .webp, settings[effort] > 6 {
      refuse("out-of-range", effort, "\"effort\" expects an integer from 0 to 6 with WebP, got \(settings[effort])")
    }
    if settings.isSet(quality) {
      if settings[format] == .webp, settings[lossless] {
        refuse("not-applicable", quality, "\"quality\" has no meaning with \"lossless\": true")
      }
      if settings[format] == .tiff, settings[compression] != .method(.jpeg) {
        refuse(
          "not-applicable", quality, "\"quality\" has a meaning for TIFF only with \"compression\": \"jpeg\"",
          hint: "leave it out, or set \"compression\": \"jpeg\"")
      }
    }
    if settings[format] == .jpeg, !settings[background].isOpaque {
      refuse(
        "wrong-value", background, "\"background\" must be opaque: JPEG has no transparency",
        hint: "use PNG, WebP or AVIF to keep it")
    }
    return findings
  }

  private static func options(_ settings: Settings) -> EncodeOptions {
    let quality = settings[quality]
    switch settings[format] {
    case .jpeg:
      return .jpeg(
        .init(quality: quality ?? 85, progressive: settings[progressive], chroma: settings[chroma]))
    case .png:
      var png = EncodeOptions.PNG(palette: settings[palette], colors: settings[colors])
      if case .level(let level) = settings[compression] { png.compression = level }
      return .png(png)
    case .webp:
      return .webp(.init(quality: quality ?? 85, lossless: settings[lossless], effort: settings[effort]))
    case .avif:
      return .avif(.init(quality: quality ?? 60, effort: settings[effort]))
    case .tiff:
      var tiff = EncodeOptions.TIFF(quality: quality ?? 85)
      if case .method(let method) = settings[compression] { tiff.compression = method }
      return .tiff(tiff)
    }
  }

  private let options: EncodeOptions
  private let policy: MetadataPolicy
  private let background: RGBA

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    options = Self.options(settings)
    policy = settings[Self.metadata]
    background = settings[Self.background]
  }

  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    let picture = try item.image(in: context)
    let format = options.format
    do throws(ImagingError) {
      var image = picture
      if !format.hasAlpha, image.hasAlpha {
        if try image.isOpaque() {
          image = try image.withoutAlpha()
        } else {
          image = try image.flattened(background)
          context.warn(
            "flattened",
            "\(format.displayName) has no transparency: the picture was laid on \(Self.hex(background))")
        }
      }
      let bytes = try image.encoded(options, metadata: policy)
      // The decoded picture goes along, so that a second encoder does not decode it again.
      return .next(
        item.with(image: picture).with(
          encoded: .init(bytes: bytes, format: format, width: image.width, height: image.height)))
    } catch {
      throw StageError(error)
    }
  }

  private static func hex(_ color: RGBA) -> String {
    "#" + [color.r, color.g, color.b].map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
  }
}

/// The formats that are written.
public enum EncodedFormat: String, FieldChoice {
  case jpeg, png, webp, avif, tiff

  public var help: String {
    switch self {
    case .jpeg: "photos, read everywhere; no transparency; .jpg"
    case .png: "exact, with transparency; large for photos; .png"
    case .webp: "smaller than JPEG, with transparency, read by every browser of today; .webp"
    case .avif: "smaller still, slow to write; .avif"
    case .tiff: "exact, for printing and archives; .tif"
    }
  }

  var picture: PictureFormat {
    switch self {
    case .jpeg: .jpeg
    case .png: .png
    case .webp: .webp
    case .avif: .avif
    case .tiff: .tiff
    }
  }
}

extension EncodeOptions.JPEG.Chroma: FieldChoice {
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
    case .none: "nothing; colours are sRGB"
    case .copyright: "copyright, author, credit line and colour profile; place, device and dates go"
    case .all: "everything but coordinates, maker notes and embedded thumbnails, with the orientation reset"
    }
  }
}
