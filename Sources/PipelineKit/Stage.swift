import Imaging
import JobSyntax

/// One step of a chain.
///
/// The executor calls `process` from its own workers, several at a time on one instance: what belongs to one picture
/// lives in the item, and anything else a stage changes must be guarded. `process` is synchronous and may block; the
/// lane in its plan says where it runs. Order of calls: `plan` and `check` while linting (no model, no network),
/// `init` once per run, `process` once per item, `finish` once on every path.
public protocol Stage: ReadyStage {
  /// Name, fields, help and examples; everything users read about the stage comes from here.
  static var spec: StageSpec { get }

  /// What the stage needs, gives and costs with these settings. Must not touch files, models or the network.
  static func plan(_ settings: Settings) -> StagePlan

  /// Rules that involve several fields. The shape of each field has been checked before.
  static func check(_ settings: Settings) -> [Diagnostic]

  /// What the result depends on besides the settings, the helper files and the input, such as a model's checksum: by
  /// name. Asked for once a run where results are remembered; must not load a model or use the network, and answers
  /// what it can where something is missing.
  static func ingredients(_ settings: Settings) -> [String: String]

  /// Makes the stage ready to work; may load a model or read a background.
  ///
  /// - Throws: an error of class `environment` or `job`; the run does not start.
  init(_ settings: Settings, resources: StageResources) throws(StageError)
}

/// A stage that was made ready, with settings of its own. What makes it may be a type, see `Stage`, or something that
/// is known only to the run, such as a plugin.
public protocol ReadyStage: Sendable {
  /// Takes one item a step further.
  func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome

  /// Called once after the last item, on every path out of a run.
  func finish() throws(StageError)
}

extension ReadyStage {
  public func finish() throws(StageError) {}
}

extension Stage {
  public static func check(_ settings: Settings) -> [Diagnostic] { [] }
  public static func ingredients(_ settings: Settings) -> [String: String] { [:] }
}

/// A stage that leaves something at a service, which a receipt can look after.
public protocol ReceiptedStage: Stage {
  /// What looks after receipts of a stage with these settings; nil where its service offers nothing for it.
  static func receiptKeeper(
    _ settings: Settings, resources: StageResources
  ) throws(StageError) -> (any ReceiptKeeper)?
}

/// Looks after what was sent.
public protocol ReceiptKeeper: Sendable {
  /// Whether it is still there, as far as the service tells.
  ///
  /// - Throws: where the service cannot be asked.
  func verify(_ receipt: UploadReceipt) throws(StageError) -> ReceiptFinding

  /// Takes it back. What is gone already counts as taken back.
  func delete(_ receipt: UploadReceipt) throws(StageError)
}

/// What a look at something that was sent has shown.
public enum ReceiptFinding: Sendable, Hashable {
  /// It is there. `isSame`: its content is what was sent; nil where the service does not tell.
  case present(isSame: Bool?)
  case gone
}

/// What became of an item in a stage.
public enum Outcome: Sendable {
  /// On to the next stage.
  case next(Item)
  /// Taken out of the run on purpose.
  case dropped(reason: String)
  /// For a person to look at; the stage has put a copy of the input where the job says.
  case review(reason: String)
  /// To be tried in a later run.
  case deferred(reason: String)
  /// Not tried, because a limit was reached.
  case notAttempted(reason: String)
  /// A request may or may not have been carried out; `receipt` is what settles it.
  case unknown(receipt: String)
}

/// Everything that is written about a stage, once.
public struct StageSpec: Sendable {
  /// One word; third-party stages carry a namespace: `acme.watermark`.
  public var name: String
  /// Raised whenever the same settings give other results.
  public var version: Int
  /// One sentence.
  public var summary: String
  /// Further paragraphs for the reference page.
  public var notes: [String]
  public var fields: [any FieldDeclaration]
  /// Job-file snippets, each one stage object; linted by the tests.
  public var examples: [String]

