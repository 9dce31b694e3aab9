import Glibc

/// A shadow that the subject casts on what is behind it. Lengths in percent are of the longer side of its box.
public struct DropShadow: Sendable, Hashable {
  /// How far the shadow lies from the subject.
  public var offset: Length
  /// Where it lies, in degrees clockwise: 0 above, 90 at the right, 180 below.
  public var angle: Double
  /// The radius of the blur (sigma of the Gaussian); below 0.3 pixels there is none.
  public var blur: Length
  /// 0…1.
  public var opacity: Double
  public var color: RGBA

  public init(offset: Length, angle: Double, blur: Length, opacity: Double, color: RGBA) {
    (self.offset, self.angle, self.blur) = (offset, angle, blur)
    (self.opacity, self.color) = (opacity, color)
  }
}

/// The shadow on the ground that the subject stands on. A length in percent is of the longer side of its box.
public struct ContactShadow: Sendable, Hashable {
  /// How far it spreads.
  public var blur: Length
  /// 0…1, where it is darkest.
  public var opacity: Double
  public var color: RGBA

  public init(blur: Length, opacity: Double, color: RGBA) {
    (self.blur, self.opacity, self.color) = (blur, opacity, color)
  }
}

extension Image {
  /// The shadow that this cut-out casts, as a picture of the same sides to lay it over; nil where none of it shows.
  ///
  /// - Parameter box: the subject's.
  /// - Throws: `geometry` for a blur of more than 1,000 pixels.
  public func cast(_ shadow: DropShadow, of box: Rectangle) throws(ImagingError) -> Image? {
    let side = max(box.width, box.height)
    let (distance, angle) = (Double(shadow.offset.pixels(of: side)), shadow.angle * .pi / 180)
    let (x, y) = (Int((sin(angle) * distance).rounded()), Int((-cos(angle) * distance).rounded()))
    guard abs(x) < width, abs(y) < height else { return nil }
    let moved = try alphaBand().window(
      Rectangle(x: -x, y: -y, width: width, height: height), .color(.transparent))
    let sigma = Double(shadow.blur.pixels(of: side))
    let coverage = try sigma < 0.3 ? moved : moved.blurred(sigma: sigma)
    return try .ink(shadow.color, coverage: coverage, opacity: shadow.opacity)
  }

  /// The shadow on the ground that this cut-out stands on; as for a shadow that falls behind it.
  ///
  /// - Parameter box: the subject's; its lowest pixels tell where it stands.
  public func cast(_ shadow: ContactShadow, of box: Rectangle) throws(ImagingError) -> Image? {
    let (left, top) = (max(0, box.x), max(0, box.y))
    let (right, bottom) = (min(width, box.x + box.width), min(height, box.y + box.height))
    guard left < right, top < bottom else { return nil }
    let sigma = Double(max(1, shadow.blur.pixels(of: max(box.width, box.height))))
    let seen = Rectangle(x: left, y: top, width: right - left, height: bottom - top)
    let (width, height) = (width, height)
    let coverage = try alphaBand().withPixels { alpha in
      Ground(alpha, width, seen, sigma: sigma).coverage(width: width, height: height)
    }
    return try .ink(
      shadow.color, coverage: Image(width: width, height: height, bands: 1, bytes: coverage),
      opacity: shadow.opacity)
  }
}

/// Where a subject touches the ground, column by column, and the shadow that makes.
///
/// What keeps light from the ground is what is near it: a column shades the ground below its lowest pixel, the more
/// the nearer that pixel is. Seen a little from above, feet that are farther away stand higher in the picture, so the
/// ground is no level line: it rises from each foot by a small slope, and is where that is lowest. The shadow is the
/// sum of two: a narrow dark one where things touch, and a wide faint one. Both are Gaussians across and down, flatter
/// down, as a round spot is that is seen from the side.
private struct Ground {
  /// How the ground rises away from a foot.
  private static let slope = 0.15

