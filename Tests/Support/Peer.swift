import Glibc
import JobSyntax
import Synchronization

/// Why a server that a test talks to did not start or did not do as it was told.
public struct PeerFailure: Error, CustomStringConvertible {
  public let description: String

  public init(_ description: String) { self.description = description }
}

/// A server that runs beside the tests on loopback, in a process group of its own.
///
/// It ends with `stop()`, with its last reference, and with the test process, however that ends: a shell that leads the
/// group reads from a socket whose other end only we hold, and kills the group when that is closed. (The kernel's parent-death
/// signal would not do: it is sent when the thread that started the process ends.)
public final class Peer: Sendable {
  private struct State {
    var leash: Int32
    var process: pid_t?
  }

  private let state: Mutex<State>
  private let name: String
  /// Holds the log and whatever files the server needs.
  public let folder: TemporaryFolder

  /// The line that the server wrote first, where it was waited for.
  let firstLine: String

  /// How it is known that a server has started.
  enum Sign {
    /// It writes a line to standard output.
    case line
    /// It takes connections.
    case port(UInt16)
  }

  /// Starts a server and waits until it is ready.
  ///
  /// - Parameters:
  ///   - name: for messages.
  ///   - command: the program, found by PATH, and its arguments.
  ///   - environment: what is set besides our own; nil takes a variable away.
  ///   - limit: seconds until it must be ready.
  init(
    _ name: String, _ command: [String], environment: [String: String?] = [:], folder: TemporaryFolder,
    until sign: Sign,
    limit: Double = 300
  ) throws(PeerFailure) {
    self.name = name
    self.folder = folder
    var leash: [Int32] = [0, 0]
    var output: [Int32] = [0, 0]
    // Sockets, because they can be made close-on-exec at once: a program that another thread starts in between must
    // not hold the leash too.
    let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
    guard socketpair(AF_UNIX, kind, 0, &leash) == 0, socketpair(AF_UNIX, kind, 0, &output) == 0 else {
      throw PeerFailure("\(name): no sockets")
    }
    let log = folder["log"]
    // Standard output is a socket only as long as its first line is waited for; what follows would fill it.
    let script = #"("$@" </dev/null; kill -KILL 0) & exec >/dev/null; cat; kill -KILL 0"#
    var variables: [String: String] = [:]
    var pointer = environ
    while let entry = pointer.pointee {
      let parts = String(cString: entry).split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
      if parts.count == 2 { variables[String(parts[0])] = String(parts[1]) }
      pointer += 1
    }
    // Peers on this machine are never asked through a proxy.
    for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
      variables[name] = nil
    }
    for (name, value) in Peers.pythonVariables { variables[name] = value }
    for (name, value) in environment { variables[name] = value }
    let process = Self.spawn(
      ["/bin/sh", "-c", script, "sh"] + command, variables: variables, input: leash[0],
      output: { if case .line = sign { output[1] } else { nil } }(), log: log)
    close(leash[0])
    close(output[1])
    state = Mutex(State(leash: leash[1], process: process == 0 ? nil : process))
    defer { close(output[0]) }
    guard process != 0 else {
      firstLine = ""
      throw PeerFailure("\(name): \(command[0]) could not be started")
    }
    let end = ContinuousClock.now + .seconds(limit)
    switch sign {
    case .line: firstLine = Self.line(from: output[0], until: end)
    case .port(let port):
      firstLine = ""
      while !PlainHTTP.takesConnections(port), !hasEnded, ContinuousClock.now < end { poll(nil, 0, 20) }
      if hasEnded || ContinuousClock.now >= end { throw failure("did not start") }
      return
    }
    if firstLine.isEmpty { throw failure("did not start") }
  }

  deinit { stop() }

  /// Ends the server and everything it has started.
  public func stop() {
    state.withLock { state in
      guard let process = state.process else { return }
      close(state.leash)
      kill(-process, SIGKILL)
      waitpid(process, nil, 0)
      state.process = nil
    }
  }

  /// The last lines that the server wrote to standard error.
  public var logTail: String {
    let text = String(decoding: folder.read("log") ?? [], as: UTF8.self)
    return text.split(separator: "\n").suffix(30).joined(separator: "\n")
  }

  func failure(_ what: String) -> PeerFailure { PeerFailure("\(name) \(what); its log ends:\n\(logTail)") }

  private var hasEnded: Bool {
    state.withLock { state in
      guard let process = state.process else { return true }
      guard waitpid(process, nil, WNOHANG) == process else { return false }
      close(state.leash)
      state.process = nil
      return true
    }
  }

  private static func spawn(
    _ words: [String], variables: [String: String], input: Int32, output: Int32?, log: String
  ) -> pid_t {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, input, 0)
    posix_spawn_file_actions_addopen(&actions, 2, log, O_WRONLY | O_CREAT | O_APPEND, 0o600)
    posix_spawn_file_actions_adddup2(&actions, output ?? 2, 1)
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    var none = sigset_t()
    sigemptyset(&none)
    var all = sigset_t()
    sigfillset(&all)
    posix_spawnattr_setsigmask(&attributes, &none)
    posix_spawnattr_setsigdefault(&attributes, &all)
    posix_spawnattr_setpgroup(&attributes, 0)
    posix_spawnattr_setflags(
      &attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP))
    var arguments: [UnsafeMutablePointer<CChar>?] = words.map { strdup($0) } + [nil]
    var environment: [UnsafeMutablePointer<CChar>?] = variables.map { strdup("\($0.key)=\($0.value)") } + [nil]
    defer { for pointer in arguments + environment { free(pointer) } }
    var process: pid_t = 0
    return posix_spawn(&process, words[0], &actions, &attributes, &arguments, &environment) == 0 ? process : 0
  }

  /// The first line, without its end; empty where the other side ends or the time is over before.
  private static func line(from descriptor: Int32, until end: ContinuousClock.Instant) -> String {
    var bytes: [UInt8] = []
    while true {
      let left = (end - ContinuousClock.now) / .milliseconds(1)
      var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
      guard left > 0, poll(&entry, 1, Int32(left)) > 0 else { return "" }
      var piece = [UInt8](repeating: 0, count: 4096)
      let count = read(descriptor, &piece, piece.count)
      guard count > 0 else { return "" }
      bytes += piece[..<count]
      if let lineEnd = bytes.firstIndex(of: 10) { return String(decoding: bytes[..<lineEnd], as: UTF8.self) }
    }
  }

  /// A port that was free a moment ago, for servers that cannot choose one and say which.
  static func freePort() throws(PeerFailure) -> UInt16 {
    let probe = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    guard probe >= 0 else { throw PeerFailure("no socket") }
    defer { close(probe) }
    var address = PlainHTTP.loopback(0)
    var size = socklen_t(MemoryLayout<sockaddr_in>.size)
    let port: UInt16 = withUnsafeMutableBytes(of: &address) { bytes in
      guard let pointer = bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self),
        bind(probe, pointer, size) == 0, getsockname(probe, pointer, &size) == 0
      else { return 0 }
      return UInt16(bigEndian: bytes.load(fromByteOffset: 2, as: UInt16.self))
    }
    guard port != 0 else { throw PeerFailure("no free port") }
    return port
  }

  /// A value of the first line, which is a JSON object.
  func told() throws(PeerFailure) -> JSONNode { try Self.json(Array(firstLine.utf8), from: name) }

  static func json(_ bytes: [UInt8], from name: String) throws(PeerFailure) -> JSONNode {
    let file = SourceFile(name: name, text: bytes)
    guard let root = StrictJSON.parse(file, maxBytes: 1 << 30).root else {
      throw PeerFailure("\(name) answers \(String(decoding: bytes.prefix(400), as: UTF8.self)), which is no JSON")
    }
    return root
  }
}

