import JobSyntax
import PipelineKit

/// Refuses chains that cannot work, and outputs that must collide, from the stages' plans alone.
enum ChainLinter {
  /// - Parameter stages: those that could be read; when some could not, gaps are not complained about.
  static func check(_ stages: [JobStage], root: JSONNode, checker: inout FieldChecker) {
    guard let nodes = root["stages"]?.arrayValue, !nodes.isEmpty else { return }
    let isComplete = stages.count == nodes.count
    if isComplete { checkTraits(stages, nodes, &checker) }
    checkOutputs(stages, nodes, root, &checker)
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
      if plan.produces.contains(.encoded) || plan.removes.contains(.encoded), let encode = pendingEncode {
        checker.report(
          "chain-unused", "what stage \"\(encode.label)\" makes is never written: stage \"\(stage.label)\" replaces it",
          at: node["stage"]?.range ?? node.range, path: node.path, expected: "an output stage such as \"write\" in between",
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
    } else if !last.plan.produces.contains(.output), last.plan.removes.contains(.encoded) || last.plan.produces.contains(.picture) {
      checker.report(
        "chain-unused", "what stage \"\(last.label)\" makes is never encoded and written",
        at: node["stage"]?.range ?? node.range, path: node.path, expected: "\"encode\" and \"write\" after it",
        found: "the end of the chain")
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
    if missing.contains(.alpha) || missing.contains(.matte), stage.descriptor.spec.name == "composite" {
      hint = (hint.map { $0 + ", or set" } ?? "set") + " \"existingAlpha\": true for pictures that bring their own transparency"
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

  /// Outputs that collide whatever the inputs are.
  private static func checkOutputs(
    _ stages: [JobStage], _ nodes: [JSONNode], _ root: JSONNode, _ checker: inout FieldChecker
  ) {
    let many = mayHaveSeveralInputs(root)
    var seen: [String: JobStage] = [:]
    var ending: String?
    for stage in stages {
      if let value = stage.plan.encodedExtension { ending = value }
      for output in stage.plan.outputs {
        let node = nodes[stage.index]["to"] ?? nodes[stage.index]
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
      }
    }
  }

  private static func mayHaveSeveralInputs(_ root: JSONNode) -> Bool {
    guard let input = root["input"], let files = input["files"]?.arrayValue else { return true }
    guard files.count == 1, let only = files[0].stringValue else { return true }
    return only.utf8.contains { "*?[{".utf8.contains($0) }
  }
}
