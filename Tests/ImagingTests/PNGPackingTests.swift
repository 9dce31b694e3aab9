import Glibc
import Imaging
import Testing

/// PNG's pixels are packed by the module itself; libvips writes the rest of the file and, here, reads it back.
@Suite struct PNGPackingTests {
  struct Chunk: Equatable {
    var name: String
    var body: [UInt8]
  }

  /// The chunks of a file, each held against its checksum.
  private func chunks(_ bytes: EncodedBytes) throws -> [Chunk] {
    let file = bytes.array
    try #require(file.starts(with: [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]))
    var found: [Chunk] = []
    var at = 8
    while at + 12 <= file.count {
      let length = file[at..<at + 4].reduce(0) { $0 << 8 | Int($1) }
      try #require(at + 12 + length <= file.count)
      let name = String(decoding: file[at + 4..<at + 8], as: UTF8.self)
      let body = Array(file[at + 8..<at + 8 + length])
      #expect(Array(file[at..<at + 12 + length]) == Made.chunk(name, body), "the checksum of \(name)")
      found.append(Chunk(name: name, body: body))
      at += 12 + length
    }
    #expect(at == file.count && found.last?.name == "IEND")
    return found
  }

  /// Grey as three bands, with the band behind it, where there is one, as it was.
  private static func tripled(_ bytes: [UInt8], bands: Int) -> [UInt8] {
    var result: [UInt8] = []
    for at in stride(from: 0, to: bytes.count, by: bands) {
      for _ in 0..<3 { result.append(bytes[at]) }
      if bands == 2 { result.append(bytes[at + 1]) }
    }
    return result
  }

  /// Something of everything: flat, smooth, noise, and the same again.
  private func sample(_ x: Int, _ y: Int, _ band: Int) -> Int {
    switch (x / 5 + y / 3) % 4 {
    case 0: 200
    case 1: 40 + 3 * x + 5 * y + 20 * band
    case 2: (x * 7919 + y * 104_729 + band * 1299 + x * y) & 0xFFFF
    default: x * 40 & 0xFF
    }
  }

  @Test("every width keeps its pixels, in colour, with alpha, and grey", arguments: [1, 2, 6, 9])
  func widths(compression: Int) throws {
    for width in Array(1...17) + [31, 32, 33, 300] {
      for bands in 1...4 {
        let image = try Made.image(width, 13, bands: bands) { x, y in
          // Nowhere 0: what is stored under nothing is black, whatever it was.
          (0..<bands).map { UInt8(1 + self.sample(x, y, $0) % 255) }
        }
        let bytes = try image.encoded(.png(.init(compression: compression)), metadata: .none)
        let kinds = try chunks(bytes).map(\.name)
        #expect(kinds.filter { $0 == "IDAT" }.count == 1)
        let back = try picture(bytes.array).decode()
        let pixels = try back.bytes()
        var expected = try image.bytes()
        // Grey comes back as three bands alike.
        if bands <= 2 { expected = Self.tripled(expected, bands: bands) }
        #expect(pixels == expected, "\(width) pixels of \(bands) bands at \(compression)")
      }
    }
  }

  @Test("sixteen bits keep theirs, with and without alpha")
  func sixteenBits() throws {
    let reading = DecodeOptions(space: WorkingSpace(gamut: .srgb, depth: .source))
    for width in Array(1...9) + [257] {
      for bands in 3...4 {
        let samples = (0..<width * 11 * bands).map {
          UInt16(1 + self.sample($0 / bands % width, $0 / bands / width, $0 % bands) * 257 % 65_535)
        }
        let image = try Image(width: width, height: 11, bands: bands, samples: samples)
        let bytes = try image.encoded(.png(.init()), metadata: .none)
        #expect(try chunks(bytes)[0].body[8] == 16)
        let back = try EncodedPicture(bytes: bytes, options: reading).decode()
        #expect(back.depth == 16)
        #expect(try back.bytes() == image.bytes(), "\(width) pixels of \(bands) bands")
      }
    }
  }

