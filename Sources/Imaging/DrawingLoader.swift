import CVips

/// Renders SVG and PDF, from memory only: where the bytes came from is not told to the renderer, so names inside of the
/// drawing lead nowhere.
///
/// librsvg 2.54 follows no link to a file or to the network from a drawing that has no address (`image`, `use`,
/// `xi:include`, style sheets, external entities); `data:` links are decoded. poppler opens no other file for rendering.
enum DrawingLoader {
  /// The most bytes that a compressed drawing may unpack to.
  static let maxUnpackedBytes = 16 << 20

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

  /// Pages of a PDF, lazily, one above the other: 4 bands, on white paper.
  ///
  /// - Parameters:
  ///   - page: the first, from 0.
  ///   - count: how many; -1 for all.
  ///   - dpi: pixels per inch.
  ///   - scale: a factor on top.
  /// - Throws: `unsupported` where it is locked with a password, `geometry` where there is no such page, `damaged` where
  ///   it cannot be read.
  static func pdf(
    _ bytes: EncodedBytes, page: Int = 0, count: Int = 1, dpi: Double = 72, scale: Double = 1
  ) throws(ImagingError) -> VipsRef {
    do throws(ImagingError) {
      return try load(bytes, .pdf) {
        cvips_load_pdf($0, $1, Int32(clamping: page), Int32(clamping: count), dpi, scale)
      }
    } catch {
      let detail = error.detail.lowercased()
      if detail.contains("encrypted") || detail.contains("password") {
        throw ImagingError(
          .unsupported, "this PDF file is locked with a password", detail: error.detail,
          hint: "save it without a password (qpdf --decrypt)")
      }
      if detail.contains("out of range") {
        throw ImagingError(.geometry, "this PDF file has no page \(page + 1)", detail: error.detail)
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
