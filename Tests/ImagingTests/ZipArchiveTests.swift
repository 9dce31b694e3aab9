import Imaging
import Testing

/// Archives are made here byte by byte, after PKWARE's APPNOTE, so that each can be odd in one place.
@Suite struct ZipArchiveTests {
  /// One file of an archive.
  private struct File {
    var name = "a.txt"
    /// What it unpacks to.
    var content: [UInt8] = Array("some content, some content, some content".utf8)
    /// As it is packed; nil for stored.
    var packed: [UInt8]?
    var method: Int?
    var flags = 0
    var crc: UInt32?
    var size: Int?
    var localName: String?
    var offset: Int?
  }

  /// Bit by bit (APPNOTE, section 4.4.7).
  private static func crc(_ bytes: [UInt8]) -> UInt32 {
    var crc: UInt32 = 0xFFFF_FFFF
    for byte in bytes {
      crc ^= UInt32(byte)
      for _ in 0..<8 { crc = crc & 1 == 1 ? crc >> 1 ^ 0xEDB8_8320 : crc >> 1 }
    }
    return ~crc
  }

  /// Deflate in stored blocks (RFC 1951, section 3.2.4).
  private static func deflated(_ bytes: [UInt8]) -> [UInt8] {
    var out: [UInt8] = []
    var rest = bytes[...]
    repeat {
      let part = rest.prefix(60_000)
      rest = rest.dropFirst(60_000)
      let length = part.count
      out += [rest.isEmpty ? 1 : 0] + little(length, 2) + little(~length & 0xFFFF, 2) + part
    } while !rest.isEmpty
    return out
  }

  private static func little(_ value: Int, _ count: Int) -> [UInt8] {
    (0..<count).map { UInt8(truncatingIfNeeded: value >> (8 * $0)) }
  }

  private static func archive(_ files: [File], comment: String = "", count: Int? = nil) -> [UInt8] {
    var body: [UInt8] = []
    var directory: [UInt8] = []
    for file in files {
      let data = file.packed ?? file.content
      let method = file.method ?? (file.packed == nil ? 0 : 8)
      let numbers =
        little(20, 2) + little(file.flags, 2) + little(method, 2) + [0, 0, 0, 0]
        + little(Int(file.crc ?? crc(file.content)), 4) + little(data.count, 4)
        + little(file.size ?? file.content.count, 4)
      let name = Array(file.name.utf8)
      let localName = Array((file.localName ?? file.name).utf8)
      directory +=
        [0x50, 0x4B, 1, 2] + little(20, 2) + numbers + little(name.count, 2) + [UInt8](repeating: 0, count: 12)
        + little(file.offset ?? body.count, 4) + name
      body += [0x50, 0x4B, 3, 4] + numbers + little(localName.count, 2) + [0, 0] + localName + data
    }
    let start = body.count
    let entries = little(count ?? files.count, 2)
    return body + directory + [0x50, 0x4B, 5, 6, 0, 0, 0, 0] + entries + entries + little(directory.count, 4)
      + little(start, 4) + little(comment.utf8.count, 2) + Array(comment.utf8)
  }

  private func failure(_ archive: [UInt8], limit: Int = 1 << 20) -> ImagingError? {
    do throws(ImagingError) {
      _ = try ZipArchive.files(["a.txt"], in: archive, limit: limit)
      return nil
    } catch {
      return error
    }
  }

  @Test("stored and deflated files, among others, before a comment")
  func whole() throws {
    let long = (0..<150_000).map { UInt8(truncatingIfNeeded: $0 &* 31) }
    let files = [
      File(name: "other", content: []), File(),
      File(name: "b/ü.bin", content: long, packed: Self.deflated(long)),
    ]
    for comment in ["", "PK\u{5}\u{6} is no end here, nor is this: \(String(repeating: "x", count: 300))"] {
      let found = try ZipArchive.files(
        ["b/ü.bin", "a.txt"], in: Self.archive(files, comment: comment), limit: 150_000)
      #expect(found["a.txt"] == File().content)
      #expect(found["b/ü.bin"] == long)
      #expect(found.count == 2)
    }
  }

  @Test("nothing unpacks to more than is allowed, and nothing to more than it says")
  func bombs() {
    let zeros = [UInt8](repeating: 0, count: 100_000)
    let packed = Self.deflated(zeros)
    #expect(failure(Self.archive([File(content: zeros, packed: packed)]), limit: 99_999)?.code == .limit)
    #expect(failure(Self.archive([File(content: zeros, packed: packed)]), limit: 100_000) == nil)
    // A directory that says too little.
    #expect(failure(Self.archive([File(content: zeros, packed: packed, size: 10)]))?.code == .damaged)
    #expect(failure(Self.archive([File(content: zeros, packed: packed, size: 100_001)]))?.code == .damaged)
    // Many files.
    let many = (0..<65).map { File(name: "f\($0)") }
    #expect(failure(Self.archive(many + [File()]))?.code == .unsupported)
  }

  @Test("what is odd is refused")
  func odd() {
    let good = Self.archive([File()])
    #expect(failure(good) == nil)
    let content = File().content
    let packed = Self.deflated(content)
    let rows: [(String, [UInt8], ImagingError.Code)] = [
      ("empty", [], .damaged), ("no archive", [UInt8](repeating: 65, count: 500), .damaged),
      ("cut at its end", Array(good.dropLast()), .damaged), ("with bytes after it", good + [0], .damaged),
      ("without the file", Self.archive([File(name: "b.txt")]), .damaged),
      ("twice the same name", Self.archive([File(), File()]), .damaged),
      ("encrypted", Self.archive([File(flags: 1)]), .unsupported),
      ("another method", Self.archive([File(method: 12)]), .unsupported),
      ("wrong checksum", Self.archive([File(crc: 1)]), .damaged),
      ("two names", Self.archive([File(localName: "b.txt")]), .damaged),
      ("an offset beyond", Self.archive([File(offset: 5000)]), .damaged),
      ("an offset into the file", Self.archive([File(offset: 3)]), .damaged),
      ("64 bits", Self.archive([File(offset: 0xFFFF_FFFF)]), .unsupported),
      ("stored with two lengths", Self.archive([File(size: 3)]), .damaged),
      ("a broken stream", Self.archive([File(packed: [0xFF, 0xFF, 0xFF])]), .damaged),
      ("a stream cut short", Self.archive([File(content: content, packed: packed.dropLast(3))]), .damaged),
      ("bytes after the stream", Self.archive([File(content: content, packed: packed + [0, 0])]), .damaged),
      ("more entries than there are", Self.archive([File()], count: 2), .damaged),
    ]
    for (name, archive, code) in rows {
      #expect(failure(archive)?.code == code, "\(name): \(failure(archive)?.message ?? "read")")
    }
  }

  @Test("no cut and no changed byte crashes")
  func mutations() {
    let long = (0..<3000).map { UInt8(truncatingIfNeeded: $0 &* 7) }
    let good = Self.archive([File(content: long, packed: Self.deflated(long)), File(name: "b")])
    for length in 0..<good.count { #expect(failure(Array(good[..<length])) != nil) }
    for place in good.indices {
      for value: UInt8 in [0, 0xFF, good[place] ^ 0x80, good[place] &+ 1] {
        var other = good
        other[place] = value
        // Times and versions may be anything; content may not.
        if let files = try? ZipArchive.files(["a.txt"], in: other, limit: 1 << 20) { #expect(files["a.txt"] == long) }
      }
    }
  }
}
