import Glibc
import JobSyntax

/// Chromium without a window, driven over its own protocol through a pipe: no port, no driver.
///
/// Used by one thread. Every request and every complaint of a page is kept.
public final class Browser {
  /// What went wrong while driving it.
  public struct Failure: Error, CustomStringConvertible {
    public var description: String
  }

  /// The program; nil where this machine has none.
  public static let program: String? = {
    let chosen = getenv("PIPELINE_CHROMIUM").map { String(cString: $0) }
    let usual = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"]
    return (chosen.map { [$0] } ?? usual).first { access($0, X_OK) == 0 }
  }()

  private let folder = TemporaryFolder()
  private let process: pid_t
  private let output: Int32
  private let input: Int32
  private var buffer: [UInt8] = []
  private var searched = 0
  private var lastID = 0
  private var session: String?
  private var loads = 0
  /// Addresses of everything that was asked for since `open`.
  public private(set) var requests: [String] = []
  /// What was written to the console as an error or warning, what was not caught, and what a policy refused.
  public private(set) var complaints: [String] = []
  /// Seconds that an answer may take.
  private static let patience = 60

  /// Starts it with one empty page.
  public init() throws {
    guard let program = Self.program else { throw Failure(description: "there is no Chromium here") }
    func pipe() -> (read: Int32, write: Int32) {
      var ends: [Int32] = [0, 0]
      precondition(Glibc.pipe(&ends) == 0, "no pipe")
      // Above the numbers that the program gets them as.
      let high = ends.map { fcntl($0, F_DUPFD_CLOEXEC, 64) }
      for end in ends { close(end) }
      return (high[0], high[1])
    }
    let (commands, answers) = (pipe(), pipe())
    (input, output) = (answers.read, commands.write)
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    for number: Int32 in 0...2 { posix_spawn_file_actions_addopen(&actions, number, "/dev/null", O_RDWR, 0) }
    posix_spawn_file_actions_adddup2(&actions, commands.read, 3)
    posix_spawn_file_actions_adddup2(&actions, answers.write, 4)
    // A group of its own: its children end with it.
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETPGROUP))
    let arguments = [
      program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
      "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
      "--remote-debugging-pipe", "--user-data-dir=\(folder.path)",
    ]
    var words = arguments.map { strdup($0) } + [nil]
    defer { for word in words { free(word) } }
    var started: pid_t = 0
    let problem = posix_spawn(&started, program, &actions, &attributes, &words, environ)
    close(commands.read)
    close(answers.write)
    process = started
    guard problem == 0 else { throw Failure(description: "\(program): \(String(cString: strerror(problem)))") }
    let target = try send("Target.createTarget", ["url": "about:blank"])["targetId"]?.stringValue ?? ""
    session = try send("Target.attachToTarget", ["targetId": .string(target), "flatten": true])["sessionId"]?
      .stringValue
    for domain in ["Page", "Runtime", "Network", "Log"] { try send("\(domain).enable") }
    try resize(width: 1280, height: 900)
  }

  deinit {
    kill(-process, SIGKILL)
    kill(process, SIGKILL)
    var status: Int32 = 0
    waitpid(process, &status, 0)
    close(input)
    close(output)
  }

  /// Sends a command of the protocol and waits for its result.
  @discardableResult
  public func send(_ method: String, _ parameters: JSONText = .object([])) throws -> JSONNode {
    lastID += 1
    let id = lastID
    var members: [(String, JSONText)] = [("id", .integer(id)), ("method", .string(method)), ("params", parameters)]
    if let session { members.append(("sessionId", .string(session))) }
    let bytes = Array(JSONText.object(members).rendered().utf8) + [0]
    var done = 0
    while done < bytes.count {
      let count = bytes.withUnsafeBytes { write(output, $0.baseAddress! + done, bytes.count - done) }
      guard count > 0 || errno == EINTR else { throw Failure(description: "Chromium has ended") }
      done += max(0, count)
    }
    while true {
      let message = try next()
      guard message["id"]?.numberValue?.integer == id else { continue }
      if let error = message["error"]?["message"]?.stringValue { throw Failure(description: "\(method): \(error)") }
      guard let result = message["result"] else { throw Failure(description: "\(method): no result") }
      return result
    }
  }

  private func next() throws -> JSONNode {
    while true {
      if let end = buffer[searched...].firstIndex(of: 0) {
        let text = Array(buffer[..<end])
        buffer.removeFirst(end + 1)
        searched = 0
        guard let message = StrictJSON.parse(SourceFile(name: "message", text: text)).root else {
          throw Failure(description: "Chromium said what is no JSON")
        }
        note(message)
        return message
      }
      searched = buffer.count
      var wait = pollfd(fd: input, events: Int16(POLLIN), revents: 0)
      guard poll(&wait, 1, Int32(Self.patience * 1000)) > 0 else {
        throw Failure(description: "Chromium does not answer")
      }
      var piece = [UInt8](repeating: 0, count: 1 << 16)
      let count = read(input, &piece, piece.count)
      guard count > 0 else { throw Failure(description: "Chromium has ended") }
      buffer += piece[..<count]
    }
  }

  private func note(_ message: JSONNode) {
    let parameters = message["params"]
    switch message["method"]?.stringValue {
    case "Page.loadEventFired": loads += 1
    case "Network.requestWillBeSent": requests.append(parameters?["request"]?["url"]?.stringValue ?? "?")
    case "Runtime.exceptionThrown":
      complaints.append(parameters?["exceptionDetails"]?["exception"]?["description"]?.stringValue ?? "an exception")
    case "Log.entryAdded": complaints.append(parameters?["entry"]?["text"]?.stringValue ?? "an entry")
    case "Runtime.consoleAPICalled":
      if let type = parameters?["type"]?.stringValue, type == "error" || type == "warning" { complaints.append(type) }
    default: break
    }
  }

  /// Opens a page and waits until it has loaded.
  public func open(_ address: String) throws {
    requests = []
    complaints = []
    let before = loads
    let result = try send("Page.navigate", ["url": .string(address)])
    if let problem = result["errorText"]?.stringValue { throw Failure(description: "\(address): \(problem)") }
    while loads == before { _ = try next() }
  }

  /// The value of an expression in the page; a promise is waited for.
  @discardableResult
  public func evaluate(_ expression: String) throws -> JSONNode {
    let result = try send(
      "Runtime.evaluate", ["expression": .string(expression), "returnByValue": true, "awaitPromise": true])
    if let problem = result["exceptionDetails"] {
      throw Failure(description: problem["exception"]?["description"]?.stringValue ?? "an exception in \(expression)")
    }
    return result["result"]?["value"] ?? JSONNode(value: .null, range: result.range, path: "$")
  }

  public func resize(width: Int, height: Int) throws {
    try send(
      "Emulation.setDeviceMetricsOverride",
      ["width": .integer(width), "height": .integer(height), "deviceScaleFactor": 1, "mobile": false])
  }

  /// Light or dark, as the system would say.
  public func setDark(_ isDark: Bool) throws {
    try send(
      "Emulation.setEmulatedMedia",
      ["features": [["name": "prefers-color-scheme", "value": .string(isDark ? "dark" : "light")]]])
  }

  /// Presses and lets go a key, as `ArrowLeft`, `Tab` or `/`.
  public func press(_ key: String) throws {
    let codes = [
      "Tab": 9, "Enter": 13, "Escape": 27, "PageUp": 33, "PageDown": 34, "End": 35, "Home": 36, "ArrowLeft": 37,
      "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
    ]
    var down: [(String, JSONText)] = [
      ("type", codes[key] == nil || key == "Enter" ? "keyDown" : "rawKeyDown"), ("key", .string(key)),
    ]
    if let code = codes[key] {
      down.append(("windowsVirtualKeyCode", .integer(code)))
      if key == "Enter" { down.append(("text", "\r")) }
    } else {
      down.append(("text", .string(key)))
    }
    try send("Input.dispatchKeyEvent", .object(down))
    try send("Input.dispatchKeyEvent", ["type": "keyUp", "key": .string(key)])
  }

  /// Types text into what has the focus.
  public func type(_ text: String) throws { try send("Input.insertText", ["text": .string(text)]) }

  /// Presses the mouse at one place and lets go at another; pixels of the window.
  public func drag(from: (x: Double, y: Double), to: (x: Double, y: Double)) throws {
    func event(_ type: String, _ at: (x: Double, y: Double)) throws {
      try send(
        "Input.dispatchMouseEvent",
        [
          "type": .string(type), "x": .number(at.x), "y": .number(at.y), "button": "left", "buttons": 1,
          "clickCount": 1,
        ])
    }
    try event("mousePressed", from)
    try event("mouseMoved", ((from.x + to.x) / 2, (from.y + to.y) / 2))
    try event("mouseMoved", to)
    try event("mouseReleased", to)
  }
}
