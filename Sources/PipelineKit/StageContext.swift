import Glibc
import Imaging
import JobSyntax
import Synchronization
import Transport

/// A file or link that an item ended in.
public struct OutputRecord: Sendable, Hashable {
  public enum Place: Sendable, Hashable {
    case path(PathBytes)
    case link(String)
  }
  public var place: Place
  public var format: String
  /// Pixels.
  public var width: Int
  /// Pixels.
  public var height: Int
  public var bytes: Int
  /// 64 hex digits.
  public var sha256: String
  /// The label of the stage that made it; the context fills it in.
  public var stage: String

  public init(
    place: Place, format: String, width: Int, height: Int, bytes: Int, sha256: String, stage: String = ""
  ) {
    self.stage = stage
    self.place = place
    self.format = format
    self.width = width
    self.height = height
    self.bytes = bytes
    self.sha256 = sha256
  }
}

/// What has been booked about one item so far. The executor owns it, so that an error in a later stage, or a worker
/// that never comes back, loses nothing.
public final class ItemJournal: Sendable {
  public struct Entries: Sendable {
    public var outputs: [OutputRecord] = []
    public var warnings: [ItemWarning] = []
    public var mattes: [MatteRecord] = []
    /// Facts for the report, by stage.
    public var facts: [String: JSONText] = [:]
    /// An item whose fate is decided takes no more entries from a worker that was given up.
    public var isClosed = false
  }
  private let entries = Mutex(Entries())
  private let confirm: @Sendable (OutputRecord) -> Bool

  /// - Parameter confirm: has the last word on each output, where the item's fate is decided in another process.
  public init(confirm: @escaping @Sendable (OutputRecord) -> Bool = { _ in true }) { self.confirm = confirm }

  public var snapshot: Entries { entries.withLock { $0 } }

  public func close() { entries.withLock { $0.isClosed = true } }

  /// Changes the entries; false when the item was closed before.
  @discardableResult
  public func record(_ change: (inout sending Entries) -> Void) -> Bool {
    entries.withLock { entries in
      guard !entries.isClosed else { return false }
      change(&entries)
      return true
    }
  }

  /// Books an output; false when the item was closed before.
  public func book(_ output: OutputRecord) -> Bool {
    confirm(output) && record { $0.outputs.append(output) }
  }
}

/// Which outputs a run has written, so that no two items write the same file even where names are only known at run
/// time.
public final class OutputClaims: Sendable {
  /// Hashes instead of paths: 8 bytes an output. Two of a million paths share one with a chance of 1 in 10⁷.
  private let claimed = Mutex<Set<Int>>([])
  private let ask: (@Sendable (PathBytes) -> Bool)?

  public init() { ask = nil }

  /// Claims that another process keeps.
  ///
  /// - Parameter ask: makes the claim there.
  public init(asking ask: @escaping @Sendable (PathBytes) -> Bool) { self.ask = ask }

  /// False when the path, with the links of its folder followed, was claimed before in this run.
  public func claim(_ path: PathBytes) -> Bool {
    if let ask { return ask(path) }
    return claimed.withLock { $0.insert(path.hashValue).inserted }
  }

  /// Takes a claim back that came to nothing, so that the same item can be tried again.
  public func release(_ path: PathBytes) { claimed.withLock { _ = $0.remove(path.hashValue) } }
}

/// Facts about the run that stages learn and the report shows: versions, model hashes, precisions.
public final class RunFacts: Sendable {
  private let facts = Mutex<[String: JSONText]>([:])

  public init() {}

  public func set(_ name: String, _ value: JSONText) { facts.withLock { $0[name] = value } }
  public var all: [(String, JSONText)] { facts.withLock { $0.sorted { $0.key < $1.key }.map { ($0.key, $0.value) } } }
}

/// What is the same for every item of a run.
public struct RunValues: Sendable {
  /// The job file's folder, absolute; relative paths in the job start here.
  public var baseFolder: PathBytes
  public var runID: String
  /// `2026-05-01`.
  public var runDate: String
  /// `I-of-N` of a sharded run; part of temporary names, so that no shard clears another's.
  public var shard: String?
  /// Whether an earlier run was cut short: outputs that nobody has booked may be its own.
  public var followsCutRun: Bool

  public init(
    baseFolder: PathBytes, runID: String, runDate: String, shard: String? = nil, followsCutRun: Bool = false
  ) {
    self.followsCutRun = followsCutRun
    self.baseFolder = baseFolder
    self.runID = runID
    self.runDate = runDate
    self.shard = shard
  }
}

/// What several stages of a run use together, such as a model that is compiled once: made by whoever asks first.
public final class SharedObjects: Sendable {
  private let objects = Mutex<[String: any Sendable]>([:])

  public init() {}

