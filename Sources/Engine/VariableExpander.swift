import JobSyntax
import PipelineKit

/// Fills `${vars.NAME}` and `${env.NAME}` into a job's values before anything else looks at them.
///
/// A string that is exactly one `${vars.x}` becomes the variable's value with its JSON type; inside a longer text only
/// strings, numbers and booleans can stand. What varies by item (`${item.…}` and the like) is left for later. Findings
/// about a variable's value point at the place that uses it: what stands in a variable is right or wrong only there.
struct VariableExpander {
  /// How many variables may stand in one another.
  static let mostVariables = 32
  /// How deep arrays and objects may be nested once variables are filled in.
  static let mostNesting = 256
  /// How many values variables may bring in, all uses together.
  static let mostValues = 1_000_000
  /// How many bytes of text variables may bring in, all uses together.
  static let mostText = 64 << 20

  let file: String
  private let environment: (String) -> String?
  /// In the order of the file.
  private let names: [String]
  private let declared: [String: JSONNode]
  /// Their paths start at `--set NAME`, so that they are nobody else's.
  private var overrides: [String: JSONNode] = [:]
  private(set) var diagnostics: [Diagnostic] = []
  /// JSON paths of values that could not be filled in.
  private(set) var poisoned: Set<String> = []
  /// JSON paths of texts that an environment variable is part of.
  private(set) var fromEnvironment: Set<String> = []

  /// A variable's value with everything filled in.
  private struct Resolved {
    var node: JSONNode
    /// How many variables stand in one another, this one included.
    var depth: Int
    /// Levels of arrays and objects.
    var height: Int
  }
  private enum Resolution {
    case value(Resolved)
    /// Wrong, and reported.
    case wrong
  }
  private var resolutions: [String: Resolution] = [:]
  /// The variables being filled in, each used by the one before.
  private var resolving: [String] = []
  /// The greatest depth of the variables used so far by the last of `resolving`.
  private var depthBelow = 0
  private var nesting = 0
  private var values = 0
  private var textBytes = 0
  /// Bounds are reported once; beyond them everything is left alone.
  private var isExhausted = false
  /// Variables that nothing uses may lack what the environment does not have.
  private var reportsUnset = true

  /// - Parameters:
  ///   - overrides: values that replace the declared ones.
  init(
    file: String, vars: JSONNode?, overrides: [String: JSONNode], environment: @escaping (String) -> String?
  ) {
    self.file = file
    self.environment = environment
    let members = vars?.objectValue ?? []
    names = members.map(\.key)
    declared = Dictionary(members.map { ($0.key, $0.value) }, uniquingKeysWith: { first, _ in first })
    for (name, node) in overrides {
      self.overrides[name] = rebased(node, path: "--set \(name)", node.range)
    }
  }

  mutating func expand(_ node: JSONNode) -> JSONNode {
    var copy = node
    switch node.value {
    case .array(let elements):
      guard enter(node) else { return node }
      copy.value = .array(elements.map { expand($0) })
      nesting -= 1
    case .object(let members):
      guard enter(node) else { return node }
      copy.value = .object(
        members.map { JSONMember(key: $0.key, keyRange: $0.keyRange, value: expand($0.value)) })
      nesting -= 1
    case .string(let text):
      if let value = expand(text: text, of: node) { copy.value = value }
    default: break
    }
    return copy
  }

  /// Fills in the variables that nothing has used, so that mistakes in them are found too.
  mutating func expandUnused() {
    reportsUnset = false
    defer { reportsUnset = true }
    for name in names where overrides[name] == nil && resolutions[name] == nil {
      guard let node = declared[name] else { continue }
      _ = resolve(name, node)
    }
  }

  private mutating func enter(_ node: JSONNode) -> Bool {
    guard nesting < Self.mostNesting else {
      exhaust(
        "variable-depth", "variables nest arrays and objects more than \(Self.mostNesting) levels deep", at: node,
        expected: "at most \(Self.mostNesting) levels")
      return false
    }
    nesting += 1
    return true
  }

