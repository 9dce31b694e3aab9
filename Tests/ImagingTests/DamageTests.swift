import Testing

@testable import Imaging

/// What is left of pictures that are cut short.
@Suite struct DamageTests {
  private static let (width, height) = (160, 120)
  private static let cuts = [30, 60, 90]

  /// Waves with grain, so that all parts of a file hold about as much of the picture.
  private static func grained(bands: Int = 3) throws -> Image {
    let waves = try Made.waves(width, height).bytes()
    var state: UInt32 = 1
    return try Made.image(width, height, bands: bands) { x, y in
      (0..<bands).map { band in
        state = state &* 1_664_525 &+ 1_013_904_223
        let grain = Int(state >> 27) - 16
        return UInt8(max(1, min(255, Int(waves[(y * width + x) * 3 + band % 3]) + grain)))
      }
    }
  }

  private struct Outcome {
    var image: Image
    var warnings: [String]
  }

  private func read(
    _ bytes: some Collection<UInt8>, _ policy: DamagePolicy, frames: FramePolicy = .first
  ) throws -> Outcome {
    let source = try EncodedPicture(
      bytes: EncodedBytes(Array(bytes)), options: DecodeOptions(onDamage: policy, frames: frames))
    let image = try source.pixels()
    return Outcome(image: image, warnings: source.warnings)
  }

  private func rows(_ image: Image) throws -> [[UInt8]] {
    let (all, length) = (try image.bytes(), image.width * image.bands)
    return (0..<image.height).map { Array(all[$0 * length..<($0 + 1) * length]) }
  }

  /// Whether the three policies do what they say with a picture that is cut.
  ///
  /// - Returns: the rows of the whole picture and of what is left of it.
  private func check(_ bytes: [UInt8], cut: Int) throws -> (whole: [[UInt8]], left: [[UInt8]]) {
    let part = bytes.prefix(bytes.count * cut / 100)
    let whole = try read(bytes, .fail)
    #expect(whole.warnings.isEmpty)
    #expect(failure { _ = try read(part, .fail) }?.code == .damaged)
    let warned = try read(part, .warn)
    #expect(warned.image.width == whole.image.width && warned.image.height == whole.image.height)
    #expect(warned.warnings.count { $0.contains("damaged or cut short") } == 1, "\(warned.warnings)")
    let accepted = try read(part, .accept)
    #expect(accepted.warnings.isEmpty)
    #expect(try accepted.image.bytes() == warned.image.bytes())
    // A GIF has alpha only where something is missing.
    let left = whole.image.hasAlpha ? warned.image : try warned.image.withoutAlpha()
    return (try rows(whole.image), try rows(left))
  }

  /// How many rows from the top are the same.
  private func same(_ a: [[UInt8]], _ b: [[UInt8]]) -> Int { zip(a, b).prefix { $0 == $1 }.count }

  enum Kind: String, CaseIterable {
    case jpeg, png, filtered, sixteenBit, webp, lossless, gif
  }

  private func encoded(_ kind: Kind) throws -> [UInt8] {
    let image = try Self.grained()
    switch kind {
    case .jpeg: return try image.encoded(.jpeg(.init()), metadata: .none).array
    case .png: return try image.encoded(.png(.init()), metadata: .none).array
    case .filtered:
      return try image.encoding(.png(.init()), metadata: .init(.none), arguments: ["filter": .name("paeth")]).bytes
        .array
    case .sixteenBit: return try image.withDepth(16).encoded(.png(.init()), metadata: .none).array
    case .webp: return try image.encoded(.webp(.init(quality: 90)), metadata: .none).array
    case .lossless: return try image.encoded(.webp(.init(lossless: true)), metadata: .none).array
    case .gif: return try image.encoded(.gif(.init()), metadata: .none).array
    }
  }

  @Test("the rows before the cut are those of the whole picture", arguments: Kind.allCases, cuts)
  func rowsBefore(_ kind: Kind, _ cut: Int) throws {
    let (whole, left) = try check(encoded(kind), cut: cut)
    let found = same(whole, left)
    // Headers and tables stand in front, and filters look some rows ahead.
    #expect(found >= Self.height * cut / 100 - 30, "\(found) rows")
    #expect(found < Self.height)
    if kind == .png || kind == .filtered || kind == .sixteenBit {
      #expect(left[found...].allSatisfy { $0.allSatisfy { $0 == 0 } }, "what is missing is black")
    }
  }

