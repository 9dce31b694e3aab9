/// How a picture becomes a model's input and the model's output a mask: all that is particular to one model, as data.
///
/// The steps and their order are those of rembg's sessions (danielgatis/rembg, `rembg/sessions`): the picture is
/// stretched to `width` × `height`, divided (`scaling`), normalised with `mean` and `deviation`, laid out; of the
/// output one map is chosen, `activation` applied, and the map spread over 0…1 (`normalisation`).
public struct ModelRecipe: Sendable, Hashable {
  /// What 8-bit samples are divided by.
  public enum Scaling: Sendable, Hashable {
    /// The largest sample of the resized picture, all channels together, and at least 1e-6.
    case maximum
    case fixed(Double)
  }

  public enum Layout: String, Sendable {
    /// Planes: batch, channel, row, column.
    case nchw
    /// Interleaved: batch, row, column, channel.
    case nhwc
  }

  public enum ChannelOrder: String, Sendable {
    case rgb, bgr
  }

  public enum Activation: String, Sendable {
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

  /// The output tensor that holds the map.
  public struct Output: Sendable, Hashable {
    /// Its place among the model's outputs.
    public var index: Int
    public var layout: Layout
    public var channels: Int
    public var subject: Subject

    public init(index: Int = 0, layout: Layout = .nchw, channels: Int = 1, subject: Subject = .channel(0)) {
      self.index = index
      self.layout = layout
      self.channels = channels
      self.subject = subject
    }
  }

  /// The name that jobs use.
  public var name: String
  /// The name of its file in a models folder.
  public var fileName: String
  /// Published checksums, lower-case hexadecimal; a file with neither is used as it is and shown as unverified.
  public var sha256: String?
  public var md5: String?
  /// Where the file is published.
  public var source: String
  /// The licence that its publisher states.
  public var licence: String
  /// Whether this recipe was run with its file against the reference.
  public var tested: Bool

  /// The input's size in pixels; output maps have the same.
  public var width: Int
  public var height: Int
  public var layout: Layout
  public var channelOrder: ChannelOrder
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

  public init(
    name: String, fileName: String, sha256: String? = nil, md5: String? = nil, source: String, licence: String,
    tested: Bool = false, width: Int, height: Int, layout: Layout = .nchw, channelOrder: ChannelOrder = .rgb,
    scaling: Scaling = .maximum, mean: [Double], deviation: [Double], output: Output = Output(),
    activation: Activation = .none, normalisation: Normalisation = .minimumToMaximum, emptyBelow: Float = 0
  ) {
    self.name = name
    self.fileName = fileName
    self.sha256 = sha256
    self.md5 = md5
    self.source = source
    self.licence = licence
    self.tested = tested
    self.width = width
    self.height = height
    self.layout = layout
    self.channelOrder = channelOrder
    self.scaling = scaling
    self.mean = mean
    self.deviation = deviation
    self.output = output
    self.activation = activation
    self.normalisation = normalisation
    self.emptyBelow = emptyBelow
  }

  /// Number of values in the model's input.
  public var inputCount: Int { width * height * 3 }

  /// Number of values in the output that holds the map.
  public var outputCount: Int { width * height * output.channels }

  /// The input's dimensions.
  var inputShape: [Int64] {
    switch layout {
    case .nchw: [1, 3, Int64(height), Int64(width)]
    case .nhwc: [1, Int64(height), Int64(width), 3]
    }
  }
}
