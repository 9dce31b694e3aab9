import Digest
import Glibc
import Imaging
import JobSyntax
import PipelineKit
import Transport

/// `upload` to a bucket of an S3 service: Amazon's, MinIO, R2, Ceph and others.
struct S3Upload: UploadProvider {
  static let name = "s3"
  /// As people call it.
  private static let service = "S3"
  static let help = "a bucket of Amazon S3, MinIO, Cloudflare R2, Ceph or another service of that kind"

  static let bucket = Field<String>.text("bucket", default: nil, when: ours, help: "the bucket's name")
  static let region = Field<String?>.text(
    "region", when: ours,
    help: "the bucket's region; AWS_REGION or the profile's when left out, else what the endpoint is usually given")
  static let addressing = Field<S3Bucket.Addressing>.choice(
    "addressing", default: .auto, when: ours, help: "where the bucket's name stands in an address")
  static let profile = Field<String?>.text(
    "profile", when: ours,
    help:
      "the profile of the shared AWS files whose keys are used; the environment's keys, then AWS_PROFILE when left out"
  )
  static let accessKeyID = Field<Credential?>.credential(
    "accessKeyId", when: ours, help: "the key's identifier, instead of the environment's and the profile's")
  static let secretAccessKey = Field<Credential?>.credential(
    "secretAccessKey", when: ours, help: "the secret key, beside accessKeyId")
  static let sessionToken = Field<Credential?>.credential(
    "sessionToken", when: ours, help: "the token of temporary keys, beside accessKeyId")
  static let prefix = Field<Template?>.template(
    "prefix", when: ours, help: "what the key begins with, such as img/${run.date}/")
  static let key = Field<Template>.template(
    "key", default: "${item.dir}/${item.stem}.${ext}", when: ours, help: "the object's key, after the prefix")
  static let metadata = Field<[NamedTemplate]>.templates(
    "metadata", when: ours, help: "further x-amz-meta-NAME headers, in ASCII")
  static let storageClass = Field<String?>.text(
    "storageClass", when: ours, help: "the storage class, such as STANDARD_IA")
  static let sse = Field<Encryption?>.choice(
    "sse", when: ours, help: "how the service encrypts the object; the bucket's own rule when left out")
  static let kmsKey = Field<String?>.text(
    "kmsKey", when: ours, help: "the key's identifier or ARN for \"sse\": \"aws:kms\"; the account's own when left out")
  static let acl = Field<CannedACL?>.choice(
    "acl", when: ours, help: "a canned access list; buckets made since April 2023 refuse most of them")
  static let ifAbsent = Field<Bool>.boolean(
    "ifAbsent", default: false, when: ours,
    help: "leave an object of that key as it is: asked for first, and sent with If-None-Match")
  static let skipIdentical = Field<Bool>.boolean(
    "skipIdentical", default: false, when: ours,
    help: "send nothing where the object of that key notes the same size and SHA-256")
  static let sha256 = Field<Bool>.boolean(
    "sha256", default: true, when: ours, help: "note the content's SHA-256 in the metadata, as x-amz-meta-sha256")
  static let multipartThreshold = Field<Int>.integer(
    "multipartThreshold", in: (5 << 20)...(5 << 30), default: 100 << 20, unit: "bytes", when: ours,
    help: "from this size on an object is sent in parts")
  static let link = Field<String?>.text(
    "publicURL", when: ours,
    help: "what links in reports and receipts begin with instead of the bucket's address, such as https://img.example")

  private static let ours = FieldCondition("provider", in: [name])

  static let fields: [any FieldDeclaration] = [
    bucket, region, addressing, profile, accessKeyID, secretAccessKey, sessionToken, prefix, key, metadata,
    storageClass, sse, kmsKey, acl, ifAbsent, skipIdentical, sha256, multipartThreshold, link,
  ]

  // MARK: - Rules

