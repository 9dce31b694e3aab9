/// What `${…}` may name. The vocabulary is fixed, so that a typing error is found before a run.
public enum TemplateVariable: Sendable, Hashable {
  case itemPath, itemDir, itemStem, itemName, itemExt, itemIndex, itemHash
  /// A column of the manifest.
  case itemColumn(String)
  case imageWidth, imageHeight
  /// The ending of the encoded format, without the dot.
  case ext
  case runDate, runID
  /// The job file's folder; in what is handed to other programs only, as are the three files.
  case jobDir
  /// The file that a program reads, the one it writes, and the input as it lies on the disk.
  case fileIn, fileOut, fileSource
  /// A credential; allowed in credential fields only.
  case secret(String)
  /// An environment variable that was not set when the job was read.
  case environment(String)

  /// The spelling between `${` and `}`.
  public var name: String {
    switch self {
    case .itemPath: "item.path"
    case .itemDir: "item.dir"
    case .itemStem: "item.stem"
    case .itemName: "item.name"
    case .itemExt: "item.ext"
    case .itemIndex: "item.index"
    case .itemHash: "item.hash"
    case .itemColumn(let column): "item.\(column)"
    case .imageWidth: "image.width"
    case .imageHeight: "image.height"
    case .ext: "ext"
    case .runDate: "run.date"
    case .runID: "run.id"
    case .jobDir: "job.dir"
    case .fileIn: "file.in"
    case .fileOut: "file.out"
    case .fileSource: "file.source"
    case .secret(let name): "secret.\(name)"
    case .environment(let name): "env.\(name)"
    }
  }

  /// Every fixed name, for near-name hints and the reference page.
  public static let fixed: [TemplateVariable] = [
    .itemPath, .itemDir, .itemStem, .itemName, .itemExt, .itemIndex, .itemHash, .imageWidth, .imageHeight, .ext,
    .runDate, .runID, .jobDir, .fileIn, .fileOut, .fileSource,
  ]

  /// One line for the reference page.
  public var help: String {
    switch self {
    case .itemPath: "the input's path as found"
    case .itemDir: "the folder of the input below the fixed part of its glob, or empty"
    case .itemStem: "the input's file name without its ending"
    case .itemName: "the input's file name"
    case .itemExt: "the input's ending as written, without the dot"
    case .itemIndex: "the input's place among all inputs, from 0"
    case .itemHash: "SHA-256 of the input's bytes, 64 hex digits"
    case .itemColumn: "a column of the manifest"
    case .imageWidth: "the picture's width in pixels at this stage"
    case .imageHeight: "the picture's height in pixels at this stage"
    case .ext: "the ending of the encoded format, without the dot"
    case .runDate: "the day the run started, 2026-05-01, in UTC unless run.timeZone says otherwise"
    case .runID: "the run's identifier"
    case .jobDir: "the job file's folder; for `exec` only, as are the next three"
    case .fileIn: "the file that the program reads"
    case .fileOut: "the file that the program writes"
    case .fileSource: "the input as it lies on the disk"
    case .secret: "a credential from the environment; in credential fields only"
    case .environment: "an environment variable"
    }
  }

  /// Whether the value differs between items, so that outputs named by it do not all collide.
  public var variesByItem: Bool {
    switch self {
    case .runDate, .runID, .jobDir, .secret, .environment, .ext: false
    default: true
    }
  }

  /// Whether it stands for a file that a program works with.
  public var isProgramFile: Bool { self == .fileIn || self == .fileOut || self == .fileSource }

  public var isSecret: Bool { if case .secret = self { true } else { false } }

  /// Whether the value is the run's, and another in the next one.
  public var isOfTheRun: Bool { self == .runDate || self == .runID }

  init?(name: String) {
    if let fixed = Self.fixed.first(where: { $0.name == name }) {
      self = fixed
    } else if name.hasPrefix("item."), Self.isColumnName(name.dropFirst(5)) {
      self = .itemColumn(String(name.dropFirst(5)))
    } else if name.hasPrefix("secret."), Self.isEnvironmentName(name.dropFirst(7)) {
      self = .secret(String(name.dropFirst(7)))
    } else if name.hasPrefix("env."), Self.isEnvironmentName(name.dropFirst(4)) {
      self = .environment(String(name.dropFirst(4)))
    } else {
      return nil
    }
  }

