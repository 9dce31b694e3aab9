import JobSyntax

extension ObjectShape {
  /// What the members of an object come to: every field with its value or its default, in the order of the names, so
  /// that two spellings of one meaning give one text. Fields under a condition that does not hold have no meaning and
  /// are left out, as are those without value or default.
  ///
  /// - Parameter members: by name, as they stood in the job, with variables of the job filled in; `${secret.…}` and
  ///   what only an item or a run gives stay as written.
  public func effective(_ members: [String: JSONNode]) -> JSONText {
    var result: [(String, JSONText)] = []
    for field in fields.sorted(by: { $0.name < $1.name }) {
      if let condition = field.condition {
        let value =
          members[condition.field]?.stringValue
          ?? fields.first { $0.name == condition.field }.flatMap {
            if case .string(let text)? = $0.defaultText { text } else { nil }
          }
        // A condition on a list of providers and the like is not a text; what is written then counts.
        if let value, !condition.values.contains(value) { continue }
      }
      if let node = members[field.name] {
        result.append((field.name, field.type.effective(node)))
      } else if let value = field.defaultText {
        result.append((field.name, value))
      }
    }
    return .object(result)
  }
}

extension FieldType {
  /// A value in the one form that stands for all its spellings.
  func effective(_ node: JSONNode) -> JSONText {
    switch self {
    case .object(let shape):
      guard let members = node.objectValue else { return node.sorted }
      return shape.effective(Dictionary(members.map { ($0.key, $0.value) }) { first, _ in first })
    case .array(let element, _):
      guard let elements = node.arrayValue else { return node.sorted }
      return .array(elements.map { element.effective($0) })
    case .oneOf(let types):
      return types.first { $0.mayHold(node.value) }?.effective(node) ?? node.sorted
    // The stages of tails are stages of the chain like all others.
    case .branches: return nil
    // Another key to the same door makes no other picture.
    case .text(.credential): return nil
    case .named(let element):
      guard let members = node.objectValue else { return node.sorted }
      return .object(members.sorted { $0.key < $1.key }.map { ($0.key, element.effective($0.value)) })
    case .boolean, .integer, .number, .text, .choice, .condition, .stages, .any: return node.sorted
    }
  }
}

extension JSONNode {
  /// The value with the members of its objects in the order of their names, and numbers by their value.
  fileprivate var sorted: JSONText {
    switch value {
    case .object(let members):
      .object(members.sorted { $0.key < $1.key }.map { ($0.key, $0.value.sorted) })
    case .array(let elements): .array(elements.map(\.sorted))
    case .number(let number):
      number.integer.map { .integer($0) } ?? number.double.map { .number($0) } ?? JSONText(value)
    default: JSONText(value)
    }
  }
}
