import CSystem
import Dispatch
import Glibc
import Imaging
import JobSyntax
import PipelineKit
import Synchronization

/// Holds one stage, with one choice of settings, to the lines of a card.
///
/// A line that fails may crash, hang or spoil the process: whoever wants the whole card runs each in a process of its
/// own.
public struct ConformanceTest: Sendable {
  public let descriptor: StageDescriptor
  public let settings: Settings
  /// An empty folder for files that the probes need.
  private let folder: PathBytes
  private let plan: StagePlan
  private let avoidsAlpha: Bool

  /// - Parameter avoidsAlpha: whether pictures have no transparency where a line is not about it.
  public init(_ descriptor: StageDescriptor, _ settings: Settings, folder: PathBytes, avoidsAlpha: Bool = false) {
    self.descriptor = descriptor
    self.settings = settings
    self.folder = folder
    self.avoidsAlpha = avoidsAlpha
    plan = descriptor.plan(settings)
  }

  /// Settings from a stage object, or its members alone; where there are none, nothing but defaults, or else the first
  /// of the stage's examples.
  ///
  /// - Returns: nil, with what is wrong, where the stage does not take them.
  public static func settings(_ descriptor: StageDescriptor, _ text: String?) -> (Settings?, [Diagnostic]) {
    if let text { return read(descriptor, text) }
    var first: [Diagnostic] = []
    for text in ["{}"] + descriptor.spec.examples {
      let (settings, findings) = read(descriptor, text)
      if let settings { return (settings, []) }
      if first.isEmpty { first = findings }
    }
    return (nil, first)
  }

  private static func read(_ descriptor: StageDescriptor, _ text: String) -> (Settings?, [Diagnostic]) {
    let (root, problems) = StrictJSON.parse(SourceFile(name: "--settings", text: Array(text.utf8)))
    guard let root, !problems.hasErrors else { return (nil, problems) }
    var checker = FieldChecker(file: "--settings", columns: .none)
    checker.check(root, against: descriptor.shape, owner: "stage \"\(descriptor.spec.name)\"", ignoring: ["stage"])
    guard !checker.diagnostics.hasErrors else { return (nil, checker.diagnostics) }
    let settings = Settings(reading: root, shape: descriptor.shape, file: "--settings")
    let found = settings.isComplete ? descriptor.check(settings) : []
    return settings.isComplete && !found.hasErrors ? (settings, found) : (nil, found)
  }

  /// Why the stage cannot be tested here at all; nil where it can.
  public var obstacle: String? {
    if plan.price != nil || plan.lane == .network || plan.exchanges != nil {
      return "it works with a service, which no probe may call"
    }
    return nil
  }

  /// Judges one line, in this process.
  public func verdict(_ line: ConformanceLine) -> ConformanceVerdict {
    do {
      switch line {
      case .loads: return .pass
      case .settings: return settingsVerdict()
      case .starts: return try startsVerdict()
      case .picture: return try pictureVerdict()
      case .size: return try sizeVerdict()
      case .orientation: return try orientationVerdict()
      case .alpha: return try alphaVerdict(.rgb)
      case .greyAlpha: return try alphaVerdict(.grey)
      case .grey: return try kindVerdict(.grey)
      case .cmyk: return try kindVerdict(.cmyk)
      case .sixteenBit: return try depthVerdict()
      case .onePixel: return try extremeVerdict(1, 1)
      case .wide: return try extremeVerdict(8000, 2)
      case .tall: return try extremeVerdict(2, 8000)
      case .noMatte: return try noMatteVerdict()
      case .emptyMatte: return try matteVerdict(0)
      case .fullMatte: return try matteVerdict(255)
      case .animation: return try animationVerdict()
      case .badInput: return try badInputVerdict()
      case .inputKept: return try inputVerdict()
      case .repeatable: return try repeatVerdict()
      case .concurrent: return try concurrentVerdict()
      case .cancellation: return try cancellationVerdict()
      case .leaks: return try leakVerdict()
      }
    } catch let error as StageError {
      return .fail("error \(error.code): \(error.description)")
    } catch {
      return .fail("\(error)")
    }
  }

