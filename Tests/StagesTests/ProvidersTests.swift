import Dispatch
import Imaging
import JobSyntax
import PipelineKit
import Synchronization
import TestSupport
import Testing

@testable import Stages

@Suite struct ProvidersTests {
  let bench = StageBench()

  /// Answers as a test says, and counts how often it was asked.
  private final class Scripted: LocalFinder {
    let name: String
    let maker: String
    let calls = Mutex(0)
    /// Of its mask's one pixel.
    private let level: UInt8
    private let answer: @Sendable () throws(StageError) -> Double?
    /// Whether it answers as a service does, over both lanes.
    let isRemote: Bool

    /// - Parameter answer: the score of its mask; nil for nothing found.
    init(
      _ name: String, level: UInt8 = 255, maker: String = "1", isRemote: Bool = false,
      _ answer: @escaping @Sendable () throws(StageError) -> Double?
    ) {
      self.name = name
      self.maker = maker
      self.level = level
      self.answer = answer
      self.isRemote = isRemote
    }

    func begin(
      _ picture: Image, of item: Item, kept: KeptResults?, in context: StageContext
    ) throws(StageError) -> SegmenterStep {
      guard isRemote else { return .found(try find(in: picture)) }
      return .exchange { [self] _ throws(StageError) in
        let found = try find(in: picture)
        return .compute { _ throws(StageError) in .found(found) }
      }
    }

    func find(in picture: Image) throws(StageError) -> FoundMatte? {
      calls.withLock { $0 += 1 }
      guard let score = try answer() else { return nil }
      let matte = try StageError.imaging { () throws(ImagingError) in
        try Image(width: 1, height: 1, bands: 1, bytes: [level])
      }
      return FoundMatte(
        pixels: .image(matte),
        record: MatteRecord(
          provider: "test", model: name, score: score, coverage: 0.5, softness: 0, islands: 1, border: 0))
    }
  }

  private func scored(_ name: String, _ score: Double?) -> Scripted {
    Scripted(name) { () throws(StageError) in score }
  }

  private func failing(_ name: String, _ kind: ErrorClass) -> Scripted {
    Scripted(name) { () throws(StageError) in throw StageError("trouble", "\(name) is in trouble", kind: kind) }
  }

  /// What the providers come to; the same where all of them are services.
  private func ask(
    _ providers: [(Scripted, Set<Trouble>?)], minScore: Double? = 0.5, journal: ItemJournal = ItemJournal()
  ) throws -> ProviderChain.Answer {
    try ask(providers.map { ($0.0 as any Segmenter, $0.1) }, minScore: minScore, journal: journal)
  }

  private func ask(
    _ providers: [(any Segmenter, Set<Trouble>?)], minScore: Double?, journal: ItemJournal
  ) throws -> ProviderChain.Answer {
    let context = bench.context("segment", journal: journal)
    let picture = try Pictures.solid(2, 2, 1, 2, 3)
    final class Box: Sendable { let answer = Mutex<ProviderChain.Answer?>(nil) }
    let box = Box()
    _ = try ProviderChain(providers, minScore: minScore)
      .answer(for: picture, of: bench.item(picture), kept: nil, in: context) { answer, _ in
        box.answer.withLock { $0 = answer }
        return .outcome(.dropped(reason: "asked"))
      }.finished(in: context)
    return try #require(box.answer.withLock { $0 })
  }

  private func model(_ answer: ProviderChain.Answer) -> String? {
    if case .found(let found) = answer { found.record.model } else { nil }
  }

  private func shortfall(_ answer: ProviderChain.Answer) throws -> ProviderChain.Shortfall {
    guard case .shortfall(let shortfall) = answer else { throw StageError("test", "a mask was good enough") }
    return shortfall
  }

  // MARK: Who is asked

  @Test func aGoodMaskAsksNobodyElse() throws {
    let second = scored("b", 0.9)
    let journal = ItemJournal()
    #expect(model(try ask([(scored("a", 0.5), nil), (second, [.lowScore, .empty])], journal: journal)) == "a")
    #expect(second.calls.withLock { $0 } == 0)
    #expect(journal.snapshot.mattes.map(\.model) == ["a"])
  }

