import CVips

/// An unsharp mask on lightness (L of CIELAB, 0…100), as libvips' `sharpen`.
public struct Sharpening: Sendable, Hashable {
  /// The radius of the blur that detail is measured against (sigma), in pixels.
  public var sigma: Double
  /// How much of the detail is added where lightness changes by more than the threshold.
  public var amount: Double
  /// How much of it is added where lightness changes by less: flat areas, noise.
  public var flatAmount: Double
  /// The change of lightness that parts flat areas from edges.
  public var threshold: Double
  /// The most that a pixel becomes lighter and darker.
  public var maxLighten: Double
  public var maxDarken: Double

  public init(
    sigma: Double = 0.5, amount: Double = 3, flatAmount: Double = 0, threshold: Double = 2, maxLighten: Double = 10,
    maxDarken: Double = 20
  ) {
    (self.sigma, self.amount, self.flatAmount) = (sigma, amount, flatAmount)
    (self.threshold, self.maxLighten, self.maxDarken) = (threshold, maxLighten, maxDarken)
  }
}

extension Image {
  /// Sharpened; alpha is left alone, and grey stays grey.
  ///
  /// - Throws: `geometry` for a matte, which holds shares and not light.
  public func sharpened(_ by: Sharpening) throws(ImagingError) -> Image {
    guard bands >= 3 else { throw ImagingError(.geometry, "a mask is not sharpened") }
    let still = try materialised()
    let colour = try still.withoutAlpha()
    let sharp = try vips("sharpening") {
      cvips_sharpen_edges(
        colour.ref.pointer, $0, by.sigma, by.threshold, by.maxLighten, by.maxDarken, by.flatAmount, by.amount)
    }
    var result = try Resampling.rounded(sharp, to: ref.format)
    if isGrey { result = try WorkingSpace.evenGrey(result) }
    guard hasAlpha else { return try derived(result).materialised() }
    let alpha = try vips("taking alpha") { cvips_extract_band(still.ref.pointer, $0, 3, 1) }
    return try derived(
      try vips("joining alpha") { [result] in cvips_bandjoin2(result.pointer, alpha.pointer, $0) }
    ).materialised()
  }
}
