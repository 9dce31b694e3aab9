import Imaging
import JobSyntax
import PipelineKit

/// What a job's chain does to one picture, stage by stage.
public struct Explanation: Sendable {
  /// What became of the picture in a stage.
  public enum Fate: Sendable {
    case passed
    /// Its condition does not hold.
    case passedOver(String)
    /// Not carried out, and what would have been.
    case withheld(String)
    /// The picture's way ended there.
    case ended(ItemStatus, String)
    case failed(StageError)
  }

  /// A picture or an encoded result that a stage has left.
  public struct File: Sendable {
    public enum Role: String, Sendable {
      case picture, matte, encoded
    }
    public var role: Role
    public var name: String
    /// A small copy for a page; nil for what cannot be shown.
    public var preview: Preview?
  }

  /// A picture no longer than 640 pixels on a side.
  public struct Preview: Sendable {
    public let image: Image

    /// Nil for what cannot be scaled.
    init?(_ image: Image) {
      let longest = max(image.width, image.height)
      func scaled(_ length: Int) -> Int { max(1, (length * 640 + longest / 2) / longest) }
      let small =
        longest > 640 ? try? image.stretched(width: scaled(image.width), height: scaled(image.height)) : image
      guard let still = try? small?.materialised() else { return nil }
      self.image = still
    }
  }

  public struct Stage: Sendable {
    public var label: String
    public var name: String
    /// The place, among those that are told of, of the stage whose result this one took; nil for the first.
    public var predecessor: Int?
    public var settings: JSONText
    public var lane: Lane
    public var fate: Fate
    /// How long it worked; nil where it did not.
    public var milliseconds: Double?
    /// Pixels; nil where there are none.
    public var size: (width: Int, height: Int)?
    public var bands: Int?
    /// Bits a sample.
    public var depth: Int?
    public var space: String?
    public var frames = 1
    /// Of the encoded result.
    public var format: String?
    public var encodedBytes: Int?
    /// Bytes that the picture takes after the stage: pixels, masks, the picture before the cut, the encoded result.
    public var heldBytes = 0
    public var warnings: [ItemWarning] = []
    public var mattes: [MatteRecord] = []
    public var facts: [String: JSONText] = [:]
    public var files: [File] = []

    /// The name of the file for a role.
    public func file(_ role: File.Role) -> File? { files.first { $0.role == role } }
  }

  public var job: String
  public var input: String
  public var status: ItemStatus
  public var reason: String?
  /// What decoded pictures are held in.
  public var workingSpace: String
  /// Bytes that a run would set aside for the picture; nil where its header was not read.
  public var estimatedBytes: Int?
  public var stages: [Stage]

  /// Whether the picture, as far as it could be taken, came to no error.
  public var isFine: Bool {
    switch status {
    case .failed, .unknown, .deferred: false
    case .done, .skipped, .dropped, .review, .notAttempted: true
    }
  }

  /// What `explain.json` holds.
  public var json: JSONText {
    func file(_ file: File) -> JSONText {
      .object([("role", .string(file.role.rawValue)), ("file", .string(file.name))])
    }
    return .object([
      ("job", .string(job)), ("input", .string(input)), ("status", .string(status.rawValue)),
      ("reason", reason.map { .string($0) } ?? nil), ("workingSpace", .string(workingSpace)),
      ("estimatedBytes", estimatedBytes.map { .integer($0) } ?? nil),
      (
        "stages",
        .array(
          stages.map { stage in
            var members: [(String, JSONText)] = [
              ("stage", .string(stage.label)), ("name", .string(stage.name)),
              ("after", stage.predecessor.map { .string(stages[$0].label) } ?? nil), ("settings", stage.settings),
              ("lane", .string(stage.lane.rawValue)),
            ]
            switch stage.fate {
            case .passed: members.append(("fate", "passed"))
            case .passedOver(let text): members += [("fate", "passedOver"), ("reason", .string(text))]
            case .withheld(let text): members += [("fate", "withheld"), ("reason", .string(text))]
            case .ended(let status, let text):
              members += [("fate", .string(status.rawValue)), ("reason", .string(text))]
            case .failed(let error): members += [("fate", "failed"), ("error", error.json)]
            }
            if let time = stage.milliseconds {
              members.append(("milliseconds", .number((time * 1000).rounded() / 1000)))
            }
            if let size = stage.size {
              members += [("width", .integer(size.width)), ("height", .integer(size.height))]
            }
            if let bands = stage.bands { members.append(("bands", .integer(bands))) }
            if let depth = stage.depth { members.append(("bitsPerSample", .integer(depth))) }
            if let space = stage.space { members.append(("colourSpace", .string(space))) }
            if stage.frames > 1 { members.append(("frames", .integer(stage.frames))) }
            if let format = stage.format { members.append(("format", .string(format))) }
            if let bytes = stage.encodedBytes { members.append(("encodedBytes", .integer(bytes))) }
            members.append(("heldBytes", .integer(stage.heldBytes)))
            members.append(("warnings", .array(stage.warnings.map(\.json))))
            if !stage.mattes.isEmpty { members.append(("mattes", .array(stage.mattes.map(\.json)))) }
            if !stage.facts.isEmpty { members.append(("facts", ItemRecord.json(facts: stage.facts))) }
            members.append(("files", .array(stage.files.map(file))))
            return .object(members)
          })
      ),
    ])
  }
}

