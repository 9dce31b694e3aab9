/// How a picture should fill the wanted sides.
public enum Fit: String, CaseIterable, Sendable {
  /// As large as fits within the sides; the ratio stays.
  case inside
  /// As small as covers the sides; the ratio stays, and one side may be longer than asked.
  case outside
  /// Covers the sides, and what sticks out is cropped.
  case cover
  /// Fits within the sides, and the rest is filled with the background.
  case contain
  /// Both sides as asked; the ratio may change.
  case fill
}

/// Which part of a picture stays when it is cropped, or where it stands when it is padded.
public enum Position: String, CaseIterable, Sendable {
  case centre, top, bottom, left, right
  case topLeft = "top-left"
  case topRight = "top-right"
  case bottomLeft = "bottom-left"
  case bottomRight = "bottom-right"
  /// The crop with the most detail. Only for `Fit.cover`.
  case entropy
  /// The crop most likely to draw the eye: skin, saturated colours, edges. Only for `Fit.cover`.
  case attention
}

/// The filter that resampling weighs pixels with.
public enum Kernel: String, CaseIterable, Sendable {
  case lanczos3, lanczos2, mitchell, cubic, linear, nearest
}

/// What a resize asks for. At least one side must be given.
public struct ResizeRequest: Sendable, Hashable {
  /// The wanted sides in pixels; nil is a free side.
  public var width: Int?
  public var height: Int?
  public var fit: Fit
  public var position: Position
  /// What `Fit.contain` fills the rest with.
  public var background: RGBA
  /// Whether scaling may make the picture larger.
  public var enlarge: Bool
  public var kernel: Kernel
  /// Sharpening after the resize, as the radius sigma of the unsharp mask in pixels; nil for none.
  public var sharpen: Double?
  /// Whether light is added up, instead of the numbers that stand for it.
  public var linear: Bool

  public init(
    width: Int? = nil, height: Int? = nil, fit: Fit = .inside, position: Position = .centre,
    background: RGBA = .white, enlarge: Bool = false, kernel: Kernel = .lanczos3, sharpen: Double? = nil,
    linear: Bool = false
  ) {
    self.width = width
    self.height = height
    self.fit = fit
    self.position = position
    self.background = background
    self.enlarge = enlarge
    self.kernel = kernel
    self.sharpen = sharpen
    self.linear = linear
  }

