import Engine
import Glibc
import Imaging
import JobSyntax
import TestSupport
import Testing
import Transport

/// `pipeline init`: what its templates make is what the tests run.
@Suite struct InitTests {
  static let templates = ["cutout", "web", "marketplace", "portrait", "removebg-s3", "imgur"]

  private static let folder = DocumentationTests.package + "/Sources/PipelineCommand/Templates"

  @Test func `without a template the templates are listed, each with what it makes`() throws {
    let result = RunProgram.run(["init"])
    #expect(result.exitCode == 0)
    let names = result.output.split(separator: "\n").filter { !$0.hasPrefix(" ") }.compactMap {
      $0.split(separator: " ").first.map(String.init)
    }
    #expect(names == Self.templates)
    #expect(Set(DocumentationTests.names(in: Self.folder, ending: ".json")) == Set(names.map { $0 + ".json" }))
    #expect(result.output.split(separator: "\n").allSatisfy { $0.count <= 80 })
  }

  @Test(arguments: templates) func `a template is written as it is, lints clean, and names its schema`(
    _ name: String
  ) throws {
    let scene = try Scene()
    let result = scene.run("init", name)
    #expect(result.exitCode == 0 && result.output.isEmpty, "\(result.error)")
    let text = try #require(scene.folder.read("job.json"))
    #expect(text == TemporaryFolder.read("\(Self.folder)/\(name).json"))
    #expect(RunProgram.run(["init", name, "--to", "-"]).outputBytes == text)
    let job = try json(text)
    #expect(job["$schema"]?.stringValue == "./job.schema.json")
    #expect(scene.folder.read("job.schema.json") == RunProgram.run(["schema"]).outputBytes)
    // Nothing but credentials may be missing, and those are named among what is to be done.
    let lint = scene.run("lint", "job.json", "--format", "json")
    #expect(lint.exitCode == 0, "\(lint.output)")
    let findings = try json(lint.output)
    for finding in findings.arrayValue ?? findings["diagnostics"]?.arrayValue ?? [] {
      #expect(finding["code"]?.stringValue == "environment-unset")
      let variable = try #require(finding["expected"]?.stringValue?.split(separator: ".").last?.dropLast())
      #expect(result.error.contains("export \(variable)="), "\(result.error)")
    }
    for line in ["pipeline plan job.json", "pipeline run job.json"] { #expect(result.error.contains(line)) }
    #expect(String(decoding: text, as: UTF8.self).split(separator: "\n").allSatisfy { $0.count <= 120 })
  }

  @Test func `nothing is overwritten`() throws {
    let scene = try Scene()
    scene.folder.write("mine", to: "job.json")
    let refused = scene.run("init", "cutout")
    #expect(refused.exitCode == 4 && refused.error.contains("is there already"), "\(refused.error)")
    #expect(scene.folder.tree() == ["job.json"] && scene.folder.read("job.json") == Array("mine".utf8))
    scene.folder.write("mine too", to: "a b/job.schema.json")
    let other = scene.run("init", "cutout", "--to", "a b/it's.json")
    #expect(other.exitCode == 0)
    #expect(scene.folder.read("a b/job.schema.json") == Array("mine too".utf8))
    #expect(other.error.contains("pipeline schema > a b/job.schema.json"))
    #expect(other.error.contains("pipeline run 'a b/it'\\''s.json'"), "\(other.error)")
    #expect(scene.folder.read("a b/it's.json") == scene.folder.read("a b/it's.json"))
    scene.folder.makeFolder("folder")
    #expect(scene.run("init", "cutout", "--to", "folder").exitCode == 4)
    symlink("nowhere", scene.folder["dangling"])
    #expect(scene.run("init", "cutout", "--to", "dangling").exitCode == 4)
    #expect(access(scene.folder["nowhere"], F_OK) != 0)
    scene.folder.makeFolder("closed")
    #expect(chmod(scene.folder["closed"], 0o500) == 0)
    if geteuid() != 0 { #expect(scene.run("init", "cutout", "--to", "closed/job.json").exitCode == 4) }
  }

  @Test func `a wrong name is refused with the right one`() {
    let result = RunProgram.run(["init", "cutuot"])
    #expect(result.exitCode == 2 && result.error.contains("did you mean \"cutout\"?"), "\(result.error)")
    #expect(RunProgram.run(["init", "--to", "x.json"]).exitCode == 2)
  }

  @Test func `credentials that are set are not asked for, and never shown`() throws {
    let scene = try Scene()
    let result = scene.run("init", "imgur") { $0.environment = ["IMGUR_CLIENT_ID": "canary-value"] }
    #expect(result.exitCode == 0 && result.error.contains("IMGUR_CLIENT_ID is set"))
    #expect(!result.error.contains("canary-value"))
  }

  // MARK: Run

  /// The job of a template, on the demo photos or pictures in which the stand-in sees an ellipse.
  private func scene(_ name: String, photos: String?) throws -> Scene {
    let scene = try Scene(remembers: true)
    if let photos {
      for photo in ["astronaut.png", "chelsea.png", "coffee.png"] {
        scene.folder.write(TemporaryFolder.read(photos + "/" + photo) ?? [], to: "photos/" + photo)
      }
    } else {
      for index in 0..<2 { scene.folder.write(try ServiceScene.picture(index), to: "photos/p\(index).png") }
    }
    #expect(scene.run("init", name).exitCode == 0)
    return scene
  }

  private func picture(_ scene: Scene, _ name: String) throws -> Image {
    try EncodedPicture(bytes: EncodedBytes(try #require(scene.folder.read(name), "\(name) was not written"))).pixels()
  }

  @Test(.enabled(if: DocumentationTests.demoPhotos != nil, "the demo photos and the model are not installed"))
  func `the templates of this machine give what they promise`() throws {
    let photos = try #require(DocumentationTests.demoPhotos)
    func outputs(_ name: String) throws -> (Scene, [String]) {
      let scene = try scene(name, photos: photos)
      let result = scene.run("run", "job.json", "--report", "report.json")
      #expect(result.exitCode == 0, "\(name): \(result.error)")
      try check(scene.report(), exitCode: result.exitCode, in: scene)
      return (scene, scene.folder.tree().filter { $0.hasPrefix("out/") && !$0.hasSuffix("/") })
    }
    let (cutout, cutouts) = try outputs("cutout")
    #expect(cutouts == ["out/astronaut.png", "out/chelsea.png", "out/coffee.png"])
    let alpha = try picture(cutout, "out/astronaut.png")
    #expect((alpha.width, alpha.height, alpha.bands) == (512, 512, 4))
    #expect(try alpha.alphaBand().bytes().contains(0) && alpha.alphaBand().bytes().contains(255))

    let (web, renditions) = try outputs("web")
    #expect(renditions.count == 12)
    #expect(try picture(web, "out/chelsea-small.webp").width == 400)
    #expect(renditions.contains("out/chelsea.jpg"))

    let (marketplace, products) = try outputs("marketplace")
    for product in products {
      let image = try picture(marketplace, product)
      #expect((image.width, image.height) == (1600, 1600))
      #expect(try image.bytes().prefix(3).allSatisfy { $0 == 255 })
    }
    let reviewed = marketplace.folder.tree().filter { $0.hasPrefix("review/") && !$0.hasSuffix("/") }
    #expect(products.count + reviewed.count == 3)

    let (portrait, portraits) = try outputs("portrait")
    #expect(portraits.count == 3)
    let image = try picture(portrait, "out/astronaut.png")
    #expect(abs(Double(image.width) / Double(image.height) - 0.8) < 0.01 && image.bands == 3)
    // The gradient's first colour, to a level for its dither.
    let corner = try image.bytes().prefix(3)
    #expect(zip(corner, [0xDF, 0xE9, 0xF3]).allSatisfy { abs(Int($0) - $1) <= 2 }, "\(Array(corner))")
  }

  @Test(.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"))
  func `the templates with services send what they promise`() throws {
    let (standIn, store) = (try Peers.standIn(), try Peers.moto())
    let bucket = try store.makeBucket()
    let key = Peers.freshName("initkey")
    try standIn.addKey(.removebg, key, [("credits", .number(5)), ("freeCalls", .integer(0))])
    let shop = try scene("removebg-s3", photos: nil)
    Cookbook.direct(shop, "job.json", to: ["removebg": standIn.address + "/v1.0", "s3": store.address])
    let sent = shop.run(
      "run", "job.json", "--report", "report.json", "--set", "bucket=\(bucket)", "--set", "region=us-east-1"
    ) {
      $0.environment = Cookbook.environment([
        "REMOVE_BG_API_KEY": key, "AWS_ACCESS_KEY_ID": store.keys.accessKey,
        "AWS_SECRET_ACCESS_KEY": store.keys.secretKey,
      ])
    }
    #expect(sent.exitCode == 0, "\(sent.error)")
    #expect(try standIn.charges(key: key).values.allSatisfy { $0 == StandIn.Charge(count: 1, credits: 0.25) })
    let links = try #require(try shop.report()["items"]?.arrayValue).compactMap {
      $0["outputs"]?.arrayValue?.first?["link"]?.stringValue
    }
    #expect(links.count == 2 && links.allSatisfy { $0.contains("/\(bucket)/products/p") && $0.hasSuffix(".jpg") })

    let client = Peers.freshName("initclient")
    try standIn.addKey(.imgur, client)
    let post = try scene("imgur", photos: nil)
    Cookbook.direct(post, "job.json", to: ["imgur": standIn.address + "/3"])
    let posted = post.run("run", "job.json", "--report", "report.json") {
      $0.environment = Cookbook.environment(["IMGUR_CLIENT_ID": client])
    }
    #expect(posted.exitCode == 0, "\(posted.error)")
    let calls = try standIn.log(.imgur, key: client).filter { $0.method == "POST" }
    #expect(calls.count == 2)
    for call in calls {
      #expect(call.header("authorization") == "Client-ID \(client)")
      #expect(call.fields?.contains { $0.name == "title" && ["p0", "p1"].contains($0.value ?? "") } == true)
    }
  }
}
