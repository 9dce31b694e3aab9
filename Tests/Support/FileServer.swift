import Dispatch
import Glibc
import Synchronization

/// An HTTP server on this machine that hands out files, and misbehaves where a test tells it to. It keeps every request
/// as it came.
public final class FileServer: Sendable {
  public struct Behaviour: Sendable {
    /// Whether `Range` is understood; a server may ignore it.
    public var knowsRanges = true
    /// The entity tag; nil for none.
    public var tag: String? = "\"v1\""
    /// The connection is closed after so many bytes of the body, once for each number; then no more.
    public var cuts: [Int] = []
    /// What is handed out instead of the file.
    public var instead: [UInt8]?
    /// The status of every answer.
    public var status: Int?
    /// The address that every request is sent on to.
    public var redirect: String?
    /// The first byte that parts claim to start at, whatever was asked for.
    public var claimedStart: Int?

    public init() {}
  }

  public struct Request: Sendable, Hashable {
    public var line: String
    /// Names in lower case.
    public var headers: [String: String]
  }

  private struct State {
    var behaviour = Behaviour()
    var requests: [Request] = []
  }

  public var port: UInt16 { listener.port }
  private let listener = LoopbackListener()
  private let files: [String: [UInt8]]
  private let state = Mutex(State())

  /// The address of the folder that holds the files.
  public var address: String { "http://127.0.0.1:\(port)" }

  public init(_ files: [String: [UInt8]]) {
    self.files = files
    listener.takeConnections { [weak self] connection in
      guard let self else {
        close(connection)
        return
      }
      // Each connection by itself: a client that stalls must not hold up the next.
      DispatchQueue(label: "connection").async { self.serve(connection) }
    }
  }

  public var requests: [Request] { state.withLock { $0.requests } }

  public func behave(_ change: (inout Behaviour) -> Void) { state.withLock { change(&$0.behaviour) } }

  private func serve(_ connection: Int32) {
    defer { close(connection) }
    var text: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 4096)
    while !text.contains(Array("\r\n\r\n".utf8)) {
      let count = recv(connection, &piece, piece.count, 0)
      guard count > 0 else { return }
      text += piece[..<count]
    }
    let lines = String(decoding: text, as: UTF8.self).replacing("\r\n", with: "\n").split(separator: "\n").map(
      String.init)
    var headers: [String: String] = [:]
    for line in lines.dropFirst() {
      let parts = line.split(separator: ":", maxSplits: 1)
      if parts.count == 2 { headers[parts[0].lowercased()] = String(parts[1].drop { $0 == " " }) }
    }
    let words = (lines.first ?? "").split(separator: " ")
    let (behaviour, cut) = state.withLock { state in
      state.requests.append(Request(line: lines.first ?? "", headers: headers))
      let cut = state.behaviour.cuts.first
      if cut != nil { state.behaviour.cuts.removeFirst() }
      return (state.behaviour, cut)
    }
    func answer(_ status: Int, _ more: [String], _ body: ArraySlice<UInt8>) {
      let tag = behaviour.tag.map { ["ETag: \($0)"] } ?? []
      let head = ["HTTP/1.1 \(status) Answer", "Content-Length: \(body.count)", "Connection: close"] + tag + more
      send(connection, Array((head.joined(separator: "\r\n") + "\r\n\r\n").utf8)[...])
      send(connection, cut.map { body.prefix($0) } ?? body)
      if cut == nil { shutdown(connection, Int32(SHUT_WR)) }
    }
    if let redirect = behaviour.redirect { return answer(302, ["Location: \(redirect)"], []) }
    guard words.count > 1, let file = files[String(words[1].dropFirst())] else { return answer(404, [], []) }
    if let status = behaviour.status { return answer(status, [], []) }
    let bytes = behaviour.instead ?? file
    // `bytes=N-`, and only while the version is the one that the part was taken of (RFC 9110, section 13.1.5).
    if behaviour.knowsRanges, let range = headers["range"], range.hasPrefix("bytes="), range.hasSuffix("-"),
      let start = Int(range.dropFirst(6).dropLast()),
      headers["if-range"] == nil || headers["if-range"] == behaviour.tag
    {
      guard start < bytes.count else { return answer(416, ["Content-Range: bytes */\(bytes.count)"], []) }
      let claimed = behaviour.claimedStart ?? start
      return answer(206, ["Content-Range: bytes \(claimed)-\(bytes.count - 1)/\(bytes.count)"], bytes[start...])
    }
    answer(200, ["Accept-Ranges: bytes"], bytes[...])
  }

  private func send(_ connection: Int32, _ bytes: ArraySlice<UInt8>) {
    var rest = bytes
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { Glibc.send(connection, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
      guard count > 0 else { return }
      rest = rest.dropFirst(count)
    }
  }
}
