import Glibc
import Imaging
import Testing

@Suite struct ForegroundColoursTests {
  /// Foreground, background and matte of a picture, and what a camera would see of them.
  struct Scene {
    let width: Int
    let height: Int
    /// 0…1, three a pixel.
    var foreground: [Double] = []
    var background: [Double] = []
    var matte: [UInt8] = []

    init(
      _ width: Int, _ height: Int, foreground: (Double, Double) -> [Double], background: (Double, Double) -> [Double],
      matte: (Int, Int) -> Double
    ) {
      (self.width, self.height) = (width, height)
      for y in 0..<height {
        for x in 0..<width {
          let (u, v) = (Double(x) / Double(width), Double(y) / Double(height))
          self.foreground += foreground(u, v)
          self.background += background(u, v)
          self.matte.append(UInt8((min(max(matte(x, y), 0), 1) * 255).rounded()))
        }
      }
    }

    /// A disc in the middle with a rim that is `soft` pixels wide, warm on cold, both with slow shades.
    static func disc(_ width: Int, _ height: Int, soft: Double) -> Scene {
      let radius = Double(min(width, height)) * 0.3
      return Scene(
        width, height, foreground: { u, v in [0.75 + 0.15 * sin(6 * u), 0.35 + 0.1 * cos(5 * v), 0.15 + 0.1 * u] },
        background: { u, v in [0.1 + 0.1 * v, 0.45 + 0.2 * sin(4 * v + u), 0.8 - 0.2 * u] },
        matte: { x, y in
          (radius - hypot(Double(x) - Double(width) / 2, Double(y) - Double(height) / 2)) / soft + 0.5
        })
    }

    /// The picture seen, as shares of 1.
    var seen: [Double] {
      foreground.indices.map {
        let alpha = Double(matte[$0 / 3]) / 255
        return alpha * foreground[$0] + (1 - alpha) * background[$0]
      }
    }

    var image: Image {
      get throws { try Image(width: width, height: height, bands: 3, bytes: seen.map { UInt8(($0 * 255).rounded()) }) }
    }

    var deepImage: Image {
      get throws {
        try Image(width: width, height: height, bands: 3, samples: seen.map { UInt16(($0 * 65535).rounded()) })
      }
    }

    var matteImage: Image {
      get throws { try Image(width: width, height: height, bands: 1, bytes: matte) }
    }

    /// The mean absolute difference between colours (0…1) and the foreground, each pixel weighing as much as it shows,
    /// in levels of 255, where the matte is within 2 to 98 %; and the largest where it is above 10 %.
    func error(_ colours: [Double]) -> (mean: Double, largest: Double) {
      var (sum, weights, largest) = (0.0, 0.0, 0.0)
      for index in foreground.indices where (6...249).contains(matte[index / 3]) {
        let alpha = Double(matte[index / 3]) / 255
        let difference = abs(colours[index] - foreground[index]) * 255
        sum += alpha * difference
        weights += alpha
        if alpha > 0.1 { largest = max(largest, difference) }
      }
      return (sum / weights, largest)
    }
  }

  static func colours(_ image: Image) throws -> [Double] {
    let bytes = try image.bytes()
    guard image.depth == 16 else { return bytes.map { Double($0) / 255 } }
    return stride(from: 0, to: bytes.count, by: 2).map { Double(Int(bytes[$0]) + Int(bytes[$0 + 1]) << 8) / 65535 }
  }

  @Test(
    "known colours come back, at sizes that are solved at once and that are made smaller first",
    arguments: [
      (160, 120, 12.0), (120, 160, 40), (560, 480, 30), (33, 31, 6),
    ])
  func knownColours(width: Int, height: Int, soft: Double) throws {
    let scene = Scene.disc(width, height, soft: soft)
    let result = try scene.image.withForegroundColours(under: scene.matteImage)
    #expect((result.width, result.height, result.bands, result.depth) == (width, height, 3, 8))
    let before = scene.error(scene.seen)
    let after = scene.error(try Self.colours(result))
    #expect(after.mean < 4, "\(after)")
    #expect(after.largest < 24, "\(after)")
    #expect(after.mean < before.mean / 8, "\(before) → \(after)")
  }

