import Imaging
import PipelineKit
import Stages
import TestSupport
import Testing

@Suite struct PadTests {
  let bench = StageBench()

  struct Case: Sendable, CustomStringConvertible {
    var settings: String
    var canvas: Canvas
    var description: String { settings }
    init(_ settings: String, _ x: Int, _ y: Int, _ width: Int, _ height: Int) {
      (self.settings, canvas) = (settings, Canvas(x: x, y: y, width: width, height: height))
    }
  }

  // Of 41 × 30 pixels.
  static let cases: [Case] = [
    Case(#""all": 5"#, 5, 5, 51, 40), Case(#""all": "10%""#, 4, 4, 49, 38),
    Case(#""top": 1, "left": "50%""#, 21, 1, 62, 31), Case(#""right": 3, "bottom": 2"#, 0, 0, 44, 32),
    Case(#""width": 50, "height": 40"#, 4, 5, 50, 40), Case(#""width": 50, "gravity": "right""#, 9, 0, 50, 30),
    Case(#""aspect": "1:1""#, 0, 5, 41, 41), Case(#""aspect": "2:1", "gravity": "bottom-right""#, 19, 0, 60, 30),
  ]

  @Test("the picture stands where it should, with mask and photo", arguments: cases)
  func places(_ entry: Case) throws {
    let json = "{ \"stage\": \"pad\", \(entry.settings), \"background\": \"#102030\" }"
    let planned = try #require(try Pad.plan(StageBench.settings(Pad.self, json)).resultSize?(41, 30))
    #expect(planned == (entry.canvas.width, entry.canvas.height))
    let item = try bench.cutout(41, 30, subject: Rectangle(x: 0, y: 0, width: 41, height: 30))
    let result = try bench.run(Pad.self, json, item)
    #expect(result.size! == planned)
    let (picture, matte, original) = (try result.image(), try #require(result.matte), try #require(result.original))
    for y in 0..<planned.1 {
      for x in 0..<planned.0 {
        let (u, v) = (x - entry.canvas.x, y - entry.canvas.y)
        let isInside = (0..<41).contains(u) && (0..<30).contains(v)
        #expect(try picture.pixel(x, y) == (isInside ? [UInt8(u), UInt8(v), 9, 255] : [16, 32, 48, 255]))
        #expect(try matte.pixel(x, y) == [isInside ? 255 : 0])
        #expect(try original.pixel(x, y) == [UInt8(min(40, max(0, u))), UInt8(min(29, max(0, v))), 7])
      }
    }
  }

  @Test("left out, the background is white, or transparent for what has alpha")
  func backgrounds() throws {
    let photo = try bench.run(Pad.self, #"{ "stage": "pad", "all": 1 }"#, bench.item(Pictures.solid(4, 4, 1, 2, 3)))
    #expect(try photo.image().pixel(0, 0) == [255, 255, 255])
    let cut = try bench.run(Pad.self, #"{ "stage": "pad", "all": 1 }"#, bench.item(Pictures.solid(4, 4, 1, 2, 3, 255)))
    #expect(try cut.image().pixel(0, 0) == [0, 0, 0, 0])
    let deep = bench.item(try Pictures.solid(4, 4, 1, 2, 3).withDepth(16))
    let framed = try bench.run(Pad.self, ##"{ "stage": "pad", "all": 1, "background": "#0a0b0c" }"##, deep).image()
    #expect(framed.depth == 16)
    #expect(try framed.withDepth(8).pixel(0, 0) == [10, 11, 12])
    let edge = try bench.run(
      Pad.self, #"{ "stage": "pad", "all": 2, "fill": "edge" }"#, bench.item(Pictures.quarters()))
    #expect(try edge.image().pixel(0, 0) == Pictures.red && edge.image().pixel(67, 51) == Pictures.yellow)
  }

  @Test("a picture larger than the canvas fails the item")
  func tooLarge() throws {
    let item = bench.item(try Pictures.quarters())
    let error = try bench.failure(of: Pad.self, #"{ "stage": "pad", "width": 60, "height": 60 }"#, item)
    #expect(error.code == "geometry" && error.message.contains("64×48"))
  }

  @Test("lint tells what cannot be meant")
  func lint() throws {
    for (settings, code) in [
      ("", "missing-key"), (#""all": 1, "width": 5"#, "conflicting-keys"),
      (#""aspect": "1:1", "top": 5"#, "conflicting-keys"),
      (#""all": 1, "gravity": "top""#, "not-applicable"),
      (#""all": 1, "fill": "edge", "background": "red""#, "not-applicable"),
      (#""width": 10, "gravity": "attention""#, "unknown-value"), (#""all": 3, "left": 4"#, "conflicting-keys"),
    ] {
      #expect(try StageBench.findings(Pad.self, settings) == [code], "\(settings)")
    }
  }
}
