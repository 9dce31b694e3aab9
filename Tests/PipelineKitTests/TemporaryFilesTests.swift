import Dispatch
import Glibc
import PipelineKit
import TestSupport
import Testing

@Suite struct TemporaryFilesTests {
  private let folder = TemporaryFolder()
  private let files = TemporaryFiles()

  private func write(_ text: String, check: (PathBytes) throws(StageError) -> Void = { _ in }) -> StageError? {
    let bytes = Array(text.utf8)
    return bytes.withUnsafeBytes { bytes in
      do throws(StageError) {
        _ = try AtomicFile.write(
          bytes, to: PathBytes(folder["a"]), tag: "t", temporaries: files, check: check)
        return nil
      } catch {
        return error
      }
    }
  }

  @Test func nothingIsBegunOnceSealed() {
    folder.write("old", to: "a")
    #expect(files.seal())
    #expect(!files.insert("/x"))
    #expect(files.step { 1 } == nil)
    #expect(write("new") { _ in Issue.record("a file was made") }?.code == "cancelled")
    #expect(folder.read("a") == Array("old".utf8))
    #expect(folder.tree() == ["a"])
    #expect(files.remaining.isEmpty)
  }

  /// The worker has written its file and is given up before it can rename it.
  @Test func nothingGetsItsNameOnceSealed() {
    folder.write("old", to: "a")
    let error = write("new") { [files] temporary in
      #expect(files.remaining == [temporary])
      files.sealAndRemove()
      #expect(TemporaryFolder.read(temporary.display) == nil)
    }
    #expect(error?.code == "cancelled")
    #expect(folder.read("a") == Array("old".utf8))
    #expect(folder.tree() == ["a"])
    #expect(files.remaining.isEmpty)
  }

  @Test func sealingWaitsForAStepUnderWay() {
    let begun = DispatchSemaphore(value: 0)
    let gate = DispatchSemaphore(value: 0)
    Thread.start { [files] in
      _ = files.step {
        begun.signal()
        gate.wait()
      }
    }
    begun.wait()
    // One that does not come back holds nothing up for ever.
    #expect(!files.seal(waiting: 0.01))
    gate.signal()
    #expect(files.seal(waiting: 60))
  }

  /// A step's work is over when sealing returns.
  @Test func aStepEndsBeforeSealingReturns() {
    let begun = DispatchSemaphore(value: 0)
    let path = folder["made"]
    Thread.start { [files] in
      _ = files.step {
        begun.signal()
        // Goes on only after sealing has begun.
        while files.insert("/x") { sched_yield() }
        close(open(path, O_CREAT | O_WRONLY, 0o600))
      }
    }
    begun.wait()
    #expect(files.seal(waiting: 60))
    #expect(folder.tree() == ["made"])
  }

  @Test func removesWhatRemains() {
    folder.write("part", to: "t1")
    folder.write("part", to: "t2")
    #expect(files.insert(PathBytes(folder["t1"])))
    #expect(files.insert(PathBytes(folder["t2"])))
    #expect(files.insert(PathBytes(folder["gone"])))
    files.sealAndRemove()
    #expect(folder.tree() == [])
    #expect(files.remaining.isEmpty)
  }
}

/// A thread of a test's own.
enum Thread {
  static func start(_ body: @escaping @Sendable () -> Void) { _ = launch(body) }

  /// Runs `body` on a thread that is gone afterwards, with whatever was changed about it.
  static func run(_ body: @escaping @Sendable () -> Void) { pthread_join(launch(body), nil) }

  private static func launch(_ body: @escaping @Sendable () -> Void) -> pthread_t {
    var thread = pthread_t()
    pthread_create(
      &thread, nil,
      { raw in
        guard let raw else { return nil }
        Unmanaged<Body>.fromOpaque(raw).takeRetainedValue().run()
        return nil
      }, Unmanaged.passRetained(Body(body)).toOpaque())
    return thread
  }

  private final class Body: Sendable {
    let run: @Sendable () -> Void
    init(_ run: @escaping @Sendable () -> Void) { self.run = run }
  }
}
