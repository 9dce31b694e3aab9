import PipelineKit

/// One subcommand: its help page, its options and what it does.
struct Command: Sendable {
  var name: String
  /// One line for the list of commands.
  var summary: String
  /// Further paragraphs for its help page.
  var notes: [String] = []
  var operand: Operand?
  var options: [any OptionDeclaration] = []
  var examples: [String] = []
  /// Does it; answers the exit code.
  var run: @Sendable (ParsedArguments, Invocation) throws(UsageError) -> Int32

  /// `pipeline run JOB [options]`.
  var usage: String {
    (["pipeline", name] + [operand?.usage, options.isEmpty ? nil : "[options]"].compactMap(\.self))
      .joined(separator: " ")
  }

  /// The page that `pipeline help NAME` prints.
  var page: String {
    var lines = ["usage: \(usage)", ""] + FieldPages.wrap(summary.capitalisedSentence, width: 78) + [""]
    for note in notes { lines += FieldPages.wrap(note, width: 78) + [""] }
    var entries: [(String, String)] = []
    if let operand { entries.append((operand.usage, operand.help)) }
    for option in options {
      entries.append((option.usage, option.help + (option.repeats ? "; may be repeated" : "")))
    }
    entries.append(("-h, --help", "this page"))
    lines += TextTable.definitions(entries)
    if !examples.isEmpty { lines += ["", "examples:"] + examples.map { "  " + $0 } }
    return lines.joined(separator: "\n") + "\n"
  }
}

/// What a command works with, besides its own arguments.
struct Invocation: Sendable {
  var registry: StageRegistry
  var output: ResultOutput
}

extension String {
  var capitalisedSentence: String { prefix(1).uppercased() + dropFirst() + "." }
}

/// Plain text in columns.
enum TextTable {
  /// Names with their explanations beside them, which are wrapped.
  static func definitions(_ entries: [(String, String)], width: Int = 78) -> [String] {
    let column = min(26, (entries.map(\.0.count).max() ?? 0) + 2)
    var lines: [String] = []
    for (name, text) in entries {
      var body = FieldPages.wrap(text, width: width - column - 2)
      if name.count + 2 <= column {
        lines.append("  " + name + String(repeating: " ", count: column - name.count) + body.removeFirst())
      } else {
        lines.append("  " + name)
      }
      lines += body.map { String(repeating: " ", count: column + 2) + $0 }
    }
    return lines
  }

  /// Rows with columns as wide as their widest cell; the last column is not padded.
  static func rows(_ rows: [[String]]) -> [String] {
    let columns = rows.map(\.count).max() ?? 0
    let widths = (0..<columns).map { column in rows.map { column < $0.count ? $0[column].count : 0 }.max() ?? 0 }
    return rows.map { row in
      var line = ""
      for (column, cell) in row.enumerated() {
        line += cell
        if column + 1 < row.count { line += String(repeating: " ", count: widths[column] - cell.count + 2) }
      }
      return line
    }
  }
}
