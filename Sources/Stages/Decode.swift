import Imaging
import PipelineKit

/// Opens an input: type by its first bytes, header, limits. Its pixels are decoded by the first stage that wants them.
public struct Decode: ExchangingStage {
  static let frames = Field<FramePolicy>.choice(
    "frames", default: .first, help: "which frames of an animated GIF or WebP are read")
  static let onDamage = Field<DamagePolicy>.choice(
    "onDamage", default: .fail, help: "what happens when the pixels are damaged or cut short")
  static let allow = Field<[Drawing]>(
    "allow", type: .array(.choice(Drawing.allCases.map { Choice($0.rawValue, $0.help) }), count: 0...2), absent: [],
    help: "kinds of files that are read only where they are named, since a renderer runs what they say"
  ) { node, _ in node.arrayValue?.compactMap { $0.stringValue.flatMap { Drawing(rawValue: $0) } } }
  static let resolution = Field<Double>.number(
    "resolution", in: 1...2400, default: 72, unit: "pixels per inch",
    help:
      "how finely SVG and PDF are drawn; a resize straight after draws them anew at its own size, and larger than this "
      + "with `enlarge`")

  public static let spec = StageSpec(
    name: "decode",
    summary: "Reads an input as a picture: upright, with its colours applied and its transparency kept.",
    notes: [
      "Reads JPEG, PNG, WebP, AVIF, HEIC, JPEG XL, TIFF, GIF, JPEG 2000, BMP and ICO, and with `allow` SVG and PDF. The "
        + "type is told from the first bytes, never from the name; a name that says something else is reported.",
      "The orientation of the main image is baked in once, and an embedded colour profile is applied. Pictures are held in "
        + "8-bit sRGB, unless a later stage asks for more colours or bits: then as wide and as deep as it asks.",
      "A picture whose data end early is damaged, however much of it a viewer would show. Wrong data in the middle of a "
        + "JPEG, after which the decoder finds its way again, are a warning.",
      "With `onDamage` `warn` or `accept` what is missing is black or transparent in PNG, GIF, BMP, ICO and TIFF, and "
        + "made up by the decoder in JPEG and WebP; an interlaced PNG shows there the coarser pixels that came before. Of "
        + "a TIFF whole strips or tiles are read. Of AVIF, HEIC, JPEG XL and JPEG 2000 the decoders give all or nothing, so a "
        + "damaged one fails all the same.",
      "A file that is written to or replaced while it is read is put off: the item ends as `deferred`, for the next run. So "
        + "does one that is damaged and has changed since it was read.",
      "A picture from elsewhere is fetched first, while others are worked on. One that a server does not hand out now is put "
        + "off (`deferred`), after three attempts; one that is not there, not allowed or too large fails.",
      "Size limits are checked from the header, before any pixel is decoded. A resize straight after decode shrinks "
        + "the picture while it loads, so damage to the pixels may be found in that stage; its message says that the input "
        + "is damaged.",
    ],
    fields: [frames, onDamage, allow, resolution],
    examples: [
      #"{ "stage": "decode" }"#,
      #"{ "stage": "decode", "frames": "all", "onDamage": "warn" }"#,
      #"{ "stage": "decode", "allow": ["svg", "pdf"], "resolution": 144 }"#,
    ])

  private let options: DecodeOptions
  private let keepsHash: Bool
  private let fetcher: RemoteFetcher?
  private let keepsFetchedBytes: Bool

