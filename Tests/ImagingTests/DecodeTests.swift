import Glibc
import Imaging
import Testing

@Suite struct DecodeTests {
  /// Stored: red | green over blue | white. What stands upright at top left, top right, bottom left, bottom right for
  /// each orientation, from the EXIF specification's description of where row 0 and column 0 are.
  static let upright: [Int: String] = [
    1: "RGBW", 2: "GRWB", 3: "WBGR", 4: "BWRG", 5: "RBGW", 6: "BRWG", 7: "WGBR", 8: "GWRB",
  ]
  static let colours: [Character: [UInt8]] = [
    "R": [255, 0, 0], "G": [0, 255, 0], "B": [0, 0, 255], "W": [255, 255, 255],
  ]

  static func stored() throws -> Image {
    try Made.image(64, 32) { x, y in
      x < 32 ? (y < 16 ? [255, 0, 0] : [0, 0, 255]) : (y < 16 ? [0, 255, 0] : [255, 255, 255])
    }
  }

  static func oriented(_ format: PictureFormat, _ orientation: Int) throws -> [UInt8] {
    let exif = Made.exif(orientation: orientation)
    switch format {
    case .jpeg:
      return Made.jpeg(
        try stored().encoded(.jpeg(.init(quality: 95, chroma: .full)), metadata: .none).array, exif: exif)
    case .png:
      return Made.png(try stored().encoded(.png(.init()), metadata: .none).array, adding: "eXIf", exif)
    case .webp:
      let plain = try stored().encoded(.webp(.init(quality: 95, lossless: true)), metadata: .none).array
      return Made.webp(plain, exif: exif, width: 64, height: 32)
    default: return Made.tiff(64, 32, try stored().bytes(), orientation: orientation)
    }
  }

