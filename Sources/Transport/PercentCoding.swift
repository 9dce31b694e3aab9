/// Percent-encoding (RFC 3986) of bytes, in the one form that signatures are made over: all but the unreserved
/// characters `A-Z a-z 0-9 - . _ ~` encoded, with upper-case digits.
public enum PercentCoding {
  static func encoded(_ bytes: some Sequence<UInt8>, keepingSlashes: Bool) -> String {
    var text: [UInt8] = []
    text.reserveCapacity(bytes.underestimatedCount)
    for byte in bytes {
      if RequestURL.isUnreserved(byte) || keepingSlashes && byte == UInt8(ascii: "/") {
        text.append(byte)
      } else {
        text += [UInt8(ascii: "%"), RequestURL.hexDigits[Int(byte >> 4)], RequestURL.hexDigits[Int(byte & 15)]]
      }
    }
    return String(decoding: text, as: UTF8.self)
  }

  /// The bytes that a text stands for; a `%` that no two hex digits follow stands for itself.
  public static func decoded(_ text: some StringProtocol, plusIsSpace: Bool = false) -> [UInt8] {
    let source = Array(text.utf8)
    var bytes: [UInt8] = []
    bytes.reserveCapacity(source.count)
    var at = 0
    while at < source.count {
      if source[at] == UInt8(ascii: "%"), at + 2 < source.count, let high = digit(source[at + 1]),
        let low = digit(source[at + 2])
      {
        bytes.append(high << 4 | low)
        at += 3
      } else {
        bytes.append(plusIsSpace && source[at] == UInt8(ascii: "+") ? UInt8(ascii: " ") : source[at])
        at += 1
      }
    }
    return bytes
  }

  private static func digit(_ byte: UInt8) -> UInt8? {
    switch byte {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
    case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
    case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
    default: nil
    }
  }
}