  // MARK: Running the stage

  private func make(isDeep: Bool = false) throws(StageError) -> any ReadyStage {
    try StageError.imaging { () throws(ImagingError) in try Libvips.start() }
    Libvips.setConcurrency(1)
    return try descriptor.make(
      settings,
      StageResources(
        run: run, computeWorkers: 8, facts: RunFacts(), workingSpace: WorkingSpace(depth: isDeep ? .sixteen : .eight)))
  }

  private var run: RunValues { RunValues(baseFolder: folder, runID: "conformance", runDate: "2026-01-01") }

  private func context(
    _ journal: ItemJournal = ItemJournal(), cancelled: @escaping @Sendable () -> Bool = { false }
  ) -> StageContext {
    StageContext(
      stage: descriptor.spec.name, run: run, journal: journal, temporaries: TemporaryFiles(), cancelled: cancelled)
  }

  private func process(
    _ stage: any ReadyStage, _ item: Item, cancelled: @escaping @Sendable () -> Bool = { false }
  ) throws(StageError) -> Item? {
    let outcome = try stage.processFrames(item, plan.frames, in: context(cancelled: cancelled))
    guard case .next(let next) = outcome else { return nil }
    return next
  }

  /// Whether the stage only takes what was cut out.
  private var needsCutout: Bool {
    !plan.accepts.union(plan.acceptsAny).isDisjoint(with: [.alpha, .matte])
  }
  private var opensFiles: Bool { plan.opensInputs }
  /// Whether pictures come out of the stage as they went in.
  private var passesPictures: Bool { !plan.produces.contains(.picture) && !plan.removes.contains(.encoded) }

  /// An item for the stage with this picture, as decode or the stages before would give it.
  ///
  /// - Parameters:
  ///   - matte: a matte that goes with it; the picture's transparency is then the same.
  ///   - opened: hands the picture over as a file that was opened and is not yet decoded.
  private func item(
    _ picture: ProbePicture, orientation: Int = 1, name: String = "probe.tif", opened: Bool = false,
    matte usesMatte: Bool? = nil
  ) throws(StageError) -> Item {
    var picture = picture
    let usesMatte = usesMatte ?? needsCutout
    if usesMatte, !avoidsAlpha || needsCutout, !plan.accepts.contains(.encoded) { picture.hasAlpha = true }
    let shape = picture
    let path = folder.joining("\(orientation)-\(picture.width)x\(picture.height)-\(name)")
    let item = Item(
      identity: ItemIdentity(
        index: 0, path: opensFiles ? path : folder.joining(name), name: PathBytes(name), directory: ""))
    if opensFiles {
      try Self.write(shape.tiff(orientation: orientation), to: path)
      return item
    }
    return try StageError.imaging { () throws(ImagingError) in
      if opened || orientation != 1 {
        let source = try EncodedPicture(
          bytes: EncodedBytes(shape.tiff(orientation: orientation)),
          options: DecodeOptions(space: WorkingSpace(depth: shape.isDeep ? .sixteen : .eight)))
        guard usesMatte || plan.accepts.contains(.encoded) else { return item.with(source: source) }
        let pixels = try source.pixels()
        return try finished(item.with(image: pixels), pixels, shape, usesMatte)
      }
      let pixels = try shape.image()
      return try finished(item.with(image: pixels), pixels, shape, usesMatte)
    }
  }

  private func finished(
    _ item: Item, _ pixels: Image, _ picture: ProbePicture, _ usesMatte: Bool
  ) throws(ImagingError) -> Item {
    var item = item
    if usesMatte {
      let original = pixels.hasAlpha ? try pixels.withoutAlpha().materialised() : pixels
      item = item.with(image: pixels, matte: try picture.matte(), original: original)
    }
    guard plan.accepts.contains(.encoded) else { return item }
    let bytes = try pixels.encoded(.png(.init()))
    return item.with(
      encoded: Item.Encoded(bytes: bytes, format: .png, width: pixels.width, height: pixels.height))
  }

