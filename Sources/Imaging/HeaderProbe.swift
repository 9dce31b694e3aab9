/// The sides that a header claims, read by ourselves before any decoder sees the file.
///
/// So that a file of 186 bytes that claims 65,535 × 65,535 pixels is reported as too large, and not in a decoder's words
/// for whatever it stumbled over.
struct HeaderProbe: Equatable {
  var width: Int
  var height: Int
  /// Frames, where the header says so at once (animated PNG).
  var frames: Int? = nil
  /// Whether pixels come in several passes over the picture, so that a decoder must hold all of it.
  var isProgressive = false

  /// nil where the format is not probed here or the sides were not found; the decoder has the word then.
  init?(_ b: UnsafeRawBufferPointer, _ format: PictureFormat) {
    let found: HeaderProbe? =
      switch format {
      case .jpeg: Self.jpeg(b)
      case .png: Self.png(b)
      case .webp: Self.webp(b)
      case .gif: Self.gif(b)
      case .bmp: Self.bmp(b)
      case .avif, .heic: Self.isoMedia(b)
      case .ico: Self.icon(b)
      case .svg: Self.svg(b)
      case .tiff: Self.tiff(b)
      case .jp2: Self.jpeg2000(b)
      case .jxl: Self.jpegXL(b)
      case .pdf: nil
      }
    guard let found else { return nil }
    self = found
  }

  private init(_ width: Int, _ height: Int, frames: Int? = nil) {
    self.width = width
    self.height = height
    self.frames = frames
  }

  /// The first start-of-frame marker (ITU-T T.81, B.2.2).
  private static func jpeg(_ b: UnsafeRawBufferPointer) -> HeaderProbe? {
    var i = 2
    while i + 3 < b.count {
      guard b[i] == 0xFF else {
        i += 1  // Decoders skip stray bytes between segments, and so does this.
        continue
      }
      let marker = b[i + 1]
      switch marker {
      case 0xFF: i += 1
      case 0x00, 0x01, 0xD0...0xD8: i += 2
      case 0xD9, 0xDA: return nil
      case 0xC0...0xC3, 0xC5...0xC7, 0xC9...0xCB, 0xCD...0xCF:
        guard i + 8 < b.count else { return nil }
        var probe = HeaderProbe(b.big16(i + 7), b.big16(i + 5))
        probe.isProgressive = [0xC2, 0xC6, 0xCA, 0xCE].contains(marker)
        return probe
      default: i += 2 + b.big16(i + 2)
      }
    }
    return nil
  }

  private static func png(_ b: UnsafeRawBufferPointer) -> HeaderProbe? {
    guard b.count >= 24, b.tag(12) == "IHDR" else { return nil }
    var probe = HeaderProbe(b.big32(16), b.big32(20))
    probe.isProgressive = b.count > 28 && b[28] == 1
    // acTL, the mark of an animated PNG, stands before the first IDAT.
    var i = 33
    while i + 12 <= b.count {
      let tag = b.tag(i + 4)
      if tag == "IDAT" { break }
      if tag == "acTL" { probe.frames = b.big32(i + 8) }
      i += 12 + b.big32(i)
    }
    return probe
  }

  private static func webp(_ b: UnsafeRawBufferPointer) -> HeaderProbe? {
    guard b.count >= 30 else { return nil }
    switch b.tag(12) {
    case "VP8X": return HeaderProbe(1 + b.little24(24), 1 + b.little24(27))
    case "VP8L":
      let bits = b.little24(21) | Int(b[24]) << 24
      return HeaderProbe(1 + bits & 0x3FFF, 1 + bits >> 14 & 0x3FFF)
    case "VP8 ": return HeaderProbe(b.little16(26) & 0x3FFF, b.little16(28) & 0x3FFF)
    default: return nil
    }
  }

  private static func gif(_ b: UnsafeRawBufferPointer) -> HeaderProbe? {
    // Where the screen has no sides, the first frame's count.
    guard b.count >= 10, b.little16(6) > 0, b.little16(8) > 0 else { return nil }
    return HeaderProbe(b.little16(6), b.little16(8))
  }

  private static func bmp(_ b: UnsafeRawBufferPointer) -> HeaderProbe? {
    guard b.count >= 26 else { return nil }
    if b.little32(14) == 12 { return HeaderProbe(b.little16(18), b.little16(20)) }
    guard b.count >= 30 else { return nil }
    // Signed: a negative height means that rows run from the top.
    let width = Int(Int32(truncatingIfNeeded: b.little32(18)))
    let height = Int(Int32(truncatingIfNeeded: b.little32(22)))
    return HeaderProbe(width, abs(height))
  }

  private static func icon(_ b: UnsafeRawBufferPointer) -> HeaderProbe? {
    guard let best = try? IconDirectory.best(b) else { return nil }
    return HeaderProbe(best.width, best.height)
  }

  /// At 72 dots per inch, packed or not; rounded up, and cut where it would not fit an `Int`.
  private static func svg(_ b: UnsafeRawBufferPointer) -> HeaderProbe? {
    let isPacked = b.big(2, at: 0) == 0x1F8B
    let prolog = isPacked ? SVGProlog(Inflate.head(ofGzip: b, count: SVGProlog.length)) : SVGProlog(b)
    guard let size = prolog?.size(dpi: 72), size.width.isFinite, size.height.isFinite else { return nil }
    return HeaderProbe(Int(min(1e9, max(0, size.width)).rounded(.up)), Int(min(1e9, max(0, size.height)).rounded(.up)))
  }

