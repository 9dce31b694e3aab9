import CVips

/// A picture of 3 bands, or 4 with straight alpha, 8 or 16 bits a sample; a matte has 1 band of 8 bits.
///
/// Its colours are sRGB unless `space` says otherwise; where `space` is a profile, the profile goes with the pixels.
/// Images are immutable and lazy: an operation describes work, and pixels are computed when the image is materialised,
/// encoded or read. An image that comes straight from `EncodedPicture.decode` can be evaluated once only; materialise
/// it to use it several times.
public final class Image: Sendable {
  let ref: VipsRef
  /// The format whose decoder still has to run when the pixels are wanted; it is to blame if they can't be had.
  let lazyFrom: PictureFormat?

  public let width: Int
  public let height: Int
  public let bands: Int
  /// Bits a sample: 8 or 16.
  public let depth: Int
  public let space: ColorSpace
  /// Whether the colour bands are known to be equal everywhere: the picture came without colour, and none was added.
  public let isGrey: Bool

  init(adopting ref: VipsRef, lazyFrom: PictureFormat?, space: ColorSpace = .srgb, isGrey: Bool = false) {
    self.ref = ref
    self.lazyFrom = lazyFrom
    self.space = space
    self.isGrey = isGrey
    depth = ref.format == VIPS_FORMAT_USHORT ? 16 : 8
    width = ref.width
    height = ref.height
    bands = ref.bands
  }

  /// Whether there is an alpha band, the last of 2 or 4.
  public var hasAlpha: Bool { bands == 2 || bands == 4 }
  /// Whether an ICC profile is attached.
  public var hasProfile: Bool { ref.has("icc-profile-data") }
  /// The bytes of its pixels.
  public var byteCount: Int { width * height * bands * (depth / 8) }
  /// Whether its pixels are computed and lie in memory.
  public var isMaterialised: Bool { ref.isInMemory }

  // MARK: Pixels in and out

  /// Copies interleaved 8-bit pixels, rows from the top without padding.
  ///
  /// - Throws: `geometry` unless `bands` is 1…4 and `bytes` holds exactly `width * height * bands`.
  public convenience init(width: Int, height: Int, bands: Int, bytes: [UInt8]) throws(ImagingError) {
    try Libvips.start()
    guard width > 0, height > 0, (1...4).contains(bands), bytes.count == width * height * bands,
      width <= 10_000_000, height <= 10_000_000
    else {
      throw ImagingError(
        .geometry, "\(bytes.count) bytes do not make a picture of \(width)×\(height) pixels with \(bands) bands")
    }
    let memory = try VipsRef(copying: bytes, width, height, bands, VIPS_FORMAT_UCHAR)
    self.init(
      adopting: try memory.named(bands >= 3 ? VIPS_INTERPRETATION_sRGB : VIPS_INTERPRETATION_B_W), lazyFrom: nil)
  }

  /// Interleaved 8-bit samples of a decoder, 3 or 4 bands, copied once; the caller has checked their number.
  convenience init(
    decoded samples: UnsafeRawBufferPointer, width: Int, height: Int, bands: Int
  ) throws(ImagingError) {
    try Libvips.start()
    let memory = try VipsRef(copying: samples, width, height, bands, VIPS_FORMAT_UCHAR)
    memory.pointer.pointee.Type = VIPS_INTERPRETATION_sRGB
    self.init(adopting: memory, lazyFrom: nil)
  }

  /// Copies interleaved 16-bit samples, rows from the top without padding.
  ///
  /// - Throws: `geometry` unless `bands` is 3 or 4 and there are exactly `width * height * bands` samples.
  public convenience init(width: Int, height: Int, bands: Int, samples: [UInt16]) throws(ImagingError) {
    try Libvips.start()
    guard width > 0, height > 0, bands == 3 || bands == 4, samples.count == width * height * bands,
      width <= 10_000_000, height <= 10_000_000
    else {
      throw ImagingError(
        .geometry, "\(samples.count) samples do not make a picture of \(width)×\(height) pixels with \(bands) bands")
    }
    let memory = try VipsRef(copying: samples, width, height, bands, VIPS_FORMAT_USHORT)
    self.init(adopting: try memory.named(VIPS_INTERPRETATION_RGB16), lazyFrom: nil)
  }

