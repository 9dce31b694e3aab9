/// What a file carries beside its pixels, and how many frames, from a walk over its container: no decoder runs, and no
/// more is unpacked than counting up to a bound takes.
///
/// Work is linear in the file, whatever it claims. Numbers that a header does not give stay 0 or nil.
public struct ContainerScan: Sendable, Hashable {
  /// Bytes of the embedded ICC profile, unpacked.
  public var profileBytes = 0
  /// Bytes of EXIF, XMP, IPTC, Photoshop resources, comments and text, unpacked.
  public var metadataBytes = 0
  /// Frames or pages; nil where the container does not say.
  public var frames: Int?

  public init(profileBytes: Int = 0, metadataBytes: Int = 0, frames: Int? = nil) {
    self.profileBytes = profileBytes
    self.metadataBytes = metadataBytes
    self.frames = frames
  }

  /// - Parameter bound: text and profiles are unpacked until this many bytes have come out of each kind.
  public init(_ b: UnsafeRawBufferPointer, _ format: PictureFormat, bound: Int = 64 << 20) {
    switch format {
    case .jpeg: jpeg(b)
    case .png: png(b, bound)
    case .webp: webp(b)
    case .gif: gif(b)
    case .tiff: tiff(b)
    case .heic, .avif: heif(b)
    case .jxl: jxl(b)
    case .jp2: jp2(b)
    case .ico: frames = b.little(2, at: 4)
    case .bmp, .svg, .pdf: break
    }
  }

  /// Segments up to the first scan (ITU-T T.81, B.1.1.4).
  private mutating func jpeg(_ b: UnsafeRawBufferPointer) {
    JPEGSegments.forEach(b) { marker, body in
      switch marker {
      // JFIF and Adobe say how to read the pixels.
      case 0xE0, 0xEE: break
      case 0xE2 where b.says("ICC_PROFILE\0", at: body.lowerBound): profileBytes += max(0, body.count - 14)
      case 0xE1...0xEF, 0xFE: metadataBytes += body.count
      default: break
      }
      return true
    }
  }

  private mutating func png(_ b: UnsafeRawBufferPointer, _ bound: Int) {
    var unpacked = 0
    /// Counted together, so that a thousand packed chunks cost no more than one.
    func unpackedSize(_ packed: UnsafeRawBufferPointer) -> Int {
      let size = unpacked > bound ? packed.count : Inflate.size(ofZlib: packed, limit: bound - unpacked)
      unpacked += size
      return size
    }
    PNGChunks.forEach(b) { chunk in
      let body = b.slice(chunk.body)
      /// Where the zero lies that ends the text beginning at `from`.
      func zero(after from: Int) -> Int? { from < body.count ? body[from...].firstIndex(of: 0) : nil }
      switch chunk.name {
      case "iCCP":
        // A name, a zero, the method.
        guard let end = zero(after: 0), end + 2 <= body.count else { break }
        let packed = body.slice(end + 2..<body.count)
        profileBytes += Inflate.size(ofZlib: packed, limit: bound)
      case "zTXt":
        guard let end = zero(after: 0), end + 2 <= body.count else { break }
        metadataBytes += unpackedSize(body.slice(end + 2..<body.count))
      case "iTXt":
        // Keyword, flag, method, language, translated keyword, text.
        guard let end = zero(after: 0), end + 3 <= body.count, let language = zero(after: end + 3),
          let keyword = zero(after: language + 1)
        else {
          metadataBytes += body.count
          break
        }
        let text = body.slice(keyword + 1..<body.count)
        metadataBytes += body[end + 1] == 1 ? unpackedSize(text) : text.count
      case "tEXt", "eXIf": metadataBytes += body.count
      case "acTL": frames = frames ?? body.big(4, at: 0)
      default: break
      }
      return true
    }
  }

  private mutating func webp(_ b: UnsafeRawBufferPointer) {
    var count = 0
    RIFFChunks.forEach(b) { name, body, _ in
      switch name {
      case "ICCP": profileBytes += body.count
      case "EXIF", "XMP ": metadataBytes += body.count
      case "ANMF": count += 1
      default: break
      }
    }
    if count > 0 { frames = count }
  }

