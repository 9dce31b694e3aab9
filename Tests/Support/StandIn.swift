import JobSyntax

/// The stand-in for remove.bg, Imgur, imgbb, Azure Blob and plain hosts; `peers/standin/README.md` says what it can do.
public final class StandIn: Sendable {
  public enum Service: String, Sendable, CaseIterable {
    case removebg, imgur, imgbb, azure, sink, pictures, segment, echo
  }

  /// A field of a form, in the order sent.
  public struct Field: Sendable, Hashable {
    public var name: String
    /// nil for a field that is no file.
    public var filename: String?
    public var type: String?
    public var length: Int
    public var sha256: String
    /// The text of a short field that is no file.
    public var value: String?
  }

  /// A request as it came and what became of it.
  public struct Entry: Sendable {
    public var service: String
    /// The API key, client id, account or place that it was for.
    public var key: String?
    public var method: String
    /// Path and query, as sent.
    public var target: String
    public var path: String
    public var query: String
    /// As sent.
    public var headers: [(name: String, value: String)]
    /// The number of the connection, from 1.
    public var connection: Int
    public var length: Int
    public var sha256: String
    public var isChunked: Bool
    /// nil for a form that is broken.
    public var fields: [Field]?
    /// nil where the connection was ended while the body came.
    public var status: Int?
    /// `answered`, `scripted`, or how it was dropped.
    public var fate: String
    /// Credits.
    public var charged: Double
    /// SHA-256 of the picture in the request, whatever form it came in.
    public var picture: String?
    /// What the service takes although its documentation advises against it.
    public var remarks: [String]

    /// The first header of a name, in any case.
    public func header(_ name: String) -> String? {
      headers.first { $0.name.lowercased() == name.lowercased() }?.value
    }
  }

  /// What a remove.bg key was charged for one picture.
  public struct Charge: Sendable, Hashable {
    public var count: Int
    public var credits: Double

    public init(count: Int, credits: Double) {
      self.count = count
      self.credits = credits
    }
  }

  private let peer: Peer
  private let told: JSONNode
  public let port: UInt16

  public convenience init() throws(PeerFailure) { try self.init(arguments: []) }

  /// - Parameter arguments: of `server.py`.
  public init(arguments: [String]) throws(PeerFailure) {
    peer = try Peer(
      "stand-in", [try Peers.python("python"), Peers.files + "/standin/server.py"] + arguments,
      folder: TemporaryFolder(), until: .line)
    told = try peer.told()
    port = try Peers.port("http", of: told)
  }

  /// The program that checks the stand-in against the contracts.
  public static let contractTests = Peers.files + "/standin/test_standin.py"

  func port(_ name: String) throws(PeerFailure) -> UInt16 { try Peers.port(name, of: told) }

  public var address: String { "http://127.0.0.1:\(port)" }
  /// The same server as another host.
  public var otherAddress: String { "http://localhost:\(port)" }

  public func stop() { peer.stop() }

  // MARK: Telling it what to do

  /// Forgets everything, or what belongs to one key.
  public func reset(key: String? = nil) throws(PeerFailure) {
    try tell("reset", key.map { ["key": .string($0)] } ?? [:])
  }

  /// Adds a key, or changes it; what it may hold depends on the service.
  public func addKey(_ service: Service, _ key: String, _ more: [(String, JSONText)] = []) throws(PeerFailure) {
    try tell("keys", .object([("service", .string(service.rawValue)), ("key", .string(key))] + more))
  }

  /// What the next answers of a service are to be.
  public func script(_ service: Service, key: String? = nil, _ entries: [(String, JSONText)]...) throws(PeerFailure) {
    let named = [("service", JSONText.string(service.rawValue))] + (key.map { [("key", .string($0))] } ?? [])
    try tell("script", .array(entries.map { .object(named + $0) }))
  }

  /// Settings of services, for all keys.
  public func set(_ settings: JSONText) throws(PeerFailure) { try tell("settings", settings) }

  /// What Imgur's gallery search and albums hold.
  public func setGallery(_ items: [JSONText], albums: [(String, JSONText)] = []) throws(PeerFailure) {
    try tell("gallery", ["items": .array(items), "albums": .object(albums)])
  }

  /// Puts a picture to where it is handed out, and answers its address.
  public func addPicture(_ bytes: [UInt8], place: String, name: String, type: String) throws(PeerFailure) -> String {
    let path = "/pictures/\(place)/\(name)"
    let headers = [("Content-Type", type)]
    _ = try checked(
      PlainHTTP.send("PUT", "/control" + path, port: port, headers: headers, body: bytes), "control" + path)
    return address + path
  }

  /// A shared access signature, as the text of a query.
  public func signature(
    account: String, container: String, permissions: String = "cw", _ more: [(String, JSONText)] = []
  ) throws(PeerFailure) -> String {
    let named: [(String, JSONText)] = [
      ("account", .string(account)), ("container", .string(container)), ("permissions", .string(permissions)),
    ]
    return try Peers.text("sas", of: try tell("sas", .object(named + more)))
  }

