import JobSyntax

extension StageSpec {
  /// The reference page, as `pipeline stages NAME` prints it.
  public var page: String {
    var lines = ["\(name) — \(summary)", ""]
    for note in notes { lines += FieldPages.wrap(note, width: 88) + [""] }
    lines += FieldPages.lines(for: fields, indent: "  ")
    let common = CommonFields.all.map { "`\($0.name)` (`pipeline stages \($0.name)`)" }.joined(separator: ", ")
    lines += ["As every stage it also takes \(common).", ""]
    if !examples.isEmpty {
      lines += ["Examples", ""]
      for example in examples { lines.append("  " + example) }
      lines.append("")
    }
    return lines.joined(separator: "\n")
  }

  /// A Markdown section with the fields as a table, for the README.
  public var markdown: String {
    var lines = ["### `\(name)`", "", summary, ""]
    for note in notes { lines += [note, ""] }
    if !fields.isEmpty {
      lines += ["| field | value | default | meaning |", "|---|---|---|---|"]
      lines += FieldPages.rows(for: fields, prefix: "")
      lines.append("")
    }
    for example in examples { lines += ["```json", example, "```", ""] }
    return lines.joined(separator: "\n")
  }

  /// The JSON Schema of one stage object.
  public var schema: JSONText { schema(stages: nil) }

  /// The JSON Schema of one stage object.
  ///
  /// - Parameter stages: the schema of a stage, where this is part of a job's schema; else tails and conditions are any
  ///   objects.
  public func schema(stages: JSONText?) -> JSONText {
    var schema = FieldPages.objectSchema(
      ObjectShape(fields + CommonFields.all),
      extra: [("stage", .object([("const", .string(name))] + FieldPages.described(summary)))],
      required: ["stage"], stages: stages)
    if case .object(let members) = schema {
      schema = .object([("title", .string(name))] + FieldPages.described(summary) + members)
    }
    return schema
  }
}

extension CommonFields {
  /// A Markdown section with the fields that every stage has, for the README.
  public static var markdown: String {
    var lines = ["### Fields of every stage", "", "| field | value | default | meaning |", "|---|---|---|---|"]
    lines += FieldPages.rows(for: all, prefix: "")
    lines += ["", "What a condition can look at:", "", "| subject | value | meaning |", "|---|---|---|"]
    for subject in ConditionSubject.fixed + [.itemColumn("NAME")] {
      let value =
        switch subject.kind {
        case .number: "number"
        case .text: "text"
        case .boolean: "true or false"
        case .column: "text or number"
        }
      lines.append("| `\(subject.name)` | \(value) | \(subject.help) |")
    }
    return (lines + [""]).joined(separator: "\n")
  }

  /// The same for a terminal.
  public static var page: String {
    var lines = FieldPages.lines(for: all, indent: "  ") + ["What a condition can look at:", ""]
    let subjects = ConditionSubject.fixed + [.itemColumn("NAME")]
    let width = (subjects.map(\.name.count).max() ?? 0) + 2
    for subject in subjects {
      let name = subject.name + String(repeating: " ", count: width - subject.name.count)
      let help = FieldPages.wrap(subject.help, width: 90 - width)
      lines.append("  " + name + help[0])
      lines += help.dropFirst().map { String(repeating: " ", count: width + 2) + $0 }
    }
    let notes = [
      "Each is compared by eq, ne or in (a list); numbers also by gt, gte, lt and lte, texts by matches (* stands for "
        + "any run of characters, ? for one). Several members must all hold; all and any take lists of conditions, not "
        + "takes one.",
      "{ \"image.width\": { \"gt\": 2000 }, \"not\": { \"item.ext\": { \"in\": [\"gif\", \"webp\"] } } }",
    ]
    for note in notes { lines += [""] + FieldPages.wrap(note, width: 92) }
    return lines.joined(separator: "\n")
  }
}

