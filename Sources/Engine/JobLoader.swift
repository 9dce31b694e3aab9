import Glibc
import Imaging
import JobSyntax
import PipelineKit
import Transport

/// Reads job files: syntax, variables, fields, chain; everything that can be known without a model, a credential or
/// the network. All findings come from one pass.
public struct JobLoader: Sendable {
  static let unsetEnvironmentCode = "environment-unset"

  public var registry: StageRegistry
  public var environment: @Sendable (String) -> String?
  /// `--set NAME=VALUE`, the value as typed.
  public var overrides: [(name: String, value: String)] = []
  /// `--input GLOB`: replaces the job's input; paths relative to the current folder.
  public var inputGlobs: [String] = []
  /// Opens a plugin that the job names, written as it is there, and adds its stage; nil where jobs may have none.
  public var loadPlugin: (@Sendable (String, PathBytes, inout StageRegistry) throws(StageError) -> Void)?

  public init(
    registry: StageRegistry, environment: @escaping @Sendable (String) -> String? = JobLoader.processEnvironment
  ) {
    self.registry = registry
    self.environment = environment
  }

  public static let processEnvironment: @Sendable (String) -> String? = { name in
    getenv(name).map { String(cString: $0) }
  }

  /// Reads and checks a job file.
  ///
  /// - Throws: `job-unreadable` where the file cannot be read.
  public func load(path: String) throws(StageError) -> LoadedJob {
    let bytes: [UInt8]
    do throws(ImagingError) {
      bytes = try EncodedPicture.read(path: Array(path.utf8), maxBytes: 256 << 20).array
    } catch {
      throw StageError(
        "job-unreadable", error.message, kind: .job, cause: error.detail.isEmpty ? nil : error.detail, hint: error.hint)
    }
    let current = PathBytes.currentFolder ?? PathBytes("/")
    let absolute = PathBytes(path).isAbsolute ? PathBytes(path) : current.joining(PathBytes(path))
    return load(bytes, name: path, folder: absolute.normalised.parent)
  }

