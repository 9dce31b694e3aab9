import Glibc

/// What a model says about a picture, at the model's size.
public enum MaskMap: Sendable, Hashable {
  /// One value a pixel in 0…1, row by row; `peak` is the largest value before it was spread over 0…1, which is what
  /// tells a sure model from an unsure one.
  case map(values: [Float], peak: Float)
  /// The map is flat, or stays below what the recipe counts as a subject: nothing was found.
  case nothingFound(peak: Float)
}

extension ModelRecipe {
  /// Maps that differ by less than this are flat: spreading them over 0…1 would show only rounding.
  private static let flat: Float = 1e-6

  /// The mask map in a model's raw output.
  ///
  /// Throws `failed` when the output holds values that are not numbers, and `modelInvalid` when its size is not the
  /// recipe's.
  ///
  /// - Parameter output: what `InferencePool.map(of:)` gave, `outputCount` values.
  public func maskMap(of output: [Float]) throws(InferenceError) -> MaskMap {
    guard output.count == outputCount else {
      throw InferenceError(
        .modelInvalid, "model \(name) gave \(output.count) values where its recipe says \(outputCount)")
    }
    var values = subjectValues(of: output)
    var low = Float.infinity
    var high = -Float.infinity
    var sum: Float = 0
    for value in values {
      low = min(low, value)
      high = max(high, value)
      sum += value * 0
    }
    // 0 × infinity and 0 × NaN are NaN, and min and max lose NaN.
    guard sum == 0, !values.isEmpty else {
      throw InferenceError(.failed, "model \(name) gave values that are not numbers")
    }
    if high < emptyBelow { return .nothingFound(peak: high) }
    switch normalisation {
    case .none:
      if high <= 0 { return .nothingFound(peak: high) }
      for index in values.indices { values[index] = min(max(values[index], 0), 1) }
    case .minimumToMaximum:
      let range = high - low
      if range < Self.flat { return .nothingFound(peak: high) }
      for index in values.indices { values[index] = (values[index] - low) / range }
    }
    return .map(values: values, peak: high)
  }

  /// The chosen channel, with the activation applied.
  private func subjectValues(of output: [Float]) -> [Float] {
    let pixels = width * height
    let channels = self.output.channels
    let planar = self.output.layout == .nchw
    let chosen: Int
    let complement: Bool
    switch self.output.subject {
    case .channel(let channel): (chosen, complement) = (channel, false)
    case .allBut(let channel): (chosen, complement) = (channel, true)
    }
    precondition((0..<channels).contains(chosen), "channel \(chosen) of \(channels)")
    // From one pixel to the next, and from one channel to the next.
    let step = planar ? 1 : channels
    let stride = planar ? pixels : 1
    return output.withUnsafeBufferPointer { source in
      [Float](unsafeUninitializedCapacity: pixels) { values, count in
        for pixel in 0..<pixels {
          let first = pixel * step
          var value = source[first + chosen * stride]
          switch activation {
          case .none: break
          case .sigmoid: value = 1 / (1 + expf(-value))
          case .softmax:
            var top = source[first]
            for channel in 1..<max(channels, 1) { top = max(top, source[first + channel * stride]) }
            var total: Float = 0
            for channel in 0..<channels { total += expf(source[first + channel * stride] - top) }
            value = expf(value - top) / total
          }
          values[pixel] = complement ? 1 - value : value
        }
        count = pixels
      }
    }
  }
}

extension MaskMap {
  /// The map as 8-bit samples, cut (not rounded) as rembg does; nil when nothing was found.
  public var bytes: [UInt8]? {
    guard case .map(let values, _) = self else { return nil }
    return values.map { UInt8(min(max($0 * 255, 0), 255)) }
  }
}
