import Imaging
import JobSyntax

/// What a condition can look at; the vocabulary is fixed, so that a typing error is found before a run.
public enum ConditionSubject: Sendable, Hashable {
  case imageWidth, imageHeight, imageMegapixels, imageAspect
  case imageFormat, imageHasAlpha, imageFrames
  case itemPath, itemDir, itemStem, itemName, itemExt, itemIndex
  /// A column of the manifest.
  case itemColumn(String)
  case matteScore, matteCoverage

  /// What its values are. A column is text, and read as a number where it is compared with one.
  public enum Kind: Sendable, Hashable { case number, text, boolean, column }

  /// Every fixed subject, for near-name hints and the reference.
  public static let fixed: [ConditionSubject] = [
    .imageWidth, .imageHeight, .imageMegapixels, .imageAspect, .imageFormat, .imageHasAlpha, .imageFrames, .itemPath,
    .itemDir, .itemStem, .itemName, .itemExt, .itemIndex, .matteScore, .matteCoverage,
  ]

  init?(name: String) {
    if let fixed = Self.fixed.first(where: { $0.name == name }) {
      self = fixed
    } else if name.hasPrefix("item."), name.utf8.count > 5 {
      self = .itemColumn(String(name.dropFirst(5)))
    } else {
      return nil
    }
  }

  /// What a template calls the same; nil for what templates cannot name.
  public var variable: TemplateVariable? {
    switch self {
    case .imageWidth: .imageWidth
    case .imageHeight: .imageHeight
    case .itemPath: .itemPath
    case .itemDir: .itemDir
    case .itemStem: .itemStem
    case .itemName: .itemName
    case .itemExt: .itemExt
    case .itemIndex: .itemIndex
    case .itemColumn(let column): .itemColumn(column)
    case .imageMegapixels, .imageAspect, .imageFormat, .imageHasAlpha, .imageFrames, .matteScore, .matteCoverage: nil
    }
  }

  /// The spelling in a job file.
  public var name: String {
    switch self {
    case .imageMegapixels: "image.megapixels"
    case .imageAspect: "image.aspect"
    case .imageFormat: "image.format"
    case .imageHasAlpha: "image.hasAlpha"
    case .imageFrames: "image.frames"
    case .matteScore: "matte.score"
    case .matteCoverage: "matte.coverage"
    case .imageWidth, .imageHeight, .itemPath, .itemDir, .itemStem, .itemName, .itemExt, .itemIndex, .itemColumn:
      variable?.name ?? ""
    }
  }

  public var kind: Kind {
    switch self {
    case .imageWidth, .imageHeight, .imageMegapixels, .imageAspect, .imageFrames, .itemIndex, .matteScore,
      .matteCoverage:
      .number
    case .imageHasAlpha: .boolean
    case .imageFormat, .itemPath, .itemDir, .itemStem, .itemName, .itemExt: .text
    case .itemColumn: .column
    }
  }

  /// One line for the reference.
  public var help: String {
    switch self {
    case .imageMegapixels: "width × height at this stage, in millions"
    case .imageAspect: "width divided by height at this stage"
    case .imageFormat:
      "the format of the input, by its content: " + PictureFormat.allCases.map(\.rawValue).joined(separator: ", ")
    case .imageHasAlpha: "whether the input has an alpha channel"
    case .imageFrames: "frames or pages in the input"
    case .itemColumn: "a column of the manifest; read as a number where it is compared with one"
    case .matteScore: "the score, 0…1, of the mask made last"
    case .matteCoverage: "the subject's share of the picture, 0…1, in the mask made last"
    case .imageWidth, .imageHeight, .itemPath, .itemDir, .itemStem, .itemName, .itemExt, .itemIndex:
      variable?.help ?? ""
    }
  }

  /// Whether the input must have been opened for it to be known.
  public var isOfImage: Bool { name.hasPrefix("image.") }
  public var isOfMatte: Bool { name.hasPrefix("matte.") }
  /// Whether stages that change the picture's sides change it.
  public var isOfSize: Bool {
    switch self {
    case .imageWidth, .imageHeight, .imageMegapixels, .imageAspect: true
    default: false
    }
  }
}

/// How a subject is compared.
public enum ConditionOperator: String, Sendable, Hashable, CaseIterable {
  case eq, ne, gt, gte, lt, lte, `in`, matches

