import Glibc

/// Fetches models into the models folder: resumed where it was cut off, checked before the file gets its name.
///
/// What goes over the network is someone else's part (`ModelFetch`). What was fetched so far stands in `FILE.part`, and
/// what tells the server's version of it in `FILE.part.tag`; a later call goes on from there.
public struct ModelStore: Sendable {
  /// One request for a file, or the rest of it.
  public struct Request: Sendable, Hashable {
    public var url: String
    /// The first byte wanted; above 0 the answer should be a part.
    public var offset: Int
    /// The entity tag or date that the part here was fetched under, for `If-Range`; nil where none is known.
    public var validator: String?

    public init(url: String, offset: Int, validator: String?) {
      self.url = url
      self.offset = offset
      self.validator = validator
    }
  }

  /// The head of the answer.
  public struct Answer: Sendable, Hashable {
    /// 200, 206 or 416; anything else is an error of the fetch.
    public var status: Int
    /// The first byte that comes, of a part.
    public var start: Int?
    /// Bytes of the whole file, where the server says so.
    public var total: Int?
    /// A strong entity tag, else the date of the last change, as the server wrote it.
    public var validator: String?

    public init(status: Int, start: Int? = nil, total: Int? = nil, validator: String? = nil) {
      self.status = status
      self.start = start
      self.total = total
      self.validator = validator
    }
  }

  /// Why a fetch ended before its time.
  public struct FetchError: Error, Sendable, Hashable {
    public var message: String
    /// The connection broke: asking again for the rest may work.
    public var isInterruption: Bool

    public init(_ message: String, isInterruption: Bool = false) {
      self.message = message
      self.isInterruption = isInterruption
    }
  }

  /// Sends a request; calls `head` once and then `body` for each piece, and ends early, without an error, as soon as
  /// one of them answers false.
  public typealias Fetch =
    @Sendable (
      _ request: Request, _ head: (Answer) -> Bool, _ body: (UnsafeRawBufferPointer) -> Bool
    ) throws(FetchError) -> Void

  /// How far a download has come.
  public struct Progress: Sendable, Hashable {
    public var received: Int
    /// nil while the server has not said.
    public var total: Int?
  }

  public enum Outcome: Sendable, Hashable {
    case fetched
    /// The file was there already, and is the right one as far as that can be known.
    case present
  }

  private let home: PipelineHome
  /// Replaces every address: `MIRROR/FILE`.
  private let mirror: String?
  private let fetch: Fetch

  /// Requests for one file, as long as each brings the file further.
  private static let mostRequests = 20

  public init(home: PipelineHome = .current, mirror: String? = nil, fetch: @escaping Fetch) {
    self.home = home
    self.mirror = mirror.flatMap { $0.isEmpty ? nil : $0 }
    self.fetch = fetch
  }

  /// Where a model's file is fetched from; nil where no address is known.
  public func address(of recipe: ModelRecipe) -> String? {
    guard let mirror else { return recipe.url }
    return mirror + (mirror.hasSuffix("/") ? "" : "/") + recipe.fileName
  }

  /// Fetches a model's file unless it is there.
  ///
  /// Throws `modelMissing` when it could not be fetched, `checksum` when what came is not the model (nothing is kept of
  /// it then), `failed` when the disk is full.
  ///
  /// - Parameters:
  ///   - waiting: told, once, that another process fetches the same file and is waited for.
  ///   - progress: told of each piece.
  public func pull(
    _ recipe: ModelRecipe, waiting: () -> Void = {}, progress: (Progress) -> Void = { _ in }
  ) throws(InferenceError) -> Outcome {
    if try isPresent(recipe) { return .present }
    guard let url = address(of: recipe) else {
      throw InferenceError(
        .modelMissing, "model \(recipe.name): no address of its file is known", hint: recipe.note)
    }
    if let mirror, mirror.contains(where: { $0 == "?" || $0 == "#" }) {
      throw InferenceError(
        .modelMissing, "model \(recipe.name): the mirror's address holds a query or a fragment",
        hint: "files are fetched from MIRROR/FILE, so it names a folder")
    }
    try ModelFiles.makeFolders(home.models)
    let path = home.models + "/" + recipe.fileName
    let lockPath = home.models + "/.\(recipe.fileName).lock"
    if let lock = try FileLock(lockPath, waits: false) {
      return try fetchLocked(recipe, url, path, lock, progress)
    }
    waiting()
    guard let lock = try FileLock(lockPath) else { return .present }
    return try fetchLocked(recipe, url, path, lock, progress)
  }