  /// What an environment variable may be called: letters, digits and `_`, not starting with a digit.
  public static func isEnvironmentName(_ name: some StringProtocol) -> Bool {
    guard let first = name.utf8.first, !(48...57).contains(first) else { return false }
    return name.utf8.allSatisfy { isWordByte($0) }
  }

  /// What a manifest column must be called to be named in a template.
  public static func isColumnName(_ name: some StringProtocol) -> Bool {
    !name.isEmpty && name.utf8.allSatisfy { isWordByte($0) || $0 == UInt8(ascii: "-") || $0 >= 0x80 }
  }

  private static func isWordByte(_ byte: UInt8) -> Bool {
    (48...57).contains(byte) || (65...90).contains(byte) || (97...122).contains(byte) || byte == 95
  }
}

/// A text with `${…}` places, parsed once and rendered for each item.
///
/// `$${` stands for a literal `${`.
public struct Template: Sendable, Hashable {
  public enum Segment: Sendable, Hashable {
    case literal([UInt8])
    case variable(TemplateVariable)
  }

  /// What is wrong with a template's text.
  public struct Problem: Sendable, Hashable {
    public enum Kind: Sendable, Hashable { case unknownVariable, unclosed, empty }
    public var kind: Kind
    /// The name between the braces, as written.
    public var name: String
  }

  public let segments: [Segment]
  public let text: String

  /// Splits `text`; the template is nil when there is any problem.
  public static func parse(_ text: String) -> (template: Template?, problems: [Problem]) {
    var segments: [Segment] = []
    var literal: [UInt8] = []
    var problems: [Problem] = []
    let bytes = Array(text.utf8)
    let dollar = UInt8(ascii: "$")
    let open = UInt8(ascii: "{")
    let close = UInt8(ascii: "}")
    var index = 0
    while index < bytes.count {
      if bytes[index] == dollar, index + 2 < bytes.count, bytes[index + 1] == dollar, bytes[index + 2] == open {
        literal += [dollar, open]
        index += 3
        continue
      }
      guard bytes[index] == dollar, index + 1 < bytes.count, bytes[index + 1] == open else {
        literal.append(bytes[index])
        index += 1
        continue
      }
      guard let end = bytes[index...].firstIndex(of: close) else {
        problems.append(.init(kind: .unclosed, name: String(decoding: bytes[(index + 2)...], as: UTF8.self)))
        break
      }
      let name = String(decoding: bytes[(index + 2)..<end], as: UTF8.self)
      if let variable = TemplateVariable(name: name) {
        if !literal.isEmpty { segments.append(.literal(literal)) }
        literal = []
        segments.append(.variable(variable))
      } else {
        problems.append(.init(kind: name.isEmpty ? .empty : .unknownVariable, name: name))
      }
      index = end + 1
    }
    if !literal.isEmpty { segments.append(.literal(literal)) }
    return (problems.isEmpty ? Template(segments: segments, text: text) : nil, problems)
  }

  /// The text of a field that is no template: only `$${` is undone.
  public static func literal(_ text: String) -> String { text.replacing("$${", with: "${") }

  /// The ending of a file's name where the text itself spells it out, without the dot: `png` of `${item.stem}.png`.
  public var literalEnding: String? {
    guard case .literal(let bytes) = segments.last, let dot = bytes.lastIndex(of: UInt8(ascii: ".")) else { return nil }
    let ending = bytes[(dot + 1)...]
    // A name that begins with its only dot, such as `.png`, has no ending.
    let isHidden = dot == 0 ? segments.count == 1 : bytes[dot - 1] == UInt8(ascii: "/")
    guard !isHidden, !ending.isEmpty, !ending.contains(UInt8(ascii: "/")) else { return nil }
    return String(validating: ending, as: UTF8.self)
  }

  public var variables: [TemplateVariable] {
    segments.compactMap { if case .variable(let variable) = $0 { variable } else { nil } }
  }

  /// Fills the template in; nil when `value` answers nil for any variable.
  public func render(_ value: (TemplateVariable) -> [UInt8]?) -> [UInt8]? {
    var result: [UInt8] = []
    for segment in segments {
      switch segment {
      case .literal(let bytes): result += bytes
      case .variable(let variable):
        guard let bytes = value(variable) else { return nil }
        result += bytes
      }
    }
    return result
  }
}
