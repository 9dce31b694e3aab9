/// Reads Windows icons and cursors (.ico, .cur), which libvips reads only through ImageMagick.
///
/// A directory of pictures, each a PNG or a bitmap without its file header and with a 1-bit mask of transparency behind
/// it. Layout as in Microsoft's "Icons" and "DIBs and their use".
enum IconDirectory {
  struct Entry {
    enum Kind {
      /// A whole PNG file, as a range of the bytes.
      case png(Range<Int>)
      /// A bitmap from its second header on, as a range of the bytes.
      case bitmap(Range<Int>)
    }

    var kind: Kind
    /// Sides in pixels, from the picture's own header.
    var width: Int
    var height: Int
    var bitsPerPixel: Int
    /// How many pictures the directory lists.
    var frames: Int
  }

  /// The picture with the most pixels, and of these the one with the most bits.
  ///
  /// Entries that lie outside of the file or make no sense are passed over where a picture at least as large remains.
  /// - Parameter isStrict: whether a picture that goes on beyond the file is none; else what there is of it is.
  /// - Throws: `damaged` where the best entry cannot be read or there is none.
  static func best(_ raw: UnsafeRawBufferPointer, isStrict: Bool = true) throws(ImagingError) -> Entry {
    guard raw.little(2, at: 0) == 0, let type = raw.little(2, at: 2), type == 1 || type == 2,
      let count = raw.little(2, at: 4), count > 0
    else { throw damaged("it lists no picture") }
    var best: Entry?
    var lostArea = 0
    for i in 0..<count {
      let at = 6 + 16 * i
      guard at + 16 <= raw.count, let length = raw.little(4, at: at + 8), let offset = raw.little(4, at: at + 12) else {
        throw damaged("its directory ends at byte \(raw.count)")
      }
      // 0 stands for 256.
      let sides = (raw[at] == 0 ? 256 : Int(raw[at]), raw[at + 1] == 0 ? 256 : Int(raw[at + 1]))
      guard let entry = entry(raw, offset, length, frames: count, isStrict) else {
        lostArea = max(lostArea, sides.0 * sides.1)
        continue
      }
      let rank = (area(entry.width, entry.height), entry.bitsPerPixel)
      if best.map({ rank > (area($0.width, $0.height), $0.bitsPerPixel) }) ?? true { best = entry }
    }
    guard let best, area(best.width, best.height) >= Double(lostArea) else {
      throw damaged("its largest picture is cut short or broken")
    }
    return best
  }

  private static func area(_ width: Int, _ height: Int) -> Double { Double(width) * Double(height) }

  private static func entry(
    _ raw: UnsafeRawBufferPointer, _ offset: Int, _ length: Int, frames: Int, _ isStrict: Bool
  ) -> Entry? {
    guard offset < raw.count, !isStrict || length <= raw.count - offset else { return nil }
    let range = offset..<offset + min(length, raw.count - offset)
    let b = raw.slice(range)
    if b.count >= 33, b[0] == 0x89, b.says("PNG", at: 1), b.says("IHDR", at: 12) {
      guard let width = b.big(4, at: 16), let height = b.big(4, at: 20), width > 0, height > 0 else { return nil }
      // Colour types of PNG: grey, RGB, palette, grey with alpha, RGBA.
      let channels = [0: 1, 2: 3, 3: 1, 4: 2, 6: 4][b[25]] ?? 1
      return Entry(
        kind: .png(range), width: width, height: height, bitsPerPixel: Int(b[24]) * channels, frames: frames)
    }
    guard let size = b.little(4, at: 0), size >= 40, size <= 124, let wide = b.little(4, at: 4),
      let high = b.little(4, at: 8), let bits = b.little(2, at: 14)
    else { return nil }
    let width = Int(Int32(truncatingIfNeeded: wide))
    // Colours and mask are counted together.
    let height = Int(Int32(truncatingIfNeeded: high)).magnitude / 2
    guard width > 0, height > 0, [1, 4, 8, 16, 24, 32].contains(bits) else { return nil }
    return Entry(kind: .bitmap(range), width: width, height: Int(height), bitsPerPixel: bits, frames: frames)
  }

