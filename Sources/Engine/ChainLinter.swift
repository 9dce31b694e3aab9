import JobSyntax
import PipelineKit

/// Refuses chains that cannot work, and outputs that must collide, from the stages' plans alone.
///
/// Each stage is looked at with what holds after the stage that it follows: every tail is a chain from the first stage
/// on.
struct ChainLinter {
  private let stages: [JobStage]
  /// Those that another goes on from.
  private let predecessors: Set<Int>
  private var checker: FieldChecker

  /// - Parameters:
  ///   - stages: those that could be read; when some could not (`isWhole`), gaps are not complained about.
  ///   - input: what the run will read; nil where that is not known.
  static func check(
    _ stages: [JobStage], isWhole: Bool, input: InputDeclaration?, checker: inout FieldChecker
  ) {
    guard !stages.isEmpty else { return }
    var linter = ChainLinter(
      stages: stages, predecessors: Set(stages.compactMap(\.predecessor)), checker: checker)
    if isWhole {
      linter.checkTraits()
      linter.checkMattes()
      linter.checkSides()
    }
    linter.checkOutputs(input)
    checker = linter.checker
  }

  /// Goes through the tree: `visit` gets what holds before each stage and changes it to what holds after.
  private mutating func walk<State>(
    from start: State, _ visit: (inout ChainLinter, JobStage, inout State) -> Void
  ) {
    var after: [State] = []
    after.reserveCapacity(stages.count)
    for stage in stages {
      var state = stage.predecessor.map { after[$0] } ?? start
      visit(&self, stage, &state)
      after.append(state)
    }
  }

  // MARK: Traits

  /// What an item has at a point of its way.
  private struct Holdings {
    /// What every item has.
    var certain: ItemTraits = .source
    /// What items have for which a condition holds, where it has guarded a stage before.
    var under: [Condition: ItemTraits] = [:]
    /// What some item may have.
    var possible: ItemTraits = .source
    /// The stages that may be passed over.
    var conditional: [JobStage] = []
    /// Whether the input has been opened (`image`), and a mask been scored (`matte`), for every item.
    var known: Set<String> = []
    /// The same for those for which a condition holds.
    var unsureKnown: [String: Condition] = [:]
    var pendingEncode: JobStage?
    /// Nothing more is said: stages in the wrong order make everything after them look wrong too.
    var isBroken = false

    func available(to condition: Condition?) -> ItemTraits { condition.flatMap { under[$0] } ?? certain }

    mutating func assume(_ more: ItemTraits) {
      certain.formUnion(more)
      possible.formUnion(more)
      for condition in under.keys { under[condition]?.formUnion(more) }
    }

    mutating func apply(_ stage: JobStage) {
      let (plan, condition) = (stage.plan, stage.condition)
      func changed(_ traits: ItemTraits) -> ItemTraits { traits.subtracting(plan.removes).union(plan.produces) }
      if let condition, under[condition] == nil { under[condition] = certain }
      for (other, traits) in under {
        under[other] = condition == nil || condition == other ? changed(traits) : traits.intersection(changed(traits))
      }
      certain = condition == nil ? changed(certain) : certain.intersection(changed(certain))
      possible = condition == nil ? changed(possible) : possible.union(plan.produces)
      if condition != nil { conditional.append(stage) }
      // What is compared is another number from here on, so that a condition says nothing about what it said before.
      let opens = plan.accepts == .source && plan.produces.contains(.picture)
      let changesSize = plan.resultSize != nil || opens
      let scores = plan.produces.contains(.matte)
      under = under.filter { other, _ in
        !other.subjects.contains { changesSize && $0.isOfSize || scores && $0.isOfMatte && other != condition }
      }
      for (subject, isGiven) in [("image", opens), ("matte", scores)] where isGiven {
        if let condition { unsureKnown[subject] = condition } else { known.insert(subject) }
      }
    }
  }

  private mutating func checkTraits() {
    walk(from: Holdings()) { linter, stage, state in
      guard !state.isBroken else { return }
      linter.checkTraits(of: stage, &state)
      guard !state.isBroken else { return }
      if !linter.predecessors.contains(stage.index) { linter.checkEnd(stage, state) }
    }
  }

