import JobSyntax

/// What a stage is held to, a line of its card each.
public enum ConformanceLine: String, CaseIterable, Sendable {
  case loads
  case settings
  case starts
  case picture
  case size
  case orientation
  case alpha
  case grey
  case greyAlpha = "grey-alpha"
  case cmyk
  case sixteenBit = "16-bit"
  case onePixel = "one-pixel"
  case wide
  case tall
  case noMatte = "no-matte"
  case emptyMatte = "empty-matte"
  case fullMatte = "full-matte"
  case animation
  case badInput = "bad-input"
  case inputKept = "input-kept"
  case repeatable
  case concurrent
  case cancellation
  case leaks

  /// What is demanded, where it applies.
  public var demand: String {
    switch self {
    case .loads: "the stage is there: a plugin can be opened, and its spec is sound"
    case .settings: "unknown keys and values of a wrong type or out of range are refused, and the examples are not"
    case .starts: "the stage can be made ready with these settings"
    case .picture: "a plain picture gives a picture of 1, 3 or 4 bands, computed without an error"
    case .size: "the sides stay, unless the stage says that it moves pixels"
    case .orientation:
      "a picture stored in any of the 8 EXIF orientations gives the same result; where no pixels move, none is turned"
    case .alpha: "transparency stays and is not evened out, unless the stage says that it removes it"
    case .grey: "a picture without colour goes through"
    case .greyAlpha: "so does one with transparency, which stays"
    case .cmyk: "so does one that was stored as CMYK"
    case .sixteenBit: "16 bits a sample stay 16, and look like the result of 8 within 3 levels of 255"
    case .onePixel: "1×1 gives a result, or an error that says why"
    case .wide: "8000×2 gives a result, or an error that says why"
    case .tall: "2×8000 gives a result, or an error that says why"
    case .noMatte: "a picture without a matte gives a result, and no matte unless the stage says that it makes one"
    case .emptyMatte:
      "a matte that is black all over gives a result, or an error that says why; a matte fits its picture"
    case .fullMatte:
      "a matte that is white all over gives a result, or an error that says why; a matte fits its picture"
    case .animation: "frames, their times and their number stay, and all have the same sides; or an error says why"
    case .badInput: "a picture that is cut short gives an error that says why"
    case .inputKept: "pixels that came in, of picture, matte and original, are the same afterwards"
    case .repeatable: "the same picture gives the same result again, from a second instance too"
    case .concurrent: "8 threads at once, on one instance, get what one after the other gets"
    case .cancellation: "work ends within 10 s of being cancelled"
    case .leaks: "no memory, images or file descriptors are kept for each picture"
    }
  }

  /// Seconds that the line may take before it counts as hanging.
  public var patience: Double {
    switch self {
    case .cancellation: 11
    case .concurrent, .leaks: 180
    default: 60
    }
  }
}

/// How a stage did on one line.
public struct ConformanceVerdict: Sendable, Hashable {
  public enum State: String, Sendable, CaseIterable {
    case pass
    case fail
    /// The line does not apply to this stage, or cannot be judged.
    case notApplicable
  }
  public var state: State
  /// What came, or why the line does not apply; empty for a pass of which there is nothing to say.
  public var found: String

  public init(_ state: State, _ found: String = "") {
    self.state = state
    self.found = found
  }

  public static let pass = ConformanceVerdict(.pass)
  public static func fail(_ found: String) -> ConformanceVerdict { .init(.fail, found) }
  public static func notApplicable(_ why: String) -> ConformanceVerdict { .init(.notApplicable, why) }

  public var json: JSONText { .object([("state", .string(state.rawValue)), ("found", .string(found))]) }

  /// Nil for anything else than `json` has written.
  public init?(_ node: JSONNode) {
    guard let state = node["state"]?.stringValue.flatMap({ State(rawValue: $0) }),
      let found = node["found"]?.stringValue
    else { return nil }
    self.init(state, found)
  }
}

/// All lines of a stage.
public struct ConformanceCard: Sendable {
  public private(set) var verdicts: [(line: ConformanceLine, verdict: ConformanceVerdict)] = []

  /// The lines in their order.
  ///
  /// - Parameters:
  ///   - chosen: the lines to judge; nil for all.
  ///   - verdict: judges a line, in a process of its own or not. `avoidsAlpha`: transparency was seen to be lost, which
  ///     is said once and not on every line that has it.
  public init(
    lines chosen: Set<ConformanceLine>? = nil,
    verdict: (_ line: ConformanceLine, _ avoidsAlpha: Bool) -> ConformanceVerdict
  ) {
    var failed: Set<ConformanceLine> = []
    for line in ConformanceLine.allCases where chosen?.contains(line) ?? true {
      let found: ConformanceVerdict
      if let reason = Self.isMoot(line, failed) {
        found = .notApplicable(reason)
      } else {
        found = verdict(line, failed.contains(.alpha))
      }
      if found.state == .fail { failed.insert(line) }
      verdicts.append((line, found))
    }
  }

  public var failures: [ConformanceLine] { verdicts.filter { $0.verdict.state == .fail }.map(\.line) }

  public func count(_ state: ConformanceVerdict.State) -> Int { verdicts.count { $0.verdict.state == state } }

  /// Why a line cannot be judged after what failed before it.
  private static func isMoot(_ line: ConformanceLine, _ failed: Set<ConformanceLine>) -> String? {
    if line != .loads, failed.contains(.loads) { return "it does not load" }
    switch line {
    case .loads, .settings, .starts: return nil
    case .picture: return failed.contains(.starts) ? "it does not start" : nil
    // What goes wrong with every picture is said once.
    case .size: return failed.contains(.starts) ? "it does not start" : failed.contains(.picture) ? broken : nil
    case .concurrent where failed.contains(.repeatable):
      return "results that differ by themselves cannot be compared"
    case .greyAlpha where failed.contains(.alpha): return "see alpha"
    default:
      if failed.contains(.starts) { return "it does not start" }
      return failed.contains(.picture) || failed.contains(.size) ? broken : nil
    }
  }

  private static let broken = "a plain picture does not come through as it should"
}
