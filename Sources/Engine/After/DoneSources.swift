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
  /// An item that is done with all its outputs.
  private struct Done: Sendable {
    var record: ItemRecord
    var identity: ItemIdentity
    /// What was read.
    var facts: SourceFacts
  }

  /// Items that read one file, by whatever names.
  private struct Sharing {
    /// How many have not ended.
    var open = 0
    /// Whether one did not end well.
    var isKept = false
    var done: [Done] = []
  }

  private struct State {
    var sharings: [Sharing] = []
    var problems: [StageError] = []
  }

  private let onSuccess: OnSuccess
  private let outputCount: @Sendable (ItemIdentity) -> Int
  private let run: RunValues
  private let history: RunHistory
  private let state: Mutex<State>
  /// The sharings of files that several items read.
  private let sharing: [PathBytes: Int]
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
    // Rows may name a file twice, links lead to it, and a hard link is it.
    var counts: [FileIdentity: Int] = [:]
    let files = plan.inputs.map { Self.file($0.path) }
    for case let file? in files { counts[file, default: 0] += 1 }
    var numbers: [FileIdentity: Int] = [:]
    var sharing: [PathBytes: Int] = [:]
    var state = State()
    for (input, file) in zip(plan.inputs, files) {
      guard let file, counts[file, default: 0] > 1 else { continue }
      let number = numbers[file] ?? state.sharings.count
      if number == state.sharings.count {
        numbers[file] = number
        state.sharings.append(Sharing())
      }
      sharing[input.path] = number
      state.sharings[number].open += 1
    }
    self.sharing = sharing
    self.state = Mutex(state)
  }

  /// The file that a path leads to; nil where none is.
  private static func file(_ path: PathBytes) -> FileIdentity? {
    try? FileStatus.of(path.bytes, followingLinks: true).get().identity
  }

  /// Takes note of an item that has ended and is booked.
  ///
  /// - Parameter problem: why it could not be booked.
  func itemEnded(_ record: ItemRecord, _ identity: ItemIdentity, problem: StageError?) {
    let facts = problem == nil ? source(record, identity) : nil
    let done = facts.map { Done(record: record, identity: identity, facts: $0) }
    let all = state.withLock { state -> [Done] in
      guard let number = sharing[identity.path] else { return done.map { [$0] } ?? [] }
      state.sharings[number].open -= 1
      if let done { state.sharings[number].done.append(done) } else { state.sharings[number].isKept = true }
      guard state.sharings[number].open == 0, !state.sharings[number].isKept else { return [] }
      defer { state.sharings[number].done = [] }
      return state.sharings[number].done
    }
    // Each name goes once, and links before what they lead to.
    var resolver = FolderResolver()
    var places: Set<PathBytes> = []
    let names =
      all.count < 2 ? all : all.reversed().filter { places.insert(resolver.resolve($0.identity.path)).inserted }
    let links = names.filter { FolderResolver.target(of: $0.identity.path) != nil }
    let files = names.filter { FolderResolver.target(of: $0.identity.path) == nil }
    for item in links + files { begin(item, of: all) }
  }

  /// - Parameter all: the items that read the same file.
  private func begin(_ item: Done, of all: [Done]) {
    let identity = item.identity
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
        carryOut(item, target, of: all)
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
      // Done by an earlier run, which did not come to this; where it did, nothing is left to do, and what the ledger
      // says of it has to stay.
      guard FileStamp.of(identity.path) != nil,
        let known = (try? history.ledger.item(job: history.job, key: RunHistory.key(of: identity))) ?? nil,
        known.status == .done, known.outputs.count >= max(1, outputCount(identity)),
        record.reason?.hasPrefix(RunHistory.upToDate) == true, let hash = known.inputHash
      else { return nil }
      return SourceFacts(sha256: Hex.text(hash), stamp: known.inputStamp)
    case .dropped, .failed, .deferred, .review, .notAttempted, .unknown: return nil
    }
  }

  private func carryOut(_ item: Done, _ target: PathBytes?, of all: [Done]) {
    var record = item.record
    let (path, name) = (item.identity.path, item.identity.name)
    do throws(StageError) {
      let fate: ItemSource.Fate
      // Once more: others may have been at them since they were written, or looked at when the run was planned.
      if let doubt = all.lazy.compactMap({ [history] in history.doubtAboutOutputs(of: $0.identity) }).first {
        fate = .kept(doubt)
      } else if let target {
        fate = try ItemSource.move(path, to: target, item.facts, tag: run.runID)
      } else {
        fate = try ItemSource.delete(path, item.facts)
      }
      record.fate = fate
      if case .kept = fate { history.ledger.forget(job: history.job, source: name) }
    } catch {
      history.ledger.forget(job: history.job, source: name)
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
