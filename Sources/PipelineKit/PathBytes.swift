import Glibc

/// A path as the bytes the file system has, which need not be UTF-8.
///
/// Nothing here looks at the file system. Order is bytewise.
public struct PathBytes: Sendable, Hashable, Comparable {
  public var bytes: [UInt8]

  public init(bytes: [UInt8]) { self.bytes = bytes }

  public init(_ text: String) { self.bytes = Array(text.utf8) }

  public init(_ slice: some Sequence<UInt8>) { self.bytes = Array(slice) }

  /// The path that `display` (or `printable`) was made from.
  public init(display text: String) {
    let source = Array(text.utf8)
    var result: [UInt8] = []
    result.reserveCapacity(source.count)
    var index = 0
    while index < source.count {
      if let byte = Self.escapedByte(source, at: index) {
        result.append(byte)
        index += 3
      } else {
        result.append(source[index])
        index += 1
      }
    }
    self.bytes = result
  }

  /// The current folder of the process; nil when it was removed.
  public static var currentFolder: PathBytes? {
    guard let pointer = getcwd(nil, 0) else { return nil }
    defer { free(pointer) }
    return PathBytes(UnsafeRawBufferPointer(start: pointer, count: strlen(pointer)))
  }

  public static func < (left: PathBytes, right: PathBytes) -> Bool {
    left.bytes.lexicographicallyPrecedes(right.bytes)
  }

  // MARK: Text

  /// The path as text; nil when its bytes are not UTF-8.
  public var string: String? { String(validating: bytes, as: UTF8.self) }

  /// The path as text that can be turned back into the same bytes by `init(display:)`.
  ///
  /// A path that is UTF-8 stays as it is, also where it has a `%`. Otherwise each byte that is not part of a UTF-8
  /// character becomes `%XX` and each `%` becomes `%25`. A UTF-8 path that contains something that would read as such
  /// an escape (`%` and two hexadecimal digits) has its `%` escaped too, so that no two paths look the same.
  public var display: String { escaped(controls: false) }

  /// As `display`, with control characters (line feeds, escape sequences) escaped too: for terminals and log lines.
  public var printable: String { escaped(controls: true) }

  private func escaped(controls: Bool) -> String {
    let plain = string
    let readsAsEscaped = bytes.indices.contains { Self.escapedByte(bytes, at: $0) != nil }
    if let plain, !readsAsEscaped, !(controls && plain.unicodeScalars.contains(where: Self.isControl)) { return plain }
    var result = ""
    var index = 0
    while index < bytes.count {
      let length = Self.characterLength(bytes, at: index)
      let character = length > 0 ? String(decoding: bytes[index..<index + length], as: UTF8.self) : ""
      if length == 0 || bytes[index] == 0x25
        || (controls && character.unicodeScalars.contains(where: Self.isControl))
      {
        for byte in bytes[index..<index + max(length, 1)] {
          result += byte < 16 ? "%0" : "%"
          result += String(byte, radix: 16, uppercase: true)
        }
      } else {
        result += character
      }
      index += max(length, 1)
    }
    return result
  }

  private static func isControl(_ scalar: Unicode.Scalar) -> Bool {
    scalar.value < 0x20 || (0x7f...0x9f).contains(scalar.value)
  }

  private static func escapedByte(_ bytes: [UInt8], at index: Int) -> UInt8? {
    guard bytes[index] == 0x25, index + 2 < bytes.count, let high = hexadecimal(bytes[index + 1]),
      let low = hexadecimal(bytes[index + 2])
    else { return nil }
    return high << 4 | low
  }

  private static func hexadecimal(_ byte: UInt8) -> UInt8? {
    switch byte {
    case 0x30...0x39: byte - 0x30
    case 0x41...0x46: byte - 0x41 + 10
    case 0x61...0x66: byte - 0x61 + 10
    default: nil
    }
  }

  /// The length in bytes of the UTF-8 character at `index`; 0 where there is none.
  private static func characterLength(_ bytes: [UInt8], at index: Int) -> Int {
    let length =
      switch bytes[index] {
      case 0x00...0x7f: 1
      case 0xc2...0xdf: 2
      case 0xe0...0xef: 3
      case 0xf0...0xf4: 4
      default: 0
      }
    guard length > 1 else { return length }
    guard index + length <= bytes.count else { return 0 }
    return String(validating: bytes[index..<index + length], as: UTF8.self) == nil ? 0 : length
  }

  // MARK: Parts

  private static let slash: UInt8 = 0x2f
  private static let dot: UInt8 = 0x2e

  public var isEmpty: Bool { bytes.isEmpty }

  public var isAbsolute: Bool { bytes.first == Self.slash }

  /// The names between slashes; empty ones are left out.
  public var components: [ArraySlice<UInt8>] {
    bytes.split(separator: Self.slash, omittingEmptySubsequences: true)
  }

  /// The last name of the path; empty for `/` and the empty path.
  public var lastComponent: PathBytes {
    guard let end = bytes.lastIndex(where: { $0 != Self.slash }) else { return PathBytes(bytes: []) }
    let start = bytes[..<end].lastIndex(of: Self.slash).map { $0 + 1 } ?? 0
    return PathBytes(bytes: Array(bytes[start...end]))
  }

