import Glibc
import JobSyntax
import TestSupport
import Testing

/// What `plan` says is what `run` then does, item by item.
@Suite struct PlanExactnessTests {
  /// Plans, sees that this changed nothing, runs, and holds the report against the plan.
  @discardableResult
  private func planAndRun(_ scene: Scene, exitCode: Int32) throws -> (plan: JSONNode, report: JSONNode) {
    let before = contents(scene)
    let planned = scene.run("plan", "job.json", "--format", "json")
    #expect(planned.exitCode == 0, "\(planned.error)")
    #expect(contents(scene) == before)
    let plan = try json(planned.outputBytes)
    let result = scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == exitCode, "\(result.error)")
    let report = try scene.report()
    try compare(plan, report)
    return (plan, report)
  }

  private func contents(_ scene: Scene) -> [String: DiskModel.Node] {
    // A reader of the ledger brings its log up to date, which changes files and not what they say.
    scene.folder.contents().filter { !$0.key.hasPrefix(".pipeline") }
  }

  private func compare(_ plan: JSONNode, _ report: JSONNode) throws {
    let planned = try #require(plan["items"]?.arrayValue)
    let items = try #require(report["items"]?.arrayValue)
    #expect(planned.map { $0["input"]?.stringValue } == items.map { $0["input"]?.stringValue })
    var counts: [String: Int] = [:]
    var droppedInWork = 0
    for (wanted, item) in zip(planned, items) {
      let input = try #require(wanted["input"]?.stringValue)
      let decision = try #require(wanted["decision"]?.stringValue)
      let status = try #require(item["status"]?.stringValue)
      let reason = wanted["reason"]?.stringValue
      let outputs = try #require(wanted["outputs"]?.arrayValue).map(\.stringValue)
      let written = try #require(item["outputs"]?.arrayValue).map { $0["path"]?.stringValue }
      counts[decision, default: 0] += 1
      switch decision {
      case "run":
        // A condition on the picture itself is decided in the work.
        #expect(["done", "failed", "dropped"].contains(status), "\(input): \(status)")
        if status == "dropped" { droppedInWork += 1 }
        if status == "done" {
          // Those that were there already and stay are warned of.
          let kept = item["warnings"]?.arrayValue?.count { $0["code"]?.stringValue == "output-kept" }
          #expect(written.count + (kept ?? 0) == outputs.count, "\(input)")
          // A name that only the run knows is null in the plan.
          let unknown = outputs.count { $0 == nil }
          #expect(written.count { !outputs.contains($0) } <= unknown, "\(input): \(written)")
        }
        // What fails in the work has been in a stage, and it took time.
        if status == "failed" { #expect(item["error"]?["stage"]?.stringValue != nil, "\(input)") }
      case "skip", "drop":
        #expect(status == (decision == "skip" ? "skipped" : "dropped"), "\(input)")
        #expect(item["reason"]?.stringValue == reason && reason != nil, "\(input): \(reason ?? "")")
        #expect(item["stages"]?.arrayValue?.isEmpty == true, "\(input)")
      case "fail":
        #expect(status == "failed", "\(input)")
        #expect(item["error"]?["message"]?.stringValue == "\(input): \(reason ?? "")")
        #expect(item["stages"]?.arrayValue?.isEmpty == true, "\(input)")
      default: Issue.record("\(input): \(decision)")
      }
    }
    let told = try #require(plan["counts"]?.objectValue)
    for member in told {
      #expect(member.value.integer == (member.key == "total" ? planned.count : counts[member.key, default: 0]))
    }
    let found = try #require(report["run"]?["counts"])
    func count(_ status: String) -> Int { found[status]?.integer ?? 0 }
    #expect(count("skipped") == counts["skip", default: 0])
    #expect(count("dropped") == counts["drop", default: 0] + droppedInWork)
    #expect(count("done") + count("failed") + droppedInWork == counts["run", default: 0] + counts["fail", default: 0])
  }

  private func decisions(_ plan: JSONNode) -> [String] {
    plan["items"]?.arrayValue?.compactMap { $0["decision"]?.stringValue } ?? []
  }

  private func statuses(_ report: JSONNode) -> [String] {
    report["items"]?.arrayValue?.compactMap { $0["status"]?.stringValue } ?? []
  }

  @Test func renditionsWithSkipsAndFailures() throws {
    let scene = try Scene(pictures: 12, remembers: true)
    scene.folder.write(
      """
      {
        "version": 1, "name": "renditions",
        "input": { "files": ["in/*"] },
        "stages": [
          { "stage": "decode" },
          { "stage": "resize", "width": 32 },
          { "stage": "encode", "format": "webp" },
          { "stage": "write", "to": "out/large/${item.stem}.${ext}", "overwrite": "skip" },
          { "stage": "resize", "width": 16 },
          { "stage": "encode", "format": "png" },
          { "stage": "write", "to": "out/small/${item.stem}-${image.width}.${ext}", "overwrite": "replace" },
          { "stage": "encode", "format": "jpeg" },
          { "stage": "write", "to": "out/tiny/${item.stem}.${ext}", "overwrite": "skip" }
        ]
      }
      """, to: "job.json")
    // One of two is there: there is work to do. A folder is in the way of another, and two are no pictures.
    scene.folder.write("there", to: "out/large/p01.webp")
    scene.folder.makeFolder("out/tiny/p02.jpg")
    scene.folder.write("no picture", to: "in/p03.jpg")
    scene.folder.write([], to: "in/p04.jpg")
    let (plan, report) = try planAndRun(scene, exitCode: 1)
    #expect(decisions(plan).count { $0 == "fail" } == 1)
    #expect(statuses(report).count { $0 == "failed" } == 3)
  }

  @Test func outputsThatAreThereAlready() throws {
    let scene = try Scene(pictures: 8, remembers: true)
    scene.job(write: #", "overwrite": "skip""#)
    scene.folder.write("there", to: "out/p01.png")
    scene.folder.write("there", to: "out/p05.png")
    let (plan, _) = try planAndRun(scene, exitCode: 0)
    #expect(decisions(plan).count { $0 == "skip" } == 2)
    scene.folder.write("no picture", to: "in/p99.jpg")
    let (second, report) = try planAndRun(scene, exitCode: 1)
    #expect(decisions(second).count { $0 == "skip" } == 8)
    #expect(statuses(report).last == "failed")
  }

  @Test func aManifestWithColumnsAndCollisions() throws {
    let scene = try Scene(pictures: 5, remembers: true)
    func manifest(_ rows: [String]) {
      scene.folder.write("file,sku,folder\n" + rows.map { $0 + "\n" }.joined(), to: "list.csv")
    }
    scene.job(
      to: "out/${item.folder}/${item.sku}.${ext}", input: #"{ "manifest": "list.csv" }"#)
    manifest(["in/p00.jpg,a,x", "in/p01.jpg,a,y", "in/p02.jpg,a,x", "in/p03.jpg,b,y"])
    let before = ProofScene.names(in: scene.folder.contents())
    let refused = [scene.run("plan", "job.json"), scene.run("run", "job.json", "--report", "report.json")]
    for result in refused {
      #expect(result.exitCode == 3)
      #expect(result.error.contains("in/p00.jpg and in/p02.jpg would both be written to"), "\(result.error)")
    }
    #expect(refused[0].error == refused[1].error)
    #expect(ProofScene.names(in: scene.folder.contents()) == before)

    manifest(["in/p00.jpg,a,x", "in/p01.jpg,a,y", "in/p02.jpg,c/../d,x", "in/p03.jpg,,y", "in/p00.jpg,e,x"])
    let (plan, _) = try planAndRun(scene, exitCode: 1)
    #expect(decisions(plan).contains("fail"))
  }

  @Test func outputsThatMustBeNew() throws {
    let scene = try Scene(pictures: 9, remembers: true)
    scene.job(write: #", "overwrite": "error""#)
    scene.folder.write("there", to: "out/p03.png")
    scene.folder.write("no picture", to: "in/p07.jpg")
    let (plan, report) = try planAndRun(scene, exitCode: 1)
    #expect(decisions(plan).count { $0 == "fail" } == 1)
    #expect(statuses(report).count { $0 == "done" } == 7)
  }

  @Test func filtersAndBranches() throws {
    let scene = try Scene(pictures: 10, remembers: true)
    scene.folder.write(
      """
      {
        "version": 1, "name": "filters",
        "input": { "files": ["in/*"] },
        "stages": [
          { "stage": "filter", "if": { "item.stem": { "ne": "p02" } }, "reason": "not wanted" },
          { "stage": "filter", "if": { "not": { "item.stem": { "in": ["p06", "p07"] } } } },
          { "stage": "decode" },
          { "stage": "filter", "if": { "image.width": { "gte": 60 } } },
          { "stage": "branch", "branches": {
            "small": [
              { "stage": "resize", "width": 20 },
              { "stage": "encode", "format": "webp" },
              { "stage": "write", "to": "out/small/${item.stem}.${ext}", "overwrite": "skip" }
            ],
            "large": [
              { "stage": "encode", "format": "png" },
              { "stage": "write", "to": "out/large/${item.stem}.${ext}", "overwrite": "error" }
            ]
          } }
        ]
      }
      """, to: "job.json")
    let other = try Scene(pictures: 1, side: 40)
    scene.folder.write(other.folder.read("in/p00.jpg") ?? [], to: "in/p05.jpg")
    scene.folder.write("there", to: "out/large/p03.png")
    scene.folder.write("there", to: "out/small/p04.webp")
    scene.folder.write("no picture", to: "in/p08.jpg")
    let (plan, report) = try planAndRun(scene, exitCode: 1)
    #expect(decisions(plan).count { $0 == "drop" } == 3)
    #expect(decisions(plan).count { $0 == "fail" } == 1)
    #expect(statuses(report).count { $0 == "dropped" } == 4)
    #expect(statuses(report).count { $0 == "failed" } == 2)
  }

  @Test func aSecondRunOverWhatHasChanged() throws {
    let scene = try Scene(pictures: 12, remembers: true)
    scene.job()
    scene.folder.write("no picture", to: "in/p11.jpg")
    let (first, _) = try planAndRun(scene, exitCode: 1)
    #expect(decisions(first).allSatisfy { $0 == "run" })

    let other = try Scene(pictures: 1, side: 40)
    let picture = other.folder.read("in/p00.jpg") ?? []
    scene.folder.write(picture, to: "in/p01.jpg")
    // The same content at another time, and as another file.
    utimes(scene.folder["in/p02.jpg"], nil)
    let same = scene.folder.read("in/p03.jpg") ?? []
    unlink(scene.folder["in/p03.jpg"])
    scene.folder.write(same, to: "in/p03.jpg")
    unlink(scene.folder["in/p04.jpg"])
    scene.folder.write(picture, to: "in/p99.jpg")
    // Outputs that are gone, not the same, and the same at another time.
    unlink(scene.folder["out/p05.png"])
    scene.folder.write("no longer", to: "out/p06.png")
    utimes(scene.folder["out/p07.png"], nil)
    let (second, report) = try planAndRun(scene, exitCode: 1)
    let items = try #require(second["items"]?.arrayValue)
    let again = items.compactMap { $0["decision"]?.stringValue == "run" ? $0["input"]?.stringValue : nil }
    // What failed is tried again.
    #expect(again == ["in/p01.jpg", "in/p05.jpg", "in/p06.jpg", "in/p11.jpg", "in/p99.jpg"])
    #expect(statuses(report).count { $0 == "skipped" } == 7)
    #expect(statuses(report).count { $0 == "done" } == 4)

    // What was good and is broken now is no longer skipped.
    scene.folder.write("no picture", to: "in/p01.jpg")
    let (third, _) = try planAndRun(scene, exitCode: 1)
    #expect(decisions(third).count { $0 == "run" } == 2)
    // Another chain is other work, and the same again is none.
    scene.job(encode: #"{ "stage": "resize", "width": 20 }, { "stage": "encode", "format": "png" }"#)
    let (fourth, _) = try planAndRun(scene, exitCode: 1)
    #expect(decisions(fourth).allSatisfy { $0 == "run" })
    let (fifth, _) = try planAndRun(scene, exitCode: 1)
    #expect(decisions(fifth).count { $0 == "run" } == 2)
  }
}
