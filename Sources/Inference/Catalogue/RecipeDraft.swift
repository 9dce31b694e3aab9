import JobSyntax

/// A recipe as it is written down: what is left out gets its default, or is read from the model's file.
public struct RecipeDraft: Sendable, Hashable {
  public var name: String?
  public var fileName: String?
  public var url: String?
  public var source: String?
  public var sha256: String?
  public var md5: String?
  public var licence: String?
  public var tested: Bool?
  public var note: String?
  /// The catalogue's model whose recipe this one begins with.
  public var like: String?

  var width: Int?
  var height: Int?
  var sizeRule: ModelRecipe.SizeRule?
  var layout: ModelRecipe.Layout?
  var channelOrder: ModelRecipe.ChannelOrder?
  var resampling: ModelRecipe.Resampling?
  var scaling: ModelRecipe.Scaling?
  var mean: [Double]?
  var deviation: [Double]?

  var outputIndex: Int?
  var outputLayout: ModelRecipe.Layout?
  var outputWidth: Int?
  var outputHeight: Int?
  var channels: Int?
  var subject: Int?
  var background: Int?
  var labels: [String]?
  var activation: ModelRecipe.Activation?
  var normalisation: ModelRecipe.Normalisation?
  var emptyBelow: Float?
  var greys: ModelRecipe.Greys?

  /// Findings of the parts, while a recipe is being read.
  private var diagnostics: [Diagnostic] = []

  public init() {}
}

// MARK: Reading

extension RecipeDraft {
  /// The words for the parts of a recipe, as they are written down.
  public enum Key {
    public static let input = "input", output = "output", like = "like", sha256 = "sha256"
    public static let width = "width", height = "height", sizeRule = "sizeRule", reference = "reference"
    public static let multiple = "multiple", most = "most", layout = "layout", order = "order", resample = "resample"
    public static let scale = "scale", mean = "mean", std = "std"
    public static let index = "index", channels = "channels", subject = "subject", background = "background"
    public static let labels = "labels", activation = "activation", normalise = "normalise"
    public static let emptyBelow = "emptyBelow", greys = "greys"
  }

  /// Reads a recipe; what does not fit is reported and counts as left out.
  ///
  /// - Parameters:
  ///   - file: the name under which findings refer to the text.
  ///   - isEntry: an entry of a catalogue, which also says name, file, source and licence.
  public static func read(
    _ node: JSONNode, file: String, isEntry: Bool
  ) -> (draft: RecipeDraft, diagnostics: [Diagnostic]) {
    var draft = RecipeDraft()
    var reader = MemberReader(node, file: file, owner: "the recipe")
    draft.like = reader.text(Key.like)
    draft.sha256 = reader.value(Key.sha256, "64 hexadecimal digits") { checksum($0, digits: 64) }
    if isEntry {
      draft.name = reader.text("name")
      draft.fileName = reader.value("file", "a file name without folders") {
        $0.stringValue.flatMap { $0.isEmpty || $0.contains("/") ? nil : $0 }
      }
      draft.url = reader.text("url")
      draft.source = reader.text("source")
      draft.md5 = reader.value("md5", "32 hexadecimal digits") { checksum($0, digits: 32) }
      draft.licence = reader.text("licence")
      draft.tested = reader.value("tested", "true or false", \.boolValue)
      draft.note = reader.text("note")
    }
    if let input = reader.object(Key.input) {
      var reader = MemberReader(input, file: file, owner: "\"input\"")
      draft.readInput(&reader)
      reader.finish()
      draft.diagnostics += reader.diagnostics
    }
    if let output = reader.object(Key.output) {
      var reader = MemberReader(output, file: file, owner: "\"output\"")
      draft.readOutput(&reader)
      reader.finish()
      draft.diagnostics += reader.diagnostics
    }
    reader.finish()
    let diagnostics = reader.diagnostics + draft.diagnostics
    draft.diagnostics = []
    return (draft, diagnostics.sortedByPlace())
  }

