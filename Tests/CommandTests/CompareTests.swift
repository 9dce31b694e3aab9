import Glibc
import Imaging
import JobSyntax
import TestSupport
import Testing

/// `pipeline compare` from outside.
@Suite struct CompareTests {
  /// Shapes with soft and hard edges, and some grain: what an encoder has to work on.
  private func picture(_ width: Int, _ height: Int, mark: (x: Int, y: Int)? = nil) throws -> Image {
    var random = SeededGenerator(state: 11)
    var bytes = [UInt8](repeating: 0, count: width * height * 3)
    for y in 0..<height {
      for x in 0..<width {
        let at = (y * width + x) * 3
        let isDisc = (x - width / 2) * (x - width / 2) + (y - height / 2) * (y - height / 2) < height * height / 9
        let grain = Int(truncatingIfNeeded: random.next() & 7)
        bytes[at] = UInt8(min(255, (isDisc ? 200 : x * 160 / width + 30) + grain))
        bytes[at + 1] = UInt8(min(255, (isDisc ? 90 : y * 160 / height + 40) + grain))
        bytes[at + 2] = UInt8(min(255, (isDisc ? 60 : 120) + grain))
      }
    }
    if let mark {
      for y in mark.y..<mark.y + 8 {
        for x in mark.x..<mark.x + 8 {
          let at = (y * width + x) * 3
          (bytes[at], bytes[at + 1], bytes[at + 2]) = (255, 255, 255)
        }
      }
    }
    return try Image(width: width, height: height, bands: 3, bytes: bytes)
  }

  private func jpeg(
    _ image: Image, _ quality: Int, chroma: EncodeOptions.Chroma = .full
  ) throws -> [UInt8] {
    // Colour as fine at both qualities: below 90 it would be coarser by itself.
    try image.encoded(.jpeg(.init(quality: quality, chroma: chroma))).array
  }

  private func compare(_ scene: Scene, _ arguments: String...) -> ProgramResult {
    RunProgram.run(["compare"] + arguments, scene.settings())
  }

  @Test func foldersArePairedByPath() throws {
    let scene = try Scene()
    let image = try picture(200, 150)
    let bytes = try jpeg(image, 90)
    for side in ["a", "b"] { scene.folder.write(bytes, to: "\(side)/sub/same.jpg") }
    scene.folder.write(bytes, to: "a/gone.jpg")
    scene.folder.write(bytes, to: "b/new.jpg")
    scene.folder.write(bytes, to: "b/.hidden.jpg")
    scene.folder.write(bytes, to: "a/again.jpg")
    scene.folder.write(try jpeg(image, 85), to: "b/again.jpg")
    let result = compare(scene, "a", "b", "--format", "json")
    #expect(result.exitCode == 1, "\(result.error)")
    let found = try json(result.outputBytes)
    #expect(found["same"]?.boolValue == false)
    let counts = ["changed": 0, "missing": 1, "added": 1, "alike": 1, "identical": 1]
    for (kind, count) in counts { #expect(found["counts"]?[kind]?.integer == count, "\(kind)") }
    #expect(
      found["pictures"]?.arrayValue?.compactMap { $0["name"]?.stringValue } == ["gone.jpg", "new.jpg", "again.jpg"])
    let text = compare(scene, "a", "b")
    #expect(text.output == "missing: gone.jpg\nadded: new.jpg\n")
    #expect(text.error.hasSuffix("1 missing, 1 added, 1 alike, 1 identical of 4 pictures\n"))
    scene.folder.remove("a/gone.jpg")
    scene.folder.remove("b/new.jpg")
    #expect(compare(scene, "a", "b").exitCode == 0)
    #expect(compare(scene, "a", "b", "--threshold", "0").exitCode == 1)
  }

