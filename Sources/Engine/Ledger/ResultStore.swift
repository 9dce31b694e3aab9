import Digest
import Glibc
import PipelineKit
import Synchronization

/// Results of costly stages by the content they were made from, as files below the state folder: `results/ab/cdef…`,
/// and `paid/ab/cdef…` for those that have cost credits. Shards share it; no lock is needed.
///
/// A file is 8 bytes of mark, the key (32), the length and a checksum of what follows (8 each, little-endian), and the
/// bytes. One that is not what it was is no result. A result that was paid for is durable before it counts as kept, and
/// only `prune` removes it; others may be lost to a power cut, and the least recently used go first.
public final class ResultStore: Sendable {
  private static let mark = Array("PIPERES1".utf8)
  private static let headerBytes = 56
  /// Seconds after which a temporary file of a process that cannot be looked at counts as left behind.
  private static let longestWrite: Int64 = 86_400

  private let folder: StateFolder
  /// Bytes that results which were not paid for may take.
  public let mostBytes: Int
  private let owner: FileOwner

  public init(_ folder: StateFolder, mostBytes: Int) {
    self.folder = folder
    self.mostBytes = max(0, mostBytes)
    owner = .this
  }

  private func root(paid: Bool) -> PathBytes { folder.path.joining(paid ? "paid" : "results") }

  private func path(_ key: [UInt8], paid: Bool) -> PathBytes {
    let name = Hex.text(key)
    return root(paid: paid).joining(String(name.prefix(2))).joining(String(name.dropFirst(2)))
  }

  // MARK: One result

  /// The bytes kept for a key of 32 bytes; nil where there are none or they are damaged. Notes that they were used.
  public func result(for key: [UInt8], paid: Bool) -> [UInt8]? {
    let path = path(key, paid: paid)
    let file = path.withCString { open($0, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) }
    guard file >= 0 else { return nil }
    defer { close(file) }
    var status = stat()
    guard fstat(file, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return nil }
    guard let result = Self.content(of: file, size: Int(status.st_size), key: key) else {
      // What was paid for is left to be looked at.
      if paid {
        let aside = PathBytes(bytes: path.bytes + Array(".damaged".utf8))
        _ = path.withCString { from in aside.withCString { rename(from, $0) } }
      } else {
        _ = path.withCString { unlink($0) }
      }
      return nil
    }
    // Nil stands for now. Fails on a read-only file system, where nothing is evicted either.
    futimens(file, nil)
    return result
  }

  /// Whether there is a whole result; it does not count as used.
  func holds(_ key: [UInt8], paid: Bool) -> Bool { result(for: key, paid: paid) != nil }

  private static func read(_ file: Int32, size: Int) -> [UInt8]? {
    let bytes = [UInt8](unsafeUninitializedCapacity: size) { buffer, count in
      while count < size {
        let got = Glibc.read(file, buffer.baseAddress.map { $0 + count }, size - count)
        if got < 0, errno == EINTR { continue }
        guard got > 0 else { return }
        count += got
      }
    }
    return bytes.count == size ? bytes : nil
  }

  private static func header(of bytes: [UInt8], key: [UInt8]) -> [UInt8] {
    var sum = Checksum()
    sum.add(bytes)
    return start(key: key, count: bytes.count) + littleEndian(sum.value)
  }

  private static func start(key: [UInt8], count: Int) -> [UInt8] { mark + key + littleEndian(UInt64(count)) }

  private static func littleEndian(_ number: UInt64) -> [UInt8] {
    withUnsafeBytes(of: number.littleEndian) { Array($0) }
  }

  /// What a file keeps for a key; nil where it is not whole.
  private static func content(of file: Int32, size: Int, key: [UInt8]) -> [UInt8]? {
    // The header first: memory is asked for only where it agrees with the file's size.
    guard size >= headerBytes, let header = read(file, size: headerBytes),
      header.starts(with: start(key: key, count: size - headerBytes)),
      let content = read(file, size: size - headerBytes)
    else { return nil }
    return header == Self.header(of: content, key: key) ? content : nil
  }