  private func isPresent(_ recipe: ModelRecipe) throws(InferenceError) -> Bool {
    guard let path = try? ModelCatalogue.locate(recipe, home: home) else { return false }
    let digest = try FileDigest.ofFile(path)
    try recipe.check(digest, of: path)
    if !recipe.hasChecksum { try ModelPins(home).check(digest, of: recipe, file: path) }
    return true
  }

  private func fetchLocked(
    _ recipe: ModelRecipe, _ url: String, _ path: String, _ lock: FileLock, _ progress: (Progress) -> Void
  ) throws(InferenceError) -> Outcome {
    defer { withExtendedLifetime(lock) {} }
    // Whoever held the lock before may have fetched it.
    if try isPresent(recipe) { return .present }
    let part = PartFile(path + ".part")
    try part.open()
    defer { part.close() }
    try receive(recipe, url, part, progress)
    try part.flush()
    let digest = try FileDigest.ofFile(part.path)
    do throws(InferenceError) {
      try recipe.check(digest, of: Self.shown(url))
      if !recipe.hasChecksum { try ModelPins(home).compare(digest, of: recipe, file: Self.shown(url)) }
    } catch {
      part.remove()
      throw InferenceError(
        error.code, "what came is not the model: " + error.message,
        hint: "nothing was kept; " + (mirror == nil ? "the publisher may have replaced the file" : "look at the mirror")
      )
    }
    guard rename(part.path, path) == 0 else { throw ModelFiles.failure("cannot put \(path) in place", errno) }
    part.forgetTag()
    ModelFiles.flushFolder(of: path)
    if !recipe.hasChecksum { try ModelPins(home).check(digest, of: recipe, file: path) }
    return .fetched
  }

  /// Asks until the whole file is in the part file.
  private func receive(
    _ recipe: ModelRecipe, _ url: String, _ part: PartFile, _ progress: (Progress) -> Void
  ) throws(InferenceError) {
    // Bytes of a file that nothing vouches for can't be told from those of another version.
    if part.size > 0, part.tag == nil, !recipe.hasChecksum { try part.truncate() }
    var requests = 0
    var hasRestarted = false
    while true {
      requests += 1
      let before = part.size
      var answer: Answer?
      var problem: InferenceError?
      var isRefused = false
      var isWhole = false
      do throws(FetchError) {
        let request = Request(url: url, offset: before, validator: before > 0 ? part.tag : nil)
        try fetch(request) { head in
          answer = head
          do throws(InferenceError) {
            switch head.status {
            case 206 where head.start == part.size: break
            case 200:
              // The server knows no ranges, or has another version by now.
              if part.size > 0 { try part.truncate() }
            case 416 where head.total == part.size && part.size > 0:
              isWhole = true
              return false
            default:
              isRefused = true
              return false
            }
            try part.remember(tag: head.validator)
            if let total = head.total { try part.checkRoom(for: total - part.size) }
          } catch {
            problem = error
            return false
          }
          progress(Progress(received: part.size, total: head.total))
          return true
        } _: { bytes in
          if let total = answer?.total, part.size + bytes.count > total {
            isRefused = true
            return false
          }
          do throws(InferenceError) { try part.append(bytes) } catch {
            problem = error
            return false
          }
          progress(Progress(received: part.size, total: answer?.total))
          return true
        }
      } catch {
        guard error.isInterruption, part.size > before, requests < Self.mostRequests else {
          throw interrupted(recipe, url, part, answer?.total, error.message)
        }
        continue
      }
      if let problem { throw problem }
      if isRefused {
        // What is here does not go with what the server has: once more, from the beginning.
        guard !hasRestarted else {
          throw InferenceError(
            .modelMissing, "model \(recipe.name): \(Self.shown(url)) gave an answer that makes no sense",
            hint: "another try from the beginning did not help; the server may be at fault")
        }
        hasRestarted = true
        try part.truncate()
        continue
      }
      if isWhole { return }
      if let total = answer?.total, part.size < total {
        guard part.size > before, requests < Self.mostRequests else {
          throw interrupted(recipe, url, part, total, "the connection was closed")
        }
        continue
      }
      guard part.size > 0 else {
        throw InferenceError(.modelMissing, "model \(recipe.name): \(Self.shown(url)) is empty")
      }
      return
    }
  }

