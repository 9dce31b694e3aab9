import JobSyntax
import PipelineKit

/// Reads a manifest: one picture and its columns per row.
final class ManifestReader {
  struct Row {
    var path: [UInt8]
    var columns: [String: String]
    var line: Int
  }

  private enum Rows {
    case csv(CSVReader)
    case jsonl(ByteStream)
  }

  /// Names that `${item.…}` already has; a column `path` says where the picture is and is no column of its own.
  static let reserved = ["path", "dir", "stem", "name", "ext", "index", "hash"]
  private static let pathNames = ["path", "file", "input"]
  /// The longest line of JSON taken, in bytes.
  static let longestLine = 1 << 20

  private let rows: Rows
  private let name: String
  /// The names of the columns that templates may use: of the header, or of the first JSON object.
  private(set) var columns: [String] = []
  private var header: [String] = []
  private var pathName: String?
  private var line = 0
  private var first: [(String, JSONNode)]?

  /// What is wrong with the columns.
  struct ColumnFault: Error {
    var messages: [(message: String, hint: String?)]
    var line: Int
  }

  /// Reads as far as the names of the columns.
  init(_ stream: ByteStream, format: ManifestFormat, column: String?, name: String) throws {
    self.name = name
    pathName = column
    switch format {
    case .csv:
      let reader = try CSVReader(stream)
      rows = .csv(reader)
      if let (fields, line) = try reader.next() { try readHeader(fields, line: line) }
    case .jsonl:
      try stream.passByteOrderMark()
      rows = .jsonl(stream)
      guard let members = try nextObject() else { return }
      first = members
      try adopt(members.filter { Self.text(of: $0.1) != nil }.map(\.0), line: line)
    }
  }

  private func readHeader(_ fields: [[UInt8]], line: Int) throws {
    var faults: [(message: String, hint: String?)] = []
    for (index, field) in fields.enumerated() {
      guard let text = String(validating: field, as: UTF8.self) else {
        faults.append(("the name of column \(index + 1) is not UTF-8", "save the manifest as UTF-8"))
        continue
      }
      header.append(Self.trimmed(text))
    }
    if header.count == 1, header[0].contains(where: { $0 == ";" || $0 == "\t" }) {
      faults = [("the header has one column, \(Self.quoted(header[0]))", "separate columns by commas")]
    }
    guard faults.isEmpty else { throw ColumnFault(messages: faults, line: line) }
    try adopt(header, line: line)
  }

  /// Checks the names and settles which of them holds the path.
  private func adopt(_ names: [String], line: Int) throws {
    var faults: [(message: String, hint: String?)] = []
    var seen: Set<String> = []
    for (index, name) in names.enumerated() {
      if name.isEmpty {
        faults.append(("column \(index + 1) has no name", nil))
      } else if !seen.insert(name).inserted {
        faults.append(("the column \(Self.quoted(name)) is there twice", nil))
      } else if name != "path", Self.reserved.contains(name) {
        faults.append(
          ("a column cannot be called \(Self.quoted(name))", "${item.\(name)} is the file's own; rename the column"))
      } else if !TemplateVariable.isColumnName(name) {
        faults.append(
          (
            "a column cannot be called \(Self.quoted(name))",
            "names that ${item.…} can hold have letters, digits, _ and -"
          ))
      }
    }
    if let wanted = pathName {
      if !seen.contains(wanted) {
        let near = NearestName.suggestion(for: wanted, among: names).map { "did you mean \(Self.quoted($0))?" }
        faults.append(
          (
            "there is no column \(Self.quoted(wanted))",
            near ?? "the columns are \(names.map(Self.quoted).joined(separator: ", "))"
          ))
      }
    } else {
      pathName = Self.pathNames.first { seen.contains($0) } ?? names.first
      if pathName == nil { faults.append(("there is no column with the picture's path", nil)) }
    }
    guard faults.isEmpty else { throw ColumnFault(messages: faults, line: line) }
    columns = names.filter { $0 != "path" }
  }

  /// The next row; nil at the end.
  func next() throws(TextFault) -> Row? {
    switch rows {
    case .csv(let reader):
      guard let (fields, line) = try reader.next() else { return nil }
      return try row(fields, line: line)
    case .jsonl:
      if let members = first {
        first = nil
        return try row(members)
      }
      guard let members = try nextObject() else { return nil }
      return try row(members)
    }
  }