  private mutating func checkTraits(of stage: JobStage, _ state: inout Holdings) {
    let (plan, node) = (stage.plan, stage.node)
    checkSubjects(of: stage, state)
    let traits = state.available(to: stage.condition)
    for (missing, isAny) in [(plan.accepts.subtracting(traits), false), (plan.acceptsAny, true)] {
      guard !missing.isEmpty, !isAny || missing.isDisjoint(with: traits) else { continue }
      if complain(stage, missing: missing, state) == .order {
        state.isBroken = true
        return
      }
      // Go on as if it were there: one gap, one finding.
      state.assume(missing)
    }
    if let refusal = plan.refuses, !refusal.traits.isDisjoint(with: traits) {
      let at = node[refusal.field] ?? node["stage"] ?? node
      checker.report(
        "chain-refused", refusal.message, at: at.range, path: at.path,
        expected: "a picture without \(refusal.traits.names.joined(separator: " or "))",
        found: refusal.traits.intersection(traits).names.joined(separator: " and "), hint: refusal.hint)
    }
    // A stage that works on what was encoded has made use of it.
    if plan.accepts.contains(.encoded) { state.pendingEncode = nil }
    if plan.produces.contains(.encoded) || plan.removes.contains(.encoded), let encode = state.pendingEncode {
      // Where the stage may be passed over, what was encoded is there for those that come after.
      if stage.condition == nil || stage.condition == encode.condition {
        checker.report(
          "chain-unused", "what stage \"\(encode.label)\" makes is never written: stage \"\(stage.label)\" replaces it",
          at: node["stage"]?.range ?? node.range, path: node.path,
          expected: "an output stage such as \"write\" in between",
          found: "\"\(stage.label)\"")
      }
      state.pendingEncode = nil
    }
    state.apply(stage)
    if plan.produces.contains(.encoded) { state.pendingEncode = stage }
    if plan.produces.contains(.output) { state.pendingEncode = nil }
    // Into the tails come only items for which the condition holds.
    guard stage.descriptor.spec.branchesField != nil else { return }
    if let condition = stage.condition {
      state.certain = state.available(to: condition)
      state.known.formUnion(state.unsureKnown.filter { $0.value == condition }.keys)
    }
    // One tail that writes what was encoded is enough.
    if stages.contains(where: { $0.predecessor == stage.index && $0.plan.accepts.contains(.encoded) }) {
      state.pendingEncode = nil
    }
  }

  private mutating func checkEnd(_ last: JobStage, _ state: Holdings) {
    let node = last.node
    if let encode = state.pendingEncode {
      checker.report(
        "chain-no-output", "nothing comes after stage \"\(encode.label)\": its result would be lost",
        at: encode.node["stage"]?.range ?? encode.node.range, path: encode.node.path,
        expected: "an output stage such as \"write\"", found: "the end of the chain",
        hint: "add { \"stage\": \"write\", \"to\": \"out/${item.stem}.${ext}\" }")
    } else if !state.possible.contains(.output) || !writes(last) {
      let what = last.tail.isEmpty ? "the chain" : "the tail \"\(last.tail.joined(separator: "/"))\""
      checker.report(
        "chain-no-output", "\(what) writes nothing: it ends after stage \"\(last.label)\"",
        at: node["stage"]?.range ?? node.range, path: node.path, expected: "an output stage such as \"write\"",
        found: "the end of the chain")
    } else if !last.plan.produces.contains(.output),
      last.plan.removes.contains(.encoded) || last.plan.produces.contains(.picture)
    {
      checker.report(
        "chain-unused", "what stage \"\(last.label)\" makes is never encoded and written",
        at: node["stage"]?.range ?? node.range, path: node.path, expected: "\"encode\" and \"write\" after it",
        found: "the end of the chain")
    }
  }

  /// Whether the tail that ends in a stage writes anything itself; what was written before the branch is not its doing.
  private func writes(_ last: JobStage) -> Bool {
    stages.path(to: last).contains { $0.tail == last.tail && $0.plan.produces.contains(.output) }
  }

  private enum Gap { case absence, order }

