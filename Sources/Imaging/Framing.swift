/// What a subject is framed on.
public enum FrameCanvas: Sendable, Hashable {
  /// These sides in pixels; the subject is scaled.
  case sides(width: Int, height: Int)
  /// The smallest canvas of this ratio that leaves what has to be left around the subject, which is not scaled.
  case ratio(AspectRatio)
}

/// Where a subject stands along one axis.
public enum FrameAlignment: Sendable, Hashable {
  /// At the left or above, as near to the edge as the margin lets it.
  case start
  case centre
  /// At the right or below, as near to the edge as the margin lets it.
  case end
  /// With its centre of mass in the middle, as far as the margin lets it.
  case optical
}

/// How a subject is to stand on a canvas.
public struct FrameRequest: Sendable, Hashable {
  public var canvas: FrameCanvas
  /// The share of the canvas that the subject takes on the axis where it takes more, above 0…1.
  public var fill: Double
  /// What is left between the subject and each edge at least; a share is of the canvas's shorter side.
  public var margin: Length
  public var across: FrameAlignment
  public var down: FrameAlignment
  /// Whether scaling may make the subject larger.
  public var enlarge: Bool

  public init(
    canvas: FrameCanvas, fill: Double = 0.85, margin: Length = .pixels(0), across: FrameAlignment = .centre,
    down: FrameAlignment = .centre, enlarge: Bool = false
  ) {
    (self.canvas, self.fill, self.margin) = (canvas, fill, margin)
    (self.across, self.down, self.enlarge) = (across, down, enlarge)
  }

  /// Works out the frame of a subject in a picture of `w` × `h` pixels.
  ///
  /// The limiting axis gets its share to the nearest pixel, the other follows the subject's ratio, rounded half up and
  /// at least 1. Sides of a canvas that follows the subject are rounded up.
  /// - Throws: `geometry` where the margins leave nothing of the canvas, or the canvas is too large.
  public func plan(for subject: Subject, in w: Int, _ h: Int) throws(ImagingError) -> FramePlan {
    let box = subject.box
    let (width, height): (Int, Int)
    switch canvas {
    case .sides(let across, let down): (width, height) = (across, down)
    case .ratio(let ratio): (width, height) = sides(around: box, ratio)
    }
    try Image.checkSides(width, height, "framing")
    let edge = margin.pixels(of: min(width, height))
    guard min(width, height) > 2 * edge else {
      throw ImagingError(
        .geometry, "margins of \(edge) pixels leave nothing of a canvas of \(width)×\(height)",
        hint: "use a smaller \"margin\"")
    }
    var size = (width: box.width, height: box.height)
    var isTooSmall = false
    if case .sides = canvas {
      let most = (width: most(of: width, edge), height: most(of: height, edge))
      let isByWidth = most.width * box.height <= most.height * box.width
      let (wanted, has) = isByWidth ? (most.width, box.width) : (most.height, box.height)
      isTooSmall = wanted > has && !enlarge
      if !isTooSmall {
        func scaled(_ side: Int, _ most: Int) -> Int { min(most, max(1, (2 * side * wanted + has) / (2 * has))) }
        size = (scaled(box.width, most.width), scaled(box.height, most.height))
      }
    }
    let x = Self.place(
      size.width, of: width, edge, across, centre: (subject.centreX - Double(box.x)) / Double(box.width))
    let y = Self.place(
      size.height, of: height, edge, down, centre: (subject.centreY - Double(box.y)) / Double(box.height))
    return FramePlan(
      width: width, height: height, subject: Rectangle(x: x, y: y, width: size.width, height: size.height),
      isTooSmall: isTooSmall,
      across: FramePlan.Axis(box.x, box.width, of: w, to: x, size.width, of: width),
      down: FramePlan.Axis(box.y, box.height, of: h, to: y, size.height, of: height))
  }

  /// The longest that a subject may be along a side.
  private func most(of side: Int, _ edge: Int) -> Int {
    max(1, min(Int((fill * Double(side)).rounded()), side - 2 * edge))
  }

  private func sides(around box: Rectangle, _ ratio: AspectRatio) -> (Int, Int) {
    // A margin in percent is of a side that is still to be found: side − 2 · p · shorter side holds the subject.
    let part = margin.isShare ? Double(margin.pixels(of: 1_000_000)) / 1e6 : 0
    let fixed = margin.isShare ? 0 : margin.pixels(of: 0)
    func least(_ length: Int, _ side: Int, _ other: Int) -> Int {
      let free = max(0.001, 1 - 2 * part * Double(min(side, other)) / Double(side))
      // A millionth, because 85 / 0.85 is a little more than 100 in floating point.
      let needed = max(Double(length) / fill, Double(length) / free, Double(length + 2 * fixed)) - 1e-6
      return max(1, Int(needed.rounded(.up)))
    }
    var sides = ratio.smallest(
      around: least(box.width, ratio.width, ratio.height), least(box.height, ratio.height, ratio.width))
    // The margin was rounded, perhaps up.
    for _ in 0..<4 {
      let edge = margin.pixels(of: min(sides.width, sides.height))
      guard sides.width < box.width + 2 * edge || sides.height < box.height + 2 * edge else { break }
      sides = ratio.smallest(
        around: max(sides.width, box.width + 2 * edge), max(sides.height, box.height + 2 * edge))
    }
    return (sides.width, sides.height)
  }

