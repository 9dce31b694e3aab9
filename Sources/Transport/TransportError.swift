/// Why a request came to nothing.
public struct TransportError: Error, Sendable, Hashable, CustomStringConvertible {
  public enum Code: String, Sendable {
    /// The address is none, or one that must not be asked.
    case address
    /// The address lies where the request must not go: a private network, or behind a redirect that is not followed.
    case refused
    /// The server could not be reached; nothing was sent.
    case unreachable
    /// It was reached, and the connection broke.
    case interrupted
    /// Nothing moved for too long, or the whole took too long.
    case stalled
    /// The server's certificate is not trusted, or there is something wrong with our own.
    case tls
    /// Whoever asked has changed their mind.
    case cancelled
    /// The answer is longer than was allowed.
    case tooLarge
    /// It answered with a status that is no success.
    case status
    /// Anything else.
    case failed
  }

  public let code: Code
  /// Without registered secrets.
  public let message: String
  /// The answer's status, where there was one.
  public let status: Int?
  /// Whether the server may have got the whole request: what it did then is not known.
  public let bodyMayHaveArrived: Bool

  public init(_ code: Code, _ message: String, status: Int? = nil, bodyMayHaveArrived: Bool = false) {
    self.code = code
    self.message = Secrets.redacted(message)
    self.status = status
    self.bodyMayHaveArrived = bodyMayHaveArrived
  }

  public var description: String { message }
}
