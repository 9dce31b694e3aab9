import CVips

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
  /// Whether pixels are stored in several passes over the picture, so that its decoder holds all of it.
  public var isProgressive = false

  public var orientedWidth: Int { orientation >= 5 ? height : width }
  public var orientedHeight: Int { orientation >= 5 ? width : height }
  public var pixels: Int { width * height }

  /// What the decoder holds at its peak beside the picture itself and the file, in bytes.
  ///
  /// Of JPEG, PNG and WebP measured as the peak of a process that decodes 24 megapixels; of the others the planes, frames
  /// and coefficients that their libraries keep for the whole picture.
  public var decoderBytes: Int {
    let perPixel =
      switch format {
      // The coefficients of all passes, two bytes each.
      case .jpeg: isProgressive ? 2 * bands : 0
      // A copy that is filled pass by pass.
      case .png: isProgressive ? bands * (bitsPerSample > 8 ? 2 : 1) : 0
      case .webp: 4
      // Planes of the picture and of the frame it was predicted from, and their mix.
      case .avif, .heic: bitsPerSample > 8 ? 16 : 8
      // Three channels in floating point, twice.
      case .jxl: 24
      // Coefficients of 32 bits, and what is made of them.
      case .jp2: 8 * bands
      case .gif, .bmp, .ico: 4
      case .tiff, .svg, .pdf: 0
      }
    return pixels * perPixel
  }

  /// The bytes of the whole picture decoded to this program's working space, 8-bit sRGB.
  public var estimatedDecodedBytes: Int { width * height * (hasAlpha ? 4 : 3) }
}

/// Headers: by our own reading first, then by the format's decoder.
extension EncodedPicture {
  /// What the first bytes say; no decoder is asked.
  struct Sniffed {
    var format: PictureFormat
    var probe: HeaderProbe?
    var bitmap: BitmapDecoder?
  }

  static func sniffed(_ raw: UnsafeRawBufferPointer, limits: DecodeLimits) throws(ImagingError) -> Sniffed {
    guard raw.count > 0 else { throw ImagingError(.empty, "the file is empty") }
    guard let format = FormatSniffer.format(of: raw) else { throw unsupported(raw) }
    let probe = HeaderProbe(raw, format)
    // A drawing's sides depend on how it is drawn.
    if let probe, !format.needsPermission {
      try check(probe.width, probe.height, format: format, limits: limits)
    }
    return Sniffed(format: format, probe: probe, bitmap: format == .bmp ? try BitmapDecoder(header: raw) : nil)
  }

  /// What the decoder finds, with no pixel decoded.
  ///
  /// - Throws: `damaged`, `limit`, and `unsupported` where this libvips has no such decoder.
  static func header(
    _ file: Sniffed, _ limits: DecodeLimits, _ onDamage: DamagePolicy = .fail,
    _ open: () -> UnsafeMutablePointer<VipsSource>?
  ) throws(ImagingError) -> PictureHeader {
    let (format, probe) = (file.format, file.probe)
    if let bitmap = file.bitmap {
      return PictureHeader(
        format: format, width: bitmap.width, height: bitmap.height, orientation: 1, bands: bitmap.hasAlpha ? 4 : 3,
        hasAlpha: bitmap.hasAlpha, bitsPerSample: 8, frames: 1, hasProfile: false, interpretation: "srgb")
    }
    guard let source = open() else {
      throw ImagingError(.internalFault, "libvips could not open the bytes", detail: Libvips.drainErrors())
    }
    defer { cvips_unref(source) }
    var out: UnsafeMutablePointer<VipsImage>?
    // Some loaders look at all frames for the header, and find there what is missing at the end.
    let level = onDamage == .fail ? VIPS_FAIL_ON_ERROR : VIPS_FAIL_ON_NONE
    guard cvips_load(format.loader, source, &out, level) == 0, let out else {
      let detail = Libvips.drainErrors(about: format.errorWords)
      guard Libvips.supports(format.loader) else {
        throw ImagingError(
          .unsupported, "this build of libvips does not read \(format.displayName)", detail: detail,
          hint: "install a libvips with \(format.displayName) support")
      }
      throw damagedHeader(format, detail)
    }
    let image = VipsRef(adopting: out)
    try check(image.width, image.height, format: format, limits: limits)
    // The "pages" of JPEG 2000 are smaller versions of the same picture.
    let frames = format == .jp2 ? 1 : max(image.int("n-pages") ?? 1, probe?.frames ?? 1)
    guard frames <= limits.maxFrames else { throw tooManyFrames(frames, limits) }
    return PictureHeader(
      format: format, width: image.width, height: image.height, orientation: orientation(of: image, format),
      bands: image.bands, hasAlpha: image.hasAlpha, bitsPerSample: image.bitsPerSample, frames: frames,
      hasProfile: image.has("icc-profile-data"),
      interpretation: String(
        cString: vips_enum_nick(vips_interpretation_get_type(), Int32(image.interpretation.rawValue))),
      isProgressive: probe?.isProgressive ?? false)
  }

  static func damagedHeader(_ format: PictureFormat, _ detail: String = "") -> ImagingError {
    ImagingError(
      .damaged, "the header of this \(format.displayName) picture cannot be read", detail: detail,
      hint: "the file may be cut short or of another kind; open it in an image editor, or get it anew")
  }

  static func check(
    _ width: Int, _ height: Int, format: PictureFormat, limits: DecodeLimits
  ) throws(ImagingError) {
    guard width > 0, height > 0 else {
      throw damagedHeader(format, "it claims \(width)×\(height) pixels")
    }
    guard max(width, height) <= limits.maxSide else {
      throw ImagingError(
        .limit, "the picture claims \(width)×\(height) pixels; a side may have \(limits.maxSide)",
        hint: "raise limits.maxSide if that is meant")
    }
    guard width * height <= limits.maxPixels else {
      throw ImagingError(
        .limit,
        "the picture claims \(width)×\(height) = \(width * height) pixels, more than the limit of \(limits.maxPixels)",
        hint: "raise limits.maxPixels if that is meant")
    }
  }

  /// The orientation still to be applied, from the main image's own EXIF.
  private static func orientation(of image: VipsRef, _ format: PictureFormat) -> Int {
    let value: Int?
    switch format {
    case .heic, .avif, .jxl, .gif, .jp2, .bmp, .ico, .svg, .pdf: value = nil
    case .tiff: value = image.int("orientation")
    case .jpeg, .png, .webp:
      value = image.blob("exif-data").flatMap { ExifTags($0) }?.orientation ?? image.int("orientation")
    }
    guard let value, (1...8).contains(value) else { return 1 }
    return value
  }
}

extension VipsRef {
  fileprivate var bitsPerSample: Int {
    switch format {
    case VIPS_FORMAT_UCHAR, VIPS_FORMAT_CHAR: 8
    case VIPS_FORMAT_USHORT, VIPS_FORMAT_SHORT: 16
    case VIPS_FORMAT_DOUBLE, VIPS_FORMAT_COMPLEX: 64
    case VIPS_FORMAT_DPCOMPLEX: 128
    default: 32
    }
  }
}
