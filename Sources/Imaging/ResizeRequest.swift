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

  public init(
    width: Int? = nil, height: Int? = nil, fit: Fit = .inside, position: Position = .centre,
    background: RGBA = .white, enlarge: Bool = false, kernel: Kernel = .lanczos3, sharpen: Double? = nil
  ) {
    self.width = width
    self.height = height
    self.fit = fit
    self.position = position
    self.background = background
    self.enlarge = enlarge
    self.kernel = kernel
    self.sharpen = sharpen
  }

  /// Works out the sides for an upright picture of `w` × `h` pixels.
  ///
  /// - Throws: `geometry` where a side is not positive, none is given, or the result would be absurdly large.
  public func plan(for w: Int, _ h: Int) throws(ImagingError) -> ResizePlan {
    preconditionFailure("not yet written")
  }
}

/// A resize worked out for one picture: scale, then crop or pad. All sides are those of the upright picture, in pixels.
public struct ResizePlan: Sendable, Hashable {
  /// A rectangle within the scaled picture.
  public struct Crop: Sendable, Hashable {
    public var x: Int
    public var y: Int
    public var width: Int
    public var height: Int
  }
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
