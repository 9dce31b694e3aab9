import CVips

/// The bytes of an encoded picture: a file as read, or what an encoder wrote.
///
/// The memory is a libvips blob, counted by reference, so that lazy images keep it alive by themselves.
public final class EncodedBytes: @unchecked Sendable {
  // Unchecked: the blob's bytes are never written after `init`, and its reference count is guarded by libvips.
  let blob: UnsafeMutablePointer<VipsBlob>
  public let count: Int
  private let base: UnsafeRawPointer

  /// Takes over one reference to a blob.
  init(adopting blob: UnsafeMutablePointer<VipsBlob>) {
    self.blob = blob
    var length = 0
    base = UnsafeRawPointer(vips_blob_get(blob, &length)!)
    count = length
  }

  /// Copies `bytes`.
  public convenience init(_ bytes: [UInt8]) {
    preconditionFailure("not yet written")
  }

  /// Reads the bytes in place; the pointer must not leave `body`.
  public func withUnsafeBytes<R, E: Error>(_ body: (UnsafeRawBufferPointer) throws(E) -> R) throws(E) -> R {
    preconditionFailure("not yet written")
  }

  /// A copy of the bytes.
  public var array: [UInt8] { withUnsafeBytes { Array($0) } }

  /// The SHA-256 of the bytes, 64 lower-case hex digits.
  public var sha256: String { preconditionFailure("not yet written") }
}
