/// A call that costs and of which nobody knows how it ended.
public struct UnsettledCall: Sendable {
  public var number: Int64
  public var call: PaidCall

  public var identifier: String { Self.identifier(of: number) }

  static func identifier(of number: Int64) -> String { "call-\(number)" }

  /// The number in an identifier; nil for the identifier of something else.
  public static func number(in identifier: String) -> Int64? {
    identifier.hasPrefix("call-") ? Int64(identifier.dropFirst(5)) : nil
  }
}

/// A call that was made before, or is being made.
struct PastCall: Sendable {
  enum Outcome: String, Sendable {
    case open, charged, free, unknown
    /// It was unknown, and a person has said that it is to be made again.
    case retried
  }
  var number: Int64
  var run: String
  var outcome: Outcome
}