  /// The object of that name, which `make` makes when there is none yet.
  ///
  /// Made outside the lock: stages are made one after another, and should two ask at once, one object is thrown away.
  ///
  /// - Parameters:
  ///   - name: opens with the name of the stage that shares; an object of another type under it is replaced.
  ///   - make: makes the object where none is there.
  public func object<T: Sendable>(_ name: String, make: () throws(StageError) -> T) throws(StageError) -> T {
    if let known = objects.withLock({ $0[name] as? T }) { return known }
    let made = try make()
    return objects.withLock { objects in
      if let known = objects[name] as? T { return known }
      objects[name] = made
      return made
    }
  }
}

/// What a stage may use when it is made.
public struct StageResources: Sendable {
  public var run: RunValues
  /// How many compute workers will call the stage at once.
  public var computeWorkers: Int
  public var facts: RunFacts
  /// For requests of any stage: connections are shared.
  public let services: ServiceResources
  public var decodeLimits: DecodeLimits
  /// What decoded pictures are to be held in: the smallest that every stage of the chain is content with.
  public var workingSpace: WorkingSpace
  /// Whether the job names `${item.hash}`: the stage that opens the input then keeps its hash with the item.
  public var keepsSourceHash: Bool
  /// Whether the job may put inputs aside: the stage that opens one that was fetched then keeps its bytes with the item.
  public var keepsFetchedBytes: Bool
  /// Fetches inputs that are no files here; nil where the job has none.
  public var fetcher: RemoteFetcher?
  /// What the stages of a run share.
  public let shared: SharedObjects

  public init(
    run: RunValues, computeWorkers: Int, facts: RunFacts, decodeLimits: DecodeLimits = DecodeLimits(),
    workingSpace: WorkingSpace = WorkingSpace(), keepsSourceHash: Bool = false,
    shared: SharedObjects = SharedObjects(), services: ServiceResources = ServiceResources(),
    fetcher: RemoteFetcher? = nil, keepsFetchedBytes: Bool = false
  ) {
    self.fetcher = fetcher
    self.keepsFetchedBytes = keepsFetchedBytes
    self.services = services
    self.run = run
    self.shared = shared
    self.decodeLimits = decodeLimits
    self.workingSpace = workingSpace
    self.keepsSourceHash = keepsSourceHash
    self.computeWorkers = computeWorkers
    self.facts = facts
  }
}

/// The time that an item has waited on purpose, which is not held against it.
public final class Pauses: Sendable {
  private let sum = Mutex(Duration.zero)
  private let onPause: @Sendable (Duration) -> Void

  /// - Parameter onPause: told of every part of a pause when it is over.
  public init(onPause: @escaping @Sendable (Duration) -> Void) { self.onPause = onPause }

  public var total: Duration { sum.withLock { $0 } }

  func add(_ duration: Duration) {
    sum.withLock { $0 += duration }
    onPause(duration)
  }
}

/// What a stage may use while it works on one item.
public struct StageContext: Sendable {
  /// The stage's name in this chain.
  public let stage: String
  public let run: RunValues
  public let journal: ItemJournal
  public let temporaries: TemporaryFiles
  public let claims: OutputClaims
  /// What no output may replace.
  public let protected: ProtectedPaths
  /// What is known about the mask made last on the item's way here.
  public let matte: MatteRecord?
  /// What is remembered of services; nil where nothing is.
  public private(set) var services: (any ItemServices)?
  private let cancelled: @Sendable () -> Bool
  public let pauses: Pauses?
  private var kept: (@Sendable (Item) -> KeptResults?)?
  /// Whether the item's parts are frames of one picture: a warning of a kind that this stage gave already is left out.
  private(set) var notesFrames = false

  public init(
    stage: String, run: RunValues, journal: ItemJournal, temporaries: TemporaryFiles,
    claims: OutputClaims = OutputClaims(), protected: ProtectedPaths = ProtectedPaths(), matte: MatteRecord? = nil,
    kept: (@Sendable (Item) -> KeptResults?)? = nil, services: (any ItemServices)? = nil, pauses: Pauses? = nil,
    cancelled: @escaping @Sendable () -> Bool = { false }
  ) {
    self.services = services
    self.pauses = pauses
    self.stage = stage
    self.run = run
    self.kept = kept
    self.journal = journal
    self.temporaries = temporaries
    self.claims = claims
    self.protected = protected
    self.matte = matte
    self.cancelled = cancelled
  }

  /// The same, for the frames of one picture.
  var onceOnly: StageContext {
    var copy = self
    copy.notesFrames = true
    // One name for all frames would give each the first one's result.
    copy.kept = nil
    copy.services = nil
    return copy
  }

  /// Where the stage may find what it made of this item before; nil where nothing is kept between runs.
  public func keptResults(for item: Item) -> KeptResults? { kept?(item) }

  /// True once the item's time is over or its run is being stopped at once: long work should end.
  public var isCancelled: Bool { cancelled() }

  /// Waits, such as for a service's leave to go on. The item's time does not pass meanwhile; being given up ends it early.
  ///
  /// - Parameter seconds: what is below zero counts as nothing.
  public func pause(seconds: Double) {
    let end = ContinuousClock.now + .seconds(max(0, min(seconds, 1e9)))
    while !isCancelled {
      let begin = ContinuousClock.now
      guard begin < end else { return }
      var slice = timespec(tv_sec: 0, tv_nsec: Int(min((end - begin) / .seconds(1), 0.05) * 1e9))
      nanosleep(&slice, nil)
      // As it goes: whoever watches the item's time may look at any moment.
      pauses?.add(.now - begin)
    }
  }

