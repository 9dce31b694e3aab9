import Imaging
import JobSyntax
import PipelineKit

/// Several backgrounds, one on the other.
struct LayeredBackground: BackgroundKind {
  static let opacity = Field<Double>.number(
    "opacity", in: 0.01...1, default: 1, help: "how much of what is below the layer covers: 1 is all")
  static let blend = Field<BlendMode>.choice(
    "blend", default: .over, help: "how its colours mix with those of the layers below")
  static let shape = ObjectShape(
    BackgroundKinds.single.map { $0.field } + [opacity, blend], exactlyOne: BackgroundKinds.single.map { $0.field.name }
  )
  static let layers = Field<[Settings]>(
    "layers", type: .array(.object(shape), count: 1...16), absent: [],
    help:
      "several backgrounds, from the bottom to the top: each is one of those above, and may have `opacity` and `blend`"
  ) { node, file in node.arrayValue?.map { Settings(reading: $0, shape: shape, file: file) } }
  static var field: any FieldDeclaration { layers }

  static func traits(_ background: Settings) -> BackgroundTraits {
    // The layers so far, and one more copy where a mode other than `over` makes them anew.
    var traits = BackgroundTraits(isOpaque: false, bytesPerPixel: 4)
    for layer in background[layers] {
      guard let kind = BackgroundKinds.of(layer) else { continue }
      let own = kind.traits(layer)
      let mode = layer[blend]
      traits.isOpaque = mode.isOpaque(above: own.isOpaque && layer[opacity] == 1, below: traits.isOpaque)
      traits.bytesPerPixel += own.bytesPerPixel + (mode == .over ? 0 : 8)
      traits.helperFiles += own.helperFiles
    }
    return traits
  }

  static func check(_ background: Settings) -> [Diagnostic] {
    var findings: [Diagnostic] = []
    for (index, layer) in background[layers].enumerated() {
      guard let kind = BackgroundKinds.of(layer) else { continue }
      findings += kind.check(layer)
      findings += BlendMode.check(layer, at: blend, whatIsGone: "the layer")
      if let color = layer[ColorBackground.color], color.a == 0 {
        findings.append(
          layer.diagnostic(
            .error, "wrong-value", at: ColorBackground.color, "a layer in \"transparent\" shows nothing",
            hint: "leave the layer out"))
      }
      if index == 0, layer[blend] != .over {
        findings.append(
          layer.diagnostic(
            .error, "not-applicable", at: blend, "the lowest layer has nothing below it to mix with",
            hint: "layers are listed from the bottom to the top"))
      }
      if index > 0, layer[opacity] == 1, layer[blend] == .over, hides(kind, layer) {
        findings.append(
          layer.diagnostic(
            .warning, "hidden-layer", at: kind.field, "this layer is opaque: nothing shows of what is below it",
            hint: "give it \"opacity\" or \"blend\", or list it first: layers are listed from the bottom to the top"))
      }
    }
    return findings
  }

  /// Whether a layer is known to be opaque before any file is read.
  private static func hides(_ kind: any BackgroundKind.Type, _ layer: Settings) -> Bool {
    let traits = kind.traits(layer)
    return traits.isOpaque && traits.helperFiles.isEmpty
  }

  private let stack: any Background

  init(_ background: Settings, _ resources: StageResources) throws(ImagingError) {
    var layers: [Stack.Layer] = []
    for layer in background[Self.layers] {
      layers.append(
        Stack.Layer(
          background: try BackgroundKinds.make(layer, resources), opacity: layer[Self.opacity], mode: layer[Self.blend])
      )
    }
    let memory = KeptBackground.memory()
    // What the photo has no part in is made once for all pictures of the same sides: the lowest layers together, which
    // are all where there is no photo, and each of those above.
    let fixed = layers.prefix { $0.background.isFixed }
    let below = KeptBackground(base: Stack(layers: Array(fixed)), layer: 0, kept: memory)
    guard fixed.count < layers.count else {
      stack = below
      return
    }
    var merged = fixed.isEmpty ? [] : [Stack.Layer(background: below, opacity: 1, mode: .over)]
    for (index, layer) in layers.enumerated().dropFirst(fixed.count) {
      var layer = layer
      if layer.background.isFixed, !(layer.background is ColorBackground) {
        layer.background = KeptBackground(base: layer.background, layer: index, kept: memory)
      }
      merged.append(layer)
    }
    stack = Stack(layers: merged)
  }

  // What can be kept is kept already.
  let isFixed = false
  var ownSize: (width: Int, height: Int)? { stack.ownSize }

  func drawn(for scene: Scene) throws(ImagingError) -> Image? { try stack.drawn(for: scene) }

  /// The layers laid on each other, in the space and depth of the scene.
  private struct Stack: Background {
    struct Layer {
      var background: any Background
      var opacity: Double
      var mode: BlendMode
    }
    let layers: [Layer]

    var isFixed: Bool { layers.allSatisfy(\.background.isFixed) }
    var ownSize: (width: Int, height: Int)? { layers.lazy.compactMap(\.background.ownSize).first }

    func drawn(for scene: Scene) throws(ImagingError) -> Image? {
      var stack: Image?
      for layer in layers {
        guard var image = try layer.background.drawn(for: scene) else { return nil }
        image = try image.converted(to: scene.space).withDepth(scene.depth)
        if layer.opacity < 1 { image = try image.fadedAlpha(layer.opacity) }
        stack = if let stack { try image.blended(onto: stack, layer.mode) } else { image }
      }
      return stack
    }
  }
}
