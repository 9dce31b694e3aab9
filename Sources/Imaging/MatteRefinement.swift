import Glibc

/// Makes a matte as large as the picture out of a model's map, with the picture's own colours as guide.
///
/// Two steps, each of which can be had alone:
///
/// 1. `levels`: models of the U-2-Net kind are trained on masks of black and white and answer with greys where they are
///    unsure, which look like glass in a cut-out. Their odds are weighed again with the odds of each pixel's colour,
///    given the colours of what is sure, and spread over black and white.
/// 2. `followsEdges`: in windows around the edge the matte is regressed on the picture's colours from the pixels that
///    are sure, and the line found is evaluated for every pixel of the full-size picture. It is the local linear model
///    of K. He, J. Sun, X. Tang, "Guided Image Filtering" (ECCV 2010), with weights, and computed at the model's size as
///    in K. He, J. Sun, "Fast Guided Filter" (2015); as every pixel in doubt is left out of the fit, it is also what
///    closed-form matting (A. Levin, D. Lischinski, Y. Weiss, 2008) assumes of colours in a window. Where the line
///    explains little (subject and background are of like colours) the matte stays as step 1 left it.
///
/// Work is done at about the model's size, and at full size only where the matte is neither 0 nor 1. On one core of a
/// busy two-core machine a 12-megapixel photo under a map of 320 × 320 takes 50 ms, half of it at the model's size.
public struct MatteRefinement: Sendable, Hashable {
  /// How a map's greys are spread over black and white.
  public struct Levels: Sendable, Hashable {
    /// Added to the logarithm of the odds: above 0 more counts as subject.
    public var bias: Float
    /// The share of the colours' log-odds that is added.
    public var colours: Float
    /// What is below becomes 0, what is above 1 − `margin` becomes 1. 0…0.5.
    public var margin: Float

    public init(bias: Float = 0.4, colours: Float = 0.4, margin: Float = 0.3) {
      self.bias = bias
      self.colours = colours
      self.margin = margin
    }

    /// Chosen for u2netp on half of 60 photos with masks drawn by hand. Where edges are followed the greys that are
    /// left are for the eye to take as softness, so they are spread less.
    public static func saliency(followingEdges: Bool) -> Levels { Levels(margin: followingEdges ? 0.2 : 0.3) }
  }

  /// nil leaves the map's values as they are.
  public var levels: Levels?
  /// Whether the picture's edges are followed.
  public var followsEdges: Bool

  public init(levels: Levels?, followsEdges: Bool) {
    self.levels = levels
    self.followsEdges = followsEdges
  }

  /// The matte of a picture: one band of 8 bits, its sides.
  ///
  /// - Parameter picture: 3 or 4 bands; alpha is not looked at.
  /// - Throws: `geometry` for a picture without colours, and what reading its pixels throws.
  public func matte(_ map: MatteMap, of picture: Image) throws(ImagingError) -> Image {
    guard picture.bands >= 3 else {
      throw ImagingError(.geometry, "a matte is refined against a picture in colour, not against another matte")
    }
    let map = FloatPlane(map)
    let colours = try picture.eightBitSRGB().materialised()
    let (width, height) = (colours.width, colours.height)
    let bytes = try colours.withPixels { raw -> [UInt8] in
      let pixels = raw.bindMemory(to: UInt8.self)
      return [UInt8](unsafeUninitializedCapacity: width * height) { out, count in
        refined(map, pixels, width: width, height: height).draw(pixels, width: width, height: height, into: out)
        count = width * height
      }
    }
    return try Image(width: width, height: height, bands: 1, bytes: bytes)
  }

  // MARK: At the model's size

  /// The longest side, in cells, that levels are worked out at; a finer map is averaged.
  private static let finestSide = 1024
  /// The longest side that lines are fitted at. The windows are as large a part of the picture for every model, and what
  /// they are fitted to need not be finer.
  private static let fitSide = 320