  /// The first column that has an entry, which may lie before the picture.
  private let first: Int
  /// The ground's height in each column, downwards; and how far the subject's lowest pixel is above it, infinite where
  /// there is none.
  private let level: [Double]
  private let gap: [Double]
  private let sigma: Double

  init(_ alpha: UnsafeRawBufferPointer, _ width: Int, _ box: Rectangle, sigma: Double) {
    self.sigma = sigma
    // As far beside the subject as the shadow reaches.
    let reach = Int((9 * sigma).rounded(.up))
    first = box.x - reach
    let count = box.width + 2 * reach
    var lowest = [Double](repeating: -.infinity, count: count)
    for x in 0..<box.width {
      let column = box.x + x
      for y in stride(from: box.y + box.height - 1, through: box.y, by: -1) where alpha[y * width + column] >= 128 {
        lowest[reach + x] = Double(y + 1)
        break
      }
    }
    var ground = lowest
    for x in 1..<count { ground[x] = max(ground[x], ground[x - 1] - Self.slope) }
    for x in (0..<count - 1).reversed() { ground[x] = max(ground[x], ground[x + 1] - Self.slope) }
    gap = zip(ground, lowest).map { $0 - $1 }
    level = ground
  }

  /// How dark the shadow is, 0…255, in a picture of these sides.
  func coverage(width: Int, height: Int) -> [UInt8] {
    var light = [Float](repeating: 1, count: width * height)
    shade(&light, width, height, across: sigma, down: 0.4 * sigma, height: 0.5 * sigma, strength: 0.7)
    shade(&light, width, height, across: 3 * sigma, down: 1.1 * sigma, height: 2.5 * sigma, strength: 0.5)
    return light.map { UInt8(((1 - $0) * 255).rounded()) }
  }

  /// Takes light away.
  ///
  /// - Parameters:
  ///   - across: sigma along the ground.
  ///   - down: sigma down the picture.
  ///   - tall: how far above the ground the subject still shades it.
  private func shade(
    _ light: inout [Float], _ width: Int, _ height: Int, across: Double, down: Double, height tall: Double,
    strength: Double
  ) {
    var weights = gap.map { exp(-($0 / tall) * ($0 / tall)) }
    // Where the shadow of a column lies after the blur: at the mean of the levels it comes from.
    var levels = zip(weights, level).map { $0 > 0 ? $0 * $1 : 0 }
    Self.blur(&weights, across)
    Self.blur(&levels, across)
    let reach = 3.5 * down
    light.withUnsafeMutableBufferPointer { light in
      for x in max(0, first)..<min(width, first + weights.count) {
        let weight = weights[x - first]
        guard weight > 0.002 else { continue }
        let centre = levels[x - first] / weight
        for y in max(0, Int(centre - reach))..<max(0, min(height, Int(centre + reach) + 1)) {
          let distance = (Double(y) + 0.5 - centre) / down
          light[y * width + x] *= Float(1 - strength * weight * exp(-distance * distance / 2))
        }
      }
    }
  }

  /// A Gaussian by three running means (W. M. Wells, "Efficient Synthesis of Gaussian Filters by Cascaded Uniform
  /// Filters", 1986). Beyond the ends there is nothing.
  private static func blur(_ values: inout [Double], _ sigma: Double) {
    // Three means over n values have a variance of (n² − 1) / 4.
    let radius = max(0, Int(((4 * sigma * sigma + 1).squareRoot() / 2).rounded()))
    guard radius > 0 else { return }
    let scale = 1 / Double(2 * radius + 1)
    for _ in 0..<3 {
      let before = values
      var sum = before.prefix(radius).reduce(0, +)
      for i in values.indices {
        if i + radius < before.count { sum += before[i + radius] }
        if i - radius - 1 >= 0 { sum -= before[i - radius - 1] }
        values[i] = max(0, sum * scale)
      }
    }
  }
}
