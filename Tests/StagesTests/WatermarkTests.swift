import Imaging
import PipelineKit
import Stages
import TestSupport
import Testing

@Suite struct WatermarkTests {
  let bench = StageBench()

  static let hasFonts = Typeface.families.contains("DejaVu Sans")

  private func logo(_ width: Int, _ height: Int, _ pixel: UInt8...) throws -> String {
    bench.folder.write(
      try Pictures.png(Pictures.image(width, height, bands: pixel.count) { _, _ in pixel }), to: "logo.png")
    return "logo.png"
  }

  private func base(_ width: Int = 100, _ height: Int = 80) throws -> Item {
    bench.item(try Pictures.image(width, height) { x, y in [UInt8(x), UInt8(y), 77] })
  }

  /// The box of the pixels that differ, and how many those are.
  private func change(_ a: Item, _ b: Item) throws -> (Rectangle, Int)? {
    let (before, after) = (try a.image().withoutAlpha(), try b.image().withoutAlpha())
    try #require((before.width, before.height) == (after.width, after.height))
    let (p, q) = (try before.bytes(), try after.bytes())
    var box: Rectangle?
    var count = 0
    for y in 0..<before.height {
      for x in 0..<before.width {
        let start = (y * before.width + x) * 3
        guard p[start..<start + 3] != q[start..<start + 3] else { continue }
        let one = Rectangle(x: x, y: y, width: 1, height: 1)
        box = box?.union(one) ?? one
        count += 1
      }
    }
    return box.map { ($0, count) }
  }

