import CSystem
import Dispatch
import Glibc
import Synchronization

/// Lines for people, and a few lines below them that are redrawn.
///
/// Writing happens on a queue of its own: a terminal that is stopped, or a reader that is slow, holds up neither the
/// run nor its deadlines.
final class Screen: Sendable {
  private struct State {
    var lines: [UInt8] = []
    var bar: [String]?
    var dropped = 0
    var isScheduled = false
  }
  private struct Drawn {
    var bar: [String]?
    /// The reader is gone: nothing is written any more.
    var isDead = false
  }

  let terminal: Terminal
  private let queue = DispatchQueue(label: "pipeline.screen")
  private let state = Mutex(State())
  private let drawn = Mutex(Drawn())
  /// Whether lines wait in the journal of the run, where a crash does not lose them.
  private let isJournaled: Bool

  /// Beyond this many bytes that nobody reads, lines are dropped and counted.
  private static let mostHeld = 16 << 20

  /// Lines are written in pieces that a pipe takes whole or not at all: after a crash it is known which it took. A piece
  /// ends at the end of a line, so that runs that share a pipe or a file do not cut each other's lines in two.
  private static let pieceBytes = 4096
  /// A file takes larger ones whole: only a line that is longer is cut.
  private static let pieceBytesOfFile = 1 << 20
  private let most: Int

  /// - Parameter isJournaled: whether lines that wait are to outlive a crash; one screen of the process may do so, once
  ///   its run has a journal. It begins with those that the program which crashed has left.
  init(_ terminal: Terminal, isJournaled: Bool = false) {
    self.terminal = terminal
    var status = stat()
    let isFile = fstat(terminal.descriptor, &status) == 0 && status.st_mode & S_IFMT == S_IFREG
    most = isFile ? Self.pieceBytesOfFile : Self.pieceBytes
    self.isJournaled = isJournaled && csystem_lines_begin() == 0
  }

  /// Adds a line, or several.
  func log(_ text: String) {
    change { state in
      let waiting = state.lines.count + (isJournaled ? Int(csystem_lines_waiting()) : 0)
      guard waiting < Self.mostHeld else {
        state.dropped += 1
        return
      }
      var bytes = Array((Annotations.isGitHub ? Self.inert(text) : text).utf8)
      if bytes.last != UInt8(ascii: "\n") { bytes.append(UInt8(ascii: "\n")) }
      // Where memory held some back once, they all go there, to stay in order.
      if isJournaled, state.lines.isEmpty,
        bytes.withUnsafeBytes({ csystem_lines_add($0.baseAddress, Int64($0.count)) }) == 0
      {
        return
      }
      state.lines += bytes
    }
  }

  /// Text in which GitHub's runner finds no command: it takes one from wherever a line begins with `::`, and a picture
  /// may be called so. An invisible space keeps it from that.
  static func inert(_ text: String) -> String {
    guard text.contains("::") || text.contains("##[") else { return text }
    return text.split(separator: "\n", omittingEmptySubsequences: false).map { line in
      let blank = line.prefix { $0 == " " || $0 == "\t" }
      let rest = line[blank.endIndex...]
      let begun = rest.hasPrefix("::") ? blank + "\u{200B}" + rest : line
      return begun.replacing("##[", with: "##\u{200B}[")
    }.joined(separator: "\n")
  }

  /// Draws the lines of the bar, each shorter than the screen is wide, or erases them.
  func show(bar: [String]?) { change { $0.bar = bar } }

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
      let hasJournaled = isJournaled && csystem_lines_waiting() > 0
      guard !drawn.isDead, hasJournaled || !lines.isEmpty || bar != drawn.bar else { return }
      var bytes: [UInt8] = []
      if drawn.bar != nil {
        bytes += (hasJournaled || !lines.isEmpty || bar == nil ? "\r\u{1B}[J" : "\r").utf8
      }
      if hasJournaled {
        guard put(bytes[...], &drawn), drawJournaled(&drawn) else { return }
        bytes = []
      }
      bytes += lines
      if dropped > 0 { bytes += "(\(dropped) lines were dropped: they came faster than they were read)\n".utf8 }
      if let bar { bytes += Self.drawing(bar).utf8 }
      drawn.bar = bar
      _ = put(bytes[...], &drawn)
    }
  }

  /// Lines to be drawn from where the cursor is, which ends where it began.
  ///
  /// At the top and not at the end: when a window gets narrower it breaks rows anew, and nobody knows how many there are
  /// then, but the cursor stays with its row. Until the program hears of it rows may be too long, so none is broken while
  /// it is drawn. They are overwritten and not erased first, so that nothing flickers; what was longer or lower goes
  /// afterwards.
  private static func drawing(_ lines: [String]) -> String {
    let rows = lines.map { $0 + "\u{1B}[K" }.joined(separator: "\r\n")
    let up = lines.count > 1 ? "\u{1B}[\(lines.count - 1)A" : ""
    return "\u{1B}[?7l" + rows + "\u{1B}[J\u{1B}[?7h" + up + "\r"
  }

  /// False when the reader is gone.
  private func put(_ bytes: ArraySlice<UInt8>, _ drawn: inout Drawn) -> Bool {
    var rest = bytes
    while !rest.isEmpty, !drawn.isDead {
      let piece = wholeLines(rest.prefix(most))
      drawn.isDead = piece.withUnsafeBytes { StandardStreams.write($0, to: terminal.descriptor) } != nil
      rest = rest.dropFirst(piece.count)
    }
    return !drawn.isDead
  }

  /// As many lines as end in these bytes; all of them where none does, or where there is no more to come.
  private func wholeLines(_ bytes: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    guard bytes.count == most, let end = bytes.lastIndex(of: UInt8(ascii: "\n")) else { return bytes }
    return bytes[...end]
  }

  private func drawJournaled(_ drawn: inout Drawn) -> Bool {
    var bytes = [UInt8](repeating: 0, count: most)
    while true {
      let count = bytes.withUnsafeMutableBytes { Int(csystem_lines_read($0.baseAddress, Int64($0.count))) }
      guard count > 0 else { return true }
      let piece = wholeLines(bytes[..<count])
      guard put(piece, &drawn) else { return false }
      csystem_lines_taken_off(Int64(piece.count))
    }
  }
}
