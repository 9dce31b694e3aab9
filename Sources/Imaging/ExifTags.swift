/// An EXIF block (CIPA DC-008, TIFF 6.0) taken apart, to be filtered, edited and written anew.
///
/// The thumbnail's directory and the interoperability directory are not read: the one is stale once the picture
/// changes, the other tells of a file layout that is not ours. What is damaged within is left out.
struct ExifTags {
  struct Entry {
    var tag: Int
    /// The TIFF field type: 2 text, 3 and 4 unsigned, 5 fraction, 7 bytes …
    var type: Int
    var count: Int
    /// In the block's byte order.
    var value: [UInt8]
  }

  private(set) var isLittle = true
  private(set) var main: [Entry] = []
  private(set) var exif: [Entry] = []
  private(set) var gps: [Entry] = []

  init() {}

  /// nil where the bytes are no EXIF block.
  init?(_ bytes: [UInt8]) {
    guard let tags = bytes.withUnsafeBytes({ ExifTags(raw: $0) }) else { return nil }
    self = tags
  }

  /// Reads the block; a whole TIFF file will do. nil where it is neither.
  init?(raw: UnsafeRawBufferPointer) {
    let base = raw.starts(with: [0x45, 0x78, 0x69, 0x66, 0, 0]) ? 6 : 0
    guard raw.count >= base + 8 else { return nil }
    switch (raw[base], raw[base + 1]) {
    case (0x49, 0x49): isLittle = true
    case (0x4D, 0x4D): isLittle = false
    default: return nil
    }
    let reader = DirectoryReader(raw: raw, base: base, isLittle: isLittle)
    guard reader.number(base + 2, 2) == 42 else { return nil }
    main = reader.entries(at: reader.number(base + 4, 4))
    exif = pointer(Self.exifPointer).map { reader.entries(at: $0) } ?? []
    gps = pointer(Self.gpsPointer).map { reader.entries(at: $0) } ?? []
    main.removeAll { $0.tag == Self.exifPointer || $0.tag == Self.gpsPointer }
  }

  var isEmpty: Bool { main.isEmpty && exif.isEmpty && gps.isEmpty }
  /// 1…8 as stored, unchecked.
  var orientation: Int? { main.first { $0.tag == 0x0112 && $0.type == 3 && $0.count >= 1 }.map { number($0.value, 2) } }
  var artist: String? { text(0x013B) }
  var copyright: String? { text(0x8298) }
  var description: String? { text(0x010E) }

  /// A text of the main directory, its parts (photographer's and editor's copyright) joined; UTF-8, else Latin-1.
  private func text(_ tag: Int) -> String? {
    guard let entry = main.first(where: { $0.tag == tag }), entry.type == 2 || entry.type == 129 else { return nil }
    let parts = entry.value.split(separator: 0).map { decodedText($0) }.filter { !$0.isEmpty }
    return parts.isEmpty ? nil : parts.joined(separator: ", ")
  }

  private func pointer(_ tag: Int) -> Int? {
    main.first { $0.tag == tag && $0.value.count >= 4 }.map { number($0.value, 4) }
  }

  private func number(_ value: [UInt8], _ size: Int) -> Int {
    let bytes = isLittle ? Array(value.prefix(size).reversed()) : Array(value.prefix(size))
    return bytes.reduce(0) { $0 << 8 | Int($1) }
  }

  // MARK: Editing

  /// Leaves what is to be kept, and nothing that describes the file the block came from.
  mutating func filter(_ keep: MetadataKeep) {
    main.removeAll { Self.stale.contains($0.tag) || !keep.keeps(Self.subjects[$0.tag], in: .exif) }
    exif.removeAll { Self.stale.contains($0.tag) || !keep.keeps(Self.subjects[$0.tag], in: .exif) }
    if !keep.keeps(.gps, in: .exif) { gps = [] }
  }

