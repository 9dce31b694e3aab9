import Glibc
import TestSupport
import Testing

@Suite struct DiskModelTests {
  private func model(_ changes: [CallTrace.Change], tree: [String: DiskModel.Node] = [:]) -> DiskModel {
    var model = DiskModel(tree)
    for call in CallTrace(changes).calls { model.apply(call) }
    return model
  }

  private func open(_ path: String, _ descriptor: Int = 3) -> CallTrace.Change {
    .open(path, descriptor: descriptor, mode: 0o666, creates: true, truncates: false, appends: false)
  }

  private func write(_ path: String, _ text: String, at offset: Int? = nil, _ descriptor: Int = 3) -> CallTrace.Change {
    .write(path, descriptor: descriptor, offset: offset, bytes: Array(text.utf8))
  }

  private func file(_ text: String, mode: mode_t = 0o644) -> DiskModel.Node { .file(Array(text.utf8), mode: mode) }

  private let worlds: [DiskModel.World] =
    [.onlyFlushed, .names, .contents, .everything] + (0..<40).map { .some(seed: $0) }

  @Test func anAtomicWriteIsThereWholeOrNotAtAll() {
    let calls = [
      open("a.tmp"), write("a.tmp", "new"), write("a.tmp", " text"), .flush("a.tmp"), .rename("a.tmp", to: "a"),
      .flush(""),
    ]
    for cut in 0...calls.count {
      let model = model(Array(calls[..<cut]), tree: ["a": file("old")])
      for world in worlds {
        let found = model.survivors(in: world)["a"]
        #expect(found == file("old") || found == file("new text"), "\(cut) \(world)")
        if cut == calls.count { #expect(found == file("new text")) }
        if cut < 5 { #expect(found == file("old")) }
      }
    }
  }

  /// The classic fault is found: a rename that reaches the disk before the contents do.
  @Test func aRenameWithoutAFlushLosesContents() {
    let model = model(
      [open("a.tmp"), write("a.tmp", "new"), .rename("a.tmp", to: "a"), .flush("")], tree: ["a": file("old")])
    #expect(model.survivors(in: .onlyFlushed) == ["a": file("")])
    #expect(model.survivors(in: .everything) == ["a": file("new")])
    let some = Set((0..<40).map { model.survivors(in: .some(seed: $0))["a"] })
    #expect(some.contains(file("")) && some.contains(file("new")))
  }

  @Test func aNameNeedsItsFolderFlushed() {
    let calls = [open("a"), write("a", "x"), CallTrace.Change.flush("a")]
    #expect(model(calls).survivors(in: .onlyFlushed).isEmpty)
    #expect(model(calls).survivors(in: .names) == ["a": file("x")])
    #expect(model(calls + [.flush("")]).survivors(in: .onlyFlushed) == ["a": file("x")])
  }

  @Test func whatIsInALostFolderIsLost() {
    let calls = [
      .makeFolder("out", mode: 0o777), open("out/a"), write("out/a", "x"), .flush("out/a"),
      CallTrace.Change.flush("out"),
    ]
    #expect(model(calls).survivors(in: .onlyFlushed).isEmpty)
    #expect(
      model(calls + [.flush("")]).survivors(in: .onlyFlushed) == ["out": .folder(mode: 0o755), "out/a": file("x")])
  }

  @Test func aFlushAnswersForWhatHadEndedWhenItBegan() {
    var calls = CallTrace([open("a"), .flush(""), write("a", "one"), write("a", " two"), .flush("a")]).calls
    // It began before the second write had ended.
    calls[4].began = 3
    var model = DiskModel()
    for call in calls { model.apply(call) }
    #expect(model.survivors(in: .onlyFlushed) == ["a": file("one")])
    #expect(model.survivors(in: .everything) == ["a": file("one two")])
  }

  @Test func positionsAppendsAndSizes() {
    let model = model([
      open("a"), write("a", "abcdef"), .seek("a", descriptor: 3, to: 2), write("a", "X"), write("a", "YZ", at: 8),
      .resize("a", to: 9),
      .open("a", descriptor: 4, mode: 0, creates: false, truncates: false, appends: true), write("a", "!", 4),
      .open("b", descriptor: 4, mode: 0o600, creates: true, truncates: true, appends: false), .link("b", to: "c"),
      .remove("b"),
    ])
    #expect(
      model.survivors(in: .everything) == ["a": file("abXdef\0\0Y!"), "c": .file([], mode: 0o600)])
  }

