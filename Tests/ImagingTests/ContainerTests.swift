import Glibc
import TestSupport
import Testing

@testable import Imaging

/// Files of the torture collection, by name; nil where it is not at hand.
func torture(_ name: String) -> [UInt8]? {
  let root = getenv("PIPELINE_TEST_DATA").map { String(cString: $0) } ?? "../shared/data"
  return TemporaryFolder.read(root + "/torture/" + name)
}

extension Made {
  static func little16(_ v: Int) -> [UInt8] { [UInt8(v & 255), UInt8(v >> 8 & 255)] }

  static func base64(_ bytes: [UInt8]) -> String {
    let letters = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
    var text = ""
    for at in stride(from: 0, to: bytes.count, by: 3) {
      let three = (0..<3).map { at + $0 < bytes.count ? Int(bytes[at + $0]) : 0 }
      let value = three[0] << 16 | three[1] << 8 | three[2]
      for (i, shift) in [18, 12, 6, 0].enumerated() {
        text.append(at + i - 1 < bytes.count ? letters[value >> shift & 63] : "=")
      }
    }
    return text
  }

  /// A gzip file that packs nothing: one stored block (RFC 1951, 3.2.4; RFC 1952).
  static func gzip(_ content: [UInt8]) -> [UInt8] {
    precondition(content.count < 65536)
    let sum = content.withUnsafeBytes { Inflate.crc32($0) }
    return [0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3, 1] + little16(content.count) + little16(content.count ^ 0xFFFF)
      + content + little32(sum) + little32(content.count)
  }

  /// A zlib stream of one stored block (RFC 1950).
  static func zlib(_ content: [UInt8]) -> [UInt8] {
    var (a, b) = (1, 0)
    for byte in content { (a, b) = ((a + Int(byte)) % 65521, (a + Int(byte) + b) % 65521) }
    return [0x78, 0x01, 1] + little16(content.count) + little16(content.count ^ 0xFFFF) + content + big32(b << 16 | a)
  }

  /// An icon of the entries given: sides for the directory, and data.
  static func icon(type: Int = 1, _ entries: [(side: Int, data: [UInt8])]) -> [UInt8] {
    var directory = little16(0) + little16(type) + little16(entries.count)
    var data: [UInt8] = []
    for entry in entries {
      directory += [UInt8(entry.side & 255), UInt8(entry.side & 255), 0, 0] + little16(1) + little16(32)
      directory += little32(entry.data.count) + little32(6 + 16 * entries.count + data.count)
      data += entry.data
    }
    return directory + data
  }

  /// The bitmap of an icon: header, palette, rows of pixels from the bottom, rows of the mask from the bottom.
  static func iconBitmap(
    _ width: Int, _ height: Int, bits: Int, palette: [[UInt8]] = [], rows: [[UInt8]], mask: [[UInt8]]
  ) -> [UInt8] {
    func padded(_ row: [UInt8]) -> [UInt8] { row + [UInt8](repeating: 0, count: (4 - row.count % 4) % 4) }
    return little32(40) + little32(width) + little32(2 * height) + little16(1) + little16(bits)
      + [UInt8](repeating: 0, count: 24) + palette.flatMap { $0 + [0] } + rows.flatMap(padded) + mask.flatMap(padded)
  }

  /// A PDF of one page of 100 × 50 points with a red field at its lower left; locked where asked for.
  static func pdf(locked: Bool = false) -> [UInt8] {
    let drawing = "1 0 0 rg 0 0 50 25 re f"
    var objects = [
      "<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
      "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 100 50] /Contents 4 0 R >>",
      "<< /Length \(drawing.utf8.count) >>\nstream\n\(drawing)\nendstream",
    ]
    let key = String(repeating: "5a", count: 32)
    if locked { objects.append("<< /Filter /Standard /V 1 /R 2 /P -4 /O <\(key)> /U <\(key)> >>") }
    var text = "%PDF-1.4\n"
    var places: [Int] = []
    for (i, object) in objects.enumerated() {
      places.append(text.utf8.count)
      text += "\(i + 1) 0 obj\n\(object)\nendobj\n"
    }
    let table = text.utf8.count
    func ten(_ v: Int) -> String { String(String(v).reversed() + String(repeating: "0", count: 10)).prefix10Reversed }
    text += "xref\n0 \(objects.count + 1)\n0000000000 65535 f \n"
    text += places.map { ten($0) + " 00000 n \n" }.joined()
    text += "trailer\n<< /Size \(objects.count + 1) /Root 1 0 R"
    if locked { text += " /Encrypt 5 0 R /ID [<00> <00>]" }
    return Array((text + " >>\nstartxref\n\(table)\n%%EOF\n").utf8)
  }
}

