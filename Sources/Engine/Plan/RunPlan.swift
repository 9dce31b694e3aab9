import JobSyntax
import PipelineKit

/// Why there is no plan.
public enum PlanError: Error, Sendable {
  case input(InputError)
  /// What earlier runs have done cannot be read.
  case state(StageError)
}

/// What a run would do, found out before any work starts.
public struct RunPlan: Sendable {
  /// Why an item is not worked on.
  public enum Decision: Sendable, Hashable {
    case skip(String)
    /// A filter drops it, for this reason.
    case drop(String)
    // Apart, since most decisions of a long run are skips.
    indirect case fail(StageError, stage: String)
  }

  /// The inputs, in order; in a shard its own.
  public internal(set) var inputs = InputList()
  /// Only for items that are not simply worked on, by index.
  public internal(set) var decisions: [Int: Decision] = [:]
  /// Why items are worked on, by index; only where this was asked for.
  public internal(set) var reasons: [Int: String] = [:]
  /// How many inputs of the same name come before an item, by index; only where there are any.
  private var occurrences: [Int: Int] = [:]
  /// What the walk passed over.
  public internal(set) var skippedInputs = SkipTally()
  /// Problems of the plan: collisions and refusals. Errors keep the run from starting.
  public internal(set) var findings: [Diagnostic] = []

  /// All inputs of the job, those of other shards too.
  public internal(set) var list = InputsDigest()

  /// What no output may replace.
  public internal(set) var protected = ProtectedPaths()

  /// How many items would be worked on.
  public var workCount: Int { inputs.count - decisions.count }

  /// The item at a place, as the executor takes it.
  public func item(at index: Int) -> PlannedItem {
    let input = inputs[index]
    switch decisions[index] {
    case nil: return .run(identity(of: input, at: index))
    case .skip(let reason):
      var record = ItemRecord(
        index: index, inputIndex: input.index, input: input.name.display, status: .skipped)
      record.reason = reason
      return .decided(record)
    case .drop(let reason):
      var record = ItemRecord(index: index, inputIndex: input.index, input: input.name.display, status: .dropped)
      record.reason = reason
      return .decided(record)
    case .fail(let error, let stage):
      var record = ItemRecord(
        index: index, inputIndex: input.index, input: input.name.display, status: .failed)
      record.error = error
      record.failedStage = stage
      return .decided(record)
    }
  }

  /// - Parameter index: the place in the run.
  func identity(of input: InputItem, at index: Int) -> ItemIdentity {
    ItemIdentity(
      index: index, inputIndex: input.index, path: input.path, name: input.name, directory: input.relativeDirectory,
      columns: input.columns, occurrence: occurrences[input.index] ?? 0, remote: input.remote)
  }

  /// Finds the inputs that are named more than once.
  mutating func countOccurrences() {
    var counts: [PathBytes: Int] = [:]
    for input in inputs {
      let name = input.remote.map { PathBytes($0.location) } ?? input.name
      let before = counts[name, default: 0]
      counts[name] = before + 1
      if before > 0 { occurrences[input.index] = before }
    }
  }
}

/// What is known of all of a job's inputs, so that shards can be told to have seen the same.
public struct InputsDigest: Sendable, Hashable {
  public internal(set) var count = 0
  private var hash = StableHash()

  /// 16 hex digits that follow from the names of all inputs and their order.
  public var digest: String {
    let digits = String(hash.value, radix: 16)
    return String(repeating: "0", count: 16 - digits.count) + digits
  }

  init() {}

  /// As `count` and `state` were.
  init(count: Int, state: UInt64) {
    self.count = count
    hash = StableHash(state: state)
  }

  var state: UInt64 { hash.state }

  mutating func add(_ name: PathBytes) {
    count += 1
    hash.add(name.bytes)
    // No path holds it.
    hash.add([0])
  }

  /// What tells the input added last from others of its name.
  mutating func add(mark: [UInt8]) { hash.add(mark + [0]) }

  public static func == (a: InputsDigest, b: InputsDigest) -> Bool { a.count == b.count && a.state == b.state }
  public func hash(into hasher: inout Hasher) { hasher.combine(state) }
}
