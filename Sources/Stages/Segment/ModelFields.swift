import Inference
import JobSyntax
import PipelineKit

/// The fields of a segment stage that say which model runs, and what of it is wanted.
enum ModelFields {
  private typealias Key = RecipeDraft.Key
  private static let isLocal = FieldCondition("provider", in: ["local"])

  static let model = Field<String>.text(
    "model", default: ModelCatalogue.defaultName, when: FieldCondition("provider", in: ["local", "rembg"]),
    help: "a model of the catalogue, which `pipeline models list` shows, or the path of an ONNX, TFLite or OpenVINO IR "
      + "file, seen from the job file: with a slash in it, or ending in .onnx, .tflite or .xml; with rembg one that the "
      + "server knows, and its own default when left out")
  static let recipe = Field<RecipeDraft?>(
    "recipe", type: .oneOf([.text(.plain), .object(recipeShape)]), absent: .some(nil), when: isLocal,
    help: "for a model given by its path: what it takes and gives; a text names the model of the catalogue that it is "
      + "like. What is left out is read from the file, as far as it says so"
  ) { node, file in
    if let like = node.stringValue {
      var draft = RecipeDraft()
      draft.like = like
      return .some(draft)
    }
    return .some(RecipeDraft.read(node, file: file, isEntry: false).draft)
  }
  static let classes = Field<[String]>.texts(
    "classes", count: 1...100, default: [], when: isLocal,
    help:
      "which classes are the subject, for a model that knows classes: names such as \"person\" or \"dog\", or \"*\" "
      + "for all but the background, which is also what is taken when none is named")
  static let separate = Field<Bool>.boolean(
    "separate", default: false, when: isLocal,
    help: "whether each class that is found also gets a mask of its own, under the model's name for it, for `use` in a "
      + "later `matte` stage")
  static let allowDownload = Field<Bool>.boolean(
    "allowDownload", default: false, when: isLocal,
    help: "whether a run may fetch a model of the catalogue that is not here; otherwise `pipeline models pull` does")

  static let all: [any FieldDeclaration] = [model, recipe, classes, separate, allowDownload]

  // MARK: The recipe

  private static let recipeShape = ObjectShape([
    Field<String?>.text(Key.like, help: "the model of the catalogue whose values hold where nothing else is said"),
    Field<String?>.text(Key.sha256, help: "the file's checksum; another file is refused"),
    Field<Settings?>.optionalObject(Key.input, inputShape, help: "what the model takes"),
    Field<Settings?>.optionalObject(Key.output, outputShape, help: "what the model gives"),
  ])

  private static let inputShape = ObjectShape([
    side(Key.width, "the input's width, where the file leaves it open"),
    side(Key.height, "the input's height, where the file leaves it open"),
    Field<Settings?>.optionalObject(
      Key.sizeRule,
      ObjectShape([
        Field<Int>.integer(
          Key.reference, in: RecipeDraft.sides, default: 512, unit: "pixels", help: "what the shorter side becomes"),
        Field<Int>.integer(
          Key.multiple, in: 1...1024, default: 32, unit: "pixels", help: "what both sides are cut to a multiple of"),
        Field<Int>.integer(
          Key.most, in: RecipeDraft.sides, default: 2048, unit: "pixels", help: "the most that a side may have"),
      ]), help: "an input that follows the picture's size, as MODNet has it"),
    word(Key.layout, ModelRecipe.Layout.self, "where the channels stand; read from the file where it shows"),
    word(Key.order, ModelRecipe.ChannelOrder.self, "the order of the channels; rgb when left out"),
    word(Key.resample, ModelRecipe.Resampling.self, "how pictures are stretched to the input; lanczos when left out"),
    Field<JSONNode?>(
      Key.scale, type: .oneOf([.choice([Choice("max", "the largest sample of the picture")]), .number(0...65_536)]),
      absent: .some(nil),
      help: "what samples are divided by first: 255 when left out, or \"max\" for the picture's largest"
    ) { node, _ in .some(node) },
    numbers(Key.mean, "what is then subtracted, for each of the model's channels; needed unless `like` says it"),
    numbers(Key.std, "what is then divided by; needed unless `like` says it"),
  ])