extension String {
  fileprivate var prefix10Reversed: String { String(prefix(10).reversed()) }
}

@Suite struct SnifferTests {
  @Test(
    "SVG by its first element, whatever stands before it",
    arguments: [
      "<svg/>", "<svg xmlns='http://www.w3.org/2000/svg' width='1'>", "\u{FEFF}<svg>", " \n<svg>",
      "<?xml version='1.0'?><svg>", "<!-- <html> --><svg>", "<s:svg xmlns:s='x'>",
      "<!DOCTYPE svg PUBLIC \"-//W3C//DTD SVG 1.1//EN\" \"a>b.dtd\"><svg>",
      "<!DOCTYPE svg [ <!ENTITY a \"]>\"> <!-- ' --> <!ENTITY b 'x'> ]>\n<svg>",
      "<?xml version='1.0'?>" + String(repeating: "<!-- a licence of many words -->\n", count: 900) + "<svg>",
    ])
  func svg(_ text: String) {
    #expect(FormatSniffer.format(of: Array(text.utf8)) == .svg)
    #expect(FormatSniffer.format(of: Made.gzip(Array(text.utf8))) == .svg)
    let units = text.unicodeScalars.first == "\u{FEFF}" ? Array(text.utf16) : [0xFEFF] + Array(text.utf16)
    #expect(FormatSniffer.format(of: units.flatMap { [UInt8($0 & 255), UInt8($0 >> 8)] }) == .svg)
    #expect(FormatSniffer.format(of: units.flatMap { [UInt8($0 >> 8), UInt8($0 & 255)] }) == .svg)
  }

  @Test(
    "no SVG",
    arguments: [
      "<html><body><svg></svg>", "<!DOCTYPE html><html><svg>", "<!-- <svg> -->", "<svgfont>", "<?xml version='1.0'?>",
      "<?xml version='1.0'?><x><svg/></x>", "text <svg>", "<!DOCTYPE svg [ <!ENTITY a '<svg>'", "< svg>", "<:svg>",
      "<svg:x>", "<", "",
    ])
  func noSVG(_ text: String) {
    #expect(FormatSniffer.format(of: Array(text.utf8)) == nil)
    #expect(FormatSniffer.format(of: Made.gzip(Array(text.utf8))) == nil)
  }

