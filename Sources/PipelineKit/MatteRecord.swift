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
  public var json: JSONText { json { ($0 * 10_000).rounded() / 10_000 } }

  /// The same with every digit.
  public var exactJSON: JSONText { json { $0 } }

  private func json(_ short: (Double) -> Double) -> JSONText {
    var members: [(String, JSONText)] = []
    if let name { members.append(("name", .string(name))) }
    members.append(("provider", .string(provider)))
    if let model { members.append(("model", .string(model))) }
    members += [
      ("score", .number(short(score))), ("coverage", .number(short(coverage))), ("softness", .number(short(softness))),
      ("islands", .integer(islands)), ("border", .number(short(border))),
    ]
    if let flip { members.append(("flip", .number(short(flip)))) }
    return .object(members)
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
  public var json: JSONText {
    .object([("code", .string(code)), ("stage", .string(stage)), ("message", .string(message))])
  }

  public init?(_ node: JSONNode) {
    guard let code = node["code"]?.stringValue, let stage = node["stage"]?.stringValue,
      let message = node["message"]?.stringValue
    else { return nil }
    self.init(code: code, stage: stage, message: message)
  }
}
