import CVips
import Digest

/// The bytes of an encoded picture: a file as read, or what an encoder wrote.
///
/// The memory is a libvips blob, counted by reference, so that lazy images keep it alive by themselves.
public final class EncodedBytes: @unchecked Sendable {
  // Unchecked: the blob's bytes are never written after `init`, and its reference count is guarded by libvips.
  let blob: UnsafeMutablePointer<VipsBlob>
  public let count: Int
  private let base: UnsafeRawPointer?

  /// Takes over memory from g_malloc or malloc; it is freed with g_free.
  init(adopting memory: UnsafeMutableRawPointer, count: Int) {
    blob = cvips_blob_adopt(memory, count)
    base = UnsafeRawPointer(memory)
    self.count = count
  }

  /// Copies `bytes`.
  public convenience init(_ bytes: [UInt8]) {
    let memory: UnsafeMutableRawPointer = g_malloc(gsize(max(1, bytes.count)))
    bytes.withUnsafeBytes { source in
      if let from = source.baseAddress { memory.copyMemory(from: from, byteCount: source.count) }
    }
    self.init(adopting: memory, count: bytes.count)
  }

  /// Reads what a descriptor leads to, from its beginning to its end or `count` bytes; the descriptor stays open.
  ///
  /// - Throws: `memory`, `io`.
  public convenience init(reading descriptor: Int32, count: Int) throws(ImagingError) {
    guard let memory = g_try_malloc(gsize(max(1, count))) else {
      throw ImagingError(.memory, "there is no memory for \(count) bytes")
    }
    let length = cvips_rewind(descriptor) == 0 ? cvips_read(descriptor, memory, count) : -1
    guard length >= 0 else {
      g_free(memory)
      throw ImagingError(.io, "what was written could not be read")
    }
    self.init(adopting: memory, count: Int(length))
  }

  /// Copies `bytes` and goes on with zeros up to `length` bytes; nil where memory is short. Zeros that nobody
  /// reads cost none.
  convenience init?(copying bytes: UnsafeRawBufferPointer, filledUpTo length: Int) {
    guard length > 0, length >= bytes.count, let memory = g_try_malloc0(gsize(length)) else { return nil }
    UnsafeMutableRawBufferPointer(start: memory, count: length).copyMemory(from: bytes)
    self.init(adopting: memory, count: length)
  }

  deinit { cvips_blob_unref(blob) }

  /// Reads the bytes in place; the pointer must not leave `body`.
  public func withUnsafeBytes<R, E: Error>(_ body: (UnsafeRawBufferPointer) throws(E) -> R) throws(E) -> R {
    defer { withExtendedLifetime(self) {} }
    return try body(UnsafeRawBufferPointer(start: base, count: count))
  }

  /// A copy of the bytes.
  public var array: [UInt8] { withUnsafeBytes { Array($0) } }

  /// The SHA-256 of the bytes, 64 lower-case hex digits.
  public var sha256: String { withUnsafeBytes { Hex.text(SHA256.digest(of: $0)) } }
}
