import Imaging
import PipelineKit
import Stages
import TestSupport
import Testing

/// Where and how the subject stands on its background.
@Suite struct CompositeSubjectTests {
  let bench = StageBench()

  private func composite(_ subject: String, _ item: Item, _ more: String = "") throws -> Item {
    try bench.process(
      Composite.self,
      ##"{ "stage": "composite", "background": { "color": "#010203" }, "subject": \##(subject)\##(more) }"##, item)
  }

  /// An opaque subject that fills its picture.
  private func full(_ width: Int = 8, _ height: Int = 4) throws -> Item {
    let photo = try Pictures.solid(width, height, 200, 100, 40)
    let matte = try Pictures.solid(width, height, 255)
    return bench.item(photo).with(image: try photo.withAlpha(matte), matte: matte, original: photo)
  }

  /// The box, x, y, width and height, of the pixels that are not the background's colour.
  private func box(_ image: Image) throws -> [Int] {
    let pixels = try image.bytes()
    var (left, top, right, bottom) = (Int.max, Int.max, -1, -1)
    for y in 0..<image.height {
      for x in 0..<image.width {
        let start = (y * image.width + x) * image.bands
        guard Array(pixels[start..<start + 3]) != [1, 2, 3] else { continue }
        (left, top, right, bottom) = (min(left, x), min(top, y), max(right, x), max(bottom, y))
      }
    }
    return right < 0 ? [] : [left, top, right - left + 1, bottom - top + 1]
  }

  @Test(
    "scale, position and shift say where the picture stands on a canvas of its own sides",
    arguments: [
      (#"{ "scale": 0.5 }"#, [10, 5, 20, 10]), (#"{ "scale": 0.5, "position": "bottom" }"#, [10, 10, 20, 10]),
      (#"{ "scale": 0.5, "position": "top-left" }"#, [0, 0, 20, 10]),
      (#"{ "scale": 0.5, "position": "right", "shiftX": -0.1 }"#, [16, 5, 20, 10]),
      (#"{ "shiftX": 0.25, "shiftY": -0.5 }"#, [10, 0, 30, 10]),
      (#"{ "scale": 2, "enlarge": true }"#, [0, 0, 40, 20]),
      // 0.33 · 40 = 13.2, 0.33 · 20 = 6.6 → 13 × 7, of which 13 is 7 · 40 / 20 = 14 too wide; so 13 × 6.5 → 13 × 7.
      (#"{ "scale": 0.33, "position": "top-left" }"#, [0, 0, 13, 7]),
    ])
  func placed(subject: String, expected: [Int]) throws {
    let result = try composite(subject, full(40, 20))
    let image = try result.image()
    #expect((image.width, image.height, image.bands) == (40, 20, 3))
    #expect(try box(image) == expected)
    let start = (expected[1] * 40 + expected[0]) * 3
    #expect(Array(try image.bytes()[start..<start + 3]) == [200, 100, 40], "a flat subject stays exact when scaled")
    // Mask and photo move along; the photo's edge goes on.
    let matte = try #require(result.matte)
    let mask = try matte.bytes()
    for y in 0..<20 {
      for x in 0..<40 {
        let isInside =
          (expected[0]..<expected[0] + expected[2]).contains(x) && (expected[1]..<expected[1] + expected[3]).contains(y)
        #expect(mask[y * 40 + x] == (isInside ? 255 : 0), "\(x),\(y)")
      }
    }
    let original = try #require(result.original)
    #expect((original.width, original.height) == (40, 20))
    #expect(Array(try original.bytes().prefix(3)) == [200, 100, 40])
  }

  @Test("a subject that would stand beside its canvas fails its item")
  func beside() throws {
    let error = try bench.failure(
      of: Composite.self,
      ##"{ "stage": "composite", "background": { "color": "white" }, "subject": { "shiftX": 1 } }"##, full())
    #expect(error.code == "geometry")
    #expect(error.message.contains("beside its canvas"))
  }

  @Test("the canvas is that of the background picture where asked: large pictures are made to fit, small ones stay")
  func backgroundCanvas() throws {
    bench.folder.write(try Pictures.png(Pictures.solid(60, 30, 1, 2, 3)), to: "scene.png")
    func stand(_ subject: String, _ item: Item) throws -> [Int] {
      let image = try bench.process(
        Composite.self,
        """
        { "stage": "composite", "background": { "image": { "path": "scene.png" } }, "canvas": "background"\(subject) }
        """, item
      ).image()
      #expect((image.width, image.height) == (60, 30))
      return try box(image)
    }
    #expect(try stand("", full(8, 4)) == [26, 13, 8, 4])
    #expect(try stand("", full(100, 60)) == [5, 0, 50, 30])
    #expect(
      try stand(#", "subject": { "scale": 0.5, "position": "bottom-right" }"#, full(100, 60)) == [35, 15, 25, 15])
    #expect(try stand(#", "subject": { "enlarge": true }"#, full(8, 4)) == [0, 0, 60, 30])
    // Twice the canvas, and half of it sticks out on all sides.
    #expect(try stand(#", "subject": { "scale": 2, "position": "bottom" }"#, full(100, 60)) == [0, 0, 60, 30])
    // The lowest picture among layers gives the canvas.
    bench.folder.write(try Pictures.png(Pictures.solid(10, 10, 255, 255, 255)), to: "small.png")
    let layered = try bench.process(
      Composite.self,
      ##"""
      { "stage": "composite", "canvas": "background", "background": { "layers": [ { "color": "red" },
        { "image": { "path": "scene.png" } }, { "image": { "path": "small.png" }, "blend": "multiply" } ] } }
      """##, full(8, 4)
    ).image()
    #expect(try box(layered) == [26, 13, 8, 4])
  }

  @Test("with a canvas of the background's, an opaque picture is laid on it whole, without a warning")
  func opaqueCard() throws {
    bench.folder.write(try Pictures.png(Pictures.solid(60, 30, 1, 2, 3)), to: "scene.png")
    let json = #"""
      { "stage": "composite", "background": { "image": { "path": "scene.png" } }, "canvas": "background",
        "existingAlpha": true }
      """#
    let opaque = try Pictures.solid(8, 4, 50, 60, 70)
    for item in [bench.item(opaque), try bench.decoded(bench.item(holding: Pictures.png(opaque), name: "opaque.png"))] {
      let journal = ItemJournal()
      let image = try bench.process(Composite.self, json, item, journal: journal).image()
      #expect((image.width, image.height, image.bands) == (60, 30, 3))
      #expect(try box(image) == [26, 13, 8, 4])
      #expect(journal.warningCodes.isEmpty)
    }
  }

  @Test(
    "opacity and mode of the subject",
    arguments: [
      // 200 · 0.502 + 1 · 0.498, …
      (#"{ "opacity": 0.5 }"#, [101, 51, 22]),
      // 200 · 1 / 255, 100 · 2 / 255, 40 · 3 / 255.
      (#"{ "blend": "multiply" }"#, [1, 1, 0]), (#"{ "blend": "screen" }"#, [200, 101, 43]),
      (#"{ "blend": "dest-over" }"#, [1, 2, 3]),
    ] as [(String, [UInt8])])
  func look(subject: String, expected: [UInt8]) throws {
    #expect(Array(try composite(subject, full()).pixels().prefix(3)) == expected)
  }

  @Test("a mode that makes transparency says so")
  func traits() throws {
    for (mode, keepsAlpha) in [("multiply", false), ("in", true), ("atop", false), ("xor", true)] {
      let plan = Composite.plan(
        try StageBench.settings(
          Composite.self,
          ##"{ "stage": "composite", "background": { "color": "red" }, "subject": { "blend": "\##(mode)" } }"##))
      #expect(plan.produces.contains(.alpha) == keepsAlpha, "\(mode)")
    }
  }

  @Test("on nothing the subject is moved and keeps its transparency")
  func transparent() throws {
    let result = try bench.process(
      Composite.self,
      ##"{ "stage": "composite", "background": { "color": "transparent" }, "subject": { "shiftX": 0.5 } }"##, full(4, 1)
    )
    #expect(try result.pixels() == [0, 0, 0, 0, 0, 0, 0, 0, 200, 100, 40, 255, 200, 100, 40, 255])
  }

  @Test("frames of an animation are placed alike")
  func animation() throws {
    let item = try full(8, 4)
    let frames = try (0..<3).map { index in
      ItemFrames.Frame(image: try Pictures.solid(8, 4, 200, UInt8(index), 40, 255))
    }
    let stage = try bench.make(
      Composite.self,
      ##"""
      { "stage": "composite", "background": { "layers": [{ "color": "#010203" }, { "color": "#0102034d" }] },
        "subject": { "scale": 0.5, "position": "bottom-left" }, "existingAlpha": true }
      """##)
    let animated = item.with(animation: ItemFrames(frames: frames, delays: [10, 20, 30], loop: 0))
    guard case .next(let result) = try stage.processFrames(animated, .each, in: bench.context()),
      case .animation(let after) = result.picture
    else {
      Issue.record("not an animation")
      return
    }
    #expect(after.delays == [10, 20, 30])
    for frame in after.frames { #expect(try box(frame.image) == [0, 2, 4, 2]) }
    #expect(try after.frames.map { try $0.image.bytes()[(2 * 8) * 3 + 1] } == [0, 1, 2])
  }

  @Test(
    "settings that make no sense are found by lint",
    arguments: [
      (#""subject": { }"#, "missing-key", "$.subject"),
      (#""subject": { "scale": 1.5 }"#, "not-applicable", "$.subject.scale"),
      (#""subject": { "scale": 0.5, "enlarge": true }"#, "not-applicable", "$.subject.enlarge"),
      (#""subject": { "position": "left" }"#, "not-applicable", "$.subject.position"),
      (#""subject": { "position": "entropy", "scale": 0.5 }"#, "unknown-value", "$.subject.position"),
      (#""subject": { "blend": "clear" }"#, "wrong-value", "$.subject.blend"),
      (#""canvas": "background""#, "not-applicable", "$.canvas"),
    ])
  func lint(more: String, code: String, path: String) throws {
    let findings = try StageBench.lint(
      Composite.self, "{ \"stage\": \"composite\", \"background\": { \"color\": \"white\" }, \(more) }")
    #expect(findings.map(\.code) == [code])
    #expect(findings.first?.path == path)
  }

  @Test(
    "a canvas of the background's goes with a picture that is not fitted, and not with the photo",
    arguments: [
      (#"{ "image": { "path": "a.png", "fit": "contain" } }"#, "$.background.image.fit"),
      (#"{ "image": { "path": "a.png", "position": "left" } }"#, "$.background.image.position"),
      (
        #"{ "layers": [{ "image": { "path": "a.png" } }, { "original": { "blur": 3 }, "opacity": 0.5 }] }"#,
        "$.background.layers[1].original"
      ),
    ])
  func lintCanvas(background: String, path: String) throws {
    let findings = try StageBench.lint(
      Composite.self, "{ \"stage\": \"composite\", \"background\": \(background), \"canvas\": \"background\" }")
    #expect(findings.map(\.code) == ["not-applicable"])
    #expect(findings.first?.path == path)
  }
}
