import JobSyntax
import TestSupport
import Testing

@Suite struct LintAndPlanTests {
  @Test func lintShowsEachProblemWithItsLine() throws {
    let scene = try Scene()
    scene.job(encode: #"{ "stage": "encode", "format": "pgn" }, { "stage": "resise" }"#)
    let result = scene.run("lint", "job.json")
    #expect(result.exitCode == 3)
    #expect(result.output.contains("job.json:7:"))
    #expect(result.output.contains("\"pgn\""))
    #expect(result.output.contains("did you mean \"resize\"?"))
    #expect(result.error == "job.json: 2 errors\n")
  }

  @Test func lintOfASoundJobIsSilentOnStandardOutput() throws {
    let scene = try Scene()
    scene.job()
    let result = scene.run("lint", "job.json")
    #expect(result.exitCode == 0)
    #expect(result.output.isEmpty)
    #expect(result.error == "job.json: no problems\n")
  }

  @Test func lintReportsEveryFileInOneArray() throws {
    let scene = try Scene()
    scene.job()
    scene.folder.write("{ \"version\": 1, ", to: "broken.json")
    let result = scene.run("lint", "job.json", "broken.json", "missing.json", "--format", "json")
    #expect(result.exitCode == 3)
    let findings = try #require(try json(result.outputBytes).arrayValue)
    let files = Set(findings.compactMap { $0["file"]?.stringValue })
    #expect(files == ["broken.json", "missing.json"])
    #expect(findings.contains { $0["code"]?.stringValue == "job-unreadable" })
    #expect(result.error.hasPrefix("3 files: 2 errors"))
  }

  @Test func lintNeedsNeitherModelNorHome() throws {
    let scene = try Scene()
    scene.job()
    // Neither a model nor a home for them is there, and no folder to write to.
    let result = scene.run("lint", "job.json") { $0.environment = ["PIPELINE_HOME": "/nonexistent"] }
    #expect(result.exitCode == 0)
  }

  @Test func unsetVariablesAreAWarningToLintAndExit4ToRun() throws {
    let scene = try Scene(pictures: 1)
    scene.job(to: "out/${env.PIPELINE_TEST_UNSET}/${item.stem}.${ext}")
    let lint = scene.run("lint", "job.json")
    #expect(lint.exitCode == 0)
    #expect(lint.output.contains("warning:"))
    let run = scene.run("run", "job.json")
    #expect(run.exitCode == 4)
    #expect(run.error.contains("PIPELINE_TEST_UNSET is not set"))
    #expect(run.error.contains("error:"))
    #expect(scene.folder.tree().allSatisfy { !$0.hasPrefix("out") })
  }

  @Test func planShowsOutputsAndSkips() throws {
    let scene = try Scene(pictures: 3)
    scene.job(write: #", "overwrite": "skip""#)
    scene.folder.write("there already", to: "out/p01.png")
    let before = scene.folder.tree()
    let text = scene.run("plan", "job.json")
    #expect(text.exitCode == 0)
    #expect(
      text.output == """
        in/p00.jpg -> out/p00.png
        in/p01.jpg: skip: every output exists already
        in/p02.jpg -> out/p02.png
        3 pictures: 2 to do, 1 to skip

        """)
    let plan = try json(scene.run("plan", "job.json", "--format", "json").outputBytes)
    #expect(plan["job"]?.stringValue == "scene")
    let items = try #require(plan["items"]?.arrayValue)
    #expect(items.map { $0["decision"]?.stringValue } == ["run", "skip", "run"])
    #expect(items[0]["outputs"]?.arrayValue?.map(\.stringValue) == [scene.folder["out/p00.png"]])
    #expect(plan["counts"]?["skip"]?.integer == 1)
    #expect(scene.folder.tree() == before)
  }

  @Test func planShowsWhatTheWalkPassedOver() throws {
    let scene = try Scene(pictures: 1)
    scene.job(input: #"{ "directory": "in" }"#)
    scene.folder.write("x", to: "in/notes.txt")
    let result = scene.run("plan", "job.json")
    #expect(result.output.contains("passed over: 1 not a picture by its ending"))
    #expect(result.output.contains("in/notes.txt"))
  }

  @Test func collisionsStopPlanAndRunBeforeAnyWork() throws {
    let scene = try Scene(pictures: 2)
    scene.folder.write(scene.folder.read("in/p00.jpg") ?? [], to: "in/p00.jpeg")
    scene.job()
    for command in ["plan", "run"] {
      let result = scene.run(command, "job.json")
      #expect(result.exitCode == 3)
      #expect(result.error.contains("output-collision"))
      #expect(result.error.contains("job.json:"))
    }
    #expect(!scene.folder.tree().contains("out/"))
  }

  @Test func missingInputsAreExit4AndPointIntoTheJob() throws {
    let scene = try Scene(pictures: 1)
    scene.job(input: #"{ "files": ["in/*.tiff"] }"#)
    for command in ["plan", "run"] {
      let result = scene.run(command, "job.json")
      #expect(result.exitCode == 4)
      #expect(result.error.contains("input-empty"))
      #expect(result.error.contains("job.json:4:"))
    }
    #expect(scene.run("run", "job.json", "--input", "nothing/*.jpg").exitCode == 4)
    #expect(scene.run("run", "job.json", "--input", "in/[").exitCode == 3)
  }

  @Test func aWrongJobIsExit3() throws {
    let scene = try Scene(pictures: 1)
    scene.folder.write("{}", to: "job.json")
    #expect(scene.run("run", "job.json").exitCode == 3)
    #expect(scene.run("plan", "job.json").exitCode == 3)
    let missing = scene.run("run", "nowhere.json")
    #expect(missing.exitCode == 3)
    #expect(missing.error.contains("nowhere.json"))
    #expect(missing.errorLines.count == 1)
    scene.job()
    let unknown = scene.run("run", "job.json", "--set", "sise=3")
    #expect(unknown.exitCode == 3)
    #expect(unknown.error.contains("sise"))
  }
}
