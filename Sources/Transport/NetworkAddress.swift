import Glibc

/// An IPv4 or IPv6 address, and what kind of network it lies in.
struct NetworkAddress: Sendable, Hashable, CustomStringConvertible {
  /// 4 or 16 bytes, most significant first.
  let bytes: [UInt8]

  init(bytes: [UInt8]) { self.bytes = bytes }

  /// A number as text, in every form that libcurl and the system's resolver take for one: `127.0.0.1`, also `127.1`,
  /// `0x7f000001` and `2130706433`; `::1`. Nil for names.
  init?(_ text: String) {
    var four = in_addr()
    var six = in6_addr()
    if inet_pton(AF_INET6, text, &six) == 1 {
      bytes = withUnsafeBytes(of: &six) { Array($0.prefix(16)) }
    } else if text.utf8.first.map({ 0x30...0x39 ~= $0 }) == true,
      inet_aton(text.hasSuffix(".") ? String(text.dropLast()) : text, &four) != 0
    {
      bytes = withUnsafeBytes(of: &four) { Array($0.prefix(4)) }
    } else {
      return nil
    }
  }

  /// Of the bytes of a `sockaddr`; nil for other families.
  init?(socketAddress: UnsafeRawBufferPointer) {
    guard socketAddress.count >= 2 else { return nil }
    let family = Int32(socketAddress.loadUnaligned(as: sa_family_t.self))
    // struct sockaddr_in has the address after the port, sockaddr_in6 after port and flow label.
    if family == AF_INET, socketAddress.count >= 8 {
      bytes = Array(socketAddress[4..<8])
    } else if family == AF_INET6, socketAddress.count >= 24 {
      bytes = Array(socketAddress[8..<24])
    } else {
      return nil
    }
  }

  var isVersion6: Bool { bytes.count == 16 }

  var isLoopback: Bool {
    if let embedded { return embedded.isLoopback }
    return isVersion6 ? bytes == Self.loopback6 : bytes.first == 127
  }

  private static let loopback6 = [UInt8](repeating: 0, count: 15) + [1]

  /// The IPv4 address in `::ffff:a.b.c.d`.
  private var embedded: NetworkAddress? {
    guard isVersion6, bytes[0..<10].allSatisfy({ $0 == 0 }), bytes[10] == 0xFF, bytes[11] == 0xFF else { return nil }
    return NetworkAddress(bytes: Array(bytes[12...]))
  }

  /// Whether it is an address of the internet at large: none of the private, local, shared, multicast, reserved,
  /// benchmarking and documentation networks of the IANA special-purpose registries.
  var isPublic: Bool {
    guard isVersion6 else { return !Self.special4.contains { has(prefix: $0.0, bits: $0.1) } }
    if let embedded { return embedded.isPublic }
    // NAT64 (RFC 6052) leads to the IPv4 address within.
    if has(prefix: [0, 0x64, 0xFF, 0x9B, 0, 0, 0, 0, 0, 0, 0, 0], bits: 96) {
      return NetworkAddress(bytes: Array(bytes[12...])).isPublic
    }
    // 2000::/3 is all that is given out.
    return has(prefix: [0x20], bits: 3) && !Self.special6.contains { has(prefix: $0.0, bits: $0.1) }
  }

  private static let special4: [([UInt8], Int)] = [
    ([0], 8), ([10], 8), ([100, 64], 10), ([127], 8), ([169, 254], 16), ([172, 16], 12), ([192, 0, 0], 24),
    ([192, 0, 2], 24), ([192, 88, 99], 24), ([192, 168], 16), ([198, 18], 15), ([198, 51, 100], 24),
    ([203, 0, 113], 24), ([224], 4), ([240], 4),
  ]

  /// Teredo, benchmarking and ORCHID in 2001::/23, documentation, 6to4 (whose IPv4 half may be anything).
  private static let special6: [([UInt8], Int)] = [
    ([0x20, 0x01, 0x00], 23), ([0x20, 0x01, 0x0D, 0xB8], 32), ([0x20, 0x02], 16), ([0x3F, 0xFF, 0x00], 20),
  ]

  func has(prefix: [UInt8], bits: Int) -> Bool {
    for (index, byte) in prefix.enumerated() {
      let left = bits - index * 8
      guard left > 0 else { break }
      let mask: UInt8 = left >= 8 ? 0xFF : 0xFF << UInt8(8 - left)
      if bytes[index] & mask != byte & mask { return false }
    }
    return true
  }

  var description: String {
    var text = [CChar](repeating: 0, count: 64)
    _ = bytes.withUnsafeBytes {
      inet_ntop(isVersion6 ? AF_INET6 : AF_INET, $0.baseAddress, &text, socklen_t(text.count))
    }
    return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }
}
