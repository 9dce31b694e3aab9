/// Tells a picture's format from its first bytes. libvips' own sniffing is never called.
public enum FormatSniffer {
  /// How many bytes are enough to tell, but for SVG, whose prolog may be longer: give it what there is.
  public static let prefixLength = 512

  /// The format whose magic bytes begin the data; nil where there is none.
  public static func format(of prefix: some Collection<UInt8>) -> PictureFormat? {
    let b = Array(prefix.prefix(prefixLength))
    if b.starts(with: [0xFF, 0xD8, 0xFF]) { return .jpeg }
    if b.starts(with: [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]) { return .png }
    if b.starts(with: "GIF87a".utf8) || b.starts(with: "GIF89a".utf8) { return .gif }
    if b.starts(with: "RIFF".utf8), b.dropFirst(8).starts(with: "WEBP".utf8) { return .webp }
    if b.starts(with: [0x49, 0x49, 0x2A, 0x00]) || b.starts(with: [0x4D, 0x4D, 0x00, 0x2A]) { return .tiff }
    if b.starts(with: [0x49, 0x49, 0x2B, 0x00, 0x08, 0x00]) || b.starts(with: [0x4D, 0x4D, 0x00, 0x2B, 0x00, 0x08]) {
      return .tiff
    }
    if b.starts(with: [0xFF, 0x0A]) { return .jxl }
    if b.starts(with: [0, 0, 0, 12, 0x4A, 0x58, 0x4C, 0x20, 0x0D, 0x0A, 0x87, 0x0A]) { return .jxl }
    if b.starts(with: [0, 0, 0, 12, 0x6A, 0x50, 0x20, 0x20, 0x0D, 0x0A, 0x87, 0x0A]) { return .jp2 }
    if b.starts(with: [0xFF, 0x4F, 0xFF, 0x51]) { return .jp2 }
    if b.dropFirst(4).starts(with: "ftyp".utf8) { return brand(b) }
    if b.starts(with: "BM".utf8), b.count >= 26 {
      // Two letters begin many texts: the size of the second header must be one that exists.
      let size = Int(b[14]) | Int(b[15]) << 8 | Int(b[16]) << 16 | Int(b[17]) << 24
      if [12, 16, 40, 52, 56, 64, 108, 124].contains(size) { return .bmp }
    }
    if b.starts(with: "%PDF-".utf8) { return .pdf }
    if isIcon(b) { return .ico }
    if SVGProlog.mayBegin(b) { return SVGProlog(prefix) == nil ? nil : .svg }
    if b.starts(with: [0x1F, 0x8B, 0x08]) {
      let packed = Array(prefix.prefix(SVGProlog.length))
      let head = packed.withUnsafeBytes { Inflate.head(ofGzip: $0, count: SVGProlog.length) }
      return SVGProlog(head) == nil ? nil : .svg
    }
    return nil
  }

  /// An icon or cursor: six bytes that many files could begin with, so the first entry must make sense too.
  private static func isIcon(_ b: [UInt8]) -> Bool {
    guard b.count >= 22, b.starts(with: [0, 0, 1, 0]) || b.starts(with: [0, 0, 2, 0]) else { return false }
    func number(_ at: Int, _ size: Int) -> Int { (0..<size).reduce(0) { $0 | Int(b[at + $1]) << (8 * $1) } }
    let count = number(4, 2)
    return count > 0 && number(14, 4) > 0 && number(18, 4) >= 6 + 16 * count
  }

  /// Where a JPEG begins that something stands before, as some cameras and servers leave it: looked for in the first
  /// 4 KiB, when nothing else was recognised. nil where there is none.
  ///
  /// Three bytes of start occur by chance too, so the segment after them must lead to a further marker.
  public static func embeddedJPEG(in raw: UnsafeRawBufferPointer) -> Int? {
    let last = min(raw.count - 6, 4096)
    guard last > 0 else { return nil }
    for at in 0...last where raw[at] == 0xFF && raw[at + 1] == 0xD8 && raw[at + 2] == 0xFF {
      let marker = raw[at + 3]
      // What may follow the start: tables, a frame, application segments, a comment (T.81, B.2.1).
      guard (0xC0...0xCF).contains(marker) || (0xDB...0xEF).contains(marker) || marker == 0xFE,
        let length = raw.big(2, at: at + 4), length >= 2
      else { continue }
      let next = at + 4 + length
      if next >= raw.count || raw[next] == 0xFF { return at }
    }
    return nil
  }

