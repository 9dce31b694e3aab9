extension MattePlane {
  /// Makes the subject larger on all sides by `radius` pixels: each level becomes the greatest within a disc.
  ///
  /// A flat grey dilation, exact: the disc holds the pixels whose centres are at most `radius` away, and soft edges move
  /// as they are. Between whole radii the results of the two discs are mixed, so that a hard edge moves by a fraction
  /// of a pixel. Beyond the border there is nothing, so what touches it is not changed by it.
  mutating func grow(_ radius: Double) {
    let whole = Int(radius)
    let rest = Int(((radius - Double(whole)) * 256).rounded())
    let inner = whole > 0 ? dilated(whole) : samples
    guard rest > 0 else {
      samples = inner
      return
    }
    let outer = dilated(whole + 1)
    let (more, less) = (UInt16(rest), UInt16(256 - rest))
    samples.withUnsafeMutableBufferPointer { levels in
      inner.withUnsafeBufferPointer { inner in
        outer.withUnsafeBufferPointer { outer in
          for place in levels.indices {
            // At most 255 · 256 + 128, which 16 bits hold.
            levels[place] = UInt8(
              truncatingIfNeeded: (UInt16(inner[place]) &* less &+ UInt16(outer[place]) &* more &+ 128) >> 8)
          }
        }
      }
    }
  }

  /// Makes the subject smaller: what grows is the background.
  mutating func shrink(_ radius: Double) {
    invert()
    grow(radius)
    invert()
  }

  /// The greatest level within a disc of `radius` pixels, 1 or more, about each pixel.
  private func dilated(_ radius: Int) -> [UInt8] { radius <= 40 ? dilatedByRows(radius) : dilatedByCells(radius) }

  /// Row by row: what a row's pixels reach to the left and right is widened pixel by pixel, and at each width taken in
  /// by the rows that the disc is so wide in. Flat cells are left out. The cost of the others follows the radius.
  private func dilatedByRows(_ radius: Int) -> [UInt8] {
    let side = MatteCells.side
    let cells = MatteCells(self)
    let box = cells.spread((radius + side - 1) / side)
    // The distances from the centre at which half the disc's width is the place in the list.
    var distances = [[Int]](repeating: [], count: radius + 1)
    for (distance, half) in Self.halves(radius).enumerated() { distances[half].append(distance) }
    var result = samples
    withUnsafeTemporaryAllocation(of: UInt8.self, capacity: width + 2 * radius) { buffer in
      samples.withUnsafeBufferPointer { source in
        result.withUnsafeMutableBufferPointer { result in
          guard let reached = buffer.baseAddress, let source = source.baseAddress, let result = result.baseAddress
          else { return }
          for row in 0..<cells.down {
            let (top, bottom) = (row * side, min(height, row * side + side))
            for (left, right) in cells.spans(row, width, where: { box.most[$0] > cells.least[$0] }) {
              let count = right - left
              for y in max(0, top - radius)..<min(height, bottom + radius) {
                let (from, to) = (max(0, left - radius), min(width, right + radius))
                let before = from - (left - radius)
                reached.update(repeating: 0, count: before)
                (reached + before).update(from: source + y * width + from, count: to - from)
                (reached + before + to - from).update(repeating: 0, count: right + radius - to)
                for half in 0...radius {
                  let span = count + 2 * (radius - half)
                  if half == 1 {
                    for x in 0..<span { reached[x] = max(reached[x], max(reached[x + 1], reached[x + 2])) }
                  } else if half > 1 {
                    for x in 0..<span { reached[x] = max(reached[x], reached[x + 2]) }
                  }
                  let middle = reached + (radius - half)
                  for distance in distances[half] {
                    if y - distance >= top, y - distance < bottom {
                      Self.raise(result + (y - distance) * width + left, by: middle, count: count)
                    }
                    if distance > 0, y + distance >= top, y + distance < bottom {
                      Self.raise(result + (y + distance) * width + left, by: middle, count: count)
                    }
                  }
                }
              }
            }
          }
        }
      }
    }
    return result
  }

  private static func raise(_ levels: UnsafeMutablePointer<UInt8>, by others: UnsafePointer<UInt8>, count: Int) {
    for x in 0..<count { levels[x] = max(levels[x], others[x]) }
  }

  /// Half the width of a disc's rows, by their distance from its centre.
  fileprivate static func halves(_ radius: Int) -> [Int] {
    (0...radius).map { distance in
      let square = radius * radius - distance * distance
      var half = Int(Double(square).squareRoot())
      // The root of a large number may be rounded up to the next whole one.
      while half * half > square { half -= 1 }
      return half
    }
  }

  /// Works cell by cell. What a cell certainly reaches gives each of its pixels a least level; only cells that are
  /// reached in part and go above it are looked into. So the cost follows the length of the contour and the width of
  /// soft edges, not the area; the radius makes a ring of cells longer, and nothing else.
  private func dilatedByCells(_ radius: Int) -> [UInt8] {
    let side = MatteCells.side
    let cells = MatteCells(self)
    let box = cells.spread((radius + side - 1) / side)
    let (sure, partly) = Self.offsets(radius)
    let disc = Disc(radius)
    defer { disc.deallocate() }
    var result = samples
    samples.withUnsafeBufferPointer { source in
      result.withUnsafeMutableBufferPointer { result in
        guard let source = source.baseAddress, let result = result.baseAddress else { return }
        for row in 0..<cells.down {
          for column in 0..<cells.across {
            let cell = row * cells.across + column
            let bound = box.most[cell]
            var level = cells.least[cell]
            guard bound > level else { continue }
            for offset in sure where level < bound {
              let (x, y) = (column + offset.x, row + offset.y)
              guard x >= 0, y >= 0, x < cells.across, y < cells.down else { continue }
              level = max(level, cells.most[y * cells.across + x])
            }
            let (left, top) = (column * side, row * side)
            let (wide, high) = (min(side, width - left), min(side, height - top))
            disc.start(level)
            var isFlat = true
            if level < bound {
              for offset in partly {
                let (x, y) = (column + offset.x, row + offset.y)
                guard x >= 0, y >= 0, x < cells.across, y < cells.down, cells.most[y * cells.across + x] > level
                else { continue }
                isFlat = false
                let (fromX, fromY) = (x * side, y * side)
                disc.reach(
                  source + fromY * width + fromX, stride: width,
                  columns: min(side, width - fromX), rows: min(side, height - fromY), offset.x, offset.y,
                  outputRows: high, above: level)
              }
            }
            for y in 0..<high {
              let target = result + (top + y) * width + left
              if isFlat {
                target.update(repeating: level, count: wide)
              } else {
                disc.copyRow(y, to: target, count: wide)
              }
            }
          }
        }
      }
    }
    return result
  }

  /// Cells that every pixel of a cell reaches whole, and those that some pixel reaches in part, nearest first.
  private static func offsets(_ radius: Int) -> (sure: [SIMD2<Int>], partly: [SIMD2<Int>]) {
    let side = MatteCells.side
    let reach = (radius + side - 1) / side
    var (sure, partly): ([SIMD2<Int>], [SIMD2<Int>]) = ([], [])
    for y in -reach...reach {
      for x in -reach...reach {
        let far = SIMD2(abs(x) * side + side - 1, abs(y) * side + side - 1)
        let near = SIMD2(max(0, (abs(x) - 1) * side + 1), max(0, (abs(y) - 1) * side + 1))
        if (far &* far).wrappedSum() <= radius * radius {
          sure.append(SIMD2(x, y))
        } else if (near &* near).wrappedSum() <= radius * radius {
          partly.append(SIMD2(x, y))
        }
      }
    }
    let nearer = { (a: SIMD2<Int>, b: SIMD2<Int>) in (a &* a).wrappedSum() < (b &* b).wrappedSum() }
    return (sure.sorted(by: nearer), partly.sorted(by: nearer))
  }
}

