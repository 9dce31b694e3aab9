import Glibc
import JobSyntax
import TestSupport
import Testing
import Transport

/// Runs that send to a store which checks signatures.
@Suite(.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"))
struct S3RunTests {
  private let store: Moto
  private let scene: Scene
  private let bucket: String

  private static let names = ["plain", "a b+c", "100%&", "\u{FC}", "u\u{308}"]

  init() throws {
    store = try Peers.moto()
    bucket = try store.makeBucket()
    scene = try Scene(pictures: 1, remembers: true)
    let picture = try #require(scene.folder.read("in/p00.jpg"))
    scene.folder.remove("in")
    for name in Self.names { scene.folder.write(picture, to: "in/sub/\(name).jpg") }
  }

  private func job(_ more: String = "") {
    scene.folder.write(
      """
      {
        "version": 1, "name": "bucket", "input": { "files": ["in/**/*.jpg"] },
        "stages": [
          { "stage": "decode" }, { "stage": "encode", "format": "png" },
          { "stage": "upload", "provider": "s3", "endpoint": "\(store.address)", "bucket": "\(bucket)",
            "prefix": "img/" \(more) }
        ],
        "run": {}
      }
      """, to: "job.json")
  }

  private func environment(_ variables: [String: String]) -> (inout RunProgram.Settings) -> Void {
    { settings in
      var all = variables
      for name in ["PATH", "HOME", "PIPELINE_HOME"] {
        if let value = getenv(name) { all[name] = String(cString: value) }
      }
      settings.environment = all
    }
  }

  private var keys: (inout RunProgram.Settings) -> Void {
    environment(["AWS_ACCESS_KEY_ID": store.keys.accessKey, "AWS_SECRET_ACCESS_KEY": store.keys.secretKey])
  }

  private func client() throws -> S3Client {
    S3Client(
      try S3Bucket(bucket, region: nil, endpoint: try RequestURL(store.address)),
      caller: Caller(client: Client(), pacer: Pacer(perMinute: nil)),
      credentials: AWSCredentials(
        accessKeyID: store.keys.accessKey, secretAccessKey: store.keys.secretKey, sessionToken: nil, origin: "the test"),
      pause: { _ in })
  }

  private func stored() throws -> [S3Object] {
    var objects: [S3Object] = []
    try client().eachObject {
      objects.append($0)
      return true
    }
    return objects
  }

  /// By C's own search: whole files are looked through.
  private static func holds(_ bytes: [UInt8], _ text: String) -> Bool {
    let wanted = Array(text.utf8)
    guard let first = wanted.first else { return true }
    return bytes.withUnsafeBytes { bytes in
      guard var place = bytes.baseAddress else { return false }
      let end = place + bytes.count
      while end - place >= wanted.count, let found = memchr(place, Int32(first), end - place) {
        place = UnsafeRawPointer(found)
        if end - place >= wanted.count, memcmp(place, wanted, wanted.count) == 0 { return true }
        place += 1
      }
      return false
    }
  }

  @Test func `pictures are sent, shown by their links, verified, and taken back`() throws {
    job()
    let result = scene.run("run", "job.json", "--report", "report.json", change: keys)
    #expect(result.exitCode == 0, "\(result.error)")
    // As bytes: both normal forms of a letter are there.
    let expected = Set(Self.names.map { Array("img/sub/\($0).png".utf8) })
    let objects = try stored()
    #expect(Set(objects.map { Array($0.key.utf8) }) == expected && objects.count == expected.count)

    let items = try #require(try scene.report()["items"]?.arrayValue)
    var links: Set<String> = []
    for item in items {
      #expect(item["status"]?.stringValue == "done")
      let output = try #require(item["outputs"]?.arrayValue?.first)
      let link = try #require(output["link"]?.stringValue)
      links.insert(link)
      let key = try #require(objects.first { link.hasSuffix("/" + RequestURL.encoded(path: $0.key)) }?.key)
      let object = try #require(try client().get(key))
      #expect(object.object.sha256 == output["sha256"]?.stringValue && object.object.type == "image/png")
      #expect(object.bytes.count == output["bytes"]?.integer && object.bytes.starts(with: [0x89, 0x50, 0x4E, 0x47]))
    }
    #expect(links.count == Self.names.count)

    // Nothing is sent again, and nothing shows the key.
    let again = scene.run("run", "job.json", "--report", "again.json", change: keys)
    #expect(again.exitCode == 0, "\(again.error)")
    #expect(
      try scene.report("again.json")["items"]?.arrayValue?.allSatisfy { $0["status"]?.stringValue == "skipped" } == true
    )
    for text in [result.error, result.output, again.error] { #expect(!text.contains(store.keys.secretKey)) }
    for name in scene.folder.tree() where !name.hasSuffix("/") {
      #expect(!Self.holds(scene.folder.read(name) ?? [], store.keys.secretKey), "\(name)")
    }

    func receipts(_ arguments: String...) throws -> (ProgramResult, [JSONNode]) {
      let settings = scene.settings(keys)
      let result = RunProgram.run(["receipts"] + arguments + ["--format", "json"], settings)
      return (result, result.outputBytes.isEmpty ? [] : try #require(try json(result.outputBytes).arrayValue))
    }
    #expect(Set(try receipts("list", "job.json").1.compactMap { $0["link"]?.stringValue }) == links)
    let verified = try receipts("verify", "job.json")
    #expect(verified.0.exitCode == 0 && verified.1.allSatisfy { $0["result"]?.stringValue == "present" })
    // One is replaced by somebody else, and one is gone.
    _ = try client().put("img/sub/plain.png", Payload("other"))
    try client().delete("img/sub/a b+c.png")
    let changed = try receipts("verify", "job.json")
    #expect(changed.0.exitCode == 1)
    #expect(
      changed.1.compactMap { $0["result"]?.stringValue }.sorted() == [
        "changed", "gone", "present", "present", "present",
      ])
    let deleted = try receipts("delete", "job.json", "--all")
    #expect(deleted.0.exitCode == 1)
    #expect(deleted.1.filter { $0["result"]?.stringValue == "failed" }.count == 1)
    #expect(try stored().map(\.key) == ["img/sub/plain.png"])
  }

  @Test func `keys come from a profile, and a wrong one stops the run`() throws {
    scene.folder.write(
      """
      [shop]
      aws_access_key_id = \(store.keys.accessKey)
      aws_secret_access_key = \(store.keys.secretKey)
      [wrong]
      aws_access_key_id = \(store.keys.accessKey)
      aws_secret_access_key = wrong/secret+key0
      """, to: "credentials")
    let files = ["AWS_SHARED_CREDENTIALS_FILE": scene.folder["credentials"], "AWS_CONFIG_FILE": scene.folder["none"]]
    job(#", "profile": "wrong""#)
    let wrong = scene.run("run", "job.json", change: environment(files))
    #expect(wrong.exitCode == 4 || wrong.exitCode == 1)
    #expect(wrong.error.contains("SignatureDoesNotMatch") && !wrong.error.contains("wrong/secret+key0"))
    #expect(try stored().isEmpty)
    job(#", "profile": "nobody""#)
    let nobody = scene.run("run", "job.json", change: environment(files))
    #expect(nobody.exitCode == 4 && nobody.error.contains("there is no AWS profile \"nobody\""))
    job()
    let named = scene.run("run", "job.json", change: environment(files.merging(["AWS_PROFILE": "shop"]) { $1 }))
    #expect(named.exitCode == 0, "\(named.error)")
    #expect(try stored().count == Self.names.count)
  }

  @Test func `what is there is left alone, and no receipt says otherwise`() throws {
    _ = try client().put("img/sub/plain.png", Payload("other"))
    job(#", "ifAbsent": true"#)
    let result = scene.run("run", "job.json", change: keys)
    #expect(result.exitCode == 0 && result.error.contains("output-kept"), "\(result.error)")
    #expect(try client().get("img/sub/plain.png")?.bytes == Array("other".utf8))
    let list = try json(RunProgram.run(["receipts", "list", "job.json", "--format", "json"], scene.settings()).output)
    #expect(list.arrayValue?.count == Self.names.count - 1)
  }
}
