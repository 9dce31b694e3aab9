import Glibc
import Imaging
import JobSyntax
import TestSupport
import Testing

/// Jobs that people get, told where the services of the tests are.
enum Cookbook {
  /// Puts an `endpoint` beside each `"provider"` of these names; nothing else of the job is changed.
  static func direct(_ scene: Scene, _ name: String, to endpoints: [String: String]) {
    var text = String(decoding: scene.folder.read(name) ?? [], as: UTF8.self)
    for (provider, endpoint) in endpoints {
      let place = "\"provider\": \"\(provider)\""
      #expect(text.contains(place))
      text = text.replacing(place, with: place + ", \"endpoint\": \"\(endpoint)\"")
    }
    scene.folder.write(text, to: name)
  }

  /// These variables, and those that the program itself needs.
  static func environment(_ variables: [String: String]) -> [String: String] {
    var all = variables
    for name in ["PATH", "HOME", "PIPELINE_HOME"] where all[name] == nil {
      if let value = getenv(name) { all[name] = String(cString: value) }
    }
    return all
  }
}

/// The cookbook in `pipelines/`: each job gives what its page says.
@Suite struct CookbookTests {
  private static let folder = DocumentationTests.package + "/pipelines"
  private static let needsPeers: Comment = "make the servers of the tests with Scripts/peers"