/// The least of an HTTP client, for telling servers what to do and for looking at them without our own client.
public enum PlainHTTP {
  public struct Answer: Sendable {
    public var status: Int
    /// Names in lower case; of several by one name the last.
    public var headers: [String: String]
    public var body: [UInt8]

    public var text: String { String(decoding: body, as: UTF8.self) }
  }

  /// Sends one request on a connection of its own and reads the answer to its end.
  ///
  /// - Parameter limit: seconds without progress after which it gives up.
  public static func send(
    _ method: String, _ target: String, port: UInt16, headers: [(String, String)] = [], body: [UInt8] = [],
    limit: Int = 120
  ) throws(PeerFailure) -> Answer {
    let connection = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    guard connection >= 0 else { throw PeerFailure("no socket") }
    defer { close(connection) }
    var wait = timeval(tv_sec: limit, tv_usec: 0)
    let size = socklen_t(MemoryLayout<timeval>.size)
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &wait, size)
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &wait, size)
    guard connected(connection, port) else { throw PeerFailure("nothing listens on port \(port)") }
    var head = "\(method) \(target) HTTP/1.1\r\nHost: 127.0.0.1:\(port)\r\nConnection: close\r\n"
    for (name, value) in headers { head += "\(name): \(value)\r\n" }
    if !body.isEmpty || method == "POST" || method == "PUT" { head += "Content-Length: \(body.count)\r\n" }
    var rest = (Array((head + "\r\n").utf8) + body)[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { Glibc.send(connection, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
      // A server may answer before it has read everything.
      guard count > 0 else { break }
      rest = rest.dropFirst(count)
    }
    var bytes: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 1 << 16)
    while true {
      let count = recv(connection, &piece, piece.count, 0)
      guard count > 0 else { break }
      bytes += piece[..<count]
    }
    guard let answer = answer(bytes) else {
      throw PeerFailure("\(method) \(target): no answer but \(bytes.count) bytes")
    }
    return answer
  }

  private static func answer(_ bytes: [UInt8]) -> Answer? {
    let gap = Array("\r\n\r\n".utf8)
    guard let end = bytes.indices.first(where: { bytes[$0...].starts(with: gap) }) else { return nil }
    let lines = String(decoding: bytes[..<end], as: UTF8.self).split(separator: "\r\n").map(String.init)
    let words = lines.first?.split(separator: " ") ?? []
    guard words.count > 1, let status = Int(words[1]) else { return nil }
    if status == 100 { return answer(Array(bytes[(end + 4)...])) }
    var headers: [String: String] = [:]
    for line in lines.dropFirst() {
      let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
      if parts.count == 2 { headers[parts[0].lowercased()] = String(parts[1].drop { $0 == " " }) }
    }
    var body = bytes[(end + 4)...]
    guard headers["transfer-encoding"] == "chunked" else {
      return Answer(status: status, headers: headers, body: Array(body))
    }
    var joined: [UInt8] = []
    while let lineEnd = body.firstIndex(of: 13),
      let count = Int(String(decoding: body[body.startIndex..<lineEnd], as: UTF8.self), radix: 16), count > 0
    {
      let start = lineEnd + 2
      guard start + count <= body.endIndex else { return nil }
      joined += body[start..<start + count]
      body = body[min(start + count + 2, body.endIndex)...]
    }
    return Answer(status: status, headers: headers, body: joined)
  }

  static func loopback(_ port: UInt16) -> sockaddr_in {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    address.sin_port = port.bigEndian
    return address
  }

  private static func connected(_ descriptor: Int32, _ port: UInt16) -> Bool {
    var address = loopback(port)
    return withUnsafePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
      }
    }
  }

  static func takesConnections(_ port: UInt16) -> Bool {
    let probe = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    guard probe >= 0 else { return false }
    defer { close(probe) }
    return connected(probe, port)
  }
}
