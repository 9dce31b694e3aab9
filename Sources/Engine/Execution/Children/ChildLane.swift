import Dispatch
import PipelineKit
import Synchronization

/// A fixed number of workers that take items from one queue and have a child process each do the work.
///
/// Where calls hang or crash, a thread of ours is lost for good and a child is not. A worker only talks with its child,
/// and waits; its child is started with the first item and serves until it is killed.
final class ChildLane: Sendable {
  final class Worker: Sendable {
    fileprivate let queue: DispatchQueue
    private let state = Mutex<(child: ChildProcess?, served: Int)>((nil, 0))

    init(label: String) { queue = DispatchQueue(label: label) }

    var child: ChildProcess? { state.withLock { $0.child } }
    /// Whether the child has worked on an item before: what it does next may be that one's fault.
    var hasServed: Bool { state.withLock { $0.served > 0 } }

    func adopt(_ child: ChildProcess) { state.withLock { $0 = (child, 0) } }
    func noteServed() { state.withLock { $0.served += 1 } }
    func forget() { state.withLock { $0 = (nil, 0) } }
  }

  private struct State {
    var waiting: [ItemRun] = []
    var idle: [Worker]
    var isClosed = false
  }

  private let workers: [Worker]
  private let state: Mutex<State>
  private let body: @Sendable (ItemRun, Worker) -> Void

  /// How long a child may take to finish its stages; a stage has ten seconds.
  private static let finishSeconds = 12.0

  /// - Parameter body: has one item worked on; runs on a worker's queue.
  init(workers count: Int, body: @escaping @Sendable (ItemRun, Worker) -> Void) {
    self.body = body
    workers = (0..<count).map { Worker(label: "pipeline.children.\($0)") }
    state = Mutex(State(idle: workers.reversed()))
  }

  func submit(_ item: ItemRun) {
    let worker: Worker? = state.withLock { state in
      guard !state.isClosed else { return nil }
      state.waiting.append(item)
      return state.idle.popLast()
    }
    guard let worker else { return }
    worker.queue.async { [self] in
      while let item = next(for: worker) { body(item, worker) }
    }
  }

  private func next(for worker: Worker) -> ItemRun? {
    state.withLock { state in
      guard !state.isClosed, !state.waiting.isEmpty else {
        state.idle.append(worker)
        return nil
      }
      return state.waiting.removeFirst()
    }
  }

  /// Ends all children now, and takes no more items.
  func killAll() {
    state.withLock { state in
      state.isClosed = true
      state.waiting = []
    }
    for worker in workers { worker.child?.kill() }
  }

  /// Lets idle children finish and waits until all are gone; those that are busy, or do not finish, are killed.
  ///
  /// - Returns: problems of their stages while finishing.
  func close(isForced: Bool) -> [StageError] {
    if isForced { killAll() } else { state.withLock { $0.isClosed = true } }
    let errors = Collected()
    let group = DispatchGroup()
    for worker in workers where worker.child != nil {
      worker.queue.async(group: group) {
        guard let child = worker.child else { return }
        if !isForced {
          let end = ContinuousClock.now + .seconds(Self.finishSeconds)
          child.conversation.send(Message.make("end"), until: end)
          switch child.conversation.receive(until: end) {
          case .message(let message):
            let found = (message["errors"]?.arrayValue ?? []).compactMap { StageError($0) }
            errors.value.withLock { $0 += found }
          case .closed:
            if case .signal(let number) = child.reap(waiting: 1) {
              let error = StageError(
                "crash", "a process of the run crashed (\(SignalName.text(number))) after its last picture had ended",
                hint: "every picture is as reported; what stages do when a run is over may not have been done")
              errors.value.withLock { $0.append(error) }
            }
          case .timeout:
            let error = StageError("finish-timeout", "a process of the run did not finish in time", kind: .temporary)
            errors.value.withLock { $0.append(error) }
          }
        }
        child.kill()
        _ = child.reap(waiting: 2)
        worker.forget()
      }
    }
    _ = group.wait(timeout: .now() + Self.finishSeconds + 5)
    return errors.value.withLock { $0 }
  }

  private final class Collected: Sendable { let value = Mutex<[StageError]>([]) }
}
