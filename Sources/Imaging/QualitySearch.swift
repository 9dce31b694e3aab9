import Glibc

/// Finds the quality setting of an encoder that meets a size or a likeness, with few encodes.
public enum QualitySearch {
  /// What a search for a size found.
  public enum Fit<Output> {
    /// The output at `quality` is within the limit, and at `quality + 1` it is not (or `quality` is the highest asked
    /// for).
    case fits(quality: Int, output: Output, encodes: Int)
    /// Not even the lowest quality asked for is within the limit; its output and its size.
    case doesNotFit(smallest: Output, bytes: Int, encodes: Int)
  }

  /// What a search for a likeness found.
  public struct Reach<Output> {
    public var quality: Int
    public var output: Output
    /// The score of `output`.
    public var similarity: Double
    /// Whether the target was met, to within the tolerance; if not, `quality` is the highest asked for.
    public var isReached: Bool
    public var encodes: Int
  }

  /// The highest quality whose output is no larger than `maxBytes`.
  ///
  /// Both the quality found and the next one up have been encoded, so that the one fits and the other does not holds
  /// whatever the encoder does. Where sizes do not rise steadily, a higher quality still may fit too.
  /// - Parameters:
  ///   - start: the first quality tried.
  ///   - size: the bytes of an output.
  ///   - encode: makes the output at a quality.
  public static func fitting<Output, E: Error>(
    maxBytes: Int, range: ClosedRange<Int> = 1...100, start: Int = 75, size: (Output) -> Int,
    encode: (Int) throws(E) -> Output
  ) throws(E) -> Fit<Output> {
    var best: (quality: Int, output: Output)?
    var smallest: (output: Output, bytes: Int)?
    let limit = log(Double(max(1, maxBytes)))
    let encodes = try bracket(range, start: start, slope: 0.62) { (quality) throws(E) in
      let output = try encode(quality)
      let bytes = size(output)
      if bytes <= maxBytes {
        best = (quality, output)
      } else if quality == range.lowerBound {
        smallest = (output, bytes)
      }
      return (bytes > maxBytes, log(Double(max(1, bytes))) - limit)
    }
    if let best { return .fits(quality: best.quality, output: best.output, encodes: encodes) }
    if let smallest { return .doesNotFit(smallest: smallest.output, bytes: smallest.bytes, encodes: encodes) }
    preconditionFailure("the search ended without having tried an end of its range")
  }

  /// The lowest quality whose output scores at least `similarity`.
  ///
  /// The quality below was encoded too, and does not reach it (unless the quality found is the lowest asked for). Where
  /// a step of quality is so coarse that the one found goes beyond the aim by more than `tolerance`, and the one below
  /// misses it by less, the one below is taken.
  /// - Parameters:
  ///   - similarity: 0…1.
  ///   - tolerance: how near to `similarity` counts as having met it.
  ///   - score: how like the original an output is, at most 1.
  public static func reaching<Output, E: Error>(
    similarity: Double, tolerance: Double = 0.005, range: ClosedRange<Int> = 30...95, start: Int = 75,
    encode: (Int) throws(E) -> Output, score: (Output) throws(E) -> Double
  ) throws(E) -> Reach<Output> {
    var best: (quality: Int, output: Output, score: Double)?
    var below: (quality: Int, output: Output, score: Double)?
    var highest: (output: Output, score: Double)?
    // What is lost falls about as a power of the quantiser, so it is searched for on a logarithmic scale.
    let goal = log(max(1e-6, 1 - similarity))
    let encodes = try bracket(range, start: start, slope: 0.9) { (quality) throws(E) in
      let output = try encode(quality)
      let found = try score(output)
      if found >= similarity {
        best = (quality, output, found)
      } else {
        if quality >= below?.quality ?? 0 { below = (quality, output, found) }
        if quality == range.upperBound { highest = (output, found) }
      }
      return (found >= similarity, goal - log(max(1e-6, 1 - found)))
    }
    if let best {
      if let below, below.quality == best.quality - 1, best.score - similarity > tolerance,
        similarity - below.score <= tolerance
      {
        return Reach(
          quality: below.quality, output: below.output, similarity: below.score, isReached: true, encodes: encodes)
      }
      return Reach(
        quality: best.quality, output: best.output, similarity: best.score, isReached: true, encodes: encodes)
    }
    if let highest {
      return Reach(
        quality: range.upperBound, output: highest.output, similarity: highest.score, isReached: false,
        encodes: encodes)
    }
    preconditionFailure("the search ended without having tried an end of its range")
  }