/// One cell's greatest levels within a disc, gathered from the cells around it. `deallocate` ends its use.
private struct Disc {
  private let radius: Int
  /// Half the width of the disc's rows, by their distance from its centre.
  private let halves: UnsafeMutablePointer<Int>
  /// What was gathered, row by row.
  private let rows: UnsafeMutablePointer<UInt8>
  /// A row of a cell between two rows of filling; and, after it, its greatest levels over 2, 4, 8 … pixels.
  private let tables: UnsafeMutablePointer<UInt8>
  private static let side = MatteCells.side
  private static let tableBytes = 4 * side

  init(_ radius: Int) {
    self.radius = radius
    halves = .allocate(capacity: radius + 1)
    for (distance, half) in MattePlane.halves(radius).enumerated() { halves[distance] = half }
    rows = .allocate(capacity: Self.side * Self.side)
    tables = .allocate(capacity: 6 * Self.tableBytes)
    tables.initialize(repeating: 0, count: 6 * Self.tableBytes)
  }

  func deallocate() {
    halves.deallocate()
    rows.deallocate()
    tables.deallocate()
  }

  func start(_ level: UInt8) { rows.initialize(repeating: level, count: Self.side * Self.side) }

  func copyRow(_ row: Int, to target: UnsafeMutablePointer<UInt8>, count: Int) {
    target.update(from: rows + row * Self.side, count: count)
  }

