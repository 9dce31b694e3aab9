import CVips

/// A canvas around a picture, which stands at `x`, `y` on it.
public struct Canvas: Sendable, Hashable {
  public var x: Int
  public var y: Int
  public var width: Int
  public var height: Int

  public init(x: Int, y: Int, width: Int, height: Int) {
    (self.x, self.y, self.width, self.height) = (x, y, width, height)
  }
}

/// What is added around a picture.
public enum PadRequest: Sendable, Hashable {
  /// So much on each side; shares are of the picture's own width (left, right) or height (top, bottom).
  case sides(top: Length, right: Length, bottom: Length, left: Length)
  /// So much on all sides; a share is of the picture's longer side.
  case all(Length)
  /// To these sides; nil leaves one as it is.
  case size(width: Int?, height: Int?, Position)
  /// To the smallest canvas of this ratio.
  case aspect(AspectRatio, Position)

  /// The canvas for a picture of `w` × `h` pixels. Shares and ratios are rounded half up; what is left over around a
  /// centred picture is halved, the larger half to the right and below.
  ///
  /// - Throws: `geometry` where the picture is larger than the sides asked for, or the canvas is too large.
  public func canvas(for w: Int, _ h: Int) throws(ImagingError) -> Canvas {
    let canvas: Canvas
    switch self {
    case .sides(let top, let right, let bottom, let left):
      let (x, y) = (left.pixels(of: w), top.pixels(of: h))
      canvas = Canvas(x: x, y: y, width: x + w + right.pixels(of: w), height: y + h + bottom.pixels(of: h))
    case .all(let length):
      let edge = length.pixels(of: max(w, h))
      canvas = Canvas(x: edge, y: edge, width: w + 2 * edge, height: h + 2 * edge)
    case .size(let width, let height, let position):
      canvas = Self.place(w, h, (width ?? w, height ?? h), position)
    case .aspect(let ratio, let position):
      canvas = Self.place(w, h, ratio.smallest(around: w, h), position)
    }
    guard canvas.width >= w, canvas.height >= h else {
      throw ImagingError(
        .geometry, "a picture of \(w)×\(h) pixels does not fit on a canvas of \(canvas.width)×\(canvas.height)",
        hint: "make it smaller first, with \"resize\" and fit \"inside\"")
    }
    try Image.checkSides(canvas.width, canvas.height, "padding \(w)×\(h)")
    return canvas
  }

  private static func place(
    _ w: Int, _ h: Int, _ sides: (width: Int, height: Int), _ position: Position
  ) -> Canvas {
    let (x, y) = position.offset(across: sides.width - w, down: sides.height - h)
    return Canvas(x: x, y: y, width: sides.width, height: sides.height)
  }
}

/// What fills a canvas around a picture.
public enum PadFill: Sendable, Hashable {
  case color(RGBA)
  /// The picture's outermost pixels go on.
  case edge
  /// The picture is mirrored at its edges.
  case mirror
}

extension Image {
  /// The picture on a larger canvas. A colour with transparency gives it alpha; of a matte, green is its number.
  public func padded(to canvas: Canvas, _ fill: PadFill) throws(ImagingError) -> Image {
    guard (canvas.width, canvas.height) != (width, height) else { return self }
    try Image.checkSides(canvas.width, canvas.height, "padding \(width)×\(height)")
    let (x, y, w, h) = (Int32(canvas.x), Int32(canvas.y), Int32(canvas.width), Int32(canvas.height))
    switch fill {
    case .color(let colour):
      return try padded(
        ResizePlan.Pad(x: canvas.x, y: canvas.y, width: canvas.width, height: canvas.height, background: colour))
    case .edge: return derived(try vips("padding") { cvips_embed_copy(ref.pointer, $0, x, y, w, h) })
    case .mirror: return derived(try vips("padding") { cvips_embed_mirror(ref.pointer, $0, x, y, w, h) })
    }
  }
}
