import Digest
import Glibc
import JobSyntax
import PipelineKit
import Synchronization

/// One end of a stream between a run and a child that works on its items.
///
/// A message is one JSON value, with its length in bytes before it (4 bytes, in this machine's order: both ends are one
/// program). Used by one reader and one writer at a time.
final class Conversation: Sendable {
  enum Received: Sendable {
    case message(JSONNode)
    case timeout
    /// The other end is gone, or talks nonsense.
    case closed
  }

  private static let mostBytes = 64 << 20

  private let descriptor: Int32
  private let received = Mutex<[UInt8]>([])

  /// - Parameter descriptor: a connected stream socket, which is closed with the value.
  init(_ descriptor: Int32) { self.descriptor = descriptor }

  deinit { close(descriptor) }

  /// Sends a message.
  ///
  /// - Returns: false when the other end is gone, or has not read what was sent before by `end`.
  @discardableResult
  func send(_ message: JSONText, until end: ContinuousClock.Instant? = nil) -> Bool {
    let text = Array(message.rendered().utf8)
    let bytes = withUnsafeBytes(of: UInt32(text.count)) { Array($0) } + text
    var sent = 0
    while sent < bytes.count {
      let count = bytes.withUnsafeBytes { all in
        let rest = UnsafeRawBufferPointer(rebasing: all[sent...])
        return Glibc.send(descriptor, rest.baseAddress, rest.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
      }
      if count >= 0 {
        sent += count
      } else if errno == EAGAIN {
        guard wait(for: POLLOUT, until: end) else { return false }
      } else if errno != EINTR {
        return false
      }
    }
    return true
  }

  /// Waits for the next message.
  func receive(until end: ContinuousClock.Instant? = nil) -> Received {
    received.withLock { received in
      while true {
        if received.count >= 4 {
          let length = Int(received.withUnsafeBytes { $0.loadUnaligned(as: UInt32.self) })
          guard length <= Self.mostBytes else { return .closed }
          if received.count >= 4 + length {
            let text = Array(received[4..<4 + length])
            received.removeFirst(4 + length)
            let (root, problems) = StrictJSON.parse(SourceFile(name: "message", text: text))
            guard let root, !problems.hasErrors else { return .closed }
            return .message(root)
          }
        }
        guard wait(for: POLLIN, until: end) else { return .timeout }
        let count = withUnsafeTemporaryAllocation(byteCount: 1 << 16, alignment: 1) { piece in
          let count = recv(descriptor, piece.baseAddress, piece.count, Int32(MSG_DONTWAIT))
          if count > 0 { received += piece[..<count] }
          return count
        }
        if count == 0 { return .closed }
        if count < 0, errno != EINTR, errno != EAGAIN { return .closed }
      }
    }
  }

  /// False when the time is over.
  private func wait(for event: Int32, until end: ContinuousClock.Instant?) -> Bool {
    while true {
      var milliseconds = Int32(-1)
      if let end {
        let left = (end - .now) / .milliseconds(1)
        guard left > 0 else { return false }
        milliseconds = Int32(min(left.rounded(.up), 1e9))
      }
      var entry = pollfd(fd: descriptor, events: Int16(event), revents: 0)
      let count = poll(&entry, 1, milliseconds)
      if count > 0 { return true }
      if count < 0, errno != EINTR { return true }
    }
  }
}

/// What is said between a run and its children: an object whose member `is` names its kind.
enum Message {
  static func make(_ kind: String, _ members: [(String, JSONText)] = []) -> JSONText {
    .object([("is", .string(kind))] + members)
  }

  static func kind(_ message: JSONNode) -> String { message["is"]?.stringValue ?? "" }

  static func path(_ message: JSONNode, _ key: String = "path") -> PathBytes {
    PathBytes(display: message[key]?.stringValue ?? "")
  }

  static func item(_ identity: ItemIdentity) -> JSONText {
    make(
      "item",
      [
        ("index", .integer(identity.index)), ("inputIndex", .integer(identity.inputIndex)),
        ("path", .string(identity.path.display)),
        ("name", .string(identity.name.display)), ("directory", .string(identity.directory.display)),
        ("columns", .object(identity.columns.map { ($0.key, .string($0.value)) })),
        ("remote", identity.remote.map { json($0) } ?? nil),
      ])
  }

  static func identity(_ message: JSONNode) -> ItemIdentity? {
    guard let index = message["index"]?.numberValue?.integer else { return nil }
    var columns: [String: String] = [:]
    for member in message["columns"]?.objectValue ?? [] { columns[member.key] = member.value.stringValue }
    return ItemIdentity(
      index: index, inputIndex: message["inputIndex"]?.numberValue?.integer, path: path(message),
      name: path(message, "name"), directory: path(message, "directory"),
      columns: columns, remote: message["remote"].flatMap { remote($0) })
  }

  private static func json(_ source: RemoteSource) -> JSONText {
    // As texts: numbers of 64 bits are more than a number in JSON holds exactly.
    let version = source.version.map { stamp in
      [stamp.size, stamp.modified, stamp.changed].map { JSONText.string(String($0)) }
    }
    return .object([
      ("kind", .integer(Int(source.kind.rawValue))), ("location", .string(source.location)),
      ("version", .array(version ?? [])),
    ])
  }

  private static func remote(_ node: JSONNode) -> RemoteSource? {
    guard let number = node["kind"]?.numberValue?.integer.flatMap({ UInt8(exactly: $0) }),
      let kind = RemoteSource.Kind(rawValue: number), let location = node["location"]?.stringValue
    else { return nil }
    let numbers = (node["version"]?.arrayValue ?? []).compactMap { $0.stringValue.flatMap { Int64($0) } }
    return RemoteSource(
      kind, location,
      version: numbers.count == 3 ? FileStamp(size: numbers[0], modified: numbers[1], changed: numbers[2]) : nil)
  }
}
