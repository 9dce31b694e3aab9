import Imaging
import PipelineKit
import Stages
import TestSupport
import Testing

@Suite struct EncodeTests {
  let bench = StageBench()

  private func encode(_ settings: String, _ item: Item, journal: ItemJournal = ItemJournal()) throws -> Item.Encoded {
    let result = try bench.process(Encode.self, "{ \"stage\": \"encode\", \(settings) }", item, journal: journal)
    return try #require(result.encoded)
  }

  private func decoded(_ encoded: Item.Encoded) throws -> Image {
    try EncodedPicture(bytes: encoded.bytes).decode().materialised()
  }

  @Test(
    "each format is what it says, and exact where it promises to be",
    arguments: [
      ("\"format\": \"jpeg\"", PictureFormat.jpeg, "jpg", 6), ("\"format\": \"png\"", .png, "png", 0),
      ("\"format\": \"webp\"", .webp, "webp", 6), ("\"format\": \"webp\", \"lossless\": true", .webp, "webp", 0),
      ("\"format\": \"avif\", \"effort\": 0", .avif, "avif", 8), ("\"format\": \"tiff\"", .tiff, "tif", 0),
      ("\"format\": \"tiff\", \"compression\": \"deflate\"", .tiff, "tif", 0),
      ("\"format\": \"tiff\", \"compression\": \"none\"", .tiff, "tif", 0),
      ("\"format\": \"tiff\", \"compression\": \"jpeg\", \"quality\": 95", .tiff, "tif", 6),
      ("\"format\": \"png\", \"compression\": 0", .png, "png", 0),
      // Four colours fit any palette.
      ("\"format\": \"png\", \"palette\": true, \"colors\": 16", .png, "png", 2),
    ])
  func formats(settings: String, format: PictureFormat, ending: String, tolerance: Int) throws {
    let image = try Pictures.quarters()
    let encoded = try encode(settings, bench.item(image))
    #expect(encoded.format == format)
    let header = try EncodedPicture(bytes: encoded.bytes).header
    #expect(header.format == format)
    #expect((header.width, header.height) == (64, 48))
    #expect((encoded.width, encoded.height) == (64, 48))
    let pixels = try decoded(encoded).bytes()
    if tolerance == 0 {
      #expect(try pixels == image.bytes())
    }
    // Lossy formats smear where colours meet; the middles of the quarters must hold.
    for (index, colour) in [Pictures.red, Pictures.green, Pictures.blue, Pictures.yellow].enumerated() {
      let start = ((index / 2 * 24 + 12) * 64 + index % 2 * 32 + 16) * 3
      let found = Array(pixels[start..<start + 3])
      #expect(found.isNear(colour, tolerance), "\(found) instead of \(colour)")
    }
    let json = "{ \"stage\": \"encode\", \(settings) }"
    #expect(try Encode.plan(StageBench.settings(Encode.self, json)).encodedExtension == ending)
  }

