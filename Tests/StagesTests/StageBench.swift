import Imaging
import JobSyntax
import PipelineKit
import Stages
import TestSupport
import Testing

/// Everything a test needs to run stages from outside, as the executor would.
struct StageBench {
  let folder = TemporaryFolder()
  var run: RunValues
  var limits = DecodeLimits()
  let temporaries = TemporaryFiles()
  let claims = OutputClaims()
  var protected = ProtectedPaths()
  var keepsSourceHash = false

  init() {
    // Its own, as every run's: what is left of a run is found by it and ended.
    let name = PathBytes(folder.path).lastComponent.display
    run = RunValues(baseFolder: PathBytes(folder.path), runID: "run-\(name)", runDate: "2026-05-01")
  }

  /// Everything lint says about a stage object: shape first, then the rules between fields.
  static func lint<S: Stage>(_ type: S.Type, _ json: String) throws -> [Diagnostic] {
    let (node, problems) = try parse(json)
    var checker = FieldChecker(file: "job.json", columns: .unknown)
    checker.append(problems)
    let shape = ObjectShape(S.spec.fields)
    checker.check(node, against: shape, owner: "stage \"\(S.spec.name)\"", ignoring: ["stage"])
    guard !checker.diagnostics.hasErrors else { return checker.diagnostics }
    return checker.diagnostics + S.check(Settings(reading: node, shape: shape, file: "job.json"))
  }

  static func settings<S: Stage>(_ type: S.Type, _ json: String) throws -> Settings {
    Settings(reading: try parse(json).0, shape: ObjectShape(S.spec.fields), file: "job.json")
  }

