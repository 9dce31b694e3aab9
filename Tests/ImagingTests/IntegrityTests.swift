import Testing

@testable import Imaging

@Suite struct IntegrityTests {
  private func check(_ bytes: some Collection<UInt8>, _ format: PictureFormat) -> Integrity.Finding? {
    Array(bytes).withUnsafeBytes { Integrity.check($0, format) }
  }

  private func diagnose(_ bytes: [UInt8], maxScans: Int = 500) -> Integrity.JPEGFinding {
    bytes.withUnsafeBytes { Integrity.diagnoseJPEG($0, maxScans: maxScans) }
  }

  @Test("whole pictures give no finding", arguments: PictureFormat.allCases.filter(\.canEncode))
  func whole(_ format: PictureFormat) throws {
    let image = try Made.waves(64, 48)
    let options: EncodeOptions
    switch format {
    case .jpeg: options = .jpeg(.init())
    case .png: options = .png(.init())
    case .webp: options = .webp(.init())
    case .avif: options = .avif(.init())
    case .tiff: options = .tiff(.init())
    default: return
    }
    let bytes = try image.encoded(options).array
    #expect(check(bytes, format) == nil)
    guard format != .jpeg else { return }
    // A tenth of the file cannot be missing unseen.
    #expect(check(bytes.dropLast(bytes.count / 10), format)?.kind == .truncated)
  }

  @Test(
    "real pictures give no finding", .enabled(if: torture("png/p3.png") != nil, "the torture collection is not here"),
    arguments: [
      "png/basi2c08.png", "png/ball.png", "png/tRNS_null_1x1.png", "png/prophoto.png", "gif/cogs.gif",
      "gif/rotating-squares.gif", "gif/transparent.gif", "webp/1.webp", "webp/lossy_alpha.webp", "webp/simple.webp",
      "webp/rotating-squares.webp", "avif/hopper.avif", "avif/transparency.avif", "heic/arrow.heic",
      "heic/example.heic",
      "heic/RGB_10__29x100.heif", "jxl/splines.jxl", "jxl/cropped_traffic_light.jxl", "tiff/multipage.tiff",
      "tiff/tiff_strip_cmyk_jpeg.tif", "tiff/hopper.Lab.tif", "tiff/tifftag-photoshop.tiff",
      "orient/g4_orientation_6.tif",
      "other/test-card-lossless.jp2",
    ])
  func real(_ name: String) throws {
    let bytes = try #require(torture(name))
    let format = try #require(FormatSniffer.format(of: bytes))
    #expect(check(bytes, format) == nil)
  }

  @Test("PNG: a missing end mark costs no pixels, damaged transparency does")
  func png() throws {
    let bytes = try Made.waves(16, 16).encoded(.png(.init()), metadata: .none).array
    #expect(check(bytes.dropLast(12), .png)?.costsPixels == false)
    #expect(check(bytes.dropLast(14), .png)?.costsPixels == true)
    var key = Made.png(bytes, adding: "tRNS", [0, 1, 0, 2, 0, 3])
    #expect(check(key, .png) == nil)
    key[33 + 8] ^= 1
    let finding = check(key, .png)
    #expect(finding?.kind == .corrupt && finding?.costsPixels == true)
    var gamma = Made.png(bytes, adding: "gAMA", Made.big32(45455))
    gamma[33 + 8] ^= 1
    #expect(check(gamma, .png)?.costsPixels == false)
  }

  @Test("GIF: which frame is cut")
  func gif() {
    let bytes = GIF.two()
    #expect(check(bytes, .gif) == nil)
    #expect(check(bytes.dropLast(1), .gif)?.costsPixels == false)
    for lost in 2...14 {
      let finding = check(bytes.dropLast(lost), .gif)
      #expect(finding?.frame == 1 && finding?.costsPixels == true, "\(lost) bytes lost")
    }
    #expect(check(bytes.dropLast(18), .gif)?.frame == 0)
    // In the comment, before any frame.
    #expect(check(bytes.prefix(25), .gif)?.costsPixels == true)
  }

  @Test("TIFF: strips that end beyond the file")
  func tiff() throws {
    let bytes = try Made.waves(64, 64).encoded(.tiff(.init(compression: .jpeg, quality: 80))).array
    #expect(check(bytes, .tiff) == nil)
    // The directory of libtiff stands behind the pixels, so the last strip's length is made larger instead.
    var long = bytes
    let found = long.withUnsafeBytes { raw -> Int? in
      guard let file = TIFFDirectories(raw), let first = file.directory(at: file.first) else { return nil }
      return first.entry(279)?.at
    }
    let at = try #require(found)
    long.replaceSubrange(at..<at + 4, with: Made.little32(bytes.count))
    #expect(check(long, .tiff)?.costsPixels == true)
  }

