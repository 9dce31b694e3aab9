/// Where a picture stands on a canvas. `picture` may reach beyond the canvas, whose corner is 0, 0.
public struct Placement: Sendable, Hashable {
  public var canvasWidth: Int
  public var canvasHeight: Int
  /// Place and sides of the scaled picture.
  public var picture: Rectangle

  public init(of picture: Rectangle, onCanvas width: Int, _ height: Int) {
    (self.picture, canvasWidth, canvasHeight) = (picture, width, height)
  }

  /// Whether a picture of these sides is the whole canvas, as it is.
  public func isIdentity(for width: Int, _ height: Int) -> Bool {
    self == Placement(of: Rectangle(x: 0, y: 0, width: width, height: height), onCanvas: width, height)
  }
}

extension Image {
  /// Scaled to the sides of `placement` and laid on its canvas: what sticks out is cropped, and what is left is filled.
  ///
  /// - Throws: `geometry` where the picture lies beside the canvas, or sides make no picture.
  public func placed(_ placement: Placement, _ fill: PadFill) throws(ImagingError) -> Image {
    let place = placement.picture
    let (left, top) = (max(0, place.x), max(0, place.y))
    let right = min(placement.canvasWidth, place.x + place.width)
    let bottom = min(placement.canvasHeight, place.y + place.height)
    guard left < right, top < bottom else {
      throw ImagingError(
        .geometry,
        "a picture of \(place.width)×\(place.height) pixels at \(place.x),\(place.y) lies beside its canvas of "
          + "\(placement.canvasWidth)×\(placement.canvasHeight)")
    }
    let scaled =
      (width, height) == (place.width, place.height) ? self : try stretched(width: place.width, height: place.height)
    let seen = Rectangle(x: left - place.x, y: top - place.y, width: right - left, height: bottom - top)
    return try scaled.cropped(to: seen).padded(
      to: Canvas(x: left, y: top, width: placement.canvasWidth, height: placement.canvasHeight), fill)
  }
}
