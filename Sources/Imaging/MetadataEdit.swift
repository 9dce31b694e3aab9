import CVips

/// Makes the copy of an image that an encoder gets, with the metadata that a policy leaves.
enum MetadataEdit {
  ///
  /// - Returns: the copy; look at its fields for what there is to write.
  static func apply(
    _ policy: MetadataPolicy, to image: Image, for format: PictureFormat
  ) throws(ImagingError) -> VipsRef {
    // A private copy: other users of the image keep its metadata.
    let copy = try vips("copying metadata") { cvips_copy(image.ref.pointer, $0) }
    let pointer = copy.pointer
    // Whatever describes the file it came from (pages, delays, palettes, its loader) is no property of the new one.
    switch policy {
    case .none: cvips_remove_metadata(pointer)
    case .copyright:
      let rights = Rights(of: image.ref)
      for field in copy.fields where field != "icc-profile-data" { vips_image_remove(pointer, field) }
      if !rights.exif.isEmpty { try rights.writeEXIF(to: pointer) }
      // TIFF gets no EXIF from libvips, so there the rights travel as XMP.
      if let packet = rights.xmpPacket(withEXIF: format == .tiff) { set("xmp-data", packet, on: pointer) }
    case .all:
      let kept = ["icc-profile-data", "exif-data", "iptc-data", "photoshop-data", "xmp-data", "image-description"]
      for field in copy.fields where !kept.contains(field) {
        let isThumbnail = field.hasPrefix("exif-ifd1-")
        let isKept = field.hasPrefix("exif-") || field.hasPrefix("png-comment-") || field == "resolution-unit"
        if isThumbnail || !isKept { vips_image_remove(pointer, field) }
      }
      vips_image_remove(pointer, "exif-ifd0-Orientation")
      if let exif = copy.blob("exif-data"), let upright = ExifTags.upright(exif) {
        set("exif-data", upright, on: pointer)
        vips_image_set_int(pointer, "orientation", 1)
      }
      if let xmp = copy.blob("xmp-data") { set("xmp-data", XMP.upright(xmp), on: pointer) }
    }
    return copy
  }

  private static func set(_ field: String, _ bytes: [UInt8], on image: UnsafeMutablePointer<VipsImage>) {
    bytes.withUnsafeBytes { vips_image_set_blob_copy(image, field, $0.baseAddress, $0.count) }
  }
}

/// The container of WebP (RFC 9649), for taking out what libwebp's caller put in unasked.
enum WebPContainer {
  /// Takes the EXIF chunk out, in place, and the extended header with it where nothing else needs that.
  ///
  /// - Returns: the new length. What is no WebP of the expected form stays as it is.
  static func removeEXIF(_ b: UnsafeMutableRawBufferPointer) -> Int {
    func number(_ at: Int) -> Int { (0..<4).reduce(0) { $0 | Int(b[at + $1]) << (8 * $1) } }
    func name(_ at: Int) -> String { String(decoding: b[at..<at + 4], as: UTF8.self) }
    guard b.count > 30, name(0) == "RIFF", name(8) == "WEBP", name(12) == "VP8X" else { return b.count }
    var chunks: [(name: String, at: Int, length: Int)] = []
    var at = 12
    while at + 8 <= b.count {
      let length = 8 + (number(at + 4) + 1) / 2 * 2
      guard at + length <= b.count else { return b.count }
      chunks.append((name(at), at, length))
      at += length
    }
    chunks.removeAll { $0.name == "EXIF" }
    b[20] &= ~0x08
    if chunks.count == 2, b[20] == 0 { chunks.removeFirst() }
    var end = 12
    for chunk in chunks {
      for i in 0..<chunk.length { b[end + i] = b[chunk.at + i] }
      end += chunk.length
    }
    for i in 0..<4 { b[4 + i] = UInt8((end - 8) >> (8 * i) & 255) }
    return end
  }
}

/// Who made a picture and who owns it, gathered from its metadata.
struct Rights {
  /// EXIF: "Artist", "Copyright".
  var exif: [(tag: String, text: String)] = []
  var xmp = XMP.Rights()

