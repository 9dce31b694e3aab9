import Digest
import Dispatch
import PipelineKit
import Transport

/// Which objects of a bucket are a job's pictures.
public struct BucketSearch: Sendable, Hashable {
  public var bucket: RemoteBucket
  /// What keys begin with; empty for all.
  public var prefix = ""
  /// Where set, keys that have it after the prefix are left out.
  public var delimiter: String?
  /// What keys end in, in any case; nil for the endings of pictures.
  public var suffixes: [String]?
  /// Whether keys may end in anything.
  public var takesAll = false

  public init(_ bucket: RemoteBucket) { self.bucket = bucket }
}

/// The objects of a bucket, in the order of their keys' bytes.
final class BucketListing: RemoteListing {
  private let search: BucketSearch
  private let client: S3Client
  private var page: ArraySlice<S3Object> = []
  private var token: String?
  private var isAtEnd = false

  var what: String { "the bucket \(search.bucket.name)" + (search.prefix.isEmpty ? "" : " below \(search.prefix)") }

  init(_ search: BucketSearch, _ services: ServiceResources) throws(StageError) {
    self.search = search
    client = try BucketAccess(search.bucket, services).client { waitForService($0) }
  }

  func next(
    onSkip: (_ name: PathBytes, _ reason: SkippedInput.Reason) -> Void
  ) throws(StageError) -> RemoteFind? {
    while true {
      while let object = page.popFirst() {
        let (remote, name) = RemoteSource.object(object.key, of: search.bucket.name, version: Self.version(of: object))
        // What consoles make for an empty folder.
        if object.key.hasSuffix("/") {
          onSkip(name, .folder)
        } else if !isWanted(object.key) {
          onSkip(name, .notAPicture)
        } else {
          return RemoteFind(remote: remote, name: name, directory: directory(of: name))
        }
      }
      guard !isAtEnd else { return nil }
      do throws(ServiceFailure) {
        let next = try client.page(prefix: search.prefix, delimiter: search.delimiter, token: token)
        page = next.objects[...]
        token = next.next
        isAtEnd = next.next == nil
      } catch {
        throw StageError(error, of: what)
      }
    }
  }

  private func isWanted(_ key: String) -> Bool {
    if search.takesAll { return true }
    let key = key.lowercased()
    if let suffixes = search.suffixes { return suffixes.contains { key.hasSuffix($0.lowercased()) } }
    let ending = PathBytes(key).fileExtension.string ?? ""
    return InputDeclaration.pictureEndings.contains(ending)
  }

  /// The part of a key's folder that the prefix does not say.
  private func directory(of name: PathBytes) -> PathBytes {
    let fixed =
      search.prefix.utf8.lastIndex(of: UInt8(ascii: "/")).map {
        search.prefix.utf8.distance(from: search.prefix.utf8.startIndex, to: $0) + 1
      } ?? 0
    let start = "s3://\(search.bucket.name)/".utf8.count + fixed
    guard let end = name.bytes.lastIndex(of: UInt8(ascii: "/")), end > start else { return PathBytes(bytes: []) }
    return PathBytes(bytes: Array(name.bytes[start..<end]))
  }

  /// What the listing says of the content. A tag is as good as a file's times: it changes with the bytes.
  private static func version(of object: S3Object) -> FileStamp? {
    guard let tag = object.etag else { return nil }
    func number(_ text: String) -> Int64 {
      SHA256.digest(of: Array(text.utf8)).prefix(8).reduce(into: Int64(0)) { $0 = $0 << 8 | Int64($1) }
    }
    return FileStamp(size: Int64(object.size), modified: number(tag), changed: number(object.modified ?? ""))
  }
}

/// Waits so many seconds: there is nothing else to do before the inputs are known.
func waitForService(_ seconds: Double) {
  _ = DispatchSemaphore(value: 0).wait(timeout: .now() + max(0, seconds))
}
