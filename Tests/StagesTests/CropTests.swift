import Imaging
import PipelineKit
import Stages
import TestSupport
import Testing

@Suite struct CropTests {
  let bench = StageBench()

  struct Case: Sendable, CustomStringConvertible {
    var settings: String
    var part: Rectangle
    var description: String { settings }
    init(_ settings: String, _ x: Int, _ y: Int, _ width: Int, _ height: Int) {
      (self.settings, part) = (settings, Rectangle(x: x, y: y, width: width, height: height))
    }
  }

  // Of 201 × 101 pixels.
  static let cases: [Case] = [
    Case(#""left": 10, "top": 20, "width": 30, "height": 40"#, 10, 20, 30, 40),
    Case(#""left": "10%", "width": "50%""#, 20, 0, 101, 101),
    Case(#""right": 1, "bottom": 2"#, 0, 0, 200, 99),
    Case(#""right": 1, "width": 10"#, 190, 0, 10, 101),
    Case(#""aspect": "1:1""#, 50, 0, 101, 101),
    Case(#""aspect": "1:1", "gravity": "left""#, 0, 0, 101, 101),
    Case(#""aspect": "4:1", "gravity": "bottom""#, 0, 51, 201, 50),
    Case(#""width": 50, "height": 50, "gravity": "top-right""#, 151, 0, 50, 50),
    Case(#""width": 500, "clip": true"#, 0, 0, 201, 101),
  ]

  @Test("the part is the one worked out by hand, of picture, mask and photo alike", arguments: cases)
  func parts(_ entry: Case) throws {
    let json = "{ \"stage\": \"crop\", \(entry.settings) }"
    let planned = try #require(try Crop.plan(StageBench.settings(Crop.self, json)).resultSize?(201, 101))
    #expect(planned == (entry.part.width, entry.part.height))
    let item = try bench.cutout(201, 101, subject: Rectangle(x: 30, y: 30, width: 100, height: 50))
    let result = try bench.run(Crop.self, json, item)
    let pictures = [
      (try result.image(), try item.image()), (result.matte!, item.matte!), (result.original!, item.original!),
    ]
    for (picture, before) in pictures {
      #expect((picture.width, picture.height) == (entry.part.width, entry.part.height))
      #expect(try picture.bytes() == before.cropped(to: entry.part).bytes())
    }
    #expect(try result.image().pixel(0, 0).prefix(2) == [UInt8(entry.part.x), UInt8(entry.part.y)])
  }

  @Test("straight after decode the file's pixels are cropped")
  func afterDecode() throws {
    let image = try Pictures.quarters()
    let item = try bench.decoded(bench.item(holding: Pictures.png(image), name: "a.png"))
    let result = try bench.run(Crop.self, #"{ "stage": "crop", "left": 32, "top": 24 }"#, item)
    #expect(result.size! == (32, 24))
    #expect(try result.image().pixel(0, 0) == Pictures.yellow)
  }

  @Test("a part beyond the picture fails the item")
  func beyond() throws {
    let item = bench.item(try Pictures.quarters())
    for settings in [#""left": 60, "width": 10"#, #""width": 65"#, #""left": 32, "right": 32"#] {
      #expect(try bench.failure(of: Crop.self, "{ \"stage\": \"crop\", \(settings) }", item).code == "geometry")
    }
  }

  @Test("frames are cropped alike, and the first decides by content", arguments: ["attention", "left"])
  func frames(gravity: String) throws {
    // Something bright wanders; the crop does not.
    let item = try bench.animation(3, 120, 40) { frame, x, y in
      (20 + 35 * frame..<35 + 35 * frame).contains(x) && (10..<30).contains(y)
        ? [250, UInt8(100 + (x * 37 + y * 11) % 90), 60] : [UInt8(x), 80, UInt8(y)]
    }
    let result = try bench.run(Crop.self, #"{ "stage": "crop", "aspect": "1:1", "gravity": "\#(gravity)" }"#, item)
    let frames = try result.frames()
    #expect(frames.count == 3)
    // The last column of each frame is plain and says where it was.
    let start = try frames[2].image.pixel(0, 0)[0]
    for frame in frames {
      #expect((frame.image.width, frame.image.height) == (40, 40))
      #expect(try frame.image.pixel(0, 39)[0] == start)
    }
    let first = try frames[0].image.bytes()
    #expect(stride(from: 0, to: first.count, by: 3).contains { first[$0] == 250 })
  }

  @Test("mask and photo are cropped where the content is")
  func byContent() throws {
    let picture = try Pictures.image(200, 60, bands: 4) { x, y in
      [UInt8(x), UInt8(y), x > 150 ? UInt8((x * 91 + y * 57) & 255) : 0, 255]
    }
    let matte = try Pictures.image(200, 60, bands: 1) { x, _ in [UInt8(x)] }
    let item = bench.item(picture).with(image: picture, matte: matte, original: picture)
    let result = try bench.run(
      Crop.self, #"{ "stage": "crop", "width": 60, "height": 60, "gravity": "entropy" }"#, item)
    #expect(try result.image().pixel(0, 0)[0] > 60)
    #expect(try result.matte?.pixel(0, 0) == [result.image().pixel(0, 0)[0]])
    #expect(try result.original?.bytes() == result.image().bytes())
  }

  @Test("percentages that make up 100 fit at every size, and halves are next to each other")
  func shares() throws {
    for width in 5...17 {
      let item = bench.item(try Pictures.image(width, 3) { x, _ in [UInt8(x), 0, 0] })
      for share in [10, 25, 33, 50, 75] {
        let settings = #""left": "\#(share)%", "width": "\#(100 - share)%""#
        let end = try bench.run(Crop.self, "{ \"stage\": \"crop\", \(settings) }", item).image()
        let first = (2 * width * share + 100) / 200
        #expect(try end.width == width - first && Int(end.pixel(0, 0)[0]) == first, "\(width), \(settings)")
      }
    }
  }

  @Test("lint tells what cannot be meant")
  func lint() throws {
    for (settings, code) in [
      ("", "missing-key"), (#""gravity": "left""#, "missing-key"),
      (#""aspect": "1:1", "width": 5"#, "conflicting-keys"),
      (#""left": 1, "right": 1, "width": 5"#, "conflicting-keys"), (#""width": "10px""#, "wrong-value"),
      (#""aspect": "16x9""#, "wrong-value"), (#""width": 0"#, "out-of-range"),
      (#""left": 3, "width": 4, "gravity": "attention""#, "not-applicable"),
      (#""left": 3, "top": 4, "gravity": "bottom""#, "not-applicable"), (#""width": 5.5"#, "not-an-integer"),
      (#""left": "110%""#, "out-of-range"), (#""left": "60%", "right": "40%""#, "out-of-range"),
      (#""top": "60%", "height": "40.1%""#, "out-of-range"), (#""width": "101%""#, "out-of-range"),
      (#""bottom": "100%", "height": "10%", "clip": true"#, "out-of-range"),
    ] {
      #expect(try StageBench.findings(Crop.self, settings) == [code], "\(settings)")
    }
    for settings in [
      #""width": 5, "gravity": "attention""#, #""left": "1.5%""#, #""aspect": "1.91:1""#,
      #""left": "60%", "width": "40%""#, #""left": "60%", "right": "39.9999%""#, #""width": "200%", "clip": true"#,
      #""left": "99%", "right": 3000"#,
    ] {
      #expect(try StageBench.findings(Crop.self, settings) == [], "\(settings)")
    }
  }
}
