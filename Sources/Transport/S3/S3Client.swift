import Digest

/// An object of a bucket, as its head or a listing tells of it.
public struct S3Object: Sendable, Hashable {
  public var key: String
  /// Bytes.
  public var size: Int
  /// With its quotes. The MD5 of the content only where it has 32 hex digits, and not always then.
  public var etag: String?
  /// As the service writes it: a listing in ISO 8601, a head as an HTTP date.
  public var modified: String?
  public var type: String?
  public var versionID: String?
  /// By name in lower case, without `x-amz-meta-`; a listing has none.
  public var metadata: [String: String] = [:]

  /// The content's SHA-256 in hex, where whoever stored it noted it as this client does.
  public var sha256: String? { metadata[S3Client.digestName] }
}

/// How an object is stored.
public struct S3PutOptions: Sendable {
  public enum Encryption: Sendable, Hashable {
    /// With keys of the service (`AES256`).
    case service
    /// With a key of its key management; nil for the account's usual one.
    case kms(key: String?)
  }

  public var type = "application/octet-stream"
  public var cacheControl: String?
  public var contentDisposition: String?
  /// ASCII names without `x-amz-meta-`, and values.
  public var metadata: [(name: String, value: String)] = []
  public var storageClass: String?
  public var encryption: Encryption?
  /// A canned list, as `bucket-owner-full-control`.
  public var acl: String?
  /// Whether the content's SHA-256 goes into the metadata, as `sha256`.
  public var notesDigest = true
  /// Whether an object that is there already is left as it is.
  public var onlyIfAbsent = false
  /// Whether an object whose head notes the same size and SHA-256 is left as it is.
  public var skipsIdentical = false
  /// From so many bytes on an object is sent in parts.
  public var multipartThreshold = 100 << 20
  /// Bytes of a part, at least; grows where the object would have more than 10,000.
  public var partSize = 16 << 20

  public init() {}
}

public enum S3PutOutcome: Sendable {
  case stored(etag: String?, versionID: String?)
  /// The same content was there.
  case identical(S3Object)
  /// Something was there, and `onlyIfAbsent` asked to leave it. Nil where its head cannot be read.
  case existed(S3Object?)
}

/// A page of a listing.
public struct S3Page: Sendable {
  public var objects: [S3Object]
  /// The common beginnings of keys, up to and with the delimiter.
  public var prefixes: [String]
  /// What to ask the next page with; nil after the last.
  public var next: String?
}

/// Puts, looks up, gets, lists and deletes objects of one bucket, each request signed when it is sent.
///
/// Failures are those of `S3Failures`, after as many attempts as the caller's policy allows. All requests but the
/// start of an upload in parts do the same when repeated, and that one leaves nothing behind but a name.
public struct S3Client: Sendable {
  public let bucket: S3Bucket
  private let caller: Caller
  private let credentials: AWSCredentials?
  private let isCancelled: @Sendable () -> Bool
  private let pause: @Sendable (Double) -> Void
  private let now: @Sendable () -> Double

  static let digestName = "sha256"

  /// - Parameters:
  ///   - credentials: nil for requests that are not signed, to a bucket that anybody may use.
  ///   - isCancelled: asked often while a request is under way.
  ///   - pause: waits so many seconds, or less on cancellation.
  ///   - now: seconds since 1970.
  public init(
    _ bucket: S3Bucket, caller: Caller, credentials: AWSCredentials?,
    isCancelled: @escaping @Sendable () -> Bool = { false }, pause: @escaping @Sendable (Double) -> Void,
    now: @escaping @Sendable () -> Double = RetryAfter.wallClock
  ) {
    self.bucket = bucket
    self.caller = caller
    self.credentials = credentials
    self.isCancelled = isCancelled
    self.pause = pause
    self.now = now
  }

  // MARK: - Objects

