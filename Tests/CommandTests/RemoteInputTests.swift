import Digest
import Glibc
import Imaging
import Inference
import JobSyntax
import PipelineKit
import Synchronization
import TestSupport
import Testing
import Transport

/// Pictures that are no files here, through the program.
@Suite struct RemoteInputTests {
  private static let needsPeers: Comment = "make the servers of the tests with Scripts/peers"

  private static func picture(_ level: UInt8, side: Int = 16) throws -> [UInt8] {
    try Image(width: side, height: side, bands: 3, bytes: [UInt8](repeating: level, count: side * side * 3))
      .encoded(.png(.init())).array
  }

  /// The environment without proxies of its own.
  private static func environment(_ more: [String: String] = [:]) -> [String: String] {
    var environment: [String: String] = [:]
    for name in ["PATH", "HOME", "LANG"] { environment[name] = getenv(name).map { String(cString: $0) } }
    return environment.merging(more) { _, new in new }
  }

  private struct Ended {
    var result: ProgramResult
    var items: [JSONNode]

    func texts(_ pointer: String) -> [String?] { items.map { $0[pointer]?.stringValue } }
    var statuses: [String?] { texts("status") }
    var codes: [String?] { items.map { $0["error"]?["code"]?.stringValue } }
    var messages: [String] { items.map { $0["error"]?["message"]?.stringValue ?? $0["reason"]?.stringValue ?? "" } }
  }

  private func run(_ scene: Scene, _ more: String..., environment: [String: String] = [:]) throws -> Ended {
    var settings = scene.settings()
    settings.environment = Self.environment(environment)
    let result = RunProgram.run(["run", "job.json", "--report", "report.json"] + more, settings)
    let report = try? scene.report()
    return Ended(result: result, items: report?["items"]?.arrayValue ?? [])
  }

  private func scene(_ input: String, to: String = "out/${item.index}-${item.stem}.${ext}", more: String = "") throws
    -> Scene
  {
    let scene = try Scene(remembers: true)
    scene.folder.write(
      """
      { "version": 1, "input": \(input),\(more)
        "stages": [
          { "stage": "decode" }, { "stage": "encode", "format": "png" }, { "stage": "write", "to": "\(to)" }
        ] }
      """, to: "job.json")
    return scene
  }

  // MARK: Addresses

  @Test("pictures at addresses are fetched, and not again while nothing is known to have changed")
  func addresses() throws {
    let level = Mutex<UInt8>(10)
    let pictures = try [UInt8(10), 20].map { ($0, try Self.picture($0)) }
    let server = ScriptedServer { request in
      let now = level.withLock { $0 }
      return .answer(200, ["Content-Type: image/png"], pictures.first { $0.0 == now }?.1 ?? [])
    }
    let scene = try scene(
      """
      { "urls": ["\(server.address)/p/a%20b.png?sig=canary-query", "\(server.address)/c.png"], "allowPrivate": true,
        "headers": { "X-Token": "${secret.TOKEN}" } }
      """)
    let token = ["TOKEN": "canary-token"]
    var ended = try run(scene, environment: token)
    #expect(ended.result.exitCode == 0, "\(ended.result.error)")
    #expect(ended.statuses == ["done", "done"])
    #expect(ended.texts("input") == ["\(server.address)/p/a b.png", "\(server.address)/c.png"])
    #expect(scene.folder.read("out/0-a b.png") != nil && scene.folder.read("out/1-c.png") != nil)
    #expect(Set(server.requests.map(\.target)) == ["/p/a%20b.png?sig=canary-query", "/c.png"])
    #expect(server.requests.allSatisfy { $0["x-token"] == "canary-token" })
    // What is secret is in nothing that stays.
    for name in scene.folder.tree() where name != "job.json" && !name.hasSuffix("/") {
      let bytes = try #require(scene.folder.read(name))
      #expect(!String(decoding: bytes, as: UTF8.self).contains("canary"), "\(name)")
    }
    #expect(!(ended.result.output + ended.result.error).contains("canary"))

    ended = try run(scene, environment: token)
    #expect(ended.statuses == ["skipped", "skipped"])
    #expect(server.requests.count == 2)
    ended = try run(scene, "--check-content", environment: token)
    #expect(ended.statuses == ["skipped", "skipped"])
    #expect(server.requests.count == 4)
    level.withLock { $0 = 20 }
    ended = try run(scene, "--check-content", environment: token)
    #expect(ended.statuses == ["done", "done"])
  }

