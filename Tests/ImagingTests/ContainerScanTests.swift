import Testing

@testable import Imaging

@Suite struct ContainerScanTests {
  private func scan(_ bytes: [UInt8], _ format: PictureFormat, bound: Int = 64 << 20) -> ContainerScan {
    bytes.withUnsafeBytes { ContainerScan($0, format, bound: bound) }
  }

  @Test("JPEG: segments of profile and metadata")
  func jpeg() throws {
    var bytes = try Made.waves(16, 16).encoded(.jpeg(.init()), metadata: .none).array
    let before = scan(bytes, .jpeg)
    bytes = Made.jpeg(bytes, adding: 0xE2, Array("ICC_PROFILE\0".utf8) + [1, 2] + [UInt8](repeating: 7, count: 1000))
    bytes = Made.jpeg(bytes, adding: 0xE2, Array("ICC_PROFILE\0".utf8) + [2, 2] + [UInt8](repeating: 7, count: 500))
    bytes = Made.jpeg(bytes, adding: 0xE1, Array("Exif\0\0".utf8) + [UInt8](repeating: 7, count: 94))
    bytes = Made.jpeg(bytes, adding: 0xFE, [UInt8](repeating: 7, count: 50))
    let found = scan(bytes, .jpeg)
    #expect(found.profileBytes == before.profileBytes + 1500)
    #expect(found.metadataBytes == before.metadataBytes + 150)
  }

  @Test("PNG: chunks, and packed ones by what they hold")
  func png() throws {
    var bytes = try Made.waves(16, 16).encoded(.png(.init()), metadata: .none).array
    bytes = Made.png(bytes, adding: "zTXt", Array("key\0\0".utf8) + Made.zlib([UInt8](repeating: 65, count: 5000)))
    bytes = Made.png(
      bytes, adding: "iTXt", Array("key\0\u{1}\0en\0\0".utf8) + Made.zlib([UInt8](repeating: 65, count: 300)))
    bytes = Made.png(bytes, adding: "iTXt", Array("key\0\0\0en\0\0hello".utf8))
    bytes = Made.png(bytes, adding: "tEXt", Array("key\0hi".utf8))
    bytes = Made.png(bytes, adding: "iCCP", Array("name\0\0".utf8) + Made.zlib([UInt8](repeating: 1, count: 700)))
    bytes = Made.png(bytes, adding: "acTL", Made.big32(12) + Made.big32(0))
    let found = scan(bytes, .png)
    #expect(found == ContainerScan(profileBytes: 700, metadataBytes: 5311, frames: 12))
    // Unpacked no further than the bound, in all.
    #expect(scan(bytes, .png, bound: 1000).metadataBytes < 3000)
  }

  @Test(
    "text that unpacks to a thousand times its size",
    .enabled(if: torture("png/p3.png") != nil, "the torture collection is not here"))
  func bomb() throws {
    let found = scan(try #require(torture("png-bad/png_decompression_dos.png")), .png)
    #expect(found.metadataBytes == 3 << 21)
    #expect(failure { try DecodeLimits(maxMetadataBytes: 1 << 20).check(found) }?.code == .limit)
  }

  @Test("TIFF directories that lie over each other are read so far and no further")
  func overlappingDirectories() throws {
    // A hundred, each of 4,096 entries and 4 bytes behind the one before; their links stand side by side at the end.
    let count = 100
    var bytes: [UInt8] = [0x49, 0x49, 0x2A, 0] + Made.little32(8)
    while bytes.count < 8 + 2 + 12 * 4096 { bytes += [0x00, 0x10, 0, 0] }
    bytes.removeSubrange(8 + 2 + 12 * 4096..<bytes.count)
    for index in 1...count { bytes += Made.little32(index < count ? 8 + 4 * index : 0) }
    func directories(_ budget: Int) throws -> Int {
      try bytes.withUnsafeBytes { raw in
        var found = 0
        try #require(TIFFDirectories(raw)).walk(budget: budget) { directory in
          found += directory.entries.count == 4096 ? 1 : 0
          return true
        }
        return found
      }
    }
    #expect(try directories(.max) == count)
    #expect(try directories(10 * 4097) == 10)
  }

  @Test("WebP, GIF and TIFF")
  func others() throws {
    let image = try Made.waves(16, 16)
    let plain = try image.encoded(.webp(.init()), metadata: .none).array
    #expect(scan(Made.webp(plain, exif: Made.exif(orientation: 1), width: 16, height: 16), .webp).metadataBytes > 20)
    let gif = GIF.two()
    #expect(scan(gif, .gif) == ContainerScan(profileBytes: 0, metadataBytes: 5, frames: 2))
    let tiff = try image.encoded(.tiff(.init()), metadata: .all).array
    #expect(scan(tiff, .tiff).frames == 1)
    // A directory that points to itself.
    var ring = Made.tiff(2, 2, [UInt8](repeating: 0, count: 12), orientation: 1)
    let next = 8 + 2 + 120
    ring.replaceSubrange(next..<next + 4, with: Made.little32(8))
    #expect(scan(ring, .tiff).frames == 1)
    #expect(ring.withUnsafeBytes { HeaderProbe($0, .tiff)?.width } == 2)
  }

