import CVips

extension Image {
  /// A colour with `coverage` (1 band of 8 bits) as its alpha, times the colour's own alpha and `opacity` (0…1).
  public static func ink(_ colour: RGBA, coverage: Image, opacity: Double = 1) throws(ImagingError) -> Image {
    let opaque = try Image.solid(
      width: coverage.width, height: coverage.height, RGBA(colour.r, colour.g, colour.b))
    return try opaque.withAlpha(coverage.faded(colour.alpha * opacity))
  }

  /// The picture with its alpha times `opacity` (0…1); it has alpha afterwards in any case.
  public func fadedAlpha(_ opacity: Double) throws(ImagingError) -> Image {
    let source = hasAlpha ? self : try withAlpha(.white(width, height))
    guard opacity < 1 else { return source }
    let level = try Image(width: 1, height: 1, bands: 1, bytes: [255]).faded(opacity)
    let whole = try vips("filling") { cvips_embed_copy(level.ref.pointer, $0, 0, 0, Int32(width), Int32(height)) }
    return try source.multipliedAlpha(by: Image(adopting: whole, lazyFrom: nil))
  }

  /// A matte times a share of 0…1, rounded half up.
  private func faded(_ share: Double) throws(ImagingError) -> Image {
    guard share < 1 else { return self }
    let scaled = try vips("fading") { cvips_linear1(ref.pointer, $0, max(0, share), 0.5) }
    return derived(try vips("fading") { cvips_cast(scaled.pointer, $0, VIPS_FORMAT_UCHAR, 0) })
  }

  /// With `mark`, which has alpha, laid on it; its upper left pixel comes to lie on `x`, `y`.
  ///
  /// The mark takes on the picture's colour space and depth; a picture in a profile of grey becomes sRGB first. Pixels
  /// beside the mark come through exactly.
  /// - Throws: `geometry` where the mark does not lie within the picture, or the picture is a matte.
  public func stamped(with mark: Image, x: Int, y: Int) throws(ImagingError) -> Image {
    guard bands >= 3 else {
      throw ImagingError(.geometry, "a watermark cannot be put on a mask", hint: "put it on the picture itself")
    }
    let base = try holdingColour(isGrey: false).materialised()
    let region = try base.cropped(x: x, y: y, width: mark.width, height: mark.height)
    let ink = try mark.converted(to: base.space).withDepth(base.depth)
    let laid = try ink.composited(over: region)
    let whole = try vips("laying on a watermark") {
      cvips_insert(base.ref.pointer, laid.ref.pointer, $0, Int32(x), Int32(y))
    }
    return try base.derived(whole, ink).materialised()
  }

  /// With `mark` repeated all over, `spacing` pixels apart. One of the marks lies in the middle, as a single one would.
  ///
  /// - Throws: as `stamped(with:x:y:)`.
  public func tiled(with mark: Image, spacing: Int) throws(ImagingError) -> Image {
    let mark = try mark.materialised()
    let (stepX, stepY) = (mark.width + spacing, mark.height + spacing)
    // Where the pattern begins: the distance from a tile's start to the picture's left and upper edge.
    func phase(_ side: Int, _ mark: Int, _ step: Int) -> Int {
      let first = (side - mark).quotientFloor(2)
      return ((step - first) % step + step) % step
    }
    let (left, top) = (phase(width, mark.width, stepX), phase(height, mark.height, stepY))
    let tile = try mark.padded(to: Canvas(x: 0, y: 0, width: stepX, height: stepY), .color(.transparent))
    let pattern = try vips("repeating a watermark") {
      cvips_replicate(
        tile.ref.pointer, $0, Int32((left + width) / stepX + 1), Int32((top + height) / stepY + 1))
    }
    let part = try mark.derived(pattern).cropped(x: left, y: top, width: width, height: height)
    return try stamped(with: part, x: 0, y: 0)
  }
}