  @Test(
    "a picture stands in its corner, to the pixel",
    arguments: [
      ("top-left", 7, 7), ("bottom-right", 81, 65), ("centre", 44, 36), ("top", 44, 7), ("left", 7, 36),
    ])
  func corners(gravity: String, x: Int, y: Int) throws {
    _ = try logo(12, 8, 255, 0, 0)
    let item = try base()
    let result = try bench.run(
      Watermark.self,
      #"{ "stage": "watermark", "image": { "path": "logo.png" }, "gravity": "\#(gravity)", "margin": 7 }"#, item)
    let (box, count) = try #require(try change(item, result))
    #expect(box == Rectangle(x: x, y: y, width: 12, height: 8) && count == 96)
    #expect(try result.image().pixel(x, y) == [255, 0, 0])
  }

  @Test("scale, opacity and turn of a picture")
  func look() throws {
    _ = try logo(40, 20, 255, 255, 255)
    let item = bench.item(try Pictures.solid(100, 80, 0, 0, 0))
    let result = try bench.run(
      Watermark.self,
      """
      { "stage": "watermark", "image": { "path": "logo.png", "scale": 0.3 }, "gravity": "top-left", "margin": 0,
        "opacity": 0.4, "rotate": 90 }
      """, item)
    // 30 % of 100 is 30, the height 15; a quarter turn swaps them. 255 · 0.4 = 102.
    let (box, _) = try #require(try change(item, result))
    #expect(box == Rectangle(x: 0, y: 0, width: 15, height: 30))
    #expect(try result.image().pixel(7, 15) == [102, 102, 102])
  }

  @Test("what does not fit is made smaller, with a warning")
  func shrunk() throws {
    _ = try logo(300, 100, 0, 255, 0)
    let item = try base()
    let journal = ItemJournal()
    let result = try bench.run(
      Watermark.self, #"{ "stage": "watermark", "image": { "path": "logo.png" }, "margin": 10 }"#, item,
      journal: journal)
    let (box, _) = try #require(try change(item, result))
    // 80 wide, and 26.7 high.
    #expect(box == Rectangle(x: 10, y: 43, width: 80, height: 27))
    #expect(journal.warningCodes == ["watermark-shrunk"])
  }

  @Test("tiles cover the picture from its middle")
  func tiles() throws {
    _ = try logo(10, 10, 255, 0, 0)
    let item = try base()
    let result = try bench.run(
      Watermark.self, #"{ "stage": "watermark", "image": { "path": "logo.png" }, "tile": true, "spacing": 10 }"#, item)
    let image = try result.image()
    // The middle one starts at 45, 35; the others every 20 pixels.
    for (x, y, isMark) in [
      (45, 35, true), (54, 44, true), (55, 35, false), (65, 35, true), (5, 15, true), (4, 15, false),
    ] {
      #expect(try image.pixel(x, y) == (isMark ? [255, 0, 0] : [UInt8(x), UInt8(y), 77]), "\(x) \(y)")
    }
  }

  @Test("a cut-out keeps its transparency beside the mark, and its mask and photo")
  func cutout() throws {
    _ = try logo(10, 10, 255, 0, 0, 128)
    let item = try bench.cutout(60, 50, subject: Rectangle(x: 0, y: 0, width: 30, height: 50))
    let result = try bench.run(
      Watermark.self,
      #"{ "stage": "watermark", "image": { "path": "logo.png" }, "gravity": "right", "margin": 0 }"#, item)
    #expect(try result.image().pixel(55, 25) == [255, 0, 0, 128])
    #expect(try result.image().pixel(40, 25)[3] == 0)
    #expect(try result.matte?.bytes() == item.matte?.bytes() && result.original?.bytes() == item.original?.bytes())
  }

  @Test("a file that is missing or no picture ends the run before it starts")
  func missingFile() throws {
    bench.folder.write([1, 2, 3], to: "broken.png")
    for name in ["nothing.png", "broken.png"] {
      let error = try #require(start(image: name))
      #expect(error.kind == .environment && error.message.contains(name))
    }
  }

  private func start(image name: String) -> StageError? {
    do {
      _ = try bench.make(Watermark.self, "{ \"stage\": \"watermark\", \"image\": { \"path\": \"\(name)\" } }")
      return nil
    } catch {
      return error as? StageError
    }
  }

  // MARK: Text

  private func start(_ text: String) -> StageError? {
    do {
      _ = try bench.make(Watermark.self, "{ \"stage\": \"watermark\", \"text\": { \(text) } }")
      return nil
    } catch {
      return error as? StageError
    }
  }

  @Test("the margin is measured from the ink", .enabled(if: hasFonts))
  func ink() throws {
    let item = bench.item(try Pictures.solid(200, 120, 0, 0, 0))
    for (gravity, isRight, isLow) in [("top-left", false, false), ("bottom-right", true, true)] {
      let result = try bench.run(
        Watermark.self,
        """
        { "stage": "watermark", "text": { "text": "gÅ —", "font": "DejaVu Sans", "size": 30 }, "margin": 11,
          "gravity": "\(gravity)" }
        """, item)
      let (box, _) = try #require(try change(item, result))
      #expect(isRight ? box.x + box.width == 189 : box.x == 11)
      #expect(isLow ? box.y + box.height == 109 : box.y == 11)
      #expect(box.height > 30 && box.width > 70)
    }
  }

  @Test("text is filled in for each item, and grows with the picture", .enabled(if: hasFonts))
  func templated() throws {
    let json =
      #"{ "stage": "watermark", "text": { "text": "${item.stem} ${image.width}", "font": "DejaVu Sans", "size": "20%" }, "margin": 0 }"#
    func width(_ name: String, _ side: Int) throws -> Int {
      let item = bench.item(try Pictures.solid(side * 2, side, 0, 0, 0), name: name)
      return try #require(try change(item, bench.run(Watermark.self, json, item))).0.width
    }
    let short = try width("ab.png", 100)
    #expect(try width("abcd.png", 100) > short + 20)
    #expect(abs(try width("ab.png", 200) - 2 * short) <= 3)
  }

  @Test("a missing font or sign ends the run before it starts; from an item, the item", .enabled(if: hasFonts))
  func missing() throws {
    let family = try #require(start(#""text": "a", "font": "Nonesuch Grotesk""#))
    #expect(family.code == "font-missing" && family.kind == .environment)
    let file = try #require(start(#""text": "a", "fontFile": "fonts/none.ttf""#))
    #expect(file.code == "font-missing" && file.message.contains("fonts/none.ttf"))
    let glyph = try #require(start(#""text": "a漢", "font": "DejaVu Sans""#))
    #expect(glyph.code == "glyph-missing" && glyph.kind == .environment && glyph.message.contains("漢"))
    #expect(start(#""text": "漢 ${item.stem}", "font": "DejaVu Sans""#)?.code == "glyph-missing")
    #expect(start(#""text": "a ${item.stem}", "font": "DejaVu Sans""#) == nil)
    let item = bench.item(try Pictures.solid(90, 60, 0, 0, 0), name: "字.png")
    let error = try bench.failure(
      of: Watermark.self, #"{ "stage": "watermark", "text": { "text": "${item.stem}", "font": "DejaVu Sans" } }"#, item)
    #expect(error.code == "glyph-missing" && error.kind == .item)
  }

  @Test("text that is empty for an item leaves its picture", .enabled(if: hasFonts))
  func empty() throws {
    let image = try Pictures.solid(90, 60, 0, 0, 0)
    let item = bench.item("/a/b.png", columns: ["credit": " "]).with(image: image)
    let journal = ItemJournal()
    let result = try bench.run(
      Watermark.self, #"{ "stage": "watermark", "text": { "text": "${item.credit}", "font": "DejaVu Sans" } }"#, item,
      journal: journal)
    #expect(try result.pixels() == image.bytes() && journal.warningCodes == ["watermark-empty"])
  }

  @Test("text that is too long is set smaller; 16 bits and frames stay", .enabled(if: hasFonts))
  func sizes() throws {
    let journal = ItemJournal()
    let item = bench.item(try Pictures.solid(90, 60, 0, 0, 0).withDepth(16))
    let json =
      #"{ "stage": "watermark", "text": { "text": "a very long line of text", "font": "DejaVu Sans", "size": 40 }, "margin": 5 }"#
    let result = try bench.run(Watermark.self, json, item, journal: journal)
    #expect(try result.image().depth == 16)
    let small = bench.item(try result.image().withDepth(8))
    let (box, _) = try #require(try change(bench.item(Pictures.solid(90, 60, 0, 0, 0)), small))
    #expect(box.x >= 5 && box.x + box.width == 85 && box.y + box.height == 55)
    #expect(journal.warningCodes == ["watermark-shrunk"])
    let frames = try bench.animation(2, 90, 60) { frame, _, _ in [UInt8(frame), 0, 0] }
    let marked = ItemJournal()
    let done = try bench.run(Watermark.self, json, frames, journal: marked)
    #expect(try done.frames().count == 2)
    #expect(marked.warningCodes == ["watermark-shrunk"])
  }

  @Test("lint tells what cannot be meant")
  func lint() throws {
    for (settings, code) in [
      ("", "missing-key"), (#""image": { "path": "a.png" }, "text": { "text": "a" }"#, "conflicting-keys"),
      (#""text": { "text": " \n" }"#, "wrong-value"), (#""text": { "text": "a.${ext}" }"#, "variable-not-allowed"),
      (#""text": { "text": "a", "fontFile": "a.ttf", "bold": true }"#, "conflicting-keys"),
      (#""text": { "text": "a" }, "tile": true, "margin": 3"#, "not-applicable"),
      (#""text": { "text": "a" }, "spacing": 3"#, "not-applicable"), (#""text": { "font": "a" }"#, "missing-key"),
      (#""text": { "text": "a" }, "opacity": 2"#, "out-of-range"),
      (#""text": { "text": "a", "color": "transparent" }"#, "wrong-value"),
    ] {
      #expect(try StageBench.findings(Watermark.self, settings) == [code], "\(settings)")
    }
  }

  @Test("files that it reads are known to the planner")
  func helperFiles() throws {
    func files(_ settings: String) throws -> [String] {
      try Watermark.plan(StageBench.settings(Watermark.self, "{ \"stage\": \"watermark\", \(settings) }")).helperFiles
    }
    #expect(try files(#""image": { "path": "logo.png" }"#) == ["logo.png"])
    #expect(try files(#""text": { "text": "a", "fontFile": "a.ttf" }"#) == ["a.ttf"])
  }
}