  /// Reads and checks the text of a job file.
  ///
  /// - Parameters:
  ///   - file: what messages call the file.
  ///   - folder: where its relative paths start; absolute.
  ///   - bytes: the text, UTF-8.
  public func load(_ bytes: [UInt8], name file: String, folder: PathBytes) -> LoadedJob {
    let source = SourceFile(name: file, text: bytes)
    let (parsed, syntax) = StrictJSON.parse(source)
    guard let parsed else { return LoadedJob(job: nil, diagnostics: syntax, sources: [source]) }
    var diagnostics = syntax

    var overrides: [String: JSONNode] = [:]
    for (name, value) in self.overrides {
      let declared = parsed["vars"]?.objectValue?.map(\.key) ?? []
      if !declared.contains(name) {
        let near = NearestName.suggestion(for: name, among: declared)
        diagnostics.append(
          Diagnostic(
            severity: .error, code: "unknown-variable",
            message: "--set \(name): the job has no such variable under \"vars\"",
            file: file, range: parsed["vars"]?.range ?? parsed.range, path: "$.vars",
            expected: declared.isEmpty ? "a name under \"vars\"" : "one of: " + declared.joined(separator: ", "),
            found: name,
            hint: near.map { "did you mean \"\($0)\"?" }))
      }
      let (node, problems) = StrictJSON.parse(SourceFile(name: "--set", text: Array(value.utf8)))
      if let node, !problems.hasErrors {
        overrides[name] = node
      } else {
        overrides[name] = JSONNode(value: .string(value), range: parsed.range, path: "$")
      }
    }

    var expander = VariableExpander(
      file: file, vars: parsed["vars"], overrides: overrides, environment: environment)
    var root = parsed
    if let members = parsed.objectValue {
      root.value = .object(
        members.map { member in
          member.key == "vars"
            ? member : JSONMember(key: member.key, keyRange: member.keyRange, value: expander.expand(member.value))
        })
    }
    expander.expandUnused()
    diagnostics += expander.diagnostics

    let columns = manifestColumns(root, folder: folder)
    var checker = FieldChecker(
      file: file, columns: columns, skipping: expander.poisoned, fromEnvironment: expander.fromEnvironment)
    var shape = JobSpec.shape
    if !inputGlobs.isEmpty {
      // The command line's input stands in for the job's, which may then be missing.
      shape.fields.removeAll { $0.name == "input" }
      checker.check(root, against: shape, owner: "the job", ignoring: ["input"])
    } else {
      checker.check(root, against: shape, owner: "the job")
    }
    if let vars = root["vars"], vars.objectValue == nil {
      checker.report(
        "wrong-type", "\"vars\" expects an object, got \(vars.value.typeName)", at: vars.range, path: vars.path,
        expected: "an object", found: vars.value.typeName)
    }
    let settings = Settings(reading: root, shape: shape, file: file)
    checkTimeZone(settings, root, &checker)
    var chains = ChainReader(registry: withPlugins(root, folder: folder, &checker))
    chains.read(root["stages"], &checker)
    let stages = chains.stages
    let input: InputDeclaration? =
      if !inputGlobs.isEmpty {
        .files(inputGlobs)
      } else if root["input"]?.objectValue != nil {
        Self.declaration(settings[JobSpec.input])
      } else {
        nil
      }
    if inputGlobs.isEmpty, let input { checkInput(input, root, folder: folder, &checker) }
    if inputGlobs.isEmpty, let input, let node = root["input"] {
      JobSpec.checkRemote(settings[JobSpec.input], node, input, &checker)
    }
    ChainLinter.check(stages, isWhole: chains.isWhole, input: input, checker: &checker)
    let onSuccess =
      chains.isWhole ? JobSpec.readOnSuccess(settings, root, input: input, stages: stages, &checker) : .keep
    if chains.isWhole { checkBudget(stages, root, &checker) }
    checkSecrets(root, &checker)
    diagnostics += checker.diagnostics
    let found = Self.bounded(diagnostics.sortedByPlace(), file: file)
    // What waits for an unset environment variable leaves a gap without any error.
    guard !found.hasErrors, settings.isComplete, chains.isWhole, let input, let onSuccess else {
      return LoadedJob(job: nil, diagnostics: found, sources: [source])
    }

    let run = settings[JobSpec.run]
    let limits = settings[JobSpec.limits]
    let inputFolder = inputGlobs.isEmpty ? folder : PathBytes.currentFolder ?? PathBytes("/")
    let stem = PathBytes(file).lastComponent.stem.display
    let job = Job(
      name: settings[JobSpec.name] ?? stem, file: file, baseFolder: folder, input: input,
      inputFolder: inputFolder, stages: stages, onError: run?[JobSpec.Run.onError] ?? .continue,
      deadline: run?[JobSpec.Run.deadline] ?? nil,
      itemDeadline: run?[JobSpec.Run.itemDeadline] ?? JobSpec.Run.itemDeadline.absent ?? 300,
      graceTime: run?[JobSpec.Run.graceTime] ?? JobSpec.Run.graceTime.absent ?? 10,
      timeZone: run?[JobSpec.Run.timeZone] ?? "UTC",
      decodeLimits: DecodeLimits(
        maxPixels: limits?[JobSpec.Limits.maxPixels] ?? DecodeLimits().maxPixels,
        maxSide: limits?[JobSpec.Limits.maxSide] ?? DecodeLimits().maxSide,
        maxFrames: limits?[JobSpec.Limits.maxFrames] ?? DecodeLimits().maxFrames,
        maxProfileBytes: limits?[JobSpec.Limits.maxProfileBytes] ?? DecodeLimits().maxProfileBytes,
        maxMetadataBytes: limits?[JobSpec.Limits.maxMetadataBytes] ?? DecodeLimits().maxMetadataBytes,
        maxExpansion: limits?[JobSpec.Limits.maxExpansion] ?? DecodeLimits().maxExpansion),
      memoryLimit: limits?[JobSpec.Limits.memory] ?? nil,
      stateFolder: settings[JobSpec.state].map { folder.joining(PathBytes($0)).normalised },
      resultBytes: limits?[JobSpec.Limits.results] ?? JobSpec.Limits.results.absent ?? 0,
      portable: settings[JobSpec.portable], onSuccess: onSuccess,
      network: JobSpec.readNetwork(settings, folder: folder),
      remote: JobSpec.readRemote(inputGlobs.isEmpty ? settings[JobSpec.input] : nil, input),
      budget: JobSpec.readBudget(settings))
    return LoadedJob(job: job, diagnostics: found, sources: [source])
  }

  /// The stages that the job may name: those of its plugins too.
  private func withPlugins(_ root: JSONNode, folder: PathBytes, _ checker: inout FieldChecker) -> PluginRegistry {
    var known = PluginRegistry(stages: registry)
    for node in root["plugins"]?.arrayValue ?? [] {
      guard let path = node.stringValue, !path.isEmpty, !checker.skipping.contains(node.path),
        Template.parse(path).template?.variables.isEmpty ?? false
      else { continue }
      do throws(StageError) {
        guard let loadPlugin else {
          throw StageError("plugin-refused", "plugins are not loaded here", kind: .environment)
        }
        try loadPlugin(Template.literal(path), folder, &known.stages)
      } catch {
        known.isWhole = false
        checker.report(
          error.code, error.message + (error.cause.map { " (\($0))" } ?? ""), at: node.range, path: node.path,
          hint: error.hint)
      }
    }
    return known
  }

