import Dispatch
import Glibc
import JobSyntax
import PipelineKit

/// Does to the program what a broken decoder would, as the end of the input's name says: `p03-hang.jpg` hangs. Other
/// names pass.
struct FaultStage: Stage {
  static let atStart = Field<Bool>.boolean("atStart", default: false, help: "crashes before the first picture")
  static let atSecondStart = Field<Bool>.boolean(
    "atSecondStart", default: false, help: "crashes before the first picture, if it has been started before")
  static let atChildStart = Field<Bool>.boolean(
    "atChildStart", default: false, help: "crashes before the first picture of a child")
  static let atEnd = Field<Bool>.boolean("atEnd", default: false, help: "crashes when the run is over")
  static let spec = StageSpec(
    name: "test.fault", summary: "Crashes or hangs where a picture's name says so.",
    fields: [atStart, atSecondStart, atChildStart, atEnd],
    examples: [#"{ "stage": "test.fault" }"#])

  static func plan(_ settings: Settings) -> StagePlan { StagePlan(accepts: .source) }

  private let crashesAtEnd: Bool

  init(_ settings: Settings, resources: StageResources) throws(StageError) {
    crashesAtEnd = settings[Self.atEnd]
    if settings[Self.atStart] { Self.writeToNull() }
    if settings[Self.atChildStart], resources.run.shard?.hasPrefix("child") == true { Self.writeToNull() }
    if settings[Self.atSecondStart] {
      let isFirst = open("started", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600) >= 0
      if !isFirst { Self.writeToNull() }
    }
  }

  func process(_ item: Item, in context: StageContext) throws(StageError) -> Outcome {
    let name = item.identity.name.stem.display
    switch name.split(separator: "-").last {
    case "segv": Self.writeToNull()
    case "abort": abort()
    case "trap": fatalError("the picture's name says so")
    case "overflow": _ = Self.recurse(1)
    case "overflowElsewhere": Self.recurseOnAnotherThread()
    case "exit": exit(3)
    case "hang": while true { pause() }
    case "late":
      // Nothing is wrong with it, but it is in flight for long enough to be when another one crashes.
      usleep(300_000)
    case "review":
      context.note(
        matte: MatteRecord(provider: "test", score: 0.25, coverage: 0.5, softness: 0.5, islands: 1, border: 0))
      return .review(reason: "the picture's name says so")
    case "threads": try Self.startThreads()
    case "once":
      // The first time only, as where two threads have to meet.
      let isFirst = open("\(name).seen", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600) >= 0
      if isFirst { Self.writeToNull() }
    default: break
    }
    return .next(item)
  }

  func finish() throws(StageError) { if crashesAtEnd { Self.writeToNull() } }

  private static func writeToNull() {
    // Not at 0, which the compiler would see through.
    let address = UnsafeMutablePointer<Int>(bitPattern: Int(getpid()) % 2 + 8)
    address?.pointee = 1
  }

  /// Starts threads for a while, as libraries do, and takes a refusal for a damaged picture.
  private static func startThreads() throws(StageError) {
    let end = ContinuousClock.now + .milliseconds(600)
    while ContinuousClock.now < end {
      var thread = pthread_t()
      guard pthread_create(&thread, nil, { _ in nil }, nil) == 0 else {
        throw StageError("damaged", "no thread could be started")
      }
      pthread_join(thread, nil)
    }
  }

  @inline(never) private static func recurse(_ depth: Int) -> Int {
    withUnsafeTemporaryAllocation(of: Int.self, capacity: 512) { buffer in
      buffer.initialize(repeating: depth)
      return depth < 0 ? 0 : recurse(depth + 1) + buffer[depth % 512]
    }
  }

  private static func recurseOnAnotherThread() {
    let done = DispatchSemaphore(value: 0)
    DispatchQueue(label: "elsewhere").async {
      _ = recurse(1)
      done.signal()
    }
    done.wait()
  }
}
