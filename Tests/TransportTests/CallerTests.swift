import Synchronization
import Testing
import Transport

/// Calls with a clock of our own: nothing here waits.
@Suite struct CallerTests {
  /// What the next requests come to, and what was done with them.
  private final class Script: Sendable {
    struct State {
      var results: [Result<Response, TransportError>]
      var sent = 0
      var now = 0.0
      var pauses: [Double] = []
    }
    let state: Mutex<State>
    init(_ results: [Result<Response, TransportError>]) { state = Mutex(State(results: results)) }
    var sent: Int { state.withLock { $0.sent } }
    var pauses: [Double] { state.withLock { $0.pauses } }
    func pause(_ seconds: Double) {
      state.withLock {
        $0.now += seconds
        $0.pauses.append(seconds)
      }
    }
    func send() throws(TransportError) -> Response {
      try state.withLock { state in
        state.sent += 1
        return state.results.count > 1 ? state.results.removeFirst() : state.results[0]
      }.get()
    }
  }

  private static func answer(_ status: Int, _ headers: [(String, String)] = [], _ body: String = "") throws
    -> Result<Response, TransportError>
  {
    .success(
      Response(
        status: status, headers: Headers(headers), body: Array(body.utf8), url: try RequestURL("http://a.example/")))
  }

  private func call(
    _ script: Script, _ repeats: Repetition, policy: RetryPolicy = RetryPolicy(), perMinute: Double? = nil,
    random: Double = 1, isCancelled: @escaping () -> Bool = { false },
    classify: @escaping Classifier = StandardClassifier.classify
  ) -> Result<Response, ServiceFailure> {
    let pacer = Pacer(perMinute: perMinute, now: { script.state.withLock { $0.now } })
    let caller = Caller(
      send: { (_, _) throws(TransportError) in try script.send() }, pacer: pacer, policy: policy, random: { random })
    do throws(ServiceFailure) {
      return .success(
        try caller.call(
          { (_) throws(TransportError) in Request(.get, try RequestURL("http://a.example/")) }, repeats: repeats,
          classify: classify, isCancelled: isCancelled, pause: script.pause))
    } catch { return .failure(error) }
  }

  private func failure(_ result: Result<Response, ServiceFailure>) throws -> ServiceFailure {
    guard case .failure(let failure) = result else {
      throw TransportError(.failed, "it succeeded")
    }
    return failure
  }

  // MARK: What answers mean

  @Test(
    arguments: [
      (200, nil), (201, nil), (202, nil), (204, nil), (408, .temporary), (425, .temporary), (429, .rate),
      (500, .temporary), (502, .temporary), (503, .temporary), (504, .temporary), (400, .request), (401, .credentials),
      (402, .quota), (403, .credentials), (404, .notFound), (405, .request), (409, .request), (410, .notFound),
      (412, .request), (413, .tooLarge), (415, .badPicture), (422, .request), (501, .request), (505, .request),
      (507, .quota), (301, .request), (302, .request), (307, .request), (308, .request),
    ] as [(Int, FailureKind?)])
  func `each status has its meaning`(status: Int, kind: FailureKind?) throws {
    let script = Script([try Self.answer(status)])
    let isRetried = [.rate, .temporary].contains(kind)
    switch call(script, .always) {
    case .success: #expect(kind == nil && script.sent == 1)
    case .failure(let failure):
      #expect(failure.kind == kind && failure.status == status && failure.message.hasPrefix("\(status): "))
      #expect(script.sent == (isRetried ? 5 : 1) && failure.attempts == script.sent)
    }
  }

  @Test func `a redirect names where it leads, without its query`() throws {
    let script = Script([try Self.answer(301, [("Location", "/b?sig=1")])])
    let failure = try failure(call(script, .always))
    #expect(failure.message == "301: it sends on to http://a.example/b?…, which is not followed here")
  }