  /// The value of a text that holds `${`; nil where it stays as it is.
  private mutating func expand(text: String, of node: JSONNode) -> JSONValue? {
    // Bytes, as templates are read: a combining mark after a brace must not hide it.
    let bytes = Array(text.utf8)
    let (dollar, open, close) = (UInt8(ascii: "$"), UInt8(ascii: "{"), UInt8(ascii: "}"))
    guard bytes.contains(dollar) else { return nil }
    var result: [UInt8] = []
    var index = 0
    while index < bytes.count {
      let next = index + 1 < bytes.count ? bytes[index + 1] : 0
      // `$${` is a literal `${`, which the template itself undoes.
      if bytes[index] == dollar, next == dollar, index + 2 < bytes.count, bytes[index + 2] == open {
        result += bytes[index..<index + 3]
        index += 3
        continue
      }
      guard bytes[index] == dollar, next == open, let end = bytes[index...].firstIndex(of: close) else {
        result.append(bytes[index])
        index += 1
        continue
      }
      let name = String(decoding: bytes[index + 2..<end], as: UTF8.self)
      let isWhole = index == 0 && end == bytes.count - 1
      if name.hasPrefix("vars.") {
        guard let used = variable(String(name.dropFirst(5)), at: node) else { return nil }
        if isWhole { return rebase(used, onto: node) }
        guard let inline = Self.inlineText(used.value) else {
          report(
            "variable-type", "${\(name)} is \(used.value.typeName) and cannot stand inside a text", at: node,
            expected: "a string, number or boolean", found: used.value.typeName)
          poisoned.insert(node.path)
          return nil
        }
        guard spend(values: 0, text: inline.utf8.count, at: node) else { return nil }
        if fromEnvironment.contains(used.path) { fromEnvironment.insert(node.path) }
        result += inline.utf8
      } else if name.hasPrefix("env."), let value = environment(String(name.dropFirst(4))) {
        fromEnvironment.insert(node.path)
        result += Self.escaped(value).utf8
      } else {
        if name.hasPrefix("env."), reportsUnset, TemplateVariable.isEnvironmentName(name.dropFirst(4)) {
          report(
            JobLoader.unsetEnvironmentCode, "the environment variable \(name.dropFirst(4)) is not set", at: node,
            severity: .warning, expected: "a set variable", found: "none", hint: "a run without it stops with exit 4")
        }
        result += bytes[index...end]
      }
      index = end + 1
    }
    return .string(String(decoding: result, as: UTF8.self))
  }

  /// The filled-in value of a variable; nil, with `node` poisoned, where it has none.
  private mutating func variable(_ name: String, at node: JSONNode) -> JSONNode? {
    guard let resolved = resolved(name, at: node) else {
      poisoned.insert(node.path)
      return nil
    }
    guard resolving.count + resolved.depth <= Self.mostVariables else {
      exhaust(
        "variable-depth", "${vars.\(name)}: more than \(Self.mostVariables) variables stand in one another", at: node,
        expected: "at most \(Self.mostVariables)")
      return nil
    }
    guard nesting + resolved.height <= Self.mostNesting else {
      exhaust(
        "variable-depth",
        "with ${vars.\(name)} arrays and objects are nested more than \(Self.mostNesting) levels deep", at: node,
        expected: "at most \(Self.mostNesting) levels")
      return nil
    }
    depthBelow = max(depthBelow, resolved.depth)
    return resolved.node
  }

  private mutating func resolved(_ name: String, at node: JSONNode) -> Resolved? {
    if let override = overrides[name] { return Resolved(node: override, depth: 1, height: Self.height(override)) }
    switch resolutions[name] {
    case .value(let resolved): return resolved
    case .wrong: return nil
    case nil: break
    }
    if isExhausted { return nil }
    guard let declared = declared[name] else {
      let near = NearestName.suggestion(for: name, among: names)
      report(
        "unknown-variable", "unknown ${vars.\(name)}", at: node,
        expected: names.isEmpty ? "a name under \"vars\"" : "one of: " + names.sorted().joined(separator: ", "),
        found: name, hint: near.map { "did you mean \"${vars.\($0)}\"?" })
      return nil
    }
    guard !resolving.contains(name) else {
      report(
        "variable-cycle", "${vars.\(name)} is defined by itself: \((resolving + [name]).joined(separator: " → "))",
        at: node)
      return nil
    }
    // Before going down, so that the call stack is bounded whatever the job says.
    guard resolving.count < Self.mostVariables else {
      exhaust(
        "variable-depth", "${vars.\(name)}: more than \(Self.mostVariables) variables stand in one another", at: node,
        expected: "at most \(Self.mostVariables)")
      return nil
    }
    return resolve(name, declared)
  }

