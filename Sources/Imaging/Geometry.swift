/// Whole pixels within a picture, or around it where `x` or `y` are below 0.
public struct Rectangle: Sendable, Hashable {
  public var x: Int
  public var y: Int
  public var width: Int
  public var height: Int

  public init(x: Int, y: Int, width: Int, height: Int) {
    (self.x, self.y, self.width, self.height) = (x, y, width, height)
  }

  /// The smallest rectangle that holds both.
  public func union(_ other: Rectangle) -> Rectangle {
    let (left, top) = (min(x, other.x), min(y, other.y))
    return Rectangle(
      x: left, y: top, width: max(x + width, other.x + other.width) - left,
      height: max(y + height, other.y + other.height) - top)
  }
}

/// A length along a picture: pixels, or a share of one of its sides.
public struct Length: Sendable, Hashable {
  /// Pixels where `denominator` is nil, else a fraction of a hundredth of the side.
  private let numerator: Int
  private let denominator: Int?

  private init(_ numerator: Int, over denominator: Int?) {
    (self.numerator, self.denominator) = (numerator, denominator)
  }

  /// Whether it is a part of a side.
  public var isShare: Bool { denominator != nil }

  /// Pixels, 0 or more.
  public static func pixels(_ count: Int) -> Length { Length(max(0, count), over: nil) }

  /// Reads `10%` or `12.5%`, 0 to 1000 with up to four decimals; nil for anything else.
  public init?(percentage text: String) {
    guard text.utf8.last == UInt8(ascii: "%"), let share = decimalFraction(text.dropLast()),
      share.numerator <= 1000 * share.denominator
    else { return nil }
    self.init(share.numerator, over: share.denominator)
  }

  /// Pixels of a picture whose side is `side` pixels long; shares are rounded half up, exactly.
  public func pixels(of side: Int) -> Int {
    guard let denominator else { return numerator }
    return (2 * side * numerator + 100 * denominator) / (200 * denominator)
  }
}

/// Width to height.
public struct AspectRatio: Sendable, Hashable {
  public let width: Int
  public let height: Int

  /// Reads `16:9` or `1.91:1`: two numbers above 0, up to 10,000 and with up to four decimals, at most 1,000 times each
  /// other; nil for anything else.
  public init?(_ text: String) {
    let parts = text.split(separator: ":", omittingEmptySubsequences: false)
    guard parts.count == 2, let width = decimalFraction(parts[0]), let height = decimalFraction(parts[1]) else {
      return nil
    }
    let (w, h) = (width.numerator * height.denominator, height.numerator * width.denominator)
    guard w > 0, h > 0, w <= 1000 * h, h <= 1000 * w else { return nil }
    (self.width, self.height) = (w, h)
  }

  /// The largest sides of this ratio within `w` × `h`: one of them stays, the other is rounded half up and at least 1.
  public func largest(within w: Int, _ h: Int) -> (width: Int, height: Int) {
    // w / h >= width / height: the picture is wider than the ratio.
    w * height >= h * width
      ? (max(1, Self.rounded(h, width, over: height)), h) : (w, max(1, Self.rounded(w, height, over: width)))
  }

  /// The smallest sides of this ratio around `w` × `h`: one of them stays, the other is rounded half up.
  public func smallest(around w: Int, _ h: Int) -> (width: Int, height: Int) {
    w * height >= h * width
      ? (w, max(h, Self.rounded(w, height, over: width))) : (max(w, Self.rounded(h, width, over: height)), h)
  }

  private static func rounded(_ side: Int, _ numerator: Int, over denominator: Int) -> Int {
    (2 * side * numerator + denominator) / (2 * denominator)
  }
}

/// Digits with at most four decimals, up to 10,000, as a fraction.
private func decimalFraction(_ text: Substring) -> (numerator: Int, denominator: Int)? {
  let parts = text.split(separator: ".", omittingEmptySubsequences: false)
  let isDigits = { (part: Substring) in !part.isEmpty && part.utf8.allSatisfy { (48...57).contains($0) } }
  guard (1...2).contains(parts.count), parts.allSatisfy(isDigits), parts[0].utf8.count <= 5 else { return nil }
  let decimals = parts.count == 2 ? parts[1] : ""
  guard decimals.utf8.count <= 4, let numerator = Int(String(parts[0] + decimals)) else { return nil }
  let denominator = (0..<decimals.utf8.count).reduce(1) { product, _ in product * 10 }
  return numerator <= 10_000 * denominator ? (numerator, denominator) : nil
}

extension Image {
  /// Refuses sides that no operation here makes.
  static func checkSides(_ width: Int, _ height: Int, _ doing: String) throws(ImagingError) {
    guard width > 0, height > 0, width <= 10_000_000, height <= 10_000_000, width * height <= 1 << 30 else {
      throw ImagingError(.geometry, "\(doing) would make \(width)×\(height) pixels, which is not possible")
    }
  }
}
