import JobSyntax

/// How a text value is read.
public enum TextKind: String, Sendable, Hashable {
  case plain
  /// A path, relative to the job file's folder.
  case path
  /// Text with `${…}` filled in for each item.
  case template
  /// `#rgb`, `#rgba`, `#rrggbb`, `#rrggbbaa`, a CSS colour name, or `transparent`.
  case color
  /// A share such as `12.5%`, read by `Length`.
  case percentage
  /// Width to height, such as `16:9`, read by `AspectRatio`.
  case ratio
  /// Text with `${secret.NAME}`, which no message, report or ledger ever holds filled in.
  case credential
  /// Text with `${…}` filled in for each item, in which `${secret.NAME}` may stand too.
  case secretTemplate
  /// An argument of a program: a template that may name `${job.dir}` and the program's files too.
  case argument
}

/// One value of a closed vocabulary, with its help text.
public struct Choice: Sendable, Hashable {
  public var name: String
  public var help: String

  public init(_ name: String, _ help: String = "") {
    self.name = name
    self.help = help
  }
}

/// A closed vocabulary as an enum: its raw values are what users write.
public protocol FieldChoice: RawRepresentable, CaseIterable, Sendable where RawValue == String {
  /// One line for the reference page.
  var help: String { get }
}

/// The JSON shapes a field takes. Lint, help, the reference page and the JSON Schema all come from this value.
public indirect enum FieldType: Sendable {
  case boolean
  case integer(ClosedRange<Int>)
  case number(ClosedRange<Double>)
  case text(TextKind)
  case choice([Choice])
  case array(FieldType, count: ClosedRange<Int>)
  case object(ObjectShape)
  /// Names that the job chooses, with a value each.
  case named(FieldType)
  /// One of several shapes, told apart by their JSON type.
  case oneOf([FieldType])
  /// A list of stages; its members are checked by the job's linter, which knows the registry.
  case stages
  /// Names with a list of stages each.
  case branches
  /// Something that holds for an item or does not.
  case condition
  /// Any JSON value.
  case any
}

/// The members an object may have.
public struct ObjectShape: Sendable {
  public var fields: [any FieldDeclaration]
  /// Exactly one of these names must be there.
  public var exactlyOne: [String]
  /// At least one of these names must be there.
  public var atLeastOne: [String]

  public init(_ fields: [any FieldDeclaration], exactlyOne: [String] = [], atLeastOne: [String] = []) {
    self.fields = fields
    self.exactlyOne = exactlyOne
    self.atLeastOne = atLeastOne
  }
}

/// A field that only means something when another field has one of some values.
public struct FieldCondition: Sendable, Hashable {
  public var field: String
  public var values: [String]

  public init(_ field: String, in values: [String]) {
    self.field = field
    self.values = values
  }
}

/// A field without its Swift type: what lint, help and schema need.
public protocol FieldDeclaration: Sendable {
  var name: String { get }
  var type: FieldType { get }
  var help: String { get }
  var isRequired: Bool { get }
  /// The default as it would stand in a job file; nil where there is none.
  var defaultText: JSONText? { get }
  /// The unit of a number, such as `pixels`.
  var unit: String? { get }
  var condition: FieldCondition? { get }
  /// Reads a value that fits `type`; nil where it does not.
  func read(_ node: JSONNode, file: String) -> (any Sendable)?
}

/// One typed setting of a stage: its name, shape, default and help, declared once.
public struct Field<Value: Sendable>: FieldDeclaration {
  public let name: String
  public let type: FieldType
  public let help: String
  public let isRequired: Bool
  public let defaultText: JSONText?
  public let unit: String?
  public let condition: FieldCondition?
  /// What `Settings` answers when the field is absent; nil for required fields.
  public let absent: Value?
  private let convert: @Sendable (JSONNode, String) -> Value?

