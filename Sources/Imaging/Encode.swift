import CVips

/// An encoded picture, and what of its metadata the format had no room for.
public struct Encoding: Sendable {
  public var bytes: EncodedBytes
  /// The blocks that were wanted and there, but could not be carried, in words: `IPTC`, `EXIF` …
  public var droppedMetadata: [String]
  /// The blocks that were there, but make no sense, and were left out for that: `EXIF`, `XMP`.
  public var unreadableMetadata: [String]
}

extension Image {
  /// Encodes the picture to memory.
  ///
  /// - Parameter arguments: further arguments of libvips' saver, by its own names; see `EncoderArguments`.
  /// - Throws: `encoder` where a setting is out of range, a side is longer than the format holds, JPEG meets alpha
  ///   (flatten first), or the encoder fails; `damaged` where lazily decoded pixels turn out to be.
  public func encoded(
    _ options: EncodeOptions, metadata: MetadataRequest = MetadataRequest(),
    arguments: [String: EncoderArgument.Value] = [:]
  ) throws(ImagingError) -> EncodedBytes {
    try encoding(options, metadata: metadata, arguments: arguments).bytes
  }

  /// As above, with one of the usual choices of metadata.
  public func encoded(_ options: EncodeOptions, metadata: MetadataPolicy) throws(ImagingError) -> EncodedBytes {
    try encoded(options, metadata: MetadataRequest(metadata))
  }

  /// As `encoded`, and tells what metadata could not be carried.
  public func encoding(
    _ options: EncodeOptions, metadata: MetadataRequest = MetadataRequest(),
    arguments: [String: EncoderArgument.Value] = [:]
  ) throws(ImagingError) -> Encoding {
    try options.check()
    let format = options.format
    let name = format.displayName
    try checkSides(format)
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
    guard let nickname = format.saver, Libvips.supports(nickname) else {
      throw ImagingError(
        .encoder, "this build of libvips does not write \(name)", hint: "install a libvips with \(name) support")
    }
    let edit = try MetadataEdit(of: storable(as: options), metadata, for: format)
    var saver = try SaverCall(nickname, edit.image)
    // Where there is nothing to write, savers must not make up an EXIF block with the resolution.
    try saver.set("strip", !edit.hasAny)
    let packing = PNGPacking(options, arguments, edit.image)
    try options.apply(to: &saver, pixelBytes: byteCount)
    try EncoderArguments.apply(arguments, to: &saver, for: format)
    try packing?.prepare(&saver)
    guard var (memory, length) = saver.run() else { throw evaluationError("encoding to \(name)", otherwise: .encoder) }
    if let packing { (memory, length) = try packing.packed(memory, length) }
    if format == .webp && !edit.image.has("exif-data") {
      // libvips 8.14 writes one all the same.
      length = WebPContainer.removeEXIF(UnsafeMutableRawBufferPointer(start: memory, count: length))
    }
    var dropped = edit.dropped
    var isDone = true
    if format == .png, let profile = edit.image.blob("icc-profile-data") {
      // libpng leaves out profiles that it finds fault with, a wrong white above all, and colours would change.
      var hasProfile = false
      PNGChunks.forEach(UnsafeRawBufferPointer(start: memory, count: length)) { chunk in
        hasProfile = hasProfile || chunk.name == "iCCP"
        return !hasProfile && chunk.name != "IDAT"
      }
      if !hasProfile {
        (memory, length, isDone) = PNGContainer.addProfile(profile, to: memory, length)
        guard isDone else {
          g_free(memory)
          throw ImagingError(.memory, "there is no memory for the colour profile")
        }
      }
    }
    if format == .tiff, let tags = edit.exifAfterwards {
      (memory, length, isDone) = TIFFContainer.addEXIF(tags, to: memory, length)
      if !isDone { dropped.append("EXIF") }
    }
    if format == .jxl, edit.exifAfterwards != nil || edit.xmpAfterwards != nil {
      let exif = edit.exifAfterwards?.bytes(most: 1 << 20)
      (memory, length, isDone) = JXLContainer.add(exif: exif, xmp: edit.xmpAfterwards, to: memory, length)
      if !isDone { dropped += ["EXIF", "XMP"] }
    }
    return Encoding(
      bytes: EncodedBytes(adopting: memory, count: length), droppedMetadata: dropped,
      unreadableMetadata: edit.unreadable)
  }

