/// What a picture's header says.
public struct PictureHeader: Sendable, Hashable {
  public var format: PictureFormat
  /// Sides as stored, in pixels, before orientation.
  public var width: Int
  public var height: Int
  /// EXIF orientation still to be applied, 1…8. Always 1 where the decoder applies it itself (HEIC, AVIF, JPEG XL).
  public var orientation: Int
  public var bands: Int
  public var hasAlpha: Bool
  public var bitsPerSample: Int
  /// Frames or pages in the file.
  public var frames: Int
  /// Whether an ICC profile is embedded.
  public var hasProfile: Bool
  /// libvips' name for the colour space, such as `srgb`, `b-w`, `cmyk`, `rgb16`.
  public var interpretation: String

  public var orientedWidth: Int { orientation >= 5 ? height : width }
  public var orientedHeight: Int { orientation >= 5 ? width : height }
  public var pixels: Int { width * height }

  /// The bytes of the whole picture decoded to this program's working space, 8-bit sRGB.
  public var estimatedDecodedBytes: Int { width * height * (hasAlpha ? 4 : 3) }
}

/// An encoded picture whose header was read and found within the limits. No pixel is decoded yet.
public final class EncodedPicture: Sendable {
  public let bytes: EncodedBytes
  public let header: PictureHeader
  public let limits: DecodeLimits

  /// Sniffs the format, reads the header and checks the limits.
  ///
  /// - Throws: `empty`, `unsupported`, `damaged`, or `limit`.
  public init(bytes: EncodedBytes, limits: DecodeLimits = DecodeLimits()) throws(ImagingError) {
    preconditionFailure("not yet written")
  }

  /// Reads a whole file.
  ///
  /// - Parameter path: the path's bytes, without a closing zero.
  /// - Throws: `io` where it cannot be read or is not a regular file, `empty`, `limit` over `maxBytes`, `memory`.
  public static func read(path: [UInt8], maxBytes: Int = 4 << 30) throws(ImagingError) -> EncodedBytes {
    preconditionFailure("not yet written")
  }

  /// Reads the header of a file on disk without reading all of it.
  ///
  /// - Throws: as `read` and `init`.
  public static func verifyHeader(
    path: [UInt8], limits: DecodeLimits = DecodeLimits()
  ) throws(ImagingError) -> PictureHeader {
    preconditionFailure("not yet written")
  }

  /// What was noticed and is not an error: more frames than the first, a profile that could not be used, …
  public var warnings: [String] { [] }

  /// The picture upright in 8-bit sRGB, 3 bands, or 4 with straight alpha.
  ///
  /// The image is lazy and can be evaluated once: damaged pixels show when it is materialised, encoded or read.
  public func decode() throws(ImagingError) -> Image {
    preconditionFailure("not yet written")
  }

  /// As `decode()` and then `resized(plan)`, but decoding no more of the picture than the plan needs.
  public func decode(resizedTo plan: ResizePlan) throws(ImagingError) -> Image {
    preconditionFailure("not yet written")
  }
}
