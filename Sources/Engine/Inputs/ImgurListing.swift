import JobSyntax
import PipelineKit
import Transport

/// A search of Imgur's gallery.
public struct ImgurSearch: Sendable, Hashable {
  public struct Parameter: Sendable, Hashable {
    public var name: String
    public var value: String

    public init(_ name: String, _ value: String) {
      self.name = name
      self.value = value
    }
  }

  /// `q`, or the advanced ones.
  public var parameters: [Parameter] = []
  public var sort = "time"
  public var window = "all"
  public var pages = 1
  /// Pictures.
  public var limit = 100
  /// Whether what is marked as not for everyone is taken.
  public var takesMature = false
  public var clientID: Credential
  public var endpoint = "https://api.imgur.com"

  public init(clientID: Credential) { self.clientID = clientID }
}

/// What a search of Imgur's gallery finds: pictures, and those of albums. Animations and videos are passed over, and what
/// has no direct link.
final class ImgurListing: RemoteListing {
  private let search: ImgurSearch
  private let caller: Caller
  private let endpoint: RequestURL
  private let authorization: HeaderField
  private var page = 0
  private var found: ArraySlice<JSONNode> = []
  /// The pictures of the album that is being gone through.
  private var album: ArraySlice<JSONNode> = []
  private var isAlbumMature = false
  private var seen: Set<String> = []
  private var isAtEnd = false

  let what = "the search of Imgur's gallery"

  init(_ search: ImgurSearch, _ services: ServiceResources) throws(StageError) {
    self.search = search
    do throws(TransportError) {
      endpoint = try RequestURL(search.endpoint)
    } catch {
      throw StageError("imgur-endpoint", "\"endpoint\" is no address: \(error.message)", kind: .job)
    }
    guard endpoint.isEncrypted || endpoint.isLoopback else {
      throw StageError("imgur-endpoint", "the client id would go to \(endpoint.origin) unencrypted", kind: .job)
    }
    authorization = HeaderField("Authorization", "Client-ID \(try search.clientID.reveal())", isCredential: true)
    caller = services.caller(services.pacer("imgur \(endpoint.authority)"))
  }

  func next(
    onSkip: (_ name: PathBytes, _ reason: SkippedInput.Reason) -> Void
  ) throws(StageError) -> RemoteFind? {
    while seen.count < search.limit {
      if let picture = album.popFirst() {
        if let find = try find(picture, isMature: isAlbumMature, onSkip) { return find }
      } else if let entry = found.popFirst() {
        if entry["is_album"]?.boolValue ?? false {
          try open(album: entry, onSkip)
        } else if let find = try find(entry, isMature: false, onSkip) {
          return find
        }
      } else {
        guard !isAtEnd, page < search.pages else { return nil }
        found = try ask(path: "3/gallery/search/\(search.sort)/\(search.window)/\(page)", search.parameters)[...]
        page += 1
        isAtEnd = found.isEmpty
      }
    }
    return nil
  }

  /// An album's own list may be cut short; it tells how many there are.
  private func open(
    album entry: JSONNode, _ onSkip: (PathBytes, SkippedInput.Reason) -> Void
  ) throws(StageError) {
    isAlbumMature = entry["nsfw"]?.boolValue ?? false
    if isAlbumMature, !search.takesMature { return onSkip(PathBytes(entry["link"]?.stringValue ?? ""), .mature) }
    let images = entry["images"]?.arrayValue ?? []
    if !images.isEmpty, images.count >= entry["images_count"]?.numberValue?.integer ?? 0 {
      album = images[...]
      return
    }
    guard let id = entry["id"]?.stringValue, !id.isEmpty else {
      return onSkip(PathBytes(entry["link"]?.stringValue ?? ""), .noDirectLink)
    }
    album = try ask(path: "3/album/\(RequestURL.encoded(pathSegment: id))/images", [])[...]
  }

