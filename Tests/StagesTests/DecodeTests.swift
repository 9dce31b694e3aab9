import Digest
import Glibc
import Imaging
import PipelineKit
import Stages
import TestSupport
import Testing

@Suite struct DecodeTests {
  let bench = StageBench()

  @Test("what is passed on is open but not decoded, and of the sides the header says")
  func passesOnUndecoded() throws {
    let journal = ItemJournal()
    let item = try bench.decoded(
      bench.item(holding: Pictures.jpeg(Pictures.quarters()), name: "a.JPG"), journal: journal)
    guard case .encoded(let source) = item.picture else {
      Issue.record("decode must leave the pixels to the stage that wants them")
      return
    }
    #expect(source.header.format == .jpeg)
    #expect(item.size?.width == 64)
    #expect(item.size?.height == 48)
    #expect(journal.snapshot.warnings.isEmpty)
  }

  @Test("nothing of an earlier cut-out survives a decode")
  func forgetsEarlierWork() throws {
    let image = try Pictures.quarters()
    let start = try bench.item(holding: Pictures.png(image), name: "a.png")
      .with(image: image, matte: Pictures.solid(64, 48, 255), original: image)
    let item = try bench.decoded(start)
    #expect(item.matte == nil)
    #expect(item.original == nil)
  }

  /// The quarters of the stored picture, A B above C D, as a viewer must see them (Exif 2.32, tag 0x112).
  static let upright: [(value: Int, quarters: String)] = [
    (1, "ABCD"), (2, "BADC"), (3, "DCBA"), (4, "CDAB"), (5, "ACBD"), (6, "CADB"), (7, "DBCA"), (8, "BDAC"),
  ]

