import Glibc

/// What a model says about a picture, at the model's size.
public enum MaskMap: Sendable, Hashable {
  /// One value a pixel in 0…1, row by row; `peak` is the largest value before it was spread over 0…1, which is what
  /// tells a sure model from an unsure one.
  case map(values: [Float], peak: Float)
  /// The map is flat, or stays below what the recipe counts as a subject: nothing was found.
  case nothingFound(peak: Float)
}

/// A map with its size and what it shows.
public struct NamedMaskMap: Sendable, Hashable {
  /// The class as the model's labels spell it; nil for all that was asked for together.
  public var name: String?
  /// Pixels.
  public var width: Int
  public var height: Int
  public var map: MaskMap

  public init(name: String?, width: Int, height: Int, map: MaskMap) {
    self.name = name
    self.width = width
    self.height = height
    self.map = map
  }
}

extension ModelRecipe {
  /// Maps that differ by less than this are flat: spreading them over 0…1 would show only rounding.
  private static let flat: Float = 1e-6

  /// The mask map in a model's raw output, for an input of the recipe's own size.
  ///
  /// Throws `failed` when the output holds values that are not numbers, and `modelInvalid` when its size is not the
  /// recipe's.
  ///
  /// - Parameter output: what `InferencePool.map(of:)` gave, `outputCount` values.
  public func maskMap(of output: [Float]) throws(InferenceError) -> MaskMap {
    let size = outputSize(forInputWidth: width, height: height)
    return try maskMap(of: output, width: size.width, height: size.height)
  }

  /// The maps in a model's raw output: first everything that was asked for together, without a name; where classes were
  /// asked for, then each of them by itself, in the order of the labels.
  ///
  /// Values are soft, 0…1 at the output's size, so that what is upsampled are scores and not decisions. The value of
  /// several exclusive classes is the sum of theirs; of classes that are not exclusive (`sigmoid`), the largest.
  ///
  /// Throws `failed` when the output holds values that are not numbers, `modelInvalid` when its size is not the
  /// recipe's, or when a class is none of the model's.
  ///
  /// - Parameters:
  ///   - output: what `InferencePool.map(of:width:height:)` gave.
  ///   - width, height: the output's size in pixels; nil for that of the recipe's own input size.
  ///   - classes: labels or aliases of them; `*` means all but the background. nil for what the recipe calls the
  ///     subject.
  public func maskMaps(
    of output: [Float], width: Int? = nil, height: Int? = nil, classes: [String]? = nil
  ) throws(InferenceError) -> [NamedMaskMap] {
    let own = outputSize(forInputWidth: self.width, height: self.height)
    let (width, height) = (width ?? own.width, height ?? own.height)
    guard let classes else {
      return [
        NamedMaskMap(
          name: nil, width: width, height: height, map: try maskMap(of: output, width: width, height: height))
      ]
    }
    let chosen = try channels(of: classes)
    try check(output, width, height)
    var planes = [[Float]](repeating: [], count: chosen.count)
    let union = withClassValues(of: output, pixels: width * height, chosen) { planes[$0] = $1 }
    var maps = [NamedMaskMap(name: nil, width: width, height: height, map: try spread(union))]
    for (place, channel) in chosen.enumerated() {
      maps.append(
        NamedMaskMap(
          name: self.output.labels[channel], width: width, height: height, map: try spread(planes[place])))
    }
    return maps
  }

  /// The channels of classes by name, in the order of the labels, each once.
  ///
  /// Throws `modelInvalid`, with the nearest name as hint, for a class that the model does not know.
  public func channels(of classes: [String]) throws(InferenceError) -> [Int] {
    let labels = output.labels
    guard !labels.isEmpty else {
      throw InferenceError(
        .modelInvalid, "model \(name) finds one subject and knows no classes",
        hint: "leave \"classes\" out, or give \"output.labels\" in the model's recipe")
    }
    var chosen: Set<Int> = []
    for name in classes {
      if name == "*" {
        chosen.formUnion(labels.indices.filter { !isBackground($0) })
      } else if let index = ClassNames.index(of: name, in: labels) {
        chosen.insert(index)
      } else {
        let near = ClassNames.suggestion(for: name, among: labels)
        throw InferenceError(
          .modelInvalid, "model \(self.name) knows no class \"\(name)\"",
          hint: near.map { "did you mean \"\($0)\"?" } ?? "it knows: " + labels.joined(separator: ", "))
      }
    }
    return chosen.sorted()
  }

