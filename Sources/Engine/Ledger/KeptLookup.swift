import PipelineKit

/// Where results of costly stages are found and left, without a ledger: children of a run have this much.
struct KeptLookup: Sendable {
  let fingerprint: ChainFingerprint
  let results: ResultStore
  /// The stages whose results are made again.
  let forced: Set<Int>
  /// Whether also those that were paid for.
  let forcesPaid: Bool

  func keptResults(of stage: Int, for item: Item) -> KeptResults? {
    guard let keys = fingerprint.keys(of: stage, item) else { return nil }
    return KeptResults(
      key: keys.key, paidKey: keys.paidKey, keeper: results, isRefreshed: forced.contains(stage),
      isPaidRefreshed: forcesPaid && forced.contains(stage))
  }
}
