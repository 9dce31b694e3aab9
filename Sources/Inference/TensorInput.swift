extension ModelRecipe {
  /// The model's input for a picture of the model's size.
  ///
  /// - Parameter rgb: `width` × `height` pixels, interleaved, 8 bits; with a size rule, pixels of any such size.
  public func input(of rgb: [UInt8]) -> [Float] {
    precondition(sizeRule != nil || rgb.count == inputCount, "a picture of \(width)×\(height) RGB")
    return [Float](unsafeUninitializedCapacity: rgb.count) { buffer, count in
      rgb.withUnsafeBufferPointer { fillInput(UnsafeMutableBufferPointer(rebasing: buffer[..<rgb.count]), from: $0) }
      count = rgb.count
    }
  }

  /// Writes the model's input for a picture of the model's size to `tensor`, every value of it.
  ///
  /// An 8-bit sample has 256 values, so each channel's arithmetic is done 256 times, in double precision as the
  /// reference does it, and looked up for the pixels.
  ///
  /// - Parameters:
  ///   - tensor: room for as many values as `rgb` has samples.
  ///   - rgb: the picture at the input's size, interleaved, 8 bits.
  func fillInput(_ tensor: UnsafeMutableBufferPointer<Float>, from rgb: UnsafeBufferPointer<UInt8>) {
    precondition(rgb.count == tensor.count && rgb.count % 3 == 0, "as many values as samples")
    precondition(mean.count == 3 && deviation.count == 3, "three channels")
    let divisor: Double
    switch scaling {
    case .fixed(let value): divisor = value
    case .maximum: divisor = max(Double(rgb.reduce(0) { max($0, $1) }), 1e-6)
    }
    let pixels = rgb.count / 3
    for channel in 0..<3 {
      let mean = mean[channel]
      let deviation = deviation[channel]
      let source = channelOrder == .rgb ? channel : 2 - channel
      withUnsafeTemporaryAllocation(of: Float.self, capacity: 256) { table in
        for sample in 0..<256 { table[sample] = Float((Double(sample) / divisor - mean) / deviation) }
        switch layout {
        case .nchw:
          let plane = UnsafeMutableBufferPointer(rebasing: tensor[channel * pixels..<(channel + 1) * pixels])
          for pixel in 0..<pixels { plane[pixel] = table[Int(rgb[pixel * 3 + source])] }
        case .nhwc:
          for pixel in 0..<pixels { tensor[pixel * 3 + channel] = table[Int(rgb[pixel * 3 + source])] }
        }
      }
    }
  }
}
