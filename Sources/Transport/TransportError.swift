/// Why a request came to nothing.
public struct TransportError: Error, Sendable, Hashable, CustomStringConvertible {
  public enum Code: String, Sendable {
    /// The address is none, or one that must not be fetched from.
    case address
    /// The server could not be reached.
    case unreachable
    /// It was reached, and the connection broke or stalled.
    case interrupted
    /// It answered with a status that is no success.
    case status
    /// Anything else.
    case failed
  }

  public let code: Code
  public let message: String
  /// The answer's status, where there was one.
  public let status: Int?

  public init(_ code: Code, _ message: String, status: Int? = nil) {
    self.code = code
    self.message = message
    self.status = status
  }

  public var description: String { message }
}
