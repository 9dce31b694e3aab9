import Glibc

/// The wall clock of a run: its identifier and its day.
public enum RunClock {
  /// Whether the time zone database has this zone.
  static func knows(_ zone: String) -> Bool {
    if zone == "UTC" { return true }
    guard !zone.isEmpty, !zone.hasPrefix("/"), !zone.split(separator: "/").contains("..") else { return false }
    var status = stat()
    return stat("/usr/share/zoneinfo/\(zone)", &status) == 0 && status.st_mode & S_IFMT == S_IFREG
  }

  /// Whether there is a time zone database, without which a job can name UTC alone.
  public static var hasZones: Bool { knows("Europe/Berlin") }

  /// What this process would take for local time: `TZ`, else the system's zone, else UTC.
  public static var localZone: String {
    if let zone = getenv("TZ").map({ String(cString: $0) }), !zone.isEmpty { return zone + " (TZ)" }
    guard let path = realpath("/etc/localtime", nil) else { return "UTC" }
    defer { free(path) }
    let name = String(cString: path)
    return name.firstRange(of: "/zoneinfo/").map { String(name[$0.upperBound...]) } ?? name
  }

  /// Seconds since 1970 with their fraction.
  public static func now() -> Double {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
  }

  /// `2026-05-01` in the zone. Sets the process' time zone; called before any worker runs.
  public static func day(of seconds: Double, zone: String) -> String {
    setenv("TZ", zone == "UTC" ? "UTC0" : zone, 1)
    tzset()
    var time = time_t(seconds)
    var parts = tm()
    localtime_r(&time, &parts)
    return "\(parts.tm_year + 1900)-\(pad(parts.tm_mon + 1))-\(pad(parts.tm_mday))"
  }

  /// When the day, and the month, of a moment began in the zone that `day` has set; seconds since 1970.
  static func beginnings(of seconds: Double) -> (day: Double, month: Double) {
    var time = time_t(seconds)
    var parts = tm()
    localtime_r(&time, &parts)
    func beginning(day: Int32) -> Double {
      var start = tm()
      start.tm_year = parts.tm_year
      start.tm_mon = parts.tm_mon
      start.tm_mday = day
      // Whether summer time holds then is for the zone to say.
      start.tm_isdst = -1
      return Double(mktime(&start))
    }
    return (beginning(day: parts.tm_mday), beginning(day: 1))
  }

  /// `2026-05-01T02:03:04Z`.
  public static func timestamp(of seconds: Double) -> String {
    let parts = universal(seconds)
    return "\(parts.tm_year + 1900)-\(pad(parts.tm_mon + 1))-\(pad(parts.tm_mday))T"
      + "\(pad(parts.tm_hour)):\(pad(parts.tm_min)):\(pad(parts.tm_sec))Z"
  }

  /// A run's identifier: its start to the second in UTC, and six random hex digits: `20260501-020304-a1b2c3`.
  public static func identifier(of seconds: Double) -> String {
    let parts = universal(seconds)
    let random = String(UInt32.random(in: 0...0xff_ffff), radix: 16)
    return "\(parts.tm_year + 1900)\(pad(parts.tm_mon + 1))\(pad(parts.tm_mday))-"
      + "\(pad(parts.tm_hour))\(pad(parts.tm_min))\(pad(parts.tm_sec))-"
      + String(repeating: "0", count: 6 - random.count)
      + random
  }

  private static func universal(_ seconds: Double) -> tm {
    var time = time_t(seconds)
    var parts = tm()
    gmtime_r(&time, &parts)
    return parts
  }

  private static func pad(_ number: Int32) -> String { number < 10 ? "0\(number)" : "\(number)" }
}
