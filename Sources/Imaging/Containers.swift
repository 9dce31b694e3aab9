import CVips

/// The container of WebP (RFC 9649), for taking out what libwebp's caller put in unasked.
enum WebPContainer {
  /// Takes the EXIF chunk out, in place, and the extended header with it where nothing else needs that.
  ///
  /// - Returns: the new length. What is no WebP of the expected form stays as it is.
  static func removeEXIF(_ b: UnsafeMutableRawBufferPointer) -> Int {
    func number(_ at: Int) -> Int { (0..<4).reduce(0) { $0 | Int(b[at + $1]) << (8 * $1) } }
    func name(_ at: Int) -> String { String(decoding: b[at..<at + 4], as: UTF8.self) }
    guard b.count > 30, name(0) == "RIFF", name(8) == "WEBP", name(12) == "VP8X" else { return b.count }
    var chunks: [(name: String, at: Int, length: Int)] = []
    var at = 12
    while at + 8 <= b.count {
      let length = 8 + (number(at + 4) + 1) / 2 * 2
      guard at + length <= b.count else { return b.count }
      chunks.append((name(at), at, length))
      at += length
    }
    chunks.removeAll { $0.name == "EXIF" }
    b[20] &= ~0x08
    if chunks.count == 2, b[20] == 0 { chunks.removeFirst() }
    var end = 12
    for chunk in chunks {
      for i in 0..<chunk.length { b[end + i] = b[chunk.at + i] }
      end += chunk.length
    }
    for i in 0..<4 { b[4 + i] = UInt8((end - 8) >> (8 * i) & 255) }
    return end
  }
}

/// The container of TIFF 6.0, into and out of which libvips 8.14 takes no EXIF.
enum TIFFContainer {
  /// Appends EXIF to a file in memory from g_malloc, and makes it part of the first directory.
  ///
  /// - Returns: the file, perhaps at another place; unchanged, and false, where it is no little-endian TIFF of less than
  ///   4 GiB.
  static func addEXIF(
    _ tags: ExifTags, to memory: UnsafeMutableRawPointer, _ length: Int
  ) -> (memory: UnsafeMutableRawPointer, length: Int, isDone: Bool) {
    let at = (length + 1) / 2 * 2
    guard
      let added = tags.replacing(
        firstDirectoryOf: UnsafeRawBufferPointer(start: memory, count: length), at: at),
      let grown = g_try_realloc(memory, gsize(at + added.bytes.count))
    else { return (memory, length, false) }
    let file = UnsafeMutableRawBufferPointer(start: grown, count: at + added.bytes.count)
    if at > length { file[length] = 0 }
    UnsafeMutableRawBufferPointer(rebasing: file[at...]).copyBytes(from: added.bytes)
    for i in 0..<4 { file[4 + i] = UInt8(added.start >> (8 * i) & 255) }
    return (grown, file.count, true)
  }

  /// The EXIF of a TIFF file, as a block of its own (who made it, what it shows, how it was taken), and its IPTC
  /// records; nil where it has none.
  ///
  /// libvips 8.14 reads nothing of the one, and of the other four times as many bytes as there are.
  static func metadata(of file: UnsafeRawBufferPointer) -> (exif: [UInt8]?, iptc: [UInt8]?) {
    guard var tags = ExifTags(raw: file) else { return (nil, nil) }
    let iptc = tags.iptc
    tags.filter(MetadataKeep([.all, .gps]))
    return (tags.isEmpty ? nil : tags.bytes(most: 1 << 20), iptc)
  }
}

/// The container of JPEG XL (ISO/IEC 18181-2), into which libvips 8.14 puts no metadata: it writes a bare codestream.
enum JXLContainer {
  /// Puts a codestream in memory from g_malloc into a container with metadata in front.
  ///
  /// - Returns: the file, at another place; unchanged, and false, where it is no bare codestream or memory is short.
  static func add(
    exif: [UInt8]?, xmp: [UInt8]?, to memory: UnsafeMutableRawPointer, _ length: Int
  ) -> (memory: UnsafeMutableRawPointer, length: Int, isDone: Bool) {
    let codestream = UnsafeRawBufferPointer(start: memory, count: length)
    guard codestream.starts(with: [0xFF, 0x0A]) else { return (memory, length, false) }
    func header(_ name: String, _ count: Int) -> [UInt8] {
      // A box that is too long for its field goes on to the end of the file, which 0 says.
      let size = count + 8 < 1 << 32 ? count + 8 : 0
      return [24, 16, 8, 0].map { UInt8(size >> $0 & 255) } + Array(name.utf8)
    }
    var head = header("JXL ", 4) + [0x0D, 0x0A, 0x87, 0x0A]
    head += header("ftyp", 12) + Array("jxl ".utf8) + [0, 0, 0, 0] + Array("jxl ".utf8)
    // Four bytes tell where in the box the block starts.
    if let exif { head += header("Exif", 4 + exif.count) + [0, 0, 0, 0] + exif }
    if let xmp { head += header("xml ", xmp.count) + xmp }
    head += header("jxlc", length)
    guard let whole = g_try_malloc(gsize(head.count + length)) else { return (memory, length, false) }
    UnsafeMutableRawBufferPointer(start: whole, count: head.count).copyBytes(from: head)
    (whole + head.count).copyMemory(from: memory, byteCount: length)
    g_free(memory)
    return (whole, head.count + length, true)
  }
}

enum PNGContainer {
  /// Puts a colour profile into a PNG in memory from g_malloc, behind its header (PNG, third edition, 11.3.2.3).
  ///
  /// - Returns: the file, at another place; unchanged, and false, where it is no PNG or memory is short.
  static func addProfile(
    _ profile: [UInt8], to memory: UnsafeMutableRawPointer, _ length: Int
  ) -> (memory: UnsafeMutableRawPointer, length: Int, isDone: Bool) {
    // The signature, and the header with its length, name and checksum.
    let headLength = 8 + 25
    let file = UnsafeRawBufferPointer(start: memory, count: length)
    guard file.says("IHDR", at: 12), length > headLength, let packed = Inflate.packed(profile) else {
      return (memory, length, false)
    }
    func big32(_ value: Int) -> [UInt8] { [24, 16, 8, 0].map { UInt8(value >> $0 & 255) } }
    // A name, its end, and the method.
    let body = Array("iCCP".utf8) + Array("ICC".utf8) + [0, 0] + packed
    let sum = body.withUnsafeBytes { Inflate.crc32($0) }
    let chunk = big32(body.count - 4) + body + big32(sum)
    guard let whole = g_try_malloc(gsize(length + chunk.count)) else { return (memory, length, false) }
    whole.copyMemory(from: memory, byteCount: headLength)
    UnsafeMutableRawBufferPointer(start: whole + headLength, count: chunk.count).copyBytes(from: chunk)
    (whole + headLength + chunk.count).copyMemory(from: memory + headLength, byteCount: length - headLength)
    g_free(memory)
    return (whole, length + chunk.count, true)
  }
}