  @Test("settings reach the encoder")
  func settings() throws {
    let noise = bench.item(
      try Pictures.image(96, 96) { x, y in [UInt8((x * 37 + y * 91) & 255), UInt8((x * y) & 255), UInt8((x ^ y) & 255)]
      })
    func size(_ settings: String) throws -> Int { try encode(settings, noise).bytes.count }
    #expect(try size(#""format": "jpeg", "quality": 30"#) < size(#""format": "jpeg""#))
    #expect(try size(#""format": "jpeg", "chroma": "420""#) < size(#""format": "jpeg", "chroma": "444""#))
    #expect(try size(#""format": "webp", "quality": 20"#) < size(#""format": "webp""#))
    #expect(try size(#""format": "avif", "effort": 0, "quality": 20"#) < size(#""format": "avif", "effort": 0"#))
    #expect(try size(#""format": "png", "compression": 9"#) < size(#""format": "png", "compression": 0"#))
    #expect(try size(#""format": "png", "palette": true, "colors": 8"#) < size(#""format": "png", "palette": true"#))
    #expect(try size(#""format": "tiff", "compression": "none""#) >= 96 * 96 * 3)
    // A progressive JPEG starts its frame with SOF2 (ITU-T T.81, table B.1).
    let progressive = try encode(#""format": "jpeg", "progressive": true"#, noise).bytes.array
    #expect(zip(progressive, progressive.dropFirst()).contains { $0 == 0xff && $1 == 0xc2 })
  }

  @Test(
    "transparency becomes the background in a JPEG, and the report says so",
    arguments: [
      ("", "#ffffff", [255, 255, 255]), (##", "background": "#0a6414""##, "#0a6414", [10, 100, 20]),
    ] as [(String, String, [UInt8])])
  func flattens(background: String, name: String, colour: [UInt8]) throws {
    let item = bench.item(try Pictures.image(64, 32, bands: 4) { x, _ in x < 32 ? [0, 0, 0, 0] : [200, 40, 40, 255] })
    let journal = ItemJournal()
    let image = try decoded(encode("\"format\": \"jpeg\", \"quality\": 95\(background)", item, journal: journal))
    let pixels = try image.bytes()
    #expect(image.bands == 3)
    #expect(Array(pixels[..<3]).isNear(colour, 3))
    #expect(Array(pixels[(60 * 3)..<(61 * 3)]).isNear([200, 40, 40], 4))
    #expect(journal.warningCodes == ["flattened"])
    #expect(journal.snapshot.warnings.first?.message.contains(name) == true)
  }

  @Test("an alpha band that is opaque all over is no news")
  func opaqueAlpha() throws {
    let journal = ItemJournal()
    let item = bench.item(try Pictures.solid(8, 8, 10, 200, 30, 255))
    let image = try decoded(encode(#""format": "jpeg""#, item, journal: journal))
    #expect(try Array(image.bytes()[..<3]).isNear([10, 200, 30], 4))
    #expect(journal.warningCodes.isEmpty)
  }

  @Test("`auto` looks for the quality of a whole animation, however many frames the encoder joins")
  func animation() throws {
    let noise = try Pictures.image(48, 48) { x, y in
      [UInt8((x * 37 + y * 91) & 255), UInt8((x * y) & 255), UInt8((x ^ y) & 255)]
    }
    let calm = try Pictures.quarters().cropped(x: 0, y: 0, width: 48, height: 48)
    func encoded(_ frames: [Image]) throws -> (file: EncodedPicture, warnings: [String]) {
      let item = bench.item(frames[0]).with(
        animation: ItemFrames(
          frames: frames.map { .init(image: $0) }, delays: frames.indices.map { 40 + 10 * $0 }, loop: 2))
      let journal = ItemJournal()
      let bytes = try encode(
        #""format": "webp", "quality": "auto", "similarity": 0.9, "minQuality": 1"#, item, journal: journal
      ).bytes
      return (try EncodedPicture(bytes: bytes, options: DecodeOptions(frames: .all)), journal.warningCodes)
    }
    let three = try encoded([calm, noise, calm])
    #expect(three.warnings.isEmpty)
    let back = try three.file.animation()
    #expect(back.frames.count == 3)
    #expect(back.delays == [40, 50, 60])
    let likeness = try zip([calm, noise, calm], back.frames).map { try StructuralSimilarity.mean($0, $1) }
    #expect(likeness.reduce(0, +) / 3 >= 0.89, "\(likeness)")
    // Frames that are the same become one that stands longer.
    for frames in [[calm, calm, noise], [noise, noise, noise]] {
      let file = try encoded(frames).file
      #expect(try file.animation().frames.count <= frames.count)
    }
  }

  @Test(
    "`auto` takes the first format that can hold the picture",
    arguments: [
      (#"["jpeg", "webp", "png"]"#, PictureFormat.jpeg, .webp, .png, .webp),
      (#"["webp", "jpeg"]"#, .webp, .webp, .webp, .webp), (#"["png"]"#, .png, .png, .png, .png),
      (#"["png", "gif", "avif"]"#, .avif, .png, .png, .gif), (#"["jpeg"]"#, .jpeg, .jpeg, .jpeg, .jpeg),
    ] as [(String, PictureFormat, PictureFormat, PictureFormat, PictureFormat)])
  func chosenFormat(
    formats: String, photo: PictureFormat, clear: PictureFormat, drawing: PictureFormat, moving: PictureFormat
  ) throws {
    let settings = "\"format\": \"auto\", \"formats\": \(formats)"
    let many = try Pictures.image(40, 40) { x, y in [UInt8(x * 6), UInt8(y * 6), 90] }
    let seeThrough = try Pictures.image(40, 40, bands: 4) { x, y in [UInt8(x * 6), UInt8(y * 6), 90, UInt8(x * 6)] }
    #expect(try encode(settings, bench.item(many)).format == photo)
    #expect(try encode(settings, bench.item(seeThrough)).format == clear)
    #expect(try encode(settings, bench.item(Pictures.quarters())).format == drawing)
    // As a grey photo has it: no more than 256 colours, but no drawing. With fewer greys it may be one.
    let grey = try Pictures.image(40, 40) { x, y in [UInt8](repeating: UInt8(x * 5 + y), count: 3) }
    #expect(try encode(settings, bench.item(grey)).format == photo)
    let steps = try Pictures.image(40, 40) { x, _ in [UInt8](repeating: UInt8(x * 5), count: 3) }
    #expect(try encode(settings, bench.item(steps)).format == drawing)
    let frames = [many, try many.flipped(.horizontal)].map { ItemFrames.Frame(image: $0) }
    let item = bench.item(many).with(animation: ItemFrames(frames: frames, delays: [50, 50], loop: 0))
    let journal = ItemJournal()
    #expect(try encode(settings, item, journal: journal).format == moving)
    #expect(journal.warningCodes.contains("frames-dropped") == !moving.isAnimated)
  }

  @Test("with `maxBytes` a quality found or given is only the most that is tried")
  func qualityAndSize() throws {
    let noise = bench.item(
      try Pictures.image(96, 96) { x, y in [UInt8((x * 37 + y * 91) & 255), UInt8((x * y) & 255), UInt8((x ^ y) & 255)]
      })
    let free = try encode(#""format": "jpeg", "quality": "auto""#, noise).bytes.count
    #expect(try encode(#""format": "jpeg", "quality": "auto", "maxBytes": 1000000"#, noise).bytes.count == free)
    let limit = free / 2
    for quality in [#""auto""#, "90"] {
      let count = try encode(#""format": "jpeg", "quality": \#(quality), "maxBytes": \#(limit)"#, noise).bytes.count
      #expect(count <= limit && count > limit / 2, "\(quality): \(count) of \(limit)")
    }
    let error = try bench.failure(
      of: Encode.self, #"{ "stage": "encode", "format": "png", "maxBytes": 100 }"#, noise)
    #expect(error.code == "too-large")
    let journal = ItemJournal()
    _ = try encode(#""format": "gif", "maxBytes": 100, "onTooLarge": "accept""#, noise, journal: journal)
    #expect(journal.warningCodes == ["too-large"])
  }

  @Test(
    "every format takes every kind of picture",
    arguments: [
      ("png", "", true, true, true), ("tiff", "", true, true, true), ("jxl", #", "lossless": true"#, true, true, true),
      ("webp", #", "lossless": true"#, true, false, false),
      ("avif", #", "effort": 0, "quality": 100"#, true, true, false),
      ("jpeg", #", "quality": 100, "chroma": "444""#, false, false, true),
      ("gif", #", "dither": 0"#, true, false, false),
    ])
  func everyKind(format: String, more: String, hasAlpha: Bool, isDeep: Bool, hasGrey: Bool) throws {
    for (bands, isGrey) in [(3, false), (4, false), (3, true), (4, true)] {
      // Alpha is either none or full, as GIF has it.
      let flat = try Pictures.image(33, 17, bands: bands) { x, y in
        let colour: [UInt8] =
          isGrey
          ? [UInt8(60 + x * 5), UInt8(60 + x * 5), UInt8(60 + x * 5)] : [UInt8(100 + x * 3), UInt8(90 + y * 6), 140]
        return colour + (bands == 4 ? [x < 4 ? 0 : 255] : [])
      }
      // Read from a file, so that it is known to be grey.
      let file = try flat.withDepth(16).encoded(.png(.init()))
      for depth in ["8", #""keep""#] where depth == "8" || isDeep {
        for space in ["srgb", "p3", "keep"] where format != "gif" || space == "srgb" {
          let bits = isDeep ? #", "bitDepth": \#(depth)"# : ""
          let settings = #""format": "\#(format)"\#(more)\#(bits), "colorSpace": "\#(space)""#
          let options = DecodeOptions(space: WorkingSpace(gamut: .source, depth: .source))
          let image = try EncodedPicture(bytes: file, options: options).pixels()
          let encoded = try encode(settings, bench.item(image))
          let back = try EncodedPicture(
            bytes: encoded.bytes, options: DecodeOptions(space: WorkingSpace(depth: .source)))
          #expect((back.header.width, back.header.height) == (33, 17), "\(settings)")
          // The header of a GIF does not tell whether a pixel of it is clear.
          if format != "gif" { #expect(back.header.hasAlpha == (bands == 4 && hasAlpha), "\(settings)") }
          let bitsThere = format == "avif" ? 8 : depth == "8" ? 8 : 16
          if format != "avif" { #expect(back.header.bitsPerSample == bitsThere, "\(settings)") }
          let image8 = try back.pixels().withDepth(8)
          let pixels = try (bands == 3 ? image8.withoutAlpha() : image8).bytes()
          let expected = try hasAlpha ? flat : flat.hasAlpha ? flat.flattened(.white) : flat
          let wanted = try expected.bytes()
          let each = expected.bands
          #expect(pixels.count == wanted.count, "\(settings)")
          let tolerance = format == "gif" ? 24 : ["jpeg", "avif"].contains(format) ? 12 : 4
          let far = zip(pixels, wanted).enumerated().filter { index, pair in
            // What is transparent has no colour of its own.
            let isClear = each == 4 && wanted[index / 4 * 4 + 3] == 0
            return !isClear && abs(Int(pair.0) - Int(pair.1)) > tolerance
          }
          #expect(far.isEmpty, "\(settings), \(bands) bands, grey \(isGrey): \(far.prefix(3))")
        }
      }
    }
  }

  @Test("formats with transparency keep it", arguments: ["png", "webp", "avif", "tiff"])
  func keepsAlpha(format: String) throws {
    let picture = try Pictures.image(32, 32, bands: 4) { x, _ in x < 16 ? [90, 90, 90, 0] : [90, 90, 90, 255] }
    let journal = ItemJournal()
    let image = try decoded(encode("\"format\": \"\(format)\"", bench.item(picture), journal: journal))
    #expect(image.bands == 4)
    #expect(try image.alphaBand().bytes().isNear(picture.alphaBand().bytes(), 4))
    #expect(journal.warningCodes.isEmpty)
  }

  @Test(
    "metadata goes as far as it is asked to",
    arguments: [
      ("none", false, false), ("copyright", true, false), ("all", true, true),
    ])
  func metadata(policy: String, keepsCopyright: Bool, keepsDevice: Bool) throws {
    let exif = Metadata.exif(
      orientation: 6, texts: [(0x10f, "Kamerabau AG"), (0x13b, "Jane Doe"), (0x8298, "All rights Jane")])
    let jpeg = Metadata.jpeg(try Pictures.jpeg(Pictures.quarters()), exif: exif)
    let item = try bench.decoded(bench.item(holding: jpeg, name: "a.jpg"))
    for format in ["jpeg", "webp"] {
      let encoded = try encode("\"format\": \"\(format)\", \"metadata\": \"\(policy)\"", item)
      let bytes = encoded.bytes.array
      #expect(bytes.contains("All rights Jane") == keepsCopyright, "\(format)")
      #expect(bytes.contains("Jane Doe") == keepsCopyright, "\(format)")
      #expect(bytes.contains("Kamerabau AG") == keepsDevice, "\(format)")
      let header = try EncodedPicture(bytes: encoded.bytes).header
      #expect(header.orientation == 1)
      #expect((header.width, header.height) == (48, 64))
    }
  }

  @Test("copyright is what is kept where the job says nothing")
  func defaultMetadata() throws {
    let exif = Metadata.exif(texts: [(0x10f, "Kamerabau AG"), (0x8298, "All rights Jane")])
    let jpeg = Metadata.jpeg(try Pictures.jpeg(Pictures.quarters()), exif: exif)
    let bytes = try encode(
      #""format": "jpeg""#, bench.decoded(bench.item(holding: jpeg, name: "a.jpg"))
    ).bytes.array
    #expect(bytes.contains("All rights Jane"))
    #expect(!bytes.contains("Kamerabau AG"))
  }

  @Test("a side longer than the format holds fails before encoding")
  func tooLong() throws {
    let error = try bench.failure(
      of: Encode.self, #"{ "stage": "encode", "format": "webp" }"#, bench.item(Pictures.solid(16_384, 1, 1, 2, 3)))
    #expect(error.code == "encoder")
    #expect(error.message.contains("16383"))
  }

  @Test(
    "settings that contradict each other are found by lint",
    arguments: [
      (#""quality": 80"#, "missing-key", "$"),
      (#""format": "png", "quality": 80"#, "not-applicable", "$.quality"),
      (#""format": "jpeg", "quality": 101"#, "out-of-range", "$.quality"),
      (#""format": "jpeg", "quality": "80""#, "wrong-type", "$.quality"),
      (#""format": "webp", "effort": 7"#, "out-of-range", "$.effort"),
      (#""format": "jpeg", "effort": 2"#, "not-applicable", "$.effort"),
      (#""format": "webp", "lossless": true, "quality": 80"#, "not-applicable", "$.quality"),
      (#""format": "png", "compression": "lzw""#, "wrong-type", "$.compression"),
      (#""format": "tiff", "compression": 6"#, "wrong-type", "$.compression"),
      (#""format": "tiff", "quality": 80"#, "not-applicable", "$.quality"),
      (#""format": "png", "colors": 16"#, "not-applicable", "$.colors"),
      (#""format": "png", "background": "white""#, "not-applicable", "$.background"),
      (##""format": "jpeg", "background": "#ffffff80""##, "wrong-value", "$.background"),
      (#""format": "heic""#, "unknown-value", "$.format"),
      (#""format": "jpg""#, "unknown-value", "$.format"),
      (#""format": "gif", "colorSpace": "p3""#, "wrong-value", "$.colorSpace"),
      (#""format": "auto", "formats": ["gif", "jpeg"], "colorSpace": "keep""#, "wrong-value", "$.colorSpace"),
      (#""format": "tiff", "compression": "jpeg", "bitDepth": 16"#, "conflicting-keys", "$.bitDepth"),
      (#""format": "tiff", "compression": "jpeg", "bitDepth": "keep""#, "conflicting-keys", "$.bitDepth"),
      (#""format": "png", "palette": true, "bitDepth": 16"#, "conflicting-keys", "$.bitDepth"),
      (#""format": "avif", "bitDepth": 10"#, "wrong-value", "$.bitDepth"),
      (#""format": "avif", "bitDepth": 16"#, "wrong-value", "$.bitDepth"),
      (#""format": "jpeg", "bitDepth": 16"#, "not-applicable", "$.bitDepth"),
      (#""format": "jpeg", "minQuality": 40"#, "not-applicable", "$.minQuality"),
      (#""format": "png", "maxBytes": 9000, "minQuality": 40"#, "not-applicable", "$.minQuality"),
      (#""format": "webp", "lossless": true, "maxBytes": 9000, "minQuality": 40"#, "not-applicable", "$.minQuality"),
      (#""format": "jpeg", "maxBytes": 9000, "quality": 30, "minQuality": 40"#, "out-of-range", "$.minQuality"),
      (#""format": "jpeg", "quality": "auto", "minQuality": 96"#, "out-of-range", "$.minQuality"),
      (#""format": "jpeg", "quality": 80, "similarity": 0.9"#, "not-applicable", "$.similarity"),
      (#""format": "jpeg", "onTooLarge": "accept""#, "not-applicable", "$.onTooLarge"),
      (#""format": "jpeg", "formats": ["jpeg"]"#, "not-applicable", "$.formats"),
      (#""format": "jpeg", "options": { "trelis-quant": true }"#, "unknown-option", "$.options.trelis-quant"),
      (#""format": "jpeg", "options": { "Q": 3 }"#, "not-applicable", "$.options.Q"),
      (#""format": "jpeg", "options": { "quant-table": 9 }"#, "out-of-range", "$.options.quant-table"),
      (#""format": "auto", "options": { "trellis-quant": true }"#, "not-applicable", "$.options"),
    ])
  func lint(settings: String, code: String, path: String) throws {
    let findings = try StageBench.lint(Encode.self, "{ \"stage\": \"encode\", \(settings) }")
    #expect(findings.map(\.code) == [code])
    #expect(findings.first?.path == path)
  }
}
