import Dispatch
import Imaging
import PipelineKit
import Synchronization
import TestSupport
import Testing

@testable import Stages

/// `upload` to a WebDAV server, Apache's.
@Suite(.enabled(if: Peers.hasApache, "install apache2 and openssl with Scripts/provision")) struct WebDAVTests {
  let upload = UploadBench()
  private let folder = Peers.freshName("dav")

  private func json(_ place: String = "open", _ more: String = "") throws -> String {
    upload.json("webdav", #""endpoint": "\#(try Peers.webDAV().address)/\#(place)""# + more)
  }

  private func file(_ path: String) throws -> [UInt8]? { try Peers.webDAV().file(path) }

  @Test func `folders are made as they turn out to be missing`() throws {
    let item = try upload.encoded("a b+ü%.png", directory: "\(folder)/two/thr ee")
    let receipt = try upload.receipt(try json(), item)
    #expect(try file("open/\(folder)/two/thr ee/a b+ü%.png") == item.encoded?.bytes.array)
    #expect(receipt.link == "\(try Peers.webDAV().address)/open/\(folder)/two/thr%20ee/a%20b%2B%C3%BC%25.png")
    // And the next ones lie in it.
    let next = try upload.encoded("next.png", directory: "\(folder)/two")
    _ = try upload.receipt(try json("open/"), next)
    #expect(try file("open/\(folder)/two/next.png") == next.encoded?.bytes.array)
  }

  @Test func `many workers make the same folders at once`() throws {
    let items = try (0..<24).map { index in
      try upload.encoded("p\(index).png", directory: "\(folder)/a/b\(index % 3)/c", seed: UInt64(index))
    }
    let stage = try upload.make(try json())
    let failures = Mutex<[String]>([])
    DispatchQueue.concurrentPerform(iterations: items.count) { index in
      do throws(StageError) {
        guard case .next = try stage.process(items[index], in: upload.context()) else {
          throw StageError("test", "not sent")
        }
      } catch { failures.withLock { $0.append(error.description) } }
    }
    #expect(failures.withLock { $0 } == [])
    for (index, item) in items.enumerated() {
      #expect(try file("open/\(folder)/a/b\(index % 3)/c/p\(index).png") == item.encoded?.bytes.array)
    }
  }

  @Test(arguments: [("basic", "auto"), ("basic", "basic"), ("digest", "auto")])
  func `one logs in as the server wants it`(place: String, login: String) throws {
    let more =
      #", "user": "${secret.UPLOAD_TEST_USER}", "password": "${secret.UPLOAD_TEST_PASSWORD}", "login": "\#(login)""#
    let item = try upload.encoded("in.png", directory: folder)
    let receipt = try upload.receipt(try json(place, more), item)
    #expect(try file("\(place)/\(folder)/in.png") == item.encoded?.bytes.array)
    let keeper = try upload.keeper(try json(place, more))
    #expect(try keeper.verify(receipt) == .present(isSame: true))
    try keeper.delete(receipt)
    #expect(try keeper.verify(receipt) == .gone && file("\(place)/\(folder)/in.png") == nil)
    try keeper.delete(receipt)
  }

  @Test func `a wrong password is a matter of credentials`() throws {
    let more = #", "user": "${secret.UPLOAD_TEST_USER}", "password": "${secret.UPLOAD_TEST_SECRET}""#
    for place in ["basic", "digest"] {
      let failure = try upload.failure(try json(place, more), try upload.encoded("\(place)-\(folder).png"))
      #expect(failure.code == "service-credentials" && failure.kind == .environment)
      #expect(!failure.description.contains("secret of the upload tests"))
    }
  }

  @Test func `what is there is replaced, kept, or an error`() throws {
    let (first, second) = (
      try upload.encoded("x.png", directory: folder), try upload.encoded("x.png", directory: folder, seed: 9)
    )
    let path = "open/\(folder)/x.png"
    _ = try UploadBench().receipt(try json(), first)
    let journal = ItemJournal()
    let other = UploadBench()
    let (outcome, receipt) = try other.send(try json("open", #", "overwrite": "skip""#), second, journal: journal)
    guard case .next = outcome else { throw StageError("test", "\(outcome)") }
    #expect(receipt == nil && journal.warningCodes == ["upload-kept"])
    #expect(try file(path) == first.encoded?.bytes.array)
    let failure = try UploadBench().failure(try json("open", #", "overwrite": "error""#), second)
    #expect(failure.code == "output-exists")
    // The same picture, by a run that did not come to book it.
    let (same, none) = try UploadBench().send(try json("open", #", "overwrite": "error""#), first)
    guard case .next = same else { throw StageError("test", "\(same)") }
    #expect(none == nil)
    _ = try UploadBench().receipt(try json(), second)
    #expect(try file(path) == second.encoded?.bytes.array)
  }

  @Test func `a name that is not there yet is made without replacing`() throws {
    for (index, mode) in ["skip", "error"].enumerated() {
      let item = try upload.encoded("n\(index).png", directory: "\(folder)/new")
      let receipt = try upload.receipt(try json("open", #", "overwrite": "\#(mode)""#), item)
      #expect(receipt.link?.hasSuffix("/n\(index).png") == true)
      #expect(try file("open/\(folder)/new/n\(index).png") == item.encoded?.bytes.array)
    }
  }

  @Test func `a folder in the picture's place is named`() throws {
    _ = try upload.receipt(try json(), try upload.encoded("x.png", directory: "\(folder)/x.png"))
    let failure = try UploadBench().failure(try json(), try upload.encoded("x.png", directory: folder))
    #expect(failure.code.hasPrefix("service-"), "\(failure)")
  }

  @Test func `the folder of the job itself is not made`() throws {
    let failure = try upload.failure(try json("open/\(folder)-missing"), try upload.encoded())
    #expect(failure.code == "service-missing" && failure.message.contains("there is no folder"))
  }

  @Test func `receipts of other places are left alone`() throws {
    let receipt = try upload.receipt(try json(), try upload.encoded("r.png", directory: folder))
    let failure = #expect(throws: StageError.self) { try upload.keeper(try json("open/elsewhere")).delete(receipt) }
    #expect(failure?.code == "receipt-elsewhere")
    #expect(try file("open/\(folder)/r.png") != nil)
  }
}

/// WebDAV as servers that do it otherwise have it, and its rules.
@Suite struct WebDAVRulesTests {
  let upload = UploadBench()

  private func json(_ address: String, _ more: String = "") -> String {
    upload.json("webdav", #""endpoint": "\#(address)/dav""# + more)
  }

  @Test func `a missing folder may be 404, and one that is there a redirect`() throws {
    let made = Mutex<Set<String>>([])
    let server = ScriptedServer { request in
      made.withLock { made in
        switch request.method {
        case "MKCOL" where request.target == "/dav/a/": return .answer(301, ["Location: /dav/a"])
        case "MKCOL":
          made.insert(request.target)
          return .answer(201)
        default: return .answer(made.contains("/dav/a/b/") ? 201 : 404)
        }
      }
    }
    _ = try upload.receipt(json(server.address), try upload.encoded(directory: "a/b"))
    #expect(
      server.requests.map { "\($0.method) \($0.target)" } == [
        "PUT /dav/a/b/shoe.png", "MKCOL /dav/a/b/", "PUT /dav/a/b/shoe.png",
      ])
  }

  /// Apache says 403 where another has made a folder between its look and its try.
  @Test(arguments: [true, false]) func `a folder that may not be made may be there all the same`(isThere: Bool) throws {
    let asked = Mutex(false)
    let server = ScriptedServer { request in
      asked.withLock { asked in
        guard request.method != "MKCOL" else {
          asked = true
          return .answer(403)
        }
        return .answer(asked && isThere ? 201 : 409)
      }
    }
    guard !isThere else {
      _ = try upload.receipt(json(server.address), try upload.encoded(directory: "a"))
      return
    }
    let item = try upload.encoded(directory: "a")
    let error = #expect(throws: StageError.self) { _ = try upload.receipt(json(server.address), item) }
    #expect(error?.message.contains("403") == true)
  }

  @Test func `a server that ignores If-None-Match is asked first`() throws {
    let server = ScriptedServer { request in .answer(request.method == "PUT" ? 204 : 200) }
    let (outcome, receipt) = try upload.send(json(server.address, #", "overwrite": "skip""#), try upload.encoded())
    guard case .next = outcome else { throw StageError("test", "\(outcome)") }
    #expect(receipt == nil && server.requests.map(\.method) == ["HEAD"])
  }

  @Test func `what is there after a lost answer is ours, if it is the same`() throws {
    let item = try upload.encoded()
    let bytes = try #require(item.encoded).bytes.array
    let puts = Mutex(0)
    let server = ScriptedServer { request in
      switch request.method {
      case "HEAD": return .answer(404)
      case "GET": return .answer(200, [], bytes)
      default:
        return puts.withLock { count in
          count += 1
          return count == 1 ? .raw(Array("HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\nlost".utf8)) : .answer(412)
        }
      }
    }
    let receipt = try upload.receipt(json(server.address, #", "overwrite": "error""#), item)
    #expect(receipt.link == server.address + "/dav/shoe.png")
    #expect(server.requests.map(\.method) == ["HEAD", "PUT", "PUT", "GET"])
  }

  @Test(arguments: ["..", "a/.."]) func `items name no folder above`(directory: String) throws {
    let server = ScriptedServer { _ in .answer(201) }
    let failure = try upload.failure(json(server.address), try upload.encoded(directory: directory))
    #expect(failure.code == "output-escapes" && server.requests.isEmpty)
    let own = try upload.failure(json(server.address, #", "path": "../x.png""#), try upload.encoded())
    #expect(own.code == "output-name" && server.requests.isEmpty)
  }

  @Test func `links may begin elsewhere`() throws {
    let server = ScriptedServer { _ in .answer(201) }
    let receipt = try upload.receipt(
      json(server.address, #", "publicURL": "https://img.example/s", "contentType": "image/x""#),
      try upload.encoded("ü.png", directory: "a"))
    #expect(receipt.link == "https://img.example/s/a/%C3%BC.png")
    #expect(receipt.deleteLink == server.address + "/dav/a/%C3%BC.png")
    #expect(server.requests.first?["content-type"] == "image/x")
  }

  @Test(arguments: [
    ("", "needs \"endpoint\""), (#""endpoint": "dav""#, "no address"),
    (#""endpoint": "http://h.example/", "user": "${secret.A}", "password": "${secret.B}""#, "unencrypted"),
    (#""endpoint": "https://h.example/", "password": "${secret.B}""#, "go together"),
    (#""endpoint": "https://h.example/", "login": "basic""#, "is for \"user\""),
    (#""endpoint": "https://h.example/", "publicURL": "x""#, "publicURL"),
    (#""endpoint": "https://h.example/?a", "overwrite": "skip""#, "no query"),
  ])
  func `lint refuses`(more: String, words: String) throws {
    let text = upload.json("webdav", more.isEmpty ? #""overwrite": "replace""# : more)
    let findings = try upload.lint(text)
    #expect(findings.contains { $0.contains(words) }, "\(findings)")
  }
}
