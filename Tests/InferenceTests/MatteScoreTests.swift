import Inference
import TestSupport
import Testing

@Suite struct MatteScoreTests {
  private func score(_ width: Int, _ height: Int, _ value: (_ x: Int, _ y: Int) -> Float) -> MatteScore {
    MatteScore(of: Self.map(width, height, value), width: width, height: height)
  }

  private static func map(_ width: Int, _ height: Int, _ value: (_ x: Int, _ y: Int) -> Float) -> [Float] {
    (0..<width * height).map { value($0 % width, $0 / width) }
  }

  /// A square from (x, y) with soft sides of `band` pixels at `level` around it.
  private func square(
    at x: Int = 30, _ y: Int = 30, side: Int = 40, band: Int = 0, level: Float = 0.4
  ) -> (Int, Int) -> Float {
    { column, row in
      let distance = max(max(x - column, column - (x + side - 1)), max(y - row, row - (y + side - 1)))
      return distance <= 0 ? 1 : distance <= band ? level : 0
    }
  }

  @Test func aSureSquareIsAsGoodAsItGets() {
    let found = score(100, 100, square())
    #expect(found.score == 1)
    #expect(found.coverage == 0.16)
    #expect(found.softness == 0)
    // Four sides of 40 over the side of the area.
    #expect(found.outline == 4)
    #expect(found.islands == 1)
    #expect(found.border == 0)
    #expect(found.flip == nil)
  }

  @Test func softnessIsTheUnsureShare() {
    // 40 × 40 sure pixels, and a band of 2 around them that is unsure: 44² − 40² = 336 of 1,936.
    let found = score(100, 100, square(band: 2))
    #expect(abs(found.softness - 336.0 / 1_936) < 1e-12)
    #expect(abs(found.score - (1 - 336.0 / 1_936)) < 1e-12)
    #expect(found.coverage == 0.16)
    // Below 0.2 nothing is taken for subject.
    #expect(score(100, 100, square(band: 2, level: 0.2)).softness == 0)
    #expect(score(100, 100, square(band: 2, level: 0.8)).softness > 0)
    var before = 1.1
    for band in 0...20 {
      let value = score(100, 100, square(band: band)).score
      #expect(value < before)
      before = value
    }
  }

  @Test func aTouchedBorderCosts() {
    // A square in the corner: 40 of the upper side and 40 of the left, with one pixel in common, of 396.
    let corner = score(100, 100, square(at: 0, 0))
    #expect(abs(corner.border - 79.0 / 396) < 1e-12)
    #expect(corner.score < score(100, 100, square(at: 0, 30)).score)
    #expect(score(100, 100, square(at: 0, 30)).score < score(100, 100, square()).score)
    // The whole map.
    let all = score(7, 5) { _, _ in 1 }
    #expect(all.border == 1 && all.coverage == 1 && all.islands == 1 && all.outline == 0)
  }

  @Test func severalPartsCostAndSpecksDoNotCount() {
    let one = square(at: 10, 10, side: 20)
    let other = square(at: 60, 60, side: 20)
    let two = score(100, 100) { max(one($0, $1), other($0, $1)) }
    #expect(two.islands == 2)
    #expect(two.score < score(100, 100, one).score)
    // Three pixels of 403 are below a hundredth.
    let speck = score(100, 100) { x, y in max(one(x, y), y == 90 && (50..<53).contains(x) ? 1 : 0) }
    #expect(speck.islands == 1)
    // Corners do not join.
    #expect(score(2, 2) { x, y in x == y ? 1 : 0 }.islands == 2)
  }

  /// Counted by flooding from every pixel.
  @Test func partsAreThoseOfAFlood() {
    var random = SeededGenerator(state: 5)
    for _ in 0..<60 {
      let (width, height) = (Int.random(in: 1...24, using: &random), Int.random(in: 1...24, using: &random))
      let share = Float.random(in: 0.3...0.8, using: &random)
      let values = (0..<width * height).map { _ in Float.random(in: 0...1, using: &random) < share ? Float(1) : 0 }
      var seen = Set<Int>()
      var sizes: [Int] = []
      for start in values.indices where values[start] == 1 && !seen.contains(start) {
        var open = [start]
        seen.insert(start)
        var size = 0
        while let pixel = open.popLast() {
          size += 1
          let (x, y) = (pixel % width, pixel / width)
          for (nextX, nextY) in [(x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1)]
          where (0..<width).contains(nextX) && (0..<height).contains(nextY) && values[nextY * width + nextX] == 1 {
            if seen.insert(nextY * width + nextX).inserted { open.append(nextY * width + nextX) }
          }
        }
        sizes.append(size)
      }
      let area = sizes.reduce(0, +)
      let found = MatteScore(of: values, width: width, height: height)
      #expect(found.islands == sizes.count { $0 * 100 >= area }, "\(width) × \(height)")
      #expect(found.coverage == Double(area) / Double(width * height))
      #expect((0...1).contains(found.score))
    }
  }

  @Test func nothingIsNothing() {
    for level in [Float(0), 0.1, 0.5] {
      let found = score(10, 10) { _, _ in level }
      #expect(found.score == 0 && found.coverage == 0 && found.islands == 0, "\(level)")
    }
    for (width, height) in [(1, 1), (1, 9), (9, 1), (2, 1)] {
      let all = score(width, height) { _, _ in 1 }
      #expect(all.border == 1 && all.coverage == 1 && all.islands == 1)
    }
  }

  @Test func theMirrorImageIsHeldAgainstTheMap() {
    let values = Self.map(100, 60, square(at: 10, 10))
    let mirrored = Self.map(100, 60, square(at: 50, 10))
    let same = MatteScore(of: values, width: 100, height: 60, mirrored: mirrored)
    #expect(same.flip == 1)
    // Half of the square and as much beside it: 800 pixels of 2,400 in common.
    let shifted = Self.map(100, 60, square(at: 30, 10))
    let half = MatteScore(of: values, width: 100, height: 60, mirrored: shifted)
    #expect(abs((half.flip ?? 0) - 800.0 / 2_400) < 1e-12)
    #expect(half.score == same.score)
  }
}