  private static let outputShape = ObjectShape([
    Field<Int>.integer(Key.index, in: 0...63, default: 0, help: "which output"),
    word(Key.layout, ModelRecipe.Layout.self, "where the channels stand; read from the file where it shows"),
    side(Key.width, "the map's width, where the output is flat and not as large as the input"),
    side(Key.height, "the map's height, likewise"),
    Field<Int?>.integer(
      Key.channels, in: RecipeDraft.channelCounts, help: "how many; read from the file where it shows"),
    Field<Int?>.integer(Key.subject, in: 0...4095, help: "the channel that is the subject, from 0"),
    Field<Int?>.integer(
      Key.background, in: 0...4095, help: "the channel that is the background; all others are the subject then"),
    Field<[String]>.texts(
      Key.labels, count: 1...4096, default: [], help: "what each channel stands for, so that `classes` can name it"),
    word(
      Key.activation, ModelRecipe.Activation.self,
      "what makes shares of the values: softmax for scores of several classes, sigmoid for logits of one map, none "
        + "where the model does it; needed for an output of several channels"),
    Field<Bool?>(
      Key.normalise, type: .boolean, absent: .some(nil),
      help: "whether the map is spread over black to white; when left out, that of one channel is"
    ) { node, _ in node.boolValue.map { .some($0) } },
    Field<Double?>.number(
      Key.emptyBelow, in: 0...1,
      help: "nothing was found where the map's largest value is below; when left out, 0.5 for several channels, else 0"
    ),
    word(
      Key.greys, ModelRecipe.Greys.self,
      "what values between 0 and 1 mean: alpha, how much of the pixel is subject, or doubt, how sure the model is, as "
        + "models trained on masks of black and white have it; alpha when left out"),
  ])

  private static func side(_ name: String, _ help: String) -> Field<Int?> {
    .integer(name, in: RecipeDraft.sides, unit: "pixels", help: help)
  }

  private static func numbers(_ name: String, _ help: String) -> Field<JSONNode?> {
    Field<JSONNode?>(
      name, type: .array(.number(-65_536...65_536), count: 3...3), absent: .some(nil), help: help
    ) { node, _ in .some(node) }
  }

  private static func word<T: RawRepresentable & CaseIterable & Sendable>(
    _ name: String, _ type: T.Type, _ help: String
  ) -> Field<String?> where T.RawValue == String {
    Field<String?>(
      name, type: .choice(T.allCases.map { Choice($0.rawValue) }), absent: .some(nil), help: help
    ) { node, _ in node.stringValue.map { .some($0) } }
  }

  // MARK: Rules

  /// The files that a model given by its path consists of; none for a model of the catalogue.
  static func helperFiles(_ settings: Settings) -> [String] {
    let name = settings[model]
    guard AddedModels.isFile(name), !name.contains("${") else { return [] }
    return name.lowercased().hasSuffix(".xml") ? [name, String(name.dropLast(4)) + ".bin"] : [name]
  }

  /// What stands for a model of the catalogue: its recipe, with its checksum. Where none was published, that of the
  /// file here.
  static func ingredients(_ settings: Settings) -> [String: String] {
    let name = settings[model]
    guard !AddedModels.isFile(name), let recipe = (try? ModelCatalogue.named(name, home: PipelineHome.current)) ?? nil
    else { return [:] }
    var text = recipe.entry.rendered()
    if !recipe.hasChecksum, let path = try? ModelCatalogue.locate(recipe, home: PipelineHome.current),
      let digest = try? FileDigest.ofFile(path)
    {
      text += " " + digest.sha256
    }
    return ["model \(name)": text]
  }

  static func check(_ settings: Settings) -> [Diagnostic] {
    let name = settings[model]
    guard !name.contains("${") else { return [] }
    var found: [Diagnostic] = []
    if let node = settings.nodes[recipe.name], node.objectValue != nil {
      found += RecipeDraft.read(node, file: settings.file, isEntry: false).diagnostics
    }
    let draft = settings[recipe]
    if let like = draft?.like, ModelCatalogue.named(like) == nil {
      found.append(unknown(like, among: ModelCatalogue.all.map(\.name), at: recipe, settings))
    }
    if AddedModels.isFile(name) {
      if draft == nil {
        found.append(
          settings.diagnostic(
            .error, "missing-key", at: model, "the model \"\(name)\" is a file and needs \"recipe\"",
            hint:
              "at least \"recipe\": { \"input\": { \"mean\": […], \"std\": […] } }, or \"recipe\": \"u2netp\" for a "
              + "model like that"))
      } else if let draft, draft.like == nil, found.isEmpty {
        found += missing(draft, settings)
      }
      if settings.isSet(allowDownload), settings[allowDownload] {
        found.append(
          settings.diagnostic(
            .error, "not-applicable", at: allowDownload,
            "\"allowDownload\" has no meaning for a model given by its path"))
      }
      return found + checkClasses(settings, labels: draft?.knownLabels, name)
    }
    if settings.isSet(recipe) {
      found.append(
        settings.diagnostic(
          .error, "not-applicable", at: recipe, "\"recipe\" goes with a model given by its path",
          hint: "the catalogue has the recipe of \"\(name)\" already"))
    }
    let home = PipelineHome.current
    do throws(InferenceError) {
      guard let known = try ModelCatalogue.named(name, home: home) else {
        return found + [unknown(name, among: ModelCatalogue.names(home: home), at: model, settings)]
      }
      return found + checkClasses(settings, labels: known.output.labels, name)
    } catch {
      return found + [settings.diagnostic(.error, "model-invalid", at: model, error.message, hint: error.hint)]
    }
  }

