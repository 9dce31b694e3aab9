import CVips
import Digest
import Glibc
import Synchronization

/// The checksums of a file, computed once for each file in a process.
public struct FileDigest: Sendable, Hashable {
  /// SHA-256 in lower-case hexadecimal.
  public let sha256: String
  /// MD5 in lower-case hexadecimal: the only checksum that some models are published with.
  public let md5: String
  /// The file's size in bytes.
  public let size: Int

  /// Reads the file once through both hashes, or takes what an earlier call found if the file has not changed since.
  ///
  /// Throws `modelMissing` when it cannot be read.
  public static func ofFile(_ path: String) throws(InferenceError) -> FileDigest {
    // A pipe without a writer would hold up the open itself.
    let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
    guard descriptor >= 0 else { throw unreadable(path, errno) }
    defer { close(descriptor) }
    var facts = stat()
    guard fstat(descriptor, &facts) == 0 else { throw unreadable(path, errno) }
    // A pipe or a device has no fixed content to hash.
    let kind = facts.st_mode & S_IFMT
    guard kind == S_IFREG else { throw unreadable(path, kind == S_IFDIR ? EISDIR : EINVAL) }
    let key = Key(
      device: UInt64(facts.st_dev), inode: UInt64(facts.st_ino), size: Int(facts.st_size),
      seconds: Int(facts.st_mtim.tv_sec), nanoseconds: Int(facts.st_mtim.tv_nsec))
    if let known = known.withLock({ $0[key] }) { return known }

    guard let md5 = g_checksum_new(G_CHECKSUM_MD5) else {
      throw InferenceError(.failed, "GLib offers no MD5")
    }
    defer { g_checksum_free(md5) }
    var sha256 = SHA256()
    var size = 0
    let chunk = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: 1 << 18)
    defer { chunk.deallocate() }
    while true {
      let count = read(descriptor, chunk.baseAddress, chunk.count)
      if count == 0 { break }
      if count < 0 {
        if errno == EINTR { continue }
        throw unreadable(path, errno)
      }
      sha256.update(UnsafeRawBufferPointer(start: chunk.baseAddress, count: count))
      g_checksum_update(md5, chunk.baseAddress, count)
      size += count
    }
    let digest = FileDigest(
      sha256: Hex.text(sha256.finish()), md5: String(cString: g_checksum_get_string(md5)),
      size: size)
    known.withLock { $0[key] = digest }
    return digest
  }

  private struct Key: Hashable {
    let device: UInt64, inode: UInt64, size: Int, seconds: Int, nanoseconds: Int
  }

  private static let known = Mutex<[Key: FileDigest]>([:])

  private static func unreadable(_ path: String, _ number: Int32) -> InferenceError {
    InferenceError(.modelMissing, "cannot read \(path): \(String(cString: strerror(number)))")
  }
}
