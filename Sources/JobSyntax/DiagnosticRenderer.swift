/// Turns findings into text for people or JSON for machines.
public struct DiagnosticRenderer: Sendable {
  /// Columns of the screen that a source line may take; longer ones are cut around the place.
  public var width: Int

  public init(width: Int = 100) { self.width = max(20, width) }

  /// Each finding as `file:line:column: error: message [code]`, its source line with the range marked under it, and
  /// its hint; a line break ends each line, the last one too.
  ///
  /// The source line is shown where `sources` holds the file by name. Control characters and others that could
  /// change what a terminal shows are made visible. Escape sequences for colour are written only with `color`.
  public func text(_ diagnostics: [Diagnostic], sources: [SourceFile], color: Bool) -> String {
    let paint = Paint(isOn: color)
    var output = ""
    for diagnostic in diagnostics {
      output += heading(diagnostic, paint)
      if let range = diagnostic.range, let source = source(of: diagnostic, at: range, among: sources) {
        output += excerpt(of: source, range, diagnostic.severity, paint)
      }
      if let hint = diagnostic.hint {
        output += "  \(paint.hint("hint:")) \(visible(hint))\n"
      }
    }
    return output
  }

  /// The findings as a JSON array, ending in a line break: `severity` `code` `message` `file` `line` `column`
  /// `endLine` `endColumn` `path` `expected` `found` `hint`, all always there and null where not known.
  ///
  /// Lines and columns count from 1 (columns in Unicode scalars); the end is the place after the last character.
  public func json(_ diagnostics: [Diagnostic]) -> String {
    JSONText.array(diagnostics.map(jsonValue)).rendered(pretty: true) + "\n"
  }

  /// One finding as the object that `json` writes for it.
  public func jsonValue(_ diagnostic: Diagnostic) -> JSONText {
    func string(_ value: String?) -> JSONText { value.map(JSONText.string) ?? .null }
    func integer(_ value: Int?) -> JSONText { value.map(JSONText.integer) ?? .null }
    return .object([
      ("severity", .string(diagnostic.severity.rawValue)),
      ("code", .string(diagnostic.code)),
      ("message", .string(diagnostic.message)),
      ("file", string(diagnostic.file)),
      ("line", integer(diagnostic.range?.start.line)),
      ("column", integer(diagnostic.range?.start.column)),
      ("endLine", integer(diagnostic.range?.end.line)),
      ("endColumn", integer(diagnostic.range?.end.column)),
      ("path", string(diagnostic.path)),
      ("expected", string(diagnostic.expected)),
      ("found", string(diagnostic.found)),
      ("hint", string(diagnostic.hint)),
    ])
  }

  private func heading(_ diagnostic: Diagnostic, _ paint: Paint) -> String {
    var place = ""
    if let file = diagnostic.file {
      place = visible(file)
      if let start = diagnostic.range?.start { place += ":\(start.line):\(start.column)" }
      place = paint.place(place + ":") + " "
    }
    let severity = paint.severity(diagnostic.severity, "\(diagnostic.severity.rawValue):")
    return "\(place)\(severity) \(visible(diagnostic.message)) [\(diagnostic.code)]\n"
  }

  /// The source that a finding names; of several parts of one file the one that holds the line.
  private func source(of diagnostic: Diagnostic, at range: SourceRange, among sources: [SourceFile]) -> SourceFile? {
    sources.filter {
      $0.name == diagnostic.file && $0.firstLine <= range.start.line && range.start.offset <= $0.text.count
    }.max { $0.firstLine < $1.firstLine }
  }

  private func excerpt(
    of source: SourceFile, _ range: SourceRange, _ severity: Diagnostic.Severity, _ paint: Paint
  ) -> String {
    let line = SourceExcerpt(of: source, around: range, width: width)
    guard !line.text.isEmpty else { return "" }
    let number = String(range.start.line)
    let blank = String(repeating: " ", count: number.utf8.count)
    return "  \(paint.margin("\(number) |")) \(line.text)\n"
      + "  \(paint.margin("\(blank) |")) \(line.indent)\(paint.severity(severity, line.marks))\n"
  }
}

