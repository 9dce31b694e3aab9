import Glibc
import JobSyntax
import PipelineKit

/// Enumerates inputs, works out where their outputs go, and proves that no output overwrites another or an input.
public struct Planner {
  private let job: Job
  private let run: RunValues
  private var matcher: InputMatcher
  private var resolver = FolderResolver()
  private var plan = RunPlan()
  /// Output path hash → its number, to find outputs that are the same. Paths are rendered again to make sure. The number
  /// counts the outputs of all items, as many for each as there are templates.
  private var outputs: [Int: Int] = [:]
  private var foldedOutputs: [Int: Int] = [:]
  private let names: OutputNames
  private var collisionCount = 0

  /// Findings of one kind beyond this many are only counted.
  private static let mostFindings = 20

  public init(job: Job, run: RunValues) {
    self.job = job
    self.run = run
    matcher = InputMatcher(job.input, base: job.inputFolder, resolver: &resolver)
    names = OutputNames(job: job, run: run)
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
    var inputs = InputList()
    // A broken link may lead to a folder that this run makes.
    var links: [PathBytes] = []
    func note(_ skip: SkippedInput) {
      skipped.add(skip)
      if skip.reason == .brokenLink { links.append(skip.path) }
    }
    try withoutActuallyEscaping(note) { (onSkip) throws(InputError) in
      let cursor = InputWalker([job.input], base: job.inputFolder).cursor(onSkip: onSkip)
      while let item = try cursor.next() { inputs.append(item) }
      links += cursor.linkedFolders
    }
    for link in links { matcher.add(link: link, resolver: &resolver) }
    inputs.finish()
    plan.inputs = inputs
    plan.skippedInputs = skipped
  }

  private mutating func proveOutputs() {
    let writers = names.writers
    guard !writers.isEmpty else { return }
    plan.protected = Self.protectedPaths(of: job, inputs: plan.inputs, resolver: &resolver)
    outputs.reserveCapacity(plan.inputs.count * writers.count)
    foldedOutputs.reserveCapacity(plan.inputs.count * writers.count)
    for index in plan.inputs.indices {
      let identity = plan.identity(of: plan.inputs[index])
      var existing: [Bool] = []
      for (number, writer) in writers.enumerated() {
        let known: PathBytes?
        do throws(StageError) {
          known = try names.path(number, for: identity)
        } catch {
          plan.decisions[index] = .fail(error, stage: writer.stage.label)
          break
        }
        guard let path = known else {
          if !writer.mayReplaceInputs, let sample = names.sample(number, for: identity) {
            if let reading = matcher.reading(sample, resolved: resolver.resolve(sample)) {
              refuse(
                "output-inside-input", "\(name(index)): its output, such as \(sample.printable), \(reading)",
                writer, hint: writer.elsewhere)
            }
          }
          existing.append(false)
          continue
        }
        let resolved = resolver.resolve(path)
        prove(resolved, item: index, output: number)
        let mayReplace = writer.mayReplaceInputs
        if let error = plan.protected.refusal(of: path, resolved: resolved, mayReplaceInputs: mayReplace) {
          refuse(
            error.code, "\(name(index)): \(error.message)", writer, hint: writer.isCopy ? writer.elsewhere : error.hint)
        } else if !mayReplace, let reading = matcher.reading(path, resolved: resolved) {
          refuse(
            "output-inside-input", "\(name(index)): its output \(path.printable) \(reading)",
            writer, hint: writer.elsewhere)
        }
        guard let kind = kind(of: path) else {
          existing.append(false)
          continue
        }
        if let error = OutputPath.refusal(of: path, standing: kind) {
          plan.decisions[index] = .fail(error, stage: writer.stage.label)
          break
        }
        existing.append(writer.stage.plan.existing != .replace && !writer.isCopy)
      }
      decide(index, existing)
    }
    if collisionCount > Self.mostFindings {
      plan.findings.append(
        Diagnostic(
          severity: .note, code: "more-findings",
          message: "\(collisionCount - Self.mostFindings) more findings of this kind",
          file: job.file, range: nil, path: nil))
    }
  }

  /// What no output of a job with these inputs may replace.
  static func protectedPaths(of job: Job, inputs: InputList, resolver: inout FolderResolver) -> ProtectedPaths {
    let writers = job.stages.filter { !$0.plan.outputs.isEmpty || !$0.plan.copies.isEmpty }
    guard !writers.isEmpty else { return ProtectedPaths() }
    let mayReplace = writers.allSatisfy(\.plan.mayReplaceInputs)
    return ProtectedPaths(
      inputs: (0..<(mayReplace ? 0 : inputs.count)).lazy.map { inputs.path(at: $0) }, others: otherFiles(of: job),
      resolver: &resolver)
  }

