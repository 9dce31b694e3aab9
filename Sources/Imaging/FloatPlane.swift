/// What a model says about a picture: shares of 1, row by row, stretched over the picture whatever its sides.
public struct MatteMap: Sendable, Hashable {
  public var width: Int
  public var height: Int
  /// `width` × `height` values in 0…1; 1 where the subject is.
  public var values: [Float]

  public init(width: Int, height: Int, values: [Float]) {
    precondition(width > 0 && height > 0 && values.count == width * height, "\(width)×\(height) values")
    self.width = width
    self.height = height
    self.values = values
  }
}

/// Rows of floats without padding: what the work on mattes is done in, at about a model's size.
struct FloatPlane: Sendable {
  let width: Int
  let height: Int
  var values: [Float]

  init(width: Int, height: Int, values: [Float]) {
    precondition(values.count == width * height, "\(width)×\(height) values")
    self.width = width
    self.height = height
    self.values = values
  }

  init(_ map: MatteMap) { self.init(width: map.width, height: map.height, values: map.values) }

  init(width: Int, height: Int, repeating value: Float = 0) {
    self.init(width: width, height: height, values: [Float](repeating: value, count: width * height))
  }

  /// Each value replaced.
  func mapped(_ change: (Float) -> Float) -> FloatPlane {
    var copy = self
    copy.values.withUnsafeMutableBufferPointer { values in
      for index in values.indices { values[index] = change(values[index]) }
    }
    return copy
  }

  /// Values of two planes of the same sides joined.
  func joined(with other: FloatPlane, _ join: (Float, Float) -> Float) -> FloatPlane {
    precondition(other.width == width && other.height == height, "planes of the same sides")
    var copy = self
    copy.values.withUnsafeMutableBufferPointer { values in
      other.values.withUnsafeBufferPointer { others in
        for index in values.indices { values[index] = join(values[index], others[index]) }
      }
    }
    return copy
  }

  /// Linear interpolation where a side grows, a triangle as wide as two output samples where it shrinks.
  func resized(width newWidth: Int, height newHeight: Int) -> FloatPlane {
    guard newWidth != width || newHeight != height else { return self }
    let columns = TriangleTaps(from: width, to: newWidth)
    let rows = TriangleTaps(from: height, to: newHeight)
    var between = FloatPlane(width: newWidth, height: height)
    values.withUnsafeBufferPointer { source in
      between.values.withUnsafeMutableBufferPointer { target in
        columns.forEach { x, first, weights in
          for y in 0..<height {
            var sum: Float = 0
            for (tap, weight) in weights.enumerated() { sum += source[y * width + first + tap] * weight }
            target[y * newWidth + x] = sum
          }
        }
      }
    }
    var result = FloatPlane(width: newWidth, height: newHeight)
    between.values.withUnsafeBufferPointer { source in
      result.values.withUnsafeMutableBufferPointer { target in
        rows.forEach { y, first, weights in
          for (tap, weight) in weights.enumerated() {
            let (from, to) = ((first + tap) * newWidth, y * newWidth)
            for x in 0..<newWidth { target[to + x] += source[from + x] * weight }
          }
        }
      }
    }
    return result
  }

  /// The sum over the square window of `2 * radius + 1` around each value, as far as it lies within the plane.
  func boxSum(radius: Int) -> FloatPlane {
    var result = FloatPlane(width: width, height: height)
    let (width, height) = (width, height)
    // Running sums lose digits in single precision where large values leave the window and small ones stay.
    var column = [Double](repeating: 0, count: width)
    values.withUnsafeBufferPointer { source in
      result.values.withUnsafeMutableBufferPointer { target in
        column.withUnsafeMutableBufferPointer { column in
          for y in 0..<min(radius, height) { for x in 0..<width { column[x] += Double(source[y * width + x]) } }
          for y in 0..<height {
            if y + radius < height {
              let enters = (y + radius) * width
              for x in 0..<width { column[x] += Double(source[enters + x]) }
            }
            if y - radius - 1 >= 0 {
              let leaves = (y - radius - 1) * width
              for x in 0..<width { column[x] -= Double(source[leaves + x]) }
            }
            var sum = 0.0
            for x in 0..<min(radius, width) { sum += column[x] }
            for x in 0..<width {
              if x + radius < width { sum += column[x + radius] }
              if x - radius - 1 >= 0 { sum -= column[x - radius - 1] }
              target[y * width + x] = Float(sum)
            }
          }
        }
      }
    }
    return result
  }

