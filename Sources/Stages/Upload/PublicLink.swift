import PipelineKit
import Transport

/// Links that anyone may open.
enum PublicLink {
  /// A link as a host has written it, percent-encoded where it is not, and with https: some come with http.
  ///
  /// Throws `address` for what is none.
  static func secured(_ text: String) throws(TransportError) -> String {
    let url = try RequestURL("https://invalid.invalid/").resolving(text)
    guard url.host != "invalid.invalid" else { throw TransportError(.address, "the link of the answer names no host") }
    guard !url.isEncrypted, !url.isLoopback else { return url.text }
    return "https:" + url.text.dropFirst("http:".count)
  }

  /// Whether the picture at a receipt's link is still there.
  ///
  /// - Throws: `receipt-no-link` where the receipt has none, and where the host cannot be asked.
  static func finding(
    _ receipt: UploadReceipt, caller: (RequestURL) -> Caller, isGone: (Response) -> Bool = { _ in false }
  ) throws(StageError) -> ReceiptFinding {
    guard let link = receipt.link, let url = try? RequestURL(link) else {
      throw StageError("receipt-no-link", "the receipt \(receipt.id) has no link to look at")
    }
    var failure: ServiceFailure?
    for method in [HTTPMethod.head, .get] {
      do throws(ServiceFailure) {
        let response = try caller(url).call(
          { _ throws(TransportError) in
            var request = Request(method, url)
            request.redirects = .follow(most: 5)
            return request
          }, repeats: .always, pause: Waiter.command.pause)
        return isGone(response) ? .gone : .present(isSame: nil)
      } catch {
        if error.kind == .notFound { return .gone }
        failure = error
        // Not every host answers HEAD.
        guard let status = error.status, [400, 403, 405, 501].contains(status) else { break }
      }
    }
    throw StageError(failure ?? ServiceFailure(.request, "no answer"), of: url.authority)
  }

  static func notDeletable(_ receipt: UploadReceipt, _ host: String) -> StageError {
    StageError(
      "receipt-by-hand", "\(host) offers no call that deletes what the receipt \(receipt.id) tells of",
      hint: receipt.deleteLink == nil
        ? "delete it at the host" : "open its delete link in a browser; `pipeline receipts list` shows it")
  }
}
