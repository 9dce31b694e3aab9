import CVips

/// Adobe's metadata packets (ISO 16684-1): reading who owns a picture, and writing that alone.
enum XMP {
  struct Rights {
    var creators: [String] = []
    /// Language and text.
    var rights: [(language: String, text: String)] = []
    var usageTerms: [(language: String, text: String)] = []
    var owners: [String] = []
    var marked: String?
    var webStatement: String?

    var isEmpty: Bool {
      creators.isEmpty && rights.isEmpty && usageTerms.isEmpty && owners.isEmpty && marked == nil && webStatement == nil
    }

    func packet() -> [UInt8] {
      var body = ""
      func alternatives(_ name: String, _ items: [(language: String, text: String)]) {
        guard !items.isEmpty else { return }
        let list = items.map { "<rdf:li xml:lang=\"\(escaped($0.language))\">\(escaped($0.text))</rdf:li>" }.joined()
        body += "<\(name)><rdf:Alt>\(list)</rdf:Alt></\(name)>"
      }
      func list(_ name: String, _ kind: String, _ items: [String]) {
        guard !items.isEmpty else { return }
        let list = items.map { "<rdf:li>\(escaped($0))</rdf:li>" }.joined()
        body += "<\(name)><\(kind)>\(list)</\(kind)></\(name)>"
      }
      list("dc:creator", "rdf:Seq", creators)
      alternatives("dc:rights", rights)
      if let marked { body += "<xmpRights:Marked>\(escaped(marked))</xmpRights:Marked>" }
      list("xmpRights:Owner", "rdf:Bag", owners)
      alternatives("xmpRights:UsageTerms", usageTerms)
      if let webStatement { body += "<xmpRights:WebStatement>\(escaped(webStatement))</xmpRights:WebStatement>" }
      return Array(
        ("<?xpacket begin=\"\u{FEFF}\" id=\"W5M0MpCehiHzreSzNTczkc9d\"?>"
          + "<x:xmpmeta xmlns:x=\"adobe:ns:meta/\"><rdf:RDF xmlns:rdf=\"\(rdf)\">"
          + "<rdf:Description rdf:about=\"\" xmlns:dc=\"\(dc)\" xmlns:xmpRights=\"\(xmpRights)\">\(body)"
          + "</rdf:Description></rdf:RDF></x:xmpmeta><?xpacket end=\"w\"?>").utf8)
    }
  }

  static let rdf = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
  static let dc = "http://purl.org/dc/elements/1.1/"
  static let xmpRights = "http://ns.adobe.com/xap/1.0/rights/"

  private static func escaped(_ text: String) -> String {
    var result = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "&": result += "&amp;"
      case "<": result += "&lt;"
      case ">": result += "&gt;"
      case "\"": result += "&quot;"
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result
  }

  /// The rights in a packet; empty where it cannot be parsed, so that nothing unread is passed on.
  static func rights(in packet: [UInt8]) -> Rights {
    // GLib's parser knows no byte order mark, and files end packets with zeros.
    var text = packet[...]
    if text.starts(with: [0xEF, 0xBB, 0xBF]) { text = text.dropFirst(3) }
    while let last = text.last, last == 0 { text = text.dropLast() }
    let reader = Reader()
    var parser = GMarkupParser()
    parser.start_element = { _, name, keys, values, data, _ in
      guard let name, let data else { return }
      var attributes: [(String, String)] = []
      var i = 0
      while let keys, let values, let key = keys[i], let value = values[i] {
        attributes.append((String(cString: key), String(cString: value)))
        i += 1
      }
      Unmanaged<Reader>.fromOpaque(data).takeUnretainedValue().start(String(cString: name), attributes)
    }
    parser.end_element = { _, _, data, _ in
      guard let data else { return }
      Unmanaged<Reader>.fromOpaque(data).takeUnretainedValue().end()
    }
    parser.text = { _, text, length, data, _ in
      guard let text, let data else { return }
      let bytes = UnsafeRawBufferPointer(start: text, count: Int(length))
      Unmanaged<Reader>.fromOpaque(data).takeUnretainedValue().text += String(decoding: bytes, as: UTF8.self)
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
    return parsed ? reader.rights : Rights()
  }

  /// The packet with `tiff:Orientation` set to 1, in either of its two spellings.
  static func upright(_ packet: [UInt8]) -> [UInt8] {
    var result = packet
    let name = Array("tiff:Orientation".utf8)
    var i = 0
    while i + name.count < result.count {
      guard result[i..<i + name.count].elementsEqual(name) else {
        i += 1
        continue
      }
      i += name.count
      // After the name stand `="6"` or `>6<`, with blanks perhaps.
      var j = i
      while j < result.count, [0x20, 0x09, 0x0A, 0x0D, 0x3D, 0x22, 0x27, 0x3E].contains(result[j]) { j += 1 }
      if j > i, j < result.count, (0x30...0x39).contains(result[j]) { result[j] = 0x31 }
    }
    return result
  }

  /// Gathers rights while GLib walks the packet. Names are resolved by their namespaces, whatever their prefixes.
  private final class Reader {
    var rights = Rights()
    var text = ""
    private var names: [String] = []
    private var languages: [String] = []
    private var spaces: [[String: String]] = [[:]]

    func start(_ name: String, _ attributes: [(String, String)]) {
      var known = spaces[spaces.count - 1]
      // Each level that names spaces has a table of its own: a packet built to be deep must not fill the memory.
      for (key, value) in attributes where spaces.count < 100 && key.hasPrefix("xmlns:") {
        known[String(key.dropFirst(6))] = value
      }
      spaces.append(known)
      names.append(resolved(name))
      languages.append(attributes.first { $0.0 == "xml:lang" }?.1 ?? "x-default")
      text = ""
      for (key, value) in attributes where !key.hasPrefix("xml") { take(resolved(key), value, language: "x-default") }
    }

    func end() {
      guard let name = names.popLast() else { return }
      let language = languages.popLast() ?? "x-default"
      let isItem = name == XMP.rdf + "li"
      // An item belongs to the property around its list: property > rdf:Seq > rdf:li.
      let property = isItem ? names.dropLast().last ?? "" : name
      let value = decodedText(text.utf8)
      if !value.isEmpty { take(property, value, language: language) }
      text = ""
      spaces.removeLast()
    }

    private func take(_ property: String, _ value: String, language: String) {
      switch property {
      case XMP.dc + "creator": rights.creators.append(value)
      case XMP.dc + "rights": rights.rights.append((language, value))
      case XMP.xmpRights + "UsageTerms": rights.usageTerms.append((language, value))
      case XMP.xmpRights + "Owner": rights.owners.append(value)
      case XMP.xmpRights + "Marked": rights.marked = value
      case XMP.xmpRights + "WebStatement": rights.webStatement = value
      default: break
      }
    }

    private func resolved(_ name: String) -> String {
      let parts = name.split(separator: ":", maxSplits: 1)
      guard parts.count == 2, let space = spaces[spaces.count - 1][String(parts[0])] else { return name }
      return space + parts[1]
    }
  }
}
