import Glibc
import Imaging
import TestSupport
import Testing

private let exiftool = "/usr/bin/exiftool"
private let hasExiftool = access(exiftool, X_OK) == 0

@Suite struct MetadataTests {
  // MARK: A source with everything in it

  /// EXIF as a camera writes it: three directories, a maker's note, a thumbnail, sides and colours of the old file.
  static func exif(little: Bool = true) -> [UInt8] {
    func number(_ v: Int, _ size: Int) -> [UInt8] {
      let bytes = (0..<size).map { UInt8(v >> (8 * $0) & 255) }
      return little ? bytes : bytes.reversed()
    }
    typealias Field = (tag: Int, type: Int, count: Int, value: [UInt8])
    func text(_ tag: Int, _ s: String) -> Field { (tag, 2, s.utf8.count + 1, Array(s.utf8) + [0]) }
    func short(_ tag: Int, _ v: Int) -> Field { (tag, 3, 1, number(v, 2)) }
    func long(_ tag: Int, _ v: Int) -> Field { (tag, 4, 1, number(v, 4)) }
    func fractions(_ tag: Int, _ v: [(Int, Int)]) -> Field {
      (tag, 5, v.count, v.flatMap { number($0.0, 4) + number($0.1, 4) })
    }
    func size(_ fields: [Field]) -> Int {
      fields.reduce(6 + 12 * fields.count) { $0 + ($1.value.count > 4 ? ($1.value.count + 1) / 2 * 2 : 0) }
    }
    func directory(_ fields: [Field], at start: Int, next: Int) -> [UInt8] {
      var rows = number(fields.count, 2)
      var data: [UInt8] = []
      for field in fields.sorted(by: { $0.tag < $1.tag }) {
        rows += number(field.tag, 2) + number(field.type, 2) + number(field.count, 4)
        if field.value.count <= 4 {
          rows += field.value + [UInt8](repeating: 0, count: 4 - field.value.count)
        } else {
          rows += number(start + 6 + 12 * fields.count + data.count, 4)
          data += field.value + (field.value.count % 2 == 1 ? [0] : [])
        }
      }
      return rows + number(next, 4) + data
    }
    let exif: [Field] = [
      fractions(0x829A, [(1, 250)]), fractions(0x829D, [(28, 10)]), short(0x8827, 400),
      text(0x9003, "2024:05:06 07:08:09"), (0x927C, 7, 12, Array("SECRETMAKER\0".utf8)), short(0xA001, 1),
      long(0xA002, 4000), long(0xA003, 3000), text(0xA431, "SERIAL777"), text(0xA434, "Tele 85mm"),
    ]
    let gps: [Field] = [
      text(1, "N"), fractions(2, [(48, 1), (12, 1), (30, 1)]), text(3, "E"), fractions(4, [(16, 1), (22, 1), (5, 1)]),
    ]
    let thumbnail: [Field] = [short(0x0103, 6), long(0x0201, 8), long(0x0202, 4), text(0x0131, "THUMBNAILER")]
    var main: [Field] = [
      text(0x010E, "A cat, asleep"), text(0x010F, "CameraMaker"), text(0x0110, "Model 9"), short(0x0112, 6),
      text(0x0132, "2024:05:06 07:08:10"), text(0x013B, "Ána (Müller)"), text(0x8298, "© 2024 Example"),
      long(0x8769, 0), long(0x8825, 0), long(0x0100, 4000),
    ]
    let exifAt = 8 + size(main)
    let gpsAt = exifAt + size(exif)
    let thumbnailAt = gpsAt + size(gps)
    main.removeAll { $0.tag == 0x8769 || $0.tag == 0x8825 }
    main += [long(0x8769, exifAt), long(0x8825, gpsAt)]
    let head: [UInt8] = (little ? [0x49, 0x49] : [0x4D, 0x4D]) + number(42, 2) + number(8, 4)
    return head + directory(main, at: 8, next: thumbnailAt) + directory(exif, at: exifAt, next: 0)
      + directory(gps, at: gpsAt, next: 0) + directory(thumbnail, at: thumbnailAt, next: 0)
  }

