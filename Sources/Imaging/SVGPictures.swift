/// The pictures that a drawing carries in itself, as `data:` links. librsvg hands them to gdk-pixbuf, which knows no
/// limits: a drawing of some kilobytes took six gigabytes and half a minute.
enum SVGPictures {
  /// Checks the sides that the embedded pictures claim, one by one and all together, drawings in drawings included.
  ///
  /// Links are looked for in the text, wherever they stand, so that entities and style sheets hide none. Text that is
  /// put together from pieces while it is read can hide one all the same; memory and time are bounded elsewhere then.
  /// - Parameter svg: unpacked.
  /// - Throws: `limit`; `unsupported` for kinds of pictures that are not read, whose sides nobody checked.
  static func check(_ svg: UnsafeRawBufferPointer, limits: DecodeLimits) throws(ImagingError) {
    var pixels = 0
    try check(SVGProlog.ascii(svg), limits, depth: 0, &pixels)
  }

  private static func check(
    _ text: [UInt8], _ limits: DecodeLimits, depth: Int, _ pixels: inout Int
  ) throws(ImagingError) {
    let mark = Array("base64,".utf8)
    var at = 0
    while let start = find(mark, in: text, from: at) {
      at = start + mark.count
      let content = decode(text, &at)
      // Fonts and style sheets come the same way and are not pictures.
      let media = mediaType(text, before: start)
      guard media.isEmpty || media.hasPrefix("image/") else { continue }
      let probe = content.withUnsafeBytes { raw -> (format: PictureFormat, probe: HeaderProbe?)? in
        guard let format = FormatSniffer.format(of: raw) else { return nil }
        return (format, HeaderProbe(raw, format))
      }
      guard let probe, probe.format != .pdf else {
        // gdk-pixbuf reads kinds of pictures whose sides nobody here would have checked.
        throw ImagingError(
          .unsupported, "the drawing holds \(FormatSniffer.describe(content)), which is not read",
          hint: "embed PNG or JPEG")
      }
      if probe.format == .svg {
        guard depth < 4 else {
          throw ImagingError(.limit, "the drawing holds drawings in drawings, more than 4 deep")
        }
        let inner =
          content.starts(with: [0x1F, 0x8B])
          ? try EncodedBytes(content).withUnsafeBytes { (raw) throws(ImagingError) in
            try Inflate.gunzip(raw, limit: DrawingLoader.maxUnpackedBytes)
          } : content
        let text = SVGProlog.ascii(inner)
        try check(text, limits, depth: depth + 1, &pixels)
        // It is drawn at its own size, however small it is shown.
        if let own = probe.probe { try DrawingLoader.checkFilters(text, width: own.width, height: own.height) }
      }
      guard let found = probe.probe else { continue }
      let (area, overflow) = found.width.multipliedReportingOverflow(by: found.height)
      let (sum, sumOverflow) = pixels.addingReportingOverflow(area)
      pixels = sum
      guard max(found.width, found.height) <= limits.maxSide else {
        throw ImagingError(
          .limit,
          "a picture in the drawing claims \(found.width)×\(found.height) pixels; a side may have \(limits.maxSide)",
          hint: "raise limits.maxSide if that is meant")
      }
      guard !overflow, !sumOverflow, pixels <= limits.maxPixels else {
        throw ImagingError(
          .limit,
          "the pictures in the drawing claim \(overflow || sumOverflow ? "2⁶³" : String(pixels)) pixels or more, "
            + "more than the limit of \(limits.maxPixels)",
          hint: "raise limits.maxPixels if that is meant")
      }
    }
  }

  /// Whether a filter stands in the text: an element of that name, an attribute, or a property of a style. A comment or
  /// a text that looks like one counts; names put together from pieces or escapes do not.
  static func hasFilter(_ text: [UInt8]) -> Bool {
    let mark = Array("filter".utf8)
    func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || (0x09...0x0D).contains(byte) }
    for at in 0..<max(0, text.count - mark.count + 1) where text[at] | 0x20 == mark[0] {
      // Properties of styles are the same in capitals.
      guard (0..<mark.count).allSatisfy({ text[at + $0] | 0x20 == mark[$0] }) else { continue }
      if at > 0, text[at - 1] == UInt8(ascii: "<") || text[at - 1] == UInt8(ascii: ":") { return true }
      let next = text[(at + mark.count)...].first { !isSpace($0) }
      if next == UInt8(ascii: "=") || next == UInt8(ascii: ":") { return true }
    }
    return false
  }

  private static func find(_ mark: [UInt8], in text: [UInt8], from start: Int) -> Int? {
    var at = start
    while at + mark.count <= text.count {
      if text[at] == mark[0], text[at..<at + mark.count].elementsEqual(mark) { return at }
      at += 1
    }
    return nil
  }

  /// What stands between "data:" and ";" before the mark, in small letters.
  private static func mediaType(_ text: [UInt8], before mark: Int) -> String {
    let head = String(decoding: text[max(0, mark - 100)..<mark], as: UTF8.self).lowercased()
    guard let colon = head.lastIndex(of: ":") else { return "" }
    return String(head[head.index(after: colon)...].prefix { $0 != ";" })
  }

  /// Base64 up to what does not belong to it, passing over white space and character references for it.
  private static func decode(_ text: [UInt8], _ at: inout Int) -> [UInt8] {
    var out: [UInt8] = []
    var (bits, count) = (0, 0)
    while at < text.count {
      let byte = text[at]
      let value: Int
      switch byte {
      case UInt8(ascii: "A")...UInt8(ascii: "Z"): value = Int(byte) - 65
      case UInt8(ascii: "a")...UInt8(ascii: "z"): value = Int(byte) - 71
      case UInt8(ascii: "0")...UInt8(ascii: "9"): value = Int(byte) + 4
      case UInt8(ascii: "+"): value = 62
      case UInt8(ascii: "/"): value = 63
      case 0x20, 0x09, 0x0A, 0x0D:
        at += 1
        continue
      case UInt8(ascii: "&"):
        guard let end = text[at..<min(at + 8, text.count)].firstIndex(of: UInt8(ascii: ";")) else { return out }
        at = end + 1
        continue
      case UInt8(ascii: "%"):
        // A line feed or a plus, percent-coded.
        guard at + 2 < text.count else { return out }
        let code = String(decoding: text[at + 1...at + 2], as: UTF8.self).uppercased()
        guard let known = ["2B": 62, "2F": 63, "0A": -1, "0D": -1, "20": -1][code] else { return out }
        at += 2
        value = known
      default: return out
      }
      at += 1
      guard value >= 0 else { continue }
      bits = (bits << 6 | value) & 0xFF_FFFF
      count += 6
      if count >= 8 {
        count -= 8
        out.append(UInt8(truncatingIfNeeded: bits >> count))
      }
    }
    return out
  }
}