  @Test("PNG with alpha: what is missing is transparent", arguments: cuts)
  func alpha(_ cut: Int) throws {
    let bytes = try Self.grained(bands: 4).encoded(.png(.init()), metadata: .none).array
    let (whole, left) = try check(bytes, cut: cut)
    let found = same(whole, left)
    #expect(found >= Self.height * cut / 100 - 30 && found < Self.height)
    #expect(left[found...].allSatisfy { $0.allSatisfy { $0 == 0 } })
  }

  @Test("interlaced PNG: the passes before the cut", arguments: cuts, ["none", "sub", "up", "avg", "paeth"])
  func interlaced(_ cut: Int, _ filter: String) throws {
    let bytes = try Self.grained().encoding(
      .png(.init()), metadata: .init(.none), arguments: ["interlace": .boolean(true), "filter": .name(filter)]
    ).bytes.array
    #expect(bytes[28] == 1)
    let (whole, left) = try check(bytes, cut: cut)
    // The first four passes are an eighth of the pixels, six are half of them.
    let (dx, dy) = [30: (2, 4), 60: (1, 2), 90: (1, 2)][cut] ?? (1, 1)
    for y in stride(from: 0, to: Self.height, by: dy) {
      for x in stride(from: 0, to: Self.width, by: dx) {
        #expect(left[y][3 * x..<3 * x + 3] == whole[y][3 * x..<3 * x + 3], "\(x), \(y)")
      }
    }
    // The last row belongs to the last pass.
    #expect(left[Self.height - 1] == left[Self.height - 2])
    #expect(left != whole)
  }

  @Test(
    "interlaced PNG of few bits: a pixel that is missing has the colour of an earlier pass", arguments: [1, 2, 4, 8])
  func passes(_ bits: Int) throws {
    // Grey, 8×8: one pixel, one, two, four (two rows of two), eight …, each row with its filter byte.
    let most = 1 << bits
    func value(_ x: Int, _ y: Int) -> Int { (x * 5 + y * 3 + x * y) % most }
    let passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    var lengths: [Int] = []
    var data: [UInt8] = []
    for (x0, y0, dx, dy) in passes {
      for y in stride(from: y0, to: 8, by: dy) {
        var row = 0
        var count = 0
        var bytes: [UInt8] = [0]
        for x in stride(from: x0, to: 8, by: dx) {
          row = row << bits | value(x, y)
          count += bits
          if count == 8 {
            bytes.append(UInt8(row))
            (row, count) = (0, 0)
          }
        }
        if count > 0 { bytes.append(UInt8(row << (8 - count))) }
        data += bytes
      }
      lengths.append(data.count)
    }
    let header = Made.big32(8) + Made.big32(8) + [UInt8(bits), 0, 0, 0, 1]
    let start: [UInt8] = [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A] + Made.chunk("IHDR", header)
    for (index, length) in lengths.enumerated() {
      let packed = try #require(Inflate.packed(Array(data.prefix(length))))
      let file = start + Made.chunk("IDAT", packed) + Made.chunk("IEND", [])
      let image = try read(file, .accept).image
      let pixels = try image.bytes()
      for y in 0..<8 {
        for x in 0..<8 {
          var (fromX, fromY) = (x, y)
          for pass in passes[(index + 1)...].reversed() {
            guard fromX % pass.2 == pass.0, fromY % pass.3 == pass.1 else { continue }
            if pass.2 == pass.3 || pass.0 > 0 { fromX -= pass.0 } else { fromY -= pass.1 }
          }
          let expected = value(fromX, fromY) * 255 / (most - 1)
          #expect(Int(pixels[(y * 8 + x) * image.bands]) == expected, "\(x), \(y) after \(index + 1) passes")
        }
      }
    }
  }

  @Test("damage at the end of a picture is seen however many threads there are")
  func lastPiece() async throws {
    let bytes = try Self.grained().cropped(x: 0, y: 0, width: 8, height: 8).encoding(
      .png(.init()), metadata: .init(.none), arguments: ["interlace": .boolean(true)]
    ).bytes.array
    var wrong = bytes
    var at = 0
    bytes.withUnsafeBytes { raw in
      PNGChunks.forEach(raw) { chunk in
        if chunk.name == "IDAT" { at = chunk.body.upperBound }
        return true
      }
    }
    wrong[at] ^= 1
    let unseen = await withTaskGroup(of: Int.self) { [wrong] group in
      for _ in 0..<6 {
        group.addTask { (0..<200).count { _ in (try? self.read(wrong, .fail)) != nil } }
      }
      return await group.reduce(0, +)
    }
    #expect(unseen == 0)
  }