  static let xmp = """
    <x:xmpmeta xmlns:x="adobe:ns:meta/"><r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
    <r:Description r:about="" xmlns:d="http://purl.org/dc/elements/1.1/" xmlns:tiff="http://ns.adobe.com/tiff/1.0/"
     xmlns:exif="http://ns.adobe.com/exif/1.0/" xmlns:p="http://ns.adobe.com/photoshop/1.0/"
     xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmlns:dji="http://www.dji.com/drone-dji/1.0/"
     xmlns:e="http://iptc.org/std/Iptc4xmpExt/2008-02-29/"
     tiff:Orientation="6" tiff:ImageWidth="4000" exif:GPSLatitude="48,12.5N" exif:ExposureTime="1/250"
     p:City="Vienna" p:Credit="Photo Desk" xmp:CreatorTool="Editor 7" dji:GpsLongitude="16.368">
    <d:rights><r:Alt><r:li xml:lang="x-default">R &amp; B rights</r:li><r:li xml:lang="de">Rechte</r:li></r:Alt></d:rights>
    <d:subject><r:Bag><r:li>cat</r:li><r:li>sleep</r:li></r:Bag></d:subject>
    <e:LocationCreated><r:Bag><r:li r:parseType="Resource"><e:City>Graz</e:City><exif:GPSLongitude>15,26E</exif:GPSLongitude></r:li></r:Bag></e:LocationCreated>
    </r:Description></r:RDF></x:xmpmeta>
    """

  static func iptc(_ records: [(UInt8, String)]) -> [UInt8] {
    records.flatMap { [0x1C, 2, $0.0, 0, UInt8($0.1.utf8.count)] + Array($0.1.utf8) }
  }

  /// A Photoshop block with a thumbnail's resource before the records.
  static func photoshop(_ records: [UInt8]) -> [UInt8] {
    let thumbnail: [UInt8] = Array("8BIM".utf8) + [4, 0x0C, 0, 0, 0, 0, 0, 11] + Array("PSTHUMBNAIL".utf8) + [0]
    let block: [UInt8] = Array("8BIM".utf8) + [4, 4, 0, 0, 0, 0, 0, UInt8(records.count)] + records
    return Array("Photoshop 3.0\0".utf8) + thumbnail + block + (records.count % 2 == 1 ? [0] : [])
  }

  static func source(little: Bool = true) throws -> Image {
    var jpeg = try Made.waves(64, 48).encoded(.jpeg(.init()), metadata: .none).array
    jpeg = Made.jpeg(jpeg, adding: 0xE1, Array("http://ns.adobe.com/xap/1.0/\0".utf8) + Array(xmp.utf8))
    let records = iptc([(90, "Vienna"), (105, "Cat sleeps"), (116, "IPTC notice"), (80, "IPTC author")])
    jpeg = Made.jpeg(jpeg, adding: 0xED, photoshop(records))
    return try picture(Made.jpeg(jpeg, exif: exif(little: little))).decode().materialised()
  }

  /// What exiftool says about a file, by "Group:Tag".
  static func tags(_ bytes: EncodedBytes, _ format: PictureFormat) -> [String: String] {
    let folder = TemporaryFolder()
    let path = folder.write(bytes.array, to: "x." + format.fileExtension)
    let result = RunProgram.run(
      ["-G1", "-s", "-n", "-a", "-t", "-charset", "UTF8", path], program: exiftool, limit: 60)
    var tags: [String: String] = [:]
    for line in result.output.split(separator: "\n") {
      let fields = line.split(separator: "\t", maxSplits: 2, omittingEmptySubsequences: false).map(String.init)
      if fields.count == 3, tags[fields[0] + ":" + fields[1]] == nil { tags[fields[0] + ":" + fields[1]] = fields[2] }
    }
    return tags
  }

  static let carriers: [EncodeOptions] = [
    .jpeg(.init()), .png(.init()), .webp(.init()), .avif(.init(effort: 0)), .jxl(.init(effort: 3)), .tiff(.init()),
  ]

  // MARK: What stays and what goes

