import CVips
import Glibc

/// How alike two pictures look: the structural similarity index.
///
/// Z. Wang, A. C. Bovik, H. R. Sheikh, E. P. Simoncelli, "Image quality assessment: from error visibility to structural
/// similarity", IEEE Transactions on Image Processing 13(4), 2004: a Gaussian window of 11×11 with σ 1.5, K1 0.01,
/// K2 0.03, range 255, the mean over all windows that lie within the picture.
public enum StructuralSimilarity {
  /// Up to here every window counts; larger pictures are looked at in bands of rows spread evenly over them, of
  /// together about this many pixels. Bands keep the scale, and with it what the index means; a smaller copy would not.
  /// On pictures of 24 megapixels the result was off by 0.0003 at most.
  static let wholeUpTo = 8_000_000
  static let bandRows = 16

  /// The mean index of two pictures, at most 1; 1 where they are the same.
  ///
  /// Compared is lightness as it is stored (0.299 R + 0.587 G + 0.114 B, Rec. ITU-R BT.601, gamma-encoded), so damage to
  /// colour alone is not seen. Transparent pictures are laid on mid-grey. A side of less than 11 pixels is filled up
  /// with its last pixel.
  /// - Throws: `geometry` where the sides differ; what reading the pixels throws.
  public static func mean(_ a: Image, _ b: Image) throws(ImagingError) -> Double {
    guard a.width == b.width, a.height == b.height else {
      throw ImagingError(
        .geometry,
        "pictures of \(a.width)×\(a.height) and \(b.width)×\(b.height) pixels cannot be compared")
    }
    let (first, second) = (try a.withDepth(8), try b.withDepth(8))
    let result = try first.withPixels { one in
      Result { () throws(ImagingError) in
        try second.withPixels { two in
          Comparison(
            Lightness(pixels: one, width: first.width, height: first.height, bands: first.bands),
            Lightness(pixels: two, width: second.width, height: second.height, bands: second.bands)
          ).mean()
        }
      }
    }
    return try result.get()
  }
}

/// Rows of a picture's lightness, 0…255.
private struct Lightness {
  let pixels: UnsafeRawBufferPointer
  let width: Int
  let height: Int
  let bands: Int

  /// Writes one row, filled up to `count` with its last value.
  func read(row: Int, into out: UnsafeMutablePointer<Float>, count: Int) {
    guard let base = pixels.assumingMemoryBound(to: UInt8.self).baseAddress else { return }
    let from = base + min(row, height - 1) * width * bands
    switch bands {
    case 1: for x in 0..<width { out[x] = Float(from[x]) }
    case 2: for x in 0..<width { out[x] = Self.onGrey(Float(from[2 &* x]), from[2 &* x &+ 1]) }
    case 3:
      for x in 0..<width {
        let p = from + 3 &* x
        out[x] = 0.299 * Float(p[0]) + 0.587 * Float(p[1]) + 0.114 * Float(p[2])
      }
    default:
      for x in 0..<width {
        let p = from + 4 &* x
        out[x] = Self.onGrey(0.299 * Float(p[0]) + 0.587 * Float(p[1]) + 0.114 * Float(p[2]), p[3])
      }
    }
    if count > width { for x in width..<count { out[x] = out[width - 1] } }
  }

  private static func onGrey(_ value: Float, _ alpha: UInt8) -> Float {
    (value * Float(alpha) + 128 * Float(255 - alpha)) / 255
  }
}

private struct Comparison {
  private static let taps = 11
  let a: Lightness
  let b: Lightness
  /// Pixels of a row, filled up where there are fewer than a window has.
  let width: Int
  /// Windows in a row and in a column.
  let columns: Int
  let rows: Int
  /// The window's middle weight, and the five to its side.
  let weights: (Float, Float, Float, Float, Float, Float)

  init(_ a: Lightness, _ b: Lightness) {
    self.a = a
    self.b = b
    width = max(a.width, Self.taps)
    columns = width - Self.taps + 1
    rows = max(a.height, Self.taps) - Self.taps + 1
    let raw = (0...5).map { exp(-Double($0 * $0) / (2 * 1.5 * 1.5)) }
    let sum = raw[0] + 2 * raw[1...].reduce(0, +)
    let w = raw.map { Float($0 / sum) }
    weights = (w[0], w[1], w[2], w[3], w[4], w[5])
  }

