import CDeflate

/// Bytes made small without loss, for keeping: a zlib stream through libdeflate, with the length before it.
public enum PackedBytes {
  /// Level 1: what masks and maps hold is packed as well as it ever is, at some hundred MB a second.
  private static let level: Int32 = 1

  /// - Throws: `memory` where there is not enough for it.
  public static func pack(_ bytes: UnsafeRawBufferPointer) throws(ImagingError) -> [UInt8] {
    guard let compressor = libdeflate_alloc_compressor(level) else {
      throw ImagingError(.memory, "there is not enough memory to pack \(bytes.count) bytes")
    }
    defer { libdeflate_free_compressor(compressor) }
    let bound = libdeflate_zlib_compress_bound(compressor, bytes.count)
    var packed = withUnsafeBytes(of: UInt64(bytes.count).littleEndian) { Array($0) }
    let header = packed.count
    packed += [UInt8](unsafeUninitializedCapacity: bound) { out, count in
      count = libdeflate_zlib_compress(compressor, bytes.baseAddress, bytes.count, out.baseAddress, bound)
    }
    guard packed.count > header else {
      throw ImagingError(.internalFault, "libdeflate found no room for \(bytes.count) bytes in \(bound)")
    }
    return packed
  }

  /// The bytes that were packed; nil where these are no packed bytes, or more than `most`.
  public static func unpack(_ packed: ArraySlice<UInt8>, most: Int) -> [UInt8]? {
    guard packed.count > 8 else { return nil }
    return packed.withUnsafeBytes { packed -> [UInt8]? in
      let length = Int(truncatingIfNeeded: UInt64(littleEndian: packed.loadUnaligned(as: UInt64.self)))
      guard (0...most).contains(length), let decompressor = libdeflate_alloc_decompressor() else { return nil }
      defer { libdeflate_free_decompressor(decompressor) }
      var isWhole = false
      let bytes = [UInt8](unsafeUninitializedCapacity: length) { out, count in
        let stream = UnsafeRawBufferPointer(rebasing: packed[8...])
        var actual = 0
        isWhole =
          libdeflate_zlib_decompress(
            decompressor, stream.baseAddress, stream.count, out.baseAddress, length, &actual) == LIBDEFLATE_SUCCESS
          && actual == length
        count = isWhole ? length : 0
      }
      return isWhole ? bytes : nil
    }
  }
}
