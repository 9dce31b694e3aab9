// Inferences a second through the pool, as one line of JSON: inference-bench MODEL PRECISION REQUESTS THREADS COUNT
//
// As many threads as requests each ask for their share of the maps, one after the other. Making the input from pixels
// and copying the output are part of it; reading and compiling the model are not.
import Dispatch
import Glibc
import Inference
import Synchronization

func fail(_ text: String) -> Never {
  var line = "inference-bench: \(text)\n"
  line.withUTF8 { _ = write(2, $0.baseAddress, $0.count) }
  exit(1)
}

let words = CommandLine.arguments
guard words.count == 6, let recipe = ModelCatalogue.named(words[1]), let precision = Precision(rawValue: words[2]),
  let requests = Int(words[3]), let threads = Int(words[4]), let count = Int(words[5]), requests > 0, threads > 0,
  count >= requests
else { fail("usage: inference-bench MODEL PRECISION REQUESTS THREADS COUNT") }

do {
  let clock = ContinuousClock()
  let begun = clock.now
  let pool = try InferencePool(try Model(recipe: recipe, precision: precision, requests: requests, threads: threads))
  let ready = begun.duration(to: clock.now)

  // Noise from a fixed seed (a 64-bit linear congruential generator), so that no shortcut for plain input can apply.
  var state: UInt64 = 1
  let picture = (0..<recipe.inputCount).map { _ in
    state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
    return UInt8(state >> 56)
  }
  // Once for each request, untimed: the first inference makes its buffers.
  let failures = Atomic<Int>(0)
  func run(_ total: Int) {
    DispatchQueue.concurrentPerform(iterations: requests) { thread in
      for _ in 0..<(total / requests + (thread < total % requests ? 1 : 0)) {
        if (try? pool.map(of: picture)) == nil { failures.add(1, ordering: .relaxed) }
      }
    }
  }
  run(requests)
  let started = clock.now
  run(count)
  let took = started.duration(to: clock.now)
  guard failures.load(ordering: .relaxed) == 0 else { fail("an inference failed") }
  let perSecond = Double(count) / (took / .seconds(1))
  print(
    "{\"perSecond\": \(perSecond), \"loadSeconds\": \(ready / .seconds(1)), "
      + "\"precision\": \"\(pool.model.precisionUsed)\", \"openvino\": \"\(pool.model.runtimeVersion)\"}")
} catch {
  fail("\(error)")
}
