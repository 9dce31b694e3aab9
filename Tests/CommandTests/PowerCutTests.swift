import Glibc
import JobSyntax
import TestSupport
import Testing

/// The calls of a run, cut at every one of them, with what was not flushed dropped: what was on the disk then is laid
/// out again, and the next run must make it good.
@Suite(
  .serialized, .enabled(if: CallTrace.program != nil, "strace is not installed, or may not look into programs here"))
struct PowerCutTests {
  /// A run of ten pictures and every call by which it changed files.
  private struct Traced {
    let proof: ProofScene
    let calls: [CallTrace.Call]
    /// What the run has left, with the state folder.
    let end: [String: DiskModel.Node]

    /// - Parameter folder: one that an earlier run has left.
    init(leftover folder: String? = nil) throws {
      proof = try ProofScene(10)
      proof.reset()
      if let folder { proof.folder.makeFolder(folder) }
      let traces = TemporaryFolder()
      let result = RunProgram.run(
        CallTrace.arguments(to: traces["trace"])
          + [RunProgram.builtProgram, "run", "job.json", "--report", "report.json", "--jobs", "2"],
        proof.scene.settings(), program: CallTrace.program)
      try #require(result.exitCode == 0, "\(result.error)")
      let text = try #require(traces.read("trace"))
      calls = try CallTrace(text, below: proof.folder.path, current: proof.folder.path).calls
      end = proof.folder.contents()
      proof.checkEnd("traced")
    }

    /// Goes through the moments at which the power may go: before each call that changes something, and after the last.
    func forEachCut(_ body: (_ cut: Int, _ disk: DiskModel) throws -> Void) rethrows {
      var disk = DiskModel(proof.beginning)
      try body(0, disk)
      for (index, call) in calls.enumerated() {
        disk.apply(call)
        switch call.change {
        case .seek, .duplicate: break
        default: try body(index + 1, disk)
        }
      }
    }
  }

