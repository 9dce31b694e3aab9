extension Image {
  /// Whether there are at most `most` different colours, alpha counted, and where all are grey at most `greys`; looks at every pixel of such a picture, and stops
  /// at the first colour too many of any other.
  public func hasFewColours(_ most: Int, greys: Int = .max) throws(ImagingError) -> Bool {
    let size = bands * (depth / 8)
    return try withPixels { raw in
      var seen: Set<UInt64> = []
      var last: UInt64?
      for at in stride(from: 0, to: raw.count, by: size) {
        var value: UInt64 = 0
        for i in 0..<size { value = value << 8 | UInt64(raw[at + i]) }
        guard value != last else { continue }
        last = value
        if seen.insert(value).inserted, seen.count > most { return false }
      }
      guard seen.count > greys, bands >= 3 else { return seen.count <= greys }
      let (bits, mask) = (UInt64(depth), UInt64(1) << UInt64(depth) - 1)
      return seen.contains { value in
        let colour = bands == 4 ? value >> bits : value
        let green = colour >> bits & mask
        return colour & mask != green || colour >> (2 * bits) & mask != green
      }
    }
  }
}
