import CVips
import Synchronization

/// A decoded picture in its working space.
struct WorkingPicture {
  /// 3 bands, or 4 with straight alpha; 8 or 16 bits.
  var ref: VipsRef
  var space: ColorSpace
  /// Whether the source had no colour: its three bands are equal.
  var isGrey: Bool
}

extension WorkingSpace {
  /// Applies the embedded ICC profile, or libvips' reading of the colour space where there is none that can be used.
  ///
  /// - Parameter declared: what the header says in other words than by embedding a profile; it has the word.
  func convert(
    _ image: VipsRef, declared: ICCProfile? = nil, warn: (String) -> Void
  ) throws(ImagingError) -> WorkingPicture {
    let profile = declared ?? ICCProfile(of: image)
    let decision = profile?.decision
    let kind = image.interpretation
    if let curve = profile?.highDynamicRange {
      warn("the picture is of high dynamic range (\(curve)), which is not kept: it may come out too dark or too flat")
    }
    let isEightBit = image.format == VIPS_FORMAT_UCHAR
    let bits = depth == .sixteen || depth == .source && !isEightBit ? 16 : 8
    let isRGB = isEightBit && kind == VIPS_INTERPRETATION_sRGB && (image.bands == 3 || image.bands == 4)
    if isRGB && bits == 8 && (decision == nil || decision == .isSRGB) && gamut != .displayP3 {
      return WorkingPicture(ref: image, space: .srgb, isGrey: false)
    }

    var colour = image
    var alpha: VipsRef?
    if image.hasAlpha && image.bands > 1 {
      let last = Int32(image.bands - 1)
      colour = try vips("separating alpha") { cvips_extract_band(image.pointer, $0, 0, last) }
      alpha = try Self.alpha(vips("separating alpha") { cvips_extract_band(image.pointer, $0, last, 1) }, bits)
    }
    if kind == VIPS_INTERPRETATION_MULTIBAND && colour.bands > 3 {
      warn("the picture has \(image.bands) bands of no known meaning; the first three are taken as red, green, blue")
      colour = try vips("separating bands") { [colour] in cvips_extract_band(colour.pointer, $0, 0, 3) }
      colour = try colour.named(
        colour.format == VIPS_FORMAT_USHORT ? VIPS_INTERPRETATION_RGB16 : VIPS_INTERPRETATION_sRGB)
    }
    let isGrey = colour.bands == 1

    var result: VipsRef
    var space = ColorSpace.srgb
    if let profile, let decision, decision != .unusable, profile.fits(colour) {
      switch decision {
      case .isSRGB:
        result = try profile.attached(to: Self.plain(Self.withoutProfile(colour), bits))
      case .convert where gamut == .source && profile.space != "CMYK":
        result = try profile.attached(to: Self.unchanged(colour, bits))
        space = .embedded(profile)
      case .convert(let intent):
        if gamut == .source { warn("CMYK is not kept: the picture became sRGB") }
        let spread = profile.space == "RGB " && colour.bands == 1 ? try Self.threeBands(colour) : colour
        let input = try profile.attached(to: spread)
        let output = gamut == .displayP3 ? "p3" : "srgb"
        result = try vips("applying the colour profile") {
          cvips_icc_transform(input.pointer, $0, nil, output, intent.vips, Int32(bits))
        }
        if gamut == .displayP3 {
          space = .displayP3
        } else if declared != nil {
          result = try Self.withoutProfile(result)
        }
      case .unusable: result = colour
      }
    } else {
      if profile != nil {
        warn(ICCProfile.unusable)
      }
      result = try Self.plain(Self.withoutProfile(colour), bits)
    }
    let wanted = bits == 16 ? VIPS_FORMAT_USHORT : VIPS_FORMAT_UCHAR
    if result.format != wanted {
      result = try vips("converting to \(bits) bit") { [result] in cvips_cast(result.pointer, $0, wanted, 0) }
    }
    if isGrey { result = try Self.evenGrey(result) }
    if let alpha {
      result = try vips("joining alpha") { [result] in cvips_bandjoin2(result.pointer, alpha.pointer, $0) }
    }
    guard result.bands == 3 || result.bands == 4 else {
      throw ImagingError(.unsupported, "a picture with \(image.bands) bands of this kind is not read")
    }
    if gamut == .displayP3, space == .srgb {
      let image = Image(adopting: result, lazyFrom: nil, space: .srgb, isGrey: isGrey)
      return WorkingPicture(ref: try image.converted(to: .displayP3).ref, space: .displayP3, isGrey: isGrey)
    }
    return WorkingPicture(ref: result, space: space, isGrey: isGrey)
  }