  @Test(
    "real files", .enabled(if: torture("png/p3.png") != nil, "the torture collection is not here"),
    arguments: [
      ("jpeg/icc_profile_big.jpg", PictureFormat.jpeg, 390_000, 0, nil), ("tiff/multipage.tiff", .tiff, 0, 0, 3),
      ("gif/rotating-squares.gif", .gif, 0, 0, 30), ("webp/rotating-squares.webp", .webp, 0, 0, 9),
      ("png/ball.png", .png, 0, 0, 20), ("tiff/fogra-0-100-100-0.tif", .tiff, 500_000, 0, 1),
      ("heic/arrow.heic", .heic, 500, 1000, nil), ("avif/icc_profile.avif", .avif, 300, 0, nil),
    ] as [(String, PictureFormat, Int, Int, Int?)])
  func real(_ name: String, _ format: PictureFormat, profile: Int, metadata: Int, frames: Int?) throws {
    let found = scan(try #require(torture(name)), format)
    #expect(found.profileBytes >= profile)
    #expect(found.metadataBytes >= metadata)
    #expect(found.frames == frames)
    #expect(failure { try DecodeLimits().check(found) } == nil)
  }

  @Test("each limit names itself, its value and its setting")
  func limits() {
    let limits = DecodeLimits(maxFrames: 2, maxProfileBytes: 100, maxMetadataBytes: 200, maxExpansion: 50)
    let cases: [(ContainerScan, String, String)] = [
      (ContainerScan(profileBytes: 101), "101", "limits.maxProfileBytes"),
      (ContainerScan(metadataBytes: 201), "201", "limits.maxMetadataBytes"),
      (ContainerScan(frames: 3), "3 frames", "limits.maxFrames"),
    ]
    for (scan, value, setting) in cases {
      let error = failure { try limits.check(scan) }
      #expect(error?.code == .limit)
      #expect(error?.message.contains(value) == true)
      #expect(error?.hint?.contains(setting) == true)
    }
    #expect(failure { try limits.check(ContainerScan(profileBytes: 100, metadataBytes: 200, frames: 2)) } == nil)
    #expect(failure { try limits.checkExpansion(decodedBytes: 65 << 20, fileBytes: 1000) }?.code == .limit)
    #expect(failure { try limits.checkExpansion(decodedBytes: 64 << 20, fileBytes: 1000) } == nil)
    #expect(failure { try limits.checkExpansion(decodedBytes: 65 << 20, fileBytes: 2 << 20) } == nil)
  }

  @Test("no walk traps, loops or reads beyond the bytes, whatever they are")
  func hostile() throws {
    var random = Seeded(state: 11)
    var seeds: [([UInt8], PictureFormat)] = []
    let image = try Made.waves(24, 24)
    seeds.append((try image.encoded(.jpeg(.init())).array, .jpeg))
    seeds.append((try image.encoded(.png(.init())).array, .png))
    seeds.append((try image.encoded(.webp(.init())).array, .webp))
    seeds.append((try image.encoded(.tiff(.init())).array, .tiff))
    seeds.append((GIF.two(), .gif))
    seeds.append((Made.icon([(1, Made.iconBitmap(1, 1, bits: 32, rows: [[1, 2, 3, 4]], mask: [[0]]))]), .ico))
    seeds.append((Array("<svg width='1in' viewBox='0 0 9 9'>".utf8), .svg))
    for (name, format) in [
      ("heic/RGB_10__29x100.heif", PictureFormat.heic), ("avif/transparency.avif", .avif),
      ("jxl/cropped_traffic_light.jxl", .jxl), ("gif/cogs.gif", .gif), ("tiff/multipage.tiff", .tiff),
    ] {
      if let bytes = torture(name) { seeds.append((Array(bytes.prefix(4096)), format)) }
    }
    for (seed, format) in seeds {
      for round in 0..<300 {
        var bytes = seed
        if round % 3 == 0 { bytes = Array(bytes.prefix(Int(random.next() % UInt64(bytes.count)))) }
        for _ in 0..<(round % 8) where !bytes.isEmpty {
          // Mostly in the front, where the headers are; all ones are the worst lengths.
          let at = Int(random.next() % UInt64(min(bytes.count, 400)))
          bytes[at] = random.next() % 3 == 0 ? 0xFF : UInt8(truncatingIfNeeded: random.next())
        }
        // Copied to its exact size, so that a read beyond it is not in some other array.
        bytes.withUnsafeBytes { raw in
          let found = ContainerScan(raw, format, bound: 1 << 20)
          #expect(found.profileBytes >= 0 && found.metadataBytes >= 0)
          _ = HeaderProbe(raw, format)
          _ = Integrity.check(raw, format)
          _ = DeclaredColour.png(raw)
          _ = DeclaredColour.heif(raw)
          _ = FormatSniffer.embeddedJPEG(in: raw)
          _ = try? IconDirectory.decode(IconDirectory.best(raw), raw)
        }
      }
    }
  }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Seeded: RandomNumberGenerator {
  var state: UInt64

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ z >> 30) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ z >> 27) &* 0x94D0_49BB_1331_11EB
    return z ^ z >> 31
  }
}

enum GIF {
  /// Two frames of one pixel each, with a comment of five letters.
  static func two() -> [UInt8] {
    let frame: [UInt8] = [0x2C, 0, 0, 0, 0, 1, 0, 1, 0, 0, 2, 2, 0x44, 0x01, 0]
    return Array("GIF89a".utf8) + [1, 0, 1, 0, 0x80, 0, 0, 0, 0, 0, 255, 255, 255] + [0x21, 0xFE, 5]
      + Array("hello".utf8) + [0] + frame + frame + [0x3B]
  }
}
