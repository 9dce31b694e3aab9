import Imaging
import JobSyntax
import PipelineKit

/// What a plugin says about its stage, read from its JSON.
struct PluginSpec: Sendable {
  var stage: StageSpec
  var accepts: ItemTraits = .picture
  /// Besides the picture.
  var produces: ItemTraits = []
  var removes: ItemTraits = []
  var movesPixels = false
  var takesMasks = false
  /// The deepest samples that the plugin takes, 8 or 16 bits.
  var mostDepth = 16
  /// Bytes that the work takes for each pixel.
  var bytesPerPixel = 0

  /// Reads the spec of the plugin `file`.
  ///
  /// - Throws: `plugin-spec` with everything that is wrong, `plugin-name`.
  init(_ text: String, file: String) throws(StageError) {
    let (root, problems) = StrictJSON.parse(SourceFile(name: "spec", text: Array(text.utf8)), maxBytes: 1 << 20)
    guard let root, !problems.hasErrors else {
      throw Self.error(problems, file)
    }
    var checker = FieldChecker(file: "spec", columns: .none)
    checker.check(root, against: Self.shape, owner: "the spec")
    guard !checker.diagnostics.hasErrors else { throw Self.error(checker.diagnostics, file) }
    let settings = Settings(reading: root, shape: Self.shape, file: "spec")
    let name = settings[Self.name]
    guard name.contains(".") else {
      throw StageError(
        "plugin-name", "plugin \(file) calls its stage \"\(name)\", which has no namespace", kind: .environment,
        hint: "use a word of its maker's before it, such as acme.\(name.isEmpty ? "grain" : name)")
    }
    guard [8, 16].contains(settings[Self.depth]) else {
      throw Self.error("depth: samples have 8 bits or 16, not \(settings[Self.depth])", file)
    }
    var fields: [any FieldDeclaration] = []
    for node in root["fields"]?.arrayValue ?? [] {
      let field = try PluginField(node, file: file).declaration
      guard !fields.contains(where: { $0.name == field.name }) else {
        throw Self.error("fields: \"\(field.name)\" is declared twice", file)
      }
      fields.append(field)
    }
    let examples = root["examples"]?.arrayValue ?? []
    stage = StageSpec(
      name: name, version: settings[Self.version], summary: ProgramWords.plain(settings[Self.summary]),
      notes: settings[Self.notes].map(ProgramWords.plain),
      fields: fields, examples: examples.map { Self.line(JSONText($0.value)) })
    for text in settings[Self.accepts] { accepts.formUnion(Self.trait(text)) }
    for text in settings[Self.produces] { produces.formUnion(Self.trait(text)) }
    for text in settings[Self.removes] { removes.formUnion(Self.trait(text)) }
    movesPixels = settings[Self.moves]
    takesMasks = settings[Self.masks]
    mostDepth = settings[Self.depth]
    bytesPerPixel = settings[Self.memory]
    try checkExamples(examples, file)
  }

  private static let name = Field<String>.text("name", default: nil, help: "the stage's name with its namespace")
  private static let version = Field<Int>.integer(
    "version", in: 1...1_000_000, default: 1, help: "raised whenever the same settings give other results")
  private static let summary = Field<String>.text("summary", default: nil, help: "one sentence")
  private static let notes = Field<[String]>.texts("notes", default: [], help: "further paragraphs")
  private static let fields = Field<JSONNode?>(
    "fields", type: .array(.object(PluginField.shape), count: 0...200), absent: .some(nil), help: "the settings"
  ) { node, _ in .some(node) }
  private static let examples = Field<JSONNode?>(
    "examples", type: .array(.any, count: 0...50), absent: .some(nil), help: "stages of a job"
  ) { node, _ in .some(node) }
  private static let moves = Field<Bool>.boolean("moves", default: false, help: "whether pixels change places")
  private static let masks = Field<Bool>.boolean("masks", default: false, help: "whether masks are taken as pictures")
  private static let depth = Field<Int>.integer("depth", in: 8...16, default: 16, help: "the deepest samples taken")
  private static let memory = Field<Int>.integer(
    "memory", in: 0...10_000, default: 0, help: "bytes that the work takes for each pixel")
  private static let accepts = traits("accepts", help: "what the picture must have")
  private static let produces = traits("produces", help: "what it has afterwards besides")
  private static let removes = traits("removes", help: "what it may no longer have")

  private static func traits(_ name: String, help: String) -> Field<[String]> {
    Field<[String]>(
      name, type: .array(.choice([Choice("alpha"), Choice("matte")]), count: 0...2), absent: [], help: help
    ) { node, _ in node.arrayValue?.compactMap(\.stringValue) }
  }

  private static func trait(_ text: String) -> ItemTraits { text == "alpha" ? .alpha : .matte }

  private static let shape = ObjectShape([
    name, version, summary, notes, fields, examples, accepts, produces, removes, moves, masks, depth, memory,
  ])

  /// An example as jobs have it: one line with spaces.
  private static func line(_ value: JSONText) -> String {
    switch value {
    case .object(let members) where !members.isEmpty:
      "{ " + members.map { "\(JSONText.string($0.0).rendered()): \(line($0.1))" }.joined(separator: ", ") + " }"
    case .array(let elements): "[" + elements.map(line).joined(separator: ", ") + "]"
    default: value.rendered()
    }
  }

  private func checkExamples(_ examples: [JSONNode], _ file: String) throws(StageError) {
    for (index, example) in examples.enumerated() {
      guard example["stage"]?.stringValue == stage.name else {
        throw Self.error("examples[\(index)]: its \"stage\" is not \"\(stage.name)\"", file)
      }
      var checker = FieldChecker(file: "spec", columns: .unknown)
      checker.check(
        example, against: ObjectShape(stage.fields + CommonFields.all), owner: "the example", ignoring: ["stage"])
      guard !checker.diagnostics.hasErrors else { throw Self.error(checker.diagnostics, file) }
    }
  }

