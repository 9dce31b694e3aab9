import Imaging
import Testing

@Suite struct AnimationTests {
  /// A GIF of frames in one colour each, made byte by byte: no encoder's word is taken for its own decoder's.
  static func gif(_ colours: [[UInt8]], delays: [Int], loop: Int, side: Int = 4) -> [UInt8] {
    func le16(_ v: Int) -> [UInt8] { [UInt8(v & 255), UInt8(v >> 8)] }
    var file: [UInt8] = Array("GIF89a".utf8) + le16(side) + le16(side) + [0xF1, 0, 0]
    file += (colours + [[UInt8]](repeating: [0, 0, 0], count: 4 - colours.count)).flatMap { $0 }
    file += [0x21, 0xFF, 11] + Array("NETSCAPE2.0".utf8) + [3, 1] + le16(loop) + [0]
    for (index, _) in colours.enumerated() {
      file += [0x21, 0xF9, 4, 0] + le16(delays[index] / 10) + [0, 0]
      file += [0x2C] + le16(0) + le16(0) + le16(side) + le16(side) + [0]
      // Uncompressed LZW of 2-bit colours: a clear code before each pixel keeps codes at 3 bits.
      var bits = 0
      var count = 0
      var data: [UInt8] = []
      func put(_ code: Int) {
        bits |= code << count
        count += 3
        while count >= 8 {
          data.append(UInt8(bits & 255))
          bits >>= 8
          count -= 8
        }
      }
      for _ in 0..<side * side {
        put(4)
        put(index)
      }
      put(5)
      if count > 0 { data.append(UInt8(bits & 255)) }
      file += [2, UInt8(data.count)] + data + [0]
    }
    return file + [0x3B]
  }

  private func open(_ bytes: [UInt8], _ frames: FramePolicy) throws -> EncodedPicture {
    try EncodedPicture(bytes: EncodedBytes(bytes), options: DecodeOptions(frames: frames))
  }

  @Test("all frames come with their times and the number of rounds")
  func all() throws {
    let colours: [[UInt8]] = [[255, 0, 0], [0, 255, 0], [0, 0, 255]]
    let source = try open(Self.gif(colours, delays: [50, 200, 1000], loop: 3), .all)
    #expect(source.isAnimation)
    #expect(source.warnings.isEmpty)
    let animation = try source.animation()
    #expect(animation.delays == [50, 200, 1000])
    // The file counts repetitions after the first round.
    #expect(animation.loop == 4)
    #expect(animation.frames.count == 3)
    for (frame, colour) in zip(animation.frames, colours) {
      #expect(frame.width == 4 && frame.height == 4)
      #expect(try Array(frame.pixel(1, 2).prefix(3)) == colour)
    }
  }

  @Test("frames count together against the limit of pixels, and only where all are read")
  func limit() throws {
    let file = EncodedBytes(Self.gif([[1, 2, 3], [4, 5, 6], [7, 8, 9]], delays: [10, 10, 10], loop: 0))
    func open(_ most: Int, _ frames: FramePolicy) throws -> EncodedPicture {
      try EncodedPicture(bytes: file, options: DecodeOptions(limits: DecodeLimits(maxPixels: most), frames: frames))
    }
    #expect(try open(48, .all).animation().frames.count == 3)
    let error = failure { _ = try open(47, .all) }
    #expect(error?.code == .limit)
    #expect(error?.message.contains("48 pixels together, more than the limit of 47") == true)
    #expect(error?.hint?.contains("limits.maxPixels") == true)
    #expect(try open(16, .first).pixels().width == 4)
  }

  @Test("a likeness is searched for over all frames")
  func similarity() throws {
    func frame(_ shift: Int) throws -> Image {
      try Made.image(48, 32) { x, y in
        let v = UInt8(truncatingIfNeeded: (x + shift) * 37 ^ y * 91)
        return [v, v / 2 + 60, 255 - v]
      }
    }
    let animation = Animation(frames: [try frame(0), try frame(9), try frame(40)], delays: [50, 50, 50], loop: 0)
    let strip = try animation.strip()
    let found = try strip.reaching(similarity: 0.9, .webp(.init(effort: 0)), range: 1...100)
    #expect(found.isReached)
    let back = try open(found.output.bytes.array, .all)
    #expect(back.header.frames == 3)
    #expect(try StructuralSimilarity.mean(strip, back.animation().strip()) == found.similarity)
    // Frames that are alike are joined by the encoder, here down to one picture.
    let still = Animation(frames: [try frame(0), try frame(0)], delays: [50, 50], loop: 0)
    #expect(try still.strip().reaching(similarity: 0.9, .webp(.init(effort: 0)), range: 1...100).isReached)
  }