  /// A job of the cookbook, with pictures in which the stand-in sees an ellipse.
  private func scene(_ name: String, pictures: Int = 1) throws -> Scene {
    let scene = try Scene(remembers: true)
    scene.folder.write(try #require(TemporaryFolder.read("\(Self.folder)/\(name).json")), to: "job.json")
    for index in 0..<pictures { scene.folder.write(try ServiceScene.picture(index), to: "photos/p\(index).png") }
    return scene
  }

  private func picture(_ scene: Scene, _ name: String) throws -> Image {
    try EncodedPicture(bytes: EncodedBytes(try #require(scene.folder.read(name), "\(name) was not written"))).pixels()
  }

  private func pixel(_ image: Image, _ x: Int, _ y: Int) throws -> [Int] {
    let bytes = try image.bytes()
    let start = (y * image.width + x) * image.bands
    return bytes[start..<start + image.bands].map(Int.init)
  }

  private func near(_ pixel: [Int], _ expected: [Int], within tolerance: Int) -> Bool {
    zip(pixel, expected).allSatisfy { abs($0 - $1) <= tolerance }
  }

  @Test func `the page names every job, and every job stands on it`() throws {
    let page = String(decoding: TemporaryFolder.read(Self.folder + "/README.md") ?? [], as: UTF8.self)
    for job in DocumentationTests.jobs { #expect(page.contains("(\(job))"), "\(job)") }
    for part in page.split(separator: "](").dropFirst() {
      let target = String(part.prefix { $0 != ")" && $0 != "#" })
      if target.isEmpty || target.hasPrefix("http") { continue }
      #expect(access(Self.folder + "/" + target, R_OK) == 0, "\(target) is not there")
    }
  }

  // MARK: remove.bg

  private func removeBG(_ name: String, _ more: String...) throws -> (Scene, [StandIn.Entry]) {
    let standIn = try Peers.standIn()
    let key = Peers.freshName("cookbookkey")
    try standIn.addKey(.removebg, key, [("credits", .number(20)), ("freeCalls", .integer(0))])
    let scene = try scene(name)
    Cookbook.direct(scene, "job.json", to: ["removebg": standIn.address + "/v1.0"])
    let result = RunProgram.run(
      ["run", "job.json", "--report", "report.json"] + more,
      scene.settings { $0.environment = Cookbook.environment(["REMOVE_BG_API_KEY": key]) })
    #expect(result.exitCode == 0, "\(name): \(result.error)")
    return (scene, try standIn.log(.removebg, key: key).filter { $0.method == "POST" })
  }

  @Test(.enabled(if: Peers.hasPython, needsPeers))
  func `remove.bg gets a file, and its cropped cut-out comes back`() throws {
    let (scene, calls) = try removeBG("removebg-file")
    let call = try #require(calls.first)
    #expect(calls.count == 1 && call.charged == 1)
    #expect(call.header("content-type")?.hasPrefix("multipart/form-data") == true)
    func field(_ name: String) -> String? { call.fields?.first { $0.name == name }?.value }
    #expect(call.fields?.contains { $0.name == "image_file" && $0.filename != nil } == true)
    #expect(field("size") == "full" && field("crop") == "true" && field("format") == "zip")
    // The subject is 128 × 96 of 160 × 120, and its soft edge 3 pixels more; 10 stay on each side, up to the border.
    let image = try picture(scene, "out/removebg-file/p0.png")
    #expect(abs(image.width - 154) <= 3 && image.height == 120, "\(image.width) × \(image.height)")
    #expect(image.bands == 4)
    #expect(try pixel(image, 0, 0)[3] == 0 && pixel(image, image.width / 2, image.height / 2)[3] == 255)
  }

  @Test(.enabled(if: Peers.hasPython, needsPeers))
  func `remove.bg gets base64 in JSON, and lays the result on a colour`() throws {
    let (scene, calls) = try removeBG("removebg-base64")
    let call = try #require(calls.first)
    #expect(call.charged == 0.25 && call.header("content-type")?.hasPrefix("application/json") == true)
    #expect(call.header("accept") == "application/json")
    #expect(call.fields?.contains { $0.name == "bg_color" && $0.value?.lowercased() == "81d4fa" } == true)
    let image = try picture(scene, "out/removebg-base64/p0.jpg")
    #expect((image.width, image.height, image.bands) == (160, 120, 3))
    #expect(near(try pixel(image, 2, 2), [0x81, 0xD4, 0xFA], within: 6))
    #expect(near(try pixel(image, 80, 60), try pixel(ServiceScene.image(0), 80, 60), within: 12))
  }

  @Test(.enabled(if: Peers.hasPython, needsPeers))
  func `remove.bg fetches from an address, and its mask is laid on our own pixels`() throws {
    let standIn = try Peers.standIn()
    let place = Peers.freshName("place")
    var base = ""
    for (index, name) in ["a.png", "b.png"].enumerated() {
      base = String(
        try standIn.addPicture(ServiceScene.picture(index), place: place, name: name, type: "image/png").dropLast(6))
    }
    // What is fetched from this machine has to be allowed.
    let key = Peers.freshName("cookbookkey")
    try standIn.addKey(.removebg, key, [("credits", .number(20)), ("freeCalls", .integer(0))])
    let scene = try scene("removebg-url", pictures: 0)
    Cookbook.direct(scene, "job.json", to: ["removebg": standIn.address + "/v1.0"])
    let text = String(decoding: scene.folder.read("job.json") ?? [], as: UTF8.self)
    scene.folder.write(text.replacing("\"input\": {", with: "\"input\": { \"allowPrivate\": true,"), to: "job.json")
    let result = scene.run("run", "job.json", "--set", "photos=\(base)") {
      $0.environment = Cookbook.environment(["REMOVE_BG_API_KEY": key])
    }
    #expect(result.exitCode == 0, "\(result.error)")
    let calls = try standIn.log(.removebg, key: key).filter { $0.method == "POST" }
    #expect(calls.count == 2 && calls.allSatisfy { $0.charged == 0.25 })
    #expect(
      Set(calls.compactMap { $0.fields?.first { $0.name == "image_url" }?.value }) == [
        "\(base)/a.png", "\(base)/b.png",
      ])
    let image = try picture(scene, "out/removebg-url/b.png")
    #expect(ServiceScene.difference(try image.alphaBand().bytes(), ServiceScene.ellipse(160, 120)) < 0.01)
    #expect(try pixel(image, 80, 60).prefix(3) == pixel(ServiceScene.image(1), 80, 60)[...])
  }

  // MARK: Hosts

  @Test(.enabled(if: Peers.hasPython && DocumentationTests.demoPhotos != nil, "needs Scripts/peers and the model"))
  func `imgur gets cut-outs in base64, and the report has their links`() throws {
    let standIn = try Peers.standIn()
    let client = Peers.freshName("cookbookclient")
    try standIn.addKey(.imgur, client)
    let scene = try scene("imgur", pictures: 0)
    let demo = try #require(DocumentationTests.demoPhotos)
    scene.folder.write(TemporaryFolder.read(demo + "/astronaut.png") ?? [], to: "photos/astronaut.png")
    Cookbook.direct(scene, "job.json", to: ["imgur": standIn.address + "/3"])
    let result = scene.run("run", "job.json", "--report", "report.json") {
      $0.environment = Cookbook.environment(["IMGUR_CLIENT_ID": client])
    }
    #expect(result.exitCode == 0, "\(result.error)")
    let call = try #require(try standIn.log(.imgur, key: client).first { $0.method == "POST" })
    func field(_ name: String) -> String? { call.fields?.first { $0.name == name }?.value }
    #expect(field("type") == "base64" && field("title") == "astronaut")
    #expect(call.header("authorization") == "Client-ID \(client)" && call.remarks.isEmpty, "\(call.remarks)")
    let output = try #require(try scene.report()["items"]?.arrayValue?.first?["outputs"]?.arrayValue?.first)
    #expect(output["link"]?.stringValue?.hasPrefix("https://") == true && output["format"]?.stringValue == "png")
    let sent = try #require(call.picture.flatMap { try? standIn.upload(sha256: $0) })
    let image = try EncodedPicture(bytes: EncodedBytes(sent)).pixels()
    #expect(image.bands == 4)
    #expect(try image.alphaBand().bytes().contains(0))
  }

  @Test(.enabled(if: Peers.hasPython, needsPeers))
  func `imgbb gets previews that go after a day`() throws {
    let standIn = try Peers.standIn()
    let key = Peers.freshName("cookbookkey")
    try standIn.addKey(.imgbb, key)
    let scene = try scene("imgbb", pictures: 2)
    Cookbook.direct(scene, "job.json", to: ["imgbb": standIn.address + "/1"])
    let result = scene.run("run", "job.json", "--report", "report.json") {
      $0.environment = Cookbook.environment(["IMGBB_API_KEY": key])
    }
    #expect(result.exitCode == 0, "\(result.error)")
    let calls = try standIn.log(.imgbb, key: key)
    #expect(calls.count == 2 && calls.allSatisfy { $0.remarks.isEmpty })
    for call in calls {
      #expect(
        call.query.contains("expiration=86400")
          || call.fields?.contains { $0.name == "expiration" && $0.value == "86400" } == true)
      #expect(call.fields?.contains { $0.name == "image" && $0.filename?.hasSuffix(".webp") == true } == true)
    }
  }

  // MARK: DeepLabV3

  /// A home in which the model is, where the shared models are at hand.
  private static let model: String? = {
    let data = getenv("PIPELINE_TEST_DATA").map { String(cString: $0) } ?? "../shared/data"
    let file = data + "/models/deeplabv3_257_mv_gpu.tflite"
    guard access(file, R_OK) == 0, let path = realpath(file, nil) else { return nil }
    defer { free(path) }
    return String(cString: path)
  }()

  /// The demo's astronaut, put before something else by a job; and the photo itself.
  private func person(_ name: String, _ change: (Scene) throws -> Void = { _ in }) throws -> (Image, Image) {
    let demo = try #require(DocumentationTests.demoPhotos)
    let model = try #require(Self.model)
    let scene = try scene(name, pictures: 0)
    let photo = TemporaryFolder.read(demo + "/astronaut.png") ?? []
    scene.folder.write(photo, to: "photos/astronaut.png")
    try change(scene)
    let home = String(demo.dropLast("/demo".count))
    scene.folder.makeFolder("home/models")
    symlink(home + "/runtime", scene.folder["home/runtime"])
    symlink(model, scene.folder["home/models/deeplabv3_257_mv_gpu.tflite"])
    let result = scene.run("run", "job.json", "--input", "photos/astronaut.png") {
      $0.environment = Cookbook.environment(["PIPELINE_HOME": scene.folder["home"]])
    }
    #expect(result.exitCode == 0, "\(name): \(result.error)")
    return (try picture(scene, "out/\(name)/astronaut.jpg"), try EncodedPicture(bytes: EncodedBytes(photo)).pixels())
  }

  private static let hasModel = DocumentationTests.demoPhotos != nil && model != nil

  /// Above the person's shoulder, and in her face.
  private let corner = (490, 12)
  private let face = (225, 130)

  @Test(.enabled(if: hasModel, "the demo photos or the shared models are not there"))
  func `a person goes before white, a gradient, a picture`() throws {
    let (white, photo) = try person("people")
    #expect(near(try pixel(white, corner.0, corner.1), [255, 255, 255], within: 4))
    #expect(near(try pixel(white, face.0, face.1), try pixel(photo, face.0, face.1), within: 20))
    let (gradient, _) = try person("deeplab-gradient")
    #expect(
      near(try pixel(gradient, corner.0, 1), [0x4F, 0xAC, 0xFE], within: 8))
    #expect(near(try pixel(gradient, face.0, face.1), try pixel(photo, face.0, face.1), within: 20))
    // Red on the left, blue on the right.
    let (picture, _) = try person("deeplab-picture") { scene in
      let bytes = (0..<64 * 64).flatMap { $0 % 64 < 32 ? [200, 0, 0] : [0, 0, 200] as [UInt8] }
      scene.folder.write(
        try Image(width: 64, height: 64, bands: 3, bytes: bytes).encoded(.png(.init())).array, to: "photos/coffee.png")
    }
    #expect(
      near(try pixel(picture, corner.0, corner.1), [0, 0, 200], within: 20))
    #expect(near(try pixel(picture, face.0, face.1), try pixel(photo, face.0, face.1), within: 20))
  }

  @Test(.enabled(if: hasModel, "the demo photos or the shared models are not there"))
  func `the background is blurred, and only a part of it is replaced`() throws {
    func roughness(_ image: Image) throws -> Double {
      let bytes = try image.bytes()
      var sum = 0
      for y in 0..<60 {
        for x in 450..<510 {
          let place = (y * image.width + x) * image.bands
          sum += abs(Int(bytes[place]) - Int(bytes[place + image.bands]))
        }
      }
      return Double(sum) / 3600
    }
    let (blurred, photo) = try person("deeplab-blur")
    #expect(try roughness(blurred) < 0.5 * roughness(photo))
    #expect(near(try pixel(blurred, face.0, face.1), try pixel(photo, face.0, face.1), within: 20))
    let (part, _) = try person("deeplab-partial")
    #expect(near(try pixel(part, corner.0, corner.1), [255, 255, 255], within: 4))
    // Below the middle the photo is as it was: at both edges, where no person is or may be.
    for x in [2, 509] {
      #expect(near(try pixel(part, x, 500), try pixel(photo, x, 500), within: 25), "\(x)")
    }
    #expect(near(try pixel(part, face.0, face.1), try pixel(photo, face.0, face.1), within: 20))
  }
}
