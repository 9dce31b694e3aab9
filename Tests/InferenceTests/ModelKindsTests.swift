import Glibc
import TestSupport
import Testing

@testable import Inference

private let hasRuntime = (try? PipelineHome.current.locateRuntime()) != nil

private let testModels =
  (getenv("PIPELINE_TEST_DATA").map { String(cString: $0) } ?? "../shared/data") + "/models"

/// Kinds of models that no installed file is one of, on the real runtime: open sizes, OpenVINO IR, models of one's own.
@Suite(.enabled(if: hasRuntime, "needs the OpenVINO runtime: make provision"))
struct ModelKindsTests {
  private let folder = TemporaryFolder()

  private func sigmoid(_ value: Float) -> Float { 1 / (1 + expf(-value)) }

  private func recipe(sizeRule: ModelRecipe.SizeRule?, width: Int, height: Int) -> ModelRecipe {
    ModelRecipe(
      name: "sigmoid", fileName: "sigmoid.onnx", source: "the tests", licence: "none", width: width, height: height,
      sizeRule: sizeRule, scaling: .fixed(255), mean: [0, 0, 0], deviation: [1, 1, 1],
      output: .init(channels: 3, subject: .channel(2)), normalisation: .none)
  }

  @Test func `an input that follows the picture takes every size`() throws {
    let file = folder.write(WrittenModels.sigmoidONNX(width: nil, height: nil), to: "sigmoid.onnx")
    let rule = ModelRecipe.SizeRule(reference: 64, multiple: 32, most: 256)
    let recipe = recipe(sizeRule: rule, width: 64, height: 64)
    let pool = try InferencePool(try Model(recipe: recipe, file: file, requests: 1, threads: 1))
    // Larger, smaller, and back: the request's tensors change their size each time.
    for (width, height) in [(100, 50), (640, 100), (10, 10), (1000, 3), (100, 50)] {
      let size = recipe.inputSize(forWidth: width, height: height)
      let blue = (0..<size.width * size.height).map { UInt8(truncatingIfNeeded: $0 * 7) }
      let output = try pool.map(of: blue.flatMap { [1, 2, $0] }, width: size.width, height: size.height)
      let map = try recipe.maskMaps(of: output, width: size.width, height: size.height)[0]
      #expect(close(try #require(map.map.values), blue.map { sigmoid(Float($0) / 255) }), "\(width)×\(height)")
    }
    #expect(failure { () throws(InferenceError) in try pool.map(of: [1, 2, 3], width: 2, height: 1) } != nil)
  }

  @Test func `open sizes are fixed by the recipe`() throws {
    let file = folder.write(WrittenModels.sigmoidONNX(width: nil, height: nil), to: "sigmoid.onnx")
    #expect(try Model.facts(ofFile: file) == ModelFacts(input: [1, 3, nil, nil], outputs: [[1, 3, nil, nil]]))
    let recipe = recipe(sizeRule: nil, width: 3, height: 2)
    let pool = try InferencePool(try Model(recipe: recipe, file: file, requests: 1, threads: 1))
    #expect(try pool.map(of: [UInt8](repeating: 0, count: 18)).allSatisfy { $0 == 0.5 })
  }

  @Test func `an OpenVINO IR is read with its weights beside it`() throws {
    let file = folder.write(WrittenModels.sigmoidIR, to: "sigmoid.xml")
    folder.write([0, 0, 0, 0], to: "sigmoid.bin")
    #expect(try Model.facts(ofFile: file) == ModelFacts(input: [1, 3, 2, 4], outputs: [[1, 3, 2, 4]]))
    let recipe = recipe(sizeRule: nil, width: 4, height: 2)
    let pool = try InferencePool(try Model(recipe: recipe, file: file, requests: 1, threads: 1))
    let output = try pool.map(of: (0..<24).map { UInt8($0 * 10) })
    #expect(
      close(try #require(try recipe.maskMap(of: output).values), (0..<8).map { sigmoid(Float($0 * 30 + 20) / 255) }))
  }

  @Test func `channels where pixels should be are refused`() throws {
    let file = folder.write(WrittenModels.sigmoidONNX(width: 5, height: 4), to: "sigmoid.onnx")
    var recipe = recipe(sizeRule: nil, width: 5, height: 4)
    recipe.output.layout = .nhwc
    let error = try #require(
      failure { () throws(InferenceError) in try Model(recipe: recipe, file: file, requests: 1, threads: 1) })
    #expect(error.code == .modelInvalid && error.message.contains("nhwc"))
  }

