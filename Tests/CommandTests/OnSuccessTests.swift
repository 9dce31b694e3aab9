import Engine
import Glibc
import JobSyntax
import PipelineKit
import TestSupport
import Testing

/// What becomes of pictures when everything that a job makes of them is done.
@Suite struct OnSuccessTests {
  private func job(
    _ scene: Scene, _ onSuccess: String, input: String = #"{ "files": ["in/*"], "allowEmpty": true }"#,
    to: String = "out/${item.stem}.${ext}", write: String = "", more: String = ""
  ) {
    scene.folder.write(
      """
      {
        "version": 1, "name": "scene", "input": \(input),
        "stages": [
          { "stage": "decode" }, { "stage": "encode", "format": "png" },
          { "stage": "write", "to": "\(to)"\(write) }\(more)
        ],
        "onSuccess": \(onSuccess)
      }
      """, to: "job.json")
  }

  private func names(_ scene: Scene, _ folder: String) -> [String] {
    scene.folder.tree().filter { $0.hasPrefix(folder + "/") && !$0.hasSuffix("/") }
  }

  @Test func doneSourcesAreMovedAndFailedOnesStay() throws {
    let scene = try Scene(pictures: 5, remembers: true)
    scene.folder.write("no picture", to: "in/bad.jpg")
    let before = (0..<5).map { scene.folder.read("in/p0\($0).jpg") }
    job(scene, #"{ "source": "move", "to": "done/${item.name}" }"#)
    let result = scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == 1, "\(result.error)")
    #expect(names(scene, "in") == ["in/bad.jpg"])
    #expect((0..<5).map { scene.folder.read("done/p0\($0).jpg") } == before)
    #expect(names(scene, "out").count == 5)
    let items = try #require(try scene.report()["items"]?.arrayValue)
    #expect(items.count == 6)
    for item in items {
      let isDone = item["status"]?.stringValue == "done"
      #expect(item["source"]?.stringValue == (isDone ? "moved" : nil))
      if isDone { #expect(item["movedTo"]?.stringValue?.hasPrefix(scene.folder["done/"]) == true) }
    }
    #expect(scene.temporaries.isEmpty)
    // Nothing is left to do but what failed.
    #expect(scene.run("run", "job.json").exitCode == 1)
    #expect(names(scene, "done").count == 5)
  }

  @Test func doneSourcesAreDeleted() throws {
    let scene = try Scene(pictures: 4, remembers: true)
    job(scene, #"{ "source": "delete" }"#)
    let result = scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(names(scene, "in").isEmpty)
    #expect(names(scene, "out").count == 4)
    let items = try #require(try scene.report()["items"]?.arrayValue)
    #expect(items.allSatisfy { $0["source"]?.stringValue == "deleted" })
    #expect(scene.run("run", "job.json").exitCode == 0)
    #expect(names(scene, "out").count == 4)
  }

  /// What an earlier run has done and not carried out is made up for, without doing the picture again.
  @Test func laterRunsCarryOn() throws {
    let scene = try Scene(pictures: 3, remembers: true)
    job(scene, #"{ "source": "keep" }"#)
    #expect(scene.run("run", "job.json").exitCode == 0)
    #expect(names(scene, "in").count == 3)
    job(scene, #"{ "source": "delete" }"#)
    let result = scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(names(scene, "in").isEmpty)
    let items = try #require(try scene.report()["items"]?.arrayValue)
    #expect(items.allSatisfy { $0["status"]?.stringValue == "skipped" && $0["source"]?.stringValue == "deleted" })
  }

  /// Nothing is replaced: a picture whose new name is taken stays.
  @Test func takenNamesKeepTheSource() throws {
    let scene = try Scene(pictures: 2, remembers: true)
    scene.folder.write("older", to: "done/p00.jpg")
    job(scene, #"{ "source": "move", "to": "done/${item.name}" }"#)
    let result = scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(names(scene, "in") == ["in/p00.jpg"])
    #expect(scene.folder.read("done/p00.jpg") == Array("older".utf8))
    let first = try scene.report()["items"]?.arrayValue?.first
    #expect(first?["source"]?.stringValue == "kept")
    #expect(first?["sourceReason"]?.stringValue?.contains("is there already") == true)
  }

  /// Rows that share a picture: it goes when all of them are done, and not where one failed.
  @Test func sharedSourcesWaitForAllTheirRows() throws {
    let scene = try Scene(pictures: 3, remembers: true)
    scene.folder.write("taken", to: "out/x/f")
    scene.folder.write(
      "path,as\nin/p00.jpg,a\nin/p01.jpg,b\nin/p00.jpg,c\nin/p02.jpg,d\nin/p02.jpg,x\n", to: "list.csv")
    job(
      scene, #"{ "source": "delete" }"#, input: #"{ "manifest": "list.csv" }"#, to: "out/${item.as}")
    let result = scene.run("run", "job.json", "--report", "report.json")
    // out/x is a folder, so that row fails.
    #expect(result.exitCode == 1, "\(result.error)")
    #expect(names(scene, "in") == ["in/p02.jpg"])
    // Rows whose pictures have gone this way are done, not missing.
    let again = scene.run("run", "job.json", "--report", "again.json")
    let statuses = try scene.report("again.json")["items"]?.arrayValue?.map { $0["status"]?.stringValue ?? "" }
    #expect(statuses == ["skipped", "skipped", "skipped", "skipped", "failed"], "\(again.error)")
  }

  /// The link that the job names is what goes; the file it leads to stays.
  @Test func linksGoAndTheirFilesStay() throws {
    let scene = try Scene(pictures: 2, remembers: true)
    rename(scene.folder["in"], scene.folder["store"])
    scene.folder.makeFolder("in")
    symlink("../store/p00.jpg", scene.folder["in/a.jpg"])
    link(scene.folder["store/p01.jpg"], scene.folder["in/b.jpg"])
    job(scene, #"{ "source": "move", "to": "deep/er/${item.name}" }"#)
    let result = scene.run("run", "job.json")
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(names(scene, "in").isEmpty)
    #expect(names(scene, "store").count == 2)
    // A relative link still leads to its file.
    #expect(scene.folder.read("deep/er/a.jpg") == scene.folder.read("store/p00.jpg"))
    #expect(scene.folder.read("deep/er/b.jpg") == scene.folder.read("store/p01.jpg"))
  }

  @Test func anotherFileSystem() throws {
    var there = statvfs()
    var here = statvfs()
    let scene = try Scene(pictures: 3, remembers: true)
    guard statvfs("/dev/shm", &there) == 0, statvfs(scene.folder.path, &here) == 0, there.f_fsid != here.f_fsid else {
      return
    }
    let name = "/dev/shm/pipeline-test-\(getpid())-\(UInt32.random(in: 0...UInt32.max))"
    defer { _ = RunProgram.run(["-rf", name], program: "/bin/rm") }
    let before = (0..<3).map { scene.folder.read("in/p0\($0).jpg") }
    job(scene, #"{ "source": "move", "to": "\#(name)/${item.name}" }"#)
    let result = scene.run("run", "job.json")
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(names(scene, "in").isEmpty)
    #expect((0..<3).map { TemporaryFolder.read("\(name)/p0\($0).jpg") } == before)
  }

  /// The copy that a killed run had begun.
  @Test func halfACopyIsCleared() throws {
    let scene = try Scene(pictures: 1, remembers: true)
    job(scene, #"{ "source": "keep" }"#)
    #expect(scene.run("run", "job.json").exitCode == 0)
    do {
      let folder = StateFolder.locate(PathBytes(scene.folder[".pipeline"]))
      let ledger = try #require(try Ledger.open(folder, .readWrite))
      defer { ledger.close() }
      var run = try #require(try ledger.runs(limit: 1).first)
      run.id = "20260102-030405-abcdef"
      run.ended = nil
      try ledger.begin(run)
    }
    scene.folder.write("half", to: "done/.pipeline-20260102-030405-abcdef-source.tmp")
    job(scene, #"{ "source": "move", "to": "done/${item.name}" }"#)
    #expect(scene.run("run", "job.json").exitCode == 0)
    #expect(names(scene, "done") == ["done/p00.jpg"])
  }

  @Test(arguments: [
    (#"{ "source": "move" }"#, "", "missing-key"),
    (#"{ "source": "delete", "to": "x" }"#, "", "not-applicable"),
    (#"{ "source": "delete" }"#, #", "inPlace": true"#, "source-is-output"),
    (#"{ "source": "move", "to": "done/" }"#, "", "output-name"),
    (#"{ "source": "move", "to": "done/${item.stem}.${ext}" }"#, "", "unknown-variable"),
    (#"{ "source": "throw" }"#, "", ""),
  ])
  func lintRefuses(_ onSuccess: String, _ write: String, _ code: String) throws {
    let scene = try Scene(pictures: 1, remembers: true)
    job(scene, onSuccess, write: write)
    let result = scene.run("lint", "job.json", "--format", "json")
    #expect(result.exitCode == 3)
    #expect(result.output.contains("\"\(code)"), "\(result.output)")
  }

  @Test(arguments: [
    // Where the next run would read them, onto outputs, onto one another, onto inputs.
    ("in/done-${item.name}", "would be read as an input by the next run"),
    ("out/${item.stem}.png", "where an output is written"),
    ("done/all.jpg", "would both be moved to"),
  ])
  func plansRefuse(_ to: String, _ message: String) throws {
    let scene = try Scene(pictures: 3, remembers: true)
    job(scene, #"{ "source": "move", "to": "\#(to)" }"#)
    for command in ["plan", "run"] {
      let result = scene.run(command, "job.json")
      #expect(result.exitCode == 3)
      #expect(result.error.contains(message), "\(result.error)")
    }
    #expect(names(scene, "in").count == 3)
  }

  /// Rows whose pictures have gone stay done in every later run, and their outputs are the only thing left of them.
  @Test func goneSourcesStayKnown() throws {
    let scene = try Scene(pictures: 3, remembers: true)
    scene.folder.write("path\nin/p00.jpg\nin/p01.jpg\n", to: "list.csv")
    job(scene, #"{ "source": "delete" }"#, input: #"{ "manifest": "list.csv" }"#)
    for _ in 0..<3 {
      let result = scene.run("run", "job.json")
      #expect(result.exitCode == 0, "\(result.error)")
    }
    scene.folder.write("path\nin/p01.jpg\nin/p02.jpg\n", to: "list.csv")
    #expect(scene.run("run", "job.json", "--prune").exitCode == 0)
    #expect(names(scene, "out") == ["out/p00.png", "out/p01.png", "out/p02.png"])
  }

  /// However a file is named twice, it goes when all that reads it is done.
  @Test(arguments: ["linked/p00.jpg", "in/link.jpg", "in/hard.jpg"])
  func sharedSourcesByOtherNames(_ other: String) throws {
    let scene = try Scene(pictures: 1, remembers: true)
    symlink("in", scene.folder["linked"])
    symlink("p00.jpg", scene.folder["in/link.jpg"])
    link(scene.folder["in/p00.jpg"], scene.folder["in/hard.jpg"])
    scene.folder.write("path,as\nin/p00.jpg,a\n\(other),x\n", to: "list.csv")
    scene.folder.makeFolder("out/x")
    job(scene, #"{ "source": "delete" }"#, input: #"{ "manifest": "list.csv" }"#, to: "out/${item.as}")
    #expect(scene.run("run", "job.json").exitCode == 1)
    #expect(names(scene, "in") == ["in/hard.jpg", "in/link.jpg", "in/p00.jpg"])
    rmdir(scene.folder["out/x"])
    let result = scene.run("run", "job.json")
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(names(scene, "out") == ["out/a", "out/x"])
    let left = Set(["in/hard.jpg", "in/link.jpg", "in/p00.jpg"]).subtracting(["in/p00.jpg", other])
    #expect(Set(names(scene, "in")) == left)
  }

  /// A name that only the run knows may be that of an earlier picture, which must not be replaced: its source goes.
  @Test(arguments: [false, true])
  func outputsOfEarlierRunsAreNotReplaced(_ goneBefore: Bool) throws {
    let scene = try Scene(pictures: 2, remembers: true)
    rename(scene.folder["in/p01.jpg"], scene.folder["later.jpg"])
    let to = "out/${image.width}.${ext}"
    job(scene, goneBefore ? #"{ "source": "delete" }"# : #"{ "source": "keep" }"#, to: to)
    #expect(scene.run("run", "job.json").exitCode == 0)
    let first = names(scene, "out")
    #expect(first.count == 1)
    let content = scene.folder.read(first[0])
    rename(scene.folder["later.jpg"], scene.folder["in/p01.jpg"])
    job(scene, #"{ "source": "delete" }"#, to: to)
    let result = scene.run("run", "job.json")
    #expect(result.exitCode == 1)
    #expect(result.error.contains("output-collision"), "\(result.error)")
    #expect(names(scene, "out") == first)
    #expect(scene.folder.read(first[0]) == content)
    #expect(names(scene, "in") == ["in/p01.jpg"])
  }
}
