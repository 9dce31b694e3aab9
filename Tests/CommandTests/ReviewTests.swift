import Glibc
import Imaging
import Inference
import JobSyntax
import TestSupport
import Testing

private let modelIsInstalled: Bool = {
  let home = PipelineHome.current
  guard let u2netp = ModelCatalogue.named("u2netp") else { return false }
  return (try? home.locateRuntime()) != nil && (try? ModelCatalogue.locate(u2netp, home: home)) != nil
}()
private let testData = getenv("PIPELINE_TEST_DATA").map { String(cString: $0) } ?? "../shared/data"
private let needsModel: Comment = "needs the OpenVINO runtime and u2netp: make provision"

/// Scores, further providers and pictures put aside for a person, from outside.
@Suite struct ReviewTests {
  /// A lit ball on a dim floor, which u2netp finds, and a grey picture, in which nothing is to be found.
  private func scene() throws -> (scene: Scene, ball: [UInt8], grey: [UInt8]) {
    let scene = try Scene()
    let (width, height) = (120, 90)
    var bytes: [UInt8] = []
    for y in 0..<height {
      for x in 0..<width {
        let distance = (x - 50) * (x - 50) + (y - 45) * (y - 45)
        let isBall = distance < 625
        bytes += isBall ? [UInt8(230 - distance / 6), UInt8(120 - distance / 12), 60] : [UInt8(40 + y / 3), 50, 60]
      }
    }
    let ball = try Image(width: width, height: height, bands: 3, bytes: bytes).encoded(.png(.init())).array
    let grey = try Image(width: 64, height: 48, bands: 3, bytes: [UInt8](repeating: 128, count: 64 * 48 * 3))
      .encoded(.png(.init())).array
    scene.folder.write(ball, to: "in/a/ball.png")
    return (scene, ball, grey)
  }

