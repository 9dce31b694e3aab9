import Glibc
import Imaging
import Testing

@Suite struct WorkingSpaceTests {
  /// Primaries of Display P3 as XYZ adapted to D50 (ICC registry).
  static let p3 = [[0.51512, 0.24120, -0.00105], [0.29198, 0.69225, 0.04189], [0.15710, 0.06657, 0.78407]]

  // MARK: Profiles that do not go with the file

  /// Grey from black to white, in a file that says its curve is a power of 1.8.
  private func greyOfPower() throws -> [UInt8] {
    let ramp = try Image(width: 256, height: 2, bands: 1, bytes: (0..<512).map { UInt8($0 % 256) })
    return Made.png(try ramp.encoded(.png(.init()), metadata: .none).array, adding: "gAMA", Made.big32(55_556))
  }

  private func expectNear(_ a: Image, _ b: Image, _ most: Int = 1) throws {
    let worst = zip(try a.bytes(), try b.bytes()).map { abs(Int($0) - Int($1)) }.max()
    #expect((worst ?? 255) <= most)
  }

  @Test("a profile of grey is not put into files that hold grey as red, green and blue")
  func greyProfileInColour() throws {
    let bytes = try greyOfPower()
    let right = try open(bytes, WorkingSpace())
    let kept = try open(bytes, WorkingSpace(gamut: .source))
    let webp = try EncodedPicture(bytes: kept.encoded(.webp(.init(lossless: true)), metadata: .none))
    #expect(!webp.header.hasProfile)
    try expectNear(webp.pixels(), right)
    let png = try EncodedPicture(bytes: kept.encoded(.png(.init()), metadata: .none))
    #expect(png.header.hasProfile && png.header.bands == 1)
    try expectNear(png.pixels(), right)
  }

  @Test("grey with a profile of colours is grey of sRGB where a file has one band")
  func colourProfileOnGrey() throws {
    let profile = try #require(ColourDescription(chromaticities: .sRGB, curve: .power(1.8)).profile())
    let ramp = try Image(width: 256, height: 8, bands: 1, bytes: (0..<2048).map { UInt8($0 % 256) })
    let jpeg = Made.jpeg(
      try ramp.encoded(.jpeg(.init(quality: 100)), metadata: .none).array, adding: 0xE2,
      Array("ICC_PROFILE\0".utf8) + [1, 1] + profile)
    let right = try open(jpeg, WorkingSpace())
    // Otherwise the profile was not used, and nothing is shown.
    #expect(try abs(Int(right.pixel(64, 0)[0]) - 64) > 10)
    let png = try EncodedPicture(
      bytes: open(jpeg, WorkingSpace(gamut: .source)).encoded(.png(.init()), metadata: .none))
    #expect(png.header.bands == 1 && !png.header.hasProfile)
    try expectNear(png.pixels(), right)
  }

  @Test(
    "PNG keeps a profile that libpng finds fault with",
    .enabled(if: torture("png/prophoto.png") != nil, "the torture collection is not here"))
  func faultedProfile() throws {
    let bytes = try #require(torture("png/prophoto.png"))
    let kept = try open(bytes, WorkingSpace(gamut: .source))
    let again = try EncodedPicture(bytes: kept.encoded(.png(.init()), metadata: .none))
    #expect(again.header.hasProfile)
    try expectNear(again.pixels(), open(bytes, WorkingSpace()))
  }

  @Test("a profile that libpng drops is told of")
  func droppedProfile() throws {
    let png = Made.png(
      try Made.waves(8, 8).encoded(.png(.init()), metadata: .none).array, adding: "iCCP",
      Array("broken".utf8) + [0, 0, 1, 2, 3, 4])
    let picture = try EncodedPicture(bytes: EncodedBytes(png))
    #expect(picture.warnings.count == 1 && picture.warnings[0].contains("profile is broken"))
  }

