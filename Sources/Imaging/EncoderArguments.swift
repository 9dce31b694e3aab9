import CVips
import Synchronization

/// One argument that libvips' saver for a format takes, beside those that `EncodeOptions` sets.
public struct EncoderArgument: Sendable, Hashable {
  public enum Kind: Sendable, Hashable {
    case boolean
    case integer(ClosedRange<Int>)
    case number(ClosedRange<Double>)
    /// One of these names.
    case choice([String])
    /// Any of these names together.
    case flags([String])
  }

  /// A value for an argument, as a job gives it.
  public enum Value: Sendable, Hashable {
    case boolean(Bool)
    case integer(Int)
    case number(Double)
    case name(String)
    case names([String])
  }

  /// libvips' own name, with hyphens.
  public var name: String
  public var kind: Kind
  /// libvips' one line about it.
  public var help: String
  /// The value where none is given, in words.
  public var usual: String

  /// What it takes, in words: `an integer from 0 to 8`.
  public var expected: String {
    switch kind {
    case .boolean: "true or false"
    case .integer(let range): "an integer from \(range.lowerBound) to \(range.upperBound)"
    case .number(let range): "a number from \(range.lowerBound) to \(range.upperBound)"
    case .choice(let names): "one of: " + names.joined(separator: ", ")
    case .flags(let names): "a name or a list of names out of: " + names.joined(separator: ", ")
    }
  }
}

/// The arguments of the savers as this libvips declares them, for checking and passing on an `options` object.
public enum EncoderArguments {
  /// What is wrong with one member of an `options` object.
  public enum Problem: Sendable, Hashable {
    /// No such argument; the names there are.
    case unknown(known: [String])
    /// The argument is set by a field of ours; nil where it is not to be set at all.
    case taken(by: String?)
    /// The value is of another type; what is expected.
    case wrongType(expected: String)
    /// The value is outside the range or vocabulary; what is expected.
    case outOfRange(expected: String)
  }

  /// The arguments that may be passed on for a format, sorted by name; none where this libvips does not write it.
  ///
  /// Starts libvips, which takes some 15 ms the first time.
  public static func all(for format: PictureFormat) -> [EncoderArgument] { table(format).map(\.argument) }

  /// Checks one member of an `options` object; nil where it can be passed on.
  ///
  /// - Parameter name: libvips' name; underscores count as hyphens.
  public static func problem(
    with name: String, _ value: EncoderArgument.Value, for format: PictureFormat
  ) -> Problem? {
    let name = canonical(name)
    if let owner = taken(format)[name] { return .taken(by: owner) }
    let entries = table(format)
    guard let entry = entries.first(where: { $0.argument.name == name }) else {
      return .unknown(known: entries.map(\.argument.name))
    }
    switch entry.number(for: value) {
    case .success: return nil
    case .failure(.type): return .wrongType(expected: entry.argument.expected)
    case .failure(.range): return .outOfRange(expected: entry.argument.expected)
    }
  }

  /// Sets checked arguments on a saver.
  ///
  /// - Throws: `encoder` where one does not pass `problem`.
  static func apply(
    _ arguments: [String: EncoderArgument.Value], to saver: inout SaverCall, for format: PictureFormat
  ) throws(ImagingError) {
    for (name, value) in arguments.sorted(by: { $0.key < $1.key }) {
      if let problem = problem(with: name, value, for: format) {
        throw ImagingError(.encoder, message(problem, name, format))
      }
      let entry = table(format).first { $0.argument.name == canonical(name) }
      guard let entry, case .success(let number) = entry.number(for: value) else { continue }
      try saver.set(entry.argument.name, number)
    }
  }

  private static func message(_ problem: Problem, _ name: String, _ format: PictureFormat) -> String {
    switch problem {
    case .unknown: "the encoder for \(format.displayName) has no option \"\(name)\""
    case .taken(let field?): "the encoder's option \"\(name)\" is set by \"\(field)\""
    case .taken(nil): "the encoder's option \"\(name)\" cannot be set"
    case .wrongType(let expected), .outOfRange(let expected): "the encoder's option \"\(name)\" expects \(expected)"
    }
  }

  static func canonical(_ name: String) -> String {
    String(name.map { $0 == "_" ? "-" : $0 })
  }

  // MARK: libvips' list

  private enum Misfit: Error { case type, range }

  private struct Entry: Sendable {
    var argument: EncoderArgument
    /// The numbers behind the names of a choice or of flags.
    var values: [String: Int]

