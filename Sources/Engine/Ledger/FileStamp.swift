import Glibc
import PipelineKit

/// Size and times of a file: what is asked before its content.
public struct FileStamp: Sendable, Hashable {
  /// Bytes.
  public var size: Int64
  /// Nanoseconds since 1970.
  public var modified: Int64
  /// When the file's content, name or permissions last changed; nanoseconds since 1970. Programs cannot set it.
  public var changed: Int64

  public init(size: Int64, modified: Int64, changed: Int64) {
    self.size = size
    self.modified = modified
    self.changed = changed
  }

  /// The stamp of a file; follows links; nil where nothing regular is.
  public static func of(_ path: PathBytes) -> FileStamp? {
    var status = stat()
    guard path.withCString({ stat($0, &status) }) == 0 else { return nil }
    return FileStamp(status)
  }

  /// The stamp of an open file; nil where it is not regular.
  public static func of(descriptor: Int32) -> FileStamp? {
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { return nil }
    return FileStamp(status)
  }

  init?(_ status: stat) {
    guard status.st_mode & S_IFMT == S_IFREG else { return nil }
    func nanoseconds(_ time: timespec) -> Int64 { Int64(time.tv_sec) &* 1_000_000_000 &+ Int64(time.tv_nsec) }
    self.init(
      size: Int64(status.st_size), modified: nanoseconds(status.st_mtim), changed: nanoseconds(status.st_ctim))
  }
}

extension Machine {
  /// The name this machine has in its network; empty where it has none.
  public static var hostName: String {
    var buffer = [CChar](repeating: 0, count: 256)
    guard gethostname(&buffer, buffer.count - 1) == 0 else { return "" }
    return String(decoding: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  public static var processID: Int32 { getpid() }
}
