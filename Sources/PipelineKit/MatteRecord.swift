import JobSyntax

/// What is reported about one matte of an item: who made it, and what there is to see in it without knowing the truth.
public struct MatteRecord: Sendable, Hashable {
  /// Which of several mattes of one stage; nil where there is one.
  public var name: String?
  /// Who made it: `local`, or a service.
  public var provider: String
  /// The model, where the provider lets one choose.
  public var model: String?
  /// How far it can be trusted, 0…1.
  public var score: Double
  /// The subject's share of the picture, 0…1.
  public var coverage: Double
  /// The unsure share of what may be subject, 0…1: 0 for a matte that is black and white.
  public var softness: Double
  /// Separate parts that count: those of at least a hundredth of the subject.
  public var islands: Int
  /// The share of the picture's border that the subject touches, 0…1.
  public var border: Double
  /// How far the mattes of the picture and of its mirror image agree, 0…1; nil where this was not asked for.
  public var flip: Double?

  public init(
    name: String? = nil, provider: String, model: String? = nil, score: Double, coverage: Double, softness: Double,
    islands: Int, border: Double, flip: Double? = nil
  ) {
    self.name = name
    self.provider = provider
    self.model = model
    self.score = score
    self.coverage = coverage
    self.softness = softness
    self.islands = islands
    self.border = border
    self.flip = flip
  }
}

extension StageContext {
  /// Adds what is known about a matte to the item's report.
  ///
  /// Of the frames of an animation the one with the lowest score stands for all.
  public func note(matte: MatteRecord) {
    journal.record { entries in
      let place =
        notesFrames
        ? entries.mattes.firstIndex {
          $0.name == matte.name && $0.provider == matte.provider && $0.model == matte.model
        } : nil
      if let place {
        if matte.score < entries.mattes[place].score { entries.mattes[place] = matte }
      } else {
        entries.mattes.append(matte)
      }
    }
  }
}

// As the report has them; read back where they were written by this same program, so that anything that is not as
// expected is left out without a word.

extension MatteRecord {
  /// The matte's object in the report; four digits say all there is to say.
  public var json: JSONText { Self.shape.text(of: self) }

  /// The same with every digit.
  public var exactJSON: JSONText { Self.makeShape(rounding: { $0 }).text(of: self) }

  /// What the report says of a matte.
  public static let shape = makeShape { ($0 * 10_000).rounded() / 10_000 }

  private static func makeShape(rounding: @escaping @Sendable (Double) -> Double) -> RecordShape<MatteRecord> {
    RecordShape([
      .init(optional: "name", .text, "Which of several mattes of one stage.") { $0.name.map { .string($0) } },
      .init("provider", .text, "Who made it: local, or a service.") { .string($0.provider) },
      .init(optional: "model", .text, "The model, where the provider lets one choose.") {
        $0.model.map { .string($0) }
      },
      .init("score", .number, "How far it can be trusted, 0 to 1.") { .number(rounding($0.score)) },
      .init("coverage", .number, "The subject's share of the picture, 0 to 1.") { .number(rounding($0.coverage)) },
      .init("softness", .number, "The unsure share of what may be subject, 0 to 1.") { .number(rounding($0.softness)) },
      .init("islands", .integer, "Separate parts that count.") { .integer($0.islands) },
      .init("border", .number, "The share of the picture's border that the subject touches, 0 to 1.") {
        .number(rounding($0.border))
      },
      .init(optional: "flip", .number, "How far the mattes of the picture and of its mirror image agree, 0 to 1.") {
        $0.flip.map { .number(rounding($0)) }
      },
    ])
  }

  public init?(_ node: JSONNode) {
    func number(_ key: String) -> Double? { node[key]?.numberValue?.double }
    guard let provider = node["provider"]?.stringValue, let score = number("score"), let coverage = number("coverage"),
      let softness = number("softness"), let islands = node["islands"]?.numberValue?.integer,
      let border = number("border")
    else { return nil }
    self.init(
      name: node["name"]?.stringValue, provider: provider, model: node["model"]?.stringValue, score: score,
      coverage: coverage, softness: softness, islands: islands, border: border, flip: number("flip"))
  }
}

extension ItemWarning {
  /// The warning's object in the report.
  public var json: JSONText { Self.shape.text(of: self) }

  /// What the report says of a warning.
  public static let shape = RecordShape<ItemWarning>([
    .init("code", .text, "A stable name for this kind of warning.") { .string($0.code) },
    .init("stage", .text, "The stage that gave it.") { .string($0.stage) },
    .init("message", .text, "What is worth a look.") { .string($0.message) },
  ])

  public init?(_ node: JSONNode) {
    guard let code = node["code"]?.stringValue, let stage = node["stage"]?.stringValue,
      let message = node["message"]?.stringValue
    else { return nil }
    self.init(code: code, stage: stage, message: message)
  }
}