  @Test func `the service's words and code stand in the message`() throws {
    let script = Script([
      try Self.answer(403, [("Content-Type", "application/json")], #"{"errors":[{"title":"No key","code":"auth"}]}"#)
    ])
    #expect(try failure(call(script, .always)).message == "403: No key (auth)")
  }

  // MARK: Repeating

  @Test(arguments: [
    (TransportError(.unreachable, "x"), FailureKind.temporary, 5), (TransportError(.interrupted, "x"), .temporary, 5),
    (TransportError(.stalled, "x"), .temporary, 5), (TransportError(.tls, "x"), .request, 1),
    (TransportError(.refused, "x"), .request, 1), (TransportError(.cancelled, "x"), .cancelled, 1),
    (TransportError(.tooLarge, "x"), .request, 1), (TransportError(.address, "x"), .request, 1),
    (TransportError(.failed, "x"), .request, 1),
  ])
  func `lost connections are tried again, what cannot be helped is not`(
    error: TransportError, kind: FailureKind, sent: Int
  ) throws {
    for repeats: Repetition in [.always, .unlessArrived] {
      let script = Script([.failure(error)])
      let failure = try failure(call(script, repeats))
      #expect(failure.kind == kind && script.sent == sent && failure.attempts == sent)
    }
  }

  @Test(arguments: [TransportError.Code.interrupted, .stalled, .cancelled, .tooLarge, .failed])
  func `what creates is not repeated once it may have arrived`(code: TransportError.Code) throws {
    let error = TransportError(code, "x", bodyMayHaveArrived: true)
    let script = Script([.failure(error)])
    let failure = try failure(call(script, .unlessArrived))
    #expect(failure.kind == .unknown && script.sent == 1 && failure.message == "x; the request may have arrived")
    // What may be repeated is.
    let other = Script([.failure(error), try Self.answer(200)])
    if [.interrupted, .stalled].contains(code) {
      #expect(throws: Never.self) { try call(other, .always).get() }
      #expect(other.sent == 2)
    }
  }

  @Test(arguments: [
    (429, FailureKind.rate, 5), (500, .temporary, 5), (503, .temporary, 5), (408, .temporary, 5), (502, .unknown, 1),
    (504, .unknown, 1), (303, .unknown, 1), (302, .request, 1), (400, .request, 1),
  ])
  func `what creates is repeated only where the service says it did nothing`(
    status: Int, kind: FailureKind, sent: Int
  ) throws {
    let script = Script([try Self.answer(status)])
    let failure = try failure(call(script, .unlessArrived))
    #expect(failure.kind == kind && script.sent == sent)
  }

  @Test func `an answer that cannot be read is asked for again only where that is harmless`() throws {
    let classify: Classifier = { $0.body.isEmpty ? ServiceFailure(.unknown, "it is no picture") : nil }
    let once = Script([try Self.answer(200), try Self.answer(200, [], "x")])
    #expect(try failure(call(once, .unlessArrived, classify: classify)).kind == .unknown)
    #expect(once.sent == 1)
    let twice = Script([try Self.answer(200), try Self.answer(200, [], "x")])
    #expect(throws: Never.self) { try call(twice, .always, classify: classify).get() }
    #expect(twice.sent == 2)
  }

  // MARK: Waiting

  @Test func `waits double up to a bound, with jitter from nothing to all of it`() throws {
    var policy = RetryPolicy()
    policy.attempts = 9
    let full = Script([try Self.answer(503)])
    _ = call(full, .always, policy: policy)
    #expect(full.pauses == [0.5, 1, 2, 4, 8, 16, 30, 30])
    let half = Script([try Self.answer(503)])
    _ = call(half, .always, random: 0.5)
    #expect(half.pauses == [0.25, 0.5, 1, 2])
    policy.totalCap = 10
    let capped = Script([try Self.answer(503)])
    #expect(try failure(call(capped, .always, policy: policy)).attempts == 5)
    #expect(capped.pauses == [0.5, 1, 2, 4])
  }

  @Test func `the server's wait is honoured, and one too long puts it off`() throws {
    let script = Script([try Self.answer(429, [("Retry-After", "7")]), try Self.answer(200)])
    #expect(throws: Never.self) { try call(script, .unlessArrived, random: 0).get() }
    #expect(script.pauses == [7])
    let long = Script([try Self.answer(503, [("Retry-After", "121")]), try Self.answer(200)])
    let failure = try failure(call(long, .always))
    #expect(failure.kind == .putOff && failure.wait == 121 && long.sent == 1 && long.pauses.isEmpty)
  }

  @Test func `everyone who shares the pacer waits, and is put off, with the one who was told`() throws {
    let clock = Mutex(0.0)
    let pacer = Pacer(perMinute: nil, now: { clock.withLock { $0 } })
    let ok = try Self.answer(200)
    let caller = Caller(send: { (_, _) throws(TransportError) in try ok.get() }, pacer: pacer)
    let request: (Int) throws(TransportError) -> Request = { (_) throws(TransportError) in
      Request(.get, try RequestURL("http://a.example/"))
    }
    pacer.pause(for: 60)
    var pauses: [Double] = []
    _ = try caller.call(request, repeats: .always) { seconds in
      pauses.append(seconds)
      // Another call is told to wait longer, once.
      if pauses.count == 1 { pacer.pause(for: 70) }
      clock.withLock { $0 += seconds }
    }
    #expect(pauses == [60, 10])
    pacer.pause(for: 500)
    #expect { try caller.call(request, repeats: .always, pause: { _ in }) } throws: { error in
      (error as? ServiceFailure)?.kind == .putOff && (error as? ServiceFailure)?.attempts == 0
    }
  }