  @Test(
    "high dynamic range is told of", .enabled(if: torture("jxl/pq_gradient.jxl") != nil, "the collection is not here"))
  func highDynamicRange() throws {
    let picture = try EncodedPicture(bytes: EncodedBytes(#require(torture("jxl/pq_gradient.jxl"))))
    _ = try picture.pixels()
    #expect(picture.warnings.contains { $0.contains("high dynamic range (PQ)") })
  }

  private func open(_ bytes: [UInt8], _ space: WorkingSpace) throws -> Image {
    try EncodedPicture(bytes: EncodedBytes(bytes), options: DecodeOptions(space: space)).pixels()
  }

  private func samples(_ image: Image) throws -> [UInt16] {
    try image.withPixels { Array($0.bindMemory(to: UInt16.self)) }
  }

  /// 16-bit samples that differ in their lower halves, with alpha where wanted.
  private func deep(_ bands: Int) throws -> Image {
    let values = (0..<32 * 24 * bands).map { (i: Int) -> UInt16 in UInt16(truncatingIfNeeded: 1 + i * 257 + i / 7) }
    return try Image(width: 32, height: 24, bands: bands, samples: values)
  }

  @Test("16 bits come back to the last one where they are asked for", arguments: [3, 4])
  func keepsDepth(_ bands: Int) throws {
    let image = try deep(bands)
    // Under nothing there is black.
    var expected = try samples(image)
    if bands == 4 {
      for i in stride(from: 0, to: expected.count, by: 4) where expected[i + 3] == 0 {
        expected.replaceSubrange(i..<i + 3, with: [0, 0, 0])
      }
    }
    for options in [EncodeOptions.png(.init()), .tiff(.init())] {
      let file = try image.encoded(options, metadata: .none).array
      for depth in [WorkingSpace.Depth.source, .sixteen] {
        let back = try open(file, WorkingSpace(depth: depth))
        #expect(back.depth == 16)
        #expect(try samples(back) == expected, "\(options)")
      }
      let eight = try open(file, WorkingSpace())
      #expect(eight.depth == 8)
      // Rounded to the nearest of 256 steps, not cut.
      #expect(try eight.bytes() == expected.map { UInt8((Double($0) / 257).rounded()) })
    }
  }

  @Test("8 bits stay 8 unless 16 are insisted on, and then come back the same")
  func widens() throws {
    let file = try Made.waves(40, 30).encoded(.png(.init()), metadata: .none).array
    #expect(try open(file, WorkingSpace(depth: .source)).depth == 8)
    let wide = try open(file, WorkingSpace(depth: .sixteen))
    #expect(wide.depth == 16)
    #expect(try wide.withDepth(8).bytes() == open(file, WorkingSpace()).bytes())
  }

  @Test("a resize of 16 bits keeps what lies between the steps of 8")
  func resizesDeep() throws {
    // A slope of 64 steps of 16 bits over the width.
    let values = (0..<256 * 8 * 3).map { (i: Int) -> UInt16 in
      let x = i / 3 % 256
      return UInt16(30_000 + x / 4)
    }
    let slope = try Image(width: 256, height: 8, bands: 3, samples: values)
    let file = try slope.encoded(.png(.init()), metadata: .none)
    let source = try EncodedPicture(bytes: file, options: DecodeOptions(space: WorkingSpace(depth: .source)))
    let small = try source.pixels(resizedTo: ResizeRequest(width: 64).plan(for: 256, 8))
    #expect(Set(try samples(small)).count > 40)
  }

  @Test("Display P3 keeps the colours that sRGB would cut, and says so in the file")
  func displayP3() throws {
    // The reddest red of P3 and a middle grey.
    let picture = try Made.image(2, 1) { x, _ in x == 0 ? [255, 0, 0] : [119, 119, 119] }
    let plain = try picture.encoded(.jpeg(.init(quality: 100, chroma: .full)), metadata: .none).array
    // The curve of sRGB is close to a gamma of 2.2; the grey tells by how much.
    let file = Made.jpeg(plain, profile: Made.profile(Self.p3, gamma: 2.2))
    let wide = try open(file, WorkingSpace(gamut: .displayP3))
    #expect(wide.space == .displayP3)
    #expect(wide.hasProfile)
    #expect(try maxDifference(wide.pixel(0, 0), [255, 0, 0]) <= 2)
    #expect(try maxDifference(open(file, WorkingSpace()).pixel(0, 0), [255, 0, 0]) <= 2)
    // The same red of sRGB is no full red in P3: matrices of both spaces give 234, 51, 35.
    let red = try open(plain, WorkingSpace(gamut: .displayP3)).pixel(0, 0)
    #expect(maxDifference(red, [234, 51, 35]) <= 3)
    for options in [EncodeOptions.jpeg(.init(quality: 100, chroma: .full)), .png(.init()), .tiff(.init())] {
      let written = try wide.encoded(options, metadata: .none)
      #expect(try EncodedPicture(bytes: written).header.hasProfile, "\(options)")
      let again = try open(written.array, WorkingSpace(gamut: .displayP3))
      #expect(try maxDifference(again.pixel(0, 0), [255, 0, 0]) <= 3, "\(options)")
    }
  }

  @Test("the source's own space leaves every number as it is, and the profile with it")
  func keepsProfile() throws {
    let picture = try Made.waves(64, 48)
    let profile = Made.profile(Self.p3, gamma: 1.8)
    let file = Made.jpeg(try picture.encoded(.jpeg(.init(quality: 95)), metadata: .none).array, profile: profile)
    let kept = try open(file, WorkingSpace(gamut: .source))
    guard case .embedded(let embedded) = kept.space else {
      Issue.record("space is \(kept.space)")
      return
    }
    #expect(embedded.bytes == profile)
    let bare = try open(Array(file[0..<2] + file[(4 + 16 + profile.count)...]), WorkingSpace())
    #expect(try kept.bytes() == bare.bytes())
    // Converted there and back it is the same to a level or two.
    let srgb = try kept.converted(to: .srgb)
    #expect(srgb.hasProfile == false)
    #expect(decibels(try srgb.bytes(), try kept.bytes()) < 40)
    let back = try kept.withDepth(16).converted(to: .displayP3).converted(to: kept.space).withDepth(8)
    #expect(decibels(try back.bytes(), try kept.bytes()) > 45)
  }

  @Test("colours from outside are converted to the picture's space")
  func colourFromOutside() throws {
    let file = try Made.image(4, 4, bands: 4) { _, _ in [10, 20, 30, 0] }.encoded(.png(.init()), metadata: .none).array
    let wide = try open(file, WorkingSpace(gamut: .displayP3))
    let red = try wide.flattened(RGBA(255, 0, 0))
    #expect(try maxDifference(red.pixel(1, 1), [234, 51, 35]) <= 1)
    #expect(try wide.flattened(.white).pixel(1, 1) == [255, 255, 255])
    let deep = try open(file, WorkingSpace(gamut: .displayP3, depth: .sixteen)).flattened(RGBA(255, 0, 0))
    #expect(deep.depth == 16)
    #expect(try maxDifference(deep.withDepth(8).pixel(1, 1), [234, 51, 35]) <= 1)
  }

  @Test("laying 16 bits over something weighs them by their alpha")
  func compositesDeep() throws {
    let above = try Image(width: 2, height: 1, bands: 4, samples: [40_000, 0, 65_535, 16_384, 1, 2, 3, 65_535])
    let opaque = try above.flattened(RGBA(100, 200, 0))
    let share = 16_384.0 / 65_535
    let pairs: [(Double, Double)] = [(40_000, 25_700), (0, 51_400), (65_535, 0)]
    let expected = pairs.map { UInt16(($0.0 * share + $0.1 * (1 - share)).rounded()) }
    #expect(try samples(opaque) == expected + [1, 2, 3])
    let half = try Image.solid(width: 2, height: 1, RGBA(100, 200, 0, 128))
    let both = try samples(above.composited(over: half))
    let below = 128.0 / 255 * (1 - share)
    #expect(abs(Double(both[3]) - (share + below) * 65_535) <= 1)
    let red = (40_000 * share + 25_700 * below) / (share + below)
    #expect(abs(Double(both[0]) - red) <= 1)
  }

  @Test("grey stays grey where a format has it, and colour ends that")
  func grey() throws {
    let grey = try Made.image(20, 20, bands: 1) { x, y in [UInt8(x * 6 + y)] }
    let file = try grey.encoded(.png(.init()), metadata: .none).array
    let picture = try open(file, WorkingSpace())
    #expect(picture.isGrey)
    #expect(picture.bands == 3)
    let small = try picture.resized(ResizeRequest(width: 10).plan(for: 20, 20))
    let header = { (image: Image, options: EncodeOptions) in
      try EncodedPicture(bytes: image.encoded(options, metadata: .none)).header
    }
    for options in [EncodeOptions.jpeg(.init()), .png(.init()), .tiff(.init())] {
      #expect(try header(small, options).bands == 1, "\(options)")
    }
    #expect(try header(small, .webp(.init())).bands == 3)
    let matte = try Made.image(20, 20, bands: 1) { x, _ in [UInt8(x * 12)] }
    let cut = try picture.withAlpha(matte)
    #expect(cut.isGrey)
    #expect(try header(cut, .png(.init())).bands == 2)
    #expect(try header(cut.flattened(.white), .jpeg(.init())).bands == 1)
    #expect(try header(cut.flattened(RGBA(255, 0, 0)), .jpeg(.init())).bands == 3)
    #expect(try picture.bytes() == grey.bytes().flatMap { [$0, $0, $0] })
  }

  @Test("what lies under nothing is black in the file")
  func clearsUnderAlpha() throws {
    let image = try Made.image(4, 1, bands: 4) { x, _ in [200, 100, 50, x < 2 ? 0 : 1] }
    for options in [EncodeOptions.png(.init()), .tiff(.init())] {
      let back = try picture(image.encoded(options, metadata: .none).array).decode()
      #expect(try back.bytes() == [0, 0, 0, 0, 0, 0, 0, 0, 200, 100, 50, 1, 200, 100, 50, 1])
    }
  }

  @Test("linear light: black and white halves make the grey that sends half the light", arguments: [8, 16])
  func linearLight(_ depth: Int) throws {
    let stripes = try Made.image(64, 64) { x, _ in x % 2 == 0 ? [0, 0, 0] : [255, 255, 255] }.withDepth(depth)
    var request = ResizeRequest(width: 16, height: 16, fit: .fill)
    let plain = try stripes.resized(request.plan(for: 64, 64)).withDepth(8)
    #expect(try abs(Int(plain.pixel(8, 8)[0]) - 128) <= 1)
    request.linear = true
    let light = try stripes.resized(request.plan(for: 64, 64)).withDepth(8)
    // 0.5 on the curve of IEC 61966-2-1 is 187.5.
    #expect(try abs(Int(light.pixel(8, 8)[0]) - 188) <= 1)
    let file = try stripes.encoded(.png(.init()), metadata: .none)
    let loaded = try EncodedPicture(bytes: file).pixels(resizedTo: request.plan(for: 64, 64))
    #expect(try abs(Int(loaded.pixel(8, 8)[0]) - 188) <= 1)
  }

  @Test("linear light with alpha weighs light by alpha, and keeps alpha itself plain")
  func linearAlpha() throws {
    let edge = try Made.image(64, 64, bands: 4) { x, _ in x % 2 == 0 ? [255, 0, 0, 255] : [0, 255, 0, 0] }
    let request = ResizeRequest(width: 16, height: 16, fit: .fill, linear: true)
    let small = try edge.resized(request.plan(for: 64, 64)).pixel(8, 8)
    #expect(maxDifference(small, [255, 0, 0, 128]) <= 1)
  }

  @Test("linear light from a decoder, which gives its rows once, is that from memory")
  func linearReadOnce() throws {
    let image = try Made.image(60, 3000, bands: 4) { x, y in
      [UInt8(4 * x), UInt8(y % 251), 90, UInt8((5 * x + y / 8) % 256)]
    }
    let source = try picture(image.encoded(.png(.init()), metadata: .none).array)
    let plan = try ResizeRequest(width: 10, linear: true).plan(for: 60, 3000)
    let whole = try source.pixels().resized(plan).bytes()
    #expect(maxDifference(try source.pixels(resizedTo: plan).bytes(), whole) <= 1)
  }

  @Test("linear light in a profile of its own")
  func linearProfile() throws {
    let stripes = try Made.image(64, 64) { x, _ in x % 2 == 0 ? [0, 0, 0] : [255, 255, 255] }
    let file = Made.jpeg(
      try stripes.encoded(.jpeg(.init(quality: 100)), metadata: .none).array,
      profile: Made.profile(Self.p3, gamma: 1.8))
    let source = try EncodedPicture(
      bytes: EncodedBytes(file), options: DecodeOptions(space: WorkingSpace(gamut: .source)))
    let small = try source.pixels(resizedTo: ResizeRequest(width: 16, height: 16, linear: true).plan(for: 64, 64))
    // 0.5 to the power of 1 / 1.8.
    #expect(try abs(Int(small.pixel(8, 8)[0]) - 173) <= 3)
  }

  @Test("a profile of grey goes with one band alone: formats that store grey as colour get sRGB")
  func greyProfile() throws {
    let profile = try #require(
      ColourDescription(chromaticities: .sRGB, curve: .power(1)).profile(grey: true))
    let plain = try Made.image(32, 32, bands: 1) { x, _ in [UInt8(8 * x)] }.encoded(.png(.init()), metadata: .none)
    let file = Made.png(plain.array, adding: "iCCP", [65, 0, 0] + Made.zlib(profile))
    let kept = try open(file, WorkingSpace(gamut: .source))
    #expect(!kept.space.holdsColour)
    let expected = try open(file, WorkingSpace()).bytes()
    for options in [EncodeOptions.webp(.init(lossless: true)), .avif(.init(quality: 95)), .gif(.init(dither: 0))] {
      let back = try EncodedPicture(bytes: kept.encoded(options, metadata: .all))
      #expect(!back.header.hasProfile || back.header.bands == 1, "\(options)")
      #expect(maxDifference(try back.pixels().withoutAlpha().bytes(), expected) <= 8, "\(options)")
    }
    for options in [EncodeOptions.png(.init()), .tiff(.init()), .jxl(.init(lossless: true))] {
      let back = try EncodedPicture(bytes: kept.encoded(options, metadata: .none))
      #expect(back.header.hasProfile && back.header.bands == 1, "\(options)")
      #expect(maxDifference(try back.pixels().bytes(), expected) <= 1, "\(options)")
    }
  }

  @Test("what has no room for a profile is written in sRGB")
  func withoutRoom() throws {
    let colours: [[UInt8]] = [[200, 60, 40], [40, 160, 90], [20, 30, 220], [128, 128, 128]]
    let image = try Made.image(16, 8) { x, _ in colours[x / 4] }
    let wide = try image.converted(to: .displayP3)
    #expect(try wide.pixel(0, 0) != image.pixel(0, 0))
    let back = try EncodedPicture(bytes: wide.encoded(.gif(.init(dither: 0)))).pixels().withoutAlpha()
    #expect(maxDifference(try back.bytes(), try image.bytes()) <= 4)
  }
}
