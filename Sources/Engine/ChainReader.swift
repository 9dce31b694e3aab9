import JobSyntax
import PipelineKit

/// The stages that a job may name.
struct PluginRegistry {
  var stages: StageRegistry
  /// Whether all of the job's plugins were taken.
  var isWhole = true
}

/// Reads the stages of a job, those of its tails too, into one list: depth first, each with the stage it follows.
struct ChainReader {
  private let registry: StageRegistry
  /// False where a plugin was refused: a stage that is not known is then most likely its, and that was said.
  private let knowsAllStages: Bool
  private(set) var stages: [JobStage] = []
  /// False once a stage could not be read: the list has a gap, and what follows it has no place.
  private(set) var isWhole = true

  init(registry: PluginRegistry) {
    self.registry = registry.stages
    knowsAllStages = registry.isWhole
  }

  /// Reads the chain of a job.
  mutating func read(_ node: JSONNode?, _ checker: inout FieldChecker) {
    guard let node, let elements = node.arrayValue else {
      isWhole = false
      return
    }
    if elements.isEmpty {
      checker.report(
        "empty-chain", "\"stages\" is empty: a job needs at least one stage", at: node.range, path: node.path,
        expected: "stages", found: "none")
    }
    read(elements, after: nil, tail: [], &checker)
  }

  private mutating func read(
    _ elements: [JSONNode], after first: Int?, tail: [String], _ checker: inout FieldChecker
  ) {
    var predecessor = first
    var counts: [String: Int] = [:]
    var branch: String?
    for element in elements {
      guard let descriptor = descriptor(of: element, &checker) else {
        isWhole = false
        continue
      }
      let name = descriptor.spec.name
      if let branch {
        let at = element["stage"] ?? element
        checker.report(
          "branch-not-last", "nothing can come after stage \"\(branch)\": the picture goes on in its tails",
          at: at.range, path: element.path, expected: "the end of the chain", found: "\"\(name)\"",
          hint: "put it before \"\(branch)\", or into the tails")
        isWhole = false
      }
      let before = checker.diagnostics.count
      checker.check(element, against: descriptor.shape, owner: "stage \"\(name)\"", ignoring: ["stage"])
      let isSound = !Array(checker.diagnostics[before...]).hasErrors
      let settings = Settings(reading: element, shape: descriptor.shape, file: checker.file)
      let tails = descriptor.spec.branchesField.flatMap { element[$0]?.objectValue } ?? []
      // A required field that is missing, wrong or not known yet has no value to plan with.
      if isSound, settings.isComplete {
        checker.append(descriptor.check(settings))
        counts[name, default: 0] += 1
        let place = counts[name] ?? 1
        let label = (tail + [place == 1 ? name : "\(name) \(place)"]).joined(separator: "/")
        stages.append(
          JobStage(
            descriptor: descriptor, settings: settings, plan: descriptor.plan(settings), index: stages.count,
            label: label, predecessor: predecessor, tail: tail, node: element))
        predecessor = stages.count - 1
      } else {
        isWhole = false
      }
      if descriptor.spec.branchesField != nil { branch = name }
      for member in tails {
        guard let stages = member.value.arrayValue else {
          isWhole = false
          continue
        }
        read(stages, after: predecessor, tail: tail + [member.key], &checker)
      }
    }
  }

  private func descriptor(of element: JSONNode, _ checker: inout FieldChecker) -> StageDescriptor? {
    guard element.objectValue != nil else {
      checker.report(
        "wrong-type", "a stage is an object such as { \"stage\": \"decode\" }, got \(element.value.typeName)",
        at: element.range, path: element.path, expected: "an object", found: element.value.typeName)
      return nil
    }
    guard let nameNode = element["stage"], let name = nameNode.stringValue else {
      let at = element["stage"] ?? element
      checker.report(
        element["stage"] == nil ? "missing-key" : "wrong-type", "a stage needs its name in \"stage\"", at: at.range,
        path: at.path, expected: "one of: " + registry.names.joined(separator: ", "),
        found: element["stage"]?.value.typeName ?? "nothing")
      return nil
    }
    guard let descriptor = registry[name] else {
      // Names with a namespace are those of plugins.
      if !knowsAllStages, name.contains(".") { return nil }
      let near = NearestName.suggestion(for: name, among: registry.names)
      checker.report(
        "unknown-stage", "unknown stage \"\(name)\"", at: nameNode.range, path: nameNode.path,
        expected: "one of: " + registry.names.joined(separator: ", "), found: name,
        hint: near.map { "did you mean \"\($0)\"?" } ?? "`pipeline stages` lists them")
      return nil
    }
    return descriptor
  }
}
