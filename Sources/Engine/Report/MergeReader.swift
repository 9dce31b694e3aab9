import JobSyntax
import PipelineKit

/// Reads the report of one shard piece by piece: what it says of the run, then one item after the other. Holds one item
/// at a time, so a report of any length takes no memory. Blanks and line breaks may be anywhere; the order of the two
/// members may not.
final class MergeReader {
  /// What the merge needs to know of an item, and the whole of it.
  struct Entry {
    /// Among all inputs.
    var index: Int
    var status: ItemStatus
    /// JSON on one line.
    var text: [UInt8]
  }

  /// For messages.
  let name: String
  let run: JSONNode
  let shard: Shard
  let job: String
  /// What the shard saw of all inputs.
  let inputCount: Int
  let inputsDigest: String
  let exitCode: Int32
  /// How many of its items ended how, by what it says of the run.
  let announced: [ItemStatus: Int]
  private var met: [ItemStatus: Int] = [:]

  private let stream: ByteStream
  private var isFirst = true
  /// No value is longer: what is, is no item of ours.
  private static let mostBytes = ReportReader.mostBytes

  /// Opens a report and reads what it says of the run.
  ///
  /// - Throws: `report-unreadable`, `report-format` and `report-not-a-shard` of class environment.
  init(_ path: PathBytes) throws(StageError) {
    name = path.printable
    let file: OpenFile
    switch OpenFile.open(path) {
    case .success(let opened): file = opened
    case .failure(let error):
      throw StageError(
        "report-unreadable", "the report \(name) cannot be read", kind: .environment, cause: error.text,
        hint: error.isMissing ? "a run that was killed leaves none: run its shard again" : nil)
    }
    if case .success(let status) = file.status, status.kind == .folder {
      throw StageError("report-unreadable", "\(name) is a folder, not a report", kind: .environment)
    }
    stream = ByteStream(file)
    let lexer = ReportLexer(stream, name: name, mostBytes: Self.mostBytes)
    try lexer.expect("{")
    try lexer.expectKey("run")
    let text = try lexer.value()
    guard let run = StrictJSON.parse(SourceFile(name: name, text: text)).root, let job = run["job"]?.stringValue,
      let code = run["exitCode"]?.numberValue?.integer, let exitCode = Int32(exactly: code),
      let counts = run["counts"]
    else { throw lexer.failure("it does not say what a run of this program says") }
    guard let shard = run["shard"], let index = shard["index"]?.numberValue?.integer,
      let count = shard["count"]?.numberValue?.integer, let shard = Shard(index: index, count: count),
      let inputs = run["shard"]?["inputs"]?.numberValue?.integer, inputs >= 0,
      let digest = run["shard"]?["inputsDigest"]?.stringValue
    else {
      throw StageError(
        "report-not-a-shard",
        "the report \(name) is not of a shard"
          + (run["shards"] == nil ? "" : ": it was merged from \(run["shards"]?.numberValue?.integer ?? 0) already"),
        kind: .environment, hint: "`pipeline run --shard I/N --report FILE` writes those that can be merged")
    }
    try lexer.expect(",")
    try lexer.expectKey("items")
    try lexer.expect("[")
    self.run = run
    self.shard = shard
    self.job = job
    self.exitCode = exitCode
    inputCount = inputs
    inputsDigest = digest
    var announced: [ItemStatus: Int] = [:]
    for status in ItemStatus.allCases {
      let count = counts[status.rawValue]?.numberValue?.integer ?? 0
      guard (0...inputs).contains(count) else {
        throw lexer.failure("it says \(count) of \(inputs) pictures are \(status.rawValue)")
      }
      announced[status] = count
    }
    self.announced = announced
  }