  /// Keeps bytes for a key of 32 bytes, in the place of others.
  ///
  /// - Throws: for a paid result, `state-write` of class environment where it is not on the disk. What was not paid for
  ///   is kept where it can be.
  public func keep(_ bytes: [UInt8], for key: [UInt8], paid: Bool) throws(StageError) {
    precondition(key.count == 32, "a key has 32 bytes")
    if !paid, bytes.count + Self.headerBytes > mostBytes { return }
    let path = path(key, paid: paid)
    let parts = [root(paid: paid), path.parent]
    for part in parts where part.withCString({ access($0, F_OK) }) != 0 {
      guard part.withCString({ mkdir($0, 0o700) }) == 0 else {
        if errno == EEXIST { continue }
        if paid { throw Self.failure(path, String(cString: strerror(errno))) }
        return
      }
      _ = part.withCString { chmod($0, 0o700) }
      if paid {
        do throws(StageError) { try AtomicFile.flush(folder: part.parent) } catch {
          throw Self.failure(path, error.description)
        }
      }
    }
    let whole = Self.header(of: bytes, key: key) + bytes
    let result: Result<Void, StageError> = whole.withUnsafeBytes { bytes in
      do throws(StageError) {
        // Of what was not paid for a part may be left by a power cut: the checksum tells.
        _ = try AtomicFile.write(bytes, to: path, tag: owner.tag, mode: 0o600, isDurable: paid)
        return .success(())
      } catch {
        return .failure(error)
      }
    }
    if paid, case .failure(let error) = result { throw Self.failure(path, error.description) }
  }

  private static func failure(_ path: PathBytes, _ cause: String) -> StageError {
    StageError(
      "state-write", "a result that was paid for could not be kept in \(path.parent.printable)", kind: .environment,
      cause: cause, hint: "free some space, or choose another folder with --state DIR")
  }

  // MARK: All results

  private struct Entry {
    var path: PathBytes
    /// Nanoseconds since 1970.
    var used: Int64
    var bytes: Int
  }

  private func entries(paid: Bool, temporary: (PathBytes, stat) -> Void = { _, _ in }) -> [Entry] {
    var entries: [Entry] = []
    let root = root(paid: paid)
    for first in root.entryNames where first.bytes.count == 2 && Hex.bytes(first.display) != nil {
      let folder = root.joining(first)
      for name in folder.entryNames {
        let path = folder.joining(name)
        var status = stat()
        guard path.withCString({ lstat($0, &status) }) == 0, status.st_mode & S_IFMT == S_IFREG else { continue }
        if FileOwner.of(temporary: name) != nil {
          temporary(path, status)
        } else if name.bytes.count == 62, Hex.bytes(name.display) != nil {
          let used = Int64(status.st_mtim.tv_sec) &* 1_000_000_000 &+ Int64(status.st_mtim.tv_nsec)
          entries.append(Entry(path: path, used: used, bytes: Int(status.st_size)))
        }
      }
    }
    return entries
  }

  /// How many results there are and how many bytes they take.
  public func size(paid: Bool) -> (count: Int, bytes: Int) {
    let entries = entries(paid: paid)
    return (entries.count, entries.reduce(0) { $0 + $1.bytes })
  }

