import Glibc
import Imaging
import Testing

@Suite struct BlendTests {
  /// s of what is laid on (200, 100, 40) and b of what is below (100, 250, 0), both opaque, worked out by hand:
  /// multiply s·b/255; screen s+b−s·b/255; hard light 2·s·b/255 for s up to half, else the screen of 2s−255; overlay
  /// the same with both exchanged; dodge b·255/(255−s); burn 255−(255−b)·255/s.
  @Test(
    "opaque colours mix by the mode's formula",
    arguments: [
      (.over, [200, 100, 40]), (.source, [200, 100, 40]), (.dest, [100, 250, 0]), (.atop, [200, 100, 40]),
      (.multiply, [78, 98, 0]), (.screen, [222, 252, 40]), (.darken, [100, 100, 0]), (.lighten, [200, 250, 40]),
      (.difference, [100, 150, 40]), (.exclusion, [143, 154, 40]), (.add, [255, 255, 40]),
      (.hardLight, [188, 196, 0]), (.overlay, [157, 249, 0]), (.colourDodge, [255, 255, 0]),
      (.colourBurn, [57, 242, 0]), (.softLight, [134, 249, 0]),
    ] as [(BlendMode, [UInt8])])
  func opaque(mode: BlendMode, expected: [UInt8]) throws {
    let above = try Made.image(1, 1, bands: 4) { _, _ in [200, 100, 40, 255] }
    let below = try Made.image(1, 1) { _, _ in [100, 250, 0] }
    let result = try above.blended(onto: below, mode)
    #expect(Array(try result.bytes().prefix(3)) == expected, "\(mode)")
  }

  /// The formulas of Compositing and Blending, section 9 (Porter–Duff, as shares of both) and 10 (mixing), one number
  /// at a time: colour and alpha of what is laid on and of what is below, all 0…1.
  private func expected(
    _ mode: BlendMode, _ s: Double, _ sa: Double, _ b: Double, _ ba: Double
  ) -> (color: Double, alpha: Double) {
    func mixed(_ s: Double, _ b: Double, _ mode: BlendMode) -> Double? {
      switch mode {
      case .multiply: return s * b
      case .screen: return 1 - (1 - s) * (1 - b)
      case .overlay: return mixed(b, s, .hardLight)
      case .darken: return min(s, b)
      case .lighten: return max(s, b)
      case .colourDodge: return b == 0 ? 0 : s == 1 ? 1 : min(1, b / (1 - s))
      case .colourBurn: return b == 1 ? 1 : s == 0 ? 0 : 1 - min(1, (1 - b) / s)
      case .hardLight: return s <= 0.5 ? b * 2 * s : 1 - (1 - b) * (1 - (2 * s - 1))
      case .softLight:
        let d = b <= 0.25 ? ((16 * b - 12) * b + 4) * b : sqrt(b)
        return s <= 0.5 ? b - (1 - 2 * s) * b * (1 - b) : b + (2 * s - 1) * (d - b)
      case .difference: return abs(b - s)
      case .exclusion: return b + s - 2 * b * s
      default: return nil
      }
    }
    if let both = mixed(s, b, mode) {
      // What is laid on is first mixed where there is something below, then laid on.
      let source = (1 - ba) * s + ba * both
      let alpha = sa + ba * (1 - sa)
      return (alpha > 0 ? (sa * source + (1 - sa) * ba * b) / alpha : 0, alpha)
    }
    let (fa, fb): (Double, Double) =
      switch mode {
      case .clear: (0, 0)
      case .source: (1, 0)
      case .over: (1, 1 - sa)
      case .inside: (ba, 0)
      case .outside: (1 - ba, 0)
      case .atop: (ba, 1 - sa)
      case .dest: (0, 1)
      case .destOver: (1 - ba, 1)
      case .destIn: (0, sa)
      case .destOut: (0, 1 - sa)
      case .destAtop: (1 - ba, sa)
      case .xor: (1 - ba, 1 - sa)
      case .saturate: (sa > 0 ? min(1, (1 - ba) / sa) : 1, 1)
      default: (1, 1)
      }
    let alpha = min(1, sa * fa + ba * fb)
    return (alpha > 0 ? min(1, (sa * fa * s + ba * fb * b) / alpha) : 0, alpha)
  }

