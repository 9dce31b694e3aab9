import Dispatch
import JobSyntax
import PipelineKit
import Synchronization
import Testing

@testable import Engine

@Suite struct ExecutorTests {
  @Test func everyItemEndsOnceAndCountsAgree() {
    let observer = RecordingObserver()
    let executor = makeExecutor(
      [
        executable("one") { item, _ throws(StageError) in .next(item) },
        executable("two", lane: .storage) { item, _ throws(StageError) in .next(item) },
      ],
      count: 500, observer: observer)
    let result = executor.execute()
    #expect(result.counts[.done] == 500)
    #expect(result.counts.total == 500)
    #expect(observer.records.map(\.index) == Array(0..<500))
    #expect(observer.records.allSatisfy { $0.timings.map(\.stage) == ["one", "two"] })
  }

  @Test func noItemsIsARunThatEnds() {
    let result = makeExecutor([], count: 0, observer: RecordingObserver()).execute()
    #expect(result.counts.total == 0)
  }

  /// 200 failing and 200 good items at once: every message names its own file, and no good item is blamed.
  @Test func messagesNameTheirOwnItem() {
    let observer = RecordingObserver()
    let executor = makeExecutor(
      [
        executable("work") { item, context throws(StageError) in
          if item.identity.index.isMultiple(of: 2) {
            throw StageError("damaged", "\(item.identity.name.printable) is damaged")
          }
          context.warn("note", item.identity.name.printable)
          return .next(item)
        }
      ], count: 400, workers: 8, observer: observer)
    let result = executor.execute()
    #expect(result.counts[.failed] == 200)
    #expect(result.counts[.done] == 200)
    for record in observer.records {
      if record.index.isMultiple(of: 2) {
        #expect(record.error?.message == "in/\(record.index).jpg is damaged")
        #expect(record.failedStage == "work")
      } else {
        #expect(record.warnings.map(\.message) == ["in/\(record.index).jpg"])
      }
    }
  }

  @Test func aCallThatNeverReturnsFailsItsItemOnly() {
    let observer = RecordingObserver()
    let executor = makeExecutor(
      [
        executable("decode") { item, _ throws(StageError) in
          if item.identity.index == 3 { hang() }
          return .next(item)
        }
      ], count: 40, workers: 2, itemDeadline: .milliseconds(200), observer: observer)
    let result = executor.execute()
    #expect(result.counts[.done] == 39)
    #expect(result.counts[.failed] == 1)
    #expect(result.hungWorkers == 1)
    let failed = observer.records[3]
    #expect(failed.error?.code == "deadline")
    #expect(failed.failedStage == "decode")
  }

  /// More calls hang than there are workers, and later ones than the pool of a concurrent queue has threads.
  @Test func everyCallMayHangAndTheRunEnds() {
    let observer = RecordingObserver()
    let executor = makeExecutor(
      [
        executable("decode") { _, _ throws(StageError) in
          hang()
          return .dropped(reason: "never")
        }
      ],
      count: 12, workers: 2, itemDeadline: .milliseconds(50), observer: observer)
    let result = executor.execute()
    #expect(result.counts[.failed] == 12)
    #expect(observer.records.allSatisfy { $0.error?.code == "deadline" })
  }

  /// A worker that was given up may come back; what it brings must not change what was reported.
  @Test func aLateReturnChangesNothing() {
    let observer = RecordingObserver()
    let gate = DispatchSemaphore(value: 0)
    let cameBack = DispatchSemaphore(value: 0)
    let booked = Mutex<Bool?>(nil)
    let executor = makeExecutor(
      [
        executable("slow") { item, context throws(StageError) in
          gate.wait()
          let kept = context.book(
            OutputRecord(place: .path("/out/late.jpg"), format: "jpeg", width: 1, height: 1, bytes: 1, sha256: ""))
          booked.withLock { $0 = kept }
          cameBack.signal()
          return .next(item)
        }
      ], count: 1, workers: 1, itemDeadline: .milliseconds(50), observer: observer)
    let result = executor.execute()
    gate.signal()
    cameBack.wait()
    #expect(result.counts[.failed] == 1)
    #expect(observer.records.count == 1)
    #expect(observer.records[0].outputs.isEmpty)
    #expect(booked.withLock { $0 } == false)
  }

