import Glibc
import Imaging
import JobSyntax
import TestSupport
import Testing

/// Stages from shared libraries, from outside.
@Suite(.enabled(if: TestPlugins.canBuild, "a C compiler is missing: apt-get install gcc"))
struct PluginTests {
  /// A job with a plugin's stage between decode and encode.
  private static func scene(
    _ pictures: Int = 3, plugins: [String], stage: String = #"{ "stage": "test.plugin" }"#, remembers: Bool = false
  ) throws -> Scene {
    let scene = try Scene(pictures: pictures, remembers: remembers)
    write(scene, plugins, stage)
    return scene
  }

  private static func write(_ scene: Scene, _ plugins: [String], _ stage: String) {
    let list = plugins.map { JSONText.string($0).rendered() }.joined(separator: ", ")
    scene.folder.write(
      """
      {
        "version": 1, "name": "scene",
        "plugins": [\(list)],
        "input": { "files": ["in/*"] },
        "stages": [
          { "stage": "decode" },
          \(stage),
          { "stage": "encode", "format": "png" },
          { "stage": "write", "to": "out/${item.stem}.png" }
        ]
      }
      """, to: "job.json")
  }

  private static func pixels(_ scene: Scene, _ name: String) throws -> [UInt8] {
    try EncodedPicture(bytes: EncodedBytes(try #require(scene.folder.read(name)))).pixels().bytes()
  }

  @Test func aStageOfAPluginIsAStage() throws {
    let plugin = TestPlugins.plugin("GOOD")
    let scene = try Self.scene(plugins: [plugin], stage: #"{ "stage": "test.plugin", "share": 0.5, "spoken": true }"#)
    let result = scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == 0, "\(result.error)")
    let before = try Self.pixels(scene, "in/p01.jpg")
    let after = try Self.pixels(scene, "out/p01.png")
    #expect(zip(before, after).allSatisfy { UInt8(Double($0) * 0.5 + 0.5) == $1 })
    let report = try scene.report()
    try check(report, exitCode: 0, in: scene)
    #expect(report["run"]?["versions"]?["test.plugin"]?.stringValue?.hasPrefix("1, SHA-256 ") == true)
    let item = try #require(report["items"]?.arrayValue?.first)
    #expect(item["warnings"]?.arrayValue?.first?["code"]?.stringValue == "spoken")
    #expect(item["warnings"]?.arrayValue?.first?["message"]?.stringValue == "in/p00.jpg")
    #expect(item["facts"]?["test.plugin.said"]?.stringValue == "hello")
  }

  @Test func pathsAreRelativeToTheJobAndToTheFolder() throws {
    let scene = try Self.scene(plugins: ["libown.so"])
    let library = try #require(TemporaryFolder.read(TestPlugins.plugin("GOOD")))
    scene.folder.write(library, to: "libown.so")
    let settings = scene.settings { $0.folder = "/" }
    let result = RunProgram.run(["lint", scene.folder["job.json"]], settings)
    #expect(result.exitCode == 0, "\(result.output)")
    Self.write(scene, [], #"{ "stage": "test.plugin" }"#)
    #expect(scene.run("lint", "job.json").exitCode == 3)
    #expect(scene.run("lint", "job.json", "--plugin", "libown.so").exitCode == 0)
    #expect(scene.run("run", "job.json", "--plugin", "./libown.so").exitCode == 0)
  }

  @Test func fieldsAreLintedAndShown() throws {
    let plugin = TestPlugins.plugin("GOOD")
    let scene = try Self.scene(
      plugins: [plugin], stage: #"{ "stage": "test.plugin", "shar": 1, "times": 10, "how": "non" }"#)
    let lint = scene.run("lint", "job.json", "--format", "json")
    #expect(lint.exitCode == 3)
    let codes = try json(lint.output)["diagnostics"]?.arrayValue ?? json(lint.output).arrayValue ?? []
    #expect(Set(codes.compactMap { $0["code"]?.stringValue }) == ["unknown-key", "out-of-range", "unknown-value"])
    let page = scene.run("stages", "test.plugin", "--plugin", plugin).output
    #expect(page.contains("share: a number from 0 to 1; default 0.75"))
    #expect(page.contains("\"none\": nothing is done"))
    let schema = try json(scene.run("schema", "--plugin", plugin).output)
    #expect(schema["$defs"]?["test.plugin"]?["properties"]?["times"] != nil)
    #expect(scene.run("stages").output.contains("test.plugin") == false)
  }

  @Test(arguments: [
    ("ABI=7", "plugin-abi"), ("MINOR=3", "plugin-libvips"), ("FAULT_ENTRY", "plugin-entry"),
    (#"NAME="darker""#, "plugin-name"), (#"NAME="a..b""#, "plugin-spec"), ("SPEC=NULL", "plugin-spec"),
    (#"SPEC="{}""#, "plugin-spec"), (#"FACTS="\"depth\": 12,""#, "plugin-spec"),
    (#"FACTS="\"moves\": 1,""#, "plugin-spec"),
    (#"FACTS="\"turns\": true,""#, "plugin-spec"),
  ])
  func whatCannotBeTakenIsRefusedByName(_ definition: String, _ code: String) throws {
    let plugin = TestPlugins.plugin(definition)
    let scene = try Self.scene(plugins: [plugin])
    let run = scene.run("run", "job.json")
    #expect(run.exitCode == 4, "\(run.error)")
    #expect(run.error.contains("[\(code)]") && run.error.contains(plugin), "\(run.error)")
    #expect(scene.folder.read("out/p00.png") == nil)
    // A stage that is missing for that reason is not said to be unknown.
    #expect(!run.error.contains("unknown-stage"))
    let lint = scene.run("lint", "job.json")
    #expect(lint.exitCode == 3)
    #expect(lint.output.contains("job.json:3:15: error: ") && lint.output.contains("[\(code)]"), "\(lint.output)")
    let named = scene.run("run", "job.json", "--plugin", plugin)
    #expect(named.exitCode == 4)
    #expect(named.error.contains(plugin))
  }

  @Test func filesThatAreNoneAreRefused() throws {
    let scene = try Self.scene(plugins: ["nothing.so", "in/p00.jpg", "in"])
    let result = scene.run("run", "job.json")
    #expect(result.exitCode == 4)
    #expect(result.error.contains("nothing.so cannot be opened (No such file"), "\(result.error)")
    #expect(result.error.contains("p00.jpg cannot be loaded (") && result.error.contains("invalid ELF header"))
    #expect(result.error.contains("/in is no file"))
    // Nothing is searched for.
    Self.write(scene, ["libvips.so.42"], #"{ "stage": "test.plugin" }"#)
    #expect(scene.run("run", "job.json").error.contains("libvips.so.42 cannot be opened"))
  }

  @Test func aNameIsTakenOnce() throws {
    let plugin = TestPlugins.plugin("GOOD")
    let scene = try Self.scene(plugins: [plugin, plugin])
    #expect(scene.run("run", "job.json", "--plugin", plugin).exitCode == 0)
    Self.write(scene, [plugin, TestPlugins.plugin("FAULT_LEAK")], #"{ "stage": "test.plugin" }"#)
    let result = scene.run("run", "job.json")
    #expect(result.exitCode == 4)
    #expect(result.error.contains("[plugin-name-taken]") && result.error.contains("and so does plugin \(plugin)"))
  }

  @Test func whatCannotStartSaysWhy() throws {
    let scene = try Self.scene(
      plugins: [TestPlugins.plugin("GOOD")], stage: #"{ "stage": "test.plugin", "table": "tables/none.csv" }"#)
    let result = scene.run("run", "job.json")
    #expect(result.exitCode == 4)
    #expect(result.error.contains(#"stage "test.plugin" cannot start: "#), "\(result.error)")
    #expect(result.error.contains("\(scene.folder["tables/none.csv"]) cannot be read"), "\(result.error)")
    scene.folder.write("1", to: "tables/none.csv")
    #expect(scene.run("run", "job.json").exitCode == 0)
  }

  @Test(arguments: [
    ("FAULT_SIZE", "plugin-size"), ("FAULT_LAZY", "plugin-pixels"), ("FAULT_NOTHING", "plugin-nothing"),
  ])
  func aBadResultFailsThePictureAndNotTheRun(_ fault: String, _ code: String) throws {
    let scene = try Self.scene(plugins: [TestPlugins.plugin(fault)])
    let result = scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == 1, "\(result.error)")
    let report = try scene.report()
    try check(report, exitCode: 1, in: scene)
    let codes = report["items"]?.arrayValue?.map { $0["error"]?["code"]?.stringValue }
    #expect(codes == [code, code, code])
  }

  /// However much a plugin has to say, the report stays one that can be read.
  @Test func wordsAreBoundedAndPlain() throws {
    let scene = try Self.scene(1, plugins: [TestPlugins.plugin("FAULT_FLOOD")])
    #expect(scene.run("run", "job.json", "--report", "report.json").exitCode == 0)
    let item = try #require(try scene.report()["items"]?.arrayValue?.first)
    let warnings = (item["warnings"]?.arrayValue ?? []).compactMap { $0["message"]?.stringValue }
    #expect(!warnings.isEmpty && warnings.count <= 20)
    for text in warnings + [item["facts"]?["test.plugin.flood"]?.stringValue ?? ""] {
      #expect(text.hasPrefix("red") && text.utf8.count < 1100)
      #expect(!text.unicodeScalars.contains { $0.value < 0x20 && $0 != "\n" })
    }
  }

  /// Paths reach a plugin as the file system has them, whatever reports would make of the name.
  @Test func pathsAreNotEscaped() throws {
    let scene = try Self.scene(
      plugins: [TestPlugins.plugin("GOOD")], stage: #"{ "stage": "test.plugin", "table": "50%25 x/table.csv" }"#)
    scene.folder.write("1", to: "50%25 x/table.csv")
    #expect(scene.run("run", "job.json").exitCode == 0)
  }

  /// However much a library writes, no line is lost and the run is not held up.
  @Test func manyLinesAreTaken() throws {
    let scene = try Self.scene(1, plugins: [TestPlugins.plugin("FAULT_SPAM")])
    let result = scene.run("run", "job.json", "--log-format", "json")
    #expect(result.exitCode == 0)
    let summary = try #require(result.error.split(separator: "\n").last.map(String.init))
    #expect(try json(summary)["libraryLines"]?.integer == 300_000)
  }

  @Test func aResultIsHeldToTheLimits() throws {
    let scene = try Self.scene(plugins: [TestPlugins.plugin("FAULT_LARGE", #"FACTS="\"moves\": true,""#)])
    let result = scene.run("run", "job.json")
    #expect(result.exitCode == 1)
    #expect(result.error.contains("plugin test.plugin made 20000×20000 pixels, more than the limits allow"))
  }

  /// What is wrong before the first picture is put down to the plugin by name, and never taken for success.
  @Test(arguments: [
    ("FAULT_EXIT_ENTRY", "was being opened and ended the program", 4),
    ("FAULT_QUICK_EXIT_ENTRY", "was being opened and ended the program", 4),
    ("FAULT_CRASH_ENTRY", "was being opened and crashed", nil),
    ("FAULT_EXIT_CREATE", "was being made ready and ended the program", 4),
    ("FAULT_CRASH_CREATE", "was being made ready and crashed", nil),
  ])
  func aPluginThatEndsTheProgramIsNamed(_ fault: String, _ words: String, _ code: Int32?) throws {
    let plugin = TestPlugins.plugin(fault)
    let scene = try Self.scene(plugins: [plugin])
    let result = scene.run("run", "job.json", "--quiet")
    #expect(result.exitCode == code, "\(result.error)")
    #expect(result.error.contains("pipeline: plugin \(plugin) \(words)"), "\(result.error)")
    #expect(scene.folder.tree().allSatisfy { !$0.hasPrefix("out/") })
    if fault.hasSuffix("ENTRY") {
      for command in [["lint", "job.json"], ["plugin", "test", plugin]] {
        let other = RunProgram.run(command, scene.settings())
        #expect(other.exitCode == code && other.error.contains(words), "\(other.error)")
      }
    }
  }

  /// What a plugin prints does not get into results.
  @Test func resultsStayWhatTheyAre() throws {
    let plugin = TestPlugins.plugin("FAULT_TALK")
    let scene = try Self.scene(plugins: [plugin])
    for command in [
      ["plan", "job.json", "--format", "json"], ["schema", "job", "--plugin", plugin],
      ["plugin", "test", plugin, "--line", "size", "--format", "json"],
    ] {
      let result = RunProgram.run(command, scene.settings())
      #expect(result.exitCode == 0, "\(result.error)")
      _ = try json(result.output)
      #expect(result.error.contains("entry\n"))
    }
  }

  /// A file that a field leads to by default is as much a part of the settings as one that a job names.
  @Test func aFileByDefaultCounts() throws {
    let scene = try Self.scene(
      plugins: [TestPlugins.plugin(#"TABLE="\"default\": \"table.csv\",""#)], remembers: true)
    #expect(scene.run("run", "job.json").exitCode == 4)
    scene.folder.write("1", to: "table.csv")
    #expect(scene.run("run", "job.json").error.contains("3 done"))
    #expect(scene.run("run", "job.json").error.contains("3 skipped"))
    scene.folder.write("2", to: "table.csv")
    #expect(scene.run("run", "job.json").error.contains("3 done"))
  }

  @Test func anErrorHasThePluginsOwnWords() throws {
    let scene = try Self.scene(plugins: [TestPlugins.plugin("GOOD")])
    scene.folder.write(try #require(scene.folder.read("in/p00.jpg")), to: "in/refused.jpg")
    let result = scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == 1)
    let items = try #require(try scene.report()["items"]?.arrayValue)
    let error = try #require(items.compactMap { $0["error"] }.first)
    #expect(error["code"]?.stringValue == "refused-by-name")
    #expect(error["message"]?.stringValue == "in/refused.jpg: plugin test.plugin: the name says so")
    #expect(items.count { $0["status"]?.stringValue == "done" } == 3)
  }

  @Test func aCrashFailsItsPictureAndNoOther() throws {
    let scene = try Self.scene(12, plugins: [TestPlugins.plugin("GOOD")])
    let picture = try #require(scene.folder.read("in/p00.jpg"))
    scene.folder.write(picture, to: "in/p05-segv.jpg")
    scene.folder.write(picture, to: "in/p07-segv.jpg")
    let result = scene.run("run", "job.json", "--jobs", "2", "--report", "report.json") {
      $0.environment = ["SWIFT_BACKTRACE": "enable=no", "PATH": "/usr/bin:/bin"]
    }
    #expect(result.exitCode == 1, "\(result.error)")
    let report = try scene.report()
    try check(report, exitCode: 1, in: scene)
    for item in report["items"]?.arrayValue ?? [] {
      let isFaulty = item["input"]?.stringValue?.contains("segv") == true
      #expect(item["error"]?["code"]?.stringValue == (isFaulty ? "crash" : nil))
    }
  }

  /// Of `exec` before a stage that crashes neither folders nor programs stay behind.
  @Test func aCrashLeavesNothingOfExecBehind() throws {
    let scene = try Self.scene(
      8, plugins: [TestPlugins.plugin("GOOD")],
      stage: #"""
        { "stage": "exec", "command": ["sh", "-c", "setsid sh -c 'echo $$ >> \"$1/pids\"; exec sleep 600' sh \"$1\" & cat", "sh", "${job.dir}"] },
        { "stage": "test.plugin" }
        """#)
    scene.folder.makeFolder("tmp")
    scene.folder.write(try #require(scene.folder.read("in/p00.jpg")), to: "in/p03-segv.jpg")
    let result = scene.run("run", "job.json") {
      $0.environment = Cookbook.environment(["TMPDIR": scene.folder["tmp"]])
    }
    #expect(result.exitCode == 1, "\(result.error)")
    #expect(scene.folder.tree().allSatisfy { !$0.hasPrefix("tmp/pipeline-exec") }, "\(scene.folder.tree())")
    let pids = String(decoding: try #require(scene.folder.read("pids")), as: UTF8.self).split(separator: "\n")
    #expect(pids.count >= 7)
    for pid in pids.compactMap({ Int32($0) }) {
      let state = String(decoding: TemporaryFolder.read("/proc/\(pid)/stat") ?? [], as: UTF8.self)
      #expect(kill(pid, 0) != 0 || state.contains(") Z "), "\(pid) lives on")
    }
  }

  @Test func aPluginThatChangedDoesPicturesAgain() throws {
    let scene = try Self.scene(plugins: ["./libown.so"], remembers: true)
    scene.folder.write(try #require(TemporaryFolder.read(TestPlugins.plugin("GOOD"))), to: "libown.so")
    #expect(scene.run("run", "job.json").error.contains("3 done"))
    #expect(scene.run("run", "job.json").error.contains("3 skipped"))
    scene.folder.remove("libown.so")
    scene.folder.write(try #require(TemporaryFolder.read(TestPlugins.plugin("FAULT_OPAQUE"))), to: "libown.so")
    #expect(scene.run("run", "job.json").error.contains("3 done"))
  }

  @Test func whatPassesIsTheSamePicture() throws {
    let scene = try Self.scene(
      plugins: [TestPlugins.plugin("GOOD")], stage: #"{ "stage": "test.plugin", "how": "none" }"#)
    #expect(scene.run("run", "job.json").exitCode == 0)
    #expect(try Self.pixels(scene, "in/p02.jpg") == Self.pixels(scene, "out/p02.png"))
  }

  // MARK: Examples

  @Test func grainIsTheSameInEveryRun() throws {
    let grain = TestPlugins.example("grain-c", library: "libgrain.so")
    let scene = try Self.scene(plugins: [grain], stage: #"{ "stage": "example.grain", "amount": 20 }"#)
    #expect(scene.run("run", "job.json").exitCode == 0)
    let first = try Self.pixels(scene, "out/p00.png")
    #expect(scene.run("run", "job.json").exitCode == 0)
    #expect(try Self.pixels(scene, "out/p00.png") == first)
    #expect(try Self.pixels(scene, "out/p01.png") != first)
    // About as strong as asked: a deviation of 20 is a mean distance of 16, less what is cut off at black and white.
    let before = try Self.pixels(scene, "in/p00.jpg")
    let mean = Double(zip(before, first).reduce(0) { $0 + abs(Int($1.0) - Int($1.1)) }) / Double(before.count)
    #expect((12...17).contains(mean), "\(mean)")
  }

  @Test func vignetteDarkensTheCorners() throws {
    let vignette = TestPlugins.example("vignette-swift", library: "libvignette.so")
    let scene = try Self.scene(
      plugins: [vignette], stage: #"{ "stage": "example.vignette", "strength": 1, "begin": 0 }"#)
    let result = scene.run("run", "job.json")
    #expect(result.exitCode == 0, "\(result.error)")
    let (before, after) = (try Self.pixels(scene, "in/p00.jpg"), try Self.pixels(scene, "out/p00.png"))
    let middle = (32 * 64 + 32) * 3
    #expect(abs(Int(before[middle]) - Int(after[middle])) <= 1)
    #expect(after[0] <= before[0] / 16)
  }

  @Test func aStageCompiledInIsAStage() throws {
    let program =
      RunProgram.builtProgram.lastIndex(of: "/").map { String(RunProgram.builtProgram[...$0]) + "pipeline-example" }
      ?? "pipeline-example"
    let scene = try Self.scene(plugins: [], stage: #"{ "stage": "example.soften", "sigma": 3 }"#)
    let result = RunProgram.run(["run", "job.json"], scene.settings(), program: program)
    #expect(result.exitCode == 0, "\(result.error)")
    func roughness(_ pixels: [UInt8]) -> Int {
      zip(pixels, pixels.dropFirst(3)).reduce(0) { $0 + abs(Int($1.0) - Int($1.1)) }
    }
    #expect(try roughness(Self.pixels(scene, "out/p00.png")) * 3 < roughness(Self.pixels(scene, "in/p00.jpg")))
  }

  /// The package itself: its manifest against this one, and in long runs a build of it.
  @Test func theExamplePackageResolves() throws {
    let package = #filePath.split(separator: "/", omittingEmptySubsequences: false).dropLast(3).joined(separator: "/")
    let folder = TemporaryFolder()
    let command = ProofScene.isSoak ? ["build"] : ["package"]
    let result = RunProgram.run(
      ["swift"] + command + [
        "--package-path", package + "/pipelines/plugins/compiled-in", "--scratch-path", folder.path,
      ]
        + (ProofScene.isSoak ? [] : ["show-dependencies"]), program: "/usr/bin/env", limit: 1800)
    #expect(result.exitCode == 0, "\(result.error)")
  }
}