  private func job(_ scene: Scene, _ segment: String, write: String = "") {
    scene.job(
      encode: "{ \"stage\": \"segment\"\(segment) }, { \"stage\": \"encode\", \"format\": \"png\" }",
      to: "out/${item.dir}/${item.stem}.${ext}", write: write, input: #"{ "files": ["in/**/*"] }"#)
  }

  private func item(_ name: String, _ report: JSONNode) throws -> JSONNode {
    try #require(report["items"]?.arrayValue?.first { $0["input"]?.stringValue?.hasSuffix(name) ?? false })
  }

  @Test("every mask has its score in the report", .enabled(if: modelIsInstalled, needsModel))
  func scores() throws {
    let (scene, _, _) = try scene()
    job(scene, "")
    let result = scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == 0, "\(result.error)")
    let mattes = try #require(try item("ball.png", try scene.report())["mattes"]?.arrayValue)
    #expect(mattes.count == 1)
    let matte = try #require(mattes.first)
    #expect(matte["provider"]?.stringValue == "local")
    #expect(matte["model"]?.stringValue == "u2netp")
    #expect(matte["islands"]?.integer == 1)
    // A ball with a radius of 25 in 120 × 90 pixels.
    let coverage = try #require(matte["coverage"]?.numberValue?.double)
    #expect(abs(coverage - 0.1818) < 0.02)
    let score = try #require(matte["score"]?.numberValue?.double)
    #expect(score > 0.75 && score <= 1)
    #expect(matte["border"]?.numberValue?.double == 0)
    for key in ["softness", "score"] { #expect(matte[key]?.numberValue?.double != nil) }
    #expect(matte["flip"] == nil)
  }

  @Test("the mirror image is looked at where the job says so", .enabled(if: modelIsInstalled, needsModel))
  func flip() throws {
    let (scene, _, _) = try scene()
    job(scene, "")
    #expect(scene.run("run", "job.json", "--report", "report.json").exitCode == 0)
    let plain = try #require(try item("ball.png", try scene.report())["mattes"]?.arrayValue?.first)
    job(scene, #", "judge": "flip""#)
    let result = scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == 0, "\(result.error)")
    let judged = try #require(try item("ball.png", try scene.report())["mattes"]?.arrayValue?.first)
    let agreement = try #require(judged["flip"]?.numberValue?.double)
    #expect(agreement > 0.9 && agreement <= 1)
    #expect(judged["score"]?.numberValue?.double == plain["score"]?.numberValue?.double)
  }

  /// u2netp is at a loss before four bronze men in front of a wall (score 0.17), and sure of the other photo.
  @Test(
    "only the hard photo goes to the second model",
    .enabled(
      if: modelIsInstalled && access(testData + "/models", R_OK) == 0 && access(testData + "/matte", R_OK) == 0,
      "needs the OpenVINO runtime, u2netp (make provision) and the test data (PIPELINE_TEST_DATA)"))
  func secondModel() throws {
    let (scene, _, _) = try scene()
    for name in ["0605", "0355"] {
      let photo = try #require(TemporaryFolder.read("\(testData)/matte/ecssd/images/\(name).jpg"))
      scene.folder.write(photo, to: "in/b/\(name).jpg")
    }
    let model = try #require(TemporaryFolder.read(testData + "/models/deeplabv3_257_mv_gpu.tflite"))
    scene.folder.write(model, to: "models/deeplab.tflite")
    func run(_ providers: String...) throws -> JSONNode {
      job(scene, ", \"providers\": [\(providers.joined(separator: ", "))], \"minScore\": 0.5")
      let result = scene.run("run", "job.json", "--report", "report.json")
      #expect(result.exitCode == 0, "\(result.error)")
      return try scene.report()
    }
    func mattes(_ name: String, _ report: JSONNode) throws -> [(model: String?, score: Double)] {
      try #require(try item(name, report)["mattes"]?.arrayValue).map {
        ($0["model"]?.stringValue, $0["score"]?.numberValue?.double ?? 0)
      }
    }
    let deepLab = #""model": "models/deeplab.tflite", "recipe": "deeplabv3-257", "classes": ["person"]"#
    let report = try run(#"{ "model": "u2netp" }"#, "{ \(deepLab), \"on\": [\"lowScore\"] }")
    #expect(try mattes("0355.jpg", report).map(\.model) == ["u2netp"])
    #expect(try mattes("ball.png", report).map(\.model) == ["u2netp"])
    #expect(try mattes("0605.jpg", report).map(\.model) == ["u2netp", "models/deeplab.tflite"])
    // DeepLab is none the wiser, and the mask that is kept is the better of two bad ones.
    #expect(try mattes("0605.jpg", report).allSatisfy { $0.score < 0.5 })
    #expect(
      try item("0605.jpg", report)["warnings"]?.arrayValue?.map { $0["code"]?.stringValue } == ["low-score"])
    #expect(report["run"]?["model"]?["name"]?.stringValue == "u2netp")
    #expect(report["run"]?["model.models/deeplab.tflite"]?["sha256"]?.stringValue != nil)

    // The other way round: there is no person in it, and u2netp comes in.
    let other = try run("{ \(deepLab) }", #"{ "model": "u2netp", "on": ["lowScore", "empty"] }"#)
    let last = try #require(try mattes("0355.jpg", other).last)
    #expect(last.model == "u2netp" && last.score > 0.9)
    #expect(try item("0355.jpg", other)["warnings"]?.arrayValue?.isEmpty == true)
  }

  @Test("a low score asks the next provider, and no other picture does", .enabled(if: modelIsInstalled, needsModel))
  func fallback() throws {
    let (scene, _, grey) = try scene()
    scene.folder.write(grey, to: "in/b/grey.png")
    let chain = #", "providers": [{ "model": "u2netp" }, { "precision": "fast", "on": ["lowScore"] }]"#
    job(scene, chain + #", "onEmpty": "keep", "minScore": 1"#)
    let result = scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == 0, "\(result.error)")
    let report = try scene.report()
    let ball = try item("ball.png", report)
    #expect(ball["mattes"]?.arrayValue?.count == 2)
    // Nobody made a mask that is good enough: the best is used, and the report says so.
    #expect(ball["warnings"]?.arrayValue?.map { $0["code"]?.stringValue } == ["low-score"])
    #expect(ball["status"]?.stringValue == "done")
    // The second is not there for empty pictures.
    let empty = try item("grey.png", report)
    #expect(empty["mattes"] == nil)
    #expect(empty["warnings"]?.arrayValue?.map { $0["code"]?.stringValue } == ["nothing-found"])

    job(scene, chain + #", "onEmpty": "keep", "minScore": 0.1"#)
    #expect(scene.run("run", "job.json", "--report", "report.json").exitCode == 0)
    #expect(try item("ball.png", try scene.report())["mattes"]?.arrayValue?.count == 1)
  }

  @Test("what nothing good is made of is copied for a person", .enabled(if: modelIsInstalled, needsModel))
  func review() throws {
    let (scene, ball, grey) = try scene()
    scene.folder.write(grey, to: "in/b/grey.png")
    let review = #", "otherwise": "review", "review": { "to": "out/review/${item.dir}/${item.name}" }"#
    job(scene, review + #", "minScore": 0.1"#)
    let result = scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == 0, "\(result.error)")
    let report = try scene.report()
    try check(report, exitCode: 0, in: scene)
    #expect(report["run"]?["counts"]?["review"]?.integer == 1)
    #expect(report["run"]?["counts"]?["done"]?.integer == 1)
    let item = try item("grey.png", report)
    #expect(item["status"]?.stringValue == "review")
    #expect(item["reason"]?.stringValue?.contains("u2netp found nothing; copied to") == true)
    #expect(item["error"] == nil)
    #expect(scene.folder.read("out/review/b/grey.png") == grey)
    #expect(scene.folder.read("in/b/grey.png") == grey)
    #expect(
      scene.folder.tree().filter { $0.hasSuffix(".png") && $0.hasPrefix("out/") }.sorted() == [
        "out/a/ball.png", "out/review/b/grey.png",
      ])
    #expect(result.error.contains("scene: 1 done, 1 for review of 2 in "))
    #expect(result.error.contains("for review: 1 picture\n  in/b/grey.png: u2netp found nothing"))
    #expect(scene.temporaries.isEmpty)

    // Again, with the copy there; and with all masks too bad.
    job(scene, review + #", "minScore": 1"#)
    let again = scene.run("run", "job.json", "--report", "report.json", "--quiet")
    #expect(again.exitCode == 0)
    #expect(again.error.isEmpty)
    #expect(try scene.report()["run"]?["counts"]?["review"]?.integer == 2)
    #expect(scene.folder.read("out/review/a/ball.png") == ball)

    // Another file in the copy's place is never touched.
    scene.folder.write("somebody's", to: "out/review/b/grey.png")
    let refused = scene.run("run", "job.json", "--report", "report.json")
    #expect(refused.exitCode == 1)
    #expect(refused.error.contains("output-exists"))
    #expect(scene.folder.read("out/review/b/grey.png") == Array("somebody's".utf8))
  }

  @Test("or fails", .enabled(if: modelIsInstalled, needsModel))
  func otherwiseFail() throws {
    let (scene, _, _) = try scene()
    job(scene, #", "otherwise": "fail", "minScore": 1"#)
    let result = scene.run("run", "job.json", "--report", "report.json")
    #expect(result.exitCode == 1)
    let item = try item("ball.png", try scene.report())
    #expect(item["error"]?["code"]?.stringValue == "low-score")
    #expect(item["mattes"]?.arrayValue?.count == 1)
    #expect(scene.folder.read("out/a/ball.png") == nil)
  }

  @Test("a model that is only the second must be there at the start", .enabled(if: modelIsInstalled, needsModel))
  func missingSpare() throws {
    let (scene, _, _) = try scene()
    // Some of the catalogue are not to be had by chance: `make provision` installs one.
    let absent = ModelCatalogue.all.first { (try? ModelCatalogue.locate($0)) == nil }
    guard let absent else { return }
    job(scene, ", \"providers\": [{}, { \"model\": \"\(absent.name)\", \"on\": [\"lowScore\"] }]")
    let result = scene.run("run", "job.json")
    #expect(result.exitCode == 4, "\(result.error)")
    #expect(result.error.contains("model \(absent.name) was not found"))
  }

  /// After three crashes the pictures are worked on in other processes.
  @Test func whatAChildPutsAsideIsToldLikeAllElse() throws {
    let faulty = try FaultyScene(6, faults: [0: "segv", 1: "segv", 2: "segv", 4: "review", 5: "review"])
    let result = faulty.start("--jobs", "1").finish()
    #expect(result.exitCode == 1, "\(result.error)")
    let report = try faulty.scene.report()
    #expect(report["run"]?["crashes"]?.integer == 3)
    let statuses = report["items"]?.arrayValue?.map { $0["status"]?.stringValue ?? "" }
    #expect(statuses == ["failed", "failed", "failed", "done", "review", "review"])
    for name in ["p004-review.jpg", "p005-review.jpg"] {
      let item = try item(name, report)
      #expect(item["reason"]?.stringValue == "the picture's name says so")
      #expect(item["mattes"]?.arrayValue?.first?["score"]?.numberValue?.double == 0.25)
    }
    #expect(result.error.contains("for review: 2 pictures"), "\(result.error)")
  }

  @Test func theFolderForReviewIsProvedBeforehand() throws {
    let (scene, _, _) = try scene()
    func review(_ to: String, write: String = "") -> ProgramResult {
      job(scene, ", \"otherwise\": \"review\", \"review\": { \"to\": \"\(to)\" }", write: write)
      return scene.run("plan", "job.json")
    }
    // The next run would read it.
    let inside = review("in/review/${item.name}")
    #expect(inside.exitCode == 3)
    #expect(inside.error.contains("output-inside-input") && !inside.error.contains("inPlace"), "\(inside.error)")
    let itself = review("in/${item.dir}/${item.name}", write: #", "inPlace": true"#)
    #expect(itself.exitCode == 3)
    let same = review("out/${item.dir}/${item.stem}.png")
    #expect(same.exitCode == 3)
    #expect(same.error.contains("output-collision"), "\(same.error)")
    let fine = review("review/${item.dir}/${item.name}")
    #expect(fine.exitCode == 0, "\(fine.error)")
    #expect(!fine.output.contains("review/"))
  }

  @Test("a copy for review does not make a picture done", .enabled(if: modelIsInstalled, needsModel))
  func copiesAreNoOutputs() throws {
    let (scene, ball, _) = try scene()
    scene.folder.write(ball, to: "review/a/ball.png")
    job(
      scene, #", "otherwise": "review", "review": { "to": "review/${item.dir}/${item.name}" }, "minScore": 0.1"#,
      write: #", "overwrite": "skip""#)
    #expect(scene.run("run", "job.json", "--report", "report.json").exitCode == 0)
    #expect(try scene.report()["run"]?["counts"]?["done"]?.integer == 1)
    // And its absence does not undo one.
    let again = scene.run("run", "job.json", "--report", "report.json")
    #expect(again.exitCode == 0)
    #expect(try scene.report()["run"]?["counts"]?["skipped"]?.integer == 1)
  }
}