  private func checkSides(_ format: PictureFormat) throws(ImagingError) {
    // The frames of an animation lie below each other.
    let frame = format == .gif || format == .webp ? ref.int("page-height") : nil
    let height = frame.flatMap { $0 > 0 && self.height % $0 == 0 ? $0 : nil } ?? self.height
    if let most = format.maxSide, max(width, height) > most {
      throw ImagingError(
        .encoder,
        "\(width)×\(height) pixels are too large for \(format.displayName), whose sides go up to \(most)",
        hint: "resize it first, or use another format")
    }
  }
}

extension Image {
  /// As the format stores it: black under what is transparent, no more bits than it has, and one band for grey where it
  /// has a grey of its own.
  private func storable(as options: EncodeOptions) throws(ImagingError) -> Image {
    var image = try inSpace(of: options.format).clearedUnderAlpha()
    if depth == 16, !options.format.holdsSixteenBits { image = try image.withDepth(8) }
    // A profile of grey does not go with red, green and blue, nor one for these with a band of grey.
    if case .embedded = space, space.holdsColour == (isGrey && options.format.holdsGrey) {
      image = try image.converted(to: .srgb)
    }
    guard isGrey, options.format.holdsGrey, bands >= 3 else { return image }
    var grey = try vips("taking grey") { [image] in cvips_extract_band(image.ref.pointer, $0, 1, 1) }
    let kind = image.depth == 16 ? VIPS_INTERPRETATION_GREY16 : VIPS_INTERPRETATION_B_W
    if image.hasAlpha {
      let alpha = try vips("taking alpha") { [image] in cvips_extract_band(image.ref.pointer, $0, 3, 1) }
      grey = try vips("joining alpha") { [grey] in cvips_bandjoin2(grey.pointer, alpha.pointer, $0) }
    }
    grey = try grey.named(kind)
    // Display P3 has the curve of sRGB, so that grey needs no profile.
    if image.space.holdsColour { grey = try WorkingSpace.withoutProfile(grey) }
    return Image(adopting: grey, lazyFrom: lazyFrom, space: image.space, isGrey: true)
  }

  /// In sRGB where the format cannot say otherwise: it has no room for a profile, or the profile is one of grey and the
  /// format stores grey as colour.
  func inSpace(of format: PictureFormat) throws(ImagingError) -> Image {
    guard bands >= 3, format.holdsProfile, space.holdsColour || isGrey && format.holdsGrey else {
      return try converted(to: .srgb)
    }
    return self
  }
}