  private mutating func complain(_ stage: JobStage, missing: ItemTraits, _ state: Holdings) -> Gap {
    let node = stage.node
    let names = missing.names.joined(separator: " or ")
    let possible = !state.possible.isDisjoint(with: missing)
    if possible, let last = state.conditional.last(where: { !$0.plan.removes.isDisjoint(with: missing) }) {
      checker.report(
        "chain-uncertain",
        "stage \"\(stage.label)\" needs \(names), which pictures no longer have for which the \"when\" of stage "
          + "\"\(last.label)\" holds",
        at: node["stage"]?.range ?? node.range, path: node.path, expected: names, found: "a chain that may lack it",
        hint: Self.makerName(of: missing).map { "put a \"\($0)\" stage between the two" })
      return .absence
    }
    if possible, let maker = state.conditional.last(where: { !$0.plan.produces.isDisjoint(with: missing) }) {
      let isSame = maker.condition == stage.condition
      checker.report(
        "chain-uncertain",
        "stage \"\(stage.label)\" needs \(names), which stage \"\(maker.label)\" gives only to pictures for which its "
          + "\"when\" holds" + (isSame ? ", and the picture's sides have changed since" : ""),
        at: node["stage"]?.range ?? node.range, path: node.path, expected: names, found: "a chain that may lack it",
        hint: isSame
          ? "put the stages between into a \"branch\" with this \"when\", or compare what does not change"
          : "give it the same \"when\", or put both into a \"branch\" that has it")
      return .absence
    }
    let maker = Self.makerName(of: missing)
    let isLater = stages.contains {
      $0.index > stage.index && $0.tail == stage.tail && !$0.plan.produces.isDisjoint(with: missing)
    }
    var hint = maker.map { "put a \"\($0)\" stage before it" }
    if isLater, let maker { hint = "\"\(maker)\" comes after it: put it before" }
    if missing.contains(.alpha) || missing.contains(.matte),
      stage.descriptor.spec.fields.contains(where: { $0.name == "existingAlpha" })
    {
      hint =
        (hint.map { $0 + ", or set" } ?? "set")
        + " \"existingAlpha\": true for pictures that bring their own transparency"
    }
    checker.report(
      "chain-missing", "stage \"\(stage.label)\" needs \(names), and no stage before it makes one",
      at: node["stage"]?.range ?? node.range, path: node.path, expected: names,
      found: stage.index == 0 ? "the start of the chain" : "a chain without it", hint: hint)
    return isLater ? .order : .absence
  }

  private static func makerName(of traits: ItemTraits) -> String? {
    if traits.contains(.picture) { return "decode" }
    if traits.contains(.encoded) { return "encode" }
    if traits.contains(.alpha) || traits.contains(.matte) { return "segment" }
    return nil
  }

  /// Conditions that look at what is not known yet.
  private mutating func checkSubjects(of stage: JobStage, _ state: Holdings) {
    for (condition, isWhen) in [(stage.condition, true), (stage.plan.filter?.condition, false)] {
      guard let condition else { continue }
      let field = stage.descriptor.shape.fields.first { declared in
        if case .condition = declared.type { (declared.name == CommonFields.when.name) == isWhen } else { false }
      }
      let place = field.flatMap { stage.node[$0.name] } ?? stage.node
      for (family, maker) in [("image", "decode"), ("matte", "segment")] where !state.known.contains(family) {
        guard
          let subject = condition.subjects.filter({ family == "image" ? $0.isOfImage : $0.isOfMatte })
            .min(by: { $0.name < $1.name })
        else { continue }
        // Given under a condition, it is there for pictures that this stage comes to under the same one.
        if let known = state.unsureKnown[family], !isWhen, stage.condition == known { continue }
        let isUnsure = state.unsureKnown[family] != nil
        checker.report(
          "condition-too-early",
          "\(subject.name) is not known at stage \"\(stage.label)\"\(isUnsure ? " for every picture" : "")",
          at: place.range, path: place.path, expected: "a subject that is known here", found: subject.name,
          hint: isUnsure
            ? "the \"\(maker)\" before it has a \"when\": put both into a \"branch\" that has it"
            : "put it after a \"\(maker)\" stage")
      }
    }
  }

  // MARK: Mattes and sides

  /// Mattes asked for by a name that no stage before gives.
  private mutating func checkMattes() {
    // nil once there may be names that only the run shows.
    walk(from: [] as [String]?) { linter, stage, known in
      let plan = stage.plan
      if let (field, name) = plan.usedMatte, let known, !known.contains(name), !name.contains("${") {
        let at = stage.node[field] ?? stage.node
        linter.checker.report(
          "unknown-matte", "no stage before \"\(stage.label)\" gives a mask named \"\(name)\"", at: at.range,
          path: at.path, expected: known.isEmpty ? "no name" : "one of: " + known.joined(separator: ", "), found: name,
          hint: NearestName.suggestion(for: name, among: known).map { "did you mean \"\($0)\"?" }
            ?? (known.isEmpty ? "give it its name in a \"segment\" stage" : "known: " + known.joined(separator: ", ")))
      }
      if plan.removes.contains(.matte), stage.condition == nil { known = [] }
      if let more = plan.namedMattes { known?.append(contentsOf: more) } else { known = nil }
    }
  }

