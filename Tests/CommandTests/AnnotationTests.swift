import JobSyntax
import TestSupport
import Testing

@testable import PipelineCommand

/// What CI systems are told, from outside.
@Suite struct AnnotationTests {
  /// A picture's name is never a command to GitHub's runner.
  @Test func namesAreNoCommands() throws {
    #expect(Screen.inert("a::b") == "a::b")
    #expect(Screen.inert("x\n  ::add-mask::b.jpg: y") == "x\n  \u{200B}::add-mask::b.jpg: y")
    #expect(Screen.inert("at ##[error]x") == "at ##\u{200B}[error]x")
    let scene = try Scene(pictures: 1)
    scene.folder.write("no picture", to: "::add-mask::b.jpg")
    scene.job()
    let result = scene.run("run", "job.json", "--input", "*.jpg", "--verbose") {
      $0.environment = Cookbook.environment(["GITHUB_ACTIONS": "true"])
    }
    #expect(result.exitCode == 1)
    #expect(result.error.contains("add-mask"))
    for line in result.error.split(separator: "\n") {
      let text = line.drop { $0 == " " }
      #expect(!text.hasPrefix("::add-mask"), "\(line)")
    }
  }

  private func gitHub(_ scene: Scene, _ more: [String: String] = [:]) -> [String: String] {
    [
      "PATH": "/usr/bin:/bin", "GITHUB_ACTIONS": "true", "CI": "true", "GITHUB_WORKSPACE": scene.folder.path,
      "GITHUB_STEP_SUMMARY": scene.folder["summary.md"],
    ].merging(more) { $1 }
  }

  /// The commands that GitHub's runner finds in a log: kind, properties, message.
  private func commands(
    _ text: String
  ) throws -> [(kind: String, properties: [String: String], message: String)] {
    func unescaped(_ text: Substring) -> String {
      String(
        text.replacing("%0D", with: "\r").replacing("%0A", with: "\n").replacing("%3A", with: ":")
          .replacing("%2C", with: ",").replacing("%25", with: "%"))
    }
    return try text.split(separator: "\n").filter { $0.hasPrefix("::") }.map { line in
      let match = try #require(line.wholeMatch(of: /::(error|warning|notice)(?: ([^:]*))?::(.*)/), "\(line)")
      var properties: [String: String] = [:]
      for property in (match.2 ?? "").split(separator: ",") {
        let parts = property.split(separator: "=", maxSplits: 1)
        properties[String(parts[0])] = parts.count == 2 ? unescaped(parts[1]) : ""
      }
      return (String(match.1), properties, unescaped(match.3))
    }
  }

