import JobSyntax
import PipelineKit
import Transport

/// What Imgur's answers mean. It refuses in several shapes, and the status of the answer is not always the one meant.
enum ImgurAnswers {
  /// Credits of an upload; other calls cost 1.
  private static let uploadCost = 10.0

  /// Understands answers, and slows down as the credits that their heads tell of run out.
  static func classifier(_ pacer: Pacer) -> Classifier {
    { response in
      let now = RetryAfter.wallClock()
      if let wait = exhausted(response.headers, now: now) { pacer.pause(for: wait) }
      let failure = failure(of: response, now: now)
      // Hitting the day's limit five times in a month ends an application for the rest of the month.
      if failure?.kind == .putOff { pacer.pause(for: failure?.wait ?? unknownWait) }
      return failure
    }
  }

  /// Seconds to stay away where a limit was reached and nobody says for how long.
  private static let unknownWait = 3600.0

  /// Nil for a success that says so.
  static func failure(of response: Response, now: Double) -> ServiceFailure? {
    guard let answer = try? response.json() else { return unreadable(response) }
    let list = answer.node(at: "/errors/0")
    let meant = number(answer, "/status") ?? (list == nil ? nil : number(answer, "/errors/0/code"))
    let isRefused = answer.bool(at: "/success") == false || list != nil
    let status = (response.status < 400 && isRefused ? meant.flatMap { $0 >= 400 ? $0 : nil } : nil) ?? response.status
    guard isRefused || status >= 300 else { return nil }
    let text =
      answer.string(at: "/data/error/message") ?? answer.string(at: "/data/error") ?? answer.string(
        at: "/errors/0/detail")
      ?? answer.string(at: "/errors/0/status") ?? response.excerpt
    let code = number(answer, "/data/error/code").map(String.init)
    let lower = text.lowercased()
    func failure(_ kind: FailureKind, wait: Double? = nil) -> ServiceFailure {
      ServiceFailure(
        kind, StandardClassifier.message(status: response.status, text, code: code), status: response.status,
        code: code, wait: wait)
    }
    // Words first: "uploading too fast" comes as 400, "over capacity" as 403.
    if lower.contains("too fast") {
      return failure(.rate, wait: minutes(in: lower).map { $0 * 60 } ?? wait(response.headers, now: now))
    }
    if lower.contains("over capacity") { return failure(.rate, wait: wait(response.headers, now: now)) }
    if status == 429 {
      let wait = wait(response.headers, now: now)
      // Asking again would be counted.
      return failure(lower.contains("daily") ? .putOff : .rate, wait: wait)
    }
    if code == "1002" || lower.contains("over the size limit") { return failure(.tooLarge) }
    if code == "1003" || lower.contains("file type invalid") { return failure(.badPicture) }
    switch status {
    case 200...299:
      // It says that it failed, with no more of a reason: it may be another time.
      return failure(.temporary)
    default:
      return failure(StandardClassifier.kind(ofStatus: status) ?? .request)
    }
  }

  /// A page from what stands before Imgur, or nothing that can be read.
  private static func unreadable(_ response: Response) -> ServiceFailure? {
    if response.isSuccess {
      return ServiceFailure(
        .unknown, "\(response.status): the answer cannot be read: \(response.excerpt)", status: response.status)
    }
    var failure = StandardClassifier.classify(response)
    // Imgur itself refuses in JSON: what stands before it turns clients away by the hour.
    if response.status == 403, response.mediaType?.contains("html") == true { failure?.kind = .temporary }
    return failure
  }

  /// The number at a pointer, also where it is in quotes.
  private static func number(_ answer: JSONAnswer, _ pointer: String) -> Int? {
    answer.integer(at: pointer) ?? answer.string(at: pointer).flatMap { Int($0) }
  }

  /// `Please wait 13 more minutes`.
  private static func minutes(in text: String) -> Double? {
    let words = text.split { !$0.isLetter && !$0.isNumber }
    for (index, word) in words.enumerated() where word == "wait" {
      if let next = words[(index + 1)...].first, let number = Double(next) { return max(1, number) }
    }
    return nil
  }

  /// Seconds until there are credits again; nil where there are, or nobody says.
  static func exhausted(_ headers: Headers, now: Double) -> Double? {
    func left(_ name: String) -> Double? { headers[name].flatMap { Double($0) } }
    var longest: Double?
    for (remaining, reset, least) in [
      ("X-RateLimit-UserRemaining", "X-RateLimit-UserReset", uploadCost),
      ("X-RateLimit-ClientRemaining", "X-RateLimit-ClientReset", uploadCost),
      ("X-Post-Rate-Limit-Remaining", "X-Post-Rate-Limit-Reset", 1),
    ] {
      guard let left = left(remaining), left < least, let value = headers[reset],
        let wait = RetryAfter.seconds(ofReset: value, now: now)
      else { continue }
      longest = max(longest ?? 0, wait)
    }
    return longest
  }

  private static func wait(_ headers: Headers, now: Double) -> Double? {
    if let asked = RetryAfter.seconds(of: headers, now: now, resets: false) { return asked }
    if let exhausted = exhausted(headers, now: now) { return exhausted }
    // It throttles although credits are left; the head then tells of limits that have nothing to do with it.
    return headers["X-RateLimit-UserRemaining"] == nil
      ? RetryAfter.seconds(
        of: headers, now: now, names: ["X-RateLimit-UserReset", "X-Post-Rate-Limit-Reset", "X-RateLimit-ClientReset"])
      : nil
  }

  /// What a success says. Throws `failed` for an answer without a link.
  static func receipt(_ answer: JSONAnswer, isAnonymous: Bool) throws(TransportError) -> UploadReceipt {
    var receipt = UploadReceipt(provider: ImgurUpload.name)
    receipt.link = try PublicLink.secured(try answer.text(at: "/data/link"))
    // Whoever has an account's token deletes by the picture's id.
    receipt.deleteLink = answer.string(at: isAnonymous ? "/data/deletehash" : "/data/id")
    return receipt
  }
}
