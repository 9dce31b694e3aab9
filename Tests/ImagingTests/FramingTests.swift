import Glibc
import Imaging
import Testing

/// Finding the subject, working out its frame, and standing it there.
@Suite struct FramingTests {
  private func matte(_ width: Int, _ height: Int, _ value: (Int, Int) -> UInt8) throws -> Image {
    try Made.image(width, height, bands: 1) { x, y in [value(x, y)] }
  }

  // MARK: The subject

  @Test("the box holds what is more opaque than the threshold; haze and specks do not count")
  func box() throws {
    // 20 × 10 pixels of subject, haze all over, a speck of 2 pixels, and a pixel that touches by its corner.
    let image = try matte(60, 40) { x, y in
      if (10..<30).contains(x), (5..<15).contains(y) { return 200 }
      if (x, y) == (30, 15) { return 65 }
      return y == 35 && (50..<52).contains(x) ? 255 : 64
    }
    let subject = try #require(try image.subject(threshold: 64, speck: 0.02))
    #expect(subject.box == Rectangle(x: 10, y: 5, width: 21, height: 11))
    #expect(abs(subject.mass - (200 * 200 + 65) / 255.0) < 1e-9)
    // 201 pixels: 2 are just under a hundredth of them.
    let all = try #require(try image.subject(threshold: 64, speck: 0.0099))
    #expect(all.box == Rectangle(x: 10, y: 5, width: 42, height: 31))
    #expect(try image.subject(threshold: 200, speck: 0.02)?.box == Rectangle(x: 50, y: 35, width: 2, height: 1))
    #expect(try matte(9, 9) { _, _ in 64 }.subject(threshold: 64, speck: 0) == nil)
  }

  @Test("two parts of like size both count, and what winds around is one part")
  func parts() throws {
    let pair = try matte(100, 20) { x, _ in x < 10 || x >= 92 ? 255 : 0 }
    #expect(try pair.subject(threshold: 0, speck: 0.5)?.box.width == 100)
    // A horseshoe whose ends meet only below, in the last row.
    let shoe = try matte(30, 30) { x, y in x == 2 || x == 27 || (y == 29 && (2...27).contains(x)) ? 255 : 0 }
    #expect(try shoe.subject(threshold: 0, speck: 1)?.box == Rectangle(x: 2, y: 0, width: 26, height: 30))
  }

  @Test("in a large picture the box is right to the pixel, and the centre of mass to half a cell")
  func largePicture() throws {
    // Cells of 3 pixels.
    let image = try matte(3000, 40) { x, y in
      (101...2222).contains(x) && (7...31).contains(y) ? 255 : (x, y) == (2990, 39) ? 255 : 0
    }
    let subject = try #require(try image.subject(threshold: 10, speck: 0.01))
    #expect(subject.box == Rectangle(x: 101, y: 7, width: 2122, height: 25))
    #expect(subject.mass == 2122 * 25)
    #expect(abs(subject.centreX - (101 + 1061)) < 0.1 && abs(subject.centreY - 19.5) < 0.1)
  }