  var words: String {
    switch self {
    case .eq: "is"
    case .ne: "is not"
    case .gt: "is above"
    case .gte: "is at least"
    case .lt: "is below"
    case .lte: "is at most"
    case .in: "is one of"
    case .matches: "matches"
    }
  }

  /// Whether it puts numbers in order.
  public var isOrder: Bool {
    switch self {
    case .gt, .gte, .lt, .lte: true
    default: false
    }
  }

  /// Those that make sense for a kind of subject.
  public static func fitting(_ kind: ConditionSubject.Kind) -> [ConditionOperator] {
    switch kind {
    case .number: [.eq, .ne, .gt, .gte, .lt, .lte, .in]
    case .text: [.eq, .ne, .in, .matches]
    case .boolean: [.eq, .ne]
    case .column: allCases
    }
  }
}

/// A value on either side of a comparison.
public enum ConditionValue: Sendable, Hashable, CustomStringConvertible {
  case number(Double)
  case text(String)
  case boolean(Bool)

  init?(_ node: JSONNode) {
    switch node.value {
    case .number(let number):
      guard let value = number.double else { return nil }
      self = .number(value)
    case .string(let text):
      guard !FieldChecker.isUnresolved(text) else { return nil }
      self = .text(Template.literal(text))
    case .bool(let value): self = .boolean(value)
    case .null, .array, .object: return nil
    }
  }

  public var description: String {
    switch self {
    case .number(let value): Int(exactly: value).map(String.init) ?? "\(value)"
    case .text(let text): JSONText.string(text).rendered()
    case .boolean(let value): "\(value)"
    }
  }
}