  mutating func set(artist: String?) { set(0x013B, artist, clearing: [0x9C9D]) }
  mutating func set(copyright: String?) { set(0x8298, copyright, clearing: []) }
  mutating func set(description: String?) { set(0x010E, description, clearing: [0x9C9B, 0x9C9C, 0x9C9F]) }

  /// Writes a text (UTF-8, as all readers of today take it) over a tag and takes out those that say the same elsewhere.
  private mutating func set(_ tag: Int, _ text: String?, clearing others: [Int]) {
    guard let text else { return }
    main.removeAll { $0.tag == tag || others.contains($0.tag) }
    let bytes = utf8(text, most: 30_000)
    if !bytes.isEmpty { main.append(Entry(tag: tag, type: 2, count: bytes.count + 1, value: bytes + [0])) }
  }

  /// Adds records of IPTC, as a TIFF holds them in its first directory.
  mutating func add(iptc: [UInt8]) {
    main.append(Entry(tag: 0x83BB, type: 7, count: iptc.count, value: iptc))
  }

  /// The records of IPTC in a TIFF, where there are any.
  var iptc: [UInt8]? { main.first { $0.tag == 0x83BB }?.value }

  /// Adds what a block that speaks of the exposure must say: the version, and whether the colours are sRGB.
  mutating func complete(isSRGB: Bool) {
    guard !exif.isEmpty else { return }
    exif.append(Entry(tag: 0x9000, type: 7, count: 4, value: Array("0232".utf8)))
    exif.append(Entry(tag: 0xA001, type: 3, count: 1, value: ordered(isSRGB ? 1 : 0xFFFF, 2)))
  }

  /// The same tags with numbers in little-endian order.
  func littleEndian() -> ExifTags {
    guard !isLittle else { return self }
    func turned(_ entry: Entry) -> Entry {
      guard let unit = Self.unit(entry.type), unit > 1 else { return entry }
      // A fraction is two numbers.
      let size = entry.type == 5 || entry.type == 10 ? 4 : unit
      var result = entry
      result.value = stride(from: 0, to: entry.value.count, by: size).flatMap {
        entry.value[$0..<min($0 + size, entry.value.count)].reversed()
      }
      return result
    }
    var result = self
    result.isLittle = true
    result.main = main.map(turned)
    result.exif = exif.map(turned)
    result.gps = gps.map(turned)
    return result
  }

  // MARK: Writing

  /// The block, from its byte order mark on; nil where it would be longer than `most` bytes.
  func bytes(most: Int) -> [UInt8]? {
    let size = [main, exif, gps].joined().reduce(100) { $0 + 14 + $1.value.count }
    guard size <= most else { return nil }
    let (directories, start) = layOut(at: 8, among: [], next: 0)
    return (isLittle ? [0x49, 0x49, 0x2A, 0] : [0x4D, 0x4D, 0, 0x2A]) + ordered(start, 4) + directories
  }

  /// The directories that a little-endian TIFF gets in place of its first, to be appended at `offset`; these tags come
  /// beside those it has.
  ///
  /// - Returns: the bytes and where its first directory is then; nil where the file is of another kind.
  func replacing(firstDirectoryOf tiff: UnsafeRawBufferPointer, at offset: Int) -> (bytes: [UInt8], start: Int)? {
    let reader = DirectoryReader(raw: tiff, base: 0, isLittle: true)
    guard tiff.count >= 8, tiff.starts(with: [0x49, 0x49, 0x2A, 0]), offset < 1 << 32 - 1 << 20 else { return nil }
    let start = reader.number(4, 4)
    let count = reader.number(start, 2)
    let end = start + 2 + 12 * count
    guard end + 4 <= tiff.count else { return nil }
    // Kept as they are: their last four bytes are a value or an offset, either of which still holds.
    let old = (0..<count).map { index in
      let at = start + 2 + 12 * index
      return (tag: reader.number(at, 2), bytes: Array(tiff[at..<at + 12]))
    }
    return littleEndian().layOut(at: offset, among: old, next: reader.number(end, 4))
  }

