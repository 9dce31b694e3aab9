import Glibc
import Imaging
import TestSupport
import Testing

@testable import Inference

private let home = PipelineHome.current
private let u2netp = ModelCatalogue.named("u2netp")
private let file = u2netp.flatMap { try? ModelCatalogue.locate($0, home: home) }
private let hasModel = (try? home.locateRuntime()) != nil && file != nil

@Suite struct EightBitTests {
  /// An ONNX model of one node, written by hand: `Conv` of `x` with `w`, 2×1×1×1 floats of 3 and −5, gives `y`.
  private let model = written(weightSides: [8, 2, 8, 1, 8, 1, 8, 1])

  private static func written(weightSides: [UInt8]) -> [UInt8] {
    func field(_ number: UInt8, _ body: [UInt8]) -> [UInt8] { [number << 3 | 2, UInt8(body.count)] + body }
    func text(_ number: UInt8, _ text: String) -> [UInt8] { field(number, Array(text.utf8)) }
    let node = text(1, "x") + text(1, "w") + text(2, "y") + text(3, "Conv_7") + text(4, "Conv")
    let weights =
      weightSides + [16, 1] + text(8, "w") + field(9, [0, 0, 0x40, 0x40, 0, 0, 0xA0, 0xC0])
    return [8, 6] + field(7, field(1, node) + text(2, "graph") + field(5, weights))
  }

  private func position(of text: String, in bytes: [UInt8]) -> Int? {
    let wanted = Array(text.utf8)
    return (0..<max(0, bytes.count - wanted.count)).first { bytes[$0..<$0 + wanted.count].elementsEqual(wanted) }
  }

  @Test func `quantisation comes before the weights' use and behind tensors whose range is known`() throws {
    let made = try #require(
      EightBitModel.quantised(model, .init(sha256: "", highest: ["y": 6], exact: [])))
    let weights = try #require(position(of: "w/quantised", in: made))
    let node = try #require(position(of: "Conv_7", in: made))
    let output = try #require(position(of: "y/quantised", in: made))
    #expect(weights < node && node < output)
    #expect(position(of: "org.openvinotoolkit", in: made) != nil)
    // Twice the largest weight of each row: 6 and 10, as little-endian floats; and what is known of y.
    func holds(_ bytes: [UInt8]) -> Bool {
      (0..<made.count - bytes.count).contains { made[$0..<$0 + bytes.count].elementsEqual(bytes) }
    }
    #expect(holds([8, 0, 0, 0xC0, 0x40, 0, 0, 0x20, 0x41].suffix(8)))
    #expect(holds([0, 0, 0xC0, 0xC0, 0, 0, 0x20, 0xC1]))
    #expect(holds([4, 0, 0, 0xC0, 0x40]))
  }

  @Test func `a convolution that is to stay exact stays as it was`() throws {
    let made = try #require(
      EightBitModel.quantised(model, .init(sha256: "", highest: ["y": 6], exact: ["Conv_7"])))
    #expect(position(of: "w/quantised", in: made) == nil)
    #expect(position(of: "y/quantised", in: made) != nil)
  }

  @Test func `what is no such model is refused, wherever it is cut or changed`() {
    let calibration = EightBitModel.Calibration(sha256: "", highest: ["y": 6], exact: [])
    #expect(EightBitModel.quantised(model, .init(sha256: "", highest: ["z": 1], exact: [])) == nil)
    for count in 0..<model.count { #expect(EightBitModel.quantised(Array(model[..<count]), calibration) == nil) }
    for at in model.indices {
      for value: UInt8 in [0, 0x7F, 0x80, 0xFF] {
        var changed = model
        changed[at] = value
        // Anything but a crash.
        _ = EightBitModel.quantised(changed, calibration)
      }
    }
  }

  @Test func `weights of more bytes than numbers hold are refused`() {
    let calibration = EightBitModel.Calibration(sha256: "", highest: ["y": 6], exact: [])
    #expect(EightBitModel.quantised(Self.written(weightSides: [8, 2]), calibration) != nil)
    // 2²⁰ × 2²⁰ × 2²⁰ × 2 floats have 2⁶³ bytes.
    let side: [UInt8] = [8, 0x80, 0x80, 0x40]
    let model = Self.written(weightSides: side + side + side + [8, 2])
    #expect(EightBitModel.quantised(model, calibration) == nil)
  }

  @Test(.enabled(if: hasModel, "needs the OpenVINO runtime and u2netp: make provision"))
  func `u2netp in 8 bits sees what it sees in 32`() throws {
    let recipe = try #require(u2netp)
    let pools = try [Precision.f32, .fast].map {
      try InferencePool(Model(recipe: recipe, precision: $0, requests: 1, threads: 2))
    }
    #expect(pools[0].model.precisionUsed == "f32")
    #expect(pools[1].model.precisionUsed == (try Model.fastPrecision(of: recipe.sha256)))
    var rgb: [UInt8] = []
    for y in 0..<320 {
      for x in 0..<320 {
        let distance = (x - 150) * (x - 150) + (y - 170) * (y - 170)
        for (channel, (base, lit)) in [(40, 230), (50, 120), (60, 60)].enumerated() {
          rgb.append(UInt8(distance < 6400 ? lit - lit * distance / 12800 : base + y / 8 + channel * 3))
        }
      }
    }
    let maps = try pools.map { pool -> [Float] in
      guard case .map(let values, _) = try recipe.maskMap(of: try pool.map(of: rgb)) else { return [] }
      return values
    }
    try #require(maps[0].count == 320 * 320 && maps[1].count == maps[0].count)
    let differences = zip(maps[0], maps[1]).map { abs($0 - $1) }
    #expect(differences.reduce(0, +) / Float(differences.count) < 0.01)
    if pools[1].model.precisionUsed == "int8" {
      // Not the same arithmetic under another name.
      #expect(differences.contains { $0 > 0 })
    }
  }
}