  /// One colour all over, 8-bit sRGB: 3 bands where it is opaque, else 4.
  public static func solid(width: Int, height: Int, _ colour: RGBA) throws(ImagingError) -> Image {
    try Libvips.start()
    guard (1...10_000_000).contains(width), (1...10_000_000).contains(height) else {
      throw ImagingError(.geometry, "\(width)×\(height) pixels make no picture")
    }
    // One pixel, repeated: it takes no memory however large.
    let pixel = colour.isOpaque ? [colour.r, colour.g, colour.b] : [colour.r, colour.g, colour.b, colour.a]
    let one = try Image(width: 1, height: 1, bands: pixel.count, bytes: pixel)
    return Image(
      adopting: try vips("filling with a colour") {
        cvips_embed_copy(one.ref.pointer, $0, 0, 0, Int32(width), Int32(height))
      }, lazyFrom: nil, isGrey: colour.r == colour.g && colour.g == colour.b)
  }

  /// Interleaved samples, `byteCount` bytes; those of 16 bits in the machine's order.
  public func bytes() throws(ImagingError) -> [UInt8] { try withPixels { Array($0) } }

  /// Reads the pixels in place (interleaved samples, rows without padding), materialising first where needed.
  public func withPixels<R>(_ body: (UnsafeRawBufferPointer) -> R) throws(ImagingError) -> R {
    let still = try materialised()
    guard let data = vips_image_get_data(still.ref.pointer) else { throw still.evaluationError("reading pixels") }
    defer { withExtendedLifetime(still) {} }
    return body(UnsafeRawBufferPointer(start: data, count: byteCount))
  }

  /// The same picture with its pixels computed and held in memory.
  ///
  /// - Throws: `damaged` where the decoder finds the pixels to be so, `memory`.
  public func materialised() throws(ImagingError) -> Image {
    guard !isMaterialised else { return self }
    guard lazyFrom != nil else {
      guard let memory = vips_image_copy_memory(ref.pointer) else { throw evaluationError("computing pixels") }
      return Image(adopting: VipsRef(adopting: memory), lazyFrom: nil, space: space, isGrey: isGrey)
    }
    let single = try vips("computing pixels") { cvips_copy(ref.pointer, $0) }
    single.limitToOneThread()
    guard let memory = vips_image_copy_memory(single.pointer) else { throw evaluationError("computing pixels") }
    vips_image_remove(memory, VIPS_META_CONCURRENCY)
    return Image(adopting: VipsRef(adopting: memory), lazyFrom: nil, space: space, isGrey: isGrey)
  }

  /// What to say when libvips could not compute the pixels.
  func evaluationError(_ doing: String, otherwise code: ImagingError.Code = .internalFault) -> ImagingError {
    guard let lazyFrom else {
      let detail = Libvips.drainErrors()
      if detail.contains("out of memory") {
        return ImagingError(.memory, "\(doing) failed: there is not enough memory", detail: detail)
      }
      return ImagingError(code, "\(doing) failed", detail: detail)
    }
    return ImagingError(
      .damaged, "the pixels of this \(lazyFrom.displayName) picture are damaged or cut short",
      detail: Libvips.drainErrors(about: lazyFrom.errorWords),
      hint: "get the file anew, or open it in an image editor and save what is left of it")
  }

  /// An image computed from this one (and `others`).
  func derived(_ ref: VipsRef, _ others: Image...) -> Image {
    // A matte adds no colour.
    let isGrey = isGrey && others.allSatisfy { $0.isGrey || $0.bands == 1 }
    return Image(
      adopting: ref, lazyFrom: lazyFrom ?? others.lazy.compactMap(\.lazyFrom).first, space: space, isGrey: isGrey)
  }

  // MARK: Geometry

  /// Scaled, then cropped or padded, then sharpened, as planned. Alpha is premultiplied around the resampling.
  ///
  /// - Throws: `geometry` where the plan was made for other sides.
  public func resized(_ plan: ResizePlan) throws(ImagingError) -> Image {
    guard plan.sourceWidth == width, plan.sourceHeight == height else {
      throw ImagingError(
        .geometry, "the plan is for \(plan.sourceWidth)×\(plan.sourceHeight) pixels, the picture has \(width)×\(height)"
      )
    }
    return try stretched(
      width: plan.scaledWidth, height: plan.scaledHeight, kernel: plan.kernel, linear: plan.linear
    ).framed(plan)
  }

