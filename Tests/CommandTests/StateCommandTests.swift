import Engine
import Glibc
import JobSyntax
import PipelineKit
import TestSupport
import Testing

/// `pipeline runs` and `pipeline state` from outside, on ledgers written here.
@Suite struct StateCommandTests {
  private let folder = TemporaryFolder()

  private func state(_ shard: (index: Int, count: Int)? = nil) throws -> StateFolder {
    let state = StateFolder.locate(PathBytes(folder[".pipeline"]), shard: shard)
    try state.make()
    return state
  }

  private func pipeline(_ arguments: String...) -> ProgramResult {
    var settings = RunProgram.Settings()
    settings.folder = folder.path
    return RunProgram.run(arguments, settings)
  }

  /// Three runs of `photos`: ended, with failures, and cut short; two pictures, one of which failed in the second.
  private func fill(_ state: StateFolder, shard: String? = nil, day: Double = 20_000) throws {
    let ledger = try #require(try Ledger.open(state, .readWrite))
    let ending = shard.map { "-" + $0.prefix(1) } ?? ""
    for (index, exitCode) in [Int32?.some(0), 1, nil].enumerated() {
      var run = LedgerRun(
        id: "run-\(index)\(ending)", job: "key", jobName: "photos", started: day * 86_400 + Double(index) * 3_600,
        shard: shard, host: "host-a", pid: 12, version: "1.2")
      try ledger.begin(run)
      guard let exitCode else { continue }
      run.ended = run.started + 61
      run.exitCode = exitCode
      run.counts = exitCode == 0 ? #"{"done":2,"failed":0}"# : #"{"done":1,"failed":1}"#
      run.reportPath = PathBytes(folder["report.json"])
      ledger.end(run)
    }
    for (name, status) in [("a.jpg", ItemStatus.done), ("b\u{1B}[2J.jpg", .failed)] {
      let path = PathBytes(folder["in/" + name])
      ledger.book(
        job: "key",
        LedgerItem(
          key: path.bytes, status: status, chain: Array(repeating: 1, count: 32), inputPath: path,
          run: "run-1\(ending)", updated: day * 86_400, detail: status == .failed ? "no picture\nat all" : nil))
    }
    try ledger.flush()
    ledger.close()
  }

  /// When it was killed is not known, only when the next run found it.
  @Test func aKilledRunThatTheNextOneClosedIsCutShort() throws {
    let ledger = try #require(try Ledger.open(try state(), .readWrite))
    var run = LedgerRun(
      id: "run-1", job: "key", jobName: "photos", started: 0, host: "host-a", pid: 12, version: "1.2")
    try ledger.begin(run)
    run.ended = 86_400
    run.stop = "killed"
    ledger.end(run)
    try ledger.flush()
    ledger.close()
    #expect(pipeline("runs").output.contains("run-1  1970-01-01T00:00:00Z  -     cut short  photos  -"))
    let shown = try json(
      Array(pipeline("runs", "show", "run-1", "--format", "json", "--state", ".pipeline").output.utf8))
    #expect(shown["state"]?.stringValue == "cutShort")
    #expect(shown["ended"]?.integer == nil && shown["seconds"]?.integer == nil)
  }

  @Test func anIDIsAskedFor() {
    let result = pipeline("runs", "show")
    #expect(result.exitCode == 2)
    #expect(result.error.contains("show needs the ID of a run"))
  }

