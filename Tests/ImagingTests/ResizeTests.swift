import Imaging
import Testing

@Suite struct ResizeTests {
  struct Case: CustomTestStringConvertible {
    var source: (Int, Int)
    var request: ResizeRequest
    var result: (Int, Int)
    var testDescription: String {
      "\(source) \(request.fit) \(request.width ?? 0)x\(request.height ?? 0) enlarge \(request.enlarge)"
    }
  }

  static let cases: [Case] = [
    Case(source: (400, 300), request: .init(width: 200), result: (200, 150)),
    Case(source: (401, 299), request: .init(width: 200), result: (200, 149)),  // 149.13
    Case(source: (300, 401), request: .init(width: 200), result: (200, 267)),  // 267.33
    Case(source: (400, 250), request: .init(width: 100), result: (100, 63)),  // 62.5 rounds up
    Case(source: (400, 300), request: .init(height: 90), result: (120, 90)),
    Case(source: (400, 300), request: .init(width: 100, height: 100), result: (100, 75)),
    Case(source: (300, 400), request: .init(width: 100, height: 100), result: (75, 100)),
    Case(source: (400, 300), request: .init(width: 100, height: 100, fit: .outside), result: (133, 100)),  // 133.33
    Case(source: (400, 300), request: .init(width: 101, height: 77, fit: .cover), result: (101, 77)),
    Case(source: (400, 300), request: .init(width: 101, height: 77, fit: .contain), result: (101, 77)),
    Case(source: (400, 300), request: .init(width: 101, height: 77, fit: .fill), result: (101, 77)),
    Case(source: (400, 300), request: .init(width: 101, fit: .fill), result: (101, 300)),
    Case(source: (400, 300), request: .init(width: 800), result: (400, 300)),
    Case(source: (400, 300), request: .init(width: 800, enlarge: true), result: (800, 600)),
    Case(source: (100, 100), request: .init(width: 200, height: 50, fit: .cover), result: (100, 50)),
    Case(source: (100, 100), request: .init(width: 200, height: 50, fit: .cover, enlarge: true), result: (200, 50)),
    Case(source: (100, 100), request: .init(width: 200, height: 300, fit: .contain), result: (200, 300)),
    Case(source: (100, 100), request: .init(width: 200, height: 50, fit: .fill), result: (100, 50)),
    Case(source: (1, 10_000), request: .init(width: 100, height: 100), result: (1, 100)),
    Case(source: (10_000, 1), request: .init(width: 33), result: (33, 1)),
    Case(source: (7, 5), request: .init(width: 3, height: 4, fit: .fill, kernel: .mitchell), result: (3, 4)),
    Case(
      source: (641, 479), request: .init(width: 97, height: 89, fit: .cover, position: .attention), result: (97, 89)),
    Case(source: (641, 479), request: .init(width: 97, height: 89, fit: .cover, position: .entropy), result: (97, 89)),
  ]

  @Test("requested sides are met to the pixel", arguments: cases)
  func sides(_ test: Case) throws {
    let plan = try test.request.plan(for: test.source.0, test.source.1)
    #expect((plan.width, plan.height) == test.result)
    let image = try Made.image(test.source.0, test.source.1) { x, y in [UInt8(x & 255), UInt8(y & 255), 77] }
    let resized = try image.resized(plan).materialised()
    #expect((resized.width, resized.height) == test.result)
    #expect(try resized.bytes().count == test.result.0 * test.result.1 * 3)
    let jpeg = try picture(image.encoded(.jpeg(.init()), metadata: .none).array)
    let loaded = try jpeg.decode(resizedTo: plan).materialised()
    #expect((loaded.width, loaded.height) == test.result)
  }

  @Test("every pair of small sides comes out exactly")
  func manySides() throws {
    let image = try Made.waves(97, 61)
    for width in stride(from: 1, through: 200, by: 13) {
      for height in stride(from: 1, through: 150, by: 11) {
        for kernel in [Kernel.lanczos3, .nearest] {
          let result = try image.stretched(width: width, height: height, kernel: kernel).materialised()
          #expect(result.width == width && result.height == height)
        }
      }
    }
  }

