import CVips

/// Renders SVG and PDF, from memory only: where the bytes came from is not told to the renderer, so names inside of the
/// drawing lead nowhere.
///
/// librsvg 2.54 follows no link to a file or to the network from a drawing that has no address (`image`, `use`,
/// `xi:include`, style sheets, external entities); `data:` links are decoded. poppler opens no other file for rendering.
enum DrawingLoader {
  /// The most bytes that a compressed drawing may unpack to.
  static let maxUnpackedBytes = 16 << 20
  /// The most pixels at which a drawing with filters is drawn: librsvg holds several copies of the whole area for each,
  /// 1.8 GB of 64 million pixels.
  static let maxFilteredPixels = 16_000_000

  /// What must be done with an SVG before it is rendered: unpacks it where it is packed, and checks the pictures inside.
  ///
  /// - Throws: as `unpacked` and `SVGPictures.check`.
  static func prepared(_ svg: EncodedBytes, limits: DecodeLimits) throws(ImagingError) -> EncodedBytes {
    let plain = try unpacked(svg)
    try plain.withUnsafeBytes { (raw) throws(ImagingError) in try SVGPictures.check(raw, limits: limits) }
    return plain
  }

  /// The bytes to render: those given, or what a gzip file holds.
  ///
  /// libvips 8.14 never comes back from the header of a gzip file that is cut short, so it never sees one.
  /// - Throws: `damaged` where the gzip data is, `limit` over `limit`.
  static func unpacked(
    _ bytes: EncodedBytes, limit: Int = maxUnpackedBytes
  ) throws(ImagingError) -> EncodedBytes {
    let drawing: [UInt8]? = try bytes.withUnsafeBytes { (raw) throws(ImagingError) in
      guard raw.big(2, at: 0) == 0x1F8B else { return nil }
      return try Inflate.gunzip(raw, limit: limit)
    }
    guard let drawing else { return bytes }
    guard SVGProlog(drawing) != nil else {
      throw ImagingError(
        .unsupported, "this gzip file holds \(FormatSniffer.describe(drawing)), not a drawing",
        hint: "a drawing is packed once, as .svgz")
    }
    return EncodedBytes(drawing)
  }

  /// A drawing in SVG, lazily: 4 bands with straight alpha, transparent where nothing is drawn.
  ///
  /// - Parameters:
  ///   - bytes: unpacked; see `unpacked`.
  ///   - dpi: pixels per inch for sides given in inches, points, millimetres; 72 is what librsvg's users expect.
  ///   - scale: a factor on top.
  /// - Throws: `damaged` where it cannot be read.
  static func svg(_ bytes: EncodedBytes, dpi: Double = 72, scale: Double = 1) throws(ImagingError) -> VipsRef {
    try load(bytes, .svg) { cvips_load_svg($0, $1, dpi, scale) }
  }

  /// Refuses a drawing that has filters and would be drawn too large for them.
  ///
  /// - Parameters:
  ///   - text: unpacked, as `SVGProlog.ascii` has it.
  ///   - width: of the picture as it is about to be drawn, in pixels; `height` likewise.
  /// - Throws: `limit`.
  static func checkFilters(_ text: [UInt8], width: Int, height: Int) throws(ImagingError) {
    let (pixels, overflow) = width.multipliedReportingOverflow(by: height)
    guard overflow || pixels > maxFilteredPixels, SVGPictures.hasFilter(text) else { return }
    throw ImagingError(
      .limit,
      "the drawing has filters and would be drawn at \(width)×\(height) pixels; with filters it may have "
        + "\(maxFilteredPixels / 1_000_000) million",
      hint: "draw it smaller, with a \"resize\" straight after \"decode\", or take the filters out")
  }

  /// The first page of a PDF, lazily: 4 bands, on white paper.
  ///
  /// - Parameters:
  ///   - dpi: pixels per inch.
  ///   - scale: a factor on top.
  /// - Throws: `unsupported` where it is locked with a password, `damaged` where it cannot be read.
  static func pdf(_ bytes: EncodedBytes, dpi: Double = 72, scale: Double = 1) throws(ImagingError) -> VipsRef {
    do throws(ImagingError) {
      return try load(bytes, .pdf) { cvips_load_pdf($0, $1, 0, 1, dpi, scale) }
    } catch {
      let detail = error.detail.lowercased()
      if detail.contains("encrypted") || detail.contains("password") {
        throw ImagingError(
          .unsupported, "this PDF file is locked with a password", detail: error.detail,
          hint: "save it without a password (qpdf --decrypt)")
      }
      throw error
    }
  }

  private static func load(
    _ bytes: EncodedBytes, _ format: PictureFormat, _ call: (UnsafeMutablePointer<VipsSource>, VipsOut) -> Int32
  ) throws(ImagingError) -> VipsRef {
    guard Libvips.supports(format.loader) else {
      throw ImagingError(
        .unsupported, "this build of libvips does not read \(format.displayName)",
        hint: "install a libvips with \(format.displayName) support")
    }
    guard let source = vips_source_new_from_blob(bytes.blob) else {
      throw ImagingError(.internalFault, "libvips could not open the bytes", detail: Libvips.drainErrors())
    }
    defer { cvips_unref(source) }
    // Parsers of XML and PDF report under names of their own ("glib:", "poppler:").
    return try vips("reading this \(format.displayName) drawing", .damaged, about: format.errorWords + ["glib"]) {
      call(source, $0)
    }
  }
}