  @Test func runsAreListedAndShown() throws {
    try fill(try state())
    folder.write(#"{ "version": 1 }"#, to: "job.json")
    let list = pipeline("runs")
    #expect(list.exitCode == 0, "\(list.error)")
    #expect(
      list.output == """
        run    started               took       end        job     pictures
        run-2  2024-10-04T02:00:00Z  -          cut short  photos  -
        run-1  2024-10-04T01:00:00Z  1 min 1 s  exit 1     photos  1 done, 1 failed
        run-0  2024-10-04T00:00:00Z  1 min 1 s  exit 0     photos  2 done

        """)
    for other in [pipeline("runs", "job.json"), pipeline("runs", "--state", ".pipeline")] {
      #expect(other.output == list.output)
    }
    #expect(pipeline("runs", "--limit", "1").output.split(separator: "\n").count == 2)
    let array = try #require(try json(pipeline("runs", "--format", "json").outputBytes).arrayValue)
    #expect(array.map { $0["id"]?.stringValue } == ["run-2", "run-1", "run-0"])
    #expect(array.map { $0["state"]?.stringValue } == ["cutShort", "ended", "ended"])
    #expect(array[1]["counts"]?["failed"]?.integer == 1)

    let shown = pipeline("runs", "show", "run-1", "job.json")
    #expect(shown.exitCode == 0, "\(shown.error)")
    #expect(
      shown.output.hasSuffix(
        "report    \(folder["report.json"])\nfailed: \(folder["in/b"])%1B[2J.jpg: no picture\\nat all\n"),
      "\(shown.output)")
    let object = try json(pipeline("runs", "show", "run-1", "--state", ".pipeline", "--format", "json").outputBytes)
    #expect(object["items"]?.arrayValue?.first?["detail"]?.stringValue == "no picture\nat all")
    #expect(object["exitCode"]?.integer == 1)
    let missing = pipeline("runs", "show", "run-7", "job.json")
    #expect(missing.exitCode == 4)
    #expect(missing.error.contains("no run run-7 is known"))
    #expect(pipeline("runs", "show", "run-", "job.json").error.contains("is the beginning of several runs"))
    #expect(pipeline("runs", "show", "--state", ".pipeline").exitCode == 2)
    #expect(pipeline("runs", "job.json", "--state", "x").exitCode == 2)
  }

  /// The one run whose lock is held goes on.
  @Test func aRunUnderWayIsTold() throws {
    let state = try state()
    try fill(state)
    guard case .acquired(let lock) = try StateLock.acquire(state, run: "run-2", job: "job.json") else {
      Issue.record("the lock is free")
      return
    }
    #expect(pipeline("runs").output.contains("run-2  2024-10-04T02:00:00Z  -          running"))
    let shown = pipeline("state")
    #expect(shown.output.contains("in use by run run-2 of job.json, process \(getpid())"), "\(shown.output)")
    for action in ["prune", "set-aside"] {
      let refused = pipeline("state", action)
      #expect(refused.exitCode == 75)
      #expect(refused.error.contains("is in use by run run-2 of job.json, process \(getpid())"), "\(refused.error)")
    }
    lock.release()
    #expect(pipeline("state", "prune").exitCode == 0)
  }

  @Test func theFolderOfAJobIsFound() throws {
    folder.write(#"{ "version": 1, "state": "kept/here" }"#, to: "jobs/job.json")
    let state = StateFolder.locate(PathBytes(folder["jobs/kept/here"]))
    try state.make()
    try fill(state)
    #expect(pipeline("runs", "jobs/job.json").output.contains("run-1"))
    #expect(pipeline("runs").output == "")
    #expect(pipeline("runs").error.contains("no run is known in \(folder[".pipeline"])"))
    folder.write(#"{ "version": 1, "state": "${vars.x}" }"#, to: "jobs/variable.json")
    #expect(pipeline("runs", "jobs/variable.json").error.contains("use --state DIR"))
    #expect(pipeline("runs", "jobs/none.json").exitCode == 4)
    #expect(pipeline("runs", "jobs").exitCode == 4)
  }

  @Test func shardsAreOne() throws {
    for index in 1...3 { try fill(try state((index, 3)), shard: "\(index)/3") }
    let list = pipeline("runs")
    #expect(list.output.split(separator: "\n").count == 10)
    #expect(list.output.contains("shard"))
    #expect(try json(pipeline("state", "--format", "json").outputBytes)["ledgers"]?.arrayValue?.count == 3)
    #expect(pipeline("state", "check").output.split(separator: "\n").count == 3)
  }

  @Test func theStateIsShownAndPruned() throws {
    let state = try state()
    try fill(state)
    folder.write("x", to: "in/a.jpg")
    let store = ResultStore(state, mostBytes: 1 << 20)
    let key = [UInt8](repeating: 5, count: 32)
    try store.keep([1, 2, 3], for: key, paid: false)
    try store.keep([1, 2, 3], for: key, paid: true)
    let shown = pipeline("state", "show")
    #expect(shown.exitCode == 0, "\(shown.error)")
    #expect(shown.output.contains("photos: 1 done, 1 failed"), "\(shown.output)")
    #expect(shown.output.contains("3 runs"))
    #expect(shown.output.contains("results  1, 59 bytes"))
    #expect(shown.output.contains("paid     1, 59 bytes"))

    // These runs are old, but the last of a job stays.
    #expect(pipeline("state", "prune").output.hasPrefix("removed 2 runs; "))
    #expect(pipeline("runs").output.split(separator: "\n").count == 2)
    // Nothing is as old as that.
    #expect(pipeline("state", "prune", "--results", "--older-than", "1").output == "removed 0 results; 0 bytes less\n")
    #expect(pipeline("state", "prune", "--results").output == "removed 1 result; 59 bytes less\n")
    #expect(store.result(for: key, paid: true) == [1, 2, 3])
    #expect(pipeline("state", "prune", "--missing").output.hasPrefix("removed 1 picture; "))
    let ledger = try #require(try Ledger.open(state, .readOnly))
    #expect(try ledger.item(job: "key", key: Array(folder["in/a.jpg"].utf8)) != nil)
    ledger.close()
    #expect(
      pipeline("state", "prune", "--paid", "--keep-runs", "0").output.hasPrefix("removed 0 runs, 1 paid result; "))
    #expect(store.result(for: key, paid: true) == nil)
    #expect(pipeline("state", "check").output == "\(folder[".pipeline/ledger.db"]): sound\n")
    #expect(pipeline("state", "show", "--paid").exitCode == 2)
    #expect(pipeline("state", "prone").error.contains("did you mean \"prune\"?"))
  }

  @Test func aDamagedLedgerIsMovedAndNothingIsDeleted() throws {
    let state = try state()
    try fill(state)
    #expect(pipeline("state", "set-aside").output == "\(folder[".pipeline/ledger.db"]): sound, left where it is\n")
    let bytes = [UInt8](repeating: 0x41, count: 10_000)
    folder.write(bytes, to: ".pipeline/ledger.db")
    for command in [["runs"], ["state"], ["state", "check"], ["state", "prune"]] {
      var settings = RunProgram.Settings()
      settings.folder = folder.path
      let result = RunProgram.run(command, settings)
      #expect(result.exitCode == 4)
      let told = result.output + result.error
      #expect(told.contains("`pipeline state set-aside --state \(folder[".pipeline"])`"), "\(command): \(told)")
    }
    let moved = pipeline("state", "set-aside", "--state", folder[".pipeline"])
    #expect(moved.exitCode == 0, "\(moved.error)")
    let place = try #require(folder.tree().first { $0.hasPrefix(".pipeline/set-aside-") && $0.hasSuffix("/ledger.db") })
    #expect(folder.read(place) == bytes)
    #expect(folder.read(".pipeline/ledger.db") == nil)
    #expect(pipeline("runs").exitCode == 0)
    try fill(state)
    #expect(pipeline("runs").output.contains("run-1"))
  }

  @Test func doctorTellsWhereTheStateIs() {
    let result = pipeline("doctor")
    let line = result.output.split(separator: "\n").first { $0.contains(" state ") }
    #expect(line?.contains(folder[".pipeline"] + ", not made yet, ") == true, "\(result.output)")
  }
}