  @Test(arguments: [Trouble.lowScore, .empty, .temporary, .quota])
  func eachTroubleAsksThoseThatAreThereForIt(trouble: Trouble) throws {
    func first() -> Scripted {
      switch trouble {
      case .lowScore: scored("a", 0.49)
      case .empty: scored("a", nil)
      case .temporary: failing("a", .temporary)
      case .quota: failing("a", .budget)
      }
    }
    #expect(model(try ask([(first(), nil), (scored("b", 0.8), [trouble])])) == "b")
    let others = Set(Trouble.allCases).subtracting([trouble])
    let unasked = scored("b", 0.8)
    let third = scored("c", 0.7)
    #expect(model(try ask([(first(), nil), (unasked, others), (third, [trouble])])) == "c")
    #expect(unasked.calls.withLock { $0 } == 0)
    // What failed is told, though another came in for it.
    let journal = ItemJournal()
    _ = try ask([(first(), nil), (scored("b", 0.8), [trouble])], journal: journal)
    #expect(journal.warningCodes == (trouble == .temporary || trouble == .quota ? ["provider-failed"] : []))
  }

  @Test(arguments: [ErrorClass.item, .job, .environment])
  func otherErrorsEndTheItem(kind: ErrorClass) throws {
    let second = scored("b", 0.9)
    let error = #expect(throws: StageError.self) {
      try ask([(failing("a", kind), nil), (second, Set(Trouble.allCases))])
    }
    #expect(error?.code == "trouble")
    #expect(second.calls.withLock { $0 } == 0)
  }

  @Test func withoutAThresholdAnyScoreWillDo() throws {
    #expect(model(try ask([(scored("a", 0), nil), (scored("b", 1), [.empty])], minScore: nil)) == "a")
  }

  // MARK: What is left in the end

  /// What the stage makes of a picture of one pixel, and the mask it is told, of one too.
  private func outcome(_ level: UInt8, _ settings: String, journal: ItemJournal = ItemJournal()) throws -> Outcome {
    let one = Scripted("a", level: level) { () throws(StageError) in 0.9 }
    let stage = Segment(
      try StageBench.settings(Segment.self, "{ \"stage\": \"segment\"\(settings) }"),
      providers: ProviderChain([(one, nil)], minScore: nil))
    return try stage.process(bench.item(Pictures.solid(1, 1, 1, 2, 3)), in: bench.context("segment", journal: journal))
  }

  @Test func aMaskThatIsBlackAtThePicturesSizeFoundNothing() throws {
    let error = #expect(throws: StageError.self) { try outcome(0, "") }
    #expect(error?.code == "nothing-found")
    for (choice, level) in [("keep", UInt8(255)), ("clear", 0)] {
      let journal = ItemJournal()
      guard case .next(let item) = try outcome(0, ", \"onEmpty\": \"\(choice)\"", journal: journal) else {
        throw StageError("test", "the stage did not pass the item on")
      }
      #expect(try item.matte?.bytes() == [level])
      #expect(journal.warningCodes == ["nothing-found"])
    }
    // The faintest mask is one.
    guard case .next(let item) = try outcome(1, "") else { throw StageError("test", "a faint mask was dropped") }
    #expect(try item.matte?.bytes() == [1])
  }

  /// Results in memory, as a state folder keeps them.
  private final class Shelf: ResultKeeper {
    let results = Mutex<[[UInt8]: [UInt8]]>([:])
    func result(for key: [UInt8], paid: Bool) -> [UInt8]? { results.withLock { $0[key] } }
    func keep(_ bytes: [UInt8], for key: [UInt8], paid: Bool) { results.withLock { $0[key] = bytes } }
  }

  @Test("what was found in a picture is found again without asking, with all that was said about it")
  func keptMattes() throws {
    let shelf = Shelf()
    func process(
      _ provider: Scripted, _ settings: String = "", refreshed: Bool = false
    ) throws -> (item: Item, journal: ItemJournal) {
      let stage = Segment(
        try StageBench.settings(Segment.self, "{ \"stage\": \"segment\", \"name\": \"ball\"\(settings) }"),
        providers: ProviderChain([(provider, nil)], minScore: nil))
      let journal = ItemJournal()
      let kept = KeptResults(
        key: [1], paidKey: [2], keeper: shelf, isRefreshed: refreshed, isPaidRefreshed: false)
      let item = try bench.item(Pictures.solid(1, 1, 1, 2, 3))
      guard case .next(let next) = try stage.process(item, in: bench.context("segment", journal: journal) { _ in kept })
      else { throw StageError("test", "the stage did not pass the item on") }
      return (next, journal)
    }
    let provider = Scripted("a", level: 140) { () throws(StageError) in 0.9 }
    let first = try process(provider)
    let second = try process(provider)
    #expect(provider.calls.withLock { $0 } == 1)
    #expect(try first.item.image().bytes() == second.item.image().bytes())
    #expect(try first.item.matte?.bytes() == second.item.matte?.bytes())
    #expect(try first.item.mattes["ball"]?.bytes() == second.item.mattes["ball"]?.bytes())
    #expect(second.item.mattes.count == 1)
    #expect(first.journal.snapshot.mattes == second.journal.snapshot.mattes)
    // Asked for again all the same, and what is no result is none.
    _ = try process(provider, refreshed: true)
    #expect(provider.calls.withLock { $0 } == 2)
    for damaged in [[], [1, 2, 3], Array("{}\n".utf8), shelf.results.withLock { Array($0[[1]]?.dropLast() ?? []) }] {
      shelf.results.withLock { $0[[1]] = damaged }
      let before = provider.calls.withLock { $0 }
      #expect(try process(provider).item.matte?.bytes() == first.item.matte?.bytes())
      #expect(provider.calls.withLock { $0 } == before + 1)
    }
    // Another version of what makes masks is asked itself.
    let newer = Scripted("a", level: 141, maker: "2") { () throws(StageError) in 0.9 }
    #expect(try process(newer).item.matte?.bytes() == [141])
    #expect(try process(newer).item.matte?.bytes() == [141])
    #expect(newer.calls.withLock { $0 } == 1)
    // The warnings of the first time are those of the second.
    shelf.results.withLock { $0 = [:] }
    let blank = Scripted("b", level: 0) { () throws(StageError) in 0.9 }
    for _ in 0..<2 {
      #expect(try process(blank, #", "onEmpty": "keep""#).journal.warningCodes == ["nothing-found"])
    }
    #expect(blank.calls.withLock { $0 } == 1)
  }

  @Test func theBestMaskIsKept() throws {
    let all: Set<Trouble> = [.lowScore]
    let journal = ItemJournal()
    let first = try shortfall(
      ask([(scored("a", 0.3), nil), (scored("b", 0.4), all), (scored("c", 0.2), all)], journal: journal))
    #expect(first.best?.record.model == "b")
    #expect(first.failure.code == "low-score")
    #expect(first.reason.contains("a made a mask of score 0.30, below 0.50") && first.reason.contains("score 0.20"))
    #expect(journal.snapshot.mattes.map(\.model) == ["a", "b", "c"])
    #expect(try shortfall(ask([(scored("a", 0.3), nil), (scored("b", 0.3), all)])).best?.record.model == "b")
    // A score just below the threshold does not read as the threshold.
    #expect(try shortfall(ask([(scored("a", 0.4999), nil)])).reason.contains("score 0.49, below 0.50"))
  }

  @Test func nothingFoundAndFailuresAreTold() throws {
    let empty = try shortfall(ask([(scored("a", nil), nil), (scored("b", nil), [.empty])]))
    #expect(empty.isEmpty && empty.failure.code == "nothing-found")
    let failed = try shortfall(ask([(scored("a", 0.1), nil), (failing("b", .temporary), [.lowScore])]))
    #expect(!failed.isEmpty && failed.best?.record.model == "a" && failed.failure.code == "trouble")
    #expect(failed.reason.contains("b failed: b is in trouble"))
  }

  @Test func aSpareIsMadeOnceAndOnlyWhenAsked() throws {
    final class Counted: Sendable { let made = Atomic<Int>(0) }
    let counted = Counted()
    let ready = scored("b", 0.9)
    let spare = SpareSegmenter(name: "b") { () throws(StageError) in
      counted.made.add(1, ordering: .relaxed)
      return ready
    }
    let picture = try Pictures.solid(2, 2, 1, 2, 3)
    _ = try ask(
      [(scored("a", 0.9) as any Segmenter, nil), (spare, Set([Trouble.lowScore]))], minScore: 0.5,
      journal: ItemJournal())
    #expect(counted.made.load(ordering: .relaxed) == 0)
    let group = DispatchGroup()
    for caller in 0..<8 {
      DispatchQueue(label: "caller \(caller)").async(group: group) { [bench] in
        _ = try? spare.begin(picture, of: bench.item(picture), kept: nil, in: bench.context("segment"))
      }
    }
    group.wait()
    #expect(counted.made.load(ordering: .relaxed) == 1)
    #expect(ready.calls.withLock { $0 } == 8)
  }

  @Test func aSpareThatCannotBeMadeSaysSoEachTime() throws {
    let spare = SpareSegmenter(name: "b") { () throws(StageError) in
      throw StageError("model-invalid", "no model", kind: .environment)
    }
    let picture = try Pictures.solid(2, 2, 1, 2, 3)
    for _ in 0..<2 {
      #expect(throws: StageError.self) {
        try spare.begin(picture, of: bench.item(picture), kept: nil, in: bench.context("segment"))
      }
    }
  }

  /// Services are asked over two lanes, models on the spot, in any order: who is asked, and with what result, stays.
  @Test(arguments: [[false, true, false], [true, false, true], [true, true, true]])
  func itMakesNoDifferenceWhereAProviderIs(remote: [Bool]) throws {
    let low = Scripted("a", isRemote: remote[0]) { () throws(StageError) in 0.2 }
    let failing = Scripted("b", isRemote: remote[1]) { () throws(StageError) in
      throw StageError("trouble", "b is in trouble", kind: .temporary)
    }
    let good = Scripted("c", isRemote: remote[2]) { () throws(StageError) in 0.9 }
    let unasked = Scripted("d", isRemote: true) { () throws(StageError) in 1 }
    let answer = try ask([(low, nil), (failing, [.lowScore]), (good, [.temporary]), (unasked, [.empty])])
    #expect(model(answer) == "c")
    #expect([low, failing, good, unasked].map { $0.calls.withLock { $0 } } == [1, 1, 1, 0])
    let short = try shortfall(ask([(low, nil), (failing, [.lowScore])]))
    #expect(short.best?.record.model == "a" && short.failure.code == "trouble")
    let broken = Scripted("e", isRemote: remote[0]) { () throws(StageError) in
      throw StageError("damaged", "no picture", kind: .item)
    }
    #expect(throws: StageError.self) { _ = try ask([(broken, nil), (good, [.temporary])]) }
  }

  // MARK: Lint

  @Test func jobsThatMakeSenseLint() throws {
    for json in [
      #""providers": [{ "provider": "local", "model": "u2netp" }]"#,
      #""providers": [{}, { "model": "u2net", "on": ["lowScore", "empty"] }, { "on": ["quota", "temporary"] }]"#,
      #""minScore": 0.4"#, #""judge": "flip""#,
      #""otherwise": "fail""#,
      #""otherwise": "review", "review": { "to": "review/${item.dir}/${item.name}" }"#,
    ] {
      #expect(try StageBench.lint(Segment.self, "{ \"stage\": \"segment\", \(json) }").isEmpty, "\(json)")
    }
  }

  @Test(
    arguments: [
      (#""model": "u2netp", "providers": [{}]"#, "conflicting-keys", "model"),
      (#""providers": [{ "on": ["empty"] }]"#, "not-applicable", "providers[0].on"),
      (#""providers": [{}, {}]"#, "missing-key", "providers[1]"),
      (#""providers": [{}, { "on": ["empty"], "model": "u2nett" }]"#, "unknown-model", "providers[1].model"),
      (#""providers": [{}, { "on": ["lowscore"] }]"#, "unknown-value", "providers[1].on[0]"),
      (#""providers": []"#, "out-of-range", "providers"),
      (#""otherwise": "review""#, "missing-key", "otherwise"),
      (#""review": { "to": "a/${item.name}" }"#, "not-applicable", "review"),
      (#""otherwise": "fail", "review": { "to": "a/${item.name}" }"#, "not-applicable", "review"),
      (#""otherwise": "review", "review": {}"#, "missing-key", "review"),
      (#""otherwise": "review", "review": { "to": "review/" }"#, "output-name", "review.to"),
      (#""otherwise": "review", "review": { "to": "a/${item.stem}.${ext}" }"#, "variable-not-allowed", "review.to"),
      (#""minScore": 1.5"#, "out-of-range", "minScore"),
    ])
  func mistakesAreFoundWhereTheyAre(json: String, code: String, place: String) throws {
    let findings = try StageBench.lint(Segment.self, "{ \"stage\": \"segment\", \(json) }")
    #expect(findings.map(\.code) == [code], "\(findings.map(\.message))")
    #expect(findings.first?.path?.hasSuffix(place) == true, "\(findings.first?.path ?? "")")
  }

  @Test func copiesArePlanned() throws {
    let review = try StageBench.settings(
      Segment.self, #"{ "stage": "segment", "otherwise": "review", "review": { "to": "r/${item.name}" } }"#)
    #expect(Segment.plan(review).copies.map(\.text) == ["r/${item.name}"])
    #expect(Segment.plan(review).outputs.isEmpty)
    #expect(Segment.plan(try StageBench.settings(Segment.self, #"{ "stage": "segment" }"#)).copies.isEmpty)
  }
}

@Suite struct ReviewCopyTests {
  let bench: StageBench

  init() { self.init(StageBench()) }

  private init(_ bench: StageBench) { self.bench = bench }

  private func put(_ item: Item, _ to: String, journal: ItemJournal = ItemJournal()) throws -> PathBytes {
    let template = try #require(Template.parse(to).template)
    return try ReviewCopy(template: template).put(item, in: bench.context("segment", journal: journal))
  }

  private func failure(_ item: Item, _ to: String) throws -> StageError {
    do { _ = try put(item, to) } catch let error as StageError { return error }
    throw StageError("test", "it was copied")
  }

  @Test func theInputIsCopiedAndTheTreeKept() throws {
    let bytes = try Pictures.png(Pictures.quarters())
    let path = bench.folder.write(bytes, to: "in/a/b/x.png")
    let item = bench.item(path, name: "in/a/b/x.png", directory: "a/b")
    let journal = ItemJournal()
    let copy = try put(item, "review/${item.dir}/${item.name}", journal: journal)
    #expect(copy.display == bench.folder["review/a/b/x.png"])
    #expect(bench.folder.read("review/a/b/x.png") == bytes)
    #expect(bench.folder.read("in/a/b/x.png") == bytes)
    #expect(!bench.folder.tree().contains { $0.contains(".pipeline-") })
    let output = try #require(journal.snapshot.outputs.first)
    #expect(output.place == .path(copy) && output.format == "png" && output.width == 64 && output.height == 48)
    #expect(output.bytes == bytes.count && output.sha256 == EncodedBytes(bytes).sha256)
  }

  @Test func theCopyOfAnEarlierRunStaysAndAnotherFileIsNeverReplaced() throws {
    let bytes = try Pictures.png(Pictures.quarters())
    let path = bench.folder.write(bytes, to: "in/x.png")
    _ = bench.folder.write(bytes, to: "review/x.png")
    _ = bench.folder.write("somebody's", to: "review/y.png")
    let item = bench.item(path, name: "in/x.png")
    let journal = ItemJournal()
    _ = try put(item, "review/${item.name}", journal: journal)
    #expect(journal.snapshot.outputs.count == 1)
    let error = try failure(item, "review/y.png")
    #expect(error.code == "output-exists" && error.hint != nil)
    #expect(bench.folder.read("review/y.png") == Array("somebody's".utf8))
    bench.folder.makeFolder("review/z.png")
    #expect(try failure(item, "review/z.png").code == "output-is-folder")
  }

  @Test func twoPicturesDoNotShareACopy() throws {
    let bytes = try Pictures.png(Pictures.quarters())
    let item = bench.item(bench.folder.write(bytes, to: "in/x.png"), name: "in/x.png")
    _ = try put(item, "review/one.png")
    #expect(try failure(item, "review/one.png").code == "output-collision")
  }

  @Test func noInputIsReplaced() throws {
    let bytes = try Pictures.png(Pictures.quarters())
    let path = bench.folder.write(bytes, to: "in/x.png")
    var resolver = FolderResolver()
    var guarded = bench
    guarded.protected = ProtectedPaths(inputs: [PathBytes(path)], others: [], resolver: &resolver)
    let error = try ReviewCopyTests(guarded).failure(bench.item(path, name: "in/x.png"), "in/${item.name}")
    #expect(error.code == "output-overwrites-input")
    #expect(error.hint?.contains("inPlace") == false)
  }
}
