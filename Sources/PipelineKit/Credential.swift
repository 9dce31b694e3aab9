import Glibc
import JobSyntax
import Transport

/// A credential as a job names it: text with `${secret.NAME}`, filled in from the environment when a run needs it.
public struct Credential: Sendable, Hashable {
  public let template: Template

  public init(_ template: Template) { self.template = template }

  /// The names of the environment variables that it is made of.
  public var names: [String] {
    template.variables.compactMap { if case .secret(let name) = $0 { name } else { nil } }
  }

  /// Whether the job itself holds the credential, or a part of it that is more than a word such as `Bearer`.
  var isWrittenOut: Bool { names.isEmpty }

  /// The value. From then on it appears nowhere: `Secrets` knows it.
  ///
  /// - Throws: `environment-unset` where the environment lacks it.
  public func reveal(_ environment: (String) -> String? = Credential.processEnvironment) throws(StageError) -> String {
    var missing: String?
    let bytes = template.render { variable in
      guard case .secret(let name) = variable, let value = environment(name), !value.isEmpty else {
        missing = variable.name
        return nil
      }
      Secrets.register(value)
      // Of a key that was read from a file, the line's end comes along.
      var bytes = Array(value.utf8)
      while let last = bytes.last, last == UInt8(ascii: "\n") || last == UInt8(ascii: "\r") { bytes.removeLast() }
      return bytes
    }
    guard let bytes else {
      throw StageError(
        "environment-unset", "${\(missing ?? "")} is not set in the environment, or empty", kind: .environment)
    }
    let text = String(decoding: bytes, as: UTF8.self)
    guard !bytes.contains(where: { $0 < 0x20 || $0 == 0x7F }), bytes.contains(where: { $0 != UInt8(ascii: " ") }) else {
      throw StageError(
        "credential-value",
        "\(names.map { "${secret.\($0)}" }.joined(separator: ", ")) holds a line break or another "
          + "control character, or nothing but spaces", kind: .environment)
    }
    if isWrittenOut { Secrets.register(text) }
    return text
  }

  public static let processEnvironment: @Sendable (String) -> String? = { name in
    getenv(name).map { String(cString: $0) }
  }
}

extension Field where Value == Credential? {
  /// A credential: the one kind of field in which `${secret.NAME}` may stand.
  public static func credential(_ name: String, when condition: FieldCondition? = nil, help: String) -> Self {
    .init(name, type: .text(.credential), absent: .some(nil), when: condition, help: help) { node, _ in
      node.stringValue.flatMap { Template.parse($0).template }.map { .some(Credential($0)) }
    }
  }
}

extension Field where Value == Credential {
  public static func requiredCredential(_ name: String, when condition: FieldCondition? = nil, help: String) -> Self {
    .init(name, type: .text(.credential), absent: nil, when: condition, help: help) { node, _ in
      node.stringValue.flatMap { Template.parse($0).template }.map { Credential($0) }
    }
  }
}
