import Glibc

/// The bytes of a body, read in pieces, from any place in them, as often as needed, by any thread.
public struct Payload: Sendable {
  public let count: Int
  private let source: @Sendable (_ offset: Int, _ into: UnsafeMutableRawBufferPointer) -> Int

  /// - Parameter read: copies what stands from an offset on into the buffer, as much as is at hand; answers how many bytes
  ///   that is, 0 at the end, a negative number where they cannot be read.
  public init(count: Int, read: @escaping @Sendable (_ offset: Int, _ into: UnsafeMutableRawBufferPointer) -> Int) {
    self.count = max(0, count)
    source = read
  }

  public init(_ bytes: [UInt8]) {
    self.init(count: bytes.count) { offset, buffer in
      let length = min(buffer.count, bytes.count - offset)
      guard length > 0 else { return 0 }
      bytes.withUnsafeBytes { buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[offset..<offset + length])) }
      return length
    }
  }

  public init(_ text: String) { self.init(Array(text.utf8)) }

  /// A regular file (`path` is C text), opened now and closed with the last copy of the value; its size is the one it has now.
  ///
  /// Throws `failed` where it cannot be opened; a file that has become shorter by the time it is read fails the request.
  public static func file(_ path: [CChar]) throws(TransportError) -> Payload {
    let file = OpenFile(open(path.last == 0 ? path : path + [0], O_RDONLY | O_CLOEXEC))
    guard file.descriptor >= 0 else { throw TransportError(.failed, "it cannot be opened: \(reason(errno))") }
    var status = stat()
    guard fstat(file.descriptor, &status) == 0 else {
      throw TransportError(.failed, "it cannot be looked at: \(reason(errno))")
    }
    guard status.st_mode & S_IFMT == S_IFREG else { throw TransportError(.failed, "it is no regular file") }
    return Payload(count: Int(status.st_size)) { offset, buffer in
      while true {
        let count = pread(file.descriptor, buffer.baseAddress, buffer.count, off_t(offset))
        if count >= 0 || errno != EINTR { return count }
      }
    }
  }

  public static func file(_ path: String) throws(TransportError) -> Payload { try file(Array(path.utf8CString)) }

  private static func reason(_ number: Int32) -> String { String(cString: strerror(number)) }

  /// Closes the file with its last user.
  private final class OpenFile: Sendable {
    let descriptor: Int32
    init(_ descriptor: Int32) { self.descriptor = descriptor }
    deinit { if descriptor >= 0 { close(descriptor) } }
  }

  /// Copies bytes from `offset` on until the buffer is full or the payload ends.
  ///
  /// Answers how many; nil where they cannot be read, or end before `count`.
  public func read(at offset: Int, into buffer: UnsafeMutableRawBufferPointer) -> Int? {
    let wanted = min(buffer.count, count - offset)
    guard offset >= 0, wanted > 0 else { return 0 }
    var done = 0
    while done < wanted {
      let part = UnsafeMutableRawBufferPointer(rebasing: buffer[done..<wanted])
      let length = source(offset + done, part)
      guard length > 0, length <= part.count else { return nil }
      done += length
    }
    return done
  }

  /// All of it. Throws `failed` where it cannot be read.
  public func bytes() throws(TransportError) -> [UInt8] {
    var isComplete = false
    let all = [UInt8](unsafeUninitializedCapacity: count) { buffer, length in
      length = read(at: 0, into: UnsafeMutableRawBufferPointer(buffer)) ?? 0
      isComplete = length == count
    }
    guard isComplete else { throw Self.unreadable }
    return all
  }

  static let unreadable = TransportError(.failed, "the bytes to be sent cannot be read to their end")

  /// Hands over all bytes in pieces of at most 48 KiB, which are gone afterwards. Throws `failed` where they cannot be
  /// read.
  public func forEachPiece(_ body: (UnsafeRawBufferPointer) -> Void) throws(TransportError) {
    var buffer = [UInt8](repeating: 0, count: min(count, Self.piece))
    var offset = 0
    while offset < count {
      let length = buffer.withUnsafeMutableBytes { read(at: offset, into: $0) } ?? 0
      guard length > 0 else { throw Self.unreadable }
      buffer.withUnsafeBytes { body(UnsafeRawBufferPointer(rebasing: $0[..<length])) }
      offset += length
    }
  }

  /// Divisible by 3, so that pieces of base64 meet without padding.
  static let piece = 48 << 10

  /// The payloads one after the other.
  public static func joined(_ parts: [Payload]) -> Payload {
    var starts: [Int] = []
    var count = 0
    for part in parts {
      starts.append(count)
      count += part.count
    }
    let total = count
    return Payload(count: total) { [starts] offset, buffer in
      guard offset < total, let index = starts.indices.last(where: { starts[$0] <= offset && parts[$0].count > 0 })
      else { return 0 }
      return parts[index].read(at: offset - starts[index], into: buffer) ?? -1
    }
  }

  /// The payload as base64 with padding (RFC 4648, section 4), encoded as it is read.
  public static func base64(of payload: Payload) -> Payload {
    let total = (payload.count + 2) / 3 * 4
    return Payload(count: total) { offset, buffer in
      // Whole groups of 3 bytes, beginning with the one that the offset lies in.
      let first = offset / 4
      let skipped = offset % 4
      let wanted = min(buffer.count, total - offset)
      guard wanted > 0 else { return 0 }
      let groups = min((skipped + wanted + 3) / 4, piece / 3)
      var raw = [UInt8](repeating: 0, count: groups * 3)
      guard let length = raw.withUnsafeMutableBytes({ payload.read(at: first * 3, into: $0) }), length > 0 else {
        return -1
      }
      let text = raw.withUnsafeBytes { Base64.encode(UnsafeRawBufferPointer(rebasing: $0[..<length])) }
      let result = min(wanted, text.count - skipped)
      text.withUnsafeBytes {
        buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[skipped..<skipped + result]))
      }
      return result
    }
  }
}
