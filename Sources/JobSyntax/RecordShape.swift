/// The type of a value in a JSON object that this program writes.
public indirect enum RecordType: Sendable {
  case text, integer, number, flag
  /// A moment: RFC 3339, UTC.
  case timestamp
  case choice([String])
  case list(RecordType)
  /// An object by the schema of its own shape.
  case object(JSONText)
  /// An object whose members are named by what is in them.
  case named(RecordType)
  case either([RecordType])
  case null
  case any

  /// Its JSON Schema.
  public var schema: JSONText { .object(schemaMembers) }

  var schemaMembers: [(String, JSONText)] {
    switch self {
    case .text: [("type", "string")]
    case .integer: [("type", "integer")]
    case .number: [("type", "number")]
    case .flag: [("type", "boolean")]
    case .timestamp: [("type", "string"), ("format", "date-time")]
    case .choice(let names): [("enum", .array(names.map { .string($0) }))]
    case .list(let element): [("type", "array"), ("items", element.schema)]
    case .object(.object(let members)): members
    case .object: [("type", "object")]
    case .named(let element): [("type", "object"), ("additionalProperties", element.schema)]
    case .either(let types): [("anyOf", .array(types.map(\.schema)))]
    case .null: [("type", "null")]
    case .any: []
    }
  }

  /// Whether a value is of this type, as far as can be told without going into objects.
  func fits(_ value: JSONText) -> Bool {
    switch (self, value) {
    case (.text, .string), (.timestamp, .string), (.integer, .integer), (.flag, .bool), (.object, .object),
      (.named, .object), (.null, .null), (.any, _):
      true
    case (.number, .integer): true
    case (.number, .number(let number)): number.isFinite
    case (.choice(let names), .string(let name)): names.contains(name)
    case (.list(let element), .array(let elements)): elements.allSatisfy(element.fits)
    case (.either(let types), _): types.contains { $0.fits(value) }
    default: false
    }
  }
}

/// One member of a JSON object that this program writes: its name, its type and meaning for the schema, and where its
/// value comes from.
public struct RecordMember<Root>: Sendable {
  public let name: String
  public let type: RecordType
  public let help: String
  /// Whether it is left out where there is nothing to say.
  public let isOptional: Bool
  let value: @Sendable (Root) -> JSONText?

  /// A member that is always there.
  public init(
    _ name: String, _ type: RecordType, _ help: String, value: @escaping @Sendable (Root) -> JSONText
  ) {
    (self.name, self.type, self.help, self.value) = (name, type, help, value)
    isOptional = false
  }

  /// A member that is left out where the value is nil.
  public init(
    optional name: String, _ type: RecordType, _ help: String, value: @escaping @Sendable (Root) -> JSONText?
  ) {
    (self.name, self.type, self.help, self.value) = (name, type, help, value)
    isOptional = true
  }

  /// A member that is null where the value is nil.
  public init(
    nullable name: String, _ type: RecordType, _ help: String, value: @escaping @Sendable (Root) -> JSONText?
  ) {
    self.name = name
    self.type = .either([type, .null])
    self.help = help
    self.value = { value($0) ?? .null }
    isOptional = false
  }
}

/// A JSON object that this program writes, declared once: what is written and its JSON Schema both come from here.
public struct RecordShape<Root>: Sendable {
  public let members: [RecordMember<Root>]
  /// Whether there may be members besides the declared ones, and what they are.
  public let others: RecordType?

  public init(_ members: [RecordMember<Root>], others: RecordType? = nil) {
    self.members = members
    self.others = others
  }

  /// The object of a value, members in the order they are declared.
  ///
  /// - Parameter extra: members besides the declared ones.
  public func text(of root: Root, and extra: [(String, JSONText)] = []) -> JSONText {
    var result: [(String, JSONText)] = []
    result.reserveCapacity(members.count + extra.count)
    for member in members {
      guard let value = member.value(root) else { continue }
      assert(member.type.fits(value), "\(member.name) is declared otherwise than it is written")
      result.append((member.name, value))
    }
    assert(extra.isEmpty || others != nil, "members that are not declared")
    return .object(result + extra)
  }

  /// Its JSON Schema.
  public var schema: JSONText {
    .object([
      ("type", "object"),
      (
        "properties",
        .object(members.map { ($0.name, .object([("description", .string($0.help))] + $0.type.schemaMembers)) })
      ),
      ("required", .array(members.filter { !$0.isOptional }.map { .string($0.name) })),
      ("additionalProperties", others?.schema ?? false),
    ])
  }
}
