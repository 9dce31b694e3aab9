import Imaging
import PipelineKit
import Synchronization

/// Pictures made for the probes, as files in memory and as pixels.
struct ProbePicture: Hashable {
  enum Kind: Int {
    case grey = 1
    case rgb = 2
    case cmyk = 5
  }

  var width: Int
  var height: Int
  var kind = Kind.rgb
  var hasAlpha = false
  var isDeep = false
  /// Chooses one of many contents.
  var seed = 0
  /// 0…255 all over; nil for an ellipse with a soft edge.
  var alphaLevel: UInt8?

  var bands: Int { (kind == .grey ? 1 : kind == .rgb ? 3 : 4) + (hasAlpha ? 1 : 0) }

  /// The colour bands of a pixel and its alpha, 0…255: light that grows to the right and, less, downwards, with a bright
  /// patch in one corner, so that no way of turning it gives the same picture; and some texture.
  func pixel(_ x: Int, _ y: Int) -> (colour: [Int], alpha: Int) {
    let (u, v) = (Double(x) / Double(max(1, width - 1)), Double(y) / Double(max(1, height - 1)))
    let patch = u < 0.35 && v > 0.6 ? 60.0 : 0
    let texture = Double((x &* 7 &+ y &* 13 &+ seed &* 29) % 17) - 8
    let light = 40 + 110 * u + 40 * v + patch + texture
    func level(_ value: Double) -> Int { Int(max(8, min(247, value))) }
    let colour: [Int] =
      switch kind {
      case .grey: [level(light)]
      case .rgb: [level(light), level(light * 0.8 + 20 * v), level(220 - light * 0.6)]
      case .cmyk: [level(250 - light), level(200 - light * 0.5), level(light * 0.5), 20]
      }
    return (colour, alphaLevel.map { Int($0) } ?? Self.ellipse(u, v))
  }

  static func ellipse(_ u: Double, _ v: Double) -> Int {
    let distance = ((u - 0.5) * (u - 0.5) + (v - 0.5) * (v - 0.5)).squareRoot()
    return Int(max(0, min(255, (0.45 - distance) * 1600 + 128)))
  }

  /// Rows of samples, of one or two bytes each with the low one first, in the order of an orientation.
  private func samples(orientation: Int) -> (bytes: [UInt8], width: Int, height: Int) {
    // Where a stored pixel comes from in the upright picture (TIFF 6.0, tag 274).
    let isTurned = orientation >= 5
    let (storedWidth, storedHeight) = isTurned ? (height, width) : (width, height)
    var bytes: [UInt8] = []
    bytes.reserveCapacity(width * height * bands * (isDeep ? 2 : 1))
    for row in 0..<storedHeight {
      for column in 0..<storedWidth {
        let (x, y) =
          switch orientation {
          case 2: (width - 1 - column, row)
          case 3: (width - 1 - column, height - 1 - row)
          case 4: (column, height - 1 - row)
          case 5: (row, column)
          case 6: (width - 1 - row, column)
          case 7: (width - 1 - row, height - 1 - column)
          case 8: (row, height - 1 - column)
          default: (column, row)
          }
        let (colour, alpha) = pixel(x, y)
        for level in hasAlpha ? colour + [alpha] : colour {
          bytes.append(UInt8(level))
          // 257 times the level, as 255 is to 65,535.
          if isDeep { bytes.append(UInt8(level)) }
        }
      }
    }
    return (bytes, storedWidth, storedHeight)
  }

  /// An uncompressed TIFF. Made once: a probe that measures must not measure this.
  func tiff(orientation: Int = 1) -> [UInt8] {
    let key = Made(picture: self, orientation: orientation)
    if let known = Self.made.withLock({ $0[key] }) { return known }
    let file = makeTIFF(orientation: orientation)
    Self.made.withLock { $0[key] = file }
    return file
  }

  private struct Made: Hashable {
    var picture: ProbePicture
    /// 0 for the matte.
    var orientation: Int
  }
  private static let made = Mutex<[Made: [UInt8]]>([:])

  private func makeTIFF(orientation: Int) -> [UInt8] {
    let (pixels, storedWidth, storedHeight) = samples(orientation: orientation)
    func le16(_ value: Int) -> [UInt8] { [UInt8(value & 255), UInt8(value >> 8 & 255)] }
    func le32(_ value: Int) -> [UInt8] { le16(value & 0xFFFF) + le16(value >> 16) }
    var entries: [(tag: Int, type: Int, count: Int, value: Int)] = [
      (256, 4, 1, storedWidth), (257, 4, 1, storedHeight), (259, 3, 1, 1),
      (262, 3, 1, kind == .grey ? 1 : kind.rawValue),
      (274, 3, 1, orientation), (277, 3, 1, bands), (278, 4, 1, storedHeight), (279, 4, 1, pixels.count),
    ]
    if hasAlpha { entries.append((338, 3, 1, 2)) }
    let bitsAt = 8 + 2 + 12 * (entries.count + 2) + 4
    let bits = isDeep ? 16 : 8
    entries.append((258, 3, bands, bands == 1 ? bits : bands == 2 ? bits | bits << 16 : bitsAt))
    entries.append((273, 4, 1, bitsAt + 2 * bands))
    entries.sort { $0.tag < $1.tag }
    var file: [UInt8] = [0x49, 0x49, 0x2A, 0] + le32(8) + le16(entries.count)
    for entry in entries { file += le16(entry.tag) + le16(entry.type) + le32(entry.count) + le32(entry.value) }
    file += le32(0)
    for _ in 0..<bands { file += le16(bits) }
    return file + pixels
  }

