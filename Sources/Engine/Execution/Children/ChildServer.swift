import CSystem
import Dispatch
import Glibc
import Imaging
import JobSyntax
import PipelineKit
import Synchronization

/// The child's side of working on items: the way to the run that started this process.
public final class ParentLink: Sendable {
  private let conversation: Conversation
  let journal: RunJournal
  private let inbox = Mutex<[JSONNode]>([])
  private let arrived = DispatchSemaphore(value: 0)
  private let onClose = Mutex<(@Sendable () -> Void)?>(nil)

  /// What the parent works on.
  public struct Beginning: Sendable {
    /// The text of the job, and what it is called; the file itself may have been changed since.
    public var job: [UInt8]
    public var file: String
    public var folder: PathBytes
    public var identity: RunIdentity
    /// Where results are kept, as `RunHistory.forChildren` says it.
    var kept: JSONNode?
  }

  /// The link, where this process was started by a run. One whose run has ended meanwhile ends too: it must never take
  /// itself for a run of its own.
  public static func inherited() -> ParentLink? {
    let parts = String(cString: csystem_program_word()).split(separator: ":")
    guard parts.first == "child" else { return nil }
    guard parts.count == 3, let socket = Int32(parts[1]), let file = Int32(parts[2]),
      let journal = RunJournal.open(file, owner: getppid())
    else { _exit(0) }
    return ParentLink(Conversation(socket), journal: journal)
  }

  private init(_ conversation: Conversation, journal: RunJournal) {
    self.conversation = conversation
    self.journal = journal
    // A thread that is always there: when the parent has gone, so does this process, whatever call it hangs in.
    DispatchQueue(label: "pipeline.parent").async { [self] in
      while case .message(let message) = conversation.receive() {
        inbox.withLock { $0.append(message) }
        arrived.signal()
      }
      onClose.withLock { $0 }?()
      _exit(0)
    }
  }

  /// Waits for the first message.
  public func begin() -> Beginning {
    let message = next()
    var identity = RunIdentity(
      runID: message["run"]?.stringValue ?? "", started: message["started"]?.numberValue?.double ?? 0,
      part: (message["shard"]?.stringValue.map { $0 + "-" } ?? "") + "child-\(getpid())")
    identity.keepsHistory = message["history"]?.boolValue ?? false
    identity.followsCutRun = message["followsCutRun"]?.boolValue ?? false
    return Beginning(
      job: Array((message["job"]?.stringValue ?? "").utf8), file: message["file"]?.stringValue ?? "",
      folder: Message.path(message, "folder"),
      identity: identity, kept: message["kept"])
  }

  /// Says that no item can be worked on here, and ends the process.
  public func refuse(_ error: StageError) -> Never {
    conversation.send(Message.make("refused", [("error", error.json)]))
    _exit(0)
  }

  func whenClosed(_ body: @escaping @Sendable () -> Void) { onClose.withLock { $0 = body } }

  func next() -> JSONNode {
    arrived.wait()
    return inbox.withLock { $0.removeFirst() }
  }

  func tell(_ message: JSONText) { conversation.send(message) }

  /// Sends a question and waits for its answer: the run says nothing else meanwhile.
  func question(_ message: JSONText) -> JSONNode {
    tell(message)
    return next()
  }

  /// The same for a question that is answered by yes or no.
  func ask(_ message: JSONText) -> (yes: Bool, error: StageError?) {
    let answer = question(message)
    return (answer["yes"]?.boolValue ?? false, answer["error"].flatMap { StageError($0) })
  }

  var claims: OutputClaims {
    OutputClaims { [self] path in ask(Message.make("claim", [("path", .string(path.display))])).yes }
  }

  var protected: ProtectedPaths {
    ProtectedPaths { [self] path, resolved, mayReplace in
      ask(
        Message.make(
          "protected",
          [
            ("path", .string(path.display)), ("resolved", .string(resolved.display)), ("mayReplace", .bool(mayReplace)),
          ])
      ).error
    }
  }
}

extension JobRun {
  /// Works on the items that the run at the other end of a link sends, one after the other.
  public func serve(_ link: ParentLink, _ beginning: ParentLink.Beginning) -> Never {
    let stages: [ExecutableStage]
    do throws(StageError) { stages = try makeStages(workCount: 1) } catch { link.refuse(error) }
    let executor = Executor(
      stages: stages,
      configuration: .init(
        computeWorkers: 1, memoryLimit: .max, itemDeadline: .seconds(job.itemDeadline), graceTime: .zero,
        stopsOnFailure: false),
      itemCount: 0, run: values, protected: link.protected, claims: link.claims, journal: link.journal,
      observer: NobodyWatches(), items: { _ in preconditionFailure("items come over the link") })
    link.whenClosed { executor.temporaries.sealAndRemove(waiting: 1) }
    let lookup = RunHistory.lookup(beginning.kept, job)
    link.tell(Message.make("ready"))
    while true {
      let message = link.next()
      switch Message.kind(message) {
      case "item":
        if let identity = Message.identity(message) { link.tell(executor.workAlone(on: identity, for: link, lookup)) }
      case "end":
        link.tell(Message.make("finished", [("errors", .array(Self.finish(stages).map(\.json)))]))
        _exit(0)
      default: break
      }
    }
  }

  private struct NobodyWatches: RunObserver {
    func itemEnded(_ record: ItemRecord, finished: Int) {}
  }
}

extension Executor {
  /// Takes one item through the whole chain, on this thread; answers the message that tells its fate.
  ///
  /// Nothing watches the time here: the parent does, and kills.
  func workAlone(on identity: ItemIdentity, for link: ParentLink, _ lookup: KeptLookup?) -> JSONText {
    journal?.forgetNamed()
    let entries = ItemJournal { output in
      link.ask(Message.make("book", [("output", output.json), ("stage", .string(output.stage))])).yes
    }
    var progress = ItemProgress(item: Item(identity: identity))
    func message(_ kind: String) -> JSONText {
      let snapshot = entries.snapshot
      return Message.make(
        kind,
        [
          ("warnings", .array(snapshot.warnings.map(\.json))), ("mattes", .array(snapshot.mattes.map(\.json))),
          ("facts", ItemRecord.json(facts: snapshot.facts)), ("source", progress.source?.json ?? nil),
          ("stages", ItemRecord.json(timings: progress.timings)), ("ends", .array(progress.ends.map(\.json))),
          ("isLimited", .bool(isLimited)),
        ])
    }
    while let index = progress.stage {
      if let bytes = memoryToAsk(&progress), !link.ask(Message.make("memory", [("bytes", .integer(bytes))])).yes {
        progress.ends.append(TailEnd(.notAttempted, reason: "the run was stopped"))
        break
      }
      journal?.enter(identity.index, stage: index)
      var kept: (@Sendable (Item) -> KeptResults?)?
      var services: (any ItemServices)?
      if let lookup {
        kept = { item in lookup.keptResults(of: index, for: item) }
        services = LinkedServices(link: link, stage: index, isForced: lookup.forced.contains(index))
      }
      let pauses = Pauses { duration in
        link.tell(Message.make("paused", [("seconds", .number(duration / .seconds(1)))]))
      }
      step(
        &progress,
        in: StageContext(
          stage: stages[index].label, run: run, journal: entries, temporaries: temporaries, claims: claims,
          protected: protected, matte: progress.way.matte, kept: kept, services: services, pauses: pauses))
      // Should a later stage crash, this much is known.
      if progress.stage != nil { link.tell(message("progress")) }
    }
    return message("ended")
  }
}
