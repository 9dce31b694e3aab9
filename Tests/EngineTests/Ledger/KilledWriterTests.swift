import Glibc
import PipelineKit
import TestSupport
import Testing

@testable import Engine

/// A program that writes a ledger and is killed at any moment.
@Suite(.serialized) struct KilledWriterTests {
  /// A hundred times in `make soak`, a tenth of it otherwise.
  private static let kills = getenv("PIPELINE_SOAK") == nil ? 10 : 100
  private static let seed: UInt64 = getenv("PIPELINE_SEED").flatMap { UInt64(String(cString: $0)) } ?? 20_260_501

  @Test(arguments: ["ledger-write", "ledger-write-network"]) func whatWasDurableIsThere(_ mode: String) throws {
    let scene = try LedgerScene()
    var random = SeededGenerator(state: Self.seed)
    var expected = 0
    for round in 0..<Self.kills {
      let program = RunProgram([mode, scene.folder.path.display], program: FaultyProgram.path)
      let most = Int.random(in: 10...(mode == "ledger-write" ? 20_000 : 2_000), using: &random)
      #expect(
        program.wait { program.errorBytes.count > most }, "\(String(decoding: program.errorBytes, as: UTF8.self))")
      program.send(SIGKILL)
      let result = program.finish()
      #expect(result.signal == SIGKILL)
      // The last line may be cut.
      for line in result.error.split(separator: "\n", omittingEmptySubsequences: false).dropLast() {
        if let index = Int(line) { expected = max(expected, index + 1) }
      }
      let ledger = try #require(try Ledger.open(scene.folder, .readWrite, isOnNetwork: mode != "ledger-write"))
      #expect(try ledger.integrityCheck() == [], "seed \(Self.seed), round \(round)")
      var found = 0
      try ledger.forEachItem(job: "job") { item in
        #expect(item.key == Array("picture-\(found)".utf8))
        found += 1
      }
      #expect(found >= expected, "seed \(Self.seed), round \(round)")
      expected = found
      ledger.close()
    }
    #expect(expected > Self.kills)
    #expect(StateLock.holder(of: scene.folder) == nil)
  }
}
