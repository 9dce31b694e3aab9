import Imaging
import Inference
import JobSyntax
import PipelineKit

/// Who finds the subject of a picture.
protocol Segmenter: Sendable {
  /// For messages: the model's name, or the service's.
  var name: String { get }

  /// What the masks depend on besides the picture and the settings, as far as it differs between machines and versions:
  /// masks that another maker made are not taken for this one's.
  var maker: String { get }

  /// All that its answers follow from besides the picture, where they are kept by themselves: its request, without
  /// credentials. Nil for one that keeps none.
  var request: String? { get }

  /// Begins to look for the subject of a picture, on the compute lane.
  ///
  /// - Parameters:
  ///   - item: whose picture it is.
  ///   - kept: where what was paid for is kept, for this segmenter alone; nil where nothing is.
  func begin(
    _ picture: Image, of item: Item, kept: KeptResults?, in context: StageContext
  ) throws(StageError) -> SegmenterStep
}

/// How far a segmenter has come.
enum SegmenterStep: Sendable {
  /// The mask, judged; nil when nothing was found.
  case found(FoundMatte?)
  /// The item ends here: nobody knows whether a call was carried out.
  case ended(Outcome)
  /// To go on on the network lane.
  case exchange(@Sendable (StageContext) throws(StageError) -> SegmenterStep)
  /// To go on on the compute lane.
  case compute(@Sendable (StageContext) throws(StageError) -> SegmenterStep)
}

extension Segmenter {
  var request: String? { nil }
}

/// A segmenter on this machine, which has its answer at once.
protocol LocalFinder: Segmenter {
  /// The mask of a picture's subject, judged; nil when nothing was found.
  func find(in picture: Image) throws(StageError) -> FoundMatte?
}

extension LocalFinder {
  func begin(
    _ picture: Image, of item: Item, kept: KeptResults?, in context: StageContext
  ) throws(StageError) -> SegmenterStep {
    .found(try find(in: picture))
  }
}

/// A mask and how far it can be trusted.
struct FoundMatte: Sendable {
  enum Pixels: Sendable {
    /// What a model on this machine says, at its own size: first all that was asked for, then class by class.
    case maps([NamedMaskMap], LocalSegmenter)
    /// 1 band, the picture's size, 255 on the subject.
    case image(Image)
    /// What a service says, at its own size.
    case mask(ServiceMask)
  }

  var pixels: Pixels
  /// Of all that was asked for.
  var record: MatteRecord
  /// Of each class that was found, where they are kept apart.
  var named: [MatteRecord] = []
  /// The colours that a service gives with its mask, of the mask's size: they take the place of the picture's.
  var replacement: Image?
  /// With `replacement`: the picture before it was cut out, of the same size; nil where what was left of it is not known.
  var original: Image?
}

/// What judging a mask may cost.
enum Judge: String, FieldChoice {
  case mask, flip

  var help: String {
    switch self {
    case .mask: "the mask itself, which costs about a millisecond"
    case .flip:
      "the model also sees the mirror image, which costs as long again, and the report tells as `flip` how far both "
        + "masks agree; the score stays the same, since this did not make it better"
    }
  }
}

/// A model on this machine, whose masks are judged.
struct JudgedModel: LocalFinder {
  let local: LocalSegmenter
  let isSeparate: Bool
  let judge: Judge

  var name: String { local.recipe.name }
  var maker: String { local.maker }

  func find(in picture: Image) throws(StageError) -> FoundMatte? {
    let maps = try local.maps(of: picture, separate: isSeparate)
    guard let first = maps.first, case .map(let values, _) = first.map else { return nil }
    var mirrored: [Float]?
    if judge == .flip {
      let mirror = try StageError.imaging { () throws(ImagingError) in
        try picture.flipped(.horizontal).materialised()
      }
      switch try local.maps(of: mirror, separate: false).first?.map {
      case .map(let values, _): mirrored = values
      case .nothingFound, nil: mirrored = [Float](repeating: 0, count: values.count)
      }
    }
    func record(_ map: NamedMaskMap, _ values: [Float], mirrored: [Float]? = nil) -> MatteRecord {
      let score = MatteScore(of: values, width: map.width, height: map.height, mirrored: mirrored)
      return MatteRecord(
        name: map.name, provider: "local", model: name, score: score.score, coverage: score.coverage,
        softness: score.softness, islands: score.islands, border: score.border, flip: score.flip)
    }
    let named = maps.dropFirst().compactMap { map -> MatteRecord? in
      if case .map(let values, _) = map.map { record(map, values) } else { nil }
    }
    return FoundMatte(pixels: .maps(maps, local), record: record(first, values, mirrored: mirrored), named: named)
  }
}

extension Segment {
  /// - Parameter isSpare: whether it may never be asked: it is then made when it is, after a look at what it needs.
  static func segmenter(
    _ settings: Settings, judge: Judge, isSpare: Bool, resources: StageResources
  ) throws(StageError) -> any Segmenter {
    switch settings[provider] {
    case .local:
      let choice = ModelChoice(settings, precision: settings[precision])
      @Sendable func make() throws(StageError) -> any Segmenter {
        JudgedModel(
          local: try LocalSegmenter(choice, isSpare: isSpare, resources: resources), isSeparate: choice.isSeparate,
          judge: judge)
      }
      guard isSpare else { return try make() }
      try LocalSegmenter.check(choice, resources: resources)
      return SpareSegmenter(name: choice.name, make: make)
    case .removebg: return try RemoveBG(settings, resources: resources)
    case .rembg: return try RembgServer(settings, resources: resources)
    case .http: return try HTTPSegmenter(settings, resources: resources)
    }
  }
}
