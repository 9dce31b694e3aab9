/// How large a picture may be before it is refused, checked from its header before any pixel is decoded.
public struct DecodeLimits: Sendable, Hashable {
  /// Width × height, in pixels; of an animation that is read whole, all frames together.
  public var maxPixels: Int
  /// The longer side, in pixels.
  public var maxSide: Int
  /// Frames or pages in one file.
  public var maxFrames: Int
  /// Bytes of the embedded colour profile, unpacked.
  public var maxProfileBytes: Int
  /// Bytes of EXIF, XMP, IPTC, comments and text together, unpacked.
  public var maxMetadataBytes: Int
  /// Bytes of pixels that one byte of the file may stand for; looked at only above 64 MiB of pixels.
  public var maxExpansion: Int

  public init(
    maxPixels: Int = 120_000_000, maxSide: Int = 65_500, maxFrames: Int = 1_000, maxProfileBytes: Int = 16 << 20,
    maxMetadataBytes: Int = 16 << 20, maxExpansion: Int = 10_000
  ) {
    self.maxPixels = maxPixels
    self.maxSide = maxSide
    self.maxFrames = maxFrames
    self.maxProfileBytes = maxProfileBytes
    self.maxMetadataBytes = maxMetadataBytes
    self.maxExpansion = maxExpansion
  }

  /// For files of our own making: limits protect against pictures from outside.
  public static let unlimited = DecodeLimits(
    maxPixels: .max, maxSide: .max, maxFrames: .max, maxProfileBytes: .max, maxMetadataBytes: .max, maxExpansion: .max)
}
