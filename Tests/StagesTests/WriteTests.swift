import Glibc
import Imaging
import PipelineKit
import Stages
import Synchronization
import TestSupport
import Testing

@Suite struct WriteTests {
  let bench = StageBench()

  /// A PNG of 3 × 2 pixels, and an item that ends in it.
  private func encoded(
    name: String = "shoe.png", directory: String = "", columns: [String: String] = [:], gray: UInt8 = 7
  ) throws -> Item {
    let image = try Pictures.solid(3, 2, gray, gray, gray)
    let bytes = try image.encoded(.png(.init()))
    return bench.item(bench.folder["in/" + name], name: name, directory: directory, columns: columns)
      .with(image: image).with(encoded: .init(bytes: bytes, format: .png, width: 3, height: 2))
  }

  private func json(_ to: String, _ more: String = "") -> String {
    "{ \"stage\": \"write\", \"to\": \"\(to)\"\(more) }"
  }

  @Test("the file holds what was encoded, is booked with its facts, and nothing else is left")
  func writes() throws {
    let item = try encoded(directory: "winter/boots")
    let journal = ItemJournal()
    _ = try bench.process(
      Write.self, json("out/${item.dir}/${item.stem}-${image.width}.${ext}"), item, journal: journal)
    let bytes = try #require(item.encoded).bytes
    #expect(bench.folder.tree().filter { !$0.hasSuffix("/") } == ["out/winter/boots/shoe-3.png"])
    #expect(bench.folder.read("out/winter/boots/shoe-3.png") == bytes.array)
    let record = try #require(journal.snapshot.outputs.first)
    #expect(
      record
        == OutputRecord(
          place: .path(PathBytes(bench.folder["out/winter/boots/shoe-3.png"])), format: "png", width: 3, height: 2,
          bytes: bytes.count, sha256: bytes.sha256, stage: "write"))
    #expect(record.sha256.count == 64)
    #expect(bench.temporaries.remaining.isEmpty)
  }

  @Test("a file gets the permissions that the umask leaves")
  func permissions() throws {
    _ = try bench.process(Write.self, json("a.png"), encoded())
    var status = stat()
    #expect(stat(bench.folder["a.png"], &status) == 0)
    let mask = umask(0)
    umask(mask)
    #expect(status.st_mode & 0o777 == 0o666 & ~mask)
  }

  @Test("a name from the input that claims another type is reported, and any other is not")
  func endingMismatch() throws {
    for (name, to, codes) in [
      ("shoe.jpg", "out/${item.name}", ["ending-mismatch"]), ("shoe.png", "out/${item.name}", []),
      ("shoe.jpg", "out/${item.stem}.${ext}", []), ("shoe", "out/${item.stem}", []),
    ] as [(String, String, [String])] {
      let bench = StageBench()
      let journal = ItemJournal()
      _ = try bench.process(Write.self, json(to), encoded(name: name), journal: journal)
      #expect(journal.warningCodes == codes, "\(name) to \(to)")
    }
  }

  @Test("what was encoded from an animation is written once, though its frames go on to a later stage")
  func animation() throws {
    #expect(try Write.plan(StageBench.settings(Write.self, json("a.png"))).frames == .together)
    let image = try Pictures.solid(3, 2, 7, 7, 7)
    let file = try #require(encoded().encoded)
    let item = bench.item(image).with(
      animation: ItemFrames(frames: [.init(image: image), .init(image: image)], delays: [40, 40], loop: 0)
    ).with(encoded: file)
    let journal = ItemJournal()
    let write = try bench.make(Write.self, json("a.png"))
    let outcome = try write.processFrames(
      item, Write.plan(StageBench.settings(Write.self, json("a.png"))).frames,
      in: bench.context("write", journal: journal))
    guard case .next(let next) = outcome else {
      Issue.record("the item did not go on")
      return
    }
    #expect(next.isAnimated)
    #expect(journal.snapshot.outputs.count == 1)
    #expect(bench.folder.read("a.png") == file.bytes.array)
  }

  // MARK: What is there already

  @Test("replace puts the new file in the old one's place")
  func replace() throws {
    bench.folder.write("old", to: "a.png")
    let item = try encoded()
    _ = try bench.process(Write.self, json("a.png"), item)
    #expect(bench.folder.read("a.png") == item.encoded?.bytes.array)
    #expect(bench.folder.tree() == ["a.png"])
  }

  @Test("skip leaves the old file, says so, and books nothing")
  func skip() throws {
    bench.folder.write("old", to: "a.png")
    let journal = ItemJournal()
    _ = try bench.process(Write.self, json("a.png", #", "overwrite": "skip""#), encoded(), journal: journal)
    #expect(bench.folder.read("a.png") == Array("old".utf8))
    #expect(journal.warningCodes == ["output-kept"])
    #expect(journal.snapshot.outputs.isEmpty)
    #expect(bench.folder.tree() == ["a.png"])
  }

  @Test("error leaves the old file and fails the item")
  func existsError() throws {
    bench.folder.write("old", to: "a.png")
    let error = try bench.failure(of: Write.self, json("a.png", #", "overwrite": "error""#), encoded())
    #expect(error.code == "output-exists")
    #expect(error.message.contains(bench.folder["a.png"]))
    #expect(bench.folder.read("a.png") == Array("old".utf8))
    #expect(bench.folder.tree() == ["a.png"])
  }

  @Test("skip and error write where nothing is", arguments: ["skip", "error"])
  func nothingThere(overwrite: String) throws {
    let journal = ItemJournal()
    _ = try bench.process(
      Write.self, json("a.png", ", \"overwrite\": \"\(overwrite)\""), encoded(), journal: journal)
    #expect(journal.snapshot.outputs.count == 1)
    #expect(bench.folder.tree() == ["a.png"])
  }

  @Test("a symbolic link is replaced, and what it points at stays", arguments: ["precious.txt", "nowhere"])
  func symbolicLink(target: String) throws {
    bench.folder.write("precious", to: "precious.txt")
    #expect(symlink(target, bench.folder["a.png"]) == 0)
    let item = try encoded()
    _ = try bench.process(Write.self, json("a.png"), item)
    #expect(bench.folder.read("a.png") == item.encoded?.bytes.array)
    #expect(bench.folder.read("precious.txt") == Array("precious".utf8))
    #expect(bench.folder.read("nowhere") == nil)
    // A link counts as something that is there, wherever it points.
    #expect(unlink(bench.folder["a.png"]) == 0)
    #expect(symlink(target, bench.folder["b.png"]) == 0)
    #expect(
      try bench.failure(of: Write.self, json("b.png", #", "overwrite": "error""#), item).code == "output-exists")
  }

  @Test("a folder or a pipe at the target is left alone, with a message that says what it is")
  func notAFile() throws {
    bench.folder.makeFolder("a.png")
    #expect(mkfifo(bench.folder["b.png"], 0o600) == 0)
    #expect(try bench.failure(of: Write.self, json("a.png"), encoded()).code == "output-is-folder")
    #expect(try bench.failure(of: Write.self, json("b.png"), encoded()).code == "output-is-special")
    #expect(bench.folder.tree().map { $0.hasSuffix("/") ? String($0.dropLast()) : $0 } == ["a.png", "b.png"])
  }

  @Test("a file where a folder is needed is named")
  func fileInTheWay() throws {
    bench.folder.write("", to: "out")
    let error = try bench.failure(of: Write.self, json("out/a.png"), encoded())
    #expect(error.message.contains(bench.folder["out"]))
    #expect(bench.folder.read("out") == [])
  }

  @Test("the input itself is replaced only when the job says so")
  func inPlace() throws {
    bench.folder.write("input", to: "in/shoe.png")
    let item = try encoded()
    #expect(try bench.failure(of: Write.self, json("in/${item.name}"), item).code == "output-overwrites-input")
    #expect(bench.folder.read("in/shoe.png") == Array("input".utf8))
    let settings = try StageBench.settings(Write.self, json("in/${item.name}", #", "inPlace": true"#))
    #expect(Write.plan(settings).mayReplaceInputs)
    // A new run: the first one's claim is gone.
    let again = StageBench()
    again.folder.write("input", to: "in/shoe.png")
    let image = try item.image()
    let own = try again.item(again.folder["in/shoe.png"], name: "shoe.png").with(image: image)
      .with(encoded: #require(item.encoded))
    _ = try again.process(Write.self, json("in/${item.name}", #", "inPlace": true"#), own)
    #expect(again.folder.read("in/shoe.png") == item.encoded?.bytes.array)
  }

  @Test("what replaces an input is decoded whole before it does")
  func verifiesPixels() throws {
    let bench = StageBench()
    let whole = try Pictures.jpeg(Pictures.image(200, 200) { x, y in [UInt8(x), UInt8(y), UInt8(x * y & 255)] })
    // A header that is fine, and half of the pixels.
    let half = EncodedBytes(Array(whole.prefix(whole.count / 2)))
    let item = bench.item(holding: whole, name: "in/a.jpg").with(
      encoded: .init(bytes: half, format: .jpeg, width: 200, height: 200))
    let error = try bench.failure(of: Write.self, json("in/a.jpg", #", "inPlace": true"#), item)
    #expect(error.code == "output-verify")
    #expect(bench.folder.read("in/a.jpg") == whole)
    #expect(bench.folder.tree().filter { $0.hasSuffix(".tmp") }.isEmpty)
    let strict = try bench.failure(of: Write.self, json("b.jpg", #", "verify": "pixels""#), item)
    #expect(strict.code == "output-verify")
    // Elsewhere the header is looked at.
    _ = try bench.process(Write.self, json("c.jpg", ""), item)
    let sound = item.with(encoded: .init(bytes: EncodedBytes(whole), format: .jpeg, width: 200, height: 200))
    _ = try bench.process(Write.self, json("in/d.jpg", #", "inPlace": true"#), sound)
  }

  @Test("two pictures of one run never write one file, however it is spelled")
  func collision() throws {
    let first = try encoded(gray: 1)
    _ = try bench.process(Write.self, json("out/a.png"), first)
    let error = try bench.failure(of: Write.self, json("out/./x/../a.png", #", "overwrite": "skip""#), encoded(gray: 2))
    #expect(error.code == "output-collision")
    #expect(bench.folder.read("out/a.png") == first.encoded?.bytes.array)
  }

  @Test("nothing that the run reads is replaced, also under a name that only the run knows")
  func protected() throws {
    for name in ["in/3.png", "store/3-2.png", "bg.png"] { bench.folder.write("precious", to: name) }
    symlink("in", bench.folder["alias"])
    symlink("../store/3-2.png", bench.folder["in/link.png"])
    var bench = bench
    var resolver = FolderResolver()
    bench.protected = ProtectedPaths(
      inputs: ["in/3.png", "in/link.png"].map { PathBytes(bench.folder[$0]) },
      others: [(PathBytes(bench.folder["bg.png"]), "a background")], resolver: &resolver)
    let before = bench.folder.tree()
    for to in [
      "in/${image.width}.png", "alias/${image.width}.png", "new/../in/${image.width}.png",
      "store/${image.width}-${image.height}.png", "in/link.png", "bg.png",
    ] {
      for overwrite in ["replace", "skip", "error"] {
        let error = try bench.failure(of: Write.self, json(to, ", \"overwrite\": \"\(overwrite)\""), encoded())
        #expect(error.code == "output-overwrites-input", "\(to)")
      }
    }
    let error = try bench.failure(of: Write.self, json("bg.png", #", "inPlace": true"#), encoded())
    #expect(error.code == "output-overwrites-input")
    #expect(error.message == "the output \(bench.folder["bg.png"]) is a background, which this job reads")
    #expect(bench.folder.tree() == before)
    #expect(bench.folder.read("in/3.png") == Array("precious".utf8))
    #expect(bench.folder.read("store/3-2.png") == Array("precious".utf8))
    #expect(bench.folder.read("bg.png") == Array("precious".utf8))
    // Inputs are free with inPlace.
    let item = try encoded()
    _ = try bench.process(Write.self, json("in/${image.width}.png", #", "inPlace": true"#), item)
    #expect(bench.folder.read("in/3.png") == item.encoded?.bytes.array)
  }

  @Test("a folder reached through a link is the same place")
  func collisionThroughALink() throws {
    bench.folder.makeFolder("out")
    symlink("out", bench.folder["alias"])
    let first = try encoded(gray: 1)
    _ = try bench.process(Write.self, json("out/${image.width}.png"), first)
    let error = try bench.failure(of: Write.self, json("alias/${image.width}.png"), encoded(gray: 2))
    #expect(error.code == "output-collision")
    #expect(bench.folder.read("out/3.png") == first.encoded?.bytes.array)
  }

  /// A bitmap of one pixel, written byte by byte, and its SHA-256 by sha256sum.
  private static let bitmap: [UInt8] =
    [66, 77, 58, 0, 0, 0, 0, 0, 0, 0, 54, 0, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 24, 0, 0, 0, 0, 0]
    + [4, 0, 0, 0, 19, 11, 0, 0, 19, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 30, 20, 10, 0]
  private static let bitmapHash = "6aa5f572dab3a68611005b6738f746e414f3acbe830edb1306c133a542306581"

  @Test("the hash in a name is of the bytes that were read, whatever became of the file")
  func sourceHash() throws {
    var bench = bench
    bench.keepsSourceHash = true
    let opened = try bench.decoded(bench.item(holding: Self.bitmap, name: "a.bmp"))
    let item = opened.with(image: try opened.image()).with(encoded: try #require(encoded().encoded)).releasingPixels()
    bench.folder.write("another", to: "a.bmp")
    _ = try bench.process(Write.self, json("${item.hash}.png"), item)
    #expect(bench.folder.read(Self.bitmapHash + ".png") == item.encoded?.bytes.array)
    unlink(bench.folder["a.bmp"])
    _ = try bench.process(Write.self, json("x/${item.hash}.png"), item)
    #expect(bench.folder.read("x/\(Self.bitmapHash).png") != nil)
  }

  @Test("the hash of a source that is open needs no file, and none is kept where the job names none")
  func sourceHashOfAnOpenSource() throws {
    let opened = try bench.decoded(bench.item(holding: Self.bitmap, name: "a.bmp"))
    #expect(opened.sourceHash == nil)
    unlink(bench.folder["a.bmp"])
    let template = try #require(Template.parse("${item.hash}").template)
    #expect(try bench.context().render(template, for: opened) == Array(Self.bitmapHash.utf8))
    #expect(throws: StageError.self) { try bench.context().render(template, for: opened.releasingPixels()) }
  }

  // MARK: Names

  @Test(
    "what an item brings along can't lead out of the folder",
    arguments: [
      ("out/${item.sku}.png", "../../etc/passwd", "output-escapes"),
      ("out/${item.sku}/a.png", "..", "output-escapes"),
      ("out/${item.sku}/a.png", "a/../../b", "output-escapes"),
      ("out/.${item.sku}/a.png", ".", "output-escapes"),
      ("${item.sku}.png", "/etc/passwd", "output-escapes"),
      ("out/${item.sku}/a.png", ".", "output-name"),
      ("out/${item.sku}", "", "output-name"), ("out/${item.sku}", "shoes/", "output-name"),
      ("${item.sku}", "", "output-name"),
      ("out/${item.sku}.png", "a\u{0}b", "output-name"),
      ("out/${item.sku}.png", String(repeating: "n", count: 252), "output-name"),
    ])
  func escapes(to: String, value: String, code: String) throws {
    let error = try bench.failure(of: Write.self, json(to), encoded(columns: ["sku": value]))
    #expect(error.code == code)
    #expect(error.message.contains(to))
    #expect(bench.folder.tree().isEmpty)
  }

  @Test(
    "values may name folders below, and dots inside a name are dots",
    arguments: [
      ("out/${item.sku}.png", "shoes/red", "out/shoes/red.png"), ("out/${item.sku}.png", "..a", "out/..a.png"),
      ("out/${item.sku}.png", "/a", "out/a.png"), ("out/../${item.sku}.png", "a", "a.png"),
      ("./out//${item.sku}.png", "größe", "out/größe.png"),
      ("out/${item.sku}.png", String(repeating: "n", count: 251), "out/" + String(repeating: "n", count: 251) + ".png"),
    ])
  func goodNames(to: String, value: String, path: String) throws {
    _ = try bench.process(Write.self, json(to), encoded(columns: ["sku": value]))
    #expect(bench.folder.tree().filter { !$0.hasSuffix("/") } == [path])
  }

  @Test("an empty folder at the start of a path is not the root of the file system")
  func emptyDirectory() throws {
    _ = try bench.process(Write.self, json("${item.dir}/${item.stem}.${ext}"), encoded(directory: ""))
    #expect(bench.folder.tree() == ["shoe.png"])
  }

  @Test("the job's author may name any folder, above or absolute")
  func authorsFolder() throws {
    let elsewhere = TemporaryFolder()
    _ = try bench.process(Write.self, json("\(elsewhere.path)/a/${item.stem}.png"), encoded())
    #expect(elsewhere.tree().contains("a/shoe.png"))
    var below = bench
    below.run.baseFolder = PathBytes(bench.folder["jobs/deep"])
    _ = try below.process(Write.self, json("../${item.stem}.png"), encoded())
    #expect(bench.folder.read("jobs/shoe.png") != nil)
  }

  @Test("names that are not UTF-8 come through byte by byte")
  func rawBytes() throws {
    let name = PathBytes(bytes: [0x66, 0xff, 0x2e, 0x6a, 0x70, 0x67])
    let item = try encoded()
    let raw = Item(identity: ItemIdentity(index: 0, path: name, name: name, directory: ""))
      .with(image: try item.image()).with(encoded: try #require(item.encoded))
    _ = try bench.process(Write.self, json("${item.stem}.png"), raw)
    var status = stat()
    let path = PathBytes(bench.folder.path).joining(PathBytes(bytes: [0x66, 0xff, 0x2e, 0x70, 0x6e, 0x67]))
    #expect(path.withCString { stat($0, &status) } == 0)
  }

  private final class Counter: Sendable {
    private let value = Atomic(0)
    func next() -> Int { value.add(1, ordering: .relaxed).newValue }
    var count: Int { value.load(ordering: .relaxed) }
  }

  // MARK: Trouble

  @Test("bytes that do not hold what they should are never put in place")
  func verify() throws {
    bench.folder.write("old", to: "a.png")
    let image = try Pictures.solid(3, 2, 1, 1, 1)
    let png = try image.encoded(.png(.init()))
    for wrong in [
      Item.Encoded(bytes: png, format: .png, width: 4, height: 2),
      Item.Encoded(bytes: png, format: .jpeg, width: 3, height: 2),
      Item.Encoded(bytes: EncodedBytes([1, 2, 3]), format: .png, width: 3, height: 2),
    ] {
      let bench = StageBench()
      bench.folder.write("old", to: "a.png")
      let error = try bench.failure(of: Write.self, json("a.png"), bench.item(image).with(encoded: wrong))
      #expect(error.code == "output-verify")
      #expect(bench.folder.read("a.png") == Array("old".utf8))
      #expect(bench.folder.tree() == ["a.png"])
      #expect(bench.temporaries.remaining.isEmpty)
    }
  }

  @Test("an item given up before the end gets no file")
  func cancelled() throws {
    let stage = try bench.make(Write.self, json("out/a.png"))
    let context = bench.context(cancelled: { true })
    #expect(throws: StageError.self) { try stage.process(encoded(), in: context) }
    // Not even the folder: nothing is begun for it.
    #expect(bench.folder.tree().isEmpty)
  }

  @Test("an item given up while its file is written gets no file")
  func cancelledMeanwhile() throws {
    let stage = try bench.make(Write.self, json("out/a.png"))
    let counter = Counter()
    let context = bench.context(cancelled: { counter.next() > 1 })
    #expect(throws: StageError.self) { try stage.process(encoded(), in: context) }
    #expect(counter.count == 2)
    #expect(bench.folder.tree() == ["out/"])
  }

  @Test("a run that is over gets no file")
  func sealed() throws {
    bench.folder.write("old", to: "out/a.png")
    bench.temporaries.seal()
    #expect(try bench.failure(of: Write.self, json("out/a.png"), encoded()).code == "cancelled")
    #expect(bench.folder.tree() == ["out/", "out/a.png"])
    #expect(bench.folder.read("out/a.png") == Array("old".utf8))
  }

  @Test("an item given up at the last moment leaves no new file, and a replaced one whole")
  func givenUp() throws {
    let item = try encoded()
    for old in [nil, "old"] {
      let bench = StageBench()
      if let old { bench.folder.write(old, to: "a.png") }
      let journal = ItemJournal()
      journal.close()
      _ = try bench.process(Write.self, json("a.png"), item, journal: journal)
      #expect(bench.folder.read("a.png") == (old == nil ? nil : item.encoded?.bytes.array))
      #expect(journal.snapshot.outputs.isEmpty)
    }
  }

  @Test("many workers write at once, each file whole")
  func concurrent() async throws {
    let stage = try bench.make(Write.self, json("out/${item.sku}/${item.sku}.png"))
    let items = try (0..<40).map { try encoded(columns: ["sku": "\($0)"], gray: UInt8($0)) }
    await withTaskGroup(of: Void.self) { group in
      for item in items {
        group.addTask { [bench] in
          do throws(StageError) {
            _ = try stage.process(item, in: bench.context())
          } catch {
            Issue.record("\(error)")
          }
        }
      }
    }
    for (index, item) in items.enumerated() {
      #expect(bench.folder.read("out/\(index)/\(index).png") == item.encoded?.bytes.array)
    }
    #expect(bench.folder.tree().filter { !$0.hasSuffix("/") }.count == 40)
  }

  // MARK: Disks

  /// A file system of its own, unmounted when the value goes.
  private final class Mount: Sendable {
    static let isPermitted: Bool = {
      let folder = TemporaryFolder()
      return Mount(at: folder.path, options: "size=64k") != nil
    }()

    private let path: String

    init?(at path: String, options: String) {
      guard mount("tmpfs", path, "tmpfs", 0, options) == 0 else { return nil }
      self.path = path
    }

    func makeReadOnly() -> Bool { mount("tmpfs", path, "tmpfs", UInt(MS_REMOUNT | MS_RDONLY), nil) == 0 }

    deinit { umount2(path, 0) }
  }

  @Test(
    "a full disk fails the item in plain words and leaves nothing", .enabled(if: Mount.isPermitted, "needs mount(2)"))
  func fullDisk() throws {
    bench.folder.makeFolder("out")
    let disk = try #require(Mount(at: bench.folder["out"], options: "size=64k"))
    bench.folder.write("old", to: "out/a.png")
    let noise = try Pictures.image(400, 200) { x, y in
      [UInt8((x &* y &* 31) & 255), UInt8(x & 255), UInt8((x ^ y) & 255)]
    }
    let item = try bench.process(
      Encode.self, #"{ "stage": "encode", "format": "png", "compression": 0 }"#, bench.item(noise))
    let error = try bench.failure(of: Write.self, json("out/a.png"), item)
    #expect(error.code == "output-disk-full")
    #expect(error.message.contains("a.png"))
    #expect(bench.folder.read("out/a.png") == Array("old".utf8))
    #expect(bench.folder.tree() == ["out/", "out/a.png"])
    withExtendedLifetime(disk) {}
  }

  @Test("a read-only disk fails the item in plain words", .enabled(if: Mount.isPermitted, "needs mount(2)"))
  func readOnlyDisk() throws {
    bench.folder.makeFolder("out")
    let disk = try #require(Mount(at: bench.folder["out"], options: "size=64k"))
    bench.folder.write("old", to: "out/a.png")
    try #require(disk.makeReadOnly())
    for name in ["out/a.png", "out/new/b.png"] {
      let error = try bench.failure(of: Write.self, json(name), encoded())
      #expect(error.code == "output-read-only")
      #expect(error.message.contains(bench.folder["out"]))
    }
    #expect(bench.folder.read("out/a.png") == Array("old".utf8))
    #expect(bench.folder.tree() == ["out/", "out/a.png"])
  }

  @Test(
    "settings that are wrong are found by lint",
    arguments: [
      (#"{ "stage": "write" }"#, "missing-key"), (#"{ "stage": "write", "to": "" }"#, "wrong-value"),
      (#"{ "stage": "write", "to": "out/${item.stm" }"#, "template-unclosed"),
      (#"{ "stage": "write", "to": "a.png", "overwrite": "no" }"#, "unknown-value"),
    ])
  func lint(json: String, code: String) throws {
    #expect(try StageBench.lint(Write.self, json).map(\.code) == [code])
  }
}
