import Imaging
import JobSyntax
import Transport

/// What remove.bg's answers mean.
enum RemoveBGAnswers {
  /// No subject was found: a word about the picture, not a failure of the call.
  static let nothingFound = "unknown_foreground"

  /// Header fields that are kept with a result.
  static let headers = [
    "X-Type", "X-Width", "X-Height", "X-Max-Width", "X-Max-Height", "X-Credits-Charged", "X-Foreground-",
    "X-RateLimit-",
  ]

  /// Seconds to wait where too many requests were sent and the service does not say how long.
  private static let defaultWait = 10.0

  static func classify(_ response: Response) -> ServiceFailure? {
    switch response.status {
    case 200...299:
      guard !isReadable(response) else { return nil }
      // It may well have been charged.
      let words = response.excerpt
      return ServiceFailure(
        .unknown,
        StandardClassifier.message(
          status: response.status, words.isEmpty ? "the answer is no picture" : "the answer is no picture: \(words)"),
        status: response.status)
    case 300...399: return StandardClassifier.classify(response)
    default: break
    }
    let errors = Self.errors(response.body)
    let words = errors.map { error in
      [error.title, error.detail].filter { !$0.isEmpty }.joined(separator: ": ")
    }.filter { !$0.isEmpty }.joined(separator: "; ")
    let codes = errors.map(\.code).filter { !$0.isEmpty }
    let kind = kind(status: response.status, codes: codes, title: errors.first?.title ?? "")
    var wait: Double?
    if [.rate, .temporary].contains(kind), response.status != 400 {
      wait = RetryAfter.seconds(of: response.headers, now: RetryAfter.wallClock(), resets: kind == .rate)
      if kind == .rate, wait == nil { wait = defaultWait }
    }
    return ServiceFailure(
      kind,
      StandardClassifier.message(
        status: response.status, words.isEmpty ? response.excerpt : words, code: codes.first), status: response.status,
      code: codes.first, wait: wait)
  }

  private static func kind(status: Int, codes: [String], title: String) -> FailureKind {
    guard status == 400 else { return StandardClassifier.kind(ofStatus: status) ?? .request }
    // Of several the one that says most about the picture.
    for code in codes {
      switch code {
      case nothingFound, "failed_to_read_image", "invalid_file_type", "invalid_dimensions", "roi_exceeds_bounds",
        "roi_region_empty":
        return .badPicture
      case "file_too_large", "resolution_too_high": return .tooLarge
      // The service could not get a picture from another host, which may be better in a moment; nothing is charged.
      case "failed_image_download", "failed_bg_download": return .temporary
      default: continue
      }
    }
    return codes.isEmpty && title.lowercased().contains("download") ? .temporary : .request
  }

  /// The entries of `errors`; only the title is always there.
  private static func errors(_ body: [UInt8]) -> [(title: String, detail: String, code: String)] {
    guard let answer = try? JSONAnswer(body), let list = answer.root["errors"]?.arrayValue else { return [] }
    return list.prefix(8).map {
      ($0["title"]?.stringValue ?? "", $0["detail"]?.stringValue ?? "", $0["code"]?.stringValue ?? "")
    }
  }

  private static func isReadable(_ response: Response) -> Bool {
    if ServiceAnswer.looksLikePicture(response.body) { return true }
    guard let answer = try? JSONAnswer(response.body) else { return false }
    return answer.node(at: pointer)?.stringValue != nil
  }

  private static let pointer = "/data/result_b64"

  /// The picture of an answer, or its archive.
  static func picture(_ answer: ServiceAnswer) throws(TransportError) -> [UInt8] {
    if ServiceAnswer.looksLikePicture(answer.body) { return answer.body }
    guard let bytes = try JSONAnswer(answer.body).base64(at: pointer) else {
      throw TransportError(.failed, "the answer has no \(pointer)")
    }
    return bytes
  }

  /// What the answer says besides, for the report.
  static func facts(_ answer: ServiceAnswer, isNew: Bool) -> JSONText {
    func number(_ name: String) -> JSONText? {
      answer.number(name).map { value in Int(exactly: value).map { .integer($0) } ?? .number(value) }
    }
    let json = ServiceAnswer.looksLikePicture(answer.body) ? nil : try? JSONAnswer(answer.body)
    var members: [(String, JSONText)] = []
    func add(_ name: String, _ value: JSONText?) { if let value { members.append((name, value)) } }
    add("creditsCharged", number("X-Credits-Charged"))
    if !isNew { members.append(("kept", .bool(true))) }
    add("type", answer["X-Type"].map { .string($0) })
    add("width", number("X-Width"))
    add("height", number("X-Height"))
    add("maxWidth", number("X-Max-Width"))
    add("maxHeight", number("X-Max-Height"))
    let sides = ["Left", "Top", "Width", "Height"].compactMap { side -> (String, JSONText)? in
      let name = side.lowercased()
      guard
        let value = number("X-Foreground-\(side)")
          ?? json?.integer(at: "/data/foreground_\(name)").map({ .integer($0) })
      else { return nil }
      return (name, value)
    }
    if !sides.isEmpty { members.append(("foreground", .object(sides))) }
    if isNew {
      add("rateLimit", number("X-RateLimit-Limit"))
      add("rateLimitRemaining", number("X-RateLimit-Remaining"))
    }
    return .object(members)
  }

  // MARK: Archives

  /// No file of an answer unpacks to more: 50 megapixels of a PNG that cannot be packed.
  private static let mostUnpacked = 120_000_000

  /// Colours and mask of an archive.
  static func files(of archive: [UInt8]) throws(ImagingError) -> (colour: [UInt8], alpha: [UInt8]) {
    let files = try ZipArchive.files(["color.jpg", "alpha.png"], in: archive, limit: mostUnpacked)
    return (files["color.jpg"] ?? [], files["alpha.png"] ?? [])
  }
}