  /// The pixels of a bitmap entry, upright: 4 bands with straight alpha.
  ///
  /// - Parameter isStrict: whether it is an error where the data ends early; else rows that are missing are
  ///   transparent, and where the mask's are missing everything shows.
  /// - Throws: `damaged` where the data ends early, or before the first row; `unsupported` for codings that no icon
  ///   has.
  static func decode(
    _ entry: Entry, _ raw: UnsafeRawBufferPointer, isStrict: Bool = true
  ) throws(ImagingError) -> Image {
    guard case .bitmap(let range) = entry.kind else {
      throw ImagingError(.internalFault, "this picture of an icon is a PNG and is read as one")
    }
    let b = raw.slice(range)
    let (width, height, bits) = (entry.width, entry.height, entry.bitsPerPixel)
    guard let headSize = b.little(4, at: 0), let coding = b.little(4, at: 16), let stated = b.little(4, at: 32) else {
      throw damaged("its bitmap ends at byte \(b.count)")
    }
    guard coding == 0 else {
      throw ImagingError(.unsupported, "this icon's bitmap has coding \(coding), which is not read")
    }
    let colours = bits > 8 ? 0 : stated > 0 ? min(stated, 1 << bits) : 1 << bits
    let pixelsAt = headSize + 4 * colours
    let rowBytes = (width * bits + 31) / 32 * 4
    let maskRow = (width + 31) / 32 * 4
    // Sides are 31-bit numbers, so these products stay below 2⁶³.
    let maskAt = pixelsAt + rowBytes * height
    let rows = min(height, max(0, (b.count - pixelsAt) / rowBytes))
    guard rows == height || !isStrict && rows > 0 else { throw damaged("its pixels are cut short") }

    // As a bitmap file of its own, with the height of the colours alone.
    var file = Array("BM".utf8) + [UInt8](repeating: 0, count: 12)
    file.append(contentsOf: b.slice(0..<maskAt))
    file.replaceLittle(10, with: 14 + pixelsAt)
    file.replaceLittle(14 + 8, with: height)
    var out = try EncodedBytes(file).withUnsafeBytes { (raw) throws(ImagingError) in
      try BitmapDecoder(header: raw).decode(raw, isStrict: isStrict).bytes()
    }
    out = Self.withAlpha(out)
    // Rows go from the bottom to the top.
    for i in 0..<(height - rows) * width * 4 { out[i] = 0 }

    if bits == 32 {
      var isUsed = false
      for y in height - rows..<height {
        let row = pixelsAt + rowBytes * (height - 1 - y)
        for x in 0..<width {
          let alpha = b[row + 4 * x + 3]
          out[(y * width + x) * 4 + 3] = alpha
          isUsed = isUsed || alpha != 0
        }
      }
      // Alpha that is 0 all over was written by a program that knows none; the mask holds then.
      if isUsed { return try Image(width: width, height: height, bands: 4, bytes: out) }
      for i in stride(from: (height - rows) * width * 4 + 3, to: out.count, by: 4) { out[i] = 255 }
    }
    guard maskAt + maskRow * height <= b.count || !isStrict else {
      guard maskAt < b.count else { return try Image(width: width, height: height, bands: 4, bytes: out) }
      throw damaged("its mask is cut short")
    }
    for y in 0..<height {
      let row = maskAt + maskRow * (height - 1 - y)
      guard row + maskRow <= b.count else { continue }
      for x in 0..<width where b[row + x / 8] >> (7 - x % 8) & 1 == 1 {
        let i = (y * width + x) * 4
        // Under the mask a colour other than black would invert the screen; nothing is what a picture can show of it.
        for c in 0..<4 { out[i + c] = 0 }
      }
    }
    return try Image(width: width, height: height, bands: 4, bytes: out)
  }

  private static func withAlpha(_ rgb: [UInt8]) -> [UInt8] {
    [UInt8](unsafeUninitializedCapacity: rgb.count / 3 * 4) { out, count in
      for i in 0..<rgb.count / 3 {
        for c in 0..<3 { out[4 * i + c] = rgb[3 * i + c] }
        out[4 * i + 3] = 255
      }
      count = rgb.count / 3 * 4
    }
  }

  private static func damaged(_ why: String) -> ImagingError {
    ImagingError(
      .damaged, "this icon cannot be read", detail: why,
      hint:
        "get the file anew, or save the picture as PNG; \"onDamage\": \"warn\" in \"decode\" uses what is left of it")
  }
}

extension [UInt8] {
  fileprivate mutating func replaceLittle(_ at: Int, with value: Int) {
    for i in 0..<4 { self[at + i] = UInt8(truncatingIfNeeded: value >> (8 * i)) }
  }
}
