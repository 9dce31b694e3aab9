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
    var isCopy = false

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
  private let run: RunValues

  init(job: Job, run: RunValues) {
    self.run = run
    var ending: String?
    var writers: [Writer] = []
    for stage in job.stages {
      if let value = stage.plan.encodedExtension {
        ending = value
      } else if stage.plan.produces.contains(.encoded) {
        ending = nil
      }
      for template in stage.plan.outputs { writers.append(Writer(stage: stage, template: template, ending: ending)) }
      for template in stage.plan.copies { writers.append(Writer(stage: stage, template: template, isCopy: true)) }
    }
    self.writers = writers
  }

  /// The output's absolute path; nil where its name is only known during the run.
  ///
  /// - Throws: what the run would fail the item with: a name that no file system takes, or that leads elsewhere.
  func path(_ writer: Int, for identity: ItemIdentity) throws(StageError) -> PathBytes? {
    let (template, ending) = (writers[writer].template, writers[writer].ending)
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
    for writer in writers where writer.template.variables.contains(where: { !isKnown($0, writer.ending) }) {
      var fixed: [UInt8] = []
      if case .literal(let bytes) = writer.template.segments.first { fixed = bytes }
      guard let end = fixed.lastIndex(of: UInt8(ascii: "/")), end > 0 else { continue }
      folders.insert(run.baseFolder.joining(PathBytes(bytes: Array(fixed[..<end]))).normalised)
    }
    return folders
  }

  private func isKnown(_ variable: TemplateVariable, _ ending: String?) -> Bool {
    switch variable {
    case .ext: ending != nil
    case .itemHash, .imageWidth, .imageHeight, .runDate, .runID: false
    default: true
    }
  }

  /// All outputs of an item that comes to the end of the chain; nil for those that cannot be named yet.
  func all(for identity: ItemIdentity) -> [PathBytes?] {
    writers.indices.filter { !writers[$0].isCopy }.map { (try? path($0, for: identity)) ?? nil }
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
