import Glibc

/// How long a server asks to wait.
public enum RetryAfter {
  /// Seconds until a request is welcome again, never below 0; nil where the server does not say.
  ///
  /// `Retry-After` comes first, in seconds or as a date (RFC 9110, section 10.2.3); then, with `resets`, the first of
  /// `names` that can be read: seconds, or a time since 1970 in seconds or milliseconds.
  ///
  /// - Parameter now: seconds since 1970. Dates are measured against the answer's own `Date` where it has one, so that
  ///   clocks need not agree.
  public static func seconds(
    of headers: Headers, now: Double, resets: Bool = true, names: [String] = standardResets
  ) -> Double? {
    let now = headers["Date"].flatMap(time(ofDate:)) ?? now
    for name in ["Retry-After-Ms", "X-Ms-Retry-After-Ms"] {
      if let milliseconds = headers[name].flatMap(number(_:)) { return max(0, milliseconds / 1000) }
    }
    if let value = headers["Retry-After"] {
      if let seconds = number(value) { return max(0, seconds > 1e9 ? seconds - now : seconds) }
      if let time = time(ofDate: value) { return max(0, time - now) }
    }
    guard resets else { return nil }
    for name in names {
      if let value = headers[name], let seconds = seconds(ofReset: value, now: now) { return seconds }
    }
    return nil
  }

  public static let standardResets = ["RateLimit-Reset", "X-RateLimit-Reset", "X-Rate-Limit-Reset"]

  /// Seconds until a limit is reset: of a number below 1e9 (so many seconds), above it (a time since 1970, from 1e11 on in
  /// milliseconds), or a date; nil for anything else.
  public static func seconds(ofReset value: String, now: Double) -> Double? {
    guard let number = number(value) else { return time(ofDate: value).map { max(0, $0 - now) } }
    switch number {
    case ..<1e9: return max(0, number)
    case ..<1e11: return max(0, number - now)
    default: return max(0, number / 1000 - now)
    }
  }

  /// Plain decimal numbers alone.
  private static func number(_ text: String) -> Double? {
    let text = trimmed(text)
    guard !text.isEmpty, text.utf8.count <= 400,
      text.utf8.allSatisfy({ 0x30...0x39 ~= $0 || $0 == UInt8(ascii: ".") || $0 == UInt8(ascii: "-") })
    else { return nil }
    return Double(text)
  }

  /// Seconds since 1970 of a date in one of the three forms that HTTP knows (RFC 9110, section 5.6.7):
  /// `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT`, `Sun Nov  6 08:49:37 1994`.
  public static func time(ofDate text: String) -> Double? {
    let words = trimmed(text).split { $0 == " " || $0 == "-" }.map(String.init)
    let day: Int?
    let month: Int?
    var year: Int?
    let clock: String
    if words.count == 6, words[0].hasSuffix(","), ["GMT", "UTC"].contains(words[5]) {
      (day, month, year, clock) = (Int(words[1]), Self.month(words[2]), Int(words[3]), words[4])
      // Two digits more than 50 years ahead mean the century before; by now that is all of them from 77 on.
      if words[3].utf8.count == 2, let short = year { year = short + (short >= 77 ? 1900 : 2000) }
    } else if words.count == 5 {
      (month, day, clock, year) = (Self.month(words[1]), Int(words[2]), words[3], Int(words[4]))
    } else {
      return nil
    }
    let parts = clock.split(separator: ":", omittingEmptySubsequences: false).map { Int($0) }
    guard let day, let month, let year, 1...31 ~= day, 1970...9999 ~= year, parts.count == 3, let hours = parts[0],
      let minutes = parts[1], let seconds = parts[2], 0...23 ~= hours, 0...59 ~= minutes, 0...60 ~= seconds
    else { return nil }
    return Double(days(year: year, month: month, day: day) * 86_400 + hours * 3600 + minutes * 60 + seconds)
  }

  private static func month(_ name: String) -> Int? {
    let names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    return names.firstIndex(of: name).map { $0 + 1 }
  }

  /// Days since 1970 in the Gregorian calendar. Years begin in March here, so that a leap day comes last, and
  /// (153 m + 2) / 5 are the days before the month m of such a year.
  private static func days(year: Int, month: Int, day: Int) -> Int {
    let year = month <= 2 ? year - 1 : year
    let before = (153 * ((month + 9) % 12) + 2) / 5 + day - 1
    return year * 365 + year / 4 - year / 100 + year / 400 + before - 719_468
  }

  /// Seconds since 1970.
  public static func wallClock() -> Double {
    var now = timespec()
    clock_gettime(CLOCK_REALTIME, &now)
    return Double(now.tv_sec) + Double(now.tv_nsec) / 1e9
  }
}
