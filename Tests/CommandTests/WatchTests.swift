import Glibc
import TestSupport
import Testing

/// What comes with the program to start it: units for systemd and a script.
@Suite struct StartersTests {
  private static let package = DocumentationTests.package
  private static let analyzer = "/usr/bin/systemd-analyze"
  static let hasAnalyzer = access(analyzer, X_OK) == 0
  static let hasInotify = access("/usr/bin/inotifywait", X_OK) == 0

  /// The units with this program and a folder that exists in the places of theirs.
  private func units() throws -> TemporaryFolder {
    let folder = TemporaryFolder()
    for name in ["pipeline.service", "pipeline.timer", "pipeline.path"] {
      let bytes = try #require(TemporaryFolder.read(Self.package + "/pipelines/systemd/" + name))
      folder.write(
        String(decoding: bytes, as: UTF8.self).replacing("/usr/local/bin/pipeline", with: RunProgram.builtProgram),
        to: name)
    }
    return folder
  }

  @Test(.enabled(if: hasAnalyzer, "systemd-analyze is not installed (systemd)")) func unitsAreWhatSystemdTakes() throws {
    let folder = try units()
    let result = RunProgram.run(
      ["verify", "--man=no", folder["pipeline.service"], folder["pipeline.timer"], folder["pipeline.path"]],
      program: Self.analyzer)
    #expect(result.exitCode == 0)
    // What it knows nothing of it only complains about.
    #expect(!(result.output + result.error).contains("pipeline."), "\(result.output)\(result.error)")
  }

  @Test(.enabled(if: hasAnalyzer, "systemd-analyze is not installed (systemd)")) func theServiceIsHeldTight() throws {
    let folder = try units()
    // From 0, held to everything, to 100: 20 is "ok" by its own words.
    let result = RunProgram.run(
      ["security", "--offline=true", "--threshold=20", "--no-pager", folder["pipeline.service"]], program: Self.analyzer)
    guard !result.error.contains("unrecognized option") else {
      print("skipped: this systemd-analyze knows no --offline")
      return
    }
    #expect(result.exitCode == 0, "\(result.output)\(result.error)")
  }

  /// A run that is under way when files come is followed by another; two never overlap.
  @Test(.enabled(if: hasInotify, "inotifywait is not installed (inotify-tools)")) func filesThatComeDuringARunAreNotLost()
    throws
  {
    let scene = try Scene(pictures: 1, side: 300)
    let picture = scene.folder.read("in/p00.jpg") ?? []
    scene.job(encode: Scene.slowEncode, write: #", "overwrite": "skip""#, input: #"{ "files": ["in/**/*.jpg"] }"#)
    // One run at a time: a second that starts meanwhile fails the test.
    scene.folder.write(
      """
      #!/bin/sh
      mkdir running || { echo overlap >>runs; exit 1; }
      echo begin >>runs
      "$0.program" run job.json --no-progress; code=$?
      rmdir running
      echo end >>runs
      exit $code
      """, to: "once")
    symlink(RunProgram.builtProgram, scene.folder["once.program"])
    chmod(scene.folder["once"], 0o755)
    func count(_ word: String) -> Int {
      String(decoding: scene.folder.read("runs") ?? [], as: UTF8.self).split(separator: "\n").count { $0 == word }
    }
    func isThere(_ name: String) -> Bool { scene.folder.read("out/\(name).avif") != nil }
    var settings = scene.settings()
    settings.environment = ["PATH": "/usr/bin:/bin", "QUIET": "1"]
    let program = RunProgram(
      [Self.package + "/pipelines/watch.sh", "in", "./once"], settings, program: "/bin/bash")
    #expect(program.wait { count("begin") == 1 })
    // While the first run is at work, or just after it: neither may lose them.
    scene.folder.write(picture, to: "in/during.jpg")
    scene.folder.write(picture, to: "in/deep/er/new.jpg")
    #expect(program.wait { isThere("p00") && isThere("during") && isThere("new") }, "\(program.errorBytes)")
    // One that is put in place by renaming.
    scene.folder.write(picture, to: "half.tmp")
    rename(scene.folder["half.tmp"], scene.folder["in/renamed.jpg"])
    #expect(program.wait { isThere("renamed") })
    #expect(program.wait { count("begin") == count("end") })
    program.send(SIGTERM)
    let result = program.finish()
    #expect(result.exitCode == 143, "\(result.error)")
    #expect(count("overlap") == 0)
    #expect(count("end") >= 2)
  }

  @Test(.enabled(if: hasInotify, "inotifywait is not installed (inotify-tools)")) func aSignalReachesTheRun() throws {
    let scene = try Scene(pictures: 40, side: 300)
    scene.job(encode: Scene.slowEncode, run: #"{ "graceTime": 60 }"#)
    let program = RunProgram(
      [
        Self.package + "/pipelines/watch.sh", "in", RunProgram.builtProgram, "run", "job.json", "--verbose",
        "--report", "report.json",
      ], scene.settings(), program: "/bin/bash")
    #expect(program.waitForError(": done"))
    program.send(SIGTERM)
    let result = program.finish()
    #expect(result.exitCode == 143, "\(result.error)")
    try check(try scene.report(), exitCode: 143, in: scene)
    #expect(scene.temporaries.isEmpty)
  }

  @Test(.enabled(if: hasInotify, "inotifywait is not installed (inotify-tools)")) func aJobThatCannotRunEndsTheWatch()
    throws
  {
    let scene = try Scene(pictures: 1, side: 8)
    scene.folder.write("{", to: "job.json")
    let result = RunProgram.run(
      [Self.package + "/pipelines/watch.sh", "in", RunProgram.builtProgram, "run", "job.json"], scene.settings(),
      program: "/bin/bash")
    #expect(result.exitCode == 3, "\(result.error)")
  }
}
