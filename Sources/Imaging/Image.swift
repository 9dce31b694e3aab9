import CVips

/// A picture in 8-bit sRGB: 3 bands, or 4 with straight alpha; a matte has 1 band.
///
/// Images are immutable and lazy: an operation describes work, and pixels are computed when the image is materialised,
/// encoded or read. An image that comes straight from `EncodedPicture.decode` can be evaluated once only; materialise
/// it to use it several times.
public final class Image: @unchecked Sendable {
  // Unchecked: a VipsImage is immutable once built, its reference count is atomic, and libvips locks its own caches.
  let vips: UnsafeMutablePointer<VipsImage>

  public let width: Int
  public let height: Int
  public let bands: Int

  init(adopting vips: UnsafeMutablePointer<VipsImage>) {
    preconditionFailure("not yet written")
  }

  /// Whether there is an alpha band, the last of 2 or 4.
  public var hasAlpha: Bool { bands == 2 || bands == 4 }
  /// Whether an ICC profile is attached.
  public var hasProfile: Bool { preconditionFailure("not yet written") }
  /// The bytes of its pixels.
  public var byteCount: Int { width * height * bands }

  /// Copies interleaved 8-bit pixels, rows from the top without padding.
  ///
  /// - Throws: `geometry` unless `bands` is 1…4 and `bytes` holds exactly `width * height * bands`.
  public convenience init(width: Int, height: Int, bands: Int, bytes: [UInt8]) throws(ImagingError) {
    preconditionFailure("not yet written")
  }

  /// One colour all over: 3 bands where it is opaque, else 4.
  public static func solid(width: Int, height: Int, _ colour: RGBA) throws(ImagingError) -> Image {
    preconditionFailure("not yet written")
  }

  /// Interleaved 8-bit pixels, `byteCount` of them.
  public func bytes() throws(ImagingError) -> [UInt8] { preconditionFailure("not yet written") }

  /// Reads the pixels in place (interleaved 8 bit), materialising first where needed.
  public func withPixels<R>(_ body: (UnsafeRawBufferPointer) -> R) throws(ImagingError) -> R {
    preconditionFailure("not yet written")
  }

  /// The same picture with its pixels computed and held in memory.
  public func materialised() throws(ImagingError) -> Image { preconditionFailure("not yet written") }

  /// Scaled, then cropped or padded, then sharpened, as planned.
  public func resized(_ plan: ResizePlan) throws(ImagingError) -> Image { preconditionFailure("not yet written") }

  /// Scaled to exactly these sides, whatever the ratio.
  public func stretched(width: Int, height: Int, kernel: Kernel = .lanczos3) throws(ImagingError) -> Image {
    preconditionFailure("not yet written")
  }

  /// The rectangle at `x`, `y`.
  public func cropped(x: Int, y: Int, width: Int, height: Int) throws(ImagingError) -> Image {
    preconditionFailure("not yet written")
  }

  /// The alpha band as a 1-band image; all 255 where there is no alpha.
  public func alphaBand() throws(ImagingError) -> Image { preconditionFailure("not yet written") }

  /// The colours with `matte` (1 band, same sides) as alpha, in place of any alpha there was.
  public func withAlpha(_ matte: Image) throws(ImagingError) -> Image { preconditionFailure("not yet written") }

  /// The colours with alpha = existing alpha × `matte` / 255, rounded.
  public func multipliedAlpha(by matte: Image) throws(ImagingError) -> Image {
    preconditionFailure("not yet written")
  }

  /// The colours alone; what was transparent shows the colour stored under it.
  public func withoutAlpha() throws(ImagingError) -> Image { preconditionFailure("not yet written") }

  /// Laid on a background colour; the colour's own alpha is not used.
  public func flattened(_ background: RGBA) throws(ImagingError) -> Image { preconditionFailure("not yet written") }

  /// Laid over `background`, which must have the same sides. The metadata of the upper image stays.
  ///
  /// Porter–Duff "over" with straight alpha in sRGB; opaque pixels come through exactly.
  public func composited(over background: Image) throws(ImagingError) -> Image {
    preconditionFailure("not yet written")
  }

  /// Gaussian blur, radius `sigma` in pixels; colours are weighed by alpha.
  public func blurred(sigma: Double) throws(ImagingError) -> Image { preconditionFailure("not yet written") }

  /// The background of a photo blurred, without the subject glowing into it.
  ///
  /// blur(rgb · (1 − m)) / blur(1 − m), with m the matte in 0…1; where no background is near, the plain blur.
  /// - Parameters:
  ///   - original: the photo; its alpha is ignored. 3 bands come back.
  ///   - matte: 1 band, same sides, 255 on the subject.
  public static func backgroundBlur(original: Image, matte: Image, sigma: Double) throws(ImagingError) -> Image {
    preconditionFailure("not yet written")
  }

  /// Whether every pixel is opaque. Evaluates the image where it has alpha.
  public func isOpaque() throws(ImagingError) -> Bool { preconditionFailure("not yet written") }

  /// The same pixels with the metadata (EXIF, XMP, ICC profile, …) of `other`.
  public func withMetadata(of other: Image) throws(ImagingError) -> Image { preconditionFailure("not yet written") }
}
