import Testing

@testable import Imaging

@Suite struct MatteRefinementTests {
  /// A disc of one colour on another, with a soft rim, and what a coarse model would say about it.
  private struct Disc {
    let side: Int
    let alpha: [Float]
    let picture: Image
    let map: MatteMap

    /// - Parameter rim: the width of the soft rim in pixels.
    init(side: Int = 640, cells: Int = 80, rim: Float, noise: Int = 6) throws {
      self.side = side
      let radius = Float(side) * 0.3
      let middle = Float(side) / 2
      func alpha(_ x: Float, _ y: Float) -> Float {
        let distance = ((x - middle) * (x - middle) + (y - middle) * (y - middle)).squareRoot() - radius
        return min(max(0.5 - distance / rim, 0), 1)
      }
      var exact = [Float](repeating: 0, count: side * side)
      var bytes = [UInt8](repeating: 0, count: side * side * 3)
      var state: UInt64 = 88_172_645_463_325_252
      for y in 0..<side {
        for x in 0..<side {
          let share = alpha(Float(x) + 0.5, Float(y) + 0.5)
          exact[y * side + x] = share
          for band in 0..<3 {
            state ^= state << 13
            state ^= state >> 7
            state ^= state << 17
            let subject: Float = [200, 90, 40][band]
            let background: Float = [40, 110, 180][band]
            let grain = Float(Int(state % UInt64(2 * noise + 1)) - noise)
            bytes[(y * side + x) * 3 + band] = UInt8(
              min(max(subject * share + background * (1 - share) + grain, 0), 255))
          }
        }
      }
      self.alpha = exact
      picture = try Image(width: side, height: side, bands: 3, bytes: bytes)
      // A model sees cells, and blurs over several of them.
      let cell = Float(side) / Float(cells)
      var values = [Float](repeating: 0, count: cells * cells)
      for y in 0..<cells {
        for x in 0..<cells {
          let (dx, dy) = ((Float(x) + 0.5) * cell - middle, (Float(y) + 0.5) * cell - middle)
          let distance = (dx * dx + dy * dy).squareRoot() - radius
          values[y * cells + x] = min(max(0.5 - distance / (6 * cell), 0), 1)
        }
      }
      map = MatteMap(width: cells, height: cells, values: values)
    }

    func error(of matte: Image) throws -> Double {
      let bytes = try matte.bytes()
      var sum = 0.0
      for (index, share) in alpha.enumerated() { sum += Double(abs(Float(bytes[index]) / 255 - share)) }
      return sum / Double(alpha.count)
    }
  }

  @Test("edges are found at full size, hard ones and soft ones", arguments: [1, 8, 24] as [Float])
  func edges(rim: Float) throws {
    let disc = try Disc(rim: rim)
    let enlarged = try MatteRefinement(levels: nil, followsEdges: false).matte(disc.map, of: disc.picture)
    let refined = try MatteRefinement(levels: nil, followsEdges: true).matte(disc.map, of: disc.picture)
    #expect(refined.width == 640 && refined.height == 640 && refined.bands == 1)
    let (before, after) = (try disc.error(of: enlarged), try disc.error(of: refined))
    #expect(after < before / 3, "\(before) became \(after)")
    #expect(after < 0.004, "\(after)")
  }

  @Test("where the picture shows no edge, the matte stays what it was")
  func noEdge() throws {
    let disc = try Disc(rim: 1)
    let grey = try Image(
      width: 640, height: 640, bands: 3, bytes: [UInt8](repeating: 128, count: 640 * 640 * 3))
    let refined = try MatteRefinement(levels: nil, followsEdges: true).matte(disc.map, of: grey).bytes()
    let enlarged = try MatteRefinement(levels: nil, followsEdges: false).matte(disc.map, of: grey).bytes()
    #expect(zip(refined, enlarged).allSatisfy { abs(Int($0) - Int($1)) <= 1 })
  }