/// Escape sequences around the parts of a finding, or nothing.
private struct Paint {
  let isOn: Bool

  func place(_ text: String) -> String { wrap(text, "1") }
  func margin(_ text: String) -> String { wrap(text, "2") }
  func hint(_ text: String) -> String { wrap(text, "36") }
  func severity(_ severity: Diagnostic.Severity, _ text: String) -> String {
    switch severity {
    case .error: wrap(text, "1;31")
    case .warning: wrap(text, "1;33")
    case .note: wrap(text, "1;36")
    }
  }

  private func wrap(_ text: String, _ code: String) -> String { isOn ? "\u{1B}[\(code)m\(text)\u{1B}[0m" : text }
}

/// `text` with everything made visible that could break the line or change what a terminal shows.
private func visible(_ text: String) -> String {
  text.unicodeScalars.map { visibleForm(of: $0) ?? String($0) }.joined()
}

/// One source line, or the part of it around a range, as it is shown, with the marks that go under it.
private struct SourceExcerpt {
  var text = ""
  /// Blanks up to the marks.
  var indent = ""
  var marks = ""

  /// What takes a place of its own on the screen: a character as people see it, or a byte that is not UTF-8.
  private struct Cell {
    let shown: String
    let columns: Int
    let bytes: Range<Int>
    let isTab: Bool
  }

  private static let tabStop = 4

  /// Looks at no more of the line than could be shown, for a line may be as long as the file.
  init(of source: SourceFile, around range: SourceRange, width: Int) {
    let bytes = source.text
    let start = min(range.start.offset, bytes.count)
    let reach = width * 4
    var low = start
    while low > source.contentStart, start - low < reach, !isLineBreak(bytes[low - 1]) { low -= 1 }
    while low < start, low > 0, isContinuation(bytes[low]) { low += 1 }
    var high = start
    while high < bytes.count, high - start < reach, !isLineBreak(bytes[high]) { high += 1 }
    while high > start, high < bytes.count, isContinuation(bytes[high]) { high -= 1 }
    let isCutLeft = low > source.contentStart && !isLineBreak(bytes[low - 1])
    let isCutRight = high < bytes.count && !isLineBreak(bytes[high])

    let cells = SourceExcerpt.cells(of: bytes, low..<high)
    let place = cells.firstIndex { $0.bytes.upperBound > start } ?? cells.count
    let shown = SourceExcerpt.window(cells, around: place, width: width, isCut: isCutLeft || isCutRight)

    var column = 0
    if shown.lowerBound > 0 || isCutLeft {
      text = "…"
      column = 1
    }
    var marksBegin: Int?
    var marked = 0
    for (index, cell) in cells.enumerated() where shown.contains(index) {
      let columns = cell.isTab ? SourceExcerpt.tabStop - column % SourceExcerpt.tabStop : cell.columns
      if index == place { marksBegin = column }
      if index >= place, cell.bytes.lowerBound < max(range.end.offset, start) { marked += columns }
      text += cell.isTab ? String(repeating: " ", count: columns) : cell.shown
      column += columns
    }
    if shown.upperBound < cells.count || isCutRight { text += "…" }
    indent = String(repeating: " ", count: marksBegin ?? column)
    marks = "^" + String(repeating: "~", count: max(0, marked - 1))
  }

  private static func cells(of bytes: [UInt8], _ range: Range<Int>) -> [Cell] {
    var cells: [Cell] = []
    var index = range.lowerBound
    while index < range.upperBound {
      let rest = bytes[index..<range.upperBound]
      let bad = rest.withUnsafeBufferPointer { firstInvalidUTF8(in: $0, from: 0) } ?? rest.count
      for character in String(decoding: rest.prefix(bad), as: UTF8.self) {
        let end = index + character.utf8.count
        let shown = character.unicodeScalars.map { scalar in
          // A joiner inside a character is what makes it one.
          character.unicodeScalars.count > 1 && scalar == "\u{200D}"
            ? String(scalar) : visibleForm(of: scalar) ?? String(scalar)
        }.joined()
        let isPlain = shown.unicodeScalars.elementsEqual(character.unicodeScalars)
        cells.append(
          Cell(
            shown: shown, columns: isPlain ? columns(of: character) : shown.reduce(0) { $0 + columns(of: $1) },
            bytes: index..<end, isTab: character == "\t"))
        index = end
      }
      if index < range.upperBound {
        let hex = String(bytes[index], radix: 16, uppercase: true)
        cells.append(Cell(shown: "<\(hex)>", columns: 4, bytes: index..<index + 1, isTab: false))
        index += 1
      }
    }
    return cells
  }