  /// All directories, laid out from an offset on; the main one stands last.
  ///
  /// - Parameters:
  ///   - old: entries of the main directory that are there already, 12 bytes each; they go before ours.
  ///   - next: where the file's next directory is.
  private func layOut(
    at offset: Int, among old: [(tag: Int, bytes: [UInt8])], next: Int
  ) -> (bytes: [UInt8], start: Int) {
    var result: [UInt8] = []
    var entries = main.filter { entry in !old.contains { $0.tag == entry.tag } }
    for (tag, list) in [(Self.exifPointer, exif), (Self.gpsPointer, gps)] where !list.isEmpty {
      entries.append(Entry(tag: tag, type: 4, count: 1, value: ordered(offset + result.count, 4)))
      result += directory(list, at: offset + result.count, among: [], next: 0)
    }
    let start = offset + result.count
    return (result + directory(entries, at: start, among: old, next: next), start)
  }

  private func directory(
    _ entries: [Entry], at offset: Int, among old: [(tag: Int, bytes: [UInt8])], next: Int
  ) -> [UInt8] {
    var rows = old
    var data: [UInt8] = []
    let dataAt = offset + 2 + 12 * (old.count + entries.count) + 4
    for entry in entries {
      var row = ordered(entry.tag, 2) + ordered(entry.type, 2) + ordered(entry.count, 4)
      if entry.value.count <= 4 {
        row += entry.value + [UInt8](repeating: 0, count: 4 - entry.value.count)
      } else {
        row += ordered(dataAt + data.count, 4)
        data += entry.value
        if data.count % 2 == 1 { data.append(0) }
      }
      rows.append((entry.tag, row))
    }
    rows.sort { $0.tag < $1.tag }
    return ordered(rows.count, 2) + rows.flatMap(\.bytes) + ordered(next, 4) + data
  }

  private func ordered(_ value: Int, _ size: Int) -> [UInt8] {
    let little = (0..<size).map { UInt8(value >> (8 * $0) & 255) }
    return isLittle ? little : little.reversed()
  }

  // MARK: Tags

  private static let exifPointer = 0x8769
  private static let gpsPointer = 0x8825

  fileprivate static func unit(_ type: Int) -> Int? {
    switch type {
    case 1, 2, 6, 7, 129: 1
    case 3, 8: 2
    case 4, 9, 11, 13: 4
    case 5, 10, 12: 8
    default: nil
    }
  }

  /// What tells of the source's file and pixels, and not of the picture. libvips writes sides and resolution anew.
  private static let stale: Set<Int> = [
    // Sides, layout and compression.
    0x00FE, 0x00FF, 0x0100, 0x0101, 0x0102, 0x0103, 0x0106, 0x010A, 0x0111, 0x0112, 0x0115, 0x0116, 0x0117, 0x0118,
    0x0119, 0x011A, 0x011B, 0x011C, 0x0128, 0x0129, 0x013D, 0x0140, 0x0142, 0x0143, 0x0144, 0x0145, 0x0152, 0x0153,
    0x015B, 0x0200, 0x0201, 0x0202, 0x9101, 0x9102, 0xA002, 0xA003,
    // Colours.
    0x012D, 0x013E, 0x013F, 0x0211, 0x0212, 0x0213, 0x0214, 0xA001, 0xA500,
    // Other blocks within, and other pictures.
    0x014A, 0x02BC, 0x83BB, 0x8649, 0x8773, 0xA005, 0xC4A5, 0xC6D2, 0xEA1C, 0xEA1D, 0x935C,
    // The maker's note, whose offsets count from where it stood; the versions are written anew.
    0x927C, 0xC634, 0x9000, 0xA000,
  ]

