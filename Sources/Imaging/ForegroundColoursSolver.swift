/// Takes the background out of the colours of a soft matte's band, in interleaved samples.
///
/// A photo's pixel is I = α·F + (1 − α)·B. F and B are looked for together: they have to explain I, and be like those
/// of the pixels beside them, the more so where the matte is steep. Per pixel that is
/// (α·F + (1 − α)·B − I)² + Σ w·((F − Fₙ)² + (B − Bₙ)²) with w = `calm` + `steepness`·|α − αₙ| over the four
/// neighbours n; from small pictures to large ones, each starting with what the smaller one found. The equation and
/// the order are those of Germer, Uelwer, Conrad and Harmeling, "Fast Multi-Level Foreground Estimation" (2020).
/// Other than there, the small pictures are means, so that no pixel is lost to them; they end at `coarseArea` pixels
/// whatever the photo's size; and from there the photo itself is solved at once, in the tiles that have soft pixels.
struct ForegroundColoursSolver {
  /// A matte's bytes from and up to which it counts as soft. Beyond, what is wrong with a colour shows by two levels of
  /// 255 at most, and a model's mattes are full of such bytes.
  static let softest: UInt8 = 3
  static let hardest: UInt8 = 252
  /// Pixels of the largest of the small pictures.
  static let coarseArea = 262_144

  /// The weight of likeness between neighbours, against 1 for explaining the photo. A model's matte is wrong by some
  /// hundredths nearly everywhere; with less of it, that error turns into shrill colours.
  var calm: Float = 0.01
  /// What the matte's slope adds to it.
  var steepness: Float = 0.5
  /// Passes over each small picture, over those of at most 32 pixels a side, and over the tiles.
  var passes = (coarse: 3, smallest: 10, fine: 2)

  typealias Colour = SIMD4<Float>

  /// Replaces the colours of the soft pixels.
  ///
  /// - Parameters:
  ///   - samples: `width` × `height` pixels of `bands` samples (3 or more), of which the first three are changed.
  ///   - matte: `width` × `height` bytes.
  ///   - tiles: what `softTiles` says of the matte, not empty.
  func solve<Sample: FixedWidthInteger & UnsignedInteger>(
    _ samples: UnsafeMutableBufferPointer<Sample>, bands: Int, matte: UnsafeBufferPointer<UInt8>,
    _ tiles: [Tile], width: Int, height: Int
  ) {
    precondition(width > 0 && height > 0 && bands >= 3, "sides of at least 1 and three colours")
    precondition(samples.count == width * height * bands && matte.count == width * height, "pixels and matte")
    guard let pixels = samples.baseAddress, let alpha = matte.baseAddress else { return }
    let photo = Photo(pixels: pixels, bands: bands, alpha: alpha, width: width, height: height)
    var factor = 1
    while ((width + factor - 1) / factor) * ((height + factor - 1) / factor) > Self.coarseArea { factor += 1 }
    let coarse = solved(Layer(photo, factor: factor))
    refine(photo, tiles, from: coarse, factor: factor)
  }

  /// A photo under its matte.
  private struct Photo<Sample: FixedWidthInteger & UnsignedInteger> {
    let pixels: UnsafeMutablePointer<Sample>
    let bands: Int
    let alpha: UnsafePointer<UInt8>
    let width: Int
    let height: Int

    /// The colour of a pixel, 0…1.
    @inline(__always)
    func colour(_ index: Int) -> Colour {
      let at = pixels + index * bands
      return Colour(Float(at[0]), Float(at[1]), Float(at[2]), 0) * (1 / Float(Sample.max))
    }
  }

  // MARK: Small pictures

  /// A small picture: what the photo and its matte are there, and what foreground and background are thought to be.
  private struct Layer {
    let width: Int
    let height: Int
    /// Colour 0…1, the matte 0…1 as the fourth lane.
    var seen: [Colour]
    var foreground: [Colour] = []
    var background: [Colour] = []

