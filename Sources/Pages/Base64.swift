/// Base64 (RFC 4648, section 4), with padding.
enum Base64 {
  private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)

  static func encode(_ bytes: UnsafeRawBufferPointer) -> [UInt8] {
    var text: [UInt8] = []
    text.reserveCapacity((bytes.count + 2) / 3 * 4)
    var index = 0
    while index < bytes.count {
      let left = min(3, bytes.count - index)
      let word =
        Int(bytes[index]) << 16 | (left > 1 ? Int(bytes[index + 1]) << 8 : 0) | (left > 2 ? Int(bytes[index + 2]) : 0)
      text.append(alphabet[word >> 18])
      text.append(alphabet[word >> 12 & 63])
      text.append(left > 1 ? alphabet[word >> 6 & 63] : UInt8(ascii: "="))
      text.append(left > 2 ? alphabet[word & 63] : UInt8(ascii: "="))
      index += 3
    }
    return text
  }

  static func encode(_ bytes: [UInt8]) -> String {
    String(decoding: bytes.withUnsafeBytes { encode($0) }, as: UTF8.self)
  }
}
