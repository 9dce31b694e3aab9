import CVips
import Glibc

/// How pixels between pixels are made.
public enum Interpolator: String, CaseIterable, Sendable {
  case bicubic, nohalo, nearest
}

/// What a flip does.
public enum FlipDirection: String, CaseIterable, Sendable {
  case horizontal, vertical, both
}

/// A turn by an angle.
public struct Rotation: Sendable, Hashable {
  /// Degrees clockwise, 0 up to but without 360.
  public let angle: Double
  /// Whether the result is the largest upright rectangle that the turned picture fills, instead of the canvas that
  /// holds all of it.
  public var crop: Bool
  public var interpolator: Interpolator

  /// - Parameter degrees: clockwise; any finite number.
  public init(degrees: Double, crop: Bool = false, interpolator: Interpolator = .bicubic) {
    let rest = degrees.isFinite ? degrees.truncatingRemainder(dividingBy: 360) : 0
    let angle = rest < 0 ? rest + 360 : rest
    self.angle = angle >= 360 ? 0 : angle
    self.crop = crop
    self.interpolator = interpolator
  }

  /// How many right angles it is; nil for a turn in between.
  public var quarters: Int? {
    let turns = angle / 90
    return turns == turns.rounded() ? Int(turns) : nil
  }

  /// Sine and cosine.
  fileprivate var direction: (s: Double, c: Double) { (sin(angle * .pi / 180), cos(angle * .pi / 180)) }

  /// The sides of the result for a picture of `w` × `h` pixels.
  ///
  /// Right angles keep or swap the sides. Else the canvas is that of the turned outline, w·|cos| + h·|sin| by
  /// w·|sin| + h·|cos|, rounded up (a thousand-millionth of a pixel is let go). With `crop` it is the largest rectangle
  /// within the outline, rounded down and at least 1.
  public func size(for w: Int, _ h: Int) -> (width: Int, height: Int) {
    if let quarters { return quarters % 2 == 0 ? (w, h) : (h, w) }
    let (s, c) = (abs(direction.s), abs(direction.c))
    let (width, height) = (Double(w), Double(h))
    guard crop else {
      return (
        Int((width * c + height * s - 1e-9).rounded(.up)), Int((width * s + height * c - 1e-9).rounded(.up))
      )
    }
    // The largest rectangle has two corners on the longer sides of the outline, or, in a less oblong picture, one on
    // each side: then wr·c + hr·s = w and wr·s + hr·c = h.
    let (long, short) = (max(width, height), min(width, height))
    var inner: (Double, Double)
    if short <= 2 * s * c * long || abs(s - c) < 1e-9 {
      let half = short / 2
      inner = width >= height ? (half / s, half / c) : (half / c, half / s)
    } else {
      let determinant = c * c - s * s
      inner = ((width * c - height * s) / determinant, (height * c - width * s) / determinant)
    }
    inner = (inner.0 + 1e-9, inner.1 + 1e-9)
    return (max(1, Int(inner.0)), max(1, Int(inner.1)))
  }
}

extension Image {
  /// Mirrored left to right, top to bottom, or both.
  public func flipped(_ direction: FlipDirection) throws(ImagingError) -> Image {
    let still = try materialised()
    switch direction {
    case .horizontal:
      return still.derived(try vips("flipping") { cvips_flip(still.ref.pointer, $0, VIPS_DIRECTION_HORIZONTAL) })
    case .vertical:
      return still.derived(try vips("flipping") { cvips_flip(still.ref.pointer, $0, VIPS_DIRECTION_VERTICAL) })
    case .both: return still.derived(try vips("flipping") { cvips_rot(still.ref.pointer, $0, VIPS_ANGLE_D180) })
    }
  }

  /// Turned about its middle.
  ///
  /// Right angles move pixels. Other angles make new ones, premultiplied for the time; where the picture does not reach
  /// there is transparency (0 in a matte), with `crop` there is no such place.
  /// - Parameter extending: whether the picture goes on as its edge where it does not reach, instead.
  /// - Throws: `geometry` where the result would be too large.
  public func rotated(_ rotation: Rotation, extending: Bool = false) throws(ImagingError) -> Image {
    let still = try materialised()
    if let quarters = rotation.quarters {
      let angles = [VIPS_ANGLE_D0, VIPS_ANGLE_D90, VIPS_ANGLE_D180, VIPS_ANGLE_D270]
      guard quarters != 0 else { return still }
      return still.derived(try vips("turning") { cvips_rot(still.ref.pointer, $0, angles[quarters]) })
    }
    let (w, h) = rotation.size(for: width, height)
    try Image.checkSides(w, h, "turning \(width)×\(height)")
    if rotation.crop { return try still.turned(rotation, w, h, VIPS_EXTEND_COPY) }
    guard extending else {
      let source = bands == 3 ? try still.withAlpha(.white(width, height)) : still
      return try source.turned(rotation, w, h, VIPS_EXTEND_BACKGROUND)
    }
    // As far as the corners of the canvas are from the middle, and some pixels for the interpolator.
    let reach = (Double(w * w + h * h).squareRoot() / 2).rounded(.up)
    let edge = (
      max(0, Int(reach) - width / 2) + 3, max(0, Int(reach) - height / 2) + 3
    )
    let canvas = Canvas(x: edge.0, y: edge.1, width: width + 2 * edge.0, height: height + 2 * edge.1)
    return try still.padded(to: canvas, .edge).turned(rotation, w, h, VIPS_EXTEND_COPY)
  }

  /// `w` × `h` pixels around the middle of the turned picture.
  private func turned(_ rotation: Rotation, _ w: Int, _ h: Int, _ extend: VipsExtend) throws(ImagingError) -> Image {
    let (s, c) = rotation.direction
    // Clockwise with y downwards. Pixels are points at whole numbers, so middles lie at half of side − 1.
    let matrix = [c, -s, s, c]
    let from = (Double(width - 1) / 2, Double(height - 1) / 2)
    let offset = [
      Double(w - 1) / 2 - (c * from.0 - s * from.1), Double(h - 1) / 2 - (s * from.0 + c * from.1),
    ]
    let name = rotation.interpolator.rawValue
    let plain = rotation.interpolator == .nearest
    var source = ref
    if !plain {
      source =
        bands == 4
        ? try vips("premultiplying alpha") { cvips_premultiply(ref.pointer, $0, most) }
        : try vips("converting") { cvips_cast(ref.pointer, $0, VIPS_FORMAT_FLOAT, 0) }
    }
    let turned = try vips("turning by \(rotation.angle)°") { [source] in
      cvips_affine(source.pointer, $0, matrix, offset, Int32(w), Int32(h), name, extend)
    }
    guard !plain else { return try derived(turned).materialised() }
    let straight =
      bands == 4
      ? try vips("unpremultiplying alpha") { cvips_unpremultiply(turned.pointer, $0, most, 3) } : turned
    return try derived(try Resampling.rounded(straight, to: ref.format)).materialised()
  }
}
