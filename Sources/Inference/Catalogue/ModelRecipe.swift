/// How a picture becomes a model's input and the model's output a mask: all that is particular to one model, as data.
///
/// The steps and their order are those of rembg's sessions (danielgatis/rembg, `rembg/sessions`): the picture is
/// stretched to the input's size, divided (`scaling`), normalised with `mean` and `deviation`, laid out; of the
/// output one map is chosen, `activation` applied, and the map spread over 0…1 (`normalisation`).
public struct ModelRecipe: Sendable, Hashable {
  /// What 8-bit samples are divided by.
  public enum Scaling: Sendable, Hashable {
    /// The largest sample of the resized picture, all channels together, and at least 1e-6.
    case maximum
    case fixed(Double)
  }

  public enum Layout: String, Sendable, CaseIterable {
    /// Planes: batch, channel, row, column.
    case nchw
    /// Interleaved: batch, row, column, channel.
    case nhwc
  }

  public enum ChannelOrder: String, Sendable, CaseIterable {
    case rgb, bgr
  }

  /// How pictures are stretched to the input's size.
  public enum Resampling: String, Sendable, CaseIterable {
    case lanczos, bilinear, area
  }

  public enum Activation: String, Sendable, CaseIterable {
    /// The model ends in one already, or needs none.
    case none
    /// For maps of logits.
    case sigmoid
    /// Over all channels of a pixel, for scores of exclusive classes.
    case softmax
  }

  /// Which of the output's channels says "subject".
  public enum Subject: Sendable, Hashable {
    case channel(Int)
    /// All that is not this channel: 1 − its value.
    case allBut(Int)
  }

  public enum Normalisation: String, Sendable {
    /// The map's smallest value becomes 0, its largest 1.
    case minimumToMaximum
    /// Values are used as they are, cut to 0…1.
    case none
  }

  /// An input size that follows the picture's (MODNet: ZHKKKe/MODNet, `onnx/inference_onnx.py`).
  ///
  /// A picture with both sides below `reference`, or both above it, is scaled so that its shorter side is `reference`;
  /// then both sides are cut to a multiple of `multiple`, but to no less than one, and to no more than `most`.
  public struct SizeRule: Sendable, Hashable {
    public var reference: Int
    public var multiple: Int
    /// The longest side in pixels. MODNet has no such limit, and a panorama would ask for gigabytes.
    public var most: Int

    public init(reference: Int, multiple: Int, most: Int = 2048) {
      self.reference = reference
      self.multiple = multiple
      self.most = most
    }

    /// The input's size for a picture of `width` × `height` pixels.
    public func size(forWidth width: Int, height: Int) -> (width: Int, height: Int) {
      var (newWidth, newHeight) = (width, height)
      if max(width, height) < reference || min(width, height) > reference {
        if width >= height {
          newHeight = reference
          newWidth = Int(min(Double(width) / Double(height) * Double(reference), Double(most)))
        } else {
          newWidth = reference
          newHeight = Int(min(Double(height) / Double(width) * Double(reference), Double(most)))
        }
      }
      func cut(_ side: Int) -> Int { max(min(side, most) / multiple, 1) * multiple }
      return (cut(newWidth), cut(newHeight))
    }
  }

  /// What values between 0 and 1 mean.
  public enum Greys: String, Sendable, CaseIterable {
    /// How much of the pixel is subject, as models of matting say it.
    case alpha
    /// How sure the model is, as those trained on masks of black and white say it.
    case doubt
  }

  /// The output tensor that holds the map.
  public struct Output: Sendable, Hashable {
    /// Its place among the model's outputs.
    public var index: Int
    public var layout: Layout
    public var channels: Int
    public var subject: Subject
    /// Its size in pixels; nil where it is the input's.
    public var width: Int?
    public var height: Int?
    /// What each channel scores, for a model of classes; empty for a matte.
    public var labels: [String]

    public init(
      index: Int = 0, layout: Layout = .nchw, channels: Int = 1, subject: Subject = .channel(0), width: Int? = nil,
      height: Int? = nil, labels: [String] = []
    ) {
      self.index = index
      self.layout = layout
      self.channels = channels
      self.subject = subject
      self.width = width
      self.height = height
      self.labels = labels
    }
  }

