import Glibc
import JobSyntax
import TestSupport
import Testing

/// Outputs whose input is gone.
@Suite struct PruneTests {
  private func outputs(_ scene: Scene) -> [String] {
    scene.folder.tree().filter { $0.hasPrefix("out/") && $0 != "out/" }
  }

  private func prepared(_ pictures: Int = 4, to: String = "out/${item.stem}/x.${ext}") throws -> Scene {
    let scene = try Scene(pictures: pictures, remembers: true)
    scene.job(to: to, input: #"{ "files": ["in/*"], "allowEmpty": true }"#)
    #expect(scene.run("run", "job.json").exitCode == 0)
    return scene
  }

  @Test func whatHasNoInputGoesWithItsFolders() throws {
    let scene = try prepared()
    unlink(scene.folder["in/p01.jpg"])
    unlink(scene.folder["in/p02.jpg"])
    scene.folder.write("someone's", to: "out/p02/note.txt")
    let listed = scene.run("plan", "job.json", "--prune")
    #expect(listed.exitCode == 0, "\(listed.error)")
    #expect(listed.output.contains("out/p01/x.png: remove: its input in/p01.jpg is gone"), "\(listed.output)")
    #expect(outputs(scene).contains("out/p01/x.png"))
    // Only when it is asked for.
    #expect(scene.run("run", "job.json").exitCode == 0)
    #expect(outputs(scene).contains("out/p01/x.png"))
    let result = scene.run("run", "job.json", "--prune")
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(
      outputs(scene) == [
        "out/p00/", "out/p00/x.png", "out/p02/", "out/p02/note.txt", "out/p03/", "out/p03/x.png",
      ])
    #expect(result.error.contains("out/p01/x.png"))
    // Nothing is left to prune.
    #expect(!scene.run("plan", "job.json", "--prune").output.contains("is gone"))
  }

  @Test func whatWasChangedStays() throws {
    let scene = try prepared()
    unlink(scene.folder["in/p01.jpg"])
    scene.folder.write("retouched", to: "out/p01/x.png")
    let result = scene.run("run", "job.json", "--prune")
    #expect(result.exitCode == 0)
    #expect(scene.folder.read("out/p01/x.png") == Array("retouched".utf8))
    #expect(result.error.contains("it was changed since it was written"), "\(result.error)")
  }

  @Test func anEmptyInputPrunesNothingByAccident() throws {
    let scene = try prepared()
    rename(scene.folder["in"], scene.folder["elsewhere"])
    scene.folder.makeFolder("in")
    let result = scene.run("run", "job.json", "--prune")
    #expect(result.exitCode == 4)
    #expect(result.error.contains("--prune=all"), "\(result.error)")
    #expect(outputs(scene).count { $0.hasSuffix(".png") } == 4)
    #expect(scene.run("run", "job.json", "--prune=all").exitCode == 0)
    #expect(outputs(scene).isEmpty)
  }

  @Test func otherInputsThanTheJobsOwnAreRefused() throws {
    let scene = try prepared()
    #expect(scene.run("run", "job.json", "--prune", "--input", "in/p00.jpg").exitCode == 2)
    #expect(scene.run("run", "job.json", "--prune=some").exitCode == 2)
    scene.job(
      to: "out/${item.stem}/x.${ext}", vars: #"{ "folder": "in" }"#, input: #"{ "files": ["${vars.folder}/*"] }"#)
    #expect(scene.run("run", "job.json", "--prune").exitCode == 2)
    #expect(outputs(scene).count { $0.hasSuffix(".png") } == 4)
  }

  /// The name of a picture that came in the place of another: its output is not taken away.
  @Test func outputsOfOtherPicturesStay() throws {
    let scene = try prepared(3, to: "out/${item.stem}.${ext}")
    rename(scene.folder["in/p01.jpg"], scene.folder["in/p01.jpeg"])
    let result = scene.run("run", "job.json", "--prune")
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(outputs(scene) == ["out/p00.png", "out/p01.png", "out/p02.png"])
  }

  /// Sources that went because they were done are not gone.
  @Test func doneSourcesAreNotGone() throws {
    let scene = try Scene(pictures: 3, remembers: true)
    scene.folder.write(
      """
      { "version": 1, "input": { "files": ["in/*"], "allowEmpty": true },
        "stages": [ { "stage": "decode" }, { "stage": "encode", "format": "png" },
          { "stage": "write", "to": "out/${item.stem}.${ext}" } ],
        "onSuccess": { "source": "delete" } }
      """, to: "job.json")
    #expect(scene.run("run", "job.json").exitCode == 0)
    let result = scene.run("run", "job.json", "--prune")
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(outputs(scene).count == 3)
  }

  @Test func shardsPruneTheirOwn() throws {
    let scene = try Scene(pictures: 10, remembers: true)
    scene.job()
    for index in 1...2 { #expect(scene.run("run", "job.json", "--shard", "\(index)/2").exitCode == 0) }
    for name in ["p00", "p03", "p07"] { unlink(scene.folder["in/\(name).jpg"]) }
    for index in 1...2 { #expect(scene.run("run", "job.json", "--shard", "\(index)/2", "--prune").exitCode == 0) }
    #expect(outputs(scene).count == 7)
  }

  /// Lists from a pipe are another from run to run.
  @Test func whatStandardInputDoesNotNameIsNotGone() throws {
    let scene = try Scene(pictures: 2, remembers: true)
    scene.job(input: #"{ "list": "-" }"#)
    func run(_ list: String, _ more: String...) -> ProgramResult {
      RunProgram.run(["run", "job.json"] + more, scene.settings { $0.input = Array(list.utf8) })
    }
    #expect(run("in/p00.jpg\nin/p01.jpg\n").exitCode == 0)
    let before = outputs(scene)
    #expect(before.count == 2)
    let result = run("in/p00.jpg\n", "--prune")
    #expect(result.exitCode == 2)
    #expect(result.error.contains("standard input"), "\(result.error)")
    #expect(outputs(scene) == before)
  }

  /// A copy of the job's folder, state and all, is a job of its own: it neither takes the first one's files for its
  /// own nor away.
  @Test func aCopyOfTheFolderLeavesTheFirstAlone() throws {
    let scene = try Scene(pictures: 3, remembers: true)
    scene.folder.makeFolder("one")
    rename(scene.folder["in"], scene.folder["one/in"])
    scene.job(to: "out/${item.stem}.${ext}", input: #"{ "files": ["in/*"] }"#)
    rename(scene.folder["job.json"], scene.folder["one/job.json"])
    #expect(scene.run("run", "one/job.json").exitCode == 0)
    let copy = RunProgram.run(["-a", "one", "two"], scene.settings(), program: "/bin/cp")
    #expect(copy.exitCode == 0, "\(copy.error)")
    let first = scene.folder.tree().filter { $0.hasPrefix("one/out/") }
    unlink(scene.folder["two/in/p00.jpg"])
    unlink(scene.folder["two/out/p01.png"])
    let result = scene.run("run", "two/job.json", "--prune", "--report", "report.json")
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(scene.folder.tree().filter { $0.hasPrefix("one/out/") } == first)
    let made = scene.folder.tree().filter { $0.hasPrefix("two/out/") && $0.hasSuffix(".png") }
    #expect(made == ["two/out/p01.png", "two/out/p02.png"])
    let statuses = try scene.report()["items"]?.arrayValue?.map { $0["status"]?.stringValue ?? "" }
    #expect(statuses == ["done", "skipped"])
  }

  /// With names that follow from the content, a picture by a new name keeps the file that is there, which stays booked
  /// for the old one alone.
  @Test func filesThatOthersMayHaveKeptStay() throws {
    let scene = try Scene(pictures: 1, remembers: true)
    scene.folder.write(try Scene(pictures: 1, side: 32).folder.read("in/p00.jpg") ?? [], to: "in/p01.jpg")
    scene.folder.write(
      """
      { "version": 1, "input": { "files": ["in/*"] }, "stages": [
        { "stage": "decode" }, { "stage": "encode", "format": "png" },
        { "stage": "write", "to": "out/${item.hash}.png", "overwrite": "skip" } ] }
      """, to: "job.json")
    #expect(scene.run("run", "job.json").exitCode == 0)
    let before = outputs(scene)
    #expect(before.count == 2)
    rename(scene.folder["in/p00.jpg"], scene.folder["in/new.jpg"])
    let result = scene.run("run", "job.json", "--prune")
    #expect(result.exitCode == 4, "\(result.error)")
    #expect(outputs(scene) == before)
  }

  @Test func whatAnotherJobHasWrittenTooStays() throws {
    let scene = try prepared(2, to: "out/${item.stem}.${ext}")
    let text = scene.folder.read("job.json") ?? []
    scene.folder.write(String(decoding: text, as: UTF8.self).replacing("in/*", with: "also/*"), to: "other.json")
    scene.folder.makeFolder("also")
    scene.folder.write(scene.folder.read("in/p00.jpg") ?? [], to: "also/p00.jpg")
    #expect(scene.run("run", "other.json").exitCode == 0)
    unlink(scene.folder["in/p00.jpg"])
    let result = scene.run("run", "job.json", "--prune")
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(outputs(scene) == ["out/p00.png", "out/p01.png"])
    #expect(result.error.contains("by another job"), "\(result.error)")
    // A job whose file is gone needs nothing any more.
    unlink(scene.folder["other.json"])
    #expect(scene.run("run", "job.json", "--prune").exitCode == 0)
    #expect(outputs(scene) == ["out/p01.png"])
  }
}
