import Glibc
import PipelineKit

@testable import Engine

/// A folder of its own for one test, removed at its end. Names are bytes.
final class TemporaryTree {
  let root: PathBytes

  init() throws {
    var template = Array("/tmp/pipeline-inputs-XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else { throw SystemError(code: errno) }
    let path = PathBytes(template.dropLast().map { UInt8(bitPattern: $0) })
    // The folder for temporary files may itself be behind a link.
    root = withCPath(path.bytes) { pointer in
      guard let real = realpath(pointer, nil) else { return path }
      defer { free(real) }
      return PathBytes(UnsafeRawBufferPointer(start: real, count: strlen(real)))
    }
  }

  deinit {
    Self.empty(withCPath(root.bytes) { open($0, O_RDONLY | O_DIRECTORY | O_CLOEXEC) })
    _ = withCPath(root.bytes) { rmdir($0) }
  }

  /// Removes what is in an open folder and closes it; by descriptors, as trees may be deeper than paths can say.
  private static func empty(_ folder: Int32) {
    guard folder >= 0, let stream = fdopendir(folder), let nameOffset = MemoryLayout<dirent>.offset(of: \.d_name)
    else { return }
    defer { closedir(stream) }
    while let entry = readdir(stream) {
      let name = (UnsafeRawPointer(entry) + nameOffset).assumingMemoryBound(to: CChar.self)
      if strcmp(name, ".") == 0 || strcmp(name, "..") == 0 { continue }
      guard unlinkat(folder, name, 0) != 0 else { continue }
      empty(openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC))
      unlinkat(folder, name, AT_REMOVEDIR)
    }
  }

  subscript(_ name: PathBytes) -> PathBytes { root.joining(name) }

  private func expect(_ answer: Int32) throws { if answer != 0 { throw SystemError(code: errno) } }

  func folder(_ name: PathBytes, mode: mode_t = 0o755) throws {
    var path: [UInt8] = root.bytes
    for component in name.components {
      path += [Byte.slash] + component
      let answer = withCPath(path) { mkdir($0, mode) }
      if answer != 0, errno != EEXIST { throw SystemError(code: errno) }
    }
  }

  /// Makes a file and the folders on its way.
  func file(_ name: PathBytes, _ content: some Sequence<UInt8> = []) throws {
    let parent = name.parent
    if parent != "." { try folder(parent) }
    let descriptor = withCPath(self[name].bytes) { open($0, O_WRONLY | O_CREAT | O_TRUNC, 0o644) }
    guard descriptor >= 0 else { throw SystemError(code: errno) }
    defer { close(descriptor) }
    let bytes = Array(content)
    guard write(descriptor, bytes, bytes.count) == bytes.count else { throw SystemError(code: errno) }
  }

  func file(_ name: PathBytes, _ text: String) throws { try file(name, Array(text.utf8)) }

  func files(_ names: String...) throws { for name in names { try file(PathBytes(name)) } }

  func link(_ name: PathBytes, to target: PathBytes) throws {
    try expect(withCPath(target.bytes) { target in withCPath(self[name].bytes) { symlink(target, $0) } })
  }

  /// Many names of one empty file: quick to make where many new files are not.
  func hardLinks(_ names: [String]) throws {
    guard let first = names.first else { return }
    try file(PathBytes(first))
    for name in names.dropFirst() {
      try expect(
        withCPath(self[PathBytes(first)].bytes) { old in withCPath(self[PathBytes(name)].bytes) { Glibc.link(old, $0) }
        })
    }
  }

  func node(_ name: PathBytes, _ kind: mode_t) throws {
    try expect(withCPath(self[name].bytes) { mknod($0, kind | 0o600, 0) })
  }

  func unlink(_ name: PathBytes) throws { try expect(withCPath(self[name].bytes) { Glibc.unlink($0) }) }

  // MARK: Walking

  /// What a walk gives, as paths below this folder and as `name: reason` lines.
  struct Walk: Equatable {
    var names: [String] = []
    var skipped: [String] = []
    var items: [InputItem] = []
    var folders: [String] { items.map(\.relativeDirectory.display) }
  }

  func walk(_ declarations: [InputDeclaration], base: PathBytes? = nil, standardInput: Int32 = 0) throws -> Walk {
    var result = Walk()
    let walker = InputWalker(declarations, base: base ?? root, standardInput: standardInput)
    var skipped: [String] = []
    let cursor = walker.cursor { skipped.append("\($0.path.relative(to: self.root).display): \($0.reason.rawValue)") }
    while let item = try cursor.next() {
      result.items.append(item)
      result.names.append(item.path.relative(to: root).display)
    }
    result.skipped = skipped
    return result
  }

  func glob(_ patterns: String..., allowEmpty: Bool = false) throws -> [String] {
    try walk([.files(patterns, allowEmpty: allowEmpty)]).names
  }
}

/// The problems that `body` throws; none where it throws nothing.
func problems(_ body: () throws -> some Any) throws -> [InputProblem] {
  do {
    _ = try body()
    return []
  } catch let error as InputError {
    return error.problems
  }
}

/// Runs `body` as a user who may not do everything, whoever runs the tests.
///
/// Linux has the user for file access per thread, so other tests don't notice.
func withoutPrivileges<T>(_ body: () throws -> T) throws -> T {
  guard geteuid() == 0 else { return try body() }
  // Glibc's module leaves this call out.
  guard let symbol = dlsym(nil, "setfsuid") else { throw SystemError(code: ENOSYS) }
  let setUser = unsafeBitCast(symbol, to: (@convention(c) (UInt32) -> Int32).self)
  _ = setUser(65_534)
  defer { _ = setUser(0) }
  return try body()
}