  private mutating func readInput(_ reader: inout MemberReader) {
    width = reader.integer(Key.width, in: Self.sides)
    height = reader.integer(Key.height, in: Self.sides)
    layout = reader.choice(Key.layout)
    channelOrder = reader.choice(Key.order)
    resampling = reader.choice(Key.resample)
    scaling = reader.value(Key.scale, "\"max\" or a number above 0") { node in
      if node.stringValue == "max" { return .maximum }
      return node.numberValue?.double.flatMap { $0 > 0 ? .fixed($0) : nil }
    }
    mean = reader.value(Key.mean, "three numbers") { Self.three($0) }
    deviation = reader.value(Key.std, "three numbers other than 0") { node in
      Self.three(node).flatMap { $0.contains(0) ? nil : $0 }
    }
    if let node = reader.object(Key.sizeRule) {
      var rule = MemberReader(node, file: reader.file, owner: "\"sizeRule\"")
      let reference = rule.integer(Key.reference, in: Self.sides)
      let multiple = rule.integer(Key.multiple, in: 1...1024)
      let most = rule.integer(Key.most, in: Self.sides)
      rule.finish()
      diagnostics += rule.diagnostics
      sizeRule = ModelRecipe.SizeRule(reference: reference ?? 512, multiple: multiple ?? 32, most: most ?? 2048)
    }
  }

  private mutating func readOutput(_ reader: inout MemberReader) {
    outputIndex = reader.integer(Key.index, in: 0...63)
    outputLayout = reader.choice(Key.layout)
    outputWidth = reader.integer(Key.width, in: Self.sides)
    outputHeight = reader.integer(Key.height, in: Self.sides)
    channels = reader.integer(Key.channels, in: Self.channelCounts)
    subject = reader.integer(Key.subject, in: 0...4095)
    background = reader.integer(Key.background, in: 0...4095)
    labels = reader.value(Key.labels, "a list of names, each once") { node in
      guard let names = node.arrayValue?.map(\.stringValue), !names.isEmpty else { return nil }
      let labels = names.compactMap(\.self)
      return labels.count == names.count && Set(labels).count == labels.count && !labels.contains("") ? labels : nil
    }
    activation = reader.choice(Key.activation)
    normalisation = reader.value(Key.normalise, "true or false") { Self.normalisation($0) }
    emptyBelow = reader.value(Key.emptyBelow, "a number from 0 to 1") {
      $0.numberValue?.double.flatMap { (0...1).contains($0) ? Float($0) : nil }
    }
    greys = reader.choice(Key.greys)
  }

  public static let sides = 1...8192
  public static let channelCounts = 1...4096

  private static func normalisation(_ node: JSONNode) -> ModelRecipe.Normalisation? {
    guard let spreads = node.boolValue else { return nil }
    return spreads ? .minimumToMaximum : ModelRecipe.Normalisation.none
  }

  private static func three(_ node: JSONNode) -> [Double]? {
    let numbers = (node.arrayValue ?? []).compactMap { $0.numberValue?.double }
    return numbers.count == 3 && node.arrayValue?.count == 3 ? numbers : nil
  }

  private static func checksum(_ node: JSONNode, digits: Int) -> String? {
    guard let text = node.stringValue?.lowercased(), text.utf8.count == digits, text.allSatisfy(\.isHexDigit) else {
      return nil
    }
    return text
  }
}

// MARK: Completing

extension RecipeDraft {
  /// The values of the input that are missing and that no model's file says.
  public var missingInputs: [String] {
    guard like == nil else { return [] }
    return (mean == nil ? [Key.mean] : []) + (deviation == nil ? [Key.std] : [])
  }

  /// The classes that the recipe names, itself or through `like`; empty where it names none.
  public var knownLabels: [String] { labels ?? like.flatMap { ModelCatalogue.named($0)?.output.labels } ?? [] }