  static func error(_ problem: String, _ file: String) -> StageError {
    StageError(
      "plugin-spec", "the spec of plugin \(file) is wrong: \(problem)", kind: .environment,
      hint: "pipeline_plugin.h says what it must hold")
  }

  private static func error(_ found: [Diagnostic], _ file: String) -> StageError {
    let texts = found.filter { $0.severity == .error }.map { diagnostic in
      (diagnostic.path.map { "\($0): " } ?? "") + diagnostic.message
    }
    let more = texts.count > 3 ? ", and \(texts.count - 3) more" : ""
    return error(texts.prefix(3).joined(separator: "; ") + more, file)
  }
}

/// One field of a plugin's spec.
struct PluginField: Sendable {
  let declaration: any FieldDeclaration

  enum Kind: String, FieldChoice {
    case boolean, integer, number, text, choice, color, path
    var help: String { "" }
  }

  private static let name = Field<String>.text("name", default: nil, help: "as jobs write it")
  private static let kind = Field<Kind>.choice("type", default: nil, help: "what values are")
  private static let help = Field<String>.text("help", default: nil, help: "what the field is for")
  private static let required = Field<Bool>.boolean("required", default: false, help: "whether a job must name it")
  private static let number = FieldCondition("type", in: ["integer", "number"])
  private static let least = Field<Double?>.number("min", in: -1e15...1e15, when: number, help: "the least value")
  private static let most = Field<Double?>.number("max", in: -1e15...1e15, when: number, help: "the greatest value")
  private static let unit = Field<String?>.text("unit", when: number, help: "the unit of a number")
  private static let choices = Field<JSONNode?>(
    "choices",
    type: .array(
      .oneOf([
        .text(.plain),
        .object(
          ObjectShape([
            Field<String>.text("name", default: nil, help: "as jobs write it"),
            Field<String>.text("help", default: "", help: "what it means"),
          ])),
      ]), count: 1...1_000), absent: .some(nil), when: FieldCondition("type", in: ["choice"]), help: "the values"
  ) { node, _ in .some(node) }
  private static let value = Field<JSONNode?>("default", type: .any, absent: .some(nil), help: "when it is absent") {
    node, _ in .some(node)
  }

  static let shape = ObjectShape([name, kind, help, required, least, most, unit, choices, value])

  /// - Throws: `plugin-spec`.
  init(_ node: JSONNode, file: String) throws(StageError) {
    let settings = Settings(reading: node, shape: Self.shape, file: "spec")
    let name = settings[Self.name]
    func wrong(_ problem: String) -> StageError { PluginSpec.error("field \"\(name)\": \(problem)", file) }
    guard Self.isName(name) else {
      throw wrong("its name is not made of ASCII letters and digits, beginning with a letter")
    }
    let value = settings[Self.value]
    let isRequired = settings[Self.required]
    guard !isRequired || value == nil else { throw wrong("what is required has no default") }
    let type: FieldType
    let (least, most) = (settings[Self.least], settings[Self.most])
    switch settings[Self.kind] {
    case .boolean: type = .boolean
    case .integer:
      let (low, high) = (least ?? -1e15, most ?? 1e15)
      guard low <= high, low == low.rounded(), high == high.rounded() else {
        throw wrong("min and max are no range of whole numbers")
      }
      type = .integer(Int(low)...Int(high))
    case .number:
      let (low, high) = (least ?? -1e15, most ?? 1e15)
      guard low <= high else { throw wrong("min is greater than max") }
      type = .number(low...high)
    case .text: type = .text(.plain)
    case .color: type = .text(.color)
    case .path: type = .text(.path)
    case .choice:
      let choices = (settings[Self.choices]?.arrayValue ?? []).map { node in
        node.stringValue.map { Choice($0) }
          ?? Choice(node["name"]?.stringValue ?? "", ProgramWords.plain(node["help"]?.stringValue ?? ""))
      }
      guard !choices.isEmpty else { throw wrong("a choice needs \"choices\"") }
      guard Set(choices.map(\.name)).count == choices.count, !choices.contains(where: \.name.isEmpty) else {
        throw wrong("its choices are not told apart")
      }
      type = .choice(choices)
    }
    if let value {
      var checker = FieldChecker(file: "spec", columns: .none)
      checker.check(value, against: type, name: name)
      if let problem = checker.diagnostics.first { throw wrong("its default does not fit: \(problem.message)") }
    }
    let defaultText = value.map { JSONText($0.value) }
    // Values are read from the job's nodes, by what they are, when the stage is made.
    declaration = Field<JSONText>(
      name, type: type, absent: isRequired ? Optional<JSONText>.none : .some(defaultText ?? .null),
      defaultText: defaultText,
      unit: settings[Self.unit].map(ProgramWords.plain), help: ProgramWords.plain(settings[Self.help])
    ) { node, _ in Self.fits(node, type) ? JSONText(node.value) : nil }
  }

  private static func isName(_ name: String) -> Bool {
    guard let first = name.utf8.first, (first | 0x20) >= 0x61, (first | 0x20) <= 0x7A else { return false }
    return name.utf8.allSatisfy { byte in
      (0x30...0x39).contains(byte) || (0x61...0x7A).contains(byte | 0x20) && byte < 0x7B
    }
  }

  private static func fits(_ node: JSONNode, _ type: FieldType) -> Bool {
    switch type {
    case .boolean: node.boolValue != nil
    case .integer: node.numberValue?.integer != nil
    case .number: node.numberValue?.double != nil
    default: node.stringValue != nil
    }
  }
}