  @Test("palettes of 1, 2, 4 and 8 bits keep their colours", arguments: [(2, 1), (4, 2), (16, 4), (256, 8)])
  func palettes(colors: Int, bits: UInt8) throws {
    let shades: [[UInt8]] = [[0, 0, 0], [255, 255, 255]]
    for width in [1, 7, 8, 9, 130] {
      let image = try Made.image(width, 20) { x, y in shades[(x / 3 + y / 2) % 2] }
      let bytes = try image.encoded(
        .png(.init(palette: true, colors: colors)), metadata: MetadataRequest(.none), arguments: ["dither": .integer(0)]
      )
      let header = try chunks(bytes)[0].body
      #expect((header[8], header[9]) == (bits, 3))
      #expect(maxDifference(try picture(bytes.array).decode().bytes(), try image.bytes()) <= 2, "\(width) pixels")
    }
  }

  @Test("every chunk but the pixels' is as libvips wrote it")
  func metadata() throws {
    let source = try EncodeTests.tagged().decode().materialised()
    for metadata in MetadataPolicy.allCases {
      // libvips packs by itself what is stored.
      let plain = try chunks(source.encoded(.png(.init(compression: 0)), metadata: metadata))
      let packed = try chunks(source.encoded(.png(.init()), metadata: metadata))
      #expect(plain.filter { $0.name != "IDAT" } == packed.filter { $0.name != "IDAT" })
      #expect(packed.contains { $0.name == "iCCP" } == (metadata != .none))
    }
  }

  @Test("pixels of many bytes are split into chunks that follow each other")
  func pieces() throws {
    var state: UInt64 = 1
    let image = try Made.image(700, 500) { _, _ in
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return [UInt8(state >> 56), UInt8(state >> 48 & 255), UInt8(state >> 40 & 255)]
    }
    let bytes = try image.encoded(.png(.init()), metadata: .none)
    let names = try chunks(bytes).map(\.name)
    let first = try #require(names.firstIndex(of: "IDAT"))
    let last = try #require(names.lastIndex(of: "IDAT"))
    #expect(last - first + 1 >= 4)
    #expect(names[first...last].allSatisfy { $0 == "IDAT" })
    #expect(try picture(bytes.array).decode().bytes() == image.bytes())
  }

  @Test("what is transparent takes next to nothing, and levels are a choice between time and size")
  func sizes() throws {
    let clear = try Image.solid(width: 1000, height: 1000, RGBA(90, 120, 10, 0))
    #expect(try clear.encoded(.png(.init()), metadata: .none).count < 6000)
    let photo = try Made.image(400, 300) { x, y in
      (0..<3).map { UInt8(128 + Int(90 * sin(Double(x + y * $0) / 37)) + self.sample(x * 3, y, $0) % 7) }
    }
    let counts = try [1, 4, 6, 9].map { try photo.encoded(.png(.init(compression: $0)), metadata: .none).count }
    #expect(counts == counts.sorted(by: >) && counts[0] > counts[3])
    // What the fastest of them loses is little, and all are far from what is stored.
    #expect(Double(counts[0]) < 1.15 * Double(counts[3]))
    #expect(try photo.encoded(.png(.init(compression: 0)), metadata: .none).count > 400 * 300 * 3)
  }

  @Test("arguments of libvips' encoder keep their meaning")
  func arguments() throws {
    let image = try Made.waves(150, 90)
    var sizes: [String: Int] = [:]
    for filter in ["none", "sub", "up", "avg", "paeth", "all"] {
      let bytes = try image.encoded(
        .png(.init()), metadata: MetadataRequest(.none), arguments: ["filter": .name(filter)])
      #expect(try picture(bytes.array).decode().bytes() == image.bytes())
      sizes[filter] = bytes.count
    }
    #expect(Set(sizes.values).count >= 5)
    #expect(sizes["all"] == (try image.encoded(.png(.init()), metadata: .none).count))
    let both = try image.encoded(
      .png(.init()), metadata: MetadataRequest(.none), arguments: ["filter": .names(["none", "up"])])
    #expect(both.count <= sizes["none"] ?? 0)
    // Interlaced rows are libvips' own.
    let interlaced = try image.encoded(
      .png(.init()), metadata: MetadataRequest(.none), arguments: ["interlace": .boolean(true)])
    #expect(try chunks(interlaced)[0].body[12] == 1)
    #expect(try picture(interlaced.array).decode().bytes() == image.bytes())
    #expect(interlaced.count < 150 * 90 * 3)
    #expect(
      failure { _ = try image.encoded(.png(.init()), arguments: ["filter": .integer(3)]) }?.code == .encoder)
  }
}
