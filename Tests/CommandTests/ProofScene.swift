import Engine
import Glibc
import Imaging
import JobSyntax
import PipelineKit
import TestSupport
import Testing

/// A job over small pictures of several formats, and what an undisturbed run of it leaves.
///
/// The report of every run goes to `report.json`.
struct ProofScene {
  let scene: Scene
  let count: Int
  /// What is there before the first run.
  let beginning: [String: DiskModel.Node]
  /// What the undisturbed run has left below `out/`, with folders.
  let outputs: [String: DiskModel.Node]
  /// Names of everything in the job's folder after the undisturbed run, but for the state folder.
  let names: Set<String>
  /// How long the undisturbed run took.
  let seconds: Double

  var folder: TemporaryFolder { scene.folder }

  /// Long proofs run whole in `make soak`, and a seeded tenth of them otherwise.
  static let isSoak = getenv("PIPELINE_SOAK") != nil
  static let seed: UInt64 = getenv("PIPELINE_SEED").flatMap { UInt64(String(cString: $0)) } ?? 20_261_130

  /// What a job does between decoding and the end.
  enum Chain: String, CaseIterable {
    case one
    /// Outputs that must be new: what a dead run has written and not booked must not be in the way.
    case new
    /// One picture down two tails.
    case two

    var stages: String {
      switch self {
      case .two:
        """
        { "stage": "composite", "existingAlpha": true, "background": { "gradient": { "from": "#dfe9f3", "to": "#fff" } } },
        { "stage": "branch", "branches": {
          "small": [
            { "stage": "resize", "width": 20 },
            { "stage": "encode", "format": "webp" },
            { "stage": "write", "to": "out/small/${item.dir}/${item.stem}.${ext}" }
          ],
          "large": [
            { "stage": "encode", "format": "png" },
            { "stage": "write", "to": "out/large/${item.stem}.${ext}" }
          ]
        } }
        """
      case .new:
        """
        { "stage": "resize", "width": 40 },
        { "stage": "encode", "format": "webp" },
        { "stage": "write", "to": "out/${item.stem}.${ext}", "overwrite": "error" }
        """
      case .one:
        """
        { "stage": "resize", "width": 40 },
        { "stage": "composite", "existingAlpha": true, "background": { "gradient": { "from": "#dfe9f3", "to": "#fff" } } },
        { "stage": "encode", "format": "png" },
        { "stage": "write", "to": "out/${item.dir}/${item.stem}.${ext}" }
        """
      }
    }
  }

  init(_ count: Int, side: Int = 64, chain: Chain = .one, run: String = "{}") throws {
    scene = try Scene()
    self.count = count
    var random = SeededGenerator(state: 11)
    for index in 0..<count {
      let (name, bytes) = try Self.picture(index, side: side, &random)
      scene.folder.write(bytes, to: "in/" + name)
    }
    scene.folder.write(
      """
      {
        "version": 1, "name": "proof",
        "input": { "files": ["in/**/*"] },
        "stages": [
          { "stage": "decode" },
          \(chain.stages)
        ],
        "run": \(run)
      }
      """, to: "job.json")
    beginning = scene.folder.contents()
    let begin = ContinuousClock.now
    let result = scene.run("run", "job.json", "--report", "report.json")
    seconds = (ContinuousClock.now - begin) / .seconds(1)
    try #require(result.exitCode == 0, "\(result.error)")
    let contents = scene.folder.contents()
    outputs = Self.outputs(in: contents)
    names = Self.names(in: contents)
    try #require(outputs.values.count { if case .file = $0 { true } else { false } } >= count)
    try #require(scene.temporaries.isEmpty)
  }

  /// A picture with noise in it, in a folder of ten.
  private static func picture(_ index: Int, side: Int, _ random: inout SeededGenerator) throws -> (String, [UInt8]) {
    let kinds: [(bands: Int, options: EncodeOptions)] = [
      (3, .jpeg(.init(quality: 85))), (4, .png(.init())), (3, .jpeg(.init(quality: 85, progressive: true))),
      (4, .webp(.init())), (3, .tiff(.init())), (4, .gif(.init())),
    ]
    let (bands, options) = kinds[index % kinds.count]
    let height = side - index % 7
    let bytes = (0..<side * height * bands).map { _ in UInt8.random(in: 0...255, using: &random) }
    let picture = try Image(width: side, height: height, bands: bands, bytes: bytes).encoded(options).array
    let digits = String(1_000 + index).dropFirst()
    return ("\(index / 10)/p\(digits).\(options.format.rawValue)", picture)
  }

  /// Everything as before the first run.
  func reset() { folder.become(beginning) }