  /// sRGB without regard to a profile.
  private static func plain(_ image: VipsRef, _ bits: Int) throws(ImagingError) -> VipsRef {
    var kind = image.interpretation
    var input = image
    let isDeep = image.format == VIPS_FORMAT_USHORT
    if image.bands == 1 && kind == VIPS_INTERPRETATION_MULTIBAND {
      kind = isDeep ? VIPS_INTERPRETATION_GREY16 : VIPS_INTERPRETATION_B_W
    }
    if image.bands == 3 && kind == VIPS_INTERPRETATION_MULTIBAND {
      kind = isDeep ? VIPS_INTERPRETATION_RGB16 : VIPS_INTERPRETATION_sRGB
    }
    if image.bands == 1 && (image.format == VIPS_FORMAT_FLOAT || image.format == VIPS_FORMAT_DOUBLE) {
      // Grey of floating point is linear light, 0…1, as floating-point colour is (scRGB).
      kind = VIPS_INTERPRETATION_scRGB
      input = try threeBands(image).named(kind)
    }
    // libvips cuts the lower bits of 16 off where it goes down to 8 at once.
    // And up by a shift, which leaves white short of 65,535.
    let isWide = input.format == VIPS_FORMAT_USHORT && image.bands != 4
    let isNarrow = input.format == VIPS_FORMAT_UCHAR && image.bands != 4
    let target = isWide || !isNarrow && bits == 16 ? VIPS_INTERPRETATION_RGB16 : VIPS_INTERPRETATION_sRGB
    let result = try vips("converting to sRGB") { [input] in cvips_colourspace(input.pointer, $0, target, kind) }
    // From CMYK, libvips goes through a profile of its own, and leaves that on the result.
    return try withoutProfile(Image(adopting: result, lazyFrom: nil).withDepth(bits).ref)
  }

  /// Three bands of the wanted depth with the numbers as they are.
  private static func unchanged(_ image: VipsRef, _ bits: Int) throws(ImagingError) -> VipsRef {
    let spread = image.bands == 1 ? try threeBands(image) : image
    return try Image(adopting: spread, lazyFrom: nil).withDepth(bits).ref
  }

  static func threeBands(_ grey: VipsRef) throws(ImagingError) -> VipsRef {
    let two = try vips("spreading grey") { cvips_bandjoin2(grey.pointer, grey.pointer, $0) }
    let three = try vips("spreading grey") { cvips_bandjoin2(two.pointer, grey.pointer, $0) }
    return try three.named(
      grey.format == VIPS_FORMAT_USHORT ? VIPS_INTERPRETATION_RGB16 : VIPS_INTERPRETATION_sRGB)
  }

  /// Three equal bands: conversions may leave a level between them, and grey must be found to be grey again.
  static func evenGrey(_ image: VipsRef) throws(ImagingError) -> VipsRef {
    let band = try vips("taking grey") { cvips_extract_band(image.pointer, $0, min(1, Int32(image.bands) - 1), 1) }
    return try threeBands(band)
  }

