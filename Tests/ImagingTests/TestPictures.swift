import Glibc
import Imaging
import Testing

/// Pictures made in code, and ways to look at results.
enum Made {
  /// A picture from a function of its pixels.
  static func image(_ width: Int, _ height: Int, bands: Int = 3, _ pixel: (Int, Int) -> [UInt8]) throws -> Image {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(width * height * bands)
    for y in 0..<height { for x in 0..<width { bytes += pixel(x, y) } }
    return try Image(width: width, height: height, bands: bands, bytes: bytes)
  }

  /// Soft, photo-like content: slow waves of different length in each band.
  static func waves(_ width: Int, _ height: Int) throws -> Image {
    try image(width, height) { x, y in
      let (u, v) = (Double(x) / Double(width) * 6.283, Double(y) / Double(height) * 6.283)
      return [
        UInt8(128 + 100 * sin(u * 2 + v)), UInt8(128 + 90 * cos(v * 3 - u)), UInt8(128 + 80 * sin(u + v * 2)),
      ]
    }
  }

  /// An EXIF block, little-endian: short and text entries of the main directory.
  static func exif(orientation: Int? = nil, texts: [(Int, String)] = [], gps: Bool = false) -> [UInt8] {
    func le16(_ v: Int) -> [UInt8] { [UInt8(v & 255), UInt8(v >> 8 & 255)] }
    func le32(_ v: Int) -> [UInt8] { le16(v & 0xFFFF) + le16(v >> 16) }
    var entries: [(tag: Int, bytes: (Int) -> [UInt8], extra: [UInt8])] = []
    if let orientation {
      entries.append((0x0112, { _ in le16(3) + le32(1) + le16(orientation) + [0, 0] }, []))
    }
    for (tag, text) in texts {
      var data = Array(text.utf8) + [0]
      while data.count < 6 { data.append(0) }
      if data.count % 2 == 1 { data.append(0) }
      let count = data.count
      entries.append((tag, { at in le16(2) + le32(count) + le32(at) }, data))
    }
    if gps { entries.append((0x8825, { at in le16(4) + le32(1) + le32(at) }, gpsDirectory(le16, le32))) }
    entries.sort { $0.tag < $1.tag }
    var at = 8 + 2 + 12 * entries.count + 4
    var body = le16(entries.count)
    var extra: [UInt8] = []
    for entry in entries {
      body += le16(entry.tag) + entry.bytes(at)
      extra += entry.extra
      at += entry.extra.count
    }
    return [0x49, 0x49, 0x2A, 0] + le32(8) + body + le32(0) + extra
  }

  /// One entry: GPSLatitudeRef "N".
  private static func gpsDirectory(_ le16: (Int) -> [UInt8], _ le32: (Int) -> [UInt8]) -> [UInt8] {
    le16(1) + le16(1) + le16(2) + le32(2) + [0x4E, 0, 0, 0] + le32(0)
  }

  /// Puts a segment behind a JPEG's start.
  static func jpeg(_ jpeg: [UInt8], adding marker: UInt8, _ payload: [UInt8]) -> [UInt8] {
    let length = payload.count + 2
    return Array(jpeg[0..<2]) + [0xFF, marker, UInt8(length >> 8), UInt8(length & 255)] + payload + jpeg[2...]
  }

  static func jpeg(_ bytes: [UInt8], exif: [UInt8]) -> [UInt8] {
    jpeg(bytes, adding: 0xE1, Array("Exif\0\0".utf8) + exif)
  }

  /// Puts a chunk behind a PNG's header.
  static func png(_ png: [UInt8], adding tag: String, _ payload: [UInt8]) -> [UInt8] {
    Array(png[0..<33]) + chunk(tag, payload) + png[33...]
  }

  static func chunk(_ tag: String, _ payload: [UInt8]) -> [UInt8] {
    let body = Array(tag.utf8) + payload
    return big32(payload.count) + body + big32(Int(crc32(body)))
  }

  static func big32(_ v: Int) -> [UInt8] { [24, 16, 8, 0].map { UInt8(v >> $0 & 255) } }
  static func little32(_ v: Int) -> [UInt8] { big32(v).reversed() }

  private static func crc32(_ bytes: [UInt8]) -> UInt32 {
    var crc: UInt32 = 0xFFFF_FFFF
    for byte in bytes {
      crc ^= UInt32(byte)
      for _ in 0..<8 { crc = crc & 1 == 1 ? crc >> 1 ^ 0xEDB8_8320 : crc >> 1 }
    }
    return ~crc
  }

  /// A WebP in the extended format with an EXIF chunk, from a simple one.
  static func webp(_ webp: [UInt8], exif: [UInt8], width: Int, height: Int) -> [UInt8] {
    let little24 = { (v: Int) in [UInt8(v & 255), UInt8(v >> 8 & 255), UInt8(v >> 16 & 255)] }
    let extended: [UInt8] =
      Array("VP8X".utf8) + little32(10) + [0x08, 0, 0, 0] + little24(width - 1) + little24(height - 1)
    var exifChunk: [UInt8] = Array("EXIF".utf8) + little32(exif.count) + exif
    if exif.count % 2 == 1 { exifChunk.append(0) }
    let body = Array("WEBP".utf8) + extended + webp[12...] + exifChunk
    return Array("RIFF".utf8) + little32(body.count) + body
  }

