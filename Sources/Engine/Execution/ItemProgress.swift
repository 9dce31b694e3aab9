import PipelineKit
import Transport

/// How an item's way through one tail ended; a job without branches has one tail.
struct TailEnd: Sendable {
  var status: ItemStatus
  /// The stage it ended in; nil where it came to its end, or ended with the whole run.
  var stage: String?
  var error: StageError?
  var reason: String?

  /// Where it ended, by the names of the tails that lead there.
  fileprivate var tail: String? { stage.flatMap { $0.contains("/") ? $0 : nil } }

  init(_ status: ItemStatus, stage: String? = nil, error: StageError? = nil, reason: String? = nil) {
    self.status = status
    self.stage = stage
    self.error = error
    self.reason = reason
  }

  /// The end that an outcome is; nil where it is none.
  init?(_ outcome: Outcome, stage: String) {
    switch outcome {
    case .next: return nil
    case .dropped(let reason): self.init(.dropped, stage: stage, reason: Secrets.redacted(reason))
    case .review(let reason): self.init(.review, stage: stage, reason: Secrets.redacted(reason))
    case .deferred(let reason): self.init(.deferred, stage: stage, reason: Secrets.redacted(reason))
    case .notAttempted(let reason): self.init(.notAttempted, stage: stage, reason: Secrets.redacted(reason))
    case .unknown(let receipt):
      self.init(
        .unknown, stage: stage,
        reason: "nobody knows whether it was carried out: settle it with `pipeline receipts resolve \(receipt)`")
    }
  }
}

/// What the ends of all tails come to for the item.
struct ItemEnd: Sendable {
  var status: ItemStatus
  var error: StageError?
  var failedStage: String?
  var reason: String?
  /// What else is worth knowing: tails that failed besides, and those that dropped the item where others did not.
  var warnings: [ItemWarning] = []

  /// From the worst to the best.
  private static let order: [ItemStatus] = [
    .failed, .unknown, .deferred, .notAttempted, .review, .done, .skipped, .dropped,
  ]

  init(_ ends: [TailEnd]) {
    status = Self.order.first { status in ends.contains { $0.status == status } } ?? .done
    let worst = ends.filter { $0.status == status }
    error = worst.first?.error
    failedStage = status == .failed ? worst.first?.stage : nil
    let reasons = worst.compactMap { end in
      end.reason.map { reason in
        // What the whole run ends for says nothing about a tail.
        end.tail.map { "\($0): \(reason)" } ?? reason
      }
    }
    if !reasons.isEmpty { reason = reasons.joined(separator: "; ") }
    for end in ends {
      guard let stage = end.stage else { continue }
      if end.status == .failed, stage != failedStage, let error = end.error {
        warnings.append(ItemWarning(code: "tail-failed", stage: stage, message: error.description))
      } else if end.status != status, end.status != .done, end.status != .failed {
        warnings.append(
          ItemWarning(
            code: "tail-\(end.status == .notAttempted ? "not-attempted" : end.status.rawValue)", stage: stage,
            message: "the picture ended there: " + (end.reason ?? end.status.rawValue)))
      }
    }
  }
}

/// How far an item has come on its way through the tree of chains.
struct ItemProgress: Sendable {
  /// What is remembered for a tail not yet begun.
  struct Pending: Sendable {
    var stage: Int
    var item: Item
    var way: Way
  }

  /// What an item has met on the way from the first stage, as its later stages see it.
  struct Way: Sendable {
    /// What is known about the mask made last.
    var matte: MatteRecord?
    /// Whether a stage that writes has worked.
    var hasOutput = false
    /// The last stage that was passed over, and why.
    var passedOver: (stage: String, condition: Condition)?
  }

  var item: Item
  /// The next stage to run; nil when the last tail has ended.
  var stage: Int? = 0
  /// How the stage goes on, where it has begun and not ended.
  var continuation: StageStep?
  /// Whether the last of the timings is that of the stage.
  var isTimed = false
  /// The tails still to be gone down; the last comes next.
  var pending: [Pending] = []
  var way = Way()
  /// The tails that have ended.
  var ends: [TailEnd] = []
  var timings: [(stage: String, milliseconds: Double)] = []
  var spent = Duration.zero
  /// What was read, as far as the item has come.
  var source: SourceFacts?
  /// Whether memory was asked for; that is once, when the header is known.
  var hasAsked = false

  init(item: Item) { self.item = item }

  /// Adds to the time of the stage that is next.
  mutating func note(_ duration: Duration, of label: String) {
    if isTimed, let last = timings.indices.last {
      timings[last].milliseconds += duration / .milliseconds(1)
    } else {
      timings.append((label, duration / .milliseconds(1)))
      isTimed = true
    }
  }

  /// What became of an item in a stage.
  enum Step: Sendable {
    case outcome(Outcome)
    case failure(StageError)
    /// The stage's condition does not hold.
    case passedOver(Condition)
  }

  /// Goes on from the stage that is next, which has come to an end.
  mutating func advance(_ step: Step, _ tree: ChainTree, _ stages: [ExecutableStage]) {
    guard let index = stage else { return }
    let current = stages[index]
    var successors = tree.successors(of: index)
    switch step {
    case .failure(let error): return endTail(TailEnd(.failed, stage: current.label, error: error))
    case .passedOver(let condition):
      way.passedOver = (current.label, condition)
      // The tails are the branch's: without it there is nowhere to go.
      if current.isBranch { successors = [] }
    case .outcome(.next(let next)):
      item = next
      if current.plan.produces.contains(.output) { way.hasOutput = true }
    case .outcome(let outcome):
      if let end = TailEnd(outcome, stage: current.label) { endTail(end) }
      return
    }
    guard let head = successors.first else {
      if !way.hasOutput, let (stage, condition) = way.passedOver {
        // Not the end of a stage: that other tails did write is what the job asks for, and no news.
        let reason = "nothing was written: stage \"\(stage)\" was passed over, since it is not so that \(condition)"
        endTail(TailEnd(.dropped, reason: reason))
      } else {
        endTail(TailEnd(.done))
      }
      return
    }
    for other in successors.dropFirst().reversed() {
      pending.append(Pending(stage: other, item: tree.released(item, for: other), way: way))
    }
    item = tree.released(item, for: head)
    stage = head
  }

  private mutating func endTail(_ end: TailEnd) {
    ends.append(end)
    guard let next = pending.popLast() else {
      stage = nil
      return
    }
    (item, stage, way) = (next.item, next.stage, next.way)
  }
}
