import Imaging
import JobSyntax
import PipelineKit
import TestSupport
import Testing
import Transport

@testable import Stages

/// What lint says about services of one's own, and what their answers mean; no network.
@Suite struct ServiceProvidersTests {
  private func lint(_ more: String) throws -> [String] {
    try StageBench.lint(Segment.self, "{ \"stage\": \"segment\", \(more) }").map(\.code)
  }

  @Test(
    "rembg",
    arguments: [
      ("", []), (#""model": "birefnet-general", "maxSide": 2048, "timeout": 30"#, []),
      (#""alphaMatting": true, "foregroundThreshold": 200, "backgroundThreshold": 20, "erode": 5"#, []),
      (#""extras": { "sam_prompt": [{ "type": "point", "data": [1, 2], "label": 1 }] }, "model": "sam""#, []),
      (#""foregroundThreshold": 200"#, ["not-applicable"]),
      (#""alphaMatting": true, "foregroundThreshold": 10"#, ["out-of-range"]),
      (#""alphaMatting": true, "backgroundThreshold": 256"#, ["out-of-range"]),
      (#""extras": { "only_mask": true }"#, ["not-applicable"]), (#""extras": [1]"#, ["wrong-type"]),
      (#""model": "u2net_cloth_seg""#, ["missing-key"]),
      (#""model": "u2net_cloth_seg", "extras": { "cc": "upper" }"#, []), (#""classes": ["dog"]"#, ["not-applicable"]),
      (#""endpoint": "localhost:7000""#, ["wrong-value"]),
    ] as [(String, [String])])
  func rembg(_ more: String, _ codes: [String]) throws {
    #expect(try lint(#""provider": "rembg""# + (more.isEmpty ? "" : ", " + more)) == codes)
  }

  @Test(
    "http",
    arguments: [
      (#""url": "https://h/${item.stem}?k=${secret.K}""#, []), ("", ["missing-key"]), (#""url": "h""#, ["wrong-value"]),
      (#""url": "https://h", "answer": "json""#, ["missing-key"]),
      (#""url": "https://h", "answer": "json", "pointer": "a""#, ["wrong-value"]),
      (#""url": "https://h", "pointer": "/a""#, ["not-applicable"]),
      (#""url": "https://h", "allowPrivate": true"#, ["not-applicable"]),
      (#""url": "https://h", "request": "raw", "fields": { "a": "b" }"#, ["not-applicable"]),
      (#""url": "https://h", "answer": "mask", "channels": "rgba""#, ["not-applicable"]),
      (#""url": "https://h", "headers": { "Content-Type": "a/b" }"#, ["not-applicable"]),
      (#""url": "https://h", "request": "json-url", "imageUrl": "https://c/${item.path}", "method": "PUT""#, []),
      (#""url": "https://h", "price": -1"#, ["out-of-range"]),
    ] as [(String, [String])])
  func http(_ more: String, _ codes: [String]) throws {
    #expect(try lint(#""provider": "http""# + (more.isEmpty ? "" : ", " + more)) == codes)
  }

  @Test("the models of a rembg server are read from its schema")
  func models() throws {
    func models(_ json: String) throws -> [String]? {
      RembgServer.models(try #require(StrictJSON.parse(SourceFile(name: "schema", text: Array(json.utf8))).root))
    }
    #expect(
      try models(
        #"{"paths":{"/api/remove":{"get":{"parameters":[{"name":"model","schema":{"pattern":"u2net|u2netp"}}]}}}}"#)
        == ["u2net", "u2netp"])
    #expect(
      try models(#"{"components":{"schemas":{"Body":{"properties":{"model":{"pattern":"^(isnet-anime|sam)$"}}}}}}"#)
        == ["isnet-anime", "sam"])
    #expect(try models(#"{"a":{"model":{"pattern":"[a-z]+"}}}"#) == nil)
    #expect(try models(#"{"a":1}"#) == nil)
  }

  @Test("refusals of rembg are shown as it words them")
  func refusals() throws {
    func classify(_ status: Int, _ body: String) throws -> ServiceFailure? {
      RembgServer.classify(
        Response(status: status, headers: Headers(), body: Array(body.utf8), url: try RequestURL("http://h/api/remove"))
      )
    }
    let missing = try #require(
      try classify(422, #"{"detail":[{"loc":["body","file"],"msg":"Field required","type":"missing"}]}"#))
    #expect(missing.kind == .request && missing.message == "422: body.file: Field required")
    #expect(try classify(500, "Internal Server Error")?.kind == .temporary)
    #expect(try classify(200, "<html>")?.kind == .request)
    #expect(try classify(413, "")?.kind == .tooLarge)
  }

  @Test("values of an item become part of an address, and no more")
  func addresses() throws {
    let bench = StageBench()
    let item = bench.item(bench.folder["x"], name: "a b/ü?#&.jpg")
    func address(_ text: String) throws -> String {
      try ServiceFields.address(#require(Template.parse(text).template), of: item, bench.context()).text
    }
    #expect(try address("https://h/${item.path}?q=1") == "https://h/a%20b/%C3%BC%3F%23%26.jpg?q=1")
    #expect(throws: StageError.self) { try address("${item.stem}") }
  }

  @Test("a mask that is as large as the picture stays as it is, and a smaller one is enlarged")
  func sizes() throws {
    let picture = try Pictures.quarters()
    let settings = try StageBench.settings(Segment.self, #"{ "stage": "segment" }"#)
    let finish = MatteFinish(settings)
    func matte(_ mask: ServiceMask) throws -> Image {
      let record = mask.record(provider: "test", model: nil)
      return try finish.mattes(of: FoundMatte(pixels: .mask(mask), record: record), over: picture).whole
    }
    let same = (0..<64 * 48).map { UInt8(truncatingIfNeeded: $0) }
    #expect(try matte(ServiceMask(width: 64, height: 48, bytes: same)).bytes() == same)
    // The red quarter, at an eighth of the size.
    let small = (0..<8 * 6).map { UInt8($0 % 8 < 4 && $0 / 8 < 3 ? 255 : 0) }
    let large = try matte(ServiceMask(width: 8, height: 6, bytes: small))
    #expect((large.width, large.height) == (64, 48))
    let bytes = try large.bytes()
    #expect(bytes[10 * 64 + 10] == 255 && bytes[40 * 64 + 50] == 0 && bytes[10 * 64 + 50] == 0)
    // Larger than the picture.
    let huge = [UInt8](repeating: 255, count: 128 * 96)
    #expect(try matte(ServiceMask(width: 128, height: 96, bytes: huge)).bytes().allSatisfy { $0 == 255 })
  }
}