    /// The means of squares of `factor` pixels a side; those at the right and below may be smaller.
    init<Sample>(_ photo: Photo<Sample>, factor: Int) {
      width = (photo.width + factor - 1) / factor
      height = (photo.height + factor - 1) / factor
      let (columns, bands) = (width, photo.bands)
      seen = [Colour](repeating: .zero, count: width * height)
      let rowLength = photo.width * bands
      withUnsafeTemporaryAllocation(of: UInt32.self, capacity: rowLength + photo.width) { sums in
        seen.withUnsafeMutableBufferPointer { seen in
          guard let colours = sums.baseAddress else { return }
          let mattes = colours + rowLength
          for row in 0..<height {
            let rows = row * factor..<min((row + 1) * factor, photo.height)
            sums.update(repeating: 0)
            for y in rows {
              let line = photo.pixels + y * rowLength
              for x in 0..<rowLength { colours[x] &+= UInt32(truncatingIfNeeded: line[x]) }
              let matte = photo.alpha + y * photo.width
              for x in 0..<photo.width { mattes[x] &+= UInt32(matte[x]) }
            }
            for column in 0..<columns {
              let across = column * factor..<min((column + 1) * factor, photo.width)
              var sum = Colour.zero
              for x in across {
                let at = colours + x * bands
                sum += Colour(Float(at[0]), Float(at[1]), Float(at[2]), Float(mattes[x]))
              }
              let share = 1 / Float(rows.count * across.count)
              let level = share / Float(Sample.max)
              seen[row * columns + column] = sum * Colour(level, level, level, share / 255)
            }
          }
        }
      }
    }

    /// The means of squares of two pixels a side.
    init(halving larger: Layer) {
      width = (larger.width + 1) / 2
      height = (larger.height + 1) / 2
      seen = []
      seen.reserveCapacity(width * height)
      for y in 0..<height {
        let top = 2 * y * larger.width
        let bottom = min(2 * y + 1, larger.height - 1) * larger.width
        for x in 0..<width {
          let (left, right) = (2 * x, min(2 * x + 1, larger.width - 1))
          let upper = larger.seen[top + left] + larger.seen[top + right]
          let lower = larger.seen[bottom + left] + larger.seen[bottom + right]
          seen.append((upper + lower) * 0.25)
        }
      }
    }

    /// Starts with the mean of the subject and the mean of the rest.
    mutating func start() {
      var (subject, rest) = (Colour.zero, Colour.zero)
      var (share, other): (Float, Float) = (0, 0)
      for pixel in seen {
        subject += pixel * pixel.w
        share += pixel.w
        rest += pixel * (1 - pixel.w)
        other += 1 - pixel.w
      }
      let foreground = share > 0 ? subject / share : rest / max(other, .leastNormalMagnitude)
      let background = other > 0 ? rest / other : foreground
      self.foreground = [Colour](repeating: foreground.coloured, count: seen.count)
      self.background = [Colour](repeating: background.coloured, count: seen.count)
    }

    /// Starts with what a picture half as large found.
    mutating func start(from smaller: Layer) {
      foreground.reserveCapacity(seen.count)
      background.reserveCapacity(seen.count)
      for y in 0..<height {
        for x in 0..<width {
          let at = y / 2 * smaller.width + x / 2
          foreground.append(smaller.foreground[at])
          background.append(smaller.background[at])
        }
      }
    }
  }

  /// Rows of a small picture that are settled together, each a pixel behind the one before it. Every pixel then still
  /// finds its neighbours as one row after the other would leave them, and need not wait for the one at its left alone.
  private static let rowsAtOnce = 4

