import Imaging
import Transport

extension Payload {
  /// The bytes of an encoded picture, read where they are.
  init(_ encoded: EncodedBytes) {
    self.init(count: encoded.count) { offset, buffer in
      encoded.withUnsafeBytes { bytes in
        let count = min(buffer.count, bytes.count - offset)
        guard count > 0 else { return 0 }
        buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[offset..<offset + count]))
        return count
      }
    }
  }
}
