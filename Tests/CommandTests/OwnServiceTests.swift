import Glibc
import Imaging
import Inference
import JobSyntax
import TestSupport
import Testing

private let needsPeers: Comment = "make the servers of the tests with Scripts/peers"
private let testData = getenv("PIPELINE_TEST_DATA").map { String(cString: $0) } ?? "../shared/data"

/// Services that are no one's but the user's: a rembg server, and any other, through the program.
@Suite struct OwnServiceTests {
  // MARK: rembg

  /// Bright balls on a dim floor, which u2netp finds.
  private func ball(_ width: Int, _ height: Int) throws -> Image {
    var bytes: [UInt8] = []
    let radius = height * 25 / 90
    for y in 0..<height {
      for x in 0..<width {
        let (dx, dy) = (x - width / 2, y - height / 2)
        let distance = (dx * dx + dy * dy) * 625 / (radius * radius)
        bytes +=
          distance < 625
          ? [UInt8(230 - distance / 6), UInt8(120 - distance / 12), 60] : [UInt8(40 + y * 30 / height), 50, 60]
      }
    }
    return try Image(width: width, height: height, bands: 3, bytes: bytes)
  }

  private func rembg(_ more: String = "") throws -> String {
    let address = try Peers.rembg().address
    return #""provider": "rembg", "endpoint": "\#(address)", "model": "u2netp""# + (more.isEmpty ? "" : ", " + more)
  }

  private func job(_ scene: ServiceScene, _ segment: String) throws -> Image {
    scene.job(segment, budget: nil)
    let result = scene.run("--force")
    #expect(result.exitCode == 0, "\(result.error)")
    return try scene.output("ball")
  }