  /// Scaled to exactly these sides, whatever the ratio.
  ///
  /// - Parameter linear: whether light is added up, instead of the numbers that stand for it.
  public func stretched(
    width: Int, height: Int, kernel: Kernel = .lanczos3, linear: Bool = false
  ) throws(ImagingError) -> Image {
    guard (1...10_000_000).contains(width), (1...10_000_000).contains(height) else {
      throw ImagingError(.geometry, "a picture cannot be resized to \(width)×\(height) pixels")
    }
    let source = isMaterialised && hasAlpha ? try withoutOpaqueAlpha() : self
    let scaled: Image
    if linear, kernel != .nearest, bands >= 3, width != self.width || height != self.height {
      scaled = try source.inLinearLight { (light) throws(ImagingError) in
        try Resampling.scale(light, toWidth: width, height: height, kernel)
      }
    } else {
      scaled = derived(try Resampling.scale(source.ref, toWidth: width, height: height, kernel))
    }
    return bands == 4 && source.bands == 3 ? try scaled.joined(with: Image.white(width, height)) : scaled
  }

  /// The rectangle at `x`, `y`.
  ///
  /// - Throws: `geometry` where it does not lie within the picture.
  public func cropped(x: Int, y: Int, width: Int, height: Int) throws(ImagingError) -> Image {
    guard x >= 0, y >= 0, width > 0, height > 0, x <= self.width - width, y <= self.height - height else {
      throw ImagingError(
        .geometry, "a crop of \(width)×\(height) at \(x),\(y) does not lie within \(self.width)×\(self.height) pixels")
    }
    return derived(
      try vips("cropping") {
        cvips_extract_area(ref.pointer, $0, Int32(x), Int32(y), Int32(width), Int32(height))
      })
  }

  /// What a plan asks for after the scaling: crop, sharpen, pad.
  func framed(_ plan: ResizePlan) throws(ImagingError) -> Image {
    var image = self
    switch plan.framing {
    case .none, .pad: break
    case .crop(let crop): image = try cropped(to: crop)
    case .smartCrop(let width, let height, let position):
      // The search reads the whole picture before the crop is read again.
      let still = try materialised()
      image = try still.cropped(to: still.interestingPart(width: width, height: height, by: position))
    }
    // A mask holds shares, not light.
    if let sharpen = plan.sharpen, bands >= 3 { image = try image.sharpened(Sharpening(sigma: sharpen)) }
    if case .pad(let pad) = plan.framing { image = try image.padded(pad) }
    return image
  }

  func padded(_ pad: ResizePlan.Pad) throws(ImagingError) -> Image {
    let colour = pad.background
    var image = try bands < 3 ? self : holdingColour(isGrey: colour.isGrey)
    // A background with transparency needs alpha; an opaque one around a transparent picture has it already.
    if !colour.isOpaque && !hasAlpha && bands == 3 {
      image = image.derived(
        try vips("adding alpha") { [image] in cvips_bandjoin_const1(image.ref.pointer, $0, most) })
    }
    let components = try image.bands < 3 ? [Double(colour.g), Double(colour.a)] : image.components(of: colour)
    let padded = try vips("padding") { [image] in
      cvips_embed_background(
        image.ref.pointer, $0, Int32(pad.x), Int32(pad.y), Int32(pad.width), Int32(pad.height),
        components, Int32(image.bands))
    }
    return Image(
      adopting: padded, lazyFrom: lazyFrom, space: image.space, isGrey: isGrey && colour.isGrey)
  }

  /// The picture in a space that can take a colour from outside.
  func holdingColour(isGrey: Bool) throws(ImagingError) -> Image {
    space.holdsColour ? self : try converted(to: .srgb)
  }

