/// What metadata an encoded picture carries.
public enum MetadataPolicy: String, CaseIterable, Sendable {
  /// Nothing at all; the pixels are sRGB.
  case none
  /// Copyright, author and colour profile; place, device, dates and thumbnails go.
  case copyright
  /// Everything, with the orientation reset (it is baked in) and the embedded thumbnail dropped.
  case all
}

/// How an image is encoded.
public enum EncodeOptions: Sendable, Hashable {
  case jpeg(JPEG)
  case png(PNG)
  case webp(WebP)
  case avif(AVIF)
  case tiff(TIFF)

  public struct JPEG: Sendable, Hashable {
    public enum Chroma: String, CaseIterable, Sendable {
      /// 4:2:0 below quality 90, 4:4:4 from there on.
      case auto
      case quarter = "420"
      case full = "444"
    }
    /// 1…100.
    public var quality = 80
    public var progressive = false
    public var chroma = Chroma.auto
    /// Whether Huffman tables are made for the picture: smaller, a little slower.
    public var optimiseCoding = true
    public init(
      quality: Int = 80, progressive: Bool = false, chroma: Chroma = .auto, optimiseCoding: Bool = true
    ) {
      self.quality = quality
      self.progressive = progressive
      self.chroma = chroma
      self.optimiseCoding = optimiseCoding
    }
  }

  public struct PNG: Sendable, Hashable {
    /// zlib level 0…9.
    public var compression = 2
    /// Whether to quantise to a palette (lossy).
    public var palette = false
    /// Colours in the palette, 2…256; rounded up to 2, 4, 16 or 256, as the file format counts.
    public var colors = 256
    public init(compression: Int = 2, palette: Bool = false, colors: Int = 256) {
      self.compression = compression
      self.palette = palette
      self.colors = colors
    }
  }

  public struct WebP: Sendable, Hashable {
    /// 1…100; ignored where lossless.
    public var quality = 80
    public var lossless = false
    /// 0 fast … 6 small.
    public var effort = 4
    /// Quality of the alpha band, 0…100.
    public var alphaQuality = 100
    public init(quality: Int = 80, lossless: Bool = false, effort: Int = 4, alphaQuality: Int = 100) {
      self.quality = quality
      self.lossless = lossless
      self.effort = effort
      self.alphaQuality = alphaQuality
    }
  }

  public struct AVIF: Sendable, Hashable {
    /// 1…100.
    public var quality = 50
    /// 0 fast … 9 small.
    public var effort = 4
    public init(quality: Int = 50, effort: Int = 4) {
      self.quality = quality
      self.effort = effort
    }
  }

  public struct TIFF: Sendable, Hashable {
    public enum Compression: String, CaseIterable, Sendable { case none, lzw, deflate, jpeg }
    public var compression = Compression.lzw
    /// 1…100, for `jpeg` compression.
    public var quality = 80
    public init(compression: Compression = .lzw, quality: Int = 80) {
      self.compression = compression
      self.quality = quality
    }
  }

  public var format: PictureFormat {
    switch self {
    case .jpeg: .jpeg
    case .png: .png
    case .webp: .webp
    case .avif: .avif
    case .tiff: .tiff
    }
  }
}
