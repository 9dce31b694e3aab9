import Digest
import Engine
import Glibc
import Imaging
import JobSyntax
import PipelineKit
import TestSupport
import Testing

/// What a second run of a job does and leaves, from outside.
@Suite struct UpToDateTests {
  private static let encode = #"{ "stage": "encode", "format": "png" }"#

  /// Runs the job and answers the status of each item by the name of its input.
  @discardableResult
  private func statuses(
    _ scene: Scene, _ more: String..., exitCode: Int32 = 0, line: SourceLocation = #_sourceLocation
  ) throws -> [String: String] {
    let result = RunProgram.run(["run", "job.json", "--report", "report.json"] + more, scene.settings())
    #expect(result.exitCode == exitCode, "\(result.error)", sourceLocation: line)
    return try statuses(in: scene)
  }

  private func statuses(in scene: Scene) throws -> [String: String] {
    var found: [String: String] = [:]
    for item in try #require(try scene.report()["items"]?.arrayValue) {
      let name = try #require(item["input"]?.stringValue)
      found[String(name.split(separator: "/").last ?? "")] = item["status"]?.stringValue
    }
    return found
  }

  private func all(_ status: String, _ count: Int) -> [String: String] {
    Dictionary(uniqueKeysWithValues: (0..<count).map { ("p0\($0).jpg", status) })
  }

  private func picture(_ level: UInt8, side: Int = 32) throws -> [UInt8] {
    try Image(width: side, height: side, bands: 3, bytes: [UInt8](repeating: level, count: side * side * 3))
      .encoded(.png(.init())).array
  }

  private func modified(_ path: String) -> [Int] {
    var status = stat()
    return stat(path, &status) == 0
      ? [Int(status.st_mtim.tv_sec), Int(status.st_mtim.tv_nsec), Int(status.st_ino)] : []
  }

  /// Another modification time, an hour ago.
  private func touch(_ path: String) {
    var times = [timespec(), timespec()]
    clock_gettime(CLOCK_REALTIME, &times[0])
    times[0].tv_sec -= 3600
    times[1] = times[0]
    #expect(utimensat(AT_FDCWD, path, times, 0) == 0)
  }

  @Test("a second run does nothing, and a third neither")
  func nothingToDo() throws {
    let scene = try Scene(pictures: 3, remembers: true)
    scene.job()
    #expect(try statuses(scene) == all("done", 3))
    let before = (0..<3).map { modified(scene.folder["out/p0\($0).png"]) }
    for _ in 0..<2 { #expect(try statuses(scene) == all("skipped", 3)) }
    #expect((0..<3).map { modified(scene.folder["out/p0\($0).png"]) } == before)
    #expect(try scene.report()["items"]?.arrayValue?.first?["reason"]?.stringValue == "up to date")
  }

  @Test("the state folder is its owner's alone, whatever the umask")
  func stateFolder() throws {
    let scene = try Scene(pictures: 1, remembers: true)
    scene.job()
    try statuses(scene)
    var status = stat()
    #expect(stat(scene.folder[".pipeline"], &status) == 0)
    #expect(status.st_mode & 0o777 == 0o700)
  }

  @Test("an input with other content is done again, one with another time is not")
  func inputs() throws {
    let scene = try Scene(pictures: 3, remembers: true)
    scene.job()
    try statuses(scene)
    touch(scene.folder["in/p00.jpg"])
    scene.folder.write(try picture(90), to: "in/p01.jpg")
    var expected = all("skipped", 3)
    expected["p01.jpg"] = "done"
    #expect(try statuses(scene) == expected)
    #expect(try statuses(scene) == all("skipped", 3))
  }

  @Test("new content of the same size with the old time put back is found")
  func sameSizeAndTime() throws {
    let scene = try Scene(pictures: 2, remembers: true)
    scene.job()
    try statuses(scene)
    let path = scene.folder["in/p00.jpg"]
    var facts = stat()
    #expect(stat(path, &facts) == 0)
    var bytes = try #require(TemporaryFolder.read(path))
    bytes.withUnsafeMutableBufferPointer { $0[$0.count / 2] ^= 1 }
    scene.folder.write(bytes, to: "in/p00.jpg")
    #expect(utimensat(AT_FDCWD, path, [facts.st_atim, facts.st_mtim], 0) == 0)
    #expect(try statuses(scene)["p00.jpg"] == "done")
  }

  @Test("an output that is gone, or is not what was written, is made again")
  func outputs() throws {
    let scene = try Scene(pictures: 3, remembers: true)
    scene.job()
    try statuses(scene)
    let original = try #require(scene.folder.read("out/p01.png"))
    scene.folder.remove("out/p00.png")
    scene.folder.write(try picture(1), to: "out/p01.png")
    touch(scene.folder["out/p02.png"])
    var expected = all("done", 3)
    expected["p02.jpg"] = "skipped"
    #expect(try statuses(scene) == expected)
    #expect(scene.folder.read("out/p01.png") == original)
  }

  @Test("a default that is written out changes nothing; another setting does everything again")
  func settings() throws {
    let scene = try Scene(pictures: 2, remembers: true)
    scene.job(encode: #"{ "stage": "encode", "format": "jpeg" }"#)
    try statuses(scene)
    scene.job(encode: #"{ "quality": 82, "stage": "encode", "format": "jpeg" }"#, write: #", "overwrite": "replace""#)
    let byDefault = try statuses(scene)
    scene.job(encode: #"{ "stage": "encode", "format": "jpeg", "quality": 31 }"#)
    #expect(try statuses(scene) == all("done", 2))
    // Whatever the default is: if 82 were not it, the pictures were made again.
    let jpeg = try #require(try json(RunProgram.run(["schema"]).output)["$defs"]?["encode"]?["properties"]?["quality"])
    if jpeg["default"]?.integer == 82 { #expect(byDefault == all("skipped", 2)) }
  }

  @Test("variables of the job count by what they come to")
  func variables() throws {
    let scene = try Scene(pictures: 1, remembers: true)
    scene.job(
      encode: #"{ "stage": "encode", "format": "jpeg", "quality": "${vars.q}" }"#, vars: #"{ "q": 70 }"#)
    try statuses(scene)
    #expect(try statuses(scene, "--set", "q=70") == all("skipped", 1))
    #expect(try statuses(scene, "--set", "q=71") == all("done", 1))
  }

  @Test("the run's own date and number do not count")
  func runValues() throws {
    let scene = try Scene(pictures: 1, remembers: true)
    scene.job(to: "out/${run.id}/${item.stem}.${ext}")
    try statuses(scene)
    #expect(try statuses(scene) == all("skipped", 1))
    #expect(scene.folder.tree().count { $0.hasSuffix(".png") } == 1)
  }

  @Test("a manifest's column counts where the job names it, and only for its row")
  func columns() throws {
    let scene = try Scene(pictures: 2, remembers: true)
    func manifest(_ rows: String) { scene.folder.write("path,sku,price\n" + rows, to: "list.csv") }
    scene.job(to: "out/${item.sku}.${ext}", input: #"{ "manifest": "list.csv" }"#)
    manifest("in/p00.jpg,a,1\nin/p01.jpg,b,1\n")
    try statuses(scene)
    manifest("in/p00.jpg,a,2\nin/p01.jpg,b,2\n")
    #expect(try statuses(scene) == all("skipped", 2))
    manifest("in/p00.jpg,a,2\nin/p01.jpg,c,2\n")
    #expect(try statuses(scene) == ["p00.jpg": "skipped", "p01.jpg": "done"])
  }

  @Test("one picture in two rows is two items")
  func repeatedRows() throws {
    let scene = try Scene(pictures: 1, remembers: true)
    scene.job(to: "out/${item.sku}.${ext}", input: #"{ "manifest": "list.csv" }"#)
    scene.folder.write("path,sku\nin/p00.jpg,a\nin/p00.jpg,b\n", to: "list.csv")
    func counts() throws -> [Int?] {
      let counts = try scene.report()["run"]?["counts"]
      return [counts?["done"]?.integer, counts?["skipped"]?.integer]
    }
    try statuses(scene)
    #expect(try counts() == [2, 0])
    try statuses(scene)
    #expect(try counts() == [0, 2])
    scene.folder.remove("out/b.png")
    try statuses(scene)
    #expect(try counts() == [1, 1])
  }

  @Test("a background with other content does everything again")
  func helperFiles() throws {
    let scene = try Scene(pictures: 1, remembers: true)
    scene.folder.write(try picture(10), to: "back.png")
    scene.job(
      encode: """
        { "stage": "composite", "background": { "image": { "path": "back.png" } }, "existingAlpha": true },
        \(Self.encode)
        """)
    try statuses(scene)
    touch(scene.folder["back.png"])
    #expect(try statuses(scene) == all("skipped", 1))
    scene.folder.write(try picture(20), to: "back.png")
    #expect(try statuses(scene) == all("done", 1))
  }

  @Test("what failed is tried again, and --retry-failed tries nothing else")
  func failures() throws {
    let scene = try Scene(pictures: 2, remembers: true)
    scene.job()
    scene.folder.write("no picture", to: "in/p00.jpg")
    #expect(try statuses(scene, exitCode: 1) == ["p00.jpg": "failed", "p01.jpg": "done"])
    #expect(try statuses(scene, exitCode: 1) == ["p00.jpg": "failed", "p01.jpg": "skipped"])
    scene.folder.write(try picture(7), to: "in/p00.jpg")
    scene.folder.write(try picture(8), to: "in/p02.jpg")
    #expect(
      try statuses(scene, "--retry-failed") == ["p00.jpg": "done", "p01.jpg": "skipped", "p02.jpg": "skipped"])
    #expect(try statuses(scene) == ["p00.jpg": "skipped", "p01.jpg": "skipped", "p02.jpg": "done"])
  }

  @Test("--force does all again, --force=STAGE too, and an unknown stage is refused")
  func force() throws {
    let scene = try Scene(pictures: 1, remembers: true)
    scene.job()
    try statuses(scene)
    #expect(try statuses(scene, "--force") == all("done", 1))
    #expect(try statuses(scene, "--force=encode") == all("done", 1))
    let result = RunProgram.run(["run", "job.json", "--force=encoed"], scene.settings())
    #expect(result.exitCode == 2)
    #expect(result.error.contains("decode, encode, write"))
  }

  @Test("--explain-skips says why, of every picture")
  func explanations() throws {
    let scene = try Scene(pictures: 3, remembers: true)
    scene.job()
    try statuses(scene)
    scene.folder.remove("out/p01.png")
    scene.folder.write(try picture(3), to: "in/p02.jpg")
    let lines = RunProgram.run(["run", "job.json", "--explain-skips"], scene.settings()).errorLines
    #expect(lines.contains("in/p00.jpg: skip: up to date"))
    #expect(lines.contains { $0.hasPrefix("in/p01.jpg: run: the output ") && $0.hasSuffix("out/p01.png is gone") })
    #expect(lines.contains("in/p02.jpg: run: the input has changed"))
    scene.job(encode: #"{ "stage": "encode", "format": "png", "compression": 1 }"#)
    let plan = RunProgram.run(["plan", "job.json", "--explain-skips"], scene.settings()).output
    #expect(plan.contains("settings or files changed of stage \"encode\""))
  }

  @Test("plan says what run will skip, and makes no state of its own")
  func plan() throws {
    let scene = try Scene(pictures: 2, remembers: true)
    scene.job()
    _ = RunProgram.run(["plan", "job.json"], scene.settings())
    #expect(!scene.folder.tree().contains { $0.hasPrefix(".pipeline") })
    try statuses(scene)
    scene.folder.remove("out/p01.png")
    let plan = RunProgram.run(["plan", "job.json"], scene.settings())
    #expect(plan.output.contains("in/p00.jpg: skip: up to date"))
    #expect(plan.output.contains("in/p01.jpg -> out/p01.png"))
    #expect(plan.output.contains("1 to do, 1 to skip"))
  }

  @Test("pictures of other versions stay, with a warning, until --rebuild")
  func versions() throws {
    let scene = try Scene(pictures: 2, remembers: true)
    scene.job()
    try statuses(scene)
    do {
      let folder = StateFolder.locate(PathBytes(scene.folder[".pipeline"]), shard: nil)
      let ledger = try #require(try Ledger.open(folder, .readWrite))
      var items: [LedgerItem] = []
      try ledger.forEachItem(job: "job.json") { items.append($0) }
      #expect(items.count == 2)
      for var item in items {
        item.versions = "libvips 8.2.0, decode 1"
        ledger.book(job: "job.json", item)
      }
      try ledger.flush()
      ledger.close()
    }
    let result = RunProgram.run(["run", "job.json", "--report", "report.json"], scene.settings())
    #expect(result.exitCode == 0)
    #expect(result.error.contains("2 pictures were made by other versions (libvips 8.2.0, decode 1;"))
    #expect(try statuses(in: scene) == all("skipped", 2))
    #expect(try statuses(scene, "--rebuild") == all("done", 2))
    #expect(!RunProgram.run(["run", "job.json"], scene.settings()).error.contains("other versions"))
  }

  @Test("a file that is kept by overwrite skip and then goes is made")
  func keptOutputs() throws {
    let scene = try Scene(pictures: 1, remembers: true)
    scene.job(write: #", "overwrite": "skip""#)
    scene.folder.write(try picture(5), to: "out/p00.png")
    #expect(try statuses(scene) == all("skipped", 1))
    scene.folder.remove("out/p00.png")
    #expect(try statuses(scene) == all("done", 1))
    #expect(try statuses(scene) == all("skipped", 1))
  }

  @Test("overwrite error does not refuse a job its own outputs")
  func ownOutputs() throws {
    let scene = try Scene(pictures: 2, remembers: true)
    scene.job(write: #", "overwrite": "error""#)
    #expect(try statuses(scene) == all("done", 2))
    #expect(try statuses(scene) == all("skipped", 2))
  }

  @Test("overwrite error refuses what others have put there, but not what a killed run has written")
  func outputsOfAKilledRun() throws {
    let scene = try Scene(pictures: 2, remembers: true)
    scene.job(write: #", "overwrite": "error""#)
    try statuses(scene)
    func forget(cutShort: Bool) throws {
      let folder = StateFolder.locate(PathBytes(scene.folder[".pipeline"]), shard: nil)
      let ledger = try #require(try Ledger.open(folder, .readWrite))
      var keys: [[UInt8]] = []
      try ledger.forEachItem(job: "job.json") { keys.append($0.key) }
      try ledger.remove(job: "job.json", keys: keys)
      if cutShort {
        var run = try #require(try ledger.runs(limit: 1).first)
        run.id += "-cut"
        run.started += 1
        run.ended = nil
        try ledger.begin(run)
      }
      try ledger.flush()
      ledger.close()
    }
    try forget(cutShort: false)
    #expect(try statuses(scene, exitCode: 1) == all("failed", 2))
    try forget(cutShort: true)
    scene.folder.write(try picture(77), to: "out/p01.png")
    #expect(try statuses(scene, exitCode: 1) == ["p00.jpg": "done", "p01.jpg": "failed"])
    #expect(try scene.report()["items"]?.arrayValue?.last?["error"]?["code"]?.stringValue == "output-exists")
    #expect(try statuses(scene, exitCode: 1) == ["p00.jpg": "skipped", "p01.jpg": "failed"])
  }

  @Test("temporary files of killed runs are cleared, and no others")
  func leftovers() throws {
    let scene = try Scene(pictures: 1, remembers: true)
    scene.job()
    try statuses(scene)
    do {
      let folder = StateFolder.locate(PathBytes(scene.folder[".pipeline"]), shard: nil)
      let ledger = try #require(try Ledger.open(folder, .readWrite))
      var run = try #require(try ledger.runs(limit: 1).first)
      run.id = "20260102-030405-abcdef"
      run.started += 1
      run.ended = nil
      try ledger.begin(run)
      ledger.close()
    }
    let dead = [".pipeline-20260102-030405-abcdef-7.tmp", ".pipeline-20260102-030405-abcdef-child-12-3.tmp"]
    let others = [".pipeline-20260102-030405-abcdee-7.tmp", ".pipeline-20260102-030405-abcdef-7.tmp.jpg"]
    for name in dead + others { scene.folder.write("x", to: "out/" + name) }
    try statuses(scene)
    let left = scene.folder.tree().filter { $0.hasPrefix("out/.") }
    #expect(left == others.map { "out/" + $0 }.sorted())
  }

  @Test("inPlace does a picture once, and again when it is another one")
  func inPlace() throws {
    let scene = try Scene(pictures: 2, remembers: true)
    scene.job(
      encode: #"{ "stage": "encode", "format": "jpeg", "quality": 40 }"#, to: "in/${item.name}",
      write: #", "inPlace": true"#)
    #expect(try statuses(scene) == all("done", 2))
    let bytes = scene.folder.read("in/p00.jpg")
    #expect(try statuses(scene) == all("skipped", 2))
    #expect(scene.folder.read("in/p00.jpg") == bytes)
    scene.folder.write(try picture(66), to: "in/p01.jpg")
    #expect(try statuses(scene) == ["p00.jpg": "skipped", "p01.jpg": "done"])
  }

  // MARK: Locks

  @Test("a second run is refused with 75 and who holds the lock; or skips, or waits")
  func locks() throws {
    let scene = try Scene(pictures: 6, side: 900, remembers: true)
    scene.job(encode: Scene.slowEncode)
    let first = scene.start("run", "job.json")
    // The ledger is made under the lock.
    let isLocked = first.wait { scene.folder.tree().contains { $0.hasPrefix(".pipeline/ledger") } }
    #expect(isLocked)
    let second = RunProgram.run(["run", "job.json"], scene.settings())
    #expect(second.exitCode == 75)
    #expect(second.error.contains("of scene, process \(first.process)"), "\(second.error)")
    #expect(second.error.contains("holds the lock"))
    #expect(RunProgram.run(["run", "job.json", "--if-locked", "skip"], scene.settings()).exitCode == 0)
    let waiting = RunProgram.run(["run", "job.json", "--wait", "--report", "report.json"], scene.settings())
    #expect(waiting.exitCode == 0)
    #expect(try statuses(in: scene) == all("skipped", 6))
    #expect(first.finish(limit: 60).exitCode == 0)
  }
}
