import Dispatch
import Glibc
import Synchronization

/// An HTTP server on this machine that answers as a test says, keeps connections open, and keeps every byte it got.
public final class ScriptedServer: Sendable {
  public struct Request: Sendable {
    /// Counted from 0 in the order they were accepted.
    public var connection: Int
    /// Counted from 0 over all connections.
    public var number: Int
    public var method: String
    public var target: String
    /// Request line and header fields as they came.
    public var head: String
    public var body: [UInt8] = []

    /// Every field, names in lower case.
    public var fields: [(name: String, value: String)] {
      head.split(separator: "\r\n").dropFirst().compactMap { line in
        guard let colon = line.firstIndex(of: ":") else { return nil }
        return (line[..<colon].lowercased(), String(line[line.index(after: colon)...].drop { $0 == " " }))
      }
    }

    /// The first field of that name, given in lower case.
    public subscript(_ name: String) -> String? { fields.first { $0.name == name }?.value }
  }

  public enum Reply: Sendable {
    /// With `Content-Length`; the connection stays.
    case answer(Int, [String] = [], [UInt8] = [])
    /// These bytes, then the connection is closed.
    case raw([UInt8])
    /// These bytes, then nothing until the client hangs up.
    case stall([UInt8] = [])
    /// Closed without a word.
    case close

    public static func text(_ status: Int, _ headers: [String] = [], _ text: String) -> Reply {
      .answer(status, headers, Array(text.utf8))
    }
  }

  /// What is done when the head of a request has come.
  public enum Reading: Sendable {
    case all
    /// The connection is closed after so many bytes of the body.
    case closeAfter(Int)
    /// Answered before the body is read, and closed.
    case answer(Reply)
  }

  private struct State {
    var requests: [Request] = []
    var connections = 0
    var begun = 0
  }

  public var port: UInt16 { listener.port }
  private let listener = LoopbackListener()
  private let reading: @Sendable (Request) -> Reading
  private let script: @Sendable (Request) -> Reply
  private let state = Mutex(State())

  public var address: String { "http://127.0.0.1:\(port)" }
  /// All that were read to their end.
  public var requests: [Request] { state.withLock { $0.requests } }
  public var connections: Int { state.withLock { $0.connections } }

  public init(
    reading: @escaping @Sendable (Request) -> Reading = { _ in .all }, _ script: @escaping @Sendable (Request) -> Reply
  ) {
    self.reading = reading
    self.script = script
    listener.takeConnections { [weak self] connection in
      guard let self else {
        close(connection)
        return
      }
      let number = self.state.withLock { state in
        state.connections += 1
        return state.connections - 1
      }
      DispatchQueue(label: "connection").async { self.serve(connection, number) }
    }
  }

  private func serve(_ connection: Int32, _ connectionNumber: Int) {
    defer { close(connection) }
    var buffer: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 1 << 16)
    func more() -> Bool {
      let count = recv(connection, &piece, piece.count, 0)
      guard count > 0 else { return false }
      buffer += piece[..<count]
      return true
    }
    let end = Array("\r\n\r\n".utf8)
    while true {
      var headEnd: Int?
      while headEnd == nil {
        headEnd = buffer.indices.first { buffer[$0...].starts(with: end) }
        if headEnd == nil, !more() { return }
      }
      let head = String(decoding: buffer[..<(headEnd ?? 0)], as: UTF8.self)
      buffer.removeFirst((headEnd ?? 0) + 4)
      let words = head.prefix { $0 != "\r\n" }.split(separator: " ").map(String.init)
      let number = state.withLock { state in
        state.begun += 1
        return state.begun - 1
      }
      var request = Request(
        connection: connectionNumber, number: number, method: words.first ?? "",
        target: words.count > 1 ? words[1] : "", head: head)
      let length = request["content-length"].flatMap { Int($0) } ?? 0
      switch reading(request) {
      case .all:
        while buffer.count < length { if !more() { return } }
      case .closeAfter(let count):
        while buffer.count < count { if !more() { return } }
        return
      case .answer(let reply):
        _ = answer(reply, to: request, connection)
        // Until the client is done: closing with bytes unread would take the answer back.
        shutdown(connection, Int32(SHUT_WR))
        while more() {}
        return
      }
      request.body = Array(buffer[..<length])
      buffer.removeFirst(length)
      state.withLock { $0.requests.append(request) }
      guard answer(script(request), to: request, connection) else {
        // The end of the client tells that it is over.
        while more() {}
        return
      }
    }
  }

  /// Whether the connection goes on.
  private func answer(_ reply: Reply, to request: Request, _ connection: Int32) -> Bool {
    switch reply {
    case .answer(let status, let headers, let body):
      let head = ["HTTP/1.1 \(status) Answer", "Content-Length: \(body.count)"] + headers
      // At once: two small packets would wait for each other's receipt.
      let bytes = Array((head.joined(separator: "\r\n") + "\r\n\r\n").utf8)
      send(connection, request.method == "HEAD" ? bytes : bytes + body)
      return true
    case .raw(let bytes):
      send(connection, bytes)
      shutdown(connection, Int32(SHUT_RDWR))
    case .stall(let bytes): send(connection, bytes)
    case .close: shutdown(connection, Int32(SHUT_RDWR))
    }
    return false
  }

  private func send(_ connection: Int32, _ bytes: [UInt8]) {
    var rest = bytes[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { Glibc.send(connection, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
      guard count > 0 else { return }
      rest = rest.dropFirst(count)
    }
  }
}
