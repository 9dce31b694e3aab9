import Glibc
import Imaging
import Testing

@Suite struct StructuralSimilarityTests {
  static func noise(_ x: Int, _ y: Int, _ c: Int) -> Int {
    let mixed = ((x &* 73_856_093) ^ (y &* 19_349_663) ^ (c &* 83_492_791)) & 0xFFFF_FFFF
    return ((mixed &* 1_664_525 &+ 1_013_904_223) & 0xFFFF_FFFF) >> 24
  }

  /// Slopes and grain.
  static func value(_ x: Int, _ y: Int, _ c: Int) -> Int {
    let t = (x * 3 + y * 2 + ((x * y) >> 4) + c * 100) % 512
    return min(max((t < 256 ? t : 511 - t) + noise(x, y, c) % 21 - 10, 0), 255)
  }

  static func picture(_ width: Int, _ height: Int, _ value: (Int, Int, Int) -> Int = value) throws -> Image {
    try Made.image(width, height) { x, y in (0..<3).map { UInt8(value(x, y, $0)) } }
  }

  static func noisy(_ x: Int, _ y: Int, _ c: Int) -> Int {
    min(max(value(x, y, c) + noise(y + 7, x + 3, c) % 41 - 20, 0), 255)
  }

  @Test("the pictures are those that the reference was given")
  func pictures() throws {
    let a = try Self.picture(97, 71)
    #expect(try a.pixel(0, 0) == [8, 107, 190])
    #expect(try a.pixel(48, 35) == [186, 86, 17])
    #expect(try Self.picture(97, 71, Self.noisy).pixel(48, 35) == [191, 79, 20])
  }

  // Expected: scikit-image 0.26, structural_similarity with Gaussian weights, σ 1.5, of the same pictures' unrounded
  // lightness.
  @Test("as the reference computes it")
  func reference() throws {
    let a = try Self.picture(97, 71)
    let blurred = try Self.picture(97, 71) { x, y, c in
      (Self.value(max(x - 1, 0), y, c) + Self.value(x, y, c) + Self.value(min(x + 1, 96), y, c)) / 3
    }
    let dim = try Self.picture(97, 71) { x, y, c in Self.value(x, y, c) * 3 / 4 + 20 }
    #expect(try abs(StructuralSimilarity.mean(a, Self.picture(97, 71, Self.noisy)) - 0.749_426_0) < 0.0001)
    #expect(try abs(StructuralSimilarity.mean(a, blurred) - 0.934_399_1) < 0.0001)
    #expect(try abs(StructuralSimilarity.mean(a, dim) - 0.967_522_6) < 0.0001)
    #expect(try StructuralSimilarity.mean(a, a) == 1)
    let small = try Self.picture(12, 11)
    #expect(try abs(StructuralSimilarity.mean(small, Self.picture(12, 11, Self.noisy)) - 0.663_818_1) < 0.0001)
  }

  @Test("one band, against the reference's red band")
  func grey() throws {
    let a = try Made.image(97, 71, bands: 1) { x, y in [UInt8(Self.value(x, y, 0))] }
    let b = try Made.image(97, 71, bands: 1) { x, y in [UInt8(Self.noisy(x, y, 0))] }
    #expect(try abs(StructuralSimilarity.mean(a, b) - 0.715_046_8) < 0.0001)
  }

  @Test("colour under full transparency does not count, a hole does")
  func transparency() throws {
    func clear(_ red: UInt8, _ alpha: UInt8) throws -> Image {
      try Made.image(40, 40, bands: 4) { x, _ in x < 20 ? [red, 9, 9, alpha] : [90, 90, 200, 255] }
    }
    #expect(try StructuralSimilarity.mean(clear(0, 0), clear(255, 0)) == 1)
    #expect(try StructuralSimilarity.mean(clear(0, 0), clear(0, 255)) < 0.9)
  }

  @Test("pictures smaller than a window compare; other sides do not")
  func sides() throws {
    let one = try Made.image(1, 1) { _, _ in [10, 20, 30] }
    let other = try Made.image(1, 1) { _, _ in [200, 210, 220] }
    #expect(try StructuralSimilarity.mean(one, one) == 1)
    #expect(try StructuralSimilarity.mean(one, other) < 0.6)
    #expect(failure { _ = try StructuralSimilarity.mean(one, Made.waves(2, 1)) }?.code == .geometry)
  }
}
