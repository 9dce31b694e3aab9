import Imaging
import JobSyntax
import PipelineKit
import Stages
import TestSupport
import Testing

@Suite struct MatteTests {
  let bench = StageBench()

  /// A cut-out of 40 × 30 whose subject is a rectangle, with a second mask by name: its left half.
  private func cutout() throws -> Item {
    let item = try bench.cutout(40, 30, subject: Rectangle(x: 10, y: 10, width: 12, height: 8))
    let left = try Pictures.image(40, 30, bands: 1) { x, _ in [x < 20 ? 255 : 0] }
    return item.with(image: try item.image(), matte: item.matte, original: item.original, mattes: ["left": left])
  }

  @Test("where the mask grows, the photo's own colours come back")
  func grown() throws {
    let result = try bench.run(Matte.self, #"{ "stage": "matte", "grow": 2 }"#, cutout())
    #expect(try result.image().pixel(9, 12) == [9, 12, 7, 255])
    #expect(try result.image().pixel(5, 12) == [5, 12, 7, 0])
    #expect(try result.matte?.bytes() == result.image().alphaBand().bytes())
    #expect(try result.original?.pixel(5, 12) == [5, 12, 7])
    #expect(Array(result.mattes.keys) == ["left"])
  }

  @Test("a mask is taken up by its name, and one that is not there is an error that names those there are")
  func use() throws {
    let result = try bench.run(Matte.self, #"{ "stage": "matte", "use": "left" }"#, cutout())
    #expect(try result.image().pixel(2, 2) == [2, 2, 7, 255])
    #expect(try result.image().pixel(30, 2)[3] == 0)
    #expect(try result.matte?.bytes() == result.mattes["left"]?.bytes())
    let error = try bench.failure(of: Matte.self, #"{ "stage": "matte", "use": "right" }"#, cutout())
    #expect(error.code == "matte-missing" && error.hint?.contains("left") == true)
  }

  @Test("as a mask the picture is one band")
  func mask() throws {
    let result = try bench.run(
      Matte.self, #"{ "stage": "matte", "invert": true, "output": "mask" }"#, cutout())
    #expect(try result.image().bands == 1)
    #expect(try result.image().pixel(0, 0) == [255] && result.image().pixel(12, 12) == [0])
    // And from the mask back to the picture.
    let back = try bench.run(Matte.self, #"{ "stage": "matte", "invert": true }"#, result)
    #expect(try back.image().pixel(12, 12) == [12, 12, 7, 255])
  }

  @Test("transparency that a picture brought along is changed, its colours kept; a photo passes with a warning")
  func existingAlpha() throws {
    let picture = try Pictures.image(20, 10, bands: 4) { x, y in [UInt8(x), UInt8(y), 5, x < 10 ? 255 : 0] }
    let json = #"{ "stage": "matte", "existingAlpha": true, "shrink": 3 }"#
    let result = try bench.run(Matte.self, json, bench.item(picture))
    #expect(try result.image().pixel(6, 5) == [6, 5, 5, 255] && result.image().pixel(7, 5) == [7, 5, 5, 0])
    // The border is no edge of the subject.
    #expect(try result.image().pixel(0, 0)[3] == 255)
    let mask = try bench.run(
      Matte.self, #"{ "stage": "matte", "existingAlpha": true, "output": "mask" }"#, bench.item(picture))
    #expect(try mask.original?.bands == 3 && mask.image().bands == 1)
    let journal = ItemJournal()
    let photo = try Pictures.solid(8, 8, 1, 2, 3)
    let same = try bench.run(Matte.self, json, bench.item(photo), journal: journal)
    #expect(try same.image().bytes() == photo.bytes() && journal.warningCodes == ["no-alpha"])
  }

  @Test("transparency of the photo itself stays when the mask changes")
  func photoAlpha() throws {
    let photo = try Pictures.solid(10, 10, 4, 5, 6, 100)
    let matte = try Pictures.image(10, 10, bands: 1) { x, _ in [x < 5 ? 255 : 0] }
    let item = bench.item(photo).with(image: photo, matte: matte, original: photo)
    let result = try bench.run(Matte.self, #"{ "stage": "matte", "grow": 2 }"#, item)
    #expect(try result.image().pixel(6, 5) == [4, 5, 6, 100] && result.image().pixel(7, 5) == [4, 5, 6, 0])
  }

  @Test("only what is in the region goes")
  func region() throws {
    let json = #"{ "stage": "matte", "region": { "rectangle": { "x": "50%", "width": "50%" } } }"#
    let result = try bench.run(Matte.self, json, cutout())
    #expect(try result.image().pixel(2, 2) == [2, 2, 7, 255])
    #expect(try result.image().pixel(30, 2)[3] == 0 && result.image().pixel(21, 12)[3] == 255)
    let polygon =
      #"{ "stage": "matte", "region": { "polygon": [[0, 0], ["100%", 0], [0, "100%"]], "keep": "inside" } }"#
    let kept = try bench.run(Matte.self, polygon, cutout())
    #expect(try kept.image().pixel(2, 2)[3] == 255 && kept.image().pixel(38, 28)[3] == 0)
    let away = #"{ "stage": "matte", "region": { "rectangle": { "x": 400 } } }"#
    #expect(try bench.failure(of: Matte.self, away, cutout()).code == "geometry")
  }

  @Test("a mask of which nothing is left is told")
  func empty() throws {
    let journal = ItemJournal()
    let result = try bench.run(Matte.self, #"{ "stage": "matte", "islands": 0.5 }"#, cutout(), journal: journal)
    #expect(try result.matte?.bytes().allSatisfy { $0 == 0 } == true)
    #expect(journal.warningCodes == ["mask-empty"])
  }

  @Test("masks go along with the picture, in each frame of an animation")
  func movement() throws {
    let item = try cutout()
    let frames = [
      ItemFrames.Frame(image: try item.image(), matte: item.matte, original: item.original, mattes: item.mattes),
      ItemFrames.Frame(image: try item.image(), matte: item.matte, original: item.original),
    ]
    let animation = item.with(animation: ItemFrames(frames: frames, delays: [10, 10], loop: 0))
    #expect(animation.mattes.isEmpty)
    let cropped = try bench.run(Crop.self, #"{ "stage": "crop", "left": 15, "width": 10 }"#, animation)
    let result = try bench.run(Resize.self, #"{ "stage": "resize", "width": 5, "height": 15 }"#, cropped)
    let done = try bench.run(Matte.self, #"{ "stage": "matte", "invert": true }"#, result).frames()
    #expect(done.map { $0.mattes["left"]?.width } == [5, nil])
    let row = try (0..<5).map { try #require(done[0].mattes["left"]).pixel($0, 7)[0] }
    // The edge between the fifth and the sixth column is half of the third of the new ones; the kernel rings a little.
    #expect(row.isNear([255, 255, 128, 0, 0], 6), "\(row)")
    let still = try bench.run(Resize.self, #"{ "stage": "resize", "width": 20, "height": 15 }"#, cutout())
    #expect(still.mattes["left"]?.width == 20)
    #expect(still.releasingMatte().mattes.isEmpty && still.releasingPixels().mattes.isEmpty)
    #expect(animation.releasingMatte().mattes.isEmpty)
  }

  @Test("lint tells what cannot be meant")
  func lint() throws {
    #expect(try StageBench.findings(Matte.self, "") == ["missing-key"])
    #expect(try StageBench.findings(Matte.self, #""use": "a", "existingAlpha": true"#) == ["conflicting-keys"])
    #expect(try StageBench.findings(Matte.self, #""islands": "larges""#) == ["unknown-value"])
    #expect(try StageBench.findings(Matte.self, #""islands": "largest", "holes": 0.01, "grow": "1%""#) == [])
    #expect(try StageBench.findings(Matte.self, #""threshold": 1.5"#) == ["out-of-range"])
    #expect(try StageBench.findings(Matte.self, #""threshold": { "levle": 0.5 }"#) == ["unknown-key"])
    #expect(try StageBench.findings(Matte.self, #""feather": "2""#) == ["wrong-type"])
    #expect(try StageBench.findings(Matte.self, #""feather": "two%""#) == ["wrong-value"])
    #expect(try StageBench.findings(Matte.self, #""region": { "keep": "inside" }"#) == ["missing-key"])
    #expect(try StageBench.findings(Matte.self, #""region": { "polygon": [[0, 0], [1, 1]] }"#) == ["out-of-range"])
    #expect(
      try StageBench.findings(Matte.self, #""region": { "rectangle": {}, "polygon": [[0, 0], [1, 0], [1, 1]] }"#)
        == ["conflicting-keys"])
  }

  @Test("the plan says what the chain has afterwards, and which mask is asked for")
  func plan() throws {
    let plan = Matte.plan(try StageBench.settings(Matte.self, #"{ "stage": "matte", "use": "a" }"#))
    #expect(plan.acceptsAny == [.alpha, .matte] && plan.produces.contains([.alpha, .matte]))
    #expect(plan.usedMatte?.name == "a" && plan.usedMatte?.field == "use")
    let own = Matte.plan(
      try StageBench.settings(Matte.self, #"{ "stage": "matte", "existingAlpha": true, "grow": 1 }"#))
    #expect(own.acceptsAny.isEmpty)
    let named = Segment.plan(try StageBench.settings(Segment.self, #"{ "stage": "segment", "name": "a" }"#))
    #expect(named.namedMattes == ["a"])
  }
}
