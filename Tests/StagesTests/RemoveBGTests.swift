import Imaging
import JobSyntax
import PipelineKit
import TestSupport
import Testing
import Transport

@testable import Stages

/// remove.bg's fields, requests and answers, row by row of its documentation; no network.
@Suite struct RemoveBGTests {
  private static let key = #""provider": "removebg", "apiKey": "${secret.KEY}""#

  private func lint(_ more: String) throws -> [Diagnostic] {
    try StageBench.lint(Segment.self, "{ \"stage\": \"segment\", \(Self.key)\(more.isEmpty ? "" : ", ")\(more) }")
  }

  private func options(
    _ more: String, picture: (Int, Int) = (400, 200), sent: (Int, Int) = (400, 200)
  ) throws -> [String: String] {
    let settings = try StageBench.settings(
      Segment.self, "{ \"stage\": \"segment\", \(Self.key)\(more.isEmpty ? "" : ", ")\(more) }")
    let list = RemoveBGFields.options(settings, picture: picture, sent: sent)
    #expect(Set(list.map(\.0)).count == list.count)
    return Dictionary(uniqueKeysWithValues: list.map { ($0.0, $0.1.text) })
  }

  // MARK: Fields

  private static let picture = #""channels": "rgba""#

  @Test(
    "what the service takes lints, and is sent as it takes it",
    arguments: [
      ("", ["size": "preview", "format": "png", "channels": "alpha"]),
      (picture, ["size": "full", "format": "png"]),
      (#""size": "50MP""#, ["size": "50MP", "format": "png", "channels": "alpha"]),
      (#""size": "4k", "format": "webp""#, ["size": "4k", "format": "webp", "channels": "alpha"]),
      (#""type": "graphic""#, ["size": "preview", "format": "png", "channels": "alpha", "type": "graphic"]),
      (#""typeLevel": "latest""#, ["size": "preview", "format": "png", "channels": "alpha", "type_level": "latest"]),
      (
        #""roi": [10, "5%", 390, "100%"]"#,
        ["size": "preview", "format": "png", "channels": "alpha", "roi": "10px 5% 390px 100%"]
      ),
      (
        #""semitransparency": false"#,
        ["size": "preview", "format": "png", "channels": "alpha", "semitransparency": "false"]
      ),
      (
        picture + #", "crop": true, "cropMargin": [10, "50%"]"#,
        ["size": "full", "format": "png", "crop": "true", "crop_margin": "10px 50%"]
      ),
      (picture + #", "scale": 80"#, ["size": "full", "format": "png", "scale": "80%"]),
      (picture + #", "position": "center""#, ["size": "full", "format": "png", "position": "center"]),
      (picture + #", "position": [10, 90.5]"#, ["size": "full", "format": "png", "position": "10% 90.5%"]),
      (
        picture + #", "shadowType": "drop", "shadowOpacity": 40"#,
        ["size": "full", "format": "png", "shadow_type": "drop", "shadow_opacity": "40"]
      ),
      (
        picture + #", "shadowType": { "car": "car", "person": "3D" }, "shadowOpacity": { "car": "auto", "other": 0 }"#,
        [
          "size": "full", "format": "png", "shadow_type[car]": "car", "shadow_type[person]": "3D",
          "shadow_opacity[car]": "auto", "shadow_opacity[other]": "0",
        ]
      ),
      (picture + ##", "backgroundColor": "#81d4fa""##, ["size": "full", "format": "auto", "bg_color": "81d4fa"]),
      (picture + ##", "backgroundColor": "#0af8""##, ["size": "full", "format": "auto", "bg_color": "00aaff88"]),
      (
        picture + #", "backgroundUrl": "https://h/b.jpg""#,
        ["size": "full", "format": "auto", "bg_image_url": "https://h/b.jpg"]
      ),
    ] as [(String, [String: String])])
  func taken(_ more: String, _ sent: [String: String]) throws {
    let findings = try lint(more)
    #expect(findings.isEmpty, "\(findings)")
    #expect(try options(more) == sent)
  }

  @Test(
    "what it refuses, lint refuses",
    arguments: [
      (#""size": "8k""#, "unknown-value"), (#""type": "graphics""#, "unknown-value"),
      (#""typeLevel": 2"#, "wrong-type"), (#""format": "gif""#, "unknown-value"),
      (#""roi": [0, 0, 1]"#, "out-of-range"),
      (#""roi": ["0%", "0%", "101%", "100%"]"#, "out-of-range"), (#""roi": [50, 0, 50, 10]"#, "out-of-range"),
      (#""roi": ["0%", "60%", "100%", "40%"]"#, "out-of-range"), (#""roi": [0, 0, "a", 1]"#, "wrong-value"),
      (#""crop": true"#, "not-applicable"), (#""scale": 50"#, "not-applicable"),
      (#""shadowType": "drop""#, "not-applicable"), (#""backgroundColor": "red""#, "not-applicable"),
      (picture + #", "cropMargin": [1]"#, "not-applicable"),
      (picture + #", "crop": true, "cropMargin": [1, 2, 3]"#, "out-of-range"),
      (picture + #", "crop": true, "cropMargin": ["51%"]"#, "out-of-range"),
      (picture + #", "crop": true, "cropMargin": [501]"#, "out-of-range"),
      (picture + #", "scale": 9"#, "out-of-range"), (picture + #", "position": "left""#, "unknown-value"),
      (picture + #", "position": [101]"#, "out-of-range"), (picture + #", "shadowType": "soft""#, "unknown-value"),
      (picture + #", "shadowType": { "cat": "car" }"#, "unknown-key"),
      (picture + #", "shadowOpacity": 101"#, "out-of-range"),
      (picture + #", "backgroundColor": "red", "backgroundUrl": "https://h/b""#, "conflicting-keys"),
      (picture + #", "backgroundUrl": "b.jpg""#, "wrong-value"),
      (picture + #", "backgroundFile": "b.jpg", "request": "json-base64""#, "not-applicable"),
      (picture + #", "backgroundColor": "red", "format": "zip""#, "conflicting-keys"),
      (picture + #", "format": "jpg""#, "wrong-value"), (#""size": "full", "format": "png""#, "png-limit"),
      (#""request": "raw""#, "not-applicable"), (#""request": "json-url""#, "missing-key"),
      (#""imageUrl": "https://h/${item.path}""#, "not-applicable"), (#""token": "${secret.T}""#, "conflicting-keys"),
      (#""endpoint": "ftp://h""#, "wrong-value"), (#""endpoint": "https://h/?a=b""#, "wrong-value"),
      (#""model": "u2net""#, "not-applicable"), (#""maxSide": 100"#, "not-applicable"),
    ])
  func refused(_ more: String, _ code: String) throws {
    let findings = try lint(more)
    #expect(findings.map(\.code) == [code], "\(more): \(findings)")
  }

  @Test("a credential is needed, and fields of one provider mean nothing to another")
  func credentials() throws {
    let bare = try StageBench.lint(Segment.self, #"{ "stage": "segment", "provider": "removebg" }"#)
    #expect(bare.map(\.code) == ["missing-key"])
    #expect(bare.first?.hint?.contains("${secret.REMOVE_BG_API_KEY}") ?? false)
    let token = #"{ "stage": "segment", "provider": "removebg", "token": "${secret.T}" }"#
    #expect(try StageBench.lint(Segment.self, token).isEmpty)
    let local = try StageBench.lint(Segment.self, #"{ "stage": "segment", "size": "full", "concurrency": 2 }"#)
    #expect(local.map(\.code) == ["not-applicable"])
    let alone = try StageBench.lint(Segment.self, #"{ "stage": "segment", "concurrency": 2 }"#)
    #expect(alone.map(\.code) == ["not-applicable"])
  }

  @Test("the price follows from the size")
  func price() throws {
    func plan(_ json: String) throws -> StagePlan {
      Segment.plan(try StageBench.settings(Segment.self, "{ \"stage\": \"segment\", \(json) }"))
    }
    for (more, credits) in [
      ("", 0.25), (#", "size": "full""#, 1), (#", "size": "regular""#, 0.25), (#", "size": "auto""#, 1),
      (#", "size": "hd""#, 1), (", " + Self.picture, 1), (", " + Self.picture + #", "size": "preview""#, 0.25),
    ] {
      #expect(try plan(Self.key + more).price == Price(provider: "removebg", credits: credits), "\(more)")
    }
    #expect(try plan(Self.key).exchanges == 8)
    #expect(try plan(Self.key + #", "concurrency": 3"#).exchanges == 3)
    #expect(try plan(#""model": "u2netp""#).exchanges == nil)
    #expect(try plan(#""model": "u2netp""#).price == nil)
    let mixed = try plan(
      #""providers": [{ "provider": "rembg" }, { "provider": "http", "url": "http://h", "price": 2, "on": ["empty"] }, "#
        + "{ \(Self.key), \"on\": [\"empty\"] }]")
    #expect(mixed.price == Price(provider: "http and removebg", credits: 2.25))
    #expect(mixed.exchanges == 2)
  }

  @Test("pixels of a region follow the size that is sent, and PNG's limit the format")
  func scaling() throws {
    let region = #""roi": [10, 20, 4000, "50%"]"#
    #expect(try options(region, picture: (4000, 2000), sent: (1000, 500))["roi"] == "3px 5px 1000px 50%")
    // What is beyond the picture is for the service to refuse.
    #expect(try options(region, picture: (3000, 2000), sent: (1500, 1000))["roi"] == "5px 10px 2000px 50%")
    #expect(try options(#""size": "full""#, picture: (5000, 4000), sent: (5000, 4000))["format"] == "zip")
    #expect(try options("", picture: (5000, 4000), sent: (1200, 800))["format"] == "png")
    #expect(try options(Self.picture, picture: (5000, 4000), sent: (5000, 4000))["format"] == "zip")
    #expect(
      try options(Self.picture + #", "backgroundColor": "red""#, picture: (5000, 4000), sent: (5000, 4000))["format"]
        == "webp")
  }

  @Test("pictures are brought below the limits, and it is said how")
  func limits() throws {
    let bench = try Pictures.solid(300, 200, 10, 20, 30)
    func sent(_ change: (inout ServicePicture.Limits) -> Void, _ picture: Image? = nil) throws -> ServicePicture {
      var limits = ServicePicture.Limits()
      change(&limits)
      return try ServicePicture(picture ?? bench, as: .jpeg, within: limits)
    }
    let plain = try sent { _ in }
    #expect((plain.width, plain.height) == (300, 200) && plain.note == nil)
    // Of no use, and no reason for a word.
    let useful = try sent { $0.usefulPixels = 15_000 }
    #expect((useful.width, useful.height) == (150, 100) && useful.note == nil)
    let side = try sent { $0.usefulSide = 30 }
    #expect((side.width, side.height) == (30, 20))
    let pixels = try sent { $0.pixels = 15_000 }
    #expect((pixels.width, pixels.height) == (150, 100))
    #expect(pixels.note?.contains("150×100") ?? false)
    var random = SeededGenerator(state: 3)
    let noise = try Image(
      width: 300, height: 200, bands: 3, bytes: (0..<180_000).map { _ in UInt8.random(in: 0...255, using: &random) })
    let whole = try sent({ _ in }, noise)
    let packed = try sent({ $0.bytes = whole.payload.count - 1 }, noise)
    #expect((packed.width, packed.height) == (300, 200))
    #expect(packed.note?.contains("quality 85") ?? false)
    let small = try sent({ $0.bytes = 20_000 }, noise)
    #expect(small.payload.count <= 20_000 && small.width < 300)
    #expect(abs(Double(small.width) / Double(small.height) - 1.5) < 0.03)
  }

  // MARK: Answers

  private func classify(
    _ status: Int, _ body: String, _ headers: [(String, String)] = []
  ) throws -> ServiceFailure? {
    RemoveBGAnswers.classify(
      Response(
        status: status, headers: Headers(headers), body: Array(body.utf8),
        url: try RequestURL("https://h/v1.0/removebg")))
  }

  private func errors(_ title: String, _ code: String? = nil, detail: String? = nil) -> String {
    let more = (code.map { ",\"code\":\"\($0)\"" } ?? "") + (detail.map { ",\"detail\":\"\($0)\"" } ?? "")
    return "{\"errors\":[{\"title\":\"\(title)\"\(more)}]}"
  }

  @Test(
    "codes of a refusal",
    arguments: [
      ("unknown_foreground", .badPicture), ("failed_to_read_image", .badPicture), ("invalid_file_type", .badPicture),
      ("invalid_dimensions", .badPicture), ("roi_exceeds_bounds", .badPicture), ("roi_region_empty", .badPicture),
      ("file_too_large", .tooLarge), ("resolution_too_high", .tooLarge), ("failed_image_download", .temporary),
      ("failed_bg_download", .temporary), ("invalid_bg_color", .request), ("invalid_bg_image_url", .request),
      ("invalid_channels", .request), ("invalid_crop_margin", .request), ("invalid_format", .request),
      ("invalid_image_url", .request), ("invalid_position", .request), ("invalid_roi", .request),
      ("invalid_scale", .request), ("invalid_semitransparency", .request), ("invalid_size", .request),
      ("missing_source", .request), ("multiple_bg_sources", .request), ("multiple_sources", .request),
    ] as [(String, FailureKind)])
  func codes(_ code: String, _ kind: FailureKind) throws {
    let failure = try #require(try classify(400, errors("Some title", code, detail: "some detail")))
    #expect(failure.kind == kind)
    #expect(failure.code == code)
    #expect(failure.message == "400: Some title: some detail (\(code))")
    #expect(failure.wait == nil)
  }

  @Test(
    "statuses",
    arguments: [
      (400, #"{"errors":[{"title":"Failed to download image"}]}"#, .temporary),
      (400, #"{"errors":[{"title":"Something else"}]}"#, .request),
      (402, #"{"errors":[{"title":"Insufficient credits"}]}"#, .quota),
      (403, #"{"errors":[{"title":"API Key invalid","code":"auth_failed"}]}"#, .credentials),
      (401, "", .credentials), (404, "", .notFound), (413, "<html>too large</html>", .tooLarge),
      (429, #"{"errors":[{"title":"Rate limit exceeded"}]}"#, .rate), (500, "", .temporary), (503, "busy", .temporary),
      (301, "", .request), (200, "<html>hello</html>", .unknown), (200, #"{"data":{}}"#, .unknown), (200, "", .unknown),
      (200, #"{"data":{"result_b64":"iV"#, .unknown),
    ] as [(Int, String, FailureKind)])
  func statuses(_ status: Int, _ body: String, _ kind: FailureKind) throws {
    #expect(try #require(try classify(status, body)).kind == kind)
  }

  @Test("what is a result is none of them")
  func results() throws {
    for start: [UInt8] in [[0x89, 0x50, 0x4E, 0x47, 13, 10, 26, 10], [0xFF, 0xD8, 0xFF], [0x50, 0x4B, 3, 4]] {
      let response = Response(
        status: 200, headers: Headers(), body: start + [0, 0], url: try RequestURL("https://h/"))
      #expect(RemoveBGAnswers.classify(response) == nil)
    }
    #expect(try classify(200, #"{"data":{"result_b64":"AAAA","foreground_top":1}}"#) == nil)
  }

  @Test("how long to wait is the service's word, else ten seconds")
  func waits() throws {
    #expect(try classify(429, "", [("Retry-After", "7")])?.wait == 7)
    #expect(try classify(429, "")?.wait == 10)
    #expect(try classify(429, "", [("X-RateLimit-Reset", "3")])?.wait == 3)
    #expect(try classify(503, "", [("Retry-After", "4")])?.wait == 4)
    #expect(try classify(500, "")?.wait == nil)
  }

  @Test("an answer is kept with what its head says, and reads back the same")
  func keeping() throws {
    let response = Response(
      status: 200,
      headers: Headers([
        ("content-type", "image/png"), ("X-Credits-Charged", "0.25"), ("x-foreground-top", "12"), ("Set-Cookie", "a"),
        ("X-Type", "car"), ("X-Width", "625"), ("X-RateLimit-Remaining", "499"),
      ]), body: Array("\u{1}\n\n\u{2}".utf8), url: try RequestURL("https://h/"))
    let answer = ServiceAnswer(response, keeping: RemoveBGAnswers.headers)
    let again = try #require(ServiceAnswer(answer.packed))
    #expect(again.body == response.body)
    #expect(again["Content-Type"] == "image/png" && again["set-cookie"] == nil)
    #expect(again.number("x-credits-charged") == 0.25)
    #expect(
      RemoveBGAnswers.facts(again, isNew: true).rendered()
        == #"{"creditsCharged":0.25,"type":"car","width":625,"foreground":{"top":12},"rateLimitRemaining":499}"#)
    #expect(ServiceAnswer(Array("{}\n".utf8)) == nil)
    #expect(ServiceAnswer(Array("no line".utf8)) == nil)
  }

  // MARK: Masks

  @Test("a mask means its brightness or its transparency, whatever it is stored as")
  func masks() throws {
    let grey = try Image(width: 2, height: 1, bands: 1, bytes: [7, 200])
    let colour = try Image(width: 2, height: 1, bands: 3, bytes: [7, 7, 7, 200, 201, 200])
    let red = try Image(width: 2, height: 1, bands: 3, bytes: [255, 0, 0, 0, 0, 0])
    let cut = try Image(width: 2, height: 1, bands: 4, bytes: [255, 0, 0, 9, 0, 0, 0, 255])
    #expect(try ServiceMask(grey, .either)?.bytes == [7, 200])
    #expect(try ServiceMask(colour, .either)?.bytes == [7, 201])
    #expect(try ServiceMask(red, .either) == nil)
    #expect(try ServiceMask(red, .brightness)?.bytes == [76, 0])
    #expect(try ServiceMask(cut, .either)?.bytes == [9, 255])
    #expect(try ServiceMask(cut, .alpha)?.bytes == [9, 255])
    #expect(try ServiceMask(red, .alpha) == nil)
  }

  @Test("an answer of another shape is refused, and an empty one is nothing found")
  func shapes() throws {
    let picture = try Pictures.solid(100, 50, 1, 2, 3)
    func found(_ image: Image, isWhole: Bool = true) throws -> FoundMatte? {
      try FoundMatte.answered(image, .alpha, .either, for: picture, isWhole: isWhole, provider: "test", model: nil)
    }
    let half = try Image.mask(255, 50, 25)
    #expect(try found(half)?.record.coverage == 1)
    #expect(try found(Image.mask(0, 50, 25)) == nil)
    #expect(throws: StageError.self) { try found(Image.mask(255, 25, 50)) }
    #expect(try found(Image.mask(255, 25, 50), isWhole: false) != nil)
    // 625 × 312.5 is rounded.
    #expect(try found(Image.mask(255, 63, 31)) != nil)
  }
}
