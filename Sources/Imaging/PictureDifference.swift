import Glibc

/// How different two pictures of one size look.
///
/// Both are averaged over cells of 4×4 pixels in linear light, laid on mid-grey where they are transparent, and the
/// colours of the cells are compared by CIEDE2000. What an encoder does at another quality is noise of high frequency,
/// which a cell evens out; a part that was moved, lost or coloured otherwise is still there. The worst window of 2×2
/// cells counts, so that a change of a few pixels is as sure to be found in a large picture as in a small one. What the
/// averages hide, lost detail all over the picture, shows in the structural similarity.
public struct PictureDifference: Sendable, Hashable {
  /// Mean CIEDE2000 over all cells.
  public var colour: Double
  /// CIEDE2000, mean over the worst window of 8×8 pixels.
  public var worstColour: Double
  /// The middle of that window, in pixels from the top left.
  public var worstX: Int
  public var worstY: Int
  /// Difference in opacity, mean over the window where it is largest; 0…100.
  public var worstAlpha: Double
  /// `StructuralSimilarity.mean`, at most 1.
  public var similarity: Double

  /// What a threshold is held against: the largest of colour and opacity in their worst windows and of the loss of
  /// structure, on one scale on which 1 is just seen by somebody who looks for it.
  public var amount: Double { max(worstColour, worstAlpha, (1 - similarity) * Self.structureScale) }

  /// A similarity of 0.9 counts as much as a difference of 4 in colour.
  static let structureScale = 40.0

  public static let cell = 4

  /// Compares two pictures.
  ///
  /// - Throws: `geometry` where the sides differ; what reading the pixels throws.
  public static func between(_ a: Image, _ b: Image) throws(ImagingError) -> PictureDifference {
    try compare(a, b).difference
  }

  /// Compares two pictures, and shows where they differ: the first in grey, a pixel for each cell, and over it the
  /// differences in red, full from 20 on.
  public static func compare(
    _ a: Image, _ b: Image
  ) throws(ImagingError) -> (difference: PictureDifference, map: Image) {
    guard a.width == b.width, a.height == b.height else {
      throw ImagingError(
        .geometry, "pictures of \(a.width)×\(a.height) and \(b.width)×\(b.height) pixels cannot be compared")
    }
    let (first, second) = (try a.withDepth(8), try b.withDepth(8))
    var cells = try first.withPixels { one in
      Result { () throws(ImagingError) in
        try second.withPixels { two in
          CellComparison(one, bands: first.bands, two, bands: second.bands, width: a.width, height: a.height)
        }
      }
    }.get()
    cells.difference.similarity = try StructuralSimilarity.mean(first, second)
    let map = try Image(width: cells.columns, height: cells.rows, bands: 3, bytes: cells.map)
    return (cells.difference, map)
  }
}

/// The work over all cells.
private struct CellComparison {
  let columns: Int
  let rows: Int
  var difference = PictureDifference(
    colour: 0, worstColour: 0, worstX: 0, worstY: 0, worstAlpha: 0, similarity: 1)
  /// Three bands.
  var map: [UInt8]

  /// Linear light of sRGB's levels, IEC 61966-2-1.
  private static let linear: [Float] = (0...255).map { level in
    let value = Double(level) / 255
    return Float(value <= 0.04045 ? value / 12.92 : pow((value + 0.055) / 1.055, 2.4))
  }