  /// The layer with its foreground and background found.
  private func solved(_ layer: Layer) -> Layer {
    var layer = layer
    if layer.width * layer.height <= 16 {
      layer.start()
    } else {
      layer.start(from: solved(Layer(halving: layer)))
    }
    let (width, height) = (layer.width, layer.height)
    let count = max(width, height) <= 32 ? passes.smallest : passes.coarse
    layer.seen.withUnsafeBufferPointer { seen in
      layer.foreground.withUnsafeMutableBufferPointer { foreground in
        layer.background.withUnsafeMutableBufferPointer { background in
          guard let seen = seen.baseAddress, let foreground = foreground.baseAddress,
            let background = background.baseAddress
          else { return }
          for pass in 0..<count {
            // Forwards and backwards in turn, so that what is known spreads both ways.
            let isForwards = pass % 2 == 0
            for first in stride(from: 0, to: height, by: Self.rowsAtOnce) {
              let rows = min(Self.rowsAtOnce, height - first)
              for place in 0..<width + rows - 1 {
                for row in max(0, place - width + 1)..<min(rows, place + 1) {
                  let y = isForwards ? first + row : height - 1 - first - row
                  let x = isForwards ? place - row : width - 1 - place + row
                  let at = y * width + x
                  settle(
                    at, foreground, background, seen,
                    left: x > 0 ? at - 1 : at, right: x + 1 < width ? at + 1 : at,
                    above: y > 0 ? at - width : at, below: y + 1 < height ? at + width : at)
                }
              }
            }
          }
        }
      }
    }
    return layer
  }

  /// Solves one pixel with its neighbours as they are. At the border a pixel is its own neighbour.
  ///
  /// With W the sum of the weights and F̄, B̄ the weighted means of the neighbours the least squares are
  /// F = F̄ + α·r / (W + α² + β²) and B = B̄ + β·r / (W + α² + β²), where β = 1 − α and r = I − α·F̄ − β·B̄.
  @inline(__always)
  private func settle(
    _ at: Int, _ foreground: UnsafeMutablePointer<Colour>, _ background: UnsafeMutablePointer<Colour>,
    _ seen: UnsafePointer<Colour>, left: Int, right: Int, above: Int, below: Int
  ) {
    let pixel = seen[at]
    let alpha = pixel.w
    let slopes = Colour(seen[left].w, seen[right].w, seen[above].w, seen[below].w) - alpha
    let weights = calm + steepness * slopes.replacing(with: -slopes, where: slopes .< 0)
    let sum = weights.sum()
    let share = 1 / sum
    let nearForeground =
      (foreground[left] * weights.x + foreground[right] * weights.y + foreground[above] * weights.z
        + foreground[below] * weights.w) * share
    let nearBackground =
      (background[left] * weights.x + background[right] * weights.y + background[above] * weights.z
        + background[below] * weights.w) * share
    let other = 1 - alpha
    let missing = (pixel - nearForeground * alpha - nearBackground * other).coloured
    let step = missing / (sum + alpha * alpha + other * other)
    foreground[at] = (nearForeground + step * alpha).shares
    background[at] = (nearBackground + step * other).shares
  }

  // MARK: The photo itself

  /// The part of a tile, in the photo's pixels, around the soft ones.
  struct Tile {
    /// Which row of tiles it is of.
    let row: Int
    var left: Int
    var top: Int
    /// Beyond its last column and row.
    var right: Int
    var bottom: Int
  }

  private static let tile = 32

  /// Whether a byte of a matte is neither opaque nor transparent.
  @inline(__always)
  private static func isSoft(_ matte: UInt8) -> Bool {
    // What is transparent wraps round to the largest values.
    matte &- softest <= hardest - softest
  }

  /// Whether a tile's row is 0 throughout or 255 throughout, as most are; eight bytes at a time.
  @inline(__always)
  private static func isEven(_ row: UnsafePointer<UInt8>) -> Bool {
    var (all, any) = (UInt64.max, UInt64.min)
    for offset in stride(from: 0, to: tile, by: 8) {
      let bytes = UnsafeRawPointer(row + offset).loadUnaligned(as: UInt64.self)
      all &= bytes
      any |= bytes
    }
    return any == 0 || all == .max
  }