  /// Writes a file unless it is there: several threads ask for the same.
  private static func write(_ bytes: [UInt8], to path: PathBytes) throws(StageError) {
    var status = stat()
    if path.withCString({ stat($0, &status) }) == 0, status.st_size == bytes.count { return }
    let descriptor = path.withCString { open($0, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600) }
    guard descriptor >= 0 else {
      throw StageError("probe-file", "cannot write \(path.printable)", kind: .environment)
    }
    defer { close(descriptor) }
    var rest = bytes[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
      guard count > 0 else { throw StageError("probe-file", "cannot write \(path.printable)", kind: .environment) }
      rest = rest.dropFirst(count)
    }
  }

  private static let plain = ProbePicture(width: 240, height: 160)

  /// Everything that came out, as bytes: frames, mattes, what was encoded.
  private func content(_ item: Item?) throws(StageError) -> [UInt8] {
    guard let item else { return [] }
    return try StageError.imaging { () throws(ImagingError) in
      var bytes: [UInt8] = []
      if let encoded = item.encoded { bytes += encoded.bytes.array }
      var images: [Image] = []
      switch item.picture {
      case .none: break
      case .encoded(let source): images.append(try source.pixels())
      case .image(let image): images.append(image)
      case .animation(let frames): images += frames.frames.map(\.image)
      }
      if let matte = item.matte { images.append(matte) }
      for image in images {
        bytes += Array("\(image.width) \(image.height) \(image.bands) \(image.depth) ".utf8)
        bytes += try image.bytes()
      }
      return bytes
    }
  }

  private func image(_ item: Item?) throws(StageError) -> Image? {
    guard let item else { return nil }
    if case .none = item.picture { return nil }
    return try StageError.imaging { () throws(ImagingError) in try item.image().materialised() }
  }

  /// Makes the stage ready, works with it and lets it finish.
  private func with<R>(isDeep: Bool = false, _ body: (any ReadyStage) throws -> R) throws -> R {
    let stage = try make(isDeep: isDeep)
    let result: R
    do {
      result = try body(stage)
    } catch {
      try? stage.finish()
      throw error
    }
    try stage.finish()
    return result
  }

  /// Why the line says nothing about the stage, where it is about pixels.
  private var pixelObstacle: ConformanceVerdict? {
    if plan.accepts.contains(.encoded) { return .notApplicable("it works on encoded results") }
    if passesPictures, !plan.produces.contains(.encoded) { return .notApplicable("it does not touch pixels") }
    return nil
  }

  // MARK: Lines

  private func settingsVerdict() -> ConformanceVerdict {
    let name = descriptor.spec.name
    for example in descriptor.spec.examples {
      let findings = Self.read(descriptor, example).1
      if let error = findings.first(where: { $0.severity == .error }) {
        return .fail("the example \(example) is refused: \(error.message)")
      }
    }
    func isRefused(_ member: String, _ value: JSONText) -> Bool {
      let text = JSONText.object([("stage", .string(name)), (member, value)]).rendered()
      let (root, _) = StrictJSON.parse(SourceFile(name: "probe", text: Array(text.utf8)))
      guard let root else { return false }
      var checker = FieldChecker(file: "probe", columns: .none)
      checker.check(root, against: descriptor.shape, owner: name, ignoring: ["stage"])
      return checker.diagnostics.contains { $0.severity == .error && $0.path?.hasPrefix("$.\(member)") == true }
    }
    guard isRefused("noSuchSetting", 1) else { return .fail("an unknown key is taken") }
    for field in descriptor.spec.fields {
      for (value, what) in Self.wrongValues(field.type) where !isRefused(field.name, value) {
        return .fail("\"\(field.name)\" takes \(what): \(value.rendered())")
      }
    }
    return .pass
  }

