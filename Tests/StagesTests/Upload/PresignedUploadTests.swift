import Imaging
import PipelineKit
import Stages
import TestSupport
import Testing

/// `upload` to addresses that hold their own signature.
@Suite struct PresignedUploadTests {
  let bench = StageBench()

  private func encoded(_ url: String, name: String = "shoe.png") throws -> Item {
    let image = try Pictures.solid(3, 2, 7, 7, 7)
    return bench.item(bench.folder["in/" + name], name: name, columns: ["url": url])
      .with(image: image)
      .with(encoded: .init(bytes: try image.encoded(.png(.init())), format: .png, width: 3, height: 2))
  }

  private func json(_ more: String = "") -> String {
    #"{ "stage": "upload", "provider": "presigned", "url": "${item.url}""# + more + " }"
  }

  private func query(_ names: String) -> String {
    "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AK%2F20260101%2Fx%2Fs3%2Faws4_request&X-Amz-Expires=60"
      + "&X-Amz-SignedHeaders=\(names)&X-Amz-Signature=0123456789abcdef0123456789abcdef"
  }

  @Test func `the address is sent byte for byte, without any other credential, and shown without its query`() throws {
    let server = ScriptedServer { _ in .answer(200, ["ETag: \"e\""]) }
    let target = "/b/a%2fb//../c+d%20e.png?" + query("host") + "&z=1&a=%7e"
    let (item, journal) = (try encoded(server.address + target), ItemJournal())
    _ = try bench.process(Upload.self, json(), item, journal: journal)
    let request = try #require(server.requests.first)
    #expect(request.method == "PUT" && request.target == target && request.body == item.encoded?.bytes.array)
    #expect(request["content-length"] == "\(request.body.count)")
    for name in ["authorization", "content-type", "x-amz-content-sha256", "transfer-encoding", "expect"] {
      #expect(request[name] == nil, "\(name)")
    }
    #expect(journal.snapshot.outputs.first?.place == .link(server.address + "/b/a%2fb//../c+d%20e.png"))
  }

  @Test func `exactly the headers that were signed are sent`() throws {
    let server = ScriptedServer { _ in .answer(201) }
    let names = "content-length%3Bcontent-type%3bhost;x-amz-acl;x-amz-content-sha256"
    let more = #", "signedHeaders": { "X-Amz-Acl": "private" }"#
    let item = try encoded(server.address + "/b/k?" + query(names))
    _ = try bench.process(Upload.self, json(more), item)
    let request = try #require(server.requests.first)
    #expect(request["content-type"] == "image/png" && request["x-amz-acl"] == "private")
    #expect(request["x-amz-content-sha256"] == item.encoded?.bytes.sha256)
  }

  @Test func `a type that the job gives is sent`() throws {
    let server = ScriptedServer { _ in .answer(200) }
    _ = try bench.process(
      Upload.self, json(#", "contentType": "image/x""#), try encoded(server.address + "/b/k?sig=abc"))
    #expect(server.requests.first?["content-type"] == "image/x")
  }

  @Test func `a signed header without a value sends nothing`() throws {
    let server = ScriptedServer { _ in .answer(200) }
    let failure = try bench.failure(
      of: Upload.self, json(), try encoded(server.address + "/b/k?" + query("host%3Bx-amz-acl")))
    #expect(failure.code == "upload-address" && failure.message.contains("x-amz-acl") && server.requests.isEmpty)
    #expect(failure.hint?.contains("signedHeaders") == true)
  }

  @Test func `a refusal is the picture's own, and shows nothing of the signature`() throws {
    let server = ScriptedServer { _ in
      .text(
        403, ["Content-Type: application/xml"],
        "<Error><Code>AccessDenied</Code><Message>Request has expired: 0123456789abcdef0123456789abcdef</Message></Error>"
      )
    }
    let failure = try bench.failure(of: Upload.self, json(), try encoded(server.address + "/b/k?" + query("host")))
    // Other tests have secrets of their own, which may be words of it.
    #expect(failure.kind == .item && failure.message.contains("403: ") && failure.message.contains("expired"))
    #expect(!failure.description.contains("0123456789abcdef") && server.requests.count == 1)
  }

  @Test func `what is no address, and one that was used, is refused`() throws {
    let server = ScriptedServer { _ in .answer(200) }
    for url in ["", "b/k", "ftp://h/k", "http://user:canary@h/k", "http://h/a b"] {
      let failure = try bench.failure(of: Upload.self, json(), try encoded(url))
      #expect(failure.code == "upload-address" && !failure.message.contains("canary"), "\(url)")
    }
    _ = try bench.process(Upload.self, json(), try encoded(server.address + "/b/k?" + query("host")))
    let again = try bench.failure(
      of: Upload.self, json(), try encoded(server.address + "/b/k?" + query("host") + "&x=1", name: "b.png"))
    #expect(again.code == "output-collision" && !again.description.contains("Signature"))
    #expect(server.requests.count == 1)
  }

  @Test func `lint asks for an address, and for names of headers`() throws {
    #expect(!(try StageBench.lint(Upload.self, #"{ "stage": "upload", "provider": "presigned" }"#)).isEmpty)
    #expect(
      try StageBench.lint(Upload.self, json(#", "signedHeaders": { "a b": "x" }"#))
        .contains { $0.message.contains("expects names of headers") })
  }
}
