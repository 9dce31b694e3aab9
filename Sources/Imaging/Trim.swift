import CVips

/// What tells content from border.
public enum TrimBasis: String, CaseIterable, Sendable {
  case auto, alpha, color
}

/// What a trim asks for.
public struct TrimRequest: Sendable, Hashable {
  public var basis: TrimBasis
  /// The colour of the border; nil takes it from the corners.
  public var color: RGBA?
  /// How far a sample may be from the border's and still count as border, in 8-bit levels; the alpha up to which a
  /// pixel counts as transparent.
  public var threshold: Int
  /// What is left, or added, around the content; a share is of the content's longer side.
  public var margin: Length
  /// Content whose longer side is shorter counts as none, in pixels.
  public var minSize: Int

  public init(
    basis: TrimBasis = .auto, color: RGBA? = nil, threshold: Int = 10, margin: Length = .pixels(0), minSize: Int = 1
  ) {
    (self.basis, self.color, self.threshold, self.margin) = (basis, color, threshold, margin)
    self.minSize = minSize
  }

  /// What the border of a picture is, decided once for all frames of an animation.
  ///
  /// By alpha where the basis says so, or where it is `auto` and a pixel is transparent; a matte is looked at itself.
  /// Else by colour: of the four corners the one that most others are like, the first of them from the top left.
  /// - Throws: `damaged`, `memory`.
  public func border(of image: Image) throws(ImagingError) -> TrimBorder {
    if image.bands < 3 { return .alpha }
    switch basis {
    case .alpha: return .alpha
    case .auto where color == nil: if try !image.isOpaque() { return .alpha }
    case .auto, .color: break
    }
    if let color {
      // A profile of grey has no numbers for colours; those of sRGB are the nearest.
      let components = try image.holdingColour(isGrey: false).components(of: color)
      return .color(components.prefix(image.bands).map { Int($0.rounded()) })
    }
    let corners = try image.corners()
    let near = corners.map { corner in
      corners.count { zip($0, corner).allSatisfy { abs($0 - $1) <= threshold(of: image) } }
    }
    let best = near.indices.max { near[$0] < near[$1] || (near[$0] == near[$1] && $0 > $1) } ?? 0
    return .color(corners[best])
  }

  fileprivate func threshold(of image: Image) -> Int { image.depth == 16 ? threshold * 257 : threshold }

  /// The box of all pixels that are not border; nil where there is no content, or too little.
  ///
  /// - Throws: `damaged`, `memory`.
  public func content(of images: [Image], _ border: TrimBorder) throws(ImagingError) -> Rectangle? {
    var whole: Rectangle?
    for image in images {
      guard let box = try image.contentBox(border, threshold(of: image)) else { continue }
      whole = whole?.union(box) ?? box
    }
    guard let whole, max(whole.width, whole.height) >= minSize else { return nil }
    return whole
  }

  /// The content with its margin: exactly as wide on all sides, so that it may reach beyond the picture.
  public func framed(_ content: Rectangle) -> Rectangle {
    let edge = margin.pixels(of: max(content.width, content.height))
    return Rectangle(
      x: content.x - edge, y: content.y - edge, width: content.width + 2 * edge, height: content.height + 2 * edge)
  }
}

/// What surrounds the content of a picture.
public enum TrimBorder: Sendable, Hashable {
  /// What is transparent; in a matte, what is dark.
  case alpha
  /// Samples of the picture's own bands.
  case color([Int])
}

extension Image {
  /// The first pixel's samples, those of the other corners in reading order behind.
  fileprivate func corners() throws(ImagingError) -> [[Int]] {
    let (bands, isDeep) = (bands, depth == 16)
    let places = [(0, 0), (width - 1, 0), (0, height - 1), (width - 1, height - 1)]
    return try withPixels { raw in
      places.map { x, y in
        let start = (y * width + x) * bands
        return (start..<start + bands).map {
          isDeep ? Int(raw.load(fromByteOffset: 2 * $0, as: UInt16.self)) : Int(raw[$0])
        }
      }
    }
  }

