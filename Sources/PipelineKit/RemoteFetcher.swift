import Imaging
import Synchronization
import Transport

/// A bucket that pictures are read from, as a job names it.
public struct RemoteBucket: Sendable, Hashable {
  public var name: String
  public var region: String?
  public var endpoint: String?
  public var addressing = S3Bucket.Addressing.auto
  /// Of the shared AWS files.
  public var profile: String?
  public var accessKeyID: Credential?
  public var secretAccessKey: Credential?
  public var sessionToken: Credential?

  public init(_ name: String) { self.name = name }

  /// The bucket's addresses.
  ///
  /// - Parameter other: the region where the job names none.
  public func bucket(region other: String?) throws(S3Refusal) -> S3Bucket {
    var address: RequestURL?
    if let endpoint {
      do throws(TransportError) {
        address = try RequestURL(endpoint)
      } catch { throw S3Refusal("\"endpoint\" is no address: \(error.message)") }
    }
    return try S3Bucket(name, region: region ?? other, endpoint: address, addressing: addressing)
  }
}

/// How a job's pictures from elsewhere are fetched.
public struct RemoteOptions: Sendable, Hashable {
  /// Whether addresses of private, loopback and reserved networks may be asked.
  public var allowsPrivate = false
  /// Bytes of one picture.
  public var mostBytes = 256 << 20
  /// Seconds that one request may take as a whole.
  public var timeout = 60.0
  /// Sent with each request to `headerHosts`; of variables they hold credentials alone.
  public var headers: [NamedTemplate] = []
  /// In lower case.
  public var headerHosts: Set<String> = []
  /// Where objects are.
  public var bucket: RemoteBucket?

  public init() {}
}

/// A bucket, and the keys for it.
public struct BucketAccess: Sendable {
  public let bucket: S3Bucket
  private let credentials: AWSCredentials
  private let caller: Caller

  /// - Throws: `s3-bucket` (job), `s3-credentials` and `environment-unset` (environment).
  public init(_ named: RemoteBucket, _ services: ServiceResources) throws(StageError) {
    let settings = AWSSettings()
    do throws(S3Refusal) {
      let region: String?
      if let given = named.region { region = given } else { region = try settings.region(profile: named.profile) }
      bucket = try named.bucket(region: region)
    } catch { throw StageError("s3-bucket", error.message, kind: .job) }
    if let id = named.accessKeyID, let secret = named.secretAccessKey {
      let token: String?
      if let given = named.sessionToken { token = try given.reveal() } else { token = nil }
      credentials = AWSCredentials(
        accessKeyID: try id.reveal(), secretAccessKey: try secret.reveal(), sessionToken: token, origin: "the job")
    } else {
      do throws(S3Refusal) {
        credentials = try settings.credentials(profile: named.profile)
      } catch { throw StageError("s3-credentials", error.message, kind: .environment) }
    }
    if credentials.sessionToken != nil, !bucket.isEncrypted, !bucket.isLoopback {
      throw StageError(
        "s3-credentials", "the session token would go to \(bucket.origin) unencrypted", kind: .environment,
        hint: "use an endpoint with https, or keys that need no token")
    }
    caller = services.caller(services.pacer("s3 \(bucket.origin)"))
  }

  public func client(
    isCancelled: @escaping @Sendable () -> Bool = { false }, pause: @escaping @Sendable (Double) -> Void
  ) -> S3Client {
    S3Client(bucket, caller: caller, credentials: credentials, isCancelled: isCancelled, pause: pause)
  }
}

/// Fetches pictures that are no files here.
///
/// Redirects are followed, at most ten, never from https to http; private addresses are refused at each, unless the job
/// allows them. What fails for a while is asked for again, three times in all.
public struct RemoteFetcher: Sendable {
  /// What became of a picture that was asked for.
  public enum Fetched: Sendable {
    /// Its bytes, and the type that the server gives them.
    case content(EncodedBytes, type: String?)
    /// Not to be had now: why.
    case putOff(String)
  }

  private let options: RemoteOptions
  private let services: ServiceResources
  private let headers: [HeaderField]
  private let access: BucketAccess?

  private static let mostRedirects = 10
  private static let attempts = 3

  /// - Throws: `environment-unset`, `s3-bucket` and `s3-credentials`.
  public init(_ options: RemoteOptions, services: ServiceResources) throws(StageError) {
    self.options = options
    self.services = services
    var headers: [HeaderField] = []
    for header in options.headers {
      let template = header.template
      let value: String
      if template.variables.isEmpty {
        value = String(decoding: template.render { _ in nil } ?? [], as: UTF8.self)
      } else {
        value = try Credential(template).reveal()
      }
      // None of them is for another server than the job says.
      headers.append(HeaderField(header.name, value, isCredential: true))
    }
    self.headers = headers
    access = if let bucket = options.bucket { try BucketAccess(bucket, services) } else { nil }
  }