  /// Does `change` on linear light in floating point, alpha as 0…1 with it.
  func inLinearLight(_ change: (VipsRef) throws(ImagingError) -> VipsRef) throws(ImagingError) -> Image {
    guard case .embedded(let profile) = space else {
      // Display P3 has the curve of sRGB, and its primaries do not matter for sums of light.
      let kind = depth == 16 ? VIPS_INTERPRETATION_RGB16 : VIPS_INTERPRETATION_sRGB
      return try throughLight(
        { (colour) throws(ImagingError) in
          try vips("to linear light") { cvips_colourspace(colour.pointer, $0, VIPS_INTERPRETATION_scRGB, kind) }
        }, change,
        { (light) throws(ImagingError) in
          let named = try light.named(VIPS_INTERPRETATION_scRGB)
          return try vips("from linear light") { cvips_colourspace(named.pointer, $0, kind, VIPS_INTERPRETATION_scRGB) }
        })
    }
    guard space.holdsColour else { return try converted(to: .srgb).inLinearLight(change) }
    return try throughLight(
      { (colour) throws(ImagingError) in
        try vips("to linear light") { cvips_icc_import(colour.pointer, $0, nil, VIPS_PCS_XYZ) }
      }, change,
      { (light) throws(ImagingError) in
        let named = try profile.attached(to: light.named(VIPS_INTERPRETATION_XYZ))
        return try vips("from linear light") { cvips_icc_export(named.pointer, $0, VIPS_PCS_XYZ, Int32(depth)) }
      })
  }

  private func throughLight(
    _ into: (VipsRef) throws(ImagingError) -> VipsRef, _ change: (VipsRef) throws(ImagingError) -> VipsRef,
    _ back: (VipsRef) throws(ImagingError) -> VipsRef
  ) throws(ImagingError) -> Image {
    guard hasAlpha else { return derived(try back(change(into(ref)))) }
    let colour = try vips("separating alpha") { cvips_extract_band(ref.pointer, $0, 0, 3) }
    let alpha = try vips("separating alpha") { cvips_extract_band(ref.pointer, $0, 3, 1) }
    let share = try vips("scaling alpha") { cvips_linear1(alpha.pointer, $0, 1 / most, 0) }
    let light = try into(colour)
    let whole = try vips("joining alpha") { cvips_bandjoin2(light.pointer, share.pointer, $0) }
    let changed = try change(whole)
    let lightBack = try vips("separating alpha") { cvips_extract_band(changed.pointer, $0, 0, 3) }
    let shareBack = try vips("separating alpha") { cvips_extract_band(changed.pointer, $0, 3, 1) }
    let wide = try vips("scaling alpha") { cvips_linear1(shareBack.pointer, $0, most, 0) }
    let result = try back(lightBack)
    let band = try Resampling.rounded(wide, to: ref.format)
    return derived(try vips("joining alpha") { cvips_bandjoin2(result.pointer, band.pointer, $0) })
  }

  // MARK: Alpha

  /// The alpha band as a 1-band image of 8 bits; all 255 where there is no alpha.
  public func alphaBand() throws(ImagingError) -> Image {
    guard hasAlpha else { return try Image.white(width, height) }
    return try lastBand().withDepth(8)
  }

  /// Alpha as deep as the picture.
  private func lastBand() throws(ImagingError) -> Image {
    let band = try vips("taking alpha") { cvips_extract_band(ref.pointer, $0, Int32(bands - 1), 1) }
    return derived(try band.named(depth == 16 ? VIPS_INTERPRETATION_GREY16 : VIPS_INTERPRETATION_B_W))
  }

  /// The same picture with black where alpha is 0, so that the colour there is a defined one and nothing is left to see
  /// of what was cut away.
  func clearedUnderAlpha() throws(ImagingError) -> Image {
    guard bands == 4 else { return self }
    let alpha = try vips("taking alpha") { cvips_extract_band(ref.pointer, $0, 3, 1) }
    let shows = try vips("clearing what is transparent") { cvips_more_const1(alpha.pointer, $0, 0) }
    let nothing = try vips("clearing what is transparent") { cvips_black($0, Int32(width), Int32(height), 4) }
    return derived(
      try vips("clearing what is transparent") {
        cvips_ifthenelse(shows.pointer, ref.pointer, nothing.pointer, $0, 0)
      })
  }

  /// The colours with `matte` (1 band, same sides) as alpha, in place of any alpha there was.
  public func withAlpha(_ matte: Image) throws(ImagingError) -> Image {
    try check(matte, "a matte")
    return try withoutAlpha().joined(with: matte.withDepth(depth))
  }