  /// Probes qualities until one that is not above the goal and one that is lie side by side, or an end of the range
  /// settles it. The last probe on either side is the one of that pair.
  ///
  /// - Parameters:
  ///   - slope: how fast the value usually rises along `scale`.
  ///   - probe: whether a quality is above the goal, and by how much: negative below, rising with the quality.
  /// - Returns: the number of probes.
  private static func bracket<E: Error>(
    _ range: ClosedRange<Int>, start: Int, slope: Double,
    _ probe: (Int) throws(E) -> (isAbove: Bool, value: Double)
  ) throws(E) -> Int {
    typealias Point = (quality: Int, value: Double)
    var below: Point?
    var above: Point?
    var last: Point?
    var slope = slope
    var count = 0
    var sinceHalved = 0
    var span = range.count
    var wasAbove: Bool?
    var quality = min(max(start, range.lowerBound), range.upperBound)
    while true {
      let (isAbove, value) = try probe(quality)
      count += 1
      // The slope seen so far is better than the usual one.
      if let last, last.quality != quality {
        let seen = (value - last.value) / (scale(quality) - scale(last.quality))
        if seen > 0.05 { slope = seen }
      }
      last = (quality, value)
      if isAbove { above = (quality, value) } else { below = (quality, value) }
      // The end that stays for a second time pulls only half as much, else the other would creep towards the goal
      // (the Illinois rule of the false position).
      if wasAbove == isAbove {
        if isAbove { below?.value /= 2 } else { above?.value /= 2 }
      }
      wasAbove = isAbove
      let lower = below?.quality ?? range.lowerBound - 1
      let upper = above?.quality ?? range.upperBound + 1
      guard upper - lower > 1 else { return count }
      sinceHalved = (upper - lower) * 2 <= span ? 0 : sinceHalved + 1
      span = upper - lower
      if sinceHalved >= 3 {
        quality = (lower + upper) / 2
        sinceHalved = 0
        continue
      }
      var guess: Double
      switch (below, above) {
      case (let low?, let high?) where high.value > low.value:
        let part = -low.value / (high.value - low.value)
        guess = scale(low.quality) + part * (scale(high.quality) - scale(low.quality))
      default: guess = scale(quality) - value / slope
      }
      guess = Self.quality(at: guess)
      // One beyond, so that the goal is between two probes soon.
      if above == nil { guess += 1 }
      if below == nil { guess -= 1 }
      quality = min(max(Int(guess.rounded()), lower + 1), upper - 1)
    }
  }

  /// A scale on which the logarithm of size and loss is nearly straight: minus the logarithm of the factor by which the
  /// Independent JPEG Group's encoder scales its quantisers. Other encoders' scales are near enough.
  private static func scale(_ quality: Int) -> Double {
    let factor = quality < 50 ? 50 / Double(quality) : 2 - Double(quality) / 50
    return -log(max(0.01, factor))
  }

  private static func quality(at scale: Double) -> Double {
    let factor = exp(-min(max(scale, -5), 5))
    return factor > 1 ? 50 / factor : 50 * (2 - factor)
  }
}

extension EncodeOptions {
  /// The quality setting, 1…100; nil where the options lose nothing or the format has no such setting.
  public var quality: Int? {
    switch self {
    case .jpeg(let o): o.quality
    case .webp(let o): o.lossless ? nil : o.quality
    case .avif(let o): o.quality
    case .jxl(let o): o.lossless ? nil : o.quality
    case .tiff(let o): o.compression == .jpeg ? o.quality : nil
    case .png, .gif: nil
    }
  }

  /// The same options at another quality.
  ///
  /// Chroma that is left to the encoder becomes 4:2:0: it would jump at quality 90, and sizes with it, so that the
  /// qualities on both sides could not be compared.
  public func searching(at quality: Int) -> EncodeOptions {
    switch self {
    case .jpeg(var o):
      o.quality = quality
      if o.chroma == .auto { o.chroma = .quarter }
      return .jpeg(o)
    case .webp(var o):
      o.quality = quality
      return .webp(o)
    case .avif(var o):
      o.quality = quality
      if o.chroma == .auto { o.chroma = .quarter }
      return .avif(o)
    case .jxl(var o):
      o.quality = quality
      return .jxl(o)
    case .tiff(var o):
      o.quality = quality
      return .tiff(o)
    case .png, .gif: return self
    }
  }
}

