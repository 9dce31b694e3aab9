import Transport

extension StageError {
  /// What a failure of a service means for a picture.
  ///
  /// Codes: `service-credentials` (environment), `service-picture`, `service-too-large`, `service-request`,
  /// `service-missing` (item), `service-quota`, `service-wait` (budget: the rest is for the next run), `service-busy`,
  /// `service-failed` (temporary), `service-unknown` (temporary), `cancelled`.
  ///
  /// - Parameters:
  ///   - service: what people call it, such as `remove.bg`.
  ///   - failure: what the service answered, or why no answer came.
  public init(_ failure: ServiceFailure, of service: String) {
    let (code, kind): (String, ErrorClass) =
      switch failure.kind {
      case .credentials: ("service-credentials", .environment)
      case .badPicture: ("service-picture", .item)
      case .tooLarge: ("service-too-large", .item)
      case .request: ("service-request", .item)
      case .notFound: ("service-missing", .item)
      case .quota: ("service-quota", .budget)
      case .putOff: ("service-wait", .budget)
      case .rate: ("service-busy", .temporary)
      case .temporary: ("service-failed", .temporary)
      case .unknown: ("service-unknown", .temporary)
      case .cancelled: ("cancelled", .item)
      }
    self.init(code, "\(service): \(failure.told)", kind: kind)
  }

  /// A request that could not be made or sent at all.
  public init(_ error: TransportError, of service: String) {
    let kind: ErrorClass =
      switch error.code {
      case .address: .job
      case .cancelled, .tooLarge, .refused: .item
      default: .temporary
      }
    self.init(error.code == .cancelled ? "cancelled" : "service-failed", "\(service): \(error.message)", kind: kind)
  }
}

extension ServiceFailure {
  /// The message, with how often it was tried and how long the service asks to wait where that is too long.
  var told: String {
    var text = message
    if attempts > 1 { text += ", after \(attempts) attempts" }
    if kind == .putOff, let wait {
      text += "; it asks to wait \(Int(min(wait, 1e9).rounded(.up))) s, more than network.maxWait"
    }
    return text
  }
}

extension StageContext {
  /// Makes a request to a service and repeats it as far as that is harmless, waiting where the service asks to. Ends early
  /// when the item is given up.
  public func call(
    _ caller: Caller, weight: Double = 1, repeats: Repetition, classify: Classifier,
    _ request: (_ attempt: Int) throws(TransportError) -> Request
  ) throws(ServiceFailure) -> Response {
    try caller.call(
      request, weight: weight, repeats: repeats, classify: classify, isCancelled: { isCancelled },
      pause: { pause(seconds: $0) })
  }
}