  /// Declares a field of any shape; the factories below cover the common ones.
  ///
  /// - Parameters:
  ///   - absent: the value when the job does not name the field; nil makes it required.
  ///   - convert: turns a node that fits `type` into the value.
  ///   - help: one sentence for lint, help and schema, in lower case and without a full stop.
  ///   - type: the JSON shapes that it takes.
  ///   - condition: another field, and the values of it with which this one means something.
  ///   - defaultText: the default as it would stand in a job; nil where there is none.
  ///   - unit: the unit of a number.
  ///   - name: what jobs call it.
  public init(
    _ name: String, type: FieldType, absent: Value?, defaultText: JSONText? = nil, unit: String? = nil,
    when condition: FieldCondition? = nil, help: String, convert: @escaping @Sendable (JSONNode, String) -> Value?
  ) {
    self.name = name
    self.type = type
    self.help = help
    self.isRequired = absent == nil
    self.defaultText = defaultText
    self.unit = unit
    self.condition = condition
    self.absent = absent
    self.convert = convert
  }

  public func read(_ node: JSONNode, file: String) -> (any Sendable)? { convert(node, file) }
}

extension JSONNode {
  var integerValue: Int? {
    if case .number(let number) = value { number.integer } else { nil }
  }

  var doubleValue: Double? {
    if case .number(let number) = value { number.double } else { nil }
  }
}

extension Field where Value == Bool {
  public static func boolean(
    _ name: String, default value: Bool, when condition: FieldCondition? = nil, help: String
  ) -> Self {
    .init(name, type: .boolean, absent: value, defaultText: .bool(value), when: condition, help: help) { node, _ in
      node.boolValue
    }
  }
}

extension Field where Value == Int {
  public static func integer(
    _ name: String, in range: ClosedRange<Int>, default value: Int?, unit: String? = nil,
    when condition: FieldCondition? = nil, help: String
  ) -> Self {
    .init(
      name, type: .integer(range), absent: value, defaultText: value.map { .integer($0) }, unit: unit, when: condition,
      help: help
    ) { node, _ in node.integerValue }
  }
}

extension Field where Value == Int? {
  public static func integer(
    _ name: String, in range: ClosedRange<Int>, unit: String? = nil, when condition: FieldCondition? = nil,
    help: String
  ) -> Self {
    .init(
      name, type: .integer(range), absent: .some(nil), unit: unit, when: condition, help: help
    ) { node, _ in node.integerValue.map { .some($0) } }
  }
}

extension Field where Value == Double {
  public static func number(
    _ name: String, in range: ClosedRange<Double>, default value: Double?, unit: String? = nil,
    when condition: FieldCondition? = nil, help: String
  ) -> Self {
    .init(
      name, type: .number(range), absent: value, defaultText: value.map { .number($0) }, unit: unit, when: condition,
      help: help
    ) { node, _ in node.doubleValue }
  }
}

extension Field where Value == Double? {
  public static func number(
    _ name: String, in range: ClosedRange<Double>, unit: String? = nil, when condition: FieldCondition? = nil,
    help: String
  ) -> Self {
    .init(
      name, type: .number(range), absent: .some(nil), unit: unit, when: condition, help: help
    ) { node, _ in node.doubleValue.map { .some($0) } }
  }
}

extension Field where Value == String {
  public static func text(
    _ name: String, _ kind: TextKind = .plain, default value: String?, when condition: FieldCondition? = nil,
    help: String
  ) -> Self {
    .init(
      name, type: .text(kind), absent: value, defaultText: value.map { .string($0) }, when: condition, help: help
    ) { node, _ in node.stringValue.map(Template.literal) }
  }
}

extension Field where Value == String? {
  public static func text(
    _ name: String, _ kind: TextKind = .plain, when condition: FieldCondition? = nil, help: String
  ) -> Self {
    .init(
      name, type: .text(kind), absent: .some(nil), when: condition, help: help
    ) { node, _ in node.stringValue.map { .some(Template.literal($0)) } }
  }
}

