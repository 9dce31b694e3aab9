/// What a file says of its colours without an ICC profile: PNG's chunks, or the `nclx` box of HEIF and AVIF. libvips
/// 8.14 reads neither and takes the numbers as sRGB.
public enum DeclaredColour: Sendable, Hashable {
  /// Nothing is said; sRGB is what everyone assumes.
  case none
  /// A profile is embedded and has the word.
  case embedded
  /// sRGB in so many words, or near enough that no eye could tell.
  case sRGB
  /// Other primaries or another curve; `ColourDescription.profile` makes them a profile.
  case described(ColourDescription)
  /// Something is said that cannot be followed here; the text goes behind "the picture's colours are ".
  case unsupported(String)

  // MARK: PNG

  /// From the chunks before the pixels, in the order of precedence of PNG's third edition, 4.3: cICP, iCCP, sRGB, then
  /// gAMA with or without cHRM. cHRM alone says nothing of the curve and is passed over.
  public static func png(_ b: UnsafeRawBufferPointer) -> DeclaredColour {
    var code: CodePoints?
    var hasProfile = false
    var isSRGB = false
    var gamma: Double?
    var chromaticities: Chromaticities?
    PNGChunks.forEach(b) { chunk in
      let at = chunk.body.lowerBound
      let length = chunk.body.count
      guard chunk.checksum != nil, chunk.name != "IDAT" else { return false }
      switch chunk.name {
      case "cICP" where length == 4 && code == nil:
        code = CodePoints(
          primaries: Int(b[at]), transfer: Int(b[at + 1]), matrix: Int(b[at + 2]), isFullRange: b[at + 3] != 0)
      case "iCCP": hasProfile = true
      case "sRGB": isSRGB = true
      case "gAMA" where length == 4: gamma = b.big(4, at: at).map { Double($0) / 100_000 }
      case "cHRM" where length == 32:
        let v = (0..<8).map { Double(b.big(4, at: at + 4 * $0) ?? 0) / 100_000 }
        chromaticities = Chromaticities(
          white: .init(v[0], v[1]), red: .init(v[2], v[3]), green: .init(v[4], v[5]), blue: .init(v[6], v[7]))
      default: break
      }
      return true
    }
    // RGB is the only matrix that PNG allows; with another the chunk is broken.
    if let code, code.matrix == 0 {
      guard code.isFullRange else { return .unsupported("in video range (cICP), which is not read; taken as sRGB") }
      return code.colour
    }
    if hasProfile { return .embedded }
    if isSRGB { return .sRGB }
    // Numbers out of this range are mistakes, 0 above all.
    guard let gamma, gamma >= 0.1, gamma <= 10 else { return .none }
    let primaries = chromaticities.flatMap { $0.isUsable ? $0 : nil } ?? .sRGB
    // 1/2.2 with the primaries of sRGB is how files of sRGB were marked before there was a chunk for it.
    if abs(gamma * 2.2 - 1) < 0.01, primaries.isNear(.sRGB) { return .sRGB }
    return .described(ColourDescription(chromaticities: primaries, curve: .power(1 / gamma)))
  }

  // MARK: HEIF

  /// From the colour property of the primary picture, or of its first part that has one.
  public static func heif(_ b: UnsafeRawBufferPointer) -> DeclaredColour {
    guard let items = HEIFItems(b), let primary = items.primary else { return .none }
    for id in [primary] + (items.parts[primary] ?? []).prefix(1) {
      var code: CodePoints?
      for box in items.properties("colr", of: id) {
        let at = box.body.lowerBound
        switch FourLetters(b, at: at) {
        case "prof", "rICC": return .embedded
        case "nclx":
          guard let primaries = b.big(2, at: at + 4), let transfer = b.big(2, at: at + 6),
            let matrix = b.big(2, at: at + 8)
          else { break }
          // The decoder undoes matrix and range.
          code = code ?? CodePoints(primaries: primaries, transfer: transfer, matrix: matrix, isFullRange: true)
        default: break
        }
      }
      if let code { return code.colour }
    }
    return .none
  }
}

/// Coding-independent code points (ITU-T H.273).
struct CodePoints: Hashable {
  var primaries: Int
  var transfer: Int
  var matrix: Int
  var isFullRange: Bool

