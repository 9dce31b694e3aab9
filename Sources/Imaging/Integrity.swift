import CJPEG

/// What can be seen of damage from a file's container, where the decoders of libvips 8.14 see nothing or say nothing.
///
/// One pass over headers, boxes and tables. No pixel is decoded, so damage inside of well-formed compressed data is not
/// found here; PNG, TIFF with Deflate, JPEG XL and most others notice that by themselves.
public enum Integrity {
  /// Something that is not as it should be.
  public struct Finding: Sendable, Hashable {
    public enum Kind: Sendable, Hashable {
      /// Bytes are missing at the end.
      case truncated
      /// Bytes are not those that were written.
      case corrupt
    }

    public var kind: Kind
    /// What was found, to go behind "this PNG picture …".
    public var message: String
    /// Whether pixels of the picture may be missing or wrong; false where only the end mark, metadata, or another
    /// picture of the file is.
    public var costsPixels: Bool
    /// The frame or page that is hurt, from 0; nil where it is not known or concerns the whole.
    public var frame: Int?

    public init(_ kind: Kind, _ message: String, costsPixels: Bool, frame: Int? = nil) {
      self.kind = kind
      self.message = message
      self.costsPixels = costsPixels
      self.frame = frame
    }
  }

  /// The gravest finding; nil where all is as it should be, and for formats of which nothing can be seen this way.
  ///
  /// A JPEG costs nothing here: libvips reports a missing end itself. See `diagnoseJPEG` for the rest.
  public static func check(_ b: UnsafeRawBufferPointer, _ format: PictureFormat) -> Finding? {
    switch format {
    case .png: png(b)
    case .gif: gif(b)
    case .webp: webp(b)
    case .tiff: tiff(b)
    case .heic, .avif: heif(b)
    case .jp2, .jxl: boxes(b)
    case .jpeg, .bmp, .ico, .svg, .pdf: nil
    }
  }

  /// libpng checks the sums of what pixels depend on, and drops other chunks with a wrong sum unsaid; `tRNS` is such a
  /// one, and a picture without it is opaque.
  private static func png(_ b: UnsafeRawBufferPointer) -> Finding? {
    var finding: Finding?
    var isEnded = false
    var ancillary = 0
    PNGChunks.forEach(b) { chunk in
      if chunk.name == "IEND" {
        isEnded = true
        return false
      }
      if chunk.checksum == nil, chunk.name == "IDAT" {
        finding = Finding(.truncated, "is cut short in its pixels", costsPixels: true)
        return false
      }
      let matters = ["tRNS", "iCCP", "cICP", "sRGB", "gAMA", "cHRM"].contains(chunk.name)
      // A real file has each once; a thousand of them are not worth reading.
      if matters, finding == nil, ancillary < 64, let written = chunk.checksum {
        ancillary += 1
        if Inflate.crc32(b.slice(chunk.body.lowerBound - 4..<chunk.body.upperBound)) != written {
          let isPixels = chunk.name == "tRNS"
          finding = Finding(
            .corrupt, "has a wrong checksum in its \(isPixels ? "transparency" : "colour") data (\(chunk.name))",
            costsPixels: isPixels)
        }
      }
      return true
    }
    if let finding, finding.costsPixels || isEnded { return finding }
    // Rows that are missing although every chunk is whole make libpng fail; so if it does not, they are all there.
    return isEnded ? nil : Finding(.truncated, "ends without its end mark", costsPixels: false)
  }

  private static func gif(_ b: UnsafeRawBufferPointer) -> Finding? {
    let walk = GIFBlocks(b)
    let frames = GIFDecoder(b)?.frames ?? []
    // The last may be cut short, and that says more.
    for (index, frame) in frames.prefix(walk.wholeFrames).enumerated() {
      let pixels = GIFDecoder.pixels(of: frame, b)
      guard pixels < frame.width * frame.height else { continue }
      return Finding(
        .corrupt, "has only \(pixels) of the \(frame.width * frame.height) pixels of frame \(index + 1)",
        costsPixels: true, frame: index)
    }
    if walk.wholeFrames < walk.frames {
      return Finding(.truncated, "is cut short in frame \(walk.frames)", costsPixels: true, frame: walk.frames - 1)
    }
    if walk.isCutInExtension {
      return Finding(.truncated, "is cut short behind frame \(walk.frames)", costsPixels: true, frame: walk.frames)
    }
    return walk.hasTrailer ? nil : Finding(.truncated, "ends without its end mark", costsPixels: false)
  }

  private static func webp(_ b: UnsafeRawBufferPointer) -> Finding? {
    var finding: Finding?
    var frames = 0
    RIFFChunks.forEach(b) { name, _, isCut in
      if isCut, finding == nil {
        let isMetadata = name == "EXIF" || name == "XMP "
        finding = Finding(
          .truncated, "is cut short in its \(name) chunk", costsPixels: !isMetadata,
          frame: name == "ANMF" ? frames : nil)
      }
      if name == "ANMF" { frames += 1 }
    }
    if let finding { return finding }
    guard let stated = b.little(4, at: 4), stated > b.count - 8 else { return nil }
    return Finding(.truncated, "claims \(stated + 8) bytes and has \(b.count)", costsPixels: true)
  }

