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
}