  /// The name that jobs use.
  public var name: String
  /// The name of its file in a models folder.
  public var fileName: String
  /// Published checksums, lower-case hexadecimal; a file with neither is pinned on first use and shown as unverified.
  public var sha256: String?
  public var md5: String?
  /// The address of the file; nil where it has none that a program can fetch.
  public var url: String?
  /// Where the file is published, in words.
  public var source: String
  /// The licence that its publisher states.
  public var licence: String
  /// Whether this recipe was run with its file.
  public var tested: Bool
  /// What a user should know before choosing it.
  public var note: String?

  /// The input's size in pixels; with a `sizeRule`, the reference size.
  public var width: Int
  public var height: Int
  /// How the input's size follows the picture's; nil where it is fixed.
  public var sizeRule: SizeRule?
  public var layout: Layout
  public var channelOrder: ChannelOrder
  public var resampling: Resampling
  public var scaling: Scaling
  /// Subtracted after scaling, one for each of the model's channels in the model's order.
  public var mean: [Double]
  /// Divided by afterwards, likewise.
  public var deviation: [Double]

  public var output: Output
  public var activation: Activation
  public var normalisation: Normalisation
  /// A map whose peak is below this (after activation, before normalisation) says that nothing was found.
  public var emptyBelow: Float
  public var greys: Greys

  public init(
    name: String, fileName: String, sha256: String? = nil, md5: String? = nil, url: String? = nil, source: String,
    licence: String, tested: Bool = false, note: String? = nil, width: Int, height: Int, sizeRule: SizeRule? = nil,
    layout: Layout = .nchw, channelOrder: ChannelOrder = .rgb, resampling: Resampling = .lanczos,
    scaling: Scaling = .maximum, mean: [Double], deviation: [Double], output: Output = Output(),
    activation: Activation = .none, normalisation: Normalisation = .minimumToMaximum, emptyBelow: Float = 0,
    greys: Greys = .alpha
  ) {
    self.name = name
    self.fileName = fileName
    self.sha256 = sha256
    self.md5 = md5
    self.url = url
    self.source = source
    self.licence = licence
    self.tested = tested
    self.note = note
    self.width = width
    self.height = height
    self.sizeRule = sizeRule
    self.layout = layout
    self.channelOrder = channelOrder
    self.resampling = resampling
    self.scaling = scaling
    self.mean = mean
    self.deviation = deviation
    self.output = output
    self.activation = activation
    self.normalisation = normalisation
    self.emptyBelow = emptyBelow
    self.greys = greys
  }

  /// Whether a checksum says which file the model is.
  public var hasChecksum: Bool { sha256 != nil || md5 != nil }

  /// Number of values in the model's input, at `width` × `height`.
  public var inputCount: Int { width * height * 3 }

  /// Number of values in the output that holds the map, for an input of `width` × `height`.
  public var outputCount: Int {
    let size = outputSize(forInputWidth: width, height: height)
    return size.width * size.height * output.channels
  }

  /// The input's size in pixels for a picture of `width` × `height`.
  public func inputSize(forWidth width: Int, height: Int) -> (width: Int, height: Int) {
    sizeRule?.size(forWidth: width, height: height) ?? (self.width, self.height)
  }

  /// The map's size in pixels for an input of that size.
  public func outputSize(forInputWidth width: Int, height: Int) -> (width: Int, height: Int) {
    (output.width ?? width, output.height ?? height)
  }

  /// The input's dimensions.
  func inputShape(width: Int, height: Int) -> [Int64] {
    switch layout {
    case .nchw: [1, 3, Int64(height), Int64(width)]
    case .nhwc: [1, Int64(height), Int64(width), 3]
    }
  }

  /// Whether an output of this shape holds the map: flat, or in the recipe's layout, sides of 1 left out of account.
  func takes(outputShape shape: [Int64], width: Int, height: Int) -> Bool {
    let size = outputSize(forInputWidth: width, height: height)
    let sides = [size.height, size.width].map { Int64($0) }
    let wanted = output.layout == .nchw ? [Int64(output.channels)] + sides : sides + [Int64(output.channels)]
    let found = shape.filter { $0 != 1 }
    return found == wanted.filter { $0 != 1 } || (found.count <= 1 && shape.reduce(1, *) == wanted.reduce(1, *))
  }
}
