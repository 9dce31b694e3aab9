import JobSyntax
import PipelineKit

/// Fields that more than one provider of `upload` has.
enum UploadFields {
  static let shared: [any FieldDeclaration] = []
}
