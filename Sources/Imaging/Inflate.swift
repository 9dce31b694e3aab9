import CZlib

/// Unpacks what zlib packed, never more than asked for.
enum Inflate {
  /// What stands around the packed bytes; the numbers are zlib's, for a window of 32 KiB.
  enum Wrapping: Int32 {
    case zlib = 15
    case gzip = 31
    /// Nothing, and no checksum.
    case raw = -15
  }

  enum Ending {
    /// The stream's own end was reached, and its checksum fits.
    case whole
    /// The bytes end before the stream does.
    case cutShort
    case corrupt
    /// More would come out than was allowed.
    case overLimit
  }

  /// Unpacks piece by piece; the pieces together have `limit` bytes at most.
  ///
  /// - Returns: how it ended, the bytes that came out, and how many bytes of input were used.
  static func run(
    _ bytes: UnsafeRawBufferPointer, _ wrapping: Wrapping, limit: Int, _ take: (UnsafeRawBufferPointer) -> Void
  ) -> (ending: Ending, produced: Int, used: Int) {
    var stream = z_stream()
    guard czlib_inflate_start(&stream, wrapping.rawValue) == Z_OK else { return (.corrupt, 0, 0) }
    defer { inflateEnd(&stream) }
    let pieceSize = 64 << 10
    var produced = 0
    var used = 0
    var ending: Ending?
    withUnsafeTemporaryAllocation(byteCount: pieceSize, alignment: 16) { piece in
      while ending == nil {
        if stream.avail_in == 0, used < bytes.count {
          // zlib counts in 32 bits.
          let next = bytes.slice(used..<used + min(bytes.count - used, 1 << 30))
          stream.next_in = UnsafeMutablePointer(
            mutating: next.baseAddress?.assumingMemoryBound(to: UInt8.self))
          stream.avail_in = UInt32(next.count)
        }
        let before = stream.avail_in
        stream.next_out = piece.baseAddress?.assumingMemoryBound(to: UInt8.self)
        stream.avail_out = UInt32(pieceSize)
        let status = inflate(&stream, Z_NO_FLUSH)
        used += Int(before - stream.avail_in)
        let count = pieceSize - Int(stream.avail_out)
        if count > limit - produced {
          take(UnsafeRawBufferPointer(piece).slice(0..<limit - produced))
          produced = limit
          ending = .overLimit
          break
        }
        produced += count
        if count > 0 { take(UnsafeRawBufferPointer(piece).slice(0..<count)) }
        switch status {
        case Z_STREAM_END: ending = .whole
        case Z_OK: if count == 0, before == stream.avail_in { ending = .cutShort }
        // No progress is possible: there is room for output, so input is what is missing.
        case Z_BUF_ERROR: ending = .cutShort
        default: ending = .corrupt
        }
      }
    }
    return (ending ?? .corrupt, produced, used)
  }

  /// How many bytes come out of a zlib stream, counted up to `limit`; what cannot be unpacked counts as far as it goes.
  static func size(ofZlib bytes: UnsafeRawBufferPointer, limit: Int) -> Int {
    let result = run(bytes, .zlib, limit: limit) { _ in }
    return result.ending == .overLimit ? limit + 1 : result.produced
  }

  /// Unpacks a gzip file (RFC 1952) of one or more members.
  ///
  /// - Parameter limit: the most bytes that may come out.
  /// - Throws: `damaged` where it is cut short or a checksum does not fit, `limit` where more would come out.
  static func gunzip(_ bytes: UnsafeRawBufferPointer, limit: Int) throws(ImagingError) -> [UInt8] {
    var out: [UInt8] = []
    var at = 0
    // Empty members cost 20 bytes of input each, so this ends.
    while at < bytes.count {
      // Padding after the last member, as tapes leave it, is no member.
      if at > 0, bytes.big(2, at: at) != 0x1F8B { break }
      let result = run(bytes.slice(at..<bytes.count), .gzip, limit: limit - out.count) { out.append(contentsOf: $0) }
      switch result.ending {
      case .whole: break
      case .overLimit:
        throw ImagingError(
          .limit, "this compressed drawing unpacks to more than \(limit) bytes",
          hint: "unpack it (gunzip) and make it smaller")
      case .cutShort, .corrupt:
        throw ImagingError(
          .damaged,
          "the gzip data of this compressed drawing is \(result.ending == .cutShort ? "cut short" : "corrupt")",
          detail: "after \(out.count) bytes had been unpacked", hint: "get the file anew")
      }
      at += result.used
    }
    return out
  }

  /// The first bytes of a gzip file, `count` at most; fewer where it is damaged.
  static func head(ofGzip bytes: UnsafeRawBufferPointer, count: Int) -> [UInt8] {
    var out: [UInt8] = []
    _ = run(bytes, .gzip, limit: count) { out.append(contentsOf: $0) }
    return out
  }

  /// As a zlib stream; nil where memory is short.
  ///
  /// - Parameter level: from 1, fast, to 9, small; zlib's own choice is 6.
  static func packed(_ bytes: [UInt8], level: Int = 6) -> [UInt8]? {
    var count = compressBound(uLong(bytes.count))
    var out = [UInt8](repeating: 0, count: Int(count))
    guard compress2(&out, &count, bytes, uLong(bytes.count), Int32(level)) == Z_OK else { return nil }
    out.removeLast(out.count - Int(count))
    return out
  }

  /// The CRC-32 of bytes, as PNG and gzip use it.
  static func crc32(_ bytes: UnsafeRawBufferPointer) -> Int {
    Int(CZlib.crc32_z(0, bytes.baseAddress?.assumingMemoryBound(to: UInt8.self), bytes.count))
  }
}