  /// What was booked before an error stays in the record.
  @Test func anErrorLosesNoOutputAndNoWarning() {
    let observer = RecordingObserver()
    let output = OutputRecord(
      place: .path("/out/a.jpg"), format: "jpeg", width: 2, height: 3, bytes: 4, sha256: "ab", stage: "write")
    let executor = makeExecutor(
      [
        executable("write") { item, context throws(StageError) in
          _ = context.book(output)
          context.warn("flattened", "on white")
          return .next(item)
        },
        executable("upload", lane: .network) { _, _ throws(StageError) in throw StageError("refused", "no") },
      ], count: 1, observer: observer)
    _ = executor.execute()
    #expect(observer.records[0].status == .failed)
    #expect(observer.records[0].outputs == [output])
    #expect(observer.records[0].warnings.map(\.code) == ["flattened"])
    #expect(observer.records[0].timings.map(\.stage) == ["write", "upload"])
  }

  @Test func itemsFurtherAlongGoFirst() {
    // One worker, and a second stage on the same lane after a hop over storage: once an item comes back from storage,
    // it goes before items that have not started.
    let order = Mutex<[String]>([])
    let executor = makeExecutor(
      [
        executable("first") { item, _ throws(StageError) in
          order.withLock { $0.append("first \(item.identity.index)") }
          return .next(item)
        },
        executable("hop", lane: .storage) { item, _ throws(StageError) in .next(item) },
        executable("last") { item, _ throws(StageError) in
          order.withLock { $0.append("last \(item.identity.index)") }
          return .next(item)
        },
      ], count: 50, workers: 1, observer: RecordingObserver())
    _ = executor.execute()
    let events = order.withLock { $0 }
    #expect(events.count == 100)
    // With in-flight bounded to a handful, item 0 ends long before item 49 starts.
    #expect((events.firstIndex(of: "last 0") ?? 100) < (events.firstIndex(of: "first 49") ?? 0))
  }

  @Test func inFlightItemsAreBounded() {
    let inFlight = Mutex((now: 0, most: 0))
    let executor = makeExecutor(
      [
        executable("in") { item, _ throws(StageError) in
          inFlight.withLock {
            $0.now += 1
            $0.most = max($0.most, $0.now)
          }
          return .next(item)
        },
        executable("net", lane: .network) { item, _ throws(StageError) in
          inFlight.withLock { $0.now -= 1 }
          return .next(item)
        },
      ], count: 2_000, workers: 2, observer: RecordingObserver())
    _ = executor.execute()
    // Two for each worker, and one for each exchange.
    #expect(inFlight.withLock { $0.most } <= 12)
  }

  @Test func stopOnFailureAttemptsNoMore() {
    let observer = RecordingObserver()
    let executor = makeExecutor(
      [
        executable("work") { item, _ throws(StageError) in
          if item.identity.index == 5 { throw StageError("bad", "bad") }
          return .next(item)
        }
      ], count: 1_000, workers: 1, stopsOnFailure: true, observer: observer)
    let result = executor.execute()
    #expect(result.stop == .failure)
    #expect(result.counts[.failed] == 1)
    #expect(result.counts.total == 1_000)
    #expect(result.counts[.notAttempted] > 980)
    #expect(observer.records[999].reason == "an earlier item failed and onError is \"stop\"")
  }

  @Test func interruptLetsItemsInFlightEnd() {
    let box = Mutex<Executor?>(nil)
    let observer = RecordingObserver { record in
      if record.index == 10 { box.withLock { $0 }?.stop(.interrupted(15)) }
    }
    let executor = makeExecutor(
      [executable("work") { item, _ throws(StageError) in .next(item) }], count: 10_000, workers: 1, observer: observer)
    box.withLock { $0 = executor }
    let result = executor.execute()
    box.withLock { $0 = nil }
    #expect(result.stop == .interrupted(15))
    #expect(result.counts.total == 10_000)
    #expect(result.counts[.done] + result.counts[.notAttempted] == 10_000)
    #expect(result.counts[.done] < 100)
  }

