import Glibc

/// A folder of a test's own, removed with everything in it when the value goes.
public final class TemporaryFolder: Sendable {
  /// Absolute, without a closing slash.
  public let path: String

  public init() {
    var template = Array("/tmp/pipeline-test-XXXXXX".utf8CString)
    path = template.withUnsafeMutableBufferPointer { buffer in
      guard let base = buffer.baseAddress, let made = mkdtemp(base) else {
        fatalError("no temporary folder could be made: \(String(cString: strerror(errno)))")
      }
      return String(cString: made)
    }
  }

  deinit { Self.remove(path) }

  /// The absolute path of a name below the folder.
  public subscript(_ name: String) -> String { path + "/" + name }

  /// Writes a file, making the folders above it.
  @discardableResult
  public func write(_ bytes: some Sequence<UInt8>, to name: String) -> String {
    let target = self[name]
    makeFolder(above: name)
    let bytes = Array(bytes)
    let descriptor = open(target, O_WRONLY | O_CREAT | O_TRUNC, 0o644)
    precondition(descriptor >= 0, "cannot write \(target)")
    defer { close(descriptor) }
    var offset = 0
    while offset < bytes.count {
      let count = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress! + offset, bytes.count - offset) }
      precondition(count > 0, "cannot write \(target)")
      offset += count
    }
    return target
  }

  @discardableResult
  public func write(_ text: String, to name: String) -> String { write(Array(text.utf8), to: name) }

  public func makeFolder(_ name: String) {
    var path = self.path
    for part in name.split(separator: "/") {
      path += "/" + part
      mkdir(path, 0o755)
    }
  }

  private func makeFolder(above name: String) {
    guard let slash = name.lastIndex(of: "/") else { return }
    makeFolder(String(name[..<slash]))
  }

  /// The whole of a file; nil where there is none.
  public func read(_ name: String) -> [UInt8]? { Self.read(self[name]) }

  public static func read(_ path: String) -> [UInt8]? {
    let descriptor = open(path, O_RDONLY)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var result: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 1 << 16)
    while true {
      let count = piece.withUnsafeMutableBytes { Glibc.read(descriptor, $0.baseAddress, $0.count) }
      guard count > 0 else { return result }
      result += piece[..<count]
    }
  }

  /// Every file below the folder, relative to it, sorted; folders end in a slash.
  public func tree() -> [String] { Self.list(path, prefix: "").sorted() }

  private static func list(_ path: String, prefix: String) -> [String] {
    guard let folder = opendir(path) else { return [] }
    defer { closedir(folder) }
    var names: [String] = []
    while let entry = readdir(folder) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) { pointer in
        pointer.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name == "." || name == ".." { continue }
      if entry.pointee.d_type == UInt8(DT_DIR) {
        names.append(prefix + name + "/")
        names += list(path + "/" + name, prefix: prefix + name + "/")
      } else {
        names.append(prefix + name)
      }
    }
    return names
  }

  /// Removes a file, or a folder with all that is in it.
  public func remove(_ name: String) {
    if unlink(self[name]) != 0 { Self.remove(self[name]) }
  }

  private static func remove(_ path: String) {
    guard let folder = opendir(path) else { return }
    // Bytes, not text: names need not be UTF-8.
    var children: [([CChar], isFolder: Bool)] = []
    while let entry = readdir(folder) {
      let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.bindMemory(to: CChar.self).prefix { $0 != 0 }) }
      if name == [46] || name == [46, 46] { continue }
      children.append((name + [0], entry.pointee.d_type == UInt8(DT_DIR)))
    }
    let descriptor = dirfd(folder)
    for (name, isFolder) in children {
      if isFolder {
        remove(path + "/" + String(decoding: name.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self))
        unlinkat(descriptor, name, AT_REMOVEDIR)
      } else {
        unlinkat(descriptor, name, 0)
      }
    }
    closedir(folder)
    rmdir(path)
  }
}