  /// The cells to show: all where they fit, else about two fifths of the width before the place and the rest after.
  private static func window(_ cells: [Cell], around place: Int, width: Int, isCut: Bool) -> Range<Int> {
    func columns(_ index: Int) -> Int { cells[index].isTab ? tabStop : cells[index].columns }
    if !isCut, cells.indices.reduce(0, { $0 + columns($1) }) <= width { return cells.indices }
    var low = place
    var high = place
    // Two columns are kept for the dots.
    var room = width - 2
    func takeLeft(downTo floor: Int) {
      while low > 0, room - columns(low - 1) >= floor {
        low -= 1
        room -= columns(low)
      }
    }
    takeLeft(downTo: room * 3 / 5)
    while high < cells.count, room - columns(high) >= 0 {
      room -= columns(high)
      high += 1
    }
    takeLeft(downTo: 0)
    return low..<high
  }
}

/// How a scalar that has no form of its own, or one that moves others, is shown; nil where it is shown as it is.
private func visibleForm(of scalar: Unicode.Scalar) -> String? {
  switch scalar.value {
  case 0x09: return nil
  case 0..<0x20: return Unicode.Scalar(0x2400 + scalar.value).map { String($0) }
  case 0x7F: return "\u{2421}"
  case 0x80..<0xA0, 0x061C, 0x200B, 0x200E...0x200F, 0x2028...0x202E, 0x2060...0x206F, 0xFEFF, 0xFFF9...0xFFFB,
    0xE0000...0xE007F:
    let hex = String(scalar.value, radix: 16, uppercase: true)
    return "<U+" + String(repeating: "0", count: max(0, 4 - hex.count)) + hex + ">"
  default: return nil
  }
}

/// The columns that a character takes on a terminal: 0, 1 or 2, after the East Asian Width of Unicode (annex 11).
private func columns(of character: Character) -> Int {
  let widest = character.unicodeScalars.map(columns(of:)).max() ?? 0
  let scalars = character.unicodeScalars
  // A flag is two letters of one column each that are drawn as one picture; U+FE0F asks for the picture.
  let isPicture =
    scalars.contains("\u{FE0F}") || (scalars.count == 2 && scalars.allSatisfy { 0x1F1E6...0x1F1FF ~= $0.value })
  return isPicture ? 2 : widest
}

private func columns(of scalar: Unicode.Scalar) -> Int {
  let value = scalar.value
  if 0x20..<0x7F ~= value { return 1 }
  switch value {
  case 0x1100...0x115F, 0x2E80...0x303E, 0x3041...0x33FF, 0x3400...0x4DBF, 0x4E00...0x9FFF, 0xA000...0xA4CF,
    0xA960...0xA97C, 0xAC00...0xD7A3, 0xF900...0xFAFF, 0xFE10...0xFE19, 0xFE30...0xFE6F, 0xFF01...0xFF60,
    0xFFE0...0xFFE6, 0x16FE0...0x18D08, 0x1AFF0...0x1B2FB, 0x1F200...0x1F2FF, 0x20000...0x3FFFD:
    return 2
  case 0x1160...0x11FF, 0xD7B0...0xD7FF: return 0  // Second and third parts of a Hangul syllable.
  default: break
  }
  switch scalar.properties.generalCategory {
  case .nonspacingMark, .enclosingMark, .format: return 0
  default: return scalar.properties.isEmojiPresentation && !(0x1F1E6...0x1F1FF ~= value) ? 2 : 1
  }
}