  private func refined(
    _ map: FloatPlane, _ pixels: UnsafeBufferPointer<UInt8>, width: Int, height: Int
  ) -> RefinedMatte {
    let longest = max(width, height)
    func sides(_ side: Int) -> (width: Int, height: Int) {
      let scale = Double(min(side, longest)) / Double(longest)
      return (
        max(1, Int((Double(width) * scale).rounded())), max(1, Int((Double(height) * scale).rounded()))
      )
    }
    let fine = sides(min(max(map.width, map.height), Self.finestSide))
    var colours = Self.shrunk(pixels, width: width, height: height, toWidth: fine.width, toHeight: fine.height)
    let small = map.resized(width: fine.width, height: fine.height)

    // A map finer than the picture is averaged: the cubic would skip cells.
    var base = map.resized(width: min(map.width, width), height: min(map.height, height))
    var sure = small
    var tone = RefinedMatte.Tone.asIs
    if let levels {
      base = Self.weighed(small, colours, levels)
      sure = base.mapped { RefinedMatte.spread($0, levels.margin) }
      tone = .spread(margin: levels.margin)
    }
    guard followsEdges else { return RefinedMatte(base: base, tone: tone) }
    let fit = sides(min(max(fine.width, fine.height), Self.fitSide))
    sure = sure.resized(width: fit.width, height: fit.height)
    colours = colours.map { $0.resized(width: fit.width, height: fit.height) }
    return RefinedMatte(base: base, tone: tone, edges: Edges(sure, colours))
  }

  /// The mean of the pixels that fall into each cell of a smaller grid, in 0…1, one plane a band.
  static func shrunk(
    _ pixels: UnsafeBufferPointer<UInt8>, width: Int, height: Int, toWidth: Int, toHeight: Int
  ) -> [FloatPlane] {
    // Where the columns of each cell begin; every cell has one at least as no side grows.
    let starts = (0...toWidth).map { $0 * width / toWidth }
    var sums = [UInt32](repeating: 0, count: toWidth * 3)
    var planes = [FloatPlane](repeating: FloatPlane(width: toWidth, height: toHeight), count: 3)
    var row = 0
    for cellRow in 0..<toHeight {
      let end = (cellRow + 1) * height / toHeight
      let rows = end - row
      sums.withUnsafeMutableBufferPointer { sums in
        sums.update(repeating: 0)
        starts.withUnsafeBufferPointer { starts in
          for y in row..<end {
            var at = y * width * 3
            for cell in 0..<toWidth {
              var (red, green, blue): (UInt32, UInt32, UInt32) = (0, 0, 0)
              for _ in starts[cell]..<starts[cell + 1] {
                red &+= UInt32(pixels[at])
                green &+= UInt32(pixels[at &+ 1])
                blue &+= UInt32(pixels[at &+ 2])
                at &+= 3
              }
              sums[cell * 3] &+= red
              sums[cell * 3 + 1] &+= green
              sums[cell * 3 + 2] &+= blue
            }
          }
        }
      }
      for cell in 0..<toWidth {
        let share = 1 / Float(255 * rows * (starts[cell + 1] - starts[cell]))
        for band in 0..<3 {
          planes[band].values[cellRow * toWidth + cell] = Float(sums[cell * 3 + band]) * share
        }
      }
      row = end
    }
    return planes
  }

  /// The map's odds, weighed with the odds of the colours.
  private static func weighed(_ map: FloatPlane, _ colours: [FloatPlane], _ levels: Levels) -> FloatPlane {
    let odds = ColourOdds(map: map, colours: colours)
    var result = map
    for index in result.values.indices {
      let share = min(max(map.values[index], 1e-3), 1 - 1e-3)
      let sum = logf(share / (1 - share)) + levels.colours * odds.logOdds(at: index) + levels.bias
      result.values[index] = 1 / (1 + expf(-sum))
    }
    return result
  }
}

/// How much more often a colour belongs to the subject than to the background, by a histogram of what is more likely
/// the one than the other.
private struct ColourOdds {
  private static let bins = 16
  /// Keeps colours that were never seen from being certain.
  private static let unseen: Float = 3e-6

  private let cells: [Int32]
  private let table: [Float]

  init(map: FloatPlane, colours: [FloatPlane]) {
    let bins = Self.bins
    let cells = map.values.indices.map { index in
      var cell = 0
      for band in 0..<3 { cell = cell * bins + min(Int(colours[band].values[index] * Float(bins)), bins - 1) }
      return Int32(cell)
    }
    var subject = [Float](repeating: 0, count: bins * bins * bins)
    var background = subject
    for (index, share) in map.values.enumerated() {
      if share > 0.5 { subject[Int(cells[index])] += share } else { background[Int(cells[index])] += 1 - share }
    }
    let (inside, outside) = (Self.smoothed(subject), Self.smoothed(background))
    self.cells = cells
    table = zip(inside, outside).map { logf(($0 + Self.unseen) / ($1 + Self.unseen)) }
  }