  // MARK: CSV

  private func row(_ fields: [[UInt8]], line: Int) throws(TextFault) -> Row {
    guard fields.count == header.count else {
      throw .line(
        line, "\(Self.count(fields.count, "field")) where the header has \(header.count)",
        hint: "put fields that contain commas in quotes")
    }
    var row = Row(path: [], columns: [:], line: line)
    for (name, field) in zip(header, fields) {
      if name == pathName { row.path = field }
      if name == "path" { continue }
      if let text = String(validating: field, as: UTF8.self) {
        row.columns[name] = text
      } else if name != pathName {
        throw .line(line, "the column \(Self.quoted(name)) is not UTF-8", hint: "save the manifest as UTF-8")
      }
    }
    try check(row.path, line: line)
    return row
  }

  private func check(_ path: [UInt8], line: Int) throws(TextFault) {
    let column = Self.quoted(pathName ?? "path")
    if path.isEmpty { throw .line(line, "the column \(column) is empty") }
    if path.contains(0) { throw .line(line, "a NUL character in the column \(column)") }
    if path.count > TreeWalk.longestPath, !RemoteSource.isAddress(path) {
      throw .line(line, "the column \(column) is longer than \(TreeWalk.longestPath) bytes, which no path is")
    }
  }

  // MARK: JSON lines

  private func row(_ members: [(String, JSONNode)]) throws(TextFault) -> Row {
    var row = Row(path: [], columns: [:], line: line)
    var hasPath = false
    for (name, node) in members {
      if name == pathName {
        guard let path = node.stringValue else {
          throw .line(line, "\(Self.quoted(name)) is \(node.value.typeName), not a string")
        }
        row.path = Array(path.utf8)
        hasPath = true
      }
      if name == "path" { continue }
      guard let text = Self.text(of: node) else { continue }
      if Self.reserved.contains(name) {
        throw .line(
          line, "a column cannot be called \(Self.quoted(name))",
          hint: "${item.\(name)} is the file's own; rename the column")
      }
      row.columns[name] = text
    }
    guard hasPath else { throw .line(line, "there is no \(Self.quoted(pathName ?? "path"))") }
    try check(row.path, line: line)
    return row
  }

  /// The members of the next line's object.
  private func nextObject() throws(TextFault) -> [(String, JSONNode)]? {
    guard case .jsonl(let stream) = rows else { return nil }
    while true {
      var text: [UInt8] = []
      var isEnded = false
      var isTooLong = false
      while let byte = try stream.next() {
        if byte == UInt8(ascii: "\n") {
          isEnded = true
          break
        }
        if text.count < Self.longestLine { text.append(byte) } else { isTooLong = true }
      }
      if text.isEmpty, !isEnded { return nil }
      line += 1
      if isTooLong { throw .line(line, "a line longer than \(Self.longestLine) bytes") }
      if text.allSatisfy({ $0 == 0x20 || $0 == 0x09 || $0 == 0x0d }) { continue }
      let (root, diagnostics) = StrictJSON.parse(SourceFile(name: name, text: text))
      if let error = diagnostics.first(where: { $0.severity == .error }) {
        throw .line(line, error.message, hint: error.hint)
      }
      guard let root else { throw .line(line, "not JSON") }
      guard case .object(let members) = root.value else {
        throw .line(line, "\(root.value.typeName) where an object belongs")
      }
      return members.map { ($0.key, $0.value) }
    }
  }

  /// A scalar as templates show it, numbers as written, null as nothing; nil for lists and objects.
  private static func text(of node: JSONNode) -> String? {
    switch node.value {
    case .null: ""
    case .bool(let value): value ? "true" : "false"
    case .number(let number): number.text
    case .string(let text): text
    case .array, .object: nil
    }
  }

  // MARK: Words

  private static func trimmed(_ text: String) -> String {
    let scalars = text.unicodeScalars
    guard let first = scalars.firstIndex(where: { !$0.properties.isWhitespace }),
      let last = scalars.lastIndex(where: { !$0.properties.isWhitespace })
    else { return "" }
    return String(scalars[first...last])
  }

  private static func quoted(_ text: String) -> String { "\"\(PathBytes(text).printable)\"" }

  private static func count(_ number: Int, _ noun: String) -> String { "\(number) \(noun)\(number == 1 ? "" : "s")" }
}