  public static func plan(_ settings: Settings) -> StagePlan {
    var plan = StagePlan(accepts: .source, produces: .picture, removes: [.alpha, .matte, .encoded])
    plan.opensInputs = true
    return plan
  }

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    options = DecodeOptions(
      limits: resources.decodeLimits, allowed: Set(settings[Self.allow].map(\.picture)),
      onDamage: settings[Self.onDamage], frames: settings[Self.frames], space: resources.workingSpace,
      resolution: settings[Self.resolution])
    keepsHash = resources.keepsSourceHash
    fetcher = resources.fetcher
    keepsFetchedBytes = resources.keepsFetchedBytes
  }

  public func begin(_ item: Item, in context: StageContext) throws(StageError) -> StageStep {
    guard let remote = item.identity.remote else { return .outcome(try openFile(item, in: context)) }
    guard let fetcher else {
      throw StageError("fetch-refused", "\(item.identity.name.printable) is no file", kind: .job)
    }
    return .exchange { context throws(StageError) -> StageStep in
      switch try fetcher.fetch(remote, named: item.identity.name, in: context) {
      case .putOff(let reason): return .outcome(.deferred(reason: reason))
      case .content(let bytes, let type):
        return .compute { context throws(StageError) -> StageStep in
          .outcome(try open(bytes, servedAs: type, item, in: context))
        }
      }
    }
  }

  /// - Parameter type: what the server calls it, for the message where it is no picture.
  private func open(
    _ bytes: EncodedBytes, servedAs type: String?, _ item: Item, in context: StageContext
  ) throws(StageError) -> Outcome {
    let source: EncodedPicture
    do throws(ImagingError) {
      source = try EncodedPicture(bytes: bytes, options: options)
    } catch {
      var error = StageError(error)
      if let type { error.message += "; the server calls it \(type)" }
      throw error
    }
    return .next(opened(source, keepsFetchedBytes ? item.with(fetchedBytes: bytes) : item, in: context))
  }

  private func openFile(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    let source: EncodedPicture
    do throws(ImagingError) {
      source = try EncodedPicture(path: item.identity.path.bytes, options: options)
    } catch {
      if error.code == .changed { return .deferred(reason: StageError(error).description) }
      throw StageError(error)
    }
    return .next(opened(source, item, in: context))
  }

  private func opened(_ source: EncodedPicture, _ item: Item, in context: StageContext) -> Item {
    let format = source.header.format
    let ending = item.identity.name.fileExtension
    if let claimed = ending.string?.lowercased(), Self.misleads(claimed, about: format) {
      context.warn(
        "type-mismatch", "the name ends in .\(ending.printable), but the content is \(format.displayName); read as that"
      )
    }
    context.report(warningsOf: source)
    // What an earlier decode left behind goes.
    let opened = item.releasingPixels().with(source: source)
    return keepsHash ? opened.with(sourceHash: source.bytes.sha256) : opened
  }

  /// Whether a name with this ending, in lower case, says something else than the content.
  static func misleads(_ ending: String, about format: PictureFormat) -> Bool {
    guard !endings(of: format).contains(ending) else { return false }
    return otherEndings.contains(ending) || PictureFormat.allCases.contains { endings(of: $0).contains(ending) }
  }

  private static func endings(of format: PictureFormat) -> [String] {
    switch format {
    case .jpeg: ["jpg", "jpeg", "jpe", "jfif", "jif"]
    case .png: ["png", "apng"]
    case .webp: ["webp"]
    // HEIF is the container of both.
    case .avif: ["avif", "avifs", "heif", "hif"]
    case .heic: ["heic", "heics", "heif", "heifs", "hif"]
    case .jxl: ["jxl"]
    case .tiff: ["tif", "tiff", "btf"]
    case .gif: ["gif"]
    case .jp2: ["jp2", "j2k", "jpf", "jpx", "jpm", "j2c", "jpc"]
    case .bmp: ["bmp", "dib"]
    case .ico: ["ico", "cur"]
    case .svg: ["svg", "svgz"]
    case .pdf: ["pdf", "ai"]
    }
  }

  /// Kinds of pictures that are not read. Many camera raw files are TIFF by their first bytes, and what would be read
  /// is a preview: worth a word. Any other ending claims nothing about the content.
  private static let otherEndings: Set<String> = [
    "3fr", "arw", "cr2", "cr3", "dng", "eps", "erf", "exr", "hdr", "iiq", "nef", "nrw", "orf", "pef",
    "psb",
    "psd", "raf", "raw", "rw2", "sr2", "srw", "tga", "xcf",
  ]
}

/// Kinds of files that need permission.
enum Drawing: String, FieldChoice {
  case svg, pdf

  var help: String {
    switch self {
    case .svg: "SVG, and packed as SVGZ; nothing outside the file is loaded"
    case .pdf: "the first page of a PDF, on white"
    }
  }

  var picture: PictureFormat { self == .svg ? .svg : .pdf }
}

extension FramePolicy: FieldChoice {
  public var help: String {
    switch self {
    case .first: "the first, with a warning where there are more"
    case .all: "all of them: each goes through the chain, and GIF and WebP keep their times"
    }
  }
}

extension DamagePolicy: FieldChoice {
  public var help: String {
    switch self {
    case .fail: "the item fails with damaged"
    case .warn: "what can be read is used, with the warning `damaged`"
    case .accept: "what can be read is used"
    }
  }
}