  /// The whole recipe.
  ///
  /// Throws `modelInvalid`, naming the field, when something is missing that neither has a default nor can be read from
  /// the model, or does not fit it.
  ///
  /// - Parameters:
  ///   - facts: the model's shapes, for a model given by its file; nil for an entry of a catalogue, which says them.
  ///   - name, fileName: what the recipe is called where it does not say so itself.
  public func completed(
    with facts: ModelFacts?, name: String, fileName: String
  ) throws(InferenceError) -> ModelRecipe {
    var draft = self
    if let like {
      guard let base = ModelCatalogue.named(like) else {
        let near = NearestName.suggestion(for: like, among: ModelCatalogue.all.map(\.name))
        throw InferenceError(
          .modelInvalid, "recipe of \(name): \"like\" names the model \"\(like)\", which the catalogue does not have",
          hint: near.map { "did you mean \"\($0)\"?" } ?? "`pipeline models list` names them")
      }
      draft.take(base, sizes: facts == nil)
    }
    return try draft.completed(facts, name: self.name ?? name, fileName: self.fileName ?? fileName)
  }

  private mutating func take(_ base: ModelRecipe, sizes: Bool) {
    if sizes {
      width = width ?? base.width
      height = height ?? base.height
      layout = layout ?? base.layout
      outputLayout = outputLayout ?? base.output.layout
    }
    sizeRule = sizeRule ?? base.sizeRule
    channelOrder = channelOrder ?? base.channelOrder
    resampling = resampling ?? base.resampling
    scaling = scaling ?? base.scaling
    mean = mean ?? base.mean
    deviation = deviation ?? base.deviation
    outputIndex = outputIndex ?? base.output.index
    activation = activation ?? base.activation
    normalisation = normalisation ?? base.normalisation
    emptyBelow = emptyBelow ?? base.emptyBelow
    greys = greys ?? base.greys
    if !base.output.labels.isEmpty { labels = labels ?? base.output.labels }
    // What is one of one says nothing of a model with more channels, whose first may be the background.
    if subject == nil, background == nil, base.output.channels > 1 {
      switch base.output.subject {
      case .channel(let channel): subject = channel
      case .allBut(let channel): background = channel
      }
    }
  }

  private func completed(
    _ facts: ModelFacts?, name: String, fileName: String
  ) throws(InferenceError) -> ModelRecipe {
    func lacks(_ field: String, _ why: String) -> InferenceError {
      InferenceError(.modelInvalid, "recipe of \(name): \(why)", hint: "give \"\(field)\" in the recipe")
    }
    guard let mean else {
      throw lacks("input.mean", "what is subtracted from the samples cannot be read from the model")
    }
    guard let deviation else {
      throw lacks("input.std", "what the samples are divided by cannot be read from the model")
    }

    // The input.
    var inputLayout = layout
    var size = (width: width ?? sizeRule?.reference, height: height ?? sizeRule?.reference)
    if let shape = facts?.input {
      guard shape.count == 4 else {
        throw InferenceError(
          .modelInvalid, "recipe of \(name): the model's input has \(shape.count) dimensions; a picture has four")
      }
      if inputLayout == nil {
        switch (shape[1] == 3, shape[3] == 3) {
        case (true, false): inputLayout = .nchw
        case (false, true): inputLayout = .nhwc
        default: throw lacks("input.layout", "the model's input does not show where its three channels are")
        }
      }
      let sides = inputLayout == .nhwc ? (shape[2], shape[1]) : (shape[3], shape[2])
      // Told before it is compiled: a model that is only asked for hard pictures is compiled late.
      if let found = inputLayout == .nhwc ? shape[3] : shape[1], found != 3 {
        throw InferenceError(
          .modelInvalid,
          "recipe of \(name): the model's input has \(found) channels where \(inputLayout ?? .nchw) "
            + "has them; a picture has three", hint: "\"input.layout\" may be the other one")
      }
      if sizeRule == nil {
        for (stated, side, field) in [(size.width, sides.0, "width"), (size.height, sides.1, "height")] {
          guard let stated, let side, stated != side else { continue }
          throw InferenceError(
            .modelInvalid, "recipe of \(name): \"input.\(field)\" is \(stated), and the model's input has \(side)",
            hint: "leave it out: it is read from the model")
        }
      }
      size = (size.width ?? sides.0, size.height ?? sides.1)
    }
    guard let inputWidth = size.width else { throw lacks("input.width", "the width of the model's input is open") }
    guard let inputHeight = size.height else { throw lacks("input.height", "the height of the model's input is open") }
    // A file may say anything; products of sides must not overflow.
    guard Self.sides.contains(inputWidth), Self.sides.contains(inputHeight) else {
      throw InferenceError(
        .modelInvalid,
        "recipe of \(name): the model's input has \(inputWidth)×\(inputHeight) pixels; a side may have "
          + "\(Self.sides.upperBound)")
    }

    let output = try completedOutput(facts, (inputWidth, inputHeight), name: name)
    // What classes of several channels score can't be guessed: logits and shares look alike until pictures come.
    let isMatte = output.channels == 1
    guard isMatte || activation != nil else {
      throw lacks("output.activation", "whether the output's \(output.channels) channels are scores is not known")
    }
    return ModelRecipe(
      name: name, fileName: fileName, sha256: sha256, md5: md5, url: url, source: source ?? "a file of yours",
      licence: licence ?? "not stated", tested: tested ?? false, note: note, width: inputWidth, height: inputHeight,
      sizeRule: sizeRule, layout: inputLayout ?? .nchw, channelOrder: channelOrder ?? .rgb,
      resampling: resampling ?? .lanczos, scaling: scaling ?? .fixed(255), mean: mean, deviation: deviation,
      output: output, activation: activation ?? .none,
      normalisation: normalisation ?? (isMatte ? .minimumToMaximum : .none),
      emptyBelow: emptyBelow ?? (isMatte ? 0 : 0.5), greys: greys ?? .alpha)
  }

