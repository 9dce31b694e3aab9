import Digest
import Imaging
import JobSyntax
import PipelineKit

/// What the results of a job's chain follow from, besides the pictures: every stage with its effective settings, the
/// content of its helper files and what else it names. Not the versions of the program's parts, which are kept beside
/// it, and not what a run brings, such as its date.
struct ChainFingerprint: Sendable {
  struct Stage: Sendable {
    var label: String
    /// 32 bytes.
    var digest: [UInt8]
    /// What differs between items and changes this stage's work.
    var variables: [TemplateVariable]
    /// Digest of this stage and of all that the item has gone through before it.
    var lineage: [UInt8]
    /// The same without versions, for the stages after it.
    var paidLineage: [UInt8]
    /// The same of what is paid for in this stage; see `StagePlan.paidSettings`.
    var paidResult: [UInt8]
    /// What differs between items and changes this stage's work or that of a stage before it.
    var lineageVariables: [TemplateVariable]
  }

  let stages: [Stage]
  /// 32 bytes.
  let digest: [UInt8]
  /// The item's own values that count, in the order of their names.
  let variables: [TemplateVariable]
  /// What works on the pictures: libvips, and every stage with its version.
  let versions: String

  /// - Parameter helper: the digest of a file's content; nil where it cannot be read.
  init(_ job: Job, helper: (PathBytes) -> [UInt8]?) {
    let space = "\(job.stages.reduce(WorkingSpace()) { $0.union($1.plan.workingSpace) })"
    var stages: [Stage] = []
    var whole = SHA256()
    var named: Set<TemplateVariable> = []
    whole.update(counted: "chain 1".utf8)
    for stage in job.stages {
      var own = SHA256()
      own.update(counted: stage.descriptor.spec.name.utf8)
      own.update(counted: stage.descriptor.shape.effective(stage.settings.nodes).rendered().utf8)
      for path in stage.plan.helperFiles {
        own.update(counted: path.utf8)
        own.update(counted: helper(PathBytes.resolving(PathBytes(path), from: job.baseFolder)) ?? [])
      }
      for (name, text) in stage.descriptor.ingredients(stage.settings).sorted(by: { $0.key < $1.key }) {
        own.update(counted: name.utf8)
        own.update(counted: text.utf8)
      }
      let digest = own.finish()
      let variables = Self.itemVariables(of: stage)
      let before = stage.predecessor.map { stages[$0] }
      let lineageVariables = Self.sorted(Set(variables).union(before?.lineageVariables ?? []))
      func lineage(_ start: [UInt8]?, _ version: String, _ own: [UInt8]? = nil) -> [UInt8] {
        var hash = SHA256()
        hash.update(counted: start ?? Array(space.utf8))
        hash.update(counted: own ?? digest)
        hash.update(counted: version.utf8)
        return hash.finish()
      }
      stages.append(
        Stage(
          label: stage.label, digest: digest, variables: variables,
          lineage: lineage(before?.lineage, "\(Libvips.version) \(stage.descriptor.spec.version)"),
          paidLineage: lineage(before?.paidLineage, ""),
          paidResult: lineage(
            before?.paidLineage, "", stage.plan.paidSettings.map { Array("\(stage.descriptor.spec.name) \($0)".utf8) }),
          lineageVariables: lineageVariables))
      whole.update(counted: stage.label.utf8)
      whole.update(counted: digest)
      named.formUnion(variables)
    }
    self.stages = stages
    digest = whole.finish()
    variables = Self.sorted(named)
    var versions: [String] = ["libvips \(Libvips.version)"]
    for stage in job.stages {
      let text = "\(stage.descriptor.spec.name) \(stage.descriptor.spec.version)"
      if !versions.contains(text) { versions.append(text) }
    }
    self.versions = versions.joined(separator: ", ")
  }

  /// The digest of an item's values that the chain names; empty where it names none.
  func values(of identity: ItemIdentity) -> [UInt8] { Self.digest(of: variables, identity) }

  /// Where a stage's result for an item is kept; nil where the input's content is not known.
  func keys(of stage: Int, _ item: Item) -> (key: [UInt8], paidKey: [UInt8])? {
    guard let source = item.sourceHash else { return nil }
    let values = Self.digest(of: stages[stage].lineageVariables, item.identity)
    func key(_ lineage: [UInt8]) -> [UInt8] {
      var hash = SHA256()
      hash.update(counted: lineage)
      hash.update(counted: source.utf8)
      hash.update(counted: values)
      return hash.finish()
    }
    return (key(stages[stage].lineage), key(stages[stage].paidResult))
  }

  /// What the fingerprint was made of, for saying later what has changed: a digest for each stage.
  var text: String {
    JSONText.object(stages.map { ($0.label, .string(Hex.text($0.digest.prefix(8)))) }).rendered()
  }

  /// The labels of stages that are not as they were; nil where the old text says nothing.
  func changes(since text: String) -> [String]? {
    guard let old = StrictJSON.parse(SourceFile(name: "chain", text: Array(text.utf8))).root?.objectValue else {
      return nil
    }
    let before = Dictionary(old.map { ($0.key, $0.value.stringValue ?? "") }) { first, _ in first }
    var changed = stages.filter { before[$0.label] != Hex.text($0.digest.prefix(8)) }.map(\.label)
    let now = Set(stages.map(\.label))
    changed += old.map(\.key).filter { !now.contains($0) }
    return changed
  }

  private static func digest(of variables: [TemplateVariable], _ identity: ItemIdentity) -> [UInt8] {
    guard !variables.isEmpty else { return [] }
    var hash = SHA256()
    let run = RunValues(baseFolder: PathBytes("/"), runID: "", runDate: "")
    for variable in variables {
      hash.update(counted: variable.name.utf8)
      switch TemplateValues.value(of: variable, identity: identity, run: run, item: nil) {
      case .success(let bytes): hash.update(counted: bytes)
      // A column that the item lacks.
      case .failure: hash.update(counted: [0])
      }
    }
    return hash.finish()
  }

  private static func sorted(_ variables: Set<TemplateVariable>) -> [TemplateVariable] {
    variables.sorted { $0.name < $1.name }
  }

  /// What of an item a stage names, in templates and as the subject of conditions. The picture's own facts follow from
  /// the input's content, and the stages of tails name what they need themselves.
  private static func itemVariables(of stage: JobStage) -> [TemplateVariable] {
    var found: Set<TemplateVariable> = []
    func note(_ variable: TemplateVariable) {
      switch variable {
      case .itemPath, .itemDir, .itemStem, .itemName, .itemExt, .itemIndex, .itemColumn: found.insert(variable)
      case .itemHash, .imageWidth, .imageHeight, .ext, .runDate, .runID, .secret, .environment: break
      case .jobDir, .fileIn, .fileOut, .fileSource: break
      }
    }
    func look(_ node: JSONNode) {
      switch node.value {
      case .string(let text): Template.parse(text).template?.variables.forEach(note)
      case .array(let elements): elements.forEach(look)
      case .object(let members): members.map(\.value).forEach(look)
      default: break
      }
    }
    for (name, node) in stage.settings.nodes where name != stage.descriptor.spec.branchesField { look(node) }
    for condition in [stage.condition, stage.plan.filter?.condition].compactMap(\.self) {
      condition.subjects.compactMap(\.variable).forEach(note)
    }
    return sorted(found)
  }
}