/// Something that holds for an item or does not: `{ "image.width": { "gt": 2000 } }`.
public indirect enum Condition: Sendable, Hashable, CustomStringConvertible {
  case all([Condition])
  case any([Condition])
  case not(Condition)
  /// One value, and several only for `in`.
  case test(ConditionSubject, ConditionOperator, [ConditionValue])

  /// The members that are no subjects.
  static let words = ["all", "any", "not"]

  /// Reads a condition that lint found no error in; nil where it is none, or waits for an environment variable.
  public init?(_ node: JSONNode) {
    guard let members = node.objectValue, !members.isEmpty else { return nil }
    var parts: [Condition] = []
    for member in members {
      switch member.key {
      case "all", "any":
        guard let elements = member.value.arrayValue else { return nil }
        let conditions = elements.compactMap { Condition($0) }
        guard conditions.count == elements.count else { return nil }
        parts.append(member.key == "all" ? .all(conditions) : .any(conditions))
      case "not":
        guard let condition = Condition(member.value) else { return nil }
        parts.append(.not(condition))
      default:
        guard let subject = ConditionSubject(name: member.key), let tests = member.value.objectValue, !tests.isEmpty
        else { return nil }
        for test in tests {
          guard let comparison = ConditionOperator(rawValue: test.key) else { return nil }
          let nodes = comparison == .in ? test.value.arrayValue ?? [] : [test.value]
          let values = nodes.compactMap { ConditionValue($0) }
          guard values.count == nodes.count, !values.isEmpty else { return nil }
          parts.append(.test(subject, comparison, values))
        }
      }
    }
    self = parts.count == 1 ? parts[0] : .all(parts)
  }

  public var description: String { text(isInner: false) }

  private func text(isInner: Bool) -> String {
    func joined(_ parts: [Condition], _ word: String) -> String {
      let text = parts.map { $0.text(isInner: parts.count > 1) }.joined(separator: " \(word) ")
      return isInner && parts.count > 1 ? "(\(text))" : text
    }
    switch self {
    case .all(let parts): return joined(parts, "and")
    case .any(let parts): return joined(parts, "or")
    case .not(let part): return "not (\(part.text(isInner: false)))"
    case .test(let subject, let comparison, let values):
      return "\(subject.name) \(comparison.words) \(values.map(\.description).joined(separator: ", "))"
    }
  }

  /// Every subject it looks at.
  public var subjects: Set<ConditionSubject> {
    switch self {
    case .all(let parts), .any(let parts): parts.reduce(into: []) { $0.formUnion($1.subjects) }
    case .not(let part): part.subjects
    case .test(let subject, _, _): [subject]
    }
  }

  /// Whether what the item is called and its columns decide it.
  public var isKnownBeforehand: Bool { subjects.allSatisfy { !$0.isOfImage && !$0.isOfMatte } }

  /// Whether it holds for an item; nil where that depends on what is not known yet.
  ///
  /// - Parameters:
  ///   - item: nil while planning.
  ///   - matte: what is known about the mask made last.
  ///   - identity: whose values are looked at.
  /// - Throws: `condition-value` where a manifest's column is missing, or is no number and compared with one.
  public func holds(
    for identity: ItemIdentity, item: Item?, matte: MatteRecord?
  ) throws(StageError) -> Bool? {
    switch self {
    case .not(let part): return try part.holds(for: identity, item: item, matte: matte).map { !$0 }
    case .all(let parts): return try Self.first(false, of: parts, identity, item, matte)
    case .any(let parts): return try Self.first(true, of: parts, identity, item, matte)
    case .test(let subject, let comparison, let values):
      guard let value = try Self.value(of: subject, identity, item, matte) else { return nil }
      return try Self.compare(value, comparison, values, subject)
    }
  }

  /// Whether it holds, during a run.
  ///
  /// - Throws: `condition-value` as above, and where the item lacks what the condition looks at.
  public func holds(for item: Item, in context: StageContext) throws(StageError) -> Bool {
    if let result = try holds(for: item.identity, item: item, matte: context.matte) { return result }
    let names = subjects.filter { $0.isOfImage || $0.isOfMatte }.map(\.name).sorted().joined(separator: " or ")
    throw StageError(
      "condition-value", "\(names) is not known at this stage: the stage that would give it was passed over")
  }

  /// The first result of the parts that decides, else its opposite. What is not known is passed by: a later part may
  /// decide all the same.
  private static func first(
    _ deciding: Bool, of parts: [Condition], _ identity: ItemIdentity, _ item: Item?, _ matte: MatteRecord?
  ) throws(StageError) -> Bool? {
    var isOpen = false
    for part in parts {
      do throws(StageError) {
        switch try part.holds(for: identity, item: item, matte: matte) {
        case deciding?: return deciding
        case nil: isOpen = true
        default: break
        }
      } catch {
        // What is open now may decide before this part is looked at.
        if isOpen { return nil }
        throw error
      }
    }
    return isOpen ? nil : !deciding
  }

  private static func value(
    of subject: ConditionSubject, _ identity: ItemIdentity, _ item: Item?, _ matte: MatteRecord?
  ) throws(StageError) -> ConditionValue? {
    func size(_ measure: (Double, Double) -> Double) -> ConditionValue? {
      (item?.size).map { .number(measure(Double($0.width), Double($0.height))) }
    }
    switch subject {
    case .imageWidth: return size { width, _ in width }
    case .imageHeight: return size { _, height in height }
    case .imageMegapixels: return size { $0 * $1 / 1e6 }
    case .imageAspect: return size { $0 / $1 }
    case .imageFormat: return (item?.sourceHeader).map { .text($0.format.rawValue) }
    case .imageHasAlpha: return (item?.sourceHeader).map { .boolean($0.hasAlpha) }
    case .imageFrames: return (item?.sourceHeader).map { .number(Double($0.frames)) }
    case .itemPath: return .text(identity.name.display)
    case .itemDir: return .text(identity.directory.display)
    case .itemStem: return .text(identity.name.stem.display)
    case .itemName: return .text(identity.name.lastComponent.display)
    case .itemExt: return .text(identity.name.fileExtension.display)
    case .itemIndex: return .number(Double(identity.inputIndex))
    case .itemColumn(let name):
      guard let value = identity.columns[name] else {
        throw StageError("condition-value", "the item has no column \"\(name)\", which a condition looks at")
      }
      return .text(value)
    case .matteScore: return (matte?.score).map { .number($0) }
    case .matteCoverage: return (matte?.coverage).map { .number($0) }
    }
  }

  private static func compare(
    _ value: ConditionValue, _ comparison: ConditionOperator, _ operands: [ConditionValue],
    _ subject: ConditionSubject
  ) throws(StageError) -> Bool {
    var value = value
    if case .number = operands[0], case .text(let text) = value {
      let trimmed = Substring(text).trimmingSpaces
      guard let number = Double(trimmed), number.isFinite else {
        throw StageError(
          "condition-value",
          "\(subject.name) is \(JSONText.string(text).rendered()): no number, and a condition compares it with "
            + operands[0].description)
      }
      value = .number(number)
    }
    switch comparison {
    case .eq, .in: return operands.contains(value)
    case .ne: return !operands.contains(value)
    case .matches:
      guard case .text(let text) = value, case .text(let pattern) = operands[0] else { return false }
      return matches(Array(text.unicodeScalars), Array(pattern.unicodeScalars))
    case .gt, .gte, .lt, .lte:
      guard case .number(let left) = value, case .number(let right) = operands[0] else { return false }
      return switch comparison {
      case .gt: left > right
      case .gte: left >= right
      case .lt: left < right
      default: left <= right
      }
    }
  }

  /// Whether a whole text fits a pattern in which `*` stands for any run, of slashes too, and `?` for one character.
  private static func matches(_ text: [Unicode.Scalar], _ pattern: [Unicode.Scalar]) -> Bool {
    var (place, want) = (0, 0)
    // Where the last star stands, and how much of the text it has taken.
    var star: (pattern: Int, text: Int)?
    while place < text.count {
      if want < pattern.count, pattern[want] == "*" {
        star = (want, place)
        want += 1
      } else if want < pattern.count, pattern[want] == "?" || pattern[want] == text[place] {
        (place, want) = (place + 1, want + 1)
      } else if let last = star {
        star = (last.pattern, last.text + 1)
        (place, want) = (last.text + 1, last.pattern + 1)
      } else {
        return false
      }
    }
    return pattern[want...].allSatisfy { $0 == "*" }
  }
}