  @Test("the first frame alone, with a warning, unless all are asked for")
  func first() throws {
    let source = try open(Self.gif([[1, 2, 3], [4, 5, 6]], delays: [10, 10], loop: 0), .first)
    #expect(!source.isAnimation)
    #expect(source.warnings == ["the file holds 2 frames; only the first is used"])
    #expect(try Array(source.pixels().pixel(0, 0).prefix(3)) == [1, 2, 3])
    #expect(try source.animation().frames.count == 1)
    // One frame is no animation, whatever is asked.
    #expect(try !open(Self.gif([[1, 2, 3]], delays: [10], loop: 0), .all).isAnimation)
  }

  // MARK: What a GIF's blocks mean

  /// A frame of one colour, with its place.
  private func frame(
    _ index: Int, x: Int, y: Int, width: Int, height: Int, disposal: Int = 0, transparent: Int? = nil
  ) -> [UInt8] {
    func le16(_ v: Int) -> [UInt8] { [UInt8(v & 255), UInt8(v >> 8)] }
    let flags = UInt8(disposal << 2 | (transparent == nil ? 0 : 1))
    return [0x21, 0xF9, 4, flags, 5, 0, UInt8(transparent ?? 0), 0, 0x2C] + le16(x) + le16(y) + le16(width)
      + le16(height) + [0] + Self.pixels([Int](repeating: index, count: width * height))
  }

  /// 2-bit pixels, each behind a clear code, so that codes keep 3 bits.
  private static func pixels(_ indices: [Int]) -> [UInt8] {
    var bits: [Int] = []
    for code in indices.flatMap({ [4, $0] }) + [5] { bits += (0..<3).map { code >> $0 & 1 } }
    while bits.count % 8 != 0 { bits.append(0) }
    let data = stride(from: 0, to: bits.count, by: 8).map { at in
      UInt8((0..<8).reduce(0) { $0 | bits[at + $1] << $1 })
    }
    let blocks = stride(from: 0, to: data.count, by: 255).flatMap { at in
      let part = data[at..<min(at + 255, data.count)]
      return [UInt8(part.count)] + part
    }
    return [2] + blocks + [0]
  }

  /// Red, green, blue, white.
  private func file(_ width: Int, _ height: Int, _ frames: [[UInt8]]) -> [UInt8] {
    Array("GIF89a".utf8) + [UInt8(width & 255), UInt8(width >> 8), UInt8(height & 255), UInt8(height >> 8), 0xF1, 0, 0]
      + [255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255] + frames.flatMap { $0 } + [0x3B]
  }

  private let red: [UInt8] = [255, 0, 0]
  private let green: [UInt8] = [0, 255, 0]
  private let blue: [UInt8] = [0, 0, 255]

  @Test("a frame that is cleared leaves nothing, though it has no transparent colour")
  func cleared() throws {
    let bytes = file(
      6, 4,
      [
        frame(0, x: 0, y: 0, width: 6, height: 4), frame(1, x: 1, y: 1, width: 2, height: 2, disposal: 2),
        frame(2, x: 4, y: 0, width: 1, height: 1),
      ])
    let frames = try open(bytes, .all).animation().frames
    #expect(try frames[0].pixel(1, 1) == red)
    #expect(try Array(frames[1].pixel(2, 2).prefix(3)) == green)
    #expect(try frames[2].pixel(1, 1) == [0, 0, 0, 0])
    #expect(try frames[2].pixel(0, 0) == red + [255])
    #expect(try frames[2].pixel(4, 0) == blue + [255])
  }

