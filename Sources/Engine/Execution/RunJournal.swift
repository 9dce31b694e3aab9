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

  /// Nil where this system cannot have one, or this program cannot be started again.
  static func make(items: Int) -> RunJournal? {
    csystem_program_is_known() != 0 && csystem_journal_make(Int64(items)) == 0 ? RunJournal() : nil
  }

  /// The journal that was inherited.
  ///
  /// - Parameter owner: the process whose journal it must be.
  static func open(_ descriptor: Int32, owner: pid_t) -> RunJournal? {
    csystem_journal_open(descriptor, owner) == 0 ? RunJournal() : nil
  }

  var descriptor: Int32 { csystem_journal_descriptor() }
  var itemCount: Int { Int(csystem_journal_items()) }

  func enter(_ index: Int, stage: Int) {
    // Hardly any job has more stages, its tails included; what counts is that the item is in flight.
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

  // MARK: The run

  /// Whether items are worked on in children; holds for the rest of the run, crashes or not.
  var usesChildren: Bool {
    get { csystem_journal_get(csystem_uses_children) != 0 }
    nonmutating set { csystem_journal_set(csystem_uses_children, newValue ? 1 : 0) }
  }

  var planDescriptor: Int32 {
    get { Int32(csystem_journal_get(csystem_plan_descriptor)) }
    nonmutating set { csystem_journal_set(csystem_plan_descriptor, Int64(newValue)) }
  }

  var spoolDescriptor: Int32 {
    get { Int32(csystem_journal_get(csystem_spool_descriptor)) }
    nonmutating set { csystem_journal_set(csystem_spool_descriptor, Int64(newValue)) }
  }

  /// Bytes of whole entries in the spool.
  var spoolEnd: Int {
    get { Int(csystem_journal_get(csystem_spool_end)) }
    nonmutating set { csystem_journal_set(csystem_spool_end, Int64(newValue)) }
  }

  /// The signal that was asked to end the run; 0 for none.
  var stopSignal: Int32 {
    get { Int32(csystem_journal_get(csystem_stop_signal)) }
    nonmutating set { csystem_journal_set(csystem_stop_signal, Int64(newValue)) }
  }

  var crashes: Int { Int(csystem_journal_get(csystem_crashes)) }
  var crashSignal: Int32 { Int32(csystem_journal_get(csystem_crash_signal)) }

  /// Notes the time of the first start.
  func begin() {
    if csystem_journal_get(csystem_begin) == 0 { csystem_journal_set(csystem_begin, Self.nanoseconds()) }
  }

  /// Seconds since the first start; the time of all lives of the program.
  var elapsed: Double {
    let begin = csystem_journal_get(csystem_begin)
    return begin == 0 ? 0 : Double(Self.nanoseconds() - begin) / 1e9
  }

  private static func nanoseconds() -> Int64 {
    var time = timespec()
    clock_gettime(CLOCK_BOOTTIME, &time)
    return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
  }

  // MARK: Crashes

  /// From now on a crash while items are in flight is taken up after.
  func arm() { csystem_take_up_arm() }
  func disarm() { csystem_take_up_disarm() }

  /// Lets the capture of standard error go on where the program that crashed has left it.
  func continueCapture() {
    let descriptor = Int32(csystem_journal_get(csystem_capture_descriptor))
    guard descriptor >= 0 else { return }
    csystem_capture_continue(descriptor, Int(csystem_journal_get(csystem_capture_taken)))
  }

  /// Ends the children of the program that crashed; they are this process's own.
  func endChildren() {
    let deadline = ContinuousClock.now + .seconds(2)
    while true {
      let child = csystem_journal_take_child()
      guard child != 0 else { return }
      kill(child, SIGKILL)
      // One that hangs in the kernel is left to it.
      while waitpid(child, nil, WNOHANG) == 0, ContinuousClock.now < deadline { _ = poll(nil, 0, 2) }
    }
  }

  // MARK: Temporary files

  /// Temporary files that are noted here while they exist.
  func makeTemporaries() -> TemporaryFiles {
    TemporaryFiles(
      onInsert: { path in path.withCString { csystem_journal_add_temporary($0) } },
      onRemove: { path in path.withCString { csystem_journal_remove_temporary($0) } },
      onNaming: { temporary, path, isNew in
        temporary.withCString { from in path.withCString { csystem_journal_add_naming(from, $0, isNew ? 1 : 0) } }
      })
  }

  /// Files that have got their name not long before a crash and have it still, and whether nothing had it before.
  /// Forgets them.
  ///
  /// - Parameter process: whose they were; nil for all.
  func takeNamed(by process: pid_t? = nil) -> [PathBytes: Bool] {
    var named: [PathBytes: Bool] = [:]
    var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
    for number in 0..<Int32(csystem_naming_count) {
      let kind = csystem_journal_naming(number, process ?? 0, &buffer)
      if kind != 0 { named[PathBytes(buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) })] = kind == 2 }
    }
    csystem_journal_clear_namings(process ?? 0)
    return named
  }

  /// Forgets the files that this process has named: their item has ended.
  func forgetNamed() { csystem_journal_clear_namings(getpid()) }

  /// Removes the files that a process which is no more has left; with nil, those of all processes.
  func removeTemporaries(of process: pid_t?) {
    var path = [CChar](repeating: 0, count: Int(PATH_MAX))
    while csystem_journal_take_temporary(process ?? 0, &path) != 0 { unlink(path) }
  }

  // MARK: Children

  func add(child: pid_t) { csystem_journal_add_child(child) }
  func remove(child: pid_t) { csystem_journal_remove_child(child) }
}
