/// What a request carries.
public enum RequestBody: Sendable {
  case none
  case raw(Payload, type: String)
  /// `application/x-www-form-urlencoded`, in this order.
  case form([(name: String, value: Payload)])
  /// `multipart/form-data` (RFC 7578), in this order.
  case multipart([Part])

  /// The bytes that are sent, and their media type; nil for none.
  ///
  /// Files of a multipart body are read as it is sent; the values of a form are encoded here, into one copy.
  /// Throws `failed` for values that cannot be read, names and types that cannot be written.
  ///
  /// - Parameter boundary: between parts; nil for one drawn by lot, which no file contains.
  public func encoded(boundary: String? = nil) throws(TransportError) -> (payload: Payload, type: String)? {
    switch self {
    case .none: return nil
    case .raw(let payload, let type):
      guard isFieldValue(type) else { throw TransportError(.failed, "a media type must not hold control characters") }
      return (payload, type)
    case .form(let fields):
      var bytes: [UInt8] = []
      for (index, field) in fields.enumerated() {
        if index > 0 { bytes.append(UInt8(ascii: "&")) }
        Array(field.name.utf8).withUnsafeBytes { Self.encodeForm($0, into: &bytes) }
        bytes.append(UInt8(ascii: "="))
        bytes.reserveCapacity(bytes.count + field.value.count + field.value.count / 16)
        try field.value.forEachPiece { Self.encodeForm($0, into: &bytes) }
      }
      return (Payload(bytes), "application/x-www-form-urlencoded")
    case .multipart(let parts):
      let boundary = boundary ?? Self.randomBoundary()
      var pieces: [Payload] = []
      for part in parts {
        pieces.append(Payload(try part.head(boundary: boundary)))
        pieces.append(part.payload)
        pieces.append(Payload("\r\n"))
      }
      pieces.append(Payload("--\(boundary)--\r\n"))
      return (.joined(pieces), "multipart/form-data; boundary=\(boundary)")
    }
  }

  /// The serializer of the URL standard, section 5: letters, digits and `*-._` stay, a space is `+`.
  private static func encodeForm(_ text: UnsafeRawBufferPointer, into bytes: inout [UInt8]) {
    for byte in text {
      switch byte {
      case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2A, 0x2D, 0x2E, 0x5F: bytes.append(byte)
      case 0x20: bytes.append(UInt8(ascii: "+"))
      default:
        bytes.append(UInt8(ascii: "%"))
        bytes.append(RequestURL.hexDigits[Int(byte >> 4)])
        bytes.append(RequestURL.hexDigits[Int(byte & 15)])
      }
    }
  }

  /// 128 bits by lot.
  private static func randomBoundary() -> String {
    var generator = SystemRandomNumberGenerator()
    var text = "----------------"
    for _ in 0..<2 {
      let number = String(generator.next(), radix: 16)
      text += String(repeating: "0", count: 16 - number.count) + number
    }
    return text
  }
}

/// One field or file of a multipart body.
public struct Part: Sendable {
  public let name: String
  public let payload: Payload
  /// Nil for a field.
  public let filename: String?
  /// Nil for a field.
  public let type: String?

  /// A field of text.
  public static func text(_ name: String, _ value: String) -> Part {
    Part(name: name, payload: Payload(value), filename: nil, type: nil)
  }

  /// A field whose text is read as it is sent.
  public static func field(_ name: String, _ value: Payload) -> Part {
    Part(name: name, payload: value, filename: nil, type: nil)
  }

  /// A file.
  ///
  /// - Parameters:
  ///   - filename: what is after its last `/` or `\` is sent, as UTF-8.
  ///   - type: its media type, which is always sent.
  public static func file(_ name: String, _ payload: Payload, filename: String, type: String) -> Part {
    let last = filename.split(omittingEmptySubsequences: false) { $0 == "/" || $0 == "\\" }.last.map(String.init) ?? ""
    return Part(
      name: name, payload: payload, filename: ["", ".", ".."].contains(last) ? "file" : last, type: type)
  }

  fileprivate func head(boundary: String) throws(TransportError) -> String {
    var text = "--\(boundary)\r\nContent-Disposition: form-data; name=\"\(Self.escaped(name))\""
    if let filename { text += "; filename=\"\(Self.escaped(filename))\"" }
    if let type {
      guard isFieldValue(type), !type.isEmpty else {
        throw TransportError(.failed, "a media type must not be empty or hold control characters")
      }
      text += "\r\nContent-Type: \(type)"
    }
    return text + "\r\n\r\n"
  }

  /// As browsers escape names (HTML standard, "multipart form data"): quotes and line breaks percent-encoded, the rest
  /// raw. Other control characters, which servers choke on, become `_`.
  private static func escaped(_ name: String) -> String {
    var result = ""
    for scalar in name.unicodeScalars {
      switch scalar {
      case "\"": result += "%22"
      case "\r": result += "%0D"
      case "\n": result += "%0A"
      case "\u{0}"..."\u{1F}", "\u{7F}": result += "_"
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result
  }
}

/// Whether a text may be the value of a header field: no control characters but tabs.
func isFieldValue(_ text: String) -> Bool { !text.utf8.contains { $0 < 0x20 && $0 != 0x09 || $0 == 0x7F } }
