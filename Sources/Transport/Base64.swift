/// Base64 of RFC 4648, with the standard and the URL-safe alphabet.
public enum Base64 {
  private static let standard = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
  private static let urlSafe = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)
  /// 0x40 marks what belongs to no alphabet.
  private static let values = table(standard)
  private static let urlSafeValues = table(urlSafe)

  private static func table(_ alphabet: [UInt8]) -> [UInt8] {
    var values = [UInt8](repeating: 0x40, count: 256)
    for (value, byte) in alphabet.enumerated() { values[Int(byte)] = UInt8(value) }
    return values
  }

  /// The bytes as text, with padding; URL-safe text has none.
  public static func encode(_ bytes: UnsafeRawBufferPointer, urlSafe: Bool = false) -> [UInt8] {
    let count = bytes.count
    let rest = count % 3
    let length = urlSafe ? count / 3 * 4 + (rest == 0 ? 0 : rest + 1) : (count + 2) / 3 * 4
    return (urlSafe ? Self.urlSafe : standard).withUnsafeBufferPointer { alphabet in
      [UInt8](unsafeUninitializedCapacity: length) { text, used in
        var to = 0
        var from = 0
        while from + 3 <= count {
          let group = Int(bytes[from]) << 16 | Int(bytes[from + 1]) << 8 | Int(bytes[from + 2])
          text[to] = alphabet[group >> 18]
          text[to + 1] = alphabet[group >> 12 & 63]
          text[to + 2] = alphabet[group >> 6 & 63]
          text[to + 3] = alphabet[group & 63]
          from += 3
          to += 4
        }
        if rest > 0 {
          let group = Int(bytes[from]) << 16 | (rest == 2 ? Int(bytes[from + 1]) << 8 : 0)
          text[to] = alphabet[group >> 18]
          text[to + 1] = alphabet[group >> 12 & 63]
          to += 2
          if rest == 2 {
            text[to] = alphabet[group >> 6 & 63]
            to += 1
          }
          while to < length {
            text[to] = UInt8(ascii: "=")
            to += 1
          }
        }
        used = length
      }
    }
  }

  public static func encode(_ bytes: [UInt8], urlSafe: Bool = false) -> [UInt8] {
    bytes.withUnsafeBytes { encode($0, urlSafe: urlSafe) }
  }

  /// The bytes that the text stands for; nil where it is not strictly base64: another character (line breaks too), a
  /// wrong length, bits set beyond the last byte. Padding may be missing in URL-safe text only.
  public static func decode(_ text: UnsafeRawBufferPointer, urlSafe: Bool = false) -> [UInt8]? {
    var length = text.count
    var padding = 0
    while padding < 2, length > 0, text[length - 1] == UInt8(ascii: "=") {
      length -= 1
      padding += 1
    }
    let rest = length % 4
    guard rest != 1, padding == 0 ? urlSafe || rest == 0 : rest + padding == 4 else { return nil }
    var isValid = true
    let bytes = (urlSafe ? urlSafeValues : values).withUnsafeBufferPointer { values in
      [UInt8](unsafeUninitializedCapacity: length / 4 * 3 + 2) { bytes, used in
        var to = 0
        var from = 0
        var seen: UInt8 = 0
        while from + 4 <= length {
          let (a, b) = (values[Int(text[from])], values[Int(text[from + 1])])
          let (c, d) = (values[Int(text[from + 2])], values[Int(text[from + 3])])
          seen |= a | b | c | d
          bytes[to] = a << 2 | b >> 4
          bytes[to + 1] = b << 4 | c >> 2
          bytes[to + 2] = c << 6 | d
          from += 4
          to += 3
        }
        if rest >= 2 {
          let (a, b) = (values[Int(text[from])], values[Int(text[from + 1])])
          let c = rest == 3 ? values[Int(text[from + 2])] : 0
          seen |= a | b | c
          bytes[to] = a << 2 | b >> 4
          to += 1
          if rest == 3 {
            bytes[to] = b << 4 | c >> 2
            to += 1
          }
          if (rest == 2 ? b << 4 : c << 6) != 0 { isValid = false }
        }
        if seen & 0x40 != 0 { isValid = false }
        used = isValid ? to : 0
      }
    }
    return isValid ? bytes : nil
  }

  public static func decode(_ text: [UInt8], urlSafe: Bool = false) -> [UInt8]? {
    text.withUnsafeBytes { decode($0, urlSafe: urlSafe) }
  }

  public static func decode(_ text: String, urlSafe: Bool = false) -> [UInt8]? {
    decode(Array(text.utf8), urlSafe: urlSafe)
  }
}
