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
  /// Whether pixels are stored in several passes over the picture, so that its decoder holds all of it.
  public var isProgressive = false

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
  public let options: DecodeOptions
  /// What the decoder gets: the bytes, or the part of them that is the picture, unpacked.
  private let body: EncodedBytes
  private let content: Content
  /// A profile that the header describes in other words than by embedding one.
  private let declared: ICCProfile?
  private let noticed: Mutex<[String]>

  /// What lies in `body`.
  fileprivate enum Content {
    case file(PictureFormat)
    /// A bitmap of an icon.
    case icon(IconDirectory.Entry)
    case svg
    case pdf
  }

  /// Sniffs the format, reads the header and checks the limits.
  ///
  /// - Throws: `empty`, `unsupported`, `damaged`, or `limit`.
  public init(bytes: EncodedBytes, options: DecodeOptions) throws(ImagingError) {
    try Libvips.start()
    self.bytes = bytes
    self.options = options
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

  private func warn(_ text: String) {
    noticed.withLock { list in if !list.contains(text) { list.append(text) } }
  }

  // MARK: Files

  /// Opens a picture file: looks at its first bytes before it reads the rest, so that a film among the photos costs
  /// no memory.
  ///
  /// - Parameter path: the path's bytes, without a closing zero.
  /// - Throws: as `read` and `init`.
  public convenience init(path: [UInt8], options: DecodeOptions = DecodeOptions()) throws(ImagingError) {
    let (fd, size) = try Self.open(path)
    defer { _ = cvips_close(fd) }
    if size > 64 << 10 {
      var prefix = [UInt8](repeating: 0, count: 64 << 10)
      let count = prefix.withUnsafeMutableBytes { cvips_read(fd, $0.baseAddress, $0.count) }
      if count > 0, FormatSniffer.format(of: prefix.prefix(Int(count))) == nil {
        throw Self.unsupported(prefix.prefix(Int(count)))
      }
    }
    try self.init(bytes: Self.read(path: path), options: options)
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
          try header(sniffed(UnsafeRawBufferPointer(rebasing: raw[..<Int(count)]), limits: limits), limits) {
            vips_source_new_from_descriptor(fd)
          })
      } catch {
        return .failure(error)
      }
    }
    return try result.get()
  }

  /// Decodes all of a file on disk, row by row, keeping nothing.
  ///
  /// - Throws: `damaged` where some of it cannot be decoded, and as `read` and `init`.
  public static func verifyPixels(
    path: [UInt8], limits: DecodeLimits = DecodeLimits()
  ) throws(ImagingError) -> PictureHeader {
    let header = try verifyHeader(path: path, limits: limits)
    guard !header.format.loader.isEmpty else { return header }
    let (fd, _) = try open(path)
    defer { _ = cvips_close(fd) }
    guard let source = vips_source_new_from_descriptor(fd) else {
      throw ImagingError(.internalFault, "libvips could not open the file", detail: Libvips.drainErrors())
    }
    defer { cvips_unref(source) }
    let format = header.format
    let image = try vips("reading this \(format.displayName) picture", .damaged, about: format.errorWords) {
      header.frames > 1 && format.isAnimated
        ? cvips_load_frames(format.loader, source, $0, VIPS_FAIL_ON_ERROR)
        : cvips_load(format.loader, source, $0, VIPS_FAIL_ON_ERROR)
    }
    var least = 0.0
    guard cvips_min(image.pointer, &least) == 0 else {
      throw Image(adopting: image, lazyFrom: format).evaluationError("reading pixels")
    }
    return header
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

  /// Finds what a file is, and what of it the decoder is to get.
  private static func open(
    _ bytes: EncodedBytes, _ options: DecodeOptions
  ) throws(ImagingError) -> (body: EncodedBytes, content: Content, header: PictureHeader, warnings: [String]) {
    let limits = options.limits
    var body = bytes
    var warnings: [String] = []
    func part(_ range: Range<Int>) -> EncodedBytes {
      EncodedBytes(bytes.withUnsafeBytes { Array($0[range]) })
    }
    if let start = bytes.withUnsafeBytes({ raw in
      FormatSniffer.format(of: raw) == nil ? FormatSniffer.embeddedJPEG(in: raw) : nil
    }) {
      body = part(start..<bytes.count)
      warnings.append("the picture begins after \(start) bytes of something else, which were passed over")
    }
    let file = try body.withUnsafeBytes { (raw) throws(ImagingError) in try sniffed(raw, limits: limits) }
    let format = file.format
    guard !format.needsPermission || options.allowed.contains(format) else {
      throw ImagingError(
        .unsupported,
        "this is \(format == .svg ? "an SVG drawing" : "a PDF file"), which is read only where it is allowed",
        hint: "set \"allow\": [\"\(format.rawValue)\"] in \"decode\"")
    }
    try body.withUnsafeBytes { (raw) throws(ImagingError) in
      let bound = max(limits.maxProfileBytes, limits.maxMetadataBytes)
      try limits.check(ContainerScan(raw, format, bound: bound < Int.max ? bound : 64 << 20))
    }
    func expansion(_ header: PictureHeader) throws(ImagingError) {
      let frames = options.frames == .all && header.format.isAnimated ? header.frames : 1
      try limits.checkExpansion(decodedBytes: header.estimatedDecodedBytes * frames, fileBytes: bytes.count)
    }
    switch format {
    case .svg:
      body = try DrawingLoader.prepared(body, limits: limits)
      let size = body.withUnsafeBytes { SVGProlog($0)?.size(dpi: options.resolution) }
      if let size {
        let (width, height) = (max(1, min(1e9, size.width.rounded(.up))), max(1, min(1e9, size.height.rounded(.up))))
        try check(Int(width), Int(height), format: .svg, limits: limits)
      }
      let image = try DrawingLoader.svg(body, dpi: options.resolution)
      // libvips 8.14 draws at one pixel what is too large for its numbers.
      let isSmall = size.map { min($0.width, $0.height) <= 1 } ?? false
      guard isSmall || min(image.width, image.height) > 1 else {
        throw ImagingError(
          .unsupported, "the size of this SVG drawing cannot be told, or is beyond all bounds",
          hint: "give it a \"width\" and a \"height\" in pixels")
      }
      return (body, .svg, try drawn(image, .svg, frames: 1, limits), warnings)
    case .pdf:
      let image = try DrawingLoader.pdf(body, dpi: options.resolution)
      return (body, .pdf, try drawn(image, .pdf, frames: image.int("n-pages") ?? 1, limits), warnings)
    case .ico:
      let entry = try body.withUnsafeBytes { (raw) throws(ImagingError) in try IconDirectory.best(raw) }
      guard case .png(let range) = entry.kind else {
        try check(entry.width, entry.height, format: .ico, limits: limits)
        let header = PictureHeader(
          format: .ico, width: entry.width, height: entry.height, orientation: 1, bands: 4, hasAlpha: true,
          bitsPerSample: 8, frames: entry.frames, hasProfile: false, interpretation: "srgb")
        return (body, .icon(entry), header, warnings)
      }
      body = part(range)
      var header = try body.withUnsafeBytes { (raw) throws(ImagingError) in
        try self.header(sniffed(raw, limits: limits), limits, options.onDamage) { vips_source_new_from_blob(body.blob) }
      }
      header.format = .ico
      header.frames = entry.frames
      try expansion(header)
      return (body, .file(.png), header, warnings)
    case .gif:
      let gif = body.withUnsafeBytes { GIFDecoder($0) }
      guard let gif, !body.withUnsafeBytes({ gif.isEmpty($0) }) else {
        throw damagedHeader(.gif, "it holds no frame")
      }
      let isAll = options.frames == .all
      try check(gif.width, gif.height, format: .gif, limits: limits)
      for frame in gif.frames.prefix(isAll ? .max : 1) where frame.width * frame.height > 0 {
        try check(frame.width, frame.height, format: .gif, limits: limits)
      }
      let hasAlpha = gif.hasAlpha(allFrames: isAll)
      let header = PictureHeader(
        format: .gif, width: gif.width, height: gif.height, orientation: 1, bands: hasAlpha ? 4 : 3,
        hasAlpha: hasAlpha, bitsPerSample: 8, frames: gif.frames.count, hasProfile: false, interpretation: "srgb")
      try expansion(header)
      return (body, .file(.gif), header, warnings)
    default:
      if let probe = file.probe {
        try limits.checkExpansion(decodedBytes: probe.width * probe.height * 3, fileBytes: bytes.count)
      }
      let header = try body.withUnsafeBytes { (raw) throws(ImagingError) in
        try self.header(file, limits, options.onDamage) { vips_source_new_from_blob(body.blob) }
      }
      try expansion(header)
      return (body, .file(format), header, warnings)
    }
  }

  private static func drawn(
    _ image: VipsRef, _ format: PictureFormat, frames: Int, _ limits: DecodeLimits
  ) throws(ImagingError) -> PictureHeader {
    try check(image.width, image.height, format: format, limits: limits)
    guard frames <= limits.maxFrames else { throw tooManyFrames(frames, limits) }
    return PictureHeader(
      format: format, width: image.width, height: image.height, orientation: 1, bands: image.bands, hasAlpha: true,
      bitsPerSample: 8, frames: frames, hasProfile: false, interpretation: "srgb")
  }

  private static func tooManyFrames(_ frames: Int, _ limits: DecodeLimits) -> ImagingError {
    ImagingError(
      .limit, "the file holds \(frames) frames, more than the limit of \(limits.maxFrames)",
      hint: "raise limits.maxFrames if that is meant")
  }

  /// What the first bytes say; no decoder is asked.
  private struct Sniffed {
    var format: PictureFormat
    var probe: HeaderProbe?
    var bitmap: BitmapDecoder?
  }

  private static func sniffed(_ raw: UnsafeRawBufferPointer, limits: DecodeLimits) throws(ImagingError) -> Sniffed {
    guard raw.count > 0 else { throw ImagingError(.empty, "the file is empty") }
    guard let format = FormatSniffer.format(of: raw) else { throw unsupported(raw) }
    let probe = HeaderProbe(raw, format)
    // A drawing's sides depend on how it is drawn.
    if let probe, !format.needsPermission {
      try check(probe.width, probe.height, format: format, limits: limits)
    }
    return Sniffed(format: format, probe: probe, bitmap: format == .bmp ? try BitmapDecoder(header: raw) : nil)
  }

  private static func header(
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

  /// The picture upright in its working space, with its pixels in memory, scaled, cropped or padded by `plan` where
  /// there is one. Damage is dealt with as the options say.
  ///
  /// - Throws: `damaged`, `memory`, and `geometry` where the plan was made for other sides.
  public func pixels(resizedTo plan: ResizePlan? = nil) throws(ImagingError) -> Image {
    try withDamage { (level) throws(ImagingError) in try decode(plan, level).materialised() }
  }

  /// All frames, upright, in their working space, with their pixels in memory. One frame where there is but one.
  ///
  /// - Throws: as `pixels`.
  public func animation() throws(ImagingError) -> Animation {
    guard isAnimation else { return Animation(frames: [try pixels()], delays: [0], loop: 0) }
    return try withDamage { (level) throws(ImagingError) in try decodeFrames(level) }
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

  /// Decodes strictly, and where the pixels turn out damaged once more as far as they go, if that is wanted.
  private func withDamage<R>(_ work: (VipsFailOn) throws(ImagingError) -> R) throws(ImagingError) -> R {
    let found = body.withUnsafeBytes { raw -> Integrity.Finding? in
      if case .file(let format) = content { Integrity.check(raw, format) } else { nil }
    }
    if let found {
      let isWanted = isAnimation || (found.frame ?? 0) == 0
      if found.costsPixels && isWanted { return try damaged(found.message, work) }
      warn("this \(header.format.displayName) picture \(found.message)")
    }
    do throws(ImagingError) {
      // libjpeg only warns of wrong data; whether that costs pixels is looked at where it did.
      return try work(content.isJPEG ? VIPS_FAIL_ON_WARNING : VIPS_FAIL_ON_ERROR)
    } catch {
      guard error.code == .damaged else { throw error }
      guard content.isJPEG else { return try damaged(error.detail, work, error) }
      switch body.withUnsafeBytes({ Integrity.diagnoseJPEG($0) }) {
      case .whole, .odd: return try work(VIPS_FAIL_ON_ERROR)
      case .garbled(let row, let rows, let what):
        let result = try work(VIPS_FAIL_ON_ERROR)
        if options.onDamage != .accept {
          warn(
            "some of the picture's data are damaged, from about row \(row) of \(rows) on (\(what)); pixels may be wrong"
          )
        }
        return result
      case .cutShort(let row, let rows, let what):
        return try damaged("the data end at about row \(row) of \(rows): \(what)", work)
      case .refused(let what): return try damaged(what, work)
      case .tooManyScans(let most): throw Self.damage(header.format, "it has more than \(most) scans")
      }
    }
  }

  /// The end for a damaged picture, or what there is of it.
  private func damaged<R>(
    _ detail: String, _ work: (VipsFailOn) throws(ImagingError) -> R, _ error: ImagingError? = nil
  ) throws(ImagingError) -> R {
    guard options.onDamage != .fail else { throw error ?? Self.damage(header.format, detail) }
    let result = try work(VIPS_FAIL_ON_NONE)
    if options.onDamage == .warn {
      warn(
        "the pixels are damaged or cut short; what could be read is used" + (detail.isEmpty ? "" : " (\(detail))"))
    }
    return result
  }

  private static func damage(_ format: PictureFormat, _ detail: String) -> ImagingError {
    ImagingError(
      .damaged, "the pixels of this \(format.displayName) picture are damaged or cut short", detail: detail,
      hint: "get the file anew, or set \"onDamage\": \"warn\" in \"decode\" to use what is left of it")
  }

  private func decode(_ plan: ResizePlan?, _ level: VipsFailOn) throws(ImagingError) -> Image {
    guard let plan else {
      let loaded = try load(shrunkFor: nil, level)
      return try finish(options.space.convert(loaded.image, declared: declared, warn: warn))
    }
    guard plan.sourceWidth == header.orientedWidth, plan.sourceHeight == header.orientedHeight else {
      throw ImagingError(
        .geometry,
        "the plan is for \(plan.sourceWidth)×\(plan.sourceHeight) pixels, "
          + "the picture has \(header.orientedWidth)×\(header.orientedHeight)")
    }
    if plan.linear {
      // Light can be added up only once the colours are known.
      let loaded = try load(shrunkFor: nil, level)
      return try finish(options.space.convert(loaded.image, declared: declared, warn: warn)).resized(plan)
    }
    let turned = header.orientation >= 5
    let width = turned ? plan.scaledHeight : plan.scaledWidth
    let height = turned ? plan.scaledWidth : plan.scaledHeight
    let unscaled = width == header.width && height == header.height
    let loaded = try load(shrunkFor: unscaled || plan.kernel == .nearest ? nil : (width, height), level)
    let scaled = try Resampling.scale(
      loaded.image, toWidth: width, height: height, plan.kernel, shrunk: loaded.shrunk,
      from: (header.width, header.height))
    let upright = try finish(options.space.convert(scaled, declared: declared, warn: warn))
    return try upright.framed(plan)
  }

  private func decodeFrames(_ level: VipsFailOn) throws(ImagingError) -> Animation {
    let format = header.format
    if format == .gif { return try decodeGIF(level) }
    guard let source = vips_source_new_from_blob(body.blob) else {
      throw ImagingError(.internalFault, "libvips could not open the bytes", detail: Libvips.drainErrors())
    }
    defer { cvips_unref(source) }
    let strip = try vips("reading this \(format.displayName) picture", .damaged, about: format.errorWords) {
      cvips_load_frames(format.loader, source, $0, level)
    }
    let height = strip.int("page-height") ?? strip.height
    guard height > 0, strip.height % height == 0 else {
      throw ImagingError(.damaged, "the frames of this \(format.displayName) picture do not fit together")
    }
    let count = strip.height / height
    var delays = strip.ints("delay")
    if delays.count < count { delays += [Int](repeating: delays.last ?? 100, count: count - delays.count) }
    let loop = strip.int("loop") ?? 0
    let picture = try options.space.convert(strip, declared: declared, warn: warn)
    let whole = try Image(
      adopting: picture.ref, lazyFrom: format, space: picture.space, isGrey: picture.isGrey
    ).materialised()
    var frames: [Image] = []
    for index in 0..<count {
      let frame = try whole.cropped(x: 0, y: index * height, width: whole.width, height: height)
      // Each of its own, so that frames can be let go one by one.
      frames.append(
        try finish(WorkingPicture(ref: frame.ref, space: frame.space, isGrey: frame.isGrey)).materialised())
    }
    return Animation(frames: frames, delays: Array(delays.prefix(count)), loop: loop)
  }

  private func decodeGIF(_ level: VipsFailOn) throws(ImagingError) -> Animation {
    var animation = Animation(frames: [], delays: [], loop: 1)
    try body.withUnsafeBytes { (raw) throws(ImagingError) in
      guard let gif = GIFDecoder(raw) else { throw Self.damage(.gif, "it holds no frame") }
      animation.loop = gif.loop
      try gif.forEach(raw, isStrict: level != VIPS_FAIL_ON_NONE) { (image, frame) throws(ImagingError) in
        let picture = try options.space.convert(image.ref, declared: declared, warn: warn)
        animation.frames.append(try finish(picture).materialised())
        animation.delays.append(frame.delay)
      }
    }
    return animation
  }

  private func finish(_ picture: WorkingPicture) throws(ImagingError) -> Image {
    var upright = picture.ref
    if header.orientation != 1 {
      // A decoder that runs once from the top cannot be read sideways.
      let still = try Image(adopting: upright, lazyFrom: header.format).materialised()
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
    if header.format == .tiff {
      let found = bytes.withUnsafeBytes { TIFFContainer.metadata(of: $0) }
      for (field, block) in [("exif-data", found.exif), ("iptc-data", found.iptc)] {
        vips_image_remove(clean.pointer, field)
        block?.withUnsafeBytes { vips_image_set_blob_copy(clean.pointer, field, $0.baseAddress, $0.count) }
      }
    }
    for field in ["orientation", "exif-ifd0-Orientation", "n-pages", "page-height", "n-subifds", "loop", "delay"] {
      vips_image_remove(clean.pointer, field)
    }
    return Image(
      adopting: clean, lazyFrom: upright.isInMemory || header.orientation != 1 ? nil : header.format,
      space: picture.space, isGrey: picture.isGrey)
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
    shrunkFor target: (width: Int, height: Int)?, _ level: VipsFailOn
  ) throws(ImagingError) -> (image: VipsRef, shrunk: Int) {
    let format: PictureFormat
    switch content {
    case .icon(let entry):
      return try body.withUnsafeBytes { (raw) throws(ImagingError) in (try IconDirectory.decode(entry, raw).ref, 1) }
    case .svg:
      // A drawing is drawn at the size that is wanted: nothing is blurred by scaling it afterwards.
      let scale =
        target.map { max(Double($0.width) / Double(header.width), Double($0.height) / Double(header.height)) } ?? 1
      return (try DrawingLoader.svg(body, dpi: options.resolution, scale: scale), 1)
    case .pdf:
      let scale =
        target.map { max(Double($0.width) / Double(header.width), Double($0.height) / Double(header.height)) } ?? 1
      return (try DrawingLoader.pdf(body, dpi: options.resolution, scale: scale), 1)
    case .file(.bmp):
      return try body.withUnsafeBytes { (raw) throws(ImagingError) in
        (try BitmapDecoder(header: raw).decode(raw).ref, 1)
      }
    case .file(.gif):
      return try body.withUnsafeBytes { (raw) throws(ImagingError) in
        guard let gif = GIFDecoder(raw) else { throw Self.damage(.gif, "it holds no frame") }
        var first: Image?
        try gif.forEach(raw, count: 1, isStrict: level != VIPS_FAIL_ON_NONE) { (image, _) in first = image }
        guard let first else { throw Self.damage(.gif, "it holds no frame") }
        return (first.ref, 1)
      }
    case .file(let kind): format = kind
    }
    let what = "reading this \(format.displayName) picture"
    guard let source = vips_source_new_from_blob(body.blob) else {
      throw ImagingError(.internalFault, "libvips could not open the bytes", detail: Libvips.drainErrors())
    }
    defer { cvips_unref(source) }
    if let target {
      let ratio = min(Double(header.width) / Double(target.width), Double(header.height) / Double(target.height))
      switch format {
      case .jpeg:
        let shrink = Resampling.jpegShrink(ratio)
        guard shrink > 1, min(header.width, header.height) >= shrink else { break }
        let image = try vips(what, .damaged, about: format.errorWords) {
          cvips_load_jpeg(source, $0, Int32(shrink), level)
        }
        return (image, shrink)
      case .webp where !header.hasAlpha:
        let scale = Resampling.webpScale(ratio)
        guard scale < 1 else { break }
        return (try vips(what, .damaged, about: format.errorWords) { cvips_load_webp(source, $0, scale, level) }, 1)
      default: break
      }
    }
    let image = try vips(what, .damaged, about: format.errorWords) { cvips_load(format.loader, source, $0, level) }
    // Lab packed into 32 bits is no band format that can be resampled.
    guard image.pointer.pointee.Coding == VIPS_CODING_LABQ else { return (image, 1) }
    let unpacked = try vips("unpacking Lab") {
      cvips_colourspace(image.pointer, $0, VIPS_INTERPRETATION_LAB, VIPS_INTERPRETATION_LABQ)
    }
    return (unpacked, 1)
  }
}

extension EncodedPicture.Content {
  fileprivate var isJPEG: Bool { if case .file(.jpeg) = self { true } else { false } }
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
