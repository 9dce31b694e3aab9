import Glibc
import JobSyntax
import Synchronization

/// The servers that tests talk to. Each is started when it is first asked for and shared by all tests of the process;
/// tests keep apart by keys, buckets and paths of their own (`Peers.freshName`).
///
/// Tests that use one say so by `.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers")`, or by `hasRembg`, `hasApache`
/// or `hasOpenSSL`.
public enum Peers {
  /// The folder of this file's `peers`.
  static let files: String = {
    let file = #filePath
    return (file.lastIndex(of: "/").map { String(file[..<$0]) } ?? ".") + "/peers"
  }()

  /// The Python environment of `Scripts/peers`, where it is complete.
  static let environment: String? = {
    func variable(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
    let cache = variable("XDG_CACHE_HOME") ?? variable("HOME").map { $0 + "/.cache" }
    guard let folder = variable("PIPELINE_PEERS") ?? cache.map({ $0 + "/pipeline-peers" }) else { return nil }
    let made = TemporaryFolder.read(folder + "/venv/.complete")
    return made != nil && made == TemporaryFolder.read(files + "/requirements.txt") ? folder + "/venv" : nil
  }()

  /// Whether the servers written in Python can be had: all but WebDAV.
  public static var hasPython: Bool { environment != nil }
  public static let hasApache = access("/usr/sbin/apache2", X_OK) == 0 && hasOpenSSL
  public static let hasOpenSSL = access("/usr/bin/openssl", X_OK) == 0
  /// Whether rembg has its model too.
  public static var hasRembg: Bool { environment != nil && access(model, R_OK) == 0 }
  static let model: String = {
    func variable(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
    let data = variable("XDG_DATA_HOME") ?? variable("HOME").map { $0 + "/.local/share" }
    return (variable("PIPELINE_HOME") ?? data.map { $0 + "/pipeline" } ?? "") + "/models/u2netp.onnx"
  }()

  private static let names = Atomic(0)

  /// A name that no other test of this process has: letters and digits, as a key, a bucket or a folder may be named.
  public static func freshName(_ stem: String = "test") -> String {
    "\(stem)\(names.wrappingAdd(1, ordering: .relaxed).newValue)"
  }

  private static let sharedStandIn = Result { () throws(PeerFailure) in try StandIn() }
  private static let sharedHTTPBin = Result { () throws(PeerFailure) in try HTTPBin() }
  private static let sharedMoto = Result { () throws(PeerFailure) in try Moto() }
  private static let sharedRembg = Result { () throws(PeerFailure) in try RembgServer() }
  private static let sharedWebDAV = Result { () throws(PeerFailure) in try WebDAVServer() }
  private static let sharedTLS = Result { () throws(PeerFailure) in try TLSListener() }

  /// The stand-in for remove.bg, Imgur, imgbb and Azure Blob. A test that changes its settings, which are for all
  /// keys, or counts its connections starts one of its own with `StandIn()`: it is ready in a fraction of a second.
  public static func standIn() throws(PeerFailure) -> StandIn { try sharedStandIn.get() }
  public static func httpbin() throws(PeerFailure) -> HTTPBin { try sharedHTTPBin.get() }
  public static func moto() throws(PeerFailure) -> Moto { try sharedMoto.get() }
  public static func rembg() throws(PeerFailure) -> RembgServer { try sharedRembg.get() }
  public static func webDAV() throws(PeerFailure) -> WebDAVServer { try sharedWebDAV.get() }
  public static func tls() throws(PeerFailure) -> TLSListener { try sharedTLS.get() }

  /// What Python programs are started with: byte code goes beside the environment, so that it is made once and not in
  /// the tree, even where the environment says that none is to be written.
  public static var pythonVariables: [String: String] {
    [
      "PATH": "/usr/bin:/bin", "PYTHONPYCACHEPREFIX": (environment ?? "/nowhere") + ".pycache",
      "PYTHONDONTWRITEBYTECODE": "",
    ]
  }

  /// A program of the Python environment.
  public static func python(_ program: String) throws(PeerFailure) -> String {
    guard let environment else { throw PeerFailure("there is no Python environment; make it with Scripts/peers") }
    return "\(environment)/bin/\(program)"
  }

  static func port(_ name: String, of told: JSONNode) throws(PeerFailure) -> UInt16 {
    guard let port = told[name]?.numberValue?.integer.flatMap(UInt16.init(exactly:)) else {
      throw PeerFailure("no port \(name)")
    }
    return port
  }

  static func text(_ name: String, of told: JSONNode) throws(PeerFailure) -> String {
    guard let text = told[name]?.stringValue else { throw PeerFailure("no \(name)") }
    return text
  }
}

/// httpbin under gunicorn with 16 threads; connections are kept.
public final class HTTPBin: Sendable {
  public let port: UInt16
  private let peer: Peer

  public var address: String { "http://127.0.0.1:\(port)" }

  public init() throws(PeerFailure) {
    port = try Peer.freePort()
    peer = try Peer(
      "httpbin",
      [
        try Peers.python("gunicorn"), "--bind", "127.0.0.1:\(port)", "--worker-class", "gthread", "--threads", "16",
        "--keep-alive", "75", "--no-control-socket", "--log-level", "warning", "httpbin:app",
      ], folder: TemporaryFolder(), until: .port(port))
  }

  public func stop() { peer.stop() }
}

/// moto's S3 with a user whose signatures are checked; a wrong one gets 403. Path style: `address/BUCKET/KEY`.
public final class Moto: Sendable {
  public struct Keys: Sendable, Hashable {
    public var accessKey: String
    public var secretKey: String
    /// Only of temporary keys.
    public var token: String?
  }

  public let port: UInt16
  /// A user's, allowed `s3:*`.
  public let keys: Keys
  /// An assumed role's, allowed the same.
  public let temporaryKeys: Keys
  private let peer: Peer

  public var address: String { "http://127.0.0.1:\(port)" }

  public init() throws(PeerFailure) {
    peer = try Peer(
      "moto", [try Peers.python("python"), Peers.files + "/s3.py"], folder: TemporaryFolder(), until: .line)
    let told = try peer.told()
    port = try Peers.port("port", of: told)
    keys = Keys(
      accessKey: try Peers.text("accessKey", of: told), secretKey: try Peers.text("secretKey", of: told), token: nil)
    guard let temporary = told["temporary"] else { throw PeerFailure("no temporary keys") }
    temporaryKeys = Keys(
      accessKey: try Peers.text("accessKey", of: temporary), secretKey: try Peers.text("secretKey", of: temporary),
      token: try Peers.text("token", of: temporary))
  }

  /// Makes a bucket, of a name of its own where none is given.
  public func makeBucket(_ name: String = Peers.freshName("bucket"), region: String = "us-east-1") throws(PeerFailure)
    -> String
  {
    let answer = try PlainHTTP.send("GET", "/peer/bucket?name=\(name)&region=\(region)", port: port)
    guard answer.status == 200 else { throw peer.failure("makes no bucket \(name)") }
    return name
  }

  /// Puts an object and gets it back with boto3: the text got, or the code of the error.
  public func check(_ keys: Keys, bucket: String) throws(PeerFailure) -> String {
    let script = """
      import boto3, botocore, sys
      address, bucket, key, secret, token = sys.argv[1:]
      client = boto3.client("s3", endpoint_url=address, region_name="us-east-1", aws_access_key_id=key,
        aws_secret_access_key=secret, aws_session_token=token or None)
      try:
        client.put_object(Bucket=bucket, Key="a b+c", Body=b"body")
        print(client.get_object(Bucket=bucket, Key="a b+c")["Body"].read().decode(), end="")
      except botocore.exceptions.ClientError as error:
        print(error.response["Error"]["Code"], end="")
      """
    var settings = RunProgram.Settings()
    settings.environment = Peers.pythonVariables
    let run = RunProgram.run(
      ["-c", script, address, bucket, keys.accessKey, keys.secretKey, keys.token ?? ""], settings,
      program: try Peers.python("python"))
    guard run.exitCode == 0 else { throw PeerFailure("boto3: \(run.error)") }
    return run.output
  }

  public func stop() { peer.stop() }
}

/// `rembg s` with the model u2netp, as installed for the program; two requests at once, nothing is downloaded.
public final class RembgServer: Sendable {
  public let port: UInt16
  private let peer: Peer

  public var address: String { "http://127.0.0.1:\(port)" }

  public init() throws(PeerFailure) {
    let folder = TemporaryFolder()
    folder.makeFolder("models")
    guard symlink(Peers.model, folder["models/u2netp.onnx"]) == 0, Peers.hasRembg else {
      throw PeerFailure("rembg: the model \(Peers.model) is missing; install it with Scripts/provision")
    }
    port = try Peer.freePort()
    peer = try Peer(
      "rembg",
      [
        try Peers.python("rembg"), "s", "--host", "127.0.0.1", "--port", "\(port)", "--no-ui", "--threads", "2",
        "--log_level", "warning",
      ],
      // It opens a browser, and fetches a model that is not there.
      environment: [
        "U2NET_HOME": folder["models"], "BROWSER": "/bin/true", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2",
      ],
      folder: folder, until: .port(port))
  }

  public func stop() { peer.stop() }
}

/// Apache's WebDAV: `/basic/` and `/digest/` with a login, `/open/` without.
public final class WebDAVServer: Sendable {
  public let port: UInt16
  public let user = "tester"
  public let password = "p\"ss wörd:%"
  private let peer: Peer

  public var address: String { "http://127.0.0.1:\(port)" }

  public init() throws(PeerFailure) {
    let folder = TemporaryFolder()
    port = try Peer.freePort()
    peer = try Peer(
      "WebDAV server", [Peers.files + "/webdav", folder.path, "\(port)", user, password],
      environment: ["PATH": "/usr/sbin:/usr/bin:/sbin:/bin"], folder: folder, until: .port(port))
  }

  /// A file as the server stores it, by its decoded path.
  public func file(_ path: String) -> [UInt8]? { peer.folder.read("files/" + path) }

  public func stop() { peer.stop() }
}

/// Listeners with certificates of an authority of their own, that answer as the stand-in does (`/echo/…` and all).
public final class TLSListener: Sendable {
  /// The authority's certificate, which a client has to be told of.
  public let authority: String
  /// The certificate is of 127.0.0.1 and localhost.
  public let port: UInt16
  /// The certificate is of another host.
  public let wrongHostPort: UInt16
  /// The certificate's time is over.
  public let expiredPort: UInt16
  /// The same server without TLS, and its log.
  public let standIn: StandIn
  private let certificates: TemporaryFolder

  public var address: String { "https://127.0.0.1:\(port)" }
  public var wrongHostAddress: String { "https://127.0.0.1:\(wrongHostPort)" }
  public var expiredAddress: String { "https://127.0.0.1:\(expiredPort)" }

  public init() throws(PeerFailure) {
    let folder = TemporaryFolder()
    let made = RunProgram.run([folder.path], program: Peers.files + "/certificates")
    guard made.exitCode == 0 else { throw PeerFailure("no certificates: \(made.error)") }
    certificates = folder
    authority = folder["ca.pem"]
    standIn = try StandIn(
      arguments: ["good", "wrong", "expired"].flatMap { ["--tls", $0, folder["\($0).pem"], folder["\($0).key"]] })
    port = try standIn.port("good")
    wrongHostPort = try standIn.port("wrong")
    expiredPort = try standIn.port("expired")
  }

  public func stop() { standIn.stop() }
}
