import Glibc
import TestSupport
import Testing

@testable import PipelineKit

@Suite struct AtomicFileTests {
  private let folder = TemporaryFolder()

  private func write(
    _ text: String, _ name: String, existing: AtomicFile.Existing = .replace,
    check: (PathBytes) throws(StageError) -> Void = { _ in }
  ) throws(StageError) -> Bool {
    let bytes = Array(text.utf8)
    let result: Result<Bool, StageError> = bytes.withUnsafeBytes { bytes in
      do throws(StageError) {
        return .success(
          try AtomicFile.write(bytes, to: PathBytes(folder[name]), existing: existing, tag: "t", check: check))
      } catch {
        return .failure(error)
      }
    }
    return try result.get()
  }

  @Test func writesAndReplaces() throws {
    #expect(try write("one", "a"))
    #expect(try write("two", "a"))
    #expect(folder.read("a") == Array("two".utf8))
    #expect(folder.tree() == ["a"])
  }

  /// A program that has taken the place of one that crashed counts from one again.
  @Test func namesThatAreTakenArePassedOver() throws {
    for number in 1...2_000 { folder.write("old", to: ".pipeline-t-\(number).tmp") }
    #expect(try write("new", "a"))
    #expect(folder.read("a") == Array("new".utf8))
    #expect(folder.tree().count == 2_001)
  }

  @Test func keepsWhatIsThere() throws {
    #expect(try write("one", "a", existing: .keep))
    #expect(try write("two", "a", existing: .keep) == false)
    #expect(folder.read("a") == Array("one".utf8))
    #expect(folder.tree() == ["a"])
  }

  /// Where the kernel has no rename that refuses a taken name, a hard link stands in.
  @Test(arguments: [EINVAL, ENOSYS])
  func keepsWithoutTheKernelsRename(answer: Int32) {
    func rename(_ from: String, _ to: String) -> Int32 {
      AtomicFile.renameUnlessTaken(folder[from], folder[to], renameNew: { _, _ in answer })
    }
    folder.write("one", to: "t1")
    folder.write("two", to: "t2")
    #expect(rename("t1", "a") == 0)
    #expect(folder.tree() == ["a", "t2"])
    #expect(rename("t2", "a") == EEXIST)
    #expect(folder.read("a") == Array("one".utf8))
    #expect(folder.tree() == ["a", "t2"])
  }

  /// Other answers are final: no link is tried.
  @Test func theKernelsRefusalStands() {
    folder.write("one", to: "t")
    #expect(AtomicFile.renameUnlessTaken(folder["t"], folder["a"], renameNew: { _, _ in EROFS }) == EROFS)
    #expect(folder.tree() == ["t"])
  }

  /// The kernel's own rename is what is used: it keeps one name for the file at every moment, where a link has two.
  @Test func usesTheKernelsRename() throws {
    folder.write("one", to: "t")
    folder.write("two", to: "taken")
    #expect(AtomicFile.renameUnlessTaken(folder["t"], folder["taken"]) == EEXIST)
    #expect(AtomicFile.renameUnlessTaken(folder["t"], folder["a"]) == 0)
    #expect(AtomicFile.renameUnlessTaken(folder["t"], folder["b"]) == ENOENT)
    #expect(folder.tree() == ["a", "taken"])
  }

  private typealias SetUser = @convention(c) (uid_t) -> Int32
  /// Changes one thread's rights, as root only.
  private static let setFileUser = dlsym(nil, "setfsuid").map { unsafeBitCast($0, to: SetUser.self) }

