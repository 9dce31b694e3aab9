import Digest

/// Keeps results of costly stages between runs, by what they were made from.
public protocol ResultKeeper: Sendable {
  /// - Parameters:
  ///   - key: 32 bytes.
  ///   - paid: whether a service was paid for it; such results are kept apart, and for good.
  /// - Returns: nil where nothing is kept, or not whole any more.
  func result(for key: [UInt8], paid: Bool) -> [UInt8]?

  /// Keeps a result. One that was paid for is on disk when this returns.
  ///
  /// - Throws: only for `paid`: what keeps it from being stored.
  func keep(_ bytes: [UInt8], for key: [UInt8], paid: Bool) throws(StageError)
}

/// What a stage may find, and leave behind, for one item.
public struct KeptResults: Sendable {
  /// SHA-256 of all that the result follows from: the input's bytes, the chain up to and with this stage, the values of
  /// the item that it names, and the versions of what works on it.
  public let key: [UInt8]
  /// The same without the versions: a new version of a library alone is no reason to pay again.
  public let paidKey: [UInt8]
  private let keeper: any ResultKeeper
  private let isRefreshed: Bool
  private let isPaidRefreshed: Bool

  /// - Parameters:
  ///   - isRefreshed: whether what is kept is passed over, and replaced.
  ///   - isPaidRefreshed: the same of what was paid for.
  ///   - paidKey: where a result that was paid for is kept, whatever the chain does with it.
  ///   - key: where a result is kept; nil keeps none.
  ///   - keeper: what keeps them.
  public init(
    key: [UInt8], paidKey: [UInt8], keeper: any ResultKeeper, isRefreshed: Bool, isPaidRefreshed: Bool
  ) {
    self.key = key
    self.paidKey = paidKey
    self.keeper = keeper
    self.isRefreshed = isRefreshed
    self.isPaidRefreshed = isPaidRefreshed
  }

  /// What an earlier run, or this one, has kept.
  public func find(paid: Bool = false) -> [UInt8]? {
    (paid ? isPaidRefreshed : isRefreshed) ? nil : keeper.result(for: paid ? paidKey : key, paid: paid)
  }

  /// The same also where the job is to do it again: for what this very run has kept.
  func findWhateverIsForced(paid: Bool) -> [UInt8]? { keeper.result(for: paid ? paidKey : key, paid: paid) }

  /// For a part of the stage's work that also follows from something else, such as which of several services does it.
  ///
  /// - Parameter more: what else it follows from.
  public func narrowed(by more: [UInt8]) -> KeptResults {
    func narrowed(_ key: [UInt8]) -> [UInt8] {
      var hash = SHA256()
      hash.update(counted: key)
      hash.update(counted: more)
      return hash.finish()
    }
    return KeptResults(
      key: narrowed(key), paidKey: narrowed(paidKey), keeper: keeper, isRefreshed: isRefreshed,
      isPaidRefreshed: isPaidRefreshed)
  }

  /// Keeps a result; see `ResultKeeper.keep`.
  public func keep(_ bytes: [UInt8], paid: Bool = false) throws(StageError) {
    try keeper.keep(bytes, for: paid ? paidKey : key, paid: paid)
  }
}
