import Imaging
import PipelineKit

/// The order of a run's stages: a chain, whose last stage may send its result down several tails, and so on.
struct ChainTree: Sendable {
  private let stages: [ExecutableStage]
  /// The stages that take each stage's result, in the order they are gone to: none at the end of a tail, and several
  /// after a branch.
  private let successors: [[Int]]
  /// Whether a stage, or any that goes on with its result, works on pixels.
  private let needsPixels: [Bool]
  private let needsMatte: [Bool]

  init(_ stages: [ExecutableStage]) {
    self.stages = stages
    var successors = [[Int]](repeating: [], count: stages.count)
    for index in stages.indices.dropFirst() { successors[stages[index].predecessor ?? index - 1].append(index) }
    let pixels: ItemTraits = [.picture, .alpha, .matte]
    func needs(_ traits: ItemTraits, orSizeIsAsked: Bool) -> [Bool] {
      var needs = [Bool](repeating: false, count: stages.count)
      for index in stages.indices.reversed() {
        let stage = stages[index]
        let asked = stage.plan.accepts.union(stage.plan.acceptsAny).union(stage.plan.uses)
        needs[index] =
          !asked.isDisjoint(with: traits) || orSizeIsAsked && stage.asksForSize
          || successors[index].contains { needs[$0] }
      }
      return needs
    }
    needsPixels = needs(pixels, orSizeIsAsked: true)
    needsMatte = needs([.alpha, .matte], orSizeIsAsked: false)
    self.successors = successors
  }

  /// The stages that take the result of one.
  func successors(of stage: Int) -> [Int] { successors[stage] }

  /// The item without what neither a stage nor any that goes on with its result asks for.
  func released(_ item: Item, for stage: Int) -> Item {
    guard needsPixels[stage] else { return item.releasingPixels() }
    return needsMatte[stage] ? item : item.releasingMatte()
  }

  /// The most bytes that the rest of an item's way holds at one time.
  ///
  /// - Parameters:
  ///   - first: the stage that comes next.
  ///   - pending: where the tails begin that come after; they hold nothing yet.
  func estimate(_ source: EncodedPicture, from first: Int, pending: [Int] = []) -> Int {
    // The other decoders hold the whole picture, however small it becomes.
    let streamed: [PictureFormat] = [.jpeg, .png, .tiff]
    let space = source.options.space.depth
    let frames = source.isAnimation ? source.header.frames : 1
    let measure = Measure(
      isDeep: space == .sixteen || space == .source && source.header.bitsPerSample > 8,
      frames: frames,
      // What is stored in passes over the whole picture is held by the decoder.
      isStreamed: streamed.contains(source.header.format) && !source.header.isProgressive && frames == 1,
      decoder: source.header.decoderBytes)
    let size = (source.header.orientedWidth, source.header.orientedHeight)
    let peaks = ([first] + pending).map { peak(from: $0, size, isOpened: true, hasMatte: false, measure) }
    return (peaks.max() ?? 0) + source.bytes.count
  }

  private struct Measure {
    var isDeep: Bool
    var frames: Int
    var isStreamed: Bool
    /// What the decoder holds beside the pixels it gives.
    var decoder: Int
  }

  /// - Parameters:
  ///   - isOpened: whether the picture is opened and not decoded yet.
  ///   - hasMatte: whether it was cut out, and what it was cut from may be held beside it.
  private func peak(
    from first: Int, _ size: (Int, Int), isOpened: Bool, hasMatte: Bool, _ measure: Measure
  ) -> Int {
    var (width, height) = size
    var (isOpened, hasMatte) = (isOpened, hasMatte)
    var peak = 0
    var index = first
    while true {
      let stage = stages[index]
      let result = stage.plan.resultSize?(width, height) ?? (width, height)
      // A resize straight after decode reads the source in strips, where its decoder gives strips; only the result is
      // held then.
      let isStreamed = isOpened && stage.plan.shrinksOnLoad && measure.isStreamed && stage.condition == nil
      // Nothing is decoded for a look at the header.
      let isUntouched =
        isOpened
        && (stage.plan.filter != nil || stage.plan.accepts == .source && stage.plan.produces.contains(.picture))
      let held = isUntouched ? (0, 0) : isStreamed ? result : (max(width, result.0), max(height, result.1))
      let pixels = held.0 * held.1 * (measure.isDeep ? 8 : 4)
      let work = stage.plan.workingBytes(result.0, result.1) * (measure.isDeep ? 2 : 1)
      // Of an animation a stage holds all frames as they were until it has made all anew.
      let copies = measure.frames > 1 ? 2 * measure.frames : 1
      let decoder = isOpened && !isUntouched ? measure.decoder : 0
      peak = max(peak, decoder + pixels * copies + work * (stage.plan.frames == .together ? measure.frames : 1))
      // A stage that is passed over leaves the picture as large as it was.
      if stage.condition == nil || result.0 * result.1 > width * height { (width, height) = result }
      isOpened = stage.plan.accepts == .source && (isOpened || stage.plan.produces.contains(.picture))
      hasMatte = hasMatte || !stage.plan.produces.isDisjoint(with: [.alpha, .matte])
      let next = successors[index]
      guard next.count <= 1 else {
        return max(peak, tails(next, (width, height), isOpened: isOpened, hasMatte: hasMatte, measure))
      }
      guard let one = next.first else { return peak }
      index = one
    }
  }

  /// The most that the tails of a branch hold, gone down one after another: each, and what those to come still need.
  private func tails(
    _ heads: [Int], _ size: (Int, Int), isOpened: Bool, hasMatte: Bool, _ measure: Measure
  ) -> Int {
    var peak = 0
    // From the last to the first: that is when it is known what later ones hold.
    var kept = 0
    for head in heads.reversed() {
      peak = max(peak, kept + self.peak(from: head, size, isOpened: isOpened, hasMatte: hasMatte, measure))
      if needsPixels[head] {
        // The picture; and what it was cut from, with its mask.
        let perPixel = 4 + (hasMatte && needsMatte[head] ? 5 : 0)
        kept = max(kept, size.0 * size.1 * perPixel * (measure.isDeep ? 2 : 1) * measure.frames)
      }
    }
    return peak
  }
}

extension ExecutableStage {
  /// Whether the item's sides must be known when the stage's turn comes.
  var asksForSize: Bool {
    [condition, plan.filter?.condition].contains { $0?.subjects.contains(where: \.isOfSize) ?? false }
  }
}
