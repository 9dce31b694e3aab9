import CVips

/// Names of Adobe's metadata packets (ISO 16684-1).
enum XMP {
  static let rdf = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
  static let xml = "http://www.w3.org/XML/1998/namespace"
  static let dc = "http://purl.org/dc/elements/1.1/"
  static let xmpRights = "http://ns.adobe.com/xap/1.0/rights/"
  static let xmp = "http://ns.adobe.com/xap/1.0/"
  static let photoshop = "http://ns.adobe.com/photoshop/1.0/"
  static let tiff = "http://ns.adobe.com/tiff/1.0/"
  static let exif = "http://ns.adobe.com/exif/1.0/"
  static let exifEX = "http://cipa.jp/exif/1.0/"
  static let aux = "http://ns.adobe.com/exif/1.0/aux/"
  static let iptcCore = "http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/"
  static let iptcExt = "http://iptc.org/std/Iptc4xmpExt/2008-02-29/"
  static let lightroom = "http://ns.adobe.com/lightroom/1.0/"
  static let plus = "http://ns.useplus.org/ldf/xmp/1.0/"
  static let creativeCommons = "http://creativecommons.org/ns#"

  /// The prefixes that files usually have; the specification leaves them free.
  static let prefixes = [
    rdf: "rdf", dc: "dc", xmpRights: "xmpRights", xmp: "xmp", photoshop: "photoshop", tiff: "tiff", exif: "exif",
    exifEX: "exifEX", aux: "aux", iptcCore: "Iptc4xmpCore", iptcExt: "Iptc4xmpExt", lightroom: "lr", plus: "plus",
    creativeCommons: "cc",
  ]

  struct Name: Hashable {
    var space: String
    var local: String

    init(_ space: String, _ local: String) {
      self.space = space
      self.local = local
    }
  }

  /// An element: a property, a list, an item or a structure.
  struct Node {
    var name: Name
    var attributes: [(name: Name, value: String)] = []
    var children: [Node] = []
    var text = ""

    static func simple(_ space: String, _ local: String, _ text: String) -> Node {
      Node(name: Name(space, local), text: text)
    }

    /// A list of kind `Seq` (ordered) or `Bag`.
    static func list(_ space: String, _ local: String, _ kind: String, _ texts: [String]) -> Node {
      let items = texts.map { Node(name: Name(rdf, "li"), text: $0) }
      return Node(name: Name(space, local), children: [Node(name: Name(rdf, kind), children: items)])
    }

    /// A text in the default language.
    static func alternatives(_ space: String, _ local: String, _ text: String) -> Node {
      var node = list(space, local, "Alt", [text])
      node.children[0].children[0].attributes = [(Name(xml, "lang"), "x-default")]
      return node
    }
  }
}

/// The properties of one packet, taken apart to be filtered, edited and written anew.
struct XMPPacket {
  /// Each name once; a property that stood as an attribute is here like any other.
  private(set) var properties: [XMP.Node] = []
  /// The prefixes that the packet had.
  private var prefixes: [String: String] = [:]

  init() {}

  /// nil where the packet cannot be parsed, so that nothing unread is passed on.
  init?(_ packet: [UInt8]) {
    guard let (root, prefixes) = XMPReader.parse(packet) else { return nil }
    self.prefixes = prefixes
    var seen: Set<XMP.Name> = []
    func visit(_ node: XMP.Node) {
      guard node.name != XMP.Name(XMP.rdf, "RDF") else {
        for description in node.children where description.name == XMP.Name(XMP.rdf, "Description") {
          let own = description.attributes.filter { ![XMP.rdf, XMP.xml, ""].contains($0.name.space) }
          for property in own.map({ XMP.Node(name: $0.name, text: $0.value) }) + description.children
          where seen.insert(property.name).inserted { properties.append(property) }
        }
        return
      }
      node.children.forEach(visit)
    }
    visit(root)
  }

  var isEmpty: Bool { properties.isEmpty }

  // MARK: Editing

  /// Leaves what is to be kept, and nothing that describes the file the packet came from.
  mutating func filter(_ keep: MetadataKeep) {
    properties.removeAll { property in
      Self.isStale(property.name) || !keep.keeps(Self.subject(property.name), in: .xmp)
    }
    guard !keep.kinds.contains(.gps) else { return }
    func cleaned(_ node: XMP.Node) -> XMP.Node {
      var node = node
      node.attributes.removeAll { Self.isPosition($0.name) }
      node.children = node.children.filter { !Self.isPosition($0.name) }.map(cleaned)
      return node
    }
    properties = properties.map(cleaned)
  }

