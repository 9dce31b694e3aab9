import Digest
import Dispatch
import Inference
import Synchronization

/// The outputs of a run's models, by the bytes they were made from: several segment stages that see one picture run its
/// inference once.
///
/// Who asks for an output that is just being made waits for it. Outputs beyond `mostBytes` are forgotten, the longest
/// unused first.
final class ModelOutputs: Sendable {
  private struct Key: Hashable, Sendable {
    var model: String
    var width: Int
    /// SHA-256 of the model's input.
    var input: [UInt8]
  }

  /// Where those wait who want what another is making.
  private final class Making: Sendable {
    let ended = DispatchGroup()
    init() { ended.enter() }
  }

  private struct State {
    var outputs: [Key: [Float]] = [:]
    /// The longest unused first.
    var order: [Key] = []
    var bytes = 0
    var making: [Key: Making] = [:]
    var inferences = 0
  }

  private let mostBytes: Int
  private let state = Mutex(State())

  init(mostBytes: Int) { self.mostBytes = mostBytes }

  /// How many inferences were run so far.
  var inferences: Int { state.withLock { $0.inferences } }

  /// What a model gives for an input; throws what the inference throws.
  ///
  /// - Parameters:
  ///   - input: the picture at the model's size, interleaved RGB.
  ///   - width, height: that size in pixels.
  func output(of input: [UInt8], width: Int, height: Int, _ model: LoadedModel) throws(InferenceError) -> [Float] {
    let key = Key(model: model.identity, width: width, input: SHA256.digest(of: input))
    return try output(key, stallLimit: model.pool.stallLimit) { () throws(InferenceError) in
      try model.pool.map(of: input, width: width, height: height)
    }
  }

  private func output(
    _ key: Key, stallLimit: Double, make: () throws(InferenceError) -> [Float]
  ) throws(InferenceError) -> [Float] {
    enum Next {
      case known([Float])
      case wait(Making)
      case make(Making)
    }
    var mayWait = true
    while true {
      let next = state.withLock { state -> Next in
        if let output = state.outputs[key] {
          if let place = state.order.firstIndex(of: key) { state.order.append(state.order.remove(at: place)) }
          return .known(output)
        }
        if mayWait, let making = state.making[key] { return .wait(making) }
        let making = Making()
        state.making[key] = making
        state.inferences += 1
        return .make(making)
      }
      switch next {
      case .known(let output): return output
      case .wait(let making):
        // An inference that never returns must not hold up others for ever; nor is its failure theirs.
        mayWait = making.ended.wait(timeout: .now() + stallLimit) == .success
      case .make(let making):
        let output: [Float]
        do throws(InferenceError) { output = try make() } catch {
          finish(key, making, nil)
          throw error
        }
        finish(key, making, output)
        return output
      }
    }
  }

  private func finish(_ key: Key, _ making: Making, _ output: [Float]?) {
    state.withLock { state in
      if state.making[key] === making { state.making[key] = nil }
      guard let output, state.outputs[key] == nil else { return }
      let bytes = Self.bytes(output)
      guard bytes <= mostBytes else { return }
      state.outputs[key] = output
      state.order.append(key)
      state.bytes += bytes
      while state.bytes > mostBytes, let oldest = state.order.first {
        state.order.removeFirst()
        if let gone = state.outputs.removeValue(forKey: oldest) { state.bytes -= Self.bytes(gone) }
      }
    }
    making.ended.leave()
  }

  private static func bytes(_ output: [Float]) -> Int { output.count * MemoryLayout<Float>.stride }
}
