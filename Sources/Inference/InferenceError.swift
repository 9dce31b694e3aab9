/// Why a model could not be used: what failed, on what, and what mends it.
public struct InferenceError: Error, Sendable, Hashable, CustomStringConvertible {
  public enum Code: String, Sendable {
    /// OpenVINO is not where it is looked for, or does not open.
    case runtimeMissing
    /// OpenVINO is there, in a version this program does not know.
    case runtimeVersion
    /// The model's file is not where it is looked for, or cannot be read.
    case modelMissing
    /// The model's file is not the one its recipe names.
    case checksum
    /// The file is no model, or not one that its recipe describes.
    case modelInvalid
    /// The model was fine and the inference failed.
    case failed
  }

  public let code: Code
  public let message: String
  /// What to do about it, or nil where nothing general can be said.
  public let hint: String?

  public init(_ code: Code, _ message: String, hint: String? = nil) {
    self.code = code
    self.message = message
    self.hint = hint
  }

  public var description: String { hint.map { "\(message) (\($0))" } ?? message }
}
