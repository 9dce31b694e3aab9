import Imaging
import JobSyntax
import PipelineKit
import Stages
import Testing

@Suite struct MetadataFieldTests {
  private static let shape = ObjectShape([MetadataField.keep, MetadataField.set])

  private static func read(_ json: String) throws -> (settings: Settings, findings: [Diagnostic]) {
    let (root, problems) = StrictJSON.parse(SourceFile(name: "job.json", text: Array(json.utf8)))
    let node = try #require(root)
    var checker = FieldChecker(file: "job.json", columns: .known(["owner"]))
    checker.append(problems)
    checker.check(node, against: shape, owner: "stage \"encode\"")
    return (Settings(reading: node, shape: shape, file: "job.json"), checker.diagnostics)
  }

  @Test(
    "a word or a list of kinds",
    arguments: [
      ("{}", MetadataKeep.copyright), (#"{ "metadata": "none" }"#, .none), (#"{ "metadata": "all" }"#, .all),
      (#"{ "metadata": "copyright" }"#, .copyright),
      (#"{ "metadata": ["copyright", "gps"] }"#, MetadataKeep([.copyright, .gps])),
      (#"{ "metadata": ["all", "gps"] }"#, MetadataKeep([.all, .gps])),
    ])
  func keep(_ json: String, _ expected: MetadataKeep) throws {
    let (settings, findings) = try Self.read(json)
    #expect(findings.isEmpty)
    #expect(settings[MetadataField.keep] == expected)
  }

  @Test(
    "what is wrong is said where it stands",
    arguments: [
      (#"{ "metadata": "everything" }"#, "unknown-value", "$.metadata", nil),
      (#"{ "metadata": "copyrigth" }"#, "unknown-value", "$.metadata", "copyright"),
      (#"{ "metadata": ["copyright", "gsp"] }"#, "unknown-value", "$.metadata[1]", "gps"),
      (#"{ "metadata": [] }"#, "out-of-range", "$.metadata", nil),
      (#"{ "metadata": true }"#, "wrong-type", "$.metadata", nil),
      (#"{ "set": {} }"#, "missing-key", "$.set", nil),
      (#"{ "set": { "copyrigth": "x" } }"#, "unknown-key", "$.set.copyrigth", "copyright"),
      (#"{ "set": { "copyright": 1 } }"#, "wrong-type", "$.set.copyright", nil),
      (#"{ "set": { "creator": "${item.ownr}" } }"#, "unknown-variable", "$.set.creator", "item.owner"),
    ] as [(String, String, String, String?)])
  func findings(_ json: String, _ code: String, _ path: String, _ hint: String?) throws {
    let finding = try #require(try Self.read(json).findings.first)
    #expect(finding.code == code && finding.path == path)
    if let hint { #expect(finding.hint?.contains(hint) == true) }
  }

  @Test("texts are filled in for each item, and what comes out empty erases nothing")
  func templates() throws {
    let bench = StageBench()
    let json = """
      { "set": { "copyright": "© ${item.owner} ${item.stem}", "creator": "${item.owner}", "title": " ${item.note} " } }
      """
    let (settings, _) = try Self.read(json)
    let templates = MetadataTemplates(settings[MetadataField.set])
    let item = bench.item("in/cat.jpg", columns: ["owner": "Zoë", "note": ""])
    let values = try templates.rendered(for: item, in: bench.context("encode"))
    #expect(values == MetadataValues(copyright: "© Zoë cat", creator: "Zoë"))
    #expect(try MetadataTemplates(nil).rendered(for: item, in: bench.context("encode")).isEmpty)
  }
}
