/// Makes a WebP that is cut short long enough for libwebp's container reader, which gives nothing of one whose bytes
/// end before its lengths say so.
///
/// The chunk that is cut is filled up with zeros: a decoder goes on with them, so that all rows up to the cut come out
/// right and the others are made up. Chunks that are missing altogether are taken out of the header's flags (RFC 9649,
/// 2.7).
enum WebPRescue {
  /// The file with its lengths set right; nil where nothing of the first frame's pixels is there.
  ///
  /// - Parameter limit: the most bytes that may be filled up.
  static func whole(from b: UnsafeRawBufferPointer, limit: Int) -> EncodedBytes? {
    guard b.says("RIFF", at: 0), b.says("WEBP", at: 8) else { return nil }
    var out = Array(b.slice(0..<12))
    var flagsAt: Int?
    var (hasPixels, hasEXIF, hasXMP) = (false, false, false)
    var isWithin = true
    RIFFChunks.forEach(b) { name, body, isCut in
      let isPixels = name == "VP8 " || name == "VP8L" || name == "ANMF"
      // Metadata that is cut is no metadata, and a frame that is cut costs the frames before it if it cannot be read.
      guard isWithin, !isCut || isPixels && !(name == "ANMF" && hasPixels), !body.isEmpty else { return }
      if name == "VP8X" { flagsAt = out.count + 8 }
      hasPixels = hasPixels || isPixels
      hasEXIF = hasEXIF || name == "EXIF"
      hasXMP = hasXMP || name == "XMP "
      guard let length = b.little(4, at: body.lowerBound - 4), length - body.count <= limit else {
        isWithin = false
        return
      }
      out.append(contentsOf: b.slice(body.lowerBound - 8..<body.upperBound))
      out.append(contentsOf: repeatElement(0, count: length - body.count + length % 2))
    }
    guard hasPixels, isWithin else { return nil }
    if let flagsAt, flagsAt < out.count {
      if !hasEXIF { out[flagsAt] &= ~0x08 }
      if !hasXMP { out[flagsAt] &= ~0x04 }
    }
    for i in 0..<4 { out[4 + i] = UInt8(truncatingIfNeeded: (out.count - 8) >> (8 * i)) }
    return EncodedBytes(out)
  }
}