  /// Whether an absolute path is its own normal form. Most are, and runs have millions.
  private var isNormal: Bool {
    guard isAbsolute else { return false }
    return bytes.withUnsafeBufferPointer { bytes in
      if bytes.count == 1 { return true }
      // Where the name begins that is being looked at.
      var start = 1
      for end in 1...bytes.count where end == bytes.count || bytes[end] == Self.slash {
        switch end - start {
        case 0: return false
        case 1: if bytes[start] == Self.dot { return false }
        case 2: if bytes[start] == Self.dot, bytes[start + 1] == Self.dot { return false }
        default: break
        }
        start = end + 1
      }
      return true
    }
  }

  /// The folder the path is in, as `dirname` has it: `a/b/` → `a`, `a` → `.`, `/a` → `/`.
  public var parent: PathBytes {
    guard var end = bytes.lastIndex(where: { $0 != Self.slash }) else {
      return PathBytes(bytes: isAbsolute ? [Self.slash] : [Self.dot])
    }
    guard let cut = bytes[...end].lastIndex(of: Self.slash) else { return PathBytes(bytes: [Self.dot]) }
    end = cut
    while end > 0, bytes[end - 1] == Self.slash { end -= 1 }
    return PathBytes(bytes: end == 0 ? [Self.slash] : Array(bytes[..<end]))
  }

  /// The last name without its ending: `a/b.tar.gz` → `b.tar`, `.profile` → `.profile`.
  public var stem: PathBytes {
    let name = lastComponent.bytes
    return PathBytes(bytes: Self.endingDot(of: name).map { Array(name[..<$0]) } ?? name)
  }

  /// The ending of the last name without its dot, in the case it is written; empty where there is none.
  public var fileExtension: PathBytes {
    let name = lastComponent.bytes
    return PathBytes(bytes: Self.endingDot(of: name).map { Array(name[($0 + 1)...]) } ?? [])
  }

  // A leading dot marks a hidden file and a final dot ends nothing.
  private static func endingDot(of name: [UInt8]) -> Int? {
    guard let index = name.lastIndex(of: dot), index + 1 < name.count,
      name[..<index].contains(where: { $0 != dot })
    else { return nil }
    return index
  }

  // MARK: Composition

  /// `other` seen from this folder; `other` itself when it is absolute.
  public func joining(_ other: PathBytes) -> PathBytes {
    if other.isAbsolute || isEmpty { return other }
    if other.isEmpty { return self }
    var result = bytes
    if result.last != Self.slash { result.append(Self.slash) }
    result += other.bytes
    return PathBytes(bytes: result)
  }

  public func joining(_ other: String) -> PathBytes { joining(PathBytes(other)) }

  /// The path without empty names, `.`, and `name/..`, by its text alone.
  ///
  /// Where `name` is a symbolic link, `name/..` means another folder to the kernel than it does here.
  public var normalised: PathBytes {
    if isNormal { return self }
    var names: [ArraySlice<UInt8>] = []
    for name in components where !name.elementsEqual([Self.dot]) {
      guard name.elementsEqual([Self.dot, Self.dot]) else {
        names.append(name)
        continue
      }
      if let last = names.last, !last.elementsEqual([Self.dot, Self.dot]) {
        names.removeLast()
      } else if !isAbsolute {
        names.append(name)
      }
    }
    let body = Array(names.joined(separator: [Self.slash]))
    if isAbsolute { return PathBytes(bytes: [Self.slash] + body) }
    return PathBytes(bytes: body.isEmpty ? [Self.dot] : body)
  }

  /// Whether this path is `folder` or lies below it, by the text of both; normalise them first.
  public func isInside(_ folder: PathBytes) -> Bool {
    guard isAbsolute == folder.isAbsolute else { return false }
    if isNormal, folder.isNormal {
      let length = folder.bytes.count
      guard length > 1 else { return true }
      return bytes.count >= length && (bytes.count == length || bytes[length] == Self.slash)
        && bytes.starts(with: folder.bytes)
    }
    return components.starts(with: folder.components)
  }

  /// This path as seen from `folder`, both absolute or both relative to one place: `/a/b` from `/a/c` is `../b`.
  ///
  /// Works on the text of both paths, normalised. The path itself when one is absolute and the other is not, or
  /// when `folder` climbs above the place this path starts from.
  public func relative(to folder: PathBytes) -> PathBytes {
    guard isAbsolute == folder.isAbsolute else { return self }
    let here = PathBytes(bytes: [Self.dot])  // The names of `.` are dropped below, so that it equals "no names".
    func names(_ path: PathBytes) -> [ArraySlice<UInt8>] {
      let normal = path.normalised
      return normal == here ? [] : normal.components
    }
    let target = names(self)
    let start = names(folder)
    var shared = 0
    while shared < min(target.count, start.count), target[shared].elementsEqual(start[shared]) { shared += 1 }
    if start[shared...].contains(where: { $0.elementsEqual([Self.dot, Self.dot]) }) { return self }
    let up = Array(repeating: ArraySlice([Self.dot, Self.dot]), count: start.count - shared)
    let body = Array((up + target[shared...]).joined(separator: [Self.slash]))
    return PathBytes(bytes: body.isEmpty ? [Self.dot] : body)
  }
}

extension PathBytes: CustomStringConvertible {
  public var description: String { printable }
}

extension PathBytes: ExpressibleByStringLiteral {
  public init(stringLiteral text: String) { self.init(text) }
}
