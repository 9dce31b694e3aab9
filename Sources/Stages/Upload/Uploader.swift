import Digest
import Imaging
import JobSyntax
import PipelineKit

/// One service that pictures can be sent to: its fields, its rules, and what sends.
///
/// A provider is one file. Its fields stand beside those of the others in the stage's settings, under the condition that
/// `provider` names it; a name that several providers use is declared once, in `UploadFields`.
protocol UploadProvider: Sendable {
  /// As jobs call it.
  static var name: String { get }
  /// One line for the reference page.
  static var help: String { get }
  static var fields: [any FieldDeclaration] { get }
  /// Rules that involve several fields; needs no network and no credential.
  static func check(_ settings: Settings) -> [Diagnostic]
  /// How many pictures are sent at once unless the job says.
  static var concurrency: Int? { get }

  /// - Throws: `environment-unset` where a credential is missing, and other errors of class environment or job.
  init(_ settings: Settings, resources: StageResources) throws(StageError)

  /// Makes a picture ready to be sent, on the compute lane: with all that needs pixels or much arithmetic.
  func prepare(_ encoded: Item.Encoded, for item: Item, in context: StageContext) throws(StageError) -> PreparedUpload

  /// What looks after what was sent; nil where the service offers nothing for it.
  var receiptKeeper: (any ReceiptKeeper)? { get }
}

extension UploadProvider {
  static var concurrency: Int? { nil }
  static func check(_ settings: Settings) -> [Diagnostic] { [] }
  var receiptKeeper: (any ReceiptKeeper)? { nil }
}

/// A picture that is ready to be sent.
struct PreparedUpload: Sendable {
  /// What is sent: another encoding than the stage got, where the service needs one.
  var encoded: Item.Encoded
  /// Where it goes and how, without credentials: two uploads of one picture with the same text are the same upload.
  var target: String
  /// Whether sending it again changes nothing, as with PUT.
  var isRepeatable: Bool
  /// Sends it, on the network lane, with all repetitions that are harmless. What it throws means that nothing has
  /// arrived.
  var send: @Sendable (StageContext) throws(StageError) -> UploadResult
}
