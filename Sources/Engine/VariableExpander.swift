import JobSyntax
import PipelineKit

/// Fills `${vars.NAME}` and `${env.NAME}` into a job's values before anything else looks at them.
///
/// A string that is exactly one `${vars.x}` becomes the variable's value with its JSON type; inside a longer text only
/// strings, numbers and booleans can stand. What varies by item (`${item.…}` and the like) is left for later.
struct VariableExpander {
  let file: String
  let environment: (String) -> String?
  private let declared: [String: JSONNode]
  private let overrides: [String: JSONValue]
  private(set) var diagnostics: [Diagnostic] = []
  /// JSON paths of values that could not be filled in.
  private(set) var poisoned: Set<String> = []
  private var resolving: [String] = []

  init(
    file: String, vars: JSONNode?, overrides: [String: JSONValue], environment: @escaping (String) -> String?
  ) {
    self.file = file
    self.environment = environment
    self.overrides = overrides
    declared = Dictionary(
      (vars?.objectValue ?? []).map { ($0.key, $0.value) }, uniquingKeysWith: { first, _ in first })
  }

  mutating func expand(_ node: JSONNode) -> JSONNode {
    var copy = node
    switch node.value {
    case .array(let elements): copy.value = .array(elements.map { expand($0) })
    case .object(let members):
      copy.value = .object(
        members.map { JSONMember(key: $0.key, keyRange: $0.keyRange, value: expand($0.value)) })
    case .string(let text):
      if let value = expand(text: text, of: node) { copy.value = value }
    default: break
    }
    return copy
  }

  private mutating func expand(text: String, of node: JSONNode) -> JSONValue? {
    guard text.contains("${") else { return nil }
    var result = ""
    var rest = Substring(text)
    while let start = rest.range(of: "${") {
      let before = rest[..<start.lowerBound]
      // `$${` is a literal `${`, which the template itself undoes.
      if before.hasSuffix("$") {
        result += rest[..<start.upperBound]
        rest = rest[start.upperBound...]
        continue
      }
      guard let end = rest[start.upperBound...].firstIndex(of: "}") else { break }
      let name = String(rest[start.upperBound..<end])
      let isWhole = before.isEmpty && result.isEmpty && rest.index(after: end) == rest.endIndex
      result += before
      rest = rest[rest.index(after: end)...]
      if name.hasPrefix("vars.") {
        guard let value = variable(String(name.dropFirst(5)), used: node) else {
          poisoned.insert(node.path)
          return nil
        }
        if isWhole { return value }
        guard let inline = Self.inlineText(value) else {
          report(
            "variable-type", "${\(name)} is \(value.typeName) and cannot stand inside a text", at: node,
            expected: "a string, number or boolean", found: value.typeName)
          poisoned.insert(node.path)
          return nil
        }
        result += inline
      } else if name.hasPrefix("env."), let value = environment(String(name.dropFirst(4))) {
        result += Self.escaped(value)
      } else {
        if name.hasPrefix("env."), TemplateVariable.isEnvironmentName(name.dropFirst(4)) {
          report(
            JobLoader.unsetEnvironmentCode, "the environment variable \(name.dropFirst(4)) is not set", at: node,
            severity: .warning, expected: "a set variable", found: "none", hint: "a run without it stops with exit 4")
        }
        result += "${\(name)}"
      }
    }
    result += rest
    return .string(result)
  }

  private mutating func variable(_ name: String, used node: JSONNode) -> JSONValue? {
    if let value = overrides[name] { return value }
    guard let declared = declared[name] else {
      let near = NearestName.suggestion(for: name, among: self.declared.keys.sorted())
      report(
        "unknown-variable", "unknown ${vars.\(name)}", at: node,
        expected: self.declared.isEmpty ? "a name under \"vars\"" : "one of: " + self.declared.keys.sorted().joined(separator: ", "),
        found: name, hint: near.map { "did you mean \"${vars.\($0)}\"?" })
      return nil
    }
    guard !resolving.contains(name) else {
      report(
        "variable-cycle", "${vars.\(name)} is defined by itself: \((resolving + [name]).joined(separator: " → "))", at: node)
      return nil
    }
    resolving.append(name)
    defer { resolving.removeLast() }
    let poisonedBefore = poisoned.count
    let value = expand(declared)
    return poisoned.count > poisonedBefore ? nil : value.value
  }

  /// Text that came from outside must not be read as a template again.
  private static func escaped(_ value: String) -> String { value.replacing("${", with: "$${") }

  private static func inlineText(_ value: JSONValue) -> String? {
    switch value {
    case .string(let text): text
    case .number(let number): number.text
    case .bool(let bool): bool ? "true" : "false"
    default: nil
    }
  }

  private mutating func report(
    _ code: String, _ message: String, at node: JSONNode, severity: Diagnostic.Severity = .error,
    expected: String? = nil, found: String? = nil, hint: String? = nil
  ) {
    diagnostics.append(
      Diagnostic(
        severity: severity, code: code, message: message, file: file, range: node.range, path: node.path,
        expected: expected, found: found, hint: hint))
  }
}

extension StringProtocol {
  /// The first place of `text`, compared byte for byte.
  fileprivate func range(of text: String) -> Range<Index>? {
    var index = startIndex
    while index < endIndex {
      if self[index...].utf8.starts(with: text.utf8) {
        return index..<utf8.index(index, offsetBy: text.utf8.count)
      }
      index = utf8.index(after: index)
    }
    return nil
  }
}
