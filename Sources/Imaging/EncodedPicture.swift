import CVips
import Digest
import Synchronization

/// An encoded picture whose header was read and found within the limits. No pixel is decoded yet.
public final class EncodedPicture: Sendable {
  public let bytes: EncodedBytes
  public let header: PictureHeader
  public let options: DecodeOptions
  /// The file as it was read; nil where the bytes came from elsewhere.
  public let sourceStamp: FileStamp?
  /// What the decoder gets: the bytes, or the part of them that is the picture, unpacked.
  let body: EncodedBytes
  let content: Content
  /// A profile that the header describes in other words than by embedding one.
  let declared: ICCProfile?
  private let noticed: Mutex<[String]>
  private let damage = Mutex<Set<String>>([])

  /// What lies in `body`.
  enum Content {
    case file(PictureFormat)
    /// A bitmap of an icon.
    case icon(IconDirectory.Entry)
    case svg
    case pdf
  }

  /// Sniffs the format, reads the header and checks the limits.
  ///
  /// - Parameter stamp: the file that the bytes were read from.
  /// - Throws: `empty`, `unsupported`, `damaged`, or `limit`.
  public init(bytes: EncodedBytes, options: DecodeOptions, stamp: FileStamp? = nil) throws(ImagingError) {
    try Libvips.start()
    self.bytes = bytes
    self.options = options
    sourceStamp = stamp
    let opened = try Self.open(bytes, options)
    (body, content, header) = (opened.body, opened.content, opened.header)
    var warnings = opened.warnings
    let isGrey = header.bands < 3
    let colours = body.withUnsafeBytes { raw -> DeclaredColour in
      switch opened.content {
      case .file(.png): .png(raw)
      case .file(.avif), .file(.heic): .heif(raw)
      case .file, .icon, .svg, .pdf: .none
      }
    }
    switch colours {
    case .described(let description): declared = description.profile(grey: isGrey).map { ICCProfile(bytes: $0) }
    case .unsupported(let what):
      declared = nil
      warnings.append("the picture's colours are \(what); they are read as sRGB")
    case .embedded:
      declared = nil
      // The decoder keeps none that it finds broken, and does not say so.
      if !header.hasProfile { warnings.append(ICCProfile.unusable) }
    case .none, .sRGB: declared = nil
    }
    if header.frames > 1, options.frames == .first || !header.format.isAnimated {
      let unit =
        switch header.format {
        case .tiff, .pdf: "pages"
        case .ico: "pictures"
        default: "frames"
        }
      let more = options.frames == .first ? "" : ": only GIF and WebP are read as animations"
      let used = header.format == .ico ? "the largest" : "the first"
      warnings.append("the file holds \(header.frames) \(unit); only \(used) is used\(more)")
    }
    noticed = Mutex(warnings)
    damage.withLock { $0 = Set(opened.warnings.filter { $0.hasPrefix(Self.partly("")) }) }
    // Frames are held together.
    let (limits, frames) = (options.limits, header.frames)
    guard !isAnimation || header.pixels <= limits.maxPixels / frames else {
      throw ImagingError(
        .limit,
        "the \(frames) frames of \(header.width)×\(header.height) have \(header.pixels * frames) pixels together, more "
          + "than the limit of \(limits.maxPixels)",
        hint: "raise limits.maxPixels if that is meant, or read the first frame only: \"frames\": \"first\"")
    }
  }

  /// The same picture with other bytes for its decoder.
  init(_ picture: EncodedPicture, mended body: EncodedBytes) {
    (bytes, options, header) = (picture.bytes, picture.options, picture.header)
    sourceStamp = picture.sourceStamp
    (content, declared) = (picture.content, picture.declared)
    self.body = body
    noticed = Mutex([])
  }

  public convenience init(bytes: EncodedBytes, limits: DecodeLimits = DecodeLimits()) throws(ImagingError) {
    try self.init(bytes: bytes, options: DecodeOptions(limits: limits))
  }

  /// Whether there are several frames and all of them are wanted: `animation()` decodes them.
  public var isAnimation: Bool {
    header.frames > 1 && options.frames == .all && header.format.isAnimated
  }

  /// What was noticed and is not an error: more frames than the first, a profile that could not be used, …
  public var warnings: [String] { noticed.withLock { $0 } }

  /// Those of `warnings` that tell of damaged pixels.
  public var damageWarnings: Set<String> { damage.withLock { $0 } }

  func warnOfDamage(_ text: String) {
    damage.withLock { _ = $0.insert(text) }
    warn(text)
  }

  func warn(_ text: String) {
    noticed.withLock { list in if !list.contains(text) { list.append(text) } }
  }

  /// The picture upright in its working space, with its pixels in memory, scaled, cropped or padded by `plan` where
  /// there is one. Damage is dealt with as the options say.
  ///
  /// - Throws: `damaged`, `memory`, and `geometry` where the plan was made for other sides.
  public func pixels(resizedTo plan: ResizePlan? = nil) throws(ImagingError) -> Image {
    try withDamage { (picture, level) throws(ImagingError) in try picture.decode(plan, level).materialised() }
  }

  /// All frames, upright, in their working space, with their pixels in memory. One frame where there is but one.
  ///
  /// - Throws: as `pixels`.
  public func animation() throws(ImagingError) -> Animation {
    guard isAnimation else { return Animation(frames: [try pixels()], delays: [0], loop: 0) }
    return try withDamage { (picture, level) throws(ImagingError) in try picture.decodeFrames(level) }
  }

  /// The picture upright in its working space.
  ///
  /// The image is lazy and can be evaluated once: damaged pixels show when it is materialised, encoded or read.
  public func decode() throws(ImagingError) -> Image { try decode(nil, VIPS_FAIL_ON_ERROR) }

  /// As `decode()` and then `resized(plan)`, but decoding no more of the picture than the plan needs.
  ///
  /// JPEG and WebP are shrunk by their decoders as far as that keeps the result within a few levels; colours are
  /// converted after the resize, where there are fewer pixels.
  /// - Throws: `geometry` where the plan was made for other sides, and what `decode` throws.
  public func decode(resizedTo plan: ResizePlan) throws(ImagingError) -> Image {
    try decode(plan, VIPS_FAIL_ON_ERROR)
  }
}
