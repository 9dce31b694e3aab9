/// What may be done after a call that failed.
public enum Repetition: Sendable {
  /// It may be repeated whatever happened: GET, HEAD, PUT, DELETE.
  case always
  /// It creates or charges. It is not repeated once its body may have arrived, unless the service has answered that it
  /// did nothing: after a lost connection, 502, 504 and an answer that cannot be read the outcome is `unknown`.
  case unlessArrived
}

/// How often, and after how long, a call is repeated. Seconds.
public struct RetryPolicy: Sendable, Hashable {
  /// Requests in all, the first included.
  public var attempts = 5
  /// The longest wait before the second request; it doubles with each one more.
  public var base = 0.5
  /// The longest wait that a doubling leads to.
  public var most = 30.0
  /// All waits of a call together.
  public var totalCap = 300.0
  /// The longest wait that a server may ask for; beyond it the call is put off.
  public var maxWait = 120.0

  public init() {}

  /// Seconds to wait after a failed request: by lot between nothing and what the doubling has come to ("full jitter"),
  /// so that those that failed together do not come back together; after the server's own wait where it gave one.
  ///
  /// - Parameter random: from 0 to 1.
  func wait(afterAttempt attempt: Int, asked: Double?, random: Double) -> Double {
    var longest = base
    for _ in 1..<max(1, attempt) where longest < most { longest *= 2 }
    let jitter = min(longest, most) * min(max(random, 0), 1)
    // A little past the moment the server named, which its own clock may see later.
    return asked.map { $0 + min(jitter, 1) } ?? jitter
  }
}

/// Calls a service: paced, repeated where that is right, and its answers understood.
public struct Caller: Sendable {
  public typealias Sender =
    @Sendable (_ request: Request, _ isCancelled: () -> Bool) throws(TransportError) -> Response

  private let send: Sender
  public let pacer: Pacer
  public let policy: RetryPolicy
  private let random: @Sendable () -> Double

  public init(
    client: Client, pacer: Pacer, policy: RetryPolicy = RetryPolicy(),
    random: @escaping @Sendable () -> Double = { Double.random(in: 0...1) }
  ) {
    self.init(
      send: { (request, isCancelled) throws(TransportError) in try client.send(request, isCancelled: isCancelled) },
      pacer: pacer, policy: policy, random: random)
  }

  /// - Parameter send: what sends a request instead of a client.
  public init(
    send: @escaping Sender, pacer: Pacer, policy: RetryPolicy = RetryPolicy(),
    random: @escaping @Sendable () -> Double = { Double.random(in: 0...1) }
  ) {
    self.send = send
    self.pacer = pacer
    self.policy = policy
    self.random = random
  }

  /// Sends a request, again where `repeats` and the failure allow it, until `classify` takes the answer for a success.
  ///
  /// Throws the failure of the last attempt; `unknown` and `putOff` as they say.
  ///
  /// - Parameters:
  ///   - request: makes the request of each attempt, counted from 1, as a signature may have to be new.
  ///   - weight: what a request takes of the pacer.
  ///   - pause: waits so many seconds; may come back early when cancelled.
  public func call(
    _ request: (_ attempt: Int) throws(TransportError) -> Request, weight: Double = 1, repeats: Repetition,
    classify: Classifier = StandardClassifier.classify, isCancelled: () -> Bool = { false },
    pause: (_ seconds: Double) -> Void
  ) throws(ServiceFailure) -> Response {
    var waited = 0.0
    var attempt = 0
    while true {
      try waitForTurn(weight, attempts: attempt, isCancelled, pause)
      attempt += 1
      var failure: ServiceFailure
      do throws(TransportError) {
        let response = try send(try request(attempt), isCancelled)
        guard let found = classify(response) else { return response }
        failure = meaning(of: found, response, repeats)
      } catch {
        failure = meaning(of: error, repeats)
      }
      failure.attempts = attempt
      if let asked = failure.wait, [.rate, .temporary].contains(failure.kind) {
        // Everyone who would go to that server now would be told the same.
        pacer.pause(for: asked)
        guard asked <= policy.maxWait else {
          failure.kind = .putOff
          throw failure
        }
      }
      guard failure.isWorthRepeating(repeats), attempt < policy.attempts else { throw failure }
      let wait = policy.wait(afterAttempt: attempt, asked: failure.wait, random: random())
      guard waited + wait <= policy.totalCap else { throw failure }
      waited += wait
      pause(wait)
      if isCancelled() { throw Self.cancelled(attempts: attempt) }
    }
  }

  private func waitForTurn(
    _ weight: Double, attempts: Int, _ isCancelled: () -> Bool, _ pause: (Double) -> Void
  ) throws(ServiceFailure) {
    if isCancelled() { throw Self.cancelled(attempts: attempts) }
    try checkPause(attempts: attempts)
    var wait = pacer.reserve(weight)
    while wait > 0 {
      pause(wait)
      if isCancelled() { throw Self.cancelled(attempts: attempts) }
      // Another call may have been told to wait meanwhile.
      try checkPause(attempts: attempts)
      wait = pacer.pauseLeft
    }
  }

  private func checkPause(attempts: Int) throws(ServiceFailure) {
    let left = pacer.pauseLeft
    guard left > policy.maxWait else { return }
    throw ServiceFailure(
      .putOff, "the service has asked to wait for \(Int(left.rounded(.up).clamped(to: 0...1e15))) seconds",
      attempts: attempts, wait: left)
  }

  private func meaning(of failure: ServiceFailure, _ response: Response, _ repeats: Repetition) -> ServiceFailure {
    var failure = failure
    if failure.status == nil { failure.status = response.status }
    if case .unlessArrived = repeats {
      switch (response.status, failure.kind) {
      // A gateway speaks for a server that it has lost; 303 tells where the result of what was done is.
      case (502, .temporary), (504, .temporary), (303, .request): failure.kind = .unknown
      // What gateways answer besides, such as 520 to 524: the server behind them may have done it.
      case (509...510, _), (512...599, _): failure.kind = .unknown
      default: break
      }
    }
    return failure
  }

  private func meaning(of error: TransportError, _ repeats: Repetition) -> ServiceFailure {
    if case .unlessArrived = repeats, error.bodyMayHaveArrived {
      return ServiceFailure(
        .unknown, "\(error.message); the request may have arrived", status: error.status)
    }
    let kind: FailureKind =
      switch error.code {
      case .unreachable, .interrupted, .stalled: .temporary
      case .cancelled: .cancelled
      case .address, .refused, .tls, .tooLarge, .status, .failed: .request
      }
    return ServiceFailure(kind, error.message, status: error.status)
  }

  private static func cancelled(attempts: Int) -> ServiceFailure {
    ServiceFailure(.cancelled, "cancelled", attempts: attempts)
  }
}

extension ServiceFailure {
  fileprivate func isWorthRepeating(_ repeats: Repetition) -> Bool {
    switch kind {
    case .rate, .temporary: true
    // An answer that cannot be read says nothing; where asking again does no harm, it is asked again.
    case .unknown: if case .always = repeats { true } else { false }
    default: false
    }
  }
}

extension Double {
  fileprivate func clamped(to range: ClosedRange<Double>) -> Double {
    isNaN ? range.lowerBound : Swift.min(Swift.max(self, range.lowerBound), range.upperBound)
  }
}
