import CVips

extension Image {
  /// Encodes the picture to memory.
  ///
  /// - Throws: `encoder` where a setting is out of range, a side is longer than the format holds, JPEG meets alpha
  ///   (flatten first), or the encoder fails; `damaged` where lazily decoded pixels turn out to be.
  public func encoded(
    _ options: EncodeOptions, metadata: MetadataPolicy = .copyright
  ) throws(ImagingError) -> EncodedBytes {
    try options.check()
    let format = options.format
    let name = format.displayName
    if let most = format.maxSide, max(width, height) > most {
      throw ImagingError(
        .encoder, "a \(name) picture cannot be \(width)×\(height) pixels; its sides go up to \(most)",
        hint: "resize it first, or use another format")
    }
    guard !hasAlpha || format.hasAlpha else {
      throw ImagingError(
        .encoder, "\(name) cannot hold transparency, and this picture has an alpha band",
        hint: "lay it on a background first")
    }
    if case .tiff(let tiff) = options, tiff.compression == .jpeg, hasAlpha {
      throw ImagingError(
        .encoder, "JPEG compression in TIFF cannot hold transparency, and this picture has an alpha band",
        hint: "use lzw or deflate, or lay it on a background first")
    }
    let image = try MetadataEdit.apply(metadata, to: storable(as: options), for: format)
    // Numbers of another space than sRGB mean nothing without their profile, whatever metadata is wanted.
    if space != .srgb { cvips_copy_field(image.pointer, ref.pointer, "icc-profile-data") }
    // Where there is nothing to write, savers must not make up an EXIF block with the resolution.
    let written = ["icc-profile-data", "exif-data", "xmp-data", "iptc-data", "photoshop-data", "image-description"]
    let hasMetadata = image.fields.contains { written.contains($0) || $0.hasPrefix("png-comment-") }
    let strip = gboolean(hasMetadata ? 0 : 1)
    var memory: UnsafeMutableRawPointer?
    var length = 0
    let input = image.pointer
    let status: Int32
    switch options {
    case .jpeg(let o):
      let subsample =
        switch o.chroma {
        case .auto: VIPS_FOREIGN_SUBSAMPLE_AUTO
        case .quarter: VIPS_FOREIGN_SUBSAMPLE_ON
        case .full: VIPS_FOREIGN_SUBSAMPLE_OFF
        }
      status = cvips_save_jpeg(
        input, &memory, &length, Int32(o.quality), o.progressive ? 1 : 0, Int32(subsample.rawValue),
        o.optimiseCoding ? 1 : 0, strip)
    case .png(let o):
      let bits: Int32 = o.colors <= 2 ? 1 : o.colors <= 4 ? 2 : o.colors <= 16 ? 4 : 8
      status = cvips_save_png(input, &memory, &length, Int32(o.compression), o.palette ? 1 : 0, bits, strip)
    case .webp(let o):
      status = cvips_save_webp(
        input, &memory, &length, o.lossless ? 75 : Int32(o.quality), o.lossless ? 1 : 0, Int32(o.effort),
        Int32(o.alphaQuality), strip)
    case .avif(let o):
      status = cvips_save_avif(input, &memory, &length, Int32(o.quality), Int32(o.effort), strip)
    case .tiff(let o):
      let compression =
        switch o.compression {
        case .none: VIPS_FOREIGN_TIFF_COMPRESSION_NONE
        case .lzw: VIPS_FOREIGN_TIFF_COMPRESSION_LZW
        case .deflate: VIPS_FOREIGN_TIFF_COMPRESSION_DEFLATE
        case .jpeg: VIPS_FOREIGN_TIFF_COMPRESSION_JPEG
        }
      status = cvips_save_tiff(input, &memory, &length, Int32(compression.rawValue), Int32(o.quality), strip)
    }
    guard status == 0, let memory, length > 0 else {
      if let memory { g_free(memory) }
      if let saver = format.saver, !Libvips.supports(saver) {
        throw ImagingError(
          .encoder, "this build of libvips does not write \(name)", detail: Libvips.drainErrors(),
          hint: "install a libvips with \(name) support")
      }
      throw evaluationError("encoding to \(name)", otherwise: .encoder)
    }
    if format == .webp && !image.has("exif-data") {
      // libvips 8.14 writes one all the same.
      length = WebPContainer.removeEXIF(UnsafeMutableRawBufferPointer(start: memory, count: length))
    }
    return EncodedBytes(adopting: memory, count: length)
  }
}

extension Image {
  /// As the format stores it: black under what is transparent, no more bits than it has, and one band for grey where it
  /// has a grey of its own.
  private func storable(as options: EncodeOptions) throws(ImagingError) -> Image {
    var image = try clearedUnderAlpha()
    if depth == 16, !options.format.holdsSixteenBits { image = try image.withDepth(8) }
    guard isGrey, options.format.holdsGrey, bands >= 3 else { return image }
    var grey = try vips("taking grey") { [image] in cvips_extract_band(image.ref.pointer, $0, 1, 1) }
    let kind = image.depth == 16 ? VIPS_INTERPRETATION_GREY16 : VIPS_INTERPRETATION_B_W
    if hasAlpha {
      let alpha = try vips("taking alpha") { [image] in cvips_extract_band(image.ref.pointer, $0, 3, 1) }
      grey = try vips("joining alpha") { [grey] in cvips_bandjoin2(grey.pointer, alpha.pointer, $0) }
    }
    grey = try grey.named(kind)
    // A profile for red, green and blue does not go with one band, and a curve of grey is sRGB's.
    if space.holdsColour { grey = try WorkingSpace.withoutProfile(grey) }
    return Image(adopting: grey, lazyFrom: lazyFrom, space: space, isGrey: true)
  }
}

extension EncodeOptions {
  fileprivate func check() throws(ImagingError) {
    func range(_ name: String, _ value: Int, _ range: ClosedRange<Int>) throws(ImagingError) {
      guard range.contains(value) else {
        throw ImagingError(
          .encoder,
          "\(name) \(value) is not possible for \(format.displayName); it goes from \(range.lowerBound) to "
            + "\(range.upperBound)")
      }
    }
    switch self {
    case .jpeg(let o): try range("quality", o.quality, 1...100)
    case .png(let o):
      try range("compression", o.compression, 0...9)
      try range("colors", o.colors, 2...256)
    case .webp(let o):
      try range("quality", o.quality, 1...100)
      try range("effort", o.effort, 0...6)
      try range("alphaQuality", o.alphaQuality, 0...100)
    case .avif(let o):
      try range("quality", o.quality, 1...100)
      try range("effort", o.effort, 0...9)
    case .tiff(let o): try range("quality", o.quality, 1...100)
    }
  }
}