extension EncodeOptions {
  fileprivate func check() throws(ImagingError) {
    func fail(_ name: String, _ value: String, _ range: String) -> ImagingError {
      ImagingError(.encoder, "\(name) \(value) is not possible for \(format.displayName); it goes from \(range)")
    }
    func range(_ name: String, _ value: Int, _ range: ClosedRange<Int>) throws(ImagingError) {
      guard range.contains(value) else {
        throw fail(name, "\(value)", "\(range.lowerBound) to \(range.upperBound)")
      }
    }
    func range(_ name: String, _ value: Double, _ range: ClosedRange<Double>) throws(ImagingError) {
      guard range.contains(value) else {
        throw fail(name, "\(value)", "\(range.lowerBound) to \(range.upperBound)")
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
      guard o.bitDepth == 8 || o.bitDepth == 12 else {
        throw ImagingError(
          .encoder, "bit depth \(o.bitDepth) is not possible for AVIF; it is 8 or 12",
          hint: "use 12, which holds all that 10 does")
      }
    case .jxl(let o):
      try range("quality", o.quality, 1...100)
      try range("effort", o.effort, 3...9)
    case .tiff(let o): try range("quality", o.quality, 1...100)
    case .gif(let o):
      try range("effort", o.effort, 1...10)
      try range("dither", o.dither, 0...1)
      try range("colors", o.colors, 2...256)
      try range("interframeMaxError", o.interframeMaxError, 0...32)
    }
  }

  /// Sets what the options say on the format's saver.
  fileprivate func apply(to saver: inout SaverCall, pixelBytes: Int) throws(ImagingError) {
    switch self {
    case .jpeg(let o):
      try saver.set("Q", o.quality)
      try saver.set("interlace", o.progressive)
      try saver.set("subsample-mode", o.chroma.mode)
      try saver.set("optimize-coding", o.optimiseCoding)
    case .png(let o):
      try saver.set("compression", o.compression)
      if o.palette {
        try saver.set("palette", true)
        try saver.set("bitdepth", o.colors <= 2 ? 1 : o.colors <= 4 ? 2 : o.colors <= 16 ? 4 : 8)
      } else {
        // For what `PNGPacking` leaves to libvips, which filters nothing unless told to. On photographs "up" at a low
        // level is both smaller and faster than no filter at any level; where nothing is packed it is of no use.
        let filter = o.compression == 0 ? VIPS_FOREIGN_PNG_FILTER_NONE : VIPS_FOREIGN_PNG_FILTER_UP
        try saver.set("filter", Int(filter.rawValue))
      }
    case .webp(let o):
      try saver.set("Q", o.lossless ? 75 : o.quality)
      try saver.set("lossless", o.lossless)
      try saver.set("effort", o.effort)
      try saver.set("alpha-q", o.alphaQuality)
    case .avif(let o):
      try saver.set("compression", Int(VIPS_FOREIGN_HEIF_COMPRESSION_AV1.rawValue))
      try saver.set("Q", o.quality)
      try saver.set("effort", o.effort)
      try saver.set("bitdepth", o.bitDepth)
      try saver.set("subsample-mode", o.chroma.mode)
    case .jxl(let o):
      // A distance that is given goes before Q in some versions, so it is not given.
      if !o.lossless { try saver.set("Q", o.quality) }
      try saver.set("lossless", o.lossless)
      try saver.set("effort", o.effort)
    case .tiff(let o):
      let compression =
        switch o.compression {
        case .none: VIPS_FOREIGN_TIFF_COMPRESSION_NONE
        case .lzw: VIPS_FOREIGN_TIFF_COMPRESSION_LZW
        case .deflate: VIPS_FOREIGN_TIFF_COMPRESSION_DEFLATE
        case .zstd: VIPS_FOREIGN_TIFF_COMPRESSION_ZSTD
        case .jpeg: VIPS_FOREIGN_TIFF_COMPRESSION_JPEG
        }
      try saver.set("compression", Int(compression.rawValue))
      try saver.set("Q", o.quality)
      try saver.set("predictor", Int(VIPS_FOREIGN_TIFF_PREDICTOR_HORIZONTAL.rawValue))
      // Offsets of a plain TIFF have 32 bits; compression may add a little to noise.
      if pixelBytes > 3_900_000_000 { try saver.set("bigtiff", true) }
    case .gif(let o):
      try saver.set("effort", o.effort)
      try saver.set("dither", o.dither)
      try saver.set("bitdepth", (1...8).first { 1 << $0 >= o.colors } ?? 8)
      try saver.set("interframe-maxerror", o.interframeMaxError)
    }
  }
}

extension EncodeOptions.Chroma {
  /// libvips' name for it.
  fileprivate var mode: Int {
    let mode =
      switch self {
      case .auto: VIPS_FOREIGN_SUBSAMPLE_AUTO
      case .quarter: VIPS_FOREIGN_SUBSAMPLE_ON
      case .full: VIPS_FOREIGN_SUBSAMPLE_OFF
      }
    return Int(mode.rawValue)
  }
}
