import CSystem
import Dispatch
import Synchronization

/// Bounds the estimated bytes of the items in flight.
///
/// An item asks once, when its header is known and before its pixels are. One that alone asks for more than the limit
/// is let in when nothing else is: giants run alone.
final class MemoryBudget: Sendable {
  private struct State {
    var reserved = 0
    var granted: [Int: Int] = [:]
    var waiting: [(item: ItemRun, bytes: Int)] = []
  }
  let limit: Int
  private let state = Mutex(State())

  init(limit: Int) { self.limit = limit }

  /// Items that wait to be let in.
  var waitingCount: Int { state.withLock { $0.waiting.count } }

  /// Reserves bytes for an item, or remembers it to be let in later.
  func reserve(_ bytes: Int, for item: ItemRun) -> Bool {
    state.withLock { state in
      // Those that wait keep their turn: a stream of small pictures must not starve a giant.
      if state.waiting.isEmpty, fits(bytes, state) {
        state.reserved += bytes
        state.granted[item.index] = bytes
        return true
      }
      state.waiting.append((item, bytes))
      return false
    }
  }

  /// Gives back what an item holds or waits for; nothing happens for an item that never asked.
  ///
  /// - Returns: items that may go on now, their bytes reserved.
  func release(_ item: ItemRun) -> [ItemRun] {
    let (admitted, bytes) = state.withLock { state -> ([ItemRun], Int) in
      state.waiting.removeAll { $0.item === item }
      let bytes = state.granted.removeValue(forKey: item.index) ?? 0
      state.reserved -= bytes
      var admitted: [ItemRun] = []
      while let first = state.waiting.first, fits(first.bytes, state) {
        state.waiting.removeFirst()
        state.reserved += first.bytes
        state.granted[first.item.index] = first.bytes
        admitted.append(first.item)
      }
      return (admitted, bytes)
    }
    // Large pictures leave the allocator with pages between blocks that live on; thousands of them would add up. Not at
    // once: whoever calls may hold the last pixels still.
    if bytes >= Self.largeBytes { cleaning.async { csystem_release_memory() } }
    return admitted
  }

  private static let largeBytes = 64 << 20
  private let cleaning = DispatchQueue(label: "pipeline.memory")

  private func fits(_ bytes: Int, _ state: State) -> Bool {
    state.reserved == 0 || state.reserved + bytes <= limit
  }
}
