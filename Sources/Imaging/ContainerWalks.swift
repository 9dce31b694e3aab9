/// The segments of a JPEG (ITU-T T.81, B.1.1).
enum JPEGSegments {
  /// Calls `body` with marker and payload of each segment up to the first scan or the end, until it returns false.
  static func forEach(_ b: UnsafeRawBufferPointer, _ body: (UInt8, Range<Int>) -> Bool) {
    var i = 2
    while i + 3 < b.count {
      // Decoders skip stray bytes between segments, and so does this.
      guard b[i] == 0xFF else {
        i += 1
        continue
      }
      switch b[i + 1] {
      case 0xFF: i += 1
      case 0x00, 0x01, 0xD0...0xD8: i += 2
      case 0xD9, 0xDA: return
      case let marker:
        guard let length = b.big(2, at: i + 2), length >= 2 else { return }
        guard body(marker, i + 4..<max(i + 4, min(b.count, i + 2 + length))) else { return }
        i += 2 + length
      }
    }
  }
}

/// The chunks of a PNG (PNG, third edition, 5.3).
enum PNGChunks {
  struct Chunk {
    var name: FourLetters
    /// The data, cut to what there is.
    var body: Range<Int>
    /// The checksum as written; nil where the chunk is cut short.
    var checksum: Int?
  }

  /// Calls `body` with each chunk until it returns false. Each is 12 bytes at least.
  static func forEach(_ b: UnsafeRawBufferPointer, _ body: (Chunk) -> Bool) {
    var at = 8
    while let length = b.big(4, at: at), let name = FourLetters(b, at: at + 4) {
      let end = at + 8 + length
      let chunk = Chunk(name: name, body: at + 8..<max(at + 8, min(end, b.count)), checksum: b.big(4, at: end))
      guard body(chunk) else { return }
      at = end + 4
    }
  }
}

/// The chunks of a WebP (RFC 9649).
enum RIFFChunks {
  /// Calls `body` with name, data (cut to what there is), and whether it was cut.
  static func forEach(_ b: UnsafeRawBufferPointer, _ body: (FourLetters, Range<Int>, Bool) -> Void) {
    var at = 12
    while let name = FourLetters(b, at: at), let length = b.little(4, at: at + 4) {
      let end = at + 8 + length
      body(name, at + 8..<min(end, b.count), end > b.count)
      // Data of odd length is padded.
      at = end + length % 2
    }
  }
}

/// A walk over the blocks of a GIF (GIF89a specification, 12 to 27), not unpacking any.
struct GIFBlocks {
  /// Image descriptors found, a last one that is cut short included.
  private(set) var frames = 0
  /// Frames whose data ends where it should.
  private(set) var wholeFrames = 0
  /// Bytes of comments, text and application data; of the loop count and the delays nothing to speak of.
  private(set) var extensionBytes = 0
  /// Whether the bytes end inside of a block that stands before a frame or tells of the whole, so that frames may be
  /// missing.
  private(set) var isCutInExtension = false
  /// Whether the end mark was reached.
  private(set) var hasTrailer = false

  init(_ b: UnsafeRawBufferPointer) {
    guard b.count >= 13 else { return }
    var at = 13
    if b[10] & 0x80 != 0 { at += 3 << (Int(b[10] & 7) + 1) }
    /// Skips sub-blocks; the bytes in them, or nil where they are cut short.
    func skipData() -> Int? {
      var sum = 0
      while at < b.count {
        let length = Int(b[at])
        at += 1
        if length == 0 { return sum }
        sum += length
        at += length
      }
      return nil
    }
    while at < b.count {
      switch b[at] {
      case 0x3B:
        hasTrailer = true
        return
      case 0x21:
        at += 2
        guard let length = skipData() else {
          isCutInExtension = true
          return
        }
        extensionBytes += length
      case 0x2C:
        frames += 1
        guard at + 10 < b.count else { return }
        let flags = b[at + 9]
        at += 10
        if flags & 0x80 != 0 { at += 3 << (Int(flags & 7) + 1) }
        at += 1  // the code size
        guard skipData() != nil else { return }
        wholeFrames += 1
      case 0x00: at += 1  // Some writers pad between blocks.
      default: return
      }
    }
  }
}