  private static func alpha(_ alpha: VipsRef, _ bits: Int) throws(ImagingError) -> VipsRef {
    let wanted = bits == 16 ? VIPS_FORMAT_USHORT : VIPS_FORMAT_UCHAR
    switch alpha.format {
    case wanted: return alpha
    case VIPS_FORMAT_FLOAT, VIPS_FORMAT_DOUBLE:
      let scaled = try vips("scaling alpha") { cvips_linear1(alpha.pointer, $0, bits == 16 ? 65_535 : 255, 0.5) }
      return try vips("scaling alpha") { cvips_cast(scaled.pointer, $0, wanted, 0) }
    case VIPS_FORMAT_UCHAR:
      let scaled = try vips("scaling alpha") { cvips_linear1(alpha.pointer, $0, 257, 0) }
      return try vips("scaling alpha") { cvips_cast(scaled.pointer, $0, wanted, 0) }
    case VIPS_FORMAT_USHORT:
      let scaled = try vips("scaling alpha") { cvips_linear1(alpha.pointer, $0, 1.0 / 257, 0.5) }
      return try vips("scaling alpha") { cvips_cast(scaled.pointer, $0, wanted, 0) }
    default:
      let eight = try vips("scaling alpha") { cvips_cast(alpha.pointer, $0, VIPS_FORMAT_UCHAR, 1) }
      return try Self.alpha(eight, bits)
    }
  }

  static func withoutProfile(_ image: VipsRef) throws(ImagingError) -> VipsRef {
    guard image.has("icc-profile-data") else { return image }
    let copy = try vips("dropping a profile") { cvips_copy(image.pointer, $0) }
    vips_image_remove(copy.pointer, "icc-profile-data")
    return copy
  }
}

/// An ICC profile (ICC.1:2022, section 7.2).
public struct ICCProfile: Sendable, Hashable {
  public let bytes: [UInt8]
  /// The signature of the data colour space: `RGB `, `GRAY`, `CMYK` …; nil where the header is no profile's.
  public let space: String?

  public init(bytes: [UInt8]) {
    self.bytes = bytes
    let isProfile = bytes.count >= 132 && bytes[36..<40].elementsEqual("acsp".utf8)
    space = isProfile ? String(decoding: bytes[16..<20], as: UTF8.self) : nil
  }

  /// nil where the image has no profile.
  init?(of image: VipsRef) {
    guard let bytes = image.blob("icc-profile-data") else { return nil }
    self.init(bytes: bytes)
  }

  /// The profile's own name, in Latin letters where it has one (tag `desc`, of version 2 or 4).
  public var description: String? {
    func number(_ at: Int) -> Int { bytes[at..<at + 4].reduce(0) { $0 << 8 | Int($1) } }
    guard space != nil else { return nil }
    for i in 0..<min(number(128), 100) {
      let at = 132 + 12 * i
      guard at + 12 <= bytes.count else { return nil }
      guard bytes[at..<at + 4].elementsEqual("desc".utf8) else { continue }
      let start = number(at + 4)
      guard start >= 0, start + 28 <= bytes.count else { return nil }
      if bytes[start..<start + 4].elementsEqual("mluc".utf8) {
        let (length, offset) = (number(start + 20), number(start + 24))
        guard length < 512, start + offset + length <= bytes.count else { return nil }
        let units = stride(from: start + offset, to: start + offset + length - 1, by: 2).map {
          UInt16(bytes[$0]) << 8 | UInt16(bytes[$0 + 1])
        }
        return decodedText(Array(String(decoding: units, as: UTF16.self).utf8))
      }
      let length = number(start + 8)
      guard length > 1, length < 512, start + 12 + length <= bytes.count else { return nil }
      return decodedText(bytes[start + 12..<start + 11 + length])
    }
    return nil
  }

  static let unusable = "the embedded colour profile is broken or made for another kind of picture; it is not used"

  /// The name of its curve where that is one of high dynamic range: by the code points in it (tag `cicp`, ICC.1:2022,
  /// 9.2.17), or by the name that libjxl gives to profiles it makes.
  var highDynamicRange: String? {
    guard bytes.count >= 132, space != nil else { return nil }
    let name = bytes.withUnsafeBytes { raw -> String? in
      for i in 0..<min(raw.big(4, at: 128) ?? 0, 100) where raw.says("cicp", at: 132 + 12 * i) {
        guard let start = raw.big(4, at: 136 + 12 * i), let transfer = raw.big(1, at: start + 9) else { return nil }
        return [16: "PQ", 18: "HLG"][transfer]
      }
      return nil
    }
    if let name { return name }
    guard bytes[4..<8].elementsEqual("jxl ".utf8), let description else { return nil }
    return description.hasSuffix("_PeQ") ? "PQ" : description.hasSuffix("_HLG") ? "HLG" : nil
  }

