import Glibc
import Imaging
import JobSyntax
import TestSupport
import Testing

/// `pipeline explain` from outside.
@Suite struct ExplainTests {
  private func explain(_ scene: Scene, _ arguments: String..., change: (inout RunProgram.Settings) -> Void = { _ in })
    -> ProgramResult
  {
    RunProgram.run(["explain"] + arguments, scene.settings(change))
  }

  private func stages(_ scene: Scene, _ folder: String) throws -> [JSONNode] {
    let explanation = try json(try #require(scene.folder.read(folder + "/explain.json")))
    return try #require(explanation["stages"]?.arrayValue)
  }

  private func files(_ stage: JSONNode?) -> [String] {
    (stage?["files"]?.arrayValue ?? []).compactMap { $0["file"]?.stringValue }
  }

  private func image(_ scene: Scene, _ name: String) throws -> Image {
    try EncodedPicture(
      bytes: EncodedBytes(try #require(scene.folder.read(name))),
      options: DecodeOptions(space: WorkingSpace(gamut: .source, depth: .source))
    ).pixels()
  }

  @Test func theLastPictureIsWhatARunWrites() throws {
    let scene = try Scene(pictures: 2, side: 200)
    scene.job(
      encode: #"{ "stage": "resize", "width": 60 }, { "stage": "sharpen" }, { "stage": "encode", "format": "webp" }"#)
    let result = explain(scene, "job.json", "in/p01.jpg")
    #expect(result.exitCode == 0, "\(result.error)")
    // Nothing of the job's is touched.
    #expect(scene.folder.read(".pipeline/ledger.sqlite") == nil)
    #expect(!scene.folder.tree().contains { $0.hasPrefix("out") || $0.hasPrefix(".pipeline") })
    let folder = "p01.jpg.explained"
    let stages = try stages(scene, folder)
    #expect(stages.compactMap { $0["stage"]?.stringValue } == ["decode", "resize", "sharpen", "encode", "write"])
    #expect(stages.compactMap { $0["fate"]?.stringValue } == ["passed", "passed", "passed", "passed", "withheld"])
    #expect(stages[4]["reason"]?.stringValue?.hasSuffix("to \(scene.folder["out/p01.webp"])") == true)
    #expect(stages[1]["settings"]?["fit"]?.stringValue != nil)
    #expect(stages.dropLast().allSatisfy { ($0["milliseconds"]?.numberValue?.double ?? -1) >= 0 })
    #expect(stages[0]["width"]?.integer == 200 && stages[1]["width"]?.integer == 60)
    let decoded = try image(scene, folder + "/" + (try #require(files(stages[0]).first)))
    #expect(decoded.width == 200 && decoded.height == 200)
    #expect(try image(scene, folder + "/" + (try #require(files(stages[1]).first))).width == 60)
    #expect(scene.run("run", "job.json").exitCode == 0)
    let encoded = try #require(files(stages[3]).first)
    #expect(encoded == "04-encode.webp")
    #expect(scene.folder.read(folder + "/" + encoded) == scene.folder.read("out/p01.webp"))
    let page = String(decoding: try #require(scene.folder.read(folder + "/index.html")), as: UTF8.self)
    for stage in stages { #expect(page.contains(try #require(stage["stage"]?.stringValue))) }
    for name in stages.flatMap(files) { #expect(page.contains("href=\"./\(name)\""), "\(name)") }
  }

  @Test func allTailsAreShown() throws {
    let scene = try Scene(pictures: 1, side: 100)
    scene.folder.write(
      """
      { "version": 1, "name": "tails", "input": { "files": ["in/*"] }, "stages": [
        { "stage": "decode" },
        { "stage": "branch", "branches": {
          "small": [ { "stage": "resize", "width": 10 }, { "stage": "encode", "format": "png" },
                     { "stage": "write", "to": "s/${item.stem}.png" } ],
          "large": [ { "stage": "encode", "format": "jpeg" }, { "stage": "write", "to": "l/${item.stem}.jpg" } ] } } ] }
      """, to: "job.json")
    let result = explain(scene, "job.json", "in/p00.jpg", "--to", "look")
    #expect(result.exitCode == 0, "\(result.error)")
    let stages = try stages(scene, "look")
    #expect(
      stages.compactMap { $0["stage"]?.stringValue } == [
        "decode", "branch", "small/resize", "small/encode", "small/write", "large/encode", "large/write",
      ])
    #expect(scene.run("run", "job.json").exitCode == 0)
    #expect(scene.folder.read("look/" + (files(stages[3]).first ?? "")) == scene.folder.read("s/p00.png"))
    #expect(scene.folder.read("look/" + (files(stages[5]).first ?? "")) == scene.folder.read("l/p00.jpg"))
    // The next explanation replaces this one, and leaves nothing behind.
    let before = Set(scene.folder.tree().filter { $0.hasPrefix("look/") })
    scene.job()
    #expect(explain(scene, "job.json", "in/p00.jpg", "--to", "look").exitCode == 0)
    let after = Set(scene.folder.tree().filter { $0.hasPrefix("look/") })
    #expect(after.count < before.count)
    #expect(after.filter { !$0.hasSuffix("/") }.count == 4, "\(after)")
  }

  @Test func depthIsKept() throws {
    let scene = try Scene()
    let samples = (0..<32 * 32 * 3).map { UInt16(truncatingIfNeeded: $0 * 21 + 5) }
    let deep = try Image(width: 32, height: 32, bands: 3, samples: samples).encoded(.png(.init())).array
    scene.folder.write(deep, to: "in/deep.png")
    scene.job(encode: #"{ "stage": "encode", "format": "png", "bitDepth": "keep" }"#)
    let result = explain(scene, "job.json", "in/deep.png")
    guard result.exitCode == 0 else {
      Issue.record("\(result.error)")
      return
    }
    let first = try #require(try stages(scene, "deep.png.explained").first)
    #expect(first["bitsPerSample"]?.integer == 16)
    let shown = try image(scene, "deep.png.explained/" + (files(first).first ?? ""))
    #expect(shown.depth == 16)
    #expect(try shown.bytes() == Image(width: 32, height: 32, bands: 3, samples: samples).bytes())
  }

  /// What a crash has left does not keep the next explanation out.
  @Test(.enabled(if: TestPlugins.canBuild, "a C compiler is missing: apt-get install gcc"))
  func aCrashKeepsNobodyOut() throws {
    let scene = try Scene(pictures: 1)
    scene.folder.write(try #require(scene.folder.read("in/p00.jpg")), to: "in/segv.jpg")
    scene.job(encode: #"{ "stage": "test.plugin" }, { "stage": "encode", "format": "png" }"#)
    let plugin = TestPlugins.plugin("GOOD")
    #expect(explain(scene, "job.json", "in/segv.jpg", "--to", "look", "--plugin", plugin).signal == SIGSEGV)
    #expect(explain(scene, "job.json", "in/p00.jpg", "--to", "look", "--plugin", plugin).exitCode == 0)
    let folder = explain(scene, "job.json", "in", "--to", "other", "--plugin", plugin)
    #expect(folder.exitCode == 4 && folder.error.contains("in is no file"), "\(folder.error)")
    #expect(!scene.folder.tree().contains { $0.hasPrefix("other") })
  }

  @Test func theFailingStageIsShown() throws {
    let scene = try Scene()
    scene.folder.write("no picture", to: "in/<b>.jpg")
    scene.job()
    let result = explain(scene, "job.json", "in/<b>.jpg")
    #expect(result.exitCode == 1)
    let stages = try stages(scene, "<b>.jpg.explained")
    #expect(stages.count == 1)
    #expect(stages[0]["fate"]?.stringValue == "failed")
    #expect(stages[0]["error"]?["code"]?.stringValue != nil)
    let page = String(decoding: try #require(scene.folder.read("<b>.jpg.explained/index.html")), as: UTF8.self)
    #expect(!page.contains("<b>.jpg"))
    #expect(page.contains("&lt;b"))
  }

  @Test func nothingIsSentOrPaid() throws {
    let scene = try Scene(pictures: 1)
    scene.folder.write(
      """
      { "version": 1, "name": "paid", "input": { "files": ["in/*"] }, "budget": { "credits": 5 }, "stages": [
        { "stage": "decode" },
        { "stage": "segment", "provider": "removebg", "apiKey": "${secret.NO_SUCH_KEY}" },
        { "stage": "encode", "format": "png" }, { "stage": "write", "to": "out/${item.stem}.png" } ] }
      """, to: "job.json")
    let lint = RunProgram.run(["lint", "job.json"], scene.settings())
    #expect(lint.exitCode == 0, "\(lint.output)")
    let result = explain(scene, "job.json", "in/p00.jpg")
    #expect(result.exitCode == 0, "\(result.error)")
    let stages = try stages(scene, "p00.jpg.explained")
    #expect(stages.count == 2)
    #expect(stages[1]["fate"]?.stringValue == "withheld")
    #expect(stages[1]["reason"]?.stringValue?.contains("remove") == true)
    #expect(stages[1]["milliseconds"] == nil)
  }

  @Test func theFolderMustBeItsOwn() throws {
    let scene = try Scene(pictures: 1)
    scene.job()
    scene.folder.write("mine", to: "look/note.txt")
    let result = explain(scene, "job.json", "in/p00.jpg", "--to", "look")
    #expect(result.exitCode == 4)
    #expect(result.error.contains("holds other things than an explanation"))
    #expect(scene.folder.read("look/note.txt") == Array("mine".utf8))
    let missing = explain(scene, "job.json", "in/nothing.jpg")
    #expect(missing.exitCode == 4)
    #expect(missing.error.contains("in/nothing.jpg is not there"))
    // One that the job's input does not name is taken all the same.
    scene.folder.write(try #require(scene.folder.read("in/p00.jpg")), to: "elsewhere/x.jpg")
    #expect(explain(scene, "job.json", "elsewhere/x.jpg").exitCode == 0)
  }
}