  /// Stores an object; the payload is read twice or more, and never held as a whole.
  ///
  /// - Parameter digest: the payload's SHA-256, where it is known already.
  public func put(
    _ key: String, _ payload: Payload, digest known: [UInt8]? = nil, options: S3PutOptions = S3PutOptions()
  ) throws(ServiceFailure) -> S3PutOutcome {
    let digest: String
    if let known { digest = Hex.text(known) } else { digest = Hex.text(try Self.digest(of: payload)) }
    if options.onlyIfAbsent || options.skipsIdentical, let object = try look(key, options) {
      if options.skipsIdentical, object.sha256 == digest, object.size == payload.count { return .identical(object) }
      if options.onlyIfAbsent { return .existed(object) }
    }
    let isInParts = payload.count >= max(1, options.multipartThreshold)
    do throws(ServiceFailure) {
      return isInParts
        ? try putInParts(key, payload, digest: digest, options: options)
        : try putAtOnce(key, payload, digest: digest, options: options)
    } catch {
      guard options.onlyIfAbsent, error.status == 412 || error.code == "PreconditionFailed" else { throw error }
      let object = try? head(key)
      // An attempt whose answer was lost may have been the one that stored it.
      if error.attempts > 1, let object, object.sha256 == digest, object.size == payload.count {
        return .stored(etag: object.etag, versionID: object.versionID)
      }
      return .existed(object)
    }
  }

  /// The head of what is there before something is stored.
  private func look(_ key: String, _ options: S3PutOptions) throws(ServiceFailure) -> S3Object? {
    do throws(ServiceFailure) {
      return try head(key)
    } catch {
      // Who may not read gets this for each key. Storing the same again does no harm; storing over something would.
      guard error.status == 403 else { throw error }
      if !options.onlyIfAbsent { return nil }
      var failure = error
      failure.message += "; whether the object is there cannot be seen, s3:GetObject and s3:ListBucket are needed"
      throw failure
    }
  }

  private func putAtOnce(
    _ key: String, _ payload: Payload, digest: String, options: S3PutOptions
  ) throws(ServiceFailure) -> S3PutOutcome {
    let headers = Self.headers(options, digest: digest)
    let url = try url(key)
    func send(_ condition: [SigV4.Field]) throws(ServiceFailure) -> Response {
      try call(.put, url, headers: headers + condition, body: (payload, options.type, digest))
    }
    let response = try conditionally(options, send)
    guard response.headers["ETag"] != nil || response.mediaType != "text/html" else {
      throw failure("a page came back instead of the answer of an S3 service: \(response.excerpt)", response)
    }
    return .stored(etag: response.headers["ETag"], versionID: response.headers["x-amz-version-id"])
  }

  /// Sends with the condition that nothing is there, and without it to a service that has no conditions; there the head
  /// that was asked for before has to do.
  private func conditionally(
    _ options: S3PutOptions, _ send: ([SigV4.Field]) throws(ServiceFailure) -> Response
  ) throws(ServiceFailure) -> Response {
    guard options.onlyIfAbsent else { return try send([]) }
    do throws(ServiceFailure) {
      return try send([("If-None-Match", "*")])
    } catch {
      guard error.status == 501 || error.code == "NotImplemented" else { throw error }
      return try send([])
    }
  }

  /// An object's head; nil where there is no such object.
  public func head(_ key: String) throws(ServiceFailure) -> S3Object? {
    do throws(ServiceFailure) {
      let response = try call(.head, try url(key))
      return Self.object(key, response)
    } catch {
      if error.kind == .notFound { return nil }
      throw error
    }
  }

  /// An object and its content; nil where there is no such object.
  ///
  /// - Parameter most: the most bytes that are taken; a larger object is a failure of kind `tooLarge`.
  public func get(
    _ key: String, most: Int = 256 << 20
  ) throws(ServiceFailure) -> (object: S3Object, bytes: [UInt8])? {
    do throws(ServiceFailure) {
      let response = try call(.get, try url(key), most: most)
      return (Self.object(key, response), response.body)
    } catch {
      if error.kind == .notFound { return nil }
      throw error
    }
  }

  /// Deletes an object; that there is none is no failure.
  public func delete(_ key: String) throws(ServiceFailure) {
    do throws(ServiceFailure) {
      _ = try call(.delete, try url(key))
    } catch {
      if error.code != "NoSuchKey" { throw error }
    }
  }

