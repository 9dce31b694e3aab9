import Digest
import Transport

/// Where a picture lies that is no file here: it is fetched when its turn has come.
public struct RemoteSource: Sendable, Hashable {
  public enum Kind: UInt8, Sendable {
    case address = 1
    case object = 2
  }

  public let kind: Kind
  /// The whole address, whose query may hold secrets; or an object's key in the bucket that the job names.
  public let location: String
  /// What a listing says of an object's content, in the form that files have: bytes, the hash of its entity tag, and that
  /// of its time. Nil where nothing is known before it is fetched.
  public let version: FileStamp?

  public init(_ kind: Kind, _ location: String, version: FileStamp? = nil) {
    self.kind = kind
    self.location = location
    self.version = version
  }

  /// A picture at an address, and what it is called. Characters outside ASCII are percent-encoded, as browsers do.
  ///
  /// - Throws: `address` for what is none, without naming it.
  public static func address(_ text: String) throws(TransportError) -> (source: RemoteSource, name: PathBytes) {
    var clean = text
    if text.utf8.contains(where: { $0 >= 0x80 }) {
      clean = text.unicodeScalars.reduce(into: "") { result, scalar in
        result += scalar.isASCII ? String(scalar) : RequestURL.encoded(pathSegment: String(scalar))
      }
    }
    let url = try RequestURL(clean)
    return (RemoteSource(.address, clean), name(of: url))
  }

  /// Whether a text is an address rather than a path.
  public static func isAddress(_ bytes: some Collection<UInt8>) -> Bool {
    ["http://", "https://"].contains { start in
      bytes.count >= start.utf8.count && zip(bytes, start.utf8).allSatisfy { $0 | 0x20 == $1 | 0x20 }
    }
  }

  /// The longest address taken, in bytes.
  public static let longestAddress = 1 << 16

  /// An object of a bucket, and what it is called.
  public static func object(
    _ key: String, of bucket: String, version: FileStamp?
  ) -> (source: RemoteSource, name: PathBytes) {
    let path = key.utf8.split(separator: slash, omittingEmptySubsequences: false).map { harmless(Array($0)) }
    return (
      RemoteSource(.object, key, version: version),
      PathBytes(bytes: Array("s3://\(bucket)/".utf8) + Array(path.joined(separator: [slash])))
    )
  }

  private static let slash = UInt8(ascii: "/")

  /// What people, reports and templates call it: the address without its query, decoded, so that its last part is a
  /// file's name and no part leads anywhere.
  static func name(of url: RequestURL) -> PathBytes {
    var parts = url.path.split(separator: "/", omittingEmptySubsequences: false).dropFirst().map { part in
      harmless(PercentCoding.decoded(part))
    }
    if parts == [[]] { parts = [Array("index".utf8)] }
    return PathBytes(bytes: Array(url.origin.utf8) + [slash] + Array(parts.joined(separator: [slash])))
  }

  /// A part of a path that is a name, whoever has chosen it.
  private static func harmless(_ part: [UInt8]) -> [UInt8] {
    let clean = part.map { $0 < 0x20 || $0 == 0x7F || $0 == slash ? UInt8(ascii: "_") : $0 }
    let isDots = clean.elementsEqual(".".utf8) || clean.elementsEqual("..".utf8)
    return isDots ? clean.map { _ in UInt8(ascii: "_") } : clean
  }

  /// What tells it from others of the same name: a hash, since an address may hold what nobody is to see. Nil where the
  /// name says all.
  public func mark(beside name: PathBytes) -> [UInt8]? {
    let location = Array(location.utf8)
    switch kind {
    case .address where name.bytes == location: return nil
    case .object where name.bytes.count > location.count && name.bytes.suffix(location.count) == location[...]:
      return nil
    case .address, .object: return Array(Hex.text(SHA256.digest(of: location).prefix(16)).utf8)
    }
  }
}

extension PathBytes {
  /// Whether it is the name of a picture that is no file here.
  public var isRemoteName: Bool {
    RemoteSource.isAddress(bytes) || bytes.starts(with: "s3://".utf8)
  }
}