  /// Whether it describes pixels of this kind.
  func fits(_ colour: VipsRef) -> Bool {
    switch colour.interpretation {
    case VIPS_INTERPRETATION_scRGB, VIPS_INTERPRETATION_LAB, VIPS_INTERPRETATION_LABS, VIPS_INTERPRETATION_XYZ:
      return false
    default: break
    }
    switch (space, colour.bands) {
    case ("RGB ", 3), ("RGB ", 1), ("GRAY", 1), ("CMYK", 4): return true
    default: return false
    }
  }

  /// What is to be done with pixels of this profile.
  enum Decision: Hashable {
    /// It is sRGB to within two levels: nothing.
    case isSRGB
    case convert(Intent)
    /// It cannot be used.
    case unusable
  }
  enum Intent: Hashable {
    case relative, perceptual
    var vips: VipsIntent { self == .relative ? VIPS_INTENT_RELATIVE : VIPS_INTENT_PERCEPTUAL }
  }

  /// Tried on a few colours, once per profile.
  var decision: Decision {
    guard let space, ["RGB ", "GRAY", "CMYK"].contains(space) else { return .unusable }
    let key = EncodedBytes(bytes).sha256
    if let known = Self.decisions.withLock({ $0[key] }) { return known }
    let answer = (try? tried(space)) ?? .unusable
    Self.decisions.withLock { known in
      if known.count >= 256 { known.removeAll() }
      known[key] = answer
    }
    return answer
  }

  private static let decisions = Mutex<[String: Decision]>([:])

  private func tried(_ space: String) throws(ImagingError) -> Decision {
    // A grid of 9 × 9 × 9 colours; grey and CMYK need only be seen to work.
    let steps: [UInt8] = [0, 32, 64, 96, 128, 160, 192, 224, 255]
    var grid: [UInt8] = []
    for r in steps { for g in steps { for b in steps { grid += [r, g, b] } } }
    let sample: Image =
      switch space {
      case "RGB ": try Image(width: 27, height: 27, bands: 3, bytes: grid)
      case "GRAY": try Image(width: 9, height: 1, bands: 1, bytes: steps)
      default: try Image(width: 3, height: 3, bands: 4, bytes: Array(grid.prefix(36)))
      }
    var input = try attached(to: sample.ref)
    if space == "CMYK" { input = try attached(to: sample.ref.named(VIPS_INTERPRETATION_CMYK)) }
    // libvips puts a profile of its own in the place of one that it cannot use, and only warns. A profile with tables
    // for one intent alone (A2B0) is used with that one.
    for intent in [Intent.relative, .perceptual] {
      let attempt = try? Libvips.capturingWarnings { () throws(ImagingError) in
        try vips("applying a profile") { cvips_icc_transform(input.pointer, $0, nil, "srgb", intent.vips, 8) }
      }
      guard let (converted, warnings) = attempt, !warnings.contains(where: { $0.contains("profile") }) else { continue }
      let result = try Image(adopting: converted, lazyFrom: nil).bytes()
      guard space == "RGB ", result.count == grid.count else { return .convert(intent) }
      return zip(grid, result).allSatisfy { abs(Int($0) - Int($1)) <= 2 } ? .isSRGB : .convert(intent)
    }
    _ = Libvips.drainErrors()
    return .unusable
  }

  func attached(to image: VipsRef) throws(ImagingError) -> VipsRef {
    let copy = try vips("attaching a profile") { cvips_copy(image.pointer, $0) }
    bytes.withUnsafeBytes { vips_image_set_blob_copy(copy.pointer, "icc-profile-data", $0.baseAddress, $0.count) }
    return copy
  }
}
