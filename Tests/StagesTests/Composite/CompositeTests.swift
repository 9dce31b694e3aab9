import Imaging
import PipelineKit
import Stages
import TestSupport
import Testing

@Suite struct CompositeTests {
  let bench = StageBench()

  private func composite(_ background: String, _ item: Item, _ more: String = "") throws -> Item {
    try bench.process(Composite.self, "{ \"stage\": \"composite\", \"background\": \(background)\(more) }", item)
  }

  /// A cut-out whose alpha runs through all values, 0…255, over one colour.
  private func ramp() throws -> Item {
    let picture = try Pictures.image(256, 2, bands: 4) { x, _ in [201, 34, 7, UInt8(x)] }
    return bench.item(picture).with(
      image: picture, matte: try picture.alphaBand(), original: try Pictures.solid(256, 2, 201, 34, 7))
  }

  @Test(
    "white is white where the subject is not, and the subject's colour where it is opaque",
    arguments: [
      ("white", [255, 255, 255]), ("#000", [0, 0, 0]), ("rebeccapurple", [102, 51, 153]),
    ] as [(String, [UInt8])])
  func color(name: String, behind: [UInt8]) throws {
    let image = try composite("{ \"color\": \"\(name)\" }", ramp()).image()
    #expect(image.bands == 3)
    let pixels = try image.bytes()
    #expect(Array(pixels[..<3]) == behind)
    #expect(Array(pixels[(255 * 3)..<(256 * 3)]) == [201, 34, 7])
    // Porter-Duff "over": s · a + b · (1 − a), in between to the level.
    let front = [201.0, 34, 7]
    for alpha in 0..<256 {
      for band in 0..<3 {
        let exact = (front[band] * Double(alpha) + Double(behind[band]) * Double(255 - alpha)) / 255
        #expect(abs(Double(pixels[alpha * 3 + band]) - exact) <= 1, "alpha \(alpha)")
      }
    }
  }

