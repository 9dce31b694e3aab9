import CSystem
import Digest
import Glibc
import PipelineKit

/// Moves or deletes a picture of which everything is done, and never another file that has come to bear its name.
enum ItemSource {
  /// What became of it.
  enum Fate: Sendable, Hashable {
    case moved(PathBytes)
    case deleted
    /// It is where it was, and why.
    case kept(String)
  }

  /// Deletes a file, or the link of that name, where it is still what was read.
  ///
  /// - Throws: `source-kept` with the system's words.
  static func delete(_ path: PathBytes, _ read: SourceFacts) throws(StageError) -> Fate {
    guard stamp(of: path, ifStill: read) != nil else { return .kept(changed) }
    guard path.withCString({ unlink($0) }) == 0 else { throw failure("\(path.printable) could not be deleted", errno) }
    try AtomicFile.flush(folder: path.parent)
    return .deleted
  }

  /// Gives a file, or the link of that name, another name, where it is still what was read. Nothing is replaced. On
  /// another file system it is copied, made durable and read again before the first is deleted.
  ///
  /// - Parameters:
  ///   - tag: goes into the name of a temporary file.
  /// - Throws: `source-kept` with the system's words.
  static func move(
    _ path: PathBytes, to target: PathBytes, _ read: SourceFacts, tag: String
  ) throws(StageError) -> Fate {
    guard let stamp = stamp(of: path, ifStill: read) else { return .kept(changed) }
    try AtomicFile.makeFolders(target.parent)
    if let link = FolderResolver.target(of: path), !link.isAbsolute {
      return try moveLink(path, leadingTo: link, to: target)
    }
    switch AtomicFile.renameUnlessTaken(path, target) {
    case 0: break
    case EEXIST: return .kept("\(target.printable) is there already")
    case EXDEV: return try copy(path, to: target, stamp: stamp, sha256: read.sha256, tag: tag)
    case let number: throw failure("\(path.printable) could not be moved to \(target.printable)", number)
    }
    // Between the look and the renaming another file may have come: that one goes back.
    if let now = FileStamp.of(target), now.size != stamp.size || now.modified != stamp.modified {
      if AtomicFile.renameUnlessTaken(target, path) == 0 { return .kept(changed) }
    }
    try AtomicFile.flush(folder: target.parent)
    try AtomicFile.flush(folder: path.parent)
    return .moved(target)
  }

  /// The stamp of the file, where it is still what was read; nil where it is not.
  private static func stamp(of path: PathBytes, ifStill read: SourceFacts) -> FileStamp? {
    guard let now = FileStamp.of(path) else { return nil }
    if now == read.stamp { return now }
    guard now.size == read.stamp?.size ?? now.size, RunHistory.content(of: path).map({ Hex.text($0) }) == read.sha256
    else { return nil }
    return FileStamp.of(path) == now ? now : nil
  }

  private static let changed = "it is not the file any more that was read"

  /// A link that says where it leads from its own folder says it anew from the other.
  private static func moveLink(
    _ path: PathBytes, leadingTo link: PathBytes, to target: PathBytes
  ) throws(StageError) -> Fate {
    var resolver = FolderResolver()
    let end = resolver.resolveFolder(path.parent).joining(link).normalised
    let said = end.relative(to: resolver.resolveFolder(target.parent))
    guard said.withCString({ from in target.withCString { symlink(from, $0) } }) == 0 else {
      if errno == EEXIST { return .kept("\(target.printable) is there already") }
      throw failure("\(path.printable) could not be moved to \(target.printable)", errno)
    }
    try AtomicFile.flush(folder: target.parent)
    guard path.withCString({ unlink($0) }) == 0 else { throw failure("\(path.printable) could not be deleted", errno) }
    try AtomicFile.flush(folder: path.parent)
    return .moved(target)
  }

  private static func copy(
    _ path: PathBytes, to target: PathBytes, stamp: FileStamp, sha256: String, tag: String
  ) throws(StageError) -> Fate {
    let what = "\(path.printable) could not be copied to \(target.printable)"
    let source = path.withCString { open($0, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) }
    guard source >= 0 else { throw failure(what, errno) }
    defer { close(source) }
    var status = stat()
    guard fstat(source, &status) == 0, FileStamp(status) == stamp else { return .kept(changed) }
    let temporary = target.parent.joining(".pipeline-\(tag)-source.tmp")
    let copy = temporary.withCString { open($0, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600) }
    guard copy >= 0 else { throw failure(what, errno) }
    var isNamed = false
    defer {
      close(copy)
      if !isNamed { _ = temporary.withCString { unlink($0) } }
    }
    var piece = [UInt8](repeating: 0, count: 1 << 20)
    while true {
      let count = read(source, &piece, piece.count)
      if count < 0, errno == EINTR { continue }
      guard count >= 0 else { throw failure(what, errno) }
      if count == 0 { break }
      let problem = piece.withUnsafeBytes { bytes in
        ReportSpool.writeAll(copy, UnsafeRawBufferPointer(rebasing: bytes[..<count]))
      }
      if let problem { throw failure(what, problem) }
    }
    var times = [status.st_atim, status.st_mtim]
    guard fchmod(copy, status.st_mode & 0o7777) == 0 || errno == EPERM, futimens(copy, &times) == 0, fsync(copy) == 0
    else { throw failure(what, errno) }
    guard lseek(copy, 0, SEEK_SET) == 0, case .success(let digest) = SHA256.digest(ofFile: copy),
      Hex.text(digest) == sha256
    else { throw StageError("source-kept", what + ": the copy differs from what was read") }
    let number = AtomicFile.renameUnlessTaken(temporary, target)
    if number == EEXIST { return .kept("\(target.printable) is there already") }
    guard number == 0 else { throw failure(what, number) }
    isNamed = true
    try AtomicFile.flush(folder: target.parent)
    guard FileStamp.of(path) == stamp else {
      _ = target.withCString { unlink($0) }
      return .kept(changed)
    }
    guard path.withCString({ unlink($0) }) == 0 else {
      let number = errno
      _ = target.withCString { unlink($0) }
      throw failure("\(path.printable) could not be deleted", number)
    }
    try AtomicFile.flush(folder: path.parent)
    return .moved(target)
  }

  private static func failure(_ what: String, _ number: Int32) -> StageError {
    StageError("source-kept", what, cause: String(cString: strerror(number)))
  }
}