  private mutating func decide(_ index: Int, _ existing: [Bool]) {
    let writers = names.writers
    guard plan.decisions[index] == nil, existing.contains(true) else { return }
    if let refused = writers.indices.first(where: { existing[$0] && writers[$0].stage.plan.existing == .error }) {
      let path = (try? names.path(refused, for: plan.identity(of: plan.inputs[index]))) ?? nil
      plan.decisions[index] = .fail(
        StageError(
          "output-exists", "the output \(path?.printable ?? "") exists already",
          hint: "\"overwrite\": \"replace\" or \"skip\" would go on"), stage: writers[refused].stage.label)
    } else if writers.indices.allSatisfy({
      writers[$0].isCopy || existing[$0] && writers[$0].stage.plan.existing == .skip
    }) {
      plan.decisions[index] = .skip("every output exists already")
    }
  }

  private mutating func prove(_ path: PathBytes, item: Int, output: Int) {
    let number = item * names.writers.count + output
    if let first = outputs.updateValue(number, forKey: path.hashValue) {
      outputs[path.hashValue] = first
      if self.path(first) == path {
        refuse(
          "output-collision",
          "\(name(first / names.writers.count)) and \(name(item)) would both be written to \(path.printable)",
          names.writers[output], hint: "make the names differ, with ${item.dir} or ${item.index}")
        return
      }
    }
    let folded = NameFolding.folded(path)
    if let first = foldedOutputs.updateValue(number, forKey: folded.hashValue) {
      foldedOutputs[folded.hashValue] = first
      if let other = self.path(first), NameFolding.folded(other) == folded {
        refuse(
          "output-collision-folded",
          "\(other.printable) and \(path.printable) are one file where case or Unicode form does not count (macOS, Windows, many shares)",
          names.writers[output], severity: job.portable ? .error : .warning,
          hint: job.portable ? nil : "\"portable\": true makes this an error")
      }
    }
  }

  /// Where an output goes, by its number.
  private mutating func path(_ number: Int) -> PathBytes? {
    let (item, output) = number.quotientAndRemainder(dividingBy: names.writers.count)
    return ((try? names.path(output, for: plan.identity(of: plan.inputs[item]))) ?? nil).map { resolver.resolve($0) }
  }

  /// What the job reads besides its inputs, with the words for it.
  private static func otherFiles(of job: Job) -> [(path: PathBytes, what: String)] {
    var files = [(job.baseFolder.joining(PathBytes(job.file).lastComponent), "the job file")]
    let table: (path: String, what: String)? =
      switch job.input {
      case .list(let path, _): (path, "the list of inputs")
      case .manifest(let path, _, _, _): (path, "the manifest")
      case .files, .directory: nil
      }
    if let table, table.path != "-" {
      files.append((PathBytes.resolving(PathBytes(table.path), from: job.inputFolder), table.what))
    }
    for stage in job.stages {
      for path in stage.plan.helperFiles {
        files.append((PathBytes.resolving(PathBytes(path), from: job.baseFolder), "a file of stage \"\(stage.label)\""))
      }
    }
    return files
  }

  private func name(_ index: Int) -> String { plan.inputs[index].name.printable }

  /// `S_IFREG`, `S_IFDIR`, …; nil where nothing is.
  private func kind(of path: PathBytes) -> mode_t? {
    var status = stat()
    return path.withCString { lstat($0, &status) } == 0 ? status.st_mode & S_IFMT : nil
  }

  private mutating func refuse(
    _ code: String, _ message: String, _ writer: OutputNames.Writer, severity: Diagnostic.Severity = .error,
    hint: String? = nil
  ) {
    collisionCount += 1
    guard collisionCount <= Self.mostFindings else {
      // An error must not be lost among warnings.
      if severity == .error, !plan.findings.hasErrors {
        plan.findings.append(diagnostic(code, message, writer, severity, hint))
      }
      return
    }
    plan.findings.append(diagnostic(code, message, writer, severity, hint))
  }

  private func diagnostic(
    _ code: String, _ message: String, _ writer: OutputNames.Writer, _ severity: Diagnostic.Severity, _ hint: String?
  ) -> Diagnostic {
    let node = writer.node
    return Diagnostic(
      severity: severity, code: code, message: message, file: job.file,
      range: node?.range ?? writer.stage.settings.range,
      path: node?.path ?? writer.stage.settings.path, hint: hint)
  }
}