  @Test("impossible requests are refused")
  func refused() {
    let bad: [ResizeRequest] = [
      .init(), .init(width: 0), .init(width: -5), .init(width: 70_000), .init(width: 10, sharpen: 0),
      .init(width: 10, height: 10, fit: .contain, position: .entropy),
      .init(width: 60_000, height: 60_000, fit: .fill, enlarge: true),
    ]
    for request in bad { #expect(failure { _ = try request.plan(for: 400, 300) }?.code == .geometry) }
  }

  @Test("soft alpha: a red shape on transparent black keeps pure red")
  func fringe() throws {
    let image = try Made.image(120, 100, bands: 4) { x, y in
      let (dx, dy) = (Double(x) - 60, Double(y) - 50)
      let alpha = max(0, min(255, (45 - (dx * dx + dy * dy).squareRoot()) * 12))
      return alpha > 0 ? [255, 0, 0, UInt8(alpha)] : [0, 0, 0, 0]
    }
    for (width, height) in [(40, 33), (77, 64), (240, 200)] {
      for kernel in Kernel.allCases {
        let small = try image.stretched(width: width, height: height, kernel: kernel).bytes()
        var seen = 0
        for i in stride(from: 0, to: small.count, by: 4) where small[i + 3] > 0 {
          seen += 1
          #expect(Array(small[i..<i + 3]) == [255, 0, 0], "\(kernel) alpha \(small[i + 3])")
          if small[i] != 255 { return }
        }
        #expect(seen > width * height / 4)
      }
    }
    let file = try picture(image.encoded(.png(.init())).array)
    let plan = try ResizeRequest(width: 50).plan(for: 120, 100)
    let loaded = try file.decode(resizedTo: plan).bytes()
    #expect(stride(from: 0, to: loaded.count, by: 4).allSatisfy { loaded[$0 + 3] == 0 || loaded[$0] == 255 })
    let blurred = try image.blurred(sigma: 5).bytes()
    #expect(stride(from: 0, to: blurred.count, by: 4).allSatisfy { blurred[$0 + 3] == 0 || blurred[$0] == 255 })
  }

  @Test("an enlarged ramp lies where it lay, on both axes and with every kernel", arguments: Kernel.allCases)
  func enlargedInPlace(_ kernel: Kernel) throws {
    // Ramps of 8 levels a pixel to the right and down: a pixel's middle at u has (u - 0.5) times as much.
    let image = try Made.image(24, 20) { x, y in [UInt8(x * 8), UInt8(y * 8), 90] }
    // Twice, by odd ratios, by a hair, and shrunk on one axis while the other grows.
    for (width, height) in [(48, 40), (61, 53), (25, 21), (97, 10), (11, 77)] {
      let result = try image.stretched(width: width, height: height, kernel: kernel).bytes()
      var (across, down) = (0.0, 0.0)
      // Half of each side around the middle, which no edge touches.
      let (columns, rows) = (width / 4..<width - width / 4, height / 4..<height - height / 4)
      for y in rows {
        for x in columns {
          let at = (y * width + x) * 3
          across += Double(result[at]) / 8 - ((Double(x) + 0.5) * 24 / Double(width) - 0.5)
          down += Double(result[at + 1]) / 8 - ((Double(y) + 0.5) * 20 / Double(height) - 0.5)
        }
      }
      let count = Double(columns.count * rows.count)
      // In pixels of the result. `nearest` takes whole pixels, and where it shrinks the upper left of several.
      let shifts = (across / count * Double(width) / 24, down / count * Double(height) / 20)
      let isExact = kernel != .nearest
      if isExact || width > 24 { #expect(abs(shifts.0) < 0.12, "\(width): \(shifts.0) pixels to the left") }
      if isExact || height > 20 { #expect(abs(shifts.1) < 0.12, "\(height): \(shifts.1) pixels up") }
    }
  }

  @Test("what is enlarged is the same mirrored, and its edges go on")
  func enlargedMirrored() throws {
    let image = try Made.image(9, 7, bands: 4) { x, y in
      [UInt8(x * 25), UInt8((x * 7 + y * 31) % 256), UInt8(y * 30), UInt8(255 - x * y)]
    }
    let turned = try Made.image(9, 7, bands: 4) { x, y in
      let (x, y) = (8 - x, 6 - y)
      return [UInt8(x * 25), UInt8((x * 7 + y * 31) % 256), UInt8(y * 30), UInt8(255 - x * y)]
    }
    for kernel in [Kernel.linear, .lanczos3] {
      let plain = try image.stretched(width: 31, height: 40, kernel: kernel).bytes()
      let other = try turned.stretched(width: 31, height: 40, kernel: kernel).bytes()
      let pixels = 31 * 40
      let mirrored = (0..<pixels).flatMap { at in other[(pixels - 1 - at) * 4..<(pixels - at) * 4] }
      #expect(maxDifference(plain, mirrored) <= 2)
    }
    let flat = try Made.image(1, 1) { _, _ in [200, 100, 50] }
    #expect(try flat.stretched(width: 40, height: 3).bytes() == (0..<120).flatMap { _ in [200, 100, 50] as [UInt8] })
  }

  @Test("nearest repeats pixels and makes no new ones")
  func nearest() throws {
    let image = try Made.image(3, 2) { x, y in [UInt8(x * 100), UInt8(y * 200), 7] }
    let doubled = try image.stretched(width: 6, height: 4, kernel: .nearest).bytes()
    var expected: [UInt8] = []
    for y in 0..<4 { for x in 0..<6 { expected += [UInt8(x / 2 * 100), UInt8(y / 2 * 200), 7] } }
    #expect(doubled == expected)
    let back = try image.stretched(width: 9, height: 6, kernel: .nearest).stretched(
      width: 3, height: 2, kernel: .nearest)
    #expect(try back.bytes() == image.bytes())
  }

  @Test("cover keeps the part that the position names")
  func gravity() throws {
    // Columns: left third red, middle green, right blue.
    let image = try Made.image(300, 100) { x, _ in x < 100 ? [255, 0, 0] : x < 200 ? [0, 255, 0] : [0, 0, 255] }
    for (position, colour): (Position, [UInt8]) in [
      (.left, [255, 0, 0]), (.centre, [0, 255, 0]), (.right, [0, 0, 255]),
    ] {
      let plan = try ResizeRequest(width: 50, height: 50, fit: .cover, position: position).plan(for: 300, 100)
      #expect(maxDifference(try image.resized(plan).pixel(25, 25), colour) <= 1)
    }
  }

  @Test("contain pads with the background, with alpha where that has any")
  func contain() throws {
    let image = try Made.image(100, 50) { _, _ in [9, 9, 9] }
    let blue = try ResizeRequest(width: 40, height: 40, fit: .contain, background: RGBA(0, 0, 255)).plan(for: 100, 50)
    let padded = try image.resized(blue)
    #expect(padded.bands == 3)
    #expect(try padded.pixel(0, 0) == [0, 0, 255])
    #expect(try padded.pixel(20, 20) == [9, 9, 9])
    let clear = try ResizeRequest(
      width: 40, height: 40, fit: .contain, position: .top, background: .transparent
    ).plan(for: 100, 50)
    let topped = try image.resized(clear)
    #expect(try topped.pixel(0, 0) == [9, 9, 9, 255])
    #expect(try topped.pixel(0, 39) == [0, 0, 0, 0])
  }

  @Test("sharpening changes edges, not flat parts, and leaves alpha alone")
  func sharpen() throws {
    let image = try Made.image(80, 80, bands: 4) { x, y in
      x < 40 ? [60, 60, 60, UInt8(y * 3)] : [190, 190, 190, UInt8(y * 3)]
    }
    let plan = try ResizeRequest(width: 40, sharpen: 1).plan(for: 80, 80)
    var plain = plan
    plain.sharpen = nil
    let (sharp, soft) = (try image.resized(plan), try image.resized(plain))
    #expect(try sharp.alphaBand().bytes() == soft.alphaBand().bytes())
    #expect(maxDifference(try sharp.pixel(5, 20), try soft.pixel(5, 20)) <= 1)
    #expect(try sharp.pixel(20, 20)[0] > soft.pixel(20, 20)[0])
  }
}