  @Test("PNG: a wrong sum in the middle costs nothing of the pixels that are right")
  func wrongSum() throws {
    var bytes = try encoded(.png)
    var sums: [Int] = []
    bytes.withUnsafeBytes { raw in
      PNGChunks.forEach(raw) { chunk in
        if chunk.name == "IDAT" { sums.append(chunk.body.upperBound) }
        return true
      }
    }
    let whole = try read(bytes, .fail).image.bytes()
    bytes[try #require(sums.first)] ^= 1
    #expect(failure { _ = try read(bytes, .fail) }?.code == .damaged)
    #expect(try read(bytes, .accept).image.bytes() == whole)
  }

  @Test("nothing of the pixels is nothing")
  func nothing() throws {
    let png = try encoded(.png)
    let error = failure { _ = try read(png.prefix(45), .warn) }
    #expect(error?.code == .damaged)
    #expect(error?.hint?.contains("onDamage") != true, "that was tried")
  }

  // MARK: BMP and ICO

  private func bitmap(_ bits: Int, coding: Int = 0, topDown: Bool = false, extra: [UInt8] = [], data: [UInt8])
    -> [UInt8]
  {
    let at = 54 + extra.count
    var head = Array("BM".utf8) + Made.little32(at + data.count) + [0, 0, 0, 0] + Made.little32(at)
    head += Made.little32(40) + Made.little32(Self.width) + Made.little32(topDown ? -Self.height : Self.height)
    head += [1, 0, UInt8(bits), 0] + Made.little32(coding) + Made.little32(data.count)
    return head + [UInt8](repeating: 0, count: 16) + extra + data
  }

  @Test("BMP: rows from the top or from the bottom", arguments: cuts, [false, true])
  func bitmaps(_ cut: Int, _ topDown: Bool) throws {
    let bytes = bitmap(24, topDown: topDown, data: try Self.grained().bytes())
    let (whole, left) = try check(bytes, cut: cut)
    let found = topDown ? same(whole, left) : same(whole.reversed(), left.reversed())
    #expect(found == (bytes.count * cut / 100 - 54) / (Self.width * 3))
    let missing = topDown ? left.suffix(Self.height - found) : left.prefix(Self.height - found)
    #expect(missing.allSatisfy { $0.allSatisfy { $0 == 0 } })
  }

  @Test("BMP: runs up to the cut", arguments: cuts)
  func runs(_ cut: Int) throws {
    let palette: [UInt8] = (0..<256).flatMap { (n: Int) -> [UInt8] in [UInt8(n), UInt8(n), UInt8(n), 0] }
    var data: [UInt8] = []
    for y in 0..<Self.height {
      for x in 0..<Self.width / 4 { data += [4, UInt8((x * 7 + y * 3) % 255 + 1)] }
      data += [0, 0]
    }
    let bytes = bitmap(8, coding: 1, extra: palette, data: data + [0, 1])
    let (whole, left) = try check(bytes, cut: cut)
    let found = same(whole.reversed(), left.reversed())
    #expect(found == (bytes.count * cut / 100 - 54 - 1024) / (Self.width / 2 + 2))
    #expect(left.prefix(Self.height - found - 1).allSatisfy { $0.allSatisfy { $0 == 0 } })
  }

  @Test("ICO: rows of colours and of the mask", arguments: [8, 24, 32], cuts)
  func icons(_ bits: Int, _ cut: Int) throws {
    let side = 32
    let rows = (0..<side).map { y in
      (0..<side).flatMap { x -> [UInt8] in
        let value = UInt8(x + 3 * y + 1)
        return switch bits {
        case 8: [value]
        case 24: [value, value, value]
        default: [value, value, value, 200]
        }
      }
    }
    let palette = bits == 8 ? (0..<256).map { [UInt8($0), UInt8($0), UInt8($0)] } : []
    let bytes = Made.icon([
      (
        side,
        Made.iconBitmap(
          side, side, bits: bits, palette: palette, rows: rows, mask: .init(repeating: [0xF0, 0, 0, 0], count: side))
      )
    ])
    let lead = 6 + 16 + 40 + 4 * palette.count
    let there = (bytes.count * cut / 100 - lead) / (side * bits / 8)
    guard there > 0 else {
      #expect(failure { _ = try read(bytes.prefix(bytes.count * cut / 100), .warn) }?.code == .damaged)
      return
    }
    let (whole, left) = try check(bytes, cut: cut)
    let found = same(whole.reversed(), left.reversed())
    if there >= side {
      // Only rows of the mask are missing: there everything shows.
      #expect(left.allSatisfy { row in row[16...] == whole[0][16...] || row[19] == 255 })
    } else if bits == 32 {
      #expect(found == there)
      #expect(left.prefix(side - found).allSatisfy { $0.allSatisfy { $0 == 0 } })
    } else {
      for y in side - there..<side { #expect(left[y][16...] == whole[y][16...]) }
      #expect(left.prefix(side - there).allSatisfy { $0.allSatisfy { $0 == 0 } })
    }
  }

  @Test("ICO: a PNG that is cut", arguments: cuts)
  func iconPNG(_ cut: Int) throws {
    let png = try encoded(.png)
    let (whole, left) = try check(Made.icon([(0, png)]), cut: cut)
    #expect(same(whole, left) >= Self.height * cut / 100 - 30)
  }

  // MARK: TIFF

  /// A TIFF with its directory in front, of strips or tiles of 16 rows, packed with Deflate where asked for.
  private func tiff(tiled: Bool, packed: Bool) throws -> [UInt8] {
    let pixels = try Self.grained().bytes()
    let across = tiled ? 32 : Self.width
    var parts: [[UInt8]] = []
    for y in stride(from: 0, to: Self.height, by: 16) {
      for x in stride(from: 0, to: Self.width, by: across) {
        var part: [UInt8] = []
        for row in y..<y + 16 {
          if row < Self.height {
            part += pixels[(row * Self.width + x) * 3..<(row * Self.width + x + across) * 3]
          } else if tiled {
            part += [UInt8](repeating: 9, count: 3 * across)
          }
        }
        parts.append(packed ? try #require(Inflate.packed(part)) : part)
      }
    }
    let count = 12
    let placesAt = 8 + 2 + 12 * count + 4
    let lengthsAt = placesAt + 4 * parts.count
    let bitsAt = lengthsAt + 4 * parts.count
    var at = bitsAt + 6
    var places: [UInt8] = []
    for part in parts {
      places += Made.little32(at)
      at += part.count
    }
    func entry(_ tag: Int, _ type: Int, _ values: Int, _ value: Int) -> [UInt8] {
      Made.little16(tag) + Made.little16(type) + Made.little32(values) + Made.little32(value)
    }
    var directory = entry(256, 3, 1, Self.width) + entry(257, 3, 1, Self.height) + entry(258, 3, 3, bitsAt)
    directory += entry(259, 3, 1, packed ? 8 : 1) + entry(262, 3, 1, 2)
    if !tiled { directory += entry(273, 4, parts.count, placesAt) }
    directory += entry(274, 3, 1, 1) + entry(277, 3, 1, 3)
    if !tiled { directory += entry(278, 3, 1, 16) + entry(279, 4, parts.count, lengthsAt) }
    directory += entry(284, 3, 1, 1)
    if tiled {
      directory += entry(322, 3, 1, across) + entry(323, 3, 1, 16) + entry(324, 4, parts.count, placesAt)
      directory += entry(325, 4, parts.count, lengthsAt)
    } else {
      directory += entry(296, 3, 1, 2)
    }
    var tables = places
    for part in parts { tables += Made.little32(part.count) }
    for _ in 0..<3 { tables += Made.little16(8) }
    let head: [UInt8] = [0x49, 0x49, 0x2A, 0] + Made.little32(8) + Made.little16(count)
    return head + directory + Made.little32(0) + tables + Array(parts.joined())
  }

  @Test(
    "TIFF: strips and tiles before the cut", arguments: cuts,
    [(false, false), (false, true), (true, false), (true, true)])
  func tiff(_ cut: Int, _ kind: (tiled: Bool, packed: Bool)) throws {
    let bytes = try tiff(tiled: kind.tiled, packed: kind.packed)
    let (whole, left) = try check(bytes, cut: cut)
    let found = same(whole, left)
    #expect(found >= Self.height * cut / 100 - 20 && found < Self.height, "\(found) rows")
    // Plain rows and tiles are there in part.
    let black = kind.packed ? found : (found / 16 + 1) * 16
    #expect(left.dropFirst(black).allSatisfy { $0.allSatisfy { $0 == 0 } })
  }

  @Test("TIFF: strips at the end of the world are not made up")
  func hostileTIFF() throws {
    var bytes = try tiff(tiled: false, packed: false)
    // The last strip's place: three gigabytes on.
    let at = 8 + 2 + 12 * 12 + 4 + 4 * 7
    bytes.replaceSubrange(at..<at + 4, with: Made.little32(3_000_000_000))
    #expect(bytes.withUnsafeBytes { TIFFRescue.whole(from: $0) } == nil)
    #expect(failure { _ = try read(bytes, .warn) }?.code == .damaged)
  }

  // MARK: Others

  @Test("what is read whole or not at all says so")
  func hopeless() throws {
    let image = try Self.grained()
    guard PictureFormat.jxl.canEncode else { return }
    let bytes = try image.encoded(.jxl(.init()), metadata: .none).array
    for policy in [DamagePolicy.warn, .accept] {
      let error = failure { _ = try read(bytes.prefix(bytes.count * 6 / 10), policy) }
      #expect(error?.code == .damaged)
      #expect(error?.hint?.contains("whole or not at all") == true, "\(error?.hint ?? "none")")
    }
  }

  @Test("a WebP animation that is cut has the frames that are whole")
  func animatedWebP() throws {
    let frames = try (0..<3).map { n in try Made.image(64, 48) { x, y in [UInt8(x * 3), UInt8(y * 5), UInt8(n * 90)] } }
    let bytes = try Animation(frames: frames, delays: [100, 200, 300], loop: 0).strip().encoded(
      .webp(.init(lossless: true)), metadata: .none
    ).array
    let part = Array(bytes.prefix(bytes.count - 12))
    let options = DecodeOptions(onDamage: .warn, frames: .all)
    #expect(
      failure { _ = try EncodedPicture(bytes: EncodedBytes(part), options: DecodeOptions(frames: .all)) }?.code
        == .damaged)
    let source = try EncodedPicture(bytes: EncodedBytes(part), options: options)
    #expect(try source.animation().frames.count == 2)
    #expect(source.warnings.contains { $0.contains("damaged or cut short") })
  }

  // MARK: Filters of drawings

  private func drawing(_ side: Int, _ content: String) -> [UInt8] {
    Array("<svg xmlns='http://www.w3.org/2000/svg' width='\(side)' height='\(side)'>\(content)</svg>".utf8)
  }

  @Test("a large drawing with filters is refused before it is drawn, and drawn where it is made small")
  func filters() throws {
    let filter =
      "<filter id='f'><feGaussianBlur stdDeviation='9'/></filter><rect width='9' height='9' filter='url(#f)'/>"
    let options = DecodeOptions(allowed: [.svg])
    let large = try EncodedPicture(bytes: EncodedBytes(drawing(5000, filter)), options: options)
    let error = failure { _ = try large.decode() }
    #expect(error?.code == .limit)
    #expect(error?.message.contains("5000×5000") == true && error?.hint?.contains("resize") == true)
    let plan = try ResizeRequest(width: 50).plan(for: 5000, 5000)
    #expect(try large.pixels(resizedTo: plan).width == 50)
    let inner = "<image href='data:image/svg+xml;base64,\(Made.base64(drawing(5000, filter)))' width='9' height='9'/>"
    let nested = failure { _ = try EncodedPicture(bytes: EncodedBytes(drawing(90, inner)), options: options) }
    #expect(nested?.code == .limit)
    #expect(try EncodedPicture(bytes: EncodedBytes(drawing(5000, "<rect/>")), options: options).decode().width == 5000)
  }

  @Test(
    "filters are found as elements, attributes and properties",
    arguments: [
      ("<filter id='f'/>", true), ("<s:filter/>", true), ("<g filter = 'url(#f)'/>", true),
      ("<g style='FILTER :blur(3px)'/>", true), ("<style>a{backdrop-filter:blur(1px)}</style>", true), ("<g/>", false),
      ("<text>coffee filter</text>", false), ("<feBlend id='filtered'/>", false), ("filter", false), ("", false),
    ])
  func hasFilter(_ text: String, _ isFound: Bool) {
    #expect(SVGPictures.hasFilter(Array(text.utf8)) == isFound)
  }
}
