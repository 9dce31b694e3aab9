import Glibc
import Imaging
import JobSyntax
import TestSupport
import Testing

/// Runs that upload, from outside.
@Suite(.serialized, .enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"))
struct UploadTests {
  private let place = Peers.freshName("place")

  /// A job that sends `in/*` to a place of the stand-in.
  private func scene(_ server: StandIn, pictures: Int, _ upload: String? = nil, more: String = "") throws -> Scene {
    let scene = try Scene(pictures: pictures, remembers: true)
    let post = #""provider": "http", "url": "\#(server.address)/sink/\#(place)/up", "linkPointer": "/link""#
    scene.folder.write(
      """
      {
        "version": 1, "name": "scene", "input": { "files": ["in/*"] },
        "stages": [
          { "stage": "decode" },
          { "stage": "encode", "format": "png" },
          { "stage": "upload", \(upload ?? post) }
        ]\(more)
      }
      """, to: "job.json")
    return scene
  }

  private func run(_ scene: Scene, _ more: String...) -> ProgramResult {
    RunProgram.run(["run", "job.json", "--report", "report.json", "--no-progress"] + more, scene.settings())
  }

  private func count(_ scene: Scene, _ status: String) throws -> Int? {
    try scene.report()["run"]?["counts"]?[status]?.integer
  }

  /// Identifiers of what nobody knows the outcome of.
  private func unknown(_ scene: Scene) throws -> [String] {
    let list = RunProgram.run(["receipts", "list", "job.json", "--unknown", "--format", "json"], scene.settings())
    #expect(list.exitCode == 0, "\(list.error)")
    return Self.members(try json(list.output)).compactMap { $0["id"]?.stringValue }
  }

  private static func members(_ node: JSONNode) -> [JSONNode] {
    node.arrayValue ?? node["receipts"]?.arrayValue ?? []
  }

  private func receipts(_ scene: Scene) throws -> [JSONNode] {
    Self.members(
      try json(RunProgram.run(["receipts", "list", "job.json", "--format", "json"], scene.settings()).output))
  }

  @Test func `a POST whose answer is lost ends unknown, and is sent again only when a person says so`() throws {
    let server = try StandIn()
    defer { server.stop() }
    let scene = try scene(server, pictures: 4)
    try server.script(.sink, key: place, [("drop", true), ("after", 1)])
    let first = run(scene)
    #expect(first.exitCode == 1, "\(first.error)")
    #expect(try count(scene, "done") == 3 && count(scene, "unknown") == 1)
    let id = try #require(try unknown(scene).first)
    #expect(
      first.error.contains(id) || String(decoding: scene.folder.read("report.json") ?? [], as: UTF8.self).contains(id))
    #expect(try server.log(.sink, key: place).count == 4)
    let second = run(scene)
    #expect(second.exitCode == 1, "\(second.error)")
    #expect(try count(scene, "skipped") == 3 && count(scene, "unknown") == 1 && unknown(scene) == [id])
    #expect(try server.log(.sink, key: place).count == 4)
    let resolved = RunProgram.run(["receipts", "resolve", "job.json", id, "--retry"], scene.settings())
    #expect(resolved.exitCode == 0, "\(resolved.error)")
    let third = run(scene)
    #expect(third.exitCode == 0, "\(third.error)")
    #expect(try count(scene, "done") == 1 && unknown(scene).isEmpty)
    #expect(try server.log(.sink, key: place).count == 5)
    #expect(run(scene).exitCode == 0)
    #expect(try server.log(.sink, key: place).count == 5)
  }

  @Test func `a person may say that it has arrived`() throws {
    let server = try StandIn()
    defer { server.stop() }
    let scene = try scene(server, pictures: 1)
    try server.script(.sink, key: place, [("drop", true)])
    #expect(run(scene).exitCode == 1)
    let id = try #require(try unknown(scene).first)
    let link = "\(server.address)/sink/\(place)/up/000001"
    let resolved = RunProgram.run(
      ["receipts", "resolve", "job.json", id, "--done", "--link", link], scene.settings())
    #expect(resolved.exitCode == 0, "\(resolved.error)")
    let next = run(scene)
    #expect(next.exitCode == 0, "\(next.error)")
    #expect(try server.log(.sink, key: place).count == 1 && unknown(scene).isEmpty)
  }

  @Test func `a run killed while it waits for the answer to a POST never sends it twice`() throws {
    let server = try StandIn()
    defer { server.stop() }
    let scene = try scene(server, pictures: 3)
    // The stand-in has stored the picture long before it answers.
    try server.script(.sink, key: place, [("delay", 30), ("after", 2)])
    let program = RunProgram(["run", "job.json", "--no-progress", "--jobs", "1"], scene.settings())
    let isStored = program.wait {
      (try? server.state(.sink, key: place))?.objectValue?.count == 3
    }
    #expect(isStored)
    program.send(SIGKILL)
    #expect(program.finish().signal == SIGKILL)
    let stored = try server.state(.sink, key: place).objectValue?.count
    let next = run(scene)
    #expect(next.exitCode == 1, "\(next.error)")
    // Of those that were answered some may not have been booked as done; none is sent again.
    #expect(try server.state(.sink, key: place).objectValue?.count == stored)
    #expect(try count(scene, "unknown") == 1)
    for id in try unknown(scene) {
      #expect(RunProgram.run(["receipts", "resolve", "job.json", id, "--retry"], scene.settings()).exitCode == 0)
    }
    #expect(run(scene).exitCode == 0)
    #expect(try server.state(.sink, key: place).objectValue?.count == 4)
    #expect(try receipts(scene).count { $0["state"]?.stringValue == "sent" } == 3)
  }

  @Test func `what is put to a name is simply put again after a kill`() throws {
    let server = try StandIn()
    defer { server.stop() }
    let scene = try scene(
      server, pictures: 3,
      #""provider": "http", "method": "PUT", "url": "\#(server.address)/sink/\#(place)/${item.stem}.${ext}""#)
    try server.script(.sink, key: place, [("delay", 30), ("after", 1)])
    let program = RunProgram(["run", "job.json", "--no-progress", "--jobs", "1"], scene.settings())
    #expect(program.wait { (try? server.state(.sink, key: place))?.objectValue?.count ?? 0 >= 2 })
    program.send(SIGKILL)
    _ = program.finish()
    let next = run(scene)
    #expect(next.exitCode == 0, "\(next.error)")
    #expect(try server.state(.sink, key: place).objectValue?.count == 3 && unknown(scene).isEmpty)
    let verified = RunProgram.run(["receipts", "verify", "job.json"], scene.settings())
    #expect(verified.exitCode == 0, "\(verified.error)")
    let deleted = RunProgram.run(["receipts", "delete", "job.json", "--all"], scene.settings())
    #expect(deleted.exitCode == 0, "\(deleted.error)")
    #expect(try server.state(.sink, key: place).objectValue?.isEmpty == true)
  }

  @Test func `a link leads to what was sent, and the report shows it`() throws {
    let server = try StandIn()
    defer { server.stop() }
    let scene = try scene(server, pictures: 2)
    #expect(run(scene).exitCode == 0)
    let stored = try server.state(.sink, key: place)
    for item in try #require(try scene.report()["items"]?.arrayValue) {
      let output = try #require(item["outputs"]?.arrayValue?.first)
      let link = try #require(output["link"]?.stringValue ?? output["path"]?.stringValue)
      let path = String(link.dropFirst(server.address.count))
      #expect(stored[path]?["sha256"]?.stringValue == output["sha256"]?.stringValue, "\(link)")
    }
  }

  @Test func `a limit that the service names for hours puts the rest off`() throws {
    let server = try StandIn()
    defer { server.stop() }
    let client = Peers.freshName("client")
    // Credits for three uploads.
    try server.addKey(.imgur, client, [("userLimit", 35), ("reset", 7200)])
    let scene = try scene(
      server, pictures: 6,
      #""provider": "imgur", "endpoint": "\#(server.address)/3", "clientId": "${secret.IMGUR_ID}", "concurrency": 1"#)
    func run() -> ProgramResult {
      RunProgram.run(
        ["run", "job.json", "--report", "report.json", "--no-progress"],
        scene.settings { $0.environment = Self.environment(["IMGUR_ID": client]) })
    }
    let first = run()
    #expect(first.exitCode == 5, "\(first.error)")
    #expect(try count(scene, "done") == 3 && count(scene, "notAttempted") == 3)
    #expect(!String(decoding: scene.folder.read("report.json") ?? [], as: UTF8.self).contains(client))
    try server.addKey(.imgur, client, [("userLimit", 500)])
    let second = run()
    #expect(second.exitCode == 0, "\(second.error)")
    #expect(try count(scene, "done") == 3 && count(scene, "skipped") == 3)
  }

  @Test func `wrong keys stop a run with what is wrong`() throws {
    let server = try StandIn()
    defer { server.stop() }
    let scene = try scene(
      server, pictures: 2, #""provider": "imgbb", "endpoint": "\#(server.address)/1", "apiKey": "${secret.IMGBB_KEY}""#)
    let unset = run(scene)
    #expect(unset.exitCode == 4 && unset.error.contains("IMGBB_KEY"))
    let wrong = RunProgram.run(
      ["run", "job.json", "--no-progress", "--report", "report.json"],
      scene.settings { $0.environment = Self.environment(["IMGBB_KEY": "canary-0123456789"]) })
    #expect(wrong.exitCode == 1 || wrong.exitCode == 4, "\(wrong.error)")
    #expect(wrong.error.contains("Invalid API v1 key"))
    for bytes in [wrong.errorBytes, wrong.outputBytes, scene.folder.read("report.json") ?? []] {
      #expect(!bytes.contains(Array("canary-0123456789".utf8)))
    }
  }

  /// The test's own environment with more in it.
  static func environment(_ more: [String: String]) -> [String: String] {
    var all: [String: String] = [:]
    var next = environ
    while let entry = next.pointee {
      let text = String(cString: entry)
      if let mark = text.firstIndex(of: "=") { all[String(text[..<mark])] = String(text[text.index(after: mark)...]) }
      next += 1
    }
    return all.merging(more) { $1 }
  }

  // MARK: Much

  /// Memory and connections over very many uploads; ten times as many with `PIPELINE_SOAK=1`.
  @Test func `very many uploads take no more memory, and few connections`() throws {
    let count = getenv("PIPELINE_SOAK") == nil ? 1_000 : 10_000
    let concurrency = 8
    let server = try StandIn()
    defer { server.stop() }
    try server.set(["keep": false, "log": false])
    try server.stopLog()
    let scene = try scene(
      server, pictures: 1,
      #""provider": "http", "url": "\#(server.address)/sink/\#(place)/up", "linkPointer": "/link", "concurrency": \#(concurrency)"#
    )
    for number in 1..<count {
      #expect(link(scene.folder["in/p00.jpg"], scene.folder["in/q\(100_000 + number).jpg"]) == 0)
    }
    let program = RunProgram(["run", "job.json", "--quiet", "--no-progress"], scene.settings())
    var samples: [(sent: Int, resident: Int)] = []
    _ = program.wait(limit: 1200) {
      let sent = (try? server.answers(.sink))?["201"] ?? 0
      if let resident = Self.resident(program.process) { samples.append((sent, resident)) }
      return false
    }
    let result = program.finish()
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(try server.answers(.sink)["201"] == count)
    // As the server has seen them; those of this test's questions are not counted.
    #expect(try server.connections() <= 2 * concurrency)
    let tenth = count / 10
    func mean(_ range: Range<Int>) -> Double {
      let found = samples.filter { range.contains($0.sent) }.map(\.resident)
      return found.isEmpty ? .nan : Double(found.reduce(0, +)) / Double(found.count)
    }
    let (early, late) = (mean(tenth..<2 * tenth), mean(count - tenth..<count))
    // A small run has not come to rest after its first tenth: the run of full length is held to 5 %.
    let most = getenv("PIPELINE_SOAK") == nil ? 1.25 : 1.05
    #expect(late <= early * most, "\(early) kB in the second tenth, \(late) in the last")
  }

  /// KiB.
  private static func resident(_ process: pid_t) -> Int? {
    let text = String(decoding: TemporaryFolder.read("/proc/\(process)/status") ?? [], as: UTF8.self)
    return text.split(separator: "\n").first { $0.hasPrefix("VmRSS:") }?
      .split(whereSeparator: \.isWhitespace).dropFirst().first.flatMap { Int($0) }
  }

  /// Waiting and working go on at once; `Tests/Benchmarks/upload.sh` holds a release build to a tenth more than the
  /// longer of the two.
  @Test func `waiting for a service holds no worker`() throws {
    let server = try StandIn()
    defer { server.stop() }
    try server.set(["sink": ["latency": 0.3]])
    let scene = try scene(
      server, pictures: 40,
      #""provider": "http", "url": "\#(server.address)/sink/\#(place)/up", "concurrency": 4"#)
    let clock = ContinuousClock()
    var result: ProgramResult?
    let time = clock.measure { result = run(scene, "--jobs", "1") }
    #expect(result?.exitCode == 0, "\(result?.error ?? "")")
    // 40 × 0.3 s in fours. One worker that waited itself would take four times as long.
    #expect(time > .seconds(3) && time < .seconds(7), "\(time)")
  }
}
