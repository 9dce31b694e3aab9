// Dispatch sources may be used from any thread; on Linux their types do not say so.
@preconcurrency import Dispatch
import Glibc
import Synchronization

/// Turns SIGHUP, SIGINT and SIGTERM into calls, and keeps SIGPIPE from ending the process.
///
/// The signals are blocked in the thread that calls `init`, and so in every thread started later: to be made before any
/// other thread is. A signal that whoever started the program had ignored (`nohup`, a background job of a shell) stays
/// ignored.
final class SignalWatch: Sendable {
  private let handler = Mutex<(@Sendable (Int32) -> Void)?>(nil)
  private let sources: [any DispatchSourceSignal]

  /// - Parameter handler: called on a queue of its own, once for each signal.
  init(_ handler: @escaping @Sendable (Int32) -> Void) {
    signal(SIGPIPE, SIG_IGN)
    let queue = DispatchQueue(label: "pipeline.signals")
    var set = sigset_t()
    sigemptyset(&set)
    var sources: [any DispatchSourceSignal] = []
    for number in [SIGHUP, SIGINT, SIGTERM] {
      var action = sigaction()
      sigaction(number, nil, &action)
      if number != SIGTERM, Self.isIgnored(action) { continue }
      sigaddset(&set, number)
      sources.append(DispatchSource.makeSignalSource(signal: number, queue: queue))
    }
    pthread_sigmask(SIG_BLOCK, &set, nil)
    self.sources = sources
    self.handler.withLock { $0 = handler }
    for source in sources {
      let number = Int32(source.handle)
      source.setEventHandler { [weak self] in
        // Signals that come close together may be told in one call.
        guard let self, let call = self.handler.withLock({ $0 }) else { return }
        for _ in 0..<max(1, source.data) { call(number) }
      }
      source.activate()
    }
  }

  private static func isIgnored(_ action: sigaction) -> Bool {
    unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self) == unsafeBitCast(SIG_IGN, to: Int.self)
  }
}
