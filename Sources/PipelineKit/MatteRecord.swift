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
