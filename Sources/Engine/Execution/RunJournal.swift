import CSystem
import Glibc
import PipelineKit

/// What this process's run keeps outside of the process's own memory: how far every item is, which temporary files and
/// children there are. See `csystem_journal.h`.
///
/// Costs a byte an item, and a store when it enters a stage. There is one a process, so it belongs to the command line
/// program and not to every `JobRun`.
struct RunJournal: Sendable {
  /// How far an item is.
  enum State: Sendable, Hashable {
    case untouched
    /// From 0.
    case inStage(Int)
    case ended(ItemStatus)
  }

  private static let firstEnded = 128

  private init() {}

  /// Nil where this system cannot have one.
  static func make(items: Int) -> RunJournal? { csystem_journal_make(Int64(items)) == 0 ? RunJournal() : nil }

  /// The journal that was inherited.
  ///
  /// - Parameter owner: the process whose journal it must be.
  static func open(_ descriptor: Int32, owner: pid_t) -> RunJournal? {
    csystem_journal_open(descriptor, owner) == 0 ? RunJournal() : nil
  }

  var descriptor: Int32 { csystem_journal_descriptor() }
  var itemCount: Int { Int(csystem_journal_items()) }

  func enter(_ index: Int, stage: Int) {
    // Chains that long do not exist; what counts is that the item is in flight.
    csystem_journal_mark(Int64(index), Int32(min(stage + 1, Self.firstEnded - 1)))
  }

  func end(_ index: Int, _ status: ItemStatus) {
    guard let number = ItemStatus.allCases.firstIndex(of: status) else { return }
    csystem_journal_mark(Int64(index), Int32(Self.firstEnded + number))
  }

  subscript(index: Int) -> State {
    let value = Int(csystem_journal_state(Int64(index)))
    if value == 0 { return .untouched }
    if value < Self.firstEnded { return .inStage(value - 1) }
    let number = value - Self.firstEnded
    return number < ItemStatus.allCases.count ? .ended(ItemStatus.allCases[number]) : .untouched
  }

  /// Whether items are worked on in children; holds for the rest of the run, crashes or not.
  var usesChildren: Bool {
    get { csystem_journal_get(csystem_uses_children) != 0 }
    nonmutating set { csystem_journal_set(csystem_uses_children, newValue ? 1 : 0) }
  }

  // MARK: Temporary files

  /// Temporary files that are noted here while they exist.
  func makeTemporaries() -> TemporaryFiles {
    TemporaryFiles(
      onInsert: { path in path.withCString { csystem_journal_add_temporary($0) } },
      onRemove: { path in path.withCString { csystem_journal_remove_temporary($0) } })
  }

  /// Removes the files that a process which is no more has left; with nil, those of all processes.
  func removeTemporaries(of process: pid_t?) {
    var path = [CChar](repeating: 0, count: Int(PATH_MAX))
    while csystem_journal_take_temporary(process ?? 0, &path) != 0 { unlink(path) }
  }

  // MARK: Children

  func add(child: pid_t) { csystem_journal_add_child(child) }
  func remove(child: pid_t) { csystem_journal_remove_child(child) }
}