  func mean() -> Double {
    let limit = StructuralSimilarity.wholeUpTo
    let band = StructuralSimilarity.bandRows
    let count = max(2, limit / (band * width))
    guard width * rows > limit, count * band < rows else { return sum(from: 0, count: rows) / Double(rows * columns) }
    var total = 0.0
    for index in 0..<count { total += sum(from: index * (rows - band) / (count - 1), count: band) }
    return total / Double(count * band * columns)
  }

  /// The sum of the index over rows of windows.
  ///
  /// The window is separable: rows are weighted across first, and of the last eleven such rows each result is weighted
  /// down. Of the squares only their sum is needed: the index has σa² + σb², not each.
  private func sum(from first: Int, count: Int) -> Double {
    let taps = Self.taps
    let ringRow = 4 * columns
    return withUnsafeTemporaryAllocation(of: Float.self, capacity: 4 * width + taps * ringRow + columns) { memory in
      guard let base = memory.baseAddress else { return 0 }
      let (x, y, squares, product) = (base, base + width, base + 2 * width, base + 3 * width)
      let ring = base + 4 * width
      let values = ring + taps * ringRow
      var total = 0.0
      for row in 0..<count + taps - 1 {
        a.read(row: first + row, into: x, count: width)
        b.read(row: first + row, into: y, count: width)
        for i in 0..<width {
          squares[i] = x[i] * x[i] + y[i] * y[i]
          product[i] = x[i] * y[i]
        }
        let into = ring + row % taps * ringRow
        across(x, into)
        across(y, into + columns)
        across(squares, into + 2 * columns)
        across(product, into + 3 * columns)
        guard row >= taps - 1 else { continue }
        down(ring, oldest: (row + 1) % taps, values)
        for i in 0..<columns { total += Double(values[i]) }
      }
      return total
    }
  }

  private func across(_ from: UnsafeMutablePointer<Float>, _ to: UnsafeMutablePointer<Float>) {
    let (w0, w1, w2, w3, w4, w5) = weights
    for i in 0..<columns {
      let p = from + i
      let inner = w0 * p[5] + w1 * (p[4] + p[6]) + w2 * (p[3] + p[7])
      to[i] = inner + w3 * (p[2] + p[8]) + w4 * (p[1] + p[9]) + w5 * (p[0] + p[10])
    }
  }

  private func down(_ ring: UnsafeMutablePointer<Float>, oldest: Int, _ out: UnsafeMutablePointer<Float>) {
    let (w0, w1, w2, w3, w4, w5) = weights
    let size = 4 * columns
    func row(_ k: Int) -> UnsafeMutablePointer<Float> { ring + (oldest + k) % Self.taps * size }
    let (r0, r1, r2, r3, r4, r5) = (row(0), row(1), row(2), row(3), row(4), row(5))
    let (r6, r7, r8, r9, r10) = (row(6), row(7), row(8), row(9), row(10))
    @inline(__always) func weighted(_ i: Int) -> Float {
      let inner = w0 * r5[i] + w1 * (r4[i] + r6[i]) + w2 * (r3[i] + r7[i])
      return inner + w3 * (r2[i] + r8[i]) + w4 * (r1[i] + r9[i]) + w5 * (r0[i] + r10[i])
    }
    let c1: Float = 0.01 * 255 * 0.01 * 255
    let c2: Float = 0.03 * 255 * 0.03 * 255
    for i in 0..<columns {
      let ma = weighted(i)
      let mb = weighted(i &+ columns)
      let meanProduct = ma * mb
      let meanSquares = ma * ma + mb * mb
      let variances = weighted(i &+ 2 &* columns) - meanSquares
      let covariance = weighted(i &+ 3 &* columns) - meanProduct
      out[i] = (2 * meanProduct + c1) * (2 * covariance + c2) / ((meanSquares + c1) * (variances + c2))
    }
  }
}
