import Glibc
import Imaging
import JobSyntax
import TestSupport
import Testing

/// The jobs of pipelines/exec/, run from outside on pictures of our own.
@Suite struct ExecJobTests {
  private static let folder = DocumentationTests.package + "/pipelines/exec/"

  private func scene(_ files: [String]) throws -> Scene {
    let scene = try Scene()
    for file in files { scene.folder.write(try #require(TemporaryFolder.read(Self.folder + file)), to: file) }
    let picture = try Image(
      width: 64, height: 48, bands: 3, bytes: [UInt8](repeating: 200, count: 64 * 48 * 3))
    scene.folder.write(try picture.encoded(.jpeg(.init(quality: 95))).array, to: "photos/a b.jpg")
    return scene
  }

  private func hasProgram(_ name: String) -> Bool {
    (getenv("PATH").map { String(cString: $0) } ?? "").split(separator: ":").contains {
      access("\($0)/\(name)", X_OK) == 0
    }
  }

  @Test("a step in Python darkens the corners and leaves the middle")
  func vignette() throws {
    guard hasProgram("python3") else {
      print("vignette: skipped, there is no python3")
      return
    }
    let scene = try scene(["vignette.json", "vignette.py"])
    let result = scene.run("run", "vignette.json", "--report", "report.json")
    #expect(result.exitCode == 0, "\(result.error)")
    let path = scene.folder["out/vignette/a b.jpg"]
    let image = try EncodedPicture(path: Array(path.utf8)).pixels()
    let bytes = try image.bytes()
    func level(_ x: Int, _ y: Int) -> Int { Int(bytes[(y * 64 + x) * 3]) }
    #expect(abs(level(32, 24) - 200) <= 3)
    #expect(level(1, 1) < 90)
    #expect(abs(level(1, 1) - level(62, 46)) <= 6)
    let report = try scene.report()
    #expect(report["items"]?.arrayValue?.first?["facts"]?["exec"]?["exitCode"]?.integer == 0)
    try check(report, exitCode: 0, in: scene)
  }

  @Test("exiftool finishes the encoded file, and no pixel changes")
  func exiftool() throws {
    guard hasProgram("exiftool") else {
      print("exiftool: skipped, there is no exiftool (Debian: libimage-exiftool-perl)")
      return
    }
    let scene = try scene(["exiftool.json"])
    let result = scene.run("run", "exiftool.json")
    #expect(result.exitCode == 0, "\(result.error)")
    let bytes = try #require(scene.folder.read("out/exiftool/a b.jpg"))
    let text = String(decoding: bytes, as: UTF8.self)
    #expect(text.contains("<rdf:li xml:lang='x-default'>a b</rdf:li>"))
    // The same pixels as without it.
    let job = String(decoding: scene.folder.read("exiftool.json") ?? [], as: UTF8.self)
    let start = try #require(job.firstRange(of: "{\n      \"stage\": \"exec\""))
    let end = try #require(job[start.lowerBound...].firstRange(of: "},"))
    scene.folder.write(String(job[..<start.lowerBound]) + job[end.upperBound...], to: "plain.json")
    scene.folder.write(bytes, to: "finished.jpg")
    #expect(scene.run("run", "plain.json").exitCode == 0)
    func pixels(_ name: String) throws -> [UInt8] {
      try EncodedPicture(path: Array(scene.folder[name].utf8)).pixels().bytes()
    }
    #expect(try pixels("finished.jpg") == pixels("out/exiftool/a b.jpg"))
  }

  @Test("a script that changes makes the pictures anew, and one that does not leaves them alone")
  func upToDate() throws {
    let scene = try Scene(pictures: 2, remembers: true)
    scene.folder.write("#!/bin/sh\nexec cat\n", to: "tool")
    chmod(scene.folder["tool"], 0o755)
    scene.job(encode: #"{ "stage": "exec", "command": ["./tool"] }, { "stage": "encode", "format": "png" }"#)
    func done() throws -> Int? {
      let result = scene.run("run", "job.json", "--report", "report.json")
      #expect(result.exitCode == 0, "\(result.error)")
      return try scene.report()["run"]?["counts"]?["done"]?.integer
    }
    #expect(try done() == 2)
    #expect(try done() == 0)
    scene.folder.write("#!/bin/sh\nexec cat -\n", to: "tool")
    #expect(try done() == 2)
  }

  @Test("a missing program ends the run before it works, with exit code 4")
  func missing() throws {
    let scene = try Scene(pictures: 1)
    scene.job(encode: #"{ "stage": "exec", "command": ["no-such-tool"] }, { "stage": "encode", "format": "png" }"#)
    let result = scene.run("run", "job.json")
    #expect(result.exitCode == 4)
    #expect(result.error.contains("no-such-tool is not on PATH"))
  }

  @Test("a file that it uses and that is not there ends the run before it works")
  func missingUses() throws {
    let scene = try Scene(pictures: 1)
    scene.job(
      encode: #"{ "stage": "exec", "command": ["cat"], "uses": ["tabel.csv"] }, { "stage": "encode", "format": "png" }"#
    )
    let result = scene.run("run", "job.json")
    #expect(result.exitCode == 4)
    #expect(result.error.contains("tabel.csv, which exec uses, cannot be read"), "\(result.error)")
  }

  @Test("when an item's time is over its program is ended, and no worker is given up")
  func itemDeadline() throws {
    let scene = try Scene(pictures: 1)
    scene.job(
      encode:
        #"{ "stage": "exec", "command": ["sh", "-c", "echo $$ > \"$1\"; sleep 600; cat", "sh", "${job.dir}/pid"] }, { "stage": "encode", "format": "png" }"#,
      run: #"{ "itemDeadline": 0.5 }"#)
    let result = scene.run("run", "job.json")
    #expect(result.exitCode == 1)
    #expect(result.error.contains("the item's time was over, and sh was ended with it"), "\(result.error)")
    #expect(!result.error.contains("left behind"), "\(result.error)")
    let text = String(decoding: try #require(scene.folder.read("pid")), as: UTF8.self)
    let process = try #require(Int32(text.filter { $0.isNumber }))
    #expect(kill(process, 0) != 0 && errno == ESRCH)
  }

  @Test("a run that is stopped takes its programs with it")
  func stopped() throws {
    let scene = try Scene(pictures: 1)
    scene.job(
      encode:
        #"{ "stage": "exec", "command": ["sh", "-c", "echo $$ > \"$1\"; exec sleep 600", "sh", "${job.dir}/pid"], "timeLimit": 900 }, { "stage": "encode", "format": "png" }"#,
      run: #"{ "graceTime": 0.2 }"#)
    let program = scene.start("run", "job.json")
    var process: Int32?
    #expect(
      program.wait {
        process = pid(scene)
        return process != nil
      })
    program.send(SIGTERM)
    #expect(program.finish().exitCode == 143)
    let number = try #require(process)
    let end = ContinuousClock.now + .seconds(10)
    while kill(number, 0) == 0, ContinuousClock.now < end { sched_yield() }
    #expect(kill(number, 0) != 0)
  }

  private func pid(_ scene: Scene) -> Int32? {
    let text = String(decoding: scene.folder.read("pid") ?? [], as: UTF8.self)
    return text.hasSuffix("\n") ? Int32(text.dropLast()) : nil
  }
}
