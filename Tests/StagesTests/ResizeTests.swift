import Imaging
import PipelineKit
import Stages
import TestSupport
import Testing

@Suite struct ResizeTests {
  let bench = StageBench()

  struct Case: Sendable, CustomStringConvertible {
    var source: (Int, Int)
    var settings: String
    var result: (Int, Int)
    var description: String { "\(source.0)×\(source.1) \(settings)" }
    init(_ source: (Int, Int), _ settings: String, _ result: (Int, Int)) {
      (self.source, self.settings, self.result) = (source, settings, result)
    }
  }

  // Worked out by hand: 301 · 100 / 201 = 149.75, 201 · 100 / 301 = 66.78, …
  static let cases: [Case] = [
    Case((301, 201), #""width": 100"#, (100, 67)),
    Case((301, 201), #""height": 100"#, (150, 100)),
    Case((301, 201), #""width": 100, "height": 100"#, (100, 67)),
    Case((301, 201), #""width": 100, "height": 100, "fit": "outside""#, (150, 100)),
    Case((301, 201), #""width": 100, "height": 101, "fit": "cover""#, (100, 101)),
    Case((301, 201), #""width": 99, "height": 100, "fit": "contain""#, (99, 100)),
    Case((301, 201), #""width": 33, "height": 77, "fit": "fill""#, (33, 77)),
    Case((301, 201), #""width": 77, "height": 33, "fit": "cover", "position": "entropy""#, (77, 33)),
    Case((301, 201), #""width": 33, "height": 77, "fit": "cover", "position": "attention""#, (33, 77)),
    Case((301, 201), #""width": 1"#, (1, 1)),
    Case((1, 400), #""width": 1, "height": 100"#, (1, 100)),
    Case((400, 1), #""width": 100"#, (100, 1)),
    // 3 · 100 / 200 = 1.5, half up.
    Case((200, 3), #""width": 100"#, (100, 2)),
    // Nothing is enlarged unless the job says so.
    Case((40, 30), #""width": 80"#, (40, 30)),
    Case((40, 30), #""width": 80, "enlarge": true"#, (80, 60)),
    Case((40, 30), #""width": 80, "height": 80, "fit": "contain""#, (80, 80)),
    Case((40, 30), #""width": 81, "height": 35, "fit": "cover", "enlarge": true"#, (81, 35)),
  ]

  @Test("sides are met to the pixel, from a file and from pixels, and as planned", arguments: cases)
  func sides(_ entry: Case) throws {
    let (width, height) = entry.source
    let image = try Pictures.image(width, height) { x, y in [UInt8(x & 255), UInt8(y & 255), UInt8((x ^ y) & 255)] }
    let json = "{ \"stage\": \"resize\", \(entry.settings) }"
    let planned = try #require(try Resize.plan(StageBench.settings(Resize.self, json)).resultSize?(width, height))
    #expect(planned == entry.result)
    for (name, bytes) in [("a.jpg", try Pictures.jpeg(image)), ("a.png", try Pictures.png(image))] {
      let fused = try bench.process(Resize.self, json, bench.decoded(bench.item(holding: bytes, name: name)))
      #expect(fused.size! == entry.result)
    }
    let inMemory = try bench.process(Resize.self, json, bench.item(image))
    #expect(inMemory.size! == entry.result)
    #expect(try inMemory.pixels().count == entry.result.0 * entry.result.1 * 3)
  }

  @Test("decode and resize in one go give what decoding whole and then resizing gives", arguments: ["a.jpg", "a.png"])
  func fusedAgrees(name: String) throws {
    // Smooth, so that only a shift or a wrong scale makes a difference.
    let image = try Pictures.image(640, 480) { x, y in [UInt8(x * 255 / 639), UInt8(y * 255 / 479), 128] }
    let bytes = name.hasSuffix("jpg") ? try Pictures.jpeg(image, quality: 100) : try Pictures.png(image)
    let json = #"{ "stage": "resize", "width": 100 }"#
    let fused = try bench.process(Resize.self, json, bench.decoded(bench.item(holding: bytes, name: name)))
    let inSteps = try bench.process(Resize.self, json, bench.item(image))
    #expect(try fused.pixels().isNear(inSteps.pixels(), 2))
  }

  @Test("a red square with soft alpha on transparent black stays pure red", arguments: ["memory", "file"])
  func noDarkFringe(way: String) throws {
    // Alpha falls from 255 to 0 towards the edges, and black lies under the transparent rest.
    let image = try Pictures.image(90, 90, bands: 4) { x, y in
      let edge = min(min(x, 89 - x), min(y, 89 - y)) - 20
      return edge <= 0 ? [0, 0, 0, 0] : [255, 0, 0, UInt8(min(255, edge * 30))]
    }
    var item = bench.item(image)
    if way == "file" { item = try bench.decoded(bench.item(holding: Pictures.png(image), name: "red.png")) }
    let result = try bench.process(Resize.self, #"{ "stage": "resize", "width": 31 }"#, item)
    let pixels = try result.pixels()
    var softPixels = 0
    for start in stride(from: 0, to: pixels.count, by: 4) where pixels[start + 3] > 0 {
      // Colour under the faintest alpha is known to a few levels only: 1/alpha of a rounding step.
      let tolerance = pixels[start + 3] >= 16 ? 1 : 255 / Int(pixels[start + 3])
      #expect(abs(Int(pixels[start]) - 255) <= tolerance)
      #expect(Int(pixels[start + 1]) <= tolerance && Int(pixels[start + 2]) <= tolerance)
      if pixels[start + 3] < 250 { softPixels += 1 }
    }
    #expect(softPixels > 20)
    // The middle is opaque.
    #expect(pixels[(15 * 31 + 15) * 4 + 3] == 255)
  }

  /// A picture, its mask and its original in which every pixel says where it came from.
  private func marked(_ width: Int, _ height: Int) throws -> Item {
    let picture = try Pictures.image(width, height, bands: 4) { x, y in
      [UInt8(x), UInt8(y), x > width * 3 / 4 ? UInt8((x * 91 + y * 57) & 255) : 0, 255]
    }
    let matte = try Pictures.image(width, height, bands: 1) { x, _ in [UInt8(x)] }
    let original = try Pictures.image(width, height) { x, y in [UInt8(x), UInt8(y), 7] }
    return bench.item(picture).with(image: picture, matte: matte, original: original)
  }

  @Test(
    "mask and original are cropped where the picture is",
    arguments: [
      "centre", "left", "bottom-right", "entropy", "attention",
    ])
  func cropsTogether(position: String) throws {
    let result = try bench.process(
      Resize.self,
      #"{ "stage": "resize", "width": 60, "height": 60, "fit": "cover", "position": "\#(position)" }"#, marked(200, 60))
    let picture = try result.pixels()
    let matte = try #require(try result.matte?.bytes())
    let original = try #require(try result.original?.bytes())
    for pixel in 0..<3600 {
      #expect(picture[pixel * 4] == matte[pixel])
      #expect(picture[pixel * 4] == original[pixel * 3])
      #expect(picture[pixel * 4 + 1] == original[pixel * 3 + 1])
    }
    let left = Int(matte[0])
    switch position {
    case "centre": #expect(left == 70)
    case "left": #expect(left == 0)
    case "bottom-right": #expect(left == 140)
    // All the detail is in the last quarter.
    default: #expect(left > 100, "the crop starts at \(left)")
    }
  }

  @Test("what contain pads is background in the picture and no subject in the mask")
  func padsTogether() throws {
    let picture = try Pictures.solid(20, 10, 200, 10, 10, 255)
    let item = bench.item(picture).with(
      image: picture, matte: try Pictures.solid(20, 10, 255), original: try Pictures.solid(20, 10, 200, 10, 10))
    let result = try bench.process(
      Resize.self,
      ##"""
      { "stage": "resize", "width": 20, "height": 20, "fit": "contain", "background": "#0a141e", "position": "top" }
      """##,
      item)
    let pixels = try result.pixels()
    let matte = try #require(try result.matte?.bytes())
    for y in 0..<20 {
      let start = y * 20 * 4
      #expect(Array(pixels[start..<start + 4]) == (y < 10 ? [200, 10, 10, 255] : [10, 20, 30, 255]))
      #expect(matte[y * 20] == (y < 10 ? 255 : 0))
    }
  }

  @Test("a transparent background for contain gives an opaque picture transparency")
  func padsWithTransparency() throws {
    let result = try bench.process(
      Resize.self, #"{ "stage": "resize", "width": 4, "height": 8, "fit": "contain", "background": "transparent" }"#,
      bench.item(Pictures.solid(4, 4, 9, 8, 7)))
    let image = try result.image()
    #expect(image.bands == 4)
    #expect(try Array(image.bytes()[..<4]) == [0, 0, 0, 0])
    #expect(try Array(image.bytes()[(4 * 4 * 4)..<(4 * 4 * 4 + 4)]) == [9, 8, 7, 255])
  }

  @Test("sharpening leaves the mask alone")
  func sharpenSparesTheMask() throws {
    let picture = try Pictures.image(80, 40) { x, _ in x < 40 ? [60, 60, 60] : [180, 180, 180] }
    let item = bench.item(picture).with(
      image: picture, matte: try Pictures.image(80, 40, bands: 1) { x, _ in [x < 40 ? 60 : 180] }, original: picture)
    let soft = try bench.process(Resize.self, #"{ "stage": "resize", "width": 40 }"#, item)
    let sharp = try bench.process(Resize.self, #"{ "stage": "resize", "width": 40, "sharpen": 1 }"#, item)
    #expect(try sharp.pixels() != soft.pixels())
    #expect(try sharp.original?.bytes() != soft.original?.bytes())
    #expect(try sharp.matte?.bytes() == soft.matte?.bytes())
  }

  @Test("nearest takes source pixels as they are")
  func nearest() throws {
    let image = try Pictures.image(4, 4) { x, y in [UInt8(x * 60), UInt8(y * 60), 0] }
    let result = try bench.process(
      Resize.self, #"{ "stage": "resize", "width": 8, "kernel": "nearest", "enlarge": true }"#, bench.item(image))
    let wanted = try Pictures.image(8, 8) { x, y in [UInt8(x / 2 * 60), UInt8(y / 2 * 60), 0] }
    #expect(try result.pixels() == wanted.bytes())
  }

  @Test("the encoded result is gone once the picture changes")
  func dropsEncoded() throws {
    let encoded = try bench.process(
      Encode.self, #"{ "stage": "encode", "format": "png" }"#, bench.item(Pictures.quarters()))
    #expect(encoded.encoded != nil)
    #expect(try bench.process(Resize.self, #"{ "stage": "resize", "width": 10 }"#, encoded).encoded == nil)
  }

  @Test(
    "settings that contradict each other are found by lint",
    arguments: [
      (#"{ "stage": "resize" }"#, "missing-key", "$"),
      (#"{ "stage": "resize", "width": 0 }"#, "out-of-range", "$.width"),
      (#"{ "stage": "resize", "width": 10, "fit": "cover" }"#, "missing-key", "$.fit"),
      (#"{ "stage": "resize", "height": 10, "fit": "contain" }"#, "missing-key", "$.fit"),
      (#"{ "stage": "resize", "height": 10, "fit": "fill" }"#, "missing-key", "$.fit"),
      (#"{ "stage": "resize", "width": 10, "position": "top" }"#, "not-applicable", "$.position"),
      (
        #"{ "stage": "resize", "width": 10, "height": 10, "fit": "contain", "position": "entropy" }"#, "not-applicable",
        "$.position"
      ),
      (#"{ "stage": "resize", "width": 10, "background": "red" }"#, "not-applicable", "$.background"),
      (#"{ "stage": "resize", "width": 10, "sharpen": 11 }"#, "out-of-range", "$.sharpen"),
      (#"{ "stage": "resize", "width": 10, "kernel": "lanczos" }"#, "unknown-value", "$.kernel"),
    ])
  func lint(json: String, code: String, path: String) throws {
    let findings = try StageBench.lint(Resize.self, json)
    #expect(findings.map(\.code) == [code])
    #expect(findings.first?.path == path)
  }
}