extension Image {
  /// Encodes at the highest quality in `range` whose file has at most `maxBytes`.
  ///
  /// Takes some five encodes. Chroma is fixed, see `EncodeOptions.searching`.
  /// - Throws: `encoder` where the options have no quality to search, and what `encoding` throws.
  public func fitting(
    maxBytes: Int, _ options: EncodeOptions, range: ClosedRange<Int> = 1...100,
    metadata: MetadataRequest = MetadataRequest(), arguments: [String: EncoderArgument.Value] = [:]
  ) throws(ImagingError) -> QualitySearch.Fit<Encoding> {
    let start = try options.startOfSearch()
    let still = try materialised()
    return try QualitySearch.fitting(maxBytes: maxBytes, range: range, start: start, size: { $0.bytes.count }) {
      (quality) throws(ImagingError) in
      try still.encoding(options.searching(at: quality), metadata: metadata, arguments: arguments)
    }
  }

  /// Encodes at the lowest quality in `range` whose decoded file is as like this picture as `similarity` says, by
  /// `StructuralSimilarity`.
  ///
  /// Takes some five encodes and as many decodes. Chroma is fixed, see `EncodeOptions.searching`.
  /// The frames of an animation count alike.
  /// - Throws: `encoder` where the options have no quality to search; what `encoding` throws.
  public func reaching(
    similarity: Double, _ options: EncodeOptions, range: ClosedRange<Int> = 30...95,
    metadata: MetadataRequest = MetadataRequest(), arguments: [String: EncoderArgument.Value] = [:]
  ) throws(ImagingError) -> QualitySearch.Reach<Encoding> {
    let start = try options.startOfSearch()
    let still = try inSpace(of: options.format).materialised()
    // Read back into the space it is in: two spaces cannot be compared number by number.
    let gamut: WorkingSpace.Gamut =
      switch still.space {
      case .srgb: .srgb
      case .displayP3: .displayP3
      case .embedded: .source
      }
    let times = options.format.isAnimated ? still.frameTimes : nil
    let reading = DecodeOptions(
      limits: .unlimited, frames: times == nil ? .first : .all, space: WorkingSpace(gamut: gamut))
    return try QualitySearch.reaching(similarity: similarity, range: range, start: start) {
      (quality) throws(ImagingError) in
      try still.encoding(options.searching(at: quality), metadata: metadata, arguments: arguments)
    } score: { (encoding) throws(ImagingError) in
      let file = try EncodedPicture(bytes: encoding.bytes, options: reading)
      guard let times else { return try StructuralSimilarity.mean(still, file.decode()) }
      return try StructuralSimilarity.mean(still, file.animation().standing(at: times).strip())
    }
  }

  /// When each frame of a strip begins, in milliseconds; nil for a picture that is none.
  private var frameTimes: [Int]? {
    guard let page = ref.int("page-height"), page > 0, page < height, height % page == 0 else { return nil }
    let delays = ref.ints("delay")
    var times = [0]
    for index in 1..<height / page {
      let delay = index <= delays.count ? delays[index - 1] : 0
      // As libvips' encoder of WebP has it.
      times.append(times[index - 1] + (delay <= 10 ? 100 : delay))
    }
    return times
  }
}

extension Animation {
  /// What is seen at each of these times, in milliseconds: encoders join frames that are the same into one that stands
  /// longer.
  fileprivate func standing(at times: [Int]) -> Animation {
    guard frames.count != times.count else { return self }
    var seen = Animation(frames: [], delays: [], loop: loop)
    var index = 0
    var end = delays.first ?? 0
    for time in times {
      while time >= end, index + 1 < frames.count {
        index += 1
        end += index < delays.count ? delays[index] : 0
      }
      seen.frames.append(frames[index])
      seen.delays.append(0)
    }
    return seen
  }
}

extension EncodeOptions {
  fileprivate func startOfSearch() throws(ImagingError) -> Int {
    guard let quality else {
      throw ImagingError(
        .encoder, "\(format.displayName) with these settings has no quality that could be searched for",
        hint: "use JPEG, WebP, AVIF or JPEG XL, and not lossless")
    }
    return quality
  }
}