  /// All names written to are known to the model; if not, its cuts would prove nothing.
  @Test func theModelEndsWhereTheRunDid() throws {
    let traced = try Traced()
    var disk = DiskModel(traced.proof.beginning)
    for call in traced.calls { disk.apply(call) }
    var found = disk.survivors(in: .everything)
    var wanted = traced.end
    // SQLite writes this one through memory and makes it anew when it is not there.
    for path in Set(found.keys).union(wanted.keys) where path.hasSuffix("-shm") {
      found[path] = nil
      wanted[path] = nil
    }
    #expect(Set(found.keys) == Set(wanted.keys))
    for (path, node) in wanted { #expect(found[path] == node, "\(path)") }
    // With nothing left to chance once the run is over.
    let flushed = disk.survivors(in: .onlyFlushed)
    for (path, node) in traced.proof.outputs { #expect(flushed[path] == node, "\(path)") }
    #expect(flushed["report.json"] == wanted["report.json"])
  }

  /// Written, flushed, named, the folder flushed: in this order for each output.
  @Test func outputsBecomeDurableInOrder() throws {
    let traced = try Traced()
    let calls = traced.calls
    for (path, node) in traced.proof.outputs {
      guard case .file = node else { continue }
      let named = try #require(
        calls.indices.filter { if case .rename(_, path) = calls[$0].change { true } else { false } }.first, "\(path)")
      let temporary = calls[named].change.path
      func last(_ wanted: (CallTrace.Change) -> Bool, before end: Int) -> Int? {
        calls[..<end].lastIndex { wanted($0.change) }
      }
      let written = try #require(
        last({ if case .write(temporary, _, _, _) = $0 { true } else { false } }, before: named), "\(path)")
      let flushed = try #require(last({ $0 == .flush(temporary) }, before: named), "\(path)")
      #expect(written < calls[flushed].began, "\(path) is written after its flush has begun")
      #expect(flushed < calls[named].began, "\(path) is named before it is flushed")
      let folder = String(path[..<(path.lastIndex(of: "/") ?? path.endIndex)])
      let kept = try #require(
        calls.indices.first { calls[$0].change == .flush(folder) && calls[$0].began > named },
        "the folder of \(path) is not flushed after it is named")
      let name = Array(path.utf8)
      let booked = try #require(
        calls.indices.first { number in
          guard case .write(let file, _, _, let bytes) = calls[number].change else { return false }
          return Self.isLedger(file) && bytes.contains(name)
        }, "\(path) is not booked")
      #expect(kept < calls[booked].began, "\(path) is booked before its folder is flushed")
      let ledger = calls[booked].change.path
      #expect(
        calls[booked...].contains { $0.change == .flush(ledger) && $0.began > booked },
        "\(path) is booked, and the ledger is not flushed")
    }
  }

  /// A run that was killed may have made it and not flushed its entry, so that it goes with all that is in it.
  @Test func aFolderThatIsThereIsFlushedAllTheSame() throws {
    let calls = try Traced(leftover: "out/0").calls
    let named = try #require(
      calls.firstIndex { if case .rename(_, let to) = $0.change { to.hasPrefix("out/0/") } else { false } })
    #expect(calls[..<named].contains { $0.change == .flush("out") })
  }

  private static func isLedger(_ path: String) -> Bool { path.hasPrefix(".pipeline/ledger.db") }

  /// About so many states are made good in `make test`, and all of them in `make soak`.
  static let fewest = 30

  static let worlds: [DiskModel.World] =
    [.onlyFlushed, .names, .contents, .everything] + (0..<4).map { .some(seed: ProofScene.seed &+ $0) }

  /// At no moment does a name lead to a part of a file, whatever the disk has kept.
  @Test func noCutLeavesAPartOfAFile() throws {
    let traced = try Traced()
    var looks = 0
    var mostBooked = 0
    try traced.forEachCut { cut, disk in
      for world in Self.worlds {
        let left = Self.left(disk, world)
        let faults = traced.proof.faults(in: left)
        #expect(faults.isEmpty, "\(world) at \(describe(cut, traced.calls))")
        // Looking into the ledger takes longer than all else.
        if ProofScene.isSoak || cut.isMultiple(of: 4), let booked = try traced.proof.booked(in: left) {
          let gaps = traced.proof.gaps(in: left, booked: booked)
          #expect(gaps.isEmpty, "\(world) at \(describe(cut, traced.calls))")
          mostBooked = max(mostBooked, booked.count)
        }
        if let report = left["report.json"] { #expect(report == traced.end["report.json"], "\(world), cut \(cut)") }
        looks += 1
      }
    }
    #expect(looks > 400)
    #expect(mostBooked == traced.proof.count)
  }

  @Test func theNextRunMakesEveryCutGood() throws {
    let traced = try Traced()
    var random = SeededGenerator(state: ProofScene.seed)
    let looks = traced.calls.count * Self.worlds.count
    var tried = 0
    try traced.forEachCut { cut, disk in
      for world in Self.worlds where ProofScene.isSoak || Int.random(in: 0..<looks, using: &random) < Self.fewest {
        try makeGood(traced, Self.left(disk, world), "\(world) at \(describe(cut, traced.calls))")
        tried += 1
      }
    }
    #expect(tried >= Self.fewest / 2)
  }

  private static func left(_ disk: DiskModel, _ world: DiskModel.World) -> [String: DiskModel.Node] {
    // SQLite's index of its log is memory that processes share; it is made anew by the first that comes.
    disk.survivors(in: world).filter { !$0.key.hasSuffix("-shm") }
  }

  private func makeGood(_ traced: Traced, _ left: [String: DiskModel.Node], _ place: String) throws {
    let proof = traced.proof
    proof.folder.become(left)
    let booked = proof.names(of: try proof.booked(in: left) ?? [])
    let result = proof.scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == 0, "\(place): \(result.error)")
    let report = try #require(try proof.report(), "\(place)")
    #expect(report.inputs("skipped") == booked, "\(place)")
    #expect(report.inputs("done").count == proof.count - booked.count, "\(place)")
    proof.checkEnd(place)
    let end = proof.folder.contents()
    let after = try #require(try proof.booked(in: end), "\(place)")
    #expect(proof.names(of: after).count == proof.count, "\(place)")
    #expect(proof.gaps(in: end, booked: after).isEmpty, "\(place)")
  }

  private func describe(_ cut: Int, _ calls: [CallTrace.Call]) -> String {
    guard cut > 0 else { return "the start" }
    let text =
      switch calls[cut - 1].change {
      case .write(let path, _, let offset, let bytes): "write of \(bytes.count) bytes to \(path) at \(offset ?? -1)"
      case let change: "\(change)"
      }
    return "call \(cut) of \(calls.count), after \(text)"
  }
}
