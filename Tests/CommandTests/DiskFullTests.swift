import Glibc
import JobSyntax
import TestSupport
import Testing

/// A small file system in memory.
private struct SmallDisk {
  let path: String

  static let isPossible: Bool = {
    guard geteuid() == 0 else { return false }
    let folder = TemporaryFolder()
    let disk = SmallDisk(path: folder.path)
    defer { disk.unmount() }
    return disk.mount(kilobytes: 64)
  }()

  /// Mounts one over an empty folder for as long as `body` runs.
  static func with<R>(_ folder: String, kilobytes: Int, mode: String = "755", _ body: (SmallDisk) throws -> R) throws
    -> R
  {
    let disk = SmallDisk(path: folder)
    try #require(disk.mount(kilobytes: kilobytes, mode: mode))
    defer { disk.unmount() }
    return try body(disk)
  }

  private func mount(kilobytes: Int, mode: String = "755") -> Bool {
    let result = RunProgram.run(
      ["-t", "tmpfs", "-o", "size=\(kilobytes)k,mode=\(mode)", "none", path], program: "/bin/mount")
    return result.exitCode == 0
  }

  func grow(toKilobytes size: Int) throws {
    let result = RunProgram.run(["-o", "remount,size=\(size)k", path], program: "/bin/mount")
    try #require(result.exitCode == 0, "\(result.error)")
  }

  private func unmount() { _ = RunProgram.run(["-l", path], program: "/bin/umount") }
}

@Suite(
  .serialized,
  .enabled(if: SmallDisk.isPossible, "a small file system can only be mounted by root, and not in every container"))
struct DiskFullTests {
  /// Failures of a report by code.
  private func failures(_ report: JSONNode) -> [String: Int] {
    var codes: [String: Int] = [:]
    for item in report["items"]?.arrayValue ?? [] {
      if let code = item["error"]?["code"]?.stringValue { codes[code, default: 0] += 1 }
    }
    return codes
  }

  @Test func aFullDiskFailsWhatDoesNotFit() throws {
    let proof = try ProofScene(40)
    proof.reset()
    proof.folder.makeFolder("out")
    try SmallDisk.with(proof.folder["out"], kilobytes: 120) { disk in
      let result = proof.scene.run("run", "job.json", "--report", "report.json")
      #expect(result.exitCode == 1, "\(result.error)")
      #expect(result.error.contains("no space left"))
      #expect(result.error.contains("free some space and run again"))
      let report = try proof.scene.report()
      try check(report, exitCode: 1, in: proof.scene)
      let failed = failures(report)
      #expect(Set(failed.keys) == ["output-disk-full"])
      let first = try #require(try proof.report())
      #expect(!first.inputs("done").isEmpty && first.inputs("failed").count > 5)
      #expect(proof.temporaries.isEmpty)
      #expect(proof.faults(in: proof.folder.contents()).isEmpty)

      try disk.grow(toKilobytes: 4_096)
      let again = proof.scene.run("run", "job.json", "--report", "report.json")
      #expect(again.exitCode == 0, "\(again.error)")
      let second = try #require(try proof.report())
      #expect(second.inputs("done") == first.inputs("failed"))
      #expect(second.inputs("skipped") == first.inputs("done"))
      proof.checkEnd("with space")
    }
  }

  @Test func aReportThatDoesNotFitIsSaid() throws {
    let proof = try ProofScene(60)
    proof.reset()
    proof.folder.makeFolder("reports")
    try SmallDisk.with(proof.folder["reports"], kilobytes: 8) { _ in
      let result = proof.scene.run("run", "job.json", "--report", "reports/report.json")
      #expect(result.exitCode == 1, "\(result.error)")
      #expect(result.error.contains("reports/report.json"))
      #expect(result.error.contains("No space left"))
      #expect(result.error.contains("60 done"))
      #expect(proof.folder.tree().allSatisfy { !$0.hasPrefix("reports/") || $0 == "reports/" })
    }
  }

