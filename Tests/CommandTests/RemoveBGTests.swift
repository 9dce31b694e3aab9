import Digest
import Imaging
import JobSyntax
import TestSupport
import Testing

private let needsPeers: Comment = "make the servers of the tests with Scripts/peers"

/// remove.bg through the program, against the stand-in.
@Suite(.enabled(if: Peers.hasPython, needsPeers)) struct RemoveBGTests {
  private let standIn: StandIn

  init() throws { standIn = try Peers.standIn() }

  private func segment(_ more: String = "") -> String {
    #""provider": "removebg", "apiKey": "${secret.SERVICE_KEY}", "endpoint": "\#(standIn.address)/v1.0""#
      + (more.isEmpty ? "" : ", " + more)
  }

  private func scene(_ pictures: Int = 1, credits: Double = 50, free: Int = 0) throws -> ServiceScene {
    let scene = try ServiceScene(pictures: pictures, stem: "removebgkey")
    try standIn.addKey(
      .removebg, scene.key, [("credits", .number(credits)), ("freeCalls", .integer(free)), ("rate", .integer(100_000))])
    return scene
  }

  private func calls(_ scene: ServiceScene) throws -> [StandIn.Entry] {
    try standIn.log(.removebg, key: scene.key).filter { $0.method == "POST" }
  }

  @Test("without a budget lint refuses, and says how much a picture costs")
  func budget() throws {
    let scene = try scene()
    scene.job(segment(), budget: nil)
    let result = scene.run()
    #expect(result.exitCode == 3)
    #expect(result.error.contains("budget-missing") || result.error.contains("has no \"budget\""), "\(result.error)")
    #expect(result.error.contains("0.25"))
    #expect(try calls(scene).isEmpty)
  }

  @Test(
    "every form of request and answer gives the same mask, laid on the picture's own pixels",
    arguments: [
      ("multipart", "image"), ("multipart", "json"), ("multipart-base64", "image"), ("multipart-base64", "json"),
      ("multipart-url", "image"), ("json-base64", "image"), ("json-base64", "json"), ("json-url", "json"),
      ("form-base64", "image"), ("form-base64", "json"), ("form-url", "image"),
    ])
  func forms(_ request: String, _ response: String) throws {
    let scene = try scene()
    var more = #""request": "\#(request)", "response": "\#(response)", "decontaminate": false"#
    if request.hasSuffix("url") {
      let place = Peers.freshName("place")
      let address = try standIn.addPicture(
        ServiceScene.picture(0), place: place, name: "p00.png", type: "image/png")
      more += #", "imageUrl": "\#(address.dropLast(7))${item.name}""#
    }
    scene.job(segment(more))
    let result = scene.run()
    #expect(result.exitCode == 0, "\(result.error)")
    let output = try scene.output("p00")
    #expect((output.width, output.height) == (160, 120))
    let alpha = try output.alphaBand().bytes()
    #expect(ServiceScene.difference(alpha, ServiceScene.ellipse(160, 120)) < 0.01)
    // The colours are ours, bit by bit, where anything is seen.
    let colours = try output.withoutAlpha().bytes()
    let own = try ServiceScene.image(0).bytes()
    #expect(alpha.indices.allSatisfy { alpha[$0] == 0 || colours[$0 * 3] == own[$0 * 3] })
    let call = try #require(try calls(scene).first)
    #expect(call.remarks.isEmpty, "\(call.remarks)")
    #expect(call.charged == 0.25)
    #expect(call.header("accept") == (response == "json" ? "application/json" : "image/*"))
    let kinds = [
      "multipart": "multipart/form-data", "json": "application/json", "form": "application/x-www-form-urlencoded",
    ]
    let kind = try #require(kinds[String(request.prefix { $0 != "-" })])
    #expect(call.header("content-type")?.hasPrefix(kind) ?? false)
    let source =
      request.hasSuffix("url") ? "image_url" : request.hasSuffix("base64") ? "image_file_b64" : "image_file"
    #expect(call.fields?.map(\.name) == [source, "size", "format", "channels"])
    if source == "image_file" {
      #expect(call.fields?.first?.filename == "picture.jpg" && call.fields?.first?.type == "image/jpeg")
    }
    let item = try #require(try scene.items().first)
    let facts = try #require(item["facts"]?["removebg"], "\(item)")
    #expect(facts["creditsCharged"]?.numberValue?.double == 0.25)
    #expect(facts["type"]?.stringValue == "other")
    #expect(facts["foreground"]?["width"]?.numberValue?.integer != nil)
    let matte = try #require(item["mattes"]?.arrayValue?.first)
    #expect(matte["provider"]?.stringValue == "removebg" && matte["model"]?.stringValue == "preview")
    #expect(try #require(matte["score"]?.numberValue?.double) > 0.8)
    let run = try #require(try scene.scene.report()["run"]?["removebg"])
    #expect(run["credits"]?.numberValue?.double == 50)
  }

  @Test("what was paid for is not paid for again, whatever is done with it")
  func payingOnce() throws {
    let scene = try scene(3)
    scene.job(segment())
    #expect(scene.run().exitCode == 0)
    #expect(try standIn.charges(key: scene.key).values.map(\.count) == [1, 1, 1])
    // A feather, another way of asking and another place in a chain of providers change nothing of the answer.
    scene.job(segment(#""feather": 2, "request": "json-base64", "response": "json""#))
    let again = scene.run()
    #expect(again.exitCode == 0, "\(again.error)")
    #expect(try scene.items().allSatisfy { $0["facts"]?["removebg"]?["kept"]?.boolValue == true })
    scene.job(#""providers": [{ \#(segment()) }, { "provider": "rembg", "on": ["lowScore"] }]"#)
    #expect(scene.run("--force").exitCode == 0)
    #expect(try calls(scene).count == 3)
    // Another question is.
    scene.job(segment(#""type": "car""#))
    #expect(scene.run().exitCode == 0)
    #expect(try calls(scene).count == 6)
  }

  @Test("a preview's mask follows the edges of the large picture")
  func enlarged() throws {
    let scene = try scene(0)
    let (width, height) = (1600, 1200)
    let mask = ServiceScene.ellipse(width, height)
    // A subject whose edge is the stand-in's, so that there is something to follow.
    let colours = try ServiceScene.image(0, width, height).bytes()
    var bytes: [UInt8] = []
    for index in mask.indices {
      let share = Double(mask[index]) / 255
      for band in 0..<3 {
        let subject = [230.0, 140, 30][band]
        bytes.append(UInt8(subject * share + Double(colours[index * 3 + band]) / 3 * (1 - share)))
      }
    }
    let picture = try Image(width: width, height: height, bands: 3, bytes: bytes)
    scene.scene.folder.write(try picture.encoded(.png(.init())).array, to: "in/large.png")
    scene.job(segment())
    let result = scene.run()
    #expect(result.exitCode == 0, "\(result.error)")
    let call = try #require(try calls(scene).first)
    #expect(call.charged == 0.25)
    // A megapixel is all that is sent for a quarter of one.
    #expect(call.length < 1_500_000)
    let alpha = try scene.output("large").alphaBand().bytes()
    #expect(ServiceScene.difference(alpha, mask) < 0.5)
    scene.job(segment(#""refine": false"#))
    #expect(scene.run().exitCode == 0)
    #expect(try calls(scene).count == 1)
  }

  @Test("the service's picture is taken where it is asked for", arguments: ["png", "zip", "webp"])
  func picture(_ format: String) throws {
    let scene = try scene()
    scene.job(segment(#""channels": "rgba", "format": "\#(format)""#))
    let result = scene.run()
    #expect(result.exitCode == 0, "\(result.error)")
    let output = try scene.output("p00")
    #expect((output.width, output.height) == (160, 120))
    let alpha = try output.alphaBand().bytes()
    #expect(ServiceScene.difference(alpha, ServiceScene.ellipse(160, 120)) < 0.01)
    let colours = try output.withoutAlpha().bytes()
    let own = try ServiceScene.image(0).bytes()
    let seen = alpha.indices.filter { alpha[$0] > 0 }
    func plane(_ bytes: [UInt8]) -> [UInt8] { seen.flatMap { bytes[$0 * 3..<$0 * 3 + 3] } }
    #expect(ServiceScene.difference(plane(colours), plane(own)) < 3)
    #expect(try calls(scene).first?.charged == 1)
  }

  @Test("crop, scale and backgrounds change the picture's size and its edges")
  func changes() throws {
    let scene = try scene()
    scene.job(segment(#""channels": "rgba", "crop": true, "cropMargin": [3]"#))
    #expect(scene.run().exitCode == 0)
    let cropped = try scene.output("p00")
    // An ellipse of 0.4 of the sides to each side, 4 pixels of soft edge, 3 of margin.
    #expect(abs(cropped.width - 138) <= 4 && abs(cropped.height - 106) <= 4, "\(cropped.width)×\(cropped.height)")
    scene.job(segment(##""channels": "rgba", "backgroundColor": "#ff00ff""##))
    let result = scene.run()
    #expect(result.exitCode == 0, "\(result.error)")
    let laid = try scene.output("p00")
    #expect(try laid.isOpaque())
    #expect(
      try Array(laid.withoutAlpha().bytes().prefix(3)).elementsEqual([254, 0, 254], by: { abs(Int($0) - $1) <= 3 }))
    #expect(try scene.items().first?["mattes"]?.arrayValue?.first?["score"]?.numberValue?.double == 1)
    scene.scene.folder.write(try ServiceScene.picture(5), to: "back.png")
    scene.job(segment(#""channels": "rgba", "backgroundFile": "back.png", "shadowType": { "car": "car" }"#))
    #expect(scene.run().exitCode == 0)
    let call = try #require(try calls(scene).last)
    #expect(call.fields?.map(\.name) == ["image_file", "size", "format", "shadow_type[car]", "bg_image_file"])
    #expect(call.remarks.isEmpty)
  }

  @Test("the first 402 ends the paid calls, and a rerun with credits does what is left")
  func outOfCredits() throws {
    let scene = try scene(20, credits: 1)
    scene.job(segment())
    let result = scene.run()
    #expect(result.exitCode == 5, "\(result.error)")
    var statuses = try scene.statuses()
    #expect(statuses["done"] == 4, "\(statuses)")
    #expect(statuses["notAttempted"] == 16, "\(statuses)")
    let refused = try calls(scene).filter { $0.status == 402 }.count
    #expect((1...8).contains(refused))
    try standIn.addKey(.removebg, scene.key, [("credits", .integer(50))])
    let again = scene.run()
    #expect(again.exitCode == 0, "\(again.error)")
    statuses = try scene.statuses()
    #expect(statuses["done"] == 16 && statuses["skipped"] == 4, "\(statuses)")
    #expect(try standIn.charges(key: scene.key).values.allSatisfy { $0.count == 1 })
  }

  @Test("an account without credits is asked for nothing")
  func empty() throws {
    let scene = try scene(5, credits: 0)
    scene.job(segment())
    let result = scene.run()
    #expect(result.exitCode == 5, "\(result.error)")
    #expect(try scene.statuses() == ["notAttempted": 5])
    #expect(try calls(scene).isEmpty)
    let report = String(decoding: scene.scene.folder.read("report.json") ?? [], as: UTF8.self)
    #expect(report.contains("no credits left"), "\(report)")
    #expect(try standIn.log(.removebg, key: scene.key).map(\.method) == ["GET"])
    // Free calls are credits of a kind, for previews.
    try standIn.addKey(.removebg, scene.key, [("freeCalls", .integer(5))])
    #expect(scene.run().exitCode == 0)
    #expect(try calls(scene).map(\.charged) == [0, 0, 0, 0, 0])
  }

  @Test("a key that is refused ends the calls")
  func wrongKey() throws {
    let scene = try scene(6)
    scene.job(segment())
    let result = scene.run(key: "nokeyofthisserver")
    #expect(result.exitCode != 0)
    let calls = try standIn.log(.removebg, key: "nokeyofthisserver")
    #expect(calls.count <= 8 && calls.allSatisfy { $0.method == "GET" }, "\(calls.map(\.method))")
    #expect(!result.error.contains("nokeyofthisserver"))
    #expect(result.error.contains("API Key invalid"), "\(result.error)")
  }

  @Test("nothing found is what onEmpty says, and asks the next provider")
  func nothingFound() throws {
    let scene = try scene(0)
    let grey = try Image(width: 64, height: 48, bands: 3, bytes: [UInt8](repeating: 128, count: 64 * 48 * 3))
    scene.scene.folder.write(try grey.encoded(.png(.init())).array, to: "in/grey.png")
    scene.job(segment())
    #expect(scene.run().exitCode == 1)
    #expect(try scene.items().first?["error"]?["code"]?.stringValue == "nothing-found")
    scene.job(segment(#""onEmpty": "keep""#))
    #expect(scene.run().exitCode == 0)
    #expect(try scene.output("grey").isOpaque())
    let place = Peers.freshName("place")
    let other =
      #"{ "provider": "http", "url": "\#(standIn.address)/segment/\#(place)/mask", "answer": "mask", "on": ["empty"] }"#
    scene.job(#""providers": [{ \#(segment()) }, \#(other)]"#)
    let result = scene.run()
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(try ServiceScene.difference(scene.output("grey").alphaBand().bytes(), ServiceScene.ellipse(64, 48)) < 0.01)
    #expect(try calls(scene).allSatisfy { $0.charged == 0 })
  }

  @Test(
    "trouble with the service asks the next provider", arguments: ["insufficient_credits", "failed_image_download"])
  func fallback(_ shape: String) throws {
    let scene = try scene(2)
    let place = Peers.freshName("place")
    try standIn.script(
      .removebg, key: scene.key, [("method", "POST"), ("shape", .string(shape)), ("times", .integer(99))])
    let other =
      #"{ "provider": "http", "url": "\#(standIn.address)/segment/\#(place)/mask", "answer": "mask", "on": ["quota", "temporary"] }"#
    scene.job(#""providers": [{ \#(segment()) }, \#(other)], "concurrency": 1"#)
    let result = scene.run()
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(try scene.statuses() == ["done": 2])
    #expect(
      try scene.items().allSatisfy { item in
        item["warnings"]?.arrayValue?.contains { $0["code"]?.stringValue == "provider-failed" } ?? false
      })
    // Out of credits is known after the first.
    let count = try calls(scene).count
    #expect(shape == "insufficient_credits" ? count == 1 : count == 10, "\(count)")
  }

  @Test("too many requests wait as long as the service says")
  func rate() throws {
    let scene = try scene()
    try standIn.script(
      .removebg, key: scene.key,
      [("method", "POST"), ("shape", "rate_limit_exceeded"), ("retryAfter", .integer(1)), ("times", .integer(2))])
    scene.job(segment())
    let result = scene.run()
    #expect(result.exitCode == 0, "\(result.error)")
    #expect(try calls(scene).map { $0.status ?? 0 } == [429, 429, 200])
    // More than a run waits: the rest is for the next one.
    let later = try self.scene(2)
    try standIn.script(
      .removebg, key: later.key,
      [("method", "POST"), ("shape", "rate_limit_exceeded"), ("retryAfter", .integer(900)), ("times", .integer(99))])
    later.job(segment())
    #expect(later.run().exitCode == 5)
    #expect(try later.statuses() == ["notAttempted": 2])
  }

  @Test(
    "a lost answer leaves the picture unknown, and it is not asked for again",
    arguments: [
      [("drop", JSONText.bool(true)), ("process", .bool(true))], [("cutBody", .integer(500))],
      [("html", .bool(true)), ("status", .integer(200)), ("process", .bool(true))],
      [("status", .integer(502)), ("process", .bool(true))],
    ])
  func lost(_ entry: [(String, JSONText)]) throws {
    let scene = try scene(1)
    try standIn.script(.removebg, key: scene.key, entry + [("method", "POST")])
    scene.job(segment())
    let result = scene.run()
    #expect(result.exitCode == 1, "\(result.error)")
    #expect(try scene.statuses() == ["unknown": 1])
    _ = scene.run()
    #expect(try calls(scene).count == 1)
    #expect(try standIn.charges(key: scene.key).values.map(\.count) == [1])
  }

  @Test("a key is nowhere in what a run leaves and says")
  func secrecy() throws {
    let scene = try scene(2)
    try standIn.script(
      .removebg, key: scene.key,
      [("method", "POST"), ("status", .integer(400)), ("body", .string("key \(scene.key) is odd"))])
    scene.job(segment())
    let result = scene.run("--verbose")
    #expect(!result.error.contains(scene.key) && !result.output.contains(scene.key))
    for file in scene.scene.folder.tree() where !file.hasSuffix("/") {
      guard let bytes = scene.scene.folder.read(file) else { continue }
      let text = String(decoding: bytes, as: UTF8.self)
      #expect(!text.contains(scene.key), "\(file)")
    }
  }
}
