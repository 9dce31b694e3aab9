/// Makes a whole PNG of what there is of a damaged one: libpng gives nothing of an interlaced picture that is cut short,
/// and leaves what it finds in memory where rows of a plain one are missing.
///
/// The pixels are unpacked as far as the compressed data goes, whatever the sums of its chunks say. Rows that are
/// missing are zero: black, transparent, or the palette's first colour. Of an interlaced picture they show the nearest
/// pixel of an earlier pass, as viewers do. Passes and filters as in PNG (third edition), 8.2 and 9.2.
struct PNGRescue {
  private let width: Int
  private let height: Int
  private let bitsPerPixel: Int
  /// The rows as PNG has them, each behind its filter byte, which is 0.
  private var rows: [UInt8]
  private let stride: Int

  /// A whole, plain PNG with the same sides, kind of pixels and metadata; nil where the header makes no sense, nothing
  /// of the pixels can be unpacked, or memory is short.
  ///
  /// Takes the memory of the picture unpacked and of the new file. The caller has checked the sides.
  static func whole(from b: UnsafeRawBufferPointer) -> EncodedBytes? {
    guard var rescue = PNGRescue(header: b) else { return nil }
    var packed: [UInt8] = []
    PNGChunks.forEach(b) { chunk in
      if chunk.name == "IDAT" { packed.append(contentsOf: b.slice(chunk.body)) }
      return chunk.name != "IEND"
    }
    guard packed.withUnsafeBytes({ rescue.fill($0, isInterlaced: b[28] == 1) }) else { return nil }
    packed = []
    return rescue.file(like: b)
  }

  private init?(header b: UnsafeRawBufferPointer) {
    guard b.count > 33, b.big(4, at: 8) == 13, b.says("IHDR", at: 12), let width = b.big(4, at: 16),
      let height = b.big(4, at: 20), width > 0,
      height > 0, width < 1 << 31, height < 1 << 31, b[28] <= 1,
      let channels = [0: 1, 2: 3, 3: 1, 4: 2, 6: 4][b[25]], [1, 2, 4, 8, 16].contains(b[24])
    else { return nil }
    self.width = width
    self.height = height
    bitsPerPixel = Int(b[24]) * channels
    stride = 1 + (width * bitsPerPixel + 7) / 8
    let (size, overflow) = stride.multipliedReportingOverflow(by: height)
    // More than zlib packs in one go, and than any machine this is for holds.
    guard !overflow, size < 1 << 36 else { return nil }
    rows = [UInt8](repeating: 0, count: size)
  }

  /// A pass over the picture: its first pixel, and the distance from one pixel to the next.
  private struct Pass {
    var x: Int
    var y: Int
    var dx: Int
    var dy: Int
    /// How far back, for a pixel that is missing, one of an earlier pass lies.
    var back: (x: Int, y: Int)
  }

  private static let plain = [Pass(x: 0, y: 0, dx: 1, dy: 1, back: (0, 0))]
  private static let adam7 = [
    Pass(x: 0, y: 0, dx: 8, dy: 8, back: (0, 0)), Pass(x: 4, y: 0, dx: 8, dy: 8, back: (4, 0)),
    Pass(x: 0, y: 4, dx: 4, dy: 8, back: (0, 4)), Pass(x: 2, y: 0, dx: 4, dy: 4, back: (2, 0)),
    Pass(x: 0, y: 2, dx: 2, dy: 4, back: (0, 2)), Pass(x: 1, y: 0, dx: 2, dy: 2, back: (1, 0)),
    Pass(x: 0, y: 1, dx: 1, dy: 2, back: (0, 1)),
  ]

  /// Unpacks the pixels as far as they go.
  ///
  /// - Returns: false where there is not one row.
  private mutating func fill(_ packed: UnsafeRawBufferPointer, isInterlaced: Bool) -> Bool {
    let passes = (isInterlaced ? Self.adam7 : Self.plain).filter { $0.x < width && $0.y < height }
    func rowBytes(_ pass: Pass) -> Int { ((width - pass.x + pass.dx - 1) / pass.dx * bitsPerPixel + 7) / 8 }
    var (current, y) = (0, passes[0].y)
    var length = 1 + rowBytes(passes[0])
    var (row, last) = ([UInt8](), [UInt8](repeating: 0, count: length))
    row.reserveCapacity(length)
    var isSound = true
    let size = passes.reduce(0) { $0 + (1 + rowBytes($1)) * ((height - $1.y + $1.dy - 1) / $1.dy) }
    _ = Inflate.run(packed, .zlib, limit: size) { piece in
      var at = 0
      while at < piece.count, isSound, current < passes.count {
        let count = min(length - row.count, piece.count - at)
        row.append(contentsOf: piece.slice(at..<at + count))
        at += count
        guard row.count == length else { return }
        let pass = passes[current]
        isSound = unfilter(&row, last)
        guard isSound else { return }
        scatter(row, pass, y)
        swap(&row, &last)
        row.removeAll(keepingCapacity: true)
        y += pass.dy
        guard y >= height else { continue }
        current += 1
        guard current < passes.count else { return }
        y = passes[current].y
        length = 1 + rowBytes(passes[current])
        last = [UInt8](repeating: 0, count: length)
      }
    }
    guard current > 0 || y > passes[0].y else { return false }
    guard isInterlaced else { return true }
    while current < passes.count {
      spread(passes[current], from: y)
      current += 1
      if current < passes.count { y = passes[current].y }
    }
    return true
  }

