import Imaging
import JobSyntax

/// Checks JSON values against declared fields and collects every problem; it never stops at the first.
public struct FieldChecker: Sendable {
  /// What is known about a manifest's columns while checking.
  public enum Columns: Sendable, Hashable {
    /// The job has no manifest: `${item.NAME}` is unknown.
    case none
    /// The manifest's header.
    case known([String])
    /// There is a manifest, but its header could not be read.
    case unknown
  }

  public let file: String
  public let columns: Columns
  /// JSON paths of values that were found wrong before; nothing more is said about them.
  public let skipping: Set<String>
  /// JSON paths of texts that an environment variable is part of.
  public let fromEnvironment: Set<String>
  public private(set) var diagnostics: [Diagnostic] = []

  public init(
    file: String, columns: Columns, skipping: Set<String> = [], fromEnvironment: Set<String> = []
  ) {
    self.file = file
    self.columns = columns
    self.skipping = skipping
    self.fromEnvironment = fromEnvironment
  }

  public mutating func report(
    _ code: String, _ message: String, at range: SourceRange, path: String, expected: String? = nil,
    found: String? = nil, hint: String? = nil, severity: Diagnostic.Severity = .error
  ) {
    diagnostics.append(
      Diagnostic(
        severity: severity, code: code, message: message, file: file, range: range, path: path, expected: expected,
        found: found, hint: hint))
  }

  public mutating func append(_ more: [Diagnostic]) { diagnostics += more }

