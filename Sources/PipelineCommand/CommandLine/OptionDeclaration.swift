/// A wrong command line: what is wrong and what was probably meant.
struct UsageError: Error, Sendable, Hashable {
  var message: String
  var hint: String?

  init(_ message: String, hint: String? = nil) {
    self.message = message
    self.hint = hint
  }
}

/// An option without its Swift type: what parsing and help need.
protocol OptionDeclaration: Sendable {
  /// Without its dashes.
  var name: String { get }
  /// What stands for the value in help, such as `FILE`; nil for an option that takes none.
  var placeholder: String? { get }
  var repeats: Bool { get }
  /// Whether the value may be left out; where it is given, it then follows an `=`.
  var isValueOptional: Bool { get }
  var help: String { get }
  /// Reads a value as typed; nil for an option that takes none.
  func read(_ text: String?) throws(UsageError) -> any Sendable
}

extension OptionDeclaration {
  /// `--report FILE`, `--wait[=SECONDS]`, `--quiet`.
  var usage: String {
    "--" + name + (placeholder.map { isValueOptional ? "[=\($0)]" : " " + $0 } ?? "")
  }
}

/// An option that is there or not.
struct Flag: OptionDeclaration {
  let name: String
  let help: String
  var placeholder: String? { nil }
  var repeats: Bool { false }
  var isValueOptional: Bool { false }

  init(_ name: String, help: String) {
    self.name = name
    self.help = help
  }

  func read(_ text: String?) throws(UsageError) -> any Sendable { true }
}

/// An option with a value, declared once: parsing, its messages and the help page come from here.
struct Option<Value: Sendable>: OptionDeclaration {
  let name: String
  let placeholder: String?
  let repeats: Bool
  let isValueOptional: Bool
  let help: String
  /// What a value must be, to follow "expects".
  let expected: String
  private let convert: @Sendable (String) -> Value?

  init(
    _ name: String, _ placeholder: String, repeats: Bool = false, isValueOptional: Bool = false, help: String,
    expected: String, convert: @escaping @Sendable (String) -> Value?
  ) {
    self.isValueOptional = isValueOptional
    self.name = name
    self.placeholder = placeholder
    self.repeats = repeats
    self.help = help
    self.expected = expected
    self.convert = convert
  }

  func read(_ text: String?) throws(UsageError) -> any Sendable {
    // A value left out is read as the empty text.
    guard let value = convert(text ?? ""), text != nil || isValueOptional else {
      throw UsageError("--\(name) expects \(expected), got \"\(text ?? "")\"")
    }
    return value
  }
}

extension Option where Value == Int {
  /// A whole number in a range.
  static func integer(_ name: String, _ placeholder: String, in range: ClosedRange<Int>, help: String) -> Self {
    .init(
      name, placeholder, help: help, expected: "a whole number from \(range.lowerBound) to \(range.upperBound)"
    ) { text in Int(text).flatMap { range.contains($0) ? $0 : nil } }
  }
}

extension Option where Value == String {
  /// Any text that is not empty.
  static func text(_ name: String, _ placeholder: String, repeats: Bool = false, help: String) -> Self {
    .init(name, placeholder, repeats: repeats, help: help, expected: "a value") { $0.isEmpty ? nil : $0 }
  }
}

extension Option where Value: RawRepresentable & CaseIterable, Value.RawValue == String {
  /// One of a closed vocabulary.
  ///
  /// - Parameter placeholder: where there are too many to list them.
  static func choice(_ name: String, _ placeholder: String? = nil, repeats: Bool = false, help: String) -> Self {
    let names = Value.allCases.map(\.rawValue)
    let expected = names.dropLast().joined(separator: ", ") + " or " + (names.last ?? "")
    return .init(
      name, placeholder ?? names.joined(separator: "|"), repeats: repeats, help: help, expected: expected
    ) { Value(rawValue: $0) }
  }
}
