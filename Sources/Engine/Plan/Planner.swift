import Dispatch
import Glibc
import JobSyntax
import PipelineKit
import Synchronization

/// Enumerates inputs, works out where their outputs go, and proves that no output overwrites another or an input.
public struct Planner {
  private let job: Job
  private let run: RunValues
  private let shard: Shard?
  private var matcher: InputMatcher
  private var resolver = FolderResolver()
  private var plan = RunPlan()
  /// Output path hash → its number, to find outputs that are the same. Paths are rendered again to make sure. The number
  /// counts the outputs of all items, as many for each as there are templates.
  private var outputs: [Int: Int] = [:]
  private var foldedOutputs: [Int: Int] = [:]
  private let names: OutputNames
  private let history: RunHistory?
  /// What the history says of each item; empty without one.
  private var verdicts: [RunHistory.Verdict] = []
  private var collisionCount = 0

  /// Findings of one kind beyond this many are only counted.
  private static let mostFindings = 20

  public init(job: Job, run: RunValues, shard: Shard? = nil, history: RunHistory? = nil) {
    self.history = history
    self.job = job
    self.run = run
    self.shard = shard
    matcher = InputMatcher(job.input, base: job.inputFolder, resolver: &resolver)
    names = OutputNames(job: job, run: run)
  }

  /// Makes the plan.
  ///
  /// In a shard, names are proven for the inputs of all: each shard refuses what any two of them would do to each
  /// other. Only its own inputs stay in the plan.
  ///
  /// - Throws: `input-*` errors: `environment` for inputs that are missing or empty, `job` for those that are wrong;
  ///   what keeps the history from being read.
  public static func plan(
    _ job: Job, run: RunValues, shard: Shard? = nil, history: RunHistory? = nil
  ) throws(PlanError) -> RunPlan {
    var planner = Planner(job: job, run: run, shard: shard, history: history)
    do throws(InputError) { try planner.readInputs() } catch { throw .input(error) }
    do throws(StageError) { try planner.askHistory() } catch { throw .state(error) }
    planner.proveOutputs()
    planner.leaveOthers()
    planner.applyHistory()
    return planner.plan
  }

  /// Asks the history about every item, on all processors: files are looked at for it.
  private mutating func askHistory() throws(StageError) {
    guard let history else { return }
    let (plan, shard) = (plan, shard)
    let count = plan.inputs.count
    let pieces = min(count, 4 * Machine.processors)
    guard pieces > 0 else { return }
    let found = Mutex<(verdicts: [Int: [RunHistory.Verdict]], problem: StageError?)>(([:], nil))
    DispatchQueue.concurrentPerform(iterations: pieces) { piece in
      var verdicts: [RunHistory.Verdict] = []
      for index in (piece * count / pieces)..<((piece + 1) * count / pieces) {
        do throws(StageError) {
          let identity = plan.identity(of: plan.inputs[index], at: index)
          // Those of other shards are let go of later.
          let isOurs = shard?.contains(identity.name) ?? true
          verdicts.append(isOurs ? try history.verdict(on: identity) : .notFailed)
        } catch {
          found.withLock { $0.problem = error }
          return
        }
      }
      found.withLock { [verdicts] in $0.verdicts[piece] = verdicts }
    }
    let (parts, problem) = found.withLock { ($0.verdicts, $0.problem) }
    if let problem { throw problem }
    verdicts = (0..<pieces).flatMap { parts[$0] ?? [] }
  }

