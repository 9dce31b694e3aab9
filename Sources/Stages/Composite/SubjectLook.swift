import Imaging
import JobSyntax
import PipelineKit

/// Where and how the subject stands on its background.
struct SubjectLook: Sendable {
  static let position = Field<Position>.gravity(
    "position", help: "where the picture stands on the canvas, where there is room or it sticks out")
  static let scale = Field<Double>.number(
    "scale", in: 0.01...20, default: 1,
    help: "how large it stands: it is made to fit into this share of the canvas. Above 1 it sticks out and is cropped")
  static let enlarge = Field<Bool>.boolean(
    "enlarge", default: false, help: "whether it may be drawn with more pixels than it has")
  static let shiftX = Field<Double>.number(
    "shiftX", in: -2...2, default: 0,
    help: "how far it is moved to the right, as a part of the canvas' width; below 0, to the left")
  static let shiftY = Field<Double>.number(
    "shiftY", in: -2...2, default: 0,
    help: "how far it is moved down, as a part of the canvas' height; below 0, up")
  static let opacity = Field<Double>.number(
    "opacity", in: 0.01...1, default: 1, help: "how much of the background it covers: 1 is all")
  static let blend = Field<BlendMode>.choice(
    "blend", default: .over, help: "how its colours mix with those of the background")
  private static let fields: [any FieldDeclaration] = [position, scale, enlarge, shiftX, shiftY, opacity, blend]
  static let subject = Field<Settings>.object(
    "subject", ObjectShape(fields, atLeastOne: fields.map(\.name)), required: false,
    help: "where and how the picture stands on its background; what sticks out is cropped")

  static func check(_ subject: Settings, canvas: CompositeCanvas) -> [Diagnostic] {
    var findings = BlendMode.check(subject, at: blend, whatIsGone: "the subject")
    guard canvas == .picture else { return findings }
    let scale = subject[scale]
    if scale > 1, !subject[enlarge] {
      findings.append(
        subject.diagnostic(
          .error, "not-applicable", at: Self.scale, "the canvas is as large as the picture, which may not be enlarged",
          hint: "add \"enlarge\": true, or \"canvas\": \"background\" beside \"subject\""))
    }
    if scale <= 1, subject[enlarge] {
      findings.append(
        subject.diagnostic(
          .error, "not-applicable", at: enlarge, "nothing is enlarged: the canvas is as large as the picture",
          hint: "it goes with a \"scale\" above 1, or \"canvas\": \"background\" beside \"subject\""))
    }
    if scale == 1, subject.isSet(position) {
      findings.append(
        subject.diagnostic(
          .error, "not-applicable", at: position, "\"position\" has no meaning: the picture fills its canvas",
          hint: "give a \"scale\", use \"shiftX\" and \"shiftY\", or \"canvas\": \"background\" beside \"subject\""))
    }
    return findings
  }

  let blend: BlendMode
  let opacity: Double
  private let position: Position
  private let scale: Double
  private let enlarge: Bool
  private let shiftX: Double
  private let shiftY: Double

  init(_ subject: Settings) {
    (blend, opacity) = (subject[Self.blend], subject[Self.opacity])
    (position, scale, enlarge) = (subject[Self.position], subject[Self.scale], subject[Self.enlarge])
    (shiftX, shiftY) = (subject[Self.shiftX], subject[Self.shiftY])
  }

  /// Whether the subject is laid on as it is.
  var isPlain: Bool { blend == .over && opacity == 1 }

  /// Where a picture of `w` × `h` pixels stands. Sides and shifts are rounded half up; an odd pixel of what is left
  /// over around a centred picture goes to the right or below.
  ///
  /// - Throws: `geometry` where the scaled picture would be too large.
  func placement(of w: Int, _ h: Int, onCanvas width: Int, _ height: Int) throws(ImagingError) -> Placement {
    func part(_ share: Double, _ side: Int) -> Int { Int((share * Double(side) + 0.5).rounded(.down)) }
    let room = ResizeRequest(
      width: max(1, part(scale, width)), height: max(1, part(scale, height)), fit: .inside, enlarge: enlarge)
    let plan = try room.plan(for: w, h)
    let place = position.offset(across: width - plan.width, down: height - plan.height)
    return Placement(
      of: Rectangle(
        x: place.x + part(shiftX, width), y: place.y + part(shiftY, height), width: plan.width, height: plan.height),
      onCanvas: width, height)
  }
}

/// What the result's sides are.
enum CompositeCanvas: String, FieldChoice {
  case picture, background

  var help: String {
    switch self {
    case .picture: "those of the picture; the background is made to fit"
    case .background: "those of the background picture, the lowest among layers; the picture is made to fit"
    }
  }
}
