import Imaging
import JobSyntax
import PipelineKit

/// Fields that the stages for geometry share, and how they change frames.
extension Field where Value == Length? {
  /// Whole pixels, or a percentage of what the help says.
  static func length(
    _ name: String, pixels range: ClosedRange<Int>, when condition: FieldCondition? = nil, help: String
  ) -> Self {
    .init(name, type: lengthType(range), absent: .some(nil), when: condition, help: help) { node, _ in
      readLength(node, range).map { .some($0) }
    }
  }
}

extension Field where Value == Length {
  static func length(
    _ name: String, pixels range: ClosedRange<Int>, default text: JSONText, when condition: FieldCondition? = nil,
    help: String
  ) -> Self {
    let absent: Length? =
      switch text {
      case .string(let share): Length(percentage: share)
      case .integer(let pixels): .pixels(pixels)
      default: nil
      }
    return .init(
      name, type: lengthType(range), absent: absent, defaultText: text, when: condition, help: help
    ) { node, _ in readLength(node, range) }
  }
}

private func lengthType(_ range: ClosedRange<Int>) -> FieldType {
  .oneOf([.integer(range), .text(.percentage)])
}

private func readLength(_ node: JSONNode, _ range: ClosedRange<Int>) -> Length? {
  if let text = node.stringValue { return Length(percentage: text) }
  guard let pixels = node.numberValue?.integer, range.contains(pixels) else { return nil }
  return .pixels(pixels)
}

extension Field where Value == AspectRatio? {
  static func ratio(_ name: String, help: String) -> Self {
    .init(name, type: .text(.ratio), absent: .some(nil), help: help) { node, _ in
      node.stringValue.flatMap { AspectRatio($0) }.map { .some($0) }
    }
  }
}

extension Field where Value == Position {
  /// A side, a corner or the centre; with `byContent` also the choices that look at the picture.
  static func gravity(
    _ name: String = "gravity", default value: Position = .centre, byContent: Bool = false,
    when condition: FieldCondition? = nil, help: String
  ) -> Self {
    let known = Position.allCases.filter { byContent || ($0 != .attention && $0 != .entropy) }
    let choices = known.map { position in
      switch position {
      case .entropy: Choice(position.rawValue, "where there is the most detail")
      case .attention: Choice(position.rawValue, "where the eye is most likely drawn: skin, strong colours, edges")
      default: Choice(position.rawValue)
      }
    }
    return .init(
      name, type: .choice(choices), absent: value, defaultText: .string(value.rawValue), when: condition,
      help: help
    ) { node, _ in node.stringValue.flatMap { Position(rawValue: $0) }.flatMap { known.contains($0) ? $0 : nil } }
  }
}

extension ItemFrames.Frame {
  /// The frame with picture, mattes and original each changed in their own way, all in memory.
  func changed(
    picture: (Image) throws(ImagingError) -> Image, matte changeMatte: (Image) throws(ImagingError) -> Image,
    original changeOriginal: (Image) throws(ImagingError) -> Image
  ) throws(ImagingError) -> Self {
    // Computed here and not while encoding, so that two renditions do not compute it twice.
    let image = try picture(image).materialised()
    let matte: Image? = if let matte { try changeMatte(matte).materialised() } else { nil }
    let original: Image? = if let original { try changeOriginal(original).materialised() } else { nil }
    var mattes = mattes
    for (name, matte) in mattes { mattes[name] = try changeMatte(matte).materialised() }
    return Self(image: image, matte: matte, original: original, mattes: mattes)
  }

  /// The frame with all three changed alike.
  func changed(_ change: (Image) throws(ImagingError) -> Image) throws(ImagingError) -> Self {
    try changed(picture: change, matte: change, original: change)
  }
}

extension Item {
  /// Decides on all frames, then changes each: one for a picture that has no more.
  func changingFrames(
    in context: StageContext,
    _ change: (ItemFrames) throws(StageError) -> ((ItemFrames.Frame) throws(ImagingError) -> ItemFrames.Frame)?
  ) throws(StageError) -> Item {
    var animation = try animation(in: context)
    guard let change = try change(animation) else {
      guard !isAnimated, let frame = animation.frames.first else { return with(animation: animation) }
      return with(frame: frame)
    }
    let wasAnimated = isAnimated
    return try StageError.imaging { () throws(ImagingError) in
      for index in animation.frames.indices { animation.frames[index] = try change(animation.frames[index]) }
      guard !wasAnimated, let frame = animation.frames.first else { return with(animation: animation) }
      return with(frame: frame)
    }
  }
}
