import Glibc
import Imaging
import Testing

@Suite struct EncodeTests {
  @Test("lossless formats give back the pixels, lossy ones nearly")
  func roundTrips() throws {
    let image = try Made.waves(123, 77)
    // Nowhere 0: what is stored under nothing is black, whatever it was.
    let alpha = try Made.image(123, 77, bands: 1) { x, y in [UInt8(1 + (x + y) % 255)] }
    for source in [image, try image.withAlpha(alpha)] {
      for options in [
        EncodeOptions.png(.init()), .tiff(.init()), .tiff(.init(compression: .none)),
        .tiff(.init(compression: .deflate)),
      ] {
        let back = try picture(source.encoded(options, metadata: .none).array)
        #expect(back.header.format == options.format)
        #expect(try back.decode().bytes() == source.bytes(), "\(options)")
      }
      for options in [EncodeOptions.webp(.init(quality: 90)), .avif(.init(quality: 80, effort: 2))] {
        let back = try picture(source.encoded(options, metadata: .none).array).decode()
        #expect(back.bands == source.bands)
        #expect(decibels(try back.bytes(), try source.bytes()) > 30, "\(options)")
      }
    }
    let opaque = try picture(image.encoded(.webp(.init(lossless: true)), metadata: .none).array).decode()
    #expect(try opaque.bytes() == image.bytes())
    for options in [
      EncodeOptions.JPEG(quality: 92), .init(quality: 92, progressive: true), .init(quality: 92, chroma: .full),
    ] {
      let back = try picture(image.encoded(.jpeg(options), metadata: .none).array).decode()
      #expect(decibels(try back.bytes(), try image.bytes()) > 36)
    }
    let jpegInTIFF = try picture(image.encoded(.tiff(.init(compression: .jpeg, quality: 90)), metadata: .none).array)
    #expect(decibels(try jpegInTIFF.decode().bytes(), try image.bytes()) > 30)
  }

  @Test("settings do what they say")
  func settings() throws {
    let image = try Made.waves(200, 150)
    let size = { (o: EncodeOptions) in try image.encoded(o, metadata: .none).count }
    #expect(try size(.jpeg(.init(quality: 30))) < size(.jpeg(.init(quality: 90))))
    #expect(try size(.webp(.init(quality: 20))) < size(.webp(.init(quality: 95))))
    #expect(try size(.avif(.init(quality: 20, effort: 0))) < size(.avif(.init(quality: 90, effort: 0))))
    #expect(try size(.png(.init(compression: 9))) < size(.png(.init(compression: 0))))
    #expect(try size(.png(.init(palette: true, colors: 16))) < size(.png(.init())))
    // Baseline is SOF0, progressive SOF2; sampling 0x22 against 0x11 in the first component.
    func frame(_ o: EncodeOptions.JPEG) throws -> (marker: UInt8, sampling: UInt8) {
      let b = try image.encoded(.jpeg(o), metadata: .none).array
      let at = try #require((0..<b.count - 12).first { b[$0] == 0xFF && (b[$0 + 1] == 0xC0 || b[$0 + 1] == 0xC2) })
      return (b[at + 1], b[at + 11])
    }
    #expect(try frame(.init()) == (0xC0, 0x22))
    #expect(try frame(.init(progressive: true, chroma: .full)) == (0xC2, 0x11))
  }

  @Test("what a format cannot hold is refused before encoding")
  func refused() throws {
    let tall = try Image.solid(width: 1, height: 17_000, .white)
    #expect(failure { _ = try tall.encoded(.webp(.init())) }?.message.contains("16383") == true)
    #expect(failure { _ = try tall.encoded(.avif(.init())) }?.code == .encoder)
    let clear = try Image.solid(width: 8, height: 8, .transparent)
    #expect(failure { _ = try clear.encoded(.jpeg(.init())) }?.hint?.contains("background") == true)
    #expect(failure { _ = try clear.encoded(.tiff(.init(compression: .jpeg))) }?.code == .encoder)
    #expect(failure { _ = try clear.encoded(.png(.init(compression: 10))) }?.message.contains("0 to 9") == true)
  }

