/// A matte's samples in memory, 0…255, rows from the top without padding; what the mask operations work on.
struct MattePlane: Sendable {
  let width: Int
  let height: Int
  var samples: [UInt8]

  init(width: Int, height: Int, samples: [UInt8]) {
    (self.width, self.height, self.samples) = (width, height, samples)
  }

  /// Replaces each level by what `table`, 256 levels, says.
  ///
  /// 8 to 30 ms for 50 megapixels on one core; most of a matte is black or white, and is passed over eight pixels at a time.
  mutating func map(_ table: [UInt8]) {
    let (black, white) = (table[0], table[255])
    let keepsEnds = black == 0 && white == 255
    samples.withUnsafeMutableBytes { bytes in
      var start = 0
      while start + 8 <= bytes.count {
        let eight = bytes.loadUnaligned(fromByteOffset: start, as: UInt64.self)
        if eight == 0 || eight == .max {
          if !keepsEnds {
            let level = UInt64(eight == 0 ? black : white) &* 0x0101_0101_0101_0101
            bytes.storeBytes(of: level, toByteOffset: start, as: UInt64.self)
          }
        } else {
          for place in start..<start + 8 { bytes[place] = table[Int(bytes[place])] }
        }
        start += 8
      }
      for place in start..<bytes.count { bytes[place] = table[Int(bytes[place])] }
    }
  }

  /// Turns black into white.
  mutating func invert() {
    samples.withUnsafeMutableBufferPointer { levels in
      for place in levels.indices { levels[place] = ~levels[place] }
    }
  }
}

/// The least and the greatest level of each square of 32 × 32 pixels: mattes are flat nearly everywhere, and what is
/// flat as far as an operation reaches needs no work.
struct MatteCells {
  static let side = 32
  let across: Int
  let down: Int
  private(set) var least: [UInt8]
  private(set) var most: [UInt8]

  init(_ plane: MattePlane) {
    let side = Self.side
    let (width, height) = (plane.width, plane.height)
    let (across, down) = ((width + side - 1) / side, (height + side - 1) / side)
    var least = [UInt8](repeating: 255, count: across * down)
    var most = [UInt8](repeating: 0, count: across * down)
    var low = [UInt8](repeating: 0, count: width)
    var high = low
    plane.samples.withUnsafeBufferPointer { samples in
      low.withUnsafeMutableBufferPointer { low in
        high.withUnsafeMutableBufferPointer { high in
          for row in 0..<down {
            low.update(repeating: 255)
            high.update(repeating: 0)
            for y in row * side..<min(height, row * side + side) {
              let line = UnsafeBufferPointer(rebasing: samples[y * width..<(y + 1) * width])
              for x in 0..<width {
                low[x] = min(low[x], line[x])
                high[x] = max(high[x], line[x])
              }
            }
            for column in 0..<across {
              var (bottom, top): (UInt8, UInt8) = (255, 0)
              for x in column * side..<min(width, column * side + side) {
                bottom = min(bottom, low[x])
                top = max(top, high[x])
              }
              least[row * across + column] = bottom
              most[row * across + column] = top
            }
          }
        }
      }
    }
    (self.across, self.down, self.least, self.most) = (across, down, least, most)
  }

  /// Neighbouring cells of a row that `isWanted` takes, as columns of pixels.
  func spans(_ row: Int, _ width: Int, where isWanted: (Int) -> Bool) -> [(left: Int, right: Int)] {
    var spans: [(left: Int, right: Int)] = []
    for column in 0..<across where isWanted(row * across + column) {
      let (left, right) = (column * Self.side, min(width, column * Self.side + Self.side))
      if let last = spans.last, last.right == left {
        spans[spans.count - 1].right = right
      } else {
        spans.append((left, right))
      }
    }
    return spans
  }

  /// The cells with those around them up to `reach` cells away taken in.
  func spread(_ reach: Int) -> MatteCells {
    var wide = self
    for row in 0..<down {
      for column in 0..<across {
        let around = row * across + max(0, column - reach)...row * across + min(across - 1, column + reach)
        wide.least[row * across + column] = least[around].reduce(255, min)
        wide.most[row * across + column] = most[around].reduce(0, max)
      }
    }
    let rows = wide
    for row in 0..<down {
      let around = max(0, row - reach)...min(down - 1, row + reach)
      for column in 0..<across {
        var (bottom, top): (UInt8, UInt8) = (255, 0)
        for other in around {
          bottom = min(bottom, rows.least[other * across + column])
          top = max(top, rows.most[other * across + column])
        }
        wide.least[row * across + column] = bottom
        wide.most[row * across + column] = top
      }
    }
    return wide
  }
}
