import Digest
import Imaging

/// An animation on its way through the chain: each frame with its own mattes and original.
public struct ItemFrames: Sendable {
  public struct Frame: Sendable {
    public var image: Image
    public var matte: Image?
    public var original: Image?
    /// Further mattes by name.
    public var mattes: [String: Image]

    public init(image: Image, matte: Image? = nil, original: Image? = nil, mattes: [String: Image] = [:]) {
      self.image = image
      self.matte = matte
      self.original = original
      self.mattes = mattes
    }
  }
  public var frames: [Frame]
  /// Milliseconds, one for each frame.
  public var delays: [Int]
  /// How often it plays; 0 for ever.
  public var loop: Int

  public init(frames: [Frame], delays: [Int], loop: Int) {
    self.frames = frames
    self.delays = delays
    self.loop = loop
  }

  /// The frames as they were decoded.
  init(_ animation: Animation) {
    self.init(frames: animation.frames.map { Frame(image: $0) }, delays: animation.delays, loop: animation.loop)
  }
}

/// How a stage takes an animation.
public enum FrameHandling: Sendable {
  /// It is called for each frame, and sees an ordinary picture.
  case each
  /// It is called once, with all of them.
  case together
}

extension ReadyStage {
  /// Calls `process`, for each frame of an animation where the stage's plan says so; one that works in steps begins.
  ///
  /// - Throws: what the stage throws.
  public func beginFrames(
    _ item: Item, _ handling: FrameHandling, in context: StageContext
  ) throws(StageError) -> StageStep {
    try Self.deferringDamage(of: item) { () throws(StageError) in
      if let stage = self as? any ExchangingStage, handling == .together || !item.isAnimated {
        return try stage.begin(item, in: context)
      }
      return .outcome(try processEach(item, handling, in: context))
    }
  }

  /// Goes on with a stage that has begun.
  public func goOn(_ step: StageStep, _ item: Item, in context: StageContext) throws(StageError) -> StageStep {
    try Self.deferringDamage(of: item) { () throws(StageError) in
      switch step {
      case .outcome: step
      case .exchange(let body), .compute(let body): try body(context)
      }
    }
  }

  /// The same with all steps on this thread.
  public func processFrames(
    _ item: Item, _ handling: FrameHandling, in context: StageContext
  ) throws(StageError) -> Outcome {
    try beginFrames(item, handling, in: context).finished(in: context)
  }

  /// An item that turns out to be damaged and whose file has changed since it was read is put off: its writer was not
  /// yet done.
  static func deferringDamage(
    of item: Item, _ body: () throws(StageError) -> StageStep
  ) throws(StageError) -> StageStep {
    do throws(StageError) {
      return try body()
    } catch {
      guard error.code == ImagingError.Code.damaged.rawValue, let stamp = item.sourceStamp,
        FileStamp.of(item.identity.path) != stamp
      else { throw error }
      return .outcome(
        .deferred(
          reason: "\(item.identity.name.printable) was written to or replaced since it was read, and what was read is "
            + "damaged: \(error.message)"))
    }
  }

  private func processEach(
    _ item: Item, _ handling: FrameHandling, in context: StageContext
  ) throws(StageError) -> Outcome {
    guard handling == .each, item.isAnimated else { return try process(item, in: context) }
    let animation = try item.animation(in: context)
    var frames: [ItemFrames.Frame] = []
    var last: Item?
    for (index, frame) in animation.frames.enumerated() {
      // Nobody waits for the others any more.
      guard !context.isCancelled else {
        throw StageError(
          "cancelled", "the animation was given up at frame \(index + 1) of \(animation.frames.count)")
      }
      // One frame's warning is the animation's: repeated, it would drown the others.
      let outcome = try process(item.with(frame: frame), in: context.onceOnly)
      guard case .next(let next) = outcome else { return outcome }
      guard case .image(let image) = next.picture else {
        throw StageError(
          "frames-unsupported", "stage \"\(context.stage)\" left no picture for frame \(index + 1) of an animation",
          kind: .job, hint: "read only the first frame: \"frames\": \"first\" in \"decode\"")
      }
      frames.append(.init(image: image, matte: next.matte, original: next.original, mattes: next.mattes))
      last = next
    }
    guard let last else { return .next(item) }
    return .next(last.with(animation: ItemFrames(frames: frames, delays: animation.delays, loop: animation.loop)))
  }
}

extension Item {
  /// Whether the picture has several frames and all of them are wanted.
  public var isAnimated: Bool {
    switch picture {
    case .none, .image: false
    case .encoded(let source): source.isAnimation
    case .animation: true
    }
  }

  /// All frames with their pixels in memory; one frame for a picture that has no more.
  ///
  /// - Throws: `damaged` and the other codes of `Imaging`.
  public func animation(in context: StageContext) throws(StageError) -> ItemFrames {
    switch picture {
    case .animation(let frames): return frames
    case .encoded(let source) where source.isAnimation:
      let animation = try StageError.imaging { () throws(ImagingError) in try source.animation() }
      context.report(warningsOf: source)
      return ItemFrames(animation)
    default:
      let image = try image(in: context)
      let frame = ItemFrames.Frame(image: image, matte: matte, original: original, mattes: mattes)
      return ItemFrames(frames: [frame], delays: [0], loop: 0)
    }
  }
}
