/// How large a picture may be before it is refused, checked from its header before any pixel is decoded.
public struct DecodeLimits: Sendable, Hashable {
  /// Width × height, in pixels.
  public var maxPixels: Int
  /// The longer side, in pixels.
  public var maxSide: Int
  /// Frames or pages in one file.
  public var maxFrames: Int

  public init(maxPixels: Int = 120_000_000, maxSide: Int = 65_500, maxFrames: Int = 1_000) {
    self.maxPixels = maxPixels
    self.maxSide = maxSide
    self.maxFrames = maxFrames
  }
}