  @Test func `a model of one's own is added, pinned and found by its name`() throws {
    let home = TemporaryFolder()
    let place = PipelineHome(variable: { name in
      switch name {
      case "PIPELINE_HOME": home.path
      case "PIPELINE_OPENVINO":
        (try? PipelineHome.current.locateRuntime()).map { String($0[..<($0.lastIndex(of: "/") ?? $0.endIndex)]) }
      default: nil
      }
    })
    let file = folder.write(WrittenModels.sigmoidONNX(width: 5, height: 4), to: "mine.onnx")
    var draft = RecipeDraft()
    draft.mean = [0, 0, 0]
    draft.deviation = [1, 1, 1]
    draft.activation = ModelRecipe.Activation.none
    draft.subject = 1
    try AddedModels.add(file, name: "mine", draft: draft, home: place)
    #expect(
      home.tree().filter { !$0.hasSuffix("/") && !$0.hasSuffix("lock") } == [
        "models/mine.model.json", "models/mine.onnx", "models/pins.json",
      ])
    #expect(ModelCatalogue.names(home: place).last == "mine")
    let recipe = try #require(try ModelCatalogue.named("mine", home: place))
    #expect(
      recipe.width == 5 && recipe.height == 4 && recipe.output.channels == 3 && recipe.output.subject == .channel(1))
    let model = try Model(recipe: recipe, requests: 1, threads: 1, home: place)
    #expect(!model.verified)
    #expect(ModelCatalogue.status(verify: true, home: place).last?.state == .unverified)
    // Another file under its name is not what was added.
    home.write(WrittenModels.sigmoidONNX(width: 5, height: 4) + [0x12, 0], to: "models/mine.onnx")
    let error = failure { () throws(InferenceError) in try Model(recipe: recipe, requests: 1, threads: 1, home: place) }
    #expect(error?.code == .checksum)
    for name in ["u2netp", "../mine", "a.onnx", "", ".x", "a b"] {
      #expect(
        failure { () throws(InferenceError) in try AddedModels.add(file, name: name, draft: draft, home: place) } != nil
      )
    }
  }

  /// Every model of the test data is one of the catalogue, whose recipe fits it and whose checksum is its own.
  @Test(.enabled(if: access(testModels, R_OK) == 0, "needs the test data (PIPELINE_TEST_DATA)"))
  func `recipes of the catalogue fit their files`() throws {
    var count = 0
    for recipe in ModelCatalogue.all where access(testModels + "/" + recipe.fileName, R_OK) == 0 {
      let file = testModels + "/" + recipe.fileName
      #expect(recipe.tested, "\(recipe.name)")
      #expect(try Model(recipe: recipe, file: file, requests: 1, threads: 1).verified, "\(recipe.name)")
      // What the catalogue says of sizes and layouts is what the file says by itself.
      var draft = RecipeDraft()
      draft.like = recipe.name
      let own = try draft.completed(with: try Model.facts(ofFile: file), name: recipe.name, fileName: recipe.fileName)
      #expect((own.width, own.height) == (recipe.width, recipe.height) && own.layout == recipe.layout, "\(recipe.name)")
      #expect(own.output.channels == recipe.output.channels && own.outputCount == recipe.outputCount, "\(recipe.name)")
      if own.output.channels > 1 { #expect(own.output.layout == recipe.output.layout, "\(recipe.name)") }
      count += 1
    }
    #expect(count == 6)
  }

  @Test func `pins are kept by whoever is first`() throws {
    let home = TemporaryFolder()
    home.makeFolder("models")
    let place = PipelineHome(variable: { $0 == "PIPELINE_HOME" ? home.path : nil })
    let recipe = recipe(sizeRule: nil, width: 5, height: 4)
    let first = try FileDigest.ofFile(folder.write("one", to: "one"))
    let second = try FileDigest.ofFile(folder.write("two", to: "two"))
    let pins = ModelPins(place)
    try pins.compare(first, of: recipe, file: "one")
    try pins.check(first, of: recipe, file: "one")
    try pins.check(first, of: recipe, file: "one")
    let error = try #require(failure { () throws(InferenceError) in try pins.check(second, of: recipe, file: "two") })
    #expect(error.code == .checksum && error.message.contains(first.sha256) && error.message.contains(second.sha256))
    home.write("{ broken", to: "models/pins.json")
    #expect(failure { () throws(InferenceError) in try pins.check(first, of: recipe, file: "one") }?.code == .checksum)
  }
}
