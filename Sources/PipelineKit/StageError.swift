/// What kind of trouble an error is: exit codes, retry and fallback are derived from this and from nothing else.
public enum ErrorClass: String, Sendable, Hashable {
  /// The command line was wrong.
  case usage
  /// The job file was wrong.
  case job
  /// This machine or its settings lack something: a library, a model, a credential, a writable folder.
  case environment
  /// This one picture cannot be processed; others can.
  case item
  /// Worth trying again later.
  case temporary
  /// A limit the job set was reached.
  case budget
}

/// The one error a stage throws: what failed, on what, and what may help.
public struct StageError: Error, Sendable, Hashable, CustomStringConvertible {
  /// Stable, kebab-case; goes into the report.
  public var code: String
  /// A whole sentence without a full stop at its end, for people. Names what failed and on what.
  public var message: String
  public var kind: ErrorClass
  /// What a library said; detail, never the only explanation.
  public var cause: String?
  /// What to try.
  public var hint: String?

  public init(
    _ code: String, _ message: String, kind: ErrorClass = .item, cause: String? = nil, hint: String? = nil
  ) {
    self.code = code
    self.message = message
    self.kind = kind
    self.cause = cause
    self.hint = hint
  }

  /// Message, cause and hint in one line.
  public var description: String {
    var text = message
    if let cause, !cause.isEmpty { text += " (\(cause))" }
    if let hint, !hint.isEmpty { text += "; \(hint)" }
    return text
  }
}

/// Something a run should mention about an item that still succeeded.
public struct ItemWarning: Sendable, Hashable {
  public var code: String
  public var stage: String
  public var message: String

  public init(code: String, stage: String, message: String) {
    self.code = code
    self.stage = stage
    self.message = message
  }
}
