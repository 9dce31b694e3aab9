import Imaging
import Testing

@Suite struct EncoderArgumentsTests {
  @Test("the list is libvips' own, without what our fields set")
  func list() throws {
    let jpeg = EncoderArguments.all(for: .jpeg)
    let names = jpeg.map(\.name)
    #expect(names.contains("trellis-quant") && names.contains("quant-table") && names.contains("restart-interval"))
    for taken in ["Q", "interlace", "subsample-mode", "strip", "profile", "background", "page-height", "in", "buffer"] {
      #expect(!names.contains(taken))
    }
    #expect(jpeg.first { $0.name == "quant-table" }?.kind == .integer(0...8))
    #expect(jpeg.first { $0.name == "trellis-quant" }?.kind == .boolean)
    #expect(jpeg.allSatisfy { !$0.help.isEmpty && !$0.expected.isEmpty && !$0.usual.isEmpty })
    // Deprecated names ("no-subsample") are not offered.
    #expect(!names.contains("no-subsample"))
    let presets = EncoderArguments.all(for: .webp).first { $0.name == "preset" }
    #expect(presets?.kind == .choice(["default", "picture", "photo", "drawing", "icon", "text"]))
    #expect(presets?.usual == "default")
    guard case .flags(let filters) = EncoderArguments.all(for: .png).first(where: { $0.name == "filter" })?.kind else {
      Issue.record("PNG's filter is not a set of flags")
      return
    }
    #expect(filters.contains("paeth"))
    #expect(EncoderArguments.all(for: .png).first { $0.name == "dither" }?.kind == .number(0...1))
    #expect(EncoderArguments.all(for: .heic).isEmpty && EncoderArguments.all(for: .bmp).isEmpty)
  }

  @Test("members are checked by name, type and range")
  func problems() {
    func problem(
      _ name: String, _ value: EncoderArgument.Value, _ format: PictureFormat = .jpeg
    ) -> EncoderArguments.Problem? { EncoderArguments.problem(with: name, value, for: format) }
    #expect(problem("trellis-quant", .boolean(true)) == nil)
    #expect(problem("trellis_quant", .boolean(true)) == nil)
    #expect(problem("trellis-quant", .integer(1)) == .wrongType(expected: "true or false"))
    #expect(problem("quant-table", .integer(9)) == .outOfRange(expected: "an integer from 0 to 8"))
    #expect(problem("quant-table", .number(1.5)) == .wrongType(expected: "an integer from 0 to 8"))
    #expect(problem("Q", .integer(50)) == .taken(by: "quality"))
    #expect(problem("strip", .boolean(false)) == .taken(by: "metadata"))
    #expect(problem("page-height", .integer(3)) == .taken(by: nil))
    #expect(problem("distance", .number(1), .jxl) == .taken(by: "quality"))
    #expect(problem("preset", .name("photo"), .webp) == nil)
    if case .outOfRange = problem("preset", .name("foto"), .webp) {} else { Issue.record("an unknown name passed") }
    #expect(problem("filter", .names(["sub", "paeth"]), .png) == nil)
    #expect(problem("dither", .integer(1), .png) == nil)
    if case .unknown(let known) = problem("treliss-quant", .boolean(true)) {
      #expect(known.contains("trellis-quant"))
    } else {
      Issue.record("an unknown option passed")
    }
  }

  @Test("arguments reach the encoder")
  func reach() throws {
    let image = try StructuralSimilarityTests.picture(96, 64)
    let plain = try image.encoded(.jpeg(.init())).array
    let restarts = try image.encoded(.jpeg(.init()), arguments: ["restart_interval": .integer(1)]).array
    // DRI, ITU-T T.81 B.2.4.4.
    let hasRestarts = { (bytes: [UInt8]) in zip(bytes, bytes.dropFirst()).contains { $0 == 0xFF && $1 == 0xDD } }
    #expect(!hasRestarts(plain) && hasRestarts(restarts))
    #expect(try image.encoded(.jpeg(.init()), arguments: ["optimize-coding": .boolean(false)]).count > plain.count)
    let tiled = try image.encoded(
      .tiff(.init()), arguments: ["tile": .boolean(true), "tile-width": .integer(32), "tile-height": .integer(32)])
    #expect(try tiled.array != image.encoded(.tiff(.init())).array)
    #expect(try picture(tiled.array).decode().bytes() == image.bytes())
    let filtered = try image.encoded(.png(.init()), arguments: ["filter": .names(["sub", "paeth"])])
    #expect(try picture(filtered.array).decode().bytes() == image.bytes())
    #expect(try filtered.array != image.encoded(.png(.init())).array)
    let wrong = failure { _ = try image.encoded(.jpeg(.init()), arguments: ["quant-table": .integer(99)]) }
    #expect(wrong?.code == .encoder && wrong?.message.contains("0 to 8") == true)
  }
}