  init(of image: VipsRef) {
    let tags = image.blob("exif-data").flatMap { ExifTags($0) }
    let iptc = (image.blob("iptc-data") ?? image.blob("photoshop-data")).map { IPTC.rights(in: $0) }
    var comments: [String: String] = [:]
    for field in image.fields where field.hasPrefix("png-comment-") {
      // "png-comment-0-Copyright"
      let keyword = field.split(separator: "-", maxSplits: 3).last.map(String.init) ?? ""
      comments[keyword] = image.string(field)
    }
    if let blob = image.blob("xmp-data") { xmp = XMP.rights(in: blob) }
    if let artist = tags?.artist ?? iptc?.byline ?? comments["Author"] { exif.append(("Artist", artist)) }
    if let copyright = tags?.copyright ?? iptc?.copyright ?? comments["Copyright"] {
      exif.append(("Copyright", copyright))
    }
  }

  /// An EXIF block of the rights alone (TIFF 6.0 layout, little-endian).
  private func exifBlock() -> [UInt8] {
    func little(_ value: Int, _ size: Int) -> [UInt8] { (0..<size).map { UInt8(value >> (8 * $0) & 255) } }
    let texts = exif.map { Array($0.text.utf8.prefix(30_000)) + [0] }
    var at = 8 + 2 + 12 * exif.count + 4
    var directory = little(exif.count, 2)
    var data: [UInt8] = []
    for (entry, text) in zip(exif, texts) {
      directory += little(entry.tag == "Artist" ? 0x013B : 0x8298, 2) + little(2, 2) + little(text.count, 4)
      if text.count <= 4 {
        directory += text + [UInt8](repeating: 0, count: 4 - text.count)
      } else {
        directory += little(at, 4)
        data += text
        at += text.count
      }
    }
    return [0x49, 0x49, 0x2A, 0] + little(8, 4) + directory + little(0, 4) + data
  }

  /// Gives an image this block, and the fields that libvips' savers expect beside it.
  ///
  /// They drop what the block has and the fields have not, and turn what differs into ASCII. So the fields must be just
  /// as libvips' reader makes them; it makes them here, from a JPEG of one pixel that carries the block.
  func writeEXIF(to image: UnsafeMutablePointer<VipsImage>) throws(ImagingError) {
    let block = Array("Exif\0\0".utf8) + exifBlock()
    guard block.count < 65_000 else { return }
    let pixel = try Image(width: 1, height: 1, bands: 1, bytes: [0]).encoded(.jpeg(.init()), metadata: .none).array
    let length = block.count + 2
    let carrier = EncodedBytes(
      pixel[..<2] + [0xFF, 0xE1, UInt8(length >> 8), UInt8(length & 255)] + block + pixel[2...])
    guard let source = vips_source_new_from_blob(carrier.blob) else { return }
    defer { cvips_unref(source) }
    let loaded = try vips("writing EXIF") { cvips_load("jpegload_source", source, $0, VIPS_FAIL_ON_ERROR) }
    for field in loaded.fields where field.hasPrefix("exif-") { cvips_copy_field(image, loaded.pointer, field) }
  }

  /// An XMP packet of the rights alone; nil where there are none.
  func xmpPacket(withEXIF: Bool) -> [UInt8]? {
    var rights = xmp
    if withEXIF {
      for (tag, text) in exif {
        if tag == "Artist" && rights.creators.isEmpty { rights.creators = [text] }
        if tag == "Copyright" && rights.rights.isEmpty { rights.rights = [("x-default", text)] }
      }
    }
    return rights.isEmpty ? nil : rights.packet()
  }
}

/// The few tags of an EXIF block that matter here (CIPA DC-008, TIFF 6.0), from the main image's directory.
struct ExifTags {
  var orientation: Int?
  var artist: String?
  var copyright: String?

  /// nil where the bytes are no EXIF block. What is damaged within is left out.
  init?(_ bytes: [UInt8]) {
    guard let directory = Directory(bytes) else { return nil }
    for entry in directory.entries {
      switch entry.tag {
      case 0x0112: orientation = directory.short(entry)
      case 0x013B: artist = directory.text(entry)
      case 0x8298: copyright = directory.text(entry)
      default: break
      }
    }
  }

  /// The block with orientation 1 and no second directory, which holds the thumbnail; nil where it is no EXIF block.
  static func upright(_ bytes: [UInt8]) -> [UInt8]? {
    guard let directory = Directory(bytes) else { return nil }
    var result = bytes
    for entry in directory.entries where entry.tag == 0x0112 && entry.type == 3 {
      let low = directory.isLittle ? entry.valueAt : entry.valueAt + 1
      result[low] = 1
      result[directory.isLittle ? low + 1 : low - 1] = 0
    }
    if let link = directory.linkAt { for i in link..<link + 4 { result[i] = 0 } }
    return result
  }