  @Test("TIFF: a page that lies beyond the file")
  func tiffPages() throws {
    // One page whose successor is said to begin where the file ends.
    var bytes = Made.tiff(2, 2, [UInt8](repeating: 0, count: 12), orientation: 1)
    #expect(check(bytes, .tiff) == nil)
    let next = 8 + 2 + 120
    bytes.replaceSubrange(next..<next + 4, with: Made.little32(bytes.count))
    #expect(check(bytes, .tiff)?.frame == 1)
    #expect(check(bytes, .tiff)?.costsPixels == true)
  }

  @Test(
    "HEIC: whose bytes are missing", .enabled(if: torture("heic/example.heic") != nil, "no torture collection"))
  func heif() throws {
    let bytes = try #require(torture("heic/example.heic"))
    // The second picture lies last; the first is needed.
    #expect(check(bytes.prefix(700_000), .heic)?.costsPixels == false)
    #expect(check(bytes.prefix(bytes.count / 4), .heic)?.costsPixels == true)
  }

  // MARK: JPEG

  @Test("a whole JPEG is whole, cut it is cut short")
  func jpegCut() throws {
    let bytes = try Made.waves(256, 256).encoded(.jpeg(.init())).array
    #expect(diagnose(bytes) == .whole)
    guard case .cutShort(let row, 256, _) = diagnose(Array(bytes.prefix(bytes.count * 2 / 3))) else {
      Issue.record("\(diagnose(Array(bytes.prefix(bytes.count * 2 / 3))))")
      return
    }
    #expect((64..<250).contains(row))
    guard case .refused = diagnose(Array(bytes.prefix(100))) else {
      Issue.record("no picture in 100 bytes")
      return
    }
    guard case .refused = diagnose([]) else {
      Issue.record("no picture in nothing")
      return
    }
  }

  @Test("stray bytes between segments are odd, a marker among the pixels is damage")
  func jpegMiddle() throws {
    let bytes = try Made.waves(256, 256).encoded(.jpeg(.init()), metadata: .none).array
    guard case .odd = diagnose(Array(bytes[0..<2]) + [1, 2, 3] + bytes[2...]) else {
      Issue.record("stray bytes: \(diagnose(Array(bytes[0..<2]) + [1, 2, 3] + bytes[2...]))")
      return
    }
    var cut = bytes
    cut.replaceSubrange(bytes.count / 2..<bytes.count / 2 + 2, with: [0xFF, 0xD9])
    guard case .cutShort = diagnose(cut) else {
      Issue.record("\(diagnose(cut))")
      return
    }
    var gap = bytes
    gap.replaceSubrange(bytes.count / 2..<bytes.count / 2 + 2, with: [0xFF, 0xD0])
    guard case .garbled = diagnose(gap) else {
      Issue.record("\(diagnose(gap))")
      return
    }
  }

  @Test("more scans than a sane picture has")
  func jpegScans() throws {
    let bytes = try Made.waves(64, 64).encoded(.jpeg(.init(progressive: true))).array
    #expect(diagnose(bytes) == .whole)
    #expect(diagnose(bytes, maxScans: 3) == .tooManyScans(3))
  }

  @Test("real damage", .enabled(if: torture("png/p3.png") != nil, "the torture collection is not here"))
  func realDamage() throws {
    guard case .odd = diagnose(try #require(torture("jpeg-bad/extraneous-bytes-after-sos.jpg"))) else {
      Issue.record("stray bytes of a scanner")
      return
    }
    guard case .cutShort = diagnose(try #require(torture("jpeg-bad/truncated.jpg"))) else {
      Issue.record("cut at 10000 bytes")
      return
    }
    // Restart intervals that hold too much and too little.
    guard case .garbled = diagnose(try #require(torture("jpeg/hopper_bad_exif.jpg"))) else {
      Issue.record("restart intervals")
      return
    }
    for name in ["jpeg/test1.arith.jpg", "jpeg/cmyk-icc.jpg", "jpeg/ultra-hdr.jpg", "orient/Landscape_1.jpg"] {
      #expect(diagnose(try #require(torture(name))) == .whole, "\(name)")
    }
  }
}