  private mutating func gif(_ b: UnsafeRawBufferPointer) {
    let walk = GIFBlocks(b)
    frames = walk.frames
    metadataBytes = walk.extensionBytes
  }

  private mutating func tiff(_ b: UnsafeRawBufferPointer) {
    guard let file = TIFFDirectories(b) else { return }
    var count = 0
    file.walk { directory in
      count += 1
      if count == 1 {
        profileBytes = directory.length(34675)
        // Description, XMP, IPTC, Photoshop resources, and Photoshop's layers.
        metadataBytes = [270, 700, 33723, 34377, 37724].reduce(0) { sum, tag in
          let (total, overflow) = sum.addingReportingOverflow(directory.length(tag))
          return overflow ? .max : total
        }
      }
      // As many directories as limits.maxFrames can be raised to.
      return count <= 1_000_000
    }
    if count > 0 { frames = count }
  }

  private mutating func heif(_ b: UnsafeRawBufferPointer) {
    guard let items = HEIFItems(b) else { return }
    profileBytes = items.profileBytes
    for item in items.items where item.isMetadata {
      for extent in item.extents {
        let (total, overflow) = metadataBytes.addingReportingOverflow(extent.length)
        metadataBytes = overflow ? .max : total
      }
    }
  }

  /// Boxes of ISO/IEC 18181-2. The profile lies packed inside of the codestream and is not counted; text that Brotli
  /// packed counts as it lies.
  private mutating func jxl(_ b: UnsafeRawBufferPointer) {
    guard b.big(2, at: 0) != 0xFF0A else { return }
    MediaBox.forEach(b, in: 0..<b.count) { box in
      if ["Exif", "xml ", "jumb", "brob"].contains(box.name) { metadataBytes += box.body.count }
    }
  }

  /// Boxes of ISO/IEC 15444-1, annex I.
  private mutating func jp2(_ b: UnsafeRawBufferPointer) {
    guard b.big(2, at: 0) != 0xFF4F else { return }
    MediaBox.forEach(b, in: 0..<b.count) { box in
      switch box.name {
      case "xml ", "uuid": metadataBytes += box.body.count
      case "jp2h":
        MediaBox.forEach(b, in: box.body) { inner in
          // Method 2: a restricted ICC profile follows the three bytes of the head.
          if inner.name == "colr", b.big(1, at: inner.body.lowerBound) == 2 { profileBytes += inner.body.count - 3 }
        }
      default: break
      }
    }
  }
}

extension DecodeLimits {
  /// Checks what a file carries beside its pixels.
  ///
  /// - Throws: `limit`, naming the limit, the value and the setting.
  public func check(_ scan: ContainerScan) throws(ImagingError) {
    func check(_ value: Int, _ limit: Int, _ what: String, _ setting: String) throws(ImagingError) {
      guard value > limit else { return }
      throw ImagingError(
        .limit, "\(what), more than the limit of \(limit)", hint: "raise limits.\(setting) if that is meant")
    }
    // Packed data is unpacked only as far as it takes to know, so the number may be a lower bound.
    try check(
      scan.profileBytes, maxProfileBytes, "the colour profile has \(scan.profileBytes) bytes or more",
      "maxProfileBytes")
    try check(
      scan.metadataBytes, maxMetadataBytes, "the metadata and text have \(scan.metadataBytes) bytes or more",
      "maxMetadataBytes")
    if let frames = scan.frames {
      try check(frames, maxFrames, "the file holds \(frames) frames", "maxFrames")
    }
  }

  /// Checks how many bytes of pixels stand against one byte of the file. Below 64 MiB of pixels it does not matter.
  ///
  /// - Throws: `limit`, naming the limit, the value and the setting.
  public func checkExpansion(decodedBytes: Int, fileBytes: Int) throws(ImagingError) {
    guard decodedBytes > 64 << 20, fileBytes > 0, decodedBytes / fileBytes > maxExpansion else { return }
    throw ImagingError(
      .limit,
      "\(fileBytes) bytes of file would become \(decodedBytes) bytes of pixels, \(decodedBytes / fileBytes) for one, "
        + "more than the limit of \(maxExpansion)",
      hint: "raise limits.maxExpansion if that is meant")
  }
}