  private static func parse(_ json: String) throws -> (JSONNode, [Diagnostic]) {
    let (root, problems) = StrictJSON.parse(SourceFile(name: "job.json", text: Array(json.utf8)))
    return (try #require(root), problems)
  }

  func make<S: Stage>(_ type: S.Type, _ json: String) throws -> S {
    try #require(try Self.lint(type, json).isEmpty, "the test's own job must lint")
    return try S(
      Self.settings(type, json),
      resources: StageResources(
        run: run, computeWorkers: 2, facts: RunFacts(), decodeLimits: limits, keepsSourceHash: keepsSourceHash))
  }

  func context(
    _ stage: String = "stage", journal: ItemJournal = ItemJournal(), kept: (@Sendable (Item) -> KeptResults?)? = nil,
    cancelled: @escaping @Sendable () -> Bool = { false }
  ) -> StageContext {
    StageContext(
      stage: stage, run: run, journal: journal, temporaries: temporaries, claims: claims, protected: protected,
      kept: kept, cancelled: cancelled)
  }

  /// Runs one stage on one item.
  func process<S: Stage>(
    _ type: S.Type, _ json: String, _ item: Item, journal: ItemJournal = ItemJournal()
  ) throws -> Item {
    guard case .next(let result) = try make(type, json).process(item, in: context(S.spec.name, journal: journal)) else {
      throw StageError("test", "the stage did not pass the item on")
    }
    return result
  }

  /// What a stage throws for an item.
  func failure<S: Stage>(
    of type: S.Type, _ json: String, _ item: Item, journal: ItemJournal = ItemJournal()
  ) throws -> StageError {
    let stage = try make(type, json)
    do throws(StageError) {
      _ = try stage.process(item, in: context(S.spec.name, journal: journal))
    } catch {
      return error
    }
    throw StageError("test", "\(S.spec.name) took the item")
  }

  func item(_ path: String, name: String? = nil, directory: String = "", columns: [String: String] = [:]) -> Item {
    Item(
      identity: ItemIdentity(
        index: 0, path: PathBytes(path), name: PathBytes(name ?? path), directory: PathBytes(directory),
        columns: columns))
  }

  /// An item whose input is `bytes`, not yet opened.
  func item(holding bytes: [UInt8], name: String) -> Item {
    item(folder.write(bytes, to: name), name: name)
  }

  /// An item that is decoded already.
  func item(_ image: Image, name: String = "picture.png") -> Item { item(folder[name], name: name).with(image: image) }

  func decoded(_ item: Item, journal: ItemJournal = ItemJournal()) throws -> Item {
    try process(Decode.self, #"{ "stage": "decode" }"#, item, journal: journal)
  }
}

extension Item {
  /// The picture's pixels.
  func pixels() throws -> [UInt8] { try image().bytes() }
}

extension ItemJournal {
  var warningCodes: [String] { snapshot.warnings.map(\.code) }
}

/// Pictures worked out pixel by pixel.
enum Pictures {
  static func image(
    _ width: Int, _ height: Int, bands: Int = 3, _ pixel: (_ x: Int, _ y: Int) -> [UInt8]
  ) throws -> Image {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(width * height * bands)
    for y in 0..<height { for x in 0..<width { bytes += pixel(x, y) } }
    return try Image(width: width, height: height, bands: bands, bytes: bytes)
  }

  static func solid(_ width: Int, _ height: Int, _ pixel: UInt8...) throws -> Image {
    try image(width, height, bands: pixel.count) { _, _ in pixel }
  }

  static func jpeg(_ image: Image, quality: Int = 95) throws -> [UInt8] {
    try image.encoded(.jpeg(.init(quality: quality, chroma: .full))).array
  }

  static func png(_ image: Image) throws -> [UInt8] { try image.encoded(.png(.init())).array }

  static let (red, green, blue, yellow): ([UInt8], [UInt8], [UInt8], [UInt8]) = (
    [220, 30, 30], [30, 200, 30], [30, 30, 220], [230, 220, 30]
  )

  /// 64 × 48: red, green above blue, yellow.
  static func quarters() throws -> Image {
    try image(64, 48) { x, y in y < 24 ? (x < 32 ? red : green) : (x < 32 ? blue : yellow) }
  }
}

/// Metadata written byte by byte (TIFF 6.0, Exif 2.32), so that the reader under test does not check itself.
enum Metadata {
  /// A little-endian Exif block with an IFD of the given tags.
  static func exif(orientation: Int? = nil, texts: [(tag: Int, text: String)] = []) -> [UInt8] {
    func short(_ value: Int) -> [UInt8] { [UInt8(value & 255), UInt8(value >> 8 & 255)] }
    func long(_ value: Int) -> [UInt8] { short(value & 0xffff) + short(value >> 16) }
    let count = texts.count + (orientation == nil ? 0 : 1)
    var entries: [(tag: Int, bytes: [UInt8])] = []
    var data: [UInt8] = []
    let dataStart = 8 + 2 + count * 12 + 4
    if let orientation { entries.append((0x112, short(0x112) + short(3) + long(1) + short(orientation) + [0, 0])) }
    for (tag, text) in texts {
      let bytes = Array(text.utf8) + [0]
      precondition(bytes.count > 4, "shorter texts stand in the entry itself")
      entries.append((tag, short(tag) + short(2) + long(bytes.count) + long(dataStart + data.count)))
      data += bytes
    }
    entries.sort { $0.tag < $1.tag }
    return Array("II".utf8) + short(42) + long(8) + short(count) + entries.flatMap(\.bytes) + long(0) + data
  }

  /// The JPEG with an APP1 Exif segment straight after its first marker.
  static func jpeg(_ jpeg: [UInt8], exif: [UInt8]) -> [UInt8] {
    let body = Array("Exif".utf8) + [0, 0] + exif
    let length = body.count + 2
    return Array(jpeg[..<2]) + [0xff, 0xe1, UInt8(length >> 8), UInt8(length & 255)] + body + jpeg[2...]
  }
}

extension [UInt8] {
  func contains(_ text: String) -> Bool {
    let wanted = Array(text.utf8)
    guard count >= wanted.count else { return false }
    return (0...(count - wanted.count)).contains { self[$0..<$0 + wanted.count].elementsEqual(wanted) }
  }

  /// Whether every value lies within `tolerance` of the other's.
  func isNear(_ other: [UInt8], _ tolerance: Int) -> Bool {
    count == other.count && zip(self, other).allSatisfy { abs(Int($0) - Int($1)) <= tolerance }
  }
}
