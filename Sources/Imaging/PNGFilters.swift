/// The row filters of PNG (third edition, 9.2), with the choice among them.
///
/// The filter of each row is the one whose bytes, read as signed, have the least sum of absolute values: the rule that
/// the specification suggests (12.7).
struct PNGFilters: OptionSet, Hashable {
  let rawValue: UInt8

  static let plain = PNGFilters(rawValue: 1 << 0)
  static let sub = PNGFilters(rawValue: 1 << 1)
  static let up = PNGFilters(rawValue: 1 << 2)
  static let average = PNGFilters(rawValue: 1 << 3)
  static let paeth = PNGFilters(rawValue: 1 << 4)
  static let all: PNGFilters = [.plain, .sub, .up, .average, .paeth]

  /// Filters rows in place, each standing behind its filter byte.
  ///
  /// - Parameters:
  ///   - rows: `height` rows of `1 + rowBytes` bytes, as yet unfiltered; filter bytes are written.
  ///   - unit: bytes from a sample to the one on its left, 1…8.
  func apply(to rows: UnsafeMutableRawBufferPointer, rowBytes: Int, height: Int, unit: Int) {
    guard let start = rows.baseAddress, rowBytes > 0, height > 0 else { return }
    precondition(rows.count == height * (rowBytes + 1) && (1...Self.margin).contains(unit))
    // Two rows with zeros in front, for what lies left of the picture, and behind, so that whole vectors can be read.
    let length = Self.margin + (rowBytes + Self.lanes - 1) / Self.lanes * Self.lanes
    withUnsafeTemporaryAllocation(byteCount: 2 * length, alignment: Self.lanes) { both in
      guard let base = both.baseAddress else { return }
      base.initializeMemory(as: UInt8.self, repeating: 0, count: 2 * length)
      var (row, above) = (base + Self.margin, base + length + Self.margin)
      // From the bottom up, as a filter looks at the row above as it was.
      above.copyMemory(from: start + (height - 1) * (rowBytes + 1) + 1, byteCount: rowBytes)
      for y in (0..<height).reversed() {
        swap(&row, &above)
        if y > 0 {
          above.copyMemory(from: start + (y - 1) * (rowBytes + 1) + 1, byteCount: rowBytes)
        } else {
          above.initializeMemory(as: UInt8.self, repeating: 0, count: rowBytes)
        }
        let out = start + y * (rowBytes + 1)
        let chosen = choice(UnsafeRawPointer(row), UnsafeRawPointer(above), rowBytes, unit)
        out.storeBytes(of: chosen, as: UInt8.self)
        Self.write(chosen, UnsafeRawPointer(row), UnsafeRawPointer(above), rowBytes, unit, to: out + 1)
      }
    }
  }

  private typealias Bytes = SIMD16<UInt8>
  private static let lanes = 16
  /// Bytes in front of a row, a whole vector.
  private static let margin = 16

  /// The number of the filter for a row.
  private func choice(_ row: UnsafeRawPointer, _ above: UnsafeRawPointer, _ count: Int, _ unit: Int) -> UInt8 {
    if rawValue.nonzeroBitCount <= 1 { return rawValue == 0 ? 0 : UInt8(rawValue.trailingZeroBitCount) }
    // Rows of nothing, as around a cut-out.
    if contains(.plain), Self.isZero(row, count) { return 0 }
    var sums = SIMD8<Int>()
    // Sums of 16 bits hold 255 steps, of 256 at most each.
    var at = 0
    while at < count {
      let end = min(count, at + 255 * Self.lanes)
      var (s0, s1, s2, s3, s4) = (SIMD8<UInt16>(), SIMD8<UInt16>(), SIMD8<UInt16>(), SIMD8<UInt16>(), SIMD8<UInt16>())
      while at < end {
        let x = (row + at).loadUnaligned(as: Bytes.self)
        let a = (row + at - unit).loadUnaligned(as: Bytes.self)
        let b = (above + at).loadUnaligned(as: Bytes.self)
        let c = (above + at - unit).loadUnaligned(as: Bytes.self)
        var (d0, d1, d2, d3, d4) = (
          x, x &- a, x &- b, x &- Self.average(a, b), x &- Self.paeth(a, b, c)
        )
        if at + Self.lanes > count {
          let inside = Self.first(count - at)
          d0 &= inside
          d1 &= inside
          d2 &= inside
          d3 &= inside
          d4 &= inside
        }
        s0 &+= Self.sizes(d0)
        s1 &+= Self.sizes(d1)
        s2 &+= Self.sizes(d2)
        s3 &+= Self.sizes(d3)
        s4 &+= Self.sizes(d4)
        at += Self.lanes
      }
      sums[0] += Self.total(s0)
      sums[1] += Self.total(s1)
      sums[2] += Self.total(s2)
      sums[3] += Self.total(s3)
      sums[4] += Self.total(s4)
    }
    var best: (filter: UInt8, sum: Int)?
    for filter in 0..<UInt8(5) where rawValue >> filter & 1 == 1 && sums[Int(filter)] < best?.sum ?? .max {
      best = (filter, sums[Int(filter)])
    }
    return best?.filter ?? 0
  }

