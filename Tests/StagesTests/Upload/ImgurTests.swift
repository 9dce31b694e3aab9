import Digest
import Dispatch
import Imaging
import JobSyntax
import PipelineKit
import Synchronization
import TestSupport
import Testing

@testable import Stages
@testable import Transport

/// `upload` to Imgur, against the stand-in that follows its contract.
@Suite(.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers")) struct ImgurTests {
  let upload = UploadBench()
  /// The application's Client-ID, which stands in the job itself: tests set no variable while others read them.
  private let client = Peers.freshName("client")

  private func add(_ more: [(String, JSONText)] = []) throws { try Peers.standIn().addKey(.imgur, client, more) }

  private func json(_ more: String = "") throws -> String {
    upload.json("imgur", #""endpoint": "\#(try Peers.standIn().address)/3", "clientId": "\#(client)""# + more)
  }

  private func account(_ token: String, _ more: String = "") throws -> String {
    upload.json("imgur", #""endpoint": "\#(try Peers.standIn().address)/3", "accessToken": "\#(token)""# + more)
  }

  private func log() throws -> [StandIn.Entry] { try Peers.standIn().log(.imgur, key: client) }

  private func images() throws -> [JSONNode] {
    try Peers.standIn().state(.imgur, key: client)["images"]?.arrayValue ?? []
  }

  @Test(arguments: ["file", "base64", "urlencoded"])
  func `a picture arrives in every form, with its words`(form: String) throws {
    try add()
    let item = try upload.encoded("blue shoe.png", columns: ["note": "a & b=ü\n+"], side: 40)
    let receipt = try upload.receipt(
      try json(#", "request": "\#(form)", "title": "${item.stem}", "description": "${item.note}""#), item)
    let image = try #require(try images().first)
    #expect(image["sha256"]?.stringValue == item.encoded?.bytes.sha256)
    #expect(image["title"]?.stringValue == "blue shoe" && image["description"]?.stringValue == "a & b=ü\n+")
    #expect(image["name"]?.stringValue == "blue shoe.png")
    #expect(image["form"]?.stringValue == (form == "file" ? "file" : "base64"))
    #expect(receipt.link == "https://i.imgur.com/\(image["id"]?.stringValue ?? "").png")
    #expect(receipt.deleteLink == image["deletehash"]?.stringValue)
    let entry = try #require(try log().first)
    #expect(entry.remarks.isEmpty && entry.header("authorization") == "Client-ID \(client)")
    #expect(try log().count == 1)
  }

  @Test func `Imgur fetches it itself where the job says so`() throws {
    try add()
    let picture = try #require(try upload.encoded("other.png", seed: 5).encoded).bytes
    let address = try Peers.standIn().addPicture(picture.array, place: client, name: "p.png", type: "image/png")
    let item = try upload.encoded(columns: ["url": address])
    _ = try upload.receipt(try json(#", "request": "url", "sourceURL": "${item.url}""#), item)
    #expect(try images().first?["sha256"]?.stringValue == picture.sha256)
    let failure = try upload.failure(
      try json(#", "request": "url", "sourceURL": "${item.url}""#), try upload.encoded(columns: ["url": address + "x"]))
    #expect(failure.code == "service-request" && failure.message.contains("Invalid URL"))
  }

  @Test func `albums are named by id with an account, by deletehash without one`() throws {
    try add([("albums", ["aLbUm": "hash1"]), ("secret", "s")])
    try add([("token", .string(client + "token")), ("albums", ["mine"])])
    _ = try upload.receipt(try json(#", "album": "hash1""#), try upload.encoded("a.png"))
    let refused = try upload.failure(try json(#", "album": "other""#), try upload.encoded("b.png"))
    #expect(refused.code == "service-credentials")
    let receipt = try upload.receipt(try account(client + "token", #", "album": "mine""#), try upload.encoded("c.png"))
    #expect(try images().contains { $0["album"]?.stringValue == "mine" && $0["id"]?.stringValue == receipt.deleteLink })
  }

  @Test func `an old token is renewed once, for all who use it`() throws {
    try add([("secret", "application secret")])
    try add([("token", .string(client + "old")), ("refresh", .string(client + "refresh")), ("expired", true)])
    let renewal =
      #", "clientId": "\#(client)", "clientSecret": "application secret", "refreshToken": "\#(client)refresh""#
    let stage = try upload.make(try account(client + "old", renewal))
    let items = try (0..<6).map { try upload.encoded("p\($0).png", seed: UInt64($0)) }
    let failures = Mutex<[String]>([])
    DispatchQueue.concurrentPerform(iterations: items.count) { index in
      do throws(StageError) {
        guard case .next = try stage.process(items[index], in: upload.context()) else {
          throw StageError("test", "not sent")
        }
      } catch { failures.withLock { $0.append(error.description) } }
    }
    #expect(failures.withLock { $0 } == [])
    #expect(try images().count == 6)
    let renewals = try Peers.standIn().log(.imgur, path: "/oauth2/token")
      .filter { $0.fields?.contains { $0.value == client + "refresh" } == true }
    #expect(renewals.count == 1)
  }

  @Test func `a token that cannot be renewed is a matter of credentials, and its secrets are not shown`() throws {
    try add([("secret", "application secret")])
    try add([("token", .string(client + "dead")), ("refresh", "another"), ("expired", true)])
    let renewal = #", "clientId": "\#(client)", "clientSecret": "wrong secret", "refreshToken": "wrong refresh token""#
    let failure = try upload.failure(try account(client + "dead", renewal), try upload.encoded())
    #expect(failure.code == "service-credentials" && failure.message.contains("cannot be renewed"))
    #expect(!failure.description.contains("wrong refresh token"))
    let plain = try upload.failure(try account(client + "dead"), try upload.encoded())
    #expect(plain.code == "service-credentials" && !plain.message.contains("renewed"))
  }

  @Test func `formats that Imgur does not take become others`() throws {
    try add()
    for (name, options, alpha, type) in [
      ("opaque", .webp(.init(lossless: true)), nil, "image/jpeg"),
      ("clear", .webp(.init(lossless: true)), 120, "image/png"),
    ] as [(String, EncodeOptions, UInt8?, String)] {
      let item = try upload.encoded("\(name).webp", as: options, alpha: alpha)
      let journal = ItemJournal()
      let receipt = try upload.receipt(try json(), item, journal: journal)
      let image = try #require(try images().last)
      #expect(image["type"]?.stringValue == type && image["sha256"]?.stringValue == Hex.text(receipt.sha256))
      #expect(journal.snapshot.facts["upload"] != nil)
      #expect(journal.snapshot.outputs.first?.format == (type == "image/png" ? "png" : "jpeg"))
    }
    let frames = try (0..<3).map { try Pictures.solid(8, 8, UInt8($0 * 80), 9, 9) }
    let strip = try Animation(frames: frames, delays: [100, 100, 100], loop: 0).strip()
    let moving = upload.bench.item(try Pictures.solid(8, 8, 0, 9, 9), name: "moving.webp")
      .with(encoded: .init(bytes: try strip.encoded(.webp(.init(lossless: true))), format: .webp, width: 8, height: 8))
    _ = try upload.receipt(try json(), moving)
    #expect(try images().last?["type"]?.stringValue == "image/gif")
    let never = try upload.failure(try json(#", "convert": "never""#), try upload.encoded("n.webp", as: .webp(.init())))
    #expect(never.code == "service-picture" && never.message.contains("WebP"))
    let flat = ItemJournal()
    _ = try upload.receipt(
      try json(#", "convert": "jpeg""#), try upload.encoded("f.webp", as: .webp(.init()), alpha: 9), journal: flat)
    #expect(flat.warningCodes == ["flattened"])
    let large = try upload.failure(try json(#", "maxUploadBytes": 10"#), try upload.encoded("l.png"))
    #expect(large.code == "service-too-large")
  }

  @Test func `what Imgur has not answered is not sent again`() throws {
    try add()
    let entries: [[(String, JSONText)]] = [
      [("drop", true)], [("cutBody", 20)], [("status", 200), ("html", true)], [("status", 502), ("html", true)],
    ]
    for (index, entry) in entries.enumerated() {
      try Peers.standIn().script(.imgur, key: client, entry)
      let (outcome, receipt) = try upload.send(try json(), try upload.encoded("u\(index).png"))
      guard case .unknown(let id) = outcome else {
        Issue.record("\(index): \(outcome)")
        continue
      }
      #expect(receipt?.id == id && receipt?.isUnknown == true)
      #expect(try log().count == index + 1)
    }
  }

  @Test func `what Imgur has refused in passing is sent again`() throws {
    try add()
    try Peers.standIn().script(
      .imgur, key: client, [("shape", "errorsArray"), ("retryAfter", 0)], [("shape", "successFalse")],
      [("shape", "overCapacity"), ("retryAfter", 0)], [("status", 503), ("html", true)])
    _ = try upload.receipt(try json(), try upload.encoded())
    #expect(try log().map(\.status) == [429, 200, 403, 503, 200])
    #expect(try images().count == 1)
  }

  @Test func `a body that was cut short has not arrived`() throws {
    try add()
    try Peers.standIn().script(.imgur, key: client, [("dropAt", 100)])
    // Some of it was on its way: that nothing came of it, nobody has said.
    let (outcome, _) = try upload.send(try json(), try upload.encoded(side: 60))
    switch outcome {
    case .next: #expect(try images().count == 1)
    case .unknown: #expect(try images().isEmpty)
    default: Issue.record("\(outcome)")
    }
  }

  @Test func `limits put the rest off`() throws {
    // A stage of one run, whose first answers use up the credits: nobody asks for a third.
    let other = Peers.freshName("client")
    try Peers.standIn().addKey(.imgur, other, [("userLimit", 25), ("reset", 3600)])
    let stage = try upload.make(
      upload.json("imgur", #""endpoint": "\#(try Peers.standIn().address)/3", "clientId": "\#(other)""#))
    for index in 0..<2 { _ = try stage.process(try upload.encoded("s\(index).png"), in: upload.context()) }
    let failure = #expect(throws: StageError.self) {
      try stage.process(try upload.encoded("s2.png"), in: upload.context())
    }
    #expect(failure?.kind == .budget && failure?.code == "service-wait")
    #expect(try Peers.standIn().log(.imgur, key: other).count == 2)
  }

  @Test func `a limit that was reached already puts off at once`() throws {
    try add([("userLimit", 5), ("reset", 3600), ("resetAs", "seconds")])
    let failure = try upload.failure(try json(), try upload.encoded())
    #expect(failure.kind == .budget && failure.message.contains("429"))
    #expect(try log().count == 1)
  }

  @Test func `receipts are verified, and what was sent is taken back`() throws {
    let server = try StandIn()
    defer { server.stop() }
    try server.addKey(.imgur, client)
    try server.addKey(.imgur, client, [("token", .string(client + "token"))])
    try server.set(["imgur": ["links": "here"]])
    for credential in [#""clientId": "\#(client)""#, #""accessToken": "\#(client)token""#] {
      let job = upload.json("imgur", #""endpoint": "\#(server.address)/3", \#(credential)"#)
      let receipt = try upload.receipt(job, try upload.encoded())
      let keeper = try upload.keeper(job)
      #expect(try keeper.verify(receipt) == .present(isSame: nil))
      try keeper.delete(receipt)
      #expect(try keeper.verify(receipt) == .gone)
      try keeper.delete(receipt)
    }
  }

  @Test(arguments: [
    ("", "needs \"clientId\""), (#""clientId": "${secret.A}", "refreshToken": "${secret.B}""#, "accessToken"),
    (#""clientId": "${secret.A}", "clientSecret": "${secret.B}""#, "is for \"refreshToken\""),
    (#""clientId": "${secret.A}", "request": "url""#, "sourceURL"),
    (#""clientId": "${secret.A}", "sourceURL": "https://h.example/x""#, "request"),
    (#""clientId": "${secret.A}", "endpoint": "http://h.example/3""#, "unencrypted"),
    (#""clientId": "${secret.A}", "expiration": 60"#, "provider"),
    (#""clientId": "${secret.A}", "request": "binary""#, "file"),
  ])
  func `lint refuses`(more: String, words: String) throws {
    let text = upload.json("imgur", more.isEmpty ? #""title": "x""# : more)
    let findings = try upload.lint(text)
    #expect(findings.contains { $0.contains(words) }, "\(findings)")
  }
}

/// `upload` to imgbb, likewise.
@Suite(.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers")) struct ImgbbTests {
  let upload = UploadBench()
  private let key = Peers.freshName("imgbbkey")

  init() throws { try Peers.standIn().addKey(.imgbb, key) }

  private func json(_ more: String = "", key: String? = nil) throws -> String {
    upload.json("imgbb", #""endpoint": "\#(try Peers.standIn().address)/1", "apiKey": "\#(key ?? self.key)""# + more)
  }

  private func images() throws -> [JSONNode] {
    try Peers.standIn().state(.imgbb, key: key)["images"]?.arrayValue ?? []
  }

  @Test(arguments: ["file", "base64", "urlencoded"])
  func `a picture arrives in every form`(form: String) throws {
    let item = try upload.encoded("blue shoe.png", side: 40)
    let receipt = try upload.receipt(try json(#", "request": "\#(form)", "expiration": 600"#), item)
    let image = try #require(try images().first)
    #expect(image["sha256"]?.stringValue == item.encoded?.bytes.sha256)
    #expect(image["name"]?.stringValue == "blue shoe" && image["expiration"]?.numberValue?.integer == 600)
    #expect(receipt.link == "https://i.ibb.co/\(image["id"]?.stringValue ?? "")/blue%20shoe.png")
    #expect(receipt.deleteLink?.hasPrefix("https://ibb.co/") == true)
    let now = RetryAfter.wallClock()
    #expect(receipt.expires.map { abs($0 - now - 600) < 60 } == true)
    let entry = try #require(try Peers.standIn().log(.imgbb, key: key).first)
    #expect(entry.remarks.isEmpty && entry.query.isEmpty)
  }

  @Test func `imgbb fetches it itself where the job says so`() throws {
    let picture = try #require(try upload.encoded("other.png", seed: 5).encoded).bytes
    let address = try Peers.standIn().addPicture(picture.array, place: key, name: "p.png", type: "image/png")
    let receipt = try upload.receipt(
      try json(#", "request": "url", "sourceURL": "${item.url}""#), try upload.encoded(columns: ["url": address]))
    #expect(try images().first?["sha256"]?.stringValue == picture.sha256)
    #expect(receipt.expires == nil)
  }

  @Test func `a bad key stops the run, a bad picture does not`() throws {
    let failure = try upload.failure(try json(key: "no such key at all"), try upload.encoded())
    #expect(failure.code == "service-credentials" && failure.kind == .environment)
    #expect(!failure.description.contains("no such key at all"))
    for (shape, code) in [
      ("invalidImage", "service-picture"), ("tooBig", "service-too-large"), ("duplicate", "service-request"),
    ] {
      try Peers.standIn().script(.imgbb, key: key, [("shape", .string(shape))])
      let failure = try upload.failure(try json(), try upload.encoded("\(shape).png"))
      #expect(failure.code == code && failure.kind == .item)
    }
    #expect(try Peers.standIn().log(.imgbb, key: key).count == 3)
  }

  @Test func `a page instead of an answer leaves it open`() throws {
    try Peers.standIn().script(.imgbb, key: key, [("status", 200), ("html", true), ("process", true)])
    let (outcome, receipt) = try upload.send(try json(), try upload.encoded())
    guard case .unknown = outcome else { throw StageError("test", "\(outcome)") }
    #expect(receipt?.isUnknown == true)
    #expect(try Peers.standIn().log(.imgbb, key: key).count == 1)
  }

  @Test func `trouble is waited out`() throws {
    try Peers.standIn().script(
      .imgbb, key: key, [("status", 429), ("retryAfter", 0)], [("status", 500), ("html", true)])
    _ = try upload.receipt(try json(), try upload.encoded())
    #expect(try Peers.standIn().log(.imgbb, key: key).map(\.status) == [429, 500, 200])
  }

  @Test func `receipts are verified by their link, and deleted by hand`() throws {
    let server = try StandIn()
    defer { server.stop() }
    try server.addKey(.imgbb, key)
    try server.set(["imgbb": ["links": "here", "numbers": "int"]])
    let job = upload.json("imgbb", #""endpoint": "\#(server.address)/1", "apiKey": "\#(key)""#)
    let receipt = try upload.receipt(job, try upload.encoded())
    let keeper = try upload.keeper(job)
    #expect(try keeper.verify(receipt) == .present(isSame: nil))
    let byHand = #expect(throws: StageError.self) { try keeper.delete(receipt) }
    #expect(byHand?.code == "receipt-by-hand" && byHand?.hint?.contains("browser") == true)
    var gone = receipt
    gone.link = server.address + "/ibb/none/x.png"
    #expect(try keeper.verify(gone) == .gone)
  }

  @Test(arguments: [
    ("", "needs \"apiKey\""), (#""apiKey": "${secret.A}", "expiration": 59"#, "60"),
    (#""apiKey": "${secret.A}", "expiration": 15552001"#, "15552000"),
    (#""apiKey": "${secret.A}", "title": "x""#, "provider"),
    (#""apiKey": "${secret.A}", "endpoint": "http://h.example/1""#, "unencrypted"),
  ])
  func `lint refuses`(more: String, words: String) throws {
    let text = upload.json("imgbb", more.isEmpty ? #""fileName": "x""# : more)
    let findings = try upload.lint(text)
    #expect(findings.contains { $0.contains(words) }, "\(findings)")
  }
}