  static let exif = Made.exif(
    orientation: 6,
    texts: [
      (0x010F, "CameraMaker"), (0x0132, "2024:05:06 07:08:09"), (0x013B, "Ána (Müller)"),
      (0x8298, "© 2024 Example (all rights)"),
    ],
    gps: true)
  static let xmp = """
    <?xpacket begin="" id="W5M0MpCehiHzreSzNTczkc9d"?><x:xmpmeta xmlns:x="adobe:ns:meta/">
    <r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><r:Description r:about=""
     xmlns:d="http://purl.org/dc/elements/1.1/" xmlns:xmpRights="http://ns.adobe.com/xap/1.0/rights/"
     xmlns:tiff="http://ns.adobe.com/tiff/1.0/" xmlns:exif="http://ns.adobe.com/exif/1.0/"
     xmpRights:Marked="True" tiff:Orientation="6" exif:GPSLatitude="48,12.3N">
    <d:rights><r:Alt><r:li xml:lang="x-default">R &amp; B rights</r:li><r:li xml:lang="de">Rechte</r:li></r:Alt></d:rights>
    <d:creator><r:Seq><r:li>First Author</r:li><r:li>Second</r:li></r:Seq></d:creator>
    <tiff:Orientation>6</tiff:Orientation></r:Description></r:RDF></x:xmpmeta><?xpacket end="w"?>
    """

  /// A JPEG with EXIF, XMP, IPTC and a profile.
  static func tagged() throws -> EncodedPicture {
    var jpeg = try Made.waves(64, 48).encoded(.jpeg(.init()), metadata: .none).array
    let profile = Made.profile(
      [[0.51512, 0.24120, -0.00105], [0.29198, 0.69225, 0.04189], [0.15710, 0.06657, 0.78407]], gamma: 2.2)
    jpeg = Made.jpeg(jpeg, profile: profile)
    jpeg = Made.jpeg(jpeg, adding: 0xE1, Array("http://ns.adobe.com/xap/1.0/\0".utf8) + Array(xmp.utf8))
    let iptc: [UInt8] = [0x1C, 2, 90, 0, 6] + Array("Berlin".utf8)
    let block: [UInt8] = Array("8BIM".utf8) + [4, 4, 0, 0, 0, 0, 0, UInt8(iptc.count)] + iptc + [0]
    jpeg = Made.jpeg(jpeg, adding: 0xED, Array("Photoshop 3.0\0".utf8) + block)
    return try picture(Made.jpeg(jpeg, exif: exif))
  }

  static let written: [EncodeOptions] = [
    .jpeg(.init()), .png(.init()), .webp(.init()), .avif(.init(effort: 0)), .tiff(.init(compression: .none)),
  ]

  @Test("metadata none: nothing at all", arguments: written)
  func none(_ options: EncodeOptions) throws {
    let bytes = try Self.tagged().decode().materialised().encoded(options, metadata: .none)
    for word in ["Example", "CameraMaker", "2024", "rights", "Berlin", "acsp", "Author"] {
      #expect(!contains(bytes, word), "\(word) in \(options.format)")
    }
    #expect(try !picture(bytes.array).header.hasProfile)
  }

