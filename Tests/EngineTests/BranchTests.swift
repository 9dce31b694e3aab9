import Dispatch
import Imaging
import JobSyntax
import PipelineKit
import Synchronization
import Testing

@testable import Engine

/// Items on their way down several tails, with stages that a test writes down.
@Suite struct BranchTests {
  private static func stage(
    _ label: String, after predecessor: Int? = nil, lane: Lane = .compute, condition: Condition? = nil,
    isBranch: Bool = false, writes: Bool = true,
    _ body: @escaping Scripted.Body = { item, _ throws(StageError) in .next(item) }
  ) -> ExecutableStage {
    var stage = executable(label, lane: lane, body)
    stage.predecessor = predecessor
    stage.condition = condition
    stage.isBranch = isBranch
    stage.plan.produces = writes && !isBranch ? .output : []
    return stage
  }

  private static let passes: Scripted.Body = { item, _ throws(StageError) in .next(item) }

  /// A trunk of two stages, then the tails a, b and c of two stages each; `b` branches again into x and y.
  private static func tree(
    _ bodies: [String: Scripted.Body] = [:], condition: [String: Condition] = [:]
  ) -> [ExecutableStage] {
    let shape: [(String, Int?, Lane, Bool)] = [
      ("decode", nil, .compute, false), ("branch", nil, .compute, true),
      ("a/work", 1, .compute, false), ("a/write", nil, .storage, false),
      ("b/work", 1, .compute, false), ("b/branch", nil, .compute, true),
      ("b/x/write", 5, .storage, false), ("b/y/write", 5, .storage, false),
      ("c/work", 1, .compute, false), ("c/write", nil, .storage, false),
    ]
    return shape.map { label, predecessor, lane, isBranch in
      stage(
        label, after: predecessor, lane: lane, condition: condition[label], isBranch: isBranch,
        writes: label.hasSuffix("write"), bodies[label] ?? passes)
    }
  }

  private static let order = [
    "decode", "branch", "a/work", "a/write", "b/work", "b/branch", "b/x/write", "b/y/write", "c/work", "c/write",
  ]

  private static func run(
    _ stages: [ExecutableStage], count: Int = 1, itemDeadline: Duration = .seconds(60)
  ) -> [ItemRecord] {
    let observer = RecordingObserver()
    _ = makeExecutor(stages, count: count, itemDeadline: itemDeadline, observer: observer).execute()
    return observer.records
  }

  private static func output(_ name: String, stage: String = "") -> OutputRecord {
    OutputRecord(place: .link(name), format: "jpeg", width: 1, height: 1, bytes: 1, sha256: "", stage: stage)
  }

  private static func books(_ name: String) -> Scripted.Body {
    { item, context throws(StageError) in
      _ = context.book(output(name))
      return .next(item)
    }
  }

  @Test func everyStageWorksOnceForEachItem() {
    let records = Self.run(Self.tree(), count: 200)
    #expect(records.count == 200)
    for record in records {
      #expect(record.status == .done)
      #expect(record.timings.map(\.stage) == Self.order)
    }
  }

