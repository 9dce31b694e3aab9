import JobSyntax

extension Response {
  /// The server's words about what went wrong, for people: the message of a JSON or XML answer where it is plain which that
  /// is, else the text, without tags and control characters, on one line, at most 300 Unicode scalars, without registered
  /// secrets. Empty for pictures and other bytes.
  public var excerpt: String { Excerpt.text(of: body, mediaType: mediaType) }
}

enum Excerpt {
  private static let longest = 300
  /// No more of a body is looked at.
  private static let reach = 64 << 10

  static func text(of body: [UInt8], mediaType: String?) -> String {
    // Before anything is cut, as half a secret is one too.
    let bytes = Secrets.redacted(Array(body.prefix(reach + (8 << 10))))
    let type = mediaType ?? ""
    var text = String(decoding: bytes.prefix(reach), as: UTF8.self)
    if text.hasPrefix("\u{FEFF}") { text.removeFirst() }
    guard !isBinary(text, type) else { return "" }
    let start = trimmed(text.prefix(200)).lowercased()
    if start.hasPrefix("{") || start.hasPrefix("["), body.count <= reach, let answer = try? JSONAnswer(Array(text.utf8))
    {
      text = message(of: answer.root) ?? text
    } else if start.hasPrefix("<"), !start.hasPrefix("<!doctype html"), !start.hasPrefix("<html"),
      let words = messageOfXML(text)
    {
      text = words
    }
    return clean(text)
  }

  private static func isBinary(_ text: String, _ type: String) -> Bool {
    for prefix in ["image/", "audio/", "video/", "application/zip"] where type.hasPrefix(prefix) {
      // SVG is text, but no words.
      return true
    }
    let sample = text.unicodeScalars.prefix(512)
    let odd = sample.count { $0 == "\u{FFFD}" || ($0.value < 0x20 && !["\t", "\n", "\r"].contains($0)) }
    return odd * 10 > sample.count
  }

  // MARK: Structured answers

  /// What services call their message, the most telling first.
  private static let messageKeys = [
    "message", "error_description", "error_message", "errorMessage", "title", "detail", "msg", "reason", "description",
    "status_txt", "Message",
  ]
  private static let nestedKeys = ["error", "errors", "data", "detail", "details", "message", "Error", "status"]
  private static let codeKeys = ["code", "error_code", "type", "Code"]

  private static func message(of node: JSONNode, depth: Int = 0) -> String? {
    guard depth < 6 else { return nil }
    if let text = node.stringValue { return text.isEmpty ? nil : text }
    if let first = node.arrayValue?.first { return message(of: first, depth: depth + 1) }
    guard node.objectValue != nil else { return nil }
    for key in messageKeys {
      guard let text = node[key]?.stringValue, !text.isEmpty else { continue }
      let more = key == "title" ? node["detail"]?.stringValue.map { ": \($0)" } ?? "" : ""
      let code = codeKeys.lazy.compactMap { node[$0]?.stringValue }.first { !$0.isEmpty && !text.contains($0) }
      return text + more + (code.map { " (\($0))" } ?? "")
    }
    for key in nestedKeys {
      if let inner = node[key], let text = message(of: inner, depth: depth + 1) { return text }
    }
    return nil
  }

  /// `Code: Message` of S3 and Azure; the human-readable part of WebDAV and others.
  private static func messageOfXML(_ text: String) -> String? {
    func element(_ name: String) -> String? {
      guard let start = text.firstRange(of: "<\(name)>"),
        let end = text[start.upperBound...].firstRange(of: "</\(name)>")
      else { return nil }
      let inner = trimmed(text[start.upperBound..<end.lowerBound])
      return inner.isEmpty ? nil : inner
    }
    let message = element("Message") ?? element("message") ?? element("s:message")
    guard let message else { return element("Code") }
    return element("Code").map { "\(message) (\($0))" } ?? message
  }

  // MARK: Cleaning

