import Glibc
import PipelineKit
import TestSupport
import Testing

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

  @Test func keepsWhatIsThere() throws {
    #expect(try write("one", "a", existing: .keep))
    #expect(try write("two", "a", existing: .keep) == false)
    #expect(folder.read("a") == Array("one".utf8))
    #expect(folder.tree() == ["a"])
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
      pthread_create(&thread, nil, { raw in
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
