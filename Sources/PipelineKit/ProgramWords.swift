import Transport

/// What a program says, for people: without secrets, escape sequences and control characters.
public enum ProgramWords {
  /// The last of some words.
  ///
  /// - Parameters:
  ///   - bytes: the end of what the program wrote.
  ///   - most: how many bytes of it are kept at most.
  public static func tail(_ bytes: [UInt8], most: Int) -> String {
    // Before anything is cut, as half a secret is one too.
    let plain = plain(String(decoding: Secrets.redacted(bytes), as: UTF8.self))
    guard plain.utf8.count > most else { return plain }
    var end = plain.suffix(most)
    while end.utf8.count > most { end.removeFirst() }
    // From the beginning of a line, where that leaves any.
    if let line = end.firstIndex(of: "\n"), end.index(after: line) < end.endIndex {
      end = end[end.index(after: line)...]
    }
    return "… " + end
  }

  /// The last line with anything in it, at most 200 characters.
  public static func lastLine(_ text: String) -> String? {
    guard let line = text.split(separator: "\n").last(where: { !$0.allSatisfy(\.isWhitespace) }) else { return nil }
    let words = line.drop(while: \.isWhitespace)
    return words.count > 200 ? words.prefix(199) + "…" : String(words)
  }

  /// The whole of a text.
  public static func plain(_ text: String) -> String {
    var lines: [String] = []
    var line = ""
    var scalars = text.unicodeScalars.makeIterator()
    var pending: Unicode.Scalar?
    func next() -> Unicode.Scalar? {
      defer { pending = nil }
      return pending ?? scalars.next()
    }
    while let scalar = next() {
      switch scalar {
      case "\u{1B}":
        guard let kind = next() else { break }
        if kind == "[" {
          while let part = next(), !(0x40...0x7E).contains(part.value) {}
        } else if kind == "]" {
          while let part = next(), part != "\u{07}", part != "\u{1B}" {}
        }
      case "\n":
        lines.append(line)
        line = ""
      case "\r":
        // A line that is drawn over, unless this only ends it.
        pending = scalars.next()
        if pending != "\n", pending != nil { line = "" }
      case "\t": line += " "
      case _ where scalar.value < 0x20 || (0x7F...0x9F).contains(scalar.value): break
      // What turns the direction of text around it.
      case _ where (0x202A...0x202E).contains(scalar.value) || (0x2066...0x2069).contains(scalar.value): break
      default: line.unicodeScalars.append(scalar)
      }
    }
    lines.append(line)
    while lines.last?.allSatisfy(\.isWhitespace) ?? false { lines.removeLast() }
    return lines.joined(separator: "\n")
  }
}