  private static func write(
    _ filter: UInt8, _ row: UnsafeRawPointer, _ above: UnsafeRawPointer, _ count: Int, _ unit: Int,
    to out: UnsafeMutableRawPointer
  ) {
    switch filter {
    case 1: write(row, above, count, unit, to: out) { x, a, _, _ in x &- a }
    case 2: write(row, above, count, unit, to: out) { x, _, b, _ in x &- b }
    case 3: write(row, above, count, unit, to: out) { x, a, b, _ in x &- average(a, b) }
    case 4: write(row, above, count, unit, to: out) { x, a, b, c in x &- paeth(a, b, c) }
    default: break  // The row stands there already.
    }
  }

  @inline(__always)
  private static func write(
    _ row: UnsafeRawPointer, _ above: UnsafeRawPointer, _ count: Int, _ unit: Int, to out: UnsafeMutableRawPointer,
    _ filtered: (Bytes, Bytes, Bytes, Bytes) -> Bytes
  ) {
    @inline(__always) func vector(_ at: Int) -> Bytes {
      filtered(
        (row + at).loadUnaligned(as: Bytes.self), (row + at - unit).loadUnaligned(as: Bytes.self),
        (above + at).loadUnaligned(as: Bytes.self), (above + at - unit).loadUnaligned(as: Bytes.self))
    }
    let whole = count / lanes * lanes
    var at = 0
    while at < whole {
      (out + at).storeBytes(of: vector(at), as: Bytes.self)
      at += lanes
    }
    guard at < count else { return }
    withUnsafeBytes(of: vector(at)) { last in
      guard let from = last.baseAddress else { return }
      (out + at).copyMemory(from: from, byteCount: count - at)
    }
  }

  private static func isZero(_ row: UnsafeRawPointer, _ count: Int) -> Bool {
    var at = 0
    while at < count {
      // What lies behind the row is zero.
      let words = (row + at).loadUnaligned(as: SIMD2<UInt64>.self)
      if words[0] | words[1] != 0 { return false }
      at += lanes
    }
    return true
  }

  // MARK: Vectors

  /// Ones in the first `count` places.
  private static func first(_ count: Int) -> Bytes {
    var mask = Bytes()
    for i in 0..<min(count, lanes) { mask[i] = 255 }
    return mask
  }

  /// The bytes' distances from zero as signed numbers, summed in pairs.
  @inline(__always) private static func sizes(_ bytes: Bytes) -> SIMD8<UInt16> {
    let pairs = unsafeBitCast(lesser(bytes, 0 &- bytes), to: SIMD8<UInt16>.self)
    return (pairs & 0xFF) &+ (pairs &>> 8)
  }

  private static func total(_ sums: SIMD8<UInt16>) -> Int {
    var total = 0
    for i in 0..<8 { total += Int(sums[i]) }
    return total
  }

  /// Ones where `a` ≤ `b`.
  @inline(__always) private static func notAbove(_ a: Bytes, _ b: Bytes) -> Bytes {
    unsafeBitCast(a .<= b, to: Bytes.self)
  }

  @inline(__always) private static func select(_ mask: Bytes, _ a: Bytes, _ b: Bytes) -> Bytes {
    b ^ ((a ^ b) & mask)
  }

  @inline(__always) private static func lesser(_ a: Bytes, _ b: Bytes) -> Bytes { select(notAbove(a, b), a, b) }

  /// ⌊(a + b) / 2⌋ without a ninth bit.
  @inline(__always) private static func average(_ a: Bytes, _ b: Bytes) -> Bytes { (a & b) &+ ((a ^ b) &>> 1) }

  /// Whichever of left, above and above left is nearest to a + b − c; of equals the earlier.
  ///
  /// The distances are |b − c|, |a − c| and |(b − c) + (a − c)|. Where both differences go the same way, the third is
  /// the sum of the others and never the least; else it is their difference. So eight bits do.
  @inline(__always) private static func paeth(_ a: Bytes, _ b: Bytes, _ c: Bytes) -> Bytes {
    let (aBelow, bBelow) = (notAbove(a, c), notAbove(b, c))
    let toA = select(bBelow, c &- b, b &- c)
    let toB = select(aBelow, c &- a, a &- c)
    let aFirst = notAbove(toA, toB)
    let toC = select(aFirst, toB &- toA, toA &- toB)
    let near = select(aFirst, a, b)
    let nearest = select(aFirst, toA, toB)
    // Where a difference is nil its sign is a matter of taste: then the third distance is the other one.
    let sameWay = ~(aBelow ^ bBelow)
    return select(sameWay | notAbove(nearest, toC), near, c)
  }
}