  /// Works out the sides for an upright picture of `w` × `h` pixels.
  ///
  /// A free side follows the ratio (`fill`: stays as it is), rounded half up, and is never 0. With one side free,
  /// `cover` and `contain` are `inside`. Where `enlarge` is false, nothing is scaled up: `inside` and `outside` give
  /// the picture as it is where it is small already, `fill` leaves a side that is short enough alone, `cover` crops to
  /// the wanted sides or what there is of them, `contain` pads a small picture to the wanted sides without scaling it.
  ///
  /// - Throws: `geometry` where a side is not in 1…65,500, none is given, the position does not go with the fit, or the
  ///   result would be larger than 2³⁰ pixels.
  public func plan(for w: Int, _ h: Int) throws(ImagingError) -> ResizePlan {
    guard w > 0, h > 0 else { throw ImagingError(.geometry, "a picture of \(w)×\(h) pixels cannot be resized") }
    guard width != nil || height != nil else {
      throw ImagingError(.geometry, "a resize needs a width, a height, or both")
    }
    for side in [width, height].compactMap(\.self) where !(1...65_500).contains(side) {
      throw ImagingError(.geometry, "a side of \(side) pixels cannot be made; sides are 1 to 65500")
    }
    if let sharpen, !(sharpen > 0 && sharpen <= 100) {
      throw ImagingError(.geometry, "sharpening by \(sharpen) is not possible; the radius is above 0 and at most 100")
    }
    var scaledWidth: Int
    var scaledHeight: Int
    var framing = ResizePlan.Framing.none
    if fit == .fill {
      scaledWidth = enlarge ? width ?? w : min(width ?? w, w)
      scaledHeight = enlarge ? height ?? h : min(height ?? h, h)
    } else {
      // The scale is a ratio of whole numbers, so that halves round exactly.
      let byWidth: Bool
      switch (width, height) {
      case (_?, nil): byWidth = true
      case (nil, _): byWidth = false
      case (let width?, let height?):
        // Whether the width asks for the smaller scale: width / w <= height / h.
        let smaller = width * h <= height * w
        byWidth = fit == .inside || fit == .contain ? smaller : !smaller
      }
      let (numerator, denominator) = byWidth ? (width ?? w, w) : (height ?? h, h)
      if numerator > denominator && !enlarge {
        (scaledWidth, scaledHeight) = (w, h)
      } else if byWidth {
        scaledWidth = numerator
        scaledHeight = max(1, Self.rounded(h * numerator, over: denominator))
      } else {
        scaledWidth = max(1, Self.rounded(w * numerator, over: denominator))
        scaledHeight = numerator
      }
      if let width, let height {
        switch fit {
        case .cover:
          let (cropWidth, cropHeight) = (min(width, scaledWidth), min(height, scaledHeight))
          guard (cropWidth, cropHeight) != (scaledWidth, scaledHeight) else { break }
          if position == .entropy || position == .attention {
            framing = .smartCrop(width: cropWidth, height: cropHeight, position)
          } else {
            let (x, y) = position.offset(across: scaledWidth - cropWidth, down: scaledHeight - cropHeight)
            framing = .crop(.init(x: x, y: y, width: cropWidth, height: cropHeight))
          }
        case .contain:
          guard position != .entropy && position != .attention else {
            throw ImagingError(
              .geometry, "position \(position.rawValue) chooses a crop; fit contain does not crop",
              hint: "use fit cover, or a side or corner as position")
          }
          guard (width, height) != (scaledWidth, scaledHeight) else { break }
          let (x, y) = position.offset(across: width - scaledWidth, down: height - scaledHeight)
          framing = .pad(.init(x: x, y: y, width: width, height: height, background: background))
        case .inside, .outside, .fill: break
        }
      }
    }
    let plan = ResizePlan(
      sourceWidth: w, sourceHeight: h, scaledWidth: scaledWidth, scaledHeight: scaledHeight, framing: framing,
      kernel: kernel, sharpen: sharpen, linear: linear)
    guard max(scaledWidth, scaledHeight) <= 10_000_000, plan.width * plan.height <= 1 << 30 else {
      throw ImagingError(
        .geometry, "resizing \(w)×\(h) so would make \(scaledWidth)×\(scaledHeight) pixels, which is too large",
        hint: "give both sides, or fit inside")
    }
    return plan
  }

  /// a / b rounded half up.
  private static func rounded(_ a: Int, over b: Int) -> Int { (2 * a + b) / (2 * b) }
}

extension Position {
  /// Where to start in what is left over on both axes, in pixels; halves are rounded towards the start.
  public func offset(across: Int, down: Int) -> (x: Int, y: Int) {
    let x =
      switch self {
      case .left, .topLeft, .bottomLeft: 0
      case .right, .topRight, .bottomRight: across
      default: across / 2
      }
    let y =
      switch self {
      case .top, .topLeft, .topRight: 0
      case .bottom, .bottomLeft, .bottomRight: down
      default: down / 2
      }
    return (x, y)
  }
}

/// A resize worked out for one picture: scale, then crop or pad. All sides are those of the upright picture, in pixels.
public struct ResizePlan: Sendable, Hashable {
  /// A rectangle within the scaled picture.
  public typealias Crop = Rectangle
  /// A canvas around the scaled picture, which stands at `x`, `y` on it.
  public struct Pad: Sendable, Hashable {
    public var x: Int
    public var y: Int
    public var width: Int
    public var height: Int
    public var background: RGBA
  }
  public enum Framing: Sendable, Hashable {
    case none
    case crop(Crop)
    /// Crop to these sides where libvips finds the most detail (`entropy`) or interest (`attention`).
    case smartCrop(width: Int, height: Int, Position)
    case pad(Pad)
  }

  public var sourceWidth: Int
  public var sourceHeight: Int
  public var scaledWidth: Int
  public var scaledHeight: Int
  public var framing: Framing
  public var kernel: Kernel
  public var sharpen: Double?
  public var linear: Bool

  /// The sides of the result.
  public var width: Int {
    switch framing {
    case .none: scaledWidth
    case .crop(let crop): crop.width
    case .smartCrop(let width, _, _): width
    case .pad(let pad): pad.width
    }
  }
  public var height: Int {
    switch framing {
    case .none: scaledHeight
    case .crop(let crop): crop.height
    case .smartCrop(_, let height, _): height
    case .pad(let pad): pad.height
    }
  }

  /// Whether the result is the picture as it is.
  public var isIdentity: Bool {
    scaledWidth == sourceWidth && scaledHeight == sourceHeight && framing == .none && sharpen == nil
  }
}