  /// Writes texts over what there is, and takes out what says the same elsewhere.
  mutating func set(_ values: MetadataValues) {
    func put(_ text: String?, _ make: (String) -> XMP.Node, clearing: [XMP.Name] = []) {
      guard let text else { return }
      let node = make(text)
      properties.removeAll { $0.name == node.name || clearing.contains($0.name) }
      if !text.isEmpty { properties.append(node) }
    }
    put(values.copyright, { .alternatives(XMP.dc, "rights", $0) }, clearing: [.init(XMP.tiff, "Copyright")])
    // "True" says that the rights are reserved, and that the notice tells by whom.
    put(values.copyright.map { $0.isEmpty ? "" : "True" }, { .simple(XMP.xmpRights, "Marked", $0) })
    put(values.creator, { .list(XMP.dc, "creator", "Seq", [$0]) }, clearing: [.init(XMP.tiff, "Artist")])
    put(
      values.description, { .alternatives(XMP.dc, "description", $0) },
      clearing: [.init(XMP.tiff, "ImageDescription")])
    put(values.title, { .alternatives(XMP.dc, "title", $0) })
    put(values.credit, { .simple(XMP.photoshop, "Credit", $0) })
  }

  /// Adds a property where there is none of its name.
  mutating func fill(_ property: XMP.Node) {
    if !properties.contains(where: { $0.name == property.name }) { properties.append(property) }
  }

  // MARK: Writing

  /// The packet as UTF-8, read-only and without padding.
  func bytes() -> [UInt8] {
    var spaces: [String] = []
    var known: Set<String> = []
    func gather(_ node: XMP.Node) {
      for space in [node.name.space] + node.attributes.map(\.name.space) where known.insert(space).inserted {
        spaces.append(space)
      }
      node.children.forEach(gather)
    }
    properties.forEach(gather)
    var names = [XMP.rdf: "rdf", XMP.xml: "xml", "": ""]
    var taken: Set<String> = ["rdf", "xml", "x"]
    for space in spaces where names[space] == nil {
      let usual = XMP.prefixes[space] ?? prefixes[space] ?? ""
      let isPlain = !usual.isEmpty && usual.utf8.allSatisfy { (0x61...0x7A).contains($0 | 0x20) }
      // A prefix may hold digits and hyphens too, but not start with them.
      let stem = isPlain || XMP.prefixes[space] != nil ? usual : "ns"
      var name = stem
      var number = 1
      while !taken.insert(name).inserted {
        number += 1
        name = "\(stem)\(number)"
      }
      names[space] = name
    }
    var out = "<?xpacket begin=\"\u{FEFF}\" id=\"W5M0MpCehiHzreSzNTczkc9d\"?>"
    out += "<x:xmpmeta xmlns:x=\"adobe:ns:meta/\"><rdf:RDF xmlns:rdf=\"\(XMP.rdf)\"><rdf:Description rdf:about=\"\""
    for space in spaces where space != XMP.rdf && space != XMP.xml && !space.isEmpty {
      out += " xmlns:\(names[space] ?? "ns")=\"\(Self.escaped(space))\""
    }
    out += ">"
    func qualified(_ name: XMP.Name) -> String {
      let prefix = names[name.space] ?? ""
      return prefix.isEmpty ? name.local : "\(prefix):\(name.local)"
    }
    func write(_ node: XMP.Node) {
      let name = qualified(node.name)
      out += "<\(name)"
      for attribute in node.attributes {
        out += " \(qualified(attribute.name))=\"\(Self.escaped(attribute.value))\""
      }
      guard !node.children.isEmpty || !node.text.isEmpty else {
        out += "/>"
        return
      }
      out += ">"
      if node.children.isEmpty { out += Self.escaped(node.text) }
      node.children.forEach(write)
      out += "</\(name)>"
    }
    properties.forEach(write)
    return Array((out + "</rdf:Description></rdf:RDF></x:xmpmeta><?xpacket end=\"r\"?>").utf8)
  }

  private static func escaped(_ text: String) -> String {
    var result = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "&": result += "&amp;"
      case "<": result += "&lt;"
      case ">": result += "&gt;"
      case "\"": result += "&quot;"
      case "\t", "\n", "\r": result += "&#\(scalar.value);"
      // XML 1.0 has no way to write these.
      case _ where scalar.value < 0x20 || scalar.value == 0xFFFE || scalar.value == 0xFFFF: break
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result
  }

  // MARK: Subjects

  /// A position in degrees, by whatever camera: `exif:GPSLatitude`, `drone-dji:GpsLongitude` …
  private static func isPosition(_ name: XMP.Name) -> Bool {
    let local = name.local.lowercased()
    return local.hasPrefix("gps") || ["latitude", "longitude", "altitude"].contains { local.hasSuffix($0) }
  }

