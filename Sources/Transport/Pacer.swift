import Glibc
import Synchronization

/// Keeps requests to one host to so many per minute (a token bucket), for all threads that share it.
public final class Pacer: Sendable {
  private struct State {
    var tokens: Double
    /// When `tokens` was right.
    var time: Double
    var pausedUntil: Double
  }

  /// Tokens a second; nil for no limit.
  private let rate: Double?
  private let burst: Double
  private let now: @Sendable () -> Double
  private let state: Mutex<State>

  /// - Parameters:
  ///   - perMinute: how much weight a minute takes; nil for no limit.
  ///   - burst: how much may go at once after a rest; nil for 1.
  ///   - now: seconds of a clock that only goes forward.
  public init(
    perMinute: Double?, burst: Double? = nil, now: @escaping @Sendable () -> Double = Pacer.monotonicClock
  ) {
    rate = perMinute.map { max($0, 1e-6) / 60 }
    self.burst = max(burst ?? 1, 1e-6)
    self.now = now
    state = Mutex(State(tokens: self.burst, time: now(), pausedUntil: -.infinity))
  }

  /// Takes `weight` out of the bucket, which may go below nothing, and answers the seconds to wait before the request
  /// may be sent. So everyone gets a turn in the order of asking, also those that weigh more than the bucket holds.
  public func reserve(_ weight: Double = 1) -> Double {
    let now = now()
    return state.withLock { state in
      var wait = 0.0
      if let rate {
        state.tokens = min(burst, state.tokens + max(0, now - state.time) * rate)
        state.time = max(state.time, now)
        state.tokens -= max(0, weight)
        wait = max(0, -state.tokens / rate)
      }
      return max(wait, state.pausedUntil - now)
    }
  }

  /// Nobody is to send before so many seconds have passed: the server has said so. A longer pause stays.
  public func pause(for seconds: Double) {
    let end = now() + max(0, seconds)
    state.withLock { $0.pausedUntil = max($0.pausedUntil, end) }
  }

  /// Seconds that are left of a pause; 0 for none.
  public var pauseLeft: Double {
    let now = now()
    return state.withLock { max(0, $0.pausedUntil - now) }
  }

  /// Seconds since some moment.
  public static let monotonicClock: @Sendable () -> Double = {
    var now = timespec()
    clock_gettime(CLOCK_MONOTONIC, &now)
    return Double(now.tv_sec) + Double(now.tv_nsec) / 1e9
  }
}