  /// Sides that no picture can be encoded with, where the settings alone make them certain.
  private mutating func checkSides() {
    walk(from: nil as (side: Int, stage: JobStage)?) { linter, stage, least in
      let plan = stage.plan
      if stage.condition == nil, let side = plan.leastSide {
        least = (side, stage)
      } else if plan.resultSize != nil || (plan.produces.contains(.picture) && plan.accepts == .source) {
        least = nil
      }
      guard let most = plan.mostSide, let (side, maker) = least, side > most else { return }
      let settings = maker.node
      let at =
        [settings["width"], settings["height"]].compactMap(\.self)
        .first { $0.numberValue?.integer.map { $0 > most } ?? false } ?? settings
      let format = stage.node["format"]?.stringValue.map { " to \($0)" } ?? ""
      linter.checker.report(
        "side-too-long",
        "stage \"\(maker.label)\" makes pictures with a side of \(side) pixels or more, and stage "
          + "\"\(stage.label)\"\(format) takes at most \(most)", at: at.range, path: at.path,
        expected: "at most \(most)", found: "\(side)", hint: "ask for smaller sides, or encode to another format")
    }
  }

  // MARK: Outputs

  /// Outputs that collide whatever the inputs are, and endings that name another format than the encoder's.
  private mutating func checkOutputs(_ input: InputDeclaration?) {
    let many = Self.hasSeveralInputs(input)
    var seen: [String: JobStage] = [:]
    for stage in stages where !stage.plan.outputs.isEmpty || !stage.plan.copies.isEmpty {
      let ending = OutputNames.ending(after: stages.path(to: stage))
      let outputs =
        stage.plan.outputs.map { (template: $0, node: stage.node["to"], isCopy: false) }
        + stage.plan.copies.map { (template: $0, node: stage.node["review"]?["to"], isCopy: true) }
      for (output, place, isCopy) in outputs {
        let node = place ?? stage.node
        let key = output.text.replacing("${ext}", with: ending ?? "${ext}")
        // Conditions may keep the two apart; the planner and the run look at every picture.
        if let first = seen[key], isReached(first, byAllThatReach: stage) || isReached(stage, byAllThatReach: first) {
          checker.report(
            "output-collision", "stages \"\(first.label)\" and \"\(stage.label)\" write the same file: \(output.text)",
            at: node.range, path: node.path, expected: "names that differ", found: output.text)
        }
        seen[key] = stage
        if many, !output.variables.contains(where: \.variesByItem) {
          checker.report(
            "output-collision", "every item would write the same file: \(output.text)", at: node.range, path: node.path,
            expected: "a name that differs by item", found: output.text,
            hint: "use ${item.dir}/${item.stem} or ${item.index}")
        }
        if !isCopy, let ending, let written = output.literalEnding, let named = Self.kind(ofEnding: written),
          named != Self.kind(ofEnding: ending)
        {
          checker.report(
            "ending-mismatch", "the name ends in .\(written), but what is encoded is .\(ending)", at: node.range,
            path: node.path, expected: ".\(ending)", found: ".\(written)",
            hint: "use ${ext}, which is always the encoder's", severity: .warning)
        }
      }
    }
  }

  /// Whether every picture that comes to one stage comes to another, as far as conditions and filters tell.
  private func isReached(_ stage: JobStage, byAllThatReach other: JobStage) -> Bool {
    conditions(of: stage).isSubset(of: conditions(of: other))
  }

  /// What must hold for a picture to come to a stage and be worked on there.
  private func conditions(of stage: JobStage) -> Set<Condition> {
    var conditions: Set<Condition> = []
    for before in stages.path(to: stage) {
      if let filter = before.plan.filter { conditions.insert(filter.condition) }
      guard let condition = before.condition else { continue }
      if before.index == stage.index || before.descriptor.spec.branchesField != nil { conditions.insert(condition) }
    }
    return conditions
  }

  /// Endings that mean the same format have the same kind; nil for those that mean no picture.
  private static func kind(ofEnding ending: String) -> String? {
    let ending = ending.lowercased()
    switch ending {
    case "jpg", "jpeg", "jpe", "jfif": return "jpeg"
    case "tif", "tiff": return "tiff"
    case "heic", "heif": return "heic"
    case "jp2", "j2k", "jpf", "jpx": return "jp2"
    default: return InputDeclaration.pictureEndings.contains(ending) ? ending : nil
    }
  }

  /// Whether there is more than one input, as far as the declaration tells. A list or manifest may have one row: the
  /// planner, which reads it, proves the outputs.
  private static func hasSeveralInputs(_ input: InputDeclaration?) -> Bool {
    switch input {
    case .files(let texts, _):
      if texts.count > 1 { return true }
      // A pattern with a mistake in it has its own finding.
      return texts.first.flatMap { try? GlobPattern($0) }.map { !$0.isPlain } ?? false
    case .directory, .bucket, .imgur: return true
    case .addresses(let texts, _): return texts.count > 1
    case .list, .manifest, nil: return false
    }
  }
}
