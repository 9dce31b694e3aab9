import Glibc

/// How fast a run goes and when it will be over, from the items ended so far.
///
/// The rate is an exponentially weighted mean whose memory grows with the run (10 s, then three tenths of the time
/// gone), so it follows a change of pace and does not jump with each picture. The end is kept as a point in time and
/// moved only when the estimate has left it by a tenth of what remains, so that the remaining time counts down evenly.
struct RateEstimate: Sendable {
  private var last: Double = 0
  private var lastCount = 0
  private var weightedItems = 0.0
  private var weightedSeconds = 0.0
  private var shownEnd: Double?

  /// - Parameters:
  ///   - seconds: since the start of the run; never smaller than before.
  ///   - count: items worked on so far.
  ///   - remaining: items still to be worked on.
  mutating func update(at seconds: Double, count: Int, remaining: Int) {
    let step = seconds - last
    guard step > 0 else { return }
    let memory = max(10, seconds * 0.3)
    let decay = exp(-step / memory)
    weightedItems = weightedItems * decay + Double(count - lastCount)
    weightedSeconds = weightedSeconds * decay + step
    last = seconds
    lastCount = count
    guard let rate = perSecond else { return }
    let left = Double(remaining) / rate
    let end = seconds + left
    if let shown = shownEnd, abs(shown - end) <= max(1.5, left * 0.1), shown > seconds { return }
    shownEnd = end
  }

  /// Items a second; nil until two have ended and a second has gone by.
  var perSecond: Double? {
    guard lastCount >= 2, last >= 1, weightedItems > 0 else { return nil }
    return weightedItems / weightedSeconds
  }

  /// Seconds to the end; nil while nothing can be said.
  var secondsLeft: Double? { shownEnd.map { max(0, $0 - last) } }
}
