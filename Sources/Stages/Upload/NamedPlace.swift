import Digest
import Imaging
import PipelineKit
import Transport

/// A place at a host that a picture is put to by its name, and what can be asked about it afterwards.
struct NamedPlace: Sendable {
  /// As people call the host.
  var host: String
  var url: RequestURL
  var caller: Caller
  var headers: [HeaderField] = []
  var authentication: Authentication?
  var classify: Classifier = StandardClassifier.classify

  private func request(_ method: HTTPMethod, most: Int = 1 << 20) -> Request {
    var request = Request(method, url, headers: headers)
    request.authentication = authentication
    request.timeouts.total = nil
    request.maxAnswerBytes = most
    // As stored, or no hash would fit.
    request.keepsContentEncoding = true
    return request
  }

  private func send(_ request: Request, _ waiter: Waiter) throws(ServiceFailure) -> Response? {
    do throws(ServiceFailure) {
      return try caller.call(
        { _ in request }, repeats: .always, classify: classify, isCancelled: waiter.isCancelled, pause: waiter.pause)
    } catch {
      if error.kind == .notFound { return nil }
      throw error
    }
  }

  /// What a HEAD says; nil where nothing is there.
  func head(_ waiter: Waiter) throws(StageError) -> Headers? {
    do throws(ServiceFailure) {
      return try send(request(.head), waiter)?.headers
    } catch { throw StageError(error, of: host) }
  }

  /// Whether what is there is this, byte for byte; nil where nothing is there.
  ///
  /// - Parameters:
  ///   - sha256: 32 bytes.
  ///   - count: bytes, where known.
  func holds(sha256: [UInt8], count: Int? = nil, _ waiter: Waiter) throws(StageError) -> Bool? {
    do throws(ServiceFailure) {
      guard let response = try send(request(.get, most: count.map { $0 + 1 } ?? 1 << 30), waiter) else { return nil }
      return response.body.withUnsafeBytes { SHA256.digest(of: $0) } == sha256
    } catch {
      // Longer than what was sent.
      if count != nil, error.kind == .request, error.status.map({ 200...299 ~= $0 }) ?? false { return false }
      throw StageError(error, of: host)
    }
  }

  /// Whether the picture of a receipt is still there: by its entity tag, else by its content.
  func finding(_ receipt: UploadReceipt, _ waiter: Waiter) throws(StageError) -> ReceiptFinding {
    guard let headers = try head(waiter) else { return .gone }
    if let tag = receipt.etag, !tag.hasPrefix("W/"), headers["ETag"] == tag { return .present(isSame: true) }
    guard !receipt.sha256.isEmpty else { return .present(isSame: nil) }
    return try holds(sha256: receipt.sha256, waiter).map { .present(isSame: $0) } ?? .gone
  }

  /// Takes away what a receipt tells of. What is gone already counts as taken away.
  ///
  /// - Throws: `receipt-replaced` where something else is there now.
  func delete(_ receipt: UploadReceipt, _ waiter: Waiter) throws(StageError) {
    switch try finding(receipt, waiter) {
    case .gone: return
    case .present(isSame: false):
      // Somebody has stored something else there since.
      throw StageError("receipt-replaced", "\(url.display) is not what was sent any more; it is left alone")
    case .present: break
    }
    do throws(ServiceFailure) {
      _ = try send(request(.delete), waiter)
    } catch { throw StageError(error, of: host) }
  }

  /// What an upload comes to that was to replace nothing and found something there.
  ///
  /// - Parameters:
  ///   - attempts: how often it was sent: after the first the answer may have been lost, and what is there be ours.
  ///   - receipt: for what is ours.
  func found(
    _ encoded: Item.Encoded, attempts: Int, _ existing: ExistingUpload, _ receipt: UploadReceipt,
    in context: StageContext
  ) throws(StageError) -> UploadResult {
    if attempts > 1 || existing == .error {
      let digest = encoded.bytes.withUnsafeBytes { SHA256.digest(of: $0) }
      // A host that does not let it be read leaves it open.
      let isSame = try? holds(sha256: digest, count: encoded.bytes.count, Waiter(context))
      if isSame == true { return attempts > 1 ? .sent(receipt) : .alreadyThere(link: receipt.link, isSame: true) }
    }
    guard existing == .skip else {
      throw StageError(
        "output-exists", "\(url.display) exists already",
        hint: "\"overwrite\": \"replace\" or \"skip\" would go on")
    }
    context.warn("upload-kept", "\(url.display) was there already and stays as it is")
    return .alreadyThere(link: receipt.link, isSame: false)
  }
}

/// Looks after what was put to a place of its own name.
struct NamedKeeper: ReceiptKeeper {
  let place: @Sendable (UploadReceipt) throws(StageError) -> NamedPlace

  func verify(_ receipt: UploadReceipt) throws(StageError) -> ReceiptFinding {
    try place(receipt).finding(receipt, .command)
  }

  func delete(_ receipt: UploadReceipt) throws(StageError) { try place(receipt).delete(receipt, .command) }

  /// The address of a receipt below `base`.
  ///
  /// - Throws: `receipt-elsewhere` where it lies elsewhere.
  static func url(of receipt: UploadReceipt, below base: RequestURL) throws(StageError) -> RequestURL {
    let folder = base.origin + (base.path.hasSuffix("/") ? base.path : base.path + "/")
    guard let text = receipt.deleteLink, text == base.origin + base.path || text.hasPrefix(folder),
      let url = try? RequestURL(text + (base.query.map { "?\($0)" } ?? ""))
    else {
      throw StageError(
        "receipt-elsewhere", "the receipt \(receipt.id) is of another place than \(base.display)", kind: .job)
    }
    return url
  }
}
