import Glibc

/// Size and times of a file: what tells one state of it from another without reading it.
///
/// Two states that follow each other within a tick of the file system's clock (a few milliseconds, on FAT 2 s) and have
/// the same size look alike: see `isSettled`.
public struct FileStamp: Sendable, Hashable {
  /// Bytes.
  public var size: Int64
  /// When the content was last written to; nanoseconds since 1970.
  public var modified: Int64
  /// When the file's content, name or permissions last changed; nanoseconds since 1970. Programs cannot set it.
  public var changed: Int64

  public init(size: Int64, modified: Int64, changed: Int64) {
    self.size = size
    self.modified = modified
    self.changed = changed
  }

  /// Nil for what is no regular file.
  public init?(_ status: stat) {
    guard status.st_mode & S_IFMT == S_IFREG else { return nil }
    func nanoseconds(_ time: timespec) -> Int64 { Int64(time.tv_sec) &* 1_000_000_000 &+ Int64(time.tv_nsec) }
    self.init(
      size: Int64(status.st_size), modified: nanoseconds(status.st_mtim), changed: nanoseconds(status.st_ctim))
  }

  /// The stamp of an open file.
  ///
  /// - Throws: EINVAL for what is not regular.
  public init(descriptor: Int32) throws(SystemCallError) {
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { throw SystemCallError(number: errno) }
    guard let stamp = FileStamp(status) else { throw SystemCallError(number: EINVAL) }
    self = stamp
  }

  /// The coarsest clock of a common file system is FAT's, of two seconds.
  private static let coarseSeconds = 2.0

  /// Whether the stamp stands for the content that was read at a time: a file changed only a moment before may have
  /// changed again without its stamp showing it.
  ///
  /// - Parameter time: when it was read, in seconds since 1970.
  public func isSettled(at time: Double) -> Bool { time - Double(max(modified, changed)) / 1e9 > Self.coarseSeconds }
}