  @Test(
    "all: every block stays, without coordinates, thumbnails, maker's note or what the old file was",
    .enabled(if: hasExiftool, "exiftool is not installed"), arguments: carriers)
  func all(_ options: EncodeOptions) throws {
    let format = options.format
    let result = try Self.source().encoding(options, metadata: MetadataRequest(keep: .all))
    #expect(result.droppedMetadata.isEmpty, "\(format)")
    let tags = Self.tags(result.bytes, format)
    #expect(tags["IFD0:Make"] == "CameraMaker", "\(format)")
    #expect(tags["IFD0:Model"] == "Model 9", "\(format)")
    #expect(tags["IFD0:Artist"] == "Ána (Müller)", "\(format)")
    #expect(tags["IFD0:Copyright"] == "© 2024 Example", "\(format)")
    #expect(tags["IFD0:ImageDescription"] == "A cat, asleep", "\(format)")
    #expect(tags["ExifIFD:DateTimeOriginal"] == "2024:05:06 07:08:09", "\(format)")
    #expect(tags["ExifIFD:ExposureTime"] == "0.004", "\(format)")
    #expect(tags["ExifIFD:FNumber"] == "2.8", "\(format)")
    #expect(tags["ExifIFD:ISO"] == "400", "\(format)")
    #expect(tags["ExifIFD:LensModel"] == "Tele 85mm", "\(format)")
    #expect(tags["ExifIFD:SerialNumber"] == "SERIAL777", "\(format)")
    #expect(tags["ExifIFD:ColorSpace"] == "1", "\(format)")
    #expect(tags["XMP-photoshop:City"] == "Vienna", "\(format)")
    #expect(tags["XMP-xmp:CreatorTool"] == "Editor 7", "\(format)")
    #expect(tags["XMP-dc:Rights"] == "R & B rights", "\(format)")
    #expect(tags["XMP-dc:Rights-de"] == "Rechte", "\(format)")
    #expect(tags["XMP-dc:Subject"] == "cat, sleep", "\(format)")
    #expect(tags["XMP-iptcExt:LocationCreatedCity"] == "Graz", "\(format)")
    // IPTC has a block of its own in two formats; elsewhere XMP takes what it alone said.
    let hasIPTC = format == .jpeg || format == .tiff
    #expect(tags["IPTC:Headline"] == (hasIPTC ? "Cat sleeps" : nil), "\(format)")
    if !hasIPTC { #expect(tags["XMP-photoshop:Headline"] == "Cat sleeps", "\(format)") }
    for (tag, value) in tags {
      #expect(!tag.contains("GPS") && !tag.contains("Gps"), "\(tag) in \(format)")
      #expect(!tag.hasPrefix("IFD1:"), "\(tag) in \(format)")
      #expect(!tag.hasSuffix(":Orientation") || value == "1", "\(tag) \(value) in \(format)")
      #expect(!["4000", "3000"].contains(value), "\(tag) \(value) in \(format)")
      if tag == "ExifIFD:ExifImageWidth" { #expect(value == "48", "\(format)") }
    }
    #expect(tags["ExifTool:Warning"]?.contains("Bad") != true, "\(tags["ExifTool:Warning"] ?? "")")
    for word in ["SECRETMAKER", "THUMBNAILER", "PSTHUMBNAIL", "48,12.5N", "15,26E", "16.368"] {
      #expect(!contains(result.bytes, word), "\(word) in \(format)")
    }
  }

  @Test(
    "coordinates stay where they are named", .enabled(if: hasExiftool, "exiftool is not installed"),
    arguments: carriers)
  func coordinates(_ options: EncodeOptions) throws {
    for kinds in [[MetadataKind.gps], [.all, .gps]] as [Set<MetadataKind>] {
      let bytes = try Self.source().encoded(options, metadata: MetadataRequest(keep: MetadataKeep(kinds)))
      let tags = Self.tags(bytes, options.format)
      #expect(tags["GPS:GPSLatitude"].flatMap(Double.init).map { abs($0 - 48.208_333) < 0.001 } == true)
      #expect(tags["XMP-exif:GPSLatitude"] != nil)
      #expect((tags["IFD0:Make"] != nil) == kinds.contains(.all))
      #expect((tags["XMP-photoshop:City"] != nil) == kinds.contains(.all))
    }
  }

  @Test(
    "a list picks by subject, in whichever block it stands",
    .enabled(if: hasExiftool, "exiftool is not installed"),
    arguments: [
      (.dates, ["ExifIFD:DateTimeOriginal", "IFD0:ModifyDate"]), (.camera, ["IFD0:Make", "ExifIFD:SerialNumber"]),
      (.lens, ["ExifIFD:LensModel"]), (.exposure, ["ExifIFD:FNumber", "XMP-exif:ExposureTime"]),
      (.place, ["XMP-photoshop:City", "IPTC:City", "XMP-iptcExt:LocationCreatedCity"]),
      (.keywords, ["XMP-dc:Subject"]), (.creator, ["IFD0:Artist", "IPTC:By-line"]),
      (.copyright, ["IFD0:Copyright", "XMP-dc:Rights", "IPTC:CopyrightNotice"]), (.credit, ["XMP-photoshop:Credit"]),
      (.description, ["IFD0:ImageDescription", "IPTC:Headline"]), (.iptc, ["IPTC:City", "IPTC:Headline"]),
      (.xmp, ["XMP-xmp:CreatorTool", "XMP-photoshop:City"]), (.exif, ["IFD0:Make", "ExifIFD:FNumber"]),
    ] as [(MetadataKind, [String])])
  func kinds(_ kind: MetadataKind, _ wanted: [String]) throws {
    let everything = [
      "ExifIFD:DateTimeOriginal", "IFD0:Make", "ExifIFD:LensModel", "ExifIFD:FNumber", "XMP-photoshop:City",
      "IPTC:City",
      "XMP-dc:Subject", "IFD0:Artist", "IFD0:Copyright", "XMP-dc:Rights", "XMP-photoshop:Credit",
      "IFD0:ImageDescription", "XMP-xmp:CreatorTool", "GPS:GPSLatitude", "IPTC:CopyrightNotice", "IPTC:Headline",
    ]
    let bytes = try Self.source().encoded(.jpeg(.init()), metadata: MetadataRequest(keep: MetadataKeep([kind])))
    let tags = Self.tags(bytes, .jpeg)
    for tag in wanted { #expect(tags[tag] != nil, "\(tag) with \(kind)") }
    let container = ["exif": "ExifIFD IFD0", "xmp": "XMP", "iptc": "IPTC"][kind.rawValue]
    for tag in everything where !wanted.contains(tag) {
      // IPTC's notice and author also go into EXIF.
      let isWithin = container?.split(separator: " ").contains { tag.hasPrefix($0) } == true
      let isRescued = kind == .iptc && ["IFD0:Artist", "IFD0:Copyright", "IFD0:ImageDescription"].contains(tag)
      #expect(tags[tag] == nil || isWithin || isRescued, "\(tag) with \(kind)")
    }
    #expect(tags["GPS:GPSLatitude"] == nil)
  }

  @Test("big-endian EXIF comes through as it is, into TIFF turned around", arguments: [0, 1])
  func bigEndian(_ index: Int) throws {
    let options: EncodeOptions = index == 0 ? .jpeg(.init()) : .tiff(.init())
    let bytes = try Self.source(little: false).encoded(options, metadata: .all)
    #expect(contains(bytes, "Tele 85mm") && contains(bytes, "CameraMaker") && !contains(bytes, "SECRETMAKER"))
    guard hasExiftool else { return }
    let tags = Self.tags(bytes, options.format)
    #expect(tags["ExifIFD:ExposureTime"] == "0.004" && tags["ExifIFD:ISO"] == "400")
  }

  @Test("copyright: who made it and owns it, in every block, and nothing else", arguments: carriers)
  func copyright(_ options: EncodeOptions) throws {
    let bytes = try Self.source().encoded(options)
    for word in ["CameraMaker", "2024:05:06", "Vienna", "SERIAL777", "Editor 7", "asleep", "sleep", "48,12"] {
      #expect(!contains(bytes, word), "\(word) in \(options.format)")
    }
    #expect(contains(bytes, "© 2024 Example") && contains(bytes, "Ána (Müller)"), "\(options.format)")
    if options.format != .png {
      #expect(contains(bytes, "R &amp; B rights") && contains(bytes, "Photo Desk"), "\(options.format)")
    }
    #expect(contains(bytes, "IPTC notice") == (options.format == .jpeg || options.format == .tiff))
  }

  @Test("what a TIFF says about its owner survives the way to another format")
  func fromTIFF() throws {
    let tiff = try Self.source().encoded(.tiff(.init()), metadata: .all).array
    let image = try picture(tiff).decode().materialised()
    let bytes = try image.encoded(.webp(.init()), metadata: .copyright)
    #expect(contains(bytes, "© 2024 Example") && contains(bytes, "Ána (Müller)") && !contains(bytes, "CameraMaker"))
    let everything = try image.encoded(.jpeg(.init()), metadata: .all)
    #expect(contains(everything, "CameraMaker") && contains(everything, "Tele 85mm"))
    // The pixels are still where the directory says.
    #expect(try image.bytes() == Self.source().bytes())
  }

  @Test("what a format cannot carry is told")
  func dropped() throws {
    let image = try Self.source()
    let all = MetadataRequest(keep: .all)
    #expect(try image.encoding(.gif(.init()), metadata: all).droppedMetadata.sorted() == ["EXIF", "XMP"])
    #expect(try image.encoding(.gif(.init()), metadata: MetadataRequest(keep: .none)).droppedMetadata.isEmpty)
    #expect(try image.encoding(.jpeg(.init()), metadata: all).droppedMetadata.isEmpty)
    // A caption too long for a JPEG's segment.
    let long = MetadataRequest(
      keep: .none, set: MetadataValues(description: String(repeating: "x", count: 70_000)))
    #expect(try image.encoding(.jpeg(.init()), metadata: long).droppedMetadata == ["XMP"])
    #expect(try image.encoding(.webp(.init()), metadata: long).droppedMetadata.isEmpty)
    // A packet that cannot be read is not passed on unread.
    var jpeg = try Made.waves(16, 16).encoded(.jpeg(.init()), metadata: .none).array
    jpeg = Made.jpeg(jpeg, adding: 0xE1, Array("http://ns.adobe.com/xap/1.0/\0<x:xmpmeta><unclosed secret='1'>".utf8))
    let broken = try picture(jpeg).decode().encoding(.jpeg(.init()), metadata: all)
    #expect(broken.unreadableMetadata == ["XMP"] && broken.droppedMetadata.isEmpty)
    #expect(!contains(broken.bytes, "secret"))
  }

  // MARK: Set

  static let values = MetadataValues(
    copyright: "© Zoë <& Co>", creator: "Zoë Q.", description: "Zwei Kätzchen\nim Körbchen", title: "Kätzchen",
    credit: "Zoë/Desk")

  @Test(
    "what is set is written, over everything that was there",
    .enabled(if: hasExiftool, "exiftool is not installed"), arguments: carriers)
  func set(_ options: EncodeOptions) throws {
    for keep in [MetadataKeep.none, .copyright, .all] {
      let request = MetadataRequest(keep: keep, set: Self.values)
      let result = try Self.source().encoding(options, metadata: request)
      #expect(result.droppedMetadata.isEmpty)
      let tags = Self.tags(result.bytes, options.format)
      #expect(tags["IFD0:Copyright"] == "© Zoë <& Co>", "\(options.format)")
      #expect(tags["IFD0:Artist"] == "Zoë Q.", "\(options.format)")
      #expect(tags["IFD0:ImageDescription"]?.hasPrefix("Zwei Kätzchen") == true, "\(options.format)")
      #expect(tags["XMP-dc:Rights"] == "© Zoë <& Co>", "\(options.format)")
      #expect(tags["XMP-dc:Creator"] == "Zoë Q.", "\(options.format)")
      #expect(tags["XMP-dc:Description"]?.hasPrefix("Zwei Kätzchen") == true, "\(options.format)")
      #expect(tags["XMP-dc:Title"] == "Kätzchen", "\(options.format)")
      #expect(tags["XMP-photoshop:Credit"] == "Zoë/Desk", "\(options.format)")
      #expect(tags["XMP-xmpRights:Marked"]?.lowercased() == "true", "\(options.format)")
      if let notice = tags["IPTC:CopyrightNotice"] { #expect(notice == "© Zoë <& Co>") }
      for old in ["R &amp; B rights", "Rechte", "IPTC notice", "2024 Example", "Müller", "IPTC author", "Photo Desk"] {
        #expect(!contains(result.bytes, old), "\(old) in \(options.format)")
      }
    }
  }

  @Test("a picture without metadata gets what is set, and an empty text takes out")
  func setOnPlain() throws {
    let plain = try Made.waves(32, 32)
    for options in Self.carriers {
      let bytes = try plain.encoded(options, metadata: MetadataRequest(set: MetadataValues(copyright: "© Me")))
      #expect(contains(bytes, "© Me"), "\(options.format)")
    }
    let without = MetadataRequest(keep: .copyright, set: MetadataValues(copyright: ""))
    let bytes = try Self.source().encoded(.jpeg(.init()), metadata: without)
    for old in ["rights<", "Rechte", "IPTC notice", "2024 Example", "Marked"] {
      #expect(!contains(bytes, old), "\(old)")
    }
    #expect(contains(bytes, "Ána (Müller)"))
  }

  @Test("PNG's own texts go by their keywords", .enabled(if: hasExiftool, "exiftool is not installed"))
  func comments() throws {
    var png = try Made.waves(16, 16).encoded(.png(.init()), metadata: .none).array
    for text in [
      "Copyright\0PNG owner", "Comment\0private talk", "Creation Time\0noon", "Raw profile type exif\0hexhexhex",
    ] { png = Made.png(png, adding: "tEXt", Array(text.utf8)) }
    let image = try picture(png).decode().materialised()
    func texts(_ keep: MetadataKeep) throws -> [String: String] {
      let tags = Self.tags(try image.encoded(.png(.init()), metadata: MetadataRequest(keep: keep)), .png)
      return tags.filter { ["PNG:Copyright", "PNG:Comment", "PNG:Creation", "IFD0:Copyright"].contains($0.key) }
    }
    let owner = ["PNG:Copyright": "PNG owner", "IFD0:Copyright": "PNG owner"]
    #expect(try texts(.none).isEmpty)
    #expect(try texts(.copyright) == owner)
    let all = owner.merging(["PNG:Comment": "private talk", "PNG:Creation": "noon"]) { $1 }
    #expect(try texts(.all) == all)
    #expect(try texts(MetadataKeep([.dates])) == ["PNG:Creation": "noon"])
    for keep in [MetadataKeep.all, .copyright] {
      let jpeg = try image.encoding(.jpeg(.init()), metadata: MetadataRequest(keep: keep))
      #expect(contains(jpeg.bytes, "PNG owner"))
      #expect(jpeg.droppedMetadata == (keep == .all ? ["PNG comments"] : []))
    }
  }

  @Test(
    "coordinates and what is stale go from PNG's texts too, as ImageMagick writes them",
    .enabled(if: hasExiftool, "exiftool is not installed"))
  func placeInComments() throws {
    var png = try Made.waves(16, 16).encoded(.png(.init()), metadata: .none).array
    for text in [
      "exif:GPSLatitude\u{0}47/1, 7/1, 24/1", "geo:lat\u{0}47.1234", "Longitude\u{0}8.7654",
      "exif:Orientation\u{0}6six",
      "exif:thumbnail:Compression\u{0}6six", "Comment\u{0}private talk",
    ] { png = Made.png(png, adding: "tEXt", Array(text.utf8)) }
    let image = try picture(png).decode().materialised()
    func written(_ keep: MetadataKeep) throws -> [String] {
      let bytes = try image.encoded(.png(.init()), metadata: MetadataRequest(keep: keep))
      let texts = Self.tags(bytes, .png).values.joined(separator: "\n")
      return ["47/1, 7/1", "47.1234", "8.7654", "6six", "private talk"].filter { texts.contains($0) }
    }
    #expect(try written(.all) == ["private talk"])
    #expect(try written(MetadataKeep([.comments])) == ["private talk"])
    #expect(try written(MetadataKeep([.gps])) == ["47/1, 7/1", "47.1234", "8.7654"])
    #expect(try written(.copyright).isEmpty)
  }

  // MARK: Harm

  @Test("broken and hostile blocks cost nothing but themselves")
  func hostile() throws {
    let plain = try Made.waves(16, 16).encoded(.jpeg(.init()), metadata: .none).array
    var state: UInt64 = 5
    func random(_ below: Int) -> Int {
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return Int(state >> 33) % below
    }
    let deep = String(repeating: "<a:b xmlns:a='u'>", count: 3_000)
    var packets = [
      Array(Self.xmp.utf8), Array(("<x>" + deep).utf8), Array("<!DOCTYPE x [<!ENTITY a 'b'>]><x>&a;</x>".utf8),
    ]
    var blocks = [Self.exif(), Self.exif(little: false)]
    // The EXIF directory is the main one again.
    blocks.append(Self.exif())
    for round in 0..<150 {
      var block = Self.exif(little: round % 2 == 0)
      var packet = Array(Self.xmp.utf8)
      for _ in 0..<1 + random(8) {
        block[random(block.count)] = UInt8(random(256))
        packet[random(packet.count)] = UInt8(random(256))
      }
      blocks.append(Array(block.prefix(round % 5 == 0 ? random(block.count) : block.count)))
      packets.append(packet)
    }
    for (index, block) in blocks.enumerated() {
      var jpeg = Made.jpeg(plain, exif: block)
      let packet = packets[index % packets.count]
      jpeg = Made.jpeg(jpeg, adding: 0xE1, Array("http://ns.adobe.com/xap/1.0/\0".utf8) + packet)
      let image = try picture(jpeg).decode().materialised()
      let options: EncodeOptions = [.jpeg(.init()), .tiff(.init()), .webp(.init(effort: 0))][index % 3]
      let bytes = try image.encoded(
        options, metadata: MetadataRequest(keep: MetadataKeep([.all, .gps]), set: Self.values))
      #expect(try picture(bytes.array).header.format == options.format)
      #expect(bytes.count < 200_000)
    }
  }
}
