import Glibc
import JobSyntax
import PipelineKit
import Stages
import TestSupport
import Testing

@testable import Engine

/// Plans are made from names alone: the inputs here are not pictures.
@Suite struct PlannerTests {
  private let folder = TemporaryFolder()

  private func job(to: String, input: String, write: String = "", more: String = "", stage: String = "") throws -> Job {
    let text = """
      { "version": 1, "input": \(input),\(more)
        "stages": [ { "stage": "decode" }, \(stage) { "stage": "encode", "format": "jpeg" },
          { "stage": "write", "to": "\(to)"\(write) } ] }
      """
    let loaded = JobLoader(registry: LintTests.registry()).load(
      Array(text.utf8), name: "job.json", folder: PathBytes(folder.path))
    return try #require(loaded.job, "\(loaded.diagnostics)")
  }

  private func plan(_ job: Job) throws -> RunPlan {
    try Planner.plan(job, run: RunValues(baseFolder: job.baseFolder, runID: "r", runDate: "2026-01-01"))
  }

  private func codes(_ job: Job) throws -> [String] { try plan(job).findings.map(\.code) }

  @Test func namesOutputsOfEveryItem() throws {
    for name in ["in/a.jpg", "in/sub/b.PNG", "in/sub/deep/c.jpg"] { folder.write("x", to: name) }
    let job = try job(
      to: "out/${item.dir}/${item.stem}-${item.index}.${ext}", input: #"{ "files": ["in/**/*.{jpg,png}"] }"#)
    let plan = try plan(job)
    let run = JobRun(job: job, options: RunOptions())
    let outputs = plan.inputs.indices.map { run.outputs(of: plan, at: $0).compactMap { $0?.display } }
    #expect(
      outputs == [
        [folder["out/a-0.jpg"]], [folder["out/sub/b-1.jpg"]], [folder["out/sub/deep/c-2.jpg"]],
      ])
    #expect(plan.findings.isEmpty)
    #expect(plan.workCount == 3)
  }