  /// Removes what was left by processes that are no more, then the least recently used results that were not paid for,
  /// until the others fit. For the end of a run.
  ///
  /// - Parameter mostBytes: what they may take; nil for the store's own.
  /// - Returns: how many results went, and their bytes.
  @discardableResult
  public func trim(to mostBytes: Int? = nil) -> (count: Int, bytes: Int) {
    let mostBytes = mostBytes ?? self.mostBytes
    let now = Int64(RunClock.now())
    func sweep(_ path: PathBytes, _ status: stat) {
      guard let owner = FileOwner.of(temporary: path.lastComponent) else { return }
      let isLeft =
        switch owner.life {
        case .dead: true
        case .alive: false
        case .unknown: now - Int64(status.st_mtim.tv_sec) > Self.longestWrite
        }
      if isLeft { _ = path.withCString { unlink($0) } }
    }
    _ = entries(paid: true, temporary: sweep)
    let entries = entries(paid: false, temporary: sweep).sorted { $0.used < $1.used }
    var total = entries.reduce(0) { $0 + $1.bytes }
    var gone = (count: 0, bytes: 0)
    for entry in entries where total > mostBytes {
      total -= entry.bytes
      // Another shard may have been first.
      guard entry.path.withCString({ unlink($0) }) == 0 else { continue }
      gone.count += 1
      gone.bytes += entry.bytes
    }
    return gone
  }

  /// Removes results that were last used before a time.
  ///
  /// - Parameters:
  ///   - time: seconds since 1970.
  ///   - paid: whether it was paid for.
  /// - Returns: how many went, and their bytes.
  @discardableResult
  public func prune(paid: Bool, usedBefore time: Double) -> (count: Int, bytes: Int) {
    var gone = (count: 0, bytes: 0)
    for entry in entries(paid: paid) where Double(entry.used) / 1e9 < time {
      guard entry.path.withCString({ unlink($0) }) == 0 else { continue }
      gone.count += 1
      gone.bytes += entry.bytes
    }
    return gone
  }
}

/// The process that a temporary file belongs to, by the file's name: its machine, its process table, its number there
/// and when it began, since numbers are used again.
struct FileOwner: Sendable, Hashable {
  enum Life { case alive, dead, unknown }

  var host: String
  /// The number of the kernel's table of processes, which a container has of its own.
  var table: UInt64
  var pid: Int32
  /// In ticks since the machine was started.
  var began: UInt64

  /// This process.
  static let this = FileOwner(
    host: Hex.text(Machine.hostName.utf8), table: ownTable, pid: getpid(), began: start(of: getpid()) ?? 0)

  /// As `AtomicFile` puts it into names: `.pipeline-TAG-NUMBER.tmp`.
  var tag: String { "\(host)-\(table)-\(pid)-\(began)" }

  static func of(temporary name: PathBytes) -> FileOwner? {
    guard let text = name.string, text.hasPrefix(".pipeline-"), text.hasSuffix(".tmp") else { return nil }
    let parts = text.dropLast(4).split(separator: "-", omittingEmptySubsequences: false)
    guard parts.count == 6, let table = UInt64(parts[2]), let pid = Int32(parts[3]), let began = UInt64(parts[4])
    else { return nil }
    return FileOwner(host: String(parts[1]), table: table, pid: pid, began: began)
  }

  var life: Life {
    let here = Self.this
    guard host == here.host, table == here.table, table != 0 else { return .unknown }
    guard kill(pid, 0) == 0 || errno == EPERM else { return .dead }
    guard began != 0, let start = Self.start(of: pid) else { return .unknown }
    return start == began ? .alive : .dead
  }

  private static let ownTable: UInt64 = {
    var status = stat()
    return stat("/proc/self/ns/pid", &status) == 0 ? UInt64(status.st_ino) : 0
  }()

  /// When a process began; nil where the kernel does not tell.
  private static func start(of pid: Int32) -> UInt64? {
    let file = open("/proc/\(pid)/stat", O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { return nil }
    defer { close(file) }
    var buffer = [UInt8](repeating: 0, count: 4096)
    let count = read(file, &buffer, buffer.count)
    // The name, in brackets, may hold anything. The 22nd field is the 20th after it.
    guard count > 0, let end = buffer[..<count].lastIndex(of: UInt8(ascii: ")")) else { return nil }
    let fields = buffer[(end + 1)..<count].split(separator: UInt8(ascii: " "))
    return fields.count > 19 ? UInt64(String(decoding: fields[19], as: UTF8.self)) : nil
  }
}