  @Test func graceTimeEndsAndASecondSignalEndsAtOnce() {
    for second in [false, true] {
      let box = Mutex<Executor?>(nil)
      let started = DispatchSemaphore(value: 0)
      let observer = RecordingObserver()
      let executor = makeExecutor(
        [
          executable("work") { _, _ throws(StageError) in
            started.signal()
            hang()
            return .dropped(reason: "never")
          }
        ],
        count: 10, workers: 1, graceTime: second ? .seconds(3_600) : .milliseconds(50), observer: observer)
      box.withLock { $0 = executor }
      DispatchQueue(label: "stopper").async {
        started.wait()
        executor.stop(.interrupted(2))
        if second { executor.stop(.interrupted(2)) }
      }
      let result = executor.execute()
      #expect(result.counts[.notAttempted] == 10)
      // It did not outlive its item's time; it was cut short.
      #expect(result.hungWorkers == 0)
      #expect(observer.records.count == 10)
    }
  }

  @Test func theRunsDeadlineLeavesTheRestUntried() {
    let observer = RecordingObserver()
    let executor = makeExecutor(
      [
        executable("work") { item, _ throws(StageError) in
          if item.identity.index > 2 { hang() }
          return .next(item)
        }
      ], count: 20, workers: 1, deadline: .milliseconds(100), graceTime: .milliseconds(50), observer: observer)
    let result = executor.execute()
    #expect(result.stop == .deadline)
    #expect(result.counts[.done] == 3)
    #expect(result.counts[.notAttempted] == 17)
  }

  @Test func outcomesKeepTheirReasons() {
    let observer = RecordingObserver()
    let executor = makeExecutor(
      [
        executable("work") { item, _ throws(StageError) in
          switch item.identity.index {
          case 0: .dropped(reason: "small")
          case 1: .deferred(reason: "later")
          case 2: .notAttempted(reason: "limit")
          case 3: .unknown(receipt: "r1")
          default: .next(item)
          }
        }
      ], count: 5, observer: observer)
    let result = executor.execute()
    #expect(observer.records.map(\.status) == [.dropped, .deferred, .notAttempted, .unknown, .done])
    #expect(
      observer.records.prefix(4).map(\.reason) == [
        "small", "later", "limit",
        "nobody knows whether it was carried out: settle it with `pipeline receipts resolve r1`",
      ])
    #expect(result.counts.hasFailures)
  }
}

@Suite struct MemoryBudgetTests {
  private func item(_ index: Int) -> ItemRun {
    ItemRun(Item(identity: ItemIdentity(index: index, path: "/a", name: "a", directory: "")))
  }

  @Test func admitsUpToTheLimitInOrder() {
    let budget = MemoryBudget(limit: 100)
    let items = (0..<4).map(item)
    #expect(budget.reserve(60, for: items[0]))
    #expect(!budget.reserve(60, for: items[1]))
    // It would fit, but the one before it has its turn.
    #expect(!budget.reserve(10, for: items[2]))
    #expect(budget.release(items[0]).map(\.index) == [1, 2])
    #expect(budget.release(items[3]).isEmpty)
  }

  @Test func aGiantRunsAlone() {
    let budget = MemoryBudget(limit: 100)
    let giant = item(0)
    let small = item(1)
    #expect(budget.reserve(1_000, for: giant))
    #expect(!budget.reserve(1, for: small))
    #expect(budget.release(giant).map(\.index) == [1])
    // And it waits while anything else runs.
    let second = item(2)
    #expect(!budget.reserve(1_000, for: second))
    #expect(budget.release(small).map(\.index) == [2])
  }

  @Test func releasingTwiceGivesNothingTwice() {
    let budget = MemoryBudget(limit: 100)
    let items = (0..<3).map(item)
    #expect(budget.reserve(100, for: items[0]))
    #expect(!budget.reserve(100, for: items[1]))
    #expect(!budget.reserve(100, for: items[2]))
    #expect(budget.release(items[0]).map(\.index) == [1])
    #expect(budget.release(items[0]).isEmpty)
    // One that waits can give up its place.
    #expect(budget.release(items[2]).isEmpty)
    #expect(budget.release(items[1]).isEmpty)
  }
}
