/// Reads the files of a small zip archive (PKWARE's APPNOTE, sections 4.3 to 4.5), in memory and within bounds.
///
/// Everything is checked against the directory at the end of the archive: names, sizes and CRC-32. Encryption, several
/// volumes, the 64-bit extension and other methods than stored and deflated are refused.
public enum ZipArchive {
  private struct Entry {
    var name: [UInt8]
    var method: Int
    var crc: Int
    var packed: Int
    var size: Int
    var offset: Int
  }

  /// The most files an archive may list.
  private static let mostEntries = 64

  /// The files of these names.
  ///
  /// - Parameter limit: the most bytes that one of them may unpack to; nothing beyond is unpacked.
  /// - Throws: `damaged` where one is missing or the archive is broken, `unsupported` for what is not read here, `limit`.
  public static func files(
    _ names: [String], in bytes: [UInt8], limit: Int
  ) throws(ImagingError) -> [String: [UInt8]] {
    let result: Result<[String: [UInt8]], ImagingError> = bytes.withUnsafeBytes { raw in
      do throws(ImagingError) { return .success(try files(names, in: raw, limit: limit)) } catch {
        return .failure(error)
      }
    }
    return try result.get()
  }

  private static func files(
    _ names: [String], in bytes: UnsafeRawBufferPointer, limit: Int
  ) throws(ImagingError) -> [String: [UInt8]] {
    let (entries, directory) = try entries(of: bytes)
    var found: [String: [UInt8]] = [:]
    for name in names {
      let matches = entries.filter { $0.name.elementsEqual(name.utf8) }
      guard let entry = matches.first else { throw broken("has no \(name)") }
      // Readers differ in which one they take.
      guard matches.count == 1 else { throw broken("has \(name) twice") }
      found[name] = try content(of: entry, name, in: bytes, before: directory, limit: limit)
    }
    return found
  }

  /// The entries, and where their directory begins.
  private static func entries(of bytes: UnsafeRawBufferPointer) throws(ImagingError) -> ([Entry], directory: Int) {
    // 22 bytes, and a comment of up to 65,535 after them.
    let last = bytes.count - 22
    guard last >= 0 else { throw broken("is cut short") }
    let ends = stride(from: last, through: max(0, last - 65_535), by: -1)
    guard let end = ends.first(where: { number(4, bytes, $0) == 0x0605_4B50 && number(2, bytes, $0 + 20) == last - $0 })
    else { throw broken("has no directory at its end: it is cut short, or no zip archive") }
    let count = number(2, bytes, end + 10)
    let size = number(4, bytes, end + 12)
    let start = number(4, bytes, end + 16)
    guard number(2, bytes, end + 4) == 0, number(2, bytes, end + 6) == 0, number(2, bytes, end + 8) == count else {
      throw unsupported("has several volumes")
    }
    guard count != 0xFFFF, start != 0xFFFF_FFFF else { throw unsupported("is a 64-bit zip archive") }
    guard count <= mostEntries else { throw unsupported("lists \(count) files, more than \(mostEntries)") }
    guard start <= end, size == end - start else { throw broken("has a directory that does not lie within it") }
    var entries: [Entry] = []
    var at = start
    for _ in 0..<count {
      guard at + 46 <= end, number(4, bytes, at) == 0x0201_4B50 else { throw broken("has a broken directory") }
      let lengths = [28, 30, 32].map { number(2, bytes, at + $0) }
      let next = at + 46 + lengths.reduce(0, +)
      guard next <= end else { throw broken("has a broken directory") }
      let name = Array(bytes[at + 46..<at + 46 + lengths[0]])
      guard number(2, bytes, at + 8) & 0x2041 == 0 else { throw unsupported("is encrypted") }
      let entry = Entry(
        name: name, method: number(2, bytes, at + 10), crc: number(4, bytes, at + 16),
        packed: number(4, bytes, at + 20),
        size: number(4, bytes, at + 24), offset: number(4, bytes, at + 42))
      guard entry.packed != 0xFFFF_FFFF, entry.size != 0xFFFF_FFFF, entry.offset != 0xFFFF_FFFF else {
        throw unsupported("is a 64-bit zip archive")
      }
      entries.append(entry)
      at = next
    }
    guard at == end else { throw broken("has a broken directory") }
    return (entries, start)
  }

  private static func content(
    of entry: Entry, _ name: String, in bytes: UnsafeRawBufferPointer, before directory: Int, limit: Int
  ) throws(ImagingError) -> [UInt8] {
    guard entry.size <= limit else {
      throw ImagingError(.limit, "\(name) of this zip archive unpacks to \(entry.size) bytes, more than \(limit)")
    }
    guard entry.offset + 30 <= directory, number(4, bytes, entry.offset) == 0x0403_4B50 else {
      throw broken("has no \(name) where its directory says")
    }
    let nameLength = number(2, bytes, entry.offset + 26)
    let start = entry.offset + 30 + nameLength + number(2, bytes, entry.offset + 28)
    guard start <= directory, entry.packed <= directory - start,
      bytes[entry.offset + 30..<entry.offset + 30 + nameLength].elementsEqual(entry.name),
      number(2, bytes, entry.offset + 8) == entry.method
    else { throw broken("has no \(name) where its directory says") }
    let packed = UnsafeRawBufferPointer(rebasing: bytes[start..<start + entry.packed])
    let content: [UInt8]
    switch entry.method {
    case 0:
      guard entry.packed == entry.size else { throw broken("gives two lengths for \(name)") }
      content = Array(packed)
    case 8:
      var unpacked: [UInt8] = []
      // What it says may be a lie: room for that much is only made as it comes.
      unpacked.reserveCapacity(min(entry.size, entry.packed * 4))
      let result = Inflate.run(packed, .raw, limit: entry.size) { unpacked.append(contentsOf: $0) }
      guard case .whole = result.ending, result.used == entry.packed, result.produced == entry.size else {
        throw broken("has a \(name) that cannot be unpacked")
      }
      content = unpacked
    default: throw unsupported("packs \(name) by method \(entry.method)")
    }
    guard content.withUnsafeBytes({ Inflate.crc32($0) }) == entry.crc else {
      throw broken("has a \(name) with a wrong checksum")
    }
    return content
  }

  /// Little-endian; the caller has checked that it lies within.
  private static func number(_ count: Int, _ bytes: UnsafeRawBufferPointer, _ at: Int) -> Int {
    (0..<count).reduce(0) { $0 | Int(bytes[at + $1]) << (8 * $1) }
  }

  private static func broken(_ what: String) -> ImagingError { ImagingError(.damaged, "this zip archive \(what)") }

  private static func unsupported(_ what: String) -> ImagingError {
    ImagingError(.unsupported, "this zip archive \(what), which is not read here")
  }
}
