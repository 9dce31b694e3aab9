import Glibc
import Synchronization
import Transport

/// The descriptors 0 to 2 and what is behind them.
enum StandardStreams {
  /// Opens the null device on those of 0, 1 and 2 that are closed, so that no picture gets one of these numbers and
  /// has messages written into it. To be called before anything else is opened.
  static func fillClosed() {
    for descriptor: Int32 in 0...2 where fcntl(descriptor, F_GETFD) < 0 {
      let opened = open("/dev/null", O_RDWR)
      if opened >= 0, opened != descriptor {
        dup2(opened, descriptor)
        close(opened)
      }
    }
  }

  private static let kept = Atomic<Int32>(1)

  /// Where results go.
  static var output: Int32 { kept.load(ordering: .relaxed) }

  /// Has what libraries and plugins print to standard output go to standard error, so that a result stays what it is.
  /// Before anything is written.
  static func keepOutput() {
    let own = fcntl(1, F_DUPFD_CLOEXEC, 3)
    guard own >= 0 else { return }
    dup2(2, 1)
    kept.store(own, ordering: .relaxed)
  }

  /// Writes all bytes; waits where the descriptor does not block and is full.
  ///
  /// - Returns: the error number, or nil.
  static func write(_ bytes: UnsafeRawBufferPointer, to descriptor: Int32) -> Int32? {
    var rest = bytes
    while !rest.isEmpty {
      let count = Glibc.write(descriptor, rest.baseAddress, rest.count)
      if count >= 0 {
        rest = UnsafeRawBufferPointer(rebasing: rest[count...])
      } else if errno == EAGAIN {
        var poller = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        _ = poll(&poller, 1, 1000)
      } else if errno != EINTR {
        return errno
      }
    }
    return nil
  }

  /// A line for people on standard error.
  static func complain(_ text: String) {
    var text = "pipeline: " + Wording.oneLine(Secrets.redacted(text)) + "\n"
    text.withUTF8 { _ = write(UnsafeRawBufferPointer($0), to: 2) }
  }

  static func writeError(_ text: String) {
    var text = Secrets.redacted(text)
    text.withUTF8 { _ = write(UnsafeRawBufferPointer($0), to: 2) }
  }
}

/// What standard output is used for: results. Buffered; used by one thread.
///
/// `@unchecked Sendable`: a command and `main` use it one after the other on the main thread.
final class ResultOutput: @unchecked Sendable {
  private var buffer: [UInt8] = []
  private var failure: Int32?

  func print(_ text: String) {
    buffer += Secrets.redacted(text).utf8
    buffer.append(UInt8(ascii: "\n"))
    if buffer.count > 1 << 16 { flush() }
  }

  /// Writes what is held back.
  func flush() {
    guard failure == nil, !buffer.isEmpty else { return }
    failure = buffer.withUnsafeBytes { StandardStreams.write($0, to: StandardStreams.output) }
    buffer.removeAll(keepingCapacity: true)
  }

  /// Writes the rest. A reader that has gone (`| head`) or was never there is no failure; a full disk is.
  ///
  /// - Returns: the system's words for what was lost, or nil.
  func finish() -> String? {
    flush()
    guard let failure, failure != EPIPE, failure != EBADF else { return nil }
    return String(cString: strerror(failure))
  }
}

/// A descriptor as a screen.
struct Terminal: Sendable {
  private(set) var descriptor: Int32
  let isTerminal: Bool
  /// Whether lines may be redrawn: a terminal that can, and nobody collecting a log.
  let isInteractive: Bool
  let usesColor: Bool

  init(_ descriptor: Int32) {
    func variable(_ name: String) -> String? {
      getenv(name).map { String(cString: $0) }.flatMap { $0.isEmpty ? nil : $0 }
    }
    self.descriptor = descriptor
    isTerminal = isatty(descriptor) == 1
    let term = variable("TERM")
    let canRedraw = isTerminal && term != nil && term != "dumb"
    let ci = variable("CI")
    isInteractive = canRedraw && (ci == nil || ci == "false")
    // The conventions of no-color.org and bixense.com/clicolors: what forbids goes before what forces.
    let forces = variable("CLICOLOR_FORCE").map { $0 != "0" } ?? false
    usesColor = variable("NO_COLOR") == nil && (forces || canRedraw && variable("CLICOLOR") != "0")
  }

  /// The same screen by another descriptor, when its own is used for something else.
  func moved(to descriptor: Int32) -> Terminal {
    var copy = self
    copy.descriptor = descriptor
    return copy
  }

  /// Columns now: a window may change at any time. 80 where nothing tells.
  var width: Int {
    var size = winsize()
    if isTerminal, ioctl(descriptor, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 { return Int(size.ws_col) }
    if let columns = getenv("COLUMNS").flatMap({ Int(String(cString: $0)) }), columns > 0 { return columns }
    return 80
  }

  /// Rows now; 24 where nothing tells.
  var height: Int {
    var size = winsize()
    if isTerminal, ioctl(descriptor, UInt(TIOCGWINSZ), &size) == 0, size.ws_row > 0 { return Int(size.ws_row) }
    return 24
  }

  /// Columns for findings with their source lines.
  var diagnosticWidth: Int { isTerminal ? max(20, width - 10) : 100 }
}