  /// The ledger's disk is full before the run can start, or fills while it works.
  @Test func aFullDiskOfTheStateFolder() throws {
    let proof = try ProofScene(40)
    var codes: [Int32] = []
    for kilobytes in [8, 40, 80, 120, 160, 200, 260, 400, 1_000] {
      let place = "\(kilobytes) KiB"
      proof.reset()
      proof.folder.makeFolder(".pipeline")
      try SmallDisk.with(proof.folder[".pipeline"], kilobytes: kilobytes, mode: "700") { disk in
        let result = proof.scene.run("run", "job.json", "--report", "report.json")
        let code = try #require(result.exitCode, "\(place): \(result.error)")
        codes.append(code)
        let contents = proof.folder.contents()
        #expect(proof.faults(in: contents).isEmpty, "\(place)")
        #expect(ProofScene.names(in: contents).allSatisfy { !ProofScene.isTemporary($0) }, "\(place)")
        let booked = try proof.booked(in: contents) ?? []
        #expect(proof.gaps(in: contents, booked: booked).isEmpty, "\(place)")
        let names = proof.names(of: booked)
        // A run that could not book everything says so.
        if names.count < proof.count {
          #expect(code != 0, "\(place)")
          #expect(result.error.contains(".pipeline"), "\(place): \(result.error)")
          #expect(result.error.contains("full") || result.error.contains("space"), "\(place): \(result.error)")
        }
        if code == 4 { #expect(!contents.keys.contains("out"), "\(place)") }
        try disk.grow(toKilobytes: 32_768)
        let again = proof.scene.run("run", "job.json", "--report", "report.json")
        #expect(again.exitCode == 0, "\(place): \(again.error)")
        let report = try #require(try proof.report(), "\(place)")
        #expect(report.inputs("skipped") == names, "\(place)")
        #expect(report.inputs("done").count == proof.count - names.count, "\(place)")
        proof.checkEnd(place)
      }
    }
    // It could not start, it filled on the way, and it had room.
    #expect(codes.first == 4 && codes.contains(1) && codes.last == 0, "\(codes)")
  }

  /// What could not be booked keeps its source, and the run says so.
  @Test func aFullDiskOfTheStateFolderKeepsSources() throws {
    var codes: [Int32] = []
    for kilobytes in [80, 120, 160, 200, 260, 400, 2_000] {
      let place = "\(kilobytes) KiB"
      let scene = try Scene(pictures: 40, remembers: true)
      scene.folder.write(
        """
        {
          "version": 1, "name": "scene", "input": { "files": ["in/*"] },
          "stages": [
            { "stage": "decode" }, { "stage": "encode", "format": "png" },
            { "stage": "write", "to": "out/${item.stem}.${ext}" }
          ],
          "onSuccess": { "source": "delete" }
        }
        """, to: "job.json")
      scene.folder.makeFolder(".pipeline")
      try SmallDisk.with(scene.folder[".pipeline"], kilobytes: kilobytes, mode: "700") { _ in
        let result = scene.run("run", "job.json")
        let code = try #require(result.exitCode, "\(place): \(result.error)")
        codes.append(code)
        let left = scene.folder.tree().filter { $0.hasPrefix("in/") && !$0.hasSuffix("/") }
        #expect(left.isEmpty == (code == 0), "\(place): \(result.error)")
        if code != 0 { #expect(result.error.contains(".pipeline"), "\(place): \(result.error)") }
      }
    }
    #expect(codes.contains(1) && codes.last == 0, "\(codes)")
  }

  /// A limit of the size of files comes as a signal that would end the program.
  @Test func aLimitOfTheSizeOfFilesIsAnErrorOfTheFile() throws {
    // Larger than the ledger, which the limit holds for too.
    let scene = try Scene(pictures: 4, side: 500)
    scene.job()
    let result = RunProgram.run(
      ["--fsize=400000", RunProgram.builtProgram, "run", "job.json"], scene.settings(), program: "/usr/bin/prlimit")
    #expect(result.exitCode == 1, "\(result.signal ?? 0) \(result.error)")
    #expect(result.error.contains("File too large"))
    #expect(scene.temporaries.isEmpty)
    #expect(scene.folder.tree().allSatisfy { !$0.hasPrefix("out/p") })
  }
}