  /// Whether a property describes the file the packet came from, or points to other pictures in it.
  private static func isStale(_ name: XMP.Name) -> Bool {
    switch name.space {
    case XMP.tiff: !["Make", "Model", "DateTime", "Artist", "Copyright", "ImageDescription"].contains(name.local)
    case XMP.exif:
      ["PixelXDimension", "PixelYDimension", "ColorSpace", "NativeDigest", "MakerNote"].contains(name.local)
    case XMP.xmp: name.local == "Thumbnails"
    // Ancestors can take megabytes; the profile goes with the pixels.
    case XMP.photoshop: ["ICCProfile", "ColorMode", "DocumentAncestors"].contains(name.local)
    case "http://ns.adobe.com/xmp/note/", "http://ns.adobe.com/hdr-gain-map/1.0/",
      "http://ns.apple.com/HDRGainMap/1.0/", "http://ns.google.com/photos/1.0/container/",
      "http://ns.google.com/photos/1.0/camera/", "http://ns.google.com/photos/1.0/image/",
      "http://ns.google.com/photos/1.0/depthmap/", "http://ns.google.com/photos/dd/1.0/device/":
      true
    default: false
    }
  }

  private static func subject(_ name: XMP.Name) -> MetadataKind? {
    if isPosition(name) { return .gps }
    switch name.space {
    case XMP.xmpRights, XMP.plus, XMP.creativeCommons: return .copyright
    default: return subjects[name]
    }
  }

  private static let subjects: [XMP.Name: MetadataKind] = {
    let lists: [(MetadataKind, String, [String])] = [
      (.copyright, XMP.dc, ["rights"]), (.copyright, XMP.tiff, ["Copyright"]),
      (.creator, XMP.dc, ["creator"]), (.creator, XMP.tiff, ["Artist"]),
      (.creator, XMP.photoshop, ["AuthorsPosition"]), (.creator, XMP.iptcCore, ["CreatorContactInfo"]),
      (.credit, XMP.photoshop, ["Credit", "Source"]),
      (.description, XMP.dc, ["title", "description"]), (.description, XMP.tiff, ["ImageDescription"]),
      (.description, XMP.photoshop, ["Headline", "CaptionWriter"]),
      (.description, XMP.iptcCore, ["AltTextAccessibility", "ExtDescrAccessibility"]),
      (.comments, XMP.exif, ["UserComment"]),
      (.keywords, XMP.dc, ["subject"]), (.keywords, XMP.lightroom, ["hierarchicalSubject"]),
      (.keywords, XMP.photoshop, ["Category", "SupplementalCategories"]),
      (.keywords, XMP.iptcCore, ["SubjectCode", "Scene"]), (.keywords, XMP.xmp, ["Rating", "Label"]),
      (.dates, XMP.xmp, ["CreateDate", "ModifyDate", "MetadataDate"]), (.dates, XMP.photoshop, ["DateCreated"]),
      (.dates, XMP.exif, ["DateTimeOriginal", "DateTimeDigitized"]), (.dates, XMP.tiff, ["DateTime"]),
      (.camera, XMP.tiff, ["Make", "Model"]), (.camera, XMP.aux, ["SerialNumber", "OwnerName"]),
      (.camera, XMP.exifEX, ["BodySerialNumber", "CameraOwnerName"]),
      (.lens, XMP.aux, ["Lens", "LensInfo", "LensID", "LensSerialNumber"]),
      (.lens, XMP.exifEX, ["LensSpecification", "LensMake", "LensModel", "LensSerialNumber"]),
      (.lens, XMP.exif, ["FocalLength", "FocalLengthIn35mmFilm", "MaxApertureValue"]),
      (
        .exposure, XMP.exif,
        [
          "ExposureTime", "FNumber", "ExposureProgram", "ISOSpeedRatings", "ShutterSpeedValue", "ApertureValue",
          "BrightnessValue", "ExposureBiasValue", "SubjectDistance", "MeteringMode", "LightSource", "Flash",
          "ExposureIndex", "SensingMethod", "CustomRendered", "ExposureMode", "WhiteBalance", "DigitalZoomRatio",
          "SceneCaptureType", "GainControl", "Contrast", "Saturation", "Sharpness", "SubjectDistanceRange",
        ]
      ),
      (.exposure, XMP.exifEX, ["PhotographicSensitivity", "SensitivityType", "RecommendedExposureIndex"]),
      (.place, XMP.photoshop, ["City", "State", "Country"]), (.place, XMP.iptcCore, ["Location", "CountryCode"]),
      (.place, XMP.iptcExt, ["LocationCreated", "LocationShown"]),
    ]
    var table: [XMP.Name: MetadataKind] = [:]
    for (kind, space, names) in lists { for name in names { table[XMP.Name(space, name)] = kind } }
    return table
  }()
}