  /// The colours with alpha = existing alpha × `matte` / 255, rounded.
  public func multipliedAlpha(by matte: Image) throws(ImagingError) -> Image {
    try check(matte, "a matte")
    guard hasAlpha else { return try joined(with: matte.withDepth(depth)) }
    let alpha = try lastBand()
    let product = try vips("multiplying alpha") { cvips_multiply(alpha.ref.pointer, matte.ref.pointer, $0) }
    let scaled = try vips("multiplying alpha") { cvips_linear1(product.pointer, $0, 1.0 / 255, 0.5) }
    let whole = try vips("multiplying alpha") { cvips_cast(scaled.pointer, $0, ref.format, 0) }
    return try withoutAlpha().joined(with: alpha.derived(whole, matte))
  }

  /// The colours alone; what was transparent shows the colour stored under it.
  public func withoutAlpha() throws(ImagingError) -> Image {
    guard hasAlpha else { return self }
    return derived(try vips("dropping alpha") { cvips_extract_band(ref.pointer, $0, 0, Int32(bands - 1)) })
  }

  /// Whether every pixel is opaque. Evaluates the image where it has alpha.
  public func isOpaque() throws(ImagingError) -> Bool {
    guard hasAlpha else { return true }
    let alpha = try materialised().lastBand()
    var least = 0.0
    guard cvips_min(alpha.ref.pointer, &least) == 0 else { throw evaluationError("looking at alpha") }
    return least >= most
  }

  private func withoutOpaqueAlpha() throws(ImagingError) -> Image { try isOpaque() ? withoutAlpha() : self }

  static func white(_ width: Int, _ height: Int) throws(ImagingError) -> Image { try mask(255, width, height) }

  /// A mask of one level all over, 1 band of 8 bits; it takes no memory however large.
  public static func mask(_ level: UInt8, _ width: Int, _ height: Int) throws(ImagingError) -> Image {
    let one = try Image(width: 1, height: 1, bands: 1, bytes: [level])
    return Image(
      adopting: try vips("filling") { cvips_embed_copy(one.ref.pointer, $0, 0, 0, Int32(width), Int32(height)) },
      lazyFrom: nil)
  }

  private func joined(with band: Image) throws(ImagingError) -> Image {
    let deep = try band.withDepth(depth)
    return derived(try vips("joining alpha") { cvips_bandjoin2(ref.pointer, deep.ref.pointer, $0) }, band)
  }

  private func check(_ matte: Image, _ name: String) throws(ImagingError) {
    guard matte.bands == 1, matte.width == width, matte.height == height else {
      throw ImagingError(
        .geometry,
        "\(name) of \(matte.width)×\(matte.height) with \(matte.bands) bands does not go with a picture of "
          + "\(width)×\(height)")
    }
  }

  // MARK: Laying over

  /// Laid on a background colour; the colour's own alpha is not used.
  public func flattened(_ background: RGBA) throws(ImagingError) -> Image {
    guard hasAlpha else { return self }
    let opaque = RGBA(background.r, background.g, background.b)
    return try composited(over: .solid(width: width, height: height, opaque))
  }

  /// Laid over `background`, which must have the same sides. The metadata of the upper image stays.
  ///
  /// Porter–Duff "over" with straight alpha in sRGB; opaque pixels come through exactly. The result has alpha where
  /// the background has.
  public func composited(over background: Image) throws(ImagingError) -> Image {
    try checkLaying(on: background)
    guard hasAlpha else { return self }
    let subject = try holdingColour(isGrey: background.isGrey)
    let below = try background.converted(to: subject.space).withDepth(subject.depth)
    guard !background.hasAlpha else { return try subject.over(below) }
    // The pixels are read for the mask and for the colours, in step.
    let (colour, alpha) = (try subject.withoutAlpha(), try subject.lastBand())
    let blended: VipsRef
    if subject.depth == 8 {
      blended = try vips("compositing") {
        cvips_ifthenelse(alpha.ref.pointer, colour.ref.pointer, below.ref.pointer, $0, 1)
      }
    } else {
      // below + (colour − below) · alpha; libvips' blend knows masks of 8 bits only.
      let difference = try vips("compositing") { cvips_subtract(colour.ref.pointer, below.ref.pointer, $0) }
      let share = try vips("compositing") { cvips_linear1(alpha.ref.pointer, $0, 1 / most, 0) }
      let part = try vips("compositing") { cvips_multiply(difference.pointer, share.pointer, $0) }
      let sum = try vips("compositing") { cvips_add(below.ref.pointer, part.pointer, $0) }
      blended = try Resampling.rounded(sum, to: VIPS_FORMAT_USHORT).named(VIPS_INTERPRETATION_RGB16)
    }
    return try subject.derived(blended, below).withMetadata(of: subject)
  }