  /// The tiles of a matte that have soft pixels, row by row.
  static func softTiles(_ matte: UnsafeBufferPointer<UInt8>, width: Int, height: Int) -> [Tile] {
    guard let matte = matte.baseAddress else { return [] }
    var result: [Tile] = []
    let columns = (width + tile - 1) / tile
    for row in 0..<(height + tile - 1) / tile {
      for column in 0..<columns {
        let across = column * tile..<min((column + 1) * tile, width)
        var found = Tile(row: row, left: across.upperBound, top: height, right: 0, bottom: 0)
        for y in row * tile..<min((row + 1) * tile, height) {
          let line = matte + y * width
          if across.count == tile, isEven(line + across.lowerBound) { continue }
          guard let first = across.first(where: { isSoft(line[$0]) }),
            let last = across.last(where: { isSoft(line[$0]) })
          else { continue }
          found.left = min(found.left, first)
          found.right = max(found.right, last + 1)
          found.top = min(found.top, y)
          found.bottom = y + 1
        }
        if found.bottom > 0 { result.append(found) }
      }
    }
    return result
  }

  /// Solves the photo's soft pixels tile by tile, and writes their foreground.
  ///
  /// A tile is solved with a seam around it that its neighbours solve too. Pixels are settled like the two colours of a
  /// chess board in turn, so that a pass carries values by two pixels and with a seam of two pixels a pass both tiles
  /// come to the same values: there is nothing to see where tiles meet.
  private func refine<Sample>(
    _ photo: Photo<Sample>, _ tiles: [Tile], from coarse: Layer, factor: Int
  ) {
    let seam = 2 * passes.fine
    let side = Self.tile + 2 * seam + 2
    let (width, height) = (photo.width, photo.height)
    // A later tile's seam needs the photo as it was, so what is found is written one row of tiles later.
    var waiting = Waiting()
    let across = (0..<width).map { Blend($0, factor, coarse.width) }
    withUnsafeTemporaryAllocation(of: Colour.self, capacity: 3 * side * side + 2 * (side + 2)) { buffer in
      coarse.foreground.withUnsafeBufferPointer { coarseForeground in
        coarse.background.withUnsafeBufferPointer { coarseBackground in
          guard let seen = buffer.baseAddress, let smallForeground = coarseForeground.baseAddress,
            let smallBackground = coarseBackground.baseAddress
          else { return }
          let foreground = seen + side * side
          let background = foreground + side * side
          let lineForeground = background + side * side
          let lineBackground = lineForeground + side + 2
          for tile in tiles {
            waiting.release(before: tile.row - 1, to: photo)
            // One pixel more than the seam is read, as neighbours.
            let left = max(tile.left - seam - 1, 0)
            let top = max(tile.top - seam - 1, 0)
            let right = min(tile.right + seam + 1, width)
            let bottom = min(tile.bottom + seam + 1, height)
            // The small picture's columns under the tile. The two rows around a row are blended once for all of it.
            let firstColumn = across[left].first
            let lastColumn = across[right - 1].second
            for y in top..<bottom {
              let vertical = Blend(y, factor, coarse.height)
              let upper = vertical.first * coarse.width
              let lower = vertical.second * coarse.width
              for column in firstColumn...lastColumn {
                let place = column - firstColumn
                let (above, below) = (upper + column, lower + column)
                lineForeground[place] = vertical.mean(smallForeground[above], smallForeground[below])
                lineBackground[place] = vertical.mean(smallBackground[above], smallBackground[below])
              }
              for x in left..<right {
                let at = (y - top) * side + x - left
                let index = y * width + x
                var colour = photo.colour(index)
                let matte = photo.alpha[index]
                let blend = across[x]
                let (first, second) = (blend.first - firstColumn, blend.second - firstColumn)
                foreground[at] =
                  matte > Self.hardest ? colour : blend.mean(lineForeground[first], lineForeground[second])
                background[at] =
                  matte < Self.softest ? colour : blend.mean(lineBackground[first], lineBackground[second])
                colour.w = Float(matte) * (1 / 255)
                seen[at] = colour
              }
            }
            let inner = (
              left: max(tile.left - seam, 0), right: min(tile.right + seam, width),
              top: max(tile.top - seam, 0), bottom: min(tile.bottom + seam, height)
            )
            for half in 0..<2 * passes.fine {
              for y in inner.top..<inner.bottom {
                // Which squares of the board come first is counted from the photo's corner, not the tile's.
                var x = inner.left + (inner.left + y + half) % 2
                while x < inner.right {
                  if Self.isSoft(photo.alpha[y * width + x]) {
                    let at = (y - top) * side + x - left
                    settle(
                      at, foreground, background, seen,
                      left: x > 0 ? at - 1 : at, right: x + 1 < width ? at + 1 : at,
                      above: y > 0 ? at - side : at, below: y + 1 < height ? at + side : at)
                  }
                  x += 2
                }
              }
            }
            for y in tile.top..<tile.bottom {
              for x in tile.left..<tile.right {
                let index = y * width + x
                guard Self.isSoft(photo.alpha[index]) else { continue }
                waiting.add(index, foreground[(y - top) * side + x - left])
              }
            }
            waiting.close(tile.row)
          }
          waiting.release(before: .max, to: photo)
        }
      }
    }
  }