  /// Of the first directory (TIFF 6.0, section 2; BigTIFF).
  private static func tiff(_ b: UnsafeRawBufferPointer) -> HeaderProbe? {
    guard let file = TIFFDirectories(b), let first = file.directory(at: file.first) else { return nil }
    guard let width = first.number(256), let height = first.number(257) else { return nil }
    return HeaderProbe(width, height)
  }

  /// The image and tile size marker (ISO/IEC 15444-1, A.5.1), which comes first in the codestream.
  private static func jpeg2000(_ b: UnsafeRawBufferPointer) -> HeaderProbe? {
    var start = 0
    if b.big(2, at: 0) != 0xFF4F {
      guard let box = MediaBox.first("jp2c", b, in: 0..<b.count) else { return nil }
      start = box.body.lowerBound
    }
    guard b.big(4, at: start) == 0xFF4F_FF51, let right = b.big(4, at: start + 8),
      let bottom = b.big(4, at: start + 12),
      let left = b.big(4, at: start + 16), let top = b.big(4, at: start + 20), right > left, bottom > top
    else { return nil }
    return HeaderProbe(right - left, bottom - top)
  }

  /// The size header (ISO/IEC 18181-1, D.2), the first thing in the codestream; before orientation.
  private static func jpegXL(_ b: UnsafeRawBufferPointer) -> HeaderProbe? {
    var start = 0
    if b.big(2, at: 0) != 0xFF0A {
      // The codestream lies in one box, or in numbered parts.
      guard let box = MediaBox.first("jxlc", b, in: 0..<b.count) ?? MediaBox.first("jxlp", b, in: 0..<b.count) else {
        return nil
      }
      start = box.body.lowerBound + (box.name == "jxlp" ? 4 : 0)
    }
    guard b.big(2, at: start) == 0xFF0A else { return nil }
    // At most 1 + 2 + 30 + 3 + 2 + 30 bits follow; least significant first.
    let rest = b.slice(start + 2..<start + 12)
    var at = 0
    func bits(_ count: Int) -> Int {
      defer { at += count }
      return (0..<count).reduce(0) { value, i in
        let bit = at + i
        return bit / 8 < rest.count ? value | Int(rest[bit / 8] >> UInt8(bit % 8) & 1) << i : value
      }
    }
    let isSmall = bits(1) == 1
    func side() -> Int { isSmall ? 8 * (bits(5) + 1) : bits([9, 13, 18, 30][bits(2)]) + 1 }
    let height = side()
    let ratios = [(1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1)]
    let ratio = bits(3)
    let width = ratio == 0 ? side() : height * ratios[ratio - 1].0 / ratios[ratio - 1].1
    return at <= 8 * rest.count ? HeaderProbe(width, height) : nil
  }

  /// The largest image spatial extent ("ispe") among the item properties (ISO/IEC 23008-12, 6.5.3). Tiles and
  /// thumbnails have smaller ones of their own.
  private static func isoMedia(_ b: UnsafeRawBufferPointer) -> HeaderProbe? {
    var largest: HeaderProbe?
    func walk(_ start: Int, _ end: Int, depth: Int) {
      var i = start
      while i + 8 <= end {
        var size = b.big32(i)
        var body = i + 8
        if size == 1, i + 16 <= end {
          guard b.big32(i + 8) == 0 else { return }
          size = b.big32(i + 12)
          body = i + 16
        }
        if size == 0 { size = end - i }
        guard size >= body - i else { return }
        let next = min(end, i + size)
        switch b.tag(i + 4) {
        case "meta" where depth == 0: walk(body + 4, next, depth: 1)
        case "iprp" where depth == 1: walk(body, next, depth: 2)
        case "ipco" where depth == 2: walk(body, next, depth: 3)
        case "ispe" where depth == 3 && body + 12 <= next:
          let found = HeaderProbe(b.big32(body + 4), b.big32(body + 8))
          // Sides are below 2³², so products stay below 2⁶⁴; compared as doubles they cannot overflow.
          let area = { (probe: HeaderProbe) in Double(probe.width) * Double(probe.height) }
          if largest.map({ area(found) > area($0) }) ?? true { largest = found }
        default: break
        }
        i += size
      }
    }
    walk(0, b.count, depth: 0)
    return largest
  }
}

extension UnsafeRawBufferPointer {
  fileprivate func big16(_ i: Int) -> Int { Int(self[i]) << 8 | Int(self[i + 1]) }
  fileprivate func big32(_ i: Int) -> Int { big16(i) << 16 | big16(i + 2) }
  fileprivate func little16(_ i: Int) -> Int { Int(self[i]) | Int(self[i + 1]) << 8 }
  fileprivate func little24(_ i: Int) -> Int { little16(i) | Int(self[i + 2]) << 16 }
  fileprivate func little32(_ i: Int) -> Int { little16(i) | little16(i + 2) << 16 }
  fileprivate func tag(_ i: Int) -> String {
    i + 4 <= count ? String(decoding: self[i..<i + 4], as: UTF8.self) : ""
  }
}