  @Test func pagesSurviveEachByItself() {
    let pages = (0..<8).map { page in
      write("a", String(repeating: "\(page)", count: 4_096), at: page * 4_096)
    }
    let model = model([open("a"), .flush("")] + pages)
    var found: Set<Set<UInt8>> = []
    for seed in 0..<60 {
      guard case .file(let bytes, _) = model.survivors(in: .some(seed: UInt64(seed)))["a"] else { continue }
      found.insert(Set(bytes))
      // What did not reach the disk is zeros.
      for (index, byte) in bytes.enumerated() { #expect(byte == 0 || byte == 48 + UInt8(index / 4_096)) }
    }
    #expect(found.count > 10)
  }

  @Test func aFolderBecomesWhatIsWanted() {
    let folder = TemporaryFolder()
    folder.write("same", to: "in/a")
    folder.write("old", to: "gone/deep/b")
    folder.write("old", to: "c")
    var status = stat()
    stat(folder["in/a"], &status)
    let number = status.st_ino
    let wanted: [String: DiskModel.Node] = [
      "in": .folder(mode: 0o755), "in/a": file("same"), "c": file("new", mode: 0o600), "d": .folder(mode: 0o700),
      "d/e": file("deep"),
    ]
    folder.become(wanted)
    #expect(folder.contents() == wanted)
    stat(folder["in/a"], &status)
    #expect(status.st_ino == number)
  }
}

@Suite(.enabled(if: CallTrace.program != nil, "strace is not installed, or may not look into programs here"))
struct CallTraceTests {
  /// What a shell does to files, traced and done again in the model, leaves what is on the disk.
  @Test func theModelEndsWhereTheDiskDoes() throws {
    let folder = TemporaryFolder()
    let traces = TemporaryFolder()
    folder.write("there", to: "old file")
    let beginning = folder.contents()
    let script = """
      umask 022; mkdir sub; echo one > sub/a; echo two >> sub/a; mv sub/a "sub/b c"; ln sub/"b c" d; rm "old file"
      (echo three > sub/e) & wait
      head -c 100000 /dev/zero > big; truncate -s 70000 big; dd if=/dev/zero of=big bs=1 seek=5 count=3 conv=notrunc
      chmod 600 big; mkdir gone; rmdir gone; printf 'ü"\\\\,=)' > "sub/ü, (=)"
      """
    var settings = RunProgram.Settings()
    settings.folder = folder.path
    let result = RunProgram.run(
      CallTrace.arguments(to: traces["trace"]) + ["/bin/sh", "-c", script], settings, program: CallTrace.program)
    try #require(result.exitCode == 0, "\(result.error)")
    let trace = try CallTrace(try #require(traces.read("trace")), below: folder.path, current: folder.path)
    var model = DiskModel(beginning)
    for call in trace.calls { model.apply(call) }
    #expect(model.survivors(in: .everything) == folder.contents())
  }

  @Test func whatWasInterruptedIsPutTogether() throws {
    func hex(_ text: String) -> String {
      text.utf8.map { "\\x" + ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }
    let text = """
      10  write(3<\(hex("/w/a"))>, "\(hex("abc"))", 3 <unfinished ...>
      11  fsync(3<\(hex("/w/a"))> <unfinished ...>
      10  <... write resumed>) = 2
      10  unlink("\(hex("/w/none"))") = -1 ENOENT (No such file or directory)
      10  rename("\(hex("/elsewhere/a"))", "\(hex("/elsewhere/b"))") = 0
      11  <... fsync resumed>)              = 0
      10  write(3<\(hex("/w/a"))>(deleted), "\(hex("abc"))", 3) = 3
      11  +++ exited with 0 +++
      """
    let trace = try CallTrace(Array(text.utf8), below: "/w", current: "/w")
    #expect(
      trace.calls.map(\.change) == [.write("a", descriptor: 3, offset: nil, bytes: Array("ab".utf8)), .flush("a")])
    #expect(trace.calls.map(\.began) == [0, 0])
    let crossing = "10  rename(\"\(hex("/w/a"))\", \"\(hex("/b"))\") = 0\n"
    #expect(throws: CallTrace.Unreadable.self) {
      try CallTrace(Array(crossing.utf8), below: "/w", current: "/w")
    }
  }
}
