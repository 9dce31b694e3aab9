import Imaging
import JobSyntax
import PipelineKit
import Synchronization
import TestSupport
import Testing

@testable import Stages
@testable import Transport

/// `upload` to any address: what is sent, byte for byte, as httpbin says it.
@Suite struct HTTPUploadTests {
  let upload = UploadBench()

  private func json(_ more: String) -> String { upload.json("http", more) }

  /// What httpbin echoes for one upload.
  private func echo(_ more: String, _ item: Item) throws -> JSONAnswer {
    let settings = try StageBench.settings(Upload.self, json(more))
    #expect(try upload.lint(json(more)).isEmpty)
    let provider = try HTTPUpload(
      settings, resources: StageResources(run: upload.bench.run, computeWorkers: 1, facts: RunFacts()))
    let endpoint = try provider.endpoint(try #require(item.encoded), for: item, in: upload.context()).0
    let response = try Client().send(endpoint.request)
    #expect(response.status == 200 && endpoint.failure(of: response) == nil)
    return try JSONAnswer(response.body)
  }

  @Test(
    .enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"), arguments: ["POST", "PATCH"])
  func `a form has its fields in order, the picture behind them, and its type and name`(method: String) throws {
    let address = try Peers.httpbin().address
    let item = try upload.encoded("blue shoe.png", columns: ["sku": "A&B=\"ü\""])
    let path = method.lowercased()
    let answer = try echo(
      #""method": "\#(method)", "body": "multipart", "url": "\#(address)/\#(path)", "fileField": "picture", "#
        + #""fields": { "title": "${item.stem}", "sku": "${item.sku}", "token": "${secret.UPLOAD_TEST_TOKEN}" }, "#
        + #""headers": { "X-Token": "${secret.UPLOAD_TEST_TOKEN}", "X-Name": "${item.sku}" }"#, item)
    #expect(answer.string(at: "/form/title") == "blue shoe")
    #expect(answer.string(at: "/form/sku") == "A&B=\"ü\"")
    #expect(answer.string(at: "/form/token") == "token of the upload tests")
    #expect(answer.string(at: "/headers/X-Token") == "token of the upload tests")
    #expect(answer.string(at: "/headers/X-Name") == "A%26B%3D%22%C3%BC%22")
    #expect(try answer.base64(at: "/files/picture") == item.encoded?.bytes.array)
    #expect(answer.string(at: "/files/picture")?.hasPrefix("data:image/png;base64,") == true)
    #expect(answer.string(at: "/headers/Content-Type")?.hasPrefix("multipart/form-data; boundary=") == true)
    #expect(answer.node(at: "/headers/Expect") == nil)
  }

  @Test(
    .enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"),
    arguments: ["POST", "PUT", "PATCH"])
  func `a picture alone is the body`(method: String) throws {
    let address = try Peers.httpbin().address
    let item = try upload.encoded()
    let answer = try echo(
      #""method": "\#(method)", "body": "raw", "url": "\#(address)/anything/${item.name}?a=${item.stem}", "contentType": "image/x-test""#,
      item)
    #expect(try answer.base64(at: "/data") == item.encoded?.bytes.array)
    #expect(answer.string(at: "/method") == method)
    #expect(answer.string(at: "/headers/Content-Type") == "image/x-test")
    #expect(answer.string(at: "/headers/Content-Length") == "\(item.encoded?.bytes.count ?? 0)")
    #expect(answer.string(at: "/args/a") == "shoe")
  }

  @Test(.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"))
  func `a form without files and JSON hold the picture in base64`() throws {
    let address = try Peers.httpbin().address
    let item = try upload.encoded(columns: ["note": "a+b & \"c\"\n/ü"], side: 120)
    let base64 = String(decoding: Base64.encode(try #require(item.encoded).bytes.array), as: UTF8.self)
    #expect(base64.utf8.count > 48 << 10 / 3)
    for body in ["urlencoded", "json"] {
      let answer = try echo(
        #""body": "\#(body)", "url": "\#(address)/post", "fileField": "image", "fields": { "note": "${item.note}" }"#,
        item)
      let place = body == "json" ? "/json" : "/form"
      #expect(answer.string(at: place + "/image") == base64, "\(body)")
      #expect(answer.string(at: place + "/note") == "a+b & \"c\"\n/ü", "\(body)")
      #expect(
        answer.string(at: "/headers/Content-Type")
          == (body == "json" ? "application/json" : "application/x-www-form-urlencoded"))
    }
  }

  @Test(.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"))
  func `user and password log in`() throws {
    let address = try Peers.httpbin().address
    let login = #""user": "${secret.UPLOAD_TEST_USER}", "password": "${secret.UPLOAD_TEST_SECRET}""#
    // httpbin offers these for GET alone, and answers others with 405 once they are let in.
    let failure = try upload.failure(
      json(#""url": "\#(address)/basic-auth/tester/secret", \#(login)"#), try upload.encoded())
    #expect(failure.message.contains("405"))
    let server = ScriptedServer { request in
      request["authorization"] == nil
        ? .answer(401, ["WWW-Authenticate: Basic realm=\"x\""]) : .answer(201, ["Location: /f/1"])
    }
    let receipt = try upload.receipt(json(#""url": "\#(server.address)/up", \#(login)"#), try upload.encoded())
    #expect(receipt.link == server.address + "/f/1")
    #expect(server.requests.last?["authorization"] == "Basic dGVzdGVyOnNlY3JldCBvZiB0aGUgdXBsb2FkIHRlc3Rz")
  }

  // MARK: Addresses

  @Test(
    arguments: [
      ("https://h.example/${item.dir}/${item.name}", "https://h.example/winter/a%20b/sh%C3%B6e%3F.png"),
      ("https://h.example/x?name=${item.path}&s=1", "https://h.example/x?name=sh%C3%B6e%3F.png&s=1"),
      ("${item.url}", "https://cdn.example/a%2fb//../c?x=1"),
      ("${item.url}&more=${item.stem}", "https://cdn.example/a%2fb//../c?x=1&more=sh%C3%B6e%3F"),
      ("https://h.example/${item.empty}/x", "https://h.example/x"),
      ("https://${item.host}/x", nil),
      ("https://h.example/${item.up}/x", nil),
      ("https://h.example/${item.up2}", nil),
      ("https://h.example/a b", nil),
      ("${item.bad}", nil),
    ] as [(String, String?)])
  func `values are percent-encoded and lead nowhere else`(template: String, expected: String?) throws {
    let item = try upload.encoded(
      "shöe?.png", directory: "winter/a b",
      columns: [
        "url": "https://cdn.example/a%2fb//../c?x=1", "empty": "", "host": "evil.example/", "up": "..",
        "up2": "a/../../b", "bad": "javascript:alert(1)",
      ])
    let address = AddressTemplate(try #require(Template.parse(template).template), below: nil)
    let made = try? address.address(for: item, in: upload.context())
    #expect(made?.url.text == expected)
  }

  @Test func `credentials are left out of what is compared and shown`() throws {
    let address = AddressTemplate(
      try #require(Template.parse("https://h.example/${secret.UPLOAD_TEST_TOKEN}/${item.stem}").template), below: nil)
    let made = try address.address(for: try upload.encoded(), in: upload.context())
    #expect(made.url.text == "https://h.example/token%20of%20the%20upload%20tests/shoe")
    #expect(made.shown == "https://h.example/${secret.UPLOAD_TEST_TOKEN}/shoe")
    #expect(!made.url.display.contains("upload"))
  }

  @Test func `one address is put to once in a run, and taken away again by its receipt`() throws {
    let store = Store()
    let server = ScriptedServer { store.answer($0) }
    let put = json(#""method": "PUT", "endpoint": "\#(server.address)/in", "url": "/${item.stem}""#)
    let receipt = try upload.receipt(put, try upload.encoded("a.png"))
    #expect(receipt.link == server.address + "/in/a" && receipt.deleteLink == receipt.link)
    let again = try upload.failure(put, try upload.encoded("a.png"))
    #expect(again.code == "output-collision" && server.requests.count == 1)
    let keeper = try upload.keeper(put)
    #expect(try keeper.verify(receipt) == .present(isSame: true))
    store.set("/in/a", Array("something else".utf8))
    #expect(try keeper.verify(receipt) == .present(isSame: false))
    #expect(throws: StageError.self) { try keeper.delete(receipt) }
    store.set("/in/a", try #require(try upload.encoded("a.png").encoded).bytes.array)
    try keeper.delete(receipt)
    #expect(try keeper.verify(receipt) == .gone)
    try keeper.delete(receipt)
  }

  // MARK: Repetition

  @Test func `a POST is not sent again once it may have arrived`() throws {
    for reply in [
      ScriptedServer.Reply.close, .answer(502), .answer(504), .text(200, ["Content-Type: text/html"], "<p>hello</p>"),
    ] {
      let server = ScriptedServer { _ in reply }
      let post = json(#""url": "\#(server.address)/up", "linkPointer": "/link""#)
      let item = try upload.encoded()
      let journal = ItemJournal()
      let (outcome, receipt) = try upload.send(post, item, journal: journal)
      guard case .unknown(let id) = outcome else {
        Issue.record("\(outcome)")
        continue
      }
      #expect(receipt?.id == id && receipt?.isUnknown == true && server.requests.count == 1)
      #expect(journal.warningCodes == ["outcome-unknown"])
      // Nor by the next run, until somebody has settled it.
      guard case .unknown(id) = try upload.send(post, item).outcome else {
        Issue.record("it was sent again")
        continue
      }
      #expect(server.requests.count == 1)
      try upload.book.withdraw(try #require(receipt))
    }
  }

  @Test func `what the host says it has not taken is sent again`() throws {
    let server = ScriptedServer { request in
      request.number < 2
        ? .answer(503, ["Retry-After: 0"]) : .text(201, ["Content-Type: application/json"], #"{"link":"/f"}"#)
    }
    let receipt = try upload.receipt(
      json(#""url": "\#(server.address)/up", "linkPointer": "/link""#), try upload.encoded())
    #expect(server.requests.count == 3 && receipt.link == server.address + "/f")
  }

  @Test func `what is repeatable is sent again whatever happened`() throws {
    let server = ScriptedServer { $0.number == 0 ? .close : .answer(201) }
    _ = try upload.receipt(json(#""url": "\#(server.address)/up", "repeatable": true"#), try upload.encoded())
    #expect(server.requests.count == 2)
  }

  @Test func `a failure leaves no receipt`() throws {
    let server = ScriptedServer { _ in .text(422, ["Content-Type: application/json"], #"{"message":"no shoes"}"#) }
    let failure = try upload.failure(json(#""url": "\#(server.address)/up""#), try upload.encoded())
    #expect(failure.code == "service-request" && failure.message.contains("422: no shoes"))
    #expect(upload.book.all.isEmpty)
  }

  @Test func `redirects are not followed, and named`() throws {
    let server = ScriptedServer { _ in .answer(302, ["Location: https://evil.example/x?token=1"]) }
    let failure = try upload.failure(json(#""url": "\#(server.address)/up""#), try upload.encoded())
    #expect(failure.message.contains("https://evil.example/x") && !failure.message.contains("token=1"))
    #expect(server.requests.count == 1)
  }

  @Test func `a delete link is used as the job says`() throws {
    let server = ScriptedServer { request in
      request.method == "POST" && request.target == "/up"
        ? .text(
          201, ["Content-Type: application/json"],
          #"{"link":"/f","del":"DEL"}"#.replacing("DEL", with: "http://\(request["host"] ?? "")/d/1"))
        : .answer(request.target == "/d/1" || request.target == "/f" ? 200 : 404)
    }
    let base = #""url": "\#(server.address)/up", "linkPointer": "/link", "deletePointer": "/del""#
    let receipt = try upload.receipt(json(base), try upload.encoded())
    let byHand = #expect(throws: StageError.self) { try upload.keeper(json(base)).delete(receipt) }
    #expect(byHand?.code == "receipt-by-hand")
    let keeper = try upload.keeper(json(base + #", "deleteMethod": "GET""#))
    try keeper.delete(receipt)
    #expect(server.requests.last?.method == "GET" && server.requests.last?.target == "/d/1")
    #expect(try keeper.verify(receipt) == .present(isSame: nil))
    var gone = receipt
    gone.link = server.address + "/other"
    #expect(try keeper.verify(gone) == .gone)
  }

  // MARK: Rules

  @Test(arguments: [
    (#""url": "ftp://h.example/x""#, "neither http nor https"),
    (#""url": "/x""#, "no \"endpoint\""),
    (#""url": "https://h.example/x", "endpoint": "https://h.example""#, "must begin with /"),
    (#""url": "/x", "endpoint": "https://h.example/?a=1""#, "must have no query"),
    (#""url": "http://h.example/x", "headers": { "Authorization": "${secret.A}" }"#, "unencrypted"),
    (#""url": "http://h.example/${secret.A}""#, "unencrypted"),
    (#""url": "/x", "endpoint": "http://h.example", "user": "${secret.A}", "password": "${secret.B}""#, "unencrypted"),
    (#""url": "${item.url}", "fields": { "key": "${secret.A}" }"#, "choose the host"),
    (#""url": "https://${item.host}/x", "fields": { "key": "${secret.A}" }"#, "choose the host"),
    (#""url": "https://h.example/x", "user": "${secret.A}""#, "go together"),
    (#""url": "https://h.example/x", "headers": { "a b": "x" }"#, "names of headers"),
    (#""url": "https://h.example/x", "headers": { "Content-Type": "x" }"#, "contentType"),
    (#""url": "https://h.example/x", "headers": { "Content-Length": "1" }"#, "by the program itself"),
    (#""url": "https://h.example/x", "headers": { "X": "1", "x": "2" }"#, "twice"),
    (#""url": "https://h.example/x", "linkPointer": "data/link""#, "JSON pointer"),
    (#""url": "https://h.example/x", "body": "raw", "fields": { "a": "b" }"#, "no meaning"),
    (#""url": "https://h.example/x", "body": "json", "contentType": "a/b""#, "no meaning"),
    (#""url": "https://h.example/x", "deleteMethod": "GET""#, "deletePointer"),
    (#""url": "https://h.example/x", "successStatuses": [42]"#, "100"),
  ])
  func `lint refuses`(more: String, words: String) throws {
    let findings = try StageBench.lint(Upload.self, json(more)).map { $0.message + ($0.hint ?? "") }
    #expect(findings.contains { $0.contains(words) }, "\(findings)")
  }

  @Test(arguments: [
    #""url": "http://127.0.0.1:8080/x", "headers": { "Authorization": "${secret.A}" }"#,
    #""url": "http://h.example/x", "headers": { "Authorization": "${secret.A}" }, "allowInsecure": true"#,
    #""url": "${secret.HOOK}""#,
    #""url": "${item.url}""#,
  ])
  func `lint takes`(more: String) throws { #expect(try upload.lint(json(more)).isEmpty) }

  @Test func `the example of each provider lints`() throws {
    for example in Upload.spec.examples {
      #expect(try StageBench.lint(Upload.self, example).isEmpty, "\(example)")
    }
    for provider in Upload.providers {
      #expect(Upload.spec.examples.contains { $0.contains("\"provider\": \"\(provider.name)\"") }, "\(provider.name)")
    }
  }

  @Test func `a credential that is not set stops the run, and is shown by its name`() throws {
    let failure = try upload.refusal(
      json(#""url": "https://h.example/x", "headers": { "X-Key": "${secret.UPLOAD_TEST_UNSET}" }"#))
    #expect(failure.code == "environment-unset" && failure.message.contains("UPLOAD_TEST_UNSET"))
  }

  @Test func `a secret address over plain http is refused when it is known`() throws {
    let address = json(#""url": "${item.url}", "allowInsecure": false"#)
    #expect(try upload.lint(address).isEmpty)
    let failure = try upload.failure(
      json(
        #""url": "http://h.example/x", "headers": { "X-Key": "${secret.UPLOAD_TEST_TOKEN}" }, "allowInsecure": true, "successStatuses": [299]"#
      )
      .replacing("http://h.example/x", with: "http://127.0.0.1:1/x"), try upload.encoded())
    // Allowed, and nobody listens there.
    #expect(failure.kind == .temporary)
  }
}

/// A server's files.
private final class Store: Sendable {
  private let files = Mutex<[String: [UInt8]]>([:])

  func set(_ path: String, _ bytes: [UInt8]) { files.withLock { $0[path] = bytes } }

  func answer(_ request: ScriptedServer.Request) -> ScriptedServer.Reply {
    files.withLock { files in
      switch request.method {
      case "PUT":
        files[request.target] = request.body
        return .answer(201)
      case "DELETE": return .answer(files.removeValue(forKey: request.target) == nil ? 404 : 204)
      default: return files[request.target].map { .answer(200, [], $0) } ?? .answer(404)
      }
    }
  }
}
