import PipelineKit
import Synchronization

/// Why a list or manifest cannot be read on.
enum TextFault: Error, Sendable, Hashable {
  case system(SystemError)
  case encoding(String)
  /// A line that makes no sense; reading may go on behind it where `canContinue`.
  case line(Int, String, hint: String? = nil, canContinue: Bool = true)
}

/// Where the bytes of a list or manifest come from, read in pieces.
final class ByteStream {
  private enum Source {
    case file(OpenFile)
    case memory
  }

  private let source: Source
  private var buffer: [UInt8]
  private var position = 0
  private var end = 0
  private var isFinished = false

  private static let pieceSize = 65_536

  init(_ file: OpenFile) {
    source = .file(file)
    buffer = Array(repeating: 0, count: Self.pieceSize)
  }

  init(_ bytes: [UInt8]) {
    source = .memory
    buffer = bytes
    end = bytes.count
    isFinished = true
  }

  /// The next byte; nil at the end.
  func next() throws(TextFault) -> UInt8? {
    if position == end { try fill() }
    guard position < end else { return nil }
    defer { position += 1 }
    return buffer[position]
  }

  /// The next byte, left where it is.
  func peek() throws(TextFault) -> UInt8? {
    if position == end { try fill() }
    return position < end ? buffer[position] : nil
  }

  /// What is already at hand, at least the first 64 KiB when nothing was taken yet.
  func lookahead() throws(TextFault) -> ArraySlice<UInt8> {
    if position == end { try fill() }
    return buffer[position..<end]
  }

  func skip(_ count: Int) { position = min(position + count, end) }

  private func fill() throws(TextFault) {
    guard case .file(let file) = source, !isFinished else { return }
    position = 0
    switch file.read(into: &buffer) {
    case .success(let count): end = count
    case .failure(let error): throw .system(error)
    }
    isFinished = end < buffer.count
  }

  /// Passes a byte order mark, and refuses a file in UTF-16, which some Windows tools write.
  func passByteOrderMark() throws(TextFault) {
    let start = Array(try lookahead().prefix(3))
    if start == [0xef, 0xbb, 0xbf] { skip(3) }
    if start.starts(with: [0xff, 0xfe]) || start.starts(with: [0xfe, 0xff]) { throw .encoding("UTF-16") }
  }
}

/// Bytes that can be read only once (standard input, pipes), kept so that a plan and the run after it see the same.
final class OnceOnlyInputs: Sendable {
  private let kept = Mutex<[Int: [UInt8]]>([:])

  /// All bytes of `file`, read at the first call for `declaration`.
  func bytes(of file: OpenFile, for declaration: Int) throws(SystemError) -> [UInt8] {
    try kept.withLock { (kept) throws(SystemError) -> [UInt8] in
      if let bytes = kept[declaration] { return bytes }
      var whole: [UInt8] = []
      var piece = [UInt8](repeating: 0, count: 65_536)
      while true {
        let count = try file.read(into: &piece).get()
        whole += piece[..<count]
        if count < piece.count { break }
      }
      kept[declaration] = whole
      return whole
    }
  }

  func bytes(for declaration: Int) -> [UInt8]? { kept.withLock { $0[declaration] } }
}

/// A list or manifest, opened.
struct TextInput {
  var stream: ByteStream
  /// The file as messages name it.
  var name: PathBytes
  /// What relative paths in it are relative to.
  var folder: PathBytes

  /// Opens `path`, or standard input for `-`.
  static func open(
    _ path: String, what: String, base: PathBytes, standardInput: Int32, once: OnceOnlyInputs, declaration: Int
  ) throws(InputError) -> TextInput {
    func problem(_ code: InputProblem.Code, _ message: String, hint: String? = nil) -> InputError {
      InputError(InputProblem(code, message, hint: hint, declaration: declaration))
    }
    if path == "-" {
      let folder = PathBytes.currentFolder ?? base
      do {
        let file = OpenFile(descriptor: standardInput, closes: false)
        let bytes = try once.bytes(of: file, for: declaration)
        return TextInput(stream: ByteStream(bytes), name: "standard input", folder: folder)
      } catch {
        throw problem(.unreadable, "standard input cannot be read: \(error.text)")
      }
    }
    guard !path.isEmpty, !path.utf8.contains(0) else { throw problem(.missing, "the path of the \(what) is empty") }
    let whole = PathBytes.resolving(PathBytes(path), from: base)
    let name = PathBytes(path)
    // Shells hand over `<(…)` as a name below /dev/fd; it can be read once.
    let isHandedOver = whole.isInside("/dev/fd") || whole == "/dev/stdin" || whole.isInside("/proc/self/fd")
    if isHandedOver, let bytes = once.bytes(for: declaration) {
      return TextInput(stream: ByteStream(bytes), name: name, folder: PathBytes.currentFolder ?? base)
    }
    switch FileStatus.of(whole.bytes, followingLinks: true) {
    case .failure(let error) where error.isMissing:
      throw problem(
        .missing, "the \(what) \(name.printable) does not exist", hint: NearName.hint(for: whole))
    case .failure(let error):
      throw problem(.unreadable, "the \(what) \(name.printable) cannot be read: \(error.text)")
    case .success(let status) where status.kind != .regular && !isHandedOver:
      throw problem(
        .wrongKind, "the \(what) \(name.printable) is \(status.kind.text), not a file",
        hint: status.kind == .pipe ? "pipe the paths in and write \"-\" for the list" : nil)
    case .success: break
    }
    do {
      let file = try OpenFile.open(whole).get()
      if isHandedOver {
        let bytes = try once.bytes(of: file, for: declaration)
        return TextInput(stream: ByteStream(bytes), name: name, folder: PathBytes.currentFolder ?? base)
      }
      return TextInput(stream: ByteStream(file), name: name, folder: whole.parent)
    } catch {
      throw problem(.unreadable, "the \(what) \(name.printable) cannot be read: \(error.text)")
    }
  }
}
