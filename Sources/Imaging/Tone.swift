import CVips

extension Image {
  /// Its colours moved towards grey by `desaturation`, then darkened by `dimming`, each 0…1; alpha stays.
  ///
  /// Grey is the luma 0.2126 R + 0.7152 G + 0.0722 B of the stored values, so that this is what CSS draws for
  /// `grayscale()` and `brightness(1 − dimming)` (Filter Effects Level 1). Rounded half up, once for both.
  /// - Throws: `geometry` for a matte, or shares outside 0…1.
  public func toned(desaturation: Double, dimming: Double) throws(ImagingError) -> Image {
    guard bands >= 3, (0...1).contains(desaturation), (0...1).contains(dimming) else {
      throw ImagingError(.geometry, "a picture of \(bands) bands cannot be toned by \(desaturation) and \(dimming)")
    }
    guard desaturation > 0 || dimming > 0 else { return self }
    let luma = [0.2126, 0.7152, 0.0722]
    var matrix: [Double] = []
    for row in 0..<3 {
      for column in 0..<3 {
        let kept = row == column ? 1 - desaturation : 0
        matrix.append((kept + luma[column] * desaturation) * (1 - dimming))
      }
    }
    let colour = try withoutAlpha()
    let mixed = try vips("toning") { cvips_recomb3(colour.ref.pointer, $0, matrix) }
    let whole = try Resampling.rounded(mixed, to: ref.format)
      .named(depth == 16 ? VIPS_INTERPRETATION_RGB16 : VIPS_INTERPRETATION_sRGB)
    guard hasAlpha else { return derived(whole) }
    let alpha = try vips("separating alpha") { cvips_extract_band(ref.pointer, $0, 3, 1) }
    return derived(try vips("joining alpha") { cvips_bandjoin2(whole.pointer, alpha.pointer, $0) })
  }
}