  func logOdds(at index: Int) -> Float { table[Int(cells[index])] }

  /// Spread over the neighbours by a Gaussian of one bin, and made to sum to 1.
  private static func smoothed(_ histogram: [Float]) -> [Float] {
    let kernel = (-3...3).map { expf(-Float($0 * $0) / 2) }
    let norm = kernel.reduce(0, +)
    var current = histogram
    for stride in [1, bins, bins * bins] {
      var next = [Float](repeating: 0, count: current.count)
      for cell in current.indices where current[cell] != 0 {
        let place = cell / stride % bins
        for offset in -3...3 where (0..<bins).contains(place + offset) {
          next[cell + offset * stride] += current[cell] * kernel[offset + 3] / norm
        }
      }
      current = next
    }
    let sum = current.reduce(0, +) + 1e-9
    return current.map { $0 / sum }
  }
}

/// What is fitted to the picture's edges at the work size: the matte as a line in red, green and blue.
struct Edges: Sendable {
  /// The window's radius, in cells.
  static let radius = 14
  /// How far a change of the matte makes pixels unsure, in cells.
  static let doubt = 3
  /// The variance of colour that counts as noise, as in the guided filter.
  static let noise: Float = 1e-3
  /// Lines are averaged over this radius.
  static let smoothing = 2
  /// Where the line explains less than the first, it is not used; from the second on, it is used alone.
  static let explained: ClosedRange<Float> = 0.5...0.98
  /// The matte from the line is stretched by this at both ends: sure pixels' own spread keeps it from 0 and 1.
  static let lineMargin: Float = 0.08

  /// What red, green and blue are multiplied by, and what is added to their sum; cells row by row.
  let lines: [SIMD4<Float>]
  /// The line's part of the result, 0…1.
  let share: FloatPlane

  init(_ sure: FloatPlane, _ colours: [FloatPlane]) {
    let range = sure.windowMaximum(radius: Self.doubt).joined(with: sure.windowMinimum(radius: Self.doubt)) { $0 - $1 }
    // Never quite 0, so that every window has something to fit; `share` is what keeps such a fit from being used.
    let weight = range.mapped { range in
      let rest = max(1 - range, 0)
      return rest * rest * rest * rest + 1e-3
    }
    let sums = WindowSums(sure: sure, colours: colours, weight: weight, radius: Self.radius)
    var parts = [FloatPlane](repeating: FloatPlane(width: sure.width, height: sure.height), count: 4)
    var explained = FloatPlane(width: sure.width, height: sure.height)
    for index in explained.values.indices {
      let fit = sums.fit(at: index, noise: Self.noise)
      for part in 0..<3 { parts[part].values[index] = fit.slope[part] }
      parts[3].values[index] = fit.offset
      explained.values[index] = fit.explained
    }
    parts = parts.map { $0.boxMean(radius: Self.smoothing) }
    lines = explained.values.indices.map { index in
      SIMD4(parts[0].values[index], parts[1].values[index], parts[2].values[index], parts[3].values[index])
    }
    share = explained.boxMean(radius: Self.smoothing).joined(with: range) {
      MatteRefinement.step($0, Self.explained) * min($1 * 2, 1)
    }
  }
}

extension MatteRefinement {
  /// 0 below a range, 1 above it, a line in between.
  fileprivate static func step(_ value: Float, _ range: ClosedRange<Float>) -> Float {
    min(max((value - range.lowerBound) / (range.upperBound - range.lowerBound), 0), 1)
  }
}

/// Weighted sums of colours, matte and their products over windows.
private struct WindowSums {
  private let weight: FloatPlane
  private let matte: FloatPlane
  private let mattes: FloatPlane
  private let colour: [FloatPlane]
  private let colourMatte: [FloatPlane]
  /// Products of two bands: RR, RG, RB, GG, GB, BB.
  private let products: [FloatPlane]

