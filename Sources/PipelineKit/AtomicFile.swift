import CSystem
import Glibc
import Synchronization

/// Writes files so that a reader, a kill or a power cut sees the old file, the new one, or none: never a part.
///
/// Order: temporary name in the same folder, write, fsync, rename, fsync of the folder. A run that has sealed its
/// temporary files sees no new one, and none of them gets its name afterwards.
public enum AtomicFile {
  /// What to do where the path exists.
  public enum Existing: Sendable { case replace, keep }

  private static let counter = Atomic<Int>(0)

  /// Writes bytes to a path.
  ///
  /// - Parameters:
  ///   - tag: goes into the temporary name, so that leftovers tell whose they are.
  ///   - temporaries: knows the temporary file while it exists.
  ///   - check: reads the temporary file before it gets its name; what it throws leaves nothing behind.
  ///   - mode: the file's permissions, whatever the umask; nil for 0666 less the umask.
  ///   - isDurable: whether it is on the disk when this returns; a power cut may leave any part of one that is not.
  ///   - path: where they go; its folder must be there.
  ///   - bytes: the whole content.
  ///   - existing: what to do where the path exists.
  /// - Returns: false where `existing` is `keep` and the path was there already.
  /// - Throws: `output-*` errors of class item, with the system's words; `cancelled` once `temporaries` is sealed.
  public static func write(
    _ bytes: UnsafeRawBufferPointer, to path: PathBytes, existing: Existing = .replace, tag: String,
    temporaries: TemporaryFiles? = nil, mode: mode_t? = nil, isDurable: Bool = true,
    check: (_ temporary: PathBytes) throws(StageError) -> Void = { _ in }
  ) throws(StageError) -> Bool {
    let folder = path.parent
    // A rename would put a file in the place of a device for good, and of the link to one.
    var status = stat()
    if path.withCString({ stat($0, &status) }) == 0, status.st_mode & S_IFMT != S_IFDIR,
      let refusal = OutputPath.refusal(of: path, standing: status.st_mode & S_IFMT)
    {
      throw refusal
    }
    func step<R>(_ body: () -> R) throws(StageError) -> R {
      guard let temporaries else { return body() }
      guard let result = temporaries.step(body) else { throw cancelled(path) }
      return result
    }
    func nextName() -> PathBytes {
      folder.joining(".pipeline-\(tag)-\(counter.add(1, ordering: .relaxed).newValue).tmp")
    }
    var temporary = nextName()
    var exists = false
    defer {
      if exists { _ = temporary.withCString { unlink($0) } }
      temporaries?.remove(temporary)
    }
    func make() throws(StageError) -> (descriptor: Int32, code: Int32) {
      guard temporaries?.insert(temporary) ?? true else { throw cancelled(path) }
      return try step {
        let descriptor = temporary.withCString {
          open($0, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode.map { $0 & 0o600 } ?? 0o666)
        }
        return (descriptor, errno)
      }
    }
    var (descriptor, code) = try make()
    // What an earlier life of this same process has left may have the name: the counter starts anew in each.
    while descriptor < 0, code == EEXIST {
      temporaries?.remove(temporary)
      temporary = nextName()
      (descriptor, code) = try make()
    }
    guard descriptor >= 0 else { throw failure("cannot write in \(folder.printable)", code) }
    exists = true
    var isOpen = true
    defer { if isOpen { close(descriptor) } }
    var rest = bytes
    while !rest.isEmpty {
      let written = Glibc.write(descriptor, rest.baseAddress, rest.count)
      if written < 0 {
        if errno == EINTR { continue }
        throw failure("cannot write \(path.printable)", errno)
      }
      rest = UnsafeRawBufferPointer(rebasing: rest[written...])
    }
    if let mode, fchmod(descriptor, mode) != 0 {
      throw failure("cannot give \(path.printable) the mode 0\(String(mode, radix: 8))", errno)
    }
    if isDurable, fsync(descriptor) != 0 { throw failure("cannot flush \(path.printable) to the disk", errno) }
    isOpen = false
    // Some network file systems tell only here that the data did not fit.
    guard close(descriptor) == 0 else { throw failure("cannot write \(path.printable)", errno) }
    try check(temporary)
    temporaries?.willName(temporary, path, isNew: existing == .keep || Self.isFree(path))
    let problem = try step {
      temporary.withCString { from in
        path.withCString { to in
          switch existing {
          case .replace: rename(from, to) == 0 ? 0 : errno
          case .keep: renameUnlessTaken(from, to)
          }
        }
      }
    }
    if existing == .keep, problem == EEXIST { return false }
    guard problem == 0 else { throw failure("cannot put \(path.printable) in place", problem) }
    exists = false
    if isDurable { try flush(folder: folder) }
    return true
  }

  private static func isFree(_ path: PathBytes) -> Bool {
    var status = stat()
    return path.withCString { lstat($0, &status) } != 0 && errno == ENOENT
  }

