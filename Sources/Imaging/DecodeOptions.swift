/// What happens when a picture's pixels are damaged or cut short.
public enum DamagePolicy: String, CaseIterable, Sendable {
  /// It is an error.
  case fail
  /// What can be read is used, with a warning.
  case warn
  /// What can be read is used.
  case accept
}

/// Which frames of an animation are decoded.
public enum FramePolicy: String, CaseIterable, Sendable {
  case first, all
}

/// How pictures are opened and decoded.
public struct DecodeOptions: Sendable, Hashable {
  public var limits: DecodeLimits
  /// Formats that are read only when named, since they are programs for drawing more than pictures.
  public var allowed: Set<PictureFormat>
  public var onDamage: DamagePolicy
  public var frames: FramePolicy
  public var space: WorkingSpace
  /// Pixels per inch that drawings and pages are drawn at.
  public var resolution: Double

  public init(
    limits: DecodeLimits = DecodeLimits(), allowed: Set<PictureFormat> = [], onDamage: DamagePolicy = .fail,
    frames: FramePolicy = .first, space: WorkingSpace = WorkingSpace(), resolution: Double = 72
  ) {
    self.limits = limits
    self.allowed = allowed
    self.onDamage = onDamage
    self.frames = frames
    self.space = space
    self.resolution = resolution
  }
}