  init(sure: FloatPlane, colours: [FloatPlane], weight: FloatPlane, radius: Int) {
    let weighted = colours.map { $0.joined(with: weight, *) }
    let weightedMatte = sure.joined(with: weight, *)
    self.weight = weight.boxSum(radius: radius)
    matte = weightedMatte.boxSum(radius: radius)
    mattes = weightedMatte.joined(with: sure, *).boxSum(radius: radius)
    colour = weighted.map { $0.boxSum(radius: radius) }
    colourMatte = weighted.map { $0.joined(with: sure, *).boxSum(radius: radius) }
    products = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)].map { pair in
      weighted[pair.0].joined(with: colours[pair.1], *).boxSum(radius: radius)
    }
  }

  struct Fit {
    var slope: SIMD3<Float>
    var offset: Float
    /// The share of the matte's variance that the line explains, 0…1.
    var explained: Float
  }

  /// Ridge regression of the matte on colour: (Σ + noise·1) slope = cov.
  func fit(at index: Int, noise: Float) -> Fit {
    let total = max(weight.values[index], 1e-8)
    let meanMatte = matte.values[index] / total
    let mean = SIMD3(colour[0].values[index], colour[1].values[index], colour[2].values[index]) / total
    let joint = SIMD3(colourMatte[0].values[index], colourMatte[1].values[index], colourMatte[2].values[index])
    let covariance = joint / total - mean * meanMatte
    func spread(_ product: Int, _ a: Int, _ b: Int) -> Float {
      products[product].values[index] / total - mean[a] * mean[b]
    }
    let (rr, rg, rb) = (spread(0, 0, 0) + noise, spread(1, 0, 1), spread(2, 0, 2))
    let (gg, gb, bb) = (spread(3, 1, 1) + noise, spread(4, 1, 2), spread(5, 2, 2) + noise)
    // The inverse of a symmetric matrix by its cofactors; noise keeps the determinant away from 0.
    let (c00, c01, c02) = (gg * bb - gb * gb, rb * gb - rg * bb, rg * gb - rb * gg)
    let (c11, c12, c22) = (rr * bb - rb * rb, rg * rb - rr * gb, rr * gg - rg * rg)
    let determinant = max(rr * c00 + rg * c01 + rb * c02, 1e-12)
    let slope =
      SIMD3(
        (SIMD3(c00, c01, c02) * covariance).sum(), (SIMD3(c01, c11, c12) * covariance).sum(),
        (SIMD3(c02, c12, c22) * covariance).sum()) / determinant
    let variance = max(mattes.values[index] / total - meanMatte * meanMatte, 0)
    let explained = min(max((slope * covariance).sum() / (variance + 1e-4), 0), 1)
    return Fit(slope: slope, offset: meanMatte - (slope * mean).sum(), explained: explained)
  }
}

/// A matte at the work size, to be drawn at full size.
struct RefinedMatte {
  enum Tone {
    case asIs
    /// Spread over black and white: what is within this margin of an end becomes that end.
    case spread(margin: Float)
  }

  let base: FloatPlane
  let tone: Tone
  var edges: Edges?

  static func spread(_ value: Float, _ margin: Float) -> Float {
    let width = max(1 - 2 * margin, 1e-3)
    return min(max((value - margin) / width, 0), 1)
  }

  /// Draws the matte at the picture's size.
  func draw(
    _ pixels: UnsafeBufferPointer<UInt8>, width: Int, height: Int, into out: UnsafeMutableBufferPointer<UInt8>
  ) {
    // Spread levels of a map about as fine as the picture pass from black to white within a pixel: drawn at its centre
    // alone, edges would have steps.
    guard edges == nil, case .spread = tone, width < 2 * base.width, height < 2 * base.height else {
      return render(pixels, width: width, height: height, into: out)
    }
    let finer = 3
    // Some rows at a time, so that the finer picture is never held whole.
    let band = 32
    withUnsafeTemporaryAllocation(of: UInt8.self, capacity: width * finer * band * finer) { fine in
      for top in stride(from: 0, to: height, by: band) {
        let rows = top..<min(top + band, height)
        render(
          pixels, width: width * finer, height: height * finer, rows: rows.lowerBound * finer..<rows.upperBound * finer,
          into: fine)
        for y in rows {
          for x in 0..<width {
            var sum = 0
            for row in 0..<finer {
              let start = ((y - top) * finer + row) * width * finer + x * finer
              for part in start..<start + finer { sum += Int(fine[part]) }
            }
            out[y * width + x] = UInt8((sum + finer * finer / 2) / (finer * finer))
          }
        }
      }
    }
  }

