import Glibc
import PipelineKit
import Testing

@testable import Engine

@Suite struct FilesTests {
  /// One tree, many patterns; every answer is worked out by hand, in bytewise order of the paths.
  @Test(arguments: [
    (["*.jpg"], ["a.JPG", "b.jpg"]),
    (["*.{jpg,png}"], ["a.JPG", "b.jpg", "c.png"]),
    (["?.jpg"], ["a.JPG", "b.jpg"]),
    (["[ab].jpg"], ["a.JPG", "b.jpg"]),
    (["[!a].jpg"], ["b.jpg"]),
    (["*"], ["a.JPG", "b.jpg", "c.png", "noending"]),
    (["**/*.jpg"], ["a.JPG", "b.jpg", "x/d.jpg", "x/y/e.jpg", "x/y/z/f.jpg", "x-1/g.jpg"]),
    (["x/**/*.jpg"], ["x/d.jpg", "x/y/e.jpg", "x/y/z/f.jpg"]),
    (["x/**"], ["x/d.jpg", "x/y/e.jpg", "x/y/z/f.jpg"]),
    (["**/y/*.jpg"], ["x/y/e.jpg"]),
    (["**/y/**/*.jpg"], ["x/y/e.jpg", "x/y/z/f.jpg"]),
    (["**/**/**/*.jpg"], ["a.JPG", "b.jpg", "x/d.jpg", "x/y/e.jpg", "x/y/z/f.jpg", "x-1/g.jpg"]),
    (["*/*.jpg"], ["x/d.jpg", "x-1/g.jpg"]),
    (["*/**/z/*"], ["x/y/z/f.jpg"]),
    (["{x,x-1}/*.jpg"], ["x/d.jpg", "x-1/g.jpg"]),
    (["{x/y,x-1}/*.jpg"], ["x/y/e.jpg", "x-1/g.jpg"]),
    (["{**/y,x-1}/*.jpg"], ["x/y/e.jpg", "x-1/g.jpg"]),
    // Each file once, in one order, whatever the order of the patterns.
    (["**/*.jpg", "*.jpg", "x/y/e.jpg"], ["a.JPG", "b.jpg", "x/d.jpg", "x/y/e.jpg", "x/y/z/f.jpg", "x-1/g.jpg"]),
    (["x/y/*.jpg", "a.JPG", "x/../x/d.jpg"], ["a.JPG", "x/d.jpg", "x/y/e.jpg"]),
    (["**/{e,e*,?}.jpg", "x/y/e.jpg"], ["a.JPG", "b.jpg", "x/d.jpg", "x/y/e.jpg", "x/y/z/f.jpg", "x-1/g.jpg"]),
    (["./x//y/./*.jpg"], ["x/y/e.jpg"]),
    (["noending"], ["noending"]),
    ([".h*/*.jpg"], [".hidden/i.jpg"]),
    ([".*.jpg"], [".j.jpg"]),
    (["**/.j.jpg"], [".j.jpg"]),
    ([".hidden/**/*.jpg"], [".hidden/i.jpg"]),
    (["x/d.jpg"], ["x/d.jpg"]),
    (["*/d.JPG"], ["x/d.jpg"]),
    (["x/{d,y/e}.jpg"], ["x/d.jpg", "x/y/e.jpg"]),
  ])
  func table(patterns: [String], expected: [String]) throws {
    let tree = try TemporaryTree()
    try tree.files(
      "a.JPG", "b.jpg", "c.png", "noending", "x/d.jpg", "x/y/e.jpg", "x/y/z/f.jpg", "x-1/g.jpg", ".hidden/i.jpg",
      ".j.jpg")
    // The order of paths: x-1/ stands before x/ because - is less than /.
    #expect(
      try tree.walk([.files(patterns)]).names
        == expected.sorted { Array($0.utf8).lexicographicallyPrecedes(Array($1.utf8)) })
  }

  @Test func orderIsBytewiseOverWholePaths() throws {
    let tree = try TemporaryTree()
    try tree.files("a/z.jpg", "a.jpg", "a-b/c.jpg", "a0.jpg", "B.jpg", "ä.jpg", "a!/c.jpg", "aa/b.jpg")
    #expect(
      try tree.glob("**/*.jpg") == [
        "B.jpg", "a!/c.jpg", "a-b/c.jpg", "a.jpg", "a/z.jpg", "a0.jpg", "aa/b.jpg", "ä.jpg",
      ])
  }

  @Test func aNameWithWildcardsThatExistsIsThatFile() throws {
    let tree = try TemporaryTree()
    try tree.files("photo[1].jpg", "photo1.jpg", "{a,b}.jpg", "a.jpg", "x{.jpg", "[raw]/a.jpg", "\\.jpg")
    #expect(try tree.glob("photo[1].jpg") == ["photo[1].jpg"])
    #expect(try tree.glob("{a,b}.jpg") == ["{a,b}.jpg"])
    #expect(try tree.glob("x{.jpg") == ["x{.jpg"])
    #expect(InputWalker.check([.files(["x{.jpg"])], base: tree.root) == [])
    #expect(InputWalker.check([.files(["y{.jpg"])], base: tree.root).map(\.code) == [.globSyntax])
    #expect(try tree.glob("\\.jpg") == ["\\.jpg"])
    #expect(try tree.glob("\\[raw]/*.jpg") == ["[raw]/a.jpg"])
    #expect(try tree.glob("photo[12].jpg") == ["photo1.jpg"])
    let found = try problems { try tree.glob("[raw]/*.jpg") }
    #expect(found.map(\.code) == [.empty])
    #expect(found.first?.hint?.contains("there is a folder named [raw]") == true)
  }

  @Test func relativeFoldersAreBelowTheFixedPart() throws {
    let tree = try TemporaryTree()
    try tree.files("in/a.jpg", "in/x/b.jpg", "in/x/y/c.jpg", "job/here.jpg")
    #expect(try tree.walk([.files(["in/**/*.jpg"])]).folders == ["", "x", "x/y"])
    #expect(try tree.walk([.files(["*/**/*.jpg"])]).folders == ["in", "in/x", "in/x/y", "job"])
    #expect(try tree.walk([.files(["in/{x,x/y}/*.jpg"])]).folders == ["x", "x/y"])
    #expect(try tree.walk([.files(["in/x/b.jpg"])]).folders == [""])
    #expect(try tree.walk([.files(["../in/x/*.jpg", "here.jpg"])], base: tree["job"]).folders == ["", ""])
    // The first pattern that matches decides.
    #expect(try tree.walk([.files(["in/x/*.jpg", "in/**/*.jpg"])]).folders == ["", "", "x/y"])
    #expect(try tree.walk([.files([tree["in"].display + "/**/*.jpg"])], base: "/").folders == ["", "x", "x/y"])
    #expect(try tree.walk([.directory("in")]).folders == ["", "x", "x/y"])
  }

  @Test func itemsAreNumberedAndNamed() throws {
    let tree = try TemporaryTree()
    try tree.files("job/a.jpg", "job/in/b.jpg", "c.jpg")
    let walk = try tree.walk([.files(["in/*", "a.jpg"]), .files(["../c.jpg"])], base: tree["job"])
    #expect(walk.items.map(\.index) == [0, 1, 2])
    #expect(walk.items.map(\.declaration) == [0, 0, 1])
    #expect(walk.items.map(\.name) == ["a.jpg", "in/b.jpg", tree["c.jpg"]])
    #expect(walk.items.map(\.path) == [tree["job/a.jpg"], tree["job/in/b.jpg"], tree["c.jpg"]])
  }

  // MARK: What is passed over

  @Test func namesThatAreNotUTF8Survive() throws {
    let tree = try TemporaryTree()
    let name = PathBytes(bytes: Array("caf".utf8) + [0xe9] + Array(".JPG".utf8))
    let folder = PathBytes(bytes: [0xff, 0x0a])
    try tree.file(folder.joining(name))
    try tree.file("line\nfeed.jpg")
    let walk = try tree.walk([.files(["**/caf?.jpg", "line*"])])
    #expect(walk.items.map(\.path) == [tree["line\nfeed.jpg"], tree[folder.joining(name)]])
    #expect(walk.items.last?.relativeDirectory == folder)
    #expect(walk.names.last == "%FF\n/caf%E9.JPG")
  }

  @Test func hiddenNamesArePassedOverWithAReason() throws {
    let tree = try TemporaryTree()
    try tree.files("a.jpg", ".b.jpg", ".c.txt", ".d/e.jpg", "f/.g/h.jpg", "f/.i.jpg")
    let walk = try tree.walk([.files(["**/*.jpg"])])
    #expect(walk.names == ["a.jpg"])
    #expect(walk.skipped == [".b.jpg: hidden", ".d: hidden", "f/.g: hidden", "f/.i.jpg: hidden"])
  }

  @Test func pipesSocketsAndDevicesAreNotOpened() throws {
    let tree = try TemporaryTree()
    try tree.files("a.jpg")
    try tree.node("b.jpg", S_IFIFO)
    try tree.node("c.jpg", S_IFSOCK)
    try tree.node("other.txt", S_IFIFO)
    try tree.link("d.jpg", to: "/dev/null")
    try tree.folder("e.jpg")
    let expected = ["b.jpg: pipe", "c.jpg: socket", "d.jpg: device", "e.jpg: folder"]
    let walk = try tree.walk([.files(["*.jpg"])])
    #expect(walk.names == ["a.jpg"])
    #expect(walk.skipped == expected)
    #expect(try tree.walk([.directory(".", recursive: false, all: true)]).skipped == expected + ["other.txt: pipe"])
    for (name, kind) in [("b.jpg", "a pipe"), ("c.jpg", "a socket"), ("d.jpg", "a device"), ("e.jpg", "a folder")] {
      let found = try problems { try tree.glob(name) }
      #expect(found.map(\.code) == [.wrongKind])
      #expect(found.first?.message == "\(name) is \(kind), not a file")
    }
  }

  @Test func linksToFilesAreFollowed() throws {
    let tree = try TemporaryTree()
    try tree.files("real/a.jpg")
    try tree.link("in.jpg", to: "real/a.jpg")
    try tree.link("broken.jpg", to: "nothing")
    try tree.link("self.jpg", to: "self.jpg")
    let walk = try tree.walk([.files(["*.jpg"])])
    #expect(walk.names == ["in.jpg"])
    #expect(walk.skipped == ["broken.jpg: brokenLink", "self.jpg: symlinkLoop"])
    let found = try problems { try tree.glob("broken.jpg") }
    #expect(found.map(\.code) == [.missing])
    #expect(found.first?.hint?.hasSuffix("broken.jpg is a link to something that does not exist") == true)
  }

  @Test func loopsEnd() throws {
    let tree = try TemporaryTree()
    try tree.files("a/b/c.jpg")
    try tree.link("a/b/up", to: "../..")
    try tree.link("a/b/here", to: ".")
    let walk = try tree.walk([.files(["**/*.jpg"])])
    #expect(walk.names == ["a/b/c.jpg"])
    #expect(walk.skipped == ["a/b/here: symlinkLoop", "a/b/up: symlinkLoop"])
    // A loop that the pattern itself goes through is as long as the pattern.
    #expect(try tree.glob("a/b/up/a/b/*.jpg") == ["a/b/up/a/b/c.jpg"])
    #expect(try tree.glob("a/b/*/a/b/c.jpg") == ["a/b/up/a/b/c.jpg"])
  }

  @Test func loopThroughTwoLinks() throws {
    let tree = try TemporaryTree()
    try tree.files("a/1.jpg", "b/2.jpg")
    try tree.link("a/to-b", to: "../b")
    try tree.link("b/to-a", to: "../a")
    let walk = try tree.walk([.directory("a")])
    #expect(walk.names == ["a/1.jpg", "a/to-b/2.jpg"])
    #expect(walk.skipped == ["a/to-b/to-a: symlinkLoop"])
  }

  /// Twenty folders, each with two links to the next: a million paths, if each link were followed.
  @Test func linksBesideEachOtherDoNotMultiply() throws {
    let tree = try TemporaryTree()
    for level in 0..<20 {
      try tree.folder(PathBytes("store/\(level)"))
      try tree.link(PathBytes("store/\(level)/x"), to: PathBytes("../\(level + 1)"))
      try tree.link(PathBytes("store/\(level)/y"), to: PathBytes("../\(level + 1)"))
    }
    try tree.files("store/20/end.jpg")
    let walk = try tree.walk([.directory("store/0")])
    #expect(walk.names == ["store/0/" + String(repeating: "x/", count: 20) + "end.jpg"])
    #expect(walk.skipped.count == 20)
    #expect(walk.skipped.allSatisfy { $0.hasSuffix("/y: folderSeenBefore") })
    // Folders that a pattern names are entered through each link.
    #expect(try tree.glob("store/19/*/end.jpg").count == 2)
  }

  @Test func unreadableFolderIsAProblemAndNotTheEnd() throws {
    let tree = try TemporaryTree()
    try tree.files("a/1.jpg", "b/2.jpg", "c/3.jpg")
    #expect(withCPath(tree["b"].bytes) { chmod($0, 0) } == 0)
    // mkdtemp lets nobody else in.
    #expect(withCPath(tree.root.bytes) { chmod($0, 0o755) } == 0)
    defer { _ = withCPath(tree["b"].bytes) { chmod($0, 0o755) } }
    let walk = try withoutPrivileges { try tree.walk([.files(["**/*.jpg"])]) }
    #expect(walk.names == ["a/1.jpg", "c/3.jpg"])
    #expect(walk.skipped == ["b: unreadableFolder"])
    #expect(SkippedInput.Reason.unreadableFolder.isProblem)
    let found = try withoutPrivileges { try problems { try tree.glob("b/2.jpg") } }
    #expect(found.map(\.code) == [.unreadable])
    #expect(found.first?.message == "b/2.jpg cannot be looked at: Permission denied")
  }

  @Test func foldersOnTheWayNeedNotBeReadable() throws {
    let tree = try TemporaryTree()
    try tree.files("a/b/1.jpg")
    #expect(withCPath(tree["a"].bytes) { chmod($0, 0o711) } == 0)
    #expect(withCPath(tree.root.bytes) { chmod($0, 0o711) } == 0)
    #expect(try withoutPrivileges { try tree.glob("a/b/*.jpg") } == ["a/b/1.jpg"])
  }

  @Test func pathsTooLongToOpenArePassedOver() throws {
    let tree = try TemporaryTree()
    let name = [UInt8](repeating: 0x61, count: 250)
    // The tree is made from inside: no path reaches its bottom.
    var folder = withCPath(tree.root.bytes) { open($0, O_RDONLY | O_DIRECTORY) }
    for _ in 0..<20 {
      #expect(withCPath(name) { mkdirat(folder, $0, 0o755) } == 0)
      let next = withCPath(name) { openat(folder, $0, O_RDONLY | O_DIRECTORY) }
      close(folder)
      folder = next
    }
    close(folder)
    let walk = try tree.walk([.directory(".", allowEmpty: true)])
    #expect(walk.names == [])
    #expect(walk.skipped.count == 1)
    #expect(walk.skipped.first?.hasSuffix("a: pathTooLong") == true)
  }

  /// `..` behind a link leads where the kernel says.
  @Test func parentOfALink() throws {
    let tree = try TemporaryTree()
    try tree.files("store/photos/a.jpg", "store/jobs/x", "home/photos/b.jpg")
    try tree.link("home/jobs", to: "../store/jobs")
    #expect(try tree.walk([.files(["../photos/*.jpg"])], base: tree["home/jobs"]).names == ["store/photos/a.jpg"])
    #expect(try tree.walk([.files(["../photos/*.jpg"])], base: tree["store/jobs"]).names == ["store/photos/a.jpg"])
  }

  // MARK: Errors

  @Test func nothingFound() throws {
    let tree = try TemporaryTree()
    try tree.files("photos/a.jpg", "photos/.b.png")
    var found = try problems { try tree.glob("photos/*.png", "photos/*.jpg", "photos/*.gif") }
    #expect(found.map(\.code) == [.empty, .empty])
    #expect(found.map(\.element) == [0, 2])
    #expect(found.first?.message == "photos/*.png matches no file")
    #expect(found.first?.hint == "passed over: 1 hidden")
    found = try problems { try tree.glob("fotos/*.jpg") }
    #expect(found.map(\.code) == [.empty])
    #expect(found.first?.hint == "did you mean \(tree["photos"].display)?")
    #expect(try tree.glob("photos/*.png", "photos/*.jpg", allowEmpty: true) == ["photos/a.jpg"])
    #expect(try tree.glob("none/**/*.jpg", allowEmpty: true) == [])
    #expect(try problems { try tree.walk([.files([])]) }.map(\.code) == [.empty])
  }

  @Test func missingFilesAreNamedTogether() throws {
    let tree = try TemporaryTree()
    try tree.files("Photo.JPG", "b.jpg", "folder/c.jpg")
    let found = try problems {
      try tree.glob("Photo.jpg", "b.jpg", "none/x.jpg", "folder", "folder/", "[", allowEmpty: true)
    }
    #expect(found.map(\.code) == [.missing, .missing, .wrongKind, .wrongKind, .globSyntax])
    #expect(found.map(\.element) == [0, 2, 3, 4, 5])
    #expect(found[0].message == "Photo.jpg does not exist")
    #expect(found[0].hint == "did you mean \(tree["Photo.JPG"].display)?")
    #expect(found[2].hint == "use \"directory\", or end it in /**")
    let windows = try problems { try tree.glob("folder\\c.jpg") }
    #expect(windows.first?.hint?.contains("folders are separated by /") == true)
  }

  // MARK: directory

  @Test func directoryTakesPictures() throws {
    let tree = try TemporaryTree()
    try tree.files(
      "in/a.jpg", "in/b.HEIC", "in/c.txt", "in/noending", "in/sub/d.webp", "in/.e.jpg", "in/sub/f.jpg.part")
    let all = try tree.walk([.directory("in")])
    #expect(all.names == ["in/a.jpg", "in/b.HEIC", "in/sub/d.webp"])
    #expect(
      all.skipped == [
        "in/.e.jpg: hidden", "in/c.txt: notAPicture", "in/noending: notAPicture", "in/sub/f.jpg.part: notAPicture",
      ])
    #expect(try tree.walk([.directory("in/", recursive: false)]).names == ["in/a.jpg", "in/b.HEIC"])
    #expect(try tree.walk([.directory("in", extensions: ["TXT"])]).names == ["in/c.txt"])
    #expect(
      try tree.walk([.directory("in", all: true)]).names
        == ["in/a.jpg", "in/b.HEIC", "in/c.txt", "in/noending", "in/sub/d.webp", "in/sub/f.jpg.part"])
  }

  @Test func directoryErrors() throws {
    let tree = try TemporaryTree()
    try tree.files("photos/a.txt", "file.jpg")
    func codes(_ path: String, allowEmpty: Bool = false) throws -> [InputProblem.Code] {
      try problems { try tree.walk([.directory(path, allowEmpty: allowEmpty)]) }.map(\.code)
    }
    #expect(try codes("photos") == [.empty])
    #expect(try codes("photos", allowEmpty: true) == [])
    #expect(try codes("photo", allowEmpty: true) == [.missing])
    #expect(try codes("file.jpg") == [.wrongKind])
    #expect(try codes("") == [.missing])
    let found = try problems { try tree.walk([.directory("photos")]) }
    #expect(found.first?.message == "there are no pictures in photos or below it")
    #expect(found.first?.hint == "passed over: 1 not a picture by its ending")
  }

  // MARK: Bounds

  /// A hundred thousand paths: what is held is the folders on the way and the names in one of them.
  ///
  /// The thousand folders are links to one, which patterns without `**` enter each time.
  @Test func aWalkHoldsOneFolderPerLevel() throws {
    let tree = try TemporaryTree()
    try tree.folder("store")
    try tree.hardLinks((0..<100).map { "store/\($0).jpg" })
    for outer in 0..<10 {
      try tree.folder(PathBytes("in/\(outer)"))
      for inner in 0..<100 { try tree.link(PathBytes("in/\(outer)/\(inner)"), to: "../../store") }
    }
    let cursor = InputWalker([.files(["in/*/*/*.jpg", "in/*/*/{1,2}*.jpg", "in/0/*/*"])], base: tree.root).cursor()
    var count = 0
    var disordered = 0
    var previous = PathBytes("")
    while let item = try cursor.next() {
      if previous >= item.path { disordered += 1 }
      previous = item.path
      if count.isMultiple(of: 9_973) { #expect(openDescriptors(below: tree.root) == 0) }
      count += 1
    }
    #expect(count == 100_000)
    #expect(disordered == 0)
    // The way to the tree, 10 folders, 100 folders, 100 files.
    #expect(cursor.mostNamesHeld <= tree.root.components.count + 211)
  }

  @Test func aWalkThroughFoldersBelowHoldsAsLittle() throws {
    let tree = try TemporaryTree()
    for outer in 0..<10 {
      for inner in 0..<10 {
        try tree.folder(PathBytes("in/\(outer)/\(inner)"))
        try tree.hardLinks((0..<10).map { "in/\(outer)/\(inner)/\($0).jpg" })
      }
    }
    let cursor = InputWalker([.files(["in/**/*.jpg", "**/1/*", "in/{1,2}/**/*"])], base: tree.root).cursor()
    var count = 0
    while try cursor.next() != nil { count += 1 }
    #expect(count == 1_000)
    #expect(cursor.mostNamesHeld <= tree.root.components.count + 31)
  }

  @Test func thousandsOfPlainPaths() throws {
    let tree = try TemporaryTree()
    let names = (0..<3_000).map { "\($0).jpg" }
    try tree.hardLinks(names)
    let found = try tree.walk([.files(names.reversed() + ["*9.jpg"])])
    #expect(found.names.count == 3_000)
    #expect(found.names == found.names.sorted { Array($0.utf8).lexicographicallyPrecedes(Array($1.utf8)) })
  }

  @Test func walksAreTheSameEveryTime() throws {
    let tree = try TemporaryTree()
    try tree.files("b/2.jpg", "a/1.jpg", "c.jpg")
    let walker = InputWalker([.directory(".")], base: tree.root)
    func names() throws -> [PathBytes] {
      var result: [PathBytes] = []
      try walker.forEach { result.append($0.path) }
      return result
    }
    #expect(try names() == [tree["a/1.jpg"], tree["b/2.jpg"], tree["c.jpg"]])
    #expect(try names() == names())
  }

  @Test func skipsAreCountedWithExamples() throws {
    let tree = try TemporaryTree()
    for index in 0..<50 { try tree.file(PathBytes("\(index).txt")) }
    try tree.files("a.jpg", ".b.jpg")
    var tally = SkipTally(examples: 3)
    try InputWalker([.directory(".")], base: tree.root).forEach(onSkip: { tally.add($0) }) { _ in }
    #expect(tally.counts == [.hidden: 1, .notAPicture: 50])
    #expect(tally.examples[.notAPicture]?.count == 3)
    #expect(tally.summary == "1 hidden, 50 not a picture by its ending")
    #expect(tally.problems == 0)
  }
}

/// How many of this process's descriptors are open on `folder` or below it.
private func openDescriptors(below folder: PathBytes) -> Int {
  (0..<1_024).count { descriptor in
    withCPath(Array("/proc/self/fd/\(descriptor)".utf8)) { pointer in
      guard let target = realpath(pointer, nil) else { return false }
      defer { free(target) }
      return PathBytes(UnsafeRawBufferPointer(start: target, count: strlen(target))).isInside(folder)
    }
  }
}
