import Dispatch
import Glibc
import Imaging
import Inference
import JobSyntax
import PipelineKit
import Stages
import Synchronization
import TestSupport
import Testing

/// Whether the real runtime and the real u2netp are where `make test` installs them.
let segmentModelIsInstalled: Bool = {
  let home = PipelineHome.current
  guard let u2netp = ModelCatalogue.named("u2netp") else { return false }
  return (try? home.locateRuntime()) != nil && (try? ModelCatalogue.locate(u2netp, home: home)) != nil
}()
private let needsModel: Comment = "needs the OpenVINO runtime and u2netp: make provision"

@Suite struct SegmentTests {
  let bench = StageBench()

  /// A lit ball on a dim floor.
  static func ball(
    _ width: Int = 240, _ height: Int = 180, x centreX: Int = 100, y centreY: Int = 90, radius: Int = 50,
    alpha: ((_ x: Int, _ y: Int) -> UInt8)? = nil
  ) throws -> Image {
    try Pictures.image(width, height, bands: alpha == nil ? 3 : 4) { x, y in
      let distance = (x - centreX) * (x - centreX) + (y - centreY) * (y - centreY)
      let square = radius * radius
      let colour = [(40, 230), (50, 120), (60, 60)].enumerated().map { channel, levels in
        UInt8(
          distance < square
            ? levels.1 - levels.1 * distance / square / 2 : levels.0 + y * 40 / height + channel * 3)
      }
      return colour + (alpha.map { [$0(x, y)] } ?? [])
    }
  }

  private func segment(_ image: Image, _ settings: String = "", journal: ItemJournal = ItemJournal()) throws -> Item {
    let json = "{ \"stage\": \"segment\"\(settings.isEmpty ? "" : ", " + settings) }"
    return try bench.process(Segment.self, json, bench.item(image), journal: journal)
  }

  private func colours(_ image: Image) throws -> [UInt8] { try image.withoutAlpha().bytes() }

  // MARK: What comes out

