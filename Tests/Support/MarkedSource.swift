import JobSyntax

/// A source with the places of its findings marked in it: `⟦…⟧` around a range, `‸` for an empty one. Line ends and
/// columns are counted here on their own, so that a slip in the reader's counting shows.
public struct MarkedSource: Sendable {
  public let file: SourceFile
  public let ranges: [SourceRange]

  public init(_ marked: String, name: String = "job.json") {
    var bytes: [UInt8] = []
    var ranges: [SourceRange] = []
    var open: [SourcePosition] = []
    var lines: [[Unicode.Scalar]] = [[]]
    var previous: Unicode.Scalar?
    for scalar in marked.unicodeScalars {
      let here = SourcePosition(offset: bytes.count, line: lines.count, column: (lines.last?.count ?? 0) + 1)
      switch scalar {
      case "⟦": open.append(here)
      case "⟧": if let start = open.popLast() { ranges.append(SourceRange(start: start, end: here)) }
      case "‸": ranges.append(SourceRange(start: here, end: here))
      case "\n", "\r":
        bytes += Array(String(scalar).utf8)
        if scalar == "\n", previous == "\r" {
          lines[lines.count - 1] = []
        } else {
          lines.append([])
        }
        previous = scalar
        continue
      default:
        bytes += Array(String(scalar).utf8)
        if !(scalar == "\u{FEFF}" && bytes.count == 3) { lines[lines.count - 1].append(scalar) }
      }
      previous = scalar
    }
    file = SourceFile(name: name, text: bytes)
    self.ranges = ranges
  }
}

/// The same numbers on every machine (SplitMix64, Steele, Lea and Flood 2014).
public struct SeededGenerator: RandomNumberGenerator, Sendable {
  public var state: UInt64

  public init(state: UInt64) { self.state = state }

  public mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }
}