/// The items of a HEIF or AVIF picture (ISO/IEC 14496-12, 8.11, and 23008-12): where their bytes lie and how they hang
/// together.
struct HEIFItems {
  struct Extent {
    /// From the start of the file; nil where it lies inside the `idat` box or in another item.
    var offset: Int?
    var length: Int
  }

  struct Item {
    var id: Int
    var type: FourLetters
    var extents: [Extent] = []
    var isMetadata: Bool { type == "Exif" || type == "mime" }
  }

  private(set) var items: [Item] = []
  private(set) var primary: Int?
  /// Properties in the order in which they are counted, from 1.
  private(set) var properties: [MediaBox] = []
  /// Property numbers of each item.
  private(set) var associations: [Int: [Int]] = [:]
  /// What an item is made of: tiles of a grid, layers of an overlay.
  private(set) var parts: [Int: [Int]] = [:]
  /// The alpha and depth pictures of an item.
  private(set) var auxiliaries: [Int: [Int]] = [:]
  private let bytes: UnsafeRawBufferPointer

  /// The most items looked at, of each table; a phone's picture has some fifty, the largest grid 65,536.
  private static let most = 100_000

  init?(_ b: UnsafeRawBufferPointer) {
    bytes = b
    guard let meta = MediaBox.first("meta", b, in: 0..<b.count), meta.body.count > 4 else { return nil }
    var infos: MediaBox?
    var locations: MediaBox?
    var propertyBox: MediaBox?
    var references: MediaBox?
    var primaryBox: MediaBox?
    MediaBox.forEach(b, in: meta.body.lowerBound + 4..<meta.body.upperBound) { box in
      switch box.name {
      case "iinf": infos = infos ?? box
      case "iloc": locations = locations ?? box
      case "iprp": propertyBox = propertyBox ?? box
      case "iref": references = references ?? box
      case "pitm": primaryBox = primaryBox ?? box
      default: break
      }
    }
    if let box = primaryBox {
      primary = b.big(b.big(1, at: box.body.lowerBound) == 0 ? 2 : 4, at: box.body.lowerBound + 4)
    }
    if let infos { readInfos(infos) }
    if let locations { readLocations(locations) }
    if let propertyBox { readProperties(propertyBox) }
    if let references { readReferences(references) }
  }

  private mutating func readInfos(_ box: MediaBox) {
    guard let version = bytes.big(1, at: box.body.lowerBound) else { return }
    var found: [Item] = []
    let start = box.body.lowerBound + (version == 0 ? 6 : 8)
    MediaBox.forEach(bytes, in: start..<max(start, box.body.upperBound)) { info in
      guard info.name == "infe", found.count < Self.most, let version = bytes.big(1, at: info.body.lowerBound),
        version >= 2, let id = bytes.big(version == 2 ? 2 : 4, at: info.body.lowerBound + 4),
        let type = FourLetters(bytes, at: info.body.lowerBound + (version == 2 ? 8 : 10))
      else { return }
      found.append(Item(id: id, type: type))
    }
    items = found
  }

  private mutating func readLocations(_ box: MediaBox) {
    let b = bytes.slice(0..<box.body.upperBound)
    var at = box.body.lowerBound
    guard let version = b.big(1, at: at), let sizes = b.big(2, at: at + 4) else { return }
    let (offsetSize, lengthSize, baseSize) = (sizes >> 12 & 15, sizes >> 8 & 15, sizes >> 4 & 15)
    let indexSize = version == 1 || version == 2 ? sizes & 15 : 0
    guard [offsetSize, lengthSize, baseSize, indexSize].allSatisfy({ $0 == 0 || $0 == 4 || $0 == 8 }) else { return }
    /// A field of no bytes is 0.
    func field(_ size: Int) -> Int? {
      defer { at += size }
      return size == 0 ? 0 : b.big(size, at: at)
    }
    at += 6
    guard let count = field(version < 2 ? 2 : 4) else { return }
    var byID: [Int: Int] = [:]
    for (index, item) in items.enumerated() { byID[item.id] = index }
    var total = 0
    for _ in 0..<min(count, Self.most) {
      guard let id = field(version < 2 ? 2 : 4), let method = version == 0 ? 0 : field(2), let source = field(2),
        let base = field(baseSize), let extents = field(2)
      else { return }
      for _ in 0..<extents {
        total += 1
        guard total <= Self.most, field(indexSize) != nil, let offset = field(offsetSize),
          let length = field(lengthSize)
        else { return }
        guard let index = byID[id] else { continue }
        let (place, overflow) = base.addingReportingOverflow(offset)
        let isHere = method & 15 == 0 && source == 0
        items[index].extents.append(Extent(offset: isHere ? (overflow ? .max : place) : nil, length: length))
      }
    }
  }

