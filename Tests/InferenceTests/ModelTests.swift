import Dispatch
import Glibc
import Imaging
import Synchronization
import TestSupport
import Testing

@testable import Inference

/// The real runtime with the real u2netp, where `make test` has installed them.
private let home = PipelineHome.current
private let hasRuntime = (try? home.locateRuntime()) != nil
private let u2netp = ModelCatalogue.named("u2netp")
private let hasModel = hasRuntime && u2netp.flatMap { try? ModelCatalogue.locate($0, home: home) } != nil
private let data = getenv("PIPELINE_TEST_DATA").map { String(cString: $0) } ?? "../shared/data"
private let deepLab = data + "/models/deeplabv3_257_mv_gpu.tflite"
private let photo = data + "/matte/pets/Abyssinian_119.jpg"

@Suite struct ModelTests {
  /// A lit ball on a dim floor, in whole numbers so that it can be made alike elsewhere.
  private func ball() -> [UInt8] {
    var rgb: [UInt8] = []
    for y in 0..<320 {
      for x in 0..<320 {
        let distance = (x - 150) * (x - 150) + (y - 170) * (y - 170)
        for (channel, (base, lit)) in [(40, 230), (50, 120), (60, 60)].enumerated() {
          rgb.append(UInt8(distance < 6400 ? lit - lit * distance / 12800 : base + y / 8 + channel * 3))
        }
      }
    }
    return rgb
  }

  /// Means of blocks of 20 × 20 of the normalised map, × 255: ONNX Runtime 1.32 on the same picture and file, with
  /// rembg's recipe in NumPy. Rows and columns not listed are 0.
  private let reference: [(row: Int, column: Int, values: [Float])] = [
    (4, 5, [9, 86, 118, 91, 13]),
    (5, 4, [49, 224, 255, 255, 255, 231, 57]),
    (6, 3, [9, 224, 255, 255, 255, 255, 255, 231, 14]),
    (7, 3, [84, 255, 255, 255, 255, 255, 255, 255, 100]),
    (8, 3, [118, 255, 255, 255, 255, 255, 255, 255, 131]),
    (9, 3, [91, 255, 255, 255, 255, 255, 255, 255, 102]),
    (10, 3, [12, 230, 255, 255, 255, 255, 255, 236, 17]),
    (11, 4, [55, 232, 255, 255, 255, 236, 64]),
    (12, 5, [15, 98, 129, 101, 17]),
  ]

  @Test(.enabled(if: hasModel, "needs the OpenVINO runtime and u2netp: make provision"))
  func `the map is the one that ONNX Runtime gives`() throws {
    let recipe = try #require(u2netp)
    let model = try Model(recipe: recipe, requests: 1, threads: 2)
    #expect(model.precisionUsed == "f32")
    #expect(model.verified)
    #expect(model.runtimeVersion.hasPrefix("2026."))
    #expect(model.sha256 == recipe.sha256)
    let map = try recipe.maskMap(of: try InferencePool(model).map(of: ball()))
    guard case .map(let values, let peak) = map else {
      Issue.record("nothing found in \(map)")
      return
    }
    #expect(peak > 0.999)
    var wanted = [Float](repeating: 0, count: 256)
    for line in reference {
      for (offset, value) in line.values.enumerated() { wanted[line.row * 16 + line.column + offset] = value }
    }
    for block in 0..<256 {
      var sum: Float = 0
      for y in 0..<20 {
        for x in 0..<20 { sum += values[(block / 16 * 20 + y) * 320 + block % 16 * 20 + x] }
      }
      // One level: the reference is rounded.
      #expect(abs(sum / 400 * 255 - wanted[block]) < 1, "row \(block / 16), column \(block % 16)")
    }
  }

  @Test(.enabled(if: hasModel, "needs the OpenVINO runtime and u2netp: make provision"))
  func `plain pictures have no subject`() throws {
    let recipe = try #require(u2netp)
    let pool = try InferencePool(try Model(recipe: recipe, requests: 1, threads: 2))
    for level in [UInt8(0), 255] {
      let output = try pool.map(of: [UInt8](repeating: level, count: recipe.inputCount))
      guard case .nothingFound(let peak) = try recipe.maskMap(of: output) else {
        Issue.record("a subject in a plain picture of \(level)")
        continue
      }
      #expect(peak < 0.1)
    }
  }