  static func check(_ settings: Settings) -> [Diagnostic] {
    var findings: [Diagnostic] = []
    func report(_ field: any FieldDeclaration, _ code: String, _ message: String, hint: String? = nil) {
      findings.append(settings.diagnostic(.error, code, at: field, message, hint: hint))
    }
    // A region that only the environment names is looked at when the run starts.
    if settings.hasValue(for: bucket) {
      do throws(S3Refusal) {
        _ = try makeBucket(settings, region: settings[region] ?? "us-east-1")
      } catch { report(bucket, "wrong-value", error.message) }
    }
    let keyFields: [any FieldDeclaration] = [accessKeyID, secretAccessKey]
    let given = keyFields.filter { settings.isSet($0) }
    if given.count == 1 {
      report(given[0], "missing-field", "\"accessKeyId\" and \"secretAccessKey\" go together, and one is missing")
    }
    if settings.isSet(sessionToken), given.isEmpty {
      report(sessionToken, "missing-field", "\"sessionToken\" is part of \"accessKeyId\" and \"secretAccessKey\"")
    }
    if settings.isSet(profile), !given.isEmpty {
      report(profile, "exclusive-fields", "\"profile\" and \"accessKeyId\" name two different keys; keep one")
    }
    if settings.isSet(kmsKey), settings[sse] != .kms {
      report(kmsKey, "wrong-value", "\"kmsKey\" is for \"sse\": \"aws:kms\"")
    }
    for (field, text) in [(storageClass as any FieldDeclaration, settings[storageClass]), (kmsKey, settings[kmsKey])] {
      guard let text, text.isEmpty || !isPlain(text) || text.contains(" ") else { continue }
      report(field, "wrong-value", "\"\(field.name)\" expects a word in ASCII, got \"\(text)\"")
    }
    var size = 0
    for entry in settings[metadata] {
      guard isName(entry.name) else {
        report(
          metadata, "wrong-value",
          "\"metadata\" expects names of letters, digits, \"-\", \"_\" and \".\", got \"\(entry.name)\"")
        continue
      }
      let literals = entry.template.segments.compactMap { if case .literal(let bytes) = $0 { bytes } else { nil } }
      if !literals.joined().allSatisfy({ (0x20...0x7E).contains($0) }) {
        report(
          metadata, "wrong-value", "\"metadata.\(entry.name)\" holds a character outside ASCII",
          hint: "services give it back in another form; percent-encode it")
      }
      size += entry.name.utf8.count + literals.joined().count
    }
    let names = settings[metadata].map { $0.name.lowercased() }
    if Set(names).count < names.count {
      report(metadata, "duplicate-name", "\"metadata\" names the same entry twice: capitals do not count")
    }
    if settings[sha256], names.contains("sha256") {
      report(metadata, "duplicate-name", "\"metadata.sha256\" is noted already", hint: "or set \"sha256\": false")
    }
    if size > mostMetadata {
      report(metadata, "out-of-range", "\"metadata\" has \(size) bytes; services take \(mostMetadata)")
    }
    if settings[skipIdentical], !settings[sha256] {
      report(
        skipIdentical, "wrong-value", "\"skipIdentical\" compares the SHA-256 that \"sha256\": false does not note")
    }
    if let text = settings[link], publicBase(text) == nil {
      report(
        link, "wrong-value", "\"publicURL\" expects an address with http:// or https:// and no query, got \"\(text)\"")
    }
    return findings
  }

  /// Bytes of all names and values.
  private static let mostMetadata = 2_048

  private static func isPlain(_ text: String) -> Bool { text.utf8.allSatisfy { (0x20...0x7E).contains($0) } }

