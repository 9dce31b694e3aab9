import Imaging
import PipelineKit
import Stages
import TestSupport
import Testing

@Suite struct TrimTests {
  let bench = StageBench()

  @Test("a cut-out is trimmed to its subject with mask and photo; a margin is the same on all sides")
  func subject() throws {
    let item = try bench.cutout(60, 50, subject: Rectangle(x: 4, y: 20, width: 40, height: 10))
    let bare = try bench.run(Trim.self, #"{ "stage": "trim" }"#, item)
    #expect(bare.size! == (40, 10))
    #expect(try bare.image().pixel(0, 0) == [4, 20, 9, 255])
    #expect(try bare.matte?.bytes().allSatisfy { $0 == 255 } == true)
    #expect(try bare.original?.pixel(39, 9) == [43, 29, 7])
    // 20 % of 40 is 8: four columns at the left are added, the rest is there.
    let framed = try bench.run(Trim.self, #"{ "stage": "trim", "margin": "20%" }"#, item)
    #expect(framed.size! == (56, 26))
    let (picture, matte, original) = (try framed.image(), try #require(framed.matte), try #require(framed.original))
    for y in 0..<26 {
      for x in 0..<56 {
        let (u, v) = (x - 4, y + 12)
        let isSubject = (8..<48).contains(x) && (8..<18).contains(y)
        #expect(try picture.pixel(x, y)[3] == (isSubject ? 255 : 0))
        #expect(try matte.pixel(x, y) == [isSubject ? 255 : 0])
        #expect(try original.pixel(x, y) == [UInt8(max(0, u)), UInt8(v), 7])
      }
    }
  }

  @Test("a border of one colour goes, within the threshold")
  func border() throws {
    let image = try Pictures.image(50, 40) { x, y in
      (10..<30).contains(x) && (5..<35).contains(y) ? [20, 120, 30] : [UInt8(250 + (x + y) % 6), 252, 252]
    }
    let result = try bench.run(Trim.self, #"{ "stage": "trim" }"#, bench.item(image))
    #expect(result.size! == (20, 30))
    #expect(try result.pixels().isNear(Array([[UInt8]](repeating: [20, 120, 30], count: 600).joined()), 0))
    let strict = try bench.run(Trim.self, #"{ "stage": "trim", "threshold": 0 }"#, bench.item(image))
    #expect(strict.size! == (50, 40))
    let named = try bench.run(
      Trim.self, ##"{ "stage": "trim", "by": "color", "color": "#14781e", "onEmpty": "keep" }"##, bench.item(image))
    #expect(named.size! == (50, 40))
  }

  @Test("a picture that is all border fails, or stays with a warning")
  func empty() throws {
    let item = bench.item(try Pictures.solid(20, 10, 255, 255, 255))
    #expect(try bench.failure(of: Trim.self, #"{ "stage": "trim" }"#, item).code == "trim-empty")
    let journal = ItemJournal()
    let kept = try bench.run(Trim.self, #"{ "stage": "trim", "onEmpty": "keep" }"#, item, journal: journal)
    #expect(kept.size! == (20, 10) && journal.warningCodes == ["trim-empty"])
    let speck = bench.item(try Pictures.image(20, 10) { x, y in (x, y) == (3, 3) ? [0, 0, 0] : [255, 255, 255] })
    #expect(try bench.run(Trim.self, #"{ "stage": "trim" }"#, speck).size! == (1, 1))
    #expect(try bench.failure(of: Trim.self, #"{ "stage": "trim", "minSize": 2 }"#, speck).code == "trim-empty")
    let clear = bench.item(try Pictures.solid(20, 10, 1, 2, 3, 0))
    #expect(try bench.failure(of: Trim.self, #"{ "stage": "trim" }"#, clear).message.contains("transparent"))
  }

  @Test("frames are cut to the box of what any of them shows")
  func frames() throws {
    let item = try bench.animation(3, 60, 30) { frame, x, y in
      (10 + 10 * frame..<18 + 10 * frame).contains(x) && (8..<12).contains(y) ? [200, 0, 0] : [255, 255, 255]
    }
    let frames = try bench.run(Trim.self, #"{ "stage": "trim" }"#, item).frames()
    #expect(frames.allSatisfy { ($0.image.width, $0.image.height) == (28, 4) })
    for (index, frame) in frames.enumerated() {
      #expect(try frame.image.pixel(10 * index, 0) == [200, 0, 0])
    }
  }

  @Test("an animation that begins with a full frame is told by the transparency of its others")
  func laterTransparency() throws {
    let frames = try (0..<2).map { frame in
      ItemFrames.Frame(
        image: try Pictures.image(20, 10, bands: 4) { x, _ in [1, 2, 3, frame == 0 || x < 5 ? 255 : 0] })
    }
    let item = bench.item(frames[1].image)
    let second = item.with(animation: ItemFrames(frames: [frames[1], frames[1]], delays: [1, 1], loop: 0))
    #expect(try bench.run(Trim.self, #"{ "stage": "trim" }"#, second).size! == (5, 10))
    // All of the first frame is content.
    let both = item.with(animation: ItemFrames(frames: frames, delays: [1, 1], loop: 0))
    #expect(try bench.run(Trim.self, #"{ "stage": "trim" }"#, both).size! == (20, 10))
  }

  @Test("a mask as picture is trimmed to what is bright in it")
  func mask() throws {
    let matte = try Pictures.image(30, 30, bands: 1) { x, y in [(5..<9).contains(x) && y == 12 ? 200 : 10] }
    let item = bench.item(matte).with(image: matte, matte: matte, original: nil)
    let result = try bench.run(Trim.self, #"{ "stage": "trim", "margin": 1 }"#, item)
    #expect(result.size! == (6, 3))
    #expect(try result.matte?.bytes() == result.pixels())
  }

  @Test("lint tells what cannot be meant")
  func lint() throws {
    #expect(try StageBench.findings(Trim.self, "") == [])
    #expect(try StageBench.findings(Trim.self, #""color": "transparent""#) == ["wrong-value"])
    #expect(try StageBench.findings(Trim.self, #""by": "alpha", "color": "white""#) == ["not-applicable"])
    #expect(try StageBench.findings(Trim.self, #""margin": "8 %""#) == ["wrong-value"])
    #expect(try StageBench.findings(Trim.self, #""threshold": 256"#) == ["out-of-range"])
  }
}