  private func completedOutput(
    _ facts: ModelFacts?, _ input: (width: Int, height: Int), name: String
  ) throws(InferenceError) -> ModelRecipe.Output {
    func lacks(_ field: String, _ why: String) -> InferenceError {
      InferenceError(.modelInvalid, "recipe of \(name): \(why)", hint: "give \"\(field)\" in the recipe")
    }
    let index = outputIndex ?? 0
    var layout = outputLayout
    var (width, height) = (outputWidth, outputHeight)
    var channels = channels
    if let facts {
      guard facts.outputs.indices.contains(index) else {
        throw InferenceError(
          .modelInvalid,
          "recipe of \(name): \"output.index\" is \(index); the model's outputs are 0 to \(facts.outputs.count - 1)")
      }
      // Without the batch.
      let shape = Array(facts.outputs[index].dropFirst())
      switch shape.count {
      case 3:
        if layout == nil {
          switch (shape[0], shape[2]) {
          case (let first?, let last?) where first < last: layout = .nchw
          case (let first?, let last?) where last < first: layout = .nhwc
          // Open sides belong to the picture, and what is fixed beside them is the number of channels.
          case (.some, nil): layout = .nchw
          case (nil, .some): layout = .nhwc
          default: throw lacks("output.layout", "the model's output does not show where its channels are")
          }
        }
        let isPlanar = layout == .nchw
        channels = channels ?? (isPlanar ? shape[0] : shape[2])
        height = height ?? (isPlanar ? shape[1] : shape[0])
        width = width ?? (isPlanar ? shape[2] : shape[1])
      case 2:
        height = height ?? shape[0]
        width = width ?? shape[1]
      default:
        // A flat output says how many values there are, which must be those of the sides.
        let pixels = (width ?? input.width) * (height ?? input.height)
        if shape.count == 1, let count = shape[0], channels == nil, count % pixels == 0 { channels = count / pixels }
      }
    }
    let count = channels ?? labels?.count ?? 1
    guard Self.channelCounts.contains(count), [width, height].allSatisfy({ $0.map(Self.sides.contains) ?? true }) else {
      throw InferenceError(
        .modelInvalid,
        "recipe of \(name): the model's output has \(width ?? input.width)×\(height ?? input.height) pixels and "
          + "\(count) channels; a side may have \(Self.sides.upperBound), and there may be "
          + "\(Self.channelCounts.upperBound) channels")
    }
    if let labels, labels.count != count {
      throw InferenceError(
        .modelInvalid, "recipe of \(name): \"output.labels\" names \(labels.count) classes, and the output has \(count)"
      )
    }
    let named = labels?.firstIndex { ClassNames.folded($0) == "background" }
    let chosen: ModelRecipe.Subject
    if let subject {
      chosen = .channel(subject)
    } else if let background = background ?? named {
      chosen = .allBut(background)
    } else if count == 1 {
      chosen = .channel(0)
    } else if count == 2 {
      // Of two the background comes first in every such model known.
      chosen = .channel(1)
    } else {
      throw lacks("output.background", "which of the output's \(count) channels are the subject is not known")
    }
    switch chosen {
    case .channel(let channel), .allBut(let channel):
      guard channel < count else {
        throw InferenceError(
          .modelInvalid, "recipe of \(name): channel \(channel) is named, and the output has \(count), from 0")
      }
    }
    // The input's own size follows it where a size rule changes that from picture to picture.
    let isInputs = width == input.width && height == input.height
    return ModelRecipe.Output(
      index: index, layout: layout ?? .nchw, channels: count, subject: chosen,
      width: sizeRule == nil && !isInputs ? width : nil, height: sizeRule == nil && !isInputs ? height : nil,
      labels: labels ?? [])
  }
}

