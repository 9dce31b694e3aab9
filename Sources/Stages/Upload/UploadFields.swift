import JobSyntax
import PipelineKit

/// Fields that more than one provider of `upload` has.
enum UploadFields {
  static let endpoint = Field<String?>.text(
    "endpoint", when: FieldCondition("provider", in: ["s3"]),
    help: "the service's address, for one of your own or another than the usual one")
  static let contentType = Field<String?>.text(
    "contentType", when: FieldCondition("provider", in: ["s3", "presigned"]),
    help: "the media type that is sent; that of the picture's format when left out")
  static let cacheControl = Field<String?>.text(
    "cacheControl", when: FieldCondition("provider", in: ["s3"]),
    help: "Cache-Control that the picture is given out with, such as max-age=31536000, immutable")
  static let contentDisposition = Field<String?>.text(
    "contentDisposition", when: FieldCondition("provider", in: ["s3"]),
    help: "Content-Disposition that the picture is given out with")

  static let shared: [any FieldDeclaration] = [endpoint, contentType, cacheControl, contentDisposition]

  /// Headers must hold no line break, or they would be several.
  static func check(_ settings: Settings) -> [Diagnostic] {
    [contentType, cacheControl, contentDisposition].compactMap { field in
      guard let text = settings[field], text.isEmpty || !text.utf8.allSatisfy({ (0x20...0x7E).contains($0) }) else {
        return nil
      }
      return settings.diagnostic(
        .error, "wrong-value", at: field, "\"\(field.name)\" expects text in ASCII, not empty, for a header")
    }
  }
}
