/// Reads Windows and OS/2 bitmaps, which libvips reads only through ImageMagick, whose policy files and many coders are
/// better left out.
///
/// Layout as in Microsoft's "Bitmap Storage": 1, 4, 8, 16, 24 and 32 bits, bit fields, RLE4 and RLE8, rows from the
/// bottom or the top.
struct BitmapDecoder {
  let width: Int
  let height: Int
  let hasAlpha: Bool
  private let isTopDown: Bool
  private let bits: Int
  private let coding: Coding
  private let pixelsAt: Int
  /// Red, green, blue triplets.
  private let palette: [[UInt8]]
  /// Red, green, blue, alpha; of 16 and 32 bits.
  private let masks: [UInt32]

  private enum Coding { case plain, rle8, rle4 }

  /// Reads the header.
  ///
  /// - Throws: `damaged` or `unsupported`.
  init(header b: UnsafeRawBufferPointer) throws(ImagingError) {
    func damaged(_ why: String) -> ImagingError {
      ImagingError(.damaged, "the header of this BMP picture cannot be read", detail: why)
    }
    func number(_ at: Int, _ size: Int) throws(ImagingError) -> Int {
      guard at + size <= b.count else { throw damaged("it ends at byte \(b.count)") }
      return (0..<size).reduce(0) { sum, i in sum | Int(b[at + i]) << (8 * i) }
    }
    pixelsAt = try number(10, 4)
    let size = try number(14, 4)
    let isCore = size == 12
    var compression = 0
    if isCore {
      width = try number(18, 2)
      height = try number(20, 2)
      isTopDown = false
      bits = try number(24, 2)
    } else {
      let rows = Int(Int32(truncatingIfNeeded: try number(22, 4)))
      width = Int(Int32(truncatingIfNeeded: try number(18, 4)))
      height = abs(rows)
      isTopDown = rows < 0
      bits = try number(28, 2)
      compression = size >= 20 ? try number(30, 4) : 0
    }
    guard width > 0, height > 0 else { throw damaged("it claims \(width)×\(height) pixels") }

    var masks: [UInt32] = bits == 16 ? [0x7C00, 0x03E0, 0x001F, 0] : [0xFF0000, 0x00FF00, 0x0000FF, 0]
    var paletteAt = 14 + size
    // OS/2 gives these numbers other meanings in its 64-byte header.
    switch (compression, bits, size) {
    case (0, 1, _), (0, 4, _), (0, 8, _), (0, 16, _), (0, 24, _), (0, 32, _): coding = .plain
    case (1, 8, _): coding = .rle8
    case (2, 4, _): coding = .rle4
    case (3, 16, 40...56), (3, 32, 40...56), (3, 16, 108...), (3, 32, 108...), (6, 16, 40...56), (6, 32, 40...56),
      (6, 16, 108...), (6, 32, 108...):
      coding = .plain
      // In the 40-byte header the masks follow it; in longer ones they are part of it, at the same place.
      for i in 0..<3 { masks[i] = UInt32(try number(54 + 4 * i, 4)) }
      if compression == 6 || size >= 56 { masks[3] = UInt32(try number(66, 4)) }
      if size == 40 { paletteAt += compression == 6 ? 16 : 12 }
    default:
      throw ImagingError(
        .unsupported, "this BMP picture has \(bits) bits per pixel in coding \(compression), which is not read",
        hint: "save it as PNG, or as a plain BMP")
    }
    self.masks = masks
    hasAlpha = masks[3] != 0 && (bits == 16 || bits == 32)

    var palette: [[UInt8]] = []
    if bits <= 8 {
      let entry = isCore ? 3 : 4
      let stated = !isCore && size >= 36 ? try number(46, 4) : 0
      let most = 1 << bits
      let room = max(0, (pixelsAt - paletteAt) / entry)
      for i in 0..<min(stated > 0 ? min(stated, most) : most, room) {
        let at = paletteAt + entry * i
        palette.append([UInt8(try number(at + 2, 1)), UInt8(try number(at + 1, 1)), UInt8(try number(at, 1))])
      }
      guard !palette.isEmpty else { throw damaged("its palette is missing") }
    }
    self.palette = palette
  }