/// Stands where a stage would leave something outside of the run, or pay.
private struct Withheld: Stage {
  static let spec = StageSpec(name: "withheld", summary: "Does nothing.", fields: [], examples: [])
  static func plan(_ settings: Settings) -> StagePlan { StagePlan(accepts: .source) }
  init() {}
  init(_ settings: Settings, resources: StageResources) throws(StageError) {}
  func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome { .next(item) }
}

extension JobStage {
  /// Whether `explain` leaves it out: it writes, sends, or may have to be paid for.
  public var isWithheld: Bool { plan.produces.contains(.output) || plan.price != nil }

  /// Whether a finding is about this stage.
  func holds(_ finding: Diagnostic) -> Bool {
    guard let path = finding.path else { return false }
    return path == node.path || path.hasPrefix(node.path + ".") || path.hasPrefix(node.path + "[")
  }
}

extension Job {
  /// The findings that matter when stages that write, send or pay are left out.
  public func withoutWithheld(_ findings: [Diagnostic]) -> [Diagnostic] {
    let withheld = stages.filter(\.isWithheld)
    return findings.filter { finding in !withheld.contains { $0.holds(finding) } }
  }
}

extension JobRun {
  /// One of the job's inputs, with all that the job knows of it; nil where it is none of them.
  ///
  /// - Parameters:
  ///   - name: as the report has it, or a path.
  ///   - path: the same, absolute.
  ///   - plan: the run's plan.
  public func identity(named name: String, at path: PathBytes, in plan: RunPlan) -> ItemIdentity? {
    for index in plan.inputs.indices {
      let input = plan.inputs[index]
      if input.path == path || input.name.display == name { return plan.identity(of: input, at: index) }
    }
    return nil
  }

