import CVips
import Synchronization

/// Conversion to this program's working space: 8-bit sRGB, 3 bands, or 4 with straight alpha.
enum WorkingSpace {
  /// Applies the embedded ICC profile, or libvips' reading of the colour space where there is none that can be used.
  static func convert(_ image: VipsRef, warn: (String) -> Void) throws(ImagingError) -> VipsRef {
    let profile = Profile(of: image)
    let decision = profile?.decision
    let kind = image.interpretation
    let isEightBitRGB = image.format == VIPS_FORMAT_UCHAR && kind == VIPS_INTERPRETATION_sRGB
    if isEightBitRGB && (image.bands == 3 || image.bands == 4) && (decision == nil || decision == .isSRGB) {
      return image
    }

    var colour = image
    var alpha: VipsRef?
    if image.hasAlpha && image.bands > 1 {
      let last = Int32(image.bands - 1)
      colour = try vips("separating alpha") { cvips_extract_band(image.pointer, $0, 0, last) }
      alpha = try eightBitAlpha(vips("separating alpha") { cvips_extract_band(image.pointer, $0, last, 1) })
    }
    if kind == VIPS_INTERPRETATION_MULTIBAND && colour.bands > 3 {
      warn("the picture has \(image.bands) bands of no known meaning; the first three are taken as red, green, blue")
      colour = try vips("separating bands") { [colour] in cvips_extract_band(colour.pointer, $0, 0, 3) }
      colour = try vips("naming bands") { [colour] in
        cvips_copy_as(
          colour.pointer, $0,
          colour.format == VIPS_FORMAT_USHORT ? VIPS_INTERPRETATION_RGB16 : VIPS_INTERPRETATION_sRGB)
      }
    }

    var converted: VipsRef?
    var keepsProfile = false
    switch decision {
    case nil: break
    case .convert(let intent) where profile?.fits(colour) == true:
      let input = profile?.space == "RGB " && colour.bands == 1 ? try threeBands(colour) : colour
      converted = try vips("applying the colour profile") { cvips_icc_to_srgb(input.pointer, $0, intent.vips) }
    case .isSRGB where profile?.fits(colour) == true: keepsProfile = true
    default:
      warn("the embedded colour profile is broken or made for another kind of picture; it is not used")
    }
    if converted == nil {
      colour = try withoutProfile(colour)
      let plain = try plainSRGB(colour)
      if keepsProfile, let profile { converted = try profile.attached(to: plain) } else { converted = plain }
    }
    guard var result = converted else { throw ImagingError(.internalFault, "the colours could not be converted") }
    if result.format != VIPS_FORMAT_UCHAR {
      result = try vips("converting to 8 bit") { [result] in
        cvips_cast(result.pointer, $0, VIPS_FORMAT_UCHAR, 0)
      }
    }
    if let alpha {
      result = try vips("joining alpha") { [result] in cvips_bandjoin2(result.pointer, alpha.pointer, $0) }
    }
    guard result.bands == 3 || result.bands == 4 else {
      throw ImagingError(.unsupported, "a picture with \(image.bands) bands of this kind is not read")
    }
    return result
  }

  /// sRGB without regard to a profile.
  private static func plainSRGB(_ image: VipsRef) throws(ImagingError) -> VipsRef {
    var kind = image.interpretation
    var input = image
    if image.bands == 1 && kind == VIPS_INTERPRETATION_MULTIBAND { kind = VIPS_INTERPRETATION_B_W }
    if image.bands == 3 && kind == VIPS_INTERPRETATION_MULTIBAND { kind = VIPS_INTERPRETATION_sRGB }
    if image.bands == 1 && (image.format == VIPS_FORMAT_FLOAT || image.format == VIPS_FORMAT_DOUBLE) {
      // Grey of floating point is linear light, 0…1, as floating-point colour is (scRGB).
      input = try threeBands(image)
      kind = VIPS_INTERPRETATION_scRGB
      input = try vips("naming bands") { [input] in
        cvips_copy_as(input.pointer, $0, VIPS_INTERPRETATION_scRGB)
      }
    }
    return try vips("converting to sRGB") { [input] in
      cvips_colourspace(input.pointer, $0, VIPS_INTERPRETATION_sRGB, kind)
    }
  }

  private static func threeBands(_ grey: VipsRef) throws(ImagingError) -> VipsRef {
    let two = try vips("spreading grey") { cvips_bandjoin2(grey.pointer, grey.pointer, $0) }
    let three = try vips("spreading grey") { cvips_bandjoin2(two.pointer, grey.pointer, $0) }
    return try vips("spreading grey") {
      cvips_copy_as(
        three.pointer, $0,
        grey.format == VIPS_FORMAT_USHORT ? VIPS_INTERPRETATION_RGB16 : VIPS_INTERPRETATION_sRGB)
    }
  }

  private static func eightBitAlpha(_ alpha: VipsRef) throws(ImagingError) -> VipsRef {
    switch alpha.format {
    case VIPS_FORMAT_UCHAR: return alpha
    case VIPS_FORMAT_FLOAT, VIPS_FORMAT_DOUBLE:
      let scaled = try vips("scaling alpha") { cvips_linear1(alpha.pointer, $0, 255, 0.5) }
      return try vips("scaling alpha") { cvips_cast(scaled.pointer, $0, VIPS_FORMAT_UCHAR, 0) }
    default: return try vips("scaling alpha") { cvips_cast(alpha.pointer, $0, VIPS_FORMAT_UCHAR, 1) }
    }
  }

  private static func withoutProfile(_ image: VipsRef) throws(ImagingError) -> VipsRef {
    guard image.has("icc-profile-data") else { return image }
    let copy = try vips("dropping a profile") { cvips_copy(image.pointer, $0) }
    vips_image_remove(copy.pointer, "icc-profile-data")
    return copy
  }
}

/// An embedded ICC profile (ICC.1:2022, section 7.2).
struct Profile {
  let bytes: [UInt8]
  /// The signature of the data colour space: `RGB `, `GRAY`, `CMYK` …; nil where the header is no profile's.
  let space: String?

  /// nil where the image has no profile.
  init?(of image: VipsRef) {
    guard let bytes = image.blob("icc-profile-data") else { return nil }
    self.bytes = bytes
    let isProfile = bytes.count >= 132 && bytes[36..<40].elementsEqual("acsp".utf8)
    space = isProfile ? String(decoding: bytes[16..<20], as: UTF8.self) : nil
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
        try vips("applying a profile") { cvips_icc_to_srgb(input.pointer, $0, intent.vips) }
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
