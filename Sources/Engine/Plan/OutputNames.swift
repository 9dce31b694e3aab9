import JobSyntax
import PipelineKit

/// Where the outputs of a job's items go, as far as it is known before they are made.
struct OutputNames: Sendable {
  struct Writer: Sendable {
    var stage: JobStage
    var template: Template
    /// What its encoder gives.
    var ending: String?
    /// A copy of the input, for items that leave the chain there.
    var isCopy: Bool
    /// What is known beforehand and decides whether an item comes here: conditions and filters on the way.
    var conditions: [Condition]
    /// Whether nothing but these conditions keeps an item from coming here.
    var isCertain: Bool
    /// Whether its names are known before the run. Reading every input only to plan would double the work; the run proves
    /// the others.
    let isNamedBeforehand: Bool

    init(
      stage: JobStage, template: Template, ending: String?, isCopy: Bool = false, conditions: [Condition],
      isCertain: Bool = true
    ) {
      self.stage = stage
      self.template = template
      self.ending = ending
      self.isCopy = isCopy
      self.conditions = conditions
      self.isCertain = isCertain
      isNamedBeforehand = template.variables.allSatisfy { variable in
        switch variable {
        case .ext: ending != nil
        case .itemHash, .imageWidth, .imageHeight: false
        default: true
        }
      }
    }

    var mayReplaceInputs: Bool { stage.plan.mayReplaceInputs && !isCopy }
    /// Where the template stands in the job.
    var node: JSONNode? { isCopy ? stage.settings.nodes["review"]?["to"] : stage.settings.nodes["to"] }
    /// What mends an output that lands among the inputs.
    var elsewhere: String {
      "write outside the folders that the input names" + (isCopy ? "" : ", or set \"inPlace\": true")
    }
  }
  /// Every template that the chain writes to.
  let writers: [Writer]
  private let filters: [JobStage]
  /// Whether all that the job writes is written by `writers`.
  private let outputsAreKnown: Bool
  private let run: RunValues

  init(job: Job, run: RunValues) {
    self.run = run
    var writers: [Writer] = []
    for stage in job.stages where !stage.plan.outputs.isEmpty || !stage.plan.copies.isEmpty {
      let path = job.stages.path(to: stage)
      let ending = Self.ending(after: path)
      let conditions = path.flatMap { before -> [Condition] in
        let decides = before.index == stage.index || before.descriptor.spec.branchesField != nil
        // A filter that may be passed over drops nothing for certain.
        let filter = before.condition == nil ? before.plan.filter?.condition : nil
        return [decides ? before.condition : nil, filter].compactMap(\.self).filter(\.isKnownBeforehand)
      }
      let isCertain = path.allSatisfy {
        ($0.condition?.isKnownBeforehand ?? true) && ($0.plan.filter?.condition.isKnownBeforehand ?? true)
      }
      for template in stage.plan.outputs {
        writers.append(
          Writer(stage: stage, template: template, ending: ending, conditions: conditions, isCertain: isCertain))
      }
      for template in stage.plan.copies {
        writers.append(Writer(stage: stage, template: template, ending: nil, isCopy: true, conditions: conditions))
      }
    }
    self.writers = writers
    filters = Self.filters(job.stages)
    outputsAreKnown = job.stages.allSatisfy { !$0.plan.produces.contains(.output) || !$0.plan.outputs.isEmpty }
  }

  /// The ending that what was encoded last has at the end of a way; nil where only the run shows it.
  static func ending(after path: [JobStage]) -> String? {
    var ending: String?
    for stage in path where stage.plan.produces.contains(.encoded) && !stage.plan.keepsEncodedFormat {
      // Where it is passed over, the ending is the one from before.
      ending = stage.condition == nil || ending == stage.plan.encodedExtension ? stage.plan.encodedExtension : nil
    }
    return ending
  }

  /// The filters that decide about an item before anything is written, as far as that is known beforehand.
  private static func filters(_ stages: [JobStage]) -> [JobStage] {
    var filters: [JobStage] = []
    for (index, stage) in stages.enumerated() {
      // In a tail a filter ends that tail only.
      guard stage.tail.isEmpty, stage.plan.outputs.isEmpty, stage.plan.copies.isEmpty,
        !stage.plan.produces.contains(.output), index == 0 || stage.predecessor == index - 1
      else { break }
      if stage.plan.filter?.condition.isKnownBeforehand ?? false, stage.condition?.isKnownBeforehand ?? true {
        filters.append(stage)
      }
    }
    return filters
  }

  /// What becomes of an item whatever its picture is: nil where it is worked on.
  func decision(for identity: ItemIdentity) -> RunPlan.Decision? {
    for stage in filters {
      guard let filter = stage.plan.filter else { continue }
      do throws(StageError) {
        if let condition = stage.condition, try condition.holds(for: identity, item: nil, matte: nil) == false {
          continue
        }
        if try filter.condition.holds(for: identity, item: nil, matte: nil) == false { return .drop(filter.text) }
      } catch {
        return .fail(error, stage: stage.label)
      }
    }
    if outputsAreKnown, !writers.isEmpty, writers.indices.allSatisfy({ fate(of: identity, at: $0) == .passes }) {
      return .drop("nothing would be written: no condition of a stage that writes holds")
    }
    return nil
  }

