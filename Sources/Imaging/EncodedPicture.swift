import CVips
import Synchronization

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
  private let noticed: Mutex<[String]>

  /// Sniffs the format, reads the header and checks the limits.
  ///
  /// - Throws: `empty`, `unsupported`, `damaged`, or `limit`.
  public init(bytes: EncodedBytes, limits: DecodeLimits = DecodeLimits()) throws(ImagingError) {
    try Libvips.start()
    self.bytes = bytes
    self.limits = limits
    header = try bytes.withUnsafeBytes { (raw) throws(ImagingError) in
      try Self.header(raw, limits: limits) { vips_source_new_from_blob(bytes.blob) }
    }
    var warnings: [String] = []
    if header.frames > 1 {
      let unit = header.format == .tiff ? "pages" : "frames"
      warnings.append("the file holds \(header.frames) \(unit); only the first is used")
    }
    noticed = Mutex(warnings)
  }

  /// What was noticed and is not an error: more frames than the first, a profile that could not be used, …
  public var warnings: [String] { noticed.withLock { $0 } }

  private func warn(_ text: String) {
    noticed.withLock { list in if !list.contains(text) { list.append(text) } }
  }

  // MARK: Files

  /// Opens a picture file: looks at its first bytes before it reads the rest, so that a film among the photos costs
  /// no memory.
  ///
  /// - Parameter path: the path's bytes, without a closing zero.
  /// - Throws: as `read` and `init`.
  public convenience init(path: [UInt8], limits: DecodeLimits = DecodeLimits()) throws(ImagingError) {
    let (fd, size) = try Self.open(path)
    defer { _ = cvips_close(fd) }
    if size > 64 << 10 {
      var prefix = [UInt8](repeating: 0, count: 64 << 10)
      let count = prefix.withUnsafeMutableBytes { cvips_read(fd, $0.baseAddress, $0.count) }
      if count > 0, FormatSniffer.format(of: prefix.prefix(Int(count))) == nil {
        throw Self.unsupported(prefix.prefix(Int(count)))
      }
    }
    try self.init(bytes: Self.read(path: path), limits: limits)
  }

  /// Reads a whole file.
  ///
  /// - Parameter path: the path's bytes, without a closing zero.
  /// - Throws: `io` where it cannot be read or is not a regular file, `empty`, `limit` over `maxBytes`, `memory`.
  public static func read(path: [UInt8], maxBytes: Int = 4 << 30) throws(ImagingError) -> EncodedBytes {
    let (fd, size) = try open(path)
    defer { _ = cvips_close(fd) }
    guard size <= maxBytes else {
      throw ImagingError(.limit, "\(named(path)) has \(size) bytes, more than the \(maxBytes) that are read")
    }
    guard let memory = g_try_malloc(gsize(size)) else {
      throw ImagingError(.memory, "there is no memory for the \(size) bytes of \(named(path))")
    }
    let count = cvips_read(fd, memory, size)
    guard count > 0 else {
      g_free(memory)
      guard count < 0 else { throw ImagingError(.empty, "\(named(path)) is empty") }
      throw ImagingError(.io, "\(named(path)) could not be read", detail: systemMessage(Int32(-count)))
    }
    return EncodedBytes(adopting: memory, count: Int(count))
  }

  /// Reads the header of a file on disk without reading all of it.
  ///
  /// - Throws: as `read` and `init`.
  public static func verifyHeader(
    path: [UInt8], limits: DecodeLimits = DecodeLimits()
  ) throws(ImagingError) -> PictureHeader {
    try Libvips.start()
    let (fd, size) = try open(path)
    defer { _ = cvips_close(fd) }
    var prefix = [UInt8](repeating: 0, count: min(size, 64 << 10))
    let count = prefix.withUnsafeMutableBytes { cvips_read(fd, $0.baseAddress, $0.count) }
    guard count >= 0, cvips_rewind(fd) == 0 else {
      throw ImagingError(.io, "\(named(path)) could not be read", detail: systemMessage(Int32(-count)))
    }
    // libvips duplicates the descriptor, so ours is closed on every path.
    let result: Result<PictureHeader, ImagingError> = prefix.withUnsafeBytes { raw in
      do throws(ImagingError) {
        return .success(
          try header(UnsafeRawBufferPointer(rebasing: raw[..<Int(count)]), limits: limits) {
            vips_source_new_from_descriptor(fd)
          })
      } catch {
        return .failure(error)
      }
    }
    return try result.get()
  }

  private static func open(_ path: [UInt8]) throws(ImagingError) -> (fd: Int32, size: Int) {
    let fd = (path.map { CChar(bitPattern: $0) } + [0]).withUnsafeBufferPointer { cvips_open($0.baseAddress) }
    guard fd >= 0 else {
      throw ImagingError(.io, "\(named(path)) could not be opened", detail: systemMessage(-fd))
    }
    let size = cvips_file_size(fd)
    guard size > 0 else {
      _ = cvips_close(fd)
      if size == 0 { throw ImagingError(.empty, "\(named(path)) is empty") }
      if size == -Int64(EINVAL) { throw ImagingError(.io, "\(named(path)) is not a regular file") }
      throw ImagingError(.io, "\(named(path)) could not be read", detail: systemMessage(Int32(-size)))
    }
    return (fd, Int(size))
  }

  private static func named(_ path: [UInt8]) -> String { String(decoding: path, as: UTF8.self) }

  private static func systemMessage(_ code: Int32) -> String {
    guard let text = g_strerror(code) else { return "error \(code)" }
    return String(cString: text)
  }

  // MARK: Header

  private static func unsupported(_ prefix: some Collection<UInt8>) -> ImagingError {
    ImagingError(
      .unsupported, "this is \(FormatSniffer.describe(prefix)), not a picture that can be read",
      hint:
        "read are \(PictureFormat.allCases.filter { !$0.needsPermission }.map(\.displayName).joined(separator: ", "))")
  }

  private static func header(
    _ raw: UnsafeRawBufferPointer, limits: DecodeLimits, _ open: () -> UnsafeMutablePointer<VipsSource>?
  ) throws(ImagingError) -> PictureHeader {
    guard raw.count > 0 else { throw ImagingError(.empty, "the file is empty") }
    guard let format = FormatSniffer.format(of: raw), !format.needsPermission, format != .ico else {
      throw unsupported(raw)
    }
    let probe = HeaderProbe(raw, format)
    if let probe { try check(probe.width, probe.height, format: format, limits: limits) }
    if format == .bmp {
      let bitmap = try BitmapDecoder(header: raw)
      return PictureHeader(
        format: format, width: bitmap.width, height: bitmap.height, orientation: 1, bands: bitmap.hasAlpha ? 4 : 3,
        hasAlpha: bitmap.hasAlpha, bitsPerSample: 8, frames: 1, hasProfile: false, interpretation: "srgb")
    }
    guard let source = open() else {
      throw ImagingError(.internalFault, "libvips could not open the bytes", detail: Libvips.drainErrors())
    }
    defer { cvips_unref(source) }
    var out: UnsafeMutablePointer<VipsImage>?
    guard cvips_load(format.loader, source, &out) == 0, let out else {
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
    guard frames <= limits.maxFrames else {
      throw ImagingError(
        .limit, "the file holds \(frames) frames, more than the limit of \(limits.maxFrames)",
        hint: "raise limits.maxFrames if that is meant")
    }
    return PictureHeader(
      format: format, width: image.width, height: image.height, orientation: orientation(of: image, format),
      bands: image.bands, hasAlpha: image.hasAlpha, bitsPerSample: image.bitsPerSample, frames: frames,
      hasProfile: image.has("icc-profile-data"),
      interpretation: String(
        cString: vips_enum_nick(vips_interpretation_get_type(), Int32(image.interpretation.rawValue))))
  }

  private static func damagedHeader(_ format: PictureFormat, _ detail: String = "") -> ImagingError {
    ImagingError(
      .damaged, "the header of this \(format.displayName) picture cannot be read", detail: detail,
      hint: "the file may be cut short or of another kind; open it in an image editor, or get it anew")
  }

  private static func check(
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

  // MARK: Pixels

  /// The picture upright in 8-bit sRGB, 3 bands, or 4 with straight alpha.
  ///
  /// The image is lazy and can be evaluated once: damaged pixels show when it is materialised, encoded or read.
  public func decode() throws(ImagingError) -> Image {
    let loaded = try load(shrunkFor: nil)
    return try finish(WorkingSpace.convert(loaded.image, warn: warn))
  }

  /// As `decode()` and then `resized(plan)`, but decoding no more of the picture than the plan needs.
  ///
  /// JPEG and WebP are shrunk by their decoders as far as that keeps the result within a few levels; colours are
  /// converted after the resize, where there are fewer pixels.
  /// - Throws: `geometry` where the plan was made for other sides, and what `decode` throws.
  public func decode(resizedTo plan: ResizePlan) throws(ImagingError) -> Image {
    guard plan.sourceWidth == header.orientedWidth, plan.sourceHeight == header.orientedHeight else {
      throw ImagingError(
        .geometry,
        "the plan is for \(plan.sourceWidth)×\(plan.sourceHeight) pixels, "
          + "the picture has \(header.orientedWidth)×\(header.orientedHeight)")
    }
    let turned = header.orientation >= 5
    let width = turned ? plan.scaledHeight : plan.scaledWidth
    let height = turned ? plan.scaledWidth : plan.scaledHeight
    let unscaled = width == header.width && height == header.height
    let loaded = try load(shrunkFor: unscaled || plan.kernel == .nearest ? nil : (width, height))
    let scaled = try Resampling.scale(
      loaded.image, toWidth: width, height: height, plan.kernel, shrunk: loaded.shrunk,
      from: (header.width, header.height))
    let upright = try finish(WorkingSpace.convert(scaled, warn: warn))
    return try upright.framed(plan)
  }

  private func finish(_ image: VipsRef) throws(ImagingError) -> Image {
    var upright = image
    if header.orientation != 1 {
      // A decoder that runs once from the top cannot be read sideways.
      let still = try Image(adopting: image, lazyFrom: header.format).materialised()
      upright = try Self.turn(still.ref, header.orientation)
    }
    let clean = try vips("preparing the picture") { cvips_copy(upright.pointer, $0) }
    if !clean.has("xmp-data") {
      // libvips 8.14 gives the XMP of HEIF a name of its own.
      for field in clean.fields where field.hasPrefix("heif-mime-") {
        guard let packet = clean.blob(field), packet.prefix(1024).contains(UInt8(ascii: "<")) else { continue }
        packet.withUnsafeBytes { vips_image_set_blob_copy(clean.pointer, "xmp-data", $0.baseAddress, $0.count) }
      }
    }
    for field in ["orientation", "exif-ifd0-Orientation", "n-pages", "page-height", "n-subifds", "loop", "delay"] {
      vips_image_remove(clean.pointer, field)
    }
    return Image(adopting: clean, lazyFrom: upright.isInMemory || header.orientation != 1 ? nil : header.format)
  }

  /// Bakes in an EXIF orientation (TIFF 6.0, tag 274).
  private static func turn(_ image: VipsRef, _ orientation: Int) throws(ImagingError) -> VipsRef {
    let angle: VipsAngle? =
      switch orientation {
      case 3: VIPS_ANGLE_D180
      case 5, 6: VIPS_ANGLE_D90
      case 7, 8: VIPS_ANGLE_D270
      default: nil
      }
    let flip: VipsDirection? =
      switch orientation {
      case 2, 5, 7: VIPS_DIRECTION_HORIZONTAL
      case 4: VIPS_DIRECTION_VERTICAL
      default: nil
      }
    var result = image
    if let angle { result = try vips("turning the picture") { [result] in cvips_rot(result.pointer, $0, angle) } }
    if let flip { result = try vips("mirroring the picture") { [result] in cvips_flip(result.pointer, $0, flip) } }
    return result
  }

  /// Opens the pixels, lazily and from the top down, shrunk by the decoder as far as the target allows.
  ///
  /// - Returns: the image, and how many times a JPEG was shrunk: its sides are then cut to whole pixels.
  private func load(
    shrunkFor target: (width: Int, height: Int)?
  ) throws(ImagingError) -> (image: VipsRef, shrunk: Int) {
    let format = header.format
    let what = "reading this \(format.displayName) picture"
    if format == .bmp {
      return try bytes.withUnsafeBytes { (raw) throws(ImagingError) in
        (try BitmapDecoder(header: raw).decode(raw).ref, 1)
      }
    }
    guard let source = vips_source_new_from_blob(bytes.blob) else {
      throw ImagingError(.internalFault, "libvips could not open the bytes", detail: Libvips.drainErrors())
    }
    defer { cvips_unref(source) }
    if let target {
      let ratio = min(Double(header.width) / Double(target.width), Double(header.height) / Double(target.height))
      switch format {
      case .jpeg:
        let shrink = Resampling.jpegShrink(ratio)
        guard shrink > 1, min(header.width, header.height) >= shrink else { break }
        let image = try vips(what, .damaged, about: format.errorWords) { cvips_load_jpeg(source, $0, Int32(shrink)) }
        return (image, shrink)
      case .webp where !header.hasAlpha:
        let scale = Resampling.webpScale(ratio)
        guard scale < 1 else { break }
        return (try vips(what, .damaged, about: format.errorWords) { cvips_load_webp(source, $0, scale) }, 1)
      default: break
      }
    }
    let image = try vips(what, .damaged, about: format.errorWords) { cvips_load(format.loader, source, $0) }
    // Lab packed into 32 bits is no band format that can be resampled.
    guard image.pointer.pointee.Coding == VIPS_CODING_LABQ else { return (image, 1) }
    let unpacked = try vips("unpacking Lab") {
      cvips_colourspace(image.pointer, $0, VIPS_INTERPRETATION_LAB, VIPS_INTERPRETATION_LABQ)
    }
    return (unpacked, 1)
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
