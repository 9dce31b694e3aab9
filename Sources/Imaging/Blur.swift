import CVips

extension Image {
  /// Gaussian blur, radius `sigma` in pixels; colours are weighed by alpha.
  ///
  /// - Throws: `geometry` unless sigma is above 0 and at most 1,000.
  public func blurred(sigma: Double) throws(ImagingError) -> Image {
    try Self.check(sigma)
    let still = try materialised()
    guard hasAlpha, try still.isOpaque() == false else {
      let soft = try Self.blur(still.ref, sigma)
      return still.derived(try Resampling.rounded(soft, to: ref.format))
    }
    let last = Int32(bands - 1)
    let heavy = try vips("premultiplying alpha") { cvips_premultiply(still.ref.pointer, $0, most) }
    let soft = try Self.blur(heavy, sigma)
    let straight = try vips("unpremultiplying alpha") { cvips_unpremultiply(soft.pointer, $0, most, last) }
    return still.derived(try Resampling.rounded(straight, to: ref.format))
  }

  /// The background of a photo blurred, without the subject glowing into it.
  ///
  /// blur(rgb · w) / blur(w) with w = 1 − m and m the matte in 0…1. To w is added a thousandth, so that the middle of a
  /// large subject, where no background is near, gets the plain blur.
  /// - Parameters:
  ///   - original: the photo; its alpha is ignored. 3 bands come back.
  ///   - matte: 1 band, same sides, 255 on the subject.
  /// - Throws: `geometry` for other sides, or unless sigma is above 0 and at most 1,000.
  public static func backgroundBlur(original: Image, matte: Image, sigma: Double) throws(ImagingError) -> Image {
    try check(sigma)
    guard matte.bands == 1, matte.width == original.width, matte.height == original.height, original.bands >= 3 else {
      throw ImagingError(
        .geometry,
        "a matte of \(matte.width)×\(matte.height) with \(matte.bands) bands does not go with a picture of "
          + "\(original.width)×\(original.height)")
    }
    let colour = try original.withoutAlpha().materialised()
    let mask = try matte.materialised()
    let weight = try vips("weighing the background") { cvips_linear1(mask.ref.pointer, $0, -1, 255.25) }
    let weighed = try vips("weighing the background") { cvips_multiply(colour.ref.pointer, weight.pointer, $0) }
    let sums = try blur(weighed, sigma)
    let weights = try blur(weight, sigma)
    let ratio = try vips("blurring the background") { cvips_divide(sums.pointer, weights.pointer, $0) }
    return colour.derived(try Resampling.rounded(ratio, to: colour.ref.format))
  }

  private static func check(_ sigma: Double) throws(ImagingError) {
    guard sigma > 0, sigma <= 1000 else {
      throw ImagingError(.geometry, "a blur of \(sigma) pixels is not possible; sigma is above 0 and at most 1000")
    }
  }

  /// A blur in floating point. A wide one is done on a smaller picture: a Gaussian leaves nothing that needs the pixels.
  private static func blur(_ image: VipsRef, _ sigma: Double) throws(ImagingError) -> VipsRef {
    let float =
      image.format == VIPS_FORMAT_FLOAT
      ? image : try vips("converting") { cvips_cast(image.pointer, $0, VIPS_FORMAT_FLOAT, 0) }
    let factor = max(1, Int(sigma / 3))
    guard factor > 1 else {
      return try vips("blurring") { cvips_gaussblur(float.pointer, $0, sigma, VIPS_PRECISION_FLOAT) }
    }
    let width = max(1, image.width / factor)
    let height = max(1, image.height / factor)
    let small = try Resampling.filter(float, width, height, .linear)
    let soft = try vips("blurring") {
      cvips_gaussblur(small.pointer, $0, sigma / Double(factor), VIPS_PRECISION_FLOAT)
    }
    // Held in memory, since enlarging asks for its pixels again and again.
    guard let memory = vips_image_copy_memory(soft.pointer) else {
      throw ImagingError(.memory, "blurring failed", detail: Libvips.drainErrors())
    }
    return try Resampling.filter(VipsRef(adopting: memory), image.width, image.height, .cubic)
  }
}
