import CVips

/// Squares of two colours by turns. The one whose upper left corner lies at `x`, `y` has the first colour.
public struct Checker: Sendable, Hashable {
  public var first: RGBA
  public var second: RGBA
  /// The side of a square, in pixels, 1 or more.
  public var size: Int
  public var x: Int
  public var y: Int

  public init(_ first: RGBA, _ second: RGBA, size: Int, x: Int = 0, y: Int = 0) {
    (self.first, self.second, self.size, self.x, self.y) = (first, second, size, x, y)
  }
}

extension Image {
  /// Draws a checker, 8-bit sRGB: 3 bands where both colours are opaque, else 4 with straight alpha.
  ///
  /// - Throws: `geometry` for sides that make no picture or a size below 1, `memory`.
  public static func checker(_ checker: Checker, width: Int, height: Int) throws(ImagingError) -> Image {
    try checkSides(width, height, "drawing a checker")
    guard checker.size >= 1 else { throw ImagingError(.geometry, "a checker has squares of 1 pixel or more") }
    let bands = checker.first.isOpaque && checker.second.isOpaque ? 3 : 4
    /// Whether the square at a place along one axis is an odd one.
    func isOdd(_ place: Int, _ start: Int) -> Bool { (place - start).quotientFloor(checker.size) & 1 != 0 }
    func row(startingOdd: Bool) -> [UInt8] {
      var row: [UInt8] = []
      row.reserveCapacity(width * bands)
      for x in 0..<width {
        let colour = isOdd(x, checker.x) != startingOdd ? checker.second : checker.first
        row += [colour.r, colour.g, colour.b]
        if bands == 4 { row.append(colour.a) }
      }
      return row
    }
    let rows = [row(startingOdd: false), row(startingOdd: true)]
    var pixels: [UInt8] = []
    pixels.reserveCapacity(width * height * bands)
    for y in 0..<height { pixels += rows[isOdd(y, checker.y) ? 1 : 0] }
    return try Image(width: width, height: height, bands: bands, bytes: pixels)
  }

  /// This picture side by side until `width` × `height` are filled; the upper left pixel of one copy lies at `x`, `y`.
  ///
  /// - Throws: `geometry` for sides that make no picture.
  public func repeated(width: Int, height: Int, x: Int = 0, y: Int = 0) throws(ImagingError) -> Image {
    try Image.checkSides(width, height, "repeating a picture of \(self.width)×\(self.height) pixels")
    let tile = try materialised()
    // How far into a copy the upper left corner of the result lies.
    let (left, top) = ((-x).remainderFloor(tile.width), (-y).remainderFloor(tile.height))
    let whole = try vips("repeating a picture") {
      cvips_replicate(
        tile.ref.pointer, $0, Int32((left + width - 1) / tile.width + 1), Int32((top + height - 1) / tile.height + 1))
    }
    return try tile.derived(whole).cropped(x: left, y: top, width: width, height: height)
  }
}

extension Int {
  /// Divided and rounded down, below 0 too.
  func quotientFloor(_ divisor: Int) -> Int {
    let quotient = self / divisor
    return self % divisor < 0 ? quotient - 1 : quotient
  }

  /// What is left by `quotientFloor`, never below 0.
  func remainderFloor(_ divisor: Int) -> Int { self - quotientFloor(divisor) * divisor }
}
