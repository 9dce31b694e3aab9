/// One finding: what is wrong, where, and what may help.
///
/// `message` stands alone and reads "expected …, for which field, found …"; `expected` and `found` repeat its two
/// halves for machines.
public struct Diagnostic: Sendable, Hashable {
  public enum Severity: String, Sendable, CaseIterable, Comparable {
    case error, warning, note

    /// The graver comes first.
    public static func < (a: Severity, b: Severity) -> Bool { a.rank < b.rank }

    private var rank: Int {
      switch self {
      case .error: 0
      case .warning: 1
      case .note: 2
      }
    }
  }

  public var severity: Severity
  /// A stable name for this kind of finding, in kebab case.
  public var code: String
  public var message: String
  /// The name of the source file, as in `SourceFile.name`.
  public var file: String?
  public var range: SourceRange?
  /// The place in the document, as `$.stages[2].width`.
  public var path: String?
  public var expected: String?
  public var found: String?
  public var hint: String?

  public init(
    severity: Severity = .error, code: String, message: String, file: String? = nil, range: SourceRange? = nil,
    path: String? = nil, expected: String? = nil, found: String? = nil, hint: String? = nil
  ) {
    self.severity = severity
    self.code = code
    self.message = message
    self.file = file
    self.range = range
    self.path = path
    self.expected = expected
    self.found = found
    self.hint = hint
  }

  /// A finding about a value: file, range and path are taken from where it was read.
  public init(
    severity: Severity = .error, code: String, message: String, at node: JSONNode, in file: String,
    expected: String? = nil, found: String? = nil, hint: String? = nil
  ) {
    self.init(
      severity: severity, code: code, message: message, file: file, range: node.range, path: node.path,
      expected: expected, found: found, hint: hint)
  }
}

extension Sequence<Diagnostic> {
  /// Whether any finding is an error.
  public var hasErrors: Bool { contains { $0.severity == .error } }

  /// The findings by file and place, those without a place first; equal places keep their order.
  public func sortedByPlace() -> [Diagnostic] {
    enumerated().sorted { a, b in
      let (left, right) = (a.element, b.element)
      if left.file != right.file { return (left.file ?? "") < (right.file ?? "") }
      switch (left.range?.start, right.range?.start) {
      case (let l?, let r?) where (l.line, l.column) != (r.line, r.column):
        return (l.line, l.column) < (r.line, r.column)
      case (nil, _?): return true
      case (_?, nil): return false
      default: return a.offset < b.offset
      }
    }.map(\.element)
  }
}
