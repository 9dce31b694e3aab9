import Glibc
import PipelineKit

/// What a name in the file system stands for.
enum FileKind: UInt8, Sendable {
  case regular, folder, link, pipe, socket, device, unknown

  init(mode: mode_t) {
    self =
      switch mode & S_IFMT {
      case S_IFREG: .regular
      case S_IFDIR: .folder
      case S_IFLNK: .link
      case S_IFIFO: .pipe
      case S_IFSOCK: .socket
      case S_IFBLK, S_IFCHR: .device
      default: .unknown
      }
  }

  /// From `d_type`, which some file systems leave unknown.
  init(directoryEntry type: UInt8) {
    self =
      switch Int(type) {
      case DT_REG: .regular
      case DT_DIR: .folder
      case DT_LNK: .link
      case DT_FIFO: .pipe
      case DT_SOCK: .socket
      case DT_BLK, DT_CHR: .device
      default: .unknown
      }
  }

  /// With its article, for messages.
  var text: String {
    switch self {
    case .regular: "a file"
    case .folder: "a folder"
    case .link: "a link"
    case .pipe: "a pipe"
    case .socket: "a socket"
    case .device: "a device"
    case .unknown: "of a kind this program does not know"
    }
  }
}

/// One file or folder, whatever paths lead to it.
struct FileIdentity: Hashable, Sendable {
  var device: UInt64
  var inode: UInt64
}

/// What `stat` says about a path.
struct FileStatus: Sendable {
  var kind: FileKind
  var identity: FileIdentity

  /// Asks for `path`, relative to the open folder `directory` where one is given; the error is `errno`.
  static func of(
    _ path: [UInt8], in directory: Int32 = AT_FDCWD, followingLinks: Bool
  ) -> Result<FileStatus, SystemError> {
    var status = stat()
    let answer = withCPath(path) { fstatat(directory, $0, &status, followingLinks ? 0 : AT_SYMLINK_NOFOLLOW) }
    guard answer == 0 else { return .failure(SystemError(code: errno)) }
    return .success(FileStatus(status))
  }

  init(_ status: stat) {
    kind = FileKind(mode: status.st_mode)
    identity = FileIdentity(device: UInt64(status.st_dev), inode: UInt64(status.st_ino))
  }
}

/// A failed system call's `errno`.
struct SystemError: Error, Sendable, Hashable {
  var code: Int32

  /// The system's words, such as `Permission denied`.
  var text: String {
    var buffer = [CChar](repeating: 0, count: 256)
    _ = strerror_r(code, &buffer, buffer.count)
    let text = buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
    return text.isEmpty ? "error \(code)" : String(decoding: text, as: UTF8.self)
  }

  /// Nothing has that name.
  var isMissing: Bool { code == ENOENT || code == ENOTDIR }
}

/// Calls `body` with `path` as a C string. The buffer is never empty, as it ends in a NUL.
func withCPath<T>(_ path: [UInt8], _ body: (UnsafePointer<CChar>) -> T) -> T {
  var terminated = path
  terminated.append(0)
  return terminated.withUnsafeBytes { body($0.assumingMemoryBound(to: CChar.self).baseAddress!) }
}

/// An open file, closed when the last reference goes.
final class OpenFile: Sendable {
  let descriptor: Int32
  private let closes: Bool

  /// Takes over `descriptor`; `closes` false leaves it open, as for standard input.
  init(descriptor: Int32, closes: Bool = true) {
    self.descriptor = descriptor
    self.closes = closes
  }

  static func open(_ path: PathBytes) -> Result<OpenFile, SystemError> {
    // O_NONBLOCK: a pipe put in the file's place after it was looked at must not block the run.
    let descriptor = withCPath(path.bytes) { Glibc.open($0, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) }
    return descriptor < 0 ? .failure(SystemError(code: errno)) : .success(OpenFile(descriptor: descriptor))
  }

  deinit { if closes { close(descriptor) } }

  var status: Result<FileStatus, SystemError> {
    var status = stat()
    return fstat(descriptor, &status) == 0 ? .success(FileStatus(status)) : .failure(SystemError(code: errno))
  }

  /// Fills `buffer` from the front; the count is short only at the end of the file.
  func read(into buffer: inout [UInt8]) -> Result<Int, SystemError> {
    var filled = 0
    while filled < buffer.count {
      let count = buffer.withUnsafeMutableBytes { bytes in
        Glibc.read(descriptor, bytes.baseAddress! + filled, bytes.count - filled)
      }
      if count == 0 { break }
      if count > 0 {
        filled += count
      } else if errno == EAGAIN || errno == EWOULDBLOCK {
        var wait = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        if poll(&wait, 1, -1) < 0, errno != EINTR { return .failure(SystemError(code: errno)) }
      } else if errno != EINTR {
        return .failure(SystemError(code: errno))
      }
    }
    return .success(filled)
  }
}

extension PathBytes {
  /// The names in a folder, in no order; none where it cannot be read.
  var entryNames: [PathBytes] {
    guard let listing = withCString({ opendir($0) }) else { return [] }
    defer { closedir(listing) }
    var names: [PathBytes] = []
    while let entry = readdir(listing) {
      let name = withUnsafeBytes(of: &entry.pointee.d_name) { PathBytes(bytes: Array($0.prefix { $0 != 0 })) }
      if name.bytes != Array(".".utf8), name.bytes != Array("..".utf8) { names.append(name) }
    }
    return names
  }

  /// The absolute path `path` stands for seen from `base`, without `.` and `..`.
  ///
  /// `..` after a symbolic link leads to the parent of the link's target, as it does for the kernel; the file system
  /// is asked only where there is a `..`.
  static func resolving(_ path: PathBytes, from base: PathBytes) -> PathBytes {
    var whole = base.joining(path)
    if !whole.isAbsolute { whole = (PathBytes.currentFolder ?? PathBytes("/")).joining(whole) }
    let names = whole.components
    guard names.contains(where: { $0.elementsEqual("..".utf8) }) else { return whole.normalised }
    var result: [UInt8] = []
    for name in names where !name.elementsEqual(".".utf8) {
      guard name.elementsEqual("..".utf8) else {
        result.append(UInt8(ascii: "/"))
        result += name
        continue
      }
      if case .success(let status) = FileStatus.of(result, followingLinks: false), status.kind == .link,
        let target = withCPath(result, { realpath($0, nil) })
      {
        result = Array(UnsafeRawBufferPointer(start: target, count: strlen(target)))
        free(target)
      }
      result = result.lastIndex(of: UInt8(ascii: "/")).map { Array(result[..<$0]) } ?? []
    }
    return PathBytes(bytes: result.isEmpty ? [UInt8(ascii: "/")] : result)
  }
}
