/// Reads comma-separated values as RFC 4180 has them: quoted fields, doubled quotes, line breaks inside quotes.
///
/// Lines may end in CRLF or LF. Lines with nothing in them are passed.
final class CSVReader {
  private let stream: ByteStream
  private var line = 1

  /// The longest record taken, in bytes: an opening quote without an end must not read the whole file.
  static let longestRecord = 1 << 20

  init(_ stream: ByteStream) throws(TextFault) {
    self.stream = stream
    try stream.passByteOrderMark()
  }

  /// The fields of the next record and the line it starts on; nil at the end.
  func next() throws(TextFault) -> (fields: [[UInt8]], line: Int)? {
    while try stream.peek() != nil {
      let start = line
      let fields = try record()
      if fields.count == 1, fields[0].isEmpty { continue }
      return (fields, start)
    }
    return nil
  }

  private func record() throws(TextFault) -> [[UInt8]] {
    let quote = UInt8(ascii: "\"")
    let start = line
    var fields: [[UInt8]] = []
    var field: [UInt8] = []
    var length = 0
    var isQuoted = false
    var isClosed = false
    while true {
      let byte = try stream.next()
      length += 1
      if length > Self.longestRecord {
        throw .line(
          start, "a row longer than \(Self.longestRecord) bytes", hint: "a quote may be missing its end",
          canContinue: false)
      }
      if isQuoted, !isClosed {
        guard let byte else { throw .line(start, "a quoted field without its closing quote", canContinue: false) }
        if byte == UInt8(ascii: "\n") { line += 1 }
        if byte != quote {
          field.append(byte)
        } else if try stream.peek() == quote {
          _ = try stream.next()
          field.append(quote)
        } else {
          isClosed = true
        }
        continue
      }
      switch byte {
      case nil:
        return fields + [field]
      case UInt8(ascii: ","):
        fields.append(field)
        field = []
        isQuoted = false
        isClosed = false
      case UInt8(ascii: "\n"):
        line += 1
        return fields + [field]
      case UInt8(ascii: "\r"):
        guard try stream.peek() == UInt8(ascii: "\n") else {
          throw .line(
            line, "a carriage return outside quotes", hint: "rows end in CRLF or LF", canContinue: false)
        }
      case quote:
        guard field.isEmpty, !isClosed else {
          throw .line(
            line, "a quote inside a field", hint: "put the whole field in quotes and double the ones inside",
            canContinue: false)
        }
        isQuoted = true
      case .some(let byte):
        if isClosed {
          throw .line(
            line, "text behind a field's closing quote", hint: "double quotes inside a field", canContinue: false)
        }
        field.append(byte)
      }
    }
  }
}