  /// Draws some rows of the matte. The base is interpolated cubically (Catmull–Rom), so that contours have no
  /// kinks where its cells meet; lines are interpolated linearly.
  ///
  /// A row is drawn in runs of pixels that lie between the same cells. Most runs are black or white whatever the weights,
  /// which four cells tell for all of their pixels.
  private func render(
    _ pixels: UnsafeBufferPointer<UInt8>, width: Int, height: Int, rows drawn: Range<Int>? = nil,
    into out: UnsafeMutableBufferPointer<UInt8>
  ) {
    let drawn = drawn ?? 0..<height
    // Without edges there is one cell, of no share.
    let share = edges?.share ?? FloatPlane(width: 1, height: 1)
    let across = (0..<width).map { CubicTap($0, from: base.width, to: width) }
    let edgeAcross = (0..<width).map { LinearTap($0, from: share.width, to: width) }
    let runs = Run.along(across, edgeAcross)
    let (ramp, edgeRamp) = (Ramp(tone), Ramp.edges)
    withUnsafeTemporaryAllocation(of: Float.self, capacity: base.width + share.width) { rows in
      let baseRow = UnsafeMutableBufferPointer(rebasing: rows[..<base.width])
      let shareRow = UnsafeMutableBufferPointer(rebasing: rows[base.width...])
      (edges?.lines ?? []).withUnsafeBufferPointer { lines in
        for y in drawn {
          let down = LinearTap(y, from: share.height, to: height)
          base.sample(CubicTap(y, from: base.height, to: height), into: baseRow)
          share.sample(down, into: shareRow)
          func line(_ column: Int) -> SIMD4<Float> {
            down.value(lines[down.low * share.width + column], lines[down.high * share.width + column])
          }
          let start = (y - drawn.lowerBound) * width
          let row = UnsafeMutableBufferPointer(rebasing: out[start..<start + width])
          for run in runs {
            let cells = SIMD4(
              baseRow[run.cells.0], baseRow[run.cells.1], baseRow[run.cells.2], baseRow[run.cells.3])
            let (left, right) = (shareRow[run.left], shareRow[run.right])
            guard left > 0 || right > 0 else {
              if let level = ramp.level(of: cells) {
                UnsafeMutableBufferPointer(rebasing: row[run.pixels]).update(repeating: level)
              } else {
                for x in run.pixels { row[x] = UInt8(ramp.value(across[x].value(cells)) * 255 + 0.5) }
              }
              continue
            }
            let (leftLine, rightLine) = (line(run.left), line(run.right))
            for x in run.pixels {
              let at = (y &* width &+ x) &* 3
              let tap = edgeAcross[x]
              let colour = SIMD4(Float(pixels[at]), Float(pixels[at &+ 1]), Float(pixels[at &+ 2]), 0)
              let fit = tap.value(leftLine, rightLine)
              let terms = fit * colour * (1 / 255)
              let onLine = edgeRamp.value(fit.w + terms.x + terms.y + terms.z)
              let result = ramp.value(across[x].value(cells))
              row[x] = UInt8((result + (onLine - result) * (left + (right - left) * tap.share)) * 255 + 0.5)
            }
          }
        }
      }
    }
  }

  /// What spreads values over black and white.
  private struct Ramp {
    private let margin: Float
    /// A multiplication a pixel instead of a division.
    private let scale: Float
    /// Up to and from which a value is black or white in 8 bits, with something to spare for rounding.
    private let black: Float
    private let white: Float

    static var edges: Ramp { Ramp(margin: Edges.lineMargin) }

    init(_ tone: Tone) {
      switch tone {
      case .asIs: self.init(margin: 0)
      case .spread(let margin): self.init(margin: margin)
      }
    }

    private init(margin: Float) {
      let width = max(1 - 2 * margin, 1e-3)
      (self.margin, scale) = (margin, 1 / width)
      (black, white) = (margin + 0.0015 * width, margin + 0.9985 * width)
    }

