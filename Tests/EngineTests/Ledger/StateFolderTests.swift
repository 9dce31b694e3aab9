import Digest
import Glibc
import PipelineKit
import TestSupport
import Testing

@testable import Engine

@Suite struct StateFolderTests {
  private let temporary = TemporaryFolder()

  private func code(_ body: () throws -> Void) -> String? {
    do {
      try body()
      return nil
    } catch {
      return (error as? StageError)?.code
    }
  }

  private func mode(_ name: String) -> mode_t {
    var status = stat()
    return stat(temporary[name], &status) == 0 ? status.st_mode & 0o777 : 0
  }

  @Test func locatingTouchesNothing() {
    let folder = StateFolder.locate(PathBytes(temporary["a/./state"]), shard: (2, 10))
    #expect(folder.path.display == temporary["a/state"])
    #expect(folder.ledgerFolder.display == temporary["a/state/shard-2-of-10"])
    #expect(StateFolder.locate("/x").ledgerFolder == "/x")
    #expect(temporary.tree() == [])
  }

  /// Whatever the umask takes or leaves; it belongs to a process, so another one has it.
  @Test(arguments: ["000", "022", "077", "177"]) func onlyItsOwnerMayLook(_ mask: String) throws {
    temporary.makeFolder("jobs")
    let result = RunProgram.run(
      ["-c", "umask \(mask); exec \"$0\" ledger-make \"$1\"", FaultyProgram.path, temporary["jobs/state"]],
      program: "/bin/sh")
    #expect(result.exitCode == 0, "\(result.error)")
    let names = temporary.tree().filter { $0 != "jobs/" }
    // The folder, the shard's, Git's file, the lock, the database and what is beside it, and both results.
    #expect(names.count == 13, "\(names)")
    for name in names { #expect(mode(name) == (name.hasSuffix("/") ? 0o700 : 0o600), "\(name) under \(mask)") }
    #expect(temporary.read("jobs/state/.gitignore").map { String(decoding: $0, as: UTF8.self) } == "*\n")
  }

  @Test func theFoldersAboveAreMade() throws {
    let folder = StateFolder.locate(PathBytes(temporary["a/b/c"]))
    try folder.make()
    try folder.make()
    #expect(mode("a/b/c") == 0o700)
    #expect(mode("a") & 0o700 == 0o700)
  }

  @Test func whatCannotBeUsedIsRefused() throws {
    temporary.write("", to: "file")
    #expect(code { try StateFolder.locate(PathBytes(temporary["file"])).make() } == "state-folder")
    #expect(code { try StateFolder.locate(PathBytes(temporary["file/below"])).make() } == "state-folder")
    temporary.makeFolder("open")
    chmod(temporary["open"], 0o777)
    #expect(code { try StateFolder.locate(PathBytes(temporary["open"])).make() } == "state-folder")
    // One that somebody made is theirs to open to others.
    temporary.makeFolder("shared")
    chmod(temporary["shared"], 0o755)
    try StateFolder.locate(PathBytes(temporary["shared"])).make()
    #expect(mode("shared") == 0o755)
    #expect(code { try StateFolder.locate("/proc/pipeline-state").make() } == "state-folder")
  }

  @Test func fileSystemsAreTold() {
    #expect(StateFolder.locate("/proc/self/nothing/here").fileSystem.isNetwork == false)
    let here = StateFolder.locate(PathBytes(temporary["not/made"])).fileSystem
    #expect(here == StateFolder.locate(PathBytes(temporary.path)).fileSystem)
    for number: UInt32 in [0x6969, 0xFF53_4D42, 0xFE53_4D42, 0x6573_5546, 0x0BD0_0BD0, 0x4750_4653, 0x00C3_6400] {
      #expect(StateFolder.fileSystem(number).isNetwork)
    }
    for number: UInt32 in [0xEF53, 0x5846_5342, 0x0102_1994, 0x1234_5678] {
      #expect(!StateFolder.fileSystem(number).isNetwork)
    }
    #expect(StateFolder.fileSystem(0x1234_5678).name == "0x12345678")
  }

  @Test func stampsFollowLinksToFiles() throws {
    temporary.write("abc", to: "file")
    symlink("file", temporary["link"])
    symlink("nothing", temporary["dangling"])
    let stamp = try #require(FileStamp.of(PathBytes(temporary["file"])))
    #expect(stamp.size == 3)
    #expect(FileStamp.of(PathBytes(temporary["link"])) == stamp)
    #expect(FileStamp.of(PathBytes(temporary["dangling"])) == nil)
    #expect(FileStamp.of(PathBytes(temporary.path)) == nil)
    var times = [timespec(tv_sec: -1, tv_nsec: 5), timespec(tv_sec: -1, tv_nsec: 5)]
    utimensat(AT_FDCWD, temporary["file"], &times, 0)
    #expect(FileStamp.of(PathBytes(temporary["file"]))?.modified == -999_999_995)
  }
}
