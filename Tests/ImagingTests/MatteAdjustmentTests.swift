import Glibc
import Imaging
import TestSupport
import Testing

/// Operations on mattes, against what is worked out pixel by pixel.
@Suite struct MatteAdjustmentTests {
  /// A grey matte from rows of digits, 0 for black to 9 for white.
  static func matte(_ rows: String...) throws -> Image {
    let lines: [[UInt8]] = rows.map { row in row.utf8.map { digit in UInt8(Int(digit - 48) * 255 / 9) } }
    return try Image(width: lines[0].count, height: lines.count, bands: 1, bytes: Array(lines.joined()))
  }

  static func rows(_ image: Image) throws -> [String] {
    let bytes = try image.bytes()
    return (0..<image.height).map { y in
      bytes[y * image.width..<(y + 1) * image.width].map { "\((Int($0) * 9 + 127) / 255)" }.joined()
    }
  }

  /// Soft blobs, the same each time; some of them are cut by the border.
  static func blobs(_ width: Int = 131, _ height: Int = 97) throws -> Image {
    let centres: [(x: Double, y: Double, r: Double)] = [
      (30, 30, 18), (90, 40, 25), (60, 90, 20), (125, 5, 12), (8, 70, 3),
    ]
    return try Made.image(width, height, bands: 1) { x, y in
      var most = 0.0
      for centre in centres {
        let distance = hypot(Double(x) - centre.x, Double(y) - centre.y)
        let level: Double = 255 * (0.5 + (centre.r - distance) / 9)
        most = max(most, level)
      }
      return [UInt8(min(255, most))]
    }
  }

  /// The greatest level within a disc about a pixel, looked up one by one.
  static func greatest(_ bytes: [UInt8], _ width: Int, _ height: Int, at place: Int, _ radius: Int) -> UInt8 {
    let (x, y) = (place % width, place / width)
    var most: UInt8 = 0
    for v in max(0, y - radius)...min(height - 1, y + radius) {
      for u in max(0, x - radius)...min(width - 1, x + radius)
      where (u - x) * (u - x) + (v - y) * (v - y) <= radius * radius {
        most = max(most, bytes[v * width + u])
      }
    }
    return most
  }

  private func apply(_ image: Image, _ adjustment: MatteAdjustment) throws -> [UInt8] {
    try adjustment.applied(to: image).bytes()
  }

  // MARK: Threshold

  @Test("a threshold makes edges hard, and a soft one leaves a ramp about its level; black and white stay")
  func threshold() throws {
    let all = try Image(width: 256, height: 1, bands: 1, bytes: (0...255).map { UInt8($0) })
    let hard = try apply(all, MatteAdjustment(threshold: .init(level: 0.5)))
    #expect(hard == (0...255).map { $0 >= 128 ? 255 : 0 })
    let soft = try apply(all, MatteAdjustment(threshold: .init(level: 0.6, softness: 0.4)))
    #expect(soft[102] == 0 && soft[103] <= 1 && soft[204] == 255 && soft[203] >= 254)
    // Half way along the ramp, at 0.6, is half: level 153.
    #expect(abs(Int(soft[153]) - 128) <= 1)
    #expect(zip(soft, soft.dropFirst()).allSatisfy { $0 <= $1 })
    // A ramp that would go beyond black or white ends there.
    for level in [0.05, 0.95] {
      let cut = try apply(all, MatteAdjustment(threshold: .init(level: level, softness: 1)))
      #expect(cut[0] == 0 && cut[255] == 255)
    }
  }

  // MARK: Grow and shrink

