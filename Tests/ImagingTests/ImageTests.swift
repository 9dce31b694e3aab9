import Imaging
import Testing

@Suite struct ImageTests {
  @Test("compositing: opaque and clear pixels come through exactly, half alpha rounds")
  func over() throws {
    let fore = try Made.image(4, 1, bands: 4) { x, _ in
      [[201, 3, 99, 255], [201, 3, 99, 0], [255, 255, 0, 128], [200, 100, 50, 64]][x]
    }
    let back = try Made.image(4, 1) { _, _ in [7, 77, 177] }
    let result = try fore.composited(over: back)
    #expect(result.bands == 3)
    #expect(try result.pixel(0, 0) == [201, 3, 99])
    #expect(try result.pixel(1, 0) == [7, 77, 177])
    // (255 · 128 + 7 · 127) / 255 = 131.49, (255 · 128 + 77 · 127) / 255 = 166.35, 177 · 127 / 255 = 88.15
    #expect(try result.pixel(2, 0) == [131, 166, 88])
    // (200 · 64 + 7 · 191) / 255 = 55.44, (100 · 64 + 77 · 191) / 255 = 82.77, (50 · 64 + 177 · 191) / 255 = 145.13
    #expect(try result.pixel(3, 0) == [55, 83, 145])
    #expect(try fore.flattened(RGBA(7, 77, 177)).bytes() == result.bytes())
  }

  @Test("compositing on a translucent background follows Porter and Duff")
  func overTranslucent() throws {
    let fore = try Made.image(2, 1, bands: 4) { x, _ in x == 0 ? [255, 0, 0, 128] : [0, 0, 0, 0] }
    let back = try Made.image(2, 1, bands: 4) { x, _ in [0, 0, 255, x == 0 ? 128 : 77] }
    let result = try fore.composited(over: back)
    // alpha = 128 + 128 · 127 / 255 = 191.75; red = 255 · 128 / 191.75 = 170.2; blue = 255 · 63.75 / 191.75 = 84.8
    #expect(try result.pixel(0, 0) == [170, 0, 85, 192])
    #expect(try result.pixel(1, 0) == [0, 0, 255, 77])
  }

  @Test("alpha: set, multiplied with rounding, taken, dropped")
  func alpha() throws {
    let image = try Made.image(3, 1, bands: 4) { x, _ in [1, 2, 3, [255, 100, 0][x]] }
    let matte = try Made.image(3, 1, bands: 1) { x, _ in [[128, 127, 255][x]] }
    // 100 · 127 / 255 = 49.8
    #expect(try image.multipliedAlpha(by: matte).alphaBand().bytes() == [128, 50, 0])
    #expect(try image.withAlpha(matte).bytes() == [1, 2, 3, 128, 1, 2, 3, 127, 1, 2, 3, 255])
    #expect(try image.withoutAlpha().bytes() == [1, 2, 3, 1, 2, 3, 1, 2, 3])
    #expect(try image.withoutAlpha().alphaBand().bytes() == [255, 255, 255])
    #expect(try image.withoutAlpha().multipliedAlpha(by: matte).alphaBand().bytes() == [128, 127, 255])
    let small = try Made.image(2, 1, bands: 1) { _, _ in [0] }
    #expect(failure { _ = try image.withAlpha(small) }?.code == .geometry)
    #expect(try image.isOpaque() == false)
    #expect(try image.withAlpha(Made.image(3, 1, bands: 1) { _, _ in [255] }).isOpaque())
  }

  @Test("opaque alpha is still there after a resize")
  func opaqueAlpha() throws {
    let image = try Made.image(20, 20, bands: 4) { x, _ in [UInt8(x * 10), 0, 0, 255] }
    let small = try image.stretched(width: 10, height: 10)
    #expect(small.bands == 4)
    #expect(try small.isOpaque())
  }

  @Test("the blurred background does not glow with the subject", arguments: [2.0, 8.0, 40.0])
  func glow(_ sigma: Double) throws {
    let inside = { (x: Int, y: Int) in (60..<140).contains(x) && (40..<120).contains(y) }
    let photo = try Made.image(200, 160) { x, y in inside(x, y) ? [255, 0, 0] : [0, 0, 255] }
    let matte = try Made.image(200, 160, bands: 1) { x, y in [inside(x, y) ? 255 : 0] }
    let blurred = try Image.backgroundBlur(original: photo, matte: matte, sigma: sigma)
    #expect((blurred.width, blurred.height, blurred.bands) == (200, 160, 3))
    let plain = try photo.blurred(sigma: sigma)
    for (x, y) in [(58, 80), (30, 80), (100, 36), (5, 5)] {
      #expect(maxDifference(try blurred.pixel(x, y), [0, 0, 255]) <= 2, "at \(x),\(y)")
    }
    #expect(try plain.pixel(58, 80)[0] > 30, "the plain blur does glow, or the test tests nothing")
  }

  @Test("a wide blur keeps a flat picture flat and the mean of any", arguments: [0.7, 5.0, 60.0])
  func blur(_ sigma: Double) throws {
    let flat = try Made.image(90, 70) { _, _ in [13, 200, 255] }
    #expect(maxDifference(try flat.blurred(sigma: sigma).bytes(), try flat.bytes()) <= 1)
  }

