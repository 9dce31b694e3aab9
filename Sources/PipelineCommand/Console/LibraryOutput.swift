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

  /// The lines since the last call, of at most a MiB; with `all` of everything, also one that has not ended.
  func takeLines(all: Bool = false) -> [String] {
    partial.withLock { partial in
      var buffer = [CChar](repeating: 0, count: 1 << 14)
      var lines: [String] = []
      var taken = 0
      while all || taken < 1 << 20 {
        let count = csystem_capture_take(&buffer, buffer.count)
        guard count > 0 else { break }
        taken += count
        var start = 0
        for index in 0..<count where buffer[index] == CChar(bitPattern: UInt8(ascii: "\n")) {
          Self.add(buffer[start..<index], to: &partial)
          lines.append(Self.text(partial))
          partial.removeAll(keepingCapacity: true)
          start = index + 1
        }
        Self.add(buffer[start..<count], to: &partial)
      }
      if all, !partial.isEmpty {
        lines.append(Self.text(partial))
        partial = []
      }
      return lines.filter { !$0.isEmpty }
    }
  }

  /// Of a line more is not kept than is shown.
  private static func add(_ bytes: ArraySlice<CChar>, to partial: inout [UInt8]) {
    partial += bytes.prefix(longestLine - partial.count).map { UInt8(bitPattern: $0) }
  }

  /// Gives descriptor 2 back.
  func end() { csystem_capture_end() }

  private static func text(_ bytes: [UInt8]) -> String {
    var line = bytes[...]
    while let last = line.last, last == UInt8(ascii: "\r") || last == UInt8(ascii: " ") { line.removeLast() }
    return String(decoding: line, as: UTF8.self)
  }
}
