import Dispatch
import PipelineKit
import Synchronization

/// One worker's right to decide about one item. A C call may never return: the watchdog then takes the right away, and
/// whatever the worker brings home later is thrown away.
final class Claim: Sendable {
  private enum State { case running, settled, revoked }
  private let state = Mutex(State.running)
  let item: ItemRun
  private let end: Mutex<ContinuousClock.Instant>
  /// Since when the item's progress says nothing.
  private let told = Mutex(ContinuousClock.now)
  /// The stage being worked on, for the message when the time is over.
  private let stage = Atomic<Int>(0)

  init(item: ItemRun, expiry: ContinuousClock.Instant) {
    self.item = item
    end = Mutex(expiry)
  }

  /// When the item's time is over.
  var expiry: ContinuousClock.Instant { end.withLock { $0 } }

  /// Gives the item more time: it has waited on purpose.
  func extend(by duration: Duration) { end.withLock { $0 += duration } }

  /// What the worker has spent on the item since its progress was last noted.
  var untold: Duration { told.withLock { .now - $0 } }

  var currentStage: Int {
    get { stage.load(ordering: .relaxed) }
    set { stage.store(newValue, ordering: .relaxed) }
  }

  var isRevoked: Bool { state.withLock { $0 == .revoked } }

  /// Runs `change` while the claim holds; false when it was taken away.
  func commit(_ change: () -> Void) -> Bool {
    state.withLock { state in
      guard state == .running else { return false }
      change()
      told.withLock { $0 = .now }
      return true
    }
  }

  /// Gives the claim back; false when it was taken away before.
  func settle() -> Bool {
    state.withLock { state in
      guard state == .running else { return false }
      state = .settled
      return true
    }
  }

  /// Takes the claim away; false when it was settled before.
  func revoke() -> Bool {
    state.withLock { state in
      guard state == .running else { return false }
      state = .revoked
      return true
    }
  }
}

/// An item and how far it has come. Touched by the worker that holds its claim, under the claim's lock.
final class ItemRun: Sendable {
  let index: Int
  let journal = ItemJournal()
  let progress: Mutex<ItemProgress>
  /// Where a thread waits for this item's memory, instead of the item on its lane.
  let grant = Mutex<DispatchSemaphore?>(nil)

  init(_ item: Item) {
    index = item.identity.index
    progress = Mutex(ItemProgress(item: item))
  }
}