  /// - Parameter centre: the subject's centre of mass as a share of its length.
  private static func place(
    _ length: Int, of side: Int, _ edge: Int, _ alignment: FrameAlignment, centre: Double
  ) -> Int {
    let last = max(edge, side - edge - length)
    switch alignment {
    case .start: return edge
    case .centre: return max(0, (side - length) / 2)
    case .end: return last
    case .optical:
      return min(last, max(edge, Int((Double(side) / 2 - centre * Double(length)).rounded())))
    }
  }
}

/// A frame worked out for one picture: take a part, scale it, lay it on the canvas. All in pixels.
public struct FramePlan: Sendable, Hashable {
  /// The sides of the canvas.
  public var width: Int
  public var height: Int
  /// Where the subject's box lies on the canvas.
  public var subject: Rectangle
  /// Whether the subject has too few pixels to take its share, and may not be enlarged.
  public var isTooSmall: Bool

  var across: Axis
  var down: Axis

  /// The part of the picture that is needed along one axis, and where it comes to lie.
  struct Axis: Sendable, Hashable {
    /// The part of the picture, which may begin before it and end behind it.
    var start: Int
    var length: Int
    /// The same on the canvas.
    var target: Int
    var targetLength: Int

    /// - Parameters:
    ///   - start: where the subject begins in a picture of `side` pixels.
    ///   - target: where it is to begin on a canvas of `canvas` pixels.
    init(
      _ start: Int, _ length: Int, of side: Int, to target: Int, _ targetLength: Int, of canvas: Int
    ) {
      guard length != targetLength else {
        self.start = max(0, start - target)
        self.length = min(side, start + canvas - target) - self.start
        self.target = target - (start - self.start)
        self.targetLength = self.length
        return
      }
      // Everything that shows is taken, not just the box: hair and soft edges reach beyond it. And what the filter,
      // which reaches 3 pixels far, weighs in at the canvas's edge.
      let scale = Double(targetLength) / Double(length)
      let reach = Int((3 / min(scale, 1)).rounded(.up)) + 1
      let first = max(0, start - Int((Double(target) / scale).rounded(.up)) - reach)
      let after = canvas - target - targetLength
      let last = min(side, start + length + Int((Double(after) / scale).rounded(.up)) + reach)
      // A few empty pixels more, so that the part's ends fall near whole pixels of the canvas and the subject where it
      // should: in half of all cases to a fortieth of a pixel, in 99 of 100 to a third. libvips first averages whole
      // groups of pixels, and stretches what does not divide into them.
      let group = max(1, Int(1 / (2 * scale)))
      func wholeLength(from least: Int, behind before: Int = 0, step: Int = 1) -> Int {
        var best = (length: least, error: Double.infinity)
        let first = (before + least + step - 1) / step * step - before
        for candidate in stride(from: first, to: first + 16 * step, by: step) {
          let scaled = Double(candidate) * scale
          let error = abs(scaled - scaled.rounded())
          if error < best.error - 0.01 { best = (candidate, error) }
        }
        return best.length
      }
      let before = wholeLength(from: start - first)
      let rest = wholeLength(from: last - start, behind: before, step: group)
      let scaledBefore = Int((Double(before) * scale).rounded())
      self.start = start - before
      self.length = before + rest
      self.target = target - scaledBefore
      self.targetLength = scaledBefore + max(targetLength, Int((Double(rest) * scale).rounded()))
    }
  }
}

extension Image {
  /// The picture on the plan's canvas; where it does not reach there is `fill`.
  ///
  /// - Parameters:
  ///   - fill: transparent for a cut-out (dark in a matte); the edge for the photo it was cut from.
  ///   - linear: whether light is added up, instead of the numbers that stand for it.
  /// - Throws: `geometry` where the plan was made for other sides.
  public func framed(
    _ plan: FramePlan, _ fill: PadFill = .color(.transparent), kernel: Kernel = .lanczos3, linear: Bool = false
  ) throws(ImagingError) -> Image {
    let (across, down) = (plan.across, plan.down)
    guard across.start < width, down.start < height, across.start + across.length > 0,
      down.start + down.length > 0
    else {
      throw ImagingError(.geometry, "the frame is for a picture larger than \(width)×\(height) pixels")
    }
    let part = Rectangle(x: across.start, y: down.start, width: across.length, height: down.length)
    let scaled = try window(part, fill).stretched(
      width: across.targetLength, height: down.targetLength, kernel: kernel, linear: linear)
    return try scaled.window(
      Rectangle(x: -across.target, y: -down.target, width: plan.width, height: plan.height), fill)
  }
}