    func number(for value: EncoderArgument.Value) -> Result<Double, Misfit> {
      switch (argument.kind, value) {
      case (.boolean, .boolean(let on)): return .success(on ? 1 : 0)
      case (.integer(let range), .integer(let number)):
        return range.contains(number) ? .success(Double(number)) : .failure(.range)
      case (.number(let range), .integer(let number)):
        return range.contains(Double(number)) ? .success(Double(number)) : .failure(.range)
      case (.number(let range), .number(let number)):
        return range.contains(number) ? .success(number) : .failure(.range)
      case (.choice, .name(let name)): return values[name].map { .success(Double($0)) } ?? .failure(.range)
      case (.flags, .name(let name)): return values[name].map { .success(Double($0)) } ?? .failure(.range)
      case (.flags, .names(let names)):
        var sum = 0
        for name in names {
          guard let bit = values[name] else { return .failure(.range) }
          sum |= bit
        }
        return .success(Double(sum))
      default: return .failure(.type)
      }
    }
  }

  private static let tables = Mutex<[PictureFormat: [Entry]]>([:])

  private static func table(_ format: PictureFormat) -> [Entry] {
    if let known = tables.withLock({ $0[format] }) { return known }
    let made = read(format)
    tables.withLock { $0[format] = made }
    return made
  }

  private static func read(_ format: PictureFormat) -> [Entry] {
    guard let saver = format.saver, Libvips.supports(saver) else { return [] }
    let most = 64
    let raw = [CVipsArgument](unsafeUninitializedCapacity: most) { buffer, count in
      count = Int(cvips_saver_arguments(saver, buffer.baseAddress, Int32(most)))
    }
    let taken = taken(format)
    return raw.compactMap { item -> Entry? in
      guard let name = item.name.map({ String(cString: $0) }), taken[name] == nil else { return nil }
      let names = item.kind == CVIPS_CHOICE || item.kind == CVIPS_FLAGS ? named(item.type) : []
      let kind: EncoderArgument.Kind
      let usual: String
      switch item.kind {
      case CVIPS_BOOLEAN:
        kind = .boolean
        usual = item.usual != 0 ? "true" : "false"
      case CVIPS_INTEGER:
        kind = .integer(Int(item.least)...Int(item.most))
        usual = "\(Int(item.usual))"
      case CVIPS_NUMBER:
        kind = .number(item.least...item.most)
        usual = "\(item.usual)"
      case CVIPS_CHOICE:
        kind = .choice(names.map(\.name))
        usual = names.first { $0.value == Int(item.usual) }?.name ?? ""
      default:
        kind = .flags(names.map(\.name))
        usual = names.first { $0.value == Int(item.usual) }?.name ?? ""
      }
      return Entry(
        argument: EncoderArgument(
          name: name, kind: kind, help: item.help.map { String(cString: $0) } ?? "", usual: usual),
        values: Dictionary(names.map { ($0.name, $0.value) }, uniquingKeysWith: { first, _ in first }))
    }.sorted { $0.argument.name < $1.argument.name }
  }

  private static func named(_ type: GType) -> [(name: String, value: Int)] {
    var result: [(String, Int)] = []
    var value: Int32 = 0
    while let name = cvips_name_at(type, Int32(result.count), &value) {
      result.append((String(cString: name), Int(value)))
    }
    // libvips closes its enumerations with a member that only counts them.
    return result.filter { $0.0 != "last" }
  }

  /// Arguments that are not passed on, with the field that sets them; nil where nothing may.
  private static func taken(_ format: PictureFormat) -> [String: String?] {
    var names: [String: String?] = [
      "strip": "metadata", "keep": "metadata", "background": "background", "profile": "colorSpace", "page-height": nil,
    ]
    let own: [String: String?]
    switch format {
    case .jpeg: own = ["Q": "quality", "interlace": "progressive", "subsample-mode": "chroma"]
    case .png: own = ["compression": "compression", "palette": "palette", "bitdepth": "bitDepth"]
    case .webp: own = ["Q": "quality", "lossless": "lossless", "effort": "effort"]
    case .avif:
      // What libheif 1.15 calls lossless is up to 8 levels off. The encoder is the one that is there.
      own = [
        "Q": "quality", "effort": "effort", "bitdepth": "bitDepth", "compression": "format", "subsample-mode": "chroma",
        "lossless": nil, "encoder": nil,
      ]
    // "properties" would write every field of libvips', place included, into the picture's description.
    case .tiff:
      own = ["Q": "quality", "compression": "compression", "bitdepth": "bitDepth", "properties": "metadata"]
    case .jxl: own = ["Q": "quality", "distance": "quality", "lossless": "lossless", "effort": "effort"]
    case .gif:
      own = ["effort": "effort", "dither": "dither", "bitdepth": "colors"]
    case .heic, .jp2, .bmp, .ico, .svg, .pdf: own = [:]
    }
    for (name, field) in own { names.updateValue(field, forKey: name) }
    return names
  }
}
