import JobSyntax

/// What stands on a command line besides options.
struct Operand: Sendable {
  /// As help shows it: `JOB`.
  var name: String
  var help: String
  /// How many may be given.
  var count: ClosedRange<Int>

  /// `JOB`, `[NAME]`, `JOB…`. A name that ends in an optional part says by itself how many.
  var usage: String {
    let many = count.upperBound > max(1, count.lowerBound) && !name.hasSuffix("]") ? name + "…" : name
    return count.lowerBound == 0 ? "[\(many)]" : many
  }
}

/// A command line that was understood.
struct ParsedArguments: Sendable {
  private(set) var operands: [String] = []
  private(set) var wantsHelp = false
  private var values: [String: [any Sendable]] = [:]

  subscript(flag: Flag) -> Bool { values[flag.name] != nil }
  subscript<Value>(option: Option<Value>) -> Value? { values[option.name]?.last as? Value }
  func all<Value>(_ option: Option<Value>) -> [Value] { (values[option.name] ?? []).compactMap { $0 as? Value } }

  init() {}

  /// Reads the arguments after the command's name.
  ///
  /// Options may stand anywhere; `--` ends them; a value follows its option or an `=`.
  /// - Throws: the first thing that is wrong.
  init(
    _ arguments: some Sequence<String>, options: [any OptionDeclaration], operand: Operand?
  ) throws(UsageError) {
    let byName = Dictionary(options.map { ($0.name, $0) }, uniquingKeysWith: { first, _ in first })
    var rest = Array(arguments)[...]
    var optionsEnded = false
    while let argument = rest.popFirst() {
      if optionsEnded || !argument.hasPrefix("-") || argument == "-" {
        operands.append(argument)
        continue
      }
      if argument == "--" {
        optionsEnded = true
        continue
      }
      if argument == "-h" || argument == "--help" {
        // Whoever asks for help gets it, whatever else is wrong.
        wantsHelp = true
        return
      }
      let cut = argument.firstIndex(of: "=")
      let written = cut.map { String(argument[..<$0]) } ?? argument
      let attached = cut.map { String(argument[argument.index(after: $0)...]) }
      guard written.hasPrefix("--"), let option = byName[String(written.dropFirst(2))] else {
        if rest.prefix(while: { $0 != "--" }).contains(where: { $0 == "-h" || $0 == "--help" }) {
          wantsHelp = true
          return
        }
        let near = NearestName.suggestion(
          for: String(written.drop { $0 == "-" }), among: options.map(\.name) + ["help"])
        throw UsageError("unknown option \"\(written)\"", hint: near.map { "did you mean \"--\($0)\"?" })
      }
      if option.placeholder == nil {
        guard attached == nil else { throw UsageError("--\(option.name) takes no value") }
        try add(option, nil)
      } else if let attached {
        try add(option, attached)
      } else if option.isValueOptional {
        try add(option, nil)
      } else {
        // `--report --quiet` has lost its value; a value that looks like an option is written with `=`.
        guard let next = rest.first, next == "-" || !next.hasPrefix("-") || Int(next) != nil else {
          throw UsageError("--\(option.name) needs a value: --\(option.name) \(option.placeholder ?? "VALUE")")
        }
        rest = rest.dropFirst()
        try add(option, next)
      }
    }
    try checkOperands(operand)
  }

  private mutating func add(_ option: any OptionDeclaration, _ text: String?) throws(UsageError) {
    guard option.repeats || values[option.name] == nil else {
      throw UsageError("--\(option.name) was given twice")
    }
    values[option.name, default: []].append(try option.read(text))
  }

  private func checkOperands(_ operand: Operand?) throws(UsageError) {
    guard let operand else {
      if let first = operands.first { throw UsageError("unexpected argument \"\(first)\"") }
      return
    }
    if operands.count < operand.count.lowerBound {
      throw UsageError("missing argument \(operand.name): \(operand.help)")
    }
    if operands.count > operand.count.upperBound {
      throw UsageError("unexpected argument \"\(operands[operand.count.upperBound])\"")
    }
    if let empty = operands.firstIndex(of: "") { throw UsageError("argument \(empty + 1) is empty") }
  }
}
