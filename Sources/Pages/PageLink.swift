import PipelineKit

/// An address that a page may link to or show: of the web, or of a file seen from the page's folder.
public struct PageLink: Sendable, Hashable {
  /// Percent-encoded; goes into `href` or `src` as it is.
  public let address: String

  /// An address of the web; nil for any other scheme, such as `javascript:`.
  public init?(web text: String) {
    let lower = text.lowercased()
    guard lower.hasPrefix("https://") || lower.hasPrefix("http://") else { return nil }
    address = Self.encoded(Array(text.utf8), keeping: Self.addressSigns)
  }

  /// A file, as it is reached from a page in a folder; both absolute.
  public init(file: PathBytes, from folder: PathBytes) {
    let path = file.normalised.relative(to: folder.normalised)
    // A first name with a colon would read as a scheme.
    let prefix = path.isAbsolute ? "file://" : "./"
    address = prefix + Self.encoded(path.bytes, keeping: Self.pathSigns)
  }

  private static let pathSigns = Set("/-_.~".utf8)
  private static let addressSigns = Set("/-_.~:?#[]@!$&()*+,;=%".utf8)

  private static func encoded(_ bytes: [UInt8], keeping signs: Set<UInt8>) -> String {
    let digits = Array("0123456789ABCDEF".utf8)
    var result: [UInt8] = []
    result.reserveCapacity(bytes.count)
    for byte in bytes {
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"):
        result.append(byte)
      case _ where signs.contains(byte): result.append(byte)
      default: result += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
      }
    }
    return String(decoding: result, as: UTF8.self)
  }
}
