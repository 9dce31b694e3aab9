import CVips

/// Changing the number of pixels.
enum Resampling {
  /// How far the JPEG decoder may shrink by itself, for a picture that is to become `ratio` times smaller.
  ///
  /// The rest, 1 to 2 times, is left to the resampling filter.
  static func jpegShrink(_ ratio: Double) -> Int { ratio >= 8 ? 8 : ratio >= 4 ? 4 : ratio >= 2 ? 2 : 1 }

  /// The scale for the WebP decoder, which averages over areas; the filter is left a factor of 2.
  static func webpScale(_ ratio: Double) -> Double { ratio > 4 ? 2 / ratio : 1 }

  /// Scales to exactly these sides. The band format stays; alpha is premultiplied for the time.
  static func scale(
    _ image: VipsRef, toWidth width: Int, height: Int, _ kernel: Kernel
  ) throws(ImagingError) -> VipsRef {
    guard image.width != width || image.height != height else { return image }
    guard image.hasAlpha && image.bands > 1 && kernel != .nearest else {
      return try filter(image, width, height, kernel)
    }
    let format = image.format
    let most: Double =
      switch format {
      case VIPS_FORMAT_USHORT: 65_535
      case VIPS_FORMAT_FLOAT, VIPS_FORMAT_DOUBLE: 1
      default: 255
      }
    let last = Int32(image.bands - 1)
    let heavy = try vips("premultiplying alpha") { cvips_premultiply(image.pointer, $0, most) }
    let scaled = try filter(heavy, width, height, kernel)
    let straight = try vips("unpremultiplying alpha") { cvips_unpremultiply(scaled.pointer, $0, most, last) }
    return try rounded(straight, to: format)
  }

  /// To whole numbers, rounding half up and clipping; a cast alone would cut off.
  static func rounded(_ image: VipsRef, to format: VipsBandFormat) throws(ImagingError) -> VipsRef {
    guard image.format != format else { return image }
    guard format != VIPS_FORMAT_FLOAT && format != VIPS_FORMAT_DOUBLE else {
      return try vips("converting") { cvips_cast(image.pointer, $0, format, 0) }
    }
    let shifted = try vips("rounding") { cvips_linear1(image.pointer, $0, 1, 0.5) }
    return try vips("rounding") { cvips_cast(shifted.pointer, $0, format, 0) }
  }

  static func filter(
    _ image: VipsRef, _ width: Int, _ height: Int, _ kernel: Kernel
  ) throws(ImagingError) -> VipsRef {
    let scaled = try vips("resizing \(image.width)×\(image.height) to \(width)×\(height)") {
      cvips_resize(
        image.pointer, $0, Double(width) / Double(image.width), Double(height) / Double(image.height), kernel.vips)
    }
    // libvips rounds in two steps and may end a pixel beside the target; its edge is repeated or cut then.
    guard scaled.width != width || scaled.height != height else { return scaled }
    return try vips("fitting \(scaled.width)×\(scaled.height) to \(width)×\(height)") {
      cvips_embed_copy(scaled.pointer, $0, 0, 0, Int32(width), Int32(height))
    }
  }
}

extension Kernel {
  var vips: VipsKernel {
    switch self {
    case .lanczos3: VIPS_KERNEL_LANCZOS3
    case .lanczos2: VIPS_KERNEL_LANCZOS2
    case .mitchell: VIPS_KERNEL_MITCHELL
    case .cubic: VIPS_KERNEL_CUBIC
    case .linear: VIPS_KERNEL_LINEAR
    case .nearest: VIPS_KERNEL_NEAREST
    }
  }
}