  /// Checks the members of an object: unknown and missing names, each value, conditions between fields.
  ///
  /// - Parameters:
  ///   - owner: what messages call the object, such as `stage "resize"`.
  ///   - ignoring: names that belong to someone else, such as `stage`.
  ///   - shape: the members that it may have.
  ///   - node: the object to check.
  public mutating func check(
    _ node: JSONNode, against shape: ObjectShape, owner: String, ignoring: Set<String> = []
  ) {
    guard let members = node.objectValue else {
      report(
        "wrong-type", "\(owner) expects an object, got \(describe(node))", at: node.range, path: node.path,
        expected: "an object", found: describe(node),
        hint: fromEnvironment.contains(node.path) ? Self.environmentHint : nil)
      return
    }
    let known = Dictionary(shape.fields.map { ($0.name, $0) }, uniquingKeysWith: { first, _ in first })
    for member in members where !ignoring.contains(member.key) {
      guard let field = known[member.key] else {
        let names = shape.fields.map(\.name)
        let near = NearestName.suggestion(for: member.key, among: names)
        report(
          "unknown-key", "unknown key \"\(member.key)\" in \(owner)", at: member.keyRange, path: member.value.path,
          expected: names.isEmpty ? "no keys" : "one of: " + names.joined(separator: ", "), found: member.key,
          hint: near.map { "did you mean \"\($0)\"?" }
            ?? (names.isEmpty ? nil : "known: " + names.joined(separator: ", ")))
        continue
      }
      check(member.value, against: field.type, name: field.name, unit: field.unit)
      if let condition = field.condition {
        checkCondition(condition, of: field, member: member, in: node, known: known)
      }
    }
    for field in shape.fields where field.isRequired && node[field.name] == nil {
      guard !shape.exactlyOne.contains(field.name), !shape.atLeastOne.contains(field.name) else { continue }
      if let condition = field.condition, !holds(condition, in: node, known: known) { continue }
      report(
        "missing-key", "\(owner) needs \"\(field.name)\": \(field.help)", at: node.range, path: node.path,
        expected: "\"\(field.name)\"", found: "nothing")
    }
    if !shape.exactlyOne.isEmpty {
      let present = members.filter { shape.exactlyOne.contains($0.key) }
      let list = shape.exactlyOne.map { "\"\($0)\"" }.joined(separator: ", ")
      if present.isEmpty {
        report(
          "missing-key", "\(owner) needs one of \(list)", at: node.range, path: node.path, expected: "one of \(list)",
          found: "none of them")
      } else if Set(present.map(\.key)).count > 1 {
        let extra = present[1]
        report(
          "conflicting-keys",
          "\(owner) takes one of \(list), got \(present.map { "\"\($0.key)\"" }.joined(separator: " and "))",
          at: extra.keyRange, path: extra.value.path, expected: "one of \(list)",
          found: present.map(\.key).joined(separator: ", "))
      }
    }
    if !shape.atLeastOne.isEmpty, !members.contains(where: { shape.atLeastOne.contains($0.key) }) {
      let list = shape.atLeastOne.map { "\"\($0)\"" }.joined(separator: " or ")
      report(
        "missing-key", "\(owner) needs \(list)", at: node.range, path: node.path, expected: list, found: "none of them")
    }
  }

  /// A field's value or default as conditions compare it, and as JSON has it; nil for lists, objects and nothing.
  private func current(
    _ name: String, in node: JSONNode, known: [String: any FieldDeclaration]
  ) -> (text: String, json: String)? {
    func plain(_ text: String) -> (String, String) { (text, text) }
    if let value = node[name] {
      switch value.value {
      case .string(let text): return (text, JSONText.string(text).rendered())
      case .bool(let bool): return plain(bool ? "true" : "false")
      case .number(let number): return plain(number.text)
      default: return nil
      }
    }
    guard let value = known[name]?.defaultText else { return nil }
    switch value {
    case .string(let text): return (text, value.rendered())
    case .bool, .integer, .number: return plain(value.rendered())
    case .null, .array, .object: return nil
    }
  }

  private func holds(
    _ condition: FieldCondition, in node: JSONNode, known: [String: any FieldDeclaration]
  ) -> Bool {
    guard let value = current(condition.field, in: node, known: known) else { return false }
    return condition.values.contains(value.text)
  }

  private mutating func checkCondition(
    _ condition: FieldCondition, of field: any FieldDeclaration, member: JSONMember, in node: JSONNode,
    known: [String: any FieldDeclaration]
  ) {
    // An invalid governing value has been reported itself; a second finding would only repeat it.
    guard let current = current(condition.field, in: node, known: known),
      !condition.values.contains(current.text), !current.text.contains("${")
    else { return }
    if let value = node[condition.field], let governing = known[condition.field] {
      var trial = FieldChecker(file: file, columns: columns, skipping: skipping, fromEnvironment: fromEnvironment)
      trial.check(value, against: governing.type, name: governing.name)
      guard trial.diagnostics.isEmpty else { return }
    }
    let values = condition.values.joined(separator: ", ")
    report(
      "not-applicable", "\"\(field.name)\" has no meaning with \"\(condition.field)\": \(current.json)",
      at: member.keyRange, path: member.value.path, expected: "\(condition.field) one of: \(values)",
      found: current.text,
      hint: "it goes with \(condition.field) \(values)")
  }

  /// Checks one value.
  public mutating func check(_ node: JSONNode, against type: FieldType, name: String, unit: String? = nil) {
    if skipping.contains(node.path) { return }
    // An unset environment variable has its own finding; its value is not known yet, so nothing else can be said.
    if case .string(let text) = node.value, Self.isUnresolved(text) { return }
    switch type {
    case .any, .stages: break
    case .branches: checkBranches(node, name: name)
    case .condition: checkCondition(node, name: name)
    case .boolean:
      if node.boolValue == nil { mismatch(node, name, type, unit) }
    case .integer(let range):
      guard case .number(let number) = node.value else { return mismatch(node, name, type, unit) }
      // A number that no double holds, and -0, were reported by the reader.
      guard number.double != nil, !number.isNegativeZero else { return }
      guard let value = number.integer else {
        return mismatch(node, name, type, unit, code: "not-an-integer")
      }
      if !range.contains(value) { mismatch(node, name, type, unit, code: "out-of-range") }
    case .number(let range):
      guard case .number(let number) = node.value else { return mismatch(node, name, type, unit) }
      guard let value = number.double, !number.isNegativeZero else { return }
      if !range.contains(value) { mismatch(node, name, type, unit, code: "out-of-range") }
    case .text(let kind):
      guard let text = node.stringValue else { return mismatch(node, name, type, unit) }
      checkText(text, kind, node, name)
    case .choice(let choices):
      guard let text = node.stringValue else { return mismatch(node, name, type, unit) }
      guard !choices.contains(where: { $0.name == text }) else { return }
      let near = NearestName.suggestion(for: text, among: choices.map(\.name))
      report(
        "unknown-value", "\"\(name)\" expects \(type.description), got \"\(text)\"", at: node.range, path: node.path,
        expected: type.description, found: text, hint: near.map { "did you mean \"\($0)\"?" })
    case .array(let element, let count):
      guard let members = node.arrayValue else { return mismatch(node, name, type, unit) }
      if !count.contains(members.count) {
        report(
          "out-of-range", "\"\(name)\" expects \(Self.describe(count: count)), got \(members.count)", at: node.range,
          path: node.path, expected: Self.describe(count: count), found: "\(members.count)")
      }
      for (index, member) in members.enumerated() {
        check(member, against: element, name: "\(name)[\(index)]", unit: unit)
      }
    case .object(let shape):
      check(node, against: shape, owner: "\"\(name)\"")
    case .named(let element):
      guard let members = node.objectValue else { return mismatch(node, name, type, unit) }
      for member in members { check(member.value, against: element, name: "\(name).\(member.key)", unit: unit) }
    case .oneOf(let types):
      guard let match = types.first(where: { $0.mayHold(node.value) }) else { return mismatch(node, name, type, unit) }
      if case .string(let text) = node.value, type.isNumberInQuotes(text, as: match) {
        return mismatch(node, name, type, unit)
      }
      check(node, against: match, name: name, unit: unit)
    }
  }

  private static let environmentHint =
    "an environment variable is text; use a variable under \"vars\", and --set to change it"

  static func isUnresolved(_ text: String) -> Bool {
    guard text.hasPrefix("${env.") else { return false }
    return text.hasSuffix("}") && Template.parse(text).template?.segments.count == 1
  }

  private mutating func checkText(_ text: String, _ kind: TextKind, _ node: JSONNode, _ name: String) {
    let (template, problems) = Template.parse(text)
    for problem in problems {
      switch problem.kind {
      case .unclosed:
        report(
          "template-unclosed", "\"\(name)\" has a \"${\" without its \"}\"", at: node.range, path: node.path,
          expected: "}", found: "the end of the text", hint: "write $${ for a literal ${")
      case .empty, .unknownVariable:
        reportUnknownVariable(problem.name, node, name)
      }
    }
    for variable in template?.variables ?? [] {
      switch variable {
      case .environment where kind != .credential: break
      case .secret where kind == .credential || kind == .secretTemplate: break
      case _ where variable.isProgramFile && kind == .argument: break
      case .jobDir where kind == .argument || kind == .secretTemplate: break
      case .jobDir, .fileIn, .fileOut, .fileSource:
        report(
          "variable-not-allowed", "\"\(name)\" is handed to no program: ${\(variable.name)} may not stand there",
          at: node.range, path: node.path, expected: "no ${\(variable.name)}", found: "${\(variable.name)}")
      case .secret:
        report(
          "secret-not-allowed", "\"\(name)\" is no credential field: ${\(variable.name)} may not stand there",
          at: node.range, path: node.path, expected: "no ${secret.…}", found: "${\(variable.name)}")
      case .itemColumn(let column) where kind == .template || kind == .secretTemplate || kind == .argument:
        switch columns {
        case .unknown: break
        case .known(let names) where names.contains(column): break
        case .known, .none: reportUnknownVariable(variable.name, node, name)
        }
      default:
        if kind == .credential {
          report(
            "variable-not-allowed", "\"\(name)\" is a credential: ${\(variable.name)} may not stand there",
            at: node.range, path: node.path, expected: "${secret.NAME}", found: "${\(variable.name)}")
        } else if kind != .template, kind != .secretTemplate, kind != .argument {
          report(
            "variable-not-allowed",
            "\"\(name)\" is read once for the whole run: ${\(variable.name)} may not stand there",
            at: node.range, path: node.path, expected: "text without ${item.…}, ${image.…} or ${run.…}",
            found: "${\(variable.name)}")
        }
      }
    }
    if kind == .credential, let template, !text.isEmpty, !template.variables.contains(where: \.isSecret) {
      report(
        "credential-in-job", "\"\(name)\" holds the credential itself: whoever reads the job has it", at: node.range,
        path: node.path, hint: "put it into the environment and write ${secret.NAME}", severity: .warning)
    }
    if text.utf8.contains(0) {
      report(
        "wrong-value", "\"\(name)\" holds a NUL character", at: node.range, path: node.path,
        expected: "text without NUL",
        found: "NUL")
    }
    if kind != .plain, kind != .secretTemplate, kind != .argument, text.isEmpty {
      report(
        "wrong-value", "\"\(name)\" is empty", at: node.range, path: node.path,
        expected: FieldType.text(kind).description,
        found: "an empty string")
    }
    if (kind == .percentage && Length(percentage: text) == nil) || (kind == .ratio && AspectRatio(text) == nil),
      !text.isEmpty, problems.isEmpty, template?.variables.isEmpty ?? true
    {
      let expected = FieldType.text(kind).description
      report(
        "wrong-value", "\"\(name)\" expects \(expected), got \"\(text)\"", at: node.range, path: node.path,
        expected: expected, found: text)
    }
    if kind == .color, problems.isEmpty, template?.variables.isEmpty ?? true, RGBAReader.color(text) == nil {
      let near = NearestName.suggestion(for: text, among: RGBAReader.names)
      report(
        "wrong-value", "\"\(name)\" expects \(FieldType.text(.color).description), got \"\(text)\"", at: node.range,
        path: node.path, expected: FieldType.text(.color).description, found: text,
        hint: near.map { "did you mean \"\($0)\"?" })
    }
  }

  private mutating func reportUnknownVariable(_ variable: String, _ node: JSONNode, _ name: String) {
    var known = TemplateVariable.fixed.map(\.name)
    if case .known(let names) = columns { known += names.map { "item.\($0)" } }
    let near = NearestName.suggestion(for: variable, among: known)
    report(
      "unknown-variable", "unknown ${\(variable)} in \"\(name)\"", at: node.range, path: node.path,
      expected: "one of: " + (known + ["vars.*", "env.*"]).joined(separator: ", "), found: "${\(variable)}",
      hint: near.map { "did you mean \"${\($0)}\"?" })
  }

  private mutating func mismatch(
    _ node: JSONNode, _ name: String, _ type: FieldType, _ unit: String?, code: String = "wrong-type"
  ) {
    let expected = type.description + (unit.map { " (\($0))" } ?? "")
    var hint: String?
    if code == "wrong-type", case .string(let text) = node.value {
      switch type {
      case _ where fromEnvironment.contains(node.path): hint = Self.environmentHint
      case .integer, .number, .oneOf:
        if Double(text) != nil, type.holdsNumbers { hint = "write \(text) without quotes" }
      case .boolean:
        if text == "true" || text == "false" { hint = "write \(text) without quotes" }
      default: break
      }
    }
    report(
      code, "\"\(name)\" expects \(expected), got \(describe(node))", at: node.range, path: node.path,
      expected: expected, found: describe(node), hint: hint)
  }

  /// What came, for messages: kind and value, cut short.
  private func describe(_ node: JSONNode) -> String {
    switch node.value {
    case .string(let text):
      let short =
        text.unicodeScalars.count > 40 ? String(String.UnicodeScalarView(text.unicodeScalars.prefix(40))) + "…" : text
      return "the string \"\(short)\""
    case .number(let number): return number.text.utf8.count > 40 ? "a number" : number.text
    case .bool(let bool): return bool ? "true" : "false"
    default: return node.value.typeName
    }
  }

  static func describe(count: ClosedRange<Int>) -> String {
    if count.upperBound >= 100_000 { return "\(count.lowerBound) or more elements" }
    if count.lowerBound == count.upperBound { return "\(count.lowerBound) elements" }
    return "\(count.lowerBound) to \(count.upperBound) elements"
  }
}