  @Test("a rembg server's mask is the one that the same model makes here", .enabled(if: Peers.hasRembg, needsPeers))
  func sameModel() throws {
    let scene = try ServiceScene(pictures: 0)
    let picture = try ball(600, 450)
    scene.scene.folder.write(try picture.encoded(.png(.init())).array, to: "in/ball.png")
    let plain = #""refine": false, "decontaminate": false"#
    let remote = try job(scene, rembg(plain))
    let item = try #require(try scene.items().first)
    let matte = try #require(item["mattes"]?.arrayValue?.first)
    #expect(matte["provider"]?.stringValue == "rembg" && matte["model"]?.stringValue == "u2netp")
    let here = try job(scene, #""model": "u2netp", "precision": "f32", "# + plain)
    let (a, b) = (try remote.alphaBand().bytes(), try here.alphaBand().bytes())
    #expect(ServiceScene.difference(a, b) < 0.5)
    // rembg's own cut-out would have darkened these.
    let (colours, own) = (try remote.withoutAlpha().bytes(), try picture.bytes())
    let soft = a.indices.filter { (1...254).contains(a[$0]) }
    #expect(soft.count > 100)
    #expect(soft.allSatisfy { colours[$0 * 3..<$0 * 3 + 3] == own[$0 * 3..<$0 * 3 + 3] })
  }

  @Test(
    "a photo's edge has no dark halo",
    .enabled(if: Peers.hasRembg && access(testData + "/matte", R_OK) == 0, needsPeers))
  func halo() throws {
    let scene = try ServiceScene(pictures: 0)
    let photo = try #require(TemporaryFolder.read("\(testData)/matte/ecssd/images/0355.jpg"))
    scene.scene.folder.write(photo, to: "in/ball.jpg")
    let cut = try job(scene, rembg(#""decontaminate": false"#))
    let own = try EncodedPicture(bytes: EncodedBytes(photo)).pixels().bytes()
    let (alpha, colours) = (try cut.alphaBand().bytes(), try cut.withoutAlpha().bytes())
    let soft = alpha.indices.filter { (1...254).contains(alpha[$0]) }
    #expect(soft.count > 100)
    #expect(soft.allSatisfy { colours[$0 * 3..<$0 * 3 + 3] == own[$0 * 3..<$0 * 3 + 3] })
  }

  @Test(
    "what is no rembg server, and a model it does not know, are said to be", .enabled(if: Peers.hasRembg, needsPeers))
  func health() throws {
    let scene = try ServiceScene(pictures: 3)
    scene.job(#""provider": "rembg", "endpoint": "\#(try Peers.standIn().address)/echo""#, budget: nil)
    let other = scene.run()
    #expect(other.exitCode != 0 && other.error.contains("is no rembg server"), "\(other.error)")
    scene.job(try rembg().replacing("u2netp", with: "u2nett"), budget: nil)
    let unknown = scene.run()
    #expect(unknown.exitCode != 0)
    #expect(
      unknown.error.contains("knows no model \"u2nett\"") && unknown.error.contains("did you mean"), "\(unknown.error)")
    // Nobody is there.
    scene.job(#""provider": "rembg", "endpoint": "http://127.0.0.1:1""#, budget: nil)
    #expect(scene.run().exitCode == 1)
  }

  // MARK: Any service

  @Test(
    "each kind of answer", .enabled(if: Peers.hasPython, needsPeers),
    arguments: [
      ("image", #""answer": "image""#), ("image", #""answer": "image", "channels": "rgba""#),
      ("mask", #""answer": "mask""#), ("base64", #""answer": "json", "pointer": "/result/images/0/b64""#),
      ("url", #""answer": "json", "pointer": "/result/url""#), ("mask", #""answer": "mask", "request": "raw""#),
      ("mask", #""answer": "mask", "send": "png", "fileField": "upload""#),
    ])
  func answers(_ path: String, _ more: String) throws {
    let standIn = try Peers.standIn()
    let scene = try ServiceScene(pictures: 1)
    let place = Peers.freshName("place")
    scene.job(
      #""provider": "http", "url": "\#(standIn.address)/segment/\#(place)/\#(path)", "#
        + #""headers": { "X-Token": "Bearer ${secret.SERVICE_KEY}", "X-Name": "${item.stem}" }, "#
        + #"\#(more)\#(more.contains("raw") ? "" : #", "fields": { "quality": "best", "name": "${item.name}" }"#)"#,
      budget: nil)
    let result = scene.run()
    #expect(result.exitCode == 0, "\(result.error)")
    let alpha = try scene.output("p00").alphaBand().bytes()
    #expect(ServiceScene.difference(alpha, ServiceScene.ellipse(160, 120)) < 0.01)
    let call = try #require(try standIn.log(.segment, key: place).first)
    #expect(call.header("x-token") == "Bearer \(scene.key)" && call.header("x-name") == "p00")
    if more.contains("raw") {
      #expect(call.header("content-type") == "image/jpeg")
    } else {
      let field = more.contains("upload") ? "upload" : "file"
      #expect(call.fields?.map(\.name) == [field, "quality", "name"])
      #expect(call.fields?.last?.value == "p00.png")
      #expect(call.fields?.first?.type == (more.contains("png") ? "image/png" : "image/jpeg"))
    }
    // No credential goes along where an answer's address is followed.
    for entry in try standIn.log(.pictures, key: place) { #expect(entry.header("x-token") == nil) }
  }

  @Test(
    "an answer's address in a private network is refused unless the job allows it",
    .enabled(if: Peers.hasPython, needsPeers))
  func privateAddress() throws {
    let standIn = try Peers.standIn()
    let scene = try ServiceScene(pictures: 1)
    let picture = try standIn.addPicture(
      ServiceScene.picture(0), place: Peers.freshName("place"), name: "a.png", type: "image/png")
    let other = picture.replacing("127.0.0.1", with: "localhost")
    let place = Peers.freshName("place")
    func job(_ more: String) throws {
      try standIn.script(
        .segment, key: place, [("status", .integer(200)), ("body", .object([("url", .string(other))]))])
      scene.job(
        #""provider": "http", "url": "\#(standIn.address)/segment/\#(place)/x", "answer": "json", "pointer": "/url""#
          + more,
        budget: nil)
    }
    try job("")
    let refused = scene.run()
    #expect(refused.exitCode == 1 && refused.error.contains("private"), "\(refused.error)")
    try job(#", "allowPrivate": true"#)
    let allowed = scene.run()
    // It is a picture without transparency and with colours: fetched, and no mask.
    #expect(allowed.error.contains("no transparency"), "\(allowed.error)")
  }

  @Test("a service with a price is paid once, and only with a budget", .enabled(if: Peers.hasPython, needsPeers))
  func price() throws {
    let standIn = try Peers.standIn()
    let scene = try ServiceScene(pictures: 4)
    let place = Peers.freshName("place")
    let segment =
      #""provider": "http", "url": "\#(standIn.address)/segment/\#(place)/url", "answer": "json", "#
      + #""pointer": "/result/url", "price": 2"#
    scene.job(segment, budget: nil)
    #expect(scene.run().exitCode == 3)
    scene.job(segment, budget: #"{ "credits": 5 }"#)
    #expect(scene.run().exitCode == 5)
    #expect(try scene.statuses() == ["done": 2, "notAttempted": 2])
    scene.job(segment + #", "shrink": 1"#, budget: #"{ "credits": 5 }"#)
    #expect(scene.run().exitCode == 0)
    #expect(try standIn.log(.segment, key: place).count == 4)
    #expect(try standIn.log(.pictures, key: place).count == 4)
    try standIn.script(.segment, key: place, [("drop", .bool(true))])
    scene.scene.folder.write(try ServiceScene.picture(9), to: "in/p09.png")
    #expect(scene.run().exitCode == 1)
    #expect(try scene.statuses()["unknown"] == 1)
  }
}
