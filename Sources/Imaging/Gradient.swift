/// A gradient of two or more colours.
public struct Gradient: Sendable, Hashable {
  public struct Stop: Sendable, Hashable {
    public var color: RGBA
    /// Where along the gradient, 0…1; nil is spread evenly between its neighbours.
    public var position: Double?
    public init(_ color: RGBA, at position: Double? = nil) {
      self.color = color
      self.position = position
    }
  }
  public enum Shape: Sendable, Hashable {
    /// Degrees as in CSS: 0 goes to the top, 90 to the right, clockwise.
    case linear(angle: Double)
    /// A circle around a centre (0…1 of each side) that reaches the farthest corner.
    case radial(centerX: Double = 0.5, centerY: Double = 0.5)
  }
  public var shape: Shape
  public var stops: [Stop]

  /// - Throws: `geometry` for fewer than two stops, positions that fall or lie outside 0…1, or numbers that are not finite.
  public init(_ shape: Shape, stops: [Stop]) throws(ImagingError) {
    preconditionFailure("not yet written")
  }
}

extension Image {
  /// Draws a gradient: 3 bands where all stops are opaque, else 4 with straight alpha.
  public static func gradient(_ gradient: Gradient, width: Int, height: Int) throws(ImagingError) -> Image {
    preconditionFailure("not yet written")
  }
}