  private static func object(_ key: String, _ response: Response) -> S3Object {
    let headers = response.headers
    var object = S3Object(
      key: key, size: headers["Content-Length"].flatMap { Int($0) } ?? response.body.count, etag: headers["ETag"],
      modified: headers["Last-Modified"], type: headers["Content-Type"], versionID: headers["x-amz-version-id"])
    for field in headers.fields {
      let name = field.name.lowercased()
      if name.hasPrefix("x-amz-meta-") { object.metadata[String(name.dropFirst(11))] = field.value }
    }
    return object
  }

  /// The headers that a new object is described with, all of them to be signed.
  private static func headers(_ options: S3PutOptions, digest: String) -> [SigV4.Field] {
    var fields: [SigV4.Field] = []
    func add(_ name: String, _ value: String?) { if let value { fields.append((name, value)) } }
    add("Cache-Control", options.cacheControl)
    add("Content-Disposition", options.contentDisposition)
    add("x-amz-acl", options.acl)
    add("x-amz-storage-class", options.storageClass)
    switch options.encryption {
    case nil: break
    case .service: add("x-amz-server-side-encryption", "AES256")
    case .kms(let key):
      add("x-amz-server-side-encryption", "aws:kms")
      add("x-amz-server-side-encryption-aws-kms-key-id", key)
    }
    for entry in options.metadata { add("x-amz-meta-" + entry.name.lowercased(), entry.value) }
    if options.notesDigest, !options.metadata.contains(where: { $0.name.lowercased() == digestName }) {
      add("x-amz-meta-" + digestName, digest)
    }
    return fields
  }

  private static func digest(of payload: Payload) throws(ServiceFailure) -> [UInt8] {
    var hash = SHA256()
    let capacity = 1 << 18
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: min(capacity, max(1, payload.count)), alignment: 16)
    defer { buffer.deallocate() }
    var offset = 0
    while offset < payload.count {
      guard let count = payload.read(at: offset, into: buffer), count > 0 else {
        throw ServiceFailure(.request, "the bytes to be sent cannot be read to their end")
      }
      hash.update(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
      offset += count
    }
    return hash.finish()
  }

  // MARK: - Parts

  /// The most parts that an object may have.
  static let mostParts = 10_000
  private static let mebibyte = 1 << 20
  /// The fewest bytes that a part but the last must have.
  static let smallestPart = 5 << 20

  /// Of equal size but the last, as some services demand; a whole number of MiB where it is more than was asked for.
  static func partSize(of count: Int, atLeast wanted: Int) -> Int {
    let wanted = max(wanted, smallestPart)
    let needed = (count + mostParts - 1) / mostParts
    return needed <= wanted ? wanted : (needed + mebibyte - 1) / mebibyte * mebibyte
  }

  private func putInParts(
    _ key: String, _ payload: Payload, digest: String, options: S3PutOptions
  ) throws(ServiceFailure) -> S3PutOutcome {
    let begun = try call(
      .post, try url(key, [("uploads", "")]), headers: Self.headers(options, digest: digest),
      body: (Payload([]), options.type, SigV4.emptyPayload), readsBody: true)
    guard let id = S3Failures.document(begun.body)?["UploadId"]?.text, !id.isEmpty else {
      throw failure("the answer to the start of an upload in parts holds no UploadId", begun)
    }
    var isDone = false
    // The parts of an upload that is never completed are kept, and cost money, until somebody ends it.
    defer { if !isDone { abort(key, id) } }
    let size = Self.partSize(of: payload.count, atLeast: options.partSize)
    var parts: [String] = []
    for start in stride(from: 0, to: payload.count, by: size) {
      let part = payload.slice(from: start, count: min(size, payload.count - start))
      let number = String(parts.count + 1)
      let response = try call(
        .put, try url(key, [("partNumber", number), ("uploadId", id)]),
        body: (part, "application/octet-stream", Hex.text(try Self.digest(of: part))))
      guard let tag = response.headers["ETag"], !tag.isEmpty else {
        throw failure("the answer to part \(number) has no ETag", response)
      }
      parts.append(tag)
    }
    let outcome = try complete(key, id, parts, size: payload.count, digest: digest, options: options)
    isDone = true
    return outcome
  }