  /// Takes one picture through the chain on this thread, by the same steps as a run, and keeps what it is after each
  /// stage. Nothing is written to the job's outputs, sent or paid.
  ///
  /// - Parameters:
  ///   - keep: given each picture, mask and encoded result with a name for its file.
  ///   - identity: the picture.
  /// - Throws: where a stage cannot be made ready, and what `keep` throws.
  public func explain(
    _ identity: ItemIdentity, keep: (String, EncodedBytes) throws(StageError) -> Void
  ) throws(StageError) -> Explanation {
    let withheld = Set(job.stages.filter(\.isWithheld).map(\.index))
    let stages = try makeStages(workCount: 1, leavingOut: withheld, Withheld())
    defer { _ = Self.finish(stages) }
    let executor = Executor(
      stages: stages,
      configuration: .init(
        computeWorkers: 1, memoryLimit: .max, itemDeadline: .seconds(job.itemDeadline), graceTime: .zero,
        stopsOnFailure: false),
      itemCount: 0, run: values, observer: Nobody(), items: { _ in preconditionFailure("there is one item") })
    let journal = ItemJournal()
    // Copies for review are outputs too.
    let protected = ProtectedPaths { path, _, _ in
      StageError(Self.withheldCode, "\(path.printable) would be written")
    }
    var progress = ItemProgress(item: Item(identity: identity))
    var found: [Explanation.Stage] = []
    var places: [Int: Int] = [:]
    var estimate: Int?
    while let index = progress.stage {
      if estimate == nil { estimate = executor.memoryToAsk(&progress) }
      let stage = job.stages[index]
      let before = journal.snapshot
      let itemBefore = progress.item
      let context = StageContext(
        stage: stage.label, run: values, journal: journal, temporaries: executor.temporaries, protected: protected,
        matte: progress.way.matte)
      var step: ItemProgress.Step?
      let timings = progress.timings.count
      let isBegun = progress.continuation != nil
      if withheld.contains(index) {
        step = withheldStep(stage, progress.item, context)
        if let step { progress.advance(step, executor.tree, stages) }
      } else {
        executor.step(&progress, in: context) { step = $0 }
      }
      // It goes on on another lane.
      guard let step else { continue }
      var entry = Explanation.Stage(
        label: stage.label, name: stage.descriptor.spec.name,
        predecessor: stage.predecessor.flatMap { places[$0] },
        settings: stage.descriptor.shape.effective(stage.settings.nodes), lane: stage.plan.lane, fate: .passed)
      // A stage that was passed over has none.
      if isBegun || progress.timings.count > timings { entry.milliseconds = progress.timings.last?.milliseconds }
      entry.fate = fate(of: step, stage, itemBefore, context)
      let after = journal.snapshot
      entry.warnings = Array(after.warnings.dropFirst(before.warnings.count))
      entry.mattes = Array(after.mattes.dropFirst(before.mattes.count))
      entry.facts = after.facts.filter { before.facts[$0.key] != $0.value }
      if case .outcome(.next(let item)) = step, !withheld.contains(index) {
        try note(item, before: itemBefore, number: found.count + 1, &entry, keep)
      }
      places[index] = found.count
      found.append(entry)
    }
    let end = ItemEnd(progress.ends)
    let isReview = found.contains { if case .ended(.review, _) = $0.fate { true } else { false } }
    return Explanation(
      job: job.name, input: identity.name.display, status: isReview && end.status == .failed ? .review : end.status,
      reason: end.error?.description ?? end.reason,
      workingSpace: Self.text(job.stages.reduce(WorkingSpace()) { $0.union($1.plan.workingSpace) }),
      estimatedBytes: estimate, stages: found)
  }

  private static let withheldCode = "explain-withheld"

  private struct Nobody: RunObserver {
    func itemEnded(_ record: ItemRecord, finished: Int) {}
  }

  private static func text(_ space: WorkingSpace) -> String {
    let gamut =
      switch space.gamut {
      case .srgb: "sRGB"
      case .displayP3: "Display P3"
      case .source: "the source's colours"
      }
    let depth =
      switch space.depth {
      case .eight: "8 bits"
      case .source: "the source's depth"
      case .sixteen: "16 bits"
      }
    return "\(gamut), \(depth)"
  }

  /// What a stage that is left out means for the picture's way.
  private func withheldStep(_ stage: JobStage, _ item: Item, _ context: StageContext) -> ItemProgress.Step {
    do throws(StageError) {
      if let condition = stage.condition, try !condition.holds(for: item, in: context) { return .passedOver(condition) }
    } catch {
      return .failure(error)
    }
    if let price = stage.plan.price { return .outcome(.notAttempted(reason: Self.text(price))) }
    return .outcome(.next(item))
  }

  private static func text(_ price: Price) -> String {
    "not called: \(price.provider) is paid, at most \(ServiceDesk.text(price.credits)) credits a picture"
  }

  private func fate(
    of step: ItemProgress.Step, _ stage: JobStage, _ item: Item, _ context: StageContext
  ) -> Explanation.Fate {
    switch step {
    case .passedOver(let condition): return .passedOver("it is not so that \(condition)")
    case .failure(let error) where error.code == Self.withheldCode:
      return .ended(.review, "for review: \(error.message)")
    case .failure(let error): return .failed(error)
    case .outcome(.next): return stage.isWithheld ? .withheld(intention(of: stage, item, context)) : .passed
    case .outcome(.dropped(let reason)): return .ended(.dropped, reason)
    case .outcome(.review(let reason)): return .ended(.review, reason)
    case .outcome(.deferred(let reason)): return .ended(.deferred, reason)
    case .outcome(.notAttempted(let reason)):
      return stage.isWithheld ? .withheld(reason) : .ended(.notAttempted, reason)
    case .outcome(.unknown(let receipt)): return .ended(.unknown, "receipt \(receipt)")
    }
  }