  private static func isName(_ text: String) -> Bool {
    !text.isEmpty
      && text.utf8.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
          UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."):
          true
        default: false
        }
      }
  }

  private static func publicBase(_ text: String) -> String? {
    guard let url = try? RequestURL(text), url.query == nil, !text.contains("#") else { return nil }
    return text.hasSuffix("/") ? text : text + "/"
  }

  private static func makeBucket(_ settings: Settings, region: String?) throws(S3Refusal) -> S3Bucket {
    var endpoint: RequestURL?
    if let text = settings[UploadFields.endpoint] {
      do throws(TransportError) {
        endpoint = try RequestURL(text)
      } catch { throw S3Refusal("\"endpoint\" is no address: \(error.message)") }
    }
    return try S3Bucket(settings[bucket], region: region, endpoint: endpoint, addressing: settings[addressing])
  }

  // MARK: - Sending

  private let bucket: S3Bucket
  private let credentials: AWSCredentials
  private let caller: Caller
  private let prefix: Template?
  private let key: Template
  private let metadata: [NamedTemplate]
  private let options: S3PutOptions
  private let type: String?
  private let publicBase: String?

  init(_ settings: Settings, resources: StageResources) throws(StageError) {
    let found = AWSSettings()
    let profile = settings[Self.profile]
    do throws(S3Refusal) {
      let named: String?
      if let region = settings[Self.region] { named = region } else { named = try found.region(profile: profile) }
      bucket = try Self.makeBucket(settings, region: named)
    } catch { throw StageError("s3-bucket", error.message, kind: .job) }
    if let id = settings[Self.accessKeyID], let secret = settings[Self.secretAccessKey] {
      let token: String?
      if let given = settings[Self.sessionToken] { token = try given.reveal() } else { token = nil }
      credentials = AWSCredentials(
        accessKeyID: try id.reveal(), secretAccessKey: try secret.reveal(), sessionToken: token, origin: "the job")
    } else {
      do throws(S3Refusal) {
        credentials = try found.credentials(profile: profile)
      } catch { throw StageError("s3-credentials", error.message, kind: .environment) }
    }
    if credentials.sessionToken != nil, !bucket.isEncrypted, !bucket.isLoopback {
      throw StageError(
        "s3-credentials", "the session token would go to \(bucket.origin) unencrypted", kind: .environment,
        hint: "use an endpoint with https, or keys that need no token")
    }
    let services = resources.services
    caller = services.caller(services.pacer("s3 \(bucket.origin)"))
    prefix = settings[Self.prefix]
    key = settings[Self.key]
    metadata = settings[Self.metadata]
    type = settings[UploadFields.contentType]
    publicBase = settings[Self.link].flatMap { Self.publicBase($0) }
    var options = S3PutOptions()
    options.cacheControl = settings[UploadFields.cacheControl]
    options.contentDisposition = settings[UploadFields.contentDisposition]
    options.storageClass = settings[Self.storageClass]
    switch settings[Self.sse] {
    case nil: break
    case .service: options.encryption = .service
    case .kms: options.encryption = .kms(key: settings[Self.kmsKey])
    }
    options.acl = settings[Self.acl]?.rawValue
    options.notesDigest = settings[Self.sha256]
    options.onlyIfAbsent = settings[Self.ifAbsent]
    options.skipsIdentical = settings[Self.skipIdentical]
    options.multipartThreshold = settings[Self.multipartThreshold]
    self.options = options
  }

  func prepare(_ encoded: Item.Encoded, for item: Item, in context: StageContext) throws(StageError) -> PreparedUpload {
    let name = try fullKey(for: item, in: context)
    let url: RequestURL
    do throws(S3Refusal) {
      url = try bucket.url(key: name)
    } catch { throw StageError("output-name", error.message) }
    // As bytes: two forms of one letter are two keys.
    guard context.claims.claim(PathBytes(bytes: Array("upload:\(url.text)".utf8))) else {
      throw StageError(
        "output-collision", "\(url.display) is sent to already, for another picture or stage",
        hint: "make the keys differ, with ${item.dir} or ${item.index}")
    }
    var options = options
    options.type = type ?? encoded.format.mediaType
    for entry in metadata {
      options.metadata.append((entry.name, try Self.value(entry, for: item, in: context)))
    }
    let locator = Self.locator(bucket, name)
    let link = publicBase.map { $0 + RequestURL.encoded(path: name) } ?? url.text
    let payload = Payload(encoded.bytes)
    return PreparedUpload(encoded: encoded, target: url.text, isRepeatable: true) {
      [options] context throws(StageError) in
      let digest = encoded.bytes.withUnsafeBytes { SHA256.digest(of: $0) }
      do throws(ServiceFailure) {
        switch try client(context).put(name, payload, digest: digest, options: options) {
        case .stored(let etag, let version):
          if let version { context.note("versionId", .string(version)) }
          return .sent(UploadReceipt(provider: Self.name, link: link, deleteLink: locator, etag: etag))
        case .identical:
          return .alreadyThere(link: link)
        case .existed:
          context.warn("upload-kept", "\(url.display) was there already and stays as it is")
          return .alreadyThere(link: link)
        }
      } catch { throw StageError(error, of: Self.service) }
    }
  }

  private func client(_ context: StageContext) -> S3Client {
    S3Client(
      bucket, caller: caller, credentials: credentials, isCancelled: { context.isCancelled },
      pause: { context.pause(seconds: $0) })
  }

  private func fullKey(for item: Item, in context: StageContext) throws(StageError) -> String {
    try ObjectName.text((prefix.map { [$0] } ?? []) + [key], for: item, in: context)
  }

  /// A value for a header: what a name or column brings along that no header can hold is percent-encoded.
  private static func value(
    _ entry: NamedTemplate, for item: Item, in context: StageContext
  ) throws(StageError) -> String {
    let bytes = try context.render(entry.template, for: item)
    return bytes.allSatisfy { (0x20...0x7E).contains($0) }
      ? String(decoding: bytes, as: UTF8.self) : RequestURL.encoded(path: String(decoding: bytes, as: UTF8.self))
  }

  // MARK: - Receipts

  var receiptKeeper: (any ReceiptKeeper)? { Keeper(bucket: bucket, credentials: credentials, caller: caller) }

  /// What a receipt says of where the object is.
  private static func locator(_ bucket: S3Bucket, _ key: String) -> String { "s3://\(bucket.name)/\(key)" }

  private struct Keeper: ReceiptKeeper {
    var bucket: S3Bucket
    var credentials: AWSCredentials
    var caller: Caller

    private var client: S3Client {
      S3Client(bucket, caller: caller, credentials: credentials, pause: { S3Upload.wait($0) })
    }

    private func key(_ receipt: UploadReceipt) throws(StageError) -> String {
      let start = S3Upload.locator(bucket, "")
      guard let locator = receipt.deleteLink, locator.hasPrefix(start) else {
        throw StageError(
          "receipt-elsewhere", "the receipt \(receipt.id) is of another bucket than \(bucket.name)", kind: .job)
      }
      return String(locator.dropFirst(start.count))
    }

    private func object(_ key: String) throws(StageError) -> S3Object? {
      do throws(ServiceFailure) { return try client.head(key) } catch { throw StageError(error, of: S3Upload.service) }
    }

    /// Whether the object is the one that was sent; nil where nothing tells.
    private func isSame(_ object: S3Object, _ receipt: UploadReceipt) -> Bool? {
      if let digest = object.sha256, !receipt.sha256.isEmpty { return digest == Hex.text(receipt.sha256) }
      if let tag = object.etag, let sent = receipt.etag { return tag == sent }
      return nil
    }

    func verify(_ receipt: UploadReceipt) throws(StageError) -> ReceiptFinding {
      guard let object = try object(try key(receipt)) else { return .gone }
      return .present(isSame: isSame(object, receipt))
    }

    func delete(_ receipt: UploadReceipt) throws(StageError) {
      let key = try key(receipt)
      guard let object = try object(key) else { return }
      // Somebody has stored something else there since.
      guard isSame(object, receipt) != false else {
        throw StageError(
          "receipt-replaced", "s3://\(bucket.name)/\(key) is not what was sent any more; it is left alone")
      }
      do throws(ServiceFailure) { try client.delete(key) } catch { throw StageError(error, of: S3Upload.service) }
    }
  }

  private static func wait(_ seconds: Double) {
    var time = timespec(tv_sec: Int(seconds), tv_nsec: Int((seconds - seconds.rounded(.down)) * 1e9))
    nanosleep(&time, nil)
  }

  // MARK: - Vocabularies

  enum Encryption: String, FieldChoice {
    case service = "AES256"
    case kms = "aws:kms"

    var help: String {
      switch self {
      case .service: "with the service's keys"
      case .kms: "with a key of its key management"
      }
    }
  }

  enum CannedACL: String, FieldChoice {
    case owner = "bucket-owner-full-control"
    case bucketOwnerRead = "bucket-owner-read"
    case isPrivate = "private"
    case publicRead = "public-read"
    case authenticatedRead = "authenticated-read"
    case awsExecRead = "aws-exec-read"

    var help: String {
      switch self {
      case .owner: "the bucket's owner may do everything"
      case .bucketOwnerRead: "the bucket's owner may read"
      case .isPrivate: "nobody else"
      case .publicRead: "everybody may read"
      case .authenticatedRead: "everybody with an account may read"
      case .awsExecRead: "Amazon EC2 may read"
      }
    }
  }
}

extension S3Bucket.Addressing: FieldChoice {
  public var help: String {
    switch self {
    case .auto: "in the host at Amazon where the name allows it, in the path elsewhere"
    case .path: "https://host/bucket/key"
    case .virtual: "https://bucket.host/key"
    }
  }
}
