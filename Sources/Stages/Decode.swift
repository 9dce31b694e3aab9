import Imaging
import PipelineKit

/// Opens an input: type by its first bytes, header, limits. Its pixels are decoded by the first stage that wants them.
public struct Decode: Stage {
  public static let spec = StageSpec(
    name: "decode",
    summary: "Reads an input as a picture: upright, in sRGB, with its transparency.",
    notes: [
      "Reads JPEG, PNG, WebP, AVIF, HEIC, JPEG XL, TIFF, GIF, JPEG 2000 and BMP. The type is told from the first "
        + "bytes, never from the name; a name that says something else is reported.",
      "The orientation of the main image is baked in once, an embedded colour profile is applied, and grey, palette, "
        + "CMYK and 16-bit pictures become 8-bit sRGB. Of several frames or pages the first is used, with a warning.",
      "Size limits are checked from the header, before any pixel is decoded. A resize straight after decode shrinks "
        + "the picture while it loads, so damage to the pixels may be found in that stage; its message says that the input "
        + "is damaged.",
    ],
    fields: [],
    examples: [#"{ "stage": "decode" }"#])

  private let limits: DecodeLimits
  private let keepsHash: Bool

  public static func plan(_ settings: Settings) -> StagePlan {
    StagePlan(accepts: .source, produces: .picture, removes: [.alpha, .matte, .encoded])
  }

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    limits = resources.decodeLimits
    keepsHash = resources.keepsSourceHash
  }

  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    let source: EncodedPicture
    do throws(ImagingError) {
      source = try EncodedPicture(path: item.identity.path.bytes, limits: limits)
    } catch {
      throw StageError(error)
    }
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
    return .next(keepsHash ? opened.with(sourceHash: source.bytes.sha256) : opened)
  }

  private static func misleads(_ ending: String, about format: PictureFormat) -> Bool {
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
