import CSystem
import Glibc
import Synchronization

/// A folder in the one for temporary files that nobody else can look into, for folders of one picture each.
///
/// It is locked while its process lives; the next one that makes such a folder removes those of processes that are no
/// more.
public final class PrivateFolder: Sendable {
  public let path: PathBytes
  private let prefix: String
  private let parent: PathBytes
  private let lock: Mutex<Int32>
  private let counter = Atomic<Int>(0)

  private static let markName = ".pipeline"

  /// - Parameters:
  ///   - prefix: what the folder's name begins with.
  ///   - parent: the folder it is made in.
  /// - Throws: `temporary-folder` of class environment.
  public init(_ prefix: String, in parent: PathBytes = PrivateFolder.parent) throws(StageError) {
    Self.removeStale(prefix, in: parent)
    var found: (path: PathBytes, descriptor: Int32)?
    // Another process may take one that is not locked yet for a stale one, and remove it.
    for _ in 0..<100 where found == nil {
      guard let path = Self.made(prefix, in: parent) else { break }
      found = Self.locked(path).map { (path, $0) }
    }
    guard let found else {
      throw StageError(
        "temporary-folder", "no folder for temporary files can be made in \(parent.printable)", kind: .environment,
        cause: String(cString: strerror(errno)), hint: "set TMPDIR to a folder that can be written to")
    }
    (self.prefix, self.parent, path) = (prefix, parent, found.path)
    lock = Mutex(found.descriptor)
  }

  private static func made(_ prefix: String, in parent: PathBytes) -> PathBytes? {
    var template = parent.joining("\(prefix)-XXXXXX").bytes.map { CChar(bitPattern: $0) } + [0]
    let isMade = template.withUnsafeMutableBufferPointer { buffer in
      buffer.baseAddress.map { mkdtemp($0) != nil } ?? false
    }
    return isMade ? PathBytes(bytes: template.dropLast().map { UInt8(bitPattern: $0) }) : nil
  }

  /// The descriptor of a folder that is locked and still there.
  private static func locked(_ path: PathBytes) -> Int32? {
    let descriptor = path.withCString { open($0, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
    guard descriptor >= 0 else { return nil }
    var (held, there) = (stat(), stat())
    // A file system without locks has no stale folders removed either.
    let isLocked = flock(descriptor, LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK
    // By this a stale one is told from a folder of somebody's with such a name.
    let mark = path.joining(markName).withCString { Glibc.open($0, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600) }
    if mark >= 0 { _ = Glibc.close(mark) }
    if isLocked, mark >= 0, fstat(descriptor, &held) == 0, path.withCString({ stat($0, &there) }) == 0,
      held.st_ino == there.st_ino
    {
      return descriptor
    }
    _ = Glibc.close(descriptor)
    return nil
  }

  deinit { close() }

  /// Where temporary files go.
  public static var parent: PathBytes {
    guard let text = getenv("TMPDIR"), text[0] == CChar(UInt8(ascii: "/")) else { return "/tmp" }
    return PathBytes(String(cString: text))
  }

  /// Makes a folder in it.
  ///
  /// - Throws: `temporary-folder`, as when the disk is full.
  public func make() throws(StageError) -> PathBytes {
    let folder = path.joining("\(counter.add(1, ordering: .relaxed).newValue)")
    guard folder.withCString({ mkdir($0, 0o700) }) == 0 else {
      throw StageError(
        "temporary-folder", "no folder can be made in \(path.printable)", kind: .temporary,
        cause: String(cString: strerror(errno)), hint: "free some space there, or set TMPDIR to another folder")
    }
    return folder
  }

  /// Removes a folder with all that is in it.
  public func remove(_ folder: PathBytes) { _ = folder.withCString { csystem_remove_tree($0) } }

  /// Removes the whole folder; once.
  public func close() {
    let descriptor = lock.withLock { lock in
      defer { lock = -1 }
      return lock
    }
    guard descriptor >= 0 else { return }
    remove(path)
    _ = Glibc.close(descriptor)
    // Those of children that have crashed meanwhile.
    Self.removeStale(prefix, in: parent)
  }

  private static func removeStale(_ prefix: String, in parent: PathBytes) {
    guard let listing = parent.withCString({ opendir($0) }) else { return }
    defer { closedir(listing) }
    let beginning = Array("\(prefix)-".utf8)
    while let entry = readdir(listing) {
      let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
      guard name.count == beginning.count + 6, name.starts(with: beginning) else { continue }
      let path = parent.joining(PathBytes(bytes: name))
      let descriptor = path.withCString { open($0, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) }
      guard descriptor >= 0 else { continue }
      defer { _ = Glibc.close(descriptor) }
      var status = stat()
      guard fstat(descriptor, &status) == 0, status.st_uid == geteuid(), status.st_mode & 0o777 == 0o700,
        path.joining(markName).withCString({ access($0, F_OK) }) == 0, flock(descriptor, LOCK_EX | LOCK_NB) == 0
      else { continue }
      _ = path.withCString { csystem_remove_tree($0) }
    }
  }
}