  /// What they come to for a still picture on a screen.
  var colour: DeclaredColour {
    let curve: ToneCurve
    switch transfer {
    case 4: curve = .power(2.2)
    case 5: curve = .power(2.8)
    case 8: curve = .power(1)
    case 16: return .unsupported("of high dynamic range (PQ), which is not read; taken as sRGB")
    case 18: return .unsupported("of high dynamic range (HLG), which is not read; taken as sRGB")
    // The curves of BT.601, BT.709 and BT.2020 are a camera's. Pictures marked so are made for and shown on screens of
    // sRGB, and undoing the camera's curve would darken or wash out what no one has ever seen that way.
    case 1, 2, 6, 13, 14, 15: curve = .sRGB
    default: return .unsupported("marked with transfer function \(transfer), which is not read; taken as sRGB")
    }
    let chromaticities: Chromaticities
    switch primaries {
    case 1, 2: chromaticities = .sRGB
    case 4:
      chromaticities = Chromaticities(
        white: .init(0.310, 0.316), red: .init(0.67, 0.33), green: .init(0.21, 0.71), blue: .init(0.14, 0.08))
    case 5: chromaticities = .d65(.init(0.64, 0.33), .init(0.29, 0.60), .init(0.15, 0.06))
    case 6, 7: chromaticities = .d65(.init(0.630, 0.340), .init(0.310, 0.595), .init(0.155, 0.070))
    case 9: chromaticities = .d65(.init(0.708, 0.292), .init(0.170, 0.797), .init(0.131, 0.046))
    case 11:
      chromaticities = Chromaticities(
        white: .init(0.314, 0.351), red: .init(0.680, 0.320), green: .init(0.265, 0.690), blue: .init(0.150, 0.060))
    case 12: chromaticities = .d65(.init(0.680, 0.320), .init(0.265, 0.690), .init(0.150, 0.060))
    case 22: chromaticities = .d65(.init(0.630, 0.340), .init(0.295, 0.605), .init(0.155, 0.077))
    default: return .unsupported("marked with primaries \(primaries), which are not read; taken as sRGB")
    }
    if curve == .sRGB, chromaticities == .sRGB { return primaries == 2 && transfer == 2 ? .none : .sRGB }
    return .described(ColourDescription(chromaticities: chromaticities, curve: curve))
  }
}

/// Where the primaries and the white of a colour space lie (CIE 1931, x and y).
public struct Chromaticities: Sendable, Hashable {
  public struct Point: Sendable, Hashable {
    public var x: Double
    public var y: Double

    public init(_ x: Double, _ y: Double) {
      self.x = x
      self.y = y
    }
  }

  public var white: Point
  public var red: Point
  public var green: Point
  public var blue: Point

  public init(white: Point, red: Point, green: Point, blue: Point) {
    self.white = white
    self.red = red
    self.green = green
    self.blue = blue
  }

  static func d65(_ red: Point, _ green: Point, _ blue: Point) -> Chromaticities {
    Chromaticities(white: Point(0.3127, 0.3290), red: red, green: green, blue: blue)
  }

  /// Of sRGB and BT.709.
  public static let sRGB = d65(Point(0.64, 0.33), Point(0.30, 0.60), Point(0.15, 0.06))

  private var points: [Point] { [white, red, green, blue] }

  /// Whether a colour space can be made of them: on the diagram, and not on one line.
  var isUsable: Bool {
    let area = (green.x - red.x) * (blue.y - red.y) - (blue.x - red.x) * (green.y - red.y)
    guard points.allSatisfy({ $0.x >= 0 && $0.y > 0.0001 && $0.x <= 1 && $0.y <= 1 }), abs(area) > 0.001 else {
      return false
    }
    return matrix != nil
  }

  func isNear(_ other: Chromaticities) -> Bool {
    zip(points, other.points).allSatisfy { abs($0.x - $1.x) < 0.002 && abs($0.y - $1.y) < 0.002 }
  }

  /// The columns of the matrix from linear RGB to XYZ, adapted to D50 as ICC asks (Bradford); nil where the white is
  /// not inside of the primaries.
  ///
  /// After Lindbloom, "RGB/XYZ Matrices" and "Chromatic Adaptation"; ICC.1:2010, annex E.
  var matrix: (columns: [[Double]], adaptation: [[Double]])? {
    func xyz(_ p: Point) -> [Double] { [p.x / p.y, 1, (1 - p.x - p.y) / p.y] }
    let (r, g, b, w) = (xyz(red), xyz(green), xyz(blue), xyz(white))
    let primaries = (0..<3).map { [r[$0], g[$0], b[$0]] }
    guard let inverse = Matrix.inverse(primaries) else { return nil }
    let scale = Matrix.times(inverse, w)
    guard scale.allSatisfy({ $0 > 0 && $0.isFinite }) else { return nil }
    let cone = [[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]]
    guard let back = Matrix.inverse(cone) else { return nil }
    let (from, to) = (Matrix.times(cone, w), Matrix.times(cone, ICCProfileWriter.d50))
    guard from.allSatisfy({ $0 > 0 }) else { return nil }
    let gains = (0..<3).map { i in cone[i].map { $0 * to[i] / from[i] } }
    let adaptation = Matrix.times(back, gains)
    let columns = zip([r, g, b], scale).map { column, factor in
      Matrix.times(adaptation, column.map { $0 * factor })
    }
    return (columns, adaptation)
  }
}

/// How a colour space turns numbers into light.
public enum ToneCurve: Sendable, Hashable {
  /// Light = number ^ exponent; 1 is linear.
  case power(Double)
  /// IEC 61966-2-1.
  case sRGB
}

/// A colour space by its primaries and its curve.
public struct ColourDescription: Sendable, Hashable {
  public var chromaticities: Chromaticities
  public var curve: ToneCurve

  public init(chromaticities: Chromaticities, curve: ToneCurve) {
    self.chromaticities = chromaticities
    self.curve = curve
  }