  /// What no default and no file can stand in for.
  private static func missing(_ draft: RecipeDraft, _ settings: Settings) -> [Diagnostic] {
    draft.missingInputs.map { name in
      settings.diagnostic(
        .error, "missing-key", at: recipe, "\"recipe\" needs \"input.\(name)\": it cannot be read from the model",
        hint: "the model's own description says it; \"like\" takes it from a model of the catalogue")
    }
  }

  /// - Parameter labels: nil where they are not known before the file is read.
  private static func checkClasses(_ settings: Settings, labels: [String]?, _ name: String) -> [Diagnostic] {
    guard let labels else { return [] }
    guard !labels.isEmpty else {
      var found: [Diagnostic] = []
      for field: any FieldDeclaration in [classes, separate] where settings.isSet(field) {
        if field.name == separate.name, !settings[separate] { continue }
        found.append(
          settings.diagnostic(
            .error, "not-applicable", at: field, "the model \"\(name)\" finds one subject and knows no classes",
            hint: AddedModels.isFile(name)
              ? "its recipe can name them in \"output.labels\"" : "\"deeplabv3-257\" knows twenty"))
      }
      return found
    }
    let nodes = settings.nodes[classes.name]?.arrayValue ?? []
    return nodes.compactMap { node in
      guard let text = node.stringValue, text != "*", !text.contains("${"),
        ClassNames.index(of: text, in: labels) == nil
      else { return nil }
      let near = ClassNames.suggestion(for: text, among: labels)
      return Diagnostic(
        code: "unknown-class", message: "the model \"\(name)\" knows no class \"\(text)\"", at: node, in: settings.file,
        expected: "one of: " + (labels + ["*"]).joined(separator: ", "), found: text,
        hint: near.map { "did you mean \"\($0)\"?" } ?? "it knows: " + labels.joined(separator: ", "))
    }
  }

  private static func unknown(
    _ name: String, among known: [String], at field: any FieldDeclaration, _ settings: Settings
  ) -> Diagnostic {
    let near = NearestName.suggestion(for: name, among: known)
    return settings.diagnostic(
      .error, "unknown-model", at: field, "unknown model \"\(name)\"",
      hint: near.map { "did you mean \"\($0)\"?" } ?? "known: " + known.joined(separator: ", "))
  }
}

/// What a segment stage was asked for, read from its fields.
struct ModelChoice: Sendable {
  var name: String
  var draft: RecipeDraft?
  /// nil for what the model's recipe calls the subject.
  var classes: [String]?
  var isSeparate: Bool
  var allowsDownload: Bool
  var precision: Precision

  init(
    name: String, draft: RecipeDraft? = nil, classes: [String]? = nil, isSeparate: Bool = false,
    allowsDownload: Bool = false, precision: Precision = .f32
  ) {
    self.name = name
    self.draft = draft
    self.classes = classes
    self.isSeparate = isSeparate
    self.allowsDownload = allowsDownload
    self.precision = precision
  }

  init(_ settings: Settings, precision: Precision) {
    let classes = settings[ModelFields.classes]
    let isSeparate = settings[ModelFields.separate]
    self.init(
      name: settings[ModelFields.model], draft: settings[ModelFields.recipe],
      classes: classes.isEmpty ? (isSeparate ? ["*"] : nil) : classes, isSeparate: isSeparate,
      allowsDownload: settings[ModelFields.allowDownload], precision: precision)
  }
}
