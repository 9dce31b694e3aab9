import Imaging
import PipelineKit
import Stages
import TestSupport
import Testing

/// Patterns, the photo itself, layers.
@Suite struct CompositeBackgroundTests {
  let bench = StageBench()

  private func composite(_ background: String, _ item: Item, _ more: String = "") throws -> Item {
    try bench.process(Composite.self, "{ \"stage\": \"composite\", \"background\": \(background)\(more) }", item)
  }

  /// A picture whose left half was cut away, from a photo of two colours.
  private func half(_ width: Int = 8, _ height: Int = 4) throws -> Item {
    let photo = try Pictures.image(width, height) { x, _ in x < width / 2 ? [200, 100, 40] : [10, 60, 250] }
    let matte = try Pictures.image(width, height, bands: 1) { x, _ in [x < width / 2 ? 0 : 255] }
    return bench.item(photo).with(image: try photo.withAlpha(matte), matte: matte, original: photo)
  }

  // MARK: Patterns

  @Test("a checker shows where the subject is not, and the subject's pixels come through exactly")
  func checker() throws {
    let result = try composite(
      ##"{ "pattern": { "colors": ["#0a0b0c", "#f0f1f2"], "size": 2, "offsetX": 1 } }"##, half())
    let pixels = try result.pixels()
    for y in 0..<4 {
      for x in 0..<8 {
        let isSecond = ((x - 1 + 8) / 2 + y / 2) % 2 == 1
        let expected: [UInt8] =
          x >= 4 ? [10, 60, 250] : isSecond == (8 / 2 % 2 == 1) ? [10, 11, 12] : [240, 241, 242]
        #expect(Array(pixels[(y * 8 + x) * 3..<(y * 8 + x) * 3 + 3]) == expected, "\(x),\(y)")
      }
    }
  }

  @Test("a checker's squares may be a share of the canvas")
  func checkerShare() throws {
    let image = try composite(##"{ "pattern": { "colors": ["black", "white"], "size": "25%" } }"##, half(80, 40))
      .image()
    let row = try (0..<40).map { try image.bytes()[$0 * 3] }
    #expect(row == (0..<40).map { $0 / 10 % 2 == 0 ? 0 : 255 })
  }

  @Test("a tile repeats from the corner, as large as it is or scaled")
  func tile() throws {
    let tile = try Pictures.image(2, 2) { x, y in [UInt8(x * 100), UInt8(y * 100), 7] }
    bench.folder.write(try Pictures.png(tile), to: "paper.png")
    let plain = try composite(#"{ "pattern": { "kind": "tile", "path": "paper.png", "offsetY": 1 } }"#, half()).pixels()
    #expect(Array(plain[..<12]) == [0, 100, 7, 100, 100, 7, 0, 100, 7, 100, 100, 7])
    #expect(Array(plain[24..<30]) == [0, 0, 7, 100, 0, 7])
    // A flat tile shows its size by its neighbour only: four pixels wide, of which the left two are dark.
    let bars = try Pictures.image(4, 4) { x, _ in x < 2 ? [0, 0, 0] : [255, 255, 255] }
    bench.folder.write(try Pictures.png(bars), to: "bars.png")
    let large = try composite(
      #"{ "pattern": { "kind": "tile", "path": "bars.png", "scale": 2 } }"#, half(32, 8)
    ).image().bytes()
    #expect(large[3] < 40 && large[3 * 6] > 215 && large[3 * 9] < 40, "dark to 3, light from 4, dark again from 8")
  }

  // MARK: The photo itself

  @Test(
    "the photo loses colour and light, without a blur to the level",
    arguments: [
      // Luma 0.2126 · 200 + 0.7152 · 100 + 0.0722 · 40 = 116.93.
      (#"{ "desaturate": 1 }"#, [117, 117, 117]), (#"{ "dim": 0.5 }"#, [100, 50, 20]),
      (#"{ "desaturate": 1, "dim": 0.5 }"#, [58, 58, 58]), (#"{ "desaturate": 0, "dim": 0 }"#, [200, 100, 40]),
    ] as [(String, [UInt8])])
  func original(settings: String, expected: [UInt8]) throws {
    let pixels = try composite("{ \"original\": \(settings) }", half()).pixels()
    #expect(Array(pixels[..<3]) == expected)
    #expect(Array(pixels[21..<24]) == [10, 60, 250])
  }

  @Test("blurred, greyed and dimmed at once: no glow of the subject")
  func originalBlurred() throws {
    let pixels = try composite(#"{ "original": { "blur": 3, "desaturate": 1, "dim": 0.5 } }"#, half(60, 20)).pixels()
    for x in 0..<30 { #expect(Array(pixels[x * 3..<x * 3 + 3]).isNear([58, 58, 58], 2), "column \(x)") }
  }

  @Test("16 bits and Display P3 stay what they are, on any background")
  func deep() throws {
    let pixels = (0..<32).flatMap { x in
      [UInt16(x * 2000), 30_001, 513, x < 16 ? 0 : 65_535] as [UInt16]
    }
    let picture = try Image(width: 32, height: 1, bands: 4, samples: pixels).converted(to: .displayP3)
    let item = bench.item(picture).with(
      image: picture, matte: try picture.alphaBand(), original: try picture.withoutAlpha())
    let exact = try picture.bytes()
    for background in [
      ##"{ "pattern": { "colors": ["#ff0000", "#00ff00"] } }"##, #"{ "original": { "dim": 0.2 } }"#,
      ##"{ "layers": [{ "color": "#ffffff" }, { "original": { "dim": 0.2 }, "opacity": 0.5, "blend": "multiply" }] }"##,
    ] {
      let result = try composite(background, item).image()
      #expect((result.depth, result.bands) == (16, 3), "\(background)")
      #expect(result.space == .displayP3)
      let bytes = try result.bytes()
      for x in 16..<32 { #expect(bytes[x * 6..<x * 6 + 6] == exact[x * 8..<x * 8 + 6], "\(background)") }
    }
  }

  // MARK: Layers

  private func firstPixel(_ layers: String) throws -> [UInt8] {
    Array(try composite("{ \"layers\": \(layers) }", half()).pixels().prefix(3))
  }

  @Test(
    "layers lie on each other by opacity and mode",
    arguments: [
      (##"[{ "color": "#c86428" }]"##, [200, 100, 40]),
      // 200 · 0.502 + 0 · 0.498: an opacity of a half is an alpha of 128.
      (##"[{ "color": "black" }, { "color": "#c86428", "opacity": 0.5 }]"##, [100, 50, 20]),
      // 200 · 100 / 255 = 78.4, 100 · 250 / 255 = 98.04.
      (##"[{ "color": "#64fa00" }, { "color": "#c86428", "blend": "multiply" }]"##, [78, 98, 0]),
      // Half of the way from (100, 250, 0) to (78.4, 98.04, 0): 100 + (78.4 − 100) · 0.502.
      (##"[{ "color": "#64fa00" }, { "color": "#c86428", "blend": "multiply", "opacity": 0.5 }]"##, [89, 174, 0]),
      (##"[{ "color": "#64fa00" }, { "original": { "dim": 0 }, "blend": "screen" }]"##, [222, 252, 40]),
      (##"[{ "original": { "dim": 0 } }, { "color": "#64fa0080" }]"##, [150, 175, 20]),
      // What lies behind something opaque does not show.
      (##"[{ "color": "#010203" }, { "color": "#64fa00", "blend": "dest-over" }]"##, [1, 2, 3]),
    ] as [(String, [UInt8])])
  func layers(json: String, expected: [UInt8]) throws {
    #expect(try firstPixel(json) == expected)
    #expect(Array(try composite("{ \"layers\": \(json) }", half()).pixels()[21..<24]) == [10, 60, 250])
  }

  @Test("white layers are white to the level")
  func white() throws {
    for layers in [
      ##"[{ "color": "white" }, { "color": "white", "opacity": 0.3 }]"##,
      ##"[{ "color": "white" }, { "color": "#fff8", "blend": "multiply" }]"##,
      ##"[{ "original": { "dim": 0.5 } }, { "color": "white", "blend": "screen" }]"##,
    ] { #expect(try firstPixel(layers) == [255, 255, 255], "\(layers)") }
  }

  @Test("layers without an opaque one keep transparency")
  func transparentLayers() throws {
    let image = try composite(##"{ "layers": [{ "color": "#ff000080" }, { "color": "#00f8" }] }"##, half()).image()
    #expect(image.bands == 4)
    // Alpha 136 over 128: 136 + 128 · 119 / 255 = 195.7; blue 255 · 136 / 195.7 = 177.2.
    #expect(Array(try image.bytes().prefix(4)).isNear([78, 0, 177, 196], 1))
    #expect(Array(try image.bytes()[28..<32]) == [10, 60, 250, 255])
  }

  @Test("a stack is drawn anew for other sides, and again right for the first")
  func kept() throws {
    let stage = try bench.make(
      Composite.self,
      ##"""
      { "stage": "composite", "background": { "layers": [
        { "gradient": { "from": "black", "to": "white", "angle": 90 } },
        { "pattern": { "colors": ["black", "#0000"], "size": 1 }, "opacity": 0.5 },
        { "original": { "dim": 0.9 }, "opacity": 0.2 }, { "pattern": { "size": 2 }, "blend": "multiply" } ] } }
      """##)
    var first: [Int: [UInt8]] = [:]
    for width in [8, 20, 8, 20] {
      guard case .next(let item) = try stage.process(half(width, 4), in: bench.context()) else {
        Issue.record("not passed on")
        return
      }
      let pixels = try item.pixels()
      #expect(pixels.count == width * 12)
      if let known = first[width] { #expect(known == pixels) } else { first[width] = pixels }
    }
  }

  @Test("files of all layers count as files that the result depends on")
  func helperFiles() throws {
    let plan = Composite.plan(
      try StageBench.settings(
        Composite.self,
        ##"""
        { "stage": "composite", "background": { "layers": [
          { "image": { "path": "wall.jpg" } }, { "color": "red", "blend": "multiply" },
          { "pattern": { "kind": "tile", "path": "paper.png" } }, { "pattern": { "size": 4 }, "opacity": 0.2 } ] } }
        """##))
    #expect(plan.helperFiles == ["wall.jpg", "paper.png"])
  }

  @Test("a tile that is missing stops the run before it starts, with a name that may have been meant")
  func tileMissing() throws {
    bench.folder.write(try Pictures.png(Pictures.solid(2, 2, 1, 2, 3)), to: "paper.png")
    let settings = try StageBench.settings(
      Composite.self,
      #"{ "stage": "composite", "background": { "layers": [{ "pattern": { "kind": "tile", "path": "papr.png" } }] } }"#)
    let resources = StageResources(run: bench.run, computeWorkers: 1, facts: RunFacts())
    let error = try #require(throws: StageError.self) { try Composite(settings, resources: resources) }
    #expect(error.kind == .environment)
    #expect(error.message.contains(bench.folder["papr.png"]))
    #expect(error.hint == "did you mean \(bench.folder["paper.png"])?")
  }

  @Test(
    "what a chain may expect afterwards follows from all layers",
    arguments: [
      (##"{ "pattern": { } }"##, false), (##"{ "pattern": { "colors": ["white", "transparent"] } }"##, true),
      (##"{ "original": { "dim": 0.5 } }"##, false),
      (##"{ "layers": [{ "color": "#fff8" }] }"##, true),
      (##"{ "layers": [{ "color": "white", "opacity": 0.9 }] }"##, true),
      (##"{ "layers": [{ "color": "#fff8" }, { "original": { "dim": 0.5 } }, { "color": "#0004" }] }"##, false),
      (##"{ "layers": [{ "color": "white" }, { "color": "#fff8", "blend": "dest-in" }] }"##, true),
      (##"{ "layers": [{ "color": "white" }, { "color": "#fff8", "blend": "multiply" }] }"##, false),
    ])
  func traits(background: String, keepsAlpha: Bool) throws {
    let plan = Composite.plan(
      try StageBench.settings(Composite.self, "{ \"stage\": \"composite\", \"background\": \(background) }"))
    #expect(plan.produces.contains(.alpha) == keepsAlpha)
  }

  @Test(
    "settings that make no sense are found by lint",
    arguments: [
      (##"{ "pattern": { "colors": ["white"] } }"##, ["out-of-range"], "$.background.pattern.colors"),
      (##"{ "pattern": { "colors": ["white", "whit"] } }"##, ["wrong-value"], "$.background.pattern.colors[1]"),
      (##"{ "pattern": { "colors": ["white", "#fff"] } }"##, ["wrong-value"], "$.background.pattern.colors"),
      (##"{ "pattern": { "kind": "tile" } }"##, ["missing-key"], "$.background.pattern"),
      (
        ##"{ "pattern": { "kind": "tile", "path": "a.png", "size": 4 } }"##, ["not-applicable"],
        "$.background.pattern.size"
      ),
      (##"{ "pattern": { "path": "a.png" } }"##, ["not-applicable"], "$.background.pattern.path"),
      (##"{ "original": { "dim": 1.5 } }"##, ["out-of-range"], "$.background.original.dim"),
      (##"{ "layers": [] }"##, ["out-of-range"], "$.background.layers"),
      (##"{ "layers": [{ "opacity": 0.5 }] }"##, ["missing-key"], "$.background.layers[0]"),
      (
        ##"{ "layers": [{ "color": "red" }, { "layers": [{ "color": "red" }] }] }"##,
        ["unknown-key", "missing-key"], "$.background.layers[1].layers"
      ),
      (
        ##"{ "layers": [{ "color": "red", "blend": "multiply" }] }"##, ["not-applicable"],
        "$.background.layers[0].blend"
      ),
      (
        ##"{ "layers": [{ "color": "red" }, { "color": "#f008", "blend": "multipy" }] }"##, ["unknown-value"],
        "$.background.layers[1].blend"
      ),
      (
        ##"{ "layers": [{ "color": "red" }, { "color": "blue", "blend": "dest" }] }"##, ["wrong-value"],
        "$.background.layers[1].blend"
      ),
      (
        ##"{ "layers": [{ "color": "red" }, { "color": "transparent" }] }"##, ["wrong-value"],
        "$.background.layers[1].color"
      ),
      (
        ##"{ "layers": [{ "color": "red" }, { "color": "blue" }] }"##, ["hidden-layer"], "$.background.layers[1].color"
      ),
      (
        ##"{ "layers": [{ "gradient": { "from": "red" } }, { "color": "#00f4" }] }"##, ["missing-key"],
        "$.background.layers[0].gradient.from"
      ),
      (##"{ "color": "red", "layers": [{ "color": "red" }] }"##, ["conflicting-keys"], "$.background.layers"),
    ] as [(String, [String], String)])
  func lint(background: String, codes: [String], path: String) throws {
    let findings = try StageBench.lint(Composite.self, "{ \"stage\": \"composite\", \"background\": \(background) }")
    #expect(findings.map(\.code) == codes)
    #expect(findings.first?.path == path)
  }

  @Test("a mode's near name is offered")
  func nearMode() throws {
    let findings = try StageBench.lint(
      Composite.self,
      ##"{ "stage": "composite", "background": { "color": "red" }, "subject": { "blend": "multipy" } }"##)
    #expect(findings.map(\.hint) == ["did you mean \"multiply\"?"])
  }
}