  /// An ICC profile (version 4, matrix and curves; ICC.1:2010) of the space; for a grey picture one of its curve alone.
  ///
  /// nil where the primaries make no colour space.
  public func profile(grey: Bool = false) -> [UInt8]? {
    guard let matrix = chromaticities.matrix else { return nil }
    return ICCProfileWriter.profile(columns: grey ? nil : matrix.columns, adaptation: matrix.adaptation, curve: curve)
  }
}

enum ICCProfileWriter {
  /// The white of the profile connection space, as ICC rounds it.
  static let d50 = [0.9642, 1.0, 0.8249]

  /// - Parameter columns: XYZ of red, green and blue on D50; nil for grey.
  static func profile(columns: [[Double]]?, adaptation: [[Double]], curve: ToneCurve) -> [UInt8] {
    let tone = bytes(of: curve)
    var tags: [(name: FourLetters, data: [UInt8])] = [
      ("desc", text("Colours as declared by the file")), ("cprt", text("No copyright")), ("wtpt", xyz(d50)),
      ("chad", type("sf32") + adaptation.flatMap { $0.flatMap(fixed) }),
    ]
    if let columns {
      tags += zip(["rXYZ", "gXYZ", "bXYZ"] as [FourLetters], columns).map { ($0, xyz($1)) }
      tags += (["rTRC", "gTRC", "bTRC"] as [FourLetters]).map { ($0, tone) }
    } else {
      tags.append(("kTRC", tone))
    }

    var table = big32(tags.count)
    var data: [UInt8] = []
    let start = 128 + 4 + 12 * tags.count
    for tag in tags {
      table += big32(Int(tag.name.code)) + big32(start + data.count) + big32(tag.data.count)
      data += tag.data
      while data.count % 4 != 0 { data.append(0) }
    }
    var header = [UInt8](repeating: 0, count: 128)
    func put(_ bytes: [UInt8], at offset: Int) { header.replaceSubrange(offset..<offset + bytes.count, with: bytes) }
    put(big32(start + data.count), at: 0)
    put([4, 0x30, 0, 0], at: 8)
    put(Array("mntr".utf8) + Array((columns == nil ? "GRAY" : "RGB ").utf8) + Array("XYZ ".utf8), at: 12)
    // A fixed date: the same colours make the same bytes.
    put([0x07, 0xE8, 0, 1, 0, 1], at: 24)
    put(Array("acsp".utf8), at: 36)
    put(d50.flatMap(fixed), at: 68)
    return header + table + data
  }

  private static func big32(_ value: Int) -> [UInt8] {
    [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: value >> $0) }
  }

  /// A signed number of 16 bits before and 16 behind the point.
  private static func fixed(_ value: Double) -> [UInt8] {
    big32(Int((max(-32768, min(32767, value)) * 65536).rounded()))
  }

  private static func type(_ name: StaticString) -> [UInt8] {
    big32(Int(FourLetters(stringLiteral: name).code)) + [0, 0, 0, 0]
  }

  private static func xyz(_ value: [Double]) -> [UInt8] { type("XYZ ") + value.flatMap(fixed) }

  /// One text in English, UTF-16.
  private static func text(_ text: String) -> [UInt8] {
    let units = text.utf16.flatMap { [UInt8($0 >> 8), UInt8($0 & 255)] }
    return type("mluc") + big32(1) + big32(12) + Array("enUS".utf8) + big32(units.count) + big32(28) + units
  }

  private static func bytes(of curve: ToneCurve) -> [UInt8] {
    switch curve {
    case .power(let exponent): type("para") + [0, 0, 0, 0] + fixed(exponent)
    case .sRGB:
      type("para") + [0, 3, 0, 0]
        + [2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045].flatMap(fixed)
    }
  }
}

/// Of three rows and columns.
private enum Matrix {
  static func times(_ m: [[Double]], _ v: [Double]) -> [Double] {
    m.map { $0[0] * v[0] + $0[1] * v[1] + $0[2] * v[2] }
  }

  static func times(_ a: [[Double]], _ b: [[Double]]) -> [[Double]] {
    a.map { row in (0..<3).map { j in row[0] * b[0][j] + row[1] * b[1][j] + row[2] * b[2][j] } }
  }

  /// nil where there is none.
  static func inverse(_ m: [[Double]]) -> [[Double]]? {
    func minor(_ i: Int, _ j: Int) -> Double {
      let rows = [0, 1, 2].filter { $0 != i }
      let columns = [0, 1, 2].filter { $0 != j }
      return m[rows[0]][columns[0]] * m[rows[1]][columns[1]] - m[rows[0]][columns[1]] * m[rows[1]][columns[0]]
    }
    let determinant = m[0][0] * minor(0, 0) - m[0][1] * minor(0, 1) + m[0][2] * minor(0, 2)
    guard abs(determinant) > 1e-9, determinant.isFinite else { return nil }
    return (0..<3).map { i in
      (0..<3).map { j in ((i + j) % 2 == 0 ? 1 : -1) * minor(j, i) / determinant }
    }
  }
}
