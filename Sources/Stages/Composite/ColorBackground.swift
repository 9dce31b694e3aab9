import Imaging
import PipelineKit

/// One colour.
struct ColorBackground: BackgroundKind {
  static let color = Field<RGBA?>.color(
    "color", help: "one colour; `transparent` keeps the cut-out as it is, a partly transparent colour tints what shows"
  )
  static var field: any FieldDeclaration { color }

  static func traits(_ background: Settings) -> BackgroundTraits {
    BackgroundTraits(isOpaque: background[color]?.isOpaque ?? false, bytesPerPixel: 0)
  }

  let color: RGBA
  let isFixed = true

  init(_ background: Settings, _ resources: StageResources) throws(ImagingError) {
    color = background[Self.color] ?? .transparent
  }

  func drawn(for scene: Scene) throws(ImagingError) -> Image? {
    try .solid(width: scene.width, height: scene.height, color)
  }
}
