import PipelineKit
import Synchronization
import Transport

/// What Imgur knows a client by. A token that is refused is renewed once.
final class ImgurAccess: Sendable {
  struct Renewal: Sendable {
    let url: RequestURL
    let clientID: String
    let clientSecret: String
    let refreshToken: String
  }

  private enum Stage { case fresh, renewing, renewed, failed }
  private struct State {
    var header: HeaderField
    var stage = Stage.fresh
  }

  /// Whether there is no account behind it.
  let isAnonymous: Bool
  private let renewal: Renewal?
  private let state: Mutex<State>

  init(clientID: String) {
    isAnonymous = true
    renewal = nil
    state = Mutex(State(header: HeaderField("Authorization", "Client-ID \(clientID)", isCredential: true)))
  }

  init(bearer token: String, _ renewal: Renewal?) {
    isAnonymous = false
    self.renewal = renewal
    state = Mutex(State(header: Self.bearer(token)))
  }

  private static func bearer(_ token: String) -> HeaderField {
    HeaderField("Authorization", "Bearer \(token)", isCredential: true)
  }

  /// Makes a call; once more with a new token, where the old one is refused and can be renewed.
  func call<Answer: Sendable>(
    _ caller: Caller, _ waiter: Waiter, _ endpoint: (HeaderField) throws(StageError) -> Endpoint<Answer>
  ) throws(ServiceFailure) -> Answer {
    func attempt(_ header: HeaderField) throws(ServiceFailure) -> Answer {
      let described: Endpoint<Answer>
      do throws(StageError) {
        described = try endpoint(header)
      } catch { throw ServiceFailure(.request, error.message) }
      return try described.call(caller, waiter)
    }
    let used = state.withLock { $0.header }
    do throws(ServiceFailure) { return try attempt(used) } catch {
      guard error.kind == .credentials, let renewal, try renew(used, renewal, caller, waiter) else { throw error }
    }
    return try attempt(state.withLock { $0.header })
  }

  /// Whether there is another header than the one that was refused.
  private func renew(
    _ refused: HeaderField, _ renewal: Renewal, _ caller: Caller, _ waiter: Waiter
  ) throws(ServiceFailure) -> Bool {
    while true {
      let isMine = state.withLock { state -> Bool? in
        switch state.stage {
        case .fresh:
          state.stage = .renewing
          return true
        case .renewing: return nil
        case .renewed, .failed: return false
        }
      }
      if isMine == false { return state.withLock { $0.header != refused } }
      guard isMine == true else {
        // Another picture's call is at it.
        if waiter.isCancelled() { throw ServiceFailure(.cancelled, "cancelled") }
        waiter.pause(0.05)
        continue
      }
      do throws(ServiceFailure) {
        let token = try Self.token(renewal, caller, waiter)
        state.withLock { state in
          state.header = Self.bearer(token)
          state.stage = .renewed
        }
        return true
      } catch {
        // What was given up was not refused: whoever comes next may try.
        let isOver = error.kind != .cancelled && error.kind != .putOff
        state.withLock { $0.stage = isOver ? .failed : .fresh }
        var failure = error
        failure.message = "the token was refused, and cannot be renewed: \(error.message)"
        if isOver, error.kind == .request { failure.kind = .credentials }
        throw failure
      }
    }
  }

  private static func token(
    _ renewal: Renewal, _ caller: Caller, _ waiter: Waiter
  ) throws(ServiceFailure) -> String {
    let endpoint: Endpoint<String>
    do throws(StageError) {
      endpoint = try Endpoint<String>(
        ImgurUpload.service, .post, at: renewal.url,
        body: .form([
          ("refresh_token", Payload(renewal.refreshToken)), ("client_id", Payload(renewal.clientID)),
          ("client_secret", Payload(renewal.clientSecret)), ("grant_type", Payload("refresh_token")),
        ]),
        // Asking twice gives two tokens, of which one is used.
        repeats: .always, classify: { ImgurAnswers.failure(of: $0, now: RetryAfter.wallClock()) }
      ) { response throws(TransportError) in
        // Its answer is the one that has no "success".
        let token = try response.json().text(at: "/access_token")
        Secrets.register(token)
        return token
      }
    } catch { throw ServiceFailure(.request, error.message) }
    return try endpoint.call(caller, waiter)
  }
}
