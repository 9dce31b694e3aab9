/// The directories of a TIFF or BigTIFF file (TIFF 6.0, section 2; the BigTIFF design of libtiff), read in place.
struct TIFFDirectories {
  let bytes: UnsafeRawBufferPointer
  private let isLittle: Bool
  private let isBig: Bool
  /// Where the first directory lies.
  let first: Int

  init?(_ bytes: UnsafeRawBufferPointer) {
    self.bytes = bytes
    guard bytes.count >= 8, bytes[0] == bytes[1], bytes[0] == 0x49 || bytes[0] == 0x4D else { return nil }
    isLittle = bytes[0] == 0x49
    let version = isLittle ? bytes.little(2, at: 2) : bytes.big(2, at: 2)
    guard version == 42 || version == 43 else { return nil }
    isBig = version == 43
    let (size, at) = isBig ? (8, 8) : (4, 4)
    guard let first = isLittle ? bytes.little(size, at: at) : bytes.big(size, at: at) else { return nil }
    self.first = first
  }

  func number(_ size: Int, at offset: Int) -> Int? {
    isLittle ? bytes.little(size, at: offset) : bytes.big(size, at: offset)
  }

  struct Entry {
    var tag: Int
    /// Bytes of one value; 0 for a type that is not known.
    var unit: Int
    var count: Int
    /// Where the values lie, whether there are bytes or not.
    var at: Int

    /// Bytes of all values, cut at `Int.max`.
    var length: Int {
      let (product, overflow) = unit.multipliedReportingOverflow(by: count)
      return overflow ? .max : product
    }
  }

  struct Directory {
    fileprivate let file: TIFFDirectories
    var entries: [Entry]
    /// Where the next directory lies; 0 after the last.
    var next: Int

    func entry(_ tag: Int) -> Entry? { entries.first { $0.tag == tag } }

    /// The first value of a tag, where it is an unsigned whole number.
    func number(_ tag: Int) -> Int? { entry(tag).flatMap { value($0, 0) } }

    /// Bytes that a tag's values take.
    func length(_ tag: Int) -> Int { entry(tag)?.length ?? 0 }

    func value(_ entry: Entry, _ index: Int) -> Int? {
      guard index < entry.count, [1, 2, 4, 8].contains(entry.unit) else { return nil }
      return file.number(entry.unit, at: entry.at + entry.unit * index)
    }
  }

  /// Bytes of one value, by type.
  private static let units = [
    1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8,
  ]

  /// nil where no directory lies there, or it is cut short.
  func directory(at offset: Int) -> Directory? {
    let (countSize, entrySize, valueSize) = isBig ? (8, 20, 8) : (2, 12, 4)
    guard offset > 0, let count = number(countSize, at: offset), count > 0,
      count <= (bytes.count - offset - countSize) / entrySize
    else { return nil }
    var entries: [Entry] = []
    // TIFF allows 65,535 entries; a real file has some dozens, and what follows is not looked for.
    for i in 0..<min(count, 4096) {
      let at = offset + countSize + entrySize * i
      guard let tag = number(2, at: at), let type = number(2, at: at + 2),
        let values = number(valueSize, at: at + 4)
      else { continue }
      var entry = Entry(tag: tag, unit: Self.units[type] ?? 0, count: values, at: at + 4 + valueSize)
      if entry.length > valueSize {
        guard let elsewhere = number(valueSize, at: entry.at) else { continue }
        entry.at = elsewhere
      }
      entries.append(entry)
    }
    return Directory(
      file: self, entries: entries, next: number(valueSize, at: offset + countSize + entrySize * count) ?? 0)
  }

  /// Calls `body` for each directory of the chain until it returns false; a chain that runs in a circle ends where it
  /// closes.
  ///
  /// - Parameter budget: so many entries, after which no other directory is read: directories may lie over each other,
  ///   so the file's length is no bound.
  /// - Returns: false where the chain leads to a place that holds no directory.
  @discardableResult func walk(budget: Int = 20_000_000, _ body: (Directory) -> Bool) -> Bool {
    var seen: Set<Int> = []
    var at = first
    var budget = budget
    while at != 0, budget > 0, seen.insert(at).inserted {
      guard let directory = directory(at: at) else { return false }
      budget -= directory.entries.count + 1
      guard body(directory) else { return true }
      at = directory.next
    }
    return true
  }
}
