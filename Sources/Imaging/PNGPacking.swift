import CDeflate
import CVips
import Glibc

/// Packs the pixels of a PNG anew: libvips writes them stored, with every chunk around them, and here they are filtered
/// and compressed in one piece by libdeflate, which takes half of zlib's time for a file no larger.
///
/// The chunks but IDAT stay as they were, byte for byte.
struct PNGPacking {
  /// The most bytes of pixels that are packed so; more than that are left to libvips, which holds a few rows at a time
  /// instead of the picture.
  static let most = 512 << 20

  private let level: Int32
  /// Those to choose from, row by row.
  private let filters: PNGFilters

  /// nil where libvips does it all: in other formats, with compression 0, interlacing, or too many pixels.
  ///
  /// - Parameters:
  ///   - arguments: what the saver gets besides; those that are wrong are passed over here.
  ///   - image: what the saver gets.
  init?(_ options: EncodeOptions, _ arguments: [String: EncoderArgument.Value], _ image: VipsRef) {
    guard case .png(let png) = options, png.compression > 0 else { return nil }
    // Of indices into a palette a difference means nothing.
    var filters: PNGFilters = png.palette ? .plain : .all
    for (name, value) in arguments {
      switch (EncoderArguments.canonical(name), value) {
      case ("interlace", .boolean(true)): return nil
      case ("filter", .name(let one)): filters = PNGFilters(names: [one])
      case ("filter", .names(let names)): filters = PNGFilters(names: names)
      default: break
      }
    }
    let sampleBytes = image.format == VIPS_FORMAT_USHORT ? 2 : 1
    guard image.width <= Self.most / image.height / image.bands / sampleBytes else { return nil }
    self.filters = filters
    level = Self.level(for: png.compression)
  }

  /// libdeflate's level for one of zlib's, such that the file is smaller than zlib's with its filter "up", and made
  /// faster.
  private static func level(for compression: Int) -> Int32 {
    switch compression {
    case ...2: 1
    case 9...: 10
    default: Int32(compression)
    }
  }

  /// Has the saver, all of whose arguments are set, write the pixels as `packed` reads them.
  func prepare(_ saver: inout SaverCall) throws(ImagingError) {
    try saver.set("compression", 0)
    try saver.set("filter", Int(VIPS_FOREIGN_PNG_FILTER_NONE.rawValue))
  }

  /// Packs a file in memory from g_malloc, as a saver wrote it that was prepared.
  ///
  /// Takes the compressed pixels' memory on top of the file's. `memory` is freed in any case.
  /// - Returns: the file, at another place.
  /// - Throws: `internalFault` where the file is not as asked for, `memory`.
  func packed(
    _ memory: UnsafeMutableRawPointer, _ length: Int
  ) throws(ImagingError) -> (memory: UnsafeMutableRawPointer, length: Int) {
    defer { g_free(memory) }
    let file = UnsafeMutableRawBufferPointer(start: memory, count: length)
    guard let layout = Layout(UnsafeRawBufferPointer(file)), layout.gatherRows(file) else { throw Self.unexpected }
    let rows = UnsafeMutableRawBufferPointer(rebasing: file[layout.rows])
    filters.apply(to: rows, rowBytes: layout.rowBytes, height: layout.height, unit: layout.unit)
    let (packed, count) = try Self.deflated(UnsafeRawBufferPointer(rows), level: level)
    defer { g_free(packed) }
    let source = UnsafeRawBufferPointer(file)
    return try Self.assembled(
      head: source.slice(0..<layout.pixels.lowerBound), UnsafeRawBufferPointer(start: packed, count: count),
      tail: source.slice(layout.pixels.upperBound..<length))
  }

  private static var unexpected: ImagingError {
    ImagingError(.internalFault, "libvips wrote a PNG with its pixels in another form than asked for")
  }

  /// As a zlib stream, in memory from g_malloc.
  private static func deflated(
    _ bytes: UnsafeRawBufferPointer, level: Int32
  ) throws(ImagingError) -> (memory: UnsafeMutableRawPointer, count: Int) {
    guard let compressor = libdeflate_alloc_compressor(level) else { throw noMemory }
    defer { libdeflate_free_compressor(compressor) }
    // Memory that is never written to takes no room, so the bound may be generous.
    let bound = libdeflate_zlib_compress_bound(compressor, bytes.count)
    guard let out = g_try_malloc(gsize(bound)) else { throw noMemory }
    let count = libdeflate_zlib_compress(compressor, bytes.baseAddress, bytes.count, out, bound)
    guard count > 0 else {
      g_free(out)
      throw ImagingError(.internalFault, "libdeflate found no room for \(bytes.count) bytes in \(bound)")
    }
    return (out, count)
  }

  private static var noMemory: ImagingError { ImagingError(.memory, "there is no memory for the compressed pixels") }