  /// Values that no field of this type may take.
  private static func wrongValues(_ type: FieldType) -> [(JSONText, String)] {
    switch type {
    case .any, .stages, .branches, .condition, .oneOf: return []
    case .boolean: return [("maybe", "a text for a boolean"), (1, "a number for a boolean")]
    case .integer(let range):
      var wrong: [(JSONText, String)] = [
        (.string("many"), "a text for a number"), (.number(Double(range.lowerBound) + 0.5), "half a number"),
      ]
      if range.lowerBound > -1_000_000_000 { wrong.append((.integer(range.lowerBound - 1), "less than its least")) }
      if range.upperBound < 1_000_000_000_000 { wrong.append((.integer(range.upperBound + 1), "more than its most")) }
      return wrong
    case .number(let range):
      var wrong: [(JSONText, String)] = [(.string("much"), "a text for a number")]
      if range.lowerBound > -1e9 { wrong.append((.number(range.lowerBound - 1), "less than its least")) }
      if range.upperBound < 1e9 { wrong.append((.number(range.upperBound + 1), "more than its most")) }
      return wrong
    case .text: return [(.integer(7), "a number for a text")]
    case .choice: return [("no such word", "a word that is none of its choices"), (7, "a number for a word")]
    case .array: return [("one", "a text for a list")]
    case .object, .named: return [("one", "a text for an object")]
    }
  }

  private func startsVerdict() throws -> ConformanceVerdict {
    try make().finish()
    return .pass
  }

  private func pictureVerdict() throws -> ConformanceVerdict {
    try with { stage in
      let result: Item?
      do throws(StageError) {
        result = try process(stage, item(Self.plain))
      } catch {
        // Said on the line about sides.
        guard error.code == "plugin-size" else { throw error }
        return .notApplicable("see size")
      }
      guard let result else { return .pass }
      if plan.produces.contains(.encoded), result.encoded == nil { return .fail("nothing was encoded") }
      guard let image = try image(result) else {
        return plan.produces.contains(.picture) ? .fail("the picture is gone") : .pass
      }
      let isMask = image.bands == 1
      guard isMask || image.bands == 3 || image.bands == 4 else { return .fail("\(image.bands) bands") }
      guard image.depth == 8 else { return .fail("\(image.depth) bits a sample, of a picture with 8") }
      return .pass
    }
  }

  private func sizeVerdict() throws -> ConformanceVerdict {
    if plan.movesPixels { return .notApplicable("the stage says that it moves pixels") }
    return try with { stage in
      let result = try process(stage, item(Self.plain))
      guard let image = try image(result) else { return .notApplicable("no picture comes out of it") }
      guard image.width == Self.plain.width, image.height == Self.plain.height else {
        return .fail("\(image.width)×\(image.height) from \(Self.plain.width)×\(Self.plain.height)")
      }
      return .pass
    }
  }

  private func orientationVerdict() throws -> ConformanceVerdict {
    if let pixelObstacle { return pixelObstacle }
    return try with { stage in
      // Square, so that a turn is not seen by the sides alone.
      let picture = ProbePicture(width: 96, height: 96)
      var upright: Light?
      for orientation in 1...8 {
        let item = try item(picture, orientation: orientation, opened: true)
        guard let result = try process(stage, item), let image = try image(result) else {
          return .notApplicable("no picture comes out of it")
        }
        let light = try Light(image)
        guard let first = upright else {
          upright = light
          continue
        }
        guard light.width == first.width, light.height == first.height else {
          return .fail(
            "orientation \(orientation) gives \(light.width)×\(light.height), orientation 1 \(first.width)×\(first.height)"
          )
        }
        let distance = light.distance(first)
        guard distance <= 8 else {
          return .fail(
            "orientation \(orientation) gives another picture than orientation 1: \(Self.short(distance)) levels of 255 apart"
          )
        }
      }
      // What is left of a picture by a matte that the stage made says little about its place.
      guard !plan.movesPixels, !plan.produces.contains(.matte), let upright else { return .pass }
      var shown = picture
      shown.hasAlpha = needsCutout
      let before = try Light(shown.image()).cells()
      let after = upright.cells()
      let likeness = (0..<8).map { after.correlation(before.turned($0)) }
      guard let best = likeness.indices.max(by: { likeness[$0] < likeness[$1] }) else { return .pass }
      guard best == 0 || likeness[0] >= likeness[best] - 0.05 else {
        return .fail("the picture comes out \(Light.turns[best])")
      }
      return .pass
    }
  }

