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

  /// Whether `Image.encoded` writes it.
  public var canEncode: Bool {
    switch self {
    case .jpeg, .png, .webp, .avif, .tiff: true
    case .heic, .jxl, .gif, .jp2, .bmp, .ico, .svg, .pdf: false
    }
  }

  /// Whether it is a drawing, run by a renderer rather than decoded, and so read only where the job allows it by name.
  public var needsPermission: Bool { self == .svg || self == .pdf }

  /// Whether the format can hold an alpha band as it is written here.
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
    case .tiff: "tiffsave_buffer"
    case .heic, .jxl, .gif, .jp2, .bmp, .ico, .svg, .pdf: nil
    }
  }

  /// The longest side the format can hold, in pixels, where it is shorter than `DecodeLimits` allows by default.
  public var maxSide: Int? {
    switch self {
    case .jpeg: 65_535
    case .webp: 16_383
    case .avif: 16_384
    default: nil
    }
  }
}