  @Test("a frame that is taken back leaves what was before it", arguments: [3, 4])
  func takenBack(_ disposal: Int) throws {
    let bytes = file(
      6, 4,
      [
        frame(0, x: 0, y: 0, width: 6, height: 4), frame(1, x: 1, y: 1, width: 2, height: 2, disposal: disposal),
        frame(2, x: 4, y: 0, width: 1, height: 1),
      ])
    let frames = try open(bytes, .all).animation().frames
    #expect(try frames[1].pixel(1, 1) == green)
    #expect(try frames[2].pixel(1, 1) == red)
    #expect(try frames[2].pixel(4, 0) == blue)
    // Before the first there was nothing.
    let first = file(
      6, 4, [frame(0, x: 0, y: 0, width: 6, height: 4, disposal: disposal), frame(1, x: 1, y: 1, width: 1, height: 1)])
    #expect(try open(first, .all).animation().frames[1].pixel(0, 0) == [0, 0, 0, 0])
  }

  @Test("the sides are the screen's, whatever the first frame covers", arguments: [(640, 480), (800, 600), (2100, 50)])
  func screen(_ width: Int, _ height: Int) throws {
    let bytes = file(width, height, [frame(1, x: 3, y: 2, width: 5, height: 4)])
    let picture = try open(bytes, .first)
    #expect(picture.header.width == width && picture.header.height == height)
    let image = try picture.pixels()
    #expect(image.width == width && image.height == height)
    #expect(try image.pixel(3, 2) == green + [255])
    #expect(try image.pixel(8, 2) == [0, 0, 0, 0])
  }

  @Test("a screen too small, or of no size, grows to the first frame")
  func smallScreen() throws {
    for side in [0, 2] {
      let picture = try open(file(side, side, [frame(2, x: 1, y: 0, width: 5, height: 4)]), .first)
      #expect(picture.header.width == 6 && picture.header.height == 4)
      #expect(try picture.pixels().pixel(5, 3) == blue + [255])
    }
  }

  @Test("interlaced rows come to their places")
  func interlaced() throws {
    // Rows 0 and 8, 4, 2 and 6, then the odd ones.
    let order = [0, 8, 4, 2, 6, 1, 3, 5, 7]
    let bytes =
      file(1, 9, [[0x2C, 0, 0, 0, 0, 1, 0, 9, 0, 0x40] + Self.pixels(order.map { $0 % 3 })])
    let image = try open(bytes, .first).pixels()
    for y in 0..<9 { #expect(try image.pixel(0, y) == [red, green, blue][y % 3]) }
  }

  @Test("data that end before the pixels are damage, in a frame that is wanted")
  func short() throws {
    let whole = frame(0, x: 0, y: 0, width: 6, height: 4)
    let short: [UInt8] = [0x2C, 0, 0, 0, 0, 6, 0, 4, 0, 0] + Self.pixels([1, 1, 1])
    #expect(throws: ImagingError.self) { try open(file(6, 4, [short]), .first).pixels() }
    #expect(throws: ImagingError.self) { try open(file(6, 4, [whole, short]), .all).animation() }
    let first = try open(file(6, 4, [whole, short]), .first)
    #expect(try first.pixels().pixel(5, 3) == red)
    #expect(first.warnings.contains { $0.contains("has only 3 of the 24 pixels of frame 2") })
    let lenient = try EncodedPicture(
      bytes: EncodedBytes(file(6, 4, [short])), options: DecodeOptions(onDamage: .warn))
    let image = try lenient.pixels()
    #expect(try image.pixel(2, 0) == green + [255])
    #expect(try image.pixel(3, 0) == [0, 0, 0, 0])
    #expect(lenient.warnings.contains { $0.contains("damaged or cut short") })
  }

  @Test("many frames of a large screen in a small file are refused before they take memory")
  func bomb() throws {
    let frames = [[UInt8]](repeating: frame(0, x: 0, y: 0, width: 1, height: 1), count: 900)
    let bytes = file(3000, 3000, frames)
    #expect(throws: ImagingError.self) { try open(bytes, .all) }
    #expect(try open(bytes, .first).header.frames == 900)
  }

  @Test(
    "real files keep their frames and rounds through WebP",
    .enabled(if: torture("gif/cogs.gif") != nil, "the torture collection is not here"),
    arguments: ["gif/cogs.gif", "gif/rotating-squares.gif"])
  func real(_ name: String) throws {
    let animation = try open(#require(torture(name)), .all).animation()
    let webp = try animation.strip().encoded(.webp(.init(lossless: true)))
    let again = try EncodedPicture(bytes: webp, options: DecodeOptions(frames: .all)).animation()
    #expect(again.loop == animation.loop)
    #expect(animation.frames.count == (name == "gif/cogs.gif" ? 5 : 30))
  }
}
