/// How an image is encoded.
public enum EncodeOptions: Sendable, Hashable {
  case jpeg(JPEG)
  case png(PNG)
  case webp(WebP)
  case avif(AVIF)
  case jxl(JXL)
  case tiff(TIFF)
  case gif(GIF)

  /// How finely colour is stored beside brightness, in formats that can tell them apart.
  public enum Chroma: String, CaseIterable, Sendable {
    /// 4:2:0 below quality 90, 4:4:4 from there on.
    case auto
    case quarter = "420"
    case full = "444"
  }

  public struct JPEG: Sendable, Hashable {
    public typealias Chroma = EncodeOptions.Chroma
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
    /// As zlib counts: 0, stored, fast, to 9, small and slow.
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
    /// 8 or 12 bits a sample. With 10 the encoder of libheif 1.15 ends the process (an assertion of libaom's), and 16
    /// makes a broken file.
    public var bitDepth = 8
    public var chroma = Chroma.auto
    public init(
      quality: Int = 50, effort: Int = 4, bitDepth: Int = 8, chroma: Chroma = .auto
    ) {
      self.quality = quality
      self.effort = effort
      self.bitDepth = bitDepth
      self.chroma = chroma
    }
  }

  public struct JXL: Sendable, Hashable {
    /// 1…100; libvips makes a Butteraugli distance of it: 90 is 1.0, where most eyes see no difference. Ignored where
    /// lossless.
    public var quality = 80
    public var lossless = false
    /// 3 fast … 9 small.
    public var effort = 7
    public init(quality: Int = 80, lossless: Bool = false, effort: Int = 7) {
      self.quality = quality
      self.lossless = lossless
      self.effort = effort
    }
  }

  public struct TIFF: Sendable, Hashable {
    public enum Compression: String, CaseIterable, Sendable { case none, lzw, deflate, zstd, jpeg }
    public var compression = Compression.lzw
    /// 1…100, for `jpeg` compression.
    public var quality = 80
    public init(compression: Compression = .lzw, quality: Int = 80) {
      self.compression = compression
      self.quality = quality
    }
  }

  public struct GIF: Sendable, Hashable {
    /// 1 fast … 10 fine: the search for a palette.
    public var effort = 7
    /// 0 none … 1 full: how much the rounding to the palette is spread.
    public var dither = 1.0
    /// Colours in a palette, 2…256; rounded up to a power of 2, as the file format counts. One of them is transparent.
    public var colors = 256
    /// 0…32: how far a pixel may be from the frame before it and still count as unchanged.
    public var interframeMaxError = 0.0
    public init(effort: Int = 7, dither: Double = 1, colors: Int = 256, interframeMaxError: Double = 0) {
      self.effort = effort
      self.dither = dither
      self.colors = colors
      self.interframeMaxError = interframeMaxError
    }
  }

  public var format: PictureFormat {
    switch self {
    case .jpeg: .jpeg
    case .png: .png
    case .webp: .webp
    case .avif: .avif
    case .jxl: .jxl
    case .tiff: .tiff
    case .gif: .gif
    }
  }
}
