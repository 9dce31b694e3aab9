import Glibc

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
    /// Degrees as in CSS: 0 goes to the top, 90 to the right, clockwise. It runs from corner to corner.
    case linear(angle: Double)
    /// A circle around a centre (0…1 of each side) that reaches the farthest corner.
    case radial(centerX: Double = 0.5, centerY: Double = 0.5)
  }
  public let shape: Shape
  public let stops: [Stop]
  /// The stops' places, none left open.
  let positions: [Double]

  /// - Throws: `geometry` for fewer than two stops, positions that fall or lie outside 0…1, or numbers that are not
  ///   finite.
  public init(_ shape: Shape, stops: [Stop]) throws(ImagingError) {
    guard stops.count >= 2 else { throw ImagingError(.geometry, "a gradient needs two colours or more") }
    switch shape {
    case .linear(let angle):
      guard angle.isFinite else { throw ImagingError(.geometry, "a gradient's angle must be a number of degrees") }
    case .radial(let x, let y):
      guard x.isFinite, y.isFinite, abs(x) <= 1000, abs(y) <= 1000 else {
        throw ImagingError(.geometry, "a gradient's centre must be given as parts of the sides, 0 to 1")
      }
    }
    var places = stops.map(\.position)
    places[0] = places[0] ?? 0
    places[places.count - 1] = places[places.count - 1] ?? 1
    var positions: [Double] = []
    for (i, place) in places.enumerated() {
      if let place {
        positions.append(place)
      } else {
        let next = places[i...].firstIndex { $0 != nil } ?? i
        let from = positions[i - 1]
        positions.append(from + ((places[next] ?? 1) - from) / Double(next - i + 1))
      }
    }
    for (i, position) in positions.enumerated() {
      guard position >= 0, position <= 1, i == 0 || position >= positions[i - 1] else {
        throw ImagingError(.geometry, "a gradient's positions must lie in 0 to 1 and not fall")
      }
    }
    self.shape = shape
    self.stops = stops
    self.positions = positions
  }
}

extension Image {
  /// Draws a gradient: 3 bands where all stops are opaque, else 4 with straight alpha.
  ///
  /// Colours are interpolated premultiplied in sRGB, as CSS does. The geometry is that of CSS Images 3 (sections 3.1,
  /// 3.2), taken between the centres of the outermost pixels, so that the end stops fall on pixels. Values between two
  /// levels are dithered with a fixed pattern, so that smooth gradients do not band; whole values stay exact.
  /// - Throws: `geometry` for sides that make no picture, `memory`.
  public static func gradient(_ gradient: Gradient, width: Int, height: Int) throws(ImagingError) -> Image {
    try Libvips.start()
    guard width > 0, height > 0, max(width, height) <= 1_000_000, width * height <= 1 << 30 else {
      throw ImagingError(.geometry, "\(width)×\(height) pixels make no picture")
    }
    let opaque = gradient.stops.allSatisfy(\.color.isOpaque)
    let bands = opaque ? 3 : 4
    var pixels = [UInt8](repeating: 0, count: width * height * bands)
    pixels.withUnsafeMutableBufferPointer { gradient.draw(into: $0, width: width, height: height, bands: bands) }
    return try Image(width: width, height: height, bands: bands, bytes: pixels)
  }
}

extension Gradient {
  /// A colour as floating point, premultiplied: r, g, b, a in 0…255.
  private typealias Colour = SIMD4<Double>

  fileprivate func draw(into pixels: UnsafeMutableBufferPointer<UInt8>, width: Int, height: Int, bands: Int) {
    let colours = stops.map { stop -> Colour in
      let (c, a) = (stop.color, Double(stop.color.a))
      return Colour(Double(c.r) * a / 255, Double(c.g) * a / 255, Double(c.b) * a / 255, a)
    }
    let (right, bottom) = (Double(width - 1), Double(height - 1))
    // t = (x · dx + y · dy + offset), or the distance from a centre over the radius.
    var (dx, dy, offset, centreX, centreY, radius) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    switch shape {
    case .linear(let angle):
      let (sine, cosine) = Self.sineCosine(degrees: angle)
      let length = abs(right * sine) + abs(bottom * cosine)
      if length > 0 {
        (dx, dy) = (sine / length, -cosine / length)
        offset = 0.5 - (right * dx + bottom * dy) / 2
      } else {
        offset = 0.5
      }
    case .radial(let x, let y):
      (centreX, centreY) = (x * right, y * bottom)
      let (farX, farY) = (max(abs(centreX), abs(right - centreX)), max(abs(centreY), abs(bottom - centreY)))
      radius = (farX * farX + farY * farY).squareRoot()
    }
    let isRadial = radius > 0
    var i = 0
    for y in 0..<height {
      for x in 0..<width {
        let t: Double
        if isRadial {
          let (awayX, awayY) = (Double(x) - centreX, Double(y) - centreY)
          t = (awayX * awayX + awayY * awayY).squareRoot() / radius
        } else {
          t = Double(x) * dx + Double(y) * dy + offset
        }
        let colour = Self.colour(at: t, colours, positions)
        let threshold = Self.noise(x, y)
        var scale = 1.0
        if bands == 4 {
          pixels[i + 3] = Self.dithered(colour.w, threshold)
          scale = colour.w > 0 ? 255 / colour.w : 0
        }
        pixels[i] = Self.dithered(colour.x * scale, threshold)
        pixels[i + 1] = Self.dithered(colour.y * scale, threshold)
        pixels[i + 2] = Self.dithered(colour.z * scale, threshold)
        i += bands
      }
    }
  }

  private static func colour(at t: Double, _ colours: [Colour], _ positions: [Double]) -> Colour {
    var next = 0
    while next < positions.count, positions[next] <= t { next += 1 }
    guard next > 0 else { return colours[0] }
    guard next < positions.count else { return colours[positions.count - 1] }
    let part = (t - positions[next - 1]) / (positions[next] - positions[next - 1])
    return colours[next - 1] + (colours[next] - colours[next - 1]) * part
  }

  /// A fixed threshold in 0..<1, spread evenly among neighbours (interleaved gradient noise, J. Jimenez, 2014).
  private static func noise(_ x: Int, _ y: Int) -> Double {
    let inner = 0.06711056 * Double(x) + 0.00583715 * Double(y)
    let outer = 52.9829189 * (inner - inner.rounded(.down))
    return outer - outer.rounded(.down)
  }

  private static func dithered(_ value: Double, _ threshold: Double) -> UInt8 {
    let whole = value.rounded()
    // A whole value that arithmetic has put a hair beside itself must not be dithered.
    let result = abs(value - whole) < 1e-6 ? whole : (value + threshold).rounded(.down)
    return UInt8(min(255, max(0, result)))
  }

  /// Exact at whole quarter turns, where gradients are mostly used.
  private static func sineCosine(degrees: Double) -> (Double, Double) {
    let turn = degrees.truncatingRemainder(dividingBy: 360)
    let angle = turn < 0 ? turn + 360 : turn
    switch angle {
    case 0: return (0, 1)
    case 90: return (1, 0)
    case 180: return (0, -1)
    case 270: return (-1, 0)
    default: return (sin(angle * .pi / 180), cos(angle * .pi / 180))
    }
  }
}
