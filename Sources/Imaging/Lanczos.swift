import Glibc

/// Resampling of 8-bit samples with a Lanczos kernel of three lobes, the way Pillow's `LANCZOS` does it.
///
/// Segmentation models were trained and are compared on pictures resized that way, and a few levels at the input move
/// a mask's edge. libvips' own resize differs where a side grows (it interpolates bicubically there), at the borders
/// (it repeats the edge pixel; here the weights of the pixels that exist are made to sum to 1) and in its precision.
///
/// For each output sample the kernel is centred on the sample's middle in the source and widened by the ratio of the
/// sides where the picture shrinks. First the columns are resampled, then the rows, with rounding to 8 bits in between.
/// That order is part of the result: what overshoots an edge in one direction is cut before the other sees it, and
/// starting with the rows differs by up to 16 levels on photographs.
public enum LanczosResampler {
  /// The kernel, for the few models that were trained on pictures resized by another one.
  public enum Filter: String, Sendable, Hashable, CaseIterable {
    case lanczos
    /// A triangle as wide as the ratio of the sides, at least one pixel to each side.
    case bilinear
    /// The mean over the area that an output pixel covers, as OpenCV's `INTER_AREA` has it where a picture shrinks;
    /// where it grows, `bilinear`, as there.
    case area
  }

  /// The picture resized to `toWidth` × `toHeight`, whatever that does to its aspect.
  ///
  /// Bands are resampled independently: premultiply colours by alpha first where there is alpha.
  ///
  /// - Parameters:
  ///   - bytes: `width` × `height` pixels of `bands` interleaved samples.
  ///   - width, height, toWidth, toHeight: pixels, at least 1.
  public static func resize(
    _ bytes: UnsafeBufferPointer<UInt8>, width: Int, height: Int, bands: Int, toWidth: Int, toHeight: Int,
    filter: Filter = .lanczos
  ) -> [UInt8] {
    precondition(width > 0 && height > 0 && toWidth > 0 && toHeight > 0 && bands > 0, "sides and bands of at least 1")
    precondition(bytes.count == width * height * bands, "\(width)×\(height) pixels of \(bands) bands")
    let columns = width == toWidth ? nil : Weights(from: width, to: toWidth, filter)
    let rows = height == toHeight ? nil : Weights(from: height, to: toHeight, filter)
    switch (columns, rows) {
    case (nil, nil): return Array(bytes)
    case (let columns?, nil): return resizeColumns(bytes, columns, width: width, height: height, bands: bands)
    case (nil, let rows?): return resizeRows(bytes, rows, rowLength: width * bands)
    case (let columns?, let rows?):
      let between = resizeColumns(bytes, columns, width: width, height: height, bands: bands)
      return between.withUnsafeBufferPointer { resizeRows($0, rows, rowLength: toWidth * bands) }
    }
  }

  /// The same, on an array.
  public static func resize(
    _ bytes: [UInt8], width: Int, height: Int, bands: Int, toWidth: Int, toHeight: Int
  ) -> [UInt8] {
    bytes.withUnsafeBufferPointer {
      resize($0, width: width, height: height, bands: bands, toWidth: toWidth, toHeight: toHeight)
    }
  }

  /// Which source samples make each output sample along one side, and by how much.
  private struct Weights {
    /// The first source sample of each output sample.
    var first: [Int] = []
    /// How many source samples each output sample has.
    var count: [Int] = []
    /// The weights of output sample `n` start at `n * stride`; those beyond its count are 0.
    var values: [Float] = []
    /// A multiple of 4, for loops of four.
    let stride: Int

    init(from size: Int, to newSize: Int, _ filter: Filter) {
      let scale = Double(size) / Double(newSize)
      let widening = max(scale, 1)
      let isArea = filter == .area && scale > 1
      let reach =
        switch filter {
        case .lanczos: 3 * widening
        // A pixel counts by how much of it is covered, so one that is barely touched has to be among them.
        case .area where isArea: scale / 2 + 0.5
        case .bilinear, .area: widening
        }
      stride = (Int(reach.rounded(.up)) * 2 + 1 + 3) & ~3
      values = [Float](repeating: 0, count: newSize * stride)
      first.reserveCapacity(newSize)
      count.reserveCapacity(newSize)
      var exact = [Double](repeating: 0, count: stride)
      for sample in 0..<newSize {
        let centre = (Double(sample) + 0.5) * scale
        let start = max(Int(centre - reach + 0.5), 0)
        let end = min(Int(centre + reach + 0.5), size)
        var sum = 0.0
        for source in start..<end {
          let offset = Double(source) + 0.5 - centre
          let weight =
            if isArea {
              max(0, min(offset + 0.5, scale / 2) - max(offset - 0.5, -scale / 2))
            } else if filter == .lanczos {
              Self.kernel(offset / widening)
            } else {
              max(0, 1 - abs(offset / widening))
            }
          exact[source - start] = weight
          sum += weight
        }
        for tap in 0..<(end - start) { values[sample * stride + tap] = Float(exact[tap] / sum) }
        first.append(start)
        count.append(end - start)
      }
    }

    /// sinc(x) · sinc(x / 3) within three of the centre.
    private static func kernel(_ x: Double) -> Double {
      if x == 0 { return 1 }
      guard abs(x) < 3 else { return 0 }
      let angle = x * .pi
      return sin(angle) / angle * sin(angle / 3) / (angle / 3)
    }
  }

  @inline(__always)
  private static func sample(_ value: Float) -> UInt8 {
    // Halves are rounded up, as in fixed-point arithmetic.
    UInt8(min(max(value + 0.5, 0), 255))
  }

