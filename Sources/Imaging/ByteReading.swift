extension UnsafeRawBufferPointer {
  /// The unsigned number of `size` bytes (1…8), most significant first; nil where it does not lie inside the bytes or
  /// is too large for an `Int`.
  func big(_ size: Int, at offset: Int) -> Int? {
    guard offset >= 0, offset <= count - size else { return nil }
    var value: UInt64 = 0
    for i in 0..<size { value = value << 8 | UInt64(self[offset + i]) }
    return Int(exactly: value)
  }

  /// As `big`, least significant byte first.
  func little(_ size: Int, at offset: Int) -> Int? {
    guard offset >= 0, offset <= count - size else { return nil }
    var value: UInt64 = 0
    for i in (0..<size).reversed() { value = value << 8 | UInt64(self[offset + i]) }
    return Int(exactly: value)
  }

  /// Whether these ASCII letters stand at `offset`.
  func says(_ text: StaticString, at offset: Int) -> Bool {
    let length = text.utf8CodeUnitCount
    guard offset >= 0, offset <= count - length else { return false }
    for i in 0..<length where self[offset + i] != text.utf8Start[i] { return false }
    return true
  }

  /// The bytes of `range`, cut to what there is.
  func slice(_ range: Range<Int>) -> UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(rebasing: self[range.clamped(to: 0..<count)])
  }
}

/// Four letters as a number, for comparing names of boxes and chunks without making strings.
struct FourLetters: Hashable, ExpressibleByStringLiteral, CustomStringConvertible {
  let code: UInt32

  init(stringLiteral text: StaticString) {
    code = UInt32(bigEndianBytes: (0..<4).map { text.utf8Start[$0] })
  }

  init?(_ bytes: UnsafeRawBufferPointer, at offset: Int) {
    guard let number = bytes.big(4, at: offset) else { return nil }
    code = UInt32(truncatingIfNeeded: number)
  }

  var description: String {
    String(decoding: [24, 16, 8, 0].map { UInt8(code >> $0 & 255) }, as: UTF8.self)
  }
}

extension UInt32 {
  fileprivate init(bigEndianBytes bytes: [UInt8]) { self = bytes.reduce(0) { $0 << 8 | UInt32($1) } }
}

/// One box of an ISO media file (ISO/IEC 14496-12, 4.2), of JPEG 2000 or of JPEG XL.
struct MediaBox {
  var name: FourLetters
  /// The box without its header, cut to what there is.
  var body: Range<Int>
  /// Whether the box claims to go on beyond the bytes.
  var isCut: Bool

  /// The boxes that lie side by side in `range`; ends at the first whose header makes no sense.
  ///
  /// Each is at least 8 bytes long, so the work is bounded by the range.
  static func forEach(_ b: UnsafeRawBufferPointer, in range: Range<Int>, _ body: (MediaBox) -> Void) {
    let end = min(range.upperBound, b.count)
    var at = range.lowerBound
    while at >= 0, at + 8 <= end, let stated = b.big(4, at: at), let name = FourLetters(b, at: at + 4) {
      var (size, head) = (stated, 8)
      if size == 1 {
        guard let long = b.big(8, at: at + 8) else { return }
        (size, head) = (long, 16)
      } else if size == 0 {
        size = end - at
      }
      guard size >= head, at + head <= end else { return }
      // Compared by what is left, so that a size near 2⁶³ cannot overflow.
      let isCut = size > end - at
      body(MediaBox(name: name, body: at + head..<(isCut ? end : at + size), isCut: isCut))
      if isCut { return }
      at += size
    }
  }

  /// The first box of that name in `range`.
  static func first(_ name: FourLetters, _ b: UnsafeRawBufferPointer, in range: Range<Int>) -> MediaBox? {
    var found: MediaBox?
    forEach(b, in: range) { box in if found == nil, box.name == name { found = box } }
    return found
  }
}
