import Dispatch
import Glibc
import Synchronization

/// Files that must not survive a run that is cut short.
///
/// A worker that was given up may still be on its way to a file system call when its run ends. Making a temporary
/// file and giving it its name are therefore steps: once sealed no step begins, and sealing waits for those that have
/// begun, but not for ever, since a call to a file system that hangs may never come back.
public final class TemporaryFiles: Sendable {
  private struct State {
    var paths: Set<PathBytes> = []
    var isSealed = false
    var stepsUnderWay = 0
  }
  private let state = Mutex(State())
  private let drained = DispatchSemaphore(value: 0)
  private let onInsert: @Sendable (PathBytes) -> Void
  private let onRemove: @Sendable (PathBytes) -> Void
  private let onNaming: @Sendable (_ temporary: PathBytes, _ path: PathBytes, _ isNew: Bool) -> Void

  /// - Parameters:
  ///   - onInsert: told of each file before it is made, for a journal that outlives the process.
  ///   - onRemove: told of each file that is renamed or removed.
  ///   - onNaming: told of each file before it gets its name, and whether nothing has that name yet.
  public init(
    onInsert: @escaping @Sendable (PathBytes) -> Void = { _ in },
    onRemove: @escaping @Sendable (PathBytes) -> Void = { _ in },
    onNaming: @escaping @Sendable (_ temporary: PathBytes, _ path: PathBytes, _ isNew: Bool) -> Void = { _, _, _ in }
  ) {
    self.onInsert = onInsert
    self.onRemove = onRemove
    self.onNaming = onNaming
  }

  /// Notes a file that is about to be made; false once sealed: then it must not be made.
  public func insert(_ path: PathBytes) -> Bool {
    let isNoted = state.withLock { state in
      guard !state.isSealed else { return false }
      state.paths.insert(path)
      return true
    }
    if isNoted { onInsert(path) }
    return isNoted
  }

  public func remove(_ path: PathBytes) {
    if state.withLock({ $0.paths.remove(path) }) != nil { onRemove(path) }
  }

  /// Tells that a file is about to get its name.
  func willName(_ temporary: PathBytes, _ path: PathBytes, isNew: Bool) { onNaming(temporary, path, isNew) }

  /// Those not yet renamed or removed.
  public var remaining: [PathBytes] { state.withLock { $0.paths.sorted() } }

  /// Does what makes or names a file; nil, and nothing is done, once sealed. No lock is held meanwhile.
  public func step<R>(_ body: () -> R) -> R? {
    let begins = state.withLock { state in
      guard !state.isSealed else { return false }
      state.stepsUnderWay += 1
      return true
    }
    guard begins else { return nil }
    defer {
      let isLast = state.withLock { state in
        state.stepsUnderWay -= 1
        return state.isSealed && state.stepsUnderWay == 0
      }
      if isLast { drained.signal() }
    }
    return body()
  }

  /// Lets no step begin any more, and waits for those under way.
  ///
  /// - Parameter seconds: how long to wait.
  /// - Returns: false where a step has not come back in time.
  @discardableResult
  public func seal(waiting seconds: Double = 2) -> Bool {
    let isQuiet = state.withLock { state in
      state.isSealed = true
      return state.stepsUnderWay == 0
    }
    return isQuiet || drained.wait(timeout: .now() + seconds) == .success
  }

  /// Seals, and removes what remains. Afterwards no file of this run appears and none gets its name: where a step has
  /// not come back, the file it would rename is gone.
  ///
  /// - Parameter seconds: how long to wait for steps, and again for the removal, which a file system may hang in too.
  public func sealAndRemove(waiting seconds: Double = 2) {
    seal(waiting: seconds)
    let paths = remaining
    guard !paths.isEmpty else { return }
    let done = DispatchSemaphore(value: 0)
    DispatchQueue(label: "pipeline.temporaries").async { [self] in
      for path in paths {
        _ = path.withCString { unlink($0) }
        remove(path)
      }
      done.signal()
    }
    _ = done.wait(timeout: .now() + seconds)
  }
}