extension Substring {
  fileprivate var trimmingSpaces: Substring {
    var rest = self
    while rest.first == " " { rest.removeFirst() }
    while rest.last == " " { rest.removeLast() }
    return rest
  }
}

extension Field where Value == Condition? {
  /// A condition that may be absent.
  public static func condition(_ name: String, help: String) -> Self {
    .init(name, type: .condition, absent: .some(nil), help: help) { node, _ in Condition(node).map { .some($0) } }
  }
}

extension Field where Value == Condition {
  public static func condition(_ name: String, help: String) -> Self {
    .init(name, type: .condition, absent: nil, help: help) { node, _ in Condition(node) }
  }
}

extension FieldChecker {
  /// Checks a condition: its subjects, its operators and the types of what they are compared with.
  mutating func checkCondition(_ node: JSONNode, name: String) {
    guard let members = node.objectValue else {
      report(
        "wrong-type", "\"\(name)\" expects a condition, got \(node.value.typeName)", at: node.range, path: node.path,
        expected: "a condition", found: node.value.typeName,
        hint: #"such as { "image.width": { "gt": 2000 } }"#)
      return
    }
    if members.isEmpty {
      report(
        "wrong-value", "\"\(name)\" is an empty condition", at: node.range, path: node.path,
        expected: "a subject such as \"image.width\", or \"all\", \"any\", \"not\"", found: "nothing")
    }
    for member in members where !skipping.contains(member.value.path) {
      switch member.key {
      case "all", "any":
        check(member.value, against: .array(.condition, count: 1...1_000), name: member.key)
      case "not": check(member.value, against: .condition, name: "not")
      default: checkSubject(member, in: name)
      }
    }
  }

  private mutating func checkSubject(_ member: JSONMember, in name: String) {
    let subject = ConditionSubject(name: member.key)
    let isKnown =
      switch (subject, columns) {
      case (nil, _), (.itemColumn, .none): false
      case (.itemColumn(let column), .known(let names)): names.contains(column)
      default: true
      }
    guard let subject, isKnown else {
      var known = ConditionSubject.fixed.map(\.name) + Condition.words
      if case .known(let names) = columns { known += names.map { "item.\($0)" } }
      let near = NearestName.suggestion(for: member.key, among: known)
      let lacksManifest = member.key.hasPrefix("item.") && columns == .none && near == nil
      report(
        "unknown-key", "unknown subject \"\(member.key)\" in \"\(name)\"", at: member.keyRange, path: member.value.path,
        expected: "one of: " + known.joined(separator: ", "), found: member.key,
        hint: near.map { "did you mean \"\($0)\"?" }
          ?? (lacksManifest ? "columns come from a manifest, and the input is none" : nil))
      return
    }
    guard let tests = member.value.objectValue, !tests.isEmpty else {
      report(
        "wrong-type", "\"\(subject.name)\" expects what it is compared with, got \(member.value.value.typeName)",
        at: member.value.range, path: member.value.path, expected: "an object such as { \"eq\": … }",
        found: member.value.value.typeName, hint: "write { \"\(subject.name)\": { \"eq\": … } }")
      return
    }
    for test in tests { checkTest(test, of: subject) }
  }

  private mutating func checkTest(_ test: JSONMember, of subject: ConditionSubject) {
    let fitting = ConditionOperator.fitting(subject.kind)
    let list = fitting.map(\.rawValue).joined(separator: ", ")
    guard let comparison = ConditionOperator(rawValue: test.key), fitting.contains(comparison) else {
      let isKnown = ConditionOperator(rawValue: test.key) != nil
      let near = isKnown ? nil : NearestName.suggestion(for: test.key, among: fitting.map(\.rawValue))
      report(
        "unknown-key", "\"\(subject.name)\" cannot be compared by \"\(test.key)\"", at: test.keyRange,
        path: test.value.path, expected: "one of: \(list)", found: test.key,
        hint: near.map { "did you mean \"\($0)\"?" } ?? "known: \(list)")
      return
    }
    let type: FieldType =
      switch subject.kind {
      case .boolean: .boolean
      case .number: .anyNumber
      case .text where subject == .imageFormat && comparison != .matches:
        .choice(PictureFormat.allCases.map { Choice($0.rawValue) })
      case .text: .text(.plain)
      case .column:
        if comparison.isOrder {
          .anyNumber
        } else if comparison == .matches {
          .text(.plain)
        } else {
          .oneOf([.anyNumber, .text(.plain)])
        }
      }
    guard comparison == .in else {
      if case .oneOf = type, case .string = test.value.value {
        // Digits in quotes are text on purpose: a column is text.
        return check(test.value, against: .text(.plain), name: test.key)
      }
      return check(test.value, against: type, name: test.key)
    }
    guard case .oneOf = type, let elements = test.value.arrayValue, !elements.isEmpty else {
      return check(test.value, against: .array(type, count: 1...100_000), name: test.key)
    }
    // Of a column, all are numbers or all are texts: one that is no number could not be compared with the numbers.
    let isText = elements[0].stringValue != nil
    let element: FieldType =
      isText ? .text(.plain) : .anyNumber
    check(test.value, against: .array(element, count: 1...100_000), name: test.key)
  }
}

extension Condition {
  /// Where its schema stands in that of a job; no stage can have the name.
  public static let schemaName = "job:condition"

