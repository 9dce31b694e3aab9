import JobSyntax
import PipelineKit
import TestSupport
import Testing

/// Real reports against the published schema, by a validator that is not ours.
@Suite struct ReportSchemaTests {
  private static let script = """
    import json, sys, jsonschema
    schema = json.load(open(sys.argv[1]))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for name in sys.argv[2:]:
        for error in validator.iter_errors(json.load(open(name))):
            print(name, error.json_path, error.message)
    """

  /// What is wrong with reports, by the schema.
  private func problems(_ scene: Scene, _ reports: [String]) throws -> String {
    let schema = scene.run("schema", "report")
    #expect(schema.exitCode == 0)
    scene.folder.write(schema.outputBytes, to: "schema.json")
    let result = RunProgram.run(
      ["-c", Self.script, "schema.json"] + reports, scene.settings(), program: try Peers.python("python"))
    #expect(result.exitCode == 0, "\(result.error)")
    return result.output
  }

  @Test(.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"))
  func reportsOfEveryKindFit() throws {
    let scene = try Scene(pictures: 40, remembers: true)
    scene.folder.write("no picture", to: "in/bad.jpg")
    scene.job()
    var reports: [String] = []
    var statuses: Set<String> = []
    func run(_ arguments: String...) throws {
      let name = "report-\(reports.count).json"
      let result = RunProgram.run(["run", "job.json", "--report", name] + arguments, scene.settings())
      #expect(result.exitCode != 2 && result.exitCode != 3, "\(result.error)")
      let report = try scene.report(name)
      reports.append(name)
      for item in report["items"]?.arrayValue ?? [] { statuses.insert(item["status"]?.stringValue ?? "") }
    }
    // Done and failed, then up to date.
    try run()
    try run()
    // Not attempted: the first failure ends it, but what had been let in before it is finished.
    try run("--force", "--fail-fast", "--jobs", "1")
    // Dropped by a filter, put aside by another, several outputs of a branch, warnings.
    scene.folder.write(
      """
      {
        "version": 1, "name": "tails", "input": { "files": ["in/*"] },
        "stages": [
          { "stage": "decode" },
          { "stage": "filter", "if": { "item.stem": { "ne": "p00" } } },
          { "stage": "branch", "branches": {
              "a": [ { "stage": "encode", "format": "png" }, { "stage": "write", "to": "a/${item.stem}.png" } ],
              "b": [ { "stage": "resize", "width": 8 }, { "stage": "encode", "format": "webp" },
                     { "stage": "write", "to": "b/${item.stem}.webp" } ] } }
        ]
      }
      """, to: "tails.json")
    let tails = RunProgram.run(["run", "tails.json", "--report", "tails-report.json"], scene.settings())
    #expect(tails.exitCode == 1, "\(tails.error)")
    reports.append("tails-report.json")
    for item in try scene.report("tails-report.json")["items"]?.arrayValue ?? [] {
      statuses.insert(item["status"]?.stringValue ?? "")
    }
    // Uploads: links, an end that nobody knows, and what could not be told from it.
    let server = try StandIn()
    defer { server.stop() }
    let place = Peers.freshName("schema")
    try server.script(.sink, key: place, [("drop", true), ("after", 1)])
    scene.folder.write(
      """
      {
        "version": 1, "name": "sent", "input": { "files": ["in/p0*"] },
        "stages": [
          { "stage": "decode" }, { "stage": "encode", "format": "png" },
          { "stage": "upload", "provider": "http", "url": "\(server.address)/sink/\(place)/up", "linkPointer": "/link" }
        ]
      }
      """, to: "sent.json")
    let sent = RunProgram.run(["run", "sent.json", "--report", "sent-report.json"], scene.settings())
    #expect(sent.exitCode == 1, "\(sent.error)")
    reports.append("sent-report.json")
    let items = try scene.report("sent-report.json")["items"]?.arrayValue ?? []
    for item in items { statuses.insert(item["status"]?.stringValue ?? "") }
    #expect(items.contains { $0["outputs"]?.arrayValue?.first?["link"] != nil })
    // A run that cannot start.
    scene.job(encode: #"{ "stage": "segment", "model": "u2netp" }, { "stage": "encode", "format": "png" }"#)
    let none = scene.run("run", "job.json", "--report", "none.json", "--force") {
      $0.environment = ["PATH": "/usr/bin:/bin", "PIPELINE_HOME": "/nowhere", "HOME": "/nowhere"]
    }
    #expect(none.exitCode == 4)
    reports.append("none.json")
    // Shards, and their reports joined.
    scene.job()
    var shards: [String] = []
    for index in 1...2 {
      let name = "shard-\(index).json"
      _ = scene.run("run", "job.json", "--shard", "\(index)/2", "--force", "--report", name)
      shards.append(name)
    }
    #expect(
      RunProgram.run(["report", "merge"] + shards + ["--output", "merged.json"], scene.settings()).exitCode == 0)
    reports += shards + ["merged.json"]
    #expect(
      statuses.isSuperset(of: ["done", "failed", "skipped", "dropped", "notAttempted", "unknown"]), "\(statuses)")
    #expect(try problems(scene, reports) == "")
  }

  /// The test of the test: what does not fit is found.
  @Test(.enabled(if: Peers.hasPython, "make the servers of the tests with Scripts/peers"))
  func whatIsWrongIsFound() throws {
    let scene = try Scene(pictures: 1)
    scene.job()
    #expect(scene.run("run", "job.json", "--report", "report.json").exitCode == 0)
    let text = String(decoding: try #require(scene.folder.read("report.json")), as: UTF8.self)
    for (index, change) in [
      (#""status":"done""#, #""status":"fine""#), (#""width":64"#, #""width":"64""#), (#""sha256""#, #""sha512""#),
      (#""exitCode": 0"#, #""exitCode": null"#),
    ].enumerated() {
      #expect(text.contains(change.0), "\(change.0)")
      scene.folder.write(text.replacing(change.0, with: change.1), to: "wrong-\(index).json")
      #expect(try problems(scene, ["wrong-\(index).json"]) != "", "\(change.1)")
    }
  }
}