  @Test func twoItemsOneOutput() throws {
    for name in ["in/a/x.jpg", "in/b/x.jpg"] { folder.write("x", to: name) }
    let plan = try plan(try job(to: "out/${item.stem}.${ext}", input: #"{ "files": ["in/**/*.jpg"] }"#))
    #expect(plan.findings.map(\.code) == ["output-collision"])
    #expect(plan.findings[0].message == "in/a/x.jpg and in/b/x.jpg would both be written to \(folder["out/x.jpg"])")
    #expect(plan.findings[0].range != nil)
  }

  @Test func endingsCollide() throws {
    for name in ["in/x.jpg", "in/x.png"] { folder.write("x", to: name) }
    #expect(try codes(try job(to: "out/${item.stem}.${ext}", input: #"{ "files": ["in/*"] }"#)) == ["output-collision"])
  }

  /// Spelt differently, the same place: dots, and a folder reached through a link.
  @Test func spellingsOfOnePlaceCollide() throws {
    for name in ["in/a/x.jpg", "in/b/x.jpg"] { folder.write("x", to: name) }
    folder.makeFolder("out/a")
    symlink("a", folder["out/b"])
    #expect(
      try codes(try job(to: "out/${item.dir}/x.${ext}", input: #"{ "files": ["in/**/*.jpg"] }"#)) == [
        "output-collision"
      ])
  }

  @Test func caseAndUnicodeForm() throws {
    // é composed and decomposed; A and a.
    for name in ["in/\u{E9}.jpg", "in/e\u{301}.jpg", "in/A.jpg", "in/a.jpg"] { folder.write("x", to: name) }
    let input = #"{ "files": ["in/*.jpg"] }"#
    let warned = try plan(try job(to: "out/${item.stem}.${ext}", input: input))
    #expect(warned.findings.map(\.code) == ["output-collision-folded", "output-collision-folded"])
    #expect(warned.findings.allSatisfy { $0.severity == .warning })
    let refused = try plan(try job(to: "out/${item.stem}.${ext}", input: input, more: #" "portable": true,"#))
    #expect(refused.findings.allSatisfy { $0.severity == .error })
    #expect(refused.findings.count == 2)
  }

  @Test func anOutputThatIsAnInput() throws {
    folder.write("x", to: "in/a.jpg")
    let input = #"{ "files": ["in/a.jpg"] }"#
    #expect(try codes(try job(to: "in/${item.name}", input: input)) == ["output-overwrites-input"])
    #expect(try codes(try job(to: "in/../in/${item.stem}.jpg", input: input)) == ["output-overwrites-input"])
    #expect(try codes(try job(to: "in/${item.name}", input: input, write: #", "inPlace": true"#)) == [])
  }

  /// Another item's input is as untouchable as the item's own.
  @Test func anOutputThatIsAnothersInput() throws {
    for name in ["in/a.png", "in/a.jpg"] { folder.write("x", to: name) }
    let found = try codes(try job(to: "in/a-${item.ext}.jpg", input: #"{ "files": ["in/a.png"] }"#))
    #expect(found == [])
    let list = folder.write("in/a.png\nin/b.png\n", to: "list.txt")
    folder.write("x", to: "in/b.png")
    #expect(list.hasSuffix("list.txt"))
    let manifest = "path,target\nin/a.png,in/b.png\nin/b.png,in/c.png\n"
    folder.write(manifest, to: "m.csv")
    #expect(try codes(try job(to: "${item.target}", input: #"{ "manifest": "m.csv" }"#)) == ["output-overwrites-input"])
  }

  /// An input that is a link reads through every place on the way; replacing any of them changes it.
  @Test func anOutputThatAnInputsLinkLeadsTo() throws {
    folder.write("x", to: "store/a.jpg")
    folder.makeFolder("in")
    folder.makeFolder("mid")
    symlink("../store/a.jpg", folder["mid/a.jpg"])
    symlink("../mid/a.jpg", folder["in/a.jpg"])
    let input = #"{ "files": ["in/a.jpg"] }"#
    #expect(try codes(try job(to: "store/${item.stem}.jpg", input: input)) == ["output-overwrites-input"])
    #expect(try codes(try job(to: "mid/${item.stem}.jpg", input: input)) == ["output-overwrites-input"])
    #expect(try codes(try job(to: "mid/${item.stem}.jpg", input: input, write: #", "inPlace": true"#)) == [])
    #expect(try codes(try job(to: "store/${item.stem}-s.jpg", input: input)) == [])
    // The list names the link's target, the output the link's folder.
    symlink("store", folder["alias"])
    folder.write("store/a.jpg\n", to: "list.txt")
    #expect(
      try codes(try job(to: "alias/${item.stem}.jpg", input: #"{ "list": "list.txt" }"#)) == ["output-overwrites-input"]
    )
  }

  /// What the job reads besides its inputs is not freed by `inPlace`.
  @Test(arguments: ["", #", "inPlace": true"#])
  func anOutputThatTheJobReads(write: String) throws {
    folder.write("x", to: "in/a.jpg")
    folder.write("in/a.jpg\n", to: "list.txt")
    folder.write("x", to: "bg.png")
    symlink("bg.png", folder["link.png"])
    folder.write("{}", to: "job.json")
    let list = #"{ "list": "list.txt" }"#
    func planned(_ target: String) throws -> [Diagnostic] {
      folder.write("path,target\nin/a.jpg,\(target)\n", to: "m.csv")
      return try plan(
        try job(
          to: "${item.target}", input: #"{ "manifest": "m.csv" }"#, write: write,
          stage: #"{ "stage": "composite", "existingAlpha": true, "background": { "image": { "path": "link.png" } } },"#
        )
      ).findings
    }
    #expect(try codes(try job(to: "list.txt", input: list, write: write)) == ["output-overwrites-input"])
    for (target, what) in [
      ("m.csv", "the manifest"), ("job.json", "the job file"), ("bg.png", "a file of stage \"composite\""),
      ("link.png", "a file of stage \"composite\""),
    ] {
      let findings = try planned(target)
      #expect(findings.map(\.code) == ["output-overwrites-input"])
      #expect(findings.first?.message == "in/a.jpg: the output \(folder[target]) is \(what), which this job reads")
    }
    #expect(try planned("in/b.jpg").isEmpty)
  }

  /// `photos/**` follows links: what is written where one leads is read through it by the next run.
  @Test func anOutputThatALinkAmongTheInputsLeadsTo() throws {
    folder.write("x", to: "photos/a.jpg")
    symlink("../out", folder["photos/link"])
    let deep = #"{ "files": ["photos/**/*.jpg"] }"#
    for input in [deep, #"{ "directory": "photos" }"#] {
      let ahead = try plan(try job(to: "out/small/${item.stem}.${ext}", input: input)).findings
      #expect(ahead.map(\.code) == ["output-inside-input"], "\(input)")
      #expect(ahead.first?.message.contains("through the link \(folder["photos/link"])") == true)
    }
    // The folder is there now, and still empty.
    folder.makeFolder("out")
    #expect(try codes(try job(to: "out/${item.stem}.${ext}", input: deep)) == ["output-inside-input"])
    #expect(try codes(try job(to: "out/${image.width}.${ext}", input: deep)) == ["output-inside-input"])
    #expect(try codes(try job(to: "out/${item.stem}.${ext}", input: deep, write: #", "inPlace": true"#)) == [])
    // Not read: another ending, a hidden folder, a place beside it, a glob that does not go that deep.
    #expect(try codes(try job(to: "out/${item.stem}.jfif", input: deep)) == [])
    #expect(try codes(try job(to: "out/.small/${item.stem}.jpg", input: deep)) == [])
    #expect(try codes(try job(to: "out2/${item.stem}.${ext}", input: deep)) == [])
    #expect(try codes(try job(to: "out/${item.stem}.${ext}", input: #"{ "files": ["photos/*.jpg"] }"#)) == [])
  }

  /// A folder in the way is no output that exists.
  @Test(arguments: ["replace", "skip", "error"])
  func aFolderAtTheOutput(overwrite: String) throws {
    for name in ["in/a.jpg", "in/b.jpg"] { folder.write("x", to: name) }
    folder.makeFolder("out/a.jpg")
    let plan = try plan(
      try job(
        to: "out/${item.stem}.${ext}", input: #"{ "files": ["in/*.jpg"] }"#, write: ", \"overwrite\": \"\(overwrite)\"")
    )
    #expect(plan.workCount == 1)
    guard case .fail(let error, let stage) = plan.decisions[0] else {
      Issue.record("not a planned failure")
      return
    }
    #expect(error.code == "output-is-folder")
    #expect(error.message.contains(folder["out/a.jpg"]))
    #expect(stage == "write")
  }

  @Test func anOutputThatTheNextRunWouldRead() throws {
    folder.write("x", to: "in/a.jpg")
    #expect(
      try codes(try job(to: "in/small/${item.stem}-s.${ext}", input: #"{ "files": ["in/**/*.jpg"] }"#))
        == ["output-inside-input"])
    // The glob does not reach below, so nothing is read again.
    #expect(try codes(try job(to: "in/small/${item.stem}-s.${ext}", input: #"{ "files": ["in/*.jpg"] }"#)) == [])
    #expect(
      try codes(try job(to: "in/small/${item.stem}-s.${ext}", input: #"{ "directory": "in" }"#)) == [
        "output-inside-input"
      ])
    #expect(
      try codes(try job(to: "in/small/${item.stem}-s.${ext}", input: #"{ "directory": "in", "recursive": false }"#))
        == [])
    // Hidden folders are not walked into.
    #expect(try codes(try job(to: "in/.out/${item.stem}.${ext}", input: #"{ "directory": "in" }"#)) == [])
  }

  @Test func overwriteModes() throws {
    for name in ["in/a.jpg", "in/b.jpg", "out/a.jpg"] { folder.write("x", to: name) }
    let input = #"{ "files": ["in/*.jpg"] }"#
    #expect(try plan(try job(to: "out/${item.stem}.${ext}", input: input)).decisions.isEmpty)
    let skip = try plan(try job(to: "out/${item.stem}.${ext}", input: input, write: #", "overwrite": "skip""#))
    #expect(skip.decisions == [0: .skip("every output exists already")])
    #expect(skip.workCount == 1)
    let refuse = try plan(try job(to: "out/${item.stem}.${ext}", input: input, write: #", "overwrite": "error""#))
    guard case .fail(let error, let stage) = refuse.decisions[0] else {
      Issue.record("not refused")
      return
    }
    #expect(error.code == "output-exists")
    #expect(stage == "write")
  }

  @Test func manyCollisionsAreCounted() throws {
    for index in 0..<60 { folder.write("x", to: "in/\(index)/x.jpg") }
    let plan = try plan(try job(to: "out/${item.stem}.${ext}", input: #"{ "files": ["in/**/*.jpg"] }"#))
    #expect(plan.findings.count == 21)
    #expect(plan.findings.last?.message == "39 more findings of this kind")
    #expect(plan.findings.hasErrors)
  }

  @Test func emptyInputs() throws {
    folder.makeFolder("in")
    let error = #expect(throws: PlanError.self) {
      try self.plan(try self.job(to: "out/${item.stem}.${ext}", input: #"{ "files": ["in/*.jpg"] }"#))
    }
    guard case .input = error else { throw StageError("test", "the plan failed otherwise: \(error.debugDescription)") }
    let allowed = try plan(
      try job(to: "out/${item.stem}.${ext}", input: #"{ "files": ["in/*.jpg"], "allowEmpty": true }"#))
    #expect(allowed.inputs.isEmpty)
  }

  @Test func namesThatAreNotUTF8KeepTheirBytes() throws {
    folder.makeFolder("in")
    let name = Array((folder["in/"]).utf8) + [0xFF, 0xFE] + Array(".jpg".utf8)
    let descriptor = PathBytes(bytes: name).withCString { open($0, O_CREAT | O_WRONLY, 0o644) }
    try #require(descriptor >= 0)
    close(descriptor)
    let job = try job(to: "out/${item.stem}.${ext}", input: #"{ "files": ["in/*.jpg"] }"#)
    let plan = try plan(job)
    let output = JobRun(job: job, options: RunOptions()).outputs(of: plan, at: 0)[0]
    #expect(output?.bytes.suffix(6) == [0xFF, 0xFE] + Array(".jpg".utf8))
  }
}