extension Field where Value == Template {
  public static func template(
    _ name: String, default text: String?, when condition: FieldCondition? = nil, help: String
  ) -> Self {
    .init(
      name, type: .text(.template), absent: text.flatMap { Template.parse($0).template },
      defaultText: text.map { .string($0) }, when: condition, help: help
    ) { node, _ in node.stringValue.flatMap { Template.parse($0).template } }
  }
}

extension Field where Value == Template? {
  public static func template(
    _ name: String, when condition: FieldCondition? = nil, allowsSecrets: Bool = false, help: String
  ) -> Self {
    .init(
      name, type: .text(allowsSecrets ? .secretTemplate : .template), absent: .some(nil), when: condition, help: help
    ) { node, _ in node.stringValue.flatMap { Template.parse($0).template }.map { .some($0) } }
  }
}

/// A name that a job chooses, and the text for it.
public struct NamedTemplate: Sendable, Hashable {
  public var name: String
  public var template: Template
}

extension Field where Value == [NamedTemplate] {
  /// Names and texts, in the order of the job.
  public static func templates(
    _ name: String, when condition: FieldCondition? = nil, allowsSecrets: Bool = false, help: String
  ) -> Self {
    .init(
      name, type: .named(.text(allowsSecrets ? .secretTemplate : .template)), absent: [], when: condition, help: help
    ) { node, _ in
      node.objectValue?.compactMap { member in
        member.value.stringValue.flatMap { Template.parse($0).template }.map {
          NamedTemplate(name: member.key, template: $0)
        }
      }
    }
  }
}

extension Field where Value: FieldChoice {
  public static func choice(
    _ name: String, default value: Value?, when condition: FieldCondition? = nil, help: String
  ) -> Self {
    .init(
      name, type: .choice(Value.allCases.map { Choice($0.rawValue, $0.help) }), absent: value,
      defaultText: value.map { .string($0.rawValue) }, when: condition, help: help
    ) { node, _ in node.stringValue.flatMap { Value(rawValue: $0) } }
  }
}

extension Field {
  /// One of several words, or none.
  public static func choice<C: FieldChoice>(
    _ name: String, when condition: FieldCondition? = nil, help: String
  ) -> Self where Value == C? {
    .init(
      name, type: .choice(C.allCases.map { Choice($0.rawValue, $0.help) }), absent: .some(nil), when: condition,
      help: help
    ) { node, _ in node.stringValue.flatMap { C(rawValue: $0) }.map { .some($0) } }
  }
}

extension Field where Value == Settings {
  /// A nested object.
  public static func object(
    _ name: String, _ shape: ObjectShape, when condition: FieldCondition? = nil, required: Bool = true, help: String
  ) -> Self {
    .init(
      name, type: .object(shape),
      absent: required ? nil : Settings(values: [:], nodes: [:], path: "$", range: nil, file: ""),
      when: condition, help: help
    ) { node, file in Settings(reading: node, shape: shape, file: file) }
  }
}

extension Field where Value == Settings? {
  /// A nested object that may be absent.
  public static func optionalObject(
    _ name: String, _ shape: ObjectShape, when condition: FieldCondition? = nil, help: String
  ) -> Self {
    .init(name, type: .object(shape), absent: .some(nil), when: condition, help: help) { node, file in
      .some(Settings(reading: node, shape: shape, file: file))
    }
  }
}

extension Field where Value == [String] {
  public static func texts(
    _ name: String, _ kind: TextKind = .plain, count: ClosedRange<Int> = 0...100_000, default value: [String]?,
    when condition: FieldCondition? = nil, help: String
  ) -> Self {
    .init(
      name, type: .array(.text(kind), count: count), absent: value,
      defaultText: value.map { .array($0.map { .string($0) }) }, when: condition, help: help
    ) { node, _ in node.arrayValue.map { $0.compactMap(\.stringValue).map(Template.literal) } }
  }
}