  @Test("every orientation is baked in once", arguments: [PictureFormat.jpeg, .png, .webp, .tiff], 1...8)
  func orientation(_ format: PictureFormat, _ orientation: Int) throws {
    let source = try picture(Self.oriented(format, orientation))
    #expect(source.header.format == format)
    #expect(source.header.orientation == orientation)
    let (width, height) = orientation >= 5 ? (32, 64) : (64, 32)
    #expect(source.header.orientedWidth == width)
    let half = try ResizeRequest(width: width / 2).plan(for: width, height)
    for image in [try source.decode().materialised(), try source.decode(resizedTo: half).materialised()] {
      #expect(image.width * height == image.height * width)
      let (right, bottom) = (image.width * 3 / 4, image.height * 3 / 4)
      let places = [
        (image.width / 4, image.height / 4), (right, image.height / 4), (image.width / 4, bottom), (right, bottom),
      ]
      for (place, name) in zip(places, try #require(Self.upright[orientation])) {
        let difference = maxDifference(try image.pixel(place.0, place.1), try #require(Self.colours[name]))
        #expect(difference <= 6, "\(format) \(orientation): \(name) at \(place)")
      }
      // A second reader must not turn it again.
      let again = try picture(image.encoded(.jpeg(.init()), metadata: .all).array)
      #expect(again.header.orientation == 1)
      #expect(again.header.width == image.width)
    }
  }

  @Test("16 bit, grey with alpha, palette and CMYK come out as 8-bit sRGB")
  func kinds() throws {
    // 1×1 PNGs are written by hand elsewhere; here what our own encoders make.
    let grey = try Made.image(8, 8, bands: 1) { x, _ in [UInt8(x * 30)] }
    let back = try picture(grey.encoded(.png(.init()), metadata: .none).array)
    #expect(back.header.bands == 1)
    let decoded = try back.decode().materialised()
    #expect(decoded.bands == 3)
    #expect(try decoded.pixel(7, 0) == [210, 210, 210])

    let greyAlpha = try Made.image(8, 8, bands: 2) { x, y in [UInt8(x * 30), UInt8(y * 30)] }
    let both = try picture(greyAlpha.encoded(.png(.init()), metadata: .none).array).decode().materialised()
    #expect(try both.pixel(3, 5) == [90, 90, 90, 150])

    let flat = try Made.image(8, 8) { x, _ in x < 4 ? [200, 10, 10] : [10, 10, 200] }
    let palette = try picture(flat.encoded(.png(.init(palette: true, colors: 2)), metadata: .none).array)
    #expect(try palette.decode().materialised().pixel(0, 0) == [200, 10, 10])
  }

  @Test("BMP: 24 bits, top down, palette, bit fields with alpha, RLE")
  func bitmaps() throws {
    func file(_ width: Int, _ height: Int, bits: Int, coding: Int, extra: [UInt8], data: [UInt8]) -> [UInt8] {
      let size = 40
      let at = 14 + size + extra.count
      return Array("BM".utf8) + Made.little32(at + data.count) + [0, 0, 0, 0] + Made.little32(at)
        + Made.little32(size) + Made.little32(width) + Made.little32(height) + [1, 0, UInt8(bits), 0]
        + Made.little32(coding) + Made.little32(data.count) + [UInt8](repeating: 0, count: 16) + extra + data
    }
    // Rows from the bottom, blue first, padded to 4 bytes.
    let plain = file(2, 2, bits: 24, coding: 0, extra: [], data: [1, 2, 3, 4, 5, 6, 0, 0, 7, 8, 9, 10, 11, 12, 0, 0])
    #expect(try picture(plain).decode().bytes() == [9, 8, 7, 12, 11, 10, 3, 2, 1, 6, 5, 4])
    let topDown = file(
      2, -2, bits: 24, coding: 0, extra: [], data: [1, 2, 3, 4, 5, 6, 0, 0, 7, 8, 9, 10, 11, 12, 0, 0])
    #expect(try picture(topDown).decode().bytes() == [3, 2, 1, 6, 5, 4, 9, 8, 7, 12, 11, 10])
    let palette: [UInt8] = [0, 0, 255, 0, 0, 255, 0, 0]  // red, green
    let colours = palette + [UInt8](repeating: 0, count: 4 * 254)
    let one = file(3, 1, bits: 1, coding: 0, extra: palette, data: [0b0100_0000, 0, 0, 0])
    #expect(try picture(one).decode().bytes() == [255, 0, 0, 0, 255, 0, 255, 0, 0])
    let runs = file(3, 2, bits: 8, coding: 1, extra: colours, data: [3, 1, 0, 0, 1, 0, 0, 1])
    #expect(try picture(runs).decode().bytes() == [255, 0, 0, 255, 0, 0, 255, 0, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0])
    let masks = Made.little32(0xFF) + Made.little32(0xFF00) + Made.little32(0xFF0000) + Made.little32(0xFF00_0000)
    let alpha = file(1, 1, bits: 32, coding: 6, extra: masks, data: [10, 20, 30, 40])
    #expect(try picture(alpha).decode().bytes() == [10, 20, 30, 40])
    #expect(try picture(alpha).header.hasAlpha)
    #expect(failure { _ = try picture(Array(plain.dropLast(8))).decode() }?.code == .damaged)
    let run = file(3, 1, bits: 8, coding: 1, extra: colours, data: [200, 1, 0, 1])
    #expect(failure { _ = try picture(run).decode() }?.code == .damaged, "a run beyond the row")
  }

  @Test("a wide-gamut profile is applied, with values worked out from the primaries")
  func displayP3() throws {
    // Display P3 adapted to D50 (as in Apple's profile), with a plain gamma of 2.2.
    let profile = Made.profile(
      [[0.51512, 0.24120, -0.00105], [0.29198, 0.69225, 0.04189], [0.15710, 0.06657, 0.78407]], gamma: 2.2)
    for colour: [UInt8] in [[128, 128, 128], [180, 120, 90], [90, 140, 130], [0, 0, 0], [255, 255, 255]] {
      let flat = try Made.image(16, 16) { _, _ in colour }
      let file = Made.jpeg(
        try flat.encoded(.jpeg(.init(quality: 100, chroma: .full)), metadata: .none).array, profile: profile)
      let source = try picture(file)
      #expect(source.header.hasProfile)
      let linear = colour.map { power(Double($0) / 255, 2.2) }
      let matrix = [[1.22494, -0.22494, 0], [-0.04206, 1.04206, 0], [-0.01964, -0.07864, 1.09828]]
      let expected = matrix.map { row -> UInt8 in
        let sum = zip(row, linear).reduce(0) { $0 + $1.0 * $1.1 }
        let value = sum <= 0.0031308 ? 12.92 * sum : 1.055 * power(sum, 1 / 2.4) - 0.055
        return UInt8(max(0, min(255, (value * 255).rounded())))
      }
      let image = try source.decode().materialised()
      #expect(maxDifference(try image.pixel(8, 8), expected) <= 2, "\(colour)")
      #expect(source.warnings.isEmpty)
      #expect(image.hasProfile, "sRGB's own in its place")
    }
  }

  @Test("a broken profile is left out, with a warning")
  func brokenProfile() throws {
    let flat = try Made.image(16, 16) { _, _ in [10, 100, 200] }
    let jpeg = try flat.encoded(.jpeg(.init(quality: 100, chroma: .full)), metadata: .none).array
    var damaged = Made.profile([[0.5, 0.2, 0], [0.3, 0.7, 0], [0.1, 0.1, 0.8]], gamma: 2.2)
    for i in 128..<damaged.count { damaged[i] = 0xEE }
    for profile in [Array("no profile at all".utf8), damaged] {
      let source = try picture(Made.jpeg(jpeg, profile: profile))
      let image = try source.decode().materialised()
      #expect(maxDifference(try image.pixel(8, 8), [10, 100, 200]) <= 2)
      #expect(!image.hasProfile)
      #expect(source.warnings.contains { $0.contains("profile") })
    }
  }

  @Test("limits are checked from the header, whatever the pixels")
  func limits() throws {
    // A JPEG of a few bytes that claims 65,000 × 65,000 pixels.
    let bomb: [UInt8] = [
      0xFF, 0xD8, 0xFF, 0xC0, 0, 17, 8, 0xFD, 0xE8, 0xFD, 0xE8, 3, 1, 17, 0, 2, 17, 0, 3, 17, 0, 0xFF, 0xD9,
    ]
    let error = failure { _ = try picture(bomb) }
    #expect(error?.code == .limit)
    #expect(error?.message.contains("65000×65000") == true)
    #expect(error?.hint?.contains("limits.maxPixels") == true)
    let png = try Made.waves(40, 30).encoded(.png(.init())).array
    #expect(failure { _ = try picture(png, DecodeLimits(maxPixels: 1199)) }?.code == .limit)
    #expect(failure { _ = try picture(png, DecodeLimits(maxSide: 39)) }?.hint?.contains("limits.maxSide") == true)
    #expect(failure { _ = try picture(png, DecodeLimits(maxPixels: 1200, maxSide: 40)) } == nil)
  }

  @Test("cut or damaged pixels fail; they are not grey", arguments: [PictureFormat.jpeg, .png, .webp, .tiff])
  func truncated(_ format: PictureFormat) throws {
    let whole = try Made.waves(400, 300)
    let options: EncodeOptions =
      switch format {
      case .jpeg: .jpeg(.init())
      case .png: .png(.init())
      case .webp: .webp(.init())
      default: .tiff(.init(compression: .none))
      }
    let bytes = try whole.encoded(options, metadata: .none).array
    let error = failure { _ = try picture(Array(bytes.prefix(bytes.count * 2 / 3))).decode().materialised() }
    #expect(error?.code == .damaged)
    let plan = try ResizeRequest(width: 100).plan(for: 400, 300)
    let small = failure { _ = try picture(Array(bytes.prefix(bytes.count * 2 / 3))).decode(resizedTo: plan).bytes() }
    #expect(small?.code == .damaged)
    #expect(small?.message.contains(format.displayName) == true)
  }

  @Test("what is no picture is named")
  func others() {
    let files: [(String, String)] = [
      ("%PDF-1.7", "a PDF file"), ("<!DOCTYPE html><p>", "an HTML page"), ("<svg xmlns='x'/>", "an SVG drawing"),
      ("%!PS-Adobe-3.0", "a PostScript file"), ("{\"a\": 1}", "a JSON or text file"), ("BMW is a car", "a text file"),
    ]
    for (text, name) in files {
      let error = failure { _ = try picture(Array(text.utf8)) }
      #expect(error?.code == .unsupported)
      #expect(error?.message.contains(name) == true, "\(error?.message ?? "none") for \(text)")
    }
    #expect(failure { _ = try picture([]) }?.code == .empty)
  }

  @Test("files: missing, a folder, empty")
  func files() {
    #expect(failure { _ = try EncodedPicture.read(path: Array("/nonexistent/x.jpg".utf8)) }?.code == .io)
    #expect(
      failure { _ = try EncodedPicture.read(path: Array("/tmp".utf8)) }?.message.contains("not a regular file") == true)
    #expect(failure { _ = try EncodedPicture.read(path: Array("/dev/null".utf8)) }?.code == .io)
  }

  @Test("shrink-on-load gives what a full decode gives, aligned also for odd sides", arguments: [1001, 1024, 767])
  func shrinkOnLoad(_ side: Int) throws {
    let image = try Made.waves(side, side - 10)
    for options in [EncodeOptions.jpeg(.init(quality: 95, chroma: .full)), .webp(.init(quality: 95))] {
      let source = try picture(image.encoded(options, metadata: .none).array)
      for width in [300, 123, 64] {
        let plan = try ResizeRequest(width: width).plan(for: side, side - 10)
        let fast = try source.decode(resizedTo: plan).materialised()
        let slow = try source.decode().resized(plan)
        #expect(fast.width == width && fast.height == plan.height)
        let quality = decibels(try fast.bytes(), try slow.bytes())
        #expect(quality >= 42, "\(options.format) \(side) to \(width): \(quality) dB")
      }
    }
  }
}

private func power(_ base: Double, _ exponent: Double) -> Double { pow(base, exponent) }
