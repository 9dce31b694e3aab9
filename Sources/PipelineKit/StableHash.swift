/// A hash of bytes that is the same in every process, on every machine and in every version of this program: what
/// shards are told apart by and what outlives a process is built on it. Swift's own `Hasher` differs from run to run.
///
/// FNV-1a with 64 bits (Fowler, Noll and Vo; draft-eastlake-fnv), then the 64-bit finaliser of MurmurHash3 (Appleby),
/// since the low bits of FNV alone are uneven for names that differ in a digit. Not for keeping out those who choose
/// their names with malice.
public struct StableHash: Sendable {
  /// What has been added so far; another value can go on from it.
  public private(set) var state: UInt64

  public init(state: UInt64 = 0xcbf2_9ce4_8422_2325) { self.state = state }

  public mutating func add(_ bytes: [UInt8]) {
    for byte in bytes { state = (state ^ UInt64(byte)) &* 0x100_0000_01b3 }
  }

  public var value: UInt64 {
    var mixed = state
    mixed = (mixed ^ (mixed >> 33)) &* 0xff51_afd7_ed55_8ccd
    mixed = (mixed ^ (mixed >> 33)) &* 0xc4ce_b9fe_1a85_ec53
    return mixed ^ (mixed >> 33)
  }
}

extension PathBytes {
  /// The path's hash, the same everywhere and always.
  public var stableHash: UInt64 {
    var hash = StableHash()
    hash.add(bytes)
    return hash.value
  }
}
