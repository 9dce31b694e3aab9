import Glibc

/// Files of the models folder: read whole, replaced atomically, under locks that other processes honour.
enum ModelFiles {
  /// The bytes of a small file; nil where there is none.
  ///
  /// Throws `modelMissing` when it is there and cannot be read, or is larger than a description of models can be.
  static func read(_ path: String) throws(InferenceError) -> [UInt8]? {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
    guard descriptor >= 0 else {
      if errno == ENOENT || errno == ENOTDIR { return nil }
      throw failure("cannot read \(path)", errno)
    }
    defer { close(descriptor) }
    var result: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 1 << 16)
    while true {
      let count = Glibc.read(descriptor, &piece, piece.count)
      if count < 0 {
        if errno == EINTR { continue }
        throw failure("cannot read \(path)", errno)
      }
      if count == 0 { return result }
      result += piece[..<count]
      guard result.count <= 16 << 20 else {
        throw InferenceError(.modelMissing, "\(path) is too large to be a description of models")
      }
    }
  }

  /// Replaces a file: a reader sees the old one or the new one.
  static func write(_ bytes: [UInt8], to path: String) throws(InferenceError) {
    let temporary = path + ".\(getpid()).tmp"
    unlink(temporary)
    let descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o644)
    guard descriptor >= 0 else { throw failure("cannot write \(path)", errno) }
    do throws(InferenceError) {
      defer { close(descriptor) }
      if let number = bytes.withUnsafeBytes({ write($0, to: descriptor) }) {
        throw failure("cannot write \(path)", number)
      }
      guard fsync(descriptor) == 0 else { throw failure("cannot flush \(path) to the disk", errno) }
      guard rename(temporary, path) == 0 else { throw failure("cannot put \(path) in place", errno) }
    } catch {
      unlink(temporary)
      throw error
    }
    flushFolder(of: path)
  }

  /// Writes all bytes to a descriptor; the error number where that fails.
  static func write(_ bytes: UnsafeRawBufferPointer, to descriptor: Int32) -> Int32? {
    var rest = bytes
    while !rest.isEmpty {
      let count = Glibc.write(descriptor, rest.baseAddress, rest.count)
      if count < 0 {
        if errno == EINTR { continue }
        return errno
      }
      rest = UnsafeRawBufferPointer(rebasing: rest[count...])
    }
    return nil
  }

  static func flushFolder(of path: String) {
    guard let slash = path.lastIndex(of: "/") else { return }
    let folder = open(String(path[..<slash]), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard folder >= 0 else { return }
    // What cannot be flushed here is in place all the same.
    _ = fsync(folder)
    close(folder)
  }

  /// Makes a folder and those above it.
  static func makeFolders(_ folder: String) throws(InferenceError) {
    var path = folder.hasPrefix("/") ? "" : "."
    for part in folder.split(separator: "/") {
      path += "/" + part
      guard mkdir(path, 0o777) != 0 else { continue }
      // What stands already may be refused for other reasons, such as a file system that cannot be written to.
      let number = errno
      guard number == EEXIST || access(path, F_OK) == 0 else {
        throw failure("cannot make the folder \(path)", number)
      }
    }
  }

  /// An error with the system's words.
  static func failure(_ what: String, _ number: Int32) -> InferenceError {
    let words = String(cString: strerror(number))
    let isFull = number == ENOSPC || number == EDQUOT
    return InferenceError(
      isFull ? .failed : .modelMissing, what + ": " + (isFull ? "no space left (\(words))" : words),
      hint: isFull ? "free some space and run it again" : nil)
  }
}

/// A lock that one process at a time holds, and one caller in it, until the value goes.
///
/// The file stays: were it removed, one process could wait on a file that another no longer sees.
final class FileLock: Sendable {
  private let descriptor: Int32

  /// Waits for the lock; nil where `waits` is false and another holds it. Throws `modelMissing` when the file cannot be
  /// made.
  init?(_ path: String, waits: Bool = true) throws(InferenceError) {
    let descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o666)
    guard descriptor >= 0 else { throw ModelFiles.failure("cannot make the lock \(path)", errno) }
    while flock(descriptor, LOCK_EX | (waits ? 0 : LOCK_NB)) != 0 {
      let number = errno
      if number == EINTR { continue }
      close(descriptor)
      if number == EWOULDBLOCK { return nil }
      throw ModelFiles.failure("cannot lock \(path)", number)
    }
    self.descriptor = descriptor
  }

  deinit { close(descriptor) }
}