@Suite struct MoreSaversTests {
  @Test("JPEG XL: lossless exact, quality and effort tell, alpha kept")
  func jxl() throws {
    let image = try StructuralSimilarityTests.picture(96, 64)
    let size = { (o: EncodeOptions.JXL) in try image.encoded(.jxl(o), metadata: .none).count }
    #expect(try size(.init(quality: 20, effort: 3)) < size(.init(quality: 60, effort: 3)))
    #expect(try size(.init(quality: 60, effort: 3)) < size(.init(quality: 95, effort: 3)))
    let exact = try picture(image.encoded(.jxl(.init(lossless: true, effort: 3))).array)
    #expect(exact.header.format == .jxl)
    #expect(try exact.decode().bytes() == image.bytes())
    let clear = try Made.image(20, 20, bands: 4) { x, y in [UInt8(x * 9), UInt8(y * 9), 30, UInt8(1 + x * 12)] }
    let back = try picture(clear.encoded(.jxl(.init(lossless: true, effort: 3))).array).decode().materialised()
    #expect(try back.bands == 4 && back.bytes() == clear.bytes())
    #expect(failure { _ = try image.encoded(.jxl(.init(effort: 2))) }?.message.contains("3 to 9") == true)
  }

  @Test("GIF: few colours exact, transparency on or off, settings tell")
  func gif() throws {
    let flat = try Made.image(40, 40) { x, y in x < 20 ? [200, 10, 10] : y < 20 ? [10, 200, 10] : [10, 10, 200] }
    let back = try picture(flat.encoded(.gif(.init())).array)
    #expect(back.header.format == .gif)
    let pixels = try back.decode()
    #expect(maxDifference(try pixels.withoutAlpha().bytes(), try flat.bytes()) <= 4)
    let clear = try Made.image(40, 40, bands: 4) { x, _ in x < 20 ? [0, 0, 0, 0] : [200, 40, 40, 255] }
    let again = try picture(clear.encoded(.gif(.init())).array).decode().materialised()
    #expect(try again.bands == 4 && again.pixel(3, 3)[3] == 0 && again.pixel(33, 3)[3] == 255)
    let grain = try StructuralSimilarityTests.picture(96, 64)
    let size = { (o: EncodeOptions.GIF) in try grain.encoded(.gif(o), metadata: .none).count }
    #expect(try size(.init(colors: 4)) < size(.init(colors: 64)))
    #expect(try size(.init(dither: 0)) != size(.init(dither: 1)))
    #expect(failure { _ = try grain.encoded(.gif(.init(dither: 1.5))) }?.code == .encoder)
    #expect(failure { _ = try grain.encoded(.gif(.init(effort: 0))) }?.message.contains("1 to 10") == true)
    let wide = try Image.solid(width: 70_000, height: 2, .white)
    #expect(failure { _ = try wide.encoded(.gif(.init())) }?.message.contains("65535") == true)
  }

  @Test("AVIF in 12 bits, with full colour; other depths are refused")
  func avif() throws {
    let image = try Made.waves(48, 40)
    let deep = try image.encoded(.avif(.init(quality: 90, effort: 1, bitDepth: 12)), metadata: .none)
    #expect(decibels(try picture(deep.array).decode().bytes(), try image.bytes()) > 34)
    // The configuration's third byte holds high_bitdepth and twelve_bit (AV1-ISOBMFF 2.3.3).
    let array = deep.array
    let at = try #require((0..<array.count - 8).first { array[$0..<$0 + 4].elementsEqual(Array("av1C".utf8)) })
    #expect(array[at + 6] & 0x60 == 0x60)
    let red = try Made.image(32, 32) { x, y in (x + y) % 2 == 0 ? [255, 0, 0] : [0, 0, 255] }
    let fine = try picture(red.encoded(.avif(.init(quality: 85, effort: 1, chroma: .full))).array).decode().bytes()
    let coarse = try picture(red.encoded(.avif(.init(quality: 85, effort: 1, chroma: .quarter))).array).decode().bytes()
    #expect(decibels(fine, try red.bytes()) > decibels(coarse, try red.bytes()) + 3)
    for depth in [10, 16] {
      let refused = failure { _ = try image.encoded(.avif(.init(bitDepth: depth))) }
      #expect(refused?.message.contains("8 or 12") == true)
    }
  }

  @Test("TIFF with zstd is exact")
  func zstd() throws {
    let image = try StructuralSimilarityTests.picture(64, 48)
    let back = try picture(image.encoded(.tiff(.init(compression: .zstd))).array)
    #expect(try back.decode().bytes() == image.bytes())
  }
}
