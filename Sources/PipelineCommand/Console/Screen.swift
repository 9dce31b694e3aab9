import Dispatch
import Glibc
import Synchronization

/// Lines for people, and one line below them that is redrawn.
///
/// Writing happens on a queue of its own: a terminal that is stopped, or a reader that is slow, holds up neither the
/// run nor its deadlines.
final class Screen: Sendable {
  private struct State {
    var lines: [UInt8] = []
    var bar: String?
    var dropped = 0
    var isScheduled = false
  }
  private struct Drawn {
    var bar: String?
    /// The reader is gone: nothing is written any more.
    var isDead = false
  }

  let terminal: Terminal
  private let queue = DispatchQueue(label: "pipeline.screen")
  private let state = Mutex(State())
  private let drawn = Mutex(Drawn())

  /// Beyond this many bytes that nobody reads, lines are dropped and counted.
  private static let mostHeld = 16 << 20

  init(_ terminal: Terminal) { self.terminal = terminal }

  /// Adds a line, or several.
  func log(_ text: String) {
    change { state in
      guard state.lines.count < Self.mostHeld else {
        state.dropped += 1
        return
      }
      state.lines += text.utf8
      if text.utf8.last != UInt8(ascii: "\n") { state.lines.append(UInt8(ascii: "\n")) }
    }
  }

  /// Draws the bar, or erases it.
  func show(bar: String?) { change { $0.bar = bar } }

  /// Waits until everything is written.
  func flush() { queue.sync { draw() } }

  private func change(_ change: (inout State) -> Void) {
    let isNew = state.withLock { state in
      change(&state)
      defer { state.isScheduled = true }
      return !state.isScheduled
    }
    if isNew { queue.async { [self] in draw() } }
  }

  private func draw() {
    let (lines, bar, dropped) = state.withLock { state in
      defer {
        state.lines = []
        state.dropped = 0
        state.isScheduled = false
      }
      return (state.lines, state.bar, state.dropped)
    }
    drawn.withLock { drawn in
      guard !drawn.isDead, !lines.isEmpty || bar != drawn.bar else { return }
      var bytes: [UInt8] = []
      if drawn.bar != nil, !lines.isEmpty || bar == nil { bytes += "\r\u{1B}[K".utf8 }
      bytes += lines
      if dropped > 0 { bytes += "(\(dropped) lines were dropped: they came faster than they were read)\n".utf8 }
      if let bar { bytes += "\r\(bar)\u{1B}[K".utf8 }
      drawn.bar = bar
      if bytes.withUnsafeBytes({ StandardStreams.write($0, to: terminal.descriptor) }) != nil { drawn.isDead = true }
    }
  }
}