  @Test("in a large picture scattered pixels do not hang together, and the rim of a part is not lost")
  func noise() throws {
    // Cells of 4 pixels; a pixel in every second one, a disc whose topmost row is short, and no more than noise alone.
    func isNoise(_ x: Int, _ y: Int) -> Bool { x % 4 == 1 && y % 4 == 2 && (x / 4 + y / 4) % 2 == 0 }
    let disc = try matte(4000, 300) { x, y in
      let (u, v) = (x - 2001, y - 150)
      return u * u + v * v <= 100 * 100 ? 255 : isNoise(x, y) ? 100 : 0
    }
    let box = try #require(try disc.subject(threshold: 64, speck: 0.02)?.box)
    #expect((1901 - 8...1901).contains(box.x) && (201...201 + 16).contains(box.width), "\(box)")
    #expect((50 - 8...50).contains(box.y) && (201...201 + 16).contains(box.height), "\(box)")
    let clean = try matte(4000, 300) { x, y in
      let (u, v) = (x - 2001, y - 150)
      return u * u + v * v <= 100 * 100 ? 255 : 0
    }
    #expect(
      try clean.subject(threshold: 64, speck: 0.02)?.box == Rectangle(x: 1901, y: 50, width: 201, height: 201))
    let dot = try matte(4000, 30) { x, y in (x, y) == (3001, 9) ? 255 : 0 }
    #expect(try dot.subject(threshold: 64, speck: 0.02)?.box == Rectangle(x: 3001, y: 9, width: 1, height: 1))
  }

  @Test("the centre of mass weighs by opacity, in 16 bits too")
  func centre() throws {
    let samples = (0..<40).flatMap { x -> [UInt16] in [0, 0, 0, x < 10 ? 65_535 : x < 30 ? 32_768 : 0] }
    let image = try Image(width: 40, height: 1, bands: 4, samples: samples)
    let subject = try #require(try image.subject(threshold: 64, speck: 0))
    #expect(subject.box == Rectangle(x: 0, y: 0, width: 30, height: 1))
    // 32,768 is 128 of 255: (10 · 255 · 5 + 20 · 128 · 20) / (10 · 255 + 20 · 128).
    #expect(abs(subject.centreX - 63_950.0 / 5_110) < 1e-9 && subject.centreY == 0.5)
  }

  // MARK: The plan

  private func subject(_ x: Int, _ y: Int, _ width: Int, _ height: Int) -> Subject {
    Subject(
      box: Rectangle(x: x, y: y, width: width, height: height), mass: 1, centreX: Double(x) + Double(width) / 4,
      centreY: Double(y) + Double(height) / 4)
  }

  struct Case: Sendable {
    var request: FrameRequest
    var subject: Rectangle
    init(_ request: FrameRequest, _ x: Int, _ y: Int, _ width: Int, _ height: Int) {
      (self.request, subject) = (request, Rectangle(x: x, y: y, width: width, height: height))
    }
  }

  // A subject of 400 × 200 pixels, with its centre of mass a quarter of the way.
  static let cases: [Case] = [
    Case(.init(canvas: .sides(width: 100, height: 100)), 7, 28, 85, 43),
    Case(.init(canvas: .sides(width: 200, height: 50), fill: 0.8), 60, 5, 80, 40),
    Case(.init(canvas: .sides(width: 100, height: 100), margin: .pixels(20), down: .end), 20, 50, 60, 30),
    Case(.init(canvas: .sides(width: 100, height: 100), fill: 0.4, across: .start, down: .start), 0, 0, 40, 20),
    Case(.init(canvas: .sides(width: 100, height: 100), fill: 0.4, across: .end, down: .end), 60, 80, 40, 20),
    // The middle of 100 less a quarter of 40, and of 20.
    Case(.init(canvas: .sides(width: 100, height: 100), fill: 0.4, across: .optical, down: .optical), 40, 45, 40, 20),
    // As far as the margin lets it: 50 − 21.25 would be 29.
    Case(.init(canvas: .sides(width: 100, height: 100), margin: .pixels(5), across: .optical), 10, 28, 85, 43),
    Case(.init(canvas: .sides(width: 1000, height: 1000)), 300, 400, 400, 200),
    Case(.init(canvas: .sides(width: 1000, height: 1000), enlarge: true), 75, 287, 850, 425),
    Case(.init(canvas: .sides(width: 1, height: 1)), 0, 0, 1, 1),
  ]

  @Test("the subject stands where it should", arguments: cases)
  func places(_ entry: Case) throws {
    let plan = try entry.request.plan(for: subject(50, 60, 400, 200), in: 600, 500)
    #expect(plan.subject == entry.subject)
    #expect(plan.isTooSmall == (entry.request.canvas == .sides(width: 1000, height: 1000) && !entry.request.enlarge))
  }

  @Test("a canvas that follows its subject leaves what has to be left, and no more")
  func ratios() throws {
    func sides(_ ratio: String, _ fill: Double, _ margin: Length = .pixels(0)) throws -> [Int] {
      let request = FrameRequest(canvas: .ratio(try #require(AspectRatio(ratio))), fill: fill, margin: margin)
      let plan = try request.plan(for: subject(50, 60, 85, 34), in: 600, 500)
      #expect((plan.subject.width, plan.subject.height) == (85, 34))
      return [plan.width, plan.height, plan.subject.x, plan.subject.y]
    }
    #expect(try sides("1:1", 0.85) == [100, 100, 7, 33])
    #expect(try sides("1:1", 1) == [85, 85, 0, 25])
    #expect(try sides("1:1", 0.85, .pixels(20)) == [125, 125, 20, 45])
    // 10 % of 100 on both sides would leave 80 for 85: 85 / 0.8 is 106.25.
    let share = try #require(Length(percentage: "10%"))
    #expect(try sides("1:1", 0.85, share) == [107, 107, 11, 36])
    // 34 / 0.5 is 68, and 85 / 0.5 is 170: by the width; 4:1 by the height.
    #expect(try sides("2:1", 0.5) == [170, 85, 42, 25])
    #expect(try sides("4:1", 0.5) == [272, 68, 93, 17])
    #expect(
      failure {
        _ = try FrameRequest(canvas: .ratio(#require(AspectRatio("1:1000"))), fill: 0.01).plan(
          for: subject(0, 0, 60_000, 10), in: 60_000, 10)
      }?.code == .geometry)
    #expect(
      failure {
        _ = try FrameRequest(canvas: .sides(width: 10, height: 30), margin: .pixels(5)).plan(
          for: subject(0, 0, 6, 6), in: 6, 6)
      }?.code == .geometry)
  }

  @Test("whatever the sides, margins are kept and the share is met to the pixel")
  func property() throws {
    var state: UInt64 = 7
    func next(_ range: ClosedRange<Int>) -> Int {
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return range.lowerBound + Int(state >> 33) % range.count
    }
    let places: [FrameAlignment] = [.start, .centre, .end, .optical]
    for _ in 0..<3000 {
      let (w, h) = (next(1...500), next(1...500))
      let (boxWidth, boxHeight) = (next(1...w), next(1...h))
      let subject = subject(next(0...w - boxWidth), next(0...h - boxHeight), boxWidth, boxHeight)
      let isRatio = next(0...1) == 0
      let margin = next(0...1) == 0 ? Length.pixels(next(0...40)) : try #require(Length(percentage: "\(next(0...40))%"))
      let request = FrameRequest(
        canvas: isRatio
          ? .ratio(try #require(AspectRatio("\(next(1...20)):\(next(1...20))")))
          : .sides(width: next(90...900), height: next(90...900)),
        fill: Double(next(10...100)) / 100, margin: margin, across: places[next(0...3)], down: places[next(0...3)],
        enlarge: next(0...1) == 0)
      let plan = try request.plan(for: subject, in: w, h)
      let edge = margin.pixels(of: min(plan.width, plan.height))
      let box = plan.subject
      func note() -> Comment { "\(request) \(subject) \(plan)" }
      #expect(box.x >= edge && box.x + box.width + edge <= plan.width, note())
      #expect(box.y >= edge && box.y + box.height + edge <= plan.height, note())
      let across = Double(box.width) - request.fill * Double(plan.width)
      let down = Double(box.height) - request.fill * Double(plan.height)
      #expect(max(across, down) <= 0.5 || min(box.width, box.height) == 1, note())
      if isRatio {
        #expect((box.width, box.height) == (boxWidth, boxHeight), note())
      } else if !plan.isTooSmall {
        let room = (plan.width - 2 * edge, plan.height - 2 * edge)
        let isMet = abs(across) <= 0.5 || abs(down) <= 0.5 || box.width == room.0 || box.height == room.1
        #expect(isMet || box.width == 1 || box.height == 1, note())
      } else {
        #expect((box.width, box.height) == (boxWidth, boxHeight), note())
      }
    }
  }

  // MARK: The result

  /// A square of alpha in a picture of one colour.
  private func cutout(_ width: Int, _ height: Int, _ box: Rectangle) throws -> Image {
    try Made.image(width, height, bands: 4) { x, y in
      let isInside =
        (box.x..<box.x + box.width).contains(x) && (box.y..<box.y + box.height).contains(y)
      return [200, 100, 50, isInside ? 255 : 0]
    }
  }

  @Test("without scaling every pixel comes through exactly, in its place")
  func unscaled() throws {
    let image = try Made.image(40, 30, bands: 4) { x, y in [UInt8(x), UInt8(y), 7, UInt8(x + y)] }
    let request = FrameRequest(canvas: .sides(width: 60, height: 20), fill: 1, across: .end, down: .start)
    let plan = try request.plan(for: subject(5, 6, 10, 10), in: 40, 30)
    let result = try image.framed(plan)
    #expect((result.width, result.height) == (60, 20))
    for y in 0..<20 {
      for x in 0..<60 {
        let (u, v) = (x - 45, y + 6)
        let pixel = try result.pixel(x, y)
        #expect(pixel == ((0..<40).contains(u) ? [UInt8(u), UInt8(v), 7, UInt8(u + v)] : [0, 0, 0, 0]))
      }
    }
  }

  @Test(
    "scaled, the subject lies on the canvas to a fifth of a pixel, and as large",
    arguments: [
      Rectangle(x: 123, y: 211, width: 301, height: 199), Rectangle(x: 0, y: 0, width: 317, height: 401),
      Rectangle(x: 283, y: 149, width: 17, height: 351), Rectangle(x: 7, y: 3, width: 33, height: 21),
    ])
  func scaled(_ box: Rectangle) throws {
    let image = try cutout(600, 500, box)
    let subject = try #require(try image.subject(threshold: 64, speck: 0))
    for side in [97, 150, 420] {
      let request = FrameRequest(
        canvas: .sides(width: side, height: side), fill: 0.8, margin: .pixels(11), across: .start, enlarge: true)
      let plan = try request.plan(for: subject, in: 600, 500)
      let alpha = try image.framed(plan).alphaBand().bytes().map { Double($0) / 255 }
      #expect(alpha.count == side * side)
      var (mass, acrossMass, downMass) = (0.0, 0.0, 0.0)
      for at in alpha.indices {
        mass += alpha[at]
        acrossMass += alpha[at] * (Double(at % side) + 0.5)
        downMass += alpha[at] * (Double(at / side) + 0.5)
      }
      let (x, y) = (
        Double(plan.subject.x) + Double(plan.subject.width) / 2,
        Double(plan.subject.y) + Double(plan.subject.height) / 2
      )
      #expect(abs(acrossMass / mass - x) < 0.2, "\(side): \(acrossMass / mass) instead of \(x)")
      #expect(abs(downMass / mass - y) < 0.2, "\(side): \(downMass / mass) instead of \(y)")
      let area = Double(plan.subject.width * plan.subject.height)
      #expect(abs(mass / area - 1) < 0.015, "\(side): \(mass) instead of \(area)")
    }
  }

  @Test("soft pixels outside of the box come along, and colours under them do not bleed")
  func softEdges() throws {
    // A box of 40 pixels with a soft seam of 20 around it, in red over stored black.
    let image = try Made.image(200, 200, bands: 4) { x, y in
      let distance = max(abs(x - 100), abs(y - 100))
      let alpha = distance < 40 ? 255 : distance < 60 ? 50 : 0
      return alpha == 0 ? [0, 0, 0, 0] : [255, 0, 0, UInt8(alpha)]
    }
    let subject = try #require(try image.subject(threshold: 64, speck: 0))
    #expect(subject.box.width == 79)
    let plan = try FrameRequest(canvas: .sides(width: 60, height: 60), fill: 0.5).plan(for: subject, in: 200, 200)
    let result = try image.framed(plan)
    let seam = try result.pixel(30, 15 - 5)
    #expect(seam[3] > 40 && seam[3] < 60 && seam[0] > 250 && seam[1] < 5, "\(seam)")
    #expect(try result.pixel(0, 0) == [0, 0, 0, 0])
  }

  @Test("16 bits and Display P3 stay, with a shadow too")
  func deep() throws {
    let samples = (0..<900).flatMap { at -> [UInt16] in
      let (x, y) = (at % 30, at / 30)
      return [60_001, 3, 1_007, (10..<20).contains(x) && (10..<20).contains(y) ? 65_535 : 0]
    }
    let image = try Image(width: 30, height: 30, bands: 4, samples: samples).converted(to: .displayP3).materialised()
    let subject = try #require(try image.subject(threshold: 64, speck: 0))
    let plan = try FrameRequest(canvas: .sides(width: 40, height: 40)).plan(for: subject, in: 30, 30)
    let framed = try image.framed(plan)
    let shadow = try #require(
      try framed.cast(
        ContactShadow(blur: .pixels(3), opacity: 0.5, color: RGBA(255, 0, 0)), of: plan.subject))
    let result = try framed.composited(over: shadow)
    #expect(result.depth == 16 && result.space == .displayP3 && result.bands == 4)
    func pixel(_ image: Image, _ x: Int, _ y: Int) throws -> [UInt16] {
      try image.withPixels { raw in
        (0..<4).map { raw.load(fromByteOffset: 8 * (y * image.width + x) + 2 * $0, as: UInt16.self) }
      }
    }
    #expect(try pixel(result, 20, 20) == pixel(image, 15, 15))
    #expect(try pixel(result, 0, 0) == [0, 0, 0, 0])
    // Red of sRGB in Display P3 is 92 % red.
    let below = try pixel(result, 20, 26)
    #expect(below[3] > 5_000 && abs(Int(below[0]) - 60_160) < 400, "\(below)")
  }

  // MARK: Shadows

  private func coverage(_ image: Image?) throws -> [UInt8] { try #require(image).alphaBand().bytes() }

  @Test("a falling shadow is the outline, moved and blurred, in its colour")
  func drop() throws {
    let box = Rectangle(x: 40, y: 40, width: 20, height: 20)
    let image = try cutout(100, 100, box)
    var shadow = DropShadow(
      offset: .pixels(10), angle: 90, blur: .pixels(0), opacity: 0.5, color: RGBA(10, 20, 30))
    let hard = try #require(try image.cast(shadow, of: box))
    for (x, y) in [(49, 50), (50, 50), (69, 59), (70, 50), (60, 39)] {
      let isShadow = (50..<70).contains(x) && (40..<60).contains(y)
      #expect(try hard.pixel(x, y) == [10, 20, 30, isShadow ? 128 : 0], "\(x), \(y)")
    }
    // 25 % of 20 are 5; at 225 degrees that is 4 pixels, rounded, to the left and down.
    shadow = DropShadow(
      offset: try #require(Length(percentage: "25%")), angle: 225, blur: .pixels(3), opacity: 1, color: .black)
    let soft = try coverage(image.cast(shadow, of: box)).map { Double($0) }
    let mass = soft.reduce(0, +)
    let x = soft.indices.reduce(0.0) { $0 + soft[$1] * (Double($1 % 100) + 0.5) } / mass
    let y = soft.indices.reduce(0.0) { $0 + soft[$1] * (Double($1 / 100) + 0.5) } / mass
    #expect(abs(x - 46) < 0.05 && abs(y - 54) < 0.05, "\(x), \(y)")
    #expect(abs(mass / (400 * 255) - 1) < 0.02)
    // Half of it at the outline's middle: the left side, moved by 4.
    #expect(abs(soft[54 * 100 + 35] + soft[54 * 100 + 36] - 255) < 6)
    #expect(soft[0] == 0 && soft[99 * 100 + 99] == 0)
    #expect(
      try image.cast(DropShadow(offset: .pixels(200), angle: 0, blur: .pixels(3), opacity: 1, color: .black), of: box)
        == nil)
    #expect(
      failure {
        _ = try image.cast(
          DropShadow(offset: .pixels(1), angle: 0, blur: .pixels(1001), opacity: 1, color: .black), of: box)
      }?.code == .geometry)
  }

  @Test("a shadow on the ground is darkest where the subject stands, fades away, and is the same on both sides")
  func contact() throws {
    let box = Rectangle(x: 50, y: 40, width: 100, height: 80)
    let shadow = ContactShadow(blur: .pixels(4), opacity: 1, color: .black)
    let dark = try coverage(cutout(200, 200, box).cast(shadow, of: box))
    func at(_ x: Int, _ y: Int) -> Int { Int(dark[y * 200 + x]) }
    // Both shadows at full strength: 1 − 0.3 · 0.5 of 255 is 217.
    #expect((205...218).contains(at(100, 119)) && (205...218).contains(at(100, 120)))
    for y in 120..<199 { #expect(at(100, y + 1) <= at(100, y), "row \(y)") }
    for y in 0..<200 { for x in 0..<100 { #expect(abs(at(x, y) - at(199 - x, y)) <= 1) } }
    // At the subject's end there is half of both, 1 − 0.65 · 0.75 of 255, farther out nothing.
    #expect((115...145).contains(at(50, 120)), "\(at(50, 120))")
    #expect(at(50 - 4 * 9, 120) == 0 && at(100, 120 + 4 * 5) == 0 && at(100, 60) == 0)
  }

  @Test("each foot has its shadow where it stands, and what hangs in the air has none")
  func feet() throws {
    // A body, a foot at the left that reaches row 160, one at the right that reaches row 150; between them nothing
    // below row 100.
    let image = try Made.image(400, 200, bands: 4) { x, y in
      let isBody = (50..<350).contains(x) && (20..<100).contains(y)
      let isFoot =
        (60..<80).contains(x) && (100..<160).contains(y) || (320..<340).contains(x) && (100..<150).contains(y)
      return [9, 9, 9, isBody || isFoot ? 255 : 0]
    }
    let box = Rectangle(x: 50, y: 20, width: 300, height: 140)
    let shadow = ContactShadow(blur: .pixels(5), opacity: 1, color: .black)
    let dark = try coverage(image.cast(shadow, of: box))
    func column(_ x: Int) -> [Int] { (0..<200).map { Int(dark[$0 * 400 + x]) } }
    func darkest(_ x: Int) -> Int { column(x).indices.max { column(x)[$0] < column(x)[$1] } ?? -1 }
    #expect((159...160).contains(darkest(70)) && column(70)[159] > 130)
    #expect((149...150).contains(darkest(330)) && column(330)[149] > 130)
    #expect(column(200).allSatisfy { $0 == 0 })
  }
}