/// Builds the tree of a packet while GLib walks it. Names are resolved by their namespaces, whatever their prefixes.
private final class XMPReader {
  private var open: [XMP.Node] = [XMP.Node(name: XMP.Name("", ""))]
  private var spaces: [[String: String]] = [["xml": XMP.xml]]
  private var prefixes: [String: String] = [:]
  private var count = 0
  private var declared = 0
  private var isSane = true

  /// The tree under a nameless root, and the prefix of each namespace; nil where the packet is broken, or so deep or
  /// large that it was built to do harm.
  static func parse(_ packet: [UInt8]) -> (XMP.Node, [String: String])? {
    // GLib's parser knows no byte order mark, and files end packets with zeros.
    var text = packet[...]
    if text.starts(with: [0xEF, 0xBB, 0xBF]) { text = text.dropFirst(3) }
    while let last = text.last, last == 0 { text = text.dropLast() }
    guard text.count <= 16 << 20 else { return nil }
    let reader = XMPReader()
    var parser = GMarkupParser()
    parser.start_element = { _, name, keys, values, data, _ in
      guard let name, let data else { return }
      var attributes: [(String, String)] = []
      var i = 0
      while let keys, let values, let key = keys[i], let value = values[i] {
        attributes.append((String(cString: key), String(cString: value)))
        i += 1
      }
      Unmanaged<XMPReader>.fromOpaque(data).takeUnretainedValue().start(String(cString: name), attributes)
    }
    parser.end_element = { _, _, data, _ in
      guard let data else { return }
      Unmanaged<XMPReader>.fromOpaque(data).takeUnretainedValue().end()
    }
    parser.text = { _, text, length, data, _ in
      guard let text, let data else { return }
      let bytes = UnsafeRawBufferPointer(start: text, count: Int(length))
      Unmanaged<XMPReader>.fromOpaque(data).takeUnretainedValue().add(String(decoding: bytes, as: UTF8.self))
    }
    let parsed = withExtendedLifetime(reader) { () -> Bool in
      guard
        let context = g_markup_parse_context_new(
          &parser, G_MARKUP_TREAT_CDATA_AS_TEXT, Unmanaged.passUnretained(reader).toOpaque(), nil)
      else { return false }
      defer { g_markup_parse_context_free(context) }
      return text.withUnsafeBytes { raw in
        guard let start = raw.bindMemory(to: CChar.self).baseAddress else { return false }
        return g_markup_parse_context_parse(context, start, raw.count, nil) != 0
          && g_markup_parse_context_end_parse(context, nil) != 0
      }
    }
    guard parsed, reader.isSane, reader.open.count == 1 else { return nil }
    return (reader.open[0], reader.prefixes)
  }

  private func start(_ name: String, _ attributes: [(String, String)]) {
    // A table of prefixes is copied where prefixes are declared, so these are fewer.
    declared += attributes.reduce(0) { $0 + ($1.0.hasPrefix("xmlns") ? 1 : 0) }
    count += 1 + attributes.count
    guard spaces.count < 64, count < 100_000, declared < 1_000 else {
      isSane = false
      spaces.append([:])
      open.append(XMP.Node(name: XMP.Name("", "")))
      return
    }
    var known = spaces[spaces.count - 1]
    for (key, value) in attributes {
      if key == "xmlns" { known[""] = value }
      guard key.hasPrefix("xmlns:") else { continue }
      let prefix = String(key.dropFirst(6))
      known[prefix] = value
      if prefixes[value] == nil { prefixes[value] = prefix }
    }
    spaces.append(known)
    var node = XMP.Node(name: resolved(name, isAttribute: false))
    for (key, value) in attributes where key != "xmlns" && !key.hasPrefix("xmlns:") {
      node.attributes.append((resolved(key, isAttribute: true), value))
    }
    open.append(node)
  }

  private func add(_ text: String) { if isSane { open[open.count - 1].text += text } }

  private func end() {
    guard open.count > 1, var node = open.popLast() else { return }
    spaces.removeLast()
    guard isSane else { return }
    node.text = node.children.isEmpty ? decodedText(node.text.utf8) : ""
    open[open.count - 1].children.append(node)
  }

  private func resolved(_ name: String, isAttribute: Bool) -> XMP.Name {
    let known = spaces[spaces.count - 1]
    let parts = name.split(separator: ":", maxSplits: 1).map(String.init)
    if parts.count == 2 {
      // A prefix that nothing declares makes the packet no XML with namespaces, yet some cameras write it.
      return XMP.Name(known[parts[0]] ?? XMP.prefixes.first { $0.value == parts[0] }?.key ?? "", parts[1])
    }
    return XMP.Name(isAttribute ? "" : known[""] ?? "", name)
  }
}
