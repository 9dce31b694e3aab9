import Glibc
import JobSyntax
import PipelineKit

/// Enumerates inputs, works out where their outputs go, and proves that no output overwrites another or an input.
public struct Planner {
  private let job: Job
  private let run: RunValues
  private let matcher: InputMatcher
  private var resolver = FolderResolver()
  private var plan = RunPlan()
  /// Output path hash → item, to find outputs that are the same. Paths are rendered again to make sure.
  private var outputs: [Int: (item: Int, output: Int)] = [:]
  private var foldedOutputs: [Int: (item: Int, output: Int)] = [:]
  private let writers: [(stage: JobStage, template: Template, ending: String?)]
  private var collisionCount = 0

  /// Findings of one kind beyond this many are only counted.
  private static let mostFindings = 20

  public init(job: Job, run: RunValues) {
    self.job = job
    self.run = run
    matcher = InputMatcher(job.input, base: job.inputFolder, resolver: &resolver)
    var ending: String?
    var writers: [(JobStage, Template, String?)] = []
    for stage in job.stages {
      if let value = stage.plan.encodedExtension {
        ending = value
      } else if stage.plan.produces.contains(.encoded) {
        ending = nil
      }
      for template in stage.plan.outputs { writers.append((stage, template, ending)) }
    }
    self.writers = writers
  }

  /// Makes the plan.
  ///
  /// - Throws: `input-*` errors: `environment` for inputs that are missing or empty, `job` for those that are wrong.
  public static func plan(_ job: Job, run: RunValues) throws(InputError) -> RunPlan {
    var planner = Planner(job: job, run: run)
    try planner.readInputs()
    planner.proveOutputs()
    return planner.plan
  }

  private mutating func readInputs() throws(InputError) {
    var skipped = SkipTally()
    var inputs: [InputItem] = []
    try withoutActuallyEscaping({ (skip: SkippedInput) in skipped.add(skip) }) { (onSkip) throws(InputError) in
      let cursor = InputWalker([job.input], base: job.inputFolder).cursor(onSkip: onSkip)
      while let item = try cursor.next() { inputs.append(item) }
    }
    plan.inputs = inputs
    plan.skippedInputs = skipped
  }

  /// The output's absolute path; nil where its name is only known during the run.
  ///
  /// - Throws: what the run would fail the item with: a name that no file system takes, or that leads elsewhere.
  func outputPath(_ writer: Int, for identity: ItemIdentity) throws(StageError) -> PathBytes? {
    let (_, template, ending) = writers[writer]
    // Reading every input only to plan would double the work; the run proves these names.
    let isKnown = template.variables.allSatisfy { variable in
      switch variable {
      case .ext: ending != nil
      case .itemHash, .imageWidth, .imageHeight: false
      default: true
      }
    }
    guard isKnown else { return nil }
    return try OutputPath.resolve(template, in: run.baseFolder) { variable in
      if variable == .ext, let ending { return .success(Array(ending.utf8)) }
      return TemplateValues.value(of: variable, identity: identity, run: run, item: nil)
    }
  }

  /// Every output that can be named before the run, for `pipeline plan`.
  public static func outputs(of plan: RunPlan, job: Job, run: RunValues, at index: Int) -> [PathBytes?] {
    let planner = Planner(job: job, run: run)
    let identity = plan.identity(of: plan.inputs[index])
    return planner.writers.indices.map { (try? planner.outputPath($0, for: identity)) ?? nil }
  }