  @Test("metadata copyright: owner and profile stay; place, device, dates go", arguments: written)
  func copyright(_ options: EncodeOptions) throws {
    let bytes = try Self.tagged().decode().materialised().encoded(options, metadata: .copyright)
    for word in ["CameraMaker", "2024:05:06", "Berlin", "GPSLatitude", "48,12", "Photoshop", "8BIM"] {
      #expect(!contains(bytes, word), "\(word) in \(options.format)")
    }
    let back = try picture(bytes.array)
    // Round again, as JPEG: what stayed, stays (and PNG, which compresses its XMP, can be read).
    let again = try back.decode().materialised().encoded(.jpeg(.init()), metadata: .copyright)
    for word in ["R &amp; B rights", "Rechte", "First Author", "Second", "Marked>True"] {
      #expect(contains(again, word), "\(word) in \(options.format)")
      if options.format != .png { #expect(contains(bytes, word), "\(word) in \(options.format)") }
    }
    #expect(back.header.orientation == 1)
    #expect(back.header.hasProfile)
    // libvips writes no EXIF into TIFF; XMP carries the rights there.
    if options.format != .tiff {
      #expect(contains(bytes, "© 2024 Example (all rights)"))
      #expect(contains(bytes, "Ána (Müller)"))
    }
  }

  @Test(
    "metadata all: everything but the orientation and coordinates",
    arguments: [EncodeOptions.jpeg(.init()), .webp(.init()), .png(.init())])
  func all(_ options: EncodeOptions) throws {
    let bytes = try Self.tagged().decode().materialised().encoded(options, metadata: .all)
    for word in ["CameraMaker", "2024:05:06", "© 2024 Example"] {
      #expect(contains(bytes, word), "\(word) in \(options.format)")
    }
    #expect(!contains(bytes, "GPSLatitude"))
    #expect(!contains(bytes, "tiff:Orientation=\"6\"") && !contains(bytes, "<tiff:Orientation>6"))
    let back = try picture(bytes.array)
    #expect(back.header.orientation == 1)
    #expect(back.header.width == 48 && back.header.height == 64)
  }

  @Test("a copyright that only IPTC has, comes into EXIF")
  func iptcOnly() throws {
    let name = Array("Łukasz / Agency".utf8)
    let records: [UInt8] = [0x1C, 2, 116, 0, UInt8(name.count)] + name
    let block: [UInt8] = Array("8BIM".utf8) + [4, 4, 0, 0, 0, 0, 0, UInt8(records.count)] + records
    let jpeg = try Made.waves(32, 32).encoded(.jpeg(.init()), metadata: .none).array
    let tagged = Made.jpeg(
      jpeg, adding: 0xED, Array("Photoshop 3.0\0".utf8) + block + (block.count % 2 == 1 ? [0] : []))
    let bytes = try picture(tagged).decode().encoded(.png(.init()))
    #expect(contains(bytes, "Łukasz / Agency") && contains(bytes, "eXIf") && !contains(bytes, "8BIM"))
  }

  @Test("a written file's header is verified without reading all of it")
  func verifyHeader() throws {
    let path = "/tmp/pipeline-imaging-\(getpid())-\(UInt32.random(in: 0 ... .max))"
    defer { unlink(path) }
    for options in Self.written {
      let bytes = try Made.waves(70, 50).encoded(options)
      let file = try #require(fopen(path, "w"))
      _ = bytes.withUnsafeBytes { fwrite($0.baseAddress, 1, $0.count, file) }
      fclose(file)
      let header = try EncodedPicture.verifyHeader(path: Array(path.utf8))
      #expect((header.format, header.width, header.height) == (options.format, 70, 50))
      #expect(try EncodedPicture.read(path: Array(path.utf8)).sha256 == bytes.sha256)
    }
    fclose(fopen(path, "w"))
    #expect(failure { _ = try EncodedPicture.verifyHeader(path: Array(path.utf8)) }?.code == .empty)
  }

  @Test("a picture without metadata gets none but what the format itself has")
  func nothingInvented() throws {
    let plain = try picture(Made.waves(32, 32).encoded(.jpeg(.init()), metadata: .none).array)
    for options in Self.written {
      for policy in MetadataPolicy.allCases {
        let bytes = try plain.decode().encoded(options, metadata: policy)
        for word in ["http://ns.adobe.com", "acsp", "Exif", "EXIF", "eXIf", "VP8X"] {
          #expect(!contains(bytes, word), "\(word) in \(options.format)")
        }
      }
    }
  }

  @Test("the background's metadata does not leak into the result")
  func backgroundMetadata() throws {
    let background = try Self.tagged().decode().materialised()
    let fore = try Image.solid(width: 48, height: 64, RGBA(1, 2, 3, 100))
    let bytes = try fore.composited(over: background).encoded(.jpeg(.init()), metadata: .all)
    #expect(!contains(bytes, "CameraMaker") && !contains(bytes, "Berlin") && !contains(bytes, "Author"))
  }

  @Test("SHA-256 of known bytes")
  func sha256() {
    // FIPS 180-4's example.
    #expect(
      EncodedBytes(Array("abc".utf8)).sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
  }
}
