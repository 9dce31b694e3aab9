import CVips

extension Image {
  /// Lends the libvips image to code that is not ours, with its pixels in memory. For the plugin host alone.
  ///
  /// - Throws: what `materialised` throws.
  @_spi(Plugins)
  public func lent<R>(
    _ body: (UnsafeMutableRawPointer) throws(ImagingError) -> R
  ) throws(ImagingError) -> R {
    let still = try materialised()
    defer { withExtendedLifetime(still) {} }
    return try body(UnsafeMutableRawPointer(still.ref.pointer))
  }
}

/// A libvips image that code which is not ours has made: nothing is known about it that was not looked at here. For the
/// plugin host alone.
@_spi(Plugins)
public struct ForeignImage: Sendable {
  private let ref: VipsRef

  /// Takes over one reference.
  public init(adopting pointer: UnsafeMutableRawPointer) {
    ref = VipsRef(adopting: pointer.assumingMemoryBound(to: VipsImage.self))
  }

  public var width: Int { ref.width }
  public var height: Int { ref.height }
  public var bands: Int { ref.bands }
  /// Bits of an unsigned whole sample: 8 or 16; nil for samples of another kind.
  public var depth: Int? {
    guard ref.pointer.pointee.Coding == VIPS_CODING_NONE else { return nil }
    switch ref.format {
    case VIPS_FORMAT_UCHAR: return 8
    case VIPS_FORMAT_USHORT: return 16
    default: return nil
    }
  }
  /// What the samples are, in libvips' word: `uchar`, `float`, or how they are packed.
  public var formatName: String {
    let isPlain = ref.pointer.pointee.Coding == VIPS_CODING_NONE
    return isPlain
      ? Self.name(vips_band_format_get_type(), ref.format.rawValue)
      : Self.name(vips_coding_get_type(), ref.pointer.pointee.Coding.rawValue)
  }
  /// The colour space as the image names it, in libvips' word: `srgb`, `lab`.
  public var interpretationName: String {
    Self.name(vips_interpretation_get_type(), ref.pointer.pointee.Type.rawValue)
  }
  /// Whether the bands may be red, green and blue, or grey: the image says so, or says nothing.
  public var mayBeColour: Bool {
    switch ref.pointer.pointee.Type {
    case VIPS_INTERPRETATION_sRGB, VIPS_INTERPRETATION_RGB, VIPS_INTERPRETATION_RGB16, VIPS_INTERPRETATION_B_W,
      VIPS_INTERPRETATION_GREY16, VIPS_INTERPRETATION_MULTIBAND:
      true
    default: false
    }
  }

  /// Its pixels, computed, with the metadata and the space of `original`. The caller has looked at depth and bands.
  ///
  /// - Throws: what kept the pixels from being computed.
  public func image(like original: Image) throws(ImagingError) -> Image {
    if ref.pointer == original.ref.pointer { return original }
    let isDeep = ref.format == VIPS_FORMAT_USHORT
    let kind =
      ref.bands < 3
      ? (isDeep ? VIPS_INTERPRETATION_GREY16 : VIPS_INTERPRETATION_B_W)
      : (isDeep ? VIPS_INTERPRETATION_RGB16 : VIPS_INTERPRETATION_sRGB)
    // Metadata is set on a copy: the plugin may have kept a reference.
    let copy = try ref.named(kind)
    cvips_remove_metadata(copy.pointer)
    cvips_copy_metadata(copy.pointer, original.ref.pointer)
    copy.pointer.pointee.Xres = original.ref.pointer.pointee.Xres
    copy.pointer.pointee.Yres = original.ref.pointer.pointee.Yres
    return try Image(adopting: copy, lazyFrom: nil, space: original.space).materialised()
  }

  private static func name(_ type: GType, _ value: Int32) -> String {
    vips_enum_nick(type, value).map { String(cString: $0) } ?? "\(value)"
  }
}
