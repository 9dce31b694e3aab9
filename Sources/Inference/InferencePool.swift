import Dispatch
import Synchronization

/// A fixed number of inferences on one compiled model, lent to whoever asks first.
///
/// Threads beyond that number wait their turn, first come, first served. No lock is held while an inference runs. One
/// that never returns costs its own caller and one place in the pool; those who wait are not held for ever, see
/// `stallLimit`.
public final class InferencePool: Sendable {
  public let model: Model
  /// Seconds after which a waiting caller gives up when in all that time no inference of this pool came to an end.
  public let stallLimit: Double

  private struct State {
    var idle: [InferRequest]
    var waiting: [Waiter] = []
    /// How many inferences came to an end so far: what tells a busy pool from a stuck one.
    var ended: UInt64 = 0
  }

  /// A caller's place in the queue.
  ///
  /// `@unchecked Sendable`: `request` is written before `ready` is signalled and read after it was waited for.
  private final class Waiter: @unchecked Sendable {
    let ready = DispatchSemaphore(value: 0)
    var request: InferRequest?
  }

  private let state: Mutex<State>

  /// Makes `model.requests` requests; throws `failed` when there is no memory for them.
  public init(_ model: Model, stallLimit: Double = 300) throws(InferenceError) {
    self.model = model
    self.stallLimit = stallLimit
    var requests: [InferRequest] = []
    for _ in 0..<model.requests { requests.append(try model.compiled.makeRequest()) }
    state = Mutex(State(idle: requests))
  }

  /// The model's raw output for one picture, before activation and normalisation; blocks until it is there.
  ///
  /// Throws `failed` when the inference fails, or when all of the pool's inferences hang.
  ///
  /// - Parameters:
  ///   - rgb: the picture at the input's size, interleaved, 8 bits.
  ///   - width, height: that size in pixels, `ModelRecipe.inputSize`; nil for the recipe's own.
  /// - Returns: the values of the recipe's output, in its own layout; `ModelRecipe.maskMaps(of:)` reads them.
  public func map(
    of rgb: UnsafeBufferPointer<UInt8>, width: Int? = nil, height: Int? = nil
  ) throws(InferenceError) -> [Float] {
    let recipe = model.recipe
    let (width, height) = (width ?? recipe.width, height ?? recipe.height)
    let isSize = recipe.sizeRule != nil || (width, height) == (recipe.width, recipe.height)
    guard isSize, width > 0, height > 0, rgb.count == width * height * 3 else {
      throw InferenceError(
        .failed,
        "model \(recipe.name) takes \(recipe.width)×\(recipe.height) pixels of RGB, "
          + "\(recipe.inputCount) bytes; \(rgb.count) came")
    }
    let request = try borrow()
    defer { giveBack(request) }
    return try request.run(rgb, width: width, height: height)
  }

  /// The model's raw output for one picture; the same as the other, on an array.
  public func map(of rgb: [UInt8], width: Int? = nil, height: Int? = nil) throws(InferenceError) -> [Float] {
    let result: Result<[Float], InferenceError> = rgb.withUnsafeBufferPointer { buffer in
      do throws(InferenceError) { return .success(try map(of: buffer, width: width, height: height)) } catch {
        return .failure(error)
      }
    }
    return try result.get()
  }

  private func borrow() throws(InferenceError) -> InferRequest {
    let waiter = Waiter()
    let (idle, ended) = state.withLock { state -> (InferRequest?, UInt64) in
      if let request = state.idle.popLast() { return (request, state.ended) }
      state.waiting.append(waiter)
      return (nil, state.ended)
    }
    if let idle { return idle }
    var seen = ended
    while true {
      _ = waiter.ready.wait(timeout: .now() + stallLimit)
      // Whether the wait ended in time does not matter: a request handed over is there either way.
      let (request, stalled) = state.withLock { state -> (InferRequest?, Bool) in
        if let request = waiter.request { return (request, false) }
        guard state.ended == seen else {
          seen = state.ended
          return (nil, false)
        }
        state.waiting.removeAll { $0 === waiter }
        return (nil, true)
      }
      if let request { return request }
      if stalled {
        throw InferenceError(
          .failed,
          "model \(model.recipe.name): none of \(model.requests) running inferences ended in \(stallLimit) seconds")
      }
    }
  }

  private func giveBack(_ request: InferRequest) {
    let next = state.withLock { state -> Waiter? in
      state.ended += 1
      guard !state.waiting.isEmpty else {
        state.idle.append(request)
        return nil
      }
      let next = state.waiting.removeFirst()
      next.request = request
      return next
    }
    next?.ready.signal()
  }
}
