import Imaging
import JobSyntax
import PipelineKit
import Stages
import Testing

/// What the tests of the stages that move pixels share.
extension StageBench {
  /// A cut-out, its mask and its photo in which every pixel says where it came from; transparent outside `subject`.
  func cutout(_ width: Int, _ height: Int, subject: Rectangle) throws -> Item {
    func isSubject(_ x: Int, _ y: Int) -> Bool {
      (subject.x..<subject.x + subject.width).contains(x) && (subject.y..<subject.y + subject.height).contains(y)
    }
    let picture = try Pictures.image(width, height, bands: 4) { x, y in
      [UInt8(x), UInt8(y), 9, isSubject(x, y) ? 255 : 0]
    }
    let matte = try Pictures.image(width, height, bands: 1) { x, y in [isSubject(x, y) ? 255 : 0] }
    let original = try Pictures.image(width, height) { x, y in [UInt8(x), UInt8(y), 7] }
    return item(picture).with(image: picture, matte: matte, original: original)
  }

  /// Frames of one size, each a function of its number and the place.
  func animation(_ count: Int, _ width: Int, _ height: Int, _ pixel: (Int, Int, Int) -> [UInt8]) throws -> Item {
    let frames = try (0..<count).map { frame in
      ItemFrames.Frame(image: try Pictures.image(width, height) { x, y in pixel(frame, x, y) })
    }
    let item = item(frames[0].image)
    return item.with(
      animation: ItemFrames(frames: frames, delays: (0..<count).map { 10 * ($0 + 1) }, loop: 3))
  }

  /// Runs a stage as the executor would: frame by frame, or all at once, as its plan says.
  func run<S: Stage>(
    _ type: S.Type, _ json: String, _ item: Item, journal: ItemJournal = ItemJournal()
  ) throws -> Item {
    let handling = S.plan(try Self.settings(type, json)).frames
    let outcome = try make(type, json).processFrames(item, handling, in: context(S.spec.name, journal: journal))
    guard case .next(let result) = outcome else { throw StageError("test", "the stage did not pass the item on") }
    return result
  }

  /// The codes and fields of what lint says.
  static func findings<S: Stage>(_ type: S.Type, _ members: String) throws -> [String] {
    try lint(type, "{ \"stage\": \"\(S.spec.name)\"\(members.isEmpty ? "" : ", ")\(members) }").map(\.code)
  }
}

extension Item {
  /// The frames of an animation, or the one picture.
  func frames() throws -> [ItemFrames.Frame] {
    if case .animation(let animation) = picture { return animation.frames }
    return [.init(image: try image(), matte: matte, original: original)]
  }
}

extension Image {
  func pixel(_ x: Int, _ y: Int) throws -> [UInt8] {
    let all = try bytes()
    let start = (y * width + x) * bands
    return Array(all[start..<start + bands])
  }
}