  /// Colours found for pixels whose old ones are still needed.
  private struct Waiting {
    private var pixels: [(index: Int, colour: Colour)] = []
    /// For each row of tiles the end of its pixels.
    private var ends: [(row: Int, end: Int)] = []

    mutating func add(_ index: Int, _ colour: Colour) { pixels.append((index, colour)) }

    mutating func close(_ row: Int) {
      if ends.last?.row == row { ends.removeLast() }
      ends.append((row, pixels.count))
    }

    /// Writes the colours of the rows of tiles before one.
    mutating func release<Sample>(before row: Int, to photo: Photo<Sample>) {
      guard let first = ends.first, first.row < row, let last = ends.last(where: { $0.row < row }) else { return }
      for (index, colour) in pixels[..<last.end] {
        let values = colour * Float(Sample.max) + 0.5
        let at = photo.pixels + index * photo.bands
        at[0] = Sample(truncatingIfNeeded: Int32(values.x))
        at[1] = Sample(truncatingIfNeeded: Int32(values.y))
        at[2] = Sample(truncatingIfNeeded: Int32(values.z))
      }
      pixels.removeFirst(last.end)
      ends = ends.filter { $0.row >= row }.map { ($0.row, $0.end - last.end) }
    }
  }

  /// Which two pixels of a small picture lie around a photo's pixel along one side, and the second one's share.
  private struct Blend {
    let first: Int
    let second: Int
    let share: Float

    @inline(__always)
    init(_ position: Int, _ factor: Int, _ count: Int) {
      let place = (Float(position) + 0.5) / Float(factor) - 0.5
      let low = max(Int(place.rounded(.down)), 0)
      first = min(low, count - 1)
      second = min(low + 1, count - 1)
      share = min(max(place - Float(low), 0), 1)
    }

    /// The mean of the two pixels' values.
    @inline(__always)
    func mean(_ one: Colour, _ other: Colour) -> Colour { one + (other - one) * share }
  }
}

extension SIMD4<Float> {
  /// The same with 0 in the fourth lane.
  @inline(__always)
  fileprivate var coloured: SIMD4<Float> {
    var result = self
    result.w = 0
    return result
  }

  /// The same within 0…1. (The library's `clamped` is not inlined.)
  @inline(__always)
  fileprivate var shares: SIMD4<Float> {
    let above = replacing(with: 0, where: self .< 0)
    return above.replacing(with: 1, where: above .> 1)
  }
}
