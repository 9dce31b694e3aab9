import Imaging
import JobSyntax
import PipelineKit

/// A picture file, scaled to each canvas.
struct ImageBackground: BackgroundKind {
  static let path = Field<String>.text(
    "path", .path, default: nil, help: "the picture file, not SVG, seen from the job file")
  static let imageFit = Field<BackgroundFit>.choice("fit", default: .cover, help: "how it fills the picture's sides")
  static let imagePosition = Field<Position>.choice(
    "position", default: .centre, when: FieldCondition("fit", in: ["cover", "contain"]),
    help: "which part stays when `cover` crops, or where it stands when `contain` pads")
  static let imageBehind = Field<RGBA>.color(
    "color", default: "white", when: FieldCondition("fit", in: ["contain"]), help: "what `contain` fills the rest with"
  )
  static let image = Field<Settings?>.optionalObject(
    "image", ObjectShape([path, imageFit, imagePosition, imageBehind]),
    help: "a picture, scaled to each picture's sides; it is enlarged where it has to be")
  static var field: any FieldDeclaration { image }

  static func traits(_ background: Settings) -> BackgroundTraits {
    guard let image = background[image] else { return BackgroundTraits() }
    // Whether the file has transparency is seen when it is read.
    return BackgroundTraits(
      isOpaque: image[imageFit] != .contain || image[imageBehind].isOpaque, helperFiles: [image[path]])
  }

  static func check(_ background: Settings) -> [Diagnostic] {
    guard let image = background[image] else { return [] }
    let position = image[imagePosition]
    guard image[imageFit] == .contain, position == .entropy || position == .attention else { return [] }
    return [
      image.diagnostic(
        .error, "not-applicable", at: imagePosition,
        "position \"\(position.rawValue)\" chooses a crop; fit \"contain\" does not crop",
        hint: "use fit \"cover\", or a side or corner as position")
    ]
  }

  private let image: Image
  private let request: ResizeRequest
  let isFixed = true
  var ownSize: (width: Int, height: Int)? { (image.width, image.height) }

  init(_ background: Settings, _ resources: StageResources) throws(ImagingError) {
    guard let settings = background[Self.image] else {
      throw ImagingError(.internalFault, "a background picture without settings; the job was not checked")
    }
    image = try BackgroundFile.picture(settings[Self.path], resources)
    let fit: Fit =
      switch settings[Self.imageFit] {
      case .cover: .cover
      case .contain: .contain
      case .fill: .fill
      }
    request = ResizeRequest(
      fit: fit, position: settings[Self.imagePosition], background: settings[Self.imageBehind], enlarge: true)
  }

  func drawn(for scene: Scene) throws(ImagingError) -> Image? {
    var request = request
    (request.width, request.height) = (scene.width, scene.height)
    return try image.resized(request.plan(for: image.width, image.height))
  }
}

/// How a background picture fills the sides.
public enum BackgroundFit: String, FieldChoice {
  case cover, contain, fill

  public var help: String {
    switch self {
    case .cover: "covers the sides, and what sticks out is cropped"
    case .contain: "fits within the sides, and the rest is filled with a colour"
    case .fill: "stretched to the sides; the ratio may change"
    }
  }
}