  private mutating func proveOutputs() {
    guard !writers.isEmpty else { return }
    let mayReplace = writers.allSatisfy { $0.stage.plan.mayReplaceInputs }
    var inputPaths: Set<Int> = []
    if !mayReplace {
      inputPaths.reserveCapacity(plan.inputs.count)
      for input in plan.inputs { inputPaths.insert(resolver.resolve(input.path).hashValue) }
    }
    for index in plan.inputs.indices {
      let identity = plan.identity(of: plan.inputs[index])
      var existing: [Bool] = []
      for (number, writer) in writers.enumerated() {
        let known: PathBytes?
        do throws(StageError) {
          known = try outputPath(number, for: identity)
        } catch {
          plan.decisions[index] = .fail(error, stage: writer.stage.label)
          break
        }
        guard let path = known else {
          existing.append(false)
          continue
        }
        let resolved = resolver.resolve(path)
        prove(resolved, item: index, output: number)
        if !writer.stage.plan.mayReplaceInputs {
          if inputPaths.contains(resolved.hashValue), isInput(resolved) {
            refuse(
              "output-overwrites-input", "\(name(index)): its output \(path.printable) is an input", writer.stage,
              hint: "write elsewhere, or set \"inPlace\": true to replace inputs")
          } else if matcher.matches(resolved) || matcher.matches(path) {
            refuse(
              "output-inside-input", "\(name(index)): its output \(path.printable) would be read as an input by the next run",
              writer.stage, hint: "write outside the folders that the input names, or set \"inPlace\": true")
          }
        }
        existing.append(writer.stage.plan.existing != .replace && exists(path))
      }
      decide(index, existing)
    }
    if collisionCount > Self.mostFindings {
      plan.findings.append(
        Diagnostic(
          severity: .note, code: "more-findings", message: "\(collisionCount - Self.mostFindings) more findings of this kind",
          file: job.file, range: nil, path: nil))
    }
  }

  private mutating func decide(_ index: Int, _ existing: [Bool]) {
    guard plan.decisions[index] == nil, existing.contains(true) else { return }
    if let refused = writers.indices.first(where: { existing[$0] && writers[$0].stage.plan.existing == .error }) {
      let path = (try? outputPath(refused, for: plan.identity(of: plan.inputs[index]))) ?? nil
      plan.decisions[index] = .fail(
        StageError(
          "output-exists", "the output \(path?.printable ?? "") exists already",
          hint: "\"overwrite\": \"replace\" or \"skip\" would go on"), stage: writers[refused].stage.label)
    } else if writers.indices.allSatisfy({ existing[$0] && writers[$0].stage.plan.existing == .skip }) {
      plan.decisions[index] = .skip("every output exists already")
    }
  }

  private mutating func prove(_ path: PathBytes, item: Int, output: Int) {
    if let first = outputs.updateValue((item, output), forKey: path.hashValue) {
      outputs[path.hashValue] = first
      if self.path(first) == path {
        refuse(
          "output-collision", "\(name(first.item)) and \(name(item)) would both be written to \(path.printable)",
          writers[output].stage, hint: "make the names differ, with ${item.dir} or ${item.index}")
        return
      }
    }
    let folded = NameFolding.folded(path)
    if let first = foldedOutputs.updateValue((item, output), forKey: folded.hashValue) {
      foldedOutputs[folded.hashValue] = first
      if let other = self.path(first), NameFolding.folded(other) == folded {
        refuse(
          "output-collision-folded",
          "\(other.printable) and \(path.printable) are one file where case or Unicode form does not count (macOS, Windows, many shares)",
          writers[output].stage, severity: job.portable ? .error : .warning,
          hint: job.portable ? nil : "\"portable\": true makes this an error")
      }
    }
  }

  private mutating func path(_ place: (item: Int, output: Int)) -> PathBytes? {
    ((try? outputPath(place.output, for: plan.identity(of: plan.inputs[place.item]))) ?? nil)
      .map { resolver.resolve($0) }
  }

  private mutating func isInput(_ resolved: PathBytes) -> Bool {
    for input in plan.inputs where resolver.resolve(input.path) == resolved { return true }
    return false
  }

  private func name(_ index: Int) -> String { plan.inputs[index].name.printable }

  private func exists(_ path: PathBytes) -> Bool {
    var status = stat()
    return path.withCString { lstat($0, &status) } == 0
  }

  private mutating func refuse(
    _ code: String, _ message: String, _ stage: JobStage, severity: Diagnostic.Severity = .error, hint: String? = nil
  ) {
    collisionCount += 1
    guard collisionCount <= Self.mostFindings else {
      // An error must not be lost among warnings.
      if severity == .error, !plan.findings.hasErrors {
        plan.findings.append(diagnostic(code, message, stage, severity, hint))
      }
      return
    }
    plan.findings.append(diagnostic(code, message, stage, severity, hint))
  }

  private func diagnostic(
    _ code: String, _ message: String, _ stage: JobStage, _ severity: Diagnostic.Severity, _ hint: String?
  ) -> Diagnostic {
    let node = stage.settings.nodes["to"]
    return Diagnostic(
      severity: severity, code: code, message: message, file: job.file, range: node?.range ?? stage.settings.range,
      path: node?.path ?? stage.settings.path, hint: hint)
  }
}
