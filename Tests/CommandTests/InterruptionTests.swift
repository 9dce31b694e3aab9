import Glibc
import JobSyntax
import TestSupport
import Testing

/// Runs that are killed at random moments, and what the next ones make of it.
@Suite(.serialized) struct InterruptionTests {
  /// What a run is hit with.
  enum Blow: CaseIterable {
    case kill, killGroup, terminate, terminateTwice, terminateGroup

    static let kills: [Blow] = [.kill, .kill, .killGroup]
    static let signals: [Blow] = [.terminate, .terminate, .terminateTwice, .terminateGroup]
    var isKill: Bool { self == .kill || self == .killGroup }
  }

  static let kills = (ProofScene.isSoak ? 200 : 20) / ProofScene.Chain.allCases.count

  @Test("killed at any moment, a run loses nothing and repeats nothing", arguments: ProofScene.Chain.allCases)
  func kills(_ chain: ProofScene.Chain) throws {
    let proof = try ProofScene(100, chain: chain)
    var random = SeededGenerator(state: ProofScene.seed)
    var killed = 0
    var moments = [Int](repeating: 0, count: 4)
    while killed < Self.kills {
      proof.reset()
      // What a report has called done.
      var done: Set<String> = []
      for _ in 0..<Int.random(in: 1...4, using: &random) where killed < Self.kills {
        // Later runs have less to do.
        let left = max(0.2, 1 - proof.finished)
        let moment = Double.random(in: 0...1.1, using: &random)
        let blows = killed.isMultiple(of: 2) ? Blow.kills : Blow.signals
        let blow = blows[Int.random(in: 0..<blows.count, using: &random)]
        let second = Double.random(in: 0...0.1, using: &random)
        let place = "seed \(ProofScene.seed), blow \(killed) (\(blow) at \(moment) of \(proof.seconds * left) s)"
        moments[min(3, Int(moment * 4))] += 1
        killed += 1
        let before = proof.temporaries
        let result = hit(proof, blow, after: moment * proof.seconds * left, second: second * proof.seconds)
        #expect(!result.timedOut, "\(place)")
        try look(proof, result, at: place, before, &done)
        let contents = proof.folder.contents()
        let faults = proof.faults(in: contents)
        #expect(faults.isEmpty, "\(place)")
        if let booked = try proof.booked(in: contents) {
          let gaps = proof.gaps(in: contents, booked: booked)
          #expect(gaps.isEmpty, "\(place)")
          // What a report calls done is booked, and what is booked is never done again.
          #expect(done.isSubset(of: proof.names(of: booked)), "\(place)")
          done.formUnion(proof.names(of: booked))
        }
      }
      try end(proof, "seed \(ProofScene.seed), after blow \(killed)", done)
    }
    // Not all of them at the start, or after the end.
    #expect(moments.allSatisfy { $0 > 0 }, "\(moments)")
  }

  /// Starts a run and hits it; its end.
  private func hit(_ proof: ProofScene, _ blow: Blow, after seconds: Double, second: Double) -> ProgramResult {
    unlink(proof.folder["report.json"])
    let program = proof.scene.start("run", "job.json", "--report", "report.json", "--no-progress") {
      $0.isGroupLeader = true
    }
    if !program.ends(within: seconds) {
      program.send(
        blow.isKill ? SIGKILL : SIGTERM, toGroup: blow == .killGroup || blow == .terminateGroup)
      if blow == .terminateTwice, !program.ends(within: second) { program.send(SIGTERM) }
    }
    return program.finish()
  }

  /// What holds for a run that was hit.
  private func look(
    _ proof: ProofScene, _ result: ProgramResult, at place: String, _ before: Set<String>, _ done: inout Set<String>
  ) throws {
    if let signal = result.signal {
      // Before the program listens to it, SIGTERM ends it as it does any other.
      #expect(signal == SIGKILL || signal == SIGTERM, "\(place): \(result.error)")
      return
    }
    #expect([0, 143].contains(result.exitCode ?? -1), "\(place): \(result.error)")
    // A run that ends by itself takes its own files along; those of the dead are gone or were not yet looked for.
    #expect(proof.temporaries.isSubset(of: result.exitCode == 0 ? [] : before), "\(place)")
    guard let report = try proof.report() else { return }
    #expect(report.exitCode == result.exitCode.map(Int.init), "\(place)")
    check(report, at: place, &done)
  }

  /// What a report has called done once is not done again.
  private func check(_ report: ProofReport, at place: String, _ done: inout Set<String>) {
    #expect(report.inputs("failed").isEmpty, "\(place)")
    let again = report.inputs("done").intersection(done)
    #expect(again.isEmpty, "\(place): done a second time")
    done.formUnion(report.inputs("done"))
  }

  /// Where crashes have made pictures be worked on in children: these end with their run.
  @Test func childrenEndWithTheirRun() throws {
    let faulty = try FaultyScene(
      16, faults: [1: "segv", 3: "abort", 5: "segv", 8: "late", 10: "late", 13: "late"])
    let folder = faulty.scene.folder
    let beginning = folder.contents()
    let begin = ContinuousClock.now
    let whole = faulty.start("--jobs", "2").finish()
    let seconds = (ContinuousClock.now - begin) / .seconds(1)
    try #require(whole.exitCode == 1, "\(whole.error)")
    let outputs = ProofScene.outputs(in: folder.contents())
    let names = ProofScene.names(in: folder.contents())
    var random = SeededGenerator(state: ProofScene.seed)
    for blow in 0..<(ProofScene.isSoak ? 40 : 3) {
      folder.become(beginning)
      let moment = Double.random(in: 0.2...1, using: &random)
      let place = "seed \(ProofScene.seed), blow \(blow) at \(moment) of \(seconds) s"
      let program = faulty.start("--jobs", "2")
      _ = program.ends(within: moment * seconds)
      program.send(SIGKILL)
      #expect(!program.finish().timedOut, "\(place)")
      // Those who watch over a batch see one process; what it started must not go on behind their back.
      let deadline = ContinuousClock.now + .seconds(20)
      while !faulty.processes(besides: program).isEmpty, ContinuousClock.now < deadline { _ = poll(nil, 0, 10) }
      #expect(faulty.processes(besides: program).isEmpty, "\(place)")
      let again = faulty.start("--jobs", "2").finish()
      #expect(again.exitCode == 1, "\(place): \(again.error)")
      let contents = folder.contents()
      #expect(ProofScene.outputs(in: contents) == outputs, "\(place)")
      #expect(ProofScene.names(in: contents) == names, "\(place)")
    }
  }

  private func end(_ proof: ProofScene, _ place: String, _ done: Set<String>) throws {
    unlink(proof.folder["report.json"])
    let result = proof.scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == 0, "\(place): \(result.error)")
    var done = done
    let report = try #require(try proof.report(), "\(place)")
    check(report, at: place, &done)
    #expect(report.inputs("done").union(report.inputs("skipped")).count == proof.count, "\(place)")
    proof.checkEnd(place)
    let contents = proof.folder.contents()
    let booked = try #require(try proof.booked(in: contents), "\(place)")
    #expect(proof.names(of: booked).count == proof.count, "\(place)")
    #expect(proof.gaps(in: contents, booked: booked).isEmpty, "\(place)")
    let idle = proof.scene.run("run", "job.json", "--report", "report.json")
    #expect(idle.exitCode == 0, "\(place): \(idle.error)")
    let second = try #require(try proof.report(), "\(place)")
    #expect(second.inputs("skipped").count == proof.count, "\(place)")
    proof.checkEnd(place + ", once more")
  }
}
