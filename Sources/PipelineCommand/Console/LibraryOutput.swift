import CSystem
import Glibc
import Synchronization

/// What C libraries write to file descriptor 2 during a run, turned into lines.
///
/// See `csystem_capture_begin` for how, and for what happens in a crash.
final class LibraryOutput: Sendable {
  private let partial = Mutex<[UInt8]>([])

  /// A line longer than this is cut.
  private static let longestLine = 4096

  /// Starts capturing.
  ///
  /// - Returns: nil, and the descriptor that leads where standard error did, or 2 where capturing is not possible:
  ///   libraries then write among our lines.
  static func begin() -> (capture: LibraryOutput?, standardError: Int32) {
    var original: Int32 = -1
    guard csystem_capture_begin(&original) == 0 else { return (nil, 2) }
    return (LibraryOutput(), original)
  }

  private init() {}

  /// The lines since the last call; with `all` also one that has not ended.
  func takeLines(all: Bool = false) -> [String] {
    partial.withLock { partial in
      var buffer = [CChar](repeating: 0, count: 1 << 14)
      while true {
        let count = csystem_capture_take(&buffer, buffer.count)
        guard count > 0 else { break }
        partial += buffer[..<count].map { UInt8(bitPattern: $0) }
        if partial.count > 1 << 20 { break }
      }
      var lines: [String] = []
      while let end = partial.firstIndex(of: UInt8(ascii: "\n")) {
        lines.append(Self.text(partial[..<end]))
        partial.removeSubrange(...end)
      }
      if all || partial.count > Self.longestLine, !partial.isEmpty {
        lines.append(Self.text(partial[...]))
        partial = []
      }
      return lines.filter { !$0.isEmpty }
    }
  }

  /// Gives descriptor 2 back.
  func end() { csystem_capture_end() }

  private static func text(_ bytes: ArraySlice<UInt8>) -> String {
    var line = bytes.prefix(longestLine)
    while let last = line.last, last == UInt8(ascii: "\r") || last == UInt8(ascii: " ") { line.removeLast() }
    return String(decoding: line, as: UTF8.self)
  }
}
