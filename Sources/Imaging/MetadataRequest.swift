/// A kind of metadata that can be kept.
///
/// The first kinds go by subject and pick the properties about it out of EXIF, XMP, IPTC and PNG comments. `exif`, `xmp`,
/// `iptc` and `comments` keep a whole block, without coordinates. Coordinates are kept by `gps` alone.
public enum MetadataKind: String, CaseIterable, Sendable, Hashable {
  case copyright, creator, credit, description, keywords, dates, camera, lens, exposure, place, gps
  case exif, xmp, iptc, comments
  case all
}

/// Which metadata of the source an encoded picture keeps.
///
/// Whatever is kept, what would be stale is not: orientation is 1, embedded thumbnails, maker notes (their offsets break
/// when EXIF is written anew), gain-map and motion-photo pointers go, and sides and colour space are those of the
/// result.
public struct MetadataKeep: Sendable, Hashable {
  public var kinds: Set<MetadataKind>

  public init(_ kinds: Set<MetadataKind>) { self.kinds = kinds }

  /// Nothing.
  public static let none = MetadataKeep([])
  /// Copyright, creator and credit line.
  public static let copyright = MetadataKeep([.copyright, .creator, .credit])
  /// Everything but coordinates; names of places, which are text, stay.
  public static let all = MetadataKeep([.all])

  /// Whether something about `subjects` that stands in the block `container` is kept.
  func keeps(_ subject: MetadataKind?, in container: MetadataKind) -> Bool {
    if subject == .gps { return kinds.contains(.gps) }
    if kinds.contains(.all) || kinds.contains(container) { return true }
    return subject.map { kinds.contains($0) } ?? false
  }
}

/// Texts that are written into an encoded picture, over what was there.
///
/// nil leaves a property as it is; an empty text takes it out.
public struct MetadataValues: Sendable, Hashable {
  /// EXIF Copyright; XMP dc:rights, with xmpRights:Marked; IPTC 2:116.
  public var copyright: String?
  /// EXIF Artist; XMP dc:creator; IPTC 2:80.
  public var creator: String?
  /// EXIF ImageDescription; XMP dc:description; IPTC 2:120.
  public var description: String?
  /// XMP dc:title; IPTC 2:05.
  public var title: String?
  /// XMP photoshop:Credit; IPTC 2:110.
  public var credit: String?

  public init(
    copyright: String? = nil, creator: String? = nil, description: String? = nil, title: String? = nil,
    credit: String? = nil
  ) {
    self.copyright = copyright
    self.creator = creator
    self.description = description
    self.title = title
    self.credit = credit
  }

  public var isEmpty: Bool { self == MetadataValues() }

  /// Whether one of them is a text to be written.
  var hasText: Bool { [copyright, creator, description, title, credit].contains { $0?.isEmpty == false } }
}

/// What metadata an encoded picture carries.
public struct MetadataRequest: Sendable, Hashable {
  public var keep: MetadataKeep
  public var set: MetadataValues

  public init(keep: MetadataKeep = .copyright, set: MetadataValues = MetadataValues()) {
    self.keep = keep
    self.set = set
  }

  public init(_ policy: MetadataPolicy) { self.init(keep: policy.keep) }
}

/// The usual choices of metadata.
public enum MetadataPolicy: String, CaseIterable, Sendable {
  /// Nothing at all; a profile only where the pixels are not sRGB.
  case none
  /// Copyright, author, credit line and colour profile; place, device, dates and thumbnails go.
  case copyright
  /// Everything but coordinates.
  case all

  public var keep: MetadataKeep {
    switch self {
    case .none: .none
    case .copyright: .copyright
    case .all: .all
    }
  }
}
