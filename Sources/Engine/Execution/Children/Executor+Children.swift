import Dispatch
import Glibc
import JobSyntax
import PipelineKit

// How an item is worked on in a child: the parent's side. The child has the pixels; all that must be known of the whole
// run (which outputs are taken, how much memory is free, whether the item has been given up) it asks for.

extension Executor {
  /// Has one item worked on by a worker's child; returns when the item has ended.
  func workInChild(_ run: ItemRun, _ worker: ChildLane.Worker) {
    var claimed: [PathBytes] = []
    while true {
      guard isInFlight(run) else { return }
      let child: ChildProcess
      let isFresh = !worker.hasServed
      do throws(StageError) {
        child = if let present = worker.child { present } else { try startChild(for: worker) }
      } catch {
        // Work that has crashed the program once is not done here again; for all other work, here is better than not
        // at all.
        if !resumeHere(run) { conclude(run, TailEnd(.failed, error: error)) }
        return
      }
      // It may have been ended while the child started, when there was nothing to kill yet.
      guard isInFlight(run) else { return }
      journal?.enter(run.index, stage: 0)
      claimed = []
      run.progress.withLock { $0.ends = [] }
      let end = converse(run, child, &claimed)
      guard case .died(let ended) = end else {
        worker.noteServed()
        return
      }
      removeUnbooked(run, of: child)
      services?.abandonCalls(of: run.progress.withLock { $0.item.identity })
      worker.forget()
      let stage = stages[min(currentStage(run), stages.count - 1)].label
      switch ended {
      case nil: conclude(run, TailEnd(.failed, stage: stage, error: deadlineError(inStage: stage)))
      case let ended?:
        // An item before it may have left the child broken; one that crashes a child of its own is the culprit. What
        // was written already is not written again.
        if !isFresh, isInFlight(run), run.journal.snapshot.outputs.isEmpty {
          for path in claimed { claims.release(path) }
          continue
        }
        conclude(run, TailEnd(.failed, stage: stage, error: Self.crashError(ended, inStage: stage)))
      }
      return
    }
  }

  /// Removes what a child that is no more had put in place and not yet told: where nothing was before, nothing stays.
  private func removeUnbooked(_ run: ItemRun, of child: ChildProcess) {
    var named = journal?.takeNamed(by: child.identifier) ?? [:]
    for case .path(let path) in run.journal.snapshot.outputs.map(\.place) { named[path] = nil }
    for (path, isNew) in named where isNew { _ = path.withCString { unlink($0) } }
  }

  private func startChild(for worker: ChildLane.Worker) throws(StageError) -> ChildProcess {
    guard let launcher, mayStartChildren else { throw ChildProcess.failure("an earlier one could not be started") }
    do throws(StageError) {
      return try launcher.start { worker.adopt($0) }
    } catch {
      worker.forget()
      throw error
    }
  }

  private func currentStage(_ run: ItemRun) -> Int {
    if case .inStage(let stage) = journal?[run.index] { stage } else { 0 }
  }

  private static func crashError(_ end: ChildProcess.End, inStage stage: String) -> StageError {
    let how =
      switch end {
      case .signal(let number): "the picture crashed the program (\(SignalName.text(number)))"
      case .exit(let code): "the picture ended the program (a library called exit with code \(code))"
      case .stuck: "the picture crashed the program"
      }
    return StageError(
      "crash", how + " in stage \"\(stage)\"",
      // Names of stages that are not the program's own have a namespace.
      hint: stage.contains(".")
        ? "no picture may do that: keep the file for whoever made this stage; all others are done without it"
        : "no picture may do that: keep the file and report it; all others are done without it")
  }

  private enum Conversed {
    /// The child is ready for the next item.
    case ended
    /// The child is no more: it crashed, or (nil) was killed because the item's time was over.
    case died(ChildProcess.End?)
  }

  private func converse(_ run: ItemRun, _ child: ChildProcess, _ claimed: inout [PathBytes]) -> Conversed {
    let identity = run.progress.withLock { $0.item.identity }
    var expiry = ContinuousClock.now + configuration.itemDeadline
    func tell(_ message: JSONText) { child.conversation.send(message, until: expiry) }
    func answer(_ yes: Bool, _ error: StageError? = nil) {
      tell(Message.make("answer", [("yes", .bool(yes)), ("error", error?.json ?? nil)]))
    }
    tell(Message.item(identity))
    while true {
      switch child.conversation.receive(until: expiry) {
      case .timeout:
        child.kill()
        _ = child.reap()
        return .died(nil)
      case .closed:
        // Where it was not a crash that closed the conversation, the child is of no use either.
        if case .stuck = child.reap(waiting: 1) { child.kill() }
        return .died(child.reap())
      case .message(let message):
        switch Message.kind(message) {
        case "claim":
          let path = Message.path(message)
          let isNew = claims.claim(path)
          if isNew { claimed.append(path) }
          answer(isNew)
        case "protected":
          answer(
            true,
            protected.refusal(
              of: Message.path(message), resolved: Message.path(message, "resolved"),
              mayReplaceInputs: message["mayReplace"]?.boolValue ?? false))
        case "book":
          var output = message["output"].flatMap { OutputRecord($0) }
          output?.stage = message["stage"]?.stringValue ?? ""
          answer(output.map { run.journal.book($0) } ?? false)
        case "memory":
          let begin = ContinuousClock.now
          let isGranted = waitForMemory(message["bytes"]?.numberValue?.integer ?? 0, for: run)
          // Waiting is not the item's work.
          expiry += .now - begin
          answer(isGranted)
        case "service": tell(self.answer(toService: message, for: run))
        case "paused": expiry += .seconds(message["seconds"]?.numberValue?.double ?? 0)
        case "progress": note(message, for: run)
        case "ended":
          note(message, for: run)
          conclude(run)
          return .ended
        default: break
        }
      }
    }
  }

  /// Keeps what the child has to say about the item so far. Outputs were booked one by one.
  private func note(_ message: JSONNode, for run: ItemRun) {
    let warnings = ItemRecord.warnings(message["warnings"])
    let mattes = ItemRecord.mattes(message["mattes"])
    let facts = ItemRecord.facts(message["facts"])
    let timings = ItemRecord.timings(message["stages"])
    let source = message["source"].flatMap { SourceFacts($0) }
    let ends = (message["ends"]?.arrayValue ?? []).compactMap { TailEnd($0) }
    if message["isLimited"]?.boolValue ?? false { noteLimit() }
    run.journal.record {
      $0.warnings = warnings
      $0.mattes = mattes
      $0.facts = facts
    }
    run.progress.withLock {
      $0.timings = timings
      $0.source = source
      $0.ends = ends
    }
  }

  /// False when the item was ended meanwhile.
  private func waitForMemory(_ bytes: Int, for run: ItemRun) -> Bool {
    let granted = DispatchSemaphore(value: 0)
    run.grant.withLock { $0 = granted }
    defer { run.grant.withLock { $0 = nil } }
    if !budget.reserve(bytes, for: run) {
      while granted.wait(timeout: .now() + 0.1) == .timedOut {
        guard isInFlight(run) else { return false }
      }
    }
    // Ended at this moment: whoever ended it has given back too early.
    guard isInFlight(run) else {
      resume(budget.release(run))
      return false
    }
    return true
  }
}
