import CVips

/// How the colours of what is laid on mix with those below: the modes of libvips, by its names.
public enum BlendMode: String, CaseIterable, Sendable {
  case clear, source, over
  case inside = "in"
  case outside = "out"
  case atop, dest
  case destOver = "dest-over"
  case destIn = "dest-in"
  case destOut = "dest-out"
  case destAtop = "dest-atop"
  case xor, add, saturate, multiply, screen, overlay, darken, lighten
  case colourDodge = "colour-dodge"
  case colourBurn = "colour-burn"
  case hardLight = "hard-light"
  case softLight = "soft-light"
  case difference, exclusion

  /// Whether the result is opaque everywhere, when it is known which of both pictures is.
  public func isOpaque(above: Bool, below: Bool) -> Bool {
    switch self {
    case .clear, .outside, .destOut, .xor: false
    case .inside, .destIn: above && below
    case .source, .destAtop: above
    case .atop, .dest: below
    default: above || below
    }
  }
}

extension Image {
  /// Laid on `below`, which must have the same sides, by a blend mode. The metadata of the upper image stays.
  ///
  /// Colours are mixed as stored values of this image's space and depth, with straight alpha. The result has alpha
  /// where `below` has, or the mode makes it. Formulas: Compositing and Blending Level 1 (sections 9 and 10), and for
  /// `saturate` that of the cairo library; `over` is `composited(over:)`, where opaque pixels come through exactly.
  /// - Throws: `geometry` for other sides and for mattes, `memory`.
  public func blended(onto below: Image, _ mode: BlendMode) throws(ImagingError) -> Image {
    guard mode != .over else { return try composited(over: below) }
    try checkLaying(on: below)
    let above = try holdingColour(isGrey: below.isGrey)
    let backdrop = try below.converted(to: above.space).withDepth(above.depth)
    let bands = mode.isOpaque(above: !above.hasAlpha, below: !backdrop.hasAlpha) ? 3 : 4
    let mixed: Image
    if above.depth == 16 {
      mixed = try Image(
        width: width, height: height, bands: bands, samples: Blending.mix(above, backdrop, mode, bands: bands))
    } else {
      mixed = try Image(
        width: width, height: height, bands: bands, bytes: Blending.mix(above, backdrop, mode, bands: bands))
    }
    return try above.derived(mixed.ref, backdrop).withMetadata(of: above)
  }
}

/// The arithmetic of blend modes.
///
/// libvips has these modes too, but not right where alpha is partial: 8.14 mixes premultiplied colours, and multiplying
/// white at 70 % with white gives grey. Soft edges would get dark seams.
private enum Blending {
  /// Red, green and blue in 0…1; the fourth number is spare.
  typealias Colour = SIMD4<Float>

  static func mix<Sample: FixedWidthInteger & UnsignedInteger>(
    _ above: Image, _ below: Image, _ mode: BlendMode, bands: Int
  ) throws(ImagingError) -> [Sample] {
    var result = [Sample](repeating: 0, count: above.width * above.height * bands)
    let done = try below.withPixels { lower -> Result<Void, ImagingError> in
      do throws(ImagingError) {
        try above.withPixels { upper in
          result.withUnsafeMutableBufferPointer { out in
            let above = Layer(samples: upper.bindMemory(to: Sample.self), bands: above.bands)
            let below = Layer(samples: lower.bindMemory(to: Sample.self), bands: below.bands)
            mix(above, below, into: out, bands, mode)
          }
        }
        return .success(())
      } catch {
        return .failure(error)
      }
    }
    try done.get()
    return result
  }

  struct Layer<Sample: FixedWidthInteger & UnsignedInteger> {
    let samples: UnsafeBufferPointer<Sample>
    let bands: Int

    @inline(__always)
    func pixel(_ index: Int) -> (colour: Colour, alpha: Float) {
      let i = index * bands
      let scale = 1 / Float(Sample.max)
      let colour = Colour(Float(samples[i]), Float(samples[i + 1]), Float(samples[i + 2]), 0) * scale
      return (colour, bands == 4 ? Float(samples[i + 3]) * scale : 1)
    }

    @inline(__always)
    func copy(_ index: Int, to out: UnsafeMutableBufferPointer<Sample>, _ outBands: Int) {
      let (i, o) = (index * bands, index * outBands)
      out[o] = samples[i]
      out[o + 1] = samples[i + 1]
      out[o + 2] = samples[i + 2]
      if outBands == 4 { out[o + 3] = bands == 4 ? samples[i + 3] : Sample.max }
    }
  }