extension FieldType {
  /// The type in words, for messages and pages: `an integer from 1 to 100`.
  public var description: String {
    switch self {
    case .boolean: "true or false"
    case .integer(let range): "an integer from \(range.lowerBound) to \(range.upperBound)"
    case .number(let range):
      if range == Self.allNumbers {
        "a number"
      } else if range.upperBound >= 1e9 {
        "a number of at least \(Self.plain(range.lowerBound))"
      } else {
        "a number from \(Self.plain(range.lowerBound)) to \(Self.plain(range.upperBound))"
      }
    case .text(.plain): "a string"
    case .text(.path): "a path"
    case .text(.template): "a text with ${…} filled in for each item"
    case .text(.credential): "a credential, as ${secret.NAME}"
    case .text(.secretTemplate): "a text with ${…} filled in for each item, also ${secret.NAME}"
    case .text(.argument): "a text with ${…} filled in for each item, also ${file.in} and the like"
    case .text(.percentage): "a percentage such as \"10%\""
    case .text(.ratio): "a ratio of width to height such as \"16:9\""
    case .text(.color): "a colour (#rgb, #rrggbb, #rrggbbaa, a CSS name, or \"transparent\")"
    case .choice(let choices): "one of: " + choices.map(\.name).joined(separator: ", ")
    case .array(let element, let count): "a list of \(FieldChecker.describe(count: count)): \(element.description)"
    case .object: "an object"
    case .named(let element): "an object of names with \(element.description) each"
    case .oneOf(let types): types.map(\.description).joined(separator: ", or ")
    case .stages: "a list of stages"
    case .branches: "an object of names with a list of stages each"
    case .condition: "a condition"
    case .any: "any value"
    }
  }

