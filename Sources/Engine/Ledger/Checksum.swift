/// A sum of 64 bits that tells damage from data: eight bytes a step, each multiplied in and rotated. Not a hash against
/// people who want two texts to have the same.
struct Checksum {
  private static let factor: UInt64 = 0x9E37_79B9_7F4A_7C15
  private var state: UInt64 = 0x243F_6A88_85A3_08D3

  mutating func add(_ word: UInt64) {
    state = (state ^ word) &* Self.factor
    state = state << 29 | state >> 35
  }

  mutating func add(_ number: Int64) { add(UInt64(bitPattern: number)) }

  /// Adds the bytes and their number.
  mutating func add(_ bytes: UnsafeRawBufferPointer) {
    add(UInt64(bytes.count))
    var offset = 0
    while offset + 8 <= bytes.count {
      add(UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self)))
      offset += 8
    }
    guard offset < bytes.count else { return }
    var rest: UInt64 = 0
    for byte in bytes[offset...] { rest = rest << 8 | UInt64(byte) }
    add(rest)
  }

  mutating func add(_ bytes: [UInt8]) { bytes.withUnsafeBytes { add($0) } }

  mutating func add(_ text: String) {
    var text = text
    text.withUTF8 { add(UnsafeRawBufferPointer($0)) }
  }

  var value: UInt64 {
    var value = state
    value ^= value >> 32
    value = value &* Self.factor
    return value ^ value >> 29
  }
}