  private func isBackground(_ channel: Int) -> Bool {
    if case .allBut(channel) = output.subject { return true }
    return ClassNames.folded(output.labels[channel]) == "background"
  }

  private func maskMap(of output: [Float], width: Int, height: Int) throws(InferenceError) -> MaskMap {
    try check(output, width, height)
    return try spread(subjectValues(of: output, pixels: width * height))
  }

  private func check(_ output: [Float], _ width: Int, _ height: Int) throws(InferenceError) {
    let count = width * height * self.output.channels
    guard output.count == count, count > 0 else {
      throw InferenceError(
        .modelInvalid, "model \(name) gave \(output.count) values where its recipe says \(count)")
    }
  }

  private func spread(_ map: [Float]) throws(InferenceError) -> MaskMap {
    var values = map
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
  private func subjectValues(of output: [Float], pixels: Int) -> [Float] {
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

  /// The value of all chosen channels together for each pixel; `plane` gets each channel's own.
  private func withClassValues(
    of output: [Float], pixels: Int, _ chosen: [Int], plane: (_ place: Int, _ values: [Float]) -> Void
  ) -> [Float] {
    let channels = self.output.channels
    let planar = self.output.layout == .nchw
    let step = planar ? 1 : channels
    let stride = planar ? pixels : 1
    return output.withUnsafeBufferPointer { source in
      // The largest score of each pixel and one over the sum of its exponentials: needed by every class.
      var top: [Float] = []
      var share: [Float] = []
      if activation == .softmax {
        top = [Float](unsafeUninitializedCapacity: pixels) { top, count in
          for pixel in 0..<pixels { top[pixel] = source[pixel * step] }
          for channel in 1..<max(channels, 1) {
            for pixel in 0..<pixels { top[pixel] = max(top[pixel], source[pixel * step + channel * stride]) }
          }
          count = pixels
        }
        share = [Float](unsafeUninitializedCapacity: pixels) { share, count in
          for pixel in 0..<pixels {
            var total: Float = 0
            for channel in 0..<channels { total += expf(source[pixel * step + channel * stride] - top[pixel]) }
            share[pixel] = 1 / total
          }
          count = pixels
        }
      }
      var union = [Float](repeating: 0, count: pixels)
      for (place, channel) in chosen.enumerated() {
        let values = [Float](unsafeUninitializedCapacity: pixels) { values, count in
          for pixel in 0..<pixels {
            let value = source[pixel * step + channel * stride]
            values[pixel] =
              switch activation {
              case .none: value
              case .sigmoid: 1 / (1 + expf(-value))
              case .softmax: expf(value - top[pixel]) * share[pixel]
              }
          }
          count = pixels
        }
        if activation == .sigmoid {
          for pixel in 0..<pixels { union[pixel] = max(union[pixel], values[pixel]) }
        } else {
          for pixel in 0..<pixels { union[pixel] += values[pixel] }
        }
        plane(place, values)
      }
      return union
    }
  }
}

extension MaskMap {
  /// The map as 8-bit samples, cut (not rounded) as rembg does; nil when nothing was found.
  public var bytes: [UInt8]? {
    guard case .map(let values, _) = self else { return nil }
    return values.map { UInt8(min(max($0 * 255, 0), 255)) }
  }

  /// The largest value of the model's map before it was spread over 0…1.
  public var peak: Float {
    switch self {
    case .map(_, let peak), .nothingFound(let peak): peak
    }
  }
}
