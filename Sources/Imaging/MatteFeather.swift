import Glibc

extension MattePlane {
  /// Softens edges by a Gaussian of standard deviation `sigma`, in pixels. Beyond the border the outermost pixels go on,
  /// so that a subject that touches it stays opaque there.
  ///
  /// Up to 7 pixels the Gaussian is summed as it is, out to 3.2 sigma, where the matte is not flat as far as it reaches.
  /// A wider one is summed over averages of square blocks, and what lies between is interpolated linearly: the block's
  /// and the interpolation's own variance are taken off, and the error stays below one level.
  mutating func feather(_ sigma: Double) {
    let factor = max(1, Int(sigma / 3.5))
    if factor == 1 { featherDirectly(Kernel(sigma)) } else { featherByBlocks(sigma, factor) }
  }

  /// A symmetric sum of weights, from the middle outwards.
  private struct Kernel {
    let weights: [Float]
    var reach: Int { weights.count - 1 }

    init(_ sigma: Double) {
      let reach = max(1, Int((3.2 * sigma).rounded(.up)))
      let bell = (0...reach).map { exp(-Double($0 * $0) / (2 * sigma * sigma)) }
      let sum = 2 * bell.reduce(0, +) - bell[0]
      weights = bell.map { Float($0 / sum) }
    }

    /// `count` sums over rows `stride` apart; the row in the middle begins at `centre`.
    @inline(__always)
    func sum(_ centre: UnsafePointer<Float>, stride: Int, to target: UnsafeMutablePointer<Float>, count: Int) {
      weights.withUnsafeBufferPointer { weights in
        let middle = weights[0]
        for x in 0..<count { target[x] = middle * centre[x] }
        var tap = 1
        // Two at a time halve the reading and writing of the sums.
        while tap + 1 < weights.count {
          let (near, far) = (weights[tap], weights[tap + 1])
          let (a, b) = (centre - tap * stride, centre + tap * stride)
          let (c, d) = (a - stride, b + stride)
          for x in 0..<count { target[x] += near * (a[x] + b[x]) + far * (c[x] + d[x]) }
          tap += 2
        }
        if tap < weights.count {
          let weight = weights[tap]
          let (a, b) = (centre - tap * stride, centre + tap * stride)
          for x in 0..<count { target[x] += weight * (a[x] + b[x]) }
        }
      }
    }
  }

  private mutating func featherDirectly(_ kernel: Kernel) {
    let side = MatteCells.side
    let reach = kernel.reach
    let cells = MatteCells(self).spread((reach + side - 1) / side)
    let source = samples
    let most = width + 2 * reach
    let rows = side + 2 * reach
    withUnsafeTemporaryAllocation(of: Float.self, capacity: most * rows) { levels in
      withUnsafeTemporaryAllocation(of: Float.self, capacity: most) { sums in
        withUnsafeTemporaryAllocation(of: Float.self, capacity: width) { line in
          guard let levels = levels.baseAddress, let sums = sums.baseAddress, let line = line.baseAddress else {
            return
          }
          samples.withUnsafeMutableBufferPointer { target in
            source.withUnsafeBufferPointer { source in
              for row in 0..<cells.down {
                for (left, right) in Self.uneven(cells, row, width) {
                  let (top, bottom) = (row * side, min(height, row * side + side))
                  let span = right - left + 2 * reach
                  for y in top - reach..<bottom + reach {
                    Self.widen(
                      source, at: min(max(0, y), height - 1) * width, width, from: left - reach,
                      to: levels + (y - top + reach) * span, count: span)
                  }
                  for y in top..<bottom {
                    kernel.sum(levels + (y - top + reach) * span, stride: span, to: sums, count: span)
                    kernel.sum(sums + reach, stride: 1, to: line, count: right - left)
                    let start = y * width + left
                    for x in 0..<right - left { target[start + x] = UInt8(min(line[x] + 0.5, 255)) }
                  }
                }
              }
            }
          }
        }
      }
    }
  }

  /// Where a row of cells is not flat, as columns of pixels. Two levels, as the faint noise of models has them, count as
  /// flat: no blur would change them by more.
  private static func uneven(_ cells: MatteCells, _ row: Int, _ width: Int) -> [(left: Int, right: Int)] {
    cells.spans(row, width) { cells.most[$0] - cells.least[$0] > 2 }
  }

  /// A part of a row as numbers, its outermost pixels going on.
  private static func widen(
    _ source: UnsafeBufferPointer<UInt8>, at row: Int, _ width: Int, from left: Int,
    to target: UnsafeMutablePointer<Float>,
    count: Int
  ) {
    let inner = max(0, -left)..<max(0, min(count, width - left))
    for x in 0..<inner.lowerBound { target[x] = Float(source[row]) }
    for x in inner { target[x] = Float(source[row + left + x]) }
    for x in inner.upperBound..<count { target[x] = Float(source[row + width - 1]) }
  }

