import PipelineKit

/// Numbers and texts as people read them.
enum Wording {
  /// `1 picture`, `2 pictures`.
  static func count(_ number: Int, _ noun: String) -> String { "\(number) \(noun)\(number == 1 ? "" : "s")" }

  /// A number with one decimal: `11.2`.
  static func oneDecimal(_ number: Double) -> String {
    guard number.isFinite, abs(number) < 1e15 else { return "\(number)" }
    let tenths = Int((number * 10).rounded())
    return "\(tenths < 0 ? "-" : "")\(abs(tenths) / 10).\(abs(tenths) % 10)"
  }

  /// `20 credits`, `0.25 credits`.
  static func credits(_ number: Double) -> String {
    let hundredths = (number * 100).rounded() / 100
    return (Int(exactly: hundredths).map { "\($0)" } ?? "\(hundredths)") + " credit\(hundredths == 1 ? "" : "s")"
  }

  /// Pictures per second, or per minute where that is few: `11.2/s`, `140/s`, `5.0/min`.
  static func rate(_ perSecond: Double) -> String {
    if perSecond >= 99.95 { return "\(Int(perSecond.rounded()))/s" }
    if perSecond >= 0.2 { return oneDecimal(perSecond) + "/s" }
    return oneDecimal(perSecond * 60) + "/min"
  }

  /// A short time with its unit: `41 ms`, `1.2 s`, `3 min 4 s`.
  static func span(_ seconds: Double) -> String {
    if seconds < 0.0095 { return oneDecimal(max(0, seconds) * 1000) + " ms" }
    if seconds < 0.9995 { return "\(Int((seconds * 1000).rounded())) ms" }
    return duration(seconds)
  }

  /// `0.4 s`, `3 s`, `53 s`, `1 min 29 s`, `2 h 5 min`.
  static func duration(_ seconds: Double) -> String {
    if seconds < 9.95, seconds != seconds.rounded() { return oneDecimal(max(0, seconds)) + " s" }
    return wholeDuration(seconds)
  }

  /// As `duration`, in whole seconds.
  static func wholeDuration(_ seconds: Double) -> String {
    let whole = wholeSeconds(seconds)
    if whole < 60 { return "\(whole) s" }
    if whole < 3600 { return "\(whole / 60) min" + (whole % 60 == 0 ? "" : " \(whole % 60) s") }
    return "\(whole / 3600) h" + (whole % 3600 / 60 == 0 ? "" : " \(whole % 3600 / 60) min")
  }

  /// `0:53`, `12:04`, `2:05:09`.
  static func clock(_ seconds: Double) -> String {
    let whole = wholeSeconds(seconds)
    func two(_ number: Int) -> String { number < 10 ? "0\(number)" : "\(number)" }
    let tail = two(whole % 60)
    return whole < 3600 ? "\(whole / 60):\(tail)" : "\(whole / 3600):\(two(whole % 3600 / 60)):\(tail)"
  }

  private static func wholeSeconds(_ seconds: Double) -> Int {
    seconds.isFinite ? Int(min(max(0, seconds.rounded()), 1e9)) : 0
  }

  /// `812 bytes`, `41.3 kB`, `412 MB`, `24.0 GB`; decimal units.
  static func bytes(_ count: Int) -> String {
    if count < 1000 { return Self.count(count, "byte") }
    var value = Double(count) / 1000
    var unit = "kB"
    for next in ["MB", "GB", "TB", "PB"] where value >= 999.5 {
      value /= 1000
      unit = next
    }
    return (value < 99.95 ? oneDecimal(value) : "\(Int(value.rounded()))") + " " + unit
  }

  /// Text that stays on one line and cannot change what a terminal shows: control characters and the like are written
  /// as escapes.
  static func oneLine(_ text: String) -> String {
    guard text.unicodeScalars.contains(where: isUnsafe) else { return text }
    var result = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case _ where !isUnsafe(scalar): result.unicodeScalars.append(scalar)
      case "\n": result += "\\n"
      case "\r": result += "\\r"
      case "\t": result += " "
      default: result += "\\u{" + String(scalar.value, radix: 16, uppercase: true) + "}"
      }
    }
    return result
  }

  private static func isUnsafe(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.value {
    // Controls; marks that reverse the order of the text after them.
    case 0..<0x20, 0x7F..<0xA0, 0x200E...0x200F, 0x2028...0x202E, 0x2066...0x2069: true
    default: false
    }
  }

  /// An input's name as reports have it, made safe for terminals.
  static func name(_ display: String) -> String { oneLine(PathBytes(display: display).printable) }
}