  @Test(
    "a drawing too large for libvips' numbers is refused, not drawn at one pixel",
    arguments: [
      "width='1e9' height='10'", "width='1e30' height='1e30'", "width='1e8em' height='10'",
      "width='100%' height='10' viewBox='0 0 1e12 10'", "viewBox='0 0 10 1e10'",
    ])
  func hugeSVG(_ attributes: String) throws {
    let drawing = Array("<svg xmlns='http://www.w3.org/2000/svg' \(attributes)/>".utf8)
    #expect(throws: ImagingError.self) {
      try EncodedPicture(bytes: EncodedBytes(drawing), options: DecodeOptions(allowed: [.svg]))
    }
  }

  @Test("a drawing of one pixel is one")
  func smallSVG() throws {
    let drawing = Array("<svg xmlns='http://www.w3.org/2000/svg' width='1' height='7'/>".utf8)
    let header = try EncodedPicture(bytes: EncodedBytes(drawing), options: DecodeOptions(allowed: [.svg])).header
    #expect(header.width == 1 && header.height == 7)
  }

  @Test("a picture that contains <svg stays what it is")
  func looksLike() throws {
    let jpeg = Made.jpeg(try Made.waves(8, 8).encoded(.jpeg(.init())).array, adding: 0xFE, Array("<svg>".utf8))
    #expect(FormatSniffer.format(of: jpeg) == .jpeg)
    if let webp = torture("webp/looks-like-svg.webp") { #expect(FormatSniffer.format(of: webp) == .webp) }
  }

  @Test("PDF, icons and cursors, and what is said of each")
  func others() {
    #expect(FormatSniffer.format(of: Made.pdf()) == .pdf)
    let bitmap = Made.iconBitmap(1, 1, bits: 32, rows: [[1, 2, 3, 255]], mask: [[0]])
    #expect(FormatSniffer.format(of: Made.icon([(1, bitmap)])) == .ico)
    #expect(FormatSniffer.format(of: Made.icon(type: 2, [(1, bitmap)])) == .ico)
    #expect(FormatSniffer.describe(Made.icon(type: 2, [(1, bitmap)])) == "a cursor (CUR)")
    // A TGA picture begins alike.
    #expect(FormatSniffer.format(of: [0, 0, 2, 0] + [UInt8](repeating: 0, count: 40)) == nil)
    #expect(FormatSniffer.describe(Array("<svg>".utf8)) == "an SVG drawing")
    #expect(FormatSniffer.describe(Made.gzip([1, 2, 3])) == "a gzip file")
    #expect(PictureFormat.allCases.filter(\.needsPermission) == [.svg, .pdf])
  }

  @Test("a JPEG with something before it")
  func embedded() throws {
    let jpeg = try Made.waves(32, 32).encoded(.jpeg(.init())).array
    // Three bytes that could be a start, but lead nowhere.
    for junk in [Array("HTTP/1.1 200 OK\r\n\r\n".utf8), [0xFF, 0xD8, 0xFF, 0xE0, 0, 4, 1, 2, 3], [0], []] {
      let at = (junk + jpeg).withUnsafeBytes { FormatSniffer.embeddedJPEG(in: $0) }
      #expect(at == junk.count)
      let slice = Array((junk + jpeg)[(at ?? 0)...])
      #expect(try picture(slice).decode().bytes() == picture(jpeg).decode().bytes())
    }
    let far = [UInt8](repeating: 0, count: 4097) + jpeg
    #expect(far.withUnsafeBytes { FormatSniffer.embeddedJPEG(in: $0) } == nil)
    for short in 0..<8 {
      #expect(Array(jpeg.prefix(short)).withUnsafeBytes { FormatSniffer.embeddedJPEG(in: $0) } == nil || short >= 7)
    }
  }
}

@Suite struct HeaderProbeTests {
  @Test(
    "sides from the header are those that the decoder finds",
    .enabled(if: torture("png/p3.png") != nil, "the torture collection is not here"),
    arguments: [
      ("jxl/splines.jxl", 2048, 2048), ("jxl/pq_gradient.jxl", 1088, 64), ("jxl/cropped_traffic_light.jxl", 50, 80),
      ("tiff/multipage.tiff", 10, 10), ("tiff/rgb32f_color.tiff", 32, 32), ("tiff/hopper.Lab.tif", 128, 128),
      ("other/test-card-lossless.jp2", 640, 480), ("heic/example.heic", 1280, 854), ("webp/1.webp", 550, 368),
    ])
  func sides(_ name: String, _ width: Int, _ height: Int) throws {
    let bytes = try #require(torture(name))
    let format = try #require(FormatSniffer.format(of: bytes))
    let probe = bytes.withUnsafeBytes { HeaderProbe($0, format) }
    #expect(probe?.width == width && probe?.height == height)
  }
}

@Suite struct JPEGKindTests {
  @Test("a second picture behind the first, as in MPO and with gain maps, changes nothing")
  func second() throws {
    let first = try Made.waves(64, 48).encoded(.jpeg(.init())).array
    let other = try Made.waves(32, 24).encoded(.jpeg(.init())).array
    let both = first + other
    #expect(try picture(both).decode().bytes() == picture(first).decode().bytes())
    #expect(both.withUnsafeBytes { Integrity.diagnoseJPEG($0) } == .whole)
    #expect(both.withUnsafeBytes { ContainerScan($0, .jpeg) } == first.withUnsafeBytes { ContainerScan($0, .jpeg) })
  }

