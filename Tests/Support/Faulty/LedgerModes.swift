import Digest
import Engine
import Glibc
import PipelineKit
import Synchronization

/// The program as nothing but a writer of a ledger, to be killed at any moment.
enum LedgerModes {
  /// Runs the mode that the first argument names; returns where it names none.
  static func run(_ arguments: [String]) {
    guard arguments.count == 3 else { return }
    let folder = StateFolder.locate(PathBytes(arguments[2]))
    switch arguments[1] {
    case "ledger-write": write(folder, isOnNetwork: false)
    case "ledger-write-network": write(folder, isOnNetwork: true)
    case "ledger-make": make(folder)
    case "ledger-lock": lock(folder)
    case "ledger-figures": figures(folder)
    default: return
    }
    exit(0)
  }

  /// Makes a folder with a lock, a ledger and a result, and ends without closing anything.
  private static func make(_ folder: StateFolder) {
    do {
      let shard = StateFolder.locate(folder.path, shard: (1, 2))
      try shard.make()
      guard case .acquired(let lock) = try StateLock.acquire(shard, run: "maker", job: "job") else { _exit(75) }
      guard let ledger = try Ledger.open(shard, .readWrite) else { _exit(4) }
      try ledger.remove(job: "job", keys: [[1]])
      for paid in [false, true] {
        try ResultStore(shard, mostBytes: 1_000).keep([1], for: Array(repeating: 1, count: 32), paid: paid)
      }
      withExtendedLifetime((lock, ledger)) { _exit(0) }
    } catch {
      say("\(error)")
      _exit(4)
    }
  }

  /// Books items without end, and says of each that is durable: its number, on a line.
  private static func write(_ folder: StateFolder, isOnNetwork: Bool) {
    do {
      try folder.make()
      guard case .acquired(let lock) = try StateLock.acquire(folder, run: "writer", job: "job") else { _exit(75) }
      guard let ledger = try Ledger.open(folder, .readWrite, isOnNetwork: isOnNetwork) else { _exit(4) }
      var next = 0
      try ledger.forEachItem(job: "job") { _ in next += 1 }
      say("start \(next)")
      let waiting = Atomic<Int>(0)
      while true {
        let index = next
        next += 1
        let key = Array("picture-\(index)".utf8)
        let record = OutputRecord(
          place: .path(PathBytes("/out/\(index)")), format: "png", width: index, height: 1, bytes: index,
          sha256: String(repeating: "ab", count: 32))
        let item = LedgerItem(
          key: key, status: .done, chain: Array(repeating: 7, count: 32), inputPath: PathBytes(bytes: key),
          run: "writer", updated: Double(index),
          outputs: [LedgerOutput(stage: "write", record: record)])
        waiting.add(1, ordering: .relaxed)
        ledger.book(job: "job", item) { error in
          if error != nil { _exit(1) }
          say("\(index)")
          waiting.subtract(1, ordering: .relaxed)
        }
        while waiting.load(ordering: .relaxed) > 50 { usleep(100) }
        if index % 8 == 7 {
          ledger.refresh(
            job: "job", key: Array("picture-\(index / 2)".utf8), input: FileStamp(size: 1, modified: 2, changed: 3),
            outputs: [FileStamp(size: Int64(index), modified: 2, changed: 3)])
        }
        withExtendedLifetime(lock) {}
      }
    } catch {
      say("\(error)")
      _exit(4)
    }
  }

  /// What a ledger of a million items costs: microseconds to book and to find one, bytes for each.
  private static func figures(_ folder: StateFolder) {
    do {
      try folder.make()
      guard let ledger = try Ledger.open(folder, .readWrite) else { _exit(4) }
      let count = getenv("PIPELINE_LEDGER_ITEMS").flatMap { Int(String(cString: $0)) } ?? 1_000_000
      func item(_ index: Int) -> LedgerItem {
        // As far apart as hashes are.
        let key = (0..<4).flatMap { part in
          withUnsafeBytes(of: UInt64(index * 4 + part) &* 0x9E37_79B9_7F4A_7C15) { Array($0) }
        }
        let stamp = FileStamp(
          size: 4_000_000, modified: 1_700_000_000_123_456_789 + Int64(index), changed: 1_700_000_000_123_456_789)
        return LedgerItem(
          key: key, status: .done, chain: Array(repeating: 7, count: 32), values: key,
          versions: "pipeline 1.0, libvips 8.14",
          inputStamp: stamp, inputHash: key, inputPath: PathBytes("/home/someone/pictures/2026/IMG_\(index).jpg"),
          run: "20260501-020304-a1b2c3", updated: Double(index),
          outputs: [
            LedgerOutput(
              stage: "write",
              record: OutputRecord(
                place: .path(PathBytes("/home/someone/out/2026/IMG_\(index).webp")), format: "webp", width: 1600,
                height: 1200, bytes: 123_456, sha256: String(repeating: "ab", count: 32)), stamp: stamp)
          ])
      }
      let clock = ContinuousClock()
      func microseconds(_ count: Int, _ body: () throws -> Void) rethrows -> Double {
        let passed = try clock.measure(body)
        return (Double(passed.components.seconds) * 1e6 + Double(passed.components.attoseconds) / 1e12) / Double(count)
      }
      let making = microseconds(count) { for index in 0..<count { if item(index).key.isEmpty { _exit(1) } } }
      let booking = try microseconds(count) {
        for start in stride(from: 0, to: count, by: 10_000) {
          for index in start..<min(start + 10_000, count) { ledger.book(job: "job", item(index)) }
          try ledger.flush()
        }
      }
      say("book \(booking - making) us")
      let looks = 200_000
      let keys = (0..<looks).map { item(($0 &* 7_919) % count).key }
      let finding = try microseconds(looks) {
        for key in keys { if try ledger.item(job: "job", key: key) == nil { _exit(1) } }
      }
      say("find \(finding) us")
      let all = try microseconds(count) { try ledger.forEachItem(job: "job") { _ in } }
      say("each of all \(all) us")
      let alone = try microseconds(200) {
        for index in 0..<200 {
          ledger.book(job: "job", item(index))
          try ledger.flush()
        }
      }
      say("book and flush one \(alone) us")
      ledger.close()
      say("\(Double(folder.ledgerBytes) / Double(count)) bytes an item")
    } catch {
      say("\(error)")
      _exit(4)
    }
  }

  /// Takes the lock, replaces itself as after a crash, takes it again, and holds it until it is killed.
  private static func lock(_ folder: StateFolder) {
    do {
      try folder.make()
      guard case .acquired(let lock) = try StateLock.acquire(folder, run: "locker", job: "job") else { _exit(75) }
      if getenv("PIPELINE_LOCK_AGAIN") == nil {
        setenv("PIPELINE_LOCK_AGAIN", "1", 1)
        // From another thread, as a crash may be.
        var thread = pthread_t()
        pthread_create(
          &thread, nil,
          { _ in
            execv("/proc/self/exe", CommandLine.unsafeArgv)
            _exit(5)
          }, nil)
        pthread_join(thread, nil)
      }
      say("locked")
      while true { pause() }
      withExtendedLifetime(lock) {}
    } catch {
      say("\(error)")
      _exit(4)
    }
  }

  private static func say(_ text: String) {
    let bytes = Array((text + "\n").utf8)
    _ = Glibc.write(2, bytes, bytes.count)
  }
}