  private enum Fate { case arrives, passes, fails }

  /// What happens to an item before a writer, as far as that is known beforehand.
  private func fate(of identity: ItemIdentity, at writer: Int) -> Fate {
    for condition in writers[writer].conditions {
      do throws(StageError) {
        if try condition.holds(for: identity, item: nil, matte: nil) == false { return .passes }
      } catch {
        return .fails
      }
    }
    return .arrives
  }

  /// Whether an item may come to a writer; false where it certainly does not.
  func isReached(_ writer: Int, by identity: ItemIdentity) -> Bool { fate(of: identity, at: writer) == .arrives }

  /// The output's absolute path; nil where its name is only known during the run.
  ///
  /// - Throws: what the run would fail the item with: a name that no file system takes, or that leads elsewhere.
  func path(_ writer: Int, for identity: ItemIdentity) throws(StageError) -> PathBytes? {
    let (template, ending) = (writers[writer].template, writers[writer].ending)
    guard writers[writer].isNamedBeforehand else { return nil }
    return try OutputPath.resolve(template, in: run.baseFolder) { variable in
      if variable == .ext, let ending { return .success(Array(ending.utf8)) }
      return TemplateValues.value(of: variable, identity: identity, run: run, item: nil)
    }
  }

  /// A path such as the run will make, where its name is only known then: a number stands for sizes and the hash.
  func sample(_ writer: Int, for identity: ItemIdentity) -> PathBytes? {
    let (template, ending) = (writers[writer].template, writers[writer].ending)
    return try? OutputPath.resolve(template, in: run.baseFolder) { variable in
      switch variable {
      case .itemHash, .imageWidth, .imageHeight: return .success(Array("100".utf8))
      case .ext: return .success(Array((ending ?? "jpg").utf8))
      default: return TemplateValues.value(of: variable, identity: identity, run: run, item: nil)
      }
    }
  }

  /// Folders below which outputs go whose names are only known during the run; none that is not below the job's folder
  /// or named by the template itself.
  var openEndedFolders: Set<PathBytes> {
    var folders: Set<PathBytes> = []
    for writer in writers
    where !writer.isNamedBeforehand || writer.template.variables.contains(where: \.isOfTheRun) {
      var fixed: [UInt8] = []
      if case .literal(let bytes) = writer.template.segments.first { fixed = bytes }
      guard let end = fixed.lastIndex(of: UInt8(ascii: "/")), end > 0 else { continue }
      folders.insert(run.baseFolder.joining(PathBytes(bytes: Array(fixed[..<end]))).normalised)
    }
    return folders
  }

  /// How many files are written of an item, whatever is found in its picture. One that keeps what is there already counts
  /// in any case: what it has kept, nobody has checked.
  func certainCount(for identity: ItemIdentity) -> Int {
    writers.indices.count { number in
      let writer = writers[number]
      return !writer.isCopy && isReached(number, by: identity)
        && (writer.isCertain || writer.stage.plan.existing == .skip)
    }
  }

  /// Whether there are names that only the run knows, and whether such a one keeps what is there already: whose that is,
  /// nobody has booked.
  var hasUnknownNames: (any: Bool, kept: Bool) {
    let unknown = writers.filter { !$0.isCopy && !$0.isNamedBeforehand }
    return (!unknown.isEmpty, unknown.contains { $0.stage.plan.existing == .skip })
  }

  /// The folders that templates name by themselves, absolute.
  var fixedFolders: Set<PathBytes> {
    var folders: Set<PathBytes> = []
    for writer in writers where !writer.isCopy {
      var fixed: [UInt8] = []
      if case .literal(let bytes) = writer.template.segments.first { fixed = bytes }
      let end = fixed.lastIndex(of: UInt8(ascii: "/")) ?? 0
      folders.insert(run.baseFolder.joining(PathBytes(bytes: Array(fixed[..<end]))).normalised)
    }
    return folders
  }

  /// All outputs of an item that comes to the end of the chain; nil for those that cannot be named yet.
  func all(for identity: ItemIdentity) -> [PathBytes?] {
    writers.indices.filter { !writers[$0].isCopy && isReached($0, by: identity) }.map {
      (try? path($0, for: identity)) ?? nil
    }
  }
}

extension Job {
  /// Whether any setting of any stage names `${item.hash}`.
  var namesSourceHash: Bool {
    func mentions(_ node: JSONNode) -> Bool {
      switch node.value {
      case .string(let text): Template.parse(text).template?.variables.contains(.itemHash) ?? false
      case .array(let elements): elements.contains(where: mentions)
      case .object(let members): members.contains { mentions($0.value) }
      default: false
      }
    }
    return stages.contains { $0.settings.nodes.values.contains(where: mentions) }
  }
}