  /// libtiff reads strips and tiles of JPEG and CCITT data as far as they go.
  private static func tiff(_ b: UnsafeRawBufferPointer) -> Finding? {
    guard let file = TIFFDirectories(b) else { return nil }
    var finding: Finding?
    var page = 0
    // Hostile directories could all point to one long table.
    var budget = 4_000_000
    let isClosed = file.walk { directory in
      defer { page += 1 }
      for (offsets, counts) in [(273, 279), (324, 325)] {
        guard let places = directory.entry(offsets), let lengths = directory.entry(counts) else { continue }
        // Plain pixels that are missing make libtiff fail, and the length of the last strip is often overstated.
        guard directory.number(259) != 1 else { continue }
        for i in 0..<min(places.count, lengths.count) {
          budget -= 1
          guard budget > 0 else { return false }
          guard let place = directory.value(places, i), let length = directory.value(lengths, i) else {
            finding = Finding(.truncated, "is cut short in the table of its strips", costsPixels: true, frame: page)
            return false
          }
          if length > 0, place >= b.count || length > b.count - place {
            finding = Finding(
              .truncated, "is cut short: strip or tile \(i + 1) ends beyond the file", costsPixels: true, frame: page)
            return false
          }
        }
      }
      if finding == nil,
        let lost = directory.entries.first(where: { $0.unit > 0 && $0.length > 4 && $0.length > b.count - $0.at })
      {
        finding = Finding(.truncated, "is cut short in tag \(lost.tag)", costsPixels: false, frame: page)
      }
      return true
    }
    // libtiff takes a page that it cannot find as the end, and many writers put the directory last.
    if !isClosed, finding?.costsPixels != true {
      return Finding(.truncated, "is cut short: page \(page + 1) lies beyond the file", costsPixels: true, frame: page)
    }
    return finding
  }

  private static func heif(_ b: UnsafeRawBufferPointer) -> Finding? {
    guard let items = HEIFItems(b) else { return nil }
    let needed = items.needed
    var other: Finding?
    for item in items.items {
      let isCut = item.extents.contains { extent in
        guard let offset = extent.offset, extent.length > 0 else { return false }
        return offset >= b.count || extent.length > b.count - offset
      }
      guard isCut else { continue }
      if needed.contains(item.id) {
        return Finding(.truncated, "is cut short: item \(item.id) ends beyond the file", costsPixels: true)
      }
      let what = item.isMetadata ? "its metadata" : "another picture in it"
      other = other ?? Finding(.truncated, "is cut short in \(what)", costsPixels: false)
    }
    return other
  }

  private static func boxes(_ b: UnsafeRawBufferPointer) -> Finding? {
    // A codestream without boxes says nothing of its length.
    guard b.big(4, at: 0) == 12 else { return nil }
    var finding: Finding?
    MediaBox.forEach(b, in: 0..<b.count) { box in
      guard box.isCut else { return }
      let isPixels = box.name == "jp2c" || box.name == "jxlc" || box.name == "jxlp"
      finding = Finding(.truncated, "is cut short in its \(box.name) box", costsPixels: isPixels)
    }
    return finding
  }

  // MARK: JPEG

  /// What libjpeg has to say of a JPEG when it is asked to the end.
  public enum JPEGFinding: Sendable, Hashable {
    case whole
    /// All pixels came out; libjpeg found bytes that belong to none, or a header that is unusual.
    case odd(String)
    /// The data end before the picture does: from about this row on the pixels are made up.
    case cutShort(fromRow: Int, of: Int, String)
    /// Data in between make no sense: from about this row on there are wrong pixels. With restart markers these may be
    /// few.
    case garbled(fromRow: Int, of: Int, String)
    /// libjpeg gave up.
    case refused(String)
    /// More than `maxScans` scans, each of which costs as much as the picture.
    case tooManyScans(Int)
  }

  /// Decodes a JPEG at an eighth of its size, throws the pixels away, and sorts what libjpeg complains of.
  ///
  /// Costs about what decoding costs, so it is for pictures of which a warning is known already. The caller has checked
  /// the sides: a progressive picture takes two bytes per sample here as anywhere.
  public static func diagnoseJPEG(_ b: UnsafeRawBufferPointer, maxScans: Int = 500) -> JPEGFinding {
    var finding = cjpeg_diagnose(b.assumingMemoryBound(to: UInt8.self).baseAddress, b.count, Int32(clamping: maxScans))
    let message = withUnsafeBytes(of: &finding.message) { text in
      String(decoding: text.prefix { $0 != 0 }, as: UTF8.self)
    }
    let (row, rows) = (Int(finding.row), Int(finding.height))
    switch finding.outcome {
    case CJPEG_WHOLE: return .whole
    case CJPEG_ODD: return .odd(message)
    case CJPEG_CUT_SHORT: return .cutShort(fromRow: row, of: rows, message)
    case CJPEG_GARBLED: return .garbled(fromRow: row, of: rows, message)
    case CJPEG_TOO_MANY_SCANS: return .tooManyScans(maxScans)
    default: return .refused(message)
    }
  }
}
