import Imaging
import Testing

@Suite struct PatternTests {
  @Test(
    "a checker begins with its first colour where it is put, and goes on to all sides", arguments: [0, 3, -4, 1000])
  func checker(start: Int) throws {
    let checker = Checker(RGBA(1, 2, 3), RGBA(200, 201, 202), size: 3, x: start, y: start + 1)
    let image = try Image.checker(checker, width: 20, height: 11)
    #expect(image.bands == 3)
    let pixels = try image.bytes()
    for y in 0..<11 {
      for x in 0..<20 {
        // 6 thousand is a whole number of both squares, and makes every place one above 0.
        let (column, row) = ((x - start + 6000) / 3, (y - start - 1 + 6000) / 3)
        let expected: [UInt8] = (column + row) % 2 == 0 ? [1, 2, 3] : [200, 201, 202]
        #expect(Array(pixels[(y * 20 + x) * 3..<(y * 20 + x) * 3 + 3]) == expected, "\(x),\(y)")
      }
    }
  }

  @Test("a transparent colour of a checker gives it alpha")
  func transparentChecker() throws {
    let image = try Image.checker(Checker(.white, .transparent, size: 1), width: 2, height: 1)
    #expect(try image.bytes() == [255, 255, 255, 255, 0, 0, 0, 0])
    #expect(failure { _ = try Image.checker(Checker(.white, .black, size: 0), width: 2, height: 1) }?.code == .geometry)
  }

  @Test("a picture is repeated from where it is put", arguments: [(0, 0), (2, 1), (-1, -3), (-500, 700)])
  func repeated(x: Int, y: Int) throws {
    let tile = try Made.image(5, 4) { x, y in [UInt8(x), UInt8(y), 9] }
    let image = try tile.repeated(width: 13, height: 9, x: x, y: y)
    for row in 0..<9 {
      for column in 0..<13 {
        let expected = [UInt8((column - x + 5000) % 5), UInt8((row - y + 4000) % 4), 9]
        #expect(try image.pixel(column, row) == expected, "\(column),\(row)")
      }
    }
  }

  @Test("a tile larger than the result shows its part")
  func largeTile() throws {
    let tile = try Made.image(50, 40) { x, y in [UInt8(x), UInt8(y), 9] }
    let image = try tile.repeated(width: 2, height: 1, x: 1)
    #expect(try image.bytes() == [49, 0, 9, 0, 0, 9])
  }
}

@Suite struct ToneTests {
  /// Luma of (200, 100, 40): 0.2126 · 200 + 0.7152 · 100 + 0.0722 · 40 = 116.93.
  @Test(
    "towards grey, then darker, rounded once",
    arguments: [
      (0, 0, [200, 100, 40]), (1, 0, [117, 117, 117]), (0, 0.5, [100, 50, 20]), (1, 0.5, [58, 58, 58]),
      // 200 + (116.93 − 200) · 0.5 = 158.46, 108.46, 78.46.
      (0.5, 0, [158, 108, 78]), (0, 1, [0, 0, 0]),
    ] as [(Double, Double, [UInt8])])
  func toned(desaturation: Double, dimming: Double, expected: [UInt8]) throws {
    let image = try Made.image(2, 1, bands: 4) { x, _ in [200, 100, 40, UInt8(x * 99)] }
    let result = try image.toned(desaturation: desaturation, dimming: dimming)
    #expect(try result.bytes() == expected + [0] + expected + [99])
    #expect(try image.withoutAlpha().toned(desaturation: desaturation, dimming: dimming).bytes() == expected + expected)
  }

  @Test("16 bits stay, and grey stays grey to the bit")
  func deep() throws {
    let image = try Image(width: 1, height: 1, bands: 3, samples: [60_000, 1_000, 0])
    let dark = try image.toned(desaturation: 0, dimming: 0.25)
    #expect(dark.depth == 16)
    let samples = try dark.withPixels { Array($0.bindMemory(to: UInt16.self)) }
    #expect(samples == [45_000, 750, 0])
    let grey = try Made.image(256, 1) { x, _ in [UInt8(x), UInt8(x), UInt8(x)] }
    #expect(try grey.toned(desaturation: 1, dimming: 0).bytes() == grey.bytes())
    #expect(failure { _ = try image.toned(desaturation: 1.1, dimming: 0) }?.code == .geometry)
  }
}

@Suite struct PlacementTests {
  private let picture = try? Made.image(4, 3) { x, y in [UInt8(10 + x), UInt8(20 + y), 5] }

  @Test(
    "what sticks out of the canvas is cropped, what is left is filled",
    arguments: [(0, 0), (2, 1), (-3, -2), (5, 4), (-1, 3)])
  func placed(x: Int, y: Int) throws {
    let picture = try #require(picture)
    let placement = Placement(of: Rectangle(x: x, y: y, width: 4, height: 3), onCanvas: 6, 5)
    let result = try picture.fadedAlpha(1).placed(placement, .color(.transparent))
    #expect((result.width, result.height) == (6, 5))
    for row in 0..<5 {
      for column in 0..<6 {
        let isInside = (x..<x + 4).contains(column) && (y..<y + 3).contains(row)
        let expected: [UInt8] = isInside ? [UInt8(10 + column - x), UInt8(20 + row - y), 5, 255] : [0, 0, 0, 0]
        #expect(try result.pixel(column, row) == expected, "\(column),\(row)")
      }
    }
  }

  @Test("beside the canvas nothing can be placed", arguments: [(6, 0), (0, 5), (-4, 0), (0, -3)])
  func beside(x: Int, y: Int) throws {
    let picture = try #require(picture)
    let placement = Placement(of: Rectangle(x: x, y: y, width: 4, height: 3), onCanvas: 6, 5)
    #expect(failure { _ = try picture.placed(placement, .edge) }?.code == .geometry)
  }

  @Test("the whole canvas as it is is no change")
  func identity() throws {
    let placement = Placement(of: Rectangle(x: 0, y: 0, width: 4, height: 3), onCanvas: 4, 3)
    #expect(placement.isIdentity(for: 4, 3))
    #expect(!placement.isIdentity(for: 8, 6))
    let picture = try #require(picture)
    #expect(try picture.placed(placement, .edge).bytes() == picture.bytes())
  }
}
