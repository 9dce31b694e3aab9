import Glibc
import Imaging
import JobSyntax
import PipelineKit

/// The report of a run as a web page: what happened, how long stages took, failures by their cause, and every picture
/// before and after.
///
/// Up to `mostInside` pictures it is one file with everything in it. Above that small pictures and details are in the
/// folder `NAME.files` beside it, in a subfolder for each time the page was written, so that the page that is replaced
/// stays whole until the new one has its name.
public enum ReportPage {
  public struct Options: Sendable {
    /// The folders that relative paths of the report may be of; the first that has the file. Absolute.
    public var bases: [PathBytes]
    /// Pictures that are made small at one time.
    public var workers = 2
    /// When no more small pictures are begun.
    public var deadline: ContinuousClock.Instant?
    /// The machine that ran it, in words.
    public var machine: String?
    /// The most pictures that are carried inside the page.
    public var mostInside = 1000
    /// The most that small pictures are made of: the first ones.
    public var mostShown = 20_000
    /// Goes into temporary names and the subfolder's.
    public var tag: String

    public init(bases: [PathBytes], tag: String) {
      self.bases = bases
      self.tag = tag
    }
  }

  /// What was written.
  public struct Written: Sendable {
    public var pictures: Int
    /// Of the page and the files beside it.
    public var bytes: Int
    /// Where files beside the page are.
    public var folder: PathBytes?
    /// Small pictures that could not be made, though a file was named.
    public var missing: Int
  }

  /// The folder for files beside a page: `report.html` has `report.files`.
  public static func filesFolder(of path: PathBytes) -> PathBytes {
    let name = path.fileExtension == "html" ? path.stem : path.lastComponent
    return path.parent.joining(PathBytes(bytes: name.bytes + Array(".files".utf8)))
  }

  /// Writes the page of a report, atomically. A picture that cannot be shown says why; it fails nothing.
  ///
  /// - Parameters:
  ///   - path: absolute.
  ///   - stop: ends the making of small pictures early; the page is written all the same.
  /// - Throws: `report-…` errors of class environment where the report cannot be read, and `output-…` where the
  ///   page or the files beside it cannot be written.
  public static func write(
    _ report: consuming ReportReader, to path: PathBytes, options: Options, stop: PageStop = PageStop()
  ) throws(StageError) -> Written {
    let announced = (report.run["counts"]?.objectValue ?? []).reduce(0) { sum, count in
      sum + min(max(0, count.value.numberValue?.integer ?? 0), 1 << 40)
    }
    var store = try PageStore(path: path, isInside: announced <= options.mostInside, tag: options.tag)
    let workers = ThumbnailWorkers(count: options.workers, stop: stop, deadline: options.deadline)
    var total = ReportAggregate()
    var rows: [HTML] = []
    var missing = 0
    var isAtEnd = false
    while !isAtEnd {
      var items: [ReportItem] = []
      while items.count < PageStore.blockSize {
        guard let node = try report.next() else {
          isAtEnd = true
          break
        }
        items.append(ReportItem(node, bases: options.bases, folder: path.parent))
      }
      guard !items.isEmpty else { break }
      let limit =
        total.count < options.mostShown ? nil : "only the first \(PageNumbers.grouped(options.mostShown)) are shown"
      let shown = workers.pictures(of: items, unless: limit)
      var details: [JSONText] = []
      for (item, pictures) in zip(items, shown) {
        let sequence = total.count
        total.add(item, sequence: sequence)
        missing += pictures.missing
        rows.append(Page.inert(row(of: item, pictures)))
        details.append(detail(of: item, pictures))
      }
      try store.add(details: details, pictures: shown, from: total.count - items.count)
    }
    total.finish()
    let body = ReportBody(run: report.run, total: total, options: options).html
    var page = Page(title: "\(report.run["job"]?.stringValue ?? "run"): report", body: body)
    page.styles = [ReportAssets.style]
    page.scripts = [ReportAssets.script]
    page.readsFiles = !store.isInside
    let settings: JSONText = [
      "block": .integer(PageStore.blockSize), "folder": store.address.map { .string($0) } ?? nil,
      "statuses": .array(statuses.map { .string($0.name) }), "labels": .array(statuses.map { .string($0.label) }),
      "kinds": .array(statuses.map { .string($0.kind) }),
    ]
    page.data = [("settings", settings)]
    let table: HTML = "<script type=\"application/json\" id=\"rows\">[\n\(rows.joined(separator: ",\n"))\n]</script>\n"
    // Before the scripts, so that what is seen first is there at once; pictures follow them.
    page.body += "\n\(table)"
    let bytes = page.opening.bytes + store.blocks + Page.closing.bytes
    try PageStore.write(bytes, to: path, tag: options.tag, isDurable: true)
    store.removeOlder()
    return Written(
      pictures: total.count, bytes: bytes.count + store.fileBytes, folder: store.folder, missing: missing)
  }

  /// How items end: the report's word, what is shown, and the colour.
  static let statuses: [(name: String, label: String, kind: String)] = [
    ("done", "done", "good"), ("skipped", "up to date", "accent"), ("dropped", "dropped", ""),
    ("failed", "failed", "bad"), ("deferred", "deferred", "warn"), ("review", "for review", "warn"),
    ("notAttempted", "not attempted", ""), ("unknown", "outcome unknown", "bad"),
  ]

  // MARK: One picture

