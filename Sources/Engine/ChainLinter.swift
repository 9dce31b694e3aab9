import JobSyntax
import PipelineKit

/// Refuses chains that cannot work, and outputs that must collide, from the stages' plans alone.
enum ChainLinter {
  /// - Parameters:
  ///   - stages: those that could be read; when some could not, gaps are not complained about.
  ///   - input: what the run will read; nil where that is not known.
  static func check(
    _ stages: [JobStage], root: JSONNode, input: InputDeclaration?, checker: inout FieldChecker
  ) {
    guard let nodes = root["stages"]?.arrayValue, !nodes.isEmpty else { return }
    let isComplete = stages.count == nodes.count
    if isComplete {
      checkTraits(stages, nodes, &checker)
      checkMattes(stages, nodes, &checker)
      checkSides(stages, nodes, &checker)
    }
    checkOutputs(stages, nodes, input, &checker)
  }

  private static func checkTraits(_ stages: [JobStage], _ nodes: [JSONNode], _ checker: inout FieldChecker) {
    var traits: ItemTraits = .source
    var pendingEncode: JobStage?
    for stage in stages {
      let plan = stage.plan
      let node = nodes[stage.index]
      let missing = plan.accepts.subtracting(traits)
      if !missing.isEmpty {
        // Stages in the wrong order make everything after them look wrong too; the first finding says it all.
        if complain(stage, node, missing: missing, all: stages, &checker) == .order { return }
        // Go on as if it were there: one gap, one finding.
        traits.formUnion(missing)
      }
      if !plan.acceptsAny.isEmpty, plan.acceptsAny.isDisjoint(with: traits) {
        if complain(stage, node, missing: plan.acceptsAny, all: stages, &checker) == .order { return }
        traits.formUnion(plan.acceptsAny)
      }
      if let refusal = plan.refuses, !refusal.traits.isDisjoint(with: traits) {
        let at = node[refusal.field] ?? node["stage"] ?? node
        checker.report(
          "chain-refused", refusal.message, at: at.range, path: at.path,
          expected: "a picture without \(refusal.traits.names.joined(separator: " or "))",
          found: refusal.traits.intersection(traits).names.joined(separator: " and "), hint: refusal.hint)
      }
      if plan.produces.contains(.encoded) || plan.removes.contains(.encoded), let encode = pendingEncode {
        checker.report(
          "chain-unused", "what stage \"\(encode.label)\" makes is never written: stage \"\(stage.label)\" replaces it",
          at: node["stage"]?.range ?? node.range, path: node.path,
          expected: "an output stage such as \"write\" in between",
          found: "\"\(stage.label)\"")
        pendingEncode = nil
      }
      traits.subtract(plan.removes)
      traits.formUnion(plan.produces)
      if plan.produces.contains(.encoded) { pendingEncode = stage }
      if plan.produces.contains(.output) { pendingEncode = nil }
    }
    guard let last = stages.last else { return }
    let node = nodes[last.index]
    if let encode = pendingEncode {
      let encodeNode = nodes[encode.index]
      checker.report(
        "chain-no-output", "nothing comes after stage \"\(encode.label)\": its result would be lost",
        at: encodeNode["stage"]?.range ?? encodeNode.range, path: encodeNode.path,
        expected: "an output stage such as \"write\"", found: "the end of the chain",
        hint: "add { \"stage\": \"write\", \"to\": \"out/${item.stem}.${ext}\" }")
    } else if !traits.contains(.output) {
      checker.report(
        "chain-no-output", "the chain writes nothing: it ends after stage \"\(last.label)\"",
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

  /// Mattes asked for by a name that no stage before gives.
  private static func checkMattes(_ stages: [JobStage], _ nodes: [JSONNode], _ checker: inout FieldChecker) {
    // nil once there may be names that only the run shows.
    var known: [String]? = []
    for stage in stages {
      let plan = stage.plan
      if let (field, name) = plan.usedMatte, let known, !known.contains(name), !name.contains("${") {
        let at = nodes[stage.index][field] ?? nodes[stage.index]
        checker.report(
          "unknown-matte", "no stage before \"\(stage.label)\" gives a mask named \"\(name)\"", at: at.range,
          path: at.path, expected: known.isEmpty ? "no name" : "one of: " + known.joined(separator: ", "), found: name,
          hint: NearestName.suggestion(for: name, among: known).map { "did you mean \"\($0)\"?" }
            ?? (known.isEmpty ? "give it its name in a \"segment\" stage" : "known: " + known.joined(separator: ", ")))
      }
      if plan.removes.contains(.matte) { known = [] }
      guard let more = plan.namedMattes else {
        known = nil
        continue
      }
      known?.append(contentsOf: more)
    }
  }

  private enum Gap { case absence, order }

  private static func complain(
    _ stage: JobStage, _ node: JSONNode, missing: ItemTraits, all: [JobStage], _ checker: inout FieldChecker
  ) -> Gap {
    let names = missing.names.joined(separator: " or ")
    let maker = makerName(of: missing)
    let isLater = all.contains { $0.index > stage.index && !$0.plan.produces.isDisjoint(with: missing) }
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

  /// Sides that no picture can be encoded with, where the settings alone make them certain.
  private static func checkSides(_ stages: [JobStage], _ nodes: [JSONNode], _ checker: inout FieldChecker) {
    var least: (side: Int, stage: JobStage)?
    for stage in stages {
      let plan = stage.plan
      if let side = plan.leastSide {
        least = (side, stage)
      } else if plan.resultSize != nil || (plan.produces.contains(.picture) && plan.accepts == .source) {
        least = nil
      }
      guard let most = plan.mostSide, let (side, maker) = least, side > most else { continue }
      let settings = nodes[maker.index]
      let at =
        [settings["width"], settings["height"]].compactMap(\.self)
        .first { $0.numberValue?.integer.map { $0 > most } ?? false } ?? settings
      let format = nodes[stage.index]["format"]?.stringValue.map { " to \($0)" } ?? ""
      checker.report(
        "side-too-long",
        "stage \"\(maker.label)\" makes pictures with a side of \(side) pixels or more, and stage "
          + "\"\(stage.label)\"\(format) takes at most \(most)", at: at.range, path: at.path,
        expected: "at most \(most)", found: "\(side)", hint: "ask for smaller sides, or encode to another format")
    }
  }

  /// Outputs that collide whatever the inputs are, and endings that name another format than the encoder's.
  private static func checkOutputs(
    _ stages: [JobStage], _ nodes: [JSONNode], _ input: InputDeclaration?, _ checker: inout FieldChecker
  ) {
    let many = hasSeveralInputs(input)
    var seen: [String: JobStage] = [:]
    var ending: String?
    for stage in stages {
      if let value = stage.plan.encodedExtension {
        ending = value
      } else if stage.plan.produces.contains(.encoded) {
        ending = nil
      }
      let outputs =
        stage.plan.outputs.map { (template: $0, node: nodes[stage.index]["to"], isCopy: false) }
        + stage.plan.copies.map { (template: $0, node: nodes[stage.index]["review"]?["to"], isCopy: true) }
      for (output, place, isCopy) in outputs {
        let node = place ?? nodes[stage.index]
        let key = output.text.replacing("${ext}", with: ending ?? "${ext}")
        if let first = seen[key] {
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
        if !isCopy, let ending, let written = output.literalEnding, let named = kind(ofEnding: written),
          named != kind(ofEnding: ending)
        {
          checker.report(
            "ending-mismatch", "the name ends in .\(written), but what is encoded is .\(ending)", at: node.range,
            path: node.path, expected: ".\(ending)", found: ".\(written)",
            hint: "use ${ext}, which is always the encoder's", severity: .warning)
        }
      }
    }
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
    case .directory: return true
    case .list, .manifest, nil: return false
    }
  }
}
