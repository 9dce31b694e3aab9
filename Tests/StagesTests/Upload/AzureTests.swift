import Imaging
import JobSyntax
import PipelineKit
import TestSupport
import Testing

@testable import Stages
@testable import Transport

/// `upload` to Azure, against the stand-in that follows its contract.
@Suite(.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers")) struct AzureTests {
  let upload = UploadBench()
  private let account = Peers.freshName("account")

  init() throws {
    try Peers.standIn().addKey(.azure, account, [("containers", ["shop"])])
  }

  private func address(_ path: String, permissions: String = "cwrd", _ more: [(String, JSONText)] = []) throws -> String
  {
    let server = try Peers.standIn()
    let query = try server.signature(account: account, container: "shop", permissions: permissions, more)
    return "\(server.address)/\(account)/\(path)?\(query)"
  }

  /// A signature differs from test to test, and stands in the job itself: no variable of the process is changed while
  /// others read them.
  private func json(_ address: String, _ more: String = "") -> String {
    upload.json("azure", #""sasURL": "\#(address)""# + more)
  }

  private func blob(_ name: String) throws -> JSONNode? {
    try Peers.standIn().state(.azure, key: account)["shop"]?[name]
  }

  @Test func `a blob is put below the container, with its headers`() throws {
    let item = try upload.encoded("a b+ü%.png", directory: "winter")
    let journal = ItemJournal()
    let receipt = try upload.receipt(
      json(
        try address("shop", permissions: "cwrdt", [("awkward", true)]),
        #", "cacheControl": "max-age=60", "contentDisposition": "inline", "accessTier": "Cool", "#
          + #""metadata": { "source": "${item.name}", "_n1": "x" }, "tags": { "kind": "a&b" }"#), item, journal: journal
    )
    let stored = try #require(try blob("winter/a b+ü%.png"))
    #expect(stored["sha256"]?.stringValue == item.encoded?.bytes.sha256)
    #expect(stored["headers"]?["Content-Type"]?.stringValue == "image/png")
    #expect(stored["headers"]?["Cache-Control"]?.stringValue == "max-age=60")
    #expect(stored["headers"]?["Content-Disposition"]?.stringValue == "inline")
    #expect(stored["metadata"]?["source"]?.stringValue == "a%20b%2B%C3%BC%25.png")
    #expect(stored["tier"]?.stringValue == "Cool" && stored["tags"]?.stringValue == "kind=a%26b")
    #expect(receipt.etag == stored["etag"]?.stringValue)
    let plain = "\(try Peers.standIn().address)/\(account)/shop/winter/a%20b%2B%C3%BC%25.png"
    #expect(receipt.link == plain && receipt.deleteLink == plain)
    let entry = try #require(try Peers.standIn().log(.azure, key: account).last { $0.method == "PUT" })
    #expect(entry.header("x-ms-blob-type") == "BlockBlob" && entry.header("authorization") == nil)
    #expect(!entry.isChunked && entry.remarks.isEmpty)
    #expect(journal.snapshot.outputs.first?.place == .link(plain))
  }

  @Test func `a signature of one blob is for one picture`() throws {
    let address = try address("shop/one.png", [("blob", "one.png")])
    let item = try upload.encoded()
    _ = try upload.receipt(json(address), item)
    #expect(try blob("one.png")?["sha256"]?.stringValue == item.encoded?.bytes.sha256)
    #expect(try upload.failure(json(address), try upload.encoded("b.png")).code == "output-collision")
    let both = try upload.refusal(json(address, #", "path": "x.png""#))
    #expect(both.code == "upload-address" && both.message.contains("one blob"))
  }

  @Test func `what is there is kept or an error where the job says so`() throws {
    let address = try address("shop")
    let (first, second) = (try upload.encoded("x.png"), try upload.encoded("x.png", seed: 9))
    _ = try UploadBench().receipt(json(address), first)
    let journal = ItemJournal()
    let (outcome, receipt) = try UploadBench().send(json(address, #", "overwrite": "skip""#), second, journal: journal)
    guard case .next = outcome else { throw StageError("test", "\(outcome)") }
    #expect(receipt == nil && journal.warningCodes == ["upload-kept"])
    #expect(try UploadBench().failure(json(address, #", "overwrite": "error""#), second).code == "output-exists")
    guard case .next = try UploadBench().send(json(address, #", "overwrite": "error""#), first).outcome else {
      throw StageError("test", "the same picture is no error")
    }
    #expect(try blob("x.png")?["sha256"]?.stringValue == first.encoded?.bytes.sha256)
    _ = try UploadBench().receipt(json(address), second)
    #expect(try blob("x.png")?["sha256"]?.stringValue == second.encoded?.bytes.sha256)
  }

  @Test func `a blob stored before a lost answer is ours`() throws {
    try Peers.standIn().script(.azure, key: account, [("method", "PUT"), ("drop", true)])
    let item = try upload.encoded("lost.png")
    let receipt = try upload.receipt(json(try address("shop"), #", "overwrite": "error""#), item)
    #expect(receipt.link?.hasSuffix("/lost.png") == true)
    let puts = try Peers.standIn().log(.azure, key: account).filter { $0.method == "PUT" }
    #expect(puts.count == 2 && puts.first?.fate != "answered" && puts.last?.status == 409)
  }

  @Test func `trouble of the service is waited out`() throws {
    try Peers.standIn().script(
      .azure, key: account, [("status", 503), ("headers", ["x-ms-error-code": "ServerBusy", "Retry-After": "0"])],
      [("status", 500), ("headers", ["x-ms-error-code": "InternalError"])])
    _ = try upload.receipt(json(try address("shop")), try upload.encoded("busy.png"))
    #expect(try Peers.standIn().log(.azure, key: account).map(\.status) == [503, 500, 201])
  }

  @Test func `receipts are verified and what was sent is taken back`() throws {
    let address = try address("shop")
    let receipt = try upload.receipt(json(address), try upload.encoded("r.png"))
    let keeper = try upload.keeper(json(address))
    #expect(try keeper.verify(receipt) == .present(isSame: true))
    // Someone has put another in its place.
    _ = try UploadBench().receipt(json(address), try upload.encoded("r.png", seed: 3))
    #expect(try keeper.verify(receipt) == .present(isSame: false))
    let replaced = #expect(throws: StageError.self) { try keeper.delete(receipt) }
    #expect(replaced?.code == "receipt-replaced")
    let last = try UploadBench().receipt(json(address), try upload.encoded("r.png"))
    try keeper.delete(last)
    #expect(try keeper.verify(last) == .gone && blob("r.png") == nil)
    try keeper.delete(last)
    let weak = try upload.keeper(json(try self.address("shop", permissions: "cw")))
    let refused = #expect(throws: StageError.self) { try weak.verify(receipt) }
    #expect(refused?.code == "service-credentials")
  }

  @Test func `the signature is shown nowhere`() throws {
    let address = try address("shop", permissions: "r", [("awkward", true)])
    let signature = String(try #require(address.split(separator: "sig=").last))
    let failure = try upload.failure(json(address), try upload.encoded())
    #expect(failure.code == "service-credentials" && failure.kind == .environment)
    for text in [failure.description, Secrets.redacted("at \(address)"), Secrets.redacted(address.lowercased())] {
      #expect(!text.contains(signature))
    }
  }

  @Test func `a container that is not there, and a picture too large, are told`() throws {
    let server = try Peers.standIn()
    let query = try server.signature(account: account, container: "other")
    let missing = try upload.failure(json("\(server.address)/\(account)/other?\(query)"), try upload.encoded())
    #expect(missing.code == "service-missing" && missing.message.contains("ContainerNotFound"))
    for (version, most) in [("2021-08-06", 5000), ("2019-12-12", 5000), ("2019-07-07", 256), ("2015-04-05", 64)] {
      let url = try RequestURL("https://a.example/c?sv=\(version)&sig=abcdefgh")
      #expect(try SignedAddress(url).mostBytes == most << 20)
    }
  }

  @Test func `an endpoint stands in for the address's own host`() throws {
    let server = try Peers.standIn()
    let address = try address("shop").replacing(server.address, with: "https://real.example")
    _ = try upload.receipt(json(address, #", "endpoint": "\#(server.address)/""#), try upload.encoded("e.png"))
    #expect(try blob("e.png") != nil)
  }

  @Test func `addresses are looked at when the run starts`() throws {
    #expect(try upload.refusal(json("https://h.example/c?sv=1")).message.contains("no signature"))
    #expect(try upload.refusal(json("h.example/c")).message.contains("no address"))
    #expect(try upload.refusal(json("http://h.example/c?sig=abcdefgh")).code == "upload-insecure")
  }

  @Test(arguments: [
    (#""metadata": { "a-b": "x" }"#, "metadata"), (#""metadata": { "1a": "x" }"#, "metadata"),
    (#""metadata": { "a": "x", "A": "y" }"#, "twice"), (#""accessTier": "Warm""#, "Hot"),
    (#""cacheControl": "ü""#, "ASCII"), (#""endpoint": "http://h.example""#, "unencrypted"),
  ])
  func `lint refuses`(more: String, words: String) throws {
    let text = upload.json("azure", #""sasURL": "${secret.A}", "# + more)
    let findings = try upload.lint(text)
    #expect(findings.contains { $0.contains(words) }, "\(findings)")
  }
}
