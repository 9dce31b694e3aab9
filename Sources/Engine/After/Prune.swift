import Digest
import Glibc
import PipelineKit

/// Outputs of earlier runs whose input is gone: which there are, and removing them.
public struct Prune: Sendable {
  /// What becomes of one output.
  public enum Action: Sendable, Hashable {
    case remove
    /// Removed already, by whoever.
    case missing
    /// Stays, and why.
    case keep(String)
  }
  public struct Entry: Sendable, Hashable {
    public var path: PathBytes
    /// The input it was made from, as found.
    public var input: PathBytes
    public var action: Action
    /// As it was booked.
    var output: LedgerOutput
  }

  public internal(set) var entries: [Entry] = []
  /// Items of the ledger, by what becomes of their outputs.
  private var items: [(key: [UInt8], entries: Range<Int>)] = []
  private let fixedFolders: Set<PathBytes>

  /// Finds them. Reads the ledger; of the disk only what is needed to tell that a file is still what was written.
  ///
  /// An input is gone when the job's input no longer names it and no run of this job has moved or deleted it. An output
  /// that a picture of today's makes too is not listed.
  ///
  /// - Parameters:
  ///   - plan: of the job with all of its inputs; of a shard, that shard's.
  ///   - takesAll: goes on where every input that was ever worked on is gone.
  ///   - run: the run, which knows the names of outputs.
  ///   - history: what earlier runs have booked.
  /// - Throws: `prune-unsure` of class environment where what is gone cannot be told: a part of the input could not be
  ///   read, or all of it is gone.
  public init(_ run: JobRun, _ plan: RunPlan, _ history: RunHistory, takesAll: Bool) throws(StageError) {
    let skipped = plan.skippedInputs
    if skipped.problems > 0 {
      throw Self.unsure(
        "not all of the job's input could be read (\(skipped.summary)), so what is gone cannot be told")
    }
    if let doubt = run.doubtAboutOutputs { throw Self.unsure(doubt) }
    fixedFolders = run.fixedFolders
    var keys: Set<UInt64> = []
    var resolver = FolderResolver()
    var wanted: Set<UInt64> = []
    for index in plan.inputs.indices {
      let identity = plan.identity(of: plan.inputs[index], at: index)
      keys.insert(PathBytes(bytes: RunHistory.key(of: identity)).stableHash)
      for case let path? in run.outputs(of: plan, at: index) { wanted.insert(resolver.resolve(path).stableHash) }
    }
    var gone: [LedgerItem] = []
    var present = 0
    try history.ledger.forEachItem(job: history.job) { item in
      if keys.contains(PathBytes(bytes: item.key).stableHash) {
        present += 1
        // Names that only a run knows are known from it.
        for output in item.outputs {
          if case .path(let path) = output.record.place { wanted.insert(path.stableHash) }
        }
      } else {
        gone.append(item)
      }
    }
    if !gone.isEmpty { try Self.forEachOutputOfOtherJobs(history) { wanted.insert($0.stableHash) } }
    for item in gone {
      let name = PathBytes(item.key.prefix { $0 != 0 })
      if let shard = run.options.shard, !shard.contains(name) { continue }
      if try history.ledger.fate(job: history.job, source: name) != nil { continue }
      let start = entries.count
      for output in item.outputs {
        guard case .path(let path) = output.record.place else { continue }
        let action: Action =
          wanted.contains(resolver.resolve(path).stableHash) || wanted.contains(path.stableHash)
          ? .keep("another picture is written there now, or by another job") : Self.look(path, output)
        entries.append(Entry(path: path, input: name, action: action, output: output))
      }
      items.append((item.key, start..<entries.count))
    }
    if present == 0, !entries.isEmpty, !takesAll {
      throw Self.unsure(
        "all \(items.count) pictures that were worked on before are gone, and with them all outputs would go",
        hint: "where that is meant: --prune=all")
    }
  }

  /// What other jobs with the same ledger have written and may still take for theirs. Of one whose file is gone, such as
  /// by another name, nobody will.
  private static func forEachOutputOfOtherJobs(
    _ history: RunHistory, _ body: (PathBytes) -> Void
  ) throws(StageError) {
    let home = history.ledger.folder.path.parent
    for (job, _) in try history.ledger.jobs() where job != history.job {
      guard FileStamp.of(home.joining(PathBytes(job))) != nil else { continue }
      try history.ledger.forEachItem(job: job) { item in
        for output in item.outputs {
          if case .path(let path) = output.record.place { body(path) }
        }
      }
    }
  }

  private static func unsure(_ message: String, hint: String? = nil) -> StageError {
    StageError("prune-unsure", "nothing is pruned: " + message, kind: .environment, hint: hint)
  }

  private static func look(_ path: PathBytes, _ output: LedgerOutput) -> Action {
    var status = stat()
    guard path.withCString({ lstat($0, &status) }) == 0 else { return .missing }
    // A link that leads to the very same is still not what was written.
    guard status.st_mode & S_IFMT == S_IFREG else { return .keep("it is not the file any more that was written") }
    switch RunHistory.compare(path, output.stamp, Hex.bytes(output.record.sha256), false) {
    case .same, .touched: return .remove
    case .changed: return .keep("it was changed since it was written")
    case .missing: return .missing
    }
  }

  /// Removes what is to be removed, and folders that are empty then, up to the one that the job names by itself; what
  /// could not be removed stays listed as kept. The ledger forgets pictures of which nothing is left.
  public mutating func carryOut(_ history: RunHistory) throws(StageError) {
    var folders: Set<PathBytes> = []
    for index in entries.indices where entries[index].action == .remove {
      let path = entries[index].path
      // Looked at again: the list may be as old as the run.
      entries[index].action = Self.look(path, entries[index].output)
      guard entries[index].action == .remove else { continue }
      if path.withCString({ unlink($0) }) != 0 {
        entries[index].action = .keep("it could not be removed: \(String(cString: strerror(errno)))")
      } else {
        folders.insert(path.parent)
      }
    }
    for folder in folders.sorted(by: { $0.components.count > $1.components.count }) { removeEmpty(folder) }
    let forgotten = items.filter { item in
      entries[item.entries].allSatisfy { if case .keep = $0.action { false } else { true } }
    }
    try history.ledger.remove(job: history.job, keys: forgotten.map(\.key))
  }

  private func removeEmpty(_ folder: PathBytes) {
    try? AtomicFile.flush(folder: folder)
    var folder = folder
    while fixedFolders.contains(where: { folder != $0 && folder.isInside($0) }) {
      // Refused by the kernel where anything is in it.
      guard folder.withCString({ rmdir($0) }) == 0 else { return }
      folder = folder.parent
      try? AtomicFile.flush(folder: folder)
    }
  }
}