  @Test func `cancelling ends a wait, and nothing more is sent`() throws {
    let script = Script([try Self.answer(503)])
    let failure = try failure(call(script, .always, isCancelled: { !script.pauses.isEmpty }))
    #expect(failure.kind == .cancelled && script.sent == 1)
  }

  @Test func `a bucket lets a burst through and spaces the rest by weight`() {
    let clock = Mutex(0.0)
    let pacer = Pacer(perMinute: 60, burst: 2, now: { clock.withLock { $0 } })
    #expect([pacer.reserve(), pacer.reserve(), pacer.reserve(), pacer.reserve(3)] == [0, 0, 1, 4])
    clock.withLock { $0 = 4 }
    #expect([pacer.reserve(), pacer.reserve(0.5)] == [1, 1.5])
    // A long rest fills it up, no further.
    clock.withLock { $0 = 1000 }
    #expect([pacer.reserve(2), pacer.reserve()] == [0, 1])
    let free = Pacer(perMinute: nil, now: { 0 })
    #expect((0..<1000).allSatisfy { _ in free.reserve(100) == 0 })
    free.pause(for: 5)
    free.pause(for: 3)
    #expect(free.reserve() == 5 && free.pauseLeft == 5)
  }

  // MARK: What the server asks for

  /// 1994-11-06 08:49:37 UTC is 784,111,777 (`date -d @784111777`).
  @Test(
    arguments: [
      ([("Retry-After", "120")], 120.0), ([("retry-after", " 0 ")], 0), ([("Retry-After", "1.5")], 1.5),
      ([("Retry-After", "-5")], 0), ([("Retry-After", "soon")], nil), ([("Retry-After", "")], nil), ([], nil),
      ([("Retry-After", "Sun, 06 Nov 1994 08:49:47 GMT")], 10),
      ([("Retry-After", "Sunday, 06-Nov-94 08:49:47 GMT")], 10),
      ([("Retry-After", "Sun Nov  6 08:49:47 1994")], 10), ([("Retry-After", "Sun, 06 Nov 1994 08:49:07 GMT")], 0),
      ([("Retry-After", "Sun, 06 Nov 1994 08:49:47 GMT"), ("Date", "Sun, 06 Nov 1994 08:49:40 GMT")], 7),
      ([("Retry-After", "Sun, 06 Foo 1994 08:49:47 GMT")], nil),
      ([("Retry-After", "Sun, 06 Nov 1994 25:49:47 GMT")], nil),
      ([("X-RateLimit-Reset", "30")], 30), ([("X-RateLimit-Reset", "784111807000")], 30),
      ([("RateLimit-Reset", "12"), ("X-RateLimit-Reset", "30")], 12),
      ([("X-RateLimit-Reset", "Sun, 06 Nov 1994 08:50:37 GMT")], 60),
      ([("Retry-After", "5"), ("X-RateLimit-Reset", "30")], 5),
      ([("Retry-After", "x"), ("X-RateLimit-Reset", "30")], 30),
      ([("Retry-After-Ms", "1500")], 1.5), ([("x-ms-retry-after-ms", "250"), ("Retry-After", "9")], 0.25),
      ([("Retry-After", "1e3")], nil),
    ] as [([(String, String)], Double?)])
  func `every form of a wait is understood`(headers: [(String, String)], expected: Double?) {
    #expect(RetryAfter.seconds(of: Headers(headers), now: 784_111_777) == expected)
  }

  @Test func `moments since 1970 and seconds are told apart`() {
    let now = 1_700_000_000.0
    #expect(RetryAfter.seconds(ofReset: "1700000030", now: now) == 30)
    #expect(RetryAfter.seconds(ofReset: "1700000030000", now: now) == 30)
    #expect(RetryAfter.seconds(ofReset: "1699999999", now: now) == 0)
    #expect(RetryAfter.seconds(ofReset: "3600", now: now) == 3600)
    #expect(RetryAfter.seconds(ofReset: "0", now: now) == 0)
    #expect(RetryAfter.seconds(ofReset: "later", now: now) == nil)
    #expect(RetryAfter.seconds(of: Headers([("Retry-After", "1700000030")]), now: now) == 30)
    #expect(RetryAfter.time(ofDate: "Thu, 01 Jan 1970 00:00:00 GMT") == 0)
    #expect(RetryAfter.time(ofDate: "Thu, 29 Feb 2024 12:00:00 GMT") == 1_709_208_000)
    #expect(RetryAfter.time(ofDate: "Wednesday, 31-Dec-25 23:59:59 GMT") == 1_767_225_599)
  }
}
