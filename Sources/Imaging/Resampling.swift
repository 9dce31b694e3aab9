import CVips

/// Changing the number of pixels.
enum Resampling {
  /// How far the JPEG decoder may shrink by itself, for a picture that is to become `ratio` times smaller.
  ///
  /// The filter is left a factor of 1.25 or more: with that the result differs from that of a full decode by 42 to
  /// 53 dB on photographs (48 to 53 at 2,725 to 800 pixels), and with less by 36 to 42.
  static func jpegShrink(_ ratio: Double) -> Int { ratio >= 10 ? 8 : ratio >= 5 ? 4 : ratio >= 2.5 ? 2 : 1 }

  /// The scale for the WebP decoder, which averages over areas; the filter is left a factor of 2.
  static func webpScale(_ ratio: Double) -> Double { ratio > 4 ? 2 / ratio : 1 }

  /// Scales to exactly these sides. The band format stays; alpha is premultiplied for the time.
  ///
  /// - Parameter shrunk: how many times the decoder has shrunk the picture of `full` pixels already.
  static func scale(
    _ image: VipsRef, toWidth width: Int, height: Int, _ kernel: Kernel,
    shrunk: Int = 1, from full: (width: Int, height: Int)? = nil
  ) throws(ImagingError) -> VipsRef {
    guard image.width != width || image.height != height || shrunk > 1 else { return image }
    if shrunk > 1, let full {
      return try align(image, shrunk: shrunk, full, toWidth: width, height: height, kernel)
    }
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

  /// Scales what a decoder has shrunk, so that it lies where the whole picture would.
  ///
  /// 2,725 pixels shrunk twice are 1,362 and a half, of which the decoder gives 1,362. Scaled to the target as they are
  /// they would lie up to a third of a pixel beside; 15 dB of difference. So the half is kept in the scale: some more
  /// pixels are added at the end, the result comes out that much larger, and is cut.
  private static func align(
    _ image: VipsRef, shrunk: Int, _ full: (width: Int, height: Int), toWidth width: Int, height: Int, _ kernel: Kernel
  ) throws(ImagingError) -> VipsRef {
    let across = Alignment(full: full.width, shrunk: shrunk, has: image.width, target: width)
    let down = Alignment(full: full.height, shrunk: shrunk, has: image.height, target: height)
    let padded = try vips("extending the edge") {
      cvips_embed_copy(image.pointer, $0, 0, 0, Int32(across.padded), Int32(down.padded))
    }
    let scaled = try vips("resizing \(full.width)×\(full.height) to \(width)×\(height)") {
      cvips_resize(padded.pointer, $0, 1 / across.ratio, 1 / down.ratio, kernel.vips)
    }
    return try vips("cutting the extended edge") {
      cvips_embed_copy(scaled.pointer, $0, 0, 0, Int32(width), Int32(height))
    }
  }

  /// How many pixels to add on one axis so that the scaled length is a whole number to within a few hundredths.
  private struct Alignment {
    let padded: Int
    /// Shrunk pixels per pixel of the result.
    let ratio: Double

    init(full: Int, shrunk: Int, has: Int, target: Int) {
      ratio = Double(full) / Double(shrunk) / Double(target)
      var best = (padded: has, error: Double.infinity)
      for extra in 0..<16 {
        let length = Double(target + extra) * ratio
        let padded = max(has, Int(length.rounded()))
        // libvips centres what is left over, so half of it is the shift.
        let error = abs(Double(padded) - length) / ratio
        if error < best.error - 0.01 { best = (padded, error) }
      }
      padded = best.padded
    }
  }

  /// Shrinks what has to shrink, and then enlarges the rest.
  static func filter(
    _ image: VipsRef, _ width: Int, _ height: Int, _ kernel: Kernel
  ) throws(ImagingError) -> VipsRef {
    let small = try shrunk(image, min(image.width, width), min(image.height, height), kernel)
    guard small.width != width || small.height != height else { return small }
    // Not by `vips_resize`, which leaves what it enlarges half a pixel too far right and below. Middles of pixels lie at
    // whole numbers; the interpolator `nearest` takes whole numbers for their upper left corners.
    let scale = (Double(width) / Double(small.width), Double(height) / Double(small.height))
    let offset = kernel == .nearest ? [-0.5, -0.5] : [(scale.0 - 1) / 2, (scale.1 - 1) / 2]
    return try vips("resizing \(image.width)×\(image.height) to \(width)×\(height)") {
      cvips_affine(
        small.pointer, $0, [scale.0, 0, 0, scale.1], offset, Int32(width), Int32(height), kernel.interpolator,
        VIPS_EXTEND_COPY)
    }
  }

  private static func shrunk(
    _ image: VipsRef, _ width: Int, _ height: Int, _ kernel: Kernel
  ) throws(ImagingError) -> VipsRef {
    guard image.width != width || image.height != height else { return image }
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

  /// What enlarges, as libvips pairs them.
  fileprivate var interpolator: String {
    switch self {
    case .nearest: "nearest"
    case .linear: "bilinear"
    case .lanczos3, .lanczos2, .mitchell, .cubic: "bicubic"
    }
  }
}