  /// The box of the pixels that differ from the border by more than `threshold`.
  fileprivate func contentBox(_ border: TrimBorder, _ threshold: Int) throws(ImagingError) -> Rectangle? {
    let isDeep = depth == 16
    return try withPixels { raw in
      isDeep
        ? Self.contentBox(raw.bindMemory(to: UInt16.self), width, height, bands, border, threshold)
        : Self.contentBox(raw.bindMemory(to: UInt8.self), width, height, bands, border, threshold)
    }
  }

  private static func contentBox<Sample: FixedWidthInteger & UnsignedInteger>(
    _ samples: UnsafeBufferPointer<Sample>, _ width: Int, _ height: Int, _ bands: Int, _ border: TrimBorder,
    _ threshold: Int
  ) -> Rectangle? {
    switch border {
    case .alpha:
      // Without alpha everything is content, except in a matte, which is alpha itself.
      guard bands != 3 else { return Rectangle(x: 0, y: 0, width: width, height: height) }
      let last = bands - 1
      return box(width, height) { Int(samples[$0 * bands + last]) > threshold }
    case .color(let color):
      let hasAlpha = bands == 4
      return box(width, height) { pixel in
        let start = pixel * bands
        // What is transparent has no colour to be told by.
        if hasAlpha, samples[start + 3] == 0, color[3] == 0 { return false }
        for band in 0..<bands where abs(Int(samples[start + band]) - color[band]) > threshold { return true }
        return false
      }
    }
  }

  /// Rows from above and below until one has content, then only as far into each row as needed.
  @inline(__always)
  private static func box(_ width: Int, _ height: Int, _ isContent: (Int) -> Bool) -> Rectangle? {
    func hasContent(_ row: Int) -> Bool {
      for x in 0..<width where isContent(row * width + x) { return true }
      return false
    }
    guard let top = (0..<height).first(where: hasContent), let bottom = (top..<height).last(where: hasContent) else {
      return nil
    }
    var (left, right) = (width, -1)
    for row in top...bottom {
      if let x = (0..<left).first(where: { isContent(row * width + $0) }) { left = x }
      if let x = ((right + 1)..<width).last(where: { isContent(row * width + $0) }) { right = x }
    }
    return Rectangle(x: left, y: top, width: right - left + 1, height: bottom - top + 1)
  }

  /// The part that `rectangle` names; where it reaches beyond the picture there is border: transparent pixels, dark ones
  /// in a matte, or the border's colour.
  ///
  /// - Throws: `geometry` where it does not meet the picture.
  public func window(_ rectangle: Rectangle, _ border: TrimBorder) throws(ImagingError) -> Image {
    try window(rectangle) { (inner, canvas) throws(ImagingError) in
      guard case .color(let color) = border, color.count == bands else {
        return try inner.padded(to: canvas, .color(.transparent))
      }
      try Image.checkSides(canvas.width, canvas.height, "trimming")
      let padded = try vips("padding") {
        cvips_embed_background(
          inner.ref.pointer, $0, Int32(canvas.x), Int32(canvas.y), Int32(canvas.width), Int32(canvas.height),
          color.map { Double($0) }, Int32(color.count))
      }
      let isGrey = isGrey && bands >= 3 && color[0] == color[1] && color[1] == color[2]
      return Image(adopting: padded, lazyFrom: inner.lazyFrom, space: space, isGrey: isGrey)
    }
  }

  /// The part that `rectangle` names; where it reaches beyond the picture it is filled.
  ///
  /// - Throws: `geometry` where it does not meet the picture.
  public func window(_ rectangle: Rectangle, _ fill: PadFill) throws(ImagingError) -> Image {
    try window(rectangle) { (inner, canvas) throws(ImagingError) in try inner.padded(to: canvas, fill) }
  }

  private func window(
    _ rectangle: Rectangle, pad: (Image, Canvas) throws(ImagingError) -> Image
  ) throws(ImagingError) -> Image {
    let (left, top) = (max(0, rectangle.x), max(0, rectangle.y))
    let right = min(width, rectangle.x + rectangle.width)
    let bottom = min(height, rectangle.y + rectangle.height)
    let inner = try cropped(to: Rectangle(x: left, y: top, width: right - left, height: bottom - top))
    let canvas = Canvas(
      x: left - rectangle.x, y: top - rectangle.y, width: rectangle.width, height: rectangle.height)
    guard (inner.width, inner.height) != (canvas.width, canvas.height) else { return inner }
    return try pad(inner, canvas)
  }
}
