import Imaging
import Inference
import JobSyntax
import PipelineKit

/// Finds the subject and cuts it out, or gives its mask.
public struct Segment: Stage {
  /// Who finds the subject.
  enum Provider: String, FieldChoice {
    case local

    var help: String {
      switch self {
      case .local: "a model on this machine, through OpenVINO"
      }
    }
  }

  /// What happens when nothing was found.
  enum OnEmpty: String, FieldChoice {
    case fail, keep, clear

    var help: String {
      switch self {
      case .fail: "the item fails with nothing-found"
      case .keep: "the whole picture counts as the subject, with a warning"
      case .clear: "the whole picture counts as background, with a warning"
      }
    }
  }

  /// What the picture becomes.
  enum Output: String, FieldChoice {
    case cutout, mask

    var help: String {
      switch self {
      case .cutout: "the picture with the mask as straight alpha; colours stay as they are"
      case .mask: "the mask as a grey picture: white where the subject is"
      }
    }
  }

  static let provider = Field<Provider>.choice("provider", default: .local, help: "who finds the subject")
  static let model = Field<String>.text(
    "model", default: "u2netp", when: FieldCondition("provider", in: ["local"]),
    help: "a model of the catalogue; `pipeline models list` names them")
  static let precision = Field<Precision>.choice(
    "precision", default: .f32, when: FieldCondition("provider", in: ["local"]), help: "the arithmetic of the model")
  static let onEmpty = Field<OnEmpty>.choice(
    "onEmpty", default: .fail, help: "what happens when the model finds nothing")
  static let output = Field<Output>.choice("output", default: .cutout, help: "what the picture becomes")

  public static let spec = StageSpec(
    name: "segment", summary: "Finds the subject of the picture and cuts it out.",
    notes: [
      "The mask is as large as the picture and is kept as its matte. Transparency that a picture brings along stays: "
        + "the mask is multiplied into it.",
      "A mask is spread over the whole range from black to white, as rembg does it. Nothing was found when the model's "
        + "map is flat or, with u2netp, nowhere reaches a tenth; a picture without a subject may still give some mask.",
      "The model sees the picture's colours after its colour profile was applied. rembg ignores profiles, so masks of "
        + "pictures with a profile that is not sRGB can differ from rembg's.",
    ],
    fields: [provider, model, precision, onEmpty, output],
    examples: [
      #"{ "stage": "segment" }"#,
      #"{ "stage": "segment", "provider": "local", "model": "u2netp", "precision": "fast", "onEmpty": "keep" }"#,
      #"{ "stage": "segment", "output": "mask" }"#,
    ])

  public static func plan(_ settings: Settings) -> StagePlan {
    var plan = StagePlan(
      accepts: .picture, produces: settings[output] == .mask ? .matte : [.alpha, .matte],
      removes: settings[output] == .mask ? [.alpha, .encoded] : .encoded)
    // The picture without its alpha, the matte, and the picture with its new alpha.
    plan.workingBytes = { width, height in width * height * 8 }
    return plan
  }

  public static func check(_ settings: Settings) -> [Diagnostic] {
    let name = settings[model]
    guard !name.contains("${"), ModelCatalogue.named(name) == nil else { return [] }
    let names = ModelCatalogue.all.map(\.name)
    let near = NearestName.suggestion(for: name, among: names)
    return [
      settings.diagnostic(
        .error, "unknown-model", at: model, "unknown model \"\(name)\"",
        hint: near.map { "did you mean \"\($0)\"?" } ?? "known: " + names.joined(separator: ", "))
    ]
  }

  private let segmenter: any Segmenter
  private let onEmpty: OnEmpty
  private let output: Output

  public init(_ settings: Settings, resources: StageResources) throws(StageError) {
    switch settings[Self.provider] {
    case .local:
      segmenter = try LocalSegmenter(
        model: settings[Self.model], precision: settings[Self.precision], resources: resources)
    }
    onEmpty = settings[Self.onEmpty]
    output = settings[Self.output]
  }

  public func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    let picture = try item.image(in: context)
    let matte = if let found = try segmenter.matte(of: picture) { found } else { try emptyMatte(for: picture, context) }
    switch output {
    case .mask: return .next(item.with(image: matte, matte: matte, original: picture))
    case .cutout:
      // Left lazy: picture and matte are in memory, and joining them again when pixels are read costs next to nothing,
      // while the joined picture would take more than both.
      let cutout = try StageError.imaging { () throws(ImagingError) in try picture.multipliedAlpha(by: matte) }
      return .next(item.with(image: cutout, matte: matte, original: picture))
    }
  }

  private func emptyMatte(for picture: Image, _ context: StageContext) throws(StageError) -> Image {
    let level: UInt8
    switch onEmpty {
    case .fail:
      throw StageError(
        "nothing-found", "the model found no subject in the picture",
        hint: "\"onEmpty\": \"keep\" or \"clear\" would go on")
    case .keep:
      context.warn("nothing-found", "the model found no subject; the whole picture was kept")
      level = 255
    case .clear:
      context.warn("nothing-found", "the model found no subject; the whole picture was cleared")
      level = 0
    }
    return try StageError.imaging { () throws(ImagingError) in
      try Image(
        width: picture.width, height: picture.height, bands: 1,
        bytes: [UInt8](repeating: level, count: picture.width * picture.height))
    }
  }
}

/// Who finds the subject of a picture.
protocol Segmenter: Sendable {
  /// The matte of a picture: 1 band, its size, 255 on the subject; nil when nothing was found.
  func matte(of picture: Image) throws(StageError) -> Image?
}

extension Precision: FieldChoice {
  public var help: String {
    switch self {
    case .f32: "32-bit floats: masks agree across machines"
    case .fast:
      "8-bit integers for models that were measured in them (u2netp: some 55 per cent of the time), else bf16 where "
        + "the processor has it, else f32"
    }
  }
}
