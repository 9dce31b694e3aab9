/// A radius in pixels, or as a share of the picture's shorter side.
public enum MatteRadius: Sendable, Hashable {
  /// 0 or more, with fractions.
  case pixels(Double)
  /// 1 for all of the shorter side.
  case share(Double)

  /// Pixels in a picture of these sides, with fractions.
  public func pixels(width: Int, height: Int) -> Double {
    switch self {
    case .pixels(let pixels): max(0, pixels)
    case .share(let share): max(0, share) * Double(min(width, height))
    }
  }
}

/// Changes to a matte, made in this order: threshold, holes, islands, grow, shrink, feather, invert, region.
///
/// Grow followed by shrink closes narrow gaps. The region comes last so that beyond it the picture stays, inverted or
/// not. All of them hold the matte and at most three copies of it in memory. Times are for 50 megapixels on one core of a
/// busy two-core machine, for a subject with soft edges that fills a third of the picture, beside sixty specks and gaps.
public struct MatteAdjustment: Sendable, Hashable {
  public struct Threshold: Sendable, Hashable {
    /// 0…1: what is below becomes background, what is not becomes subject.
    public var level: Double
    /// 0…1: the width of the ramp about the level, within which softness stays.
    public var softness: Double

    public init(level: Double, softness: Double = 0) { (self.level, self.softness) = (level, softness) }
  }

  public enum Islands: Sendable, Hashable {
    /// Parts below this share of the picture's area go.
    case below(Double)
    /// The largest part stays alone.
    case largest
  }

  /// 8 ms.
  public var threshold: Threshold?
  /// Gaps in the subject below this share of the picture's area are filled; 210 ms.
  public var holes: Double?
  /// 210 ms.
  public var islands: Islands?
  /// 60 ms for 2 pixels, 150 for 10.5, 200 for 40, 320 for 200; where all of the matte is uneven, up to twice that.
  public var grow: MatteRadius?
  public var shrink: MatteRadius?
  /// The standard deviation of a Gaussian; 130 ms for 2 pixels, 260 for 6, 340 for 8, 90 for 30.
  public var feather: MatteRadius?
  /// 4 ms.
  public var invert: Bool
  /// 95 ms.
  public var region: MatteRegion?

  public init(
    threshold: Threshold? = nil, holes: Double? = nil, islands: Islands? = nil, grow: MatteRadius? = nil,
    shrink: MatteRadius? = nil, feather: MatteRadius? = nil, invert: Bool = false, region: MatteRegion? = nil
  ) {
    (self.threshold, self.holes, self.islands) = (threshold, holes, islands)
    (self.grow, self.shrink, self.feather) = (grow, shrink, feather)
    (self.invert, self.region) = (invert, region)
  }

  /// Whether nothing is asked for.
  public var isEmpty: Bool { self == MatteAdjustment() }

  /// The matte with the changes made.
  ///
  /// - Parameter matte: 1 band of 8 bits.
  /// - Throws: `geometry` for anything else, or where the region has no part in the picture; `damaged`, `memory`.
  public func applied(to matte: Image) throws(ImagingError) -> Image {
    guard matte.bands == 1, matte.depth == 8 else {
      throw ImagingError(
        .geometry, "a picture with \(matte.bands) bands of \(matte.depth) bits is no matte")
    }
    guard !isEmpty else { return matte }
    var plane = MattePlane(width: matte.width, height: matte.height, samples: try matte.bytes())
    try apply(to: &plane)
    return try Image(width: plane.width, height: plane.height, bands: 1, bytes: plane.samples)
  }

  private func apply(to plane: inout MattePlane) throws(ImagingError) {
    let (width, height) = (plane.width, plane.height)
    if let threshold { plane.map(threshold.table) }
    if let holes { plane.fillHoles(smallerThan: Self.pixels(holes, width, height)) }
    switch islands {
    case .below(let share): plane.removeIslands(.atLeast(Self.pixels(share, width, height)))
    case .largest: plane.removeIslands(.largest)
    case nil: break
    }
    if let grow { plane.grow(Self.radius(grow, width, height)) }
    if let shrink { plane.shrink(Self.radius(shrink, width, height)) }
    if let feather {
      let sigma = feather.pixels(width: width, height: height)
      // A narrower one changes no level.
      if sigma >= 0.2 { plane.feather(min(sigma, Double(max(width, height)))) }
    }
    if invert { plane.invert() }
    if let region { try plane.limit(to: region) }
  }

  /// The least whole number of pixels that is not below a share of the area.
  private static func pixels(_ share: Double, _ width: Int, _ height: Int) -> Int {
    Int((min(1, max(0, share)) * Double(width * height)).rounded(.up))
  }

  /// A radius, no larger than what reaches all of the picture from anywhere.
  private static func radius(_ radius: MatteRadius, _ width: Int, _ height: Int) -> Double {
    min(radius.pixels(width: width, height: height), Double(width + height))
  }
}

extension MatteAdjustment.Threshold {
  /// What becomes of each level. The ramp is 3t² − 2t³, and ends where black or white does, so that they stay.
  var table: [UInt8] {
    let (from, to) = (max(0, level - softness / 2), min(1, level + softness / 2))
    return (0...255).map { step in
      let value = Double(step) / 255
      guard softness > 0, to > from else { return value >= level ? 255 : 0 }
      let t = min(1, max(0, (value - from) / (to - from)))
      return UInt8((255 * t * t * (3 - 2 * t)).rounded())
    }
  }
}
