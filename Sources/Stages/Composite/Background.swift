import Imaging
import JobSyntax
import PipelineKit

/// What shows where the subject is not, made for one picture after another.
protocol Background: Sendable {
  /// Whether it is the same for all canvases of the same sides, so that it can be kept.
  var isFixed: Bool { get }
  /// Its own sides in pixels, where it can give the canvas.
  var ownSize: (width: Int, height: Int)? { get }

  /// The background, as large as the canvas; nil where it needs the photo and that is not at hand.
  func drawn(for scene: Scene) throws(ImagingError) -> Image?
}

extension Background {
  var ownSize: (width: Int, height: Int)? { nil }
}

/// What a background is made for.
struct Scene {
  /// Sides of the canvas, in pixels.
  var width: Int
  var height: Int
  /// What the result is held in.
  var space: ColorSpace
  var depth: Int
  /// The photo the subject was cut from.
  var original: Image?
  /// Where the subject was in the photo.
  var matte: () throws(ImagingError) -> Image
}

/// A kind of background: a member of `background` in the job file, with all that is written about it.
protocol BackgroundKind: Background {
  /// The member that asks for it.
  static var field: any FieldDeclaration { get }

  /// What it gives and costs; `background` is the object that `field` stands in.
  static func traits(_ background: Settings) -> BackgroundTraits
  /// Rules beyond the shape of each field.
  static func check(_ background: Settings) -> [Diagnostic]
  init(_ background: Settings, _ resources: StageResources) throws(ImagingError)
}

extension BackgroundKind {
  static func check(_ background: Settings) -> [Diagnostic] { [] }
}

struct BackgroundTraits {
  /// Whether nothing shines through, whatever the canvas.
  var isOpaque = true
  /// Bytes held while it is made and laid under, for each pixel of the canvas.
  var bytesPerPixel = 4
  /// Files besides the inputs that it is made from.
  var helperFiles: [String] = []
}

enum BackgroundKinds {
  /// All that a layer can be, in the order of the reference page.
  static let single: [any BackgroundKind.Type] = [
    ColorBackground.self, GradientBackground.self, ImageBackground.self, PatternBackground.self,
    OriginalBackground.self,
  ]
  private static let all = single + [LayeredBackground.self]

  static let shape = ObjectShape(all.map { $0.field }, exactlyOne: all.map { $0.field.name })

  /// The kind that an object asks for; nil where it does not lint.
  static func of(_ background: Settings) -> (any BackgroundKind.Type)? {
    all.first { background.hasValue(for: $0.field) }
  }

  static func make(_ background: Settings, _ resources: StageResources) throws(ImagingError) -> any Background {
    guard let kind = of(background) else {
      throw ImagingError(.internalFault, "composite has no background; the job was not checked")
    }
    return try kind.init(background, resources)
  }
}

/// A fixed background with its pictures of the last few canvases: the pictures of a batch are often alike.
struct KeptBackground: Background {
  struct Key: Hashable, Sendable {
    var layer: Int
    var width: Int
    var height: Int
    var space: ColorSpace
    var depth: Int
  }

  let base: any Background
  /// Tells it from the others that keep their pictures in the same place.
  let layer: Int
  let kept: RecentImages<Key>

  static func memory() -> RecentImages<Key> { RecentImages(most: 8, mostBytes: 128 << 20) }

  let isFixed = true
  var ownSize: (width: Int, height: Int)? { base.ownSize }

  func drawn(for scene: Scene) throws(ImagingError) -> Image? {
    let key = Key(
      layer: layer, width: scene.width, height: scene.height, space: scene.space, depth: scene.depth)
    return try kept.image(key) { () throws(ImagingError) in
      try base.drawn(for: scene)?.converted(to: scene.space).withDepth(scene.depth).materialised()
    }
  }
}
