import Dispatch
import Synchronization
import TestSupport
import Testing

@testable import Inference

/// The pool on a fake runtime, whose model answers with the picture's first plane.
@Suite struct InferencePoolTests {
  private func picture(_ first: UInt8) -> [UInt8] { [first] + (1..<12).map { UInt8($0) } }

  @Test func `eight threads on two requests each get the answer to their own picture`() throws {
    let pool = try InferencePool(try FakeRuntime(FakeRuntime.complete).model(requests: 2))
    let wrong = Atomic<Int>(0)
    DispatchQueue.concurrentPerform(iterations: 8) { thread in
      for turn in 0..<500 {
        let first = UInt8((thread * 31 + turn) % 250)
        let answer = try? pool.map(of: picture(first))
        // The red plane of the four pixels.
        if answer != [Float(first), 3, 6, 9] { wrong.add(1, ordering: .relaxed) }
      }
    }
    #expect(wrong.load(ordering: .relaxed) == 0)
  }

  @Test func `a failed inference gives its request back`() throws {
    let pool = try InferencePool(try FakeRuntime(FakeRuntime.complete).model(requests: 1), stallLimit: 5)
    for _ in 0..<3 {
      let error = try #require(failure { () throws(InferenceError) in try pool.map(of: picture(254)) })
      #expect(error.code == .failed)
      #expect(error.message == "model tiny: the inference failed: the fake was told to fail")
    }
    #expect(try pool.map(of: picture(7)) == [7, 3, 6, 9])
  }

  @Test func `a picture of another size is refused`() throws {
    let pool = try InferencePool(try FakeRuntime(FakeRuntime.complete).model(requests: 1))
    let error = try #require(failure { () throws(InferenceError) in try pool.map(of: [1, 2, 3]) })
    #expect(error.code == .failed && error.message.contains("12 bytes; 3 came"))
  }

  @Test func `an inference that never returns costs one request, and when all hang the others are told`() throws {
    let pool = try InferencePool(try FakeRuntime(FakeRuntime.complete).model(requests: 2), stallLimit: 0.05)
    // These two threads never end; the process leaves them behind.
    hang(pool)
    for first in UInt8(0)..<20 { #expect(try pool.map(of: picture(first)) == [Float(first), 3, 6, 9]) }
    hang(pool)
    // The second hanging call may take its request before or after this one; a few turns settle it.
    var error: InferenceError?
    while error == nil { error = failure { () throws(InferenceError) in try pool.map(of: picture(1)) } }
    #expect(error?.code == .failed)
    #expect(error?.message.contains("none of 2 running inferences ended") == true)
  }

  private func hang(_ pool: InferencePool) {
    let hanging = picture(255)
    DispatchQueue(label: "hangs").async { _ = try? pool.map(of: hanging) }
  }
}