  private struct Directory {
    struct Entry {
      var tag: Int
      var type: Int
      var count: Int
      var valueAt: Int
    }
    let bytes: [UInt8]
    let isLittle: Bool
    let base: Int
    var entries: [Entry] = []
    /// Where the offset of the next directory stands.
    var linkAt: Int?

    init?(_ bytes: [UInt8]) {
      self.bytes = bytes
      base = bytes.starts(with: [0x45, 0x78, 0x69, 0x66, 0, 0]) ? 6 : 0
      guard bytes.count >= base + 8 else { return nil }
      switch (bytes[base], bytes[base + 1]) {
      case (0x49, 0x49): isLittle = true
      case (0x4D, 0x4D): isLittle = false
      default: return nil
      }
      guard number(base + 2, 2) == 42 else { return nil }
      let start = base + number(base + 4, 4)
      guard start + 2 <= bytes.count else { return nil }
      let count = number(start, 2)
      for i in 0..<count {
        let at = start + 2 + 12 * i
        guard at + 12 <= bytes.count else { return }
        let type = number(at + 2, 2)
        let items = number(at + 4, 4)
        let size = items * (type == 3 ? 2 : type == 4 || type == 9 ? 4 : type == 5 || type == 10 ? 8 : 1)
        let valueAt = size <= 4 ? at + 8 : base + number(at + 8, 4)
        guard valueAt + size <= bytes.count else { continue }
        entries.append(Entry(tag: number(at, 2), type: type, count: items, valueAt: valueAt))
      }
      let link = start + 2 + 12 * count
      if link + 4 <= bytes.count { linkAt = link }
    }

    private func number(_ at: Int, _ size: Int) -> Int {
      (0..<size).reduce(0) { sum, i in sum << 8 | Int(bytes[isLittle ? at + size - 1 - i : at + i]) }
    }

    func short(_ entry: Entry) -> Int? { entry.type == 3 && entry.count >= 1 ? number(entry.valueAt, 2) : nil }

    /// Text, its parts (photographer's and editor's copyright) joined; UTF-8, else Latin-1.
    func text(_ entry: Entry) -> String? {
      guard entry.type == 2 || entry.type == 129 else { return nil }
      let raw = bytes[entry.valueAt..<entry.valueAt + entry.count]
      let parts = raw.split(separator: 0).map { decodedText($0) }.filter { !$0.isEmpty }
      return parts.isEmpty ? nil : parts.joined(separator: ", ")
    }
  }
}

/// Text of old metadata: UTF-8 where it is that, else Latin-1; spaces at the ends go.
func decodedText(_ bytes: some Sequence<UInt8>) -> String {
  let raw = Array(bytes)
  let text =
    String(validating: raw, as: UTF8.self)
    ?? String(String.UnicodeScalarView(raw.map { Unicode.Scalar($0) }))
  let scalars = text.unicodeScalars
  let isBlank = { (s: Unicode.Scalar) in s.value <= 0x20 }
  guard let first = scalars.firstIndex(where: { !isBlank($0) }), let last = scalars.lastIndex(where: { !isBlank($0) })
  else { return "" }
  return String(scalars[first...last])
}

/// IPTC-IIM records (version 4), which newsrooms' programs write.
enum IPTC {
  /// Record 2, dataset 80 (by-line) and 116 (copyright notice), wherever they stand in a Photoshop block.
  static func rights(in bytes: [UInt8]) -> (byline: String?, copyright: String?) {
    var found: [UInt8: String] = [:]
    var i = 0
    while i + 5 <= bytes.count {
      guard bytes[i] == 0x1C, bytes[i + 1] == 2 else {
        i += 1
        continue
      }
      let size = Int(bytes[i + 3]) << 8 | Int(bytes[i + 4])
      guard size < 0x8000, i + 5 + size <= bytes.count else { break }
      let dataset = bytes[i + 2]
      let text = decodedText(bytes[i + 5..<i + 5 + size])
      if (dataset == 80 || dataset == 116) && !text.isEmpty && found[dataset] == nil { found[dataset] = text }
      i += 5 + size
    }
    return (found[80], found[116])
  }
}
