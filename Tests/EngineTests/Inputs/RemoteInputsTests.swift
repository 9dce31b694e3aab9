import Digest
import Glibc
import JobSyntax
import PipelineKit
import TestSupport
import Testing
import Transport

@testable import Engine

/// Inputs that are no files here, as far as they are known before anything is fetched.
@Suite struct RemoteInputsTests {
  // MARK: Names

  @Test(
    "an address is called by its path, decoded, and never by its query",
    arguments: [
      ("https://h.example/a/b.jpg", "https://h.example/a/b.jpg", "b"),
      ("HTTPS://H.example:443/b.jpg", "https://h.example/b.jpg", "b"),
      ("http://h.example:8080/a%20b.jpg?token=canary", "http://h.example:8080/a b.jpg", "a b"),
      ("https://h.example/a%2Fb.jpg#part", "https://h.example/a_b.jpg", "a_b"),
      ("https://h.example/x/%2e%2E/%00.png", "https://h.example/x/__/_.png", "_"),
      ("https://h.example/x/..", "https://h.example/x/__", "__"),
      ("https://h.example/a%0A%1b.jpg", "https://h.example/a__.jpg", "a__"),
      ("https://h.example/100%.jpg", "https://h.example/100%.jpg", "100%"),
      ("https://h.example/%+1%-1.jpg", "https://h.example/%+1%-1.jpg", "%+1%-1"),
      ("https://h.example", "https://h.example/index", "index"),
      ("https://h.example/photo/", "https://h.example/photo/", "photo"),
      ("https://h.example/ä.jpg", "https://h.example/ä.jpg", "ä"),
    ])
  func names(_ text: String, _ name: String, _ stem: String) throws {
    let (source, found) = try RemoteSource.address(text)
    #expect(found.string == name)
    #expect(found.stem.string == stem)
    #expect(source.kind == .address)
    #expect(source.location.utf8.allSatisfy { $0 < 0x80 })
  }

