import Glibc
import JobSyntax
import TestSupport
import Testing

/// A typing error in the name of a result must not cost what is there.
@Suite struct ResultPlaceTests {
  private static func scene() throws -> Scene {
    let scene = try Scene(pictures: 2)
    scene.job()
    #expect(scene.run("run", "job.json", "--report", "report.json").exitCode == 0)
    #expect(scene.run("run", "job.json", "--force", "--shard", "1/1", "--report", "shard.json").exitCode == 0)
    scene.folder.write("what somebody has written", to: "notes.txt")
    scene.folder.write(try #require(scene.folder.read("in/p00.jpg")), to: "elsewhere.jpg")
    #expect(mkfifo(scene.folder["pipe"], 0o600) == 0)
    #expect(symlink(scene.folder["pipe"], scene.folder["link"]) == 0)
    return scene
  }

  /// Every command that writes a result, but for the place.
  private static let commands: [[String]] = [
    ["run", "job.json", "--force", "--report"], ["run", "job.json", "--force", "--html"],
    ["run", "job.json", "--force", "--junit"], ["run", "job.json", "--force", "--metrics"],
    ["report", "html", "report.json", "--output"], ["report", "merge", "shard.json", "--output"],
    ["compare", "in", "out", "--html"], ["lint", "job.json", "--code-quality"],
  ]

  @Test(arguments: commands) func whatIsOfAnotherKindStays(_ command: [String]) throws {
    let scene = try Self.scene()
    for place in ["elsewhere.jpg", "notes.txt", "job.json", "pipe", "link", "in"] {
      let before = place.hasSuffix("k") || place.hasPrefix("p") ? nil : scene.folder.read(place)
      let result = RunProgram.run(command + [place], scene.settings())
      #expect(result.exitCode == 4, "\(command) \(place): \(result.error)")
      #expect(result.error.contains("cannot be written: "), "\(command) \(place): \(result.error)")
      var status = stat()
      switch place {
      case "pipe": #expect(lstat(scene.folder[place], &status) == 0 && status.st_mode & S_IFMT == S_IFIFO)
      case "link": #expect(lstat(scene.folder[place], &status) == 0 && status.st_mode & S_IFMT == S_IFLNK)
      default: #expect(scene.folder.read(place) == before)
      }
    }
  }

  @Test(arguments: commands) func whatIsOfItsKindIsReplaced(_ command: [String]) throws {
    let scene = try Self.scene()
    #expect(RunProgram.run(command + ["result"], scene.settings()).exitCode != 4)
    let first = try #require(scene.folder.read("result"))
    #expect(!first.isEmpty)
    scene.folder.write([], to: "result")
    #expect(RunProgram.run(command + ["result"], scene.settings()).exitCode != 4)
    let second = try #require(scene.folder.read("result"))
    #expect(second.prefix(10) == first.prefix(10))
    #expect(RunProgram.run(command + ["result"], scene.settings()).exitCode != 4)
    #expect(scene.folder.read("result")?.isEmpty == false)
  }

  /// Numbers that no run could write are no reason to crash.
  @Test func absurdReportsAreRefused() throws {
    let scene = try Self.scene()
    func changed(_ name: String, _ key: String) throws {
      let text = String(decoding: try #require(scene.folder.read(name)), as: UTF8.self)
      let place = try #require(text.firstRange(of: "\"\(key)\":"))
      let rest = text[place.upperBound...].drop { $0 == " " }.drop { $0.isNumber }
      scene.folder.write(text[..<place.upperBound] + "9200000000000000000" + rest, to: "absurd-\(name)")
    }
    try changed("report.json", "bytes")
    let page = scene.run("report", "html", "absurd-report.json", "--output", "page.html")
    #expect(page.exitCode == 4 && page.error.contains("is not a whole report of this program"), "\(page.error)")
    try changed("shard.json", "done")
    let merged = scene.run("report", "merge", "absurd-shard.json", "--output", "merged.json")
    #expect(merged.exitCode == 4 && merged.error.contains("is not a whole report of this program"), "\(merged.error)")
  }

  /// What this very run has written is no page either.
  @Test func aPageDoesNotTakeAnOutputsPlace() throws {
    let scene = try Scene(pictures: 1)
    scene.job()
    let outputs = { scene.folder.tree().filter { $0.hasPrefix("out/") && !$0.hasSuffix("/") } }
    #expect(scene.run("run", "job.json").exitCode == 0)
    let output = try #require(outputs().first)
    #expect(unlink(scene.folder[output]) == 0)
    let result = scene.run("run", "job.json", "--force", "--html", output)
    #expect(result.exitCode == 1)
    #expect(result.error.contains("another file is there, which is no such page"), "\(result.error)")
    #expect(String(decoding: scene.folder.read(output)?.prefix(15) ?? [], as: UTF8.self) != "<!doctype html>")
  }
}