  /// The mean over the square window around each value, as far as it lies within the plane.
  func boxMean(radius: Int) -> FloatPlane {
    var result = boxSum(radius: radius)
    let (width, height) = (width, height)
    result.values.withUnsafeMutableBufferPointer { values in
      for y in 0..<height {
        let rows = min(y + radius, height - 1) - max(y - radius, 0) + 1
        for x in 0..<width {
          let columns = min(x + radius, width - 1) - max(x - radius, 0) + 1
          values[y * width + x] /= Float(rows * columns)
        }
      }
    }
    return result
  }

  /// The largest value in the square window around each value.
  func windowMaximum(radius: Int) -> FloatPlane { windowExtreme(radius: radius) { max($0, $1) } }

  /// The smallest value in the square window around each value.
  func windowMinimum(radius: Int) -> FloatPlane { windowExtreme(radius: radius) { min($0, $1) } }

  /// Row by row and offset by offset, which vectors do faster than a window of this size can be moved pixel by pixel.
  @inline(__always)
  private func windowExtreme(radius: Int, _ pick: (Float, Float) -> Float) -> FloatPlane {
    let (width, height) = (width, height)
    var between = self
    values.withUnsafeBufferPointer { source in
      between.values.withUnsafeMutableBufferPointer { target in
        for y in 0..<height {
          let row = y * width
          for offset in 0..<min(radius + 1, width) {
            for x in row..<row + width - offset { target[x] = pick(target[x], source[x + offset]) }
            for x in row + offset..<row + width { target[x] = pick(target[x], source[x - offset]) }
          }
        }
      }
    }
    var result = between
    between.values.withUnsafeBufferPointer { source in
      result.values.withUnsafeMutableBufferPointer { target in
        for y in 0..<height {
          let row = y * width
          for near in max(y - radius, 0)...min(y + radius, height - 1) {
            let other = near * width
            for x in 0..<width { target[row + x] = pick(target[row + x], source[other + x]) }
          }
        }
      }
    }
    return result
  }
}

/// Which samples make each output sample along one side, and by how much.
private struct TriangleTaps {
  private var first: [Int] = []
  /// Where the weights of each output sample begin, and where the last ones end.
  private var starts = [0]
  private var weights: [Float] = []

  init(from size: Int, to newSize: Int) {
    let scale = Double(size) / Double(newSize)
    let reach = max(scale, 1)
    for sample in 0..<newSize {
      let centre = (Double(sample) + 0.5) * scale - 0.5
      let low = max(Int((centre - reach).rounded(.up)), 0)
      let high = max(min(Int((centre + reach).rounded(.down)), size - 1), low)
      let raw = (low...high).map { max(1 - abs(Double($0) - centre) / reach, 1e-9) }
      let sum = raw.reduce(0, +)
      first.append(low)
      weights += raw.map { Float($0 / sum) }
      starts.append(weights.count)
    }
  }

  /// Calls `body` with each output sample, the first sample that counts for it, and the weights from there on.
  @inline(__always)
  func forEach(_ body: (_ sample: Int, _ first: Int, _ weights: UnsafeBufferPointer<Float>) -> Void) {
    weights.withUnsafeBufferPointer { weights in
      for (sample, low) in first.enumerated() {
        body(sample, low, UnsafeBufferPointer(rebasing: weights[starts[sample]..<starts[sample + 1]]))
      }
    }
  }
}
