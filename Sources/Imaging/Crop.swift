import CVips

/// What a crop asks for.
///
/// On each axis at most two of start, end and size may be given. With a size alone (or a ratio) the position says
/// where; with neither the axis stays whole.
public struct CropRequest: Sendable, Hashable {
  /// What is cut from each side.
  public var left: Length?
  public var top: Length?
  public var right: Length?
  public var bottom: Length?
  /// The sides of the result.
  public var width: Length?
  public var height: Length?
  /// The largest part of this ratio, in place of all the others.
  public var aspect: AspectRatio?
  /// Where the part lies when only its size is given.
  public var position: Position
  /// Whether a part that reaches beyond the picture is cut to what there is.
  public var clip: Bool

  public init(
    left: Length? = nil, top: Length? = nil, right: Length? = nil, bottom: Length? = nil, width: Length? = nil,
    height: Length? = nil, aspect: AspectRatio? = nil, position: Position = .centre, clip: Bool = false
  ) {
    (self.left, self.top, self.right, self.bottom) = (left, top, right, bottom)
    (self.width, self.height, self.aspect) = (width, height, aspect)
    (self.position, self.clip) = (position, clip)
  }

  /// A crop worked out for one picture.
  public enum Plan: Sendable, Hashable {
    case fixed(Rectangle)
    /// These sides, wherever the content is best.
    case byContent(width: Int, height: Int)
  }

  /// Works the crop out for a picture of `w` × `h` pixels. Shares are of the side they lie along, rounded half up; a
  /// size is at least 1. What is left over around a centred part is halved, the larger half to the right and below.
  ///
  /// - Throws: `geometry` where the part does not lie within the picture and `clip` is false, or nothing would be left.
  public func plan(for w: Int, _ h: Int) throws(ImagingError) -> Plan {
    let across: Axis
    let down: Axis
    if let aspect {
      let sides = aspect.largest(within: w, h)
      (across, down) = (Axis(start: nil, length: sides.width), Axis(start: nil, length: sides.height))
    } else {
      across = try axis("width", left, right, width, of: w)
      down = try axis("height", top, bottom, height, of: h)
    }
    let isChosen = position == .attention || position == .entropy
    if isChosen, across.start == nil, down.start == nil, (across.length, down.length) != (w, h) {
      return .byContent(width: across.length, height: down.length)
    }
    let free = position.offset(across: w - across.length, down: h - down.length)
    return .fixed(
      Rectangle(x: across.start ?? free.x, y: down.start ?? free.y, width: across.length, height: down.length))
  }

  private struct Axis {
    /// nil where the position decides.
    var start: Int?
    var length: Int
  }

  private func axis(
    _ name: String, _ start: Length?, _ end: Length?, _ size: Length?, of whole: Int
  ) throws(ImagingError) -> Axis {
    let before = start?.pixels(of: whole) ?? 0
    let after = end?.pixels(of: whole) ?? 0
    guard before + after < whole else {
      throw ImagingError(.geometry, "cutting \(before + after) pixels from a \(name) of \(whole) leaves nothing")
    }
    guard let size else { return Axis(start: before, length: whole - before - after) }
    let room = whole - before - after
    var wanted = max(1, size.pixels(of: whole))
    // Two halves of an odd number, both rounded up, are one more than the whole.
    if wanted == room + 1, size.isShare, (start ?? end)?.isShare == true { wanted = room }
    guard wanted <= room || clip else {
      let beside = before + after > 0 ? " beside the \(before + after) that are cut" : ""
      throw ImagingError(
        .geometry, "a crop to a \(name) of \(wanted) pixels\(beside) does not lie within \(whole) pixels",
        hint: "\"clip\": true takes what there is")
    }
    let length = min(wanted, room)
    if start != nil { return Axis(start: before, length: length) }
    if end != nil { return Axis(start: whole - after - length, length: length) }
    return Axis(start: nil, length: length)
  }

  /// Width and height of what comes out of a picture of `w` × `h` pixels.
  ///
  /// - Throws: as `plan(for:)`.
  public func size(for w: Int, _ h: Int) throws(ImagingError) -> (width: Int, height: Int) {
    switch try plan(for: w, h) {
    case .fixed(let part): (part.width, part.height)
    case .byContent(let width, let height): (width, height)
    }
  }

  /// The rectangle to take from `image`, looking at its content where the position asks for it.
  ///
  /// - Throws: `geometry` as `plan(for:)`, `damaged`, `memory`.
  public func rectangle(of image: Image) throws(ImagingError) -> Rectangle {
    switch try plan(for: image.width, image.height) {
    case .fixed(let part): part
    case .byContent(let width, let height): try image.interestingPart(width: width, height: height, by: position)
    }
  }
}

extension Image {
  /// Where libvips finds the most detail (`entropy`) or interest (`attention`) for a part of these sides.
  ///
  /// - Throws: `geometry` where the part is larger than the picture.
  public func interestingPart(width: Int, height: Int, by position: Position) throws(ImagingError) -> Rectangle {
    guard width <= self.width, height <= self.height else {
      throw ImagingError(
        .geometry, "a crop of \(width)×\(height) does not lie within \(self.width)×\(self.height) pixels")
    }
    let still = try materialised()
    let interest = position == .entropy ? VIPS_INTERESTING_ENTROPY : VIPS_INTERESTING_ATTENTION
    let part = try vips("choosing a crop") {
      cvips_smartcrop(still.ref.pointer, $0, Int32(width), Int32(height), interest)
    }
    // A part knows where its picture's origin lies, seen from itself.
    let (x, y) = (-Int(vips_image_get_xoffset(part.pointer)), -Int(vips_image_get_yoffset(part.pointer)))
    guard x >= 0, y >= 0, x + width <= self.width, y + height <= self.height else {
      throw ImagingError(.internalFault, "the place of a crop chosen by content is not known")
    }
    return Rectangle(x: x, y: y, width: width, height: height)
  }

  /// The part that `rectangle` names.
  ///
  /// - Throws: `geometry` where it does not lie within the picture.
  public func cropped(to rectangle: Rectangle) throws(ImagingError) -> Image {
    guard rectangle != Rectangle(x: 0, y: 0, width: width, height: height) else { return self }
    return try cropped(x: rectangle.x, y: rectangle.y, width: rectangle.width, height: rectangle.height)
  }
}