  @Test("a picture that cannot be had fails or is put off, with a message that names it and no query")
  func failures() throws {
    let picture = try Self.picture(1)
    let server = ScriptedServer { request in
      switch request.target.prefix(while: { $0 != "?" }) {
      case "/missing.png": return .text(404, [], "gone")
      case "/denied.png": return .text(403, [], "no")
      case "/page.png": return .text(200, ["Content-Type: text/html"], "<html>log in</html>")
      case "/large.png": return .answer(200, [], [UInt8](repeating: 0, count: 5_000))
      case "/busy.png": return .text(503, ["Retry-After: 0"], "later")
      case "/stall.png": return .stall(Array("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12".utf8))
      case "/empty.png": return .answer(200, [], [])
      case "/loop.png": return .answer(302, ["Location: /loop.png"], [])
      default: return .answer(200, ["Content-Type: image/png"], picture)
      }
    }
    let names = ["missing", "denied", "page", "large", "busy", "stall", "empty", "loop", "fine"]
    let urls = names.map { "\"\(server.address)/\($0).png?q=canary\"" }.joined(separator: ", ")
    let scene = try scene(#"{ "urls": [\#(urls)], "allowPrivate": true, "maxBytes": 4000, "timeout": 0.5 }"#)
    let ended = try run(scene)
    #expect(
      ended.statuses == [
        "failed", "failed", "failed", "failed", "deferred", "deferred", "failed", "failed", "done",
      ])
    #expect(
      ended.codes == [
        "fetch-missing", "fetch-denied", "unsupported", "fetch-too-large", nil, nil, "empty", "fetch-refused", nil,
      ])
    for (name, message) in zip(names, ended.messages) where name != "fine" {
      #expect(message.contains("\(server.address)/\(name).png"), "\(message)")
      #expect(!message.contains("canary"))
    }
    #expect(ended.messages[2].contains("text/html"))
    #expect(server.requests.count { $0.target.hasPrefix("/busy") } == 3)
    #expect(server.requests.count { $0.target.hasPrefix("/missing") } == 1)
  }

  @Test("a server that asks for more time than a run gives is left alone, and its pictures put off")
  func waits() throws {
    let server = ScriptedServer { _ in .text(429, ["Retry-After: 9999"], "later") }
    let scene = try scene(
      #"{ "urls": ["\#(server.address)/a.png", "\#(server.address)/b.png"], "allowPrivate": true }"#,
      more: #" "network": { "requests": 1 },"#)
    let ended = try run(scene)
    #expect(ended.statuses == ["deferred", "deferred"])
    // Whichever came first was told; the other did not ask.
    #expect(ended.messages.contains { $0.contains("429") }, "\(ended.messages)")
    #expect(server.requests.count == 1)
  }

  @Test(
    "addresses of private and reserved networks are not asked, however they are spelled",
    arguments: [
      "127.0.0.1", "localhost", "[::1]", "10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.169.254", "0.0.0.0",
      "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[fd00::1]",
      "[fe80::1]", "[64:ff9b::7f00:1]", "100.64.0.1", "x.localhost",
    ])
  func privateAddresses(_ host: String) throws {
    let server = ScriptedServer { _ in .text(200, [], "secret") }
    let scene = try scene(#"{ "list": "list" }"#)
    scene.folder.write(Array("http://\(host):\(server.port)/a.png\n".utf8), to: "list")
    let ended = try run(scene)
    #expect(ended.codes == ["fetch-refused"], "\(ended.result.error) \(ended.messages)")
    #expect(ended.items.first?["error"]?["hint"]?.stringValue?.contains("allowPrivate") == true)
    #expect(server.connections == 0)
  }

  @Test("a name that is found to be this machine's is refused when it is connected to")
  func resolvedNames() throws {
    // Names from /etc/hosts that say nothing of where they lead.
    let hosts = String(decoding: TemporaryFolder.read("/etc/hosts") ?? [], as: UTF8.self)
    let lines = hosts.split(separator: "\n").map { line in line.split { $0 == " " || $0 == "\t" }.map(String.init) }
    let ours = lines.filter { ["127.0.0.1", "127.0.1.1", "::1"].contains($0.first ?? "") }
    let names: [String] = ours.map { Array($0.dropFirst()) }.reduce([], +)
    let name = names.first { !$0.contains("localhost") }
    guard let name else {
      print("skipped: /etc/hosts has no name of this machine but localhost")
      return
    }
    let server = ScriptedServer { _ in .text(200, [], "secret") }
    let scene = try scene(#"{ "urls": ["http://\#(name):\#(server.port)/a.png"] }"#)
    let ended = try run(scene)
    #expect(ended.codes == ["fetch-refused"], "\(ended.messages)")
    #expect(server.requests.isEmpty)
  }

  @Test("through a proxy pictures are fetched by name, and a redirect into a private network is refused by name")
  func proxiesAndRedirects() throws {
    let picture = try Self.picture(7)
    let proxy = ScriptedServer { request in
      switch request.target {
      case "http://pictures.example/start.png": .answer(302, ["Location: /a.png"], [])
      case "http://pictures.example/away.png": .answer(302, ["Location: http://other.example/a.png"], [])
      case "http://pictures.example/meta.png": .answer(302, ["Location: http://169.254.169.254/latest"], [])
      case "http://pictures.example/mapped.png": .answer(302, ["Location: http://[::ffff:7f00:1]/a.png"], [])
      case "http://pictures.example/local.png": .answer(302, ["Location: http://localhost/a.png"], [])
      case "http://pictures.example/file.png": .answer(302, ["Location: file:///etc/passwd"], [])
      default: .answer(200, ["Content-Type: image/png"], picture)
      }
    }
    let urls = ["start", "away", "meta", "mapped", "local", "file"].map { "\"http://pictures.example/\($0).png\"" }
    let scene = try scene(
      #"{ "urls": [\#(urls.joined(separator: ", "))], "headers": { "Authorization": "Bearer ${secret.T}" } }"#,
      more: #" "network": { "proxy": "\#(proxy.address)", "requests": 1 },"#)
    let ended = try run(scene, environment: ["T": "canary-token"])
    #expect(ended.statuses == ["done", "done", "failed", "failed", "failed", "failed"], "\(ended.messages)")
    #expect(ended.codes.suffix(4) == ["fetch-refused", "fetch-refused", "fetch-refused", "fetch-refused"])
    for request in proxy.requests {
      let isOurs = request.target.hasPrefix("http://pictures.example/")
      #expect((request["authorization"] != nil) == isOurs, "\(request.target)")
    }
    #expect(!proxy.requests.contains { $0.target.contains("169.254") || $0.target.contains("localhost") })
  }

  @Test("headers go to the hosts they are for, whatever a list names")
  func headerHosts() throws {
    let picture = try Self.picture(9)
    let server = ScriptedServer { _ in .answer(200, ["Content-Type: image/png"], picture) }
    let scene = try scene(
      #"{ "list": "list", "allowPrivate": true, "headers": { "X-Key": "${secret.T}" }, "headerHosts": ["127.0.0.1"] }"#)
    scene.folder.write(
      Array("http://127.0.0.1:\(server.port)/a.png\nhttp://localhost:\(server.port)/b.png\n".utf8), to: "list")
    #expect(try run(scene, environment: ["T": "canary-token"]).statuses == ["done", "done"])
    let keys = Dictionary(uniqueKeysWithValues: server.requests.map { ($0.target, $0["x-key"]) })
    #expect(keys == ["/a.png": "canary-token", "/b.png": nil])
  }

  @Test("a manifest mixes files and addresses, names and hashes work, and shards share the work")
  func manifests() throws {
    let picture = try Self.picture(30)
    let server = ScriptedServer { _ in .answer(200, ["Content-Type: image/png"], picture) }
    let scene = try scene(
      #"{ "manifest": "m.csv", "allowPrivate": true }"#, to: "out/${item.sku}-${item.name}-${item.hash}.${ext}")
    scene.folder.write(try Self.picture(31), to: "local.png")
    let addresses = (0..<4).map { "\(server.address)/x.png?n=\($0),\($0)\n" }.joined()
    scene.folder.write(Array("path,sku\nlocal.png,L\n\(addresses)".utf8), to: "m.csv")
    let ended = try run(scene)
    #expect(ended.result.exitCode == 0, "\(ended.result.error)")
    #expect(ended.statuses == [String?](repeating: "done", count: 5))
    let hash = EncodedBytes(picture).sha256
    #expect(scene.folder.tree().filter { $0.hasPrefix("out/") && $0.contains(hash) }.count == 4)
    let again = try run(scene)
    #expect(again.statuses == [String?](repeating: "skipped", count: 5))
    // The same name: they stay together.
    var counts: [Int] = []
    for shard in 1...2 {
      scene.folder.remove("report.json")
      counts.append(try run(scene, "--shard", "\(shard)/2").items.count)
    }
    #expect(counts.sorted() == [1, 4] || counts.sorted() == [0, 5], "\(counts)")
  }

  @Test("plan lists addresses without asking them")
  func plans() throws {
    let server = ScriptedServer { _ in .close }
    let scene = try scene(#"{ "urls": ["\#(server.address)/a.png?k=canary"], "allowPrivate": true }"#)
    let result = scene.run("plan", "job.json") { $0.environment = Self.environment() }
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(result.output.contains("\(server.address)/a.png"))
    #expect(!result.output.contains("canary"))
    #expect(server.connections == 0)
  }

  private static let modelIsInstalled: Bool = {
    guard let u2netp = ModelCatalogue.named("u2netp") else { return false }
    let home = PipelineHome.current
    return (try? home.locateRuntime()) != nil && (try? ModelCatalogue.locate(u2netp, home: home)) != nil
  }()

  @Test(
    "what is put aside for a person is what was fetched, byte for byte",
    .enabled(if: modelIsInstalled, "needs the OpenVINO runtime and u2netp: make provision"))
  func reviews() throws {
    // Nothing is to be found in it.
    let grey = try Self.picture(128, side: 64)
    let server = ScriptedServer { _ in .answer(200, ["Content-Type: image/png"], grey) }
    let scene = try Scene(remembers: true)
    scene.job(
      encode: #"""
        { "stage": "segment", "minScore": 0.1, "otherwise": "review",
          "review": { "to": "review/${item.name}" } }, { "stage": "encode", "format": "png" }
        """#, input: #"{ "urls": ["\#(server.address)/grey.png?q=canary"], "allowPrivate": true }"#)
    let environment = ["PIPELINE_HOME": getenv("PIPELINE_HOME").map { String(cString: $0) } ?? ""]
    let ended = try run(scene, environment: environment.filter { !$0.value.isEmpty })
    #expect(ended.statuses == ["review"], "\(ended.result.error)")
    #expect(scene.folder.read("review/grey.png") == grey)
    #expect(server.requests.count == 1)
  }

  // MARK: S3

  @Test("a bucket is listed page by page and its objects are fetched", .enabled(if: Peers.hasPython, needsPeers))
  func bucket() throws {
    let moto = try Peers.moto()
    let bucket = try moto.makeBucket()
    let store = try Store(moto, bucket)
    let keys = [
      "in/a b.png", "in/deep/ü+%41.png", "in/deep/../x.png", "in/z.PNG", "in/readme.txt", "in/folder/", "other/q.png",
    ]
    for (index, key) in keys.enumerated() { try store.put(try Self.picture(UInt8(index)), at: key) }
    let scene = try scene(
      """
      { "s3": { "bucket": "\(bucket)", "prefix": "in/", "region": "us-east-1", "endpoint": "\(moto.address)",
        "accessKeyId": "${secret.ID}", "secretAccessKey": "${secret.KEY}" } }
      """, to: "out/${item.dir}/${item.index}-${item.stem}.${ext}")
    let secrets = ["ID": moto.keys.accessKey, "KEY": moto.keys.secretKey]
    var ended = try run(scene, environment: secrets)
    #expect(ended.result.exitCode == 0, "\(ended.result.error)")
    #expect(
      ended.texts("input") == [
        "s3://\(bucket)/in/a b.png", "s3://\(bucket)/in/deep/__/x.png", "s3://\(bucket)/in/deep/ü+%2541.png",
        "s3://\(bucket)/in/z.PNG",
      ])
    #expect(ended.statuses == ["done", "done", "done", "done"])
    #expect(scene.folder.read("out/deep/2-ü+%41.png") != nil)
    ended = try run(scene, environment: secrets)
    #expect(ended.statuses == ["skipped", "skipped", "skipped", "skipped"])
    // The listing tells what has changed.
    try store.put(try Self.picture(99), at: "in/a b.png")
    ended = try run(scene, environment: secrets)
    #expect(ended.statuses == ["done", "skipped", "skipped", "skipped"])
    // Keys that are wrong are told before anything is done.
    let wrong = try run(scene, environment: ["ID": moto.keys.accessKey, "KEY": "canary-wrong"])
    #expect(wrong.result.exitCode == 4)
    #expect(wrong.result.error.contains(bucket) && !wrong.result.error.contains("canary-wrong"))
  }

  /// Puts objects where a test wants them.
  private struct Store {
    let client: S3Client

    init(_ moto: Moto, _ bucket: String) throws {
      client = S3Client(
        try S3Bucket(bucket, region: "us-east-1", endpoint: try RequestURL(moto.address)),
        caller: Caller(client: Client(), pacer: Pacer(perMinute: nil)),
        credentials: AWSCredentials(
          accessKeyID: moto.keys.accessKey, secretAccessKey: moto.keys.secretKey, sessionToken: nil, origin: "the test"),
        pause: { _ in })
    }

    func put(_ bytes: [UInt8], at key: String) throws {
      _ = try client.put(key, Payload(bytes), digest: SHA256.digest(of: bytes), options: S3PutOptions())
    }
  }

  // MARK: Imgur

  @Test(
    "Imgur's gallery gives pictures and those of albums, by their direct links",
    .enabled(if: Peers.hasPython, needsPeers))
  func imgur() throws {
    let peer = try StandIn()
    let key = Peers.freshName("client")
    try peer.addKey(.imgur, key)
    func picture(_ id: String, _ more: [(String, JSONText)] = []) -> JSONText {
      let plain: [(String, JSONText)] = [
        ("id", .string(id)), ("title", "Red fox"), ("is_album", false), ("type", "image/png"), ("animated", false),
        ("nsfw", nil),
        (
          "link",
          .string("\(peer.address)/pictures/sample/30x20-\(id.utf8.reduce(0) { $0 * 256 + Int($1) } % 100_000).png")
        ),
      ]
      return .object(plain.filter { member in !more.contains { $0.0 == member.0 } } + more)
    }
    func album(_ id: String, _ images: [JSONText], count: Int, _ more: [(String, JSONText)] = []) -> JSONText {
      .object(
        [
          ("id", .string(id)), ("title", "Fox album"), ("is_album", true),
          ("link", .string("https://imgur.com/a/\(id)")), ("images_count", .integer(count)), ("images", .array(images)),
        ] + more)
    }
    try peer.set(["imgur": ["pageSize": 3]])
    try peer.setGallery(
      [
        picture("p1"), picture("p2", [("animated", true)]), picture("p3", [("type", "video/mp4")]),
        picture("p4", [("nsfw", true)]), album("whole", [picture("a1"), picture("a2")], count: 2),
        album("cut", [picture("b1")], count: 3),
        album("mature", [picture("c1")], count: 1, [("nsfw", true)]),
        picture("p5", [("link", .string("\(peer.address)/a/p5"))]), picture("p1"),
        picture("whale", [("title", "Blue whale")]), picture("p6"),
      ], albums: [("cut", .array([picture("b1"), picture("b2"), picture("b3")]))])
    let input = """
      { "imgur": { "q": "fox", "pages": 9, "clientId": "${secret.ID}", "endpoint": "\(peer.address)" },
        "allowPrivate": true }
      """
    let scene = try scene(input, to: "out/${item.index}.${ext}")
    let ended = try run(scene, environment: ["ID": key])
    #expect(ended.result.exitCode == 0, "\(ended.result.error)")
    #expect(ended.items.count == 7)
    #expect(ended.statuses.allSatisfy { $0 == "done" })
    // p1 once, then both albums, the second from its own list.
    let sent = try peer.log(.imgur, key: key)
    #expect(
      sent.map(\.path) == [
        "/3/gallery/search/time/all/0", "/3/gallery/search/time/all/1", "/3/album/cut/images",
        "/3/gallery/search/time/all/2", "/3/gallery/search/time/all/3", "/3/gallery/search/time/all/4",
      ])
    #expect(sent.flatMap(\.remarks) == [])
    #expect(try peer.log(.pictures).allSatisfy { $0.header("authorization") == nil })
    // What was passed over is counted.
    var settings = scene.settings()
    settings.environment = Self.environment(["ID": key])
    let plan = RunProgram.run(["plan", "job.json"], settings)
    for words in [
      "1 animated", "1 a video", "2 marked as not for everyone", "1 without a direct link", "1 found before",
    ] {
      #expect((plan.output + plan.error).contains(words), "\(plan.output) \(plan.error)")
    }
    // A limit ends it early.
    let few = try self.scene(
      input.replacing("\"pages\": 9", with: "\"pages\": 9, \"limit\": 2"), to: "out/${item.index}.${ext}")
    #expect(try run(few, environment: ["ID": key]).items.count == 2)
  }
}