    @inline(__always)
    func value(_ value: Float) -> Float { min(max((value - margin) * scale, 0), 1) }

    /// The level of everything that can lie between four cells, if it is black or white.
    ///
    /// Of Catmull–Rom's weights those below 0 come to −1/8 at most, and the others to 9/8.
    @inline(__always)
    func level(of cells: SIMD4<Float>) -> UInt8? {
      let least = min(min(cells.x, cells.y), min(cells.z, cells.w))
      let most = max(max(cells.x, cells.y), max(cells.z, cells.w))
      if max(most, 0) * 1.125 - min(least, 0) * 0.125 <= black { return 0 }
      if 1 - (max(1 - least, 0) * 1.125 - min(1 - most, 0) * 0.125) >= white { return 255 }
      return nil
    }
  }

  /// Pixels of a row that lie between the same cells.
  private struct Run {
    let pixels: Range<Int>
    /// Those of the base.
    let cells: (Int, Int, Int, Int)
    /// Those of the lines.
    let left: Int
    let right: Int

    static func along(_ across: [CubicTap], _ edges: [LinearTap]) -> [Run] {
      var runs: [Run] = []
      var start = 0
      for x in 1...across.count
      where x == across.count || across[x].cells != across[start].cells || edges[x].low != edges[start].low
        || edges[x].high != edges[start].high
      {
        runs.append(
          Run(pixels: start..<x, cells: across[start].cells, left: edges[start].low, right: edges[start].high))
        start = x
      }
      return runs
    }
  }
}

extension FloatPlane {
  /// A row between four rows.
  fileprivate func sample(_ tap: CubicTap, into row: UnsafeMutableBufferPointer<Float>) {
    let (a, b, c, d) = (tap.cells.0 * width, tap.cells.1 * width, tap.cells.2 * width, tap.cells.3 * width)
    let weights = tap.weights
    values.withUnsafeBufferPointer { values in
      for x in 0..<width {
        row[x] =
          values[a + x] * weights[0] + values[b + x] * weights[1] + values[c + x] * weights[2]
          + values[d + x] * weights[3]
      }
    }
  }

  /// A row between two rows.
  fileprivate func sample(_ tap: LinearTap, into row: UnsafeMutableBufferPointer<Float>) {
    let (low, high) = (tap.low * width, tap.high * width)
    values.withUnsafeBufferPointer { values in
      for x in 0..<width { row[x] = values[low + x] + (values[high + x] - values[low + x]) * tap.share }
    }
  }
}

/// Where a sample of a longer side lies between two of a shorter one.
private struct LinearTap {
  let low: Int
  let high: Int
  let share: Float

  init(_ sample: Int, from size: Int, to newSize: Int) {
    let place = (Double(sample) + 0.5) * Double(size) / Double(newSize) - 0.5
    let below = place.rounded(.down)
    low = min(max(Int(below), 0), size - 1)
    high = min(max(Int(below) + 1, 0), size - 1)
    share = Float(place - below)
  }

  @inline(__always)
  func value(_ low: SIMD4<Float>, _ high: SIMD4<Float>) -> SIMD4<Float> { low + (high - low) * share }
}

/// The four samples around a place, and their Catmull–Rom weights.
private struct CubicTap {
  let cells: (Int, Int, Int, Int)
  let weights: SIMD4<Float>

  init(_ sample: Int, from size: Int, to newSize: Int) {
    let place = (Double(sample) + 0.5) * Double(size) / Double(newSize) - 0.5
    let below = place.rounded(.down)
    let t = Float(place - below)
    func at(_ offset: Int) -> Int { min(max(Int(below) + offset, 0), size - 1) }
    cells = (at(-1), at(0), at(1), at(2))
    let (t2, t3) = (t * t, t * t * t)
    weights = SIMD4(
      -0.5 * t + t2 - 0.5 * t3, 1 - 2.5 * t2 + 1.5 * t3, 0.5 * t + 2 * t2 - 1.5 * t3, -0.5 * t2 + 0.5 * t3)
  }

  @inline(__always)
  func value(_ cells: SIMD4<Float>) -> Float {
    // From the left, as a sum in pairs rounds otherwise.
    let terms = cells * weights
    return terms.x + terms.y + terms.z + terms.w
  }
}