  /// An uncompressed RGB TIFF with an orientation tag.
  static func tiff(_ width: Int, _ height: Int, _ pixels: [UInt8], orientation: Int) -> [UInt8] {
    func le16(_ v: Int) -> [UInt8] { [UInt8(v & 255), UInt8(v >> 8 & 255)] }
    func entry(_ tag: Int, _ type: Int, _ count: Int, _ value: Int) -> [UInt8] {
      le16(tag) + le16(type) + little32(count) + little32(value)
    }
    let count = 10
    let bitsAt = 8 + 2 + 12 * count + 4
    let dataAt = bitsAt + 6
    return [0x49, 0x49, 0x2A, 0] + little32(8) + le16(count)
      + entry(256, 3, 1, width) + entry(257, 3, 1, height) + entry(258, 3, 3, bitsAt) + entry(259, 3, 1, 1)
      + entry(262, 3, 1, 2) + entry(273, 4, 1, dataAt) + entry(274, 3, 1, orientation) + entry(277, 3, 1, 3)
      + entry(278, 3, 1, height) + entry(279, 4, 1, pixels.count) + little32(0) + le16(8) + le16(8) + le16(8) + pixels
  }

  /// A matrix ICC profile (version 2) with a plain gamma: primaries as XYZ adapted to D50.
  static func profile(_ primaries: [[Double]], gamma: Double) -> [UInt8] {
    func fixed(_ v: Double) -> [UInt8] { big32(Int(UInt32(bitPattern: Int32((v * 65536).rounded())))) }
    let white = [0.9642, 1.0, 0.8249]
    func xyz(_ v: [Double]) -> [UInt8] { Array("XYZ ".utf8) + [0, 0, 0, 0] + v.flatMap(fixed) }
    let curve: [UInt8] =
      Array("curv".utf8) + [0, 0, 0, 0] + big32(1) + [
        UInt8(Int(gamma * 256) >> 8), UInt8(Int(gamma * 256) & 255), 0, 0,
      ]
    let text: [UInt8] =
      Array("desc".utf8) + [0, 0, 0, 0] + big32(5) + Array("test\0".utf8) + [UInt8](repeating: 0, count: 78 + 1)
    let tags: [(String, [UInt8])] = [
      ("desc", text), ("wtpt", xyz(white)), ("rXYZ", xyz(primaries[0])), ("gXYZ", xyz(primaries[1])),
      ("bXYZ", xyz(primaries[2])), ("rTRC", curve), ("gTRC", curve), ("bTRC", curve),
    ]
    var table = big32(tags.count)
    var data: [UInt8] = []
    let start = 128 + 4 + 12 * tags.count
    for (name, value) in tags {
      table += Array(name.utf8) + big32(start + data.count) + big32(value.count)
      data += value
      while data.count % 4 != 0 { data.append(0) }
    }
    var header = [UInt8](repeating: 0, count: 128)
    header.replaceSubrange(0..<4, with: big32(start + data.count))
    header.replaceSubrange(8..<12, with: [2, 0x10, 0, 0])
    header.replaceSubrange(12..<24, with: Array("mntrRGB XYZ ".utf8))
    header.replaceSubrange(36..<40, with: Array("acsp".utf8))
    header.replaceSubrange(68..<80, with: white.flatMap(fixed))
    return header + table + data
  }

  static func jpeg(_ bytes: [UInt8], profile: [UInt8]) -> [UInt8] {
    jpeg(bytes, adding: 0xE2, Array("ICC_PROFILE\0".utf8) + [1, 1] + profile)
  }
}

extension Image {
  func pixel(_ x: Int, _ y: Int) throws -> [UInt8] {
    let all = try bytes()
    return Array(all[(y * width + x) * bands..<(y * width + x + 1) * bands])
  }
}

func picture(_ bytes: [UInt8], _ limits: DecodeLimits = DecodeLimits()) throws -> EncodedPicture {
  try EncodedPicture(bytes: EncodedBytes(bytes), limits: limits)
}

/// The error that a call ends with.
func failure(_ body: () throws -> Void) -> ImagingError? {
  do {
    try body()
    return nil
  } catch {
    return error as? ImagingError
  }
}

/// 10 · log10(255² / mean squared difference); infinite for equal pictures.
func decibels(_ a: [UInt8], _ b: [UInt8]) -> Double {
  guard a.count == b.count else { return -1 }
  let sum = zip(a, b).reduce(0.0) { sum, pair in
    let difference = Double(pair.0) - Double(pair.1)
    return sum + difference * difference
  }
  return sum == 0 ? .infinity : 10 * log10(65025 / (sum / Double(a.count)))
}

func maxDifference(_ a: [UInt8], _ b: [UInt8]) -> Int {
  a.count == b.count ? zip(a, b).reduce(0) { max($0, abs(Int($1.0) - Int($1.1))) } : 999
}

func contains(_ bytes: EncodedBytes, _ text: String) -> Bool {
  let (all, wanted) = (bytes.array, Array(text.utf8))
  guard all.count >= wanted.count else { return false }
  return (0...all.count - wanted.count).contains {
    all[$0] == wanted[0] && all[$0..<$0 + wanted.count].elementsEqual(wanted)
  }
}