  /// Fetches a picture; waits, as long as that takes.
  ///
  /// Throws `fetch-missing`, `fetch-denied`, `fetch-refused` (an address that must not be asked), `fetch-too-large`,
  /// `fetch-failed` (all of class item), and `cancelled`.
  ///
  /// - Parameters:
  ///   - name: for the reason it is put off.
  ///   - pause: waits; tests do not.
  ///   - source: what to fetch.
  ///   - isCancelled: whether the run is being stopped.
  public func fetch(
    _ source: RemoteSource, named name: PathBytes, isCancelled: @escaping @Sendable () -> Bool,
    pause: @escaping @Sendable (Double) -> Void
  ) throws(StageError) -> Fetched {
    switch source.kind {
    case .address: try fetch(address: source.location, name.printable, isCancelled, pause)
    case .object: try fetch(object: source.location, name.printable, isCancelled, pause)
    }
  }

  /// The same for a stage.
  public func fetch(
    _ source: RemoteSource, named name: PathBytes, in context: StageContext
  ) throws(StageError) -> Fetched {
    try fetch(
      source, named: name, isCancelled: { context.isCancelled }, pause: { context.pause(seconds: $0) })
  }

  /// What kept a request from being answered.
  private final class Trouble: Sendable {
    let code = Mutex<TransportError.Code?>(nil)
  }

  private func fetch(
    address: String, _ name: String, _ isCancelled: () -> Bool, _ pause: (Double) -> Void
  ) throws(StageError) -> Fetched {
    let url: RequestURL
    do throws(TransportError) {
      url = try RequestURL(address)
    } catch { throw StageError("fetch-refused", "it is no address: \(error.message)") }
    var request = Request(.get, url, headers: options.headerHosts.contains(url.host) ? headers : [])
    request.redirects = .follow(most: Self.mostRedirects)
    request.allowsPrivateAddresses = options.allowsPrivate
    request.maxAnswerBytes = options.mostBytes
    request.timeouts = Timeouts(
      connect: min(options.timeout, 30), stall: min(options.timeout, 30), total: options.timeout)
    let trouble = Trouble()
    var policy = RetryPolicy()
    policy.attempts = Self.attempts
    policy.maxWait = services.options.maxWait
    let caller = Caller(
      send: { [client = services.client] (request, isCancelled) throws(TransportError) in
        trouble.code.withLock { $0 = nil }
        do throws(TransportError) {
          return try client.send(request, isCancelled: isCancelled)
        } catch {
          trouble.code.withLock { $0 = error.code }
          throw error
        }
      }, pacer: services.pacer("fetch \(url.authority)"), policy: policy)
    do throws(ServiceFailure) {
      let response = try caller.call(
        { [request] _ in request }, repeats: .always, isCancelled: isCancelled, pause: pause)
      return .content(EncodedBytes(response.body), type: response.mediaType)
    } catch {
      return try outcome(of: error, trouble.code.withLock { $0 }, name)
    }
  }

  private func fetch(
    object key: String, _ name: String, _ isCancelled: @escaping @Sendable () -> Bool,
    _ pause: @escaping @Sendable (Double) -> Void
  ) throws(StageError) -> Fetched {
    guard let access else { throw StageError("fetch-refused", "the job names no bucket", kind: .job) }
    let found: (object: S3Object, bytes: [UInt8])?
    do throws(ServiceFailure) {
      found = try access.client(isCancelled: isCancelled, pause: pause).get(key, most: options.mostBytes)
    } catch {
      return try outcome(of: error, nil, name)
    }
    guard let found else { throw StageError("fetch-missing", "it is not there any more") }
    return .content(EncodedBytes(found.bytes), type: found.object.type)
  }

  /// What a failure means: one that may be over by the next run puts the picture off.
  private func outcome(
    of failure: ServiceFailure, _ trouble: TransportError.Code?, _ name: String
  ) throws(StageError) -> Fetched {
    // A failure is told with the picture's name by whoever tells it; a reason has to stand by itself.
    let message = failure.told
    func error(_ code: String, hint: String? = nil) -> StageError { StageError(code, message, hint: hint) }
    switch (trouble, failure.kind) {
    case (_, .cancelled): throw error("cancelled")
    case (.refused?, _), (.address?, _):
      throw error(
        "fetch-refused",
        hint: failure.message.contains("private or reserved network")
          ? "where pictures lie in a network of your own: \"allowPrivate\": true in \"input\"" : nil)
    case (.tooLarge?, _), (_, .tooLarge):
      throw error("fetch-too-large", hint: "\"maxBytes\" in \"input\" sets the limit")
    case (.stalled?, _):
      return .putOff("\(name): \(message); \"timeout\" in \"input\" sets the limit")
    case (_, .rate), (_, .temporary), (_, .unknown), (_, .putOff): return .putOff("\(name): \(message)")
    case (_, .notFound): throw error("fetch-missing")
    case (_, .credentials): throw error("fetch-denied")
    case (_, .badPicture), (_, .quota), (_, .request): throw error("fetch-failed")
    }
  }
}
