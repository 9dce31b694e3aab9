import Dispatch
import Glibc
import Imaging
import PipelineKit
import Synchronization

/// A small picture for a page, in WebP; or why there is none.
public enum Thumbnail: Sendable {
  case picture(EncodedBytes, width: Int, height: Int)
  case missing(String)
}

/// Asks for a page to be finished without further pictures, from any thread.
public final class PageStop: Sendable {
  private let reason = Mutex<String?>(nil)

  public init() {}

  /// - Parameter why: stands where pictures are missing, such as `the run was interrupted`.
  public func stop(_ why: String) { reason.withLock { $0 = $0 ?? why } }

  /// Why no more pictures are made; nil while they are.
  public var why: String? { reason.withLock { $0 } }
}

/// Makes small pictures on several threads. A picture that cannot be read, or takes too long, costs nothing but itself.
final class ThumbnailWorkers: Sendable {
  /// Pixels of the longer side.
  static let side = 320
  private static let options = DecodeOptions(onDamage: .accept)
  private static let encoding = EncodeOptions.webp(.init(quality: 60, effort: 2, alphaQuality: 60))

  private let count: Int
  private let patience: Duration
  private let stop: PageStop
  private let deadline: ContinuousClock.Instant?

  /// - Parameters:
  ///   - patience: how long one picture may take before it is given up; its thread is left behind.
  ///   - deadline: when no more are begun.
  init(count: Int, patience: Duration = .seconds(20), stop: PageStop, deadline: ContinuousClock.Instant?) {
    self.count = max(1, count)
    self.patience = patience
    self.stop = stop
    self.deadline = deadline
  }

  private struct State {
    var next = 0
    var results: [Thumbnail?]
    var pending: Int
    /// By worker: the task it is at and since when.
    var busy: [Int: (task: Int, since: ContinuousClock.Instant)] = [:]
    var nextWorker = 0
  }

  private final class Batch: Sendable {
    let paths: [PathBytes]
    let make: @Sendable (PathBytes) -> Thumbnail
    let state: Mutex<State>
    let done = DispatchSemaphore(value: 0)

    init(_ paths: [PathBytes], make: @escaping @Sendable (PathBytes) -> Thumbnail) {
      self.paths = paths
      self.make = make
      state = Mutex(State(results: Array(repeating: nil, count: paths.count), pending: paths.count))
    }

    /// Takes task after task, until there is none or this worker has been given up.
    func work(_ worker: Int, mayBegin: () -> Thumbnail?) {
      while true {
        let task = state.withLock { state -> Int? in
          guard state.next < paths.count else { return nil }
          state.busy[worker] = (state.next, .now)
          state.next += 1
          return state.next - 1
        }
        guard let task else { return }
        let result = mayBegin() ?? make(paths[task])
        let (isLast, goesOn) = state.withLock { state in
          guard state.busy.removeValue(forKey: worker) != nil else { return (false, false) }
          state.results[task] = result
          state.pending -= 1
          return (state.pending == 0, true)
        }
        if isLast { done.signal() }
        guard goesOn else { return }
      }
    }

    /// Gives up what has taken longer than `patience`; the number of workers to begin in place of those.
    func giveUp(after patience: Duration) -> (replacements: Int, isDone: Bool) {
      state.withLock { state in
        var count = 0
        for (worker, entry) in state.busy where .now - entry.since > patience {
          state.busy[worker] = nil
          state.results[entry.task] = .missing("it took too long to read")
          state.pending -= 1
          count += 1
        }
        return (count, state.pending == 0)
      }
    }
  }

  /// One thumbnail for each path, in their order.
  func thumbnails(
    of paths: [PathBytes], make: @escaping @Sendable (PathBytes) -> Thumbnail = { ThumbnailWorkers.thumbnail(of: $0) }
  ) -> [Thumbnail] {
    guard !paths.isEmpty else { return [] }
    let batch = Batch(paths, make: make)
    func begin() {
      let worker = batch.state.withLock { state in
        state.nextWorker += 1
        return state.nextWorker
      }
      // A queue each: on a shared pool a call that hangs would hold up the others.
      DispatchQueue(label: "pipeline.page.\(worker)").async { [stop, deadline] in
        batch.work(worker) {
          if let why = stop.why { return .missing(why) }
          if let deadline, ContinuousClock.now > deadline { return .missing("there was no time left for it") }
          return nil
        }
        Libvips.threadShutdown()
      }
    }
    for _ in 0..<min(count, paths.count) { begin() }
    while batch.done.wait(timeout: .now() + 1) == .timedOut {
      let (replacements, isDone) = batch.giveUp(after: stop.why == nil ? patience : .seconds(1))
      if isDone { break }
      for _ in 0..<replacements { begin() }
    }
    return batch.state.withLock { state in state.results.map { $0 ?? .missing("it was not made") } }
  }

  static func thumbnail(of path: PathBytes) -> Thumbnail {
    do throws(ImagingError) {
      let picture = try EncodedPicture(path: path.bytes, options: options)
      let (width, height) = (picture.header.orientedWidth, picture.header.orientedHeight)
      let plan = try ResizeRequest(width: side, height: side, kernel: .linear).plan(for: width, height)
      let small = try picture.pixels(resizedTo: plan)
      let bytes = try small.encoded(encoding, metadata: MetadataRequest(keep: .none))
      return .picture(bytes, width: small.width, height: small.height)
    } catch {
      var status = stat()
      if path.withCString({ stat($0, &status) }) != 0, errno == ENOENT { return .missing("the file is gone") }
      return .missing(error.message)
    }
  }
}