  @Test("transparent passes colours and alpha as they are")
  func transparent() throws {
    let item = try ramp()
    let result = try composite(#"{ "color": "transparent" }"#, item)
    #expect(try result.pixels() == item.pixels())
    // The mask goes along for later stages.
    #expect(result.matte != nil)
  }

  @Test("a half-transparent colour keeps transparency, and opaque pixels stay exact")
  func partlyTransparent() throws {
    let image = try composite(##"{ "color": "#0000ff80" }"##, ramp()).image()
    let pixels = try image.bytes()
    #expect(image.bands == 4)
    #expect(Array(pixels[..<4]) == [0, 0, 255, 128])
    #expect(Array(pixels[(255 * 4)..<(256 * 4)]) == [201, 34, 7, 255])
    // alpha 102 over 128: a = 102 + 128 · 153 / 255 = 178.8; r = 201 · 102 / 178.8 = 114.66;
    // b = (7 · 102 + 255 · 76.8) / 178.8 = 113.52.
    let middle = Array(pixels[(102 * 4)..<(102 * 4 + 4)])
    #expect(middle.isNear([115, 19, 114, 179], 1), "\(middle)")
  }

  // MARK: Gradients

  private func empty(_ width: Int, _ height: Int) throws -> Item {
    let picture = try Pictures.solid(width, height, 9, 9, 9, 0)
    return bench.item(picture).with(
      image: picture, matte: try Pictures.solid(width, height, 0), original: try Pictures.solid(width, height, 9, 9, 9))
  }

  @Test(
    "a gradient's end colours are exact, and it runs the way CSS says",
    arguments: [
      (90, (0, 10), (299, 10)), (270, (299, 10), (0, 10)), (180, (150, 0), (150, 19)), (0, (150, 19), (150, 0)),
    ])
  func gradientEnds(angle: Int, first: (Int, Int), last: (Int, Int)) throws {
    let result = try composite(
      ##"{ "gradient": { "from": "#10c8ff", "to": "#f03200", "angle": \##(angle) } }"##, empty(300, 20))
    let pixels = try result.pixels()
    func pixel(_ place: (Int, Int)) -> [UInt8] {
      let start = (place.1 * 300 + place.0) * 3
      return Array(pixels[start..<start + 3])
    }
    #expect(pixel(first) == [0x10, 0xc8, 0xff])
    #expect(pixel(last) == [0xf0, 0x32, 0x00])
  }

  @Test("levels between two values are dithered: no bands, and the average is right")
  func gradientDither() throws {
    // 16 levels over 1,600 columns: without dither, bands of 100 columns.
    let result = try composite(
      ##"{ "gradient": { "from": "#202020", "to": "#303030", "angle": 90 } }"##, empty(1600, 64))
    let pixels = try result.pixels()
    var mixedColumns = 0
    for x in 0..<1600 {
      let column = (0..<64).map { Int(pixels[($0 * 1600 + x) * 3]) }
      let exact = 32 + 16 * Double(x) / 1599
      let mean = Double(column.reduce(0, +)) / 64
      #expect(abs(mean - exact) < 0.35, "column \(x): \(mean) instead of \(exact)")
      #expect(column.allSatisfy { abs(Double($0) - exact) < 1 })
      if Set(column).count == 2 { mixedColumns += 1 }
    }
    #expect(mixedColumns > 1400)
  }

  @Test("stops stand where they are put, and without a place lie evenly between their neighbours")
  func gradientStops() throws {
    let result = try composite(
      ##"""
      { "gradient": { "angle": 90, "stops": [
        { "color": "#ff0000" }, { "color": "#00ff00" }, { "color": "#0000ff", "at": 0.8 }, { "color": "#ffffff" } ] } }
      """##, empty(101, 1))
    let pixels = try result.pixels()
    for (x, color) in [(0, [255, 0, 0]), (40, [0, 255, 0]), (80, [0, 0, 255]), (100, [255, 255, 255])]
      as [(Int, [UInt8])]
    {
      #expect(Array(pixels[x * 3..<x * 3 + 3]).isNear(color, 1), "column \(x)")
    }
  }

  @Test("a radial gradient starts at its centre and ends in the farthest corner")
  func radial() throws {
    let result = try composite(
      ##"{ "gradient": { "kind": "radial", "from": "#ffffff", "to": "#000000", "centerX": 0, "centerY": 0 } }"##,
      empty(31, 41))
    let pixels = try result.pixels()
    #expect(Array(pixels[..<3]) == [255, 255, 255])
    #expect(Array(pixels[(pixels.count - 3)...]) == [0, 0, 0])
    // The corner is 50 away (30, 40), so 25 along the top is the middle.
    #expect(Array(pixels[25 * 3..<25 * 3 + 3]).isNear([127, 127, 127], 2))
  }

  // MARK: Pictures

  @Test("a background picture is scaled to each picture's sides, enlarged where it must be")
  func image() throws {
    // Left half blue, right half yellow.
    let studio = try Pictures.image(20, 10) { x, _ in x < 10 ? Pictures.blue : Pictures.yellow }
    bench.folder.write(try Pictures.png(studio), to: "studio/wall.png")
    let stage = try bench.make(
      Composite.self, #"{ "stage": "composite", "background": { "image": { "path": "studio/wall.png" } } }"#)
    for (width, height) in [(40, 20), (80, 80), (40, 20), (8, 4)] {
      guard case .next(let result) = try stage.process(empty(width, height), in: bench.context()) else {
        Issue.record("not passed on")
        return
      }
      let pixels = try result.pixels()
      #expect(pixels.count == width * height * 3)
      #expect(Array(pixels[..<3]).isNear(Pictures.blue, 2), "\(width)×\(height)")
      #expect(Array(pixels[(pixels.count - 3)...]).isNear(Pictures.yellow, 2), "\(width)×\(height)")
    }
  }

  @Test("contain shows the whole background picture on a colour")
  func imageContain() throws {
    bench.folder.write(try Pictures.png(Pictures.solid(20, 10, 1, 2, 3)), to: "wall.png")
    let result = try composite(
      ##"{ "image": { "path": "wall.png", "fit": "contain", "color": "#0a0b0c", "position": "bottom" } }"##,
      empty(20, 20))
    let pixels = try result.pixels()
    #expect(Array(pixels[..<3]) == [10, 11, 12])
    #expect(Array(pixels[(pixels.count - 3)...]) == [1, 2, 3])
  }

  @Test(
    "a background that is missing or no picture stops the run before it starts, by name",
    arguments: [
      ("gone.png", nil), ("notes.png", "just text"),
    ] as [(String, String?)])
  func imageMissing(name: String, content: String?) throws {
    if let content { bench.folder.write(content, to: name) }
    let settings = try StageBench.settings(
      Composite.self, "{ \"stage\": \"composite\", \"background\": { \"image\": { \"path\": \"\(name)\" } } }")
    let resources = StageResources(run: bench.run, computeWorkers: 1, facts: RunFacts())
    let error = try #require(throws: StageError.self) { try Composite(settings, resources: resources) }
    #expect(error.kind == .environment)
    #expect(error.message.contains(bench.folder[name]))
    #expect(Composite.plan(settings).helperFiles == [name])
  }

  @Test("the blurred original does not glow with the subject")
  func originalBlur() throws {
    func isSubject(_ x: Int, _ y: Int) -> Bool { (30..<70).contains(x) && (30..<70).contains(y) }
    let photo = try Pictures.image(100, 100) { x, y in isSubject(x, y) ? [250, 10, 10] : [10, 60, 200] }
    let matte = try Pictures.image(100, 100, bands: 1) { x, y in [isSubject(x, y) ? 255 : 0] }
    let item = bench.item(photo).with(image: try photo.withAlpha(matte), matte: matte, original: photo)
    let pixels = try composite(#"{ "original": { "blur": 8 } }"#, item).pixels()
    for y in 0..<100 {
      for x in 0..<100 {
        let start = (y * 100 + x) * 3
        let wanted: [UInt8] = isSubject(x, y) ? [250, 10, 10] : [10, 60, 200]
        #expect(Array(pixels[start..<start + 3]).isNear(wanted, isSubject(x, y) ? 0 : 2), "\(x),\(y)")
      }
    }
  }

  // MARK: Transparency that pictures bring along

  @Test("with existingAlpha a picture's own transparency counts, and one without passes with a warning")
  func existingAlpha() throws {
    let json = #"{ "stage": "composite", "background": { "color": "black" }, "existingAlpha": true }"#
    #expect(try Composite.plan(StageBench.settings(Composite.self, json)).acceptsAny.isEmpty)
    let own = try Pictures.image(2, 1, bands: 4) { x, _ in [50, 60, 70, x == 0 ? 0 : 255] }
    for item in [bench.item(own), try bench.decoded(bench.item(holding: Pictures.png(own), name: "own.png"))] {
      let journal = ItemJournal()
      let result = try bench.process(Composite.self, json, item, journal: journal)
      #expect(try result.pixels() == [0, 0, 0, 50, 60, 70])
      #expect(journal.warningCodes.isEmpty)
    }
    let opaque = try Pictures.solid(2, 1, 50, 60, 70)
    for item in [bench.item(opaque), try bench.decoded(bench.item(holding: Pictures.png(opaque), name: "opaque.png"))] {
      let journal = ItemJournal()
      let result = try bench.process(Composite.self, json, item, journal: journal)
      #expect(try result.pixels() == opaque.bytes())
      #expect(journal.warningCodes == ["no-alpha"])
    }
  }

  @Test("a mask as picture stands for the photo it was made from")
  func maskAsPicture() throws {
    let matte = try Pictures.image(2, 1, bands: 1) { x, _ in [x == 0 ? 0 : 255] }
    let item = bench.item(matte).with(image: matte, matte: matte, original: try Pictures.solid(2, 1, 50, 60, 70))
    #expect(try composite(#"{ "color": "white" }"#, item).pixels() == [255, 255, 255, 50, 60, 70])
  }

  @Test("the picture's metadata stays")
  func metadata() throws {
    let exif = Metadata.exif(texts: [(0x8298, "Jane Doe 2026")])
    let jpeg = Metadata.jpeg(try Pictures.jpeg(Pictures.quarters()), exif: exif)
    let item = try bench.decoded(bench.item(holding: jpeg, name: "a.jpg"))
    let photo = try item.image()
    let matte = try Pictures.image(64, 48, bands: 1) { x, _ in [UInt8(x * 4)] }
    let cutout = item.with(image: try photo.withAlpha(matte), matte: matte, original: photo)
    let result = try composite(#"{ "color": "white" }"#, cutout)
    let encoded = try bench.process(Encode.self, #"{ "stage": "encode", "format": "jpeg" }"#, result)
    #expect(try #require(encoded.encoded).bytes.array.contains("Jane Doe 2026"))
  }

  @Test(
    "what a chain may expect afterwards follows from the background",
    arguments: [
      (##"{ "color": "#fff" }"##, false), (##"{ "color": "#ffffff00" }"##, true),
      (#"{ "color": "transparent" }"#, true),
      (#"{ "gradient": { "from": "white", "to": "transparent" } }"#, true),
      (#"{ "gradient": { "from": "white", "to": "black" } }"#, false), (#"{ "original": { "blur": 5 } }"#, false),
    ])
  func traits(background: String, keepsAlpha: Bool) throws {
    let plan = Composite.plan(
      try StageBench.settings(Composite.self, "{ \"stage\": \"composite\", \"background\": \(background) }"))
    #expect(plan.produces.contains(.alpha) == keepsAlpha)
    #expect(plan.removes.contains(.alpha))
    #expect(plan.acceptsAny == [.alpha, .matte])
  }

  @Test(
    "settings that contradict each other are found by lint",
    arguments: [
      ("{ }", "missing-key", "$.background"),
      (#"{ "color": "white", "original": { "blur": 5 } }"#, "conflicting-keys", "$.background.original"),
      (#"{ "color": "whitte" }"#, "wrong-value", "$.background.color"),
      (#"{ "gradient": { "from": "white" } }"#, "missing-key", "$.background.gradient.from"),
      (#"{ "gradient": { "stops": [{ "color": "white" }] } }"#, "out-of-range", "$.background.gradient.stops"),
      (
        #"{ "gradient": { "to": "red", "stops": [{ "color": "white" }, { "color": "red" }] } }"#, "conflicting-keys",
        "$.background.gradient.to"
      ),
      (
        #"{ "gradient": { "stops": [{ "color": "white", "at": 0.5 }, { "color": "red", "at": 0.4 }] } }"#,
        "out-of-range", "$.background.gradient.stops[1].at"
      ),
      (
        #"{ "gradient": { "stops": [{ "at": 0.5 }, { "color": "red" }] } }"#, "missing-key",
        "$.background.gradient.stops[0]"
      ),
      (
        #"{ "gradient": { "kind": "radial", "from": "white", "to": "red", "angle": 3 } }"#, "not-applicable",
        "$.background.gradient.angle"
      ),
      (#"{ "image": { "fit": "cover" } }"#, "missing-key", "$.background.image"),
      (#"{ "image": { "path": "a.png", "fit": "inside" } }"#, "unknown-value", "$.background.image.fit"),
      (
        #"{ "image": { "path": "a.png", "fit": "contain", "position": "entropy" } }"#, "not-applicable",
        "$.background.image.position"
      ),
      (#"{ "original": { } }"#, "missing-key", "$.background.original"),
      (#"{ "original": { "blur": 0 } }"#, "out-of-range", "$.background.original.blur"),
    ])
  func lint(background: String, code: String, path: String) throws {
    let findings = try StageBench.lint(Composite.self, "{ \"stage\": \"composite\", \"background\": \(background) }")
    #expect(findings.map(\.code) == [code])
    #expect(findings.first?.path == path)
  }

  @Test("a blurred original needs a cut-out made in the chain")
  func lintOriginalWithExistingAlpha() throws {
    let findings = try StageBench.lint(
      Composite.self, #"{ "stage": "composite", "background": { "original": { "blur": 5 } }, "existingAlpha": true }"#)
    #expect(findings.map(\.path) == ["$.existingAlpha"])
  }
}
