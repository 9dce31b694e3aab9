/// Reads as much of ICC profiles (ICC.1:2010) as is needed here.
enum ICCProfile {
  /// Whether a profile is sRGB: its primaries, and a curve that is neither linear nor a plain gamma.
  static func isSRGB(_ bytes: [UInt8]) -> Bool {
    func number(_ at: Int) -> Int {
      guard at >= 0, at + 4 <= bytes.count else { return 0 }
      return bytes[at..<at + 4].reduce(0) { $0 << 8 | Int($1) }
    }
    func name(_ at: Int) -> String {
      at >= 0 && at + 4 <= bytes.count ? String(decoding: bytes[at..<at + 4], as: UTF8.self) : ""
    }
    guard bytes.count > 132, name(16) == "RGB " else { return false }
    var tags: [String: Int] = [:]
    for index in 0..<min(number(128), 100) { tags[name(132 + 12 * index)] = number(136 + 12 * index) }
    // IEC 61966-2-1 adapted to D50.
    let primaries = [
      ("rXYZ", [0.4361, 0.2225, 0.0139]), ("gXYZ", [0.3851, 0.7169, 0.0971]), ("bXYZ", [0.1431, 0.0606, 0.7141]),
    ]
    for (tag, expected) in primaries {
      guard let at = tags[tag], name(at) == "XYZ " else { return false }
      for (index, value) in expected.enumerated() {
        let found = Double(Int32(truncatingIfNeeded: number(at + 8 + 4 * index))) / 65_536
        guard abs(found - value) < 0.002 else { return false }
      }
    }
    guard let curve = tags["rTRC"] else { return false }
    // A table, or a parametric curve of the form that has a linear foot.
    return name(curve) == "curv" ? number(curve + 8) > 1 : name(curve) == "para" && number(curve + 8) >> 16 >= 3
  }
}