  /// Notes something worth knowing about an item that goes on.
  public func warn(_ code: String, _ message: String) {
    let message = Secrets.redacted(message)
    if notesFrames, journal.snapshot.warnings.contains(where: { $0.code == code && $0.stage == stage }) { return }
    journal.record { $0.warnings.append(ItemWarning(code: code, stage: stage, message: message)) }
  }

  /// Books an output that exists for good. False when the item was given up meanwhile; the output is not to be kept.
  public func book(_ output: OutputRecord) -> Bool {
    var output = output
    output.stage = stage
    return journal.book(output)
  }

  /// Adds a fact about this item to the report.
  public func note(_ name: String, _ value: JSONText) {
    let value = value.mapStrings(Secrets.redacted)
    journal.record { $0.facts[name] = value }
  }

  /// Fills a template in for an item.
  ///
  /// - Throws: `template-value` when the item lacks what the template names.
  public func render(_ template: Template, for item: Item) throws(StageError) -> [UInt8] {
    var failure: StageError?
    let bytes = template.render { variable in
      switch TemplateValues.value(of: variable, identity: item.identity, run: run, item: item) {
      case .success(let bytes): return bytes
      case .failure(let error):
        failure = error
        return nil
      }
    }
    guard let bytes else {
      throw failure ?? StageError("template-value", "\(template.text) cannot be filled in")
    }
    return bytes
  }
}

/// The values of template variables.
public enum TemplateValues {
  /// The value for an item; `item` is nil while planning, when picture and format are not known yet.
  public static func value(
    of variable: TemplateVariable, identity: ItemIdentity, run: RunValues, item: Item?
  ) -> Result<[UInt8], StageError> {
    switch variable {
    case .itemPath: return .success(identity.name.bytes)
    case .itemDir: return .success(identity.directory.bytes)
    case .itemStem: return .success(identity.name.stem.bytes)
    case .itemName: return .success(identity.name.lastComponent.bytes)
    case .itemExt: return .success(identity.name.fileExtension.bytes)
    case .itemIndex: return .success(Array(String(identity.inputIndex).utf8))
    case .itemHash:
      // The bytes that the picture was made from: the file may be another by now.
      if let hash = item?.sourceHash { return .success(Array(hash.utf8)) }
      if case .encoded(let source) = item?.picture { return .success(Array(source.bytes.sha256.utf8)) }
      guard identity.remote == nil else {
        return .failure(
          StageError("template-value", "the hash of a picture that is fetched is not known before decode", kind: .job))
      }
      do throws(ImagingError) {
        return .success(Array(try EncodedPicture.read(path: identity.path.bytes).sha256.utf8))
      } catch {
        return .failure(StageError(error))
      }
    case .itemColumn(let name):
      if let value = identity.columns[name] { return .success(Array(value.utf8)) }
      return .failure(
        StageError("template-value", "the item has no column \"\(name)\" for ${item.\(name)}", kind: .job))
    case .imageWidth, .imageHeight:
      guard let size = item?.size else {
        return .failure(StageError("template-value", "the picture's size is not known before decode", kind: .job))
      }
      return .success(Array(String(variable == .imageWidth ? size.width : size.height).utf8))
    case .ext:
      guard let encoded = item?.encoded else {
        return .failure(StageError("template-value", "${ext} is not known before encode", kind: .job))
      }
      return .success(Array(encoded.format.fileExtension.utf8))
    case .runDate: return .success(Array(run.runDate.utf8))
    case .runID: return .success(Array(run.runID.utf8))
    case .jobDir: return .success(run.baseFolder.bytes)
    case .fileIn, .fileOut, .fileSource:
      return .failure(
        StageError("template-value", "${\(variable.name)} is known only where a program is run", kind: .job))
    case .secret(let name):
      // Lint allows these in fields for credentials only.
      guard let template = Template.parse("${secret.\(name)}").template else { return .success([]) }
      do throws(StageError) {
        return .success(Array(try Credential(template).reveal().utf8))
      } catch {
        return .failure(error)
      }
    case .environment(let name):
      return .failure(
        StageError("environment-unset", "the environment variable \(name) is not set", kind: .environment))
    }
  }
}

extension StageError {
  /// Runs imaging work and carries its error over.
  public static func imaging<R>(_ body: () throws(ImagingError) -> R) throws(StageError) -> R {
    do throws(ImagingError) {
      return try body()
    } catch {
      throw StageError(error)
    }
  }

  /// Carries an imaging error over, with its class.
  public init(_ error: ImagingError) {
    let kind: ErrorClass =
      switch error.code {
      case .internalFault, .memory: .temporary
      default: .item
      }
    self.init(
      error.code.rawValue, error.message, kind: kind, cause: error.detail.isEmpty ? nil : error.detail,
      hint: error.hint)
  }
}
