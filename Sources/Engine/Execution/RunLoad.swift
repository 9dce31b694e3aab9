import PipelineKit

/// How busy a run has been so far: counters that only grow, for whoever looks at two of them.
public struct RunLoad: Sendable, Hashable {
  /// One queue and its workers.
  public struct Queue: Sendable, Hashable {
    public var lane: Lane
    /// The stage that it belongs to; nil for lanes that stages share.
    public var stage: String?
    public var workers: Int
    /// The time of all its workers together in which they had an item.
    public var busySeconds: Double
    /// Items that wait for a worker now.
    public var waiting: Int
  }

  /// The work of one stage, on whatever lane.
  public struct StageWork: Sendable, Hashable {
    public var label: String
    public var lane: Lane
    /// Whether it reads files.
    public var opensInputs: Bool
    /// Pictures that it is done with.
    public var ended = 0
    /// The time it took for them.
    public var seconds = 0.0
  }

  /// Since work began.
  public var elapsed: Double
  /// Of this process and of programs that it ran.
  public var cpuSeconds: Double
  public var queues: [Queue]
  public var stages: [StageWork]
  /// What the items in flight have taken so far.
  public var secondsInFlight: Double
  /// Items that wait for memory now.
  public var waitingForMemory: Int

  public init(
    elapsed: Double, cpuSeconds: Double, queues: [Queue], stages: [StageWork], secondsInFlight: Double = 0,
    waitingForMemory: Int = 0
  ) {
    self.elapsed = elapsed
    self.cpuSeconds = cpuSeconds
    self.queues = queues
    self.stages = stages
    self.secondsInFlight = secondsInFlight
    self.waitingForMemory = waitingForMemory
  }

  /// What holds a run up.
  public struct Bottleneck: Sendable, Hashable {
    public enum Kind: String, Sendable { case compute, network, disk, memory }
    public var kind: Kind
    /// The stage that takes most of it.
    public var stage: String?

    public init(_ kind: Kind, stage: String?) {
      self.kind = kind
      self.stage = stage
    }
  }

  /// From this share on a queue's workers count as busy all the time: between two items there is a little to do.
  private static let full = 0.7

  /// What held the run up since an earlier look at it; nil where nothing stands out, as at its beginning and its end.
  ///
  /// A chain moves as fast as its fullest queue. Workers of the compute lane that are busy without using a processor, in a
  /// stage that reads files, wait for a disk.
  public func bottleneck(since before: RunLoad) -> Bottleneck? {
    let time = elapsed - before.elapsed
    guard time > 0, queues.count == before.queues.count, stages.count == before.stages.count else { return nil }
    var fullest: (index: Int, share: Double)?
    for (index, queue) in queues.enumerated() {
      let share = (queue.busySeconds - before.queues[index].busySeconds) / (time * Double(max(1, queue.workers)))
      guard share >= Self.full else { continue }
      // Where two are full, the one that others wait for.
      let isFuller =
        fullest.map { known in
          abs(known.share - share) < 0.1 ? queue.waiting > queues[known.index].waiting : share > known.share
        } ?? true
      if isFuller { fullest = (index, share) }
    }
    guard let fullest else {
      return waitingForMemory > 0 && before.waitingForMemory > 0 ? Bottleneck(.memory, stage: nil) : nil
    }
    let queue = queues[fullest.index]
    func busiest(_ lane: Lane) -> StageWork? {
      let works = stages.indices.filter { stages[$0].lane == lane }
      let best = works.max {
        stages[$0].seconds - before.stages[$0].seconds < stages[$1].seconds - before.stages[$1].seconds
      }
      return best.map { stages[$0] }
    }
    switch queue.lane {
    case .network: return Bottleneck(.network, stage: queue.stage)
    case .storage: return Bottleneck(.disk, stage: busiest(.storage)?.label)
    case .compute:
      let stage = busiest(.compute)
      let processors = (cpuSeconds - before.cpuSeconds) / (time * Double(max(1, queue.workers)))
      let waits = processors < fullest.share / 2 && stage?.opensInputs ?? false
      return Bottleneck(waits ? .disk : .compute, stage: stage?.label)
    }
  }

  /// The load before anything was done.
  public var beginning: RunLoad {
    RunLoad(
      elapsed: 0, cpuSeconds: 0,
      queues: queues.map { Queue(lane: $0.lane, stage: $0.stage, workers: $0.workers, busySeconds: 0, waiting: 0) },
      stages: stages.map { StageWork(label: $0.label, lane: $0.lane, opensInputs: $0.opensInputs) },
      waitingForMemory: waitingForMemory)
  }
}
