/// Reads GIF as the specification (GIF89a) and browsers do.
///
/// The reader in libvips 8.14 takes 640×480, 800×600 and other usual sizes of a screen, and all sides above 2,048, for
/// mistakes and the first frame for the picture; fills what a frame without transparency clears with black; and says
/// nothing where a frame's data end before its pixels do.
struct GIFDecoder {
  struct Frame {
    var x: Int
    var y: Int
    var width: Int
    var height: Int
    var isInterlaced: Bool
    /// Where red, green, blue triplets lie.
    var palette: Range<Int>
    /// The index that leaves the canvas as it is.
    var transparent: Int?
    var disposal: Disposal
    /// How long it stands, in milliseconds.
    var delay: Int
    /// Where the code size stands, and then the data.
    var dataAt: Int
  }

  /// What becomes of the canvas before the next frame.
  enum Disposal { case keep, clear, restore }

  let width: Int
  let height: Int
  let frames: [Frame]
  /// How often it plays; 0 for ever.
  let loop: Int

  /// Reads the blocks and unpacks nothing. Linear in the bytes.
  ///
  /// - Returns: nil where there is no frame.
  init?(_ b: UnsafeRawBufferPointer) {
    guard b.says("GIF8", at: 0), b.count >= 13, let screenWidth = b.little(2, at: 6),
      let screenHeight = b.little(2, at: 8)
    else { return nil }
    var at = 13
    func palette(_ flags: UInt8) -> Range<Int>? {
      guard flags & 0x80 != 0 else { return nil }
      let start = at
      at += 3 << (Int(flags & 7) + 1)
      return start..<min(max(start, b.count), at)
    }
    func skipData() {
      while at < b.count, b[at] != 0 { at += 1 + Int(b[at]) }
      at += 1
    }
    let shared = palette(b[10])
    var frames: [Frame] = []
    var rounds = 1
    var control: (disposal: Disposal, delay: Int, transparent: Int?) = (.keep, 0, nil)
    blocks: while at < b.count {
      switch b[at] {
      case 0x21:
        if b.big(2, at: at + 1) == 0xF904, let delay = b.little(2, at: at + 4), let index = b.big(1, at: at + 6) {
          let flags = b[at + 3]
          // 4 is written by programs that read the field's bits backwards.
          let disposal: Disposal =
            switch flags >> 2 & 7 {
            case 2: .clear
            case 3, 4: .restore
            default: .keep
            }
          control = (disposal, delay * 10, flags & 1 == 1 ? index : nil)
        } else if b.says("NETSCAPE2.0", at: at + 3) || b.says("ANIMEXTS1.0", at: at + 3),
          b.big(2, at: at + 14) == 0x0301, let repeats = b.little(2, at: at + 16)
        {
          // The file counts repetitions after the first round.
          rounds = repeats == 0 ? 0 : repeats + 1
        }
        at += 2
        skipData()
      case 0x2C:
        guard at + 10 < b.count, let x = b.little(2, at: at + 1), let y = b.little(2, at: at + 3),
          let width = b.little(2, at: at + 5), let height = b.little(2, at: at + 7)
        else { break blocks }
        let flags = b[at + 9]
        at += 10
        let own = palette(flags)
        frames.append(
          Frame(
            x: x, y: y, width: width, height: height, isInterlaced: flags & 0x40 != 0, palette: own ?? shared ?? 0..<0,
            transparent: control.transparent, disposal: control.disposal, delay: control.delay, dataAt: at))
        control = (.keep, 0, nil)
        at += 1
        skipData()
      case 0x00: at += 1  // Some writers pad between blocks.
      default: break blocks
      }
    }
    guard let first = frames.first else { return nil }
    // A first frame that does not fit makes the picture larger, later ones are cut.
    width = max(screenWidth, first.x + first.width)
    height = max(screenHeight, first.y + first.height)
    self.frames = frames
    loop = rounds
  }

  /// Whether something may shine through the first frame, or through any where all are wanted.
  func hasAlpha(allFrames: Bool) -> Bool {
    func covers(_ frame: Frame) -> Bool {
      frame.x == 0 && frame.y == 0 && frame.width >= width && frame.height >= height && frame.transparent == nil
    }
    guard let first = frames.first, covers(first) else { return true }
    return allFrames && (first.disposal == .restore || frames.dropLast().contains { $0.disposal == .clear })
  }

  // MARK: Pixels

  /// The canvas after each frame, from the first on.
  ///
  /// - Parameters:
  ///   - count: how many frames at most.
  ///   - isStrict: whether missing pixels are an error; else they leave the canvas as it is.
  /// - Throws: `damaged`, and what `body` throws.
  func forEach(
    _ b: UnsafeRawBufferPointer, count: Int = .max, isStrict: Bool, _ body: (Image, Frame) throws(ImagingError) -> Void
  ) throws(ImagingError) {
    var canvas = [UInt8](repeating: 0, count: width * height * 4)
    for (index, frame) in frames.prefix(count).enumerated() {
      let before = frame.disposal == .restore ? canvas : []
      let pixels = draw(frame, b, onto: &canvas)
      guard !isStrict || pixels == frame.width * frame.height else {
        throw ImagingError(
          .damaged, "the pixels of this GIF picture are damaged or cut short",
          detail: "frame \(index + 1) has only \(pixels) of \(frame.width * frame.height)")
      }
      try body(Self.image(canvas, width, height), frame)
      switch frame.disposal {
      case .keep: break
      case .restore: canvas = before
      case .clear:
        for y in frame.y..<max(frame.y, min(height, frame.y + frame.height)) {
          let start = min(width, frame.x)
          for i in 4 * (y * width + start)..<4 * (y * width + min(width, start + frame.width)) { canvas[i] = 0 }
        }
      }
    }
  }