  private static let allNumbers = -1e15...1e15
  /// A number without bounds that anyone would meet.
  static let anyNumber = FieldType.number(allNumbers)

  private static func plain(_ value: Double) -> String { Int(exactly: value).map(String.init) ?? "\(value)" }

  var holdsNumbers: Bool {
    switch self {
    case .integer, .number: true
    case .oneOf(let types): types.contains(where: \.holdsNumbers)
    default: false
    }
  }

  /// Whether a text is a number where a number would do, and is none of the words or percentages of `match`.
  func isNumberInQuotes(_ text: String, as match: FieldType) -> Bool {
    guard holdsNumbers, Double(text) != nil else { return false }
    switch match {
    case .choice(let choices): return !choices.contains { $0.name == text }
    case .text(.percentage): return true
    default: return false
    }
  }

  /// Whether a value of this JSON type can fit at all; tells the shapes of `oneOf` apart.
  func mayHold(_ value: JSONValue) -> Bool {
    switch (self, value) {
    case (.any, _), (.boolean, .bool), (.integer, .number), (.number, .number), (.text, .string), (.choice, .string),
      (.array, .array), (.stages, .array), (.object, .object), (.named, .object),
      (.branches, .object), (.condition, .object):
      true
    case (.oneOf(let types), _): types.contains { $0.mayHold(value) }
    default: false
    }
  }
}
