import Testing

@testable import Imaging

@Suite struct DeclaredColourTests {
  private func declared(_ chunks: [(String, [UInt8])]) throws -> DeclaredColour {
    var png = try Made.waves(8, 8).encoded(.png(.init()), metadata: .none).array
    // Each goes right behind the header, so the last comes first.
    for (tag, payload) in chunks.reversed() { png = Made.png(png, adding: tag, payload) }
    return png.withUnsafeBytes { DeclaredColour.png($0) }
  }

  private func chromaticities(_ values: [Double]) -> [UInt8] {
    values.flatMap { Made.big32(Int(($0 * 100_000).rounded())) }
  }

  private let p3 = [0.3127, 0.3290, 0.680, 0.320, 0.265, 0.690, 0.150, 0.060]
  private let srgb = [0.3127, 0.3290, 0.64, 0.33, 0.30, 0.60, 0.15, 0.06]

  @Test("PNG: what the chunks say, and which has the word")
  func chunks() throws {
    let gamma = ("gAMA", Made.big32(45455))
    #expect(try declared([]) == .none)
    #expect(try declared([gamma]) == .sRGB)
    #expect(try declared([gamma, ("cHRM", chromaticities(srgb))]) == .sRGB)
    #expect(try declared([("sRGB", [0]), ("gAMA", Made.big32(100_000))]) == .sRGB)
    #expect(try declared([("gAMA", Made.big32(0))]) == .none)
    #expect(try declared([("cHRM", chromaticities(p3))]) == .none)
    #expect(try declared([("iCCP", [65, 0, 0, 1]), ("sRGB", [0])]) == .embedded)
    #expect(try declared([("cICP", [1, 13, 0, 1]), ("iCCP", [65, 0, 0, 1])]) == .sRGB)
    // A matrix other than RGB makes the chunk void.
    #expect(try declared([("cICP", [12, 13, 1, 1])]) == .none)
    for code: [UInt8] in [[9, 16, 0, 1], [9, 18, 0, 1], [1, 13, 0, 0], [3, 13, 0, 1], [1, 9, 0, 1]] {
      guard case .unsupported = try declared([("cICP", code)]) else {
        Issue.record("\(code)")
        continue
      }
    }
    guard case .described(let linear) = try declared([("gAMA", Made.big32(100_000))]) else {
      Issue.record("gamma 1")
      return
    }
    #expect(linear == ColourDescription(chromaticities: .sRGB, curve: .power(1)))
    // Primaries on one line are no primaries.
    let flat = [0.3127, 0.3290, 0.6, 0.3, 0.4, 0.3, 0.2, 0.3]
    #expect(
      try declared([("gAMA", Made.big32(100_000)), ("cHRM", chromaticities(flat))]) == .described(linear))
  }

  @Test("profiles bring the colours that the definitions give")
  func profiles() throws {
    // Worked out in floating point from the primaries of SMPTE RP 431, BT.2020 and IEC 61966-2-1.
    let cases: [([UInt8], [UInt8], [UInt8])] = [
      ([12, 13, 0, 1], [180, 120, 90], [190, 117, 84]), ([12, 13, 0, 1], [100, 140, 110], [88, 141, 107]),
      ([9, 13, 0, 1], [180, 120, 90], [209, 110, 83]), ([9, 1, 0, 1], [100, 140, 110], [61, 144, 107]),
      ([1, 8, 0, 1], [55, 55, 55], [128, 128, 128]), ([12, 13, 0, 1], [128, 128, 128], [128, 128, 128]),
    ]
    for (code, stored, wanted) in cases {
      guard case .described(let space) = try declared([("cICP", code)]) else {
        Issue.record("\(code)")
        continue
      }
      let profile = try #require(space.profile())
      let image = try Made.image(16, 16) { _, _ in stored }
      let png = try image.encoded(.png(.init()), metadata: .none).array
      let source = try picture(Made.png(png, adding: "iCCP", [65, 0, 0] + Made.zlib(profile)))
      let shown = try source.decode().pixel(8, 8)
      #expect(source.warnings.isEmpty)
      #expect(maxDifference(shown, wanted) <= 1, "\(code) \(stored): \(shown), not \(wanted)")
    }
  }

  @Test("gamma and primaries of PNG, for colour and grey")
  func gamma() throws {
    guard
      case .described(let space) = try declared([
        ("gAMA", Made.big32(55556)), ("cHRM", chromaticities(p3)),
      ])
    else {
      Issue.record("gamma 1.8 with the primaries of P3")
      return
    }
    #expect(space.chromaticities.isNear(.d65(.init(0.68, 0.32), .init(0.265, 0.69), .init(0.15, 0.06))))
    guard case .power(let exponent) = space.curve else { return }
    #expect(abs(exponent - 1.8) < 0.001)
    let grey = try #require(space.profile(grey: true))
    #expect(Array(grey[16..<20]) == Array("GRAY".utf8))
    // 128 at gamma 1.8 is 146 in sRGB.
    let image = try Made.image(16, 16) { _, _ in [128, 128, 128] }
    let png = try image.encoded(.png(.init()), metadata: .none).array
    let profile = try #require(space.profile())
    let shown = try picture(Made.png(png, adding: "iCCP", [65, 0, 0] + Made.zlib(profile))).decode()
    #expect(maxDifference(try shown.pixel(8, 8), [146, 146, 146]) <= 1)
    // The same in one band: a grey PNG whose three rows are 128 (filter 0 before each).
    let header = Made.big32(1) + Made.big32(3) + [8, 0, 0, 0, 0]
    var one: [UInt8] = [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]
    for (tag, body) in [
      ("IHDR", header), ("iCCP", [65, 0, 0] + Made.zlib(grey)), ("IDAT", Made.zlib([0, 128, 0, 128, 0, 128])),
      ("IEND", []),
    ] {
      one += Made.chunk(tag, body)
    }
    let source = try picture(one)
    #expect(maxDifference(try source.decode().pixel(0, 1), [146, 146, 146]) <= 1)
    #expect(source.warnings.isEmpty)
  }

  @Test("the matrix of sRGB is the published one")
  func matrix() throws {
    // Lindblom, sRGB adapted to D50 by Bradford.
    let published = [
      [0.4360747, 0.2225045, 0.0139322], [0.3850649, 0.7168786, 0.0971045], [0.1430804, 0.0606169, 0.7141733],
    ]
    let found = try #require(Chromaticities.sRGB.matrix).columns
    for (row, wanted) in zip(found, published) {
      for (a, b) in zip(row, wanted) { #expect(abs(a - b) < 0.0003) }
    }
  }

  @Test(
    "HEIF and AVIF: the colour box of the primary picture",
    .enabled(if: torture("png/p3.png") != nil, "no torture collection"))
  func heif() throws {
    func found(_ name: String) throws -> DeclaredColour {
      try #require(torture(name)).withUnsafeBytes { DeclaredColour.heif($0) }
    }
    #expect(try found("heic/arrow.heic") == .embedded)
    #expect(try found("avif/icc_profile.avif") == .embedded)
    #expect([.none, .sRGB].contains(try found("avif/hopper.avif")))
    // The same file with its code points changed to Display P3.
    var bytes = try #require(torture("avif/hopper.avif"))
    let mark = Array("colrnclx".utf8)
    guard let at = bytes.indices.dropLast(12).first(where: { bytes[$0..<$0 + 8].elementsEqual(mark) }) else { return }
    bytes.replaceSubrange(at + 8..<at + 12, with: [0, 12, 0, 13])
    guard case .described(let space) = bytes.withUnsafeBytes({ DeclaredColour.heif($0) }) else {
      Issue.record("P3 without a profile")
      return
    }
    #expect(space.curve == .sRGB && space.chromaticities.red == .init(0.68, 0.32))
    bytes.replaceSubrange(at + 8..<at + 12, with: [0, 9, 0, 16])
    guard case .unsupported(let why) = bytes.withUnsafeBytes({ DeclaredColour.heif($0) }) else {
      Issue.record("PQ")
      return
    }
    #expect(why.contains("PQ"))
  }
}