  @Test(
    "real kinds: mean colours by libjpeg and Pillow",
    .enabled(if: torture("png/p3.png") != nil, "the torture collection is not here"),
    arguments: [
      ("jpeg-bad/extraneous-bytes-after-sos.jpg", [223.6, 222.9, 217.4], 1), ("name/image", [127.5, 127.6, 254.5], 1),
      ("jpeg/flower.png.im_q85_420_progr.jpg", [144.6, 127.1, 138.6], 1),
      ("jpeg/test1.arith.jpg", [208.9, 208.9, 208.9], 1),
      // Without a profile these two are a matter of taste; read inverted they would be far off.
      ("jpeg/pil_sample_cmyk.jpg", [30.2, 5.4, 7.4], 45),
      ("jpeg/Channel_digital_image_CMYK_color_no_profile.jpg", [109, 132.1, 109.6], 20),
    ] as [(String, [Double], Double)])
  func real(_ name: String, _ mean: [Double], tolerance: Double) throws {
    let image = try picture(try #require(torture(name))).decode().materialised()
    let bytes = try image.bytes()
    for band in 0..<3 {
      let sum = stride(from: band, to: bytes.count, by: image.bands).reduce(0.0) { $0 + Double(bytes[$1]) }
      let found = sum / Double(image.width * image.height)
      #expect(abs(found - mean[band]) <= tolerance, "\(name) band \(band): \(found), not \(mean[band])")
    }
  }
}

@Suite struct UntaggedCMYKTests {
  @Test(
    "CMYK without a profile becomes sRGB without one: that of libvips for CMYK does not stay",
    .enabled(if: torture("png/p3.png") != nil, "the torture collection is not here"),
    arguments: ["jpeg/pil_sample_cmyk.jpg", "tiff/tiff_strip_cmyk_jpeg.tif"])
  func profile(_ name: String) throws {
    let image = try picture(try #require(torture(name))).pixels()
    #expect(image.bands == 3)
    #expect(image.ref.blob("icc-profile-data") == nil)
    #expect(try !picture(image.encoded(.png(.init())).array).header.hasProfile)
  }
}

@Suite struct IconTests {
  private func decode(_ icon: [UInt8]) throws -> Image {
    try icon.withUnsafeBytes { raw in try IconDirectory.decode(IconDirectory.best(raw), raw) }
  }

  @Test("32 bits: alpha as it is, and the mask does not count")
  func alpha() throws {
    // Bottom row first; blue, green, red, alpha.
    let bitmap = Made.iconBitmap(
      2, 2, bits: 32, rows: [[0, 0, 255, 128, 0, 255, 0, 255], [255, 0, 0, 0, 9, 8, 7, 255]], mask: [[0xFF], [0xFF]])
    #expect(
      try decode(Made.icon([(2, bitmap)])).bytes() == [0, 0, 255, 0, 7, 8, 9, 255, 255, 0, 0, 128, 0, 255, 0, 255])
    // Without the mask, too.
    #expect(try decode(Made.icon([(2, Array(bitmap.dropLast(8)))])).bytes().count == 16)
  }

  @Test("32 bits with alpha 0 all over: the mask counts")
  func emptyAlpha() throws {
    let bitmap = Made.iconBitmap(
      2, 1, bits: 32, rows: [[0, 0, 255, 0, 0, 255, 0, 0]], mask: [[0b0100_0000]])
    #expect(try decode(Made.icon([(2, bitmap)])).bytes() == [255, 0, 0, 255, 0, 0, 0, 0])
  }

  @Test("24, 8, 4 and 1 bit with a mask")
  func masks() throws {
    let wanted: [UInt8] = [255, 0, 0, 255, 0, 0, 0, 0]
    let palette: [[UInt8]] = [[0, 0, 0], [0, 0, 255]]
    func grown(_ count: Int) -> [[UInt8]] { palette + [[UInt8]](repeating: [9, 9, 9], count: count - 2) }
    for bitmap in [
      Made.iconBitmap(2, 1, bits: 24, rows: [[0, 0, 255, 1, 1, 1]], mask: [[0x40]]),
      Made.iconBitmap(2, 1, bits: 8, palette: grown(256), rows: [[1, 0]], mask: [[0x40]]),
      Made.iconBitmap(2, 1, bits: 4, palette: grown(16), rows: [[0x10]], mask: [[0x40]]),
      Made.iconBitmap(2, 1, bits: 1, palette: palette, rows: [[0x80]], mask: [[0x40]]),
    ] {
      #expect(try decode(Made.icon([(2, bitmap)])).bytes() == wanted)
    }
  }