  public init(
    name: String, version: Int = 1, summary: String, notes: [String] = [], fields: [any FieldDeclaration],
    examples: [String]
  ) {
    self.name = name
    self.version = version
    self.summary = summary
    self.notes = notes
    self.fields = fields
    self.examples = examples
  }
}

/// Where a stage's work runs.
public enum Lane: String, Sendable, CaseIterable {
  /// Pixels: one worker per core.
  case compute
  /// Waiting for a disk: flushing files holds no core.
  case storage
  /// Waiting for a service. Every stage that does has workers of its own, so that a slow service holds up no other.
  case network
}

/// What an item has at a point of the chain.
public struct ItemTraits: OptionSet, Sendable, Hashable {
  public let rawValue: Int
  public init(rawValue: Int) { self.rawValue = rawValue }

  /// An input that can still be opened; true from the start to the end.
  public static let source = ItemTraits(rawValue: 1 << 0)
  public static let picture = ItemTraits(rawValue: 1 << 1)
  /// The picture has transparency that means something: it was cut out.
  public static let alpha = ItemTraits(rawValue: 1 << 2)
  public static let matte = ItemTraits(rawValue: 1 << 3)
  public static let encoded = ItemTraits(rawValue: 1 << 4)
  /// An output was written or sent.
  public static let output = ItemTraits(rawValue: 1 << 5)

  /// For messages.
  public var names: [String] {
    let all: [(ItemTraits, String)] = [
      (.source, "an input"), (.picture, "a decoded picture"), (.alpha, "a cut-out"), (.matte, "a mask"),
      (.encoded, "an encoded result"), (.output, "an output"),
    ]
    return all.filter { contains($0.0) }.map(\.1)
  }
}

/// What happens to an output that is there already.
public enum ExistingOutput: String, Sendable, CaseIterable {
  /// It is replaced, atomically.
  case replace
  /// It stays, and the item is not worked on.
  case skip
  /// It stays, and the item fails.
  case error
}

/// A combination that lint refuses, because every item with these traits would fail.
public struct Refusal: Sendable {
  public var traits: ItemTraits
  /// The name of the field at fault.
  public var field: String
  public var message: String
  public var hint: String?

  public init(_ traits: ItemTraits, at field: String, _ message: String, hint: String? = nil) {
    self.traits = traits
    self.field = field
    self.message = message
    self.hint = hint
  }
}

/// What a stage pays for an item.
public struct Price: Sendable, Hashable {
  /// Who is paid, as jobs call the service.
  public var provider: String
  /// In the service's credits, the most that one item can cost.
  public var credits: Double

  public init(provider: String, credits: Double) {
    self.provider = provider
    self.credits = credits
  }
}

/// What a stage drops items by.
public struct ItemFilter: Sendable {
  /// Holds for items that stay.
  public var condition: Condition
  /// Why others are dropped; nil for words made from the condition.
  public var reason: String?

  public init(_ condition: Condition, reason: String?) {
    self.condition = condition
    self.reason = reason
  }

  /// Why an item for which the condition does not hold is dropped.
  public var text: String { reason ?? "it is not so that \(condition)" }
}