  /// Takes in the cell `across` and `down` cells away, which begins at `cell`, as far as it is above `level`.
  func reach(
    _ cell: UnsafePointer<UInt8>, stride: Int, columns: Int, rows count: Int, _ across: Int, _ down: Int,
    outputRows: Int, above level: UInt8
  ) {
    for row in 0..<count {
      let y = down * Self.side + row
      let (first, last) = (max(0, y - radius), min(outputRows - 1, y + radius))
      guard first <= last else { continue }
      let line = tables + Self.side
      for x in 0..<columns { line[x] = cell[row * stride + x] }
      for x in columns..<Self.side { line[x] = 0 }
      var all: UInt8 = 0
      for x in 0..<Self.side { all = max(all, line[x]) }
      guard all > level else { continue }
      if across == 0 {
        straight(y, first, last, all)
      } else {
        sideways(y, first, last, across, all)
      }
    }
  }

  /// A cell at one side: of it the disc's row reaches all up to some pixel, so that the greatest level is that of the
  /// row's beginning, or of its end.
  private func sideways(_ y: Int, _ first: Int, _ last: Int, _ across: Int, _ all: UInt8) {
    let side = Self.side
    let line = tables + side
    if across > 0 {
      tables.update(repeating: 0, count: side)
      for x in 1..<side { line[x] = max(line[x], line[x - 1]) }
      (line + side).update(repeating: all, count: side)
    } else {
      tables.update(repeating: all, count: side)
      for x in (0..<side - 1).reversed() { line[x] = max(line[x], line[x + 1]) }
      (line + side).update(repeating: 0, count: side)
    }
    let gap = side * abs(across)
    for output in first...last {
      // How far the part that counts goes beyond the output's own column; none of it, or all, from a side on.
      let shift = min(side, halves[abs(y - output)] - gap)
      guard shift > -side else { continue }
      raise(output, by: line + (across > 0 ? shift : -shift))
    }
  }

  /// A cell in the same column: the disc's row reaches as far to the left as to the right.
  private func straight(_ y: Int, _ first: Int, _ last: Int, _ all: UInt8) {
    let side = Self.side
    tables.update(repeating: 0, count: side)
    (tables + 2 * side).update(repeating: 0, count: 2 * side)
    var levels = 1
    while 1 << levels <= 2 * min(radius, side - 2) + 1 {
      let below = tables + (levels - 1) * Self.tableBytes
      let above = tables + levels * Self.tableBytes
      let step = 1 << (levels - 1)
      for x in 0..<3 * side { above[x] = max(below[x], below[x + step]) }
      levels += 1
    }
    for output in first...last {
      let half = halves[abs(y - output)]
      guard half < side - 1 else {
        let row = rows + output * side
        for x in 0..<side { row[x] = max(row[x], all) }
        continue
      }
      let length = 2 * half + 1
      let power = Int.bitWidth - 1 - length.leadingZeroBitCount
      let table = tables + power * Self.tableBytes + side
      raise(output, by: table - half)
      raise(output, by: table + (half + 1 - (1 << power)))
    }
  }

  @inline(__always)
  private func raise(_ output: Int, by other: UnsafeMutablePointer<UInt8>) {
    let row = rows + output * Self.side
    for x in 0..<Self.side { row[x] = max(row[x], other[x]) }
  }
}