  @Test("16 bits keep more than 8")
  func deep() throws {
    let scene = Scene.disc(200, 150, soft: 20)
    let deep = try scene.deepImage.withForegroundColours(under: scene.matteImage)
    #expect(deep.depth == 16)
    let colours = try Self.colours(deep)
    #expect(scene.error(colours).mean < 4)
    let shallow = try Self.colours(scene.image.withForegroundColours(under: scene.matteImage))
    for (one, other) in zip(colours, shallow) { #expect(abs(one - other) < 3.0 / 255) }
    // Values between the 256 that 8 bits have.
    #expect(colours.contains { abs(($0 * 255).rounded() - $0 * 255) > 0.2 })
  }

  @Test("what is opaque or transparent stays bit by bit", arguments: [8, 16])
  func definite(depth: Int) throws {
    var seed: UInt64 = 7
    func random() -> Int {
      seed = seed &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return Int(seed >> 40)
    }
    let scene = Scene.disc(130, 97, soft: 25)
    let count = 130 * 97 * 3
    let picture =
      depth == 8
      ? try Image(width: 130, height: 97, bands: 3, bytes: (0..<count).map { _ in UInt8(random() & 255) })
      : try Image(width: 130, height: 97, bands: 3, samples: (0..<count).map { _ in UInt16(random() & 65535) })
    let before = try picture.bytes()
    let after = try picture.withForegroundColours(under: scene.matteImage).bytes()
    let size = depth / 8 * 3
    var changed = 0
    for (pixel, alpha) in scene.matte.enumerated() {
      let range = pixel * size..<(pixel + 1) * size
      let isSame = before[range] == after[range]
      if alpha == 0 || alpha == 255 { #expect(isSame, "pixel \(pixel) under \(alpha)") }
      if !isSame { changed += 1 }
    }
    #expect(changed > 1000)
    // The picture it was made from is not touched.
    #expect(try picture.bytes() == before)
  }

  @Test("all opaque, all transparent and pictures of one pixel come back as they are")
  func nothingToDo() throws {
    let picture = try Made.waves(70, 50)
    let before = try picture.bytes()
    for level: UInt8 in [0, 255] {
      let matte = try Image(width: 70, height: 50, bands: 1, bytes: [UInt8](repeating: level, count: 3500))
      #expect(try picture.withForegroundColours(under: matte).bytes() == before)
    }
    let pixel = try Image(width: 1, height: 1, bands: 3, bytes: [10, 200, 90])
    for level: UInt8 in [0, 1, 128, 254, 255] {
      let matte = try Image(width: 1, height: 1, bands: 1, bytes: [level])
      #expect(try pixel.withForegroundColours(under: matte).bytes() == [10, 200, 90])
    }
  }

  @Test("a matte without a definite pixel changes no even colour")
  func evenColour() throws {
    // Nothing tells foreground and background apart, so both are what is seen.
    let picture = try Made.image(90, 40) { _, _ in [200, 100, 50] }
    let matte = try Image(width: 90, height: 40, bands: 1, bytes: [UInt8](repeating: 120, count: 3600))
    let after = try picture.withForegroundColours(under: matte).bytes()
    #expect(zip(after, try picture.bytes()).allSatisfy { abs(Int($0) - Int($1)) <= 1 })
  }

  @Test("pictures of one row or column", arguments: [true, false])
  func lines(across: Bool) throws {
    // Transparent, a slope over 60 pixels, opaque.
    let scene = Scene(
      across ? 400 : 1, across ? 1 : 400, foreground: { _, _ in [0.8, 0.3, 0.1] },
      background: { _, _ in [0.1, 0.4, 0.9] }, matte: { x, y in Double(max(x, y) - 170) / 60 })
    let result = try scene.image.withForegroundColours(under: scene.matteImage)
    #expect(scene.error(try Self.colours(result)).mean < 4)
  }

  @Test("tiles leave no seams")
  func seams() throws {
    // An even slope of the matte all across: neighbours in the result may not differ more at a multiple of the tiles'
    // side than elsewhere.
    let scene = Scene(
      256, 128, foreground: { u, _ in [0.9, 0.3 + 0.2 * u, 0.2] }, background: { _, v in [0.1, 0.5, 0.4 + 0.3 * v] },
      matte: { x, _ in Double(x) / 255 })
    let colours = try Self.colours(scene.image.withForegroundColours(under: scene.matteImage))
    func step(from x: Int) -> Double {
      var sum = 0.0
      for y in 0..<128 {
        for band in 0..<3 { sum += abs(colours[(y * 256 + x) * 3 + band] - colours[(y * 256 + x + 1) * 3 + band]) }
      }
      return sum / 384 * 255
    }
    for x in stride(from: 31, to: 224, by: 32) where x > 32 {
      #expect(step(from: x) <= max(step(from: x - 1), step(from: x + 1)) + 0.5, "at \(x)")
    }
  }

  @Test("alpha that comes along stays, and what is not opaque is left alone")
  func ownAlpha() throws {
    let scene = Scene.disc(120, 90, soft: 30)
    let colours = try scene.image.bytes()
    var bytes: [UInt8] = []
    for pixel in scene.matte.indices {
      // The left half is opaque, the right one half so.
      bytes += colours[pixel * 3..<pixel * 3 + 3] + [pixel % 120 < 60 ? 255 : 128]
    }
    let picture = try Image(width: 120, height: 90, bands: 4, bytes: bytes)
    let after = try picture.withForegroundColours(under: scene.matteImage).bytes()
    var changed = 0
    for pixel in scene.matte.indices {
      let (old, new) = (bytes[pixel * 4..<pixel * 4 + 4], after[pixel * 4..<pixel * 4 + 4])
      #expect(old.last == new.last)
      if pixel % 120 >= 60 { #expect(old == new) } else if old != new { changed += 1 }
    }
    #expect(changed > 500)
  }

  @Test("the profile and the space stay")
  func profile() throws {
    let scene = Scene.disc(64, 64, soft: 16)
    let picture = try scene.image.converted(to: .displayP3)
    let result = try picture.withForegroundColours(under: scene.matteImage)
    #expect(result.space == .displayP3)
    #expect(result.hasProfile == picture.hasProfile)
    // In memory, and not once more to be computed.
    #expect(result.isMaterialised)
  }

  @Test("a matte that does not go with the picture is refused")
  func refused() throws {
    let picture = try Made.waves(20, 10)
    let others = [try Made.waves(20, 10), try Made.image(10, 20, bands: 1) { _, _ in [128] }]
    for other in others {
      #expect(failure { _ = try picture.withForegroundColours(under: other) }?.code == .geometry)
    }
    let matte = try Made.image(20, 10, bands: 1) { _, _ in [128] }
    #expect(failure { _ = try matte.withForegroundColours(under: matte) }?.code == .geometry)
  }
}
