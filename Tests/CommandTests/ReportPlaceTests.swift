import TestSupport
import Testing

@Suite struct ReportPlaceTests {
  /// What the run reads must not be replaced by its report.
  @Test(arguments: [
    (#"{ "list": "names.txt" }"#, "names.txt", "the list of inputs"),
    (#"{ "manifest": "table.csv" }"#, "table.csv", "the manifest of inputs"),
    (#"{ "files": ["in/*"] }"#, "wall.png", "a file that stage \"composite\" reads"),
  ])
  func filesThatTheRunReads(_ input: String, _ place: String, _ reason: String) throws {
    let scene = try Scene(pictures: 1)
    scene.folder.write("in/p00.jpg\n", to: "names.txt")
    scene.folder.write("path\nin/p00.jpg\n", to: "table.csv")
    scene.folder.write(scene.folder.read("in/p00.jpg") ?? [], to: "wall.png")
    scene.job(
      encode: """
        { "stage": "composite", "background": { "image": { "path": "wall.png" } }, "existingAlpha": true },
        { "stage": "encode", "format": "png" }
        """, input: input)
    let before = scene.folder.read(place)
    let result = scene.run("run", "job.json", "--report", place)
    #expect(result.exitCode == 4)
    #expect(result.error.contains("the report \(place) cannot be written: it is \(reason)"), "\(result.error)")
    #expect(scene.folder.read(place) == before)
    #expect(!scene.folder.tree().contains("out/"))
    #expect(scene.run("run", "job.json", "--report", "report.json").exitCode == 0)
  }

  @Test func aBackgroundThatIsNotThereIsFoundByANearName() throws {
    let scene = try Scene(pictures: 1)
    scene.folder.write("", to: "walls/studio.png")
    scene.job(
      encode: """
        { "stage": "composite", "background": { "image": { "path": "walls/studoi.png" } }, "existingAlpha": true },
        { "stage": "encode", "format": "png" }
        """)
    let result = scene.run("run", "job.json")
    #expect(result.exitCode == 4)
    #expect(result.error.contains("did you mean \(scene.folder["walls/studio.png"])?"), "\(result.error)")
  }

  /// `--input` names one file, so one name for the output is enough.
  @Test func oneInputAndOneName() throws {
    let scene = try Scene(pictures: 2)
    scene.job(to: "out/result.png")
    #expect(scene.run("run", "job.json").exitCode == 3)
    let result = scene.run("run", "job.json", "--input", "in/p01.jpg")
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(scene.folder.read("out/result.png") != nil)
    #expect(scene.run("plan", "job.json", "--input", "in/p00.jpg", "--input", "in/p01.jpg").exitCode == 3)
  }

  @Test func planAndLintOfValuesThatAreNotSet() throws {
    let scene = try Scene(pictures: 1)
    scene.job(
      encode: """
        { "stage": "segment" }, { "stage": "composite", "background": { "original": { "blur": "${env.TEST_UNSET}" } } },
        { "stage": "encode", "format": "png" }
        """)
    #expect(scene.run("lint", "job.json").exitCode == 0)
    let plan = scene.run("plan", "job.json")
    #expect(plan.exitCode == 4)
    #expect(plan.error.contains("TEST_UNSET"))
    #expect(scene.run("run", "job.json").exitCode == 4)
  }
}