  private static func clean(_ text: String) -> String {
    var text = text
    for name in ["script", "style", "head"] { text = without(name, in: text) }
    // Entities may hold tags; white space and invisible characters may have stood in one.
    for _ in 0..<3 { text = oneLine(withoutEntities(withoutTags(text))) }
    // Once more for what all this may have put together.
    text = Secrets.redacted(oneLine(withoutTags(text)))
    let scalars = text.unicodeScalars
    guard scalars.count > longest else { return text }
    return String(String.UnicodeScalarView(scalars.prefix(longest - 1))) + "…"
  }

  /// The text without elements of that name and what is in them; one that has no end reaches to the text's.
  private static func without(_ name: String, in text: String) -> String {
    let bytes = Array(text.utf8)
    let start = Array("<\(name)".utf8)
    let end = Array("</\(name)>".utf8)
    func stands(_ tag: [UInt8], at index: Int) -> Bool {
      guard bytes[index] == UInt8(ascii: "<"), index + tag.count <= bytes.count else { return false }
      return tag.indices.allSatisfy { lowercase(bytes[index + $0]) == tag[$0] }
    }
    var kept: [UInt8] = []
    kept.reserveCapacity(bytes.count)
    var index = 0
    while index < bytes.count {
      guard stands(start, at: index), index + start.count < bytes.count,
        [0x09, 0x0A, 0x0D, 0x20, UInt8(ascii: ">")].contains(bytes[index + start.count])
      else {
        kept.append(bytes[index])
        index += 1
        continue
      }
      while index < bytes.count, !stands(end, at: index) { index += 1 }
      index = min(index + end.count, bytes.count)
      kept.append(0x20)
    }
    return String(decoding: kept, as: UTF8.self)
  }

  /// A space in place of each tag: `<` with a letter, `/`, `!` or `?` after it, to the next `>` or the end.
  private static func withoutTags(_ text: String) -> String {
    var scalars = Array(text.unicodeScalars)
    for _ in 0..<8 {
      var kept: [Unicode.Scalar] = []
      var index = 0
      var found = false
      while index < scalars.count {
        if scalars[index] == "<", index + 1 < scalars.count, isTagStart(scalars[index + 1]) {
          found = true
          kept.append(" ")
          while index < scalars.count, scalars[index] != ">" { index += 1 }
          index += 1
        } else {
          kept.append(scalars[index])
          index += 1
        }
      }
      // What stood around a tag may make another; each round takes some away.
      guard found else { return String(String.UnicodeScalarView(kept)) }
      scalars = kept
    }
    // Nested deeper than any page: somebody plays.
    return String(String.UnicodeScalarView(scalars.map { $0 == "<" ? " " : $0 }))
  }

  private static func isTagStart(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar {
    case "a"..."z", "A"..."Z", "/", "!", "?": true
    default: false
    }
  }

  private static let entities: [String: String] = [
    "amp": "&", "lt": "<", "gt": ">", "quot": "\"", "apos": "'", "nbsp": " ", "#39": "'", "#x27": "'",
  ]

  private static func withoutEntities(_ text: String) -> String {
    guard text.utf8.contains(UInt8(ascii: "&")) else { return text }
    var result = ""
    var rest = text[...]
    while let mark = rest.firstIndex(of: "&") {
      result += rest[..<mark]
      let name = rest[rest.index(after: mark)...].prefix(7).prefix { $0 != ";" }
      if let plain = entities[String(name)], name.endIndex < rest.endIndex, rest[name.endIndex] == ";" {
        result += plain
        rest = rest[rest.index(after: name.endIndex)...]
      } else {
        result += "&"
        rest = rest[rest.index(after: mark)...]
      }
    }
    return result + rest
  }

  /// Runs of white space and control characters as one space, none at the ends; what is invisible or turns the direction of
  /// writing is left out.
  private static func oneLine(_ text: String) -> String {
    var result = String.UnicodeScalarView()
    var hasGap = false
    for scalar in text.unicodeScalars {
      switch scalar.properties.generalCategory {
      case .control, .lineSeparator, .paragraphSeparator, .spaceSeparator: hasGap = true
      case .format, .privateUse, .unassigned, .surrogate: continue
      default:
        if hasGap, !result.isEmpty { result.append(" ") }
        hasGap = false
        result.append(scalar)
      }
    }
    return String(result)
  }
}
