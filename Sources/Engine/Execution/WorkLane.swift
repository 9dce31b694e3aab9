import Dispatch
import Imaging
import Synchronization

/// A fixed number of workers that take items from one queue, those further along first.
///
/// Each worker is a serial queue of its own: on a shared concurrent queue a few calls that never return would use up
/// its threads and starve everyone. A worker that is given up keeps its thread; another takes its place.
final class WorkLane: Sendable {
  final class Worker: Sendable {
    fileprivate let queue: DispatchQueue
    /// What the worker is busy with.
    let claim = Mutex<Claim?>(nil)
    fileprivate let isAbandoned = Atomic<Bool>(false)

    init(label: String) { queue = DispatchQueue(label: label) }
  }

  private struct Entry {
    var item: ItemRun
    var stage: Int
    var sequence: Int
  }

  private struct State {
    /// A binary heap; the first element is the next to run.
    var waiting: [Entry] = []
    var sequence = 0
    var idle: [Worker] = []
    var workers: [Worker] = []
    var abandoned = 0
    /// The time of all workers together in which they had an item, up to `counted`.
    var busy = Duration.zero
    var counted = ContinuousClock.now

    /// Brings `busy` up to now; to be called before a worker lies down or gets up.
    mutating func count() {
      let now = ContinuousClock.now
      busy += (now - counted) * (workers.count - idle.count)
      counted = now
    }
  }

  let name: String
  private let state: Mutex<State>
  private let body: @Sendable (ItemRun, Worker) -> Void

  /// - Parameter body: works on one item; runs on a worker's queue.
  init(name: String, workers count: Int, body: @escaping @Sendable (ItemRun, Worker) -> Void) {
    self.name = name
    self.body = body
    let workers = (0..<count).map { Worker(label: "pipeline.\(name).\($0)") }
    var state = State()
    state.workers = workers
    state.idle = workers.reversed()
    self.state = Mutex(state)
  }

  func submit(_ item: ItemRun, atStage stage: Int) {
    let worker: Worker? = state.withLock { state in
      state.sequence += 1
      state.waiting.push(Entry(item: item, stage: stage, sequence: state.sequence), before: Self.precedes)
      state.count()
      return state.idle.popLast()
    }
    if let worker { start(worker) }
  }

  /// Takes a worker's claim away and replaces the worker; false when the claim was settled before.
  ///
  /// Both under the lane's lock: in between, a worker that comes back after all could take up another item, which no
  /// deadline would watch, or lie down among the idle ones, to be woken in the place of one that works.
  func abandon(_ worker: Worker, _ claim: Claim) -> Bool {
    let (isRevoked, replacement) = state.withLock { state -> (Bool, Worker?) in
      guard claim.revoke() else { return (false, nil) }
      worker.isAbandoned.store(true, ordering: .sequentiallyConsistent)
      guard let index = state.workers.firstIndex(where: { $0 === worker }) else { return (true, nil) }
      state.abandoned += 1
      let replacement = Worker(label: "pipeline.\(name).replacement.\(state.abandoned)")
      state.workers[index] = replacement
      return (true, replacement)
    }
    if let replacement { start(replacement) }
    return isRevoked
  }

  /// Every worker and what it is busy with.
  var claims: [(Worker, Claim)] {
    state.withLock { $0.workers }.compactMap { worker in
      worker.claim.withLock { $0 }.map { (worker, $0) }
    }
  }

  /// How many workers there are, how long all of them together have had an item, and how many items wait for one.
  var load: (workers: Int, busySeconds: Double, waiting: Int) {
    state.withLock { state in
      state.count()
      return (state.workers.count, state.busy / .seconds(1), state.waiting.count)
    }
  }

  /// Forgets everything that waits.
  func drain() -> [ItemRun] {
    state.withLock { state in
      defer { state.waiting = [] }
      return state.waiting.map(\.item)
    }
  }

  /// Takes out the items that wait for the first stage.
  func takeUnstarted() -> [ItemRun] {
    state.withLock { state in
      let entries = state.waiting
      state.waiting = []
      for entry in entries where entry.stage > 0 { state.waiting.push(entry, before: Self.precedes) }
      return entries.filter { $0.stage == 0 }.sorted { $0.sequence < $1.sequence }.map(\.item)
    }
  }

  private func start(_ worker: Worker) {
    worker.queue.async { [self] in
      while let item = next(for: worker) { body(item, worker) }
      // libvips keeps buffers per thread, and Dispatch may run this worker's next work on another one.
      Libvips.threadShutdown()
    }
  }

  private func next(for worker: Worker) -> ItemRun? {
    state.withLock { state in
      guard !worker.isAbandoned.load(ordering: .sequentiallyConsistent) else { return nil }
      if let entry = state.waiting.pop(before: Self.precedes) { return entry.item }
      state.count()
      state.idle.append(worker)
      return nil
    }
  }

  private static let precedes: @Sendable (Entry, Entry) -> Bool = { left, right in
    left.stage != right.stage ? left.stage > right.stage : left.sequence < right.sequence
  }
}

extension Array {
  /// Adds an element to a binary heap.
  fileprivate mutating func push(_ element: Element, before: (Element, Element) -> Bool) {
    append(element)
    var child = count - 1
    while child > 0, before(self[child], self[(child - 1) / 2]) {
      swapAt(child, (child - 1) / 2)
      child = (child - 1) / 2
    }
  }

  /// Takes the first element of a binary heap.
  fileprivate mutating func pop(before: (Element, Element) -> Bool) -> Element? {
    guard !isEmpty else { return nil }
    swapAt(0, count - 1)
    let first = removeLast()
    var parent = 0
    while true {
      var best = parent
      for child in [2 * parent + 1, 2 * parent + 2] where child < count && before(self[child], self[best]) {
        best = child
      }
      if best == parent { return first }
      swapAt(parent, best)
      parent = best
    }
  }
}