  private func alphaVerdict(_ kind: ProbePicture.Kind) throws -> ConformanceVerdict {
    if let pixelObstacle { return pixelObstacle }
    if plan.removes.contains(.alpha), !opensFiles {
      return .notApplicable("the stage says that it removes transparency")
    }
    if plan.produces.contains(.encoded) { return .notApplicable("what is kept is the format's matter") }
    return try with { stage in
      var picture = Self.plain
      picture.kind = kind
      picture.hasAlpha = true
      guard let result = try process(stage, item(picture)), let image = try image(result) else {
        return .notApplicable("no picture comes out of it")
      }
      guard image.hasAlpha else { return .fail("transparency is gone: \(image.bands) bands") }
      guard !plan.movesPixels, !plan.produces.contains(.alpha) else { return .pass }
      let levels = try image.alphaBand().bytes()
      guard let least = levels.min(), let most = levels.max(), most > least else {
        return .fail("transparency is \(levels.first ?? 0) of 255 all over")
      }
      return .pass
    }
  }

  private func kindVerdict(_ kind: ProbePicture.Kind) throws -> ConformanceVerdict {
    if plan.accepts.contains(.encoded) { return .notApplicable("it works on encoded results") }
    return try with { stage in
      var picture = Self.plain
      picture.kind = kind
      if needsCutout, kind == .cmyk { picture.kind = .rgb }
      guard let result = try process(stage, item(picture, opened: true)) else { return .pass }
      _ = try content(result)
      return .pass
    }
  }

  private func depthVerdict() throws -> ConformanceVerdict {
    if let pixelObstacle { return pixelObstacle }
    if plan.mostDepth < 16 { return .notApplicable("the stage says that it narrows what is deeper") }
    return try with(isDeep: true) { stage in
      var deep = Self.plain
      deep.isDeep = true
      guard let deepResult = try image(process(stage, item(deep))) else {
        return .notApplicable("no picture comes out of it")
      }
      if plan.produces.contains(.encoded) { return .pass }
      guard deepResult.depth == 16 || deepResult.bands == 1 else {
        return .fail("samples come out with \(deepResult.depth) bits")
      }
      let result = try with { stage in try image(process(stage, item(Self.plain))) }
      guard let result else { return .pass }
      let (a, b) = (try Light(deepResult), try Light(result))
      guard a.width == b.width, a.height == b.height else {
        return .fail("\(a.width)×\(a.height) with 16 bits, \(b.width)×\(b.height) with 8")
      }
      let distance = a.distance(b)
      guard distance <= 3 else {
        return .fail("the result with 16 bits is \(Self.short(distance)) levels of 255 from the one with 8")
      }
      return .pass
    }
  }

  /// A result, or an error that says why, and whether a result has the sides that it should.
  private func isDecent(_ stage: any ReadyStage, _ item: Item, _ picture: ProbePicture) throws -> ConformanceVerdict {
    let result: Item?
    do throws(StageError) {
      result = try process(stage, item)
    } catch {
      return Self.saysWhy(error) ? .init(.pass, "error \(error.code)") : .fail("error \(error.code): \(error.message)")
    }
    guard let image = try image(result) else { return .pass }
    if !plan.movesPixels, image.width != picture.width || image.height != picture.height {
      return .fail("\(image.width)×\(image.height) from \(picture.width)×\(picture.height)")
    }
    if let matte = result?.matte {
      guard matte.bands == 1, matte.width == image.width, matte.height == image.height else {
        return .fail(
          "the matte has \(matte.width)×\(matte.height) pixels and \(matte.bands) bands, the picture "
            + "\(image.width)×\(image.height)")
      }
      _ = try matte.bytes()
    }
    return .pass
  }

  /// Whether an error is one about the picture, by the stage's own words.
  private static func saysWhy(_ error: StageError) -> Bool {
    error.kind == .item && !error.code.isEmpty && !error.message.isEmpty && !error.code.hasPrefix("plugin-")
  }