/// Renders field declarations: text page, table rows, JSON Schema.
public enum FieldPages {
  /// A field's entry on the text page.
  public static func lines(for fields: [any FieldDeclaration], indent: String) -> [String] {
    var lines: [String] = []
    for field in fields {
      var head = "\(field.name): \(typeText(field))"
      if let value = field.defaultText {
        head += "; default \(value.rendered())"
      } else if field.isRequired {
        head += "; required"
      }
      if let condition = field.condition {
        head += "; with \(condition.field) \(condition.values.joined(separator: ", "))"
      }
      let body = wrap(head, width: 92)
      lines.append(indent + body[0])
      lines += body.dropFirst().map { indent + "    " + $0 }
      lines += wrap(field.help, width: 84).map { indent + "    " + $0 }
      for choice in choices(of: field.type) where !choice.help.isEmpty {
        lines += wrap("\"\(choice.name)\": \(choice.help)", width: 80).enumerated().map {
          indent + ($0.offset == 0 ? "      " : "        ") + $0.element
        }
      }
      for shape in shapes(of: field.type) {
        lines += self.lines(for: shape.fields(besides: fields), indent: indent + "    ")
      }
      if indent.count <= 2 { lines.append("") }
    }
    return lines
  }

  /// A field's rows in a Markdown table; nested fields are named `outer.inner`.
  public static func rows(for fields: [any FieldDeclaration], prefix: String) -> [String] {
    fields.flatMap { field -> [String] in
      var help = field.help
      if let condition = field.condition {
        help += " (with `\(condition.field)` \(condition.values.map { "`\($0)`" }.joined(separator: ", ")))"
      }
      let fallback = field.defaultText.map { "`\($0.rendered())`" } ?? (field.isRequired ? "required" : "")
      let name = prefix + field.name
      let row = "| `\(name)` | \(typeText(field)) | \(fallback) | \(help) |"
        .replacing("\n", with: " ")
      return [row] + shapes(of: field.type).flatMap { rows(for: $0.fields(besides: fields), prefix: name + ".") }
    }
  }

  private static func typeText(_ field: any FieldDeclaration) -> String {
    field.type.description + (field.unit.map { " (\($0))" } ?? "")
  }

  private static func choices(of type: FieldType) -> [Choice] {
    switch type {
    case .choice(let choices): choices
    case .array(let element, _): choices(of: element)
    case .oneOf(let types): types.flatMap(choices(of:))
    default: []
    }
  }

  private static func shapes(of type: FieldType) -> [ObjectShape] {
    switch type {
    case .object(let shape): [shape]
    case .array(let element, _): shapes(of: element)
    case .oneOf(let types): types.flatMap(shapes(of:))
    default: []
    }
  }

  /// The JSON Schema of an object.
  ///
  /// - Parameters:
  ///   - extra: members besides the declared fields.
  ///   - stages: the schema of a stage, where the shape holds lists of stages.
  ///   - shape: the fields.
  ///   - required: members that must be there besides the required fields.
  public static func objectSchema(
    _ shape: ObjectShape, extra: [(String, JSONText)] = [], required: [String] = [], stages: JSONText? = nil
  ) -> JSONText {
    let properties = extra + shape.fields.map { ($0.name, schema(for: $0, stages: stages)) }
    let needed =
      required
      + shape.fields.filter { field in
        field.isRequired && field.condition == nil && !shape.exactlyOne.contains(field.name)
          && !shape.atLeastOne.contains(field.name)
      }.map(\.name)
    var members: [(String, JSONText)] = [("type", "object"), ("properties", .object(properties))]
    if !needed.isEmpty { members.append(("required", .array(needed.map { .string($0) }))) }
    members.append(("additionalProperties", false))
    if !shape.exactlyOne.isEmpty {
      members.append(
        ("oneOf", .array(shape.exactlyOne.map { .object([("required", .array([.string($0)]))]) })))
    } else if !shape.atLeastOne.isEmpty {
      members.append(("anyOf", .array(shape.atLeastOne.map { .object([("required", .array([.string($0)]))]) })))
    }
    return .object(members)
  }

  /// A description for everybody, and for editors that show Markdown.
  public static func described(_ text: String) -> [(String, JSONText)] {
    [("description", .string(text.replacing("`", with: "")))]
      + (text.contains("`") ? [("markdownDescription", .string(text))] : [])
  }

  private static func schema(for field: any FieldDeclaration, stages: JSONText?) -> JSONText {
    var sentences = [field.help]
    if let unit = field.unit { sentences.append("unit: \(unit)") }
    if let condition = field.condition {
      sentences.append("with `\(condition.field)` \(condition.values.map { "`\($0)`" }.joined(separator: ", "))")
    }
    var members = described(
      sentences.map { $0.prefix(1).uppercased() + $0.dropFirst() + ($0.hasSuffix(".") ? "" : ".") }
        .joined(separator: " "))
    if let value = field.defaultText { members.append(("default", value)) }
    if case .object(let shape) = schema(for: field.type, stages: stages) { members += shape }
    return .object(members)
  }