  private static func resizeRows(
    _ bytes: UnsafeBufferPointer<UInt8>, _ rows: Weights, rowLength: Int
  ) -> [UInt8] {
    // Sums for so many samples at a time stay in the first-level cache.
    let block = min(rowLength, 2_048)
    let newHeight = rows.first.count
    return [UInt8](unsafeUninitializedCapacity: newHeight * rowLength) { result, count in
      count = newHeight * rowLength
      guard let target = result.baseAddress, let source = bytes.baseAddress else { return }
      withUnsafeTemporaryAllocation(of: Float.self, capacity: block) { sums in
        guard let sums = sums.baseAddress else { return }
        rows.values.withUnsafeBufferPointer { values in
          guard let values = values.baseAddress else { return }
          for row in 0..<newHeight {
            let first = source + rows.first[row] * rowLength
            let taps = rows.count[row]
            let weights = values + row * rows.stride
            var start = 0
            while start < rowLength {
              let length = min(block, rowLength - start)
              addRows(sums, length, first + start, rowLength, weights, taps)
              let line = target + row * rowLength + start
              for index in 0..<length { line[index] = sample(sums[index]) }
              start += length
            }
          }
        }
      }
    }
  }

  /// The weighted sum of `taps` rows, four at a time so that the sums are read and written less often.
  @inline(__always)
  private static func addRows(
    _ sums: UnsafeMutablePointer<Float>, _ length: Int, _ first: UnsafePointer<UInt8>, _ rowLength: Int,
    _ weights: UnsafePointer<Float>, _ taps: Int
  ) {
    for index in 0..<length { sums[index] = 0 }
    var tap = 0
    while tap + 4 <= taps {
      let (a, b, c, d) = (weights[tap], weights[tap + 1], weights[tap + 2], weights[tap + 3])
      let rowA = first + tap * rowLength
      let rowB = rowA + rowLength
      let rowC = rowB + rowLength
      let rowD = rowC + rowLength
      for index in 0..<length {
        let ab = a * Float(rowA[index]) + b * Float(rowB[index])
        let cd = c * Float(rowC[index]) + d * Float(rowD[index])
        sums[index] += ab + cd
      }
      tap += 4
    }
    while tap < taps {
      let weight = weights[tap]
      let row = first + tap * rowLength
      for index in 0..<length { sums[index] += weight * Float(row[index]) }
      tap += 1
    }
  }

  private static func resizeColumns(
    _ bytes: UnsafeBufferPointer<UInt8>, _ columns: Weights, width: Int, height: Int, bands: Int
  ) -> [UInt8] {
    let newWidth = columns.first.count
    let rowLength = width * bands
    return [UInt8](unsafeUninitializedCapacity: newWidth * height * bands) { result, count in
      count = newWidth * height * bands
      guard let target = result.baseAddress, let source = bytes.baseAddress else { return }
      // Each row as floats, converted once; the loops below may read up to one stride beyond its end.
      withUnsafeTemporaryAllocation(of: Float.self, capacity: rowLength + columns.stride * max(bands, 4)) { floats in
        guard let row = floats.baseAddress else { return }
        floats.initialize(repeating: 0)
        columns.values.withUnsafeBufferPointer { values in
          guard let values = values.baseAddress else { return }
          for y in 0..<height {
            let line = source + y * rowLength
            for index in 0..<rowLength { row[index] = Float(line[index]) }
            let out = target + y * newWidth * bands
            for x in 0..<newWidth {
              let weights = values + x * columns.stride
              let first = row + columns.first[x] * bands
              let taps = columns.count[x]
              switch bands {
              case 1: out[x] = sample(dot(first, weights, taps))
              case 3, 4:
                let sum = pixel(first, weights, taps, bands)
                for band in 0..<bands { out[x * bands + band] = sample(sum[band]) }
              default:
                for band in 0..<bands {
                  var sum: Float = 0
                  for tap in 0..<taps { sum += weights[tap] * first[tap * bands + band] }
                  out[x * bands + band] = sample(sum)
                }
              }
            }
          }
        }
      }
    }
  }

  /// The weighted sum of samples side by side; weights beyond `taps` are 0 up to a multiple of four.
  @inline(__always)
  private static func dot(_ samples: UnsafePointer<Float>, _ weights: UnsafePointer<Float>, _ taps: Int) -> Float {
    let from = UnsafeRawPointer(samples)
    let by = UnsafeRawPointer(weights)
    var sum = SIMD4<Float>.zero
    var tap = 0
    while tap < taps {
      let offset = tap * MemoryLayout<Float>.stride
      sum +=
        from.loadUnaligned(fromByteOffset: offset, as: SIMD4<Float>.self)
        * by.loadUnaligned(fromByteOffset: offset, as: SIMD4<Float>.self)
      tap += 4
    }
    return sum.sum()
  }

  /// The weighted sum of pixels of three or four samples; the fourth of three belongs to the next pixel and is ignored.
  @inline(__always)
  private static func pixel(
    _ samples: UnsafePointer<Float>, _ weights: UnsafePointer<Float>, _ taps: Int, _ bands: Int
  ) -> SIMD4<Float> {
    let from = UnsafeRawPointer(samples)
    let step = bands * MemoryLayout<Float>.stride
    var sum = SIMD4<Float>.zero
    for tap in 0..<taps {
      sum += weights[tap] * from.loadUnaligned(fromByteOffset: tap * step, as: SIMD4<Float>.self)
    }
    return sum
  }
}