  private func complete(
    _ key: String, _ id: String, _ parts: [String], size: Int, digest: String, options: S3PutOptions
  ) throws(ServiceFailure) -> S3PutOutcome {
    var document = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
    for (index, tag) in parts.enumerated() {
      document += "<Part><PartNumber>\(index + 1)</PartNumber><ETag>\(Self.escaped(tag))</ETag></Part>"
    }
    let bytes = Array((document + "</CompleteMultipartUpload>").utf8)
    let url = try url(key, [("uploadId", id)])
    func send(_ condition: [SigV4.Field]) throws(ServiceFailure) -> Response {
      try call(
        .post, url, headers: condition, body: (Payload(bytes), "application/xml", Hex.text(SHA256.digest(of: bytes))),
        readsBody: true)
    }
    do throws(ServiceFailure) {
      let response = try conditionally(options, send)
      guard let root = S3Failures.document(response.body), root.name == "CompleteMultipartUploadResult" else {
        throw failure("the answer to the end of an upload in parts is no CompleteMultipartUploadResult", response)
      }
      return .stored(etag: root["ETag"]?.text, versionID: response.headers["x-amz-version-id"])
    } catch {
      // An attempt whose answer was lost may have completed it, and there is no such upload any more.
      guard error.code == "NoSuchUpload", error.attempts > 1, let object = try head(key), object.size == size,
        object.sha256.map({ $0 == digest }) ?? (object.etag?.hasSuffix("-\(parts.count)\"") == true)
      else { throw error }
      return .stored(etag: object.etag, versionID: object.versionID)
    }
  }

  /// Ends an upload in parts, whatever has become of the run; what comes of it makes no difference.
  private func abort(_ key: String, _ id: String) {
    // A run that is ended waits for it, so not for long.
    let (now, end) = (now, now() + Self.longestAbort)
    var last = S3Client(
      bucket, caller: caller, credentials: credentials, isCancelled: { now() >= end }, pause: pause, now: now)
    last.total = Self.longestAbort
    guard let url = try? url(key, [("uploadId", id)]) else { return }
    _ = try? last.call(.delete, url)
  }

  /// Seconds.
  private static let longestAbort = 15.0

  private static func escaped(_ text: String) -> String {
    var result = ""
    for character in text.unicodeScalars {
      switch character {
      case "&": result += "&amp;"
      case "<": result += "&lt;"
      case ">": result += "&gt;"
      default: result.unicodeScalars.append(character)
      }
    }
    return result
  }

  // MARK: - Listing

  /// A page of at most 1,000 keys, in the order of their bytes.
  ///
  /// - Parameters:
  ///   - prefix: what keys begin with; empty for all.
  ///   - delimiter: keys that have it after the prefix are told as one of `prefixes`.
  ///   - startAfter: the key to begin behind, on the first page.
  ///   - token: `next` of the page before.
  public func page(
    prefix: String = "", delimiter: String? = nil, startAfter: String? = nil, token: String? = nil, limit: Int = 1_000
  ) throws(ServiceFailure) -> S3Page {
    var query: [SigV4.Field] = [("encoding-type", "url"), ("list-type", "2"), ("max-keys", String(limit))]
    if !prefix.isEmpty { query.append(("prefix", prefix)) }
    if let delimiter { query.append(("delimiter", delimiter)) }
    if let startAfter, token == nil { query.append(("start-after", startAfter)) }
    if let token { query.append(("continuation-token", token)) }
    let response = try call(.get, try refusing { () throws(S3Refusal) in try bucket.url(query: query) })
    guard let root = S3Failures.document(response.body), root.name == "ListBucketResult" else {
      throw failure("the answer to a listing is no ListBucketResult", response)
    }
    // Services that do not know the encoding send keys as they are.
    let isEncoded = root["EncodingType"]?.text == "url"
    func key(_ element: XMLElement?) throws(ServiceFailure) -> String {
      let text = element?.text ?? ""
      guard isEncoded else { return text }
      guard let key = String(validating: PercentCoding.decoded(text, plusIsSpace: true), as: UTF8.self) else {
        throw failure("the listing holds a key that is not UTF-8: \(text.prefix(200))", response)
      }
      return key
    }
    var page = S3Page(objects: [], prefixes: [], next: nil)
    for element in root.children {
      switch element.name {
      case "Contents":
        guard let size = element["Size"].flatMap({ Int($0.text) }) else {
          throw failure("the listing holds an object without a size", response)
        }
        page.objects.append(
          S3Object(
            key: try key(element["Key"]), size: size, etag: element["ETag"]?.text,
            modified: element["LastModified"]?.text))
      case "CommonPrefixes": page.prefixes.append(try key(element["Prefix"]))
      default: break
      }
    }
    if root["IsTruncated"]?.text == "true" {
      // Else the listing would seem whole, or never end.
      guard let next = root["NextContinuationToken"]?.text, !next.isEmpty, next != token else {
        throw failure("the listing goes on, and does not say from where", response)
      }
      page.next = next
    }
    return page
  }