  @Test("the largest entry, then the deepest; PNG by the range of its bytes")
  func choice() throws {
    let png = try Made.waves(300, 300).encoded(.png(.init())).array
    let small = Made.iconBitmap(1, 1, bits: 24, rows: [[1, 2, 3]], mask: [[0]])
    let deep = Made.iconBitmap(1, 1, bits: 32, rows: [[1, 2, 3, 4]], mask: [[0]])
    let both = Made.icon([(1, small), (0, png), (1, deep)])
    let best = try both.withUnsafeBytes { try IconDirectory.best($0) }
    guard case .png(let range) = best.kind else {
      Issue.record("the PNG is the largest")
      return
    }
    #expect(best.width == 300 && best.height == 300 && best.frames == 3)
    #expect(try picture(Array(both[range])).decode().bytes() == picture(png).decode().bytes())
    #expect(both.withUnsafeBytes { HeaderProbe($0, .ico)?.width } == 300)
    #expect(try Made.icon([(1, small), (1, deep)]).withUnsafeBytes { try IconDirectory.best($0).bitsPerPixel } == 32)
  }

  @Test("an icon that is cut short fails, at any byte; one whose small entry is lost does not")
  func damage() throws {
    let bitmap = Made.iconBitmap(2, 1, bits: 24, rows: [[0, 0, 255, 1, 1, 1]], mask: [[0x40]])
    let icon = Made.icon([(2, bitmap)])
    for count in 0..<icon.count - 1 {
      let code = failure { _ = try decode(Array(icon.prefix(count))) }?.code
      // Where just the mask is missing, it is taken as empty.
      if count != icon.count - 4 { #expect(code == .damaged, "\(count) bytes") }
    }
    var lost = Made.icon([(2, bitmap), (1, Made.iconBitmap(1, 1, bits: 32, rows: [[0, 0, 0, 1]], mask: []))])
    lost.removeLast(10)
    #expect(try decode(lost).width == 2)
  }

  @Test("a real favicon", .enabled(if: torture("other/favicon.ico") != nil, "the torture collection is not here"))
  func real() throws {
    let icon = try #require(torture("other/favicon.ico"))
    let best = try icon.withUnsafeBytes { try IconDirectory.best($0) }
    #expect(best.width == 32 || best.width == 48)
    let image: Image
    if case .png(let range) = best.kind {
      image = try picture(Array(icon[range])).decode()
    } else {
      image = try decode(icon)
    }
    #expect(image.width == best.width && image.height == best.height && image.bands == 4)
  }
}

@Suite struct DrawingTests {
  private func render(_ svg: String) throws -> Image {
    try Libvips.start()
    return try Image(adopting: DrawingLoader.svg(EncodedBytes(Array(svg.utf8))), lazyFrom: nil).materialised()
  }

  @Test("svgz is unpacked; cut short or corrupt it is damaged, beyond the limit refused")
  func packed() throws {
    let svg = Array("<svg xmlns='http://www.w3.org/2000/svg' width='4' height='3'/>".utf8)
    let packed = Made.gzip(svg)
    #expect(try DrawingLoader.unpacked(EncodedBytes(packed)).array == svg)
    #expect(try DrawingLoader.unpacked(EncodedBytes(svg)).array == svg)
    #expect(try DrawingLoader.unpacked(EncodedBytes(packed), limit: svg.count).array == svg)
    #expect(failure { _ = try DrawingLoader.unpacked(EncodedBytes(packed), limit: svg.count - 1) }?.code == .limit)
    for count in 2..<packed.count {
      let error = failure { _ = try DrawingLoader.unpacked(EncodedBytes(Array(packed.prefix(count)))) }
      #expect(error?.code == .damaged, "\(count) bytes")
    }
    var wrong = packed
    wrong[packed.count - 6] ^= 1
    #expect(failure { _ = try DrawingLoader.unpacked(EncodedBytes(wrong)) }?.code == .damaged)
    let inner = Made.gzip(Array("no drawing".utf8))
    #expect(failure { _ = try DrawingLoader.unpacked(EncodedBytes(inner)) }?.code == .unsupported)
  }