  private mutating func featherByBlocks(_ sigma: Double, _ factor: Int) {
    let side = MatteCells.side
    let size = Double(factor)
    // A block of n pixels spreads by (n² − 1) / 12, a linear interpolation over n pixels by n² / 6.
    let kernel = Kernel(((sigma * sigma - (size * size - 1) / 12 - size * size / 6) / (size * size)).squareRoot())
    let margin = kernel.reach + 1
    let (across, down) = (
      (width + factor - 1) / factor + 2 * margin, (height + factor - 1) / factor + 2 * margin
    )
    var blocks = averages(factor, margin, across, down)
    blocks = Self.sums(of: blocks, across, down, kernel)
    // Cells as far as the sum and its blocks reach.
    let cells = MatteCells(self).spread(((kernel.reach + 2) * factor + side - 1) / side)
    let middle = (size - 1) / 2
    // For each column the block at its left, and how far it lies on the way to the next.
    let columns = (0..<width).map { x in
      let place = (Double(x) - middle) / size + Double(margin)
      return (block: Int32(place), share: Float(place - place.rounded(.down)))
    }
    var line = [Float](repeating: 0, count: across)
    samples.withUnsafeMutableBufferPointer { target in
      blocks.withUnsafeBufferPointer { blocks in
        columns.withUnsafeBufferPointer { columns in
          line.withUnsafeMutableBufferPointer { line in
            for row in 0..<cells.down {
              for (left, right) in Self.uneven(cells, row, width) {
                let first = Int(columns[left].block)
                let last = Int(columns[right - 1].block) + 1
                for y in row * side..<min(height, row * side + side) {
                  let place = (Double(y) - middle) / size + Double(margin)
                  let share = Float(place - place.rounded(.down))
                  let above = Int(place) * across
                  for x in first...last {
                    line[x] = blocks[above + x] + share * (blocks[above + across + x] - blocks[above + x])
                  }
                  for x in left..<right {
                    let block = Int(columns[x].block)
                    let level = line[block] + columns[x].share * (line[block + 1] - line[block])
                    target[y * width + x] = UInt8(max(0, min(level + 0.5, 255)))
                  }
                }
              }
            }
          }
        }
      }
    }
  }

  /// The averages of blocks of `factor` × `factor` pixels, with `margin` blocks of what goes on beyond the border.
  private func averages(_ factor: Int, _ margin: Int, _ across: Int, _ down: Int) -> [Float] {
    var blocks = [Float](repeating: 0, count: across * down)
    var column = [UInt32](repeating: 0, count: width)
    let scale = 1 / Float(factor * factor)
    samples.withUnsafeBufferPointer { samples in
      blocks.withUnsafeMutableBufferPointer { blocks in
        column.withUnsafeMutableBufferPointer { column in
          for row in 0..<down {
            let top = (row - margin) * factor
            let target = row * across
            // Rows that lie beyond the border altogether are all alike.
            if row > 0, top + factor <= 0 || top - factor >= height {
              for x in 0..<across { blocks[target + x] = blocks[target - across + x] }
              continue
            }
            column.update(repeating: 0)
            for y in top..<top + factor {
              let line = min(max(0, y), height - 1) * width
              for x in 0..<width { column[x] &+= UInt32(samples[line + x]) }
            }
            for block in 0..<across {
              let left = (block - margin) * factor
              var sum: UInt32 = 0
              if left >= 0, left + factor <= width {
                for x in left..<left + factor { sum &+= column[x] }
              } else {
                for x in left..<left + factor { sum &+= column[min(max(0, x), width - 1)] }
              }
              blocks[target + block] = Float(sum) * scale
            }
          }
        }
      }
    }
    return blocks
  }

  /// The kernel's sums, down and across, for all but a margin of its reach; the rest is not asked for.
  private static func sums(of blocks: [Float], _ across: Int, _ down: Int, _ kernel: Kernel) -> [Float] {
    var result = blocks
    var line = [Float](repeating: 0, count: across)
    let reach = kernel.reach
    blocks.withUnsafeBufferPointer { blocks in
      result.withUnsafeMutableBufferPointer { result in
        line.withUnsafeMutableBufferPointer { line in
          guard let blocks = blocks.baseAddress, let result = result.baseAddress, let line = line.baseAddress else {
            return
          }
          for row in reach..<down - reach {
            kernel.sum(blocks + row * across, stride: across, to: line, count: across)
            kernel.sum(line + reach, stride: 1, to: result + row * across + reach, count: across - 2 * reach)
          }
        }
      }
    }
    return result
  }
}