  /// - Throws: `geometry` where this cannot be laid on `background`.
  func checkLaying(on background: Image) throws(ImagingError) {
    guard background.width == width, background.height == height else {
      throw ImagingError(
        .geometry,
        "a background of \(background.width)×\(background.height) does not go with a picture of "
          + "\(width)×\(height)")
    }
    guard bands >= 3, background.bands >= 3 else {
      throw ImagingError(.geometry, "compositing needs colour pictures, not a matte")
    }
  }

  /// "Over" where both have alpha, in whole numbers.
  private func over(_ background: Image) throws(ImagingError) -> Image {
    var result = try bytes()
    let isDeep = depth == 16
    try background.withPixels { below in
      result.withUnsafeMutableBytes { above in
        if isDeep {
          Self.over(above.bindMemory(to: UInt16.self), below.bindMemory(to: UInt16.self))
        } else {
          Self.over(above.bindMemory(to: UInt8.self), below.bindMemory(to: UInt8.self))
        }
      }
    }
    let memory = try VipsRef(copying: result, width, height, 4, ref.format)
    let named = try memory.named(isDeep ? VIPS_INTERPRETATION_RGB16 : VIPS_INTERPRETATION_sRGB)
    return try derived(named, background).withMetadata(of: self)
  }

  private static func over<Sample: FixedWidthInteger & UnsignedInteger>(
    _ above: UnsafeMutableBufferPointer<Sample>, _ below: UnsafeBufferPointer<Sample>
  ) {
    let most = Int(Sample.max)
    for i in stride(from: 0, to: above.count, by: 4) {
      // Weights in 1/most²: what is above, and what shows of what is below.
      let upper = Int(above[i + 3]) * most
      let lower = Int(below[i + 3]) * (most - Int(above[i + 3]))
      let sum = upper + lower
      guard sum > 0 else { continue }
      for c in i..<i + 3 {
        above[c] = Sample((Int(above[c]) * upper + Int(below[c]) * lower + sum / 2) / sum)
      }
      above[i + 3] = Sample((sum + most / 2) / most)
    }
  }

  /// The same pixels with the metadata (EXIF, XMP, ICC profile, …) of `other`.
  public func withMetadata(of other: Image) throws(ImagingError) -> Image {
    let copy: VipsRef
    if let view = cvips_memory_view(ref.pointer) {
      copy = VipsRef(adopting: view)
    } else {
      copy = try vips("copying metadata") { cvips_copy(ref.pointer, $0) }
    }
    cvips_remove_metadata(copy.pointer)
    cvips_copy_metadata(copy.pointer, other.ref.pointer)
    return derived(copy)
  }
}

extension VipsRef {
  /// Copies interleaved samples, rows from the top without padding; the caller has checked their number.
  fileprivate convenience init<Sample>(
    copying samples: [Sample], _ width: Int, _ height: Int, _ bands: Int, _ format: VipsBandFormat
  ) throws(ImagingError) {
    let copy = samples.withUnsafeBytes { Self.copy($0, width, height, bands, format) }
    guard let copy else { throw Self.noCopy }
    self.init(adopting: copy)
  }

  fileprivate convenience init(
    copying samples: UnsafeRawBufferPointer, _ width: Int, _ height: Int, _ bands: Int, _ format: VipsBandFormat
  ) throws(ImagingError) {
    guard let copy = Self.copy(samples, width, height, bands, format) else { throw Self.noCopy }
    self.init(adopting: copy)
  }

  private static func copy(
    _ samples: UnsafeRawBufferPointer, _ width: Int, _ height: Int, _ bands: Int, _ format: VipsBandFormat
  ) -> UnsafeMutablePointer<VipsImage>? {
    vips_image_new_from_memory_copy(
      samples.baseAddress, samples.count, Int32(width), Int32(height), Int32(bands), format)
  }

  private static var noCopy: ImagingError {
    ImagingError(.memory, "copying pixels failed", detail: Libvips.drainErrors())
  }

  func named(_ interpretation: VipsInterpretation) throws(ImagingError) -> VipsRef {
    try vips("naming bands") { cvips_copy_as(pointer, $0, interpretation) }
  }
}