  @Test("linear gradients: end stops exact, middle right, every row monotone", arguments: [0.0, 90, 180, 270, 45])
  func gradientEnds(_ angle: Double) throws {
    let gradient = try Gradient(.linear(angle: angle), stops: [.init(RGBA(10, 20, 30)), .init(RGBA(210, 120, 35))])
    let (w, h) = (101, 81)
    let image = try Image.gradient(gradient, width: w, height: h)
    let (start, end): ((Int, Int), (Int, Int)) =
      switch angle {
      case 0: ((50, h - 1), (50, 0))
      case 90: ((0, 40), (w - 1, 40))
      case 180: ((50, 0), (50, h - 1))
      case 270: ((w - 1, 40), (0, 40))
      default: ((0, h - 1), (w - 1, 0))
      }
    #expect(try image.pixel(start.0, start.1) == [10, 20, 30])
    #expect(try image.pixel(end.0, end.1) == [210, 120, 35])
    #expect(maxDifference(try image.pixel(50, 40), [110, 70, 33]) <= 1)
  }

  @Test("a gradient is dithered: its local mean is finer than a level")
  func dither() throws {
    let gradient = try Gradient(.linear(angle: 90), stops: [.init(RGBA(100, 100, 100)), .init(RGBA(104, 104, 104))])
    let image = try Image.gradient(gradient, width: 801, height: 64)
    let bytes = try image.bytes()
    for x in stride(from: 20, to: 780, by: 40) {
      var sum = 0
      for y in 0..<64 { for dx in 0..<8 { sum += Int(bytes[(y * 801 + x + dx) * 3]) } }
      let expected = 100 + 4 * (Double(x) + 3.5) / 800
      #expect(abs(Double(sum) / 512 - expected) < 0.06, "at \(x)")
    }
    #expect(try bytes == Image.gradient(gradient, width: 801, height: 64).bytes(), "the same every time")
  }

  @Test("radial gradients, stops between, transparency")
  func gradients() throws {
    let radial = try Gradient(.radial(), stops: [.init(.white), .init(RGBA(255, 0, 0), at: 0.5), .init(.black)])
    let image = try Image.gradient(radial, width: 61, height: 61)
    #expect(try image.pixel(30, 30) == [255, 255, 255])
    #expect(try image.pixel(0, 0) == [0, 0, 0])
    #expect(maxDifference(try image.pixel(15, 15), [255, 0, 0]) <= 1)
    let fading = try Gradient(.linear(angle: 90), stops: [.init(RGBA(200, 0, 0, 0)), .init(RGBA(0, 100, 0, 255))])
    let faded = try Image.gradient(fading, width: 11, height: 1)
    // Premultiplied: the clear stop's red does not show.
    #expect(try faded.pixel(5, 0).prefix(3) == [0, 100, 0])
    #expect(try faded.pixel(0, 0)[3] == 0)
    #expect(failure { _ = try Gradient(.radial(), stops: [.init(.white)]) }?.code == .geometry)
    #expect(
      failure { _ = try Gradient(.radial(), stops: [.init(.white, at: 0.9), .init(.black, at: 0.1)]) }?.code
        == .geometry)
  }

  @Test("CSS colours")
  func css() {
    #expect(RGBA(css: "#1a2") == RGBA(0x11, 0xAA, 0x22))
    #expect(RGBA(css: "#1A2b3C") == RGBA(0x1A, 0x2B, 0x3C))
    #expect(RGBA(css: "#1a2b3c80") == RGBA(0x1A, 0x2B, 0x3C, 128))
    #expect(RGBA(css: "#f008") == RGBA(255, 0, 0, 0x88))
    #expect(RGBA(css: "RebeccaPurple") == RGBA(102, 51, 153))
    #expect(RGBA(css: "transparent") == .transparent)
    for bad in ["", "#", "#12", "#12345", "#ggg", "whit", "#+12"] { #expect(RGBA(css: bad) == nil) }
    #expect(RGBA.cssNames.count == 148)
  }

  @Test("nothing is left behind after decoding, failing and encoding")
  func leaks() async {
    await #expect(processExitsWith: .success) {
      for _ in 0..<20 {
        let jpeg = try Made.jpeg(Made.waves(200, 150).encoded(.jpeg(.init())).array, exif: Made.exif(orientation: 6))
        let plan = try ResizeRequest(width: 50, height: 40, fit: .cover, position: .attention).plan(for: 150, 200)
        let image = try picture(jpeg).decode(resizedTo: plan).materialised()
        let matte = try Image.solid(width: 50, height: 40, RGBA(9, 9, 9)).withAlpha(image.alphaBand()).alphaBand()
        _ = try image.withAlpha(matte).composited(over: .solid(width: 50, height: 40, .white)).encoded(.webp(.init()))
        _ = try? picture(Array(jpeg.prefix(1500))).decode().materialised()
      }
      // Anything but 0 makes the process end otherwise.
      guard Libvips.liveImages == 0 else { fatalError("\(Libvips.liveImages) images are left") }
    }
  }
}