  @discardableResult
  public func tell(_ word: String, _ value: JSONText) throws(PeerFailure) -> JSONNode {
    let body = Array(value.rendered().utf8)
    let headers = [("Content-Type", "application/json")]
    return try checked(
      PlainHTTP.send("POST", "/control/\(word)", port: port, headers: headers, body: body), word)
  }

  // MARK: Asking it what happened

  /// The requests in the order they were answered.
  public func log(
    _ service: Service? = nil, key: String? = nil, path: String? = nil
  ) throws(PeerFailure) -> [Entry] {
    let query = [("service", service?.rawValue), ("key", key), ("path", path)]
    return try (ask("log", query)["entries"]?.arrayValue ?? []).map { entry throws(PeerFailure) in try Entry(entry) }
  }

  /// Stops the log and forgets it, for tests of very many requests; counts go on.
  public func stopLog() throws(PeerFailure) { _ = try ask("log", [("off", "1")]) }

  /// What is left of a key and what was done with it; null where the service does not know it.
  public func state(_ service: Service, key: String) throws(PeerFailure) -> JSONNode {
    try ask("keys", [("service", service.rawValue), ("key", key)])
  }

  /// What a remove.bg key was charged, by the SHA-256 of the picture.
  public func charges(key: String) throws(PeerFailure) -> [String: Charge] {
    var result: [String: Charge] = [:]
    for member in try state(.removebg, key: key)["charges"]?.objectValue ?? [] {
      result[member.key] = Charge(
        count: member.value["count"]?.numberValue?.integer ?? 0,
        credits: member.value["credits"]?.numberValue?.double ?? 0)
    }
    return result
  }

  /// Connections that brought requests, those of these calls not among them.
  public func connections() throws(PeerFailure) -> Int {
    try ask("counts", [])["connections"]?.numberValue?.integer ?? 0
  }

  /// How often a service answered with each status.
  public func answers(_ service: Service) throws(PeerFailure) -> [String: Int] {
    var result: [String: Int] = [:]
    for member in try ask("counts", [])["answers"]?[service.rawValue]?.objectValue ?? [] {
      result[member.key] = member.value.numberValue?.integer
    }
    return result
  }

  /// What was uploaded, by its SHA-256; nil where nothing like it is kept.
  public func upload(sha256: String) throws(PeerFailure) -> [UInt8]? {
    let answer = try PlainHTTP.send("GET", "/control/uploads/\(sha256)", port: port)
    return answer.status == 200 ? answer.body : nil
  }

  private func ask(_ word: String, _ query: [(String, String?)]) throws(PeerFailure) -> JSONNode {
    // Keys and paths of tests are plain.
    let pairs = query.compactMap { name, value in value.map { "\(name)=\($0)" } }
    return try checked(
      PlainHTTP.send("GET", "/control/\(word)?" + pairs.joined(separator: "&"), port: port), word)
  }

  private func checked(_ answer: PlainHTTP.Answer, _ word: String) throws(PeerFailure) -> JSONNode {
    guard answer.status == 200 else { throw PeerFailure("stand-in, \(word): \(answer.status) \(answer.text)") }
    return try Peer.json(answer.body, from: "stand-in")
  }
}

extension StandIn.Entry {
  fileprivate init(_ node: JSONNode) throws(PeerFailure) {
    func text(_ name: String) -> String { node[name]?.stringValue ?? "" }
    func number(_ name: String) -> Int { node[name]?.numberValue?.integer ?? 0 }
    service = text("service")
    key = node["key"]?.stringValue
    method = text("method")
    target = text("target")
    path = text("path")
    query = text("query")
    headers = (node["headers"]?.arrayValue ?? []).compactMap { pair in
      guard let words = pair.arrayValue, words.count == 2, let name = words[0].stringValue,
        let value = words[1].stringValue
      else { return nil }
      return (name, value)
    }
    connection = number("connection")
    length = number("length")
    sha256 = text("sha256")
    isChunked = node["chunked"]?.boolValue ?? false
    fields = node["fields"]?.arrayValue?.map { field in
      StandIn.Field(
        name: field["name"]?.stringValue ?? "", filename: field["filename"]?.stringValue,
        type: field["type"]?.stringValue, length: field["length"]?.numberValue?.integer ?? 0,
        sha256: field["sha256"]?.stringValue ?? "", value: field["value"]?.stringValue)
    }
    status = node["status"]?.numberValue?.integer
    fate = text("fate")
    charged = node["charged"]?.numberValue?.double ?? 0
    picture = node["picture"]?.stringValue
    remarks = (node["remarks"]?.arrayValue ?? []).compactMap(\.stringValue)
    guard !service.isEmpty, !method.isEmpty else { throw PeerFailure("an entry of the log without a service") }
  }
}
