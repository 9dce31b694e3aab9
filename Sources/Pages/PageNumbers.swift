/// Numbers as people read them on a page.
enum PageNumbers {
  /// `1 picture`, `2,000 pictures`.
  static func count(_ number: Int, _ noun: String) -> String {
    "\(grouped(number)) \(noun)\(number == 1 ? "" : "s")"
  }

  /// `10,000`.
  static func grouped(_ number: Int) -> String {
    var digits = String(number.magnitude)
    var groups: [Substring] = []
    while digits.count > 3 {
      groups.insert(digits.suffix(3), at: 0)
      digits.removeLast(3)
    }
    return (number < 0 ? "−" : "") + ([Substring(digits)] + groups).joined(separator: ",")
  }

  /// A number with so many decimals, rounded.
  static func decimal(_ number: Double, _ places: Int) -> String {
    guard number.isFinite, abs(number) < 1e12 else { return "–" }
    var scale = 1
    for _ in 0..<places { scale *= 10 }
    let whole = Int((abs(number) * Double(scale)).rounded())
    let sign = number < 0 && whole > 0 ? "−" : ""
    guard places > 0 else { return sign + grouped(whole) }
    let rest = String(whole % scale)
    return sign + grouped(whole / scale) + "." + String(repeating: "0", count: places - rest.count) + rest
  }

  /// `812 bytes`, `41.3 kB`, `412 MB`; decimal units.
  static func bytes(_ count: Int) -> String {
    if count < 1000 { return self.count(count, "byte") }
    var value = Double(count) / 1000
    var unit = "kB"
    for next in ["MB", "GB", "TB", "PB"] where value >= 999.5 {
      value /= 1000
      unit = next
    }
    return decimal(value, value < 99.95 ? 1 : 0) + " " + unit
  }

  /// `0.42 ms`, `12 ms`, `1.4 s`, `2 min 5 s`, `3 h 2 min`; from milliseconds.
  static func duration(milliseconds: Double) -> String {
    guard milliseconds.isFinite else { return "–" }
    if milliseconds < 9.95 { return decimal(milliseconds, milliseconds < 0.995 ? 2 : 1) + " ms" }
    if milliseconds < 999.5 { return decimal(milliseconds, 0) + " ms" }
    if milliseconds < 59_950 { return decimal(milliseconds / 1000, milliseconds < 9950 ? 2 : 1) + " s" }
    let seconds = Int((min(milliseconds, 1e15) / 1000).rounded())
    if seconds < 3600 { return "\(seconds / 60) min \(seconds % 60) s" }
    return "\(grouped(seconds / 3600)) h \(seconds % 3600 / 60) min"
  }

  /// `−63 %` for what became smaller, `+4 %` for what grew.
  static func change(from: Int, to: Int) -> String {
    guard from > 0 else { return "" }
    let percent = Int(min(Double(to) / Double(from) * 100 - 100, 1e12).rounded())
    return (percent > 0 ? "+\(percent)" : percent < 0 ? "−\(-percent)" : "±0") + " %"
  }
}
