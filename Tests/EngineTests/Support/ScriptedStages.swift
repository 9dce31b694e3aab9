import Dispatch
import Glibc
import JobSyntax
import PipelineKit
import Synchronization

@testable import Engine

/// Stages whose behaviour a test writes down; no picture is touched.
struct Scripted: Stage {
  typealias Body = @Sendable (Item, StageContext) throws(StageError) -> Outcome

  static let spec = StageSpec(name: "scripted", summary: "Runs a test's closure.", fields: [], examples: [])
  static func plan(_ settings: Settings) -> StagePlan { StagePlan(accepts: .source, produces: .output) }

  let body: Body
  var onFinish: @Sendable () -> Void = {}

  init(_ body: @escaping Body) { self.body = body }
  init(_ settings: Settings, resources: StageResources) throws(StageError) {
    body = { item, _ throws(StageError) in .next(item) }
  }

  func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome { try body(item, context) }
  func finish() throws(StageError) { onFinish() }
}

/// Collects what a run reports.
final class RecordingObserver: RunObserver {
  private let state = Mutex<[ItemRecord]>([])
  /// Called with each record, outside the lock.
  let onRecord: @Sendable (ItemRecord) -> Void

  init(onRecord: @escaping @Sendable (ItemRecord) -> Void = { _ in }) { self.onRecord = onRecord }

  func itemEnded(_ record: ItemRecord, finished: Int) {
    state.withLock { $0.append(record) }
    onRecord(record)
  }

  /// In input order.
  var records: [ItemRecord] { state.withLock { $0.sorted { $0.index < $1.index } } }
  /// In the order they ended.
  var inOrderOfEnding: [ItemRecord] { state.withLock { $0 } }
}

/// A stage with its lane.
func executable(
  _ label: String, lane: Lane = .compute, _ body: @escaping Scripted.Body
) -> ExecutableStage {
  var plan = StagePlan(lane: lane, accepts: .source, produces: .output)
  plan.lane = lane
  return ExecutableStage(label: label, plan: plan, stage: Scripted(body))
}

let testRun = RunValues(baseFolder: "/", runID: "test", runDate: "2026-01-01")

func makeExecutor(
  _ stages: [ExecutableStage], count: Int, workers: Int = 2, itemDeadline: Duration = .seconds(60),
  deadline: Duration? = nil, graceTime: Duration = .seconds(10), stopsOnFailure: Bool = false,
  memoryLimit: Int = 1 << 40, observer: any RunObserver
) -> Executor {
  Executor(
    stages: stages,
    configuration: .init(
      computeWorkers: workers, memoryLimit: memoryLimit, itemDeadline: itemDeadline, deadline: deadline,
      graceTime: graceTime, stopsOnFailure: stopsOnFailure),
    itemCount: count, run: testRun, observer: observer
  ) { index in
    .run(
      ItemIdentity(index: index, path: PathBytes("/in/\(index).jpg"), name: PathBytes("in/\(index).jpg"), directory: "")
    )
  }
}

/// Blocks for ever, as a C call that does not come back.
func hang() { DispatchSemaphore(value: 0).wait() }
