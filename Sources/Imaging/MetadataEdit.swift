import CVips

/// The copy of an image that a saver gets, with the metadata that was asked for.
struct MetadataEdit {
  /// A private copy: other users of the image keep its metadata.
  let image: VipsRef
  /// Whether there is anything for the saver to write.
  private(set) var hasAny = false
  /// The blocks that were wanted and there, but could not be carried.
  private(set) var dropped: [String] = []
  /// The blocks that were there, but make no sense.
  private(set) var unreadable: [String] = []
  /// What libvips does not write into this format, and is put into the file afterwards.
  private(set) var exifAfterwards: ExifTags?
  private(set) var xmpAfterwards: [UInt8]?

  /// Blocks of JPEG are shorter than 64 KiB; no honest block in another format is longer either.
  private static let most = 65_000

  init(of source: Image, _ request: MetadataRequest, for format: PictureFormat) throws(ImagingError) {
    image = try vips("copying metadata") { cvips_copy(source.ref.pointer, $0) }
    let pointer = image.pointer
    let keep = request.keep
    let isWanted = !keep.kinds.isEmpty || request.set.hasText
    let found = isWanted ? Found(image) : nil
    let isSRGB = source.space == .srgb

    // Whatever describes the file it came from (pages, palettes, its loader) is no property of the new one.
    var stays: Set<String> = ["icc-profile-data"]
    // Pixels and profile go together; only sRGB is understood without.
    if keep.kinds.isEmpty && isSRGB { stays = [] }
    if format == .gif || format == .webp { stays.formUnion(["page-height", "n-pages", "delay", "loop"]) }
    if !keep.kinds.isDisjoint(with: [.all, .exif]) { stays.insert("resolution-unit") }
    for field in image.fields where !stays.contains(field) { vips_image_remove(pointer, field) }
    hasAny = image.has("icc-profile-data")
    guard let found else { return }

    var blocks = Blocks(found, keep, request.set, for: format)
    dropped = blocks.dropped
    unreadable = keep.kinds.isEmpty ? [] : found.damaged
    blocks.exif.complete(isSRGB: isSRGB)
    if !blocks.iptc.isEmpty {
      if format == .tiff {
        // libvips 8.14 writes a quarter of it.
        blocks.exif.add(iptc: blocks.iptc.bytes())
      } else {
        let bytes = blocks.iptc.photoshopBlock()
        write(bytes, "iptc-data", "IPTC", if: format.carriesIPTC && bytes.count <= Self.most)
      }
    }
    if !blocks.exif.isEmpty { try write(blocks.exif, for: format) }
    if !blocks.xmp.isEmpty {
      let bytes = blocks.xmp.bytes()
      if format == .jxl { xmpAfterwards = bytes }
      write(bytes, "xmp-data", "XMP", if: format.carriesXMP && (format != .jpeg || bytes.count <= Self.most))
    }
    if format == .png {
      for (field, text) in blocks.comments { vips_image_set_string(pointer, field, text) }
      hasAny = hasAny || !blocks.comments.isEmpty
    }
    if format == .tiff, let text = blocks.exif.description {
      vips_image_set_string(pointer, "image-description", text)
      hasAny = true
    }
  }

  private mutating func write(_ bytes: [UInt8], _ field: String, _ name: String, if fits: Bool) {
    guard fits else { return dropped.append(name) }
    bytes.withUnsafeBytes { vips_image_set_blob_copy(image.pointer, field, $0.baseAddress, $0.count) }
    hasAny = true
  }

  /// Gives the image an EXIF block, and the fields that libvips' savers expect beside it.
  ///
  /// They drop what the block has and the fields have not, and turn what differs into ASCII. So the fields must be just
  /// as libvips' reader makes them; it makes them here, from a JPEG of one pixel that carries the block.
  private mutating func write(_ tags: ExifTags, for format: PictureFormat) throws(ImagingError) {
    guard format != .tiff, format != .jxl else {
      exifAfterwards = tags
      return
    }
    guard format.carriesEXIF, let block = tags.bytes(most: Self.most) else { return dropped.append("EXIF") }
    let segment = Array("Exif\0\0".utf8) + block
    let length = segment.count + 2
    let pixel = try Self.pixel.get()
    let carrier = EncodedBytes(
      pixel[..<2] + [0xFF, 0xE1, UInt8(length >> 8), UInt8(length & 255)] + segment + pixel[2...])
    guard let source = vips_source_new_from_blob(carrier.blob) else { return dropped.append("EXIF") }
    defer { cvips_unref(source) }
    let loaded = try vips("writing EXIF") { cvips_load("jpegload_source", source, $0, VIPS_FAIL_ON_ERROR) }
    for field in loaded.fields where field.hasPrefix("exif-") {
      cvips_copy_field(image.pointer, loaded.pointer, field)
    }
    hasAny = true
  }

  private static let pixel: Result<[UInt8], ImagingError> = {
    do throws(ImagingError) {
      return .success(
        try Image(width: 1, height: 1, bands: 1, bytes: [0]).encoded(.jpeg(.init()), metadata: .none).array)
    } catch {
      return .failure(error)
    }
  }()

  // MARK: What there is

  private struct Found {
    /// nil where there is none; a block without tags where it cannot be read.
    var exif: ExifTags?
    var xmp: XMPPacket?
    var iptc: IPTCRecords?
    var damaged: [String] = []
    /// PNG's texts: field name, keyword, text.
    var comments: [(field: String, keyword: String, text: String)] = []
    var description: String?