  /// Renames a file unless the new name is taken; 0 or an error number, of which EEXIST is that.
  public static func renameUnlessTaken(_ from: PathBytes, _ to: PathBytes) -> Int32 {
    from.withCString { from in to.withCString { renameUnlessTaken(from, $0) } }
  }

  /// Renames a file unless the new name is taken; 0 or an error number.
  ///
  /// - Parameter renameNew: the kernel's way, which answers EINVAL or ENOSYS where it is not to be had.
  static func renameUnlessTaken(
    _ from: UnsafePointer<CChar>, _ to: UnsafePointer<CChar>,
    renameNew: (UnsafePointer<CChar>, UnsafePointer<CChar>) -> Int32 = { csystem_rename_new($0, $1) }
  ) -> Int32 {
    let problem = renameNew(from, to)
    guard problem == EINVAL || problem == ENOSYS else { return problem }
    // A hard link refuses a taken name too. It is the second choice: FAT and many network shares have none.
    guard link(from, to) == 0 else { return errno }
    unlink(from)
    return 0
  }

  private static func cancelled(_ path: PathBytes) -> StageError {
    StageError("cancelled", "the picture was given up before \(path.printable) was in place")
  }

  /// Flushes a folder's entries to the disk, as far as it may be opened: one that may be written to and not read can't
  /// be flushed by itself.
  public static func flush(folder: PathBytes) throws(StageError) {
    let descriptor = folder.withCString { open($0, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
    guard descriptor >= 0 else {
      if errno == EACCES { return }
      throw failure("cannot open the folder \(folder.printable)", errno)
    }
    defer { close(descriptor) }
    // Some file systems cannot flush a folder and say so with EINVAL.
    guard fsync(descriptor) == 0 || errno == EINVAL else {
      throw failure("cannot flush the folder \(folder.printable) to the disk", errno)
    }
  }

  /// Folders whose own entry this process has seen reach the disk; so many of them at most.
  private static let flushedFolders = Mutex<Set<PathBytes>>([])
  private static let mostFlushedFolders = 4_096

  /// Makes a folder and those above it, as far as they are missing, and flushes the entries made.
  ///
  /// A folder that is there may have been made a moment ago, by another worker or by a run that was killed, and its
  /// entry not be on the disk: it is flushed once in any case.
  ///
  /// - Parameters:
  ///   - mode: permissions of the folders made, whatever the umask; nil for 0777 less the umask.
  ///   - folder: the folder; absolute.
  public static func makeFolders(_ folder: PathBytes, mode: mode_t? = nil) throws(StageError) {
    var status = stat()
    if folder.withCString({ stat($0, &status) }) == 0 {
      guard status.st_mode & S_IFMT == S_IFDIR else {
        throw StageError("output-folder", "\(folder.printable) is a file where a folder is needed")
      }
      try flush(entryOf: folder)
      return
    }
    guard errno == ENOENT else { throw failure("cannot use the folder \(folder.printable)", errno) }
    let parent = folder.parent
    if parent != folder { try makeFolders(parent, mode: mode) }
    // Another worker may make it at the same moment.
    if folder.withCString({ mkdir($0, mode ?? 0o777) }) != 0 {
      guard errno == EEXIST else { throw failure("cannot make the folder \(folder.printable)", errno) }
    } else if let mode, folder.withCString({ chmod($0, mode) }) != 0 {
      throw failure("cannot give the folder \(folder.printable) the mode 0\(String(mode, radix: 8))", errno)
    }
    flushedFolders.withLock { _ = $0.remove(folder) }
    try flush(entryOf: folder)
  }

  private static func flush(entryOf folder: PathBytes) throws(StageError) {
    guard !flushedFolders.withLock({ $0.contains(folder) }) else { return }
    try flush(folder: folder.parent)
    flushedFolders.withLock { folders in
      if folders.count >= mostFlushedFolders { folders.removeAll() }
      folders.insert(folder)
    }
  }

  /// An error with the system's words and a code of its own for the causes that people can mend.
  static func failure(_ what: String, _ number: Int32) -> StageError {
    let words = String(cString: strerror(number))
    switch number {
    case ENOSPC, EDQUOT:
      return StageError(
        "output-disk-full", what + ": no space left", cause: words, hint: "free some space and run again")
    case EROFS:
      return StageError("output-read-only", what + ": the file system is read-only", cause: words)
    case EACCES, EPERM:
      return StageError("output-denied", what + ": permission denied", cause: words)
    case ENAMETOOLONG:
      return StageError("output-name-too-long", what + ": the name is too long for the file system", cause: words)
    default:
      return StageError("output-failed", what, cause: words)
    }
  }
}

extension PathBytes {
  /// The path as C has it, closed by a zero. Paths of this program hold no zero bytes: the readers of jobs and inputs
  /// refuse them.
  public func withCString<R>(_ body: (UnsafePointer<CChar>) -> R) -> R {
    var terminated = bytes.map { CChar(bitPattern: $0) }
    terminated.append(0)
    return terminated.withUnsafeBufferPointer { pointer in
      // A buffer with at least the closing zero has an address.
      body(pointer.baseAddress!)
    }
  }
}