  private static func mix<Sample>(
    _ above: Layer<Sample>, _ below: Layer<Sample>, into out: UnsafeMutableBufferPointer<Sample>, _ bands: Int,
    _ mode: BlendMode
  ) {
    switch mode {
    case .clear: compose(above, below, into: out, bands) { _, _ in (0, 0) }
    case .source: compose(above, below, into: out, bands) { _, _ in (1, 0) }
    case .over: compose(above, below, into: out, bands) { upper, _ in (1, 1 - upper) }
    case .inside: compose(above, below, into: out, bands) { _, lower in (lower, 0) }
    case .outside: compose(above, below, into: out, bands) { _, lower in (1 - lower, 0) }
    case .atop: compose(above, below, into: out, bands) { upper, lower in (lower, 1 - upper) }
    case .dest: compose(above, below, into: out, bands) { _, _ in (0, 1) }
    case .destOver: compose(above, below, into: out, bands) { _, lower in (1 - lower, 1) }
    case .destIn: compose(above, below, into: out, bands) { upper, _ in (0, upper) }
    case .destOut: compose(above, below, into: out, bands) { upper, _ in (0, 1 - upper) }
    case .destAtop: compose(above, below, into: out, bands) { upper, lower in (1 - lower, upper) }
    case .xor: compose(above, below, into: out, bands) { upper, lower in (1 - lower, 1 - upper) }
    case .add: compose(above, below, into: out, bands) { _, _ in (1, 1) }
    case .saturate:
      compose(above, below, into: out, bands) { upper, lower in (upper > 1 - lower ? (1 - lower) / upper : 1, 1) }
    case .multiply: blend(above, below, into: out, bands) { s, b in s * b }
    case .screen: blend(above, below, into: out, bands) { s, b in screen(s, b) }
    case .overlay: blend(above, below, into: out, bands) { s, b in hardLight(b, s) }
    case .darken: blend(above, below, into: out, bands) { s, b in least(s, b) }
    case .lighten: blend(above, below, into: out, bands) { s, b in most(s, b) }
    case .colourDodge:
      blend(above, below, into: out, bands) { s, b in
        least(b / (1 - s), Colour(repeating: 1)).replacing(with: 0, where: b .== 0)
      }
    case .colourBurn:
      blend(above, below, into: out, bands) { s, b in
        (1 - least((1 - b) / s, Colour(repeating: 1))).replacing(with: 1, where: b .== 1)
      }
    case .hardLight: blend(above, below, into: out, bands) { s, b in hardLight(s, b) }
    case .softLight:
      blend(above, below, into: out, bands) { s, b in
        let curve = (((16 * b - 12) * b + 4) * b).replacing(with: b.squareRoot(), where: b .> 0.25)
        let dark = b - (1 - 2 * s) * b * (1 - b)
        return dark.replacing(with: b + (2 * s - 1) * (curve - b), where: s .> 0.5)
      }
    case .difference: blend(above, below, into: out, bands) { s, b in most(s - b, b - s) }
    case .exclusion: blend(above, below, into: out, bands) { s, b in s + b - 2 * s * b }
    }
  }

  // The standard library's own are calls, not instructions.
  @inline(__always)
  private static func least(_ a: Colour, _ b: Colour) -> Colour { a.replacing(with: b, where: b .< a) }

  @inline(__always)
  private static func most(_ a: Colour, _ b: Colour) -> Colour { a.replacing(with: b, where: b .> a) }

  @inline(__always)
  private static func screen(_ s: Colour, _ b: Colour) -> Colour { s + b - s * b }

  @inline(__always)
  private static func hardLight(_ s: Colour, _ b: Colour) -> Colour {
    (2 * s * b).replacing(with: screen(2 * s - 1, b), where: s .> 0.5)
  }

  /// Where both are, the colours are mixed; elsewhere each stays.
  @inline(__always)
  private static func blend<Sample>(
    _ above: Layer<Sample>, _ below: Layer<Sample>, into out: UnsafeMutableBufferPointer<Sample>, _ bands: Int,
    _ mixture: (_ source: Colour, _ backdrop: Colour) -> Colour
  ) {
    for index in 0..<out.count / bands {
      let upper = above.pixel(index)
      // Most of a cut-out is transparent.
      guard upper.alpha > 0 else {
        below.copy(index, to: out, bands)
        continue
      }
      let lower = below.pixel(index)
      let alpha = upper.alpha + lower.alpha * (1 - upper.alpha)
      let colour =
        upper.alpha * (1 - lower.alpha) * upper.colour + lower.alpha * (1 - upper.alpha) * lower.colour
        + upper.alpha * lower.alpha * mixture(upper.colour, lower.colour)
      store(colour, alpha, out, index * bands, bands)
    }
  }

  /// Each shows by a factor that depends on both alphas.
  @inline(__always)
  private static func compose<Sample>(
    _ above: Layer<Sample>, _ below: Layer<Sample>, into out: UnsafeMutableBufferPointer<Sample>, _ bands: Int,
    _ factors: (_ upper: Float, _ lower: Float) -> (Float, Float)
  ) {
    for index in 0..<out.count / bands {
      let (upper, lower) = (above.pixel(index), below.pixel(index))
      let (first, second) = factors(upper.alpha, lower.alpha)
      let (shareAbove, shareBelow) = (upper.alpha * first, lower.alpha * second)
      let colour = shareAbove * upper.colour + shareBelow * lower.colour
      store(colour, min(1, shareAbove + shareBelow), out, index * bands, bands)
    }
  }

  /// Stores a premultiplied colour with straight alpha, rounded half up.
  @inline(__always)
  private static func store<Sample: FixedWidthInteger & UnsignedInteger>(
    _ colour: Colour, _ alpha: Float, _ out: UnsafeMutableBufferPointer<Sample>, _ i: Int, _ bands: Int
  ) {
    guard alpha > 0 else { return }
    let white = Float(Sample.max)
    let value = least(colour * (white / alpha), Colour(repeating: white)) + 0.5
    out[i] = Sample(truncatingIfNeeded: Int32(value[0]))
    out[i + 1] = Sample(truncatingIfNeeded: Int32(value[1]))
    out[i + 2] = Sample(truncatingIfNeeded: Int32(value[2]))
    if bands == 4 { out[i + 3] = Sample(truncatingIfNeeded: Int32(alpha * white + 0.5)) }
  }
}