  private mutating func readProperties(_ box: MediaBox) {
    var found: [MediaBox] = []
    if let container = MediaBox.first("ipco", bytes, in: box.body) {
      MediaBox.forEach(bytes, in: container.body) { if found.count < Self.most { found.append($0) } }
    }
    properties = found
    guard let table = MediaBox.first("ipma", bytes, in: box.body) else { return }
    let b = bytes.slice(0..<table.body.upperBound)
    let start = table.body.lowerBound
    guard let version = b.big(1, at: start), let flags = b.big(3, at: start + 1), let count = b.big(4, at: start + 4)
    else { return }
    var at = start + 8
    let idSize = version == 0 ? 2 : 4
    let indexSize = flags & 1 == 0 ? 1 : 2
    for _ in 0..<min(count, Self.most) {
      guard let id = b.big(idSize, at: at), let uses = b.big(1, at: at + idSize) else { return }
      at += idSize + 1
      var numbers: [Int] = []
      for _ in 0..<uses {
        guard let value = b.big(indexSize, at: at) else { return }
        // The top bit says that the property is essential.
        numbers.append(value & (indexSize == 1 ? 0x7F : 0x7FFF))
        at += indexSize
      }
      associations[id] = numbers
    }
  }

  private mutating func readReferences(_ box: MediaBox) {
    guard let version = bytes.big(1, at: box.body.lowerBound) else { return }
    let size = version == 0 ? 2 : 4
    var (parts, auxiliaries): ([Int: [Int]], [Int: [Int]]) = ([:], [:])
    var total = 0
    let start = box.body.lowerBound + 4
    MediaBox.forEach(bytes, in: start..<max(start, box.body.upperBound)) { reference in
      let at = reference.body.lowerBound
      guard let from = bytes.big(size, at: at), let count = bytes.big(2, at: at + size) else { return }
      for i in 0..<count {
        total += 1
        guard total <= Self.most, let to = bytes.big(size, at: at + size + 2 + size * i) else { return }
        switch reference.name {
        case "dimg": parts[from, default: []].append(to)
        case "auxl": auxiliaries[to, default: []].append(from)
        default: break
        }
      }
    }
    (self.parts, self.auxiliaries) = (parts, auxiliaries)
  }

  /// The items whose bytes the primary picture needs: itself, its parts, its alpha.
  var needed: Set<Int> {
    var reached: Set<Int> = []
    var open = primary.map { [$0] } ?? []
    while let id = open.popLast() {
      guard reached.insert(id).inserted else { continue }
      open += parts[id] ?? []
      open += auxiliaries[id] ?? []
    }
    return reached
  }

  /// The properties of that name which belong to an item, in order.
  func properties(_ name: FourLetters, of id: Int) -> [MediaBox] {
    (associations[id] ?? []).compactMap { number in
      number > 0 && number <= properties.count && properties[number - 1].name == name ? properties[number - 1] : nil
    }
  }

  /// Bytes of all embedded profiles.
  var profileBytes: Int {
    properties.reduce(0) { sum, box in
      guard box.name == "colr", let kind = FourLetters(bytes, at: box.body.lowerBound) else { return sum }
      return kind == "prof" || kind == "rICC" ? sum + box.body.count - 4 : sum
    }
  }
}
