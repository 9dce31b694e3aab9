/// The picture formats that are read, and of these some written.
public enum PictureFormat: String, CaseIterable, Sendable, Hashable {
  case jpeg, png, webp, avif, heic, jxl, tiff, gif, jp2, bmp, ico, svg, pdf

  /// The usual ending of a file's name, without the dot.
  public var fileExtension: String {
    switch self {
    case .jpeg: "jpg"
    case .tiff: "tif"
    default: rawValue
    }
  }

  /// The registered media type.
  public var mediaType: String {
    switch self {
    case .jpeg: "image/jpeg"
    case .png: "image/png"
    case .webp: "image/webp"
    case .avif: "image/avif"
    case .heic: "image/heic"
    case .jxl: "image/jxl"
    case .tiff: "image/tiff"
    case .gif: "image/gif"
    case .jp2: "image/jp2"
    case .bmp: "image/bmp"
    case .ico: "image/vnd.microsoft.icon"
    case .svg: "image/svg+xml"
    case .pdf: "application/pdf"
    }
  }

  /// The name as people write it.
  public var displayName: String {
    switch self {
    case .webp: "WebP"
    case .jxl: "JPEG XL"
    case .jp2: "JPEG 2000"
    default: rawValue.uppercased()
    }
  }

  /// Whether all frames of an animation are read.
  public var isAnimated: Bool { self == .gif || self == .webp }

  /// Whether `Image.encoded` writes it.
  public var canEncode: Bool {
    switch self {
    case .jpeg, .png, .webp, .avif, .jxl, .tiff, .gif: true
    case .heic, .jp2, .bmp, .ico, .svg, .pdf: false
    }
  }

  /// Whether samples of 16 bits can be handed to its encoder.
  public var holdsSixteenBits: Bool { [.png, .tiff, .avif, .jxl].contains(self) }

  /// Whether the file can name the space of its colours.
  public var holdsProfile: Bool { self != .gif && self != .bmp && self != .ico }

  /// Whether it has pictures of one band. Others store grey as colour.
  public var holdsGrey: Bool { [.png, .tiff, .jpeg, .jxl].contains(self) }

  /// Whether it is a drawing, run by a renderer rather than decoded, and so read only where the job allows it by name.
  public var needsPermission: Bool { self == .svg || self == .pdf }

  /// Whether the format can hold an alpha band as it is written here; in GIF a pixel is either opaque or clear.
  public var hasAlpha: Bool { self != .jpeg && self != .bmp }

  /// The libvips operation that reads it, by nickname; empty for BMP and ICO, which are read without libvips.
  public var loader: String {
    switch self {
    case .jpeg: "jpegload_source"
    case .png: "pngload_source"
    case .webp: "webpload_source"
    case .avif, .heic: "heifload_source"
    case .jxl: "jxlload_source"
    case .tiff: "tiffload_source"
    case .gif: "gifload_source"
    case .jp2: "jp2kload_source"
    case .svg: "svgload_source"
    case .pdf: "pdfload_source"
    case .bmp, .ico: ""
    }
  }

  /// The libvips operation that writes it, by nickname; nil where the format is not written.
  public var saver: String? {
    switch self {
    case .jpeg: "jpegsave_buffer"
    case .png: "pngsave_buffer"
    case .webp: "webpsave_buffer"
    case .avif: "heifsave_buffer"
    case .jxl: "jxlsave_buffer"
    case .tiff: "tiffsave_buffer"
    case .gif: "gifsave_buffer"
    case .heic, .jp2, .bmp, .ico, .svg, .pdf: nil
    }
  }

  /// The longest side that is written, in pixels; nil where nothing but memory and `DecodeLimits` bounds it.
  ///
  /// JPEG: ITU-T T.81, B.2.2. WebP: RFC 9649, 14 bits. AVIF: the advanced profile's 16,384. JPEG XL: ISO/IEC 18181-1,
  /// level 10. PNG: 31 bits. GIF: 16 bits.
  public var maxSide: Int? {
    switch self {
    case .jpeg: 65_535
    case .webp: 16_383
    case .avif: 16_384
    case .gif: 65_535
    case .png: (1 << 31) - 1
    case .jxl: 1 << 30
    case .tiff, .heic, .jp2, .bmp, .ico, .svg, .pdf: nil
    }
  }
}

extension PictureFormat {
  /// What the names of libvips' operations for this format contain, in its error text.
  var errorWords: [String] {
    switch self {
    case .jpeg: ["jpeg"]
    case .png: ["png", "spng"]
    case .webp: ["webp"]
    case .avif, .heic: ["heif"]
    case .jxl: ["jxl"]
    case .tiff: ["tiff"]
    case .gif: ["gif"]
    case .jp2: ["jp2k"]
    case .svg: ["svg"]
    case .pdf: ["pdf", "poppler"]
    case .bmp, .ico: []
    }
  }
}
