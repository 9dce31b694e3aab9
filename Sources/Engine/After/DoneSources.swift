import Digest
import Dispatch
import Glibc
import PipelineKit
import Synchronization

/// Moves or deletes the sources of a run's items, each when all that was to be made of it is durable and booked.
///
/// Order: the outputs are on disk, the ledger's entry of the item is, then the ledger's note of what is about to happen
/// to the source is, and only then it happens. A run that is killed in between leaves the source where it is, beside an
/// item that is done: the next run finds it up to date and carries on here. The note is what tells a source that has
/// gone this way from one that somebody removed.
final class DoneSources: Sendable {
  private struct State {
    /// Items that have not ended, of sources that several items read.
    var open: [PathBytes: Int] = [:]
    /// Such sources of which an item did not end well.
    var kept: Set<PathBytes> = []
    var problems: [StageError] = []
  }

  private let onSuccess: OnSuccess
  private let outputCount: @Sendable (ItemIdentity) -> Int
  private let run: RunValues
  private let history: RunHistory
  private let state: Mutex<State>
  private let queue = DispatchQueue(label: "pipeline.sources")
  private let underWay = DispatchGroup()
  private let onFate: @Sendable (ItemRecord) -> Void
  /// Problems beyond this many are only counted.
  private static let mostProblems = 20

  /// - Parameters:
  ///   - outputCount: how many files are written of an item, whatever is found in its picture.
  ///   - onFate: given the record of an item again, with what became of its source.
  init(
    _ onSuccess: OnSuccess, plan: RunPlan, run: RunValues, history: RunHistory,
    outputCount: @escaping @Sendable (ItemIdentity) -> Int,
    onFate: @escaping @Sendable (ItemRecord) -> Void
  ) {
    self.onSuccess = onSuccess
    self.outputCount = outputCount
    self.run = run
    self.history = history
    self.onFate = onFate
    var counts: [PathBytes: Int] = [:]
    // A walk meets no file twice; lists and manifests may.
    if plan.mayRepeatInputs {
      for input in plan.inputs { counts[input.path, default: 0] += 1 }
    }
    state = Mutex(State(open: counts.filter { $0.value > 1 }))
  }

  /// Takes note of an item that has ended and is booked.
  ///
  /// - Parameter problem: why it could not be booked.
  func itemEnded(_ record: ItemRecord, _ identity: ItemIdentity, problem: StageError?) {
    let facts = problem == nil ? source(record, identity) : nil
    let isLast = state.withLock { state -> Bool in
      guard let open = state.open[identity.path] else { return facts != nil }
      state.open[identity.path] = open - 1
      if facts == nil { state.kept.insert(identity.path) }
      return open == 1 && !state.kept.contains(identity.path)
    }
    guard isLast, let facts else { return }
    let target: PathBytes?
    do throws(StageError) {
      target = try onSuccess.target(of: identity, in: run)
    } catch {
      note(error)
      return
    }
    underWay.enter()
    let fate = SourceFate(name: identity.name, target: target, time: RunClock.now())
    history.ledger.book(job: history.job, fate) { [self] problem in
      if let problem {
        note(problem)
        underWay.leave()
        return
      }
      // Not on the ledger's own thread: files may take their time.
      queue.async { [self] in
        carryOut(record, identity, target, facts)
        underWay.leave()
      }
    }
  }

  /// What was read for an item that is done with all its outputs; nil for any other.
  private func source(_ record: ItemRecord, _ identity: ItemIdentity) -> SourceFacts? {
    switch record.status {
    case .done:
      let written = record.outputs.count { if case .path = $0.place { true } else { false } }
      return written >= max(1, outputCount(identity)) ? record.source : nil
    case .skipped:
      // Done by an earlier run, which did not come to this.
      guard let known = (try? history.ledger.item(job: history.job, key: RunHistory.key(of: identity))) ?? nil,
        known.status == .done, known.outputs.count >= max(1, outputCount(identity)),
        record.reason?.hasPrefix("up to date") == true, let hash = known.inputHash
      else { return nil }
      return SourceFacts(sha256: Hex.text(hash), stamp: known.inputStamp)
    case .dropped, .failed, .deferred, .review, .notAttempted, .unknown: return nil
    }
  }

  private func carryOut(
    _ record: ItemRecord, _ identity: ItemIdentity, _ target: PathBytes?, _ facts: SourceFacts
  ) {
    var record = record
    do throws(StageError) {
      let fate: ItemSource.Fate
      if let target {
        fate = try ItemSource.move(identity.path, to: target, facts, tag: run.runID)
      } else {
        fate = try ItemSource.delete(identity.path, facts)
      }
      record.fate = fate
      if case .kept = fate { history.ledger.forget(job: history.job, source: identity.name) }
    } catch {
      history.ledger.forget(job: history.job, source: identity.name)
      record.fate = .kept(error.description)
      note(error)
    }
    onFate(record)
  }

  private func note(_ error: StageError) {
    state.withLock { if $0.problems.count < Self.mostProblems { $0.problems.append(error) } }
  }

  /// Waits until all is done that was begun.
  ///
  /// - Returns: what went wrong.
  func finish() -> [StageError] {
    // What has been booked is told before a flush comes back, so nothing enters the group afterwards. Its failure is
    // told once, and so here: items that were not booked have their sources kept without a word.
    var problems: [StageError] = []
    do throws(StageError) { try history.flush() } catch { problems.append(error) }
    underWay.wait()
    return problems + state.withLock { $0.problems }
  }
}

/// That a source is moved or deleted because all that its job makes of it is done. Noted before it happens.
public struct SourceFate: Sendable, Hashable {
  /// The input as found.
  public var name: PathBytes
  /// Where it is moved; nil where it is deleted.
  public var target: PathBytes?
  /// Seconds since 1970.
  public var time: Double

  public init(name: PathBytes, target: PathBytes?, time: Double) {
    self.name = name
    self.target = target
    self.time = time
  }
}
