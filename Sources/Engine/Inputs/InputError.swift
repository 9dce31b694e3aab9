import JobSyntax
import PipelineKit

/// What is wrong with a declaration of inputs, or with a list or manifest it names.
public struct InputProblem: Sendable, Hashable {
  /// Stable names for machines.
  public enum Code: String, Sendable, Hashable, CaseIterable {
    /// A glob, folder, list or manifest yields nothing.
    case empty = "input-empty"
    /// A file or folder that is named does not exist.
    case missing = "input-missing"
    /// It exists and is of the wrong kind: a folder where a file belongs, a pipe.
    case wrongKind = "input-kind"
    /// It exists and cannot be read.
    case unreadable = "input-unreadable"
    case globSyntax = "glob-syntax"
    /// A list that cannot be understood: its encoding, or one of its lines.
    case list = "list-line"
    case manifestFormat = "manifest-format"
    case manifestColumn = "manifest-column"
    case manifestRow = "manifest-row"
    /// What is written for an address is none.
    case address = "input-address"
    /// A service does not tell what there is.
    case service = "input-service"
  }

  public var code: Code
  public var message: String
  public var hint: String?
  /// The place of the declaration, from 0.
  public var declaration: Int
  /// The place within `files`, from 0.
  public var element: Int?
  /// The list or manifest the problem is in.
  public var file: PathBytes?
  /// The line in `file`, from 1.
  public var line: Int?

  init(
    _ code: Code, _ message: String, hint: String? = nil, declaration: Int = 0, element: Int? = nil,
    file: PathBytes? = nil, line: Int? = nil
  ) {
    self.code = code
    self.message = message
    self.hint = hint
    self.declaration = declaration
    self.element = element
    self.file = file
    self.line = line
  }

  /// The problem as the linter's renderer takes it.
  ///
  /// - Parameters:
  ///   - path: where the declaration stands in the job, such as `$.input.files[2]`.
  ///   - source: the job file's name and the place in it, for problems that are not in a file of their own.
  public func diagnostic(path: String?, source: (file: String, range: SourceRange)? = nil) -> Diagnostic {
    var range = file == nil ? source?.range : nil
    if let line {
      let start = SourcePosition(offset: 0, line: line, column: 1)
      range = SourceRange(start: start, end: start)
    }
    return Diagnostic(
      severity: .error, code: code.rawValue, message: message, file: file?.printable ?? source?.file, range: range,
      path: path, hint: hint)
  }
}

/// Why inputs could not be read: one or more problems, never none.
public struct InputError: Error, Sendable, Hashable, CustomStringConvertible {
  public var problems: [InputProblem]

  init(_ problems: [InputProblem]) { self.problems = problems }

  init(_ problem: InputProblem) { problems = [problem] }

  public var description: String {
    problems.map { problem in
      let place = problem.file.map { $0.printable + (problem.line.map { ":\($0)" } ?? "") + ": " } ?? ""
      return place + problem.message + (problem.hint.map { " (\($0))" } ?? "")
    }.joined(separator: "\n")
  }
}