  /// A spot of 8×8 in 12 megapixels, and nothing but another quality.
  @Test func aSpotIsFoundAndANewQualityIsNone() throws {
    let scene = try Scene()
    let whole = try picture(4000, 3000)
    scene.folder.write(try jpeg(whole, 90), to: "a/spot.jpg")
    scene.folder.write(try jpeg(whole, 90), to: "a/quality.jpg")
    scene.folder.write(try jpeg(try picture(4000, 3000, mark: (3131, 417)), 90), to: "b/spot.jpg")
    scene.folder.write(try jpeg(whole, 85), to: "b/quality.jpg")
    let result = compare(scene, "a", "b", "--format", "json", "--html", "page.html")
    #expect(result.exitCode == 1, "\(result.error)")
    let pictures = try #require(try json(result.outputBytes)["pictures"]?.arrayValue)
    #expect(pictures.map { $0["kind"]?.stringValue } == ["changed", "alike"])
    let spot = try #require(pictures.first)
    #expect(spot["name"]?.stringValue == "spot.jpg")
    let place = (try #require(spot["worstAt"]?["x"]?.integer), try #require(spot["worstAt"]?["y"]?.integer))
    #expect(abs(place.0 - 3135) < 12 && abs(place.1 - 421) < 12, "\(place)")
    let page = String(decoding: try #require(scene.folder.read("page.html")), as: UTF8.self)
    #expect(page.contains("spot.jpg"))
    #expect(page.contains("role=\"slider\""))
    #expect(!page.contains("http://") || page.contains("http://www.w3.org/"))
  }

  private static let photos = DocumentationTests.demoPhotos

  @Test(.enabled(if: photos != nil, "the demo photos are not installed"))
  func photosOfAnotherQualityAreAlike() throws {
    let scene = try Scene()
    for name in ["astronaut.png", "chelsea.png", "coffee.png"] {
      let image = try EncodedPicture(
        bytes: EncodedBytes(TemporaryFolder.read(try #require(Self.photos) + "/" + name) ?? [])
      )
      .pixels().withoutAlpha()
      scene.folder.write(try jpeg(image, 90, chroma: .auto), to: "a/\(name).jpg")
      scene.folder.write(try jpeg(image, 85, chroma: .auto), to: "b/\(name).jpg")
      scene.folder.write(try jpeg(image, 25, chroma: .auto), to: "c/\(name).jpg")
    }
    let near = compare(scene, "a", "b", "--format", "json")
    #expect(near.exitCode == 0, "\(near.output)")
    let far = compare(scene, "a", "c", "--format", "json")
    #expect(try json(far.outputBytes)["counts"]?["changed"]?.integer == 3, "\(far.output)")
  }

  /// Bytes that are the same are the same, also those of no picture; what is damaged is said without hints about jobs.
  @Test func emptyAndDamagedFilesAreTold() throws {
    let scene = try Scene()
    let bytes = try picture(200, 200, mark: (20, 30)).encoded(.png(.init())).array
    for side in ["a", "b"] {
      scene.folder.write([], to: "\(side)/empty.png")
      scene.folder.write(bytes, to: "\(side)/whole.png")
    }
    #expect(compare(scene, "a", "b").exitCode == 0)
    scene.folder.write(Array(bytes.dropLast(bytes.count / 2)), to: "b/whole.png")
    let result = compare(scene, "a", "b")
    #expect(result.exitCode == 1)
    #expect(result.output.contains("whole.png") && !result.output.contains("onDamage"), "\(result.output)")
    let wrong = compare(scene, "a/whole.png", "b/whole.png")
    #expect(wrong.exitCode == 4 && wrong.error.contains("compare takes folders of pictures, reports"), "\(wrong.error)")
  }

  @Test func whatCannotBeComparedIsADifference() throws {
    let scene = try Scene()
    let image = try picture(64, 48)
    let png = try image.encoded(.png(.init())).array
    scene.folder.write(png, to: "a/size.png")
    scene.folder.write(try picture(48, 64).encoded(.png(.init())).array, to: "b/size.png")
    scene.folder.write(png, to: "a/broken.png")
    scene.folder.write(Array(png.prefix(png.count / 2)), to: "b/broken.png")
    scene.folder.write("one", to: "a/notes.txt")
    scene.folder.write("two", to: "b/notes.txt")
    let result = compare(scene, "a", "b")
    #expect(result.exitCode == 1)
    #expect(result.output.contains("changed: size.png: 64 × 48 pixels became 48 × 64\n"), "\(result.output)")
    #expect(result.output.contains("changed: broken.png: "))
    #expect(result.output.contains("changed: notes.txt: "))
    #expect(compare(scene, "a", "b", "--html", "page.html").exitCode == 1)
    #expect(scene.folder.read("page.html") != nil)
  }

  @Test func runsArePairedByInput() throws {
    let scene = try Scene(pictures: 3, remembers: true)
    scene.job(to: "one/${item.stem}.${ext}")
    #expect(scene.run("run", "job.json", "--report", "one.json").exitCode == 0)
    scene.job(to: "two/${item.stem}.${ext}")
    scene.folder.write("no picture", to: "in/p02.jpg")
    #expect(scene.run("run", "job.json", "--report", "two.json").exitCode == 1)
    let result = compare(scene, "one.json", "two.json")
    #expect(result.exitCode == 1)
    #expect(result.output.hasPrefix("missing: in/p02.jpg: no picture in the second: failed: "), "\(result.output)")
    #expect(result.error.contains("1 missing, 2 identical of 3 pictures"))
    // By their IDs the same, and by their beginnings.
    let ids = try ["one.json", "two.json"].map { try #require(try scene.report($0)["run"]?["id"]?.stringValue) }
    let byID = compare(scene, ids[0], ids[1])
    #expect(byID.output == result.output, "\(byID.error)")
    let unknown = compare(scene, "19990101-000000-abcdef", ids[1])
    #expect(unknown.exitCode == 4)
    #expect(unknown.error.contains("no run of that ID"))
    // A file that is no longer what its run has written says nothing about that run.
    let text = String(decoding: try #require(scene.folder.read("one.json")), as: UTF8.self)
    let sha256 = try #require(
      try scene.report("one.json")["items"]?.arrayValue?.first?["outputs"]?.arrayValue?.first?["sha256"]?.stringValue)
    scene.folder.write(text.replacing(sha256, with: String(repeating: "0", count: 64)), to: "old.json")
    let old = compare(scene, "old.json", "one.json")
    #expect(old.exitCode == 1)
    #expect(old.output.contains("the file of the first is no longer what its run has written"), "\(old.output)")
  }

  @Test func nothingIsNoSuccess() throws {
    let scene = try Scene()
    scene.folder.write("", to: "a/.keep")
    scene.folder.write("", to: "b/.keep")
    let empty = compare(scene, "a", "b")
    #expect(empty.exitCode == 4)
    #expect(empty.error.contains("there is nothing to compare"))
    #expect(compare(scene, "a", "missing/folder").exitCode == 4)
    scene.folder.write("{}", to: "x.json")
    #expect(compare(scene, "x.json", "a").exitCode == 4)
    #expect(compare(scene, "a").exitCode == 2)
    #expect(compare(scene, "a", "b", "--threshold", "much").exitCode == 2)
  }
}
