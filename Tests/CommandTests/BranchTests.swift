import Glibc
import Imaging
import JobSyntax
import TestSupport
import Testing

/// Branches, conditions and filters from outside.
@Suite(.serialized) struct BranchCommandTests {
  private static func tail(_ name: String, _ stages: String = "", format: String = "png") -> String {
    #""\#(name)": [\#(stages.isEmpty ? "" : stages + ", "){ "stage": "encode", "format": "\#(format)" }, "#
      + #"{ "stage": "write", "to": "out/\#(name)/${item.stem}.${ext}" }]"#
  }

  private static func job(_ scene: Scene, _ stages: String, run: String = "{}") {
    scene.folder.write(
      #"{ "version": 1, "name": "scene", "input": { "files": ["in/*"] }, "stages": [\#(stages)], "run": \#(run) }"#,
      to: "job.json")
  }

  private static func items(_ scene: Scene) throws -> [JSONNode] {
    try #require(try scene.report()["items"]?.arrayValue)
  }

  private static func labels(_ item: JSONNode) -> [String] {
    (item["stages"]?.arrayValue ?? []).compactMap { $0["name"]?.stringValue }
  }

  /// Tails give what chains of their own give, to the byte; what comes before works once.
  @Test func tailsGiveWhatChainsGive() throws {
    let scene = try Scene(pictures: 4, side: 96)
    let small = #"{ "stage": "resize", "width": 20 }"#
    let inner =
      #""inner": [{ "stage": "flip", "direction": "horizontal" }, { "stage": "branch", "branches": { "#
      + Self.tail("x") + ", " + Self.tail("y", small, format: "webp") + " } }]"
    Self.job(
      scene,
      #"{ "stage": "decode" }, { "stage": "resize", "width": 48 }, { "stage": "branch", "branches": { "#
        + Self.tail("small", small) + ", \(inner), " + Self.tail("plain", format: "jpeg") + " } }")
    let result = scene.run("run", "job.json", "--report", "report.json", "--jobs", "2")
    #expect(result.exitCode == 0, "\(result.error)")
    try check(try scene.report(), exitCode: 0, in: scene)
    for item in try Self.items(scene) {
      #expect(
        Self.labels(item) == [
          "decode", "resize", "branch", "small/resize", "small/encode", "small/write", "inner/flip", "inner/branch",
          "inner/x/encode", "inner/x/write", "inner/y/resize", "inner/y/encode", "inner/y/write", "plain/encode",
          "plain/write",
        ])
      #expect(item["outputs"]?.arrayValue?.count == 4)
    }
    let branched = Self.tree(scene)
    #expect(branched.count == 16)
    // The same again, one chain for each.
    let flip = #"{ "stage": "flip", "direction": "horizontal" }"#
    for (name, stages, format) in [
      ("small", small, "png"), ("x", flip, "png"), ("y", flip + ", " + small, "webp"), ("plain", "", "jpeg"),
    ] {
      let alone = try Scene(pictures: 4, side: 96)
      let tail = Self.tail(name, stages, format: format).drop { $0 != "[" }.dropFirst().dropLast()
      Self.job(alone, #"{ "stage": "decode" }, { "stage": "resize", "width": 48 }, \#(tail)"#)
      #expect(alone.run("run", "job.json").exitCode == 0)
      for (path, bytes) in Self.tree(alone) { #expect(branched[path] == bytes, "\(path)") }
    }
  }

  private static func tree(_ scene: Scene) -> [String: [UInt8]] {
    var files: [String: [UInt8]] = [:]
    for path in scene.folder.tree() where path.hasPrefix("out/") && !path.hasSuffix("/") {
      files[path] = scene.folder.read(path)
    }
    return files
  }

  /// The tail's write cannot make its folder; the other tails are written and booked.
  @Test func aFailedTailIsNamed() throws {
    let scene = try Scene(pictures: 3)
    scene.folder.write("no folder", to: "out/bad")
    Self.job(
      scene,
      #"{ "stage": "decode" }, { "stage": "branch", "branches": { "#
        + ["first", "bad", "last"].map { Self.tail($0) }.joined(separator: ", ") + " } }")
    let result = scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == 1)
    #expect(result.error.contains(#"in stage "bad/write""#) || result.error.contains("bad/write"), "\(result.error)")
    for item in try Self.items(scene) {
      #expect(item["status"]?.stringValue == "failed")
      #expect(item["error"]?["stage"]?.stringValue == "bad/write")
      let outputs = (item["outputs"]?.arrayValue ?? []).compactMap { $0["path"]?.stringValue }
      #expect(outputs.count == 2)
      for path in outputs { #expect(TemporaryFolder.read(path) != nil) }
    }
  }

  @Test func filtersAndConditions() throws {
    let scene = try Scene(pictures: 2, side: 64)
    let wide = try Image(width: 90, height: 30, bands: 3, bytes: [UInt8](repeating: 120, count: 90 * 30 * 3))
    scene.folder.write(try wide.encoded(.png(.init())).array, to: "in/wide.png")
    Self.job(
      scene,
      """
      { "stage": "filter", "if": { "item.stem": { "ne": "p01" } }, "reason": "seen before" },
      { "stage": "decode" },
      { "stage": "filter", "if": { "image.aspect": { "lt": 2 } } },
      { "stage": "resize", "width": 32, "when": { "image.width": { "gt": 100 } } },
      { "stage": "encode", "format": "webp", "when": { "image.format": { "eq": "png" } } },
      { "stage": "encode", "format": "png", "when": { "not": { "image.format": { "eq": "png" } } } },
      { "stage": "branch", "branches": { "all": [{ "stage": "encode", "format": "png" },
        { "stage": "write", "to": "out/${item.stem}.${ext}" }] } }
      """)
    // Both encodes are replaced in the tail.
    let lint = scene.run("lint", "job.json")
    #expect(lint.exitCode == 3, "\(lint.output)")
    Self.job(
      scene,
      """
      { "stage": "filter", "if": { "item.stem": { "ne": "p01" } }, "reason": "seen before" },
      { "stage": "decode" },
      { "stage": "filter", "if": { "image.aspect": { "lt": 2 } } },
      { "stage": "resize", "width": 32, "when": { "image.width": { "gt": 60 } } },
      { "stage": "sharpen", "when": { "image.width": { "gt": 60 } } },
      { "stage": "encode", "format": "png" }, { "stage": "write", "to": "out/${item.stem}.${ext}" }
      """)
    let plan = scene.run("plan", "job.json")
    #expect(plan.output.contains("in/p01.jpg: drop: seen before\n"))
    #expect(plan.output.contains("3 pictures: 2 to do, 1 to drop\n"))
    let result = scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == 0, "\(result.error)")
    let items = try Self.items(scene)
    #expect(items.map { $0["status"]?.stringValue } == ["done", "dropped", "dropped"])
    #expect(
      items.map { $0["reason"]?.stringValue } == [nil, "seen before", "it is not so that image.aspect is below 2"])
    #expect(Self.labels(items[0]) == ["filter", "decode", "filter 2", "resize", "encode", "write"])
    #expect(items[0]["outputs"]?.arrayValue?.first?["width"]?.integer == 32)
    #expect(Self.labels(items[2]) == ["filter", "decode", "filter 2"])
  }

  // MARK: Crashes and children

  private static func faulty(_ count: Int, _ faults: [Int: String], itemDeadline: Double = 60) throws -> FaultyScene {
    let faulty = try FaultyScene(count, faults: faults)
    job(
      faulty.scene,
      #"{ "stage": "decode" }, { "stage": "branch", "branches": { "#
        + tail("first") + ", " + tail("fault", #"{ "stage": "test.fault" }"#) + ", " + tail("last") + " } }",
      run: #"{ "itemDeadline": \#(itemDeadline) }"#)
    return faulty
  }

  /// The tail before is written and kept, once; all other pictures are whole.
  @Test(arguments: ["segv", "exit"]) func aCrashInATail(_ fault: String) throws {
    let faulty = try Self.faulty(12, [5: fault])
    let result = faulty.start("--jobs", "2").finish()
    #expect(result.exitCode == 1, "\(result.error)")
    try check(try faulty.scene.report(), exitCode: 1, in: faulty.scene)
    for (index, item) in try Self.items(faulty.scene).enumerated() {
      let outputs = (item["outputs"]?.arrayValue ?? []).compactMap { $0["path"]?.stringValue }
      if index == 5 {
        #expect(item["error"]?["code"]?.stringValue == "crash")
        #expect(item["error"]?["stage"]?.stringValue == "fault/test.fault")
        #expect(outputs == [faulty.scene.folder["out/first/p005-\(fault).png"]])
      } else {
        #expect(item["status"]?.stringValue == "done")
        #expect(outputs.count == 3)
      }
    }
    #expect(faulty.scene.temporaries.isEmpty)
  }

  /// Calls that hang move the rest of the run into children, which go down all tails too.
  @Test func aHungTailAndChildren() throws {
    let faulty = try Self.faulty(16, [1: "hang", 2: "hang", 3: "hang", 9: "hang", 12: "review"], itemDeadline: 1.5)
    let result = faulty.start("--jobs", "2").finish()
    #expect(result.exitCode == 1, "\(result.error)")
    try check(try faulty.scene.report(), exitCode: 1, in: faulty.scene)
    for (index, item) in try Self.items(faulty.scene).enumerated() {
      let outputs = item["outputs"]?.arrayValue?.count
      switch index {
      case 1, 2, 3, 9:
        #expect(item["error"]?["code"]?.stringValue == "deadline")
        #expect(item["error"]?["stage"]?.stringValue == "fault/test.fault")
        #expect(outputs == 1)
      case 12:
        #expect(item["status"]?.stringValue == "review")
        #expect(item["reason"]?.stringValue == "fault/test.fault: the picture's name says so")
        #expect(outputs == 2)
      default:
        #expect(item["status"]?.stringValue == "done", "\(index)")
        #expect(outputs == 3)
      }
    }
  }
}