  @Test("every mode follows its formula for any alpha, 8 and 16 bits", arguments: BlendMode.allCases, [255.0, 65_535])
  func formulas(mode: BlendMode, most: Double) throws {
    var random = Scatter(seed: 7)
    let count = 600
    func pixels() -> [Double] {
      (0..<count * 4).map { _ in
        // Ends are where formulas differ.
        switch random.next() % 4 {
        case 0: 0
        case 1: most
        default: Double(random.next() % UInt64(most + 1))
        }
      }
    }
    let (upper, lower) = (pixels(), pixels())
    func image(_ pixels: [Double]) throws -> Image {
      most == 255
        ? try Image(width: count, height: 1, bands: 4, bytes: pixels.map { UInt8($0) })
        : try Image(width: count, height: 1, bands: 4, samples: pixels.map { UInt16($0) })
    }
    let result = try image(upper).blended(onto: image(lower), mode)
    #expect((result.bands, result.depth) == (4, most == 255 ? 8 : 16))
    let samples = try result.withPixels { raw in
      most == 255 ? raw.map { Double($0) } : raw.bindMemory(to: UInt16.self).map { Double($0) }
    }
    // One level is what rounding may do, and for 16 bits the arithmetic in 24.
    for i in stride(from: 0, to: count * 4, by: 4) {
      for band in 0..<3 {
        let (color, alpha) = expected(
          mode, upper[i + band] / most, upper[i + 3] / most, lower[i + band] / most, lower[i + 3] / most)
        let place = "\(mode): \(upper[i..<i + 4]) on \(lower[i..<i + 4])"
        #expect(abs(samples[i + 3] - alpha * most) <= 1, "alpha, \(place)")
        // Of faint alpha the colour is a quotient of small numbers.
        if alpha * most >= 1 { #expect(abs(samples[i + band] - color * most) <= 1, "band \(band), \(place)") }
      }
    }
  }

  @Test("white under a soft edge stays white when white is multiplied into it")
  func softMultiply() throws {
    let above = try Made.image(256, 1, bands: 4) { x, _ in [255, 255, 255, UInt8(x)] }
    let below = try Made.image(256, 1) { _, _ in [255, 255, 255] }
    #expect(try above.blended(onto: below, .multiply).bytes().allSatisfy { $0 == 255 })
  }

  @Test("where nothing is laid on, what is below stays to the bit", arguments: BlendMode.allCases)
  func clearAbove(mode: BlendMode) throws {
    guard mode.isOpaque(above: false, below: true) else { return }
    let above = try Made.image(256, 1, bands: 4) { x, _ in [UInt8(x), 9, 200, 0] }
    let below = try Made.image(256, 1) { x, _ in [UInt8(x), UInt8(255 - x), 77] }
    let result = try above.blended(onto: below, mode)
    #expect(result.bands == 3)
    #expect(try result.bytes() == below.bytes())
  }

  @Test("the result has alpha where the mode or what is below makes it")
  func alphaBand() throws {
    let opaque = try Made.image(2, 2) { _, _ in [1, 2, 3] }
    let soft = try Made.image(2, 2, bands: 4) { _, _ in [1, 2, 3, 128] }
    #expect(try soft.blended(onto: opaque, .multiply).bands == 3)
    #expect(try soft.blended(onto: soft, .multiply).bands == 4)
    #expect(try opaque.blended(onto: soft, .multiply).bands == 3)
    #expect(
      try soft.blended(onto: opaque, .destIn).bytes() == [1, 2, 3, 128, 1, 2, 3, 128, 1, 2, 3, 128, 1, 2, 3, 128])
    #expect(try opaque.blended(onto: opaque, .xor).bytes() == [UInt8](repeating: 0, count: 16))
  }

  @Test("other sides and mattes are refused")
  func refused() throws {
    let picture = try Made.image(2, 2) { _, _ in [1, 2, 3] }
    let small = try Made.image(1, 2) { _, _ in [1, 2, 3] }
    let matte = try Made.image(2, 2, bands: 1) { _, _ in [1] }
    #expect(failure { _ = try picture.blended(onto: small, .multiply) }?.code == .geometry)
    #expect(failure { _ = try picture.blended(onto: matte, .screen) }?.code == .geometry)
    #expect(failure { _ = try matte.blended(onto: picture, .screen) }?.code == .geometry)
  }
}

/// Numbers that look random and are the same each time (splitmix64).
private struct Scatter {
  private var state: UInt64
  init(seed: UInt64) { state = seed }
  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ z >> 30) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ z >> 27) &* 0x94D0_49BB_1331_11EB
    return z ^ z >> 31
  }
}
