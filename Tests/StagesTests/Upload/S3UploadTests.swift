import Digest
import Glibc
import Imaging
import PipelineKit
import Stages
import TestSupport
import Testing

/// `upload` to S3, against a server that answers as it is told and keeps what it got.
@Suite struct S3UploadTests {
  let bench = StageBench()

  /// The keys that jobs of these tests name.
  private static let hasKeys: Bool = {
    setenv("S3_TEST_ID", "AKTESTKEY", 1)
    setenv("S3_TEST_SECRET", "a secret of these tests", 1)
    setenv("S3_TEST_TOKEN", "a token of these tests", 1)
    return true
  }()
  private static let keys =
    #", "accessKeyId": "${secret.S3_TEST_ID}", "secretAccessKey": "${secret.S3_TEST_SECRET}""#

  init() { #expect(Self.hasKeys) }

  private func encoded(
    name: String = "shoe.png", directory: String = "", columns: [String: String] = [:]
  ) throws -> Item {
    let image = try Pictures.solid(3, 2, 7, 7, 7)
    return bench.item(bench.folder["in/" + name], name: name, directory: directory, columns: columns)
      .with(image: image)
      .with(encoded: .init(bytes: try image.encoded(.png(.init())), format: .png, width: 3, height: 2))
  }

  private func json(_ address: String, _ more: String = "") -> String {
    "{ \"stage\": \"upload\", \"provider\": \"s3\", \"endpoint\": \"\(address)\", \"bucket\": \"shop\"\(Self.keys)\(more) }"
  }

  private static func stored(_ request: ScriptedServer.Request) -> ScriptedServer.Reply {
    request.method == "PUT" ? .answer(200, ["ETag: \"e\""]) : .answer(404)
  }

  @Test func `a picture is sent once, signed, with its type and its digest, and booked by its link`() throws {
    let server = ScriptedServer(Self.stored)
    let (item, journal) = (try encoded(), ItemJournal())
    _ = try bench.process(Upload.self, json(server.address), item, journal: journal)
    let request = try #require(server.requests.first)
    let bytes = try #require(item.encoded).bytes
    #expect(server.requests.count == 1 && request.method == "PUT" && request.target == "/shop/shoe.png")
    #expect(request.body == bytes.array)
    #expect(request["content-type"] == "image/png" && request["content-length"] == "\(bytes.count)")
    #expect(request["x-amz-content-sha256"] == bytes.sha256 && request["x-amz-meta-sha256"] == bytes.sha256)
    #expect(request["authorization"]?.hasPrefix("AWS4-HMAC-SHA256 Credential=AKTESTKEY/") == true)
    #expect(request["transfer-encoding"] == nil && request["expect"] == nil)
    let record = try #require(journal.snapshot.outputs.first)
    #expect(record.place == .link("\(server.address)/shop/shoe.png") && record.sha256 == bytes.sha256)
  }

  @Test(arguments: [
    ("", "winter/boots", "shoe.png", "/shop/winter/boots/shoe.png"),
    (#", "prefix": "img/${run.date}/""#, "", "a b+ü.png", "/shop/img/2026-05-01/a%20b%2B%C3%BC.png"),
    (#", "prefix": "img-""#, "", "shoe.png", "/shop/img-shoe.png"),
    (#", "prefix": "//x//../", "key": "./${item.name}""#, "", "shoe.png", "/shop///x//.././shoe.png"),
    (#", "key": "${item.hash}.${ext}""#, "", "shoe.png", nil),
    (#", "prefix": "img/${item.dir}", "key": "${item.dir}/x""#, "", "shoe.png", "/shop/img/x"),
    (#", "key": "a/${item.dir}/b""#, "", "shoe.png", "/shop/a/b"),
  ])
  func `keys are made from templates`(more: String, directory: String, name: String, target: String?) throws {
    let server = ScriptedServer(Self.stored)
    let item = try encoded(name: name, directory: directory)
    bench.folder.write("the input", to: "in/" + name)
    _ = try bench.process(Upload.self, json(server.address, more), item)
    let hash = Hex.text(SHA256.digest(of: Array("the input".utf8)))
    #expect(server.requests.first?.target == target ?? "/shop/\(hash).png")
  }

  @Test(arguments: [
    ("..", "output-escapes"), ("a/../b", "output-escapes"), (".", "output-escapes"), ("", "output-name"),
    ("a/", "output-name"), ("a/b/", "output-name"), ("/", "output-name"), ("a\u{0}b", "output-name"),
    (String(repeating: "x", count: 1_025), "output-name"),
  ])
  func `what comes with an item cannot name a folder above, nor nothing`(value: String, code: String) throws {
    let server = ScriptedServer(Self.stored)
    let failure = try bench.failure(
      of: Upload.self, json(server.address, #", "key": "${item.target}""#), try encoded(columns: ["target": value]))
    #expect(failure.code == code && server.requests.isEmpty)
  }

  @Test func `names that are not UTF-8 are refused`() throws {
    let server = ScriptedServer(Self.stored)
    let image = try Pictures.solid(3, 2, 7, 7, 7)
    let path = PathBytes(bytes: [0xFF, 0x61])
    let item = Item(identity: ItemIdentity(index: 0, path: path, name: path, directory: PathBytes(""), columns: [:]))
      .with(image: image)
      .with(encoded: .init(bytes: try image.encoded(.png(.init())), format: .png, width: 3, height: 2))
    #expect(try bench.failure(of: Upload.self, json(server.address), item).code == "output-name")
  }

  @Test func `two pictures are not sent to one key`() throws {
    let server = ScriptedServer(Self.stored)
    let more = #", "key": "same.png""#
    _ = try bench.process(Upload.self, json(server.address, more), try encoded(name: "a.png"))
    let failure = try bench.failure(of: Upload.self, json(server.address, more), try encoded(name: "b.png"))
    #expect(failure.code == "output-collision" && server.requests.count == 1)
  }

  @Test func `fields become headers`() throws {
    let server = ScriptedServer(Self.stored)
    let more = #"""
      , "sessionToken": "${secret.S3_TEST_TOKEN}", "contentType": "image/x", "cacheControl": "max-age=60",
      "contentDisposition": "inline", "metadata": { "Source": "${item.name}", "b": "1" }, "storageClass": "STANDARD_IA",
      "sse": "aws:kms", "kmsKey": "arn:aws:kms:x:1:key/2", "acl": "bucket-owner-full-control", "sha256": false
      """#
    _ = try bench.process(Upload.self, json(server.address, more), try encoded(name: "ü.png"))
    let request = try #require(server.requests.first)
    for (name, value) in [
      ("content-type", "image/x"), ("cache-control", "max-age=60"), ("content-disposition", "inline"),
      ("x-amz-meta-source", "%C3%BC.png"), ("x-amz-meta-b", "1"), ("x-amz-storage-class", "STANDARD_IA"),
      ("x-amz-server-side-encryption", "aws:kms"),
      ("x-amz-server-side-encryption-aws-kms-key-id", "arn:aws:kms:x:1:key/2"),
      ("x-amz-acl", "bucket-owner-full-control"), ("x-amz-security-token", "a token of these tests"),
    ] { #expect(request[name] == value) }
    #expect(request["x-amz-meta-sha256"] == nil)
  }

  @Test func `links begin as the job says`() throws {
    let server = ScriptedServer(Self.stored)
    for (base, link) in [
      ("https://img.example", "https://img.example/a%20b.png"),
      ("https://img.example/x/", "https://img.example/x/a%20b.png"),
    ] {
      let (bench, journal) = (StageBench(), ItemJournal())
      _ = try bench.process(
        Upload.self, json(server.address, ", \"publicURL\": \"\(base)\""), try encoded(name: "a b.png"),
        journal: journal)
      #expect(journal.snapshot.outputs.first?.place == .link(link))
    }
  }

  @Test func `what is there stays, or is known for the same`() throws {
    let bytes = try #require(try encoded().encoded).bytes
    let server = ScriptedServer { request in
      request.method == "HEAD"
        ? .answer(200, ["ETag: \"h\"", "x-amz-meta-sha256: \(bytes.sha256)"], bytes.array) : .answer(500)
    }
    for (more, codes, outputs) in [
      (#", "ifAbsent": true"#, ["output-kept"], 0), (#", "skipIdentical": true"#, [], 1),
    ] {
      let (bench, journal) = (StageBench(), ItemJournal())
      _ = try bench.process(Upload.self, json(server.address, more), try encoded(), journal: journal)
      #expect(journal.warningCodes == codes)
      #expect(
        journal.snapshot.outputs.map(\.place)
          == Array(repeating: .link("\(server.address)/shop/shoe.png"), count: outputs))
    }
    #expect(server.requests.map(\.method) == ["HEAD", "HEAD"])
  }

  @Test(arguments: [
    (403, "SignatureDoesNotMatch", "service-credentials", ErrorClass.environment),
    (404, "NoSuchBucket", "service-request", .item), (400, "EntityTooLarge", "service-too-large", .item),
    (507, "XMinioStorageFull", "service-quota", .budget),
  ])
  func `failures are told by the service's code`(status: Int, code: String, named: String, kind: ErrorClass) throws {
    let server = ScriptedServer { _ in
      .text(status, ["Content-Type: application/xml"], "<Error><Code>\(code)</Code><Message>Words</Message></Error>")
    }
    let failure = try bench.failure(of: Upload.self, json(server.address), try encoded())
    #expect(failure.code == named && failure.kind == kind)
    #expect(failure.message.contains("S3: \(status): Words (\(code))") && server.requests.count == 1)
  }

  // MARK: Before anything is sent

  @Test(arguments: [
    (#", "bucket": "no bucket""#, "is no name of a bucket"),
    (#", "bucket": "b", "region": "a/b""#, "is no region"),
    (#", "bucket": "b", "endpoint": "ftp://x""#, "\"endpoint\" is no address"),
    (#", "bucket": "b.c", "addressing": "virtual""#, "no certificate"),
    (#", "bucket": "b", "accessKeyId": "${secret.X}""#, "go together"),
    (#", "bucket": "b", "sessionToken": "${secret.X}""#, "is part of"),
    (
      #", "bucket": "b", "profile": "p", "accessKeyId": "${secret.X}", "secretAccessKey": "${secret.X}""#,
      "two different keys"
    ),
    (#", "bucket": "b", "kmsKey": "k""#, "\"kmsKey\" is for"),
    (#", "bucket": "b", "sse": "AES256", "kmsKey": "k""#, "\"kmsKey\" is for"),
    (#", "bucket": "b", "storageClass": "two words""#, "expects a word"),
    (#", "bucket": "b", "cacheControl": "a\nb""#, "for a header"),
    (#", "bucket": "b", "metadata": { "a b": "x" }"#, "expects names"),
    (#", "bucket": "b", "metadata": { "a": "ü" }"#, "outside ASCII"),
    (#", "bucket": "b", "metadata": { "a": "1", "A": "2" }"#, "twice"),
    (#", "bucket": "b", "metadata": { "sha256": "1" }"#, "noted already"),
    (#", "bucket": "b", "skipIdentical": true, "sha256": false"#, "does not note"),
    (#", "bucket": "b", "publicURL": "img.example""#, "\"publicURL\" expects"),
    (#", "bucket": "b", "multipartThreshold": 1000"#, "multipartThreshold"),
    (#", "bucket": "b", "acl": "everyone""#, "\"acl\" expects"),
    ("", "bucket"),
    (#", "bucket": "b", "url": "https://x""#, "url"),
  ])
  func `lint finds what cannot be`(more: String, words: String) throws {
    let findings = try StageBench.lint(Upload.self, #"{ "stage": "upload", "provider": "s3""# + more + " }")
    #expect(findings.contains { $0.message.contains(words) }, "\(findings.map(\.message))")
    let long = String(repeating: "x", count: 2_048)
    let metadata =
      "{ \"stage\": \"upload\", \"provider\": \"s3\", \"bucket\": \"b\", \"metadata\": { \"a\": \"\(long)\" } }"
    #expect(try StageBench.lint(Upload.self, metadata).contains { $0.message.contains("has 2049 bytes") })
  }

  @Test func `a missing profile, and a token that would go out unencrypted, stop the run`() throws {
    func failure(_ json: String) throws -> StageError? {
      let settings = try StageBench.settings(Upload.self, json)
      do throws(StageError) {
        _ = try Upload(
          settings,
          resources: StageResources(run: bench.run, computeWorkers: 1, facts: RunFacts()))
        return nil
      } catch { return error }
    }
    let profile = try failure(
      #"{ "stage": "upload", "provider": "s3", "bucket": "b", "region": "x", "profile": "no such profile" }"#)
    #expect(profile?.code == "s3-credentials" && profile?.kind == .environment)
    #expect(profile?.message.contains("\"no such profile\"") == true)
    let token = #", "sessionToken": "${secret.S3_TEST_TOKEN}""#
    #expect(try failure(json("http://store.example", token))?.code == "s3-credentials")
    for (address, more) in [
      ("https://store.example", token), ("http://localhost:1", token), ("http://store.example", ""),
    ] {
      #expect(try failure(json(address, more)) == nil)
    }
  }

  // MARK: Receipts

  @Test func `a receipt finds its object, tells another, and deletes only its own`() throws {
    let sent = [UInt8](repeating: 0xAB, count: 32)
    let server = ScriptedServer { request in
      switch (request.method, request.target) {
      case ("HEAD", "/shop/same%20one"): .answer(200, ["x-amz-meta-sha256: \(Hex.text(sent))"])
      case ("HEAD", "/shop/other"): .answer(200, ["x-amz-meta-sha256: 00"])
      case ("HEAD", "/shop/tagged"): .answer(200, ["ETag: \"e\""])
      case ("HEAD", "/shop/unknown"): .answer(200, [])
      case ("DELETE", "/shop/same%20one"), ("DELETE", "/shop/tagged"): .answer(204)
      case ("HEAD", _): .answer(404)
      default: .answer(500)
      }
    }
    let keeper = try #require(
      try Upload.receiptKeeper(
        try StageBench.settings(Upload.self, json(server.address)),
        resources: StageResources(run: bench.run, computeWorkers: 1, facts: RunFacts())))
    func receipt(_ key: String, bucket: String = "shop") -> UploadReceipt {
      UploadReceipt(
        provider: "s3", link: "x", deleteLink: "s3://\(bucket)/\(key)", etag: "\"e\"", sha256: sent)
    }
    #expect(try keeper.verify(receipt("same one")) == .present(isSame: true))
    #expect(try keeper.verify(receipt("other")) == .present(isSame: false))
    #expect(try keeper.verify(receipt("tagged")) == .present(isSame: true))
    #expect(try keeper.verify(receipt("unknown")) == .present(isSame: nil))
    #expect(try keeper.verify(receipt("gone")) == .gone)
    try keeper.delete(receipt("same one"))
    try keeper.delete(receipt("tagged"))
    try keeper.delete(receipt("gone"))
    #expect(throws: StageError.self) { try keeper.delete(receipt("other")) }
    #expect(throws: StageError.self) { try keeper.verify(receipt("same one", bucket: "another")) }
    #expect(server.requests.filter { $0.method == "DELETE" }.map(\.target) == ["/shop/same%20one", "/shop/tagged"])
  }
}
