import Imaging
import PipelineKit
import Stages
import TestSupport
import Testing

@Suite struct FrameTests {
  let bench = StageBench()

  private func frame(_ members: String, _ item: Item, journal: ItemJournal = ItemJournal()) throws -> Item {
    let json = "{ \"stage\": \"frame\"\(members.isEmpty ? "" : ", ")\(members) }"
    return try bench.run(Frame.self, json, item, journal: journal)
  }

  /// The box of what is opaque.
  private func box(_ image: Image) throws -> Rectangle? { try image.subject(threshold: 127, speck: 0)?.box }

  @Test("on a ratio the subject is not scaled, and mask and photo go along")
  func ratio() throws {
    let item = try bench.cutout(60, 50, subject: Rectangle(x: 4, y: 20, width: 34, height: 10))
    let result = try frame(#""canvas": "2:1", "fill": 0.85"#, item)
    // 34 / 0.85.
    #expect(result.size! == (40, 20))
    let (picture, matte, original) = (try result.image(), try #require(result.matte), try #require(result.original))
    for y in 0..<20 {
      for x in 0..<40 {
        let (u, v) = (x + 1, y + 15)
        let isSubject = (3..<37).contains(x) && (5..<15).contains(y)
        #expect(try picture.pixel(x, y)[3] == (isSubject ? 255 : 0))
        if isSubject { #expect(try picture.pixel(x, y) == [UInt8(u), UInt8(v), 9, 255]) }
        #expect(try matte.pixel(x, y) == [isSubject ? 255 : 0])
        #expect(try original.pixel(x, y) == [UInt8(u), UInt8(v), 7])
      }
    }
  }

  struct Case: Sendable, CustomStringConvertible {
    var settings: String
    var size: [Int]
    var box: Rectangle
    var description: String { settings }
    init(_ settings: String, _ size: [Int], _ x: Int, _ y: Int, _ width: Int, _ height: Int) {
      (self.settings, self.size) = (settings, size)
      box = Rectangle(x: x, y: y, width: width, height: height)
    }
  }

  // A subject of 100 × 50 pixels.
  static let cases: [Case] = [
    Case("", [118, 118], 9, 34, 100, 50),
    Case(#""canvas": 60"#, [60, 60], 4, 17, 51, 26),
    Case(#""canvas": { "width": 80, "height": 30 }, "fill": 1"#, [80, 30], 10, 0, 60, 30),
    Case(#""canvas": 60, "fill": 0.5, "align": "bottom-right", "margin": "10%""#, [60, 60], 24, 39, 30, 15),
    Case(#""canvas": 60, "fill": 0.5, "align": { "y": "bottom" }"#, [60, 60], 15, 45, 30, 15),
    Case(#""canvas": 60, "align": "top", "margin": 10"#, [60, 60], 10, 10, 40, 20),
    Case(#""canvas": 200, "enlarge": true, "kernel": "cubic", "linear": true"#, [200, 200], 15, 57, 170, 85),
    Case(#""canvas": "4:1", "margin": 20, "align": "left""#, [360, 90], 20, 20, 100, 50),
  ]

  @Test("the subject stands where it should, as large as asked for", arguments: cases)
  func places(_ entry: Case) throws {
    let item = try bench.cutout(150, 90, subject: Rectangle(x: 13, y: 21, width: 100, height: 50))
    let result = try frame(entry.settings, item)
    let image = try result.image()
    #expect([image.width, image.height] == entry.size)
    let found = try #require(try box(image))
    #expect(abs(found.x - entry.box.x) <= 1 && abs(found.y - entry.box.y) <= 1, "\(found)")
    #expect(abs(found.width - entry.box.width) <= 1 && abs(found.height - entry.box.height) <= 1, "\(found)")
    #expect(result.matte.map { [$0.width, $0.height] } == entry.size)
    #expect(result.original.map { [$0.width, $0.height] } == entry.size)
    // The mask is where the alpha is; alpha is scaled in floating point, which overshoots more at corners.
    #expect(try result.matte?.bytes().isNear(image.alphaBand().bytes(), 24) == true)
  }

  @Test("the optical middle is that of the mass")
  func optical() throws {
    // A bar with a heavy end at the left.
    let image = try Pictures.image(120, 60, bands: 4) { x, y in
      let isSubject = (10..<30).contains(x) && (10..<50).contains(y) || (30..<110).contains(x) && (28..<32).contains(y)
      return [1, 2, 3, isSubject ? 255 : 0]
    }
    // 800 pixels at 10 and 320 at 60 from its left end: at 24.3 of 100.
    let item = bench.item(image)
    let middle = try frame(#""canvas": 200, "align": { "x": "optical" }"#, item)
    #expect(try box(middle.image()) == Rectangle(x: 76, y: 80, width: 100, height: 40))
    let edge = try frame(#""canvas": 200, "align": "optical", "margin": 50"#, item)
    #expect(try box(edge.image())?.x == 50)
  }

  @Test("a small subject is not enlarged: it stands smaller, with a warning, or is scaled where that is allowed")
  func small() throws {
    let item = try bench.cutout(60, 50, subject: Rectangle(x: 4, y: 20, width: 40, height: 10))
    let journal = ItemJournal()
    let result = try frame(#""canvas": 100"#, item, journal: journal)
    #expect(try box(result.image()) == Rectangle(x: 30, y: 45, width: 40, height: 10))
    #expect(try result.image().pixel(30, 45) == [4, 20, 9, 255])
    #expect(journal.warningCodes == ["subject-small"])
    #expect(journal.snapshot.warnings[0].message.contains("40×10 pixels and takes 40 % of the canvas's width"))
    let enlarged = ItemJournal()
    let large = try frame(#""canvas": 100, "enlarge": true"#, item, journal: enlarged)
    #expect(try (84...86).contains(box(large.image())?.width ?? 0) && enlarged.warningCodes.isEmpty)
  }

  @Test("specks and haze do not move the frame")
  func robust() throws {
    let image = try Pictures.image(100, 100, bands: 4) { x, y in
      let isSubject = (40..<60).contains(x) && (40..<60).contains(y)
      return [50, 60, 70, isSubject ? 255 : (x, y) == (2, 95) ? 255 : x < 10 ? 60 : 0]
    }
    let item = bench.item(image)
    #expect(try frame(#""fill": 1"#, item).size! == (20, 20))
    #expect(try frame(#""fill": 1, "specks": 0"#, item).size! == (58, 58))
    #expect(try frame(#""fill": 1, "threshold": 30"#, item).size! == (100, 100))
  }

  @Test("nothing to frame fails the item, with a hint")
  func empty() throws {
    let item = bench.item(try Pictures.solid(20, 10, 1, 2, 3, 64))
    let error = try bench.failure(of: Frame.self, #"{ "stage": "frame" }"#, item)
    #expect(error.code == "nothing-found" && error.kind == .item)
    #expect(error.message.contains("64 of 255") && error.hint?.contains("\"threshold\"") == true)
    #expect(try frame(#""threshold": 63, "fill": 1"#, item).size! == (20, 20))
  }

  // MARK: White

  private let shadows = #""shadow": { "contact": { "blur": 4 }, "drop": { "angle": 135, "blur": 5 } }"#

  @Test("on white, what is neither subject nor shadow is exactly white, and the subject's colours are exact")
  func white() throws {
    let item = try bench.cutout(120, 120, subject: Rectangle(x: 30, y: 20, width: 60, height: 80))
    let framed = try frame("\"canvas\": 160, \(shadows)", item)
    let alpha = try framed.image().alphaBand().bytes()
    let result = try bench.run(
      Composite.self, ##"{ "stage": "composite", "background": { "color": "#ffffff" } }"##, framed)
    let pixels = try result.pixels()
    #expect(try result.image().bands == 3)
    var (empty, shaded) = (0, 0)
    for at in alpha.indices {
      let pixel = Array(pixels[3 * at..<3 * at + 3])
      if alpha[at] == 0 {
        empty += 1
        #expect(pixel == [255, 255, 255])
      } else if alpha[at] < 255 {
        // The shadow is black: grey on white.
        shaded += 1
        #expect(Set(pixel) == [255 - alpha[at]])
      }
    }
    #expect(empty > 8_000 && shaded > 1_500, "\(empty), \(shaded)")
    // The box lies at 50, 40: the source's 30, 20.
    #expect(try result.image().pixel(50, 40) == [30, 20, 9])
    #expect(try result.image().pixel(109, 119) == [89, 99, 9])
  }

  @Test("in a JPEG too, in every block that neither reaches", arguments: [50, 75, 82, 90, 95, 100])
  func whiteJPEG(_ quality: Int) throws {
    let item = try bench.cutout(200, 200, subject: Rectangle(x: 50, y: 50, width: 100, height: 100))
    let framed = try frame(#""canvas": 256, "shadow": { "contact": {} }"#, item)
    let alpha = try framed.image().alphaBand().bytes()
    let white = try bench.run(
      Composite.self, ##"{ "stage": "composite", "background": { "color": "#ffffff" } }"##, framed)
    let encoded = try bench.run(
      Encode.self, "{ \"stage\": \"encode\", \"format\": \"jpeg\", \"quality\": \(quality) }", white)
    let bytes = try #require(encoded.encoded).bytes
    let back = try EncodedPicture(bytes: bytes).pixels().bytes()
    // Blocks of colour are 16 pixels wide, and the decoder smooths colour into the next.
    func isNear(_ x: Int, _ y: Int) -> Bool {
      (max(0, y - 16)..<min(256, y + 32)).contains { row in
        (max(0, x - 16)..<min(256, x + 32)).contains { alpha[row * 256 + $0] > 0 }
      }
    }
    var count = 0
    for y in stride(from: 0, to: 256, by: 16) {
      for x in stride(from: 0, to: 256, by: 16) where !isNear(x, y) {
        count += 1
        for row in y..<y + 16 {
          let start = 3 * (row * 256 + x)
          #expect(back[start..<start + 48].allSatisfy { $0 == 255 }, "\(x), \(row)")
        }
      }
    }
    #expect(count > 100, "\(count)")
  }

  @Test("a shadow lies under the subject, not on it, and not in the mask")
  func shadowBelow() throws {
    let item = try bench.cutout(100, 100, subject: Rectangle(x: 20, y: 20, width: 60, height: 60))
    let bare = try frame(#""canvas": 120"#, item)
    let cast = try frame(
      ##""canvas": 120, "shadow": { "drop": { "color": "#ff0000", "opacity": 1, "blur": 0, "offset": 10 } }"##, item)
    #expect(try cast.matte?.bytes() == bare.matte?.bytes())
    #expect(try cast.image().pixel(60, 89) == bare.image().pixel(60, 89))
    #expect(try cast.image().pixel(60, 90) == [255, 0, 0, 255])
    #expect(try cast.image().pixel(60, 100)[3] == 0)
    let faint = try frame(
      ##""canvas": 120, "shadow": { "drop": { "color": "#0000ff80", "opacity": 0.5, "blur": 0, "offset": 10 } }"##, item
    )
    #expect(try faint.image().pixel(60, 95) == [0, 0, 255, 64])
    // Two shadows cover more than one: 1 − (1 − a) · (1 − b).
    let drop = try frame(##""canvas": 120, "shadow": { "drop": {} }"##, item).image().alphaBand().bytes()
    let contact = try frame(##""canvas": 120, "shadow": { "contact": {} }"##, item).image().alphaBand().bytes()
    let both = try frame(##""canvas": 120, "shadow": { "drop": {}, "contact": {} }"##, item).image().alphaBand().bytes()
    for at in both.indices {
      let expected = 255 - (255 - Double(drop[at])) * (255 - Double(contact[at])) / 255
      #expect(abs(Double(both[at]) - expected) <= 1)
    }
  }

  // MARK: What comes before and after

  @Test("the photo behind the subject can still be its background")
  func original() throws {
    let item = try bench.cutout(60, 50, subject: Rectangle(x: 20, y: 20, width: 20, height: 10))
    let framed = try frame(#""canvas": 40, "shadow": { "contact": {} }"#, item)
    let result = try bench.run(
      Composite.self, #"{ "stage": "composite", "background": { "original": { "blur": 1 } } }"#, framed)
    #expect(result.size! == (40, 40))
    // Unscaled, at 10, 15 of the canvas: the photo at 3, 8 is that at 13, 13.
    #expect(try result.image().pixel(3, 8).isNear([13, 13, 7], 1))
    #expect(try result.image().pixel(20, 20) == [30, 25, 9])
  }

  @Test("frames of an animation are framed alike, by what any of them shows, each with its own shadow")
  func animation() throws {
    let frames = try (0..<3).map { frame in
      ItemFrames.Frame(
        image: try Pictures.image(60, 40, bands: 4) { x, y in
          let isSubject = (10 + 10 * frame..<20 + 10 * frame).contains(x) && (10..<20).contains(y)
          return [UInt8(x), UInt8(y), 5, isSubject && frame < 2 ? 255 : 0]
        })
    }
    let item = bench.item(frames[0].image)
      .with(animation: ItemFrames(frames: frames, delays: [1, 2, 3], loop: 0))
    let result = try frame(#""fill": 1, "margin": 10, "shadow": { "contact": { "blur": 1 } }"#, item).frames()
    // 20 pixels in the two frames that show anything, and the margins.
    #expect(result.allSatisfy { ($0.image.width, $0.image.height) == (40, 40) })
    #expect(try result[0].image.pixel(10, 15) == [10, 10, 5, 255])
    #expect(try result[0].image.pixel(20, 15)[3] == 0 && result[1].image.pixel(20, 15) == [20, 10, 5, 255])
    #expect(try result[0].image.pixel(15, 25)[3] > 60 && result[0].image.pixel(35, 25)[3] == 0)
    #expect(try result[1].image.pixel(25, 25)[3] > 60)
    #expect(try result[2].image.alphaBand().bytes().allSatisfy { $0 == 0 })
  }

  @Test("a mask as picture is framed itself, and takes no shadow")
  func mask() throws {
    let matte = try Pictures.image(30, 30, bands: 1) { x, y in [(5..<15).contains(x) && y == 12 ? 200 : 10] }
    let item = bench.item(matte).with(image: matte, matte: matte, original: nil)
    let result = try frame(#""fill": 0.5"#, item)
    #expect(result.size! == (20, 20))
    #expect(try result.matte?.bytes() == result.pixels())
    #expect(try result.image().pixel(5, 9) == [200] && result.image().pixel(4, 9) == [10])
    let error = try bench.failure(of: Frame.self, #"{ "stage": "frame", "shadow": { "contact": {} } }"#, item)
    #expect(error.code == "geometry" && error.kind == .job && error.message.contains("mask"))
  }

  @Test("a picture with a mask but no transparency is cut out by it; one without both counts as a whole")
  func withoutAlpha() throws {
    let photo = try Pictures.solid(40, 40, 10, 20, 30)
    let matte = try Pictures.image(40, 40, bands: 1) { x, _ in [x < 20 ? 255 : 0] }
    let item = bench.item(photo).with(image: photo, matte: matte, original: nil)
    let result = try frame(#""fill": 1, "canvas": "1:1""#, item)
    #expect(result.size! == (40, 40))
    #expect(try result.image().pixel(10, 20) == [10, 20, 30, 255] && result.image().pixel(9, 20)[3] == 0)
    let journal = ItemJournal()
    let whole = try frame(#""existingAlpha": true, "canvas": 100"#, bench.item(photo), journal: journal)
    #expect(try box(whole.image()) == Rectangle(x: 30, y: 30, width: 40, height: 40))
    #expect(journal.warningCodes == ["no-alpha", "subject-small"])
  }

  // MARK: Lint and plan

  @Test("the plan knows the sides, what it needs, and what it makes")
  func plan() throws {
    func plan(_ members: String) throws -> StagePlan {
      Frame.plan(try StageBench.settings(Frame.self, "{ \"stage\": \"frame\", \(members) }"))
    }
    let fixed = try plan(#""canvas": { "width": 800, "height": 600 }"#)
    #expect(try #require(fixed.resultSize?(100, 5000)) == (800, 600) && fixed.leastSide == 800)
    #expect(fixed.acceptsAny == [.alpha, .matte] && !fixed.produces.contains(.alpha))
    // At most: all of it is subject.
    let free = try plan(#""canvas": "1:1", "fill": 0.5, "shadow": { "contact": {} }"#)
    #expect(try #require(free.resultSize?(300, 100)) == (600, 600) && free.leastSide == nil)
    #expect(free.produces.contains(.alpha))
    #expect(free.workingBytes(1000, 1000) > fixed.workingBytes(1000, 1000))
    let own = try plan(#""existingAlpha": true"#)
    #expect(own.acceptsAny.isEmpty && own.produces.contains(.alpha))
  }

  @Test("lint tells what cannot be meant")
  func lint() throws {
    #expect(try StageBench.findings(Frame.self, "") == [])
    for (settings, code) in [
      (#""canvas": "1600""#, "wrong-value"), (#""canvas": 0"#, "out-of-range"),
      (#""canvas": { "width": 10 }"#, "missing-key"), (#""canvas": true"#, "wrong-type"),
      (#""canvas": "1:1", "enlarge": true"#, "not-applicable"), (#""linear": true"#, "not-applicable"),
      (#""kernel": "cubic""#, "not-applicable"), (#""fill": 1.1"#, "out-of-range"),
      (#""canvas": 100, "margin": 50"#, "out-of-range"), (#""margin": "50%""#, "out-of-range"),
      (#""align": "middle""#, "unknown-value"), (#""align": { "x": "top" }"#, "unknown-value"),
      (#""shadow": {}"#, "missing-key"), (#""shadow": { "drop": { "color": "transparent" } }"#, "wrong-value"),
      (#""shadow": { "contact": { "blur": 0 } }"#, "out-of-range"),
    ] {
      #expect(try StageBench.findings(Frame.self, settings) == [code], "\(settings)")
    }
    #expect(try StageBench.findings(Frame.self, #""canvas": 100, "margin": "49%""#) == [])
  }
}