  @Test("doubt is decided by colour: grey parts of the subject's colour become subject, of the background's background")
  func levels() throws {
    // Left third subject, right third background, and between them what the model is unsure of.
    let (width, height) = (90, 60)
    var map = MatteMap(width: width, height: height, values: [Float](repeating: 0, count: width * height))
    var bytes = [UInt8](repeating: 0, count: width * height * 3)
    for y in 0..<height {
      for x in 0..<width {
        map.values[y * width + x] = x < 30 ? 0.99 : x < 60 ? 0.5 : 0.01
        let isSubject = x < 30 || (x < 60 && y < 30)
        for band in 0..<3 {
          bytes[(y * width + x) * 3 + band] = isSubject ? [220, 40, 40][band] : [30, 60, 200][band]
        }
      }
    }
    let picture = try Image(width: width, height: height, bands: 3, bytes: bytes)
    let matte = try MatteRefinement(levels: .saliency(followingEdges: false), followsEdges: false).matte(
      map, of: picture)
    let result = try matte.bytes()
    #expect(result[10 * width + 45] == 255 && result[50 * width + 45] == 0)
    #expect(result[10 * width + 5] == 255 && result[50 * width + 85] == 0)
  }

  @Test(
    "odd sides, one pixel, and maps finer than the picture",
    arguments: [(1, 1), (1, 700), (700, 1), (3, 5), (33, 1000)])
  func sizes(width: Int, height: Int) throws {
    let picture = try Image(
      width: width, height: height, bands: 3, bytes: (0..<width * height * 3).map { UInt8($0 % 251) })
    for side in [1, 2, 64] {
      let map = MatteMap(
        width: side, height: side, values: (0..<side * side).map { Float($0) / Float(max(side * side - 1, 1)) })
      for refinement in [
        MatteRefinement(levels: nil, followsEdges: false), MatteRefinement(levels: Levels(), followsEdges: true),
      ] {
        let matte = try refinement.matte(map, of: picture)
        #expect(matte.width == width && matte.height == height)
      }
    }
  }
  typealias Levels = MatteRefinement.Levels

  @Test("a whole map of one value gives that value, and alpha that comes along is not looked at")
  func flat() throws {
    let disc = try Disc(side: 320, cells: 40, rim: 4)
    for (value, level) in [(Float(0), UInt8(0)), (1, 255)] {
      let map = MatteMap(width: 40, height: 40, values: [Float](repeating: value, count: 1600))
      let matte = try MatteRefinement(levels: Levels(), followsEdges: true).matte(map, of: disc.picture)
      #expect(try matte.bytes().allSatisfy { $0 == level })
    }
    let refinement = MatteRefinement(levels: Levels(), followsEdges: true)
    let plain = try refinement.matte(disc.map, of: disc.picture).bytes()
    let clear = try disc.picture.withAlpha(
      Image(width: 320, height: 320, bands: 1, bytes: [UInt8](repeating: 9, count: 320 * 320)))
    #expect(try refinement.matte(disc.map, of: clear).bytes() == plain)
  }

  // MARK: Tiles

  @Test("a second look sharpens the map, and one that tells another story is not used")
  func tiles() throws {
    let disc = try Disc(side: 1200, cells: 60, rim: 2)
    func error(_ map: MatteMap) -> Float {
      let plane = FloatPlane(map).resized(width: 1200, height: 1200)
      return zip(plane.values, disc.alpha).reduce(0) { $0 + abs($1.0 - $1.1) } / 1_440_000
    }
    func exact(_ part: Rectangle) -> MatteMap {
      var values: [Float] = []
      for y in part.y..<part.y + part.height {
        values += disc.alpha[y * 1200 + part.x..<y * 1200 + part.x + part.width]
      }
      let plane = FloatPlane(width: part.width, height: part.height, values: values).resized(width: 60, height: 60)
      return MatteMap(width: 60, height: 60, values: plane.values)
    }
    var asked = 0
    let good = DetailTiles.refined(disc.map, width: 1200, height: 1200) { part in
      asked += 1
      return exact(part)
    }
    #expect(good.tiles > 0 && good.tiles <= DetailTiles.mostTiles && asked <= DetailTiles.mostTiles)
    #expect(good.map.width == 120 && good.map.height == 120)
    #expect(error(good.map) < error(disc.map) / 2, "\(error(disc.map)) became \(error(good.map))")

    let other = DetailTiles.refined(disc.map, width: 1200, height: 1200) { part in
      var map = exact(part)
      for index in map.values.indices { map.values[index] = 1 - map.values[index] }
      return map
    }
    #expect(other.tiles == 0 && other.map == disc.map)
    let blind = DetailTiles.refined(disc.map, width: 1200, height: 1200) { _ in nil }
    #expect(blind.tiles == 0 && blind.map == disc.map)
    let small = DetailTiles.refined(disc.map, width: 100, height: 90) { _ in
      Issue.record("a small picture has no detail to look for")
      return nil
    }
    #expect(small.map == disc.map)
  }
}
