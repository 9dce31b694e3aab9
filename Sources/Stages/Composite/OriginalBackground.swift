import Imaging
import PipelineKit

/// The photo that the subject was cut from.
struct OriginalBackground: BackgroundKind {
  static let blur = Field<Double?>.number(
    "blur", in: 0.3...1000, unit: "pixels",
    help: "the radius of the blur (sigma of the Gaussian); left out, the photo stays sharp")
  static let desaturate = Field<Double>.number(
    "desaturate", in: 0...1, default: 0, help: "how much colour is taken away: 1 leaves grey")
  static let dim = Field<Double>.number(
    "dim", in: 0...1, default: 0, help: "how much darker it becomes: 1 is black")
  static let original = Field<Settings?>.optionalObject(
    "original", ObjectShape([blur, desaturate, dim], atLeastOne: ["blur", "desaturate", "dim"]),
    help:
      "the photo the subject was cut from: blurred, where the subject does not glow into it, less colourful, darker, "
      + "or all of these")
  static var field: any FieldDeclaration { original }

  static func traits(_ background: Settings) -> BackgroundTraits {
    // For a blur, the weighed photo and its weights in floating point.
    BackgroundTraits(bytesPerPixel: background[original]?[blur] == nil ? 4 : 28)
  }

  private let blur: Double?
  private let desaturate: Double
  private let dim: Double
  let isFixed = false

  init(_ background: Settings, _ resources: StageResources) throws(ImagingError) {
    guard let settings = background[Self.original] else {
      throw ImagingError(.internalFault, "the original as background without settings; the job was not checked")
    }
    blur = settings[Self.blur]
    desaturate = settings[Self.desaturate]
    dim = settings[Self.dim]
  }

  func drawn(for scene: Scene) throws(ImagingError) -> Image? {
    guard let original = scene.original else { return nil }
    // Toned first: both are weighted sums, so the order does not matter, and the blur smooths the rounding.
    let photo = try original.withoutAlpha().toned(desaturation: desaturate, dimming: dim)
    guard let blur else { return photo }
    return try .backgroundBlur(original: photo, matte: scene.matte(), sigma: blur)
  }
}