  /// What is up to date is not worked on, whatever else was found about its outputs: they are its own.
  private mutating func applyHistory() {
    guard let history else { return }
    for (index, verdict) in verdicts.enumerated() {
      switch verdict {
      case .upToDate(let reason): plan.decisions[index] = .skip(reason)
      case .notFailed: plan.decisions[index] = .skip("did not fail before")
      case .work(let reason):
        if history.options.explains { plan.reasons[index] = reason }
      }
    }
    if let notice = history.versionNotice {
      plan.findings.append(
        Diagnostic(
          severity: .warning, code: "other-versions", message: notice, file: job.file, range: nil, path: nil,
          hint: "--rebuild makes them again"))
    }
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
      let cursor = InputWalker([job.input], base: job.inputFolder, network: job.network).cursor(onSkip: onSkip)
      while let item = try cursor.next() {
        inputs.append(item)
        plan.list.add(item.name)
        if let mark = item.remote?.mark(beside: item.name) { plan.list.add(mark: mark) }
      }
      links += cursor.linkedFolders
    }
    for link in links { matcher.add(link: link, resolver: &resolver) }
    inputs.finish()
    plan.inputs = inputs
    switch job.input {
    // A walk meets no file twice.
    case .files, .directory, .bucket: break
    case .list, .manifest, .addresses, .imgur: plan.countOccurrences()
    }
    plan.skippedInputs = skipped
  }

  private mutating func proveOutputs() {
    let writers = names.writers
    guard !writers.isEmpty else { return }
    refuseUnknownNames()
    let stateFolder = (history?.ledger.folder.path).map { resolver.resolve($0) }
    // A picture that its own result may replace is still not another shard's to replace.
    let mayReplaceAll = writers.allSatisfy(\.mayReplaceInputs) && shard == nil
    let (inputs, others) = (plan.inputs, Self.otherFiles(of: job))
    plan.protected = ProtectedPaths(
      inputs: (0..<(mayReplaceAll ? 0 : inputs.count)).lazy.filter { !inputs.isRemote(at: $0) }.map {
        inputs.path(at: $0)
      }, others: others,
      resolver: &resolver)
    outputs.reserveCapacity(plan.inputs.count * writers.count)
    foldedOutputs.reserveCapacity(plan.inputs.count * writers.count)
    for index in plan.inputs.indices {
      let identity = plan.identity(of: plan.inputs[index], at: index)
      let isOurs = shard?.contains(identity.name) ?? true
      if let decision = names.decision(for: identity) {
        if isOurs { plan.decisions[index] = decision }
        continue
      }
      var existing: [Bool?] = []
      for (number, writer) in writers.enumerated() {
        guard names.isReached(number, by: identity) else {
          existing.append(nil)
          continue
        }
        let known: PathBytes?
        do throws(StageError) {
          known = try names.path(number, for: identity)
        } catch {
          if isOurs { plan.decisions[index] = .fail(error, stage: writer.stage.label) }
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
        if let state = stateFolder, resolved.isInside(state) {
          refuse(
            "output-in-state", "\(name(index)): its output \(path.printable) is in the folder of the job's own state",
            writer, hint: "write elsewhere, or keep the state elsewhere with --state")
        }
        let mayReplace = writer.mayReplaceInputs
        let isOthers =
          shard != nil && mayReplace
          && (identity.remote != nil || !resolver.places(of: identity.path).contains(resolved))
        if let error = plan.protected.refusal(
          of: path, resolved: resolved, mayReplaceInputs: mayReplace && !isOthers)
        {
          refuse(
            error.code, "\(name(index)): \(error.message)", writer, hint: writer.isCopy ? writer.elsewhere : error.hint)
        } else if !mayReplace, let reading = matcher.reading(path, resolved: resolved) {
          refuse(
            "output-inside-input", "\(name(index)): its output \(path.printable) \(reading)",
            writer, hint: writer.elsewhere)
        }
        guard isOurs, let kind = kind(of: path) else {
          // What was there already, and so was kept and not booked, is there no more.
          if isOurs, writer.stage.plan.existing == .skip, !writer.isCopy, index < verdicts.count,
            case .upToDate = verdicts[index], !writer.template.variables.contains(where: \.isOfTheRun)
          {
            verdicts[index] = .work("the output \(path.printable) is gone")
          }
          existing.append(false)
          continue
        }
        if let error = OutputPath.refusal(of: path, standing: kind) {
          plan.decisions[index] = .fail(error, stage: writer.stage.label)
          break
        }
        // Where a run was cut short, it may have written this and not come to book it: the stage compares.
        let mayBeOurs = writer.stage.plan.existing == .error && run.followsCutRun
        existing.append(writer.stage.plan.existing != .replace && !writer.isCopy && !mayBeOurs)
      }
      if isOurs { decide(index, existing) }
    }
    refuseRemoteSources()
    proveMoves(stateFolder)
    if collisionCount > Self.mostFindings {
      plan.findings.append(
        Diagnostic(
          severity: .note, code: "more-findings",
          message: "\(collisionCount - Self.mostFindings) more findings of this kind",
          file: job.file, range: nil, path: nil))
    }
  }

  /// What was fetched is no file that could be moved or deleted. Lint says so of what is remote by its declaration.
  private mutating func refuseRemoteSources() {
    guard job.onSuccess.changesSources, plan.inputs.hasRemote,
      let index = plan.inputs.indices.first(where: { plan.inputs.isRemote(at: $0) })
    else { return }
    plan.findings.append(
      Diagnostic(
        severity: .error, code: "source-remote",
        message: "\(name(index)) is no file here, so it can be neither moved nor deleted", file: job.file, range: nil,
        path: "$.onSuccess", hint: "leave \"onSuccess\" out, or name files alone"))
  }

  /// Proves that no source is moved to where it would be read again, onto an output or onto another source.
  private mutating func proveMoves(_ stateFolder: PathBytes?) {
    guard case .move(let template) = job.onSuccess, !plan.inputs.hasRemote else { return }
    var targets: [Int: Int] = [:]
    func refuse(_ code: String, _ message: String, hint: String) {
      collisionCount += 1
      guard collisionCount <= Self.mostFindings || !plan.findings.hasErrors else { return }
      plan.findings.append(
        Diagnostic(
          severity: .error, code: code, message: message, file: job.file, range: nil, path: "$.onSuccess.to",
          hint: hint))
    }
    for index in plan.inputs.indices {
      let identity = plan.identity(of: plan.inputs[index], at: index)
      let target: PathBytes
      do throws(StageError) {
        guard let path = try job.onSuccess.target(of: identity, in: run) else { return }
        target = path
      } catch {
        refuse(error.code, "\(name(index)): \(error.message)", hint: "change \(template.text)")
        continue
      }
      let resolved = resolver.resolve(target)
      if let error = plan.protected.refusal(of: target, resolved: resolved, mayReplaceInputs: false) {
        refuse(
          "source-place", "\(name(index)) would be moved to \(target.printable): \(error.message)",
          hint: "move it elsewhere")
      } else if let reading = matcher.reading(target, resolved: resolved) {
        refuse(
          "source-place", "\(name(index)) would be moved to \(target.printable), which \(reading)",
          hint: "move it outside the folders that the input names")
      } else if let first = outputs[resolved.hashValue], path(first) == resolved {
        refuse(
          "source-place", "\(name(index)) would be moved to \(target.printable), where an output is written",
          hint: "move it elsewhere")
      } else if let state = stateFolder, resolved.isInside(state) {
        refuse(
          "source-place", "\(name(index)) would be moved into the folder of the job's own state",
          hint: "move it elsewhere")
      } else if let first = targets.updateValue(index, forKey: resolved.hashValue) {
        targets[resolved.hashValue] = first
        let other = plan.identity(of: plan.inputs[first], at: first)
        guard other.path != identity.path, let place = (try? job.onSuccess.target(of: other, in: run)) ?? nil,
          resolver.resolve(place) == resolved
        else { continue }
        refuse(
          "source-collision", "\(name(first)) and \(name(index)) would both be moved to \(target.printable)",
          hint: "make the names differ, with ${item.dir}")
      }
    }
  }

  /// Shards do not see each other's claims on names that only the run knows: one could replace what another has made of
  /// a picture that is already gone.
  private mutating func refuseUnknownNames() {
    guard shard != nil, job.onSuccess.changesSources, names.hasUnknownNames.any,
      let writer = names.writers.first(where: { !$0.isCopy })
    else { return }
    refuse(
      "names-of-shards",
      "with --shard and \"onSuccess\" every output needs a name that is known before the run: shards could replace each "
        + "other's", writer, hint: "leave ${item.hash} and ${image.…} out of \"to\", or keep the pictures")
  }

  /// Lets go of the inputs of other shards.
  private mutating func leaveOthers() {
    guard let shard else { return }
    var inputs = InputList()
    var decisions: [Int: RunPlan.Decision] = [:]
    var verdicts: [RunHistory.Verdict] = []
    for (index, input) in plan.inputs.enumerated() where shard.contains(input.name) {
      decisions[inputs.count] = plan.decisions[index]
      if index < self.verdicts.count { verdicts.append(self.verdicts[index]) }
      inputs.append(input)
    }
    inputs.finish()
    plan.inputs = inputs
    plan.decisions = decisions
    self.verdicts = verdicts
  }

  /// - Parameter existing: for each writer whether its output is there already; nil where the item does not come to it.
  private mutating func decide(_ index: Int, _ existing: [Bool?]) {
    let writers = names.writers
    guard plan.decisions[index] == nil, existing.contains(true) else { return }
    if let refused = writers.indices.first(where: { existing[$0] == true && writers[$0].stage.plan.existing == .error })
    {
      let path = (try? names.path(refused, for: plan.identity(of: plan.inputs[index], at: index))) ?? nil
      plan.decisions[index] = .fail(
        StageError(
          "output-exists", "the output \(path?.printable ?? "") exists already",
          hint: "\"overwrite\": \"replace\" or \"skip\" would go on"), stage: writers[refused].stage.label)
    } else if writers.indices.allSatisfy({
      writers[$0].isCopy || existing[$0] == nil || existing[$0] == true && writers[$0].stage.plan.existing == .skip
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
    return ((try? names.path(output, for: plan.identity(of: plan.inputs[item], at: item))) ?? nil)
      .map { resolver.resolve($0) }
  }

  /// What the job reads besides its inputs, with the words for it.
  static func otherFiles(of job: Job) -> [(path: PathBytes, what: String)] {
    var files = [(job.baseFolder.joining(PathBytes(job.file).lastComponent), "the job file")]
    let table: (path: String, what: String)? =
      switch job.input {
      case .list(let path, _): (path, "the list of inputs")
      case .manifest(let path, _, _, _): (path, "the manifest")
      case .files, .directory, .addresses, .bucket, .imgur: nil
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
