import PipelineKit
import Synchronization

/// Something that a run asks a service once, whoever comes first; the others wait for the answer.
final class AskedOnce<Answer: Sendable>: Sendable {
  private enum State {
    case none, asking
    case known(Result<Answer, StageError>)
  }
  private let state = Mutex(State.none)

  /// The answer, or the error that it came to. An error of class `temporary` and a cancellation are this caller's alone:
  /// the next one asks again.
  func answer(
    in context: StageContext, _ ask: () throws(StageError) -> Answer
  ) throws(StageError) -> Answer {
    while true {
      let known: Result<Answer, StageError>?? = state.withLock { state in
        switch state {
        case .none:
          state = .asking
          return .some(nil)
        case .asking: return nil
        case .known(let result): return .some(result)
        }
      }
      switch known {
      case .some(.some(let result)): return try result.get()
      case .some(.none):
        let result: Result<Answer, StageError>
        do throws(StageError) { result = .success(try ask()) } catch { result = .failure(error) }
        var isLasting = true
        if case .failure(let error) = result, error.kind == .temporary || error.code == "cancelled" {
          isLasting = false
        }
        state.withLock { $0 = isLasting ? .known(result) : .none }
        return try result.get()
      case nil:
        guard !context.isCancelled else { throw StageError("cancelled", "the picture was given up") }
        context.pause(seconds: 0.02)
      }
    }
  }
}