  private static let subjects: [Int: MetadataKind] = {
    let lists: [(MetadataKind, [Int])] = [
      (.copyright, [0x8298]),
      (.creator, [0x013B, 0x9C9D]),
      (.description, [0x010E, 0x9C9B, 0x9C9F]),
      (.comments, [0x9286, 0x9C9C]),
      (.keywords, [0x9C9E, 0x4746, 0x4749]),
      (.dates, [0x0132, 0x9003, 0x9004, 0x9010, 0x9011, 0x9012, 0x9290, 0x9291, 0x9292]),
      (.camera, [0x010F, 0x0110, 0xA430, 0xA431]),
      (.lens, [0x9205, 0x920A, 0xA405, 0xA432, 0xA433, 0xA434, 0xA435]),
      (
        .exposure,
        [
          0x829A, 0x829D, 0x8822, 0x8824, 0x8827, 0x8830, 0x8831, 0x8832, 0x8833, 0x8834, 0x8835, 0x9201, 0x9202,
          0x9203, 0x9204, 0x9206, 0x9207, 0x9208, 0x9209, 0x920A, 0xA20B, 0xA215, 0xA217, 0xA300, 0xA301, 0xA401,
          0xA402, 0xA403, 0xA404, 0xA405, 0xA406, 0xA407, 0xA408, 0xA409, 0xA40A, 0xA40C,
        ]
      ),
    ]
    var table: [Int: MetadataKind] = [:]
    for (kind, tags) in lists { for tag in tags where table[tag] == nil { table[tag] = kind } }
    return table
  }()
}

/// Reads the directories of a TIFF structure without trusting a number in it.
private struct DirectoryReader {
  let raw: UnsafeRawBufferPointer
  let base: Int
  let isLittle: Bool

  func number(_ at: Int, _ size: Int) -> Int {
    guard at >= 0, at + size <= raw.count else { return 0 }
    return (0..<size).reduce(0) { sum, i in sum << 8 | Int(raw[isLittle ? at + size - 1 - i : at + i]) }
  }

  func entries(at offset: Int) -> [ExifTags.Entry] {
    let start = base + offset
    guard start + 2 <= raw.count else { return [] }
    var result: [ExifTags.Entry] = []
    // Values that overlap could make a small block large.
    var left = 1 << 20
    for index in 0..<number(start, 2) {
      let at = start + 2 + 12 * index
      guard at + 12 <= raw.count else { break }
      let type = number(at + 2, 2)
      let count = number(at + 4, 4)
      guard let unit = ExifTags.unit(type), count > 0 else { continue }
      let size = count * unit
      let valueAt = size <= 4 ? at + 8 : base + number(at + 8, 4)
      guard size <= left, valueAt + size <= raw.count else { continue }
      left -= size
      let tag = number(at, 2)
      guard !result.contains(where: { $0.tag == tag }) else { continue }
      result.append(ExifTags.Entry(tag: tag, type: type, count: count, value: Array(raw[valueAt..<valueAt + size])))
      if result.count == 1_000 { break }
    }
    return result
  }
}

/// Text as UTF-8, without NULs, cut between characters where it is longer than `most` bytes.
func utf8(_ text: String, most: Int) -> [UInt8] {
  var result: [UInt8] = []
  for character in text where character != "\0" {
    guard result.count + character.utf8.count <= most else { break }
    result += character.utf8
  }
  return result
}

/// Text of old metadata: UTF-8 where it is that, else Latin-1; spaces at the ends go.
func decodedText(_ bytes: some Sequence<UInt8>) -> String {
  let raw = Array(bytes)
  let text =
    String(validating: raw, as: UTF8.self)
    ?? String(String.UnicodeScalarView(raw.map { Unicode.Scalar($0) }))
  let scalars = text.unicodeScalars
  let isBlank = { (s: Unicode.Scalar) in s.value <= 0x20 }
  guard let first = scalars.firstIndex(where: { !isBlank($0) }), let last = scalars.lastIndex(where: { !isBlank($0) })
  else { return "" }
  return String(scalars[first...last])
}