  static func outputs(in contents: [String: DiskModel.Node]) -> [String: DiskModel.Node] {
    contents.filter { $0.key == "out" || $0.key.hasPrefix("out/") }
  }

  static func names(in contents: [String: DiskModel.Node]) -> Set<String> {
    Set(contents.keys.filter { $0 != ".pipeline" && !$0.hasPrefix(".pipeline/") })
  }

  /// Files below `out/` that bear the name of an output and are not what they must be, or have no business there.
  func faults(in contents: [String: DiskModel.Node]) -> [String] {
    contents.compactMap { path, node in
      guard path.hasPrefix("out/"), case .file(let bytes, _) = node, !Self.isTemporary(path) else { return nil }
      guard case .file(let wanted, _) = outputs[path] else { return "\(path) has no business there" }
      return bytes == wanted ? nil : "\(path) holds \(bytes.count) bytes, and not the \(wanted.count) it must"
    }
  }

  static func isTemporary(_ path: String) -> Bool {
    path.split(separator: "/").contains { $0.hasPrefix(".pipeline-") } || path.hasSuffix(".tmp")
  }

  /// Files of runs that were cut short.
  var temporaries: Set<String> { Set(folder.tree().filter(Self.isTemporary)) }

  /// How much of the outputs is there, 0…1.
  var finished: Double {
    let present = folder.tree().count { $0.hasPrefix("out/") && !$0.hasSuffix("/") && !Self.isTemporary($0) }
    return Double(present) / Double(outputs.values.count { if case .file = $0 { true } else { false } })
  }

  /// What the ledger has booked, as a look at a copy tells; nil where there is no ledger yet.
  ///
  /// - Parameter state: what is in the state folder, by path from the job's folder.
  func booked(in contents: [String: DiskModel.Node]) throws -> [LedgerItem]? {
    // Looking brings a log up to date that a dead run has left, which is the next run's to do.
    let copy = TemporaryFolder()
    copy.become(contents.filter { $0.key == ".pipeline" || $0.key.hasPrefix(".pipeline/") })
    let folder = StateFolder.locate(PathBytes(Array(copy[".pipeline"].utf8)), shard: nil)
    guard let ledger = try Ledger.open(folder, .readOnly) else { return nil }
    defer { ledger.close() }
    #expect(try ledger.integrityCheck().isEmpty)
    var items: [LedgerItem] = []
    for job in Set(try ledger.runs(limit: 1_000).map(\.job)) { try ledger.forEachItem(job: job) { items.append($0) } }
    return items
  }

  /// What is booked as done and is not there: every output must be, whole.
  func gaps(in contents: [String: DiskModel.Node], booked: [LedgerItem]) -> [String] {
    booked.filter { $0.status == .done }.flatMap { item -> [String] in
      guard !item.outputs.isEmpty else { return ["\(item.inputPath.display) is booked with no output"] }
      return item.outputs.compactMap { output in
        guard case .path(let path) = output.record.place else { return nil }
        let name = String(path.display.dropFirst(folder.path.count + 1))
        guard case .file(let bytes, _) = contents[name] else { return "\(name) is booked and not there" }
        let isWhole = bytes.count == output.record.bytes && EncodedBytes(bytes).sha256 == output.record.sha256
        return isWhole ? nil : "\(name) is booked and not whole"
      }
    }
  }

  /// Inputs that are booked as done, as reports name them.
  func names(of booked: [LedgerItem]) -> Set<String> {
    Set(booked.filter { $0.status == .done }.map { String($0.inputPath.display.dropFirst(folder.path.count + 1)) })
  }

  /// The report of the last run; nil where it left none.
  func report() throws -> ProofReport? {
    guard let bytes = folder.read("report.json") else { return nil }
    return try ProofReport(try json(bytes))
  }

  /// What must hold once a run has come to its end by itself: every output is there, bit by bit, and nothing else.
  func checkEnd(_ place: String) {
    let contents = folder.contents()
    let left = Self.outputs(in: contents)
    for (path, node) in outputs where left[path] != node {
      Issue.record("\(place): \(path) is missing or not the same")
    }
    #expect(Self.names(in: contents) == names, "\(place)")
    #expect(temporaries.isEmpty, "\(place)")
  }
}

/// What the report of a run says of each input.
struct ProofReport {
  var statuses: [String: String] = [:]
  var exitCode: Int?

  init(_ report: JSONNode) throws {
    exitCode = report["run"]?["exitCode"]?.integer
    for item in try #require(report["items"]?.arrayValue) {
      let input = try #require(item["input"]?.stringValue)
      #expect(statuses[input] == nil, "\(input) twice")
      statuses[input] = try #require(item["status"]?.stringValue)
    }
  }

  func inputs(_ status: String) -> Set<String> { Set(statuses.filter { $0.value == status }.keys) }
}