  /// The pixels as stages get them: 3 bands, or 4 with alpha.
  func image() throws(ImagingError) -> Image {
    try EncodedPicture(
      bytes: EncodedBytes(tiff()), options: DecodeOptions(space: WorkingSpace(depth: isDeep ? .sixteen : .eight))
    ).pixels()
  }

  /// A matte of the picture's sides: its alpha.
  func matte() throws(ImagingError) -> Image {
    let key = Made(picture: self, orientation: 0)
    var bytes = Self.made.withLock { $0[key] } ?? []
    if bytes.isEmpty {
      for y in 0..<height { for x in 0..<width { bytes.append(UInt8(pixel(x, y).alpha)) } }
      Self.made.withLock { [bytes] in $0[key] = bytes }
    }
    return try Image(width: width, height: height, bands: 1, bytes: bytes)
  }
}

/// A picture's light in whole levels, for comparisons.
struct Light {
  let width: Int
  let height: Int
  let levels: [Double]

  /// Lightness is the mean of the colours, on black where there is transparency.
  init(_ image: Image) throws(ImagingError) {
    let eight = try image.withDepth(8)
    (width, height) = (eight.width, eight.height)
    let bands = eight.bands
    let colours = bands >= 3 ? 3 : 1
    levels = try eight.withPixels { raw in
      (0..<eight.width * eight.height).map { pixel in
        let start = pixel * bands
        var sum = 0.0
        for band in 0..<colours { sum += Double(raw[start + band]) }
        let alpha = eight.hasAlpha ? Double(raw[start + bands - 1]) / 255 : 1
        return sum / Double(colours) * alpha
      }
    }
  }

  private init(_ width: Int, _ height: Int, _ levels: [Double]) {
    (self.width, self.height, self.levels) = (width, height, levels)
  }

  /// The mean distance of the levels of two pictures with the same sides.
  func distance(_ other: Light) -> Double {
    guard !levels.isEmpty else { return 0 }
    return zip(levels, other.levels).reduce(0) { $0 + abs($1.0 - $1.1) } / Double(levels.count)
  }

  /// How much alike two pictures are whatever their brightness, -1…1.
  func correlation(_ other: Light) -> Double {
    let count = Double(levels.count)
    let (meanA, meanB) = (levels.reduce(0, +) / count, other.levels.reduce(0, +) / count)
    var (product, squareA, squareB) = (0.0, 0.0, 0.0)
    for (a, b) in zip(levels, other.levels) {
      product += (a - meanA) * (b - meanB)
      squareA += (a - meanA) * (a - meanA)
      squareB += (b - meanB) * (b - meanB)
    }
    return squareA > 0 && squareB > 0 ? product / (squareA * squareB).squareRoot() : 0
  }

  /// The picture shrunk to cells on a square grid, which can be turned whatever its sides.
  func cells(_ side: Int = 16) -> Light {
    var result = [Double](repeating: 0, count: side * side)
    for row in 0..<side {
      for column in 0..<side {
        let (top, left) = (row * height / side, column * width / side)
        let (bottom, right) = (max(top + 1, (row + 1) * height / side), max(left + 1, (column + 1) * width / side))
        var (sum, count) = (0.0, 0.0)
        for y in top..<min(bottom, height) {
          for x in left..<min(right, width) {
            sum += levels[y * width + x]
            count += 1
          }
        }
        result[row * side + column] = count > 0 ? sum / count : 0
      }
    }
    return Light(side, side, result)
  }

  static let turns = [
    "as it was", "mirrored", "turned by 180°", "mirrored upside down", "mirrored and turned by 90°", "turned by 90°",
    "mirrored and turned by 270°", "turned by 270°",
  ]

  /// A square picture turned in one of the 8 ways of `turns`.
  func turned(_ way: Int) -> Light {
    let last = width - 1
    var result = levels
    for y in 0..<height {
      for x in 0..<width {
        let (toX, toY) =
          switch way {
          case 1: (last - x, y)
          case 2: (last - x, last - y)
          case 3: (x, last - y)
          case 4: (last - y, last - x)
          case 5: (last - y, x)
          case 6: (y, x)
          case 7: (y, last - x)
          default: (x, y)
          }
        result[toY * width + toX] = levels[y * width + x]
      }
    }
    return Light(width, height, result)
  }
}