  private mutating func resolve(_ name: String, _ declared: JSONNode) -> Resolved? {
    let depthBefore = depthBelow
    let poisonedBefore = poisoned.count
    depthBelow = 0
    resolving.append(name)
    let node = expand(declared)
    resolving.removeLast()
    let resolved = Resolved(node: node, depth: depthBelow + 1, height: Self.height(node))
    depthBelow = depthBefore
    // A variable is filled in once, so every path poisoned in it is a new one.
    let isSound = poisoned.count == poisonedBefore && !isExhausted
    resolutions[name] = isSound ? .value(resolved) : .wrong
    return isSound ? resolved : nil
  }

  /// The value of `variable` with every place in it moved to `user`.
  private mutating func rebase(_ variable: JSONNode, onto user: JSONNode) -> JSONValue? {
    let (values, text) = Self.size(variable)
    guard spend(values: values, text: text, at: user) else { return nil }
    return rebased(variable, path: user.path, user.range).value
  }

  private mutating func rebased(_ node: JSONNode, path: String, _ range: SourceRange) -> JSONNode {
    if !fromEnvironment.isEmpty, fromEnvironment.contains(node.path) { fromEnvironment.insert(path) }
    let value: JSONValue
    switch node.value {
    case .array(let elements):
      value = .array(
        elements.enumerated().map { index, element in rebased(element, path: "\(path)[\(index)]", range) })
    case .object(let members):
      // How a key is written in a path is the reader's business.
      let prefix = node.path.utf8.count
      value = .object(
        members.map { member in
          let step = String(decoding: member.value.path.utf8.dropFirst(prefix), as: UTF8.self)
          return JSONMember(key: member.key, keyRange: range, value: rebased(member.value, path: path + step, range))
        })
    default: value = node.value
    }
    return JSONNode(value: value, range: range, path: path)
  }

  private mutating func spend(values: Int, text: Int, at node: JSONNode) -> Bool {
    self.values += values
    textBytes += text
    if self.values > Self.mostValues {
      exhaust(
        "variable-size", "variables bring in more than \(Self.mostValues) values", at: node,
        expected: "at most \(Self.mostValues) values")
    } else if textBytes > Self.mostText {
      exhaust(
        "variable-size", "variables bring in more than \(Self.mostText) bytes of text", at: node,
        expected: "at most \(Self.mostText) bytes")
    }
    if isExhausted { poisoned.insert(node.path) }
    return !isExhausted
  }

  private mutating func exhaust(_ code: String, _ message: String, at node: JSONNode, expected: String) {
    poisoned.insert(node.path)
    guard !isExhausted else { return }
    isExhausted = true
    report(code, message, at: node, expected: expected, found: "more")
  }

  private static func height(_ node: JSONNode) -> Int {
    switch node.value {
    case .array(let elements): 1 + (elements.lazy.map(height).max() ?? 0)
    case .object(let members): 1 + (members.lazy.map { height($0.value) }.max() ?? 0)
    default: 0
    }
  }

  private static func size(_ node: JSONNode) -> (values: Int, text: Int) {
    switch node.value {
    case .array(let elements):
      elements.reduce(into: (1, 0)) { sum, element in
        let (values, text) = size(element)
        sum = (sum.0 + values, sum.1 + text)
      }
    case .object(let members):
      members.reduce(into: (1, 0)) { sum, member in
        let (values, text) = size(member.value)
        sum = (sum.0 + values, sum.1 + text + member.key.utf8.count)
      }
    case .string(let text): (1, text.utf8.count)
    default: (1, 0)
    }
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
