/// IPTC-IIM records (version 4), which newsrooms' programs write.
struct IPTCRecords {
  struct Dataset {
    var record: UInt8
    var number: UInt8
    var value: [UInt8]
  }

  private(set) var datasets: [Dataset] = []

  /// Reads records, bare as in TIFF or in a Photoshop block as in JPEG; empty where there are none.
  init(_ bytes: [UInt8]) {
    var i = Self.start(in: bytes)
    while i + 5 <= bytes.count, bytes[i] == 0x1C {
      let size = Int(bytes[i + 3]) << 8 | Int(bytes[i + 4])
      // Longer values have another form, and hold no text.
      guard size < 0x8000, i + 5 + size <= bytes.count else { break }
      datasets.append(
        Dataset(record: bytes[i + 1], number: bytes[i + 2], value: Array(bytes[i + 5..<i + 5 + size])))
      i += 5 + size
    }
    datasets.removeAll { $0.record != 2 }
  }

  /// Where the records start: in the resource 0x0404 of a Photoshop block, or at the first that looks like one.
  private static func start(in bytes: [UInt8]) -> Int {
    var i = bytes.starts(with: Array("Photoshop 3.0\0".utf8)) ? 14 : 0
    while i + 12 <= bytes.count, bytes[i..<i + 4].elementsEqual(Array("8BIM".utf8)) {
      let id = Int(bytes[i + 4]) << 8 | Int(bytes[i + 5])
      // The name is a Pascal string, padded to be even with its length byte.
      let sizeAt = i + 6 + (Int(bytes[i + 6]) + 2) / 2 * 2
      guard sizeAt + 4 <= bytes.count else { return bytes.count }
      let size = bytes[sizeAt..<sizeAt + 4].reduce(0) { $0 << 8 | Int($1) }
      if id == 0x0404 { return sizeAt + 4 }
      i = sizeAt + 4 + (size + 1) / 2 * 2
    }
    guard i == 0 else { return bytes.count }
    return bytes.indices.dropLast(4).first { bytes[$0] == 0x1C && (1...9).contains(bytes[$0 + 1]) } ?? bytes.count
  }

  /// The first text of a dataset that is not empty.
  func text(_ number: UInt8) -> String? { texts(number).first }

  func texts(_ number: UInt8) -> [String] {
    datasets.filter { $0.number == number }.map { decodedText($0.value) }.filter { !$0.isEmpty }
  }

  /// Whether there is anything but the version of the record.
  var isEmpty: Bool { !datasets.contains { $0.number != 0 } }

  mutating func filter(_ keep: MetadataKeep) {
    datasets.removeAll { !keep.keeps(Self.subject($0.number), in: .iptc) }
  }

  /// Writes a text over all of a dataset; an empty one takes it out.
  mutating func set(_ number: UInt8, _ text: String?) {
    guard let text else { return }
    datasets.removeAll { $0.number == number }
    if !text.isEmpty { datasets.append(Dataset(record: 2, number: number, value: Array(text.utf8))) }
  }

  /// The records, their text in UTF-8 and saying so (1:90).
  func bytes() -> [UInt8] {
    var result: [UInt8] = [0x1C, 1, 90, 0, 3, 0x1B, 0x25, 0x47, 0x1C, 2, 0, 0, 2, 0, 4]
    for dataset in datasets.sorted(by: { $0.number < $1.number }) where dataset.number != 0 {
      let value = Self.binary.contains(dataset.number) ? dataset.value : utf8(decodedText(dataset.value), most: 32_000)
      guard value.count < 0x8000 else { continue }
      result += [0x1C, 2, dataset.number, UInt8(value.count >> 8), UInt8(value.count & 255)] + value
    }
    return result
  }

  /// The records in a Photoshop block, as JPEG holds them. What else such a block had (thumbnail, paths, digests) was
  /// about the old file.
  func photoshopBlock() -> [UInt8] {
    let data = bytes()
    let size = [24, 16, 8, 0].map { UInt8(data.count >> $0 & 255) }
    return Array("Photoshop 3.0\0".utf8) + Array("8BIM".utf8) + [4, 4, 0, 0] + size + data
      + (data.count % 2 == 1 ? [0] : [])
  }

  /// Datasets that are no text: object previews and rasterised captions.
  private static let binary: Set<UInt8> = [125, 200, 201, 202]

  private static func subject(_ number: UInt8) -> MetadataKind? {
    switch number {
    case 116: .copyright
    case 80, 85, 118: .creator
    case 110, 115: .credit
    case 5, 105, 120, 122: .description
    case 15, 20, 25: .keywords
    case 30, 35, 37, 38, 47, 55, 60, 62, 63: .dates
    case 26, 27, 90, 92, 95, 100, 101: .place
    default: nil
    }
  }

  /// Puts what XMP does not say yet into it, by the IPTC Photo Metadata Standard's table.
  ///
  /// - Returns: whether everything had a place.
  func fill(_ packet: inout XMPPacket) -> Bool {
    var isWhole = true
    for number in Set(datasets.map(\.number)).sorted() {
      let texts = texts(number)
      guard number != 0, let first = texts.first else { continue }
      switch number {
      case 5: packet.fill(.alternatives(XMP.dc, "title", first))
      case 15: packet.fill(.simple(XMP.photoshop, "Category", first))
      case 20: packet.fill(.list(XMP.photoshop, "SupplementalCategories", "Bag", texts))
      case 25: packet.fill(.list(XMP.dc, "subject", "Bag", texts))
      case 40: packet.fill(.simple(XMP.photoshop, "Instructions", first))
      case 55:
        // CCYYMMDD
        guard first.utf8.count == 8, Int(first) != nil else { continue }
        let date = "\(first.prefix(4))-\(first.dropFirst(4).prefix(2))-\(first.suffix(2))"
        packet.fill(.simple(XMP.photoshop, "DateCreated", date))
      case 80: packet.fill(.list(XMP.dc, "creator", "Seq", texts))
      case 85: packet.fill(.simple(XMP.photoshop, "AuthorsPosition", first))
      case 90: packet.fill(.simple(XMP.photoshop, "City", first))
      case 92: packet.fill(.simple(XMP.iptcCore, "Location", first))
      case 95: packet.fill(.simple(XMP.photoshop, "State", first))
      case 100: packet.fill(.simple(XMP.iptcCore, "CountryCode", first))
      case 101: packet.fill(.simple(XMP.photoshop, "Country", first))
      case 103: packet.fill(.simple(XMP.photoshop, "TransmissionReference", first))
      case 105: packet.fill(.simple(XMP.photoshop, "Headline", first))
      case 110: packet.fill(.simple(XMP.photoshop, "Credit", first))
      case 115: packet.fill(.simple(XMP.photoshop, "Source", first))
      case 116: packet.fill(.alternatives(XMP.dc, "rights", first))
      case 120: packet.fill(.alternatives(XMP.dc, "description", first))
      case 122: packet.fill(.simple(XMP.photoshop, "CaptionWriter", first))
      // The time goes with the date, which is enough.
      case 60, 62, 63: break
      default: isWhole = false
      }
    }
    return isWhole
  }
}