  /// AVIF or HEIC, by the brands of an ISO media file (ISO/IEC 23008-12, AVIF 1.1): the major one, then the others.
  private static func brand(_ b: [UInt8]) -> PictureFormat? {
    let size = min(b.count, Int(b[2]) << 8 | Int(b[3]))
    var brands: [String] = []
    for start in stride(from: 8, to: max(8, size) - 3, by: 4) where start != 12 {
      brands.append(String(decoding: b[start..<start + 4], as: UTF8.self))
    }
    for brand in brands {
      switch brand {
      case "avif", "avis": return .avif
      case "heic", "heix", "hevc", "hevx", "heim", "heis", "hevm", "hevs": return .heic
      default: continue
      }
    }
    // "mif1" alone says neither; libheif tells by the codec of the primary item.
    return brands.contains("mif1") || brands.contains("msf1") ? .heic : nil
  }

  /// What the data looks like, for a message: "a PDF file", "an HTML page", "an empty file" …
  public static func describe(_ prefix: some Collection<UInt8>) -> String {
    let b = Array(prefix.prefix(prefixLength))
    if b.isEmpty { return "an empty file" }
    switch format(of: prefix) {
    case nil: break
    case .svg: return "an SVG drawing"
    case .pdf: return "a PDF file"
    case .ico: return b[2] == 2 ? "a cursor (CUR)" : "an icon (ICO)"
    case .avif: return "an AVIF picture"
    case let format?: return "a \(format.displayName) picture"
    }
    for (magic, name) in magics where b.starts(with: magic) { return name }
    if b.dropFirst(4).starts(with: "ftyp".utf8) { return "a video or audio file (ISO media)" }
    if b.dropFirst(257).starts(with: "ustar".utf8) { return "a tar archive" }
    if b.starts(with: "RIFF".utf8) { return "a RIFF file that is not WebP" }
    var text = b[...]
    if text.starts(with: [0xEF, 0xBB, 0xBF]) { text = text.dropFirst(3) }
    text = text.drop { $0 == 0x20 || (0x09...0x0D).contains($0) }
    let lower = String(decoding: text, as: UTF8.self).lowercased()
    if lower.hasPrefix("<!doctype html") || lower.hasPrefix("<html") { return "an HTML page" }
    if lower.hasPrefix("<?xml") { return "an XML file" }
    if b.allSatisfy({ $0 == 0 }) { return "a file of zero bytes" }
    if lower.hasPrefix("{") || lower.hasPrefix("[") { return "a JSON or text file" }
    if b.allSatisfy({ $0 >= 0x20 && $0 != 0x7F || (0x09...0x0D).contains($0) }) { return "a text file" }
    return "data of an unknown kind"
  }

  private static let magics: [([UInt8], String)] = [
    (Array("%!PS".utf8), "a PostScript file"),
    ([0xC5, 0xD0, 0xD3, 0xC6], "an EPS file"),
    (Array("8BPS".utf8), "a Photoshop file"),
    ([0x1F, 0x8B], "a gzip file"),
    ([0x50, 0x4B, 0x03, 0x04], "a ZIP archive or office document"),
    ([0x50, 0x4B, 0x05, 0x06], "an empty ZIP archive"),
    (Array("Rar!".utf8), "a RAR archive"),
    ([0x37, 0x7A, 0xBC, 0xAF, 0x27, 0x1C], "a 7z archive"),
    ([0xFD, 0x37, 0x7A, 0x58, 0x5A], "an xz file"),
    (Array("BZh".utf8), "a bzip2 file"),
    ([0x7F, 0x45, 0x4C, 0x46], "a program (ELF)"),
    (Array("#!".utf8), "a script"),
    ([0x76, 0x2F, 0x31, 0x01], "an OpenEXR picture"),
    (Array("FUJIFILMCCD-RAW".utf8), "a camera raw file"),
    ([0x49, 0x49, 0x52, 0x4F], "a camera raw file"),
    ([0x49, 0x49, 0x55, 0x00], "a camera raw file"),
    (Array("DDS ".utf8), "a DDS texture"),
    (Array("P1\n".utf8), "a PNM picture"), (Array("P2\n".utf8), "a PNM picture"), (Array("P3\n".utf8), "a PNM picture"),
    (Array("P4\n".utf8), "a PNM picture"), (Array("P5\n".utf8), "a PNM picture"), (Array("P6\n".utf8), "a PNM picture"),
    (Array("qoif".utf8), "a QOI picture"),
    (Array("version https://git-lfs".utf8), "a Git LFS pointer, not the file itself"),
    ([0x00, 0x05, 0x16, 0x07], "an AppleDouble file (metadata of macOS)"),
    (Array("SQLite format 3".utf8), "a SQLite database"),
  ]
}
