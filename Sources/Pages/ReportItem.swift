import Glibc
import JobSyntax
import PipelineKit

/// One picture of a report, and what the disk says of its files.
struct ReportItem {
  struct Output {
    var text: String
    /// Absolute; nil for a link.
    var path: PathBytes?
    var link: PageLink?
    var format: String
    var width: Int
    var height: Int
    var bytes: Int
  }

  let node: JSONNode
  let name: String
  let status: String
  let reason: String?
  private(set) var outputs: [Output] = []
  private(set) var times: [(name: String, milliseconds: Double)] = []
  let warnings: [JSONNode]
  let errorCode: String?
  let errorStage: String?
  /// Without the picture's name, which stands beside it.
  let errorMessage: String?
  let errorHint: String?
  let errorCause: String?
  /// The least of all masks' scores, 0…1.
  let score: Double?
  /// Where the input is now; nil where it is no file any more or never was.
  private(set) var inputPath: PathBytes?
  private(set) var inputLink: PageLink?
  /// Why there is no picture of the input; nil where one can be made.
  private(set) var inputNote: String?
  private(set) var inputBytes: Int?

  /// Bytes of all outputs; nil where there is none.
  var outputBytes: Int? {
    outputs.isEmpty ? nil : outputs.reduce(0) { $0 &+ max(0, $1.bytes) }
  }
  var milliseconds: Double { times.reduce(0) { $0 + $1.milliseconds } }

  /// Codes of errors after which an input is not opened again.
  private static let dangerous = ["crash": "it made the program crash", "deadline": "it took too long to read"]

  /// - Parameters:
  ///   - bases: the folders that relative paths may be of; the first that has the file.
  ///   - folder: the page's.
  init(_ node: JSONNode, bases: [PathBytes], folder: PathBytes) {
    self.node = node
    name = node["input"]?.stringValue ?? ""
    status = node["status"]?.stringValue ?? ""
    reason = node["reason"]?.stringValue
    warnings = node["warnings"]?.arrayValue ?? []
    let error = node["error"]
    errorCode = error?["code"]?.stringValue
    errorStage = error?["stage"]?.stringValue
    errorHint = error?["hint"]?.stringValue
    errorCause = error?["cause"]?.stringValue
    var message = error?["message"]?.stringValue
    if let text = message, text.hasPrefix(name + ": ") { message = String(text.dropFirst(name.count + 2)) }
    errorMessage = message
    score = (node["mattes"]?.arrayValue ?? []).compactMap { $0["score"]?.numberValue?.double }.min()
    for entry in node["stages"]?.arrayValue ?? [] {
      guard let name = entry["name"]?.stringValue, let time = entry["milliseconds"]?.numberValue?.double else {
        continue
      }
      times.append((name, time))
    }
    for entry in node["outputs"]?.arrayValue ?? [] {
      let path = entry["path"]?.stringValue.map { Self.place(PathBytes(display: $0), bases) }
      outputs.append(
        Output(
          text: entry["path"]?.stringValue ?? entry["link"]?.stringValue ?? "", path: path,
          link: path.map { PageLink(file: $0, from: folder) }
            ?? entry["link"]?.stringValue.flatMap { PageLink(web: $0) },
          format: entry["format"]?.stringValue ?? "", width: Self.integer(entry["width"]),
          height: Self.integer(entry["height"]), bytes: Self.integer(entry["bytes"])))
    }
    findInput(bases, folder)
  }

  private mutating func findInput(_ bases: [PathBytes], _ folder: PathBytes) {
    if Self.isAddress(name) {
      inputLink = PageLink(web: name)
      inputNote = "it was fetched from an address"
      return
    }
    if node["source"]?.stringValue == "deleted" {
      inputNote = "the input was deleted when its results were done"
      return
    }
    let path = Self.place(PathBytes(display: node["movedTo"]?.stringValue ?? name), bases)
    guard !path.bytes.contains(0) else { return }
    inputLink = PageLink(file: path, from: folder)
    if outputs.contains(where: { $0.path == path }) {
      inputNote = "the input was replaced by its result"
      return
    }
    var status = stat()
    guard path.withCString({ stat($0, &status) }) == 0 else {
      inputLink = nil
      inputNote = "the file is gone"
      return
    }
    guard status.st_mode & S_IFMT == S_IFREG else {
      inputNote = "it is not a regular file"
      return
    }
    inputBytes = Int(status.st_size)
    inputPath = path
    if let code = errorCode, let why = Self.dangerous[code] {
      inputNote = "not opened again: " + why
    }
  }

  private static func integer(_ node: JSONNode?) -> Int { node?.numberValue?.integer ?? 0 }

  /// Whether a name begins with a scheme, as `https://`.
  private static func isAddress(_ name: String) -> Bool {
    guard let end = name.utf8.firstIndex(of: UInt8(ascii: ":")), name[end...].hasPrefix("://"), end > name.startIndex
    else { return false }
    return name[..<end].utf8.allSatisfy {
      (UInt8(ascii: "a")...UInt8(ascii: "z")).contains($0) || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0)
    }
  }

  private static func place(_ path: PathBytes, _ bases: [PathBytes]) -> PathBytes {
    if path.isAbsolute { return path.normalised }
    for base in bases {
      let whole = base.joining(path)
      if whole.withCString({ access($0, F_OK) }) == 0 { return whole.normalised }
    }
    return (bases.first ?? "/").joining(path).normalised
  }
}
