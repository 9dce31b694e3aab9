import CVips

/// Opening: what a file is, what of it goes to a decoder, and whether it is within the limits.
extension EncodedPicture {
  static func unsupported(_ prefix: some Collection<UInt8>) -> ImagingError {
    ImagingError(
      .unsupported, "this is \(FormatSniffer.describe(prefix)), not a picture that can be read",
      hint:
        "read are \(PictureFormat.allCases.filter { !$0.needsPermission }.map(\.displayName).joined(separator: ", "))")
  }

  /// Finds what a file is, and what of it the decoder is to get.
  static func open(
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
      let entry = try body.withUnsafeBytes { (raw) throws(ImagingError) in
        try IconDirectory.best(raw, isStrict: options.onDamage == .fail)
      }
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
      func header() throws(ImagingError) -> PictureHeader {
        try self.header(file, limits, options.onDamage) { vips_source_new_from_blob(body.blob) }
      }
      let found: PictureHeader
      do throws(ImagingError) {
        found = try header()
      } catch {
        // Of a WebP that is cut short libwebp reads not even the header.
        guard error.code == .damaged, format == .webp else { throw error }
        let finding = body.withUnsafeBytes { Integrity.check($0, format) }
        guard let finding, finding.costsPixels else { throw error }
        guard options.onDamage != .fail else { throw damage(format, "it \(finding.message)") }
        let room = (file.probe?.width ?? 0) * (file.probe?.height ?? 0) * 4
        guard let mended = body.withUnsafeBytes({ WebPRescue.whole(from: $0, limit: room) }) else { throw error }
        body = mended
        found = try header()
        if options.onDamage == .warn { warnings.append(partly("it \(finding.message)")) }
      }
      try expansion(found)
      return (body, .file(format), found, warnings)
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

  static func tooManyFrames(_ frames: Int, _ limits: DecodeLimits) -> ImagingError {
    ImagingError(
      .limit, "the file holds \(frames) frames, more than the limit of \(limits.maxFrames)",
      hint: "raise limits.maxFrames if that is meant")
  }
}