  /// Nil where none of the sources could be read.
  private static func declaration(_ input: Settings) -> InputDeclaration? {
    let allowEmpty = input[JobSpec.Input.allowEmpty]
    if let files = input[JobSpec.Input.files] { return .files(files, allowEmpty: allowEmpty) }
    if let directory = input[JobSpec.Input.directory] {
      return .directory(
        directory, recursive: input[JobSpec.Input.recursive], all: input[JobSpec.Input.all], allowEmpty: allowEmpty)
    }
    if let list = input[JobSpec.Input.list] { return .list(list, allowEmpty: allowEmpty) }
    if let manifest = input[JobSpec.Input.manifest] { return .manifest(manifest, allowEmpty: allowEmpty) }
    if let urls = input[JobSpec.Remote.urls] { return .addresses(urls, allowEmpty: allowEmpty) }
    if let bucket = input[JobSpec.Remote.bucket] {
      return JobSpec.bucketSearch(bucket, takesAll: input[JobSpec.Input.all]).map {
        .bucket($0, allowEmpty: allowEmpty)
      }
    }
    return input[JobSpec.Remote.imgur].flatMap { JobSpec.imgurSearch($0) }.map { .imgur($0, allowEmpty: allowEmpty) }
  }

  /// What `${item.NAME}` may name. A manifest that cannot be read is complained about when the run is planned.
  private func manifestColumns(_ root: JSONNode, folder: PathBytes) -> FieldChecker.Columns {
    guard inputGlobs.isEmpty, let path = root["input"]?["manifest"]?.stringValue else { return .none }
    // Standard input can be read once; that is the run's.
    guard path != "-", let columns = try? InputWalker([.manifest(path)], base: folder).columns() else {
      return .unknown
    }
    return .known(columns.sorted())
  }

  private func checkInput(
    _ declared: InputDeclaration, _ root: JSONNode, folder: PathBytes, _ checker: inout FieldChecker
  ) {
    guard let input = root["input"] else { return }
    for problem in InputWalker.check([declared], base: folder) {
      var node = input["files"] ?? input["urls"] ?? input["manifest"] ?? input
      if let element = problem.element, let elements = (input["files"] ?? input["urls"])?.arrayValue,
        element < elements.count
      {
        node = elements[element]
      }
      checker.append([problem.diagnostic(path: node.path, source: (checker.file, node.range))])
    }
  }

  /// No paid call without a budget: better found now than on a bill.
  private func checkBudget(_ stages: [JobStage], _ root: JSONNode, _ checker: inout FieldChecker) {
    guard root["budget"] == nil, let stage = stages.first(where: { $0.plan.price != nil }),
      let price = stage.plan.price
    else { return }
    let at = stage.node["stage"] ?? stage.node
    checker.report(
      "budget-missing",
      "stage \"\(stage.label)\" pays \(price.provider) up to \(ServiceDesk.text(price.credits)) of its credits a picture, and the "
        + "job has no \"budget\"",
      at: at.range, path: at.path, expected: "a budget", found: "none",
      hint: #"such as "budget": { "credits": 20 } at the top of the job"#)
  }

  /// Credentials that the environment lacks; those it has are known from here on, so that nothing shows them.
  private func checkSecrets(_ root: JSONNode, _ checker: inout FieldChecker) {
    // Where a secret may not stand at all, nothing else is worth saying about it.
    let refused = Set(checker.diagnostics.filter { $0.code == "secret-not-allowed" }.compactMap(\.path))
    func look(_ node: JSONNode) {
      switch node.value {
      case .string(let text) where !refused.contains(node.path):
        for case .secret(let name) in Template.parse(text).template?.variables ?? [] {
          if let value = environment(name), !value.isEmpty {
            Secrets.register(value)
          } else {
            checker.report(
              Self.unsetEnvironmentCode, "the environment variable \(name) is not set, or empty", at: node.range,
              path: node.path, expected: "a value for ${secret.\(name)}", found: "nothing",
              hint: "a run ends with exit code 4 without it", severity: .warning)
          }
        }
      case .array(let elements): elements.forEach(look)
      case .object(let members): members.map(\.value).forEach(look)
      default: break
      }
    }
    look(root)
  }

  private func checkTimeZone(_ settings: Settings, _ root: JSONNode, _ checker: inout FieldChecker) {
    guard let node = root["run"]?["timeZone"], let zone = node.stringValue, !zone.contains("${"), !RunClock.knows(zone)
    else { return }
    checker.report(
      "wrong-value", "\"timeZone\" expects a time zone such as Europe/Berlin, got \"\(zone)\"", at: node.range,
      path: node.path, expected: "a name from the time zone database", found: zone)
  }

  /// No more findings than anyone reads; errors are not lost among warnings.
  private static func bounded(_ found: [Diagnostic], file: String) -> [Diagnostic] {
    let most = 1_000
    guard found.count > most else { return found }
    var kept = Array(found.prefix(most))
    if !kept.hasErrors, let error = found.first(where: { $0.severity == .error }) { kept.append(error) }
    kept.append(
      Diagnostic(
        severity: .note, code: "more-findings", message: "\(found.count - most) more findings", file: file, range: nil,
        path: nil))
    return kept
  }
}
