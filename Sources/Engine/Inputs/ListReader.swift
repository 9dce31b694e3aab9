import PipelineKit

/// Reads paths from a list: one on each line (LF or CRLF), or NUL-separated as `find -print0` writes them.
///
/// Empty lines are passed; there is no comment syntax and no quoting, so any name can be listed.
final class ListReader {
  private let stream: ByteStream
  private let separator: UInt8
  private var line = 0

  /// The longest line taken, in bytes: no path is longer.
  static let longestLine = TreeWalk.longestPath
  /// Addresses may be longer.
  private static let longestAddress = RemoteSource.longestAddress

  init(_ stream: ByteStream) throws(TextFault) {
    self.stream = stream
    try stream.passByteOrderMark()
    // A path ends long before the first 64 KiB do, so a NUL-separated list has its first NUL there.
    separator = try stream.lookahead().contains(0) ? 0 : UInt8(ascii: "\n")
  }

  /// The next path and its line; nil at the end.
  func next() throws(TextFault) -> (path: [UInt8], line: Int)? {
    while true {
      var path: [UInt8] = []
      var isEnded = false
      var hasNUL = false
      while let byte = try stream.next() {
        if byte == separator {
          isEnded = true
          break
        }
        if byte == 0 { hasNUL = true }
        // Two more than a path may have, to see a CR and to see that it is too long.
        if path.count < Self.longestAddress + 2 { path.append(byte) }
      }
      if path.isEmpty, !isEnded { return nil }
      line += 1
      if separator != 0, path.last == UInt8(ascii: "\r") { path.removeLast() }
      if RemoteSource.isAddress(path) {
        if path.count > Self.longestAddress {
          throw .line(line, "the line is longer than \(Self.longestAddress) bytes, which no address is")
        }
      } else if path.count > Self.longestLine {
        throw .line(line, "the line is longer than \(Self.longestLine) bytes, which no path is")
      }
      if hasNUL { throw .line(line, "a NUL character in a path") }
      if !path.isEmpty { return (path, line) }
    }
  }
}