  /// The JSON Schema of a condition, which refers to itself under `schemaName`.
  public static var schema: JSONText {
    let reference: JSONText = .object([("$ref", .string("#/$defs/\(schemaName)"))])
    let list: JSONText = .object([("type", "array"), ("minItems", 1), ("items", reference)])
    func tests(_ kind: ConditionSubject.Kind) -> JSONText {
      .object([
        ("type", "object"), ("minProperties", 1),
        (
          "properties",
          .object(
            ConditionOperator.fitting(kind).map { comparison in
              (
                comparison.rawValue,
                described(
                  "The subject \(comparison.words) this.",
                  comparison == .in ? .object([("type", "array"), ("minItems", 1)]) : .object([]))
              )
            })
        ), ("additionalProperties", false),
      ])
    }
    func described(_ text: String, _ schema: JSONText) -> JSONText {
      guard case .object(let members) = schema else { return schema }
      return .object([("description", .string(text))] + members)
    }
    return .object([
      ("type", "object"), ("minProperties", 1),
      (
        "properties",
        .object(
          [
            ("all", described("All of these hold.", list)), ("any", described("At least one of these holds.", list)),
            ("not", described("This does not hold.", .object([("allOf", .array([reference]))]))),
          ]
            + ConditionSubject.fixed.map {
              ($0.name, described($0.help.prefix(1).uppercased() + $0.help.dropFirst() + ".", tests($0.kind)))
            })
      ),
      ("patternProperties", .object([("^item\\.", .object([("type", "object"), ("minProperties", 1)]))])),
      ("additionalProperties", false),
    ])
  }
}