  @Test func failuresAreMarked() throws {
    let scene = try Scene(pictures: 2)
    scene.folder.write("no picture", to: "in/100%: a,b\n::error::c.jpg")
    scene.job()
    let result = scene.run("run", "job.json") { $0.environment = gitHub(scene) }
    #expect(result.exitCode == 1)
    #expect(result.output.isEmpty)
    let found = try commands(result.error)
    #expect(found.count == 1)
    let mark = try #require(found.first)
    #expect(mark.kind == "error")
    #expect(mark.properties["file"] == "in/100%: a,b\n::error::c.jpg")
    #expect(mark.properties["title"]?.hasSuffix(#"in stage "decode""#) == true)
    #expect(mark.message.hasPrefix("in/100%: a,b\n::error::c.jpg: "))
    let page = String(decoding: try #require(scene.folder.read("summary.md")), as: UTF8.self)
    #expect(page.contains("1 of 3 failed"))
    #expect(page.contains("| failed | 1 |"))
    #expect(page.contains("#### Failures"))
  }

  /// GitHub shows ten: one of each cause first, and the last says how many there are.
  @Test func theyAreCappedAndSpread() throws {
    let scene = try Scene(pictures: 1)
    for index in 0..<30 { scene.folder.write("no picture", to: "in/a\(index).jpg") }
    scene.folder.write("", to: "in/z.jpg")
    scene.job()
    let result = scene.run("run", "job.json", "--quiet") { $0.environment = gitHub(scene) }
    #expect(result.exitCode == 1)
    let found = try commands(result.error).filter { $0.kind == "error" }
    #expect(found.count == 10)
    #expect(Set(found.prefix(2).map { $0.properties["title"] }).count == 2)
    #expect(found.last?.message.hasPrefix("and 22 more failures") == true, "\(found.last?.message ?? "")")
  }

  @Test func theStepsPageIsAppendedTo() throws {
    let scene = try Scene(pictures: 1)
    scene.job()
    scene.folder.write("before\n", to: "summary.md")
    #expect(scene.run("run", "job.json") { $0.environment = gitHub(scene) }.exitCode == 0)
    let page = String(decoding: try #require(scene.folder.read("summary.md")), as: UTF8.self)
    #expect(page.hasPrefix("before\n### ✅ scene: 1 of 1 done"))
    // What GitHub would no longer show is not written.
    scene.folder.write([UInt8](repeating: 65, count: 1 << 20), to: "summary.md")
    #expect(scene.run("run", "job.json") { $0.environment = gitHub(scene) }.exitCode == 0)
    #expect(scene.folder.read("summary.md")?.count == 1 << 20)
    let denied = scene.run("run", "job.json") {
      $0.environment = gitHub(scene, ["GITHUB_STEP_SUMMARY": scene.folder["missing/summary.md"]])
    }
    #expect(denied.exitCode == 1)
    #expect(denied.error.contains("the step's summary"))
  }

  @Test func onlyWhereItIsWanted() throws {
    let scene = try Scene()
    scene.folder.write("no picture", to: "in/a.jpg")
    scene.job()
    let json = scene.run("run", "job.json", "--log-format", "json") { $0.environment = gitHub(scene) }
    #expect(json.errorLines.allSatisfy { $0.hasPrefix("{") })
    #expect(scene.folder.read("summary.md") != nil)
    scene.folder.remove("summary.md")
    let none = scene.run("run", "job.json", "--annotations", "none") { $0.environment = gitHub(scene) }
    #expect(try commands(none.error).isEmpty)
    #expect(scene.folder.read("summary.md") == nil)
    let forced = scene.run("run", "job.json", "--annotations", "github") { $0.environment = ["PATH": "/usr/bin:/bin"] }
    #expect(try commands(forced.error).count == 1)
    let plain = scene.run("run", "job.json") { $0.environment = ["PATH": "/usr/bin:/bin"] }
    #expect(try commands(plain.error).isEmpty)
  }

  @Test func findingsHaveTheirPlace() throws {
    let scene = try Scene(pictures: 1)
    scene.folder.write(
      "{\n  \"version\": 1, \"name\": \"x\",\n  \"input\": { \"files\": [\"in/*\"] },\n  \"stages\": [\n"
        + "    { \"stage\": \"decode\" },\n    { \"stage\": \"resize\", \"widht\": 5 },\n"
        + "    { \"stage\": \"encode\", \"format\": \"png\" },\n"
        + "    { \"stage\": \"write\", \"to\": \"out/${item.stem}.png\" }\n  ]\n}\n", to: "sub/job.json")
    for arguments in [["lint", "sub/job.json"], ["run", "sub/job.json"]] {
      let result = RunProgram.run(arguments, scene.settings { $0.environment = gitHub(scene) })
      #expect(result.exitCode == 3)
      let mark = try #require(try commands(result.error).first { $0.message.contains("widht") }, "\(result.error)")
      #expect(mark.kind == "error")
      #expect(mark.properties["file"] == "sub/job.json")
      #expect(mark.properties["line"] == "6")
      #expect(mark.properties["col"] == "26")
    }
    let lint = scene.run("lint", "sub/job.json", "--code-quality", "gl-code-quality-report.json") {
      $0.environment = ["PATH": "/usr/bin:/bin", "GITLAB_CI": "true", "CI_PROJECT_DIR": scene.folder.path]
    }
    #expect(lint.exitCode == 3)
    let report = try json(try #require(scene.folder.read("gl-code-quality-report.json")))
    let finding = try #require(report.arrayValue?.first { $0["description"]?.stringValue?.contains("widht") ?? false })
    #expect(finding["severity"]?.stringValue == "major")
    #expect(finding["location"]?["path"]?.stringValue == "sub/job.json")
    #expect(finding["location"]?["lines"]?["begin"]?.integer == 6)
    #expect(finding["fingerprint"]?.stringValue?.count == 64)
    #expect(finding["check_name"]?.stringValue != nil)
    let prints = report.arrayValue?.compactMap { $0["fingerprint"]?.stringValue } ?? []
    #expect(Set(prints).count == prints.count)
  }

  @Test func gitLabFoldsTheList() throws {
    let scene = try Scene(pictures: 1)
    scene.folder.write("no picture", to: "in/a.jpg")
    scene.job()
    let result = scene.run("run", "job.json") { $0.environment = ["PATH": "/usr/bin:/bin", "GITLAB_CI": "true"] }
    #expect(result.exitCode == 1)
    let match = try #require(
      result.error.firstMatch(
        of:
          /\e\[0Ksection_start:(\d+):pipeline_failures\[collapsed=true\]\r\e\[0K1 picture failed\n(?s:(.*))\e\[0Ksection_end:(\d+):pipeline_failures\r\e\[0K\n/
      ))
    #expect(match.1 == match.3)
    #expect(match.2.contains("in/a.jpg"))
  }
}
