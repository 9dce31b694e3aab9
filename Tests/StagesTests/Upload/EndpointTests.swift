import Glibc
import Imaging
import JobSyntax
import PipelineKit
import TestSupport
import Testing

@testable import Stages
@testable import Transport

// The example of README, "Another host", word for word.
/// `upload` to httpbin, which stores nothing and says what it got.
struct HTTPBinUpload: UploadProvider {
  static let name = "httpbin"
  static let help = "httpbin, which says what it got"
  static let title = Field<Template?>.template(
    "title", when: FieldCondition("provider", in: [name]), help: "the picture's title")
  static let fields: [any FieldDeclaration] = [title]

  private let base: RequestURL
  private let title: Template?
  private let caller: Caller

  init(_ settings: Settings, resources: StageResources) throws(StageError) {
    base = try UploadAddress.endpoint(settings, usual: "https://httpbin.org")
    title = settings[Self.title]
    caller = resources.services.caller(resources.services.pacer("httpbin \(base.authority)"))
  }

  func prepare(_ encoded: Item.Encoded, for item: Item, in context: StageContext) throws(StageError) -> PreparedUpload {
    let name = "\(item.identity.inputIndex).\(encoded.format.fileExtension)"
    var parts: [Part] = []
    if let title { parts.append(.text("title", try UploadFields.text(title, for: item, in: context))) }
    parts.append(.file("picture", Payload(encoded.bytes), filename: name, type: encoded.format.mediaType))
    let endpoint = try Endpoint<UploadReceipt>(
      "httpbin", .post, at: base, "anything/{name}", ["name": name], body: .multipart(parts)
    ) { response throws(TransportError) in
      UploadReceipt(provider: Self.name, link: try response.json().text(at: "/url"))
    }
    return PreparedUpload(encoded, target: endpoint.url.text, caller, endpoint)
  }
}
// The end of the example.

/// Descriptions of calls, and a host that is one.
@Suite struct EndpointTests {
  let upload = UploadBench()

  private func provider(_ address: String) throws -> HTTPBinUpload {
    let text = #"{ "provider": "httpbin", "endpoint": "\#(address)", "title": "${item.stem}, new" }"#
    let node = try #require(StrictJSON.parse(SourceFile(name: "job.json", text: Array(text.utf8))).0)
    let shape = ObjectShape([UploadFields.endpoint] + HTTPBinUpload.fields)
    return try HTTPBinUpload(
      Settings(reading: node, shape: shape, file: "job.json"),
      resources: StageResources(run: upload.bench.run, computeWorkers: 1, facts: RunFacts()))
  }

  @Test(.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"))
  func `a host of one's own is a small conformer`() throws {
    let address = try Peers.httpbin().address
    let item = try upload.encoded()
    let prepared = try provider(address).prepare(try #require(item.encoded), for: item, in: upload.context())
    guard case .sent(let receipt) = try prepared.send(upload.context()) else { throw StageError("test", "not sent") }
    #expect(receipt.link == address + "/anything/0.png" && !prepared.isRepeatable)
  }

  @Test func `what the conformer sends`() throws {
    let server = ScriptedServer { request in
      .text(200, ["Content-Type: application/json"], #"{"url":"http://\#(request["host"] ?? "")\#(request.target)"}"#)
    }
    let item = try upload.encoded()
    let prepared = try provider(server.address + "/base").prepare(
      try #require(item.encoded), for: item, in: upload.context())
    _ = try prepared.send(upload.context())
    let request = try #require(server.requests.first)
    #expect(request.method == "POST" && request.target == "/base/anything/0.png")
    #expect(request.body.contains("name=\"title\"\r\n\r\nshoe, new\r\n"))
    #expect(request.body.contains("name=\"picture\"; filename=\"0.png\"\r\nContent-Type: image/png\r\n\r\n"))
  }

  @Test func `an answer that cannot be read leaves open what came of it`() throws {
    let server = ScriptedServer { _ in .text(200, ["Content-Type: application/json"], "{}") }
    let item = try upload.encoded()
    let prepared = try provider(server.address).prepare(try #require(item.encoded), for: item, in: upload.context())
    guard case .unknown(let reason) = try prepared.send(upload.context()) else { throw StageError("test", "known") }
    #expect(reason.contains("no text at /url") && server.requests.count == 1)
  }

  @Test func `paths are made of names`() throws {
    let base = try RequestURL("https://h.example/v1?key=1")
    func url(_ path: String, _ values: [String: String] = [:]) throws(StageError) -> String {
      try Endpoint<Void>("h", .get, at: base, path, values) { _ in }.url.text
    }
    #expect(try url("") == "https://h.example/v1?key=1")
    #expect(try url("image/{id}", ["id": "a/b ü?"]) == "https://h.example/v1/image/a%2Fb%20%C3%BC%3F?key=1")
    #expect(try url("i/{id}.{ext}", ["id": "a", "ext": "png"]) == "https://h.example/v1/i/a.png?key=1")
    for (path, values) in [
      ("image/{id}", ["id": ".."]), ("image/{id}", ["id": ""]), ("image/{id}", [:]), ("{a}", ["a": "."]),
    ] {
      #expect(throws: StageError.self) { try url(path, values) }
    }
  }

  @Test func `what is repeated follows from the method`() throws {
    let base = try RequestURL("https://h.example/")
    for (method, isRepeatable) in [
      (HTTPMethod.get, true), (.put, true), (.delete, true), (.head, true), (.post, false),
      (HTTPMethod(rawValue: "PATCH"), false),
    ] {
      #expect(try Endpoint<Void>("h", method, at: base) { _ in }.isRepeatable == isRepeatable)
    }
    #expect(try Endpoint<Void>("h", .post, at: base, repeats: .always) { _ in }.isRepeatable)
  }

  @Test func `README shows the conformer that is tested here`() throws {
    let path = #filePath
    let folder = try #require(path.firstRange(of: "/Tests/")).lowerBound
    func text(_ path: String) throws -> String {
      String(decoding: try #require(TemporaryFolder.read(path)), as: UTF8.self)
    }
    let source = try text(path)
    let start = try #require(source.firstRange(of: "word for word.\n")).upperBound
    let end = try #require(source.firstRange(of: "// The end of the example.")).lowerBound
    let readme = try text(path[..<folder] + "/README.md")
    #expect(readme.contains("```swift\n\(source[start..<end])```\n"), "copy the example from EndpointTests.swift")
  }
}
