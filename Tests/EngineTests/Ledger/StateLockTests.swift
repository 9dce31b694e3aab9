import Glibc
import PipelineKit
import Synchronization
import TestSupport
import Testing

@testable import Engine

/// What a lock says about its holder.
@Suite struct StateLockTests {
  private func folder(_ temporary: TemporaryFolder) throws -> StateFolder {
    let folder = StateFolder.locate(PathBytes(temporary["state"]))
    try folder.make()
    return folder
  }

  private func holder(_ attempt: StateLock.Attempt) -> StateLock.Holder?? {
    if case .held(let holder) = attempt { holder } else { nil }
  }

  @Test func oneHasItAndTheOthersAreToldWho() throws {
    let temporary = TemporaryFolder()
    let folder = try folder(temporary)
    #expect(StateLock.holder(of: folder) == nil)
    guard case .acquired(let lock) = try StateLock.acquire(folder, run: "first", job: "a.json") else {
      Issue.record("the lock is free")
      return
    }
    for held in [
      StateLock.holder(of: folder), holder(try StateLock.acquire(folder, run: "second", job: "b.json")) ?? nil,
    ] {
      #expect(held?.pid == getpid())
      #expect(held?.run == "first")
      #expect(held?.job == "a.json")
      #expect(held?.description.hasPrefix("run first of a.json, process \(getpid())") == true)
    }
    // The second attempt, in the same process, has not given up the first.
    let outside = RunProgram.run(
      ["ledger-lock", folder.path.display], program: FaultyProgram.path)
    #expect(outside.exitCode == 75, "\(outside.output)")
    lock.release()
    lock.release()
    #expect(StateLock.holder(of: folder) == nil)
    guard case .acquired = try StateLock.acquire(folder, run: "third", job: "c.json") else {
      Issue.record("the lock is free again")
      return
    }
  }

  /// Held through the program's replacing itself, by the same process; gone when that is killed.
  @Test func aKilledHolderLeavesNone() throws {
    let temporary = TemporaryFolder()
    let folder = try folder(temporary)
    let program = RunProgram(["ledger-lock", folder.path.display], program: FaultyProgram.path)
    #expect(program.waitForError("locked\n"))
    let held = try #require(StateLock.holder(of: folder))
    #expect(held.pid == program.process)
    #expect(held.run == "locker")
    #expect(held.host == Machine.hostName)
    #expect(holder(try StateLock.acquire(folder, run: "x", job: "y")) == .some(.some(held)))
    let told = Mutex<[StateLock.Holder?]>([])
    var asked = 0
    let waited = try StateLock.acquire(
      folder, run: "x", job: "y", waiting: .infinity, onWait: { holder in told.withLock { $0.append(holder) } },
      isCancelled: {
        asked += 1
        return asked > 2
      })
    #expect(holder(waited) == .some(.some(held)))
    #expect(told.withLock { $0 } == [held])
    #expect(holder(try StateLock.acquire(folder, run: "x", job: "y", waiting: 0.05)) == .some(.some(held)))
    // What the file says is not taken at its word.
    for text in [#"{"pid": 1e300, "host": "elsewhere"}"#, #"{"pid": -0.5, "host": "elsewhere"}"#, "{", ""] {
      let file = try #require(fopen(folder.lockFile.display, "r+"))
      ftruncate(fileno(file), 0)
      fputs(text, file)
      fclose(file)
      #expect(StateLock.holder(of: folder)?.pid == program.process, "\(text)")
    }
    kill(program.process, SIGKILL)
    guard case .acquired = try StateLock.acquire(folder, run: "x", job: "y", waiting: 60) else {
      Issue.record("a dead process holds the lock")
      return
    }
    #expect(program.finish(limit: 60).signal == SIGKILL)
  }

  @Test func withoutAFolderThereIsNoLock() throws {
    let temporary = TemporaryFolder()
    let folder = StateFolder.locate(PathBytes(temporary["none"]))
    do {
      _ = try StateLock.acquire(folder, run: "a", job: "b")
      Issue.record("a lock without a file")
    } catch {
      #expect(error.code == "state-lock")
    }
    #expect(StateLock.holder(of: folder) == nil)
  }
}

/// The program with the modes that tests of the ledger need.
enum FaultyProgram {
  static let path =
    RunProgram.builtProgram.lastIndex(of: "/").map { String(RunProgram.builtProgram[...$0]) + "pipeline-faulty" }
    ?? "pipeline-faulty"
}
