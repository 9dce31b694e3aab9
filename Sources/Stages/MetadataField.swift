import Imaging
import JobSyntax
import PipelineKit

/// The fields of a stage that writes files which say what metadata these carry.
public enum MetadataField {
  /// `"metadata"`: `"none"`, `"copyright"`, `"all"`, or a list of kinds.
  public static let keep = Field<MetadataKeep>(
    "metadata",
    type: .oneOf([
      .choice(MetadataPolicy.allCases.map { Choice($0.rawValue, $0.help) }),
      .array(
        .choice(MetadataKind.allCases.map { Choice($0.rawValue, $0.help) }), count: 1...MetadataKind.allCases.count),
    ]), absent: .copyright, defaultText: .string(MetadataPolicy.copyright.rawValue),
    help: "what the file tells besides pixels; a list picks kinds, and only a list with `gps` keeps coordinates"
  ) { node, _ in
    if let names = node.arrayValue {
      let kinds = names.compactMap { $0.stringValue.flatMap(MetadataKind.init(rawValue:)) }
      return kinds.count == names.count ? MetadataKeep(Set(kinds)) : nil
    }
    return node.stringValue.flatMap(MetadataPolicy.init(rawValue:))?.keep
  }

  static let copyright = Field<Template?>.text(
    "copyright", help: "the copyright notice: EXIF Copyright, XMP dc:rights")
  static let creator = Field<Template?>.text("creator", help: "who made the picture: EXIF Artist, XMP dc:creator")
  static let description = Field<Template?>.text(
    "description", help: "what the picture shows: EXIF ImageDescription, XMP dc:description")
  static let title = Field<Template?>.text("title", help: "a short name: XMP dc:title")
  static let credit = Field<Template?>.text("credit", help: "the credit line: XMP photoshop:Credit")

  /// `"set"`: texts written over what there was.
  public static let set = Field<Settings?>.optionalObject(
    "set",
    ObjectShape(
      [copyright, creator, description, title, credit],
      atLeastOne: ["copyright", "creator", "description", "title", "credit"]),
    help: "texts that are written into the file over what there was, whatever \"metadata\" keeps; one that comes out "
      + "empty for a picture leaves what there was")
}

/// The texts of `"set"`, to be filled in for each item.
public struct MetadataTemplates: Sendable {
  private var copyright: Template?
  private var creator: Template?
  private var description: Template?
  private var title: Template?
  private var credit: Template?

  /// - Parameter settings: what `MetadataField.set` read; nil where the job has none.
  public init(_ settings: Settings?) {
    guard let settings else { return }
    copyright = settings[MetadataField.copyright]
    creator = settings[MetadataField.creator]
    description = settings[MetadataField.description]
    title = settings[MetadataField.title]
    credit = settings[MetadataField.credit]
  }

  /// The texts for one item; an empty one counts as not given, so that an empty cell of a manifest erases nothing.
  public func rendered(for item: Item, in context: StageContext) throws(StageError) -> MetadataValues {
    func text(_ template: Template?) throws(StageError) -> String? {
      guard let template else { return nil }
      let text = String(decoding: try context.render(template, for: item), as: UTF8.self)
      return text.utf8.allSatisfy { $0 <= 0x20 } ? nil : text
    }
    return MetadataValues(
      copyright: try text(copyright), creator: try text(creator), description: try text(description),
      title: try text(title), credit: try text(credit))
  }
}

extension Field where Value == Template? {
  fileprivate static func text(_ name: String, help: String) -> Self {
    .init(name, type: .text(.template), absent: .some(nil), help: help) { node, _ in
      node.stringValue.flatMap { Template.parse($0).template }.map { .some($0) }
    }
  }
}

extension MetadataKind: FieldChoice {
  public var help: String {
    switch self {
    case .copyright: "copyright notice, terms of use, licence"
    case .creator: "photographer and how to reach them"
    case .credit: "credit line and source"
    case .description: "title, headline, caption, alternative text"
    case .keywords: "keywords, categories, rating"
    case .dates: "when it was taken, digitised and changed"
    case .camera: "make, model and serial number of the camera, and its owner"
    case .lens: "lens, focal length, widest aperture"
    case .exposure: "exposure time, aperture, sensitivity, flash and the like"
    case .place: "city, region and country as text"
    case .gps: "coordinates; kept by this alone"
    case .exif: "all of EXIF but coordinates, maker note and thumbnail"
    case .xmp: "all of XMP but coordinates and thumbnails"
    case .iptc: "all of IPTC; in formats without it, as XMP"
    case .comments: "user comment, and the texts of a PNG (only in PNG); not the comment of a JPEG"
    case .all: "everything but coordinates"
    }
  }
}