  private func extremeVerdict(_ width: Int, _ height: Int) throws -> ConformanceVerdict {
    if plan.accepts.contains(.encoded) { return .notApplicable("it works on encoded results") }
    return try with { stage in
      let picture = ProbePicture(width: width, height: height, alphaLevel: 200)
      return try isDecent(stage, item(picture), picture)
    }
  }

  private func noMatteVerdict() throws -> ConformanceVerdict {
    if let pixelObstacle { return pixelObstacle }
    if plan.accepts.contains(.matte) || needsCutout { return .notApplicable("the stage asks for one") }
    return try with { stage in
      let result = try process(stage, item(Self.plain, matte: false))
      guard result?.matte == nil || plan.produces.contains(.matte) else {
        return .fail("a matte comes out that the stage does not speak of")
      }
      _ = try content(result)
      return .pass
    }
  }

  private func matteVerdict(_ level: UInt8) throws -> ConformanceVerdict {
    if let pixelObstacle { return pixelObstacle }
    if opensFiles { return .notApplicable("pictures come to it without one") }
    return try with { stage in
      var picture = Self.plain
      picture.alphaLevel = level
      return try isDecent(stage, item(picture, matte: true), picture)
    }
  }

  private func animationVerdict() throws -> ConformanceVerdict {
    if plan.accepts.contains(.encoded) || opensFiles { return .notApplicable("it gets no frames") }
    return try with { stage in
      var frames: [ItemFrames.Frame] = []
      for seed in 0..<3 {
        var picture = Self.plain
        picture.seed = seed
        let one = try item(picture)
        frames.append(
          .init(image: try one.image(), matte: one.matte, original: one.original, mattes: [:]))
      }
      let animation = ItemFrames(frames: frames, delays: [100, 200, 300], loop: 2)
      let input = try item(Self.plain).with(animation: animation)
      let result: Item?
      do throws(StageError) {
        result = try process(stage, input)
      } catch {
        guard error.kind == .item || error.kind == .job, !error.message.isEmpty, !error.code.hasPrefix("plugin-") else {
          throw error
        }
        return .init(.pass, "error \(error.code)")
      }
      guard let result, case .animation(let after) = result.picture else { return .pass }
      guard after.frames.count == 3, after.delays == animation.delays, after.loop == 2 else {
        return .fail("\(after.frames.count) frames with the times \(after.delays), played \(after.loop) times")
      }
      guard let first = after.frames.first,
        after.frames.allSatisfy({ $0.image.width == first.image.width && $0.image.height == first.image.height })
      else { return .fail("the frames have different sides") }
      return .pass
    }
  }

  private func badInputVerdict() throws -> ConformanceVerdict {
    if let pixelObstacle { return pixelObstacle }
    return try with { stage in
      let whole = try ProbePicture(width: 200, height: 200).image().encoded(.png(.init(compression: 1))).array
      let cut = Array(whole.prefix(whole.count / 2))
      let path = folder.joining("bad.png")
      let identity = ItemIdentity(index: 0, path: path, name: "bad.png", directory: "")
      var item = Item(identity: identity)
      if opensFiles {
        try Self.write(Array(cut.prefix(20)), to: path)
      } else {
        let source = try EncodedPicture(bytes: EncodedBytes(cut))
        item = item.with(source: source)
      }
      do throws(StageError) {
        let result = try process(stage, item)
        if case .encoded? = result?.picture { return .pass }
        return .fail("a result came of it")
      } catch {
        return Self.saysWhy(error) ? .pass : .fail("error \(error.code): \(error.description)")
      }
    }
  }

  private func inputVerdict() throws -> ConformanceVerdict {
    if opensFiles { return .notApplicable("no pixels come to it") }
    return try with { stage in
      for usesMatte in needsCutout ? [true] : [false, true] {
        let item = try item(Self.plain, matte: usesMatte)
        let images = [try item.image(), item.matte, item.original].compactMap(\.self)
        let before = try images.map { try $0.bytes() }
        _ = try content(process(stage, item))
        for (index, image) in images.enumerated() where try image.bytes() != before[index] {
          return .fail("pixels of the \(index == 0 ? "picture" : "matte or original") were written to")
        }
      }
      return .pass
    }
  }