  /// The pictures of one item: of the input and of each output.
  struct Pictures {
    var before: Thumbnail
    var after: [Thumbnail]

    var missing: Int { ([before] + after).count { if case .missing = $0 { true } else { false } } }
  }

  /// What filters, sorts and cards need of every picture: place in the job, name, status, warnings, milliseconds, bytes
  /// in and out (or null), score (or null), which small pictures there are (bit 0 the input, bit 1 the first output
  /// …), outputs, width, height and format of the first, and a line of text where something is to be said.
  private static func row(of item: ReportItem, _ pictures: Pictures) -> JSONText {
    var flags = 0
    for (bit, picture) in ([pictures.before] + pictures.after).enumerated() {
      if case .picture = picture { flags |= 1 << bit }
    }
    let note = item.errorMessage ?? item.reason ?? item.warnings.first?["message"]?.stringValue
    let first = item.outputs.first
    return .array([
      .integer(item.node["index"]?.numberValue?.integer ?? 0), .string(item.name),
      .integer(statuses.firstIndex { $0.name == item.status } ?? statuses.count - 1), .integer(item.warnings.count),
      .number((item.milliseconds * 10).rounded() / 10), item.inputBytes.map { .integer($0) } ?? nil,
      item.outputBytes.map { .integer($0) } ?? nil, item.score.map { .number($0) } ?? nil, .integer(flags),
      .integer(item.outputs.count), .integer(first?.width ?? 0), .integer(first?.height ?? 0),
      .string(first?.format ?? ""), .string(note.map { String($0.prefix(160)) } ?? ""),
    ])
  }

  private static func detail(of item: ReportItem, _ pictures: Pictures) -> JSONText {
    func note(_ picture: Thumbnail) -> JSONText { if case .missing(let why) = picture { .string(why) } else { nil } }
    func text(_ text: String?) -> JSONText { text.map { .string($0) } ?? nil }
    let outputs = item.outputs.enumerated().map { index, output -> JSONText in
      [
        "text": .string(output.text), "link": text(output.link?.address), "format": .string(output.format),
        "width": .integer(output.width), "height": .integer(output.height), "bytes": .integer(output.bytes),
        "note": index < pictures.after.count ? note(pictures.after[index]) : "more results than are shown here",
      ]
    }
    var members: [(String, JSONText)] = [
      ("link", text(item.inputLink?.address)), ("note", note(pictures.before)), ("outputs", .array(outputs)),
      ("stages", .array(item.times.map { [.string($0.name), .number($0.milliseconds)] })),
    ]
    if !item.warnings.isEmpty {
      members.append(
        (
          "warnings",
          .array(
            item.warnings.map { warning in
              .array(["stage", "code", "message"].map { text(warning[$0]?.stringValue) })
            })
        ))
    }
    if item.errorCode != nil || item.errorMessage != nil {
      members.append(
        (
          "error",
          [
            "code": text(item.errorCode), "stage": text(item.errorStage), "message": text(item.errorMessage),
            "cause": text(item.errorCause), "hint": text(item.errorHint),
          ]
        ))
    }
    members.append(("reason", text(item.reason)))
    var facts: [JSONText] = []
    func add(_ name: String, _ value: JSONNode) {
      if let list = value.objectValue {
        for member in list { add(name.isEmpty ? member.key : "\(name).\(member.key)", member.value) }
      } else if let list = value.arrayValue, !list.isEmpty, facts.count < 200 {
        for (index, element) in list.enumerated() { add("\(name) \(index + 1)", element) }
      } else if facts.count < 200 {
        facts.append([.string(name), .string(value.stringValue ?? JSONText(value.value).rendered())])
      }
    }
    for (key, label) in [
      ("mattes", "mask"), ("facts", ""), ("source", "input"), ("movedTo", "moved to"), ("sourceReason", "kept since"),
    ] {
      if let value = item.node[key] { add(label, value) }
    }
    if !facts.isEmpty { members.append(("facts", .array(facts))) }
    return .object(members)
  }
}

extension ThumbnailWorkers {
  /// The most results of one picture that are shown.
  private static let mostOutputs = 12

  /// The small pictures of some items, made together.
  ///
  /// - Parameter reason: why there are to be none.
  func pictures(of items: [ReportItem], unless reason: String?) -> [ReportPage.Pictures] {
    if let reason {
      return items.map { item in
        ReportPage.Pictures(
          before: .missing(reason), after: item.outputs.prefix(Self.mostOutputs).map { _ in .missing(reason) })
      }
    }
    var paths: [PathBytes] = []
    var result: [ReportPage.Pictures] = []
    /// Where each path's picture belongs: the item, and -1 for its input or the output.
    var places: [(item: Int, side: Int)] = []
    for (index, item) in items.enumerated() {
      var pictures = ReportPage.Pictures(before: .missing(item.inputNote ?? "it is no file"), after: [])
      if let path = item.inputPath, item.inputNote == nil {
        paths.append(path)
        places.append((index, -1))
      }
      for (side, output) in item.outputs.prefix(Self.mostOutputs).enumerated() {
        pictures.after.append(.missing("the result was uploaded; there is no file of it"))
        guard let path = output.path else { continue }
        paths.append(path)
        places.append((index, side))
      }
      result.append(pictures)
    }
    for (place, picture) in zip(places, thumbnails(of: paths)) {
      if place.side < 0 {
        result[place.item].before = picture
      } else {
        result[place.item].after[place.side] = picture
      }
    }
    return result
  }
}
