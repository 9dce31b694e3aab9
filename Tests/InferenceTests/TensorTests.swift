import Testing

@testable import Inference

/// Values worked out by hand from the recipe's formula.
@Suite struct TensorInputTests {
  /// Two pixels: (200, 100, 50) and (0, 20, 40).
  private let rgb: [UInt8] = [200, 100, 50, 0, 20, 40]

  private func recipe(
    _ scaling: ModelRecipe.Scaling, layout: ModelRecipe.Layout = .nchw, order: ModelRecipe.ChannelOrder = .rgb
  ) -> ModelRecipe {
    ModelRecipe(
      name: "t", fileName: "t", source: "", licence: "", width: 2, height: 1, layout: layout, channelOrder: order,
      scaling: scaling, mean: [0.5, 0.25, 0], deviation: [0.5, 0.25, 2])
  }

  @Test func `samples are divided by the largest of the picture, not by 255`() {
    // 200 is the largest: 1, 0.5, 0.25 and 0, 0.1, 0.2.
    #expect(close(recipe(.maximum).input(of: rgb), [1, -1, 1, -0.6, 0.125, 0.1]))
  }

  @Test func `a fixed divisor, interleaved, blue first`() {
    // 2, 1, 0.5 and 0, 0.2, 0.4; the model's first channel is blue.
    let nhwc = recipe(.fixed(100), layout: .nhwc, order: .bgr).input(of: rgb)
    #expect(close(nhwc, [0, 3, 1, -0.2, -0.2, 0]))
  }

  @Test func `a black picture is not divided by zero`() {
    #expect(close(recipe(.maximum).input(of: [0, 0, 0, 0, 0, 0]), [-1, -1, -1, -1, 0, 0]))
  }

  @Test func `the u2netp recipe on grey and white`() throws {
    let recipe = try #require(ModelCatalogue.named("u2netp"))
    var rgb = [UInt8](repeating: 128, count: recipe.inputCount)
    rgb[0] = 255
    let input = recipe.input(of: rgb)
    // (1 - 0.485) / 0.229, (128/255 - 0.485) / 0.229, and for green and blue of the last pixel.
    #expect(
      close(
        [input[0], input[1], input[2 * 102_400 - 1], input[3 * 102_400 - 1]],
        [2.2489083, 0.0740645, 0.2051821, 0.4265359]))
  }
}

@Suite struct MaskMapTests {
  private func recipe(
    activation: ModelRecipe.Activation = .none, normalisation: ModelRecipe.Normalisation = .minimumToMaximum,
    output: ModelRecipe.Output = .init(), emptyBelow: Float = 0
  ) -> ModelRecipe {
    ModelRecipe(
      name: "t", fileName: "t", source: "", licence: "", width: 2, height: 1, mean: [0, 0, 0], deviation: [1, 1, 1],
      output: output, activation: activation, normalisation: normalisation, emptyBelow: emptyBelow)
  }

  @Test func `the map is spread over 0 to 1 and its peak kept`() throws {
    #expect(try recipe().maskMap(of: [0.25, 0.75]) == .map(values: [0, 1], peak: 0.75))
    #expect(try recipe(normalisation: .none).maskMap(of: [-0.5, 0.75]) == .map(values: [0, 0.75], peak: 0.75))
  }

  @Test func `bytes are cut, not rounded`() throws {
    #expect(MaskMap.map(values: [0, 0.5, 0.999, 1], peak: 1).bytes == [0, 127, 254, 255])
    #expect(MaskMap.nothingFound(peak: 0).bytes == nil)
  }

  @Test func `a flat map is nothing found, whatever its level`() throws {
    #expect(try recipe().maskMap(of: [0.4, 0.4]) == .nothingFound(peak: 0.4))
    #expect(try recipe().maskMap(of: [0, 0]) == .nothingFound(peak: 0))
    #expect(try recipe(normalisation: .none).maskMap(of: [0, -1]) == .nothingFound(peak: 0))
    #expect(try recipe(emptyBelow: 0.1).maskMap(of: [0, 0.09]) == .nothingFound(peak: 0.09))
    #expect(try recipe(emptyBelow: 0.1).maskMap(of: [0, 0.1]) == .map(values: [0, 1], peak: 0.1))
  }

  @Test(arguments: [Float.nan, .infinity, -.infinity])
  func `values that are not numbers are an error`(_ value: Float) throws {
    let error = try #require(failure { () throws(InferenceError) in try recipe().maskMap(of: [0.5, value]) })
    #expect(error.code == .failed)
  }

  @Test func `an output of another size is an error`() throws {
    let error = try #require(failure { () throws(InferenceError) in try recipe().maskMap(of: [1, 2, 3]) })
    #expect(error.code == .modelInvalid)
  }

  @Test func `logits through a sigmoid`() throws {
    // sigmoid(0) = 0.5, sigmoid(ln 3) = 0.75.
    let map = try recipe(activation: .sigmoid, normalisation: .none).maskMap(of: [0, 1.0986123])
    #expect(close(try #require(map.values), [0.5, 0.75]))
  }

  @Test(arguments: [ModelRecipe.Layout.nchw, .nhwc])
  func `scores through a softmax, all but the background`(_ layout: ModelRecipe.Layout) throws {
    // Scores ln 1, ln 2, ln 5 → 1/8, 2/8, 5/8; and ln 6, ln 1, ln 1 shifted by 1000, which must not overflow.
    let first: [Float] = [0, 0.6931472, 1.609438]
    let second: [Float] = [1001.7918, 1000, 1000]
    let scores = layout == .nhwc ? first + second : zip(first, second).flatMap { [$0, $1] }
    let output = ModelRecipe.Output(layout: layout, channels: 3, subject: .allBut(0))
    let map = try recipe(activation: .softmax, normalisation: .none, output: output).maskMap(of: scores)
    #expect(close(try #require(map.values), [0.875, 0.25]))
    let third = ModelRecipe.Output(layout: layout, channels: 3, subject: .channel(2))
    let other = try recipe(activation: .softmax, normalisation: .none, output: third).maskMap(of: scores)
    #expect(close(try #require(other.values), [0.625, 0.125]))
  }
}

extension MaskMap {
  var values: [Float]? {
    if case .map(let values, _) = self { values } else { nil }
  }
}

/// Within 0.0001 each.
func close(_ found: [Float], _ wanted: [Float]) -> Bool {
  found.count == wanted.count && zip(found, wanted).allSatisfy { abs($0 - $1) <= 1e-4 }
}