  @Test("each of the eight orientations is baked in once, decoded whole and shrunk on load", arguments: upright)
  func orientation(value: Int, quarters: String) throws {
    let bytes = Metadata.jpeg(try Pictures.jpeg(Pictures.quarters()), exif: Metadata.exif(orientation: value))
    let item = try bench.decoded(bench.item(holding: bytes, name: "turned.jpg"))
    let turned = value >= 5
    #expect(item.size! == (turned ? (48, 64) : (64, 48)))
    let small = try bench.process(Resize.self, #"{ "stage": "resize", "width": 12, "height": 12 }"#, item)
    #expect(small.size! == (turned ? (9, 12) : (12, 9)))
    let colours: [Character: [UInt8]] = [
      "A": Pictures.red, "B": Pictures.green, "C": Pictures.blue, "D": Pictures.yellow,
    ]
    for result in [item, small] {
      let image = try result.image()
      let pixels = try image.bytes()
      for (index, name) in quarters.enumerated() {
        let x = image.width * (index % 2 == 0 ? 1 : 3) / 4
        let y = image.height * (index < 2 ? 1 : 3) / 4
        let start = (y * image.width + x) * 3
        let found = Array(pixels[start..<start + 3])
        // JPEG at quality 95, and ringing of the filter near the edges of quarters.
        #expect(found.isNear(colours[name]!, 14), "quarter \(name) at \(x),\(y): \(found)")
      }
    }
    // The tag must not turn the result once more.
    let encoded = try bench.process(Encode.self, #"{ "stage": "encode", "format": "jpeg", "metadata": "all" }"#, item)
    let again = try EncodedPicture(bytes: #require(encoded.encoded).bytes)
    #expect(again.header.orientation == 1)
    #expect((again.header.orientedWidth, again.header.orientedHeight) == (turned ? (48, 64) : (64, 48)))
  }

  @Test(
    "a name that claims another type is reported, and one that claims nothing is not",
    arguments: [
      ("photo.png", true), ("photo.dng", true), ("photo.jpeg", false), ("photo", false), ("photo.2024", false),
    ])
  func typeMismatch(name: String, isReported: Bool) throws {
    let journal = ItemJournal()
    _ = try bench.decoded(bench.item(holding: Pictures.jpeg(Pictures.quarters()), name: name), journal: journal)
    #expect(journal.warningCodes == (isReported ? ["type-mismatch"] : []))
  }

  @Test("frames after the first are named in a warning, once")
  func frames() throws {
    // Two frames of one pixel each (GIF89a).
    let frame: [UInt8] = [0x2c, 0, 0, 0, 0, 1, 0, 1, 0, 0, 2, 2, 0x44, 1, 0]
    let gif = Array("GIF89a".utf8) + [1, 0, 1, 0, 0x80, 0, 0, 255, 0, 0, 0, 0, 255] + frame + frame + [0x3b]
    let journal = ItemJournal()
    let item = try bench.decoded(bench.item(holding: gif, name: "a.gif"), journal: journal)
    _ = try bench.process(Resize.self, #"{ "stage": "resize", "width": 1 }"#, item, journal: journal)
    #expect(journal.snapshot.warnings.count == 1)
    #expect(journal.snapshot.warnings.first?.message.contains("2 frames") == true)
  }

  @Test("damage that is put up with has a code of its own")
  func damage() throws {
    let bytes = try Pictures.jpeg(Pictures.image(64, 64) { x, y in [UInt8(x * 3), UInt8(y * 3), UInt8(x * y & 255)] })
    for (policy, codes) in [("warn", ["damaged"]), ("accept", [])] as [(String, [String])] {
      let journal = ItemJournal()
      let item = try bench.process(
        Decode.self, #"{ "stage": "decode", "onDamage": "\#(policy)" }"#,
        bench.item(holding: Array(bytes.prefix(bytes.count / 2)), name: "\(policy).jpg"), journal: journal)
      _ = try bench.process(Resize.self, #"{ "stage": "resize", "width": 16 }"#, item, journal: journal)
      #expect(journal.warningCodes == codes)
    }
  }

  @Test(
    "what is no picture fails with a code that says why",
    arguments: [
      ("empty.jpg", [], "empty"), ("notes.jpg", Array("%PDF-1.7 …".utf8), "unsupported"),
      ("cut.png", [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0], "damaged"),
    ] as [(String, [UInt8], String)])
  func refusals(name: String, bytes: [UInt8], code: String) throws {
    let error = try bench.failure(of: Decode.self, #"{ "stage": "decode" }"#, bench.item(holding: bytes, name: name))
    #expect(error.code == code)
    #expect(error.kind == .item)
  }

  @Test("a missing file is named")
  func missing() throws {
    let error = try bench.failure(of: Decode.self, #"{ "stage": "decode" }"#, bench.item(bench.folder["gone.jpg"]))
    #expect(error.code == "io")
    #expect(error.message.contains("gone.jpg"))
  }

  @Test("the job's limits hold before any pixel is decoded")
  func limits() throws {
    var bench = bench
    bench.limits.maxPixels = 64 * 48 - 1
    let error = try bench.failure(
      of: Decode.self, #"{ "stage": "decode" }"#,
      bench.item(holding: Pictures.png(Pictures.quarters()), name: "large.png"))
    #expect(error.code == "limit")
    #expect(error.message.contains("64×48"))
  }

  @Test("damage found stages later is said to be the input's")
  func damageShowsLater() throws {
    let noise = try Pictures.image(200, 200) { x, y in [UInt8((x * 7 + y * 13) & 255), UInt8(x * y & 255), UInt8(y)] }
    let whole = try Pictures.jpeg(noise)
    let item = try bench.decoded(bench.item(holding: Array(whole[..<(whole.count / 2)]), name: "cut.jpg"))
    for error in [
      try bench.failure(of: Resize.self, #"{ "stage": "resize", "width": 150 }"#, item),
      try bench.failure(of: Encode.self, #"{ "stage": "encode", "format": "png" }"#, item),
    ] {
      #expect(error.code == "damaged")
      #expect(error.message.contains("damaged or cut short"))
    }
  }
}

/// Files that their writers are not done with.
@Suite struct ChangingSourceTests {
  let bench = StageBench()

  private func start(_ bytes: [UInt8]) -> Item { bench.item(holding: bytes, name: "growing.jpg") }

  private func outcome(of item: Item) throws -> Outcome {
    try bench.make(Resize.self, #"{ "stage": "resize", "width": 12 }"#)
      .processFrames(item, .each, in: bench.context("resize"))
  }

  /// A picture with so much in it that half of its file is not all.
  private static func busy() throws -> [UInt8] {
    try Pictures.jpeg(Pictures.image(96, 96) { x, y in [UInt8(x * y % 251), UInt8(x * 7 % 256), UInt8(y * 11 % 256)] })
  }

  private func append(_ bytes: [UInt8], to path: PathBytes) throws {
    let file = try #require(path.withCString { fopen($0, "ab") })
    #expect(fwrite(bytes, 1, bytes.count, file) == bytes.count)
    fclose(file)
  }

  @Test func theStampIsOfWhatWasRead() throws {
    let bytes = try Pictures.jpeg(Pictures.quarters())
    let item = try bench.decoded(start(bytes))
    let stamp = try #require(item.sourceStamp)
    #expect(stamp.size == Int64(bytes.count))
    #expect(stamp == FileStamp.of(item.identity.path))
    // It stays when the pixels go.
    #expect(item.releasingPixels().sourceStamp == stamp)
    try append([0], to: item.identity.path)
    #expect(stamp != FileStamp.of(item.identity.path))
    #expect(item.sourceStamp == stamp)
  }

  /// Half a file is damaged; once more has come since, that was no damage.
  @Test func halfAFileThatGoesOnIsPutOff() throws {
    let bytes = try Self.busy()
    let half = bytes.count / 2
    let item = try bench.decoded(start(Array(bytes[..<half])))
    #expect { _ = try outcome(of: item) } throws: { ($0 as? StageError)?.code == "damaged" }
    try append(Array(bytes[half...]), to: item.identity.path)
    guard case .deferred(let reason) = try outcome(of: item) else {
      Issue.record("not put off")
      return
    }
    #expect(reason.contains("since it was read"))
  }

  @Test func aFileThatWasReplacedOrRemovedIsPutOff() throws {
    let bytes = try Self.busy()
    let item = try bench.decoded(start(Array(bytes[..<(bytes.count / 2)])))
    _ = item.identity.path.withCString { unlink($0) }
    guard case .deferred = try outcome(of: item) else {
      Issue.record("not put off")
      return
    }
  }

  /// A picture that is whole is used, whatever happens to its file afterwards.
  @Test func aPictureThatWasReadWholeIsUsed() throws {
    let item = try bench.decoded(start(Pictures.jpeg(Pictures.quarters())))
    try append([1, 2, 3], to: item.identity.path)
    guard case .next(let small) = try outcome(of: item) else {
      Issue.record("not worked on")
      return
    }
    #expect(small.size?.width == 12)
  }
}