/// Reads the members of one object and notes every one that does not fit or is not known.
private struct MemberReader {
  let node: JSONNode
  let file: String
  let owner: String
  private(set) var diagnostics: [Diagnostic] = []
  private var known: [String] = []

  init(_ node: JSONNode, file: String, owner: String) {
    self.node = node
    self.file = file
    self.owner = owner
    if node.objectValue == nil { report(node, "expects an object", owner) }
  }

  mutating func value<T>(_ key: String, _ expected: String, _ read: (JSONNode) -> T?) -> T? {
    known.append(key)
    guard let member = node[key] else { return nil }
    if let value = read(member) { return value }
    report(member, "expects \(expected)", "\"\(key)\"")
    return nil
  }

  mutating func text(_ key: String) -> String? {
    value(key, "a text") { $0.stringValue.flatMap { $0.isEmpty ? nil : $0 } }
  }

  mutating func integer(_ key: String, in range: ClosedRange<Int>) -> Int? {
    value(key, "a whole number from \(range.lowerBound) to \(range.upperBound)") { node in
      node.numberValue?.integer.flatMap { range.contains($0) ? $0 : nil }
    }
  }

  mutating func choice<T: RawRepresentable & CaseIterable>(_ key: String) -> T? where T.RawValue == String {
    value(key, "one of: " + T.allCases.map(\.rawValue).joined(separator: ", ")) {
      $0.stringValue.flatMap { T(rawValue: $0) }
    }
  }

  mutating func object(_ key: String) -> JSONNode? {
    value(key, "an object") { $0.objectValue == nil ? nil : $0 }
  }

  mutating func finish() {
    for member in node.objectValue ?? [] where !known.contains(member.key) {
      let near = NearestName.suggestion(for: member.key, among: known)
      diagnostics.append(
        Diagnostic(
          code: "unknown-key", message: "unknown key \"\(member.key)\" in \(owner)", file: file, range: member.keyRange,
          path: member.value.path,
          hint: near.map { "did you mean \"\($0)\"?" } ?? "known: " + known.joined(separator: ", ")))
    }
  }

  private mutating func report(_ member: JSONNode, _ expected: String, _ what: String) {
    diagnostics.append(
      Diagnostic(
        code: "wrong-value", message: "\(what) \(expected), got \(member.value.summary)", at: member, in: file))
  }
}
