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
      (#""format": "jpeg", "quality": "80""#, "unknown-value", "$.quality"),
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
    ])
  func lint(settings: String, code: String, path: String) throws {
    let findings = try StageBench.lint(Encode.self, "{ \"stage\": \"encode\", \(settings) }")
    #expect(findings.map(\.code) == [code])
    #expect(findings.first?.path == path)
  }
}