  /// The next item; nil after the last, when the report has been found whole.
  ///
  /// - Throws: `report-format` where the report breaks off or is not as this program writes it.
  func next() throws(StageError) -> Entry? {
    let lexer = ReportLexer(stream, name: name, mostBytes: Self.mostBytes)
    if try lexer.isNext("]") {
      try lexer.expect("]")
      try lexer.expect("}")
      try lexer.expectEnd()
      for status in ItemStatus.allCases where met[status, default: 0] != announced[status] {
        throw lexer.failure(
          "it says \(announced[status] ?? 0) of its pictures are \(status.rawValue) and holds \(met[status] ?? 0)")
      }
      return nil
    }
    if !isFirst { try lexer.expect(",") }
    isFirst = false
    var text = try lexer.value()
    guard let node = StrictJSON.parse(SourceFile(name: name, text: text)).root,
      let index = node["index"]?.numberValue?.integer,
      let status = node["status"]?.stringValue.flatMap({ ItemStatus(rawValue: $0) })
    else { throw lexer.failure("one of its pictures has no index or status") }
    if text.contains(UInt8(ascii: "\n")) { text = Array(JSONText(node.value).rendered().utf8) }
    met[status, default: 0] += 1
    return Entry(index: index, status: status, text: text)
  }
}

/// The little of JSON's grammar that it takes to cut a text into values without reading them.
struct ReportLexer {
  let stream: ByteStream
  let name: String
  let mostBytes: Int

  init(_ stream: ByteStream, name: String, mostBytes: Int) {
    self.stream = stream
    self.name = name
    self.mostBytes = mostBytes
  }

  func failure(_ why: String) -> StageError {
    StageError("report-format", "\(name) is not a whole report of this program: \(why)", kind: .environment)
  }

  private func byte() throws(StageError) -> UInt8? {
    do throws(TextFault) { return try stream.next() } catch { throw unreadable(error) }
  }

  private func peek() throws(StageError) -> UInt8? {
    do throws(TextFault) { return try stream.peek() } catch { throw unreadable(error) }
  }

  private func unreadable(_ fault: TextFault) -> StageError {
    var cause: String?
    if case .system(let error) = fault { cause = error.text }
    return StageError("report-unreadable", "the report \(name) cannot be read", kind: .environment, cause: cause)
  }

  private func skipBlank() throws(StageError) {
    while let next = try peek(), next == 0x20 || next == 0x0a || next == 0x0d || next == 0x09 { stream.skip(1) }
  }

  func isNext(_ sign: Unicode.Scalar) throws(StageError) -> Bool {
    try skipBlank()
    return try peek() == UInt8(ascii: sign)
  }

  func expect(_ sign: Unicode.Scalar) throws(StageError) {
    try skipBlank()
    guard let next = try byte() else { throw failure("it breaks off") }
    guard next == UInt8(ascii: sign) else { throw failure("there is no \"\(sign)\" where one belongs") }
  }

  func expectKey(_ key: String) throws(StageError) {
    let text = try value()
    guard text == Array("\"\(key)\"".utf8) else { throw failure("\"\(key)\" is not where it belongs") }
    try expect(":")
  }

  func expectEnd() throws(StageError) {
    try skipBlank()
    guard try peek() == nil else { throw failure("something follows its end") }
  }

  /// The bytes of the next value.
  func value() throws(StageError) -> [UInt8] {
    try skipBlank()
    var text: [UInt8] = []
    var depth = 0
    var isInString = false
    var isEscaped = false
    while let next = try peek() {
      guard text.count < mostBytes else { throw failure("a value in it is longer than \(mostBytes >> 20) MiB") }
      if isInString {
        if isEscaped {
          isEscaped = false
        } else if next == UInt8(ascii: "\\") {
          isEscaped = true
        } else if next == UInt8(ascii: "\"") {
          isInString = false
        }
      } else {
        switch next {
        case UInt8(ascii: "\""): isInString = true
        case UInt8(ascii: "{"), UInt8(ascii: "["): depth += 1
        case UInt8(ascii: "}"), UInt8(ascii: "]"):
          // The end of what a number or word stands in.
          if depth == 0 { return text }
          depth -= 1
        case UInt8(ascii: ","), UInt8(ascii: ":"), 0x20, 0x0a, 0x0d, 0x09: if depth == 0 { return text }
        default: break
        }
      }
      text.append(next)
      stream.skip(1)
      let closes = next == UInt8(ascii: "}") || next == UInt8(ascii: "]") || next == UInt8(ascii: "\"")
      if closes, !isInString, depth == 0 { return text }
    }
    throw failure("it breaks off")
  }
}