  private func repeatVerdict() throws -> ConformanceVerdict {
    try with { stage in
      let first = try content(process(stage, item(Self.plain)))
      guard try content(process(stage, item(Self.plain))) == first else { return .fail("the second result is another") }
      let third = try with { stage in try content(process(stage, item(Self.plain))) }
      guard third == first else { return .fail("a second instance gives another result") }
      return .pass
    }
  }

  private func concurrentVerdict() throws -> ConformanceVerdict {
    if plan.produces.contains(.output) { return .notApplicable("every picture has an output of its own") }
    return try with { stage in
      let pictures = (0..<8).map { ProbePicture(width: 160 + 8 * $0, height: 120, seed: $0) }
      let expected = try pictures.map { try content(process(stage, item($0, name: "p\($0.seed).tif"))) }
      let problems = Mutex<[String]>([])
      let group = DispatchGroup()
      for thread in 0..<8 {
        let queue = DispatchQueue(label: "conformance.\(thread)")
        queue.async(group: group) {
          for round in 0..<4 {
            let index = (thread + round) % pictures.count
            let picture = pictures[index]
            do {
              let found = try content(process(stage, item(picture, name: "p\(picture.seed).tif")))
              if found != expected[index] { problems.withLock { $0.append("a result is another than before") } }
            } catch {
              problems.withLock { $0.append("\(error)") }
            }
          }
          Libvips.threadShutdown()
        }
      }
      group.wait()
      let found = problems.withLock { $0 }
      guard let first = found.first else { return .pass }
      return .fail("\(found.count) of 32 calls went wrong: \(first)")
    }
  }

  private func cancellationVerdict() throws -> ConformanceVerdict {
    try with { stage in
      let picture = ProbePicture(width: 480, height: 360)
      for delay in [Duration.zero, .milliseconds(20)] {
        let item = try item(picture)
        let begin = ContinuousClock.now
        do throws(StageError) {
          _ = try content(process(stage, item) { ContinuousClock.now - begin >= delay })
        } catch {
          // Giving up is as good as a result.
        }
        let passed = ContinuousClock.now - begin - delay
        guard passed < .seconds(10) else { return .fail("it took \(Self.short(passed / .seconds(1))) s") }
      }
      return .pass
    }
  }

  private func leakVerdict() throws -> ConformanceVerdict {
    try with { stage in
      let picture = ProbePicture(width: 128, height: 96)
      func once() throws { _ = try content(process(stage, item(picture))) }
      for _ in 0..<5 { try once() }
      let begin = ContinuousClock.now
      for _ in 0..<5 { try once() }
      let each = (ContinuousClock.now - begin) / .seconds(5)
      // Something slow, such as a model, is not called without end.
      let count = max(5, min(300, Int(15 / max(each, 0.001))))
      func batch() throws -> (heap: Int, files: Int, images: Int) {
        for _ in 0..<count { try once() }
        csystem_release_memory()
        return (Int(csystem_heap_bytes()), Self.openFiles, Libvips.liveImages)
      }
      let states = [try batch(), try batch(), try batch()]
      func growth(_ value: ((heap: Int, files: Int, images: Int)) -> Int) -> Int {
        min(value(states[1]) - value(states[0]), value(states[2]) - value(states[1]))
      }
      let heap = growth(\.heap)
      // Caches may still fill up, malloc's own too; what is kept for each picture shows in both batches.
      guard heap < count * 512 + 131_072 else {
        return .fail("\(heap / count) bytes of memory are kept for each picture")
      }
      let files = growth(\.files)
      guard files < max(1, count / 2) else {
        return .fail("\(files) file descriptors stay open after \(count) pictures")
      }
      let images = growth(\.images)
      guard images < max(1, count / 2) else { return .fail("\(images) images are kept after \(count) pictures") }
      return .pass
    }
  }

  private static var openFiles: Int {
    guard let folder = opendir("/proc/self/fd") else { return 0 }
    defer { closedir(folder) }
    var count = 0
    while readdir(folder) != nil { count += 1 }
    return count
  }

  private static func short(_ value: Double) -> String { "\((value * 10).rounded() / 10)" }
}
