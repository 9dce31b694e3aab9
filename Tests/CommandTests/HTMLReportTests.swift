import Glibc
import Imaging
import JobSyntax
import PipelineKit
import TestSupport
import Testing

/// `run --html` and `report html`, from outside.
@Suite struct HTMLReportTests {
  /// Names that would be markup, address, another file or turned text, were they taken for it.
  static let names: [[UInt8]] = [
    Array("<script>document.title='taken'<&>.jpg".utf8), Array("a\" onerror='x()' .jpg".utf8),
    Array("x\u{202E}gpj.exe.jpg".utf8), Array("50%2F #1?.jpg".utf8), Array("javascript:alert(1).jpg".utf8),
    Array("caf".utf8) + [0xE9] + Array(".jpg".utf8), Array("ä 漢.jpg".utf8),
  ]

  /// Pictures with those names, one that is none, and a job that makes them smaller.
  static func scene() throws -> Scene {
    let scene = try Scene()
    scene.folder.makeFolder("in")
    for (index, name) in names.enumerated() {
      let shade = UInt8(index * 30)
      let bytes = (0..<48 * 32).flatMap { [UInt8($0 % 256), shade, 255 - shade] }
      let picture = try Image(width: 48, height: 32, bands: 3, bytes: bytes).encoded(.jpeg(.init(quality: 90))).array
      write(picture, to: Array((scene.folder.path + "/in/").utf8) + name)
    }
    scene.folder.write("no picture", to: "in/broken.jpg")
    scene.job(encode: #"{ "stage": "encode", "format": "webp" }"#)
    return scene
  }

  private static func write(_ bytes: [UInt8], to path: [UInt8]) {
    let descriptor = (path + [0]).withUnsafeBytes {
      open($0.bindMemory(to: CChar.self).baseAddress!, O_WRONLY | O_CREAT, 0o644)
    }
    precondition(descriptor >= 0)
    _ = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
    close(descriptor)
  }

  static func page(_ scene: Scene, _ name: String = "report.html") throws -> String {
    String(decoding: try #require(scene.folder.read(name), "\(name) was not written"), as: UTF8.self)
  }

  @Test func `A run writes a page with everything in it`() throws {
    let scene = try Self.scene()
    let result = scene.run("run", "job.json", "--html", "report.html")
    #expect(result.exitCode == 1, "\(result.error)")
    #expect(result.error.contains("page: report.html, "))
    let page = try Self.page(scene)
    #expect(page.hasSuffix("</body>\n</html>\n"))
    #expect(page.contains("some pictures failed"))
    #expect(page.contains("this is a text file, not a picture that can be read"))
    // Seven pictures before, seven after.
    #expect(page.components(of: "data:image/webp;base64,") == 14)
    #expect(!scene.folder.tree().contains { $0.hasPrefix("report.files") })
    #expect(scene.temporaries.isEmpty)
  }

  @Test func `No name of a file becomes markup`() throws {
    let scene = try Self.scene()
    _ = scene.run("run", "job.json", "--html", "report.html")
    let page = try Self.page(scene)
    // The only scripts are the page's own: two that run and blocks of JSON.
    let scripts = page.split(separator: "<script").dropFirst()
    #expect(scripts.count { $0.hasPrefix(">") } == 2)
    #expect(scripts.allSatisfy { $0.hasPrefix(">") || $0.hasPrefix(" type=\"application/json\" id=\"") })
    // In JSON a name stands as it is; it is shown as text.
    let markup = page.split(separator: "<script type=\"application/json\"").first ?? ""
    #expect(markup.contains("broken.jpg"))
    #expect(!markup.contains("onerror='x()'"))
    #expect(!markup.contains("\u{202E}"))
    #expect(page.contains("./in/50%252F%20%231%3F.jpg"))
    #expect(page.contains("./in/caf%E9.jpg"))
    #expect(page.contains("./in/javascript%3Aalert%281%29.jpg"))
  }

  @Test func `A report written before gives the same page`() throws {
    let scene = try Self.scene()
    _ = scene.run("run", "job.json", "--html", "one.html", "--report", "report.json")
    let result = scene.run("report", "html", "report.json", "--output", "two.html")
    #expect(result.exitCode == 0, "\(result.error)")
    // The machine is known to the run only.
    func lines(_ name: String) throws -> [Substring] {
      try Self.page(scene, name).split(separator: "\n").filter { !$0.contains("<dt>machine</dt>") }
    }
    #expect(try lines("one.html") == lines("two.html"))

    let elsewhere = TemporaryFolder()
    let again = RunProgram.run(
      ["report", "html", scene.folder["report.json"], "--base", scene.folder.path, "--output", "page.html"],
      {
        var settings = RunProgram.Settings()
        settings.folder = elsewhere.path
        return settings
      }())
    #expect(again.exitCode == 0, "\(again.error)")
    let page = String(decoding: try #require(elsewhere.read("page.html")), as: UTF8.self)
    #expect(page.components(of: "data:image/webp;base64,") == 14)
  }

  @Test func `What is gone is said, and fails nothing`() throws {
    let scene = try Self.scene()
    _ = scene.run("run", "job.json", "--report", "report.json")
    scene.folder.remove("out")
    scene.folder.remove("in/ä 漢.jpg")
    let result = scene.run("report", "html", "report.json", "--output", "report.html")
    #expect(result.exitCode == 0, "\(result.error)")
    let page = try Self.page(scene)
    #expect(page.components(of: "data:image/webp;base64,") == 6)
    #expect(page.contains("the file is gone"))
  }

  @Test func `Moved and deleted inputs are found or said to be gone`() throws {
    let scene = try Scene(pictures: 2)
    scene.folder.write(
      """
      { "version": 1, "name": "moving", "input": { "files": ["in/*"] },
        "stages": [ { "stage": "decode" }, { "stage": "encode", "format": "webp" },
          { "stage": "write", "to": "out/${item.stem}.${ext}" } ],
        "onSuccess": { "source": "move", "to": "done/${item.name}" } }
      """, to: "move.json")
    let result = scene.run("run", "move.json", "--html", "report.html")
    #expect(result.exitCode == 0, "\(result.error)")
    let page = try Self.page(scene)
    #expect(page.components(of: "data:image/webp;base64,") == 4)
    #expect(page.contains("./done/"))
  }

  @Test func `A page replaces no input, no job and no report`() throws {
    let scene = try Self.scene()
    for name in ["job.json", "in/broken.jpg"] {
      let before = scene.folder.read(name)
      let result = scene.run("run", "job.json", "--html", name)
      #expect(result.exitCode == 4)
      #expect(result.error.contains("report-place") || result.error.contains("cannot be written"))
      #expect(scene.folder.read(name) == before)
    }
    #expect(scene.run("run", "job.json", "--html", "a", "--report", "./a").exitCode == 2)
    _ = scene.run("run", "job.json", "--report", "report.json")
    #expect(scene.run("report", "html", "report.json", "--output", "report.json").exitCode == 2)
    let result = scene.run("report", "html", "report.json", "--output", "in/broken.jpg")
    #expect(result.exitCode == 4)
    #expect(scene.folder.read("in/broken.jpg") == Array("no picture".utf8))
    #expect(scene.run("report", "html", "job.json", "--output", "x.html").exitCode == 4)
    #expect(scene.run("report", "html", "gone.json", "--output", "x.html").exitCode == 4)
    #expect(scene.run("report", "html", "report.json").exitCode == 2)
    #expect(scene.folder.read("x.html") == nil)
  }

  @Test func `After a crash the page still comes`() throws {
    let faulty = try FaultyScene(6, faults: [2: "segv"])
    let result = faulty.start("--jobs", "1", "--html", "report.html").finish()
    #expect(result.exitCode == 1, "\(result.error)")
    let page = try Self.page(faulty.scene)
    #expect(page.contains("The program crashed once and took up again."))
    // What made it crash is not opened again.
    #expect(page.contains("not opened again: it made the program crash"))
    #expect(page.contains("<code>crash</code> in stage"))
  }

  @Test func `A run that cannot start still has a page`() throws {
    let scene = try Scene(pictures: 2)
    scene.job(
      encode: #"{ "stage": "segment", "provider": "local", "model": "u2netp" }, { "stage": "encode", "format": "png" }"#
    )
    let result = scene.run("run", "job.json", "--html", "report.html") { settings in
      settings.environment = ["PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PIPELINE_HOME": "/nonexistent"]
    }
    #expect(result.exitCode == 4, "\(result.error)")
    #expect(try Self.page(scene).contains("<b>Could not start.</b>"))
  }
}

extension String {
  /// How often a text stands in this one.
  func components(of text: String) -> Int { split(separator: text, omittingEmptySubsequences: false).count - 1 }
}