  /// The pixels, upright: 3 bands, or 4 with straight alpha.
  ///
  /// - Parameter isStrict: whether damage is an error; else the rows that are there are used, and of a packed picture
  ///   what comes before the damage. What is missing is black, or transparent where the picture has alpha; of a packed
  ///   one it has the palette's first colour, as what runs jump over.
  /// - Throws: `damaged` where the data ends early or leaves the picture, and where none of it is there.
  func decode(_ b: UnsafeRawBufferPointer, isStrict: Bool = true) throws(ImagingError) -> Image {
    let bands = hasAlpha ? 4 : 3
    var out = [UInt8](repeating: 0, count: width * height * bands)
    switch coding {
    case .plain: try plain(b, into: &out, bands, isStrict: isStrict)
    case .rle8, .rle4:
      do throws(ImagingError) {
        try runs(b, into: &out)
      } catch {
        guard !isStrict, pixelsAt + 2 <= b.count else { throw error }
      }
    }
    // Programs that know no alpha leave it 0 all over; then it means nothing.
    if hasAlpha, !stride(from: 3, to: out.count, by: 4).contains(where: { out[$0] != 0 }) {
      for i in stride(from: 3, to: out.count, by: 4) { out[i] = 255 }
    }
    return try Image(width: width, height: height, bands: bands, bytes: out)
  }

  private var cutShort: ImagingError {
    ImagingError(
      .damaged, "the pixels of this BMP picture are damaged or cut short",
      hint: "get the file anew, or set \"onDamage\": \"warn\" in \"decode\" to use what is left of it")
  }

  private func plain(
    _ b: UnsafeRawBufferPointer, into out: inout [UInt8], _ bands: Int, isStrict: Bool
  ) throws(ImagingError) {
    let rowBytes = (width * bits + 31) / 32 * 4
    // The padding of the last row may be missing.
    let usedBytes = (width * bits + 7) / 8
    guard pixelsAt + (isStrict ? rowBytes * (height - 1) : 0) + usedBytes <= b.count else { throw cutShort }
    for y in 0..<height {
      let row = pixelsAt + rowBytes * (isTopDown ? y : height - 1 - y)
      guard row + usedBytes <= b.count else { continue }
      var i = y * width * bands
      for x in 0..<width {
        switch bits {
        case 24:
          let at = row + 3 * x
          (out[i], out[i + 1], out[i + 2]) = (b[at + 2], b[at + 1], b[at])
        case 16, 32:
          let at = row + bits / 8 * x
          var value = UInt32(b[at]) | UInt32(b[at + 1]) << 8
          if bits == 32 { value |= UInt32(b[at + 2]) << 16 | UInt32(b[at + 3]) << 24 }
          for c in 0..<bands { out[i + c] = Self.scaled(value, masks[c]) }
        default:
          let perByte = 8 / bits
          let byte = Int(b[row + x / perByte])
          let index = byte >> (bits * (perByte - 1 - x % perByte)) & ((1 << bits) - 1)
          if index < palette.count {
            for c in 0..<3 { out[i + c] = palette[index][c] }
          } else if isStrict {
            throw cutShort
          }
        }
        i += bands
      }
    }
  }

  /// The bits under a mask as 0…255, rounded.
  private static func scaled(_ value: UInt32, _ mask: UInt32) -> UInt8 {
    guard mask != 0 else { return 0 }
    let shift = UInt32(mask.trailingZeroBitCount)
    let most = UInt64(mask >> shift)
    let part = UInt64((value & mask) >> shift)
    return UInt8(min(255, (part * 255 + most / 2) / most))
  }

  private func runs(_ b: UnsafeRawBufferPointer, into out: inout [UInt8]) throws(ImagingError) {
    // What the runs jump over shows the first colour.
    for i in stride(from: 0, to: out.count, by: 3) { for c in 0..<3 { out[i + c] = palette[0][c] } }
    var (x, y, at) = (0, 0, pixelsAt)
    func put(_ index: Int, _ out: inout [UInt8]) throws(ImagingError) {
      guard index < palette.count, x < width, y < height else { throw cutShort }
      let i = ((isTopDown ? y : height - 1 - y) * width + x) * 3
      for c in 0..<3 { out[i + c] = palette[index][c] }
      x += 1
    }
    while true {
      guard at + 2 <= b.count else { throw cutShort }
      let (count, value) = (Int(b[at]), Int(b[at + 1]))
      at += 2
      if count > 0 {
        for n in 0..<count {
          try put(coding == .rle8 ? value : n % 2 == 0 ? value >> 4 : value & 15, &out)
        }
        continue
      }
      switch value {
      case 0: (x, y) = (0, y + 1)
      case 1: return
      case 2:
        guard at + 2 <= b.count else { throw cutShort }
        x += Int(b[at])
        y += Int(b[at + 1])
        at += 2
      default:
        let bytes = coding == .rle8 ? value : (value + 1) / 2
        guard at + bytes <= b.count else { throw cutShort }
        for n in 0..<value {
          let byte = Int(b[at + (coding == .rle8 ? n : n / 2)])
          try put(coding == .rle8 ? byte : n % 2 == 0 ? byte >> 4 : byte & 15, &out)
        }
        // Literal runs are padded to whole words.
        at += (bytes + 1) / 2 * 2
      }
    }
  }
}