  @Test(.enabled(if: hasModel, "needs the OpenVINO runtime and u2netp: make provision"))
  func `threads on two requests get what one thread gets`() throws {
    let recipe = try #require(u2netp)
    let pool = try InferencePool(try Model(recipe: recipe, requests: 2, threads: 2))
    let pictures = [ball(), ball().reversed(), [UInt8](repeating: 90, count: recipe.inputCount)]
    let alone = try pictures.map { try pool.map(of: $0) }
    #expect(alone[0] != alone[1])
    let wrong = Atomic<Int>(0)
    DispatchQueue.concurrentPerform(iterations: 4) { thread in
      let answer = try? pool.map(of: pictures[thread % 3])
      if answer != alone[thread % 3] { wrong.add(1, ordering: .relaxed) }
    }
    #expect(wrong.load(ordering: .relaxed) == 0)
  }

  @Test(.enabled(if: hasRuntime, "needs the OpenVINO runtime: make provision"))
  func `a file that is no model says which`() throws {
    let folder = TemporaryFolder()
    let file = folder.write("this is no model", to: "broken.onnx")
    let error = try #require(
      failure { () throws(InferenceError) in
        try Model(recipe: FakeRuntime.recipe, file: file, requests: 1, threads: 1)
      })
    #expect(error.code == .modelInvalid)
    #expect(error.message.contains(file))
    #expect(!error.message.contains("\n") && !error.message.contains(".cpp"))
  }

  @Test(.enabled(if: hasModel, "needs the OpenVINO runtime and u2netp: make provision"))
  func `a recipe for another size is refused with both sizes`() throws {
    let file = try ModelCatalogue.locate(try #require(u2netp), home: home)
    let error = try #require(
      failure { () throws(InferenceError) in
        try Model(recipe: FakeRuntime.recipe, file: file, requests: 1, threads: 1)
      })
    #expect(error.code == .modelInvalid)
    #expect(error.message.contains("1×3×320×320") && error.message.contains("1×3×2×2"))
  }

  @Test(
    .enabled(
      if: hasRuntime && access(deepLab, R_OK) == 0 && access(photo, R_OK) == 0,
      "needs the OpenVINO runtime and the test data (PIPELINE_TEST_DATA)"))
  func `a TFLite model with scores for 21 classes finds the cat`() throws {
    let recipe = ModelRecipe(
      name: "deeplabv3-257", fileName: "deeplabv3_257_mv_gpu.tflite", source: "test data", licence: "see there",
      width: 257, height: 257, layout: .nhwc, scaling: .fixed(127.5), mean: [1, 1, 1], deviation: [1, 1, 1],
      output: .init(layout: .nhwc, channels: 21, subject: .allBut(0)), activation: .softmax, normalisation: .none)
    try Libvips.start()
    let image = try EncodedPicture(bytes: try EncodedPicture.read(path: Array(photo.utf8))).decode()
    let rgb = LanczosResampler.resize(
      try image.bytes(), width: image.width, height: image.height, bands: 3, toWidth: 257, toHeight: 257)
    let pool = try InferencePool(try Model(recipe: recipe, file: deepLab, requests: 1, threads: 2))
    #expect(!pool.model.verified)
    let scores = try pool.map(of: rgb)
    #expect(scores.count == 257 * 257 * 21)
    var pixels = [Int](repeating: 0, count: 21)
    for pixel in 0..<(257 * 257) {
      let own = scores[pixel * 21..<pixel * 21 + 21]
      if let best = own.indices.max(by: { own[$0] < own[$1] }) { pixels[best - own.startIndex] += 1 }
    }
    // 8 is the cat in the order of Pascal VOC.
    #expect(pixels[8] > 5_000)
    #expect(pixels[8] > pixels[1...].reduce(0, +) * 8 / 10)
    let values = try #require(try recipe.maskMap(of: scores).values)
    #expect(values.allSatisfy { (0...1).contains($0) })
  }
}