  /// A string that is exactly one variable of the job, which takes that variable's value with its JSON type.
  private static let variable: JSONText = .object([("type", "string"), ("pattern", "^\\$\\{vars\\.[^}]+\\}$")])
  /// Where text is wanted an environment variable may stand too.
  private static let textVariable: JSONText = .object([
    ("type", "string"), ("pattern", "^\\$\\{(vars|env)\\.[^}]+\\}$"),
  ])

  private static func schema(for type: FieldType, stages: JSONText?) -> JSONText {
    let shapes = shapesInSchema(of: type, stages: stages)
    switch type {
    // Any string fits already.
    case .text, .any: return shapes.first ?? .object([])
    default: return .object([("anyOf", .array(shapes + [takesText(type) ? textVariable : variable]))])
    }
  }

  private static func takesText(_ type: FieldType) -> Bool {
    switch type {
    case .text, .choice: true
    case .oneOf(let types): types.contains(where: takesText)
    default: false
    }
  }

  /// What the values of a type look like when no variable stands for them.
  private static func shapesInSchema(of type: FieldType, stages: JSONText?) -> [JSONText] {
    switch type {
    case .boolean: return [.object([("type", "boolean")])]
    case .integer(let range):
      return [
        .object([
          ("type", "integer"), ("minimum", .integer(range.lowerBound)), ("maximum", .integer(range.upperBound)),
        ])
      ]
    case .number(let range):
      var members: [(String, JSONText)] = [("type", "number"), ("minimum", .number(range.lowerBound))]
      if range.upperBound < 1e9 { members.append(("maximum", .number(range.upperBound))) }
      return [.object(members)]
    case .text: return [.object([("type", "string")])]
    case .choice(let choices):
      var members: [(String, JSONText)] = [("enum", .array(choices.map { .string($0.name) }))]
      // Known to editors, and nothing to validators.
      if choices.contains(where: { !$0.help.isEmpty }) {
        members.append(("enumDescriptions", .array(choices.map { .string($0.help.replacing("`", with: "")) })))
      }
      return [.object(members)]
    case .array(let element, let count):
      var members: [(String, JSONText)] = [("type", "array"), ("items", schema(for: element, stages: stages))]
      if count.lowerBound > 0 { members.append(("minItems", .integer(count.lowerBound))) }
      if count.upperBound < 100_000 { members.append(("maxItems", .integer(count.upperBound))) }
      return [.object(members)]
    case .object(let shape): return [objectSchema(shape, stages: stages)]
    case .named(let element):
      return [.object([("type", "object"), ("additionalProperties", schema(for: element, stages: stages))])]
    case .oneOf(let types): return types.flatMap { shapesInSchema(of: $0, stages: stages) }
    case .stages: return [chainSchema(stages)]
    case .branches:
      let chain: JSONText = .object([("anyOf", .array([chainSchema(stages), variable]))])
      return [
        .object([
          ("type", "object"), ("minProperties", 1),
          ("propertyNames", .object([("pattern", "^[A-Za-z0-9_-]+$")])), ("additionalProperties", chain),
        ])
      ]
    case .condition:
      guard stages != nil else { return [.object([("type", "object")])] }
      return [.object([("$ref", .string("#/$defs/\(Condition.schemaName)"))])]
    case .any: return []
    }
  }

  private static func chainSchema(_ stages: JSONText?) -> JSONText {
    let stage: JSONText = .object([("anyOf", .array([stages ?? .object([("type", "object")]), variable]))])
    return .object([("type", "array"), ("minItems", 1), ("items", stage)])
  }

  /// Breaks text at spaces into lines of at most `width` characters; always at least one line.
  public static func wrap(_ text: String, width: Int) -> [String] {
    var lines: [String] = []
    var line = ""
    for word in text.split(separator: " ") {
      if !line.isEmpty, line.count + 1 + word.count > width {
        lines.append(line)
        line = String(word)
      } else {
        line += line.isEmpty ? String(word) : " " + word
      }
    }
    lines.append(line)
    return lines
  }
}

extension ObjectShape {
  /// Its fields without those that stand around it too, which a page has told already.
  fileprivate func fields(besides outer: [any FieldDeclaration]) -> [any FieldDeclaration] {
    fields.filter { field in !outer.contains { $0.name == field.name && $0.help == field.help } }
  }
}