  init(
    _ a: UnsafeRawBufferPointer, bands bandsA: Int, _ b: UnsafeRawBufferPointer, bands bandsB: Int, width: Int,
    height: Int
  ) {
    let size = PictureDifference.cell
    columns = (width + size - 1) / size
    rows = (height + size - 1) / size
    map = [UInt8](repeating: 0, count: columns * rows * 3)
    var first = CellRow(columns)
    var second = CellRow(columns)
    // Of this row of cells and the one above it.
    var colour = [Float](repeating: 0, count: columns)
    var alpha = [Float](repeating: 0, count: columns)
    var (colourAbove, alphaAbove) = (colour, alpha)
    var sum = 0.0
    for row in 0..<rows {
      let top = row * size
      let count = min(size, height - top)
      first.read(a, bands: bandsA, width: width, top: top, rows: count, Self.linear)
      second.read(b, bands: bandsB, width: width, top: top, rows: count, Self.linear)
      swap(&colour, &colourAbove)
      swap(&alpha, &alphaAbove)
      for column in 0..<columns {
        let (one, two) = (first.lab(column), second.lab(column))
        let isSame = first.isSame(as: second, at: column)
        let delta = isSame ? 0 : one.difference(from: two)
        colour[column] = Float(delta)
        alpha[column] = abs(first.alpha[column] - second.alpha[column]) * 100
        sum += delta
        let grey = 60 + one.l * 1.2
        let red = min(1, max(delta, Double(alpha[column])) / 20)
        let at = (row * columns + column) * 3
        map[at] = UInt8(min(255, grey + (255 - grey) * red))
        map[at + 1] = UInt8(grey * (1 - red))
        map[at + 2] = map[at + 1]
      }
      // A window is as small as the picture where that is smaller.
      guard row > 0 || rows == 1 else { continue }
      for column in 0..<columns where column > 0 || columns == 1 {
        let left = max(0, column - 1)
        func mean(_ now: [Float], _ above: [Float]) -> Double {
          let lower = Double(now[left] + now[column]) / 2
          return rows == 1 ? lower : (lower + Double(above[left] + above[column]) / 2) / 2
        }
        let value = mean(colour, colourAbove)
        if value > difference.worstColour {
          difference.worstColour = value
          difference.worstX = min(width - 1, column * size)
          difference.worstY = min(height - 1, top)
        }
        difference.worstAlpha = max(difference.worstAlpha, mean(alpha, alphaAbove))
      }
    }
    difference.colour = sum / Double(columns * rows)
  }
}

/// One row of cells: means in linear light, laid on mid-grey.
private struct CellRow {
  private var red: [Float]
  private var green: [Float]
  private var blue: [Float]
  private(set) var alpha: [Float]
  private let columns: Int

  init(_ columns: Int) {
    self.columns = columns
    red = [Float](repeating: 0, count: columns)
    (green, blue, alpha) = (red, red, red)
  }

  mutating func read(
    _ pixels: UnsafeRawBufferPointer, bands: Int, width: Int, top: Int, rows: Int, _ linear: [Float]
  ) {
    let size = PictureDifference.cell
    linear.withUnsafeBufferPointer { linear in
      let grey = linear[128]
      for column in 0..<columns {
        let (from, to) = (column * size, min(width, column * size + size))
        var (r, g, b, opacity) = (Float(0), Float(0), Float(0), Float(0))
        for y in top..<top + rows {
          var at = (y * width + from) * bands
          for _ in from..<to {
            let isColour = bands >= 3
            let one = linear[Int(pixels[at])]
            let two = isColour ? linear[Int(pixels[at + 1])] : one
            let three = isColour ? linear[Int(pixels[at + 2])] : one
            if bands == 2 || bands == 4 {
              let share = Float(pixels[at + bands - 1]) / 255
              r += grey + (one - grey) * share
              g += grey + (two - grey) * share
              b += grey + (three - grey) * share
              opacity += share
            } else {
              r += one
              g += two
              b += three
              opacity += 1
            }
            at += bands
          }
        }
        let count = Float(rows * (to - from))
        red[column] = r / count
        green[column] = g / count
        blue[column] = b / count
        alpha[column] = opacity / count
      }
    }
  }

  func lab(_ column: Int) -> LabColour {
    LabColour(red: Double(red[column]), green: Double(green[column]), blue: Double(blue[column]))
  }

  func isSame(as other: CellRow, at column: Int) -> Bool {
    red[column] == other.red[column] && green[column] == other.green[column] && blue[column] == other.blue[column]
  }
}