  @Test(
    "the gzip file on which libvips spins fails at once, and a whole drawing is drawn",
    .enabled(if: torture("svg/logo.svgz") != nil, "the torture collection is not here"))
  func real() throws {
    let cut = try #require(torture("svg-bad/truncated.svgz"))
    // It unpacks to a text, and there are bytes behind it.
    #expect(FormatSniffer.format(of: cut) == nil)
    #expect(failure { _ = try DrawingLoader.unpacked(EncodedBytes(cut)) }?.code == .unsupported)
    let logo = try #require(torture("svg/logo.svgz"))
    #expect(logo.withUnsafeBytes { HeaderProbe($0, .svg) }.map { [$0.width, $0.height] } == [736, 552])
    try Libvips.start()
    let drawn = try DrawingLoader.svg(DrawingLoader.unpacked(EncodedBytes(logo)))
    #expect(drawn.width == 736 && drawn.height == 552)
    let inches = try #require(torture("svg/Commons-logo-inches.svg"))
    #expect(inches.withUnsafeBytes { HeaderProbe($0, .svg) }.map { [$0.width, $0.height] } == [720, 936])
  }

  @Test("sides are what librsvg makes of them")
  func sides() throws {
    try Libvips.start()
    for (attributes, width, height) in [
      ("width='10' height='20'", 10, 20), ("width='1in' height='36pt'", 72, 36),
      ("width='2.54cm' height='1pc'", 72, 12),
      ("viewBox='0 0 30 40'", 30, 40), ("width='1e2px' height=\"25.4mm\"", 100, 72),
      ("width='3000000000' height='1'", 0, 0),
    ] {
      let svg = "<svg xmlns='http://www.w3.org/2000/svg' \(attributes)><rect width='5' height='5'/></svg>"
      let probe = Array(svg.utf8).withUnsafeBytes { HeaderProbe($0, .svg) }
      guard width > 0 else {
        #expect(probe?.width == 1_000_000_000)
        continue
      }
      #expect(probe?.width == width && probe?.height == height, "\(attributes)")
      let drawn = try DrawingLoader.svg(EncodedBytes(Array(svg.utf8)))
      #expect(drawn.width == width && drawn.height == height, "\(attributes)")
    }
    #expect(SVGProlog(Array("<svg width='50%' height='10'>".utf8))?.size(dpi: 72) == nil)
    let twice = try DrawingLoader.svg(
      EncodedBytes(Array("<svg xmlns='http://www.w3.org/2000/svg' width='1in' height='10'/>".utf8)), dpi: 144, scale: 2)
    #expect(twice.width == 288)
  }

  @Test("nothing outside of the drawing is read")
  func sealed() throws {
    let folder = TemporaryFolder()
    let red = try Image(width: 10, height: 10, bands: 3, bytes: (0..<300).map { $0 % 3 == 0 ? 255 : 0 })
    let png = try red.encoded(.png(.init())).array
    let file = folder.write(png, to: "red.png")
    let style = folder.write("rect { fill: red }", to: "style.css")
    let other = folder.write(
      "<svg xmlns='http://www.w3.org/2000/svg'><rect id='r' width='50' height='50' fill='red'/></svg>", to: "other.svg")
    let words = folder.write(
      "<rect xmlns='http://www.w3.org/2000/svg' width='50' height='50' fill='red'/>", to: "x.xml")
    let head =
      "<svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink' "
      + "xmlns:xi='http://www.w3.org/2001/XInclude' width='20' height='20'>"
    let base64 = Made.base64(png)
    // The same picture from inside shows that the rest would have been seen.
    let inside = try render(head + "<image href='data:image/png;base64,\(base64)' width='20' height='20'/></svg>")
    #expect(try inside.bytes().contains(255))
    for body in [
      "<image href='file://\(file)' width='20' height='20'/>", "<image xlink:href='\(file)' width='20' height='20'/>",
      "<image href='http://127.0.0.1:9/red.png' width='20' height='20'/>",
      "<use href='file://\(other)#r'/>", "<use xlink:href='\(other)#r'/>",
      "<xi:include href='file://\(words)'/>", "<xi:include href='\(words)' parse='xml'/>",
      "<style>@import url('file://\(style)');</style><rect width='20' height='20' fill='none'/>",
      "<style>@import url('\(style)');</style><rect width='20' height='20' fill='none'/>",
      "<filter id='f'><feImage href='file://\(file)'/></filter><rect width='20' height='20' filter='url(#f)' fill='none'/>",
    ] {
      #expect(try render(head + body + "</svg>").bytes().allSatisfy { $0 == 0 }, "\(body)")
    }
    let entity =
      "<?xml version='1.0'?><?xml-stylesheet href='file://\(style)'?><!DOCTYPE svg [<!ENTITY x SYSTEM 'file://\(words)'>]>"
      + head + "&x;</svg>"
    // librsvg calls the entity undefined.
    #expect(failure { _ = try render(entity) }?.code == .damaged)
  }