/// The settings of one stage, read and checked; fields are read through their declarations.
public struct Settings: Sendable {
  private var values: [String: any Sendable]
  /// The members as they stood in the job.
  public private(set) var nodes: [String: JSONNode]
  /// Where the object stands, such as `$.stages[2]`.
  public let path: String
  public let range: SourceRange?
  public let file: String
  /// Whether every required field, in nested objects too, has a value: lint has found no error in it, and it does not
  /// wait for an unset environment variable.
  public private(set) var isComplete = true

  init(values: [String: any Sendable], nodes: [String: JSONNode], path: String, range: SourceRange?, file: String) {
    self.values = values
    self.nodes = nodes
    self.path = path
    self.range = range
    self.file = file
  }

  /// Reads the members of `node` that fit `shape`; what does not fit counts as absent (the linter has reported it).
  public init(reading node: JSONNode, shape: ObjectShape, file: String) {
    var values: [String: any Sendable] = [:]
    var nodes: [String: JSONNode] = [:]
    for field in shape.fields {
      guard let member = node[field.name] else { continue }
      nodes[field.name] = member
      if let value = field.read(member, file: file) { values[field.name] = value }
    }
    self.init(values: values, nodes: nodes, path: node.path, range: node.range, file: file)
    isComplete = Self.isComplete(node, shape, file: file)
  }

  private static func isComplete(_ node: JSONNode, _ shape: ObjectShape, file: String) -> Bool {
    guard node.objectValue != nil else { return false }
    var readable: Set<String> = []
    for field in shape.fields {
      guard let member = node[field.name] else {
        // A field under a condition is asked for only where the condition holds, which lint checks.
        let isOptional = !field.isRequired || field.condition != nil
        guard isOptional || shape.exactlyOne.contains(field.name) || shape.atLeastOne.contains(field.name) else {
          return false
        }
        continue
      }
      let isRead = field.read(member, file: file) != nil
      guard isRead || !field.isRequired, isComplete(member, field.type, file: file) else { return false }
      if isRead { readable.insert(field.name) }
    }
    for names in [shape.exactlyOne, shape.atLeastOne] where !names.isEmpty {
      guard names.contains(where: readable.contains) else { return false }
    }
    return true
  }

  private static func isComplete(_ node: JSONNode, _ type: FieldType, file: String) -> Bool {
    switch type {
    case .object(let shape): isComplete(node, shape, file: file)
    case .condition: Condition(node) != nil
    case .branches: node.objectValue != nil
    case .array(let element, _): node.arrayValue?.allSatisfy { isComplete($0, element, file: file) } ?? true
    case .named(let element): node.objectValue?.allSatisfy { isComplete($0.value, element, file: file) } ?? true
    case .oneOf(let types):
      types.first { $0.mayHold(node.value) }.map { isComplete(node, $0, file: file) } ?? true
    default: true
    }
  }

  /// The field's value, or its default. The field must be one of those the settings were read with; a required
  /// field must be there, which lint has proved before anything asks.
  public subscript<Value>(_ field: Field<Value>) -> Value {
    if let value = values[field.name] as? Value { return value }
    guard let absent = field.absent else {
      preconditionFailure("the required field \(field.name) was read before it was checked")
    }
    return absent
  }

  /// Whether the job gives the field a value that could be read: not when it names an unset variable.
  public func hasValue(for field: some FieldDeclaration) -> Bool { values[field.name] != nil }

  /// Whether the job names the field.
  public func isSet(_ field: some FieldDeclaration) -> Bool { nodes[field.name] != nil }

  /// A diagnostic that points at a field, or at the whole stage where the field is absent.
  public func diagnostic(
    _ severity: Diagnostic.Severity, _ code: String, at field: (any FieldDeclaration)? = nil, _ message: String,
    hint: String? = nil
  ) -> Diagnostic {
    let node = field.flatMap { nodes[$0.name] }
    return Diagnostic(
      severity: severity, code: code, message: message, file: file, range: node?.range ?? range,
      path: node?.path ?? path, hint: hint)
  }
}