  @Test(
    "without decontaminate a cut-out keeps every colour, and it has the mask as alpha",
    .enabled(if: segmentModelIsInstalled, needsModel))
  func cutout() throws {
    let picture = try Self.ball()
    let item = try segment(picture, #""decontaminate": false"#)
    let result = try item.image()
    let matte = try #require(item.matte)
    #expect(result.bands == 4 && result.width == 240 && result.height == 180)
    #expect(matte.bands == 1 && matte.width == 240 && matte.height == 180)
    #expect(try colours(result) == picture.bytes())
    let alpha = try result.alphaBand().bytes()
    #expect(try alpha == matte.bytes())
    #expect(try item.original?.bytes() == picture.bytes())
    // The ball is the subject: opaque 8 pixels inside its edge, gone 8 pixels outside.
    for y in 0..<180 {
      for x in 0..<240 {
        let distance = (x - 100) * (x - 100) + (y - 90) * (y - 90)
        if distance < 42 * 42 { try #require(alpha[y * 240 + x] > 230, "\(x),\(y): \(alpha[y * 240 + x])") }
        if distance > 58 * 58 { try #require(alpha[y * 240 + x] < 25, "\(x),\(y): \(alpha[y * 240 + x])") }
      }
    }
  }

  @Test(
    "transparency that is there is multiplied by the mask, rounded", .enabled(if: segmentModelIsInstalled, needsModel))
  func existingAlpha() throws {
    func own(_ x: Int, _ y: Int) -> UInt8 { UInt8((x * 7 + y * 3) % 256) }
    let picture = try Self.ball(alpha: own)
    let asModel = #""refine": false, "decontaminate": false"#
    let item = try segment(picture, asModel)
    let result = try item.image()
    #expect(try colours(result) == colours(picture))
    // The model sees the colours alone, so the mask is that of the opaque picture.
    let mask = try #require(try segment(try Self.ball(), asModel).matte).bytes()
    #expect(try item.matte?.bytes() == mask)
    // mask · alpha / 255 never lies half-way between two levels, so there is one right answer.
    let expected = mask.enumerated().map { place, level in
      let product = Int(level) * Int(own(place % 240, place / 240))
      return UInt8((2 * product + 255) / 510)
    }
    #expect(Set(mask).count > 20, "an edge that is not soft proves little")
    #expect(try result.alphaBand().bytes() == expected)
  }

  @Test("as a mask the picture is one band, white on the subject", .enabled(if: segmentModelIsInstalled, needsModel))
  func mask() throws {
    let picture = try Self.ball(alpha: { _, _ in 77 })
    let item = try segment(picture, #""output": "mask""#)
    let result = try item.image()
    #expect(result.bands == 1 && result.width == 240 && result.height == 180)
    #expect(try result.bytes() == item.matte?.bytes())
    #expect(try item.original?.bytes() == picture.bytes())
    let bytes = try result.bytes()
    #expect(bytes[90 * 240 + 100] > 250)
    #expect(bytes[5 * 240 + 230] < 5)
    // The same mask that a cut-out is made with.
    #expect(try segment(picture).matte?.bytes() == bytes)
  }

  // MARK: Nothing found

  @Test(
    "a picture without a subject fails by default, and says what else can be done",
    .enabled(if: segmentModelIsInstalled, needsModel))
  func emptyFails() throws {
    let grey = bench.item(try Pictures.solid(64, 48, 128, 128, 128))
    for json in [#"{ "stage": "segment" }"#, #"{ "stage": "segment", "onEmpty": "fail", "output": "mask" }"#] {
      let journal = ItemJournal()
      let error = try bench.failure(of: Segment.self, json, grey, journal: journal)
      #expect(error.code == "nothing-found")
      #expect(error.kind == .item)
      #expect(error.hint?.contains("keep") == true && error.hint?.contains("clear") == true)
      #expect(journal.warningCodes.isEmpty)
    }
  }

  @Test(
    "keep takes the whole picture, clear takes nothing of it; both warn",
    .enabled(if: segmentModelIsInstalled, needsModel),
    arguments: [("keep", UInt8(255)), ("clear", 0)])
  func emptyGoesOn(choice: String, level: UInt8) throws {
    let all = [UInt8](repeating: level, count: 64 * 48)
    let journal = ItemJournal()
    let item = try segment(Pictures.solid(64, 48, 128, 128, 128), "\"onEmpty\": \"\(choice)\"", journal: journal)
    #expect(try item.image().alphaBand().bytes() == all)
    #expect(try item.matte?.bytes() == all)
    #expect(try colours(item.image()) == [UInt8](repeating: 128, count: 64 * 48 * 3))
    #expect(journal.warningCodes == ["nothing-found"])
    #expect(journal.snapshot.warnings.first?.stage == "segment")

    // What was transparent does not come back.
    let glass = try segment(Pictures.solid(64, 48, 128, 128, 128, 90), "\"onEmpty\": \"\(choice)\"")
    #expect(try glass.image().alphaBand().bytes() == [UInt8](repeating: level == 255 ? 90 : 0, count: 64 * 48))

    let mask = try segment(Pictures.solid(64, 48, 9, 9, 9), "\"onEmpty\": \"\(choice)\", \"output\": \"mask\"")
    #expect(try mask.image().bands == 1)
    #expect(try mask.pixels() == all)
  }

  // MARK: Sizes

  @Test(
    "pictures of a pixel's width come through whole", .enabled(if: segmentModelIsInstalled, needsModel),
    arguments: [(1, 1), (1, 2000), (2000, 1), (2, 3)])
  func slivers(width: Int, height: Int) throws {
    let picture = try Pictures.image(width, height) { x, y in
      let lit = (x + y) * 5 / (width + height) == 2
      return lit ? [250, 240, 60] : [UInt8((x + y) % 50), 30, 60]
    }
    let item = try segment(picture, #""onEmpty": "keep""#)
    let result = try item.image()
    #expect(result.width == width && result.height == height && result.bands == 4)
    #expect(item.matte?.width == width && item.matte?.height == height)
    #expect(try colours(result) == picture.bytes())
    #expect(try result.alphaBand().bytes() == item.matte?.bytes())
  }

  // MARK: Models and precision

  @Test("an unknown model is refused while linting, with the nearest name")
  func unknownModel() throws {
    let near = try StageBench.lint(Segment.self, #"{ "stage": "segment", "model": "u2netpp" }"#)
    #expect(near.map(\.code) == ["unknown-model"])
    #expect(near.first?.severity == .error)
    #expect(near.first?.message.contains("\"u2netpp\"") == true)
    #expect(near.first?.hint == "did you mean \"u2netp\"?")
    #expect(near.first?.path?.hasSuffix("model") == true)
    let far = try StageBench.lint(Segment.self, #"{ "stage": "segment", "model": "midjourney" }"#)
    #expect(far.map(\.code) == ["unknown-model"])
    for recipe in ModelCatalogue.all { #expect(far.first?.hint?.contains(recipe.name) == true, "\(recipe.name)") }
  }

  @Test("every model of the catalogue passes, and wrong words do not")
  func choices() throws {
    for recipe in ModelCatalogue.all {
      #expect(try StageBench.lint(Segment.self, "{ \"stage\": \"segment\", \"model\": \"\(recipe.name)\" }").isEmpty)
    }
    for wrong in [
      #""precision": "bf16""#, #""onEmpty": "drop""#, #""output": "matte""#, #""provider": "cloud""#,
      #""modell": "u2netp""#,
    ] {
      #expect(try StageBench.lint(Segment.self, "{ \"stage\": \"segment\", \(wrong) }").hasErrors, "\(wrong)")
    }
  }

  @Test("the plan says what the chain has afterwards")
  func plan() throws {
    let cutout = Segment.plan(try StageBench.settings(Segment.self, #"{ "stage": "segment" }"#))
    #expect(cutout.lane == .compute)
    #expect(cutout.accepts.contains(.picture))
    #expect(cutout.produces.contains([.alpha, .matte]))
    let mask = Segment.plan(try StageBench.settings(Segment.self, #"{ "stage": "segment", "output": "mask" }"#))
    #expect(mask.produces.contains(.matte) && !mask.produces.contains(.alpha) && mask.removes.contains(.alpha))
    // Colours, matte and cut-out are held at once: at least 3 + 1 + 4 bytes a pixel.
    #expect(cutout.workingBytes(6000, 4000) >= 6000 * 4000 * 8)
  }

  @Test("fast runs, stays near f32, and the report names what ran", .enabled(if: segmentModelIsInstalled, needsModel))
  func fast() throws {
    let picture = try Self.ball()
    func run(_ precision: String) throws -> (matte: [UInt8], model: String, version: String) {
      let facts = RunFacts()
      let stage = try Segment(
        StageBench.settings(Segment.self, "{ \"stage\": \"segment\", \"precision\": \"\(precision)\" }"),
        resources: StageResources(run: bench.run, computeWorkers: 2, facts: facts))
      guard case .next(let item) = try stage.process(bench.item(picture), in: bench.context("segment")) else {
        throw StageError("test", "the stage did not pass the item on")
      }
      let named = Dictionary(uniqueKeysWithValues: facts.all.map { ($0.0, $0.1.rendered()) })
      return (
        try #require(item.matte).bytes(), try #require(named["model"]), try #require(named["version.openvino"])
      )
    }
    let exact = try run("f32")
    let fast = try run("fast")
    let recipe = try #require(ModelCatalogue.named("u2netp"))
    let sha256 = try #require(recipe.sha256)
    for part in [#""name":"u2netp""#, "\"sha256\":\"\(sha256)\"", #""verified":true"#, #""precision":"f32""#] {
      #expect(exact.model.contains(part), "\(exact.model)")
    }
    // What this processor can do decides what "fast" means.
    #expect(fast.model.contains("\"precision\":\"\(try Model.fastPrecision(of: sha256))\""), "\(fast.model)")
    #expect(exact.version == fast.version && exact.version.contains("20"))
    let total = zip(exact.matte, fast.matte).reduce(0) { $0 + abs(Int($1.0) - Int($1.1)) }
    #expect(Double(total) / Double(exact.matte.count) <= 2)
  }

  @Test("without the model or the runtime the stage says where it looked, and the run cannot start")
  func missing() async {
    // A process of its own, because the environment belongs to the whole process.
    await #expect(processExitsWith: .success) {
      let bench = StageBench()
      func failure() throws -> StageError? {
        let settings = try StageBench.settings(Segment.self, #"{ "stage": "segment" }"#)
        do throws(StageError) {
          _ = try Segment(
            settings, resources: StageResources(run: bench.run, computeWorkers: 1, facts: RunFacts()))
          return nil
        } catch { return error }
      }
      let isInstalled = segmentModelIsInstalled
      let home = PipelineHome.current.root
      setenv("PIPELINE_HOME", bench.folder.path, 1)
      let model = try failure()
      guard let model, model.code == "model-missing", model.kind == .environment,
        model.message.contains(bench.folder["models/u2netp.onnx"]), model.hint != nil
      else { fatalError("without a model: \(String(describing: model))") }
      guard isInstalled else { return }
      setenv("PIPELINE_HOME", home, 1)
      setenv("PIPELINE_OPENVINO", bench.folder.path, 1)
      let runtime = try failure()
      guard let runtime, runtime.code == "runtime-missing", runtime.kind == .environment,
        runtime.message.contains(bench.folder.path), runtime.hint?.contains("PIPELINE_OPENVINO") == true
      else { fatalError("without a runtime: \(String(describing: runtime))") }
    }
  }

  // MARK: Many at once

  @Test("eight callers on two requests each get their own mask", .enabled(if: segmentModelIsInstalled, needsModel))
  func concurrent() throws {
    let stage = try bench.make(Segment.self, #"{ "stage": "segment", "output": "mask" }"#)
    let items = try (0..<8).map { index in
      bench.item(
        try Self.ball(200 + index * 8, 160, x: 50 + index * 15, y: 60 + index * 5, radius: 30 + index * 3),
        name: "\(index).png")
    }
    let run = bench
    @Sendable func mask(_ item: Item) -> [UInt8]? {
      guard case .next(let result)? = try? stage.process(item, in: run.context("segment")) else { return nil }
      return try? result.pixels()
    }
    let alone = try items.map { try #require(mask($0)) }
    #expect(Set(alone).count == 8)

    // Serial queues of their own: a concurrent one would start only as many as there are cores.
    let together = Mutex<[Int: [UInt8]]>([:])
    let group = DispatchGroup()
    let start = DispatchSemaphore(value: 0)
    for (index, item) in items.enumerated() {
      DispatchQueue(label: "caller \(index)").async(group: group) {
        start.wait()
        let answer = mask(item)
        together.withLock { $0[index] = answer }
      }
    }
    for _ in items { start.signal() }
    group.wait()
    for index in items.indices { #expect(together.withLock { $0[index] } == alone[index], "caller \(index)") }
    try stage.finish()
  }

  @Test("a stage ends well, with or without work done", .enabled(if: segmentModelIsInstalled, needsModel))
  func finish() throws {
    let stage = try bench.make(Segment.self, #"{ "stage": "segment" }"#)
    try stage.finish()
    let used = try bench.make(Segment.self, #"{ "stage": "segment" }"#)
    _ = try used.process(bench.item(try Self.ball()), in: bench.context("segment"))
    try used.finish()
  }

  @Test("no image is left behind, whatever the outcome", .enabled(if: segmentModelIsInstalled, needsModel))
  func leaks() async {
    // A process of its own, because the count is of all images in the process.
    await #expect(processExitsWith: .success) {
      let bench = StageBench()
      let cutout = try bench.make(Segment.self, #"{ "stage": "segment", "onEmpty": "clear" }"#)
      let mask = try bench.make(Segment.self, #"{ "stage": "segment", "output": "mask" }"#)
      let before = Libvips.liveImages
      for _ in 0..<2 {
        let pictures = [
          try SegmentTests.ball(), try SegmentTests.ball(alpha: { x, _ in UInt8(x) }),
          try Pictures.solid(40, 30, 128, 128, 128),
        ]
        for picture in pictures {
          _ = try cutout.process(bench.item(picture), in: bench.context("segment"))
          // The grey one throws here.
          _ = try? mask.process(bench.item(picture), in: bench.context("segment"))
        }
      }
      guard Libvips.liveImages == before else { fatalError("\(Libvips.liveImages) images, \(before) before") }
    }
  }
}