  /// Each tail sees what the branch gave, not what the tail before it made of it.
  @Test func tailsDoNotSeeOneAnother() {
    let seen = Mutex<[String: String?]>([:])
    func notes(_ name: String, sets hash: String) -> Scripted.Body {
      { item, _ throws(StageError) in
        seen.withLock { $0[name] = item.sourceHash }
        return .next(item.with(sourceHash: hash))
      }
    }
    let records = Self.run(
      Self.tree([
        "decode": notes("decode", sets: "trunk"), "a/work": notes("a", sets: "a"), "b/work": notes("b", sets: "b"),
        "b/x/write": notes("x", sets: "x"), "b/y/write": notes("y", sets: "y"), "c/work": notes("c", sets: "c"),
      ]))
    #expect(records.map(\.status) == [.done])
    #expect(
      seen.withLock { $0 } == ["decode": nil, "a": "trunk", "b": "trunk", "x": "b", "y": "b", "c": "trunk"])
  }

  @Test func aTailThatFailsFailsTheItemAndNoOtherTail() {
    let records = Self.run(
      Self.tree([
        "a/write": Self.books("a"), "b/work": { _, _ throws(StageError) in throw StageError("damaged", "no b") },
        "c/work": { _, _ throws(StageError) in throw StageError("limit", "no c", hint: "less") },
      ]))
    #expect(records.map(\.status) == [.failed])
    #expect(records[0].failedStage == "b/work")
    #expect(records[0].error?.code == "damaged")
    #expect(records[0].outputs == [Self.output("a", stage: "a/write")])
    #expect(records[0].timings.map(\.stage) == ["decode", "branch", "a/work", "a/write", "b/work", "c/work"])
    #expect(records[0].warnings == [ItemWarning(code: "tail-failed", stage: "c/work", message: "no c; less")])
  }

  @Test(
    arguments: [
      (["drop", "drop", "drop"], ItemStatus.dropped), (["drop", "done", "drop"], .done),
      (["done", "review", "drop"], .review), (["deferred", "review", "done"], .deferred),
      (["notAttempted", "deferred", "done"], .deferred), (["notAttempted", "review", "done"], .notAttempted),
      (["unknown", "deferred", "done"], .unknown), (["unknown", "fail", "drop"], .failed),
    ] as [([String], ItemStatus)])
  func theWorstEndCounts(_ ends: [String], _ status: ItemStatus) {
    func ending(_ end: String) -> Scripted.Body {
      { item, _ throws(StageError) in
        switch end {
        case "drop": return .dropped(reason: "unwanted")
        case "review": return .review(reason: "odd")
        case "deferred": return .deferred(reason: "later")
        case "notAttempted": return .notAttempted(reason: "no budget")
        case "unknown": return .unknown(receipt: "r-1")
        case "fail": throw StageError("damaged", "broken")
        default: return .next(item)
        }
      }
    }
    let record = Self.run(
      Self.tree(["a/work": ending(ends[0]), "b/work": ending(ends[1]), "c/work": ending(ends[2])]))[0]
    #expect(record.status == status)
    let drops = ends.count { $0 == "drop" }
    let told = record.warnings.count { $0.code == "tail-dropped" }
    #expect(told == (status == .dropped ? 0 : drops))
    if status == .dropped {
      #expect(record.reason == "a/work: unwanted; b/work: unwanted; c/work: unwanted")
    }
  }

  /// The time of an item is that of all its tails; what was written before stays.
  @Test func theItemsTimeIsOneForAllTails() {
    let record = Self.run(
      Self.tree([
        "a/write": Self.books("a"),
        "b/x/write": { _, _ throws(StageError) in
          hang()
          return .dropped(reason: "never")
        },
      ]), itemDeadline: .milliseconds(200))[0]
    #expect(record.status == .failed)
    #expect(record.error?.code == "deadline")
    #expect(record.failedStage == "b/x/write")
    #expect(record.outputs == [Self.output("a", stage: "a/write")])
    #expect(!record.timings.contains { $0.stage.hasPrefix("c") })
  }

  // MARK: Conditions

  private static func index(_ comparison: ConditionOperator, _ value: Double) -> Condition {
    .test(.itemIndex, comparison, [.number(value)])
  }

  @Test func whatAConditionPassesOverDoesNotWork() {
    let records = Self.run(
      Self.tree(condition: ["a/work": Self.index(.gt, 0), "b/branch": Self.index(.eq, 1)]), count: 3)
    #expect(records.map(\.status) == [.done, .done, .done])
    #expect(records[1].timings.map(\.stage) == Self.order)
    #expect(
      records[0].timings.map(\.stage) == Self.order.filter { $0 != "a/work" && !$0.hasPrefix("b/") || $0 == "b/work" })
    #expect(records[0].warnings.isEmpty)
  }

  /// An item that nothing was written of must not count as done.
  @Test func anItemThatPassesEverythingOverIsDropped() {
    let never = Self.index(.lt, 0)
    let whole = Self.run(Self.tree(condition: ["branch": never]))[0]
    #expect(whole.status == .dropped)
    #expect(
      whole.reason
        == #"nothing was written: stage "branch" was passed over, since it is not so that item.index is below 0"#)
    let parts = Self.run(Self.tree(condition: ["a/write": never, "b/branch": never, "c/write": never]))[0]
    #expect(parts.status == .dropped)
    let one = Self.run(Self.tree(condition: ["a/write": never, "b/branch": never]))[0]
    #expect(one.status == .done)
  }

  @Test func aConditionThatCannotBeToldFailsTheItem() {
    let record = Self.run(
      Self.tree(condition: ["a/work": .test(.itemColumn("price"), .lt, [.number(5)])]))[0]
    #expect(record.status == .failed)
    #expect(record.error?.code == "condition-value")
    #expect(record.failedStage == "a/work")
    #expect(record.timings.contains { $0.stage == "c/write" })
  }

  /// A mask that another tail has made is not the one that counts.
  @Test func theMaskOfAnotherTailDoesNotCount() {
    func notes(_ score: Double) -> Scripted.Body {
      { item, context throws(StageError) in
        context.note(
          matte: MatteRecord(provider: "test", score: score, coverage: 0, softness: 0, islands: 1, border: 0))
        return .next(item)
      }
    }
    let good = Condition.test(.matteScore, .gt, [.number(0.5)])
    let record = Self.run(
      Self.tree(["decode": notes(0.9), "a/work": notes(0.1)], condition: ["a/write": good, "c/write": good]))[0]
    #expect(record.timings.map(\.stage) == Self.order.filter { $0 != "a/write" })
  }

  // MARK: Memory

  private static func picture(_ side: Int) throws -> EncodedPicture {
    let image = try Image(width: side, height: side, bands: 3, bytes: [UInt8](repeating: 9, count: side * side * 3))
    return try EncodedPicture(bytes: try image.encoded(.jpeg(.init(quality: 80))))
  }

  private static func pixelStage(_ label: String, after predecessor: Int? = nil, width: Int? = nil) -> ExecutableStage {
    var stage = stage(label, after: predecessor)
    stage.plan.accepts = .picture
    stage.plan.produces = .picture
    if let width {
      stage.plan.resultSize = { _, _ in (width, width) }
      stage.plan.shrinksOnLoad = true
    }
    return stage
  }

  /// What later tails need is held while earlier ones work.
  @Test func memoryCountsWhatIsKeptForLaterTails() throws {
    let source = try Self.picture(100)
    let file = source.bytes.count
    let alone = ChainTree([Self.pixelStage("resize", width: 10)])
    #expect(alone.estimate(source, from: 0) == 10 * 10 * 4 + file)
    let branch = Self.stage("branch", isBranch: true)
    var greedy = Self.pixelStage("greedy", after: 0)
    greedy.plan.workingBytes = { width, height in width * height * 10 }
    let whole = 100 * 100 * 4
    // First the greedy one: while it works, the picture is kept for the other.
    let first = ChainTree([branch, greedy, Self.pixelStage("resize", after: 0, width: 10)])
    #expect(first.estimate(source, from: 0) == whole + whole + 100 * 100 * 10 + file)
    let last = ChainTree(
      [branch, Self.pixelStage("resize", after: 0, width: 10), greedy].enumerated().map { place, stage in
        var stage = stage
        if place == 2 { stage.predecessor = 0 }
        return stage
      })
    #expect(last.estimate(source, from: 0) == whole + 100 * 100 * 10 + file)
    // Tails that begin with a decode of their own hold nothing yet.
    #expect(first.estimate(source, from: 2, pending: [1]) == whole + 100 * 100 * 10 + file)
  }

  @Test func pixelsThatNoTailToComeNeedsAreLetGo() throws {
    let image = try Image(width: 4, height: 4, bands: 3, bytes: [UInt8](repeating: 9, count: 48))
    let held = Mutex<[String: Bool]>([:])
    func looks(_ name: String) -> Scripted.Body {
      { item, _ throws(StageError) in
        if case .image = item.picture { held.withLock { $0[name] = true } } else { held.withLock { $0[name] = false } }
        return .next(item)
      }
    }
    var stages = Self.tree([
      "decode": { item, _ throws(StageError) in .next(item.with(image: image)) }, "a/work": looks("a"),
      "b/work": looks("b"), "b/y/write": looks("y"), "c/work": looks("c"),
    ])
    stages[2].plan.accepts = .picture
    stages[7].plan.accepts = .picture
    _ = Self.run(stages)
    #expect(held.withLock { $0 } == ["a": true, "b": true, "y": true, "c": false])
  }
}
