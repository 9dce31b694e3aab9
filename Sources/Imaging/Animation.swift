import CVips

/// Frames that follow each other in time, all of one size.
public struct Animation: Sendable {
  public var frames: [Image]
  /// How long each frame stands, in milliseconds; as many as there are frames.
  public var delays: [Int]
  /// How often it plays; 0 for ever.
  public var loop: Int

  public init(frames: [Image], delays: [Int], loop: Int) {
    self.frames = frames
    self.delays = delays
    self.loop = loop
  }
}

extension Animation {
  /// The frames one below the other, with their times, as libvips' encoders of animations take them.
  ///
  /// - Throws: `geometry` for frames that are not alike.
  public func strip() throws(ImagingError) -> Image {
    guard let first = frames.first else { throw ImagingError(.geometry, "an animation needs a frame") }
    // Some frames may be opaque where others are not.
    let bands = frames.map(\.bands).max() ?? 3
    var alike: [Image] = []
    for frame in frames {
      guard frame.width == first.width, frame.height == first.height else {
        throw ImagingError(
          .geometry,
          "the frames of an animation must be alike: one has \(first.width)×\(first.height) pixels, another "
            + "\(frame.width)×\(frame.height)")
      }
      var image = try frame.converted(to: first.space).withDepth(first.depth)
      if image.bands < bands { image = try image.withAlpha(.white(image.width, image.height)) }
      alike.append(image)
    }
    var pointers: [UnsafeMutablePointer<VipsImage>?] = alike.map(\.ref.pointer)
    let joined = try vips("joining frames") { out in
      pointers.withUnsafeMutableBufferPointer { cvips_stack($0.baseAddress, out, Int32($0.count)) }
    }
    let strip = try vips("joining frames") { cvips_copy(joined.pointer, $0) }
    vips_image_set_int(strip.pointer, "page-height", Int32(first.height))
    vips_image_set_int(strip.pointer, "loop", Int32(clamping: loop))
    let times = delays.map { Int32(clamping: $0) }
    vips_image_set_array_int(strip.pointer, "delay", times, Int32(times.count))
    return Image(
      adopting: strip, lazyFrom: nil, space: first.space, isGrey: alike.allSatisfy(\.isGrey))
  }
}
