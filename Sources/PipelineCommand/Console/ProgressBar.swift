import Engine

/// How far a run has come.
struct Progress: Sendable, Hashable {
  var finished = 0
  var total = 0
  var failed = 0
  /// Seconds since the start.
  var elapsed = 0.0
  var perSecond: Double?
  var secondsLeft: Double?
  var isStopping = false
  /// What holds the run up, where that is plain.
  var bottleneck: RunLoad.Bottleneck?
  var stages: [StageLine] = []

  /// The line for logs: `412 of 1000 done, 3 failed, 11.2/s, about 53 s left`.
  var sentence: String {
    var parts = ["\(finished) of \(total) done"]
    if failed > 0 { parts.append("\(failed) failed") }
    if let perSecond { parts.append(Wording.rate(perSecond)) }
    if let secondsLeft, !isStopping { parts.append("about \(Wording.wholeDuration(secondsLeft)) left") }
    if let bottleneck, !isStopping { parts.append("bottleneck \(bottleneck.text)") }
    return parts.joined(separator: ", ")
  }

  /// The lines that are redrawn: stages where there is room, and the bar below them.
  ///
  /// - Parameter height: rows of the terminal.
  func block(width: Int, height: Int, color: Bool) -> [String] {
    // Most of the window is for messages.
    let most = isStopping ? 0 : min(8, (height - 4) / 2)
    return StageLine.text(stages, width: width, most: most, color: color) + [bar(width: width, color: color)]
  }

  /// The line that is redrawn, at most `width - 1` columns: the last column is left free, since terminals differ in
  /// what they do there. What matters least is left out first.
  ///
  /// ASCII only, so that a column is a character whatever the terminal's fonts and the locale.
  func bar(width: Int, color: Bool) -> String {
    let room = max(0, width - 1)
    let share = total > 0 ? Double(finished) / Double(total) : 1
    let percent = "\(min(100, Int(share * 100)))%"
    // In the order shown, with the order in which they are given up (highest first).
    var parts: [(text: String, rank: Int, paint: String?)] = [
      (String(repeating: " ", count: max(0, 4 - percent.count)) + percent, 3, nil), ("", 4, nil),
      ("\(finished)/\(total)", 0, nil),
    ]
    if failed > 0 { parts.append(("\(failed) failed", 1, "31")) }
    if let perSecond { parts.append((Wording.rate(perSecond), 5, nil)) }
    if isStopping {
      parts.append(("stopping", 2, "33"))
    } else if let secondsLeft {
      parts.append((Wording.clock(secondsLeft) + " left", 2, nil))
    }
    parts.append((Wording.clock(elapsed), 6, nil))
    if let bottleneck, !isStopping { parts.append((bottleneck.text, 7, nil)) }

    let leastBar = 10
    func columns() -> Int {
      parts.reduce(-2) { $0 + 2 + ($1.rank == 4 ? leastBar : $1.text.count) }
    }
    while columns() > room, parts.count > 1, let worst = parts.indices.max(by: { parts[$0].rank < parts[$1].rank }) {
      parts.remove(at: worst)
    }
    if let index = parts.firstIndex(where: { $0.rank == 4 }) {
      let free = room - columns() + leastBar
      let inner = min(free, 40) - 2
      let filled = Int(share * Double(inner))
      parts[index].text =
        "[" + String(repeating: "=", count: max(0, filled - 1)) + (filled > 0 ? (share < 1 ? ">" : "=") : "")
        + String(repeating: " ", count: inner - filled) + "]"
    }
    if parts.count == 1, parts[0].text.count > room { return String(parts[0].text.prefix(room)) }
    return parts.map { part in
      guard color, let paint = part.paint else { return part.text }
      return "\u{1B}[\(paint)m\(part.text)\u{1B}[0m"
    }.joined(separator: "  ")
  }
}
