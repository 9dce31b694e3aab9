import Glibc
import Imaging
import Testing

@Suite struct GeometryTests {
  @Test("lengths and ratios are read strictly")
  func reading() throws {
    for text in ["10%", "0%", "12.5%", "100%", "1000%", "0.0001%"] {
      #expect(Length(percentage: text) != nil, "\(text)")
    }
    for text in ["", "%", "10", "10 %", "-1%", "1e2%", "1000.1%", ".5%", "5.%", "1.00001%", "٣%", "+1%"] {
      #expect(Length(percentage: text) == nil, "\(text)")
    }
    for text in ["16:9", "1:1", "1.91:1", "1:1000", "0.5:1"] { #expect(AspectRatio(text) != nil, "\(text)") }
    for text in ["", "16", "16:", ":9", "0:1", "16:9:1", "16/9", "1:1001", "-1:1", "a:b", "16 : 9"] {
      #expect(AspectRatio(text) == nil, "\(text)")
    }
  }

  @Test("shares are rounded half up, exactly")
  func rounding() throws {
    // 12.5 % of 100 = 12.5, 10 % of 45 = 4.5, 33.3 % of 1000 = 333, 0.1 % of 499 = 0.499.
    let cases = [("12.5%", 100, 13), ("10%", 45, 5), ("33.3%", 1000, 333), ("0.1%", 499, 0), ("0.1%", 500, 1)]
    for (text, side, pixels) in cases { #expect(Length(percentage: text)?.pixels(of: side) == pixels, "\(text)") }
    #expect(Length.pixels(7).pixels(of: 1000) == 7)
  }

  @Test("ratios: the largest within, the smallest around")
  func ratios() throws {
    let wide = try #require(AspectRatio("16:9"))
    // 1000 · 9 / 16 = 562.5; 500 · 16 / 9 = 888.9.
    #expect(wide.largest(within: 1000, 800) == (1000, 563))
    #expect(wide.largest(within: 1000, 500) == (889, 500))
    #expect(wide.smallest(around: 1000, 800) == (1422, 800))
    #expect(wide.smallest(around: 1000, 500) == (1000, 563))
    let square = try #require(AspectRatio("1:1"))
    #expect(square.largest(within: 301, 201) == (201, 201))
    #expect(square.smallest(around: 301, 201) == (301, 301))
    #expect(try #require(AspectRatio("1000:1")).largest(within: 3, 900) == (3, 1))
  }

  static func part(_ x: Int, _ y: Int, _ width: Int, _ height: Int) -> CropRequest.Plan {
    .fixed(Rectangle(x: x, y: y, width: width, height: height))
  }

  @Test("crops by measure, worked out by hand")
  func crops() throws {
    let px = Length.pixels
    let share = { (text: String) in Length(percentage: text) }
    let cases: [(CropRequest, CropRequest.Plan)] = [
      (.init(left: px(10), top: px(20), width: px(30), height: px(40)), Self.part(10, 20, 30, 40)),
      (.init(left: px(10), right: px(20)), Self.part(10, 0, 271, 201)),
      (.init(right: px(20), width: px(100)), Self.part(181, 0, 100, 201)),
      (.init(bottom: share("10%"), height: share("50%")), Self.part(0, 80, 301, 101)),  // 20.1, 100.5
      (.init(width: px(100), height: px(100)), Self.part(100, 50, 100, 100)),  // 201 / 2, 101 / 2 down
      (.init(width: px(100), height: px(100), position: .bottomRight), Self.part(201, 101, 100, 100)),
      (.init(width: px(100), position: .left), Self.part(0, 0, 100, 201)),
      (.init(aspect: AspectRatio("1:1")), Self.part(50, 0, 201, 201)),
      (.init(aspect: AspectRatio("1:1"), position: .right), Self.part(100, 0, 201, 201)),
      (.init(width: px(400), height: px(100), clip: true), Self.part(0, 50, 301, 100)),
      (.init(left: px(250), width: px(100), clip: true), Self.part(250, 0, 51, 201)),
      (.init(right: px(250), width: px(100), clip: true), Self.part(0, 0, 51, 201)),
      (.init(width: px(100), height: px(90), position: .attention), .byContent(width: 100, height: 90)),
      (.init(width: px(301), height: px(201), position: .attention), Self.part(0, 0, 301, 201)),
    ]
    for (request, plan) in cases { #expect(try request.plan(for: 301, 201) == plan, "\(request)") }
    let bad: [CropRequest] = [
      .init(left: px(250), width: px(100)), .init(width: px(302)), .init(left: px(200), right: px(101)),
      .init(left: px(301), width: px(1), clip: true), .init(left: share("100%")),
    ]
    for request in bad { #expect(failure { _ = try request.plan(for: 301, 201) }?.code == .geometry, "\(request)") }
  }

  @Test("a crop by content is found where libvips put it", arguments: [Position.attention, .entropy])
  func byContent(_ position: Position) throws {
    // Plain, with one patch of strong, uneven colour.
    let image = try Made.image(200, 120) { x, y in
      (130..<160).contains(x) && (30..<60).contains(y)
        ? [UInt8(200 + (x * 7 + y * 13) % 55), UInt8((x * 31 + y * 17) % 120), 40] : [90, 90, 90]
    }
    let request = CropRequest(width: .pixels(60), height: .pixels(60), position: position)
    let part = try request.rectangle(of: image)
    #expect((part.width, part.height) == (60, 60))
    #expect(part.x <= 130 && part.x + 60 >= 160 && part.y <= 30 && part.y + 60 >= 60, "\(part)")
  }

  @Test("canvases, worked out by hand")
  func canvases() throws {
    let px = Length.pixels
    let percent = try #require(Length(percentage: "10%"))
    let cases: [(PadRequest, Canvas)] = [
      (.sides(top: px(1), right: px(2), bottom: px(3), left: px(4)), Canvas(x: 4, y: 1, width: 307, height: 205)),
      (.sides(top: percent, right: px(0), bottom: px(0), left: percent), Canvas(x: 30, y: 20, width: 331, height: 221)),
      (.all(percent), Canvas(x: 30, y: 30, width: 361, height: 261)),
      (.size(width: 400, height: nil, .centre), Canvas(x: 49, y: 0, width: 400, height: 201)),
      (.size(width: 400, height: 300, .bottomLeft), Canvas(x: 0, y: 99, width: 400, height: 300)),
      (.aspect(try #require(AspectRatio("1:1")), .centre), Canvas(x: 0, y: 50, width: 301, height: 301)),
      (.aspect(try #require(AspectRatio("1:1")), .top), Canvas(x: 0, y: 0, width: 301, height: 301)),
    ]
    for (request, canvas) in cases { #expect(try request.canvas(for: 301, 201) == canvas, "\(request)") }
    #expect(
      failure { _ = try PadRequest.size(width: 300, height: 500, .centre).canvas(for: 301, 201) }?.code == .geometry)
    #expect(failure { _ = try PadRequest.all(px(60_000)).canvas(for: 301, 201) }?.code == .geometry)
  }

  /// Each pixel says where it was.
  private func marked(_ width: Int, _ height: Int) throws -> Image {
    try Made.image(width, height) { x, y in [UInt8(x * 5), UInt8(y * 5), UInt8(x + y)] }
  }

  @Test("padding by edge, mirror, opaque and clear colours")
  func padding() throws {
    let image = try marked(5, 4)
    let canvas = Canvas(x: 2, y: 1, width: 9, height: 7)
    let edge = try image.padded(to: canvas, .edge)
    let mirror = try image.padded(to: canvas, .mirror)
    let red = try image.padded(to: canvas, .color(RGBA(255, 0, 0)))
    let clear = try image.padded(to: canvas, .color(.transparent))
    for y in 0..<7 {
      for x in 0..<9 {
        let (u, v) = (x - 2, y - 1)
        let isInside = (0..<5).contains(u) && (0..<4).contains(v)
        let source = try image.pixel(min(4, max(0, u)), min(3, max(0, v)))
        #expect(try edge.pixel(x, y) == source)
        let (mu, mv) = (u < 0 ? -1 - u : u > 4 ? 9 - u : u, v < 0 ? -1 - v : v > 3 ? 7 - v : v)
        #expect(try mirror.pixel(x, y) == image.pixel(mu, mv))
        #expect(try red.pixel(x, y) == (isInside ? source : [255, 0, 0]))
        #expect(try clear.pixel(x, y) == (isInside ? source + [255] : [0, 0, 0, 0]))
      }
    }
  }

  // MARK: Trim

  @Test("content is boxed to the pixel, by colour and by alpha, at 8 and 16 bit")
  func boxes() throws {
    let image = try Made.image(40, 30) { x, y in
      (x, y) == (7, 5) || (x, y) == (31, 22) ? [229, 240, 240] : [240, 240, 240]
    }
    let request = TrimRequest()
    for image in [image, try image.withDepth(16)] {
      let border = try request.border(of: image)
      let level = image.depth == 16 ? 240 * 257 : 240
      #expect(border == .color([level, level, level]))
      // 11 away from the border's colour, and the threshold is 10.
      #expect(try request.content(of: [image], border) == Rectangle(x: 7, y: 5, width: 25, height: 18))
      #expect(try TrimRequest(threshold: 11).content(of: [image], border) == nil)
      #expect(try TrimRequest(minSize: 26).content(of: [image], border) == nil)
    }
    let cut = try Made.image(40, 30, bands: 4) { x, y in [0, 0, 0, (x, y) == (3, 29) ? 11 : 10] }
    let alpha = try request.border(of: cut)
    #expect(alpha == .alpha)
    #expect(try request.content(of: [cut], alpha) == Rectangle(x: 3, y: 29, width: 1, height: 1))
    #expect(try TrimRequest(threshold: 11).content(of: [cut], alpha) == nil)
    // Alpha that is opaque all over says nothing.
    let opaque = try image.withAlpha(Made.image(40, 30, bands: 1) { _, _ in [255] })
    #expect(try request.border(of: opaque) == .color([240, 240, 240, 255]))
  }

  @Test("of the corners the colour that most share is the border's")
  func corners() throws {
    let image = try Made.image(20, 20) { x, y in x < 3 && y < 3 ? [9, 9, 9] : [200, 10, 10] }
    let border = try TrimRequest().border(of: image)
    #expect(border == .color([200, 10, 10]))
    #expect(try TrimRequest().content(of: [image], border) == Rectangle(x: 0, y: 0, width: 3, height: 3))
    #expect(try TrimRequest(color: RGBA(9, 9, 9)).border(of: image) == .color([9, 9, 9]))
  }

  @Test("a margin takes what is there and adds border beyond")
  func margins() throws {
    let image = try Made.image(20, 10) { x, y in
      (2..<12).contains(x) && (4..<8).contains(y) ? [1, 2, 3] : y == 0 ? [241, 240, 240] : [240, 240, 240]
    }
    let request = TrimRequest(margin: try #require(Length(percentage: "40%")))
    let border = try request.border(of: image)
    let content = try #require(try request.content(of: [image], border))
    #expect(content == Rectangle(x: 2, y: 4, width: 10, height: 4))
    let part = request.framed(content)
    #expect(part == Rectangle(x: -2, y: 0, width: 18, height: 12))
    let result = try image.window(part, border)
    for y in 0..<12 {
      for x in 0..<18 {
        let (u, v) = (x - 2, y)
        let isThere = (0..<20).contains(u) && (0..<10).contains(v)
        // All corners are alike within the threshold, so the first is the border's colour.
        let fill = try image.pixel(0, 0)
        #expect(try result.pixel(x, y) == (isThere ? image.pixel(u, v) : fill))
      }
    }
  }

  // MARK: Rotation

  @Test("right angles move pixels and change none")
  func rightAngles() throws {
    let image = try marked(7, 5)
    for (angle, turns) in [(0.0, 0), (90, 1), (180, 2), (270, 3), (-90, 3), (360, 0), (-270, 1)] {
      let rotation = Rotation(degrees: angle)
      #expect(rotation.quarters == turns)
      let turned = try image.rotated(rotation)
      #expect((turned.width, turned.height) == (turns % 2 == 0 ? (7, 5) : (5, 7)))
      #expect(rotation.size(for: 7, 5) == (turned.width, turned.height))
      for y in 0..<5 {
        for x in 0..<7 {
          let (u, v) = [(x, y), (4 - y, x), (6 - x, 4 - y), (y, 6 - x)][turns]
          #expect(try turned.pixel(u, v) == image.pixel(x, y))
        }
      }
    }
    let flips: [(FlipDirection, (Int, Int) -> (Int, Int))] = [
      (.horizontal, { (6 - $0, $1) }), (.vertical, { ($0, 4 - $1) }), (.both, { (6 - $0, 4 - $1) }),
    ]
    for (direction, place) in flips {
      let flipped = try image.flipped(direction)
      for y in 0..<5 {
        for x in 0..<7 {
          let (u, v) = place(x, y)
          #expect(try flipped.pixel(u, v) == image.pixel(x, y))
        }
      }
    }
  }

  @Test("the canvas of any angle is that of the turned outline, rounded up")
  func canvasOfAngles() throws {
    // 100 · cos 45° + 60 · sin 45° = 113.14; at 30°: 100 · 0.8660 + 60 · 0.5 = 116.60, 50 + 51.96 = 101.96.
    #expect(Rotation(degrees: 45).size(for: 100, 60) == (114, 114))
    #expect(Rotation(degrees: 30).size(for: 100, 60) == (117, 102))
    #expect(Rotation(degrees: -30).size(for: 100, 60) == (117, 102))
    // 100 · cos 60° + 0 is 50 but for the last bits of a double.
    #expect(Rotation(degrees: 90 + 1e-12).size(for: 100, 60) == (60, 100))
    for (angle, w, h) in [(15.0, 61, 40), (45, 33, 33), (100, 31, 64), (-3.5, 120, 20)] {
      let rotation = Rotation(degrees: angle)
      let turned = try Made.image(w, h) { _, _ in [50, 60, 70] }.rotated(rotation)
      #expect((turned.width, turned.height) == rotation.size(for: w, h))
      #expect(turned.bands == 4)
    }
  }

  @Test("the middle stays the middle: no shift by a part of a pixel")
  func centred() throws {
    // Half a turn beside 90° must be a quarter turn to within rounding, and a picture that is its own half turn must
    // stay one at any angle.
    let image = try Made.waves(41, 28)
    let near = try image.rotated(Rotation(degrees: 90 + 1e-12)).withoutAlpha()
    #expect(maxDifference(try near.bytes(), try image.rotated(Rotation(degrees: 90)).bytes()) <= 1)
    let waves = try Made.waves(24, 18)
    let symmetric = try Made.image(24, 18) { x, y in
      let (a, b) = (try! waves.pixel(x, y), try! waves.pixel(23 - x, 17 - y))
      return zip(a, b).map { UInt8((Int($0) + Int($1)) / 2) }
    }
    for angle in [10.0, 33, 45, 101.5] {
      let turned = try symmetric.rotated(Rotation(degrees: angle))
      let again = try turned.rotated(Rotation(degrees: 180))
      #expect(maxDifference(try turned.bytes(), try again.bytes()) <= 1, "\(angle)")
    }
    // There and back, the middle of a smooth picture is where it was.
    // Canvases of 154 and 198 pixels: middles fall on each other only where both sides are even, or odd.
    let smooth = try Made.waves(120, 120)
    let back = try smooth.rotated(Rotation(degrees: 20)).rotated(Rotation(degrees: -20))
    #expect((back.width, back.height) == (198, 198))
    let middle = try back.cropped(x: 69, y: 69, width: 60, height: 60)
    let wanted = try smooth.cropped(x: 30, y: 30, width: 60, height: 60)
    #expect(maxDifference(try middle.withoutAlpha().bytes(), try wanted.bytes()) <= 2)
    // 20° clockwise: what was at the right comes to lie lower.
    let dot = try Made.image(101, 101) { x, y in
      hypot(Double(x) - 90, Double(y) - 50) < 4 ? [255, 255, 255] : [0, 0, 0]
    }
    let turned = try dot.rotated(Rotation(degrees: 20))
    let radians = 20 * Double.pi / 180
    let (x, y) = (Double(turned.width - 1) / 2 + 40 * cos(radians), Double(turned.height - 1) / 2 + 40 * sin(radians))
    #expect(try turned.pixel(Int(x.rounded()), Int(y.rounded()))[0] == 255)
  }

  @Test("turning weighs colours by alpha, and leaves a flat colour as it is", arguments: [8, 16])
  func premultiplied(depth: Int) throws {
    let disc = try Made.image(60, 60, bands: 4) { x, y in
      hypot(Double(x) - 29.5, Double(y) - 29.5) < 20 ? [255, 0, 0, 255] : [0, 0, 0, 0]
    }.withDepth(depth)
    let turned = try disc.rotated(Rotation(degrees: 37)).withDepth(8).bytes()
    var seen = 0
    for i in stride(from: 0, to: turned.count, by: 4) where turned[i + 3] > 8 {
      seen += 1
      #expect(turned[i] == 255 && turned[i + 1] == 0 && turned[i + 2] == 0)
    }
    #expect(seen > 1200)
    let flat = try Made.image(50, 30) { _, _ in [12, 140, 201] }.withDepth(depth)
    let straight = try flat.rotated(Rotation(degrees: 8, crop: true))
    #expect(straight.bands == 3)
    let pixels = try straight.withDepth(8).bytes()
    #expect((0..<pixels.count / 3).allSatisfy { Array(pixels[$0 * 3..<$0 * 3 + 3]) == [12, 140, 201] })
    let extended = try flat.rotated(Rotation(degrees: 8), extending: true).withDepth(8)
    #expect(extended.bands == 3)
    #expect(try extended.pixel(0, 0) == [12, 140, 201])
    #expect(try extended.pixel(extended.width - 1, 0) == [12, 140, 201])
  }

  @Test("no dark line where a turned picture ends", arguments: Interpolator.allCases)
  func edges(_ interpolator: Interpolator) throws {
    let white = try Made.image(50, 30) { _, _ in [255, 255, 255] }
    let turned = try white.rotated(Rotation(degrees: 15, interpolator: interpolator))
    let soft = try turned.alphaBand().bytes()
    // Soft edges, but for the nearest pixel.
    #expect(soft.contains { $0 > 20 && $0 < 235 } == (interpolator != .nearest))
    let laid = try turned.composited(over: .solid(width: turned.width, height: turned.height, .white))
    #expect(laid.bands == 3)
    #expect(try laid.bytes().allSatisfy { $0 == 255 })
  }

  @Test("a matte turns as the alpha of its picture")
  func matteTurns() throws {
    let matte = try Made.image(40, 30, bands: 1) { x, y in [UInt8((x * 6 + y * 3) & 255)] }
    let picture = try Made.image(40, 30) { _, _ in [90, 90, 90] }.withAlpha(matte)
    let rotation = Rotation(degrees: 27)
    #expect(maxDifference(try picture.rotated(rotation).alphaBand().bytes(), try matte.rotated(rotation).bytes()) <= 1)
  }

  @Test("the inner rectangle has no corner outside, and one pixel more would")
  func innerRectangle() throws {
    for (w, h) in [(400, 300), (300, 400), (500, 100), (90, 90), (31, 700)] {
      for angle in [1.0, 7.5, 30, 44.9, 45, 60, 89, 120, -15] {
        let size = Rotation(degrees: angle, crop: true).size(for: w, h)
        let radians = angle * Double.pi / 180
        let (s, c) = (abs(sin(radians)), abs(cos(radians)))
        func fits(_ width: Int, _ height: Int) -> Bool {
          Double(width) * c + Double(height) * s <= Double(w) + 1e-6
            && Double(width) * s + Double(height) * c <= Double(h) + 1e-6
        }
        #expect(fits(size.width, size.height), "\(w)×\(h) \(angle)")
        #expect(!fits(size.width + 1, size.height + 1), "\(w)×\(h) \(angle)")
      }
    }
  }

  @Test("sharpening: flat parts stay, edges gain, alpha and grey stay")
  func sharpening() throws {
    let image = try Made.image(40, 20, bands: 4) { x, y in
      let level: UInt8 = x < 20 ? 80 : 170
      return [level, level, level, UInt8(y * 12)]
    }
    let sharp = try image.sharpened(Sharpening(sigma: 1, amount: 2))
    #expect(try sharp.alphaBand().bytes() == image.alphaBand().bytes())
    #expect(try sharp.pixel(3, 9) == image.pixel(3, 9))
    #expect(try sharp.pixel(20, 9)[0] > 172 && sharp.pixel(19, 9)[0] < 78)
    let stronger = try image.sharpened(Sharpening(sigma: 1, amount: 6, maxLighten: 40, maxDarken: 40))
    #expect(try stronger.pixel(20, 9)[0] > sharp.pixel(20, 9)[0])
    #expect(try image.sharpened(Sharpening(sigma: 1, amount: 0)).pixel(20, 9) == image.pixel(20, 9))
    #expect(failure { _ = try Made.image(4, 4, bands: 1) { _, _ in [1] }.sharpened(Sharpening()) }?.code == .geometry)
    let deep = try image.withDepth(16).sharpened(Sharpening(sigma: 1, amount: 2))
    #expect(deep.depth == 16)
    #expect(maxDifference(try deep.withDepth(8).bytes(), try sharp.bytes()) <= 1)
  }

  // MARK: Watermarks

  @Test("a mark changes what it covers and nothing beside it", arguments: [8, 16])
  func stamping(depth: Int) throws {
    let base = try Made.waves(40, 30).withDepth(depth)
    let mark = try Made.image(6, 4, bands: 4) { x, _ in [255, 0, 0, x < 3 ? 255 : 0] }
    let stamped = try base.stamped(with: mark, x: 10, y: 20)
    #expect(stamped.depth == depth)
    let (result, before) = (try stamped.withDepth(8), try base.withDepth(8))
    for y in 0..<30 {
      for x in 0..<40 {
        let isCovered = (10..<13).contains(x) && (20..<24).contains(y)
        #expect(try result.pixel(x, y) == (isCovered ? [255, 0, 0] : before.pixel(x, y)))
      }
    }
    #expect(failure { _ = try base.stamped(with: mark, x: 35, y: 0) }?.code == .geometry)
    #expect(failure { _ = try Made.image(9, 9, bands: 1) { _, _ in [0] }.stamped(with: mark, x: 0, y: 0) } != nil)
  }

  @Test("opacity and the colour's own alpha multiply")
  func opacity() throws {
    let coverage = try Made.image(3, 1, bands: 1) { x, _ in [[255, 100, 0][x]] }
    let ink = try Image.ink(RGBA(10, 20, 30, 128), coverage: coverage, opacity: 0.5)
    // 255 · 128 / 255 / 2 = 64; 100 · 128 / 255 / 2 = 25.1.
    #expect(try ink.bytes() == [10, 20, 30, 64, 10, 20, 30, 25, 10, 20, 30, 0])
    let logo = try Made.image(1, 1) { _, _ in [1, 2, 3] }.fadedAlpha(0.2)
    #expect(try logo.bytes() == [1, 2, 3, 51])
  }

  @Test("tiles repeat from the middle")
  func tiling() throws {
    let base = try Made.image(50, 31) { _, _ in [0, 0, 0] }
    let mark = try Made.image(4, 3, bands: 4) { _, _ in [255, 255, 255, 255] }
    for spacing in [0, 5] {
      let tiled = try base.tiled(with: mark, spacing: spacing)
      let (startX, startY) = ((50 - 4) / 2, (31 - 3) / 2)
      for y in 0..<31 {
        for x in 0..<50 {
          func isIn(_ place: Int, _ start: Int, _ size: Int) -> Bool {
            let step = size + spacing
            return ((place - start) % step + step) % step < size
          }
          let isMark = isIn(x, startX, 4) && isIn(y, startY, 3)
          #expect(try tiled.pixel(x, y) == (isMark ? [255, 255, 255] : [0, 0, 0]), "\(x) \(y)")
        }
      }
    }
  }

  @Test("a mark takes on the picture's colour space")
  func spaces() throws {
    let base = try Made.waves(20, 20).converted(to: .displayP3)
    let red = try Made.image(5, 5) { _, _ in [255, 0, 0] }
    let stamped = try base.stamped(with: red.fadedAlpha(1), x: 3, y: 3)
    #expect(stamped.space == .displayP3)
    // The red of sRGB, (1, 0, 0), is (0.9175, 0.2003, 0.1386) in Display P3: 234, 51, 35.
    #expect(maxDifference(try stamped.pixel(4, 4), [234, 51, 35]) <= 1)
    #expect(try stamped.pixel(10, 10) == base.pixel(10, 10))
    let padded = try base.padded(to: Canvas(x: 1, y: 1, width: 22, height: 22), .color(RGBA(255, 0, 0)))
    #expect(try padded.pixel(0, 0) == stamped.pixel(4, 4))
    // The border is told in the picture's own numbers.
    let frame = try base.window(Rectangle(x: -1, y: -1, width: 22, height: 22), .color([9, 8, 7]))
    #expect(try frame.pixel(0, 0) == [9, 8, 7] && frame.space == .displayP3)
  }

  @Test("a grey picture stays grey under grey ink, and not under red")
  func greyMarks() throws {
    let grey = try Image.solid(width: 20, height: 20, RGBA(90, 90, 90))
    let coverage = try Made.image(5, 5, bands: 1) { _, _ in [200] }
    #expect(grey.isGrey)
    #expect(try grey.stamped(with: .ink(.white, coverage: coverage), x: 0, y: 0).isGrey)
    #expect(try !grey.stamped(with: .ink(RGBA(255, 0, 0), coverage: coverage), x: 0, y: 0).isGrey)
  }
}
