import CVips

/// What the numbers of an image's colour bands mean.
public enum ColorSpace: Sendable, Hashable {
  /// IEC 61966-2-1.
  case srgb
  /// Display P3: the primaries of DCI-P3, the white and the curve of sRGB.
  case displayP3
  /// The profile that the picture came with, for red, green and blue or for grey.
  case embedded(ICCProfile)

  /// Whether any colour can be expressed; false for a profile of grey.
  public var holdsColour: Bool {
    if case .embedded(let profile) = self { profile.space == "RGB " } else { true }
  }

  /// For messages and reports.
  public var name: String {
    switch self {
    case .srgb: "sRGB"
    case .displayP3: "Display P3"
    case .embedded(let profile): profile.description ?? "the embedded profile"
    }
  }

  /// libvips' name for its built-in profile; nil where the image carries its own.
  fileprivate var builtIn: String? {
    switch self {
    case .srgb: "srgb"
    case .displayP3: "p3"
    case .embedded: nil
    }
  }
}

/// What decoded pictures are held in.
///
/// The planner chooses the smallest that loses nothing on the way to a stage that wants it: 8-bit sRGB unless a stage
/// asks for more.
public struct WorkingSpace: Sendable, Hashable {
  public enum Gamut: Int, Sendable, Comparable {
    case srgb, displayP3
    /// As embedded, where that is a profile of colour or grey; other pictures become sRGB.
    case source
    public static func < (a: Gamut, b: Gamut) -> Bool { a.rawValue < b.rawValue }
  }
  public enum Depth: Int, Sendable, Comparable {
    case eight
    /// 8 bit for sources of 8 bit, 16 for deeper ones.
    case source
    case sixteen
    public static func < (a: Depth, b: Depth) -> Bool { a.rawValue < b.rawValue }
  }
  public var gamut: Gamut
  public var depth: Depth

  public init(gamut: Gamut = .srgb, depth: Depth = .eight) {
    self.gamut = gamut
    self.depth = depth
  }

  /// The smallest space that holds what both hold.
  public func union(_ other: WorkingSpace) -> WorkingSpace {
    WorkingSpace(gamut: max(gamut, other.gamut), depth: max(depth, other.depth))
  }
}

extension Image {
  /// The largest sample: 255, or 65,535 at 16 bit.
  var most: Double { depth == 16 ? 65_535 : 255 }

  /// The same picture with its colours in another space; alpha stays.
  ///
  /// Relative colorimetric with black point compensation, by LittleCMS. The profile travels with the pixels.
  /// - Throws: `geometry` for a space that holds no colour.
  public func converted(to target: ColorSpace) throws(ImagingError) -> Image {
    guard target != space, bands >= 3 else { return self }
    guard target.holdsColour else {
      throw ImagingError(.geometry, "colours cannot be expressed in a profile of grey")
    }
    var colour = ref
    if hasAlpha { colour = try vips("separating alpha") { cvips_extract_band(ref.pointer, $0, 0, 3) } }
    if !space.holdsColour {
      colour = try vips("separating grey") { [colour] in cvips_extract_band(colour.pointer, $0, 1, 1) }
      colour = try colour.named(depth == 16 ? VIPS_INTERPRETATION_GREY16 : VIPS_INTERPRETATION_B_W)
    }
    let input = space.builtIn
    var result: VipsRef
    if let output = target.builtIn {
      result = try vips("converting to \(target.name)") { [colour] in
        cvips_icc_transform(colour.pointer, $0, input, output, VIPS_INTENT_RELATIVE, Int32(depth))
      }
    } else {
      guard case .embedded(let profile) = target else { return self }
      let light = try vips("converting to \(target.name)") { [colour] in
        cvips_icc_import(colour.pointer, $0, input, VIPS_PCS_LAB)
      }
      let named = try profile.attached(to: light)
      result = try vips("converting to \(target.name)") {
        cvips_icc_export(named.pointer, $0, VIPS_PCS_LAB, Int32(depth))
      }
    }
    if target == .srgb {
      result = try WorkingSpace.withoutProfile(result)
    }
    if isGrey { result = try WorkingSpace.evenGrey(result) }
    if hasAlpha {
      let alpha = try vips("separating alpha") { cvips_extract_band(ref.pointer, $0, 3, 1) }
      result = try vips("joining alpha") { [result] in cvips_bandjoin2(result.pointer, alpha.pointer, $0) }
    }
    return Image(adopting: result, lazyFrom: lazyFrom, space: target, isGrey: isGrey)
  }

  /// The same picture with 8 or 16 bits a sample; rounded when bits go.
  public func withDepth(_ bits: Int) throws(ImagingError) -> Image {
    guard bits != depth else { return self }
    let scaled: VipsRef
    if bits == 16 {
      let wide = try vips("widening samples") { cvips_cast(ref.pointer, $0, VIPS_FORMAT_USHORT, 0) }
      let spread = try vips("widening samples") { cvips_linear1(wide.pointer, $0, 257, 0) }
      scaled = try vips("widening samples") { cvips_cast(spread.pointer, $0, VIPS_FORMAT_USHORT, 0) }
    } else {
      let narrow = try vips("narrowing samples") { cvips_linear1(ref.pointer, $0, 1.0 / 257, 0.5) }
      scaled = try vips("narrowing samples") { cvips_cast(narrow.pointer, $0, VIPS_FORMAT_UCHAR, 0) }
    }
    let kind =
      bands >= 3
      ? (bits == 16 ? VIPS_INTERPRETATION_RGB16 : VIPS_INTERPRETATION_sRGB)
      : (bits == 16 ? VIPS_INTERPRETATION_GREY16 : VIPS_INTERPRETATION_B_W)
    return derived(try scaled.named(kind))
  }

  /// Three bands of 8-bit sRGB without alpha, as models expect them.
  public func eightBitSRGB() throws(ImagingError) -> Image {
    try withoutAlpha().converted(to: .srgb).withDepth(8)
  }

  /// A colour in this image's numbers: red, green, blue and alpha, 0…255 or 0…65,535.
  ///
  /// - Throws: `geometry` where the image's space holds no colour.
  func components(of colour: RGBA) throws(ImagingError) -> [Double] {
    let scale = most / 255
    let alpha = Double(colour.a) * scale
    guard space != .srgb else {
      return [Double(colour.r) * scale, Double(colour.g) * scale, Double(colour.b) * scale, alpha]
    }
    let one = try Image(width: 1, height: 1, bands: 3, bytes: [colour.r, colour.g, colour.b])
    let there = try one.withDepth(depth).converted(to: space)
    return try there.withSamples { $0.prefix(3).map { Double($0) } } + [alpha]
  }

  /// Samples as numbers; for single pixels.
  private func withSamples<R>(_ body: ([Int]) -> R) throws(ImagingError) -> R {
    let isDeep = depth == 16
    let values = try withPixels { raw in
      isDeep ? raw.bindMemory(to: UInt16.self).map { Int($0) } : raw.map { Int($0) }
    }
    return body(values)
  }
}