  /// Turns a row back into pixels; false for a filter that there is not.
  private func unfilter(_ row: inout [UInt8], _ above: [UInt8]) -> Bool {
    let unit = max(1, bitsPerPixel / 8)
    switch row[0] {
    case 0: break
    case 1: for i in Swift.stride(from: 1 + unit, to: row.count, by: 1) { row[i] &+= row[i - unit] }
    case 2: for i in 1..<row.count { row[i] &+= above[i] }
    case 3:
      for i in 1..<row.count {
        let left = i > unit ? Int(row[i - unit]) : 0
        row[i] &+= UInt8((left + Int(above[i])) / 2)
      }
    case 4:
      for i in 1..<row.count {
        let (left, corner) = i > unit ? (Int(row[i - unit]), Int(above[i - unit])) : (0, 0)
        let up = Int(above[i])
        let (toLeft, toUp, toCorner) = (abs(up - corner), abs(left - corner), abs(left + up - 2 * corner))
        row[i] &+= UInt8(toLeft <= toUp && toLeft <= toCorner ? left : toUp <= toCorner ? up : corner)
      }
    default: return false
    }
    return true
  }

  /// Puts a row of a pass where its pixels belong.
  private mutating func scatter(_ row: [UInt8], _ pass: Pass, _ y: Int) {
    let start = y * stride + 1
    if pass.dx == 1 {
      rows.replaceSubrange(start..<start + row.count - 1, with: row[1...])
      return
    }
    var x = pass.x
    var n = 0
    while x < width {
      if bitsPerPixel >= 8 {
        let unit = bitsPerPixel / 8
        for i in 0..<unit { rows[start + x * unit + i] = row[1 + n * unit + i] }
      } else {
        let bit = n * bitsPerPixel
        set(x, y, row[1 + bit / 8] >> (8 - bitsPerPixel - bit % 8) & UInt8((1 << bitsPerPixel) - 1))
      }
      x += pass.dx
      n += 1
    }
  }

  /// Gives the pixels of a pass, from row `y` on, the colour of their neighbours in earlier passes.
  private mutating func spread(_ pass: Pass, from y: Int) {
    guard pass.back.x + pass.back.y > 0 else { return }
    for y in Swift.stride(from: y, to: height, by: pass.dy) {
      for x in Swift.stride(from: pass.x, to: width, by: pass.dx) {
        let (fromX, fromY) = (x - pass.back.x, y - pass.back.y)
        if bitsPerPixel >= 8 {
          let unit = bitsPerPixel / 8
          let (to, from) = (y * stride + 1 + x * unit, fromY * stride + 1 + fromX * unit)
          for i in 0..<unit { rows[to + i] = rows[from + i] }
        } else {
          let bit = fromX * bitsPerPixel
          let byte = rows[fromY * stride + 1 + bit / 8]
          set(x, y, byte >> (8 - bitsPerPixel - bit % 8) & UInt8((1 << bitsPerPixel) - 1))
        }
      }
    }
  }

  /// Sets a pixel of less than a byte.
  private mutating func set(_ x: Int, _ y: Int, _ value: UInt8) {
    let bit = x * bitsPerPixel
    let at = y * stride + 1 + bit / 8
    let shift = 8 - bitsPerPixel - bit % 8
    rows[at] = rows[at] & ~(UInt8((1 << bitsPerPixel) - 1) << shift) | value << shift
  }

  /// The file anew: chunks but the pixels' as they were, where they are whole.
  private mutating func file(like b: UnsafeRawBufferPointer) -> EncodedBytes? {
    guard let packed = Inflate.packed(rows, level: 1) else { return nil }
    rows = []
    var out = Array(b.slice(0..<8))
    func add(_ name: FourLetters, _ body: UnsafeRawBufferPointer) {
      let start = out.count + 4
      out += Self.big32(body.count) + Self.big32(Int(name.code))
      out.append(contentsOf: body)
      out += Self.big32(out.withUnsafeBytes { Inflate.crc32($0.slice(start..<out.count)) })
    }
    var hasPixels = false
    PNGChunks.forEach(b) { chunk in
      switch chunk.name {
      case "IHDR":
        var header = Array(b.slice(chunk.body))
        header[12] = 0
        header.withUnsafeBytes { add("IHDR", $0) }
      case "IDAT":
        guard !hasPixels else { break }
        hasPixels = true
        packed.withUnsafeBytes { all in
          // A chunk's length has 31 bits.
          for at in Swift.stride(from: 0, to: all.count, by: 1 << 30) { add("IDAT", all.slice(at..<at + 1 << 30)) }
        }
      case "PLTE": add("PLTE", b.slice(chunk.body))
      case "IEND": return false
      default:
        // A wrong sum stays wrong: then the decoder leaves the chunk out.
        guard chunk.checksum != nil else { break }
        out.append(contentsOf: b.slice(chunk.body.lowerBound - 8..<chunk.body.upperBound + 4))
      }
      return true
    }
    add("IEND", UnsafeRawBufferPointer(start: nil, count: 0))
    return EncodedBytes(out)
  }

  private static func big32(_ value: Int) -> [UInt8] { [24, 16, 8, 0].map { UInt8(value >> $0 & 255) } }
}
