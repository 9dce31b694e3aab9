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

  /// A copy of a job's folder knows what was done in the first, whose outputs are none of its own.
  @Test func aCopiedFolderLeavesTheFirstAlone() throws {
    let first = try prepared()
    let second = try Scene(pictures: 0, remembers: true)
    for name in first.folder.tree() where !name.hasSuffix("/") && !name.hasPrefix("out/") {
      second.folder.write(first.folder.read(name) ?? [], to: name)
    }
    unlink(second.folder["in/p01.jpg"])
    let result = second.run("run", "job.json", "--prune", "--explain-skips")
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(result.error.contains("in/p00.jpg: run: done before in another folder"), "\(result.error)")
    #expect(outputs(second).count { $0.hasSuffix(".png") } == 3)
    #expect(outputs(first).count { $0.hasSuffix(".png") } == 4)
    #expect(second.run("run", "job.json").error.contains("3 skipped"))
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
}