  /// What a stage that is left out would have done.
  private func intention(of stage: JobStage, _ item: Item, _ context: StageContext) -> String {
    let size = item.encoded.map { " \($0.bytes.count) bytes" } ?? ""
    guard !stage.plan.outputs.isEmpty else { return "would send\(size)" }
    let places = stage.plan.outputs.map { template -> String in
      do throws(StageError) {
        return try OutputPath.resolve(template, in: values.baseFolder) { variable in
          TemplateValues.value(of: variable, identity: item.identity, run: values, item: item)
        }.printable
      } catch {
        return "\(template.text), but \(error.message)"
      }
    }
    return "would write\(size) to \(places.joined(separator: ", "))"
  }

  // MARK: Pictures

  private func note(
    _ item: Item, before: Item, number: Int, _ entry: inout Explanation.Stage,
    _ keep: (String, EncodedBytes) throws(StageError) -> Void
  ) throws(StageError) {
    let stem =
      (number < 10 ? "0" : "") + "\(number)-"
      + String(entry.label.map { $0.isASCII && ($0.isLetter || $0.isNumber || $0 == "-" || $0 == ".") ? $0 : "-" })
    func png(_ image: Image, _ role: Explanation.File.Role, _ name: String) throws(StageError) {
      let bytes = try StageError.imaging { () throws(ImagingError) in
        try image.encoded(.png(.init(compression: 3)), metadata: .none)
      }
      try keep(name, bytes)
      entry.files.append(.init(role: role, name: name, preview: Explanation.Preview(image)))
    }
    entry.size = item.size
    if let encoded = item.encoded, encoded.bytes !== before.encoded?.bytes {
      // The picture is what it was before.
      let name = "\(stem).\(encoded.format.fileExtension)"
      entry.format = encoded.format.rawValue
      entry.encodedBytes = encoded.bytes.count
      entry.size = (encoded.width, encoded.height)
      try keep(name, encoded.bytes)
      let shown = try? EncodedPicture(bytes: encoded.bytes).pixels()
      entry.files.append(.init(role: .encoded, name: name, preview: shown.flatMap { Explanation.Preview($0) }))
      entry.heldBytes = held(item)
      return
    }
    let image: Image?
    switch item.picture {
    case .none: image = nil
    case .image(let picture): image = picture
    case .animation(let animation):
      image = animation.frames.first?.image
      entry.frames = animation.frames.count
    case .encoded(let source):
      // Another reader, so that what a later stage makes of this one stays as it would be.
      image = try StageError.imaging { () throws(ImagingError) in
        try EncodedPicture(bytes: source.bytes, options: source.options).pixels()
      }
      entry.format = source.header.format.rawValue
      entry.frames = source.isAnimation ? source.header.frames : 1
    }
    entry.heldBytes = held(item)
    guard let image else { return }
    (entry.bands, entry.depth, entry.space) = (image.bands, image.depth, image.space.name)
    try png(image, .picture, "\(stem).png")
    if let matte = item.matte { try png(matte, .matte, "\(stem).matte.png") }
    for (index, named) in item.mattes.sorted(by: { $0.key < $1.key }).enumerated() {
      try png(named.value, .matte, "\(stem).matte-\(index + 1).png")
    }
  }

  private func held(_ item: Item) -> Int {
    var bytes = item.encoded?.bytes.count ?? 0
    switch item.picture {
    case .none: break
    case .encoded(let source): bytes += source.bytes.count
    case .image(let image): bytes += image.byteCount
    case .animation(let animation): bytes += animation.frames.reduce(0) { $0 + $1.image.byteCount }
    }
    for image in [item.matte, item.original].compactMap(\.self) + Array(item.mattes.values) { bytes += image.byteCount }
    return bytes
  }
}
