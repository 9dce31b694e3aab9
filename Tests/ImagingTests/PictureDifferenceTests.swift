import Imaging
import TestSupport
import Testing

@Suite struct PictureDifferenceTests {
  /// Of the supplementary test data of Sharma, Wu and Dalal, 2005: those where hues wrap, means turn, and chroma is none.
  @Test(
    arguments: [
      (50, 2.6772, -79.7751, 50, 0, -82.7485, 2.0425), (50, 3.1571, -77.2803, 50, 0, -82.7485, 2.8615),
      (50, 2.8361, -74.0200, 50, 0, -82.7485, 3.4412), (50, -1.3802, -84.2814, 50, 0, -82.7485, 1.0000),
      (50, -1.1848, -84.8006, 50, 0, -82.7485, 1.0000), (50, -0.9009, -85.5211, 50, 0, -82.7485, 1.0000),
      (50, 0, 0, 50, -1, 2, 2.3669), (50, -1, 2, 50, 0, 0, 2.3669),
      (50, 2.4900, -0.0010, 50, -2.4900, 0.0009, 7.1792), (50, 2.4900, -0.0010, 50, -2.4900, 0.0011, 7.2195),
      (50, 2.5, 0, 73, 25, -18, 27.1492), (60.2574, -34.0099, 36.2677, 60.4626, -34.1751, 39.4387, 1.2644),
      (2.0776, 0.0795, -1.1350, 0.9033, -0.0636, -0.5514, 0.9082),
    ] as [(Double, Double, Double, Double, Double, Double, Double)])
  func colourDifferencesAreTheStandards(
    _ pair: (l1: Double, a1: Double, b1: Double, l2: Double, a2: Double, b2: Double, expected: Double)
  ) {
    let one = LabColour(l: pair.l1, a: pair.a1, b: pair.b1)
    let two = LabColour(l: pair.l2, a: pair.a2, b: pair.b2)
    #expect(abs(one.difference(from: two) - pair.expected) < 0.0001)
    #expect(abs(two.difference(from: one) - pair.expected) < 0.0001)
  }

  private func flat(_ width: Int, _ height: Int, _ pixel: [UInt8]) -> [UInt8] {
    (0..<width * height).flatMap { _ in pixel }
  }

  @Test func theSameIsTheSame() throws {
    for bands in 1...4 {
      let bytes = (0..<37 * 23 * bands).map { UInt8(truncatingIfNeeded: $0 &* 7) }
      let image = try Image(width: 37, height: 23, bands: bands, bytes: bytes)
      let difference = try PictureDifference.between(image, image)
      #expect(difference.amount < 1e-9 && difference.colour == 0, "\(bands) bands")
    }
  }

  /// Wherever a block of 8×8 lies, a window holds a quarter of it at least.
  @Test(arguments: [(0, 0), (5, 3), (1, 50), (92, 56), (40, 31)])
  func aBlockIsFoundWhereItIs(_ place: (x: Int, y: Int)) throws {
    let (width, height) = (100, 64)
    let plain = flat(width, height, [120, 130, 140])
    var changed = plain
    for y in place.y..<place.y + 8 {
      for x in place.x..<place.x + 8 {
        for band in 0..<3 { changed[(y * width + x) * 3 + band] = band == 0 ? 220 : 40 }
      }
    }
    let difference = try PictureDifference.between(
      Image(width: width, height: height, bands: 3, bytes: plain),
      Image(width: width, height: height, bands: 3, bytes: changed))
    #expect(difference.worstColour > 15)
    #expect(abs(difference.worstX - place.x - 4) <= 8 && abs(difference.worstY - place.y - 4) <= 8)
    #expect(difference.colour < difference.worstColour / 4)
  }

  /// A cut-out of grey on grey shows in opacity only.
  @Test func opacityCounts() throws {
    let opaque = flat(32, 32, [128, 128, 128, 255])
    var cut = opaque
    for y in 8..<24 { for x in 8..<24 { cut[(y * 32 + x) * 4 + 3] = 0 } }
    let difference = try PictureDifference.between(
      Image(width: 32, height: 32, bands: 4, bytes: opaque), Image(width: 32, height: 32, bands: 4, bytes: cut))
    #expect(difference.worstColour < 0.1)
    #expect(abs(difference.worstAlpha - 100) < 0.01)
    #expect(difference.amount > 99)
  }

  @Test func colourUnderNothingIsNoDifference() throws {
    let one = flat(16, 16, [255, 0, 0, 0])
    let two = flat(16, 16, [0, 255, 0, 0])
    let difference = try PictureDifference.between(
      Image(width: 16, height: 16, bands: 4, bytes: one), Image(width: 16, height: 16, bands: 4, bytes: two))
    #expect(difference.amount < 0.01)
  }

  @Test func smallPicturesAreCompared() throws {
    let black = try Image(width: 1, height: 1, bands: 3, bytes: [0, 0, 0])
    let white = try Image(width: 1, height: 1, bands: 3, bytes: [255, 255, 255])
    let difference = try PictureDifference.between(black, white)
    #expect(abs(difference.worstColour - 100) < 0.01)
    #expect(throws: ImagingError.self) {
      try PictureDifference.between(black, try Image(width: 2, height: 1, bands: 1, bytes: [0, 0]))
    }
  }

  @Test func theMapShowsThePlace() throws {
    let plain = flat(64, 64, [128, 128, 128])
    var changed = plain
    for y in 32..<40 { for x in 16..<24 { changed[(y * 64 + x) * 3] = 255 } }
    let map = try PictureDifference.compare(
      Image(width: 64, height: 64, bands: 3, bytes: plain), Image(width: 64, height: 64, bands: 3, bytes: changed)
    ).map
    #expect(map.width == 16 && map.height == 16)
    let bytes = try map.bytes()
    for y in 0..<16 {
      for x in 0..<16 {
        let at = (y * 16 + x) * 3
        let isMarked = bytes[at] > bytes[at + 1] + 100
        #expect(isMarked == ((8..<10).contains(y) && (4..<6).contains(x)), "\(x),\(y)")
      }
    }
  }
}