  /// Hands over every object whose key begins with `prefix`, page by page as they come, until `body` answers false.
  public func eachObject(
    prefix: String = "", startAfter: String? = nil, _ body: (S3Object) -> Bool
  ) throws(ServiceFailure) {
    var token: String?
    repeat {
      let page = try page(prefix: prefix, startAfter: startAfter, token: token)
      for object in page.objects where !body(object) { return }
      token = page.next
    } while token != nil
  }

  // MARK: - Requests

  private func url(_ key: String, _ query: [SigV4.Field] = []) throws(ServiceFailure) -> RequestURL {
    try refusing { () throws(S3Refusal) in try bucket.url(key: key, query: query) }
  }

  private func refusing<T>(_ body: () throws(S3Refusal) -> T) throws(ServiceFailure) -> T {
    do throws(S3Refusal) {
      return try body()
    } catch { throw ServiceFailure(.request, error.message) }
  }

  private func failure(_ message: String, _ response: Response) -> ServiceFailure {
    ServiceFailure(.request, message, status: response.status)
  }

  /// Seconds that a request may take as a whole; nil for as long as bytes move.
  private var total: Double?

  /// - Parameter body: the bytes, their type, and their SHA-256 in hex.
  private func call(
    _ method: HTTPMethod, _ url: RequestURL, headers: [SigV4.Field] = [],
    body: (payload: Payload, type: String, digest: String)? = nil, most: Int = 16 << 20, readsBody: Bool = false
  ) throws(ServiceFailure) -> Response {
    let (credentials, now, region, total) = (credentials, now, bucket.region, total)
    return try caller.call(
      { _ throws(TransportError) in
        var fields = headers
        if let credentials {
          let signed = headers + (body.map { [("Content-Type", $0.type)] } ?? [])
          fields += credentials.signer(region: region).headers(
            for: .init(method: method.rawValue, url: url, headers: signed),
            payload: body?.digest ?? SigV4.emptyPayload, time: Int(now()))
        }
        var request = Request(
          method, url, headers: fields.map { HeaderField($0.name, $0.value) },
          body: body.map { .raw($0.payload, type: $0.type) } ?? .none)
        request.timeouts.total = total
        request.maxAnswerBytes = most
        // An object is what was stored, whatever it is encoded in.
        request.keepsContentEncoding = true
        return request
      },
      repeats: .always,
      classify: { S3Failures.failure(of: $0, region: region, readsBody: readsBody, now: now()) },
      isCancelled: isCancelled, pause: pause)
  }
}

extension Payload {
  /// A part of it.
  func slice(from start: Int, count: Int) -> Payload {
    Payload(count: count) { offset, buffer in
      let wanted = min(buffer.count, count - offset)
      guard wanted > 0 else { return 0 }
      return read(at: start + offset, into: UnsafeMutableRawBufferPointer(rebasing: buffer[..<wanted])) ?? -1
    }
  }
}