  @Test("pictures inside of a drawing are held to the limits, before anything is drawn")
  func embeddedPictures() throws {
    func check(_ content: [UInt8], _ type: String = "image/png", _ limits: DecodeLimits = DecodeLimits())
      -> ImagingError?
    {
      let link = "data:\(type);base64,\(Made.base64(content))"
      return failure {
        try EncodedBytes(Array("<svg><image href='\(link)'/><image href='\(link)'/></svg>".utf8)).withUnsafeBytes {
          try SVGPictures.check($0, limits: limits)
        }
      }
    }
    let small = try Made.waves(100, 10).encoded(.png(.init())).array
    #expect(check(small) == nil)
    #expect(check(small, "image/png", DecodeLimits(maxPixels: 2000)) == nil)
    // Both together.
    #expect(check(small, "image/png", DecodeLimits(maxPixels: 1999))?.code == .limit)
    #expect(check(small, "image/png", DecodeLimits(maxSide: 99))?.code == .limit)
    var bomb = small
    bomb.replaceSubrange(16..<24, with: Made.big32(60_000) + Made.big32(60_000))
    #expect(check(bomb)?.code == .limit)
    #expect(check(bomb, "IMAGE/PNG")?.code == .limit)
    let nested = Array("<svg><image href='data:;base64,\(Made.base64(bomb))'/></svg>".utf8)
    #expect(check(nested, "image/svg+xml")?.code == .limit)
    #expect(check(Made.gzip(nested), "image/svg+xml")?.code == .limit)
    let wide = Array("<svg><image href='data:;base64,\(Made.base64(bomb))'/></svg>".utf16)
    #expect(check(wide.reduce(into: [0xFF, 0xFE]) { $0 += Made.little16(Int($1)) }, "image/svg+xml")?.code == .limit)
    #expect(check(Array("8BPS and more".utf8), "image/x-psd")?.code == .unsupported)
    #expect(check(Array("wOFF".utf8), "font/woff") == nil)
  }

  @Test("a PDF on white paper, at a resolution and a scale; locked it says so")
  func pdf() throws {
    try Libvips.start()
    guard Libvips.supports("pdfload_source") else { return }
    let bytes = EncodedBytes(Made.pdf())
    let page = try Image(adopting: DrawingLoader.pdf(bytes), lazyFrom: nil).materialised()
    #expect(page.width == 100 && page.height == 50 && page.bands == 4)
    #expect(try page.pixel(10, 45) == [255, 0, 0, 255])
    #expect(try page.pixel(90, 5) == [255, 255, 255, 255])
    #expect(try DrawingLoader.pdf(bytes, dpi: 144, scale: 2).width == 400)
    let locked = failure { _ = try DrawingLoader.pdf(EncodedBytes(Made.pdf(locked: true))) }
    #expect(locked?.code == .unsupported)
    #expect(locked?.message.contains("password") == true)
    #expect(failure { _ = try DrawingLoader.pdf(EncodedBytes(Array(Made.pdf().prefix(40)))) }?.code == .damaged)
  }
}
