import Dispatch
import PipelineKit
import Synchronization

/// Writes to the ledger one transaction after the other, each with all that has come up while the one before it was on
/// its way to the disk.
///
/// A flush of the disk takes milliseconds and a row microseconds: with many rows to a flush, an item costs what a row
/// costs, and what was told to be durable is.
final class LedgerWriter: Sendable {
  typealias Change = @Sendable (LedgerTables) throws(DatabaseError) -> Void
  typealias Done = @Sendable (StageError?) -> Void

  private struct Operation: Sendable {
    /// Nil for what only waits for those before it.
    var change: Change?
    var done: Done?
  }
  private struct State {
    var waiting: [Operation] = []
    var isAtWork = false
    var isClosed = false
    /// The first since the last flush.
    var failure: StageError?
  }
  /// So many changes go into one transaction; a log of writes that grows with the backlog would not fit a small disk.
  private static let mostInGroup = 10_000

  private let state = Mutex(State())
  private let tables: Mutex<LedgerTables?>
  private let queue = DispatchQueue(label: "pipeline.ledger")
  private let translate: @Sendable (DatabaseError) -> StageError

  init(_ tables: LedgerTables, translate: @escaping @Sendable (DatabaseError) -> StageError) {
    self.tables = Mutex(tables)
    self.translate = translate
  }

  /// Puts a change at the end of the queue.
  func enqueue(_ change: Change?, done: Done? = nil) {
    let (isClosed, starts) = state.withLock { state in
      guard !state.isClosed else {
        if change != nil, state.failure == nil { state.failure = Self.closed }
        return (true, false)
      }
      state.waiting.append(Operation(change: change, done: done))
      let starts = !state.isAtWork
      state.isAtWork = true
      return (false, starts)
    }
    if isClosed { done?(Self.closed) }
    if starts { queue.async { self.drain() } }
  }

  private static let closed = StageError("state-write", "the ledger was closed", kind: .environment)

  private func drain() {
    while true {
      let group = state.withLock { state in
        let group = Array(state.waiting.prefix(Self.mostInGroup))
        state.waiting.removeFirst(group.count)
        if group.isEmpty { state.isAtWork = false }
        return group
      }
      if group.isEmpty { return }
      let failure = commit(group)
      if let failure { state.withLock { if $0.failure == nil { $0.failure = failure } } }
      for operation in group { operation.done?(operation.change == nil ? nil : failure) }
    }
  }

  private func commit(_ group: [Operation]) -> StageError? {
    guard group.contains(where: { $0.change != nil }) else { return nil }
    return tables.withLock { tables in
      guard let tables else { return Self.closed }
      do throws(DatabaseError) {
        try tables.database.transaction { () throws(DatabaseError) in
          for operation in group { try operation.change?(tables) }
        }
        return nil
      } catch {
        tables.forget()
        return translate(error)
      }
    }
  }

  /// Waits until all that was enqueued before is durable or has failed.
  ///
  /// - Throws: the first failure since the last flush.
  func flush() throws(StageError) {
    wait(nil)
    let failure = state.withLock { state in
      defer { state.failure = nil }
      return state.failure
    }
    if let failure { throw failure }
  }

  /// Makes a change and waits until it is durable.
  ///
  /// - Throws: its failure, which a flush then does not tell again where it is the only one.
  func perform<Result: Sendable>(
    _ change: @escaping @Sendable (LedgerTables) throws(DatabaseError) -> Result
  ) throws(StageError) -> Result {
    let result = Box<Result>()
    let failure = wait { tables throws(DatabaseError) in
      let made = try change(tables)
      result.value.withLock { $0 = made }
    }
    if let failure {
      state.withLock { if $0.failure == failure { $0.failure = nil } }
      throw failure
    }
    guard let made = result.value.withLock({ $0 }) else { throw Self.closed }
    return made
  }

  /// Does what cannot be part of a transaction, between two of them.
  func alone(_ body: (LedgerTables) throws(DatabaseError) -> Void) throws(StageError) {
    let failure: StageError? = tables.withLock { tables in
      guard let tables else { return Self.closed }
      do throws(DatabaseError) {
        try body(tables)
        return nil
      } catch {
        return translate(error)
      }
    }
    if let failure { throw failure }
  }

  @discardableResult
  private func wait(_ change: Change?) -> StageError? {
    let done = DispatchSemaphore(value: 0)
    let failure = Box<StageError>()
    enqueue(change) { error in
      failure.value.withLock { $0 = error }
      done.signal()
    }
    done.wait()
    return failure.value.withLock { $0 }
  }

  private final class Box<Value: Sendable>: Sendable {
    let value = Mutex<Value?>(nil)
  }

  /// Does the rest, then closes the database. What comes later is refused.
  func close() {
    closeLater()
    queue.sync {}
  }

  /// As `close`, without waiting for it.
  func closeLater() {
    state.withLock { $0.isClosed = true }
    queue.async { [self] in
      drain()
      tables.withLock { $0 = nil }
    }
  }
}