  /// Bytes of an IDAT chunk: readers that hold a chunk at a time need little.
  private static let pieceLength = 256 << 10

  private static func assembled(
    head: UnsafeRawBufferPointer, _ packed: UnsafeRawBufferPointer, tail: UnsafeRawBufferPointer
  ) throws(ImagingError) -> (memory: UnsafeMutableRawPointer, length: Int) {
    let pieces = (packed.count + pieceLength - 1) / pieceLength
    let length = head.count + packed.count + 12 * pieces + tail.count
    guard let memory = g_try_malloc(gsize(length)) else { throw noMemory }
    let out = UnsafeMutableRawBufferPointer(start: memory, count: length)
    var at = 0
    func add(_ bytes: UnsafeRawBufferPointer) {
      UnsafeMutableRawBufferPointer(rebasing: out[at..<at + bytes.count]).copyMemory(from: bytes)
      at += bytes.count
    }
    func add(big32 value: UInt32) { withUnsafeBytes(of: value.bigEndian) { add($0) } }
    add(head)
    for start in stride(from: 0, to: packed.count, by: pieceLength) {
      let piece = packed.slice(start..<min(packed.count, start + pieceLength))
      add(big32: UInt32(piece.count))
      let body = at
      add(big32: ("IDAT" as FourLetters).code)
      add(piece)
      let covered = out[body..<at]
      add(big32: libdeflate_crc32(0, UnsafeRawBufferPointer(rebasing: covered).baseAddress, covered.count))
    }
    add(tail)
    return (memory, length)
  }

  /// Where things lie in a file whose pixels are stored.
  private struct Layout {
    let height: Int
    let rowBytes: Int
    /// Bytes from a sample to the one on its left; 1 where there are several to a byte (PNG, third edition, 9.2).
    let unit: Int
    /// From the first IDAT chunk to the end of the last.
    let pixels: Range<Int>

    /// Where `gatherRows` puts them.
    var rows: Range<Int> { pixels.lowerBound..<pixels.lowerBound + height * (rowBytes + 1) }

    init?(_ b: UnsafeRawBufferPointer) {
      guard b.says("IHDR", at: 12), let width = b.big(4, at: 16), let height = b.big(4, at: 20), b.count > 33,
        let channels = [0: 1, 2: 3, 3: 1, 4: 2, 6: 4][b[25]], [1, 2, 4, 8, 16].contains(b[24]), b[28] == 0,
        width > 0, height > 0
      else { return nil }
      let bits = Int(b[24]) * channels
      self.height = height
      rowBytes = (width * bits + 7) / 8
      unit = max(1, bits / 8)
      var (first, last): (Int?, Int) = (nil, 0)
      PNGChunks.forEach(b) { chunk in
        if chunk.name == "IDAT" {
          first = first ?? chunk.body.lowerBound - 8
          last = chunk.body.upperBound + 4
        }
        return true
      }
      guard let first, last <= b.count else { return nil }
      pixels = first..<last
    }

    /// Moves the rows together, over the chunks and blocks that they are stored in (RFC 1950 and RFC 1951, 3.2.4).
    ///
    /// - Returns: false where there are other blocks than stored ones, other chunks in between, filtered rows, or more
    ///   or fewer bytes than the rows have.
    func gatherRows(_ file: UnsafeMutableRawBufferPointer) -> Bool {
      guard let base = file.baseAddress else { return false }
      let source = UnsafeRawBufferPointer(file)
      // The stream first, then what it holds: two passes over memory, but each simple.
      var end = pixels.lowerBound
      var at = pixels.lowerBound
      while at < pixels.upperBound {
        guard let length = source.big(4, at: at), source.says("IDAT", at: at + 4), length <= pixels.upperBound - at - 12
        else { return false }
        memmove(base + end, base + at + 8, length)
        end += length
        at += length + 12
      }
      let stream = end
      at = pixels.lowerBound + 2
      end = pixels.lowerBound
      var isLast = false
      while !isLast {
        guard at + 5 <= stream, let length = source.little(2, at: at + 1), let check = source.little(2, at: at + 3),
          file[at] & 6 == 0, length ^ check == 0xFFFF, length <= stream - at - 5
        else { return false }
        isLast = file[at] & 1 == 1
        memmove(base + end, base + at + 5, length)
        end += length
        at += length + 5
      }
      guard end - pixels.lowerBound == rows.count else { return false }
      return stride(from: rows.lowerBound, to: rows.upperBound, by: rowBytes + 1).allSatisfy { file[$0] == 0 }
    }
  }
}

extension PNGFilters {
  /// Those that libvips has these names for; without any, rows stay as they are.
  init(names: [String]) {
    let known: [String: PNGFilters] = [
      "none": .plain, "sub": .sub, "up": .up, "avg": .average, "paeth": .paeth, "all": .all,
    ]
    self = names.reduce(into: []) { $0.formUnion(known[$1] ?? []) }
  }
}
