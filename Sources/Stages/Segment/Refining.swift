import Imaging
import Inference
import JobSyntax
import PipelineKit

/// How a mask becomes as large as the picture.
enum Refine: Sendable, Hashable {
  case automatic, edges, levels, off

  /// Of a picture's longer side to the model's: from here on a mask that was merely enlarged looks soft.
  static let ratio = 1.5

  /// For a map of that size, whose greys mean that, over a picture; nil for the model's own map, enlarged.
  func refinement(of map: MatteMap, _ greys: ModelRecipe.Greys, over picture: Image) -> MatteRefinement? {
    let followsEdges: Bool
    switch self {
    case .off: return nil
    case .levels: followsEdges = false
    case .edges: followsEdges = true
    case .automatic:
      followsEdges = Double(max(picture.width, picture.height)) > Self.ratio * Double(max(map.width, map.height))
    }
    switch greys {
    case .doubt: return MatteRefinement(levels: .saliency(followingEdges: followsEdges), followsEdges: followsEdges)
    case .alpha: return followsEdges ? MatteRefinement(levels: nil, followsEdges: true) : nil
    }
  }
}

/// How closely the model looks.
enum Detail: String, FieldChoice {
  case whole, tiles

  var help: String {
    switch self {
    case .whole: "at the whole picture, once"
    case .tiles:
      "also at up to nine crops along the edge, half of the longer side each, where the picture has twice the "
        + "model's sides or more; what they show counts where it fits the mask of the whole. Each costs as long as the "
        + "whole picture"
    }
  }
}

extension Segment {
  static let refine = Field<Refine>(
    "refine",
    type: .oneOf([
      .boolean,
      .choice([
        Choice("auto", "true where the picture's longer side is more than 1.5 times the model's, else `levels`"),
        Choice(
          "levels", "only weighs the greys of models that answer with doubt, such as u2netp, by the picture's colours"),
      ]),
    ]),
    absent: .automatic, defaultText: .string("auto"),
    help:
      "whether the mask follows the picture's edges at full size, which shows hair and soft edges where subject and "
      + "background differ in colour; false gives the model's mask enlarged, as rembg has it; costs some 3 ms a megapixel"
      + " and 15 ms a picture"
  ) { node, _ in
    if let isOn = node.boolValue { return isOn ? .edges : .off }
    return node.stringValue == "levels" ? .levels : .automatic
  }
  static let detail = Field<Detail>.choice(
    "detail", default: .whole, when: FieldCondition("provider", in: ["local"]), help: "how closely the model looks")
  static let decontaminate = Field<Bool>.boolean(
    "decontaminate", default: true, when: FieldCondition("output", in: ["cutout"]),
    help:
      "takes the old background out of the colours of soft edges, so that none of it shows on a new one; opaque pixels "
      + "stay as they are, bit by bit; false leaves all colours; costs some 30 ms a picture and 2 ms a megapixel")
}

extension Image {
  /// The picture with a matte as transparency, multiplied into what it has, and the old background taken out of the
  /// colours of soft edges where asked.
  func cutOut(by matte: Image, cleaningColours: Bool) throws(ImagingError) -> Image {
    try (cleaningColours ? withForegroundColours(under: matte) : self).multipliedAlpha(by: matte)
  }
}

/// What becomes of the maps of a model on the way to mattes as large as the picture.
struct MatteFinish: Sendable {
  var refine: Refine
  var detail: Detail

  init(_ settings: Settings) {
    refine = settings[Segment.refine]
    detail = settings[Segment.detail]
  }

  /// The matte of all that was asked for, and of each class that is kept apart.
  ///
  /// - Throws: what the model throws for a crop, and what the picture's pixels do.
  func mattes(
    of found: FoundMatte, over picture: Image
  ) throws(StageError) -> (whole: Image, named: [(name: String, matte: Image)]) {
    switch found.pixels {
    case .image(let image): return (image, [])
    case .mask(let mask): return (try matte(mask, over: found.replacement ?? picture), [])
    case .maps(let maps, let model):
      guard let first = maps.first else {
        throw StageError("internal-fault", "a mask was judged that is not there")
      }
      let whole = try matte(first, model, over: picture)
      var named: [(name: String, matte: Image)] = []
      for map in maps.dropFirst() {
        guard let name = map.name else { continue }
        // A class that was asked for and is not in the picture has a mask too, a black one: a later stage that takes it
        // up must not fail for it.
        guard case .map = map.map else {
          let black = try StageError.imaging { () throws(ImagingError) in
            try Image.mask(0, picture.width, picture.height)
          }
          named.append((name, black))
          continue
        }
        named.append((name, try matte(map, model, over: picture)))
      }
      return (whole, named)
    }
  }

  /// A service's mask at the picture's size; one that has it already is left as it is.
  private func matte(_ mask: ServiceMask, over picture: Image) throws(StageError) -> Image {
    let (width, height) = (picture.width, picture.height)
    return try StageError.imaging { () throws(ImagingError) in
      if (mask.width, mask.height) == (width, height) {
        return try Image(width: width, height: height, bands: 1, bytes: mask.bytes)
      }
      let map = MatteMap(width: mask.width, height: mask.height, values: mask.bytes.map { Float($0) / 255 })
      if mask.width < width, let refinement = refine.refinement(of: map, .alpha, over: picture) {
        return try refinement.matte(map, of: picture)
      }
      return try Image(
        width: width, height: height, bands: 1,
        bytes: LanczosResampler.resize(
          mask.bytes, width: mask.width, height: mask.height, bands: 1, toWidth: width, toHeight: height))
    }
  }

  private func matte(
    _ found: NamedMaskMap, _ model: LocalSegmenter, over picture: Image
  ) throws(StageError) -> Image {
    guard case .map(let values, _) = found.map else {
      throw StageError("internal-fault", "a mask was judged that is not there")
    }
    var map = MatteMap(width: found.width, height: found.height, values: values)
    // Chosen by what the model saw of the whole picture: a finer map does not make its edges finer than the pixels.
    let refinement = refine.refinement(of: map, model.recipe.greys, over: picture)
    var isDetailed = false
    if detail == .tiles {
      let result = try DetailTiles.refined(map, width: picture.width, height: picture.height) {
        (part) throws(StageError) in
        let crop = try StageError.imaging { () throws(ImagingError) in
          try picture.cropped(x: part.x, y: part.y, width: part.width, height: part.height).materialised()
        }
        let seen = try model.maps(of: crop, separate: found.name != nil).first { $0.name == found.name }
        guard let seen, case .map(let values, _) = seen.map else { return nil }
        return MatteMap(width: seen.width, height: seen.height, values: values)
      }
      map = result.map
      isDetailed = result.tiles > 0
    }
    guard let refinement = refinement ?? (isDetailed ? MatteRefinement(levels: nil, followsEdges: false) : nil) else {
      guard let matte = try LocalSegmenter.stretched(found, over: picture) else {
        throw StageError("internal-fault", "a mask was judged that is not there")
      }
      return matte
    }
    return try StageError.imaging { () throws(ImagingError) in try refinement.matte(map, of: picture) }
  }
}
