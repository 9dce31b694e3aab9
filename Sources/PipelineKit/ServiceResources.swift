import Synchronization
import Transport

/// How a job reaches services.
public struct NetworkOptions: Sendable, Hashable {
  /// A file with the certificates of authorities to trust instead of the system's; absolute.
  public var caBundle: PathBytes?
  /// Instead of the environment's.
  public var proxy: String?
  /// Hosts that are reached without the proxy, with commas between them; instead of the environment's.
  public var noProxy: String?
  /// Exchanges of one stage that go on at once, where the stage does not say.
  public var requests = 8
  /// Seconds that a service may ask to wait; beyond, what is left is put off to the next run.
  public var maxWait = 120.0

  public init() {}
}

/// What stages of a run share to talk to services: connections, and the pace at each host.
public final class ServiceResources: Sendable {
  public let options: NetworkOptions
  public let client: Client
  private let pacers = Mutex<[String: Pacer]>([:])

  public init(_ options: NetworkOptions = NetworkOptions()) {
    self.options = options
    var client = ClientOptions.fromEnvironment()
    if let bundle = options.caBundle { client.caBundle = bundle.string ?? bundle.display }
    if let proxy = options.proxy { client.proxy = proxy }
    if let noProxy = options.noProxy { client.noProxy = noProxy }
    self.client = Client(client)
  }

  /// The pace of a service at one host; made by whoever asks first.
  ///
  /// - Parameters:
  ///   - name: host, and account where limits are the account's.
  ///   - perMinute: weight a minute; nil for no limit but what the service asks for.
  ///   - burst: how many may go at once after a pause.
  public func pacer(_ name: String, perMinute: Double? = nil, burst: Double? = nil) -> Pacer {
    pacers.withLock { pacers in
      if let known = pacers[name] { return known }
      let made = Pacer(perMinute: perMinute, burst: burst)
      pacers[name] = made
      return made
    }
  }

  /// What makes requests to a service and repeats them as it allows.
  public func caller(_ pacer: Pacer, _ policy: RetryPolicy = RetryPolicy()) -> Caller {
    var policy = policy
    policy.maxWait = options.maxWait
    return Caller(client: client, pacer: pacer, policy: policy)
  }
}
