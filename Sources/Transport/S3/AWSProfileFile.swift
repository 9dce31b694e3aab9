/// The sections of a shared AWS file (`~/.aws/credentials`, `~/.aws/config`), read as the AWS command line reads them.
///
/// Names of settings are told apart without regard to case; a line that is indented deeper than the setting before it
/// belongs to that one (as `s3 =` with settings of its own), and is passed over. `#` and `;` begin a comment at the
/// start of a line or after white space. A section that comes twice is one; the later value wins.
struct AWSProfileFile: Sendable {
  enum Kind: Sendable {
    /// Sections are named after profiles.
    case credentials
    /// Sections are named `profile NAME`, but for `default`; others are no profiles.
    case config
  }

  /// Settings by name of profile, then by name in lower case.
  private(set) var profiles: [String: [String: String]] = [:]

  init(_ bytes: [UInt8], kind: Kind) {
    var section: String?
    /// How deep the last setting of this section is indented; nil before the first.
    var depth: Int?
    // `[profile default]` counts for more than `[default]`, wherever either stands.
    var plainDefault: [String: String] = [:]
    var isPlainDefault = false
    let text = bytes.starts(with: [0xEF, 0xBB, 0xBF]) ? bytes[3...] : bytes[...]
    for line in text.split(whereSeparator: { $0 == UInt8(ascii: "\n") || $0 == UInt8(ascii: "\r") }) {
      let content = Self.trimmed(Self.withoutComment(line))
      guard let first = content.first else { continue }
      let indent = line.prefix { Self.isSpace($0) }.count
      if let depth, indent > depth { continue }
      if first == UInt8(ascii: "[") {
        depth = nil
        guard let end = content.firstIndex(of: UInt8(ascii: "]")) else {
          section = nil
          continue
        }
        let title = String(
          decoding: Self.trimmed(content[content.index(after: content.startIndex)..<end]), as: UTF8.self)
        section = Self.profile(title, kind: kind)
        isPlainDefault = kind == .config && title == "default"
        if let section, !isPlainDefault { profiles[section, default: [:]].merge([:]) { _, new in new } }
        continue
      }
      depth = indent
      guard let section,
        let sign = content.firstIndex(where: { $0 == UInt8(ascii: "=") || $0 == UInt8(ascii: ":") })
      else { continue }
      let name = String(decoding: Self.trimmed(content[..<sign]), as: UTF8.self).lowercased()
      let value = String(decoding: Self.trimmed(content[content.index(after: sign)...]), as: UTF8.self)
      if isPlainDefault { plainDefault[name] = value } else { profiles[section, default: [:]][name] = value }
    }
    if !plainDefault.isEmpty { profiles["default", default: [:]].merge(plainDefault) { strong, _ in strong } }
  }

  /// The profile that a section is of.
  private static func profile(_ title: String, kind: Kind) -> String? {
    switch kind {
    case .credentials: return unquoted(title)
    case .config:
      if title == "default" { return title }
      guard title.hasPrefix("profile"), let space = title.utf8.dropFirst(7).first, isSpace(space) else { return nil }
      return unquoted(String(decoding: trimmed(Array(title.utf8.dropFirst(7))[...]), as: UTF8.self))
    }
  }

  private static func unquoted(_ name: String) -> String? {
    guard let quote = name.first, quote == "\"" || quote == "'", name.count > 1, name.last == quote else {
      return name.isEmpty ? nil : name
    }
    let inner = String(name.dropFirst().dropLast())
    return inner.isEmpty ? nil : inner
  }

  private static func isSpace(_ byte: UInt8) -> Bool { byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") }

  private static func trimmed(_ bytes: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    var bytes = bytes
    while let first = bytes.first, isSpace(first) { bytes.removeFirst() }
    while let last = bytes.last, isSpace(last) { bytes.removeLast() }
    return bytes
  }

  private static func withoutComment(_ line: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    var before = UInt8(ascii: " ")
    for (index, byte) in zip(line.indices, line) {
      if byte == UInt8(ascii: "#") || byte == UInt8(ascii: ";"), isSpace(before) { return line[..<index] }
      before = byte
    }
    return line
  }
}
