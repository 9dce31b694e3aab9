/// Text as XML 1.0 has it. What the format has no form for at all, not even as an entity, is written as `\u{1B}`: it must
/// be seen, and must not make the file unreadable.
enum XMLText {
  /// Between tags.
  static func content(_ text: String) -> String { escaped(text, isAttribute: false) }

  /// Between double quotes. Line breaks are kept from becoming blanks.
  static func attribute(_ text: String) -> String { escaped(text, isAttribute: true) }

  /// ` name="value"` of each; those that are nil are left out.
  static func attributes(_ attributes: [(String, String?)]) -> String {
    attributes.map { name, value in value.map { " \(name)=\"\(attribute($0))\"" } ?? "" }.joined()
  }

  private static func escaped(_ text: String, isAttribute: Bool) -> String {
    var result = ""
    result.reserveCapacity(text.utf8.count)
    for scalar in text.unicodeScalars {
      switch scalar {
      case "&": result += "&amp;"
      case "<": result += "&lt;"
      case ">": result += "&gt;"
      case "\"" where isAttribute: result += "&quot;"
      case "\t" where isAttribute: result += "&#9;"
      case "\n" where isAttribute: result += "&#10;"
      // A reader takes a bare one for a line feed.
      case "\r": result += "&#13;"
      case "\t", "\n": result.unicodeScalars.append(scalar)
      default:
        switch scalar.value {
        case 0x20...0xD7FF, 0xE000...0xFFFD, 0x10000...0x10FFFF: result.unicodeScalars.append(scalar)
        default: result += "\\u{" + String(scalar.value, radix: 16, uppercase: true) + "}"
        }
      }
    }
    return result
  }
}