  @Test("addresses of one name are told apart, without showing what they differ in")
  func marks() throws {
    func mark(_ text: String) throws -> [UInt8]? {
      let (source, name) = try RemoteSource.address(text)
      return source.mark(beside: name)
    }
    #expect(try mark("https://h.example/a.jpg") == nil)
    let first = try #require(try mark("https://h.example/a.jpg?key=canary1"))
    let second = try #require(try mark("https://h.example/a.jpg?key=canary2"))
    #expect(first != second)
    #expect(
      first == Array(Hex.text(SHA256.digest(of: Array("https://h.example/a.jpg?key=canary1".utf8)).prefix(16)).utf8))
    let (object, name) = RemoteSource.object("a/b.jpg", of: "photos", version: nil)
    #expect(name.string == "s3://photos/a/b.jpg")
    #expect(object.mark(beside: name) == nil)
    let (odd, oddName) = RemoteSource.object("../b.jpg", of: "photos", version: nil)
    #expect(oddName.string == "s3://photos/__/b.jpg")
    #expect(odd.mark(beside: oddName) != nil)
  }

  @Test("the ledger's key has no query in it")
  func ledgerKeys() throws {
    let (source, name) = try RemoteSource.address("https://h.example/a.jpg?sig=canary")
    var identity = ItemIdentity(index: 0, path: name, name: name, directory: "", remote: source)
    let key = RunHistory.key(of: identity)
    #expect(!String(decoding: key, as: UTF8.self).contains("canary"))
    // What is before the first NUL is the name.
    #expect(PathBytes(key.prefix { $0 != 0 }) == name)
    identity.occurrence = 1
    #expect(RunHistory.key(of: identity) != key)
  }

  // MARK: What is kept of them

  private func items() throws -> [InputItem] {
    let version = FileStamp(size: 12, modified: -5, changed: .max)
    var items: [InputItem] = []
    func add(_ remote: RemoteSource?, _ name: PathBytes, directory: PathBytes = "", columns: [String: String] = [:]) {
      items.append(
        InputItem(
          path: remote == nil ? PathBytes("/base").joining(name) : name, name: name, relativeDirectory: directory,
          index: items.count, columns: columns, declaration: 0, line: items.count + 1, remote: remote))
    }
    add(nil, "in/a.jpg")
    for text in ["https://h.example/a.jpg", "https://h.example/b.jpg?x=1", "https://h.example/b.jpg?x=2"] {
      let (source, name) = try RemoteSource.address(text)
      add(source, name, columns: ["sku": "1"])
    }
    add(nil, "in/b.jpg")
    for key in ["photos/a.jpg", "photos/../ü.jpg", "x"] {
      let (source, name) = RemoteSource.object(key, of: "bucket", version: key == "x" ? nil : version)
      add(source, name, directory: "photos")
    }
    return items
  }

  @Test func listsGiveBackWhatTheyWereGiven() throws {
    let items = try items()
    let list = InputList(items)
    #expect(Array(list) == items)
    #expect(list.hasRemote)
    #expect(list.indices.map { list.isRemote(at: $0) } == items.map { $0.remote != nil })
    #expect(!InputList(items.filter { $0.remote == nil }).hasRemote)
    #expect(Array(InputList(items.reversed())) == items.reversed())
  }

  @Test func plansAndChildrenKnowThem() throws {
    let items = try items()
    var file = PlanFile(
      identity: RunIdentity(runID: "run", started: 1), jobText: [], jobFile: "job.json", baseFolder: "/base",
      reportPath: nil)
    file.inputs = InputList(items)
    let descriptor = try #require(file.write())
    defer { close(descriptor) }
    #expect(Array(try #require(PlanFile(descriptor)).inputs) == items)
    for item in items {
      let identity = ItemIdentity(
        index: item.index, path: item.path, name: item.name, directory: item.relativeDirectory, remote: item.remote)
      let text = Array(Message.item(identity).rendered().utf8)
      let node = try #require(StrictJSON.parse(SourceFile(name: "message", text: text)).root)
      #expect(Message.identity(node)?.remote == item.remote)
    }
  }

  // MARK: Lists and manifests

  @Test func listsMayNameAddresses() throws {
    let tree = try TemporaryTree()
    try tree.files("a.jpg")
    let long =
      "https://h.example/" + String(repeating: "x", count: 6_000) + ".jpg?q=" + String(repeating: "y", count: 9_000)
    try tree.file("list", "a.jpg\nhttps://h.example/b.jpg?x=1\r\nHTTP://h.example/c.jpg\n\n\(long)\nhttp/d.jpg\n")
    let items = try tree.walk([.list("list")]).items
    #expect(
      items.map { $0.remote?.location } == [
        nil, "https://h.example/b.jpg?x=1", "HTTP://h.example/c.jpg", long, nil,
      ])
    #expect(items.map(\.line) == [1, 2, 3, 5, 6])
    #expect(items[1].name == "https://h.example/b.jpg")
    #expect(items[1].relativeDirectory == "")
  }

  @Test func manifestsMayNameAddresses() throws {
    let tree = try TemporaryTree()
    try tree.file("m.csv", "path,sku\nhttps://h.example/b.jpg,1\nlocal.jpg,2\n")
    let items = try tree.walk([.manifest("m.csv")]).items
    #expect(items.map { $0.remote?.location } == ["https://h.example/b.jpg", nil])
    #expect(items.map(\.columns) == [["sku": "1"], ["sku": "2"]])
    try tree.file("m.jsonl", "{\"input\": \"https://h.example/c.jpg\"}\n")
    #expect(try tree.walk([.manifest("m.jsonl")]).items.first?.remote?.location == "https://h.example/c.jpg")
  }

  @Test("every line that begins as an address and is none is told, without what it holds")
  func brokenAddresses() throws {
    let tree = try TemporaryTree()
    try tree.file(
      "list", "https://\nhttps://user:canary@h.example/a.jpg\nhttps://h.example/a b.jpg\nhttps://h.example/ok.jpg\n")
    let found = try problems { try tree.walk([.list("list")]) }
    #expect(found.map(\.code) == [.list, .list, .list])
    #expect(found.map(\.line) == [1, 2, 3])
    #expect(!found.contains { $0.message.contains("canary") })
    try tree.file("long", "https://h.example/" + String(repeating: "x", count: RemoteSource.longestAddress) + "\n")
    #expect(try problems { try tree.walk([.list("long")]) }.map(\.code) == [.list])
    // No path is that long.
    try tree.file("path", String(repeating: "x", count: 5_000) + "\n")
    #expect(try problems { try tree.walk([.list("path")]) }.map(\.code) == [.list])
  }

  @Test func addressesComeInTheirOrder() throws {
    let tree = try TemporaryTree()
    let texts = ["https://h.example/b.jpg", "https://h.example/a.jpg", "https://h.example/b.jpg"]
    #expect(try tree.walk([.addresses(texts)]).items.map { $0.remote?.location } == texts)
    #expect(try tree.walk([.addresses([], allowEmpty: true)]).items.isEmpty)
    #expect(try problems { try tree.walk([.addresses([])]) }.map(\.code) == [.empty])
    let wrong = try problems { try tree.walk([.addresses(["https://h.example/", "ftp://h.example/a.jpg", "a.jpg"])]) }
    #expect(wrong.map(\.code) == [.address, .address])
    #expect(wrong.map(\.element) == [1, 2])
  }

  // MARK: Lint

  private func codes(_ input: String, more: String = "", environment: [String: String] = [:]) -> [String] {
    let text = """
      { "version": 1, "input": \(input),\(more)
        "stages": [
          { "stage": "decode" }, { "stage": "encode", "format": "jpeg" },
          { "stage": "write", "to": "out/${item.index}.${ext}" }
        ] }
      """
    let loaded = JobLoader(registry: LintTests.registry()) { environment[$0] }
      .load(Array(text.utf8), name: "job.json", folder: "/jobs")
    return loaded.diagnostics.map(\.code)
  }

  @Test(
    "what can be known to be wrong is said by lint",
    arguments: [
      (#"{ "urls": ["https://h.example/a.jpg"] }"#, []),
      (#"{ "urls": [] }"#, ["out-of-range"]),
      (#"{ "urls": ["https://h.example/a.jpg"], "files": ["*.jpg"] }"#, ["conflicting-keys"]),
      (#"{ "urls": ["file:///etc/passwd"] }"#, ["input-address"]),
      (#"{ "urls": ["https://u:p@h.example/a.jpg"] }"#, ["input-address"]),
      (#"{ "urls": ["http://127.0.0.1/a.jpg"] }"#, ["private-address"]),
      (#"{ "urls": ["http://0x7f.1/a.jpg", "http://[::ffff:10.0.0.1]/"] }"#, ["private-address", "private-address"]),
      (#"{ "urls": ["http://127.0.0.1/a.jpg"], "allowPrivate": true }"#, []),
      (#"{ "files": ["*.jpg"], "maxBytes": 5 }"#, ["no-effect"]),
      (#"{ "urls": ["https://h.example/a.jpg"], "headers": { "Authorization": "Bearer ${secret.T}" } }"#, []),
      (
        #"{ "urls": ["https://h.example/a.jpg"], "headers": { "X": "${item.stem}" } }"#, ["variable-not-allowed"]
      ),
      (#"{ "list": "l", "headers": { "Referer": "https://h.example/" } }"#, ["missing-field"]),
      (#"{ "list": "l", "headers": { "Referer": "https://h.example/" }, "headerHosts": ["h.example"] }"#, []),
      (#"{ "s3": { "bucket": "photos", "prefix": "a/" } }"#, []),
      (#"{ "s3": { "prefix": "a/" } }"#, ["missing-key"]),
      (#"{ "s3": { "bucket": "Not_A_Bucket!" } }"#, ["wrong-value"]),
      (#"{ "s3": { "bucket": "photos", "accessKeyId": "${secret.T}" } }"#, ["missing-field"]),
      (#"{ "imgur": { "q": "fox", "clientId": "${secret.T}" } }"#, []),
      (#"{ "imgur": { "clientId": "${secret.T}" } }"#, ["missing-key"]),
      (#"{ "imgur": { "q": "fox" } }"#, ["missing-key"]),
      (#"{ "imgur": { "q": "fox", "q_not": "dog", "clientId": "${secret.T}" } }"#, ["exclusive-fields"]),
      (#"{ "imgur": { "q": "fox", "window": "day", "clientId": "${secret.T}" } }"#, ["no-effect"]),
    ])
  func lint(_ input: String, _ expected: [String]) {
    #expect(codes(input, environment: ["T": "canary-value"]) == expected)
  }

  @Test func sourcesThatAreNoFilesCannotBeMoved() {
    let after = #" "onSuccess": { "source": "delete" },"#
    #expect(codes(#"{ "urls": ["https://h.example/a.jpg"] }"#, more: after) == ["source-remote"])
    #expect(codes(#"{ "s3": { "bucket": "photos" } }"#, more: after) == ["source-remote"])
  }

  @Test("a list is known to name addresses when the run is planned, and then sources stay")
  func plannedSourcesCannotBeMoved() throws {
    let tree = try TemporaryTree()
    try tree.file("list", "https://h.example/a.jpg\n")
    let text = """
      { "version": 1, "input": { "list": "list" }, "onSuccess": { "source": "delete" },
        "stages": [
          { "stage": "decode" }, { "stage": "encode", "format": "jpeg" },
          { "stage": "write", "to": "out/${item.index}.${ext}" }
        ] }
      """
    let loaded = JobLoader(registry: LintTests.registry()).load(Array(text.utf8), name: "job.json", folder: tree.root)
    let job = try #require(loaded.job)
    let run = RunValues(baseFolder: tree.root, runID: "run", runDate: "2026-01-01")
    #expect(try Planner.plan(job, run: run).findings.map(\.code) == ["source-remote"])
  }

  // MARK: Imgur's answers

  @Test(
    "Imgur's refusals are understood, in all their shapes",
    arguments: [
      (200, #"{"data":[],"success":true,"status":200}"#, nil),
      (200, #"{"data":{"error":"no","request":"/3","method":"GET"},"success":false,"status":400}"#, .request),
      (200, "<html>busy</html>", .temporary),
      (
        403,
        #"{"data":{"error":"Imgur is temporarily over capacity. Please try again later."},"success":false,"status":403}"#,
        .rate
      ),
      (403, #"{"data":{"error":"Invalid client_id"},"success":false,"status":403}"#, .credentials),
      (429, #"{"errors":[{"id":"x","code":"429","status":"Too Many Requests","detail":"Too Many Requests"}]}"#, .rate),
      (503, "<html></html>", .temporary),
    ] as [(Int, String, FailureKind?)])
  func imgurAnswers(_ status: Int, _ body: String, _ kind: FailureKind?) throws {
    let url = try RequestURL("https://api.imgur.com/3/gallery/search/time/all/0")
    let headers = Headers([("X-RateLimit-UserRemaining", "0"), ("X-RateLimit-UserReset", "90")])
    let failure = ImgurListing.failure(Response(status: status, headers: headers, body: Array(body.utf8), url: url))
    #expect(failure?.kind == kind)
    if kind == .rate { #expect(failure?.wait == 90) }
  }
}