    init(_ image: VipsRef) {
      if let blob = image.blob("exif-data") {
        exif = ExifTags(blob)
        if exif == nil { damaged.append("EXIF") }
      }
      if let blob = image.blob("xmp-data") {
        xmp = XMPPacket(blob)
        if xmp == nil { damaged.append("XMP") }
      }
      iptc = (image.blob("iptc-data") ?? image.blob("photoshop-data")).map { IPTCRecords($0) }
      for field in image.fields where field.hasPrefix("png-comment-") {
        // "png-comment-0-Copyright"
        let keyword = field.split(separator: "-", maxSplits: 3).last.map(String.init) ?? ""
        if let text = image.string(field) { comments.append((field, keyword, text)) }
      }
      description = image.string("image-description")
    }
  }

  /// What is written.
  private struct Blocks {
    var exif = ExifTags()
    var xmp = XMPPacket()
    var iptc = IPTCRecords([])
    var comments: [(field: String, text: String)] = []
    var dropped: [String] = []

    init(_ found: Found, _ keep: MetadataKeep, _ values: MetadataValues, for format: PictureFormat) {
      if let tags = found.exif {
        exif = tags
        exif.filter(keep)
      }
      if let packet = found.xmp {
        xmp = packet
        xmp.filter(keep)
      }
      if let records = found.iptc {
        iptc = records
        iptc.filter(keep)
      }
      for (field, keyword, text) in found.comments where keep.keeps(Self.subject(keyword), in: .comments) {
        // ImageMagick keeps whole EXIF, XMP and IPTC blocks so, in hexadecimal: nothing of them was looked at.
        guard !keyword.hasPrefix("Raw profile"), !Self.isStale(keyword) else { continue }
        comments.append((field, text))
      }
      rescue(found, keep, into: format)
      exif.set(artist: values.creator)
      exif.set(copyright: values.copyright)
      exif.set(description: values.description)
      xmp.set(values)
      if !iptc.isEmpty {
        for (number, text) in [
          (116, values.copyright), (80, values.creator), (120, values.description), (5, values.title),
          (110, values.credit),
        ] as [(UInt8, String?)] { iptc.set(number, text) }
      }
      let said = [
        "Copyright": values.copyright, "Author": values.creator, "Description": values.description,
        "Title": values.title,
      ]
      comments.removeAll { comment in said.contains { $0.value != nil && comment.field.hasSuffix("-" + $0.key) } }
      if !format.carriesIPTC, !iptc.isEmpty {
        if !iptc.fill(&xmp) { dropped.append("IPTC") }
        iptc = IPTCRecords([])
      }
      if format == .tiff {
        // Many readers of TIFF look for these in XMP only.
        if let text = exif.artist { xmp.fill(.list(XMP.dc, "creator", "Seq", [text])) }
        if let text = exif.copyright { xmp.fill(.alternatives(XMP.dc, "rights", text)) }
        if let text = exif.description { xmp.fill(.alternatives(XMP.dc, "description", text)) }
      }
    }

    /// Puts who made and owns the picture, and what it shows, into EXIF where only a block said so that other formats
    /// lack or few readers look at.
    private mutating func rescue(_ found: Found, _ keep: MetadataKeep, into format: PictureFormat) {
      func comment(_ keyword: String) -> String? {
        found.comments.first { $0.keyword == keyword }?.text
      }
      func kept(_ kind: MetadataKind, _ container: MetadataKind, _ text: String?) -> String? {
        keep.keeps(kind, in: container) ? text : nil
      }
      if exif.artist == nil {
        exif.set(artist: kept(.creator, .iptc, iptc.text(80)) ?? kept(.creator, .comments, comment("Author")))
      }
      if exif.copyright == nil {
        exif.set(
          copyright: kept(.copyright, .iptc, iptc.text(116)) ?? kept(.copyright, .comments, comment("Copyright")))
      }
      if exif.description == nil {
        exif.set(
          description: kept(.description, .exif, found.description)
            ?? kept(.description, .comments, format == .png ? nil : comment("Description"))
            ?? kept(.description, .iptc, iptc.text(120)))
      }
      let isLost = comments.contains { comment in
        !["Author", "Copyright", "Description"].contains { comment.field.hasSuffix("-" + $0) }
      }
      if format != .png, isLost { dropped.append("PNG comments") }
    }

    /// Whether it tells of the old file: ImageMagick and others write each tag of EXIF as a text too.
    private static func isStale(_ keyword: String) -> Bool {
      let word = keyword.lowercased()
      return ["orientation", "thumbnail", "makernote", "pixelxdimension", "pixelydimension", "exifoffset"].contains {
        word.contains($0)
      }
    }

    private static func subject(_ keyword: String) -> MetadataKind? {
      let word = keyword.lowercased()
      if ["gps", "latitude", "longitude", "altitude", "geo:"].contains(where: { word.contains($0) }) { return .gps }
      return switch keyword {
      case "Copyright": .copyright
      case "Author": .creator
      case "Title", "Description": .description
      // libvips 8.14 cuts keywords at their first space when it writes them.
      case "Creation Time", "Creation", "date:create", "date:modify", "date:timestamp": .dates
      default: nil
      }
    }
  }
}

extension PictureFormat {
  /// Whether EXIF and XMP are written into the format: into TIFF (EXIF) and JPEG XL (both) by ourselves.
  var carriesEXIF: Bool {
    switch self {
    case .jpeg, .png, .webp, .avif, .jxl, .tiff: true
    case .heic, .gif, .jp2, .bmp, .ico, .svg, .pdf: false
    }
  }

  var carriesXMP: Bool { carriesEXIF }

  var carriesIPTC: Bool { self == .jpeg || self == .tiff }
}
