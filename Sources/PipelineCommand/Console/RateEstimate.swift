import Glibc

/// How fast a run goes, from the items ended so far.
///
/// The rate is an exponentially weighted mean whose memory grows with the run (10 s, then three tenths of the time
/// gone), so it follows a change of pace and does not jump with each picture.
struct RateEstimate: Sendable {
  private var last: Double = 0
  private var lastCount = 0
  private var weightedItems = 0.0
  private var weightedSeconds = 0.0

  /// - Parameters:
  ///   - seconds: since the start of the run; never smaller than before.
  ///   - count: items worked on so far.
  mutating func update(at seconds: Double, count: Int) {
    let step = seconds - last
    guard step > 0 else { return }
    let memory = max(10, seconds * 0.3)
    let decay = exp(-step / memory)
    weightedItems = weightedItems * decay + Double(count - lastCount)
    weightedSeconds = weightedSeconds * decay + step
    last = seconds
    lastCount = count
  }

  /// Items a second; nil until two have ended and a second has gone by.
  var perSecond: Double? {
    guard lastCount >= 2, last >= 1, weightedItems > 0 else { return nil }
    return weightedItems / weightedSeconds
  }
}