  @Test("growing takes the greatest level within a disc, exactly", arguments: [1, 2, 5, 20, 31, 33, 47, 70])
  func grow(radius: Int) throws {
    let blobs = try Self.blobs()
    let bytes = try blobs.bytes()
    let grown = try apply(blobs, MatteAdjustment(grow: .pixels(Double(radius))))
    // Every pixel, or with large discs one of so many that all columns and rows have some.
    for place in stride(from: 0, to: bytes.count, by: radius > 5 ? 23 : 1) {
      try #require(
        grown[place] == Self.greatest(bytes, 131, 97, at: place, radius), "\(place % 131),\(place / 131)")
    }
    // Shrinking is the same to what is left of white.
    let inverted = try Image(width: 131, height: 97, bands: 1, bytes: bytes.map { 255 - $0 })
    #expect(try apply(inverted, MatteAdjustment(shrink: .pixels(Double(radius)))) == grown.map { 255 - $0 })
  }

  @Test("a single pixel grows to a disc")
  func disc() throws {
    let point = try Self.matte("0000000", "0000000", "0000000", "0009000", "0000000", "0000000", "0000000")
    #expect(
      try Self.rows(MatteAdjustment(grow: .pixels(2)).applied(to: point)) == [
        "0000000", "0009000", "0099900", "0999990", "0099900", "0009000", "0000000",
      ])
    // Half a pixel is half the way to the disc of one.
    let half = try apply(point, MatteAdjustment(grow: .pixels(0.5)))
    #expect(half[3 * 7 + 3] == 255 && half[3 * 7 + 4] == 128 && half[2 * 7 + 3] == 128 && half[2 * 7 + 4] == 0)
    // 50 % of 7 pixels are 3.5.
    #expect(try apply(point, MatteAdjustment(grow: .share(0.5))) == apply(point, MatteAdjustment(grow: .pixels(3.5))))
  }

  @Test("threshold and growth commute, opening and closing change nothing the second time")
  func algebra() throws {
    let blobs = try Self.blobs()
    let hard = MatteAdjustment(threshold: .init(level: 0.3))
    for radius in [3.0, 17] {
      let grow = MatteAdjustment(grow: .pixels(radius))
      let shrink = MatteAdjustment(shrink: .pixels(radius))
      let (first, second) = (
        try grow.applied(to: hard.applied(to: blobs)), try hard.applied(to: grow.applied(to: blobs))
      )
      #expect(try first.bytes() == second.bytes())
      let opened = try grow.applied(to: shrink.applied(to: blobs))
      #expect(try grow.applied(to: shrink.applied(to: opened)).bytes() == opened.bytes())
      #expect(try zip(opened.bytes(), blobs.bytes()).allSatisfy { $0 <= $1 })
      let close = MatteAdjustment(grow: .pixels(radius), shrink: .pixels(radius))
      let closed = try close.applied(to: blobs)
      #expect(try close.applied(to: closed).bytes() == closed.bytes())
      #expect(try zip(closed.bytes(), blobs.bytes()).allSatisfy { $0 >= $1 })
    }
  }

  @Test("soft edges stay as soft when they move")
  func softness() throws {
    let ramp = try Made.image(80, 80, bands: 1) { x, _ in
      let level: Int = (40 - x) * 25 + 128
      return [UInt8(max(0, min(255, level)))]
    }
    let bytes = try ramp.bytes()
    let grown = try apply(ramp, MatteAdjustment(grow: .pixels(9)))
    let part = try apply(ramp, MatteAdjustment(grow: .pixels(9.25)))
    for x in 9..<80 {
      #expect(grown[40 * 80 + x] == bytes[40 * 80 + x - 9])
      if x > 9 {
        let mixed = (3 * Double(bytes[x - 9]) + Double(bytes[x - 10])) / 4
        #expect(abs(Double(part[40 * 80 + x]) - mixed) <= 0.5)
      }
    }
  }

  // MARK: Feather

  @Test("feathering is a Gaussian whose border goes on", arguments: [0.5, 2, 6.5, 7, 12, 25])
  func feather(sigma: Double) throws {
    let blobs = try Self.blobs()
    let (bytes, width, height) = (try blobs.bytes(), 131, 97)
    let reach = Int(5 * sigma) + 1
    let bell: [Double] = (-reach...reach).map { (offset: Int) -> Double in
      let square = Double(offset * offset)
      return exp(-square / (2 * sigma * sigma))
    }
    let sum = bell.reduce(0, +)
    func smoothed(_ values: [Double], _ x: Int, _ y: Int, across: Bool) -> Double {
      var total = 0.0
      for offset in -reach...reach {
        let u = across ? min(max(0, x + offset), width - 1) : x
        let v = across ? y : min(max(0, y + offset), height - 1)
        total += bell[offset + reach] / sum * values[v * width + u]
      }
      return total
    }
    let start = bytes.map(Double.init)
    let rows: [Double] = (0..<width * height).map { smoothed(start, $0 % width, $0 / width, across: true) }
    let feathered = try apply(blobs, MatteAdjustment(feather: .pixels(sigma)))
    for place in stride(from: 0, to: width * height, by: 7) {
      let expected = smoothed(rows, place % width, place / width, across: false)
      try #require(abs(Double(feathered[place]) - expected) <= 1.5, "\(place % width),\(place / width)")
    }
  }

  @Test("feathering leaves what is flat, and keeps a subject opaque at the border")
  func featherEnds() throws {
    let half = try Made.image(200, 60, bands: 1) { x, _ in [x < 100 ? 255 : 0] }
    for sigma in [3.0, 20] {
      let bytes = try apply(half, MatteAdjustment(feather: .pixels(sigma)))
      #expect(bytes[0] == 255 && bytes[59 * 200] == 255 && bytes[199] == 0 && bytes[59 * 200 + 199] == 0)
      // The edge between 99 and 100 is half, on either side alike.
      #expect(abs(Int(bytes[30 * 200 + 99]) + Int(bytes[30 * 200 + 100]) - 255) <= 1)
      #expect(bytes.prefix(200) == bytes[30 * 200..<31 * 200])
    }
  }

  // MARK: Holes and islands

  @Test("parts below a share of the area go with their skirts; what touches at corners is one part")
  func islands() throws {
    let parts = try Self.matte(
      "0000000000",
      "0999900240",
      "0999900892",
      "0999900240",
      "0000900000",
      "0000090000",
      "0300009000")
    // The part at the right has 2 pixels at half or more and 7 with its skirt; the left one has 15, held together by
    // corners; the faint pixel stands alone.
    #expect(
      try Self.rows(MatteAdjustment(islands: .below(0.12)).applied(to: parts)) == [
        "0000000000",
        "0999900000",
        "0999900000",
        "0999900000",
        "0000900000",
        "0000090000",
        "0000009000",
      ])
    #expect(try apply(parts, MatteAdjustment(islands: .below(0.01))) == parts.bytes())
    #expect(
      try apply(parts, MatteAdjustment(islands: .largest)) == apply(parts, MatteAdjustment(islands: .below(0.12))))
  }

  @Test("a part in a haze goes down to the haze, and leaves no dark ring in it")
  func haze() throws {
    let picture = try Made.image(60, 40, bands: 1) { x, y in
      let distance = hypot(Double(x) - 45, Double(y) - 20)
      let level: Double = max(30, min(255, 255 - 30 * distance))
      return [x < 25 ? 255 : UInt8(level)]
    }
    let bytes = try apply(picture, MatteAdjustment(islands: .largest))
    for (place, level) in bytes.enumerated() {
      // The next level looked at above 30 is 34.
      try #require(place % 60 < 25 ? level == 255 : (30...33).contains(level), "\(place): \(level)")
    }
  }

  @Test("gaps below a share of the area are filled with their soft edges; those that touch the border are not")
  func holes() throws {
    let gaps = try Self.matte(
      "0000000000000",
      "0999999999990",
      "0997999999990",
      "0950599900090",
      "0997999900090",
      "0999999999990",
      "9999999999909")
    #expect(
      try Self.rows(MatteAdjustment(holes: 0.06).applied(to: gaps)) == [
        "0000000000000",
        "0999999999990",
        "0999999999990",
        "0999999900090",
        "0999999900090",
        "0999999999990",
        "9999999999909",
      ])
    #expect(try Self.rows(MatteAdjustment(holes: 0.1).applied(to: gaps))[3] == "0999999999990")
    // Corners do not join gaps: each of the two is 1 pixel.
    let corner = try Self.matte("99999", "90999", "99099", "99999")
    #expect(try apply(corner, MatteAdjustment(holes: 0.1)) == [UInt8](repeating: 255, count: 20))
    #expect(try apply(corner, MatteAdjustment(holes: 0.05)) == corner.bytes())
  }

  @Test("many small parts are counted right, along rows of any length")
  func specks() throws {
    // Bars of 1 to 19 pixels, one in each row, in rows that are not a multiple of eight long.
    let bars = try Made.image(37, 39, bands: 1) { x, y in
      [y % 2 == 1 && x >= 9 && x < 9 + (y + 1) / 2 ? 200 : 0]
    }
    for least in 1...19 {
      let bytes = try apply(bars, MatteAdjustment(islands: .below(Double(least) / (37 * 39))))
      #expect(bytes.count { $0 > 0 } == (least...19).reduce(0, +))
    }
  }

  // MARK: Region and inversion

  @Test("beyond the region the picture stays, and an edge through pixels is mixed")
  func region() throws {
    let black = try Image(width: 10, height: 8, bands: 1, bytes: [UInt8](repeating: 0, count: 80))
    let half = MatteRegion(x: .share(0.5), y: .pixels(2), width: .pixels(3.5), height: .share(0.25))
    var bytes = try apply(black, MatteAdjustment(region: half))
    for y in 0..<8 {
      for x in 0..<10 {
        let isInside = (5...7).contains(x) && (2...3).contains(y)
        let isEdge = x == 8 && (2...3).contains(y)
        #expect(bytes[y * 10 + x] == (isInside ? 0 : isEdge ? 128 : 255))
      }
    }
    let reversed = MatteRegion(corners: half.corners, isReversed: true)
    bytes = try apply(black, MatteAdjustment(region: reversed))
    #expect(bytes[2 * 10 + 6] == 255 && bytes[0] == 0)
    // The lower left half of a square: along its diagonal half of each pixel.
    let triangle = MatteRegion(corners: [
      .init(.pixels(0), .pixels(0)), .init(.pixels(8), .pixels(8)), .init(.pixels(0), .pixels(8)),
    ])
    bytes = try apply(black, MatteAdjustment(region: triangle))
    for y in 0..<8 {
      for x in 0..<8 where x != y { #expect(bytes[y * 10 + x] == (x < y ? 0 : 255)) }
      #expect((127...128).contains(bytes[y * 10 + y]))
    }
  }

  @Test("inverted or not, the picture stays beyond the region; one without a part in the picture is refused")
  func inverted() throws {
    let levels = try Self.matte("012345", "678912")
    #expect(try apply(levels, MatteAdjustment(invert: true)) == levels.bytes().map { 255 - $0 })
    let left = MatteRegion(x: .pixels(0), y: .pixels(0), width: .pixels(3), height: .share(1))
    let both = try apply(levels, MatteAdjustment(invert: true, region: left))
    let bytes = try levels.bytes()
    for place in bytes.indices { #expect(both[place] == (place % 6 < 3 ? 255 - bytes[place] : 255)) }
    let away = MatteRegion(x: .pixels(100), y: .pixels(0), width: .pixels(3), height: .share(1))
    #expect(failure { _ = try apply(levels, MatteAdjustment(region: away)) }?.code == .geometry)
  }

  // MARK: Odd pictures

  @Test(
    "pictures of a pixel's width, all black and all white come through",
    arguments: [(1, 1), (1, 300), (300, 1), (65, 33)])
  func slivers(width: Int, height: Int) throws {
    let every = MatteAdjustment(
      threshold: .init(level: 0.5, softness: 0.5), holes: 0.5, islands: .largest, grow: .pixels(40.5),
      shrink: .pixels(40.5), feather: .pixels(30))
    for level in [UInt8(0), 255] {
      let flat = [UInt8](repeating: level, count: width * height)
      let image = try Image(width: width, height: height, bands: 1, bytes: flat)
      #expect(try apply(image, every) == flat)
      #expect(try apply(image, MatteAdjustment(feather: .pixels(2))) == flat)
      #expect(try apply(image, MatteAdjustment(islands: .below(1))) == flat)
    }
    let mixed = try Made.image(width, height, bands: 1) { x, y in [(x + y) % 3 == 0 ? 255 : 0] }
    #expect(try apply(mixed, MatteAdjustment(grow: .share(1))).count == width * height)
    #expect(try apply(mixed, MatteAdjustment(grow: .pixels(1000))) == [UInt8](repeating: 255, count: width * height))
  }

  @Test("only mattes are taken, and nothing asked for changes nothing")
  func refused() throws {
    let colour = try Made.image(4, 4) { _, _ in [1, 2, 3] }
    #expect(failure { _ = try MatteAdjustment(invert: true).applied(to: colour) }?.code == .geometry)
    let blobs = try Self.blobs()
    #expect(MatteAdjustment().isEmpty)
    #expect(try MatteAdjustment().applied(to: blobs) === blobs)
  }

  // MARK: Figures

  @Test(
    "times for 50 megapixels",
    .enabled(if: getenv("PIPELINE_TEST_FIGURES") != nil, "PIPELINE_TEST_FIGURES=1 prints them"))
  func figures() throws {
    let small = try Made.image(1024, 768, bands: 1) { x, y in
      let (u, v) = (Double(x) - 512, Double(y) - 384)
      let angle = atan2(v, u)
      let (wave, ripple): (Double, Double) = (40 * sin(7 * angle), 12 * sin(31 * angle))
      let edge: Double = 300 + wave + ripple
      let speck = hypot(Double(x % 128 - 64), Double(y % 128 - 64)) < 6
      let inside: Double = max(0, min(1, (edge - hypot(u, v)) / 3 + 0.5))
      return [UInt8(255 * (speck ? 1 - inside : inside))]
    }
    let large = try small.stretched(width: 8192, height: 6144, kernel: .lanczos3).materialised()
    let pixels = MatteAdjustment(threshold: .init(level: 0.5, softness: 0.5))
    let adjustments: [(String, MatteAdjustment)] = [
      ("in and out", MatteAdjustment(grow: .pixels(0))), ("threshold", pixels),
      ("holes", MatteAdjustment(holes: 0.001)), ("islands", MatteAdjustment(islands: .below(0.001))),
      ("largest", MatteAdjustment(islands: .largest)), ("grow 2", MatteAdjustment(grow: .pixels(2))),
      ("grow 10.5", MatteAdjustment(grow: .pixels(10.5))), ("grow 200", MatteAdjustment(grow: .pixels(200))),
      ("shrink 5", MatteAdjustment(shrink: .pixels(5))), ("feather 2", MatteAdjustment(feather: .pixels(2))),
      ("feather 8", MatteAdjustment(feather: .pixels(8))), ("feather 100", MatteAdjustment(feather: .pixels(100))),
      ("invert", MatteAdjustment(invert: true)),
      (
        "region",
        MatteAdjustment(region: MatteRegion(x: .share(0.1), y: .share(0.1), width: .share(0.8), height: .share(0.5)))
      ),
    ]
    for (name, adjustment) in adjustments {
      var start = timespec()
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start)
      _ = try adjustment.applied(to: large)
      var end = timespec()
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end)
      let milliseconds = (end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1_000_000
      print("\(name): \(milliseconds) ms of one core for 50 megapixels")
    }
  }
}
