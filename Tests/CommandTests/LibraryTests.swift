import Glibc
import JobSyntax
import TestSupport
import Testing

/// Jobs run from Swift, and the documentation of what does it.
@Suite struct LibraryTests {
  private static let example = DocumentationTests.package + "/pipelines/library"

  @Test(.enabled(if: ExamplePackage.canBuild, "swiftc is not on the path"))
  func `the example runs a job, remembers it, and says what is wrong with one`() throws {
    let scene = try Scene(pictures: 3, remembers: true)
    scene.job()
    scene.folder.write("no picture", to: "in/bad.jpg")
    let program = scene.folder["cutout"]
    try ExamplePackage.compile([Self.example + "/Sources/cutout/main.swift"], to: program)
    func run(_ arguments: String...) -> ProgramResult { RunProgram.run(arguments, scene.settings(), program: program) }
    let first = run("job.json")
    #expect(first.exitCode == 1, "\(first.output) \(first.error)")
    #expect(first.output.contains("4 pictures, 4 to work on") && first.output.contains("3 done in "))
    #expect(first.output.contains("failed: in/bad.jpg: ") || first.output.contains("bad.jpg: "), "\(first.output)")
    try check(scene.report(), exitCode: 1, in: scene)
    // The command line program knows what was done.
    let second = scene.run("run", "job.json")
    #expect(second.exitCode == 1 && second.error.contains("3 skipped"), "\(second.error)")
    scene.folder.remove("in/bad.jpg")
    let third = run("job.json")
    #expect(third.exitCode == 0 && third.output.contains("3 pictures, 0 to work on"), "\(third.output)")
    let runs = try json(scene.run("runs", "job.json", "--format", "json").output)
    #expect((runs.arrayValue ?? runs["runs"]?.arrayValue ?? []).count == 3)
    // Two do not run at once.
    scene.folder.write(#"{ "version": 1, "stages": [] }"#, to: "wrong.json")
    let wrong = run("wrong.json")
    #expect(wrong.exitCode == 3 && wrong.output.contains("wrong.json:1"), "\(wrong.output)")
    #expect(run().exitCode == 2)
  }

  @Test(.enabled(if: ExamplePackage.canBuild, "swiftc is not on the path"))
  func `the documentation of the library products builds without a warning`() throws {
    let folder = TemporaryFolder()
    let result = RunProgram.run(
      ["--build", ExamplePackage.build, "--output", folder.path], program: DocumentationTests.package + "/Scripts/docc",
      limit: 300)
    #expect(result.exitCode == 0, "\(result.output)\(result.error)")
    for module in ["PipelineKit", "Engine"] {
      let data = "\(folder.path)/\(module).doccarchive/data/documentation/\(module.lowercased())"
      #expect(access(data + ".json", R_OK) == 0)
    }
    #expect(access(folder["PipelineKit.doccarchive/data/documentation/pipelinekit/writingastage.json"], R_OK) == 0)
    #expect(access(folder["Engine.doccarchive/data/documentation/engine/jobsession.json"], R_OK) == 0)
  }

  /// The example as its users build it: a package of its own, which builds ours too.
  @Test(.enabled(if: getenv("PIPELINE_SOAK") != nil, "set PIPELINE_SOAK=1"))
  func `the example builds as a package`() throws {
    let folder = TemporaryFolder()
    let result = RunProgram.run(
      ["swift", "build", "--package-path", Self.example, "--scratch-path", folder.path], program: "/usr/bin/env",
      limit: 2400)
    #expect(result.exitCode == 0, "\(result.error.suffix(2000))")
  }
}