  private static func image(_ canvas: [UInt8], _ width: Int, _ height: Int) throws(ImagingError) -> Image {
    guard !stride(from: 3, to: canvas.count, by: 4).contains(where: { canvas[$0] != 255 }) else {
      return try Image(width: width, height: height, bands: 4, bytes: canvas)
    }
    let opaque = [UInt8](unsafeUninitializedCapacity: width * height * 3) { out, count in
      for i in 0..<width * height {
        for c in 0..<3 { out[3 * i + c] = canvas[4 * i + c] }
      }
      count = width * height * 3
    }
    return try Image(width: width, height: height, bands: 3, bytes: opaque)
  }

  /// - Returns: how many pixels the frame's data hold.
  private func draw(_ frame: Frame, _ b: UnsafeRawBufferPointer, onto canvas: inout [UInt8]) -> Int {
    let rows = Self.rows(frame)
    let colours = frame.palette.count / 3
    var (row, x) = (0, 0)
    return canvas.withUnsafeMutableBufferPointer { canvas in
      Self.unpack(b, from: frame.dataAt, pixels: frame.width * frame.height) { run in
        for index in run {
          let (column, line) = (frame.x + x, frame.y + rows[row])
          if Int(index) != frame.transparent, column < width, line < height {
            let at = 4 * (line * width + column)
            // An index without a colour is black.
            let known = Int(index) < colours
            let colour = frame.palette.lowerBound + 3 * Int(index)
            for c in 0..<3 { canvas[at + c] = known ? b[colour + c] : 0 }
            canvas[at + 3] = 255
          }
          x += 1
          if x == frame.width { (x, row) = (0, row + 1) }
        }
      }
    }
  }

  /// The rows in the order in which they are stored: with interlace every eighth, the ones between, and so on
  /// (appendix E).
  private static func rows(_ frame: Frame) -> [Int] {
    guard frame.isInterlaced else { return Array(0..<frame.height) }
    return [(0, 8), (4, 8), (2, 4), (1, 2)].flatMap { stride(from: $0, to: frame.height, by: $1) }
  }

  /// Whether there is anything of the first frame.
  func isEmpty(_ b: UnsafeRawBufferPointer) -> Bool {
    guard let first = frames.first, first.width > 0, first.height > 0 else { return false }
    return Self.unpack(b, from: first.dataAt, pixels: 1, isCounting: true) { _ in } == 0
  }

  /// How many pixels of a frame its data hold.
  static func pixels(of frame: Frame, _ b: UnsafeRawBufferPointer) -> Int {
    unpack(b, from: frame.dataAt, pixels: frame.width * frame.height, isCounting: true) { _ in }
  }

  /// Unpacks LZW (appendix F) until the pixels are full, the data end, or a code makes no sense.
  ///
  /// - Parameters:
  ///   - isCounting: pixels are only counted, in time linear in the data.
  ///   - emit: gets the pixels in order, in runs.
  /// - Returns: how many there are.
  private static func unpack(
    _ b: UnsafeRawBufferPointer, from start: Int, pixels most: Int, isCounting: Bool = false,
    _ emit: (Slice<UnsafeMutableBufferPointer<UInt8>>) -> Void
  ) -> Int {
    guard start < b.count, (1...8).contains(b[start]) else { return 0 }
    let clear = 1 << Int(b[start])
    let limit = 4096
    var parent = [Int](repeating: 0, count: limit)
    var last = [UInt8](repeating: 0, count: limit)
    var first = [UInt8](repeating: 0, count: limit)
    var length = [Int](repeating: 1, count: limit)
    for i in 0..<clear { (last[i], first[i]) = (UInt8(i), UInt8(i)) }
    var (at, left) = (start + 1, 0)
    var (bits, have) = (0, 0)
    var (next, width) = (clear + 2, Int(b[start]) + 1)
    var previous: Int?
    var made = 0
    return withUnsafeTemporaryAllocation(of: UInt8.self, capacity: limit) { run in
      run.initialize(repeating: 0)
      while made < most {
        while have < width {
          if left == 0 {
            guard at < b.count, b[at] > 0 else { return made }
            left = Int(b[at])
            at += 1
          }
          guard at < b.count else { return made }
          bits |= Int(b[at]) << have
          (at, left, have) = (at + 1, left - 1, have + 8)
        }
        let code = bits & (1 << width - 1)
        bits >>= width
        have -= width
        if code == clear {
          (next, width, previous) = (clear + 2, Int(b[start]) + 1, nil)
          continue
        }
        guard code != clear + 1 else { return made }
        if let previous {
          guard code < next || code == next && next < limit else { return made }
          // A full table stays as it is until it is cleared.
          if next < limit {
            parent[next] = previous
            first[next] = first[previous]
            last[next] = code == next ? first[previous] : first[code]
            length[next] = length[previous] + 1
            next += 1
            if next == 1 << width, width < 12 { width += 1 }
          }
        } else {
          guard code < clear else { return made }
        }
        let count = length[code]
        if !isCounting {
          var step = code
          for i in stride(from: count - 1, through: 0, by: -1) {
            run[i] = last[step]
            step = parent[step]
          }
          emit(run[..<min(count, most - made)])
        }
        made += min(count, most - made)
        previous = code
      }
      return made
    }
  }
}
