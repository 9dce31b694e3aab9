import Engine
import PipelineKit

extension RunLoad.Bottleneck {
  /// `compute (encode)`.
  var text: String { kind.rawValue + (stage.map { " (\(Wording.oneLine($0)))" } ?? "") }
}

/// One stage in the progress display.
struct StageLine: Sendable, Hashable {
  var label: String
  var ended: Int
  /// Pictures a second, lately.
  var perSecond: Double?
  /// Seconds a picture, lately.
  var mean: Double?
  /// The time spent in it since the start, for choosing the lines that count.
  var seconds: Double
  /// What it holds the run up by.
  var bottleneck: RunLoad.Bottleneck.Kind?

  /// The stages of a run, from two looks at its load.
  static func lines(_ now: RunLoad, since before: RunLoad, _ bottleneck: RunLoad.Bottleneck?) -> [StageLine] {
    let time = now.elapsed - before.elapsed
    return now.stages.indices.map { index in
      let (stage, old) = (now.stages[index], before.stages[index])
      let ended = stage.ended - old.ended
      let mean =
        ended > 0
        ? (stage.seconds - old.seconds) / Double(ended) : stage.ended > 0 ? stage.seconds / Double(stage.ended) : nil
      return StageLine(
        label: stage.label, ended: stage.ended, perSecond: time > 0 && ended > 0 ? Double(ended) / time : nil,
        mean: mean, seconds: stage.seconds, bottleneck: bottleneck?.stage == stage.label ? bottleneck?.kind : nil)
    }
  }

  /// Lines of at most `width - 1` columns, ASCII where the labels are: the stages that take the most time, in the order of
  /// the chain. What matters least is left out first: how many pictures, the mean time, the word for what holds it up.
  static func text(_ stages: [StageLine], width: Int, most: Int, color: Bool) -> [String] {
    guard most > 0, width >= 30, stages.count > 1 else { return [] }
    var shown = Array(stages.indices)
    if shown.count > most {
      // One of the lines says how many are not shown.
      let kept = shown.sorted { left, right in
        let (a, b) = (stages[left], stages[right])
        if (a.bottleneck != nil) != (b.bottleneck != nil) { return a.bottleneck != nil }
        return a.seconds != b.seconds ? a.seconds > b.seconds : left < right
      }
      shown = kept.prefix(max(1, most - 1)).sorted()
    }
    let room = width - 1
    func cells(_ stage: StageLine) -> [String] {
      [
        "\(stage.ended)", stage.perSecond.map(Wording.rate) ?? "-", stage.mean.map(Wording.span) ?? "-",
        stage.bottleneck?.rawValue ?? "",
      ]
    }
    let rows = shown.map { (stage: stages[$0], label: Wording.oneLine(stages[$0].label), cells: cells(stages[$0])) }
    // Columns do not jump with every figure.
    let widths = (0..<4).map { column in max([5, 7, 6, 0][column], rows.map { $0.cells[column].count }.max() ?? 0) }
    let longest = max(6, rows.map(\.label.count).max() ?? 0)
    var columns = [0, 1, 2, 3]
    for dropped in [0, 2, 3] where 2 + min(longest, 16) + columns.reduce(0, { $0 + 2 + widths[$1] }) > room {
      columns.removeAll { $0 == dropped }
    }
    let labelWidth = min(longest, room - 2 - columns.reduce(0) { $0 + 2 + widths[$1] })
    var lines = rows.map { row in
      let isSlow = row.stage.bottleneck != nil
      var label = row.label
      if label.count > labelWidth { label = label.prefix(max(0, labelWidth - 1)) + "~" }
      var line = (isSlow ? "> " : "  ") + label + String(repeating: " ", count: labelWidth - label.count)
      for column in columns {
        let cell = row.cells[column]
        let fill = String(repeating: " ", count: widths[column] - cell.count)
        line += "  " + (column == 3 ? cell : fill + cell)
      }
      while line.last == " " { line.removeLast() }
      return color && isSlow ? "\u{1B}[1m\(line)\u{1B}[0m" : line
    }
    if shown.count < stages.count {
      lines.append("  and \(Wording.count(stages.count - shown.count, "more stage"))")
    }
    return lines
  }
}