  @Test(.enabled(if: geteuid() == 0 && setFileUser != nil, "needs root"))
  func aFolderThatMayBeWrittenToButNotRead() throws {
    let setUser = try #require(Self.setFileUser)
    chmod(folder.path, 0o711)
    folder.makeFolder("drop")
    chown(folder["drop"], 65534, 65534)
    chmod(folder["drop"], 0o300)
    let drop = PathBytes(folder["drop"])
    Thread.run {
      _ = setUser(65534)
      defer { _ = setUser(0) }
      let reading = drop.withCString { open($0, O_RDONLY) }
      #expect(reading < 0, "the test's own folder must be closed to its user")
      do throws(StageError) {
        for existing in [AtomicFile.Existing.replace, .keep] {
          let bytes = Array("x".utf8)
          let result: Result<Bool, StageError> = bytes.withUnsafeBytes { bytes in
            do throws(StageError) {
              return .success(
                try AtomicFile.write(bytes, to: drop.joining("\(existing)"), existing: existing, tag: "t"))
            } catch {
              return .failure(error)
            }
          }
          #expect(try result.get())
        }
        try AtomicFile.makeFolders(drop.joining("new"))
      } catch {
        Issue.record("\(error)")
      }
    }
    #expect(folder.tree() == ["drop/", "drop/keep", "drop/new/", "drop/replace"])
  }

  /// The file is whole when it is checked, has no name yet, and a refusal leaves the old file and nothing else.
  @Test func aFailedCheckLeavesTheOldFile() throws {
    #expect(try write("old", "a"))
    #expect(throws: StageError.self) {
      _ = try write("new", "a") { temporary throws(StageError) in
        #expect(TemporaryFolder.read(temporary.display) == Array("new".utf8))
        throw StageError("output-verify", "no")
      }
    }
    #expect(folder.read("a") == Array("old".utf8))
    #expect(folder.tree() == ["a"])
  }

  @Test func replacesALinkInsteadOfFollowingIt() throws {
    folder.write("target", to: "t")
    symlink("t", folder["a"])
    #expect(try write("new", "a"))
    #expect(folder.read("t") == Array("target".utf8))
    #expect(folder.read("a") == Array("new".utf8))
  }

  @Test func aFolderInTheWay() {
    folder.makeFolder("a")
    #expect(throws: StageError.self) { _ = try write("x", "a") }
    #expect(folder.tree() == ["a/"])
  }

  @Test func aMissingFolder() {
    let error = #expect(throws: StageError.self) { _ = try write("x", "no/a") }
    #expect(error?.message.contains(folder["no"]) == true)
  }

  @Test func makesFoldersAndNamesAFileInTheWay() throws {
    try AtomicFile.makeFolders(PathBytes(folder["x/y/z"]))
    try AtomicFile.makeFolders(PathBytes(folder["x/y/z"]))
    #expect(folder.tree() == ["x/", "x/y/", "x/y/z/"])
    folder.write("f", to: "file")
    let error = #expect(throws: StageError.self) { try AtomicFile.makeFolders(PathBytes(folder["file/z"])) }
    #expect(error?.message.contains(folder["file"]) == true)
  }

  @Test func aNameThatIsTooLong() {
    let error = #expect(throws: StageError.self) { _ = try write("x", String(repeating: "n", count: 300)) }
    #expect(error?.code == "output-name-too-long")
    #expect(folder.tree() == [])
  }

  @Test func manyThreadsOneFolder() throws {
    let files = (0..<200).map { "f\($0)" }
    let folder = folder
    let workers = files.map { name in
      var thread = pthread_t()
      let box = Unmanaged.passRetained(Box(folder[name]))
      pthread_create(
        &thread, nil,
        { raw in
          let path = Unmanaged<Box>.fromOpaque(raw!).takeRetainedValue().path
          let bytes = Array(path.utf8)
          bytes.withUnsafeBytes { _ = try? AtomicFile.write($0, to: PathBytes(path), tag: "t") }
          return nil
        }, box.toOpaque())
      return thread
    }
    for worker in workers { pthread_join(worker, nil) }
    #expect(folder.tree() == files.sorted())
    #expect(files.allSatisfy { folder.read($0) == Array(folder[$0].utf8) })
  }

  private final class Box {
    let path: String
    init(_ path: String) { self.path = path }
  }
}