  /// An address for messages: without the user and password that someone may have put into a mirror's.
  private static func shown(_ url: String) -> String {
    let start = url.firstRange(of: "://").map(\.upperBound) ?? url.startIndex
    guard let at = url[start...].prefix(while: { $0 != "/" }).lastIndex(of: "@") else { return url }
    return url[..<start] + "•••" + url[at...]
  }

  private func interrupted(
    _ recipe: ModelRecipe, _ url: String, _ part: PartFile, _ total: Int?, _ reason: String
  ) -> InferenceError {
    var message = "model \(recipe.name) could not be fetched from \(Self.shown(url)): \(reason)"
    guard part.size > 0 else { return InferenceError(.modelMissing, message) }
    message += "; \(part.size) bytes" + (total.map { " of \($0)" } ?? "") + " are here"
    return InferenceError(.modelMissing, message, hint: "run it again to go on from there")
  }
}

/// What was fetched so far. Used by one thread, under the file's lock.
private final class PartFile {
  let path: String
  private(set) var size = 0
  /// What the server called its version of the file.
  private(set) var tag: String?
  private var descriptor: Int32 = -1

  init(_ path: String) { self.path = path }

  deinit { close() }

  func open() throws(InferenceError) {
    descriptor = Glibc.open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o644)
    guard descriptor >= 0 else { throw ModelFiles.failure("cannot write \(path)", errno) }
    let end = lseek(descriptor, 0, SEEK_END)
    guard end >= 0 else { throw ModelFiles.failure("cannot write \(path)", errno) }
    size = Int(end)
    tag = try ModelFiles.read(path + ".tag").map { String(decoding: $0, as: UTF8.self) }
  }

  func close() {
    if descriptor >= 0 { Glibc.close(descriptor) }
    descriptor = -1
  }

  func append(_ bytes: UnsafeRawBufferPointer) throws(InferenceError) {
    if let number = ModelFiles.write(bytes, to: descriptor) {
      throw ModelFiles.failure("cannot write \(path)", number)
    }
    size += bytes.count
  }

  func truncate() throws(InferenceError) {
    guard ftruncate(descriptor, 0) == 0, lseek(descriptor, 0, SEEK_SET) == 0 else {
      throw ModelFiles.failure("cannot write \(path)", errno)
    }
    size = 0
    forgetTag()
  }

  func remember(tag: String?) throws(InferenceError) {
    guard tag != self.tag else { return }
    forgetTag()
    if let tag { try ModelFiles.write(Array(tag.utf8), to: path + ".tag") }
    self.tag = tag
  }

  func forgetTag() {
    unlink(path + ".tag")
    tag = nil
  }

  /// Throws `failed` when the file system has fewer bytes free.
  func checkRoom(for bytes: Int) throws(InferenceError) {
    var space = statvfs()
    guard fstatvfs(descriptor, &space) == 0, space.f_frsize > 0 else { return }
    let (free, overflow) = UInt64(space.f_bavail).multipliedReportingOverflow(by: UInt64(space.f_frsize))
    guard !overflow, bytes > 0, free < UInt64(bytes) else { return }
    throw InferenceError(
      .failed, "cannot write \(path): \(bytes) bytes are still to come and \(free) are free",
      hint: "free some space and run it again")
  }

  func flush() throws(InferenceError) {
    guard fsync(descriptor) == 0 else { throw ModelFiles.failure("cannot flush \(path) to the disk", errno) }
  }

  func remove() {
    close()
    unlink(path)
    forgetTag()
  }
}
