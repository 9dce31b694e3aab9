import Imaging
import PipelineKit
import Stages
import TestSupport
import Testing

@Suite struct RotateTests {
  let bench = StageBench()

  @Test("right angles move picture, mask and photo alike", arguments: [90, 180, 270, -90])
  func rightAngles(angle: Int) throws {
    let item = try bench.cutout(40, 30, subject: Rectangle(x: 3, y: 4, width: 10, height: 5))
    let result = try bench.run(Rotate.self, "{ \"stage\": \"rotate\", \"angle\": \(angle) }", item)
    let isUpright = angle % 180 == 0
    #expect(result.size! == (isUpright ? (40, 30) : (30, 40)))
    let place: (Int, Int) = angle == 90 ? (29 - 4, 3) : angle == 180 ? (36, 25) : (4, 39 - 3)
    #expect(try result.image().pixel(place.0, place.1) == [3, 4, 9, 255])
    #expect(try result.matte?.pixel(place.0, place.1) == [255])
    #expect(try result.original?.pixel(place.0, place.1) == [3, 4, 7])
    #expect(try result.pixels().count == item.pixels().count)
  }

  @Test("the corners are white, transparent or as asked, and the size is as planned")
  func corners() throws {
    let photo = bench.item(try Pictures.solid(40, 30, 10, 20, 30))
    let cut = try bench.cutout(40, 30, subject: Rectangle(x: 0, y: 0, width: 40, height: 30))
    let cases: [(Item, String, [UInt8])] = [
      (photo, "", [255, 255, 255]), (photo, #", "background": "transparent""#, [0, 0, 0, 0]),
      (photo, ##", "background": "#f00""##, [255, 0, 0]), (cut, "", [0, 0, 0, 0]),
      (cut, ##", "background": "#0000ff80""##, [0, 0, 255, 128]),
    ]
    for (item, settings, corner) in cases {
      let json = "{ \"stage\": \"rotate\", \"angle\": 15\(settings) }"
      let result = try bench.run(Rotate.self, json, item)
      // 40 · 0.9659 + 30 · 0.2588 = 46.4; 40 · 0.2588 + 30 · 0.9659 = 39.3.
      #expect(result.size! == (47, 40))
      #expect(try Rotate.plan(StageBench.settings(Rotate.self, json)).resultSize!(40, 30) == (47, 40))
      #expect(try result.image().pixel(0, 0) == corner, "\(settings)")
    }
    #expect(
      try bench.run(Rotate.self, #"{ "stage": "rotate", "angle": 15 }"#, photo).image().pixel(23, 20) == [10, 20, 30])
  }

  @Test("mask and alpha agree after a turn, and the photo goes on behind the corners")
  func together() throws {
    let item = try bench.cutout(60, 40, subject: Rectangle(x: 10, y: 5, width: 30, height: 30))
    let result = try bench.run(Rotate.self, #"{ "stage": "rotate", "angle": 33 }"#, item)
    #expect(try result.image().alphaBand().bytes().isNear(try #require(try result.matte?.bytes()), 1))
    let original = try #require(result.original)
    #expect((original.width, original.height) == result.size!)
    #expect(original.bands == 3)
    #expect(try original.pixel(0, 0)[2] == 7)
  }

  @Test("a crop leaves no background")
  func cropped() throws {
    let json = #"{ "stage": "rotate", "angle": -4, "crop": true }"#
    let result = try bench.run(Rotate.self, json, bench.item(Pictures.solid(90, 60, 5, 6, 7)))
    #expect(try result.image().bands == 3)
    #expect(result.size! == (try Rotate.plan(StageBench.settings(Rotate.self, json)).resultSize!(90, 60)))
    #expect(
      try result.pixels().isNear(
        Array([[UInt8]](repeating: [5, 6, 7], count: result.size!.0 * result.size!.1).joined()), 0))
    #expect(
      try StageBench.findings(Rotate.self, #""angle": 3, "crop": true, "background": "white""#) == ["not-applicable"])
    #expect(try StageBench.findings(Rotate.self, "") == ["missing-key"])
  }

  @Test("frames are turned one by one")
  func frames() throws {
    let item = try bench.animation(2, 20, 10) { frame, x, y in [UInt8(x), UInt8(y), UInt8(frame)] }
    let result = try bench.run(Rotate.self, #"{ "stage": "rotate", "angle": 90 }"#, item)
    #expect(try result.frames().map { try $0.image.pixel(0, 0) } == [[0, 9, 0], [0, 9, 1]])
    guard case .animation(let animation) = result.picture else { throw StageError("test", "no animation") }
    #expect(animation.delays == [10, 20] && animation.loop == 3)
  }

  @Test("transparency is foreseen where the corners have it")
  func traits() throws {
    func traits(_ settings: String) throws -> Bool {
      try Rotate.plan(StageBench.settings(Rotate.self, "{ \"stage\": \"rotate\", \(settings) }")).produces.contains(
        .alpha)
    }
    #expect(try traits(#""angle": 5, "background": "transparent""#))
    #expect(try !traits(#""angle": 90, "background": "transparent""#))
    #expect(try !traits(#""angle": 5"#))
  }
}