/// What a stage needs, gives and costs with its settings; lint, planner and executor work from this.
public struct StagePlan: Sendable {
  public var lane: Lane
  /// How many exchanges with a service may go on at once, of a stage that has any; see `ExchangingStage`.
  public var exchanges: Int?
  /// Whether the stage opens inputs: it then has exchanges in runs with inputs that are fetched, and in no others.
  public var opensInputs: Bool
  /// What one item may cost at most, in a service's credits; nil where nothing is paid for.
  public var price: Price?
  /// What results that are paid for follow from, of the stage's settings: a change of others is no reason to pay again.
  /// Nil for all settings, helper files and ingredients; a stage that says less narrows `KeptResults` by the rest.
  public var paidSettings: String?
  /// What the item must have, all of it.
  public var accepts: ItemTraits
  /// What the item must have, any of it; empty for no such rule.
  public var acceptsAny: ItemTraits
  /// What the stage looks at where the item has it, without needing it.
  public var uses: ItemTraits
  public var produces: ItemTraits
  /// What the item no longer has afterwards.
  public var removes: ItemTraits
  /// The names of mattes that the stage adds; nil where only the run shows them.
  public var namedMattes: [String]?
  /// The named matte that the stage works on, by the text of its field.
  public var usedMatte: (field: String, name: String)?
  /// Where files will be written, for the proof that no two items write the same.
  public var outputs: [Template]
  /// Where copies of inputs are put that leave the chain here; proved as outputs are, but they make no item done.
  public var copies: [Template]
  /// What happens when an output is there already.
  public var existing: ExistingOutput
  /// Whether an output may replace an input.
  public var mayReplaceInputs: Bool
  /// The ending that encoding gives, where the settings alone decide it.
  public var encodedExtension: String?
  /// Whether what was encoded comes out in the format it came in.
  public var keepsEncodedFormat: Bool
  /// Files besides the inputs that the result depends on.
  public var helperFiles: [String]
  /// What the stage fails with when the item has it.
  public var refuses: Refusal?
  /// The longest side that the stage can encode, in pixels; nil for no limit below those of a resize.
  public var mostSide: Int?
  /// Pixels that the longer side of the result has at least, whatever the picture; nil where nothing is certain.
  public var leastSide: Int?
  /// Bytes held while the stage works on a picture of this width and height, beyond the picture itself.
  public var workingBytes: @Sendable (_ width: Int, _ height: Int) -> Int
  /// What pictures must be held in for the stage to lose nothing.
  public var workingSpace: WorkingSpace
  /// Whether an animation comes frame by frame, as it does unless the stage works on what was encoded.
  public var frames: FrameHandling
  /// Whether the stage, straight after decode, has the picture shrunk while it loads, so that it is never held whole.
  public var shrinksOnLoad: Bool
  /// What the stage does, where all it does is to drop items: what is known beforehand is then decided by the planner.
  public var filter: ItemFilter?
  /// Seconds that the stage takes to end what it has begun once it is told that the item's time is over. So long it is
  /// waited for; where that is 0 it is not told before it is given up.
  public var endsWithin: Double
  /// Whether pixels do not all keep their places: the picture is scaled, cropped, padded, turned or mirrored.
  public var movesPixels: Bool
  /// Bits a sample, 8 or 16, of the deepest pictures that come through: the stage narrows what is deeper.
  public var mostDepth: Int
  /// Width and height after the stage; nil where they stay.
  public var resultSize: (@Sendable (_ width: Int, _ height: Int) -> (Int, Int))?

  public init(
    lane: Lane = .compute, accepts: ItemTraits, acceptsAny: ItemTraits = [], produces: ItemTraits = [],
    removes: ItemTraits = []
  ) {
    self.lane = lane
    self.exchanges = nil
    self.opensInputs = false
    self.price = nil
    self.paidSettings = nil
    self.accepts = accepts
    self.acceptsAny = acceptsAny
    self.uses = []
    self.produces = produces
    self.removes = removes
    self.namedMattes = []
    self.usedMatte = nil
    self.outputs = []
    self.copies = []
    self.existing = .replace
    self.mayReplaceInputs = false
    self.encodedExtension = nil
    self.keepsEncodedFormat = false
    self.helperFiles = []
    self.workingBytes = { _, _ in 0 }
    self.workingSpace = WorkingSpace()
    // Of what was encoded there is one, also where the frames it was made from are still there for a later stage.
    self.frames = accepts.contains(.encoded) ? .together : .each
    self.shrinksOnLoad = false
    self.endsWithin = 0
    self.movesPixels = false
    self.mostDepth = 16
    self.resultSize = nil
  }
}