  private func find(
    _ picture: JSONNode, isMature: Bool, _ onSkip: (PathBytes, SkippedInput.Reason) -> Void
  ) throws(StageError) -> RemoteFind? {
    let link = picture["link"]?.stringValue ?? ""
    let type = picture["type"]?.stringValue ?? ""
    func skip(_ reason: SkippedInput.Reason) -> RemoteFind? {
      // Never a query: who knows what it holds.
      onSkip((try? RemoteSource.address(link).name) ?? PathBytes(picture["id"]?.stringValue ?? "?"), reason)
      return nil
    }
    if !search.takesMature, isMature || picture["nsfw"]?.boolValue ?? false { return skip(.mature) }
    if type.hasPrefix("video/") { return skip(.video) }
    // The link of a large one leads to a small version of it.
    if picture["animated"]?.boolValue ?? false { return skip(.animated) }
    guard type.hasPrefix("image/"), let (source, name) = try? RemoteSource.address(Self.encrypted(link)),
      let ending = name.fileExtension.string, InputDeclaration.pictureEndings.contains(ending.lowercased())
    else { return skip(.noDirectLink) }
    // Pages shift while they are read, and albums share pictures.
    guard seen.insert(source.location).inserted else { return skip(.foundBefore) }
    return RemoteFind(remote: source, name: name)
  }

  /// Older links come with http.
  private static func encrypted(_ link: String) -> String {
    guard link.hasPrefix("http://"), let url = try? RequestURL(link), url.host.hasSuffix("imgur.com") else {
      return link
    }
    return "https://" + link.dropFirst("http://".count)
  }

  // MARK: Asking

  private func ask(path: String, _ parameters: [ImgurSearch.Parameter]) throws(StageError) -> [JSONNode] {
    let response: Response
    do throws(ServiceFailure) {
      response = try caller.call(
        { _ throws(TransportError) in
          var url = try self.endpoint.appending(path: path)
          for parameter in parameters { url = try url.appending(query: parameter.name, parameter.value) }
          var request = Request(.get, url, headers: [self.authorization])
          request.maxAnswerBytes = 64 << 20
          request.timeouts = Timeouts(total: 120)
          return request
        }, repeats: .always, classify: Self.failure, pause: waitForService)
    } catch { throw StageError(error, of: "Imgur") }
    // Read once before, by the classification.
    let answer = try? JSONAnswer(response.body)
    return answer?.node(at: "/data")?.arrayValue ?? []
  }

  /// What an answer means. Imgur refuses in several shapes, and the status of the answer is not always the one meant.
  static let failure: Classifier = { response in
    guard let answer = try? JSONAnswer(response.body) else {
      // A page of what stands before Imgur, which turns clients away by the hour.
      if response.isSuccess || response.status == 403 {
        return ServiceFailure(
          .temporary, StandardClassifier.message(status: response.status, response.excerpt), status: response.status)
      }
      return StandardClassifier.classify(response)
    }
    if response.isSuccess, answer.bool(at: "/success") != false, answer.node(at: "/data")?.arrayValue != nil {
      return nil
    }
    let said = answer.integer(at: "/status") ?? answer.string(at: "/errors/0/code").flatMap { Int($0) }
    let status = response.isSuccess ? said ?? response.status : response.status
    let words =
      answer.string(at: "/data/error/message") ?? answer.string(at: "/data/error")
      ?? answer.string(at: "/errors/0/detail") ?? response.excerpt
    let isThrottled = status == 429 || words.lowercased().contains("over capacity") || words.contains("too fast")
    let kind: FailureKind =
      isThrottled ? .rate : status < 300 ? .temporary : StandardClassifier.kind(ofStatus: status) ?? .request
    return ServiceFailure(
      kind, StandardClassifier.message(status: response.status, words), status: response.status,
      wait: isThrottled ? ImgurListing.wait(response.headers) : nil)
  }

  /// Seconds until there are credits again.
  private static func wait(_ headers: Headers) -> Double? {
    let now = RetryAfter.wallClock()
    if let asked = RetryAfter.seconds(of: headers, now: now, resets: false) { return asked }
    var longest: Double?
    for kind in ["User", "Client"] {
      guard headers["X-RateLimit-\(kind)Remaining"].flatMap({ Double($0) }) ?? 0 < 1,
        let reset = headers["X-RateLimit-\(kind)Reset"], let wait = RetryAfter.seconds(ofReset: reset, now: now)
      else { continue }
      longest = max(longest ?? 0, wait)
    }
    return longest
  }
}
