import CVips

/// Pixels: loaded, scaled, brought into the working space, turned upright.
extension EncodedPicture {
  /// Decodes lazily, scaled, cropped or padded by `plan` where there is one; damage of the given level is an error.
  func decode(_ plan: ResizePlan?, _ level: VipsFailOn) throws(ImagingError) -> Image {
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

  func decodeFrames(_ level: VipsFailOn) throws(ImagingError) -> Animation {
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
      return try body.withUnsafeBytes { (raw) throws(ImagingError) in
        (try IconDirectory.decode(entry, raw, isStrict: level != VIPS_FAIL_ON_NONE).ref, 1)
      }
    case .svg:
      // A drawing is drawn at the size that is wanted: nothing is blurred by scaling it afterwards.
      let scale =
        target.map { max(Double($0.width) / Double(header.width), Double($0.height) / Double(header.height)) } ?? 1
      let drawing = try DrawingLoader.svg(body, dpi: options.resolution, scale: scale)
      if drawing.width > DrawingLoader.maxFilteredPixels / max(1, drawing.height) {
        let text = body.withUnsafeBytes { SVGProlog.ascii($0) }
        try DrawingLoader.checkFilters(text, width: drawing.width, height: drawing.height)
      }
      return (drawing, 1)
    case .pdf:
      let scale =
        target.map { max(Double($0.width) / Double(header.width), Double($0.height) / Double(header.height)) } ?? 1
      return (try DrawingLoader.pdf(body, dpi: options.resolution, scale: scale), 1)
    case .file(.bmp):
      return try body.withUnsafeBytes { (raw) throws(ImagingError) in
        (try BitmapDecoder(header: raw).decode(raw, isStrict: level != VIPS_FAIL_ON_NONE).ref, 1)
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
    if format == .tiff, level == VIPS_FAIL_ON_NONE, image.height < header.height {
      // Mended as far as the rows that are there: black is what is missing, or transparent.
      let nothing = [Double](repeating: 0, count: image.bands)
      let filled = try vips("filling up the picture") {
        cvips_embed_background(
          image.pointer, $0, 0, 0, Int32(header.width), Int32(header.height), nothing, Int32(image.bands))
      }
      return (filled, 1)
    }
    // Lab packed into 32 bits is no band format that can be resampled.
    guard image.pointer.pointee.Coding == VIPS_CODING_LABQ else { return (image, 1) }
    let unpacked = try vips("unpacking Lab") {
      cvips_colourspace(image.pointer, $0, VIPS_INTERPRETATION_LAB, VIPS_INTERPRETATION_LABQ)
    }
    return (unpacked, 1)
  }
}
