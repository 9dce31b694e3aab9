import CCrypto
import Glibc

/// A SHA-256 (FIPS 180-4) being made from pieces.
public struct SHA256: ~Copyable {
  private let context: OpaquePointer

  public init() {
    // OpenSSL is without SHA-256 only where an administrator has forbidden it; nothing here works then.
    guard let context = ccrypto_sha256_new() else { preconditionFailure("OpenSSL offers no SHA-256") }
    self.context = context
  }

  deinit { EVP_MD_CTX_free(context) }

  public mutating func update(_ bytes: UnsafeRawBufferPointer) {
    guard let base = bytes.baseAddress, bytes.count > 0 else { return }
    _ = ccrypto_update(context, base, bytes.count)
  }

  public mutating func update(_ bytes: [UInt8]) { bytes.withUnsafeBytes { update($0) } }

  /// Bytes with their count before them, so that two pieces never read as two others.
  public mutating func update(counted bytes: some Collection<UInt8>) {
    let array = Array(bytes)
    withUnsafeBytes(of: UInt64(array.count).littleEndian) { update($0) }
    update(array)
  }

  /// The digest, 32 bytes.
  public consuming func finish() -> [UInt8] {
    var digest = [UInt8](repeating: 0, count: 32)
    _ = ccrypto_sha256_finish(context, &digest)
    return digest
  }

  /// The digest of bytes in memory, 32 bytes.
  public static func digest(of bytes: UnsafeRawBufferPointer) -> [UInt8] {
    var hash = SHA256()
    hash.update(bytes)
    return hash.finish()
  }

  /// The digest of bytes in memory, 32 bytes.
  public static func digest(of bytes: [UInt8]) -> [UInt8] { bytes.withUnsafeBytes { digest(of: $0) } }

  /// The digest of what is left to read of an open file, 32 bytes; the failure is `errno`.
  public static func digest(ofFile descriptor: Int32) -> Result<[UInt8], SystemCallError> {
    var hash = SHA256()
    let capacity = 1 << 18
    let buffer = UnsafeMutableRawPointer.allocate(byteCount: capacity, alignment: 4096)
    defer { buffer.deallocate() }
    while true {
      let count = read(descriptor, buffer, capacity)
      if count == 0 { return .success(hash.finish()) }
      if count < 0 {
        if errno == EINTR { continue }
        return .failure(SystemCallError(number: errno))
      }
      hash.update(UnsafeRawBufferPointer(start: buffer, count: count))
    }
  }
}

/// A failed system call's `errno`.
public struct SystemCallError: Error, Sendable, Hashable {
  public var number: Int32
  public init(number: Int32) { self.number = number }
}

/// Bytes as lower-case hex digits.
public enum Hex {
  public static func text(_ bytes: some Sequence<UInt8>) -> String {
    func digit(_ value: UInt8) -> UInt8 { value + (value < 10 ? UInt8(ascii: "0") : UInt8(ascii: "a") - 10) }
    var text: [UInt8] = []
    text.reserveCapacity(2 * bytes.underestimatedCount)
    for byte in bytes {
      text.append(digit(byte >> 4))
      text.append(digit(byte & 15))
    }
    return String(decoding: text, as: UTF8.self)
  }

  /// Nil where the text is not made of pairs of hex digits.
  public static func bytes(_ text: some StringProtocol) -> [UInt8]? {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(text.utf8.count / 2)
    var high: UInt8?
    for digit in text.utf8 {
      let value: UInt8
      switch digit {
      case UInt8(ascii: "0")...UInt8(ascii: "9"): value = digit - UInt8(ascii: "0")
      case UInt8(ascii: "a")...UInt8(ascii: "f"): value = digit - UInt8(ascii: "a") + 10
      case UInt8(ascii: "A")...UInt8(ascii: "F"): value = digit - UInt8(ascii: "A") + 10
      default: return nil
      }
      if let first = high {
        bytes.append(first << 4 | value)
        high = nil
      } else {
        high = value
      }
    }
    return high == nil ? bytes : nil
  }
}
