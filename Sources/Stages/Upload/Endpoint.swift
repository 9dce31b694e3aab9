import Glibc
import PipelineKit
import Transport

/// One call that a host offers, described: where it is, how it is made, what it carries, and what its answer says.
///
/// A host of one's own needs little more than a value of this: see "Another host" in README.
struct Endpoint<Answer: Sendable>: Sendable {
  /// As people call the host.
  let host: String
  let method: HTTPMethod
  let url: RequestURL
  var headers: [HeaderField]
  let body: RequestBody
  var authentication: Authentication?
  /// What may be done after a call that failed.
  let repeats: Repetition
  private let classify: Classifier
  private let read: @Sendable (Response) throws(TransportError) -> Answer

  /// - Parameters:
  ///   - base: the address that `path` lies below; its query stays.
  ///   - path: a template with `{name}` for each of `values`, such as `image/{id}`.
  ///   - values: percent-encoded here.
  ///   - repeats: nil for what the method allows.
  ///   - classify: what an answer means; nil for success.
  ///   - read: what a successful answer says. What it throws makes it one that cannot be read: of a call that creates
  ///     something nobody knows then what came of it.
  /// - Throws: `upload-address` for a value that cannot stand in a path.
  init(
    _ host: String, _ method: HTTPMethod = .post, at base: RequestURL, _ path: String = "",
    _ values: [String: String] = [:], headers: [HeaderField] = [], body: RequestBody = .none,
    authentication: Authentication? = nil, repeats: Repetition? = nil,
    classify: @escaping Classifier = StandardClassifier.classify,
    read: @escaping @Sendable (Response) throws(TransportError) -> Answer
  ) throws(StageError) {
    self.host = host
    self.method = method
    self.headers = headers
    self.body = body
    self.authentication = authentication
    self.repeats = repeats ?? (method.isIdempotent ? .always : .unlessArrived)
    self.classify = classify
    self.read = read
    guard !path.isEmpty else {
      url = base
      return
    }
    var filled: [String] = []
    for part in path.split(separator: "/", omittingEmptySubsequences: false) {
      var text = String(part)
      for (name, value) in values {
        text = text.replacing("{\(name)}", with: RequestURL.encoded(pathSegment: value))
      }
      guard text != ".", text != "..", !text.isEmpty, !text.contains("{") else {
        throw StageError("upload-address", "\"\(text)\" cannot stand in an address of \(host), made from \(path)")
      }
      filled.append(text)
    }
    do throws(TransportError) {
      url = try base.appending(path: filled.joined(separator: "/"))
    } catch { throw StageError("upload-address", "\(path) makes no address of \(host): \(error.message)") }
  }

  /// Whether twice is the same as once.
  var isRepeatable: Bool { if case .always = repeats { true } else { false } }

  /// Makes the call, again where that is harmless, until there is an answer that can be read.
  func call(_ caller: Caller, _ waiter: Waiter) throws(ServiceFailure) -> Answer {
    let response = try caller.call(
      { _ in request }, repeats: repeats, classify: { failure(of: $0) }, isCancelled: waiter.isCancelled,
      pause: waiter.pause)
    do throws(TransportError) { return try read(response) } catch { throw Self.unreadable(response, error) }
  }

  var request: Request {
    var request = Request(method, url, headers: headers, body: body)
    request.authentication = authentication
    // Large pictures on slow lines take their time; what stands still is given up all the same.
    request.timeouts.total = nil
    request.maxAnswerBytes = 16 << 20
    return request
  }

  /// What an answer means; nil for one that was a success and can be read.
  func failure(of response: Response) -> ServiceFailure? {
    if let failure = classify(response) { return failure }
    do throws(TransportError) {
      _ = try read(response)
      return nil
    } catch { return Self.unreadable(response, error) }
  }

  private static func unreadable(_ response: Response, _ error: TransportError) -> ServiceFailure {
    ServiceFailure(.unknown, "\(response.status): \(error.message)", status: response.status)
  }
}

extension PreparedUpload {
  /// A picture that one call sends, whose answer makes the receipt.
  init(
    _ encoded: Item.Encoded, target: String, _ caller: Caller, _ endpoint: Endpoint<UploadReceipt>
  ) {
    self.init(encoded: encoded, target: target, isRepeatable: endpoint.isRepeatable) { context throws(StageError) in
      do throws(ServiceFailure) {
        return .sent(try endpoint.call(caller, Waiter(context)))
      } catch { return try UploadResult(error, of: endpoint.host, isRepeatable: endpoint.isRepeatable) }
    }
  }
}

extension UploadResult {
  /// What came of an upload that failed: nobody knows, where it is not to be repeated and may have arrived.
  ///
  /// - Throws: the failure, where nothing has arrived or sending again does no harm.
  init(_ failure: ServiceFailure, of host: String, isRepeatable: Bool) throws(StageError) {
    guard failure.kind == .unknown, !isRepeatable else { throw StageError(failure, of: host) }
    self = .unknown(failure.message)
  }
}

extension Response {
  /// The body, read as JSON. Throws `failed`, which tells of a page where one came instead.
  func json() throws(TransportError) -> JSONAnswer {
    if let type = mediaType, type.contains("html") {
      throw TransportError(.failed, "a page came instead of an answer (\(type)): \(excerpt)")
    }
    return try JSONAnswer(body)
  }
}

extension JSONAnswer {
  /// The text at a pointer. Throws `failed` where there is none.
  func text(at pointer: String) throws(TransportError) -> String {
    guard let text = string(at: pointer), !text.isEmpty else {
      throw TransportError(.failed, "the answer has no text at \(pointer)")
    }
    return text
  }
}

/// Who waits for a call, and may give it up.
struct Waiter: Sendable {
  let isCancelled: @Sendable () -> Bool
  /// Waits so many seconds.
  let pause: @Sendable (Double) -> Void

  init(_ context: StageContext) {
    isCancelled = { context.isCancelled }
    pause = { context.pause(seconds: $0) }
  }

  private init(pause: @escaping @Sendable (Double) -> Void) {
    isCancelled = { false }
    self.pause = pause
  }

  /// A command that looks after receipts.
  static let command = Waiter { seconds in
    var rest = timespec(tv_sec: Int(seconds), tv_nsec: Int((seconds - seconds.rounded(.down)) * 1e9))
    nanosleep(&rest, nil)
  }
}
