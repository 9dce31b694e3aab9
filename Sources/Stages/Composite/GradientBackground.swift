import Imaging
import JobSyntax
import PipelineKit

/// Colours that run into each other.
struct GradientBackground: BackgroundKind {
  static let kind = Field<GradientKind>.choice("kind", default: .linear, help: "how the colours run")
  static let from = Field<RGBA?>.color("from", help: "the first colour")
  static let to = Field<RGBA?>.color("to", help: "the last colour")
  static let stops = Field<[Gradient.Stop]>(
    "stops", type: .array(.object(ObjectShape([stopColor, stopPlace])), count: 2...64), absent: [],
    help: "two or more colours in order, instead of `from` and `to`"
  ) { node, file in
    node.arrayValue?.map { stop in
      let stop = Settings(reading: stop, shape: ObjectShape([stopColor, stopPlace]), file: file)
      let color = stop.isSet(stopColor) ? stop[stopColor] : nil
      return Gradient.Stop(color ?? .transparent, at: stop[stopPlace])
    }
  }
  // Required; read before lint has its say, so a value that is no colour reads as none.
  static let stopColor = Field<RGBA?>(
    "color", type: .text(.color), absent: nil, help: "the colour at this place"
  ) { node, _ in .some(node.stringValue.flatMap { RGBA(css: $0) }) }
  static let stopPlace = Field<Double?>.number(
    "at", in: 0...1, help: "the place along the gradient, 0 to 1; left out, it lies evenly between its neighbours")
  static let angle = Field<Double>.number(
    "angle", in: -360...360, default: 180, unit: "degrees", when: FieldCondition("kind", in: ["linear"]),
    help: "direction as in CSS, clockwise: 0 runs to the top, 90 to the right, 180 to the bottom")
  static let centerX = Field<Double>.number(
    "centerX", in: 0...1, default: 0.5, when: FieldCondition("kind", in: ["radial"]),
    help: "where the circle's centre lies, as a part of the width")
  static let centerY = Field<Double>.number(
    "centerY", in: 0...1, default: 0.5, when: FieldCondition("kind", in: ["radial"]),
    help: "where the circle's centre lies, as a part of the height")
  static let gradient = Field<Settings?>.optionalObject(
    "gradient", ObjectShape([kind, from, to, stops, angle, centerX, centerY], exactlyOne: ["from", "stops"]),
    help: "colours that run into each other, dithered so that they do not band")
  static var field: any FieldDeclaration { gradient }

  static func traits(_ background: Settings) -> BackgroundTraits {
    guard let gradient = background[gradient] else { return BackgroundTraits() }
    let colors = [gradient[from], gradient[to]].compactMap(\.self) + gradient[stops].map(\.color)
    return BackgroundTraits(isOpaque: colors.allSatisfy(\.isOpaque))
  }

  static func check(_ background: Settings) -> [Diagnostic] {
    guard let gradient = background[gradient] else { return [] }
    if gradient.isSet(stops) {
      guard !gradient.isSet(to) else {
        return [
          gradient.diagnostic(
            .error, "conflicting-keys", at: to, "\"to\" goes with \"from\"; \"stops\" names all colours")
        ]
      }
      // Places left out are spread evenly and can't fall.
      var last = 0.0
      for (index, stop) in gradient[stops].enumerated() {
        guard let place = stop.position else { continue }
        guard place >= last else {
          let node = gradient.nodes["stops"]?.arrayValue?[index]["at"]
          var finding = gradient.diagnostic(
            .error, "out-of-range", at: stops,
            "\"stops[\(index)].at\" is \(JSONText.number(place).rendered()), before the stop in front of it",
            hint: "list the stops in order")
          if let node { (finding.range, finding.path) = (node.range, node.path) }
          return [finding]
        }
        last = place
      }
    } else if gradient.isSet(from), !gradient.isSet(to) {
      return [
        gradient.diagnostic(
          .error, "missing-key", at: from, "\"from\" needs \"to\", the colour where the gradient ends")
      ]
    }
    return []
  }

  private let gradient: Gradient
  let isFixed = true

  init(_ background: Settings, _ resources: StageResources) throws(ImagingError) {
    guard let settings = background[Self.gradient] else {
      throw ImagingError(.internalFault, "a gradient without settings; the job was not checked")
    }
    var stops = settings[Self.stops]
    if stops.isEmpty { stops = [settings[Self.from], settings[Self.to]].compactMap(\.self).map { Gradient.Stop($0) } }
    let shape: Gradient.Shape =
      switch settings[Self.kind] {
      case .linear: .linear(angle: settings[Self.angle])
      case .radial: .radial(centerX: settings[Self.centerX], centerY: settings[Self.centerY])
      }
    gradient = try Gradient(shape, stops: stops)
  }

  func drawn(for scene: Scene) throws(ImagingError) -> Image? {
    try .gradient(gradient, width: scene.width, height: scene.height)
  }
}

/// How a gradient's colours run.
public enum GradientKind: String, FieldChoice {
  case linear, radial

  public var help: String {
    switch self {
    case .linear: "along a line from corner to corner"
    case .radial: "in circles, from a centre to the farthest corner"
    }
  }
}
