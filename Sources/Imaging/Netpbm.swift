/// Pixels without compression, as Netpbm's formats have them (PGM, PPM and PAM): for other programs, which read and
/// write them with no library and at no cost.
public enum Netpbm {
  public enum Kind: Sendable, Hashable {
    /// PGM or PPM: grey or colour, without transparency.
    case pnm
    /// PAM, which may have transparency.
    case pam
  }

  /// Whether bytes begin as a binary PGM, PPM or PAM does.
  public static func isPicture(_ bytes: UnsafeRawBufferPointer) -> Bool {
    bytes.count >= 3 && bytes[0] == UInt8(ascii: "P") && (UInt8(ascii: "5")...UInt8(ascii: "7")).contains(bytes[1])
      && isSpace(bytes[2])
  }

  static func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || (0x09...0x0D).contains(byte) }

  /// What stands before the samples.
  struct Header {
    var width = 0
    var height = 0
    var depth = 0
    var most = 0
    /// Where the samples begin.
    var end = 0
  }
}

extension Image {
  /// Hands out the picture as a header and its samples, interleaved, rows from the top, those of 16 bits with the high
  /// byte first; neither is valid after `body`.
  ///
  /// - Throws: `encoder` where the kind has no room for transparency, and what computing pixels throws.
  public func withNetpbm<R>(
    _ kind: Netpbm.Kind, _ body: (_ header: [UInt8], _ samples: UnsafeRawBufferPointer) -> R
  ) throws(ImagingError) -> R {
    guard kind == .pam || !hasAlpha else {
      throw ImagingError(
        .encoder, "PPM cannot hold transparency, and this picture has an alpha band", hint: "use PAM or PNG")
    }
    let most = depth == 16 ? 65_535 : 255
    let header: String
    switch kind {
    case .pnm: header = "\(bands == 1 ? "P5" : "P6")\n\(width) \(height)\n\(most)\n"
    case .pam:
      let type = (bands <= 2 ? "GRAYSCALE" : "RGB") + (hasAlpha ? "_ALPHA" : "")
      header = "P7\nWIDTH \(width)\nHEIGHT \(height)\nDEPTH \(bands)\nMAXVAL \(most)\nTUPLTYPE \(type)\nENDHDR\n"
    }
    let isDeep = depth == 16
    return try withPixels { pixels in
      guard isDeep else { return body(Array(header.utf8), pixels) }
      let swapped = pixels.bindMemory(to: UInt16.self).map(\.bigEndian)
      return swapped.withUnsafeBytes { body(Array(header.utf8), $0) }
    }
  }

  /// Reads a binary PGM, PPM or PAM: 3 bands, or 4 where it has transparency; 8 bits a sample, or 16 where it has more.
  ///
  /// - Throws: `damaged` where the header makes no sense or samples are missing, `unsupported`, `limit`.
  public convenience init(netpbm bytes: UnsafeRawBufferPointer, limits: DecodeLimits) throws(ImagingError) {
    let header = try Netpbm.header(bytes)
    guard header.width <= limits.maxSide, header.height <= limits.maxSide,
      header.width * header.height <= limits.maxPixels
    else {
      throw ImagingError(
        .limit, "\(header.width)×\(header.height) pixels are more than the limits allow",
        hint: "raise limits.maxPixels or limits.maxSide if that is meant")
    }
    let isDeep = header.most > 255
    let count = header.width * header.height * header.depth
    let samples = UnsafeRawBufferPointer(rebasing: bytes[header.end...])
    guard samples.count >= count * (isDeep ? 2 : 1) else {
      throw ImagingError(.damaged, "the picture ends after \(samples.count) of \(count * (isDeep ? 2 : 1)) bytes")
    }
    let (most, depth) = (header.most, header.depth)
    // Grey becomes colour, as the decoders have it.
    let bands = depth <= 2 ? depth + 2 : depth
    func spread<Sample: FixedWidthInteger>(_ read: (Int) -> Int, _ full: Int) -> [Sample] {
      [Sample](unsafeUninitializedCapacity: header.width * header.height * bands) { out, filled in
        for pixel in 0..<header.width * header.height {
          for band in 0..<bands {
            let source = depth >= 3 ? band : band < 3 ? 0 : 1
            let value = min(most, read(pixel * depth + source))
            out[pixel * bands + band] = Sample(
              truncatingIfNeeded: most == full ? value : (value * full + most / 2) / most)
          }
        }
        filled = header.width * header.height * bands
      }
    }
    let (width, height) = (header.width, header.height)
    if isDeep {
      let values: [UInt16] = spread({ Int(samples[2 * $0]) << 8 | Int(samples[2 * $0 + 1]) }, 65_535)
      try self.init(width: width, height: height, bands: bands, samples: values)
    } else if depth >= 3, most == 255 {
      let plain = UnsafeRawBufferPointer(rebasing: samples[..<count])
      try self.init(decoded: plain, width: width, height: height, bands: bands)
    } else {
      let values: [UInt8] = spread({ Int(samples[$0]) }, 255)
      try self.init(width: width, height: height, bands: bands, bytes: values)
    }
  }
}

extension Netpbm {
  /// Netpbm's own description is the manual pages pgm(5), ppm(5) and pam(5).
  static func header(_ bytes: UnsafeRawBufferPointer) throws(ImagingError) -> Header {
    guard isPicture(bytes) else { throw ImagingError(.unsupported, "it is no binary PGM, PPM or PAM picture") }
    var header = Header()
    // No header of ours or anybody's is longer; a comment without an end would be looked through to the last sample.
    let end = min(bytes.count, 4096)
    var at = 2
    func number(_ text: String) -> Int { text.utf8.count <= 9 ? Int(text) ?? 0 : 0 }
    if bytes[1] == UInt8(ascii: "7") {
      var isClosed = false
      while !isClosed, at < end, let stop = bytes[at..<end].firstIndex(of: 0x0A) {
        let words = String(decoding: bytes[at..<stop], as: UTF8.self).split(whereSeparator: \.isWhitespace)
        at = stop + 1
        guard let name = words.first, !name.hasPrefix("#") else { continue }
        let value = words.count > 1 ? String(words[1]) : ""
        switch name {
        case "WIDTH": header.width = number(value)
        case "HEIGHT": header.height = number(value)
        case "DEPTH": header.depth = number(value)
        case "MAXVAL": header.most = number(value)
        case "ENDHDR": isClosed = true
        default: break
        }
      }
      if !isClosed { header.width = 0 }
    } else {
      var numbers: [Int] = []
      while numbers.count < 3, at < end {
        while at < end, isSpace(bytes[at]) || bytes[at] == UInt8(ascii: "#") {
          if bytes[at] == UInt8(ascii: "#") { while at < end, bytes[at] != 0x0A { at += 1 } }
          at += 1
        }
        let start = min(at, end)
        while at < end, !isSpace(bytes[at]) { at += 1 }
        numbers.append(number(String(decoding: bytes[start..<at], as: UTF8.self)))
      }
      // A single space ends the header: what comes after it may look like one too.
      at += 1
      if numbers.count == 3 { (header.width, header.height, header.most) = (numbers[0], numbers[1], numbers[2]) }
      header.depth = bytes[1] == UInt8(ascii: "5") ? 1 : 3
    }
    header.end = min(at, bytes.count)
    guard header.width > 0, header.height > 0, (1...4).contains(header.depth), (1...65_535).contains(header.most) else {
      throw ImagingError(.damaged, "the header of the PGM, PPM or PAM picture makes no sense")
    }
    return header
  }
}
